"""The curves of training runs, read from their logs and plotted side by side."""

import json
from pathlib import Path
from typing import Any

from debayes.system import files
from debayes.system.errors import DebayesError

Line = dict[str, Any]


def read_logs(folder: Path) -> dict[str, list[Line]]:
    """The logged lines of all runs in a folder, or of the run that it is, by the run's name."""
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}")
    logs = sorted(folder.rglob("log.jsonl"))
    runs = {}
    for log in logs:
        lines = []
        for text in log.read_text().splitlines():
            try:
                lines.append(json.loads(text))
            except json.JSONDecodeError:
                continue  # a killed run may leave half a line
        if any(key not in line for line in lines for key in ("step", "seconds", "loss", "val_psnr")):
            raise DebayesError(
                f"{log} is not the log of a run: lines with step, seconds, loss and val_psnr were expected"
            )
        if lines:
            name = log.parent.relative_to(folder).as_posix()
            runs[folder.resolve().name if name == "." else name] = lines
    if not runs:
        raise DebayesError(f"the folder {folder} holds no run: `debayes train` makes one, with a log.jsonl in it")
    return runs


def best(lines: list[Line]) -> str:
    """The best and the last PSNR of a run, as text."""
    values = [line["val_psnr"] for line in lines if line["val_psnr"] is not None]
    return f"{values[-1]:.2f} dB (best {max(values):.2f})" if values else "not validated"


def plot(runs: dict[str, list[Line]], path: Path) -> None:
    """Draw loss, validation PSNR and learning rate of runs over their steps."""
    try:
        import matplotlib.figure
    except ModuleNotFoundError:
        raise ModuleNotFoundError('plotting runs needs matplotlib: pip install "debayes[watch]"') from None
    if path.suffix.lower() not in (".png", ".svg"):
        raise DebayesError(f"{path}: curves are plotted as .png or .svg")
    figure = matplotlib.figure.Figure(figsize=(15, 4.5), layout="constrained")
    panels = (("loss", "loss"), ("val_psnr", "validation PSNR, dB"), ("rate", "learning rate"))
    for axes, (key, title) in zip(figure.subplots(1, 3), panels, strict=True):
        for name, lines in runs.items():
            points = [(line["step"], line[key]) for line in lines if line.get(key) is not None]
            axes.plot([step for step, _ in points], [value for _, value in points], marker=".", label=name)
        axes.set(title=title, xlabel="step")
        if key == "loss" and all(line["loss"] > 0 for lines in runs.values() for line in lines):
            axes.set_yscale("log")  # losses of different kinds differ by orders of magnitude
        axes.grid(alpha=0.3)
    if len(runs) > 1:
        figure.axes[0].legend(fontsize="small")
    with files.replace(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:].lower(), dpi=120)
