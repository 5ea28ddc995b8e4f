"""Training a network from a recipe: one loop, from the first batch to the weight file.

A run is a folder: `weights.safetensors` (what `load` reads) and `state.pt` (what `--resume` goes on from), each
written whole or not at all, and `log.jsonl`, a line a save.
"""

import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from io import BytesIO
from math import cos, isfinite, pi
from pathlib import Path

import torch
from torch import Tensor
from torch.optim.swa_utils import get_ema_multi_avg_fn

from debayes import data, evaluation, files, image, loss, weights
from debayes.model import Network
from debayes.nig import NormalInverseGamma
from debayes.recipe import Recipe


@dataclass
class Progress:
    """What the loop tells its caller after a step."""

    step: int
    share: float
    loss: float
    steps_per_second: float
    val_psnr: float | None
    seconds_left: float


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
    goes on from the last save, bit for bit on a CPU if the length is in steps. CUDA trains in bfloat16 and
    compiled, other devices in float32.
    """
    choice, optimizer = torch.device(device), recipe.optimizer
    state_file, log_file, weight_file = run / "state.pt", run / "log.jsonl", run / "weights.safetensors"
    if state_file.exists() and not resume:
        raise FileExistsError(f"{run} holds a run already: go on with --resume, or choose another folder")
    fast = choice.type == "cuda"
    if fast:
        torch.backends.cudnn.benchmark = True
        torch.set_float32_matmul_precision("high")

    tiles = data.load_tiles([root / name for name in recipe.data.train], size=recipe.data.tile).to(choice)
    judges = image.find(root / recipe.data.val)[: recipe.data.val_pictures] if recipe.data.val else []
    run.mkdir(parents=True, exist_ok=True)
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
        try:
            state = torch.load(state_file, map_location=choice, weights_only=True)
        except Exception as error:  # torch has many for a damaged file
            raise ValueError(f"{state_file} cannot be read ({type(error).__name__}): start a new run") from None
        if state["recipe"] != json.dumps(asdict(recipe)):
            raise ValueError(f"{run} was started with another recipe: resume it with that one, or start a new run")
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
        state = {
            "recipe": json.dumps(asdict(recipe)),
            "network": network.state_dict(),
            "averaged": averaged.state_dict(),
            "adam": adam.state_dict(),
            "step": step,
            "spent": spent,
            "usual": usual,
        }
        with files.replace(state_file) as temporary, temporary.open("wb") as file:
            buffer = BytesIO()  # torch.save to a full disk raises no OSError
            torch.save(state, buffer)
            file.write(buffer.getbuffer())
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
            share = spent / (60 * optimizer.minutes) if optimizer.minutes else step / optimizer.steps
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
