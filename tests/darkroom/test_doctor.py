"""The test of an installation: passed with a trained network, failed with what is wrong, and never an exception."""

import pytest
import torch
from networks import untrained

from debayes.darkroom import doctor
from debayes.engine import selection
from debayes.network import weights
from debayes.network.network import Network


@pytest.fixture(scope="module")
def network() -> Network:
    return weights.load("raw-s")


def test_passes_with_a_trained_network(network: Network) -> None:
    """The error is less than half of the noise, and the engine is the one that auto chooses."""
    trial = doctor.develop_simulated_raw(network)
    assert trial.passed and not trial.messages
    assert trial.error is not None and 0.2 < trial.error < 0.4
    assert trial.engine == selection.rank(network, 24.0)[0]


def test_fails_with_random_weights(network: Network) -> None:
    """It says how far off the picture is."""
    other = untrained(network.config)
    trial = doctor.develop_simulated_raw(other)
    assert not trial.passed and "times the noise off" in trial.messages[0]


def test_any_error_is_an_answer(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever part of the installation raises."""

    def broken(*_: object, **__: object) -> None:
        raise ImportError("libraw.so is missing")

    monkeypatch.setattr(doctor.file, "read", broken)
    trial = doctor.develop_simulated_raw(network)
    assert not trial.passed and trial.messages[0] == "ImportError: libraw.so is missing"


def test_an_engine_that_is_wrong_is_named(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test passes with another one, and the warning is among the messages."""
    monkeypatch.setattr(selection, "rank", lambda *_: ["half", "eager"])
    monkeypatch.setattr(selection, "half", lambda network: 1 / 0)
    trial = doctor.develop_simulated_raw(network)
    assert trial.passed and trial.engine == "eager"
    assert trial.messages[0].startswith("the engine half is not used: ZeroDivisionError")


def test_engines(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has seconds, or the reason why it cannot run."""
    monkeypatch.setattr(selection, "find_spec", lambda name: None)
    table = doctor.engines(network, 24.0)
    assert list(table["each"]) == list(selection.ENGINES)
    assert "pip install" in table["each"]["ncnn"]["obstacle"] and table["each"]["ncnn"]["seconds"] is None
    assert table["each"]["eager"]["obstacle"] is None and table["each"]["eager"]["seconds"] > 1
    assert table["auto"] in ("eager", "half", "winograd")


def test_winograd(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it was compiled for and whether it runs here, or why it was not compiled."""
    for compiled, available, system, expected in (
        (["AVX2"], True, "linux", "compiled for AVX2: it runs here"),
        (["AVX2", "AVX512"], False, "linux", "compiled for AVX2, AVX512, not for this processor"),
        ([], False, "linux", "not compiled: there was no C compiler when debayes was installed"),
        ([], False, "win32", "not compiled: it is not supported on Windows"),
    ):
        monkeypatch.setattr(doctor.winograd, "compiled", lambda compiled=compiled: compiled)
        monkeypatch.setattr(doctor.winograd, "available", lambda available=available: available)
        monkeypatch.setattr(doctor.sys, "platform", system)
        assert doctor.describe_winograd() == expected


def test_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name, memory and compute capability of each."""
    properties = type("Properties", (), {"name": "A GPU", "major": 9, "minor": 0, "total_memory": 5})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)
    assert doctor.gpus()["found"][0] == {"name": "A GPU", "capability": "9.0", "memory": 5}
