"""The shape of a network. Tested in tests/network/test_network.py."""

from dataclasses import dataclass
from itertools import islice
from math import inf

from debayes.system.errors import DebayesError

# Photosites of reflected border around a picture, rounded up to the network's stride. Beyond it the convolutions
# pad with zeros, as at the edges of training patches.
BORDER = 16

# The least value of each field that counts something.
_LEAST = {
    "tail": 1,
    "groups": 1,
    "growth": 1,
    "layers": 1,
    "blocks": 0,
    "bottom_blocks": 0,
    "tail_blocks": 0,
}


@dataclass(frozen=True)
class Config:
    """The shape of a network.

    Examples:
        >>> import debayes
        >>> config = debayes.Config(widths=(8, 16), blocks=1, bottom_blocks=1)
        >>> config.stride, config.receptive_radius
        (4, 25)
    """

    architecture: str = "unet"
    """"unet": residual U-Net, the debayes family. "paper": grouped residual dense blocks, the paper's own."""
    widths: tuple[int, ...] = (32, 64, 128)
    """Channels of each level, from half resolution down; the paper's network has one level."""
    blocks: int = 2
    """Residual blocks of each level, downward and again upward; residual dense blocks of a group ("paper")."""
    bottom_blocks: int = 4
    """Residual blocks of the lowest level ("unet")."""
    tail: int = 16
    """Channels at full resolution, where the interpolated mosaic comes in again ("unet")."""
    tail_blocks: int = 1
    """Residual blocks at full resolution ("unet")."""
    groups: int = 2
    """Groups of residual dense blocks ("paper")."""
    growth: int = 32
    """Channels that each layer of a dense block adds ("paper")."""
    layers: int = 4
    """Layers of a dense block ("paper")."""
    hidden: tuple[int, ...] = ()
    """Hidden channels of every residual block ("unet") in this order: the downward levels from the top, the bottom,
    the upward levels from the top, the tail. 0 leaves a block out. Empty: as many as the level has channels.
    `pruning` makes such networks."""
    count: float = 2e3
    """The count that an untrained head gives: the paper's lambda."""
    concentration: float = 180.5
    """The concentration that an untrained head gives: the paper's alpha."""

    def __post_init__(self) -> None:
        if self.architecture not in ("unet", "paper"):
            raise DebayesError(f'a network\'s architecture is "unet" or "paper", not {self.architecture!r}')
        for name, least in _LEAST.items():
            if getattr(self, name) < least:
                raise DebayesError(f"a network's {name} must be {least} or more, not {getattr(self, name)}")
        if any(width < 1 for width in self.widths):
            raise DebayesError(f"a network's widths must be 1 or more, not {self.widths}")
        if not (0 < self.count < inf and 2 < self.concentration < inf):
            raise DebayesError(
                "a network's count must be above 0 and its concentration above 2, "
                f"not {self.count:g} and {self.concentration:g}"
            )
        self._check_widths()
        self._check_hidden()

    def _check_widths(self) -> None:
        if self.architecture == "unet" and not self.widths:
            raise DebayesError("the 'unet' network needs at least one width, not ()")
        single = len(self.widths) == 1 and self.widths[0] % 4 == 0 and self.blocks > 0
        if self.architecture == "paper" and not single:
            raise DebayesError(
                "the 'paper' network needs one width, a multiple of 4, and blocks, "
                f"not {self.widths} and {self.blocks}"
            )

    def _check_hidden(self) -> None:
        total = sum(count for _, count in self._stacks()) if self.architecture == "unet" else 0
        if len(self.hidden) not in (0, total):
            raise DebayesError(
                "a network's hidden channels are given for all of its residual blocks or none: "
                f"{len(self.hidden)} are given for {total} blocks"
            )
        if any(channels < 0 for channels in self.hidden):
            raise DebayesError(f"a network's hidden channels must be 0 or more, not {self.hidden}")

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
        """Photosites that a cell of the lowest level spans: the sides of mosaics are multiples of it."""
        return int(2 ** len(self.widths))

    @property
    def receptive_radius(self) -> int:
        """How far, in photosites, the mosaic can influence a pixel of the output, wherever in a cell that lies."""
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
        """(photosites a cell, number of 3x3 convolutions) along the longest path through the network."""
        if self.architecture == "paper":
            return [(2, 3 + self.groups * self.blocks * self.layers), (1, 1)]
        levels = range(len(self.widths) - 1)
        scales = [2 ** (level + 1) for level in (*levels, len(levels), *levels)]
        *convolutions, tail = (2 * sum(map(bool, hidden)) for _, hidden in self.stacks)
        path = list(zip(scales, convolutions, strict=True))
        down, up = path[: len(self.widths)], path[len(self.widths) :]
        return [(2, 1), *down, *reversed(up), (1, 2 + tail)]
