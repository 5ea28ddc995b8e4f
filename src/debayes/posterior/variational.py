"""What a network is trained to maximise: the prior of the two-stage degradation, and the ELBO.

Everything here is closed form and float32, whatever precision the network runs in.
"""

from math import inf

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from debayes.imaging import cfa
from debayes.posterior.nig import NormalInverseGamma

# The least variance a prior may claim: that of rounding the ground truth to 8 bits, a uniform error of 1/255.
# Keeps log(rate) finite for noise-free pictures.
VARIANCE_FLOOR = 1 / (12 * 255**2)

# The paper gives the window of its bilateral filter but not its two widths. The spatial one is a quarter of the
# window, so that about w² samples count, as alpha = w²/2 says. The range one, on squared errors, lets the whole
# spread of chi² noise up to sigma 20/255 through (bias below 2 %) and stops at the errors of strong edges.
SPATIAL_SHARE = 0.25
RANGE_SIGMA = 0.1


def bilateral(
    image: Float[Tensor, "b c h w"], window: int, *, range_sigma: float = RANGE_SIGMA
) -> Float[Tensor, "b c h w"]:
    """The bilateral filter of each channel over an odd window x window neighbourhood, borders reflected.

    weight = exp(-distance² / (2 (window / 4)²)) exp(-difference² / (2 range_sigma²)). Written as `window` rows:
    each is a strided view, which torch.compile turns into a kernel that reads the image from cache, so that
    nothing of size window² is ever stored.
    """
    if window < 1 or window % 2 == 0:
        raise ValueError(f"the window of the bilateral filter must be odd, not {window}")
    reach = window // 2
    height = image.shape[-2]
    taps = torch.arange(-reach, reach + 1, device=image.device, dtype=image.dtype)
    spatial = torch.exp(-0.5 * (taps / (SPATIAL_SHARE * window)).square())
    padded = cfa.pad(image, reach, reach, reach, reach)
    centre = image.unsqueeze(-1)
    total = torch.zeros_like(image)
    weights = torch.zeros_like(image)
    for row in range(window):
        neighbours = padded[..., row : row + height, :].unfold(-1, window, 1)
        weight = spatial[row] * spatial * torch.exp(-0.5 / range_sigma**2 * (neighbours - centre).square())
        total = total + (weight * neighbours).sum(-1)
        weights = weights + weight.sum(-1)
    return total / weights


def measured_variance(
    error: Float[Tensor, "b 3 h w"], window: int, *, range_sigma: float = RANGE_SIGMA
) -> Float[Tensor, "b 3 h w"]:
    """The filtered squared error of an RGGB mosaic, taken at the photosites that measured each colour only.

    The four packed planes are filtered with half the window; every pixel of a 2x2 cell gets its cell's value, a
    green one the mean of its two planes. Twelve times less work than the filter at full resolution.
    """
    red, green, green2, blue = bilateral(
        cfa.pack(cfa.mosaic(error)), window // 4 * 2 + 1, range_sigma=range_sigma
    ).unbind(1)
    return F.interpolate(torch.stack((red, (green + green2) / 2, blue), 1), scale_factor=2, mode="nearest")


def prior(
    observed: Float[Tensor, "b 3 h w"],
    target: Float[Tensor, "b 3 h w"],
    *,
    count: float = 2e3,
    window: int = 19,
    measured: bool = False,
    range_sigma: float = RANGE_SIGMA,
) -> NormalInverseGamma:
    """p(z, sigma²) given the ground truth: eqs. (4) to (7), with count = lambda and window = w.

    `observed` is x-tilde, the interpolated RGGB mosaic. Its squared distance to the target, bilaterally filtered,
    is the noise variance. With `measured` only the photosites that measured a colour speak of it: the variance is
    then the sensor's own, where the paper's mixes in the interpolation, which averages noise and errs at edges.
    """
    error = (observed.float() - target.float()).square()
    filtered = measured_variance if measured else bilateral
    variance = filtered(error, window, range_sigma=range_sigma)
    alpha = window**2 / 2
    return NormalInverseGamma(
        target.float(),
        torch.full_like(error, count),
        torch.full_like(error, alpha),
        alpha * variance.clamp_min(VARIANCE_FLOOR),
    )


def elbo(
    posterior: NormalInverseGamma,
    prior: NormalInverseGamma,
    observed: Float[Tensor, "b 3 h w"],
    *,
    form: str = "exact",
) -> Float[Tensor, "b 3 h w"]:
    """The evidence lower bound of every pixel, eq. (11): expected log likelihood minus divergence from the prior.

    As the prior's count grows, its restoration term count * concentration / (2 rate) * (target - loc)² outgrows
    the others: a mean squared error weighted by the inverse noise variance. `form` as in
    `NormalInverseGamma.expected_log_likelihood`.
    """
    posterior = posterior.map(torch.Tensor.float)
    return posterior.expected_log_likelihood(observed.float(), form=form) - posterior.kl_divergence(prior)


def precondition(
    posterior: NormalInverseGamma,
    prior: NormalInverseGamma,
    *,
    level: float,
    gain: float,
    bend: float = inf,
    by_patch: bool = False,
) -> NormalInverseGamma:
    """The same posterior, but the gradient of `loc` is scaled by gain v_q / s² / sqrt(1 + (e / (bend s))²).

    v_q = rate / concentration is the noise variance that the posterior claims, s² = v_p + level² that of the prior
    with a floor, e = loc - target. The ELBO's gradient for loc is count e / v_q: a network that calls hard pixels
    noisy lowers their weight, and learns them last; and a patch of sigma 1 weighs 400 times one of sigma 20. The
    natural gradient, which divides by the Fisher information count / v_q of loc, has neither fault. This one is the
    natural gradient weighed by 1 / s², and bent, as a pseudo-Huber loss bends, where an error is large beside the
    noise, so that a few hard pixels do not drown the plain ones. The ELBO's value, its optimum at each pixel and
    the gradients of the other three maps stay.

    With `by_patch`, v_p is the mean of e² over the patch: not bent, that is the gradient of the patch's PSNR.
    """
    with torch.no_grad():
        squared = (posterior.loc - prior.loc).square()
        variance = squared.mean((1, 2, 3), keepdim=True) if by_patch else prior.rate / prior.concentration
        scale = variance + level**2
        bent = (1 + squared / (bend**2 * scale)).rsqrt()
        factor = gain * (posterior.rate / posterior.concentration) / scale * bent
    loc = posterior.loc.detach() + factor * (posterior.loc - posterior.loc.detach())
    return NormalInverseGamma(loc, posterior.count, posterior.concentration, posterior.rate)
