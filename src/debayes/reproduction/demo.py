"""The demonstration: a simulated noisy raw of a free photograph, developed, and one picture that compares the
two."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from debayes.darkroom import file, loop, mosaics
from debayes.darkroom.loop import Developed
from debayes.evaluation import metrics, scenes
from debayes.formats import pictures, raw
from debayes.imaging import cfa, color, virtual_camera
from debayes.network.network import Network
from debayes.reproduction import figures
from debayes.system import files

# The details shown, as (top, left) of squares of DETAIL pixels: whiskers, an eye.
DETAIL = 72
DETAILS = ((208, 112), (92, 285))

# The level of the intervals whose coverage is measured.
LEVEL = 0.9


def demonstrate(
    network: Network,
    folder: Path,
    *,
    iso: float = 12800.0,
    seed: int = 0,
    ensemble: bool = False,
    progress: Callable[[float], None] | None = None,
) -> dict[str, Any]:
    """Write a simulated raw, its ground truth, the developed DNG and demo.png; returns the scores.

    A virtual camera photographs scikit-image's `chelsea` (CC0) at a high ISO speed. Its DNG is developed like
    that of any camera; for demo.png the noise profile stored in it is ignored. The size is odd and the pattern
    GRBG, to show that both are handled. PSNRs are those of the rendered pictures.
    """
    figures.check_matplotlib()
    noise = virtual_camera.Body().profile(iso)
    truth, source = folder / "cat.png", folder / "cat.dng"
    pictures.write(truth, scenes.photograph("chelsea"), bits=8)
    mosaics.simulate_raw(truth, source, iso=iso, pattern="GRBG", seed=seed)
    file.develop_file(network, source, folder / "cat-debayes.dng", file.Settings(ensemble=ensemble))
    shot = raw.read(source)
    blind = replace(shot, profile=None)
    developed = loop.develop(network, blind, ensemble=ensemble, level=LEVEL, progress=progress)
    assert developed.interval is not None
    low, high = developed.interval
    clean = pictures.read(folder / "cat.truth.tiff")
    plain = cfa.interpolate(shot.mosaic[None], shot.pattern)[0]

    def render(picture: Tensor) -> Tensor:
        return color.render(picture, shot.gains, shot.matrix)

    shown = {"bilinear": render(plain), "debayes": developed.render(), "truth": render(clean)}
    pictures.write(folder / "cat-debayes.png", shown["debayes"], bits=16)
    scores = {name: float(metrics.psnr(shown[name], shown["truth"])) for name in ("bilinear", "debayes")}
    level = noise.variance(clean).sqrt()
    picture = folder / "demo.png"
    plot_demo(picture, developed, shown, level=level, iso=iso, scores=scores)
    return {
        "psnr": scores,
        "noise": {"added": float(level.mean()), "found": float(developed.noise.mean())},
        "interval": {"level": LEVEL, "holds": float(((low <= clean) & (clean <= high)).float().mean())},
        "picture": str(picture),
    }


def plot_demo(
    path: Path,
    developed: Developed,
    shown: dict[str, Tensor],
    *,
    level: Tensor,
    iso: float,
    scores: dict[str, float],
) -> None:
    """Plot one picture: before and after, enlarged details, the added noise, the noise map and the doubt map."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.patches import Rectangle

    figure = Figure(figsize=(12, 13.5), dpi=100, layout=ConstrainedLayoutEngine(h_pad=0.08))
    parts: Any = figure.subfigures(3, 1, height_ratios=(4.3, 6.4, 2.7))
    top, middle, bottom = parts

    def show(axes: Any, picture: Tensor, title: str) -> None:
        axes.imshow(picture.clamp(0, 1).permute(1, 2, 0).numpy(), interpolation="nearest")
        axes.set_title(title, fontsize=12)
        axes.axis("off")

    grey = color.encode_srgb(developed.raw.mosaic.clamp(0, 1)).expand(3, -1, -1)
    pair = top.subplots(1, 2)
    show(pair[0], shown["bilinear"], f"raw at ISO {iso:g}, interpolated: {scores['bilinear']:.2f} dB")
    show(pair[1], shown["debayes"], f"debayes: {scores['debayes']:.2f} dB")
    for y, x in DETAILS:
        for axes in pair:
            axes.add_patch(Rectangle((x, y), DETAIL, DETAIL, fill=False, edgecolor="white", linewidth=1.5))

    columns = {"raw photosites": grey, "interpolated": shown["bilinear"], **shown}
    del columns["bilinear"]
    grid = middle.subplots(len(DETAILS), len(columns))
    for i, (y, x) in enumerate(DETAILS):
        for axes, (title, picture) in zip(grid[i], columns.items(), strict=True):
            show(axes, picture[:, y : y + DETAIL, x : x + DETAIL], title if i == 0 else "")

    noise, doubt = (100 * values.mean(0) for values in (developed.noise, developed.doubt))
    added = 100 * level.mean(0)
    high = 1.2 * float(added.max())
    maps = (
        ("added noise, % of white", added, "viridis", high),
        ("noise map: estimated noise, %", noise, "viridis", high),
        ("doubt map: expected error (1 σ), % of white", doubt, "magma", float(torch.quantile(doubt, 0.999))),
    )
    for axes, (title, values, colors, end) in zip(bottom.subplots(1, 3), maps, strict=True):
        image = axes.imshow(values.numpy(), cmap=colors, vmin=0, vmax=max(end, 1e-6), interpolation="nearest")
        axes.set_title(title, fontsize=11)
        axes.axis("off")
        bottom.colorbar(image, ax=axes, orientation="horizontal", shrink=0.85, pad=0.02)
    with files.replace(path) as temporary:
        figure.savefig(temporary, format="png")
