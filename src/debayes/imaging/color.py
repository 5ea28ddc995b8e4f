"""Colour: the tone curve of sRGB, colour spaces, and a plain rendering of camera colours."""

import torch
from jaxtyping import Float
from torch import Tensor

from debayes.system.errors import DebayesError

# Linear RGB to XYZ, both of a D65 white: sRGB (IEC 61966-2-1) and Display P3.
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
    """The sRGB values of linear ones, both with 0 = black and 1 = white. Nothing is clipped.

    >>> round(float(encode_srgb(torch.tensor(0.5, dtype=torch.float64))), 6)
    0.735357
    """
    # The power is kept off its straight part, where a negative value has none.
    curved = 1.055 * linear.clamp_min(0.0031308) ** (1 / 2.4) - 0.055
    return torch.where(linear <= 0.0031308, 12.92 * linear, curved)


def decode_srgb(encoded: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """The linear values of sRGB ones: the inverse of `encode_srgb`."""
    curved = ((encoded.clamp_min(0.04045) + 0.055) / 1.055) ** 2.4
    return torch.where(encoded <= 0.04045, encoded / 12.92, curved)


def check_space(space: str) -> None:
    """Raise if a colour space is not one of `SPACES`."""
    if space not in SPACES:
        raise DebayesError(f"the colour space is one of {', '.join(SPACES)}, not {space!r}")


def from_camera(matrix: Float[Tensor, "3 3"], space: str = "srgb") -> Float[Tensor, "3 3"]:
    """White-balanced camera colours to a linear space: white goes to white.

    `matrix` is XYZ to camera. Its rows are scaled so that the space's white is (1, 1, 1) in the camera too, as
    white balance makes it, and the whole is inverted.
    """
    check_space(space)
    seen = matrix.double() @ SPACES[space]
    inverse: Tensor = torch.linalg.inv(seen / seen.sum(1, keepdim=True))
    return inverse.float()


def tone(linear: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """A film-like curve over linear light: a toe, a lifted middle, a shoulder; black stays 0 and white 1.

    A sensor's middle grey, an eighth of its white, is lifted to 0.2, where a display's middle grey is.
    """
    lit = _LIFT * linear.clamp_min(0)
    shoulder = lit * (1 + lit / _LIFT**2) / (1 + lit)  # Reinhard et al. 2002, with its white at _LIFT
    return shoulder**_TOE


# Light that is this many times white has no colour left in a rendered picture.
MOST = 8.0

# How much the curve lifts the shadows, and how much contrast its toe has.
_LIFT, _TOE = 2.5, 1.15


def render(
    camera: Float[Tensor, "3 h w"],
    gains: tuple[float, float, float],
    matrix: Float[Tensor, "3 3"],
    *,
    exposure: float = 0.0,
    space: str = "srgb",
) -> Float[Tensor, "3 h w"]:
    """A picture to look at, in [0, 1], of linear camera colours: the only place where anything is clipped.

    White balance, the camera's matrix, an exposure in stops, then a film-like curve of the brightest of the three
    colours, which scales them alike and so keeps the hue. Where the camera is blown, colours fade to white as the
    least of them comes near it: all blown is white, a bright blue with one colour blown stays blue. What is too
    bright to be shown in its colour fades to white too.
    """
    balanced = camera * torch.tensor(gains).view(3, 1, 1)
    linear = torch.einsum("ij,jhw->ihw", from_camera(matrix, space), balanced) * 2**exposure
    brightest = linear.amax(0).clamp_min(1e-6)
    shown = tone(brightest)
    hued = linear * (shown / brightest)
    blown = _step(camera.amax(0), 0.9, 1.0) * _step(balanced.amin(0), 0.5, 1.0)
    fading = torch.maximum(blown, _step(brightest, 1.0, MOST))
    return encode_srgb(torch.lerp(hued, shown.expand_as(hued), fading).clamp(0, 1))


def _step(values: Tensor, low: float, high: float) -> Tensor:
    """A smooth step from 0 at low to 1 at high."""
    share = ((values - low) / (high - low)).clamp(0, 1)
    return share * share * (3 - 2 * share)
