"""Residual blocks for Hopper GPUs: how filters lie, how the work is divided, and that CUDA's compiler, where
there is one, keeps the matrix units busy. What the kernel gives is checked on the GPU itself before it is used."""

import shutil
import subprocess
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from debayes.engine.gpu import hopper, operations, replay

CHANNELS = list(hopper.LAUNCHES)


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


@given(st.integers(1, 300), st.integers(1, 200), st.integers(1, 64))
def test_the_work_is_divided_so_that_all_are_done_soonest(height: int, bands: int, workers: int) -> None:
    """No other number of rows is done in fewer steps, if each worker takes one part after the other."""

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
    groups, ahead = hopper.LAUNCHES[channels]
    source = Path(hopper.__file__).with_name("block.cu")
    sizes = (f"-DCHANNELS={channels}", f"-DGROUPS={groups}", f"-DAHEAD={ahead}", f"-DBFLOAT16={int(bfloat16)}")
    command = [nvcc, "-gencode=arch=compute_90a,code=sm_90a", "-Xptxas=-v", "-cubin", "-o", str(tmp_path / "block")]
    found = subprocess.run([*command, *sizes, str(source)], check=True, capture_output=True, text=True)
    said = found.stdout + found.stderr
    assert "0 bytes spill stores" in said
    assert "serialized" not in said


def test_without_cuda_there_are_no_such_blocks() -> None:
    assert not hopper.is_hopper(torch.device("cpu"))
    assert replay.blocks_of(torch.device("cpu"), torch.float16) == ()
