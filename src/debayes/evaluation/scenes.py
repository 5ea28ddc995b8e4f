"""Test pictures that need no download: a drawn cartoon, and free photographs that come with scikit-image."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from debayes.system.errors import DebayesError

# Photographs inside the scikit-image package. The astronaut and the rocket are in the public domain, the others
# CC0.
PHOTOGRAPHS = ("astronaut", "chelsea", "coffee", "rocket")

# The cartoon is drawn with this many samples per pixel along each axis, then averaged, for antialiased edges.
_SAMPLES = 4


def photograph(name: str) -> Float[Tensor, "3 h w"]:
    """One of `PHOTOGRAPHS`, 0 = black and 1 = white."""
    if name not in PHOTOGRAPHS:
        raise DebayesError(f"the photographs of scikit-image are {', '.join(PHOTOGRAPHS)}, not {name!r}")
    try:
        from skimage import data
    except ModuleNotFoundError:
        raise DebayesError('the test photographs need scikit-image: pip install "debayes[demo]"') from None
    load: Any = getattr(data, name)  # this part of scikit-image is not annotated
    return torch.from_numpy(np.asarray(load())).permute(2, 0, 1).float() / 255


def cartoon(size: int) -> Float[Tensor, "3 {size} {size}"]:
    """A face of uniform areas with sharp outlines, like the cartoons of the paper's figures."""
    grid = (torch.arange(size * _SAMPLES) + 0.5) / (size * _SAMPLES)
    y, x = grid[:, None], grid[None, :]
    picture = torch.ones(3, size * _SAMPLES, size * _SAMPLES) * _color(0.62, 0.83, 0.90)

    def paint(where: Tensor, red: float, green: float, blue: float) -> None:
        picture.copy_(torch.where(where, _color(red, green, blue), picture))

    def disc(cy: float, cx: float, ry: float, rx: float) -> Tensor:
        return ((y - cy) / ry).square() + ((x - cx) / rx).square() < 1

    def outlined(cy: float, cx: float, ry: float, rx: float, red: float, green: float, blue: float) -> None:
        paint(disc(cy, cx, ry + 0.012, rx + 0.012), 0.13, 0.10, 0.12)
        paint(disc(cy, cx, ry, rx), red, green, blue)

    outlined(1.12, 0.5, 0.30, 0.40, 0.76, 0.20, 0.22)  # jumper
    stripes = disc(1.12, 0.5, 0.30, 0.40) & ((y * 25).floor() % 2 == 0)
    paint(stripes, 0.95, 0.90, 0.80)
    outlined(0.36, 0.5, 0.30, 0.34, 0.36, 0.20, 0.12)  # hair
    outlined(0.52, 0.19, 0.07, 0.05, 0.93, 0.74, 0.60)  # ears
    outlined(0.52, 0.81, 0.07, 0.05, 0.93, 0.74, 0.60)
    outlined(0.52, 0.5, 0.31, 0.28, 0.97, 0.80, 0.66)  # face
    paint(disc(0.20, 0.5, 0.13, 0.27) & disc(0.36, 0.5, 0.30, 0.34), 0.36, 0.20, 0.12)  # fringe
    for side in (0.39, 0.61):
        outlined(0.48, side, 0.055, 0.065, 1.0, 1.0, 1.0)
        paint(disc(0.485, side, 0.035, 0.032), 0.15, 0.42, 0.62)
        paint(disc(0.485, side, 0.018, 0.016), 0.05, 0.05, 0.06)
        paint(disc(0.475, side - 0.01, 0.008, 0.008), 1.0, 1.0, 1.0)
        brow = disc(0.40, side, 0.03, 0.075) & ~disc(0.418, side, 0.03, 0.085)
        paint(brow, 0.25, 0.14, 0.08)
        paint(disc(0.62, 0.5 + 1.6 * (side - 0.5), 0.035, 0.045), 0.96, 0.62, 0.56)  # cheeks
    paint(disc(0.58, 0.5, 0.03, 0.022), 0.90, 0.66, 0.52)  # nose
    outlined(0.685, 0.5, 0.05, 0.11, 0.72, 0.13, 0.18)  # mouth
    paint(disc(0.685, 0.5, 0.05, 0.11) & (y < 0.667), 1.0, 1.0, 1.0)
    return picture.view(3, size, _SAMPLES, size, _SAMPLES).mean((2, 4))


def _color(red: float, green: float, blue: float) -> Tensor:
    return torch.tensor([red, green, blue])[:, None, None]


def wallpaper(height: int, width: int) -> Float[Tensor, "3 {height} {width}"]:
    """A free photograph tiled to any size: large pictures for measurements."""
    tile = photograph("chelsea")
    repeats = (1, -(-height // tile.shape[1]), -(-width // tile.shape[2]))
    return tile.repeat(repeats)[:, :height, :width]
