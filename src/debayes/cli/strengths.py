"""The command strengths. Heavy modules are imported inside. Tested in tests/cli/test_cli_raws.py."""

from pathlib import Path
from typing import Annotated

import typer

from debayes.cli.options import Device, EngineName, Json, RawModel, Tile, choose_raw_model, find_device, show


def strengths(
    photo: Annotated[Path, typer.Argument(help="A camera raw.")],
    crop: Annotated[
        tuple[int, int, int, int] | None,
        typer.Option(
            metavar="X Y W H",
            help="Left, top, width and height of the crop, in pixels of the upright picture.",
            show_default="320x320 pixels at the centre",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The PNG to write.", show_default="NAME-debayes.strengths.png"),
    ] = None,
    exposure: Annotated[float, typer.Option(help="Brighten the crops by this many stops.")] = 0.0,
    model: RawModel = "auto",
    tile: Tile = None,
    device: Device = "auto",
    engine: EngineName = "auto",
    json_: Json = False,
) -> None:
    """Show one crop at six strengths beside each other, to choose the --strength of develop.

    Look at the strip at 100 %: a pixel of it is one of the picture.
    """
    from debayes.darkroom import batch
    from debayes.darkroom.strengths import STRENGTHS, compare
    from debayes.engine import prepare
    from debayes.network.weights import load

    place = find_device(device)
    network = prepare(load(choose_raw_model(model, place), device=place), engine)
    target = output or photo.with_name(f"{photo.stem}{batch.MARK}.strengths.png")
    box = compare(network, photo, target, crop=crop, exposure=exposure, tile=tile)
    numbers = ", ".join(f"{strength:g}" for strength in STRENGTHS)
    show(
        {"written": [str(target)], "strengths": list(STRENGTHS), "crop": list(box)},
        json_,
        f"{target}  strengths {numbers} of the crop {' '.join(map(str, box))} (left, top, width, height)",
    )
