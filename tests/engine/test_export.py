"""Exported files against the network itself; `onnx` and `ncnn` are tested here too."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from engines import noisy

import debayes
from debayes.engine import export, ncnn
from debayes.imaging import cfa
from debayes.system.errors import DebayesError


def test_onnx_file(tmp_path: Path) -> None:
    """Any size, batches, the network's own borders, and what a program must know in the metadata."""
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    answer = export.export_file("wild-s", tmp_path / "net.onnx", "onnx")
    assert answer["difference"] < 1e-4 and answer["written"] == [str(tmp_path / "net.onnx")]
    session = onnxruntime.InferenceSession(str(tmp_path / "net.onnx"), providers=["CPUExecutionProvider"])
    notes = session.get_modelmeta().custom_metadata_map
    network = debayes.load("wild-s")
    assert (notes["pattern"], notes["domain"], notes["stride"]) == ("RGGB", "srgb", str(network.config.stride))
    assert int(notes["receptive_radius"]) == network.config.receptive_radius
    assert json.loads(notes["licences"])
    for shape in ((1, 1, 8, 16), (2, 1, 40, 24)):
        mosaic = noisy(*shape)
        found = session.run(["loc", "count", "concentration", "rate"], {"mosaic": mosaic.numpy()})
        right = network(mosaic)
        for name, array in zip(("loc", "count", "concentration", "rate"), found, strict=True):
            torch.testing.assert_close(torch.from_numpy(array), getattr(right, name), rtol=1e-3, atol=1e-5)


def test_files_of_the_image_alone(tmp_path: Path) -> None:
    """One output, the network's own picture, and no word of maps that are not there."""
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("ncnn")
    for target, kind in ((tmp_path / "net.onnx", "onnx"), (tmp_path / "net.param", "ncnn")):
        assert export.export_file("wild-s", target, kind, image=True)["difference"] < 1e-4
    session = onnxruntime.InferenceSession(str(tmp_path / "net.onnx"), providers=["CPUExecutionProvider"])
    assert [output.name for output in session.get_outputs()] == ["loc"]
    assert "noise_variance" not in session.get_modelmeta().custom_metadata_map
    mosaic = noisy(1, 1, 40, 24)
    (picture,) = session.run(None, {"mosaic": mosaic.numpy()})
    torch.testing.assert_close(torch.from_numpy(picture), debayes.load("wild-s")(mosaic).loc, rtol=0, atol=1e-5)


def test_export_refuses(tmp_path: Path) -> None:
    with pytest.raises(DebayesError, match="exported to onnx or ncnn"):
        export.export_file("wild-s", tmp_path / "a.onnx", "tflite")
    with pytest.raises(DebayesError, match=r"named NAME\.onnx"):
        export.export_file("wild-s", tmp_path / "a.bin", "onnx")
    assert not list(tmp_path.iterdir())


def test_ncnn_files(tmp_path: Path) -> None:
    """Two files, which ncnn reads and runs to the network's maps."""
    ncnn = pytest.importorskip("ncnn")
    answer = export.export_file("wild-s", tmp_path / "net.param", "ncnn")
    assert answer["difference"] < 1e-4
    net = ncnn.Net()
    assert net.load_param(str(tmp_path / "net.param")) == 0 and net.load_model(str(tmp_path / "net.bin")) == 0
    network, mosaic = debayes.load("wild-s"), noisy(1, 1, 64, 80)
    planes = (cfa.pack(mosaic) - 0.5)[0].contiguous().numpy()
    extractor = net.create_extractor()
    extractor.input("planes", ncnn.Mat(planes))
    _, maps = extractor.extract(net.output_names()[0])
    mean = cfa.interpolate(mosaic)[0] + torch.from_numpy(np.array(maps))[:3]
    inside = (slice(None), slice(16, -16), slice(16, -16))
    torch.testing.assert_close(mean[inside], network(mosaic).loc[0][inside], rtol=1e-4, atol=1e-4)


def test_a_runtime_that_is_wrong_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What differs from the network is not written, and the size of the difference is said."""
    pytest.importorskip("ncnn")
    monkeypatch.setattr(export, "compare_ncnn", lambda *_: 3e-3)
    with pytest.raises(DebayesError, match=r"an error of 3.0e-03, where 0.0001 is allowed: nothing is written"):
        export.export_file("wild-s", tmp_path / "net.param", "ncnn")
    assert not list(tmp_path.iterdir())


def test_ncnn_that_fails_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """ncnn does not say why it failed: mostly it is a lack of memory."""
    runtime = pytest.importorskip("ncnn")
    from debayes.engine import staged_unet

    run = ncnn.run_in_ncnn(staged_unet.trace_folded(debayes.load("wild-s")))
    monkeypatch.setattr(runtime.Extractor, "extract", lambda *_: (-100, None))
    with pytest.raises(MemoryError, match="try a smaller tile"):
        run(torch.zeros(1, 4, 16, 16))
