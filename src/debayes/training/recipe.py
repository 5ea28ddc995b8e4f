"""Recipes: everything that determines a weight file, as a TOML file with the tables of `Recipe`."""

import tomllib
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from math import inf
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from debayes.network.config import Config
from debayes.system.errors import DebayesError

T = TypeVar("T")

# Names that keys had in the recipes of older weight files.
OLD_NAMES = {
    "data": {"hold": "tiles_on_device", "stay": "steps_per_block"},
    "loss": {"bend": "error_limit"},
    "optimizer": {"centre": "centralise_every"},
}

# The lowest and the highest value of each number.
LIMITS: dict[str, tuple[float, float]] = {
    "data.val_pictures": (1, inf),
    "data.tile": (2, inf),
    "data.tiles_on_device": (1, inf),
    "data.steps_per_block": (1, inf),
    "data.enlarged": (0, 1),
    "data.softened": (0, 1),
    "data.gratings": (0, 1),
    "data.detail": (0, 1),
    "data.sharpened": (0, 1),
    "noise.low": (0, inf),
    "noise.high": (0, 1e6),
    "noise.varying": (0, 1),
    "noise.by_color": (0, 1),
    "noise.unusual": (0, 1),
    "loss.count": (1e-6, 1e12),
    "loss.window": (1, 999),
    "loss.range": (1e-6, 1e6),
    "loss.gain": (0, 1e12),
    "loss.level": (0, 1e6),
    "loss.error_limit": (0, 1e6),
    "optimizer.rate": (0, 1e3),
    "optimizer.muon": (0, 1e3),
    "optimizer.centralise_every": (0, inf),
    "optimizer.plateau": (0, inf),
    "optimizer.factor": (0, 1),
    "optimizer.floor": (0, 1e3),
    "optimizer.warmup": (0, inf),
    "optimizer.batch": (1, inf),
    "optimizer.patch": (1, inf),
    "optimizer.clip": (0, inf),
    "optimizer.decay": (0, 1e3),
    "optimizer.average": (0, 0.9999999),
    "optimizer.steps": (0, inf),
    "optimizer.minutes": (0, 1e9),
    "optimizer.seed": (0, 2**63),
}

# The values of each choice.
CHOICES = {
    "loss.form": ("exact", "printed"),
    "noise.domain": ("srgb", "raw"),
}


@dataclass(frozen=True)
class Data:
    """The pictures to train on, and those to validate on."""

    train: tuple[str, ...]
    """Folders or zips of pictures, or stores of `debayes tiles`; relative to the folder given by `--data`."""
    val: str = ""
    """A folder of pictures for the validation PSNR; empty for none."""
    val_pictures: int = 8
    """How many of them, from the first by name, are restored at each validation."""
    tile: int = 256
    """Pictures are cut into squares of this many pixels."""
    tiles_on_device: int = 100_000
    """How many tiles are kept on the device at once; 100,000 of the default size take 18 GiB. A larger store is
    loaded block by block."""
    steps_per_block: int = 2000
    """How many steps are trained on one block of such a store."""
    enlarged: float = 0.0
    """The share of patches that are enlarged, up to `augmentation.LARGEST` times, and so less sharp: downscaled
    photographs are sharper than most pictures."""
    softened: float = 0.0
    """The share of patches whose colours are blurred, but not their brightness, as in most JPEGs and film scans;
    see `augmentation.soften`."""
    gratings: float = 0.0
    """The share of patches that are replaced by drawn stripes and weaves of two random colours."""
    detail: float = 0.0
    """The share of patches on which fine detail of one hue is drawn, near the Nyquist frequency; see
    `augmentation.draw_detail`."""
    sharpened: float = 0.0
    """The share of patches that are sharpened, as cameras and screens do; see `augmentation.sharpen`."""
    credits: str = ""
    """Where the pictures come from, for the weight file's card, beside the counts of tiles and licences that
    training takes from CREDITS.csv."""


@dataclass(frozen=True)
class Noise:
    """The noise of the training mosaics, in units of 1/255."""

    domain: str = "srgb"
    """The kind of mosaics: "srgb" for those of pictures, with Gaussian noise; "raw" for camera raws in the domain
    of `vst`, simulated by `virtual_camera.shoot`."""
    low: float = 0.0
    """The lowest level. If it is above 0, the levels of raws are log-uniform between it and the highest."""
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
    """The loss function."""

    kind: str = "elbo"
    """A name in `losses.LOSSES`: "elbo", or "mse" or "l1", which train the image only."""
    form: str = "exact"
    """The expectation term of the ELBO: "exact", or "printed" as in the paper."""
    count: float = 2e3
    """The prior's lambda: how many observations the ground truth counts as."""
    window: int = 19
    """The prior's w: side of the bilateral window, alpha = w² / 2."""
    measured: bool = True
    """Whether the prior's variance is taken from measured photosites only, or, as in the paper, from all values."""
    range: float = 0.1
    """The range width of the bilateral filter, on squared errors; noise above sigma 20 needs more."""
    gain: float = 0.0
    """The factor of the image's preconditioned gradient, relative to the gradients of the other maps; see
    `variational.precondition`. 0 keeps the plain gradient of the ELBO, as in the paper."""
    level: float = 4.0
    """With a gain or `by_patch`: the noise level, in units of 1/255, below which the weight of a patch no longer
    grows."""
    error_limit: float = 0.0
    """With a gain: errors beyond this many noise levels have a constant gradient, as with an L1 loss; 0 is no
    limit."""
    by_patch: bool = False
    """With a gain or "mse": each patch is weighted by the inverse of its own squared error, as in the mean PSNR of
    pictures, instead of by the inverse of its noise variance or equally. It needs a tenth of the gain."""


@dataclass(frozen=True)
class Optimizer:
    """The optimizer, the learning rate and the length of the run."""

    rate: float = 1e-3
    """The highest learning rate, after the warm-up; from there it falls linearly to 0."""
    muon: float = 0.0
    """The learning rate of Muon relative to `rate`. Muon then trains the filters and AdamW the rest; 0 is AdamW
    alone."""
    centralise_every: int = 0
    """How many steps lie between two measurements of the mean inputs of the residual blocks, which gradient
    centralisation needs ("unet"); see `gradient_centralisation`. 0 is no centralisation."""
    plateau: int = 0
    """Instead of the linear fall, as in the paper: validate every so many steps, and if the PSNR has not risen,
    multiply the rate by `factor`, down to `floor`."""
    factor: float = 0.8
    """The factor of the rate at a plateau."""
    floor: float = 1e-4
    """The lowest rate after plateaus."""
    warmup: int = 500
    """Steps of linear warm-up, at most a tenth of the run."""
    batch: int = 64
    """Patches per step, of all processes together."""
    patch: int = 128
    """Side of a patch in pixels; a multiple of the network's stride."""
    clip: float = 2.0
    """The largest norm of the gradient, relative to its running mean; 0 is no limit."""
    decay: float = 0.0
    """The weight decay of filters, which is multiplied by the rate; biases do not decay."""
    average: float = 0.999
    """Decay of the moving average of the weights, which is what is saved; 0 is no averaging."""
    steps: int = 0
    """The length of the run in steps."""
    minutes: float = 0.0
    """Or the length in minutes of wall-clock time, compilation and validation included."""
    bfloat16: bool = False
    """Whether a CPU computes the convolutions in bfloat16: twice as fast if it supports that. CUDA always does."""
    seed: int = 0
    """The seed of all random numbers."""


@dataclass(frozen=True)
class Recipe:
    """Everything that determines a weight file.

    Examples:
        >>> from debayes.training.recipe import Data, Optimizer, Recipe
        >>> recipe = Recipe(data=Data(train=("photographs",)), optimizer=Optimizer(steps=1000))
        >>> recipe.loss.kind
        'elbo'
    """

    data: Data
    network: Config = field(default_factory=Config)
    noise: Noise = field(default_factory=Noise)
    loss: Loss = field(default_factory=Loss)
    optimizer: Optimizer = field(default_factory=Optimizer)
    start: str = ""
    """A weight file or shipped name to start from; empty for fresh weights. Its stacks may have fewer blocks than
    those of `network`: additional blocks are the identity at first. Pruned weights need their `network.hidden`."""

    def __post_init__(self) -> None:
        _check_values(self)
        _check_loss(self.loss)
        _check_schedule(self.data, self.optimizer)
        _check_patch(self)


def _check_values(recipe: Recipe) -> None:
    """Raise if a value is outside its `LIMITS` or none of its `CHOICES`."""

    def value(name: str) -> Any:
        table, key = name.split(".")
        return getattr(getattr(recipe, table), key)

    for name, (low, high) in (LIMITS | {"noise.high": (recipe.noise.low, LIMITS["noise.high"][1])}).items():
        if not low <= value(name) <= high:  # also for nan
            limit = f"from {low:g} to {high:g}" if high < inf else f"{low:g} or more"
            raise DebayesError(f"{name} must be {limit}, not {value(name):g}")
    for name, choices in CHOICES.items():
        if value(name) not in choices:
            names = ", ".join(f'"{choice}"' for choice in choices[:-1])
            raise DebayesError(f'{name} must be {names} or "{choices[-1]}", not {value(name)!r}')
    if not recipe.data.train:
        raise DebayesError("data.train must name at least one folder or zip of pictures")


def _check_loss(loss: Loss) -> None:
    if loss.by_patch and (loss.kind == "l1" or (loss.kind == "elbo" and not loss.gain)):
        raise DebayesError('loss.by_patch needs a loss.gain above 0, or loss.kind = "mse"')
    if loss.window % 2 == 0:
        raise DebayesError(f"loss.window must be odd, not {loss.window}")


def _check_schedule(data: Data, optimizer: Optimizer) -> None:
    if optimizer.plateau and not data.val:
        raise DebayesError("optimizer.plateau needs validation pictures: name their folder in data.val")
    if optimizer.plateau and not optimizer.rate:
        raise DebayesError("optimizer.plateau needs an optimizer.rate above 0")
    if (optimizer.steps > 0) == (optimizer.minutes > 0):
        raise DebayesError(
            "give the length of the run as optimizer.steps or as optimizer.minutes, and set the other to 0: "
            f"they are {optimizer.steps} and {optimizer.minutes:g}"
        )


def _check_patch(recipe: Recipe) -> None:
    patch, stride, tile = recipe.optimizer.patch, recipe.network.stride, recipe.data.tile
    if patch % stride:
        raise DebayesError(f"optimizer.patch ({patch}) must be a multiple of the network's stride, {stride}")
    if patch > tile:
        raise DebayesError(f"optimizer.patch ({patch}) must fit into a tile, data.tile ({tile})")


def read_recipe(path: Path, changes: list[str] | None = None) -> Recipe:
    """The recipe of a TOML file; `changes` are like "optimizer.minutes=5". Unknown keys are errors.

    Examples:
        >>> import debayes
        >>> from pathlib import Path
        >>> recipe = debayes.read_recipe(Path("recipes/wild-s.toml"), ["optimizer.minutes=5"])
        >>> recipe.optimizer.batch, recipe.optimizer.minutes
        (64, 5)
    """
    if not path.is_file():
        what = (
            "is a folder: a TOML file was expected" if path.is_dir() else "does not exist: there is no such recipe"
        )
        raise FileNotFoundError(f"{path} {what}")
    try:
        table = tomllib.loads(path.read_text())
    except UnicodeDecodeError:
        raise DebayesError(f"{path} is not a text file: a recipe in TOML was expected") from None
    except tomllib.TOMLDecodeError as error:
        raise DebayesError(f"{path} is not valid TOML: {error}") from None
    for change in changes or []:
        _change(table, change)
    if "data" not in table:
        raise DebayesError(f"{path}: a recipe needs a table [data] that names the pictures to train on")
    return _build(Recipe, table, str(path))


def stored_recipe(table: dict[str, Any], where: str) -> Recipe:
    """The recipe that a weight file or a run stores as JSON; keys that are newer than it have their defaults."""
    return _build(Recipe, _with_new_names(table), where)


def stored_noise(table: dict[str, Any], where: str) -> Noise:
    """The noise of a recipe that a weight file stores; that of `Noise()` if it stores none."""
    return _build(Noise, _with_new_names(table).get("noise", {}), f"{where}, noise")


def _with_new_names(table: dict[str, Any]) -> dict[str, Any]:
    """A stored recipe's table with today's names of its keys."""
    renamed = dict(table)
    for name in OLD_NAMES.keys() & table.keys():
        renamed[name] = {OLD_NAMES[name].get(key, key): value for key, value in table[name].items()}
    return renamed


def _change(table: dict[str, Any], change: str) -> None:
    """Apply one change to a recipe's table. A value that is not TOML is text whose quotes a shell removed."""
    key, equals, value = change.partition("=")
    *parents, name = key.strip().split(".")
    for parent in parents:
        table = table.setdefault(parent, {}) if isinstance(table, dict) else table
    if not (equals and name and isinstance(table, dict)):
        raise DebayesError(f"{change!r} does not change a recipe: write it like optimizer.minutes=5")
    try:
        table[name] = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        text = value.strip()
        is_list = text.startswith("[") and text.endswith("]")
        table[name] = [item.strip() for item in text[1:-1].split(",")] if is_list else text


def _build(kind: type[T], table: dict[str, Any], where: str) -> T:
    """A dataclass made of a table, and those inside it of the tables inside it."""
    hints = get_type_hints(kind)
    unknown = sorted(table.keys() - hints.keys())
    if unknown:
        raise DebayesError(f"{where}: unknown key {unknown[0]!r}; the keys are {', '.join(hints)}")
    values: dict[str, Any] = {}
    for name, value in table.items():
        hint = hints[name]
        if is_dataclass(hint) and isinstance(hint, type):
            if not isinstance(value, dict):
                raise DebayesError(f"{where}: {name} must be a table, not {value!r}")
            values[name] = _build(hint, value, f"{where}, {name}")
        else:
            values[name] = _converted(value, hint, f"{where}: {name}")
    for required in fields(kind):  # type: ignore[arg-type]  # a dataclass
        if required.default is MISSING and required.default_factory is MISSING and required.name not in values:
            raise DebayesError(f"{where}: the key {required.name!r} is missing")
    return kind(**values)


def _converted(value: Any, hint: Any, name: str) -> Any:
    """A value of TOML or JSON, whose type must be that of the field; a list becomes a tuple, and so does a single
    value where a list is expected."""
    expected = get_origin(hint) or hint
    if isinstance(value, list):
        value = tuple(value)
    elif expected is tuple and type(value) is get_args(hint)[0]:
        value = (value,)
    if type(value) is not expected and not (expected is float and type(value) is int):  # TOML writes 5 for 5.0
        kind = f"list of {get_args(hint)[0].__name__}" if expected is tuple else expected.__name__
        raise DebayesError(f"{name} must be of type {kind}, not {value!r}")
    if isinstance(value, tuple) and not all(type(item) is get_args(hint)[0] for item in value):
        raise DebayesError(f"{name} must be a list of {get_args(hint)[0].__name__}, not {list(value)!r}")
    return value
