"""Losses: each kind is what it says, by PyTorch's own functions; the ELBO is that of `variational`."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from debayes.evaluation import metrics
from debayes.imaging import cfa
from debayes.network.config import Config
from debayes.posterior import variational
from debayes.posterior.nig import NormalInverseGamma
from debayes.training import losses
from debayes.training.data import Batch
from debayes.training.recipe import Data, Loss, Optimizer, Recipe

RECIPE = Recipe(Data(("x",)), Config(), optimizer=Optimizer(steps=1))


def random(*shape: int, seed: int) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def example() -> tuple[NormalInverseGamma, Batch]:
    target, loc = random(2, 3, 16, 16, seed=0), random(2, 3, 16, 16, seed=1)
    mosaic = cfa.mosaic(target) + 0.05 * random(2, 1, 16, 16, seed=2)
    ones = torch.ones_like(target)
    return NormalInverseGamma(loc, 100 * ones, 40 * ones, 0.1 * ones), Batch(
        target, mosaic, cfa.interpolate(mosaic)
    )


@pytest.mark.parametrize(("kind", "expected"), [("mse", F.mse_loss), ("l1", F.l1_loss)])
def test_losses_of_the_image(kind: str, expected: object) -> None:
    """The mean squared and the mean absolute error of the image."""
    posterior, batch = example()
    found = losses.batch_loss(replace(RECIPE, loss=Loss(kind=kind)), posterior, batch)
    assert callable(expected)
    torch.testing.assert_close(found, expected(posterior.loc, batch.target))


def test_negative_psnr_is_the_metric_with_its_sign_changed() -> None:
    """Its mean over the patches; an error of 0 counts as one of the level."""
    posterior, batch = example()
    by_patch = replace(RECIPE, loss=Loss(kind="mse", by_patch=True, level=0.0))
    found = losses.batch_loss(by_patch, posterior, batch)
    torch.testing.assert_close(found, -metrics.psnr(posterior.loc, batch.target).mean())
    by_patch = replace(RECIPE, loss=Loss(kind="mse", by_patch=True, level=25.5))
    exact = NormalInverseGamma(batch.target, posterior.count, posterior.concentration, posterior.rate)
    assert float(losses.batch_loss(by_patch, exact, batch)) == pytest.approx(-20)


@pytest.mark.parametrize("gain", [0.0, 1e4])
def test_the_elbo_with_its_sign_changed(gain: float) -> None:
    """A gain changes the gradient of the image by `precondition`, never the value."""
    posterior, batch = example()
    plan = replace(RECIPE, loss=Loss(count=50.0, window=9, gain=gain, level=4.0))
    prior = variational.prior(batch.observed, batch.target, count=50.0, window=9, measured=True)
    found = losses.batch_loss(plan, posterior, batch)
    torch.testing.assert_close(found, -variational.elbo(posterior, prior, batch.observed).mean())
    gradients = []
    for value in (0.0, gain):
        loc = posterior.loc.clone().requires_grad_()
        changed = NormalInverseGamma(loc, posterior.count, posterior.concentration, posterior.rate)
        loss = losses.batch_loss(replace(plan, loss=replace(plan.loss, gain=value)), changed, batch)
        gradients.append(torch.autograd.grad(loss, loc)[0])
    assert torch.equal(*gradients) == (gain == 0)
