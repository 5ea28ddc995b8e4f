"""Teams: a batch is divided without loss, and alone nothing changes. Real processes are in test_training."""

import pytest
import torch
from torch import nn

from debayes.training import distributed
from debayes.training.distributed import Team


@pytest.mark.parametrize("size", [1, 2, 4])
def test_parts_are_the_batch(size: int) -> None:
    """The parts of all processes, in order, are the batch."""
    batch = torch.arange(24).view(8, 3)
    assert torch.equal(torch.cat([Team(rank, size).part(batch) for rank in range(size)]), batch)


def test_alone_nothing_is_averaged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without torchrun there is a team of one, whose gradients and numbers stay as they are."""
    monkeypatch.delenv("RANK", raising=False)
    with distributed.join("cpu") as alone:
        assert alone == Team() and alone.leads
        network = nn.Linear(2, 1)
        network(torch.ones(1, 2)).backward()
        before = network.weight.grad.clone()
        alone.average_gradients(network)
        assert torch.equal(network.weight.grad, before)
        assert alone.average(torch.tensor(3.0)) == alone.agree(3.0) == 3.0
