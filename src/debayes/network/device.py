"""The device that a network runs on, by name."""

import torch

from debayes.system.errors import DebayesError
from debayes.system.log import log


def find_device(name: str | torch.device) -> torch.device:
    """A device of this machine: the named one, or for "auto" a GPU if there is one."""
    if isinstance(name, torch.device):
        return name
    usable = ["cpu"] + ["cuda"] * torch.cuda.is_available() + ["mps"] * torch.backends.mps.is_available()
    if name == "auto":
        log.info("device: %s (usable here: %s)", usable[-1], ", ".join(usable))
        return torch.device(usable[-1])
    if name.split(":")[0] not in usable:
        raise DebayesError(f"the device {name!r} is not on this machine: choose auto, {', '.join(usable)}")
    return torch.device(name)
