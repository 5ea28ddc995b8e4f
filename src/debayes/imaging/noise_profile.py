"""Noise profiles: how noise grows with the signal, and a blind estimate of that from one mosaic.

Photon and read noise together have a variance that is a straight line over the signal. The line is estimated in
the spirit of Foi et al. (2008): in every small window some filters measure noise, others texture. In white noise
the two are independent, so choosing windows that are smooth by one does not bias the variance of the other. The
smoothest windows give a first line. Then all windows that are no rougher than noise on that line are used, which
are many where the picture is plain or the noise strong; they give a better one.

The windows of a Bayer mosaic are projected onto filters with little energy in natural images, learnt from
photographs (`recipes/directions.py`). If the pattern is not known, the diagonal detail of each plane is used.
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
from debayes.system.errors import DebayesError

# The side of a window, the distance between windows, and how many of the filters measure noise; the others in
# directions.npy measure texture.
WINDOW, STEP, NOISE_FILTERS = 8, 4, 10

# Levels of brightness into which windows are sorted, at least and at most, and the details that each should have.
LEVELS = (16, 64)
DETAILS_PER_LEVEL = 2000

# Details of the smoothest windows that a level has in the first fit; or this share of all its details, if more.
BLOCKS, SHARE = 200, 0.02

# How many fits to the windows no rougher than noise follow, and the fewest details of a level in them.
ROUNDS, FEWEST_DETAILS = 3, 100

# Photosites that are enough for an estimate: of larger mosaics only some bands of that many rows are used.
ENOUGH_PHOTOSITES, BAND = 6_000_000, 64

# The mean of min(x², 9) for a standard normal x.
_TRIMMED = 0.9950


@dataclass(frozen=True)
class Profile:
    """The noise of a sensor: variance = gain * signal + floor, on the scale where white is 1."""

    gain: float
    """What one photon adds to the signal; S in DNG's NoiseProfile."""
    floor: float
    """The variance without light; O in DNG's NoiseProfile."""

    def variance(self, signal: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """The noise variance of photosites with this signal; below black it is that of black."""
        return self.gain * signal.clamp_min(0) + self.floor


def estimate(
    mosaic: Float[Tensor, "1 h w"],
    pattern: cfa.Pattern | str | None = None,
    *,
    white: float = inf,
    blocks: int | None = None,
    floor: float | None = None,
) -> Profile:
    """The profile of one noisy mosaic of at least 8x8 photosites, pooled over the colours.

    With the Bayer pattern the estimate is twice as exact. Windows that reach nine tenths of `white`, where a sensor
    clips, are left out. Noise that is correlated between photosites is underestimated; texture finer than the
    windows, all over the picture, is taken for noise. With `blocks`, the smoothest windows of each brightness level
    are used until they have at least that many details, however rough they are. A known `floor` is kept.
    """
    height, width = mosaic.shape[-2:]
    if min(height, width) < 8:
        raise DebayesError(f"a noise profile takes a mosaic of at least 8x8 photosites, not {height}x{width}")
    if min(height, width) < 2 * WINDOW:
        pattern = None  # too few windows
    if pattern is not None:
        top, left = cfa.red_offset(pattern)
        mosaic = mosaic[:, top:, left:]
    mosaic = cfa.whole_cells(mosaic).float()
    if mosaic.numel() > ENOUGH_PHOTOSITES:
        row = torch.arange(mosaic.shape[1])
        mosaic = mosaic[:, row // BAND % -(-mosaic.numel() // ENOUGH_PHOTOSITES) == 0]
    limit = 0.9 * white
    windows = _in_windows(mosaic, limit) if pattern is not None else _in_planes(mosaic, limit)
    levels = windows.by_brightness()
    smoothest = [level.smoothest(max(blocks or BLOCKS, int(level.detail.numel() * SHARE))) for level in levels]
    profile = _fit(smoothest, floor)
    for _ in range(ROUNDS if blocks is None else 0):
        profile = _fit([level.no_rougher_than(profile) for level in levels], floor)
    return profile


def dark_variance(photosites: Float[Tensor, "h w"]) -> float:
    """The noise variance of photosites that no light reached, at least four columns of them.

    It is computed from the differences between neighbours of one colour in a row, which drifts and bands do not
    change.
    """
    return float(_trimmed_variance((photosites[:, 2:] - photosites[:, :-2]).flatten() / 2**0.5))


@dataclass(frozen=True)
class _Windows:
    """Windows of photosites."""

    detail: Float[Tensor, "n k"]
    """The details of each window that measure noise: the outputs of its noise filters."""
    signal: Float[Tensor, "n k"]
    """The brightness on which the noise of each detail depends."""
    texture: Float[Tensor, " n"]
    """The mean square of the other filters' outputs: in noise alone, its variance."""
    brightness: Float[Tensor, " n"]
    """The brightness on which the noise in the texture depends."""

    def smoothest(self, details: int) -> "_Windows":
        """The windows with the least texture that have that many details, or all if there are fewer."""
        count = min(-(-details // self.detail.shape[1]), len(self.texture))
        return self._select(self.texture.topk(count, largest=False, sorted=False).indices)

    def no_rougher_than(self, noise: Profile) -> "_Windows":
        """The windows with no more texture than noise has, or the smoothest ones if these are too few."""
        smooth = self.texture <= noise.variance(self.brightness)
        enough = int(smooth.sum()) * self.detail.shape[1] > FEWEST_DETAILS
        return self._select(smooth) if enough else self.smoothest(FEWEST_DETAILS)

    def by_brightness(self) -> "list[_Windows]":
        """The windows sorted into levels of similar brightness, with equally many in each."""
        count = min(max(self.detail.numel() // DETAILS_PER_LEVEL, LEVELS[0]), LEVELS[1])
        return [self._select(level) for level in self.brightness.argsort().tensor_split(count) if len(level)]

    def _select(self, chosen: Tensor) -> "_Windows":
        return _Windows(self.detail[chosen], self.signal[chosen], self.texture[chosen], self.brightness[chosen])


def _in_windows(mosaic: Float[Tensor, "1 h w"], limit: float) -> _Windows:
    """The windows of an RGGB mosaic that are below `limit` everywhere, or all if none are."""
    filters = _filters()
    noise_filters, texture_filters = filters[:NOISE_FILTERS], filters[NOISE_FILTERS:]

    def apply(kernels: Tensor) -> Tensor:
        return F.conv2d(mosaic[None], kernels, stride=STEP)[0].flatten(1).T

    detail, signal = apply(noise_filters), apply(noise_filters.square())
    texture = apply(texture_filters).square().mean(1)
    brightness = apply(texture_filters.square().mean(0, keepdim=True))[:, 0]
    below = F.max_pool2d(mosaic[None], WINDOW, STEP).flatten() < limit
    return _Windows(detail, signal, texture, brightness)._select(below if bool(below.any()) else ~below)


@cache
def _filters() -> Float[Tensor, "n 1 k k"]:
    """Orthonormal filters of a window of an RGGB mosaic, those with the least energy in photographs first."""
    with resources.files("debayes.imaging").joinpath("directions.npy").open("rb") as file:
        return torch.from_numpy(np.load(file)).unsqueeze(1)


def _in_planes(mosaic: Float[Tensor, "1 h w"], limit: float) -> _Windows:
    """Blocks of 2x2 photosites of each plane that are below `limit`, or all if none are.

    Their diagonal detail measures noise; the horizontal and vertical detail around them measures texture.
    """
    planes = cfa.pack(mosaic).unsqueeze(1)
    kernels = torch.tensor([[[1, 1], [1, 1]], [[1, 1], [-1, -1]], [[1, -1], [1, -1]], [[1, -1], [-1, 1]]])
    low, rows, columns, diagonal = F.conv2d(planes, kernels[:, None].to(planes) / 2, stride=2).unbind(1)
    texture = F.avg_pool2d(rows.square() + columns.square(), 5, 1, 2, count_include_pad=False) / 2
    mean = F.avg_pool2d(low / 2, 3, 1, 1, count_include_pad=False).flatten()
    below = (F.max_pool2d(F.max_pool2d(planes, 2), 3, 1, 1) < limit).flatten()
    blocks = _Windows(diagonal.flatten()[:, None], mean[:, None], texture.flatten(), mean)
    return blocks._select(below if bool(below.any()) else ~below)


def _trimmed_variance(deviations: Float[Tensor, " n"]) -> Float[Tensor, ""]:
    """The variance of deviations, clipped at three standard deviations; robust to coarse rounding."""
    squares = deviations.square()
    variance = squares.mean()
    for _ in range(5):
        variance = squares.clamp_max(9 * variance).mean() / _TRIMMED
    return variance


def _fit(levels: list[_Windows], known: float | None = None) -> Profile:
    """The line through mean and noise variance of the levels, through a known floor if any; nothing is below 0.

    A level's weight is its number of details over the square of its expected variance, the inverse of its squared
    error; it is smaller the further the level lies above the line, since that is texture.
    """
    means = torch.stack([level.signal.mean() for level in levels]).double()
    variances = torch.stack([_trimmed_variance(level.detail.flatten()) for level in levels]).double()
    counts = torch.tensor([level.detail.numel() for level in levels]).to(means)
    signal = means.clamp_min(0)
    weight = counts / variances.clamp_min(1e-12).square()
    gain = floor = 0.0
    for _ in range(20):
        if known is None:
            gain, floor = _line(signal, variances, weight)
        else:
            gain, floor = _slope(signal, variances, weight, known), known
        line = (gain * signal + floor).clamp_min(1e-12)
        above = ((variances - line) / line).clamp_min(0)
        weight = counts / (line * (1 + (above / 0.15).square())).square()
    return Profile(gain, floor)


def _line(signal: Tensor, variances: Tensor, weight: Tensor) -> tuple[float, float]:
    """Gain and floor by weighted least squares, neither below 0."""
    total = weight.sum()
    x, y = (weight * signal).sum() / total, (weight * variances).sum() / total
    spread = (weight * (signal - x).square()).sum() / total
    joint = (weight * (signal - x) * (variances - y)).sum() / total
    # if the levels differ by less than half the noise, they are one and determine no gain
    gain = float(joint / spread) if spread > y / 4 else 0.0
    floor = float(y - gain * x)
    if gain < 0:
        return 0.0, float(y)
    return (gain, floor) if floor >= 0 else (_slope(signal, variances, weight, 0.0), 0.0)


def _slope(signal: Tensor, variances: Tensor, weight: Tensor, floor: float) -> float:
    """The gain by weighted least squares for a known floor, not below 0."""
    energy = (weight * signal.square()).sum().clamp_min(1e-12)
    return max(0.0, float((weight * signal * (variances - floor)).sum() / energy))
