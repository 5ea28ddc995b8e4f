"""Rendered pictures of linear counts: to look at, upright, as the numbers that go to a file."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Shaped, UInt8, UInt16

from debayes.darkroom.canvas import linear_of
from debayes.darkroom.domain import strips
from debayes.formats import pictures
from debayes.formats.raw import Raw
from debayes.imaging import color, malvar

# The longer side of the preview inside a DNG.
PREVIEW = 1024


def render(
    counts: UInt16[np.ndarray, "h w 3"], raw: Raw, *, stops: float, space: str = "srgb", bits: int = 8
) -> Shaped[np.ndarray, "h w 3"]:
    """The rendered picture of linear counts, `stops` brighter, with 8 or 16 bits a sample."""
    shown = np.empty(counts.shape, np.uint8 if bits == 8 else np.uint16)
    for rows in strips(len(counts)):
        linear = linear_of(torch.from_numpy(counts[rows]), 0)
        picture = color.render(linear, raw.gains, raw.matrix, exposure=stops, space=space)
        shown[rows] = pictures.quantise(picture.permute(1, 2, 0), bits).numpy()
    return shown


def render_plain(raw: Raw, *, stops: float, space: str = "srgb", bits: int = 8) -> Shaped[np.ndarray, "h w 3"]:
    """The picture before: demosaicked by linear filters, noise and all, and rendered as `render` does it."""
    height, width = raw.size
    shown = np.empty((height, width, 3), np.uint8 if bits == 8 else np.uint16)
    for rows in strips(height):
        linear = malvar.demosaick_rows(raw.mosaic, raw.pattern, rows)
        picture = color.render(linear, raw.gains, raw.matrix, exposure=stops, space=space)
        shown[rows] = pictures.quantise(picture.permute(1, 2, 0), bits).numpy()
    return shown


def preview(
    counts: UInt16[np.ndarray, "h w 3"], raw: Raw, *, stops: float, step: int | None = None
) -> UInt8[np.ndarray, "k l 3"]:
    """A small rendered picture: every pixel is the mean of two rows of step x step counts."""
    step = min(-(-max(counts.shape) // PREVIEW) if step is None else step, *counts.shape[:2])
    height, width = (size // step for size in counts.shape[:2])
    taken = counts[: height * step, : width * step].reshape(height, step, width * step, 3)[:, :: -(-step // 2)]
    small = np.empty((height, width, 3), np.uint16)
    for rows in strips(height):
        part = torch.from_numpy(taken[rows]).float().mean(1)  # of two rows, or of one if there is one
        small[rows] = part.view(-1, width, step, 3).mean(2).numpy()
    return render(small, raw, stops=stops)


def upright(shown: Any, raw: Raw) -> Any:
    """A picture cropped as its maker wants it and turned as its EXIF orientation says."""
    if raw.crop is not None:
        top, left, height, width = raw.crop
        shown = shown[top : top + height, left : left + width]
    if raw.orientation >= 5:
        shown = shown.transpose(1, 0, 2)
    flips = {2: (1,), 3: (0, 1), 4: (0,), 6: (1,), 7: (0, 1), 8: (0,)}.get(raw.orientation, ())
    return np.flip(shown, flips) if flips else shown
