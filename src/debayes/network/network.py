"""The networks: `Config` says everything about one, `Network` turns a mosaic into a posterior.

All are built of 3x3 convolutions and rectifiers on the four packed planes of an RGGB mosaic. There is no
normalisation and no pooling over the picture, so a pixel depends on its `receptive_radius` and nothing else.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from itertools import islice
from math import expm1, inf, log
from typing import TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from debayes.imaging import cfa
from debayes.posterior.nig import NormalInverseGamma

M = TypeVar("M", bound=nn.Module)

# Photosites of reflected border that a picture is given before a network sees it: what lies beyond is zeros, as at
# the edges of training patches. Rounded up to the network's stride.
BORDER = 16

# The four maps of a posterior, as `NormalInverseGamma` names them.
MAPS = ("loc", "count", "concentration", "rate")

# The filters of the last convolution that give each of them, one for each colour.
FILTERS = {name: slice(3 * i, 3 * i + 3) for i, name in enumerate(MAPS)}


@dataclass(frozen=True)
class Config:
    """The shape of a network."""

    architecture: str = "unet"
    """"unet": residual U-Net, the debayes family. "paper": grouped residual dense blocks, the paper's own."""
    widths: tuple[int, ...] = (32, 64, 128)
    """Channels of each level, from half resolution down; the paper's network has one level."""
    blocks: int = 2
    """Residual blocks a level, on the way down and again on the way up; residual dense blocks a group."""
    bottom_blocks: int = 4
    """Residual blocks of the lowest level ("unet")."""
    tail: int = 16
    """Channels at full resolution, where the mosaic is seen again ("unet")."""
    tail_blocks: int = 1
    """Residual blocks at full resolution ("unet")."""
    groups: int = 2
    """Groups of residual dense blocks ("paper")."""
    growth: int = 32
    """Channels that each layer of a dense block adds ("paper")."""
    layers: int = 4
    """Layers of a dense block ("paper")."""
    hidden: tuple[int, ...] = ()
    """Hidden channels of every residual block, from the top level down, the bottom, the way up from its top level,
    the tail; 0 leaves a block out. Empty: as many as its level has ("unet"). `pruning` makes such networks."""
    count: float = 2e3
    """The count an untrained head gives: the paper's lambda."""
    concentration: float = 180.5
    """The concentration an untrained head gives: the paper's alpha."""

    def __post_init__(self) -> None:
        if self.architecture not in ("unet", "paper"):
            raise ValueError(f'a network\'s architecture is "unet" or "paper", not {self.architecture!r}')
        least = {
            "tail": 1,
            "groups": 1,
            "growth": 1,
            "layers": 1,
            "blocks": 0,
            "bottom_blocks": 0,
            "tail_blocks": 0,
        }
        for name, limit in least.items():
            if getattr(self, name) < limit:
                raise ValueError(f"a network's {name} must be {limit} or more, not {getattr(self, name)}")
        if any(width < 1 for width in self.widths):
            raise ValueError(f"a network's widths must be 1 or more, not {self.widths}")
        if not (0 < self.count < inf and 2 < self.concentration < inf):
            raise ValueError(
                "a network's count must be above 0 and its concentration above 2, "
                f"not {self.count:g} and {self.concentration:g}"
            )
        one = len(self.widths) == 1 and self.widths[0] % 4 == 0 and self.blocks > 0
        if not self.widths or (self.architecture == "paper" and not one):
            needs = (
                "one width, a multiple of 4, and blocks" if self.architecture == "paper" else "at least one width"
            )
            raise ValueError(
                f"the {self.architecture!r} network needs {needs}, not {self.widths} and {self.blocks}"
            )
        total = sum(count for _, count in self._stacks()) if self.architecture == "unet" else 0
        if len(self.hidden) not in (0, total):
            raise ValueError(
                "a network's hidden channels are given for all of its residual blocks or none: "
                f"{len(self.hidden)} are, the blocks are {total}"
            )
        if any(channels < 0 for channels in self.hidden):
            raise ValueError(f"a network's hidden channels must be 0 or more, not {self.hidden}")

    def _stacks(self) -> list[tuple[int, int]]:
        """(channels, residual blocks) of each stack of blocks, in the order of `hidden`."""
        *upper, bottom = self.widths
        levels = [(width, self.blocks) for width in upper]
        return [*levels, (bottom, self.bottom_blocks), *levels, (self.tail, self.tail_blocks)]

    @property
    def stacks(self) -> list[tuple[int, list[int]]]:
        """(channels, hidden channels of its residual blocks) of each stack, in the order of `hidden` ("unet")."""
        given = iter(self.hidden or [width for width, count in self._stacks() for _ in range(count)])
        return [(width, list(islice(given, count))) for width, count in self._stacks()]

    @property
    def stride(self) -> int:
        """Photosites that the network's coarsest cell spans: mosaics come in multiples of it."""
        return int(2 ** len(self.widths))

    @property
    def receptive_radius(self) -> int:
        """How far, in photosites, a pixel of the output may depend on the mosaic, whatever its place in a cell."""
        radius = 0
        path = self._longest_path()[::-1]
        for pixel in range(self.stride):
            low = high = pixel
            for scale, convolutions in path:
                low = low // scale * scale - convolutions * scale
                high = high // scale * scale + scale - 1 + convolutions * scale
            radius = max(radius, pixel - low, high - pixel)
        return radius

    def _longest_path(self) -> list[tuple[int, int]]:
        """(scale in photosites, number of 3x3 convolutions) in the order of the longest path through the net."""
        if self.architecture == "paper":
            return [(2, 3 + self.groups * self.blocks * self.layers), (1, 1)]
        levels = range(len(self.widths) - 1)
        scales = [2 ** (level + 1) for level in (*levels, len(levels), *levels)]
        *convolutions, tail = (2 * sum(map(bool, hidden)) for _, hidden in self.stacks)
        path = list(zip(scales, convolutions, strict=True))
        down, up = path[: len(self.widths)], path[len(self.widths) :]
        return [(2, 1), *down, *reversed(up), (1, 2 + tail)]


class Network(nn.Module):
    """An RGGB mosaic in, a normal-inverse-gamma posterior for every pixel and colour out.

    The mosaic has 0 = black and 1 = white; its sides are multiples of ``config.stride``. `restoration.restore`
    takes care of other patterns, sizes and large pictures.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.body: UNet | PaperNet = UNet(config) if config.architecture == "unet" else PaperNet(config)

    def forward(self, mosaic: Float[Tensor, "b 1 h w"]) -> NormalInverseGamma:
        base = cfa.interpolate(mosaic, "RGGB")
        # Centred on 0: half the rounding error where the convolutions run in bfloat16.
        return self.posterior(base, self.body(cfa.pack(mosaic) - 0.5, base - 0.5))

    def inside(self, mosaic: Float[Tensor, "b 1 h w"], rows: slice, columns: slice) -> NormalInverseGamma:
        """The posterior of some rows and columns."""
        posterior: NormalInverseGamma = self(mosaic)
        return posterior.map(lambda t: t[..., rows, columns])

    def bands(self, mosaic: Float[Tensor, "b 1 h w"], rows: slice, columns: slice) -> tuple[NormalInverseGamma]:
        """The same as the one band that it is; an `engine.Engine` may give several."""
        return (self.inside(mosaic, rows, columns),)

    def posterior(self, base: Float[Tensor, "b 3 h w"], maps: Float[Tensor, "b c h w"]) -> NormalInverseGamma:
        """What the body's maps mean: a residual over the interpolated mosaic, and the three other parameters."""
        if not self.has_heads:
            return NormalInverseGamma.of_mean(base.float() + maps.float())
        residual, count, concentration, variance = maps.float().chunk(4, 1)
        # softplus(ONE) = 1, so a head of zeros gives Config's values. The variance is exponential where it is
        # small, and starts at sigma 10/255. A concentration above 2 has the moments that `nig.merge` needs.
        concentration = 2 + FLOOR + (self.config.concentration - 2) * F.softplus(concentration + ONE)
        variance = VARIANCE_FLOOR + F.softplus(variance + START)
        return NormalInverseGamma(
            residual + base.float(),  # laid out as the other maps are
            FLOOR + self.config.count * F.softplus(count + ONE),
            concentration,
            variance * (concentration - 1),
        )

    @property
    def has_heads(self) -> bool:
        """Whether it gives all of the posterior, and not the mean alone as what `beheaded` makes does."""
        return self.body.maps.out_channels == 12

    def beheaded(self) -> "Network":
        """The same network without the maps of noise and doubt, for less work: its posteriors have a mean alone."""
        bare = deepcopy(self)
        maps = self.body.maps
        bare.body.maps = nn.Conv2d(maps.in_channels, 3, 3, padding=1).to(maps.weight)
        with torch.no_grad():
            for name, value in bare.body.maps.named_parameters():
                value.copy_(maps.get_parameter(name)[:3])
        return to_channels_last(bare).train(self.training).requires_grad_(maps.weight.requires_grad)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    @property
    def parameter_count(self) -> int:
        """Number of weights."""
        return sum(p.numel() for p in self.parameters())

    @property
    def kmac_per_pixel(self) -> float:
        """Thousand multiply-accumulates of the convolutions, per photosite."""
        stride = self.config.stride
        size = 4 * stride
        total = 0

        def count(module: nn.Module, _: tuple[Tensor, ...], output: Tensor) -> None:
            nonlocal total
            weight = module.weight
            assert isinstance(weight, Tensor)
            total += output[0, 0].numel() * weight.numel()

        hooks = [m.register_forward_hook(count) for m in self.modules() if isinstance(m, nn.Conv2d)]
        with torch.no_grad():
            self(torch.zeros(1, 1, size, size, device=self.device))
        for hook in hooks:
            hook.remove()
        return total / size**2 / 1e3


# What `Network.posterior` adds to the maps: ahead of the softplus, where it makes 1 or a variance of (10/255)² of
# nothing, and behind it, where it keeps the parameters away from 0.
ONE = log(expm1(1.0))
START = log(expm1((10 / 255) ** 2))
FLOOR = 1e-3
VARIANCE_FLOOR = 1e-9


def _conv(inputs: int, outputs: int, kernel: int = 3, *, stride: int = 1, gain: float = 1.0) -> nn.Conv2d:
    """A convolution that keeps size and variance: He's initialisation times `gain`, bias 0."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2 if stride == 1 else 0)
    nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
    with torch.no_grad():
        conv.weight.mul_(gain)
    assert conv.bias is not None
    nn.init.zeros_(conv.bias)
    return conv


class Residual(nn.Module):
    """x + conv(relu(conv(x))). The second convolution starts at 0, so deep stacks start as the identity."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.first = _conv(width, hidden)
        self.second = _conv(hidden, width, gain=0.0)

    def forward(self, x: Tensor) -> Tensor:
        return torch.add(x, self.second(F.relu(self.first(x))))


def to_channels_last(module: M) -> M:
    """The module itself, with its channels last in memory: a sixth faster on a CPU, and what tensor cores want."""
    module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch forgot this overload
    return module


def blocks(network: Network) -> dict[str, Residual]:
    """The residual blocks of a network by their names; the paper's network has none."""
    return {name: module for name, module in network.named_modules() if isinstance(module, Residual)}


@contextmanager
def visiting(network: Network, visit: Callable[[str, Residual, Tensor], None]) -> Iterator[None]:
    """While this lasts, every residual block is visited, with its name and its input, before it runs."""
    hooks = [
        block.register_forward_pre_hook(lambda block, inputs, name=name: visit(name, block, inputs[0]))
        for name, block in blocks(network).items()
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _stack(width: int, hidden: list[int]) -> nn.Sequential:
    return nn.Sequential(*(Residual(width, channels) for channels in hidden if channels))


class UNet(nn.Module):
    """Residual U-Net on the packed planes, with a thin tail at full resolution that sees the mosaic again."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        upper = config.widths[:-1]
        stacks = config.stacks
        self.head = _conv(4, config.widths[0])
        self.down = nn.ModuleList(_stack(*stack) for stack in stacks[: len(upper)])
        self.shrink = nn.ModuleList(
            _conv(width, below, 2, stride=2) for width, below in zip(upper, config.widths[1:], strict=True)
        )
        self.bottom = _stack(*stacks[len(upper)])
        self.grow = nn.ModuleList(
            _conv(below, 4 * width, 1, gain=0.1) for width, below in zip(upper, config.widths[1:], strict=True)
        )
        self.up = nn.ModuleList(_stack(*stack) for stack in stacks[len(upper) + 1 : -1])
        self.unpack = _conv(config.widths[0], 4 * config.tail, 1)
        self.mix = _conv(config.tail, config.tail)
        self.look = _conv(3, config.tail)
        self.tail = _stack(*stacks[-1])
        self.maps = _conv(config.tail, 12, gain=0.01)

    def forward(self, planes: Tensor, base: Tensor) -> Tensor:
        x = self.head(planes)
        skips = []
        for blocks, shrink in zip(self.down, self.shrink, strict=True):
            x = blocks(x)
            skips.append(x)
            x = shrink(x)
        x = self.bottom(x)
        for blocks, grow in zip(reversed(self.up), reversed(self.grow), strict=True):
            x = blocks(F.pixel_shuffle(grow(x), 2) + skips.pop())
        x = F.pixel_shuffle(self.unpack(x), 2)
        x = self.mix(x) + self.look(base)  # one convolution of both, but with channel counts that matrix units like
        maps: Tensor = self.maps(F.relu(self.tail(x)))
        return maps


class _DenseBlock(nn.Module):
    """Residual dense block: each layer sees all before it, a 1x1 convolution fuses them (Zhang et al. 2018)."""

    def __init__(self, width: int, growth: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_conv(width + i * growth, growth) for i in range(layers))
        self.fuse = _conv(width + layers * growth, width, 1, gain=0.1)

    def forward(self, x: Tensor) -> Tensor:
        features = x
        for layer in self.layers:
            features = torch.cat((features, F.relu(layer(features))), 1)
        return torch.add(x, self.fuse(features))


class _DenseGroup(nn.Module):
    """Residual dense blocks in a row, all of their outputs fused, around a residual connection."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config.widths[0]
        self.blocks = nn.ModuleList(_DenseBlock(width, config.growth, config.layers) for _ in range(config.blocks))
        self.fuse = _conv(config.blocks * width, width, 1, gain=0.1)

    def forward(self, x: Tensor) -> Tensor:
        outputs = [x]
        for block in self.blocks:
            outputs.append(block(outputs[-1]))
        return torch.add(x, self.fuse(torch.cat(outputs[1:], 1)))


class PaperNet(nn.Module):
    """The paper's network: three 3x3 convolutions around the dense groups, depth to space, a last convolution."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config.widths[0]
        self.head = nn.Sequential(_conv(4, width), nn.ReLU(), _conv(width, width))
        self.groups = nn.Sequential(*(_DenseGroup(config) for _ in range(config.groups)))
        self.join = _conv(width, width)
        self.maps = _conv(width // 4, 12, gain=0.01)

    def forward(self, planes: Tensor, base: Tensor) -> Tensor:
        x = self.head(planes)
        maps: Tensor = self.maps(F.pixel_shuffle(self.join(self.groups(x)) + x, 2))
        return maps
