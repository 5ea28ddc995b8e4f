"""Weight files: safetensors that say what they are, where they came from and how well they do.

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
from debayes.network.heads import FILTERS
from debayes.network.network import Network
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
    """What was measured, under the protocol of the README."""
    notes: dict[str, str] = field(default_factory=dict)
    """Anything else: data and licences, commit, device, date."""

    @property
    def domain(self) -> str:
        """The mosaics it was trained for: "srgb" ones of pictures, or "raw" ones of cameras."""
        return str(self.recipe.get("noise", {}).get("domain", "srgb"))


def shipped() -> list[str]:
    """The names of the models inside the package."""
    folder = resources.files("debayes") / "pretrained"
    return sorted(Path(f.name).stem for f in folder.iterdir() if f.name.endswith(".safetensors"))


def load(model: str | Path, *, device: str | torch.device = "cpu", calibrated: bool = True) -> Network:
    """The network of a shipped name ("wild-s") or a weight file, ready to restore with.

    If it is not to be `calibrated`, what `calibration` made of its doubt gives way to that of an untrained network.
    """
    card, tensors = _read(locate(model))
    network = Network(card.config)
    network.domain = card.domain
    try:
        network.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
    except RuntimeError:
        raise ValueError(f"{model}: its tensors do not fit the configuration written beside them") from None
    if not calibrated and "calibrated" in card.notes:
        with torch.no_grad():
            for parameter in network.body.maps.parameters():
                parameter[FILTERS["count"]] = parameter[FILTERS["concentration"]] = 0
    return to_channels_last(network).to(device).eval().requires_grad_(False)


def read_card(model: str | Path) -> Card:
    """What a shipped model or a weight file says about itself."""
    return _read(locate(model))[0]


def check_domain(model: str | Path, domain: str) -> None:
    """Raise if a model was trained for other mosaics: "srgb" ones of pictures, or "raw" ones of cameras."""
    trained = read_card(model).domain
    if trained == domain:
        return
    if trained == "raw":
        raise ValueError(f"{model} was trained for camera raws: use it with develop, and wild-s or wild-l here")
    raise ValueError(f"{model} was not trained for camera raws: raw-s and raw-l were")


def save(network: Network, path: Path, card: Card) -> None:
    """Write a weight file, whole or not at all."""
    plain = torch.contiguous_format  # whatever layout the network runs in
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
    raise ValueError(f"there is no model {str(model)!r}: give a weight file or one of the shipped names ({names})")


def _read(path: Path) -> tuple[Card, dict[str, Tensor]]:
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    except (SafetensorError, OSError):
        raise ValueError(f"{path} is no weight file: it is not a whole safetensors file") from None
    if metadata.get("format") != FORMAT:
        raise ValueError(f"{path} is a safetensors file, but not one that debayes wrote")
    if metadata.get("version") != str(VERSION):
        raise ValueError(
            f"{path} has weight format {metadata.get('version')}, this debayes reads {VERSION}: update debayes"
        )
    if metadata.get("sha256") != checksum(tensors, metadata):
        raise ValueError(f"{path} is damaged: its checksum does not match what it holds")
    try:
        config, recipe, results, notes = (
            json.loads(metadata[key]) for key in ("config", "recipe", "results", "notes")
        )
        config |= {"widths": tuple(config["widths"]), "hidden": tuple(config.get("hidden", ()))}
        card = Card(Config(**config), recipe, results, notes)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} has a description that cannot be read: {error}") from None
    return card, tensors


def checksum(tensors: dict[str, Tensor], metadata: dict[str, str]) -> str:
    """The SHA-256 of everything a weight file holds but the checksum itself."""
    digest = hashlib.sha256()
    for key in sorted(set(metadata) - {"sha256"}):
        digest.update(f"{key}={metadata[key]}\n".encode())
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].numpy().tobytes())
    return digest.hexdigest()
