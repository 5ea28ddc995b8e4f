"""Pictures at hand: what they must be for the experiments to mean something."""

import pytest
import torch

from debayes.evaluation import scenes


def test_cartoon_is_plain_areas_with_sharp_edges() -> None:
    """Most pixels equal a neighbour exactly, and edges are one pixel wide: there is next to nothing between."""
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
    """Each is a colour picture that needs no network."""
    picture = scenes.photograph(name)
    assert picture.shape[0] == 3 and min(picture.shape[1:]) >= 256
    assert 0.1 < float(picture.mean()) < 0.9


def test_unknown_photograph_gets_a_sentence() -> None:
    with pytest.raises(ValueError, match=r"the photographs at hand are astronaut, .*not 'lena'"):
        scenes.photograph("lena")
