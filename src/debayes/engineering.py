"""The commands for engineers: export, bench. Heavy modules are imported inside."""

from pathlib import Path
from typing import Annotated

import typer

from debayes.options import Device, Json, find_device, show


def export(
    model: Annotated[str, typer.Argument(help="A model's name or a weight file.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The file: NAME.onnx, or NAME.param for ncnn.")],
    to: Annotated[str, typer.Option(help="onnx (all of the network), or ncnn (its convolutions).")] = "onnx",
    image: Annotated[
        bool, typer.Option("--image", help="The picture alone, without the maps of noise and doubt: less work.")
    ] = False,
    json_: Json = False,
) -> None:
    """Write a network for other runtimes, run what was written, and compare.

    docs/export.md says how a program uses it.
    """
    from debayes.exchange import export_file

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
    json_: Json = False,
) -> None:
    """Measure how fast networks run on this machine, with each engine, and which one auto takes."""
    from debayes.speed import measure_engines, table
    from debayes.terminal import progress_bar

    place = find_device(device)
    with progress_bar("measuring") as progress:
        found = measure_engines(model or ["wild-s", "wild-l"], megapixels, place, engine, progress)
    show([vars(speed) for speed in found], json_, table(found))
