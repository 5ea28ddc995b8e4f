"""Uncertainty scores, on draws from the posterior itself."""

import pytest
import torch
from sampling import draw

from debayes.evaluation import uncertainty
from debayes.posterior.nig import NormalInverseGamma


def posterior(scale: float = 1.0) -> NormalInverseGamma:
    """Half with a small doubt and half with a large one, wide tails; the doubt is `scale` times too small."""
    count = torch.tensor([50.0, 0.5]).repeat_interleave(20_000)
    ones = torch.ones_like(count)
    return NormalInverseGamma(0 * ones, count * scale**2, 3 * ones, 0.02 * ones)


def test_the_true_posterior_is_calibrated() -> None:
    """For draws from the posterior the coverage is the level, and the NLL is the entropy of its marginals."""
    truth, _ = draw(posterior(), seed=0)
    found = uncertainty.assess(posterior(), truth)
    assert found.coverage == pytest.approx(uncertainty.LEVELS, abs=0.01)
    assert found.calibration_error < 0.005
    assert found.nll == pytest.approx(float(posterior().predictive().entropy().mean()), abs=0.02)


def test_too_little_doubt_is_detected() -> None:
    """Doubt of half the right size has lower coverage and a higher NLL; the ranking of pixels is the same."""
    truth, _ = draw(posterior(), seed=0)
    right, wrong = uncertainty.assess(posterior(), truth), uncertainty.assess(posterior(2.0), truth)
    assert all(narrow < share - 0.1 for narrow, share in zip(wrong.coverage, right.coverage, strict=True))
    assert wrong.calibration_error > 0.1 and wrong.nll > right.nll + 0.2
    assert wrong.ause == right.ause < 0.5


def test_average() -> None:
    """Every score is the mean of the given ones."""
    found = [
        uncertainty.UncertaintyScores((0.4, 0.6, 0.8, 1.0), 0.1, 2.0, 0.3),
        uncertainty.UncertaintyScores((0.6, 0.8, 0.8, 0.9), 0.3, 4.0, 0.1),
    ]
    mean = uncertainty.average_uncertainty(found)
    assert mean.coverage == pytest.approx((0.5, 0.7, 0.8, 0.95))
    assert (mean.calibration_error, mean.nll, mean.ause) == pytest.approx((0.2, 3.0, 0.2))
