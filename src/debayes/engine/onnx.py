"""Networks in the formats of other runtimes: ONNX, which nearly all of them read, and ncnn's own.

An ONNX file holds the whole network: a mosaic of any size in, the four maps of its posterior out, and what a
program needs to know in its metadata. ncnn's two files hold convolutions alone, from packed planes to maps.
"""

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor

from debayes.engine import graph
from debayes.engine.graph import Concatenation, Convolution, Graph, Rectifier, Step, Sum
from debayes.engine.staged_unet import fold
from debayes.imaging import cfa
from debayes.network.config import BORDER
from debayes.network.heads import FLOOR, MAPS, ONE, START, VARIANCE_FLOOR
from debayes.network.network import Network
from debayes.network.unet import UNet
from debayes.network.weights import load, read_card
from debayes.posterior.nig import NormalInverseGamma
from debayes.system.files import check_target, replace

# The version of ONNX's operators: read by ONNX Runtime from 1.14 on.
OPSET = 18

# How far another runtime may be off.
TOLERANCE = 1e-4


def export_file(model: str | Path, target: Path, kind: str, *, image: bool = False) -> dict[str, Any]:
    """Write a model for other runtimes ("onnx" or "ncnn"), run what was written, and say how well it agrees.

    With `image` it is written without the maps of noise and doubt.
    """
    endings = {"onnx": ".onnx", "ncnn": ".param"}
    if kind not in endings:
        raise ValueError(f"networks are exported to {' or '.join(endings)}, not {kind!r}")
    if target.suffix != endings[kind]:
        raise ValueError(f"the file of {kind} is named NAME{endings[kind]}, not {target.name}")
    needed = ("onnx", "onnxruntime") if kind == "onnx" else ("ncnn",)
    for module in needed:
        if find_spec(module) is None:
            raise ModuleNotFoundError(f'exporting to {kind} needs {module}: pip install "debayes[{needed[-1]}]"')
    for path in (target, target.with_suffix(".bin")) if kind == "ncnn" else (target,):
        check_target(path)
    network = load(model).beheaded() if image else load(model)
    if kind == "onnx":
        notes = describe(model)
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
        raise ValueError(
            f"{needed[-1]} runs what would be written for {model} {difference:.1e} off: nothing is written"
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


def trace_folded(network: Network, *, late: bool = False) -> Graph:
    """The steps of a network's body, folded if it is a U-Net, which takes the packed planes alone then.

    `late` is that of `staged_unet.fold`.
    """
    planes, base = graph.examples(network)
    if isinstance(network.body, UNet):
        return graph.trace(fold(network, late=late), planes)
    return graph.trace(network.body, planes, base)


def describe(model: str | Path) -> dict[str, str]:
    """What a program that runs a network must know, for the metadata of its file."""
    card = read_card(model)
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


def compare_onnx(network: Network, model: bytes) -> float:
    """The largest difference of picture, noise and doubt, in ONNX Runtime, for batches of several sizes."""
    import onnxruntime

    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    worst = 0.0
    for shape in ((1, 1, 64, 96), (2, 1, 96, 64), (1, 1, 16, 136)):
        mosaic = torch.rand(shape, generator=torch.Generator().manual_seed(0))
        arrays = session.run(None, {"mosaic": mosaic.numpy()})
        with torch.inference_mode():
            right = network(mosaic)
        pairs = [(torch.from_numpy(arrays[0]), right.mean)]
        if network.has_heads:
            found = NormalInverseGamma(*map(torch.from_numpy, arrays))
            pairs += [
                (found.noise_variance.sqrt(), right.noise_variance.sqrt()),
                (found.mean_variance.sqrt(), right.mean_variance.sqrt()),
            ]
        for left, expected in pairs:
            worst = max(worst, float((left - expected).abs().max()))
    return worst


def compare_ncnn(network: Network, steps: Graph, text: str, data: bytes) -> float:
    """The largest difference of the residual, in ncnn, away from the border."""
    mosaic = torch.rand(1, 1, 96, 128, generator=torch.Generator().manual_seed(0))
    base = cfa.interpolate(mosaic)
    with torch.inference_mode():
        right = network(mosaic).loc - base
    (maps,) = open_ncnn(steps, text, data)(*(cfa.pack(mosaic) - 0.5, base - 0.5)[: len(steps.inputs)])
    return float((maps[:, :3] - right)[..., BORDER:-BORDER, BORDER:-BORDER].abs().max())


def build_onnx(network: Network, notes: dict[str, str], *, bare: bool = False) -> Any:
    """The network as an ONNX model with dynamic sizes; the notes go into its metadata.

    With `bare` it gives the maps behind the first as the convolutions leave them, for `Network.posterior`.
    """
    from onnx import TensorProto, checker, helper, numpy_helper

    nodes: list[Any] = []
    constants: list[Any] = []

    def constant(name: str, value: Any, kind: type = np.float32) -> str:
        constants.append(numpy_helper.from_array(np.ascontiguousarray(value, kind), name))
        return name

    def add(operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(operator, inputs, [output], name=output, **attributes))
        return output

    def convolve(source: str, output: str, weight: Tensor, bias: Tensor | None, stride: int, padding: int) -> str:
        inputs = [source, constant(f"{output}.weight", weight.cpu())]
        if bias is not None:
            inputs.append(constant(f"{output}.bias", bias.cpu()))
        return add("Conv", inputs, output, strides=[stride] * 2, pads=[padding] * 4)

    def shuffle(source: str, output: str) -> str:
        return add("DepthToSpace", [source], output, blocksize=2, mode="CRD")

    def rectify(source: str, output: str) -> str:
        return add("Relu", [source], output)

    # The mosaic's four planes, and its interpolation: two photosites of reflection keep the border's colours.
    pack = torch.eye(4).view(4, 1, 2, 2)
    half = constant("half", 0.5)
    planes = convolve("mosaic", "packed", pack, None, 2, 0)
    around = constant("around", [0, 0, 2, 2, 0, 0, 2, 2], np.int64)
    wide = convolve(add("Pad", ["mosaic", around], "reflected", mode="reflect"), "packed_wide", pack, None, 2, 0)
    base = shuffle(convolve(wide, "interpolation", cfa.interpolation_kernel("RGGB"), None, 1, 0), "base")
    names = {"planes": add("Sub", [planes, half], "planes"), "base": add("Sub", [base, half], "centred")}
    steps = graph.trace(network.body, *graph.examples(network))
    for step in steps.steps:
        if isinstance(step, Convolution):
            source = names.get(step.input, step.input)
            name = step.output + (".linear" if step.rectified else "")
            convolve(source, name, step.weight, step.bias, step.stride, step.padding)
            if step.rectified:
                rectify(name, step.output)
        elif isinstance(step, Sum):
            add("Add", [names.get(n, n) for n in step.inputs], step.output)
        elif isinstance(step, Concatenation):
            add("Concat", [names.get(n, n) for n in step.inputs], step.output, axis=1)
        elif isinstance(step, Rectifier):
            rectify(step.input, step.output)
        else:
            shuffle(step.input, step.output)

    def head(part: str, output: str, before: float, scale: float, after: float) -> str:
        shifted = add("Add", [part, constant(f"{output}.before", before)], f"{output}.shifted")
        soft = add("Softplus", [shifted], f"{output}.soft")
        # Far below 0 it is the exponential, which some runtimes lose there by way of log(1 + exp).
        small = add("Less", [shifted, constant(f"{output}.low", -8.0)], f"{output}.small")
        soft = add("Where", [small, add("Exp", [shifted], f"{output}.exp"), soft], f"{output}.both")
        scaled = add("Mul", [soft, constant(f"{output}.scale", scale)], f"{output}.scaled")
        return add("Add", [scaled, constant(f"{output}.after", after)], output)

    # The heads, as in `Network.posterior`.
    (maps,) = steps.outputs
    given: tuple[str, ...] = MAPS if network.has_heads else MAPS[:1]
    if network.has_heads:
        parts = ["residual", "count_map", "concentration_map", "variance_map"]
        nodes.append(helper.make_node("Split", [maps], parts, name="heads", axis=1, num_outputs=4))
        given = ("loc", *parts[1:]) if bare else MAPS
    if network.has_heads and not bare:
        config = network.config
        head("count_map", "count", ONE, config.count, FLOOR)
        head("concentration_map", "concentration", ONE, config.concentration - 2, 2 + FLOOR)
        head("variance_map", "variance", START, 1.0, VARIANCE_FLOOR)
        less = add("Sub", ["concentration", constant("one", 1.0)], "concentration_less_one")
        add("Mul", ["variance", less], "rate")
    add("Add", [base, "residual" if network.has_heads else maps], "loc")

    mosaic = helper.make_tensor_value_info("mosaic", TensorProto.FLOAT, ["batch", 1, "height", "width"])
    outputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 3, "height", "width"]) for name in given
    ]
    model = helper.make_model(
        helper.make_graph(nodes, "debayes", [mosaic], outputs, constants),
        opset_imports=[helper.make_opsetid("", OPSET)],
        producer_name="debayes",
    )
    model.ir_version = 9  # what goes with the operators; the library's own newest would keep older runtimes out
    helper.set_model_props(model, notes)
    checker.check_model(model, full_check=True)
    return model


def build_ncnn(steps: Graph) -> tuple[str, bytes]:
    """ncnn's two files, .param and .bin, of the steps; inputs and outputs keep their names."""
    uses = {name: 0 for step in steps.steps for name in graph.inputs_of(step)}
    for step in steps.steps:
        for name in graph.inputs_of(step):
            uses[name] += 1
    lines: list[tuple[str, list[str], list[str], str]] = []
    arrays: list[Tensor] = []
    copies = {name: [f"{name}.{i}" for i in range(count)] for name, count in uses.items() if count > 1}
    left = {name: list(blobs) for name, blobs in copies.items()}

    def source(name: str) -> str:
        return left[name].pop() if name in left else name

    def write(kind: str, inputs: tuple[str, ...], output: str, parameters: str = "") -> None:
        lines.append((kind, [source(name) for name in inputs], [output], parameters))
        if output in copies:  # a blob has one reader: the others get copies of it, which share its memory
            lines.append(("Split", [output], copies[output], ""))

    for name in steps.inputs:
        write("Input", (), name)
    for step in steps.steps:
        kind, parameters = _ncnn_layer(step)
        write(kind, graph.inputs_of(step), step.output, parameters)
        if isinstance(step, Convolution):
            arrays += [torch.zeros(1), step.weight, step.bias]  # the first says that what follows is float32
    blobs = sum(len(outputs) for _, _, outputs, _ in lines)
    text = [f"7767517\n{len(lines)} {blobs}"]
    for i, (kind, inputs, outputs, parameters) in enumerate(lines):
        text.append(f"{kind} step{i} {len(inputs)} {len(outputs)} {' '.join([*inputs, *outputs])} {parameters}")
    data = b"".join(array.detach().cpu().float().contiguous().numpy().tobytes() for array in arrays)
    return "\n".join(text) + "\n", data


def _ncnn_layer(step: Step) -> tuple[str, str]:
    """The name of ncnn's layer for a step, and its parameters by number."""
    if isinstance(step, Convolution):
        outputs, _, size, _ = step.weight.shape
        shape = f"0={outputs} 1={size} 3={step.stride} 4={step.padding} 5=1 6={step.weight.numel()}"
        return "Convolution", shape + (" 9=1" if step.rectified else "")
    if isinstance(step, Sum):
        return "BinaryOp", "0=0"
    if isinstance(step, Concatenation):
        return "Concat", "0=0"
    return ("ReLU", "") if isinstance(step, Rectifier) else ("PixelShuffle", "0=2")


def run_in_ncnn(steps: Graph) -> Callable[..., list[Tensor]]:
    """What runs the steps in ncnn on batches of their inputs."""
    return open_ncnn(steps, *build_ncnn(steps))


def open_ncnn(steps: Graph, text: str, data: bytes) -> Callable[..., list[Tensor]]:
    """The same, of ncnn's two files."""
    import ncnn

    net = ncnn.Net()
    net.opt.num_threads = torch.get_num_threads()
    net.opt.blob_allocator, net.opt.workspace_allocator = _pools()
    net.opt.use_winograd63_convolution = False  # less exact than 4x4, and no faster
    net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = False
    net.opt.use_bf16_packed = net.opt.use_bf16_storage = False
    with TemporaryDirectory() as folder:
        parameters, weights = Path(folder, "net.param"), Path(folder, "net.bin")
        parameters.write_text(text)
        weights.write_bytes(data)
        if net.load_param(str(parameters)) or net.load_model(str(weights)):
            raise RuntimeError("ncnn could not read what was written for it")

    order = [step.output for step in steps.steps]

    def run(*inputs: Tensor) -> list[Tensor]:
        results = []
        for arrays in zip(*inputs, strict=True):
            extractor = net.create_extractor()
            held = [
                array.contiguous().numpy() for array in arrays
            ]  # ncnn looks at their memory, and does not own it
            for name, array in zip(steps.inputs, held, strict=True):
                mat = ncnn.Mat(array)
                # Some of its layers take channels to start at multiples of 16 bytes, as those of its own arrays do.
                extractor.input(name, mat.clone() if array[0].size % 4 else mat)
            found = {}
            for name in sorted(steps.outputs, key=order.index):  # as they come, or it would start again for each
                failed, found[name] = extractor.extract(name)
                if failed:
                    raise RuntimeError("ncnn failed, for want of memory perhaps: try a smaller tile")
            results.append([torch.from_numpy(np.array(found[name])) for name in steps.outputs])
        return [torch.stack(same) if len(same) > 1 else same[0][None] for same in zip(*results, strict=True)]

    return run


@cache
def _pools() -> tuple[Any, Any]:
    """Memory that ncnn keeps from tile to tile, for features and for what it needs while it works."""
    import ncnn

    pools = (ncnn.PoolAllocator(), ncnn.PoolAllocator())
    for pool in pools:
        pool.set_size_compare_ratio(0.0)  # any block that is large enough will do
    return pools
