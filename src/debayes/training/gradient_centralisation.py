"""Hidden channels that fall silent: how many do, and descent that moves a channel's filter and its level apart.

What a residual block is given has a mean, often larger than its spread. A step of a filter along that mean shifts
its channel as a whole, and such steps, right for each weight alone, add up over thousands of inputs: channels end
up below 0 everywhere, behind their rectifier, and learn no more. So filters are moved as if their input had no
mean, and nothing but its bias shifts a channel. Only the path of the descent changes.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from debayes.network.blocks import Residual
from debayes.network.network import Network, blocks, visiting

# A channel is silent if less than this share of its values is above 0.
SILENT = 1e-3


@torch.no_grad()
def measure_activity(
    network: Network, mosaics: Iterable[Float[Tensor, "b 1 h w"]]
) -> dict[str, Float[Tensor, " c"]]:
    """The share of values above 0 of the hidden channels of each block, by its name, for batches of one size."""
    found: dict[str, list[Tensor]] = {name: [] for name in blocks(network)}

    def look(name: str, block: Residual, given: Tensor) -> None:
        found[name].append((block.first(given) > 0).float().mean((0, 2, 3)))

    with visiting(network, look):
        for mosaic in mosaics:
            network(mosaic)
    return {name: torch.stack(shares).mean(0) for name, shares in found.items()}


def silent_share(network: Network, mosaic: Float[Tensor, "b 1 h w"]) -> float:
    """How many of the hidden channels of all blocks are silent when the network sees some mosaics."""
    found = list(measure_activity(network, [mosaic]).values())
    return float((torch.cat(found) < SILENT).float().mean()) if found else 0.0


@dataclass(frozen=True)
class Middle:
    """A block, and the mean of what it was given lately."""

    block: Residual
    mean: Float[Tensor, " c"]

    def response(self) -> Float[Tensor, " d"]:
        """What the block's filters give for the mean, all over the picture."""
        weight: Tensor = self.block.first.weight.detach().sum((2, 3))
        return weight @ self.mean


@torch.no_grad()
def find_middles(network: Network, mosaic: Float[Tensor, "b 1 h w"]) -> list[Middle]:
    """The blocks of a network, and the means of what they are given when it sees some mosaics."""
    found: dict[str, Middle] = {}

    def look(name: str, block: Residual, given: Tensor) -> None:
        found[name] = Middle(block, given.float().mean((0, 2, 3)))

    with visiting(network, look):
        network(mosaic)
    return [found[name] for name in blocks(network)]


@torch.no_grad()
def centre_gradients(middles: list[Middle]) -> None:
    """Make the gradients of the filters those for inputs without a mean, the biases making up for it."""
    for middle in middles:
        first = middle.block.first
        assert first.bias is not None
        if first.weight.grad is not None and first.bias.grad is not None:
            first.weight.grad -= torch.outer(first.bias.grad, middle.mean)[:, :, None, None]


@torch.no_grad()
def keep_levels(middles: list[Middle], before: list[Tensor]) -> None:
    """Shift the biases by what the filters' responses to the mean have changed, from those `before` a step."""
    for middle, response in zip(middles, before, strict=True):
        bias = middle.block.first.bias
        assert bias is not None
        bias -= middle.response() - response
