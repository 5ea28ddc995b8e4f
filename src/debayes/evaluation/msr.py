"""The MSR demosaicing data set (Khashabi et al. 2014): finding its pairs, reading them, scoring a method on them.

Its noisy mosaics are 16-bit linear RGGB with one channel, in `input/N.png`; the ground truth is 16-bit linear
RGBA in `groundtruth/N.png`. No noise is added, and no method is given a noise level. Outputs are clipped to
[0, 1] and not rounded. PSNR and SSIM are computed over all pixels and channels without removing a border, in linear
values and in sRGB, and averaged over pictures.

Here sRGB means the standard curve only. Published sRGB rows used a colour transform and tone curve that were
fitted to the data set and are not part of it, so they are not exactly comparable.
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
from debayes.system.errors import DebayesError

PATTERN = "RGGB"
SPACES = ("linear", "sRGB")

# Where the Panasonic set lies below a folder: as distributed, or inside the folder of the download.
_PLACES = (
    "bayer_panasonic",
    "Dataset_LINEAR_with_noise/bayer_panasonic",
    "*/Dataset_LINEAR_with_noise/bayer_panasonic",
)


@dataclass(frozen=True)
class Pair:
    """The files of a mosaic and its ground truth."""

    mosaic: Path
    truth: Path


@dataclass(frozen=True)
class PairScore:
    """The score of one picture in one of the `SPACES`."""

    name: str
    """The picture's file name."""
    space: str
    """linear or sRGB."""
    psnr: float
    """In dB."""
    ssim: float
    """Structural similarity, at most 1."""


def locate(folder: Path) -> Path | None:
    """The folder with `input` and `groundtruth`: this one or the Panasonic set below it; None if there is
    neither."""
    if (folder / "input").is_dir() and (folder / "groundtruth").is_dir():
        return folder
    for place in _PLACES:
        for below in sorted(folder.glob(place)):
            for half in ("input", "groundtruth"):
                if not (below / half).is_dir():
                    raise FileNotFoundError(f"the MSR set in {below} has no folder {half}: unpack it again")
            return below
    return None


def pairs(folder: Path) -> list[Pair]:
    """The pairs of a folder found by `locate`: those listed in `test.txt`, or without it all complete pairs."""
    listed = folder / "test.txt"
    if not listed.is_file():
        names = [path.name for path in (folder / "input").glob("*.png") if path.stem.isdecimal()]
        whole = [name for name in names if (folder / "groundtruth" / name).is_file()]
        if not whole:
            raise DebayesError(f"the MSR set in {folder} has no pair of files input/N.png and groundtruth/N.png")
        return [_pair(folder, name) for name in sorted(whole, key=lambda name: int(Path(name).stem))]
    chosen = []
    for i, line in enumerate(listed.read_text(encoding="utf-8-sig", errors="replace").splitlines()):
        number = line.strip()
        if not number:
            continue
        if not number.isdecimal():
            raise DebayesError(f"{listed}: expected the number of a picture in line {i + 1}, not {number[:40]!r}")
        pair = _pair(folder, f"{number}.png")
        for path in (pair.mosaic, pair.truth):
            if not path.is_file():
                raise FileNotFoundError(f"there is no file {path}, which is listed in {listed.name}")
        chosen.append(pair)
    if not chosen:
        raise DebayesError(f"{listed} lists no pictures: delete it to use every pair of the folder")
    return chosen


def is_whole(chosen: Sequence[Pair]) -> bool:
    """Whether these are all the pairs that a `test.txt` lists, which the published scores are of."""
    folder = chosen[0].mosaic.parent.parent
    return (folder / "test.txt").is_file() and len(chosen) == len(pairs(folder))


def read_pair(pair: Pair) -> tuple[Float[Tensor, "1 h w"], Float[Tensor, "3 h w"]]:
    """The mosaic and the ground truth of a pair, linear, 0 = black, 1 = white; the alpha channel is ignored."""
    mosaic, truth = pictures.read_mosaic(pair.mosaic).values, pictures.read(pair.truth, ignore_alpha=True)
    (height, width), (truth_height, truth_width) = mosaic.shape[1:], truth.shape[1:]
    if (height, width) != (truth_height, truth_width):
        raise DebayesError(
            f"{pair.mosaic} and its ground truth differ in size: "
            f"{height}x{width} and {truth_height}x{truth_width} pixels"
        )
    return mosaic, truth


def check_request(names: Iterable[str], patterns: Iterable[str]) -> None:
    """Raise if a baseline needs the noise level, or if a pattern is not that of the set."""
    for name in names:
        baselines.check_blind(name)
    for pattern in patterns:
        if pattern != PATTERN:
            raise DebayesError(f"the mosaics of the MSR set are {PATTERN} and cannot be scored as {pattern}")


def evaluate_pairs(
    method: Network | Engine | Baseline,
    pairs: Sequence[Pair],
    *,
    ensemble: bool = False,
    progress: Callable[[float], None] | None = None,
) -> list[PairScore]:
    """The scores of every pair in linear values and in sRGB, in the order of the pairs.

    Raises if the method is a baseline that needs the noise level.
    """
    scores = []
    for i, pair in enumerate(pairs):
        mosaic, truth = read_pair(pair)
        if isinstance(method, Network | Engine):
            mean = restore(method, mosaic, PATTERN, ensemble=ensemble).mean
        else:
            mean = method(mosaic, PATTERN, None)
        mean = mean.clamp(0, 1)
        views = ((mean, truth), (color.encode_srgb(mean), color.encode_srgb(truth)))
        for space, (image, target) in zip(SPACES, views, strict=True):
            psnr, ssim = float(metrics.psnr(image, target)), float(metrics.ssim(image, target))
            scores.append(PairScore(pair.mosaic.name, space, psnr, ssim))
        if progress is not None:
            progress((i + 1) / len(pairs))
    return scores


def average_pairs(scores: Sequence[PairScore], space: str) -> tuple[float, float]:
    """Mean PSNR and SSIM over the pictures in one space."""
    chosen = [score for score in scores if score.space == space]
    return sum(score.psnr for score in chosen) / len(chosen), sum(score.ssim for score in chosen) / len(chosen)


def _pair(folder: Path, name: str) -> Pair:
    return Pair(folder / "input" / name, folder / "groundtruth" / name)
