"""The develop loop in memory: against the truth of a virtual camera, brightness, highlights, grain, tiles."""

from dataclasses import replace

import pytest
import torch
from shots import BODY, photograph, shoot

from debayes.darkroom import loop
from debayes.darkroom.canvas import FloatCanvas, PixelCanvas
from debayes.darkroom.domain import MosaicSource, RawSource
from debayes.evaluation import metrics, scenes
from debayes.imaging import cfa, color
from debayes.network.network import Network
from debayes.restoration.tiling import restore
from debayes.system.errors import DebayesError


@pytest.mark.parametrize("pattern", cfa.PATTERNS)
@pytest.mark.parametrize(("iso", "gain"), [(400, 2.0), (6400, 4.0)])
def test_nearer_to_the_truth(network: Network, pattern: str, iso: float, gain: float) -> None:
    """Far nearer to it than the interpolated raw, in linear light, with any pattern and estimated noise."""
    clean = photograph()
    source = shoot(clean, iso, pattern, told=False)
    developed = loop.develop(network, source)
    plain = cfa.interpolate(source.mosaic[None], pattern)[0]
    assert float(metrics.psnr(developed.picture, clean)) > float(metrics.psnr(plain, clean)) + gain


def test_noise_map_is_the_noise(network: Network) -> None:
    """The noise map has the standard deviation that the virtual camera gave the photosites, in each colour."""
    clean = BODY.expose(torch.full((3, 128, 128), 0.5))
    developed = loop.develop(network, shoot(clean, 6400))
    truth = BODY.profile(6400).variance(clean).sqrt()
    assert torch.allclose(developed.noise.mean((1, 2)), truth.mean((1, 2)), rtol=0.15)
    assert bool((developed.doubt < developed.noise).all()) and float(developed.doubt.min()) > 0


@pytest.mark.parametrize("iso", [400, 6400])
def test_error_bars_hold_the_truth(network: Network, iso: float) -> None:
    """About 80 % of the true linear values lie in the 80 % intervals, and nearly all of the picture."""
    clean = BODY.expose(scenes.photograph("astronaut")[:, 40:232, 100:356])
    developed = loop.develop(network, shoot(clean, iso), level=0.8)
    assert developed.interval is not None
    low, high = developed.interval
    assert 0.7 < float(((low <= clean) & (clean <= high)).float().mean()) < 0.9
    assert float(((low <= developed.picture) & (developed.picture <= high)).float().mean()) > 0.99
    assert loop.develop(network, shoot(clean[:, :32, :32], iso)).interval is None
    blown = loop.develop(network, shoot(8 * clean, iso), level=0.8)
    assert blown.interval is not None
    white = blown.picture > 0.999
    assert float(white.float().mean()) > 0.1 and bool((blown.interval[1][white] > 0.999).all())


@pytest.mark.parametrize("iso", [400, 1600, 6400])
@pytest.mark.parametrize("grey", [0.12, 0.4, 0.7])
def test_brightness_is_kept(network: Network, grey: float, iso: float) -> None:
    """Every colour of a grey card has the mean of its photosites, to a thousandth."""
    raw = shoot(BODY.expose(torch.full((3, 512, 512), grey)), iso)
    red, green, green2, blue = cfa.pack(raw.mosaic).mean((1, 2))
    measured = torch.stack((red, (green + green2) / 2, blue))
    assert torch.allclose(loop.develop(network, raw).picture.mean((1, 2)), measured, rtol=1e-3)


def test_shadows_have_no_cast(network: Network) -> None:
    """A dark grey with much noise stays grey: a* and b* are within 0.3 of 0."""
    clean = BODY.expose(torch.full((3, 512, 512), 0.12))
    developed = loop.develop(network, shoot(clean, 6400))
    balanced = developed.picture.mean((1, 2)) * torch.tensor(BODY.gains)
    xyz = color.XYZ_FROM_SRGB.float() @ color.from_camera(BODY.matrix) @ balanced
    white = color.XYZ_FROM_SRGB.float().sum(1)
    share = xyz / white
    root = torch.where(share > 0.008856, share.clamp_min(1e-9) ** (1 / 3), 7.787 * share + 16 / 116)
    assert abs(float(500 * (root[0] - root[1]))) < 0.3 and abs(float(200 * (root[1] - root[2]))) < 0.3


def highlight() -> tuple[torch.Tensor, torch.Tensor]:
    """A blown light with a soft edge on grey, and the distance of every pixel from its centre."""
    y, x = torch.meshgrid(torch.arange(192), torch.arange(192), indexing="ij")
    away = ((y - 96) ** 2 + (x - 96) ** 2).sqrt()
    spot = 3 * torch.sigmoid((40 - away) / 1.5) / torch.tensor(BODY.gains).view(3, 1, 1)
    return BODY.expose(torch.full((3, 192, 192), 0.5)) + spot, away


def test_blown_highlights_are_white(network: Network) -> None:
    """A blown light is white in the camera's colours, so that no reader tints it, and white when rendered."""
    light, away = highlight()
    developed = loop.develop(network, shoot(light, 1600))
    assert bool((developed.picture[:, away < 34] >= 1).all())
    shown = developed.render()
    assert float(shown[:, away < 34].min()) == pytest.approx(1, abs=1e-3)
    assert float((shown.amax(0) - shown.amin(0)).max()) < 0.12  # no violet rim either


def test_no_noise_is_left_around_a_highlight(network: Network) -> None:
    """Around a blown light noise is removed as elsewhere."""
    light, away = highlight()
    developed = loop.develop(network, shoot(light, 1600))
    noise = BODY.profile(1600).variance(light[:, 0, 0]).sqrt()
    left = developed.picture[:, (away > 60) & (away < 90)].std(1)
    assert bool((left < 0.15 * noise).all())


def test_saturation_below_white_is_white_too(network: Network) -> None:
    """Where the sensor ends before the white level, blown is still white."""
    source = shoot(photograph(96), 400)
    blown = replace(source, mosaic=source.mosaic.clone(), saturation=0.9)
    blown.mosaic[:, 20:60, 20:60] = 0.9
    assert float(loop.develop(network, blown).picture[:, 24:56, 24:56].min()) >= 1


def test_strength(network: Network) -> None:
    """At 0 every photosite keeps its value with its noise; at 0.5 half of the noise is left. Where the picture is
    darker than twice its noise, there is less grain."""
    source = shoot(photograph(), 6400)
    whole, half, none = (loop.develop(network, source, strength=s).picture for s in (1.0, 0.5, 0.0))
    light = whole > 2 * BODY.profile(6400).variance(whole).sqrt()
    assert 0.9 < float(light.float().mean()) < 1
    seen = cfa.mosaic(light.float()) > 0
    assert torch.allclose(cfa.mosaic(none)[seen], source.mosaic[seen], atol=1e-4)
    assert torch.allclose(half[light], ((whole + none) / 2)[light], atol=1e-4)
    assert float((none - whole)[~light].abs().mean()) < float((none - whole)[light].abs().mean())


@pytest.mark.parametrize(("tile", "error"), [(64, 1e-4), (40, 5e-4)])
def test_tiles_are_the_whole(network: Network, tile: int, error: float) -> None:
    """Small tiles give the picture of one large tile, but for brightness blocks whose pattern cells a tile cuts."""
    source = shoot(photograph(150), 1600)
    whole, tiled = (loop.develop(network, source, tile=t).picture for t in (512, tile))
    assert torch.allclose(whole, tiled, atol=error)


def test_mosaics_take_the_same_loop(network: Network) -> None:
    """A mosaic source on a pixel canvas gives what `restore` gives, tile by tile; progress goes up to 1."""
    mosaic = cfa.mosaic(scenes.photograph("astronaut")[:, 40:100, 100:180], "GRBG")
    reported: list[float] = []
    canvas = PixelCanvas(60, 80, 32)
    loop.develop_onto(canvas, network, MosaicSource(mosaic, "GRBG"), tile=30, progress=reported.append)
    expected = restore(network, mosaic, "GRBG", tile=30)
    assert torch.equal(canvas.pixels.permute(2, 0, 1), expected.mean)
    assert canvas.noise_sum == pytest.approx(float(expected.noise_variance.sqrt().sum()), rel=1e-4)
    assert reported == sorted(reported) and reported[-1] == 1.0


def test_wrong_arguments(network: Network) -> None:
    """A strength and a level are shares."""
    raw = shoot(photograph(32), 400)
    with pytest.raises(DebayesError, match="strength is from 0"):
        loop.develop(network, raw, strength=1.5)
    with pytest.raises(ValueError, match="between 0 and 1, not 90"):
        loop.develop(network, raw, level=90)


def test_adapting_takes_half_of_the_progress(network: Network) -> None:
    """The adapted network is used, and progress goes on where adapting ended."""
    reported: list[float] = []
    source = RawSource(shoot(photograph(64), 400), BODY.profile(400))
    adapted = loop.develop_onto(FloatCanvas(64, 64), network, source, adapt=1, progress=reported.append)
    assert adapted is not None and loop.describe_adapted(adapted)["adapted"]["steps"] == adapted.steps
    assert min(reported) >= 0.5 and reported[-1] == 1.0  # this noise is known: no step was made
    assert loop.describe_adapted(None) == {}
