"""What the experiments of the paper work with: networks, pictures, a memory, and how much of it all."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from debayes.evaluation import scenes
from debayes.formats import pictures
from debayes.network.network import Network

# Quick experiments see so many pictures of a set, cut to this size from their middle.
QUICK_PICTURES = 4
QUICK_SIZE = 256


@dataclass(frozen=True)
class Bench:
    """What an experiment works with."""

    models: dict[str, Network]
    """By name; experiments on one network take the first."""
    root: Path | None
    """Where the sets lie, in folders of their names, or in such folders of `bench` below it."""
    quick: bool
    """Few small pictures and short runs, to see that it works; or everything."""
    remember: Callable[[str, Callable[[], Any]], Any]
    """What was computed under a name before, or is computed now and kept."""
    progress: Callable[[float], None]
    """Told the share that is done."""

    @property
    def network(self) -> Network:
        """The first of the models."""
        return next(iter(self.models.values()))

    @property
    def model(self) -> str:
        """Its name."""
        return next(iter(self.models))

    def find(self, name: str) -> list[Path]:
        """The pictures of a set, none if it is not on this machine."""
        for folder in self.places(name):
            return pictures.find(folder)[: QUICK_PICTURES if self.quick else None]
        return []

    def places(self, name: str) -> list[Path]:
        """The folders of a set that are on this machine."""
        folders = [] if self.root is None else [self.root / "bench" / name, self.root / name]
        return [folder for folder in folders if folder.is_dir()]

    def read(self, path: Path) -> Tensor:
        """A picture of even size, cut to its middle if quick."""
        return even(pictures.read(path), QUICK_SIZE if self.quick else None)

    def pictures(self, name: str, limit: int) -> dict[str, Tensor]:
        """A few pictures of a set, or the photographs at hand in its place; quick ones are cut to their middle."""
        if paths := self.find(name)[:limit]:
            return {path.name: self.read(path) for path in paths}
        size = QUICK_SIZE if self.quick else None
        return {key: even(scenes.photograph(key), size) for key in scenes.PHOTOGRAPHS[:limit]}

    @property
    def length(self) -> str:
        """How long experiments are: quick or whole."""
        return "quick" if self.quick else "whole"

    @property
    def note(self) -> str:
        """What to say below a table of numbers."""
        return "Quick: few and small pictures, short runs; not to be compared with published numbers." * self.quick

    def replaced(self, name: str, pictures: dict[str, Tensor]) -> list[str]:
        """What to say if photographs at hand stand in for a set."""
        return [] if self.find(name) else missing([name], f"{', '.join(pictures)} of scikit-image in its place")


def seeded(seed: int) -> torch.Generator:
    """A generator on the CPU."""
    return torch.Generator().manual_seed(seed)


def even(picture: Tensor, size: int | None) -> Tensor:
    """A picture cut to an even size, of at most `size` from its middle."""
    height, width = (min(side, size or side) // 2 * 2 for side in picture.shape[1:])
    top, left = ((side - cut) // 2 for side, cut in zip(picture.shape[1:], (height, width), strict=True))
    return picture[:, top : top + height, left : left + width]


def missing(names: Sequence[str], instead: str = "") -> list[str]:
    """What to say about sets that are not on this machine."""
    if not names:
        return []
    where = "with their folders under DEBAYES_DATA/bench (or --data), the same command includes them"
    return [f"Not on this machine: {', '.join(names)}{f' ({instead})' if instead else ''}; {where}."]
