"""The normal-inverse-gamma distribution of a pixel's true value z and its noise variance sigma².

    sigma²     ~ InverseGamma(concentration, rate)
    z | sigma² ~ Normal(loc, sigma² / count)

The class name is written out because statisticians use "NIG" for the normal-inverse-*Gaussian* distribution. The
field names are those of torch.distributions; the paper writes (y, lambda, alpha, beta), SciPy (mu, lmbda, a, b).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log, pi, tau

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import StudentT

from debayes.system.errors import DebayesError


def check_level(level: float) -> float:
    """Return the level of an interval if it is a probability, otherwise raise."""
    if not 0 < level < 1:
        raise DebayesError(f"the level of an interval must be between 0 and 1, not {level}: give 0.9 for 90 %")
    return level


@dataclass(frozen=True)
class NormalInverseGamma:
    """Four tensors of the same shape: one distribution per element. The unit of z and sigma is that of `loc`."""

    loc: Float[Tensor, "*shape"]
    """The mean of z: the restored image. The paper's y-hat."""
    count: Float[Tensor, "*shape"]
    """How many observations with noise sigma² the estimate of z is worth. Positive. The paper's lambda-hat."""
    concentration: Float[Tensor, "*shape"]
    """Shape of the variance's distribution: the variance was estimated from 2 * concentration observations. Must be
    above 1 for a finite `noise_variance`, above 2 for `merge`. The paper's alpha-hat."""
    rate: Float[Tensor, "*shape"]
    """Scale of the variance's distribution: half the sum of those observations' squared deviations. Positive. The
    paper's beta-hat."""

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
        """Apply a function to each of the four tensors: a crop, a flip, a move to another device."""
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
        """KL(self || other) per element: the paper's eq. (12) with q = self and p = other."""
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

        With z ~ Normal(loc, sigma² / count) the third term is 1 / (2 count): ``form="exact"``. The paper prints
        rate / (2 count² (concentration - 1)), which has the unit of a variance where the sum needs a plain number;
        ``form="printed"`` computes that, for comparison.
        """
        if form not in ("exact", "printed"):
            raise DebayesError(f'the form of the expectation must be "exact" or "printed", not {form!r}')
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
        """Lower and upper end of the central interval that contains z with probability `level`."""
        check_level(level)
        marginal = self.predictive()
        from scipy.special import stdtrit  # imported here because it is slow to load

        # compute each distinct degree of freedom once: calibrated networks have one per colour
        degrees, places = np.unique(marginal.df.detach().cpu().double().numpy(), return_inverse=True)
        quantile = np.asarray(stdtrit(degrees, 0.5 + level / 2)[places]).reshape(tuple(marginal.df.shape))
        half = torch.from_numpy(quantile).to(self.loc) * marginal.scale
        return self.loc - half, self.loc + half

    def interval_level(self, z: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """The level of the smallest central interval that contains z; uniform on [0, 1] for a correct model."""
        marginal = self.predictive()
        distance = ((z - self.loc).abs() / marginal.scale).detach().cpu().double().numpy()
        from scipy.special import stdtr

        below = stdtr(marginal.df.detach().cpu().double().numpy(), distance)
        return torch.from_numpy(np.asarray(2 * below - 1)).to(self.loc)


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
    """The distribution with the moments of the mixture of the given ones, weighted equally.

    It has the mixture's E[z], Var[z], E[sigma²] and Var[sigma²]; both variances include the differences *between*
    the given distributions. Every concentration must be above 2.
    """
    loc = torch.stack([p.mean for p in posteriors])
    noise = torch.stack([p.noise_variance for p in posteriors])
    concentration = torch.stack([p.concentration for p in posteriors])
    mean_variance = torch.stack([p.mean_variance for p in posteriors]).mean(0) + loc.var(0, correction=0)
    variance_of_noise = (noise.square() / (concentration - 2)).mean(0) + noise.var(0, correction=0)
    mean_noise = noise.mean(0)
    merged = 2 + mean_noise.square() / variance_of_noise
    return NormalInverseGamma(loc.mean(0), mean_noise / mean_variance, merged, mean_noise * (merged - 1))
