"""The heads: from the maps of a network's last convolution to the four parameters of its posterior.

Tested in tests/network/test_network.py.
"""

from math import expm1, log

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from debayes.network.config import Config
from debayes.posterior.nig import NormalInverseGamma

# The four maps of a posterior, as `NormalInverseGamma` names them.
MAPS = ("loc", "count", "concentration", "rate")

# The filters of the last convolution for each parameter: one a colour.
FILTERS = {name: slice(3 * i, 3 * i + 3) for i, name in enumerate(MAPS)}


# Offsets: before the softplus, so that a map of zeros gives 1 (ONE) or the variance (10/255)² (START); after it,
# the floors that keep the parameters away from 0.
ONE = log(expm1(1.0))
START = log(expm1((10 / 255) ** 2))
FLOOR = 1e-3
VARIANCE_FLOOR = 1e-9


def posterior(
    config: Config, base: Float[Tensor, "b 3 h w"], maps: Float[Tensor, "b 12 h w"]
) -> NormalInverseGamma:
    """The posterior: the first map is a residual over the interpolated mosaic, the others pass a softplus."""
    residual, count, concentration, variance = maps.float().chunk(4, 1)
    # softplus(ONE) = 1, so a head of zeros gives Config's values. The variance is exponential where it is
    # small, and starts at sigma 10/255. A concentration above 2 has the moments that `nig.merge` needs.
    concentration = 2 + FLOOR + (config.concentration - 2) * F.softplus(concentration + ONE)
    variance = VARIANCE_FLOOR + F.softplus(variance + START)
    return NormalInverseGamma(
        residual + base.float(),  # in this order the result has the memory layout of the other maps
        FLOOR + config.count * F.softplus(count + ONE),
        concentration,
        variance * (concentration - 1),
    )
