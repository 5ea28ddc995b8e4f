"""Noise profiles: how noise grows with the signal, and how to read that off one mosaic.

Photon and read noise together have a variance that is a straight line over the signal. The line is found blind,
in the spirit of Foi et al. (2008): in small blocks of each plane the diagonal detail tells of noise, the horizontal
and vertical detail of texture. In white noise the two are independent, so choosing the blocks that are smoothest by
the one does not bias the variance of the other.
"""

from dataclasses import dataclass
from math import inf

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from debayes import cfa

# Levels of brightness that the blocks are sorted into, at least and at most, and how many blocks each should have.
LEVELS = (16, 64)
CROWD = 2000

# How many of the smoothest blocks speak for a level, or which share of them if that is more.
BLOCKS, SHARE = 200, 0.02

# Photosites that are enough for an estimate: of larger mosaics only some bands of so many rows are looked at.
ENOUGH, BAND = 12_000_000, 64

# The mean of min(x², 9) for a standard normal x.
_TRIMMED = 0.9950


@dataclass(frozen=True)
class Profile:
    """The noise of a sensor: variance = gain * signal + floor, on the scale where white is 1."""

    gain: float
    """What one photon adds to the signal; the S of DNG's NoiseProfile."""
    floor: float
    """The variance without light; its O."""

    def variance(self, signal: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """The noise variance of photosites with this signal; below black it is that of black."""
        return self.gain * signal.clamp_min(0) + self.floor


def estimate(
    mosaic: Float[Tensor, "1 h w"], *, white: float = inf, blocks: int = BLOCKS, floor: float | None = None
) -> Profile:
    """The profile of one noisy mosaic, all colours pooled; any Bayer pattern, at least 8x8 photosites.

    Blocks that reach nine tenths of `white`, where a sensor clips, say nothing and are left out. Noise that is
    correlated between photosites looks smoother than it is and is found too low; texture finer than the blocks, all
    over the picture, is taken for noise. `blocks` is how many of the smoothest speak for a level of brightness.
    A `floor` that is known is kept.
    """
    height, width = mosaic.shape[-2:]
    if min(height, width) < 8:
        raise ValueError(f"a noise profile takes a mosaic of at least 8x8 photosites, not {height}x{width}")
    mosaic = mosaic[:, : height // 2 * 2, : width // 2 * 2]
    if mosaic.numel() > ENOUGH:
        row = torch.arange(mosaic.shape[1])
        mosaic = mosaic[:, row // BAND % -(-mosaic.numel() // ENOUGH) == 0]
    planes = cfa.pack(mosaic.float()).unsqueeze(1)
    return _fit(*_samples(planes, 0.9 * white, blocks), floor)


def dark_variance(photosites: Float[Tensor, "h w"]) -> float:
    """The noise variance of photosites that no light reached, at least four columns: of the differences between
    neighbours of a colour in a row, so that drifts and bands do not count."""
    return float(_trimmed((photosites[:, 2:] - photosites[:, :-2]).flatten() / 2**0.5))


def _samples(
    planes: Float[Tensor, "n 1 h w"], most: float, least: int
) -> tuple[Float[Tensor, " k"], Float[Tensor, " k"]]:
    """Mean and noise variance of the smoothest blocks, for each level of brightness."""
    kernels = torch.tensor([[[1, 1], [1, 1]], [[1, 1], [-1, -1]], [[1, -1], [1, -1]], [[1, -1], [-1, 1]]])
    low, rows, columns, diagonal = F.conv2d(planes, kernels[:, None].to(planes) / 2, stride=2).unbind(1)
    texture = F.avg_pool2d(rows.square() + columns.square(), 5, 1, 2, count_include_pad=False)
    mean = F.avg_pool2d(low / 2, 3, 1, 1, count_include_pad=False)
    brightest = F.max_pool2d(F.max_pool2d(planes, 2), 3, 1, 1)[:, 0]
    seen = brightest < most if bool((brightest < most).any()) else torch.ones_like(brightest, dtype=torch.bool)
    texture, mean, diagonal = texture[seen], mean[seen], diagonal[seen]
    found = []
    for level in mean.argsort().tensor_split(min(max(len(mean) // CROWD, LEVELS[0]), LEVELS[1])):
        if len(level) == 0:
            continue
        many = min(len(level), max(least, int(len(level) * SHARE)))
        smooth = level[texture[level].topk(many, largest=False, sorted=False).indices]
        found.append(torch.stack((mean[smooth].mean(), _trimmed(diagonal[smooth]))))
    means, variances = torch.stack(found, 1).double()
    return means, variances


def _trimmed(deviations: Float[Tensor, " n"]) -> Float[Tensor, ""]:
    """The variance of deviations, those beyond three standard ones counted as three; coarse rounding is no harm."""
    squares = deviations.square()
    variance = squares.mean()
    for _ in range(5):
        variance = squares.clamp_max(9 * variance).mean() / _TRIMMED
    return variance


def _fit(means: Tensor, variances: Tensor, known: float | None = None) -> Profile:
    """The line through (mean, variance), and through a known floor, that neither gain nor floor of is negative.

    A sample weighs by the inverse square of its expected variance, as its error asks for, and less the further it
    lies above the line: what lies there is texture.
    """
    signal = means.clamp_min(0)
    weight = torch.ones_like(variances)
    gain = floor = 0.0
    for _ in range(20):
        if known is None:
            gain, floor = _line(signal, variances, weight)
        else:
            gain, floor = _slope(signal, variances, weight, known), known
        line = (gain * signal + floor).clamp_min(1e-12)
        above = ((variances - line) / line).clamp_min(0)
        weight = (1 / (line * (1 + (above / 0.15).square()))).square()
    return Profile(gain, floor)


def _line(signal: Tensor, variances: Tensor, weight: Tensor) -> tuple[float, float]:
    """Gain and floor of least weighted squares, neither below 0."""
    total = weight.sum()
    x, y = (weight * signal).sum() / total, (weight * variances).sum() / total
    spread = (weight * (signal - x).square()).sum() / total
    gain = float((weight * (signal - x) * (variances - y)).sum() / total / spread) if spread > 1e-6 else 0.0
    floor = float(y - gain * x)
    if gain < 0:
        return 0.0, float(y)
    return (gain, floor) if floor >= 0 else (_slope(signal, variances, weight, 0.0), 0.0)


def _slope(signal: Tensor, variances: Tensor, weight: Tensor, floor: float) -> float:
    """The gain of least weighted squares for a floor, not below 0."""
    energy = (weight * signal.square()).sum().clamp_min(1e-12)
    return max(0.0, float((weight * signal * (variances - floor)).sum() / energy))
