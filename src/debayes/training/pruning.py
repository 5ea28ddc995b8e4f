"""Pruning: removing the hidden channels that have no effect, for the same pixels with less work.

In training many channels of wide layers end up below 0 everywhere (see `gradient_centralisation`): their rectifier
gives 0, and they cost as much as any other. A block without channels adds a constant, which the convolution before
it can add instead.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from debayes.formats import pictures
from debayes.network import weights
from debayes.network.blocks import Residual, to_channels_last
from debayes.network.network import Network
from debayes.network.unet import UNet
from debayes.system import files
from debayes.system.errors import DebayesError
from debayes.training import data, gradient_centralisation, tiles, validation
from debayes.training.recipe import Recipe

# A channel is idle if less than this share of its values is above 0: a tenth of `gradient_centralisation.DEAD`.
IDLE = 1e-4

# Patches per batch.
BATCH = 8

# A block keeps no channels, or a power of two of at least this many, which suits matrix units.
MIN_HIDDEN = 32


def prune_file(
    model: str | Path,
    target: Path,
    recipe: Recipe,
    *,
    root: Path = Path(),
    patches: int = 512,
    device: str | torch.device = "cpu",
    progress: Callable[[float], None] | None = None,
) -> dict[str, Any]:
    """Write a model without the channels that are idle on patches of its recipe, and return what that changed."""
    files.check_target(target)
    file = weights.read(model)
    card, network = file.card, file.network(device=device)
    _body(network)  # raises for other networks now, not after minutes
    if recipe.noise.domain != card.domain:
        raise DebayesError(
            f"{model} was trained in the domain {card.domain!r}, the recipe is for {recipe.noise.domain!r}: "
            "give the model's own recipe"
        )
    store = tiles.open_store(recipe, root)
    val_pictures = pictures.find(root / recipe.data.val)[: recipe.data.val_pictures] if recipe.data.val else []
    buffer = tiles.TileBuffer(store, steps_per_block=recipe.data.steps_per_block, step=0, device=network.device)
    generator = torch.Generator(network.device)
    stride = network.config.stride
    raw, side, steps = card.domain == "raw", recipe.optimizer.patch // stride * stride, -(-patches // BATCH)

    def mosaics() -> Iterable[Tensor]:
        for step in range(steps):
            draws = data.sample_draws(
                BATCH, side, seed=recipe.optimizer.seed, step=step, generator=generator, raw=raw
            )
            yield data.make(recipe, buffer.tiles, draws).mosaic
            if progress is not None:
                progress((step + 1) / steps)

    activity = gradient_centralisation.measure_activity(network, mosaics())
    idle = [share < IDLE for shares in activity.values() for share in shares.tolist()]
    pruned = prune(network, activity)
    before, after = (
        validation.validate(each, val_pictures, domain=card.domain) if val_pictures else None
        for each in (network, pruned)
    )
    results, notes = card.results, card.notes
    if pruned.config != network.config:
        results = {} if after is None else {"val_psnr": after}
        notes = {"pruned": f"of {network.parameter_count} weights, by {BATCH * steps} patches"} | notes
    weights.save(pruned, target, weights.Card(pruned.config, recipe=card.recipe, results=results, notes=notes))
    return {
        "model": str(model),
        "written": str(target),
        "channels": len(idle),
        "idle": sum(idle),
        "parameters": [network.parameter_count, pruned.parameter_count],
        "kmac_per_pixel": [network.kmac_per_pixel, pruned.kmac_per_pixel],
        "val_psnr": [before, after],
    }


def prune(network: Network, activity: dict[str, Float[Tensor, " c"]]) -> Network:
    """A copy of a network without its idle channels.

    `activity` is that of `gradient_centralisation.measure_activity`.
    """
    chosen = {name: _choose(shares) for name, shares in activity.items()}
    counts = iter([len(channels) for channels in chosen.values()])
    hidden = [next(counts) if given else 0 for _, stack in network.config.stacks for given in stack]
    full = hidden == [width for width, stack in network.config.stacks for _ in stack]
    with torch.random.fork_rng(devices=()):  # the host program's random numbers stay the same
        slim = Network(replace(network.config, hidden=() if full else tuple(hidden)))
    inside = tuple(f"{name}." for name in chosen)
    plain = {name: t for name, t in network.state_dict().items() if not name.startswith(inside)}
    slim.to(network.device).eval().requires_grad_(False).load_state_dict(plain, strict=False)
    picked = iter(chosen.values())
    old, new = _body(network), _body(slim)
    for stack, slimmer, before in zip(_stacks(old), _stacks(new), _feeders(new), strict=True):
        fresh = iter(slimmer)
        for block in stack:
            channels = next(picked)
            if len(channels):
                target = next(fresh)
                _copy(block, target, channels)
                before = target.second
            else:
                assert block.second.bias is not None
                _add(before, block.second.bias)
    return to_channels_last(slim)


def _choose(shares: Float[Tensor, " c"]) -> Int[Tensor, " d"]:
    """The channels that a block keeps, by their activity: the most active ones."""
    needed = int((shares >= IDLE).sum())
    room = max(MIN_HIDDEN, 1 << (needed - 1).bit_length()) if needed else 0
    return shares.argsort(descending=True)[:room].sort().values


def _body(network: Network) -> UNet:
    """The body of a network whose blocks can be pruned."""
    if not isinstance(network.body, UNet):
        raise DebayesError(f"only a U-Net has blocks to prune, not the {network.config.architecture!r} network")
    return network.body


def _stacks(body: UNet) -> list[list[Residual]]:
    """The residual blocks of each stack, in the order of `Config.stacks`."""
    stacks = (*body.down, body.bottom, *body.up, body.tail)
    return [[block for block in stack.modules() if isinstance(block, Residual)] for stack in stacks]


def _feeders(body: UNet) -> list[nn.Conv2d]:
    """The convolution before each stack, in the same order."""
    layers = (body.head, *body.shrink, *body.grow, body.mix)
    return [layer for layer in layers if isinstance(layer, nn.Conv2d)]


def _copy(block: Residual, target: Residual, channels: Int[Tensor, " d"]) -> None:
    """Copy some of the hidden channels of a block to another block."""
    first, second = block.first.state_dict(), block.second.state_dict()
    target.first.load_state_dict({name: values[channels] for name, values in first.items()})
    target.second.load_state_dict({"weight": second["weight"][:, channels], "bias": second["bias"]})


def _add(layer: nn.Conv2d, constant: Float[Tensor, " c"]) -> None:
    """Add a constant to the output of a convolution; each channel to all of its pixels after depth to space."""
    assert layer.bias is not None
    layer.bias += constant.repeat_interleave(layer.out_channels // len(constant))
