"""DNG files: linear ones of developed pictures, and mosaics of virtual cameras.

The layout is the one that Adobe's own files have: a preview in the first directory, beside everything that
describes the camera and the shot, and the picture itself in a directory below it. It is compressed as lossless
JPEG, which every reader of DNG knows.

Linear pictures are stored along a curve, as many cameras store theirs, with a table that makes them linear again:
the steps grow with brightness as photon noise does, and stay far below it. This saves a third of the bytes.
"""

import mmap
import struct
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8, UInt16
from numpy.typing import NDArray

from debayes.formats import ifd, lossless_jpeg, metadata
from debayes.formats.raw import Raw
from debayes.imaging import vst
from debayes.imaging.cfa import Pattern
from debayes.imaging.noise_profile import Profile
from debayes.system import cores
from debayes.system.errors import DebayesError
from debayes.system.files import replace
from debayes.system.memory_file import MemoryFile

# The side of a tile; a multiple of 16, as TIFF asks for.
TILE = 512

LINEAR_RAW, FILTER_ARRAY, LOSSLESS_JPEG = 34892, 32803, 7
WHITE = 65535

_PHOTOMETRIC, _SOFTWARE = 262, 305

# How many steps a linear picture is stored in, and the offset of their curve: the steps are smallest at black, just
# above those of 16 bits; at white a step is a twelfth of the photon noise of 30,000 electrons.
STEPS, OFFSET = 4096, 1.2e-3

# Every so many rows of a picture the Huffman codes are made from one.
SAMPLED_ROWS = 16

# Tags of the first directory that are copied unchanged from the source.
_KEPT = (
    *(270, 271, 272, 306, 315, 33432, 700, 33723),  # text on picture, camera, date, author, rights; XMP, IPTC
    *(50721, 50722, 50723, 50724, 50725, 50726, 50727),  # colour matrices, calibrations, analog balance
    *(50778, 50779, 50827, 50735),  # illuminants, file name, serial number
    *(50708, 50709),  # the camera's names, by which converters choose a colour profile
    *(50931, 50932, 50936, 50938, 50939, 50940, 50941, 50942, 50964, 50965, 50981, 50982),  # the colour profile
    *(51008, 51009, 51022),  # lists of corrections, the lens's among them
)

_CFA_CODES = {"R": 0, "G": 1, "B": 2}

Tag = tuple[int, str, int, Any, bool]


@dataclass(frozen=True)
class _Tags:
    """A list of tags as tifffile takes them."""

    made: list[Tag]

    def numbers(self, tag: int, kind: str, values: Sequence[int | float]) -> None:
        self.made.append((tag, kind, len(values), tuple(values) if len(values) > 1 else values[0], True))

    def text(self, tag: int, value: str) -> None:
        self.made.append((tag, "s", 0, value.encode("ascii", "replace"), True))

    def fractions(self, tag: int, kind: str, values: Sequence[float]) -> None:
        pairs = [Fraction(value).limit_denominator(1_000_000) for value in values]
        flat = [part for pair in pairs for part in (pair.numerator, pair.denominator)]
        self.made.append((tag, f"2{kind}", len(values), tuple(flat), True))


def write(
    path: Path,
    picture: UInt16[np.ndarray, "h w 3"],
    raw: Raw,
    *,
    preview: UInt8[np.ndarray, "k l 3"],
    left: Profile | None = None,
    source: Path | None = None,
    software: str = "debayes",
) -> None:
    """Write a linear DNG of a developed raw: camera colours before white balance, 0 = black and 65535 = white.

    `left` is the remaining noise; `source` is the file the raw was read from, whose metadata exiftool copies if it
    is installed. An error leaves an older file as it was.
    """
    file = assemble(picture, raw, preview=preview, left=left, software=software)
    with replace(path) as temporary:
        file.store(temporary)
        if source is not None:
            metadata.copy_by_exiftool(source, temporary, raw)


def assemble(
    picture: UInt16[np.ndarray, "h w 3"],
    raw: Raw,
    *,
    preview: UInt8[np.ndarray, "k l 3"],
    left: Profile | None = None,
    software: str = "debayes",
) -> MemoryFile:
    """The same linear DNG in memory, without what exiftool alone could copy."""
    height, width = picture.shape[:2]
    below = _Tags([])
    below.numbers(50712, "H", LINEAR.tolist())
    below.numbers(50714, "H", (0, 0, 0))  # any other black is too bright in RawTherapee 5.9 and darktable 4.2
    below.numbers(50717, "I", (WHITE,) * 3)
    top, start, rows, columns = raw.crop or (0, 0, height, width)
    below.numbers(50719, "I", (start, top))
    below.numbers(50720, "I", (columns, rows))
    below.numbers(50829, "I", (0, 0, height, width))
    below.fractions(50718, "I", (1.0, 1.0))
    below.fractions(50780, "I", (1.0,))  # BestQualityScale
    file = MemoryFile(picture.nbytes * 5 // 8)  # more than most take
    shape = (height, width, 3)
    _write(file, _compress(picture), shape, LINEAR_RAW, raw, preview, below.made, left, software)
    return file


def is_developed(path: Path) -> bool:
    """Whether a file is a linear DNG that debayes wrote: a developed picture, not a camera's raw."""
    try:
        if path.stat().st_size == 0:
            return False
        with path.open("rb") as file:
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError:
        return False
    block = ifd.read(data)
    if block is None:
        return False
    kinds = [d[_PHOTOMETRIC].values(block.order) for d in block.images if _PHOTOMETRIC in d]
    by_debayes = str((block.find(_SOFTWARE) or ("",))[0]).startswith("debayes")
    return by_debayes and (LINEAR_RAW,) in kinds


def write_mosaic(
    path: Path,
    counts: UInt16[np.ndarray, "h w"],
    raw: Raw,
    *,
    black: int,
    white: int,
    masked: int = 0,
    preview: UInt8[np.ndarray, "k l 3"],
    software: str = "debayes",
) -> None:
    """Write a mosaic as a camera would: a DNG with a colour filter array. Its noise is `raw.profile`.

    The first `masked` rows and columns hold no picture; they are a multiple of the pattern's period.
    """
    height, width = counts.shape
    pattern = Pattern.of(raw.pattern)
    if masked % pattern.period:
        raise DebayesError(
            f"masked rows must be a multiple of {pattern.period}, the pattern's period, not {masked}"
        )
    below = _Tags([])
    if masked:
        below.numbers(50829, "I", (masked, masked, height, width))
        below.numbers(50830, "I", (0, 0, masked, width, masked, 0, height, masked))
    below.numbers(33421, "H", (pattern.period, pattern.period))
    below.numbers(33422, "B", [_CFA_CODES[letter] for letter in pattern.letters])
    below.numbers(50710, "B", (0, 1, 2))
    below.numbers(50711, "H", (1,))
    below.numbers(50713, "H", (pattern.period, pattern.period))
    below.numbers(50714, "H", (black,) * pattern.period**2)
    below.numbers(50717, "I", (white,))
    file = MemoryFile(counts.nbytes)
    _write(file, counts, counts.shape, FILTER_ARRAY, raw, preview, below.made, raw.profile, software)
    with replace(path) as temporary:
        file.store(temporary)


def _write(
    file: MemoryFile,
    pieces: Any,
    shape: tuple[int, ...],
    photometric: int,
    raw: Raw,
    preview: NDArray[Any],
    below: list[Tag],
    profile: Profile | None,
    software: str,
) -> None:
    import tifffile

    order = metadata.byte_order(raw)
    exif, gps = metadata.directories(raw)
    above = _describe(raw, profile)
    for tag, directory in ((ifd.EXIF, exif), (ifd.GPS, gps)):
        if directory:
            # a placeholder that `ifd.attach` completes: tifffile reserves the number itself
            above.numbers(tag - 1, "I", (0,))
    packed = photometric == LINEAR_RAW
    stream: Any = file  # it has all the methods that TiffWriter calls
    with tifffile.TiffWriter(stream, byteorder=order) as writer:
        writer.write(
            preview,
            photometric="rgb",
            compression="jpeg",
            compressionargs={"level": 90},
            rowsperstrip=len(preview),
            subfiletype=1,
            subifds=1,
            extratags=above.made,
            metadata=None,
            software=software,
        )
        writer.write(
            pieces,
            shape=shape,
            dtype=np.dtype(np.uint16).newbyteorder(order),
            photometric=photometric,
            subfiletype=0,
            extratags=below,
            metadata=None,
            software=False,
            compression=LOSSLESS_JPEG if packed else None,
            bitspersample=16,
            tile=(TILE, TILE) if packed and shape[1] >= TILE else None,
            rowsperstrip=shape[0],
        )
    ifd.attach(stream, order, {ifd.EXIF: exif, ifd.GPS: gps})


def _describe(raw: Raw, profile: Profile | None) -> _Tags:
    """The tags of the first directory: those of the source that are kept, and DNG's own."""
    tags = _Tags([])
    own = raw.block.images[0] if raw.block else {}
    order = metadata.byte_order(raw)
    is_dng = 50706 in own
    for tag in _KEPT:
        entry = own.get(tag)
        if entry is None or (tag >= 50000 and not is_dng) or not entry.data:
            continue
        tags.made.append(_as_stored(tag, entry, order))
    kept = {tag for tag, *_ in tags.made}
    tags.numbers(50706, "B", (1, 4, 0, 0))
    tags.numbers(50707, "B", (1, 1, 0, 0))
    maker, _, model = raw.camera.partition(" ")
    if 271 not in kept and raw.camera:
        tags.text(271, maker)
    if 272 not in kept and raw.camera:
        tags.text(272, model or maker)
    if 50708 not in kept:
        tags.text(50708, raw.camera or "unknown camera")
    tags.numbers(274, "H", (raw.orientation,))
    if 50721 not in kept:
        tags.fractions(50721, "i", raw.matrix.flatten().tolist())
        tags.numbers(50778, "H", (21,))
    neutral = [1 / gain for gain in raw.gains]
    tags.fractions(50728, "I", neutral)
    tags.fractions(50730, "i", (raw.exposure,))
    if profile is not None:
        tags.numbers(51041, "d", (profile.gain, profile.floor) * 3)
    return tags


def _as_stored(tag: int, entry: ifd.Entry, order: ifd.Order) -> Tag:
    """An entry of another file as a tag, with unchanged values."""
    count = len(entry.data) // ifd.TYPE_SIZES[entry.kind]
    if entry.kind == ifd.ASCII:
        return tag, "s", 0, entry.data.split(b"\0")[0], True
    if entry.kind in (ifd.RATIONAL, ifd.SRATIONAL):
        code = "I" if entry.kind == ifd.RATIONAL else "i"
        return tag, f"2{code}", count, struct.unpack(f"{order}{2 * count}{code}", entry.data), True
    if entry.kind == 7:
        return tag, "B", count, entry.data, True
    values = struct.unpack(f"{order}{count}{ifd.CODES[entry.kind]}", entry.data)
    return tag, ifd.CODES[entry.kind], count, values if count > 1 else values[0], True


def _curve() -> tuple[UInt16[np.ndarray, " n"], UInt16[np.ndarray, " m"]]:
    """The step of every linear count, and the linear count of every step."""
    offset = torch.tensor(OFFSET, dtype=torch.float64)
    counts = vst.decode(torch.arange(STEPS).double() / (STEPS - 1), offset) * WHITE
    steps = vst.encode(torch.arange(WHITE + 1).double() / WHITE, offset) * (STEPS - 1)
    nearest, linear = (values.round().numpy().astype(np.uint16) for values in (steps, counts))
    return nearest, linear


STEP, LINEAR = _curve()


def _compress(picture: NDArray[Any]) -> Iterator[bytes]:
    """The tiles of a linear picture in reading order, each a lossless JPEG of steps.

    The last tiles are filled with copies of the border. A picture narrower than a tile is one strip, since LibRaw
    expects tiles to be no wider than the picture.
    """
    height, width = picture.shape[:2]
    rows, columns = (TILE, TILE) if width >= TILE else (height, width)
    coder = lossless_jpeg.Coder.of(picture[::SAMPLED_ROWS], STEP)

    def encode(place: tuple[int, int]) -> bytes:
        row, column = place
        part = picture[row : row + rows, column : column + columns]
        if part.shape[:2] != (rows, columns):
            missing = [(0, rows - part.shape[0]), (0, columns - part.shape[1]), (0, 0)]
            part = np.pad(part, missing, mode="edge")
        return coder.encode(part)

    # NumPy does not hold the interpreter while it works on a tile
    with ThreadPoolExecutor(cores.count()) as threads:
        yield from threads.map(encode, product(range(0, height, rows), range(0, width, columns)))
