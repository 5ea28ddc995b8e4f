"""Profile of a training step: python benchmarks/step.py RECIPE [key=value ...] [--warm 300] [--measured 100]

Trains as the recipe says, on random tiles. After the warm-up it measures the steps and pixels a second, then the
share of the time in which the device computes, and the slowest kernels.
"""

import argparse
import tempfile
import time
import zipfile
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.profiler import ProfilerActivity, profile

from debayes.training.distributed import Processes
from debayes.training.loop import train
from debayes.training.progress import Progress
from debayes.training.recipe import Recipe, read_recipe

# Steps between two reports of `train`.
REPORTED = 100


def write_tiles(path: Path, count: int = 64, size: int = 256) -> None:
    """Write a zip of tiles of random numbers: the time of a step does not depend on the pictures."""
    numbers = np.random.default_rng(0)
    with zipfile.ZipFile(path, "w") as archive:
        for i in range(count):
            buffer = BytesIO()
            Image.fromarray(numbers.integers(0, 255, (size, size, 3), dtype=np.uint8)).save(buffer, "PNG")
            archive.writestr(f"{i}.png", buffer.getvalue())


def main() -> None:
    """Read the command line, and measure."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("recipe", type=Path, help="a TOML file, as in recipes/")
    parser.add_argument("changes", nargs="*", help="changes of the recipe, such as optimizer.batch=8")
    parser.add_argument("--warm", type=int, default=300, help="steps before; hundreds (default: 300)")
    parser.add_argument("--measured", type=int, default=100, help="steps to measure; hundreds (default: 100)")
    options = parser.parse_args()
    if options.warm % REPORTED or options.measured % REPORTED or min(options.warm, options.measured) < REPORTED:
        parser.error(f"--warm and --measured must be multiples of {REPORTED}")
    measure(read_recipe(options.recipe, options.changes), options.warm, options.measured)


def measure(recipe: Recipe, warm: int, measured: int) -> None:
    """Print the speed of training steps and a table of kernels."""
    cuda = torch.cuda.is_available()
    activity = ProfilerActivity.CUDA if cuda else ProfilerActivity.CPU
    watch = profile(activities=[activity])
    began = plain = 0.0

    def report(at: Progress) -> None:
        nonlocal began, plain
        if at.step == warm:
            began = time.perf_counter()
        elif at.step == warm + measured:
            plain = (time.perf_counter() - began) / measured
            watch.start()
        elif at.step == warm + 2 * measured:
            watch.stop()

    with tempfile.TemporaryDirectory() as folder:
        write_tiles(Path(folder) / "tiles.zip", size=recipe.data.tile)
        plan = replace(
            recipe,
            data=replace(recipe.data, train=("tiles.zip",), val=""),
            optimizer=replace(recipe.optimizer, minutes=0.0, steps=warm + 2 * measured),
        )
        train(
            plan,
            Path(folder) / "run",
            root=Path(folder),
            processes=Processes(device=torch.device("cuda" if cuda else "cpu")),
            every=1e9,
            report=report,
        )

    pixels = recipe.optimizer.batch * recipe.optimizer.patch**2
    kernels = [
        (event.self_device_time_total if cuda else event.self_cpu_time_total, event.count, event.key)
        for event in watch.key_averages()
    ]
    busy = sum(time for time, _, _ in kernels) / measured / 1e6
    print(f"{1 / plain:.1f} steps/s, {pixels / plain / 1e6:.1f} Mpx/s; device busy {busy / plain:.0%} of a step")
    for spent, count, name in sorted(kernels, reverse=True)[:25]:
        print(f"{spent / measured / 1e3:8.3f} ms {count / measured:7.1f} times  {name[:100]}")


if __name__ == "__main__":
    main()
