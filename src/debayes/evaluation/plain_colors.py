"""How much noise a method leaves on plain colours when the noise level differs by colour, as it does in every
sensor.

A mosaic of one colour gets Gaussian noise of 6/255 times a factor that depends on the colour of the photosite.
What is left is the standard deviation of the restored picture minus the colour, over all channels and all pixels
at least 16 pixels from the border, in units of 1/255.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from debayes.engine import Engine
from debayes.evaluation.baselines import Baseline
from debayes.imaging import cfa, noise
from debayes.network.network import Network
from debayes.restoration.tiling import restore

# Side of the picture, width of the border that is not measured (both in pixels), and the noise level before the
# factors, in units of 1/255.
SIZE = 256
BORDER = 16
SIGMA = 6.0


@dataclass(frozen=True)
class PlainColor:
    """A colour and the factors of its noise level."""

    color: tuple[float, float, float]
    """Red, green and blue, 0 = black and 1 = white."""
    factors: tuple[float, float, float]
    """What the noise level is multiplied by at red, green and blue photosites."""


@dataclass(frozen=True)
class Residual:
    """The noise that a method left on one plain colour."""

    case: PlainColor
    left: float
    """In units of 1/255."""


# Three greys and two colours; the first case has the same noise level everywhere.
CASES = (
    PlainColor((0.3, 0.3, 0.3), (1.0, 1.0, 1.0)),
    PlainColor((0.3, 0.3, 0.3), (0.8, 1.0, 1.2)),
    PlainColor((0.3, 0.3, 0.3), (0.5, 1.0, 0.5)),
    PlainColor((0.2, 0.4, 0.25), (0.7, 1.0, 0.8)),
    PlainColor((0.5, 0.3, 0.4), (1.5, 1.0, 1.3)),
)


def evaluate_plain_colors(
    method: Network | Engine | Baseline,
    cases: Sequence[PlainColor] = CASES,
    *,
    sigma: float = SIGMA,
    pattern: str = "RGGB",
    ensemble: bool = False,
) -> list[Residual]:
    """What the method leaves of the noise in each case; `sigma` is in units of 1/255.

    A network is not told the noise level. A baseline is told the root mean square of the levels of all photosites.
    """
    noise.check_sigma(sigma)
    return [Residual(case, _left(method, case, i, sigma, pattern, ensemble)) for i, case in enumerate(cases)]


def noisy_plain_color(case: PlainColor, sigma: float, *, pattern: str, seed: int) -> tuple[Tensor, Tensor]:
    """The noisy mosaic (1, SIZE, SIZE) of a case, and the noise level of each photosite; sigma in units of 1."""
    color, factors = (_picture(values) for values in (case.color, case.factors))
    levels = sigma * cfa.mosaic(factors, pattern)
    generator = torch.Generator().manual_seed(seed)
    return noise.gaussian(cfa.mosaic(color, pattern), levels, generator=generator), levels


def _left(
    method: Network | Engine | Baseline, case: PlainColor, seed: int, sigma: float, pattern: str, ensemble: bool
) -> float:
    mosaic, levels = noisy_plain_color(case, sigma / 255, pattern=pattern, seed=seed)
    if isinstance(method, Network | Engine):
        image = restore(method, mosaic, pattern, ensemble=ensemble).mean
    else:
        image = method(mosaic, pattern, math.sqrt(float(levels.square().mean())))
    error = image.cpu().double() - _picture(case.color)
    return 255 * float(error[:, BORDER:-BORDER, BORDER:-BORDER].std())


def _picture(values: tuple[float, float, float]) -> Tensor:
    """A picture (3, SIZE, SIZE) that has these values everywhere."""
    return torch.tensor(values)[:, None, None].expand(3, SIZE, SIZE)
