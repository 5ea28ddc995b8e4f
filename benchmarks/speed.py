"""Speed and quality of every engine and of other methods: a table, and a plot of quality over speed.

    python benchmarks/speed.py [--megapixels 6] [--pictures FOLDER] [--device cpu] [--plot speed.png] [--layers]

Each row is measured in a separate process on the same mosaic: megapixels a second, the best of three runs after
one to warm up; the process's peak memory; the network's multiplications as a share of the matrix rate that was
measured in the same run; PSNR at noise 10 on the pictures. "plain" is the network in PyTorch's default memory
format, tile by tile. --layers prints the rate of each kind of convolution instead.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from debayes import engine
from debayes.engine import selection, winograd
from debayes.evaluation import baselines, metrics, scenes, throughput
from debayes.formats import dng
from debayes.formats import pictures as picture_files
from debayes.formats import raw as raws
from debayes.imaging import cfa, virtual_camera
from debayes.network import weights
from debayes.network.network import Network
from debayes.restoration import restore_image
from debayes.system import malloc

PEERS = ("bilinear", "menon", "LibRaw AHD", "demosaicnet")

# The noise level of the PSNR.
SIGMA = 10 / 255


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--megapixels", type=float, default=6.0, help="size of the mosaic (default: 6)")
    parser.add_argument("--models", nargs="+", default=["wild-s", "wild-l"], help="default: wild-s wild-l")
    parser.add_argument("--pictures", type=Path, help="folder of pictures for PSNR; default: a free photograph")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default: cpu)")
    parser.add_argument("--plot", type=Path, help="also write a plot to this file")
    parser.add_argument("--layers", action="store_true", help="rates of the convolutions instead")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        model, name = options.one
        with nullcontext() if name == "plain" else malloc.use_single_arena():  # as the command line does
            print(json.dumps(measure(model, name, options)))
        return
    device = torch.device(options.device)
    rate = throughput.matrix_rate(device)
    print(f"matrix rate {rate / 1e9:.0f} GFLOP/s, {torch.get_num_threads()} threads")
    if options.layers:
        for model in options.models:
            show_layers(weights.load(model), rate, model)
        return
    engines = [name for name in selection.ENGINES if selection.available(name, device) and name != "compile"]
    rows = [(model, name) for model in options.models for name in ("plain", *engines)]
    rows += [("peer", name) for name in PEERS] if options.device == "cpu" else []
    print("| method | MP/s | times plain | peak GiB | share of the matrix rate | PSNR |\n|---|---|---|---|---|---|")
    found: dict[tuple[str, str], dict[str, float]] = {}
    for row in rows:
        again = [option for option in sys.argv[1:] if option != "--layers"]
        command = [sys.executable, __file__, *again, "--one", *row]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found[row] = one = json.loads(done.stdout)
        plain = found.get((row[0], "plain"))
        times = f"{one['speed'] / plain['speed']:.2f}" if plain else ""
        share = f"{one['flops'] * one['speed'] / rate:.0%}" if one["flops"] else ""
        name = row[1] if row[0] == "peer" else f"{row[0]}, {row[1]}"
        print(
            f"| {name} | {one['speed']:.3g} | {times} | {one['peak']:.2f} | {share} | {one['psnr']:.2f} |",
            flush=True,
        )
    if options.plot:
        plot(found, options.plot)


def measure(model: str, name: str, options: argparse.Namespace) -> dict[str, float]:
    """One row: speed, memory, number of operations and PSNR of a method."""
    import resource

    run, flops = method(model, name, options.device)
    height = round((options.megapixels * 1e6 / 1.5) ** 0.5 / 2) * 2
    large = noisy(scenes.wallpaper(height, height * 3 // 2), 0)
    best = 0.0
    for warm in range(4):
        start = monotonic()
        run(large)
        if warm:
            best = max(best, large.numel() / 1e6 / (monotonic() - start))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    files = sorted(path for path in options.pictures.iterdir() if path.is_file()) if options.pictures else []
    pictures = [picture_files.read(path) for path in files] or [scenes.photograph("chelsea")]
    scores = [float(metrics.psnr(run(noisy(p, i)).clamp(0, 1), p)) for i, p in enumerate(pictures)]
    return {"speed": best, "peak": peak, "flops": flops, "psnr": float(np.mean(scores))}


def noisy(picture: Tensor, seed: int) -> Tensor:
    mosaic = cfa.mosaic(picture)
    return mosaic + SIGMA * torch.randn(mosaic.shape, generator=torch.Generator().manual_seed(seed))


def method(model: str, name: str, device: str) -> tuple[Callable[[Tensor], Tensor], float]:
    """A function that turns a mosaic into a picture, and a network's operations a megapixel."""
    if model == "peer":
        if name == "LibRaw AHD":
            return libraw, 0.0
        peer = baselines.find_baseline(name)
        return lambda mosaic: peer(mosaic, "RGGB", None), 0.0
    network = weights.load(model, device=device)
    if name != "plain":
        fast = engine.prepare(network, name, image=True)
        return lambda mosaic: restore_image(fast, mosaic), 2e9 * fast.network.kmac_per_pixel
    plain = Network(network.config).to(device).eval().requires_grad_(False)
    plain.load_state_dict({key: value.contiguous() for key, value in network.state_dict().items()})
    return lambda mosaic: restore_image(plain, mosaic, tile=1024), 2e9 * network.kmac_per_pixel


def libraw(mosaic: Tensor) -> Tensor:
    """LibRaw's adaptive homogeneity-directed interpolation, of a 16-bit DNG with headroom on both sides."""
    import rawpy

    black, scale = 8192, 40960
    counts = (black + scale * mosaic[0]).round().clamp(0, 65535).numpy().astype(np.uint16)
    body = virtual_camera.Body()
    shot = raws.Raw(mosaic, "RGGB", (1.0, 1.0, 1.0), body.matrix)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "mosaic.dng")
        dng.write_mosaic(path, counts, shot, black=0, white=65535, preview=np.zeros((8, 8, 3), np.uint8))
        with rawpy.imread(str(path)) as file:
            shown = file.postprocess(
                demosaic_algorithm=rawpy.DemosaicAlgorithm.AHD,
                output_color=rawpy.ColorSpace.raw,
                output_bps=16,
                gamma=(1, 1),
                no_auto_bright=True,
                adjust_maximum_thr=0.0,
                user_wb=[1.0, 1.0, 1.0, 1.0],
                user_flip=0,
            )
    return (torch.from_numpy(shown.astype(np.float32)).permute(2, 0, 1) - black) / scale


def show_layers(network: Network, rate: float, model: str) -> None:
    """Print the rate of each kind of convolution, in PyTorch and in `winograd`, at its size in a tile."""
    kinds: dict[tuple[int, ...], list[float]] = {}

    def note(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        assert isinstance(module, nn.Conv2d) and module.bias is not None
        scale = 1024 // output.shape[-1]
        key = (module.in_channels, module.out_channels, module.kernel_size[0], module.stride[0], scale)
        entry = kinds.setdefault(key, [0.0, 0.0, 0.0])
        entry[0] += 2 * output[0, 0].numel() * module.weight.numel()
        entry[1] += clock(module.forward, inputs[0])
        if module.kernel_size == (3, 3) and winograd.available():
            chain = winograd.Chain((winograd.Layer(module.weight, module.bias),))
            chain(inputs[0])  # arranges the filters
            entry[2] += clock(chain, inputs[0])

    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(note)
    with torch.inference_mode(), malloc.use_single_arena():
        network(torch.rand(1, 1, 1024, 1024))
    total = sum(seconds for _, seconds, _ in kinds.values())
    print(f"{model}\n| convolution | at | GFLOP/s | of the matrix rate | of the time | by winograd |")
    print("|---|---|---|---|---|---|")
    for (inputs, outputs, size, _, scale), (work, seconds, faster) in kinds.items():
        chained = f"{work / faster / 1e9:.0f}" if faster else ""
        print(
            f"| {size}x{size}, {inputs} to {outputs} | 1/{scale} | {work / seconds / 1e9:.0f} "
            f"| {work / seconds / rate:.0%} | {seconds / total:.0%} | {chained} |"
        )


def clock(run: Callable[[Tensor], Tensor], x: Tensor) -> float:
    """The mean seconds of three calls."""
    start = monotonic()
    for _ in range(3):
        run(x)
    return (monotonic() - start) / 3


def plot(found: dict[tuple[str, str], dict[str, Any]], path: Path) -> None:
    """Plot PSNR over speed."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    above = {True: False, False: False}  # names of neighbours in turn above and below, of networks and of peers
    for (model, name), one in sorted(found.items(), key=lambda item: item[1]["speed"]):
        peer = model == "peer"
        above[peer] = not above[peer]
        axes.plot(one["speed"], one["psnr"], "s" if peer else "o", color="tab:gray" if peer else "tab:blue")
        axes.annotate(
            name if peer else f"{model}, {name}",
            (one["speed"], one["psnr"]),
            xytext=(0, 6 if above[peer] else -6),
            textcoords="offset points",
            fontsize=7,
            rotation=90,
            ha="center",
            va="bottom" if above[peer] else "top",
        )
    axes.set(xscale="log", xlabel="megapixels a second", ylabel="PSNR at noise 10, dB")
    axes.margins(0.08, 0.5)
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
