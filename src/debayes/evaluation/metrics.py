"""Image quality and uncertainty metrics. The tests compare PSNR and SSIM with scikit-image."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from debayes.system.errors import DebayesError


def psnr(
    image: Float[Tensor, "*batch c h w"], target: Float[Tensor, "*batch c h w"], *, data_range: float = 1.0
) -> Float[Tensor, "*batch"]:
    """Peak signal-to-noise ratio in dB over all pixels and channels of each image; infinite if the images are
    equal.

    >>> round(float(psnr(torch.zeros(3, 8, 8), torch.full((3, 8, 8), 0.1))), 4)
    20.0
    """
    error = (image.double() - target.double()).square().mean((-3, -2, -1))
    return (10 * torch.log10(data_range**2 / error)).to(image.dtype)


def ssim(
    image: Float[Tensor, "*batch c h w"], target: Float[Tensor, "*batch c h w"], *, data_range: float = 1.0
) -> Float[Tensor, "*batch"]:
    """Structural similarity: Gaussian window of 11 pixels with sigma 1.5, averaged over the windows inside the
    image."""
    *batch, channels, height, width = image.shape
    if min(height, width) < 11:
        raise DebayesError(f"SSIM needs images of at least 11x11 pixels, not {height}x{width}")
    taps = torch.arange(-5, 6, dtype=torch.float64, device=image.device)
    window = torch.exp(-0.5 * (taps / 1.5).square())
    window /= window.sum()

    def blur(x: Tensor) -> Tensor:
        return F.conv2d(F.conv2d(x, window.view(1, 1, -1, 1)), window.view(1, 1, 1, -1))

    x, y = (t.double().reshape(-1, 1, height, width) for t in (image, target))
    mean_x, mean_y = blur(x), blur(y)
    variance_x, variance_y = blur(x * x) - mean_x**2, blur(y * y) - mean_y**2
    covariance = blur(x * y) - mean_x * mean_y
    c1, c2 = (0.01 * data_range) ** 2, (0.03 * data_range) ** 2
    similarity = ((2 * mean_x * mean_y + c1) * (2 * covariance + c2)) / (
        (mean_x**2 + mean_y**2 + c1) * (variance_x + variance_y + c2)
    )
    return similarity.mean((-3, -2, -1)).view(*batch, channels).mean(-1).to(image.dtype)


def calibration_error(levels: Float[Tensor, "*shape"]) -> float:
    """The mean absolute difference between the level and the coverage of central intervals, over all levels.

    `levels` has, for each true value, the level of the smallest interval that contains it. For a calibrated
    posterior they are uniform on [0, 1] and the error is 0.
    """
    ordered = levels.detach().double().flatten().sort().values
    coverage = (torch.arange(len(ordered), dtype=torch.float64, device=ordered.device) + 0.5) / len(ordered)
    return float((ordered - coverage).abs().mean())


def sparsification_error(error: Float[Tensor, "*shape"], doubt: Float[Tensor, "*shape"]) -> float:
    """The area under the sparsification error curve (AUSE); 0 if doubt ranks the pixels exactly as their errors do.

    One curve is the root mean square error of the remaining pixels as those with the highest doubt are removed, the
    other as those with the largest errors are removed; both are relative to the error of all pixels.
    """
    squares = error.detach().double().flatten().square()

    def remaining_error(order: Tensor) -> Tensor:
        sums = squares[order].cumsum(0)  # starting with the lowest
        return (sums / torch.arange(1, len(sums) + 1, device=sums.device)).sqrt()

    by_doubt, best = remaining_error(doubt.flatten().argsort()), remaining_error(squares.argsort())
    return float((by_doubt - best).mean() / squares.mean().sqrt().clamp_min(1e-30))
