"""The MSR demosaicing data set (Khashabi et al. 2014): where its pairs lie, reading one, scoring a method on them.

Its mosaics are given, with the noise they have: 16-bit linear RGGB, one channel, in `input/N.png`; the truths,
16-bit linear RGBA, are in `groundtruth/N.png`. No noise is added, and no method is told a noise level. Outputs are
clipped to [0, 1] and not rounded; PSNR and SSIM are over all pixels and channels, no border removed, in linear
values and in sRGB, averaged over pictures.

Here sRGB is the curve of the standard and nothing else. Published sRGB rows used the data set's own fitted colour
transform and tone curve, which are not part of the pictures, and so are not comparable to the digit.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from jaxtyping import Float
from torch import Tensor

from debayes.engine import Engine
from debayes.evaluation import baselines, metrics
from debayes.evaluation.baselines import Baseline
from debayes.formats import pictures
from debayes.imaging import color
from debayes.network.network import Network
from debayes.restoration.tiling import restore

PATTERN = "RGGB"
SPACES = ("linear", "sRGB")

# The set as distributed, in a folder of any name or in the download's own below it.
_PLACES = (
    "bayer_panasonic",
    "Dataset_LINEAR_with_noise/bayer_panasonic",
    "*/Dataset_LINEAR_with_noise/bayer_panasonic",
)


@dataclass(frozen=True)
class Pair:
    """A mosaic and its truth, not yet read."""

    mosaic: Path
    truth: Path


@dataclass(frozen=True)
class Score:
    """One picture in one of the `SPACES`."""

    name: str
    """The picture's file name."""
    space: str
    """linear or sRGB."""
    psnr: float
    """In dB."""
    ssim: float
    """Structural similarity, at most 1."""


def locate(folder: Path) -> Path | None:
    """The folder that holds `input` and `groundtruth`: this one, or the Panasonic set below; none if neither is."""
    if (folder / "input").is_dir() and (folder / "groundtruth").is_dir():
        return folder
    for place in _PLACES:
        for found in sorted(folder.glob(place)):
            for half in ("input", "groundtruth"):
                if not (found / half).is_dir():
                    raise FileNotFoundError(f"the MSR set in {found} lacks its folder {half}")
            return found
    return None


def pairs(folder: Path) -> list[Pair]:
    """The pairs of a folder that `locate` found: those that `test.txt` lists; without it, all that are whole."""
    listed = folder / "test.txt"
    if not listed.is_file():
        names = [path.name for path in (folder / "input").glob("*.png") if path.stem.isdecimal()]
        whole = [name for name in names if (folder / "groundtruth" / name).is_file()]
        if not whole:
            raise ValueError(f"the MSR set in {folder} holds no pair input/N.png and groundtruth/N.png")
        return [_pair(folder, name) for name in sorted(whole, key=lambda name: int(Path(name).stem))]
    found = []
    for i, line in enumerate(listed.read_text(encoding="utf-8-sig", errors="replace").splitlines()):
        number = line.strip()
        if not number:
            continue
        if not number.isdecimal():
            raise ValueError(f"{listed}: the number of a picture was expected in line {i + 1}, not {number[:40]!r}")
        pair = _pair(folder, f"{number}.png")
        for path in (pair.mosaic, pair.truth):
            if not path.is_file():
                raise FileNotFoundError(f"there is no file {path}, which {listed.name} asks for")
        found.append(pair)
    if not found:
        raise ValueError(f"{listed} lists no pictures")
    return found


def read(pair: Pair) -> tuple[Float[Tensor, "1 h w"], Float[Tensor, "3 h w"]]:
    """The mosaic and the truth of a pair, linear, 0 = black, 1 = white. The truth's alpha channel is ignored."""
    mosaic, truth = pictures.read_mosaic(pair.mosaic).values, pictures.read(pair.truth, ignore_alpha=True)
    (height, width), (truth_height, truth_width) = mosaic.shape[1:], truth.shape[1:]
    if (height, width) != (truth_height, truth_width):
        raise ValueError(
            f"{pair.mosaic} and its truth differ in size: {height}x{width} and {truth_height}x{truth_width} pixels"
        )
    return mosaic, truth


def check(names: Iterable[str], patterns: Iterable[str]) -> None:
    """Refuse what the set cannot give: baselines (by name) that need a noise level, and patterns but its own."""
    for name in names:
        baselines.check_blind(name)
    for pattern in patterns:
        if pattern != PATTERN:
            raise ValueError(f"the mosaics of the MSR set are {PATTERN}, and cannot be scored as {pattern}")


def evaluate(
    method: Network | Engine | Baseline,
    pairs: Sequence[Pair],
    *,
    ensemble: bool = False,
    progress: Callable[[float], None] | None = None,
) -> list[Score]:
    """The scores of every pair in linear values and in sRGB, pairs in the outer loop.

    A baseline that needs a noise level is refused.
    """
    scores = []
    for i, pair in enumerate(pairs):
        mosaic, truth = read(pair)
        if isinstance(method, Network | Engine):
            mean = restore(method, mosaic, PATTERN, ensemble=ensemble).mean
        else:
            mean = method(mosaic, PATTERN, None)
        mean = mean.clamp(0, 1)
        views = ((mean, truth), (color.encode_srgb(mean), color.encode_srgb(truth)))
        for space, (found, target) in zip(SPACES, views, strict=True):
            psnr, ssim = float(metrics.psnr(found, target)), float(metrics.ssim(found, target))
            scores.append(Score(pair.mosaic.name, space, psnr, ssim))
        if progress is not None:
            progress((i + 1) / len(pairs))
    return scores


def average(scores: Sequence[Score], space: str) -> tuple[float, float]:
    """Mean PSNR and SSIM over the pictures in one space."""
    found = [score for score in scores if score.space == space]
    return sum(score.psnr for score in found) / len(found), sum(score.ssim for score in found) / len(found)


def _pair(folder: Path, name: str) -> Pair:
    return Pair(folder / "input" / name, folder / "groundtruth" / name)
