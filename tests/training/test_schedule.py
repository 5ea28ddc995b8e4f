"""The learning rate: a warm-up, then a linear fall or steps at plateaus."""

import pytest
from trainings import recipe

from debayes.training.schedule import Plateau, learning_rate, progress_share


@pytest.mark.parametrize(("warmup", "steps", "end"), [(4, 100, 4), (500, 100, 10), (0, 10, 0)])
def test_the_warm_up_takes_a_tenth_at_most(warmup: int, steps: int, end: int) -> None:
    """The rate rises for `warmup` steps or a tenth of the run, whichever is less, then falls linearly to 0."""
    plan = recipe(steps=steps, warmup=warmup, rate=1e-3).optimizer
    rates = [learning_rate(plan, step, progress_share(plan, step, 0.0), Plateau()) for step in range(steps)]
    line = [1e-3 * (1 - step / steps) for step in range(steps)]
    assert rates[end:] == pytest.approx(line[end:])
    assert all(rate < limit for rate, limit in zip(rates[: end - 1], line[: end - 1], strict=True) if end)


def test_progress_is_by_steps_or_by_the_clock() -> None:
    """Of the two lengths, the one that is set counts."""
    assert progress_share(recipe(steps=200).optimizer, 50, 1e9) == 0.25
    assert progress_share(recipe(steps=0, minutes=2.0).optimizer, 50, 90.0) == 0.75


def test_plateaus() -> None:
    """A validation that is no better than the best lowers the rate by the factor, down to the floor."""
    plan = recipe(steps=100, plateau=2, rate=1e-3, factor=0.5, floor=2e-4, warmup=0).optimizer
    plateau, rates = Plateau(), []
    for psnr in (20.0, 30.0, 29.0, 30.0, 31.0, 30.0, 30.0):
        plateau = plateau.after(psnr, plan)
        rates.append(learning_rate(plan, 50, 0.5, plateau))
    assert rates == pytest.approx([1e-3, 1e-3, 5e-4, 2.5e-4, 2.5e-4, 2e-4, 2e-4])
    assert plateau.best == 31
