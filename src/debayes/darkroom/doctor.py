"""What is installed, what this machine has, what debayes uses of it, and a test: a simulated raw is developed.

`debayes doctor` prints it, and a report of an error should contain it.
"""

import os
import platform
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import torch

from debayes.darkroom import file, mosaics
from debayes.engine import Engine, selection, winograd
from debayes.formats import dng, metadata, pictures
from debayes.network import weights
from debayes.network.network import Network
from debayes.system import cores, machine
from debayes.system.log import log

# The size and the ISO speed of the simulated raw.
SIZE, ISO = (256, 320), 1600.0

# The test is passed with an error of the developed picture below this, in units of the raw's noise. It is 0.29 with
# raw-s and raw-l, and 0.85 if the picture is only interpolated.
LARGEST_ERROR = 0.5


@dataclass(frozen=True)
class Trial:
    """How developing the simulated raw went."""

    passed: bool
    engine: str
    """The engine that ran the network."""
    seconds: float
    error: float | None
    """Root of the mean squared error of the picture, in units of the raw's noise."""
    messages: tuple[str, ...]
    """Warnings, and why the test failed."""


def examine(model: str, device: str, megapixels: float = 24.0) -> dict[str, Any]:
    """Versions, machine, engines and the test, for a model and the size of raws that the engine is chosen for."""
    network = weights.load(model, device=device)
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "packages": machine.packages(),
        "processor": {"name": machine.processor(), "units": units()},
        "cores": {
            "machine": os.cpu_count(),
            "usable": cores.usable(),
            "quota": cores.quota(),
            "threads": torch.get_num_threads(),
            "environment": {name: os.environ[name] for name in cores.NUMBERS if name in os.environ},
        },
        "memory": machine.memory(),
        "gpus": gpus(),
        "model": model,
        "device": device,
        "engines": engines(network, megapixels),
        "winograd": describe_winograd(),
        "exiftool": metadata.exiftool_version(),
        "browser": machine.browser(),
        "test": vars(develop_simulated_raw(network)),
    }


def units() -> list[str]:
    """What of the processor's vector and matrix units decides the engine."""
    found = [torch.backends.cpu.get_cpu_capability()]
    return [*found, "bfloat16"] if selection.has_bfloat16_units() else found


def gpus() -> dict[str, Any]:
    """The GPUs that PyTorch can use, and for what kind of GPU it was built."""
    found = []
    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        properties = torch.cuda.get_device_properties(index)
        capability = f"{properties.major}.{properties.minor}"
        found.append({"name": properties.name, "capability": capability, "memory": properties.total_memory})
    if torch.backends.mps.is_available():
        found.append({"name": "Apple GPU (mps)"})
    built = f"CUDA {torch.version.cuda}" if torch.version.cuda else "mps" * torch.backends.mps.is_built()
    return {"found": found, "pytorch_built_for": built or "CPU only"}


def engines(network: Network, megapixels: float) -> dict[str, Any]:
    """The choice, and of each engine why it cannot run here, or the seconds of a raw by the measured speeds."""
    estimated = selection.estimate(network, megapixels)
    ranked = selection.rank(network, megapixels)
    states = {
        name: {"obstacle": selection.obstacle(name, network.device), "seconds": estimated.get(name)}
        for name in selection.ENGINES
    }
    return {"auto": ranked[0] if ranked else "eager", "megapixels": megapixels, "each": states}


def describe_winograd() -> str:
    """What winograd.c was compiled for, and whether that is this processor."""
    compiled = winograd.compiled()
    if not compiled:
        if sys.platform == "win32":
            return "not compiled: it is not supported on Windows"
        return "not compiled: there was no C compiler when debayes was installed"
    state = ": it runs here" if winograd.available() else ", not for this processor"
    return f"compiled for {', '.join(compiled)}{state}"


def develop_simulated_raw(network: Network) -> Trial:
    """Develop a simulated raw, file to file, with the engine that auto chooses, and compare it with the truth."""
    start = perf_counter()
    name, error = "none", None
    with warnings.catch_warnings(record=True) as caught, TemporaryDirectory() as folder:
        warnings.simplefilter("always")
        try:
            engine = selection.prepare(network)
            name = engine.name
            error = _error(engine, Path(folder))
            failure = [] if error < LARGEST_ERROR else [f"the picture is {error:.2g} times the noise off"]
        except Exception as raised:  # whatever is wrong with this installation is what the doctor has to tell
            log.debug("developing the simulated raw failed", exc_info=True)
            failure = [f"{type(raised).__name__}: {raised}"]
    messages = (*failure, *(str(each.message) for each in caught))
    return Trial(not failure, name, perf_counter() - start, error, messages)


def _error(engine: Engine, folder: Path) -> float:
    """The root of the mean squared error of a developed raw, in units of its noise."""
    picture, source, target = (folder / name for name in ("picture.png", "raw.dng", "developed.dng"))
    pictures.write(picture, _scene(), bits=16)
    made = mosaics.simulate_raw(picture, source, iso=ISO)
    settings = file.Settings()
    loaded = file.read(source, target, settings)
    developed = file.restore(engine, loaded, file.estimate(loaded), settings)
    file.save(file.encode(developed, settings))
    truth = pictures.read(source.with_name("raw.truth.tiff"))
    found = torch.from_numpy(developed.counts.astype("float32")).permute(2, 0, 1) / dng.WHITE
    noise = (made["gain"] * truth + made["floor"]).mean().sqrt()
    return float((found - truth).square().mean().sqrt() / noise)


def _scene() -> torch.Tensor:
    """A picture of smooth waves with an edge."""
    height, width = SIZE
    y, x = torch.meshgrid(torch.arange(height) / height, torch.arange(width) / width, indexing="ij")
    waves = [0.5 + 0.3 * torch.sin(torch.pi * (a * x + b * y)) for a, b in ((2, 1), (3, -2), (-1, 4))]
    return torch.stack(waves) - 0.2 * (x + y > 1.1)
