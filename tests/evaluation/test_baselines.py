"""Baselines: each is right on all four patterns and odd sizes, BM3D denoises, what is missing is named."""

import sys

import pytest
import torch
from torch import Tensor

from debayes.evaluation import baselines, metrics
from debayes.imaging import cfa, noise

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")  # of the libraries


def smooth(height: int, width: int) -> Tensor:
    y, x = torch.meshgrid(torch.linspace(0, 2, height), torch.linspace(0, 2, width), indexing="ij")
    return torch.stack((0.3 + 0.2 * (2 * x).sin(), 0.5 + 0.3 * (x * y).cos(), 0.6 - 0.1 * x * y))


@pytest.mark.parametrize("pattern", cfa.PATTERNS)
@pytest.mark.parametrize("name", baselines.DEMOSAICKERS)
def test_demosaickers_restore_smooth_pictures(name: str, pattern: str) -> None:
    """Without noise a smooth picture of odd size comes back above 40 dB whatever the pattern, borders included."""
    truth = smooth(61, 47)
    image = baselines.find(name)(cfa.mosaic(truth, pattern), pattern, 0.0)
    assert image.shape == truth.shape
    assert float(metrics.psnr(image, truth)) > 40


def test_bm3d_denoises() -> None:
    """+bm3d gains at least 5 dB on a smooth picture with sigma 10, and without noise changes nothing."""
    truth = smooth(64, 64)
    mosaic = noise.gaussian(cfa.mosaic(truth), 10 / 255, generator=torch.Generator().manual_seed(0))
    plain, denoised = (baselines.find(name)(mosaic, "RGGB", 10 / 255) for name in ("menon", "menon+bm3d"))
    assert float(metrics.psnr(denoised, truth)) > float(metrics.psnr(plain, truth)) + 5
    clean = cfa.mosaic(truth)
    assert torch.equal(
        baselines.find("bilinear+bm3d")(clean, "RGGB", 0.0), baselines.find("bilinear")(clean, "RGGB", 0.0)
    )


def test_unknown_noise_levels() -> None:
    """Where the noise level is not known, demosaickers do the same as ever and +bm3d is refused, not left out."""
    mosaic = cfa.mosaic(smooth(16, 16))
    assert torch.equal(
        baselines.find("bilinear")(mosaic, "RGGB", None), baselines.find("bilinear")(mosaic, "RGGB", 0.1)
    )
    with pytest.raises(ValueError, match=r"'bilinear\+bm3d' must be told the noise level"):
        baselines.find("bilinear+bm3d")(mosaic, "RGGB", None)


@pytest.mark.parametrize("name", ["ahd", "menon+nlm", "", "+bm3d"])
def test_unknown_names(name: str) -> None:
    """The sentence lists what there is."""
    with pytest.raises(ValueError, match="bilinear, malvar, menon, demosaicnet"):
        baselines.find(name)


def test_a_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence names the library and the extra that brings it."""
    monkeypatch.setitem(sys.modules, "bm3d", None)
    with pytest.raises(ModuleNotFoundError, match=r"needs bm3d: pip install .debayes\[peers\]"):
        baselines.find("bilinear+bm3d")(torch.zeros(1, 8, 8), "RGGB", 0.1)
