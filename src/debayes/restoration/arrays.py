"""What a caller passes as a network, a mosaic or a raw: converted to one form, or rejected with an error message.

Warnings say what cannot be an error: weights for another kind of mosaic, and a camera's mosaic where one of sRGB
values is expected.
"""

import warnings
from os import PathLike
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from debayes.formats.raw import Raw
from debayes.imaging import cfa, noise_profile
from debayes.restoration.runner import Runner
from debayes.system.errors import DebayesError

MosaicLike: TypeAlias = Tensor | NDArray[Any]
"""A float mosaic (h, w) or (*batch, 1, h, w): a tensor or a NumPy array."""

# A mosaic of counts has at least this share of its values above this level; white is 1, and noise, sharpening and
# white balance leave normalised mosaics below it, but for a few hot photosites.
COUNTS_ABOVE, COUNTS_SHARE = 4.0, 0.01

# The mean of a mosaic of counts, where a GPU cannot wait for more than that.
COUNTS_MEAN = 1.5

# A camera's mosaic: red and blue below this share of green, a mean below this level, and at the median signal this
# share of the noise variance from photons. Of Kodak and McMaster, with noise of sigma 0 to 20, no mosaic has all.
RAW_CAST, RAW_MEAN, RAW_PHOTONS = 0.8, 0.25, 0.5

# Colours are compared in blocks of this side, a multiple of the period of every pattern; so many along a side.
BLOCK, BLOCKS = 12, 16

# Noise is measured in bands of this many rows, and in about this many photosites.
BAND, MEASURED = 48, 300_000


def to_mosaic(mosaic: object) -> Float[Tensor, "*batch 1 h w"]:
    """The mosaic as a float tensor: a tensor's own values, or those of a NumPy array, which is not copied.

    Whether all values are finite is checked later, while they are used.
    """
    if isinstance(mosaic, np.ndarray):
        values = _from_numpy(mosaic)
    elif isinstance(mosaic, Tensor):
        values = mosaic
    else:
        raise DebayesError(f"a mosaic is a NumPy array or a tensor of floats, not {_describe(mosaic)}")
    if values.is_complex() or values.dtype == torch.bool:
        raise DebayesError(f"a mosaic holds real numbers, not {values.dtype}")
    values = values[None] if values.ndim == 2 else values
    if values.ndim < 3 or values.shape[-3] != 1:
        raise DebayesError(
            f"a mosaic has the shape (h, w) or (1, h, w), not {tuple(values.shape)}{_colours(values)}"
        )
    height, width = values.shape[-2:]
    if min(height, width) < 2:
        raise DebayesError(f"a mosaic has at least 2x2 photosites, not {height}x{width}")
    if not values.is_floating_point():
        if values.numel() and int(values.amax()) > 1:
            raise counts_error(values)
        values = values.float()
    return values


def _from_numpy(array: NDArray[Any]) -> Tensor:
    if array.dtype.kind not in "fiu":
        raise DebayesError(f"a mosaic holds real numbers, not {array.dtype}")
    kind = np.float32 if array.dtype.kind == "f" else np.int64
    with np.errstate(over="ignore"):  # what is too large for float32 is infinite, and rejected as such
        return torch.from_numpy(np.require(array, dtype=kind, requirements=["C", "W"]))


def _describe(given: object) -> str:
    """What was passed instead of a mosaic, and what to do."""
    if isinstance(given, str | PathLike):
        return (
            f"{str(given)!r}: read a camera raw with debayes.read and develop it, and other files with numpy.load, "
            "for example"
        )
    if isinstance(given, Raw):
        return "a Raw: use debayes.develop(network, raw)"
    if isinstance(given, list | tuple):
        return f"a {type(given).__name__}: numpy.asarray(mosaic, numpy.float32) makes an array of it"
    return f"a {type(given).__name__}"


def _colours(values: Tensor) -> str:
    if values.ndim >= 3 and 3 in (values.shape[-1], values.shape[-3]):
        return ": this is a colour picture; debayes.mosaic(picture, pattern) makes its mosaic"
    if values.ndim >= 3 and values.shape[-1] == 1:
        return ": the channel comes first; leave it out"
    return ""


def check_range(mosaic: Float[Tensor, "*batch 1 h w"]) -> None:
    """Reject NaN, infinity, and counts that were not normalised."""
    low, high = mosaic.aminmax()
    if not bool(low.isfinite() & high.isfinite()):
        raise not_finite_error()
    if float(high) > COUNTS_ABOVE and float((mosaic > COUNTS_ABOVE).float().mean()) > COUNTS_SHARE:
        raise counts_error(mosaic)


def not_finite_error() -> DebayesError:
    return DebayesError("the mosaic holds values that are not numbers (NaN or infinity): replace them")


def counts_error(mosaic: Tensor) -> DebayesError:
    """The error for counts that were not normalised, with the levels that they seem to have."""
    low, high = (float(value) for value in mosaic.aminmax())
    white = next((2**bits - 1 for bits in (8, 10, 12, 14, 16) if high < 2**bits), None) or high
    return DebayesError(
        f"the mosaic holds counts from {low:g} to {high:g}, but a mosaic has 0 = black and 1 = white: pass "
        f"(mosaic - black) / (white - black), with black={max(low, 0):g} and white={white:g} or the sensor's own; "
        "or, for a camera's mosaic, debayes.develop(network, debayes.Raw.from_array(mosaic, pattern, "
        f"black={max(low, 0):g}, white={white:g}))"
    )


def check_runner(network: object) -> None:
    """Reject what is neither a network nor an engine."""
    if isinstance(network, str | PathLike):
        raise DebayesError(f"a network was expected, not {str(network)!r}: pass debayes.load({str(network)!r})")
    if not isinstance(network, Runner):
        raise DebayesError(
            "a network from debayes.load or an engine from debayes.prepare was expected, "
            f"not a {type(network).__name__}"
        )


def check_develop(network: object, raw: object) -> None:
    """Reject what `develop` cannot work with, and warn if the network was not trained for camera raws."""
    check_runner(network)
    if isinstance(raw, str | PathLike):
        raise DebayesError(f"a Raw was expected, not {str(raw)!r}: pass debayes.read({str(raw)!r})")
    if not isinstance(raw, Raw):
        raise DebayesError(
            f"a Raw was expected, not a {type(raw).__name__}: debayes.read(path) reads one from a file, "
            "debayes.Raw.from_array(mosaic, pattern, black=..., white=...) makes one of an array"
        )
    if isinstance(network, Runner) and network.domain == "srgb":
        warnings.warn("this network was not trained for camera raws: use raw-s or raw-l", UserWarning, stacklevel=3)


def warn_if_unsuitable(
    network: Runner, mosaic: Float[Tensor, "*batch 1 h w"], pattern: str, *, stacklevel: int = 2
) -> None:
    """Warn if a mosaic of sRGB values meets a network for camera raws, or the other way round.

    `stacklevel` says whose line the warning names, as in `warnings.warn` called in place of this function.
    """
    if network.domain == "raw":
        warnings.warn(
            "this network was trained for camera raws, in the domain of `develop`, and not for mosaics of sRGB "
            "values: use develop, or wild-s or wild-l",
            UserWarning,
            stacklevel=stacklevel + 1,
        )
    elif network.domain == "srgb" and looks_raw(mosaic, pattern):
        warnings.warn(
            "this mosaic looks like a camera's (linear, not white balanced, with photon noise): a network for sRGB "
            "values leaves most of its noise. Use debayes.develop(debayes.load('raw-s'), "
            "debayes.Raw.from_array(counts, pattern, black=..., white=...)), or the command `debayes develop` with "
            "--pattern, --black and --white",
            UserWarning,
            stacklevel=stacklevel + 1,
        )


def looks_raw(mosaic: Float[Tensor, "*batch 1 h w"], pattern: str) -> bool:
    """Whether the colours and the noise of a mosaic, the first of a batch, are those of a camera raw.

    A mosaic on a GPU is not looked at: that would wait for it.
    """
    height, width = mosaic.shape[-2:]
    if mosaic.device.type != "cpu" or min(height, width) < 4 * BLOCK:
        return False
    values = mosaic.reshape(-1, 1, height, width)[0].float()
    red, green, blue = _color_means(values[0], pattern)
    if max(red, blue) > RAW_CAST * green or (red + 2 * green + blue) / 4 > RAW_MEAN:
        return False
    row = torch.arange(height)
    bands = values[:, row // BAND % -(-height * width // MEASURED) == 0]
    if not bool(bands.isfinite().all()):
        return False
    profile = noise_profile.estimate(bands, pattern)
    photons = profile.gain * max(0.0, float(bands.median()))
    return photons > RAW_PHOTONS * (photons + profile.floor) > 0


def _color_means(values: Float[Tensor, "h w"], pattern: str) -> tuple[float, float, float]:
    """The mean of each colour, in blocks spread over the mosaic."""
    rows, columns = (size // BLOCK for size in values.shape)
    blocks = values[: rows * BLOCK, : columns * BLOCK].view(rows, BLOCK, columns, BLOCK)
    mean = blocks[:: -(-rows // BLOCKS), :, :: -(-columns // BLOCKS)].mean((0, 2))
    mask = cfa.masks(pattern, BLOCK, BLOCK)
    red, green, blue = ((mean * mask).sum((1, 2)) / mask.sum((1, 2))).tolist()
    return red, green, blue
