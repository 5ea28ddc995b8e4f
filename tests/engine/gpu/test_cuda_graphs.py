"""Recording functions as CUDA graphs: when they are recorded, replayed and forgotten.

Without a GPU PyTorch's graphs are replaced by ones that note each operation while they record, and do the same
operations again, from the same memory into the same memory, when they are replayed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from debayes.engine.gpu import cuda_graphs


class Graph(TorchDispatchMode):
    """A CUDA graph of operations on a CPU."""

    made: list["Graph"]

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, Tensor]] = []
        self.replays = 0
        Graph.made.append(self)

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = operation(*args, **(kwargs or {}))
        self.calls.append((operation, args, kwargs or {}, result))
        return result

    def replay(self) -> None:
        self.replays += 1
        for operation, args, kwargs, result in self.calls:
            result.copy_(operation(*args, **kwargs))


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[Graph]:
    """The graphs that are recorded, in turn."""
    Graph.made = []

    @contextmanager
    def record(graph: Graph) -> Iterator[None]:
        with graph:
            yield

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", record)
    return Graph.made


def network(x: Tensor) -> Tensor:
    return torch.relu(x - 1) + 2 * x


def test_the_second_call_of_a_size_is_recorded_and_later_ones_replayed(graphs: list[Graph]) -> None:
    """Each call gives its own values, without a call of the function; replays write to the same memory."""
    calls = 0

    def counted(x: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return network(x)

    run = cuda_graphs.record(counted)
    places = []
    for i in range(5):
        x = torch.full((1, 1, 4, 6), float(i))
        y = run(x)
        assert torch.equal(y, network(x))
        places.append(y.data_ptr())
    assert calls == 2 and len(graphs) == 1 and graphs[0].replays == 4
    assert len(set(places[1:])) == 1


def test_the_input_may_change_after_a_call(graphs: list[Graph]) -> None:
    """It is copied: a recording reads its own memory."""
    run = cuda_graphs.record(network)
    x = torch.ones(1, 1, 2, 2)
    for _ in range(2):
        y = run(x)
    x.fill_(5)
    assert torch.equal(y, torch.full_like(y, 2.0))
    assert torch.equal(run(x), network(x))
    assert graphs[0].replays == 2


def test_two_sizes_are_kept_and_a_third_forgets_them(graphs: list[Graph]) -> None:
    """The ensemble has two, taking turns; a folder of pictures of many sizes holds no more memory than that."""
    run = cuda_graphs.record(network)
    tall, wide, other = torch.rand(1, 1, 4, 2), torch.rand(1, 1, 2, 4), torch.rand(1, 1, 6, 6)
    for _ in range(3):
        assert torch.equal(run(tall), network(tall))
        assert torch.equal(run(wide), network(wide))
    assert len(graphs) == 2
    for x in (other, tall, tall):
        assert torch.equal(run(x), network(x))
    assert [graph.replays for graph in graphs] == [2, 2, 1]


@pytest.mark.gpu
def test_graphs_on_a_gpu_give_the_same_values() -> None:
    """Two sizes in turns, each with new values."""
    run = cuda_graphs.record(network)
    for i in range(4):
        for size in ((1, 1, 64, 32), (1, 1, 32, 64)):
            x = torch.rand(size, device="cuda") + i
            assert torch.equal(run(x), network(x))
