"""Developing one raw file in five steps: read, estimate, restore, encode, save.

The result is a linear DNG or a rendered TIFF, PNG or JPEG, with maps beside it if they are asked for. While a
picture is developed it is kept in the precision of its file: about 20 bytes a pixel beside the tile.
"""

from collections.abc import Generator
from dataclasses import dataclass, replace
from math import log2
from pathlib import Path
from typing import Any

import torch
from jaxtyping import UInt16
from numpy import ndarray
from numpy.typing import NDArray

from debayes.darkroom import loop, rendering
from debayes.darkroom.canvas import CountCanvas
from debayes.darkroom.counts import read_shot
from debayes.darkroom.domain import RawSource, noise_of
from debayes.darkroom.loop import Progress, check_strength
from debayes.engine import Engine, selection
from debayes.formats import dng, maps, metadata, picture_formats, pictures
from debayes.formats import icc as icc_profiles
from debayes.formats import raw as raws
from debayes.formats.raw import Raw
from debayes.imaging import cfa, color
from debayes.imaging.noise_profile import Profile
from debayes.network import weights
from debayes.network.network import Network
from debayes.restoration import adaptation
from debayes.system import files
from debayes.system.errors import DebayesError
from debayes.system.log import log
from debayes.system.memory_file import MemoryFile

# What a developed picture can be rendered to, and the endings of each format, the usual one first.
RENDERED = {name: each.endings for name, each in picture_formats.FORMATS.items() if name != "npy"}

# What a developed picture can be written as: those, or a linear DNG.
FORMATS = {"dng": (".dng",), **RENDERED}
ENDINGS = tuple(ending for endings in FORMATS.values() for ending in endings)

# The largest exposure correction, in stops up or down.
MOST_STOPS = 10

# The variance of the grain that remains in plain areas, in units of that of the noise. On grey cards 0.017 was
# measured at ISO 400, 0.002 at 3200 and 0.001 at 25600. (Doubt is more: noise may have hidden some texture.)
REMAINING = 0.01


@dataclass(frozen=True)
class Settings:
    """How raw files are developed."""

    ensemble: bool = False
    """Average over the eight symmetries."""
    adapt: int = 0
    """The most steps of `adaptation.adapt`."""
    strength: float = 1.0
    """The share of the noise that is removed."""
    with_maps: bool = False
    """Write noise and doubt beside the picture, as 16-bit TIFF and as plots."""
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
    """The colour space of a rendered picture."""
    quality: int = 95
    """The quality of a JPEG, from 1 to 99."""
    keep: bool = False
    """Do not write a picture that exists; its maps are written alone."""

    def __post_init__(self) -> None:
        check_strength(self.strength)
        if not abs(self.exposure) <= MOST_STOPS:
            raise DebayesError(f"an exposure is at most {MOST_STOPS} stops up or down, not {self.exposure:g}")
        if self.space not in color.SPACES:
            raise DebayesError(f"the colour space is one of {', '.join(color.SPACES)}, not {self.space!r}")
        if not 1 <= self.quality <= 99:
            raise DebayesError(f"the quality of a JPEG is from 1 to 99, not {self.quality}")
        if self.adapt < 0:
            raise DebayesError(f"adapting takes 0 or more steps, not {self.adapt}")
        if self.tile is not None and self.tile < 1:
            raise DebayesError(f"the side of a tile is 1 or more photosites, not {self.tile}")
        if self.pattern is not None:
            cfa.check_pattern(self.pattern)


@dataclass(frozen=True)
class LoadedRaw:
    """A raw that has been read, and where its picture goes."""

    source: Path
    target: Path
    raw: Raw


@dataclass(frozen=True)
class DevelopedFile:
    """A developed picture that is not encoded yet."""

    loaded: LoadedRaw
    profile: Profile
    """The noise of the raw."""
    counts: UInt16[ndarray, "h w 3"]
    """Linear camera colours before white balance."""
    maps: dict[str, NDArray[Any]]
    """Maps by their kind, if they were asked for."""
    remaining: Profile
    """The noise of the picture."""
    adapted: adaptation.Adapted | None


@dataclass(frozen=True)
class EncodedFile:
    """A developed picture and its maps as files in memory."""

    files: tuple[tuple[Path, MemoryFile], ...]
    """Each with its path. The picture is the last, so that a picture that exists always has its maps."""
    source: Path
    header: Raw | None
    """The raw without its photosites, if exiftool has to copy metadata from the source."""
    answer: dict[str, Any]
    """What was done."""


def develop_file(
    network: Network | Engine,
    source: str | Path,
    target: str | Path,
    settings: Settings = Settings(),  # noqa: B008 - it cannot be changed
    *,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Develop a raw file into a linear DNG, or a rendered TIFF, PNG or JPEG; what was done comes back."""
    steps = process(network, Path(source), Path(target), settings, progress=progress)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            answer: dict[str, Any] = end.value
            return answer


def process(
    network: Network | Engine,
    source: Path,
    target: Path,
    settings: Settings,
    *,
    direct: bool = False,
    progress: Progress | None = None,
) -> Generator[None, None, dict[str, Any]]:
    """The five steps of one file; what was done is returned.

    It is a generator that stops three times: after estimating, after restoring and after encoding. The caller may
    run each part in another thread, while other files are in other parts. `direct` is passed to `save`.
    """
    loaded = read(source, target, settings)
    profile = estimate(loaded)
    yield
    developed = restore(network, loaded, profile, settings, progress=progress)
    del loaded
    yield
    encoded = encode(developed, settings)
    del developed
    yield
    return save(encoded, direct=direct)


def is_done(target: Path, settings: Settings) -> bool:
    """Whether a picture exists, and its maps if they are asked for, however they were made."""
    beside = [path for kind in maps.KINDS for path in maps.places(target, kind)] if settings.with_maps else []
    return all(path.exists() for path in (target, *beside))


def check_ending(target: Path) -> None:
    """Raise if a developed picture cannot be written under this name."""
    if target.suffix.lower() not in ENDINGS:
        ending = target.suffix or "a name without an ending"
        raise DebayesError(f"{target}: developed pictures are written as {', '.join(ENDINGS)}, not as {ending}")


def read(source: Path, target: Path, settings: Settings) -> LoadedRaw:
    """The first step: check that the picture can be written, and read the raw."""
    check_ending(target)
    files.check_target(target)
    if target.resolve() == source.resolve():
        raise DebayesError(f"{target} is the raw itself: write the picture somewhere else")
    raw = read_shot(source, black=settings.black, white=settings.white, pattern=settings.pattern)
    height, width = raw.size
    log.info(
        "%s: %s, %dx%d %s, levels %s, white balance %.3g %.3g %.3g, baseline exposure %+.2g stops",
        *(source, raw.camera or "unknown camera", width, height, raw.pattern, raw.levels, *raw.gains, raw.exposure),
    )
    light = _brightness(raw)
    log.info(
        "%s: mean %.2g %% of white; the brightest hundredth of the photosites starts %.1f stops below white",
        *(source, 100 * light["mean"], light["stops_below_white"]),
    )
    return LoadedRaw(source, target, raw)


def estimate(loaded: LoadedRaw) -> Profile:
    """The second step: the noise of the raw, stored in the file or else estimated."""
    profile = noise_of(loaded.raw)
    origin = "stored in the file" if loaded.raw.profile else "estimated from the mosaic"
    log.info("%s: noise profile %s: gain %.3g, floor %.3g", loaded.source, origin, profile.gain, profile.floor)
    return profile


def restore(
    network: Network | Engine,
    loaded: LoadedRaw,
    profile: Profile,
    settings: Settings,
    *,
    progress: Progress | None = None,
) -> DevelopedFile:
    """The third step: restore the picture as linear counts."""
    canvas = CountCanvas(*loaded.raw.size, with_maps=settings.with_maps)
    adapted = loop.develop_onto(
        canvas,
        network,
        RawSource(loaded.raw, profile),
        ensemble=settings.ensemble,
        adapt=settings.adapt,
        strength=settings.strength,
        tile=settings.tile,
        progress=progress,
    )
    share = (1 - settings.strength) ** 2 + REMAINING
    remaining = Profile(profile.gain * share, profile.floor * share)
    return DevelopedFile(loaded, profile, canvas.counts.numpy(), canvas.maps, remaining, adapted)


def encode(developed: DevelopedFile, settings: Settings) -> EncodedFile:
    """The fourth step: the picture and its maps as files in memory."""
    loaded, profile = developed.loaded, developed.profile
    raw, target = loaded.raw, loaded.target
    about = {"source": loaded.source.name, "gain": profile.gain, "floor": profile.floor}
    encoded: list[tuple[Path, MemoryFile]] = []
    for kind, values in developed.maps.items():
        map_files = maps.encode(kind, values, about, unit="1 = white, linear")
        encoded += zip(maps.places(target, kind), map_files, strict=True)
    written = [path for path, _ in encoded]
    if settings.keep and target.exists():
        log.info("%s exists and is kept", target)
    else:
        encoded.append((target, _encode_picture(developed, settings)))
        written.insert(0, target)
    height, width = raw.size
    answer = {
        "source": str(loaded.source),
        "written": [str(path) for path in written],
        "width": width,
        "height": height,
        "pattern": raw.pattern,
        "camera": raw.camera,
        "profile": {"gain": profile.gain, "floor": profile.floor, "stored": raw.profile is not None},
        "assumed": list(raw.assumed),
        **loop.describe_adapted(developed.adapted),
    }
    header = replace(raw, mosaic=torch.empty(1, 0, 0)) if target in written and metadata.has_more(raw) else None
    return EncodedFile(tuple(encoded), loaded.source, header, answer)


def save(encoded: EncodedFile, *, direct: bool = False) -> dict[str, Any]:
    """The last step: write the files, past the system's cache if `direct`, and say what was done."""
    for i, (path, file) in enumerate(encoded.files):
        with files.replace(path) as temporary:
            file.store(temporary, directly=direct)
            if encoded.header is not None and i == len(encoded.files) - 1:
                metadata.copy_by_exiftool(encoded.source, temporary, encoded.header)
    return encoded.answer


def _encode_picture(developed: DevelopedFile, settings: Settings) -> MemoryFile:
    """The linear DNG, or the rendered picture with the EXIF data of its raw."""
    counts, raw, target = developed.counts, developed.loaded.raw, developed.loaded.target
    stops = settings.exposure + raw.exposure
    if target.suffix.lower() == ".dng":
        return dng.draft(counts, raw, preview=rendering.preview(counts, raw, stops=stops), left=developed.remaining)
    bits = pictures.check_bits(target, None)
    log.info(
        "%s: rendered in %s with %+.2g stops: %+.2g asked for, %+.2g baseline exposure of the raw",
        *(target, settings.space, stops, settings.exposure, raw.exposure),
    )
    shown = rendering.upright(rendering.render(counts, raw, stops=stops, space=settings.space, bits=bits), raw)
    icc, exif = icc_profiles.color_profile(settings.space), metadata.exif_block(raw)
    return pictures.assemble(target.suffix, shown, icc=icc, exif=exif, quality=settings.quality)


def _brightness(raw: Raw) -> dict[str, float]:
    """How bright a raw is, after white balance: tells a dark raw from one that is rendered dark."""
    balance = torch.tensor(raw.gains).view(3, 1, 1)
    odd = raw.mosaic[:, ::7, ::7]  # of a cell of 2x2, an odd step meets every photosite; few are enough
    light = odd * cfa.mosaic(balance.expand(3, *odd.shape[1:]), raw.pattern)
    highlights = float(light.flatten().kthvalue(max(1, round(0.99 * light.numel()))).values)
    return {
        "mean": round(float(light.mean()), 4),
        "highlights": round(highlights, 4),
        "stops_below_white": round(-log2(min(max(highlights, 1e-6), 1.0)), 1),
    }


def describe(source: str | Path, model: str, device: str, engine: str = "auto") -> dict[str, Any]:
    """Everything in a raw file that shapes its picture, and which model and engine would develop it."""
    raw = raws.read(source)
    profile = noise_of(raw)
    height, width = raw.size
    if engine == "auto":
        ranked = selection.rank(weights.load(model, device=device), height * width / 1e6)
        engine = ranked[0] if ranked else "eager"
    matrix = [[round(value, 4) for value in row] for row in raw.matrix.tolist()]
    crop = dict(zip(("top", "left", "height", "width"), raw.crop, strict=True)) if raw.crop else "none"
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
        "white_balance": dict(zip(("red", "green", "blue"), (round(gain, 4) for gain in raw.gains), strict=True)),
        "matrix": matrix,
        "brightness": _brightness(raw),
        "baseline_exposure": raw.exposure,
        "crop": crop,
        "orientation": raw.orientation,
        "noise": {
            "gain": float(f"{profile.gain:.3g}"),
            "floor": float(f"{profile.floor:.3g}"),
            "source": "stored in the file" if raw.profile else "estimated from the mosaic",
        },
        "assumed": "; ".join(raw.assumed),
        "model": model,
        "device": device,
        "engine": engine,
    }
