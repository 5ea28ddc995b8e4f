"""Gradient centralisation: gradients are those for inputs of zero mean, and a step does not shift a channel."""

import pytest
import torch
import torch.nn.functional as F
from networks import untrained
from torch import Tensor

from debayes.network.blocks import Residual
from debayes.network.config import Config
from debayes.network.network import Network, blocks
from debayes.training import gradient_centralisation

CONFIG = Config(widths=(6, 8), blocks=1, bottom_blocks=1, tail=4, tail_blocks=1)


def network_and_mosaics() -> tuple[Network, Tensor]:
    mosaics = torch.rand(3, 1, 24, 24, generator=torch.Generator().manual_seed(0))
    return untrained(CONFIG).requires_grad_(True), mosaics


def test_means_are_those_of_what_blocks_are_given() -> None:
    """By a hook on one block; and a network without such blocks has none."""
    network, mosaics = network_and_mosaics()
    block = network.get_submodule("body.bottom.0")
    given: list[Tensor] = []
    block.register_forward_pre_hook(lambda _, inputs: given.append(inputs[0]))
    means = gradient_centralisation.measure_input_means(network, mosaics)
    assert [mean.block for mean in means] == list(blocks(network).values()) and len(means) == 4
    found = next(mean.mean for mean in means if mean.block is block)
    torch.testing.assert_close(found, given[0].mean((0, 2, 3)), rtol=1e-5, atol=1e-6)
    paper = untrained(Config("paper", widths=(8,), blocks=1, groups=1, growth=4, layers=2))
    assert gradient_centralisation.measure_input_means(paper, mosaics) == []


def test_gradients_are_those_of_a_block_that_takes_the_mean_off() -> None:
    """Away from the border, conv(x) + b is conv(x - m) + c with c = b + response to m; where c stays and the filter
    moves, the gradient is that of conv(x - m)."""
    torch.manual_seed(0)
    block, x = Residual(5, 5), 3 + torch.randn(2, 5, 9, 9)
    mean = x.mean((0, 2, 3))
    inner = (..., slice(1, -1), slice(1, -1))
    F.relu(block.first(x)[inner]).square().mean().backward()
    input_mean = gradient_centralisation.InputMean(block, mean)
    gradient_centralisation.centralise_gradients([input_mean])
    weight = block.first.weight.detach().clone().requires_grad_(True)
    assert block.first.bias is not None
    level = block.first.bias.detach() + input_mean.response()
    hidden = F.conv2d(x - mean[:, None, None], weight, level, padding=1)
    F.relu(hidden[inner]).square().mean().backward()
    assert weight.grad is not None and block.first.weight.grad is not None
    torch.testing.assert_close(block.first.weight.grad, weight.grad, rtol=1e-3, atol=1e-4)


def test_a_step_of_the_filters_does_not_shift_channels() -> None:
    """Whatever a step does to the filters, the mean of a channel away from the border stays; without the correction
    it moves."""
    torch.manual_seed(0)
    block, x = Residual(5, 5), 3 + torch.randn(2, 5, 32, 32)
    input_mean = gradient_centralisation.InputMean(block, x.mean((0, 2, 3)))

    def level() -> Tensor:
        return block.first(x)[..., 1:-1, 1:-1].mean((0, 2, 3)).detach()

    before, responses = level(), [input_mean.response()]
    with torch.no_grad():
        block.first.weight.add_(0.1 * torch.randn_like(block.first.weight))
    shifted = float((level() - before).abs().max())
    gradient_centralisation.compensate_biases([input_mean], responses)
    assert shifted > 0.5 and float((level() - before).abs().max()) < 0.1 * shifted


def test_dead_channels_are_found() -> None:
    """The share of all hidden channels: here 3 + 8 of 6 + 8 + 6 + 4."""
    network, mosaics = network_and_mosaics()
    network.requires_grad_(False)
    before = gradient_centralisation.dead_share(network, mosaics)
    for name, channels in {"body.down.0.0": 3, "body.bottom.0": 8}.items():
        block = network.get_submodule(name)
        assert isinstance(block, Residual) and block.first.bias is not None
        block.first.bias[:channels] = -100.0
    assert before == 0
    assert gradient_centralisation.dead_share(network, mosaics) == pytest.approx(11 / 24)
    paper = untrained(Config("paper", widths=(8,), blocks=1, groups=1, growth=4, layers=2))
    assert gradient_centralisation.dead_share(paper, mosaics) == 0
