"""What every experiment is given: networks, test pictures, a cache of results, and how long it may take."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from debayes.evaluation import scenes
from debayes.formats import pictures
from debayes.network.network import Network

# Quick experiments use this many pictures of a set, cropped to at most this size around their centre.
QUICK_PICTURES = 4
QUICK_SIZE = 256

# Where each picture set is had, as docs/data.md says.
SOURCES = {
    "kodak24": "at r0k.us/graphics/kodak",
    "mcm18": 'with Zhang et al., "Color demosaicking by local directional interpolation and nonlocal adaptive '
    'thresholding" (2011)',
    "wed-cdm": 'with Tan et al., "Color image demosaicking via deep residual learning" (2017)',
    "mit-moire": 'with Gharbi et al., "Deep joint demosaicking and denoising" (2016)',
    "urban100": 'with Huang et al., "Single image super-resolution from transformed self-exemplars" (2015)',
    "msr": 'with Khashabi et al., "Joint demosaicing and denoising via learned nonparametric random fields" (2014)',
}


@dataclass(frozen=True)
class Context:
    """The networks, pictures and settings of an experiment."""

    models: dict[str, Network]
    """Networks by name; experiments on a single network take the first."""
    root: Path | None
    """The folder of the picture sets: each is looked for as `bench/NAME`, then as `NAME`, below it."""
    quick: bool
    """Whether to use few small pictures and short runs, to check that everything works."""
    cached: Callable[[str, Callable[[], Any]], Any]
    """Returns the result stored under a key, or computes and stores it."""
    progress: Callable[[float], None]
    """Called with the fraction of the work that is done."""
    report: Callable[[str], None] = lambda line: None
    """Called with a line for each row of results, when it is computed."""

    @property
    def network(self) -> Network:
        """The first of the models."""
        return next(iter(self.models.values()))

    @property
    def model(self) -> str:
        """The name of the first of the models."""
        return next(iter(self.models))

    @property
    def length(self) -> str:
        """The length of the experiments: "quick" or "full"."""
        return "quick" if self.quick else "full"

    @property
    def quick_note(self) -> str:
        """The note for tables of quick runs, empty for full ones."""
        return "Quick: few and small pictures, short runs; not comparable with published numbers." * self.quick

    def folders(self, name: str) -> list[Path]:
        """The existing folders of a set."""
        return set_folders(self.root, name)

    def picture_paths(self, name: str) -> list[Path]:
        """The pictures of a set; an empty list if the set is not on this machine."""
        for folder in self.folders(name):
            return pictures.find(folder)[: QUICK_PICTURES if self.quick else None]
        return []

    def read_picture(self, path: Path) -> Tensor:
        """A picture cropped to an even size; quick experiments crop it further."""
        return crop_to_even(pictures.read(path), QUICK_SIZE if self.quick else None)

    def some_pictures(self, name: str, limit: int) -> dict[str, Tensor]:
        """The first pictures of a set by name; if the set is missing, photographs of scikit-image instead."""
        if paths := self.picture_paths(name)[:limit]:
            return {path.name: self.read_picture(path) for path in paths}
        size = QUICK_SIZE if self.quick else None
        return {key: crop_to_even(scenes.photograph(key), size) for key in scenes.PHOTOGRAPHS[:limit]}

    def substitution_note(self, name: str, used: dict[str, Tensor]) -> list[str]:
        """The note that photographs were used in place of a set; empty if the set is there."""
        if self.picture_paths(name):
            return []
        return missing_note([name], f"replaced by {', '.join(used)} of scikit-image")


def set_folders(root: Path | None, name: str) -> list[Path]:
    """The existing folders of a set below the folder of the sets."""
    folders = [] if root is None else [root / "bench" / name, root / name]
    return [folder for folder in folders if folder.is_dir()]


def missing_note(names: Sequence[str], consequence: str = "") -> list[str]:
    """The note that sets are not on this machine, and how to add them; empty if none is missing."""
    if not names:
        return []
    remedy = "put their folders under DEBAYES_DATA/bench (or give --data) and run the same command to include them"
    missing = f"Not on this machine: {', '.join(names)}{f' ({consequence})' if consequence else ''}"
    return [f"{missing}; {remedy}. {where_to_get(names)}."]


def where_to_get(names: Sequence[str]) -> str:
    """Where sets are had, as one sentence without its full stop."""
    return f"Where they are had: {'; '.join(f'{name} {SOURCES[name]}' for name in names)}"


def seeded(seed: int) -> torch.Generator:
    """A generator on the CPU with this seed."""
    return torch.Generator().manual_seed(seed)


def crop_to_even(picture: Tensor, size: int | None) -> Tensor:
    """The centre of a picture, of even size, at most `size` along each side."""
    height, width = (min(side, size or side) // 2 * 2 for side in picture.shape[1:])
    top, left = ((side - cut) // 2 for side, cut in zip(picture.shape[1:], (height, width), strict=True))
    return picture[:, top : top + height, left : left + width]
