"""The protocol: the same noise for the same picture, scores as scikit-image gives them."""

from pathlib import Path

import pytest
import torch
from skimage.metrics import peak_signal_noise_ratio

import debayes
from debayes.evaluation import baselines, protocol
from debayes.formats import pictures as picture_files
from debayes.imaging import cfa


@pytest.fixture
def pictures(tmp_path: Path) -> list[Path]:
    """Two random smooth pictures, the second of odd size."""
    generator = torch.Generator().manual_seed(0)
    for name, size in (("a.png", (40, 48)), ("b.png", (41, 39))):
        coarse = torch.rand(1, 3, 6, 6, generator=generator)
        smooth = torch.nn.functional.interpolate(coarse, size=size, mode="bicubic")[0].clamp(0, 1)
        picture_files.write(tmp_path / name, smooth, bits=8)
    return picture_files.find(tmp_path)


def test_scores_are_those_of_the_protocol(pictures: list[Path]) -> None:
    """PSNR of the clipped, unrounded result on the even crop, over all pixels; the same numbers twice."""
    network = debayes.load("wild-s")
    scores = protocol.evaluate(network, pictures, (5.0, 15.0), pattern="BGGR")
    assert [(s.name, s.sigma) for s in scores] == [("a.png", 5), ("a.png", 15), ("b.png", 5), ("b.png", 15)]
    assert protocol.evaluate(network, pictures, (5.0, 15.0), pattern="BGGR") == scores
    truth = picture_files.read(pictures[1])[:, :40, :38]
    mosaic = protocol.noisy_mosaic(truth, 15 / 255, pattern="BGGR", seed="b.png")
    restored = debayes.restore(network, mosaic, "BGGR").mean.clamp(0, 1)
    expected = peak_signal_noise_ratio(truth.numpy(), restored.numpy(), data_range=1)
    assert scores[3].psnr == pytest.approx(expected, abs=1e-4)
    mean = protocol.average(scores, 15.0)[0]
    assert mean == pytest.approx((scores[1].psnr + scores[3].psnr) / 2)


def test_bilinear_is_the_baseline(pictures: list[Path]) -> None:
    """The interpolation is judged as it is, borders and all, and has no noise map."""
    (score,) = protocol.evaluate(baselines.find("bilinear"), pictures[:1], (10.0,))
    truth = picture_files.read(pictures[0])
    mosaic = protocol.noisy_mosaic(truth, 10 / 255, pattern="RGGB", seed="a.png")
    error = (cfa.interpolate(mosaic[None])[0].clamp(0, 1) - truth).square().mean()
    assert score.psnr == pytest.approx(float(-10 * error.log10()), abs=1e-3)
    assert score.noise_error is None


def test_noise_is_seeded_by_name_and_level() -> None:
    """Another name or level is another draw; the noise is neither clipped nor rounded."""
    truth = torch.zeros(3, 8, 8)
    draws = [
        protocol.noisy_mosaic(truth, sigma, pattern="RGGB", seed=seed) / sigma
        for sigma, seed in ((0.1, "a"), (0.1, "b"), (0.2, "a"))
    ]
    assert not torch.allclose(draws[0], draws[1]) and not torch.allclose(draws[0], draws[2])
    assert float(draws[0].min()) < 0


def test_negative_levels_are_refused(pictures: list[Path]) -> None:
    """A sentence names the level."""
    with pytest.raises(ValueError, match="0 or more, not -5"):
        protocol.evaluate(baselines.find("bilinear"), pictures, (-5.0,))
