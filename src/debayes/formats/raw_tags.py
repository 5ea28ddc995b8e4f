"""What the tags of a camera raw say: levels, colours, noise, orientation, camera and shot.

Every function takes the directories of the file, or None where it has none that are TIFF-like, and what LibRaw
knows (`shot`) where the tags may not say it.

Tested in tests/formats/test_raw.py.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from debayes.formats import ifd
from debayes.imaging.noise_profile import Profile, dark_variance

# Tags of TIFF, EXIF and DNG.
_CHANGED, _ORIENTATION, _MAKE, _MODEL = 306, 274, 271, 272
_COLOR_MATRICES = ((50721, 50778), (50722, 50779))  # each with its illuminant
_BASELINE_EXPOSURE, _NOISE_PROFILE, _MASKED_AREAS, _BLACK_LEVEL = 50730, 51041, 50830, 50714
_EXPOSURE_TIME, _F_NUMBER, _ISO, _DATE, _FOCAL_LENGTH, _LENS = 33434, 33437, 34855, 36867, 37386, 42036
_BLACK_DELTAS = (50715, 50716)
_OFFSETS_AND_COUNTS = ((273, 279), (324, 325))  # of strips, of tiles
_D65 = 21

# LibRaw's numbers of rotations, as EXIF numbers them.
_ROTATIONS = {0: 1, 3: 3, 5: 8, 6: 6}

# The fewest masked photosites whose variance is taken for the noise without light.
_FEWEST_MASKED = 1000

Block = ifd.Block | None


def is_cut_short(block: Block, size: int) -> bool:
    """Whether a file of this many bytes names strips or tiles beyond its end."""
    for directory in block.images if block else ():
        for start, length in _OFFSETS_AND_COUNTS:
            if start not in directory or length not in directory or block is None:
                continue
            offsets, counts = (directory[tag].values(block.order) for tag in (start, length))
            if any(offset + count > size for offset, count in zip(offsets, counts, strict=False)):
                return True
    return False


def blacks(block: Block) -> tuple[float, ...]:
    """The black levels that the file states; empty unless it has masked photosites and one black level for all rows
    and columns.

    Where photosites are masked, LibRaw takes their mean instead of what the file says: a number with noise. It
    is kept if black differs from row to row or column to column.
    """
    uneven = any(_numbers(block, tag) for tag in _BLACK_DELTAS)
    return () if uneven or not _numbers(block, _MASKED_AREAS) else _numbers(block, _BLACK_LEVEL)


def masked_areas(block: Block) -> list[tuple[int, int, int, int]]:
    """Top, left, bottom and right of the areas that no light reaches, in photosites of the whole sensor."""
    values = [max(0, int(value)) for value in _numbers(block, _MASKED_AREAS)]
    return [(values[i], values[i + 1], values[i + 2], values[i + 3]) for i in range(0, len(values) - 3, 4)]


def color_matrix(block: Block) -> NDArray[Any] | None:
    """The file's matrix from XYZ to camera colours: that of daylight (D65), else the first."""
    matrices = []
    for tag, illuminant in _COLOR_MATRICES:
        values = _numbers(block, tag)
        if len(values) == 9:
            is_daylight = (_numbers(block, illuminant) or (0,))[0] == _D65
            matrices.append((is_daylight, np.array(values, float).reshape(3, 3)))
    return max(matrices, key=lambda pair: pair[0])[1] if matrices else None


def noise_profile(block: Block) -> Profile | None:
    """DNG's NoiseProfile; where each colour has its own, that of green, which is the middle one of three."""
    values = _numbers(block, _NOISE_PROFILE)
    if len(values) < 2 or len(values) % 2:
        return None
    gain, floor = values[2:4] if len(values) >= 4 else values
    return Profile(gain, floor) if gain > 0 and floor >= 0 and gain + floor < 1 else None


def orientation(shot: Any, block: Block) -> int:
    """EXIF's number for how to turn the picture to see it upright."""
    value = (block.find(_ORIENTATION) or (0,))[0] if block else 0
    return int(value) if value in range(1, 9) else _ROTATIONS.get(shot.sizes.flip, 1)


def exposure(block: Block) -> float:
    """Stops by which the maker wants the picture brightened (DNG's BaselineExposure); 0 if the value is absurd."""
    value = (_numbers(block, _BASELINE_EXPOSURE) or (0.0,))[0]
    return value if abs(value) < 10 else 0.0


def facts(shot: Any, block: Block) -> dict[str, Any]:
    """Camera, lens and settings of the shot, by the names of `Raw`'s fields."""

    def exif(tag: int) -> Any:
        entry = block.exif.get(tag) if block else None
        values = entry.values(block.order) if entry and block else (block.find(tag) if block else ())
        return values[0] if values else None

    def number(tag: int, by_libraw: float) -> float | None:
        value = exif(tag)
        if value is None:
            return by_libraw or None
        return float(value) if isinstance(value, int | float) and value > 0 else None

    other, lens = shot.other, shot.lens
    maker, model = (str((block.find(tag) or ("",))[0]) if block else "" for tag in (_MAKE, _MODEL))
    names_maker = maker and model.lower().startswith(maker.split()[0].lower())
    date = str(exif(_DATE) or (block.find(_CHANGED) or ("",))[0]) if block else ""
    if not date and other.timestamp.year > 1970:
        date = other.timestamp.strftime("%Y:%m:%d %H:%M:%S")
    return {
        "camera": model if names_maker else f"{maker} {model}".strip(),
        "lens": str(exif(_LENS) or lens.model or ""),
        "iso": number(_ISO, other.iso_speed),
        "seconds": number(_EXPOSURE_TIME, other.shutter_speed),
        "aperture": number(_F_NUMBER, other.aperture),
        "focal_length": number(_FOCAL_LENGTH, other.focal_length),
        "date": date,
    }


def floor(shot: Any, block: Block, scale: float) -> float | None:
    """The noise variance of the masked areas, unless they are clipped at black; 1 is `scale` counts."""
    variances, weights = [], []
    for top, left, bottom, right in masked_areas(block):
        area = shot.raw_image[top:bottom, left:right].astype(np.float32)
        is_clipped = bool((area == area.min(initial=np.inf)).mean() >= 0.2) if area.size else True
        if area.shape[1] >= 4 and area.size >= _FEWEST_MASKED // 4 and not is_clipped:
            variances.append(dark_variance(torch.from_numpy(area)))
            weights.append(area.size)
    if sum(weights) < _FEWEST_MASKED:
        return None
    return float(np.average(variances, weights=weights)) / scale**2


def crop(shot: Any) -> tuple[int, int, int, int] | None:
    """Top, left, height and width of what the maker wants shown, if it is a part of the visible area."""
    sizes = shot.sizes
    top, left = sizes.crop_top_margin - sizes.top_margin, sizes.crop_left_margin - sizes.left_margin
    height, width = sizes.crop_height, sizes.crop_width
    inside = min(top, left) >= 0 and top + height <= sizes.height and left + width <= sizes.width
    whole = (height, width) == (sizes.height, sizes.width)
    return (top, left, height, width) if inside and min(height, width) > 0 and not whole else None


def _numbers(block: Block, tag: int) -> tuple[float, ...]:
    """The values of a tag, if it is there and holds numbers."""
    values = block.find(tag) if block else ()
    return values if all(isinstance(value, int | float) for value in values) else ()
