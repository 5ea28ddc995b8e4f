"""The self-test: an engine must give the network's own pixels. Tested in tests/engine/test_backends.py."""

import torch

from debayes.engine.backends import Engine
from debayes.posterior.nig import NormalInverseGamma


def check(engine: Engine) -> str | None:
    """What is wrong with an engine's pixels on a small tile, or nothing.

    They must agree to 1e-4, the noise and doubt maps too. In half precision, which GPUs use, the root of the mean
    squared difference must be below 1e-3: that lowers a PSNR of 33.5 dB by 0.01 dB.
    """
    y, x = torch.meshgrid(torch.arange(144), torch.arange(176), indexing="ij")
    scene = 0.5 + 0.4 * torch.sin(x * y / 900) * torch.cos(x / 17)
    noise = 0.04 * torch.randn(144, 176, generator=torch.Generator().manual_seed(0))
    mosaic = (scene + noise)[None, None].to(engine.device)
    with torch.inference_mode():
        rows, columns = slice(16, 128), slice(18, 151)
        expected = engine.network.forward_crop(mosaic, rows, columns)
        if engine.device.type == "cuda":
            engine.forward_crop(
                mosaic, rows, columns
            )  # `cuda_graphs` records the second run, which is the one tested
        got = engine.forward_crop(mosaic, rows, columns)
    pairs = [("picture", expected.mean, got.mean)]
    if isinstance(expected, NormalInverseGamma) and isinstance(got, NormalInverseGamma):
        pairs += [
            ("noise map", expected.noise_variance.sqrt(), got.noise_variance.sqrt()),
            ("doubt map", expected.mean_variance.sqrt(), got.mean_variance.sqrt()),
        ]
    in_half = engine.name == "half" or engine.device.type == "cuda"
    limit = 1e-3 if in_half else 1e-4
    for what, right, found in pairs:
        error = (right - found).abs()
        worst = float(error.square().mean().sqrt() if in_half else error.max())
        if not worst <= limit:
            return f"its {what} is {worst:.1e} off in a test, where {limit:g} is allowed"
    return None
