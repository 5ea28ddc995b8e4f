"""Tile stores: every whole tile from any source, blocks that depend on the seed, credits of what is used."""

import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

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
    """Pictures are cut into every whole tile they hold, from folders, from zips and from zips in folders."""
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
    assert store.is_one_block


def test_sources_without_tiles(tmp_path: Path) -> None:
    """A missing source, pictures that are too small and files that are none are errors that say so."""
    with pytest.raises(FileNotFoundError, match="does not exist"):
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
    store = tiles.Store([folder], size=8, block_size=12, seed=5)
    blocks = [store.block(number)[:, 0, 0, 0] for number in range(20)]
    assert not store.is_one_block and all(len(set(block.tolist())) == 12 for block in blocks)
    assert torch.equal(tiles.Store([folder], size=8, block_size=12, seed=5).block(7)[:, 0, 0, 0], blocks[7])
    assert not torch.equal(blocks[0], blocks[1])
    assert set(torch.cat(blocks).tolist()) == {3 * i for i in range(40)}


def test_the_buffer_holds_the_block_of_the_step(folder: Path) -> None:
    """Whatever step a run starts or resumes at, the buffer has block step // 10, in memory that never moves."""
    store = tiles.Store([folder], size=8, block_size=12)
    buffer = tiles.TileBuffer(store, steps_per_block=10, step=25, device=torch.device("cpu"))
    place = buffer.tiles.data_ptr()
    for step in range(25, 62):
        buffer.advance(step)
        assert torch.equal(buffer.tiles, store.block(step // 10))
    assert buffer.tiles.data_ptr() == place


def test_grey_pictures_are_refused(tmp_path: Path) -> None:
    """Pillow would clip 16-bit grey to white; an error message names the picture instead."""
    Image.fromarray(np.full((16, 16), 40000, dtype=np.uint16)).save(tmp_path / "deep.png")
    with pytest.raises(ValueError, match=r"deep\.png: a colour picture was expected"):
        tiles.Store([tmp_path], size=8).block(0)


def test_credits_are_those_of_the_tiles(tmp_path: Path, folder: Path) -> None:
    """Photographs are counted by the rows of CREDITS.csv whose tiles are in the store and large enough; pictures
    without a row count as one photograph each. A store larger than one block credits all its pictures."""
    rows = [
        ("a.zip", "one", "CC0"),
        ("a.zip", "two", "CC BY 4.0"),
        ("a.zip", "small", "CC BY"),
        ("b.zip", "x", "no"),
    ]
    table = "".join(f"{name},{prefix},{licence}\n" for name, prefix, licence in rows)
    (tmp_path / "CREDITS.csv").write_text("zip,tile_prefix,licence\n" + table)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name, size in {"one-0": 8, "one-1": 8, "two-0": 8, "small-0": 4}.items():
            plain(size, size, 9).save(tmp_path / "tile.png")
            archive.write(tmp_path / "tile.png", f"{name}.png")
    sources = [tmp_path / "a.zip", folder]
    whole, blocks = tiles.Store(sources, size=8), tiles.Store(sources, size=8, block_size=5)
    whole.block(0), blocks.block(0)
    licences = {"not stated": 40, "CC0": 1, "CC BY 4.0": 1}
    assert whole.credits() == tiles.Credits(42, 43, licences)
    assert blocks.credits() == tiles.Credits(43, None, licences | {"CC BY": 1})
    assert str(whole.credits()) == "43 tiles of 42 photographs" and str(blocks.credits()) == "43 photographs"
