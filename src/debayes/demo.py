"""The demonstration: a noisy mosaic of a free photograph, restored, in one before-and-after picture."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from debayes import cfa, files, image, metrics, noise
from debayes.model import Network
from debayes.nig import NormalInverseGamma
from debayes.restoration import restore

# Where the details are cut, as (top, left) of squares of DETAIL pixels: fur and whiskers, an eye.
DETAIL = 72
DETAILS = ((150, 205), (85, 185))


def demonstrate(
    network: Network,
    folder: Path,
    *,
    sigma: float = 15.0,
    seed: int = 0,
    ensemble: bool = False,
    progress: Callable[[float], None] | None = None,
) -> dict[str, Any]:
    """Write truth, mosaic, restored picture and demo.png to the folder; the PSNRs come back.

    `sigma` is the level of the Gaussian noise, in units of 1/255. The photograph is scikit-image's `chelsea`
    (CC0); its odd size and a GRBG pattern show that neither matters.
    """
    truth = photograph()
    pattern = "GRBG"
    generator = torch.Generator().manual_seed(seed)
    mosaic = noise.gaussian(cfa.mosaic(truth, pattern), sigma / 255, generator=generator)
    posterior = restore(network, mosaic, pattern, ensemble=ensemble, progress=progress)
    bilinear = cfa.interpolate(mosaic[None], pattern)[0].clamp(0, 1)
    restored = posterior.mean.clamp(0, 1)
    scores = {
        "bilinear": float(metrics.psnr(bilinear, truth)),
        "debayes": float(metrics.psnr(restored, truth)),
    }
    image.write(folder / "truth.png", truth, bits=8)
    image.write_mosaic(folder / "mosaic.tiff", mosaic, pattern, {"sigma": sigma, "seed": seed})
    image.write(folder / "restored.png", restored, bits=16)
    picture = folder / "demo.png"
    draw(picture, truth, mosaic, bilinear, posterior, sigma=sigma, scores=scores)
    return {
        "psnr": scores,
        "sigma": float(posterior.noise_variance.sqrt().mean() * 255),
        "picture": str(picture),
    }


def photograph() -> Tensor:
    """The photograph of the demonstration, (3, 300, 451)."""
    try:
        from skimage import data
    except ModuleNotFoundError:
        raise ModuleNotFoundError("the demo needs its extra: pip install 'debayes[demo]'") from None
    photo: Any = data.chelsea  # scikit-image has no annotations there
    return torch.from_numpy(np.asarray(photo())).permute(2, 0, 1).float() / 255


def draw(
    path: Path,
    truth: Tensor,
    mosaic: Tensor,
    bilinear: Tensor,
    posterior: NormalInverseGamma,
    *,
    sigma: float,
    scores: dict[str, float],
) -> None:
    """One picture: before and after, zoomed details, noise map and doubt map."""
    try:
        from matplotlib.figure import Figure
        from matplotlib.patches import Rectangle
    except ModuleNotFoundError:
        raise ModuleNotFoundError("the demo needs its extra: pip install 'debayes[demo]'") from None

    figure = Figure(figsize=(14.4, 10.6), dpi=100, facecolor="white", layout="constrained")
    parts: Any = figure.subfigures(3, 1, height_ratios=(1.0, 0.86, 1.0))
    top, middle, bottom = parts

    def show(axes: Any, picture: Tensor, title: str) -> None:
        axes.imshow(picture.clamp(0, 1).permute(1, 2, 0).numpy(), interpolation="nearest")
        axes.set_title(title, fontsize=11)
        axes.axis("off")

    restored = posterior.mean
    before, after = top.subplots(1, 2)
    show(before, mosaic.expand(3, -1, -1), f"the mosaic, noise σ = {sigma:g}/255")
    show(after, restored, f"debayes, {scores['debayes']:.2f} dB")
    for y, x in DETAILS:
        for axes in (before, after):
            axes.add_patch(Rectangle((x, y), DETAIL, DETAIL, fill=False, edgecolor="white", linewidth=1.2))

    columns = (
        ("mosaic", mosaic.expand(3, -1, -1)),
        (f"bilinear {scores['bilinear']:.2f} dB", bilinear),
        (f"debayes {scores['debayes']:.2f} dB", restored),
        ("truth", truth),
    )
    for axes, ((y, x), (title, picture)) in zip(
        middle.subplots(2, 4).T.flat, ((d, c) for c in columns for d in DETAILS), strict=True
    ):
        show(axes, picture[:, y : y + DETAIL, x : x + DETAIL], title if (y, x) == DETAILS[0] else "")

    level = 255 * posterior.noise_variance.sqrt().mean(0)
    doubt = 255 * posterior.mean_variance.sqrt().mean(0)
    maps = (
        ("noise map: estimated σ, in 1/255", level, "viridis", (0.0, 2 * max(sigma, 1.0))),
        (
            "doubt map: standard deviation of the posterior mean, in 1/255",
            doubt,
            "magma",
            (0.0, float(doubt.max())),
        ),
    )
    for axes, (title, values, colors, (low, high)) in zip(bottom.subplots(1, 2), maps, strict=True):
        shown = axes.imshow(values.numpy(), cmap=colors, vmin=low, vmax=high, interpolation="nearest")
        axes.set_title(title, fontsize=11)
        axes.axis("off")
        bottom.colorbar(shown, ax=axes, shrink=0.9)
    with files.replace(path) as temporary:
        figure.savefig(temporary, format="png")
