"""The learning rate over a run."""

from dataclasses import dataclass
from math import inf

from debayes.training.recipe import Optimizer


@dataclass(frozen=True)
class Plateau:
    """The state of the plateau schedule."""

    best: float = -inf
    """The best validation PSNR so far, in dB."""
    scale: float = 1.0
    """The factor of the rate that plateaus have left."""

    def after(self, psnr: float, plan: Optimizer) -> "Plateau":
        """The state after a validation: a lower rate if the PSNR has not risen."""
        scale = self.scale if psnr > self.best else max(self.scale * plan.factor, plan.floor / plan.rate)
        return Plateau(max(self.best, psnr), scale)


def progress_share(plan: Optimizer, step: int, seconds: float) -> float:
    """How much of a run is done; 1 or more at its end."""
    return seconds / (60 * plan.minutes) if plan.minutes else step / plan.steps


def learning_rate(plan: Optimizer, step: int, share: float, plateau: Plateau) -> float:
    """The rate of a step when a share of the run is done.

    It falls linearly to zero, or in steps at plateaus, after a linear warm-up of at most a tenth of the run.
    """
    warmup = min(1.0, max((step + 1) / plan.warmup, 10 * share)) if plan.warmup else 1.0
    decay = max(plateau.scale, plan.floor / plan.rate) if plan.plateau else 1 - share
    return plan.rate * warmup * decay
