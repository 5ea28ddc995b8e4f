"""Tile stores: every whole tile from any source, blocks that depend on the seed, stores made of the hard tiles."""

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


def test_tiles_of_folders_and_zips(tmp_path: Path) -> None:
    """Pictures are cut into every whole tile they hold, from folders, zips and zips in folders alike."""
    folder, archive = tmp_path / "folder", tmp_path / "more.zip"
    (folder / "not searched").mkdir(parents=True)
    plain(16, 35, 10).save(folder / "wide.png")
    plain(15, 40, 20).save(folder / "low.png")
    plain(16, 16, 30).save(tmp_path / "in.png")
    for place in (archive, folder / "inner.zip"):
        with zipfile.ZipFile(place, "w") as file:
            file.write(tmp_path / "in.png", "in.png")
            file.writestr("CREDITS.csv", "not a picture")
    store = tiles.Store([folder, archive], size=16)
    assert store.block(0)[:, 0, 0, 0].tolist() == [30, 10, 10, 30]
    assert store.whole


def test_sources_without_tiles(tmp_path: Path) -> None:
    """A missing source, pictures that are too small and files that are none are errors that say so."""
    with pytest.raises(FileNotFoundError, match="is not there"):
        tiles.Store([tmp_path / "gone.zip"])
    (tmp_path / "text.zip").write_text("not a zip")
    with pytest.raises(FileNotFoundError, match="is neither: a folder or zip of pictures was expected"):
        tiles.Store([tmp_path / "text.zip"])
    (tmp_path / "text.zip").unlink()
    plain(8, 8, 0).save(tmp_path / "small.png")
    with pytest.raises(ValueError, match="holds a tile of 16x16"):
        tiles.Store([tmp_path], size=16).block(0)
    (tmp_path / "text.png").write_text("not a picture")
    with pytest.raises(ValueError, match=r"text\.png cannot be read as a picture"):
        tiles.Store([tmp_path], size=16).block(0)


def test_a_large_store_comes_in_blocks(folder: Path) -> None:
    """With room for 12 of 40 tiles, a block is 12 different ones, the same for the same seed and number, and in
    time every tile has its turn."""
    store = tiles.Store([folder], size=8, hold=12, seed=5)
    blocks = [store.block(number)[:, 0, 0, 0] for number in range(20)]
    assert not store.whole and all(len(set(block.tolist())) == 12 for block in blocks)
    assert torch.equal(tiles.Store([folder], size=8, hold=12, seed=5).block(7)[:, 0, 0, 0], blocks[7])
    assert not torch.equal(blocks[0], blocks[1])
    assert set(torch.cat(blocks).tolist()) == {3 * i for i in range(40)}


def test_the_shelf_holds_the_block_of_the_step(folder: Path) -> None:
    """Whatever step a run starts or goes on at, the shelf has block step // stay, in memory that never moves."""
    store = tiles.Store([folder], size=8, hold=12)
    shelf = tiles.Shelf(store, stay=10, step=25, device=torch.device("cpu"))
    place = shelf.tiles.data_ptr()
    for step in range(25, 62):
        shelf.turn(step)
        assert torch.equal(shelf.tiles, store.block(step // 10))
    assert shelf.tiles.data_ptr() == place


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
    done = tiles.make(paths, tmp_path / "store", size=size, count=4, hard=0.75, quality=100, licence="CC0")
    assert done == {"pictures": 1, "small": 1, "tiles": 4, "zips": 1}
    found = tiles.Store([tmp_path / "store"], size=size).block(0)
    assert (tiles.hardness(found) > 1e-3).sum() >= 3
    with (tmp_path / "store" / "CREDITS.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert (row["zip"], row["path"], row["downscale"], row["licence"]) == ("tiles-000.zip", "a.png", "2.0", "CC0")
    assert tiles.licences([tmp_path / "store"]) == {"CC0": 1}
    assert tiles.licences([tmp_path / "store" / "tiles-000.zip"]) == {"CC0": 1}


def test_hardness_orders_photographs() -> None:
    """A blurred picture is easier than the sharp one, a plain one has nothing to get wrong."""
    sharp = data.coffee()[100:164, 200:264]
    blurred = np.asarray(Image.fromarray(sharp).resize((8, 8)).resize((64, 64)))
    hard = tiles.hardness(torch.from_numpy(np.stack([sharp, blurred, np.full_like(sharp, 77)])))
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
    done = tiles.make(pictures.find(folder), tmp_path / "store", size=4, downscale=1.0, count=0, per_zip=46)
    assert done == {"pictures": 40, "small": 0, "tiles": 160, "zips": 4}
    assert len(tiles.Store([tmp_path / "store"], size=4).block(0)) == 160
    with (tmp_path / "store" / "CREDITS.csv").open() as file:
        rows = list(csv.DictReader(file))
    paths = [row["path"] for row in rows]
    assert list(dict.fromkeys(paths)) == [path.name for path in pictures.find(folder)]
    assert len(paths) == 42  # two pictures lie across the end of a zip, and are credited in both
    for row in rows:
        with zipfile.ZipFile(tmp_path / "store" / row["zip"]) as archive:
            assert any(name.startswith(row["tile_prefix"]) for name in archive.namelist())
    assert tiles.licences([tmp_path / "store"]) == {"not stated": 40}


def test_one_picture_twice_is_one(tmp_path: Path, folder: Path) -> None:
    """By another path or another name, the same picture is taken once; the tiles do not depend on either."""
    one = folder / "07.png"
    (tmp_path / "copy.png").write_bytes(one.read_bytes())
    given = [one, folder / ".." / "many" / "07.png", tmp_path / "copy.png"]
    assert tiles.make(given, tmp_path / "store", size=4, downscale=1.0)["pictures"] == 1


def test_grey_pictures_are_refused(tmp_path: Path) -> None:
    """Pillow would clip 16-bit grey to white; a sentence names the picture instead."""
    Image.fromarray(np.full((16, 16), 40000, dtype=np.uint16)).save(tmp_path / "deep.png")
    with pytest.raises(ValueError, match=r"deep\.png: a colour picture was expected"):
        tiles.Store([tmp_path], size=8).block(0)


def test_a_store_is_whole_or_not_there(tmp_path: Path, folder: Path) -> None:
    """An existing folder is left alone; a picture that cannot be read leaves no half store behind."""
    with pytest.raises(FileExistsError, match="exists already"):
        tiles.make(pictures.find(folder), folder)
    with pytest.raises(ValueError, match="downscale >= 1"):
        tiles.make(pictures.find(folder), tmp_path / "store", downscale=0.5)
    with pytest.raises(ValueError, match="none of the pictures"):
        tiles.make(pictures.find(folder), tmp_path / "store", size=64)
    (folder / "zz.png").write_text("not a picture")
    with pytest.raises(ValueError, match=r"zz\.png cannot be read as a picture"):
        tiles.make(pictures.find(folder), tmp_path / "store", size=8, downscale=1.0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["many"]
