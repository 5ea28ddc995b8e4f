"""The sRGB curve: values of the standard, and a way there and back."""

import doctest

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from debayes.imaging import color

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


MATRIX = torch.tensor([[0.6461, -0.1164, -0.0857], [-0.3825, 1.1597, 0.2534], [-0.0416, 0.154, 0.6039]])


@pytest.mark.parametrize("space", ["srgb", "p3"])
def test_white_goes_to_white(space: str) -> None:
    """A balanced neutral is neutral in every space, whatever the camera."""
    grey = color.from_camera(MATRIX, space) @ torch.full((3,), 0.4)
    assert torch.allclose(grey, torch.full((3,), 0.4), atol=1e-5)


def test_spaces_are_those_of_their_standards() -> None:
    """The primaries' chromaticities, as the standards print them; D65 for white."""
    for space, red, green in (("srgb", (0.64, 0.33), (0.30, 0.60)), ("p3", (0.68, 0.32), (0.265, 0.69))):
        columns = color.SPACES[space].T
        for xyz, xy in ((columns[0], red), (columns[1], green), (columns.sum(0), (0.3127, 0.3290))):
            assert (xyz[:2] / xyz.sum()).tolist() == pytest.approx(xy, abs=3e-4)
    with pytest.raises(ValueError, match="one of srgb, p3"):
        color.from_camera(MATRIX, "adobe")


def test_camera_colors_are_found_again() -> None:
    """A colour converted to camera colours by the matrix and back is the same, relative to white."""
    linear = torch.tensor([0.3, 0.5, 0.2])
    seen = MATRIX.double() @ color.XYZ_FROM_SRGB @ linear.double()
    white = MATRIX.double() @ color.XYZ_FROM_SRGB @ torch.ones(3, dtype=torch.float64)
    assert torch.allclose(color.from_camera(MATRIX) @ (seen / white).float(), linear, atol=1e-5)


def test_tone() -> None:
    """Black stays, white stays, middle grey is lifted to where displays have it, and order is kept."""
    levels = torch.linspace(0, 1, 200)
    shown = color.tone(levels)
    assert float(shown[0]) == 0 and float(shown[-1]) == pytest.approx(1) and bool((shown.diff() > 0).all())
    assert float(color.tone(torch.tensor(0.125))) == pytest.approx(0.2, abs=0.02)


def test_render_keeps_hue_and_fades_to_white() -> None:
    """A colour that gets brighter keeps its hue, then fades; saturated or far too bright, it is white."""
    gains = (2.0, 1.0, 1.5)
    identity = color.SRGB_FROM_XYZ.float()
    orange = torch.tensor([0.4, 0.2, 0.1]).view(3, 1, 1) / torch.tensor(gains).view(3, 1, 1)
    dark, light = (color.decode_srgb(color.render(orange * k, gains, identity)) for k in (0.2, 1.0))
    assert torch.allclose(dark / dark.amax(), light / light.amax(), atol=2e-3)
    assert torch.allclose(color.render(torch.ones(3, 2, 2), gains, identity), torch.ones(3, 2, 2), atol=1e-5)
    over = color.render(orange, gains, identity, exposure=4.0)
    assert float(over.min()) > 0.99
    assert bool((color.render(-orange, gains, identity) == 0).all())


def test_saturated_colours_fade_gradually() -> None:
    """A ramp of blue up to four times what saturates its photosites: it fades to white without a jump, and
    where all colours are saturated it is white; with one saturated it is still blue."""
    gains = (2.0, 1.0, 1.5)
    light = torch.linspace(0.05, 8, 400) * torch.tensor([0.15, 0.3, 0.9]).view(3, 1)
    camera = (light / torch.tensor(gains).view(3, 1)).clamp_max(1).view(3, 1, 400)
    shown = color.render(camera, gains, color.SRGB_FROM_XYZ.float())[:, 0]
    assert float(shown.diff(dim=1).abs().max()) < 0.06
    assert float(shown[:, -1].min()) > 0.98
    only_blue = int((camera[2, 0] >= 1).nonzero()[0])
    assert float(camera[:2, 0, only_blue].max()) < 0.6
    assert float(shown[0, only_blue]) < 0.75 < float(shown[2, only_blue])


def test_bright_colours_keep_their_colour() -> None:
    """Without saturated photosites a colour keeps its saturation when brightened to white and one stop more;
    at eight times white it is white."""
    matrix = color.SRGB_FROM_XYZ.float()
    blue = color.decode_srgb(torch.tensor([80.0, 120.0, 255.0]) / 255).view(3, 1, 1)
    for stops, least in ((0.0, 0.98), (1.0, 0.85)):
        shown = color.decode_srgb(color.render(blue * 0.5, (1.0, 1.0, 1.0), matrix, exposure=1 + stops)).flatten()
        before, after = (1 - float(c.min() / c.max()) for c in (blue.flatten(), shown))
        assert after > least * before
    white = color.render(blue * 0.5, (1.0, 1.0, 1.0), matrix, exposure=4.0).flatten()
    assert float(white.min()) > 0.99
