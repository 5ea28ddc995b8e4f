"""Colour filter arrays: the four Bayer patterns as data, and everything that keeps their lattice.

A pattern is the four letters of the top-left 2x2 cell in reading order, so ``pattern[2 * (y % 2) + x % 2]``
is the colour of photosite (y, x). An image has its colours in the order R, G, B; a mosaic has one channel.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

PATTERNS = ("RGGB", "BGGR", "GRBG", "GBRG")
COLORS = "RGB"

# Bilinear weights over a 3x3 neighbourhood, before the pattern takes away what was not measured.
# Green lies on a quincunx: a missing one is the mean of its four neighbours. Red and blue lie on a square
# lattice: a missing one is the mean of the two or four nearest.
_BILINEAR = {
    "R": ((0.25, 0.5, 0.25), (0.5, 1.0, 0.5), (0.25, 0.5, 0.25)),
    "G": ((0.0, 0.25, 0.0), (0.25, 1.0, 0.25), (0.0, 0.25, 0.0)),
    "B": ((0.25, 0.5, 0.25), (0.5, 1.0, 0.5), (0.25, 0.5, 0.25)),
}


def check_pattern(pattern: str) -> str:
    """The pattern itself, if it is one of the four."""
    if pattern not in PATTERNS:
        raise ValueError(f"a Bayer pattern is one of {', '.join(PATTERNS)}, not {pattern!r}")
    return pattern


def masks(pattern: str, height: int, width: int) -> Bool[Tensor, "3 {height} {width}"]:
    """Which of the three colours each photosite measures.

    >>> masks("RGGB", 2, 2)[0].tolist()
    [[True, False], [False, False]]
    """
    check_pattern(pattern)
    cell = torch.tensor([[color == c for c in pattern] for color in COLORS]).view(3, 2, 2)
    return cell.repeat(1, (height + 1) // 2, (width + 1) // 2)[:, :height, :width]


def mosaic(image: Float[Tensor, "*batch 3 h w"], pattern: str = "RGGB") -> Float[Tensor, "*batch 1 h w"]:
    """What a sensor with this pattern keeps of an image: the operator A of the paper's eq. (1)."""
    mask = masks(pattern, *image.shape[-2:]).to(image.device)
    return torch.where(mask, image, 0).sum(-3, keepdim=True)


def pack(mosaic: Float[Tensor, "*batch 1 h w"]) -> Float[Tensor, "*batch 4 h//2 w//2"]:
    """The four half-size planes of a mosaic of even size, in reading order of the 2x2 cell."""
    return F.pixel_unshuffle(mosaic, 2)


def unpack(planes: Float[Tensor, "*batch 4 h w"]) -> Float[Tensor, "*batch 1 2*h 2*w"]:
    """The mosaic of four planes: the inverse of `pack`."""
    return F.pixel_shuffle(planes, 2)


def _check_size(size: int) -> None:
    if size < 2:
        raise ValueError(f"a mosaic needs at least 2x2 photosites to be continued beyond its border, not {size}")


def reflect(index: Int[Tensor, " n"], size: int) -> Int[Tensor, " n"]:
    """Indices folded into [0, size) by reflection about the border photosites.

    Reflection about a border photosite (not about the border between photosites, and not replication) moves an
    index by an even number, so every photosite is continued by one of its own colour. Any distance, size >= 2.

    >>> reflect(torch.arange(-3, 6), 3).tolist()
    [1, 2, 1, 0, 1, 2, 1, 0, 1]
    """
    _check_size(size)
    period = 2 * (size - 1)
    folded = index.remainder(period)
    return torch.minimum(folded, period - folded)


def pad(
    mosaic: Float[Tensor, "*batch c h w"], top: int, bottom: int, left: int, right: int
) -> Float[Tensor, "*batch c h+{top+bottom} w+{left+right}"]:
    """A mosaic (or image) continued by `reflect` on its four sides."""
    height, width = mosaic.shape[-2:]
    rows = reflect(torch.arange(-top, height + bottom, device=mosaic.device), height)
    columns = reflect(torch.arange(-left, width + right, device=mosaic.device), width)
    return mosaic[..., rows[:, None], columns]


def shift(pattern: str, rows: int, columns: int) -> str:
    """The pattern of a mosaic after its first `rows` rows and `columns` columns are cut off.

    >>> shift("RGGB", 0, 1), shift("RGGB", 1, 1)
    ('GRBG', 'BGGR')
    """
    check_pattern(pattern)
    return "".join(pattern[2 * ((y + rows) % 2) + (x + columns) % 2] for y in (0, 1) for x in (0, 1))


def red_offset(pattern: str) -> tuple[int, int]:
    """Row and column of the red photosite in the cell: how many to add at the top and left to make it RGGB."""
    return divmod(check_pattern(pattern).index("R"), 2)


def align(mosaic: Float[Tensor, "*batch 1 h w"], pattern: str) -> Float[Tensor, "*batch 1 H W"]:
    """The mosaic as RGGB, by continuing it with at most one row at the top and one column at the left."""
    top, left = red_offset(pattern)
    return pad(mosaic, top, 0, left, 0)


def interpolate(mosaic: Float[Tensor, "b 1 h w"], pattern: str = "RGGB") -> Float[Tensor, "b 3 h w"]:
    """The bilinear interpolation of a mosaic: the paper's x-tilde. Measured values are kept.

    Sums and choices, no convolution: on a GPU those round to ten bits, and torch.compile merges these with what the
    result is for. Borders are reflected.
    """
    height, width = mosaic.shape[-2:]
    _check_size(min(height, width))
    padded = F.pad(mosaic, (1, 1, 1, 1), mode="reflect")

    def at(row: int, column: int) -> Tensor:
        return padded[..., row : row + height, column : column + width]

    beside, above = (at(1, 0) + at(1, 2)) / 2, (at(0, 1) + at(2, 1)) / 2
    corners, around = (at(0, 0) + at(0, 2) + at(2, 0) + at(2, 2)) / 4, (beside + above) / 2
    down, right = red_offset(pattern)
    row = torch.arange(down, down + height, device=mosaic.device)[:, None]
    column = torch.arange(right, right + width, device=mosaic.device)
    blue_row, blue_column = row % 2 == 1, column % 2 == 1
    red = torch.where(blue_row, torch.where(blue_column, corners, above), torch.where(blue_column, beside, mosaic))
    green = torch.where((row + column) % 2 == 0, around, mosaic)
    blue = torch.where(blue_row, torch.where(blue_column, mosaic, beside), torch.where(blue_column, above, corners))
    return torch.cat((red, green, blue), 1)


def interpolation_kernel(pattern: str) -> Float[Tensor, "12 4 3 3"]:
    """Weights (colour, y, x) <- (plane, cell row, cell column) of `interpolate`, for other runtimes."""
    kernel = torch.zeros(3, 2, 2, 4, 3, 3)
    for c, color in enumerate(COLORS):
        for y, x in ((0, 0), (0, 1), (1, 0), (1, 1)):
            for i, weights in enumerate(_BILINEAR[color]):
                for j, weight in enumerate(weights):
                    (row, v), (column, u) = divmod(y + i - 1, 2), divmod(x + j - 1, 2)
                    if pattern[2 * v + u] == color:
                        kernel[c, y, x, 2 * v + u, row + 1, column + 1] = weight
    return kernel.view(12, 4, 3, 3)


@dataclass(frozen=True)
class Symmetry:
    """One of the eight symmetries of the square: first transpose, then flip rows, then flip columns."""

    transpose: bool = False
    flip_rows: bool = False
    flip_columns: bool = False

    def apply(self, image: Float[Tensor, "*batch c h w"]) -> Float[Tensor, "*batch c H W"]:
        """The image seen through the symmetry."""
        return self._flip(image.mT if self.transpose else image)

    def undo(self, image: Float[Tensor, "*batch c h w"]) -> Float[Tensor, "*batch c H W"]:
        """The image whose `apply` is the given one."""
        image = self._flip(image)
        return image.mT if self.transpose else image

    def _flip(self, image: Tensor) -> Tensor:
        axes = [axis for axis, flip in ((-2, self.flip_rows), (-1, self.flip_columns)) if flip]
        return image.flip(axes) if axes else image

    def size(self, height: int, width: int) -> tuple[int, int]:
        """Height and width of a mosaic of this size after `apply`."""
        return (width, height) if self.transpose else (height, width)

    def pattern(self, pattern: str, height: int, width: int) -> str:
        """The pattern of a mosaic of this size after `apply`.

        A flip brings the last row (column) to the front, so it changes the pattern if their number is even.
        """
        check_pattern(pattern)
        if self.transpose:
            pattern = pattern[0] + pattern[2] + pattern[1] + pattern[3]
        height, width = self.size(height, width)
        return shift(pattern, self.flip_rows * (height - 1), self.flip_columns * (width - 1))


SYMMETRIES = tuple(Symmetry(t, r, c) for t in (False, True) for r in (False, True) for c in (False, True))
