"""`restore`, `restore_image` and `restore_tiles` for callers from outside.

NumPy arrays are accepted, what cannot be restored is rejected with an error message, and a mosaic of another kind
than the network was trained on causes a warning. Inside the package `tiling` is called directly.

Tested in tests/restoration/test_arrays.py.
"""

from collections.abc import Callable, Iterator

from jaxtyping import Float
from torch import Tensor

from debayes.imaging import cfa
from debayes.posterior.nig import NormalInverseGamma
from debayes.restoration import arrays, tiling
from debayes.restoration.arrays import MosaicLike
from debayes.restoration.runner import Runner


def restore(
    network: Runner,
    mosaic: MosaicLike,
    pattern: str = "RGGB",
    *,
    ensemble: bool = False,
    tile: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> NormalInverseGamma:
    """The posterior of every pixel of a mosaic: four tensors (*batch, 3, h, w) on the mosaic's device.

    The mosaic is a NumPy array or a tensor, (h, w) or (*batch, 1, h, w), with 0 = black and 1 = white, in the
    domain the network was trained in: sRGB values for `wild-*` and `paper`. Any Bayer pattern, any size from 2x2.
    `tile` limits the memory, `ensemble` averages over the eight symmetries, `progress` is called with the share
    that is done. The four maps take 48 bytes per pixel; `restore_tiles` returns them piece by piece, and
    `restore_image` only the image.

    Examples:
        >>> import debayes, numpy
        >>> mosaic = numpy.random.default_rng(0).random((50, 70), numpy.float32)
        >>> posterior = debayes.restore(debayes.load("wild-s"), mosaic, "GBRG")
        >>> posterior.mean.shape
        torch.Size([3, 50, 70])
        >>> noise, doubt = posterior.noise_variance.sqrt(), posterior.mean_variance.sqrt()
    """
    values = _check(network, mosaic, pattern)
    return tiling.restore(network, values, pattern, ensemble=ensemble, tile=tile, progress=progress)


def restore_image(
    network: Runner,
    mosaic: MosaicLike,
    pattern: str = "RGGB",
    *,
    ensemble: bool = False,
    tile: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> Float[Tensor, "*batch 3 h w"]:
    """Only the mean of `restore`: a quarter of its memory.

    Examples:
        >>> import debayes, torch
        >>> network = debayes.prepare(debayes.load("wild-s"), "eager", image=True)  # less work than for `restore`
        >>> debayes.restore_image(network, torch.rand(1, 50, 70), "GBRG").shape
        torch.Size([3, 50, 70])
    """
    values = _check(network, mosaic, pattern)
    return tiling.restore_image(network, values, pattern, ensemble=ensemble, tile=tile, progress=progress)


def restore_tiles(
    network: Runner,
    mosaic: MosaicLike,
    pattern: str = "RGGB",
    *,
    ensemble: bool = False,
    tile: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> Iterator[tuple[slice, slice, NormalInverseGamma]]:
    """The same as `restore`, piece by piece: (rows, columns, their posterior).

    Pieces are tiles in reading order, or bands of tiles from the top if the network returns bands.

    Examples:
        >>> import debayes, torch
        >>> picture = torch.empty(3, 50, 70)
        >>> for rows, columns, posterior in debayes.restore_tiles(debayes.load("wild-s"), torch.rand(1, 50, 70)):
        ...     picture[:, rows, columns] = posterior.mean
    """
    values = _check(network, mosaic, pattern)
    return tiling.restore_tiles(network, values, pattern, ensemble=ensemble, tile=tile, progress=progress)


def _check(network: Runner, mosaic: MosaicLike, pattern: str) -> Float[Tensor, "*batch 1 h w"]:
    arrays.check_runner(network)
    values = arrays.to_mosaic(mosaic)
    cfa.check_pattern(pattern)
    arrays.warn_if_unsuitable(network, values, pattern, stacklevel=3)
    return values
