"""Training data: tiles held as uint8 on the training device, and the batches made of them there.

A batch depends on (seed, step) and nothing else: which tiles, where they are cut, how they are turned, what noise
they get. So a run can stop anywhere and go on.
"""

import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from numpy.typing import NDArray
from torch import Tensor

from debayes import cfa, image, noise


@dataclass(frozen=True)
class Batch:
    """What one training step sees; 0 = black and 1 = white."""

    target: Float[Tensor, "b 3 h w"]
    """The ground truth y."""
    mosaic: Float[Tensor, "b 1 h w"]
    """The noisy mosaic x, RGGB."""
    observed: Float[Tensor, "b 3 h w"]
    """Its bilinear interpolation x-tilde."""


def load_tiles(sources: list[Path], *, size: int = 256) -> UInt8[Tensor, "n size size 3"]:
    """Every size x size tile in zips and folders of pictures, on the CPU; larger pictures are cut into several."""
    with ThreadPoolExecutor() as pool:  # Pillow decodes without holding the interpreter
        arrays = pool.map(_decode, (named for source in sources for named in _encoded(source)))
        tiles = [tile for array in arrays for tile in _cut(array, size)]
    if not tiles:
        raise ValueError(f"no tile of {size}x{size} pixels in {', '.join(map(str, sources))}")
    return torch.from_numpy(np.stack(tiles))


def _decode(named: tuple[str, bytes]) -> NDArray[Any]:
    name, data = named
    try:
        return image.decode8(data)
    except OSError as error:
        raise ValueError(f"the training picture {name} cannot be read: {type(error).__name__}") from None


def _encoded(source: Path) -> Iterator[tuple[str, bytes]]:
    if zipfile.is_zipfile(source):
        with zipfile.ZipFile(source) as archive:
            for name in sorted(archive.namelist()):
                if Path(name).suffix.lower() in image.PICTURES:
                    yield f"{source}: {name}", archive.read(name)
    elif source.is_dir():
        for path in image.find(source):
            yield str(path), path.read_bytes()
    else:
        raise FileNotFoundError(f"training data {source} is neither a folder nor a zip of pictures")


def _cut(array: NDArray[Any], size: int) -> Iterator[NDArray[Any]]:
    height, width = array.shape[:2]
    for top in range(0, height - size + 1, size):
        for left in range(0, width - size + 1, size):
            yield array[top : top + size, left : left + size]


# Random numbers that a patch is made of, beside its noise: tile, place (2), symmetry (3), noise levels.
PATCH_DRAWS = 6 + noise.MAP_DRAWS


def draw(
    batch: int, patch: int, *, generator: torch.Generator
) -> tuple[Float[Tensor, "{batch} n"], Float[Tensor, "{batch} 1 {patch} {patch}"]]:
    """All the randomness of a batch: uniform numbers for its patches, normal ones for its photosites."""
    device = generator.device
    uniform = torch.rand(batch, PATCH_DRAWS, device=device, generator=generator)
    return uniform, torch.randn(batch, 1, patch, patch, device=device, generator=generator)


def make_batch(
    tiles: UInt8[Tensor, "n size size 3"],
    uniform: Float[Tensor, "b m"],
    normal: Float[Tensor, "b 1 patch patch"],
    *,
    low: float,
    high: float,
    varying: float,
) -> Batch:
    """Patches of the tiles through one of the eight symmetries, with a mosaic noisy as `noise.level_maps`.

    A pure function of what `draw` gave, so that a training step can be compiled around it.
    """
    n, size = tiles.shape[:2]
    patch = normal.shape[-1]
    steps = torch.arange(patch, device=tiles.device)

    def integer(i: int, end: int) -> Tensor:
        return (uniform[:, i : i + 1] * end).long().clamp_max(end - 1)

    rows = integer(1, size - patch + 1) + torch.where(uniform[:, 3:4] < 0.5, steps, patch - 1 - steps)
    columns = integer(2, size - patch + 1) + torch.where(uniform[:, 4:5] < 0.5, steps, patch - 1 - steps)
    cut = tiles[integer(0, n)[:, :, None], rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
    turned = torch.where(uniform[:, 5, None, None, None] < 0.5, cut, cut.mT)
    target = turned.float() / 255
    levels = noise.level_maps(uniform[:, 6:], patch, patch, low=low, high=high, varying=varying)
    mosaic = cfa.mosaic(target) + levels * normal
    return Batch(target, mosaic, cfa.interpolate(mosaic))
