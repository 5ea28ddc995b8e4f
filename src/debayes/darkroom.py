"""Developing camera raws: one shot through the bridge, the network and back, into a file.

The network works tile by tile, and what is kept of the picture is what goes into the file, so that memory stays
near 20 bytes a pixel beside the tile.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import inf, sqrt
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from debayes import adaptation, bridge, cfa, color, dng, files, image, maps, metadata, profile, weights
from debayes import raw as raws
from debayes.balance import Balance
from debayes.model import Network
from debayes.nig import NormalInverseGamma
from debayes.profile import Profile
from debayes.raw import Raw
from debayes.restoration import restore_tiles

# What a developed picture can be written as, and its ending.
FORMATS = {"dng": ".dng", "tiff": ".tiff", "png": ".png", "jpeg": ".jpg"}

# The longer side of the preview inside a DNG.
PREVIEW = 1024

# A picture cannot be made brighter or darker by more stops than this.
MOST_STOPS = 10

# Rows that are worked on at a time where a whole picture is; an even number.
STRIP = 256

# Photosites from this share of saturation on are blown.
BLOWN = 0.999

# The share of the counts that is for values below black while a picture is put together.
ROOM = 1 / 32

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
    noise: Float[Tensor, "3 h w"]
    """The standard deviation of the noise in the raw."""
    doubt: Float[Tensor, "3 h w"]
    """The standard deviation of what is true, given the raw."""


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

    def render(self, *, exposure: float = 0.0, space: str = "srgb") -> Float[Tensor, "3 h w"]:
        """A picture to look at: see `color.render`. It is not turned upright."""
        stops = exposure + self.raw.exposure
        return color.render(self.picture, self.raw.gains, self.raw.matrix, exposure=stops, space=space)


def develop(
    network: Network,
    raw: Raw,
    *,
    ensemble: bool = False,
    strength: float = 1.0,
    tile: int | None = None,
    progress: Progress | None = None,
) -> Developed:
    """Develop a raw in memory, 36 bytes a pixel; with a `strength` below 1, a share of the noise stays."""
    found = noise_of(raw)
    height, width = raw.size
    picture, noise, doubt = (torch.empty(3, height, width) for _ in range(3))
    balance = Balance(height, width, _unclipped(raw, found))
    for part in develop_tiles(network, raw, found, ensemble=ensemble, tile=tile, progress=progress):
        place = (slice(None), part.rows, part.columns)
        picture[place], noise[place], doubt[place] = part.picture, part.noise, part.doubt
        balance.add(part.picture, *_mosaic(raw, part), part.rows.start, part.columns.start)
    for rows in _strips(height):
        picture[:, rows] = balance.correct(picture[:, rows], rows.start)
    if strength < 1:
        rest = raw.mosaic - cfa.mosaic(picture, raw.pattern)
        picture += (1 - check_strength(strength)) * cfa.interpolate(rest[None], raw.pattern)[0]
    return Developed(raw, found, picture, noise, doubt)


def develop_tiles(
    network: Network,
    raw: Raw,
    found: Profile,
    *,
    ensemble: bool = False,
    tile: int | None = None,
    progress: Progress | None = None,
) -> Iterator[Part]:
    """The same piece by piece, in reading order, with the noise profile given."""
    offset = curve_offset(found)
    gains = torch.tensor(raw.gains).view(3, 1, 1)
    encoded = enter(raw, found)
    tiles = restore_tiles(network, encoded, raw.pattern, ensemble=ensemble, tile=tile, progress=progress)
    for rows, columns, posterior in tiles:
        linear = bridge.decode_mean(posterior.mean, posterior.mean_variance, offset) / gains
        blown = _blown(raw, rows, columns)
        yield Part(
            rows,
            columns,
            torch.where(blown, linear.clamp_min(1), linear),
            _spread(posterior, posterior.noise_variance.sqrt(), offset) / gains,
            _spread(posterior, posterior.mean_variance.sqrt(), offset) / gains,
        )


def noise_of(raw: Raw) -> Profile:
    """The noise profile that the file stores, or else one estimated from the mosaic."""
    return raw.profile or profile.estimate(raw.mosaic, white=raw.saturation)


def curve_offset(found: Profile) -> Tensor:
    """The offset of the bridge's curve for a noise profile."""
    gain = max(found.gain, LEAST_GAIN)
    return bridge.offset(torch.tensor(gain), torch.tensor(found.floor))


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
    for rows in _strips(height):
        mosaic = raw.mosaic[:, rows]
        blown = mosaic >= raw.saturation * BLOWN
        if bool(blown.any()):
            noise = sqrt(found.gain + found.floor) * torch.randn(int(blown.sum()), generator=generator)
            mosaic = mosaic.masked_scatter(blown, raw.saturation + noise.clamp_max(0))
        encoded[:, rows] = bridge.encode(mosaic * balance[:, : mosaic.shape[1]], offset)
    return encoded


def encoded_variance(raw: Raw, found: Profile, mean: Float[Tensor, "3 h w"]) -> Float[Tensor, "3 h w"]:
    """The noise variance in the networks' domain, of a profile, where that domain's picture is `mean`."""
    offset = curve_offset(found)
    gains = torch.tensor(raw.gains).view(3, 1, 1)
    slope = bridge.slope(mean, offset)
    return found.variance(bridge.decode(mean, offset) / gains) * (gains * slope).square()


def check_strength(strength: float) -> float:
    """The strength itself, if it is from 0 to 1."""
    if not 0 <= strength <= 1:
        raise ValueError(f"the strength is from 0 (all noise stays) to 1 (none does), not {strength:g}")
    return strength


def _spread(posterior: NormalInverseGamma, deviation: Tensor, offset: Tensor) -> Tensor:
    """A standard deviation of the networks' domain in linear values: half of what one up and one down span."""
    up, down = bridge.decode(posterior.mean + deviation, offset), bridge.decode(posterior.mean - deviation, offset)
    return (up - down) / 2


def _blown(raw: Raw, rows: slice, columns: slice) -> Tensor:
    """Which colours of which pixels have nothing but blown photosites to go by."""
    top, left = max(0, rows.start - 2), max(0, columns.start - 2)
    window = raw.mosaic[:, top : rows.stop + 2, left : columns.stop + 2]
    blown = (window >= raw.saturation * BLOWN).float()
    if not bool(blown.any()):
        return torch.zeros((), dtype=torch.bool)
    around = cfa.interpolate(blown[None], cfa.shift(raw.pattern, top, left))[0] > 0.999
    inside = (slice(rows.start - top, rows.stop - top), slice(columns.start - left, columns.stop - left))
    return around[:, inside[0], inside[1]]


def develop_file(
    network: Network,
    source: Path,
    target: Path,
    *,
    ensemble: bool = False,
    adapt: int = 0,
    strength: float = 1.0,
    with_maps: bool = False,
    tile: int | None = None,
    black: float | None = None,
    white: float | None = None,
    pattern: str | None = None,
    exposure: float = 0.0,
    space: str = "srgb",
    quality: int = 95,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Develop a raw file into a linear DNG, or a rendered TIFF, PNG or JPEG, and say what was done.

    With `with_maps`, noise and doubt are written beside it, as 16-bit TIFF and as pictures to look at. `exposure`
    (in stops) and `space` are those of `color.render`, `adapt` is the most steps of `adaptation.adapt`.
    """
    check_strength(strength)
    if not abs(exposure) <= MOST_STOPS:
        raise ValueError(f"an exposure is at most {MOST_STOPS} stops up or down, not {exposure:g}")
    files.check_target(target)
    if target.resolve() == source.resolve():
        raise ValueError(f"{target} is the raw itself: write the picture somewhere else")
    raw = raws.read(source, black=black, white=white, pattern=pattern)
    found = noise_of(raw)
    share = 0.5 if adapt else 0.0  # of the progress that adapting takes
    adapted = None
    if adapt:
        adapted = adaptation.adapt(
            network,
            enter(raw, found),
            raw.pattern,
            steps=adapt,
            noise=lambda mean: encoded_variance(raw, found, mean),
            progress=_report(progress, 0, share),
        )
        network = adapted.network
    height, width = raw.size
    linear = target.suffix.lower() == ".dng"
    counts = np.empty((height, width, 3), np.uint16)
    rest = torch.empty(1, height, width) if strength < 1 else None
    kinds = ("noise", "doubt") if with_maps else ()
    levels = {kind: np.empty((height, width, 3), np.float16) for kind in kinds}
    certainty = 0.0
    balance = Balance(height, width, _unclipped(raw, found))
    parts = develop_tiles(
        network, raw, found, ensemble=ensemble, tile=tile, progress=_report(progress, share, 1 - share)
    )
    for part in parts:
        place = (part.rows, part.columns)
        counts[place] = _quantise(_lift(part.picture))
        mosaic, cells = _mosaic(raw, part)
        balance.add(part.picture, mosaic, cells, part.rows.start, part.columns.start)
        if rest is not None:
            rest[:, part.rows, part.columns] = mosaic - cfa.mosaic(part.picture, cells)
        for kind in kinds:
            levels[kind][place] = getattr(part, kind).permute(1, 2, 0).numpy()
        certainty += float((part.doubt / part.noise.clamp_min(1e-12)).square().sum())
    for rows in _strips(height):
        picture = balance.correct(_settle(_linear(counts[rows])), rows.start)
        if rest is not None:
            picture += (1 - strength) * _grain(rest, raw.pattern, rows)
        counts[rows] = _quantise(picture)
    share_left = (1 - strength) ** 2 + certainty / counts.size
    left = Profile(found.gain * share_left, found.floor * share_left)
    stops = exposure + raw.exposure
    if linear:
        step = -(-max(height, width) // PREVIEW)
        small = _preview(counts, raw, stops, step)
        dng.write(target, counts, raw, preview=small, left=left, source=source)
    else:
        bits = image.check_bits(target, None)
        shown = _upright(_render(counts, raw, stops, space, bits), raw)
        icc, exif = image.color_profile(space), metadata.exif_block(raw)
        image.encode(target, shown, icc=icc, exif=exif, quality=quality)
        metadata.copy_by_exiftool(source, target)
    written = [target]
    about = {"source": source.name, "gain": found.gain, "floor": found.floor}
    for kind in kinds:
        written += maps.write(target.parent, target.stem, kind, levels[kind], about)
    return {
        "source": str(source),
        "written": [str(path) for path in written],
        "width": width,
        "height": height,
        "pattern": raw.pattern,
        "camera": raw.camera,
        "profile": {"gain": found.gain, "floor": found.floor, "stored": raw.profile is not None},
        "assumed": list(raw.assumed),
        **({} if adapted is None else {"adapted": {"steps": adapted.steps, "reason": adapted.reason}}),
    }


def describe(source: Path, model: str, device: str) -> dict[str, Any]:
    """What a raw file holds, which model would develop it, and about how long that would take on this machine."""
    raw = raws.read(source)
    found = noise_of(raw)
    network = weights.load(model, device=device)
    height, width = raw.size
    side = min(512, height, width)
    sample = enter(replace(raw, mosaic=raw.mosaic[:, :side, :side].contiguous()), found)
    best = inf
    for _ in range(2):  # the first run also warms up
        start = monotonic()
        for _ in restore_tiles(network, sample, raw.pattern):
            pass
        best = min(best, monotonic() - start)
    red, green, blue = raw.gains
    seconds = best * height * width / side**2
    return {
        "camera": raw.camera or "unknown",
        "lens": raw.lens or "unknown",
        "shot": {
            "iso": raw.iso,
            "seconds": raw.seconds,
            "aperture": raw.aperture,
            "focal_length": raw.focal_length,
            "date": raw.date or None,
        },
        "size": f"{width}x{height}",
        "megapixels": round(height * width / 1e6, 1),
        "pattern": raw.pattern,
        "levels": {**raw.levels, "blown from": round(raw.saturation, 4)},
        "white_balance": {"red": round(red, 4), "green": round(green, 4), "blue": round(blue, 4)},
        "orientation": raw.orientation,
        "noise": {
            "gain": float(f"{found.gain:.3g}"),
            "floor": float(f"{found.floor:.3g}"),
            "source": "stored in the file" if raw.profile else "estimated from the mosaic",
        },
        "assumed": "; ".join(raw.assumed),
        "model": model,
        "device": device,
        "estimated_seconds": round(seconds, 1),
    }


def _report(progress: Progress | None, start: float, part: float) -> Progress | None:
    return None if progress is None else lambda done: progress(start + part * done)


def _unclipped(raw: Raw, found: Profile) -> float:
    """Below this level, noise does not reach the one at which the sensor clips."""
    return max(0.1, raw.saturation - 3 * sqrt(found.gain + found.floor))


def _mosaic(raw: Raw, part: Part) -> tuple[Tensor, str]:
    """The photosites of a part, and their pattern."""
    pattern = cfa.shift(raw.pattern, part.rows.start, part.columns.start)
    return raw.mosaic[:, part.rows, part.columns], pattern


def _quantise(picture: Float[Tensor, "3 h w"]) -> Any:
    return image.quantise(picture.permute(1, 2, 0), 16).numpy()


def _strips(height: int) -> Iterator[slice]:
    """Strips of a picture, so that what is done to all of it in float needs little memory."""
    for start in range(0, height, STRIP):
        yield slice(start, min(start + STRIP, height))


def _linear(counts: Any) -> Float[Tensor, "3 h w"]:
    """The linear colours of counts."""
    return torch.from_numpy(counts.astype(np.float32)).permute(2, 0, 1) / dng.WHITE


def _lift(picture: Float[Tensor, "3 h w"]) -> Float[Tensor, "3 h w"]:
    """Linear colours with room below black, so that counts can hold them until nothing is added any more."""
    return picture * (1 - ROOM) + ROOM


def _settle(lifted: Float[Tensor, "3 h w"]) -> Float[Tensor, "3 h w"]:
    """The inverse of `_lift`."""
    return (lifted - ROOM) / (1 - ROOM)


def _grain(rest: Float[Tensor, "1 h w"], pattern: str, rows: slice) -> Float[Tensor, "3 k w"]:
    """What was taken out of the mosaic, interpolated, for some rows of the picture."""
    top, end = max(0, rows.start - 2), min(rest.shape[1], rows.stop + 2)
    noise = cfa.interpolate(rest[None, :, top:end], cfa.shift(pattern, top, 0))[0]
    return noise[:, rows.start - top : rows.stop - top]


def _render(counts: Any, raw: Raw, stops: float, space: str, bits: int) -> Any:
    """The picture to look at of linear counts, as the numbers that go to a file."""
    shown = np.empty(counts.shape, np.uint8 if bits == 8 else np.uint16)
    for rows in _strips(len(counts)):
        picture = color.render(_linear(counts[rows]), raw.gains, raw.matrix, exposure=stops, space=space)
        shown[rows] = image.quantise(picture.permute(1, 2, 0), bits).numpy()
    return shown


def _preview(counts: Any, raw: Raw, stops: float, step: int) -> Any:
    """A small picture to look at, of linear counts averaged over step x step pixels."""
    height, width = (max(1, size // step) for size in counts.shape[:2])
    step = min(step, *counts.shape[:2])
    small = np.empty((height, width, 3), np.uint16)
    for row in range(height):
        part = counts[row * step : (row + 1) * step, : width * step].reshape(-1, width, step, 3)
        small[row] = part.mean((0, 2), dtype=np.float32)
    return _render(small, raw, stops, "srgb", 8)


def _upright(shown: Any, raw: Raw) -> Any:
    """A picture cut as its maker wants it and turned as EXIF's number says."""
    if raw.crop is not None:
        top, left, height, width = raw.crop
        shown = shown[top : top + height, left : left + width]
    if raw.orientation >= 5:
        shown = shown.transpose(1, 0, 2)
    flips = {2: (1,), 3: (0, 1), 4: (0,), 6: (1,), 7: (0, 1), 8: (0,)}.get(raw.orientation, ())
    return np.flip(shown, flips) if flips else shown
