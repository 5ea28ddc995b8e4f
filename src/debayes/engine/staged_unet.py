"""A U-Net in stages, which do less work for the same pixels than the whole of it.

Two savings. Between the last features at half resolution and the rectifier at full resolution all is linear, the
look at the interpolated mosaic too: `fold` has one convolution at half resolution do what a 1x1 convolution, depth
to space, two convolutions and a sum did. Only within a few photosites of the border, which `restoration` cuts off,
is the result another. And of a window that is larger than its tile only the way down needs all: `stage` gives the
later stages what they still need.

Depth to space can come last of all (`late`): four times the multiplications of one small convolution, and no pass
over all features at full resolution. That is for GPUs, whose matrix units are idle while features are moved, and
for convolutions in chains (`fusion`).
"""

from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from debayes.engine import graph
from debayes.engine.graph import Graph
from debayes.imaging import cfa
from debayes.network.network import Network
from debayes.network.unet import UNet
from debayes.posterior.nig import NormalInverseGamma

# What runs a network on a window of photosites: gives the posterior of some rows and columns of it, whole or in
# bands of rows from the top.
Run = Callable[[Tensor, slice, slice], Iterable[NormalInverseGamma]]

# Rows of cells that are done at a time at full resolution.
STRIP = 192

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

    @property
    def reach(self) -> int:
        """How many of its cells a feature may look aside."""
        return 2 * len(list(self.blocks.children()))


class Tail(nn.Module):
    """What is left to do at full resolution: from those features, and the planes again, to the maps."""

    def __init__(self, body: UNet, late: bool = False) -> None:
        super().__init__()
        self.blocks, self.maps = body.tail, body.maps
        self.packed = _pack(body.maps) if late and len(body.tail) == 0 else None
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
        if self.packed is not None:
            return F.pixel_shuffle(self.packed(F.relu(x)), 2)
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

    def __init__(self, body: UNet, late: bool) -> None:
        super().__init__()
        self.descent, self.tail = Descent(body), Tail(body, late)
        self.climbs = nn.ModuleList(Climb(body, level) for level in range(len(body.up)))

    def forward(self, planes: Tensor) -> Tensor:
        x, *skips = self.descent(planes)
        for climb, skipped in zip(reversed(self.climbs), reversed(skips), strict=True):
            x = climb(x, skipped)
        maps: Tensor = self.tail(x, planes)
        return maps


def fold(network: Network, *, late: bool = False) -> Folded:
    """The body of a U-Net with less work to do; with `late` depth to space comes last."""
    if not isinstance(network.body, UNet):
        raise ValueError(f"only a U-Net can be folded, not the {network.config.architecture!r} network")
    return Folded(network.body, late).to(network.device)


def _pack(layer: nn.Conv2d) -> nn.Conv2d:
    """A 3x3 convolution behind depth to space as one before it."""
    copied = deepcopy(layer).cpu().double()
    weight, bias = _kernel(lambda x: copied(F.pixel_shuffle(x, 2)), 4 * layer.in_channels)
    packed = nn.Conv2d(weight.shape[1], weight.shape[0], 3, padding=1)
    packed.load_state_dict({"weight": weight, "bias": bias})
    return packed.requires_grad_(False)


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


def stage(network: Network, build: Callable[..., Callable[..., Any]], *, late: bool = False) -> Run:
    """A U-Net stage by stage, each on no more of the window than the pixels that are asked for need.

    `build` makes what runs a stage, of the module and of inputs like those it will get; `late` is that of `fold`.

    The way down sees all of it. The less a stage still looks aside, the less it is given, and at full resolution,
    where a pixel needs most memory, it is given that strip by strip: each is a band of the posterior.
    """
    folded = fold(network, late=late)
    planes = torch.zeros(1, 4, network.config.stride, network.config.stride, device=network.device)
    with torch.inference_mode():
        x, *skips = folded.descent(planes)
        descend = build(folded.descent, planes)
        climbs: list[Callable[..., Any]] = []
        for climb, skipped in zip(reversed(folded.climbs), reversed(skips), strict=True):
            climbs.insert(0, build(climb, x, skipped))
            x = climb(x, skipped)
        finish = build(folded.tail, x, planes)
    reach, reaches = folded.tail.reach, [climb.reach for climb in folded.climbs if isinstance(climb, Climb)]

    def run(mosaic: Tensor, rows: slice, columns: slice) -> Iterator[NormalInverseGamma]:
        planes = cfa.pack(mosaic) - 0.5
        height, width = planes.shape[2:]
        inner = (_halve(rows), _halve(columns))
        given = [(_grow(inner[0], reach, height), _grow(inner[1], reach, width))]  # by each level to the one above
        for level in range(len(climbs)):
            down, across = given[-1]
            far = reaches[level]
            needed = _grow(down, far, height >> level), _grow(across, far, width >> level)
            given.append((_halve(needed[0]), _halve(needed[1])))
        x, *skips = descend(planes)
        x = x[..., *given[-1]]
        for level in reversed(range(len(climbs))):
            around = [slice(2 * part.start, 2 * part.stop) for part in given[level + 1]]
            x = climbs[level](x, skips.pop()[..., *around])
            x = x[..., *(_within(part, outer) for part, outer in zip(given[level], around, strict=True))]
        down, across = given[0]
        for start in range(inner[0].start, inner[0].stop, STRIP):
            strip = slice(start, min(start + STRIP, inner[0].stop))
            outer = _grow(strip, reach, height)
            maps = finish(x[:, :, _within(outer, down)], planes[:, :, outer, across])
            base = cfa.interpolate(
                mosaic[:, :, 2 * outer.start : 2 * outer.stop, 2 * across.start : 2 * across.stop]
            )
            top, end = max(rows.start, 2 * strip.start), min(rows.stop, 2 * strip.stop)
            place = (
                slice(top - 2 * outer.start, end - 2 * outer.start),
                slice(columns.start - 2 * across.start, columns.stop - 2 * across.start),
            )
            yield network.posterior(base[..., *place], maps[..., *place])

    return run


def _halve(part: slice) -> slice:
    """The cells, twice as large, that cover some cells or photosites."""
    return slice(part.start // 2, -(-part.stop // 2))


def _grow(part: slice, by: int, size: int) -> slice:
    """A part with so many more cells on either side, as far as there are any."""
    return slice(max(0, part.start - by), min(size, part.stop + by))


def _within(part: slice, outer: slice) -> slice:
    """A part of something of which there is no more than `outer`."""
    return slice(part.start - outer.start, part.stop - outer.start)


def trace_folded(network: Network, *, late: bool = False) -> Graph:
    """The steps of a network's body, folded if it is a U-Net, which takes the packed planes alone then.

    `late` is that of `staged_unet.fold`.
    """
    planes, base = graph.examples(network)
    if isinstance(network.body, UNet):
        return graph.trace(fold(network, late=late), planes)
    return graph.trace(network.body, planes, base)
