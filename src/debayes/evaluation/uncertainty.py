"""How far the doubt of a posterior can be trusted, told where the truth is known."""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from debayes.evaluation import metrics
from debayes.posterior.nig import NormalInverseGamma

# Levels of intervals whose coverage is told.
LEVELS = (0.5, 0.8, 0.9, 0.95)


@dataclass(frozen=True)
class Honesty:
    """What became of a posterior's claims."""

    coverage: tuple[float, ...]
    """The shares of true values inside the intervals of `LEVELS`."""
    calibration_error: float
    """The mean distance between level and coverage, over all levels."""
    nll: float
    """The mean negative log likelihood of the truth, in nats a value; less is better."""
    ause: float
    """How much worse than by true errors pixels are sorted by doubt: `metrics.sparsification_error`."""


def assess(posterior: NormalInverseGamma, target: Float[Tensor, "*shape"]) -> Honesty:
    """What became of the claims of a posterior whose truth is `target`."""
    levels = posterior.interval_level(target)
    return Honesty(
        tuple(float((levels <= level).double().mean()) for level in LEVELS),
        metrics.calibration_error(levels),
        -float(posterior.log_marginal(target).double().mean()),
        metrics.sparsification_error(posterior.mean - target, posterior.mean_variance),
    )


def average(found: Sequence[Honesty]) -> Honesty:
    """The means over several posteriors."""

    def mean(values: Sequence[float]) -> float:
        return sum(values) / len(values)

    return Honesty(
        tuple(map(mean, zip(*(each.coverage for each in found), strict=True))),
        mean([each.calibration_error for each in found]),
        mean([each.nll for each in found]),
        mean([each.ause for each in found]),
    )
