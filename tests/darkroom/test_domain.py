"""The networks' domain: noise after the transform, profiles of raws, highlights, and the way back."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from shots import BODY, photograph, shoot

from debayes.darkroom import domain, mosaics
from debayes.darkroom.domain import MosaicSource, RawSource
from debayes.evaluation import scenes
from debayes.formats import pictures, raw
from debayes.imaging import cfa, noise_profile, vst
from debayes.posterior.nig import NormalInverseGamma


def test_noise_variance_after_the_transform() -> None:
    """The variance that adapting uses is that of transformed noise, in each colour."""
    source = shoot(BODY.expose(torch.full((3, 400, 400), 0.5)), 6400)
    encoded = cfa.pack(domain.encode_raw(source, BODY.profile(6400)))[[0, 1, 3]]
    mean = encoded.mean((1, 2), keepdim=True)
    told = RawSource(source, BODY.profile(6400)).noise_variance(mean.expand(3, 2, 2))
    assert torch.allclose(told[:, 0, 0], encoded.var((1, 2)), rtol=0.05)


@pytest.mark.parametrize("pattern", ["GRBG", "quad+2+0", "xtrans"])
def test_strips_of_any_pattern(pattern: str) -> None:
    """The white balance fits the colours in every strip, also where no strip starts with a whole cell."""
    generator = torch.Generator().manual_seed(0)
    mosaic = 0.9 * torch.rand(1, 2 * domain.STRIP + 9, 30, generator=generator)
    source = raw.Raw(mosaic, pattern, (2, 1, 1.5), torch.eye(3))
    profile = BODY.profile(800)
    gains = torch.tensor(source.gains).view(3, 1, 1).expand(3, *source.size)
    expected = vst.encode(source.mosaic * cfa.mosaic(gains, pattern), RawSource(source, profile).offset)
    assert torch.equal(domain.encode_raw(source, profile), expected)


@pytest.mark.parametrize("iso", [100, 400, 1600, 6400, 25600])
def test_profile_is_found(iso: float) -> None:
    """Blind, from one large and mostly dark mosaic: gain and floor within 10 % of the truth."""
    tall = scenes.photograph("chelsea").repeat(1, 4, 4)
    ramp = torch.linspace(0.02, 1, tall.shape[2]) ** 2
    found = noise_profile.estimate(shoot(BODY.expose(tall * ramp), iso).mosaic, white=1.0)
    truth = BODY.profile(iso)
    assert found.gain == pytest.approx(truth.gain, rel=0.1)
    assert found.floor == pytest.approx(truth.floor, rel=0.1)


@pytest.mark.parametrize("iso", [400, 6400])
def test_blind_noise_of_a_simulated_raw(tmp_path: Path, iso: float) -> None:
    """Gain and floor are found to 15 % from the mosaic and the masked photosites of one file."""
    pictures.write(tmp_path / "scene.png", scenes.wallpaper(1000, 1400), bits=8)
    mosaics.simulate_raw(tmp_path / "scene.png", tmp_path / "scene.dng", iso=iso)
    found = domain.noise_of(replace(raw.read(tmp_path / "scene.dng"), profile=None))
    truth = BODY.profile(iso)
    assert found.gain == pytest.approx(truth.gain, rel=0.15)
    assert found.floor == pytest.approx(truth.floor, rel=0.15)


def test_stored_profiles_are_used() -> None:
    """A profile in the file is not replaced by an estimate."""
    assert domain.noise_of(shoot(photograph(64), 6400)) == BODY.profile(6400)


def posterior(mean: torch.Tensor, noise: float = 0.1) -> NormalInverseGamma:
    """A posterior with this mean and standard deviation of the noise; that of the mean is a tenth of it."""
    whole = torch.ones_like(mean)
    return NormalInverseGamma(mean, 100 * whole, 2 * whole, noise**2 * whole)


@pytest.mark.parametrize("pattern", cfa.PATTERNS)
def test_there_and_back(pattern: str) -> None:
    """Encoded photosites decode to themselves, whatever their colour, and linear deviations are the transform's."""
    source = RawSource(shoot(photograph(64) / 4, 400, pattern), BODY.profile(400))
    encoded = source.encode()
    tile = source.decode(slice(0, 64), slice(0, 64), posterior(encoded.expand(3, -1, -1).contiguous(), 0.01))
    low, high = tile.interval(1e-3)  # quantiles are decoded exactly
    assert torch.allclose(cfa.mosaic((low + high) / 2, pattern), source.mosaic, atol=2e-3)
    ratio = (tile.noise / tile.doubt)[tile.picture > 0.01]  # 10 in the networks' domain
    assert torch.allclose(ratio, torch.tensor(10.0), rtol=0.05)


def test_doubt_without_limit_makes_no_dots() -> None:
    """However large a variance a network claims, a dark pixel stays dark: only a little of it is added."""
    source = shoot(BODY.expose(torch.full((3, 8, 8), 0.2)), 6400)
    told = RawSource(source, BODY.profile(6400))
    mean = torch.full((3, 8, 8), 0.3)
    usual, wild = (
        told.decode(
            slice(0, 8), slice(0, 8), NormalInverseGamma(mean, torch.full_like(mean, count), mean + 2, mean)
        )
        for count in (1e3, 1e-6)
    )
    assert float(wild.posterior.mean_variance.min()) > 1e4 and float(wild.doubt.min()) > 1
    assert float((wild.picture - usual.picture).max()) < 0.03


def test_mosaics_stay_as_they_are() -> None:
    """A mosaic of sRGB values: no transform, and deviations are those of the posterior."""
    values = torch.rand(1, 8, 10, generator=torch.Generator().manual_seed(0))
    source = MosaicSource(values, "RGGB")
    tile = source.decode(slice(0, 8), slice(0, 10), posterior(values.expand(3, -1, -1).contiguous()))
    assert torch.equal(source.encode(), values) and torch.equal(tile.picture[:1], values)
    assert torch.allclose(tile.noise, torch.tensor(0.1)) and torch.allclose(tile.doubt, torch.tensor(0.01))
    low, high = tile.interval(0.9)
    assert bool((low < tile.picture).all()) and bool((tile.picture < high).all())


def test_blown_photosites_get_noise_below_white() -> None:
    """Networks know highlights as noise that is clipped at white: half of it is below, none above."""
    raw = shoot(torch.full((3, 64, 64), 4.0), 6400)
    assert float(raw.mosaic.min()) == float(raw.mosaic.max()) == 1
    clipped = RawSource(raw, BODY.profile(6400)).encode()
    white = RawSource(replace(raw, saturation=2.0), BODY.profile(6400)).encode()  # nothing counts as blown
    assert bool((clipped <= white).all()) and 0.4 < float((clipped < white).float().mean()) < 0.6


def test_strips() -> None:
    """Strips cover all rows once, in order."""
    rows = [row for strip in domain.strips(100) for row in range(strip.start, strip.stop)]
    assert rows == list(range(100)) and len(list(domain.strips(100))) == 4
