"""A network's steps on a CPU: 3x3 convolutions in chains by `winograd`, the others by PyTorch."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from debayes.engine import graph, winograd
from debayes.engine.graph import Concatenation, Convolution, Graph, Rectifier, Shuffle, Step, Sum

# Convolutions of a chain at most. Each but the last makes a column more on either side of a strip.
LONGEST = 5


@dataclass(frozen=True)
class Chain:
    """3x3 convolutions one after the other, the first of them on its inputs side by side."""

    output: str
    inputs: tuple[str, ...]
    convolutions: tuple[Convolution, ...]
    summed: tuple[bool, ...]
    """Of which of them the input of the one before is added."""


def link(steps: Graph) -> list[Step | Chain]:
    """The steps, with as many of them as can be in chains: whole residual blocks, and what is before and behind."""
    uses = Counter([name for step in steps.steps for name in graph.inputs_of(step)] + list(steps.outputs))
    linked: list[Step | Chain] = []
    side_by_side: dict[str, Concatenation] = {}
    for step in steps.steps:
        if isinstance(step, Convolution) and step.weight.shape[2:] == (3, 3) and step.stride == step.padding == 1:
            inputs: tuple[str, ...] = (step.input,)
            if step.input in side_by_side:
                together = side_by_side[step.input]
                linked = [each for each in linked if each is not together]
                inputs = together.inputs
            linked.append(Chain(step.output, inputs, (step,), (False,)))
        elif isinstance(step, Sum) and (block := _close(linked, step, uses)) is not None:
            linked[-2:] = [block]
        else:
            linked.append(step)
            if isinstance(step, Concatenation) and uses[step.output] == 1:
                side_by_side[step.output] = step
    return _lengthen(linked, uses)


def _close(linked: list[Step | Chain], total: Sum, uses: Counter[str]) -> Chain | None:
    """The last two steps and their sum as a residual block, if that is what they are."""
    if len(linked) < 2:
        return None
    first, second = linked[-2:]
    if not (isinstance(first, Chain) and isinstance(second, Chain)):
        return None
    alone = uses[first.output] == uses[second.output] == 1 and not second.convolutions[-1].rectified
    if not alone or second.inputs != (first.output,) or {*total.inputs} != {*first.inputs, second.output}:
        return None
    seen, made = first.convolutions[0].weight.shape[1], second.convolutions[-1].weight.shape[0]
    if len(first.convolutions) > 1 or len(second.convolutions) > 1 or seen != made:
        return None
    return Chain(total.output, first.inputs, first.convolutions + second.convolutions, (False, True))


def _lengthen(linked: list[Step | Chain], uses: Counter[str]) -> list[Step | Chain]:
    """Chains that follow each other as one, if nothing else needs what is between them."""
    longer: list[Step | Chain] = []
    for step in linked:
        before = longer[-1] if longer else None
        if (
            isinstance(step, Chain)
            and isinstance(before, Chain)
            and step.inputs == (before.output,)
            and uses[before.output] == 1 + any(step.summed[1:2])
            and len(before.convolutions) + len(step.convolutions) <= LONGEST
        ):
            convolutions = before.convolutions + step.convolutions
            longer[-1] = Chain(step.output, before.inputs, convolutions, before.summed + step.summed)
        else:
            longer.append(step)
    return longer


def build(steps: Graph) -> Callable[..., list[Tensor]]:
    """What does the steps, on batches of their inputs."""
    linked = link(steps)
    order = [(step.inputs if isinstance(step, Chain) else graph.inputs_of(step), step.output) for step in linked]
    last = {name: i for i, (inputs, _) in enumerate(order) for name in inputs if name not in steps.outputs}
    work = [_prepare(step) for step in linked]

    def run(*inputs: Tensor) -> list[Tensor]:
        known = dict(zip(steps.inputs, inputs, strict=True))
        for i, ((needed, output), do) in enumerate(zip(order, work, strict=True)):
            known[output] = do(*(known[name] for name in needed))
            for name in {*needed}:
                if last.get(name) == i:
                    del known[name]
        return [known[name] for name in steps.outputs]

    return run


def _prepare(step: Step | Chain) -> Callable[..., Tensor]:
    """What does a step."""
    if isinstance(step, Chain):
        layers = zip(step.convolutions, step.summed, strict=True)
        return winograd.Chain(
            tuple(winograd.Layer(each.weight, each.bias, each.rectified, summed) for each, summed in layers)
        )
    if isinstance(step, Convolution):
        weight = step.weight.contiguous(memory_format=torch.channels_last)
        stride, padding, rectified, bias = step.stride, step.padding, step.rectified, step.bias

        def convolve(x: Tensor) -> Tensor:
            y = F.conv2d(x, weight, bias, stride, padding)
            return y.relu_() if rectified else y

        return convolve
    if isinstance(step, Sum):
        return torch.add
    if isinstance(step, Rectifier):
        return F.relu
    if isinstance(step, Shuffle):
        return lambda x: F.pixel_shuffle(x, 2)
    return lambda *parts: torch.cat(parts, 1)
