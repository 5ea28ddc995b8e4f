"""Processes that train one network together: started by torchrun, each with a part of every batch.

    torchrun --nproc-per-node 8 -m debayes train RECIPE

Every process holds the whole network and computes the gradient of its part of the batch; the gradients are
averaged. So several processes take the same steps as one, but faster.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor, nn


@dataclass(frozen=True)
class Processes:
    """This process among those that train together; by default it is the only one."""

    rank: int = 0
    """Its number."""
    size: int = 1
    """How many there are."""
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    """The device it trains on."""

    @property
    def is_main(self) -> bool:
        """Whether this is the process that validates, logs and saves."""
        return self.rank == 0

    def shard(self, batch: Tensor) -> Tensor:
        """The rows of a batch that this process works on."""
        return batch.chunk(self.size)[self.rank]

    def average_gradients(self, network: nn.Module) -> None:
        """Replace every gradient by its mean over the processes: that of the whole batch."""
        if self.size == 1:
            return
        gradients = [p.grad for p in network.parameters() if p.grad is not None]
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        dist.all_reduce(flat)
        pieces = torch.split(flat / self.size, [gradient.numel() for gradient in gradients])
        for gradient, piece in zip(gradients, pieces, strict=True):
            gradient.copy_(piece.view_as(gradient))

    def average(self, number: Tensor) -> float:
        """The mean of a number over the processes."""
        if self.size > 1:
            dist.all_reduce(number := number.clone())
        return float(number) / self.size

    def broadcast_scalar(self, number: float) -> float:
        """The main process's number."""
        if self.size == 1:
            return number
        shared = torch.tensor(number, dtype=torch.float64, device=self.device)
        dist.broadcast(shared, 0)
        return float(shared)

    def broadcast(self, numbers: Tensor) -> None:
        """Overwrite the numbers with the main process's."""
        if self.size > 1:
            dist.broadcast(numbers, 0)


@contextmanager
def join(device: str) -> Iterator[Processes]:
    """The group of processes in which torchrun started this one, or this process alone; `device` is a kind, such as
    "cuda".
    """
    if not {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR"} <= set(os.environ):
        yield Processes(device=torch.device(device))
        return
    place = torch.device(device, int(os.environ["LOCAL_RANK"])) if device == "cuda" else torch.device(device)
    if place.type == "cuda":
        torch.cuda.set_device(place)
    dist.init_process_group("nccl" if place.type == "cuda" else "gloo")
    try:
        yield Processes(dist.get_rank(), dist.get_world_size(), place)
        dist.barrier()
    finally:
        dist.destroy_process_group()
