"""Processes that train together: the arithmetic of one, and of two over gloo. `test_loop` trains with two."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from debayes.training import distributed
from debayes.training.distributed import Processes


@pytest.mark.parametrize("size", [1, 2, 4])
def test_shards_are_the_batch(size: int) -> None:
    """The shards of all processes, in order, are the batch."""
    batch = torch.arange(24).view(8, 3)
    assert torch.equal(torch.cat([Processes(rank, size).shard(batch) for rank in range(size)]), batch)


def test_one_process_averages_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without torchrun there is one process, whose gradients and numbers stay as they are."""
    monkeypatch.delenv("RANK", raising=False)
    with distributed.join("cpu") as processes:
        assert processes == Processes() and processes.is_main
        network = nn.Linear(2, 1)
        network(torch.ones(1, 2)).backward()
        before = network.weight.grad.clone()
        processes.average_gradients(network)
        assert torch.equal(network.weight.grad, before)
        assert processes.average(torch.tensor(3.0)) == processes.broadcast_scalar(3.0) == 3.0
        numbers = torch.arange(3.0)
        processes.broadcast(numbers)
        assert numbers.tolist() == [0, 1, 2]


# In each of two processes: gradients 1 and 3, numbers 10 and 30.
TWO = """
import torch
from torch import nn
from debayes.training.distributed import join
with join("cpu") as processes:
    assert processes.size == 2
    own = 1.0 + 2 * processes.rank
    network = nn.Linear(2, 1)
    network.weight.grad = torch.tensor([[own, -own]])  # the bias has none
    processes.average_gradients(network)
    assert network.weight.grad.tolist() == [[2.0, -2.0]] and network.bias.grad is None
    number = torch.tensor(10 * own)
    assert processes.average(number) == 20 and float(number) == 10 * own
    assert processes.broadcast_scalar(own) == 1
    numbers = torch.tensor([own, 7.0])
    processes.broadcast(numbers)
    assert numbers.tolist() == [1, 7]
    assert processes.is_main == (processes.rank == 0)
    assert processes.shard(torch.arange(4)).tolist() == [[0, 1], [2, 3]][processes.rank]
"""


def test_two_processes_average(tmp_path: Path) -> None:
    """Gradients and numbers become the means of both, broadcast ones those of the main process."""
    script = tmp_path / "two.py"
    script.write_text(TWO)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    done = subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
