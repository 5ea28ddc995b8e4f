"""The develop loop: a mosaic through a network onto a canvas, for raws in memory, raw files and mosaic files."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from debayes.darkroom import rendering
from debayes.darkroom.brightness import Balance
from debayes.darkroom.canvas import Canvas, FloatCanvas, counts_of
from debayes.darkroom.domain import MARGIN, DevelopedTile, RawSource, Source, noise_of, strips
from debayes.engine import Engine, prepare
from debayes.formats.raw import Raw
from debayes.imaging import cfa, color
from debayes.imaging.noise_profile import Profile
from debayes.network.network import Network
from debayes.posterior.nig import check_level
from debayes.restoration import adaptation, arrays
from debayes.restoration.runner import Runner
from debayes.restoration.tiling import restore_tiles
from debayes.system import files
from debayes.system.errors import DebayesError

# A tile is decoded so many rows at a time: more do not fit in a processor's cache, fewer cost many small steps.
TILE_STRIP = 512

Progress = Callable[[float], None]


@dataclass(frozen=True)
class Developed:
    """A developed raw: linear camera colours before white balance, 0 = black and 1 = white.

    Examples:
        >>> import debayes
        >>> developed = debayes.develop(debayes.load("raw-s"), debayes.read("photo.dng"))
        >>> developed.picture.shape, developed.noise.shape, developed.doubt.shape
        (torch.Size([3, 48, 64]), torch.Size([3, 48, 64]), torch.Size([3, 48, 64]))
        >>> shown = developed.render(exposure=0.5, space="p3")  # in [0, 1]
    """

    raw: Raw
    profile: Profile
    """The noise of the raw, stored in it or estimated."""
    picture: Float[Tensor, "3 h w"]
    noise: Float[Tensor, "3 h w"]
    """The standard deviation of the noise in the raw."""
    doubt: Float[Tensor, "3 h w"]
    """The standard deviation of the true value, given the raw."""
    interval: tuple[Float[Tensor, "3 h w"], Float[Tensor, "3 h w"]] | None = None
    """Low and high end of the interval that holds the true value with the probability asked for, if one was."""
    strength: float = 1.0
    """The share of the noise that was removed."""

    def render(self, *, exposure: float = 0.0, space: str = "srgb") -> Float[Tensor, "3 h w"]:
        """A picture to look at: see `color.render`. It is not turned upright."""
        stops = exposure + self.raw.exposure
        return color.render(self.picture, self.raw.gains, self.raw.matrix, exposure=stops, space=space)

    def save(
        self, path: str | PathLike[str], *, exposure: float = 0.0, space: str = "srgb", quality: int = 95
    ) -> None:
        """Write the file that the ending says: .dng is linear; .tiff, .png and .jpg are rendered and upright.

        `exposure` is in stops, `space` is "srgb" or "p3", `quality` is that of a JPEG.
        """
        target = Path(path)
        rendering.check_ending(target)
        files.check_target(target)
        assembled = rendering.assemble(
            target.suffix,
            counts_of(self.picture, 0).numpy(),
            self.raw,
            rendering.remaining_noise(self.profile, self.strength),
            exposure=exposure,
            space=space,
            quality=quality,
        )
        with files.replace(target) as temporary:
            assembled.store(temporary)


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

    Examples:
        >>> import debayes
        >>> developed = debayes.develop(debayes.load("raw-s"), debayes.read("photo.dng"), level=0.9)
        >>> low, high = developed.interval
        >>> bool((low <= high).all())
        True
    """
    arrays.check_develop(network, raw)
    if level is not None:
        check_level(level)
    profile = noise_of(raw)
    canvas = FloatCanvas(*raw.size, level)
    source = RawSource(raw, profile)
    develop_onto(canvas, network, source, ensemble=ensemble, strength=strength, tile=tile, progress=progress)
    return Developed(raw, profile, canvas.picture, canvas.noise, canvas.doubt, canvas.interval, strength)


def develop_onto(
    canvas: Canvas,
    network: Runner,
    source: Source,
    *,
    ensemble: bool = False,
    adapt: int = 0,
    strength: float = 1.0,
    tile: int | None = None,
    progress: Progress | None = None,
) -> adaptation.Adapted | None:
    """Develop a mosaic onto a canvas; with `adapt` above 0, return what adapting the network to the mosaic did.

    Tiles are written as they are restored. For a raw, further passes over the whole picture then correct the mean
    brightness to that of the mosaic and, with a `strength` below 1, add a share of the noise again.
    """
    check_strength(strength)
    share = 0.5 if adapt else 0.0  # of the progress that adapting takes
    encoded = source.encode()
    adapted = None
    if adapt:
        network, adapted = _adapt(network, source, encoded, adapt, _part_of(progress, 0, share))
    balance = Balance(*source.raw.size, source.unclipped) if isinstance(source, RawSource) else None
    rest = _part_of(progress, share, 1 - share)
    for piece in develop_tiles(network, source, encoded, ensemble=ensemble, tile=tile, progress=rest):
        canvas.write(piece)
        if balance is not None:
            top, left = piece.rows.start, piece.columns.start
            mosaic = source.mosaic[:, piece.rows, piece.columns]
            balance.add(piece.picture, mosaic, cfa.shift(source.pattern, top, left), top, left)
    if balance is not None and isinstance(source, RawSource):
        del encoded
        _finish(canvas, source, balance, strength)
    return adapted


def develop_tiles(
    network: Runner,
    source: Source,
    encoded: Float[Tensor, "1 h w"] | None = None,
    *,
    ensemble: bool = False,
    tile: int | None = None,
    progress: Progress | None = None,
) -> Iterator[DevelopedTile]:
    """The first pass alone: pieces of the picture; `encoded` is `source.encode()`, if it is there already."""
    encoded = source.encode() if encoded is None else encoded
    tiles = restore_tiles(network, encoded, source.pattern, ensemble=ensemble, tile=tile, progress=progress)
    for rows, columns, posterior in tiles:
        for strip in strips(rows.stop - rows.start, TILE_STRIP):
            place = slice(rows.start + strip.start, rows.start + strip.stop)
            yield source.decode(place, columns, posterior.map(itemgetter((slice(None), strip))))


def check_strength(strength: float) -> float:
    """The strength itself, if it is from 0 to 1."""
    if not 0 <= strength <= 1:
        raise DebayesError(f"a strength is from 0 (all noise stays) to 1 (none stays), not {strength:g}")
    return strength


def describe_adapted(adapted: adaptation.Adapted | None) -> dict[str, Any]:
    """What an answer says of adapting, if it was asked for."""
    return {} if adapted is None else {"adapted": {"steps": adapted.steps, "reason": adapted.reason}}


def _adapt(
    network: Runner, source: Source, encoded: Tensor, steps: int, progress: Progress | None
) -> tuple[Runner, adaptation.Adapted]:
    """A copy of the network adapted to the mosaic, in the same engine, and what was done."""
    plain = network.network if isinstance(network, Engine) else network
    if not isinstance(plain, Network):
        raise DebayesError(f"a Network or an Engine can be adapted to a mosaic, not a {type(network).__name__}")
    noise = source.noise_variance if isinstance(source, RawSource) else None
    adapted = adaptation.adapt(plain, encoded, source.pattern, steps=steps, noise=noise, progress=progress)
    if isinstance(network, Engine):
        return prepare(adapted.network, network.name, threads=network.threads), adapted
    return adapted.network, adapted


def _finish(canvas: Canvas, source: RawSource, balance: Balance, strength: float) -> None:
    """The passes over the whole picture: the mosaic's brightness; then its noise, or a share of it, as grain."""
    raw = source.raw
    height = raw.size[0]
    removed = torch.empty_like(raw.mosaic) if strength < 1 else None
    for rows in strips(height):
        picture = balance.correct(canvas.read(rows), rows.start)
        if removed is not None:
            removed[:, rows] = raw.mosaic[:, rows] - cfa.mosaic(picture, cfa.shift(raw.pattern, rows.start, 0))
        canvas.rewrite(rows, picture, final=removed is None)
    if removed is None:
        return
    for rows in strips(height):
        picture = canvas.read(rows)
        grain = (1 - strength) * _interpolate_rows(removed, raw.pattern, rows)
        canvas.rewrite(rows, picture + _fade(grain, picture, source.profile, strength), final=True)


def _interpolate_rows(mosaic: Float[Tensor, "1 h w"], pattern: str, rows: slice) -> Float[Tensor, "3 k w"]:
    """Some rows of an interpolated mosaic."""
    top, end = max(0, rows.start - MARGIN), min(mosaic.shape[1], rows.stop + MARGIN)
    colors = cfa.interpolate(mosaic[None, :, top:end], cfa.shift(pattern, top, 0))[0]
    return colors[:, rows.start - top : rows.stop - top]


def _fade(
    grain: Float[Tensor, "3 h w"], picture: Float[Tensor, "3 h w"], profile: Profile, strength: float
) -> Float[Tensor, "3 h w"]:
    """The grain, reduced where a colour is less than two standard deviations of its grain above black.

    Files cut off values below black, so with full grain the shadows would become too bright.
    """
    spread = (1 - strength) * profile.variance(picture).sqrt()
    return grain * (picture / (2 * spread).clamp_min(1e-9)).clamp(0, 1)


def _part_of(progress: Progress | None, start: float, share: float) -> Progress | None:
    """The callback for one part of the work, which takes `share` of the whole and begins at `start`."""
    return None if progress is None else lambda done: progress(start + share * done)
