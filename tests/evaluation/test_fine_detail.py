"""Drawn fine detail: its frequencies, angles, colours and values, measured on the pictures."""

import math

import pytest
import torch
from torch import Tensor

from debayes.evaluation import fine_detail
from debayes.evaluation.fine_detail import COLORS, KINDS, SCENES, SIZE, ZONE_PLATE, ZONE_SIZE, Scene


def peak(values: Tensor) -> tuple[float, float]:
    """The strongest frequency of a part of a picture along y and x, in cycles per pixel, found by FFT."""
    side = values.shape[0]
    window = torch.hann_window(side, periodic=False, dtype=torch.float64)
    part = (values.double() - values.double().mean()) * window[:, None] * window
    spectrum = torch.fft.rfft2(part, s=(8 * side, 8 * side)).abs()
    at = int(spectrum.argmax())
    y, x = divmod(at, spectrum.shape[1])
    return abs((y / (8 * side) + 0.5) % 1 - 0.5), x / (8 * side)


@pytest.mark.parametrize("place", [(0.5, 0.75), (0.5, 0.95), (0.8, 0.7), (0.1, 0.3)])
def test_frequency_of_a_zone_plate(place: tuple[float, float]) -> None:
    """The frequency measured in a part of the zone plate is the stated one, and points away from the centre."""
    drawing = fine_detail.draw(ZONE_PLATE)
    y, x = (int(share * ZONE_SIZE) for share in place)
    down, across = peak(drawing.picture[1, y - 16 : y + 16, x - 16 : x + 16])
    assert math.hypot(down, across) == pytest.approx(float(drawing.frequency[y, x]), abs=0.01)
    expected = (abs(2 * place[0] - 1) / 2, abs(2 * place[1] - 1) / 2)
    assert (down, across) == (pytest.approx(expected[0], abs=0.01), pytest.approx(expected[1], abs=0.01))


def test_the_zone_plate_of_the_documentation() -> None:
    """0.5 + 0.35 cos(pi k r²) on 384x384 pixels, 0.5 cycles per pixel at the edge, the same in all colours."""
    drawing = fine_detail.draw(ZONE_PLATE)
    y, x = torch.meshgrid(torch.arange(384) - 191.5, torch.arange(384) - 191.5, indexing="ij")
    expected = 0.5 + 0.35 * torch.cos(math.pi * (0.5 / 192) * (x * x + y * y).double())
    assert torch.allclose(drawing.picture, expected.float().expand(3, -1, -1), atol=1e-6)
    assert float(drawing.frequency[191, 0]) == pytest.approx(0.5, abs=0.002)


@pytest.mark.parametrize("kind", ["bars", "weave"])
@pytest.mark.parametrize(("frequency", "angle"), [(0.15, 0.0), (0.31, 19.5), (0.44, 71.0)])
def test_frequency_of_gratings(kind: str, frequency: float, angle: float) -> None:
    """Bars and the finer grating of a weave have the stated wave vector."""
    if kind == "weave":
        # the coarser grating is as strong: measure along the finer one, by averaging the other away
        values = fine_detail.draw(Scene(kind, frequency, angle), 192).picture[1].double()
        turn = math.radians(angle)
        grid = torch.arange(192) - 95.5
        wave = 2 * math.pi * frequency * (math.cos(turn) * grid + math.sin(turn) * grid[:, None])
        strength = 2 * torch.stack(((wave.cos() * values).mean(), (wave.sin() * values).mean())).norm()
        assert float(strength) == pytest.approx(0.35 / 2, rel=0.05)
        return
    down, across = peak(fine_detail.draw(Scene(kind, frequency, angle), 192).picture[1])
    assert across == pytest.approx(frequency * math.cos(math.radians(angle)), abs=0.005)
    assert down == pytest.approx(frequency * math.sin(math.radians(angle)), abs=0.005)


def test_frequency_of_a_fan() -> None:
    """The lines lie closer together towards the top, as the frequency map says, and never beyond the stated one."""
    drawing = fine_detail.draw(Scene("fan", 0.4), 192)
    assert 0.38 < float(drawing.frequency.max()) <= 0.4
    for y in (40, 96, 160):
        down, across = peak(drawing.picture[1, y - 16 : y + 16, 70:102])
        assert math.hypot(down, across) == pytest.approx(float(drawing.frequency[y, 86]), rel=0.06)


def test_frequency_of_text_and_bricks() -> None:
    """Rows of bricks repeat with the stated frequency; lines of text are nine dots apart, half a period each."""
    wall = fine_detail.draw(Scene("bricks", 0.125), 192).picture[1].double().mean(1)
    lines = fine_detail.draw(Scene("text", 0.25), 192).picture[1].double().mean(1)
    for rows, period in ((wall, 8), (lines, 18)):
        rows = rows - rows.mean()
        assert float((rows[period:] * rows[:-period]).mean()) > 0.8 * float(rows.square().mean())
        shorter = [float((rows[lag:] * rows[:-lag]).mean()) for lag in range(3, period - 2)]
        assert max(shorter) < 0.8 * float(rows.square().mean())


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_values_and_colours(scene: Scene) -> None:
    """Values stay within the contrast around a mid grey, and all pixels have one hue."""
    drawing = fine_detail.draw(scene, 64)
    grey = drawing.picture / torch.tensor(COLORS[scene.color]).view(3, 1, 1)
    assert float(grey.std(0).max()) < 1e-6
    assert float((grey - 0.5).abs().max()) <= scene.contrast + 1e-6
    assert float(grey.max() - grey.min()) > 0.25 * scene.contrast
    assert drawing.picture.shape == (3, 64, 64) and drawing.frequency.shape == (64, 64)


def test_every_kind_is_judged_in_grey_and_in_colour_at_several_settings() -> None:
    """Over frequency, angle, phase and contrast; every scene is drawn once and has a name of its own."""
    assert len({scene.name for scene in SCENES}) == len(SCENES)
    for kind in KINDS:
        scenes = [scene for scene in SCENES if scene.kind == kind]
        assert {scene.color == "neutral" for scene in scenes} == {True, False}
        assert len({scene.contrast for scene in scenes}) > 1 and len({scene.phase for scene in scenes}) > 1
        if kind not in ("zone plate", "fan"):
            assert len({scene.frequency for scene in scenes}) >= 6 and len({scene.angle for scene in scenes}) >= 5
    assert fine_detail.draw(SCENES[-1]).picture.shape[-1] == SIZE
