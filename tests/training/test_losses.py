"""Losses: each kind is what it says, by PyTorch's own functions; the ELBO is that of `variational`."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from trainings import recipe

from debayes.evaluation import metrics
from debayes.imaging import cfa
from debayes.network.config import Config
from debayes.posterior import variational
from debayes.posterior.nig import NormalInverseGamma
from debayes.system.errors import DebayesError
from debayes.training import loop, losses
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


def test_a_new_loss_is_a_function_and_a_row(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recipe can name it, and trains with it; a name that is not in the table is an error before the run."""

    def huber(loss: Loss, posterior: NormalInverseGamma, batch: Batch) -> torch.Tensor:
        return F.huber_loss(posterior.loc, batch.target, delta=loss.level / 255)

    plan = recipe(steps=2)
    plan = replace(plan, loss=Loss(kind="huber"))
    with pytest.raises(DebayesError, match=r'loss\.kind must be "elbo", "mse" or "l1", not \'huber\''):
        loop.train(plan, tmp_path / "run", root=pictures)
    assert not (tmp_path / "run").exists()
    monkeypatch.setitem(losses.LOSSES, "huber", huber)
    posterior, batch = example()
    expected = F.huber_loss(posterior.loc, batch.target, delta=plan.loss.level / 255)
    torch.testing.assert_close(losses.batch_loss(plan, posterior, batch), expected)
    loop.train(plan, tmp_path / "run", root=pictures)
    assert json.loads((tmp_path / "run" / "log.jsonl").read_text())["step"] == 2
