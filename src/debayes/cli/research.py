"""The commands for research: evaluate, reproduce, train, tiles, runs. Heavy modules are imported inside.

Tested in tests/cli/test_cli.py.
"""

from pathlib import Path
from typing import Annotated

import typer

from debayes.cli.options import Device, EngineName, Json, find_device, make_folder, show
from debayes.system.errors import DebayesError


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
    iso: Annotated[
        list[float],
        typer.Option(help="ISO speeds: score raws of the pictures by a virtual camera, instead of --sigma."),
    ] = [],  # noqa: B006
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
    moire: Annotated[
        bool,
        typer.Option(
            "--moire", help="Also false colour on drawn fine detail: zone plates, bars, weaves, text, bricks."
        ),
    ] = False,
    moire_picture: Annotated[
        Path | None,
        typer.Option(help="Write a picture of every method's zone plate to this file, for example .png."),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first pictures of each folder.")] = None,
    device: Device = "auto",
    engine: EngineName = "eager",
    json_: Annotated[Path | None, typer.Option("--json", help="Also write every score to this file.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Also write each picture's scores to this file.")] = None,
) -> None:
    """Score models and baselines on folders of pictures: PSNR and SSIM under the protocol of docs/models.md.

    Options take several values: --data kodak24 mcm18 --sigma 5 10 15. Published scores are listed below those of a
    whole set. The MSR set (--data msr) has noisy mosaics of its own: it is scored in linear values and
    in sRGB, and --sigma is not used for it.

    With --iso the pictures are photographed by the virtual camera of `debayes simulate`, developed with its known
    noise profile, and scored in white-balanced linear values: the table for raw-s and raw-l.
    """
    from debayes.cli import scoring
    from debayes.evaluation import baselines
    from debayes.imaging import cfa

    if not (data or plain_colors or moire or moire_picture):
        raise DebayesError("there is nothing to evaluate: give --data, --plain-colors or --moire")
    scoring.check_targets(json_, csv, moire_picture)
    patterns: list[str] = list(dict.fromkeys(cfa.check_pattern(name) for name in pattern))
    folders, pairs = scoring.find_pictures(data, limit)
    request = scoring.Request(
        folders,
        pairs,
        patterns,
        sigmas=list(dict.fromkeys(sigma)),
        isos=list(dict.fromkeys(iso)),
        doubt=doubt,
        plain_colors=plain_colors,
        moire=moire,
    )
    methods: scoring.Methods = {name: (baselines.find_baseline(name), False) for name in baseline}
    scoring.check_request(request, baseline)
    methods |= scoring.networks(model, device, engine, ensemble)
    results = scoring.Results()
    scoring.print_tables(scoring.tables(request, methods, results))
    if moire_picture is not None:
        scoring.write_zone_plates(moire_picture, methods)
    for note in scoring.notes(request):
        typer.echo(note, err=True)
    scoring.write_scores(scoring.records(request, results), json_, csv)


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

    The tables need picture sets (docs/data.md says where they are had); all leaves out those that have none.
    Interrupted runs continue when started again with the same folder.
    """
    from debayes.cli.terminal import progress_lines
    from debayes.reproduction import experiments

    if data is not None and not data.is_dir():
        raise DebayesError(f"there is no folder {data}: give the one that holds kodak24, mcm18 and the other sets")
    names = experiments.check_request(name, model, data)
    place = find_device(device)
    make_folder(output)
    for experiment in names:
        with progress_lines(experiment) as (progress, say):
            page = experiments.reproduce(
                experiment,
                output,
                models=model,
                root=data,
                quick=quick,
                device=place,
                progress=progress,
                report=say,
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
        typer.Option(
            "--set",
            help="Change the recipe: optimizer.minutes=5, data.train=FOLDER or data.train=[A,B]; may be repeated.",
        ),
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
