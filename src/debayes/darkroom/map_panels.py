"""What the plots of noise and doubt maps show, and how to read them.

Doubt in linear light grows with brightness, as noise does. So it is shown relative to the noise, and in the values
of the rendered picture, as it is seen.
"""

import numpy as np
import torch
from jaxtyping import Float, UInt16
from numpy.typing import NDArray
from torch import Tensor

from debayes.darkroom.rendering import upright
from debayes.formats import dng
from debayes.formats.maps import Panel, shrink
from debayes.formats.raw import Raw
from debayes.imaging import color

# The correlation of the errors of a pixel's colours: 0.4 to 0.9 on simulated raws from ISO 400 to 12800.
CORRELATION = 0.7

_NOISE = (
    "Violet: little noise. Yellow: much. Light is noisy itself: bright areas have more noise; relative to their "
    "brightness, dark areas have more. Where the map follows edges, it is too high."
)
_NOISE_OF_MOSAIC = "Violet: little noise. Yellow: much. Where the map follows edges, it is too high."
_RELATIVE = (
    "Violet: the surroundings tell the true value, and the noise is removed. Yellow: the picture is as uncertain "
    "as one noisy photosite, and fine detail may be lost or invented."
)
_RENDERED = (
    "The error to expect in the picture as it is seen: where this is 2, about seven in ten values are within 2 of "
    "the true ones. Below 1 it is less than a step of 8 bits."
)


def panels_of_raw(
    maps: dict[str, NDArray[np.float16]],
    counts: UInt16[np.ndarray, "h w 3"],
    raw: Raw,
    *,
    stops: float,
    space: str = "srgb",
) -> dict[str, list[Panel]]:
    """The panels of a developed raw's maps by their kinds, upright; `stops`, `space` as in `rendering.render`."""
    noise, doubt, picture = (shrink(upright(values, raw)) for values in (maps["noise"], maps["doubt"], counts))
    rendered = _rendered(picture / dng.WHITE, doubt, raw, stops, space)
    level = Panel(100 * noise.mean(2), "Noise of the raw: standard deviation, % of white in linear light", _NOISE)
    return {"noise": [level], "doubt": _doubt_panels(noise, doubt, rendered)}


def panels_of_mosaic(maps: dict[str, NDArray[np.float16]]) -> dict[str, list[Panel]]:
    """The panels of the maps of a mosaic of sRGB values, by their kinds."""
    noise, doubt = (shrink(maps[kind]) for kind in ("noise", "doubt"))
    level = Panel(255 * noise.mean(2), "Noise of the mosaic: standard deviation, of 255", _NOISE_OF_MOSAIC)
    return {"noise": [level], "doubt": _doubt_panels(noise, doubt, 255 * doubt.mean(2))}


def _doubt_panels(
    noise: Float[np.ndarray, "h w 3"], doubt: Float[np.ndarray, "h w 3"], rendered: Float[np.ndarray, "h w"]
) -> list[Panel]:
    """Doubt relative to the noise, and in the values of the picture."""
    relative = 100 * (doubt.mean(2) / np.maximum(noise.mean(2), 1e-6))
    return [
        Panel(relative, "Doubt relative to the noise: standard deviation, % of that of the noise", _RELATIVE, 100),
        Panel(rendered, "Doubt in the rendered picture: standard deviation, of 255", _RENDERED),
    ]


def _rendered(
    picture: Float[np.ndarray, "h w 3"], doubt: Float[np.ndarray, "h w 3"], raw: Raw, stops: float, space: str
) -> Float[np.ndarray, "h w"]:
    """The doubt of the rendered values, of 255: what one deviation of the camera's colours changes in them.

    The variance if all colours are off together and that if they are off independently, by `CORRELATION`.
    """
    together = _change(picture, doubt, raw, stops, space).square()
    independent = torch.zeros_like(together)
    for i in range(3):
        alone = np.zeros_like(doubt)
        alone[..., i] = doubt[..., i]
        independent += _change(picture, alone, raw, stops, space).square()
    variance = CORRELATION * together + (1 - CORRELATION) * independent
    deviation: NDArray[np.float32] = 255 * variance.sqrt().mean(0).numpy()
    return deviation


def _change(
    picture: Float[np.ndarray, "h w 3"], by: Float[np.ndarray, "h w 3"], raw: Raw, stops: float, space: str
) -> Float[Tensor, "3 h w"]:
    """Half of the difference of two renderings: of the picture with this much more and with this much less."""
    more, less = (
        color.render(torch.from_numpy(end).permute(2, 0, 1), raw.gains, raw.matrix, exposure=stops, space=space)
        for end in (picture + by, picture - by)
    )
    return (more - less) / 2
