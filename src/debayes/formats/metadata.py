"""What travels with a picture beside its pixels: EXIF, GPS, maker notes, captions."""

import shutil
import struct
import subprocess
from pathlib import Path

from debayes.formats import ifd
from debayes.formats.raw import Raw

# Tags of the EXIF directory that some cameras put into the first one.
_EXIF_TAGS = {33434, 33437, 34850, 34855, *range(37377, 37387)}

# Words in the first directory: description, maker, model, date, author, rights.
_WORDS = (270, 271, 272, 306, 315, 33432)

# DNG's version; XMP, IPTC and a DNG's private data, which may be maker notes.
_DNG, _MORE = 50706, (700, 33723, 50740)

# A JPEG holds this many bytes of EXIF, and some more; larger maker notes stay behind.
_MAKER_NOTE, _MOST = 37500, 60_000


def directories(raw: Raw) -> tuple[ifd.Directory, ifd.Directory]:
    """The EXIF and GPS directories of a raw: the file's own, and what is known beside them."""
    order = byte_order(raw)
    own: ifd.Directory = raw.block.images[0] if raw.block else {}
    exif = {tag: own[tag] for tag in _EXIF_TAGS & set(own)} | (raw.block.exif if raw.block else {})
    exif.pop(ifd.INTEROPERABILITY, None)  # points into the source file
    known: ifd.Directory = {}
    for tag, number in ((33434, raw.seconds), (33437, raw.aperture), (37386, raw.focal_length)):
        if number:
            known[tag] = ifd.rational(order, number)
    if raw.iso:
        known[34855] = ifd.shorts(order, min(65535, round(raw.iso)))
    for tag, words in ((36867, raw.date), (42036, raw.lens)):
        if words:
            known[tag] = ifd.text(words)
    return known | exif, raw.block.gps if raw.block else {}


def byte_order(raw: Raw) -> ifd.Order:
    """The byte order of a raw's file, which its maker notes rely on."""
    return raw.block.order if raw.block else "<"


def exif_block(raw: Raw) -> bytes:
    """The EXIF block of a rendered picture, as JPEG, PNG and TIFF carry it; the picture is upright."""
    order = byte_order(raw)
    own: ifd.Directory = raw.block.images[0] if raw.block else {}
    first = {tag: own[tag] for tag in _WORDS if tag in own and own[tag].data}
    first[274] = ifd.shorts(order, 1)
    first[305] = ifd.text("debayes")
    below = dict(zip((ifd.EXIF, ifd.GPS), directories(raw), strict=True))
    if sum(len(entry.data) for entry in below[ifd.EXIF].values()) > _MOST:
        below[ifd.EXIF] = {tag: e for tag, e in below[ifd.EXIF].items() if tag != _MAKER_NOTE}
    placed = {tag: ifd.Entry(4, bytes(4)) for tag, directory in below.items() if directory}
    end = 8 + len(ifd.pack(first | placed, order, 8))
    behind = b""
    for tag in placed:
        placed[tag] = ifd.Entry(4, struct.pack(f"{order}I", end + len(behind)))
        behind += ifd.pack(below[tag], order, end + len(behind))
    header = struct.pack(f"{order}2sHI", b"II" if order == "<" else b"MM", 42, 8)
    return header + ifd.pack(first | placed, order, 8) + behind


def copy_by_exiftool(source: Path, target: Path, raw: Raw) -> bool:
    """Copy all that is not about the pixels, maker notes and lens data too, if `has_more` says so; whether it was.

    What exiftool cannot copy stays as it was written: the EXIF block has been copied before.
    """
    program = shutil.which("exiftool")
    if program is None or not has_more(raw):
        return False
    groups = ("-ExifIFD:all", "-GPS:all", "-MakerNotes", "-XMP:all", "-IPTC:all", "--XMP-tiff:Orientation")
    command = [program, "-q", "-q", "-m", "-overwrite_original", "-TagsFromFile", str(source), *groups, str(target)]
    try:
        return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def has_more(raw: Raw) -> bool:
    """Whether exiftool is there, and a raw may have what it alone copies.

    A DNG without maker notes, XMP and IPTC has not: exiftool would take a third of a second for it.
    """
    if shutil.which("exiftool") is None:
        return False
    if raw.block is None or _DNG not in raw.block.images[0]:
        return True
    return _MAKER_NOTE in raw.block.exif or any(raw.block.find(tag) for tag in _MORE)
