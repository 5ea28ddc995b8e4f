"""The sRGB curve: values of the standard, and a way there and back."""

import doctest

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from debayes import color

laws = settings(deadline=None, max_examples=100, derandomize=True)

# Linear and encoded, from the formulas of IEC 61966-2-1 in 40-digit arithmetic; 128/255 is the 8-bit middle grey.
EXACT = [
    (0.0, 0.0),
    (0.001, 0.01292),
    (0.0031308, 0.040449936),
    (0.0185, 0.145097047168),
    (0.21586050011389926, 128 / 255),
    (0.5, 0.7353569830524495),
    (1.0, 1.0),
]


def test_doctests() -> None:
    """The examples of the docstrings are true."""
    assert doctest.testmod(color) == doctest.TestResults(failed=0, attempted=1)


@pytest.mark.parametrize(("linear", "encoded"), EXACT)
def test_values_of_the_standard(linear: float, encoded: float) -> None:
    """Both directions, on the straight part and the curved one."""
    assert float(color.encode_srgb(torch.tensor(linear, dtype=torch.float64))) == pytest.approx(encoded, abs=1e-7)
    assert float(color.decode_srgb(torch.tensor(encoded, dtype=torch.float64))) == pytest.approx(linear, abs=1e-7)


@given(st.floats(-0.5, 2.0, width=32))
@laws
def test_there_and_back(value: float) -> None:
    """Each direction undoes the other, outside [0, 1] too; the standard's two parts meet to 1e-7 only."""
    given_ = torch.tensor(value, dtype=torch.float64)
    assert float(color.decode_srgb(color.encode_srgb(given_))) == pytest.approx(value, abs=1e-7)
    assert float(color.encode_srgb(color.decode_srgb(given_))) == pytest.approx(value, abs=1e-6)


def test_gradients_are_finite() -> None:
    """At and below black too, where the power alone has none."""
    values = torch.tensor([-0.1, 0.0, 0.5], requires_grad=True)
    color.encode_srgb(values).sum().backward()
    assert values.grad is not None
    assert values.grad[:2].tolist() == pytest.approx([12.92, 12.92])
    assert float(values.grad[2]) == pytest.approx(1.055 / 2.4 * 0.5 ** (1 / 2.4 - 1), rel=1e-5)
