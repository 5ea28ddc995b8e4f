"""ONNX: a file holds the whole network, a mosaic of any size in, the four maps of its posterior out.

What a program needs to know is in its metadata.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from debayes.engine import graph
from debayes.engine.graph import Concatenation, Convolution, Rectifier, Sum
from debayes.imaging import cfa
from debayes.network.heads import FLOOR, MAPS, ONE, START, VARIANCE_FLOOR
from debayes.network.network import Network
from debayes.posterior.nig import NormalInverseGamma

# The version of ONNX's operators: read by ONNX Runtime from 1.14 on.
OPSET = 18


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
        if network.has_posterior:
            found = NormalInverseGamma(*map(torch.from_numpy, arrays))
            pairs += [
                (found.noise_variance.sqrt(), right.noise_variance.sqrt()),
                (found.mean_variance.sqrt(), right.mean_variance.sqrt()),
            ]
        for left, expected in pairs:
            worst = max(worst, float((left - expected).abs().max()))
    return worst


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
    given: tuple[str, ...] = MAPS if network.has_posterior else MAPS[:1]
    if network.has_posterior:
        parts = ["residual", "count_map", "concentration_map", "variance_map"]
        nodes.append(helper.make_node("Split", [maps], parts, name="heads", axis=1, num_outputs=4))
        given = ("loc", *parts[1:]) if bare else MAPS
    if network.has_posterior and not bare:
        config = network.config
        head("count_map", "count", ONE, config.count, FLOOR)
        head("concentration_map", "concentration", ONE, config.concentration - 2, 2 + FLOOR)
        head("variance_map", "variance", START, 1.0, VARIANCE_FLOOR)
        less = add("Sub", ["concentration", constant("one", 1.0)], "concentration_less_one")
        add("Mul", ["variance", less], "rate")
    add("Add", [base, "residual" if network.has_posterior else maps], "loc")

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
