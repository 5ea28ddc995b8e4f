"""Linear counts as files: the linear DNG, and rendered pictures, which are upright and ready to look at."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Shaped, UInt8, UInt16

from debayes.darkroom.canvas import linear_of
from debayes.darkroom.domain import strips
from debayes.formats import dng, icc, metadata, picture_formats, pictures
from debayes.formats.raw import Raw
from debayes.imaging import color, malvar
from debayes.imaging.noise_profile import Profile
from debayes.system.errors import DebayesError
from debayes.system.log import log
from debayes.system.memory_file import MemoryFile

# What a developed picture can be rendered to, and the endings of each format, the usual one first.
RENDERED = {name: each.endings for name, each in picture_formats.FORMATS.items() if name != "npy"}

# What a developed picture can be written as: those, or a linear DNG.
FORMATS = {"dng": (".dng",), **RENDERED}
ENDINGS = tuple(ending for endings in FORMATS.values() for ending in endings)

# The longer side of the preview inside a DNG.
PREVIEW = 1024

# The variance of the grain that remains in plain areas, in units of that of the noise. On grey cards 0.017 was
# measured at ISO 400, 0.002 at 3200 and 0.001 at 25600. (Doubt is more: noise may have hidden some texture.)
REMAINING = 0.01


def assemble(
    ending: str,
    counts: UInt16[np.ndarray, "h w 3"],
    raw: Raw,
    remaining: Profile,
    *,
    exposure: float = 0.0,
    space: str = "srgb",
    quality: int = 95,
) -> MemoryFile:
    """Linear counts as a file in memory: a linear DNG, or a rendered picture with the EXIF data of its raw.

    `remaining` is the noise of the counts. A rendered picture is `exposure` stops brighter than the raw says.
    """
    stops = exposure + raw.exposure
    if ending.lower() == ".dng":
        return dng.assemble(counts, raw, preview=preview(counts, raw, stops=stops), left=remaining)
    bits = pictures.check_bits(Path(f"picture{ending}"), None)
    log.info(
        "rendered in %s with %+.2g stops: %+.2g asked for, %+.2g baseline exposure of the raw",
        *(space, stops, exposure, raw.exposure),
    )
    shown = render(counts, raw, stops=stops, space=space, bits=bits)
    return _assemble_rendered(ending, shown, raw, space, quality)


def assemble_plain(
    ending: str, raw: Raw, *, exposure: float = 0.0, space: str = "srgb", quality: int = 95
) -> MemoryFile:
    """The picture without denoising as a file in memory, rendered as `assemble` does it."""
    bits = pictures.check_bits(Path(f"picture{ending}"), None)
    shown = render_plain(raw, stops=exposure + raw.exposure, space=space, bits=bits)
    return _assemble_rendered(ending, shown, raw, space, quality)


def _assemble_rendered(ending: str, shown: Any, raw: Raw, space: str, quality: int) -> MemoryFile:
    """A rendered picture, upright, with its colour profile and the EXIF data of its raw."""
    profile, exif = icc.color_profile(space), metadata.exif_block(raw)
    return pictures.assemble(ending, upright(shown, raw), icc=profile, exif=exif, quality=quality)


def check_ending(target: Path) -> None:
    """Raise if a developed picture cannot be written under this name."""
    if target.suffix.lower() not in ENDINGS:
        ending = target.suffix or "a name without an ending"
        raise DebayesError(f"{target}: developed pictures are written as {', '.join(ENDINGS)}, not as {ending}")


def remaining_noise(profile: Profile, strength: float) -> Profile:
    """The noise of a picture that was developed with this strength from a raw with this profile."""
    share = (1 - strength) ** 2 + REMAINING
    return Profile(profile.gain * share, profile.floor * share)


def render(
    counts: UInt16[np.ndarray, "h w 3"], raw: Raw, *, stops: float, space: str = "srgb", bits: int = 8
) -> Shaped[np.ndarray, "h w 3"]:
    """The rendered picture of linear counts, `stops` brighter, with 8 or 16 bits a sample."""
    shown = np.empty(counts.shape, np.uint8 if bits == 8 else np.uint16)
    for rows in strips(len(counts)):
        linear = linear_of(torch.from_numpy(counts[rows]), 0)
        picture = color.render(linear, raw.gains, raw.matrix, exposure=stops, space=space)
        shown[rows] = pictures.quantise(picture.permute(1, 2, 0), bits).numpy()
    return shown


def render_plain(raw: Raw, *, stops: float, space: str = "srgb", bits: int = 8) -> Shaped[np.ndarray, "h w 3"]:
    """The picture before: demosaicked by linear filters, noise and all, and rendered as `render` does it."""
    height, width = raw.size
    shown = np.empty((height, width, 3), np.uint8 if bits == 8 else np.uint16)
    for rows in strips(height):
        linear = malvar.demosaick_rows(raw.mosaic, raw.pattern, rows)
        picture = color.render(linear, raw.gains, raw.matrix, exposure=stops, space=space)
        shown[rows] = pictures.quantise(picture.permute(1, 2, 0), bits).numpy()
    return shown


def preview(
    counts: UInt16[np.ndarray, "h w 3"], raw: Raw, *, stops: float, step: int | None = None
) -> UInt8[np.ndarray, "k l 3"]:
    """A small rendered picture: every pixel is the mean of two rows of step x step counts."""
    step = min(-(-max(counts.shape) // PREVIEW) if step is None else step, *counts.shape[:2])
    height, width = (size // step for size in counts.shape[:2])
    taken = counts[: height * step, : width * step].reshape(height, step, width * step, 3)[:, :: -(-step // 2)]
    small = np.empty((height, width, 3), np.uint16)
    for rows in strips(height):
        part = torch.from_numpy(taken[rows]).float().mean(1)  # of two rows, or of one if there is one
        small[rows] = part.view(-1, width, step, 3).mean(2).numpy()
    return render(small, raw, stops=stops)


def upright(shown: Any, raw: Raw) -> Any:
    """A picture cropped as its maker wants it and turned as its EXIF orientation says."""
    if raw.crop is not None:
        top, left, height, width = raw.crop
        shown = shown[top : top + height, left : left + width]
    if raw.orientation >= 5:
        shown = shown.transpose(1, 0, 2)
    flips = {2: (1,), 3: (0, 1), 4: (0,), 6: (1,), 7: (0, 1), 8: (0,)}.get(raw.orientation, ())
    return np.flip(shown, flips) if flips else shown
