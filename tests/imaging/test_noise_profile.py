"""Noise profiles against the noise they are estimated from."""

import pytest
import torch
from torch import Tensor

from debayes.evaluation import scenes
from debayes.imaging import cfa, noise, noise_profile, virtual_camera


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def ramp(size: int = 512) -> Tensor:
    """A mosaic that brightens from left to right, with some texture in its lower half."""
    plane = torch.linspace(0.02, 0.9, size).expand(size, size).clone()
    stripes = 0.1 * (torch.arange(size) % 5 == 0).float()
    plane[size // 2 :] += stripes
    return plane[None]


@pytest.mark.parametrize("pattern", [None, "RGGB", "GBRG"])
@pytest.mark.parametrize(("gain", "sigma"), [(0.01, 2.0), (0.002, 3.0), (0.0005, 6.0)])
def test_estimate_finds_photon_and_read_noise(gain: float, sigma: float, pattern: str | None) -> None:
    """variance = gain * signal + sigma² is found to 10 % from one mosaic, half of it textured."""
    found = noise_profile.estimate(
        noise.poisson_gaussian(ramp(), sigma / 255, gain=gain, generator=seeded(0)), pattern
    )
    signal = torch.tensor([0.1, 0.5, 0.9])
    truth = noise_profile.Profile(gain, (sigma / 255) ** 2)
    assert torch.allclose(found.variance(signal), truth.variance(signal), rtol=0.1)


@pytest.mark.parametrize("sigma", [5.0, 20.0])
def test_estimate_on_a_photograph(sigma: float) -> None:
    """The level of Gaussian noise is found to 10 % on a real picture."""
    mosaic = cfa.mosaic(scenes.photograph("chelsea")[:, :300, :450])
    found = noise_profile.estimate(noise.gaussian(mosaic, sigma / 255, generator=seeded(1)))
    level = 255 * found.variance(mosaic).mean().sqrt()
    assert float(level) == pytest.approx(sigma, rel=0.1)


@pytest.mark.parametrize("pattern", cfa.PATTERNS)
def test_estimate_of_a_textured_raw(pattern: str) -> None:
    """Of a raw of 0.1 megapixels of a photograph the gain is found to 8 % if the pattern is known, whichever it is.
    The colours have different noise, as they have different light, and choosing smooth windows does not bias it."""
    body = virtual_camera.Body()
    light = body.expose(scenes.photograph("chelsea")[:, :300, :450]).clamp_max(1)
    for iso in (400.0, 1600.0, 6400.0, 25600.0):
        counts = body.shoot(light, pattern, iso, generator=seeded(9))
        mosaic = (counts[None] - body.black).float() / (body.white - body.black)
        truth = body.profile(iso)
        found = noise_profile.estimate(mosaic, pattern, white=1.0, floor=truth.floor)
        assert found.gain == pytest.approx(truth.gain, rel=0.08)


def test_directions_are_orthonormal_and_blind_to_plain_colours() -> None:
    """So details of white noise are independent and have its variance, and a plain area of any colour has none."""
    directions = noise_profile._filters().flatten(1).double()
    torch.testing.assert_close(directions @ directions.T, torch.eye(len(directions)).double(), rtol=0, atol=1e-6)
    plain = cfa.masks("RGGB", noise_profile.WINDOW, noise_profile.WINDOW).flatten(1).double()
    assert float((directions @ plain.T).abs().max()) < 1e-5


def test_photographs_have_less_of_the_quiet_directions() -> None:
    """A photograph without noise has a third of the energy that it has in the diagonal detail of its planes."""
    light = cfa.mosaic(virtual_camera.Body().expose(scenes.photograph("coffee")))
    windows, planes = noise_profile._in_windows(light, 1.0), noise_profile._in_planes(light, 1.0)
    assert windows.detail.square().mean() < 0.34 * planes.detail.square().mean()


@pytest.mark.parametrize("pattern", [None, "RGGB"])
def test_estimate_scales_with_the_mosaic(pattern: str | None) -> None:
    """Twice the signal has twice the gain and four times the floor."""
    mosaic = noise.poisson_gaussian(ramp(256), 4 / 255, gain=0.004, generator=seeded(2))
    once, twice = noise_profile.estimate(mosaic, pattern), noise_profile.estimate(2 * mosaic, pattern)
    assert twice.gain == pytest.approx(2 * once.gain, rel=1e-4)
    assert twice.floor == pytest.approx(4 * once.floor, rel=1e-4)


def test_estimate_of_one_level_is_a_floor() -> None:
    """A scene of one brightness has no line to lie on, but a level."""
    found = noise_profile.estimate(noise.gaussian(torch.full((1, 400, 400), 0.5), 0.04, generator=seeded(3)))
    assert found.gain == 0 and found.floor == pytest.approx(0.04**2, rel=0.05)


def test_all_windows_no_rougher_than_noise_are_used() -> None:
    """Of a picture that is plain in one half and texture in the other, most plain blocks are chosen and hardly any
    textured one; so the estimate is better than from the few smoothest."""
    plain = noise.gaussian(torch.full((1, 512, 512), 0.5), 0.02, generator=seeded(7))
    rough = noise.gaussian(plain[..., :256], 0.1, generator=seeded(8))
    mosaic = torch.cat((rough, plain[..., 256:]), 2)
    truth = noise_profile.Profile(0.0, 0.02**2)
    for seen in (noise_profile._in_planes(mosaic, 1.0), noise_profile._in_windows(mosaic, 1.0)):
        levels = seen.by_brightness()
        level = levels[len(levels) // 2]
        chosen = level.no_rougher_than(truth)
        assert float(chosen.detail.square().mean()) == pytest.approx(0.02**2, rel=0.1)
        smooth = level.texture < 1.5 * 0.02**2
        assert len(chosen.texture) > 0.3 * int(smooth.sum())
        assert chosen.detail.numel() > noise_profile.FEWEST_DETAILS
    found, few = noise_profile.estimate(mosaic), noise_profile.estimate(mosaic, blocks=50)
    assert abs(float(found.variance(torch.tensor(0.5))) / 0.02**2 - 1) < 0.05
    assert abs(float(few.variance(torch.tensor(0.5))) / 0.02**2 - 1) > 0.05


def test_estimate_without_noise_is_nothing() -> None:
    """A plain scene without noise has variance 0, not a number that is none."""
    found = noise_profile.estimate(torch.full((1, 64, 64), 0.5))
    assert (found.gain, found.floor) == (0.0, 0.0)
    rounding = noise_profile.estimate(torch.full((1, 64, 64), 0.5), "RGGB")
    assert rounding.gain == 0 and rounding.floor < 1e-12


def test_estimate_takes_small_and_odd_mosaics() -> None:
    """Any mosaic from 8x8 gives a profile of no negative numbers; smaller ones are rejected."""
    for height, width in ((8, 8), (9, 31), (33, 16), (17, 16)):
        for pattern in (None, "BGGR"):
            found = noise_profile.estimate(torch.rand(1, height, width, generator=seeded(4)), pattern)
            assert found.gain >= 0 and found.floor >= 0
    with pytest.raises(ValueError, match="at least 8x8 photosites, not 6x40"):
        noise_profile.estimate(torch.zeros(1, 6, 40))


def test_dark_variance_is_that_of_the_noise_alone() -> None:
    """Bands, a drift and hot photosites are not noise: the variance of normal noise is found to 5 % beside them."""
    dark = 0.02 * torch.randn(300, 40, generator=seeded(5))
    dark += torch.linspace(0, 0.3, 300)[:, None] + 0.05 * torch.randn(300, 1, generator=seeded(6))
    dark[::50, 7] = 1.0
    assert noise_profile.dark_variance(dark) == pytest.approx(0.02**2, rel=0.05)


@pytest.mark.parametrize("floor", [0.0, (3 / 255) ** 2, (9 / 255) ** 2])
def test_a_known_floor_is_kept(floor: float) -> None:
    """The line goes through it, and its gain is that of least squares there; never below 0."""
    found = noise_profile.estimate(
        noise.poisson_gaussian(ramp(), 3 / 255, gain=0.002, generator=seeded(0)), floor=floor
    )
    assert found.floor == floor
    if floor == (3 / 255) ** 2:
        assert found.gain == pytest.approx(0.002, rel=0.1)
    too_much = noise_profile.estimate(noise.gaussian(ramp(), 3 / 255, generator=seeded(0)), floor=0.1)
    assert too_much == noise_profile.Profile(0.0, 0.1)


def test_variance_below_black_is_that_of_black() -> None:
    """Values below black attract no photons."""
    assert torch.equal(
        noise_profile.Profile(0.1, 0.2).variance(torch.tensor([-1.0, 0.0, 1.0])), torch.tensor([0.2, 0.2, 0.3])
    )
