"""Peak memory of restoring a large mosaic file: python benchmarks/memory.py [MEGAPIXELS] [MODEL]

Writes a random mosaic (16-bit NPY), restores it with the `restore` command in a process of its own, and prints
that process's peak resident memory and speed. The default is 100 megapixels with wild-s.
"""

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np


def main(megapixels: float = 100.0, model: str = "wild-s") -> None:
    height = round((megapixels * 1e6 * 2 / 3) ** 0.5)
    width = round(megapixels * 1e6 / height)
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
    main(*(kind(value) for kind, value in zip((float, str), sys.argv[1:], strict=False)))
