"""Developing raw files: one shot into a linear DNG, or a rendered picture, with maps beside it.

What is kept of a picture is what goes into its file, so that memory stays near 20 bytes a pixel beside the tile.
"""

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt16
from torch import Tensor

from debayes.darkroom.brightness import Balance
from debayes.darkroom.counts import read_shot
from debayes.darkroom.loop import (
    Progress,
    check_strength,
    develop_tiles,
    encoded_variance,
    enter,
    fade_grain,
    noise_of,
    photosites,
    strips,
    unclipped,
)
from debayes.engine import Engine, prepare
from debayes.formats import dng, maps, metadata, pictures
from debayes.formats import raw as raws
from debayes.formats.raw import Raw
from debayes.imaging import cfa, color
from debayes.imaging.noise_profile import Profile
from debayes.network import weights
from debayes.network.network import Network
from debayes.restoration import adaptation
from debayes.restoration.tiling import measure
from debayes.system import files
from debayes.system.memory_file import Draft

# What a developed picture can be written as, and its ending.
FORMATS = {"dng": ".dng", "tiff": ".tiff", "png": ".png", "jpeg": ".jpg"}

# The longer side of the preview inside a DNG.
PREVIEW = 1024

# A picture cannot be made brighter or darker by more stops than this.
MOST_STOPS = 10

# The variance of the grain that is left in plain areas, in units of that of the noise. On grey cards 0.017 was
# measured at ISO 400, 0.002 at 3200 and 0.001 at 25600. (Doubt is more: noise may have hidden some texture.)
LEFT = 0.01

# The count of black while a picture is put together: some of it is below.
BLACK = 2048


@dataclass(frozen=True)
class Settings:
    """How raw files are developed."""

    ensemble: bool = False
    """Average over the eight symmetries."""
    adapt: int = 0
    """The most steps of `adaptation.adapt`."""
    strength: float = 1.0
    """The share of the noise that goes."""
    with_maps: bool = False
    """Write noise and doubt beside the picture, as 16-bit TIFF and as pictures to look at."""
    tile: int | None = None
    """The side of a tile."""
    black: float | None = None
    """The raw's count of black, if not what the file says."""
    white: float | None = None
    """The raw's count of white, if not what the file says."""
    pattern: str | None = None
    """The raw's pattern, if not what the file says."""
    exposure: float = 0.0
    """Stops brighter, of a rendered picture."""
    space: str = "srgb"
    """The colours of a rendered picture."""
    quality: int = 95
    """Of a JPEG."""
    keep: bool = False
    """Leave a picture that is there as it is, and write its maps alone."""

    def __post_init__(self) -> None:
        check_strength(self.strength)
        if not abs(self.exposure) <= MOST_STOPS:
            raise ValueError(f"an exposure is at most {MOST_STOPS} stops up or down, not {self.exposure:g}")


@dataclass(frozen=True)
class Negative:
    """A raw that has been read, and where its picture goes."""

    source: Path
    target: Path
    raw: Raw
    profile: Profile
    """Its noise, stored in it or estimated."""


@dataclass(frozen=True)
class Print:
    """A developed picture that waits to be written."""

    negative: Negative
    counts: Any
    """Linear camera colours (h, w, 3), 16 bit."""
    levels: dict[str, Any]
    """Maps by their kind, if they were asked for."""
    left: Profile
    """The noise that is left."""
    adapted: adaptation.Adapted | None


@dataclass(frozen=True)
class Sheet:
    """A picture whose files are written, but for a DNG that is still in memory."""

    target: Path
    draft: Draft | None
    answer: dict[str, Any]
    """What was done."""


def develop_file(
    network: Network | Engine,
    source: Path,
    target: Path,
    settings: Settings = Settings(),  # noqa: B008 - it cannot be changed
    *,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Develop a raw file into a linear DNG, or a rendered TIFF, PNG or JPEG, and say what was done."""
    return store(write(develop(network, read(source, target, settings), settings, progress=progress), settings))


def is_done(target: Path, settings: Settings) -> bool:
    """Whether a picture is there, and its maps if they are asked for. How it was made is not looked at."""
    beside = [path for kind in maps.KINDS for path in maps.places(target, kind)] if settings.with_maps else []
    return all(path.exists() for path in (target, *beside))


def read(source: Path, target: Path, settings: Settings) -> Negative:
    """The first of the four steps of `develop_file`: read a raw, and its noise."""
    files.check_target(target)
    if target.resolve() == source.resolve():
        raise ValueError(f"{target} is the raw itself: write the picture somewhere else")
    raw = read_shot(source, black=settings.black, white=settings.white, pattern=settings.pattern)
    return Negative(source, target, raw, noise_of(raw))


def develop(
    network: Network | Engine, negative: Negative, settings: Settings, *, progress: Progress | None = None
) -> Print:
    """The second step: restore the picture."""
    raw, found, strength = negative.raw, negative.profile, settings.strength
    share = 0.5 if settings.adapt else 0.0  # of the progress that adapting takes
    adapted = None
    if settings.adapt:
        adapted = adaptation.adapt(
            network.network if isinstance(network, Engine) else network,
            enter(raw, found),
            raw.pattern,
            steps=settings.adapt,
            noise=lambda mean: encoded_variance(raw, found, mean),
            progress=_report(progress, 0, share),
        )
        network = (
            prepare(adapted.network, network.name, threads=network.threads)
            if isinstance(network, Engine)
            else adapted.network
        )
    height, width = raw.size
    counts = torch.empty(height, width, 3, dtype=torch.uint16)
    rest = torch.empty(1, height, width) if strength < 1 else None
    kinds = maps.KINDS if settings.with_maps else ()
    levels = {kind: np.empty((height, width, 3), np.float16) for kind in kinds}
    balance = Balance(height, width, unclipped(raw, found))
    parts = develop_tiles(
        network,
        raw,
        found,
        ensemble=settings.ensemble,
        tile=settings.tile,
        progress=_report(progress, share, 1 - share),
    )
    for part in parts:
        place = (part.rows, part.columns)
        counts[place] = _quantise(part.picture, BLACK)
        mosaic, cells = photosites(raw, part)
        balance.add(part.picture, mosaic, cells, part.rows.start, part.columns.start)
        for kind in kinds:
            levels[kind][place] = getattr(part, kind).permute(1, 2, 0).numpy()
    for rows in strips(height):
        picture = balance.correct(_linear(counts[rows], BLACK), rows.start)
        if rest is not None:
            rest[:, rows] = raw.mosaic[:, rows] - cfa.mosaic(picture, cfa.shift(raw.pattern, rows.start, 0))
        counts[rows] = _quantise(picture, 0 if rest is None else BLACK)
    if rest is not None:
        for rows in strips(height):
            picture = _linear(counts[rows], BLACK)
            grain = fade_grain((1 - strength) * _grain(rest, raw.pattern, rows), picture, found, strength)
            counts[rows] = _quantise(picture + grain, 0)
    share_left = (1 - strength) ** 2 + LEFT
    left = Profile(found.gain * share_left, found.floor * share_left)
    return Print(negative, counts.numpy(), levels, left, adapted)


def write(developed: Print, settings: Settings) -> Sheet:
    """The third step: write the files, a DNG to memory."""
    adapted = developed.adapted
    source, target, raw, found = (getattr(developed.negative, f.name) for f in fields(Negative))
    height, width = raw.size
    # The picture last: where it is, all but maps that were not asked for then is done.
    written: list[Path] = []
    draft = None
    about = {"source": source.name, "gain": found.gain, "floor": found.floor}
    for kind, level in developed.levels.items():
        written += maps.write(target, kind, level, about)
    if not (settings.keep and target.exists()):
        draft = _write_picture(developed, settings)
        written.insert(0, target)
    answer = {
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
    return Sheet(target, draft, answer)


def store(sheet: Sheet, *, directly: bool = False) -> dict[str, Any]:
    """The last step: write what is still in memory, past the system's cache if asked for, and say what was done."""
    if sheet.draft is not None:
        with files.replace(sheet.target) as temporary:
            sheet.draft.store(temporary, directly=directly)
    return sheet.answer


def _write_picture(developed: Print, settings: Settings) -> Draft | None:
    """The linear DNG, written only if exiftool has to go over it; or the rendered picture, written."""
    counts = developed.counts
    source, target, raw = developed.negative.source, developed.negative.target, developed.negative.raw
    stops = settings.exposure + raw.exposure
    if target.suffix.lower() == ".dng":
        step = -(-max(raw.size) // PREVIEW)
        small = _preview(counts, raw, stops, step)
        if not metadata.has_more(raw):
            return dng.draft(counts, raw, preview=small, left=developed.left)
        dng.write(target, counts, raw, preview=small, left=developed.left, source=source)
        return None
    bits = pictures.check_bits(target, None)
    shown = _upright(_render(counts, raw, stops, settings.space, bits), raw)
    icc, exif = pictures.color_profile(settings.space), metadata.exif_block(raw)
    pictures.encode(target, shown, icc=icc, exif=exif, quality=settings.quality)
    metadata.copy_by_exiftool(source, target, raw)
    return None


def describe(source: Path, model: str, device: str, engine: str = "auto") -> dict[str, Any]:
    """What a raw file holds, which model would develop it, and about how long that would take on this machine."""
    raw = raws.read(source)
    found = noise_of(raw)
    height, width = raw.size
    network = prepare(weights.load(model, device=device), engine, megapixels=height * width / 1e6)
    side = min(1024, height, width)
    sample = enter(replace(raw, mosaic=raw.mosaic[:, :side, :side].contiguous()), found)
    red, green, blue = raw.gains
    seconds = measure(network, sample, raw.pattern) * height * width / side**2
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
        "engine": network.name,
        "estimated_seconds": round(seconds, 1),
    }


def _report(progress: Progress | None, start: float, part: float) -> Progress | None:
    return None if progress is None else lambda done: progress(start + part * done)


def _quantise(picture: Float[Tensor, "3 h w"], black: int) -> UInt16[Tensor, "h w 3"]:
    """The counts of linear colours, in the order in which a file has them."""
    counts = picture * (dng.WHITE - black)
    return counts.add_(black + 0.5).clamp_(0, dng.WHITE).permute(1, 2, 0).to(torch.uint16)  # which cuts off


def _linear(counts: UInt16[Tensor, "h w 3"], black: int) -> Float[Tensor, "3 h w"]:
    """The linear colours of counts."""
    return counts.float().sub_(black).div_(dng.WHITE - black).permute(2, 0, 1)


def _grain(rest: Float[Tensor, "1 h w"], pattern: str, rows: slice) -> Float[Tensor, "3 k w"]:
    """What was taken out of the mosaic, interpolated, for some rows of the picture."""
    top, end = max(0, rows.start - 2), min(rest.shape[1], rows.stop + 2)
    noise = cfa.interpolate(rest[None, :, top:end], cfa.shift(pattern, top, 0))[0]
    return noise[:, rows.start - top : rows.stop - top]


def _render(counts: Any, raw: Raw, stops: float, space: str, bits: int) -> Any:
    """The picture to look at of linear counts, as the numbers that go to a file."""
    shown = np.empty(counts.shape, np.uint8 if bits == 8 else np.uint16)
    for rows in strips(len(counts)):
        picture = color.render(
            _linear(torch.from_numpy(counts[rows]), 0), raw.gains, raw.matrix, exposure=stops, space=space
        )
        shown[rows] = pictures.quantise(picture.permute(1, 2, 0), bits).numpy()
    return shown


def _preview(counts: Any, raw: Raw, stops: float, step: int) -> Any:
    """A small picture to look at, of linear counts: each pixel the mean of two rows of step x step of them."""
    step = min(step, *counts.shape[:2])
    height, width = (size // step for size in counts.shape[:2])
    taken = counts[: height * step, : width * step].reshape(height, step, width * step, 3)[:, :: -(-step // 2)]
    small = np.empty((height, width, 3), np.uint16)
    for rows in strips(height):
        part = torch.from_numpy(taken[rows]).float().mean(1)  # of two rows, or of one that is all there is
        small[rows] = part.view(-1, width, step, 3).mean(2).numpy()
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
