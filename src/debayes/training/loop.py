"""Training a network from a recipe: one loop, from the first batch to the weight file.

A run is a folder: `weights.safetensors` (what `load` reads) and `state.pt` (what `--resume` goes on from), each
written whole or not at all, and `log.jsonl`, a line every hundred steps and at each save.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from io import BytesIO
from math import inf, isfinite
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._dynamo import mark_static_address

from debayes.formats import pictures
from debayes.network import weights
from debayes.network.blocks import to_channels_last
from debayes.network.config import Config
from debayes.network.network import Network, blocks
from debayes.posterior.nig import NormalInverseGamma
from debayes.system import files
from debayes.training import data, gradient_centralisation, losses, tiles, validation
from debayes.training.distributed import Team
from debayes.training.muon import Muon, filter_banks
from debayes.training.recipe import Optimizer, Recipe

# Patches of a batch at which the hidden channels are looked at.
LOOK = 8

# What state.pt holds.
STATE = {"recipe", "network", "averaged", "optimizers", "middles", "step", "spent", "usual", "best", "scale"}


@dataclass(frozen=True)
class Progress:
    """What the loop tells its caller every hundred steps and at each save."""

    step: int
    share: float
    """How much of the run is done, 0 to 1."""
    loss: float
    """Its mean over the last steps, up to a hundred."""
    rate: float
    """The learning rate."""
    steps_per_second: float
    seconds: float
    """Since the start."""
    seconds_left: float
    memory: float
    """The most memory used so far, in GiB; the device's if it has its own."""
    val_psnr: float | None
    """In dB, where the run was judged."""
    silent: float | None
    """The share of hidden channels that do nothing: capacity that is lost; where the run was saved."""


def train(
    recipe: Recipe,
    run: Path,
    *,
    root: Path = Path(),
    team: Team | None = None,
    resume: bool = False,
    every: float = 120.0,
    stop: Callable[[], bool] | None = None,
    report: Callable[[Progress], None] | None = None,
) -> Path:
    """Train as the recipe says and return the weight file, `run`/weights.safetensors.

    Data are looked for under `root`. Every `every` seconds the run is judged, logged and saved; with `resume` it
    goes on from the last save, bit for bit on a CPU if the length is in steps. CUDA trains in bfloat16 and
    compiled, other devices in float32 unless the recipe says otherwise. When `stop` says so, the run is saved and
    left. Of a team, each process calls this; the leader writes and reports.
    """
    team = team or Team()
    device, optimizer = team.device, recipe.optimizer
    state_file, log_file, weight_file = run / "state.pt", run / "log.jsonl", run / "weights.safetensors"
    if state_file.exists() and not resume:
        raise FileExistsError(f"{run} holds a run already: go on with --resume, or choose another folder")
    if resume and not state_file.exists():
        raise FileNotFoundError(f"{run} holds no run to go on with: start it without --resume")
    if run.exists() and not run.is_dir():
        raise FileExistsError(f"{run} is a file: give a folder for the run")
    if optimizer.batch % team.size:
        raise ValueError(f"optimizer.batch ({optimizer.batch}) must be a multiple of the {team.size} processes")
    fast = device.type == "cuda"
    if fast:
        torch.backends.cudnn.benchmark = True
        torch.set_float32_matmul_precision("high")

    sources = [root / name for name in recipe.data.train]
    store = tiles.Store(sources, size=recipe.data.tile, hold=recipe.data.hold, seed=optimizer.seed)
    judges = pictures.find(root / recipe.data.val)[: recipe.data.val_pictures] if recipe.data.val else []
    for path in judges:
        pictures.read(path)  # what is wrong with a picture is said now, not after hours
    torch.manual_seed(optimizer.seed)
    network = Network(recipe.network)
    if recipe.start:
        _start_from(recipe.start, network)
    to_channels_last(network).to(device).train()
    averaged = deepcopy(network).requires_grad_(False)
    optimizers = _optimizers(network, optimizer)
    step, spent, usual = 0, 0.0, torch.zeros((), device=device)
    middles: list[gradient_centralisation.Middle] = []
    best, scale = -inf, 1.0  # of the plateau schedule: the best PSNR, and what is left of the rate
    if resume:
        state = _read_state(state_file, recipe, device)
        network.load_state_dict(state["network"])
        averaged.load_state_dict(state["averaged"])
        for each, saved in zip(optimizers, state["optimizers"], strict=True):
            each.load_state_dict(saved)
        step, spent, usual = state["step"], state["spent"], state["usual"]
        best, scale = state["best"], state["scale"]
        if state["middles"]:
            middles = list(map(gradient_centralisation.Middle, blocks(network).values(), state["middles"]))
        if team.leads:
            _cut_log(log_file, step)
    shelf = tiles.Shelf(store, stay=recipe.data.stay, step=step, device=device)
    generator = torch.Generator(device)
    raw = recipe.noise.domain == "raw"

    def look() -> Tensor:
        """Some mosaics of this step, the same in all processes of a team."""
        return data.make(recipe, shelf.tiles, *(numbers[:LOOK] for numbers in drawn)).mosaic

    def loss_of(uniform: Tensor, normal: Tensor) -> Tensor:
        with torch.no_grad():
            batch = data.make(recipe, shelf.tiles, uniform, normal)
        with torch.autocast(device.type, torch.bfloat16, enabled=fast or optimizer.bfloat16):
            posterior: NormalInverseGamma = network(batch.mosaic)
        return losses.batch_loss(recipe, posterior, batch)

    if fast:
        # Replayed as CUDA graphs: launched one by one, the kernels of a step take longer to start than to run.
        mark_static_address(shelf.tiles)
        loss_of = torch.compile(loss_of, mode="reduce-overhead")

    def save(at: Progress) -> None:
        notes = {
            "data": recipe.data.credits,
            "licences": json.dumps(tiles.licences(sources)),
            "commit": _commit(),
            "device": torch.cuda.get_device_name() if fast else device.type,
            "torch": torch.__version__,
            "steps": str(step),
            "minutes": f"{spent / 60:.1f}",
        }
        results = {"val_psnr": at.val_psnr} if at.val_psnr is not None else {}
        card = weights.Card(network.config, recipe=asdict(recipe), results=results, notes=notes)
        state = {
            "recipe": json.dumps(asdict(recipe)),
            "network": network.state_dict(),
            "averaged": averaged.state_dict(),
            "optimizers": [each.state_dict() for each in optimizers],
            "middles": [middle.mean for middle in middles],
            "step": step,
            "spent": spent,
            "usual": usual,
            "best": best,
            "scale": scale,
        }
        weights.save(averaged, weight_file, card)
        with files.replace(state_file) as temporary, temporary.open("wb") as file:
            buffer = BytesIO()  # torch.save to a full disk raises no OSError
            torch.save(state, buffer)
            file.write(buffer.getbuffer())

    run.mkdir(parents=True, exist_ok=True)
    started, marked = time.monotonic() - spent, time.monotonic()
    first, pending = step, torch.zeros((), device=device)
    while True:
        share = spent / (60 * optimizer.minutes) if optimizer.minutes else step / optimizer.steps
        if share >= 1:
            break
        # A straight line to zero, or steps down at plateaus; after a warm-up that at most takes a tenth of the run.
        ramp = min(1.0, max((step + 1) / optimizer.warmup, 10 * share)) if optimizer.warmup else 1.0
        level = max(scale, optimizer.floor / optimizer.rate) if optimizer.plateau else 1 - share
        rate = optimizer.rate * ramp * level
        for each, times in zip(optimizers, (1.0, optimizer.muon), strict=False):
            for group in each.param_groups:
                group["lr"] = rate * times
        shelf.turn(step)
        drawn = data.draw(
            optimizer.batch, optimizer.patch, seed=optimizer.seed, step=step, generator=generator, raw=raw
        )
        if optimizer.centre and step % optimizer.centre == 0:
            middles = gradient_centralisation.find_middles(network, look())
            for middle in middles:
                team.follow(middle.mean)
        network.zero_grad(set_to_none=True)
        objective = loss_of(*map(team.part, drawn))
        torch.autograd.backward(objective)
        team.average_gradients(network)
        gradient_centralisation.centre_gradients(middles)
        usual = _clip(network, optimizer.clip, usual)
        levels = [middle.response() for middle in middles]
        for each in optimizers:
            each.step()
        gradient_centralisation.keep_levels(middles, levels)
        keep = min(optimizer.average, (step + 1) / (step + 10))
        with torch.no_grad():
            torch._foreach_lerp_(list(averaged.parameters()), list(network.parameters()), 1 - keep)
        step += 1
        pending = pending + objective.detach()

        stopped = False
        if not fast or step % 20 == 0 or step == optimizer.steps:
            if fast:
                torch.cuda.synchronize()  # the clock of a queue that runs ahead says nothing
            spent = team.agree(time.monotonic() - started)
            stopped = bool(team.agree(stop is not None and stop()))
        last = stopped or (spent >= 60 * optimizer.minutes if optimizer.minutes else step >= optimizer.steps)
        due = team.leads and time.monotonic() - marked >= every
        judged = bool(optimizer.plateau) and step % optimizer.plateau == 0
        if not (last or due or judged or step % 100 == 0):
            continue
        # Of a team, the others only come here together: for the mean loss, and for the PSNR at a plateau.
        together = last or judged or step % 100 == 0
        mean = (team.average(pending) if together else float(pending)) / (step - first)
        if not isfinite(mean):
            raise FloatingPointError(
                f"the loss is not finite at step {step}; "
                + (f"the last good state is {state_file}" if state_file.exists() else "nothing was saved yet")
            )
        val_psnr = None
        if judges and team.leads and (last or due or judged):
            val_psnr = (validation.judge_raw if raw else validation.judge)(averaged, judges)
        if judged:
            found = team.agree(val_psnr or 0.0)
            scale = scale if found > best else max(scale * optimizer.factor, optimizer.floor / optimizer.rate)
            best = max(best, found)
        speed = step / max(spent, 1e-9)
        left = 60 * optimizer.minutes - spent if optimizer.minutes else (optimizer.steps - step) / speed
        share = spent / (60 * optimizer.minutes) if optimizer.minutes else step / optimizer.steps
        at = Progress(
            step=step,
            share=min(1.0, share),
            loss=mean,
            rate=rate,
            steps_per_second=speed,
            seconds=spent,
            seconds_left=max(0.0, left),
            memory=_memory(device),
            val_psnr=val_psnr,
            silent=gradient_centralisation.silent_share(averaged, look()) if team.leads and (last or due) else None,
        )
        if team.leads and (last or due):
            save(at)
            marked = time.monotonic()
        if team.leads:
            with log_file.open("a") as log:
                log.write(json.dumps(asdict(at)) + "\n")
            if report is not None:
                report(at)
        if together:
            first, pending = step, torch.zeros((), device=device)
        if stopped:
            break
    return weight_file


def _start_from(model: str, network: Network) -> None:
    """Give a network the weights of another, which may have fewer blocks: those more at the ends of its stacks do
    nothing before they learn. What `calibration` made of the other's doubt is learnt anew."""
    try:
        weights.locate(model)
    except ValueError:
        raise ValueError(
            f"the recipe starts from {model}, which is not there: its first lines say what gives it, or start from "
            'nothing with --set start=""'
        ) from None
    start = weights.load(model, calibrated=False)
    given, wanted = start.state_dict(), network.state_dict()
    new = tuple(f"{name}." for name in set(blocks(network)) - set(blocks(start)))
    alike = {name for name in wanted if not name.startswith(new)} == set(given)
    same = _without_blocks(start.config) == _without_blocks(network.config)
    if not (same and alike and all(wanted[name].shape == given[name].shape for name in given)):
        ours, theirs = (json.loads(json.dumps(asdict(each.config))) for each in (network, start))
        differences = "; ".join(
            f"{key} = {value} there, {ours[key]} here" for key, value in theirs.items() if value != ours[key]
        )
        raise ValueError(
            f"the recipe's network is not that of {model}, which it starts from, nor that with more blocks "
            f"({differences}): set the same under [network], `hidden` too"
        )
    network.load_state_dict(wanted | given)


def _without_blocks(config: Config) -> Config:
    return replace(config, blocks=1, bottom_blocks=1, tail_blocks=1, hidden=())


def _optimizers(network: Network, plan: Optimizer) -> list[torch.optim.Optimizer]:
    """AdamW, and beside it Muon for the filter banks if the recipe asks for it."""
    banks = filter_banks(network) if plan.muon else []
    chosen = {id(bank) for bank in banks}
    others = [p for p in network.parameters() if id(p) not in chosen]
    biases = {"params": [p for p in others if p.ndim == 1], "weight_decay": 0.0}
    filters = {"params": [p for p in others if p.ndim > 1], "weight_decay": plan.decay}
    fused = network.device.type == "cuda"
    adam = torch.optim.AdamW([filters, biases], lr=0.0, betas=(0.9, 0.99), fused=fused)
    return [adam, Muon(banks, lr=0.0, weight_decay=plan.decay)] if banks else [adam]


def _read_state(file: Path, recipe: Recipe, device: torch.device) -> dict[str, Any]:
    """What a run saved of itself, if it was started with this recipe."""
    try:
        state: dict[str, Any] = torch.load(file, map_location=device, weights_only=True)
    except Exception as error:  # torch has many for a damaged file
        raise ValueError(f"{file} cannot be read ({type(error).__name__}): start a new run") from None
    if not isinstance(state, dict) or set(state) != STATE:
        raise ValueError(f"{file} is not what a run of this version saved: start a new run")
    if state["recipe"] != json.dumps(asdict(recipe)):
        raise ValueError(f"{file.parent} was started with another recipe: resume it with that one, or start anew")
    return state


def _cut_log(file: Path, step: int) -> None:
    """Remove what a run logged after the step that it goes on from, and a line that it did not finish."""
    kept = []
    for line in file.read_text().splitlines() if file.exists() else []:
        try:
            if json.loads(line)["step"] <= step:
                kept.append(line)
        except ValueError:
            break
    files.write_text(file, "\n".join(kept))


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


def _memory(device: torch.device) -> float:
    """The most memory that was in use so far, in GiB."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    if sys.platform == "win32":
        return 0.0  # Windows has no such count
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**30 if sys.platform == "darwin" else 2**20)


def _commit() -> str:
    """The commit of the code, where it lies in a repository."""
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()
