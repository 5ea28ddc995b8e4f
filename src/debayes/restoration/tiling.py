"""Restoring one mosaic of any pattern and size, tile by tile, with or without the eight-fold ensemble.

`windows` says what the network sees for each tile, so that tiles equal the whole picture. The mosaic goes to the
network's device once, and nothing in the loop waits for it.
"""

from collections.abc import Callable, Iterator, Sequence
from math import inf
from time import monotonic

import torch
from jaxtyping import Float
from torch import Tensor

from debayes.imaging import cfa
from debayes.imaging.cfa import Symmetry
from debayes.network.config import BORDER, Config
from debayes.network.heads import MAPS
from debayes.posterior import nig
from debayes.posterior.nig import NormalInverseGamma
from debayes.restoration import windows
from debayes.restoration.runner import Runner
from debayes.restoration.windows import Window

# The side of a tile on a CPU, in photosites, if none is asked for: wild-s then needs about 1 GiB. What a tile looks
# at beyond its border costs a sixth of the time; at 1024 it would be a quarter.
TILE = 1536

# Bytes that no picture needs.
ENOUGH = 2**60


def restore(
    network: Runner,
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
    share that is done. All four maps take 48 bytes a pixel; `restore_tiles` gives them piece by piece, and
    `restore_image` the image alone.
    """
    _check_heads(network)
    tiles = _start(network, mosaic, pattern, ensemble, tile, progress)
    return NormalInverseGamma(*_assemble(tiles, mosaic, network.device, MAPS))


def restore_image(
    network: Runner,
    mosaic: Float[Tensor, "*batch 1 h w"],
    pattern: str = "RGGB",
    *,
    ensemble: bool = False,
    tile: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> Float[Tensor, "*batch 3 h w"]:
    """The mean of `restore` alone: a quarter of its memory."""
    return _assemble(_start(network, mosaic, pattern, ensemble, tile, progress), mosaic, network.device, ("loc",))[
        0
    ]


def restore_tiles(
    network: Runner,
    mosaic: Float[Tensor, "*batch 1 h w"],
    pattern: str = "RGGB",
    *,
    ensemble: bool = False,
    tile: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> Iterator[tuple[slice, slice, NormalInverseGamma]]:
    """The same as `restore`, piece by piece: (rows, columns, their posterior).

    Pieces are tiles in reading order, or bands of them from the top, if the network gives such.
    """
    _check_heads(network)
    tiles = _start(network, mosaic, pattern, ensemble, tile, progress)
    return ((rows, columns, part.map(lambda t: t.to(mosaic))) for rows, columns, part in tiles)


def _check_heads(network: Runner) -> None:
    if not network.has_heads:
        raise ValueError(
            "this engine was prepared for the image alone: use restore_image, or prepare it without image"
        )


def _start(
    network: Runner,
    mosaic: Tensor,
    pattern: str,
    ensemble: bool,
    tile: int | None,
    progress: Callable[[float], None] | None,
) -> Iterator[tuple[slice, slice, NormalInverseGamma]]:
    """The tiles, on the network's device, of what was asked for, or an error at once."""
    cfa.check_pattern(pattern)
    if mosaic.ndim < 3 or mosaic.shape[-3] != 1 or not mosaic.is_floating_point():
        raise ValueError(f"a mosaic is a float tensor (1, h, w), not {tuple(mosaic.shape)} of {mosaic.dtype}")
    height, width = mosaic.shape[-2:]
    if min(height, width) < 2:
        raise ValueError(f"a mosaic has at least 2x2 photosites, not {height}x{width}")
    if tile is not None and tile < 1:
        raise ValueError(f"the side of a tile must be 1 or more photosites, not {tile}")
    here, bring, confirm = _bring(mosaic, network.device)
    symmetries = cfa.SYMMETRIES if ensemble else (Symmetry(),)
    sides = default_tile(network, height, width, not mosaic.is_cuda) if tile is None else (tile, tile)
    return _tiles(network, here, bring, confirm, pattern, symmetries, sides, progress)


def _bring(
    mosaic: Tensor, device: torch.device
) -> tuple[Tensor, Callable[[Sequence[Window]], None], Callable[[], None]]:
    """The mosaic on the network's device, what sees to it that the rows of some windows are there, and what raises
    if they hold values that are no numbers.

    To a GPU they come through pinned memory when they are asked for, so that the first tile need not wait for all.
    """
    if device.type != "cuda" or mosaic.is_cuda:
        here = mosaic.to(device, torch.float32)
        confirm = _check_numbers(here)
        if not here.is_cuda:
            confirm()
        return here, lambda _: None, confirm
    here = torch.empty(mosaic.shape, device=device)
    pinned = torch.empty(mosaic.shape, pin_memory=True)
    brought = 0

    def bring(seen: Sequence[Window]) -> None:
        nonlocal brought
        row = max(int(window.index().max()) for window in seen) + 1
        if row > brought:
            part = (..., slice(brought, row), slice(None))
            pinned[part] = mosaic[part]
            _check_numbers(pinned[part])()
            here[part].copy_(pinned[part], non_blocking=True)
            brought = row

    return here, bring, lambda: None


def _check_numbers(mosaic: Tensor) -> Callable[[], None]:
    """What raises if some values are no numbers: if their sum is none, they are looked at one by one.

    A GPU sums them before what it is asked to do next, and that answer is waited for, not what comes after it.
    """
    total = mosaic.sum()
    known = None
    if mosaic.is_cuda:
        total = torch.empty((), pin_memory=True).copy_(total, non_blocking=True)
        known = torch.cuda.Event()  # type: ignore[no-untyped-call]
        known.record()

    def confirm() -> None:
        if known is not None:
            known.synchronize()
        if not bool(total.isfinite()) and not bool(mosaic.isfinite().all()):
            raise ValueError("the mosaic holds values that are not numbers (NaN or infinity)")

    return confirm


def measure(network: Runner, mosaic: Float[Tensor, "1 h w"], pattern: str = "RGGB", *, times: int = 2) -> float:
    """Seconds that restoring a mosaic takes, its image alone: the best of some tries after one to warm up."""
    best = inf
    for warm in range(times + 1):
        start = monotonic()
        restore_image(network, mosaic, pattern)
        if network.device.type == "cuda":
            torch.cuda.synchronize(network.device)
        if warm:
            best = min(best, monotonic() - start)
    return best


def default_tile(network: Runner, height: int, width: int, moved: bool) -> tuple[int, int]:
    """Rows and columns of a tile of a picture, if none is asked for: on a GPU as many as half of its memory holds.

    Of a picture that is `moved` to the GPU and back, there are two at least, so that it works while data travel.
    """
    if network.device.type != "cuda":
        return TILE, TILE
    free, _ = torch.cuda.mem_get_info(network.device)
    found = band(network.config, height, width, moved, free)
    if found == band(network.config, height, width, moved, ENOUGH):
        return found
    held = torch.cuda.memory_stats_as_nested_dict(
        network.device
    )  # what PyTorch keeps, and does not use now, is free
    unused = held["reserved_bytes"]["all"]["current"] - held["allocated_bytes"]["all"]["current"]
    return band(network.config, height, width, moved, free + unused)


def band(config: Config, height: int, width: int, moved: bool, free: int) -> tuple[int, int]:
    """Rows and columns of a tile for a GPU with so many bytes free: whole rows, or a square if those are long."""
    # About five features of the widest kind, at full resolution in half precision, are in memory at once; and no
    # tensor has more elements than 32 bits count.
    channels, reach = max(config.tail, config.widths[0] // 2), config.receptive_radius
    pixels = int(min(2**31 / channels, 0.5 * free / (10 * channels + 100)))
    rows = pixels // (width + 2 * BORDER + 2 * config.stride) - 2 * (reach + config.stride)
    if rows < 8 * reach:
        side = max(int(pixels**0.5) - 2 * (reach + config.stride), 256)
        return side, side
    return (min(rows, -(-height // 2)) if moved and height > 16 * reach else rows), width


def _assemble(
    tiles: Iterator[tuple[slice, slice, NormalInverseGamma]],
    mosaic: Tensor,
    device: torch.device,
    names: Sequence[str],
) -> list[Tensor]:
    """The named maps of all tiles as whole pictures, on the mosaic's device and of its type.

    From a GPU they come through pinned memory, a band of tiles while the next one is computed.
    """
    *batch, _, height, width = mosaic.shape
    shape = (*batch, 3, height, width)
    if device.type != "cuda" or mosaic.is_cuda:
        whole: list[Tensor] = []
        for rows, columns, part in tiles:
            if part.loc.shape == shape:  # one tile is all
                whole = [getattr(part, name).to(mosaic).contiguous() for name in names]
                continue
            whole = whole or [mosaic.new_empty(shape) for _ in names]
            for name, target in zip(names, whole, strict=True):
                target[..., rows, columns] = getattr(part, name)
        return whole
    there = [torch.empty(shape, device=device, dtype=mosaic.dtype) for _ in names]
    whole = [torch.empty(shape, dtype=mosaic.dtype, pin_memory=True) for _ in names]
    copies = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    for rows, columns, part in tiles:
        for name, target in zip(names, there, strict=True):
            target[..., rows, columns] = getattr(part, name)
        if columns.stop == width:  # a band is whole
            copies.wait_stream(torch.cuda.current_stream(device))
            with torch.cuda.stream(copies):
                for source, target in zip(there, whole, strict=True):
                    for plane, image in zip(
                        source.view(-1, height, width), target.view(-1, height, width), strict=True
                    ):
                        image[rows].copy_(plane[rows], non_blocking=True)
    copies.synchronize()
    return whole


def _tiles(
    network: Runner,
    mosaic: Tensor,
    bring: Callable[[Sequence[Window]], None],
    confirm: Callable[[], None],
    pattern: str,
    symmetries: Sequence[Symmetry],
    sides: tuple[int, int],
    progress: Callable[[float], None] | None,
) -> Iterator[tuple[slice, slice, NormalInverseGamma]]:
    *batch, _, height, width = mosaic.shape
    flat = mosaic.reshape(-1, 1, height, width)
    pieces = (windows.split(height, sides[0]), windows.split(width, sides[1]))
    turned = [(*windows.turn(network.config, s, pattern, pieces, (height, width)), s) for s in symmetries]
    done, total = 0, len(pieces[0]) * len(pieces[1]) * len(symmetries)

    def told() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done / total)

    for i, rows in enumerate(pieces[0]):
        bring([row_windows[i] for row_windows, _, _ in turned])
        for j, columns in enumerate(pieces[1]):
            seen = [(row_windows[i], column_windows[j], s) for row_windows, column_windows, s in turned]
            top = rows.start
            for band in _inferred(_restore_tile(network, flat, seen, told)):
                confirm()
                end = top + band.loc.shape[-2]
                yield slice(top, end), columns, band.map(lambda t: t.view(*batch, *t.shape[1:]))
                top = end


def _inferred(bands: Iterator[NormalInverseGamma]) -> Iterator[NormalInverseGamma]:
    """The same, made without gradients; what is done with them in between may have some."""
    while True:
        with torch.inference_mode():
            band = next(bands, None)
        if band is None:
            return
        yield band


def _restore_tile(
    network: Runner, mosaic: Tensor, seen: Sequence[tuple[Window, Window, Symmetry]], told: Callable[[], None]
) -> Iterator[NormalInverseGamma]:
    """The posterior of the pixels of a tile, merged over what the symmetries see of it; of one alone, which leaves
    everything in its place, in the network's bands."""
    if len(seen) == 1:
        yield from network.bands(*windows.show(mosaic, *seen[0]))
        told()
        return
    posteriors = []
    for rows, columns, symmetry in seen:
        posteriors.append(network.inside(*windows.show(mosaic, rows, columns, symmetry)).map(symmetry.undo))
        told()
    yield nig.merge(posteriors)
