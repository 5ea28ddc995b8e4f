"""Camera raws: what is read of them and of their tags (raw_tags), what is assumed, and what is rejected."""

import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch

from debayes.formats import dng, ifd, raw, raw_tags
from debayes.formats.raw import Raw
from debayes.imaging import color
from debayes.imaging.noise_profile import Profile
from debayes.system.errors import DebayesError

MATRIX = np.array([[0.6461, -0.1164, -0.0857], [-0.3825, 1.1597, 0.2534], [-0.0416, 0.154, 0.6039]])

PREVIEW = np.zeros((8, 8, 3), np.uint8)


def write(path: Path, counts: np.ndarray | None = None, **more: object) -> Path:
    """A DNG of a mosaic."""
    shot = Raw(torch.zeros(1, 32, 32), "RGGB", (2.0, 1.0, 1.5), color.SRGB_FROM_XYZ.float(), camera="Maker One")
    if counts is None:
        counts = np.full((32, 32), 1000, np.uint16)
    dng.write_mosaic(path, counts, replace(shot, **more), black=512, white=16383, preview=PREVIEW)  # type: ignore[arg-type]
    return path


def patch(path: Path, tag: int, change: object) -> Path:
    """Change the value of a tag in the first directory, or in the one below."""
    with tifffile.TiffFile(path, mode="r+b") as file:
        first = file.pages[0]
        for page in (first, *first.pages):
            if tag in page.tags:
                page.tags[tag].overwrite(change)
    return path


def test_path_and_bytes(tmp_path: Path) -> None:
    """A path, its text and the bytes of the file give the same raw."""
    path = write(tmp_path / "a.dng")
    first, second, third = raw.read(path), raw.read(str(path)), raw.read(path.read_bytes())
    assert torch.equal(first.mosaic, second.mosaic) and torch.equal(first.mosaic, third.mosaic)
    assert first.assumed == () and first.levels == {"black": [512] * 4, "white": 16383}


def test_below_black_is_kept(tmp_path: Path) -> None:
    """Noise around black goes below it, and is not clipped."""
    counts = np.random.default_rng(0).integers(500, 525, (32, 32)).astype(np.uint16)
    shot = raw.read(write(tmp_path / "a.dng", counts))
    assert float(shot.mosaic.min()) == pytest.approx((500 - 512) / (16383 - 512))


def masked(folder: Path, dark: np.ndarray) -> Path:
    """A DNG whose first 16 rows and columns are masked, and hold `dark`."""
    counts = np.full((80, 112), 1000, np.uint16)
    counts[:16], counts[:, :16] = dark[:16], dark[:, :16]
    shot = Raw(torch.zeros(1, 64, 96), "RGGB", (2.0, 1.0, 1.5), color.SRGB_FROM_XYZ.float(), camera="Maker One")
    dng.write_mosaic(folder / "a.dng", counts, shot, black=512, white=16383, masked=16, preview=PREVIEW)
    return folder / "a.dng"


def test_masked_photosites_tell_the_floor(tmp_path: Path) -> None:
    """They are not in the picture, and their variance, white = 1, is the noise without light."""
    dark = np.random.default_rng(1).normal(512, 9, (80, 112)).round().astype(np.uint16)
    path = masked(tmp_path, dark)
    shot = raw.read(path)
    assert shot.size == (64, 96) and shot.pattern == "RGGB"
    assert float(shot.mosaic.min()) == float(shot.mosaic.max())
    assert shot.floor == pytest.approx((9**2 + 1 / 12) / (16383 - 512) ** 2, rel=0.1)
    assert raw.read(path, black=400, white=1400).floor == pytest.approx((9**2 + 1 / 12) / 1000**2, rel=0.1)


def test_masked_photosites_that_say_nothing(tmp_path: Path) -> None:
    """Those that are clipped at black, all equal, or outside the sensor are not used."""
    noise = np.random.default_rng(1).normal(512, 9, (80, 112)).round()
    assert raw.read(masked(tmp_path, noise.clip(512).astype(np.uint16))).floor is None
    assert raw.read(masked(tmp_path, np.full((80, 112), 512, np.uint16))).floor is None
    path = masked(tmp_path, noise.astype(np.uint16))
    assert raw.read(patch(path, 50830, (0, 500, 16, 900, 70, 0, 2000, 3))).floor is None
    assert raw.read(write(tmp_path / "b.dng")).floor is None


def test_levels_can_be_replaced(tmp_path: Path) -> None:
    """The levels can be given if the file's tags are wrong."""
    shot = raw.read(write(tmp_path / "a.dng"), black=600, white=1400)
    assert float(shot.mosaic.mean()) == pytest.approx(0.5)
    with pytest.raises(ValueError, match="white level"):
        raw.read(write(tmp_path / "a.dng"), black=600, white=600)


def test_saturation_below_white(tmp_path: Path) -> None:
    """Where many photosites end below the white level, the sensor does."""
    counts = np.random.default_rng(0).integers(1000, 20000, (64, 64)).clip(0, 15000).astype(np.uint16)
    shot = raw.read(write(tmp_path / "a.dng", counts))
    assert shot.saturation == pytest.approx((15000 - 512) / (16383 - 512))
    assert raw.read(write(tmp_path / "b.dng")).saturation == 1  # an even grey is no ceiling


def test_missing_white_balance(tmp_path: Path) -> None:
    """Without one, the world is grey on average, and the answer says so."""
    counts = np.full((32, 32), 2512, np.uint16)
    counts[::2, ::2] = 512 + 1000
    path = patch(write(tmp_path / "a.dng", counts), 50728, (0, 1, 1, 1, 0, 1))
    shot = raw.read(path)
    assert shot.gains == pytest.approx((2, 1, 1)) and "white balance" in shot.assumed[0]


def test_wrong_pattern(tmp_path: Path) -> None:
    """Greens that differ where red and blue do not mean a wrong pattern; the right one can be given."""
    counts = np.full((32, 32), 3000, np.uint16)
    counts[::2, 1::2], counts[1::2, ::2] = 2000, 4000
    shot = raw.read(write(tmp_path / "a.dng", counts))
    assert shot.pattern == "RGGB" and "try --pattern" in shot.assumed[0]
    right = raw.read(tmp_path / "a.dng", pattern="GRBG")
    assert right.pattern == "GRBG" and right.assumed == ()
    with pytest.raises(ValueError, match="one of RGGB"):
        raw.read(tmp_path / "a.dng", pattern="RGBW")


def test_an_array_is_a_raw() -> None:
    """Counts of any type and pattern become the mosaic that a file of them has."""
    counts = np.random.default_rng(0).integers(500, 16000, (31, 42)).astype(np.uint16)
    expected = (counts.astype(np.float64) - 512) / (16383 - 512)
    profile = Profile(1e-4, 1e-7)
    for array in (counts, counts.astype(np.int64), counts.astype(np.float32), torch.from_numpy(counts.astype(int))):
        shot = Raw.from_array(
            array, "gbrg", black=512, white=16383, white_balance=(4, 2, 3), matrix=MATRIX, profile=profile
        )
        assert shot.pattern == "GBRG" and shot.size == (31, 42) and shot.mosaic.dtype == torch.float32
        np.testing.assert_allclose(shot.mosaic[0].numpy(), expected, atol=1e-6)
        assert shot.gains == (2, 1, 1.5) and np.allclose(shot.matrix.numpy(), MATRIX) and shot.profile == profile
        assert shot.assumed == () and shot.levels == {"black": [512] * 4, "white": 16383}
    assert Raw.from_array(counts, "xtrans+1+0", black=512, white=16383).pattern.name == "xtrans+1+0"


def test_an_array_equals_its_file(tmp_path: Path) -> None:
    """The same counts, levels, colours and noise through a DNG and through an array: the same raw."""
    counts = np.random.default_rng(0).integers(1000, 20000, (64, 64)).clip(0, 15000).astype(np.uint16)
    read = raw.read(write(tmp_path / "a.dng", counts, profile=Profile(1e-4, 1e-7)))
    made = Raw.from_array(
        counts, "RGGB", black=512, white=16383, white_balance=read.gains, matrix=read.matrix, profile=read.profile
    )
    assert torch.equal(made.mosaic, read.mosaic) and made.saturation == read.saturation < 1
    assert torch.equal(made.matrix, read.matrix) and made.gains == pytest.approx(read.gains)


def test_what_an_array_does_not_say_is_assumed() -> None:
    """White balance: grey on average; colour matrix: that of sRGB; both are recorded."""
    cell = np.array([[1000, 2000], [2000, 500]])
    shot = Raw.from_array(np.tile(cell, (8, 8)), "RGGB", black=0, white=4095)
    assert shot.gains == pytest.approx((2, 1, 4)) and torch.equal(shot.matrix, color.SRGB_FROM_XYZ.float())
    assert [note.split(" (")[0] for note in shot.assumed] == ["white balance", "colour matrix"]
    assert shot.profile is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mosaic": np.zeros((4, 4, 3))}, "height x width, not 4 x 4 x 3"),
        ({"mosaic": 7.0}, "not a single number"),
        ({"mosaic": np.zeros((4, 4), complex)}, "whole numbers or floats, not complex128"),
        ({"mosaic": np.zeros((4, 4), bool)}, "not bool"),
        ({"mosaic": [["a", "b"], ["c", "d"]]}, "whole numbers or floats"),
        ({"mosaic": np.full((4, 4), np.nan)}, "NaN"),
        ({"mosaic": np.ones((1, 4))}, "at least 2 rows and columns, not 1 x 4"),
        ({"pattern": "xtrans"}, "pattern xtrans has at least 6 rows"),
        ({"pattern": "RGBG"}, "a pattern is one of RGGB"),
        ({"black": 2000}, r"white level \(1023\) is not above its black level \(2000\)"),
        ({"white": np.inf}, "white level"),
        ({"black": 900}, r"no count is above the black level \(900\)"),
        ({"white_balance": (2, 1)}, "three factors above 0"),
        ({"white_balance": (2, 0, 1)}, "three factors above 0"),
        ({"matrix": np.zeros((3, 3))}, "colour matrix is zero or singular"),
        ({"matrix": np.eye(2)}, "colour matrix"),
        ({"profile": Profile(-1e-4, 0.0)}, "noise profile"),
    ],
)
def test_an_array_that_is_no_raw(change: dict[str, object], message: str) -> None:
    """Each mistake has an error that names it."""
    arguments = {"mosaic": np.full((4, 4), 500), "pattern": "RGGB", "black": 64, "white": 1023} | change
    with pytest.raises(DebayesError, match=message):
        Raw.from_array(arguments.pop("mosaic"), arguments.pop("pattern"), **arguments)  # type: ignore[arg-type]


def test_unknown_is_unknown(tmp_path: Path) -> None:
    """An exposure time of nothing is none."""
    assert raw.read(write(tmp_path / "a.dng", seconds=None, aperture=None)).seconds is None


def test_singular_matrix_is_rejected(tmp_path: Path) -> None:
    """A colour matrix of zeros, which new cameras have had, is rejected: the colours would be unknown."""
    path = patch(write(tmp_path / "a.dng"), 50721, (0, 1) * 9)
    with pytest.raises(ValueError, match=r"a\.dng: its colour matrix is zero or singular"):
        raw.read(path)


@pytest.mark.parametrize(
    ("values", "profile"),
    [
        ((1e-4, 1e-7), Profile(1e-4, 1e-7)),
        ((9e-4, 9e-7, 1e-4, 1e-7, 8e-4, 8e-7), Profile(1e-4, 1e-7)),
        ((0.0, 0.0), None),
        ((-1e-4, 1e-7), None),
        ((1e-4,), None),
    ],
)
def test_noise_profile(values: tuple[float, ...], profile: Profile | None) -> None:
    """One for all colours, or that of green; nonsense is none."""
    block = ifd.Block("<", ({51041: ifd.Entry(12, struct.pack(f"<{len(values)}d", *values))},), {}, {})
    assert raw_tags.noise_profile(block) == profile


@pytest.mark.parametrize("number", range(1, 9))
def test_orientation(tmp_path: Path, number: int) -> None:
    """EXIF's number is kept."""
    assert raw.read(write(tmp_path / "a.dng", orientation=number)).orientation == number


def test_facts(tmp_path: Path) -> None:
    """Camera, lens and shot as the file says."""
    shot = raw.read(
        write(
            tmp_path / "a.dng", lens="Lens 50", iso=800.0, seconds=1 / 60, aperture=2.8, date="2026:01:02 03:04:05"
        )
    )
    assert (shot.camera, shot.lens, shot.iso, shot.date) == ("Maker One", "Lens 50", 800, "2026:01:02 03:04:05")
    assert shot.seconds == pytest.approx(1 / 60) and shot.aperture == pytest.approx(2.8)


def test_linear_dng_is_rejected(tmp_path: Path) -> None:
    """What has been developed before has no mosaic."""
    shot = Raw(torch.zeros(1, 40, 40), "RGGB", (2.0, 1.0, 1.5), color.SRGB_FROM_XYZ.float())
    dng.write(tmp_path / "a.dng", np.zeros((40, 40, 3), np.uint16), shot, preview=PREVIEW)
    with pytest.raises(ValueError, match=r"a\.dng holds all colours at every pixel"):
        raw.read(tmp_path / "a.dng")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"no raw at all" * 100, "no camera raw"),
        (b"\x89PNG\r\n\x1a\n" + bytes(500), "no camera raw"),
        (b"II*\0" + bytes(3), "no camera raw"),
    ],
)
def test_no_raw(tmp_path: Path, content: bytes, words: str) -> None:
    """A file that is no raw is rejected by its name."""
    (tmp_path / "a.nef").write_bytes(content)
    with pytest.raises(ValueError, match=rf"a\.nef.*{words}"):
        raw.read(tmp_path / "a.nef")


def test_headerless(tmp_path: Path) -> None:
    """Bare numbers whose length LibRaw happens to know are not developed to garbage."""
    (tmp_path / "a.raw").write_bytes(np.zeros((512, 768), np.uint16).tobytes())
    with pytest.raises(ValueError, match=r"a\.raw has no header"):
        raw.read(tmp_path / "a.raw")


def test_cut_short(tmp_path: Path) -> None:
    """A file that ends before its picture does is not developed to half a picture."""
    data = write(tmp_path / "a.dng", np.zeros((200, 200), np.uint16)).read_bytes()
    for share in (0.3, 0.6, 0.99):
        with pytest.raises(ValueError, match=r"cut short|damaged|no camera raw"):
            raw.read(data[: int(len(data) * share)])


def test_missing(tmp_path: Path) -> None:
    """No file, or a folder."""
    with pytest.raises(FileNotFoundError, match="there is no file"):
        raw.read(tmp_path / "none.nef")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        raw.read(tmp_path)


def test_damaged_files_are_read_or_rejected(tmp_path: Path) -> None:
    """Two hundred damaged files: each is read or rejected, none crashes or hangs."""
    counts = np.random.default_rng(0).integers(500, 16000, (48, 64)).astype(np.uint16)
    whole = write(tmp_path / "a.dng", counts).read_bytes()
    rng = np.random.default_rng(1)
    for _ in range(200):
        data = bytearray(whole)
        for place in rng.integers(
            0, min(len(data), 1500) if rng.random() < 0.7 else len(data), rng.integers(1, 30)
        ):
            data[place] = rng.integers(0, 256)
        try:
            shot = raw.read(bytes(data))
        except ValueError as error:
            assert str(error)
        else:
            assert bool(shot.mosaic.isfinite().all()) and shot.pattern in ("RGGB", "BGGR", "GRBG", "GBRG")
