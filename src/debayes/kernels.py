"""Kernels of our own for GPUs, in Triton: a narrow convolution with all that follows it, and the last pass of all.

With few channels cuDNN's convolutions wait for memory, and a residual block's sum, if no rectifier follows, takes a
pass of its own. `convolve` does both at once: a block of threads goes down a band of columns, and what it fetches
of a row serves the rows above and below too. `finish` is one pass where torch.compile takes three.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

# Maps at full resolution of a cell of 2x2 pixels, and what they take in a matrix.
MAPS, LANES = 12, 16

# Channels that planes take beside a result's: as many as matrix units read at once.
BESIDE = 16

# By channels: the columns that a block of threads goes down, how far, how many rows it fetches ahead, its warps, and
# whether they take what they fetched into registers; the fastest of some (benchmarks/kernels.py).
SHAPES = {16: (64, 30, 3, 4, True), 32: (64, 30, 3, 4, True), 64: (64, 62, 3, 4, False)}


def convolve(
    x: Float[Tensor, "b i h w"],
    filters: Float[Tensor, "9 i o"],
    bias: Float[Tensor, " o"],
    other: Float[Tensor, "b o h w"] | None = None,
    planes: Float[Tensor, "b 4 h w"] | None = None,
    *,
    rectified: bool = False,
) -> Float[Tensor, "b n h w"]:
    """The convolution of x, with zeros around it, plus bias and another picture; channels are those of `SHAPES`.

    `planes`, if given, come behind the result's channels, with as many zeros as make `BESIDE`.
    """
    batch, inputs, height, width = x.shape
    columns, rows, stages, warps, registers = SHAPES[inputs]
    outputs, beside = len(bias), BESIDE if planes is not None else 0
    layout = torch.channels_last
    x = x.contiguous(memory_format=layout)
    other = None if other is None else other.contiguous(memory_format=layout)
    planes = None if planes is None else planes.contiguous(memory_format=layout)
    size = (batch, outputs + beside, height, width)
    result = torch.empty(size, dtype=x.dtype, device=x.device, memory_format=layout)
    grid = (-(-width // columns), -(-height // rows), batch)
    given = (x, filters, bias, x if other is None else other, x if planes is None else planes, result)
    kind = (inputs, outputs, beside, rows, columns, stages, registers, other is not None, rectified)
    _convolve[grid](*given, height, width, -1, *kind, num_warps=warps)
    return result


def finish(
    products: Float[Tensor, "b n h w"],
    bias: Float[Tensor, " 12"],
    colors: Float[Tensor, "9 16"],
    mosaic: Float[Tensor, "b 1 2*h 2*w"],
    rows: slice,
    columns: slice,
) -> Float[Tensor, "b 3 r c"]:
    """Some rows and columns of the image: the sum over the taps of `products`, a cell of 2x2 pixels in three
    colours for each, and the interpolation of the mosaic, for each of the twelve a sum over nine neighbours."""
    batch, lanes, height, width = products.shape
    size = (rows.stop - rows.start, columns.stop - columns.start)
    image = torch.empty(batch, 3, *size, device=mosaic.device)
    products = products.contiguous(memory_format=torch.channels_last)
    cells = 64
    down, across = (-(-part.stop // 2) - part.start // 2 for part in (rows, columns))
    grid = (-(-across // cells), down, batch)
    sizes = (height, width, rows.start, columns.start, *size, lanes, MAPS, LANES, cells)
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
    lane = tl.arange(0, lanes)  # a colour, a row and a column of the cell
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
def _in_registers(x, ones):  # type: ignore[no-untyped-def]
    """The same numbers, but Triton, which does not know the bits of `ones`, takes them from shared memory once, and
    not for each of the three products they are in."""
    return (x.to(tl.int16, bitcast=True) & ones.to(tl.int16)).to(x.dtype, bitcast=True)


@triton.jit  # type: ignore[untyped-decorator]
def _convolve(  # type: ignore[no-untyped-def]  # of annotations Triton knows constexpr alone
    x,
    filters,
    bias,
    other,
    planes,
    result,
    height,
    width,
    ones,
    inputs: tl.constexpr,
    outputs: tl.constexpr,
    beside: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    stages: tl.constexpr,
    registers: tl.constexpr,
    summed: tl.constexpr,
    rectified: tl.constexpr,
):
    column = tl.program_id(0) * columns + tl.arange(0, columns)
    top = tl.program_id(1) * rows
    picture = tl.program_id(2).to(tl.int64) * height * width
    lanes: tl.constexpr = outputs + beside
    x += picture * inputs
    other += picture * outputs
    planes += picture * 4
    result += picture * lanes
    one = tl.arange(0, inputs)
    two = tl.arange(0, 2 * inputs)  # a pixel and its neighbour to the right lie side by side
    filter_ = tl.arange(0, outputs)
    size: tl.constexpr = inputs * outputs
    tap = filters + two[:, None] * outputs + filter_[None, :]
    first, second, third = tl.load(tap), tl.load(tap + 3 * size), tl.load(tap + 6 * size)
    tap = filters + 2 * size + one[:, None] * outputs + filter_[None, :]
    first_right, second_right, third_right = tl.load(tap), tl.load(tap + 3 * size), tl.load(tap + 6 * size)
    # A half of the bias is added whenever a sum moves up, as Triton would else not wait for it where it must.
    half = tl.load(bias + filter_).to(tl.float32)[None, :] / 2
    pairs = (column - 1)[:, None] * inputs + two[None, :]
    rights = (column + 1)[:, None] * inputs + one[None, :]
    has_pairs = (pairs >= 0) & (pairs < width * inputs)
    has_rights = rights < width * inputs
    wanted = (column < width)[:, None]
    others = column[:, None] * outputs + filter_[None, :]
    goals = column[:, None] * lanes + filter_[None, :]
    # What is known of the row above the one that is fetched, and of that one.
    above = tl.zeros((columns, outputs), tl.float32)
    here = tl.zeros((columns, outputs), tl.float32)
    for i in tl.range(0, rows + 2, num_stages=stages):
        row = top + i - 1
        inside = (row >= 0) & (row < height)
        line = x + row * width * inputs
        pair = tl.load(line + pairs, mask=has_pairs & inside, other=0.0)
        right = tl.load(line + rights, mask=has_rights & inside, other=0.0)
        if registers:
            pair, right = _in_registers(pair, ones), _in_registers(right, ones)
        above = tl.dot(right, third_right, tl.dot(pair, third, above))
        here = tl.dot(right, second_right, tl.dot(pair, second, here))
        below = tl.dot(right, first_right, tl.dot(pair, first))
        done = wanted & (i >= 2) & (row <= height)
        before = (row - 1) * width
        if summed:
            above += tl.load(other + before * outputs + others, mask=done, other=0.0).to(tl.float32)
        if rectified:
            above = tl.maximum(above, 0.0)
        tl.store(result + before * lanes + goals, above.to(result.dtype.element_ty), mask=done)
        if beside:
            lane = tl.arange(0, beside)[None, :]
            plane = tl.load(planes + before * 4 + column[:, None] * 4 + lane, mask=done & (lane < 4), other=0.0)
            tl.store(result + before * lanes + column[:, None] * lanes + outputs + lane, plane, mask=done)
        above = here + half
        here = below + half
