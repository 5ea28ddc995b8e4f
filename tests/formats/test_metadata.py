"""EXIF blocks of rendered pictures, and copying by exiftool (a stand-in for the program)."""

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from debayes.formats import ifd, metadata, pictures
from debayes.formats.raw import Raw
from debayes.imaging import color

MAKER_NOTE, USER_COMMENT, ISO = 37500, 37510, 34855


def shot(exif: ifd.Directory, first: ifd.Directory | None = None, order: ifd.Order = "<") -> Raw:
    """A raw with these directories."""
    block = ifd.Block(order, (first or {271: ifd.text("Maker")},), exif, {1: ifd.text("N")})
    return Raw(torch.zeros(1, 4, 4), "RGGB", (2.0, 1.0, 1.5), color.SRGB_FROM_XYZ.float(), block=block)


@pytest.mark.parametrize("order", ["<", ">"])
def test_exif_block_round_trip(order: ifd.Order) -> None:
    """Maker, upright orientation, EXIF with the maker note, and GPS, in the byte order of the file."""
    exif = {MAKER_NOTE: ifd.Entry(7, b"notes" * 100), ISO: ifd.shorts(order, 800)}
    block = ifd.read(metadata.exif_block(shot(exif, order=order)))
    assert block is not None and block.order == order
    assert block.find(271) == ("Maker",) and block.find(274) == (1,) and block.find(305) == ("debayes",)
    assert block.exif == exif and block.gps == {1: ifd.text("N")}


@pytest.mark.parametrize(
    ("note", "comment", "kept"),
    [
        (59_900, 10, {MAKER_NOTE, USER_COMMENT, ISO}),
        (60_000, 10, {USER_COMMENT, ISO}),
        (70_000, 10, {USER_COMMENT, ISO}),
        (10, 70_000, {ISO}),
        (50_000, 50_000, {USER_COMMENT, ISO}),
    ],
)
def test_exif_block_fits_into_a_jpeg(tmp_path: Path, note: int, comment: int, kept: set[int]) -> None:
    """Above 60,000 bytes the maker note is left out, then the largest entries; the JPEG is written and read."""
    exif = {
        MAKER_NOTE: ifd.Entry(7, bytes(note)),
        USER_COMMENT: ifd.Entry(7, bytes(comment)),
        ISO: ifd.shorts("<", 800),
    }
    block = metadata.exif_block(shot(exif))
    assert len(block) < 65_533
    pictures.encode(tmp_path / "a.jpg", np.zeros((8, 8, 3), np.uint8), exif=block)
    with Image.open(tmp_path / "a.jpg") as picture:
        written = picture.info["exif"]
    back = ifd.read(written, 6)
    assert back is not None and set(back.exif) == kept
    assert all(back.exif[tag] == exif[tag] for tag in kept)


def test_fields_of_the_raw_complete_the_exif_data() -> None:
    """What LibRaw knows is added, what the file says is kept, and pointers into the file are left out."""
    exif = {ISO: ifd.shorts("<", 800), ifd.INTEROPERABILITY: ifd.Entry(4, bytes(4))}
    raw = replace(shot(exif), iso=100.0, seconds=0.5, aperture=2.8, focal_length=50.0, date="2026:01:02 03:04:05")
    found, _ = metadata.directories(replace(raw, lens="Lens 50"))
    assert found[ISO].values("<") == (800,) and ifd.INTEROPERABILITY not in found
    numbers = {33434: 0.5, 33437: 2.8, 37386: 50.0}
    assert {tag: found[tag].values("<")[0] for tag in numbers} == pytest.approx(numbers)
    assert found[36867].values("<") == ("2026:01:02 03:04:05",) and found[42036].values("<") == ("Lens 50",)


def test_when_exiftool_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it is installed and the raw may have what only it copies; its failure is reported and changes nothing."""
    commands: list[list[str]] = []

    def fail(command: list[str], **_: object) -> None:
        commands.append(command)
        raise subprocess.TimeoutExpired(command, 60)

    monkeypatch.setattr(subprocess, "run", fail)
    nef = shot({})
    plain_dng = shot({}, {50706: ifd.Entry(1, bytes((1, 4, 0, 0)))})
    dng_with_note = shot({MAKER_NOTE: ifd.Entry(7, b"notes")}, {50706: ifd.Entry(1, bytes((1, 4, 0, 0)))})
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert not metadata.has_more(nef) and not metadata.copy_by_exiftool(tmp_path / "a", tmp_path / "b", nef)
    monkeypatch.setattr(shutil, "which", lambda _: "/bin/exiftool")
    assert metadata.has_more(nef) and metadata.has_more(dng_with_note) and not metadata.has_more(plain_dng)
    assert not metadata.copy_by_exiftool(tmp_path / "a", tmp_path / "b", plain_dng) and not commands
    assert not metadata.copy_by_exiftool(tmp_path / "a", tmp_path / "b", nef)
    assert commands[0][0] == "/bin/exiftool" and commands[0][-1] == str(tmp_path / "b")
