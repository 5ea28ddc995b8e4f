"""What the plots of maps show: doubt relative to the noise, and in the values of the rendered picture."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from shots import BODY, photograph, shoot

from debayes.darkroom import loop, map_panels
from debayes.darkroom.canvas import counts_of
from debayes.formats.raw import Raw
from debayes.imaging import color
from debayes.network.network import Network


def grey(level: float) -> np.ndarray:
    """The counts of a grey card before white balance."""
    card = (level / torch.tensor(BODY.gains)).view(3, 1, 1).expand(3, 20, 30)
    return counts_of(card, 0).numpy()


def panels(counts: np.ndarray, noise: float, doubt: float, stops: float = 0.0) -> list[np.ndarray]:
    """The values of the noise panel and of both doubt panels, all plain, where noise and doubt are plain."""
    raw = Raw(torch.zeros(1, 20, 30), "RGGB", BODY.gains, BODY.matrix)
    maps = {kind: np.full((20, 30, 3), level, np.float16) for kind, level in (("noise", noise), ("doubt", doubt))}
    shown = map_panels.panels_of_raw(maps, counts, raw, stops=stops)
    return [panel.values for kind in ("noise", "doubt") for panel in shown[kind]]


def test_units() -> None:
    """Noise in per cent of white, doubt in per cent of the noise, rendered doubt as the renderings differ."""
    noise, relative, rendered = panels(grey(0.2), 0.02, 0.005, stops=0.5)
    assert noise.shape == relative.shape == rendered.shape == (20, 30)
    np.testing.assert_allclose(noise, 2, rtol=1e-3)
    np.testing.assert_allclose(relative, 25, rtol=2e-3)
    assert rendered.std() < 1e-3
    # by random errors instead: normal ones with this deviation and correlation
    card = (0.2 / torch.tensor(BODY.gains)).view(3, 1, 1)
    covariance = 0.005**2 * (0.7 * torch.ones(3, 3) + 0.3 * torch.eye(3))
    errors = (
        torch.randn(20_000, 3, generator=torch.Generator().manual_seed(0)) @ torch.linalg.cholesky(covariance).T
    )
    seen = 255 * color.render(card + errors.T[:, None], BODY.gains, BODY.matrix, exposure=0.5)
    np.testing.assert_allclose(rendered, float(seen.std((1, 2)).mean()), rtol=0.05)


def test_rendered_doubt_does_not_repeat_brightness() -> None:
    """The same linear doubt is seen more in the dark, and not at all where the picture is white."""
    dark, bright, white = (panels(grey(level), 0.01, 0.002)[2].mean() for level in (0.02, 0.4, 2.5))
    assert dark > 3 * bright and white < 0.1 * bright


def test_rendered_doubt_holds_the_error(network: Network) -> None:
    """About seven in ten values are within it."""
    shot, clean = shoot(photograph(), 3200), photograph()
    developed = loop.develop(network, shot)
    maps = {k: getattr(developed, k).permute(1, 2, 0).numpy().astype(np.float16) for k in ("noise", "doubt")}
    counts = counts_of(developed.picture.clone(), 0).numpy()
    rendered = map_panels.panels_of_raw(maps, counts, shot, stops=0)["doubt"][1].values
    truth = color.render(clean, shot.gains, shot.matrix)
    error = 255 * (developed.render() - truth).abs().numpy()
    assert (error < rendered).mean() == pytest.approx(0.7, abs=0.1)


def test_upright() -> None:
    """Turned and cropped as the rendered picture is."""
    raw = replace(shoot(torch.zeros(3, 20, 30), 400), orientation=6, crop=(2, 4, 10, 20))
    ramp = np.broadcast_to(np.linspace(0.01, 0.02, 30)[:, None], (20, 30, 3)).astype(np.float16)
    shown = map_panels.panels_of_raw({"noise": ramp, "doubt": ramp}, grey(0.2), raw, stops=0)
    values = shown["noise"][0].values
    assert values.shape == (20, 10)
    np.testing.assert_allclose(values[:, 0], 100 * ramp[0, 4:24, 0].astype(float), rtol=1e-3)


def test_of_a_mosaic() -> None:
    """Its values are rendered already."""
    maps = {kind: np.full((8, 9, 3), level, np.float16) for kind, level in (("noise", 0.04), ("doubt", 0.01))}
    shown = map_panels.panels_of_mosaic(maps)
    values = [panel.values.mean() for kind in ("noise", "doubt") for panel in shown[kind]]
    assert values == pytest.approx([10.2, 25, 2.55], rel=1e-3)
