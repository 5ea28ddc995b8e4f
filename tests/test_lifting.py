"""Networks without their lowest level: the same pixels where that level added nothing."""

from dataclasses import replace

import pytest
import torch
from networks import untrained

from debayes.lifting import lift
from debayes.model import Config, Network, UNet

CONFIG = Config(widths=(12, 16, 20), blocks=2, bottom_blocks=3, tail=8, tail_blocks=1)
# the second block of the middle level, on the way down, left out
HIDDEN = (12, 8, 16, 0, 20, 20, 4, 12, 12, 16, 10, 8)


def with_idle_bottom(config: Config) -> Network:
    """A network whose lowest level adds nothing to the one above it."""
    network = untrained(config)
    assert isinstance(network.body, UNet)
    last = network.body.grow[-1]
    torch.nn.init.zeros_(last.weight)
    torch.nn.init.zeros_(last.bias)
    return network


@pytest.mark.parametrize("config", [CONFIG, replace(CONFIG, hidden=HIDDEN), replace(CONFIG, widths=(12, 16))])
def test_same_pixels_without_an_idle_level(config: Config) -> None:
    """All four maps, of full, pruned and shallow networks; half of the stride is left."""
    network = with_idle_bottom(config)
    lifted = lift(network)
    mosaic = torch.rand(2, 1, 32, 48, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        before, after = network(mosaic), lifted(mosaic)
    for name in ("loc", "count", "concentration", "rate"):
        torch.testing.assert_close(getattr(after, name), getattr(before, name), rtol=1e-5, atol=1e-6)
    assert lifted.config.stride == network.config.stride // 2


def test_one_level_is_refused() -> None:
    """Neither a U-Net of one level nor the paper's network has a level below another."""
    for config in (Config(widths=(8,)), Config(architecture="paper", widths=(8,), groups=1, blocks=1, layers=1)):
        with pytest.raises(ValueError, match="two levels or more"):
            lift(untrained(config))
