"""A network's convolutions as a short list of steps, which other runtimes than PyTorch can be told.

`trace` follows a network's body and writes down what it does: convolutions (with the rectifier that follows, if
one does), sums, depth to space, concatenations. `exchange` turns the list into files of other runtimes.
"""

from dataclasses import dataclass, replace
from inspect import signature
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, fx, nn
from torch.fx.experimental.proxy_tensor import make_fx

from debayes.model import Network

aten = torch.ops.aten


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
    """Features side by side, as channels of one."""

    output: str
    inputs: tuple[str, ...]


Step = Convolution | Sum | Rectifier | Shuffle | Concatenation


@dataclass(frozen=True)
class Graph:
    """Steps in an order in which they can be done; each has a name of its own for what it gives."""

    inputs: tuple[str, ...]
    steps: tuple[Step, ...]
    outputs: tuple[str, ...]


def inputs_of(step: Step) -> tuple[str, ...]:
    """The names of what a step needs."""
    return step.inputs if isinstance(step, Sum | Concatenation) else (step.input,)


def trace(body: nn.Module, *examples: Tensor) -> Graph:
    """What a body does with inputs like the examples, in steps. Raises TypeError at an operation that is none."""
    with torch.no_grad():
        traced = make_fx(body)(*examples)
    inputs = tuple(signature(body.forward).parameters)[: len(examples)]
    names = iter(inputs)
    steps: list[Step] = []
    known: dict[fx.Node, str] = {}  # what a node's result is called
    arrays: dict[fx.Node, Tensor] = {}
    outputs: tuple[str, ...] = ()

    def add(node: fx.Node, kind: type[Step], *parts: Any) -> None:
        known[node] = node.name
        steps.append(kind(node.name, *parts))

    for node in traced.graph.nodes:
        operation = node.target
        if node.op == "placeholder":
            known[node] = next(names)
        elif node.op == "get_attr":
            arrays[node] = getattr(traced, str(operation)).detach()
        elif operation is aten.detach.default:
            arrays[node] = arrays[node.args[0]]
        elif operation is aten.convolution.default:
            source, weight, bias, stride, padding = node.args[:5]
            add(node, Convolution, known[source], arrays[weight], arrays[bias], stride[0], padding[0], False)
        elif operation is aten.relu.default:
            source = node.args[0]
            before = steps[-1]
            if isinstance(before, Convolution) and before.output == known[source] and len(source.users) == 1:
                steps[-1] = replace(before, rectified=True)
                known[node] = before.output
            else:
                add(node, Rectifier, known[source])
        elif operation is aten.add.Tensor:
            add(node, Sum, (known[node.args[0]], known[node.args[1]]))
        elif operation is aten.pixel_shuffle.default and node.args[1] == 2:
            add(node, Shuffle, known[node.args[0]])
        elif operation is aten.cat.default:
            add(node, Concatenation, tuple(known[part] for part in node.args[0]))
        elif node.op == "output":
            given = node.args[0]
            outputs = tuple(known[part] for part in (given if isinstance(given, tuple | list) else (given,)))
        else:
            raise TypeError(f"a network's step {node.format_node()} is not one that other runtimes are told of")
    return Graph(inputs, tuple(steps), outputs)


def examples(network: Network) -> tuple[Tensor, Tensor]:
    """Inputs of the smallest size that a network's body takes: packed planes, and the mosaic interpolated."""
    size, device = network.config.stride, network.device
    return torch.zeros(1, 4, size, size, device=device), torch.zeros(1, 3, 2 * size, 2 * size, device=device)
