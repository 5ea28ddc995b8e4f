"""Which engine is used, and what becomes of one that is wrong; networks replayed as on a GPU."""

import numpy as np
import pytest
import torch
from engines import CONFIGS, assert_close, noisy
from networks import untrained

import debayes
from debayes import engine
from debayes.engine import fusion, graph, ncnn, selection, staged_unet
from debayes.engine.gpu import replay
from debayes.engine.selection import EngineMismatchWarning, Speed
from debayes.network.config import Config
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
        assert {*engines} <= {*selection.NEEDS} and ("eager" in engines or kind == "cuda")
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


@pytest.mark.parametrize("config", CONFIGS)
def test_replayed_steps_are_the_body(config: str) -> None:
    """What `trace` writes down, done step by step, is what the body does: as it is, folded, and folded for GPUs."""
    network = untrained(CONFIGS[config])
    planes, base = noisy(1, 4, 16, 24), noisy(1, 3, 32, 48)
    run = replay.build(graph.trace(network.body, *graph.examples(network)), torch.float32)
    torch.testing.assert_close(run(planes, base), network.body(planes, base), rtol=1e-4, atol=1e-5)
    if config != "paper":
        run = replay.build(staged_unet.trace_folded(network, shuffle_last=True), torch.float32)
        torch.testing.assert_close(run(planes), staged_unet.fold(network)(planes), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("tail", [16, 64])
@pytest.mark.parametrize("blocks", [0, 1])
def test_merged_steps_are_the_body(blocks: int, tail: int) -> None:
    """What torch.compile is given for a GPU, taps summed last and a bias carried by ones, is what the body does,
    at the border too; of an image alone, whose last convolution is then split, and of all maps, where it is not."""
    network = untrained(Config("unet", widths=(16, 24), blocks=1, bottom_blocks=1, tail=tail, tail_blocks=blocks))
    with torch.no_grad():
        network.body.head.bias.normal_()
    planes = noisy(1, 4, 16, 24)
    for each in (network, network.mean_only()):
        run = replay.build(staged_unet.trace_folded(each, shuffle_last=True), torch.float32, merged=True)
        torch.testing.assert_close(run(planes), staged_unet.fold(each)(planes), rtol=1e-4, atol=3e-5)


@pytest.mark.parametrize("merged", [False, True])
def test_sums_joined_with_convolutions_are_the_body(merged: bool) -> None:
    """Residual blocks of 16 to 64 channels each become one step less, one of 128 does not, on a small GPU those of
    64 neither; the pixels stay."""
    network = untrained(Config("unet", widths=(16, 64, 128), blocks=2, bottom_blocks=1, tail=16, tail_blocks=0))
    steps = staged_unet.trace_folded(network, shuffle_last=True)
    saved = {
        most: len(fusion.fuse(steps, fusion.gpu_rules())) - len(fusion.fuse(steps, fusion.gpu_rules(most)))
        for most in (0, 32, 64)
    }
    assert saved == {0: 0, 32: 4, 64: 8}
    planes = noisy(1, 4, 16, 24).double()
    run = replay.build(steps, torch.float64, merged=merged, own=64)
    expected = staged_unet.fold(network).double()(planes)
    torch.testing.assert_close(run(planes).to(expected), expected, rtol=1e-4, atol=1e-6)
    assert replay.widest_kernel(torch.device("cpu"), torch.float32) == 0


@pytest.mark.parametrize("tail_blocks", [0, 1])
def test_whole_residual_blocks_are_the_body(tail_blocks: int) -> None:
    """Residual blocks of 32 and 64 channels are one step each, those of 16 are not; so is the last one of a tail,
    with the rectifier behind it; the pixels stay."""
    config = Config("unet", widths=(16, 32, 64), blocks=1, bottom_blocks=2, tail=32, tail_blocks=tail_blocks)
    network = untrained(config)
    steps = staged_unet.trace_folded(network, shuffle_last=True)
    joined = fusion.fuse(steps, fusion.gpu_rules(64, (32, 64)))
    found = [step.rectified for step in joined if isinstance(step, fusion.Block)]
    assert found == [False] * 4 + [True] * tail_blocks
    planes = noisy(1, 4, 16, 24).double()
    run = replay.build(steps, torch.float64, merged=True, own=64, blocks=(32, 64))
    expected = staged_unet.fold(network).double()(planes)
    torch.testing.assert_close(run(planes).to(expected), expected, rtol=1e-4, atol=1e-6)


def test_a_small_gpu_keeps_the_kernels_that_it_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the widest kernel does not fit, the next one is used; where none works, none is."""

    def check(room: int, ends: bool) -> int:
        def convolve(device: torch.device, dtype: torch.dtype, channels: int) -> bool:
            if channels > room:
                raise RuntimeError("out of resource: shared memory")
            return True

        monkeypatch.setattr(replay, "_convolves_right", convolve)
        monkeypatch.setattr(replay, "_ends_right", lambda *_: ends)
        return replay.widest_kernel(torch.device("cuda"), torch.float16)

    assert [check(64, True), check(32, True), check(16, True), check(64, False)] == [64, 32, 0, 0]
