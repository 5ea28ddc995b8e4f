"""The photosites that a network sees for each tile: windows, gathered by index.

Reflection beyond the border, the alignment to RGGB and the symmetries of the ensemble are all choices of indices,
so the mosaic is never padded or flipped as a whole, and only the memory of a tile is needed. A window extends a
receptive radius beyond its tile and starts on the network's own grid, so tiles equal the whole picture up to float
rounding. All windows of a picture have the same size.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Int
from torch import Tensor

from debayes.imaging import cfa
from debayes.imaging.cfa import Symmetry
from debayes.network.config import BORDER, Config


def split(size: int, tile: int) -> list[slice]:
    """Pieces of almost equal size, at most `tile`: none is a narrow rest."""
    pieces = -(-size // tile)
    ends = [size * i // pieces for i in range(pieces + 1)]
    return [slice(start, stop) for start, stop in pairwise(ends)]


@dataclass(frozen=True)
class Window:
    """The photosites along one axis that a network sees for a tile."""

    first: int
    """Its first photosite; those outside the mosaic, below 0 for instance, are reflected."""
    length: int
    size: int
    """Photosites of the mosaic along the axis."""
    flip: bool
    """Whether photosites are counted from the other end of the mosaic."""
    tile: slice
    """The place of the tile in the window."""

    def index(self, device: torch.device | None = None) -> Int[Tensor, " n"]:
        """Its photosites as indices into the mosaic."""
        index = cfa.reflect(torch.arange(self.first, self.first + self.length, device=device), self.size)
        return self.size - 1 - index if self.flip else index

    def take(self, mosaic: Tensor, axis: int) -> Tensor:
        """Its photosites along an axis of a mosaic: a view if it lies inside the mosaic, else a copy."""
        if not self.flip and self.first >= 0 and self.first + self.length <= self.size:
            return mosaic.narrow(axis, self.first, self.length)
        return mosaic.index_select(axis, self.index(mosaic.device))


def turn(
    config: Config, symmetry: Symmetry, pattern: str, pieces: tuple[list[slice], list[slice]], size: tuple[int, int]
) -> tuple[list[Window], list[Window]]:
    """The windows of all pieces of the rows and of the columns, under a symmetry."""
    offsets = cfa.red_offset(symmetry.pattern(pattern, *size))
    flips = (symmetry.flip_rows, symmetry.flip_columns)
    rows, columns = (1, 0) if symmetry.transpose else (0, 1)
    return (
        _along(config, pieces[0], size[0], offsets[rows], flips[rows]),
        _along(config, pieces[1], size[1], offsets[columns], flips[columns]),
    )


def _along(config: Config, pieces: list[slice], size: int, offset: int, flip: bool) -> list[Window]:
    """The windows of the pieces of one axis, all of the same length.

    The network's grid starts a border and `offset` photosites before the picture, on a red photosite. No window
    extends beyond the picture and its border, so every tile sees the same surroundings as in the whole picture.
    """
    stride, reach = config.stride, config.receptive_radius
    border = -(-BORDER // stride) * stride
    origin = -border - offset
    end = origin + -(-(size + border - origin) // stride) * stride
    spans = [(size - p.stop, size - p.start) if flip else (p.start, p.stop) for p in pieces]
    lows = [origin + max(0, start - reach - origin) // stride * stride for start, _ in spans]
    highs = [min(origin + -(-(stop + reach - origin) // stride) * stride, end) for _, stop in spans]
    length = max(high - low for low, high in zip(lows, highs, strict=True))
    firsts = [min(low, end - length) for low in lows]
    return [
        Window(first, length, size, flip, slice(start - first, stop - first))
        for (start, stop), first in zip(spans, firsts, strict=True)
    ]


def show(mosaic: Tensor, rows: Window, columns: Window, symmetry: Symmetry) -> tuple[Tensor, slice, slice]:
    """The window of a mosaic under a symmetry, and the rows and columns of the tile in it."""
    window = columns.take(rows.take(mosaic, 2), 3)
    if symmetry.transpose:
        return window.mT.contiguous(), columns.tile, rows.tile
    return window.contiguous(), rows.tile, columns.tile
