"""debayes against RawTherapee and darktable on simulated raws of known truth, in linear light.

    python benchmarks/converters.py PICTURE... [--model raw-s raw-l] [--iso 400 1600 6400 25600]

All pictures are placed side by side in one simulated raw, so that each program has enough data to estimate the
noise from. All results pass through the same program with its corrections off, so that its colour handling cancels
out: the truth and the results of debayes as linear DNGs, and the raw with the program's own demosaicking and noise
reduction. For RawTherapee the best of its settings at each ISO counts: two demosaickers, automatic chroma noise
reduction, five strengths of luminance noise reduction. darktable runs with its scene-referred defaults without
tone mapping.

Needs rawtherapee-cli and darktable-cli (Debian packages); a program that is not installed is left out.
"""

import argparse
import shutil
import subprocess
import tempfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from debayes.darkroom import loop
from debayes.evaluation import metrics
from debayes.formats import dng
from debayes.formats import pictures as picture_files
from debayes.formats import raw as raws
from debayes.imaging import color, virtual_camera
from debayes.network import weights

DEMOSAICKERS = ("amaze", "lmmse")
LUMINANCE = (0, 20, 40, 60, 80)


def main() -> None:
    """Print a table of PSNRs: a row per method, a column per ISO speed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("pictures", nargs="+", type=Path, help="pictures without noise")
    parser.add_argument("--model", nargs="+", default=["raw-s", "raw-l"], help="default: raw-s raw-l")
    parser.add_argument("--iso", nargs="+", type=float, default=[400, 1600, 6400, 25600], help="ISO speeds")
    options = parser.parse_args()
    pictures = [picture_files.read(path) for path in options.pictures]
    rows: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for iso in options.iso:
            for method, psnr in compare(pictures, iso, options.model, folder).items():
                rows.setdefault(method, []).append(psnr)
    print("| PSNR in linear light, dB | " + " | ".join(f"ISO {iso:g}" for iso in options.iso) + " |")
    print("|---" * (1 + len(options.iso)) + "|")
    for method, values in rows.items():
        print(f"| {method} | " + " | ".join(f"{value:.2f}" for value in values) + " |")


def compare(pictures: list[Tensor], iso: float, models: list[str], folder: Path) -> dict[str, float]:
    """The mean PSNR of each method at an ISO speed."""
    body = virtual_camera.Body()
    clean = torch.cat([body.expose(picture).clamp_max(1) for picture in pictures], 2)
    edges = np.cumsum([0] + [picture.shape[2] for picture in pictures])
    counts = body.shoot(clean, "RGGB", iso, generator=torch.Generator().manual_seed(int(iso)))
    blank = np.zeros((8, 8, 3), np.uint8)
    shot = raws.Raw(
        (counts[None] - body.black).float() / (body.white - body.black),
        "RGGB",
        body.gains,
        body.matrix,
        profile=body.profile(iso),
        camera="debayes virtual",
        iso=iso,
    )
    noisy, truth = folder / "noisy.dng", folder / "truth.dng"
    dng.write_mosaic(
        noisy, counts.numpy().astype(np.uint16), shot, black=body.black, white=body.white, preview=blank
    )
    dng.write(truth, numbers(clean), shot, preview=blank)

    def score(shown: Tensor, reference: Tensor) -> float:
        parts = [slice(int(a), int(b)) for a, b in pairwise(edges)]
        return float(np.mean([float(metrics.psnr(shown[..., part], reference[..., part])) for part in parts]))

    found: dict[str, float] = {}
    developed: dict[str, Path] = {}
    for model in models:
        blind = replace(raws.read(noisy), profile=None)
        picture = loop.develop(weights.load(model), blind).picture
        found[f"debayes {model}, blind: camera colours"] = score(picture.clamp(0, 1), clean)
        developed[model] = folder / f"{len(developed)}.dng"  # models of two folders may have one name
        dng.write(developed[model], numbers(picture), shot, preview=blank)
    if shutil.which("rawtherapee-cli"):
        reference = rawtherapee(truth, folder)
        for model, path in developed.items():
            found[f"debayes {model}, through RawTherapee"] = score(rawtherapee(path, folder), reference)
        tries = [rawtherapee(noisy, folder, way, level) for way in DEMOSAICKERS for level in (None, *LUMINANCE)]
        scores = [score(shown, reference) for shown in tries]
        found["RawTherapee, AMaZE, no noise reduction"] = scores[0]
        found["RawTherapee, best of its settings"] = max(scores)
    if shutil.which("darktable-cli"):
        reference = darktable(truth, folder)
        for model, path in developed.items():
            found[f"debayes {model}, through darktable"] = score(darktable(path, folder), reference)
        found["darktable"] = score(darktable(noisy, folder), reference)
    return found


def numbers(picture: Tensor) -> "np.ndarray[tuple[int, ...], np.dtype[np.uint16]]":
    """Linear colours as 16-bit counts."""
    counts: np.ndarray[tuple[int, ...], np.dtype[np.uint16]] = (
        picture_files.quantise(picture, 16).permute(1, 2, 0).contiguous().numpy()
    )
    return counts


def rawtherapee(source: Path, folder: Path, way: str = "amaze", luminance: int | None = None) -> Tensor:
    """RawTherapee's neutral rendering in linear light, with noise reduction if `luminance` is given."""
    settings = folder / "settings.pp3"
    denoise = "" if luminance is None else DENOISE.format(luminance=luminance)
    settings.write_text(f"[RAW Bayer]\nMethod={way}\nBorder=0\n\n{denoise}")
    target = folder / "shown.tif"
    target.unlink(missing_ok=True)
    command = ["rawtherapee-cli", "-o", str(target), "-p", str(settings), "-t", "-b16", "-Y", "-c", str(source)]
    subprocess.run(command, check=True, capture_output=True)
    return color.decode_srgb(picture_files.read(target))


DENOISE = """[Directional Pyramid Denoising]
Enabled=true
Enhance=false
Median=false
Luma={luminance}
Ldetail=50
Chroma=15
Method=Lab
LMethod=SLI
CMethod=AUT
C2Method=AUTO
SMethod=shal
"""


def darktable(source: Path, folder: Path) -> Tensor:
    """darktable's rendering in linear light without tone mapping."""
    target = folder / "shown-dt.tif"
    target.unlink(missing_ok=True)
    config = folder / "darktable"
    more = ["plugins/darkroom/workflow=none", "plugins/imageio/format/tiff/bpp=32", "write_sidecar_files=never"]
    command = ["darktable-cli", str(source), str(target), "--icc-type", "LIN_REC709", "--core"]
    command += ["--configdir", str(config), "--library", ":memory:"]
    for line in more:
        command += ["--conf", line]
    subprocess.run(command, check=True, capture_output=True)
    return picture_files.read(target).clamp(0, 1)


if __name__ == "__main__":
    main()
