"""Calibration: fitting a network's doubt, its predicted standard deviation of the image, to its actual errors.

Trained with the ELBO, count tends to lambda + 1 everywhere, so that the doubt map is a smaller noise map, and
concentration tends to alpha, so that z has the tails of a normal distribution. Calibration refits the filters of
the last convolution that give count, and a constant concentration for each colour. It maximises the likelihood of
the ground truth under the Student-t marginal of z, on pictures that the network was not trained on. Nothing else
changes: the image is bit-identical, the noise map equal up to rounding.
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
from debayes.posterior.nig import NormalInverseGamma, whole
from debayes.system import files
from debayes.system.errors import DebayesError
from debayes.training import data, tiles
from debayes.training.recipe import Data, Noise, Optimizer, Recipe, stored_noise

# Side of a patch, and how many of its pixels are sampled.
PATCH, PIXELS = 256, 1000

# The share of the patches that the fit is tested on.
TEST_SHARE = 0.25

# The largest number of iterations, and the penalty of the filters' squares, for features of unit variance.
ITERATIONS, RIDGE = 200, 1e-4


@dataclass(frozen=True)
class Samples:
    """Pixels of restored patches: the input of the last convolution there, and the result."""

    features: Float[Tensor, "n k"]
    """The 3x3 neighbourhoods of features, in the order of the convolution's weights."""
    posterior: NormalInverseGamma
    """Its values have the shape (n, 3)."""
    target: Float[Tensor, "n 3"]
    """The ground truth."""


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
    """Write a calibrated model, fitted on folders or zips of pictures, and return its scores before and after.

    The scores are of the last quarter of the patches, which are not used for the fit. The noise is that of the
    model's recipe, unless another is given.
    """
    files.check_target(target)
    file = weights.read(model)
    card, network = file.card, file.network(device=device)
    if noise is not None and noise.domain != card.domain:
        raise DebayesError(
            f"{model} was trained in the domain {card.domain!r}: give a recipe for it, not one for {noise.domain!r}"
        )
    recipe = _recipe(card, noise)
    store = tiles.Store(sources, size=PATCH, block_size=4 * patches)
    samples = gather(network, recipe, store.block(0), patches=patches, progress=progress)
    fit_count = round((1 - TEST_SHARE) * patches) * PIXELS
    fitted = fit(network, _part(samples, slice(fit_count)))
    test = _part(samples, slice(fit_count, None))
    noise_text = f"noise of sigma {recipe.noise.low:g} to {recipe.noise.high:g}"
    notes = card.notes | {
        "calibrated": f"by {patches} patches of {', '.join(path.name for path in sources)}, {noise_text}"
    }
    weights.save(fitted, target, weights.Card(card.config, card.recipe, card.results, notes))
    return {
        "model": str(model),
        "written": str(target),
        "patches": patches,
        "levels": uncertainty.LEVELS,
        "before": asdict(uncertainty.assess(test.posterior, test.target)),
        "after": asdict(uncertainty.assess(recalibrated(fitted, test), test.target)),
    }


def gather(
    network: Network,
    recipe: Recipe,
    pictures: Tensor,
    *,
    patches: int,
    progress: Callable[[float], None] | None = None,
) -> Samples:
    """Pixels of patches of the pictures, from the first picture to the last, with noise as in training."""
    side, raw = recipe.optimizer.patch, recipe.noise.domain == "raw"
    device, seed = network.device, recipe.optimizer.seed
    generator, pixel_generator = torch.Generator(device), torch.Generator().manual_seed(seed)
    pictures = pictures.to(device)
    features: list[Tensor] = []
    hook = network.body.maps.register_forward_pre_hook(lambda _, inputs: features.append(inputs[0]))
    parts = []
    try:
        for step in range(patches):
            draws = data.sample_draws(1, side, seed=seed, step=step, generator=generator, raw=raw)
            data.PATCH("tile", draws.patch).fill_((step + 0.5) / patches)
            with torch.no_grad():
                batch = data.make(recipe, pictures, draws)
                posterior = whole(network(batch.mosaic))
            parts.append(_pixels(features.pop(), posterior, batch.target, pixel_generator))
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
    generator: torch.Generator,
) -> Samples:
    """Random pixels of a patch, none near its border, where the convolutions see zeros."""
    height, width = target.shape[2:]
    border = min(BORDER, height // 4)
    rows, columns = (
        torch.randint(border, side - border, (PIXELS,), generator=generator).to(target.device)
        for side in (height, width)
    )
    around = features[0].unfold(1, 3, 1).unfold(2, 3, 1)  # the first one is around pixel (1, 1)
    picked = around[:, rows - 1, columns - 1].transpose(0, 1).flatten(1).float().cpu()
    at = (0, slice(None), rows, columns)
    return Samples(picked, posterior.map(lambda t: t[at].T.cpu()), target[at].T.cpu())


def fit(network: Network, samples: Samples) -> Network:
    """A copy of the network whose doubt maximises the likelihood of the samples' ground truth."""
    mean, spread = samples.features.mean(0), samples.features.std(0)
    spread = spread.clamp_min(1e-3 * float(spread.max()))
    features = (samples.features - mean) / spread
    error = (samples.target - samples.posterior.loc) / samples.posterior.noise_variance.sqrt()
    weight = torch.zeros(3, features.shape[1], requires_grad=True)
    # Starts near the best constant count, with a concentration of 4, which has heavy tails.
    bias = _head(1 / error.square().mean(0) / network.config.count).requires_grad_(True)
    shape = _head(torch.full((3,), 2 / (network.config.concentration - 2))).requires_grad_(True)
    optimizer = torch.optim.LBFGS(
        [weight, bias, shape], max_iter=ITERATIONS, history_size=20, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        count = features @ weight.T + bias
        others = torch.zeros_like(count)
        q = _posterior(network, torch.cat((others, count, shape.expand_as(count), others), 1))
        unit = NormalInverseGamma(
            others, q.count, q.concentration, q.concentration - 1
        )  # with a noise variance of 1
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
        maps.bias[FILTERS["count"]] = (bias - scaled @ mean).to(maps.bias)
        maps.weight[FILTERS["concentration"]] = 0
        maps.bias[FILTERS["concentration"]] = shape.to(maps.bias)
    return fitted


def recalibrated(network: Network, samples: Samples) -> NormalInverseGamma:
    """The posterior of the samples with the doubt of another network's last convolution."""
    maps, before = network.body.maps, samples.posterior
    assert maps.bias is not None
    q = _posterior(network, F.linear(samples.features, maps.weight.flatten(1).cpu(), maps.bias.cpu()))
    return NormalInverseGamma(before.loc, q.count, q.concentration, before.noise_variance * (q.concentration - 1))


def _posterior(network: Network, maps: Float[Tensor, "n 12"]) -> NormalInverseGamma:
    """The posterior that a network makes of its maps, pixel by pixel, with an interpolated mosaic of 0."""
    base = torch.zeros(len(maps), 3, 1, 1)
    return heads.posterior(network.config, base, maps[..., None, None]).map(lambda t: t[..., 0, 0])


def _head(times: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """The value of the map for which `Network.posterior` gives `times` the configured value."""
    times = times.clamp(1e-6, 50)
    return times + torch.log(-torch.expm1(-times)) - ONE


def _part(samples: Samples, part: slice) -> Samples:
    return Samples(samples.features[part], samples.posterior.map(lambda t: t[part]), samples.target[part])


def _recipe(card: weights.Card, noise: Noise | None) -> Recipe:
    """A recipe of unaugmented patches with this noise, or with that of the model's training."""
    noise = noise or stored_noise(card.recipe, "the recipe of the model")
    return Recipe(Data(("pictures",)), card.config, noise, optimizer=Optimizer(patch=PATCH, steps=1))
