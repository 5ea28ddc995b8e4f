"""Windows: pieces cover an axis, windows hold what the network needs, and stay on its grid."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from debayes.imaging import cfa
from debayes.imaging.cfa import PATTERNS, SYMMETRIES
from debayes.network.config import Config
from debayes.restoration import windows

CONFIGS = (
    Config(widths=(8,), blocks=1, bottom_blocks=1, tail=4, tail_blocks=0),
    Config(widths=(4, 6, 8), blocks=1, bottom_blocks=1, tail=4),
)


@given(st.integers(1, 500), st.integers(1, 120))
@settings(deadline=None, derandomize=True)
def test_pieces_cover_an_axis_once(size: int, tile: int) -> None:
    """As few as possible, none larger than asked for, and their sizes differ by one at most."""
    pieces = windows.split(size, tile)
    assert [i for piece in pieces for i in range(piece.start, piece.stop)] == list(range(size))
    lengths = [piece.stop - piece.start for piece in pieces]
    assert max(lengths) <= tile and max(lengths) - min(lengths) <= 1 and len(pieces) == -(-size // tile)


@given(
    st.sampled_from(CONFIGS),
    st.sampled_from(PATTERNS),
    st.sampled_from(SYMMETRIES),
    st.integers(2, 200),
    st.integers(2, 200),
    st.integers(8, 90),
)
@settings(deadline=None, derandomize=True, max_examples=60)
def test_windows(config: Config, pattern: str, symmetry: cfa.Symmetry, height: int, width: int, tile: int) -> None:
    """All windows of a mosaic are of one size that the network accepts, and hold what surrounds their tile: a
    receptive radius of it, or all that there is. What a window shows is RGGB, and its tile is the tile."""
    numbers = torch.arange(float(height * width)).view(1, 1, height, width)
    colours = cfa.masks(pattern, height, width)[:, None]
    pieces = (windows.split(height, tile), windows.split(width, tile))
    rows, columns = windows.turn(config, symmetry, pattern, pieces, (height, width))
    assert len({window.length for window in rows}) == len({window.length for window in columns}) == 1
    for piece_rows, row in zip(pieces[0], rows, strict=True):
        for piece_columns, column in zip(pieces[1], columns, strict=True):
            shown, top, left = windows.show(numbers, row, column, symmetry)
            assert shown.shape[2] % config.stride == shown.shape[3] % config.stride == 0
            part = symmetry.undo(shown[..., top, left])
            assert torch.equal(part, numbers[..., piece_rows, piece_columns])
            seen, _, _ = windows.show(colours.float(), row, column, symmetry)
            assert torch.equal(seen[:, 0].bool(), cfa.masks("RGGB", *shown.shape[2:]))
    reach = config.receptive_radius
    for size, along in ((height, rows), (width, columns)):
        for window in along:
            index = set(window.index().tolist())
            first, last = window.first + window.tile.start, window.first + window.tile.stop
            needed = range(max(0, first - reach), min(size, last + reach))
            assert {size - 1 - i if window.flip else i for i in needed} <= index


@pytest.mark.parametrize("flip", [False, True])
def test_windows_inside_the_mosaic_are_views(flip: bool) -> None:
    """Only those beyond the border, or from the other end, are copied; all have the photosites of `index`."""
    mosaic = torch.arange(40.0).view(1, 1, 8, 5)
    for first, length in ((2, 4), (-2, 6), (5, 6)):
        window = windows.Window(first, length, 8, flip, slice(0, 1))
        taken = window.take(mosaic, 2)
        assert torch.equal(taken, mosaic[:, :, window.index()])
        inside = not flip and first >= 0 and first + length <= 8
        assert (taken.untyped_storage().data_ptr() == mosaic.untyped_storage().data_ptr()) == inside
