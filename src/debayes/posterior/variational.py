"""The training objective: the prior of the two-stage degradation, the ELBO, and the preconditioning of its
gradient.

Everything is in closed form and computed in float32, whatever precision the network runs in.
"""

from math import inf

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from debayes.imaging import cfa
from debayes.posterior.nig import NormalInverseGamma
from debayes.system.errors import DebayesError

# The smallest noise variance of a prior: that of rounding the ground truth to 8 bits, a uniform error of width
# 1/255. It keeps log(rate) finite for noise-free pictures.
VARIANCE_FLOOR = 1 / (12 * 255**2)

# The paper gives the window w of its bilateral filter but not the two widths. The spatial sigma is a quarter of
# the window, so that about w² samples contribute, which matches alpha = w²/2. The range sigma, applied to squared
# errors, passes the whole spread of chi² noise up to sigma 20/255 (bias below 2 %) and excludes the errors at
# strong edges.
SPATIAL_SHARE = 0.25
RANGE_SIGMA = 0.1


def bilateral(
    image: Float[Tensor, "b c h w"], window: int, *, range_sigma: float = RANGE_SIGMA
) -> Float[Tensor, "b c h w"]:
    """The bilateral filter of each channel over a window x window neighbourhood (odd), with reflected borders.

    weight = exp(-distance² / (2 (window / 4)²)) exp(-difference² / (2 range_sigma²)). The loop runs over the
    rows of the window: each is a strided view, which torch.compile turns into a kernel that reads the image from
    cache, so that nothing of size window² is stored.
    """
    if window < 1 or window % 2 == 0:
        raise DebayesError(f"the window of the bilateral filter must be odd and positive, not {window}")
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
    """The filtered squared error of an RGGB mosaic, using only the photosites that measured each colour.

    The four packed planes are filtered with half the window. Every pixel of a 2x2 cell gets its cell's value; green
    gets the mean of its two planes. This is twelve times less work than filtering at full resolution.
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

    `observed` is x-tilde, the interpolated RGGB mosaic. Its squared difference from the target, bilaterally
    filtered, is the noise variance. With `measured` the variance of a colour is computed only from the photosites
    that measured it, and is that of the sensor's noise. The paper's (`measured=False`) is that of the
    interpolated picture: the interpolation averages noise and adds errors at edges.
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
    """The evidence lower bound of every pixel, eq. (11): expected log likelihood minus KL divergence from the
    prior.

    As the prior's count grows, the term count * concentration / (2 rate) * (target - loc)² dominates: a squared
    error weighted by the inverse noise variance. `form` as in `NormalInverseGamma.expected_log_likelihood`.
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
    """The same posterior, with the gradient of `loc` multiplied by gain v_q / s² / sqrt(1 + (e / (bend s))²).

    Here v_q = rate / concentration is the posterior's noise variance, s² = v_p + level² is the prior's noise
    variance v_p with a floor, and e = loc - target.

    The ELBO's gradient with respect to loc is count e / v_q. So a network that predicts high noise for difficult
    pixels lowers their weight and learns them last, and a patch with sigma 1 has 400 times the weight of one with
    sigma 20. The natural gradient, which divides by the Fisher information count / v_q of loc, has neither
    problem. The gradient computed here is the natural gradient weighted by 1 / s². Where the error is large
    compared with the noise it is limited like the gradient of a pseudo-Huber loss, so that a few difficult pixels
    do not dominate. The value of the ELBO, its optimum at each pixel and the gradients of the other three maps do
    not change.

    With `by_patch`, v_p is the mean of e² over the patch; with bend = infinity this is the gradient of the
    patch's PSNR.
    """
    with torch.no_grad():
        squared = (posterior.loc - prior.loc).square()
        variance = squared.mean((1, 2, 3), keepdim=True) if by_patch else prior.rate / prior.concentration
        scale = variance + level**2
        bent = (1 + squared / (bend**2 * scale)).rsqrt()
        factor = gain * (posterior.rate / posterior.concentration) / scale * bent
    loc = posterior.loc.detach() + factor * (posterior.loc - posterior.loc.detach())
    return NormalInverseGamma(loc, posterior.count, posterior.concentration, posterior.rate)


def negative_psnr(
    image: Float[Tensor, "b 3 h w"], target: Float[Tensor, "b 3 h w"], *, level: float
) -> Float[Tensor, ""]:
    """Minus the PSNR in dB, averaged over the patches. `level`² is added to each patch's mean squared error."""
    squared = (image.float() - target).square().mean((1, 2, 3))
    return 10 * (squared + level**2).log10().mean()
