"""GPU kernels in Triton: a narrow convolution fused with what follows it, and the last pass over the image.

With few channels cuDNN's convolutions are limited by memory, and the sum of a residual block without a final ReLU
takes a separate pass. `convolve` computes both: a thread block processes a band of columns from top to bottom and
reads each row once for the three rows of the result around it. `finish` is one pass where torch.compile needs
three.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

# Values of a cell of 2x2 pixels in three colours, and the power of two that Triton pads them to.
MAPS, PADDED_MAPS = 12, 16

# Columns and rows of the result that a thread block computes, and the rows it fetches ahead; the fastest of several
# for 32 and for 64 channels (benchmarks/kernels.py).
COLUMNS, ROWS, STAGES = 64, 30, 3


def convolve(
    x: Float[Tensor, "b i h w"],
    filters: Float[Tensor, "9 i o"],
    bias: Float[Tensor, " o"],
    other: Float[Tensor, "b o h w"] | None = None,
    *,
    rectified: bool = False,
) -> Float[Tensor, "b o h w"]:
    """The zero-padded convolution of x, plus bias and `other`; numbers of channels are powers of two."""
    batch, inputs, height, width = x.shape
    outputs = len(bias)
    layout = torch.channels_last
    x = x.contiguous(memory_format=layout)
    other = None if other is None else other.contiguous(memory_format=layout)
    result = torch.empty((batch, outputs, height, width), dtype=x.dtype, device=x.device, memory_format=layout)
    grid = (-(-width // COLUMNS), -(-height // ROWS), batch)
    kind = (inputs, outputs, ROWS, COLUMNS, STAGES, other is not None, rectified)
    _convolve[grid](x, filters, bias, x if other is None else other, result, height, width, *kind, num_warps=4)
    return result


def finish(
    products: Float[Tensor, "b n h w"],
    bias: Float[Tensor, " 12"],
    colors: Float[Tensor, "9 16"],
    mosaic: Float[Tensor, "b 1 2*h 2*w"],
    rows: slice,
    columns: slice,
) -> Float[Tensor, "b 3 r c"]:
    """Some rows and columns of the image: the sum of the last convolution's products over its taps, plus the
    interpolated mosaic.

    `products` has twelve channels for each tap, a cell of 2x2 pixels in three colours. `colors` has the weights of
    nine neighbours in the interpolation of each of the twelve.
    """
    batch, lanes, height, width = products.shape
    size = (rows.stop - rows.start, columns.stop - columns.start)
    image = torch.empty(batch, 3, *size, device=mosaic.device)
    products = products.contiguous(memory_format=torch.channels_last)
    cells = 64
    down, across = (-(-part.stop // 2) - part.start // 2 for part in (rows, columns))
    grid = (-(-across // cells), down, batch)
    sizes = (height, width, rows.start, columns.start, *size, lanes, MAPS, PADDED_MAPS, cells)
    _finish[grid](products, bias, colors, mosaic.contiguous(), image, *sizes, num_warps=4)
    return image


@triton.jit  # type: ignore[untyped-decorator]
def _finish(  # type: ignore[no-untyped-def]
    products,
    bias,
    colors,
    mosaic,
    image,
    height,
    width,
    top,
    left,
    rows,
    columns,
    stride: tl.constexpr,
    maps: tl.constexpr,
    lanes: tl.constexpr,
    cells: tl.constexpr,
):
    batch = tl.program_id(2).to(tl.int64)
    products += batch * height * width * stride
    mosaic += batch * height * width * 4
    image += batch * rows * columns * 3
    cell_row = top // 2 + tl.program_id(1)
    cell = left // 2 + tl.program_id(0) * cells + tl.arange(0, cells)
    lane = tl.arange(0, lanes)  # (colour, row, column) in the cell
    used = lane < maps
    total = tl.zeros((cells, lanes), tl.float32) + tl.load(bias + lane, mask=used, other=0.0)[None, :]
    for tap in tl.static_range(9):
        above = cell_row + tap // 3 - 1
        beside = cell + tap % 3 - 1
        seen = (above >= 0) & (above < height) & (beside >= 0) & (beside < width)
        place = (above * width + beside)[:, None] * stride + (tap * maps + lane)[None, :]
        total += tl.load(products + place, mask=seen[:, None] & used[None, :], other=0.0).to(tl.float32)
    row = 2 * cell_row + lane // 2 % 2
    column = (2 * cell)[:, None] + (lane % 2)[None, :]
    for tap in tl.static_range(9):
        weight = tl.load(colors + tap * lanes + lane)
        above = tl.abs(row + tap // 3 - 1)
        above = tl.minimum(above, 4 * height - 2 - above)  # reflected at the border
        beside = tl.abs(column + tap % 3 - 1)
        beside = tl.minimum(beside, 4 * width - 2 - beside)
        seen = (weight != 0)[None, :] & (cell < width)[:, None]
        values = tl.load(mosaic + (above * 2 * width)[None, :] + beside, mask=seen, other=0.0)
        total += weight[None, :] * values
    row -= top
    column -= left
    wanted = (used & (row >= 0) & (row < rows))[None, :] & (column >= 0) & (column < columns)
    tl.store(image + ((lane // 4 * rows + row) * columns)[None, :] + column, total, mask=wanted)


@triton.jit  # type: ignore[untyped-decorator]
def _convolve(  # type: ignore[no-untyped-def]  # Triton allows no annotations but constexpr
    x,
    filters,
    bias,
    other,
    result,
    height,
    width,
    inputs: tl.constexpr,
    outputs: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    stages: tl.constexpr,
    summed: tl.constexpr,
    rectified: tl.constexpr,
):
    column = tl.program_id(0) * columns + tl.arange(0, columns)
    top = tl.program_id(1) * rows
    picture = tl.program_id(2).to(tl.int64) * height * width
    x += picture * inputs
    other += picture * outputs
    result += picture * outputs
    one = tl.arange(0, inputs)
    two = tl.arange(0, 2 * inputs)  # the channels of a pixel and of its right neighbour
    filter_ = tl.arange(0, outputs)
    size: tl.constexpr = inputs * outputs
    tap = filters + two[:, None] * outputs + filter_[None, :]
    first, second, third = tl.load(tap), tl.load(tap + 3 * size), tl.load(tap + 6 * size)
    tap = filters + 2 * size + one[:, None] * outputs + filter_[None, :]
    first_right, second_right, third_right = tl.load(tap), tl.load(tap + 3 * size), tl.load(tap + 6 * size)
    # Half of the bias is added each time a sum moves up a row: without an addition there Triton omits a wait that
    # it needs.
    half = tl.load(bias + filter_).to(tl.float32)[None, :] / 2
    pairs = (column - 1)[:, None] * inputs + two[None, :]
    rights = (column + 1)[:, None] * inputs + one[None, :]
    goals = column[:, None] * outputs + filter_[None, :]
    has_pairs = (pairs >= 0) & (pairs < width * inputs)
    has_rights = rights < width * inputs
    wanted = goals < width * outputs
    # Partial sums of the row above the one that is fetched, and of that row.
    above = tl.zeros((columns, outputs), tl.float32)
    here = tl.zeros((columns, outputs), tl.float32)
    for i in tl.range(0, rows + 2, num_stages=stages):
        row = top + i - 1
        inside = (row >= 0) & (row < height)
        line = x + row * width * inputs
        pair = tl.load(line + pairs, mask=has_pairs & inside, other=0.0)
        right = tl.load(line + rights, mask=has_rights & inside, other=0.0)
        above = tl.dot(right, third_right, tl.dot(pair, third, above))
        here = tl.dot(right, second_right, tl.dot(pair, second, here))
        below = tl.dot(right, first_right, tl.dot(pair, first))
        done = wanted & (i >= 2) & (row <= height)
        goal = (row - 1) * width * outputs + goals
        if summed:
            above += tl.load(other + goal, mask=done, other=0.0).to(tl.float32)
        if rectified:
            above = tl.maximum(above, 0.0)
        tl.store(result + goal, above.to(result.dtype.element_ty), mask=done)
        above = here + half
        here = below + half
