"""Tile stores: square pictures to train on, how they are made of photographs and how they reach the device.

A store is any mix of folders and zips of pictures. `make` writes one: a folder of zips of tiles with CREDITS.csv,
which says what each came from.
"""

import csv
import hashlib
import shutil
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float, UInt8
from numpy.typing import NDArray
from torch import Tensor

from debayes.formats import pictures as picture_files
from debayes.imaging import cfa
from debayes.system import cores

T = TypeVar("T")

CODED = tuple(ending for ending in picture_files.PICTURES if ending != ".npy")
CREDITS = "CREDITS.csv"
COLUMNS = ("zip", "tile_prefix", "source", "path", "downscale", "licence")


class Store:
    """The tiles of folders and zips of pictures: all at once, or, if they are many, a block after the other."""

    def __init__(self, sources: Sequence[Path], *, size: int = 256, hold: int = 100_000, seed: int = 0) -> None:
        self.size = size
        self.hold = hold
        self.whole = False
        """Whether a block is the whole store; known after the first."""
        self._seed = seed
        self._pictures = [picture for source in sources for picture in _find(source)]
        self._names = ", ".join(map(str, sources))
        if not self._pictures:
            raise ValueError(f"there are no pictures in {self._names or 'nothing: no folder or zip was named'}")

    def block(self, number: int) -> UInt8[Tensor, "n size size 3"]:
        """Tiles of pictures drawn without replacement, at most `hold`: the same for the same seed and number.

        Pictures larger than a tile are cut into all the whole tiles they hold, smaller ones have none.
        """
        order = np.random.default_rng((self._seed, number)).permutation(len(self._pictures))
        found: list[tuple[int, NDArray[Any]]] = []
        with ThreadPoolExecutor(cores.count()) as pool:  # Pillow decodes without holding the interpreter
            for some in _batches(order.tolist(), 256):
                arrays = pool.map(lambda i: _decode(*self._pictures[i]), some)
                found += [
                    (i, tile) for i, array in zip(some, arrays, strict=True) for tile in cut(array, self.size)
                ]
                if len(found) > self.hold:
                    break
        if not found:
            raise ValueError(
                f"none of the pictures in {self._names} holds a tile of {self.size}x{self.size} pixels"
            )
        self.whole = len(found) <= self.hold
        if self.whole:
            found.sort(key=lambda pair: pair[0])
        return torch.from_numpy(np.stack([tile for _, tile in found[: self.hold]]))


class Shelf:
    """The tiles on the training device. A store that it cannot hold is rotated through it: block by block, each
    decoded while the one before is in use."""

    def __init__(self, store: Store, *, stay: int, step: int, device: torch.device) -> None:
        self._store, self._stay = store, stay
        self._number = step // stay
        self.tiles = store.block(self._number).to(device)
        """What is trained on now: always the same memory."""
        self._pool = ThreadPoolExecutor(1)
        self._next = self._prepare()

    def turn(self, step: int) -> None:
        """Have on the shelf what a step trains on, whose block is step // stay."""
        if self._next is None or step // self._stay == self._number:
            return
        self._number += 1
        self.tiles.copy_(self._next.result())
        self._next = self._prepare()

    def _prepare(self) -> Future[Tensor] | None:
        return None if self._store.whole else self._pool.submit(self._store.block, self._number + 1)


def licences(sources: Sequence[Path]) -> dict[str, int]:
    """How many photographs of the sources are under which licence, by the CREDITS.csv beside or inside them."""
    found: dict[tuple[Path, str], str] = {}
    for source in sources:
        file = source / CREDITS if source.is_dir() else source.parent / CREDITS
        if file.is_file():
            with file.open(newline="") as lines:
                for row in csv.DictReader(lines):
                    if source.is_dir() or row.get("zip") == source.name:
                        found[file, row.get("tile_prefix") or ""] = row.get("licence") or "not stated"
    return dict(Counter(found.values()).most_common())


def make(
    pictures: Sequence[Path],
    folder: Path,
    *,
    size: int = 256,
    downscale: float = 2.0,
    count: int = 8,
    hard: float = 0.75,
    quality: int = 95,
    licence: str = "",
    per_zip: int = 2000,
    progress: Callable[[float], None] | None = None,
) -> dict[str, int]:
    """Write a store: of each picture, area-downscaled, `count` tiles, a share `hard` of them the hardest.

    Downscaling by 2 or more hides how the photograph itself was demosaicked and denoised. Hard is what bilinear
    interpolation of the noise-free mosaic gets wrong. The other tiles are drawn by chance, the same every time;
    `count` 0 keeps all. `quality` is JPEG's (what comes out of it is the ground truth), 100 writes PNG. Returns how
    many pictures, tiles and zips there are; pictures that are too small for a tile are counted as "small".
    """
    if folder.exists():
        raise FileExistsError(f"{folder} exists already: give the name of a new folder")
    if not folder.parent.is_dir():
        raise FileNotFoundError(f"the folder {folder.parent} does not exist: create it, or write somewhere else")
    missing = next((path for path in pictures if not path.is_file()), None)
    if missing is not None:
        raise FileNotFoundError(f"there is no file {missing}")
    if not (inf > downscale >= 1 and 0 <= hard <= 1 and count >= 0 and 1 <= quality <= 100 and size >= 2):
        raise ValueError(
            "a store needs downscale >= 1, hard from 0 to 1, count >= 0, quality 1 to 100 and size >= 2; "
            f"not {downscale:g}, {hard:g}, {count}, {quality} and {size}"
        )

    def pick(path: Path) -> tuple[str, list[bytes]]:
        data = path.read_bytes()
        name = hashlib.sha256(data).hexdigest()[:10]
        tiles = list(cut(picture_files.shrink8(_decode(str(path), lambda: data), downscale), size))
        draw = np.random.default_rng(int(name, 16))
        if count and len(tiles) > count:
            order = torch.argsort(hardness(torch.from_numpy(np.stack(tiles))), descending=True).tolist()
            hardest = order[: round(hard * count)]
            others = draw.permutation(order[len(hardest) :])[: count - len(hardest)].tolist()
            tiles = [tiles[i] for i in sorted(hardest + others)]
        jpegs = partial(picture_files.encode_jpeg8, quality=quality)
        return name, list(map(picture_files.encode_png8 if quality == 100 else jpegs, tiles))

    paths = list(dict.fromkeys(path.resolve() for path in pictures))
    names: set[str] = set()
    totals = {"pictures": 0, "small": 0, "tiles": 0, "zips": 0}
    temporary = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir()
        archive: zipfile.ZipFile | None = None
        with (temporary / CREDITS).open("w", newline="") as file, ThreadPoolExecutor(cores.count()) as pool:
            table = csv.writer(file)
            table.writerow(COLUMNS)
            for some in _batches(paths, 16):
                for path, (name, encoded) in zip(some, pool.map(pick, some), strict=True):
                    if name in names:
                        continue  # the same picture under another name
                    names.add(name)
                    totals["pictures" if encoded else "small"] += 1
                    for i, data in enumerate(encoded):
                        begins = totals["tiles"] % per_zip == 0
                        if begins:
                            if archive is not None:
                                archive.close()
                            archive = zipfile.ZipFile(temporary / f"tiles-{totals['zips']:03}.zip", "w")
                            totals["zips"] += 1
                        assert archive is not None
                        if begins or i == 0:
                            place = Path(archive.filename or "").name
                            table.writerow((place, name, path.parent.name, path.name, downscale, licence))
                        archive.writestr(f"{name}-{i}.{'png' if quality == 100 else 'jpg'}", data)
                        totals["tiles"] += 1
                if progress is not None:
                    progress((totals["pictures"] + totals["small"]) / len(paths))
        if archive is None:
            raise ValueError(
                f"none of the pictures, downscaled by {downscale:g}, holds a tile of {size}x{size} pixels"
            )
        archive.close()
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return totals


def hardness(tiles: UInt8[Tensor, "n h w 3"]) -> Float[Tensor, " n"]:
    """The mean squared error of bilinear interpolation of each tile's own noise-free mosaic."""
    target = tiles.permute(0, 3, 1, 2).float() / 255
    return (cfa.interpolate(cfa.mosaic(target)) - target).square().mean((1, 2, 3))


def cut(array: NDArray[Any], size: int) -> Iterator[NDArray[Any]]:
    """The whole tiles of a picture (h, w, 3), row by row from its top left corner."""
    height, width = array.shape[:2]
    for top in range(0, height - size + 1, size):
        for left in range(0, width - size + 1, size):
            yield array[top : top + size, left : left + size]


def _batches(items: Sequence[T], length: int) -> Iterator[Sequence[T]]:
    """A thread pool takes all the work it is given at once; so it is given some at a time."""
    return (items[start : start + length] for start in range(0, len(items), length))


def _find(source: Path) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """Names of the pictures of a folder (and of the zips in it) or a zip, and what reads each."""
    if source.is_dir():
        for path in sorted(source.iterdir()):
            if path.suffix.lower() == ".zip":
                yield from _find(path)
            elif path.suffix.lower() in CODED:
                yield str(path), path.read_bytes
    elif zipfile.is_zipfile(source):
        archive = zipfile.ZipFile(source)
        for name in sorted(archive.namelist()):
            if Path(name).suffix.lower() in CODED:
                yield f"{source}: {name}", partial(archive.read, name)
    else:
        what = "is neither" if source.exists() else "is not there"
        raise FileNotFoundError(f"{source} {what}: a folder or zip of pictures was expected (see --help)")


def _decode(name: str, read: Callable[[], bytes]) -> NDArray[Any]:
    try:
        return picture_files.decode8(read())
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    except (OSError, zipfile.BadZipFile, zlib.error):
        raise ValueError(
            f"{name} cannot be read as a picture: it is damaged or something else; remove it"
        ) from None
