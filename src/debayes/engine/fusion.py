"""Which steps of a network are done as one: on a GPU a convolution and the sum behind it, or a residual block;
on a CPU 3x3 convolutions in chains, by `winograd`.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from debayes.engine import graph, winograd
from debayes.engine.graph import Concatenation, Convolution, Graph, Rectifier, Shuffle, Step, Sum

# `triton_kernels` does convolutions with so many channels: with more cuDNN is faster, unless a sum follows, for
# which it takes a pass of its own.
NARROWEST, WIDEST = 16, 32


@dataclass(frozen=True)
class Joined:
    """convolution + other, and a rectifier behind it, or none."""

    output: str
    convolution: Convolution
    other: str
    rectified: bool = True


@dataclass(frozen=True)
class Block:
    """x + second convolution of the first, rectified one of x: a residual block, and a rectifier or none."""

    output: str
    first: Convolution
    second: Convolution
    rectified: bool


def join(steps: tuple[Step, ...], *, own: int = 0, blocks: tuple[int, ...] = ()) -> list[Step | Joined | Block]:
    """The steps, with a convolution whose result goes into a sum, and that into a rectifier, as one.

    Those that go into a sum alone too, if `triton_kernels` has them and they have up to `own` channels; and whole
    residual blocks, of the numbers of channels of which `hopper` has `blocks`.
    """
    uses = [name for step in steps for name in graph.inputs_of(step)]
    joined: list[Step | Joined | Block] = []
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
    for total in [step for step in joined if own and isinstance(step, Sum)]:
        plain = [s for s in joined if isinstance(s, Convolution) and not s.rectified and has_kernel(s, own)]
        made = next((s for s in plain if s.output in total.inputs), None)
        if made is not None and uses.count(made.output) == 1:
            (other,) = (name for name in total.inputs if name != made.output)
            joined[joined.index(total)] = Joined(total.output, made, other, rectified=False)
            joined.remove(made)
    for last in [step for step in joined if blocks and isinstance(step, Joined)]:
        first = next((s for s in joined if isinstance(s, Convolution) and s.output == last.convolution.input), None)
        if first is not None and uses.count(first.output) == 1 and _is_block(first, last, blocks):
            joined[joined.index(last)] = Block(last.output, first, last.convolution, last.rectified)
            joined.remove(first)
    return joined


def _is_block(first: Convolution, last: Joined, blocks: tuple[int, ...]) -> bool:
    """Whether two convolutions in a row, the second with a sum, are a residual block that `hopper` has."""
    both = (first, last.convolution)
    same = any(all(each.weight.shape == (channels, channels, 3, 3) for each in both) for channels in blocks)
    plain = all(each.stride == each.padding == 1 for each in both)
    return same and plain and first.rectified and first.input == last.other


def has_kernel(step: Convolution, widest: int) -> bool:
    """Whether `triton_kernels` has such a convolution, of up to so many channels."""
    outputs, inputs, *sides = step.weight.shape
    fits = all(NARROWEST <= each <= widest and each.bit_count() == 1 for each in (outputs, inputs))
    return fits and sides == [3, 3] and step.stride == 1 and step.padding == 1


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


def build(steps: Graph, threads: int | None = None) -> Callable[..., list[Tensor]]:
    """What does the steps, on batches of their inputs. Chains have `threads`, or as many as PyTorch."""
    linked = link(steps)
    order = [(step.inputs if isinstance(step, Chain) else graph.inputs_of(step), step.output) for step in linked]
    last = {name: i for i, (inputs, _) in enumerate(order) for name in inputs if name not in steps.outputs}
    work = [_prepare(step, threads) for step in linked]

    def run(*inputs: Tensor) -> list[Tensor]:
        known = dict(zip(steps.inputs, inputs, strict=True))
        for i, ((needed, output), do) in enumerate(zip(order, work, strict=True)):
            known[output] = do(*(known[name] for name in needed))
            for name in {*needed}:
                if last.get(name) == i:
                    del known[name]
        return [known[name] for name in steps.outputs]

    return run


def _prepare(step: Step | Chain, threads: int | None) -> Callable[..., Tensor]:
    """What does a step."""
    if isinstance(step, Chain):
        layers = zip(step.convolutions, step.summed, strict=True)
        return winograd.Chain(
            tuple(winograd.Layer(each.weight, each.bias, each.rectified, summed) for each, summed in layers),
            threads,
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
