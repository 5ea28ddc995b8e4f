"""Engines against the network itself: the same pixels, whatever runs it; exported files against it too."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from networks import untrained
from torch import Tensor, nn

import debayes
from debayes import engine, restoration
from debayes.engine import Engine, export, fusion, graph, ncnn, selection, staged_unet
from debayes.engine.gpu import replay
from debayes.engine.selection import EngineMismatchWarning
from debayes.imaging import cfa
from debayes.network.config import Config
from debayes.network.network import Network
from debayes.posterior.nig import NormalInverseGamma

CONFIGS = {
    "one level": Config(widths=(8,), blocks=1, bottom_blocks=1, tail=4, tail_blocks=0),
    "two levels": Config(widths=(6, 8), blocks=2, bottom_blocks=1, tail=4, tail_blocks=2),
    "three levels": Config(widths=(4, 6, 8), blocks=1, bottom_blocks=1, tail=4),
    "paper": Config("paper", widths=(8,), blocks=1, groups=2, growth=4, layers=2),
}
EXACT = ("eager", "winograd", "ncnn", "onnxruntime", "openvino")


def prepared(network: Network, name: str) -> Engine:
    """The engine, or a skipped test where what it needs is not there."""
    if not selection.available(name, network.device):
        pytest.skip(f"{name} is not installed, or this machine has no units for it")
    found = engine.prepare(network, name)
    assert found.name == name
    return found


def noisy(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0))


def assert_close(left: NormalInverseGamma, right: NormalInverseGamma, tolerance: float) -> None:
    """Equal to the tolerance: image and noise level, the latter to a thousandth of itself where it is large."""
    torch.testing.assert_close(left.mean, right.mean, rtol=0, atol=tolerance)
    found, expected = left.noise_variance.sqrt(), right.noise_variance.sqrt()
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=tolerance)


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("config", CONFIGS)
def test_engines_agree_with_the_network(config: str, name: str) -> None:
    """To 1e-4 at every pixel of a picture in tiles, odd sizes and another pattern than the network's own."""
    network = untrained(CONFIGS[config])
    mosaic = noisy(1, 75, 118)
    right = restoration.restore(network, mosaic, "GBRG", tile=48)
    assert_close(restoration.restore(prepared(network, name), mosaic, "GBRG", tile=48), right, 1e-4)


@pytest.mark.parametrize("ensemble", [False, True])
def test_bands_are_the_tile(monkeypatch: pytest.MonkeyPatch, ensemble: bool) -> None:
    """What an engine gives band by band covers every tile once, from the top, and is what the network gives at
    once; of an ensemble tiles come whole."""
    monkeypatch.setattr(staged_unet, "STRIP", 8)
    network, mosaic = untrained(CONFIGS["two levels"]), noisy(1, 75, 118)
    right = restoration.restore(network, mosaic, tile=48, ensemble=ensemble)
    eager = prepared(network, "eager")
    covered, pieces = torch.zeros(75, 118), 0
    for rows, columns, part in restoration.restore_tiles(eager, mosaic, tile=48, ensemble=ensemble):
        assert rows.start == 0 or bool((covered[: rows.start, columns] == 1).all())
        covered[rows, columns] += 1
        pieces += 1
        assert_close(part, right.map(lambda t, place=(..., rows, columns): t[place]), 1e-4)
    assert bool((covered == 1).all())
    # two rows of three tiles, of 37 or 38 photosites: three bands of 16 each
    assert pieces == (6 if ensemble else 18)


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


@pytest.mark.parametrize("config", ["one level", "two levels", "three levels"])
def test_folding_changes_nothing_inside(config: str) -> None:
    """One convolution for the linear end of a U-Net: equal away from the border, where alone it may differ; and
    depth to space last of all changes nothing anywhere."""
    network = untrained(CONFIGS[config])
    planes = noisy(1, 4, 24, 32) - 0.5
    base = cfa.interpolate(torch.nn.functional.pixel_shuffle(planes, 2))
    right, found = network.body(planes, base), staged_unet.fold(network)(planes)
    inside = (..., slice(8, -8), slice(8, -8))
    torch.testing.assert_close(found[inside], right[inside], rtol=1e-4, atol=1e-5)
    assert float((found - right).abs().max()) > 1e-3  # at the border they differ, as they may
    torch.testing.assert_close(staged_unet.fold(network, shuffle_last=True)(planes), found, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="only a U-Net"):
        staged_unet.fold(untrained(CONFIGS["paper"]))


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
    saved = {own: len(fusion.join(steps.steps)) - len(fusion.join(steps.steps, own=own)) for own in (0, 32, 64)}
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
    joined = fusion.join(steps.steps, own=64, blocks=(32, 64))
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


def test_sums_are_joined_where_a_rectifier_follows() -> None:
    """The last block of a tail is: its convolution, its sum and the rectifier behind it are one step."""
    steps = staged_unet.trace_folded(untrained(CONFIGS["two levels"]), shuffle_last=True).steps
    joined = fusion.join(steps)
    assert [type(step) for step in joined].count(fusion.Joined) == 1
    assert len(joined) == len(steps) - 2


def test_unknown_steps_are_refused() -> None:
    class Odd(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.sin(x)

    with pytest.raises(TypeError, match="sin"):
        graph.trace(Odd(), torch.zeros(1))


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


def test_auto_takes_what_is_done_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the table: a slow start pays for much work only; what is not installed is passed over in silence."""
    network = debayes.load("wild-s")
    table = {
        (selection.kind_of(network.device), "small"): {
            "eager": (0.0, 1.0),
            "compile": (60.0, 2.0),
            "openvino": (0.0, 5.0),
        }
    }
    monkeypatch.setattr(selection, "MEASURED", table)
    monkeypatch.setattr(selection, "find_spec", lambda name: None)
    assert selection.rank(network, 24.0) == ["eager", "compile"]
    assert selection.rank(network, 2400.0) == ["compile", "eager"]
    assert engine.prepare(network, "auto", megapixels=24.0).name == "eager"
    with pytest.raises(ValueError, match=r'openvino needs onnx: pip install "debayes\[openvino\]"'):
        engine.prepare(network, "openvino")


def test_bad_names_are_refused() -> None:
    network = debayes.load("wild-s")
    with pytest.raises(ValueError, match="there is no engine 'turbo'"):
        engine.prepare(network, "turbo")


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
    with pytest.raises(ValueError, match="exported to onnx or ncnn"):
        export.export_file("wild-s", tmp_path / "a.onnx", "tflite")
    with pytest.raises(ValueError, match=r"named NAME\.onnx"):
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
    with pytest.raises(ValueError, match="for the image alone: use restore_image"):
        restoration.restore(fast, mosaic)


def test_measured_speeds() -> None:
    """`bench` measures what it is asked for, and says which engine auto would take."""
    from debayes.evaluation import throughput

    told: list[float] = []
    found = throughput.measure_engines(["wild-s"], 0.02, "cpu", ["eager"], told.append)
    assert [one.engine for one in found] == ["eager"] and told == [1.0]
    assert found[0].megapixels_per_second > 0 and 0 < found[0].share < 10
    assert throughput.table(found).splitlines()[-1].startswith("| wild-s | eager")
