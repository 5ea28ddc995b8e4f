"""Engines: ways to run a network on tiles. All give its pixels, some several times sooner.

`prepare` turns a network into an engine; `restoration` takes either. "auto" is the one that `MEASURED` says is
done first, of those that are installed. Before an engine is used it restores a small tile: if the result is not the
network's own, it is not used and a warning says so.
"""

import warnings
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from debayes.engine import chains, graph, onnx, winograd
from debayes.engine.gpu import cuda_graphs, replay
from debayes.engine.graph import Graph
from debayes.engine.staged_unet import Descent, Run, stage
from debayes.imaging import cfa
from debayes.network.blocks import to_channels_last
from debayes.network.config import Config
from debayes.network.heads import MAPS
from debayes.network.network import Network
from debayes.posterior.nig import NormalInverseGamma


@dataclass(frozen=True)
class Engine:
    """A network and a way to run it. Stands for the network wherever tiles are restored."""

    name: str
    """How it is run: one of `NAMES`."""
    network: Network
    """What is run."""
    run: Run
    """From mosaics (b, 1, h, w), on the network's device, to the posterior of some rows and columns, in bands."""

    @property
    def config(self) -> Config:
        """The shape of the network."""
        return self.network.config

    @property
    def device(self) -> torch.device:
        """Where mosaics are taken."""
        return self.network.device

    @property
    def has_heads(self) -> bool:
        """Whether it gives all of the posterior, not the image alone."""
        return self.network.has_heads

    def inside(self, mosaic: Float[Tensor, "b 1 h w"], rows: slice, columns: slice) -> NormalInverseGamma:
        """The posterior of some rows and columns of a mosaic, not too near to its border."""
        bands = list(self.run(mosaic, rows, columns))
        if len(bands) == 1:
            return bands[0]
        if not self.has_heads:
            return NormalInverseGamma.of_mean(torch.cat([band.loc for band in bands], 2))
        return NormalInverseGamma(*(torch.cat([getattr(band, name) for band in bands], 2) for name in MAPS))

    def bands(self, mosaic: Float[Tensor, "b 1 h w"], rows: slice, columns: slice) -> Iterable[NormalInverseGamma]:
        """The same in bands of rows, from the top, as they are done."""
        return self.run(mosaic, rows, columns)


class Disagreement(UserWarning):
    """An engine gave other pixels than the network itself, or could give none, and is not used."""


# What each engine needs to be installed beside PyTorch.
NEEDS: dict[str, tuple[str, ...]] = {
    "eager": (),
    "half": (),
    "winograd": (),
    "compile": (),
    "ncnn": ("ncnn",),
    "onnxruntime": ("onnx", "onnxruntime"),
    "openvino": ("onnx", "openvino"),
}
NAMES = ("auto", *NEEDS)

# From so many thousand multiplications a pixel on a network is large.
LARGE = 200

# Seconds to get ready, then megapixels a second, by kind of device and for networks like wild-s and like wild-l,
# measured on two cores of a server with AVX-512 and bfloat16 units, on the same kept to AVX2, and on an H200
# (docs/speed.md). They differ from machine to machine, their order hardly does. ncnn cannot be kept to AVX2: its
# speed is that on a processor which has no more, in proportion to PyTorch's there.
MEASURED: dict[tuple[str, str], dict[str, tuple[float, float]]] = {
    ("AVX512", "small"): {
        "half": (0.1, 4.3),
        "winograd": (0.1, 4.1),
        "openvino": (0.4, 2.4),
        "eager": (0.1, 2.1),
        "ncnn": (0.1, 2.0),
        "onnxruntime": (0.3, 1.8),
        "compile": (13.0, 2.1),
    },
    ("AVX512", "large"): {
        "winograd": (0.4, 0.88),
        "half": (0.7, 0.76),
        "ncnn": (0.3, 0.44),
        "openvino": (0.5, 0.40),
        "eager": (0.2, 0.36),
        "onnxruntime": (0.5, 0.35),
    },
    ("AVX2", "small"): {
        "winograd": (0.1, 2.8),
        "ncnn": (0.1, 1.5),
        "openvino": (0.4, 1.4),
        "eager": (0.1, 1.2),
    },
    ("AVX2", "large"): {
        "winograd": (0.4, 0.56),
        "ncnn": (0.3, 0.34),
        "openvino": (0.5, 0.22),
        "eager": (0.2, 0.20),
    },
    ("cuda", "small"): {"half": (1.0, 534.0), "compile": (19.0, 968.0)},
    ("cuda", "large"): {"half": (1.0, 185.0), "compile": (22.0, 360.0)},
}


def prepare(network: Network, name: str = "auto", *, megapixels: float = 24.0, image: bool = False) -> Engine:
    """An engine for a network, on the device where it is; "auto" for the one that is done first.

    `megapixels` says how much there is to do: an engine that takes long to get ready pays only if it is much. With
    `image` the engine is for `restoration.restore_image` alone, and leaves out what that has no use for. An
    engine that does not give the network's own pixels in a small test is not used: PyTorch runs the network as it
    is then, and a `Disagreement` is warned of.
    """
    if image:
        network = network.beheaded()
    if name != "auto":
        _check_installed(name, network.device)
        return _try(network, name) or Engine("eager", network, _eager(network))
    for candidate in rank(network, megapixels):
        found = _try(network, candidate)
        if found is not None:
            return found
    return Engine("eager", network, _eager(network))


def rank(network: Network, megapixels: float) -> list[str]:
    """The engines that can run here, the soonest done first, by what was measured."""
    narrow = network.config.architecture == "paper"  # as those of wild-s its layers are
    size = "small" if narrow or network.kmac_per_pixel < LARGE else "large"
    times = {
        name: ready + megapixels / speed
        for name, (ready, speed) in MEASURED.get((kind_of(network.device), size), {}).items()
        if available(name, network.device)
    }
    return sorted(times, key=times.__getitem__)


def kind_of(device: torch.device) -> str:
    """Which speeds of `MEASURED` a device is like: CPUs have AVX-512, or are taken to be like those with AVX2."""
    if device.type != "cpu":
        return device.type
    return "AVX512" if torch.backends.cpu.get_cpu_capability() == "AVX512" else "AVX2"


def available(name: str, device: torch.device) -> bool:
    """Whether an engine can run on a device with what is installed."""
    try:
        _check_installed(name, device)
    except ValueError:
        return False
    return True


def _check_installed(name: str, device: torch.device) -> None:
    if name not in NEEDS:
        raise ValueError(f"there is no engine {name!r}: there are {', '.join(NAMES)}")
    if name == "half" and not _halves(device):
        raise ValueError(f"this {device.type} device has no units for half precision: leave the choice to auto")
    if (NEEDS[name] or name == "winograd") and device.type != "cpu":
        raise ValueError(f"the engine {name} runs on a CPU, not on {device.type}: leave the choice to auto")
    if name == "winograd" and not winograd.available():
        raise ValueError(
            f"the engine winograd was not compiled for this processor ({torch.backends.cpu.get_cpu_capability()}) "
            "when debayes was installed: install it again with a C compiler at hand, or leave the choice to auto"
        )
    missing = [module for module in NEEDS[name] if find_spec(module) is None]
    if missing:
        raise ValueError(f'the engine {name} needs {missing[0]}: pip install "debayes[{name}]"')


def _halves(device: torch.device) -> bool:
    """Whether a device multiplies numbers of half precision faster: GPUs do, and newer CPUs with bfloat16 units."""
    if device.type == "cpu":
        units = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
        return kind_of(device) == "AVX512" and any(getattr(torch.cpu, unit, bool)() for unit in units)
    return device.type == "cuda"


def _try(network: Network, name: str) -> Engine | None:
    """The engine, if it gives the network's own pixels."""
    makers = {
        "eager": _eager,
        "half": _half,
        "compile": _compiled,
        "winograd": lambda network: _by_steps(network, chains.build, late=True),
        "ncnn": lambda network: _by_steps(network, onnx.run_in_ncnn),
        "onnxruntime": _onnxruntime,
        "openvino": _openvino,
    }
    try:
        engine = Engine(name, network, makers[name](network))
        complaint = check(engine)
    except Exception as error:  # whatever a runtime may throw on a machine it does not like
        complaint = f"{type(error).__name__}: {error}".splitlines()[0]
    if complaint is None:
        return engine
    warnings.warn(f"the engine {name} is not used: {complaint}", Disagreement, stacklevel=3)
    return None


def check(engine: Engine) -> str | None:
    """What is wrong with an engine's pixels on a small tile, if anything is: the self-test.

    It agrees to 1e-4, noise and doubt too. In half precision, which is what GPUs are run in, the root of the mean
    squared difference is below 1e-3: that costs 0.01 dB where the error itself is that of 33.5 dB.
    """
    y, x = torch.meshgrid(torch.arange(144), torch.arange(176), indexing="ij")
    scene = 0.5 + 0.4 * torch.sin(x * y / 900) * torch.cos(x / 17)
    noise = 0.04 * torch.randn(144, 176, generator=torch.Generator().manual_seed(0))
    mosaic = (scene + noise)[None, None].to(engine.device)
    with torch.inference_mode():
        rows, columns = slice(16, 128), slice(18, 151)
        expected = engine.network.inside(mosaic, rows, columns)
        if engine.device.type == "cuda":
            engine.inside(mosaic, rows, columns)  # from the second time on a recording may be played: `cuda_graphs`
        got = engine.inside(mosaic, rows, columns)
    pairs = [("picture", expected.mean, got.mean)]
    if engine.network.has_heads:
        pairs += [
            ("noise map", expected.noise_variance.sqrt(), got.noise_variance.sqrt()),
            ("doubt map", expected.mean_variance.sqrt(), got.mean_variance.sqrt()),
        ]
    for what, right, found in pairs:
        error = (right - found).abs()
        worst, limit = (
            (float(error.square().mean().sqrt()), 1e-3)
            if engine.name == "half" or engine.device.type == "cuda"
            else (float(error.max()), 1e-4)
        )
        if not worst <= limit:
            return f"its {what} is {worst:.1e} off in a test, where {limit:g} is allowed"
    return None


def _eager(network: Network) -> Run:
    """PyTorch, in stages if it is a U-Net."""
    if network.config.architecture == "unet":
        return stage(network, lambda module, *_: module)
    return network.bands


def _half(network: Network) -> Run:
    """PyTorch in half precision, the heads in single: float16 on a GPU, bfloat16 in stages on a CPU."""
    if network.device.type == "cuda":
        return _cropped(_fused(network))
    if network.config.architecture == "unet":
        return stage(network, lambda module, *_: _bfloat16(module))
    return _whole(network, _bfloat16(network.body))


def _bfloat16(module: nn.Module) -> Callable[..., Any]:
    """A module that takes anything and works in bfloat16, channels last."""
    layout = torch.channels_last
    copied = to_channels_last(deepcopy(module).bfloat16())
    return lambda *inputs: copied(*(t.bfloat16().contiguous(memory_format=layout) for t in inputs))


def _by_steps(
    network: Network, build: Callable[[Graph], Callable[..., list[Tensor]]], *, late: bool = False
) -> Run:
    """What runs a network's steps; in stages if it is a U-Net."""

    def run_module(module: nn.Module, *like: Tensor) -> Callable[..., Any]:
        run = build(graph.trace(module, *like))
        return run if isinstance(module, Descent) else lambda *inputs: run(*inputs)[0]

    if network.config.architecture == "unet":
        return stage(network, run_module, late=late)
    return _whole(network, run_module(network.body, *graph.examples(network)))


def _whole(network: Network, body: Callable[..., Any]) -> Run:
    """A body on all of the window, the heads on what is asked for."""

    def run(mosaic: Tensor, rows: slice, columns: slice) -> tuple[NormalInverseGamma]:
        base = cfa.interpolate(mosaic)
        maps = body(cfa.pack(mosaic) - 0.5, base - 0.5)
        return (network.posterior(base[..., rows, columns], maps[..., rows, columns]),)

    return run


def _onnxruntime(network: Network) -> Run:
    """ONNX Runtime on the CPU, with what `debayes export` writes."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    model = onnx.build_onnx(network, {}).SerializeToString()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def run(mosaic: Tensor) -> NormalInverseGamma:
        mean, *others = map(torch.from_numpy, session.run(None, {"mosaic": mosaic.numpy()}))
        return NormalInverseGamma(mean, *others) if others else NormalInverseGamma.of_mean(mean)

    return _cropped(run)


def _openvino(network: Network) -> Run:
    """OpenVINO on the CPU, in single precision, with what `debayes export` writes."""
    import openvino

    core = openvino.Core()
    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": torch.get_num_threads()}
    model = core.compile_model(
        core.read_model(onnx.build_onnx(network, {}, bare=True).SerializeToString()), "CPU", settings
    )

    def run(mosaic: Tensor) -> NormalInverseGamma:
        # What it gives is its own memory, which the next tile overwrites; its exponentials are not exact enough.
        mean, *maps = (torch.from_numpy(array.copy()) for array in model(mosaic.numpy()).values())
        if not maps:
            return NormalInverseGamma.of_mean(mean)
        return network.posterior(mean, torch.cat([torch.zeros_like(mean), *maps], 1))

    return _cropped(run)


def _cropped(run: Callable[[Tensor], NormalInverseGamma]) -> Run:
    """For what gives a posterior of all pixels."""
    return lambda mosaic, rows, columns: (run(mosaic).map(lambda t: t[..., rows, columns]),)


def _fused(network: Network) -> Callable[[Tensor], NormalInverseGamma]:
    """The convolutions in half precision, fused with what follows them, the heads in single precision."""
    steps = onnx.trace_folded(network, late=True)
    return _with_heads(network, replay.build(steps, _half_precision(network)), len(steps.inputs))


def _half_precision(network: Network) -> torch.dtype:
    """bfloat16 is less exact (0.002 dB) and, where layers are wide, a few percent faster."""
    return torch.float16 if network.kmac_per_pixel < LARGE else torch.bfloat16


def _with_heads(
    network: Network, body: Callable[..., Tensor], inputs: int
) -> Callable[[Tensor], NormalInverseGamma]:
    """A body that takes the planes, or those and the interpolated mosaic, and the heads behind it."""

    def run(mosaic: Tensor) -> NormalInverseGamma:
        base = cfa.interpolate(mosaic)
        return network.posterior(base, body(*(cfa.pack(mosaic) - 0.5, base - 0.5)[:inputs]))

    return run


def _recorded(network: Network) -> Run:
    """The same compiled and recorded, with kernels of our own where they work: for GPUs."""
    steps, dtype = onnx.trace_folded(network, late=True), _half_precision(network)
    own = replay.widest_kernel(network.device, dtype)
    end = replay.ending(steps) if own and not network.has_heads else None
    blocks = replay.blocks_of(network.device, dtype) if own else ()
    body = replay.build(steps, dtype, merged=True, own=own, blocks=blocks, ended=end is None)
    if end is None:
        play = cuda_graphs.record(torch.compile(_with_heads(network, body, len(steps.inputs)), dynamic=False))
        return lambda mosaic, rows, columns: (play(mosaic).map(lambda t: _copy(t[..., rows, columns])),)
    begin = cuda_graphs.record(torch.compile(lambda mosaic: body(cfa.pack(mosaic) - 0.5), dynamic=False))
    return lambda mosaic, rows, columns: (NormalInverseGamma.of_mean(end(begin(mosaic), mosaic, rows, columns)),)


def _copy(map_: Tensor) -> Tensor:
    """A copy of a map, unless it is one number all over that takes no memory, as the maps of `of_mean` are."""
    return map_ if 0 in map_.stride() else map_.clone()


def _compiled(network: Network) -> Run:
    """torch.compile: on a GPU, of the fused steps in half precision."""
    if network.device.type == "cuda":
        torch.backends.cudnn.benchmark = True
        return _recorded(network)
    return (
        stage(network, lambda module, *_: torch.compile(module))
        if network.config.architecture == "unet"
        else _whole(network, torch.compile(network.body))
    )
