"""Training a network from a recipe: the loop, from the first batch to the weight file.

A run is a folder: `weights.safetensors` (what `network.weights.load` reads), `state.pt` (what `--resume` continues
from) and `log.jsonl`, a line every hundred steps or five seconds and at each save. The first two are written whole
or not at all.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

import torch
from torch import Tensor

from debayes.formats import pictures
from debayes.network import weights
from debayes.network.network import Network
from debayes.posterior.nig import whole
from debayes.system.errors import DebayesError
from debayes.system.log import log
from debayes.training import data, gradient_centralisation, losses, schedule, tiles, validation
from debayes.training.distributed import Processes
from debayes.training.progress import Progress, Report, append_line, cut_log, make_card, peak_memory
from debayes.training.recipe import Optimizer, Recipe
from debayes.training.state import State, load_state, save_state, start_state

# A line of the log is due after this many steps or seconds, whichever comes first.
LOG_EVERY, LOG_SECONDS = 100, 5.0

# Steps between two readings of the clock on CUDA, where a reading waits for the device.
CLOCK_EVERY = 20

# Patches of a batch that the activity of channels and the mean inputs of blocks are measured on.
MEASURED = 8

Objective = Callable[[Network, Recipe, Tensor, data.Draws], Tensor]


@dataclass(frozen=True)
class Setup:
    """What does not change during a run."""

    recipe: Recipe
    folder: Path
    processes: Processes
    store: tiles.Store
    buffer: tiles.TileBuffer
    val_pictures: list[Path]
    report: Report | None

    @property
    def state_file(self) -> Path:
        """What the run is resumed from."""
        return self.folder / "state.pt"


@dataclass(frozen=True)
class Due:
    """What is to be done after a step."""

    save: bool
    """Validate and save; true in the main process only."""
    plateau: bool
    """Validate for the plateau schedule."""
    shared: bool
    """Whether all processes have something to do; else the main process alone saves."""


def train(
    recipe: Recipe,
    run: Path,
    *,
    root: Path = Path(),
    processes: Processes | None = None,
    resume: bool = False,
    every: float = 120.0,
    stop: Callable[[], bool] | None = None,
    report: Report | None = None,
) -> Path:
    """Train as the recipe says and return the weight file, `run`/weights.safetensors.

    The recipe's paths are relative to `root`. Every `every` seconds the run is validated, logged and saved. With
    `resume` it continues from the last save, bit for bit on a CPU if its length is given in steps. CUDA trains in
    bfloat16 and compiled, other devices in float32 unless the recipe says otherwise. When `stop` returns true, the
    run is saved and ends. Call this in every process of `distributed.join`; the main process writes and reports.

    Examples:
        It takes as long as the recipe says:

        >>> import debayes
        >>> from pathlib import Path
        >>> recipe = debayes.read_recipe(Path("recipes/wild-s.toml"), ["optimizer.minutes=5"])
        >>> weights = debayes.train(recipe, Path("runs/mine"), root=Path("DATA"))  # doctest: +SKIP
    """
    processes = processes or Processes()
    device, plan = processes.device, recipe.optimizer
    _check(recipe, run, processes, resume)
    store = tiles.open_store(recipe, root)
    val_pictures = _val_pictures(recipe, root)
    with _fast_cuda(device):
        state = start_state(recipe, device) if not resume else load_state(run / "state.pt", recipe, device)
        buffer = tiles.TileBuffer(
            store, steps_per_block=recipe.data.steps_per_block, step=state.step, device=device
        )
        if resume and processes.is_main:
            cut_log(run / "log.jsonl", state.step)
        run.mkdir(parents=True, exist_ok=True)
        _train(Setup(recipe, run, processes, store, buffer, val_pictures, report), state, every, stop)
    if plan.minutes and processes.is_main:
        _warn_of_warmup(plan, state.step)
    return run / "weights.safetensors"


def _train(setup: Setup, state: State, every: float, stop: Callable[[], bool] | None) -> None:
    """The loop."""
    recipe, processes, buffer = setup.recipe, setup.processes, setup.buffer
    plan, device = recipe.optimizer, processes.device
    on_cuda = device.type == "cuda"
    loss_of = _compiled(buffer.tiles) if on_cuda else objective
    generator = torch.Generator(device)
    started, saved = time.monotonic() - state.seconds, time.monotonic()
    first_step, logged, loss_sum = state.step, state.seconds, torch.zeros((), device=device)
    while (share := schedule.progress_share(plan, state.step, state.seconds)) < 1:
        rate = schedule.learning_rate(plan, state.step, share, state.plateau)
        buffer.advance(state.step)
        draws = data.sample_draws(
            plan.batch,
            plan.patch,
            seed=plan.seed,
            step=state.step,
            generator=generator,
            raw=recipe.noise.domain == "raw",
        )
        if plan.centralise_every and state.step % plan.centralise_every == 0:
            _measure_input_means(state, processes, _some_mosaics(recipe, buffer.tiles, draws))
        loss_sum += take_step(state, recipe, rate, loss_of, buffer.tiles, draws, processes)
        stopped = False
        if not on_cuda or state.step % CLOCK_EVERY == 0 or state.step == plan.steps:
            if on_cuda:
                torch.cuda.synchronize()  # else the time of starting the kernels would be measured
            state.seconds = processes.broadcast_scalar(time.monotonic() - started)
            stopped = bool(processes.broadcast_scalar(stop is not None and stop()))
        last = stopped or schedule.progress_share(plan, state.step, state.seconds) >= 1
        due = _due(
            plan,
            state.step,
            last,
            save=processes.is_main and (last or time.monotonic() - saved >= every),
            silent=state.seconds - logged,
        )
        if due.save or due.shared:
            mean = (processes.average(loss_sum) if due.shared else float(loss_sum)) / (state.step - first_step)
            _check_finite(mean, state.step, setup.state_file)
            _validate_and_save(setup, state, due, mean, rate, draws)
            if due.save:
                saved = time.monotonic()
        if due.shared:
            first_step, logged, loss_sum = state.step, state.seconds, torch.zeros((), device=device)
        if stopped:
            break


def objective(network: Network, recipe: Recipe, tiles: Tensor, draws: data.Draws) -> Tensor:
    """The loss of a network on the batch that the draws make of the tiles."""
    with torch.no_grad():
        batch = data.make(recipe, tiles, draws)
    bfloat16 = tiles.is_cuda or recipe.optimizer.bfloat16
    with torch.autocast(tiles.device.type, torch.bfloat16, enabled=bfloat16):
        posterior = whole(network(batch.mosaic))
    return losses.batch_loss(recipe, posterior, batch)


def take_step(
    state: State,
    recipe: Recipe,
    rate: float,
    loss_of: Objective,
    tiles: Tensor,
    draws: data.Draws,
    processes: Processes,
) -> Tensor:
    """Take one step and return the loss before it."""
    plan, network = recipe.optimizer, state.network
    network.zero_grad(set_to_none=True)
    loss = loss_of(network, recipe, tiles, data.Draws(*map(processes.shard, draws)))
    torch.autograd.backward(loss)
    processes.average_gradients(network)
    gradient_centralisation.centralise_gradients(state.input_means)
    state.typical_grad_norm = clip_gradients(network, plan.clip, state.typical_grad_norm)
    responses = [mean.response() for mean in state.input_means]
    for optimizer, factor in zip(state.optimizers, (1.0, plan.muon), strict=False):
        for group in optimizer.param_groups:
            group["lr"] = rate * factor
        optimizer.step()
    gradient_centralisation.compensate_biases(state.input_means, responses)
    decay = min(plan.average, (state.step + 1) / (state.step + 10))
    with torch.no_grad():
        torch._foreach_lerp_(list(state.averaged.parameters()), list(network.parameters()), 1 - decay)
    state.step += 1
    return loss.detach()


def clip_gradients(network: Network, limit: float, typical: Tensor) -> Tensor:
    """Scale the gradients so that their norm is at most `limit` times the typical one; return the new typical one.

    The scale of losses differs by orders of magnitude; a limit relative to the running mean fits all of them.
    """
    gradients = [p.grad for p in network.parameters() if p.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients)
    typical = torch.where(typical == 0, norm, typical + 0.01 * (torch.minimum(norm, 4 * typical) - typical))
    if limit:
        torch._foreach_mul_(gradients, (limit * typical / norm.clamp_min(1e-12)).clamp(max=1.0))
    return typical


def _check(recipe: Recipe, run: Path, processes: Processes, resume: bool) -> None:
    """Raise if the run cannot start."""
    losses.find_loss(recipe.loss.kind)
    if run.exists() and not run.is_dir():
        raise FileExistsError(f"{run} is a file: give a folder for the run")
    has_state = (run / "state.pt").exists()
    if has_state and not resume:
        raise FileExistsError(f"{run} already contains a run: continue it with --resume, or choose another folder")
    if resume and not has_state:
        raise FileNotFoundError(f"{run} contains no run to resume: start it without --resume")
    plan = recipe.optimizer
    if plan.batch % processes.size:
        raise DebayesError(f"optimizer.batch ({plan.batch}) must be a multiple of the {processes.size} processes")
    if plan.steps and processes.is_main:
        _warn_of_warmup(plan, plan.steps)


def _warn_of_warmup(plan: Optimizer, steps: int) -> None:
    if plan.warmup > steps:
        log.warning(
            "the warm-up of %d steps is longer than the run of %d steps and was shortened to a tenth of it: "
            "set a smaller optimizer.warmup",
            plan.warmup,
            steps,
        )


def _val_pictures(recipe: Recipe, root: Path) -> list[Path]:
    """The validation pictures, each of which is read once, so that a damaged one is found before training."""
    if not recipe.data.val:
        return []
    paths = pictures.find(root / recipe.data.val)[: recipe.data.val_pictures]
    for path in paths:
        pictures.read(path)
    return paths


@contextmanager
def _fast_cuda(device: torch.device) -> Iterator[None]:
    """Let cuDNN choose its fastest algorithms and matrix products use TF32 on CUDA; restore both settings after."""
    if device.type != "cuda":
        yield
        return
    benchmark, precision = torch.backends.cudnn.benchmark, torch.get_float32_matmul_precision()
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = benchmark
        torch.set_float32_matmul_precision(precision)


def _compiled(tiles: Tensor) -> Objective:
    """The compiled `objective`, replayed as CUDA graphs.

    Launching the kernels of a step one by one takes longer than running them.
    """
    from torch._dynamo import mark_static_address  # no public function keeps CUDA graphs from copying an input

    mark_static_address(tiles)
    compiled: Objective = torch.compile(objective, mode="reduce-overhead")
    return compiled


def _some_mosaics(recipe: Recipe, tiles: Tensor, draws: data.Draws) -> Tensor:
    """The first mosaics of a step, the same in all processes."""
    return data.make(recipe, tiles, data.Draws(*(numbers[:MEASURED] for numbers in draws))).mosaic


def _measure_input_means(state: State, processes: Processes, mosaics: Tensor) -> None:
    state.input_means = gradient_centralisation.measure_input_means(state.network, mosaics)
    for mean in state.input_means:
        processes.broadcast(mean.mean)


def _due(plan: Optimizer, step: int, last: bool, *, save: bool, silent: float) -> Due:
    """`silent`: the seconds since the last line of the log, the same in all processes."""
    plateau = bool(plan.plateau) and step % plan.plateau == 0
    return Due(save, plateau, shared=last or plateau or step % LOG_EVERY == 0 or silent >= LOG_SECONDS)


def _check_finite(loss: float, step: int, state_file: Path) -> None:
    if not isfinite(loss):
        raise FloatingPointError(
            f"the loss is not finite at step {step}: lower optimizer.rate; "
            + (f"the last good state is {state_file}" if state_file.exists() else "nothing was saved yet")
        )


def _validate_and_save(setup: Setup, state: State, due: Due, loss: float, rate: float, draws: data.Draws) -> None:
    """Do what is due after a step; the main process logs and reports it."""
    recipe, processes = setup.recipe, setup.processes
    plan, is_main = recipe.optimizer, processes.is_main
    val_psnr = None
    if setup.val_pictures and is_main and (due.save or due.plateau):
        val_psnr = validation.validate(state.averaged, setup.val_pictures, domain=recipe.noise.domain)
    if due.plateau:
        state.plateau = state.plateau.after(processes.broadcast_scalar(val_psnr or 0.0), plan)
    if not is_main:
        return
    dead = None
    if due.save:
        mosaics = _some_mosaics(recipe, setup.buffer.tiles, draws)
        dead = gradient_centralisation.dead_share(state.averaged, mosaics)
    speed = state.step / max(state.seconds, 1e-9)
    left = 60 * plan.minutes - state.seconds if plan.minutes else (plan.steps - state.step) / speed
    progress = Progress(
        step=state.step,
        share=min(1.0, schedule.progress_share(plan, state.step, state.seconds)),
        loss=loss,
        rate=rate,
        steps_per_second=speed,
        seconds=state.seconds,
        seconds_left=max(0.0, left),
        memory=peak_memory(processes.device),
        val_psnr=val_psnr,
        dead_channels=dead,
    )
    if due.save:
        card = make_card(recipe, progress, setup.store.credits(), processes.device)
        weights.save(state.averaged, setup.folder / "weights.safetensors", card)
        save_state(state, recipe, setup.state_file)
    append_line(setup.folder / "log.jsonl", progress)
    if setup.report is not None:
        setup.report(progress)
