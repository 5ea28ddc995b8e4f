"""The command `info`: what a file or a model is. Heavy modules are imported inside."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from debayes.cli.options import Device, Json, choose_raw_model, find_device, indent, show


def info(
    what: Annotated[
        str | None,
        typer.Argument(
            help="A camera raw, a picture, a mosaic, a weight file or a model's name; without it, all models."
        ),
    ] = None,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Describe a file or a model: size, levels, pattern and noise; weights, recipe, licences and results.

    Of a camera raw also: the shot, which model would develop it, and about how long that would take here.
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
