"""The API reference lists every public name, and the example in the docstring of each runs."""

import doctest
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import debayes
from debayes.darkroom import mosaics
from debayes.formats import pictures

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted((ROOT / "docs/api").glob("*.md"))


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with what the examples name: a picture, a raw of it, and the recipes."""
    picture = torch.nn.functional.interpolate(
        torch.rand(1, 3, 6, 8, generator=torch.Generator().manual_seed(0)), size=(48, 64), mode="bicubic"
    )
    pictures.write(tmp_path / "photo.png", picture[0].clamp(0, 1), bits=8)
    mosaics.simulate_raw(tmp_path / "photo.png", tmp_path / "photo.dng", iso=1600, pattern="GRBG", seed=0)
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    monkeypatch.chdir(tmp_path)
    yield tmp_path


def test_every_public_name_is_listed() -> None:
    """A new public name needs an entry."""
    listed = set(re.findall(r"heading: debayes\.(\w+)", "".join(page.read_text() for page in PAGES)))
    assert set(debayes.__all__) <= listed


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("name", debayes.__all__)
def test_examples(name: str) -> None:
    """Each has one, which prints what it says."""
    tests = doctest.DocTestFinder().find(getattr(debayes, name), name, globs={})
    assert tests[0].name == name and tests[0].examples
    runner = doctest.DocTestRunner()
    for test in tests:  # its own, and those of its methods
        runner.run(test)
    assert runner.failures == 0
