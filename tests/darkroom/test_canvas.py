"""Canvases: what is written is read back, below black too until the last pass."""

import numpy as np
import pytest
import torch

from debayes.darkroom.canvas import Canvas, CountCanvas, FloatCanvas, PixelCanvas
from debayes.darkroom.domain import DevelopedTile
from debayes.posterior.nig import NormalInverseGamma


def tile(top: int = 0) -> DevelopedTile:
    """Ten rows of a picture with values from -0.02 to 1.02, with noise 0.1 and doubt 0.01."""
    picture = torch.linspace(-0.02, 1.02, 3 * 10 * 12).view(3, 10, 12)
    ones = torch.ones_like(picture)
    posterior = NormalInverseGamma(picture, 100 * ones, 2 * ones, 0.01 * ones)
    return DevelopedTile(slice(top, top + 10), slice(0, 12), picture, posterior)


@pytest.mark.parametrize(
    ("canvas", "step", "lowest", "highest"),
    [
        (FloatCanvas(20, 12), 0, -0.02, 1.02),
        (CountCanvas(20, 12), 0.51 / (65535 - 2048), -0.02, 1.0),
        (PixelCanvas(20, 12, 8), 0.51 / 255, 0, 1),
        (PixelCanvas(20, 12, 16), 0.51 / 65535, 0, 1),
        (PixelCanvas(20, 12, 32), 0, -0.02, 1.02),
    ],
)
def test_read_back(canvas: Canvas, step: float, lowest: float, highest: float) -> None:
    """Tiles and rewritten rows come back to half a step of what the canvas keeps, between its two ends."""
    for top in (0, 10):
        canvas.write(tile(top))
    expected = tile().picture.clamp(lowest, highest)
    assert torch.allclose(canvas.read(slice(10, 20)), expected, rtol=0, atol=step + 1e-7)
    canvas.rewrite(slice(4, 8), 0.5 * tile().picture[:, 4:8], final=False)
    half = (0.5 * tile().picture[:, 4:8]).clamp(lowest, highest)
    assert torch.allclose(canvas.read(slice(4, 8)), half, rtol=0, atol=step + 1e-7)


def test_final_counts() -> None:
    """The last pass leaves counts as a DNG has them: 0 is black, 65535 is white."""
    canvas = CountCanvas(10, 12)
    canvas.rewrite(slice(0, 10), tile().picture, final=True)
    expected = (tile().picture.clamp(0, 1) * 65535).round().permute(1, 2, 0)
    assert float((canvas.counts.float() - expected).abs().max()) <= 1


@pytest.mark.parametrize("canvas", [CountCanvas(10, 12, with_maps=True), PixelCanvas(10, 12, 8, with_maps=True)])
def test_maps(canvas: CountCanvas | PixelCanvas) -> None:
    """The maps of a file are the tiles' standard deviations."""
    canvas.write(tile())
    assert set(canvas.maps) == {"noise", "doubt"}
    assert np.allclose(canvas.maps["noise"], 0.1, rtol=1e-3) and np.allclose(canvas.maps["doubt"], 0.01, rtol=1e-3)


def test_float_canvas_keeps_everything() -> None:
    """Noise, doubt, and intervals if a level is given."""
    canvas = FloatCanvas(10, 12, 0.9)
    canvas.write(tile())
    assert torch.allclose(canvas.noise, torch.tensor(0.1)) and torch.allclose(canvas.doubt, torch.tensor(0.01))
    assert canvas.interval is not None and FloatCanvas(10, 12).interval is None
    low, high = tile().interval(0.9)
    assert torch.equal(canvas.interval[0], low) and torch.equal(canvas.interval[1], high)
