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
    panels, about = [maps.Panel(maps.shrink(levels).mean(2), "noise", "how to read it")], {"source": "a.nef"}
    table, shown = maps.write(tmp_path / "a.dng", "noise", levels, panels, about, unit="1 = white")
    assert (table.name, shown.name) == ("a.noise.tiff", "a.noise.png")
    with tifffile.TiffFile(table) as file:
        record = json.loads(file.pages[0].description)["debayes"]
        numbers = file.asarray()
    assert numbers.dtype == np.uint16 and record["source"] == "a.nef"
    assert record["map"] == "noise" and record["unit"] == "1 = white"
    assert np.allclose(numbers / 65535 * record["65535 is"], levels, atol=1e-6)
    assert pictures.read(shown).shape[0] == 3


RAMP = np.tile(np.linspace(0, 0.02, 900, dtype=np.float32), (50, 1))


def test_panel() -> None:
    """Low is violet and high is yellow; a scale and the words stand below, all of them, in whole lines."""
    picture = maps.plot([maps.Panel(RAMP, "noise", "")])
    assert picture.shape[1] == 900 and picture.shape[0] > 50 + maps.SCALE + 2 * maps.SPACING
    assert picture[5, 3].tolist() == pytest.approx([68, 1, 84], abs=3)
    assert picture[5, -3].tolist() == pytest.approx([253, 231, 37], abs=3)
    assert (picture[50:] == 255).all(2).mean() > 0.3
    fixed = maps.plot([maps.Panel(RAMP, "noise", "", 0.04)])
    assert fixed[5, -3].tolist() == pytest.approx(maps.colorize(np.array([[0.5]]))[0, 0], abs=3)
    text = " ".join(f"word{i}" for i in range(60))
    longer = maps.plot([maps.Panel(RAMP, "noise", text)])
    assert longer.shape[0] >= picture.shape[0] + 3 * maps.SPACING
    assert (longer[picture.shape[0] : -maps.GAP, :, 0] < 200).any()
    lines = maps._wrap(text, lambda line: len(line) <= 40)
    assert " ".join(lines) == text and max(map(len, lines)) <= 40
    assert maps._wrap("unbreakable", lambda _: False) == ["unbreakable"]
    small = maps.plot([maps.Panel(RAMP[:4, :6], "noise", text)])
    assert small.shape[1] >= maps.NARROWEST


def test_several_panels() -> None:
    """Wide ones below each other, tall ones beside each other."""
    wide, tall = (maps.Panel(values, "noise", "words") for values in (RAMP, RAMP.T.copy()))
    one, two = maps.plot([wide]), maps.plot([wide, wide])
    assert two.shape == (2 * one.shape[0], one.shape[1], 3) and (two[: len(one)] == one).all()
    one, two = maps.plot([tall]), maps.plot([tall, tall])
    assert two.shape == (one.shape[0], 2 * one.shape[1], 3) and (two[:, one.shape[1] :] == one).all()


@pytest.mark.parametrize("shape", [(50, 4000, 3), (4001, 7, 3), (30, 40, 3), (1, 3300, 3)])
def test_shrink(shape: tuple[int, int, int]) -> None:
    """Large maps are averaged over whole squares, small ones are kept; views that are turned too."""
    values = np.random.default_rng(0).random(shape).astype(np.float16)
    small = maps.shrink(values)
    assert max(small.shape) <= maps.SIDE and small.dtype == np.float32
    factor = -(-max(shape) // maps.SIDE)
    square = values[:factor, :factor].astype(np.float32).mean((0, 1))
    np.testing.assert_allclose(small[0, 0], square, rtol=1e-5)
    np.testing.assert_allclose(maps.shrink(values.transpose(1, 0, 2)), small.transpose(1, 0, 2), rtol=1e-5)


def test_colors_are_even() -> None:
    """The scale gets lighter all the way: it reads in grey too."""
    colors = maps.colorize(np.linspace(0, 1, 100)[None])[0].astype(float)
    lightness = colors @ (0.2126, 0.7152, 0.0722)
    assert (np.diff(lightness) > 0).all()
    assert (maps.colorize(np.array([[-1.0, 2.0]])) == maps.colorize(np.array([[0.0, 1.0]]))).all()
