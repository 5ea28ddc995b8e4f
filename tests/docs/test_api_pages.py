"""The API reference lists every public name, and its examples run."""

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
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_examples(page: Path) -> None:
    """The examples of a page, in their order, print what the page says."""
    examples = "\n".join(re.findall(r"```pycon\n(.*?)```", page.read_text(), re.DOTALL))
    flags = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
    runner = doctest.DocTestRunner(optionflags=flags)
    runner.run(doctest.DocTestParser().get_doctest(examples, {}, page.name, str(page), 0))
    assert runner.failures == 0
