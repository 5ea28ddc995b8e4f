"""What `debayes evaluate` does: finds pictures and methods, scores each method with a progress bar, prints tables.

This module imports PyTorch, so commands import it when they run. Tested in tests/cli/test_cli.py.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import typer
from torch import Tensor

from debayes.cli.options import find_device
from debayes.cli.terminal import progress_bar
from debayes.darkroom import domain, loop
from debayes.darkroom.canvas import FloatCanvas
from debayes.engine import Engine, prepare
from debayes.evaluation import iso as virtual_iso
from debayes.evaluation import msr, protocol, published, reports
from debayes.evaluation.baselines import Baseline
from debayes.evaluation.iso import Developer, IsoScore
from debayes.evaluation.moire import DetailScore, compare_zone_plates, evaluate_moire
from debayes.evaluation.msr import Pair, PairScore
from debayes.evaluation.plain_colors import Residual, evaluate_plain_colors
from debayes.evaluation.protocol import Score
from debayes.formats import pictures as picture_files
from debayes.formats.raw import Raw
from debayes.imaging.virtual_camera import Body
from debayes.network.weights import load
from debayes.system import files
from debayes.system.errors import DebayesError

# Methods by name, each with whether to average over the symmetries.
Methods: TypeAlias = dict[str, tuple[Engine | Baseline, bool]]


@dataclass(frozen=True)
class Request:
    """What one call of `debayes evaluate` scores methods on."""

    folders: dict[str, list[Path]]
    """The pictures of each folder."""
    pairs: dict[str, list[Pair]]
    """The pairs of each folder that has the layout of the MSR set."""
    patterns: list[str]
    sigmas: list[float]
    """Noise levels, in units of 1/255."""
    isos: list[float]
    """If there are any, pictures are photographed at these ISO speeds instead of `sigmas`."""
    doubt: bool
    plain_colors: bool
    moire: bool

    @property
    def sets(self) -> list[reports.Set]:
        """Every folder of pictures with every pattern."""
        return [(folder, pattern) for folder in self.folders for pattern in self.patterns]

    @property
    def whole_msr(self) -> bool:
        """Whether every MSR set is whole, so that its published rows can stand beside the scores."""
        return all(map(msr.is_whole, self.pairs.values()))


@dataclass(frozen=True)
class Results:
    """What was measured; empty where nothing was asked for. `tables` adds to it."""

    pictures: dict[tuple[str, str, str], list[Score]] = field(default_factory=dict)
    iso: dict[tuple[str, str, str], list[IsoScore]] = field(default_factory=dict)
    msr: dict[tuple[str, str], list[PairScore]] = field(default_factory=dict)
    plain_colors: dict[str, list[Residual]] = field(default_factory=dict)
    moire: dict[str, list[DetailScore]] = field(default_factory=dict)


def tables(request: Request, methods: Methods, results: Results) -> Iterator[Iterator[str]]:
    """The lines of each table. A method is scored when its line is taken; its scores are added to the results."""
    sets = request.sets
    if sets and request.isos:
        yield reports.iso_lines(_score_iso(request, methods, results), sets, request.isos)
    elif sets:
        yield reports.score_lines(_score(request, methods, results), sets, request.sigmas)
        if request.doubt:
            yield reports.doubt_lines(results.pictures, request.sigmas)
    if pairs := request.pairs:
        yield reports.msr_lines(_score_msr(request, methods, results), list(pairs), compare=request.whole_msr)
    if request.plain_colors:
        yield reports.plain_colors_lines(_score_plain_colors(methods, results))
    if request.moire:
        yield reports.moire_lines(_score_moire(request, methods, results))


def print_tables(tables: Iterable[Iterable[str]]) -> None:
    """Print tables line by line as their rows come, an empty line between two tables."""
    for i, table in enumerate(tables):
        if i:
            typer.echo()
        for line in table:
            typer.echo(line)


def notes(request: Request) -> Iterator[str]:
    """Why published rows of some sets are not shown."""
    for folder, pictures in request.folders.items():
        if not request.isos and (note := published.left_out(Path(folder).name, len(pictures))):
            yield note
    if not request.whole_msr:
        yield "msr: published rows are of all pictures that its test.txt lists: none are shown"


def records(request: Request, results: Results) -> dict[str, Any]:
    """The results as plain values for JSON."""
    parts: dict[str, Any] = reports.records(results.pictures, request.sigmas)
    if results.iso:
        parts["iso"] = reports.iso_records(results.iso)
    if results.msr:
        parts["msr"] = reports.msr_records(results.msr, compare=request.whole_msr)
    if results.plain_colors:
        parts["plain_colors"] = reports.plain_colors_records(results.plain_colors)
    if results.moire:
        parts["moire"] = reports.moire_records(results.moire)
    return parts


def write_scores(records: Mapping[str, Any], json: Path | None, csv: Path | None) -> None:
    """Write the files that were asked for: everything as JSON, the scores of single pictures as CSV."""
    if json is not None:
        files.write_text(json, files.to_json(records, indent=2))
    if csv is not None:
        parts = [records, *(records[part] for part in ("iso", "msr", "moire") if part in records)]
        files.write_text(csv, reports.comma_separated([row for part in parts for row in part["pictures"]]))


def check_request(request: Request, baselines: list[str]) -> None:
    """Raise if something is asked for that cannot be scored, before anything is computed."""
    if request.isos:
        _check_iso(request)
    if request.pairs:
        msr.check_request(baselines, request.patterns)
    if request.moire and len(request.patterns) > 1:
        raise DebayesError(f"--moire takes one --pattern, not {len(request.patterns)}")


def check_targets(json: Path | None, csv: Path | None, picture: Path | None) -> None:
    """Raise if a file cannot be written, or if one is named twice."""
    for path in (json, csv, picture):
        if path is not None:
            files.check_target(path)
    if json is not None and json == csv:
        raise DebayesError(f"{json} cannot hold both the JSON and the CSV: give two files")
    if picture is not None:
        picture_files.check_bits(picture, None)


def find_pictures(data: list[str], limit: int | None) -> tuple[dict[str, list[Path]], dict[str, list[Pair]]]:
    """The pictures of each folder, and the pairs of those that have the layout of the MSR set."""
    places = {name: data_folder(name) for name in data}
    pairs = {name: msr.pairs(root)[:limit] for name, place in places.items() if (root := msr.locate(place))}
    return {name: picture_files.find(place)[:limit] for name, place in places.items() if name not in pairs}, pairs


def networks(models: list[str], device: str, engine: str, ensemble: bool) -> Methods:
    """Each model, and again with the ensemble if that is asked for."""
    methods: Methods = {}
    for name in models:
        network = prepare(load(name, device=find_device(device)), engine)
        methods[name] = (network, False)
        if ensemble:
            methods[f"{name}, ensemble"] = (network, True)
    return methods


def write_zone_plates(path: Path, methods: Methods) -> None:
    """The picture of the zone plates of all methods."""
    picture_files.write(path, compare_zone_plates(methods))


def _score(
    request: Request, methods: Methods, results: Results
) -> Iterator[tuple[str, dict[reports.Set, list[Score]]]]:
    """Each method with its scores of every folder and pattern."""
    for name, (method, ensemble) in methods.items():
        for folder, pattern in request.sets:
            with progress_bar(f"{name} on {folder}") as progress:
                results.pictures[name, folder, pattern] = protocol.evaluate(
                    method,
                    request.folders[folder],
                    request.sigmas,
                    pattern=pattern,
                    ensemble=ensemble,
                    with_doubt=request.doubt,
                    progress=progress,
                )
        yield name, {at: results.pictures[name, *at] for at in request.sets}


def _score_msr(
    request: Request, methods: Methods, results: Results
) -> Iterator[tuple[str, dict[str, list[PairScore]]]]:
    """Each method with its scores of every set of pairs."""
    for name, (method, ensemble) in methods.items():
        for folder, pairs in request.pairs.items():
            with progress_bar(f"{name} on {folder}") as progress:
                results.msr[name, folder] = msr.evaluate_pairs(method, pairs, ensemble=ensemble, progress=progress)
        yield name, {folder: results.msr[name, folder] for folder in request.pairs}


def _score_plain_colors(methods: Methods, results: Results) -> Iterator[tuple[str, list[Residual]]]:
    """Each method with what it leaves of the noise on plain colours."""
    for name, (method, ensemble) in methods.items():
        results.plain_colors[name] = evaluate_plain_colors(method, ensemble=ensemble)
        yield name, results.plain_colors[name]


def _score_moire(request: Request, methods: Methods, results: Results) -> Iterator[tuple[str, list[DetailScore]]]:
    """Each method with its scores on drawn fine detail."""
    (pattern,) = request.patterns
    for name, (method, ensemble) in methods.items():
        with progress_bar(f"{name} on fine detail") as progress:
            results.moire[name] = evaluate_moire(method, pattern=pattern, ensemble=ensemble, progress=progress)
        yield name, results.moire[name]


def _score_iso(
    request: Request, methods: Methods, results: Results
) -> Iterator[tuple[str, dict[reports.Set, list[IsoScore]]]]:
    """Each method with its scores on raws of a virtual camera."""
    for name, (method, ensemble) in methods.items():
        developer = _developer(method, ensemble)
        for folder, pattern in request.sets:
            with progress_bar(f"{name} on {folder}") as progress:
                results.iso[name, folder, pattern] = virtual_iso.evaluate_iso(
                    developer, request.folders[folder], request.isos, pattern=pattern, progress=progress
                )
        yield name, {at: results.iso[name, *at] for at in request.sets}


def _check_iso(request: Request) -> None:
    """Raise if `--iso` is given without pictures to photograph, or with what it cannot score."""
    for name in request.pairs:
        raise DebayesError(
            f"{name} has the layout of the MSR set, whose mosaics have their own noise: leave out --iso"
        )
    if not request.folders:
        raise DebayesError("--iso needs pictures to photograph: give --data")
    if request.doubt:
        raise DebayesError("--doubt scores mosaics of sRGB values: leave it out, or --iso")
    for speed in request.isos:
        Body().profile(speed)


def _developer(method: Engine | Baseline, ensemble: bool) -> Developer:
    """The method as a developer of raws; without the warning that a network was not trained for them."""
    if not isinstance(method, Engine):
        return virtual_iso.baseline_developer(method)

    def develop(raw: Raw) -> Tensor:
        canvas = FloatCanvas(*raw.size)
        loop.develop_onto(canvas, method, domain.RawSource(raw, domain.noise_of(raw)), ensemble=ensemble)
        return canvas.picture

    return develop


def data_folder(name: str) -> Path:
    """The folder of that path, or the set of that name under $DEBAYES_DATA/bench or $DEBAYES_DATA."""
    root = os.environ.get("DEBAYES_DATA")
    places = [Path(name)] + ([Path(root) / "bench" / name, Path(root) / name] if root else [])
    for place in places:
        if place.is_dir():
            return place
    known = "kodak24, mcm18, wed-cdm, urban100, mit-moire and msr are known by name"
    hint = f"; {known}" if root else f"; set DEBAYES_DATA to the folder of the data sets: {known}"
    raise DebayesError(f"there is no folder of pictures {' or '.join(map(str, places))}{hint}")
