"""A network's steps in half precision, each convolution in one kernel with what follows it.

On a GPU a separate pass that adds a bias or applies a ReLU takes half as long as the convolution before it. cuDNN
does both in the convolution, `triton_kernels` the sum of a residual block too, `hopper` a whole residual block.
torch.compile fuses most of the passes that are left, if it is given operations that it can fuse (`for_compile`).

`build` lowers each step of a graph once to an operation that holds the weights as its kernel reads them
(`operations`). `widest_kernel` and `blocks_of` say which of this project's kernels work on a GPU: each is tested on
small inputs before it is used.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from debayes.engine.fusion import WIDEST, Block, FusedStep, FusedSum, fuse, gpu_rules, has_kernel, inputs_of
from debayes.engine.gpu import hopper, operations
from debayes.engine.gpu.operations import LANES, TAPS, Operation
from debayes.engine.graph import Concatenation, Convolution, Graph, Rectifier, Shuffle, Sum
from debayes.imaging import cfa
from debayes.system.log import log

# cuDNN is slower with fewer filters than this, so the last convolution gets filters of zeros up to this number.
FILTERS = 32

# Channel counts of the Triton kernel that are tried, most first: small GPUs have too little shared memory for 64.
WIDEST_SUMMED = (64, 32)

# Filters of a network for a cell of 2x2 pixels in three colours.
_CELL = 12


@dataclass(frozen=True)
class Instruction:
    """An operation, where its inputs come from and where its result goes."""

    operation: Operation
    inputs: tuple[str, ...]
    output: str
    released: tuple[str, ...]
    """The inputs that no later instruction reads: their memory is released."""


@dataclass(frozen=True)
class Replay:
    """A graph lowered to operations: takes the graph's inputs, of any type, and gives its only output."""

    inputs: tuple[str, ...]
    """The names of the graph's inputs."""
    dtype: torch.dtype
    """What the inputs are converted to."""
    instructions: tuple[Instruction, ...]
    """In the order in which they are run; the last one gives the output."""

    def __call__(self, *inputs: Tensor) -> Tensor:
        values = {
            name: value.to(self.dtype).contiguous(memory_format=torch.channels_last)
            for name, value in zip(self.inputs, inputs, strict=True)
        }
        for instruction in self.instructions:
            arguments = [values[name] for name in instruction.inputs]
            values[instruction.output] = instruction.operation(*arguments)
            for name in instruction.released:
                del values[name]
        return values[self.instructions[-1].output]


def build(
    steps: Graph,
    dtype: torch.dtype,
    *,
    for_compile: bool = False,
    max_fused_channels: int = 0,
    blocks: tuple[int, ...] = (),
    finished: bool = True,
) -> Replay:
    """The steps lowered to operations.

    `max_fused_channels` is the largest number of channels for which `triton_kernels` does convolutions, those
    before a sum and narrow ones with a ReLU: the GPU's `widest_kernel`. `blocks` are the numbers of channels for
    which `hopper` does whole residual blocks: the GPU's `blocks_of`.

    With `for_compile` the result is for torch.compile. The last convolution, if its filters are few, is one product
    of each pixel with all taps, summed where the result is used; the first has its bias as the weight of a channel
    of ones; and channels of zeros come without a convolution.

    Without `finished` the result ends with those products, of which `ending` makes an image.
    """
    plain = [step for step in steps.steps if isinstance(step, Convolution) and not step.rectified]
    last = plain[-1].output if plain else None
    target = _Target(dtype, for_compile, max_fused_channels, finished, last, steps.outputs)
    lowered: list[tuple[Operation, FusedStep]] = []
    for step in fuse(steps, gpu_rules(max_fused_channels, blocks)):
        lowered.append((_lower(step, target), step))
        if isinstance(lowered[-1][0], operations.TapProducts):
            break
    last_reader = {name: step for _, step in lowered for name in inputs_of(step)}
    instructions = []
    for operation, step in lowered:
        released = (name for name in dict.fromkeys(inputs_of(step)) if last_reader[name] is step)
        instructions.append(Instruction(operation, inputs_of(step), step.output, tuple(released)))
    return Replay(steps.inputs, dtype, tuple(instructions))


@dataclass(frozen=True)
class _Target:
    """The arguments of `build`, and what it knows of the whole graph."""

    dtype: torch.dtype
    for_compile: bool
    max_fused_channels: int
    finished: bool
    last: str | None
    """The result of the last convolution without a ReLU."""
    outputs: tuple[str, ...]


def _lower(step: FusedStep, target: _Target) -> Operation:
    """The operation for a step."""
    if isinstance(step, Block):
        return operations.ResidualBlock.of(step, target.dtype)
    if isinstance(step, FusedSum):
        kind = operations.ConvolveAddRectify if step.rectified else operations.ConvolveInTriton
        return kind.of(step.convolution, target.dtype)
    if isinstance(step, Convolution):
        return _lower_convolution(step, target)
    if isinstance(step, Shuffle):
        return operations.DepthToSpace(channels_last=step.output not in target.outputs)
    if isinstance(step, Sum):
        return operations.Add()
    if isinstance(step, Rectifier):
        return operations.Rectify()
    assert isinstance(step, Concatenation)  # chains are for CPUs
    return operations.Concatenate()


def _lower_convolution(step: Convolution, target: _Target) -> Operation:
    """The operation for a convolution, with a ReLU or none."""
    if step.rectified:
        in_triton = has_kernel(step, min(target.max_fused_channels, WIDEST))
        return (operations.ConvolveInTriton if in_triton else operations.ConvolveRectify).of(step, target.dtype)
    if target.for_compile and step.output == target.last and _has_few_filters(step):
        return (operations.ConvolveByTaps if target.finished else operations.TapProducts).of(step, target.dtype)
    if target.for_compile and _only_pads(step):
        return operations.PadChannels(len(step.bias))
    if target.for_compile and step.weight.shape[1] < LANES and step.weight.shape[2] > 1:
        return operations.ConvolveWithOnes.of(step, target.dtype)
    filters = FILTERS if step.output in target.outputs else 0
    return operations.Convolve.of(step, target.dtype, min_filters=filters)


def _has_few_filters(step: Convolution) -> bool:
    """Whether all taps of all filters together are no more than the inputs."""
    return step.weight[0, 0].numel() == TAPS and TAPS * len(step.bias) <= step.weight.shape[1]


def _only_pads(step: Convolution) -> bool:
    """Whether a convolution gives its input and channels of zeros."""
    same = torch.eye(*step.weight.shape[:2])[:, :, None, None]
    return step.stride == 1 and torch.equal(step.weight.cpu(), same) and not step.bias.any()


def ending(steps: Graph) -> Callable[[Tensor, Tensor, slice, slice], Tensor] | None:
    """The last pass on a GPU: some rows and columns of an image, from what `build` gives without `finished` and the
    mosaic. None unless the steps end in such products, a cell of 2x2 pixels in three colours, and depth to space.
    """
    *_, last, shuffle = steps.steps
    if not (isinstance(last, Convolution) and isinstance(shuffle, Shuffle) and len(last.bias) == _CELL):
        return None
    if last.rectified or not _has_few_filters(last):
        return None
    return operations.Finish(last.bias.float())


def widest_kernel(device: torch.device, dtype: torch.dtype) -> int:
    """The largest number of channels for which the Triton kernels pass their self-test on a device; 0 if none.

    Triton comes with PyTorch for most GPUs, not for all.
    """
    return _widest_working(device, dtype) if device.type == "cuda" else 0


def _widest_working(device: torch.device, dtype: torch.dtype) -> int:
    if not _works(_finish_is_right, device, dtype):
        return 0
    working = (channels for channels in WIDEST_SUMMED if _works(_convolution_is_right, device, dtype, channels))
    return next(working, 0)


def blocks_of(device: torch.device, dtype: torch.dtype) -> tuple[int, ...]:
    """The numbers of channels for which the kernel of residual blocks passes its self-test on a device."""
    sizes = hopper.LAUNCHES if hopper.is_hopper(device) else {}
    return tuple(channels for channels in sizes if _works(_block_is_right, device, dtype, channels))


def _works(test: Callable[..., bool], *arguments: Any) -> bool:
    """Whether a kernel passes a self-test. It may fail in any way, as Triton and the compiler raise what they like
    on a GPU that they do not know or that has too little shared memory: networks run without that kernel then."""
    what = f"{test.__name__.strip('_')}{arguments}"
    try:
        passed = test(*arguments)
    except Exception as error:
        log.info("GPU kernel not used: %s failed with %s: %s", what, type(error).__name__, error)
        return False
    if not passed:
        log.info("GPU kernel not used: %s found wrong values", what)
    return passed


def _convolution_is_right(device: torch.device, dtype: torch.dtype, channels: int) -> bool:
    """Whether `triton_kernels.convolve` gives the right values on a small input."""
    generator = torch.Generator(device).manual_seed(0)
    x, other = torch.randn(2, 1, channels, 70, 75, device=device, generator=generator).to(dtype)
    weight = torch.randn(channels, channels, 3, 3, device=device, generator=generator).to(dtype) / 24
    bias = torch.randn(channels, device=device, generator=generator).to(dtype)
    expected = F.conv2d(x.float(), weight.float(), bias.float(), padding=1) + other.float()
    y = operations.triton_convolution(x, operations.tap_matrices(weight), bias, other, False)
    return bool((y.float() - expected).square().mean().sqrt() < 0.01)


def _block_is_right(device: torch.device, dtype: torch.dtype, channels: int) -> bool:
    """Whether `hopper.run_block` gives the right values on a small input."""
    generator = torch.Generator(device).manual_seed(0)
    x = torch.randn(2, channels, 70, 150, device=device, generator=generator).to(dtype)
    shape = (2, channels, channels, 3, 3)
    weights = (torch.randn(shape, device=device, generator=generator) / 24).to(dtype)
    bias = torch.randn(2, channels, device=device, generator=generator)
    between = F.relu(F.conv2d(x.float(), weights[0].float(), bias[0], padding=1))
    expected = x.float() + F.conv2d(between, weights[1].float(), bias[1], padding=1)
    filters = torch.stack([hopper.arrange_filters(operations.tap_matrices(weight)) for weight in weights])
    y = operations.residual_block(x, filters, bias, False)
    return bool((y.float() - expected).square().mean().sqrt() < 0.01)


def _finish_is_right(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether `triton_kernels.finish` gives the right image on small inputs."""
    generator = torch.Generator(device).manual_seed(0)
    mosaic = torch.rand(1, 1, 20, 150, device=device, generator=generator)
    products = torch.rand(1, 112, 10, 75, device=device, generator=generator).to(dtype)
    bias = torch.rand(_CELL, device=device, generator=generator)
    rows, columns = slice(1, 19), slice(3, 148)
    residual = F.pixel_shuffle(operations.add_taps(products.float(), _CELL) + bias.view(-1, 1, 1), 2)
    expected = residual + cfa.interpolate(mosaic)
    y = operations.Finish(bias)(products, mosaic, rows, columns)
    return bool((y - expected[..., rows, columns]).abs().max() < 1e-3)
