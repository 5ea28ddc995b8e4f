"""`doctor` as a command."""

import json

import pytest
from commands import run

from debayes.darkroom import doctor


def test_doctor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It prints a line for each thing, and passes; the same as JSON."""
    monkeypatch.setattr(doctor.machine, "packages", lambda: {"": {"numpy": "2.0"}, "ncnn": {"ncnn": None}})
    assert run(monkeypatch, "doctor", "--device", "cpu") == 0
    out = capsys.readouterr().out
    heads = [line.split(" ")[0] for line in out.splitlines() if not line.startswith(" ")]
    assert heads == [
        *("debayes", "packages", "[ncnn]", "processor", "cores", "memory", "GPU", "engine", "winograd", "exiftool"),
        *("browser", "test"),
    ]
    assert 'missing ncnn: pip install "debayes[ncnn]"' in out and "passed: a simulated raw" in out
    assert run(monkeypatch, "doctor", "--device", "cpu", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["test"]["passed"] and facts["engines"]["auto"] == facts["test"]["engine"]


def test_a_failed_test_is_an_exit_code(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """2, with what failed as the last line."""
    trial = doctor.Trial(False, "none", 0.1, None, ("ImportError: no libraw",))
    monkeypatch.setattr(doctor, "develop_simulated_raw", lambda network: trial)
    monkeypatch.setattr(doctor.machine, "packages", dict)
    assert run(monkeypatch, "doctor", "--device", "cpu") == 2
    out = capsys.readouterr().out
    assert out.splitlines()[-1].endswith("FAILED: ImportError: no libraw") and "not installed, but found" in out
