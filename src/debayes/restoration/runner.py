"""The protocol between restoration and what runs a network: the network itself, or an engine.

`tiling` asks for the posterior of one tile at a time. It passes a window: the tile, and the photosites around it
that the network's receptive field reaches.

Tested in tests/restoration/test_tiling.py.
"""

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from debayes.network.config import Config
from debayes.posterior.nig import Posterior


@runtime_checkable
class Runner(Protocol):
    """What runs a network on windows of photosites: a `Network` itself, or an `engine.Engine`."""

    @property
    def config(self) -> Config:
        """The network's shape, which says how far a window reaches and on which grid it starts."""
        ...

    @property
    def device(self) -> torch.device:
        """Where windows are expected, and posteriors are returned."""
        ...

    @property
    def domain(self) -> str | None:
        """What the network was trained on: "srgb" values, camera "raw"s, or nothing if that is not known."""
        ...

    @property
    def has_posterior(self) -> bool:
        """Whether it returns a posterior, and not only its mean."""
        ...

    def forward_crop(self, mosaic: Tensor, rows: slice, columns: slice) -> Posterior:
        """The posterior (b, 3, rows, columns) of a part of an RGGB window (b, 1, h, w)."""
        ...

    def bands(self, mosaic: Tensor, rows: slice, columns: slice) -> Iterable[Posterior]:
        """The same from top to bottom in bands of rows, each as soon as it is computed; one band is all of it."""
        ...
