"""Which steps of a network are done as one on a GPU: a convolution and the sum behind it, a residual block."""

from dataclasses import dataclass

from debayes.engine import graph
from debayes.engine.graph import Convolution, Rectifier, Step, Sum

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
