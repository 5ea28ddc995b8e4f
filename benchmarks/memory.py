"""Peak memory of restoring a large mosaic file: python benchmarks/memory.py [--megapixels 100] [--model wild-s]

Writes a random mosaic (16-bit NPY), restores it with the `restore` command in a separate process, and prints that
process's peak resident memory and time.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np


def main() -> None:
    """Print one line: size, peak memory, seconds."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--megapixels", type=float, default=100.0, help="size of the mosaic (default: 100)")
    parser.add_argument("--model", default="wild-s", help="shipped name or weight file (default: wild-s)")
    options = parser.parse_args()
    model = options.model
    height = round((options.megapixels * 1e6 * 2 / 3) ** 0.5)
    width = round(options.megapixels * 1e6 / height)
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "mosaic.npy", Path(folder) / "picture.tiff"
        rows = np.lib.format.open_memmap(source, "w+", np.uint16, (height, width))
        rng = np.random.default_rng(0)
        for top in range(0, height, 500):
            rows[top : top + 500] = rng.integers(0, 65535, rows[top : top + 500].shape, dtype=np.uint16)
        del rows
        started = time.monotonic()
        command = [sys.executable, "-m", "debayes", "restore", str(source), "-o", str(target), "--model", model]
        subprocess.run(command, check=True)
        seconds = time.monotonic() - started
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
        print(f"{model}: {width}x{height} = {width * height / 1e6:.1f} MP, peak {peak:.2f} GiB, {seconds:.0f} s")


if __name__ == "__main__":
    main()
