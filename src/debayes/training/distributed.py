"""Processes that train one network together: started by torchrun, each with its share of every batch.

    torchrun --nproc-per-node 8 -m debayes train RECIPE

Every process holds the whole network and makes its part of the batch; the gradients are averaged. So a team makes
the same steps as one process does, only sooner.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor, nn


@dataclass(frozen=True)
class Team:
    """One process among `size` of them; alone by default."""

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def leads(self) -> bool:
        """Whether this is the process that judges, logs and saves."""
        return self.rank == 0

    def part(self, batch: Tensor) -> Tensor:
        """The rows of a batch that this process works on."""
        return batch.chunk(self.size)[self.rank]

    def average_gradients(self, network: nn.Module) -> None:
        """Replace every gradient by its mean over the team: that of the whole batch."""
        if self.size == 1:
            return
        gradients = [p.grad for p in network.parameters() if p.grad is not None]
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        dist.all_reduce(flat)
        pieces = torch.split(flat / self.size, [gradient.numel() for gradient in gradients])
        for gradient, piece in zip(gradients, pieces, strict=True):
            gradient.copy_(piece.view_as(gradient))

    def average(self, number: Tensor) -> float:
        """The mean of a number over the team."""
        if self.size > 1:
            dist.all_reduce(number := number.clone())
        return float(number) / self.size

    def agree(self, number: float) -> float:
        """The leader's number."""
        if self.size == 1:
            return number
        shared = torch.tensor(number, dtype=torch.float64, device=self.device)
        dist.broadcast(shared, 0)
        return float(shared)

    def follow(self, numbers: Tensor) -> Tensor:
        """The numbers, which are made the leader's."""
        if self.size > 1:
            dist.broadcast(numbers, 0)
        return numbers


@contextmanager
def join(device: str) -> Iterator[Team]:
    """The team that torchrun started this process for, or a team of one; `device` is a kind, such as "cuda"."""
    if not {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR"} <= set(os.environ):
        yield Team(device=torch.device(device))
        return
    place = torch.device(device, int(os.environ["LOCAL_RANK"])) if device == "cuda" else torch.device(device)
    if place.type == "cuda":
        torch.cuda.set_device(place)
    dist.init_process_group("nccl" if place.type == "cuda" else "gloo")
    try:
        yield Team(dist.get_rank(), dist.get_world_size(), place)
        dist.barrier()
    finally:
        dist.destroy_process_group()
