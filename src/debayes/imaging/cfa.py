"""Colour filter arrays: patterns as data, and every operation that depends on them.

A pattern is a square cell of letters that repeats in both directions: Bayer (2x2), quad Bayer (4x4) or X-Trans
(6x6). An image has its colours in the order R, G, B; a mosaic has one channel. Functions take a `Pattern` or text:
the letters in reading order, in any case, or a name ("xtrans", "quad+1+0").
"""

from dataclasses import dataclass
from math import isqrt

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from debayes.system.errors import DebayesError

COLORS = "RGB"

# Bilinear weights over a 3x3 neighbourhood, before the pattern takes away what was not measured.
# Green lies on a quincunx: a missing one is the mean of its four neighbours. Red and blue lie on a square
# lattice: a missing one is the mean of the two or four nearest.
_BILINEAR = {
    "R": ((0.25, 0.5, 0.25), (0.5, 1.0, 0.5), (0.25, 0.5, 0.25)),
    "G": ((0.0, 0.25, 0.0), (0.25, 1.0, 0.25), (0.0, 0.25, 0.0)),
    "B": ((0.25, 0.5, 0.25), (0.5, 1.0, 0.5), (0.25, 0.5, 0.25)),
}

# The weights exp(-d²/2) of the normalised convolution, along one axis.
_GAUSSIAN = tuple(2.718281828459045 ** (-0.5 * d * d) for d in (-2, -1, 0, 1, 2))


@dataclass(frozen=True, eq=False, repr=False)
class Pattern(str):
    """The colours of a sensor's photosites: photosite (y, x) has letters[period * (y % period) + x % period].

    It is the string of its letters too, so it compares with text and can be written to JSON.

    Examples:
        >>> from debayes import Pattern
        >>> Pattern.of("rggb") == "RGGB", Pattern.of("quad+2+0").letters, Pattern.of("xtrans").period
        (True, 'GGBBGGBBRRGGRRGG', 6)
    """

    letters: str
    """R, G and B of one cell in reading order."""
    period: int
    """Rows and columns of a cell: 2, 4 or 6."""

    def __new__(cls, letters: str, period: int = 0) -> "Pattern":
        """The string; the fields are set by the dataclass."""
        return super().__new__(cls, letters)

    def __post_init__(self) -> None:
        """Reject cells that are no pattern of a sensor."""
        if not _is_cell(self.letters, self.period):
            raise DebayesError(_expected(self.letters))

    @classmethod
    def of(cls, pattern: "str | Pattern") -> "Pattern":
        """The pattern with these letters or this name; a `Pattern` is returned as it is."""
        if isinstance(pattern, Pattern):
            return pattern
        if not isinstance(pattern, str):
            raise DebayesError(_expected(pattern))
        name = pattern.upper()
        return _NAMED[name] if name in _NAMED else _parse(pattern)

    @property
    def name(self) -> str:
        """The letters of a Bayer pattern, else a known name with its shift, else the letters.

        >>> from debayes.imaging.cfa import RGGB, XTRANS, Pattern
        >>> Pattern.of(XTRANS.letters).name, Pattern.of("Quad+1+3").name, RGGB.name
        ('xtrans', 'quad+1+3', 'RGGB')
        """
        for name, base in (("xtrans", XTRANS), ("quad", QUAD)):
            for row in range(base.period):
                for column in range(base.period):
                    if shift(base, row, column) == self:
                        return f"{name}+{row}+{column}" if row or column else name
        return self.letters

    def places(self, color: str) -> list[tuple[int, int]]:
        """Rows and columns of a colour's photosites in a cell."""
        return [divmod(i, self.period) for i, letter in enumerate(self.letters) if letter == color]


def _is_cell(letters: str, period: int) -> bool:
    """Whether these are the letters of a Bayer pattern, or every 5x5 neighbourhood has all three colours."""
    if period == 2:
        return letters in ("RGGB", "BGGR", "GRBG", "GBRG")
    if period not in (4, 6) or len(letters) != period**2 or not set(letters) <= set(COLORS):
        return False
    rows = [letters[i : i + period] * 3 for i in range(0, period**2, period)] * 3
    neighbourhoods = (
        {letter for row in rows[y : y + 5] for letter in row[x : x + 5]}
        for y in range(period)
        for x in range(period)
    )
    return all(len(colors) == 3 for colors in neighbourhoods)


def _expected(pattern: object) -> str:
    return (
        f"a pattern is one of {', '.join(PATTERNS)}, not {pattern!r}; others are xtrans and quad (xtrans+1+2 "
        "starts one row and two columns later), or the 16 or 36 letters of a cell in reading order"
    )


RGGB, BGGR, GRBG, GBRG = (Pattern(letters, 2) for letters in ("RGGB", "BGGR", "GRBG", "GBRG"))
PATTERNS = (RGGB, BGGR, GRBG, GBRG)
"""The four Bayer patterns."""
QUAD = Pattern("RRGGRRGGGGBBGGBB", 4)
"""Quad Bayer: every photosite of RGGB is a block of 2x2."""
XTRANS = Pattern("GGRGGB" + "GGBGGR" + "BRGRBG" + "GGBGGR" + "GGRGGB" + "RBGBRG", 6)
"""Fujifilm X-Trans, from one of its 36 phases."""

_NAMED = {"XTRANS": XTRANS, "X-TRANS": XTRANS, "QUAD": QUAD} | {str(p): p for p in PATTERNS}


def _parse(text: str) -> Pattern:
    name, *shifts = text.upper().split("+")
    pattern = _NAMED.get(name)
    if pattern is None and len(name) in (16, 36):
        pattern = Pattern(name, isqrt(len(name)))
    if pattern is None or len(shifts) not in (0, 2) or not all(s.isdecimal() for s in shifts):
        raise DebayesError(_expected(text))
    return shift(pattern, *map(int, shifts)) if shifts else pattern


def check_pattern(pattern: str | Pattern) -> Pattern:
    """The pattern, if it is Bayer: all networks of today are."""
    checked = Pattern.of(pattern)
    if checked.period != 2:
        raise DebayesError(
            f"the pattern must be Bayer, one of {', '.join(PATTERNS)}, not {checked.name}: "
            "no network restores mosaics of that pattern yet"
        )
    return checked


def masks(pattern: str | Pattern, height: int, width: int) -> Bool[Tensor, "3 {height} {width}"]:
    """Which of the three colours each photosite measures.

    >>> masks("RGGB", 2, 2)[0].tolist()
    [[True, False], [False, False]]
    """
    pattern = Pattern.of(pattern)
    p = pattern.period
    cell = torch.tensor([[color == c for c in pattern.letters] for color in COLORS]).view(3, p, p)
    return cell.repeat(1, -(-height // p), -(-width // p))[:, :height, :width]


def mosaic(image: Float[Tensor, "*batch 3 h w"], pattern: str | Pattern = "RGGB") -> Float[Tensor, "*batch 1 h w"]:
    """What a sensor with this pattern keeps of an image: the operator A of the paper's eq. (1).

    Examples:
        >>> import debayes, torch
        >>> debayes.mosaic(torch.tensor([1.0, 2.0, 3.0]).view(3, 1, 1).expand(3, 2, 4), "RGGB")
        tensor([[[1., 2., 1., 2.],
                 [2., 3., 2., 3.]]])
    """
    mask = masks(pattern, *image.shape[-2:]).to(image.device)
    return torch.where(mask, image, 0).sum(-3, keepdim=True)


def whole_cells(
    image: Float[Tensor, "*batch c h w"], pattern: str | Pattern = "RGGB"
) -> Float[Tensor, "*batch c H W"]:
    """The image without the last rows and columns that fill no whole cell."""
    p = Pattern.of(pattern).period
    return image[..., : image.shape[-2] // p * p, : image.shape[-1] // p * p]


def pack(
    mosaic: Float[Tensor, "*batch 1 h w"], period: int = 2
) -> Float[Tensor, "*batch {period**2} h//{period} w//{period}"]:
    """One small plane for each place of the cell, in reading order; height and width are multiples of `period`."""
    return F.pixel_unshuffle(mosaic, period)


def unpack(
    planes: Float[Tensor, "*batch {period**2} h w"], period: int = 2
) -> Float[Tensor, "*batch 1 {period}*h {period}*w"]:
    """The mosaic of the planes: the inverse of `pack`."""
    return F.pixel_shuffle(planes, period)


def reflect(
    index: Int[Tensor, " n"], size: int, pattern: str | Pattern = "RGGB", axis: int = 0
) -> Int[Tensor, " n"]:
    """Indices of rows (axis 0) or columns (axis 1) folded into [0, size), each onto one of the same colours.

    They are reflected about the outermost lines that mirror the pattern: for Bayer these are the border photosites,
    for others they lie up to half a period inside. Where there are no two such lines, indices move by whole
    periods. Any distance; `size` is at least a period.

    >>> reflect(torch.arange(-3, 6), 3).tolist()
    [1, 2, 1, 0, 1, 2, 1, 0, 1]
    """
    pattern = Pattern.of(pattern)
    _check_size(size, pattern)
    if pattern.period == 2:
        turn = 2 * (size - 1)
        folded = index.remainder(turn)
        return torch.minimum(folded, turn - folded)
    low, high = _mirrors(pattern, size, axis)
    if low < high:
        folded = (2 * index - low).remainder(2 * (high - low))
        folded = (torch.minimum(folded, 2 * (high - low) - folded) + low) // 2
    else:
        last = size - pattern.period  # the last whole cell
        folded = index.remainder(pattern.period)
        folded = torch.where(index < 0, folded, last + (index - last).remainder(pattern.period))
    return torch.where((index < 0) | (index >= size), folded, index)


def _check_size(size: int, pattern: Pattern) -> None:
    p = pattern.period
    if size < p:
        raise DebayesError(
            f"a mosaic needs at least {p}x{p} photosites to be continued beyond its border, not {size}"
        )


def _mirrors(pattern: Pattern, size: int, axis: int) -> tuple[int, int]:
    """The outermost mirror lines of the pattern, each as the sum of two indices that it maps to each other."""
    p = pattern.period
    lines = [pattern.letters[i * p : (i + 1) * p] if axis == 0 else pattern.letters[i::p] for i in range(p)]
    sums = [s for s in range(p) if all(lines[(s - i) % p] == lines[i] for i in range(p))]
    inside = [s for s in (*range(-1, p - 1), *range(2 * size - p, 2 * size)) if s % p in sums]
    return (inside[0], inside[-1]) if inside else (0, 0)


def pad(
    mosaic: Float[Tensor, "*batch c h w"],
    top: int,
    bottom: int,
    left: int,
    right: int,
    pattern: str | Pattern = "RGGB",
) -> Float[Tensor, "*batch c h+{top+bottom} w+{left+right}"]:
    """A mosaic (or image) continued by `reflect` on its four sides."""
    height, width = mosaic.shape[-2:]
    rows = reflect(torch.arange(-top, height + bottom, device=mosaic.device), height, pattern, 0)
    columns = reflect(torch.arange(-left, width + right, device=mosaic.device), width, pattern, 1)
    return mosaic[..., rows[:, None], columns]


def shift(pattern: str | Pattern, rows: int, columns: int) -> Pattern:
    """The pattern of a mosaic after its first `rows` rows and `columns` columns are cut off.

    >>> shift("RGGB", 0, 1), shift("RGGB", 1, 1)
    ('GRBG', 'BGGR')
    """
    pattern = Pattern.of(pattern)
    p = pattern.period
    return _cell(pattern, [(y + rows, x + columns) for y in range(p) for x in range(p)])


def _cell(pattern: Pattern, places: list[tuple[int, int]]) -> Pattern:
    """The pattern whose cell has the letters of these photosites."""
    p = pattern.period
    return Pattern("".join(pattern.letters[p * (y % p) + x % p] for y, x in places), p)


def red_offset(pattern: str | Pattern) -> tuple[int, int]:
    """Row and column of the red photosite of a Bayer cell: how many to add at the top and left to make it RGGB."""
    return divmod(check_pattern(pattern).letters.index("R"), 2)


def offset(pattern: str | Pattern, target: str | Pattern) -> tuple[int, int]:
    """The fewest rows and columns to add at the top and left of a mosaic to give it the target pattern."""
    pattern, target = Pattern.of(pattern), Pattern.of(target)
    for row in range(pattern.period):
        for column in range(pattern.period):
            if shift(pattern, -row, -column) == target:
                return row, column
    raise DebayesError(f"no shift makes {target.name} of the pattern {pattern.name}")


def align(
    mosaic: Float[Tensor, "*batch 1 h w"], pattern: str | Pattern, target: str | Pattern = "RGGB"
) -> Float[Tensor, "*batch 1 H W"]:
    """The mosaic in the target pattern, by continuing it at the top and left by less than a cell."""
    top, left = offset(pattern, target)
    return pad(mosaic, top, 0, left, 0, pattern)


def interpolate(mosaic: Float[Tensor, "b 1 h w"], pattern: str | Pattern = "RGGB") -> Float[Tensor, "b 3 h w"]:
    """All three colours everywhere, the paper's x-tilde: Bayer mosaics bilinearly, others by a normalised Gaussian.

    Measured values are kept. Borders are continued by `reflect`. It is made of sums and selections, not of
    convolutions: on a GPU convolutions round to ten bits, and torch.compile fuses sums with the operations that use
    the result.
    """
    pattern = Pattern.of(pattern)
    return _bilinear(mosaic, pattern) if pattern.period == 2 else _normalised(mosaic, pattern)


def _bilinear(mosaic: Float[Tensor, "b 1 h w"], pattern: Pattern) -> Float[Tensor, "b 3 h w"]:
    height, width = mosaic.shape[-2:]
    _check_size(min(height, width), pattern)
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


def _normalised(mosaic: Float[Tensor, "b 1 h w"], pattern: Pattern) -> Float[Tensor, "b 3 h w"]:
    """Normalised convolution: the mean of the measured values in a 5x5 neighbourhood, with Gaussian weights."""
    height, width = mosaic.shape[-2:]
    measured = masks(pattern, height, width).to(mosaic.device)
    before = pattern.period - 2  # photosites from the start of a cell to the border of the continuation
    mask = masks(pattern, height + before + 4, width + before + 4)[:, before:, before:].to(mosaic)
    values = mask * pad(mosaic, 2, 2, 2, 2, pattern)

    def blur(planes: Tensor) -> Tensor:
        rows = torch.stack([w * planes[..., i : i + height, :] for i, w in enumerate(_GAUSSIAN)]).sum(0)
        return torch.stack([w * rows[..., i : i + width] for i, w in enumerate(_GAUSSIAN)]).sum(0)

    return torch.where(measured, mosaic, blur(values) / blur(mask))


def interpolation_kernel(pattern: str | Pattern) -> Float[Tensor, "12 4 3 3"]:
    """Weights (colour, y, x) <- (plane, cell row, cell column) of a Bayer `interpolate`, for other runtimes."""
    pattern = check_pattern(pattern)
    kernel = torch.zeros(3, 2, 2, 4, 3, 3)
    for c, color in enumerate(COLORS):
        for y, x in ((0, 0), (0, 1), (1, 0), (1, 1)):
            for i, weights in enumerate(_BILINEAR[color]):
                for j, weight in enumerate(weights):
                    (row, v), (column, u) = divmod(y + i - 1, 2), divmod(x + j - 1, 2)
                    if pattern.letters[2 * v + u] == color:
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

    def pattern(self, pattern: str | Pattern, height: int, width: int) -> Pattern:
        """The pattern of a mosaic of this size after `apply`: a flip brings the last row (column) to the front."""
        pattern = Pattern.of(pattern)
        height, width = self.size(height, width)
        cell = range(pattern.period)
        rows = [height - 1 - y if self.flip_rows else y for y in cell]
        columns = [width - 1 - x if self.flip_columns else x for x in cell]
        return _cell(pattern, [(x, y) if self.transpose else (y, x) for y in rows for x in columns])


SYMMETRIES = tuple(Symmetry(t, r, c) for t in (False, True) for r in (False, True) for c in (False, True))


def symmetries(pattern: str | Pattern) -> dict[Symmetry, tuple[int, int]]:
    """The symmetries that map a pattern onto a shift of itself, with the rows and columns of that shift.

    A network for one pattern can take a mosaic through these alone. Bayer, quad Bayer and X-Trans have all eight.
    For other cells, the symmetries that are left out would give a different pattern.
    """
    pattern = Pattern.of(pattern)
    shifts = {shift(pattern, y, x): (y, x) for y in range(pattern.period) for x in range(pattern.period)}
    seen = {symmetry: symmetry.pattern(pattern, pattern.period, pattern.period) for symmetry in SYMMETRIES}
    return {symmetry: shifts[turned] for symmetry, turned in seen.items() if turned in shifts}
