"""Restoring one mosaic of any pattern and size, tile by tile, with or without the eight-fold ensemble.

`windows` says which photosites the network sees for each tile, so that tiles equal the whole picture. The mosaic is
copied to the network's device once, and nothing in the loop waits for the device. Mosaics are tensors that
`arrays.to_mosaic` has checked, in the domain that the network was trained in.
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
from debayes.posterior.nig import MeanOnly, NormalInverseGamma, Posterior
from debayes.restoration import arrays, windows
from debayes.restoration.runner import Runner
from debayes.restoration.windows import Window
from debayes.system.errors import DebayesError
from debayes.system.log import log

# The default side of a tile on a CPU, in photosites: wild-s then needs about 1 GiB. The overlap of windows costs a
# sixth of the time; at 1024 it would be a quarter.
TILE = 1536

# More bytes than any picture needs.
UNLIMITED = 2**60


def restore(
    network: Runner,
    mosaic: Float[Tensor, "*batch 1 h w"],
    pattern: str = "RGGB",
    *,
    ensemble: bool = False,
    tile: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> NormalInverseGamma:
    """The posterior of every pixel of a mosaic; see `checked.restore`."""
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
    """Only the mean of `restore`."""
    tiles = _start(network, mosaic, pattern, ensemble, tile, progress)
    return _assemble(tiles, mosaic, network.device, ("loc",))[0]


def restore_tiles(
    network: Runner,
    mosaic: Float[Tensor, "*batch 1 h w"],
    pattern: str = "RGGB",
    *,
    ensemble: bool = False,
    tile: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> Iterator[tuple[slice, slice, NormalInverseGamma]]:
    """The same as `restore`, piece by piece: (rows, columns, their posterior)."""
    _check_heads(network)
    tiles = _start(network, mosaic, pattern, ensemble, tile, progress)
    return (
        (rows, columns, part.map(lambda t: t.to(mosaic)))
        for rows, columns, part in tiles
        if isinstance(part, NormalInverseGamma)  # each is: the network was checked
    )


def _check_heads(network: Runner) -> None:
    if not network.has_posterior:
        raise DebayesError(
            "this engine was prepared with image=True, without a posterior: use restore_image, or prepare another"
        )


def _start(
    network: Runner,
    mosaic: Tensor,
    pattern: str,
    ensemble: bool,
    tile: int | None,
    progress: Callable[[float], None] | None,
) -> Iterator[tuple[slice, slice, Posterior]]:
    """The tiles, on the network's device; arguments are checked before the first is asked for."""
    cfa.check_pattern(pattern)
    height, width = mosaic.shape[-2:]
    if tile is not None and tile < 1:
        raise DebayesError(f"the side of a tile must be 1 or more photosites, not {tile}")
    here, upload, check = _upload(mosaic, network.device)
    symmetries = cfa.SYMMETRIES if ensemble else (Symmetry(),)
    sides = default_tile(network, height, width, not mosaic.is_cuda) if tile is None else (tile, tile)
    log.debug("restoring %dx%d photosites in tiles of %dx%d", width, height, sides[1], sides[0])
    return _tiles(network, here, upload, check, pattern, symmetries, sides, progress)


def _upload(
    mosaic: Tensor, device: torch.device
) -> tuple[Tensor, Callable[[Sequence[Window]], None], Callable[[], None]]:
    """The mosaic on the network's device; a function that uploads the rows that some windows need; and one that
    rejects NaN, infinity and counts.

    Rows are copied to a GPU through pinned memory when they are needed: the first tile does not wait for all.
    """
    if device.type != "cuda" or mosaic.is_cuda:
        here = mosaic.to(device, torch.float32)
        if not here.is_cuda:
            arrays.check_range(here)
            return here, lambda _: None, lambda: None
        return here, lambda _: None, _check_later(here)
    here = torch.empty(mosaic.shape, device=device)
    pinned = torch.empty(mosaic.shape, pin_memory=True)
    uploaded = 0

    def upload(needed: Sequence[Window]) -> None:
        nonlocal uploaded
        row = max(int(window.index().max()) for window in needed) + 1
        if row > uploaded:
            part = (..., slice(uploaded, row), slice(None))
            pinned[part] = mosaic[part]
            _check_sum(pinned[part], pinned[part].sum())
            here[part].copy_(pinned[part], non_blocking=True)
            uploaded = row

    return here, upload, lambda: None


def _check_later(mosaic: Tensor) -> Callable[[], None]:
    """A function that checks a mosaic on a GPU. It waits only until the sum is computed, not for work that was
    queued later.
    """
    total = torch.empty((), pin_memory=True).copy_(mosaic.sum(), non_blocking=True)
    ready = torch.cuda.Event()  # type: ignore[no-untyped-call]
    ready.record()

    def check() -> None:
        ready.synchronize()
        _check_sum(mosaic, total)

    return check


def _check_sum(mosaic: Tensor, total: Tensor) -> None:
    """Reject NaN, infinity and counts by the sum of the values; only a suspicious sum costs more."""
    if not bool(total.isfinite()) and not bool(mosaic.isfinite().all()):
        raise arrays.not_finite_error()
    if float(total) > arrays.COUNTS_MEAN * mosaic.numel():
        arrays.check_range(mosaic)


def measure(network: Runner, mosaic: Float[Tensor, "1 h w"], pattern: str = "RGGB", *, times: int = 2) -> float:
    """Seconds to restore the image of a mosaic: the best of `times` runs after one to warm up."""
    best = inf
    for run in range(times + 1):
        start = monotonic()
        restore_image(network, mosaic, pattern)
        if network.device.type == "cuda":
            torch.cuda.synchronize(network.device)
        if run:
            best = min(best, monotonic() - start)
    return best


def default_tile(network: Runner, height: int, width: int, moved: bool) -> tuple[int, int]:
    """Rows and columns of a tile, if no size was given: on a GPU as many as half of its memory holds.

    A picture that is `moved` to the GPU and back has at least two tiles, so that copies overlap with computing.
    """
    if network.device.type != "cuda":
        return TILE, TILE
    free, _ = torch.cuda.mem_get_info(network.device)
    sides = band(network.config, height, width, moved, free)
    if sides == band(network.config, height, width, moved, UNLIMITED):
        return sides
    # Memory that PyTorch has reserved and does not use is free, too.
    stats = torch.cuda.memory_stats_as_nested_dict(network.device)
    unused = stats["reserved_bytes"]["all"]["current"] - stats["allocated_bytes"]["all"]["current"]
    return band(network.config, height, width, moved, free + unused)


def band(config: Config, height: int, width: int, moved: bool, free: int) -> tuple[int, int]:
    """Rows and columns of a tile for a GPU with `free` bytes: whole rows, or a square if rows are long."""
    # About five of the widest feature maps, at full resolution in half precision, are in memory at once; and no
    # tensor has more elements than a 32-bit index counts.
    channels, reach = max(config.tail, config.widths[0] // 2), config.receptive_radius
    pixels = int(min(2**31 / channels, 0.5 * free / (10 * channels + 100)))
    rows = pixels // (width + 2 * BORDER + 2 * config.stride) - 2 * (reach + config.stride)
    if rows < 8 * reach:
        side = max(int(pixels**0.5) - 2 * (reach + config.stride), 256)
        return side, side
    return (min(rows, -(-height // 2)) if moved and height > 16 * reach else rows), width


def _assemble(
    tiles: Iterator[tuple[slice, slice, Posterior]],
    mosaic: Tensor,
    device: torch.device,
    names: Sequence[str],
) -> list[Tensor]:
    """The named maps of all tiles as whole pictures, on the mosaic's device and of its type.

    They are copied from a GPU through pinned memory, each band of tiles while the next one is computed.
    """
    *batch, _, height, width = mosaic.shape
    shape = (*batch, 3, height, width)
    if device.type != "cuda" or mosaic.is_cuda:
        whole: list[Tensor] = []
        for rows, columns, part in tiles:
            if part.loc.shape == shape:  # the only tile
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
        if columns.stop == width:  # a band of tiles is complete
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
    upload: Callable[[Sequence[Window]], None],
    check: Callable[[], None],
    pattern: str,
    symmetries: Sequence[Symmetry],
    sides: tuple[int, int],
    progress: Callable[[float], None] | None,
) -> Iterator[tuple[slice, slice, Posterior]]:
    *batch, _, height, width = mosaic.shape
    flat = mosaic.reshape(-1, 1, height, width)
    pieces = (windows.split(height, sides[0]), windows.split(width, sides[1]))
    views = [(*windows.turn(network.config, s, pattern, pieces, (height, width)), s) for s in symmetries]
    done, total = 0, len(pieces[0]) * len(pieces[1]) * len(symmetries)

    def count() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done / total)

    for i, rows in enumerate(pieces[0]):
        upload([row_windows[i] for row_windows, _, _ in views])
        for j, columns in enumerate(pieces[1]):
            shown = [(row_windows[i], column_windows[j], s) for row_windows, column_windows, s in views]
            top = rows.start
            for band in _without_gradients(_restore_tile(network, flat, shown, count)):
                check()
                end = top + band.loc.shape[-2]
                yield slice(top, end), columns, band.map(lambda t: t.view(*batch, *t.shape[1:]))
                top = end


def _without_gradients(bands: Iterator[Posterior]) -> Iterator[Posterior]:
    """The same bands, computed in inference mode; the caller's code that runs between two bands is not in that
    mode.
    """
    while True:
        with torch.inference_mode():
            band = next(bands, None)
        if band is None:
            return
        yield band


def _restore_tile(
    network: Runner, mosaic: Tensor, shown: Sequence[tuple[Window, Window, Symmetry]], count: Callable[[], None]
) -> Iterator[Posterior]:
    """The posterior of a tile, merged over the symmetries; of the identity alone, in the network's bands."""
    if len(shown) == 1:
        yield from network.bands(*windows.show(mosaic, *shown[0]))
        count()
        return
    posteriors = []
    for rows, columns, symmetry in shown:
        posteriors.append(network.forward_crop(*windows.show(mosaic, rows, columns, symmetry)).map(symmetry.undo))
        count()
    yield _merge(posteriors)


def _merge(posteriors: Sequence[Posterior]) -> Posterior:
    """The mixture of posteriors, weighted equally, or the average of images where only those are known."""
    whole = [posterior for posterior in posteriors if isinstance(posterior, NormalInverseGamma)]
    return nig.merge(whole) if whole else MeanOnly(torch.stack([image.loc for image in posteriors]).mean(0))
