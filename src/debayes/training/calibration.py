"""Honest doubt: what a trained network says about its own errors, fitted to the errors that it makes.

As the ELBO trains it, count tends to lambda + 1 everywhere, so that the doubt map is a smaller noise map, and
concentration to alpha, so that z has the tails of a normal distribution. Here the filters of the last convolution
that give count are fitted anew, and a constant concentration for each colour, by the likelihood of the truth under
the Student-t marginal of z, on pictures that the network was not trained on. All else stays as it is: the image to
the last bit, the noise map to rounding.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from debayes.evaluation import uncertainty
from debayes.network import heads, weights
from debayes.network.config import BORDER
from debayes.network.heads import FILTERS, ONE
from debayes.network.network import Network
from debayes.posterior.nig import NormalInverseGamma
from debayes.system import files
from debayes.training import data, tiles
from debayes.training.recipe import Data, Noise, Optimizer, Recipe

# Side of the patches that errors are looked at in, and how many pixels of each are.
PATCH, PIXELS = 256, 1000

# The share of patches that the fit is measured on, and not made with.
ASIDE = 0.25

# Rounds of the optimiser at most, and how much the squares of filters count, for features of unit variance.
ROUNDS, RIDGE = 200, 1e-4


@dataclass(frozen=True)
class Samples:
    """Pixels of restored patches: what the last convolution saw there, and what came out."""

    features: Float[Tensor, "n k"]
    """The 3x3 neighbourhoods of features, in the order of the convolution's weights."""
    posterior: NormalInverseGamma
    """Of (n, 3) values."""
    target: Float[Tensor, "n 3"]
    """The truth."""


def calibrate_file(
    model: str | Path,
    sources: Sequence[Path],
    target: Path,
    *,
    noise: Noise | None = None,
    patches: int = 384,
    device: str | torch.device = "cpu",
    progress: Callable[[float], None] | None = None,
) -> dict[str, Any]:
    """Write a model with its doubt fitted on folders or zips of pictures, and say how honest that was and is.

    This is measured on the last quarter of the patches, which have no part in the fit. Their noise is that of the
    model's recipe, unless another is given.
    """
    files.check_target(target)
    file = weights.read(model)
    card, network = file.card, file.network(device=device)
    if noise is not None and noise.domain != card.domain:
        raise ValueError(
            f"{model} was trained in the domain {card.domain!r}: give noise of it, not of {noise.domain!r}"
        )
    recipe = _recipe(card, noise)
    store = tiles.Store(sources, size=PATCH, hold=4 * patches)
    found = gather(network, recipe, store.block(0), patches=patches, progress=progress)
    known = round((1 - ASIDE) * patches) * PIXELS
    fitted = fit(network, _some(found, slice(known)))
    rest = _some(found, slice(known, None))
    given = f"noise of sigma {recipe.noise.low:g} to {recipe.noise.high:g}"
    notes = card.notes | {
        "calibrated": f"by {patches} patches of {', '.join(path.name for path in sources)}, {given}"
    }
    weights.save(fitted, target, weights.Card(card.config, card.recipe, card.results, notes))
    return {
        "model": str(model),
        "written": str(target),
        "patches": patches,
        "levels": uncertainty.LEVELS,
        "before": asdict(uncertainty.assess(rest.posterior, rest.target)),
        "after": asdict(uncertainty.assess(restate(fitted, rest), rest.target)),
    }


def gather(
    network: Network,
    recipe: Recipe,
    pictures: Tensor,
    *,
    patches: int,
    progress: Callable[[float], None] | None = None,
) -> Samples:
    """Pixels of so many patches of the pictures, from the first to the last, with noise as in training."""
    side, raw = recipe.optimizer.patch, recipe.noise.domain == "raw"
    device, seed = network.device, recipe.optimizer.seed
    generator, chooser = torch.Generator(device), torch.Generator().manual_seed(seed)
    pictures = pictures.to(device)
    seen: list[Tensor] = []
    hook = network.body.maps.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    parts = []
    try:
        for step in range(patches):
            drawn, normal = data.draw(1, side, seed=seed, step=step, generator=generator, raw=raw)
            drawn[:, 0] = (step + 0.5) / patches
            with torch.no_grad():
                batch = data.make(recipe, pictures, drawn, normal)
                posterior: NormalInverseGamma = network(batch.mosaic)
            parts.append(_pixels(seen.pop(), posterior, batch.target, chooser))
            if progress is not None:
                progress((step + 1) / patches)
    finally:
        hook.remove()
    maps = ([getattr(part.posterior, f.name) for part in parts] for f in fields(NormalInverseGamma))
    return Samples(
        torch.cat([part.features for part in parts]),
        NormalInverseGamma(*map(torch.cat, maps)),
        torch.cat([part.target for part in parts]),
    )


def _pixels(
    features: Float[Tensor, "1 c h w"],
    posterior: NormalInverseGamma,
    target: Float[Tensor, "1 3 h w"],
    chooser: torch.Generator,
) -> Samples:
    """Some pixels of a patch, none near its border, beyond which there are zeros."""
    height, width = target.shape[2:]
    border = min(BORDER, height // 4)
    rows, columns = (
        torch.randint(border, side - border, (PIXELS,), generator=chooser).to(target.device)
        for side in (height, width)
    )
    around = features[0].unfold(1, 3, 1).unfold(2, 3, 1)  # the first is around pixel (1, 1)
    picked = around[:, rows - 1, columns - 1].transpose(0, 1).flatten(1).float().cpu()
    at = (0, slice(None), rows, columns)
    return Samples(picked, posterior.map(lambda t: t[at].T.cpu()), target[at].T.cpu())


def fit(network: Network, samples: Samples) -> Network:
    """A copy of the network whose doubt makes the samples' truth most likely."""
    middle, spread = samples.features.mean(0), samples.features.std(0)
    spread = spread.clamp_min(1e-3 * float(spread.max()))
    features = (samples.features - middle) / spread
    error = (samples.target - samples.posterior.loc) / samples.posterior.noise_variance.sqrt()
    weight = torch.zeros(3, features.shape[1], requires_grad=True)
    # From the best constant count, about, and a concentration of 4, which has wide tails.
    bias = _head(1 / error.square().mean(0) / network.config.count).requires_grad_(True)
    shape = _head(torch.full((3,), 2 / (network.config.concentration - 2))).requires_grad_(True)
    optimizer = torch.optim.LBFGS(
        [weight, bias, shape], max_iter=ROUNDS, history_size=20, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        count = features @ weight.T + bias
        others = torch.zeros_like(count)
        q = _posterior(network, torch.cat((others, count, shape.expand_as(count), others), 1))
        unit = NormalInverseGamma(others, q.count, q.concentration, q.concentration - 1)  # of unit noise
        value: Tensor = RIDGE * weight.square().sum() - unit.log_marginal(error).mean()
        torch.autograd.backward(value)
        return value

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    fitted = deepcopy(network)
    maps = fitted.body.maps
    assert maps.bias is not None
    with torch.no_grad():
        scaled = weight / spread
        maps.weight[FILTERS["count"]] = scaled.view(3, -1, 3, 3).to(maps.weight)
        maps.bias[FILTERS["count"]] = (bias - scaled @ middle).to(maps.bias)
        maps.weight[FILTERS["concentration"]] = 0
        maps.bias[FILTERS["concentration"]] = shape.to(maps.bias)
    return fitted


def restate(network: Network, samples: Samples) -> NormalInverseGamma:
    """The posterior of the samples, with the doubt that another network's last convolution gives."""
    maps, known = network.body.maps, samples.posterior
    assert maps.bias is not None
    q = _posterior(network, F.linear(samples.features, maps.weight.flatten(1).cpu(), maps.bias.cpu()))
    return NormalInverseGamma(known.loc, q.count, q.concentration, known.noise_variance * (q.concentration - 1))


def _posterior(network: Network, maps: Float[Tensor, "n 12"]) -> NormalInverseGamma:
    """What a network's maps mean, pixel by pixel, over a base of 0."""
    base = torch.zeros(len(maps), 3, 1, 1)
    return heads.posterior(network.config, base, maps[..., None, None]).map(lambda t: t[..., 0, 0])


def _head(times: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """The map that `Network.posterior` makes so many times a value of the configuration of."""
    times = times.clamp(1e-6, 50)
    return times + torch.log(-torch.expm1(-times)) - ONE


def _some(samples: Samples, part: slice) -> Samples:
    return Samples(samples.features[part], samples.posterior.map(lambda t: t[part]), samples.target[part])


def _recipe(card: weights.Card, noise: Noise | None) -> Recipe:
    """Whole patches with this noise, or that which a model was trained with."""
    known = {f.name for f in fields(Noise)}
    noise = noise or Noise(**{name: value for name, value in card.recipe.get("noise", {}).items() if name in known})
    return Recipe(Data(("pictures",)), card.config, noise, optimizer=Optimizer(patch=PATCH, steps=1))
