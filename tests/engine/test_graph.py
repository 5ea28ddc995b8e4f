"""Tracing a network's body."""

import pytest
import torch
import torch.nn.functional as F
from engines import CONFIGS
from networks import untrained
from torch import Tensor, nn

from debayes.engine import graph
from debayes.engine.graph import Convolution, Rectifier, Sum


def test_steps_of_a_small_network() -> None:
    """Each operation once, in order; a rectifier is part of its convolution if nothing else needs the result."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = (nn.Conv2d(4, 4, 3, padding=1) for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            y = self.first(x)
            return F.relu(torch.add(y, self.second(F.relu(y))))

    module = Block()
    steps = graph.trace(module, torch.zeros(1, 4, 5, 5))
    first, between, second, total, last = steps.steps
    assert isinstance(first, Convolution) and not first.rectified  # the sum needs it too
    assert isinstance(between, Rectifier) and isinstance(second, Convolution) and isinstance(total, Sum)
    assert isinstance(last, Rectifier)
    assert graph.inputs_of(total) == (first.output, second.output)
    assert (steps.inputs, steps.outputs) == (("x",), (last.output,))
    assert torch.equal(second.weight, module.second.weight)


@pytest.mark.parametrize("config", CONFIGS)
def test_every_result_is_named_before_it_is_needed(config: str) -> None:
    """No name twice, and no step before what it needs."""
    network = untrained(CONFIGS[config])
    steps = graph.trace(network.body, *graph.examples(network))
    known = set(steps.inputs)
    for step in steps.steps:
        assert {*graph.inputs_of(step)} <= known and step.output not in known
        known.add(step.output)
    assert {*steps.outputs} <= known


def test_unknown_steps_are_refused() -> None:
    class Odd(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.sin(x)

    with pytest.raises(TypeError, match="sin"):
        graph.trace(Odd(), torch.zeros(1))
