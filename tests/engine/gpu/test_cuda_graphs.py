"""Recordings of runs on a GPU, by a stand-in for the GPU's part: when they are made, played and forgotten."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from debayes.engine.gpu import cuda_graphs


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[torch.Size]:
    """The sizes that were recorded, in turn; what plays them does the run again, into the same memory."""
    sizes = []

    def record(run: Callable[[Tensor], Tensor], x: Tensor) -> cuda_graphs._Recording[Tensor]:
        sizes.append(x.shape)
        here, output = x.clone(), torch.zeros_like(x)
        return cuda_graphs._Recording(lambda: (output.copy_(run(here)), None)[1], here, output)

    monkeypatch.setattr(cuda_graphs, "_record", record)
    return sizes


def double(x: Tensor) -> Tensor:
    return 2 * x


def test_the_second_run_of_a_size_is_recorded_and_later_ones_played(made: list[torch.Size]) -> None:
    """Every run gives its own pixels; those that are played lie in one place."""
    play = cuda_graphs.record(double)
    places = []
    for i in range(5):
        x = torch.full((1, 1, 4, 6), float(i))
        found = play(x)
        assert torch.equal(found, 2 * x)
        places.append(found.data_ptr())
    assert made == [(1, 1, 4, 6)]
    assert len(set(places[1:])) == 1


def test_two_sizes_are_kept_and_a_third_forgets_them(made: list[torch.Size]) -> None:
    """The ensemble has two, taking turns; a folder of pictures of many sizes holds no more memory than that."""
    play = cuda_graphs.record(double)
    tall, wide, other = torch.zeros(1, 1, 4, 2), torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 6, 6)
    for _ in range(3):
        play(tall)
        play(wide)
    assert made == [tall.shape, wide.shape]
    for x in (other, tall, tall):
        play(x)
    assert made == [tall.shape, wide.shape, tall.shape]
