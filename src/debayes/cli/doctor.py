"""The command doctor. Heavy modules are imported inside."""

from collections.abc import Iterator
from typing import Any

import typer

from debayes.cli.options import Device, Json, choose_raw_model, find_device, show
from debayes.system import errors


def doctor(device: Device = "auto", json_: Json = False) -> None:
    """Say what is installed, what this machine has and which engine is used and why; test it on a simulated raw.

    Paste the output into reports of errors. The exit code is 2 if the test failed.
    """
    from debayes import __version__
    from debayes.darkroom.doctor import examine

    place = find_device(device)
    facts = {"debayes": __version__, **examine(choose_raw_model("auto", place), place)}
    show(facts, json_, "\n".join(f"{name:<13} {text}" for name, text in _lines(facts)))
    if not facts["test"]["passed"]:
        raise typer.Exit(errors.FAILED)


def _lines(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What is printed: a heading and a text for each line."""
    yield "debayes", f"{facts['debayes']}, Python {facts['python']}, {facts['system']}"
    yield from _packages(facts["packages"])
    yield "processor", f"{facts['processor']['name']}; units: {', '.join(facts['processor']['units'])}"
    yield "cores", _cores(facts["cores"])
    total, available = facts["memory"]["total"], facts["memory"]["available"]
    yield "memory", f"{_gigabytes(total)}, {_gigabytes(available)} available"
    yield from _gpus(facts["gpus"])
    yield from _engines(facts)
    yield "winograd", facts["winograd"]
    yield "exiftool", facts["exiftool"] or "not installed: XMP, IPTC and some makers' notes are not copied"
    yield "browser", facts["browser"] or "none"
    yield from _test(facts["test"])


def _packages(packages: dict[str, dict[str, str | None]]) -> Iterator[tuple[str, str]]:
    if not packages:
        yield "packages", "unknown: debayes is not installed, but found on a path"
    for extra, versions in packages.items():
        found = [f"{name} {number}" for name, number in versions.items() if number]
        missing = [name for name, number in versions.items() if number is None]
        hint = f'pip install "debayes[{extra}]"' if extra else "pip install debayes"
        text = ", ".join(found) + ("; " * bool(found) + f"missing {', '.join(missing)}: {hint}") * bool(missing)
        yield (f"[{extra}]" if extra else "packages"), text


def _cores(facts: dict[str, Any]) -> str:
    text = f"{facts['usable']} of {facts['machine']} usable, {facts['threads']} threads of PyTorch"
    if facts["quota"] is not None:
        text += f", CPU quota {facts['quota']:g}"
    return text + "".join(f", {name}={value}" for name, value in facts["environment"].items())


def _gpus(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    built = f"PyTorch is built for {facts['pytorch_built_for']}"
    if not facts["found"]:
        yield "GPU", f"none that PyTorch can use; {built}"
    for gpu in facts["found"]:
        more = f", compute capability {gpu['capability']}, {_gigabytes(gpu['memory'])}" if "memory" in gpu else ""
        yield "GPU", f"{gpu['name']}{more}; {built}"


def _engines(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    table = facts["engines"]
    size = f"a raw of {table['megapixels']:g} megapixels with {facts['model']}"
    yield "engine", f"{table['auto']}, on {facts['device']}: by measured speeds the fastest of these for {size}"
    for name, state in table["each"].items():
        if state["obstacle"]:
            yield "", f"{name:<12} no: {state['obstacle']}"
        elif state["seconds"] is None:
            yield "", f"{name:<12} can run, was not measured"
        else:
            yield "", f"{name:<12} about {state['seconds']:.2g} seconds on the machine of the measurement"


def _test(trial: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if not trial["passed"]:
        yield "test", "FAILED: " + "; ".join(trial["messages"])
    else:
        done = f"a simulated raw was developed in {trial['seconds']:.1f} seconds"
        yield "test", f"passed: {done} with {trial['engine']}; the error is {trial['error']:.2f} times its noise"
        yield from (("", message) for message in trial["messages"])


def _gigabytes(size: int | None) -> str:
    return "unknown" if size is None else f"{size / 1e9:.1f} GB"
