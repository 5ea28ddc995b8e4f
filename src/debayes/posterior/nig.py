"""The normal-inverse-gamma distribution of a pixel's true value z and its noise variance sigma².

    sigma²     ~ InverseGamma(concentration, rate)
    z | sigma² ~ Normal(loc, sigma² / count)

The class name is written out because statisticians use "NIG" for the normal-inverse-*Gaussian* distribution. The
field names are those of torch.distributions; the paper writes (y, lambda, alpha, beta), SciPy (mu, lmbda, a, b).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from math import log, pi, tau
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor
from torch.distributions import StudentT
from torch.utils import _pytree as pytree

from debayes.system.errors import DebayesError


def check_level(level: float) -> float:
    """Return the level of an interval if it is a probability, otherwise raise."""
    if not 0 < level < 1:
        raise DebayesError(f"the level of an interval must be between 0 and 1, not {level}: give 0.9 for 90 %")
    return level


T = TypeVar("T", bound="_Tensors")


@dataclass(frozen=True)
class _Tensors:
    """A dataclass of tensors of one shape, with the methods of a tensor that apply to each of them."""

    def map(self: T, function: Callable[[Tensor], Tensor]) -> T:
        """The same with a function applied to each of the tensors: a flip, for example."""
        return type(self)(*(function(getattr(self, field.name)) for field in fields(self)))

    def __getitem__(self: T, index: Any) -> T:
        """A part of each tensor, by any index that a tensor takes: `posterior[..., 10:20, :]`."""
        return self.map(lambda t: t[index])

    def to(self: T, *args: Any, **kwargs: Any) -> T:
        """On another device or of another type: the arguments are those of `torch.Tensor.to`."""
        return self.map(lambda t: t.to(*args, **kwargs))

    def cpu(self: T) -> T:
        """In the memory of the CPU."""
        return self.map(Tensor.cpu)

    def detach(self: T) -> T:
        """Without the graph of gradients."""
        return self.map(Tensor.detach)

    def numpy(self) -> dict[str, NDArray[Any]]:
        """NumPy arrays by name, on the CPU and without gradients: `numpy.savez(file, **posterior.numpy())`."""
        return {field.name: getattr(self, field.name).numpy(force=True) for field in fields(self)}


@dataclass(frozen=True)
class NormalInverseGamma(_Tensors):
    """Four tensors of the same shape: one distribution per element. The unit of z and sigma is that of `loc`.

    It can be indexed and moved as a tensor can, and is a pytree: `torch.export` takes networks that return it.

    Examples:
        >>> import debayes, torch
        >>> one = torch.ones(3, 8, 8)
        >>> posterior = debayes.NormalInverseGamma(loc=one / 2, count=4 * one, concentration=3 * one, rate=2 * one)
        >>> pixel = posterior[0, 0, 0]
        >>> pixel.mean, pixel.noise_variance, pixel.mean_variance
        (tensor(0.5000), tensor(1.), tensor(0.2500))
        >>> low, high = pixel.interval(0.9)
        >>> float(pixel.predictive().df)  # degrees of freedom of Student's t
        6.0
        >>> posterior.to(torch.float64).numpy()["loc"].dtype
        dtype('float64')
    """

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
class MeanOnly(_Tensors):
    """The mean of a posterior whose other parameters were not computed, as `Network.mean_only` gives it."""

    loc: Float[Tensor, "*shape"]
    """The restored image."""

    @property
    def mean(self) -> Float[Tensor, "*shape"]:
        """The image, under the name that a whole posterior has for it."""
        return self.loc


# What a network may give for a mosaic.
Posterior = NormalInverseGamma | MeanOnly


def whole(posterior: Posterior) -> NormalInverseGamma:
    """The posterior itself, if it is not the image alone; otherwise raise."""
    if not isinstance(posterior, NormalInverseGamma):
        raise DebayesError("this network gives the image alone: use the one that `mean_only` was called on")
    return posterior


def _flatten(posterior: _Tensors) -> tuple[list[Any], None]:
    return [getattr(posterior, field.name) for field in fields(posterior)], None


def _flatten_with_names(posterior: _Tensors) -> tuple[list[tuple[Any, Any]], None]:
    named = [(pytree.GetAttrKey(field.name), getattr(posterior, field.name)) for field in fields(posterior)]
    return named, None


def _unflatten(kind: type[_Tensors], values: Iterable[Any], _: None) -> _Tensors:
    """Without a call of `__init__`: PyTorch puts other things than tensors into the fields for a while."""
    made = object.__new__(kind)
    for field, value in zip(fields(kind), values, strict=True):
        object.__setattr__(made, field.name, value)
    return made


for _kind in (NormalInverseGamma, MeanOnly):
    pytree.register_pytree_node(
        _kind,
        _flatten,
        partial(_unflatten, _kind),
        serialized_type_name=f"debayes.{_kind.__name__}",
        flatten_with_keys_fn=_flatten_with_names,
    )


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
