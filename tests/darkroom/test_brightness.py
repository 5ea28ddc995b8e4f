"""Keeping brightness: what is added to a picture, and where nothing is."""

import numpy as np
import pytest
import torch
from scipy.ndimage import map_coordinates

from debayes.darkroom.brightness import BLOCK, MAX_PIXEL_DIFFERENCE, Balance
from debayes.imaging import cfa


def gather(
    picture: torch.Tensor, mosaic: torch.Tensor, pattern: str, limit: float = 1.0, cut: int = 101
) -> Balance:
    """The differences of a picture, added in four unequal pieces."""
    _, height, width = picture.shape
    balance = Balance(height, width, limit)
    for rows in (slice(0, cut), slice(cut, height)):
        for columns in (slice(0, 50), slice(50, width)):
            cell = cfa.shift(pattern, rows.start, columns.start)
            part = (slice(None), rows, columns)
            balance.add(picture[part], mosaic[part], cell, rows.start, columns.start)
    return balance


@pytest.mark.parametrize("pattern", cfa.PATTERNS)
def test_a_cast_is_taken_away(pattern: str) -> None:
    """A picture too bright in one colour and too dark in another gets the means of its noisy mosaic."""
    generator = torch.Generator().manual_seed(0)
    truth = torch.tensor([0.1, 0.2, 0.3]).view(3, 1, 1).expand(3, 300, 400)
    mosaic = cfa.mosaic(truth, pattern) + 0.02 * torch.randn(1, 300, 400, generator=generator)
    wrong = truth * torch.tensor([1.05, 0.97, 1.0]).view(3, 1, 1)
    better = gather(wrong, mosaic, pattern).correct(wrong, 0)
    assert torch.allclose(better.mean((1, 2)), truth.mean((1, 2)), atol=2e-4)
    assert float((better - truth).abs().max()) < 1e-3


@pytest.mark.parametrize("pattern", cfa.PATTERNS)
def test_pixels_between_the_photosites_count(pattern: str) -> None:
    """A picture that is right at the photosites and slightly too bright elsewhere gets the right mean; stripes as
    fine as the pattern, which look like that, stay."""
    truth = torch.full((3, 300, 400), 0.02)
    others = torch.ones(3, 300, 400)
    for i in range(3):
        others[i] -= cfa.mosaic(torch.eye(3)[i].view(3, 1, 1).expand(3, 300, 400), pattern)[0]
    bright, striped = truth + 1e-4 * others, truth + 0.1 * others
    better, kept = (gather(p, cfa.mosaic(truth, pattern), pattern).correct(p, 0) for p in (bright, striped))
    assert torch.allclose(better.mean((1, 2)), truth.mean((1, 2)), atol=1e-6)
    assert float((kept - striped).abs().max()) <= MAX_PIXEL_DIFFERENCE + 1e-7


@pytest.mark.parametrize(("cut", "error"), [(102, 1e-6), (101, 2e-3)])
def test_pieces_and_strips_are_the_whole(cut: int, error: float) -> None:
    """The result does not depend on the pieces that were added, nor on the strips that are corrected, but for two
    rows of random numbers where a piece starts inside a cell of the pattern."""
    generator = torch.Generator().manual_seed(1)
    picture = torch.rand(3, 200, 130, generator=generator) / 2
    mosaic = torch.rand(1, 200, 130, generator=generator)
    whole = Balance(200, 130, 1.0)
    whole.add(picture, mosaic, "RGGB", 0, 0)
    pieces = gather(picture, mosaic, "RGGB", cut=cut)
    expected = whole.correct(picture, 0)
    strips = torch.cat([pieces.correct(picture[:, i : i + 64], i) for i in range(0, 200, 64)], 1)
    assert torch.allclose(strips, expected, atol=error)


@pytest.mark.parametrize("pattern", cfa.PATTERNS)
def test_the_means_are_those_of_photosites_and_pixels(pattern: str) -> None:
    """Of a cell alone: the mean difference of its photosites less that of its pixels, pixel by pixel."""
    generator = torch.Generator().manual_seed(2)
    picture = 0.2 + 1e-3 * torch.rand(3, 32, 32, generator=generator)
    mosaic = 0.2 + 1e-3 * torch.rand(1, 32, 32, generator=generator)
    balance = Balance(32, 32, 1.0)
    balance.add(picture, mosaic, pattern, 0, 0)
    for i, color in enumerate(cfa.COLORS):
        own = [(y, x) for y in range(32) for x in range(32) if pattern[2 * (y % 2) + x % 2] == color]
        lack = sum(float(mosaic[0, y, x] - picture[i, y, x]) for y, x in own) / len(own)
        ahead = float(picture[i].mean()) - sum(float(picture[i, y, x]) for y, x in own) / len(own)
        expected = lack - min(max(ahead, -MAX_PIXEL_DIFFERENCE), MAX_PIXEL_DIFFERENCE)
        assert float(balance.means()[i, 0, 0]) == pytest.approx(expected, abs=1e-7)


def test_means_are_interpolated() -> None:
    """A pixel gets the bilinear interpolation of the means, as SciPy computes it."""
    generator = torch.Generator().manual_seed(3)
    picture = torch.full((3, 200, 130), 0.2)
    balance = Balance(200, 130, 1.0)
    balance.add(picture, 0.2 + 0.1 * torch.rand(1, 200, 130, generator=generator), "GRBG", 0, 0)
    added = torch.cat([balance.correct(picture[:, i : i + 48], i) for i in range(0, 200, 48)], 1) - picture
    places = [((torch.arange(size) + 0.5) / BLOCK - 0.5).numpy() for size in (200, 130)]
    grid = np.meshgrid(*places, indexing="ij")
    for mean, found in zip(balance.means(), added, strict=True):
        expected = map_coordinates(mean.numpy(), grid, order=1, mode="nearest")
        assert np.allclose(found.numpy(), expected, atol=1e-6)


def test_clipping_is_left_alone() -> None:
    """Above the limit, where the mosaic's mean is not the scene's, nothing counts and nothing is changed."""
    picture = torch.full((3, 64, 64), 0.95)
    balance = gather(picture, torch.full((1, 64, 64), 0.5), "RGGB", limit=0.9)
    assert torch.equal(balance.correct(picture, 0), picture)
    assert float(balance.means().abs().max()) == 0
