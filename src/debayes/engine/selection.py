"""Engines: ways to run a network on tiles. All give its pixels, some several times sooner.

`prepare` turns a network into an engine; `restoration` takes either. "auto" is the one that `MEASURED` says is
done first, of those that are installed. Before an engine is used it restores a small tile: if the result is not the
network's own, it is not used and a warning says so.
"""

import warnings
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec

import torch

from debayes.engine import fusion, ncnn, winograd
from debayes.engine.backends import LARGE, Engine, by_steps, compiled, eager, half, onnxruntime, openvino
from debayes.engine.selftest import check
from debayes.engine.staged_unet import Run
from debayes.network.network import Network


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


def prepare(
    network: Network,
    name: str = "auto",
    *,
    megapixels: float = 24.0,
    image: bool = False,
    threads: int | None = None,
) -> Engine:
    """An engine for a network, on the device where it is; "auto" for the one that is done first.

    `megapixels` says how much there is to do: an engine that takes long to get ready pays only if it is much. With
    `image` the engine is for `restoration.restore_image` alone, and leaves out what that has no use for. An
    engine that does not give the network's own pixels in a small test is not used: PyTorch runs the network as it
    is then, and a `Disagreement` is warned of.

    `threads` is for engines with threads of their own: winograd, ncnn, onnxruntime and openvino. By default they
    have as many as PyTorch, whose threads are set for the whole process by `torch.set_num_threads`.
    """
    if image:
        network = network.beheaded()
    if name != "auto":
        _check_installed(name, network.device)
        return _try(network, name, threads) or Engine("eager", network, eager(network), threads)
    for candidate in rank(network, megapixels):
        found = _try(network, candidate, threads)
        if found is not None:
            return found
    return Engine("eager", network, eager(network), threads)


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


def _try(network: Network, name: str, threads: int | None) -> Engine | None:
    """The engine, if it gives the network's own pixels."""
    makers: dict[str, Callable[[Network], Run]] = {
        "eager": eager,
        "half": half,
        "compile": compiled,
        "winograd": lambda network: by_steps(network, partial(fusion.build, threads=threads), late=True),
        "ncnn": lambda network: by_steps(network, partial(ncnn.run_in_ncnn, threads=threads)),
        "onnxruntime": partial(onnxruntime, threads=threads),
        "openvino": partial(openvino, threads=threads),
    }
    try:
        engine = Engine(name, network, makers[name](network), threads)
        complaint = check(engine)
    except Exception as error:  # whatever a runtime may throw on a machine it does not like
        complaint = f"{type(error).__name__}: {error}".splitlines()[0]
    if complaint is None:
        return engine
    warnings.warn(f"the engine {name} is not used: {complaint}", Disagreement, stacklevel=3)
    return None
