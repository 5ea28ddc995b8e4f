"""The state of a training run: how it starts, is saved to state.pt and is resumed."""

import json
import pickle
import zipfile
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from debayes.network import weights
from debayes.network.blocks import to_channels_last
from debayes.network.config import Config
from debayes.network.network import Network, blocks
from debayes.system import files
from debayes.system.errors import DebayesError
from debayes.training.gradient_centralisation import InputMean
from debayes.training.muon import Muon, filter_banks
from debayes.training.recipe import Optimizer, Recipe, stored_recipe
from debayes.training.schedule import Plateau


@dataclass
class State:
    """Everything that changes from step to step."""

    network: Network
    """The network in training."""
    averaged: Network
    """The moving average of its weights, which is what is validated and saved."""
    optimizers: list[torch.optim.Optimizer]
    """AdamW, and after it Muon if the recipe asks for it."""
    typical_grad_norm: Tensor
    """The running mean of the gradient's norm; 0 before the first step."""
    input_means: list[InputMean] = field(default_factory=list)
    """The mean inputs of the blocks, for gradient centralisation."""
    step: int = 0
    """How many steps were taken."""
    seconds: float = 0.0
    """How long they took, in wall-clock time."""
    plateau: Plateau = field(default_factory=Plateau)
    """The state of the plateau schedule."""


def start_state(recipe: Recipe, device: torch.device) -> State:
    """The state before the first step. PyTorch's global random numbers stay as they are."""
    with torch.random.fork_rng(devices=()):
        torch.default_generator.manual_seed(recipe.optimizer.seed)
        network = Network(recipe.network)
    if recipe.start:
        load_weights(network, recipe.start)
    to_channels_last(network).to(device).train()
    averaged = deepcopy(network).requires_grad_(False)
    return State(network, averaged, make_optimizers(network, recipe.optimizer), torch.zeros((), device=device))


def save_state(state: State, recipe: Recipe, file: Path) -> None:
    """Write state.pt, whole or not at all."""
    saved = {
        "recipe": json.dumps(asdict(recipe)),
        "network": state.network.state_dict(),
        "averaged": state.averaged.state_dict(),
        "optimizers": [optimizer.state_dict() for optimizer in state.optimizers],
        "typical_grad_norm": state.typical_grad_norm,
        "input_means": [mean.mean for mean in state.input_means],
        "step": state.step,
        "seconds": state.seconds,
        "plateau": asdict(state.plateau),
    }
    with files.replace(file) as temporary, temporary.open("wb") as opened:
        buffer = BytesIO()  # torch.save to a full disk raises no OSError
        torch.save(saved, buffer)
        opened.write(buffer.getbuffer())


def load_state(file: Path, recipe: Recipe, device: torch.device) -> State:
    """The state that a run of this recipe saved."""
    saved = _read(file, device)
    if stored_recipe(json.loads(saved["recipe"]), f"the recipe in {file}") != recipe:
        raise DebayesError(
            f"{file.parent} was started with another recipe: resume it with that one, or choose another folder"
        )
    state = start_state(replace(recipe, start=""), device)
    state.network.load_state_dict(saved["network"])
    state.averaged.load_state_dict(saved["averaged"])
    for optimizer, values in zip(state.optimizers, saved["optimizers"], strict=True):
        optimizer.load_state_dict(values)
    state.typical_grad_norm = saved["typical_grad_norm"]
    if saved["input_means"]:
        state.input_means = list(map(InputMean, blocks(state.network).values(), saved["input_means"]))
    state.step, state.seconds, state.plateau = saved["step"], saved["seconds"], Plateau(**saved["plateau"])
    return state


def _read(file: Path, device: torch.device) -> dict[str, Any]:
    if not zipfile.is_zipfile(file):
        raise DebayesError(f"{file} cannot be read, it is damaged: start a new run in another folder")
    try:
        saved = torch.load(file, map_location=device, weights_only=True)
    except pickle.UnpicklingError:
        saved = None
    keys = {"recipe", "network", "averaged", "optimizers", "typical_grad_norm", "input_means"}
    if not isinstance(saved, dict) or saved.keys() != keys | {"step", "seconds", "plateau"}:
        raise DebayesError(f"{file} was not saved by this version of debayes: start a new run in another folder")
    return saved


def load_weights(network: Network, model: str) -> None:
    """Give a network the weights of another, which may have fewer blocks.

    The additional blocks, at the ends of the stacks, are the identity before they learn. A calibrated posterior is
    not kept: it is learnt again.
    """
    if model not in weights.shipped() and not Path(model).is_file():
        raise DebayesError(
            f"the recipe starts from {model}, which does not exist: the first lines of the recipe tell how to make "
            'it; or start with fresh weights: --set start=""'
        )
    source = weights.load(model, calibrated=False)
    old, new = source.state_dict(), network.state_dict()
    added = tuple(f"{name}." for name in set(blocks(network)) - set(blocks(source)))
    same_names = {name for name in new if not name.startswith(added)} == set(old)
    same_config = _without_blocks(source.config) == _without_blocks(network.config)
    if not (same_config and same_names and all(new[name].shape == tensor.shape for name, tensor in old.items())):
        ours, theirs = (json.loads(json.dumps(asdict(each.config))) for each in (network, source))
        differences = "; ".join(
            f"{key} = {value} there, {ours[key]} here" for key, value in theirs.items() if value != ours[key]
        )
        raise DebayesError(
            f"the recipe's network is not that of {model}, which it starts from, nor that with more blocks "
            f"({differences}): set the same values under [network], `hidden` too"
        )
    network.load_state_dict(new | old)


def _without_blocks(config: Config) -> Config:
    return replace(config, blocks=1, bottom_blocks=1, tail_blocks=1, hidden=())


def make_optimizers(network: Network, plan: Optimizer) -> list[torch.optim.Optimizer]:
    """AdamW, and after it Muon for the filter banks if the recipe asks for it."""
    banks = filter_banks(network) if plan.muon else []
    in_banks = {id(bank) for bank in banks}
    others = [p for p in network.parameters() if id(p) not in in_banks]
    biases = {"params": [p for p in others if p.ndim == 1], "weight_decay": 0.0}
    filters = {"params": [p for p in others if p.ndim > 1], "weight_decay": plan.decay}
    fused = network.device.type == "cuda"
    adam = torch.optim.AdamW([filters, biases], lr=0.0, betas=(0.9, 0.99), fused=fused)
    return [adam, Muon(banks, lr=0.0, weight_decay=plan.decay)] if banks else [adam]
