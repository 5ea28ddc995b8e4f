"""The parts of the networks: convolutions and residual blocks. Tested in tests/network/test_network.py."""

from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

M = TypeVar("M", bound=nn.Module)


def conv(inputs: int, outputs: int, kernel: int = 3, *, stride: int = 1, gain: float = 1.0) -> nn.Conv2d:
    """A convolution that keeps size and variance: He's initialisation times `gain`, bias 0."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2 if stride == 1 else 0)
    nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
    with torch.no_grad():
        conv.weight.mul_(gain)
    assert conv.bias is not None
    nn.init.zeros_(conv.bias)
    return conv


class Residual(nn.Module):
    """x + conv(relu(conv(x))). The second convolution starts at 0, so deep stacks start as the identity."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.first = conv(width, hidden)
        self.second = conv(hidden, width, gain=0.0)

    def forward(self, x: Tensor) -> Tensor:
        return torch.add(x, self.second(F.relu(self.first(x))))


def convolution_weights(module: nn.Module) -> int:
    """The number of weights of a module's convolutions, without biases: the multiply-accumulates at each place that
    they are applied to.
    """
    return sum(part.weight.numel() for part in module.modules() if isinstance(part, nn.Conv2d))


def to_channels_last(module: M) -> M:
    """The module itself, stored channels last: a sixth faster on a CPU, and the layout that tensor cores need."""
    module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch forgot this overload
    return module


def residuals(width: int, hidden: list[int]) -> nn.Sequential:
    """Residual blocks in a row; those with no hidden channels are left out."""
    return nn.Sequential(*(Residual(width, channels) for channels in hidden if channels))
