"""Weight files: safetensors with a description of the network, its training and its measured results.

A file holds the tensors (float16) and, as text, the network's `Config`, the recipe that trained it, the results
measured on it and a checksum. Nothing in it is ever executed.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialize
from torch import Tensor

from debayes.network.blocks import to_channels_last
from debayes.network.config import Config
from debayes.network.device import find_device
from debayes.network.heads import FILTERS
from debayes.network.network import Network
from debayes.system.errors import DebayesError
from debayes.system.files import replace

FORMAT = "debayes-weights"
VERSION = 1


@dataclass(frozen=True)
class Card:
    """What a weight file says about itself."""

    config: Config
    """The shape of the network."""
    recipe: dict[str, Any] = field(default_factory=dict)
    """The training recipe, as `debayes train` read it."""
    results: dict[str, Any] = field(default_factory=dict)
    """Measured quality, under the protocol of the README."""
    notes: dict[str, str] = field(default_factory=dict)
    """Anything else: data and licences, commit, device."""

    @property
    def domain(self) -> str:
        """The mosaics it was trained for: "srgb" ones of pictures, or "raw" ones of cameras."""
        return str(self.recipe.get("noise", {}).get("domain", "srgb"))


def shipped() -> list[str]:
    """The names of the models inside the package."""
    folder = resources.files("debayes") / "pretrained"
    return sorted(Path(f.name).stem for f in folder.iterdir() if f.name.endswith(".safetensors"))


@dataclass(frozen=True)
class WeightFile:
    """What was read from a weight file, whole and undamaged."""

    path: Path
    card: Card
    tensors: dict[str, Tensor]

    def network(self, *, device: str | torch.device = "cpu", calibrated: bool = True) -> Network:
        """The network, ready to restore with; arguments as for `load`."""
        with torch.random.fork_rng(devices=()):  # the host program's random numbers stay the same
            network = Network(self.card.config)
        network.domain = self.card.domain
        expected = {name: tensor.shape for name, tensor in network.state_dict().items()}
        if expected != {name: tensor.shape for name, tensor in self.tensors.items()}:
            raise DebayesError(f"{self.path}: its tensors do not fit the configuration stored with them")
        network.load_state_dict({name: tensor.float() for name, tensor in self.tensors.items()})
        if not calibrated and "calibrated" in self.card.notes:
            with torch.no_grad():
                for parameter in network.body.maps.parameters():
                    parameter[FILTERS["count"]] = parameter[FILTERS["concentration"]] = 0
        return to_channels_last(network).to(find_device(device)).eval().requires_grad_(False)


def load(model: str | Path, *, device: str | torch.device = "cpu", calibrated: bool = True) -> Network:
    """The network of a shipped name ("wild-s") or a weight file, ready to restore with.

    `device` is one of PyTorch's, or "auto" for a GPU if there is one. With `calibrated=False` the weights that
    `calibration` fitted for the doubt map are reset to those of an untrained network.

    Examples:
        >>> import debayes
        >>> network = debayes.load("wild-s", device="auto")
        >>> network.domain, round(network.parameter_count / 1e6, 2)
        ('srgb', 0.55)
    """
    return read(model).network(device=device, calibrated=calibrated)


def read(model: str | Path) -> WeightFile:
    """The card and the tensors of a shipped model or a weight file; its checksum is verified."""
    path = locate(model)
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    except (SafetensorError, OSError):
        raise _not_whole(path) from None
    _check_format(path, metadata)
    if metadata.get("sha256") != checksum(tensors, metadata):
        raise DebayesError(f"{path} is damaged: its checksum does not match its content; get the file again")
    return WeightFile(path, _parse_card(path, metadata), tensors)


def read_card(model: str | Path) -> Card:
    """What a shipped model or a weight file says about itself; the whole file is read to verify it."""
    return read(model).card


def check_domain(model: str | Path, domain: str) -> None:
    """Raise if a model was trained for other mosaics: "srgb" ones of pictures, or "raw" ones of cameras.

    Only the header of the file is read.
    """
    path = locate(model)
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
    except (SafetensorError, OSError):
        raise _not_whole(path) from None
    _check_format(path, metadata)
    trained = _parse_card(path, metadata).domain
    if trained == domain:
        return
    if trained == "raw":
        raise DebayesError(f"{model} was trained for camera raws: use it with develop, and wild-s or wild-l here")
    raise DebayesError(f"{model} was not trained for camera raws: use raw-s or raw-l")


def save(network: Network, path: Path, card: Card) -> None:
    """Write a weight file, whole or not at all."""
    plain = torch.contiguous_format  # the layout of the file, whatever the network uses
    tensors = {name: t.half().cpu().clone(memory_format=plain) for name, t in network.state_dict().items()}
    metadata = {
        "format": FORMAT,
        "version": str(VERSION),
        "config": json.dumps(asdict(network.config)),
        "recipe": json.dumps(card.recipe),
        "results": json.dumps(card.results),
        "notes": json.dumps(card.notes),
    }
    metadata["sha256"] = checksum(tensors, metadata)
    with replace(path) as temporary:
        temporary.write_bytes(serialize(tensors, metadata))


def locate(model: str | Path) -> Path:
    """The weight file of a shipped name or of a path."""
    path = Path(model)
    if str(model) in shipped():
        return Path(str(resources.files("debayes") / "pretrained" / f"{model}.safetensors"))
    if path.is_file():
        return path
    names = ", ".join(shipped()) or "none yet"
    raise DebayesError(
        f"there is no model {str(model)!r}: give a weight file or one of the shipped names ({names})"
    )


def _not_whole(path: Path) -> DebayesError:
    return DebayesError(f"{path} is no weight file: it is not a whole safetensors file")


def _check_format(path: Path, metadata: dict[str, str]) -> None:
    """Raise if debayes did not write a safetensors file, or if a newer version did."""
    if metadata.get("format") != FORMAT:
        raise DebayesError(f"{path} is a safetensors file, but not one that debayes wrote")
    if metadata.get("version") != str(VERSION):
        raise DebayesError(
            f"{path} has weight format {metadata.get('version')}, this debayes reads {VERSION}: update debayes"
        )


def _parse_card(path: Path, metadata: dict[str, str]) -> Card:
    try:
        config, recipe, results, notes = (
            json.loads(metadata[key]) for key in ("config", "recipe", "results", "notes")
        )
        config |= {"widths": tuple(config["widths"]), "hidden": tuple(config.get("hidden", ()))}
        return Card(Config(**config), recipe, results, notes)
    except (KeyError, TypeError, DebayesError, json.JSONDecodeError) as error:
        raise DebayesError(f"{path} has a description that cannot be read: {error}") from None


def checksum(tensors: dict[str, Tensor], metadata: dict[str, str]) -> str:
    """The SHA-256 of everything in a weight file except the checksum itself."""
    digest = hashlib.sha256()
    for key in sorted(set(metadata) - {"sha256"}):
        digest.update(f"{key}={metadata[key]}\n".encode())
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].numpy().tobytes())
    return digest.hexdigest()
