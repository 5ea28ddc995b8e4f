"""Draws from posteriors for tests, by SciPy."""

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from debayes.posterior.nig import NormalInverseGamma


def draw(q: NormalInverseGamma, *, seed: int) -> tuple[Tensor, Tensor]:
    """One draw of (z, sigma²) per element."""
    random = np.random.default_rng(seed)
    loc, count, concentration, rate = (t.double().numpy() for t in (q.loc, q.count, q.concentration, q.rate))
    variance = np.asarray(stats.invgamma(concentration, scale=rate).rvs(loc.shape, random_state=random))
    z = np.asarray(stats.norm(loc, np.sqrt(variance / count)).rvs(loc.shape, random_state=random))
    return torch.from_numpy(z).to(q.loc), torch.from_numpy(variance).to(q.loc)
