"""The convolution in Triton, where Triton is installed: by its own interpreter, and compiled, for which it takes no
GPU."""

import os
import subprocess
import sys

import pytest

INTERPRETED = """
import torch
from debayes.engine.gpu import triton_kernels

generator = torch.Generator().manual_seed(0)
kinds = ((32, 32, 2, 13, 37, True, False), (32, 32, 1, 9, 17, False, False), (16, 32, 1, 8, 64, True, True),
         (16, 16, 1, 125, 3, False, True), (64, 64, 1, 34, 70, True, False))
for inputs, outputs, batch, height, width, summed, rectified in kinds:
    x = torch.randn(batch, inputs, height, width, generator=generator).half()
    other = torch.randn(batch, outputs, height, width, generator=generator).half() if summed else None
    weight = torch.randn(outputs, inputs, 3, 3, generator=generator).half() / 17
    bias = torch.randn(outputs, generator=generator).half()
    expected = torch.nn.functional.conv2d(x.float(), weight.float(), bias.float(), padding=1)
    expected = expected if other is None else expected + other.float()
    expected = expected.relu() if rectified else expected
    filters = weight.permute(2, 3, 1, 0).flatten(0, 1).contiguous()
    found = triton_kernels.convolve(x, filters, bias, other, rectified=rectified)
    torch.testing.assert_close(found.float(), expected, rtol=1e-3, atol=3e-3)
"""

FINISHED = """
import torch
from debayes.imaging import cfa
from debayes.engine import staged_unet
from debayes.engine.gpu import replay
from debayes.network.config import Config
from debayes.network.network import Network

torch.manual_seed(0)
network = Network(Config("unet", widths=(16, 16), blocks=1, bottom_blocks=1, tail=32, tail_blocks=0)).mean_only()
mosaic = torch.rand(2, 1, 40, 300)
planes = cfa.pack(mosaic) - 0.5
with torch.inference_mode():
    network.body.maps.weight.mul_(100)
    network.body.maps.bias.normal_()
    steps = staged_unet.trace_folded(network, shuffle_last=True)
    maps = replay.build(steps, torch.float32, for_compile=True)(planes)
    products = replay.build(steps, torch.float32, for_compile=True, finished=False)(planes)
    image = network.posterior(cfa.interpolate(mosaic), maps).mean
    for top, bottom, left, right in ((0, 40, 0, 300), (5, 22, 3, 258), (8, 9, 130, 131)):
        rows, columns = slice(top, bottom), slice(left, right)
        found = replay.ending(steps)(products, mosaic, rows, columns)
        torch.testing.assert_close(found, image[..., rows, columns])
"""


COMPILED = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from debayes.engine.gpu import triton_kernels

for kind, channels in (("fp16", 32), ("bf16", 32), ("fp16", 64), ("bf16", 64)):
    given = dict(inputs=channels, outputs=channels, summed=True, rectified=False)
    given |= dict(rows=triton_kernels.ROWS, columns=triton_kernels.COLUMNS, stages=triton_kernels.STAGES)
    pointers = {name: f"*{kind}" for name in ("x", "filters", "bias", "other", "result")}
    signature = pointers | {"height": "i32", "width": "i32"} | dict.fromkeys(given, "constexpr")
    source = ASTSource(fn=triton_kernels._convolve, signature=signature, constexprs=given)
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32))
    assert "wgmma" in compiled.asm["ptx"]
    assert compiled.metadata.shared <= 227 * 1024  # what a block may have there

given = dict(stride=112, maps=12, lanes=16, cells=64)
signature = {"products": "*fp16"} | dict.fromkeys(("bias", "colors", "mosaic", "image"), "*fp32")
signature |= dict.fromkeys(("height", "width", "top", "left", "rows", "columns"), "i32")
signature |= dict.fromkeys(given, "constexpr")
source = ASTSource(fn=triton_kernels._finish, signature=signature, constexprs=given)
triton.compile(source, target=GPUTarget("cuda", 90, 32))
"""


def test_convolve_is_a_convolution_a_sum_and_a_rectifier() -> None:
    """Each or none of them, with zeros around the picture, in tiles that do and do not fit it, of one or two."""
    pytest.importorskip("triton")
    settings = {**os.environ, "TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, "-c", INTERPRETED], env=settings, check=True)


def test_finish_makes_the_image_of_products_and_mosaic() -> None:
    """All of it, its borders too, parts of it that begin and end anywhere, and a single pixel."""
    pytest.importorskip("triton")
    settings = {**os.environ, "TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, "-c", FINISHED], env=settings, check=True)


def test_the_kernels_compile_for_matrix_units() -> None:
    """For an H100 or H200, in both half precisions."""
    pytest.importorskip("triton")
    subprocess.run([sys.executable, "-c", COMPILED], check=True)
