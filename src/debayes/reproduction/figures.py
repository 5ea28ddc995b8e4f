"""Figures as data, and plotting them with matplotlib: curves, and galleries of pictures and maps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from jaxtyping import Float
from torch import Tensor

from debayes.system import files
from debayes.system.errors import DebayesError


@dataclass(frozen=True)
class Curve:
    """One line of a plot."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    dashed: bool = False
    mark: tuple[float, float] | None = None
    """Position of a dot in the colour of the curve."""


@dataclass(frozen=True)
class Plot:
    """Panels of curves by their titles, in two columns."""

    panels: Mapping[str, Sequence[Curve]]
    x: str
    """Label of the x axes."""
    y: str
    """Label of the y axes."""


@dataclass(frozen=True)
class Panel:
    """A picture (3, h, w), or a map (h, w) shown in false colours with a colour bar."""

    title: str
    values: Float[Tensor, "..."]
    high: float | None = None
    """Upper end of a map's colour bar; None for its largest value."""
    low: float = 0.0
    """Lower end of a map's colour bar."""


@dataclass(frozen=True)
class Gallery:
    """Rows of panels."""

    rows: Sequence[Sequence[Panel]]


def check_matplotlib() -> None:
    """Raise if matplotlib is not installed."""
    if find_spec("matplotlib") is None:
        raise DebayesError('plotting figures needs matplotlib: pip install "debayes[demo]"')


def plot_figure(figure: Plot | Gallery, path: Path) -> None:
    """Plot a figure to a file, .png or .svg."""
    check_matplotlib()
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    if isinstance(figure, Plot):
        columns, rows = min(2, len(figure.panels)), -(-len(figure.panels) // 2)
        canvas = Figure(figsize=(5.4 * columns, 4 * rows), layout="constrained")
        _plot_curves(canvas, figure)
    else:
        canvas = Figure(figsize=_gallery_size(figure))
        _plot_gallery(canvas, figure)
    kind = path.suffix[1:].lower()
    with files.replace(path) as temporary, rc_context({"svg.hashsalt": "debayes"}):  # reproducible files
        canvas.savefig(temporary, format=kind, dpi=130, metadata={"Date": None} if kind == "svg" else None)


def _plot_curves(canvas: Any, plot: Plot) -> None:
    columns, rows = min(2, len(plot.panels)), -(-len(plot.panels) // 2)
    grid = canvas.subplots(rows, columns, squeeze=False).flatten()
    for axes in grid[len(plot.panels) :]:
        axes.axis("off")
    for axes, (title, curves) in zip(grid, plot.panels.items(), strict=False):
        for curve in curves:
            (line,) = axes.plot(curve.x, curve.y, "--" if curve.dashed else "-", label=curve.name, linewidth=1.6)
            if curve.mark is not None:
                axes.plot(*curve.mark, "o", color=line.get_color(), markersize=7)
        axes.set(title=title, xlabel=plot.x, ylabel=plot.y)
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")


def _plot_gallery(canvas: Any, gallery: Gallery) -> None:
    """Panels are aligned at the top of their row: title, picture, and for a map its colour bar below."""
    width, height = _gallery_size(gallery)
    top = height
    for row in gallery.rows:
        for i, panel in enumerate(row):
            panel_height = _PANEL_WIDTH * panel.values.shape[-2] / panel.values.shape[-1]
            left, bottom = i * (_PANEL_WIDTH + _GAP) + _GAP / 2, top - _TITLE - panel_height
            axes = canvas.add_axes((left / width, bottom / height, _PANEL_WIDTH / width, panel_height / height))
            axes.axis("off")
            axes.set_title(panel.title, fontsize=10)
            if panel.values.ndim == 3:
                axes.imshow(panel.values.clamp(0, 1).permute(1, 2, 0).numpy(), interpolation="nearest")
                continue
            high = float(panel.values.max()) if panel.high is None else panel.high
            shown = axes.imshow(panel.values.numpy(), vmin=panel.low, vmax=high, interpolation="nearest")
            place = ((left + 0.1) / width, (bottom - 0.2) / height, (_PANEL_WIDTH - 0.2) / width, 0.12 / height)
            canvas.colorbar(shown, cax=canvas.add_axes(place), orientation="horizontal")
        top -= _row_height(row)


# In inches: width of a panel, gap between panels, space above for the title, space below a map for its colour bar.
_PANEL_WIDTH, _GAP, _TITLE, _COLOR_BAR = 3.0, 0.12, 0.32, 0.45


def _gallery_size(gallery: Gallery) -> tuple[float, float]:
    """Width and height of a gallery in inches."""
    return max(len(row) for row in gallery.rows) * (_PANEL_WIDTH + _GAP), sum(
        _row_height(row) for row in gallery.rows
    ) + 0.05


def _row_height(row: Sequence[Panel]) -> float:
    """Height of a row in inches."""
    pictures = [
        _PANEL_WIDTH * p.values.shape[-2] / p.values.shape[-1] + _COLOR_BAR * (p.values.ndim == 2) for p in row
    ]
    return _TITLE + max(pictures)
