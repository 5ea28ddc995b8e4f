"""The Muon optimizer: its steps have the same length in all directions of a filter bank (Jordan et al. 2024).

The momentum of a weight matrix is replaced by the nearest orthogonal matrix, so that directions with small
gradients, which Adam learns slowly, are learnt as fast as the others. The rows of a convolution's matrix are its
filters.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

# The polynomial a x + b x³ + c x⁵: applied five times it maps numbers from 0.003 to 1 to between 0.7 and 1.2.
POLYNOMIAL = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5

# Banks with fewer filters or inputs, at the ends of a network, are left to Adam.
MIN_CHANNELS = 16


def filter_banks(network: nn.Module) -> list[nn.Parameter]:
    """The weights that Muon trains: those of all convolutions but the narrow ones at the ends."""
    return [p for p in network.parameters() if p.ndim == 4 and min(p.shape[:2]) >= MIN_CHANNELS]


def orthogonalise(matrices: Tensor) -> Tensor:
    """Matrices (n, rows, columns) with their singular values brought near 1, in bfloat16 on CUDA."""
    a, b, c = POLYNOMIAL
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp_min(1e-12)
    x = x.bfloat16() if x.is_cuda else x
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.mT if tall else x).to(matrices.dtype)


class Muon(torch.optim.Optimizer):
    """The optimizer; its steps are as long as those of AdamW, so that learning rates compare (Liu et al. 2025)."""

    def __init__(
        self, banks: Iterable[Tensor], lr: float, momentum: float = 0.95, weight_decay: float = 0.0
    ) -> None:
        super().__init__(banks, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Update the banks; those of one shape at once."""
        assert closure is None
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[Tensor]] = defaultdict(list)
            for bank in group["params"]:
                if bank.grad is not None:
                    by_shape[bank.shape].append(bank)
                    self.state[bank].setdefault("momentum", torch.zeros_like(bank))
            for shape, banks in by_shape.items():
                gradients = [bank.grad for bank in banks if bank.grad is not None]
                momenta = [self.state[bank]["momentum"] for bank in banks]
                torch._foreach_lerp_(momenta, gradients, 1 - group["momentum"])
                ahead = torch._foreach_lerp(gradients, momenta, group["momentum"])  # as Nesterov does
                directions = orthogonalise(torch.stack([gradient.flatten(1) for gradient in ahead]))
                length = 0.2 * max(directions.shape[1:]) ** 0.5 * group["lr"]
                torch._foreach_mul_(banks, 1 - group["lr"] * group["weight_decay"])
                torch._foreach_add_(banks, [matrix.view(shape) for matrix in directions], alpha=-length)
