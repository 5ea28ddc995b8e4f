"""Baselines: correct on all four patterns and odd sizes, BM3D denoises, missing libraries are named."""

import sys

import pytest
import torch
from torch import Tensor

from debayes.evaluation import baselines, metrics
from debayes.imaging import cfa, noise
from debayes.system.errors import DebayesError

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")  # of the libraries


def smooth(height: int, width: int) -> Tensor:
    y, x = torch.meshgrid(torch.linspace(0, 2, height), torch.linspace(0, 2, width), indexing="ij")
    return torch.stack((0.3 + 0.2 * (2 * x).sin(), 0.5 + 0.3 * (x * y).cos(), 0.6 - 0.1 * x * y))


@pytest.mark.parametrize("pattern", cfa.PATTERNS)
@pytest.mark.parametrize("name", baselines.DEMOSAICKERS)
def test_demosaickers_restore_smooth_pictures(name: str, pattern: str) -> None:
    """Without noise a smooth picture of odd size is restored above 40 dB with every pattern, borders included."""
    truth = smooth(61, 47)
    image = baselines.find_baseline(name)(cfa.mosaic(truth, pattern), pattern, 0.0)
    assert image.shape == truth.shape
    assert float(metrics.psnr(image, truth)) > 40


def test_bm3d_denoises() -> None:
    """+bm3d gains at least 5 dB on a smooth picture with sigma 10; with sigma 0 it changes nothing."""
    truth = smooth(64, 64)
    mosaic = noise.gaussian(cfa.mosaic(truth), 10 / 255, generator=torch.Generator().manual_seed(0))
    plain, denoised = (baselines.find_baseline(name)(mosaic, "RGGB", 10 / 255) for name in ("menon", "menon+bm3d"))
    assert float(metrics.psnr(denoised, truth)) > float(metrics.psnr(plain, truth)) + 5
    clean = cfa.mosaic(truth)
    assert torch.equal(
        baselines.find_baseline("bilinear+bm3d")(clean, "RGGB", 0.0),
        baselines.find_baseline("bilinear")(clean, "RGGB", 0.0),
    )


def test_unknown_noise_levels() -> None:
    """With an unknown noise level demosaicking is unchanged, and +bm3d is rejected instead of skipped."""
    mosaic = cfa.mosaic(smooth(16, 16))
    assert torch.equal(
        baselines.find_baseline("bilinear")(mosaic, "RGGB", None),
        baselines.find_baseline("bilinear")(mosaic, "RGGB", 0.1),
    )
    with pytest.raises(DebayesError, match=r"'bilinear\+bm3d' needs the noise level"):
        baselines.find_baseline("bilinear+bm3d")(mosaic, "RGGB", None)


@pytest.mark.parametrize("name", ["ahd", "menon+nlm", "", "+bm3d"])
def test_unknown_names(name: str) -> None:
    """The error message lists the baselines."""
    with pytest.raises(DebayesError, match="bilinear, malvar, menon, demosaicnet"):
        baselines.find_baseline(name)


def test_a_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named before anything is computed, with the extra that installs it."""
    for library, name in (
        ("bm3d", "bilinear+bm3d"),
        ("demosaicnet", "demosaicnet"),
        ("colour_demosaicing", "menon"),
    ):
        monkeypatch.setitem(sys.modules, library, None)
        with pytest.raises(DebayesError, match=rf"needs {library}: pip install .debayes\[peers\]"):
            baselines.find_baseline(name)
    baselines.find_baseline("bilinear")
