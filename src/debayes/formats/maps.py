"""Noise and doubt maps in files: as numbers to compute with, and as pictures to look at."""

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8
from numpy.typing import NDArray

from debayes.formats import pictures
from debayes.system import files
from debayes.system.memory_file import MemoryFile

# Dark violet over green to yellow (viridis): ten steps of a scale that is even to the eye and to the colour-blind.
_STEPS = (
    *((68, 1, 84), (72, 40, 120), (62, 74, 137), (49, 104, 142), (38, 130, 142)),
    *((31, 158, 137), (53, 183, 121), (109, 205, 89), (180, 222, 44), (253, 231, 37)),
)

# The longer side of the plot of a map, the height of its scale, and the size of its letters.
SIDE, SCALE, LETTERS = 1600, 18, 16

# The share of a map's pixels that its plot shows in the scale's last colour.
BEYOND = 0.005

# What there are maps of.
KINDS = ("noise", "doubt")


def places(target: Path, kind: str) -> tuple[Path, Path]:
    """Where the map of a picture lies: its numbers, and its plot."""
    return target.with_name(f"{target.stem}.{kind}.tiff"), target.with_name(f"{target.stem}.{kind}.png")


def write(
    target: Path, kind: str, values: Float[np.ndarray, "h w 3"], about: dict[str, Any], *, unit: str
) -> tuple[Path, Path]:
    """Write STEM.KIND.tiff and STEM.KIND.png beside a picture: see `encode`."""
    for path, encoded in zip(places(target, kind), encode(kind, values, about, unit=unit), strict=True):
        with files.replace(path) as temporary:
            encoded.store(temporary)
    return places(target, kind)


def encode(
    kind: str, values: Float[np.ndarray, "h w 3"], about: dict[str, Any], *, unit: str
) -> tuple[MemoryFile, MemoryFile]:
    """A map of standard deviations as a TIFF with 16 bits a colour, and as a PNG in false colours with a scale.

    The TIFF's description says what 65535 stands for and the unit; the PNG shows the mean of the three colours.
    """
    most = max(float(values.max()), 1e-6)
    numbers = np.empty(values.shape, np.uint16)
    mean = np.empty(values.shape[:2], np.float32)
    for row, line in enumerate(values):  # row by row: in float, all of it would take twice the memory
        exact = line.astype(np.float32)
        numbers[row] = np.rint(exact * (65535 / most))
        mean[row] = exact.mean(1)
    record = {"map": kind, "65535 is": most, "unit": unit, **about}
    shown = plot(mean, f"{kind}: standard deviation, % of white")
    return pictures.assemble(".tiff", numbers, record=record), pictures.assemble(".png", shown)


def plot(values: Float[np.ndarray, "h w"], title: str) -> UInt8[np.ndarray, "k l 3"]:
    """A map in false colours, from 0 to what one pixel in two hundred exceeds, above a scale in percent."""
    from PIL import Image, ImageDraw, ImageFont

    factor = max(1, -(-max(values.shape) // SIDE))
    height, width = (size // factor for size in values.shape)
    small = values[: height * factor, : width * factor].reshape(height, factor, width, factor).mean((1, 3))
    most = max(float(np.quantile(small, 1 - BEYOND)), 1e-6)
    margin = 2 * LETTERS + SCALE + 14
    picture = Image.new("RGB", (max(width, 320), height + margin), "white")
    picture.paste(Image.fromarray(colorize(small / most)), (0, 0))
    pen = ImageDraw.Draw(picture)
    font = ImageFont.load_default(LETTERS)
    top = height + LETTERS + 8
    pen.text((6, height + 3), title, fill="black", font=font)
    bar = colorize(np.tile(np.linspace(0, 1, picture.width - 12), (SCALE, 1)))
    picture.paste(Image.fromarray(bar), (6, top))
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        label = f"{100 * most * share:.3g}"
        x = 6 + share * (picture.width - 12) - share * pen.textlength(label, font=font)
        pen.text((x, top + SCALE), label, fill="black", font=font)
    return np.asarray(picture)


def colorize(shares: Float[np.ndarray, "h w"]) -> UInt8[np.ndarray, "h w 3"]:
    """The colours of values from 0 to 1; values beyond have the colour of the nearer end."""
    stops = np.linspace(0, 1, len(_STEPS))
    channels = [np.interp(shares, stops, [step[i] for step in _STEPS]) for i in range(3)]
    colors: NDArray[np.uint8] = np.rint(np.stack(channels, -1)).astype(np.uint8)
    return colors
