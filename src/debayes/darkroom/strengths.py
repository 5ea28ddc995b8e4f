"""A strip of one crop at several strengths, to choose a strength by eye."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from debayes.darkroom import loop, rendering
from debayes.darkroom.counts import read_shot
from debayes.darkroom.domain import noise_of
from debayes.engine import Engine
from debayes.formats import pictures
from debayes.formats.raw import Raw
from debayes.network.network import Network
from debayes.system import files
from debayes.system.errors import DebayesError

# The strengths shown, from left to right.
STRENGTHS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)

# The side of a crop if none is given, and the largest one: six of them are shown beside each other.
SIDE, LARGEST = 320, 1000

# Photosites around the crop that are developed with it: more than a network sees beyond a pixel, and enough for the
# mean brightness.
MARGIN = 128

# The space between crops, the height of the line of numbers above them, and the size of its letters.
GAP, LINE, LETTERS = 4, 26, 16

Box = tuple[int, int, int, int]


def compare(
    network: Network | Engine,
    source: Path,
    target: Path,
    *,
    crop: Box | None = None,
    exposure: float = 0.0,
    tile: int | None = None,
) -> Box:
    """Write a PNG of one crop at `STRENGTHS`, rendered pixel by pixel; left, top, width and height come back.

    They count in pixels of the upright picture, as `develop` writes it; without a crop it is the centre. Only the
    crop and what is around it is developed, with the noise profile of the whole raw.
    """
    files.check_target(target)
    if target.suffix.lower() != ".png":
        raise DebayesError(f"{target}: the strip is written as .png, not as {target.suffix or 'a bare name'}")
    raw = read_shot(source)
    box = _check_crop(raw, crop)
    rows, columns = _photosites(raw, box)
    top, left = (max(0, side.start - MARGIN) // 2 * 2 for side in (rows, columns))  # whole cells of the pattern
    window = raw.mosaic[:, top : rows.stop + MARGIN, left : columns.stop + MARGIN].contiguous()
    inside = (rows.start - top, columns.start - left, rows.stop - rows.start, columns.stop - columns.start)
    part = replace(raw, mosaic=window, profile=noise_of(raw), crop=inside)
    shown = []
    for strength in STRENGTHS:
        developed = loop.develop(network, part, strength=strength, tile=tile)
        picture = pictures.quantise(developed.render(exposure=exposure), 8).permute(1, 2, 0).numpy()
        shown.append(rendering.upright(picture, part))
    pictures.encode(target, draw(shown))
    return box


def draw(shown: list[UInt8[np.ndarray, "h w 3"]]) -> UInt8[np.ndarray, "k l 3"]:
    """The crops beside each other, each below its strength."""
    from PIL import Image, ImageDraw, ImageFont

    height, width = shown[0].shape[:2]
    step = width + GAP
    strip = Image.new("RGB", (len(shown) * step - GAP, height + LINE), "white")
    pen, font = ImageDraw.Draw(strip), ImageFont.load_default(LETTERS)
    for i, (strength, picture) in enumerate(zip(STRENGTHS, shown, strict=True)):
        strip.paste(Image.fromarray(np.ascontiguousarray(picture)), (i * step, LINE))
        label = f"{strength:.1f}" if width < 200 else f"--strength {strength:.1f}"
        pen.text((i * step + 4, 3), label, fill="black", font=font)
    return np.asarray(strip)


def _check_crop(raw: Raw, crop: Box | None) -> Box:
    """The crop as left, top, width and height in the upright picture, if it lies inside; or the centre."""
    height, width = _upright_size(raw)
    if crop is None:
        wide, high = min(SIDE, width), min(SIDE, height)
        return (width - wide) // 2, (height - high) // 2, wide, high
    x, y, wide, high = crop
    if min(x, y) < 0 or min(wide, high) < 1 or x + wide > width or y + high > height:
        raise DebayesError(
            f"the crop {x} {y} {wide} {high} (left, top, width, height) is not inside the picture, which is "
            f"{width}x{height} pixels"
        )
    if max(wide, high) > LARGEST:
        raise DebayesError(f"a crop is at most {LARGEST} pixels wide and high, not {wide}x{high}")
    return crop


def _upright_size(raw: Raw) -> tuple[int, int]:
    height, width = raw.size if raw.crop is None else raw.crop[2:]
    return (width, height) if raw.orientation >= 5 else (height, width)


def _photosites(raw: Raw, box: Box) -> tuple[slice, slice]:
    """The rows and columns of the sensor that a box of the upright picture shows."""
    x, y, wide, high = box
    height, width = raw.size
    # the numbers of rows and of columns as pictures, turned as the picture is: the box cuts out those that it shows
    numbers = (np.arange(height)[:, None, None], np.arange(width)[None, :, None])
    shown = (rendering.upright(np.broadcast_to(n, (height, width, 1)), raw) for n in numbers)
    rows, columns = (picture[y : y + high, x : x + wide] for picture in shown)
    return slice(int(rows.min()), int(rows.max()) + 1), slice(int(columns.min()), int(columns.max()) + 1)
