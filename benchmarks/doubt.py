"""Quality of the doubt: python benchmarks/doubt.py PICTURE... [--models wild-s raw-s]

For models of sRGB mosaics: the AUSE, which says how well a measure sorts pixels by their errors (0 is the best
order; in units of the root mean square error), of the doubt and of three simpler measures: the noise map, the
local gradient of the restored picture, and the variance over the eight symmetries. For raw models: each picture
becomes a simulated raw and is developed. The table has the coverage of intervals in linear light, and the median
of doubt / noise.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import torch
import torch.nn.functional as F
from torch import Tensor

from debayes.darkroom import mosaics
from debayes.darkroom.domain import DevelopedTile, RawSource, noise_of
from debayes.darkroom.loop import develop_tiles
from debayes.engine import Engine, prepare
from debayes.evaluation import metrics, protocol
from debayes.evaluation.uncertainty import LEVELS
from debayes.formats import pictures
from debayes.formats import raw as raws
from debayes.imaging import cfa, virtual_camera
from debayes.network import weights
from debayes.restoration import restore, restore_image

BODY = virtual_camera.Body()


def main() -> None:
    """Print a table for each domain."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("pictures", type=Path, nargs="+", help="pictures without noise")
    parser.add_argument("--models", nargs="+", default=["wild-s", "raw-s"], help="default: wild-s raw-s")
    parser.add_argument(
        "--sigma", type=float, nargs="+", default=[5.0, 10.0, 15.0], help="noise of sRGB mosaics, in 1/255"
    )
    parser.add_argument("--iso", type=float, nargs="+", default=[400, 1600, 6400, 25600], help="of raws")
    parser.add_argument("--engine", default="auto", help="as in `debayes bench` (default: auto)")
    options = parser.parse_args()
    domains = {name: weights.read_card(name).domain for name in options.models}
    for domain in dict.fromkeys(domains.values()):
        chosen = [name for name in options.models if domains[name] == domain]
        rows = sort_pixels if domain == "srgb" else cover_raws
        levels = options.sigma if domain == "srgb" else options.iso
        for line in rows(chosen, options.pictures, levels, options.engine):
            print(line, flush=True)
        print()


def sort_pixels(models: list[str], pictures: list[Path], sigmas: list[float], engine: str) -> Iterator[str]:
    """Table of the AUSE of the doubt and of simpler measures, the mean over the pictures."""
    yield "| AUSE | doubt | noise map | gradient | variance of the ensemble |"
    yield "|---|---|---|---|---|"
    for name in models:
        network = prepare(weights.load(name), engine)
        for sigma in sigmas:
            found = torch.tensor([_orders(network, path, sigma) for path in pictures]).mean(0)
            yield f"| {name}, σ={sigma:g} | " + " | ".join(f"{value:.3f}" for value in found.tolist()) + " |"


def _orders(network: Engine, path: Path, sigma: float) -> list[float]:
    """AUSE of a picture by each measure."""
    truth = pictures.read(path)
    truth = truth[:, : truth.shape[1] // 2 * 2, : truth.shape[2] // 2 * 2]
    mosaic = protocol.noisy_mosaic(truth, sigma / 255, pattern="RGGB", seed=path.name)
    posterior = restore(network, mosaic)
    views = []
    for symmetry in cfa.SYMMETRIES:
        pattern = symmetry.pattern("RGGB", *mosaic.shape[1:])
        views.append(symmetry.undo(restore_image(network, symmetry.apply(mosaic).contiguous(), pattern)))
    measures = (
        posterior.mean_variance,
        posterior.noise_variance,
        gradient(posterior.mean),
        torch.stack(views).var(0),
    )
    return [metrics.sparsification_error(posterior.mean - truth, measure) for measure in measures]


def gradient(picture: Tensor) -> Tensor:
    """The magnitude of the Sobel gradient at each pixel."""
    smooth, change = torch.tensor([1.0, 2, 1]), torch.tensor([-1.0, 0, 1])
    kernels = torch.stack((torch.outer(smooth, change), torch.outer(change, smooth)))[:, None]
    padded = F.pad(picture[:, None], (1, 1, 1, 1), mode="reflect")
    return F.conv2d(padded, kernels).square().sum(1).sqrt()


def cover_raws(models: list[str], pictures: list[Path], speeds: list[float], engine: str) -> Iterator[str]:
    """Table of the shares of true values inside intervals, over all pixels that are not overexposed."""
    yield "| coverage in linear light |" + "".join(f" {100 * level:g} % |" for level in LEVELS) + " doubt / noise |"
    yield "|---" * (2 + len(LEVELS)) + "|"
    for name in models:
        network = prepare(weights.load(name), engine)
        for iso in speeds:
            inside, total, shares = torch.zeros(len(LEVELS)), 0, []
            for path in pictures:
                for light, part in _develop(network, path, iso):
                    seen = light < 0.9
                    for i, level in enumerate(LEVELS):
                        low, high = part.interval(level)
                        inside[i] += int(((low <= light) & (light <= high) & seen).sum())
                    total += int(seen.sum())
                    shares.append(float((part.doubt / part.noise).median()))
            cells = [f"{100 * value:.1f} %" for value in (inside / total).tolist()]
            yield f"| {name}, ISO {iso:g} | " + " | ".join(cells) + f" | {median(shares):.2f} |"


def _develop(network: Engine, path: Path, iso: float) -> Iterator[tuple[Tensor, DevelopedTile]]:
    """The tiles of a simulated raw of a picture, developed, each with the true linear colours."""
    with tempfile.TemporaryDirectory() as folder:
        mosaics.simulate_raw(path, Path(folder) / "shot.dng", iso=iso)
        raw = raws.read(Path(folder) / "shot.dng")
    light = BODY.expose(pictures.read(path))
    for part in develop_tiles(network, RawSource(raw, noise_of(raw))):
        yield light[:, part.rows, part.columns], part


if __name__ == "__main__":
    try:
        main()
    except (OSError, ValueError) as error:
        sys.exit(str(error))
