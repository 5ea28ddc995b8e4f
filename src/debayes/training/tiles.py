"""Tile stores: the square pictures to train on, and how they reach the training device.

A store is any mix of folders and zips of pictures. `store_writer` makes one from photographs.
"""

import csv
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import UInt8
from numpy.typing import NDArray
from torch import Tensor

from debayes.formats import pictures as picture_files
from debayes.system import cores
from debayes.system.errors import DebayesError
from debayes.system.log import log
from debayes.training.recipe import Recipe

T = TypeVar("T")

# The endings of pictures that `picture_files.decode8` reads.
ENDINGS = tuple(ending for ending in picture_files.PICTURES if ending != ".npy")

# The table of a store that names the photograph and the licence of each tile.
CREDITS = "CREDITS.csv"


@dataclass(frozen=True)
class Credits:
    """Where the tiles of a store come from."""

    photographs: int
    """How many photographs."""
    tiles: int | None
    """How many tiles; unknown if the store is larger than one block."""
    licences: dict[str, int]
    """How many photographs are under each licence, the most frequent first."""

    def __str__(self) -> str:
        photographs = f"{self.photographs:,} photographs"
        return photographs if self.tiles is None else f"{self.tiles:,} tiles of {photographs}"


@dataclass(frozen=True)
class _Picture:
    """One picture of a store."""

    file: Path
    """The picture, or the zip that contains it."""
    member: str
    """Its name inside the zip; empty if it is a file."""
    read: Callable[[], bytes]

    @property
    def name(self) -> str:
        return f"{self.file}: {self.member}" if self.member else str(self.file)

    @property
    def archive(self) -> str:
        """The name of the zip; empty if it is a file."""
        return self.file.name if self.member else ""


class Store:
    """The tiles of folders and zips of pictures, loaded in blocks of at most `block_size` tiles."""

    def __init__(
        self, sources: Sequence[Path], *, size: int = 256, block_size: int = 100_000, seed: int = 0
    ) -> None:
        self.size = size
        self.block_size = block_size
        self.is_one_block = False
        """Whether one block holds the whole store; known once a block was loaded."""
        self._seed = seed
        self._tile_counts: dict[int, int] = {}
        self._pictures = [picture for source in sources for picture in _find(source)]
        self._names = ", ".join(map(str, sources))
        if not self._pictures:
            raise DebayesError(
                f"there are no pictures in {self._names}"
                if sources
                else "no folder or zip of pictures was given: name at least one"
            )

    def block(self, number: int) -> UInt8[Tensor, "n size size 3"]:
        """Tiles of pictures drawn without replacement: the same for the same seed and number.

        Pictures larger than a tile are cut into all the whole tiles that they contain; smaller ones are skipped.
        """
        order = np.random.default_rng((self._seed, number)).permutation(len(self._pictures))
        tiles: list[tuple[int, NDArray[Any]]] = []
        with ThreadPoolExecutor(cores.count()) as pool:  # Pillow decodes without holding the interpreter lock
            for chunk in chunks(order.tolist(), 256):
                arrays = pool.map(lambda i: decode(self._pictures[i].name, self._pictures[i].read), chunk)
                for i, array in zip(chunk, arrays, strict=True):
                    tiles += [(i, tile) for tile in cut(array, self.size)]
                if len(tiles) > self.block_size:
                    break
        if not tiles:
            raise DebayesError(
                f"none of the pictures in {self._names} holds a tile of {self.size}x{self.size} pixels: "
                "give larger pictures, or set a smaller data.tile"
            )
        self.is_one_block = len(tiles) <= self.block_size
        if self.is_one_block:
            tiles.sort(key=lambda pair: pair[0])
            self._tile_counts = Counter(i for i, _ in tiles)
        return torch.from_numpy(np.stack([tile for _, tile in tiles[: self.block_size]]))

    def credits(self) -> Credits:
        """The photographs and licences of the tiles, by the CREDITS.csv beside them.

        Those of all pictures if the store is larger than one block; else of the pictures that hold a tile.
        """
        used = [self._pictures[i] for i in (self._tile_counts if self.is_one_block else range(len(self._pictures)))]
        tables = {
            (folder, archive): _licences(folder / CREDITS, archive)
            for folder, archive in {(picture.file.parent, picture.archive) for picture in used}
        }
        photographs: dict[tuple[Path, str], str] = {}
        for picture in used:
            licences = tables[picture.file.parent, picture.archive]
            stem = Path(picture.member or picture.file.name).stem
            prefix = stem.rpartition("-")[0]  # of the tiles of one photograph
            name = prefix if prefix in licences else stem
            photographs[picture.file.parent, name] = licences.get(name, "not stated")
        tiles = sum(self._tile_counts.values()) if self.is_one_block else None
        return Credits(len(photographs), tiles, dict(Counter(photographs.values()).most_common()))


def open_store(recipe: Recipe, root: Path) -> Store:
    """The store that a recipe trains on; `root` is the folder that its paths are relative to."""
    data = recipe.data
    sources = [root / name for name in data.train]
    return Store(sources, size=data.tile, block_size=data.tiles_on_device, seed=recipe.optimizer.seed)


class TileBuffer:
    """The tiles on the training device. A store that is larger than one block is loaded block by block, each while
    training uses the one before."""

    def __init__(self, store: Store, *, steps_per_block: int, step: int, device: torch.device) -> None:
        self._store, self._steps_per_block = store, steps_per_block
        self._number = step // steps_per_block
        self.tiles = store.block(self._number).to(device)
        """The tiles to train on, always in the same memory."""
        self._pool = ThreadPoolExecutor(1)
        self._next = self._load_next()
        log.info("%d tiles on %s%s", len(self.tiles), device, "" if self._next is None else ", of a larger store")

    def advance(self, step: int) -> None:
        """Copy the block of this step, step // steps_per_block, into the memory."""
        if self._next is None or step // self._steps_per_block == self._number:
            return
        self._number += 1
        self.tiles.copy_(self._next.result())
        self._next = self._load_next()

    def _load_next(self) -> Future[Tensor] | None:
        return None if self._store.is_one_block else self._pool.submit(self._store.block, self._number + 1)


def cut(array: NDArray[Any], size: int) -> Iterator[NDArray[Any]]:
    """The whole tiles of a picture (h, w, 3), row by row from its top left corner."""
    height, width = array.shape[:2]
    for top in range(0, height - size + 1, size):
        for left in range(0, width - size + 1, size):
            yield array[top : top + size, left : left + size]


def decode(name: str, read: Callable[[], bytes]) -> NDArray[Any]:
    """The 8-bit array (h, w, 3) of an encoded picture; errors give its name."""
    try:
        return picture_files.decode8(read())
    except DebayesError as error:
        raise DebayesError(f"{name}: {error}") from None
    except (OSError, zipfile.BadZipFile, zlib.error):
        raise DebayesError(
            f"{name} cannot be read as a picture: it is damaged or of another format; remove it"
        ) from None


def chunks(items: Sequence[T], length: int) -> Iterator[Sequence[T]]:
    """Parts of a list: a thread pool would start on all items at once and keep all results."""
    return (items[start : start + length] for start in range(0, len(items), length))


def _find(source: Path) -> Iterator[_Picture]:
    """The pictures of a folder (and of the zips in it) or of a zip."""
    if source.is_dir():
        for path in sorted(source.iterdir()):
            if path.suffix.lower() == ".zip":
                yield from _find(path)
            elif path.suffix.lower() in ENDINGS:
                yield _Picture(path, "", path.read_bytes)
    elif zipfile.is_zipfile(source):
        archive = zipfile.ZipFile(source)
        for name in sorted(archive.namelist()):
            if Path(name).suffix.lower() in ENDINGS:
                yield _Picture(source, name, partial(archive.read, name))
    else:
        what = "is neither" if source.exists() else "does not exist"
        raise FileNotFoundError(f"{source} {what}: a folder or zip of pictures was expected (see --help)")


def _licences(table: Path, archive: str) -> dict[str, str]:
    """The licences that a CREDITS.csv gives the photographs of a zip, or of all, by the prefix of their tiles."""
    if not table.is_file():
        return {}
    with table.open(newline="") as lines:
        return {
            row.get("tile_prefix") or "": row.get("licence") or "not stated"
            for row in csv.DictReader(lines)
            if not archive or row.get("zip") == archive
        }
