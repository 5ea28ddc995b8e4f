"""Colour: the transfer curve of sRGB, colour spaces, and a simple rendering of camera colours."""

import torch
from jaxtyping import Float
from torch import Tensor

from debayes.system.errors import DebayesError

# Linear RGB to XYZ, both with a D65 white: sRGB (IEC 61966-2-1) and Display P3.
XYZ_FROM_SRGB = torch.tensor(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]],
    dtype=torch.float64,
)
XYZ_FROM_P3 = torch.tensor(
    [[0.4865709, 0.2656677, 0.1982173], [0.2289746, 0.6917385, 0.0792869], [0.0000000, 0.0451134, 1.0439444]],
    dtype=torch.float64,
)
SRGB_FROM_XYZ = torch.linalg.inv(XYZ_FROM_SRGB)
SPACES = {"srgb": XYZ_FROM_SRGB, "p3": XYZ_FROM_P3}


def encode_srgb(linear: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Linear values as sRGB values, both with 0 = black and 1 = white. Nothing is clipped.

    >>> round(float(encode_srgb(torch.tensor(0.5, dtype=torch.float64))), 6)
    0.735357
    """
    # the clamp avoids powers of negative values, whose gradients are NaN
    curved = 1.055 * linear.clamp_min(0.0031308) ** (1 / 2.4) - 0.055
    return torch.where(linear <= 0.0031308, 12.92 * linear, curved)


def decode_srgb(encoded: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """sRGB values as linear values: the inverse of `encode_srgb`."""
    curved = ((encoded.clamp_min(0.04045) + 0.055) / 1.055) ** 2.4
    return torch.where(encoded <= 0.04045, encoded / 12.92, curved)


def check_space(space: str) -> None:
    """Raise if a colour space is not one of `SPACES`."""
    if space not in SPACES:
        raise DebayesError(f"the colour space is one of {', '.join(SPACES)}, not {space!r}")


def from_camera(matrix: Float[Tensor, "3 3"], space: str = "srgb") -> Float[Tensor, "3 3"]:
    """The matrix from white-balanced camera colours to a linear space; it maps white to white.

    `matrix` is XYZ to camera. Its rows are scaled so that the space's white is (1, 1, 1) in the camera too, as
    after white balance, and the result is inverted.
    """
    check_space(space)
    to_camera = matrix.double() @ SPACES[space]
    inverse: Tensor = torch.linalg.inv(to_camera / to_camera.sum(1, keepdim=True))
    return inverse.float()


def tone(linear: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """A film-like tone curve of linear light: a toe, brighter midtones, a shoulder; black stays 0 and white 1.

    A sensor's middle grey, an eighth of its white, becomes 0.2, which is a display's middle grey.
    """
    lifted = _LIFT * linear.clamp_min(0)
    shoulder = lifted * (1 + lifted / _LIFT**2) / (1 + lifted)  # Reinhard et al. 2002, with its white at _LIFT
    return shoulder**_TOE


# Rendered colours fade to white from 1 to this many times white.
FADED_TO_WHITE = 8.0

# How much the tone curve lifts the shadows, and the contrast of its toe.
_LIFT, _TOE = 2.5, 1.15


def render(
    camera: Float[Tensor, "3 h w"],
    gains: tuple[float, float, float],
    matrix: Float[Tensor, "3 3"],
    *,
    exposure: float = 0.0,
    space: str = "srgb",
) -> Float[Tensor, "3 h w"]:
    """An sRGB or Display P3 picture in [0, 1] of linear camera colours: the only place where anything is clipped.

    White balance, the camera's matrix, an exposure in stops, then the tone curve of the brightest of the three
    colours, which scales all three equally and so keeps the hue. Where the sensor saturates, colours fade to white
    as the smallest of them comes near saturation: all saturated is white, a bright blue with one saturated colour
    stays blue. What is too bright to be shown in its colour fades to white too.
    """
    balanced = camera * torch.tensor(gains).view(3, 1, 1)
    linear = torch.einsum("ij,jhw->ihw", from_camera(matrix, space), balanced) * 2**exposure
    brightest = linear.amax(0).clamp_min(1e-6)
    toned = tone(brightest)
    colored = linear * (toned / brightest)
    saturated = _smooth_step(camera.amax(0), 0.9, 1.0) * _smooth_step(balanced.amin(0), 0.5, 1.0)
    fading = torch.maximum(saturated, _smooth_step(brightest, 1.0, FADED_TO_WHITE))
    return encode_srgb(torch.lerp(colored, toned.expand_as(colored), fading).clamp(0, 1))


def _smooth_step(values: Tensor, low: float, high: float) -> Tensor:
    """A smooth step from 0 at low to 1 at high."""
    share = ((values - low) / (high - low)).clamp(0, 1)
    return share * share * (3 - 2 * share)
