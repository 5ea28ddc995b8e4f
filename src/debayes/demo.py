"""The demonstration: a noisy mosaic of a free photograph, restored, in one before-and-after picture."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from debayes import cfa, files, image, metrics, noise, scenes
from debayes.model import Network
from debayes.nig import NormalInverseGamma
from debayes.restoration import restore

# Where the details are cut, as (top, left) of squares of DETAIL pixels: whiskers, an eye.
DETAIL = 72
DETAILS = ((208, 112), (92, 285))


def demonstrate(
    network: Network,
    folder: Path,
    *,
    sigma: float = 20.0,
    seed: int = 0,
    ensemble: bool = False,
    progress: Callable[[float], None] | None = None,
) -> dict[str, Any]:
    """Write truth, mosaic, restored picture and demo.png to the folder; the PSNRs come back.

    The Gaussian noise rises from sigma / 4 at the left to sigma (in units of 1/255) at the right; the network is
    told neither. The photograph is scikit-image's `chelsea` (CC0); its odd size and a GRBG pattern show that
    neither matters.
    """
    noise.check_sigma(sigma)
    truth = scenes.photograph("chelsea")
    pattern = "GRBG"
    level = torch.linspace(sigma / 4, sigma, truth.shape[-1]).expand(truth.shape[-2:])
    generator = torch.Generator().manual_seed(seed)
    mosaic = noise.gaussian(cfa.mosaic(truth, pattern), level / 255, generator=generator)
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
    draw(picture, truth, mosaic, bilinear, posterior, level=level, scores=scores)
    estimate = 255 * posterior.noise_variance.sqrt()
    return {
        "psnr": scores,
        "sigma": {"added": float(level.mean()), "estimated": float(estimate.mean())},
        "picture": str(picture),
    }


def draw(
    path: Path,
    truth: Tensor,
    mosaic: Tensor,
    bilinear: Tensor,
    posterior: NormalInverseGamma,
    *,
    level: Tensor,
    scores: dict[str, float],
) -> None:
    """One picture: before and after, zoomed details, the noise that was added, noise map and doubt map."""
    try:
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
        from matplotlib.patches import Rectangle
    except ModuleNotFoundError:
        raise ModuleNotFoundError("the demo needs its extra: pip install 'debayes[demo]'") from None

    figure = Figure(figsize=(12, 13.5), dpi=100, layout=ConstrainedLayoutEngine(h_pad=0.08))
    parts: Any = figure.subfigures(3, 1, height_ratios=(4.3, 6.4, 2.7))
    top, middle, bottom = parts

    def show(axes: Any, picture: Tensor, title: str) -> None:
        axes.imshow(picture.clamp(0, 1).permute(1, 2, 0).numpy(), interpolation="nearest")
        axes.set_title(title, fontsize=12)
        axes.axis("off")

    grey = mosaic.expand(3, -1, -1)
    pair = top.subplots(1, 2)
    low, high = float(level.min()), float(level.max())
    show(pair[0], grey, f"the mosaic: noise σ = {low:g} (left) to {high:g} (right) of 255")
    show(pair[1], posterior.mean, f"debayes, blind: {scores['debayes']:.2f} dB")
    for y, x in DETAILS:
        for axes in pair:
            axes.add_patch(Rectangle((x, y), DETAIL, DETAIL, fill=False, edgecolor="white", linewidth=1.5))

    columns = (
        ("mosaic", grey),
        (f"bilinear, {scores['bilinear']:.2f} dB", bilinear),
        (f"debayes, {scores['debayes']:.2f} dB", posterior.mean),
        ("truth", truth),
    )
    grid = middle.subplots(len(DETAILS), len(columns))
    for i, (y, x) in enumerate(DETAILS):
        for axes, (title, picture) in zip(grid[i], columns, strict=True):
            show(axes, picture[:, y : y + DETAIL, x : x + DETAIL], title if i == 0 else "")

    estimate = 255 * posterior.noise_variance.sqrt().mean(0)
    doubt = 255 * posterior.mean_variance.sqrt().mean(0)
    maps = (
        ("the noise that was added, σ·255", level, "viridis", 1.2 * high),
        ("noise map: the σ·255 that debayes finds", estimate, "viridis", 1.2 * high),
        ("doubt map: relative, not yet calibrated", doubt, "magma", float(doubt.max())),
    )
    for axes, (title, values, colors, most) in zip(bottom.subplots(1, 3), maps, strict=True):
        shown = axes.imshow(values.numpy(), cmap=colors, vmin=0, vmax=max(most, 1e-6), interpolation="nearest")
        axes.set_title(title, fontsize=11)
        axes.axis("off")
        bottom.colorbar(shown, ax=axes, orientation="horizontal", shrink=0.85, pad=0.02)
    with files.replace(path) as temporary:
        figure.savefig(temporary, format="png")
