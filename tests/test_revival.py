"""Channels that fell silent: they are found, started anew without changing a pixel, and then learn."""

from copy import deepcopy

import pytest
import torch
from networks import untrained
from torch import Tensor

from debayes import revival
from debayes.model import Config, Network, Residual
from debayes.muon import Muon, filter_banks

CONFIG = Config(widths=(16, 24), blocks=1, bottom_blocks=2, tail=8, tail_blocks=1)
SILENCED = {"body.down.0.0": [3, 7], "body.bottom.1": list(range(24))}


@pytest.fixture
def silenced() -> Network:
    """A network in which two channels of one block and all of another will never be above 0."""
    network = untrained(CONFIG)
    for name, channels in SILENCED.items():
        block = network.get_submodule(name)
        assert isinstance(block, Residual) and block.first.bias is not None
        block.first.bias[channels] = -100.0
    return network


def mosaics() -> Tensor:
    return torch.rand(4, 1, 32, 32, generator=torch.Generator().manual_seed(0))


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(1)


def test_silent_channels_are_found(silenced: Network) -> None:
    """The share of all hidden channels: here 26 of 16 + 2 * 24 + 16 + 8."""
    hidden = sum(m.first.out_channels for m in silenced.modules() if isinstance(m, Residual))
    before = revival.silent_share(untrained(CONFIG), mosaics())
    assert revival.silent_share(silenced, mosaics()) == pytest.approx(before + 26 / hidden)
    paper = untrained(Config("paper", widths=(8,), blocks=1, groups=1, growth=4, layers=2))
    assert revival.silent_share(paper, mosaics()) == 0


def test_revived_channels_change_no_pixel_and_speak(silenced: Network) -> None:
    """The posterior stays as it is, to float rounding, and the channels are above 0 half of the time."""
    before = silenced(mosaics())
    revived = {
        r.name: r.channels.nonzero().flatten().tolist() for r in revival.revive(silenced, mosaics(), generator())
    }
    assert all(set(SILENCED[name]) <= set(revived[name]) for name in SILENCED)
    after = silenced(mosaics())
    torch.testing.assert_close(after.loc, before.loc, rtol=0, atol=1e-5)
    torch.testing.assert_close(after.rate, before.rate, rtol=1e-4, atol=1e-6)
    assert revival.silent_share(silenced, mosaics()) == 0
    block = silenced.get_submodule("body.down.0.0")
    assert isinstance(block, Residual)
    heard: list[Tensor] = []
    block.first.register_forward_hook(lambda _, __, output: heard.append(output))
    silenced(mosaics())
    channels = heard[0][:, SILENCED["body.down.0.0"]]
    assert 0.3 < float((channels > 0).float().mean()) < 0.7
    others = heard[0].std((0, 2, 3)).median()  # as loud as the others
    assert 0.5 < float(channels.std() / others) < 2


def test_a_revived_channel_gets_gradients_where_a_silent_one_gets_none(silenced: Network) -> None:
    silenced.requires_grad_(True)
    block = silenced.get_submodule("body.bottom.1")
    assert isinstance(block, Residual)

    def gradient() -> Tensor:
        silenced.zero_grad()
        silenced(mosaics()).loc.square().mean().backward()
        assert block.second.weight.grad is not None
        return block.second.weight.grad

    assert float(gradient().abs().max()) == 0
    revival.revive(silenced, mosaics(), generator())
    assert float(gradient().abs().max()) > 0


def test_other_networks_and_optimizers_follow(silenced: Network) -> None:
    """The moving average gets the same filters, the optimizers forget the old ones, and nothing else changes."""
    averaged = deepcopy(silenced)
    other = averaged.get_submodule("body.down.0.0")
    assert isinstance(other, Residual)
    kept = other.first.weight[0].clone()
    network = silenced.requires_grad_(True)
    banks = filter_banks(network)
    chosen = {id(bank) for bank in banks}
    optimizers: list[torch.optim.Optimizer] = [
        torch.optim.AdamW([p for p in network.parameters() if id(p) not in chosen], lr=0.0),
        Muon(banks, lr=0.0),
    ]
    network(mosaics()).rate.log().mean().backward()
    for optimizer in optimizers:
        optimizer.step()
    block = network.get_submodule("body.down.0.0")
    assert isinstance(block, Residual)
    for memory in (optimizers[1].state[p]["momentum"] for p in (block.first.weight, block.second.weight)):
        memory.add_(1)
    revived = revival.revive(network, mosaics(), generator())
    revival.forget(revived, network, optimizers)
    revival.copy(revived, network, averaged)
    torch.testing.assert_close(other.first.weight[3], block.first.weight[3].detach(), rtol=0, atol=0)
    torch.testing.assert_close(other.first.weight[0], kept, rtol=0, atol=0)
    assert bool((optimizers[1].state[block.first.weight]["momentum"][3] == 0).all())
    assert bool((optimizers[1].state[block.second.weight]["momentum"][:, 3] == 0).all())
    assert bool((optimizers[1].state[block.first.weight]["momentum"][0] != 0).any())
