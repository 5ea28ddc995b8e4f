"""Reproducing the paper: each experiment writes a page, its figures and its numbers to a folder.

Intermediate results are stored in NAME.parts.json, under keys that identify the weights they were computed with, so
that an interrupted run continues where it stopped.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from debayes.evaluation import msr
from debayes.network import weights
from debayes.reproduction import figures, learning, pages, tables, visual
from debayes.reproduction.context import Context, set_folders, where_to_get
from debayes.reproduction.pages import Page
from debayes.system import files
from debayes.system.errors import DebayesError
from debayes.system.log import log

EXPERIMENTS: dict[str, Callable[[Context], Page]] = {
    "table1": tables.table1,
    "table2": tables.table2,
    "table3": tables.table3,
    "finetuning": learning.finetuning,
    "overfitting": learning.overfitting,
    "mask": visual.finetuning_mask,
    "noise-map": visual.noise_map,
    "visual": visual.details,
}


# The experiments that have no results without any of these sets; the others use free photographs instead.
NEEDED_SETS: dict[str, tuple[str, ...]] = {"table1": tables.SETS, "table2": ("msr",), "table3": tables.LOSS_SETS}


def check_request(name: str, models: Sequence[str] = (), root: Path | None = None) -> list[str]:
    """The experiments of a name, which may be `all`; raises if the name, a model or matplotlib is missing.

    An experiment without any of its picture sets below `root` raises too; `all` leaves it out and warns.
    """
    figures.check_matplotlib()
    for model in models:
        weights.locate(model)
    if name != "all" and name not in EXPERIMENTS:
        raise DebayesError(f"there is no experiment {name!r}: use one of {', '.join(EXPERIMENTS)} or all")
    wanted = list(EXPERIMENTS) if name == "all" else [name]
    without = [wish for wish in wanted if wish in NEEDED_SETS and not _has_a_set(NEEDED_SETS[wish], root)]
    if not without:
        return wanted
    names = dict.fromkeys(data for wish in without for data in NEEDED_SETS[wish])
    place = f"{root}/bench" if root is not None else "DEBAYES_DATA/bench (or give --data)"
    what = f"no set of pictures for {', '.join(without)}: put a folder under {place}. {where_to_get(list(names))}"
    if name != "all":
        raise DebayesError(f"there is {what}")
    log.warning("left out, there is %s", what)
    return [wish for wish in wanted if wish not in without]


def _has_a_set(names: Sequence[str], root: Path | None) -> bool:
    """Whether at least one of the sets is there."""
    return any(name != "msr" or msr.locate(folder) for name in names for folder in set_folders(root, name))


def reproduce(
    name: str,
    folder: Path,
    *,
    models: Sequence[str] = ("wild-s",),
    root: Path | None = None,
    quick: bool = False,
    device: str = "cpu",
    progress: Callable[[float], None] | None = None,
    report: Callable[[str], None] | None = None,
) -> Page:
    """Run one experiment and write NAME.html, NAME.json and its figures to an existing folder.

    `root` is the folder of the picture sets. The index page of the folder is updated. `report` is given a line for
    each row of a table when it is computed.
    """
    (name,) = check_request(name, models, root)
    networks = {Path(model).stem: weights.load(model, device=device) for model in models}
    used = [*models, *(("paper", "paper-mse") if name == "table3" else ())]
    hashes = [hashlib.sha256(weights.locate(model).read_bytes()).hexdigest()[:12] for model in used]
    cache = ResultCache(folder / f"{name}.parts.json", " ".join([*hashes, "quick" if quick else "full"]))
    nothing: Callable[[object], None] = lambda _: None  # noqa: E731
    context = Context(networks, root, quick, cache.cached, progress or nothing, report or nothing)
    page = EXPERIMENTS[name](context)
    for note in page.missing:
        log.info("%s: %s", name, note)
    for key, (figure, _) in page.figures.items():
        figures.plot_figure(figure, folder / pages.figure_file(name, key, figure))
    record = {"title": page.title, "quick": quick, "finding": page.finding, "missing": page.missing, **page.data}
    files.write_text(folder / f"{name}.json", files.to_json(record, indent=1))
    files.write_text(folder / f"{name}.html", pages.render(page, name, note=context.quick_note))
    write_index(folder)
    return page


def write_index(folder: Path) -> Path:
    """Write index.html with links to the experiments whose pages are in the folder."""
    entries = {}
    for name in EXPERIMENTS:
        if (folder / f"{name}.json").is_file() and (folder / f"{name}.html").is_file():
            record = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
            title = record["title"] + " (quick)" * record.get("quick", False)
            entries[name] = (title, " ".join([*record["finding"], *record["missing"]]))
    path = folder / "index.html"
    files.write_text(path, pages.render_index(entries, "Wild-JDD, reproduced by debayes"))
    return path


class ResultCache:
    """Results by key, in a JSON file that is rewritten after each new one."""

    def __init__(self, path: Path, source: str) -> None:
        """`source` identifies what the results are computed from; results of another source are not used."""
        self._path, self._source = path, source
        self._results: dict[str, Any] = {}
        with suppress(json.JSONDecodeError, UnicodeDecodeError):  # a damaged file: everything is computed again
            self._results = dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}

    def cached(self, key: str, compute: Callable[[], Any]) -> Any:
        """The result stored under the key and source; computed and stored if there is none."""
        key = f"{self._source} {key}"
        if key not in self._results:
            self._results[key] = compute()
            files.write_text(self._path, files.to_json(self._results))
        return self._results[key]
