"""The formats that pictures are written in: one row of `FORMATS` each, with the function that makes the file."""

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from debayes.formats import ifd
from debayes.system.errors import DebayesError
from debayes.system.memory_file import MemoryFile

# Where the description of a TIFF holds what debayes records about it.
KEY = "debayes"


@dataclass(frozen=True)
class Extras:
    """What a format may use beside the pixels; it leaves out what it has no place for."""

    record: dict[str, Any] | None = None
    """What debayes records about the picture; only TIFF has a place for it."""
    icc: bytes | None = None
    """A colour profile."""
    exif: bytes | None = None
    """An EXIF block."""
    quality: int = 95
    """The quality of a lossy format."""


@dataclass(frozen=True)
class Format:
    """A format that pictures are written in: a row of `FORMATS`."""

    endings: tuple[str, ...]
    """The first is the usual one."""
    bits: tuple[int, ...]
    """The bits per sample that it can have, the default first; 32 means float."""
    assemble: Callable[[NDArray[Any], Extras], MemoryFile]
    """Makes a file in memory of an array (h, w) or (h, w, 3) of one of these depths."""


def format_of(ending: str, path: Path | None = None) -> Format:
    """The format that has an ending; an error names the path, if one is given."""
    for each in FORMATS.values():
        if ending.lower() in each.endings:
            return each
    known = ", ".join(name for each in FORMATS.values() for name in each.endings)
    raise DebayesError(
        f"{'' if path is None else f'{path}: '}{ending or 'a name without an ending'} is not one of {known}"
    )


def _tiff(array: NDArray[Any], extras: Extras) -> MemoryFile:
    import tifffile

    block = None if extras.exif is None else ifd.read(extras.exif)
    order: ifd.Order = "<"
    tags: list[tuple[int, str, int, Any, bool]] = []
    below: dict[int, ifd.Directory] = {}
    if block is not None:
        order = block.order
        below = {tag: d for tag, d in ((ifd.EXIF, block.exif), (ifd.GPS, block.gps)) if d}
        tags = [(tag - 1, "I", 1, 0, True) for tag in below]  # `ifd.attach` puts them right
        for tag in (271, 272, 306, 315, 33432):  # maker, model, date, author, rights
            if tag in block.images[0]:
                tags.append((tag, "s", 0, block.images[0][tag].data.rstrip(b"\0"), True))
    file = MemoryFile(array.nbytes + 2**16)
    stream: Any = file  # it is all that tifffile asks of a file
    tifffile.imwrite(
        stream,
        array,
        byteorder=order,
        photometric="rgb" if array.ndim == 3 else "minisblack",
        description=None if extras.record is None else json.dumps({KEY: extras.record}),
        metadata=None,
        iccprofile=extras.icc,
        extratags=tags,
    )
    if below:
        ifd.attach(stream, order, below)
    return file


def _npy(array: NDArray[Any], _: Extras) -> MemoryFile:
    file = MemoryFile(array.nbytes + 2**12)
    np.save(file, array)
    return file


def _png(array: NDArray[Any], extras: Extras) -> MemoryFile:
    if array.dtype != np.uint16:
        return _in_memory(_tag_png(encode_png8(array), extras.icc, extras.exif))
    import imagecodecs

    return _in_memory(_tag_png(bytes(imagecodecs.png_encode(array, level=1)), extras.icc, extras.exif))


def _jpeg(array: NDArray[Any], extras: Extras) -> MemoryFile:
    return _in_memory(encode_jpeg8(array, extras.quality, icc=extras.icc, exif=extras.exif))


def _in_memory(data: bytes) -> MemoryFile:
    file = MemoryFile(len(data))
    file.write(data)
    return file


def _tag_png(data: bytes, icc: bytes | None, exif: bytes | None) -> bytes:
    """A PNG with a colour profile and an EXIF block behind its header."""
    import zlib

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    extra = b"" if icc is None else chunk(b"iCCP", b"ICC profile\0\0" + zlib.compress(icc))
    extra += b"" if exif is None else chunk(b"eXIf", exif)
    return data[:33] + extra + data[33:]  # behind the signature and the header


def encode_png8(array: NDArray[Any]) -> bytes:
    """A uint8 array (h, w) or (h, w, 3) as a PNG."""
    return _save8(array, "PNG")


def encode_jpeg8(
    array: NDArray[Any], quality: int, *, icc: bytes | None = None, exif: bytes | None = None
) -> bytes:
    """A uint8 array (h, w) or (h, w, 3) as a JPEG of quality 1 to 100 without colour subsampling."""
    if not 1 <= quality <= 100:
        raise DebayesError(f"the quality of a JPEG is from 1 to 100, not {quality}")
    options: dict[str, Any] = {"quality": quality, "subsampling": 0}
    if icc is not None:
        options["icc_profile"] = icc
    if exif is not None:
        options["exif"] = b"Exif\0\0" + exif
    return _save8(array, "JPEG", **options)


def _save8(array: NDArray[Any], file_format: str, **options: Any) -> bytes:
    from PIL import Image

    buffer = BytesIO()
    Image.fromarray(np.ascontiguousarray(array)).save(buffer, file_format, **options)
    return buffer.getvalue()


# The formats that pictures are written in. `debayes develop --to` takes all but npy.
FORMATS = {
    "tiff": Format((".tiff", ".tif"), (16, 8, 32), _tiff),
    "png": Format((".png",), (16, 8), _png),
    "jpeg": Format((".jpg", ".jpeg"), (8,), _jpeg),
    "npy": Format((".npy",), (32,), _npy),
}
