"""Camera raws, from files through LibRaw or from arrays.

Every source becomes the same thing: a mosaic of the visible area with 0 = black and 1 = white, its pattern, and
what is known of colour, noise and the shot.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from io import BytesIO
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from debayes.formats import ifd, raw_tags
from debayes.imaging import cfa, color
from debayes.imaging.cfa import Pattern
from debayes.imaging.noise_profile import Profile
from debayes.system.errors import DebayesError
from debayes.system.log import log

# The endings of raw files. `develop` looks for these in a folder; a file of any name can be given to it.
ENDINGS = (
    *(".3fr", ".arw", ".bay", ".cap", ".cr2", ".cr3", ".crw", ".dcr", ".dng", ".erf", ".fff", ".gpr", ".iiq"),
    *(".k25", ".kdc", ".mef", ".mos", ".mrw", ".nef", ".nrw", ".orf", ".pef", ".raf", ".raw", ".rw2", ".rwl"),
    *(".sr2", ".srf", ".srw", ".x3f"),
)

# The sensor saturates at its highest count if that many photosites have it, and one in so many.
_FEWEST_SATURATED, _ONE_SATURATED_IN = 64, 20_000


@dataclass(frozen=True)
class Raw:
    """One shot of a camera.

    Examples:
        >>> import debayes
        >>> raw = debayes.Raw.from_array([[544, 304], [304, 64]] * 2, "RGGB", black=64, white=1024)
        >>> raw.size, raw.mosaic[0, 0].tolist(), raw.assumed[0]
        ((4, 2), [0.5, 0.25], 'white balance (none is stored): grey on average')
    """

    mosaic: Float[Tensor, "1 h w"]
    """The visible photosites: 0 = black, 1 = white; noise goes below black, and nothing is clipped there."""
    pattern: Pattern | str
    """The colour filter pattern at its top left; letters become a `Pattern`."""
    gains: tuple[float, float, float]
    """The as-shot white balance: factors that make neutral colours equal; the smallest is 1."""
    matrix: Float[Tensor, "3 3"]
    """XYZ (of a D65 white) to the camera's colours, before white balance."""
    levels: dict[str, Any] = field(default_factory=dict)
    """The counts of black (one for each colour) and of white that the file names."""
    saturation: float = 1.0
    """Photosites at or above this are saturated."""
    profile: Profile | None = None
    """The noise that the file states."""
    floor: float | None = None
    """The noise variance of its masked photosites, if it has such."""
    orientation: int = 1
    """EXIF's number: how to turn the picture to see it upright."""
    exposure: float = 0.0
    """Stops by which the maker wants the picture brightened; DNG's BaselineExposure."""
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
    """What the file does not say, and what was assumed instead."""
    block: ifd.Block | None = field(default=None, repr=False)
    """The file's own directories, to copy metadata from."""

    def __post_init__(self) -> None:
        """Let text stand for a pattern."""
        object.__setattr__(self, "pattern", Pattern.of(self.pattern))

    @classmethod
    def from_array(
        cls,
        mosaic: ArrayLike | Tensor,
        pattern: Pattern | str,
        *,
        black: float,
        white: float,
        white_balance: Sequence[float] | None = None,
        matrix: ArrayLike | Tensor | None = None,
        profile: Profile | None = None,
    ) -> "Raw":
        """A raw from an array (h, w) of counts, of which `black` is black and `white` is white.

        `white_balance` are the factors of red, green and blue that make neutral colours equal, `matrix` is XYZ to
        camera colours (DNG's ColorMatrix), `profile` the noise on the scale where white is 1. What is not given is
        assumed, which `assumed` records, or estimated when the raw is developed (the profile).

        Examples:
            >>> import numpy
            >>> from debayes import Raw
            >>> counts = numpy.full((4, 6), 544)
            >>> raw = Raw.from_array(counts, "GBRG", black=64, white=1024, white_balance=(2, 1, 1.5))
            >>> raw.size, float(raw.mosaic[0, 0, 0]), raw.gains
            ((4, 6), 0.5, (2.0, 1.0, 1.5))
        """
        checked = Pattern.of(pattern)
        counts = _check_counts(mosaic, checked)
        values = _normalise("the mosaic", counts, np.full((checked.period,) * 2, black, np.float32), white)
        if not values.max() > 0:
            raise DebayesError(f"no count is above the black level ({black:g}): give the counts of black and white")
        if profile is not None and not (profile.gain >= 0 and profile.floor >= 0):
            raise DebayesError(f"a noise profile has a gain and a floor of 0 or more, not {profile}")
        assumed: list[str] = []
        gains = _white_balance(white_balance, values, checked, assumed)
        if white_balance is not None and assumed:
            raise DebayesError(f"a white balance has three factors above 0, not {white_balance}")
        stated = None if matrix is None else np.asarray(matrix, float)
        return cls(
            torch.from_numpy(values)[None],
            checked,
            gains,
            _color_matrix("the mosaic", stated, assumed),
            levels={"black": [black] * 4, "white": white},
            saturation=_saturation(counts, values),
            profile=profile,
            assumed=tuple(assumed),
        )

    @property
    def size(self) -> tuple[int, int]:
        """Height and width in photosites."""
        return self.mosaic.shape[-2], self.mosaic.shape[-1]


def read(
    source: str | PathLike[str] | bytes,
    *,
    black: float | None = None,
    white: float | None = None,
    pattern: Pattern | str | None = None,
) -> Raw:
    """A camera raw from a path or from its bytes; `black`, `white` and `pattern` replace what the file says.

    Every raw with a Bayer pattern that LibRaw decodes is read; other files raise a DebayesError.

    Examples:
        >>> import debayes
        >>> raw = debayes.read("photo.dng")
        >>> raw.pattern.name, raw.size, [round(gain, 3) for gain in raw.gains]
        ('GRBG', (48, 64), [2.0, 1.0, 1.6])
    """
    name, data = _load(source)
    block = ifd.find(data)
    if raw_tags.is_cut_short(block, len(data)):
        raise DebayesError(f"{name} is cut short: it ends before its picture does; copy it again")
    with _decode(name, data) as shot:
        _check_header(name, shot, block)
        stored = _stored_pattern(name, shot)
        used = stored if pattern is None else cfa.check_pattern(pattern)
        by_color = _blacks(shot, block)
        lows = np.array([by_color[i] for i in _cell(shot, stored.period)], np.float32)
        if black is not None:
            lows = np.full_like(lows, black)
        top = float(shot.white_level) if white is None else white
        mosaic = _normalise(name, shot.raw_image_visible, lows.reshape(stored.period, stored.period), top)
        assumed: list[str] = []
        if pattern is None and _looks_shifted(mosaic, stored):
            others = " or ".join(p for p in cfa.PATTERNS if (p.letters[0] == "G") != (stored.letters[0] == "G"))
            assumed.append(
                f"colour pattern: {stored}, as the file says, but it looks wrong: try --pattern {others}"
            )
        gains = _white_balance(shot.camera_whitebalance[:3], mosaic, used, assumed)
        matrix = raw_tags.color_matrix(block)
        if matrix is None and np.any(shot.rgb_xyz_matrix):
            matrix = np.array(shot.rgb_xyz_matrix, float)[:3]
        raw = Raw(
            torch.from_numpy(mosaic)[None],
            used,
            gains,
            _color_matrix(name, matrix, assumed),
            levels={"black": [int(b) for b in by_color], "white": int(shot.white_level)},
            saturation=_saturation(shot.raw_image_visible, mosaic),
            profile=raw_tags.noise_profile(block),
            floor=raw_tags.floor(shot, block, top - (by_color[0] if black is None else black)),
            orientation=raw_tags.orientation(shot, block),
            exposure=raw_tags.exposure(block),
            crop=raw_tags.crop(shot),
            assumed=tuple(assumed),
            block=block,
            **raw_tags.facts(shot, block),
        )
    for assumption in raw.assumed:
        log.info("%s: assumed: %s", name, assumption)
    return raw


def find(folder: Path) -> list[Path]:
    """The raw files of a folder and of those below it, in order of name, by their endings.

    Hidden files are left out, such as those that macOS writes to other file systems.
    """
    paths = (p for p in folder.rglob("*") if p.suffix.lower() in ENDINGS and p.is_file())
    return sorted(p for p in paths if not any(part.startswith(".") for part in p.relative_to(folder).parts))


def _check_counts(mosaic: ArrayLike | Tensor, pattern: Pattern) -> NDArray[Any]:
    """The counts as an array (h, w) of numbers, or an error that says what is wrong with them."""
    if isinstance(mosaic, Tensor):
        mosaic = mosaic.detach().cpu()
        mosaic = mosaic.float() if mosaic.dtype is torch.bfloat16 else mosaic
    counts = np.asarray(mosaic)
    if counts.dtype.kind not in "uif":
        raise DebayesError(f"the mosaic must hold whole numbers or floats, not {counts.dtype}")
    shape = " x ".join(map(str, counts.shape)) or "a single number"
    if counts.ndim != 2:
        raise DebayesError(f"the mosaic must be an array of counts, height x width, not {shape}")
    if min(counts.shape) < pattern.period:
        raise DebayesError(
            f"a mosaic of the pattern {pattern.name} has at least {pattern.period} rows and columns, not {shape}"
        )
    if counts.dtype.kind == "f" and not np.isfinite(counts).all():
        raise DebayesError("the mosaic holds values that are not numbers (NaN or infinity)")
    return counts


def _load(source: str | PathLike[str] | bytes) -> tuple[str, bytes]:
    """The name of a file, for messages, and its bytes."""
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
        raise DebayesError(f"{name} is empty")
    return name, data


def _decode(name: str, data: bytes) -> Any:
    """The file opened by LibRaw, its photosites decoded; to be used in a `with` statement."""
    import rawpy

    try:
        shot = rawpy.imread(BytesIO(data))
        _ = shot.raw_image  # decodes the photosites, or raises
    except rawpy.LibRawFileUnsupportedError:
        version = ".".join(map(str, rawpy.libraw_version))
        raise DebayesError(f"{name} is no camera raw that LibRaw {version} can read") from None
    except rawpy.LibRawIOError:
        raise DebayesError(f"{name} is damaged, or no camera raw: it ends too early for LibRaw") from None
    except rawpy.LibRawError as error:
        reason = error.args[0] if error.args else type(error).__name__
        reason = reason.decode() if isinstance(reason, bytes) else str(reason)
        raise DebayesError(f"{name} is damaged, or no camera raw: LibRaw says {reason!r}") from None
    except MemoryError:
        raise DebayesError(
            f"{name} is damaged, or too large: there is no memory for the size that it states"
        ) from None
    return shot


def _check_header(name: str, shot: Any, block: ifd.Block | None) -> None:
    """Raise if nothing but its length makes a file a raw: LibRaw then guesses an old camera, mostly wrong."""
    other = shot.other
    if block is None and not (other.iso_speed or other.shutter_speed or other.timestamp.year > 1970):
        raise DebayesError(
            f"{name} has no header that names a camera, so what its numbers mean is unknown: "
            "Raw.from_array takes them as an array with their pattern and levels"
        )


def _stored_pattern(name: str, shot: Any) -> Pattern:
    """The Bayer pattern of the visible area, as the file says."""
    import rawpy

    cells = shot.raw_pattern
    letters = shot.color_desc.decode()
    if shot.raw_type is rawpy.RawType.Stack:
        raise DebayesError(
            f"{name} holds all colours at every pixel (Foveon, or demosaicked before): there is nothing to demosaic"
        )
    if cells is None or shot.num_colors == 1:
        raise DebayesError(f"{name} is from a monochrome sensor: a Bayer pattern was expected")
    if cells.shape == (6, 6):
        raise DebayesError(
            f"{name} is from an X-Trans sensor, which debayes cannot develop: a Bayer one was expected"
        )
    enough = min(shot.raw_image_visible.shape) >= len(cells)
    pattern = "".join(letters[i] for i in _cell(shot, len(cells))) if enough else ""
    if pattern not in cfa.PATTERNS:
        raise DebayesError(
            f"{name} has the colour pattern {pattern or letters}: a Bayer one (RGGB ...) was expected"
        )
    return Pattern.of(pattern)


def _cell(shot: Any, period: int) -> list[int]:
    """The colours, as LibRaw numbers them, of the first cell of the visible area, in reading order."""
    top, left = shot.sizes.top_margin, shot.sizes.left_margin
    return [shot.raw_color(top + y, left + x) for y, x in np.ndindex(period, period)]


def _blacks(shot: Any, block: ifd.Block | None) -> list[float]:
    """The counts of black, of each colour as LibRaw numbers them."""
    blacks = [float(level) for level in shot.black_level_per_channel]
    cell = _cell(shot, len(shot.raw_pattern))
    stored = raw_tags.blacks(block)
    if len(stored) in (1, len(cell)):
        for place, color_index in enumerate(cell):
            blacks[color_index] = stored[place % len(stored)]
    return blacks


def _normalise(name: str, counts: NDArray[Any], blacks: NDArray[np.float32], white: float) -> NDArray[np.float32]:
    """The counts with 0 = black and 1 = white; `blacks` holds the black level of each photosite of a cell."""
    if not (np.isfinite(blacks).all() and np.isfinite(white) and blacks.max() < white):
        raise DebayesError(
            f"{name}: its white level ({white:g}) is not above its black level ({blacks.max():g}): "
            "give both, as counts"
        )
    mosaic = np.empty(counts.shape, np.float32)
    period = len(blacks)
    for y, row in enumerate(blacks):
        low = np.resize(row, counts.shape[1])
        np.subtract(counts[y::period], low, out=mosaic[y::period])
        mosaic[y::period] /= np.float32(white) - low
    return mosaic


def _saturation(counts: NDArray[Any], mosaic: NDArray[np.float32]) -> float:
    """The level at which the sensor saturates: below white if many photosites share the highest count."""
    highest = counts == counts.max()
    if int(highest.sum()) < max(_FEWEST_SATURATED, counts.size // _ONE_SATURATED_IN):
        return 1.0
    level = float(mosaic[highest].min())
    return level if 0.5 < level < 1 else 1.0


def _looks_shifted(mosaic: NDArray[Any], pattern: Pattern) -> bool:
    """Whether the two greens of a Bayer pattern differ and red and blue do not: a row or a column is missing."""
    step = pattern.period * max(1, len(mosaic) // 1000)  # about a thousand rows are enough
    means = [float(mosaic[y::step, x :: pattern.period].mean()) for y, x in np.ndindex(2, 2)]
    greens = [mean for mean, letter in zip(means, pattern.letters, strict=True) if letter == "G"]
    others = [mean for mean, letter in zip(means, pattern.letters, strict=True) if letter != "G"]
    level = max(sum(means) / 4, 1e-3)
    return abs(greens[0] - greens[1]) > 0.1 * level and abs(others[0] - others[1]) < 0.01 * level


def _white_balance(
    stored: Any, mosaic: NDArray[Any], pattern: Pattern, assumed: list[str]
) -> tuple[float, float, float]:
    """Factors of red, green and blue, the smallest 1; where none are stored, those that make the mean grey."""
    gains = np.array((0, 0, 0) if stored is None else stored, float)
    if gains.shape != (3,) or not (np.isfinite(gains).all() and (gains > 0).all()):
        means = {}
        for letter in cfa.COLORS:
            parts = [mosaic[y :: pattern.period, x :: pattern.period] for y, x in pattern.places(letter)]
            values = np.concatenate([part[part < 0.95] for part in parts])
            means[letter] = max(float(values.mean()) if values.size else 0.0, 1e-4)
        gains = np.array([(means["G"] / means[letter]) for letter in cfa.COLORS]).clip(0.25, 4)
        assumed.append("white balance (none is stored): grey on average")
    red, green, blue = (gains / gains.min()).tolist()
    return red, green, blue


def _color_matrix(name: str, stored: NDArray[Any] | None, assumed: list[str]) -> Float[Tensor, "3 3"]:
    """XYZ to camera: the stored matrix, or that of sRGB."""
    if stored is None:
        assumed.append("colour matrix (none is known): that of sRGB")
        stored = color.SRGB_FROM_XYZ.numpy()
    if stored.shape != (3, 3) or not np.isfinite(stored).all() or np.linalg.cond(stored) > 1e4:
        raise DebayesError(f"{name}: its colour matrix is zero or singular, so its colours cannot be known")
    return torch.from_numpy(stored).float()
