"""Training a network from a recipe: one loop, from the first batch to the weight file.

A recipe is a TOML file with the tables of `Recipe`. A run is a folder: `weights.safetensors` (what `load` reads),
`state.pt` (what `--resume` goes on from) and `log.jsonl`, all written whole or not at all.
"""

import json
import subprocess
import time
import tomllib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, is_dataclass
from math import cos, isfinite, pi
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import torch
from torch import Tensor
from torch.optim.swa_utils import get_ema_multi_avg_fn

from debayes import data, evaluation, files, image, loss, weights
from debayes.model import Config, Network
from debayes.nig import NormalInverseGamma

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


@dataclass(frozen=True)
class Optimizer:
    """How it is minimised."""

    rate: float = 1e-3
    """The highest learning rate, after the warm-up; a cosine brings it to 0 by the end."""
    warmup: int = 500
    """Steps of linear warm-up, at most a tenth of the run."""
    batch: int = 64
    """Patches a step."""
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
        if (self.optimizer.steps > 0) == (self.optimizer.minutes > 0):
            raise ValueError("give the length of the run as optimizer.steps or as optimizer.minutes, one of them")


@dataclass
class Progress:
    """What the loop tells its caller after a step."""

    step: int
    share: float
    loss: float
    steps_per_second: float
    val_psnr: float | None
    seconds_left: float


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
    except (tomllib.TOMLDecodeError, AttributeError) as error:
        raise ValueError(f"{path}: {error}; a change is written key.name=value, text in quotes") from None
    return _build(Recipe, table, str(path))


def _build(kind: type[T], table: dict[str, Any], where: str) -> T:
    hints = get_type_hints(kind)
    unknown = set(table) - set(hints)
    if unknown:
        raise ValueError(f"{where}: unknown key {sorted(unknown)[0]!r}; there are {', '.join(hints)}")
    values = {
        name: _build(hints[name], value, f"{where}, {name}")
        if is_dataclass(hints[name]) and isinstance(value, dict)
        else tuple(value)
        if isinstance(value, list)
        else value
        for name, value in table.items()
    }
    try:
        return kind(**values)
    except TypeError as error:
        raise ValueError(f"{where}: {error}") from None


def train(
    recipe: Recipe,
    run: Path,
    *,
    root: Path = Path(),
    device: str = "cpu",
    resume: bool = False,
    every: float = 120.0,
    report: Callable[[Progress], None] | None = None,
) -> Path:
    """Train as the recipe says and return the weight file, `run`/weights.safetensors.

    Data are looked for under `root`. Every `every` seconds the run is judged, logged and saved; with `resume` it
    goes on from the last save, bit for bit on a CPU. CUDA trains in bfloat16 and compiled, other devices in
    float32.
    """
    choice, optimizer = torch.device(device), recipe.optimizer
    state_file, log_file, weight_file = run / "state.pt", run / "log.jsonl", run / "weights.safetensors"
    if state_file.exists() and not resume:
        raise FileExistsError(f"{run} holds a run already: go on with --resume, or choose another folder")
    run.mkdir(parents=True, exist_ok=True)
    fast = choice.type == "cuda"
    if fast:
        torch.backends.cudnn.benchmark = True
        torch.set_float32_matmul_precision("high")

    tiles = data.load_tiles([root / name for name in recipe.data.train], size=recipe.data.tile).to(choice)
    judges = image.find(root / recipe.data.val)[: recipe.data.val_pictures] if recipe.data.val else []
    torch.manual_seed(optimizer.seed)
    network = weights.load(recipe.start) if recipe.start else Network(recipe.network)
    if network.config != recipe.network:
        raise ValueError(f"the recipe's network is not that of {recipe.start}, which it starts from")
    network = network.to(choice).train().requires_grad_(True)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch forgot this overload
    averaged = Network(network.config).to(choice).requires_grad_(False)
    averaged.load_state_dict(network.state_dict())
    adam = torch.optim.AdamW(
        network.parameters(), lr=0.0, betas=(0.9, 0.99), weight_decay=optimizer.decay, fused=fast
    )
    step, spent, usual = 0, 0.0, torch.zeros((), device=choice)
    if resume and state_file.exists():
        state = torch.load(state_file, map_location=choice, weights_only=True)
        network.load_state_dict(state["network"])
        averaged.load_state_dict(state["averaged"])
        adam.load_state_dict(state["adam"])
        step, spent, usual = state["step"], state["spent"], state["usual"]

    generator = torch.Generator(choice)

    def losses(uniform: Tensor, normal: Tensor) -> Tensor:
        levels = recipe.noise
        with torch.no_grad():
            batch = data.make_batch(
                tiles, uniform, normal, low=levels.low / 255, high=levels.high / 255, varying=levels.varying
            )
        with torch.autocast(choice.type, torch.bfloat16, enabled=fast):
            posterior: NormalInverseGamma = network(batch.mosaic)
        if recipe.loss.kind == "mse":
            return (posterior.loc - batch.target).square().mean()
        if recipe.loss.kind == "l1":
            return (posterior.loc - batch.target).abs().mean()
        with torch.no_grad():
            prior = loss.prior(
                batch.observed,
                batch.target,
                count=recipe.loss.count,
                window=recipe.loss.window,
                measured=recipe.loss.measured,
            )
        posterior = posterior.map(Tensor.float)
        if recipe.loss.gain:
            posterior = loss.precondition(
                posterior, prior, level=recipe.loss.level / 255, gain=recipe.loss.gain / recipe.loss.count
            )
        return -loss.elbo(posterior, prior, batch.observed, form=recipe.loss.form).mean()

    if fast:
        losses = torch.compile(losses)

    def save(val_psnr: float | None) -> None:
        final = averaged if optimizer.average else network
        card = weights.Card(
            network.config,
            recipe=asdict(recipe),
            results={"val_psnr": val_psnr} if val_psnr is not None else {},
            notes={
                "data": recipe.data.credits,
                "commit": _commit(),
                "device": torch.cuda.get_device_name() if fast else choice.type,
                "torch": torch.__version__,
                "steps": str(step),
                "minutes": f"{spent / 60:.1f}",
            },
        )
        with files.replace(state_file) as temporary:
            torch.save(
                {
                    "network": network.state_dict(),
                    "averaged": averaged.state_dict(),
                    "adam": adam.state_dict(),
                    "step": step,
                    "spent": spent,
                    "usual": usual,
                },
                temporary,
            )
        weights.save(final, weight_file, card)

    started, marked = time.monotonic() - spent, time.monotonic()
    first, pending = step, torch.zeros((), device=choice)
    while True:
        share = spent / (60 * optimizer.minutes) if optimizer.minutes else step / optimizer.steps
        if share >= 1:
            break
        # A cosine to zero, after a warm-up that at most takes a tenth of the run.
        ramp = min(1.0, (step + 1) / optimizer.warmup if optimizer.warmup else 1.0, 10 * share + 1e-3)
        for group in adam.param_groups:
            group["lr"] = optimizer.rate * ramp * 0.5 * (1 + cos(pi * share))
        generator.manual_seed((optimizer.seed << 32) + step)
        objective = losses(*data.draw(optimizer.batch, optimizer.patch, generator=generator))
        adam.zero_grad(set_to_none=True)
        objective.backward()  # type: ignore[no-untyped-call]
        usual = _clip(network, optimizer.clip, usual)
        adam.step()
        if optimizer.average:
            keep = min(optimizer.average, (step + 1) / (step + 10))
            update = get_ema_multi_avg_fn(keep)  # type: ignore[no-untyped-call]
            update(list(averaged.parameters()), list(network.parameters()), step)
        step += 1
        pending = pending + objective.detach()

        if not fast or step % 20 == 0:  # reading the clock of a queue that runs ahead means waiting for it
            if fast:
                torch.cuda.synchronize()
            spent = time.monotonic() - started
        last = spent >= 60 * optimizer.minutes if optimizer.minutes else step >= optimizer.steps
        due = time.monotonic() - marked >= every
        if last or due or step % 100 == 0:
            mean = float(pending) / (step - first)
            if not isfinite(mean):
                raise FloatingPointError(
                    f"the loss is not finite at step {step}; "
                    + (f"the last good state is {state_file}" if state_file.exists() else "nothing was saved yet")
                )
            speed = step / max(spent, 1e-9)
            left = 60 * optimizer.minutes - spent if optimizer.minutes else (optimizer.steps - step) / speed
            val_psnr = None
            if last or due:
                if judges:
                    val_psnr = _judge(averaged if optimizer.average else network, judges)
                save(val_psnr)
                line = {"step": step, "seconds": round(spent, 1), "loss": mean, "val_psnr": val_psnr}
                with log_file.open("a") as log:
                    log.write(json.dumps(line) + "\n")
                marked = time.monotonic()
            if report is not None:
                report(Progress(step, min(1.0, share), mean, speed, val_psnr, max(0.0, left)))
            first, pending = step, torch.zeros((), device=choice)
    return weight_file


def _clip(network: Network, limit: float, usual: Tensor) -> Tensor:
    """Scale the gradient so that its norm is at most `limit` times the usual one; the new usual one comes back.

    Losses differ in scale by orders of magnitude; a limit relative to the running mean fits all of them.
    """
    gradients = [p.grad for p in network.parameters() if p.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients)
    usual = torch.where(usual == 0, norm, usual + 0.01 * (torch.minimum(norm, 4 * usual) - usual))
    if limit:
        torch._foreach_mul_(gradients, (limit * usual / norm.clamp_min(1e-12)).clamp(max=1.0))
    return usual


def _judge(network: Network, pictures: list[Path]) -> float:
    """Mean PSNR over the validation pictures at sigma 5, 10 and 15."""
    network.eval()
    scores = evaluation.evaluate(network, pictures, (5.0, 10.0, 15.0))
    network.train()
    return sum(s.psnr for s in scores) / len(scores)


def _commit() -> str:
    """The commit of the code, where it lies in a repository."""
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()
