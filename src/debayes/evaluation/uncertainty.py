"""How well a posterior's uncertainty describes its actual errors, measured where the truth is known."""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from debayes.evaluation import metrics
from debayes.posterior.nig import NormalInverseGamma

# The levels of the intervals whose coverage is measured.
LEVELS = (0.5, 0.8, 0.9, 0.95)


@dataclass(frozen=True)
class UncertaintyScores:
    """Scores of a posterior's uncertainty."""

    coverage: tuple[float, ...]
    """The fraction of true values inside the interval of each of `LEVELS`."""
    calibration_error: float
    """The mean absolute difference between level and coverage, over all levels."""
    nll: float
    """The mean negative log likelihood of the truth, in nats per value; lower is better."""
    ause: float
    """How much worse doubt ranks the pixels than their true errors do: `metrics.sparsification_error`."""


def assess(posterior: NormalInverseGamma, target: Float[Tensor, "*shape"]) -> UncertaintyScores:
    """Score the uncertainty of a posterior whose true values are `target`."""
    levels = posterior.interval_level(target)
    return UncertaintyScores(
        tuple(float((levels <= level).double().mean()) for level in LEVELS),
        metrics.calibration_error(levels),
        -float(posterior.log_marginal(target).double().mean()),
        metrics.sparsification_error(posterior.mean - target, posterior.mean_variance),
    )


def average_uncertainty(scores: Sequence[UncertaintyScores]) -> UncertaintyScores:
    """The mean of each score over several posteriors."""

    def mean(values: Sequence[float]) -> float:
        return sum(values) / len(values)

    return UncertaintyScores(
        tuple(map(mean, zip(*(score.coverage for score in scores), strict=True))),
        mean([score.calibration_error for score in scores]),
        mean([score.nll for score in scores]),
        mean([score.ause for score in scores]),
    )
