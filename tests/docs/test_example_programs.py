"""The programs in docs/examples run, and give what the library gives."""

import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import run

import debayes
from debayes.network import weights

EXAMPLES = Path(__file__).parent.parent.parent / "docs/examples"


def test_restore_array(capsys: pytest.CaptureFixture[str]) -> None:
    """The program of the library guide."""
    runpy.run_path(str(EXAMPLES / "restore_array.py"))
    assert "of the truth inside" in capsys.readouterr().out


@pytest.mark.skipif(not hasattr(debayes.Raw, "from_array"), reason="needs Raw.from_array")
def test_camera_sdk(capsys: pytest.CaptureFixture[str]) -> None:
    """A grey card at half of white, whose mean stays."""
    variables = runpy.run_path(str(EXAMPLES / "camera_sdk.py"))
    assert variables["linear"].mean() == pytest.approx(2000 / (4095 - 64), rel=0.01)
    assert "of white" in capsys.readouterr().out


def test_onnx_without_debayes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy and ONNX Runtime alone give image, noise and doubt of any pattern and size, in small tiles."""
    onnxruntime = pytest.importorskip("onnxruntime")
    model = tmp_path / "wild-s.onnx"
    assert run(monkeypatch, "export", "wild-s", "-o", model) == 0
    program = runpy.run_path(str(EXAMPLES / "onnx_restore.py"))
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    network = debayes.load("wild-s")
    for pattern, size in (("RGGB", (64, 72)), ("GRBG", (33, 70)), ("GBRG", (97, 61)), ("BGGR", (9, 7))):
        mosaic = torch.rand(1, *size, generator=torch.Generator().manual_seed(1))
        found = program["restore"](session, mosaic[0].numpy(), pattern, tile=30)
        expected = debayes.restore(network, mosaic, pattern)
        for name, values in {
            "image": expected.mean,
            "noise": expected.noise_variance.sqrt(),
            "doubt": expected.mean_variance.sqrt(),
        }.items():
            np.testing.assert_allclose(found[name], values.numpy(), rtol=0, atol=1e-4)
    # as a program of its own, which imports neither debayes nor PyTorch
    np.save(tmp_path / "mosaic.npy", mosaic[0].numpy())
    blocked = "import sys; sys.modules.update(torch=None, debayes=None)\n"
    program_file = tmp_path / "onnx_restore.py"
    program_file.write_text(blocked + (EXAMPLES / "onnx_restore.py").read_text())
    command = [sys.executable, program_file, model, "mosaic.npy", pattern, "out.npz"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    np.testing.assert_allclose(np.load(tmp_path / "out.npz")["image"], expected.mean.numpy(), rtol=0, atol=1e-4)
    few = [sys.executable, EXAMPLES / "onnx_restore.py", model]
    wrong = subprocess.run(few, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert (
        wrong.returncode == 1 and "python onnx_restore.py wild-s.onnx mosaic.npy RGGB picture.npz" in wrong.stderr
    )
    assert run(monkeypatch, "export", "wild-s", "--image", "-o", model) == 0
    without_maps = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert without_maps.returncode == 1 and "export it without --image" in without_maps.stderr


@pytest.mark.filterwarnings("ignore")  # of deepinv and what it imports
def test_deepinv_reconstructor() -> None:
    """It restores what deepinv measures, whatever its pattern, far better than the adjoint does."""
    deepinv = pytest.importorskip("deepinv")
    model = runpy.run_path(str(EXAMPLES / "deepinv_reconstructor.py"))["Debayes"]()
    assert isinstance(model, deepinv.models.Reconstructor)
    ramp = torch.linspace(0.1, 0.9, 96).expand(1, 3, 64, 96)
    physics = deepinv.physics.Demosaicing((64, 96), noise_model=deepinv.physics.GaussianNoise(10 / 255))
    for mask in (physics.mask, physics.mask.roll(1, -1), physics.mask.roll(1, -2)):
        physics.mask = mask
        assert float((model(physics(ramp), physics) - ramp).square().mean().sqrt()) < 0.3 * 10 / 255


@pytest.mark.filterwarnings("ignore")
def test_kornia_module() -> None:
    """Its patterns are those of kornia: the mosaic that kornia makes of a picture gives the picture back."""
    kornia = pytest.importorskip("kornia")
    program = runpy.run_path(str(EXAMPLES / "kornia_module.py"))
    ramp = torch.linspace(0.1, 0.9, 96).expand(64, 96)
    picture = torch.stack((ramp, ramp.flip(1), 0.5 * ramp))[None].clone()
    for cfa in kornia.color.CFA:
        found = program["RawToRgb"](cfa)(kornia.color.rgb_to_raw(picture, cfa))
        assert found.shape == picture.shape and float((found - picture).abs().max()) < 0.05


def test_free_photographs_to_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps of docs/training.md without a data set, the training shortened to two steps: tiles of free
    photographs, and weights that name their licence."""
    monkeypatch.setattr(sys, "argv", ["free_photographs.py", str(tmp_path)])
    runpy.run_path(str(EXAMPLES / "free_photographs.py"))
    cut = ("--size", 128, "--downscale", 1, "--count", 0, "--licence", "CC0 and public domain")
    assert run(monkeypatch, "tiles", tmp_path / "photos", "-o", tmp_path / "tiles", *cut) == 0
    recipe = EXAMPLES.parent.parent / "recipes/quick-cpu.toml"
    short = ("--set", "optimizer.minutes=0", "--set", "optimizer.steps=2", "--set", "optimizer.batch=2")
    options = ("--data", tmp_path, "--run", tmp_path / "run", "--device", "cpu", "--set", "data.train=tiles")
    assert run(monkeypatch, "train", recipe, *options, *short) == 0
    card = weights.read_card(tmp_path / "run" / "weights.safetensors")
    assert card.notes["licences"] == '{"CC0 and public domain": 3}'
    assert [path.name for path in (tmp_path / "test").iterdir()] == ["chelsea.png"]
