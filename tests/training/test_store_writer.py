"""Making tile stores: the hard tiles are kept, photographs are credited, a store is written whole or not at all."""

import csv
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from skimage import data

from debayes.formats import pictures
from debayes.training import tiles
from debayes.training.store_writer import Selection, hardness, make_store


def plain(height: int, width: int, value: int) -> Image.Image:
    return Image.fromarray(np.full((height, width, 3), value, dtype=np.uint8))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Forty pictures of one tile each, all different."""
    folder = tmp_path / "many"
    folder.mkdir()
    for i in range(40):
        plain(8, 8, 3 * i).save(folder / f"{i:02}.png")
    return folder


def test_a_store_keeps_the_hard_tiles(tmp_path: Path) -> None:
    """Of a picture with four detailed tiles among plain ones, three hard and one other are kept; the store reads
    back as tiles, and CREDITS.csv names picture, scale and licence."""
    size = 32
    picture = np.full((8 * size, 8 * size, 3), 90, dtype=np.uint8)
    numbers = np.random.default_rng(0)
    for row, column in ((0, 0), (1, 3), (2, 1), (3, 2)):
        detail = numbers.integers(0, 255, (size, size, 3), dtype=np.uint8).repeat(2, 0).repeat(2, 1)
        picture[2 * size * row : 2 * size * (row + 1), 2 * size * column : 2 * size * (column + 1)] = detail
    (tmp_path / "photos").mkdir()
    Image.fromarray(picture).save(tmp_path / "photos" / "a.png")
    plain(20, 20, 1).save(tmp_path / "photos" / "tiny.png")
    paths = pictures.find(tmp_path / "photos")
    selection = Selection(size=size, count=4, hard=0.75, quality=100)
    done = make_store(paths, tmp_path / "store", selection=selection, licence="CC0")
    assert done == {"pictures": 1, "small": 1, "tiles": 4, "zips": 1}
    found = tiles.Store([tmp_path / "store"], size=size).block(0)
    assert (hardness(found) > 1e-3).sum() >= 3
    with (tmp_path / "store" / "CREDITS.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert (row["zip"], row["path"], row["downscale"], row["licence"]) == ("tiles-000.zip", "a.png", "2.0", "CC0")
    for source in (tmp_path / "store", tmp_path / "store" / "tiles-000.zip"):
        store = tiles.Store([source], size=size)
        store.block(0)
        assert store.credits() == tiles.Credits(1, 4, {"CC0": 1})


def test_hardness_orders_photographs() -> None:
    """A blurred picture is easier than the sharp one, a plain one has nothing to get wrong."""
    sharp = data.coffee()[100:164, 200:264]
    blurred = np.asarray(Image.fromarray(sharp).resize((8, 8)).resize((64, 64)))
    hard = hardness(torch.from_numpy(np.stack([sharp, blurred, np.full_like(sharp, 77)])))
    assert hard[0] > 2 * hard[1] and float(hard[2]) < 1e-12


@pytest.mark.parametrize("factor", [1.0, 2.0, 2.5, 3.0])
def test_shrinking_is_an_average_over_areas(factor: float) -> None:
    """A whole factor gives the mean of each square, to rounding; any factor keeps the picture's mean."""
    picture = np.random.default_rng(1).integers(0, 255, (60, 90, 3), dtype=np.uint8)
    small = pictures.shrink8(picture, factor)
    assert small.shape == (int(60 / factor), int(90 / factor), 3)
    assert abs(float(small.mean()) - float(picture.mean())) < 1.0
    if factor == int(factor):
        step = int(factor)
        means = picture.reshape(60 // step, step, 90 // step, step, 3).mean((1, 3))
        assert np.abs(small - means).max() <= 1.0  # Pillow rounds after rows and after columns


def test_shards_and_credits(tmp_path: Path, folder: Path) -> None:
    """Many tiles are spread over several zips, and each picture is credited with the zips it is in."""
    selection = Selection(size=4, downscale=1.0, count=0)
    shares: list[float] = []
    done = make_store(
        pictures.find(folder), tmp_path / "store", selection=selection, per_zip=46, progress=shares.append
    )
    assert done == {"pictures": 40, "small": 0, "tiles": 160, "zips": 4}
    assert shares == [16 / 40, 32 / 40, 1]
    store = tiles.Store([tmp_path / "store"], size=4)
    assert len(store.block(0)) == 160
    with (tmp_path / "store" / "CREDITS.csv").open() as file:
        rows = list(csv.DictReader(file))
    paths = [row["path"] for row in rows]
    assert list(dict.fromkeys(paths)) == [path.name for path in pictures.find(folder)]
    assert len(paths) == 42  # two pictures lie across the end of a zip, and are credited in both
    for row in rows:
        with zipfile.ZipFile(tmp_path / "store" / row["zip"]) as archive:
            assert any(name.startswith(row["tile_prefix"]) for name in archive.namelist())
    assert store.credits() == tiles.Credits(40, 160, {"not stated": 40})


def test_one_picture_twice_is_one(tmp_path: Path, folder: Path) -> None:
    """By another path or another name, the same picture is taken once; the tiles do not depend on either."""
    one = folder / "07.png"
    (tmp_path / "copy.png").write_bytes(one.read_bytes())
    given = [one, folder / ".." / "many" / "07.png", tmp_path / "copy.png"]
    assert make_store(given, tmp_path / "store", selection=Selection(size=4, downscale=1.0))["pictures"] == 1


def test_a_store_is_whole_or_not_there(tmp_path: Path, folder: Path) -> None:
    """An existing folder is left alone; a picture that cannot be read leaves no half store behind."""
    with pytest.raises(FileExistsError, match="exists already"):
        make_store(pictures.find(folder), folder)
    with pytest.raises(ValueError, match="none of the pictures"):
        make_store(pictures.find(folder), tmp_path / "store", selection=Selection(size=64))
    (folder / "zz.png").write_text("not a picture")
    with pytest.raises(ValueError, match=r"zz\.png cannot be read as a picture"):
        make_store(pictures.find(folder), tmp_path / "store", selection=Selection(size=8, downscale=1.0))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["many"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"downscale": 0.5}, "downscale of a tile store must be 1 or more, not 0.5"),
        ({"downscale": float("inf")}, "downscale of a tile store must be 1 or more, not inf"),
        ({"hard": 1.5}, "hard of a tile store must be from 0 to 1, not 1.5"),
        ({"count": -1}, "count of a tile store must be 0 or more, not -1"),
        ({"quality": 0}, "quality of a tile store must be from 1 to 100, not 0"),
        ({"size": 1}, "size of a tile store must be 2 or more, not 1"),
    ],
)
def test_wrong_selections(values: dict[str, float], message: str) -> None:
    """The error names the value and its limits."""
    with pytest.raises(ValueError, match=message):
        Selection(**values)
