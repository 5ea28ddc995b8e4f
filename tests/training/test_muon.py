"""Muon against the singular value decomposition, and against a plain loop."""

import pytest
import torch

from debayes.network.config import Config
from debayes.network.network import Network
from debayes.training.muon import Muon, filter_banks, orthogonalise


@pytest.mark.parametrize("shape", [(3, 16, 144), (2, 64, 16), (1, 32, 32)])
def test_singular_values_come_near_one_and_directions_stay(shape: tuple[int, int, int]) -> None:
    """U S V' becomes U T V' with T between 0.6 and 1.3, for wide, tall and square matrices of any length."""
    matrices = 7 * torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    u, _, vh = torch.linalg.svd(matrices, full_matrices=False)
    inner = u.mT @ orthogonalise(matrices) @ vh.mT
    values = inner.diagonal(dim1=-2, dim2=-1)
    assert float(values.min()) > 0.6 and float(values.max()) < 1.3
    assert torch.allclose(inner, torch.diag_embed(values), atol=1e-8)


def test_nothing_stays_nothing() -> None:
    """A bank without a gradient is not divided by its length of 0."""
    assert not orthogonalise(torch.zeros(2, 16, 16)).any()


def test_the_ends_are_left_to_adam() -> None:
    """Banks are the weights of convolutions with 16 filters and inputs or more; no biases."""
    network = Network(Config(widths=(16, 32), blocks=1, bottom_blocks=1, tail=16, tail_blocks=0))
    banks = {id(bank) for bank in filter_banks(network)}
    names = {name for name, parameter in network.named_parameters() if id(parameter) in banks}
    assert "body.bottom.0.first.weight" in names and "body.mix.weight" in names
    assert not any(name.endswith("bias") for name in names)
    assert not names & {"body.head.weight", "body.look.weight", "body.maps.weight"}


def test_steps_are_those_of_a_plain_loop() -> None:
    """Momentum 0.95 after Nesterov, steps of 0.2 sqrt(longer side), and decay, bank by bank, in three steps."""
    generator = torch.Generator().manual_seed(1)
    shapes = [(16, 16, 3, 3), (16, 16, 3, 3), (64, 16, 1, 1)]
    banks = [torch.randn(shape, generator=generator).requires_grad_() for shape in shapes]
    expected = [bank.detach().clone() for bank in banks]
    momenta = [torch.zeros_like(bank) for bank in expected]
    muon = Muon(banks, lr=0.01, weight_decay=3.0)
    for _ in range(3):
        for i, bank in enumerate(banks):
            gradient = torch.randn(bank.shape, generator=generator)
            bank.grad = gradient
            momenta[i] = 0.95 * momenta[i] + 0.05 * gradient
            ahead = 0.05 * gradient + 0.95 * momenta[i]
            matrix = orthogonalise(ahead.flatten(1)[None])[0]
            expected[i] *= 1 - 0.01 * 3
            expected[i] -= 0.01 * 0.2 * max(matrix.shape) ** 0.5 * matrix.view(bank.shape)
        muon.step()
    for bank, wanted in zip(banks, expected, strict=True):
        assert torch.allclose(bank, wanted, atol=1e-5)
