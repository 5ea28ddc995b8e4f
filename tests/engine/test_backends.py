"""Engines against the network itself: the same pixels, whatever runs it. `selftest` is tested here too."""

import pytest
import torch
from engines import CONFIGS, EXACT, assert_close, noisy, prepared
from networks import untrained

import debayes
from debayes import engine, restoration
from debayes.engine import Engine, backends, selftest
from debayes.imaging import cfa
from debayes.posterior.nig import MeanOnly


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("config", CONFIGS)
def test_engines_agree_with_the_network(config: str, name: str) -> None:
    """To 1e-4 at every pixel of a picture in tiles, odd sizes and another pattern than the network's own."""
    network = untrained(CONFIGS[config])
    mosaic = noisy(1, 75, 118)
    right = restoration.restore(network, mosaic, "GBRG", tile=48)
    assert_close(restoration.restore(prepared(network, name), mosaic, "GBRG", tile=48), right, 1e-4)


@pytest.mark.parametrize("name", EXACT)
def test_shipped_network_agrees(name: str) -> None:
    """The same for trained weights, the doubt too, where tiles are cut inside the receptive field."""
    network = debayes.load("wild-s")
    mosaic = noisy(1, 141, 165)
    right = restoration.restore(network, mosaic, "BGGR", tile=90)
    found = restoration.restore(prepared(network, name), mosaic, "BGGR", tile=90)
    assert_close(found, right, 1e-4)
    torch.testing.assert_close(found.mean_variance.sqrt(), right.mean_variance.sqrt(), rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", ["winograd", "ncnn"])
@pytest.mark.parametrize("config", ["two levels", "paper"])
def test_batches_are_run_one_by_one(config: str, name: str) -> None:
    """These engines have no batches: mosaics of one do not mix."""
    network = untrained(CONFIGS[config])
    fast = prepared(network, name)
    batch = noisy(3, 1, 40, 48)
    together = restoration.restore(fast, batch)
    for i in range(3):
        assert_close(restoration.restore(fast, batch[i]), together.map(lambda t, i=i: t[i]), 1e-5)


def test_half_precision_costs_no_quality() -> None:
    """Below 0.01 dB at sigma 10, the heads in single precision."""
    network = debayes.load("wild-s")
    half = prepared(network, "half")
    from skimage import data

    truth = torch.from_numpy(data.chelsea()[:200, :240].copy()).permute(2, 0, 1).float() / 255
    mosaic = cfa.mosaic(truth) + 10 / 255 * torch.randn(1, 200, 240, generator=torch.Generator().manual_seed(0))
    errors = [float((debayes.restore(n, mosaic).mean - truth).square().mean().log10()) for n in (network, half)]
    assert abs(10 * (errors[0] - errors[1])) < 0.01
    assert debayes.restore(half, mosaic).rate.dtype == torch.float32


@pytest.mark.parametrize("tile", [20, 1000])
def test_the_image_alone(tile: int) -> None:
    """`restore_image` is the mean of `restore`."""
    network, mosaic = untrained(CONFIGS["two levels"]), noisy(2, 1, 50, 61)
    image = restoration.restore_image(network, mosaic, "GRBG", tile=tile)
    assert torch.equal(image, restoration.restore(network, mosaic, "GRBG", tile=tile).mean)


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("config", CONFIGS)
def test_engines_for_the_image_alone(config: str, name: str) -> None:
    """They give the network's own image, through the ensemble too."""
    network, mosaic = untrained(CONFIGS[config]), noisy(1, 75, 118)
    prepared(network, name)  # or a skipped test
    fast = engine.prepare(network, name, image=True)
    assert fast.name == name
    for ensemble in (False, True):
        found, right = (
            restoration.restore_image(runner, mosaic, "GBRG", tile=64, ensemble=ensemble)
            for runner in (fast, network)
        )
        torch.testing.assert_close(found, right, rtol=0, atol=1e-4)
    with pytest.raises(ValueError, match=r"prepared with image=True.*use restore_image"):
        restoration.restore(fast, mosaic)


def test_image_engines_give_only_the_mean() -> None:
    """Their result has no other maps that could be mistaken for a posterior, for whole tiles and for bands."""
    network, mosaic = untrained(CONFIGS["two levels"]), noisy(1, 1, 48, 48)
    fast, rows, columns = engine.prepare(network, "eager", image=True), slice(16, 32), slice(17, 30)
    found = fast.forward_crop(mosaic, rows, columns)
    assert isinstance(found, MeanOnly) and not fast.has_posterior
    assert [type(band) for band in fast.bands(mosaic, rows, columns)] == [MeanOnly]
    torch.testing.assert_close(found.mean, network.forward_crop(mosaic, rows, columns).mean, rtol=0, atol=1e-4)


def test_cudnn_is_as_it_was_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """cuDNN looks for its fastest kernels while a network runs, and after that does what the host program set."""
    settings: list[bool] = []

    def run(mosaic: torch.Tensor) -> torch.Tensor:
        settings.append(torch.backends.cudnn.benchmark)
        if len(settings) == 2:
            raise KeyboardInterrupt
        return mosaic

    monkeypatch.setattr(backends.cuda_graphs, "record", lambda run: run)
    monkeypatch.setattr(torch, "compile", lambda run, **_: run)
    recorded = backends._record(run)
    before = torch.backends.cudnn.benchmark
    recorded(torch.zeros(1))
    with pytest.raises(KeyboardInterrupt):
        recorded(torch.zeros(1))
    assert settings == [True, True] and torch.backends.cudnn.benchmark is before


@pytest.mark.parametrize(("part", "what"), [(0, "picture"), (3, "noise map"), (1, "doubt map")])
def test_the_self_test_finds_any_wrong_map(part: int, what: str) -> None:
    """An engine of which one map is off fails its self-test, and the map is named."""
    network = untrained(CONFIGS["one level"])
    names = ("loc", "count", "concentration", "rate")

    def run(mosaic: torch.Tensor, rows: slice, columns: slice) -> list[debayes.NormalInverseGamma]:
        right = network.forward_crop(mosaic, rows, columns)
        maps = [getattr(right, name) * (1.5 if i == part else 1.0) for i, name in enumerate(names)]
        return [debayes.NormalInverseGamma(*maps)]

    fault = selftest.check(Engine("eager", network, run))
    assert fault is not None and fault.startswith(f"its {what} is ")
    assert selftest.check(Engine("eager", network, backends.eager(network))) is None


def test_an_engine_prints_as_one_line() -> None:
    """Its name, its network and its device."""
    found = prepared(debayes.load("wild-s"), "eager")
    assert repr(found) == "Engine('eager', unet of 0.55 million weights, on cpu)"
    found = prepared(debayes.load("wild-s").mean_only(), "eager")
    assert "image only" in str(found)
