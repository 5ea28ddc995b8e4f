"""A network's body as a short list of steps, from which it can be rebuilt in other runtimes.

`trace` runs a body and records its operations: convolutions (with the rectifier that follows, if one does), sums,
depth to space, concatenations. `onnx` and `ncnn` turn the list into files of those runtimes; `fusion` and
`gpu.replay` run the steps.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from debayes.network.network import Network


@dataclass(frozen=True)
class Convolution:
    """A convolution with bias, and with a rectifier behind it if `rectified`."""

    output: str
    input: str
    weight: Float[Tensor, "o i k k"]
    bias: Float[Tensor, " o"]
    stride: int
    padding: int
    rectified: bool


@dataclass(frozen=True)
class Sum:
    """The sum of two features."""

    output: str
    inputs: tuple[str, str]


@dataclass(frozen=True)
class Rectifier:
    """max(x, 0), where it does not follow a convolution."""

    output: str
    input: str


@dataclass(frozen=True)
class Shuffle:
    """Depth to space: four channels become one of twice the height and width (PyTorch's pixel shuffle)."""

    output: str
    input: str


@dataclass(frozen=True)
class Concatenation:
    """Features concatenated as channels."""

    output: str
    inputs: tuple[str, ...]


Step = Convolution | Sum | Rectifier | Shuffle | Concatenation


@dataclass(frozen=True)
class Graph:
    """Steps in an order in which they can run. Each result has a unique name."""

    inputs: tuple[str, ...]
    steps: tuple[Step, ...]
    outputs: tuple[str, ...]


def inputs_of(step: Step) -> tuple[str, ...]:
    """The names of what a step needs."""
    return step.inputs if isinstance(step, Sum | Concatenation) else (step.input,)


class _Recorder(TorchFunctionMode):
    """Records the calls of PyTorch's functions."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Sequence[Any], Any]] = []

    def __torch_function__(
        self, operation: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = operation(*args, **(kwargs or {}))
        self.calls.append((operation, args, result))  # keeping the result keeps its id unique
        return result


def trace(body: nn.Module, *examples: Tensor) -> Graph:
    """The steps of a body for inputs like the examples. Raises TypeError for an operation that is no `Step`."""
    with torch.no_grad(), _Recorder() as recorder:
        result = body(*examples)
    results = result if isinstance(result, tuple) else (result,)
    inputs = tuple(signature(body.forward).parameters)[: len(examples)]
    known = {id(example): name for example, name in zip(examples, inputs, strict=True)}
    arguments = [part for _, args, _ in recorder.calls for part in args]
    uses = Counter(id(each) for part in arguments for each in (part if isinstance(part, tuple | list) else (part,)))
    uses.update(map(id, results))
    steps: list[Step] = []

    def add(kind: type[Step], result: Tensor, *parts: Any) -> None:
        known[id(result)] = f"{kind.__name__.lower()}{len(steps)}"
        steps.append(kind(known[id(result)], *parts))

    for operation, args, result in recorder.calls:
        if operation is torch.conv2d and args[5:] == ((1, 1), 1):
            source, weight, bias, stride, padding = args[:5]
            arrays = (weight.detach(), bias.detach())
            add(Convolution, result, known[id(source)], *arrays, stride[0], padding[0], False)
        elif operation is F.relu:
            source, before = args[0], steps[-1] if steps else None
            if isinstance(before, Convolution) and before.output == known[id(source)] and uses[id(source)] == 1:
                steps[-1] = replace(before, rectified=True)
                known[id(result)] = before.output
            else:
                add(Rectifier, result, known[id(source)])
        elif operation in (torch.add, Tensor.add):
            add(Sum, result, (known[id(args[0])], known[id(args[1])]))
        elif operation is torch.pixel_shuffle and args[1] == 2:
            add(Shuffle, result, known[id(args[0])])
        elif operation is torch.cat:
            add(Concatenation, result, tuple(known[id(part)] for part in args[0]))
        else:
            raise TypeError(f"the operation {operation.__name__} of a network is not one of the steps of a graph")
    return Graph(inputs, tuple(steps), tuple(known[id(result)] for result in results))


def examples(network: Network) -> tuple[Tensor, Tensor]:
    """Inputs of the smallest size that a network's body takes: packed planes and the interpolated mosaic."""
    size, device = network.config.stride, network.device
    return torch.zeros(1, 4, size, size, device=device), torch.zeros(1, 3, 2 * size, 2 * size, device=device)
