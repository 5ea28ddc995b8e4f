"""What the four maps of a network's last convolution mean."""

from math import expm1, log

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from debayes.network.config import Config
from debayes.posterior.nig import NormalInverseGamma

# The four maps of a posterior, as `NormalInverseGamma` names them.
MAPS = ("loc", "count", "concentration", "rate")

# The filters of the last convolution that give each of them, one for each colour.
FILTERS = {name: slice(3 * i, 3 * i + 3) for i, name in enumerate(MAPS)}


# What `Network.posterior` adds to the maps: ahead of the softplus, where it makes 1 or a variance of (10/255)² of
# nothing, and behind it, where it keeps the parameters away from 0.
ONE = log(expm1(1.0))
START = log(expm1((10 / 255) ** 2))
FLOOR = 1e-3
VARIANCE_FLOOR = 1e-9


def posterior(
    config: Config, base: Float[Tensor, "b 3 h w"], maps: Float[Tensor, "b 12 h w"]
) -> NormalInverseGamma:
    """A residual over the interpolated mosaic, and the three other parameters."""
    residual, count, concentration, variance = maps.float().chunk(4, 1)
    # softplus(ONE) = 1, so a head of zeros gives Config's values. The variance is exponential where it is
    # small, and starts at sigma 10/255. A concentration above 2 has the moments that `nig.merge` needs.
    concentration = 2 + FLOOR + (config.concentration - 2) * F.softplus(concentration + ONE)
    variance = VARIANCE_FLOOR + F.softplus(variance + START)
    return NormalInverseGamma(
        residual + base.float(),  # laid out as the other maps are
        FLOOR + config.count * F.softplus(count + ONE),
        concentration,
        variance * (concentration - 1),
    )
