"""Folded and staged U-Nets against the network itself."""

import pytest
import torch
from engines import CONFIGS, assert_close, noisy, prepared
from networks import untrained

from debayes import restoration
from debayes.engine import staged_unet
from debayes.imaging import cfa


@pytest.mark.parametrize("config", ["one level", "two levels", "three levels"])
def test_folding_changes_nothing_inside(config: str) -> None:
    """One convolution for the linear end of a U-Net: equal away from the border, where alone it may differ; and
    depth to space last of all changes nothing anywhere."""
    network = untrained(CONFIGS[config])
    planes = noisy(1, 4, 24, 32) - 0.5
    base = cfa.interpolate(torch.nn.functional.pixel_shuffle(planes, 2))
    right, found = network.body(planes, base), staged_unet.fold(network)(planes)
    inside = (..., slice(8, -8), slice(8, -8))
    torch.testing.assert_close(found[inside], right[inside], rtol=1e-4, atol=1e-5)
    assert float((found - right).abs().max()) > 1e-3  # at the border they differ, as they may
    torch.testing.assert_close(staged_unet.fold(network, shuffle_last=True)(planes), found, rtol=1e-4, atol=1e-5)
    with pytest.raises(TypeError, match="only a U-Net"):
        staged_unet.fold(untrained(CONFIGS["paper"]))


@pytest.mark.parametrize("ensemble", [False, True])
def test_bands_are_the_tile(monkeypatch: pytest.MonkeyPatch, ensemble: bool) -> None:
    """What an engine gives band by band covers every tile once, from the top, and is what the network gives at
    once; of an ensemble tiles come whole."""
    monkeypatch.setattr(staged_unet, "STRIP_ROWS", 8)
    network, mosaic = untrained(CONFIGS["two levels"]), noisy(1, 75, 118)
    right = restoration.restore(network, mosaic, tile=48, ensemble=ensemble)
    eager = prepared(network, "eager")
    covered, pieces = torch.zeros(75, 118), 0
    for rows, columns, part in restoration.restore_tiles(eager, mosaic, tile=48, ensemble=ensemble):
        assert rows.start == 0 or bool((covered[: rows.start, columns] == 1).all())
        covered[rows, columns] += 1
        pieces += 1
        assert_close(part, right.map(lambda t, place=(..., rows, columns): t[place]), 1e-4)
    assert bool((covered == 1).all())
    # two rows of three tiles, of 37 or 38 photosites: three bands of 16 each
    assert pieces == (6 if ensemble else 18)
