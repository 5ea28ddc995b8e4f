"""The variance-stabilising transform of linear camera values, which the raw networks see, and its inverse.

Linear values, white-balanced so that neutral has equal colours and the smallest gain is 1, go through one curve for
all colours: a square root with an offset, the generalised Anscombe transform (Starck et al. 1998), scaled so that 0
stays 0 and 1 stays 1. It gives the colour of gain 1 about the same noise at every brightness; the others have more.
There is one curve, not three, so that grey stays grey. Below black it continues as a straight line: nothing is
clipped.
"""

import torch
from jaxtyping import Float
from torch import Tensor

# Limits of the offset: with less the curve would be too steep at black, with more it would be almost straight.
OFFSETS = (5e-4, 0.05)


def offset(gain: Float[Tensor, "*shape"], floor: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """The curve's offset for noise of variance gain * signal + floor: 3/8 gain + floor / gain, within limits."""
    return (0.375 * gain + floor / gain.clamp_min(1e-12)).clamp(*OFFSETS)


def encode(linear: Float[Tensor, "*shape"], offset: Float[Tensor, "..."]) -> Float[Tensor, "*shape"]:
    """Linear values in the networks' domain; the offset broadcasts."""
    root = offset.sqrt()
    span = (1 + offset).sqrt() - root
    curved = (linear.clamp_min(0) + offset).sqrt() - root
    return (curved + linear.clamp_max(0) / (2 * root)) / span


def slope(encoded: Float[Tensor, "*shape"], offset: Float[Tensor, "..."]) -> Float[Tensor, "*shape"]:
    """The derivative of `encode` at the point where it gives these values."""
    span = (1 + offset).sqrt() - offset.sqrt()
    return 1 / (2 * span * (encoded.clamp_min(0) * span + offset.sqrt()))


def decode(encoded: Float[Tensor, "*shape"], offset: Float[Tensor, "..."]) -> Float[Tensor, "*shape"]:
    """The inverse of `encode`: exact for quantiles and for values without noise; for means see `decode_mean`."""
    root = offset.sqrt()
    curved = encoded * ((1 + offset).sqrt() - root)
    return torch.addcmul(curved.clamp_min(0).square_(), curved, 2 * root)


def decode_mean(
    mean: Float[Tensor, "*shape"], variance: Float[Tensor, "*shape"], offset: Float[Tensor, "..."]
) -> Float[Tensor, "*shape"]:
    """The mean of the decoded values from the mean and variance of the encoded ones: the unbiased inverse.

    Exact above black, where decoding squares; below black decoding is linear and the variance does not matter.
    """
    root = offset.sqrt()
    span = (1 + offset).sqrt() - root
    above = mean.clamp_min(0)
    # the sign drops the variance below black; it is faster than a comparison
    squares = above.sign().mul_(variance).addcmul_(above, above)
    return squares.mul_(span.square()).addcmul_(mean, 2 * root * span)
