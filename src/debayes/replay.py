"""A network's steps replayed in half precision, each convolution in one kernel with what follows it.

On a GPU a pass over features that adds a bias, or rectifies, takes half as long as the convolution before it: cuDNN
does both on the way. What is left for other passes torch.compile makes one of.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from debayes import graph
from debayes.graph import Convolution, Graph, Rectifier, Shuffle, Step, Sum

# cuDNN is slower with fewer filters than this, so the last convolution gets some that give zeros.
FILTERS = 32


@dataclass(frozen=True)
class Joined:
    """relu(convolution + other)."""

    output: str
    convolution: Convolution
    other: str


def join(steps: tuple[Step, ...]) -> list[Step | Joined]:
    """The steps, with a convolution whose result goes into a sum, and that into a rectifier, as one."""
    uses = [name for step in steps for name in graph.inputs_of(step)]
    joined: list[Step | Joined] = []
    for step in steps:
        total = joined[-1] if joined else None
        if isinstance(step, Rectifier) and isinstance(total, Sum) and total.output == step.input:
            plain = [s for s in joined if isinstance(s, Convolution) and not s.rectified]
            made = next((s for s in reversed(plain) if s.output in total.inputs), None)
            if made is not None and uses.count(made.output) == 1 and uses.count(total.output) == 1:
                (other,) = (name for name in total.inputs if name != made.output)
                joined = [s for s in joined if s is not total and s is not made]
                joined.append(Joined(step.output, made, other))
                continue
        joined.append(step)
    return joined


def build(steps: Graph, dtype: torch.dtype) -> Callable[..., Tensor]:
    """What does the steps: takes their inputs, of any type, and gives their only output."""
    todo = join(steps.steps)
    (output,) = steps.outputs
    arrays: dict[str, tuple[Tensor, Tensor]] = {}
    for step in todo:
        convolution = step.convolution if isinstance(step, Joined) else step
        if isinstance(convolution, Convolution):
            lack = max(0, FILTERS - len(convolution.bias)) if convolution.output == output else 0
            weight = F.pad(convolution.weight, (0, 0, 0, 0, 0, 0, 0, lack))
            bias = F.pad(convolution.bias, (0, lack))
            layout = torch.channels_last
            arrays[convolution.output] = (weight.to(dtype).contiguous(memory_format=layout), bias.to(dtype))
    last = {name: i for i, step in enumerate(todo) for name in _inputs(step)}
    sizes = {s.output: len(s.bias) for s in steps.steps if isinstance(s, Convolution)}

    def run(*inputs: Tensor) -> Tensor:
        layout = torch.channels_last
        values = {
            name: value.to(dtype).contiguous(memory_format=layout)
            for name, value in zip(steps.inputs, inputs, strict=True)
        }
        for i, step in enumerate(todo):
            if isinstance(step, Joined):
                weight, bias = arrays[step.convolution.output]
                x, other = values[step.convolution.input], values[step.other]
                result = _rectified_sum(x, weight, bias, other, step.convolution.stride, step.convolution.padding)
            elif isinstance(step, Convolution):
                weight, bias = arrays[step.output]
                x = values[step.input]
                if step.rectified:
                    result = _rectified(x, weight, bias, step.stride, step.padding)
                else:
                    # The bias is added with what follows: cuDNN would need a pass of its own for it.
                    result = F.conv2d(x, weight, None, step.stride, step.padding) + bias.view(-1, 1, 1)
                result = result[:, : sizes[step.output]]
            elif isinstance(step, Sum):
                result = values[step.inputs[0]] + values[step.inputs[1]]
            elif isinstance(step, Rectifier):
                result = F.relu(values[step.input])
            elif isinstance(step, Shuffle):
                result = F.pixel_shuffle(values[step.input], 2).contiguous(memory_format=layout)
            else:
                result = torch.cat([values[name] for name in step.inputs], 1)
            values[step.output] = result
            for name in _inputs(step):
                if last[name] == i:
                    values.pop(name, None)
        return values[output]

    return run


def _inputs(step: Step | Joined) -> tuple[str, ...]:
    return (step.convolution.input, step.other) if isinstance(step, Joined) else graph.inputs_of(step)


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
