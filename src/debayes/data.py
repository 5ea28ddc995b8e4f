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
        arrays = pool.map(image.decode8, (data for source in sources for data in _encoded(source)))
        tiles = [tile for array in arrays for tile in _cut(array, size)]
    if not tiles:
        raise ValueError(f"no tile of {size}x{size} pixels in {', '.join(map(str, sources))}")
    return torch.from_numpy(np.stack(tiles))


def _encoded(source: Path) -> Iterator[bytes]:
    if zipfile.is_zipfile(source):
        with zipfile.ZipFile(source) as archive:
            for name in sorted(archive.namelist()):
                if Path(name).suffix.lower() in image.PICTURES:
                    yield archive.read(name)
    elif source.is_dir():
        for path in image.find(source):
            yield path.read_bytes()
    else:
        raise FileNotFoundError(f"training data {source} is neither a folder nor a zip of pictures")


def _cut(array: np.ndarray[Any, Any], size: int) -> Iterator[np.ndarray[Any, Any]]:
    height, width = array.shape[:2]
    for top in range(0, height - size + 1, size):
        for left in range(0, width - size + 1, size):
            yield array[top : top + size, left : left + size]


def draw_batch(
    tiles: UInt8[Tensor, "n size size 3"],
    *,
    batch: int,
    patch: int,
    low: float,
    high: float,
    varying: float,
    generator: torch.Generator,
) -> Batch:
    """Random patches of the tiles through random symmetries, with a mosaic whose noise is as `noise.level_maps`.

    Everything is drawn and computed on the tiles' device, which must be the generator's.
    """
    n, size = tiles.shape[:2]
    device = tiles.device

    def integers(high: int) -> Tensor:
        return torch.randint(high, (batch, 1), device=device, generator=generator)

    steps = torch.arange(patch, device=device)
    rows = integers(size - patch + 1) + torch.where(integers(2) == 1, steps, patch - 1 - steps)
    columns = integers(size - patch + 1) + torch.where(integers(2) == 1, steps, patch - 1 - steps)
    cut = tiles[integers(n)[:, :, None], rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
    target = torch.where(integers(2)[:, :, None, None] == 1, cut, cut.mT).float().div(255).contiguous()
    levels = noise.level_maps(batch, patch, patch, low=low, high=high, varying=varying, generator=generator)
    mosaic = noise.gaussian(cfa.mosaic(target), levels, generator=generator)
    return Batch(target, mosaic, cfa.interpolate(mosaic))
