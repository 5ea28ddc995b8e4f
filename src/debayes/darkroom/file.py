"""Developing one raw file in five steps: read, estimate, restore, encode, save.

The result is a linear DNG or a rendered TIFF, PNG or JPEG, with maps beside it if they are asked for. While a
picture is developed it is kept in the precision of its file: about 20 bytes a pixel beside the tile.
"""

from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import UInt16
from numpy import ndarray
from numpy.typing import NDArray

from debayes.darkroom import description, loop, map_panels, rendering
from debayes.darkroom.canvas import CountCanvas
from debayes.darkroom.counts import read_shot
from debayes.darkroom.domain import RawSource, noise_of
from debayes.darkroom.loop import Progress, check_strength
from debayes.engine import Engine
from debayes.formats import maps, metadata
from debayes.formats.raw import Raw
from debayes.imaging import cfa, color
from debayes.imaging.noise_profile import Profile
from debayes.network.network import Network
from debayes.restoration import adaptation
from debayes.system import files
from debayes.system.errors import DebayesError
from debayes.system.log import log
from debayes.system.memory_file import MemoryFile

# The largest exposure correction, in stops up or down.
MOST_STOPS = 10


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
    also: tuple[str, ...] = ()
    """The endings of further files of the same picture, written beside it."""
    before: bool = False
    """Also write the picture without denoising, rendered the same way: see `rendering.render_plain`."""
    keep: bool = False
    """Do not write files that exist, only those that are missing beside them."""

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
    """Each with its path, the picture last: where it exists, what lies beside it does."""
    pictures: tuple[Path, ...]
    """Those of them that get the metadata of the source."""
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
    """Develop a raw file into a linear DNG, or a rendered TIFF, PNG or JPEG; returns what was done.

    Examples:
        >>> import debayes
        >>> from debayes.darkroom.file import Settings
        >>> network = debayes.load("raw-s")
        >>> done = debayes.develop_file(network, "photo.dng", "photo-debayes.dng", Settings(strength=0.7))
        >>> done["written"]
        ['photo-debayes.dng']
    """
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
    """Whether a picture exists in all formats, with what is asked for beside it, however they were made."""
    paths = [*pictures_of(target, settings), *befores_of(target, settings)]
    beside = [path for kind in maps.KINDS for path in maps.places(target, kind)] if settings.with_maps else []
    return all(path.exists() for path in (*paths, *beside))


def pictures_of(target: Path, settings: Settings) -> list[Path]:
    """The files of a picture, one for each format."""
    return list(dict.fromkeys([target, *(target.with_suffix(ending) for ending in settings.also)]))


def befores_of(target: Path, settings: Settings) -> list[Path]:
    """The files of the picture without denoising: in the rendered formats asked for, or as JPEG."""
    if not settings.before:
        return []
    rendered = [path.suffix for path in pictures_of(target, settings) if path.suffix.lower() != ".dng"]
    return [
        target.with_name(f"{target.stem}.before{ending}") for ending in rendered or [rendering.FORMATS["jpeg"][0]]
    ]


def read(source: Path, target: Path, settings: Settings) -> LoadedRaw:
    """The first step: read the raw, once it is clear that its picture can be written."""
    for path in (*pictures_of(target, settings), *befores_of(target, settings)):
        rendering.check_ending(path)
        files.check_target(path)
        if path.resolve() == source.resolve():
            raise DebayesError(f"{path} is the raw itself: write the picture somewhere else")
    raw = read_shot(source, black=settings.black, white=settings.white, pattern=settings.pattern)
    height, width = raw.size
    log.info(
        "%s: %s, %dx%d %s, levels %s, white balance %.3g %.3g %.3g, baseline exposure %+.2g stops",
        *(source, raw.camera or "unknown camera", width, height, raw.pattern, raw.levels, *raw.gains, raw.exposure),
    )
    light = description.brightness(raw)
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
    remaining = rendering.remaining_noise(profile, settings.strength)
    return DevelopedFile(loaded, profile, canvas.counts.numpy(), canvas.maps, remaining, adapted)


def encode(developed: DevelopedFile, settings: Settings) -> EncodedFile:
    """The fourth step: the picture and its maps as files in memory."""
    loaded, profile = developed.loaded, developed.profile
    raw, target = loaded.raw, loaded.target
    about = {"source": loaded.source.name, "gain": profile.gain, "floor": profile.floor}
    encoded: list[tuple[Path, MemoryFile]] = []
    panels = _map_panels(developed, settings) if developed.maps else {}
    for kind, values in developed.maps.items():
        map_files = maps.encode(kind, values, panels[kind], about, unit="1 = white, linear")
        encoded += zip(maps.places(target, kind), map_files, strict=True)
    made: list[Path] = []
    for path in reversed(pictures_of(target, settings)):
        if settings.keep and path.exists():
            log.info("%s exists and is kept", path)
        else:
            made.insert(0, path)
    befores = [path for path in befores_of(target, settings) if not (settings.keep and path.exists())]
    written = [*made, *befores, *(path for path, _ in encoded)]
    encoded += [(path, _encode_before(path, loaded, settings)) for path in befores]
    encoded += [(path, _encode_picture(path, developed, settings)) for path in reversed(made)]
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
    header = replace(raw, mosaic=torch.empty(1, 0, 0)) if made and metadata.has_more(raw) else None
    return EncodedFile(tuple(encoded), (*made, *befores), loaded.source, header, answer)


def save(encoded: EncodedFile, *, direct: bool = False) -> dict[str, Any]:
    """The last step: write the files, past the system's cache if `direct`, and say what was done."""
    for path, file in encoded.files:
        with files.replace(path) as temporary:
            file.store(temporary, directly=direct)
            if encoded.header is not None and path in encoded.pictures:
                metadata.copy_by_exiftool(encoded.source, temporary, encoded.header)
    return encoded.answer


def _map_panels(developed: DevelopedFile, settings: Settings) -> dict[str, list[maps.Panel]]:
    """What the plots of the maps show."""
    raw = developed.loaded.raw
    stops = settings.exposure + raw.exposure
    return map_panels.panels_of_raw(developed.maps, developed.counts, raw, stops=stops, space=settings.space)


def _encode_picture(path: Path, developed: DevelopedFile, settings: Settings) -> MemoryFile:
    """The linear DNG, or the rendered picture."""
    return rendering.assemble(
        path.suffix,
        developed.counts,
        developed.loaded.raw,
        developed.remaining,
        exposure=settings.exposure,
        space=settings.space,
        quality=settings.quality,
    )


def _encode_before(path: Path, loaded: LoadedRaw, settings: Settings) -> MemoryFile:
    """The picture without denoising, rendered as the developed one is."""
    return rendering.assemble_plain(
        path.suffix, loaded.raw, exposure=settings.exposure, space=settings.space, quality=settings.quality
    )
