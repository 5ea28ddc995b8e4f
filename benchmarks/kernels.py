"""Profile of a network on a GPU: python benchmarks/kernels.py [--models wild-s wild-l] [--shapes] [--blocks]

Restores a mosaic of 24 megapixels in the GPU's memory with `--engine compile`: megapixels a second, and the slowest
kernels. --shapes measures the convolutions of `triton_kernels.py` with several shapes of thread blocks, and cuDNN's
with the separate pass for a residual block's sum. --blocks measures the residual blocks of `hopper.py` with several
launch sizes, and the same as two convolutions, of cuDNN and of `triton_kernels.py`.
"""

import argparse
import sys
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from debayes import engine, restoration
from debayes.engine.gpu import hopper, operations
from debayes.network import weights
from debayes.restoration import tiling

ROWS, COLUMNS = 4096, 6000

# Channels, and the scale: features have 1 / scale of the mosaic's rows and columns.
KINDS = ((32, 2), (64, 4), (64, 2))

# (COLUMNS, ROWS, STAGES) of `triton_kernels` to measure.
SHAPES = ((64, 30, 3), (64, 62, 3), (64, 14, 3), (64, 30, 2), (64, 30, 4))

# Residual blocks: channels, scale, and values of `hopper.LAUNCHES` to measure.
BLOCKS = ((32, 2, ((3, 2), (3, 1), (3, 4), (4, 2), (2, 2))), (64, 2, ((1, 2), (1, 1))), (64, 4, ((1, 2),)))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", nargs="*", default=["wild-s", "wild-l"], help="default: wild-s wild-l")
    parser.add_argument("--shapes", action="store_true", help="also measure shapes of thread blocks")
    parser.add_argument("--blocks", action="store_true", help="also measure residual blocks (Hopper GPUs)")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("PyTorch finds no CUDA GPU here; use `debayes bench` to measure a CPU")
    if options.shapes:
        for channels, scale in KINDS:
            show_shapes(channels, scale)
    if options.blocks:
        for channels, scale, sizes in BLOCKS:
            show_blocks(channels, scale, sizes)
    for model in options.models:
        show_kernels(model)


def show_kernels(model: str) -> None:
    """Print the speed of a network and its slowest kernels."""
    network = weights.load(model, device="cuda")
    prepared = engine.prepare(network, "compile", image=True)
    mosaic = torch.rand(1, ROWS, COLUMNS)
    there = mosaic.cuda()
    speeds = [mosaic.numel() / 1e6 / tiling.measure(prepared, each, times=8) for each in (there, mosaic)]
    times = 5
    with profile(activities=[ProfilerActivity.CUDA]) as watch:
        for _ in range(times):
            restoration.restore_image(prepared, there)
        torch.cuda.synchronize()
    found = [(event.self_device_time_total, event.count, event.key) for event in watch.key_averages()]
    total = sum(spent for spent, _, _ in found) / times / 1e3
    print(f"\n{model}: {speeds[0]:.0f} MP/s, {speeds[1]:.0f} from and to host memory; kernels {total:.2f} ms")
    for spent, count, name in sorted(found, reverse=True)[:24]:
        print(f"{spent / times / 1e3:8.3f} ms {count / times:7.1f} times  {name[:110]}", flush=True)


def show_shapes(channels: int, scale: int) -> None:
    """Print the median time of a convolution with a sum for several shapes, and of cuDNN's without the sum."""
    from debayes.engine.gpu import triton_kernels

    generator = torch.Generator("cuda").manual_seed(0)
    size = (2, 1, channels, ROWS // scale, COLUMNS // scale)
    dtype = torch.float16 if channels == 32 else torch.bfloat16
    x, other = (
        each.to(dtype).contiguous(memory_format=torch.channels_last)
        for each in torch.randn(size, device="cuda", generator=generator)
    )
    weight = (torch.randn(channels, channels, 3, 3, device="cuda", generator=generator) / 24).to(dtype)
    bias = torch.randn(channels, device="cuda", generator=generator).to(dtype)
    taps = operations.tap_matrices(weight)
    weight = weight.contiguous(memory_format=torch.channels_last)
    torch.backends.cudnn.benchmark = True
    plain = time(lambda: F.conv2d(x, weight, None, padding=1))
    fused = time(lambda: torch.cudnn_convolution_relu(x, weight, bias, [1, 1], [1, 1], [1, 1], 1))
    added = time(torch.compile(lambda: x + other + bias.view(-1, 1, 1)))
    print(f"\n{channels} channels at 1/{scale}: cuDNN {plain:.3f}, rectified {fused:.3f}, a sum {added:.3f} ms")
    expected = F.conv2d(x[..., :200, :300].float(), weight.float(), bias.float(), padding=1)
    usual = triton_kernels.COLUMNS, triton_kernels.ROWS, triton_kernels.STAGES
    for shape in SHAPES:
        triton_kernels.COLUMNS, triton_kernels.ROWS, triton_kernels.STAGES = shape
        summed = time(lambda: triton_kernels.convolve(x, taps, bias, other))
        rectified = time(lambda: triton_kernels.convolve(x, taps, bias, rectified=True))
        found = triton_kernels.convolve(x, taps, bias, other).float() - other.float()
        error = (found[..., :199, :299] - expected[..., :199, :299]).square().mean().sqrt()
        print(f"{shape}: summed {summed:.3f}, rectified {rectified:.3f} ms, error {error:.1e}", flush=True)
    triton_kernels.COLUMNS, triton_kernels.ROWS, triton_kernels.STAGES = usual


def show_blocks(channels: int, scale: int, sizes: tuple[tuple[int, int], ...]) -> None:
    """Print the median time of a residual block for several launch sizes, and as two convolutions."""
    from debayes.engine.gpu import triton_kernels

    generator = torch.Generator("cuda").manual_seed(0)
    dtype = torch.float16 if (channels, scale) != (64, 2) else torch.bfloat16
    x = torch.randn(1, channels, ROWS // scale, COLUMNS // scale, device="cuda", generator=generator).to(dtype)
    x = x.contiguous(memory_format=torch.channels_last)
    weights = torch.randn(2, channels, channels, 3, 3, device="cuda", generator=generator).to(dtype) / 24
    bias = torch.randn(2, channels, device="cuda", generator=generator)
    second = operations.tap_matrices(weights[1])
    filters = torch.stack([hopper.arrange_filters(operations.tap_matrices(each)) for each in weights])
    first = weights[0].contiguous(memory_format=torch.channels_last)
    torch.backends.cudnn.benchmark = True

    def in_two() -> Tensor:
        between = torch.cudnn_convolution_relu(x, first, bias[0].to(dtype), [1, 1], [1, 1], [1, 1], 1)
        return triton_kernels.convolve(between, second, bias[1].to(dtype), x)

    expected = in_two().float()
    print(f"\na residual block of {channels} channels at 1/{scale}: as two convolutions {time(in_two):.3f} ms")
    usual = hopper.LAUNCHES[channels]
    for size in sizes:
        hopper.LAUNCHES[channels] = size
        taken = time(lambda: hopper.run_block(x, filters, bias))
        error = (hopper.run_block(x, filters, bias).float() - expected).abs()
        print(f"{size}: {taken:.3f} ms, differences {error.max():.1e}, {error.mean():.1e}", flush=True)
    hopper.LAUNCHES[channels] = usual


def time(run: Callable[[], Tensor]) -> float:
    """The median milliseconds of a call on the GPU."""
    from triton.testing import do_bench

    return float(do_bench(run, return_mode="median"))


if __name__ == "__main__":
    main()
