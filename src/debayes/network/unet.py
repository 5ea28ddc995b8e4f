"""The debayes family: a residual U-Net. Tested in tests/network/test_network.py."""

from collections.abc import Iterator

import torch.nn.functional as F
from torch import Tensor, nn

from debayes.network.blocks import conv, residuals
from debayes.network.config import Config


class UNet(nn.Module):
    """Residual U-Net on the packed planes; its thin tail at full resolution also takes the interpolated mosaic."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        upper = config.widths[:-1]
        stacks = config.stacks
        self.head = conv(4, config.widths[0])
        self.down = nn.ModuleList(residuals(*stack) for stack in stacks[: len(upper)])
        self.shrink = nn.ModuleList(
            conv(width, below, 2, stride=2) for width, below in zip(upper, config.widths[1:], strict=True)
        )
        self.bottom = residuals(*stacks[len(upper)])
        self.grow = nn.ModuleList(
            conv(below, 4 * width, 1, gain=0.1) for width, below in zip(upper, config.widths[1:], strict=True)
        )
        self.up = nn.ModuleList(residuals(*stack) for stack in stacks[len(upper) + 1 : -1])
        self.unpack = conv(config.widths[0], 4 * config.tail, 1)
        self.mix = conv(config.tail, config.tail)
        self.look = conv(3, config.tail)
        self.tail = residuals(*stacks[-1])
        self.maps = conv(config.tail, 12, gain=0.01)

    def resolutions(self) -> Iterator[tuple[nn.Module, int]]:
        """Each part, and the distance in photosites between two neighbouring places that it is applied to."""
        yield self.head, 2
        for level, parts in enumerate(zip(self.down, self.shrink, self.grow, self.up, strict=True)):
            spacing = 2 ** (level + 1)
            yield from zip(parts, (spacing, 2 * spacing, 2 * spacing, spacing), strict=True)
        yield self.bottom, 2 ** (len(self.down) + 1)
        yield self.unpack, 2
        yield from ((part, 1) for part in (self.mix, self.look, self.tail, self.maps))

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
