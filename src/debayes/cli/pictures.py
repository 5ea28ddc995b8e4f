"""The commands for pictures: develop, restore, simulate, demo. Heavy modules are imported inside.

Tested in tests/cli/test_cli_raws.py.
"""

from pathlib import Path
from typing import Annotated

import typer

from debayes.cli import outcomes
from debayes.cli.options import (
    MACHINE,
    OUTPUT,
    SENSOR,
    Adapt,
    Device,
    EngineName,
    Ensemble,
    Json,
    Model,
    Pattern,
    RawModel,
    Threads,
    Tile,
    choose_raw_model,
    find_device,
    load_network,
    make_folder,
    show,
)
from debayes.system.errors import DebayesError

# Distance of the seeds of two runs of `simulate`: pictures of different runs never share their noise.
SEED_STRIDE = 1_000_003


def develop(
    photos: Annotated[
        list[Path],
        typer.Argument(
            help="Camera raws or folders of them; or sensor counts in .npy or .tiff, with --pattern, --black and "
            "--white.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The folder to write to; made if missing.",
            show_default="beside the raw",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    to: Annotated[
        str,
        typer.Option(
            help="dng (linear, all metadata), or a rendered tiff (16 bit), png (16 bit) or jpeg; or several, as in "
            "dng,jpeg.",
            rich_help_panel=OUTPUT,
        ),
    ] = "dng",
    model: RawModel = "auto",
    ensemble: Ensemble = False,
    adapt: Adapt = 0,
    strength: Annotated[
        float, typer.Option(min=0, max=1, help="The share of the noise to remove; the rest stays as grain.")
    ] = 1.0,
    maps: Annotated[
        bool,
        typer.Option(
            "--maps/--no-maps",
            help="Also write maps of noise and doubt (standard deviations), as 16-bit TIFF and as PNG.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    before: Annotated[
        bool,
        typer.Option(
            "--before/--no-before",
            help="Also write NAME-debayes.before.jpg: plainly demosaicked, not denoised, rendered the same way.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    exposure: Annotated[
        float, typer.Option(help="Brighten a rendered picture by this many stops.", rich_help_panel=OUTPUT)
    ] = 0.0,
    space: Annotated[
        str, typer.Option(help="Colour space of a rendered picture: srgb or p3.", rich_help_panel=OUTPUT)
    ] = "srgb",
    quality: Annotated[int, typer.Option(min=1, max=99, help="JPEG quality.", rich_help_panel=OUTPUT)] = 95,
    black: Annotated[
        float | None,
        typer.Option(help="The count of black.", show_default="what the file says", rich_help_panel=SENSOR),
    ] = None,
    white: Annotated[
        float | None,
        typer.Option(help="The count of white.", show_default="what the file says", rich_help_panel=SENSOR),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(
            help="The colour pattern: RGGB, BGGR, GRBG or GBRG.",
            show_default="what the file says",
            rich_help_panel=SENSOR,
        ),
    ] = None,
    tile: Tile = None,
    jobs: Annotated[
        int,
        typer.Option(
            "--jobs", "-j", min=1, help="Files at a time, each in its own process.", rich_help_panel=MACHINE
        ),
    ] = 1,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite/--keep", help="Develop files again that are developed already.", rich_help_panel=OUTPUT
        ),
    ] = False,
    device: Device = "auto",
    engine: EngineName = "auto",
    threads: Threads = None,
    json_: Json = False,
) -> None:
    """Develop camera raws: NAME-debayes.dng, clean and linear, for any raw converter; or rendered pictures.

    Files that are developed already are skipped, so an interrupted folder can be continued. A file that cannot be
    developed is named at the end and does not stop the others; the exit code is then 1.
    """
    from debayes.cli.terminal import batch_bar
    from debayes.darkroom import batch, file, rendering
    from debayes.imaging import cfa

    formats = _parse_formats(to)
    is_dng_only = formats == ["dng"] and not before
    _check_rendering(space, is_dng_only=is_dng_only, is_asked=(exposure, space, quality) != (0.0, "srgb", 95))
    if threads is not None and threads < jobs:
        raise DebayesError(f"--jobs {jobs} need a thread each: give --threads {jobs} or more")
    if output is not None and output.suffix.lower() in rendering.ENDINGS and not output.exists():
        raise DebayesError(f"--output is a folder, not a file like {output}: each picture has the name of its raw")
    place = find_device(device)
    settings = file.Settings(
        ensemble=ensemble,
        adapt=adapt,
        strength=strength,
        with_maps=maps,
        tile=tile,
        black=black,
        white=white,
        pattern=None if pattern is None else cfa.check_pattern(pattern.upper()),
        exposure=exposure,
        space=space,
        quality=quality,
        also=tuple(rendering.FORMATS[name][0] for name in formats[1:]),
        before=before,
    )
    plan = batch.plan(photos, output, rendering.FORMATS[formats[0]][0])
    if output is not None:
        make_folder(output)
    done = []
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
            done.append(outcome)
            answer = outcome.answer or {}
            say(answer.get("width", 0) * answer.get("height", 0), "" if json_ else outcomes.describe(outcome))
    done.sort(key=lambda outcome: plan.index(outcome.job))
    outcomes.summarise(done, json_)


def _parse_formats(to: str) -> list[str]:
    """The formats of --to, each once: "dng,jpg" is dng and jpeg."""
    from debayes.darkroom import rendering

    names = [name.strip().lower() for name in to.split(",")]
    by_ending = {ending: name for name, endings in rendering.FORMATS.items() for ending in endings}
    names = list(dict.fromkeys(by_ending.get(f".{name}", name) for name in names))
    for name in names:
        if name not in rendering.FORMATS:
            raise DebayesError(f"pictures are developed to {', '.join(rendering.FORMATS)}, not {name!r}")
    return names


def _check_rendering(space: str, *, is_dng_only: bool, is_asked: bool) -> None:
    """Reject unknown colour spaces, and options of rendered pictures if none is written."""
    from debayes.darkroom import rendering
    from debayes.imaging import color

    if space not in color.SPACES:
        raise DebayesError(f"the colour space is {' or '.join(color.SPACES)}, not {space!r}")
    if is_dng_only and is_asked:
        raise DebayesError(
            "--exposure, --space and --quality are for rendered pictures: "
            f"add --to {' or '.join(rendering.RENDERED)}"
        )


def restore(
    mosaic: Annotated[Path, typer.Argument(help="The mosaic: PNG, TIFF or NPY; 8 bit, 16 bit or float.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The picture: .png, .tiff, .jpg or .npy.")],
    pattern: Annotated[
        str | None, typer.Option(help="RGGB, BGGR, GRBG or GBRG.", show_default="what the file records, or RGGB")
    ] = None,
    model: Model = "wild-s",
    ensemble: Ensemble = False,
    adapt: Adapt = 0,
    black: Annotated[float, typer.Option(help="The file's value of black.")] = 0.0,
    white: Annotated[
        float | None,
        typer.Option(help="The file's value of white.", show_default="the type's largest, 1 for floats"),
    ] = None,
    bits: Annotated[
        int | None,
        typer.Option(help="Bits per sample: 8, 16, or 32 for float.", show_default="16; 8 for JPEG, 32 for NPY"),
    ] = None,
    maps: Annotated[
        bool,
        typer.Option("--maps/--no-maps", help="Also write maps of noise and of doubt, as 16-bit TIFF and as PNG."),
    ] = False,
    tile: Tile = None,
    device: Device = "auto",
    engine: EngineName = "auto",
    json_: Json = False,
) -> None:
    """Demosaick and denoise a mosaic of sRGB values (PNG, TIFF or NPY), with maps of noise and doubt.

    For sensor counts, which are linear and not white balanced, use develop.
    """
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
    known = " (not recorded in the file: give --pattern if it is another)" if answer["assumed"] else ""
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
            help="Noise level in 1/255; with varying the highest, with poisson the read noise; not of a DNG.",
            show_default="10",
        ),
    ] = None,
    gain: Annotated[
        float | None,
        typer.Option(help="With poisson: what one photon adds to the signal; white is 1.", show_default="0.002"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the noise.")] = 0,
    iso: Annotated[
        float | None,
        typer.Option(
            help="Of a DNG: the ISO speed of the virtual camera, which sets its noise.", show_default="1600"
        ),
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
    """Make noisy mosaics of pictures: NAME.mosaic.tiff, which records its pattern (PNG and NPY do not).

    With --to dng a virtual camera takes the pictures: NAME.dng, and NAME.truth.tiff, the same shot without noise
    and with all colours at every pixel.
    """
    from debayes.cli.terminal import progress_bar
    from debayes.darkroom.mosaics import simulate_file, simulate_raw

    if to not in ("tiff", "npy", "png", "dng"):
        raise DebayesError(f"mosaics are written to tiff, npy, png or dng, not {to!r}")
    if to != "dng" and (iso is not None or exposure is not None):
        raise DebayesError(f"only a dng has an ISO speed and an exposure, not a {to}")
    if to == "dng" and not (noise is None and sigma is None and gain is None):
        raise DebayesError("the noise of a dng is that of its --iso: leave --noise, --sigma and --gain out")
    targets = [output / (f"{path.stem}.dng" if to == "dng" else f"{path.stem}.mosaic.{to}") for path in images]
    if len(set(targets)) < len(targets):
        raise DebayesError("two of the pictures have the same name: write them to different folders")
    make_folder(output)
    answers = []
    with progress_bar("simulating") as progress:
        for i, (path, target) in enumerate(zip(images, targets, strict=True)):
            cell, own = pattern.upper(), seed * SEED_STRIDE + i
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


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write to; made if missing.")] = Path(
        "demo"
    ),
    model: RawModel = "auto",
    iso: Annotated[
        float, typer.Option(help="The ISO speed of the virtual camera, which sets its noise.")
    ] = 12800.0,
    ensemble: Ensemble = False,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Make a noisy raw of a free photograph, develop it, and plot before and after."""
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
