"""Recipes: everything that makes a weight file, as a TOML file with the tables of `Recipe`."""

import tomllib
from dataclasses import dataclass, field, is_dataclass
from math import inf
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from debayes.network.config import Config

T = TypeVar("T")


@dataclass(frozen=True)
class Data:
    """What to train on, and what to judge on."""

    train: tuple[str, ...]
    """Folders or zips of pictures, or stores of `debayes tiles`; relative to the folder given by `--data`."""
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
    enlarged: float = 0.0
    """The share of patches that are enlarged, up to `data.LARGEST` times, and so less sharp: photographs made small
    are sharper than most pictures."""
    softened: float = 0.0
    """The share of patches whose colours are blurred and their brightness not, as in most JPEGs and film scans
    ("srgb"); see `data.soften`."""
    gratings: float = 0.0
    """The share of patches that are drawn, stripes and weaves of two random colours, instead of cut from a tile."""
    detail: float = 0.0
    """The share of patches on which fine detail of one hue is drawn, near the Nyquist frequency; see
    `data.draw_detail`."""
    sharpened: float = 0.0
    """The share of patches that are sharpened, as cameras and screens do; see `data.sharpen`."""
    credits: str = ""
    """Where the pictures come from and under which licences, for the weight file's card."""


@dataclass(frozen=True)
class Noise:
    """The noise of the training mosaics, in units of 1/255."""

    domain: str = "srgb"
    """What the mosaics are: "srgb", those of pictures, with Gaussian noise; "raw", camera raws in the domain of
    `vst`, simulated by `virtual_camera.shoot`."""
    low: float = 0.0
    """The least level. Above 0 and with "raw", levels are log-uniform between it and the highest."""
    high: float = 20.0
    """The highest level."""
    varying: float = 0.5
    """The share of patches whose level varies in space ("srgb"); the paper's is 1."""
    by_color: float = 0.0
    """The share of patches whose level differs by colour; see `noise.color_factors`. Of these, half have photon
    noise ("srgb"). The paper's is 0."""
    unusual: float = 0.0
    """The share of patches with unusual white balance and exposure ("raw"); see `virtual_camera.shoot`."""


@dataclass(frozen=True)
class Loss:
    """What is minimised."""

    kind: str = "elbo"
    """"elbo", "mse" or "l1"; the latter two train the image alone."""
    form: str = "exact"
    """The expectation term of the ELBO: "exact", or "printed" as in the paper."""
    count: float = 2e3
    """The prior's lambda: how many observations the ground truth is worth."""
    window: int = 19
    """The prior's w: side of the bilateral window, alpha = w² / 2."""
    measured: bool = True
    """Whether the prior's variance is taken at measured photosites only, or, as in the paper, everywhere."""
    range: float = 0.1
    """The range width of the bilateral filter, on squared errors; more for stronger noise than sigma 20."""
    gain: float = 0.0
    """How much faster than its natural gradient the image is learnt, beside the other maps; see
    `variational.precondition`. 0 is the plain gradient of the ELBO, as in the paper."""
    level: float = 4.0
    """With a gain or `by_patch`: the noise level, in units of 1/255, below which patches gain no more weight."""
    bend: float = 0.0
    """With a gain: errors beyond this many noise levels pull no harder, as with an L1 loss; 0 is no such limit."""
    by_patch: bool = False
    """With a gain or "mse": patches are weighed by the inverse of their own squared error, as the mean PSNR of
    pictures weighs them, and not by that of their noise, or alike. It asks for a tenth of the gain."""


@dataclass(frozen=True)
class Optimizer:
    """How it is minimised."""

    rate: float = 1e-3
    """The highest learning rate, after the warm-up; it falls to 0 along a straight line."""
    muon: float = 0.0
    """How many times the rate is that of Muon, which then has the filters, and AdamW the rest; 0 is AdamW alone."""
    centre: int = 0
    """How many steps lie between two looks at what the blocks are given, so that filters and biases can be moved
    apart from each other; see `gradient_centralisation` ("unet"). 0 is plain descent."""
    plateau: int = 0
    """Instead of the line, as in the paper: judge every so many steps, and if the PSNR has not risen multiply the
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
    """How fast filters, not biases, shrink, times the rate."""
    average: float = 0.999
    """Decay of the moving average of the weights, which is what is saved; 0 is none."""
    steps: int = 0
    """The length of the run in steps; or"""
    minutes: float = 0.0
    """in minutes of wall-clock time, compiling and judging included; the rate is annealed over whichever of the
    two is set."""
    bfloat16: bool = False
    """Convolutions in bfloat16 on a CPU too: twice as fast if it has units for it. On CUDA they always are."""
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
    """A weight file or shipped name to start from; empty for fresh weights. Its stacks may have fewer blocks than
    those of `network`: the others do nothing at first. What was pruned needs its `network.hidden`."""

    def __post_init__(self) -> None:
        data, noise, loss, optimizer = self.data, self.noise, self.loss, self.optimizer
        if loss.kind not in ("elbo", "mse", "l1"):
            raise ValueError(f'loss.kind is "elbo", "mse" or "l1", not {loss.kind!r}')
        if loss.form not in ("exact", "printed"):
            raise ValueError(f'loss.form is "exact" or "printed", not {loss.form!r}')
        if noise.domain not in ("srgb", "raw"):
            raise ValueError(f'noise.domain is "srgb" or "raw", not {noise.domain!r}')
        for name, value, least, most in (
            ("data.val_pictures", data.val_pictures, 1, inf),
            ("data.tile", data.tile, 2, inf),
            ("data.hold", data.hold, 1, inf),
            ("data.stay", data.stay, 1, inf),
            ("data.enlarged", data.enlarged, 0, 1),
            ("data.softened", data.softened, 0, 1),
            ("data.gratings", data.gratings, 0, 1),
            ("data.detail", data.detail, 0, 1),
            ("data.sharpened", data.sharpened, 0, 1),
            ("noise.low", noise.low, 0, inf),
            ("noise.high", noise.high, noise.low, 1e6),
            ("noise.varying", noise.varying, 0, 1),
            ("noise.by_color", noise.by_color, 0, 1),
            ("noise.unusual", noise.unusual, 0, 1),
            ("loss.count", loss.count, 1e-6, 1e12),
            ("loss.window", loss.window, 1, 999),
            ("loss.range", loss.range, 1e-6, 1e6),
            ("loss.gain", loss.gain, 0, 1e12),
            ("loss.level", loss.level, 0, 1e6),
            ("loss.bend", loss.bend, 0, 1e6),
            ("optimizer.rate", optimizer.rate, 0, 1e3),
            ("optimizer.muon", optimizer.muon, 0, 1e3),
            ("optimizer.centre", optimizer.centre, 0, inf),
            ("optimizer.plateau", optimizer.plateau, 0, inf),
            ("optimizer.factor", optimizer.factor, 0, 1),
            ("optimizer.floor", optimizer.floor, 0, 1e3),
            ("optimizer.warmup", optimizer.warmup, 0, inf),
            ("optimizer.batch", optimizer.batch, 1, inf),
            ("optimizer.patch", optimizer.patch, 1, inf),
            ("optimizer.clip", optimizer.clip, 0, inf),
            ("optimizer.decay", optimizer.decay, 0, 1e3),
            ("optimizer.average", optimizer.average, 0, 0.9999999),
            ("optimizer.steps", optimizer.steps, 0, inf),
            ("optimizer.minutes", optimizer.minutes, 0, 1e9),
            ("optimizer.seed", optimizer.seed, 0, 2**63),
        ):
            if not least <= value <= most:  # also false for nan
                limit = f"from {least:g} to {most:g}" if most < inf else f"{least:g} or more"
                raise ValueError(f"{name} must be {limit}, not {value:g}")
        if loss.by_patch and not (loss.kind == "mse" or (loss.kind == "elbo" and loss.gain)):
            raise ValueError('loss.by_patch needs a loss.gain above 0, or loss.kind = "mse"')
        if loss.window % 2 == 0:
            raise ValueError(f"loss.window must be odd, not {loss.window}")
        if not data.train:
            raise ValueError("data.train must name at least one folder or zip of pictures")
        if optimizer.plateau and not data.val:
            raise ValueError("optimizer.plateau needs pictures to judge on: name their folder in data.val")
        if optimizer.plateau and not optimizer.rate:
            raise ValueError("optimizer.plateau needs an optimizer.rate above 0")
        if optimizer.patch % self.network.stride:
            raise ValueError(
                f"optimizer.patch ({optimizer.patch}) must be a multiple of the stride {self.network.stride}"
            )
        if optimizer.patch > data.tile:
            raise ValueError(f"optimizer.patch ({optimizer.patch}) must fit into a tile ({data.tile})")
        if (optimizer.steps > 0) == (optimizer.minutes > 0):
            raise ValueError(
                "give the length of the run as optimizer.steps or as optimizer.minutes, and set the other to 0: "
                f"they are {optimizer.steps} and {optimizer.minutes:g}"
            )


def read_recipe(path: Path, changes: list[str] | None = None) -> Recipe:
    """The recipe of a TOML file; `changes` are like "optimizer.minutes=5". Unknown keys are errors."""
    if not path.is_file():
        what = (
            "is a folder: a TOML file was expected" if path.is_dir() else "does not exist: there is no such recipe"
        )
        raise FileNotFoundError(f"{path} {what}")
    try:
        table = tomllib.loads(path.read_text())
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not a text file: a recipe in TOML was expected") from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: {error}") from None
    for change in changes or []:
        _change(table, change)
    if "data" not in table:
        raise ValueError(f"{path}: a recipe needs a table [data] that names what to train on")
    return _build(Recipe, table, str(path))


def _change(table: dict[str, Any], change: str) -> None:
    """Put one change into a recipe's table. What is no TOML value is text whose quotes a shell took."""
    key, equals, value = change.partition("=")
    *parents, name = key.strip().split(".")
    for parent in parents:
        table = table.setdefault(parent, {}) if isinstance(table, dict) else table
    if not (equals and name and isinstance(table, dict)):
        raise ValueError(f"{change!r} does not change a recipe: write it like optimizer.minutes=5")
    try:
        table[name] = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        table[name] = value.strip()


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
            kind_name = "list" if expected is tuple else expected.__name__
            raise ValueError(f"{where}: {name} must be of type {kind_name}, not {value!r}")
        if isinstance(value, tuple) and not all(type(item) is get_args(hint)[0] for item in value):
            raise ValueError(f"{where}: {name} must be a list of {get_args(hint)[0].__name__}, not {list(value)!r}")
        values[name] = value
    try:
        return kind(**values)
    except TypeError as error:
        raise ValueError(f"{where}: {error}") from None
