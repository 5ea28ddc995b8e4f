"""The variance-stabilising transform: it keeps black and white, is inverted exactly, and equalises noise."""

import pytest
import torch

from debayes.imaging import noise, vst

OFFSETS = [5e-4, 0.004, 0.05]


@pytest.mark.parametrize("offset", OFFSETS)
def test_curve_keeps_black_and_white_and_turns_back(offset: float) -> None:
    """encode(0) = 0, encode(1) = 1, it rises everywhere, and decode undoes it, below black and above white too."""
    c = torch.tensor(offset, dtype=torch.float64)
    x = torch.linspace(-0.2, 2.5, 5001, dtype=torch.float64)
    y = vst.encode(x, c)
    assert torch.allclose(vst.encode(torch.tensor([0.0, 1.0]).double(), c), torch.tensor([0.0, 1.0]).double())
    assert bool((y.diff() > 0).all())
    assert torch.allclose(vst.decode(y, c), x, atol=1e-12)
    slope = (vst.encode(torch.tensor([-1e-7, 1e-7]).double(), c) / 1e-7).abs()
    assert float(slope[0]) == pytest.approx(float(slope[1]), rel=1e-3)  # no kink at black


def test_noise_is_even() -> None:
    """Photon and read noise have one deviation from shade to white: half the root of the gain, over the span."""
    gain, floor = torch.tensor(0.004), torch.tensor(0.004**2 * 4)
    c = vst.offset(gain, floor)
    expected = float(gain.sqrt() / 2 / ((1 + c).sqrt() - c.sqrt()))
    for signal in (0.03, 0.1, 0.3, 0.9):
        flat = torch.full((1, 1, 300, 300), signal)
        generator = torch.Generator().manual_seed(0)
        noisy = noise.poisson_gaussian(flat, float(floor.sqrt()), gain=float(gain), generator=generator)
        assert float(vst.encode(noisy, c).std()) == pytest.approx(expected, rel=0.06)


def test_offset_is_within_its_limits() -> None:
    """No noise, all photons, all read noise: the offset stays a number that makes a curve."""
    gains = torch.tensor([0.0, 1e-7, 0.2, 1e-6])
    floors = torch.tensor([0.0, 0.0, 0.0, 1e-2])
    found = vst.offset(gains, floors)
    assert bool(((found >= vst.OFFSETS[0]) & (found <= vst.OFFSETS[1])).all())


def test_decoded_mean_is_that_of_decoded_values() -> None:
    """Monte Carlo: decode squares, so the mean of decoded normal values is decode(mean) + variance * span²."""
    c = torch.tensor(0.01, dtype=torch.float64)
    mean, deviation = 0.5, 0.08
    values = mean + deviation * torch.randn(
        400_000, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    found = vst.decode(values, c)
    expected = vst.decode_mean(torch.tensor(mean).double(), torch.tensor(deviation**2).double(), c)
    assert float(expected) == pytest.approx(float(found.mean()), abs=4 * float(found.std()) / 400_000**0.5)
    assert float(expected) > float(vst.decode(torch.tensor(mean).double(), c)) + 0.004
