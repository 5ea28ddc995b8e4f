"""The protocol between a network, or an engine, and what restores with it."""

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
    def config(self) -> Config: ...
    @property
    def device(self) -> torch.device: ...
    @property
    def has_posterior(self) -> bool: ...
    def forward_crop(self, mosaic: Tensor, rows: slice, columns: slice) -> Posterior: ...
    def bands(self, mosaic: Tensor, rows: slice, columns: slice) -> Iterable[Posterior]: ...
