"""Figures as data, and how they are drawn: curves over an axis, and galleries of pictures and maps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from jaxtyping import Float
from torch import Tensor

from debayes.system import files


@dataclass(frozen=True)
class Curve:
    """One line of a plot."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    dashed: bool = False
    mark: tuple[float, float] | None = None
    """Where a dot of its colour is set."""


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
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    if isinstance(figure, Plot):
        columns, rows = min(2, len(figure.panels)), -(-len(figure.panels) // 2)
        canvas = Figure(figsize=(5.4 * columns, 4 * rows), layout="constrained")
        _draw_plot(canvas, figure)
    else:
        canvas = Figure(figsize=_size(figure))
        _draw_gallery(canvas, figure)
    kind = path.suffix[1:].lower()
    with files.replace(path) as temporary, rc_context({"svg.hashsalt": "debayes"}):  # the same figure twice
        canvas.savefig(temporary, format=kind, dpi=130, metadata={"Date": None} if kind == "svg" else None)


def _draw_plot(canvas: Any, plot: Plot) -> None:
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


def _draw_gallery(canvas: Any, gallery: Gallery) -> None:
    """Each panel hangs from the top of its row: title, picture, and below a map its scale."""
    width, height = _size(gallery)
    top = height
    for row in gallery.rows:
        for i, panel in enumerate(row):
            tall = _WIDE * panel.values.shape[-2] / panel.values.shape[-1]
            left, bottom = i * (_WIDE + _GAP) + _GAP / 2, top - _TITLE - tall
            axes = canvas.add_axes((left / width, bottom / height, _WIDE / width, tall / height))
            axes.axis("off")
            axes.set_title(panel.title, fontsize=10)
            if panel.values.ndim == 3:
                axes.imshow(panel.values.clamp(0, 1).permute(1, 2, 0).numpy(), interpolation="nearest")
                continue
            most = float(panel.values.max()) if panel.most is None else panel.most
            shown = axes.imshow(panel.values.numpy(), vmin=panel.least, vmax=most, interpolation="nearest")
            place = ((left + 0.1) / width, (bottom - 0.2) / height, (_WIDE - 0.2) / width, 0.12 / height)
            canvas.colorbar(shown, cax=canvas.add_axes(place), orientation="horizontal")
        top -= _height(row)


# Inches: a panel's width, between two, above one for its title, below a map for its scale.
_WIDE, _GAP, _TITLE, _SCALE = 3.0, 0.12, 0.32, 0.45


def _size(gallery: Gallery) -> tuple[float, float]:
    """Width and height of a gallery in inches."""
    return max(len(row) for row in gallery.rows) * (_WIDE + _GAP), sum(_height(row) for row in gallery.rows) + 0.05


def _height(row: Sequence[Panel]) -> float:
    """Of a row, in inches."""
    pictures = [_WIDE * p.values.shape[-2] / p.values.shape[-1] + _SCALE * (p.values.ndim == 2) for p in row]
    return _TITLE + max(pictures)
