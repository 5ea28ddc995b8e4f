"""Pruning: the same pixels with fewer weights, and files that say so."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from networks import untrained
from PIL import Image
from torch import Tensor
from typer.testing import CliRunner

from debayes.cli.app import app
from debayes.engine import prepare
from debayes.network import weights
from debayes.network.blocks import Residual
from debayes.network.config import Config
from debayes.network.network import Network, blocks
from debayes.restoration import restore_image
from debayes.training import gradient_centralisation, pruning
from debayes.training.recipe import read_recipe

CONFIG = Config(widths=(64, 48, 40), blocks=2, bottom_blocks=3, tail=8, tail_blocks=2)


def mosaics(count: int = 2) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.rand(2, 1, 64, 96, generator=generator) for _ in range(count)]


def prune(network: Network) -> Network:
    return pruning.prune(network, gradient_centralisation.measure_activity(network, mosaics()))


def kill(network: Network, channels: dict[str, int]) -> Network:
    """The network with the first hidden channels of some blocks below 0 everywhere, and constants of all blocks."""
    found = blocks(network)
    for block in found.values():
        assert block.second.bias is not None
        torch.nn.init.normal_(block.second.bias, std=0.1, generator=torch.Generator().manual_seed(1))
    for name, count in channels.items():
        bias = found[name].first.bias
        assert bias is not None
        bias[:count] = -1e4
    return network


# Blocks without channels at the start of a stack, behind another and behind each other, and at every level's place.
DEAD = {
    "body.down.0.0": 64,
    "body.down.0.1": 20,
    "body.down.1.1": 48,
    "body.bottom.0": 40,
    "body.bottom.1": 40,
    "body.up.0.0": 64,
    "body.up.0.1": 40,
    "body.up.1.0": 48,
    "body.up.1.1": 48,
    "body.tail.0": 8,
}
HIDDEN = (0, 64, 48, 0, 0, 0, 40, 0, 32, 0, 0, 0, 8)


def test_a_pruned_network_gives_the_same_pixels() -> None:
    """To float rounding, up to the border and in all four maps; without the weights of dead channels."""
    network = kill(untrained(CONFIG), DEAD)
    slim = prune(network)
    assert slim.config == replace(CONFIG, hidden=HIDDEN)
    assert slim.parameter_count < 0.6 * network.parameter_count
    assert slim.kmac_per_pixel < network.kmac_per_pixel
    for mosaic in mosaics(4)[2:]:
        right, got = network(mosaic), slim(mosaic)
        for name in ("loc", "count", "concentration", "rate"):
            torch.testing.assert_close(getattr(got, name), getattr(right, name), rtol=1e-4, atol=1e-5)


def test_it_can_be_pruned_again() -> None:
    """Blocks that are out stay out, and what was kept is counted from what there is."""
    slim = prune(kill(untrained(CONFIG), DEAD))
    again = prune(slim)
    assert again.config == slim.config
    fewer = prune(kill(slim, {"body.bottom.0": 40}))
    assert fewer.config.hidden == (*HIDDEN[:6], 0, *HIDDEN[7:])


def test_channels_that_are_rarely_active_are_kept() -> None:
    """One value in a thousand above 0 is enough; a block keeps a power of two of channels, from 32 on."""
    network = untrained(Config(widths=(64,), blocks=0, bottom_blocks=2, tail=8, tail_blocks=0))
    slim = prune(kill(network, {"body.bottom.0": 63, "body.bottom.1": 31}))
    assert slim.config.hidden == (32, 64)
    block = slim.get_submodule("body.bottom.0")
    original = network.get_submodule("body.bottom.0")
    assert isinstance(block, Residual) and isinstance(original, Residual)
    active = original.first.weight[63]
    assert any(torch.equal(kept, active) for kept in block.first.weight)
    share = gradient_centralisation.measure_activity(network, mosaics())["body.bottom.0"]
    assert float(share[63]) > 0.1 and float(share[:63].max()) == 0


def test_engines_run_pruned_networks() -> None:
    """Each stage and the receptive radius know which blocks are left: tiles of eager, small ones, fit together."""
    slim = prune(kill(untrained(CONFIG), DEAD))
    assert slim.config.receptive_radius < CONFIG.receptive_radius
    mosaic = torch.rand(1, 160, 192, generator=torch.Generator().manual_seed(3))
    whole = restore_image(slim, mosaic, tile=4096)
    torch.testing.assert_close(
        restore_image(prepare(slim, "eager", image=True), mosaic, tile=64), whole, rtol=0, atol=1e-4
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [({"hidden": (8, 8)}, "all of its residual blocks or none"), ({"hidden": (-1,) * 13}, "must be 0 or more")],
)
def test_hidden_channels_must_fit(change: dict[str, tuple[int, ...]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(CONFIG, **change)
    with pytest.raises(ValueError, match="all of its residual blocks or none"):
        Config("paper", widths=(8,), hidden=(8,) * 10)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Pictures to train on and to judge by, and a recipe for them."""
    for folder in ("train", "val"):
        (tmp_path / folder).mkdir()
        numbers = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
        Image.fromarray(numbers).save(tmp_path / folder / "0.png")
    (tmp_path / "small.toml").write_text(
        '[data]\ntrain = ["train"]\nval = "val"\ntile = 64\n[optimizer]\npatch = 32\nsteps = 1\n'
    )
    return tmp_path


def test_the_command_writes_a_weight_file_that_says_what_it_is(store: Path) -> None:
    network = kill(untrained(CONFIG), {"body.bottom.0": 40})
    recipe = {"noise": {"domain": "srgb"}}
    card = weights.Card(CONFIG, recipe=recipe, results={"kodak": 1.0}, notes={"licences": "{}"})
    weights.save(network, store / "wide.safetensors", card)
    arguments = [str(store / "wide.safetensors"), str(store / "small.toml"), "--data", str(store)]
    target = store / "slim.safetensors"
    done = CliRunner().invoke(app, ["prune", *arguments, "-o", str(target), "--patches", "16", "--json"])
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    slim, found = weights.load(target), weights.read_card(target)
    assert slim.config.hidden.count(0) == 1 and found.config == slim.config
    assert answer["parameters"] == [network.parameter_count, slim.parameter_count]
    assert answer["val_psnr"][0] == pytest.approx(answer["val_psnr"][1], abs=1e-3)
    assert found.recipe == recipe and found.results == {"val_psnr": answer["val_psnr"][1]}
    assert found.notes["licences"] == "{}" and str(network.parameter_count) in found.notes["pruned"]
    assert answer["channels"] == 4 * 64 + 4 * 48 + 3 * 40 + 2 * 8 and answer["idle"] >= 40
    arguments[0] = str(target)
    again = CliRunner().invoke(app, ["prune", *arguments, "-o", str(store / "again.safetensors"), "--patches", "8"])
    assert again.exit_code == 0 and f"{answer['idle'] - 40} of {answer['channels'] - 40} channels" in again.stdout
    assert weights.read_card(store / "again.safetensors") == found  # nothing went, nothing changed


def test_what_cannot_be_pruned_is_said_and_nothing_written(store: Path) -> None:
    config = Config("paper", widths=(8,), blocks=1, groups=1, growth=4, layers=2)
    weights.save(untrained(config), store / "paper.safetensors", weights.Card(config))
    target = store / "slim.safetensors"
    plan = read_recipe(store / "small.toml")
    with pytest.raises(ValueError, match="only a U-Net"):
        pruning.prune_file(store / "paper.safetensors", target, plan, root=store, patches=8)
    weights.save(untrained(CONFIG), store / "wide.safetensors", weights.Card(CONFIG))
    raw = replace(plan, noise=replace(plan.noise, domain="raw"))
    with pytest.raises(ValueError, match="domain 'srgb', the recipe is for 'raw'"):
        pruning.prune_file(store / "wide.safetensors", target, raw, root=store, patches=8)
    assert not target.exists()
