"""A NumPy mosaic to a picture and error bars, in memory."""

import numpy as np
import torch

import debayes

# a mosaic: any float array (height, width), 0 = black and 1 = white; this one is a grey ramp with noise
rng = np.random.default_rng(0)
truth = np.tile(np.linspace(0.1, 0.9, 200, dtype=np.float32), (120, 1))
mosaic = truth + rng.normal(0, 10 / 255, truth.shape).astype(np.float32)

network = debayes.load("wild-s")
posterior = debayes.restore(network, torch.from_numpy(mosaic)[None], "RGGB")

picture = posterior.mean.numpy()  # (3, height, width): red, green, blue
noise = posterior.noise_variance.sqrt().numpy()  # how noisy the mosaic was
doubt = posterior.mean_variance.sqrt().numpy()  # how far off the picture may be
low, high = (end.numpy() for end in posterior.interval(0.9))

inside = float(((low <= truth) & (truth <= high)).mean())
print(
    f"noise {255 * noise.mean():.1f} / 255, doubt {255 * doubt.mean():.1f} / 255, {inside:.0%} of the truth inside"
)
