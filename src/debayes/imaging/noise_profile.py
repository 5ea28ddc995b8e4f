"""Noise profiles: how noise grows with the signal, and how to read that off one mosaic.

Photon and read noise together have a variance that is a straight line over the signal. The line is found blind,
in the spirit of Foi et al. (2008): of every small window some details tell of noise, others of texture. In white
noise the two are independent, so choosing windows that are smooth by the one does not bias the variance of the
other. The smoothest windows give a first line. Those that are no rougher than noise on that line, which are many
where the picture is plain or the noise strong, give a better one.

Noise is looked for where pictures have least: in directions of windows of all colours, learnt from photographs
(`recipes/directions.py`), or, if the pattern is not known, in the diagonal detail of each plane.
"""

from dataclasses import dataclass
from functools import cache
from importlib import resources
from math import inf

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from debayes.imaging import cfa

# The side of a window of all colours, how far apart windows are, and how many of its directions tell of noise; the
# rest of those in directions.npy tell of texture.
WINDOW, STEP, QUIET = 8, 4, 10

# Levels of brightness that windows are sorted into, at least and at most, and how many details each should have.
LEVELS = (16, 64)
CROWD = 2000

# How many details of the smoothest windows speak for a level at first, or which share of them if that is more.
BLOCKS, SHARE = 200, 0.02

# How often those no rougher than noise are chosen after that, and the fewest details of a level that are.
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
    mosaic: Float[Tensor, "1 h w"],
    pattern: str | None = None,
    *,
    white: float = inf,
    blocks: int | None = None,
    floor: float | None = None,
) -> Profile:
    """The profile of one noisy mosaic, all colours pooled; at least 8x8 photosites.

    With the Bayer pattern known it is twice as exact. Windows that reach nine tenths of `white`, where a sensor
    clips, say nothing and are left out. Noise that is correlated between photosites looks smoother than it is and
    is found too low; texture finer than the windows, all over the picture, is taken for noise. With `blocks` so
    many details of the smoothest windows speak for a level of brightness, however rough they are. A `floor` that
    is known is kept.
    """
    height, width = mosaic.shape[-2:]
    if min(height, width) < 8:
        raise ValueError(f"a noise profile takes a mosaic of at least 8x8 photosites, not {height}x{width}")
    if min(height, width) < 2 * WINDOW:
        pattern = None  # too few windows
    if pattern is not None:
        top, left = cfa.red_offset(pattern)
        mosaic = mosaic[:, top:, left:]
    mosaic = mosaic[:, : mosaic.shape[1] // 2 * 2, : mosaic.shape[2] // 2 * 2].float()
    if mosaic.numel() > ENOUGH:
        row = torch.arange(mosaic.shape[1])
        mosaic = mosaic[:, row // BAND % -(-mosaic.numel() // ENOUGH) == 0]
    seen = _in_windows(mosaic, 0.9 * white) if pattern is not None else _in_planes(mosaic, 0.9 * white)
    levels = seen.by_brightness()
    smoothest = [level.smoothest(max(blocks or BLOCKS, int(level.detail.numel() * SHARE))) for level in levels]
    found = _fit(smoothest, floor)
    for _ in range(ROUNDS if blocks is None else 0):
        found = _fit([level.no_rougher_than(found) for level in levels], floor)
    return found


def dark_variance(photosites: Float[Tensor, "h w"]) -> float:
    """The noise variance of photosites that no light reached, at least four columns: of the differences between
    neighbours of a colour in a row, so that drifts and bands do not count."""
    return float(_trimmed((photosites[:, 2:] - photosites[:, :-2]).flatten() / 2**0.5))


@dataclass(frozen=True)
class _Windows:
    """Windows of photosites."""

    detail: Float[Tensor, "n k"]
    """Details of each that tell of noise."""
    signal: Float[Tensor, "n k"]
    """The brightness that the noise of each detail grows with."""
    texture: Float[Tensor, " n"]
    """The mean square of other details: in noise alone, its variance."""
    brightness: Float[Tensor, " n"]
    """The brightness that the noise in the texture grows with."""

    def smoothest(self, details: int) -> "_Windows":
        """Windows with so many details, those with the least texture, or all if there are fewer."""
        many = min(-(-details // self.detail.shape[1]), len(self.texture))
        return self._some(self.texture.topk(many, largest=False, sorted=False).indices)

    def no_rougher_than(self, noise: Profile) -> "_Windows":
        """The windows with no more texture than noise has, or a few of the smoothest if there are fewer."""
        smooth = self.texture <= noise.variance(self.brightness)
        enough = int(smooth.sum()) * self.detail.shape[1] > FEWEST
        return self._some(smooth) if enough else self.smoothest(FEWEST)

    def by_brightness(self) -> "list[_Windows]":
        """Levels of windows about as bright as each other, equally many in each."""
        many = min(max(self.detail.numel() // CROWD, LEVELS[0]), LEVELS[1])
        return [self._some(level) for level in self.brightness.argsort().tensor_split(many) if len(level)]

    def _some(self, chosen: Tensor) -> "_Windows":
        return _Windows(self.detail[chosen], self.signal[chosen], self.texture[chosen], self.brightness[chosen])


def _in_windows(mosaic: Float[Tensor, "1 h w"], most: float) -> _Windows:
    """The windows of an RGGB mosaic, none of them brighter than `most` anywhere."""
    filters = _directions()
    quiet = filters[:QUIET]
    picture = mosaic[None]

    def apply(kernels: Tensor) -> Tensor:
        return F.conv2d(picture, kernels, stride=STEP)[0].flatten(1).T

    detail, signal = apply(quiet), apply(quiet.square())
    texture = apply(filters[QUIET:]).square().mean(1)
    brightness = apply(filters[QUIET:].square().mean(0, keepdim=True))[:, 0]
    dark = F.max_pool2d(picture, WINDOW, STEP).flatten() < most
    return _Windows(detail, signal, texture, brightness)._some(dark if bool(dark.any()) else ~dark)


@cache
def _directions() -> Float[Tensor, "n 1 k k"]:
    """Orthonormal directions of a window of an RGGB mosaic, from those that pictures have least of."""
    with resources.files("debayes.imaging").joinpath("directions.npy").open("rb") as file:
        return torch.from_numpy(np.load(file)).unsqueeze(1)


def _in_planes(mosaic: Float[Tensor, "1 h w"], most: float) -> _Windows:
    """Blocks of 2x2 photosites of each plane, none of them brighter than `most`: their diagonal detail tells of
    noise, horizontal and vertical detail around them of texture."""
    planes = cfa.pack(mosaic).unsqueeze(1)
    kernels = torch.tensor([[[1, 1], [1, 1]], [[1, 1], [-1, -1]], [[1, -1], [1, -1]], [[1, -1], [-1, 1]]])
    low, rows, columns, diagonal = F.conv2d(planes, kernels[:, None].to(planes) / 2, stride=2).unbind(1)
    texture = F.avg_pool2d(rows.square() + columns.square(), 5, 1, 2, count_include_pad=False) / 2
    mean = F.avg_pool2d(low / 2, 3, 1, 1, count_include_pad=False).flatten()
    dark = (F.max_pool2d(F.max_pool2d(planes, 2), 3, 1, 1) < most).flatten()
    blocks = _Windows(diagonal.flatten()[:, None], mean[:, None], texture.flatten(), mean)
    return blocks._some(dark if bool(dark.any()) else ~dark)


def _trimmed(deviations: Float[Tensor, " n"]) -> Float[Tensor, ""]:
    """The variance of deviations, those beyond three standard ones counted as three; coarse rounding is no harm."""
    squares = deviations.square()
    variance = squares.mean()
    for _ in range(5):
        variance = squares.clamp_max(9 * variance).mean() / _TRIMMED
    return variance


def _fit(levels: list[_Windows], known: float | None = None) -> Profile:
    """The line through mean and noise variance of levels, and a known floor, that has no gain or floor below 0.

    A level weighs by how many details speak for it and by the inverse square of its expected variance, as its error
    asks for, and less the further it lies above the line: what lies there is texture.
    """
    means = torch.stack([level.signal.mean() for level in levels]).double()
    variances = torch.stack([_trimmed(level.detail.flatten()) for level in levels]).double()
    many = torch.tensor([level.detail.numel() for level in levels]).to(means)
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
