"""A residual block of narrow convolutions in one kernel, `block.cu`, for NVIDIA GPUs of the Hopper generation.

The features between the two convolutions stay on the chip, and each row of the input is read once. NVRTC, the CUDA
compiler that PyTorch ships for such GPUs, compiles the kernel when it is first used.
"""

import ctypes
import functools
from importlib.resources import files
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

# Numbers of channels that the kernel exists for. For each: groups of warps in a thread block, of which a
# multiprocessor has room for one, and rows that each group fetches ahead.
LAUNCHES = {32: (3, 2), 64: (1, 2)}

# Columns of the result that a group computes; as in `block.cu`.
BAND = 62

# Threads of a group; as in `block.cu`.
_THREADS = 128

# Rows that a group computes beyond those of its result.
_EXTRA_ROWS = 6


def is_hopper(device: torch.device) -> bool:
    """Whether a device is a GPU of the Hopper generation, compute capability 9.0."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) == (9, 0)


def tap_rows(channels: int) -> tuple[int, ...]:
    """The order in which `block.cu` keeps the three rows of a filter.

    With few channels there is room for five rows, in which any three neighbouring rows hold the whole filter.
    """
    return (1, 0, 2, 1, 0) if channels == min(LAUNCHES) else (0, 1, 2)


def arrange_filters(filters: Float[Tensor, "9 c c"]) -> Float[Tensor, "k n 8"]:
    """The filters of a convolution as `block.cu` reads them: by column of taps, then by eight channels each."""
    channels = filters.shape[1]
    taps = filters.view(3, 3, channels // 8, 8, channels)  # row, column, eight channels, channel, filter
    return taps[list(tap_rows(channels))].permute(1, 2, 0, 4, 3).flatten(2, 3).flatten(0, 1).contiguous()


def unarrange_filters(arranged: Float[Tensor, "k n 8"]) -> Float[Tensor, "c c 3 3"]:
    """The inverse of `arrange_filters`: the weight of a PyTorch convolution."""
    eights = len(arranged) // 3
    order = tap_rows(8 * eights)
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
    """x + second * relu(first * x + bias) + bias, with a final ReLU if `rectified`, and zeros around x.

    The filters are those of `arrange_filters`.
    """
    batch, channels, height, width = x.shape
    groups, ahead = LAUNCHES[channels]
    x = x.contiguous(memory_format=torch.channels_last)
    result = torch.empty_like(x)
    bands = -(-width // BAND)
    multiprocessors = torch.cuda.get_device_properties(x.device).multi_processor_count
    rows = rows_per_task(height, bands * batch, groups * multiprocessors)
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


def rows_per_task(height: int, bands: int, workers: int) -> int:
    """How many rows of a band one worker should compute at a time, so that the total time is shortest if all
    workers work in rounds.
    """

    def duration(rows: int) -> int:
        rounds = -(-bands * -(-height // rows) // workers)
        return rounds * (rows + _EXTRA_ROWS)

    return min((-(-height // parts) for parts in range(1, min(height, workers) + 1)), key=duration)


def shared_memory(channels: int, groups: int, ahead: int) -> int:
    """The bytes of shared memory that `block.cu` needs: filters, biases, and the lines of each group."""
    filters = 2 * 3 * len(tap_rows(channels)) * channels**2 * 2
    line = (BAND + 4) * channels * 2
    return filters + 2 * channels * 4 + groups * (ahead + 5 + 3) * line


@functools.cache
def _load(device: torch.device, channels: int, groups: int, ahead: int, bfloat16: bool) -> tuple[Any, int]:
    """The kernel on a GPU, and its shared memory.

    PyTorch has no public way to load a compiled kernel from memory; its private one is the only private name of
    PyTorch used here. If PyTorch drops it, the self-test in `replay.blocks_of` fails and networks run without it.
    """
    from torch.cuda._utils import _cuda_load_module

    memory = shared_memory(channels, groups, ahead)
    program = compile_block(channels, groups, ahead, bfloat16)
    with torch.cuda.device(device):
        kernel = _cuda_load_module(program, ["block"])["block"]  # type: ignore[index]
        kernel.set_shared_memory_config(memory)
    return kernel, memory


def compile_block(channels: int, groups: int, ahead: int, bfloat16: bool) -> bytes:
    """The kernel compiled for Hopper GPUs (a CUBIN)."""
    library = ctypes.CDLL(f"libnvrtc.so.{str(torch.version.cuda).split('.')[0]}")
    source = files("debayes.engine.gpu").joinpath("block.cu").read_bytes()
    options = ["--gpu-architecture=sm_90a", "--std=c++17", *compiler_macros(channels, groups, ahead, bfloat16)]
    program = ctypes.c_void_p()
    library.nvrtcCreateProgram(ctypes.byref(program), source, b"block.cu", 0, None, None)
    arguments = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    failed = library.nvrtcCompileProgram(program, len(options), arguments)
    kind = "ProgramLog" if failed else "CUBIN"
    size = ctypes.c_size_t()
    getattr(library, f"nvrtcGet{kind}Size")(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    getattr(library, f"nvrtcGet{kind}")(program, text)
    library.nvrtcDestroyProgram(ctypes.byref(program))
    if failed:
        raise RuntimeError(f"NVRTC could not compile block.cu: {text.value.decode()}")
    return text.raw


def compiler_macros(channels: int, groups: int, ahead: int, bfloat16: bool) -> list[str]:
    """The macros that `block.cu` is compiled with, as options of a compiler."""
    return [f"-DCHANNELS={channels}", f"-DGROUPS={groups}", f"-DAHEAD={ahead}", f"-DBFLOAT16={int(bfloat16)}"]
