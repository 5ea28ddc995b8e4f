"""A residual block of narrow convolutions in one kernel, `block.cu`, for GPUs of the Hopper generation.

Between the two convolutions of such a block nothing goes to memory and back, and each row of it is read once. The
compiler that comes with PyTorch for such GPUs makes the kernel on the spot.
"""

import ctypes
import functools
from importlib.resources import files
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

# Channels, and columns of the result that a group of warps makes, as in `block.cu`.
CHANNELS, BAND = 32, 62

# Groups of warps in a block of threads, of which a multiprocessor has room for one, and rows fetched ahead.
GROUPS, AHEAD = 3, 4

# Threads of a group.
_THREADS = 128

# Rows that a group does beside those of its result.
_MARGIN = 5

# The order in which `block.cu` has the rows of taps: three in a row are those for the row below, here and above.
_ROTATIONS = (1, 0, 2, 1, 0)


def fits(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether a device is such a GPU."""
    return device.type == "cuda" and dtype == torch.float16 and torch.cuda.get_device_capability(device) == (9, 0)


def arrange(filters: Float[Tensor, "9 i o"]) -> Float[Tensor, "k n 8"]:
    """The filters of a convolution as `block.cu` reads them: eight channels of a column of taps after the other."""
    inputs, outputs = filters.shape[1:]
    taps = filters.view(3, 3, inputs // 8, 8, outputs)  # row, column, eight channels, channel, filter
    return taps[list(_ROTATIONS)].permute(1, 2, 0, 4, 3).flatten(2, 3).flatten(0, 1).contiguous()


def restore(arranged: Float[Tensor, "k n 8"]) -> Float[Tensor, "o i 3 3"]:
    """The filters that `arrange` was given, as a convolution has them."""
    eights, filters = len(arranged) // 3, arranged.shape[1] // len(_ROTATIONS)
    columns = arranged.view(3, eights, len(_ROTATIONS), filters, 8)
    rows = torch.stack([columns[:, :, _ROTATIONS.index(row)] for row in range(3)])
    return rows.permute(3, 2, 4, 0, 1).flatten(1, 2)


def run_block(
    x: Float[Tensor, "b c h w"], filters: Float[Tensor, "2 k n 8"], bias: Float[Tensor, "2 c"]
) -> Float[Tensor, "b c h w"]:
    """x + second * relu(first * x + bias) + bias, with zeros around x; of `arrange`d filters."""
    batch, channels, height, width = x.shape
    if channels != CHANNELS or x.dtype != torch.float16 or bias.dtype != torch.float32:
        raise ValueError(f"the kernel takes {CHANNELS} channels in float16, not {channels} in {x.dtype}")
    x = x.contiguous(memory_format=torch.channels_last)
    result = torch.empty_like(x)
    bands = -(-width // BAND)
    multiprocessors = torch.cuda.get_device_properties(x.device).multi_processor_count
    rows = split(height, bands * batch, GROUPS * multiprocessors)
    segments = -(-height // rows)
    tasks = bands * segments * batch
    kernel, memory = _load(x.device, GROUPS, AHEAD)
    with torch.cuda.device(x.device):
        kernel(
            grid=(-(-tasks // GROUPS), 1, 1),
            block=(GROUPS * _THREADS, 1, 1),
            args=[x, filters, bias, result, height, width, rows, bands, segments, tasks],
            shared_mem=memory,
        )
    return result


def split(height: int, bands: int, workers: int) -> int:
    """How many rows of a band one of the workers does at a time, so that all are done soonest."""

    def duration(rows: int) -> int:
        rounds = -(-bands * -(-height // rows) // workers)
        return rounds * (rows + _MARGIN)

    return min((-(-height // parts) for parts in range(1, min(height, workers) + 1)), key=duration)


def memory_of(groups: int, ahead: int) -> int:
    """How much shared memory, in bytes, `block.cu` asks for: filters, biases, and the lines of each group."""
    filters = 2 * 9 * CHANNELS * CHANNELS * 2 * len(_ROTATIONS) // 3
    line = (BAND + 4) * CHANNELS * 2
    return filters + 2 * CHANNELS * 4 + groups * (ahead + 4 + 2) * line


@functools.cache
def _load(device: torch.device, groups: int, ahead: int) -> tuple[Any, int]:
    """The kernel on a GPU, and the shared memory that it takes."""
    from torch.cuda._utils import _cuda_load_module

    memory = memory_of(groups, ahead)
    with torch.cuda.device(device):
        kernel = _cuda_load_module(compile_block(groups, ahead), ["block"])["block"]  # type: ignore[index]
        kernel.set_shared_memory_config(memory)
    return kernel, memory


def compile_block(groups: int, ahead: int, nvrtc: str | None = None) -> bytes:
    """The kernel as a program for such a GPU, by the compiler in a library: if none is named, PyTorch's."""
    library = ctypes.CDLL(nvrtc or f"libnvrtc.so.{str(torch.version.cuda).split('.')[0]}")
    source = files("debayes").joinpath("block.cu").read_bytes()
    options = [b"--gpu-architecture=sm_90a", f"-DGROUPS={groups}".encode(), f"-DAHEAD={ahead}".encode()]
    program = ctypes.c_void_p()
    library.nvrtcCreateProgram(ctypes.byref(program), source, b"block.cu", 0, None, None)
    failed = library.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    kind = "ProgramLog" if failed else "CUBIN"
    size = ctypes.c_size_t()
    getattr(library, f"nvrtcGet{kind}Size")(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    getattr(library, f"nvrtcGet{kind}")(program, text)
    library.nvrtcDestroyProgram(ctypes.byref(program))
    if failed:
        raise RuntimeError(f"block.cu is not compiled here: {text.value.decode()}")
    return text.raw
