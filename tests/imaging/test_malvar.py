"""The filters of Malvar, He and Cutler: against their reference implementation, in all phases, and by rows."""

import pytest
import torch

from debayes.imaging import cfa, malvar

PATTERNS = ("RGGB", "BGGR", "GRBG", "GBRG")


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("size", [(24, 30), (25, 31)])
def test_against_colour_demosaicing(pattern: str, size: tuple[int, int]) -> None:
    """The same numbers as the package `colour_demosaicing` gives, away from the borders."""
    colour = pytest.importorskip("colour_demosaicing")
    mosaic = torch.rand(1, *size, generator=torch.Generator().manual_seed(0))
    expected = colour.demosaicing_CFA_Bayer_Malvar2004(mosaic[0].double().numpy(), pattern)
    found = malvar.demosaick(mosaic, pattern)[:, 2:-2, 2:-2]
    torch.testing.assert_close(found, torch.from_numpy(expected).float().permute(2, 0, 1)[:, 2:-2, 2:-2])


@pytest.mark.parametrize("pattern", PATTERNS)
def test_ramps_and_measured_values_are_kept(pattern: str) -> None:
    """A ramp in both directions, with other slopes and levels in each colour, comes back; so do photosites."""
    y, x = torch.meshgrid(torch.arange(20.0), torch.arange(26.0), indexing="ij")
    image = torch.stack([0.1 + 0.010 * x + 0.02 * y, 0.3 + 0.010 * x + 0.02 * y, 0.7 + 0.010 * x + 0.02 * y])
    mosaic = cfa.mosaic(image, pattern)
    found = malvar.demosaick(mosaic, pattern)
    torch.testing.assert_close(found[:, 2:-2, 2:-2], image[:, 2:-2, 2:-2])
    torch.testing.assert_close(cfa.mosaic(found, pattern), mosaic, rtol=0, atol=0)


@pytest.mark.parametrize("pattern", [*PATTERNS, "xtrans"])
def test_rows(pattern: str) -> None:
    """Pieces of rows are those of the whole picture, borders included."""
    mosaic = torch.rand(1, 23, 18, generator=torch.Generator().manual_seed(1))
    whole = malvar.demosaick(mosaic, pattern)
    pieces = [malvar.demosaick_rows(mosaic, pattern, rows) for rows in (slice(0, 7), slice(7, 16), slice(16, 23))]
    torch.testing.assert_close(torch.cat(pieces, 1), whole)
