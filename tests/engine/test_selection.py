"""Which engine is used, and that one with wrong pixels is not."""

import numpy as np
import pytest
from engines import assert_close, noisy

import debayes
from debayes import engine
from debayes.engine import graph, ncnn, selection
from debayes.engine.selection import EngineMismatchWarning, Speed
from debayes.system.errors import DebayesError


def test_auto_takes_the_fastest(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """By the table: a slow start pays for much work only; what is not installed is passed over in silence. The log
    says what was chosen and why."""
    network = debayes.load("wild-s")
    table = {
        (selection.kind_of(network.device), "small"): {
            "eager": Speed(0.0, 1.0),
            "compile": Speed(60.0, 2.0),
            "openvino": Speed(0.0, 5.0),
        }
    }
    monkeypatch.setattr(selection, "measured_speeds", lambda: table)
    monkeypatch.setattr(selection, "find_spec", lambda name: None)
    assert selection.rank(network, 24.0) == ["eager", "compile"]
    assert selection.rank(network, 2400.0) == ["compile", "eager"]
    with caplog.at_level("INFO", "debayes"):
        assert engine.prepare(network, "auto", megapixels=24.0).name == "eager"
    assert caplog.messages == ["engine eager: the fastest here for 24 megapixels, of eager, compile"]
    with pytest.raises(DebayesError, match=r'openvino needs onnx: pip install "debayes\[openvino\]"'):
        engine.prepare(network, "openvino")


def test_the_table_of_speeds() -> None:
    """Every kind of device has speeds for small and large networks, of engines that exist; on CPUs of eager too."""
    speeds = selection.measured_speeds()
    assert {*speeds} == {(kind, size) for kind in ("AVX512", "AVX2", "cuda") for size in ("small", "large")}
    for (kind, _), engines in speeds.items():
        assert {*engines} <= {*selection.ENGINES} and ("eager" in engines or kind == "cuda")
        assert all(each.startup_seconds > 0 and each.megapixels_per_second > 0 for each in engines.values())
    assert speeds["AVX2", "small"]["ncnn"].seconds(3.0) == pytest.approx(0.1 + 3.0 / 1.5)
    assert speeds["cuda", "large"]["compile"].seconds(720.0) == pytest.approx(24.0)


def test_an_engine_that_disagrees_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named in a warning, and the network itself runs."""
    network = debayes.load("wild-s")
    right = ncnn.build_ncnn

    def spoilt(steps: graph.Graph) -> tuple[str, bytes]:
        text, data = right(steps)
        return text, (np.frombuffer(data, np.float32) * np.float32(1.01)).tobytes()

    monkeypatch.setattr(ncnn, "build_ncnn", spoilt)
    if not selection.available("ncnn", network.device):
        pytest.skip("ncnn is not installed")
    with pytest.warns(EngineMismatchWarning, match=r"the engine ncnn is not used: its picture is .* off"):
        found = engine.prepare(network, "ncnn")
    assert found.name == "eager"
    mosaic = noisy(1, 60, 60)
    assert_close(debayes.restore(found, mosaic), debayes.restore(network, mosaic), 1e-5)


def test_bad_names_are_refused() -> None:
    network = debayes.load("wild-s")
    with pytest.raises(DebayesError, match="there is no engine 'turbo'"):
        engine.prepare(network, "turbo")
