"""What the commands share: options, and how they find a device, a model, a folder, and answer."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from debayes.system import cores

if TYPE_CHECKING:
    from debayes.network.network import Network


def _limit(threads: int | None) -> int | None:
    """Done while the command line is read, before anything imports PyTorch."""
    cores.limit(threads)
    return threads


Model = Annotated[str, typer.Option("--model", "-m", help="A shipped model's name or a weight file.")]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        min=1,
        help="Threads on the CPU, over all jobs.",
        show_default="as many as cores",
        callback=_limit,
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]
EngineName = Annotated[
    str,
    typer.Option(
        "--engine",
        help="How networks are run: auto, eager, half, winograd, compile, ncnn, onnxruntime or openvino.",
    ),
]
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


def make_folder(path: Path) -> None:
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path} is a file: give a folder to write to")
    path.mkdir(parents=True, exist_ok=True)


def find_device(name: str) -> str:
    from debayes.network.device import find_device as find

    return str(find(name))


def load_network(model: str, device: str) -> "Network":
    """A network for mosaics of pictures."""
    from debayes.network.weights import check_domain, load

    check_domain(model, "srgb")
    return load(model, device=find_device(device))


def choose_raw_model(model: str, device: str) -> str:
    """The model that develops raws if none is named: the small one on a CPU, the large one on a GPU."""
    from debayes.network.weights import check_domain

    chosen = model if model != "auto" else ("raw-s" if device == "cpu" else "raw-l")
    check_domain(chosen, "raw")
    return chosen


def indent(table: dict[str, Any], before: str) -> Iterator[str]:
    """A nested table as indented lines; one that holds no tables on one line."""
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
    """A number without more digits than it is worth."""
    return f"{value:.6g}" if isinstance(value, float) else value


def show(answer: Any, as_json: bool, text: str) -> None:
    from debayes.system.files import to_json

    typer.echo(to_json(answer, indent=2) if as_json else text)
