"""Restoring one mosaic of any pattern and size, tile by tile, with or without the eight-fold ensemble.

A tile's window of photosites is gathered by index: reflection beyond the border, the alignment to RGGB and the
symmetries of the ensemble are all choices of indices, so nothing is ever padded or flipped as a whole and the
memory needed is that of a tile. A window reaches a receptive radius beyond its tile and starts on the network's
own grid, so the tiles equal the whole picture to float rounding.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor

from debayes import cfa, heap, nig
from debayes.cfa import Symmetry
from debayes.model import Config, Network
from debayes.nig import NormalInverseGamma

# Photosites of reflected border around the picture: what lies beyond is zeros, as at the edges of training
# patches. Rounded up to the network's stride.
BORDER = 16

# The side of a tile, in photosites, if none is asked for: wild-s then needs about 1 GiB.
TILE = 1024


def restore(
    network: Network,
    mosaic: Float[Tensor, "*batch 1 h w"],
    pattern: str = "RGGB",
    *,
    ensemble: bool = False,
    tile: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> NormalInverseGamma:
    """The posterior of every pixel of a mosaic: four tensors (*batch, 3, h, w) on the mosaic's device.

    The mosaic has 0 = black and 1 = white, in the domain the network was trained in; any Bayer pattern, any size
    from 2x2. `tile` bounds the memory, `ensemble` averages over the eight symmetries, `progress` is told the
    share that is done. All four maps take 48 bytes a pixel; `restore_tiles` gives them piece by piece.
    """
    tiles = restore_tiles(network, mosaic, pattern, ensemble=ensemble, tile=tile, progress=progress)
    *batch, _, height, width = mosaic.shape
    whole = NormalInverseGamma(*(mosaic.new_empty(*batch, 3, height, width) for _ in range(4)))
    for rows, columns, part in tiles:
        for name in ("loc", "count", "concentration", "rate"):
            getattr(whole, name)[..., rows, columns] = getattr(part, name)
    return whole


def restore_tiles(
    network: Network,
    mosaic: Float[Tensor, "*batch 1 h w"],
    pattern: str = "RGGB",
    *,
    ensemble: bool = False,
    tile: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> Iterator[tuple[slice, slice, NormalInverseGamma]]:
    """The same as `restore`, tile by tile in reading order: (rows, columns, their posterior)."""
    cfa.check_pattern(pattern)
    if mosaic.ndim < 3 or mosaic.shape[-3] != 1 or not mosaic.is_floating_point():
        raise ValueError(f"a mosaic is a float tensor (1, h, w), not {tuple(mosaic.shape)} of {mosaic.dtype}")
    if not bool(mosaic.isfinite().all()):
        raise ValueError("the mosaic holds values that are not numbers (NaN or infinity)")
    height, width = mosaic.shape[-2:]
    if min(height, width) < 2:
        raise ValueError(f"a mosaic has at least 2x2 photosites, not {height}x{width}")
    if tile is not None and tile < 1:
        raise ValueError(f"the side of a tile must be 1 or more photosites, not {tile}")
    symmetries = cfa.SYMMETRIES if ensemble else (Symmetry(),)
    return _tiles(network, mosaic, pattern, symmetries, TILE if tile is None else tile, progress)


def _tiles(
    network: Network,
    mosaic: Tensor,
    pattern: str,
    symmetries: Sequence[Symmetry],
    tile: int,
    progress: Callable[[float], None] | None,
) -> Iterator[tuple[slice, slice, NormalInverseGamma]]:
    *batch, _, height, width = mosaic.shape
    flat = mosaic.reshape(-1, 1, height, width)
    boxes = [(rows, columns) for rows in _split(height, tile) for columns in _split(width, tile)]
    done = 0
    with heap.keep() as tidy:
        for rows, columns in boxes:
            if columns.start == 0:
                tidy()
            posteriors = []
            for symmetry in symmetries:
                posteriors.append(_restore_tile(network, flat, pattern, rows, columns, symmetry))
                done += 1
                if progress is not None:
                    progress(done / (len(boxes) * len(symmetries)))
            merged = posteriors[0] if len(posteriors) == 1 else nig.merge(posteriors)
            yield rows, columns, merged.map(lambda t: t.view(*batch, *t.shape[1:]))


def _split(size: int, tile: int) -> list[slice]:
    """Equal pieces of at most `tile`: no sliver at the end."""
    pieces = -(-size // tile)
    ends = [size * i // pieces for i in range(pieces + 1)]
    return [slice(start, stop) for start, stop in pairwise(ends)]


@torch.inference_mode()
def _restore_tile(
    network: Network, mosaic: Tensor, pattern: str, rows: slice, columns: slice, symmetry: Symmetry
) -> NormalInverseGamma:
    """The posterior of the pixels rows x columns, computed through a symmetry."""
    height, width = mosaic.shape[-2:]
    extents = [(rows.start, rows.stop, height), (columns.start, columns.stop, width)]
    flips = (symmetry.flip_rows, symmetry.flip_columns)
    offsets = cfa.red_offset(symmetry.pattern(pattern, height, width))
    if symmetry.transpose:
        extents.reverse()
    indices, crops = [], []
    for (start, stop, size), flip, offset in zip(extents, flips, offsets, strict=True):
        if flip:
            start, stop = size - stop, size - start
        low, high = _window(network.config, start, stop, size, offset)
        index = cfa.reflect(torch.arange(low, high), size)
        indices.append(size - 1 - index if flip else index)
        crops.append(slice(start - low, stop - low))
    if symmetry.transpose:
        indices.reverse()
    window = mosaic[..., indices[0][:, None].to(mosaic.device), indices[1].to(mosaic.device)]
    if symmetry.transpose:
        window = window.mT
    posterior: NormalInverseGamma = network(window.to(network.device, torch.float32).contiguous())
    # The tile is cut out of the window before the symmetry is undone: what is turned back is small.
    return posterior.map(lambda t: symmetry.undo(t[..., crops[0], crops[1]]).to(mosaic))


def _window(config: Config, start: int, stop: int, size: int, offset: int) -> tuple[int, int]:
    """First and last + 1 photosite that the pixels [start, stop) of one axis need, on the network's grid.

    The grid starts a border and `offset` photosites before the picture, where the first red one is; a window is
    cut where the picture with its border ends, so that every tile sees the same surroundings as the whole.
    """
    stride, reach = config.stride, config.receptive_radius
    border = -(-BORDER // stride) * stride
    origin = -border - offset
    end = origin + -(-(size + border - origin) // stride) * stride
    low = origin + max(0, start - reach - origin) // stride * stride
    high = origin + -(-(stop + reach - origin) // stride) * stride
    return low, min(high, end)
