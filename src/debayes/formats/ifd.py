"""The directories of TIFF-like files: most camera raws, DNG, and the EXIF block of a JPEG are made of them.

Entries are kept as stored, type and bytes, so that a directory can be copied without being interpreted.
Damaged files give fewer entries, never an endless loop.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

Order = Literal["<", ">"]

# By TIFF's number of a type: the bytes of one value, and its code in the module struct.
TYPE_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4}
CODES = {1: "B", 3: "H", 4: "I", 6: "b", 8: "h", 9: "i", 11: "f", 12: "d", 13: "I"}
ASCII, RATIONAL, SRATIONAL = 2, 5, 10

SUBDIRECTORIES = 330
EXIF = 34665
GPS = 34853
INTEROPERABILITY = 40965

# The number after the byte order: TIFF, Olympus (two), Panasonic.
_MAGIC = (42, 0x4F52, 0x5352, 0x55)

# More entries in a directory, or directories in a file, than any camera writes: the file is damaged.
_LIMIT = 1000


@dataclass(frozen=True)
class Entry:
    """One entry of a directory, as stored."""

    kind: int
    """TIFF's number of the type."""
    data: bytes
    """All values, in the byte order of the file."""

    def values(self, order: Order) -> tuple[Any, ...]:
        """The values as numbers; text as one string, undefined data as one bytes object."""
        count = len(self.data) // TYPE_SIZES[self.kind]
        if self.kind == ASCII:
            return (self.data.split(b"\0")[0].decode("utf-8", "replace").strip(),)
        if self.kind in (RATIONAL, SRATIONAL):
            pair = struct.unpack(f"{order}{2 * count}{'I' if self.kind == RATIONAL else 'i'}", self.data)
            return tuple(a / b if b else 0.0 for a, b in zip(pair[::2], pair[1::2], strict=True))
        if self.kind == 7:
            return (self.data,)
        return struct.unpack(f"{order}{count}{CODES[self.kind]}", self.data)


Directory = dict[int, Entry]


@dataclass(frozen=True)
class Block:
    """The directories of a file or of an EXIF block."""

    order: Order
    """Its byte order."""
    images: tuple[Directory, ...]
    """The first directory, those that follow it, and their subdirectories."""
    exif: Directory
    """The EXIF directory; empty if there is none."""
    gps: Directory
    """The GPS directory; empty if there is none."""

    def find(self, tag: int) -> tuple[Any, ...]:
        """The values of the first image directory that has the tag; empty if none has."""
        return next((d[tag].values(self.order) for d in self.images if tag in d), ())


def read(data: bytes | memoryview, start: int = 0) -> Block | None:
    """The directories of the block that starts at `start`; None if it is not TIFF-like."""
    view = memoryview(data)[start:]
    marks: dict[bytes, Order] = {b"II": "<", b"MM": ">"}
    order = marks.get(bytes(view[:2]))
    if order is None or len(view) < 8 or struct.unpack_from(f"{order}H", view, 2)[0] not in _MAGIC:
        return None
    images = tuple(_walk(view, order, struct.unpack_from(f"{order}I", view, 4)[0]))
    if not images:
        return None

    def below(tag: int) -> Directory:
        for directory in images:
            for offset in _offsets(directory, tag, order)[:1]:
                return _directory(view, order, offset)[0]
        return {}

    return Block(order, images, below(EXIF), below(GPS))


def find(data: bytes | memoryview) -> Block | None:
    """The directories of a camera file: of the file itself, or of the EXIF block inside it.

    Canon's CR3 stores each directory in a separate box; other formats contain an EXIF block like that of JPEG.
    """
    block = read(data)
    if block is not None:
        return block
    head = bytes(memoryview(data)[: 1 << 20])
    boxes = [read(data, at + 4) if (at := head.find(name)) >= 0 else None for name in (b"CMT1", b"CMT2", b"CMT4")]
    if boxes[0] is not None:
        first, exif, gps = (box.images if box and box.order == boxes[0].order else ({},) for box in boxes)
        return Block(boxes[0].order, first, exif[0], gps[0])
    at = head.find(b"Exif\0\0")
    return None if at < 0 else read(data, at + 6)


def pack(directory: Directory, order: Order, offset: int) -> bytes:
    """A directory as bytes, to be written at `offset` of a file; values longer than 4 bytes follow the entries."""
    entries = sorted(directory.items())
    body = b""
    head = struct.pack(f"{order}H", len(entries))
    values_offset = offset + 2 + 12 * len(entries) + 4
    for tag, entry in entries:
        head += struct.pack(f"{order}HHI", tag, entry.kind, len(entry.data) // TYPE_SIZES[entry.kind])
        if len(entry.data) <= 4:
            head += entry.data.ljust(4, b"\0")
        else:
            head += struct.pack(f"{order}I", values_offset + len(body))
            body += entry.data + b"\0" * (len(entry.data) % 2)
    return head + struct.pack(f"{order}I", 0) + body


def attach(stream: Any, order: Order, directories: dict[int, Directory]) -> None:
    """Append directories to an open file and enter their offsets into its first directory.

    That directory has a placeholder for each, whose tag is lower by one because tifffile does not accept the tags
    themselves. The offsets of subdirectories become 32-bit integers (LONG), the type that older readers expect.
    """
    stream.seek(4)
    (first,) = struct.unpack(f"{order}I", stream.read(4))
    stream.seek(first)
    (count,) = struct.unpack(f"{order}H", stream.read(2))
    for at in range(first + 2, first + 2 + 12 * count, 12):
        stream.seek(at)
        (tag,) = struct.unpack(f"{order}H", stream.read(2))
        if tag == SUBDIRECTORIES:
            stream.write(struct.pack(f"{order}H", 4))
        if tag + 1 in directories:
            end = stream.seek(0, 2)
            end += stream.write(b"\0" * (end % 2))
            stream.write(pack(directories[tag + 1], order, end))
            stream.seek(at)
            stream.write(struct.pack(f"{order}HHII", tag + 1, 4, 1, end))


def text(value: str) -> Entry:
    """A text entry."""
    return Entry(ASCII, value.encode() + b"\0")


def shorts(order: Order, *values: int) -> Entry:
    """An entry of 16-bit integers."""
    return Entry(3, struct.pack(f"{order}{len(values)}H", *values))


def rational(order: Order, value: float) -> Entry:
    """An entry of one fraction; the number is not negative."""
    from fractions import Fraction

    fraction = Fraction(value).limit_denominator(1_000_000)
    return Entry(RATIONAL, struct.pack(f"{order}2I", fraction.numerator, fraction.denominator))


def _walk(view: memoryview, order: Order, offset: int) -> Iterator[Directory]:
    """The directory at an offset, its subdirectories, and those that follow it."""
    seen: set[int] = set()
    waiting = [offset]
    while waiting and len(seen) < _LIMIT:
        at = waiting.pop(0)
        if at in seen:
            continue
        seen.add(at)
        directory, following = _directory(view, order, at)
        if directory:
            yield directory
            waiting = [*_offsets(directory, SUBDIRECTORIES, order), *waiting, following]


def _offsets(directory: Directory, tag: int, order: Order) -> list[int]:
    entry = directory.get(tag)
    return [] if entry is None or entry.kind not in (4, 13) else list(entry.values(order))


def _directory(view: memoryview, order: Order, offset: int) -> tuple[Directory, int]:
    """The directory at an offset and the offset of the next; entries with values outside the file are skipped."""
    if not 0 < offset <= len(view) - 2:
        return {}, 0
    (count,) = struct.unpack_from(f"{order}H", view, offset)
    directory: Directory = {}
    if count > _LIMIT or offset + 2 + 12 * count > len(view):
        return {}, 0
    for i in range(count):
        at = offset + 2 + 12 * i
        tag, kind, number = struct.unpack_from(f"{order}HHI", view, at)
        size = TYPE_SIZES.get(kind, 0) * number
        start = at + 8 if size <= 4 else struct.unpack_from(f"{order}I", view, at + 8)[0]
        if kind in TYPE_SIZES and start + size <= len(view):
            directory[tag] = Entry(kind, bytes(view[start : start + size]))
    end = offset + 2 + 12 * count
    following = struct.unpack_from(f"{order}I", view, end)[0] if end + 4 <= len(view) else 0
    return directory, following
