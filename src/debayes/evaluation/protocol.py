"""Scoring a method on pictures under the protocol of the published tables.

The ground truth is 8-bit sRGB, the pattern RGGB unless another is asked for. Gaussian noise is added to the
mosaic in float; it is seeded per picture and never clipped or rounded. The network is not given the noise level.
Its output is clipped to [0, 1] and not rounded. PSNR and SSIM are computed over all pixels and channels without
removing a border, and averaged over pictures. Odd sizes are cropped to even ones.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from debayes.engine import Engine
from debayes.evaluation import metrics
from debayes.evaluation.baselines import Baseline
from debayes.evaluation.uncertainty import UncertaintyScores, assess
from debayes.formats import pictures as picture_files
from debayes.imaging import cfa, noise
from debayes.network.network import Network
from debayes.restoration.tiling import restore
from debayes.system.errors import DebayesError

# A picture file, or the picture itself: an array (h, w, 3) as in NumPy or a tensor (3, h, w) as in PyTorch.
Picture = str | Path | NDArray[Any] | Tensor


@dataclass(frozen=True)
class Score:
    """The score of one picture at one noise level."""

    name: str
    """The picture's file name, or "picture N" for the Nth of the pictures if it is an array."""
    sigma: float
    """The noise level, in units of 1/255."""
    psnr: float
    """In dB."""
    ssim: float
    """Structural similarity, at most 1."""
    noise_error: float | None
    """Median of |estimated sigma / sigma - 1| over the noise map; None without noise or without a noise map."""
    uncertainty: UncertaintyScores | None = None
    """How well its uncertainty describes its errors, if that was asked for."""


def evaluate(
    method: Network | Engine | Baseline,
    pictures: Sequence[Picture],
    sigmas: Sequence[float],
    *,
    pattern: str = "RGGB",
    ensemble: bool = False,
    with_doubt: bool = False,
    progress: Callable[[float], None] | None = None,
) -> list[Score]:
    """The scores of every picture at every noise level (in units of 1/255), ordered by picture.

    Pictures are files, NumPy arrays (h, w, 3) of integers or of floats between 0 and 1, or tensors (3, h, w)
    between 0 and 1. The method is a network, which is not given the noise level, or a baseline, which is given it
    and has no uncertainty.

    Examples:
        >>> import debayes
        >>> from pathlib import Path
        >>> for score in debayes.evaluate(debayes.load("wild-s"), [Path("photo.png")], [5, 10]):
        ...     print(f"sigma {score.sigma:g}: {score.psnr > 30}")
        sigma 5: True
        sigma 10: True
    """
    _check_arguments(method, pictures)
    for sigma in sigmas:
        noise.check_sigma(sigma)
    scores = []
    for i, picture in enumerate(pictures):
        target = read_picture(picture)
        target = cfa.whole_cells(target, pattern)
        name = Path(picture).name if isinstance(picture, str | Path) else f"picture {i + 1}"
        for j, sigma in enumerate(sigmas):
            scores.append(
                score(
                    method,
                    target,
                    sigma,
                    name=name,
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
    """The score of one picture of even size at one noise level (in units of 1/255); the name seeds the noise."""
    mosaic = noisy_mosaic(target, sigma / 255, pattern=pattern, seed=name)
    uncertainty = None
    if isinstance(method, Network | Engine):
        posterior = restore(method, mosaic, pattern, ensemble=ensemble)
        mean, level = posterior.mean, posterior.noise_variance.sqrt()
        uncertainty = assess(posterior, target) if with_doubt else None
    else:
        mean, level = method(mosaic, pattern, sigma / 255), None
    mean = mean.clamp(0, 1)
    error = None if level is None or sigma == 0 else float((255 * level / sigma - 1).abs().median())
    psnr, ssim = float(metrics.psnr(mean, target)), float(metrics.ssim(mean, target))
    return Score(name, sigma, psnr, ssim, error, uncertainty)


def read_picture(picture: Picture) -> Float[Tensor, "3 h w"]:
    """The picture as float32, 0 = black and 1 = white; integers are divided by the largest value of their type."""
    if isinstance(picture, str | Path):
        return picture_files.read(Path(picture))
    values = picture if isinstance(picture, Tensor) else _to_tensor(picture)
    if values.ndim != 3 or values.shape[0] != 3 or not values.is_floating_point():
        raise DebayesError(
            "a picture tensor must have the shape (3, height, width) and hold floats, "
            f"not {tuple(values.shape)} and {values.dtype}"
        )
    low, high = (float(end) for end in values.aminmax())
    if not (low >= 0 and high <= 1):  # also true of NaN
        raise DebayesError(f"pictures must be between 0 (black) and 1 (white), not {low:g} to {high:g}")
    return values.float()


def _to_tensor(array: NDArray[Any]) -> Tensor:
    """An array (h, w, 3) as a tensor (3, h, w) of float32."""
    if array.ndim != 3 or array.shape[2] != 3 or array.dtype.kind not in "uf":
        raise DebayesError(
            "a picture array must have the shape (height, width, 3) and hold unsigned integers or floats, "
            f"not {array.shape} and {array.dtype}"
        )
    white = np.float32(np.iinfo(array.dtype).max if array.dtype.kind == "u" else 1)
    return torch.from_numpy(array.astype(np.float32) / white).permute(2, 0, 1)


def _check_arguments(method: object, pictures: object) -> None:
    """Raise for what is easily mistaken for a network or for a sequence of pictures."""
    if isinstance(method, str | Path):
        raise DebayesError(f"a network was expected, not {str(method)!r}: pass debayes.load({str(method)!r})")
    if isinstance(pictures, str | Path | np.ndarray | Tensor):
        raise DebayesError("a sequence of pictures was expected, not a single one: pass [picture]")


def noisy_mosaic(target: Tensor, sigma: float, *, pattern: str, seed: str) -> Tensor:
    """The protocol's input: a mosaic with Gaussian noise drawn from the seed (a file name) and sigma alone."""
    digest = hashlib.sha256(f"{seed} {sigma * 255:g}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:6], "big"))
    return noise.gaussian(cfa.mosaic(target, pattern), sigma, generator=generator)


def average(scores: Sequence[Score], sigma: float) -> tuple[float, float, float | None]:
    """Mean PSNR, SSIM and noise error over the pictures at one noise level."""
    at = [s for s in scores if s.sigma == sigma]
    errors = [s.noise_error for s in at if s.noise_error is not None]
    return (
        sum(s.psnr for s in at) / len(at),
        sum(s.ssim for s in at) / len(at),
        sum(errors) / len(errors) if errors else None,
    )
