"""The parts of the learning experiments: fitting one picture, the summary of traces.

Whole experiments are made in test_experiments.
"""

import pytest
import torch

from debayes.evaluation import metrics, scenes
from debayes.imaging import noise
from debayes.reproduction import learning


def test_fitting_a_corrupted_picture_denoises_first() -> None:
    """As in a deep image prior the PSNR against the truth rises at first, with both losses."""
    truth = scenes.cartoon(32)[None]
    observed = truth + 0.1 * torch.randn(truth.shape, generator=torch.Generator().manual_seed(0))
    for loss in ("ELBO", "MSE"):
        curve = learning._fit_picture(loss, truth, observed, 0.1, 60, lambda share: None)
        assert curve[-1][1] > curve[0][1] + 2


def test_fitting_starts_from_grey_and_leaves_the_global_seed() -> None:
    """A new network predicts almost no residual over grey; the caller's random numbers do not change."""
    truth = scenes.cartoon(16)[None]
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    (step, psnr), _ = learning._fit_picture("MSE", truth, truth, 0.1, 1, lambda share: None)
    assert step == 0
    assert psnr == pytest.approx(float(metrics.psnr(torch.full_like(truth, 0.5), truth)[0]), abs=1)
    assert torch.equal(torch.rand(3), expected)


def test_summaries_are_means_over_pictures() -> None:
    """The curve and the blind gain are means; the worst picture and those not fine-tuned are counted."""
    traces = [
        {"psnr": [(0, 30.0), (5, 31.0), (10, 30.5)], "stop": 5, "blind": 31.0, "needed": True},
        {"psnr": [(0, 20.0), (5, 20.5), (10, 20.1)], "stop": 0, "blind": 20.0, "needed": False},
    ]
    curve, row = learning._summarise(traces, "ours", "Uniform", dashed=False)
    assert (curve.name, list(curve.x), curve.dashed) == ("ours", [0, 5, 10], False)
    assert list(curve.y) == pytest.approx([0, 0.75, 0.3])
    assert curve.mark == (2.5, pytest.approx(0.5))
    assert row == ["Uniform; ours", "25.00", "+0.50", "+0.00", "2", "+0.75 at 5", "1 of 2"]


def test_noise_cases_are_kinds_of_noise() -> None:
    """Each can be drawn with its arguments, and has about its level on black."""
    black = torch.zeros(1, 64, 64)
    for kind, case in (learning.UNSEEN_NOISE | learning.TRAINED_NOISE).items():
        generator = torch.Generator().manual_seed(0)
        noisy = noise.KINDS[kind](black, case.sigma / 255, generator=generator, **case.arguments)
        assert float(noisy.std()) == pytest.approx(case.sigma / 255, rel=0.1)
