"""The back ends: what makes a network run in each runtime."""

from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from debayes.engine import graph, onnx, staged_unet
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
    threads: int | None = None
    """What `prepare` was given."""

    @property
    def config(self) -> Config:
        """The shape of the network."""
        return self.network.config

    @property
    def device(self) -> torch.device:
        """Where mosaics are taken."""
        return self.network.device

    @property
    def domain(self) -> str | None:
        """What the network was trained on."""
        return self.network.domain

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


# From so many thousand multiplications a pixel on a network is large.
LARGE = 200


def eager(network: Network) -> Run:
    """PyTorch, in stages if it is a U-Net."""
    if network.config.architecture == "unet":
        return stage(network, lambda module, *_: module)
    return network.bands


def half(network: Network) -> Run:
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


def by_steps(network: Network, build: Callable[[Graph], Callable[..., list[Tensor]]], *, late: bool = False) -> Run:
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


def onnxruntime(network: Network, threads: int | None) -> Run:
    """ONNX Runtime on the CPU, with what `debayes export` writes."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or torch.get_num_threads()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # threads that wait yield their cores
    model = onnx.build_onnx(network, {}).SerializeToString()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def run(mosaic: Tensor) -> NormalInverseGamma:
        mean, *others = map(torch.from_numpy, session.run(None, {"mosaic": mosaic.numpy()}))
        return NormalInverseGamma(mean, *others) if others else NormalInverseGamma.of_mean(mean)

    return _cropped(run)


def openvino(network: Network, threads: int | None) -> Run:
    """OpenVINO on the CPU, in single precision, with what `debayes export` writes."""
    import openvino

    core = openvino.Core()
    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads or torch.get_num_threads()}
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
    steps = staged_unet.trace_folded(network, late=True)
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
    steps, dtype = staged_unet.trace_folded(network, late=True), _half_precision(network)
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


def compiled(network: Network) -> Run:
    """torch.compile: on a GPU, of the fused steps in half precision."""
    if network.device.type == "cuda":
        torch.backends.cudnn.benchmark = True
        return _recorded(network)
    return (
        stage(network, lambda module, *_: torch.compile(module))
        if network.config.architecture == "unet"
        else _whole(network, torch.compile(network.body))
    )
