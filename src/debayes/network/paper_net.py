"""The paper's own network: grouped residual dense blocks. Tested in tests/network/test_network.py."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from debayes.network.blocks import conv
from debayes.network.config import Config


class _DenseBlock(nn.Module):
    """Residual dense block: each layer sees all earlier ones, a 1x1 convolution fuses them (Zhang et al. 2018)."""

    def __init__(self, width: int, growth: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(conv(width + i * growth, growth) for i in range(layers))
        self.fuse = conv(width + layers * growth, width, 1, gain=0.1)

    def forward(self, x: Tensor) -> Tensor:
        features = x
        for layer in self.layers:
            features = torch.cat((features, F.relu(layer(features))), 1)
        return torch.add(x, self.fuse(features))


class _DenseGroup(nn.Module):
    """Residual dense blocks in a row, all of their outputs fused and added to the input."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config.widths[0]
        self.blocks = nn.ModuleList(_DenseBlock(width, config.growth, config.layers) for _ in range(config.blocks))
        self.fuse = conv(config.blocks * width, width, 1, gain=0.1)

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
        self.head = nn.Sequential(conv(4, width), nn.ReLU(), conv(width, width))
        self.groups = nn.Sequential(*(_DenseGroup(config) for _ in range(config.groups)))
        self.join = conv(width, width)
        self.maps = conv(width // 4, 12, gain=0.01)

    def resolutions(self) -> Iterator[tuple[nn.Module, int]]:
        """Each part, and the distance in photosites between two neighbouring places that it is applied to."""
        yield from ((part, 2) for part in (self.head, self.groups, self.join))
        yield self.maps, 1

    def forward(self, planes: Tensor, base: Tensor) -> Tensor:
        x = self.head(planes)
        maps: Tensor = self.maps(F.pixel_shuffle(self.join(self.groups(x)) + x, 2))
        return maps
