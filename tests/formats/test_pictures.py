"""Picture and mosaic files: what is written is what is read, at every depth; the rest is rejected."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from debayes.formats import picture_formats, pictures
from debayes.system.errors import DebayesError


def ramp(channels: int, height: int = 13, width: int = 17) -> torch.Tensor:
    return torch.linspace(-0.1, 1.1, channels * height * width).view(channels, height, width)


@pytest.mark.parametrize(
    ("name", "bits"),
    [("a.png", 8), ("a.png", 16), ("a.tiff", 8), ("a.tif", 16), ("a.tiff", 32), ("a.npy", 32), ("a.png", None)],
)
def test_round_trip(tmp_path: Path, name: str, bits: int | None) -> None:
    """A picture comes back to half a step of its depth, clipped unless it is float."""
    path, picture = tmp_path / name, ramp(3)
    pictures.write(path, picture, bits=bits)
    bits = bits or 16
    expected = picture if bits == 32 else picture.clamp(0, 1)
    read = pictures.read(path)
    assert float((read - expected).abs().max()) <= (0 if bits == 32 else 0.501 / (2**bits - 1))


def test_jpeg_is_close(tmp_path: Path) -> None:
    """A smooth picture survives JPEG to about one step."""
    pictures.write(tmp_path / "a.jpg", ramp(3, 64, 64))
    assert float((pictures.read(tmp_path / "a.jpg") - ramp(3, 64, 64).clamp(0, 1)).abs().mean()) < 2 / 255


@pytest.mark.parametrize("name", ["m.tiff", "m.npy", "m.png"])
def test_mosaic_round_trip(tmp_path: Path, name: str) -> None:
    """Floats are kept to the last bit, beyond black and white too; PNG keeps 16 bits of [0, 1]."""
    path, mosaic = tmp_path / name, ramp(1)
    pictures.write_mosaic(path, mosaic, "GBRG", {"sigma": 10})
    read = pictures.read_mosaic(path)
    if name == "m.png":
        assert float((read.values - mosaic.clamp(0, 1)).abs().max()) <= 0.501 / 65535
    else:
        assert torch.equal(read.values, mosaic)
    assert read.pattern == ("GBRG" if name == "m.tiff" else None)
    assert read.record == ({"sigma": 10} if name == "m.tiff" else {})


def test_levels_are_the_files_own(tmp_path: Path) -> None:
    """(number - black) / (white - black), whatever the type; below black stays below 0."""
    np.save(tmp_path / "m.npy", np.array([[500, 600], [8060, 15520]], dtype=np.uint16))
    read = pictures.read_mosaic(tmp_path / "m.npy", black=600, white=15520)
    torch.testing.assert_close(read.values[0], torch.tensor([[-100 / 14920, 0.0], [0.5, 1.0]]))


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32, np.float64])
def test_white_is_the_types_largest(tmp_path: Path, dtype: type) -> None:
    """Without a white level it is 255, 65535 or 1.0."""
    white = np.iinfo(dtype).max if np.issubdtype(dtype, np.integer) else 1
    np.save(tmp_path / "m.npy", np.full((2, 2), white, dtype=dtype))
    assert (pictures.read_mosaic(tmp_path / "m.npy").values == 1).all()


def test_sixteen_bit_colour_png_is_not_cut_to_eight(tmp_path: Path) -> None:
    """Values that differ in their low byte only stay apart."""
    picture = torch.full((3, 4, 4), 1000 / 65535)
    picture[:, 0] = 1001 / 65535
    pictures.write(tmp_path / "a.png", picture, bits=16)
    assert len(pictures.read(tmp_path / "a.png").unique()) == 2


def test_opaque_alpha_and_palettes(tmp_path: Path) -> None:
    """An opaque alpha channel is dropped, any other if it is to be ignored; a palette is looked up."""
    array = np.random.default_rng(0).integers(0, 255, (6, 6, 3), dtype=np.uint8)
    Image.fromarray(array).convert("RGBA").save(tmp_path / "alpha.png")
    assert torch.equal(pictures.read(tmp_path / "alpha.png"), torch.from_numpy(array).permute(2, 0, 1) / 255)
    Image.fromarray(np.dstack([array, array[..., :1]])).save(tmp_path / "clear.png")
    clear = pictures.read(tmp_path / "clear.png", ignore_alpha=True)
    assert torch.equal(clear, pictures.read(tmp_path / "alpha.png"))
    flat = Image.fromarray(np.full((6, 6, 3), (255, 0, 0), dtype=np.uint8)).convert("P")
    flat.save(tmp_path / "palette.png")
    assert pictures.read(tmp_path / "palette.png")[:, 0, 0].tolist() == [1, 0, 0]


def test_describe(tmp_path: Path) -> None:
    """Size, type and how a mosaic was made."""
    pictures.write_mosaic(tmp_path / "m.tiff", ramp(1), "GBRG", {"sigma": 10})
    assert pictures.describe(tmp_path / "m.tiff") == {
        "height": 13,
        "width": 17,
        "channels": 1,
        "dtype": "float32",
        "pattern": "GBRG",
        "sigma": 10,
    }


def bad(path: Path) -> dict[str, Path]:
    """Files that are not what they should be."""
    rgb = np.zeros((4, 4, 3), dtype=np.uint8)
    files = {name: path / name for name in ("grey.png", "alpha.png", "color.png", "photo.jpg", "text.png")}
    Image.fromarray(rgb[..., 0]).save(files["grey.png"])
    Image.fromarray(np.dstack([rgb, rgb[..., :1]])).save(files["alpha.png"])
    Image.fromarray(rgb).save(files["color.png"])
    Image.fromarray(rgb).save(files["photo.jpg"])
    files["text.png"].write_text("not a picture")
    for name, array in {
        "nan.npy": np.array([[0.0, np.nan], [0.0, 0.0]]),
        "one.npy": np.zeros((1, 1)),
        "line.npy": np.zeros(7),
        "cube.npy": np.zeros((4, 4, 4, 4)),
        "objects.npy": np.array([[None, None], [None, None]]),
        "words.npy": np.array([["a", "b"], ["c", "d"]]),
    }.items():
        files[name] = path / name
        np.save(files[name], array)
    for name, data in {"empty.tiff": b"", "cut.tiff": b"II*\0\x08\0\0\0"}.items():
        files[name] = path / name
        files[name].write_bytes(data)
    files["folder"] = path
    files["gone.png"] = path / "gone.png"
    files["notes.txt"] = path / "notes.txt"
    files["notes.txt"].write_text("x")
    return files


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("color.png", r"a mosaic \(height x width\) was expected, not 4 x 4 x 3.*simulate"),
        ("photo.jpg", "lossy compression has destroyed the mosaic"),
        ("nan.npy", "not numbers"),
        ("one.npy", "at least 2x2 photosites, not 1 x 1"),
        ("line.npy", "height x width"),
        ("cube.npy", "height x width"),
        ("objects.npy", "cannot be read as NPY"),
        ("words.npy", "numbers in height x width"),
        ("empty.tiff", "is empty"),
        ("cut.tiff", "cannot be read as TIFF"),
        ("text.png", "cannot be read as PNG"),
        ("folder", "is a folder"),
        ("gone.png", "there is no file"),
        ("notes.txt", r"\.txt is not one of"),
    ],
)
def test_what_is_no_mosaic(tmp_path: Path, name: str, message: str) -> None:
    """Each is rejected with one line that names the file."""
    with pytest.raises((ValueError, OSError), match=message) as caught:
        pictures.read_mosaic(bad(tmp_path)[name])
    assert name in str(caught.value) or name == "folder"
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["grey.png", "alpha.png", "nan.npy", "text.png"])
def test_what_is_no_picture(tmp_path: Path, name: str) -> None:
    """Grey pictures, transparent ones and broken ones are rejected."""
    with pytest.raises(ValueError, match=name):
        pictures.read(bad(tmp_path)[name])


@pytest.mark.parametrize("name", ["a.gif", "a.jpgg", "a", "a.dng"])
def test_an_unknown_ending_is_an_error(tmp_path: Path, name: str) -> None:
    """Nothing is written as JPEG under another name; the error lists the endings."""
    with pytest.raises(DebayesError, match=r"is not one of \.tiff, \.tif, \.png, \.jpg, \.jpeg, \.npy"):
        pictures.encode(tmp_path / name, np.zeros((4, 4, 3), np.uint8))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("quality", [1, 95, 100])
def test_a_jpeg_is_a_jpeg(tmp_path: Path, quality: int) -> None:
    """Whatever the quality, and the better the larger; PNGs have another function."""
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3)).astype(np.uint8)
    pictures.encode(tmp_path / "a.jpg", pixels, quality=quality)
    with Image.open(tmp_path / "a.jpg") as picture:
        assert picture.format == "JPEG"
        error = np.abs(np.asarray(picture).astype(int) - pixels).mean()
    assert (error < 2) == (quality == 100)
    assert np.array_equal(pictures.decode8(picture_formats.encode_png8(pixels)), pixels)


@pytest.mark.parametrize("quality", [0, 101])
def test_jpeg_qualities_are_from_1_to_100(quality: int) -> None:
    """Pillow takes any number; there are no others."""
    with pytest.raises(DebayesError, match=f"from 1 to 100, not {quality}"):
        picture_formats.encode_jpeg8(np.zeros((4, 4, 3), np.uint8), quality)


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.bmp", "a.ppm"])
def test_large_photographs_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Pillow's limit is neither applied nor changed: it is the host program's, as are its warnings."""
    pixels = np.full((16, 16, 3), 100, np.uint8)
    Image.fromarray(pixels).save(tmp_path / name)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    assert float((pictures.read(tmp_path / name) - 100 / 255).abs().max()) < 0.02
    assert pictures.decode8((tmp_path / name).read_bytes()).shape == (16, 16, 3)
    assert Image.MAX_IMAGE_PIXELS == 10


def test_levels_in_the_wrong_order(tmp_path: Path) -> None:
    """White must be above black."""
    np.save(tmp_path / "m.npy", np.zeros((2, 2)))
    with pytest.raises(ValueError, match=r"white level \(1\) must be above the black level \(2\)"):
        pictures.read_mosaic(tmp_path / "m.npy", black=2)


@pytest.mark.parametrize(("name", "bits"), [("a.jpg", 16), ("a.png", 32), ("a.tiff", 12), ("a.gif", None)])
def test_depths_that_formats_lack(tmp_path: Path, name: str, bits: int | None) -> None:
    """Each format's depths are named."""
    with pytest.raises(ValueError, match=r"bits per sample, not|\.gif is not one of \.tiff, \.tif"):
        pictures.write(tmp_path / name, ramp(3), bits=bits)
    assert not list(tmp_path.iterdir())


def test_find(tmp_path: Path) -> None:
    """Pictures by name; none, or no folder, is an error."""
    with pytest.raises(ValueError, match="holds no pictures"):
        pictures.find(tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        pictures.find(tmp_path / "no")
    for name in ("b.png", "a.PNG", "c.txt"):
        (tmp_path / name).touch()
    assert [p.name for p in pictures.find(tmp_path)] == ["a.PNG", "b.png"]
