"""What a training run reports: its progress, its log file, and the card of its weights."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from debayes.network import weights
from debayes.system import files
from debayes.training.recipe import Recipe
from debayes.training.tiles import Credits


@dataclass(frozen=True)
class Progress:
    """What the caller is told every hundred steps or five seconds, and whenever the run is saved."""

    step: int
    share: float
    """How much of the run is done, 0 to 1."""
    loss: float
    """Its mean over the steps since the last report, at most a hundred."""
    rate: float
    """The learning rate."""
    steps_per_second: float
    seconds: float
    """Since the start."""
    seconds_left: float
    memory: float
    """The peak memory use so far, in GiB: of the GPU if the run is on one."""
    val_psnr: float | None
    """In dB, where the run was validated."""
    dead_channels: float | None
    """The share of hidden channels that are 0 everywhere, where the run was saved."""


Report = Callable[[Progress], None]


def append_line(log_file: Path, progress: Progress) -> None:
    """Add a line to the log of a run."""
    with log_file.open("a") as lines:
        lines.write(json.dumps(asdict(progress)) + "\n")


def cut_log(log_file: Path, step: int) -> None:
    """Remove the lines after a step, from which the run is resumed, and an unfinished line."""
    kept = []
    for line in log_file.read_text().splitlines() if log_file.exists() else []:
        try:
            if json.loads(line)["step"] <= step:
                kept.append(line)
        except json.JSONDecodeError:
            break
    if kept:
        files.write_text(log_file, "\n".join(kept))
    else:
        log_file.unlink(missing_ok=True)


def make_card(recipe: Recipe, progress: Progress, credits: Credits, device: torch.device) -> weights.Card:
    """What a weight file says about its training."""
    notes = {
        "data": "; ".join(filter(None, (str(credits), recipe.data.credits))),
        "licences": json.dumps(credits.licences),
        "commit": _commit(),
        "device": torch.cuda.get_device_name() if device.type == "cuda" else device.type,
        "torch": torch.__version__,
        "steps": str(progress.step),
        "minutes": f"{progress.seconds / 60:.1f}",
    }
    results = {"val_psnr": progress.val_psnr} if progress.val_psnr is not None else {}
    return weights.Card(recipe.network, recipe=asdict(recipe), results=results, notes=notes)


def peak_memory(device: torch.device) -> float:
    """The most memory that was in use so far, in GiB."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    if sys.platform == "win32":
        return 0.0  # Windows does not count it
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**30 if sys.platform == "darwin" else 2**20)


def _commit() -> str:
    """The commit of the code, if it is in a repository."""
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()
