"""The commands for research: evaluate, reproduce, train, tiles, runs. Heavy modules are imported inside.

Tested in tests/cli/test_cli.py.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from debayes.cli.options import Device, EngineName, Json, find_device, make_folder, show
from debayes.system.errors import DebayesError

if TYPE_CHECKING:
    from debayes.engine import Engine
    from debayes.evaluation.baselines import Baseline
    from debayes.evaluation.msr import Pair, PairScore
    from debayes.evaluation.protocol import Score

    Methods: TypeAlias = dict[str, tuple[Engine | Baseline, bool]]
    """Methods by name, each with whether to average over the symmetries."""


def evaluate(
    data: Annotated[
        list[str],
        typer.Option(help="Folders of pictures or of the MSR set, or their names under $DEBAYES_DATA/bench."),
    ] = [],  # noqa: B006 - typer copies it
    model: Annotated[list[str], typer.Option("--model", "-m", help="Shipped names or weight files.")] = ["wild-s"],  # noqa: B006 - typer copies it
    baseline: Annotated[
        list[str],
        typer.Option(
            help="bilinear, malvar, menon or demosaicnet; with +bm3d denoised afterwards, given the noise level."
        ),
    ] = ["bilinear"],  # noqa: B006
    sigma: Annotated[list[float], typer.Option(help="Noise levels, in units of 1/255.")] = [5.0, 10.0, 15.0],  # noqa: B006
    pattern: Annotated[list[str], typer.Option(help="RGGB, BGGR, GRBG or GBRG.")] = ["RGGB"],  # noqa: B006
    ensemble: Annotated[
        bool,
        typer.Option("--ensemble/--no-ensemble", help="Also score each model averaged over the eight symmetries."),
    ] = False,
    doubt: Annotated[
        bool,
        typer.Option("--doubt", help="Also score each model's doubt; docs/doubt.md explains the measures."),
    ] = False,
    plain_colors: Annotated[
        bool,
        typer.Option("--plain-colors", help="Also noise left on plain colours, its level differing by colour."),
    ] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first pictures of each folder.")] = None,
    device: Device = "auto",
    engine: EngineName = "eager",
    json_: Annotated[Path | None, typer.Option("--json", help="Also write every score to this file.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Also write each picture's scores to this file.")] = None,
) -> None:
    """Score models and baselines on folders of pictures: PSNR and SSIM under the protocol of docs/models.md.

    Options take several values: --data kodak24 mcm18 --sigma 5 10 15. For sets with published scores, these are
    listed below the table. The MSR set (--data msr) has noisy mosaics of its own: it is scored in linear values and
    in sRGB, and --sigma is not used for it.
    """
    from debayes.evaluation import baselines, msr, reports
    from debayes.evaluation.plain_colors import evaluate_plain_colors
    from debayes.imaging import cfa
    from debayes.system import files

    if not data and not plain_colors:
        raise DebayesError("there is nothing to evaluate: give --data, --plain-colors or both")
    for path in (json_, csv):
        if path is not None:
            files.check_target(path)
    if json_ is not None and json_ == csv:
        raise DebayesError(f"{json_} cannot hold both the JSON and the CSV: give two files")
    levels = list(dict.fromkeys(sigma))
    patterns: list[str] = [cfa.check_pattern(name) for name in pattern]
    folders, pairs = _find_pictures(data, limit)
    methods: Methods = {name: (baselines.find_baseline(name), False) for name in baseline}
    if pairs:
        msr.check_request(baseline, patterns)
    methods |= _networks(model, device, engine, ensemble)
    scores = _score(methods, folders, patterns, levels, doubt)
    msr_scores = _score_msr(methods, pairs)
    residuals = {
        name: evaluate_plain_colors(method, ensemble=eightfold)
        for name, (method, eightfold) in methods.items()
        if plain_colors
    }
    whole = limit is None
    tables = [reports.markdown(scores, levels, compare=whole)] if scores else []
    tables += [reports.doubt_markdown(scores, levels)] if scores and doubt else []
    tables += [reports.msr_markdown(msr_scores, compare=whole)] if msr_scores else []
    tables += [reports.plain_colors_markdown(residuals)] if residuals else []
    typer.echo("\n\n".join(tables))
    if not whole:
        typer.echo("published rows are of whole sets: none are shown with --limit", err=True)
    records: dict[str, Any] = reports.records(scores, levels, compare=whole)
    rows = records["pictures"]
    if msr_scores:
        records["msr"] = reports.msr_records(msr_scores)
        rows = rows + records["msr"]["pictures"]
    if residuals:
        records["plain_colors"] = reports.plain_colors_records(residuals)
    if json_ is not None:
        files.write_text(json_, files.to_json(records, indent=2))
    if csv is not None:
        files.write_text(csv, reports.comma_separated(rows))


def _find_pictures(data: list[str], limit: int | None) -> tuple[dict[str, list[Path]], dict[str, list["Pair"]]]:
    """The pictures of each folder, and the pairs of those that have the layout of the MSR set."""
    from debayes.evaluation import msr
    from debayes.formats import pictures

    places = {name: _data_folder(name) for name in data}
    pairs = {name: msr.pairs(root)[:limit] for name, place in places.items() if (root := msr.locate(place))}
    return {name: pictures.find(place)[:limit] for name, place in places.items() if name not in pairs}, pairs


def _networks(models: list[str], device: str, engine: str, ensemble: bool) -> "Methods":
    """Each model, and again with the ensemble if that is asked for."""
    from debayes.engine import prepare
    from debayes.network.weights import load

    methods: Methods = {}
    for name in models:
        network = prepare(load(name, device=find_device(device)), engine)
        methods[name] = (network, False)
        if ensemble:
            methods[f"{name}, ensemble"] = (network, True)
    return methods


def _score(
    methods: "Methods",
    folders: dict[str, list[Path]],
    patterns: list[str],
    sigma: list[float],
    doubt: bool,
) -> dict[tuple[str, str, str], list["Score"]]:
    """The scores of every method on every folder with every pattern."""
    from debayes.cli.terminal import progress_bar
    from debayes.evaluation import protocol

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


def _score_msr(methods: "Methods", sets: dict[str, list["Pair"]]) -> dict[tuple[str, str], list["PairScore"]]:
    """The scores of every method on sets of pairs."""
    from debayes.cli.terminal import progress_bar
    from debayes.evaluation import msr

    scores = {}
    for name, (method, ensemble) in methods.items():
        for folder, pairs in sets.items():
            with progress_bar(f"{name} on {folder}") as progress:
                scores[name, folder] = msr.evaluate_pairs(method, pairs, ensemble=ensemble, progress=progress)
    return scores


def reproduce(
    name: Annotated[
        str,
        typer.Argument(help="table1, table2, table3, finetuning, overfitting, mask, noise-map, visual or all."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write to; made if missing.")],
    model: Annotated[
        list[str],
        typer.Option(
            "--model", "-m", help="A shipped name or a weight file; may be repeated. Figures are of the first."
        ),
    ] = ["wild-s"],  # noqa: B006
    data: Annotated[
        Path | None, typer.Option(envvar="DEBAYES_DATA", help="The folder of kodak24, mcm18 and the other sets.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Use few small pictures and short runs: minutes instead of hours.")
    ] = False,
    device: Device = "auto",
) -> None:
    """Reproduce a table or figure of the paper, or all: a page with figures and numbers for each, and an index.

    Interrupted runs continue when started again with the same folder.
    """
    from debayes.cli.terminal import progress_bar
    from debayes.reproduction import experiments

    names = experiments.check_request(name, model)
    if data is not None and not data.is_dir():
        raise DebayesError(f"there is no folder {data}: give the one that holds kodak24, mcm18 and the other sets")
    place = find_device(device)
    make_folder(output)
    for experiment in names:
        with progress_bar(experiment) as progress:
            page = experiments.reproduce(
                experiment, output, models=model, root=data, quick=quick, device=place, progress=progress
            )
        typer.echo(f"{experiment:<12} {output / experiment}.html")
        for sentence in (*page.finding, *page.missing):
            typer.echo(f"{'':<12} {sentence}")
    typer.echo(f"{'index':<12} {output / 'index.html'}")


def train(
    recipe: Annotated[Path, typer.Argument(help="A TOML file, as in recipes/.")],
    run: Annotated[
        Path | None, typer.Option("--run", "-o", help="The run's folder.", show_default="runs/RECIPE")
    ] = None,
    data: Annotated[Path, typer.Option(envvar="DEBAYES_DATA", help="The folder of the recipe's data.")] = Path(),
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the run's last checkpoint.")] = False,
    set_: Annotated[
        list[str],
        typer.Option("--set", help="Change the recipe, for example optimizer.minutes=5; may be repeated."),
    ] = [],  # noqa: B006
    every: Annotated[float, typer.Option(min=0, help="Seconds between checkpoints.")] = 120.0,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also write TensorBoard logs to the run's folder.")
    ] = False,
    device: Device = "auto",
) -> None:
    """Train a network from a recipe.

    On several GPUs: torchrun --nproc-per-node 8 -m debayes train RECIPE -o RUN. The recipe's batch is divided among
    them. (Write -o: torchrun takes --run for an option of its own.)
    """
    from debayes.cli.terminal import catch_interrupt, watch_training
    from debayes.training.distributed import join
    from debayes.training.loop import train as run_training
    from debayes.training.recipe import read_recipe

    plan = read_recipe(recipe, set_)
    folder = run or Path("runs") / recipe.stem
    with (
        join(find_device(device)) as processes,
        watch_training(folder, recipe.stem, tensorboard) as report,
        catch_interrupt() as stop,
    ):
        written = run_training(
            plan, folder, root=data, processes=processes, resume=resume, every=every, stop=stop, report=report
        )
        stopped = stop()
    if processes.is_main and stopped:
        typer.echo(f"stopped and saved: continue with --resume ({folder})", err=True)
        raise typer.Exit(130)
    if processes.is_main:
        typer.echo(written)


def tiles(
    pictures: Annotated[list[Path], typer.Argument(help="Pictures, or folders of them.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The store to make: a new folder.")],
    size: Annotated[int, typer.Option(help="Side of a tile in pixels.")] = 256,
    downscale: Annotated[
        float,
        typer.Option(
            help="Shrink the pictures by this factor first, which removes the traces of their demosaicking."
        ),
    ] = 2.0,
    count: Annotated[int, typer.Option(help="At most this many tiles per picture; 0 keeps all.")] = 8,
    hard: Annotated[
        float, typer.Option(help="The share of tiles chosen as hardest to demosaick; the others are random.")
    ] = 0.75,
    quality: Annotated[int, typer.Option(help="JPEG quality of the stored tiles; 100 stores PNGs.")] = 95,
    licence: Annotated[
        str, typer.Option(help="The pictures' licence, recorded in CREDITS.csv and in weights trained on them.")
    ] = "",
    json_: Json = False,
) -> None:
    """Cut pictures into training tiles and keep those that are hardest to demosaick."""
    from debayes.cli.terminal import progress_bar
    from debayes.formats import pictures as picture_files
    from debayes.training.store_writer import Selection, make_store

    paths = [found for path in pictures for found in (picture_files.find(path) if path.is_dir() else [path])]
    with progress_bar("cutting tiles") as progress:
        selection = Selection(size=size, downscale=downscale, count=count, hard=hard, quality=quality)
        answer = make_store(paths, output, selection=selection, licence=licence, progress=progress)
    small = f"; {answer['small']} were too small" if answer["small"] else ""
    show(answer, json_, f"{output}  {answer['tiles']} tiles of {answer['pictures']} pictures{small}")


def runs(
    folder: Annotated[Path, typer.Argument(help="A run's folder, or a folder of runs.")] = Path("runs"),
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The plot: .png or .svg.", show_default="FOLDER/curves.png"),
    ] = None,
    json_: Json = False,
) -> None:
    """Compare training runs: a table of their progress, and a plot of their curves."""
    from debayes.training import curves

    histories = curves.read_logs(folder)
    target = output or folder / "curves.png"
    curves.plot(histories, target)
    width = max(len(name) for name in histories)
    rows = [
        f"{name:<{width}}  step {line['step']:>8}  {line['seconds'] / 60:6.1f} min  "
        f"loss {line['loss']:<9.4g}  val {curves.best(lines)}"
        for name, lines in histories.items()
        for line in lines[-1:]
    ]
    show({"plot": str(target), "runs": histories}, json_, "\n".join([*rows, str(target)]))


def _data_folder(name: str) -> Path:
    """The folder of that path, or the set of that name under $DEBAYES_DATA/bench or $DEBAYES_DATA."""
    root = os.environ.get("DEBAYES_DATA")
    places = [Path(name)] + ([Path(root) / "bench" / name, Path(root) / name] if root else [])
    for place in places:
        if place.is_dir():
            return place
    known = "kodak24, mcm18, wed-cdm, urban100, mit-moire and msr are known by name"
    hint = f"; {known}" if root else f"; set DEBAYES_DATA to the folder of the data sets: {known}"
    raise DebayesError(f"there is no folder of pictures {' or '.join(map(str, places))}{hint}")
