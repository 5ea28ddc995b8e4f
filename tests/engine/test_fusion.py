"""Which steps of a network are fused, and that running them gives the network's body."""

from collections import Counter

import pytest
import torch
from engines import CONFIGS
from networks import untrained
from torch import nn

import debayes
from debayes.engine import fusion, graph, staged_unet, winograd
from debayes.engine.fusion import Chain
from debayes.engine.graph import Convolution, Shuffle
from debayes.network.config import Config


def lengths(steps: graph.Graph) -> list[int]:
    """How many convolutions each chain has."""
    return [len(step.convolutions) for step in fusion.fuse(steps, fusion.CHAINS) if isinstance(step, Chain)]


# The fused steps of the shipped networks: the convolutions of each chain; then how many steps of each kind there
# are on a GPU without the Triton kernels, with those of up to 64 channels, and with whole residual blocks too.
SHIPPED = {
    "wild-s": (
        [5, 4, 4, 4, 2, 4, 4, 2],
        {"Convolution": 32, "Sum": 14, "Shuffle": 2, "Concatenation": 1},
        {"Convolution": 19, "FusedSum": 13, "Sum": 1, "Shuffle": 2, "Concatenation": 1},
        {"Convolution": 6, "Block": 13, "Sum": 1, "Shuffle": 2, "Concatenation": 1},
    ),
    "wild-l": (
        [5, 4, 2, 4, 4, 4, 4, 2, 4, 4, 4, 4, 1, 2, 1],
        {"Convolution": 51, "Sum": 23, "Shuffle": 2, "Concatenation": 1, "FusedSum": 1},
        {"Convolution": 38, "FusedSum": 14, "Sum": 10, "Shuffle": 2, "Concatenation": 1},
        {"Convolution": 24, "Block": 14, "Sum": 10, "Shuffle": 2, "Concatenation": 1},
    ),
    "raw-l": (
        [5, 4, 2, 4, 4, 4, 4, 4, 4, 2, 1, 2, 1],
        {"Convolution": 43, "Sum": 19, "Shuffle": 2, "Concatenation": 1, "FusedSum": 1},
        {"Convolution": 33, "FusedSum": 11, "Sum": 9, "Shuffle": 2, "Concatenation": 1},
        {"Convolution": 22, "Block": 11, "Sum": 9, "Shuffle": 2, "Concatenation": 1},
    ),
    "paper": (
        [2] + [1] * 26,
        {"Convolution": 36, "Concatenation": 26, "Sum": 9, "Shuffle": 1},
        {"Convolution": 36, "Concatenation": 26, "Sum": 9, "Shuffle": 1},
        {"Convolution": 36, "Concatenation": 26, "Sum": 9, "Shuffle": 1},
    ),
}


@pytest.mark.parametrize("name", SHIPPED)
def test_fused_steps_of_the_shipped_networks(name: str) -> None:
    """Every convolution is there once, with its weights, in the order of the graph; the graph is not changed."""
    steps = staged_unet.trace_folded(debayes.load(name), shuffle_last=True)
    before = steps.steps
    chains, *on_gpus = SHIPPED[name]
    assert lengths(steps) == chains
    rules = (fusion.gpu_rules(), fusion.gpu_rules(64), fusion.gpu_rules(64, (32, 64)))
    for expected, each in zip(on_gpus, rules, strict=True):
        assert Counter(type(step).__name__ for step in fusion.fuse(steps, each)) == expected
    everything = [id(step) for step in before if isinstance(step, Convolution)]
    for each in (*rules, fusion.CHAINS):
        found = [id(part) for step in fusion.fuse(steps, each) for part in convolutions(step)]
        assert sorted(found) == sorted(everything)
    assert steps.steps is before


def convolutions(step: fusion.FusedStep) -> tuple[Convolution, ...]:
    """The convolutions in a step."""
    if isinstance(step, Chain):
        return step.convolutions
    if isinstance(step, fusion.Block):
        return step.first, step.second
    if isinstance(step, fusion.FusedSum):
        return (step.convolution,)
    return (step,) if isinstance(step, Convolution) else ()


@pytest.mark.parametrize("network", [*CONFIGS, "wild-s"])
def test_fused_steps_come_after_what_they_need(network: str) -> None:
    """Whatever was fused, no step comes before the steps whose results it takes."""
    found = debayes.load(network) if network == "wild-s" else untrained(CONFIGS[network])
    for steps in (graph.trace(found.body, *graph.examples(found)), staged_unet.trace_folded(found)):
        for rules in (fusion.CHAINS, fusion.gpu_rules(64, (32, 64))):
            known = set(steps.inputs)
            for step in fusion.fuse(steps, rules):
                assert {*fusion.inputs_of(step)} <= known
                known.add(step.output)
            assert {*steps.outputs} <= known


def test_residual_blocks_are_chains() -> None:
    """The first convolution with two blocks, then two blocks at a time; a chain ends where its result is needed
    elsewhere, and at convolutions that are not 3x3."""
    network = untrained(Config(widths=(8, 16), blocks=4, bottom_blocks=1, tail=4, tail_blocks=0))
    folded = staged_unet.fold(network, shuffle_last=True)
    planes = graph.examples(network)[0]
    assert lengths(graph.trace(folded.descent, planes)) == [5, 4, 2]
    steps = staged_unet.trace_folded(network, shuffle_last=True)
    assert lengths(steps) == [5, 4, 2, 4, 4, 2]
    fused = fusion.fuse(steps, fusion.CHAINS)
    ends = [step for step in fused if isinstance(step, Chain)][-1]
    assert len(ends.inputs) == 2  # the features and the planes, which no step puts side by side
    assert [type(step) for step in fused if not isinstance(step, Chain)].count(Shuffle) == 2
    kept = [step for step in fused if isinstance(step, Convolution)]
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


def test_sums_are_fused_where_a_rectifier_follows() -> None:
    """The last block of a tail is: its convolution, its sum and the rectifier behind it are one step."""
    steps = staged_unet.trace_folded(untrained(CONFIGS["two levels"]), shuffle_last=True)
    fused = fusion.fuse(steps, fusion.gpu_rules())
    assert [type(step) for step in fused].count(fusion.FusedSum) == 1
    assert len(fused) == len(steps.steps) - 2
