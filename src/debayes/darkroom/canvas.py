"""Canvases: where the develop loop writes a picture, and reads it back for its later passes.

A canvas keeps the picture in the precision in which it is needed: float32 in memory, or the numbers of a file.
"""

from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, UInt16
from numpy.typing import NDArray
from torch import Tensor

from debayes.darkroom.domain import DevelopedTile
from debayes.formats import dng, maps, pictures

# The count of black until the last pass: noise and corrections go below black.
BLACK = 2048


@runtime_checkable
class Canvas(Protocol):
    """A picture that is made in passes."""

    def write(self, tile: DevelopedTile) -> None:
        """Keep a tile: its picture, and whatever maps this canvas has."""

    def read(self, rows: slice) -> Float[Tensor, "3 k w"]:
        """Whole rows of the picture as they are now."""

    def rewrite(self, rows: slice, picture: Float[Tensor, "3 k w"], *, final: bool) -> None:
        """Replace whole rows; rows that are `final` are not read again."""


class FloatCanvas:
    """A picture in memory with its maps, 36 bytes a pixel; with a `level`, intervals in 24 bytes more."""

    def __init__(self, height: int, width: int, level: float | None = None) -> None:
        self.level = level
        self.picture, self.noise, self.doubt = (torch.empty(3, height, width) for _ in range(3))
        self.interval = None if level is None else (torch.empty(3, height, width), torch.empty(3, height, width))

    def write(self, tile: DevelopedTile) -> None:
        place = (slice(None), tile.rows, tile.columns)
        self.picture[place], self.noise[place], self.doubt[place] = tile.picture, tile.noise, tile.doubt
        if self.interval is not None and self.level is not None:
            for end, values in zip(self.interval, tile.interval(self.level), strict=True):
                end[place] = values

    def read(self, rows: slice) -> Float[Tensor, "3 k w"]:
        return self.picture[:, rows]

    def rewrite(self, rows: slice, picture: Float[Tensor, "3 k w"], *, final: bool) -> None:
        self.picture[:, rows] = picture


class CountCanvas:
    """Linear 16-bit counts (h, w, 3), as a DNG holds them; maps, if any, take 6 bytes a pixel each."""

    def __init__(self, height: int, width: int, *, with_maps: bool = False) -> None:
        self.counts = torch.empty(height, width, 3, dtype=torch.uint16)
        self.maps = _empty_maps(height, width, with_maps)

    def write(self, tile: DevelopedTile) -> None:
        self.counts[tile.rows, tile.columns] = counts_of(tile.picture, BLACK)
        _keep_maps(self.maps, tile)

    def read(self, rows: slice) -> Float[Tensor, "3 k w"]:
        return linear_of(self.counts[rows], BLACK)

    def rewrite(self, rows: slice, picture: Float[Tensor, "3 k w"], *, final: bool) -> None:
        self.counts[rows] = counts_of(picture, 0 if final else BLACK)


class PixelCanvas:
    """The numbers (h, w, 3) of a picture file with 8 or 16 bits a sample, or 32 for float."""

    def __init__(self, height: int, width: int, bits: int, *, with_maps: bool = False) -> None:
        self.bits = bits
        kind = {8: torch.uint8, 16: torch.uint16, 32: torch.float32}[bits]
        self.pixels = torch.empty(height, width, 3, dtype=kind)
        self.maps = _empty_maps(height, width, with_maps)
        self.noise_sum = 0.0
        """The sum of the noise map."""

    def write(self, tile: DevelopedTile) -> None:
        self.pixels[tile.rows, tile.columns] = self._quantise(tile.picture)
        self.noise_sum += float(tile.noise.sum())
        _keep_maps(self.maps, tile)

    def read(self, rows: slice) -> Float[Tensor, "3 k w"]:
        white = 1 if self.bits == 32 else 2**self.bits - 1
        return self.pixels[rows].float().div_(white).permute(2, 0, 1)

    def rewrite(self, rows: slice, picture: Float[Tensor, "3 k w"], *, final: bool) -> None:
        self.pixels[rows] = self._quantise(picture)

    def _quantise(self, picture: Tensor) -> Tensor:
        return pictures.quantise(picture, self.bits).permute(1, 2, 0)


def counts_of(picture: Float[Tensor, "3 h w"], black: int) -> UInt16[Tensor, "h w 3"]:
    """The 16-bit counts of linear colours, in the order in which a file has them."""
    counts = picture * (dng.WHITE - black)
    counts = counts.add_(black + 0.5).clamp_(0, dng.WHITE)  # the conversion truncates
    return counts.permute(1, 2, 0).to(torch.uint16)


def linear_of(counts: UInt16[Tensor, "h w 3"], black: int) -> Float[Tensor, "3 h w"]:
    """The linear colours of counts."""
    return counts.float().sub_(black).div_(dng.WHITE - black).permute(2, 0, 1)


def _empty_maps(height: int, width: int, with_maps: bool) -> dict[str, NDArray[Any]]:
    return {kind: np.empty((height, width, 3), np.float16) for kind in (maps.KINDS if with_maps else ())}


def _keep_maps(kept: dict[str, NDArray[Any]], tile: DevelopedTile) -> None:
    for kind, values in kept.items():
        values[tile.rows, tile.columns] = getattr(tile, kind).permute(1, 2, 0).numpy()
