"""Time and memory of developing one large raw: `debayes develop` in a separate process.

    python benchmarks/megapixels.py [--megapixels 24] [--model raw-s] [--to dng] [--tile 1536]

The raw is simulated from a free photograph, repeated to the size asked for. Peak memory is that of the whole
process, including Python and PyTorch.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from time import monotonic

from debayes.darkroom import mosaics
from debayes.evaluation import scenes
from debayes.formats import pictures

# Runs a command and prints its peak memory in KiB. In a separate process, as a child's peak starts at its parent's.
WATCH = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
"""


def main() -> None:
    """Print one line: size, seconds, megapixels a second, peak memory."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--megapixels", type=float, default=24.0, help="size of the raw (default: 24)")
    parser.add_argument("--model", default="raw-s", help="shipped name or weight file (default: raw-s)")
    parser.add_argument("--to", default="dng", help="format, as of `debayes develop` (default: dng)")
    parser.add_argument("--tile", type=int, default=1536, help="side of a tile (default: 1536)")
    options = parser.parse_args()
    width = round((options.megapixels * 1.5e6) ** 0.5 / 2) * 2
    height = round(width / 3) * 2
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pictures.write(folder / "large.png", scenes.wallpaper(height, width), bits=8)
        mosaics.simulate_raw(folder / "large.png", folder / "large.dng", iso=1600)
        command = [sys.executable, "-m", "debayes", "develop", str(folder / "large.dng"), "--json"]
        command += ["--model", options.model, "--to", options.to, "--tile", str(options.tile)]
        start = monotonic()
        done = subprocess.run([sys.executable, "-c", WATCH, *command], check=True, capture_output=True, text=True)
        seconds = monotonic() - start
        (answer,) = json.loads(done.stdout)
        peak = float(done.stderr.split()[-1]) / 1024**2
        size = Path(answer["written"][0]).stat().st_size / 1e6
    print(
        f"{answer['width']}x{answer['height']} with {options.model} to {options.to}: {seconds:.1f} s, "
        f"{width * height / 1e6 / seconds:.2f} MP/s, peak memory {peak:.2f} GiB, {size:.0f} MB written"
    )


if __name__ == "__main__":
    main()
