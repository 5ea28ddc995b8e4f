"""Time of developing a folder over the network's: python benchmarks/pipeline.py [--files 20] [--megapixels 24]

`debayes develop` develops simulated raws of a free photograph to DNG in a separate process. As the speed of a
machine changes over minutes, the process is stopped after each file while the network alone, with the same engine,
restores a mosaic of the same size in memory. Prints both times, their ratio, and the process's memory at its
second and at its last file.
"""

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from time import monotonic, sleep

from torch import Tensor

from debayes.darkroom import mosaics
from debayes.darkroom.domain import encode_raw, noise_of
from debayes.engine import Engine, prepare
from debayes.evaluation import scenes
from debayes.formats import pictures
from debayes.formats import raw as raws
from debayes.network import weights
from debayes.restoration.tiling import restore_tiles
from debayes.system import malloc


def main() -> None:
    """Print the two times and the memory."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--files", type=int, default=20, help="number of raws, two or more (default: 20)")
    parser.add_argument("--megapixels", type=float, default=24.0, help="size of each (default: 24)")
    parser.add_argument("--model", default="raw-s", help="shipped name or weight file (default: raw-s)")
    parser.add_argument("--engine", default="auto", help="engine of both (default: auto)")
    options = parser.parse_args()
    height = round((options.megapixels * 1e6 / 1.5) ** 0.5 / 2) * 2
    width = height * 3 // 2
    with tempfile.TemporaryDirectory() as name, malloc.use_single_arena():  # as the process does
        folder = Path(name)
        pictures.write(folder / "large.png", scenes.wallpaper(height, width), bits=8)
        mosaics.simulate_raw(folder / "large.png", folder / "large.dng", iso=1600)
        (folder / "raws").mkdir()
        for i in range(options.files):
            shutil.copy(folder / "large.dng", folder / "raws" / f"{i:03d}.dng")
        command = [sys.executable, "-m", "debayes", "develop", str(folder / "raws"), "-o", str(folder / "out")]
        command += ["--model", options.model, "--engine", options.engine]
        raw = raws.read(folder / "large.dng")
        engine = prepare(weights.load(options.model), options.engine)
        encoded = encode_raw(raw, noise_of(raw))
        alone(engine, encoded, raw.pattern)  # the first call does work that the process does once
        start = monotonic()
        run = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        memory: dict[int, float] = {}  # GiB, by the number of finished files
        pure, measured = 0.0, 0
        while run.poll() is None:
            done = len(list((folder / "out").glob("*-debayes.dng")))
            memory[done] = max(memory.get(done, 0.0), resident(run.pid))
            if done > measured:
                run.send_signal(signal.SIGSTOP)
                pure, measured = pure + alone(engine, encoded, raw.pattern), measured + 1
                run.send_signal(signal.SIGCONT)
            sleep(0.5)  # polling takes time from the process
        seconds = monotonic() - start - pure
        if run.returncode:
            sys.exit(run.returncode)
    pure *= options.files / measured
    print(
        f"{options.files} files of {height * width / 1e6:.1f} MP with {options.model}, engine {engine.name}: "
        f"developed in {seconds:.1f} s, the network alone {pure:.1f} s, ratio {seconds / pure:.2f}; "
        f"{options.files * height * width / 1e6 / seconds:.2f} MP/s; "
        f"memory at the second file {memory[1]:.2f} GiB, at the last {memory[options.files - 1]:.2f} GiB"
    )


def alone(engine: Engine, encoded: Tensor, pattern: str) -> float:
    """The seconds that the network takes for a mosaic."""
    start = monotonic()
    for _ in restore_tiles(engine, encoded, pattern):
        pass
    return monotonic() - start


def resident(process: int) -> float:
    """The resident memory of a process in GiB."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 2**20


if __name__ == "__main__":
    main()
