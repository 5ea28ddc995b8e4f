"""The loss functions of training."""

from math import inf

import torch
from torch import Tensor

from debayes.posterior import variational
from debayes.posterior.nig import NormalInverseGamma
from debayes.training.data import Batch
from debayes.training.recipe import Recipe


def batch_loss(recipe: Recipe, posterior: NormalInverseGamma, batch: Batch) -> Tensor:
    """The loss of a posterior on a batch, as the recipe asks for it."""
    if recipe.loss.kind == "mse" and recipe.loss.by_patch:
        return variational.negative_psnr(posterior.loc, batch.target, level=recipe.loss.level / 255)
    if recipe.loss.kind == "mse":
        return (posterior.loc - batch.target).square().mean()
    if recipe.loss.kind == "l1":
        return (posterior.loc - batch.target).abs().mean()
    with torch.no_grad():
        prior = variational.prior(
            batch.observed,
            batch.target,
            count=recipe.loss.count,
            window=recipe.loss.window,
            measured=recipe.loss.measured,
            range_sigma=recipe.loss.range,
        )
    posterior = posterior.map(Tensor.float)
    if recipe.loss.gain:
        posterior = variational.precondition(
            posterior,
            prior,
            level=recipe.loss.level / 255,
            gain=recipe.loss.gain / recipe.loss.count,
            bend=recipe.loss.error_limit or inf,
            by_patch=recipe.loss.by_patch,
        )
    return -variational.elbo(posterior, prior, batch.observed, form=recipe.loss.form).mean()
