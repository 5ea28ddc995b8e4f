"""Camera raw files: the only door to LibRaw.

Whatever the camera wrote is made one thing here: a mosaic of the visible area with 0 = black and 1 = white, its
pattern, and what is known of colour, noise and the shot.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from debayes.formats import ifd
from debayes.imaging import cfa, color
from debayes.imaging.noise_profile import Profile, dark_variance

# What photographers' raw files are called. `develop` looks for these in a folder; any name can be given to it.
ENDINGS = (
    *(".3fr", ".arw", ".bay", ".cap", ".cr2", ".cr3", ".crw", ".dcr", ".dng", ".erf", ".fff", ".gpr", ".iiq"),
    *(".k25", ".kdc", ".mef", ".mos", ".mrw", ".nef", ".nrw", ".orf", ".pef", ".raf", ".raw", ".rw2", ".rwl"),
    *(".sr2", ".srf", ".srw", ".x3f"),
)

# Tags of TIFF and DNG that are read here.
_CHANGED, _ORIENTATION, _MAKE, _MODEL = 306, 274, 271, 272
_COLOR_MATRICES = ((50721, 50778), (50722, 50779))  # each with its illuminant
_BASELINE_EXPOSURE, _NOISE_PROFILE, _MASKED_AREAS, _BLACK_LEVEL = 50730, 51041, 50830, 50714
_EXPOSURE_TIME, _F_NUMBER, _ISO, _DATE, _FOCAL_LENGTH, _LENS = 33434, 33437, 34855, 36867, 37386, 42036
_BLACK_DELTAS = (50715, 50716)
_D65 = 21

# Fewer masked photosites than this say too little of the noise.
_LEAST_DARK = 1000


@dataclass(frozen=True)
class Raw:
    """One shot of a camera."""

    mosaic: Float[Tensor, "1 h w"]
    """The visible photosites: 0 = black, 1 = white; noise goes below black, and nothing is clipped there."""
    pattern: str
    """The Bayer pattern at its top left."""
    gains: tuple[float, float, float]
    """The as-shot white balance: what makes neutral neutral; the least of the three is 1."""
    matrix: Float[Tensor, "3 3"]
    """XYZ (of a D65 white) to the camera's colours, before white balance."""
    levels: dict[str, Any] = field(default_factory=dict)
    """The counts of black (one for each colour) and of white that the file names."""
    saturation: float = 1.0
    """Photosites at or above this are blown."""
    profile: Profile | None = None
    """The noise that the file says it has."""
    floor: float | None = None
    """The noise variance of its photosites that no light reaches, if it has such."""
    orientation: int = 1
    """EXIF's number: how to turn the picture to see it upright."""
    exposure: float = 0.0
    """Stops that the maker wants it brightened by; DNG's BaselineExposure."""
    crop: tuple[int, int, int, int] | None = None
    """Top, left, height and width of what the maker wants shown, if not all."""
    camera: str = ""
    """Maker and model."""
    lens: str = ""
    iso: float | None = None
    seconds: float | None = None
    """The exposure time."""
    aperture: float | None = None
    """The f-number."""
    focal_length: float | None = None
    """In millimetres."""
    date: str = ""
    """When it was taken, as EXIF writes it."""
    assumed: tuple[str, ...] = ()
    """What the file does not say, and what was taken instead."""
    block: ifd.Block | None = field(default=None, repr=False)
    """The file's own directories, for those who copy them."""

    @property
    def size(self) -> tuple[int, int]:
        """Height and width in photosites."""
        return self.mosaic.shape[-2], self.mosaic.shape[-1]


def read(
    source: str | PathLike[str] | bytes,
    *,
    black: float | None = None,
    white: float | None = None,
    pattern: str | None = None,
) -> Raw:
    """A camera raw from a path or from its bytes; `black`, `white` and `pattern` replace what the file says.

    Sensors with a Bayer pattern are read, from every maker that LibRaw knows. Everything else is refused with a
    sentence.
    """
    if isinstance(source, bytes):
        name, data = "the raw file", source
    else:
        name = fspath(source)
        path = Path(name)
        if path.is_dir():
            raise IsADirectoryError(f"{name} is a folder without camera raws: a camera raw was expected")
        if not path.exists():
            raise FileNotFoundError(f"there is no file {name}")
        data = path.read_bytes()
    if not data:
        raise ValueError(f"{name} is empty")
    block = ifd.find(data)
    _check_whole(name, data, block)
    with _unpack(name, data) as shot:
        _check_header(name, shot, block)
        stored = _pattern(name, shot)
        cells = cfa.check_pattern(pattern or stored)
        blacks = _blacks(shot, block)
        top = float(shot.white_level) if white is None else white
        mosaic, saturation = _normalise(name, shot, blacks if black is None else [black] * 4, top)
        assumed: list[str] = []
        if pattern is None and _suspicious(mosaic, stored):
            others = " or ".join(p for p in cfa.PATTERNS if (p[0] == "G") != (stored[0] == "G"))
            assumed.append(
                f"colour pattern: {stored}, as the file says, but it looks wrong: try --pattern {others}"
            )
        gains = _gains(shot, mosaic, cells, assumed)
        matrix = _matrix(name, shot, block, assumed)
        facts = _facts(shot, block)
        return Raw(
            torch.from_numpy(mosaic)[None],
            cells,
            gains,
            torch.from_numpy(matrix).float(),
            levels={"black": [int(b) for b in blacks], "white": int(shot.white_level)},
            saturation=saturation,
            profile=_profile(block),
            floor=_floor(shot, block, top - (blacks[0] if black is None else black)),
            orientation=_orientation(shot, block),
            exposure=_exposure(block),
            crop=_crop(shot),
            assumed=tuple(assumed),
            block=block,
            **facts,
        )


def find(folder: Path) -> list[Path]:
    """The raw files of a folder and of those below it, in order of name, by their endings.

    Hidden ones are left out, such as those in which macOS keeps what other systems have no place for.
    """
    found = (p for p in folder.rglob("*") if p.suffix.lower() in ENDINGS and p.is_file())
    return sorted(p for p in found if not any(part.startswith(".") for part in p.relative_to(folder).parts))


@contextmanager
def _unpack(name: str, data: bytes) -> Iterator[Any]:
    import rawpy

    try:
        with rawpy.imread(BytesIO(data)) as shot:
            _ = shot.raw_image  # decodes the photosites, or says that it cannot
            yield shot
    except rawpy.LibRawFileUnsupportedError:
        raise ValueError(f"{name} is no camera raw that LibRaw {_version()} can read") from None
    except rawpy.LibRawIOError:
        raise ValueError(f"{name} is damaged, or no camera raw: it ends too early for LibRaw") from None
    except rawpy.LibRawError as error:
        raise ValueError(f"{name} is damaged, or no camera raw: LibRaw says {_words(error)!r}") from None
    except MemoryError:
        raise ValueError(f"{name} is damaged: it names a size that no memory holds") from None


def _version() -> str:
    import rawpy

    return ".".join(map(str, rawpy.libraw_version))


def _words(error: Exception) -> str:
    first = error.args[0] if error.args else type(error).__name__
    return first.decode() if isinstance(first, bytes) else str(first)


def _check_whole(name: str, data: bytes, block: ifd.Block | None) -> None:
    """Raise if a file names strips or tiles beyond its end: some decoders would show grey or garbage there."""
    for directory in block.images if block else ():
        for start, length in ((273, 279), (324, 325)):
            if start not in directory or length not in directory or block is None:
                continue
            offsets, counts = (directory[tag].values(block.order) for tag in (start, length))
            if any(offset + count > len(data) for offset, count in zip(offsets, counts, strict=False)):
                raise ValueError(f"{name} is cut short: it ends before its picture does")


def _check_header(name: str, shot: Any, block: ifd.Block | None) -> None:
    """Raise if nothing but its length makes a file a raw: LibRaw then guesses an old camera, mostly wrong."""
    other = shot.other
    if block is None and not (other.iso_speed or other.shutter_speed or other.timestamp.year > 1970):
        raise ValueError(f"{name} has no header that names a camera: what its numbers mean cannot be known")


def _pattern(name: str, shot: Any) -> str:
    import rawpy

    cells = shot.raw_pattern
    letters = shot.color_desc.decode()
    if shot.raw_type is rawpy.RawType.Stack:
        raise ValueError(f"{name} holds all colours at every pixel (Foveon, or demosaicked before): nothing to do")
    if cells is None or shot.num_colors == 1:
        raise ValueError(f"{name} is from a monochrome sensor: a Bayer pattern was expected")
    if cells.shape == (6, 6):
        raise ValueError(
            f"{name} is from an X-Trans sensor, which debayes cannot develop: a Bayer one was expected"
        )
    pattern = "".join(letters[i] for i in _cell(shot)) if min(shot.raw_image_visible.shape) >= 2 else ""
    if pattern not in cfa.PATTERNS:
        raise ValueError(f"{name} has the colour pattern {pattern or letters}: a Bayer one (RGGB ...) was expected")
    return pattern


def _cell(shot: Any) -> list[int]:
    """The colours, as LibRaw numbers them, of the first two photosites of the first two visible rows."""
    top, left = shot.sizes.top_margin, shot.sizes.left_margin
    return [shot.raw_color(top + y, left + x) for y, x in np.ndindex(2, 2)]


def _numbers(block: ifd.Block | None, tag: int) -> tuple[float, ...]:
    """The values of a tag, if it is there and holds numbers."""
    values = block.find(tag) if block else ()
    return values if all(isinstance(value, int | float) for value in values) else ()


def _blacks(shot: Any, block: ifd.Block | None) -> list[float]:
    """The counts of black, of each colour as LibRaw numbers them.

    Where photosites are masked, LibRaw takes their mean instead of what the file says: a number with noise. It
    is kept if black differs from row to row or column to column.
    """
    blacks = [float(level) for level in shot.black_level_per_channel]
    stored = _numbers(block, _BLACK_LEVEL) if _numbers(block, _MASKED_AREAS) else ()
    uneven = any(_numbers(block, tag) for tag in _BLACK_DELTAS)
    if len(stored) in (1, 4) and not uneven:
        for cell, color_index in enumerate(_cell(shot)):
            blacks[color_index] = stored[cell % len(stored)]
    return blacks


def _normalise(name: str, shot: Any, blacks: list[float], top: float) -> tuple[NDArray[np.float32], float]:
    """The visible photosites with 0 = black and 1 = white, and the level at which they are blown."""
    counts = shot.raw_image_visible
    mosaic = np.empty(counts.shape, np.float32)
    blown = 1.0
    lows = np.array([blacks[color_index] for color_index in _cell(shot)], np.float32).reshape(2, 2)
    if not lows.max() < top:
        raise ValueError(f"{name}: its white level ({top:g}) is not above its black level ({lows.max():g})")
    for y in (0, 1):
        low = np.resize(lows[y], counts.shape[1])
        np.subtract(counts[y::2], low, out=mosaic[y::2])
        mosaic[y::2] /= np.float32(top) - low
    highest = counts.max()
    crowd = int((counts == highest).sum())
    if crowd >= max(64, counts.size // 20_000):  # where many photosites end, the sensor does
        level = float(mosaic[counts == highest].min())
        blown = level if 0.5 < level < 1 else blown
    return mosaic, blown


def _suspicious(mosaic: NDArray[Any], pattern: str) -> bool:
    """Whether the greens differ and red and blue do not: then the pattern is off by a row or a column."""
    step = 2 * max(1, len(mosaic) // 1000)  # a thousand rows tell
    means = [float(mosaic[i // 2 :: step, i % 2 :: 2].mean()) for i in range(4)]
    green = [means[i] for i in range(4) if pattern[i] == "G"]
    other = [means[i] for i in range(4) if pattern[i] != "G"]
    level = max(sum(means) / 4, 1e-3)
    return abs(green[0] - green[1]) > 0.1 * level and abs(other[0] - other[1]) < 0.01 * level


def _gains(shot: Any, mosaic: NDArray[Any], pattern: str, assumed: list[str]) -> tuple[float, float, float]:
    """The as-shot white balance; where there is none, that of a world that is grey on average."""
    gains = np.array(shot.camera_whitebalance[:3], float)
    if not (np.isfinite(gains).all() and (gains > 0).all()):
        means = {}
        for letter in "RGB":
            parts = [mosaic[i // 2 :: 2, i % 2 :: 2] for i in range(4) if pattern[i] == letter]
            values = np.concatenate([part[part < 0.95] for part in parts])
            means[letter] = max(float(values.mean()) if values.size else 0.0, 1e-4)
        gains = np.array([(means["G"] / means[letter]) for letter in "RGB"]).clip(0.25, 4)
        assumed.append("white balance (none in the file): grey on average")
    red, green, blue = (gains / gains.min()).tolist()
    return red, green, blue


def _matrix(name: str, shot: Any, block: ifd.Block | None, assumed: list[str]) -> NDArray[Any]:
    """XYZ to camera: the file's own, for the illuminant nearest to daylight, or LibRaw's for the camera."""
    named = []
    for tag, illuminant in _COLOR_MATRICES:
        values = _numbers(block, tag)
        if len(values) == 9:
            lit = (_numbers(block, illuminant) or (0,))[0]
            named.append((lit == _D65, np.array(values, float).reshape(3, 3)))
    known = np.array(shot.rgb_xyz_matrix, float)[:3]
    if named:
        matrix: NDArray[Any] = max(named, key=lambda pair: pair[0])[1]
    elif known.any():
        matrix = known
    else:
        assumed.append("colour matrix (none known for this camera): that of sRGB")
        matrix = color.SRGB_FROM_XYZ.numpy()
    if not np.isfinite(matrix).all() or np.linalg.cond(matrix) > 1e4:
        raise ValueError(f"{name}: its colour matrix is zero or singular, so its colours cannot be known")
    return matrix


def _profile(block: ifd.Block | None) -> Profile | None:
    """DNG's NoiseProfile; where each colour has its own, that of green, which is the middle one of three."""
    values = _numbers(block, _NOISE_PROFILE)
    if len(values) < 2 or len(values) % 2:
        return None
    gain, floor = values[2:4] if len(values) >= 4 else values
    return Profile(gain, floor) if gain > 0 and floor >= 0 and gain + floor < 1 else None


def _floor(shot: Any, block: ifd.Block | None, scale: float) -> float | None:
    """The noise variance of the areas that a DNG calls masked, if they are not cut off at black."""
    values = _numbers(block, _MASKED_AREAS)
    counts = shot.raw_image
    found, weights = [], []
    for i in range(0, len(values) - 3, 4):
        top, left, bottom, right = (int(value) for value in values[i : i + 4])
        area = counts[max(0, top) : max(0, bottom), max(0, left) : max(0, right)].astype(np.float32)
        if area.shape[1] >= 4 and area.size >= _LEAST_DARK // 4 and (area == area.min()).mean() < 0.2:
            found.append(dark_variance(torch.from_numpy(area)))
            weights.append(area.size)
    if sum(weights) < _LEAST_DARK:
        return None
    return float(np.average(found, weights=weights)) / scale**2


def _orientation(shot: Any, block: ifd.Block | None) -> int:
    value = (block.find(_ORIENTATION) or (0,))[0] if block else 0
    if value in range(1, 9):
        return int(value)
    return {0: 1, 3: 3, 5: 8, 6: 6}.get(shot.sizes.flip, 1)  # as LibRaw numbers the turns


def _exposure(block: ifd.Block | None) -> float:
    value = (_numbers(block, _BASELINE_EXPOSURE) or (0.0,))[0]
    return value if abs(value) < 10 else 0.0


def _crop(shot: Any) -> tuple[int, int, int, int] | None:
    sizes = shot.sizes
    top, left = sizes.crop_top_margin - sizes.top_margin, sizes.crop_left_margin - sizes.left_margin
    height, width = sizes.crop_height, sizes.crop_width
    inside = min(top, left) >= 0 and top + height <= sizes.height and left + width <= sizes.width
    whole = (height, width) == (sizes.height, sizes.width)
    return (top, left, height, width) if inside and min(height, width) > 0 and not whole else None


def _facts(shot: Any, block: ifd.Block | None) -> dict[str, Any]:
    """What the file says of camera, lens and shot."""

    def exif(tag: int) -> Any:
        entry = block.exif.get(tag) if block else None
        values = entry.values(block.order) if entry and block else (block.find(tag) if block else ())
        return values[0] if values else None

    def number(tag: int, other: float) -> float | None:
        value = exif(tag)
        if value is None:
            return other or None
        return float(value) if isinstance(value, int | float) and value > 0 else None

    other, lens = shot.other, shot.lens
    maker, model = (str((block.find(tag) or ("",))[0]) if block else "" for tag in (_MAKE, _MODEL))
    camera = model if maker and model.lower().startswith(maker.split()[0].lower()) else f"{maker} {model}".strip()
    date = str(exif(_DATE) or (block.find(_CHANGED) or ("",))[0]) if block else ""
    if not date and other.timestamp.year > 1970:
        date = other.timestamp.strftime("%Y:%m:%d %H:%M:%S")
    return {
        "camera": camera,
        "lens": str(exif(_LENS) or lens.model or ""),
        "iso": number(_ISO, other.iso_speed),
        "seconds": number(_EXPOSURE_TIME, other.shutter_speed),
        "aperture": number(_F_NUMBER, other.aperture),
        "focal_length": number(_FOCAL_LENGTH, other.focal_length),
        "date": date,
    }
