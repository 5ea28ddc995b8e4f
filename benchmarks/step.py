"""Where a training step's time goes: python benchmarks/step.py RECIPE [key=value ...]

Trains as the recipe says, on random tiles, and watches a hundred steps after the first three hundred: steps and
pixels a second, the share of that time in which the device works, and the kernels that take most of it.
"""

import sys
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

WARM, WATCHED = 300, 100


def write_tiles(path: Path, count: int = 64, size: int = 256) -> None:
    """A zip of tiles of random numbers: timing does not depend on what is in a picture."""
    numbers = np.random.default_rng(0)
    with zipfile.ZipFile(path, "w") as archive:
        for i in range(count):
            buffer = BytesIO()
            Image.fromarray(numbers.integers(0, 255, (size, size, 3), dtype=np.uint8)).save(buffer, "PNG")
            archive.writestr(f"{i}.png", buffer.getvalue())


def main(recipe: Recipe) -> None:
    cuda = torch.cuda.is_available()
    activity = ProfilerActivity.CUDA if cuda else ProfilerActivity.CPU
    watch = profile(activities=[activity])
    began = plain = 0.0

    def report(at: Progress) -> None:
        nonlocal began, plain
        if at.step == WARM:
            began = time.perf_counter()
        elif at.step == WARM + WATCHED:
            plain = (time.perf_counter() - began) / WATCHED
            watch.start()
        elif at.step == WARM + 2 * WATCHED:
            watch.stop()

    with tempfile.TemporaryDirectory() as folder:
        write_tiles(Path(folder) / "tiles.zip", size=recipe.data.tile)
        plan = replace(
            recipe,
            data=replace(recipe.data, train=("tiles.zip",), val=""),
            optimizer=replace(recipe.optimizer, minutes=0.0, steps=WARM + 2 * WATCHED),
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
    busy = sum(time for time, _, _ in kernels) / WATCHED / 1e6
    print(f"{1 / plain:.1f} steps/s, {pixels / plain / 1e6:.1f} Mpx/s; device busy {busy / plain:.0%} of a step")
    for spent, count, name in sorted(kernels, reverse=True)[:25]:
        print(f"{spent / WATCHED / 1e3:8.3f} ms {count / WATCHED:7.1f} times  {name[:100]}")


if __name__ == "__main__":
    main(read_recipe(Path(sys.argv[1]), sys.argv[2:]))
