"""Recipes: everything that makes a weight file, as a TOML file with the tables of `Recipe`."""

import tomllib
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_origin, get_type_hints

from debayes.model import Config

T = TypeVar("T")


@dataclass(frozen=True)
class Data:
    """What to train on, and what to judge on."""

    train: tuple[str, ...]
    """Folders or zips of pictures; relative to the folder given by `--data`."""
    val: str = ""
    """A folder of pictures for the validation PSNR; empty for none."""
    val_pictures: int = 8
    """How many of them, from the first by name, are restored at each validation."""
    tile: int = 256
    """Pictures are cut into squares of this many pixels."""
    hold: int = 100_000
    """How many tiles lie on the device at once, 18 GiB of the usual size. If there are more, they take turns."""
    stay: int = 2000
    """How many steps each turn lasts."""
    gratings: float = 0.0
    """The share of patches that are drawn, stripes and weaves of two random colours, instead of cut from a tile."""
    credits: str = ""
    """Where the pictures come from and under which licences, for the weight file's card."""


@dataclass(frozen=True)
class Noise:
    """The noise of the training mosaics, in units of 1/255."""

    low: float = 0.0
    """The least level."""
    high: float = 20.0
    """The highest level."""
    varying: float = 0.5
    """The share of patches whose level varies in space; the paper's is 1."""


@dataclass(frozen=True)
class Loss:
    """What is minimised."""

    kind: str = "elbo"
    """"elbo", "mse" or "l1"; the latter two train the image alone, for ablations."""
    form: str = "exact"
    """The expectation term of the ELBO: "exact", or "printed" as in the paper."""
    count: float = 2e3
    """The prior's lambda: how many observations the ground truth is worth."""
    window: int = 19
    """The prior's w: side of the bilateral window, alpha = w² / 2."""
    measured: bool = True
    """Whether the prior's variance is taken at measured photosites only, or, as in the paper, everywhere."""
    gain: float = 0.0
    """How much faster than its natural gradient the image is learnt, beside the other maps; see
    `loss.precondition`. 0 is the plain gradient of the ELBO, as in the paper."""
    level: float = 4.0
    """With a gain: the noise level, in units of 1/255, below which patches gain no more weight."""
    bend: float = 0.0
    """With a gain: errors beyond this many noise levels pull no harder, as with an L1 loss; 0 is no such limit."""


@dataclass(frozen=True)
class Optimizer:
    """How it is minimised."""

    rate: float = 1e-3
    """The highest learning rate, after the warm-up; a cosine brings it to 0 by the end."""
    plateau: int = 0
    """Instead of the cosine, as in the paper: judge every so many steps, and if the PSNR has not risen multiply the
    rate by `factor`, down to `floor`."""
    factor: float = 0.8
    """What a plateau leaves of the rate."""
    floor: float = 1e-4
    """The least rate that plateaus lead to."""
    warmup: int = 500
    """Steps of linear warm-up, at most a tenth of the run."""
    batch: int = 64
    """Patches a step, of all processes together."""
    patch: int = 128
    """Side of a patch in pixels; a multiple of the network's stride."""
    clip: float = 2.0
    """The largest norm of the gradient, in units of its usual one (a running mean); 0 is no limit."""
    decay: float = 0.0
    """AdamW's weight decay."""
    average: float = 0.999
    """Decay of the moving average of the weights, which is what is saved; 0 is none."""
    steps: int = 0
    """The length of the run in steps; or"""
    minutes: float = 0.0
    """in minutes of wall-clock time, compiling and judging included; the rate is annealed over whichever of the
    two is set."""
    seed: int = 0
    """Same seed, same run."""


@dataclass(frozen=True)
class Recipe:
    """Everything that makes a weight file."""

    data: Data
    network: Config = field(default_factory=Config)
    noise: Noise = field(default_factory=Noise)
    loss: Loss = field(default_factory=Loss)
    optimizer: Optimizer = field(default_factory=Optimizer)
    start: str = ""
    """A weight file or shipped name to start from; empty for fresh weights."""

    def __post_init__(self) -> None:
        if self.loss.kind not in ("elbo", "mse", "l1"):
            raise ValueError(f'loss.kind is "elbo", "mse" or "l1", not {self.loss.kind!r}')
        if self.optimizer.patch % self.network.stride:
            raise ValueError(
                f"optimizer.patch ({self.optimizer.patch}) must be a multiple of the stride {self.network.stride}"
            )
        if self.optimizer.patch > self.data.tile:
            raise ValueError(f"optimizer.patch ({self.optimizer.patch}) must fit into a tile ({self.data.tile})")
        if self.optimizer.batch < 1 or self.optimizer.patch < 1:
            raise ValueError("optimizer.batch and optimizer.patch must be 1 or more")
        if self.optimizer.plateau and not self.data.val:
            raise ValueError("optimizer.plateau needs pictures to judge on: name their folder in data.val")
        if self.data.hold < 1 or self.data.stay < 1:
            raise ValueError("data.hold and data.stay must be 1 or more")
        if not 0 <= self.noise.low <= self.noise.high:
            raise ValueError(f"noise levels are 0 <= low <= high, not {self.noise.low} and {self.noise.high}")
        if (self.optimizer.steps > 0) == (self.optimizer.minutes > 0):
            raise ValueError("give the length of the run as optimizer.steps or as optimizer.minutes, one of them")


def read_recipe(path: Path, changes: list[str] | None = None) -> Recipe:
    """The recipe of a TOML file; `changes` are like "optimizer.minutes=5". Unknown keys are errors."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no recipe {path}")
    try:
        table = tomllib.loads(path.read_text())
        for change in changes or []:
            key, _, value = change.partition("=")
            *parents, name = key.split(".")
            inner = table
            for parent in parents:
                inner = inner.setdefault(parent, {})
            inner[name] = tomllib.loads(f"value = {value}")["value"]
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not a text file: a recipe in TOML was expected") from None
    except (tomllib.TOMLDecodeError, AttributeError, TypeError) as error:
        raise ValueError(f"{path}: {error}; a change is written key.name=value, text in quotes") from None
    return _build(Recipe, table, str(path))


def _build(kind: type[T], table: dict[str, Any], where: str) -> T:
    hints = get_type_hints(kind)
    unknown = set(table) - set(hints)
    if unknown:
        raise ValueError(f"{where}: unknown key {sorted(unknown)[0]!r}; there are {', '.join(hints)}")
    values: dict[str, Any] = {}
    for name, value in table.items():
        hint = hints[name]
        if is_dataclass(hint) and isinstance(hint, type):
            if not isinstance(value, dict):
                raise ValueError(f"{where}: {name} is a table, not {value!r}")
            values[name] = _build(hint, value, f"{where}, {name}")
            continue
        value = tuple(value) if isinstance(value, list) else value
        expected = get_origin(hint) or hint
        whole = expected is float and type(value) is int  # TOML writes 5 for 5.0
        if type(value) is not expected and not whole:
            raise ValueError(f"{where}: {name} must be of type {expected.__name__}, not {value!r}")
        values[name] = value
    try:
        return kind(**values)
    except TypeError as error:
        raise ValueError(f"{where}: {error}") from None
