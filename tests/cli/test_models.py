"""`export` and `bench` as commands."""

import json
from pathlib import Path

import pytest
from commands import run
from networks import untrained

from debayes.network import weights
from debayes.network.config import Config


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """The weight file of a small network."""
    path = tmp_path / "small.safetensors"
    network = untrained(Config(widths=(8,), blocks=1, bottom_blocks=1, tail=4, tail_blocks=0))
    weights.save(network, path, weights.Card(network.config))
    return path


@pytest.mark.parametrize("image", [False, True])
def test_export(
    image: bool, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file is there and gives the network's pixels in onnxruntime; the image alone has one output."""
    onnxruntime = pytest.importorskip("onnxruntime")
    target = model.with_suffix(".onnx")
    assert run(monkeypatch, "export", model, "-o", target, "--json", *(["--image"] if image else [])) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["written"] == [str(target)] and answer["difference"] < 1e-3
    outputs = onnxruntime.InferenceSession(str(target)).get_outputs()
    assert len(outputs) == (1 if image else 4)
    assert run(monkeypatch, "export", model, "-o", target) == 0
    assert capsys.readouterr().out.startswith(f"{target}  ")


def test_export_to_ncnn(model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Two files: parameters and weights."""
    pytest.importorskip("ncnn")
    target = model.with_suffix(".param")
    assert run(monkeypatch, "export", model, "-o", target, "--to", "ncnn", "--json") == 0
    assert json.loads(capsys.readouterr().out)["written"] == [str(target), str(target.with_suffix(".bin"))]


def test_bench(model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """One row for each model and engine that was asked for, with its speed; and the same as JSON."""
    command = ("bench", "--model", model, "--megapixels", 0.1, "--device", "cpu", "--engine", "eager")
    assert run(monkeypatch, *command) == 0
    out = capsys.readouterr().out
    assert "| small | eager |" in out
    assert run(monkeypatch, *command, "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["engine"] == "eager" and row["megapixels_per_second"] > 0
