"""Columns of random numbers by name: they cover the matrix once, in order, and can be set."""

import torch

from debayes.imaging.draws import Columns


def test_columns_cover_the_matrix_in_order() -> None:
    """Side by side the named columns are the matrix; shaped for images they hold the same numbers."""
    layout = Columns(angle=1, color=3, pitch=2)
    draws = torch.rand(4, layout.width)
    assert layout.width == 6
    assert torch.equal(torch.cat([layout(name, draws) for name in ("angle", "color", "pitch")], 1), draws)
    assert torch.equal(layout.as_images("color", draws)[:, :, 0, 0], draws[:, 1:4])


def test_columns_can_be_set() -> None:
    """What a name returns is a view of the matrix."""
    layout = Columns(angle=1, color=3)
    draws = torch.zeros(2, layout.width)
    layout("color", draws).fill_(0.5)
    assert draws.tolist() == [[0, 0.5, 0.5, 0.5]] * 2
