"""The MSR set: where it is found, how it is read, scores against scikit-image, and error messages."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

import debayes
from debayes.evaluation import baselines, msr
from debayes.formats import pictures
from debayes.imaging import cfa, noise
from debayes.system.errors import DebayesError

SIZE = (32, 40)
BELOW = Path("Dataset_LINEAR_with_noise") / "bayer_panasonic"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Pairs 2, 3 and 10 with transparent ground truths; test.txt lists 10 and 2."""
    made = tmp_path / "set" / BELOW
    for half in ("input", "groundtruth"):
        (made / half).mkdir(parents=True)
    generator = torch.Generator().manual_seed(0)
    for number in (2, 3, 10):
        coarse = torch.rand(1, 3, 5, 5, generator=generator)
        truth = torch.nn.functional.interpolate(coarse, size=SIZE, mode="bicubic")[0].clamp(0, 1) ** 2
        alpha = torch.rand(1, *SIZE, generator=generator)
        pictures.write(made / "groundtruth" / f"{number}.png", torch.cat((truth, alpha)))
        noisy = noise.gaussian(cfa.mosaic(truth), 0.02, generator=generator)
        pictures.write(made / "input" / f"{number}.png", noisy)
    (made / "train.txt").write_text("3\n")
    (made / "test.txt").write_text("10\r\n2\r\n\r\n")
    return made


def numbers(pairs: list[msr.Pair]) -> list[str]:
    assert all(pair.mosaic.name == pair.truth.name for pair in pairs)
    return [pair.mosaic.stem for pair in pairs]


@pytest.mark.parametrize("levels", [0, 1, 2, 3])
def test_the_set_is_located(levels: int, folder: Path) -> None:
    """From its own folder and from the folders one, two and three levels above."""
    assert msr.locate([folder, *folder.parents][levels]) == folder


def test_the_folder_may_have_any_name(folder: Path, tmp_path: Path) -> None:
    """A folder with `input` and `groundtruth` is the set."""
    assert msr.locate(folder.rename(tmp_path / "mine")) == tmp_path / "mine"


def test_other_folders_are_not_the_set(folder: Path, tmp_path: Path) -> None:
    """Neither one half of it nor another folder with an `input` is taken for the set."""
    assert msr.locate(folder / "input") is None
    shutil.copytree(folder / "input", tmp_path / "other" / "input")
    assert msr.locate(tmp_path / "other") is None


def test_pairs_are_those_of_test_txt(folder: Path) -> None:
    """In its order; without it all pictures with both files, ordered by number."""
    assert numbers(msr.pairs(folder)) == ["10", "2"]
    (folder / "test.txt").unlink()
    shutil.copy(folder / "input" / "3.png", folder / "input" / "4.png")
    shutil.copy(folder / "groundtruth" / "3.png", folder / "groundtruth" / "5.png")
    for half in ("input", "groundtruth"):
        (folder / half / "._2.png").touch()
    assert numbers(msr.pairs(folder)) == ["2", "3", "10"]


def test_a_pair_is_read_exactly(folder: Path) -> None:
    """16 bits, 65535 is white, nothing is clipped, the alpha channel is ignored."""
    pixels = np.arange(32 * 40 * 4, dtype=np.uint16).reshape(32, 40, 4) * 11
    pictures.encode(folder / "groundtruth" / "2.png", pixels)
    pictures.encode(folder / "input" / "2.png", pixels[..., 1])
    mosaic, truth = msr.read_pair(msr.pairs(folder)[1])
    assert torch.equal(truth, torch.from_numpy(pixels[..., :3].astype(np.float32) / 65535).permute(2, 0, 1))
    assert torch.equal(mosaic[0], truth[1])


def srgb(linear: np.ndarray) -> np.ndarray:
    return np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)


@pytest.mark.parametrize("name", ["bilinear", "wild-s"])
def test_scores_are_scikit_images(name: str, folder: Path) -> None:
    """PSNR and SSIM of the clipped result over all pixels, linear and sRGB, and their means over pictures."""
    pairs = msr.pairs(folder)
    shares: list[float] = []
    network = debayes.load("wild-s")
    method = network if name == "wild-s" else baselines.find_baseline(name)
    scores = msr.evaluate_pairs(method, pairs, progress=shares.append)
    assert shares == [0.5, 1.0]
    expected = []
    for number in ("10", "2"):
        mosaic = pictures.read_mosaic(folder / "input" / f"{number}.png").values
        if name == "wild-s":
            restored = debayes.restore(network, mosaic, "RGGB").mean
        else:
            restored = cfa.interpolate(mosaic[None], "RGGB")[0]
        image = restored.clamp(0, 1).numpy().astype(np.float64)
        truth = (
            pictures.read(folder / "groundtruth" / f"{number}.png", ignore_alpha=True).numpy().astype(np.float64)
        )
        for space, (a, b) in {"linear": (image, truth), "sRGB": (srgb(image), srgb(truth))}.items():
            psnr = peak_signal_noise_ratio(b, a, data_range=1)
            ssim = structural_similarity(
                b,
                a,
                gaussian_weights=True,
                sigma=1.5,
                use_sample_covariance=False,
                data_range=1,
                channel_axis=0,
            )
            expected.append((f"{number}.png", space, psnr, ssim))
    assert [(s.name, s.space) for s in scores] == [row[:2] for row in expected]
    np.testing.assert_allclose([(s.psnr, s.ssim) for s in scores], [row[2:] for row in expected], rtol=0, atol=1e-4)
    mean = np.mean([row[2:] for row in expected if row[1] == "sRGB"], axis=0)
    assert msr.average_pairs(scores, "sRGB") == pytest.approx(tuple(mean), abs=1e-4)


def test_ensemble(folder: Path) -> None:
    """`ensemble` is passed to `restore`."""
    network = debayes.load("wild-s")
    (pair,) = msr.pairs(folder)[:1]
    mosaic, truth = msr.read_pair(pair)
    scores = msr.evaluate_pairs(network, [pair], ensemble=True)
    restored = debayes.restore(network, mosaic, "RGGB", ensemble=True).mean.clamp(0, 1)
    expected = peak_signal_noise_ratio(truth.numpy(), restored.numpy(), data_range=1)
    assert scores[0].psnr == pytest.approx(expected, abs=1e-4)
    assert abs(scores[0].psnr - msr.evaluate_pairs(network, [pair])[0].psnr) > 1e-3


def lose(half: str) -> Callable[[Path], None]:
    return lambda folder: (folder / half / "2.png").unlink()


def lists(text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / "test.txt").write_text(text)


def lose_all(folder: Path) -> None:
    (folder / "test.txt").unlink()
    for path in (folder / "groundtruth").iterdir():
        path.unlink()


def shrink(folder: Path) -> None:
    pictures.write(folder / "input" / "2.png", torch.zeros(1, 32, 38))


BAD: dict[str, tuple[Callable[[Path], object], type[Exception], str]] = {
    "no mosaic": (
        lose("input"),
        FileNotFoundError,
        r"there is no file .*input/2\.png, which is listed in test\.txt",
    ),
    "no truth": (
        lose("groundtruth"),
        FileNotFoundError,
        r"there is no file .*groundtruth/2\.png, which is listed in test\.txt",
    ),
    "no folder": (lambda f: shutil.rmtree(f / "groundtruth"), FileNotFoundError, "has no folder groundtruth"),
    "no pair at all": (lose_all, DebayesError, "has no pair"),
    "two sizes": (shrink, DebayesError, r"2\.png and its ground truth differ in size: 32x38 and 32x40 pixels"),
    "an empty list": (lists(" \n\n"), DebayesError, r"test\.txt lists no pictures"),
    "no number": (
        lists("2\n3.png\n"),
        DebayesError,
        r"test\.txt: expected the number of .* in line 2, not '3\.png'",
    ),
    "a negative number": (lists("-2\n"), DebayesError, "in line 1, not '-2'"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_sets(case: str, folder: Path, tmp_path: Path) -> None:
    """Each has its error message."""
    spoil, kind, message = BAD[case]
    spoil(folder)
    with pytest.raises(kind, match=message):
        located = msr.locate(tmp_path / "set")
        assert located is not None
        msr.evaluate_pairs(baselines.find_baseline("bilinear"), msr.pairs(located))


def test_what_the_set_cannot_give(folder: Path) -> None:
    """A denoiser that needs the noise level is rejected by name and when it is called; so is another pattern."""
    msr.check_request(["bilinear", "menon"], ["RGGB"])
    with pytest.raises(DebayesError, match=r"'menon\+bm3d' needs the noise level"):
        msr.check_request(["bilinear", "menon+bm3d"], ["RGGB"])
    with pytest.raises(DebayesError, match=r"'bilinear\+bm3d' needs the noise level"):
        msr.evaluate_pairs(baselines.find_baseline("bilinear+bm3d"), msr.pairs(folder))
    with pytest.raises(DebayesError, match="are RGGB and cannot be scored as GBRG"):
        msr.check_request(["bilinear"], ["RGGB", "GBRG"])
