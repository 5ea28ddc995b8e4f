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

# For so many channels: groups of warps in a block of threads, of which a multiprocessor has room for one, and rows
# that each fetches ahead.
SIZES = {32: (3, 2), 64: (1, 2)}

# Columns of the result that a group makes.
BAND = 62

# Threads of a group.
_THREADS = 128

# Rows that a group does beside those of its result.
_MARGIN = 6


def fits(device: torch.device) -> bool:
    """Whether a device is such a GPU."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) == (9, 0)


def rotations(channels: int) -> tuple[int, ...]:
    """The order in which `block.cu` has the rows of taps: with few channels, any three in a row are all of them."""
    return (1, 0, 2, 1, 0) if channels == min(SIZES) else (0, 1, 2)


def arrange(filters: Float[Tensor, "9 c c"]) -> Float[Tensor, "k n 8"]:
    """The filters of a convolution as `block.cu` reads them: eight channels of a column of taps after the other."""
    channels = filters.shape[1]
    taps = filters.view(3, 3, channels // 8, 8, channels)  # row, column, eight channels, channel, filter
    return taps[list(rotations(channels))].permute(1, 2, 0, 4, 3).flatten(2, 3).flatten(0, 1).contiguous()


def restore(arranged: Float[Tensor, "k n 8"]) -> Float[Tensor, "c c 3 3"]:
    """The filters that `arrange` was given, as a convolution has them."""
    eights = len(arranged) // 3
    order = rotations(8 * eights)
    columns = arranged.view(3, eights, len(order), 8 * eights, 8)  # column, eight channels, row, filter, channel
    rows = torch.stack([columns[:, :, order.index(row)] for row in range(3)])
    return rows.permute(3, 2, 4, 0, 1).flatten(1, 2)


def run_block(
    x: Float[Tensor, "b c h w"],
    filters: Float[Tensor, "2 k n 8"],
    bias: Float[Tensor, "2 c"],
    *,
    rectified: bool = False,
) -> Float[Tensor, "b c h w"]:
    """x + second * relu(first * x + bias) + bias, or that rectified, with zeros around x; of `arrange`d filters."""
    batch, channels, height, width = x.shape
    groups, ahead = SIZES[channels]
    x = x.contiguous(memory_format=torch.channels_last)
    result = torch.empty_like(x)
    bands = -(-width // BAND)
    multiprocessors = torch.cuda.get_device_properties(x.device).multi_processor_count
    rows = split(height, bands * batch, groups * multiprocessors)
    segments = -(-height // rows)
    tasks = bands * segments * batch
    kernel, memory = _load(x.device, channels, groups, ahead, x.dtype == torch.bfloat16)
    with torch.cuda.device(x.device):
        kernel(
            grid=(-(-tasks // groups), 1, 1),
            block=(groups * _THREADS, 1, 1),
            args=[x, filters, bias, result, height, width, rows, bands, segments, tasks, int(rectified)],
            shared_mem=memory,
        )
    return result


def split(height: int, bands: int, workers: int) -> int:
    """How many rows of a band one of the workers does at a time, so that all are done soonest."""

    def duration(rows: int) -> int:
        rounds = -(-bands * -(-height // rows) // workers)
        return rounds * (rows + _MARGIN)

    return min((-(-height // parts) for parts in range(1, min(height, workers) + 1)), key=duration)


def memory_of(channels: int, groups: int, ahead: int) -> int:
    """How much shared memory, in bytes, `block.cu` takes: filters, biases, and the lines of each group."""
    filters = 2 * 3 * len(rotations(channels)) * channels**2 * 2
    line = (BAND + 4) * channels * 2
    return filters + 2 * channels * 4 + groups * (ahead + 5 + 3) * line


@functools.cache
def _load(device: torch.device, channels: int, groups: int, ahead: int, bfloat16: bool) -> tuple[Any, int]:
    """The kernel on a GPU, and the shared memory that it takes."""
    from torch.cuda._utils import _cuda_load_module

    memory = memory_of(channels, groups, ahead)
    program = compile_block(channels, groups, ahead, bfloat16)
    with torch.cuda.device(device):
        kernel = _cuda_load_module(program, ["block"])["block"]  # type: ignore[index]
        kernel.set_shared_memory_config(memory)
    return kernel, memory


def compile_block(channels: int, groups: int, ahead: int, bfloat16: bool) -> bytes:
    """The kernel as a program for such a GPU, by the compiler that comes with PyTorch."""
    library = ctypes.CDLL(f"libnvrtc.so.{str(torch.version.cuda).split('.')[0]}")
    source = files("debayes.engine.gpu").joinpath("block.cu").read_bytes()
    sizes = {"CHANNELS": channels, "GROUPS": groups, "AHEAD": ahead, "BFLOAT16": int(bfloat16)}
    options = ["--gpu-architecture=sm_90a", "--std=c++17", *(f"-D{name}={size}" for name, size in sizes.items())]
    program = ctypes.c_void_p()
    library.nvrtcCreateProgram(ctypes.byref(program), source, b"block.cu", 0, None, None)
    given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    failed = library.nvrtcCompileProgram(program, len(options), given)
    kind = "ProgramLog" if failed else "CUBIN"
    size = ctypes.c_size_t()
    getattr(library, f"nvrtcGet{kind}Size")(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    getattr(library, f"nvrtcGet{kind}")(program, text)
    library.nvrtcDestroyProgram(ctypes.byref(program))
    if failed:
        raise RuntimeError(f"block.cu is not compiled here: {text.value.decode()}")
    return text.raw
