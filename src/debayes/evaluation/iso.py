"""Scoring methods on simulated raws at ISO speeds: pictures photographed by a virtual camera.

The camera is that of `debayes simulate` (`virtual_camera.Body`), and its noise profile is known. The noise is
seeded per picture and ISO speed. The truth is what the camera would record without noise and with all colours at
every photosite. PSNR compares white-balanced linear values over all pixels and channels, no border removed; both
pictures are clipped to [0, 1] before white balance. Odd sizes are cropped to even.

A method is a function from a `Raw` to a picture. Networks are wrapped by whoever may import `darkroom`, which
develops raws; `baseline_developer` wraps a baseline.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from debayes.evaluation import metrics
from debayes.evaluation.baselines import Baseline
from debayes.evaluation.protocol import Picture, read_picture
from debayes.formats.raw import Raw
from debayes.imaging import cfa, vst
from debayes.imaging.noise_profile import Profile
from debayes.imaging.virtual_camera import Body
from debayes.system.errors import DebayesError

# From a raw with a noise profile to linear camera colours (3, h, w) before white balance, 0 = black and 1 = white.
Developer = Callable[[Raw], Tensor]


@dataclass(frozen=True)
class IsoScore:
    """The score of one picture at one ISO speed."""

    name: str
    """The picture's file name, or "picture N" for the Nth of the pictures if it is an array."""
    iso: float
    """The ISO speed of the virtual camera."""
    psnr: float
    """In dB, of white-balanced linear values; white of the colour with the smallest gain is 1."""


def evaluate_iso(
    method: Developer,
    pictures: Sequence[Picture],
    isos: Sequence[float],
    *,
    pattern: str = "RGGB",
    body: Body | None = None,
    progress: Callable[[float], None] | None = None,
) -> list[IsoScore]:
    """The scores of every picture at every ISO speed, ordered by picture; pictures are those of `protocol`."""
    body = body or Body()
    for iso in isos:
        body.profile(iso)  # rejects speeds that are not above 0
    scores = []
    for i, picture in enumerate(pictures):
        target = cfa.whole_cells(read_picture(picture), pattern)
        name = Path(picture).name if isinstance(picture, str | Path) else f"picture {i + 1}"
        for j, iso in enumerate(isos):
            raw, clean = photograph(target, iso, name=name, pattern=pattern, body=body)
            scores.append(IsoScore(name, iso, _psnr(method(raw), clean, body)))
            if progress is not None:
                progress((i * len(isos) + j + 1) / (len(pictures) * len(isos)))
    return scores


def photograph(
    picture: Float[Tensor, "3 h w"], iso: float, *, name: str, pattern: str, body: Body
) -> tuple[Raw, Float[Tensor, "3 h w"]]:
    """A noisy raw of an sRGB picture, and the truth: the camera's colours without noise, clipped at white.

    The name and the ISO speed seed the noise.
    """
    digest = hashlib.sha256(f"{name} ISO {iso:g}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:6], "big"))
    clean = body.expose(picture).clamp_max(1)
    counts = body.shoot(clean, pattern, iso, generator=generator)
    mosaic = (counts[None] - body.black).float() / (body.white - body.black)
    return Raw(mosaic, pattern, body.gains, body.matrix, profile=body.profile(iso), iso=iso), clean


def baseline_developer(baseline: Baseline) -> Developer:
    """A baseline as a developer: it works on the values that the raw networks see.

    These are white-balanced and transformed to a nearly constant noise level. The baseline is told the root mean
    square of the levels of all photosites.
    """

    def develop(raw: Raw) -> Tensor:
        if raw.profile is None:
            raise DebayesError("a baseline needs a raw with a noise profile, and this one has none")
        gains = torch.tensor(raw.gains).view(3, 1, 1)
        balance = cfa.mosaic(gains.expand(3, *raw.size), raw.pattern)
        offset = vst.offset(torch.tensor(raw.profile.gain), torch.tensor(raw.profile.floor))
        encoded = vst.encode(raw.mosaic * balance, offset)
        level = _noise_level(raw.mosaic, balance, encoded, raw.profile, offset)
        return vst.decode(baseline(encoded, str(raw.pattern), level), offset) / gains

    return develop


def average_iso(scores: Sequence[IsoScore], iso: float) -> float:
    """Mean PSNR over the pictures at one ISO speed."""
    chosen = [score.psnr for score in scores if score.iso == iso]
    return sum(chosen) / len(chosen)


def _psnr(picture: Tensor, clean: Tensor, body: Body) -> float:
    gains = torch.tensor(body.gains).view(3, 1, 1)
    return float(metrics.psnr(picture.clamp(0, 1) * gains, clean * gains))


def _noise_level(mosaic: Tensor, balance: Tensor, encoded: Tensor, profile: Profile, offset: Tensor) -> float:
    """The root mean square of the noise levels of all photosites in the transformed domain."""
    variance = profile.variance(mosaic) * (balance * vst.slope(encoded, offset)).square()
    return float(variance.mean().sqrt())
