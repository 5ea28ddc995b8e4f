"""Developing a raw in memory: through the bridge into the networks' domain, through a network, and back."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import sqrt
from operator import itemgetter

import torch
from jaxtyping import Float
from torch import Tensor

from debayes.darkroom.brightness import Balance
from debayes.formats.raw import Raw
from debayes.imaging import cfa, color, noise_profile, vst
from debayes.imaging.noise_profile import Profile
from debayes.posterior.nig import NormalInverseGamma, check_level
from debayes.restoration import arrays
from debayes.restoration.runner import Runner
from debayes.restoration.tiling import restore_tiles

# Rows that are worked on at a time where a whole picture is, so that what comes between stays in a processor's
# cache; an even number. Of tiles at most so many, as each strip takes many small steps there.
STRIP = 32
TILE_STRIP = 512

# Photosites from this share of saturation on are blown.
BLOWN = 0.999

# Less noise than this no camera has, and no network was trained with.
LEAST_GAIN = 1e-7

Progress = Callable[[float], None]


@dataclass(frozen=True)
class Part:
    """A piece of a developed picture: linear camera colours before white balance, 0 = black and 1 = white."""

    rows: slice
    columns: slice
    picture: Float[Tensor, "3 h w"]
    """The posterior's mean."""
    posterior: NormalInverseGamma
    """That of the networks' domain."""
    offset: Tensor
    """Of the bridge's curve, which leads there."""
    gains: Float[Tensor, "3 1 w"]
    """White balance, which does too: for every column, as a product with three numbers is slow."""

    @property
    def noise(self) -> Float[Tensor, "3 h w"]:
        """The standard deviation of the noise in the raw."""
        return self._spread(self.posterior.noise_variance.sqrt())

    @property
    def doubt(self) -> Float[Tensor, "3 h w"]:
        """The standard deviation of what is true, given the raw."""
        return self._spread(self.posterior.mean_variance.sqrt())

    def interval(self, level: float) -> tuple[Float[Tensor, "3 h w"], Float[Tensor, "3 h w"]]:
        """Low and high end of what holds the true value with probability `level`: quantiles, decoded.

        They hold the picture too, which is white where photosites are blown: the truth as a sensor would see it.
        """
        low, high = (vst.decode(end, self.offset) / self.gains for end in self.posterior.interval(level))
        return torch.minimum(low, self.picture), torch.maximum(high, self.picture)

    def _spread(self, deviation: Tensor) -> Tensor:
        """A deviation of the networks' domain in linear values: half of what one up and one down span."""
        mean = self.posterior.mean
        up, down = vst.decode(mean + deviation, self.offset), vst.decode(mean - deviation, self.offset)
        return (up - down) / 2 / self.gains


@dataclass(frozen=True)
class Developed:
    """A developed raw: linear camera colours before white balance, 0 = black and 1 = white."""

    raw: Raw
    profile: Profile
    """The noise of the raw, stored in it or estimated."""
    picture: Float[Tensor, "3 h w"]
    noise: Float[Tensor, "3 h w"]
    """The standard deviation of the noise in the raw."""
    doubt: Float[Tensor, "3 h w"]
    """The standard deviation of what is true, given the raw."""
    interval: tuple[Float[Tensor, "3 h w"], Float[Tensor, "3 h w"]] | None = None
    """Low and high end of what holds the true value with the probability that was asked for, if one was."""

    def render(self, *, exposure: float = 0.0, space: str = "srgb") -> Float[Tensor, "3 h w"]:
        """A picture to look at: see `color.render`. It is not turned upright."""
        stops = exposure + self.raw.exposure
        return color.render(self.picture, self.raw.gains, self.raw.matrix, exposure=stops, space=space)


def develop(
    network: Runner,
    raw: Raw,
    *,
    ensemble: bool = False,
    strength: float = 1.0,
    level: float | None = None,
    tile: int | None = None,
    progress: Progress | None = None,
) -> Developed:
    """Develop a raw in memory, 36 bytes a pixel; with a `strength` below 1, a share of the noise stays.

    With a `level`, such as 0.9, error bars are given too: the intervals that hold the true values with that
    probability, in 24 bytes a pixel more.
    """
    arrays.check_develop(network, raw)
    if level is not None:
        check_level(level)
    found = noise_of(raw)
    height, width = raw.size
    picture, noise, doubt = (torch.empty(3, height, width) for _ in range(3))
    ends = [torch.empty(3, height, width) for _ in range(2 if level is not None else 0)]
    balance = Balance(height, width, unclipped(raw, found))
    for part in develop_tiles(network, raw, found, ensemble=ensemble, tile=tile, progress=progress):
        place = (slice(None), part.rows, part.columns)
        picture[place], noise[place], doubt[place] = part.picture, part.noise, part.doubt
        for end, values in zip(ends, part.interval(level) if level is not None else (), strict=True):
            end[place] = values
        balance.add(part.picture, *photosites(raw, part), part.rows.start, part.columns.start)
    for rows in strips(height):
        picture[:, rows] = balance.correct(picture[:, rows], rows.start)
    if strength < 1:
        rest = raw.mosaic - cfa.mosaic(picture, raw.pattern)
        grain = (1 - check_strength(strength)) * cfa.interpolate(rest[None], raw.pattern)[0]
        picture += fade_grain(grain, picture, found, strength)
    return Developed(raw, found, picture, noise, doubt, (ends[0], ends[1]) if ends else None)


def develop_tiles(
    network: Runner,
    raw: Raw,
    found: Profile,
    *,
    ensemble: bool = False,
    tile: int | None = None,
    progress: Progress | None = None,
) -> Iterator[Part]:
    """The same piece by piece, with the noise profile given: strips of tiles."""
    offset = curve_offset(found)
    gains = torch.tensor(raw.gains).repeat(raw.size[1], 1)  # laid out as maps are
    gains = gains.t()[:, None]
    encoded = enter(raw, found)
    tiles = restore_tiles(network, encoded, raw.pattern, ensemble=ensemble, tile=tile, progress=progress)
    for rows, columns, posterior in tiles:
        for strip in strips(rows.stop - rows.start, TILE_STRIP):
            place = slice(rows.start + strip.start, rows.start + strip.stop)
            piece = posterior.map(itemgetter((slice(None), strip)))
            yield _part(raw, place, columns, piece, offset, gains[..., columns])


def _part(
    raw: Raw, rows: slice, columns: slice, posterior: NormalInverseGamma, offset: Tensor, gains: Tensor
) -> Part:
    """A piece of the picture: out of the networks' domain, and white where nothing but blown photosites are."""
    linear = vst.decode_mean(posterior.mean, posterior.mean_variance, offset).div_(gains)
    blown = _blown(raw, rows, columns)
    picture = torch.where(blown, linear.clamp_min(1), linear) if bool(blown.any()) else linear
    return Part(rows, columns, picture, posterior, offset, gains)


def noise_of(raw: Raw) -> Profile:
    """The noise profile that the file stores, or else one estimated from the mosaic and its masked photosites."""
    return raw.profile or noise_profile.estimate(raw.mosaic, raw.pattern, white=raw.saturation, floor=raw.floor)


def curve_offset(found: Profile) -> Tensor:
    """The offset of the bridge's curve for a noise profile."""
    gain = max(found.gain, LEAST_GAIN)
    return vst.offset(torch.tensor(gain), torch.tensor(found.floor))


def enter(raw: Raw, found: Profile) -> Float[Tensor, "1 h w"]:
    """The mosaic of a raw in the networks' domain.

    Blown photosites get the noise of white, cut off at white: that is how the networks know them. Photosites
    without any noise would make them leave the noise around a highlight as it is.
    """
    height, width = raw.size
    offset = curve_offset(found)
    balance = cfa.mosaic(torch.tensor(raw.gains).view(3, 1, 1).expand(3, 2, 2), raw.pattern)
    balance = balance.repeat(1, STRIP // 2, width // 2 + 1)[..., :width]
    generator = torch.Generator().manual_seed(0)
    encoded = torch.empty_like(raw.mosaic)
    for rows in strips(height):
        mosaic = raw.mosaic[:, rows]
        if mosaic.amax() >= raw.saturation * BLOWN:
            blown = mosaic >= raw.saturation * BLOWN
            noise = sqrt(found.gain + found.floor) * torch.randn(int(blown.sum()), generator=generator)
            mosaic = mosaic.masked_scatter(blown, raw.saturation + noise.clamp_max(0))
        encoded[:, rows] = vst.encode(mosaic * balance[:, : mosaic.shape[1]], offset)
    return encoded


def encoded_variance(raw: Raw, found: Profile, mean: Float[Tensor, "3 h w"]) -> Float[Tensor, "3 h w"]:
    """The noise variance in the networks' domain, of a profile, where that domain's picture is `mean`."""
    offset = curve_offset(found)
    gains = torch.tensor(raw.gains).view(3, 1, 1)
    slope = vst.slope(mean, offset)
    return found.variance(vst.decode(mean, offset) / gains) * (gains * slope).square()


def check_strength(strength: float) -> float:
    """The strength itself, if it is from 0 to 1."""
    if not 0 <= strength <= 1:
        raise ValueError(f"the strength is from 0 (all noise stays) to 1 (none does), not {strength:g}")
    return strength


def fade_grain(
    grain: Float[Tensor, "3 h w"], picture: Float[Tensor, "3 h w"], found: Profile, strength: float
) -> Float[Tensor, "3 h w"]:
    """The grain that stays, less of it towards black: what would be below is cut off in files, and shadows would be
    too bright, each colour by its own noise."""
    spread = (1 - strength) * found.variance(picture).sqrt()
    return grain * (picture / (2 * spread).clamp_min(1e-9)).clamp(0, 1)


def unclipped(raw: Raw, found: Profile) -> float:
    """Below this level, noise does not reach the one at which the sensor clips."""
    return max(0.1, raw.saturation - 3 * sqrt(found.gain + found.floor))


def photosites(raw: Raw, part: Part) -> tuple[Tensor, str]:
    """The photosites of a part, and their pattern."""
    pattern = cfa.shift(raw.pattern, part.rows.start, part.columns.start)
    return raw.mosaic[:, part.rows, part.columns], pattern


def _blown(raw: Raw, rows: slice, columns: slice) -> Tensor:
    """Which colours of which pixels have nothing but blown photosites to go by."""
    top, left = max(0, rows.start - 2), max(0, columns.start - 2)
    window = raw.mosaic[:, top : rows.stop + 2, left : columns.stop + 2]
    if window.amax() < raw.saturation * BLOWN:  # sooner than comparing all of them
        return torch.zeros((), dtype=torch.bool)
    blown = (window >= raw.saturation * BLOWN).float()
    around = cfa.interpolate(blown[None], cfa.shift(raw.pattern, top, left))[0] > 0.999
    inside = (slice(rows.start - top, rows.stop - top), slice(columns.start - left, columns.stop - left))
    return around[:, inside[0], inside[1]]


def strips(height: int, rows: int = STRIP) -> Iterator[slice]:
    """Strips of a picture, so that what is done to all of it in float needs little memory."""
    for start in range(0, height, rows):
        yield slice(start, min(start + rows, height))
