"""Directories of TIFF-like files: written, read back, found in other files, damaged."""

import struct
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from debayes.formats import ifd


def block(order: ifd.Order, directory: ifd.Directory, exif: ifd.Directory | None = None) -> bytes:
    """A TIFF-like block of one directory, with an EXIF directory behind it."""
    mark = b"II" if order == "<" else b"MM"
    if exif is not None:
        end = 8 + len(ifd.pack(directory | {ifd.EXIF: ifd.Entry(4, bytes(4))}, order, 8))
        directory = directory | {ifd.EXIF: ifd.Entry(4, struct.pack(f"{order}I", end))}
    head = struct.pack(f"{order}2sHI", mark, 42, 8) + ifd.pack(directory, order, 8)
    return head + (b"" if exif is None else ifd.pack(exif, order, len(head)))


ORDERS: tuple[ifd.Order, ...] = ("<", ">")


@pytest.mark.parametrize("order", ORDERS)
def test_round_trip(order: ifd.Order) -> None:
    """What is packed is read back, whether it fits into its entry or lies behind, in both byte orders."""
    first = {271: ifd.text("Maker & Sons"), 274: ifd.shorts(order, 6), 282: ifd.rational(order, 0.01)}
    found = ifd.read(block(order, first, {34855: ifd.shorts(order, 3200), 37500: ifd.Entry(7, b"\1\2\3\4\5")}))
    assert found is not None and found.order == order
    assert found.find(271) == ("Maker & Sons",) and found.find(274) == (6,)
    assert found.find(282) == (pytest.approx(0.01),) and found.find(999) == ()
    assert found.exif[34855].values(order) == (3200,) and found.exif[37500].values(order) == (b"\1\2\3\4\5",)
    assert found.gps == {}


@pytest.mark.parametrize(
    ("kind", "data", "values"),
    [
        (1, b"\1\2", (1, 2)),
        (3, struct.pack("<2H", 1, 65535), (1, 65535)),
        (9, struct.pack("<i", -5), (-5,)),
        (10, struct.pack("<4i", -1, 2, 3, 0), (-0.5, 0.0)),
        (12, struct.pack("<d", 1e-5), (1e-5,)),
        (2, b"words\0more\0", ("words",)),
    ],
)
def test_values(kind: int, data: bytes, values: tuple[object, ...]) -> None:
    """Each type as its numbers; a fraction over nothing is nothing."""
    assert ifd.Entry(kind, data).values("<") == values


@pytest.mark.parametrize(
    "wrap",
    [
        lambda b: b,
        lambda b: b"FUJIFILMCCD-RAW " + bytes(100) + b"\xff\xd8\xff\xe1\0\0Exif\0\0" + b,
        lambda b: b"\0\0\0\x18ftypcrx " + bytes(40) + b"CMT1" + b + bytes(20) + b"CMT2" + b,
    ],
    ids=["tiff", "exif in a jpeg", "boxes"],
)
def test_find(wrap: Callable[[bytes], bytes]) -> None:
    """The directories of other containers are found as well."""
    found = ifd.find(wrap(block("<", {272: ifd.text("Model")}, {34855: ifd.shorts("<", 100)})))
    assert found is not None and found.find(272) == ("Model",)


@pytest.mark.parametrize("data", [b"", b"II", b"II*\0", b"II*\0\xff\xff\xff\x7f", b"\x89PNG" + bytes(50)])
def test_no_block(data: bytes) -> None:
    """Bytes that are no TIFF-like block give None."""
    assert ifd.find(data) is None


def test_a_loop_ends() -> None:
    """A directory that names itself as the next one is read once."""
    data = bytearray(block("<", {274: ifd.shorts("<", 1)}))
    struct.pack_into("<I", data, 8 + 2 + 12, 8)
    found = ifd.read(bytes(data))
    assert found is not None and len(found.images) == 1


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), min_size=1, max_size=20))
def test_damage_is_survived(changes: list[tuple[int, int]]) -> None:
    """Whatever bytes are changed, reading ends without an exception, and so does taking the values."""
    whole = block(">", {271: ifd.text("Maker"), 50721: ifd.rational(">", 0.5)}, {33434: ifd.rational(">", 0.01)})
    data = bytearray(whole)
    for place, value in changes:
        data[place % len(data)] = value
    found = ifd.find(bytes(data))
    for directory in found.images if found else ():
        for entry in directory.values():
            entry.values(found.order if found else "<")
