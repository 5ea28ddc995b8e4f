"""The normal-inverse-gamma distribution of a pixel's true value z and its noise variance sigma².

    sigma²     ~ InverseGamma(concentration, rate)
    z | sigma² ~ Normal(loc, sigma² / count)

"NIG" alone means the normal-inverse-*Gaussian* to statisticians, so the class spells itself out.
The paper writes (y, lambda, alpha, beta); SciPy (mu, lmbda, a, b); the words here are torch.distributions'.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log, pi, tau

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import StudentT


def check_level(level: float) -> float:
    """The level of an interval itself, if it is a probability."""
    if not 0 < level < 1:
        raise ValueError(f"the level of an interval lies between 0 and 1, not {level}")
    return level


@dataclass(frozen=True)
class NormalInverseGamma:
    """Four tensors of one shape, one distribution an element; values are in the unit of `loc`."""

    loc: Float[Tensor, "*shape"]
    """The mean of z: the restored image. The paper's y-hat."""
    count: Float[Tensor, "*shape"]
    """How many observations of noise sigma² the mean is worth. Positive. The paper's lambda-hat."""
    concentration: Float[Tensor, "*shape"]
    """The shape of the variance; 2 * concentration observations estimated it. Above 1 for a finite
    `noise_variance`, above 2 for `merge`. The paper's alpha-hat."""
    rate: Float[Tensor, "*shape"]
    """The scale of the variance; half the sum of their squared deviations. Positive. The paper's beta-hat."""

    @property
    def mean(self) -> Float[Tensor, "*shape"]:
        """E[z]: the image."""
        return self.loc

    @property
    def noise_variance(self) -> Float[Tensor, "*shape"]:
        """E[sigma²] = rate / (concentration - 1): the square of the noise map."""
        return self.rate / (self.concentration - 1)

    @property
    def mean_variance(self) -> Float[Tensor, "*shape"]:
        """Var[z] = E[sigma²] / count: the square of the doubt map."""
        return self.noise_variance / self.count

    def map(self, function: Callable[[Tensor], Tensor]) -> "NormalInverseGamma":
        """The distribution with a function applied to each of its four tensors (a crop, a move, a flip)."""
        return NormalInverseGamma(
            function(self.loc), function(self.count), function(self.concentration), function(self.rate)
        )

    def log_prob(self, z: Float[Tensor, "..."], variance: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """The joint log density of z and sigma² = variance."""
        return (
            0.5 * (self.count.log() - log(tau))
            + self.concentration * self.rate.log()
            - torch.lgamma(self.concentration)
            - (self.concentration + 1.5) * variance.log()
            - (self.rate + 0.5 * self.count * (z - self.loc).square()) / variance
        )

    def kl_divergence(self, other: "NormalInverseGamma") -> Float[Tensor, "..."]:
        """KL(self || other), element by element: the paper's eq. (12) with self = q and other = p."""
        q, p = self, other
        ratio = p.count / q.count
        normal = 0.5 * (p.count * q.concentration / q.rate * (p.loc - q.loc).square() + ratio - ratio.log() - 1)
        inverse_gamma = (
            p.concentration * (q.rate / p.rate).log()
            + torch.lgamma(p.concentration)
            - torch.lgamma(q.concentration)
            + (q.concentration - p.concentration) * torch.digamma(q.concentration)
            - (q.rate - p.rate) * q.concentration / q.rate
        )
        return normal + inverse_gamma

    def expected_log_likelihood(
        self, observed: Float[Tensor, "..."], *, form: str = "exact"
    ) -> Float[Tensor, "..."]:
        """E[log Normal(observed; z, sigma²)] under self: the paper's eq. (13), corrected.

        With z ~ Normal(loc, sigma² / count) the third term is 1 / (2 count), which is what ``form="exact"`` has.
        The paper prints rate / (2 count² (concentration - 1)) there, a variance where a number belongs;
        ``form="printed"`` keeps it for comparison.
        """
        if form not in ("exact", "printed"):
            raise ValueError(f'the form of the expectation is "exact" or "printed", not {form!r}')
        spread = 1 / self.count if form == "exact" else self.noise_variance / self.count.square()
        return -0.5 * (
            log(2 * pi)
            + self.rate.log()
            - torch.digamma(self.concentration)
            + spread
            + self.concentration / self.rate * (observed - self.loc).square()
        )

    def predictive(self) -> StudentT:
        """The marginal distribution of z, with sigma² integrated out."""
        scale = (self.rate / (self.concentration * self.count)).sqrt()
        return StudentT(2 * self.concentration, self.loc, scale, validate_args=False)

    def log_marginal(self, z: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """The log density of z, with sigma² integrated out."""
        density: Tensor = self.predictive().log_prob(z)  # type: ignore[no-untyped-call]
        return density

    def interval(self, level: float) -> tuple[Float[Tensor, "*shape"], Float[Tensor, "*shape"]]:
        """Low and high end of the central interval that holds z with probability `level`."""
        check_level(level)
        marginal = self.predictive()
        from scipy.special import stdtrit  # here, as it takes a quarter as long to load as PyTorch

        # each degree of freedom once: calibrated networks have one for each colour
        degrees, places = np.unique(marginal.df.detach().cpu().double().numpy(), return_inverse=True)
        quantile = np.asarray(stdtrit(degrees, 0.5 + level / 2)[places]).reshape(tuple(marginal.df.shape))
        half = torch.from_numpy(quantile).to(self.loc) * marginal.scale
        return self.loc - half, self.loc + half

    def level(self, z: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """The level of the smallest central interval that holds z: uniform between 0 and 1 for a true posterior."""
        marginal = self.predictive()
        distance = ((z - self.loc).abs() / marginal.scale).detach().cpu().double().numpy()
        from scipy.special import stdtr

        below = stdtr(marginal.df.detach().cpu().double().numpy(), distance)
        return torch.from_numpy(np.asarray(2 * below - 1)).to(self.loc)

    def sample(self, *, generator: torch.Generator) -> tuple[Float[Tensor, "*shape"], Float[Tensor, "*shape"]]:
        """One draw of (z, sigma²): the first stage of the paper's degradation, eqs. (4) to (6)."""
        variance = self.rate / _standard_gamma(self.concentration, generator)
        return self.loc + (variance / self.count).sqrt() * _standard_normal(self.loc, generator), variance

    def degrade(self, *, generator: torch.Generator) -> Float[Tensor, "*shape"]:
        """One draw of x-tilde: `sample`, then Normal(z, sigma²), the second stage, eq. (3)."""
        z, variance = self.sample(generator=generator)
        return z + variance.sqrt() * _standard_normal(z, generator)


@dataclass(frozen=True)
class MeanOnly:
    """The mean of a posterior whose other parameters were not computed, as `Network.mean_only` gives it."""

    loc: Float[Tensor, "*shape"]
    """The restored image."""

    @property
    def mean(self) -> Float[Tensor, "*shape"]:
        """The image, under the name that a whole posterior has for it."""
        return self.loc

    def map(self, function: Callable[[Tensor], Tensor]) -> "MeanOnly":
        """The same with a function applied to the image."""
        return MeanOnly(function(self.loc))


# What a network may give for a mosaic.
Posterior = NormalInverseGamma | MeanOnly


def merge(posteriors: Sequence[NormalInverseGamma]) -> NormalInverseGamma:
    """The distribution with the moments of the equal mixture of the given ones.

    Kept are E[z], Var[z], E[sigma²] and Var[sigma²]; the latter two variances hold the spread *between* the
    given ones too. Every concentration must be above 2.
    """
    loc = torch.stack([p.mean for p in posteriors])
    noise = torch.stack([p.noise_variance for p in posteriors])
    concentration = torch.stack([p.concentration for p in posteriors])
    mean_variance = torch.stack([p.mean_variance for p in posteriors]).mean(0) + loc.var(0, correction=0)
    spread = (noise.square() / (concentration - 2)).mean(0) + noise.var(0, correction=0)
    level = noise.mean(0)
    merged = 2 + level.square() / spread
    return NormalInverseGamma(loc.mean(0), level / mean_variance, merged, level * (merged - 1))


def _standard_normal(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(like.shape, dtype=like.dtype, device=generator.device, generator=generator).to(like.device)


def _standard_gamma(concentration: Tensor, generator: torch.Generator) -> Tensor:
    """Gamma(concentration, 1) for concentration >= 1, by Marsaglia and Tsang's rejection (2000)."""
    d = concentration - 1 / 3
    c = (9 * d).rsqrt()
    result = torch.zeros_like(d)
    open_ = torch.ones_like(d, dtype=torch.bool)
    while bool(open_.any()):
        x = _standard_normal(d, generator)
        u = torch.rand(d.shape, dtype=d.dtype, device=generator.device, generator=generator).to(d.device)
        v = (1 + c * x) ** 3
        accepted = (v > 0) & (u.log() < 0.5 * x.square() + d * (1 - v + v.clamp_min(1e-30).log()))
        result = torch.where(open_ & accepted, d * v, result)
        open_ &= ~accepted
    return result
