"""ncnn: its two files hold the convolutions only, from packed planes to maps.

Tested in tests/engine/test_export.py.
"""

from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor

from debayes.engine import graph
from debayes.engine.graph import Concatenation, Convolution, Graph, Rectifier, Step, Sum
from debayes.imaging import cfa
from debayes.network.config import BORDER
from debayes.network.network import Network


def compare_ncnn(network: Network, steps: Graph, text: str, data: bytes) -> float:
    """The largest difference of the residual in ncnn, away from the border."""
    mosaic = torch.rand(1, 1, 96, 128, generator=torch.Generator().manual_seed(0))
    base = cfa.interpolate(mosaic)
    with torch.inference_mode():
        right = network(mosaic).loc - base
    (maps,) = open_ncnn(steps, text, data)(*(cfa.pack(mosaic) - 0.5, base - 0.5)[: len(steps.inputs)])
    return float((maps[:, :3] - right)[..., BORDER:-BORDER, BORDER:-BORDER].abs().max())


def build_ncnn(steps: Graph) -> tuple[str, bytes]:
    """ncnn's two files, .param and .bin, of the steps; inputs and outputs keep their names."""
    uses = Counter(name for step in steps.steps for name in graph.inputs_of(step))
    lines: list[tuple[str, list[str], list[str], str]] = []
    arrays: list[Tensor] = []
    copies = {name: [f"{name}.{i}" for i in range(count)] for name, count in uses.items() if count > 1}
    left = {name: list(blobs) for name, blobs in copies.items()}

    def source(name: str) -> str:
        return left[name].pop() if name in left else name

    def write(kind: str, inputs: tuple[str, ...], output: str, parameters: str = "") -> None:
        lines.append((kind, [source(name) for name in inputs], [output], parameters))
        if output in copies:  # a blob has one reader; the copies for several share its memory
            lines.append(("Split", [output], copies[output], ""))

    for name in steps.inputs:
        write("Input", (), name)
    for step in steps.steps:
        kind, parameters = _ncnn_layer(step)
        write(kind, graph.inputs_of(step), step.output, parameters)
        if isinstance(step, Convolution):
            arrays += [torch.zeros(1), step.weight, step.bias]  # the zero says: float32 follows
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


def run_in_ncnn(steps: Graph, threads: int | None = None) -> Callable[..., list[Tensor]]:
    """A function that runs the steps in ncnn on batches of their inputs, with `threads` or as many as PyTorch."""
    return open_ncnn(steps, *build_ncnn(steps), threads=threads)


def open_ncnn(steps: Graph, text: str, data: bytes, *, threads: int | None = None) -> Callable[..., list[Tensor]]:
    """A function that runs the network of ncnn's two files on batches of its inputs."""
    import ncnn

    net = ncnn.Net()
    net.opt.num_threads = threads or torch.get_num_threads()
    net.opt.openmp_blocktime = 0  # threads that wait yield their cores
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
            held = [array.contiguous().numpy() for array in arrays]  # ncnn reads their memory without owning it
            for name, array in zip(steps.inputs, held, strict=True):
                mat = ncnn.Mat(array)
                # Some layers expect channels to start at multiples of 16 bytes, as in ncnn's own arrays.
                extractor.input(name, mat.clone() if array[0].size % 4 else mat)
            found = {}
            for name in sorted(steps.outputs, key=order.index):  # in this order nothing is computed twice
                failed, found[name] = extractor.extract(name)
                if failed:
                    raise MemoryError("ncnn failed, perhaps for lack of memory: try a smaller tile")
            results.append([torch.from_numpy(np.array(found[name])) for name in steps.outputs])
        return [torch.stack(same) if len(same) > 1 else same[0][None] for same in zip(*results, strict=True)]

    return run


@cache
def _pools() -> tuple[Any, Any]:
    """Memory pools that ncnn keeps from tile to tile: for features and for work space."""
    import ncnn

    pools = (ncnn.PoolAllocator(), ncnn.PoolAllocator())
    for pool in pools:
        pool.set_size_compare_ratio(0.0)  # reuse any block that is large enough
    return pools
