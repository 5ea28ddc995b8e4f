"""Raws of a virtual camera for tests."""

import torch

from debayes.evaluation import scenes
from debayes.formats.raw import Raw
from debayes.imaging import virtual_camera

BODY = virtual_camera.Body()


def shoot(clean: torch.Tensor, iso: float, pattern: str = "RGGB", seed: int = 0, *, told: bool = True) -> Raw:
    """A raw of a clean sensor image; with its noise profile if it is `told`."""
    counts = BODY.shoot(clean, pattern, iso, generator=torch.Generator().manual_seed(seed))
    mosaic = (counts[None] - BODY.black).float() / (BODY.white - BODY.black)
    return Raw(mosaic, pattern, BODY.gains, BODY.matrix, profile=BODY.profile(iso) if told else None)


def photograph(size: int = 192) -> torch.Tensor:
    """The clean sensor image of a free photograph."""
    return BODY.expose(scenes.photograph("chelsea")[:, 60 : 60 + size, 90 : 90 + size])
