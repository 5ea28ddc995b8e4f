"""The networks: a `Config` describes one completely, a `Network` turns a mosaic into a posterior.

All are built of convolutions and rectifiers on the four packed planes of an RGGB mosaic. There is no normalisation
and no pooling over the picture, so a pixel depends on its `receptive_radius` and nothing else.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor, nn

from debayes.imaging import cfa
from debayes.network import heads
from debayes.network.blocks import Residual, convolution_weights, to_channels_last
from debayes.network.config import Config
from debayes.network.paper_net import PaperNet
from debayes.network.unet import UNet
from debayes.posterior.nig import MeanOnly, Posterior
from debayes.system.errors import DebayesError


class Network(nn.Module):
    """An RGGB mosaic in, a normal-inverse-gamma posterior for every pixel and colour out.

    The mosaic has 0 = black and 1 = white; its sides are multiples of ``config.stride``. `restoration.restore`
    takes care of other patterns, sizes and large pictures.

    Examples:
        >>> import debayes, torch
        >>> network = debayes.load("wild-s")
        >>> posterior = network(torch.rand(2, 1, 64, 48))  # sides are multiples of network.config.stride
        >>> posterior.mean.shape
        torch.Size([2, 3, 64, 48])
        >>> network.mean_only()(torch.rand(2, 1, 64, 48)).mean.shape  # less work
        torch.Size([2, 3, 64, 48])
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.domain: str | None = None
        """What it was trained on, "srgb" values or camera "raw"s; nothing if that is not known."""
        self.body: UNet | PaperNet = UNet(config) if config.architecture == "unet" else PaperNet(config)

    if TYPE_CHECKING:  # nn.Module's call is of type Any

        def __call__(self, mosaic: Tensor) -> Posterior: ...

    def forward(self, mosaic: Tensor) -> Posterior:
        """The posterior of RGGB mosaics (b, 1, h, w)."""
        self._check(mosaic)
        base = cfa.interpolate(mosaic, "RGGB")
        # Centred on 0: half the rounding error where the convolutions run in bfloat16.
        return self.posterior(base, self.body(cfa.pack(mosaic) - 0.5, base - 0.5))

    def _check(self, mosaic: Tensor) -> None:
        """Raise if the network cannot take such a mosaic."""
        stride, weight = self.config.stride, self.body.maps.weight
        if mosaic.ndim != 4 or mosaic.shape[1] != 1 or any(side % stride or not side for side in mosaic.shape[2:]):
            raise DebayesError(
                f"a network takes mosaics (batch, 1, height, width) with sides that are multiples of {stride}, "
                f"not {tuple(mosaic.shape)}: debayes.restore takes any size"
            )
        mixed = torch.is_autocast_enabled(mosaic.device.type)  # then PyTorch converts what it multiplies
        if mosaic.device.type != weight.device.type or (mosaic.dtype != weight.dtype and not mixed):
            raise DebayesError(
                f"the weights of this network are {weight.dtype} on {weight.device}, but the mosaic is "
                f"{mosaic.dtype} on {mosaic.device}: convert one of them with .to()"
            )

    def forward_crop(self, mosaic: Float[Tensor, "b 1 h w"], rows: slice, columns: slice) -> Posterior:
        """The posterior of some rows and columns."""
        return self(mosaic)[..., rows, columns]

    def bands(self, mosaic: Float[Tensor, "b 1 h w"], rows: slice, columns: slice) -> tuple[Posterior]:
        """`forward_crop` as a single band of rows; an `engine.Engine` may give several."""
        return (self.forward_crop(mosaic, rows, columns),)

    def posterior(self, base: Float[Tensor, "b 3 h w"], maps: Float[Tensor, "b c h w"]) -> Posterior:
        """What the body's maps mean: a residual over the interpolated mosaic, and the three other parameters."""
        if not self.has_posterior:
            return MeanOnly(base.float() + maps.float())
        return heads.posterior(self.config, base, maps)

    @property
    def has_posterior(self) -> bool:
        """Whether it gives the whole posterior; what `mean_only` makes gives the mean alone."""
        return self.body.maps.out_channels == 12

    def mean_only(self) -> "Network":
        """The same network without the outputs for noise and doubt, which makes it faster: it gives `MeanOnly`."""
        bare = deepcopy(self)
        maps = self.body.maps
        with torch.random.fork_rng(devices=()):  # the host program's random numbers stay the same
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
        """Thousand multiply-accumulates of the convolutions, per photosite: kMAC per pixel."""
        parts = self.body.resolutions()
        return sum(convolution_weights(part) / spacing**2 for part, spacing in parts) / 1e3


def blocks(network: Network) -> dict[str, Residual]:
    """The residual blocks of a network by their names; the paper's network has none."""
    return {name: module for name, module in network.named_modules() if isinstance(module, Residual)}


@contextmanager
def visiting(network: Network, visit: Callable[[str, Residual, Tensor], None]) -> Iterator[None]:
    """Until the block ends, call `visit` with the name and the input of each residual block before it runs."""
    hooks = [
        block.register_forward_pre_hook(lambda block, inputs, name=name: visit(name, block, inputs[0]))
        for name, block in blocks(network).items()
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
