"""What the darkroom's tests share."""

from pathlib import Path

import pytest

from debayes.darkroom import mosaics
from debayes.evaluation import scenes
from debayes.formats import pictures
from debayes.network import weights
from debayes.network.network import Network


@pytest.fixture(scope="module")
def network() -> Network:
    """The small network for raws."""
    return weights.load("raw-s")


@pytest.fixture
def shot(tmp_path: Path) -> Path:
    """A simulated raw in a file, with its truth beside it."""
    pictures.write(tmp_path / "cat.png", scenes.photograph("chelsea")[:, 60:187, 90:241], bits=8)
    mosaics.simulate_raw(tmp_path / "cat.png", tmp_path / "cat.dng", iso=3200, pattern="GBRG")
    return tmp_path / "cat.dng"
