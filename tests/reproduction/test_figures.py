"""Plotted figures: files of the right kind, with their titles, curves and colours."""

from pathlib import Path

import pytest
import torch

from debayes.formats import pictures
from debayes.reproduction.figures import Curve, Gallery, Panel, Plot, plot_figure
from debayes.system.errors import DebayesError


def test_plot_has_its_labels(tmp_path: Path) -> None:
    """The SVG has the titles, labels and names of the curves."""
    curves = [Curve("first", [0, 1, 2], [1, 3, 2], mark=(1.2, 2.0)), Curve("second", [0, 2], [2, 2], dashed=True)]
    plot_figure(Plot({"a panel": curves}, "step", "dB"), tmp_path / "plot.svg")
    text = (tmp_path / "plot.svg").read_text()
    assert text.startswith("<?xml") and text.count("<!-- ") >= 5
    for word in ("a panel", "first", "second", "step", "dB"):
        assert f"<!-- {word} -->" in text


def test_gallery_has_its_pictures(tmp_path: Path) -> None:
    """The colours of a red, a green and a false-colour panel are in the PNG."""
    red, green = torch.zeros(3, 8, 8), torch.zeros(3, 8, 8)
    red[0], green[1] = 1, 1
    rows = [[Panel("red", red), Panel("green", green)], [Panel("map", torch.linspace(0, 1, 64).view(8, 8))]]
    plot_figure(Gallery(rows), tmp_path / "gallery.png")
    picture = pictures.read(tmp_path / "gallery.png")
    for color in ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (253 / 255, 231 / 255, 36 / 255)):
        found = (picture - torch.tensor(color)[:, None, None]).abs().amax(0) < 0.01
        assert int(found.sum()) > 100


def test_missing_matplotlib_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error message has the command that installs it, and no file is written."""
    monkeypatch.setattr("debayes.reproduction.figures.find_spec", lambda name: None)
    with pytest.raises(DebayesError, match="needs matplotlib: pip install"):
        plot_figure(Plot({}, "x", "y"), tmp_path / "plot.svg")
    assert not list(tmp_path.iterdir())


def test_maps_have_their_scale(tmp_path: Path) -> None:
    """Values at and above the upper end have the last colour; with another end the picture differs."""
    values = torch.linspace(0, 1, 64).view(8, 8)
    yellow = torch.tensor([253 / 255, 231 / 255, 36 / 255])[:, None, None]
    counts = []
    for high in (None, 0.5):
        plot_figure(Gallery([[Panel("map", values, high)]]), tmp_path / "map.png")
        picture = pictures.read(tmp_path / "map.png")
        counts.append(int(((picture - yellow).abs().amax(0) < 0.01).sum()))
    assert counts[1] > 10 * counts[0]


def test_the_same_plot_is_the_same_file(tmp_path: Path) -> None:
    """SVG files have no date and no random identifiers."""
    plot = Plot({"panel": [Curve("curve", [0, 1], [1, 2])]}, "x", "y")
    for name in ("a.svg", "b.svg"):
        plot_figure(plot, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
