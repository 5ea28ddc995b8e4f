"""Noise for simulated mosaics: the kinds that the networks are trained on, and others.

Every function takes a mosaic (or image) with 0 = black and 1 = white and returns it with noise, never clipped.
Levels are standard deviations on that scale: sigma 10 of the literature is 10 / 255.
Random numbers are drawn on the generator's device and then moved, so that a CPU generator gives the same noise
whatever device the mosaic is on; a CUDA generator is faster and gives different noise.
"""

from collections.abc import Callable
from math import inf, pi, prod

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from debayes.imaging.draws import Columns
from debayes.system.errors import DebayesError


def gaussian(
    mosaic: Float[Tensor, "*batch c h w"], sigma: float | Float[Tensor, "..."], *, generator: torch.Generator
) -> Float[Tensor, "*batch c h w"]:
    """The mosaic with independent Gaussian noise; `sigma` is a number or a map that broadcasts."""
    check_sigma(sigma)
    return mosaic + sigma * _normal(mosaic, generator)


def varying_gaussian(
    mosaic: Float[Tensor, "*batch c h w"], sigma: float, *, generator: torch.Generator
) -> Float[Tensor, "*batch c h w"]:
    """The mosaic with Gaussian noise whose level varies smoothly in space, between 0 and sigma: `level_maps`."""
    check_sigma(sigma)
    *batch, _, height, width = mosaic.shape
    draws = torch.rand(prod(batch), MAP_DRAWS, device=generator.device, generator=generator).to(mosaic.device)
    levels = level_maps(draws, height, width, low=0.0, high=sigma, varying=1.0)
    return gaussian(mosaic, levels.view(*batch, 1, height, width).to(mosaic.dtype), generator=generator)


def uniform(
    mosaic: Float[Tensor, "*batch c h w"], sigma: float, *, generator: torch.Generator
) -> Float[Tensor, "*batch c h w"]:
    """The mosaic with independent uniform noise of standard deviation sigma (half width sqrt(3) sigma)."""
    check_sigma(sigma)
    return mosaic + 3**0.5 * sigma * (2 * _uniform(mosaic, generator) - 1)


def poisson_gaussian(
    mosaic: Float[Tensor, "*batch c h w"], sigma: float, *, gain: float = 0.002, generator: torch.Generator
) -> Float[Tensor, "*batch c h w"]:
    """The mosaic with photon and read noise: variance = gain * mosaic + sigma².

    `gain` is what one photon adds to the signal (S in DNG's NoiseProfile, where O is sigma²); the default is sigma
    8/255 at middle grey. Values below black have no photon noise.
    """
    check_sigma(sigma)
    if not gain > 0:
        raise DebayesError(f"the gain of Poisson noise must be above 0, not {gain}")
    photons = torch.poisson((mosaic.clamp_min(0) / gain).to(generator.device), generator=generator)
    return gain * photons.to(mosaic.device) + mosaic.clamp_max(0) + sigma * _normal(mosaic, generator)


def brown_gaussian(
    mosaic: Float[Tensor, "*batch c h w"], sigma: float, *, radius: float = 1.0, generator: torch.Generator
) -> Float[Tensor, "*batch c h w"]:
    """The mosaic with spatially correlated Gaussian noise of standard deviation sigma at every photosite.

    White noise blurred by a Gaussian of standard deviation `radius` photosites, then scaled back to sigma.
    """
    check_sigma(sigma)
    if not radius > 0:
        raise DebayesError(f"the correlation radius of brown noise must be above 0, not {radius}")
    reach = int(4 * radius + 0.5)
    *batch, height, width = mosaic.shape
    white = _normal(mosaic.new_empty(*batch, height + 2 * reach, width + 2 * reach), generator)
    taps = torch.arange(-reach, reach + 1, dtype=mosaic.dtype, device=mosaic.device)
    kernel = torch.exp(-0.5 * (taps / radius).square())
    kernel /= kernel.square().sum().sqrt()  # unit energy, not unit sum, keeps the variance
    flat = white.view(-1, 1, height + 2 * reach, width + 2 * reach)
    brown = F.conv2d(F.conv2d(flat, kernel.view(1, 1, -1, 1)), kernel.view(1, 1, 1, -1))
    return mosaic + sigma * brown.view(mosaic.shape)


# The uniform random numbers of one map of `level_maps`.
LEVEL_MAP = Columns(
    hill_y=3, hill_x=3, hill_width=3, angle=1, phase=1, cycles=1, kind=1, first_level=1, second_level=1, is_flat=1
)
MAP_DRAWS = LEVEL_MAP.width


def level_maps(
    draws: Float[Tensor, "b 16"], height: int, width: int, *, low: float, high: float, varying: float
) -> Float[Tensor, "b 1 {height} {width}"]:
    """Noise levels between low and high, one map for each row of `draws`, uniform random numbers in [0, 1).

    A share `varying` of the maps are smooth bumps, ramps or waves between two random levels, as in VDN's
    non-i.i.d. training noise; the others are one level all over. The expected level is halfway between low and
    high in both kinds. A pure function of the draws, so that a training step can be compiled around it.
    """
    hill_y, hill_x, hill_width = (LEVEL_MAP.as_images(name, draws) for name in ("hill_y", "hill_x", "hill_width"))
    angle, phase, cycles, kind, first, second, flat = (
        LEVEL_MAP(name, draws)[:, :, None]
        for name in ("angle", "phase", "cycles", "kind", "first_level", "second_level", "is_flat")
    )
    y = torch.linspace(0, 1, height, device=draws.device).view(-1, 1)
    x = torch.linspace(0, 1, width, device=draws.device)
    # bumps: the highest of three Gaussian hills
    hills = ((y - hill_y).square() + (x - hill_x).square()) / (0.1 + 0.4 * hill_width).square()
    bumps = torch.exp(-hills).amax(1)
    # ramps and waves: along a random direction
    sine, cosine = (2 * pi * angle).sin(), (2 * pi * angle).cos()
    along = (y - 0.5) * sine + (x - 0.5) * cosine
    across = (x - 0.5) * sine - (y - 0.5) * cosine
    frequency = 2 * pi * (0.5 + 2 * cycles)
    waves = 0.5 + 0.5 * (frequency * along + 2 * pi * phase).sin() * (frequency * across).cos()
    ramps = (along + 0.5).clamp(0, 1)
    shape = torch.where(kind < 1 / 3, bumps, torch.where(kind < 2 / 3, ramps, waves))
    share = torch.where(flat >= varying, first.expand_as(shape), first + (second - first) * shape)
    return (low + (high - low) * share).unsqueeze(1)


# The uniform random numbers of `color_factors`: whether a patch has any, and one for each photosite of a cell.
FACTORS = Columns(differs=1, photosites=4)
FACTOR_DRAWS = FACTORS.width


def color_factors(
    draws: Float[Tensor, "b 5"], height: int, width: int, *, share: float
) -> Float[Tensor, "b 1 {height} {width}"]:
    """Factors of the noise level that differ by colour, for a share of the patches; 1 everywhere for the others.

    Each of the four photosites of a Bayer cell has its own factor, the two greens too: 0.4 to 2.5 times a middle
    one, so that the ratio of any two is at most 6. The largest is at most 1, so that levels stay in their range.
    """
    exponent = 2.6 * (FACTORS("photosites", draws) - 0.5)
    factors = torch.exp2(exponent - exponent.amax(1, keepdim=True).clamp_min(0))
    factors = torch.where(FACTORS("differs", draws) < share, factors, 1.0).view(-1, 1, 2, 2)
    return factors.repeat(1, 1, (height + 1) // 2, (width + 1) // 2)[..., :height, :width]


# The kinds of `simulate --noise` and of the evaluation on other noise: functions (mosaic, sigma, generator=...).
KINDS: dict[str, Callable[..., Tensor]] = {
    "gaussian": gaussian,
    "varying": varying_gaussian,
    "uniform": uniform,
    "poisson": poisson_gaussian,
    "brown": brown_gaussian,
}


def check_sigma(sigma: float | Tensor) -> None:
    """Raise if a noise level, in any unit, is negative, infinite or NaN; the values of maps are not checked."""
    if not isinstance(sigma, Tensor) and not 0 <= sigma < inf:
        raise DebayesError(f"the noise level sigma must be 0 or more, not {sigma:g}")


def _normal(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(like.shape, dtype=like.dtype, device=generator.device, generator=generator).to(like.device)


def _uniform(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.rand(like.shape, dtype=like.dtype, device=generator.device, generator=generator).to(like.device)
