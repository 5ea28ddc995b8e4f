"""Photosites from a camera's SDK, without a file: to linear colours, a picture to look at, and maps."""

import numpy as np

import debayes

# what an SDK hands over: counts of a 12-bit sensor; here a grey card at half of white, with photon noise
rng = np.random.default_rng(0)
counts = (64 + rng.poisson(np.full((120, 160), 1000)) * 2).clip(0, 4095).astype(np.uint16)

raw = debayes.Raw.from_array(
    counts,
    "RGGB",
    black=64,
    white=4095,
    white_balance=(1.9, 1.0, 1.6),  # red, green, blue: what makes grey grey
)
developed = debayes.develop(debayes.load("raw-s"), raw)

linear = developed.picture.numpy()  # (3, height, width), camera colours before white balance, 1 = white
shown = developed.render().numpy()  # sRGB, 0 to 1
print(f"mean {linear.mean():.3f} of white, noise {developed.noise.mean():.4f}, doubt {developed.doubt.mean():.4f}")
