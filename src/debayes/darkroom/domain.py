"""Mosaics in the networks' domain, and posteriors converted back to the picture's values.

Networks for raws work on values after white balance and a variance-stabilising transform (`RawSource`). Networks
for mosaics of sRGB values take these as they are (`MosaicSource`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import sqrt

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from debayes.formats.raw import Raw
from debayes.imaging import cfa, noise_profile, vst
from debayes.imaging.noise_profile import Profile
from debayes.posterior.nig import NormalInverseGamma

# Rows of a whole picture that are processed at a time, so that intermediate values fit in a processor's cache.
STRIP = 32

# Photosites from this share of saturation on are blown.
BLOWN = 0.999

# The lowest gain the transform is made for: no camera has less noise, and no network was trained with less.
LEAST_GAIN = 1e-7

# The inverse transform of the mean adds the variance of the true value, up to this one (in the networks' domain).
# Where colours are far from those of the training, networks claim much more, and adding all of it makes white dots.
MAX_VARIANCE = 0.02

# A pixel has photosites of every colour within this many rows and columns.
MARGIN = 2


@dataclass(frozen=True)
class DevelopedTile:
    """A piece of a developed picture: values of the source, 0 = black and 1 = white."""

    rows: slice
    columns: slice
    picture: Float[Tensor, "3 h w"]
    """The posterior's mean."""
    posterior: NormalInverseGamma
    """The posterior in the networks' domain."""
    offset: Float[Tensor, ""] | None = None
    """The offset of the variance-stabilising transform; none if the picture is in the networks' domain itself."""
    gains: Float[Tensor, "3 1 w"] | None = None
    """The white balance, repeated for every column because multiplying by three numbers is slow; none if there is
    no offset.
    """

    @property
    def noise(self) -> Float[Tensor, "3 h w"]:
        """The standard deviation of the noise in the mosaic."""
        return self._deviation(self.posterior.noise_variance.sqrt())

    @property
    def doubt(self) -> Float[Tensor, "3 h w"]:
        """The standard deviation of the true value, given the mosaic."""
        return self._deviation(self.posterior.mean_variance.sqrt())

    def interval(self, level: float) -> tuple[Float[Tensor, "3 h w"], Float[Tensor, "3 h w"]]:
        """Low and high end of the interval that holds the true value with probability `level`: decoded quantiles.

        The interval is widened to hold the picture, which is white where photosites are blown.
        """
        low, high = (self._decode(end) for end in self.posterior.interval(level))
        return torch.minimum(low, self.picture), torch.maximum(high, self.picture)

    def _decode(self, values: Tensor) -> Tensor:
        return values if self.offset is None or self.gains is None else vst.decode(values, self.offset) / self.gains

    def _deviation(self, deviation: Tensor) -> Tensor:
        """A standard deviation in the networks' domain, converted to the picture's values: half the distance
        between what mean + deviation and mean - deviation decode to.
        """
        if self.offset is None or self.gains is None:
            return deviation
        mean = self.posterior.mean
        up, down = vst.decode(mean + deviation, self.offset), vst.decode(mean - deviation, self.offset)
        return (up - down) / 2 / self.gains


@dataclass(frozen=True)
class MosaicSource:
    """A mosaic of values that networks take as they are."""

    mosaic: Float[Tensor, "1 h w"]
    pattern: str

    def encode(self) -> Float[Tensor, "1 h w"]:
        """The mosaic in the networks' domain."""
        return self.mosaic

    def decode(self, rows: slice, columns: slice, posterior: NormalInverseGamma) -> DevelopedTile:
        """A piece of the picture, made of its posterior in the networks' domain."""
        return DevelopedTile(rows, columns, posterior.mean, posterior)


@dataclass(frozen=True)
class RawSource:
    """A camera raw and its noise."""

    raw: Raw
    profile: Profile

    @property
    def mosaic(self) -> Float[Tensor, "1 h w"]:
        """The photosites: 0 = black, 1 = white, linear."""
        return self.raw.mosaic

    @property
    def pattern(self) -> str:
        """The colour filter pattern at the mosaic's top left."""
        return self.raw.pattern

    @cached_property
    def offset(self) -> Float[Tensor, ""]:
        """The offset of the variance-stabilising transform."""
        return _transform_offset(self.profile)

    @cached_property
    def gains(self) -> Float[Tensor, "3 1 w"]:
        """The white balance of every column, colours last in memory as in maps."""
        return torch.tensor(self.raw.gains).repeat(self.raw.size[1], 1).t()[:, None]

    def encode(self) -> Float[Tensor, "1 h w"]:
        """The mosaic in the networks' domain."""
        return encode_raw(self.raw, self.profile)

    def decode(self, rows: slice, columns: slice, posterior: NormalInverseGamma) -> DevelopedTile:
        """A piece of the picture, made of its posterior in the networks' domain; blown pixels are white."""
        gains = self.gains[..., columns]
        variance = posterior.mean_variance.clamp_max(MAX_VARIANCE)
        linear = vst.decode_mean(posterior.mean, variance, self.offset).div_(gains)
        blown = _blown(self.raw, rows, columns)
        picture = torch.where(blown, linear.clamp_min(1), linear) if bool(blown.any()) else linear
        return DevelopedTile(rows, columns, picture, posterior, self.offset, gains)

    def noise_variance(self, mean: Float[Tensor, "3 h w"]) -> Float[Tensor, "3 h w"]:
        """The noise variance in the networks' domain, where that domain's picture is `mean`."""
        gains = torch.tensor(self.raw.gains).view(3, 1, 1)
        slope = vst.slope(mean, self.offset)
        return self.profile.variance(vst.decode(mean, self.offset) / gains) * (gains * slope).square()

    @property
    def unclipped(self) -> float:
        """Values below this level are not clipped by the sensor, noise included."""
        return max(0.1, self.raw.saturation - 3 * sqrt(self.profile.gain + self.profile.floor))


Source = MosaicSource | RawSource


def noise_of(raw: Raw) -> Profile:
    """The noise profile that the file stores, or else one estimated from the mosaic and its masked photosites."""
    return raw.profile or noise_profile.estimate(raw.mosaic, raw.pattern, white=raw.saturation, floor=raw.floor)


def encode_raw(raw: Raw, profile: Profile) -> Float[Tensor, "1 h w"]:
    """The mosaic of a raw in the networks' domain: white balance, then the variance-stabilising transform.

    Networks were trained on highlights with noise that is clipped at white. Blown photosites, which have no noise,
    are given such noise; otherwise networks would leave the noise around a highlight in the picture.
    """
    height, width = raw.size
    offset = _transform_offset(profile)
    period = cfa.Pattern.of(raw.pattern).period
    balance = cfa.mosaic(torch.tensor(raw.gains).view(3, 1, 1).expand(3, period + STRIP, width), raw.pattern)
    generator = torch.Generator().manual_seed(0)
    encoded = torch.empty_like(raw.mosaic)
    for rows in strips(height):
        mosaic = raw.mosaic[:, rows]
        if mosaic.amax() >= raw.saturation * BLOWN:
            blown = mosaic >= raw.saturation * BLOWN
            noise = sqrt(profile.gain + profile.floor) * torch.randn(int(blown.sum()), generator=generator)
            mosaic = mosaic.masked_scatter(blown, raw.saturation + noise.clamp_max(0))
        start = rows.start % period
        encoded[:, rows] = vst.encode(mosaic * balance[:, start : start + mosaic.shape[1]], offset)
    return encoded


def strips(height: int, rows: int = STRIP) -> Iterator[slice]:
    """Consecutive rows of a picture, at most `rows` at a time: float intermediates of a whole picture are large."""
    for start in range(0, height, rows):
        yield slice(start, min(start + rows, height))


def _transform_offset(profile: Profile) -> Float[Tensor, ""]:
    return vst.offset(torch.tensor(max(profile.gain, LEAST_GAIN)), torch.tensor(profile.floor))


def _blown(raw: Raw, rows: slice, columns: slice) -> Bool[Tensor, "*shape"]:
    """Which colours of which pixels are interpolated from blown photosites alone; a single False if none is."""
    top, left = max(0, rows.start - MARGIN), max(0, columns.start - MARGIN)
    window = raw.mosaic[:, top : rows.stop + MARGIN, left : columns.stop + MARGIN]
    if window.amax() < raw.saturation * BLOWN:  # faster than comparing all of them
        return torch.zeros((), dtype=torch.bool)
    blown = (window >= raw.saturation * BLOWN).float()
    around = cfa.interpolate(blown[None], cfa.shift(raw.pattern, top, left))[0] > 0.999
    inside = (slice(rows.start - top, rows.stop - top), slice(columns.start - left, columns.stop - left))
    return around[:, inside[0], inside[1]]
