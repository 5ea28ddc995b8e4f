"""What the commands share: options, and how they find a device, a model and a folder, and print an answer.

Tested in tests/cli/test_cli.py.
"""

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from debayes.system import cores, log
from debayes.system.errors import DebayesError

if TYPE_CHECKING:
    from debayes.network.network import Network

# Headings of the options in --help.
OUTPUT, SENSOR, MACHINE, MESSAGES = "Output", "Sensor", "Machine", "Messages"


def _limit_threads(threads: int | None) -> int | None:
    """Done while the command line is read, before anything imports PyTorch."""
    cores.limit(threads)
    return threads


def _show_log(verbosity: int) -> int:
    if verbosity:  # given to the program or to the command: the other must not undo it
        log.show(verbosity)
    return verbosity


Model = Annotated[str, typer.Option("--model", "-m", help="A shipped model's name or a weight file.")]
RawModel = Annotated[
    str,
    typer.Option("--model", "-m", help="A model's name or a weight file.", show_default="raw-s; raw-l on a GPU"),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        min=1,
        help="CPU threads, over all jobs.",
        show_default="as many as cores",
        callback=_limit_threads,
        rich_help_panel=MACHINE,
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.", rich_help_panel=MACHINE)]
EngineName = Annotated[
    str,
    typer.Option(
        "--engine",
        help="How networks are run: auto, eager, half, winograd, compile, ncnn, onnxruntime or openvino.",
        rich_help_panel=MACHINE,
    ),
]
Tile = Annotated[
    int | None,
    typer.Option(
        help="Side of a tile in photosites; smaller tiles need less memory and more time.",
        show_default="1536; on a GPU what fits",
        rich_help_panel=MACHINE,
    ),
]
Ensemble = Annotated[
    bool,
    typer.Option(
        "--ensemble/--no-ensemble", help="Average over the eight symmetries: a little better, 8 times slower."
    ),
]
Adapt = Annotated[
    int,
    typer.Option(
        min=0,
        help="If the noise is unlike that of the training: fine-tune the network to it first, in at most this many "
        "steps; 30 is a good number.",
    ),
]
Pattern = Annotated[str, typer.Option(help="RGGB, BGGR, GRBG or GBRG: the top-left 2x2 cell in reading order.")]
Json = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.", rich_help_panel=OUTPUT)]
Verbose = Annotated[
    int,
    typer.Option(
        "--verbose",
        "-v",
        count=True,
        help="Print what is decided and why; -vv prints details.",
        show_default=False,
        callback=_show_log,
        rich_help_panel=MESSAGES,
    ),
]
Debug = Annotated[bool, typer.Option("--debug", help="Print the traceback of an error.", rich_help_panel=MESSAGES)]
COMMON: dict[str, tuple[Any, Any]] = {"threads": (Threads, None), "verbose": (Verbose, 0), "debug": (Debug, False)}


def common_options(function: Callable[..., None]) -> Callable[..., None]:
    """The command with the options that all commands have. Their callbacks act on them, so they are not passed on
    to `function`, unless it takes them itself.
    """
    signature = inspect.signature(function)
    added = {name: option for name, option in COMMON.items() if name not in signature.parameters}

    def command(**arguments: Any) -> None:
        try:
            function(**{name: value for name, value in arguments.items() if name not in added})
        except KeyboardInterrupt:  # typer would end with code 130 and no message
            raise typer.Abort from None

    keyword = inspect.Parameter.KEYWORD_ONLY
    more = [
        inspect.Parameter(name, keyword, default=default, annotation=kind)
        for name, (kind, default) in added.items()
    ]
    parameters = [parameter.replace(kind=keyword) for parameter in signature.parameters.values()]
    paragraphs = (inspect.getdoc(function) or "").split("\n\n")
    command.__name__ = function.__name__
    command.__doc__ = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    command.__signature__ = signature.replace(parameters=[*parameters, *more])  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in (*parameters, *more)} | {"return": None}
    return command


def make_folder(path: Path) -> None:
    if path.exists() and not path.is_dir():
        raise DebayesError(f"{path} is a file: give a folder to write to")
    path.mkdir(parents=True, exist_ok=True)


def find_device(name: str) -> str:
    from debayes.network.device import find_device as find

    return str(find(name))


def load_network(model: str, device: str) -> "Network":
    """A network for mosaics of sRGB values."""
    from debayes.network.weights import check_domain, load

    check_domain(model, "srgb")
    return load(model, device=find_device(device))


def choose_raw_model(model: str, device: str) -> str:
    """The model to develop raws with, if none is named: the small one on a CPU, the large one on a GPU."""
    from debayes.network.weights import check_domain

    chosen = model if model != "auto" else ("raw-s" if device == "cpu" else "raw-l")
    log.log.info("model: %s", chosen)
    check_domain(chosen, "raw")
    return chosen


def indent(table: dict[str, Any], before: str) -> Iterator[str]:
    """The lines that show a nested table: indented, with each innermost table on one line."""
    for key, value in table.items():
        if isinstance(value, dict) and any(isinstance(inner, dict) for inner in value.values()):
            yield f"{before}{key}"
            yield from indent(value, before + "  ")
        elif isinstance(value, dict):
            yield f"{before}{key:<18} " + ", ".join(
                f"{name} {_short(inner)}" for name, inner in value.items() if inner is not None
            )
        elif value != "":
            yield f"{before}{key:<18} {_short(value)}"


def _short(value: Any) -> Any:
    """A number rounded to six digits."""
    return f"{value:.6g}" if isinstance(value, float) else value


def show(answer: Any, as_json: bool, text: str) -> None:
    from debayes.system.files import to_json

    typer.echo(to_json(answer, indent=2) if as_json else text)
