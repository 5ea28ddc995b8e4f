"""Noise for simulated mosaics: what the networks train on, and what they were not trained on.

Every function takes a mosaic (or image) with 0 = black and 1 = white and returns it noisy, never clipped.
Levels are standard deviations on that scale: sigma 10 of the literature is 10 / 255.
Random numbers are drawn on the generator's device and then moved, so that a CPU generator gives the same noise
whatever device the mosaic is on; a CUDA generator is faster and gives its own.
"""

from collections.abc import Callable
from math import pi

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def gaussian(
    mosaic: Float[Tensor, "*batch c h w"], sigma: float | Float[Tensor, "..."], *, generator: torch.Generator
) -> Float[Tensor, "*batch c h w"]:
    """The mosaic with independent Gaussian noise; `sigma` is a number or a map that broadcasts."""
    _check_level(sigma, "sigma")
    return mosaic + sigma * _normal(mosaic, generator)


def uniform(
    mosaic: Float[Tensor, "*batch c h w"], sigma: float, *, generator: torch.Generator
) -> Float[Tensor, "*batch c h w"]:
    """The mosaic with independent uniform noise of standard deviation sigma (half width sqrt(3) sigma)."""
    _check_level(sigma, "sigma")
    return mosaic + 3**0.5 * sigma * (2 * _uniform(mosaic.shape, mosaic, generator) - 1)


def poisson_gaussian(
    mosaic: Float[Tensor, "*batch c h w"], sigma: float, *, gain: float = 0.01, generator: torch.Generator
) -> Float[Tensor, "*batch c h w"]:
    """The mosaic with photon and read noise: variance = gain * mosaic + sigma².

    `gain` is what one photon adds to the signal (the S of DNG's NoiseProfile, whose O is sigma²).
    Values below black attract no photons.
    """
    _check_level(sigma, "sigma")
    if not gain > 0:
        raise ValueError(f"the gain of Poisson noise must be above 0, not {gain}")
    photons = torch.poisson((mosaic.clamp_min(0) / gain).to(generator.device), generator=generator)
    return gain * photons.to(mosaic.device) + mosaic.clamp_max(0) + sigma * _normal(mosaic, generator)


def brown_gaussian(
    mosaic: Float[Tensor, "*batch c h w"], sigma: float, *, radius: float = 1.0, generator: torch.Generator
) -> Float[Tensor, "*batch c h w"]:
    """The mosaic with spatially correlated Gaussian noise of standard deviation sigma at every photosite.

    White noise blurred by a Gaussian of standard deviation `radius` photosites, then scaled back to sigma.
    """
    _check_level(sigma, "sigma")
    if not radius > 0:
        raise ValueError(f"the correlation radius of brown noise must be above 0, not {radius}")
    reach = int(4 * radius + 0.5)
    *batch, height, width = mosaic.shape
    white = _normal(mosaic.new_empty(*batch, height + 2 * reach, width + 2 * reach), generator)
    taps = torch.arange(-reach, reach + 1, dtype=mosaic.dtype, device=mosaic.device)
    kernel = torch.exp(-0.5 * (taps / radius).square())
    kernel /= kernel.square().sum().sqrt()  # unit variance is kept by a kernel of unit energy, not unit sum
    flat = white.view(-1, 1, height + 2 * reach, width + 2 * reach)
    brown = F.conv2d(F.conv2d(flat, kernel.view(1, 1, -1, 1)), kernel.view(1, 1, 1, -1))
    return mosaic + sigma * brown.view(mosaic.shape)


def level_maps(
    batch: int,
    height: int,
    width: int,
    *,
    low: float,
    high: float,
    varying: float,
    generator: torch.Generator,
) -> Float[Tensor, "{batch} 1 {height} {width}"]:
    """Noise levels for a training batch, between low and high, on the generator's device.

    A share `varying` of the maps are smooth bumps, ramps or waves between two random levels, as in VDN's
    non-i.i.d. training noise; the others are one level all over. The expected level is halfway between low
    and high in both kinds.
    """
    device = generator.device

    def draw(*shape: int) -> Tensor:
        return torch.rand(batch, *shape, 1, 1, device=device, generator=generator)

    y = torch.linspace(0, 1, height, device=device).view(-1, 1)
    x = torch.linspace(0, 1, width, device=device)
    # bumps: the highest of three Gaussian hills
    hills = ((y - draw(3)).square() + (x - draw(3)).square()) / (0.1 + 0.4 * draw(3)).square()
    bumps = torch.exp(-hills).amax(1)
    # ramps and waves: along a random direction
    angle, phase, cycles = (2 * pi * draw()), draw(), 0.5 + 2 * draw()
    along = (y - 0.5) * angle.sin() + (x - 0.5) * angle.cos()
    across = (x - 0.5) * angle.sin() - (y - 0.5) * angle.cos()
    ramps = along + 0.5
    waves = 0.5 + 0.5 * (2 * pi * (cycles * along + phase)).sin() * (2 * pi * cycles * across).cos()
    shapes = torch.stack((bumps, ramps, waves), 1).clamp(0, 1)
    kind = torch.randint(3, (batch, 1, 1, 1), device=device, generator=generator).expand(-1, 1, height, width)
    shape = shapes.gather(1, kind)
    ends = low + (high - low) * draw(2)
    flat = draw(1) >= varying
    return torch.where(flat, ends[:, :1], ends[:, :1] + (ends[:, 1:] - ends[:, :1]) * shape)


# What `simulate --noise` and the evaluation of out-of-distribution noise offer: (mosaic, sigma, generator=...)
KINDS: dict[str, Callable[..., Tensor]] = {
    "gaussian": gaussian,
    "uniform": uniform,
    "poisson": poisson_gaussian,
    "brown": brown_gaussian,
}


def _check_level(sigma: float | Tensor, name: str) -> None:
    if not isinstance(sigma, Tensor) and not sigma >= 0:
        raise ValueError(f"the noise level {name} must be 0 or more, not {sigma}")


def _normal(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(like.shape, dtype=like.dtype, device=generator.device, generator=generator).to(like.device)


def _uniform(shape: torch.Size, like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.rand(shape, dtype=like.dtype, device=generator.device, generator=generator).to(like.device)
