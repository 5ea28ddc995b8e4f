"""Channels that fell silent in training, started anew.

A hidden channel that is below 0 all over gets no gradient through its rectifier, and stays so for ever. Early in a
run wide layers lose most of theirs that way: steps that are right for each weight alone add up over thousands of
inputs. As such a channel does nothing, it can be given other filters without changing a pixel (Sokar et al. 2023).
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from debayes.model import Network, Residual, blocks, visiting

# A channel is silent if less than this share of its values is above 0.
SILENT = 1e-3


@dataclass(frozen=True)
class Revived:
    """The silent channels of a block, which have new filters now."""

    name: str
    """Of the block, within the network."""
    channels: Bool[Tensor, " c"]


@torch.no_grad()
def silent_share(network: Network, mosaic: Float[Tensor, "b 1 h w"]) -> float:
    """How many of the hidden channels of all blocks are silent when the network sees some mosaics."""
    found: list[Tensor] = []
    with visiting(network, lambda name, block, x: found.append(_activity(block.first(x)) < SILENT)):
        network(mosaic)
    return float(torch.cat(found).float().mean()) if found else 0.0


@torch.no_grad()
def revive(
    network: Network,
    mosaic: Float[Tensor, "b 1 h w"],
    generator: torch.Generator,
    *,
    agree: Callable[[Tensor], Tensor] = lambda numbers: numbers,
) -> list[Revived]:
    """Give channels that are silent when the network sees some mosaics new filters, which nobody listens to yet.

    Each is a random filter without response to plain areas, so that it is above 0 half of the time, as loud as the
    other channels of its layer are. The numbers are drawn on the generator's device. Where several processes train
    one network, `agree` gives all of them the numbers of one.
    """
    revived: list[Revived] = []

    def visit(name: str, block: Residual, x: Tensor) -> None:
        hidden = block.first(x)
        silent = agree(_activity(hidden)) < SILENT
        if not bool(silent.any()):
            return
        first, second = block.first, block.second
        assert first.bias is not None
        drawn = torch.randn(first.weight.shape, device=generator.device, generator=generator).to(first.weight)
        filters = (drawn - drawn.mean((2, 3), keepdim=True))[silent]
        loudness = (
            hidden[:, ~silent].float().std((0, 2, 3)).median() if int((~silent).sum()) > 3 else x.float().std()
        )
        response = F.conv2d(x, filters.to(x.dtype), padding=1).float().std((0, 2, 3))
        first.weight[silent] = filters * (loudness / response.clamp_min(1e-12))[:, None, None, None]
        agree(first.weight)
        first.bias[silent] = 0
        second.weight[:, silent] = 0
        revived.append(Revived(name, silent))

    with visiting(network, visit):
        network(mosaic)
    return revived


@torch.no_grad()
def copy(revived: list[Revived], source: Network, target: Network) -> None:
    """Give the revived channels the same filters in another network of the same shape."""
    ours, theirs = blocks(source), blocks(target)
    for each in revived:
        parts = zip(_parts(ours[each.name]), _parts(theirs[each.name]), _places(each.channels), strict=True)
        for given, taken, index in parts:
            taken[index] = given[index]


@torch.no_grad()
def forget(revived: list[Revived], network: Network, optimizers: list[torch.optim.Optimizer]) -> None:
    """Clear what the optimizers remember of the revived channels."""
    ours = blocks(network)
    for each in revived:
        for parameter, index in zip(_parts(ours[each.name]), _places(each.channels), strict=True):
            for optimizer in optimizers:
                for memory in optimizer.state.get(parameter, {}).values():
                    if memory.shape == parameter.shape:
                        memory[index] = 0


def _parts(block: Residual) -> tuple[Tensor, Tensor, Tensor]:
    """What belongs to the hidden channels: their filters and biases, and what is made of them."""
    assert block.first.bias is not None
    return block.first.weight, block.first.bias, block.second.weight


def _places(channels: Tensor) -> tuple[tuple[slice | Tensor, ...], ...]:
    """Where in `_parts` some channels are."""
    return (channels,), (channels,), (slice(None), channels)


def _activity(hidden: Float[Tensor, "b c h w"]) -> Float[Tensor, " c"]:
    """The share of each channel's values that is above 0."""
    return (hidden > 0).float().mean((0, 2, 3))
