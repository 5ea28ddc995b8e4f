"""ONNX: a file holds the whole network, from a mosaic of any size to the four maps of its posterior.

What a program needs to know is in its metadata.

Tested in tests/engine/test_export.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from debayes.engine import graph
from debayes.engine.graph import Concatenation, Convolution, Graph, Rectifier, Sum
from debayes.imaging import cfa
from debayes.network.config import Config
from debayes.network.heads import FLOOR, MAPS, ONE, START, VARIANCE_FLOOR
from debayes.network.network import Network
from debayes.posterior.nig import NormalInverseGamma

# The version of ONNX's operators: read by ONNX Runtime from 1.14 on.
OPSET = 18

# The version of the file format that goes with it; older runtimes cannot read the newest.
IR_VERSION = 9


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
        if isinstance(right, NormalInverseGamma):
            found = NormalInverseGamma(*map(torch.from_numpy, arrays))
            pairs += [
                (found.noise_variance.sqrt(), right.noise_variance.sqrt()),
                (found.mean_variance.sqrt(), right.mean_variance.sqrt()),
            ]
        for left, expected in pairs:
            worst = max(worst, float((left - expected).abs().max()))
    return worst


@dataclass
class _Writer:
    """The nodes and constants of an ONNX graph while it is written. Each method returns the name of its result."""

    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)

    def constant(self, name: str, value: Any, kind: type = np.float32) -> str:
        from onnx import numpy_helper

        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value, kind), name))
        return name

    def add(self, operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        from onnx import helper

        self.nodes.append(helper.make_node(operator, inputs, [output], name=output, **attributes))
        return output

    def split(self, source: str, outputs: list[str], name: str) -> None:
        from onnx import helper

        node = helper.make_node("Split", [source], outputs, name=name, axis=1, num_outputs=len(outputs))
        self.nodes.append(node)

    def convolve(
        self, source: str, output: str, weight: Tensor, bias: Tensor | None, stride: int = 1, padding: int = 0
    ) -> str:
        inputs = [source, self.constant(f"{output}.weight", weight.cpu())]
        if bias is not None:
            inputs.append(self.constant(f"{output}.bias", bias.cpu()))
        return self.add("Conv", inputs, output, strides=[stride] * 2, pads=[padding] * 4)

    def shuffle(self, source: str, output: str) -> str:
        return self.add("DepthToSpace", [source], output, blocksize=2, mode="CRD")

    def softplus(self, source: str, output: str, before: float, scale: float, after: float) -> str:
        """after + scale * softplus(source + before)."""
        shifted = self.add("Add", [source, self.constant(f"{output}.before", before)], f"{output}.shifted")
        soft = self.add("Softplus", [shifted], f"{output}.soft")
        # Far below 0 softplus is the exponential; some runtimes lose it there by computing log(1 + exp).
        small = self.add("Less", [shifted, self.constant(f"{output}.low", -8.0)], f"{output}.small")
        soft = self.add("Where", [small, self.add("Exp", [shifted], f"{output}.exp"), soft], f"{output}.both")
        scaled = self.add("Mul", [soft, self.constant(f"{output}.scale", scale)], f"{output}.scaled")
        return self.add("Add", [scaled, self.constant(f"{output}.after", after)], output)


def build_onnx(network: Network, notes: dict[str, str], *, bare: bool = False) -> Any:
    """The network as an ONNX model with dynamic sizes; the notes go into its metadata.

    With `bare` the maps after the first are left as the convolutions give them, for `Network.posterior`.
    """
    from onnx import TensorProto, checker, helper

    writer = _Writer()
    base, inputs = _write_input(writer)
    steps = graph.trace(network.body, *graph.examples(network))
    _write_steps(writer, steps, inputs)
    (maps,) = steps.outputs
    if network.has_posterior:
        given = _write_heads(writer, network.config, maps, bare)
        maps = "residual"
    else:
        given = MAPS[:1]
    writer.add("Add", [base, maps], "loc")

    mosaic = helper.make_tensor_value_info("mosaic", TensorProto.FLOAT, ["batch", 1, "height", "width"])
    outputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 3, "height", "width"]) for name in given
    ]
    model = helper.make_model(
        helper.make_graph(writer.nodes, "debayes", [mosaic], outputs, writer.constants),
        opset_imports=[helper.make_opsetid("", OPSET)],
        producer_name="debayes",
    )
    model.ir_version = IR_VERSION
    helper.set_model_props(model, notes)
    checker.check_model(model, full_check=True)
    return model


def _write_input(writer: _Writer) -> tuple[str, dict[str, str]]:
    """From the mosaic to its interpolation and the inputs of the body: packed planes and interpolation, centred."""
    pack = torch.eye(4).view(4, 1, 2, 2)
    half = writer.constant("half", 0.5)
    planes = writer.convolve("mosaic", "packed", pack, None, 2)
    # Reflecting two photosites keeps the colours of the border.
    around = writer.constant("around", [0, 0, 2, 2, 0, 0, 2, 2], np.int64)
    reflected = writer.add("Pad", ["mosaic", around], "reflected", mode="reflect")
    wide = writer.convolve(reflected, "packed_wide", pack, None, 2)
    base = writer.shuffle(writer.convolve(wide, "interpolation", cfa.interpolation_kernel("RGGB"), None), "base")
    centred = {
        "planes": writer.add("Sub", [planes, half], "planes"),
        "base": writer.add("Sub", [base, half], "centred"),
    }
    return base, centred


def _write_steps(writer: _Writer, steps: Graph, inputs: dict[str, str]) -> None:
    """The steps of the body, whose inputs may have other names."""

    def names(results: Sequence[str]) -> list[str]:
        return [inputs.get(name, name) for name in results]

    for step in steps.steps:
        if isinstance(step, Convolution):
            (source,) = names([step.input])
            name = step.output + (".linear" if step.rectified else "")
            writer.convolve(source, name, step.weight, step.bias, step.stride, step.padding)
            if step.rectified:
                writer.add("Relu", [name], step.output)
        elif isinstance(step, Sum):
            writer.add("Add", names(step.inputs), step.output)
        elif isinstance(step, Concatenation):
            writer.add("Concat", names(step.inputs), step.output, axis=1)
        elif isinstance(step, Rectifier):
            writer.add("Relu", names([step.input]), step.output)
        else:
            (source,) = names([step.input])
            writer.shuffle(source, step.output)


def _write_heads(writer: _Writer, config: Config, maps: str, bare: bool) -> tuple[str, ...]:
    """The heads, as in `network.heads`: the names of the four outputs."""
    parts = ["residual", "count_map", "concentration_map", "variance_map"]
    writer.split(maps, parts, "heads")
    if bare:
        return ("loc", *parts[1:])
    writer.softplus("count_map", "count", ONE, config.count, FLOOR)
    writer.softplus("concentration_map", "concentration", ONE, config.concentration - 2, 2 + FLOOR)
    writer.softplus("variance_map", "variance", START, 1.0, VARIANCE_FLOOR)
    less = writer.add("Sub", ["concentration", writer.constant("one", 1.0)], "concentration_less_one")
    writer.add("Mul", ["variance", less], "rate")
    return MAPS
