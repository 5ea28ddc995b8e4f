"""What becomes of a posterior's claims, against draws from the posterior itself."""

import pytest
import torch
from sampling import draw

from debayes.evaluation import uncertainty
from debayes.posterior.nig import NormalInverseGamma


def posterior(scale: float = 1.0) -> NormalInverseGamma:
    """Half of it sure and half not, with wide tails; the doubt is so many times too small."""
    count = torch.tensor([50.0, 0.5]).repeat_interleave(20_000)
    ones = torch.ones_like(count)
    return NormalInverseGamma(0 * ones, count * scale**2, 3 * ones, 0.02 * ones)


def test_claims_of_the_truth_hold() -> None:
    """Of draws from a posterior its intervals hold their levels, and their NLL is the entropy of its marginals."""
    truth, _ = draw(posterior(), seed=0)
    found = uncertainty.assess(posterior(), truth)
    assert found.coverage == pytest.approx(uncertainty.LEVELS, abs=0.01)
    assert found.calibration_error < 0.005
    assert found.nll == pytest.approx(float(posterior().predictive().entropy().mean()), abs=0.02)


def test_too_little_doubt_is_found() -> None:
    """Doubt that is half of what it should be covers less, and is less likely; the order of pixels stays."""
    truth, _ = draw(posterior(), seed=0)
    right, wrong = uncertainty.assess(posterior(), truth), uncertainty.assess(posterior(2.0), truth)
    assert all(narrow < share - 0.1 for narrow, share in zip(wrong.coverage, right.coverage, strict=True))
    assert wrong.calibration_error > 0.1 and wrong.nll > right.nll + 0.2
    assert wrong.ause == right.ause < 0.5


def test_average() -> None:
    """Every number is the mean of those given."""
    found = [
        uncertainty.Honesty((0.4, 0.6, 0.8, 1.0), 0.1, 2.0, 0.3),
        uncertainty.Honesty((0.6, 0.8, 0.8, 0.9), 0.3, 4.0, 0.1),
    ]
    mean = uncertainty.average(found)
    assert mean.coverage == pytest.approx((0.5, 0.7, 0.8, 0.95))
    assert (mean.calibration_error, mean.nll, mean.ause) == pytest.approx((0.2, 3.0, 0.2))
