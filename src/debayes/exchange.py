"""Networks in the formats of other runtimes: ONNX, which nearly all of them read, and ncnn's own.

An ONNX file holds the whole network: a mosaic of any size in, the four maps of its posterior out, and what a
program needs to know in its metadata. ncnn's two files hold convolutions alone, from packed planes to maps.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from debayes import cfa, graph
from debayes.graph import Concatenation, Convolution, Graph, Rectifier, Step, Sum
from debayes.model import FLOOR, ONE, START, VARIANCE_FLOOR, Network

# The version of ONNX's operators: read by ONNX Runtime from 1.14 on.
OPSET = 18

MAPS = ("loc", "count", "concentration", "rate")


def build_onnx(network: Network, notes: dict[str, str]) -> Any:
    """The network as an ONNX model with dynamic sizes; the notes go into its metadata."""
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
    steps = graph.trace(network.body)
    for step in steps.steps:
        if isinstance(step, Convolution):
            source, padding = names.get(step.input, step.input), step.padding
            name = step.output + (".linear" if step.rectified else "")
            convolve(source, name, step.weight, step.bias, step.stride, padding)
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

    # The heads, as in `Network.posterior`.
    parts = ["residual", "count_map", "concentration_map", "variance_map"]
    nodes.append(helper.make_node("Split", [steps.outputs[0]], parts, name="heads", axis=1, num_outputs=4))

    def head(part: str, output: str, before: float, scale: float, after: float) -> str:
        shifted = add("Add", [part, constant(f"{output}.before", before)], f"{output}.shifted")
        soft = add("Softplus", [shifted], f"{output}.soft")
        scaled = add("Mul", [soft, constant(f"{output}.scale", scale)], f"{output}.scaled")
        return add("Add", [scaled, constant(f"{output}.after", after)], output)

    config = network.config
    add("Add", [base, "residual"], "loc")
    head("count_map", "count", ONE, config.count, FLOOR)
    head("concentration_map", "concentration", ONE, config.concentration - 2, 2 + FLOOR)
    head("variance_map", "variance", START, 1.0, VARIANCE_FLOOR)
    less = add("Sub", ["concentration", constant("one", 1.0)], "concentration_less_one")
    add("Mul", ["variance", less], "rate")

    mosaic = helper.make_tensor_value_info("mosaic", TensorProto.FLOAT, ["batch", 1, "height", "width"])
    outputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 3, "height", "width"]) for name in MAPS
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
