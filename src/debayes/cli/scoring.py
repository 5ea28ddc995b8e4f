"""What `debayes evaluate` does: finds pictures and methods, and scores each method with a progress bar.

This module imports PyTorch, so commands import it when they run. The tests of the command (tests/cli/test_cli.py,
tests/evaluation) run it.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from torch import Tensor

from debayes.cli.options import find_device
from debayes.cli.terminal import progress_bar
from debayes.darkroom import domain, loop
from debayes.darkroom.canvas import FloatCanvas
from debayes.engine import Engine, prepare
from debayes.evaluation import iso as virtual_iso
from debayes.evaluation import msr, protocol, reports
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
class Results:
    """What one call of `debayes evaluate` measured; empty where nothing was asked for."""

    sigmas: list[float]
    pictures: reports.Scores
    iso: reports.IsoScores
    msr: reports.MsrScores
    plain_colors: reports.Residuals
    moire: reports.DetailScores

    def tables(self, *, doubt: bool, compare: bool) -> list[str]:
        """Markdown tables of everything that was measured."""
        tables = [reports.markdown(self.pictures, self.sigmas, compare=compare)] if self.pictures else []
        tables += [reports.doubt_markdown(self.pictures, self.sigmas)] if self.pictures and doubt else []
        tables += [reports.iso_markdown(self.iso)] if self.iso else []
        tables += [reports.msr_markdown(self.msr, compare=compare)] if self.msr else []
        tables += [reports.plain_colors_markdown(self.plain_colors)] if self.plain_colors else []
        return tables + ([reports.moire_markdown(self.moire)] if self.moire else [])

    def records(self, *, compare: bool) -> dict[str, Any]:
        """The same as plain values for JSON."""
        records: dict[str, Any] = reports.records(self.pictures, self.sigmas, compare=compare)
        records |= {"iso": reports.iso_records(self.iso)} if self.iso else {}
        records |= {"msr": reports.msr_records(self.msr)} if self.msr else {}
        left = self.plain_colors
        records |= {"plain_colors": reports.plain_colors_records(left)} if left else {}
        return records | ({"moire": reports.moire_records(self.moire)} if self.moire else {})


def csv_rows(records: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The scores of single pictures among the records."""
    return [
        *records["pictures"],
        *(row for part in ("iso", "msr", "moire") for row in records.get(part, {}).get("pictures", [])),
    ]


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


def score(
    methods: Methods,
    folders: dict[str, list[Path]],
    patterns: list[str],
    sigma: list[float],
    doubt: bool,
) -> dict[tuple[str, str, str], list[Score]]:
    """The scores of every method on every folder with every pattern."""
    scores = {}
    for name, (method, ensemble) in methods.items():
        for folder, pictures in folders.items():
            for pattern in patterns:
                with progress_bar(f"{name} on {folder}") as progress:
                    scores[name, folder, pattern] = protocol.evaluate(
                        method,
                        pictures,
                        sigma,
                        pattern=pattern,
                        ensemble=ensemble,
                        with_doubt=doubt,
                        progress=progress,
                    )
    return scores


def score_msr(methods: Methods, sets: dict[str, list[Pair]]) -> dict[tuple[str, str], list[PairScore]]:
    """The scores of every method on sets of pairs."""
    scores = {}
    for name, (method, ensemble) in methods.items():
        for folder, pairs in sets.items():
            with progress_bar(f"{name} on {folder}") as progress:
                scores[name, folder] = msr.evaluate_pairs(method, pairs, ensemble=ensemble, progress=progress)
    return scores


def score_plain_colors(methods: Methods) -> dict[str, list[Residual]]:
    """What every method leaves of noise on plain colours."""
    return {name: evaluate_plain_colors(method, ensemble=ensemble) for name, (method, ensemble) in methods.items()}


def score_moire(methods: Methods, patterns: list[str]) -> dict[str, list[DetailScore]]:
    """The scores of every method on drawn fine detail."""
    if len(patterns) > 1:
        raise DebayesError(f"--moire takes one --pattern, not {len(patterns)}")
    scores = {}
    for name, (method, ensemble) in methods.items():
        with progress_bar(f"{name} on fine detail") as progress:
            scores[name] = evaluate_moire(method, pattern=patterns[0], ensemble=ensemble, progress=progress)
    return scores


def write_zone_plates(path: Path, methods: Methods) -> None:
    """The picture of the zone plates of all methods."""
    picture_files.write(path, compare_zone_plates(methods))


def check_iso(
    folders: Mapping[str, list[Path]], pairs: Mapping[str, list[Pair]], isos: list[float], doubt: bool
) -> None:
    """Raise if `--iso` is given without pictures to photograph, or with what it cannot score."""
    for name in pairs:
        raise DebayesError(
            f"{name} has the layout of the MSR set, whose mosaics have their own noise: leave out --iso"
        )
    if not folders:
        raise DebayesError("--iso needs pictures to photograph: give --data")
    if doubt:
        raise DebayesError("--doubt scores mosaics of sRGB values: leave it out, or --iso")
    for speed in isos:
        Body().profile(speed)


def score_iso(
    methods: Methods, folders: dict[str, list[Path]], patterns: list[str], isos: list[float]
) -> dict[tuple[str, str, str], list[IsoScore]]:
    """The scores of every method on raws of a virtual camera."""
    scores = {}
    for name, (method, ensemble) in methods.items():
        developer = _developer(method, ensemble)
        for folder, pictures in folders.items():
            for pattern in patterns:
                with progress_bar(f"{name} on {folder}") as progress:
                    scores[name, folder, pattern] = virtual_iso.evaluate_iso(
                        developer, pictures, isos, pattern=pattern, progress=progress
                    )
    return scores


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
