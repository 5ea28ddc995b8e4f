"""Reproducing the paper: an experiment of a name becomes a folder with its page, figures and numbers.

What an experiment computes is kept as it goes in NAME.parts.json, under keys that say what it was made of, so that
a run that was stopped goes on where it was.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from debayes.network import weights
from debayes.reproduction import figures, learning, pages, tables, visual
from debayes.reproduction.context import Bench
from debayes.reproduction.pages import Page
from debayes.system import files

EXPERIMENTS: dict[str, Callable[[Bench], Page]] = {
    "table1": tables.table1,
    "table2": tables.table2,
    "table3": tables.table3,
    "finetuning": learning.finetuning,
    "overfitting": learning.overfitting,
    "mask": visual.mask,
    "noise-map": visual.noise_map,
    "visual": visual.visual,
}


def check(name: str, models: Sequence[str] = ()) -> list[str]:
    """The experiments of a name, which may be `all`; raises now what they would raise later."""
    figures.check()
    for model in models:
        weights.locate(model)
    if name != "all" and name not in EXPERIMENTS:
        raise ValueError(f"there is no experiment {name!r}: there are {', '.join(EXPERIMENTS)} and all")
    return list(EXPERIMENTS) if name == "all" else [name]


def reproduce(
    name: str,
    folder: Path,
    *,
    models: Sequence[str] = ("wild-s",),
    root: Path | None = None,
    quick: bool = False,
    device: str = "cpu",
    progress: Callable[[float], None] | None = None,
) -> Page:
    """Run one experiment and write NAME.html, NAME.json and its figures to the folder, which exists.

    `root` is where the sets of pictures lie. An index of all experiments in the folder is brought up to date.
    """
    (name,) = check(name, models)
    networks = {Path(model).stem: weights.load(model, device=device) for model in models}
    used = [*models, *(("paper", "paper-mse") if name == "table3" else ())]
    made_of = [hashlib.sha256(weights.locate(model).read_bytes()).hexdigest()[:12] for model in used]
    memory = Memory(folder / f"{name}.parts.json", " ".join([*made_of, "quick" if quick else "whole"]))
    bench = Bench(networks, root, quick, memory.remember, progress or (lambda share: None))
    page = EXPERIMENTS[name](bench)
    for key, (figure, _) in page.figures.items():
        figures.draw(figure, folder / pages.figure_file(name, key, figure))
    record = {"title": page.title, "quick": quick, "finding": page.finding, "missing": page.missing, **page.data}
    files.write_text(folder / f"{name}.json", files.to_json(record, indent=1))
    files.write_text(folder / f"{name}.html", pages.render(page, name, note=bench.note))
    write_index(folder)
    return page


def write_index(folder: Path) -> Path:
    """Write index.html, which leads to the experiments whose pages are in the folder."""
    entries = {}
    for name in EXPERIMENTS:
        if (folder / f"{name}.json").is_file() and (folder / f"{name}.html").is_file():
            record = json.loads((folder / f"{name}.json").read_text())
            title = record["title"] + " (quick)" * record.get("quick", False)
            entries[name] = (title, " ".join([*record["finding"], *record["missing"]]))
    path = folder / "index.html"
    files.write_text(path, pages.render_index(entries, "Wild-JDD, reproduced by debayes"))
    return path


class Memory:
    """What was computed, by key, in a file that is written whole after each new one."""

    def __init__(self, path: Path, made_of: str) -> None:
        self._path, self._made_of = path, made_of
        self._kept: dict[str, Any] = {}
        with suppress(ValueError):  # damaged: computed again
            self._kept = dict(json.loads(path.read_text())) if path.exists() else {}

    def remember(self, key: str, compute: Callable[[], Any]) -> Any:
        """What was kept under the key and what it is made of; computed and kept if there is nothing."""
        key = f"{self._made_of} {key}"
        if key not in self._kept:
            self._kept[key] = compute()
            files.write_text(self._path, files.to_json(self._kept))
        return self._kept[key]
