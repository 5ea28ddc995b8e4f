"""Fusing the steps of a network: several steps become one that a single kernel computes.

`fuse` applies rules to a graph, one after the other. A rule looks at one step and at the steps before it, and
either keeps the step or gives a fused one and the steps that are absorbed into it. `gpu_rules` are for `gpu.replay`
(a convolution with the sum behind it, residual blocks), `CHAINS` for `winograd` (chains of 3x3 convolutions);
`build` runs a graph with those chains.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from debayes.engine import graph, winograd
from debayes.engine.graph import Concatenation, Convolution, Graph, Rectifier, Shuffle, Step, Sum

# Channels of convolutions for which `triton_kernels` is used. With more, cuDNN is faster, unless a sum follows,
# which would cost cuDNN another pass.
NARROWEST, WIDEST = 16, 32

# The most convolutions of a chain. Each but the last adds a column on either side of a strip.
LONGEST = 5


@dataclass(frozen=True)
class FusedSum:
    """convolution + other, and a rectifier behind it if `rectified`."""

    output: str
    convolution: Convolution
    other: str
    rectified: bool = True


@dataclass(frozen=True)
class Block:
    """x + second(relu(first(x))): a residual block, and a rectifier behind it if `rectified`."""

    output: str
    first: Convolution
    second: Convolution
    rectified: bool


@dataclass(frozen=True)
class Chain:
    """3x3 convolutions one after the other; the first takes its inputs concatenated as channels."""

    output: str
    inputs: tuple[str, ...]
    convolutions: tuple[Convolution, ...]
    summed: tuple[bool, ...]
    """`summed[i]`: convolution i adds the input of convolution i - 1."""


FusedStep = Step | FusedSum | Block | Chain


@dataclass(frozen=True)
class Context:
    """The steps before the one that a rule looks at, after fusion."""

    producers: Mapping[str, FusedStep]
    """The steps by the names of their results, in order."""
    uses: Mapping[str, int]
    """How often each result is needed, by steps and as an output of the graph."""

    def only_for_this(self, name: str) -> FusedStep | None:
        """The step that gives a result, if nothing but the step in question needs that."""
        return self.producers.get(name) if self.uses[name] == 1 else None


# A fused step and the steps that it absorbs beside the one it is made of, or None to keep that one.
Match = tuple[FusedStep, tuple[FusedStep, ...]] | None
Rule = Callable[[FusedStep, Context], Match]


def fuse(steps: Graph, rules: Iterable[Rule]) -> tuple[FusedStep, ...]:
    """The steps of a graph after applying the rules one after the other, each to all steps."""
    fused: tuple[FusedStep, ...] = steps.steps
    for rule in rules:
        fused = _apply(rule, fused, steps.outputs)
    return fused


def _apply(rule: Rule, steps: Sequence[FusedStep], outputs: Sequence[str]) -> tuple[FusedStep, ...]:
    uses = Counter([name for step in steps for name in inputs_of(step)] + list(outputs))
    done: dict[str, FusedStep] = {}
    for step in steps:
        made, absorbed = rule(step, Context(done, uses)) or (step, ())
        for each in absorbed:
            del done[each.output]
        done[made.output] = made
    return tuple(done.values())


def inputs_of(step: FusedStep) -> tuple[str, ...]:
    """The names of what a step needs."""
    if isinstance(step, FusedSum):
        return step.convolution.input, step.other
    if isinstance(step, Block):
        return (step.first.input,)
    return step.inputs if isinstance(step, Chain) else graph.inputs_of(step)


def gpu_rules(max_fused_channels: int = 0, blocks: Sequence[int] = ()) -> tuple[Rule, ...]:
    """The rules for a GPU.

    cuDNN adds a sum to a convolution if a rectifier follows. `triton_kernels` does so without one, for up to
    `max_fused_channels` channels; `hopper` has residual blocks with as many channels as `blocks` lists.
    """
    return (_fuse_rectified_sum, partial(_fuse_sum, most=max_fused_channels), partial(_fuse_block, channels=blocks))


def _fuse_rectified_sum(step: FusedStep, context: Context) -> Match:
    """Rectifier of a sum with a convolution -> FusedSum."""
    total = context.only_for_this(step.input) if isinstance(step, Rectifier) else None
    if not isinstance(total, Sum):
        return None
    terms = _convolutions(total, context)
    if not terms or context.only_for_this(terms[-1].output) is None:
        return None
    return FusedSum(step.output, terms[-1], _other(total, terms[-1])), (total, terms[-1])


def _fuse_sum(step: FusedStep, context: Context, most: int) -> Match:
    """Sum with a convolution that `triton_kernels` has, of up to `most` channels -> FusedSum without rectifier."""
    if not isinstance(step, Sum):
        return None
    terms = [each for each in _convolutions(step, context) if has_kernel(each, most)]
    if not terms or context.only_for_this(terms[0].output) is None:
        return None
    return FusedSum(step.output, terms[0], _other(step, terms[0]), rectified=False), (terms[0],)


def _convolutions(total: Sum, context: Context) -> list[Convolution]:
    """The terms of a sum that are convolutions without a rectifier, in the order in which they are computed."""
    before = context.producers.values()
    return [s for s in before if isinstance(s, Convolution) and not s.rectified and s.output in total.inputs]


def _other(total: Sum, term: Convolution) -> str:
    """The name of the other term of a sum."""
    first, second = total.inputs
    return second if first == term.output else first


def _fuse_block(step: FusedStep, context: Context, channels: Sequence[int]) -> Match:
    """FusedSum of a convolution of a rectified convolution of the other term -> Block."""
    first = context.only_for_this(step.convolution.input) if isinstance(step, FusedSum) else None
    if not isinstance(step, FusedSum) or not isinstance(first, Convolution):
        return None
    both = (first, step.convolution)
    same = any(all(each.weight.shape == (n, n, 3, 3) for each in both) for n in channels)
    plain = all(each.stride == each.padding == 1 for each in both)
    if not (same and plain and first.rectified and first.input == step.other):
        return None
    return Block(step.output, *both, step.rectified), (first,)


def has_kernel(step: Convolution, widest: int) -> bool:
    """Whether `triton_kernels` has a convolution, with at most `widest` channels."""
    outputs, inputs, *sides = step.weight.shape
    fits = all(NARROWEST <= each <= widest and each.bit_count() == 1 for each in (outputs, inputs))
    return fits and sides == [3, 3] and step.stride == 1 and step.padding == 1


def _start_chain(step: FusedStep, context: Context) -> Match:
    """3x3 convolution -> Chain, which absorbs the concatenation of its inputs."""
    if not isinstance(step, Convolution) or step.weight.shape[2:] != (3, 3) or not step.stride == step.padding == 1:
        return None
    before = context.only_for_this(step.input)
    if isinstance(before, Concatenation):
        return Chain(step.output, before.inputs, (step,), (False,)), (before,)
    return Chain(step.output, (step.input,), (step,), (False,)), ()


def _close_residual(step: FusedStep, context: Context) -> Match:
    """Sum of two chained convolutions and their input -> one Chain: a residual block."""
    for name, other in (step.inputs, step.inputs[::-1]) if isinstance(step, Sum) else ():
        second = context.only_for_this(name)
        first = context.only_for_this(second.inputs[0]) if isinstance(second, Chain) else None
        if not isinstance(second, Chain) or not isinstance(first, Chain):
            continue
        both = first.convolutions + second.convolutions
        same = both[0].weight.shape[1] == both[-1].weight.shape[0]
        if len(both) == 2 and first.inputs == (other,) and same and not both[1].rectified:
            return Chain(step.output, first.inputs, both, (False, True)), (first, second)
    return None


def _extend_chain(step: FusedStep, context: Context) -> Match:
    """Chain behind a chain -> one Chain, unless it were too long."""
    before = context.only_for_this(step.inputs[0]) if isinstance(step, Chain) and len(step.inputs) == 1 else None
    if not isinstance(step, Chain) or not isinstance(before, Chain):
        return None
    convolutions = before.convolutions + step.convolutions
    if len(convolutions) > LONGEST:
        return None
    return Chain(step.output, before.inputs, convolutions, before.summed + step.summed), (before,)


# The rules for `winograd`.
CHAINS: tuple[Rule, ...] = (_start_chain, _close_residual, _extend_chain)


def build(steps: Graph, threads: int | None = None) -> Callable[..., list[Tensor]]:
    """A function that runs the steps on batches of their inputs; chains use `threads`, or as many as PyTorch."""
    fused = fuse(steps, CHAINS)
    order = [(inputs_of(step), step.output) for step in fused]
    last = {name: i for i, (inputs, _) in enumerate(order) for name in inputs if name not in steps.outputs}
    operations = [_operation(step, threads) for step in fused]

    def run(*inputs: Tensor) -> list[Tensor]:
        known = dict(zip(steps.inputs, inputs, strict=True))
        for i, ((needed, output), operation) in enumerate(zip(order, operations, strict=True)):
            known[output] = operation(*(known[name] for name in needed))
            for name in {*needed}:
                if last.get(name) == i:
                    del known[name]
        return [known[name] for name in steps.outputs]

    return run


def _operation(step: FusedStep, threads: int | None) -> Callable[..., Tensor]:
    """The function that computes a step from its inputs."""
    if isinstance(step, Chain):
        layers = zip(step.convolutions, step.summed, strict=True)
        return winograd.Chain(
            tuple(winograd.Layer(each.weight, each.bias, each.rectified, summed) for each, summed in layers),
            threads,
        )
    if isinstance(step, Convolution):
        return partial(_convolve, step, step.weight.contiguous(memory_format=torch.channels_last))
    if isinstance(step, Sum):
        return torch.add
    if isinstance(step, Rectifier):
        return F.relu
    if isinstance(step, Shuffle):
        return lambda x: F.pixel_shuffle(x, 2)
    return lambda *parts: torch.cat(parts, 1)


def _convolve(step: Convolution, weight: Tensor, x: Tensor) -> Tensor:
    """A convolution, with its weight in another memory layout."""
    y = F.conv2d(x, weight, step.bias, step.stride, step.padding)
    return y.relu_() if step.rectified else y
