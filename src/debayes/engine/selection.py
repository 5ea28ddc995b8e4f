"""Choosing and preparing an engine: a way to run a network on tiles, several times as fast as PyTorch alone.

`prepare` turns a network into an engine; `restoration` takes either. "auto" is the fastest of those that are
installed, by the measured speeds in `speeds.toml`. Before an engine is used it restores a small tile: if the result
is not the network's own, PyTorch runs the network instead, and a warning says so.
"""

import tomllib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from importlib.util import find_spec

import torch

from debayes.engine import fusion, ncnn, winograd
from debayes.engine.backends import LARGE, Engine, by_steps, compiled, eager, half, onnxruntime, openvino
from debayes.engine.selftest import check
from debayes.engine.staged_unet import Run
from debayes.network.network import Network
from debayes.system.errors import DebayesError
from debayes.system.log import log


class EngineMismatchWarning(UserWarning):
    """An engine failed, or gave other pixels than the network itself, and is not used."""


@dataclass(frozen=True)
class Kind:
    """One of the engines there are: a row of `ENGINES`."""

    make: Callable[[Network, int | None], Run]
    """Makes the engine's `run` of a network and a number of threads; most have PyTorch's threads and ignore it."""
    needs: tuple[str, ...] = ()
    """The packages that it needs besides PyTorch."""
    cpu_only: bool = False


ENGINES = {
    "eager": Kind(lambda network, _: eager(network)),
    "half": Kind(lambda network, _: half(network)),
    "winograd": Kind(
        lambda network, threads: by_steps(network, partial(fusion.build, threads=threads), shuffle_last=True),
        cpu_only=True,
    ),
    "compile": Kind(lambda network, _: compiled(network)),
    "ncnn": Kind(
        lambda network, threads: by_steps(network, partial(ncnn.run_in_ncnn, threads=threads)),
        needs=("ncnn",),
        cpu_only=True,
    ),
    "onnxruntime": Kind(onnxruntime, needs=("onnx", "onnxruntime"), cpu_only=True),
    "openvino": Kind(openvino, needs=("onnx", "openvino"), cpu_only=True),
}
NAMES = ("auto", *ENGINES)


@dataclass(frozen=True)
class Speed:
    """How fast an engine was measured to be."""

    startup_seconds: float
    megapixels_per_second: float

    def seconds(self, megapixels: float) -> float:
        """What so many megapixels take, preparation included."""
        return self.startup_seconds + megapixels / self.megapixels_per_second


@cache
def measured_speeds() -> dict[tuple[str, str], dict[str, Speed]]:
    """The speeds of `speeds.toml`: (kind of device, size of network) -> engine -> speed."""
    table = tomllib.loads(files("debayes.engine").joinpath("speeds.toml").read_text(encoding="utf-8"))
    return {
        (kind, size): {engine: Speed(**speed) for engine, speed in engines.items()}
        for kind, sizes in table.items()
        for size, engines in sizes.items()
    }


def prepare(
    network: Network,
    name: str = "auto",
    *,
    megapixels: float = 24.0,
    image: bool = False,
    threads: int | None = None,
) -> Engine:
    """An engine for a network, on the network's device; "auto" for the fastest.

    `megapixels` is the amount of work: an engine that takes long to prepare pays only if there is much. With
    `image` the engine is for `restoration.restore_image` alone, and leaves out the outputs that it does not use. An
    engine that does not give the network's own pixels in a small test is not used: PyTorch runs the network
    instead, with an `EngineMismatchWarning`.

    `threads` is for engines with threads of their own: winograd, ncnn, onnxruntime and openvino. By default they
    have as many as PyTorch, whose threads are set for the whole process by `torch.set_num_threads`.

    Examples:
        >>> import debayes, torch
        >>> network = debayes.load("wild-s")
        >>> debayes.prepare(network, "eager")  # without a name: the fastest here
        Engine('eager', unet of 0.55 million weights, on cpu)
        >>> posterior = debayes.restore(debayes.prepare(network), torch.rand(1, 64, 64))
    """
    if image:
        network = network.mean_only()
    if name != "auto":
        _check_installed(name, network.device)
        candidates, reason = [name], "as asked for"
    else:
        candidates = rank(network, megapixels)
        reason = f"the fastest here for {megapixels:g} megapixels, of {', '.join(candidates) or 'none measured'}"
    for candidate in candidates:
        engine = _try(network, candidate, threads)
        if engine is not None:
            log.info("engine %s: %s", candidate, reason)
            return engine
    log.info("engine eager: no other can be used")
    return Engine("eager", network, eager(network), threads)


def rank(network: Network, megapixels: float) -> list[str]:
    """The engines that can run here, the fastest first, by the measured speeds."""
    seconds = estimate(network, megapixels)
    log.debug("estimated seconds: %s", seconds)
    return sorted(seconds, key=seconds.__getitem__)


def estimate(network: Network, megapixels: float) -> dict[str, float]:
    """The seconds that so many megapixels take with each engine that can run here, by the measured speeds."""
    narrow = network.config.architecture == "paper"  # its layers have as few channels as those of wild-s
    size = "small" if narrow or network.kmac_per_pixel < LARGE else "large"
    return {
        name: speed.seconds(megapixels)
        for name, speed in measured_speeds().get((kind_of(network.device), size), {}).items()
        if available(name, network.device)
    }


def kind_of(device: torch.device) -> str:
    """The kind of device whose speeds apply. CPUs without AVX-512 are taken to be like those with AVX2."""
    if device.type != "cpu":
        return device.type
    return "AVX512" if torch.backends.cpu.get_cpu_capability() == "AVX512" else "AVX2"


def available(name: str, device: torch.device) -> bool:
    """Whether an engine can run on a device with what is installed."""
    return obstacle(name, device) is None


def _check_installed(name: str, device: torch.device) -> None:
    found = obstacle(name, device)
    if found is not None:
        raise DebayesError(found)


def obstacle(name: str, device: torch.device) -> str | None:
    """Why an engine cannot run on a device, and what to do about it; nothing if it can."""
    if name not in ENGINES:
        return f"there is no engine {name!r}: choose one of {', '.join(NAMES)}"
    if name == "half" and not _has_half(device):
        return f"this {device.type} device does not compute faster in half precision: leave the choice to auto"
    if ENGINES[name].cpu_only and device.type != "cpu":
        return f"the engine {name} runs on a CPU, not on {device.type}: leave the choice to auto"
    if name == "winograd" and not winograd.available():
        return (
            f"the engine winograd was not compiled for this processor ({torch.backends.cpu.get_cpu_capability()}) "
            "when debayes was installed: install it again where there is a C compiler, or leave the choice to auto"
        )
    missing = [module for module in ENGINES[name].needs if find_spec(module) is None]
    return f'the engine {name} needs {missing[0]}: pip install "debayes[{name}]"' if missing else None


def _has_half(device: torch.device) -> bool:
    """Whether a device computes faster in half precision: GPUs do, and newer CPUs with bfloat16 units."""
    if device.type == "cpu":
        return kind_of(device) == "AVX512" and has_bfloat16_units()
    return device.type == "cuda"


def has_bfloat16_units() -> bool:
    """Whether the processor multiplies bfloat16 numbers in hardware."""
    if hasattr(torch.cpu, "get_capabilities"):
        units = torch.cpu.get_capabilities()
        return any(bool(units.get(name)) for name in ("avx512_bf16", "amx_tile"))
    private = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")  # PyTorch below 2.10 has no public way
    return any(getattr(torch.cpu, name, bool)() for name in private)


def _try(network: Network, name: str, threads: int | None) -> Engine | None:
    """The engine, if it gives the network's own pixels."""
    try:
        engine = Engine(name, network, ENGINES[name].make(network, threads), threads)
        fault = check(engine)
    except Exception as error:  # a runtime may raise anything on a machine that it does not support
        fault = f"{type(error).__name__}: {error}".splitlines()[0]
        log.debug("preparing the engine %s failed", name, exc_info=True)
    if fault is None:
        return engine
    warnings.warn(f"the engine {name} is not used: {fault}", EngineMismatchWarning, stacklevel=3)
    return None
