"""The bridge between linear camera values and the domain in which the raw networks see them.

Linear values, white-balanced so that neutral has equal colours and the least gain is 1, go through one curve for
all colours: a square root with an offset, the generalised Anscombe transform (Starck et al. 1998), scaled so that 0
stays 0 and 1 stays 1. With it the noise of the colour of gain 1 is about the same in light and shade; the others
have more. One curve, not three, so that grey stays grey. Below black it goes on as a straight line: nothing is
clipped.
"""

import torch
from jaxtyping import Float
from torch import Tensor

# Limits of the offset: below, the curve would be too steep at black; above, it would be no curve.
OFFSETS = (5e-4, 0.05)


def offset(gain: Float[Tensor, "*shape"], floor: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """The curve's offset for noise of variance gain * signal + floor: 3/8 gain + floor / gain, within limits."""
    return (0.375 * gain + floor / gain.clamp_min(1e-12)).clamp(*OFFSETS)


def encode(linear: Float[Tensor, "*shape"], offset: Float[Tensor, "..."]) -> Float[Tensor, "*shape"]:
    """Linear values to the networks' domain; the offset broadcasts."""
    root = offset.sqrt()
    span = (1 + offset).sqrt() - root
    curved = (linear.clamp_min(0) + offset).sqrt() - root
    return (curved + linear.clamp_max(0) / (2 * root)) / span


def slope(encoded: Float[Tensor, "*shape"], offset: Float[Tensor, "..."]) -> Float[Tensor, "*shape"]:
    """The derivative of `encode` where it gives these values: what it makes of a small deviation."""
    span = (1 + offset).sqrt() - offset.sqrt()
    return 1 / (2 * span * (encoded.clamp_min(0) * span + offset.sqrt()))


def decode(encoded: Float[Tensor, "*shape"], offset: Float[Tensor, "..."]) -> Float[Tensor, "*shape"]:
    """The inverse of `encode`: right for quantiles, and for values that have no spread."""
    root = offset.sqrt()
    lengths = encoded * ((1 + offset).sqrt() - root)
    return torch.addcmul(lengths.clamp_min(0).square_(), lengths, 2 * root)


def decode_mean(
    mean: Float[Tensor, "*shape"], variance: Float[Tensor, "*shape"], offset: Float[Tensor, "..."]
) -> Float[Tensor, "*shape"]:
    """The mean of decoded values from mean and variance of encoded ones; exact above black, where it squares."""
    root = offset.sqrt()
    span = (1 + offset).sqrt() - root
    above = mean.clamp_min(0)
    # no variance below black; signs are sooner than a comparison
    squares = above.sign().mul_(variance).addcmul_(above, above)
    return squares.mul_(span.square()).addcmul_(mean, 2 * root * span)
