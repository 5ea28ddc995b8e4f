"""DNG files: what LibRaw reads of them, and the structure that the specification asks for."""

import shutil
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import rawpy
import tifffile
import torch

from debayes.formats import dng, ifd, raw
from debayes.formats.raw import Raw
from debayes.imaging import cfa
from debayes.imaging.noise_profile import Profile
from debayes.system.errors import DebayesError

MATRIX = torch.tensor([[0.6461, -0.1164, -0.0857], [-0.3825, 1.1597, 0.2534], [-0.0416, 0.154, 0.6039]])


def shot(height: int, width: int, **more: object) -> Raw:
    """A raw without a file."""
    facts: dict[str, object] = {
        "profile": Profile(1e-4, 1e-7),
        "camera": "Maker Model One",
        "lens": "Lens 50mm F2",
        "iso": 800.0,
        "seconds": 1 / 250,
        "aperture": 2.8,
        "date": "2026:01:02 03:04:05",
        **more,
    }
    return Raw(torch.zeros(1, height, width), "RGGB", (2.0, 1.0, 1.5), MATRIX, **facts)  # type: ignore[arg-type]


def picture(height: int, width: int, seed: int = 0) -> np.ndarray:
    """A smooth picture with some noise, over the whole range."""
    rng = np.random.default_rng(seed)
    ramp = np.linspace(0, 65000, width)[None, :, None] + rng.integers(0, 500, (height, width, 3))
    return ramp.astype(np.uint16)


PREVIEW = np.full((30, 40, 3), 100, np.uint8)


@pytest.mark.parametrize("size", [(512, 512), (601, 531), (33, 25), (700, 90), (24, 1030)])
@pytest.mark.parametrize("order", ["<", ">"])
def test_libraw_reads_the_same_pixels(tmp_path: Path, size: tuple[int, int], order: ifd.Order) -> None:
    """To half a step of the curve, whatever the size and the byte order, with its white balance and white level."""
    path = tmp_path / "a.dng"
    pixels = picture(*size)
    block = ifd.Block(order, ({271: ifd.text("Maker")},), {}, {})
    dng.write(path, pixels, shot(*size, block=block), preview=PREVIEW)
    with rawpy.imread(str(path)) as back:
        assert np.array_equal(back.raw_image_visible[..., :3], dng.LINEAR[dng.STEP[pixels]])
        assert back.camera_whitebalance[:3] == pytest.approx([2, 1, 1.5])
        assert back.white_level == 65535 and list(back.black_level_per_channel[:3]) == [0, 0, 0]


@pytest.mark.parametrize("order", ["<", ">"])
def test_developed_files_are_told_from_raws(tmp_path: Path, order: ifd.Order) -> None:
    """A linear DNG by debayes is one; a mosaic by debayes, a linear DNG by another program and no DNG are not."""
    path, block = tmp_path / "a.dng", ifd.Block(order, ({271: ifd.text("Maker")},), {}, {})
    dng.write(path, picture(64, 80), shot(64, 80, block=block), preview=PREVIEW)
    assert dng.is_developed(path)
    dng.write(path, picture(64, 80), shot(64, 80, block=block), preview=PREVIEW, software="another program")
    assert not dng.is_developed(path)
    dng.write_mosaic(path, picture(64, 80)[..., 0], shot(64, 80), black=0, white=65535, preview=PREVIEW)
    assert not dng.is_developed(path)
    for content in (b"", b"II*\0", b"words" * 100):
        path.write_bytes(content)
        assert not dng.is_developed(path)
    assert not dng.is_developed(tmp_path / "gone.dng") and not dng.is_developed(tmp_path)


def test_the_curve() -> None:
    """Black and white are kept, counts are rounded to the nearest step, and that adds less than a thousandth to the
    photon noise of 30,000 electrons, which no network takes out whole."""
    counts = np.arange(65536)
    rounded = dng.LINEAR[dng.STEP].astype(int)
    assert (rounded[0], rounded[-1]) == (0, 65535)
    assert (np.diff(dng.LINEAR.astype(int)) > 0).all()
    nearest = np.abs(dng.LINEAR.astype(int)[:, None] - counts[None, ::97]).min(0)
    assert (np.abs(rounded - counts)[::97] <= nearest + 1).all()
    steps = np.diff(dng.LINEAR.astype(float), append=65535 + 33)[dng.STEP] / 65535
    assert (steps[1000:] ** 2 / 12 < 1e-3 * counts[1000:] / 65535 / 30_000).all()
    assert abs((rounded - counts)[20_000:50_000].mean()) < 0.1  # brightness is unchanged


def test_structure(tmp_path: Path) -> None:
    """What DNG 1.4 asks for: versions, levels of three colours, tiles and no strips, the image below a preview.

    Readers fail on levels beside the preview, singular matrices, and both strips and tiles.
    """
    path = tmp_path / "a.dng"
    turned = shot(600, 700, orientation=6, exposure=0.5, crop=(2, 4, 590, 690))
    dng.write(path, picture(600, 700), turned, preview=PREVIEW, left=Profile(1e-6, 1e-9))
    with tifffile.TiffFile(path) as file:
        first = file.pages[0]
        (main,) = first.pages
        tags, below = first.tags, main.tags
        assert bytes(tags[50706].value) == bytes((1, 4, 0, 0)) and bytes(tags[50707].value) <= bytes((1, 4, 0, 0))
        assert (first.subfiletype, main.subfiletype) == (1, 0)
        assert main.photometric == 34892 and main.compression == 7 and main.shape == (600, 700, 3)
        assert below[258].value == (16, 16, 16) and below[284].value == 1
        assert 324 in below and 273 not in below and 278 not in below
        assert np.array_equal(below[50712].value, dng.LINEAR)
        assert below[50714].value == (0, 0, 0) and below[50717].value == (65535,) * 3
        assert 50714 not in tags and 50717 not in tags
        assert below[50719].value == (4, 2) and below[50720].value == (690, 590)
        assert tags[274].value == 6 and tags[50708].value == "Maker Model One"
        matrix = np.array(tags[50721].value, float).reshape(9, 2)
        assert matrix[:, 0] / matrix[:, 1] == pytest.approx(MATRIX.flatten().numpy(), abs=1e-4)
        assert tags[50778].value == 21
        assert np.divide(*tags[50730].value) == 0.5
        assert tags[51041].value == pytest.approx((1e-6, 1e-9) * 3)
        assert np.abs(first.asarray().astype(int) - 100).max() <= 2
        assert [tag.code for tag in tags] == sorted(tag.code for tag in tags)
        exif = tags[34665].value
        assert exif["ISOSpeedRatings"] == 800 and exif["LensModel"] == "Lens 50mm F2"
        assert np.divide(*exif["FNumber"]) == pytest.approx(2.8)
        assert exif["DateTimeOriginal"] == "2026:01:02 03:04:05"


def test_metadata_travel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without exiftool too: the source's EXIF with its maker note, GPS, author, and DNG's own colour profile."""
    monkeypatch.setattr(shutil, "which", lambda _: None)
    order: ifd.Order = ">"
    own = {
        271: ifd.text("Maker"),
        272: ifd.text("Model"),
        315: ifd.text("José, an author"),
        50706: ifd.Entry(1, bytes((1, 4, 0, 0))),
        50721: ifd.Entry(10, struct.pack(">18i", *(v for x in range(1, 10) for v in (x * x, 10)))),
        50708: ifd.text("Maker Model (Pro)"),
        50936: ifd.text("a profile"),
        50829: ifd.Entry(4, struct.pack(">4I", 1, 1, 9, 9)),
        33434: ifd.rational(order, 0.5),
    }
    exif = {37500: ifd.Entry(7, b"maker's own notes"), 34855: ifd.shorts(order, 6400)}
    gps = {1: ifd.text("N"), 2: ifd.Entry(5, struct.pack(">6I", 52, 1, 30, 1, 0, 1))}
    block = ifd.Block(order, (own,), exif, gps)
    path = tmp_path / "a.dng"
    source = shot(16, 16, block=block, camera="Caméra")
    dng.write(path, picture(16, 16), source, preview=PREVIEW, source=path)
    back = ifd.read(path.read_bytes())
    assert back is not None and back.order == order
    assert back.find(315) == ("José, an author",) and back.find(50936) == ("a profile",)
    assert back.find(50708) == ("Maker Model (Pro)",)
    assert back.find(50721) == tuple(x * x / 10 for x in range(1, 10))
    assert 50829 not in back.images[0]
    assert back.exif[37500] == exif[37500] and back.exif[34855] == exif[34855]
    assert back.exif[33434].values(order) == (0.5,)
    assert back.gps == gps


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("pattern", ["RGGB", "BGGR", "GRBG", "GBRG"])
def test_mosaic_is_read_back(tmp_path: Path, pattern: str, order: ifd.Order) -> None:
    """A simulated raw can be read as a raw, with its counts, levels, pattern, colours, noise and metadata."""
    path = tmp_path / "a.dng"
    counts = np.random.default_rng(0).integers(0, 16384, (31, 42)).astype(np.uint16)
    block = ifd.Block(order, ({},), {}, {})
    source = replace(shot(31, 42), pattern=pattern, camera="Maker One", block=block)
    dng.write_mosaic(path, counts, source, black=512, white=16383, preview=PREVIEW)
    back = raw.read(path)
    assert back.pattern == pattern and back.size == (31, 42)
    assert np.allclose(back.mosaic[0].numpy(), (counts.astype(np.float32) - 512) / (16383 - 512), atol=1e-6)
    assert back.gains == pytest.approx(source.gains) and torch.allclose(back.matrix, MATRIX, atol=1e-5)
    assert back.profile == source.profile and back.camera == "Maker One" and back.iso == 800


@pytest.mark.parametrize("pattern", [cfa.QUAD, cfa.XTRANS, cfa.shift("xtrans", 4, 1)])
def test_a_mosaic_of_another_pattern(tmp_path: Path, pattern: cfa.Pattern) -> None:
    """The cell is stored whole: its size, its colours and a black level for each photosite."""
    path = tmp_path / "a.dng"
    counts = np.random.default_rng(0).integers(0, 16384, (31, 42)).astype(np.uint16)
    source = replace(shot(31, 42), pattern=pattern)
    dng.write_mosaic(path, counts, source, black=512, white=16383, masked=12, preview=PREVIEW)
    with tifffile.TiffFile(path) as file:
        (main,) = file.pages[0].pages
        tags, p = main.tags, pattern.period
        assert tags[33421].value == (p, p) and tags[50713].value == (p, p)
        assert "".join("RGB"[code] for code in tags[33422].value) == pattern.letters
        assert tags[50714].value == (512,) * p**2
        assert np.array_equal(main.asarray(), counts)
    with pytest.raises(DebayesError, match=f"a multiple of {p}, the pattern's period, not 7"):
        dng.write_mosaic(path, counts, source, black=512, white=16383, masked=7, preview=PREVIEW)


def test_libraw_knows_our_xtrans(tmp_path: Path) -> None:
    """A DNG of an X-Trans mosaic has that pattern for LibRaw; debayes rejects it by the sensor's name."""
    path = tmp_path / "a.dng"
    source = replace(shot(36, 48), pattern=cfa.XTRANS)
    dng.write_mosaic(path, np.full((36, 48), 1000, np.uint16), source, black=512, white=16383, preview=PREVIEW)
    with rawpy.imread(str(path)) as back:
        assert back.raw_pattern.shape == (6, 6)
        found = "".join("RGBG"[back.raw_color(y, x)] for y, x in np.ndindex(6, 6))
    assert found == cfa.XTRANS.letters
    with pytest.raises(DebayesError, match=r"a\.dng is from an X-Trans sensor"):
        raw.read(path)


def test_nothing_is_left_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure leaves the older file as it was, and no other."""
    path = tmp_path / "a.dng"
    path.write_bytes(b"older")

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(ifd, "attach", fail)
    with pytest.raises(OSError, match="disk full"):
        dng.write(path, picture(8, 8), shot(8, 8), preview=PREVIEW)
    assert path.read_bytes() == b"older" and [p.name for p in tmp_path.iterdir()] == ["a.dng"]
