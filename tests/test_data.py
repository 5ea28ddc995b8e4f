"""Tiles and batches: whole tiles from any source, patches that are pieces of them, noise as asked for."""

import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from debayes import cfa, data


def numbered(height: int, width: int, value: int) -> Image.Image:
    return Image.fromarray(np.full((height, width, 3), value, dtype=np.uint8))


def test_tiles_of_folders_and_zips(tmp_path: Path) -> None:
    """Pictures are cut into every whole tile they hold, from folders and zips alike."""
    folder, archive = tmp_path / "folder", tmp_path / "more.zip"
    folder.mkdir()
    numbered(16, 35, 10).save(folder / "wide.png")
    numbered(15, 40, 20).save(folder / "low.png")
    numbered(16, 16, 30).save(tmp_path / "in.png")
    with zipfile.ZipFile(archive, "w") as file:
        file.write(tmp_path / "in.png", "in.png")
        file.writestr("CREDITS.csv", "not a picture")
    tiles = data.load_tiles([folder, archive], size=16)
    assert tiles[:, 0, 0, 0].tolist() == [10, 10, 30]


def test_sources_without_tiles(tmp_path: Path) -> None:
    """A missing source and one with pictures that are too small are errors that say so."""
    with pytest.raises(FileNotFoundError, match="neither a folder nor a zip"):
        data.load_tiles([tmp_path / "gone.zip"])
    numbered(8, 8, 0).save(tmp_path / "small.png")
    with pytest.raises(ValueError, match="no tile of 16x16"):
        data.load_tiles([tmp_path], size=16)
    (tmp_path / "text.png").write_text("not a picture")
    with pytest.raises(ValueError, match=r"text\.png cannot be read"):
        data.load_tiles([tmp_path], size=16)


def batch_of(tiles: torch.Tensor, seed: int, *, high: float = 0.0, n: int = 200, patch: int = 8) -> data.Batch:
    uniform, normal = data.draw(n, patch, generator=torch.Generator().manual_seed(seed))
    return data.make_batch(tiles, uniform, normal, low=0.0, high=high, varying=0.5)


def test_patches_are_pieces_of_tiles_through_all_symmetries() -> None:
    """Each noise-free patch is a crop of its tile turned by one of the eight symmetries; all eight and every
    place occur, and the mosaic is that of the target."""
    size, patch = 10, 8
    # red tells the tile, green the row, blue the column, so a patch shows where it was cut
    grid = torch.arange(size, dtype=torch.uint8).expand(size, size)
    names = [torch.full_like(grid, name) for name in (50, 60, 70)]
    tiles = torch.stack([torch.stack((name, grid.mT, grid), -1) for name in names])
    batch = batch_of(tiles, 0, n=600, patch=patch)
    values = (batch.target * 255).round().long()
    seen = set()
    for red, rows, columns in values:
        assert red.min() == red.max()
        transposed = bool(rows[0, 0] == rows[1, 0])
        if transposed:
            rows, columns = rows.mT, columns.mT
        down, right = int(rows[1, 0] - rows[0, 0]), int(columns[0, 1] - columns[0, 0])
        assert abs(down) == abs(right) == 1
        assert torch.equal(rows, (rows[0, 0] + down * torch.arange(patch))[:, None].expand(patch, patch))
        assert torch.equal(columns, (columns[0, 0] + right * torch.arange(patch)).expand(patch, patch))
        seen.add((int(red[0, 0]), transposed, down, right, int(rows.min()), int(columns.min())))
    assert len({s[1:4] for s in seen}) == 8
    assert {s[4] for s in seen} == {s[5] for s in seen} == {0, 1, 2}
    assert {s[0] for s in seen} == {50, 60, 70}
    assert torch.equal(batch.mosaic, cfa.mosaic(batch.target))
    assert torch.equal(batch.observed, cfa.interpolate(batch.mosaic))


def test_a_batch_depends_on_its_seed_only() -> None:
    """The same generator state gives the same batch; another gives another."""
    tiles = torch.randint(0, 255, (5, 16, 16, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    first, second, third = (batch_of(tiles, seed, high=0.1) for seed in (1, 1, 2))
    assert torch.equal(first.mosaic, second.mosaic) and not torch.equal(first.mosaic, third.mosaic)


def test_noise_of_a_batch_is_within_its_range() -> None:
    """The noise level averages to the middle of the range: E[sigma²] lies near that of uniform levels."""
    tiles = torch.full((1, 32, 32, 3), 128, dtype=torch.uint8)
    batch = batch_of(tiles, 3, high=0.1, n=3000, patch=16)
    error = batch.mosaic - cfa.mosaic(batch.target)
    flat = 0.1**2 / 3  # E[sigma²] of a uniform level; maps that vary lie between two such levels, so a bit below
    assert 0.7 * flat < float(error.square().mean()) < 1.05 * flat
