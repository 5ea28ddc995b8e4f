"""Metadata from a raw to the developed picture: EXIF, GPS, maker notes, captions."""

import shutil
import struct
import subprocess
from pathlib import Path

from debayes.formats import ifd
from debayes.formats.raw import Raw
from debayes.system.log import log

# Tags of the EXIF directory that some cameras put into the first one.
_EXIF_TAGS = {33434, 33437, 34850, 34855, *range(37377, 37387)}

# Text in the first directory: description, maker, model, date, author, rights.
_TEXTS = (270, 271, 272, 306, 315, 33432)

# DNG's version; XMP, IPTC and a DNG's private data, which may be maker notes.
_DNG_VERSION, _ONLY_BY_EXIFTOOL = 50706, (700, 33723, 50740)

_MAKER_NOTE = 37500

# The EXIF values that fit into a JPEG, whose segments have 65,533 bytes; without the maker note if there are more.
_EXIF_LIMIT = 60_000


def directories(raw: Raw) -> tuple[ifd.Directory, ifd.Directory]:
    """The EXIF and GPS directories of a raw: the file's own entries, completed from the raw's fields."""
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
    for tag, value in ((36867, raw.date), (42036, raw.lens)):
        if value:
            known[tag] = ifd.text(value)
    return known | exif, raw.block.gps if raw.block else {}


def byte_order(raw: Raw) -> ifd.Order:
    """The byte order of a raw's file; maker notes are only readable in it."""
    return raw.block.order if raw.block else "<"


def exif_block(raw: Raw) -> bytes:
    """The EXIF block of a rendered picture, as JPEG, PNG and TIFF store it; the picture is upright.

    The maker note is left out if the block would not fit into a JPEG.
    """
    order = byte_order(raw)
    own: ifd.Directory = raw.block.images[0] if raw.block else {}
    first = {tag: own[tag] for tag in _TEXTS if tag in own and own[tag].data}
    first[274] = ifd.shorts(order, 1)
    first[305] = ifd.text("debayes")
    below = dict(zip((ifd.EXIF, ifd.GPS), directories(raw), strict=True))
    below[ifd.EXIF] = _limited(below[ifd.EXIF])
    placed = {tag: ifd.Entry(4, bytes(4)) for tag, directory in below.items() if directory}
    end = 8 + len(ifd.pack(first | placed, order, 8))
    packed = b""
    for tag in placed:
        placed[tag] = ifd.Entry(4, struct.pack(f"{order}I", end + len(packed)))
        packed += ifd.pack(below[tag], order, end + len(packed))
    header = struct.pack(f"{order}2sHI", b"II" if order == "<" else b"MM", 42, 8)
    return header + ifd.pack(first | placed, order, 8) + packed


def _limited(exif: ifd.Directory) -> ifd.Directory:
    """A directory that fits into a JPEG: without the maker note, then the largest entries, if it is too large."""
    kept = dict(exif)
    for tag in sorted(exif, key=lambda tag: (tag == _MAKER_NOTE, len(exif[tag].data)), reverse=True):
        if sum(len(entry.data) for entry in kept.values()) <= _EXIF_LIMIT:
            break
        log.info("EXIF tag %d of %d bytes is left out: a JPEG has no room for it", tag, len(kept.pop(tag).data))
    return kept


def copy_by_exiftool(source: Path, target: Path, raw: Raw) -> bool:
    """Copy all metadata that does not describe the pixels, if `has_more`; returns whether exiftool did it.

    If exiftool fails, the target keeps the EXIF block that was written before.
    """
    program = shutil.which("exiftool")
    if program is None or not has_more(raw):
        log.debug("exiftool is not used for %s", source)
        return False
    groups = ("-ExifIFD:all", "-GPS:all", "-MakerNotes", "-XMP:all", "-IPTC:all", "--XMP-tiff:Orientation")
    command = [program, "-q", "-q", "-m", "-overwrite_original", "-TagsFromFile", str(source), *groups, str(target)]
    try:
        return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def exiftool_version() -> str | None:
    """The version of exiftool; none if it is not installed, or does not run."""
    program = shutil.which("exiftool")
    if program is None:
        return None
    try:
        done = subprocess.run([program, "-ver"], capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def has_more(raw: Raw) -> bool:
    """Whether exiftool is installed and the raw may have metadata that only it can copy.

    A DNG without maker notes, XMP and IPTC has none; that saves the third of a second that exiftool takes.
    """
    if shutil.which("exiftool") is None:
        return False
    if raw.block is None or _DNG_VERSION not in raw.block.images[0]:
        return True
    return _MAKER_NOTE in raw.block.exif or any(raw.block.find(tag) for tag in _ONLY_BY_EXIFTOOL)
