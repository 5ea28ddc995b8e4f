"""The commands for research: evaluate, reproduce, train, tiles, runs. Heavy modules are imported inside."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from debayes.cli.options import Device, EngineName, Json, Threads, find_device, load_network, make_folder, show
from debayes.system.errors import DebayesError

if TYPE_CHECKING:
    from debayes.engine import Engine


def evaluate(
    data: Annotated[
        list[str],
        typer.Option(help="Folders of pictures or of the MSR set, or their names under $DEBAYES_DATA/bench."),
    ] = [],  # noqa: B006 - typer copies it
    model: Annotated[list[str], typer.Option("--model", "-m", help="Shipped names or weight files.")] = ["wild-s"],  # noqa: B006 - typer copies it
    baseline: Annotated[
        list[str],
        typer.Option(help="bilinear, malvar, menon, demosaicnet; +bm3d after it denoises, told the noise level."),
    ] = ["bilinear"],  # noqa: B006
    sigma: Annotated[list[float], typer.Option(help="Noise levels, in units of 1/255.")] = [5.0, 10.0, 15.0],  # noqa: B006
    pattern: Annotated[list[str], typer.Option(help="RGGB, BGGR, GRBG or GBRG.")] = ["RGGB"],  # noqa: B006
    ensemble: Annotated[
        bool, typer.Option("--ensemble/--no-ensemble", help="Also each model averaged over the eight symmetries.")
    ] = False,
    doubt: Annotated[
        bool,
        typer.Option("--doubt", help="Also how far each model's doubt can be trusted: docs/doubt.md explains it."),
    ] = False,
    plain_colors: Annotated[
        bool,
        typer.Option("--plain-colors", help="Also noise left on plain colours, its level differing by colour."),
    ] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first pictures of each folder.")] = None,
    device: Device = "auto",
    engine: EngineName = "eager",
    threads: Threads = None,
    json_: Annotated[Path | None, typer.Option("--json", help="Also write every score to this file.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Also write each picture's scores to this file.")] = None,
) -> None:
    """Score models on folders of pictures under the README's protocol: PSNR / SSIM, beside baselines.

    Options take several values: --data kodak24 mcm18 --sigma 5 10 15. For sets that others published scores of,
    these stand below. The MSR set (--data msr) brings its own noisy mosaics: it is scored in linear values and in
    sRGB, and --sigma does not matter for it.
    """
    from debayes.cli.terminal import progress_bar
    from debayes.engine import prepare
    from debayes.evaluation import baselines, msr, protocol, reports
    from debayes.evaluation.plain_colors import evaluate_plain_colors
    from debayes.formats import pictures as picture_files
    from debayes.imaging import cfa
    from debayes.system import files

    if not data and not plain_colors:
        raise DebayesError("there is nothing to evaluate: give --data, --plain-colors or both")
    for path in (json_, csv):
        if path is not None:
            files.check_target(path)
    if json_ is not None and json_ == csv:
        raise ValueError(f"{json_} cannot hold both the JSON and the CSV: give two files")
    sigma = list(dict.fromkeys(sigma))
    patterns: list[str] = [cfa.check_pattern(name.upper()) for name in pattern]
    places = {name: _data_folder(name) for name in data}
    given = {name: msr.pairs(root)[:limit] for name, place in places.items() if (root := msr.locate(place))}
    folders = {name: picture_files.find(place)[:limit] for name, place in places.items() if name not in given}
    methods: dict[str, tuple[Engine | baselines.Baseline, bool]] = {}
    for name in baseline:
        methods[name] = (baselines.find_baseline(name), False)
    if given:
        msr.check_request(baseline, patterns)
    for name in model:
        network = prepare(load_network(name, device), engine)
        methods[name] = (network, False)
        if ensemble:
            methods[f"{name}, ensemble"] = (network, True)
    scores = {}
    msr_scores = {}
    for name, (method, eightfold) in methods.items():
        for folder, pictures in folders.items():
            for cell in patterns:
                with progress_bar(f"{name} on {folder}") as progress:
                    scores[name, folder, cell] = protocol.evaluate(
                        method,
                        pictures,
                        sigma,
                        pattern=cell,
                        ensemble=eightfold,
                        with_doubt=doubt,
                        progress=progress,
                    )
        for folder, pairs in given.items():
            with progress_bar(f"{name} on {folder}") as progress:
                msr_scores[name, folder] = msr.evaluate_pairs(method, pairs, ensemble=eightfold, progress=progress)
    residuals = {
        name: evaluate_plain_colors(method, ensemble=eightfold)
        for name, (method, eightfold) in methods.items()
        if plain_colors
    }
    whole = limit is None
    tables = [reports.markdown(scores, sigma, compare=whole)] if scores else []
    tables += [reports.doubt_markdown(scores, sigma)] if scores and doubt else []
    tables += [reports.msr_markdown(msr_scores, compare=whole)] if msr_scores else []
    tables += [reports.plain_colors_markdown(residuals)] if residuals else []
    typer.echo("\n\n".join(tables))
    if not whole:
        typer.echo("published rows are of whole sets: none are shown with --limit", err=True)
    found: dict[str, Any] = reports.records(scores, sigma, compare=whole)
    rows = found["pictures"]
    if msr_scores:
        found["msr"] = reports.msr_records(msr_scores)
        rows = rows + found["msr"]["pictures"]
    if residuals:
        found["plain_colors"] = reports.plain_colors_records(residuals)
    if json_ is not None:
        files.write_text(json_, files.to_json(found, indent=2))
    if csv is not None:
        files.write_text(csv, reports.comma_separated(rows))


def reproduce(
    name: Annotated[
        str,
        typer.Argument(help="table1, table2, table3, finetuning, overfitting, mask, noise-map, visual or all."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write to; made if missing.")],
    model: Annotated[
        list[str], typer.Option("--model", "-m", help="Shipped names or weight files; figures take the first.")
    ] = ["wild-s"],  # noqa: B006
    data: Annotated[
        Path | None, typer.Option(envvar="DEBAYES_DATA", help="Where kodak24, mcm18 and the other sets lie.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Few small pictures and short runs: minutes instead of hours.")
    ] = False,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Reproduce a table or figure of the paper, or all: a page with figures and numbers, and an index of them.

    Stopped runs go on where they were when started again with the same folder.
    """
    from debayes.cli.terminal import progress_bar
    from debayes.reproduction import experiments

    names = experiments.check_request(name, model)
    if data is not None and not data.is_dir():
        raise ValueError(f"there is no folder {data}: give the one that holds kodak24, mcm18 and the other sets")
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
    data: Annotated[Path, typer.Option(envvar="DEBAYES_DATA", help="Where the recipe's data lie.")] = Path(),
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the run's last save.")] = False,
    set_: Annotated[list[str], typer.Option("--set", help="Change the recipe: optimizer.minutes=5.")] = [],  # noqa: B006
    every: Annotated[float, typer.Option(min=0, help="Seconds between two saves.")] = 120.0,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also write what TensorBoard shows to the run's folder.")
    ] = False,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Train a network from a recipe.

    Several GPUs: torchrun --nproc-per-node 8 -m debayes train RECIPE -o RUN. The recipe's batch is divided among
    them. (Write -o: torchrun mistakes --run for an option of its own.)
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
        typer.echo(f"stopped, and saved: go on with --resume ({folder})", err=True)
        raise typer.Exit(130)
    if processes.is_main:
        typer.echo(written)


def tiles(
    pictures: Annotated[list[Path], typer.Argument(help="Pictures, or folders of them.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The store to make: a new folder.")],
    size: Annotated[int, typer.Option(help="Side of a tile in pixels.")] = 256,
    downscale: Annotated[
        float, typer.Option(help="Make the pictures this much smaller first, which hides their own demosaicking.")
    ] = 2.0,
    count: Annotated[int, typer.Option(help="Tiles of each picture at most; 0 keeps all.")] = 8,
    hard: Annotated[
        float, typer.Option(help="The share of these that are the hardest to demosaick; chance picks the others.")
    ] = 0.75,
    quality: Annotated[int, typer.Option(help="Of the JPEGs in the store; 100 writes PNGs.")] = 95,
    licence: Annotated[
        str, typer.Option(help="The pictures' licence, for CREDITS.csv and the weights' card.")
    ] = "",
    threads: Threads = None,
    json_: Json = False,
) -> None:
    """Make a store of training tiles: cut pictures up and keep the tiles that teach most."""
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
    """Compare training runs: a table of where each stands, and a plot of their curves."""
    from debayes.training import curves

    found = curves.read_logs(folder)
    target = output or folder / "curves.png"
    curves.plot(found, target)
    width = max(len(name) for name in found)
    rows = [
        f"{name:<{width}}  step {line['step']:>8}  {line['seconds'] / 60:6.1f} min  "
        f"loss {line['loss']:<9.4g}  val {curves.best(lines)}"
        for name, lines in found.items()
        for line in lines[-1:]
    ]
    show({"plot": str(target), "runs": found}, json_, "\n".join([*rows, str(target)]))


def _data_folder(name: str) -> Path:
    """A folder as given, or a set of that name under $DEBAYES_DATA/bench or $DEBAYES_DATA."""
    root = os.environ.get("DEBAYES_DATA")
    places = [Path(name)] + ([Path(root) / "bench" / name, Path(root) / name] if root else [])
    for place in places:
        if place.is_dir():
            return place
    known = "kodak24, mcm18, wed-cdm, urban100, mit-moire and msr are known by name"
    hint = f"; {known}" if root else f"; set DEBAYES_DATA to where the data sets lie: {known}"
    raise ValueError(f"there is no folder of pictures {' or '.join(map(str, places))}{hint}")
