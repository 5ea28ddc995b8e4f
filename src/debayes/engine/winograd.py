"""Chains of 3x3 convolutions on a CPU by Winograd's method, in C (`winograd.c`).

Each takes a quarter of the multiplications, in single precision, and the features between the first and the last
never leave a core's cache. The library is compiled when debayes is installed, if there is a C compiler.
"""

import ctypes
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

# Columns of a strip, which a thread computes from the top: few enough for a core's cache, and whole groups of
# tiles.
STRIP_COLUMNS = 144

# Parts of a picture a thread, so that none waits long for another, and the least rows of a part.
PARTS, LEAST_ROWS = 4, 64

# The most layers of a chain: as many as `winograd.c` has room for.
MOST_LAYERS = 32

# Filters of three taps at the six points 0, 1, -1, 2, -2 and infinity.
POINTS = torch.tensor(
    [
        [1 / 4, 0, 0],
        [-1 / 6, -1 / 6, -1 / 6],
        [-1 / 6, 1 / 6, -1 / 6],
        [1 / 24, 1 / 12, 1 / 6],
        [1 / 24, -1 / 12, 1 / 6],
        [0, 0, 1],
    ],
    dtype=torch.float64,
)


@dataclass(frozen=True)
class Layer:
    """A convolution of a chain, with zeros around the picture."""

    weight: Float[Tensor, "o i 3 3"]
    bias: Float[Tensor, " o"]
    rectified: bool = False
    summed: bool = False
    """Whether the input of the convolution before is added to its result, as in a residual block."""


class _Layer(ctypes.Structure):
    _fields_ = (
        ("filters", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("inputs", "outputs", "rectified", "sum")),
    )


class _Picture(ctypes.Structure):
    _fields_ = (("cells", ctypes.c_void_p), *((name, ctypes.c_int64) for name in ("row", "cell", "channels")))


@dataclass(frozen=True)
class Chain:
    """Convolutions one after the other; the first takes its inputs concatenated as channels."""

    layers: tuple[Layer, ...]
    threads: int | None = None
    """How many threads work on a picture; by default as many as PyTorch has."""

    def __post_init__(self) -> None:
        seen = [layer.weight.shape[1] for layer in self.layers]
        made = [layer.weight.shape[0] for layer in self.layers]
        added = [i for i, layer in enumerate(self.layers) if layer.summed]
        if not 1 <= len(self.layers) <= MOST_LAYERS or seen[1:] != made[:-1]:
            raise ValueError(
                f"a chain is 1 to {MOST_LAYERS} convolutions, each of which takes the result of the one before"
            )
        if any(i == 0 or seen[i - 1] != made[i] for i in added):
            raise ValueError("a convolution can only add the input of the one before, of as many channels")

    def __call__(self, *inputs: Float[Tensor, "b _ h w"]) -> Float[Tensor, "b o h w"]:
        batch, _, height, width = inputs[0].shape
        channels = self.layers[0].weight.shape[1]
        expected = (batch, height, width, "cpu")
        same = all((len(each), *each.shape[2:], each.device.type) == expected for each in inputs)
        if not same or sum(each.shape[1] for each in inputs) != channels:
            raise ValueError(f"this chain takes {channels} channels of pictures of one size on a CPU")
        shape = (batch, len(self.layers[-1].bias), height, width)
        result = torch.empty(shape, memory_format=torch.channels_last)
        for i in range(batch):
            self._convolve([_lay_out(each[i]) for each in inputs], result[i])
        return result

    def _convolve(self, inputs: Sequence[Float[Tensor, "_ h w"]], result: Float[Tensor, "o h w"]) -> None:
        library, (layers, _) = _load(), self._arranged
        threads = self.threads or torch.get_num_threads()
        sources = (_Picture * len(inputs))(*(_Picture(*_describe(each)) for each in inputs))
        target = _Picture(*_describe(result))
        height, width = inputs[0].shape[1:]
        across = _cut(width, STRIP_COLUMNS - 2 * (len(layers) - 1))
        down = _cut(height, max(LEAST_ROWS, height * len(across) // (PARTS * threads)))
        floats = library.measure(layers, len(layers), max(right - left for left, right in across))

        def work(part: tuple[int, int, int, int]) -> None:
            _ = self, inputs, result  # keeps their memory while a thread works on it
            memory = torch.empty(floats)
            where = (layers, len(layers), sources, len(sources), ctypes.byref(target), height, width)
            library.convolve_chain(*where, *part, memory.data_ptr())

        parts = [(*rows, *columns) for rows in down for columns in across]
        futures = [_threads(threads).submit(work, part) for part in parts]
        try:
            for future in futures:
                future.result()
        finally:  # after an interrupt too, the memory must stay until the last thread has finished
            for future in futures:
                future.cancel()
            wait(futures)

    @cached_property
    def _arranged(self) -> tuple[ctypes.Array[_Layer], list[Tensor]]:
        """The layers as the library takes them, and the tensors that they point to."""
        lanes = _load().lanes()
        held: list[Tensor] = []
        layers = []
        for i, layer in enumerate(self.layers):
            weight, bias = layer.weight.detach().double(), layer.bias.detach()
            outputs, inputs = (-(-count // lanes) * lanes for count in weight.shape[:2])
            held += [arrange(weight, lanes), torch.cat((bias, bias.new_zeros(outputs - len(bias)))).float()]
            pointers = (each.data_ptr() for each in held[-2:])
            layers.append(_Layer(*pointers, inputs, outputs, layer.rectified, i - 1 if layer.summed else -1))
        return (_Layer * len(layers))(*layers), held


def arrange(weight: Float[Tensor, "o i 3 3"], lanes: int) -> Float[Tensor, "36 n"]:
    """Filters at the 36 points in the library's order: two vectors of filters for each input channel, then two
    more.

    Channels are filled up with zeros to whole vectors.
    """
    outputs, inputs = weight.shape[:2]
    points = torch.einsum("xa,oiab,yb->xyio", POINTS, weight.double(), POINTS).flatten(0, 1)
    points = torch.nn.functional.pad(points, (0, -outputs % lanes, 0, -inputs % lanes))
    return torch.cat([part.flatten(1) for part in torch.split(points, 2 * lanes, 2)], 1).float()


def available() -> bool:
    """Whether there is a library for this processor."""
    return _find() is not None


def compiled() -> list[str]:
    """The kinds of vector units that there is a library for."""
    libraries = Path(__file__).parent.glob("winograd-*.so")
    return sorted(path.stem.removeprefix("winograd-") for path in libraries)


def _find() -> Path | None:
    """The library for this processor's vector units, or the one for every processor of the platform."""
    names = (torch.backends.cpu.get_cpu_capability(), "DEFAULT")
    paths = (Path(__file__).with_name(f"winograd-{name}.so") for name in names)
    return next((path for path in paths if path.exists()), None)


@cache
def _load() -> ctypes.CDLL:
    library = ctypes.CDLL(str(_find()))
    array = (ctypes.c_void_p, ctypes.c_int64)
    library.lanes.restype = library.measure.restype = ctypes.c_int64
    library.measure.argtypes = (*array, ctypes.c_int64)
    library.convolve_chain.argtypes = (*array, *array, ctypes.c_void_p, *(ctypes.c_int64,) * 6, ctypes.c_void_p)
    return library


@cache
def _threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="winograd")


def _cut(size: int, most: int) -> list[tuple[int, int]]:
    """Parts of a side of at most `most`; the last may be shorter."""
    return [(start, min(start + most, size)) for start in range(0, size, most)]


def _lay_out(picture: Float[Tensor, "c h w"]) -> Float[Tensor, "c h w"]:
    """The picture in single precision, channels last."""
    picture = picture.float()
    return picture if picture.stride(0) == 1 else picture.permute(1, 2, 0).contiguous().permute(2, 0, 1)


def _describe(picture: Float[Tensor, "c h w"]) -> tuple[int, int, int, int]:
    """The address of a picture, its strides from row to row and from cell to cell in floats, and its channels."""
    return picture.data_ptr(), picture.stride(1), picture.stride(2), picture.shape[0]
