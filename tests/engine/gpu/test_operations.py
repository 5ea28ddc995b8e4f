"""The operations that networks are lowered to for GPUs, on a CPU: each against PyTorch's own in double precision.

The kernels that a GPU runs instead are compared with the same operations on the GPU itself before they are used
(`replay.widest_kernel`, `replay.blocks_of`), in Triton's interpreter (test_triton_kernels) and row by row
(test_hopper).
"""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from debayes.engine.fusion import Block
from debayes.engine.gpu import operations
from debayes.engine.graph import Convolution
from debayes.imaging import cfa

DTYPE = torch.float64


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=DTYPE)


def convolution(
    outputs: int, inputs: int, side: int = 3, *, stride: int = 1, rectified: bool = False
) -> Convolution:
    weight, bias = random(outputs, inputs, side, side), random(outputs, seed=1)
    return Convolution("y", "x", weight, bias, stride, side // 2 if stride == 1 else 0, rectified)


def reference(step: Convolution, x: Tensor) -> Tensor:
    y = F.conv2d(x, step.weight, step.bias, step.stride, step.padding)
    return F.relu(y) if step.rectified else y


def assert_same(left: Tensor, right: Tensor) -> None:
    torch.testing.assert_close(left.to(right), right, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("step", [convolution(12, 8), convolution(12, 8, 1), convolution(16, 8, 2, stride=2)])
@pytest.mark.parametrize("min_filters", [0, 32])
def test_convolve_gives_the_filters_of_the_network_alone(step: Convolution, min_filters: int) -> None:
    operation = operations.Convolve.of(step, DTYPE, min_filters=min_filters)
    assert len(operation.weight) == len(operation.bias) == max(min_filters, len(step.bias))
    assert not operation.weight[len(step.bias) :].any()
    x = random(2, 8, 6, 10)
    assert_same(operation(x), reference(step, x))


@pytest.mark.parametrize(
    "step", [convolution(16, 8, rectified=True), convolution(16, 8, 2, stride=2, rectified=True)]
)
def test_cudnns_convolutions_add_and_rectify(step: Convolution) -> None:
    x = random(2, 8, 6, 10)
    y = reference(step, x)
    assert_same(operations.ConvolveRectify.of(step, DTYPE)(x), y)
    other = random(*y.shape, seed=2)
    plain = F.conv2d(x, step.weight, step.bias, step.stride, step.padding)
    assert_same(operations.ConvolveAddRectify.of(step, DTYPE)(x, other), F.relu(plain + other))


@pytest.mark.parametrize("rectified", [False, True])
def test_triton_convolutions_add_or_rectify(rectified: bool) -> None:
    step = convolution(16, 32, rectified=rectified)
    operation, x = operations.ConvolveInTriton.of(step, DTYPE), random(2, 32, 6, 10)
    assert operation.filters.shape == (9, 32, 16)
    assert_same(operation(x), reference(step, x))
    if not rectified:
        other = random(2, 16, 6, 10, seed=2)
        assert_same(operation(x, other), reference(step, x) + other)


@pytest.mark.parametrize("rectified", [False, True])
@pytest.mark.parametrize("channels", [32, 64])
def test_residual_blocks(channels: int, rectified: bool) -> None:
    first, second = convolution(channels, channels, rectified=True), convolution(channels, channels)
    x = random(1, channels, 6, 7)
    y = x + reference(second, reference(first, x))
    operation = operations.ResidualBlock.of(Block("y", first, second, rectified), DTYPE)
    assert operation.bias.dtype == torch.float32  # as block.cu reads it
    torch.testing.assert_close(operation(x), F.relu(y) if rectified else y, rtol=1e-5, atol=1e-4)


def test_products_of_taps_sum_up_to_the_convolution() -> None:
    """At the border too; the products are padded to a multiple of 16 channels."""
    step, x = convolution(12, 108), random(2, 108, 5, 7)
    products = operations.TapProducts.of(step, DTYPE)(x)
    assert products.shape == (2, 112, 5, 7)
    assert_same(operations.add_taps(products, 12) + step.bias.view(-1, 1, 1), reference(step, x))
    found = operations.ConvolveByTaps.of(step, DTYPE)(x)
    torch.testing.assert_close(found, reference(step, x), rtol=1e-4, atol=1e-4)  # summed in single precision


@pytest.mark.parametrize("side", [3, 5])
def test_a_bias_as_the_weight_of_ones_reaches_every_pixel(side: int) -> None:
    step, x = convolution(16, 4, side), random(2, 4, 6, 10)
    operation = operations.ConvolveWithOnes.of(step, DTYPE)
    assert operation.weight.shape[1] == operations.LANES
    assert_same(operation(x), reference(step, x))


def test_channels_of_zeros_and_depth_to_space() -> None:
    x = random(2, 4, 6, 10)
    assert_same(operations.PadChannels(16)(x), torch.cat((x, x.new_zeros(2, 12, 6, 10)), 1))
    for channels_last in (False, True):
        y = operations.DepthToSpace(channels_last)(x.repeat(1, 2, 1, 1))
        assert_same(y, F.pixel_shuffle(x.repeat(1, 2, 1, 1), 2))
        assert y.is_contiguous(memory_format=torch.channels_last) or not channels_last


def test_the_weights_of_the_last_pass_interpolate_the_mosaic() -> None:
    """Nine neighbours of each pixel, reflected at the border, give the twelve colours of its cell."""
    weights = operations._interpolation_weights(torch.device("cpu"))
    mosaic = torch.rand(2, 1, 8, 12, generator=torch.Generator().manual_seed(0))
    neighbours = F.unfold(F.pad(mosaic, (1, 1, 1, 1), mode="reflect"), 3).view(2, 9, 4, 2, 6, 2)
    cells = [
        torch.einsum("bnhw,n->bhw", neighbours[:, :, :, y, :, x], weights[:, 4 * color + 2 * y + x])
        for color in range(3)
        for y in range(2)
        for x in range(2)
    ]
    torch.testing.assert_close(F.pixel_shuffle(torch.stack(cells, 1), 2), cfa.interpolate(mosaic))
    assert not weights[:, 12:].any()
