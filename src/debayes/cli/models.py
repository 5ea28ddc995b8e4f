"""The commands for models: info, prune, blend, calibrate, export, bench. Heavy modules are imported inside."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from debayes.cli.options import Device, Json, choose_raw_model, find_device, indent, show
from debayes.system import errors
from debayes.system.errors import DebayesError


def info(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            help="Camera raws, folders of them, pictures, mosaics, weight files or models' names; without any, all "
            "models.",
            show_default=False,
        ),
    ] = None,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Describe files and models: size, levels, pattern and noise; weights, recipe, licences and results.

    Of a camera raw also: the shot, everything that shapes its picture, and which model and engine would develop it.
    With --json one file's facts are printed alone, those of several and of models by their names.
    """
    from debayes.network import weights

    names = [name for given in what for name in _inside(given)] if what else weights.shipped()
    answers: dict[str, dict[str, Any]] = {}
    failed: list[str] = []
    for name in names:
        try:
            answers[name] = _describe(name, device)
        except (DebayesError, OSError) as error:
            if len(names) == 1:
                raise
            failed.append(errors.one_line(error))
    alone = len(names) == 1 and _is_file(names[0])
    short = {
        name: facts | {"licences": _most(facts["licences"])} if "licences" in facts else facts
        for name, facts in answers.items()
    }
    lines = (
        indent(answers[names[0]], "")
        if alone
        else (line for name, facts in short.items() for line in (name, *indent(facts, "  ")))
    )
    text = "\n".join(lines)
    show(answers[names[0]] if alone else answers, json_, text or "no model is shipped with this installation")
    for line in failed:
        typer.echo(f"debayes: {line}", err=True)
    if failed:
        raise typer.Exit(errors.SOME_FAILED if answers else errors.FAILED)


def _inside(name: str) -> list[str]:
    """The file or model itself, or the raws of a folder."""
    from debayes.darkroom import batch
    from debayes.formats import raw
    from debayes.network import weights

    if not Path(name).is_dir() or name in weights.shipped():
        return [name]
    found = [str(path) for path in raw.find(Path(name)) if not batch.is_own(path)]
    if not found:
        raise DebayesError(
            f"the folder {name} holds no camera raws: give camera raws, pictures, mosaics, weight files or models"
        )
    return found


def _is_file(name: str) -> bool:
    """Whether a name is that of a raw or a picture by its ending; others are models."""
    from debayes.formats import pictures, raw

    return Path(name).suffix.lower() in (*raw.ENDINGS, *pictures.PICTURES)


def _describe(name: str, device: str) -> dict[str, Any]:
    """The facts about a raw, a picture or a model."""
    from debayes.darkroom import description
    from debayes.formats import dng, pictures, raw

    path = Path(name)
    if path.suffix.lower() == ".dng" and dng.is_developed(path):
        return {"developed": "by debayes: info on the camera's own file describes the shot"}
    if path.suffix.lower() in raw.ENDINGS:
        place = find_device(device)
        return description.describe(path, choose_raw_model("auto", place), place)
    return pictures.describe(path) if _is_file(name) else _describe_model(name)


def prune(
    model: Annotated[str, typer.Argument(help="A model's name or a weight file.")],
    recipe: Annotated[
        Path, typer.Argument(help="Its recipe: channels are measured on mosaics as in its training.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The weight file to write.")],
    data: Annotated[Path, typer.Option(envvar="DEBAYES_DATA", help="The folder of the recipe's data.")] = Path(),
    patches: Annotated[int, typer.Option(min=8, help="Patches to measure channels on.")] = 512,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Remove channels and blocks of a network that have no effect: the same pixels, faster.

    A block keeps a power of two of channels, at least 32, which suits matrix units, or none.
    """
    from debayes.cli.terminal import progress_bar
    from debayes.training.pruning import prune_file
    from debayes.training.recipe import read_recipe

    plan = read_recipe(recipe)
    with progress_bar("measuring channels") as progress:
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
        f"{left / 1e6:.2f} of {whole / 1e6:.2f} million weights, {less:.0f} of {work:.0f} kMAC per pixel{judged}",
    )


def blend(
    models: Annotated[list[str], typer.Argument(help="Models or weight files of one shape.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The weight file to write.")],
    share: Annotated[
        list[float] | None,
        typer.Option(
            help="The weight of each model, in their order; they add up to 1. Give it once for each model.",
            show_default="equal",
        ),
    ] = None,
    judge: Annotated[Path | None, typer.Option(help="A folder of pictures to measure the PSNR of all on.")] = None,
    json_: Json = False,
) -> None:
    """Average the weights of several models that were trained on from the same start.

    It may be better than each of them: averaging weights cancels minibatch noise. Shares may be negative:
    --share 1.2 --share=-0.2. The file has the recipe of the last model and names all. Calibrate the result.
    """
    from debayes.cli.terminal import progress_bar
    from debayes.training.blending import blend_file

    with progress_bar("measuring") as progress:
        answer = blend_file(models, output, shares=share or (), val=judge, progress=progress)
    judged = [
        f"{psnr:.3f} dB  {name}" for name, psnr in zip([*models, str(output)], answer["val_psnr"], strict=False)
    ]
    show(answer, json_, "\n".join(judged) or str(output))


def calibrate(
    model: Annotated[str, typer.Argument(help="A model's name or a weight file.")],
    pictures: Annotated[
        list[Path],
        typer.Argument(help="Folders or zips of pictures of at least 256x256 that it was not trained on."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The weight file to write.")],
    recipe: Annotated[
        Path | None, typer.Option(help="A recipe whose noise to add.", show_default="the model's own")
    ] = None,
    patches: Annotated[int, typer.Option(min=8, help="Patches of them to measure errors on.")] = 384,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Fit a network's doubt to its errors, so that 90 % intervals contain 90 % of the true values.

    The image stays the same. The printed figures were measured on a quarter of the patches, those of the last
    pictures by name, which were not used for the fit.
    """
    from debayes.cli.terminal import progress_bar
    from debayes.training.calibration import calibrate_file
    from debayes.training.recipe import read_recipe

    noise = read_recipe(recipe).noise if recipe is not None else None
    with progress_bar("measuring errors") as progress:
        answer = calibrate_file(
            model, pictures, output, noise=noise, patches=patches, device=find_device(device), progress=progress
        )
    lines = [str(output)]
    for when in ("before", "after"):
        scores = answer[when]
        shares = [
            f"{100 * level:g} % intervals contain {100 * share:.1f} %"
            for level, share in zip(answer["levels"], scores["coverage"], strict=True)
        ]
        lines.append(
            f"{when:<7} {', '.join(shares)}; calibration error {scores['calibration_error']:.3f}, "
            f"NLL {scores['nll']:.2f}, AUSE {scores['ause']:.3f}"
        )
    show(answer, json_, "\n".join(lines))


def export(
    model: Annotated[str, typer.Argument(help="A model's name or a weight file.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The file: NAME.onnx, or NAME.param for ncnn.")],
    to: Annotated[str, typer.Option(help="onnx (the whole network), or ncnn (its convolutions).")] = "onnx",
    image: Annotated[
        bool, typer.Option("--image", help="The picture alone, without noise and doubt maps: less work.")
    ] = False,
    json_: Json = False,
) -> None:
    """Export a network to ONNX or ncnn, run the file, and compare its output.

    docs/export.md says how a program uses the file.
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
        list[str] | None,
        typer.Option(help="The engines to measure.", show_default="all that run here except compile"),
    ] = None,
    json_: Json = False,
) -> None:
    """Measure the speed of networks on this machine with each engine, and say which engine auto chooses.

    Options take several values: --model wild-s wild-l. With the defaults it takes five minutes on two cores, most
    of them for wild-l.
    """
    from debayes.cli.terminal import progress_lines
    from debayes.evaluation import throughput

    place, models = find_device(device), model or ["wild-s", "wild-l"]
    head = list(throughput.HEAD)  # printed with the first row

    def report(speed: throughput.Speed) -> None:
        for line in (*head, throughput.row(speed)):
            say(line)
        head.clear()

    with progress_lines("measuring") as (progress, say):
        speeds = throughput.measure_engines(models, megapixels, place, engine, progress, None if json_ else report)
    if json_:
        show([vars(speed) for speed in speeds], json_, "")


def _most(licences: dict[str, int], many: int = 8) -> dict[str, int]:
    """The licences that most photographs are under, and how many are under others."""
    common = dict(list(licences.items())[:many])
    rest = sum(licences.values()) - sum(common.values())
    return common | ({"others (--json names them)": rest} if rest else {})


def _describe_model(name: str) -> dict[str, Any]:
    from debayes.network import weights

    file = weights.read(name)
    card, network = file.card, file.network()
    return {
        "file": str(file.path),
        "parameters": network.parameter_count,
        "kmac_per_pixel": round(network.kmac_per_pixel, 1),
        "receptive_radius": card.config.receptive_radius,
        "network": {k: list(v) if isinstance(v, tuple) else v for k, v in vars(card.config).items()},
        "recipe": card.recipe,
        "results": card.results,
        **card.notes,
        "licences": json.loads(card.notes.get("licences", "{}")),
    }
