"""The networks: `Config` says everything about one, `Network` turns a mosaic into a posterior.

All are built of 3x3 convolutions and rectifiers on the four packed planes of an RGGB mosaic. There is no
normalisation and no pooling over the picture, so a pixel depends on its `receptive_radius` and nothing else.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy

import torch
from jaxtyping import Float
from torch import Tensor, nn

from debayes.imaging import cfa
from debayes.network import heads
from debayes.network.blocks import Residual, to_channels_last
from debayes.network.config import Config
from debayes.network.paper_net import PaperNet
from debayes.network.unet import UNet
from debayes.posterior.nig import NormalInverseGamma


class Network(nn.Module):
    """An RGGB mosaic in, a normal-inverse-gamma posterior for every pixel and colour out.

    The mosaic has 0 = black and 1 = white; its sides are multiples of ``config.stride``. `restoration.restore`
    takes care of other patterns, sizes and large pictures.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.domain: str | None = None
        """What it was trained on, "srgb" values or camera "raw"s; nothing if that is not known."""
        self.body: UNet | PaperNet = UNet(config) if config.architecture == "unet" else PaperNet(config)

    def forward(self, mosaic: Float[Tensor, "b 1 h w"]) -> NormalInverseGamma:
        base = cfa.interpolate(mosaic, "RGGB")
        # Centred on 0: half the rounding error where the convolutions run in bfloat16.
        return self.posterior(base, self.body(cfa.pack(mosaic) - 0.5, base - 0.5))

    def inside(self, mosaic: Float[Tensor, "b 1 h w"], rows: slice, columns: slice) -> NormalInverseGamma:
        """The posterior of some rows and columns."""
        posterior: NormalInverseGamma = self(mosaic)
        return posterior.map(lambda t: t[..., rows, columns])

    def bands(self, mosaic: Float[Tensor, "b 1 h w"], rows: slice, columns: slice) -> tuple[NormalInverseGamma]:
        """The same as the one band that it is; an `engine.Engine` may give several."""
        return (self.inside(mosaic, rows, columns),)

    def posterior(self, base: Float[Tensor, "b 3 h w"], maps: Float[Tensor, "b c h w"]) -> NormalInverseGamma:
        """What the body's maps mean: a residual over the interpolated mosaic, and the three other parameters."""
        if not self.has_heads:
            return NormalInverseGamma.of_mean(base.float() + maps.float())
        return heads.posterior(self.config, base, maps)

    @property
    def has_heads(self) -> bool:
        """Whether it gives all of the posterior, and not the mean alone as what `beheaded` makes does."""
        return self.body.maps.out_channels == 12

    def beheaded(self) -> "Network":
        """The same network without the maps of noise and doubt, for less work: its posteriors have a mean alone."""
        bare = deepcopy(self)
        maps = self.body.maps
        bare.body.maps = nn.Conv2d(maps.in_channels, 3, 3, padding=1).to(maps.weight)
        with torch.no_grad():
            for name, value in bare.body.maps.named_parameters():
                value.copy_(maps.get_parameter(name)[:3])
        return to_channels_last(bare).train(self.training).requires_grad_(maps.weight.requires_grad)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    @property
    def parameter_count(self) -> int:
        """Number of weights."""
        return sum(p.numel() for p in self.parameters())

    @property
    def kmac_per_pixel(self) -> float:
        """Thousand multiply-accumulates of the convolutions, per photosite."""
        stride = self.config.stride
        size = 4 * stride
        total = 0

        def count(module: nn.Module, _: tuple[Tensor, ...], output: Tensor) -> None:
            nonlocal total
            weight = module.weight
            assert isinstance(weight, Tensor)
            total += output[0, 0].numel() * weight.numel()

        hooks = [m.register_forward_hook(count) for m in self.modules() if isinstance(m, nn.Conv2d)]
        with torch.no_grad():
            self(torch.zeros(1, 1, size, size, device=self.device))
        for hook in hooks:
            hook.remove()
        return total / size**2 / 1e3


def blocks(network: Network) -> dict[str, Residual]:
    """The residual blocks of a network by their names; the paper's network has none."""
    return {name: module for name, module in network.named_modules() if isinstance(module, Residual)}


@contextmanager
def visiting(network: Network, visit: Callable[[str, Residual, Tensor], None]) -> Iterator[None]:
    """While this lasts, every residual block is visited, with its name and its input, before it runs."""
    hooks = [
        block.register_forward_pre_hook(lambda block, inputs, name=name: visit(name, block, inputs[0]))
        for name, block in blocks(network).items()
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
