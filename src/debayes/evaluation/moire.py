"""False colour on fine detail: PSNR and chroma error of methods on the drawn scenes of `fine_detail`.

A scene is sampled as a mosaic, with or without Gaussian noise, which is seeded per scene. Values are given to every
network as they are, to those for camera raws too. The result is clipped to [0, 1]. Its chroma error is the mean of
(|R - G| + |B - G|) / 2, where R, G and B are the errors of the three colours: zero if only the brightness is wrong.

Scores are of whole scenes, and of the parts of scenes whose frequency is in each of the bands.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, log10

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from debayes.engine import Engine
from debayes.evaluation import fine_detail, metrics
from debayes.evaluation.baselines import Baseline
from debayes.evaluation.fine_detail import SCENES, ZONE_PLATE, Scene
from debayes.evaluation.protocol import noisy_mosaic
from debayes.imaging import noise
from debayes.network.network import Network
from debayes.restoration.tiling import restore_image

# Noise levels in units of 1/255, and the bands of frequency, in cycles per pixel. The last one holds the corners of
# zone plates.
SIGMAS = (0.0, 5.0)
BANDS = ((0.0, 0.2), (0.2, 0.3), (0.3, 0.4), (0.4, 0.5), (0.5, inf))

# A band of a scene is scored if it has this share of the scene's pixels, at least.
_LEAST_SHARE = 0.01

# The labels of the comparison picture, in pixels.
_LETTERS, _GAP = 20, 8


@dataclass(frozen=True)
class DetailScore:
    """The score of a scene, or of a band of it, at one noise level."""

    scene: Scene
    sigma: float
    """The noise level, in units of 1/255."""
    band: tuple[float, float] | None
    """Lowest and highest frequency; None for the whole scene."""
    psnr: float
    """In dB."""
    chroma: float
    """The mean chroma error, 0 = none."""


def evaluate_moire(
    method: Network | Engine | Baseline,
    scenes: Sequence[Scene] = SCENES,
    sigmas: Sequence[float] = SIGMAS,
    *,
    pattern: str = "RGGB",
    ensemble: bool = False,
    progress: Callable[[float], None] | None = None,
) -> list[DetailScore]:
    """The scores of every scene at every noise level (in units of 1/255): the whole scene, then its bands.

    A network is not told the noise level; a baseline is.
    """
    for sigma in sigmas:
        noise.check_sigma(sigma)
    scores = []
    for i, scene in enumerate(scenes):
        drawing = fine_detail.draw(scene)
        for j, sigma in enumerate(sigmas):
            image = restore_scene(method, scene, sigma, pattern=pattern, ensemble=ensemble)
            for band in (None, *BANDS):
                inside = _pixels(drawing.frequency, band)
                if band is None or float(inside.double().mean()) >= _LEAST_SHARE:
                    # a row of pixels is a picture too
                    got, truth = image[:, None, inside], drawing.picture[:, None, inside]
                    psnr, chroma = float(metrics.psnr(got, truth)), chroma_error(got, truth)
                    scores.append(DetailScore(scene, sigma, band, psnr, chroma))
            if progress is not None:
                progress((i * len(sigmas) + j + 1) / (len(scenes) * len(sigmas)))
    return scores


def restore_scene(
    method: Network | Engine | Baseline,
    scene: Scene,
    sigma: float,
    *,
    pattern: str = "RGGB",
    ensemble: bool = False,
) -> Float[Tensor, "3 h w"]:
    """What a method makes of a scene's mosaic with noise of `sigma`, in units of 1/255; clipped to [0, 1]."""
    picture = fine_detail.draw(scene).picture
    mosaic = noisy_mosaic(picture, sigma / 255, pattern=pattern, seed=scene.name)
    if isinstance(method, Network | Engine):
        image = restore_image(method, mosaic, pattern, ensemble=ensemble)
    else:
        image = method(mosaic, pattern, sigma / 255)
    return image.cpu().clamp(0, 1)


def chroma_error(image: Float[Tensor, "3 h w"], truth: Float[Tensor, "3 h w"]) -> float:
    """The mean of (|R - G| + |B - G|) / 2 of the errors of the three colours.

    >>> grey = torch.full((3, 8, 8), 0.5)
    >>> chroma_error(grey + 0.1, grey), round(chroma_error(grey + torch.tensor([0.1, 0, 0]).view(3, 1, 1), grey), 4)
    (0.0, 0.05)
    """
    red, green, blue = image.double() - truth.double()
    return float(((red - green).abs() + (blue - green).abs()).mean() / 2)


def average_moire(scores: Sequence[DetailScore]) -> tuple[float, float]:
    """The PSNR of the mean squared error over scenes, and the mean chroma error.

    Not the mean PSNR: some methods reproduce bars along an axis without any error, and their PSNR is infinite.
    """
    error = sum(10 ** (-s.psnr / 10) for s in scores) / len(scores)
    return -10 * log10(error) if error else inf, sum(s.chroma for s in scores) / len(scores)


def compare_zone_plates(
    methods: Mapping[str, tuple[Network | Engine | Baseline, bool]], sigmas: Sequence[float] = SIGMAS
) -> Float[Tensor, "3 h w"]:
    """The neutral zone plate by every method: a row for each noise level, a column for each method.

    The first column is the truth. Methods by name, each with whether to average over the symmetries.
    """
    from PIL import Image, ImageDraw, ImageFont

    truth = fine_detail.draw(ZONE_PLATE).picture
    side, columns = truth.shape[-1], ["truth", *methods]
    height, width = _LETTERS + 2 * _GAP + side, side + _GAP
    sheet = Image.new("RGB", (width * len(columns) + _GAP, height * len(sigmas) + _GAP), "white")
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(_LETTERS)
    for row, sigma in enumerate(sigmas):
        images = [truth]
        images += [restore_scene(method, ZONE_PLATE, sigma, ensemble=eight) for method, eight in methods.values()]
        for column, (name, image) in enumerate(zip(columns, images, strict=True)):
            pixels = (255 * image).round().byte().permute(1, 2, 0).numpy()
            left, top = _GAP + column * width, _GAP + row * height
            pen.text((left, top), f"{name}, sigma {sigma:g}" if column else name, fill="black", font=font)
            sheet.paste(Image.fromarray(pixels), (left, top + _LETTERS + _GAP))
    return torch.from_numpy(np.array(sheet)).permute(2, 0, 1).float() / 255


def _pixels(frequency: Tensor, band: tuple[float, float] | None) -> Tensor:
    """The pixels whose frequency is in a band."""
    low, high = band or (0.0, inf)
    return (frequency >= low) & (frequency < high)
