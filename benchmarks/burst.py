"""Real noise: frames of a burst, developed and sampled back on their mosaic, against the mean of many others.

    python benchmarks/burst.py FRAME.dng... --mean MEAN.npy [--model raw-s] [--strength 1]

MEAN.npy holds the mean of other frames of the same scene, in counts times --scale (16); it is the truth but for its
own noise, which is that of a frame divided by the number of frames.
"""

import argparse
from pathlib import Path

import numpy as np
import torch

from debayes import cfa, development, raw, weights


def main() -> None:
    """Print the PSNR of each frame before and after, and the noise profile that was found in it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("frames", nargs="+", type=Path)
    parser.add_argument("--mean", type=Path, required=True)
    parser.add_argument("--scale", type=float, default=16.0)
    parser.add_argument("--model", default="raw-s")
    parser.add_argument("--strength", type=float, default=1.0)
    options = parser.parse_args()
    network = weights.load(options.model)
    gains = []
    print("| frame | raw, dB | developed, dB | gain, dB | noise gain | noise floor |")
    print("|---|---|---|---|---|---|")
    for path in options.frames:
        shot = raw.read(path)
        black, white = np.mean(shot.levels["black"]), shot.levels["white"]
        mean = np.load(options.mean).astype(np.float64) / options.scale
        truth = torch.from_numpy((mean - black) / (white - black)).float()[None]
        developed = development.develop(network, shot, strength=options.strength)
        sampled = cfa.mosaic(developed.picture, shot.pattern)
        before, after = (float(-10 * (x - truth).square().mean().log10()) for x in (shot.mosaic, sampled))
        gains.append(after - before)
        found = developed.profile
        print(
            f"| {path.name} | {before:.2f} | {after:.2f} | {gains[-1]:.2f} | {found.gain:.3g} | {found.floor:.3g} |"
        )
    print(f"\nmean gain {np.mean(gains):.2f} dB over {len(gains)} frames")


if __name__ == "__main__":
    main()
