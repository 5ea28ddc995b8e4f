"""The virtual camera: its noise against its profile, its colours, its clipping and rounding."""

import pytest
import torch
from torch import Tensor

from debayes.imaging import cfa, color, virtual_camera


def shoot(
    value: float, *, size: int = 200, n: int = 1, seed: int = 0, high: float = 0.2, **fixed: float
) -> virtual_camera.Shot:
    """Shots of a grey card; draws fixed by their names."""
    generator = torch.Generator().manual_seed(seed)
    draws = torch.rand(n, virtual_camera.SHOT.width, generator=generator)
    for name, number in ({"black": 0.5} | fixed).items():
        virtual_camera.SHOT(name, draws).fill_(number)
    normal = torch.randn(n, 2, size, size, generator=generator)
    return virtual_camera.shoot(torch.full((n, 3, size, size), value), draws, normal, high=high)


@pytest.mark.parametrize("noise", [0.3, 0.6])
@pytest.mark.parametrize("value", [0.2, 0.6, 0.9])
def test_noise_follows_the_profile(value: float, noise: float) -> None:
    """The mean is the signal, the variance gain * signal + floor, in each colour, where nothing is clipped."""
    shot = shoot(value, noise=noise, exposure=0.6, bits=1.0)
    error = cfa.pack(shot.mosaic - cfa.mosaic(shot.clean))[0]
    signal = cfa.pack(cfa.mosaic(shot.clean))[0, :, 0, 0]
    for plane, level in zip(error, signal.tolist(), strict=True):
        variance = float(shot.gain) * level + float(shot.floor)
        assert abs(float(plane.mean())) < 5 * (variance / plane.numel()) ** 0.5
        eighth = float(shot.gain) ** 2 / 8  # what the approximation of photons adds
        assert variance * 0.95 < float(plane.var()) < variance * 1.05 + eighth + 2**-28


def test_grey_is_neutral_after_white_balance() -> None:
    """Whatever the filters, a grey card has equal colours once balanced."""
    shot = shoot(0.5, n=20, size=4, exposure=0.5)
    balanced = shot.clean * shot.gains
    assert torch.allclose(balanced, balanced[:, 1:2].expand_as(balanced), rtol=1e-5)
    assert float(shot.gains.min()) == 1 and float(shot.gains.amax((1, 2, 3)).min()) > 1


def test_white_clips() -> None:
    """A saturated card is 1 in all colours before white balance, noisy or not."""
    shot = shoot(1.0, n=5, size=8, exposure=1.0, noise=0.0)
    assert bool((shot.clean[:, 1] == 1).all()) and float(shot.mosaic.max()) == 1
    assert float(shoot(1.0, n=5, exposure=1.0, noise=0.8).mosaic.max()) == 1


def test_saturated_photosites_have_no_noise() -> None:
    """Light far above white saturates a photosite whatever its noise, so the mosaic has none there."""
    shot = shoot(1.0, exposure=1.0, noise=0.3)
    green = cfa.pack(shot.mosaic)[:, 1:3]
    assert bool((green == 1).all()) and bool((shot.clean[:, 1] == 1).all())
    assert float(cfa.pack(shot.mosaic)[:, 0].std()) > 0


@pytest.mark.parametrize(("bits", "depth"), [(0.0, 10), (1.0, 14)])
def test_values_are_whole_steps(bits: float, depth: int) -> None:
    """The converter has so many bits, and a black level that is up to one step off."""
    shot = shoot(0.4, noise=0.2, bits=bits, black=1.0)
    steps = shot.mosaic * 2**depth
    assert torch.equal(steps, steps.round())
    shift = (shot.mosaic - cfa.mosaic(shot.clean)).mean() * 2**depth
    centred = shoot(0.4, noise=0.2, bits=bits, black=0.5)
    assert float(shift - (centred.mosaic - cfa.mosaic(centred.clean)).mean() * 2**depth) == pytest.approx(
        1, abs=0.3
    )


def test_noise_grows_to_its_limit() -> None:
    """Half the root of the gain is `high` at most, and nothing at the other end."""
    gains: list[Tensor] = [shoot(0.5, size=2, noise=level, high=0.2).gain.sqrt() / 2 for level in (0.0, 0.5, 1.0)]
    assert float(gains[0]) < 1e-3
    assert float(gains[1]) == pytest.approx(0.05, rel=1e-5) and float(gains[2]) == pytest.approx(0.2, rel=1e-5)


def test_body_profile_is_its_noise() -> None:
    """The counts of a named camera have the variance of its profile, and their mean is the light."""
    body = virtual_camera.Body()
    light = body.expose(torch.full((3, 300, 300), 0.5))
    counts = body.shoot(light, "RGGB", 3200, generator=torch.Generator().manual_seed(0))
    mosaic = (counts[None] - body.black).double() / (body.white - body.black)
    for plane, level in zip(cfa.pack(mosaic), cfa.pack(cfa.mosaic(light))[:, 0, 0].tolist(), strict=True):
        variance = float(body.profile(3200).variance(torch.tensor(level)))
        assert float(plane.var()) == pytest.approx(variance, rel=0.05)
        assert float(plane.mean()) == pytest.approx(level, abs=5 * (variance / plane.numel()) ** 0.5)


def test_body_colors() -> None:
    """The matrix and the white balance that are stored in the DNG give the picture back."""
    body = virtual_camera.Body()
    picture = torch.tensor([0.7, 0.4, 0.2]).view(3, 1, 1)
    balanced = body.expose(picture) * torch.tensor(body.gains).view(3, 1, 1)
    found = color.from_camera(body.matrix) @ balanced[:, 0, 0]
    assert torch.allclose(found, color.decode_srgb(picture)[:, 0, 0], atol=1e-5)


def test_body_clips() -> None:
    """Too much light is white in every photosite; counts are never negative."""
    body = virtual_camera.Body()
    generator = torch.Generator().manual_seed(0)
    light = body.expose(torch.ones(3, 20, 20), stops=4)
    assert bool((body.shoot(light, "RGGB", 400, generator=generator) == body.white).all())
    assert int(body.shoot(torch.zeros(3, 50, 50), "RGGB", 1e6, generator=generator).min()) == 0
    with pytest.raises(ValueError, match="ISO speed is above 0"):
        body.profile(0)


def test_unusual_light() -> None:
    """Unusual shots have white balances from 0.4 to 4 times that of green, the least of the three being 1, and
    exposures down to -4 stops; a grey card is neutral once balanced, in them as in the others."""
    draws = torch.rand(4000, virtual_camera.SHOT.width, generator=torch.Generator().manual_seed(0))
    unusual = torch.arange(4000) < 2000
    shot = virtual_camera.shoot(
        torch.full((4000, 3, 2, 2), 0.5), draws, torch.zeros(4000, 2, 2, 2), high=0.2, unusual=unusual
    )
    assert torch.allclose(shot.gains.amin((1, 2, 3)), torch.ones(4000))
    ratios = shot.gains[:, ::2] / shot.gains[:, 1:2]
    assert 0.4 <= float(ratios[:2000].min()) < 0.45 and 3.7 < float(ratios[:2000].max()) <= 4.01
    assert float(ratios[2000:].min()) > 1
    balanced = shot.clean * shot.gains
    whole = shot.clean.amax((1, 2, 3)) < 1
    assert torch.allclose(balanced[whole], balanced[whole][:, 1:2].expand_as(balanced[whole]), rtol=1e-5)
    assert float(balanced[:2000].amax((1, 2, 3)).min()) < float(balanced[2000:].amax((1, 2, 3)).min()) / 3


def test_levels_of_all_orders_of_magnitude() -> None:
    """With `low`, the median strength is the geometric mean of the lowest and the highest."""
    draws = torch.rand(4000, virtual_camera.SHOT.width, generator=torch.Generator().manual_seed(0))
    shot = virtual_camera.shoot(
        torch.full((4000, 3, 2, 2), 0.5), draws, torch.zeros(4000, 2, 2, 2), high=0.2, low=0.002
    )
    strength = shot.gain.sqrt() / 2
    assert 0.002 <= float(strength.min()) < 0.0021 and 0.19 < float(strength.max()) <= 0.2001
    assert abs(float(strength.median()) / 0.02 - 1) < 0.1
