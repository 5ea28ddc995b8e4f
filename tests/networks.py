"""Networks for tests."""

import torch

from debayes.network.config import Config
from debayes.network.network import Network


def untrained(config: Config) -> Network:
    """A network with random weights, so large that each of them matters."""
    torch.manual_seed(1)
    network = Network(config)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return network.eval().requires_grad_(False)
