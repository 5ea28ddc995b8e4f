"""How well a network does on pictures, under one protocol.

8-bit sRGB ground truth, RGGB, noise added in float to the mosaic, seeded per picture, never clipped or rounded;
the network is not told the noise level; its output is clipped to [0, 1] and not rounded; PSNR and SSIM over all
pixels and channels, no border removed, averaged over pictures. Odd sizes are cropped to even.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from debayes.engine import Engine
from debayes.evaluation import metrics
from debayes.evaluation.baselines import Baseline
from debayes.evaluation.uncertainty import Honesty, assess
from debayes.formats import pictures as picture_files
from debayes.imaging import cfa, noise
from debayes.network.network import Network
from debayes.restoration.tiling import restore


@dataclass(frozen=True)
class Score:
    """One picture at one noise level."""

    name: str
    """The picture's file name."""
    sigma: float
    """The noise level, in units of 1/255."""
    psnr: float
    """In dB."""
    ssim: float
    """Structural similarity, at most 1."""
    noise_error: float | None
    """Median of |sigma-hat / sigma - 1| over the noise map; none without noise or without a noise map."""
    honesty: Honesty | None = None
    """How far its doubt can be trusted, if that was asked for."""


def evaluate(
    method: Network | Engine | Baseline,
    pictures: Sequence[Path],
    sigmas: Sequence[float],
    *,
    pattern: str = "RGGB",
    ensemble: bool = False,
    with_doubt: bool = False,
    progress: Callable[[float], None] | None = None,
) -> list[Score]:
    """The scores of every picture at every noise level (in units of 1/255), pictures in the outer loop.

    The method is a network, which is not told the noise level, or one of `baselines`, which is and has no doubt.
    """
    for sigma in sigmas:
        noise.check_sigma(sigma)
    scores = []
    for i, path in enumerate(pictures):
        target = picture_files.read(path)
        target = target[:, : target.shape[1] // 2 * 2, : target.shape[2] // 2 * 2]
        for j, sigma in enumerate(sigmas):
            scores.append(
                score(
                    method,
                    target,
                    sigma,
                    name=path.name,
                    pattern=pattern,
                    ensemble=ensemble,
                    with_doubt=with_doubt,
                )
            )
            if progress is not None:
                progress((i * len(sigmas) + j + 1) / (len(pictures) * len(sigmas)))
    return scores


def score(
    method: Network | Engine | Baseline,
    target: Float[Tensor, "3 h w"],
    sigma: float,
    *,
    name: str,
    pattern: str = "RGGB",
    ensemble: bool = False,
    with_doubt: bool = False,
) -> Score:
    """The score of one picture of even size at one noise level; its name seeds the noise."""
    mosaic = noisy_mosaic(target, sigma / 255, pattern=pattern, seed=name)
    honesty = None
    if isinstance(method, Network | Engine):
        posterior = restore(method, mosaic, pattern, ensemble=ensemble)
        mean, level = posterior.mean, posterior.noise_variance.sqrt()
        honesty = assess(posterior, target) if with_doubt else None
    else:
        mean, level = method(mosaic, pattern, sigma / 255), None
    mean = mean.clamp(0, 1)
    error = None if level is None or sigma == 0 else float((255 * level / sigma - 1).abs().median())
    psnr, ssim = float(metrics.psnr(mean, target)), float(metrics.ssim(mean, target))
    return Score(name, sigma, psnr, ssim, error, honesty)


def noisy_mosaic(target: Tensor, sigma: float, *, pattern: str, seed: str) -> Tensor:
    """The protocol's input: a mosaic with Gaussian noise that depends on the seed (a file name) and sigma only."""
    digest = hashlib.sha256(f"{seed} {sigma * 255:g}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:6], "big"))
    return noise.gaussian(cfa.mosaic(target, pattern), sigma, generator=generator)


def average(scores: Sequence[Score], sigma: float) -> tuple[float, float, float | None]:
    """Mean PSNR, SSIM and noise error over the pictures at one level."""
    at = [s for s in scores if s.sigma == sigma]
    errors = [s.noise_error for s in at if s.noise_error is not None]
    return (
        sum(s.psnr for s in at) / len(at),
        sum(s.ssim for s in at) / len(at),
        sum(errors) / len(errors) if errors else None,
    )
