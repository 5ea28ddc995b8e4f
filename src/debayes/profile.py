"""Noise profiles: how noise grows with the signal, and how to read that off one mosaic.

Photon and read noise together have a variance that is a straight line over the signal. The line is found blind,
in the spirit of Foi et al. (2008): in small blocks of each plane the diagonal detail tells of noise, the horizontal
and vertical detail of texture. In white noise the two are independent, so choosing blocks that are smooth by the
one does not bias the variance of the other. The smoothest blocks give a first line. Those that are no rougher than
noise on that line, which are many where the picture is plain or the noise strong, give a better one.
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

# How many of the smoothest blocks speak for a level at first, or which share of them if that is more.
BLOCKS, SHARE = 200, 0.02

# How often those no rougher than noise are chosen after that, and the fewest of a level that are.
ROUNDS, FEWEST = 3, 100

# Photosites that are enough for an estimate: of larger mosaics only some bands of so many rows are looked at.
ENOUGH, BAND = 6_000_000, 64

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
    mosaic: Float[Tensor, "1 h w"], *, white: float = inf, blocks: int | None = None, floor: float | None = None
) -> Profile:
    """The profile of one noisy mosaic, all colours pooled; any Bayer pattern, at least 8x8 photosites.

    Blocks that reach nine tenths of `white`, where a sensor clips, say nothing and are left out. Noise that is
    correlated between photosites looks smoother than it is and is found too low; texture finer than the blocks, all
    over the picture, is taken for noise. With `blocks` so many of the smoothest speak for a level of brightness,
    however rough they are. A `floor` that is known is kept.
    """
    height, width = mosaic.shape[-2:]
    if min(height, width) < 8:
        raise ValueError(f"a noise profile takes a mosaic of at least 8x8 photosites, not {height}x{width}")
    mosaic = mosaic[:, : height // 2 * 2, : width // 2 * 2]
    if mosaic.numel() > ENOUGH:
        row = torch.arange(mosaic.shape[1])
        mosaic = mosaic[:, row // BAND % -(-mosaic.numel() // ENOUGH) == 0]
    levels = _levels(cfa.pack(mosaic.float()).unsqueeze(1), 0.9 * white)
    smoothest = [level.smoothest(max(blocks or BLOCKS, int(len(level.mean) * SHARE))) for level in levels]
    found = _fit(smoothest, floor)
    for _ in range(ROUNDS if blocks is None else 0):
        found = _fit([level.no_rougher_than(found) for level in levels], floor)
    return found


def dark_variance(photosites: Float[Tensor, "h w"]) -> float:
    """The noise variance of photosites that no light reached, at least four columns: of the differences between
    neighbours of a colour in a row, so that drifts and bands do not count."""
    return float(_trimmed((photosites[:, 2:] - photosites[:, :-2]).flatten() / 2**0.5))


@dataclass(frozen=True)
class _Blocks:
    """Blocks of photosites that are about as bright as each other."""

    mean: Float[Tensor, " n"]
    """Their brightness, that of their neighbours counted in."""
    texture: Float[Tensor, " n"]
    """The mean square of horizontal and vertical detail around them: in noise alone, its variance."""
    diagonal: Float[Tensor, " n"]
    """Their diagonal detail."""

    def smoothest(self, many: int) -> "_Blocks":
        """So many blocks with the least texture, or all if there are fewer."""
        return self._some(self.texture.topk(min(many, len(self.mean)), largest=False, sorted=False).indices)

    def no_rougher_than(self, noise: Profile) -> "_Blocks":
        """The blocks with no more texture than noise has, or a few of the smoothest if there are fewer."""
        smooth = self.texture <= noise.variance(self.mean)
        return self._some(smooth) if int(smooth.sum()) > FEWEST else self.smoothest(FEWEST)

    def _some(self, chosen: Tensor) -> "_Blocks":
        return _Blocks(self.mean[chosen], self.texture[chosen], self.diagonal[chosen])


def _levels(planes: Float[Tensor, "n 1 h w"], most: float) -> list[_Blocks]:
    """The blocks of some planes, none of them brighter than `most`, by brightness."""
    kernels = torch.tensor([[[1, 1], [1, 1]], [[1, 1], [-1, -1]], [[1, -1], [1, -1]], [[1, -1], [-1, 1]]])
    low, rows, columns, diagonal = F.conv2d(planes, kernels[:, None].to(planes) / 2, stride=2).unbind(1)
    texture = F.avg_pool2d(rows.square() + columns.square(), 5, 1, 2, count_include_pad=False) / 2
    mean = F.avg_pool2d(low / 2, 3, 1, 1, count_include_pad=False)
    brightest = F.max_pool2d(F.max_pool2d(planes, 2), 3, 1, 1)[:, 0]
    seen = brightest < most if bool((brightest < most).any()) else torch.ones_like(brightest, dtype=torch.bool)
    blocks = _Blocks(mean[seen], texture[seen], diagonal[seen])
    many = min(max(len(blocks.mean) // CROWD, LEVELS[0]), LEVELS[1])
    return [blocks._some(level) for level in blocks.mean.argsort().tensor_split(many) if len(level)]


def _trimmed(deviations: Float[Tensor, " n"]) -> Float[Tensor, ""]:
    """The variance of deviations, those beyond three standard ones counted as three; coarse rounding is no harm."""
    squares = deviations.square()
    variance = squares.mean()
    for _ in range(5):
        variance = squares.clamp_max(9 * variance).mean() / _TRIMMED
    return variance


def _fit(levels: list[_Blocks], known: float | None = None) -> Profile:
    """The line through mean and noise variance of levels, and a known floor, that has no gain or floor below 0.

    A level weighs by how many blocks speak for it and by the inverse square of its expected variance, as its error
    asks for, and less the further it lies above the line: what lies there is texture.
    """
    means = torch.stack([level.mean.mean() for level in levels]).double()
    variances = torch.stack([_trimmed(level.diagonal) for level in levels]).double()
    many = torch.tensor([len(level.mean) for level in levels]).to(means)
    signal = means.clamp_min(0)
    weight = many / variances.clamp_min(1e-12).square()
    gain = floor = 0.0
    for _ in range(20):
        if known is None:
            gain, floor = _line(signal, variances, weight)
        else:
            gain, floor = _slope(signal, variances, weight, known), known
        line = (gain * signal + floor).clamp_min(1e-12)
        above = ((variances - line) / line).clamp_min(0)
        weight = many / (line * (1 + (above / 0.15).square())).square()
    return Profile(gain, floor)


def _line(signal: Tensor, variances: Tensor, weight: Tensor) -> tuple[float, float]:
    """Gain and floor of least weighted squares, neither below 0."""
    total = weight.sum()
    x, y = (weight * signal).sum() / total, (weight * variances).sum() / total
    spread = (weight * (signal - x).square()).sum() / total
    joint = (weight * (signal - x) * (variances - y)).sum() / total
    # levels that lie closer together than half of what noise does are one, and there is no line
    gain = float(joint / spread) if spread > y / 4 else 0.0
    floor = float(y - gain * x)
    if gain < 0:
        return 0.0, float(y)
    return (gain, floor) if floor >= 0 else (_slope(signal, variances, weight, 0.0), 0.0)


def _slope(signal: Tensor, variances: Tensor, weight: Tensor, floor: float) -> float:
    """The gain of least weighted squares for a floor, not below 0."""
    energy = (weight * signal.square()).sum().clamp_min(1e-12)
    return max(0.0, float((weight * signal * (variances - floor)).sum() / energy))
