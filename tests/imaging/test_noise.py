"""The simulated noises against their distributions, and the level maps against their description."""

from collections.abc import Callable
from math import exp, pi, sqrt

import pytest
import torch
from scipy import stats
from torch import Tensor

from debayes.imaging import noise

SIGMA = 0.05
KINDS = list(noise.KINDS.values())


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def flat(level: float, *, size: int = 400) -> Tensor:
    return torch.full((1, 1, size, size), level, dtype=torch.float64)


def assert_moments(values: Tensor, mean: float, variance: float) -> None:
    """Independent values have this mean and variance within 4.5 standard errors."""
    count = values.numel()
    squares = (values - mean).square()
    assert abs(float(values.mean()) - mean) < 4.5 * sqrt(variance / count)
    assert abs(float(squares.mean()) - variance) < 4.5 * float(squares.std()) / sqrt(count)


def test_gaussian_is_normal() -> None:
    """What is added is Normal(0, sigma²), independent from photosite to photosite."""
    added = (noise.gaussian(flat(0.5), SIGMA, generator=seeded(0)) - 0.5) / SIGMA
    assert stats.kstest(added.flatten().numpy(), stats.norm.cdf).pvalue > 1e-3
    products = added[..., 1:] * added[..., :-1]
    assert abs(float(products.mean())) < 4.5 / sqrt(products.numel())


def test_gaussian_takes_a_map() -> None:
    """With a map of levels the noise of each photosite has its own standard deviation."""
    levels = torch.linspace(0.01, 0.1, 8, dtype=torch.float64).view(8, 1, 1, 1) * torch.tensor([1.0, 2.0])
    added = noise.gaussian(torch.zeros(8, 20_000, 3, 2, dtype=torch.float64), levels, generator=seeded(1))
    for i in range(8):
        for j in range(2):
            assert_moments(added[i, :, :, j], 0, float(levels[i, 0, 0, j]) ** 2)


def test_uniform_is_uniform() -> None:
    """What is added is uniform on ±sqrt(3) sigma, which has standard deviation sigma."""
    added = noise.uniform(flat(0.5), SIGMA, generator=seeded(2)) - 0.5
    half = sqrt(3) * SIGMA
    assert float(added.abs().max()) <= half + 1e-12
    assert stats.kstest(added.flatten().numpy(), stats.uniform(-half, 2 * half).cdf).pvalue > 1e-3
    assert_moments(added, 0, SIGMA**2)


@pytest.mark.parametrize("gain", [0.003, 0.02])
@pytest.mark.parametrize("level", [0.0, 0.01, 0.2, 0.5, 1.0, 1.7])
def test_poisson_gaussian_has_dngs_variance(level: float, gain: float) -> None:
    """Mean = mosaic and variance = gain * mosaic + sigma²: the NoiseProfile of DNG."""
    noisy = noise.poisson_gaussian(flat(level), SIGMA, gain=gain, generator=seeded(3))
    assert_moments(noisy, level, gain * level + SIGMA**2)


def test_poisson_gaussian_counts_photons() -> None:
    """Without read noise the signal is a Poisson number of gains."""
    photons = noise.poisson_gaussian(flat(0.06), 0.0, gain=0.02, generator=seeded(4)) / 0.02
    assert float((photons - photons.round()).abs().max()) < 1e-9
    for k in range(10):
        share, expected = float((photons.round() == k).double().mean()), float(stats.poisson(3).pmf(k))
        assert abs(share - expected) < 4.5 * sqrt(expected / photons.numel())


def test_poisson_gaussian_keeps_values_below_black() -> None:
    """Below black there are no photons: the mean stays, and only the read noise is added."""
    noisy = noise.poisson_gaussian(flat(-0.03), SIGMA, generator=seeded(5))
    assert_moments(noisy, -0.03, SIGMA**2)


@pytest.mark.parametrize("radius", [1.0, 1.7])
def test_brown_gaussian_has_its_level_everywhere(radius: float) -> None:
    """The standard deviation is sigma at every photosite, corners and borders included, around a mean of 0."""
    draws = 20_000
    added = noise.brown_gaussian(
        torch.zeros(draws, 1, 4, 5, dtype=torch.float64), SIGMA, radius=radius, generator=seeded(6)
    )
    error = SIGMA**2 * sqrt(2 / draws)
    assert float((added.square().mean(0) - SIGMA**2).abs().max()) < 4.5 * error
    assert float(added.mean(0).abs().max()) < 4.5 * SIGMA / sqrt(draws)
    assert stats.kstest(added[:, 0, 0, 0].numpy() / SIGMA, stats.norm.cdf).pvalue > 1e-3


@pytest.mark.parametrize("radius", [1.0, 1.7])
def test_brown_gaussian_is_correlated_as_a_blur(radius: float) -> None:
    """Photosites at distance d correlate by exp(-d² / (4 radius²)): a Gaussian kernel with itself."""
    draws = 20_000
    added = noise.brown_gaussian(
        torch.zeros(draws, 1, 5, 6, dtype=torch.float64), 1.0, radius=radius, generator=seeded(7)
    )
    for dy in range(4):
        for dx in range(4):
            correlation = float((added[:, 0, 0, 0] * added[:, 0, dy, dx]).mean())
            assert abs(correlation - exp(-(dy**2 + dx**2) / (4 * radius**2))) < 4.5 * sqrt(2 / draws)
    between = added[:-1, 0, 2, 2] * added[1:, 0, 2, 2]
    assert abs(float(between.mean())) < 4.5 / sqrt(draws)


@pytest.mark.parametrize("kind", KINDS, ids=noise.KINDS)
def test_noise_is_never_clipped(kind: Callable[..., Tensor]) -> None:
    """About half of black falls below 0 and about half of white rises above 1."""
    black, white = (kind(flat(level), SIGMA, generator=seeded(8)) for level in (0.0, 1.0))
    assert 0.45 < float((black < 0).double().mean()) < 0.55
    assert 0.45 < float((white > 1).double().mean()) < 0.55


@pytest.mark.parametrize("kind", KINDS, ids=noise.KINDS)
def test_a_seed_fixes_the_noise(kind: Callable[..., Tensor]) -> None:
    """The same seed gives the same noise; another seed, or the next draw, gives another."""
    mosaic = torch.rand(2, 1, 12, 10, generator=seeded(9))
    generator = seeded(10)
    first, following = (kind(mosaic, SIGMA, generator=generator) for _ in range(2))
    assert torch.equal(first, kind(mosaic, SIGMA, generator=seeded(10)))
    assert not (first == following).any()
    assert not (first == kind(mosaic, SIGMA, generator=seeded(11))).any()
    assert not (first[0] - mosaic[0] == first[1] - mosaic[1]).any()


@pytest.mark.parametrize("kind", [noise.gaussian, noise.uniform, noise.brown_gaussian])
def test_no_noise_is_the_mosaic(kind: Callable[..., Tensor]) -> None:
    """Level 0 returns the mosaic itself."""
    mosaic = torch.rand(1, 1, 6, 8, generator=seeded(12))
    assert torch.equal(kind(mosaic, 0.0, generator=seeded(13)), mosaic)


@pytest.mark.parametrize("kind", KINDS, ids=noise.KINDS)
@pytest.mark.parametrize("sigma", [-0.1, float("nan")])
def test_a_negative_level_is_rejected(kind: Callable[..., Tensor], sigma: float) -> None:
    """A level that is negative or NaN is rejected with an error that repeats it."""
    with pytest.raises(ValueError, match=f"noise level sigma must be 0 or more, not {sigma}"):
        kind(torch.zeros(1, 1, 4, 4), sigma, generator=seeded(0))


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan")])
def test_gain_and_radius_are_positive(value: float) -> None:
    """A gain or radius that is not above 0 is rejected with an error that repeats it."""
    mosaic = torch.zeros(1, 1, 4, 4)
    with pytest.raises(ValueError, match=f"gain of Poisson noise must be above 0, not {value}"):
        noise.poisson_gaussian(mosaic, 0.1, gain=value, generator=seeded(0))
    with pytest.raises(ValueError, match=f"radius of brown noise must be above 0, not {value}"):
        noise.brown_gaussian(mosaic, 0.1, radius=value, generator=seeded(0))


LOW, HIGH = 0.02, 0.08


def level_maps(batch: int, size: int, varying: float) -> Tensor:
    draws = torch.rand(batch, noise.MAP_DRAWS, generator=seeded(14))
    return noise.level_maps(draws, size, size, low=LOW, high=HIGH, varying=varying).double()


@pytest.mark.parametrize("varying", [0.0, 0.3, 1.0])
def test_level_maps_have_the_share_that_varies(varying: float) -> None:
    """A share `varying` of the maps varies, the others are one level; all lie between low and high."""
    batch = 4000
    maps = level_maps(batch, 16, varying)
    assert float(maps.min()) >= LOW - 1e-7 and float(maps.max()) <= HIGH + 1e-7
    share = float((maps.amax((1, 2, 3)) > maps.amin((1, 2, 3))).double().mean())
    assert abs(share - varying) <= 4.5 * sqrt(varying * (1 - varying) / batch)


def test_flat_levels_are_uniform() -> None:
    """The level of a flat map is uniform between low and high (Kolmogorov-Smirnov)."""
    levels = level_maps(10_000, 4, 0.0)[:, 0, 0, 0]
    assert stats.kstest(levels.numpy(), stats.uniform(LOW, HIGH - LOW).cdf).pvalue > 1e-3


def test_varying_levels_are_halfway_in_the_mean() -> None:
    """Maps that vary are as noisy in the mean as those that do not: training sees no other average level."""
    means = level_maps(8000, 16, 1.0).mean((1, 2, 3))
    assert abs(float(means.mean()) - (LOW + HIGH) / 2) < 4.5 * float(means.std()) / sqrt(8000)


@pytest.mark.parametrize("size", [32, 64])
def test_varying_levels_are_smooth(size: int) -> None:
    """No map is steeper than the narrowest hill (sqrt(2 / e) / 0.1 a side) or the fastest wave (2.5 cycles a side
    along and across), so that a finer map has smaller steps."""
    maps = level_maps(2000, size, 1.0)
    steepest = max(sqrt(2 / exp(1)) / 0.1, 0.5 * 2 * pi * 2.5 * sqrt(2))
    for steps in (maps.diff(dim=-1), maps.diff(dim=-2)):
        assert float(steps.abs().max()) <= 1.001 * (HIGH - LOW) * steepest / (size - 1)


def test_a_third_of_the_varying_maps_are_ramps() -> None:
    """In the middle of the map, where it is not cut off, a ramp has no curvature; bumps and waves have."""
    middle = level_maps(3000, 33, 1.0)[:, 0, 8:25, 8:25]
    span = middle.amax((1, 2)) - middle.amin((1, 2))
    bent = torch.maximum(middle.diff(n=2, dim=1).abs().amax((1, 2)), middle.diff(n=2, dim=2).abs().amax((1, 2)))
    seen = span > 0.1 * (HIGH - LOW)  # so that the rounding of float32 is not taken for curvature
    share = float((bent < 1e-4 * span)[seen].double().mean())
    assert abs(share - 1 / 3) < 0.05


def test_varying_noise_has_the_levels_of_its_map() -> None:
    """Over many draws a photosite's noise has the second moment of a level map's; within one draw it varies; the
    same seed gives the same noise; sigma bounds the level."""
    mosaic, sigma = torch.full((4000, 1, 8, 8), 0.5), 0.1
    error = noise.varying_gaussian(mosaic, sigma, generator=seeded(3)) - mosaic
    assert torch.equal(noise.varying_gaussian(mosaic, sigma, generator=seeded(3)) - mosaic, error)
    draws = torch.rand(4000, noise.MAP_DRAWS, generator=seeded(4))
    levels = noise.level_maps(draws, 8, 8, low=0.0, high=sigma, varying=1.0)
    assert float(error.square().mean()) == pytest.approx(float(levels.square().mean()), rel=0.05)
    assert float(error.square().mean()) < sigma**2
    large = noise.varying_gaussian(torch.zeros(20, 1, 120, 120), sigma, generator=seeded(5))
    local = large.unfold(2, 40, 40).unfold(3, 40, 40).std((4, 5))
    assert float((local.amax((1, 2, 3)) / local.amin((1, 2, 3))).median()) > 1.3
