"""Figures as data, and how they are drawn: curves over an axis, and galleries of pictures and maps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from jaxtyping import Float
from torch import Tensor

from debayes import files


@dataclass(frozen=True)
class Curve:
    """One line of a plot."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    dashed: bool = False
    mark: float | None = None
    """Where on the x axis a dot is set."""


@dataclass(frozen=True)
class Plot:
    """Panels of curves side by side, each with its title."""

    panels: Mapping[str, Sequence[Curve]]
    x: str
    """What the x axes show."""
    y: str
    """What the y axes show."""


@dataclass(frozen=True)
class Panel:
    """A picture (3, h, w), or a map (h, w) in false colours with a scale."""

    title: str
    values: Float[Tensor, "..."]
    most: float | None = None
    """The end of a map's scale; its largest value if none."""
    least: float = 0.0
    """The start of it."""


@dataclass(frozen=True)
class Gallery:
    """Rows of panels."""

    rows: Sequence[Sequence[Panel]]


def check() -> None:
    """Raise now what `draw` would raise after the work is done: matplotlib is missing."""
    if find_spec("matplotlib") is None:
        raise ModuleNotFoundError('drawing figures needs matplotlib: pip install "debayes[demo]"')


def draw(figure: Plot | Gallery, path: Path) -> None:
    """Draw a figure to a file: .png or .svg."""
    check()
    from matplotlib.figure import Figure

    if isinstance(figure, Plot):
        canvas = Figure(figsize=(5.2 * len(figure.panels), 4.2), layout="constrained")
        _draw_plot(canvas, figure)
    else:
        columns = max(len(row) for row in figure.rows)
        height = sum(max(_height(panel) for panel in row) for row in figure.rows)
        canvas = Figure(figsize=(3.0 * columns, 3.0 * height + 0.1), layout="constrained")
        _draw_gallery(canvas, figure, columns)
    with files.replace(path) as temporary:
        canvas.savefig(temporary, format=path.suffix[1:].lower(), dpi=130)


def _draw_plot(canvas: Any, plot: Plot) -> None:
    panels = canvas.subplots(1, len(plot.panels), squeeze=False)[0]
    for axes, (title, curves) in zip(panels, plot.panels.items(), strict=True):
        for curve in curves:
            (line,) = axes.plot(curve.x, curve.y, "--" if curve.dashed else "-", label=curve.name, linewidth=1.6)
            if (mark := curve.mark) is not None:
                distances = [abs(x - mark) for x in curve.x]
                nearest = distances.index(min(distances))
                axes.plot(curve.x[nearest], curve.y[nearest], "o", color=line.get_color(), markersize=7)
        axes.set(title=title, xlabel=plot.x, ylabel=plot.y)
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")


def _draw_gallery(canvas: Any, gallery: Gallery, columns: int) -> None:
    heights = [max(_height(panel) for panel in row) for row in gallery.rows]
    grid = canvas.subplots(len(gallery.rows), columns, squeeze=False, height_ratios=heights)
    for axes_row, row in zip(grid, gallery.rows, strict=True):
        for axes in axes_row:
            axes.axis("off")
        for axes, panel in zip(axes_row, row, strict=False):
            axes.set_title(panel.title, fontsize=10)
            if panel.values.ndim == 3:
                axes.imshow(panel.values.clamp(0, 1).permute(1, 2, 0).numpy(), interpolation="nearest")
                continue
            most = float(panel.values.max()) if panel.most is None else panel.most
            shown = axes.imshow(panel.values.numpy(), vmin=panel.least, vmax=most, interpolation="nearest")
            canvas.colorbar(shown, ax=axes, orientation="horizontal", shrink=0.9, pad=0.02)


def _height(panel: Panel) -> float:
    """Of a panel one wide, with its title and scale."""
    height, width = panel.values.shape[-2:]
    return height / width + 0.12 + (0.2 if panel.values.ndim == 2 else 0)
