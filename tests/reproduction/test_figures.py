"""Figures drawn from data: they are files of their kind, with what was asked for in them."""

from pathlib import Path

import pytest
import torch

from debayes.formats import pictures
from debayes.reproduction.figures import Curve, Gallery, Panel, Plot, draw


def test_plot_names_its_curves(tmp_path: Path) -> None:
    """The SVG holds the titles, labels and a mark."""
    curves = [Curve("first", [0, 1, 2], [1, 3, 2], mark=(1.2, 2.0)), Curve("second", [0, 2], [2, 2], dashed=True)]
    draw(Plot({"a panel": curves}, "step", "dB"), tmp_path / "plot.svg")
    text = (tmp_path / "plot.svg").read_text()
    assert text.startswith("<?xml") and text.count("<!-- ") >= 5
    for word in ("a panel", "first", "second", "step", "dB"):
        assert f"<!-- {word} -->" in text


def test_gallery_shows_its_pictures(tmp_path: Path) -> None:
    """A red, a green and a false-colour panel: their colours are in the PNG."""
    red, green = torch.zeros(3, 8, 8), torch.zeros(3, 8, 8)
    red[0], green[1] = 1, 1
    rows = [[Panel("red", red), Panel("green", green)], [Panel("map", torch.linspace(0, 1, 64).view(8, 8))]]
    draw(Gallery(rows), tmp_path / "gallery.png")
    picture = pictures.read(tmp_path / "gallery.png")
    for color in ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (253 / 255, 231 / 255, 36 / 255)):
        found = (picture - torch.tensor(color)[:, None, None]).abs().amax(0) < 0.01
        assert int(found.sum()) > 100


def test_missing_matplotlib_gets_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("debayes.reproduction.figures.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match="pip install"):
        draw(Plot({}, "x", "y"), tmp_path / "plot.svg")
    assert not list(tmp_path.iterdir())
