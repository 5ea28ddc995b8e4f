"""The tone curve of sRGB (IEC 61966-2-1), to and from linear values."""

import torch
from jaxtyping import Float
from torch import Tensor


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
