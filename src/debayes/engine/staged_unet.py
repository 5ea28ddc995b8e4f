"""A U-Net in stages, which take less work for the same pixels.

Two savings. First, between the last features at half resolution and the rectifier at full resolution everything is
linear, the convolution of the interpolated mosaic too: `fold` replaces a 1x1 convolution, depth to space, two
convolutions and a sum by one convolution at half resolution. Only within a few photosites of the border, which
`restoration` cuts off, is the result different. Second, a window is larger than its tile by the receptive field,
but only the downward path needs all of it: `StagedUNet` gives each later stage only the cells that it still needs.

With `shuffle_last` depth to space comes at the very end: four times the multiplications of one small convolution,
and no pass over all features at full resolution. That is for GPUs, whose matrix units are idle while features are
moved, and for convolutions in chains (`fusion`).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
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
from debayes.posterior.nig import Posterior

# A function from mosaics (b, 1, h, w), rows and columns to the posterior of those pixels: whole, or in bands of
# rows from the top.
Run = Callable[[Tensor, slice, slice], Iterable[Posterior]]

# Rows of cells that the tail computes at a time.
STRIP_ROWS = 192

# Channels of the planes, filled up with zeros, that are concatenated to the features.
_LANES = 16


class Descent(nn.Module):
    """The downward path of a U-Net and its bottom: from packed planes to its features and the skipped ones."""

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
    """A level of the upward path: from the features of the level below and the skipped ones."""

    def __init__(self, body: UNet, level: int) -> None:
        super().__init__()
        self.grow, self.blocks = body.grow[level], body.up[level]

    def forward(self, below: Tensor, skipped: Tensor) -> Tensor:
        features: Tensor = self.blocks(F.pixel_shuffle(self.grow(below), 2) + skipped)
        return features

    @property
    def radius(self) -> int:
        """Receptive radius in cells of its level."""
        return 2 * len(list(self.blocks.children()))


class Tail(nn.Module):
    """The part at full resolution: from the features at half resolution, and the planes again, to the maps."""

    def __init__(self, body: UNet, shuffle_last: bool = False) -> None:
        super().__init__()
        self.blocks, self.maps = body.tail, body.maps
        self.packed = _pack(body.maps) if shuffle_last and len(body.tail) == 0 else None
        unpack, mix, look = (deepcopy(layer).cpu().double() for layer in (body.unpack, body.mix, body.look))
        width = unpack.in_channels
        features, feature_bias = _kernel(lambda x: mix(F.pixel_shuffle(unpack(x), 2)), width)
        planes, plane_bias = _kernel(lambda x: look(cfa.interpolate(F.pixel_shuffle(x, 2))), 4)
        # Zeros fill the planes up to a number of channels that vector and matrix units work well with.
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
        if len(self.blocks) == 0:  # before the shuffle the rectifier is fused with the convolution
            maps: Tensor = self.maps(F.pixel_shuffle(F.relu(x), 2))
            return maps
        maps = self.maps(F.relu(self.blocks(F.pixel_shuffle(x, 2))))
        return maps

    @property
    def radius(self) -> int:
        """Receptive radius in cells of 2x2 photosites."""
        return 2 + len(self.blocks)


class Folded(nn.Module):
    """A U-Net's body in stages; it takes only the packed planes. `fold` makes it."""

    def __init__(self, body: UNet, shuffle_last: bool) -> None:
        super().__init__()
        self.descent, self.tail = Descent(body), Tail(body, shuffle_last)
        self.climbs = nn.ModuleList(Climb(body, level) for level in range(len(body.up)))

    def forward(self, planes: Tensor) -> Tensor:
        x, *skips = self.descent(planes)
        for climb, skipped in zip(reversed(self.climbs), reversed(skips), strict=True):
            x = climb(x, skipped)
        maps: Tensor = self.tail(x, planes)
        return maps


def fold(network: Network, *, shuffle_last: bool = False) -> Folded:
    """The body of a U-Net with its linear end as one convolution; `shuffle_last` puts depth to space last."""
    if not isinstance(network.body, UNet):
        raise TypeError(f"only a U-Net can be folded, not the {network.config.architecture!r} network")
    with torch.random.fork_rng(devices=()):  # the host program's random numbers stay the same
        return Folded(network.body, shuffle_last).to(network.device)


def _pack(layer: nn.Conv2d) -> nn.Conv2d:
    """The 3x3 convolution at half resolution, before depth to space, that equals `layer` after depth to space."""
    copied = deepcopy(layer).cpu().double()
    weight, bias = _kernel(lambda x: copied(F.pixel_shuffle(x, 2)), 4 * layer.in_channels)
    packed = nn.Conv2d(weight.shape[1], weight.shape[0], 3, padding=1)
    packed.load_state_dict({"weight": weight, "bias": bias})
    return packed.requires_grad_(False)


def _kernel(
    linear: Callable[[Tensor], Tensor], channels: int
) -> tuple[Float[Tensor, "o {channels} 3 3"], Float[Tensor, " o"]]:
    """Weights and bias of a linear map from half to full resolution, as a 3x3 convolution before depth to space.

    They are its responses to zeros, and to a single 1 in each channel.
    """
    size, middle = 7, 3
    one = torch.zeros(channels + 1, channels, size, size, dtype=torch.float64)
    one[range(channels), range(channels), middle, middle] = 1
    response = F.pixel_unshuffle(linear(one), 2)
    bias = response[-1, :, middle, middle]
    near = response[:-1, :, middle - 1 : middle + 2, middle - 1 : middle + 2] - bias[:, None, None]
    return near.flip(2, 3).transpose(0, 1), bias


@dataclass(frozen=True)
class Stage:
    """A stage of a folded U-Net, and inputs like those it will get."""

    module: Descent | Climb | Tail
    examples: tuple[Tensor, ...]


def split(network: Network, *, shuffle_last: bool = False) -> list[Stage]:
    """The stages of a U-Net in the order in which they run: the descent, the climbs from the lowest, the tail."""
    folded = fold(network, shuffle_last=shuffle_last)
    planes, _ = graph.examples(network)
    stages = [Stage(folded.descent, (planes,))]
    with torch.inference_mode():
        x, *skips = folded.descent(planes)
        for climb, skipped in zip(reversed(folded.climbs), reversed(skips), strict=True):
            assert isinstance(climb, Climb)
            stages.append(Stage(climb, (x, skipped)))
            x = climb(x, skipped)
    return [*stages, Stage(folded.tail, (x, planes))]


@dataclass(frozen=True)
class StagedUNet:
    """Runs a U-Net stage by stage on a window, each stage on the cells that the requested pixels depend on.

    The descent takes the whole window. Later stages take less and less, and the tail, which needs most memory a
    pixel, works strip by strip: each strip is a band of the posterior.
    """

    network: Network
    descend: Callable[[Tensor], Sequence[Tensor]]
    climbs: tuple[Callable[[Tensor, Tensor], Tensor], ...]
    """From the highest level, at half resolution, to the lowest."""
    finish: Callable[[Tensor, Tensor], Tensor]
    radii: tuple[int, ...]
    """The receptive radius of the tail, then those of the climbs, in cells of their levels."""

    @classmethod
    def of(cls, network: Network, stages: Sequence[Stage], runs: Sequence[Callable[..., Any]]) -> "StagedUNet":
        """The runner of the stages that `split` gave; `runs` are the functions made of them, in the same order."""
        descend, *climbs, finish = runs
        radii = [stage.module.radius for stage in stages if not isinstance(stage.module, Descent)]
        return cls(network, descend, tuple(reversed(climbs)), finish, tuple(reversed(radii)))

    def __call__(self, mosaic: Tensor, rows: slice, columns: slice) -> Iterator[Posterior]:
        planes = cfa.pack(mosaic) - 0.5
        height, width = planes.shape[2:]
        inner = (_halve(rows), _halve(columns))
        given = self._parts(inner, (height, width))
        x, *skips = self.descend(planes)
        down, across = given[-1]
        x = x[..., down, across]
        for level in reversed(range(len(self.climbs))):
            above, left = (slice(2 * part.start, 2 * part.stop) for part in (down, across))
            x = self.climbs[level](x, skips.pop()[..., above, left])
            down, across = given[level]
            x = x[..., _within(down, above), _within(across, left)]
        for start in range(inner[0].start, inner[0].stop, STRIP_ROWS):
            strip = slice(start, min(start + STRIP_ROWS, inner[0].stop))
            outer = _grow(strip, self.radii[0], height)
            maps = self.finish(x[:, :, _within(outer, down)], planes[:, :, outer, across])
            base = cfa.interpolate(
                mosaic[:, :, 2 * outer.start : 2 * outer.stop, 2 * across.start : 2 * across.stop]
            )
            first, end = max(rows.start, 2 * strip.start), min(rows.stop, 2 * strip.stop)
            place = (
                slice(first - 2 * outer.start, end - 2 * outer.start),
                slice(columns.start - 2 * across.start, columns.stop - 2 * across.start),
            )
            yield self.network.posterior(base[..., *place], maps[..., *place])

    def _parts(self, inner: tuple[slice, slice], size: tuple[int, int]) -> list[tuple[slice, slice]]:
        """The rows and columns of cells that each level passes to the level above it, beginning with those for the
        tail.

        `inner` is what is asked of the tail, `size` that of the planes.
        """
        height, width = size
        parts = [(_grow(inner[0], self.radii[0], height), _grow(inner[1], self.radii[0], width))]
        for level, radius in enumerate(self.radii[1:]):
            down, across = parts[-1]
            needed = _grow(down, radius, height >> level), _grow(across, radius, width >> level)
            parts.append((_halve(needed[0]), _halve(needed[1])))
        return parts


def _halve(part: slice) -> slice:
    """The cells of twice the size that cover some cells or photosites."""
    return slice(part.start // 2, -(-part.stop // 2))


def _grow(part: slice, by: int, size: int) -> slice:
    """A range with `by` more cells on either side, but not beyond 0 and `size`."""
    return slice(max(0, part.start - by), min(size, part.stop + by))


def _within(part: slice, outer: slice) -> slice:
    """A range counted from the start of the range `outer`."""
    return slice(part.start - outer.start, part.stop - outer.start)


def trace_folded(network: Network, *, shuffle_last: bool = False) -> Graph:
    """The steps of a network's body; those of a U-Net after `fold`, with only the packed planes as input."""
    planes, base = graph.examples(network)
    if isinstance(network.body, UNet):
        return graph.trace(fold(network, shuffle_last=shuffle_last), planes)
    return graph.trace(network.body, planes, base)
