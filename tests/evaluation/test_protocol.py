"""The protocol: reproducible noise, scores as scikit-image computes them, arrays as well as files."""

from pathlib import Path

import numpy as np
import pytest
import torch
from skimage.metrics import peak_signal_noise_ratio

import debayes
from debayes.evaluation import baselines, protocol
from debayes.formats import pictures as picture_files
from debayes.imaging import cfa
from debayes.system.errors import DebayesError


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
    """PSNR of the clipped, unrounded result over all pixels of the even crop; repeating it gives the same
    values."""
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
    """Its score is that of the interpolated mosaic, borders included, and it has no noise map."""
    (score,) = protocol.evaluate(baselines.find_baseline("bilinear"), pictures[:1], (10.0,))
    truth = picture_files.read(pictures[0])
    mosaic = protocol.noisy_mosaic(truth, 10 / 255, pattern="RGGB", seed="a.png")
    error = (cfa.interpolate(mosaic[None])[0].clamp(0, 1) - truth).square().mean()
    assert score.psnr == pytest.approx(float(-10 * error.log10()), abs=1e-3)
    assert score.noise_error is None


def test_noise_is_seeded_by_name_and_level() -> None:
    """Another name or level gives another draw; the noise is not clipped."""
    truth = torch.zeros(3, 8, 8)
    draws = [
        protocol.noisy_mosaic(truth, sigma, pattern="RGGB", seed=seed) / sigma
        for sigma, seed in ((0.1, "a"), (0.1, "b"), (0.2, "a"))
    ]
    assert not torch.allclose(draws[0], draws[1]) and not torch.allclose(draws[0], draws[2])
    assert float(draws[0].min()) < 0


def test_negative_levels_are_rejected(pictures: list[Path]) -> None:
    """The error message has the level."""
    with pytest.raises(ValueError, match="0 or more, not -5"):
        protocol.evaluate(baselines.find_baseline("bilinear"), pictures, (-5.0,))


def test_arrays_are_pictures(pictures: list[Path]) -> None:
    """A path as text, and arrays and tensors of the same values, have the scores of the file."""
    bilinear = baselines.find_baseline("bilinear")
    truth = picture_files.read(pictures[0])
    array = truth.permute(1, 2, 0).numpy()
    (expected,) = protocol.evaluate(bilinear, pictures[:1], (0.0,))
    given = [str(pictures[0]), truth, array, array.astype(np.float64), np.uint8(np.round(255 * array))]
    scores = protocol.evaluate(bilinear, given, (0.0,))
    assert [s.name for s in scores] == ["a.png", "picture 2", "picture 3", "picture 4", "picture 5"]
    assert [(s.psnr, s.ssim) for s in scores] == [(pytest.approx(expected.psnr), pytest.approx(expected.ssim))] * 5
    sixteen = np.full((2, 4, 3), 65535, np.uint16)
    assert torch.equal(protocol.read_picture(sixteen), torch.ones(3, 2, 4))


BAD = {
    r"\(3, height, width\) .* not \(4, 4, 3\)": torch.zeros(4, 4, 3),
    "int64": torch.zeros(3, 4, 4, dtype=torch.int64),
    r"\(height, width, 3\) .* not \(3, 4, 4\)": np.zeros((3, 4, 4)),
    "unsigned integers or floats, .* int64": np.zeros((4, 4, 3), np.int64),
    r"0 \(black\) and 1 \(white\), not 0 to 255": np.linspace(0, 255, 48).reshape(4, 4, 3),
    "not nan": torch.full((3, 4, 4), torch.nan),
}


@pytest.mark.parametrize("message", BAD)
def test_arrays_that_are_not_pictures(message: str) -> None:
    """The error message says what was expected and what was given."""
    with pytest.raises(DebayesError, match=message):
        protocol.read_picture(BAD[message])


def test_arguments_that_are_mistaken() -> None:
    """A model's name in place of a network, and a single picture in place of a sequence."""
    with pytest.raises(DebayesError, match=r"pass debayes\.load\('wild-s'\)"):
        protocol._check_arguments("wild-s", [])
    for single in ("a.png", Path("a.png"), torch.zeros(3, 4, 4), np.zeros((4, 4, 3))):
        with pytest.raises(DebayesError, match=r"pass \[picture\]"):
            protocol._check_arguments(None, single)
