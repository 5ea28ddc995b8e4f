"""`restore` against its laws: tiles equal the whole, symmetries commute, patterns and sizes do not matter."""

from copy import deepcopy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import untrained
from torch import Tensor

import debayes
from debayes.imaging import cfa
from debayes.imaging.cfa import PATTERNS, SYMMETRIES
from debayes.network.config import Config
from debayes.posterior.nig import NormalInverseGamma
from debayes.restoration import restore, restore_tiles, tiling
from debayes.system.errors import DebayesError

NAMES = ("loc", "count", "concentration", "rate")
CONFIGS = {
    "one level": Config(widths=(8,), blocks=1, bottom_blocks=1, tail=4, tail_blocks=0),
    "two levels": Config(widths=(6, 8), blocks=1, bottom_blocks=1, tail=4),
    "three levels": Config(widths=(4, 6, 8), blocks=1, bottom_blocks=1, tail=4),
    "paper": Config("paper", widths=(8,), blocks=1, groups=1, growth=4, layers=2),
}


NETWORKS = {name: untrained(config) for name, config in CONFIGS.items()}
SHIPPED = debayes.load("wild-s")


def noisy(height: int, width: int, seed: int = 0) -> Tensor:
    return torch.rand(1, height, width, generator=torch.Generator().manual_seed(seed))


def assert_same(left: NormalInverseGamma, right: NormalInverseGamma) -> None:
    """Equal to 1e-5: image, noise map and doubt map. Count and concentration merged of eight nearly equal
    posteriors are quotients of small differences, and known to 1e-4."""
    for name in ("mean", "noise_variance", "mean_variance"):
        torch.testing.assert_close(getattr(left, name), getattr(right, name), rtol=1e-5, atol=1e-5)
    for name in ("count", "concentration"):
        torch.testing.assert_close(getattr(left, name), getattr(right, name), rtol=1e-4, atol=1e-4)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA GPU")
def test_pinned_memory() -> None:
    """A mosaic in main memory gives the pixels of one on the GPU, and both are checked."""
    network, mosaic = deepcopy(NETWORKS["two levels"]).cuda(), noisy(200, 160)
    here, there = restore(network, mosaic, tile=64), restore(network, mosaic.cuda(), tile=64)
    for name in NAMES:
        assert getattr(here, name).device.type == "cpu" and getattr(there, name).is_cuda
        torch.testing.assert_close(getattr(here, name), getattr(there, name).cpu(), rtol=1e-6, atol=1e-6)
    broken, counts = mosaic.clone(), (1023 * mosaic).round()
    broken[0, 150, 3] = torch.nan
    for bad, words in ((broken, "NaN or infinity"), (counts, "counts")):
        for wrong in (bad, bad.cuda()):
            with pytest.raises(DebayesError, match=words):
                restore(network, wrong, tile=64)


@given(
    st.sampled_from(sorted(NETWORKS)),
    st.sampled_from(PATTERNS),
    st.integers(2, 60),
    st.integers(2, 60),
    st.integers(12, 50),
    st.booleans(),
)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_tiles_equal_the_whole(name: str, pattern: str, height: int, width: int, tile: int, ensemble: bool) -> None:
    """However the picture is cut, every pixel's posterior is that of the uncut picture, to float rounding."""
    mosaic = noisy(height, width)
    whole = restore(NETWORKS[name], mosaic, pattern, ensemble=ensemble, tile=1000)
    assert_same(restore(NETWORKS[name], mosaic, pattern, ensemble=ensemble, tile=tile), whole)


def test_tiles_of_the_shipped_network_equal_the_whole() -> None:
    """The same for the trained weights, on a picture larger than their receptive field."""
    mosaic = noisy(301, 297)
    assert_same(restore(SHIPPED, mosaic, "GBRG", tile=128), restore(SHIPPED, mosaic, "GBRG", tile=1000))


@given(
    st.sampled_from(sorted(NETWORKS)),
    st.sampled_from(PATTERNS),
    st.sampled_from(SYMMETRIES),
    st.integers(2, 40),
    st.integers(2, 40),
)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_ensemble_commutes_with_the_symmetries(
    name: str, pattern: str, symmetry: cfa.Symmetry, height: int, width: int
) -> None:
    """Turning the mosaic and restoring it equals restoring and turning: the ensemble is a mean over the group."""
    mosaic = noisy(height, width)
    turned = restore(
        NETWORKS[name], symmetry.apply(mosaic), symmetry.pattern(pattern, height, width), ensemble=True
    )
    assert_same(turned, restore(NETWORKS[name], mosaic, pattern, ensemble=True).map(symmetry.apply))


def test_ensemble_is_the_mean_of_eight_restorations() -> None:
    """E[z] and E[sigma²] are means over the eight; Var[z] also holds their disagreement."""
    mosaic, network = noisy(19, 24), NETWORKS["two levels"]
    single = [
        restore(network, s.apply(mosaic), s.pattern("BGGR", 19, 24)).map(s.undo).map(Tensor.double)
        for s in SYMMETRIES
    ]
    merged = restore(network, mosaic, "BGGR", ensemble=True).map(Tensor.double)
    means = torch.stack([p.mean for p in single])
    torch.testing.assert_close(merged.mean, means.mean(0), rtol=1e-5, atol=1e-5)
    noise = torch.stack([p.noise_variance for p in single]).mean(0)
    torch.testing.assert_close(merged.noise_variance, noise, rtol=1e-4, atol=1e-8)
    spread = torch.stack([p.mean_variance for p in single]).mean(0) + means.var(0, correction=0)
    torch.testing.assert_close(merged.mean_variance, spread, rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_phase_is_undone(pattern: str) -> None:
    """A picture whose mosaic is another phase of the same scene is restored to the same pixels, inside.

    Cutting a row and a column off an RGGB mosaic changes its phase, not the scene. Compared where neither sees
    its border, and where the network's grid falls on the same photosites.
    """
    network, mosaic = NETWORKS["one level"], noisy(80, 84)
    top, left = cfa.red_offset(pattern)
    cut = mosaic[:, top:, left:]
    assert cfa.shift("RGGB", top, left) == pattern
    whole, part = restore(network, mosaic, "RGGB"), restore(network, cut, pattern)
    inside = (slice(None), slice(24, 56), slice(24, 60))
    for name in NAMES:
        shifted = getattr(part, name)[:, 24 - top : 56 - top, 24 - left : 60 - left]
        torch.testing.assert_close(shifted, getattr(whole, name)[inside], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("color", [(0.0, 0.0, 0.0), (0.5, 0.5, 0.5), (0.2, 0.6, 0.4), (0.9, 0.8, 0.7)])
@pytest.mark.parametrize("ensemble", [False, True])
def test_a_constant_scene_comes_back_constant(color: tuple[float, float, float], ensemble: bool) -> None:
    """Without noise, a scene of one colour is that colour at every pixel: to one and a half 8-bit steps at the
    worst pixel, and to half of one in the mean. (The trained network is not exact; its grid leaves a trace.)"""
    scene = torch.tensor(color).view(3, 1, 1).expand(3, 61, 75)
    restored = restore(SHIPPED, cfa.mosaic(scene, "GRBG"), "GRBG", ensemble=ensemble).mean
    assert float((restored - scene).abs().max()) < 1.5 / 255
    assert float((restored.mean((1, 2)) - scene[:, 0, 0]).abs().max()) < 0.5 / 255


@pytest.mark.parametrize("size", [(2, 2), (2, 3), (3, 2), (5, 2), (2, 1000)])
def test_the_smallest_mosaics(size: tuple[int, int]) -> None:
    """From 2x2 photosites on, every size gives a finite posterior of that size."""
    posterior = restore(SHIPPED, noisy(*size), "GBRG", ensemble=True)
    for name in NAMES:
        assert getattr(posterior, name).shape == (3, *size)
        assert getattr(posterior, name).isfinite().all()


def test_batches_are_restored_one_by_one() -> None:
    """Leading axes are kept, and mosaics of a batch do not see each other."""
    network = NETWORKS["two levels"]
    batch = torch.stack([torch.stack([noisy(20, 22, seed=2 * i + j) for j in range(2)]) for i in range(3)])
    together = restore(network, batch, "GRBG", tile=16)
    assert together.loc.shape == (3, 2, 3, 20, 22)
    alone = restore(network, batch[2, 1], "GRBG", tile=16)
    assert_same(together.map(lambda t: t[2, 1]), alone)


@pytest.mark.parametrize("free", [2e9, 8e9, 24e9, 140e9])
@pytest.mark.parametrize(("height", "width"), [(4000, 6000), (600, 800), (12000, 16000), (300, 200_000)])
def test_bands_fit_a_gpu(free: float, height: int, width: int) -> None:
    """The tensors that must exist at once for a tile fit into half of the free memory, and use much of it if the
    picture is larger; none has more elements than 32 bits count; a large picture that is copied has two bands."""
    config = Config(widths=(64, 128, 256), blocks=4, bottom_blocks=4, tail=64, tail_blocks=1)
    # Input, hidden layer and output of a residual block of 64 channels in half precision; the mosaic, interpolated
    # colours, maps and posterior in single precision.
    needed = 3 * 64 * 2 + (1 + 3 + 12 + 12) * 4
    reach = 2 * (config.receptive_radius + config.stride)
    for moved in (False, True):
        rows, columns = tiling.band(config, height, width, moved, int(free))
        seen = (min(rows, height) + reach) * min(columns + reach, width + 64)
        assert seen * needed <= 0.5 * free and seen * 64 < 2**31 * 1.01
        if not moved and rows < height:
            assert seen * needed > 0.25 * free or seen * 64 > 2**30
        assert not moved or height < 16 * config.receptive_radius or rows < height
    assert tiling.band(config, 4000, 6000, False, int(140e9))[0] >= 4000


def test_tiles_cover_the_picture_once() -> None:
    """No gap, no overlap, none larger than asked for, and progress ends at 1."""
    network, mosaic, told = NETWORKS["two levels"], noisy(50, 30), []
    covered = torch.zeros(50, 30)
    for rows, columns, part in restore_tiles(network, mosaic, tile=16, progress=told.append):
        covered[rows, columns] += 1
        assert covered[rows, columns].shape == part.loc.shape[-2:] and max(part.loc.shape[-2:]) <= 16
    assert (covered == 1).all()
    assert told == sorted(told) and told[-1] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"pattern": "RGBG"}, "one of RGGB, BGGR, GRBG, GBRG, not 'RGBG'"),
        ({"mosaic": torch.zeros(1, 1, 1)}, "at least 2x2 photosites, not 1x1"),
        ({"mosaic": torch.full((1, 4, 4), float("nan"))}, "not numbers"),
        ({"tile": 0}, "1 or more photosites, not 0"),
    ],
)
def test_bad_arguments(arguments: dict[str, object], message: str) -> None:
    """What cannot be restored is rejected with an error message."""
    given = {"mosaic": noisy(8, 8), "pattern": "RGGB"} | arguments
    with pytest.raises(ValueError, match=message):
        restore(NETWORKS["one level"], **given)
