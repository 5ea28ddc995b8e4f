"""Test pictures: the properties that the experiments rely on."""

import sys

import pytest
import torch

from debayes.evaluation import scenes
from debayes.system.errors import DebayesError


def test_cartoon_is_plain_areas_with_sharp_edges() -> None:
    """Most pixels equal a neighbour exactly, and edges are one pixel wide."""
    picture = scenes.cartoon(128)
    assert picture.shape == (3, 128, 128)
    assert float(picture.min()) >= 0 and float(picture.max()) <= 1
    steps = (picture[:, :, 1:] - picture[:, :, :-1]).abs().amax(0)
    assert float((steps == 0).float().mean()) > 0.85
    assert float(steps.max()) > 0.3


def test_cartoon_scales() -> None:
    """The small cartoon is the area average of the large one."""
    small, large = scenes.cartoon(32), scenes.cartoon(128)
    difference = (small - torch.nn.functional.avg_pool2d(large, 4)).abs()
    assert float(difference.mean()) < 0.01


@pytest.mark.parametrize("name", scenes.PHOTOGRAPHS)
def test_photographs_are_there(name: str) -> None:
    """Each is a colour picture that needs no download."""
    picture = scenes.photograph(name)
    assert picture.shape[0] == 3 and min(picture.shape[1:]) >= 256
    assert 0.1 < float(picture.mean()) < 0.9


def test_unknown_photographs_are_rejected() -> None:
    """The error message lists the photographs."""
    with pytest.raises(DebayesError, match=r"the photographs of scikit-image are astronaut, .*not 'lena'"):
        scenes.photograph("lena")


def test_missing_scikit_image(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error message names the extra that installs it."""
    monkeypatch.setitem(sys.modules, "skimage", None)
    with pytest.raises(DebayesError, match=r"need scikit-image: pip install .debayes\[demo\]"):
        scenes.photograph("chelsea")


def test_wallpaper_is_tiled() -> None:
    """A picture of any size, each pixel that of the photograph at the same place modulo its size."""
    photo = scenes.photograph("chelsea")
    height, width = photo.shape[1:]
    picture = scenes.wallpaper(height + 20, 2 * width + 5)
    assert picture.shape == (3, height + 20, 2 * width + 5)
    assert torch.equal(picture[:, height:, :width], photo[:, :20])
    assert torch.equal(picture[:, :height, 2 * width :], photo[:, :, :5])
