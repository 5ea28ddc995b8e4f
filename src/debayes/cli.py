"""The `debayes` command: one thin function a job. Heavy modules are imported inside, so `--help` is instant."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

if TYPE_CHECKING:
    from debayes.batch import Outcome
    from debayes.model import Network

app = typer.Typer(
    name="debayes",
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Model = Annotated[str, typer.Option("--model", "-m", help="A shipped model's name or a weight file.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]
Ensemble = Annotated[
    bool,
    typer.Option("--ensemble/--no-ensemble", help="Average over the eight symmetries: better, 8 times slower."),
]
Adapt = Annotated[
    int,
    typer.Option(
        min=0,
        help="First adapt to noise unlike that of the training, in at most so many steps; 30 is good.",
    ),
]
Pattern = Annotated[str, typer.Option(help="RGGB, BGGR, GRBG or GBRG: the top-left 2x2 cell in reading order.")]
Json = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Noisy camera mosaics to clean colour images, with a posterior for every pixel."""
    if version:
        from debayes import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.command()
def develop(
    photos: Annotated[list[Path], typer.Argument(help="Camera raws, or folders of them.", show_default=False)],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="The folder to write to; made if missing.", show_default="beside the raw"
        ),
    ] = None,
    to: Annotated[
        str, typer.Option(help="dng (linear, all metadata), or a rendered tiff (16 bit), png (16 bit) or jpeg.")
    ] = "dng",
    model: Annotated[
        str,
        typer.Option(
            "--model", "-m", help="A model's name or a weight file.", show_default="raw-s; raw-l on a GPU"
        ),
    ] = "auto",
    ensemble: Ensemble = False,
    adapt: Adapt = 0,
    strength: Annotated[
        float, typer.Option(min=0, max=1, help="The share of the noise that goes; the rest stays as grain.")
    ] = 1.0,
    maps: Annotated[
        bool,
        typer.Option("--maps/--no-maps", help="Also write maps of noise and doubt, as 16-bit TIFF and as PNG."),
    ] = False,
    exposure: Annotated[float, typer.Option(help="Stops brighter, of a rendered picture.")] = 0.0,
    space: Annotated[str, typer.Option(help="Colours of a rendered picture: srgb or p3.")] = "srgb",
    quality: Annotated[int, typer.Option(min=1, max=99, help="Of a JPEG.")] = 95,
    black: Annotated[
        float | None, typer.Option(help="The raw's count of black.", show_default="what the file says")
    ] = None,
    white: Annotated[
        float | None, typer.Option(help="The raw's count of white.", show_default="what the file says")
    ] = None,
    tile: Annotated[
        int | None, typer.Option(min=1, help="Side of a tile; smaller needs less memory.", show_default="1024")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Files at a time, each in its own process.")] = 1,
    overwrite: Annotated[
        bool, typer.Option("--overwrite/--keep", help="Develop what has been developed before.")
    ] = False,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Develop camera raws: NAME-debayes.dng, clean and linear, for any raw converter; or pictures to look at.

    What is there already is skipped, so an interrupted folder goes on where it stopped. A file that cannot be
    developed is named at the end, and the others are developed all the same; the exit code is then 1.
    """
    from debayes import batch, color, darkroom
    from debayes.terminal import batch_bar

    if to not in darkroom.FORMATS:
        raise ValueError(f"pictures are developed to {', '.join(darkroom.FORMATS)}, not {to!r}")
    if space not in color.SPACES:
        raise ValueError(f"the colours are those of {' or '.join(color.SPACES)}, not {space!r}")
    place = _device(device)
    plan = batch.plan(photos, output, darkroom.FORMATS[to])
    options = {
        "ensemble": ensemble,
        "adapt": adapt,
        "strength": strength,
        "with_maps": maps,
        "tile": tile,
        "black": black,
        "white": white,
        "exposure": exposure,
        "space": space,
        "quality": quality,
    }
    outcomes = []
    with batch_bar(len(plan)) as (report, say):
        for outcome in batch.run(
            plan,
            _raw_model(model, place),
            options,
            device=place,
            processes=jobs,
            overwrite=overwrite,
            progress=lambda job, share: report(job.source.name, share),
        ):
            outcomes.append(outcome)
            answer = outcome.answer or {}
            say(answer.get("width", 0) * answer.get("height", 0), "" if json_ else _outcome(outcome))
    failed = [outcome.error for outcome in outcomes if outcome.error]
    if json_:
        found = [
            o.answer or {"source": str(o.job.source), "skipped": o.skipped, "error": o.error} for o in outcomes
        ]
        _answer(found, True, "")
    elif len(outcomes) > 1:
        skipped = sum(outcome.skipped for outcome in outcomes)
        done = len(outcomes) - skipped - len(failed)
        typer.echo(f"{done} developed, {skipped} were there already, {len(failed)} failed")
    for error in failed:
        typer.echo(f"debayes: {error}", err=True)
    if failed:
        raise typer.Exit(1)


@app.command()
def restore(
    mosaic: Annotated[Path, typer.Argument(help="The mosaic: PNG, TIFF or NPY; 8 bit, 16 bit or float.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The picture: .png, .tiff, .jpg or .npy.")],
    pattern: Annotated[
        str | None, typer.Option(help="RGGB, BGGR, GRBG or GBRG.", show_default="what the file records, or RGGB")
    ] = None,
    model: Model = "wild-s",
    ensemble: Ensemble = False,
    adapt: Adapt = 0,
    black: Annotated[float, typer.Option(help="The file's number for black.")] = 0.0,
    white: Annotated[
        float | None,
        typer.Option(help="The file's number for white.", show_default="the type's largest, 1 for floats"),
    ] = None,
    bits: Annotated[
        int | None,
        typer.Option(help="Bits a sample: 8, 16, or 32 for float.", show_default="16; 8 for JPEG, 32 for NPY"),
    ] = None,
    maps: Annotated[
        bool, typer.Option("--maps/--no-maps", help="Also write OUTPUT.noise.tiff and OUTPUT.doubt.tiff.")
    ] = False,
    tile: Annotated[
        int | None, typer.Option(help="Side of a tile; smaller needs less memory.", show_default="1024")
    ] = None,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Restore a mosaic file: demosaicked, denoised, with maps of noise and doubt."""
    from debayes.mosaics import restore_file
    from debayes.terminal import progress_bar

    network = _network(model, device)
    with progress_bar(f"restoring {mosaic.name}") as progress:
        answer = restore_file(
            network,
            mosaic,
            output,
            pattern=pattern and pattern.upper(),
            black=black,
            white=white,
            bits=bits,
            maps=maps,
            ensemble=ensemble,
            adapt=adapt,
            tile=tile,
            progress=progress,
        )
    adapted = f", adapted {answer['adapted']['steps']} steps ({answer['adapted']['reason']})" if adapt else ""
    _answer(
        answer,
        json_,
        f"{', '.join(answer['written'])}  {answer['width']}x{answer['height']} {answer['pattern']}, "
        f"mean noise {answer['sigma']:.1f}/255{adapted}",
    )


@app.command()
def simulate(
    images: Annotated[list[Path], typer.Argument(help="Colour pictures.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write to; made if missing.")],
    pattern: Pattern = "RGGB",
    noise: Annotated[str, typer.Option(help="gaussian, varying, uniform, poisson or brown.")] = "gaussian",
    sigma: Annotated[
        float, typer.Option(help="Noise level in 1/255; the highest one of varying, the read noise of poisson.")
    ] = 10.0,
    gain: Annotated[
        float | None,
        typer.Option(help="What one photon adds to the signal, of poisson; white is 1.", show_default="0.002"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Same seed, same noise.")] = 0,
    iso: Annotated[
        float | None,
        typer.Option(help="Of a DNG: the speed of the virtual camera, and so its noise.", show_default="1600"),
    ] = None,
    exposure: Annotated[
        float | None,
        typer.Option(help="Of a DNG: stops; at 0 the picture's white is the sensor's.", show_default="0"),
    ] = None,
    to: Annotated[
        str, typer.Option(help="tiff or npy (float, unclipped), png (16 bit, clipped), or dng (a camera raw).")
    ] = "tiff",
    json_: Json = False,
) -> None:
    """Make noisy mosaics of pictures: NAME.mosaic.tiff, which remembers its pattern (PNG and NPY do not).

    With --to dng, a virtual camera shoots the pictures: NAME.dng, and NAME.truth.tiff, which is what a camera
    without noise and with all colours everywhere would have seen.
    """
    from debayes.mosaics import simulate_file, simulate_raw
    from debayes.terminal import progress_bar

    if to not in ("tiff", "npy", "png", "dng"):
        raise ValueError(f"mosaics are written to tiff, npy, png or dng, not {to!r}")
    if to != "dng" and (iso is not None or exposure is not None):
        raise ValueError(f"only a dng has an ISO speed and an exposure, not a {to}")
    targets = [output / (f"{path.stem}.dng" if to == "dng" else f"{path.stem}.mosaic.{to}") for path in images]
    if len(set(targets)) < len(targets):
        raise ValueError("two of the pictures have the same name: write them to different folders")
    _make_folder(output)
    answers = []
    with progress_bar("simulating") as progress:
        for i, (path, target) in enumerate(zip(images, targets, strict=True)):
            cell, own = pattern.upper(), seed + i
            if to == "dng":
                stops = exposure or 0.0
                answers.append(simulate_raw(path, target, iso=iso or 1600.0, pattern=cell, stops=stops, seed=own))
            else:
                answers.append(
                    simulate_file(path, target, pattern=cell, kind=noise, sigma=sigma, gain=gain, seed=own)
                )
            progress((i + 1) / len(images))
    names = [" ".join(w) if isinstance(w := answer["written"], list) else w for answer in answers]
    _answer(answers, json_, "\n".join(names))
    if to in ("npy", "png"):
        typer.echo(f"{to} keeps no pattern: restore with --pattern {pattern.upper()}", err=True)


@app.command()
def info(
    what: Annotated[
        str | None,
        typer.Argument(
            help="A camera raw, a picture, a mosaic, a weight file or a model's name; all models if none."
        ),
    ] = None,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Say what a file holds; or what a model is, where it came from and how well it does.

    Of a camera raw: the shot, its noise, which model would develop it and how long that would take here.
    """
    from debayes import darkroom, image, raw, weights

    if what is not None and Path(what).suffix.lower() in raw.ENDINGS:
        place = _device(device)
        facts = darkroom.describe(Path(what), _raw_model("auto", place), place)
        _answer(facts, json_, "\n".join(_lines(facts, "")))
        return
    if what is not None and Path(what).suffix.lower() in image.PICTURES:
        answer: dict[str, Any] = image.describe(Path(what))
        _answer(answer, json_, "\n".join(f"{key:<10} {value}" for key, value in answer.items()))
        return
    cards = {name: _describe_model(name) for name in ([what] if what else weights.shipped())}
    text = "\n".join(line for name, card in cards.items() for line in (name, *_lines(card, "  ")))
    _answer(cards, json_, text or "no model is shipped with this installation")


class _Lists(TyperCommand):
    """A command whose options take several values: --sigma 5 10 15 is --sigma 5 --sigma 10 --sigma 15."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        several = {name for option in self.params if getattr(option, "multiple", False) for name in option.opts}
        spread: list[str] = []
        current = ""
        for arg in args:
            if arg.startswith("-"):
                current = arg if arg in several else ""
            elif current and spread[-1] != current:
                spread.append(current)
            spread.append(arg)
        return super().parse_args(ctx, spread)


@app.command(cls=_Lists)
def evaluate(
    data: Annotated[
        list[str],
        typer.Option(help="Folders of pictures or of the MSR set, or their names under $DEBAYES_DATA/bench."),
    ],
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
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first pictures of each folder.")] = None,
    device: Device = "auto",
    json_: Annotated[Path | None, typer.Option("--json", help="Also write every score to this file.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Also write each picture's scores to this file.")] = None,
) -> None:
    """Score models on folders of pictures under the README's protocol: PSNR / SSIM, beside baselines.

    Options take several values: --data kodak24 mcm18 --sigma 5 10 15. For sets that others published scores of,
    these stand below. The MSR set (--data msr) brings its own noisy mosaics: it is scored in linear values and in
    sRGB, and --sigma does not matter for it.
    """
    from debayes import baselines, cfa, evaluation, files, image, msr, reports
    from debayes.terminal import progress_bar

    for path in (json_, csv):
        if path is not None:
            files.check_target(path)
    if json_ is not None and json_ == csv:
        raise ValueError(f"{json_} cannot hold both the JSON and the CSV: give two files")
    sigma = list(dict.fromkeys(sigma))
    patterns = [cfa.check_pattern(name.upper()) for name in pattern]
    places = {name: _data_folder(name) for name in data}
    given = {name: msr.pairs(root)[:limit] for name, place in places.items() if (root := msr.locate(place))}
    folders = {name: image.find(place)[:limit] for name, place in places.items() if name not in given}
    methods: dict[str, tuple[Network | baselines.Baseline, bool]] = {}
    for name in baseline:
        methods[name] = (baselines.find(name), False)
    if given:
        msr.check(baseline, patterns)
    for name in model:
        network = _network(name, device)
        methods[name] = (network, False)
        if ensemble:
            methods[f"{name}, ensemble"] = (network, True)
    scores = {}
    msr_scores = {}
    for name, (method, eightfold) in methods.items():
        for folder, pictures in folders.items():
            for cell in patterns:
                with progress_bar(f"{name} on {folder}") as progress:
                    scores[name, folder, cell] = evaluation.evaluate(
                        method, pictures, sigma, pattern=cell, ensemble=eightfold, progress=progress
                    )
        for folder, pairs in given.items():
            with progress_bar(f"{name} on {folder}") as progress:
                msr_scores[name, folder] = msr.evaluate(method, pairs, ensemble=eightfold, progress=progress)
    whole = limit is None
    tables = [reports.markdown(scores, sigma, compare=whole)] if scores else []
    tables += [reports.msr_markdown(msr_scores, compare=whole)] if msr_scores else []
    typer.echo("\n\n".join(tables))
    if not whole:
        typer.echo("published rows are of whole sets: none are shown with --limit", err=True)
    found: dict[str, Any] = reports.records(scores, sigma)
    rows = found["pictures"]
    if msr_scores:
        found["msr"] = reports.msr_records(msr_scores)
        rows = rows + found["msr"]["pictures"]
    if json_ is not None:
        files.write_text(json_, files.to_json(found, indent=2))
    if csv is not None:
        files.write_text(csv, reports.comma_separated(rows))


@app.command()
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
) -> None:
    """Train a network from a recipe.

    Several GPUs: torchrun --nproc-per-node 8 -m debayes train RECIPE -o RUN. The recipe's batch is divided among
    them. (Write -o: torchrun mistakes --run for an option of its own.)
    """
    from debayes.recipe import read_recipe
    from debayes.team import join
    from debayes.terminal import catch_interrupt, watch_training
    from debayes.training import train as run_training

    plan = read_recipe(recipe, set_)
    folder = run or Path("runs") / recipe.stem
    with (
        join(_device(device)) as team,
        watch_training(folder, recipe.stem, tensorboard) as report,
        catch_interrupt() as stop,
    ):
        written = run_training(
            plan, folder, root=data, team=team, resume=resume, every=every, stop=stop, report=report
        )
        stopped = stop()
    if team.leads and stopped:
        typer.echo(f"stopped, and saved: go on with --resume ({folder})", err=True)
        raise typer.Exit(130)
    if team.leads:
        typer.echo(written)


@app.command()
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
    json_: Json = False,
) -> None:
    """Make a store of training tiles: cut pictures up and keep the tiles that teach most."""
    from debayes import image
    from debayes.terminal import progress_bar
    from debayes.tiles import make

    paths = [found for path in pictures for found in (image.find(path) if path.is_dir() else [path])]
    with progress_bar("cutting tiles") as progress:
        answer = make(
            paths,
            output,
            size=size,
            downscale=downscale,
            count=count,
            hard=hard,
            quality=quality,
            licence=licence,
            progress=progress,
        )
    small = f"; {answer['small']} were too small" if answer["small"] else ""
    _answer(answer, json_, f"{output}  {answer['tiles']} tiles of {answer['pictures']} pictures{small}")


@app.command()
def runs(
    folder: Annotated[Path, typer.Argument(help="A run's folder, or a folder of runs.")] = Path("runs"),
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The plot: .png or .svg.", show_default="FOLDER/curves.png"),
    ] = None,
    json_: Json = False,
) -> None:
    """Compare training runs: a table of where each stands, and a plot of their curves."""
    from debayes import curves

    found = curves.read(folder)
    target = output or folder / "curves.png"
    curves.plot(found, target)
    width = max(len(name) for name in found)
    rows = [
        f"{name:<{width}}  step {line['step']:>8}  {line['seconds'] / 60:6.1f} min  "
        f"loss {line['loss']:<9.4g}  val {curves.best(lines)}"
        for name, lines in found.items()
        for line in lines[-1:]
    ]
    _answer({"plot": str(target), "runs": found}, json_, "\n".join([*rows, str(target)]))


@app.command(cls=_Lists)
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
) -> None:
    """Reproduce a table or figure of the paper, or all: a page with figures and numbers, and an index of them.

    Stopped runs go on where they were when started again with the same folder.
    """
    from debayes import reproduction
    from debayes.terminal import progress_bar

    names = reproduction.check(name, model)
    if data is not None and not data.is_dir():
        raise ValueError(f"there is no folder {data}: give the one that holds kodak24, mcm18 and the other sets")
    place = _device(device)
    _make_folder(output)
    for experiment in names:
        with progress_bar(experiment) as progress:
            page = reproduction.reproduce(
                experiment, output, models=model, root=data, quick=quick, device=place, progress=progress
            )
        typer.echo(f"{experiment:<12} {output / experiment}.html")
        for sentence in (*page.finding, *page.missing):
            typer.echo(f"{'':<12} {sentence}")
    typer.echo(f"{'index':<12} {output / 'index.html'}")


@app.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write to; made if missing.")] = Path(
        "demo"
    ),
    model: Annotated[
        str,
        typer.Option(
            "--model", "-m", help="A model's name or a weight file.", show_default="raw-s; raw-l on a GPU"
        ),
    ] = "auto",
    iso: Annotated[float, typer.Option(help="The speed of the virtual camera, and so its noise.")] = 12800.0,
    ensemble: Ensemble = False,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Make a noisy raw of a free photograph, develop it, and draw before and after."""
    from debayes.demo import demonstrate
    from debayes.terminal import progress_bar
    from debayes.weights import load

    _make_folder(output)
    place = _device(device)
    network = load(_raw_model(model, place), device=place)
    with progress_bar("developing") as progress:
        answer = demonstrate(network, output, iso=iso, ensemble=ensemble, progress=progress)
    text = [f"PSNR {name:<9} {value:6.2f} dB" for name, value in answer["psnr"].items()]
    level = {name: 100 * value for name, value in answer["noise"].items()}
    noise = f"mean noise     {level['added']:6.2f} % of white added, {level['found']:.2f} % found"
    _answer(answer, json_, "\n".join([*text, noise, f"picture        {answer['picture']}"]))


def main() -> None:
    """Run the command; what a user can put right is one sentence and exit code 2."""
    if len(sys.argv) == 1:
        sys.argv.append("--help")
    try:
        sys.exit(app(standalone_mode=False) or 0)
    except (typer.Abort, KeyboardInterrupt):
        again = ": start it again to go on where it was" if sys.argv[1:2] == ["reproduce"] else ""
        sys.stderr.write(f"debayes: stopped{again}\n")
        sys.exit(130)
    except Exception as error:
        sentence = _explain(error)
        if sentence is None:
            raise
        if os.environ.get("RANK", "0") == "0":  # of torchrun's processes one speaks
            sys.stderr.write(f"debayes: {sentence}\n")
        sys.exit(2)


def _explain(error: Exception) -> str | None:
    """The sentence for an error that a user can put right, none for ours."""
    if hasattr(error, "format_message"):  # typer's own: an option that is unknown, missing or of the wrong kind
        return f"{error.format_message().rstrip('.')} (see --help)"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'a file'}: {error.strerror}"
    if isinstance(error, ValueError | OSError | FloatingPointError | ModuleNotFoundError):
        return str(error)
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "memory" in str(error)):
        cure = "a smaller optimizer.batch or data.hold" if sys.argv[1:2] == ["train"] else "a smaller --tile"
        return f"there is not enough memory: close other programs, or use {cure}"
    return None


def _make_folder(path: Path) -> None:
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path} is a file: give a folder to write to")
    path.mkdir(parents=True, exist_ok=True)


def _device(name: str) -> str:
    import torch

    usable = ["cpu"] + ["cuda"] * torch.cuda.is_available() + ["mps"] * torch.backends.mps.is_available()
    if name == "auto":
        return usable[-1]
    if name not in usable:
        raise ValueError(f"the device {name!r} is not on this machine: there is auto, {', '.join(usable)}")
    return name


def _network(model: str, device: str) -> "Network":
    """A network for mosaics of pictures."""
    from debayes.weights import check_domain, load

    check_domain(model, "srgb")
    return load(model, device=_device(device))


def _raw_model(model: str, device: str) -> str:
    """The model that develops raws if none is named: the small one on a CPU, the large one on a GPU."""
    from debayes.weights import check_domain

    chosen = model if model != "auto" else ("raw-s" if device == "cpu" else "raw-l")
    check_domain(chosen, "raw")
    return chosen


def _outcome(outcome: "Outcome") -> str:
    """One line about one developed file."""
    if outcome.error:
        return ""
    if outcome.answer is None:
        return f"{outcome.job.target} was there already"
    answer = outcome.answer
    kind = "stored" if answer["profile"]["stored"] else "estimated"
    level = (answer["profile"]["gain"] * 0.18 + answer["profile"]["floor"]) ** 0.5
    line = f"{', '.join(answer['written'])}  {answer['width']}x{answer['height']} {answer['pattern']}"
    line += f", noise {100 * level:.2g} % of white at middle grey ({kind})"
    if "adapted" in answer:
        line += f", adapted {answer['adapted']['steps']} steps ({answer['adapted']['reason']})"
    return "; ".join((line, *answer["assumed"]))


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


def _describe_model(name: str) -> dict[str, Any]:
    from debayes import weights

    card, network = weights.read_card(name), weights.load(name)
    return {
        "file": str(weights.locate(name)),
        "parameters": network.parameter_count,
        "kmac_per_pixel": round(network.kmac_per_pixel, 1),
        "receptive_radius": card.config.receptive_radius,
        "network": vars(card.config),
        "recipe": card.recipe,
        "results": card.results,
        **card.notes,
        "licences": json.loads(card.notes.get("licences", "{}")),
    }


def _lines(table: dict[str, Any], indent: str) -> Iterator[str]:
    """A nested table as indented lines; one that holds no tables on one line."""
    for key, value in table.items():
        if isinstance(value, dict) and any(isinstance(inner, dict) for inner in value.values()):
            yield f"{indent}{key}"
            yield from _lines(value, indent + "  ")
        elif isinstance(value, dict):
            yield f"{indent}{key:<18} " + ", ".join(f"{name} {inner}" for name, inner in value.items())
        elif value != "":
            yield f"{indent}{key:<18} {value}"


def _answer(answer: Any, as_json: bool, text: str) -> None:
    from debayes.files import to_json

    typer.echo(to_json(answer, indent=2) if as_json else text)
