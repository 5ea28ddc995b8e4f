"""The commands for engineers: prune, blend, calibrate, export, bench. Heavy modules are imported inside."""

from pathlib import Path
from typing import Annotated

import typer

from debayes.cli.options import Device, Json, Threads, find_device, show


def prune(
    model: Annotated[str, typer.Argument(help="A model's name or a weight file.")],
    recipe: Annotated[Path, typer.Argument(help="Its recipe, whose mosaics the channels are watched on.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The weight file to write.")],
    data: Annotated[Path, typer.Option(envvar="DEBAYES_DATA", help="Where the recipe's data lie.")] = Path(),
    patches: Annotated[int, typer.Option(min=8, help="How many patches to watch them on.")] = 512,
    device: Device = "auto",
    threads: Threads = None,
    json_: Json = False,
) -> None:
    """Take channels and blocks that do nothing out of a network: the same pixels, sooner.

    A block keeps a power of two of channels, at least 32, as matrix units like, or none.
    """
    from debayes.cli.terminal import progress_bar
    from debayes.training.pruning import prune_file
    from debayes.training.recipe import read_recipe

    plan = read_recipe(recipe)
    with progress_bar("watching channels") as progress:
        answer = prune_file(
            model, output, plan, root=data, patches=patches, device=find_device(device), progress=progress
        )
    (whole, left), (work, less), (before, after) = (
        answer[key] for key in ("parameters", "kmac_per_pixel", "val_psnr")
    )
    judged = f"; val {after:.3f} dB, was {before:.3f}" if before is not None else ""
    show(
        answer,
        json_,
        f"{output}  {answer['idle']} of {answer['channels']} channels are idle; "
        f"{left / 1e6:.2f} of {whole / 1e6:.2f} million weights, {less:.0f} of {work:.0f} kMAC a pixel{judged}",
    )


def blend(
    models: Annotated[list[str], typer.Argument(help="Models or weight files of one shape.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The weight file to write.")],
    share: Annotated[
        list[float] | None, typer.Option(help="What each counts; together they are 1.", show_default="all alike")
    ] = None,
    judge: Annotated[Path | None, typer.Option(help="A folder of pictures to judge them all on.")] = None,
    threads: Threads = None,
    json_: Json = False,
) -> None:
    """Write the mean of the weights of several trainings that went on from one start.

    It may be better than any of them: what they learnt adds up, their chance averages out. Shares may be below 0.
    The file has the recipe of the last one, and names them all. Calibrate what comes out.
    """
    from debayes.cli.terminal import progress_bar
    from debayes.training.blending import blend_file

    with progress_bar("judging") as progress:
        answer = blend_file(models, output, shares=share or (), val=judge, progress=progress)
    judged = [
        f"{psnr:.3f} dB  {name}" for name, psnr in zip([*models, str(output)], answer["val_psnr"], strict=False)
    ]
    show(answer, json_, "\n".join(judged) or str(output))


def calibrate(
    model: Annotated[str, typer.Argument(help="A model's name or a weight file.")],
    pictures: Annotated[
        list[Path],
        typer.Argument(help="Folders or zips of pictures that it was not trained on, of 256x256 or more."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The weight file to write.")],
    recipe: Annotated[
        Path | None, typer.Option(help="A recipe whose noise they get, if not that of the model's own.")
    ] = None,
    patches: Annotated[int, typer.Option(min=8, help="How many patches of them to look at.")] = 384,
    device: Device = "auto",
    threads: Threads = None,
    json_: Json = False,
) -> None:
    """Fit a network's doubt to the errors it makes, so that 90 % intervals hold 90 % of the truth.

    The image stays the same. What is printed was measured on a quarter of the patches, those of the last pictures
    by name, which the fit has not seen.
    """
    from debayes.cli.terminal import progress_bar
    from debayes.training.calibration import calibrate_file
    from debayes.training.recipe import read_recipe

    noise = read_recipe(recipe).noise if recipe is not None else None
    with progress_bar("looking at errors") as progress:
        answer = calibrate_file(
            model, pictures, output, noise=noise, patches=patches, device=find_device(device), progress=progress
        )
    lines = [str(output)]
    for when in ("before", "after"):
        found = answer[when]
        shares = [
            f"{100 * level:g} % intervals hold {100 * share:.1f} %"
            for level, share in zip(answer["levels"], found["coverage"], strict=True)
        ]
        lines.append(
            f"{when:<7} {', '.join(shares)}; calibration error {found['calibration_error']:.3f}, "
            f"NLL {found['nll']:.2f}, AUSE {found['ause']:.3f}"
        )
    show(answer, json_, "\n".join(lines))


def export(
    model: Annotated[str, typer.Argument(help="A model's name or a weight file.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The file: NAME.onnx, or NAME.param for ncnn.")],
    to: Annotated[str, typer.Option(help="onnx (all of the network), or ncnn (its convolutions).")] = "onnx",
    image: Annotated[
        bool, typer.Option("--image", help="The picture alone, without the maps of noise and doubt: less work.")
    ] = False,
    threads: Threads = None,
    json_: Json = False,
) -> None:
    """Write a network for other runtimes, run what was written, and compare.

    docs/export.md says how a program uses it.
    """
    from debayes.engine.export import export_file

    answer = export_file(model, output, to, image=image)
    show(
        answer,
        json_,
        f"{', '.join(answer['written'])}  {answer['megabytes']:.1f} MB, runs in {answer['runtime']} "
        f"and differs by {answer['difference']:.1e} at most",
    )


def bench(
    model: Annotated[
        list[str] | None,
        typer.Option("--model", "-m", help="Models or weight files.", show_default="wild-s wild-l"),
    ] = None,
    megapixels: Annotated[float, typer.Option(min=0.1, help="The size of the mosaic.")] = 6.0,
    device: Device = "auto",
    engine: Annotated[
        list[str] | None, typer.Option(help="The engines to try.", show_default="all that run here, but compile")
    ] = None,
    threads: Threads = None,
    json_: Json = False,
) -> None:
    """Measure how fast networks run on this machine, with each engine, and which one auto takes.

    With the defaults that is five minutes on two cores, most of them for wild-l.
    """
    from debayes.cli.terminal import progress_bar
    from debayes.evaluation.throughput import measure_engines, table

    place = find_device(device)
    with progress_bar("measuring") as progress:
        found = measure_engines(model or ["wild-s", "wild-l"], megapixels, place, engine, progress)
    show([vars(speed) for speed in found], json_, table(found))
