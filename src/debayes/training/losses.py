"""The loss functions of training, by the name that a recipe gives as `loss.kind`.

A loss takes the recipe's `Loss`, the posterior of a network and the batch that it was computed from, and returns
the mean over the batch, a number. A new one is a function and a row of `LOSSES`.
"""

from collections.abc import Callable
from math import inf

import torch
from torch import Tensor

from debayes.posterior import variational
from debayes.posterior.nig import NormalInverseGamma
from debayes.system.errors import DebayesError
from debayes.training.data import Batch
from debayes.training.recipe import Loss, Recipe

LossFunction = Callable[[Loss, NormalInverseGamma, Batch], Tensor]


def batch_loss(recipe: Recipe, posterior: NormalInverseGamma, batch: Batch) -> Tensor:
    """The loss of a posterior on a batch, as the recipe asks for it."""
    return find_loss(recipe.loss.kind)(recipe.loss, posterior, batch)


def find_loss(kind: str) -> LossFunction:
    """The function of that name; raises if there is none."""
    if kind not in LOSSES:
        *names, last = (f'"{name}"' for name in LOSSES)
        raise DebayesError(f"loss.kind must be {', '.join(names)} or {last}, not {kind!r}")
    return LOSSES[kind]


def negative_elbo(loss: Loss, posterior: NormalInverseGamma, batch: Batch) -> Tensor:
    """The evidence lower bound with its sign changed; it trains the image and its uncertainty."""
    with torch.no_grad():
        prior = variational.prior(
            batch.observed,
            batch.target,
            count=loss.count,
            window=loss.window,
            measured=loss.measured,
            range_sigma=loss.range,
        )
    posterior = posterior.map(Tensor.float)
    if loss.gain:
        posterior = variational.precondition(
            posterior,
            prior,
            level=loss.level / 255,
            gain=loss.gain / loss.count,
            bend=loss.error_limit or inf,
            by_patch=loss.by_patch,
        )
    return -variational.elbo(posterior, prior, batch.observed, form=loss.form).mean()


def mean_squared_error(loss: Loss, posterior: NormalInverseGamma, batch: Batch) -> Tensor:
    """The mean squared error of the image; with `by_patch` the mean PSNR of the patches, its sign changed."""
    if loss.by_patch:
        return variational.negative_psnr(posterior.loc, batch.target, level=loss.level / 255)
    return (posterior.loc - batch.target).square().mean()


def mean_absolute_error(loss: Loss, posterior: NormalInverseGamma, batch: Batch) -> Tensor:
    """The mean absolute error of the image."""
    return (posterior.loc - batch.target).abs().mean()


LOSSES: dict[str, LossFunction] = {
    "elbo": negative_elbo,
    "mse": mean_squared_error,
    "l1": mean_absolute_error,
}
