"""What the tests of engines share: small networks, and comparisons of what two engines give."""

import pytest
import torch
from torch import Tensor

from debayes import engine
from debayes.engine import Engine, selection
from debayes.network.config import Config
from debayes.network.network import Network
from debayes.posterior.nig import NormalInverseGamma

CONFIGS = {
    "one level": Config(widths=(8,), blocks=1, bottom_blocks=1, tail=4, tail_blocks=0),
    "two levels": Config(widths=(6, 8), blocks=2, bottom_blocks=1, tail=4, tail_blocks=2),
    "three levels": Config(widths=(4, 6, 8), blocks=1, bottom_blocks=1, tail=4),
    "paper": Config("paper", widths=(8,), blocks=1, groups=2, growth=4, layers=2),
}
EXACT = ("eager", "winograd", "ncnn", "onnxruntime", "openvino")


def prepared(network: Network, name: str) -> Engine:
    """The engine, or a skipped test where it cannot run."""
    if not selection.available(name, network.device):
        pytest.skip(f"{name} is not installed, or this machine has no units for it")
    found = engine.prepare(network, name)
    assert found.name == name
    return found


def noisy(*shape: int) -> Tensor:
    """Uniform noise, always the same."""
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0))


def assert_close(left: NormalInverseGamma, right: NormalInverseGamma, tolerance: float) -> None:
    """Equal to the tolerance: image and noise level, the latter to a thousandth of itself where it is large."""
    torch.testing.assert_close(left.mean, right.mean, rtol=0, atol=tolerance)
    found, expected = left.noise_variance.sqrt(), right.noise_variance.sqrt()
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=tolerance)
