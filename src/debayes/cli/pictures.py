"""The commands for pictures: develop, restore, simulate, info, demo. Heavy modules are imported inside."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from debayes.cli.options import (
    Adapt,
    Device,
    EngineName,
    Ensemble,
    Json,
    Model,
    Pattern,
    Threads,
    choose_raw_model,
    find_device,
    indent,
    load_network,
    make_folder,
    show,
)

if TYPE_CHECKING:
    from debayes.darkroom.batch import Outcome

# How far apart the seeds of two simulations are: a picture of one has other noise than any picture of another.
SEEDS = 1_000_003


def develop(
    photos: Annotated[
        list[Path], typer.Argument(help="Camera raws, or folders of them.", show_default=False, readable=False)
    ],
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
        typer.Option(
            "--maps/--no-maps",
            help="Also write maps of noise and of doubt (standard deviations), as 16-bit TIFF and as PNG.",
        ),
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
    pattern: Annotated[
        str | None, typer.Option(help="RGGB, BGGR, GRBG or GBRG.", show_default="what the file says")
    ] = None,
    tile: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Side of a tile; smaller needs less memory and more time.",
            show_default="1536; on a GPU what fits",
        ),
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Files at a time, each in its own process.")] = 1,
    overwrite: Annotated[
        bool, typer.Option("--overwrite/--keep", help="Develop what has been developed before.")
    ] = False,
    device: Device = "auto",
    engine: EngineName = "auto",
    threads: Threads = None,
    json_: Json = False,
) -> None:
    """Develop camera raws: NAME-debayes.dng, clean and linear, for any raw converter; or pictures to look at.

    What is there already is skipped, so an interrupted folder goes on where it stopped. A file that cannot be
    developed is named at the end, and the others are developed all the same; the exit code is then 1.
    """
    from debayes.system import malloc

    malloc.unite()  # before NumPy and PyTorch start their threads

    from debayes.cli.terminal import batch_bar
    from debayes.darkroom import batch, file
    from debayes.imaging import cfa, color

    to = {"jpg": "jpeg", "tif": "tiff"}.get(to, to)
    if to not in file.FORMATS:
        raise ValueError(f"pictures are developed to {', '.join(file.FORMATS)}, not {to!r}")
    if space not in color.SPACES:
        raise ValueError(f"the colours are those of {' or '.join(color.SPACES)}, not {space!r}")
    if to == "dng" and (exposure, space, quality) != (0.0, "srgb", 95):
        raise ValueError("--exposure, --space and --quality are for rendered pictures: add --to tiff, png or jpeg")
    if threads is not None and threads < jobs:
        raise ValueError(f"--jobs {jobs} need a thread each: give --threads {jobs} or more")
    if pattern is not None:
        cfa.check_pattern(pattern.upper())
    if output is not None and output.suffix.lower() in file.FORMATS.values() and not output.exists():
        raise ValueError(f"--output is a folder, not a file like {output}: each picture has the name of its raw")
    place = find_device(device)
    plan = batch.plan(photos, output, file.FORMATS[to])
    if output is not None:
        make_folder(output)
    settings = file.Settings(
        ensemble=ensemble,
        adapt=adapt,
        strength=strength,
        with_maps=maps,
        tile=tile,
        black=black,
        white=white,
        pattern=pattern and pattern.upper(),
        exposure=exposure,
        space=space,
        quality=quality,
    )
    outcomes = []
    with batch_bar(len(plan)) as (report, say):
        for outcome in batch.run(
            plan,
            choose_raw_model(model, place),
            settings,
            device=place,
            engine=engine,
            processes=jobs,
            overwrite=overwrite,
            progress=lambda job, share: report(job.source.name, share),
        ):
            outcomes.append(outcome)
            answer = outcome.answer or {}
            say(answer.get("width", 0) * answer.get("height", 0), "" if json_ else _outcome(outcome))
    outcomes.sort(key=lambda outcome: plan.index(outcome.job))
    failed = [outcome.error for outcome in outcomes if outcome.error]
    if json_:
        found = [
            {"source": str(o.job.source), "written": [], "skipped": o.skipped, "error": o.error} | (o.answer or {})
            for o in outcomes
        ]
        show(found, True, "")
    elif len(outcomes) > 1:
        skipped = sum(outcome.skipped for outcome in outcomes)
        done = len(outcomes) - skipped - len(failed)
        again = " (--overwrite develops them anew)" if skipped else ""
        typer.echo(f"{done} developed, {skipped} were there already{again}, {len(failed)} failed")
    for error in failed:
        typer.echo(f"debayes: {error}", err=True)
    if failed:
        raise typer.Exit(1)


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
        bool,
        typer.Option("--maps/--no-maps", help="Also write maps of noise and of doubt, as 16-bit TIFF and as PNG."),
    ] = False,
    tile: Annotated[
        int | None,
        typer.Option(help="Side of a tile; smaller needs less memory.", show_default="1536; on a GPU what fits"),
    ] = None,
    device: Device = "auto",
    engine: EngineName = "auto",
    threads: Threads = None,
    json_: Json = False,
) -> None:
    """Restore a mosaic file: demosaicked, denoised, with maps of noise and doubt."""
    from debayes.cli.terminal import progress_bar
    from debayes.darkroom.mosaics import restore_file
    from debayes.engine import prepare

    network = prepare(load_network(model, device), engine)
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
    known = " (not recorded: --pattern if it is another)" if answer["assumed"] else ""
    adapted = f", adapted {answer['adapted']['steps']} steps ({answer['adapted']['reason']})" if adapt else ""
    show(
        answer,
        json_,
        f"{', '.join(answer['written'])}  {answer['width']}x{answer['height']} {answer['pattern']}{known}, "
        f"mean noise {answer['sigma']:.1f}/255{adapted}",
    )


def simulate(
    images: Annotated[list[Path], typer.Argument(help="Colour pictures.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write to; made if missing.")],
    pattern: Pattern = "RGGB",
    noise: Annotated[
        str | None,
        typer.Option(help="gaussian, varying, uniform, poisson or brown; not of a DNG.", show_default="gaussian"),
    ] = None,
    sigma: Annotated[
        float | None,
        typer.Option(
            help="Noise level in 1/255; the highest one of varying, the read noise of poisson; not of a DNG.",
            show_default="10",
        ),
    ] = None,
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
    threads: Threads = None,
    json_: Json = False,
) -> None:
    """Make noisy mosaics of pictures: NAME.mosaic.tiff, which remembers its pattern (PNG and NPY do not).

    With --to dng, a virtual camera shoots the pictures: NAME.dng, and NAME.truth.tiff, which is what a camera
    without noise and with all colours everywhere would have seen.
    """
    from debayes.cli.terminal import progress_bar
    from debayes.darkroom.mosaics import simulate_file, simulate_raw

    if to not in ("tiff", "npy", "png", "dng"):
        raise ValueError(f"mosaics are written to tiff, npy, png or dng, not {to!r}")
    if to != "dng" and (iso is not None or exposure is not None):
        raise ValueError(f"only a dng has an ISO speed and an exposure, not a {to}")
    if to == "dng" and not (noise is None and sigma is None and gain is None):
        raise ValueError("the noise of a dng is that of its --iso: leave --noise, --sigma and --gain out")
    targets = [output / (f"{path.stem}.dng" if to == "dng" else f"{path.stem}.mosaic.{to}") for path in images]
    if len(set(targets)) < len(targets):
        raise ValueError("two of the pictures have the same name: write them to different folders")
    make_folder(output)
    answers = []
    with progress_bar("simulating") as progress:
        for i, (path, target) in enumerate(zip(images, targets, strict=True)):
            cell, own = pattern.upper(), seed * SEEDS + i
            if to == "dng":
                speed, stops = 1600.0 if iso is None else iso, exposure or 0.0
                answers.append(simulate_raw(path, target, iso=speed, pattern=cell, stops=stops, seed=own))
            else:
                kind, level = noise or "gaussian", 10.0 if sigma is None else sigma
                answers.append(
                    simulate_file(path, target, pattern=cell, kind=kind, sigma=level, gain=gain, seed=own)
                )
            progress((i + 1) / len(images))
    names = [" ".join(w) if isinstance(w := answer["written"], list) else w for answer in answers]
    show(answers, json_, "\n".join(names))
    if to in ("npy", "png"):
        typer.echo(f"{to} keeps no pattern: restore with --pattern {pattern.upper()}", err=True)


def info(
    what: Annotated[
        str | None,
        typer.Argument(
            help="A camera raw, a picture, a mosaic, a weight file or a model's name; all models if none."
        ),
    ] = None,
    device: Device = "auto",
    threads: Threads = None,
    json_: Json = False,
) -> None:
    """Say what a file holds; or what a model is, where it came from and how well it does.

    Of a camera raw: the shot, its noise, which model would develop it and how long that would take here.
    """
    from debayes.darkroom import file
    from debayes.formats import pictures, raw
    from debayes.network import weights

    if what is not None and Path(what).suffix.lower() in raw.ENDINGS:
        place = find_device(device)
        facts = file.describe(Path(what), choose_raw_model("auto", place), place)
        show(facts, json_, "\n".join(indent(facts, "")))
        return
    if what is not None and Path(what).suffix.lower() in pictures.PICTURES:
        answer: dict[str, Any] = pictures.describe(Path(what))
        show(answer, json_, "\n".join(f"{key:<10} {value}" for key, value in answer.items()))
        return
    cards = {name: _describe_model(name) for name in ([what] if what else weights.shipped())}
    short = {name: card | {"licences": _most(card["licences"])} for name, card in cards.items()}
    text = "\n".join(line for name, card in short.items() for line in (name, *indent(card, "  ")))
    show(cards, json_, text or "no model is shipped with this installation")


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
    threads: Threads = None,
    json_: Json = False,
) -> None:
    """Make a noisy raw of a free photograph, develop it, and draw before and after."""
    from debayes.cli.terminal import progress_bar
    from debayes.network.weights import load
    from debayes.reproduction.demo import demonstrate

    make_folder(output)
    place = find_device(device)
    network = load(choose_raw_model(model, place), device=place)
    with progress_bar("developing") as progress:
        answer = demonstrate(network, output, iso=iso, ensemble=ensemble, progress=progress)
    text = [f"PSNR {name:<9} {value:6.2f} dB" for name, value in answer["psnr"].items()]
    level = {name: 100 * value for name, value in answer["noise"].items()}
    noise = f"mean noise     {level['added']:6.2f} % of white added, {level['found']:.2f} % found"
    claimed, held = (100 * answer["interval"][key] for key in ("level", "holds"))
    bars = f"error bars     {held:6.1f} % of the truth in those of {claimed:g} %"
    show(answer, json_, "\n".join([*text, noise, bars, f"picture        {answer['picture']}"]))


def _outcome(outcome: "Outcome") -> str:
    """One line about one developed file."""
    if outcome.error:
        return ""
    if outcome.answer is None:
        return f"{outcome.job.target} was there already (--overwrite makes it again)"
    answer = outcome.answer
    kind = "stored" if answer["profile"]["stored"] else "estimated"
    level = (answer["profile"]["gain"] * 0.18 + answer["profile"]["floor"]) ** 0.5
    line = f"{', '.join(answer['written'])}  {answer['width']}x{answer['height']} {answer['pattern']}"
    line += f", noise {100 * level:.2g} % of white at middle grey ({kind})"
    if "adapted" in answer:
        line += f", adapted {answer['adapted']['steps']} steps ({answer['adapted']['reason']})"
    return "; ".join((line, *answer["assumed"]))


def _most(licences: dict[str, int], many: int = 8) -> dict[str, int]:
    """The licences that most photographs are under, and how many are under others."""
    common = dict(list(licences.items())[:many])
    rest = sum(licences.values()) - sum(common.values())
    return common | ({"others (--json names them)": rest} if rest else {})


def _describe_model(name: str) -> dict[str, Any]:
    from debayes.network import weights

    card, network = weights.read_card(name), weights.load(name)
    return {
        "file": str(weights.locate(name)),
        "parameters": network.parameter_count,
        "kmac_per_pixel": round(network.kmac_per_pixel, 1),
        "receptive_radius": card.config.receptive_radius,
        "network": {k: list(v) if isinstance(v, tuple) else v for k, v in vars(card.config).items()},
        "recipe": card.recipe,
        "results": card.results,
        **card.notes,
        "licences": json.loads(card.notes.get("licences", "{}")),
    }
