"""Time of commands on an idle and on a busy machine: python benchmarks/busy.py [COMMAND...] [--quick] [--loops 2]

Runs `develop` on three raws, `restore` on a mosaic and a short `train`, each in a separate process and in turns:
alone, then while other processes of the same priority keep the cores busy. Prints the median seconds of both, and
the median and the largest ratio. With as many busy processes as cores a fair scheduler gives a command half of the
time: a ratio of 2. Everything runs on the CPU.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import monotonic

import numpy as np

from debayes.darkroom import mosaics
from debayes.evaluation import scenes
from debayes.formats import pictures

RECIPE = Path(__file__).parent.parent / "recipes" / "wild-s.toml"


def main() -> None:
    """Print a line for each command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("commands", nargs="*", default=["develop", "restore", "train"], help="default: all three")
    parser.add_argument("--quick", action="store_true", help="measure three times instead of ten")
    parser.add_argument("--loops", type=int, default=2, help="busy processes (default: %(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print(f"| | alone, s | beside {options.loops} busy processes, s | ratio | worst |\n|---|---|---|---|---|")
        for command in write(folder):
            if command[0] not in options.commands:
                continue
            turns = []
            for _ in range(3 if options.quick else 10):
                alone = run(command, folder)
                with loops(options.loops):
                    turns.append((alone, run(command, folder)))
            ratios = [beside / alone for alone, beside in turns]
            alone, beside = (median(times) for times in zip(*turns, strict=True))
            print(f"| {command[0]} | {alone:.1f} | {beside:.1f} | {median(ratios):.2f} | {max(ratios):.2f} |")


def write(folder: Path) -> list[list[str]]:
    """Write the commands' input files; return the commands."""
    picture = scenes.wallpaper(1600, 2400)
    (folder / "pictures").mkdir()
    (folder / "raws").mkdir()
    pictures.write(folder / "pictures" / "photo.png", picture, bits=8)
    for i in range(3):
        mosaics.simulate_raw(folder / "pictures" / "photo.png", folder / "raws" / f"{i}.dng", iso=1600, seed=i)
    rng = np.random.default_rng(0)
    np.save(folder / "mosaic.npy", rng.integers(0, 65535, (2828, 4242), dtype=np.uint16))
    place = ["--device", "cpu"]
    short = {"minutes": 0, "steps": 20, "batch": 8, "warmup": 10}
    changes = [f"optimizer.{key}={value}" for key, value in short.items()]
    changes += ['data.train=["pictures"]', 'data.val=""']
    return [
        ["develop", str(folder / "raws"), "-o", str(folder / "out"), "--overwrite", *place],
        ["restore", str(folder / "mosaic.npy"), "-o", str(folder / "picture.tiff"), *place],
        ["train", str(RECIPE), "-o", str(folder / "run"), "--data", str(folder), *place]
        + [word for change in changes for word in ("--set", change)],
    ]


def run(command: list[str], folder: Path) -> float:
    """The seconds that a command takes, including its start."""
    shutil.rmtree(folder / "run", ignore_errors=True)  # of the previous run
    start = monotonic()
    done = subprocess.run([sys.executable, "-m", "debayes", *command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return monotonic() - start


@contextmanager
def loops(count: int) -> Iterator[None]:
    """Processes that keep cores busy until the block ends."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
