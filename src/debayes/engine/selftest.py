"""The self-test: an engine must give the network's own pixels."""

import torch

from debayes.engine.backends import Engine


def check(engine: Engine) -> str | None:
    """What is wrong with an engine's pixels on a small tile, if anything is: the self-test.

    It agrees to 1e-4, noise and doubt too. In half precision, which is what GPUs are run in, the root of the mean
    squared difference is below 1e-3: that costs 0.01 dB where the error itself is that of 33.5 dB.
    """
    y, x = torch.meshgrid(torch.arange(144), torch.arange(176), indexing="ij")
    scene = 0.5 + 0.4 * torch.sin(x * y / 900) * torch.cos(x / 17)
    noise = 0.04 * torch.randn(144, 176, generator=torch.Generator().manual_seed(0))
    mosaic = (scene + noise)[None, None].to(engine.device)
    with torch.inference_mode():
        rows, columns = slice(16, 128), slice(18, 151)
        expected = engine.network.inside(mosaic, rows, columns)
        if engine.device.type == "cuda":
            engine.inside(mosaic, rows, columns)  # from the second time on a recording may be played: `cuda_graphs`
        got = engine.inside(mosaic, rows, columns)
    pairs = [("picture", expected.mean, got.mean)]
    if engine.network.has_heads:
        pairs += [
            ("noise map", expected.noise_variance.sqrt(), got.noise_variance.sqrt()),
            ("doubt map", expected.mean_variance.sqrt(), got.mean_variance.sqrt()),
        ]
    for what, right, found in pairs:
        error = (right - found).abs()
        worst, limit = (
            (float(error.square().mean().sqrt()), 1e-3)
            if engine.name == "half" or engine.device.type == "cuda"
            else (float(error.max()), 1e-4)
        )
        if not worst <= limit:
            return f"its {what} is {worst:.1e} off in a test, where {limit:g} is allowed"
    return None
