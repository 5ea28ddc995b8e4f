"""The operations that `replay` makes of a network's steps, with the weights laid out as their kernel reads them.

Each is a frozen dataclass that is called with its inputs: half-precision features with channels last. On a CPU the
same operations run in PyTorch, for tests.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from debayes.engine.fusion import Block
from debayes.engine.gpu import hopper
from debayes.engine.graph import Convolution
from debayes.imaging import cfa

# Number of taps of a 3x3 convolution.
TAPS = 9

# Memory is fast where the number of channels is a multiple of SECTOR, matrix units where it is one of LANES.
LANES, SECTOR = 8, 16

Operation = Callable[..., Tensor]


@dataclass(frozen=True, eq=False)
class Convolve:
    """convolution + bias. torch.compile fuses the bias with what follows; cuDNN would add it in a separate pass."""

    weight: Float[Tensor, "o i k k"]
    bias: Float[Tensor, " o"]
    stride: int
    padding: int
    channels: int
    """The filters that the network has; the weight may have more, which are zeros."""

    @classmethod
    def of(cls, step: Convolution, dtype: torch.dtype, *, min_filters: int = 0) -> "Convolve":
        """The operation for a step, with filters of zeros up to `min_filters`."""
        missing = max(0, min_filters - len(step.bias))
        weight, bias = F.pad(step.weight, (0, 0, 0, 0, 0, 0, 0, missing)), F.pad(step.bias, (0, missing))
        return cls(_channels_last(weight.to(dtype)), bias.to(dtype), step.stride, step.padding, len(step.bias))

    def __call__(self, x: Tensor) -> Tensor:
        y = F.conv2d(x, self.weight, None, self.stride, self.padding) + self.bias.view(-1, 1, 1)
        return y[:, : self.channels]


@dataclass(frozen=True, eq=False)
class ConvolveRectify:
    """relu(convolution + bias) in one pass, by cuDNN."""

    weight: Float[Tensor, "o i k k"]
    bias: Float[Tensor, " o"]
    stride: int
    padding: int

    @classmethod
    def of(cls, step: Convolution, dtype: torch.dtype) -> "ConvolveRectify":
        """The operation for a step."""
        return cls(_channels_last(step.weight.to(dtype)), step.bias.to(dtype), step.stride, step.padding)

    def __call__(self, x: Tensor) -> Tensor:
        y: Tensor = _rectified(x, self.weight, self.bias, self.stride, self.padding)
        return y


@dataclass(frozen=True, eq=False)
class ConvolveAddRectify:
    """relu(convolution + bias + other) in one pass, by cuDNN."""

    weight: Float[Tensor, "o i k k"]
    bias: Float[Tensor, " o"]
    stride: int
    padding: int

    @classmethod
    def of(cls, step: Convolution, dtype: torch.dtype) -> "ConvolveAddRectify":
        """The operation for a step."""
        return cls(_channels_last(step.weight.to(dtype)), step.bias.to(dtype), step.stride, step.padding)

    def __call__(self, x: Tensor, other: Tensor) -> Tensor:
        y: Tensor = _rectified_sum(x, self.weight, self.bias, other, self.stride, self.padding)
        return y


@dataclass(frozen=True, eq=False)
class ConvolveInTriton:
    """A 3x3 convolution + bias, with another feature added or a ReLU, in one pass, by `triton_kernels`."""

    filters: Float[Tensor, "9 i o"]
    bias: Float[Tensor, " o"]
    rectified: bool

    @classmethod
    def of(cls, step: Convolution, dtype: torch.dtype) -> "ConvolveInTriton":
        """The operation for a step."""
        return cls(tap_matrices(step.weight).to(dtype), step.bias.to(dtype), step.rectified)

    def __call__(self, x: Tensor, other: Tensor | None = None) -> Tensor:
        y: Tensor = triton_convolution(x, self.filters, self.bias, other, self.rectified)
        return y


@dataclass(frozen=True, eq=False)
class ResidualBlock:
    """x + second(relu(first(x))), with a ReLU or none, in one pass, by `hopper`."""

    filters: Float[Tensor, "2 k n 8"]
    bias: Float[Tensor, "2 c"]
    rectified: bool

    @classmethod
    def of(cls, step: Block, dtype: torch.dtype) -> "ResidualBlock":
        """The operation for a block."""
        convolutions = (step.first, step.second)
        filters = [hopper.arrange_filters(tap_matrices(each.weight)) for each in convolutions]
        bias = torch.stack([each.bias for each in convolutions])
        return cls(torch.stack(filters).to(dtype), bias.float(), step.rectified)

    def __call__(self, x: Tensor) -> Tensor:
        y: Tensor = residual_block(x, self.filters, self.bias, self.rectified)
        return y


@dataclass(frozen=True, eq=False)
class TapProducts:
    """A 3x3 convolution before the sum over its taps: for each tap, the products of every pixel with the filters.

    The taps come as filters of one pixel, so that few filters make one large matrix product.
    """

    weight: Float[Tensor, "n i 1 1"]

    @classmethod
    def of(cls, step: Convolution, dtype: torch.dtype) -> "TapProducts":
        """The operation for a step."""
        taps = step.weight.permute(2, 3, 0, 1).flatten(0, 2)
        weight = F.pad(taps, (0, 0, 0, -len(taps) % SECTOR))[:, :, None, None]
        return cls(_channels_last(weight.to(dtype)))

    def __call__(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.weight)


@dataclass(frozen=True, eq=False)
class ConvolveByTaps:
    """A 3x3 convolution as `TapProducts`, whose sum torch.compile fuses with what follows."""

    products: TapProducts
    bias: Float[Tensor, " o"]

    @classmethod
    def of(cls, step: Convolution, dtype: torch.dtype) -> "ConvolveByTaps":
        """The operation for a step."""
        return cls(TapProducts.of(step, dtype), step.bias.to(dtype))

    def __call__(self, x: Tensor) -> Tensor:
        return add_taps(self.products(x).float(), len(self.bias)) + self.bias.view(-1, 1, 1)


@dataclass(frozen=True, eq=False)
class ConvolveWithOnes:
    """A convolution of few input channels and one channel of ones, whose weight is the bias: so the bias takes no
    pass.
    """

    weight: Float[Tensor, "o 8 k k"]
    stride: int
    padding: int

    @classmethod
    def of(cls, step: Convolution, dtype: torch.dtype) -> "ConvolveWithOnes":
        """The operation for a step. Only the middle tap weighs the ones, since the zeros around the picture do not
        reach it.
        """
        inputs, middle = step.weight.shape[1], step.weight.shape[2] // 2
        weight = F.pad(step.weight, (0, 0, 0, 0, 0, LANES - inputs))
        weight[:, inputs, middle, middle] = step.bias
        return cls(_channels_last(weight.to(dtype)), step.stride, step.padding)

    def __call__(self, x: Tensor) -> Tensor:
        ones = F.pad(torch.ones_like(x[:, :1]), (0, 0, 0, 0, 0, LANES - 1 - x.shape[1]))
        x = torch.cat((x, ones), 1).contiguous(memory_format=torch.channels_last)
        return F.conv2d(x, self.weight, None, self.stride, self.padding)


@dataclass(frozen=True)
class PadChannels:
    """Channels of zeros up to a number of `channels`."""

    channels: int

    def __call__(self, x: Tensor) -> Tensor:
        return F.pad(x, (0, 0, 0, 0, 0, self.channels - x.shape[1]))


@dataclass(frozen=True)
class DepthToSpace:
    """PyTorch's pixel shuffle by 2."""

    channels_last: bool

    def __call__(self, x: Tensor) -> Tensor:
        y = F.pixel_shuffle(x, 2)
        return _channels_last(y) if self.channels_last else y


@dataclass(frozen=True)
class Add:
    """The sum of two features."""

    def __call__(self, x: Tensor, other: Tensor) -> Tensor:
        return x + other


@dataclass(frozen=True)
class Rectify:
    """max(x, 0)."""

    def __call__(self, x: Tensor) -> Tensor:
        return F.relu(x)


@dataclass(frozen=True)
class Concatenate:
    """The channels of several features."""

    def __call__(self, *features: Tensor) -> Tensor:
        return torch.cat(features, 1)


@dataclass(frozen=True, eq=False)
class Finish:
    """Some rows and columns of the image from the last convolution's `TapProducts` and the mosaic, in one pass."""

    bias: Float[Tensor, " 12"]

    def __call__(self, products: Tensor, mosaic: Tensor, rows: slice, columns: slice) -> Tensor:
        from debayes.engine.gpu import triton_kernels

        weights = _interpolation_weights(mosaic.device)
        return triton_kernels.finish(products, self.bias, weights, mosaic, rows, columns)


@functools.cache
def _interpolation_weights(device: torch.device) -> Float[Tensor, "9 16"]:
    """The weights of the 3x3 neighbours of a pixel in its interpolated colours: a column for each colour, row and
    column of a cell."""
    kernel = F.pixel_shuffle(cfa.interpolation_kernel("RGGB"), 2)
    around = kernel.view(3, 2, 2, 6, 6)  # from two photosites before a cell on
    weights = [
        around[color, y, x, y + 1 : y + 4, x + 1 : x + 4].flatten()
        for color in range(3)
        for y in range(2)
        for x in range(2)
    ]
    return F.pad(torch.stack(weights, 1), (0, 4)).contiguous().to(device)


def tap_matrices(weight: Float[Tensor, "o i 3 3"]) -> Float[Tensor, "9 i o"]:
    """The filters of a convolution as `triton_kernels` reads them: a matrix for each tap."""
    return weight.permute(2, 3, 1, 0).flatten(0, 1).contiguous()


def add_taps(products: Float[Tensor, "b n h w"], filters: int) -> Float[Tensor, "b {filters} h w"]:
    """The 3x3 convolution whose `TapProducts` these are."""
    height, width = products.shape[-2:]
    padded = F.pad(products, (1, 1, 1, 1))
    taps = (
        padded[:, i * filters : (i + 1) * filters, i // 3 : i // 3 + height, i % 3 : i % 3 + width]
        for i in range(TAPS)
    )
    return functools.reduce(torch.add, taps)


def _channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


@torch.library.custom_op("debayes::rectified", mutates_args=())
def _rectified(x: Tensor, weight: Tensor, bias: Tensor, stride: int, padding: int) -> Tensor:
    """relu(convolution + bias), in one pass where cuDNN has it."""
    if x.is_cuda:
        return torch.cudnn_convolution_relu(x, weight, bias, [stride] * 2, [padding] * 2, [1, 1], 1)
    return _channels_last(F.relu(F.conv2d(x, weight, bias, stride, padding)))


@_rectified.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor, stride: int, padding: int) -> Tensor:
    return _channels_last(F.conv2d(x, weight, bias, stride, padding))


@torch.library.custom_op("debayes::rectified_sum", mutates_args=())
def _rectified_sum(x: Tensor, weight: Tensor, bias: Tensor, other: Tensor, stride: int, padding: int) -> Tensor:
    """relu(convolution + bias + other), in one pass where cuDNN has it."""
    if x.is_cuda:
        sides = ([stride] * 2, [padding] * 2, [1, 1])
        return torch.cudnn_convolution_add_relu(x, weight, other, 1.0, bias, *sides, 1)
    return _channels_last(F.relu(F.conv2d(x, weight, bias, stride, padding) + other))


@_rectified_sum.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor, other: Tensor, stride: int, padding: int) -> Tensor:
    return _channels_last(F.conv2d(x, weight, bias, stride, padding))


@torch.library.custom_op("debayes::own", mutates_args=())
def triton_convolution(x: Tensor, filters: Tensor, bias: Tensor, other: Tensor | None, rectified: bool) -> Tensor:
    """convolution + bias + other, with a ReLU or none, in one pass on a GPU; of filters as `tap_matrices`."""
    if x.is_cuda:
        from debayes.engine.gpu import triton_kernels

        return triton_kernels.convolve(x, filters, bias, other, rectified=rectified)
    weight = filters.view(3, 3, *filters.shape[1:]).permute(3, 2, 0, 1)
    y = F.conv2d(x, weight, bias, padding=1)
    y = y if other is None else y + other
    return _channels_last(F.relu(y) if rectified else y)


@triton_convolution.register_fake
def _(x: Tensor, filters: Tensor, bias: Tensor, other: Tensor | None, rectified: bool) -> Tensor:
    shape = (x.shape[0], len(bias), *x.shape[2:])
    return _channels_last(x.new_empty(shape))


@torch.library.custom_op("debayes::block", mutates_args=())
def residual_block(x: Tensor, filters: Tensor, bias: Tensor, rectified: bool) -> Tensor:
    """A residual block in one pass on a GPU; of filters as `hopper.arrange_filters` lays them out."""
    if x.is_cuda:
        return hopper.run_block(x, filters, bias, rectified=rectified)
    first, second = (hopper.unarrange_filters(each) for each in filters)
    between = F.relu(F.conv2d(x, first, bias[0].to(x.dtype), padding=1))
    y = x + F.conv2d(between, second, bias[1].to(x.dtype), padding=1)
    return _channels_last(F.relu(y) if rectified else y)


@residual_block.register_fake
def _(x: Tensor, filters: Tensor, bias: Tensor, rectified: bool) -> Tensor:
    return torch.empty_like(x, memory_format=torch.channels_last)
