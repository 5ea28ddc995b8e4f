"""Gradient centralisation, which keeps hidden channels alive, and the measurement of those that are dead.

The input of a residual block has a mean that is often larger than its spread. A step of a filter along that mean
shifts the whole channel, and over thousands of inputs such steps add up: some channels end up below 0 everywhere,
so that their rectifier gives 0 and they no longer learn. Here filters are trained as if their input had zero mean,
and only the bias shifts a channel. This changes the path of the descent, not the functions a block can compute.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from debayes.network.blocks import Residual
from debayes.network.network import Network, blocks, visiting

# A channel is dead if less than this share of its values is above 0.
DEAD = 1e-3


@torch.no_grad()
def measure_activity(
    network: Network, mosaics: Iterable[Float[Tensor, "b 1 h w"]]
) -> dict[str, Float[Tensor, " c"]]:
    """The share of values above 0 of each block's hidden channels, by the block's name, for batches of one size."""
    shares: dict[str, list[Tensor]] = {name: [] for name in blocks(network)}

    def measure(name: str, block: Residual, features: Tensor) -> None:
        shares[name].append((block.first(features) > 0).float().mean((0, 2, 3)))

    with visiting(network, measure):
        for mosaic in mosaics:
            network(mosaic)
    return {name: torch.stack(batches).mean(0) for name, batches in shares.items()}


def dead_share(network: Network, mosaic: Float[Tensor, "b 1 h w"]) -> float:
    """The share of the hidden channels of all blocks that are dead on some mosaics."""
    activity = list(measure_activity(network, [mosaic]).values())
    return float((torch.cat(activity) < DEAD).float().mean()) if activity else 0.0


@dataclass(frozen=True)
class InputMean:
    """A block and the mean of its input, by channel, when it was last measured."""

    block: Residual
    mean: Float[Tensor, " c"]

    def response(self) -> Float[Tensor, " d"]:
        """The output of the first convolution, without bias, for an input that is the mean everywhere."""
        weight: Tensor = self.block.first.weight.detach().sum((2, 3))
        return weight @ self.mean


@torch.no_grad()
def measure_input_means(network: Network, mosaic: Float[Tensor, "b 1 h w"]) -> list[InputMean]:
    """The mean inputs of all blocks of a network on some mosaics."""
    means: dict[str, InputMean] = {}

    def measure(name: str, block: Residual, features: Tensor) -> None:
        means[name] = InputMean(block, features.float().mean((0, 2, 3)))

    with visiting(network, measure):
        network(mosaic)
    return [means[name] for name in blocks(network)]


@torch.no_grad()
def centralise_gradients(means: list[InputMean]) -> None:
    """Change the gradients of the filters to those for inputs of zero mean."""
    for mean in means:
        first = mean.block.first
        assert first.bias is not None
        if first.weight.grad is not None and first.bias.grad is not None:
            first.weight.grad -= torch.outer(first.bias.grad, mean.mean)[:, :, None, None]


@torch.no_grad()
def compensate_biases(means: list[InputMean], before: list[Tensor]) -> None:
    """Subtract from the biases what a step has added to the filters' responses, so that channels do not shift.

    `before` are the responses before the step.
    """
    for mean, response in zip(means, before, strict=True):
        bias = mean.block.first.bias
        assert bias is not None
        bias -= mean.response() - response
