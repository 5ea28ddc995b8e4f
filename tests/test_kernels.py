"""The convolution in Triton, where Triton is installed: by its own interpreter, and compiled, for which it takes no
GPU."""

import os
import subprocess
import sys

import pytest

INTERPRETED = """
import torch
from debayes import kernels

generator = torch.Generator().manual_seed(0)
for inputs, outputs, batch, height, width in ((32, 32, 2, 13, 37), (64, 64, 1, 9, 17), (32, 64, 1, 8, 16)):
    x = torch.randn(batch, inputs, height, width, generator=generator).half()
    other = torch.randn(batch, outputs, height, width, generator=generator).half()
    weight = torch.randn(outputs, inputs, 3, 3, generator=generator).half() / 17
    bias = torch.randn(outputs, generator=generator).half()
    expected = torch.nn.functional.conv2d(x.float(), weight.float(), bias.float(), padding=1) + other.float()
    filters = weight.permute(2, 3, 1, 0).flatten(0, 1).contiguous()
    found = kernels.convolve_and_add(x, filters, bias, other)
    torch.testing.assert_close(found.float(), expected, rtol=1e-3, atol=3e-3)
"""


COMPILED = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from debayes import kernels

for channels, kind in ((32, "fp16"), (64, "bf16")):
    given = dict(inputs=channels, outputs=channels, rows=kernels.ROWS, columns=kernels.COLUMNS)
    pointers = {name: f"*{kind}" for name in ("x", "filters", "bias", "other", "result")}
    signature = pointers | {"height": "i32", "width": "i32"} | dict.fromkeys(given, "constexpr")
    source = ASTSource(fn=kernels._convolve, signature=signature, constexprs=given)
    assert "wgmma" in triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"]
"""


def test_convolve_and_add_is_a_convolution_and_a_sum() -> None:
    """With zeros around the picture, in tiles that do and do not fit it, of several pictures."""
    pytest.importorskip("triton")
    settings = {**os.environ, "TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, "-c", INTERPRETED], env=settings, check=True)


def test_the_kernel_compiles_for_matrix_units() -> None:
    """For an H100 or H200, in both half precisions."""
    pytest.importorskip("triton")
    subprocess.run([sys.executable, "-c", COMPILED], check=True)
