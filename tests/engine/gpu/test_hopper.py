"""Residual blocks for Hopper GPUs: the layout of filters, the division of the work, and that CUDA's compiler, where
there is one, keeps the matrix units busy. The kernel's values are checked on the GPU itself before it is used."""

import shutil
import subprocess
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from debayes.engine.gpu import hopper, operations

CHANNELS = list(hopper.LAUNCHES)
SOURCE = Path(hopper.__file__).with_name("block.cu")


def by_rows(x: Tensor, arranged: Tensor) -> Tensor:
    """A convolution as `block.cu` does it: row by row, each to three rows of sums, of which one is done."""
    channels, height, width = x.shape
    order = hopper.tap_rows(channels)
    at_once = len(order) == 5
    filters = arranged.view(3, channels // 8, len(order), channels, 8)
    padded = F.pad(x, (1, 1, 0, 1))
    sums = torch.zeros(3, channels, width)
    rows = []
    for i in range(height + 1):
        turns = [(2 * i % 3 + slot) if at_once else (1 - slot + i) % 3 for slot in range(3)]
        for slot, turn in enumerate(turns):
            for column in range(3):
                bank = filters[column, :, turn].permute(1, 0, 2).flatten(1)  # filter, channel
                sums[slot] += bank @ padded[:, i, column : column + width]
        done = (i + 2) % 3
        rows.append(sums[done].clone())
        sums[done] = 0
    return torch.stack(rows[1:], 1)


@pytest.mark.parametrize("channels", CHANNELS)
def test_arranged_filters_make_a_convolution_row_by_row(channels: int) -> None:
    """Whatever the row, the three rows of sums get the rows of filters that are theirs; and nothing is lost."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(channels, 8, 11, generator=generator)
    weight = torch.randn(channels, channels, 3, 3, generator=generator)
    arranged = hopper.arrange_filters(operations.tap_matrices(weight))
    assert arranged.shape == (3 * channels // 8, len(hopper.tap_rows(channels)) * channels, 8)
    torch.testing.assert_close(by_rows(x, arranged), F.conv2d(x[None], weight, padding=1)[0], rtol=1e-4, atol=1e-3)
    assert torch.equal(hopper.unarrange_filters(arranged), weight)


@settings(deadline=None, derandomize=True)
@given(st.integers(1, 300), st.integers(1, 200), st.integers(1, 64))
def test_the_division_of_the_work_is_the_fastest(height: int, bands: int, workers: int) -> None:
    """No other number of rows takes fewer steps, if each worker computes one part after the other."""

    def steps(rows: int) -> int:
        parts = bands * -(-height // rows)
        return -(-parts // workers) * (rows + 6)

    rows = hopper.rows_per_task(height, bands, workers)
    assert 1 <= rows <= height
    assert steps(rows) <= min(steps(-(-height // parts)) for parts in range(1, min(height, workers) + 1))


@pytest.mark.parametrize("channels", CHANNELS)
def test_a_multiprocessor_has_room(channels: int) -> None:
    """A block of threads may have 227 KiB of shared memory."""
    assert hopper.shared_memory(channels, *hopper.LAUNCHES[channels]) <= 227 * 1024


@pytest.mark.parametrize("channels", CHANNELS)
@pytest.mark.parametrize("bfloat16", [False, True])
def test_the_kernel_compiles_for_matrix_units(channels: int, bfloat16: bool, tmp_path: Path) -> None:
    """No sum leaves its register, and products are not waited for one by one."""
    nvcc = shutil.which("nvcc")
    if nvcc is None or "sm_90" not in subprocess.check_output([nvcc, "--list-gpu-code"], text=True):
        pytest.skip("there is no CUDA compiler for such GPUs here")
    macros = hopper.compiler_macros(channels, *hopper.LAUNCHES[channels], bfloat16)
    command = [nvcc, "-gencode=arch=compute_90a,code=sm_90a", "-Xptxas=-v", "-cubin", "-o", str(tmp_path / "block")]
    found = subprocess.run([*command, *macros, str(SOURCE)], check=True, capture_output=True, text=True)
    messages = found.stdout + found.stderr
    assert "0 bytes spill stores" in messages
    assert "serialized" not in messages


def test_sizes_are_those_of_the_kernel() -> None:
    """`block.cu` and `hopper` agree on the columns of a band, the threads of a group and the extra rows."""
    source = SOURCE.read_text()
    assert f"constexpr int BAND = {hopper.BAND};" in source
    assert f"constexpr int THREADS = {hopper._THREADS};" in source
    assert f"i < band.rows + {hopper._EXTRA_ROWS};" in source


@pytest.mark.parametrize("channels", CHANNELS)
@pytest.mark.parametrize(("batch", "height", "width"), [(1, 70, 150), (3, 5, 62), (2, 200, 63)])
def test_each_pixel_is_computed_once(
    channels: int, batch: int, height: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the tasks that the kernel is launched with, as `block.cu` divides them; a stand-in for a GPU of ten
    multiprocessors."""
    launches = []
    monkeypatch.setattr(hopper, "_load", lambda *_: (lambda **launch: launches.append(launch), 1234))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(multi_processor_count=10))
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    x, count = torch.zeros(batch, channels, height, width), torch.zeros(batch, height, width)
    filters, bias = torch.zeros(2, 3, channels, 8), torch.zeros(2, channels)
    result = hopper.run_block(x, filters, bias, rectified=True)
    (launch,) = launches
    *arrays, rows, bands, segments, tasks, rectified = launch["args"]
    assert arrays[1] is filters and arrays[2] is bias and arrays[3] is result and arrays[4:] == [height, width]
    assert rectified == 1 and launch["shared_mem"] == 1234
    assert arrays[0].is_contiguous(memory_format=torch.channels_last)
    groups = launch["block"][0] // hopper._THREADS
    assert launch["grid"][0] * groups >= tasks
    for task in range(tasks):
        left, top = task % bands * hopper.BAND, task // bands % segments * rows
        count[task // bands // segments, top : top + rows, left : left + hopper.BAND] += 1
    assert bool((count == 1).all())


def test_pytorch_loads_compiled_kernels() -> None:
    """The one private function of PyTorch that is used, as it has no public one."""
    from torch.cuda._utils import _cuda_load_module

    assert callable(_cuda_load_module)


def test_a_cpu_is_no_hopper_gpu() -> None:
    assert not hopper.is_hopper(torch.device("cpu"))
