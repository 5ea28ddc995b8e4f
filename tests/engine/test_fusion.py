"""Which steps of a network are chains, and that doing them is the network's body."""

import pytest
import torch
from networks import untrained
from torch import nn

from debayes.engine import fusion, graph, staged_unet, winograd
from debayes.engine.fusion import Chain
from debayes.engine.graph import Convolution, Shuffle
from debayes.network.config import Config


def lengths(steps: graph.Graph) -> list[int]:
    """How many convolutions each chain has."""
    return [len(step.convolutions) for step in fusion.link(steps) if isinstance(step, Chain)]


def test_residual_blocks_are_chains() -> None:
    """The first convolution with two blocks, then two at a time; what is needed elsewhere ends a chain, and so do
    convolutions that are no 3x3."""
    network = untrained(Config(widths=(8, 16), blocks=4, bottom_blocks=1, tail=4, tail_blocks=0))
    folded = staged_unet.fold(network, shuffle_last=True)
    planes = graph.examples(network)[0]
    assert lengths(graph.trace(folded.descent, planes)) == [5, 4, 2]
    steps = staged_unet.trace_folded(network, shuffle_last=True)
    assert lengths(steps) == [5, 4, 2, 4, 4, 2]
    linked = fusion.link(steps)
    ends = [step for step in linked if isinstance(step, Chain)][-1]
    assert len(ends.inputs) == 2  # the features and the planes, which no step puts side by side
    assert [type(step) for step in linked if not isinstance(step, Chain)].count(Shuffle) == 2
    kept = [step for step in linked if isinstance(step, Convolution)]
    assert sorted(tuple(step.weight.shape[2:]) for step in kept) == [(1, 1), (1, 1), (2, 2)]


def test_no_chain_hides_what_others_need() -> None:
    """A sum with something else than its own input, or of a result that is used twice, is no residual block."""

    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.third = (nn.Conv2d(4, 4, 3, padding=1) for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.first(x)
            z = self.second(y)
            return torch.cat((z + y, self.third(z), y), 1)

    torch.manual_seed(0)
    module, x = Odd(), torch.randn(1, 4, 9, 10)
    steps = graph.trace(module, x)
    assert lengths(steps) == [1, 1, 1]
    if winograd.available():
        torch.testing.assert_close(fusion.build(steps)(x)[0], module(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("architecture", ["unet", "paper"])
def test_chains_are_the_body(architecture: str) -> None:
    """Step by step the same as the network's body, at the border too."""
    if not winograd.available():
        pytest.skip("debayes was installed without a C compiler, or for another processor")
    shapes = {
        "unet": Config(widths=(6, 20, 8), blocks=2, bottom_blocks=3, tail=4, tail_blocks=1),
        "paper": Config("paper", widths=(8,), blocks=2, groups=2, growth=4, layers=3),
    }
    network = untrained(shapes[architecture])
    inputs = (torch.rand(2, 4, 40, 56) - 0.5, torch.rand(2, 3, 80, 112) - 0.5)
    (found,) = fusion.build(graph.trace(network.body, *graph.examples(network)))(*inputs)
    torch.testing.assert_close(found, network.body(*inputs), rtol=1e-4, atol=1e-4)
