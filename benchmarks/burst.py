"""Denoising of real raws: frames of a burst, developed and mosaicked again, against the mean of many other frames.

    python benchmarks/burst.py FRAME.dng... --mean MEAN.npy [--model raw-s] [--strength 1]

MEAN.npy holds the mean of other frames of the same scene, in counts times --scale (16). It serves as ground truth:
its noise variance is that of a frame divided by the number of frames. The table also has the noise profiles
estimated from single frames, below them the one measured over time, a line fitted to the squared differences from
the mean; and the share of photosites whose mean lies within the 90 % error bars.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from debayes.darkroom import loop
from debayes.formats import raw
from debayes.imaging import cfa
from debayes.network import weights


def main() -> None:
    """Print the PSNR of each frame before and after, and the noise profile estimated from it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("frames", nargs="+", type=Path, help="raws of one scene")
    parser.add_argument("--mean", type=Path, required=True, help="NPY file of the mean of other frames")
    parser.add_argument("--scale", type=float, default=16.0, help="units of the mean per count (default: 16)")
    parser.add_argument("--model", default="raw-s", help="shipped name or weight file (default: raw-s)")
    parser.add_argument("--strength", type=float, default=1.0, help="share of the noise to remove (default: 1)")
    options = parser.parse_args()
    network = weights.load(options.model)
    gains = []
    squares = torch.zeros(())
    print("| frame | raw, dB | developed, dB | gain, dB | noise gain | noise floor | in 90 % bars |")
    print("|---|---|---|---|---|---|---|")
    for path in options.frames:
        shot = raw.read(path)
        black, white = np.mean(shot.levels["black"]), shot.levels["white"]
        mean = np.load(options.mean).astype(np.float64) / options.scale
        truth = torch.from_numpy((mean - black) / (white - black)).float()[None]
        developed = loop.develop(network, shot, strength=options.strength, level=0.9)
        assert developed.interval is not None
        low, high = (cfa.mosaic(end, shot.pattern) for end in developed.interval)
        inside = 100 * float(((low <= truth) & (truth <= high)).float().mean())
        sampled = cfa.mosaic(developed.picture, shot.pattern)
        before, after = (float(-10 * (x - truth).square().mean().log10()) for x in (shot.mosaic, sampled))
        gains.append(after - before)
        squares = squares + (shot.mosaic - truth).square() / len(options.frames)
        found = developed.profile
        print(
            f"| {path.name} | {before:.2f} | {after:.2f} | {gains[-1]:.2f} "
            f"| {found.gain:.3g} | {found.floor:.3g} | {inside:.2f} % |"
        )
    gain, floor = over_time(truth, squares)
    print(f"| over time | | | | {gain:.3g} | {floor:.3g} | |")
    print(f"\nmean gain {np.mean(gains):.2f} dB over {len(gains)} frames")


def over_time(mean: Tensor, squares: Tensor) -> tuple[float, float]:
    """Gain and floor of the noise: a line fitted to the squared differences from the mean, over the mean."""
    levels = mean.flatten().argsort().tensor_split(64)
    signal, variance = (np.array([float(x.flatten()[level].mean()) for level in levels]) for x in (mean, squares))
    gain, floor = np.polyfit(signal, variance, 1, w=1 / variance)
    return float(gain), float(floor)


if __name__ == "__main__":
    main()
