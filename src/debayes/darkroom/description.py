"""What `debayes info` says of a camera raw."""

from math import log2
from pathlib import Path
from typing import Any

import torch

from debayes.darkroom.domain import noise_of
from debayes.engine import selection
from debayes.formats import raw as raws
from debayes.formats.raw import Raw
from debayes.imaging import cfa
from debayes.imaging.noise_profile import Profile
from debayes.network import weights

# Noise relative to the signal up to which it is little, and up to which it is moderate. A well exposed picture of a
# virtual camera has 0.03 at ISO 400, 0.07 at ISO 1600 and 0.13 at ISO 6400.
LITTLE, MODERATE = 0.05, 0.1


def describe(source: str | Path, model: str, device: str, engine: str = "auto") -> dict[str, Any]:
    """Everything in a raw file that shapes its picture, and which model and engine would develop it."""
    raw = raws.read(source)
    profile = noise_of(raw)
    relative = relative_noise(raw, profile)
    height, width = raw.size
    if engine == "auto":
        ranked = selection.rank(weights.load(model, device=device), height * width / 1e6)
        engine = ranked[0] if ranked else "eager"
    matrix = [[round(value, 4) for value in row] for row in raw.matrix.tolist()]
    crop = dict(zip(("top", "left", "height", "width"), raw.crop, strict=True)) if raw.crop else "none"
    return {
        "camera": raw.camera or "unknown",
        "lens": raw.lens or "unknown",
        "shot": {
            "iso": raw.iso,
            "seconds": raw.seconds,
            "aperture": raw.aperture,
            "focal_length": raw.focal_length,
            "date": raw.date or None,
        },
        "size": f"{width}x{height}",
        "megapixels": round(height * width / 1e6, 1),
        "pattern": raw.pattern,
        "levels": {**raw.levels, "blown from": round(raw.saturation, 4)},
        "white_balance": dict(zip(("red", "green", "blue"), (round(gain, 4) for gain in raw.gains), strict=True)),
        "matrix": matrix,
        "brightness": brightness(raw),
        "baseline_exposure": raw.exposure,
        "crop": crop,
        "orientation": raw.orientation,
        "noise": {
            "level": describe_noise(relative),
            "share of the signal": round(relative, 4),
            "gain": float(f"{profile.gain:.3g}"),
            "floor": float(f"{profile.floor:.3g}"),
            "source": "stored in the file" if raw.profile else "estimated from the mosaic",
        },
        "assumed": "; ".join(raw.assumed),
        "model": model,
        "device": device,
        "engine": engine,
    }


def brightness(raw: Raw) -> dict[str, float]:
    """How bright a raw is, after white balance: tells a dark raw from one that is rendered dark."""
    balance = torch.tensor(raw.gains).view(3, 1, 1)
    odd = raw.mosaic[:, ::7, ::7]  # of a cell of 2x2, an odd step meets every photosite; few are enough
    light = odd * cfa.mosaic(balance.expand(3, *odd.shape[1:]), raw.pattern)
    highlights = float(light.flatten().kthvalue(max(1, round(0.99 * light.numel()))).values)
    return {
        "mean": round(float(light.mean()), 4),
        "highlights": round(highlights, 4),
        "stops_below_white": round(-log2(min(max(highlights, 1e-6), 1.0)), 1),
    }


def relative_noise(raw: Raw, profile: Profile) -> float:
    """The standard deviation of the noise at the mosaic's mean brightness, relative to that brightness."""
    mean = raw.mosaic.mean().clamp_min(1e-4)  # a frame without light has no signal
    return float(profile.variance(mean).sqrt() / mean)


def describe_noise(relative: float) -> str:
    """Little, moderate or much noise."""
    return "little noise" if relative < LITTLE else "moderate noise" if relative < MODERATE else "much noise"
