"""Throughput of networks on this machine: megapixels per second, and the fraction of its matrix-multiply rate."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import torch

from debayes.engine import selection as engines
from debayes.network.weights import load
from debayes.restoration.tiling import measure

# The first lines of the table of speeds.
HEAD = ("| model | engine | ready in s | MP/s | share of the matrix rate |", "|---|---|---|---|---|")


@dataclass(frozen=True)
class Speed:
    """The measured throughput of a model with an engine."""

    model: str
    engine: str
    device: str
    ready_seconds: float
    """Time to prepare the engine, once."""
    megapixels_per_second: float
    """From a mosaic in main memory to an image in main memory."""
    on_device: float | None
    """Megapixels per second from GPU memory to GPU memory; None on a CPU."""
    share: float
    """The network's operations per second divided by `matrix_rate`."""
    auto: bool
    """Whether this is the engine that `auto` selects here."""


def measure_engines(
    models: Sequence[str | Path],
    megapixels: float,
    device: str,
    names: Sequence[str] | None = None,
    progress: Callable[[float], None] | None = None,
    report: Callable[[Speed], None] | None = None,
) -> list[Speed]:
    """The throughput of each model with each engine on a mosaic of noise.

    Without `names` all engines that can run here are measured, except `compile`. `report` is given each speed when
    it is measured.
    """
    height = max(2, round((megapixels * 1e6 / 1.5) ** 0.5))
    mosaic = torch.rand(1, height, height * 3 // 2, generator=torch.Generator().manual_seed(0))
    place = torch.device(device)
    chosen = names or [name for name in engines.ENGINES if engines.available(name, place) and name != "compile"]
    rate = matrix_rate(place)
    speeds = []
    for model in models:
        network = load(model, device=device)
        best = (engines.rank(network, megapixels=24.0) or ["eager"])[0]
        for name in chosen:
            start = monotonic()
            engine = engines.prepare(network, name, image=True)
            ready = monotonic() - start
            speed = mosaic.numel() / 1e6 / measure(engine, mosaic)
            there = mosaic.numel() / 1e6 / measure(engine, mosaic.to(place)) if place.type == "cuda" else None
            share = 2e9 * engine.network.kmac_per_pixel * (there or speed) / rate
            auto = engine.name == best
            speeds.append(Speed(Path(model).stem, engine.name, device, ready, speed, there, share, auto))
            if report is not None:
                report(speeds[-1])
            if progress is not None:
                progress(len(speeds) / len(models) / len(chosen))
    return speeds


def matrix_rate(device: torch.device) -> float:
    """Operations per second of a product of large matrices, best of six: an upper bound for networks on the device.

    Single precision on a CPU, half precision on a GPU.
    """
    size = 1536 if device.type == "cpu" else 8192
    dtype = torch.float16 if device.type == "cuda" else torch.float32
    left, right = (torch.rand(size, size, device=device).to(dtype) for _ in range(2))
    best = 0.0
    for _ in range(6):
        start = monotonic()
        for _ in range(2):
            product = left @ right
        float(product[0, 0])  # waits for a GPU
        best = max(best, 4 * size**3 / (monotonic() - start))
    return best


def row(speed: Speed) -> str:
    """A row of the markdown table that `HEAD` begins."""
    name = f"{speed.engine} (auto)" if speed.auto else speed.engine
    there = "" if speed.on_device is None else f" (on the GPU {speed.on_device:.3g})"
    numbers = f"{speed.ready_seconds:.1f} | {speed.megapixels_per_second:.3g}{there} | {speed.share:.0%}"
    return f"| {speed.model} | {name} | {numbers} |"
