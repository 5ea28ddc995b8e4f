"""Plain demosaicking: the linear filters of Malvar, He and Cutler (2004), which keep the noise.

"High-quality linear interpolation for demosaicing of Bayer-patterned color images": the bilinear estimate of a
colour, corrected by the second derivative of the colour that was measured.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from debayes.imaging import cfa
from debayes.imaging.cfa import Pattern

# How many rows and columns around a photosite the filters see.
REACH = 2

# In eighths: green at red or blue; a colour at green between two of its photosites in the row; red at blue and blue
# at red. The filter for two photosites in the column is that of the row, transposed.
_GREEN = ((0, 0, -1, 0, 0), (0, 0, 2, 0, 0), (-1, 2, 4, 2, -1), (0, 0, 2, 0, 0), (0, 0, -1, 0, 0))
_ROW = ((0, 0, 0.5, 0, 0), (0, -1, 0, -1, 0), (-1, 4, 5, 4, -1), (0, -1, 0, -1, 0), (0, 0, 0.5, 0, 0))
_DIAGONAL = ((0, 0, -1.5, 0, 0), (0, 2, 0, 2, 0), (-1.5, 0, 6, 0, -1.5), (0, 2, 0, 2, 0), (0, 0, -1.5, 0, 0))


def demosaick(mosaic: Float[Tensor, "1 h w"], pattern: str | Pattern) -> Float[Tensor, "3 h w"]:
    """All three colours everywhere; other patterns than Bayer by `cfa.interpolate`. Nothing is clipped."""
    pattern = Pattern.of(pattern)
    if pattern.period != 2:
        return cfa.interpolate(mosaic[None], pattern)[0]
    row = torch.tensor(_ROW)
    filters = torch.stack([torch.tensor(_GREEN, dtype=torch.float32), row, row.t(), torch.tensor(_DIAGONAL)]) / 8
    padded = cfa.pad(mosaic, REACH, REACH, REACH, REACH, pattern)
    green, in_row, in_column, diagonal = F.conv2d(padded[None], filters[:, None])[0]
    image = torch.empty(3, *mosaic.shape[1:])
    for y, x in ((0, 0), (0, 1), (1, 0), (1, 1)):
        at = (slice(y, None, 2), slice(x, None, 2))
        own, beside, below = (pattern.letters[i] for i in (2 * y + x, 2 * y + 1 - x, 2 * (1 - y) + x))
        estimates = {own: mosaic[0]}
        estimates |= {beside: in_row, below: in_column} if own == "G" else {"G": green, _opposite(own): diagonal}
        for letter, values in estimates.items():
            image[(cfa.COLORS.index(letter), *at)] = values[at]
    return image


def demosaick_rows(mosaic: Float[Tensor, "1 h w"], pattern: str | Pattern, rows: slice) -> Float[Tensor, "3 k w"]:
    """Some rows of `demosaick`."""
    top, end = max(0, rows.start - REACH), min(mosaic.shape[1], rows.stop + REACH)
    part = demosaick(mosaic[:, top:end], cfa.shift(pattern, top, 0))
    return part[:, rows.start - top : rows.stop - top]


def _opposite(letter: str) -> str:
    return {"R": "B", "B": "R"}[letter]
