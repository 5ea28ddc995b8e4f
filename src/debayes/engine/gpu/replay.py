"""A network's steps replayed in half precision, each convolution in one kernel with what follows it.

On a GPU a pass over features that adds a bias, or rectifies, takes half as long as the convolution before it: cuDNN
does both on the way, and `triton_kernels` the sum of a residual block too. What is left for other passes
torch.compile makes few of, if it is given what it can merge (`build` with `merged`).
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from debayes.engine.fusion import WIDEST, Block, FusedSum, fuse, gpu_rules, has_kernel, inputs_of
from debayes.engine.gpu import hopper
from debayes.engine.graph import Convolution, Graph, Rectifier, Shuffle, Sum
from debayes.imaging import cfa

# cuDNN is slower with fewer filters than this, so the last convolution gets some that give zeros.
FILTERS = 32

# Up to how many channels the convolutions of `triton_kernels` do sums, most first: small GPUs have no room for the
# most.
WIDEST_SUMMED = (64, 32)

# Taps of a 3x3 convolution.
TAPS = 9

# Channels come in multiples of these: what matrix units read at once, and what memory does.
LANES, SECTOR = 8, 16


def widest_kernel(device: torch.device, dtype: torch.dtype) -> int:
    """Up to how many channels a GPU does what `triton_kernels` is for, and rightly; 0 if it does not.

    Triton comes with PyTorch for most GPUs, not for all.
    """
    if device.type != "cuda" or not _works(_ends_right, device, dtype):
        return 0
    return next((each for each in WIDEST_SUMMED if _works(_convolves_right, device, dtype, each)), 0)


def blocks_of(device: torch.device, dtype: torch.dtype) -> tuple[int, ...]:
    """Of how many channels a GPU does whole residual blocks, and rightly."""
    sizes = hopper.SIZES if hopper.fits(device) else ()
    return tuple(channels for channels in sizes if _works(_blocks_right, device, dtype, channels))


def _works(test: Callable[..., bool], *given: Any) -> bool:
    """Whether a test is passed."""
    try:
        return test(*given)
    except Exception:  # whatever Triton may throw on a GPU that it does not know, or that has too little room
        return False


def _convolves_right(device: torch.device, dtype: torch.dtype, channels: int) -> bool:
    """Whether `triton_kernels` does a small convolution rightly."""
    generator = torch.Generator(device).manual_seed(0)
    x, other = torch.randn(2, 1, channels, 70, 75, device=device, generator=generator).to(dtype)
    weight = torch.randn(channels, channels, 3, 3, device=device, generator=generator).to(dtype) / 24
    bias = torch.randn(channels, device=device, generator=generator).to(dtype)
    expected = F.conv2d(x.float(), weight.float(), bias.float(), padding=1) + other.float()
    found = _own(x, by_tap(weight), bias, other, False)
    return bool((found.float() - expected).square().mean().sqrt() < 0.01)


def _blocks_right(device: torch.device, dtype: torch.dtype, channels: int) -> bool:
    """Whether `hopper` does a small residual block rightly."""
    generator = torch.Generator(device).manual_seed(0)
    x = torch.randn(2, channels, 70, 150, device=device, generator=generator).to(dtype)
    shape = (2, channels, channels, 3, 3)
    weights = (torch.randn(shape, device=device, generator=generator) / 24).to(dtype)
    bias = torch.randn(2, channels, device=device, generator=generator)
    between = F.relu(F.conv2d(x.float(), weights[0].float(), bias[0], padding=1))
    expected = x.float() + F.conv2d(between, weights[1].float(), bias[1], padding=1)
    found = _block(x, torch.stack([hopper.arrange(by_tap(each)) for each in weights]), bias, False)
    return bool((found.float() - expected).square().mean().sqrt() < 0.01)


def _ends_right(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether `triton_kernels` makes the right image of some products and a mosaic."""
    generator = torch.Generator(device).manual_seed(0)
    mosaic = torch.rand(1, 1, 20, 150, device=device, generator=generator)
    products = torch.rand(1, 112, 10, 75, device=device, generator=generator).to(dtype)
    bias = torch.rand(12, device=device, generator=generator)
    rows, columns = slice(1, 19), slice(3, 148)
    expected = F.pixel_shuffle(_add_taps(products.float(), 12) + bias.view(-1, 1, 1), 2) + cfa.interpolate(mosaic)
    found = _finish(products, mosaic, rows, columns, bias=bias)
    return bool((found - expected[..., rows, columns]).abs().max() < 1e-3)


def build(
    steps: Graph,
    dtype: torch.dtype,
    *,
    merged: bool = False,
    own: int = 0,
    blocks: tuple[int, ...] = (),
    ended: bool = True,
) -> Callable[..., Tensor]:
    """What does the steps: takes their inputs, of any type, and gives their only output.

    The sums of residual blocks of up to `own` channels are done by their convolutions, and narrow convolutions by
    `triton_kernels`: for GPUs, `own` is their `widest_kernel`. Whole `blocks` are done by `hopper`: `blocks_of` the
    GPU.

    With `merged` it is for torch.compile. The last convolution, if its filters are few, is a product of each pixel
    with all taps at once, and the sum over the taps is taken where the result is used; the first has its bias as
    the weight of a channel of ones; and channels of zeros come without a convolution.

    What is not `ended` gives those products, which `ending` makes an image of.
    """
    todo = fuse(steps, gpu_rules(own, blocks))
    (output,) = steps.outputs
    plain = [s for s in steps.steps if isinstance(s, Convolution) and not s.rectified] if merged else []
    split = {s.output for s in plain[-1:] if _splits(s)}
    with_ones = {s.output for s in plain if _takes_ones(s)}
    padding = {s.output for s in plain if _only_pads(s)}
    rectified = [s for s in steps.steps if isinstance(s, Convolution) and s.rectified]
    alone = {s.output for s in rectified if has_kernel(s, min(own, WIDEST))}
    arrays: dict[str, tuple[Tensor, Tensor]] = {}
    for step in todo:
        if isinstance(step, Block):
            both = (step.first, step.second)
            filters = torch.stack([hopper.arrange(by_tap(each.weight)) for each in both]).to(dtype)
            arrays[step.output] = (filters, torch.stack([each.bias for each in both]).float())
            continue
        convolution = step.convolution if isinstance(step, FusedSum) else step
        if isinstance(convolution, Convolution):
            weight, bias = convolution.weight, convolution.bias
            if convolution.output in alone or (isinstance(step, FusedSum) and not step.rectified):
                arrays[convolution.output] = (by_tap(weight).to(dtype), bias.to(dtype))
                continue
            if convolution.output in split:
                weight = _split(weight)
            elif convolution.output in with_ones:
                weight = _append_bias(weight, bias)
            elif convolution.output == output:
                lack = max(0, FILTERS - len(bias))
                weight, bias = F.pad(weight, (0, 0, 0, 0, 0, 0, 0, lack)), F.pad(bias, (0, lack))
            layout = torch.channels_last
            arrays[convolution.output] = (weight.to(dtype).contiguous(memory_format=layout), bias.to(dtype))
    last = {name: i for i, step in enumerate(todo) for name in inputs_of(step)}
    sizes = {s.output: len(s.bias) for s in steps.steps if isinstance(s, Convolution)}

    def convolve(step: Convolution, x: Tensor) -> Tensor:
        weight, bias = arrays[step.output]
        if step.output in split and not ended:
            return F.conv2d(x, weight)
        if step.output in split:
            return _add_taps(F.conv2d(x, weight).float(), sizes[step.output]) + bias.view(-1, 1, 1)
        if step.rectified:
            found: Tensor = (
                _own(x, weight, bias, None, True)
                if step.output in alone
                else _rectified(x, weight, bias, step.stride, step.padding)
            )
            return found
        if step.output in padding:
            return F.pad(x, (0, 0, 0, 0, 0, len(bias) - x.shape[1]))
        if step.output in with_ones:
            return F.conv2d(_append_ones(x), weight, None, step.stride, step.padding)
        # The bias is added with what follows: cuDNN would need a pass of its own for it.
        return F.conv2d(x, weight, None, step.stride, step.padding) + bias.view(-1, 1, 1)

    def run(*inputs: Tensor) -> Tensor:
        layout = torch.channels_last
        values = {
            name: value.to(dtype).contiguous(memory_format=layout)
            for name, value in zip(steps.inputs, inputs, strict=True)
        }
        for i, step in enumerate(todo):
            if isinstance(step, FusedSum):
                weight, bias = arrays[step.convolution.output]
                x, other = values[step.convolution.input], values[step.other]
                if step.rectified:
                    sides = (step.convolution.stride, step.convolution.padding)
                    result = _rectified_sum(x, weight, bias, other, *sides)
                else:
                    result = _own(x, weight, bias, other, False)
            elif isinstance(step, Block):
                result = _block(values[step.first.input], *arrays[step.output], step.rectified)
            elif isinstance(step, Convolution):
                result = convolve(step, values[step.input])
                if step.output in split and not ended:
                    return result
                result = result[:, : sizes[step.output]]
            elif isinstance(step, Sum):
                result = values[step.inputs[0]] + values[step.inputs[1]]
            elif isinstance(step, Rectifier):
                result = F.relu(values[step.input])
            elif isinstance(step, Shuffle):
                result = F.pixel_shuffle(values[step.input], 2)
                if step.output != output:
                    result = result.contiguous(memory_format=layout)
            else:
                result = torch.cat([values[name] for name in step.inputs], 1)
            values[step.output] = result
            for name in inputs_of(step):
                if last[name] == i:
                    values.pop(name, None)
        return values[output]

    return run


def ending(steps: Graph) -> Callable[[Tensor, Tensor, slice, slice], Tensor] | None:
    """What makes some rows and columns of an image of the products that `build` gives, and of the mosaic, in one
    pass on a GPU; if the steps end in such products, a cell of 2x2 pixels in three colours, and depth to space."""
    *_, last, shuffle = steps.steps
    colors = 3 * 4
    if not (isinstance(last, Convolution) and isinstance(shuffle, Shuffle) and len(last.bias) == colors):
        return None
    if last.rectified or not _splits(last):
        return None
    return functools.partial(_finish, bias=last.bias.float())


def _finish(products: Tensor, mosaic: Tensor, rows: slice, columns: slice, *, bias: Tensor) -> Tensor:
    from debayes.engine.gpu import triton_kernels

    return triton_kernels.finish(products, bias, _neighbours(mosaic.device), mosaic, rows, columns)


@functools.cache
def _neighbours(device: torch.device) -> Float[Tensor, "9 16"]:
    """What each of nine neighbours weighs in the interpolation of the three colours of the pixels of a cell."""
    around = F.pixel_shuffle(cfa.interpolation_kernel("RGGB"), 2).view(
        3, 2, 2, 6, 6
    )  # two photosites before a cell on
    weights = [
        around[color, y, x, y + 1 : y + 4, x + 1 : x + 4].flatten()
        for color in range(3)
        for y in range(2)
        for x in range(2)
    ]
    return F.pad(torch.stack(weights, 1), (0, 4)).contiguous().to(device)


def _splits(step: Convolution) -> bool:
    """Whether all taps of a convolution together are no more than its inputs."""
    return step.weight[0, 0].numel() == TAPS and TAPS * len(step.bias) <= step.weight.shape[1]


def _split(weight: Float[Tensor, "o i 3 3"]) -> Float[Tensor, "n i 1 1"]:
    """The filters of a convolution as ones of a single pixel, a tap after the other, and some of zeros."""
    taps = weight.permute(2, 3, 0, 1).flatten(0, 2)
    return F.pad(taps, (0, 0, 0, -len(taps) % SECTOR))[:, :, None, None]


def _add_taps(products: Float[Tensor, "b n h w"], filters: int) -> Float[Tensor, "b {filters} h w"]:
    """What a 3x3 convolution gives, of what `_split` filters gave."""
    height, width = products.shape[-2:]
    padded = F.pad(products, (1, 1, 1, 1))
    taps = (
        padded[:, i * filters : (i + 1) * filters, i // 3 : i // 3 + height, i % 3 : i % 3 + width]
        for i in range(TAPS)
    )
    return functools.reduce(torch.add, taps)


def _takes_ones(step: Convolution) -> bool:
    """Whether a convolution has so few inputs that there is room for one more."""
    return step.weight.shape[1] < LANES and step.weight.shape[2] > 1


def _append_bias(weight: Float[Tensor, "o i k k"], bias: Float[Tensor, " o"]) -> Float[Tensor, "o 8 k k"]:
    """Filters for `_append_ones`: the middle tap of the ones is the bias, which no border reaches."""
    inputs, middle = weight.shape[1], weight.shape[2] // 2
    grown = F.pad(weight, (0, 0, 0, 0, 0, LANES - inputs))
    grown[:, inputs, middle, middle] = bias
    return grown


def _append_ones(x: Float[Tensor, "b i h w"]) -> Float[Tensor, "b 8 h w"]:
    """The channels, one of ones, and zeros up to a full number."""
    ones = F.pad(torch.ones_like(x[:, :1]), (0, 0, 0, 0, 0, LANES - 1 - x.shape[1]))
    return torch.cat((x, ones), 1).contiguous(memory_format=torch.channels_last)


def _only_pads(step: Convolution) -> bool:
    """Whether all that a convolution does is to give channels of zeros beside its input."""
    same = torch.eye(*step.weight.shape[:2])[:, :, None, None]
    return step.stride == 1 and torch.equal(step.weight.cpu(), same) and not step.bias.any()


def by_tap(weight: Float[Tensor, "o i 3 3"]) -> Float[Tensor, "9 i o"]:
    """The filters of a convolution as `triton_kernels` takes them: a matrix for each tap."""
    return weight.permute(2, 3, 1, 0).flatten(0, 1).contiguous()


@torch.library.custom_op("debayes::rectified", mutates_args=())
def _rectified(x: Tensor, weight: Tensor, bias: Tensor, stride: int, padding: int) -> Tensor:
    """relu(convolution) in one pass where cuDNN has it."""
    if x.is_cuda:
        return torch.cudnn_convolution_relu(x, weight, bias, [stride] * 2, [padding] * 2, [1, 1], 1)
    return F.relu(F.conv2d(x, weight, bias, stride, padding)).contiguous(memory_format=torch.channels_last)


@_rectified.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor, stride: int, padding: int) -> Tensor:
    return F.conv2d(x, weight, bias, stride, padding).contiguous(memory_format=torch.channels_last)


@torch.library.custom_op("debayes::rectified_sum", mutates_args=())
def _rectified_sum(x: Tensor, weight: Tensor, bias: Tensor, other: Tensor, stride: int, padding: int) -> Tensor:
    """relu(convolution + other) in one pass where cuDNN has it."""
    if x.is_cuda:
        sides = ([stride] * 2, [padding] * 2, [1, 1])
        return torch.cudnn_convolution_add_relu(x, weight, other, 1.0, bias, *sides, 1)
    found = F.relu(F.conv2d(x, weight, bias, stride, padding) + other)
    return found.contiguous(memory_format=torch.channels_last)


@_rectified_sum.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor, other: Tensor, stride: int, padding: int) -> Tensor:
    return F.conv2d(x, weight, bias, stride, padding).contiguous(memory_format=torch.channels_last)


@torch.library.custom_op("debayes::own", mutates_args=())
def _own(x: Tensor, taps: Tensor, bias: Tensor, other: Tensor | None, rectified: bool) -> Tensor:
    """convolution + other, rectified or not, in one pass on a GPU."""
    if x.is_cuda:
        from debayes.engine.gpu import triton_kernels

        return triton_kernels.convolve(x, taps, bias, other, rectified=rectified)
    weight = taps.view(3, 3, *taps.shape[1:]).permute(3, 2, 0, 1)
    found = F.conv2d(x, weight, bias, padding=1)
    found = found if other is None else found + other
    return (F.relu(found) if rectified else found).contiguous(memory_format=torch.channels_last)


@_own.register_fake
def _(x: Tensor, taps: Tensor, bias: Tensor, other: Tensor | None, rectified: bool) -> Tensor:
    shape = (x.shape[0], len(bias), *x.shape[2:])
    return x.new_empty(shape).contiguous(memory_format=torch.channels_last)


@torch.library.custom_op("debayes::block", mutates_args=())
def _block(x: Tensor, filters: Tensor, bias: Tensor, rectified: bool) -> Tensor:
    """A residual block in one pass on a GPU, of filters as `hopper` has them."""
    if x.is_cuda:
        return hopper.run_block(x, filters, bias, rectified=rectified)
    first, second = (hopper.restore(each) for each in filters)
    between = F.relu(F.conv2d(x, first, bias[0].to(x.dtype), padding=1))
    found = x + F.conv2d(between, second, bias[1].to(x.dtype), padding=1)
    return (F.relu(found) if rectified else found).contiguous(memory_format=torch.channels_last)


@_block.register_fake
def _(x: Tensor, filters: Tensor, bias: Tensor, rectified: bool) -> Tensor:
    return torch.empty_like(x, memory_format=torch.channels_last)
