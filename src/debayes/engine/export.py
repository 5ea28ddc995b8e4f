"""Writing networks in the formats of other runtimes: ONNX, which nearly all of them read, and ncnn's own."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from debayes.engine.ncnn import build_ncnn, compare_ncnn
from debayes.engine.onnx import build_onnx, compare_onnx
from debayes.engine.staged_unet import trace_folded
from debayes.network.config import BORDER
from debayes.network.weights import Card, read
from debayes.system.errors import DebayesError
from debayes.system.files import check_target, replace

# The largest difference from the network that is accepted of another runtime.
TOLERANCE = 1e-4


def export_file(model: str | Path, target: Path, kind: str, *, image: bool = False) -> dict[str, Any]:
    """Write a model for another runtime ("onnx" or "ncnn"), after running it there to compare.

    With `image` the model has no noise and doubt maps. The answer says what was written and the largest difference.
    """
    endings = {"onnx": ".onnx", "ncnn": ".param"}
    if kind not in endings:
        raise DebayesError(f"networks are exported to {' or '.join(endings)}, not {kind!r}")
    if target.suffix != endings[kind]:
        raise DebayesError(f"the file of {kind} is named NAME{endings[kind]}, not {target.name}")
    needed = ("onnx", "onnxruntime") if kind == "onnx" else ("ncnn",)
    for module in needed:
        if find_spec(module) is None:
            raise DebayesError(f'exporting to {kind} needs {module}: pip install "debayes[{needed[-1]}]"')
    for path in (target, target.with_suffix(".bin")) if kind == "ncnn" else (target,):
        check_target(path)
    file = read(model)
    network = file.network().mean_only() if image else file.network()
    if kind == "onnx":
        notes = describe(model, file.card)
        if image:
            del notes["noise_variance"], notes["mean_variance"]
        built = build_onnx(network, notes).SerializeToString()
        difference = compare_onnx(network, built)
        written = {target: built}
    else:
        steps = trace_folded(network)
        text, data = build_ncnn(steps)
        difference = compare_ncnn(network, steps, text, data)
        written = {target: text.encode(), target.with_suffix(".bin"): data}
    if not difference <= TOLERANCE:
        raise DebayesError(
            f"{needed[-1]} computes {model} with an error of {difference:.1e}, where {TOLERANCE:g} is allowed: "
            "nothing is written"
        )
    for path, content in written.items():
        with replace(path) as temporary:
            temporary.write_bytes(content)
    return {
        "model": str(model),
        "written": [str(path) for path in written],
        "megabytes": sum(len(content) for content in written.values()) / 1e6,
        "runtime": needed[-1],
        "difference": difference,
    }


def describe(model: str | Path, card: Card) -> dict[str, str]:
    """What a program that runs a network must know, for the metadata of its file."""
    return {
        "model": Path(model).stem,
        "pattern": "RGGB",
        "domain": card.domain,
        "stride": str(card.config.stride),
        "receptive_radius": str(card.config.receptive_radius),
        "border": str(-(-BORDER // card.config.stride) * card.config.stride),
        "black": "0",
        "white": "1",
        "mean": "loc",
        "noise_variance": "rate / (concentration - 1)",
        "mean_variance": "rate / (count * (concentration - 1))",
        "licences": card.notes.get("licences", ""),
    }
