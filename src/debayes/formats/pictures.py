"""Pictures and mosaics in files: PNG, TIFF, JPEG, NPY, and others that Pillow reads.

In memory a picture is a float tensor (3, h, w) and a mosaic (1, h, w) with 0 = black and 1 = white. In a file,
black is 0 and white is the largest integer of its type, or 1.0 for floats, unless the caller says otherwise.
"""

import contextlib
import json
import struct
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from debayes.formats import picture_formats
from debayes.formats.picture_formats import KEY
from debayes.system.errors import DebayesError
from debayes.system.files import replace
from debayes.system.memory_file import MemoryFile

if TYPE_CHECKING:
    from PIL import Image

PICTURES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".webp", ".ppm", ".npy")
MOSAICS = (".png", ".tif", ".tiff", ".npy")


@dataclass(frozen=True)
class Mosaic:
    """A mosaic read from a file."""

    values: Float[Tensor, "1 h w"]
    """0 = black, 1 = white; not clipped."""
    pattern: str | None
    """The Bayer pattern that the file records, if it does."""
    record: dict[str, Any]
    """What else the file records: how the mosaic was made."""


def find(folder: Path) -> list[Path]:
    """The pictures of a folder, in order of name; at least one."""
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}")
    paths = sorted(p for p in folder.iterdir() if p.suffix.lower() in PICTURES)
    if not paths:
        raise DebayesError(f"the folder {folder} holds no pictures ({', '.join(PICTURES)})")
    return paths


def read(path: Path, *, ignore_alpha: bool = False) -> Float[Tensor, "3 h w"]:
    """A colour picture; grey ones are rejected, and so are transparent ones unless alpha is to be ignored."""
    array, _ = _decode(path)
    if array.ndim == 3 and array.shape[2] == 4 and (ignore_alpha or (array[..., 3] == _white(array)).all()):
        array = array[..., :3]
    if array.ndim == 3 and array.shape[2] == 4:
        raise DebayesError(f"{path}: an opaque picture was expected, not one with transparent pixels")
    if array.ndim != 3 or array.shape[2] != 3:
        raise DebayesError(f"{path}: a colour picture (height x width x 3) was expected, not {_shape(array)}")
    return _finite(path, _normalise(array, 0.0, _white(array)).permute(2, 0, 1))


def read_mosaic(path: Path, *, black: float = 0.0, white: float | None = None) -> Mosaic:
    """A mosaic; `black` and `white` are the levels in the file's own numbers."""
    if path.suffix.lower() in (".jpg", ".jpeg", ".webp") or (path.is_file() and _is_jpeg(path)):
        raise DebayesError(f"{path}: lossy compression has destroyed the mosaic; a PNG, TIFF or NPY was expected")
    array, record = _decode(path, MOSAICS)
    if array.ndim == 3 and 1 in (array.shape[0], array.shape[2]):
        array = array.squeeze(0 if array.shape[0] == 1 else 2)
    if array.ndim != 2:
        hint = "; `debayes simulate` makes a mosaic of a picture" if array.ndim == 3 else ""
        raise DebayesError(f"{path}: a mosaic (height x width) was expected, not {_shape(array)}{hint}")
    if min(array.shape) < 2:
        raise DebayesError(f"{path}: a mosaic has at least 2x2 photosites, not {_shape(array)}")
    if white is None and array.dtype.kind != "f" and array.dtype not in (np.uint8, np.uint16):
        raise DebayesError(f"{path} holds {array.dtype} numbers: say with --white which of them is white")
    white = _white(array) if white is None else white
    if not -np.inf < black < white < np.inf:
        raise DebayesError(f"the white level ({white:g}) must be above the black level ({black:g}), both finite")
    return Mosaic(_finite(path, _normalise(array, black, white)[None]), record.pop("pattern", None), record)


def describe(path: Path) -> dict[str, Any]:
    """Height, width, channels, type and record of a picture or mosaic file."""
    array, record = _decode(path)
    height, width = array.shape[:2]
    channels = array.shape[2] if array.ndim == 3 else 1
    return {"height": height, "width": width, "channels": channels, "dtype": str(array.dtype), **record}


def write(path: Path, picture: Float[Tensor, "c h w"], *, bits: int | None = None) -> None:
    """Write a picture of one or three channels; integer formats clip to [0, 1] and round, floats are unchanged."""
    encode(path, quantise(picture, check_bits(path, bits)).permute(1, 2, 0).numpy())


def write_mosaic(path: Path, mosaic: Float[Tensor, "1 h w"], pattern: str, record: dict[str, Any]) -> None:
    """Write a mosaic: unchanged floats in TIFF and NPY, clipped to 16 bits in PNG.

    Only TIFF stores the pattern and the record.
    """
    if path.suffix.lower() not in MOSAICS:
        raise DebayesError(f"{path}: a mosaic is written as {', '.join(MOSAICS)}")
    array = quantise(mosaic, 16 if path.suffix.lower() == ".png" else 32)[0].numpy()
    encode(path, array, record={"pattern": pattern, **record})


def check_bits(path: Path, bits: int | None) -> int:
    """Bits per sample of a file of this name: those asked for, if its format has them, or the default."""
    possible = picture_formats.format_of(path.suffix, path).bits
    if bits is not None and bits not in possible:
        raise DebayesError(
            f"{path}: {path.suffix} holds {' or '.join(map(str, possible))} bits per sample, not {bits}"
        )
    return bits or possible[0]


def quantise(picture: Float[Tensor, "*shape"], bits: int) -> Tensor:
    """The values of a file: clipped to [0, 1] and rounded to `bits`, or unchanged float32 for 32."""
    if bits == 32:
        return picture.float()
    scaled: Tensor = (picture.clamp(0, 1) * (2**bits - 1)).round()
    return scaled.to(torch.uint8 if bits == 8 else torch.uint16)


def encode(
    path: Path,
    array: NDArray[Any],
    *,
    record: dict[str, Any] | None = None,
    icc: bytes | None = None,
    exif: bytes | None = None,
    quality: int = 95,
) -> None:
    """Write an array (h, w) or (h, w, c) as the format of the name: see `assemble`."""
    picture_formats.format_of(path.suffix, path)
    assembled = assemble(path.suffix, array, record=record, icc=icc, exif=exif, quality=quality)
    with replace(path) as temporary:
        assembled.store(temporary)


def assemble(
    ending: str,
    array: NDArray[Any],
    *,
    record: dict[str, Any] | None = None,
    icc: bytes | None = None,
    exif: bytes | None = None,
    quality: int = 95,
) -> MemoryFile:
    """An array (h, w) or (h, w, c) as a file in memory, in the format of the ending.

    `icc` is a colour profile and `exif` an EXIF block, both as bytes; `quality` is that of a JPEG. The record is
    kept by TIFF alone.
    """
    chosen = picture_formats.format_of(ending)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[..., 0]
    return chosen.assemble(np.ascontiguousarray(array), picture_formats.Extras(record, icc, exif, quality))


def decode8(data: bytes) -> NDArray[Any]:
    """The uint8 array (h, w, 3) of an encoded colour picture in memory; an alpha channel is ignored."""
    with _open(data) as picture:
        if picture.mode not in ("RGB", "RGBA", "P", "CMYK", "YCbCr"):
            raise DebayesError(f"a colour picture was expected, not one of mode {picture.mode}")
        return np.asarray(picture.convert("RGB"))


def shrink8(array: NDArray[Any], factor: float) -> NDArray[Any]:
    """A uint8 array (h, w, 3) reduced by averaging over areas of factor x factor pixels."""
    from PIL import Image

    height, width = (max(1, int(side / factor)) for side in array.shape[:2])
    box = (0, 0, width * factor, height * factor)
    return np.asarray(Image.fromarray(array).resize((width, height), Image.Resampling.BOX, box=box))


def _is_jpeg(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(3) == b"\xff\xd8\xff"


def _decode(path: Path, endings: tuple[str, ...] = PICTURES) -> tuple[NDArray[Any], dict[str, Any]]:
    """The array stored in a file, (h, w) or (h, w, c), and the record that debayes wrote into it."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: a picture file was expected")
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    if path.stat().st_size == 0:
        raise DebayesError(f"{path} is empty")
    suffix = path.suffix.lower()
    if suffix not in endings:
        raise DebayesError(
            f"{path}: {path.suffix or 'a name without an ending'} is not one of {', '.join(endings)}"
        )
    decode = {".npy": _decode_npy, ".tif": _decode_tiff, ".tiff": _decode_tiff}.get(suffix, _decode_coded)
    with path.open("rb") as file:
        try:
            array, record = decode(file)
        except MemoryError:
            raise
        except Exception as error:  # every decoder has its own exceptions for a damaged file
            raise DebayesError(f"{path} cannot be read as {suffix[1:].upper()}: {_line(error)}") from error
    if array.dtype.kind not in "uif" or array.ndim not in (2, 3) or array.size == 0:
        raise DebayesError(f"{path}: numbers in height x width (x channels) were expected, not {_shape(array)}")
    return array, record


def _decode_npy(file: BinaryIO) -> tuple[NDArray[Any], dict[str, Any]]:
    array = np.load(file, allow_pickle=False)
    if not isinstance(array, np.ndarray):
        raise DebayesError("it is an archive of several arrays")
    return array, {}


def _decode_tiff(file: BinaryIO) -> tuple[NDArray[Any], dict[str, Any]]:
    import tifffile

    with tifffile.TiffFile(file) as tiff:
        page = tiff.pages[0]
        array = page.asarray()
        text = getattr(page, "description", "")
    try:
        record = json.loads(text)[KEY]
    except (json.JSONDecodeError, KeyError, TypeError):
        record = {}
    return array, record if isinstance(record, dict) else {}


def _decode_coded(file: BinaryIO) -> tuple[NDArray[Any], dict[str, Any]]:
    data = file.read()
    if data[:8] == b"\x89PNG\r\n\x1a\n" and data[24:25] == b"\x10":  # 16 bits per sample, which Pillow cuts to 8
        import imagecodecs

        return imagecodecs.png_decode(data), {}
    with _open(data) as picture:
        if picture.mode in ("P", "CMYK", "YCbCr", "LAB", "HSV"):
            return np.asarray(picture.convert("RGB")), {}
        return np.asarray(picture), {}


def _open(data: bytes) -> "Image.Image":
    """A picture opened by the first of Pillow's formats that accepts its first bytes, whatever its size.

    `Image.open` rejects large photographs unless `Image.MAX_IMAGE_PIXELS` is changed, which is the host program's.
    Of WebP, whose decoder checks that itself, Pillow's limit of 179 megapixels is kept.
    """
    from PIL import Image, UnidentifiedImageError

    Image.init()
    for name in Image.ID:
        factory, accept = Image.OPEN[name]
        accepted = accept is None or accept(data[:16])
        if accepted and not isinstance(accepted, str):  # text says which library is missing
            with contextlib.suppress(
                SyntaxError, IndexError, TypeError, struct.error
            ):  # what Pillow's formats raise
                return factory(BytesIO(data), "")
    raise UnidentifiedImageError("it is in no format that Pillow knows")


def _white(array: NDArray[Any]) -> float:
    return 1.0 if array.dtype.kind == "f" else float(np.iinfo(array.dtype).max)


def _normalise(array: NDArray[Any], black: float, white: float) -> Tensor:
    with np.errstate(over="ignore"):  # `_finite` rejects what is too large for float32
        values = torch.from_numpy(array.astype(np.float32))
    return values.sub_(black).div_(white - black)


def _finite(path: Path, values: Tensor) -> Tensor:
    if not bool(values.isfinite().all()):
        raise DebayesError(f"{path} holds values that are not numbers (NaN or infinity)")
    return values


def _shape(array: NDArray[Any]) -> str:
    return " x ".join(map(str, array.shape)) + f" of {array.dtype}"


def _line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text[:200] or type(error).__name__
