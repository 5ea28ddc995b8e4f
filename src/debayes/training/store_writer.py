"""Making a tile store of photographs: a folder of zips of tiles, and CREDITS.csv, which names the photographs."""

import csv
import hashlib
import shutil
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from numpy.typing import NDArray
from torch import Tensor

from debayes.formats import picture_formats
from debayes.formats import pictures as picture_files
from debayes.imaging import cfa
from debayes.system import cores
from debayes.system.errors import DebayesError
from debayes.training.tiles import CREDITS, chunks, cut, decode

# The columns of CREDITS.csv.
COLUMNS = ("zip", "tile_prefix", "source", "path", "downscale", "licence")

# How many photographs are decoded at once.
PHOTOGRAPHS = 16


@dataclass(frozen=True)
class Selection:
    """Which tiles of a photograph are kept, and how they are stored."""

    size: int = 256
    """Side of a tile in pixels."""
    downscale: float = 2.0
    """The factor by which photographs are made smaller, by averaging over areas. 2 or more hides how the photograph
    itself was demosaicked and denoised."""
    count: int = 8
    """How many tiles of each photograph are kept at most; 0 keeps all."""
    hard: float = 0.75
    """The share of these that are the hardest; the others are drawn at random, the same every time."""
    quality: int = 95
    """The JPEG quality of the stored tiles, which are the ground truth; 100 stores PNG."""

    def __post_init__(self) -> None:
        for name, value, low, high in (
            ("downscale", self.downscale, 1, inf),
            ("hard", self.hard, 0, 1),
            ("count", self.count, 0, inf),
            ("quality", self.quality, 1, 100),
            ("size", self.size, 2, inf),
        ):
            if not low <= value <= high or value == inf:
                limit = f"from {low} to {high}" if high < inf else f"{low} or more"
                raise DebayesError(f"the {name} of a tile store must be {limit}, not {value:g}")

    @property
    def ending(self) -> str:
        """The ending of a tile's name."""
        return "png" if self.quality == 100 else "jpg"

    def tiles(self, path: Path) -> tuple[str, list[bytes]]:
        """The hash of a photograph's file, which begins the names of its tiles, and the encoded tiles."""
        data = path.read_bytes()
        name = hashlib.sha256(data).hexdigest()[:10]
        tiles = list(cut(picture_files.shrink8(decode(str(path), lambda: data), self.downscale), self.size))
        if self.count and len(tiles) > self.count:
            tiles = self._chosen(tiles, np.random.default_rng(int(name, 16)))
        if self.quality == 100:
            return name, [picture_formats.encode_png8(tile) for tile in tiles]
        return name, [picture_formats.encode_jpeg8(tile, self.quality) for tile in tiles]

    def _chosen(self, tiles: list[NDArray[Any]], random: np.random.Generator) -> list[NDArray[Any]]:
        order = torch.argsort(hardness(torch.from_numpy(np.stack(tiles))), descending=True).tolist()
        hardest = order[: round(self.hard * self.count)]
        others = random.permutation(order[len(hardest) :])[: self.count - len(hardest)].tolist()
        return [tiles[i] for i in sorted(hardest + others)]


class _Zips:
    """The zips of a store that is being written, each of at most `per_zip` tiles, and its CREDITS.csv."""

    def __init__(self, folder: Path, selection: Selection, licence: str, per_zip: int) -> None:
        self.tiles = 0
        self.zips = 0
        self._folder, self._selection, self._licence, self._per_zip = folder, selection, licence, per_zip
        self._archive: zipfile.ZipFile | None = None

    def add(self, path: Path, name: str, tiles: list[bytes]) -> None:
        """Store the tiles of a photograph, and credit it in every zip that holds some of them."""
        for i, data in enumerate(tiles):
            archive = self._archive
            is_new = archive is None or self.tiles % self._per_zip == 0
            if archive is None or is_new:
                archive = self._open_next()
            if is_new or i == 0:
                place = f"tiles-{self.zips - 1:03}.zip"
                self._credit(place, name, path.parent.name, path.name, self._selection.downscale, self._licence)
            archive.writestr(f"{name}-{i}.{self._selection.ending}", data)
            self.tiles += 1

    def close(self) -> None:
        """Finish the last zip."""
        if self._archive is not None:
            self._archive.close()

    def _open_next(self) -> zipfile.ZipFile:
        self.close()
        self._archive = zipfile.ZipFile(self._folder / f"tiles-{self.zips:03}.zip", "w")
        self.zips += 1
        if self.zips == 1:
            self._credit(*COLUMNS)
        return self._archive

    def _credit(self, *row: object) -> None:
        with (self._folder / CREDITS).open("a", newline="") as file:
            csv.writer(file).writerow(row)


def make_store(
    pictures: Sequence[Path],
    folder: Path,
    *,
    selection: Selection | None = None,
    licence: str = "",
    per_zip: int = 2000,
    progress: Callable[[float], None] | None = None,
) -> dict[str, int]:
    """Write a store of tiles of the pictures to a new folder, and count the pictures, tiles and zips.

    Pictures that are too small for a tile are counted as "small". A picture that is there under two names is used
    once.
    """
    selection = selection or Selection()
    if folder.exists():
        raise FileExistsError(f"{folder} exists already: give the name of a new folder")
    if not folder.parent.is_dir():
        raise FileNotFoundError(f"the folder {folder.parent} does not exist: create it, or write somewhere else")
    missing = next((path for path in pictures if not path.is_file()), None)
    if missing is not None:
        raise FileNotFoundError(f"there is no file {missing}")
    paths = list(dict.fromkeys(path.resolve() for path in pictures))
    names: set[str] = set()
    small = 0
    with (
        _temporary(folder) as temporary,
        closing(_Zips(temporary, selection, licence, per_zip)) as zips,
        ThreadPoolExecutor(cores.count()) as pool,
    ):
        for start, chunk in enumerate(chunks(paths, PHOTOGRAPHS)):
            for path, (name, tiles) in zip(chunk, pool.map(selection.tiles, chunk), strict=True):
                if name not in names:
                    names.add(name)
                    small += not tiles
                    zips.add(path, name, tiles)
            if progress is not None:
                progress((start * PHOTOGRAPHS + len(chunk)) / len(paths))
        if not zips.tiles:
            size = selection.size
            raise DebayesError(
                f"none of the pictures, downscaled by {selection.downscale:g}, holds a tile of {size}x{size} pixels"
            )
    return {"pictures": len(names) - small, "small": small, "tiles": zips.tiles, "zips": zips.zips}


def hardness(tiles: UInt8[Tensor, "n h w 3"]) -> Float[Tensor, " n"]:
    """The mean squared error of bilinear interpolation of each tile's own noise-free mosaic."""
    target = tiles.permute(0, 3, 1, 2).float() / 255
    return (cfa.interpolate(cfa.mosaic(target)) - target).square().mean((1, 2, 3))


@contextmanager
def _temporary(folder: Path) -> Iterator[Path]:
    """A hidden folder, renamed to `folder` at the end and removed after an error."""
    temporary = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir()
        yield temporary
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
