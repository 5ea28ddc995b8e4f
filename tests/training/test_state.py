"""The state of a run: what it starts from, what is saved, what can be resumed."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from trainings import recipe

from debayes.network import weights
from debayes.network.blocks import Residual
from debayes.network.config import Config
from debayes.network.network import Network
from debayes.training import loop
from debayes.training.gradient_centralisation import measure_input_means
from debayes.training.recipe import Optimizer
from debayes.training.schedule import Plateau
from debayes.training.state import load_state, make_optimizers, save_state, start_state

CPU = torch.device("cpu")


def test_a_saved_state_is_loaded_again(tmp_path: Path) -> None:
    """Networks, optimizers, input means, counters and plateau, all to the last bit."""
    plan = recipe(muon=1.0, centralise_every=1)
    state = start_state(plan, CPU)
    state.network(torch.rand(1, 1, 32, 32)).loc.sum().backward()
    for optimizer in state.optimizers:
        optimizer.param_groups[0]["lr"] = 0.1
        optimizer.step()
    state.input_means = measure_input_means(state.network, torch.rand(1, 1, 32, 32))
    state.step, state.seconds, state.plateau = 7, 1.5, Plateau(30.0, 0.5)
    state.typical_grad_norm = torch.tensor(3.0)
    save_state(state, plan, tmp_path / "state.pt")
    again = load_state(tmp_path / "state.pt", plan, CPU)
    assert (again.step, again.seconds, again.plateau) == (7, 1.5, Plateau(30.0, 0.5))
    assert float(again.typical_grad_norm) == 3
    for name in ("network", "averaged"):
        left, right = getattr(state, name).state_dict(), getattr(again, name).state_dict()
        assert all(torch.equal(left[key], right[key]) for key in left)
    assert not torch.equal(again.network.body.maps.weight, again.averaged.body.maps.weight)
    for old, new in zip(state.input_means, again.input_means, strict=True):
        assert torch.equal(old.mean, new.mean) and new.block in list(again.network.modules())
    for old_optimizer, new_optimizer in zip(state.optimizers, again.optimizers, strict=True):
        before, after = old_optimizer.state_dict(), new_optimizer.state_dict()
        assert before["param_groups"] == after["param_groups"] and len(before["state"]) == len(after["state"]) > 0
        for key, moments in before["state"].items():
            assert all(torch.equal(moments[name], after["state"][key][name]) for name in moments)


def test_a_run_is_resumed_after_a_key_was_added(tmp_path: Path) -> None:
    """A saved recipe that lacks a key, or has it under its old name, is the recipe with the key's default; one that
    differs elsewhere is another recipe."""
    plan = recipe()
    save_state(start_state(plan, CPU), plan, tmp_path / "state.pt")
    saved = torch.load(tmp_path / "state.pt", weights_only=True)
    table = json.loads(saved["recipe"])
    del table["noise"]["unusual"], table["optimizer"]["bfloat16"]
    table["loss"]["bend"] = table["loss"].pop("error_limit")
    torch.save(saved | {"recipe": json.dumps(table)}, tmp_path / "state.pt")
    assert load_state(tmp_path / "state.pt", plan, CPU).step == 0
    table["noise"]["low"] = 1.0
    torch.save(saved | {"recipe": json.dumps(table)}, tmp_path / "state.pt")
    with pytest.raises(ValueError, match="another recipe"):
        load_state(tmp_path / "state.pt", plan, CPU)


def test_the_seed_decides_the_first_weights() -> None:
    """The same seed gives the same weights, another seed others; the global random numbers stay as they are."""
    before = torch.get_rng_state()
    first, again, other = (start_state(recipe(seed=seed), CPU).network.body.head.weight for seed in (5, 5, 6))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_what_cannot_be_resumed(pictures: Path, tmp_path: Path) -> None:
    """An empty folder, another recipe's run and a damaged state are errors that say so."""
    with pytest.raises(FileNotFoundError, match="contains no run to resume"):
        loop.train(recipe(steps=2), tmp_path / "run", root=pictures, resume=True)
    loop.train(recipe(steps=2), tmp_path / "run", root=pictures)
    with pytest.raises(ValueError, match="another recipe"):
        loop.train(recipe(steps=3), tmp_path / "run", root=pictures, resume=True)
    torch.save({"step": 1}, tmp_path / "run" / "state.pt")
    with pytest.raises(ValueError, match="was not saved by this version"):
        loop.train(recipe(steps=2), tmp_path / "run", root=pictures, resume=True)
    torch.save(Path(), tmp_path / "run" / "state.pt")  # needs more than weights_only allows
    with pytest.raises(ValueError, match="was not saved by this version"):
        loop.train(recipe(steps=2), tmp_path / "run", root=pictures, resume=True)
    (tmp_path / "run" / "state.pt").write_bytes(b"half")
    with pytest.raises(ValueError, match="cannot be read"):
        loop.train(recipe(steps=2), tmp_path / "run", root=pictures, resume=True)


def test_start_from_weights(pictures: Path, tmp_path: Path) -> None:
    """A recipe may start from a weight file: after no learning at all it is still that file's network."""
    first = loop.train(recipe(steps=3), tmp_path / "first", root=pictures)
    plan = replace(recipe(steps=1, rate=0.0), start=str(first))
    second = loop.train(plan, tmp_path / "second", root=pictures)
    left, right = weights.load(first).state_dict(), weights.load(second).state_dict()
    assert all(torch.equal(left[name], right[name]) for name in left)
    other = replace(plan, network=replace(plan.network, tail=4))
    with pytest.raises(ValueError, match="not that of"):
        loop.train(other, tmp_path / "third", root=pictures)
    with pytest.raises(ValueError, match=r"starts from nowhere\.safetensors, which does not exist"):
        loop.train(replace(plan, start="nowhere.safetensors"), tmp_path / "fourth", root=pictures)


def test_start_from_weights_with_fewer_blocks(pictures: Path, tmp_path: Path) -> None:
    """Blocks at the ends of stacks change no pixel at first, and learn."""
    first = loop.train(recipe(steps=3), tmp_path / "first", root=pictures)
    config = weights.read_card(first).config
    grown = replace(config, blocks=config.blocks + 1, bottom_blocks=config.bottom_blocks + 2)
    plan = replace(recipe(steps=1, rate=0.0), start=str(first), network=grown)
    second = loop.train(plan, tmp_path / "second", root=pictures)
    mosaic = torch.rand(1, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    before, after = weights.load(first), weights.load(second)
    assert after.parameter_count > before.parameter_count
    torch.testing.assert_close(after(mosaic).loc, before(mosaic).loc, rtol=0, atol=1e-6)
    third = loop.train(replace(plan, optimizer=recipe(steps=5).optimizer), tmp_path / "third", root=pictures)
    block = f"body.bottom.{config.bottom_blocks + 1}"
    learnt = weights.load(third).get_submodule(block)
    assert isinstance(learnt, Residual) and float(learnt.second.weight.abs().max()) > 0
    fewer = replace(config, bottom_blocks=config.bottom_blocks - 1)
    for other in (fewer, replace(grown, count=7.0)):
        with pytest.raises(ValueError, match="nor that with more blocks"):
            loop.train(replace(plan, network=other), tmp_path / "other", root=pictures)


@pytest.mark.parametrize("muon", [0.0, 1.0])
def test_filters_decay_and_biases_do_not(muon: float) -> None:
    """A step without gradients leaves 1 - rate * decay of filters, with either optimizer, and biases unchanged."""
    network = Network(Config(widths=(16,), blocks=0, bottom_blocks=1, tail=16, tail_blocks=0))
    torch.nn.init.ones_(network.body.maps.bias)
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    for parameter in network.parameters():
        parameter.grad = torch.zeros_like(parameter)
    for optimizer in make_optimizers(network, Optimizer(muon=muon, decay=2.0)):
        for group in optimizer.param_groups:
            group["lr"] = 0.1
        optimizer.step()
    for name, parameter in network.named_parameters():
        torch.testing.assert_close(parameter.detach(), (0.8 if parameter.ndim > 1 else 1.0) * before[name])
