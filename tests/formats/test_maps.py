"""Maps in files: the numbers can be read again, the picture has the scale's colours."""

import json
from pathlib import Path

import numpy as np
import pytest
import tifffile

from debayes.formats import maps, pictures


def test_numbers_come_back(tmp_path: Path) -> None:
    """The TIFF holds the map in 16 bits, and says what its largest number stands for."""
    levels = np.linspace(0, 0.03, 60 * 50 * 3).reshape(60, 50, 3).astype(np.float16)
    table, shown = maps.write(tmp_path / "a.dng", "noise", levels, {"source": "a.nef"}, unit="1 = white")
    assert (table.name, shown.name) == ("a.noise.tiff", "a.noise.png")
    with tifffile.TiffFile(table) as file:
        record = json.loads(file.pages[0].description)["debayes"]
        numbers = file.asarray()
    assert numbers.dtype == np.uint16 and record["source"] == "a.nef"
    assert record["map"] == "noise" and record["unit"] == "1 = white"
    assert np.allclose(numbers / 65535 * record["65535 is"], levels, atol=1e-6)
    assert pictures.read(shown).shape[0] == 3


def test_picture() -> None:
    """Low is violet and high is yellow; a large map is made smaller; a scale stands below."""
    values = np.tile(np.linspace(0, 0.02, 4000), (50, 1))
    picture = maps.plot(values, "noise")
    assert picture.shape[1] == 4000 // 3 and picture.shape[0] > 16
    assert picture[5, 3].tolist() == pytest.approx([68, 1, 84], abs=3)
    assert picture[5, -3].tolist() == pytest.approx([253, 231, 37], abs=3)
    assert (picture[20:] == 255).all(2).mean() > 0.3


def test_colors_are_even() -> None:
    """The scale gets lighter all the way: it reads in grey too."""
    colors = maps.colorize(np.linspace(0, 1, 100)[None])[0].astype(float)
    lightness = colors @ (0.2126, 0.7152, 0.0722)
    assert (np.diff(lightness) > 0).all()
    assert (maps.colorize(np.array([[-1.0, 2.0]])) == maps.colorize(np.array([[0.0, 1.0]]))).all()
