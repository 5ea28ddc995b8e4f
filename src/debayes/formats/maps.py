"""Noise and doubt maps in files: as numbers to compute with, and as pictures to look at."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped, UInt8
from numpy.typing import NDArray

from debayes.formats import pictures
from debayes.system import files
from debayes.system.memory_file import MemoryFile

# Dark violet over green to yellow (viridis): ten steps of a scale that is even to the eye and to the colour-blind.
_STEPS = (
    *((68, 1, 84), (72, 40, 120), (62, 74, 137), (49, 104, 142), (38, 130, 142)),
    *((31, 158, 137), (53, 183, 121), (109, 205, 89), (180, 222, 44), (253, 231, 37)),
)

# The longer side of a panel, the height of its scale, the size of its letters and the distance of its lines, in
# pixels; the space between panels and before a line; the least width, for the text.
SIDE, SCALE, LETTERS, SPACING = 1600, 18, 16, 20
GAP, INDENT, NARROWEST = 16, 6, 320

# The share of a map's pixels that its plot shows in the scale's last colour.
BEYOND = 0.005

# What there are maps of.
KINDS = ("noise", "doubt")


def places(target: Path, kind: str) -> tuple[Path, Path]:
    """Where the map of a picture lies: its numbers, and its plot."""
    return target.with_name(f"{target.stem}.{kind}.tiff"), target.with_name(f"{target.stem}.{kind}.png")


@dataclass(frozen=True)
class Panel:
    """A map to look at."""

    values: Float[np.ndarray, "h w"]
    """At most `SIDE` pixels high and wide: see `shrink`."""
    title: str
    """What it shows, and in which unit."""
    legend: str
    """How to read it."""
    most: float | None = None
    """The end of its scale; None for what one pixel in two hundred exceeds."""


def write(
    target: Path,
    kind: str,
    values: Float[np.ndarray, "h w 3"],
    panels: Sequence[Panel],
    about: dict[str, Any],
    *,
    unit: str,
) -> tuple[Path, Path]:
    """Write STEM.KIND.tiff and STEM.KIND.png beside a picture: see `encode`."""
    encoded = encode(kind, values, panels, about, unit=unit)
    for path, file in zip(places(target, kind), encoded, strict=True):
        with files.replace(path) as temporary:
            file.store(temporary)
    return places(target, kind)


def encode(
    kind: str, values: Float[np.ndarray, "h w 3"], panels: Sequence[Panel], about: dict[str, Any], *, unit: str
) -> tuple[MemoryFile, MemoryFile]:
    """A map of standard deviations as a TIFF with 16 bits a colour, and a PNG of panels in false colours.

    The TIFF's description says what 65535 stands for and the unit.
    """
    most = max(float(values.max()), 1e-6)
    numbers = np.empty(values.shape, np.uint16)
    for row, line in enumerate(values):  # row by row: in float, all of it would take twice the memory
        numbers[row] = np.rint(line.astype(np.float32) * (65535 / most))
    record = {"map": kind, "65535 is": most, "unit": unit, **about}
    return pictures.assemble(".tiff", numbers, record=record), pictures.assemble(".png", plot(panels))


def shrink(values: Shaped[np.ndarray, "h w 3"]) -> Float[np.ndarray, "k l 3"]:
    """A map or a picture in float32, made small enough for a panel by averaging."""
    factor = max(1, -(-max(values.shape) // SIDE))
    height, width = (max(1, size // factor) for size in values.shape[:2])
    small = np.empty((height, width, 3), np.float32)
    for row in range(height):
        part = values[row * factor : (row + 1) * factor, : width * factor].astype(np.float32)
        small[row] = part.reshape(len(part), width, -1, 3).mean((0, 2))
    return small


def plot(panels: Sequence[Panel]) -> UInt8[np.ndarray, "k l 3"]:
    """Maps in false colours: wide ones below each other, tall ones beside each other."""
    drawn = [_draw(panel) for panel in panels]
    height, width = panels[0].values.shape
    across = int(height > width)
    size = [sum(p.shape[i] for p in drawn) if i == across else max(p.shape[i] for p in drawn) for i in (0, 1)]
    whole = np.full((*size, 3), 255, np.uint8)
    start = 0
    for picture in drawn:
        top, left = (0, start) if across else (start, 0)
        whole[top : top + picture.shape[0], left : left + picture.shape[1]] = picture
        start += picture.shape[across]
    return whole


def _draw(panel: Panel) -> UInt8[np.ndarray, "k l 3"]:
    """A map in false colours from 0 on, above its title, its scale and its legend."""
    from PIL import Image, ImageDraw, ImageFont

    height, width = panel.values.shape
    most = panel.most or max(float(np.quantile(panel.values, 1 - BEYOND)), 1e-6)
    font = ImageFont.load_default(LETTERS)
    full = max(width, NARROWEST) + (GAP if height > width else 0)
    bar_width = full - 2 * INDENT - (GAP if height > width else 0)
    title, legend = (
        _wrap(text, lambda line: font.getlength(line) <= bar_width) for text in (panel.title, panel.legend)
    )
    lines = len(title) + 1 + len(legend)
    picture = Image.new("RGB", (full, height + lines * SPACING + SCALE + GAP), "white")
    picture.paste(Image.fromarray(colorize(panel.values / most)), (0, 0))
    pen = ImageDraw.Draw(picture)
    top = height + 3
    for line in title:
        pen.text((INDENT, top), line, fill="black", font=font)
        top += SPACING
    bar = colorize(np.tile(np.linspace(0, 1, bar_width), (SCALE, 1)))
    picture.paste(Image.fromarray(bar), (INDENT, top))
    top += SCALE
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        label = f"{most * share:.3g}"
        x = INDENT + share * bar_width - share * font.getlength(label)
        pen.text((x, top), label, fill="black", font=font)
    for line in legend:
        top += SPACING
        pen.text((INDENT, top), line, fill="dimgray", font=font)
    return np.asarray(picture)


def _wrap(text: str, fits: Callable[[str], bool]) -> list[str]:
    """The lines of a text, each as long as it fits."""
    lines: list[str] = []
    for word in text.split():
        if lines and fits(f"{lines[-1]} {word}"):
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def colorize(shares: Float[np.ndarray, "h w"]) -> UInt8[np.ndarray, "h w 3"]:
    """The colours of values from 0 to 1; values beyond have the colour of the nearer end."""
    stops = np.linspace(0, 1, len(_STEPS))
    channels = [np.interp(shares, stops, [step[i] for step in _STEPS]) for i in range(3)]
    colors: NDArray[np.uint8] = np.rint(np.stack(channels, -1)).astype(np.uint8)
    return colors
