"""A network's convolutions as a short list of steps, which other runtimes than PyTorch can be told.

`trace` follows a network's body and writes down what it does: convolutions (with the rectifier that follows, if
one does), sums, depth to space, concatenations. `exchange` turns the list into files of other runtimes.

`fold` gives a body in stages that does less work for the same result. Between the last features at half resolution
and the rectifier at full resolution all is linear, the look at the interpolated mosaic too: one convolution at half
resolution does what a 1x1 convolution, depth to space, two convolutions and a sum did. Only within a few photosites
of the border, which `restoration` cuts off, is the result another.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, fx, nn
from torch.fx.experimental.proxy_tensor import make_fx

from debayes import cfa
from debayes.model import Network, UNet

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


# Channels that the planes get beside the features.
_LANES = 16


class Descent(nn.Module):
    """The way down a U-Net and its bottom: from packed planes to its features and those that skip it."""

    def __init__(self, body: UNet) -> None:
        super().__init__()
        self.head, self.bottom = body.head, body.bottom
        self.down, self.shrink = body.down, body.shrink

    def forward(self, planes: Tensor) -> tuple[Tensor, ...]:
        x = self.head(planes)
        skips: list[Tensor] = []
        for blocks, shrink in zip(self.down, self.shrink, strict=True):
            x = blocks(x)
            skips.append(x)
            x = shrink(x)
        return self.bottom(x), *skips


class Climb(nn.Module):
    """A level of the way up: from the features of the level below, and those that skipped it."""

    def __init__(self, body: UNet, level: int) -> None:
        super().__init__()
        self.grow, self.blocks = body.grow[level], body.up[level]

    def forward(self, below: Tensor, skipped: Tensor) -> Tensor:
        features: Tensor = self.blocks(F.pixel_shuffle(self.grow(below), 2) + skipped)
        return features


class Tail(nn.Module):
    """What is left to do at full resolution: from those features, and the planes again, to the maps."""

    def __init__(self, body: UNet) -> None:
        super().__init__()
        self.blocks, self.maps = body.tail, body.maps
        unpack, mix, look = (deepcopy(layer).cpu().double() for layer in (body.unpack, body.mix, body.look))
        width = unpack.in_channels
        features, feature_bias = _kernel(lambda x: mix(F.pixel_shuffle(unpack(x), 2)), width)
        planes, plane_bias = _kernel(lambda x: look(cfa.interpolate(F.pixel_shuffle(x, 2))), 4)
        # The planes come to the features as channels of a number that vector and matrix units like.
        self.spread = nn.Conv2d(4, _LANES, 1)
        self.spread.load_state_dict({"weight": torch.eye(_LANES)[:, :4, None, None], "bias": torch.zeros(_LANES)})
        unused = features.new_zeros(features.shape[0], _LANES - 4, 3, 3)
        weight = torch.cat((features, planes, unused), 1)
        self.widen = nn.Conv2d(weight.shape[1], weight.shape[0], 3, padding=1)
        self.widen.load_state_dict({"weight": weight, "bias": feature_bias + plane_bias})
        self.requires_grad_(False)

    def forward(self, features: Tensor, planes: Tensor) -> Tensor:
        x = self.widen(torch.cat((features, self.spread(planes)), 1))
        if len(self.blocks) == 0:  # the rectifier is the same on either side of the shuffle, and free on this one
            maps: Tensor = self.maps(F.pixel_shuffle(F.relu(x), 2))
            return maps
        maps = self.maps(F.relu(self.blocks(F.pixel_shuffle(x, 2))))
        return maps

    @property
    def reach(self) -> int:
        """How many cells of two by two photosites a pixel may look aside."""
        return 2 + len(self.blocks)


class Folded(nn.Module):
    """A U-Net's body in stages, which takes the packed planes alone; `fold` makes it."""

    def __init__(self, body: UNet) -> None:
        super().__init__()
        self.descent, self.tail = Descent(body), Tail(body)
        self.climbs = nn.ModuleList(Climb(body, level) for level in range(len(body.up)))

    def forward(self, planes: Tensor) -> Tensor:
        x, *skips = self.descent(planes)
        for climb, skipped in zip(reversed(self.climbs), reversed(skips), strict=True):
            x = climb(x, skipped)
        maps: Tensor = self.tail(x, planes)
        return maps


def fold(network: Network) -> Folded:
    """The body of a U-Net with less work to do."""
    if not isinstance(network.body, UNet):
        raise ValueError(f"only a U-Net can be folded, not the {network.config.architecture!r} network")
    return Folded(network.body).to(network.device)


def _kernel(
    linear: Callable[[Tensor], Tensor], channels: int
) -> tuple[Float[Tensor, "o {channels} 3 3"], Float[Tensor, " o"]]:
    """Weights and bias of a map from half to full resolution that is a 3x3 convolution before depth to space.

    They are read off what it makes of nothing, and of a single 1 in each channel.
    """
    size, middle = 7, 3
    one = torch.zeros(channels + 1, channels, size, size, dtype=torch.float64)
    one[range(channels), range(channels), middle, middle] = 1
    response = F.pixel_unshuffle(linear(one), 2)
    bias = response[-1, :, middle, middle]
    near = response[:-1, :, middle - 1 : middle + 2, middle - 1 : middle + 2] - bias[:, None, None]
    return near.flip(2, 3).transpose(0, 1), bias


def examples(network: Network) -> tuple[Tensor, Tensor]:
    """Inputs of the smallest size that a network's body takes: packed planes, and the mosaic interpolated."""
    size, device = network.config.stride, network.device
    return torch.zeros(1, 4, size, size, device=device), torch.zeros(1, 3, 2 * size, 2 * size, device=device)
