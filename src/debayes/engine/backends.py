"""The back ends: one function for each engine, which makes a network run in that runtime."""

from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from debayes.engine import graph, onnx, staged_unet
from debayes.engine.gpu import cuda_graphs, replay
from debayes.engine.graph import Graph
from debayes.engine.staged_unet import Descent, Run, StagedUNet
from debayes.imaging import cfa
from debayes.network.blocks import to_channels_last
from debayes.network.config import Config
from debayes.network.heads import MAPS
from debayes.network.network import Network
from debayes.posterior.nig import MeanOnly, NormalInverseGamma, Posterior

T = TypeVar("T")

# Makes a function that computes a module, given inputs like those it will get.
Convert = Callable[..., Callable[..., Any]]


@dataclass(frozen=True)
class Engine:
    """A network and a way to run it. It replaces the network wherever mosaics are restored."""

    name: str
    """How it is run: a row of `selection.ENGINES`."""
    network: Network
    """The network that it runs."""
    run: Run
    """From mosaics (b, 1, h, w), on the network's device, to the posterior of some rows and columns, in bands."""
    threads: int | None = None
    """What `prepare` was given."""

    def __repr__(self) -> str:
        weights = f"{self.network.parameter_count / 1e6:.2f} million weights"
        outputs = "" if self.has_posterior else ", image only"
        return f"Engine({self.name!r}, {self.config.architecture} of {weights}{outputs}, on {self.device})"

    @property
    def config(self) -> Config:
        """The shape of the network."""
        return self.network.config

    @property
    def device(self) -> torch.device:
        """The device that mosaics must be on."""
        return self.network.device

    @property
    def has_posterior(self) -> bool:
        """Whether it gives the whole posterior, and not the image alone."""
        return self.network.has_posterior

    @property
    def domain(self) -> str | None:
        """What the network was trained on."""
        return self.network.domain

    def forward_crop(self, mosaic: Float[Tensor, "b 1 h w"], rows: slice, columns: slice) -> Posterior:
        """The posterior of some rows and columns of a mosaic, which must not be close to its border."""
        bands = list(self.run(mosaic, rows, columns))
        if len(bands) == 1:
            return bands[0]
        if not self.has_posterior:
            return MeanOnly(torch.cat([band.loc for band in bands], 2))
        return NormalInverseGamma(*(torch.cat([getattr(band, name) for band in bands], 2) for name in MAPS))

    def bands(self, mosaic: Float[Tensor, "b 1 h w"], rows: slice, columns: slice) -> Iterable[Posterior]:
        """`forward_crop` in bands of rows from the top, each as soon as it is computed."""
        return self.run(mosaic, rows, columns)


# Networks with more thousand multiply-accumulates a pixel than this count as large.
LARGE = 200


def eager(network: Network) -> Run:
    """PyTorch, in stages if it is a U-Net."""
    if network.config.architecture == "unet":
        return _staged(network, lambda module, *_: module)
    return network.bands


def half(network: Network) -> Run:
    """PyTorch in half precision, the heads in single: float16 on a GPU, bfloat16 in stages on a CPU."""
    if network.device.type == "cuda":
        return _cropped(_fused(network))
    if network.config.architecture == "unet":
        return _staged(network, lambda module, *_: _bfloat16(module))
    return _whole(network, _bfloat16(network.body))


def _bfloat16(module: nn.Module) -> Callable[..., Any]:
    """A function that computes a module in bfloat16, channels last, from inputs of any type."""
    layout = torch.channels_last
    copied = to_channels_last(deepcopy(module).bfloat16())
    return lambda *inputs: copied(*(t.bfloat16().contiguous(memory_format=layout) for t in inputs))


def by_steps(
    network: Network, build: Callable[[Graph], Callable[..., list[Tensor]]], *, shuffle_last: bool = False
) -> Run:
    """A network run as a graph of steps, for which `build` makes a function; in stages if it is a U-Net."""

    def convert(module: nn.Module, *like: Tensor) -> Callable[..., Any]:
        run = build(graph.trace(module, *like))
        return run if isinstance(module, Descent) else lambda *inputs: run(*inputs)[0]

    if network.config.architecture == "unet":
        return _staged(network, convert, shuffle_last=shuffle_last)
    return _whole(network, convert(network.body, *graph.examples(network)))


def _staged(network: Network, convert: Convert, *, shuffle_last: bool = False) -> Run:
    """A U-Net in stages, each of them converted."""
    stages = staged_unet.split(network, shuffle_last=shuffle_last)
    return StagedUNet.of(network, stages, [convert(stage.module, *stage.examples) for stage in stages])


def _whole(network: Network, body: Callable[..., Any]) -> Run:
    """The body on the whole window, the heads on the requested pixels."""

    def run(mosaic: Tensor, rows: slice, columns: slice) -> tuple[Posterior]:
        base = cfa.interpolate(mosaic)
        maps = body(cfa.pack(mosaic) - 0.5, base - 0.5)
        return (network.posterior(base[..., rows, columns], maps[..., rows, columns]),)

    return run


def onnxruntime(network: Network, threads: int | None) -> Run:
    """ONNX Runtime on the CPU, with the file that `debayes export` writes."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or torch.get_num_threads()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # threads that wait yield their cores
    model = onnx.build_onnx(network, {}).SerializeToString()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def run(mosaic: Tensor) -> Posterior:
        mean, *others = map(torch.from_numpy, session.run(None, {"mosaic": mosaic.numpy()}))
        return NormalInverseGamma(mean, *others) if others else MeanOnly(mean)

    return _cropped(run)


def openvino(network: Network, threads: int | None) -> Run:
    """OpenVINO on the CPU, in single precision. The heads run in PyTorch, as OpenVINO's exponentials are too
    inexact.
    """
    import openvino

    core = openvino.Core()
    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads or torch.get_num_threads()}
    model = core.compile_model(
        core.read_model(onnx.build_onnx(network, {}, bare=True).SerializeToString()), "CPU", settings
    )

    def run(mosaic: Tensor) -> Posterior:
        # Copied, as the results lie in OpenVINO's own memory, which the next tile overwrites.
        mean, *maps = (torch.from_numpy(array.copy()) for array in model(mosaic.numpy()).values())
        if not maps:
            return MeanOnly(mean)
        return network.posterior(mean, torch.cat([torch.zeros_like(mean), *maps], 1))

    return _cropped(run)


def _cropped(run: Callable[[Tensor], Posterior]) -> Run:
    """A `Run` made of a function that gives the posterior of all pixels: it keeps the requested ones."""
    return lambda mosaic, rows, columns: (run(mosaic).map(lambda t: t[..., rows, columns]),)


def _fused(network: Network) -> Callable[[Tensor], Posterior]:
    """The convolutions in half precision, fused with what follows them, the heads in single precision."""
    steps = staged_unet.trace_folded(network, shuffle_last=True)
    return _with_heads(network, replay.build(steps, _half_precision(network)), len(steps.inputs))


def _half_precision(network: Network) -> torch.dtype:
    """float16, or for large networks bfloat16: 0.002 dB less exact, and a few percent faster on wide layers."""
    return torch.float16 if network.kmac_per_pixel < LARGE else torch.bfloat16


def _with_heads(network: Network, body: Callable[..., Tensor], inputs: int) -> Callable[[Tensor], Posterior]:
    """A function that runs a body and then the heads. With 1 of `inputs` the body takes the packed planes, with 2
    the interpolated mosaic as well.
    """

    def run(mosaic: Tensor) -> Posterior:
        base = cfa.interpolate(mosaic)
        return network.posterior(base, body(*(cfa.pack(mosaic) - 0.5, base - 0.5)[:inputs]))

    return run


def _recorded(network: Network) -> Run:
    """For GPUs: compiled, recorded as CUDA graphs, and with our own kernels where they pass their self-tests."""
    steps, dtype = staged_unet.trace_folded(network, shuffle_last=True), _half_precision(network)
    widest = replay.widest_kernel(network.device, dtype)
    end = replay.ending(steps) if widest and not network.has_posterior else None
    blocks = replay.blocks_of(network.device, dtype) if widest else ()
    body = replay.build(
        steps, dtype, for_compile=True, max_fused_channels=widest, blocks=blocks, finished=end is None
    )
    if end is None:
        play = _record(_with_heads(network, body, len(steps.inputs)))
        # Copied, as the next window overwrites what a recording gives.
        return lambda mosaic, rows, columns: (play(mosaic).map(lambda t: t[..., rows, columns].clone()),)
    begin = _record(lambda mosaic: body(cfa.pack(mosaic) - 0.5))
    return lambda mosaic, rows, columns: (MeanOnly(end(begin(mosaic), mosaic, rows, columns)),)


def _record(run: Callable[[Tensor], T]) -> Callable[[Tensor], T]:
    """A function compiled, with the fastest of cuDNN's kernels, and recorded as CUDA graphs."""
    fast = torch.compile(run, dynamic=False)

    def tuned(mosaic: Tensor) -> T:
        before = torch.backends.cudnn.benchmark
        torch.backends.cudnn.benchmark = True  # only here: the setting is the whole process's
        try:
            result: T = fast(mosaic)
            return result
        finally:
            torch.backends.cudnn.benchmark = before

    return cuda_graphs.record(tuned)


def compiled(network: Network) -> Run:
    """torch.compile: on a GPU, of the fused steps in half precision."""
    if network.device.type == "cuda":
        return _recorded(network)
    if network.config.architecture == "unet":
        return _staged(network, lambda module, *_: torch.compile(module))
    return _whole(network, torch.compile(network.body))
