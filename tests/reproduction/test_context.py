"""What experiments are given: pictures of sets or substitutes, crops, and notes about what is missing."""

import re
from pathlib import Path

import pytest
import torch
from networks import untrained

from debayes.evaluation import scenes
from debayes.formats import pictures
from debayes.network.config import Config
from debayes.reproduction import context
from debayes.reproduction.context import Context

TINY = Config(widths=(8,), blocks=1, bottom_blocks=1, tail=4, tail_blocks=0)


def make(root: Path | None, *, quick: bool = True) -> Context:
    networks = {"first": untrained(TINY), "second": untrained(TINY)}
    return Context(networks, root, quick, lambda key, compute: compute(), lambda share: None)


@pytest.mark.parametrize("below", [Path(), Path("bench")])
def test_sets_are_found_below_the_root(below: Path, tmp_path: Path) -> None:
    """As NAME or bench/NAME, where bench comes first; quick experiments see four pictures, full ones all."""
    (tmp_path / below / "mine").mkdir(parents=True)
    for i in range(6):
        pictures.write(tmp_path / below / "mine" / f"{i}.png", torch.zeros(3, 4, 4), bits=8)
    assert [path.name for path in make(tmp_path).picture_paths("mine")] == [f"{i}.png" for i in range(4)]
    assert len(make(tmp_path, quick=False).picture_paths("mine")) == 6
    (tmp_path / "bench" / "mine").mkdir(parents=True, exist_ok=True)
    assert make(tmp_path).folders("mine")[0] == tmp_path / "bench" / "mine"
    assert make(tmp_path).picture_paths("other") == make(None).picture_paths("mine") == []


def test_photographs_replace_missing_sets(tmp_path: Path) -> None:
    """They are cropped like the pictures of a set, and the note names both."""
    quick = make(tmp_path)
    used = quick.some_pictures("mcm18", 2)
    assert list(used) == list(scenes.PHOTOGRAPHS[:2])
    assert all(picture.shape == (3, context.QUICK_SIZE, context.QUICK_SIZE) for picture in used.values())
    (note,) = quick.substitution_note("mcm18", used)
    assert "mcm18 (replaced by astronaut, chelsea of scikit-image)" in note and "DEBAYES_DATA" in note
    (tmp_path / "mcm18").mkdir()
    pictures.write(tmp_path / "mcm18" / "a.png", torch.rand(3, 5, 7), bits=8)
    assert quick.some_pictures("mcm18", 2)["a.png"].shape == (3, 4, 6)
    assert quick.substitution_note("mcm18", used) == context.missing_note([]) == []


@pytest.mark.parametrize(
    ("height", "width", "size", "expected"),
    [(7, 9, None, (6, 8)), (10, 6, 4, (4, 4)), (6, 12, 8, (6, 8)), (5, 5, 5, (4, 4))],
)
def test_crops_are_even_and_central(height: int, width: int, size: int | None, expected: tuple[int, int]) -> None:
    """The margins of the crop differ by at most one pixel from one side to the other."""
    rows = torch.arange(height).view(1, -1, 1).expand(3, -1, width)
    columns = torch.arange(width).view(1, 1, -1).expand(3, height, -1)
    for grid, side, length in ((rows, height, expected[0]), (columns, width, expected[1])):
        crop = context.crop_to_even(grid, size)
        assert crop.shape[1:] == expected
        before, after = int(crop.min()), side - 1 - int(crop.max())
        assert int(crop.max()) - int(crop.min()) + 1 == length
        assert after - before in (0, 1)


def test_lengths_and_models() -> None:
    """Single-network experiments take the first model; only quick runs have a note."""
    quick, full = make(None), make(None, quick=False)
    assert quick.model == "first" and quick.network is quick.models["first"]
    assert (quick.length, full.length, full.quick_note) == ("quick", "full", "")
    assert "not comparable" in quick.quick_note


def test_the_page_on_data_has_the_same_sources() -> None:
    """docs/data.md says where each set is had, in the same words."""
    text = (Path(__file__).parent.parent.parent / "docs/data.md").read_text().replace("`", "")
    for name, source in context.SOURCES.items():
        assert re.search(rf"^\| {name} \| .* \| {re.escape(source)} \|$", text, re.MULTILINE)
