"""Time of the prior in a training step: python benchmarks/prior.py [--batch 64] [--patch 128]

Prints the time of a whole training step of wild-s (forward, backward, prior), and the time and share of the prior
with its bilateral filter everywhere, as in the paper, and at measured photosites only. On CUDA compiled and in
bfloat16, on a CPU in float32.
"""

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor

from debayes.network.config import Config
from debayes.network.network import Network
from debayes.posterior import nig, variational
from debayes.training import data
from debayes.training.recipe import Data, Noise


def seconds(work: Callable[[], object], cuda: bool, repeats: int = 10) -> float:
    """The median time of a call, after two to warm up."""
    times = []
    for i in range(repeats + 2):
        started = time.perf_counter()
        work()
        if cuda:
            torch.cuda.synchronize()
        if i >= 2:
            times.append(time.perf_counter() - started)
    return sorted(times)[len(times) // 2]


def main() -> None:
    """Print three lines."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--batch", type=int, default=64, help="patches of a step (default: 64)")
    parser.add_argument("--patch", type=int, default=128, help="side of a patch in pixels (default: 128)")
    options = parser.parse_args()
    batch, patch = options.batch, options.patch
    cuda = torch.cuda.is_available()
    device = torch.device("cuda" if cuda else "cpu")
    generator = torch.Generator(device).manual_seed(0)
    tiles = torch.randint(0, 255, (64, 256, 256, 3), dtype=torch.uint8, device=device, generator=generator)
    draws = data.sample_draws(batch, patch, seed=0, step=0, generator=generator)
    network = Network(Config()).to(device)

    def make() -> data.Batch:
        return data.make_batch(tiles, draws, pictures=Data(train=()), levels=Noise())

    def step() -> Tensor:
        made = make()
        with torch.autocast(device.type, torch.bfloat16, enabled=cuda):
            posterior = nig.whole(network(made.mosaic))
        prior = variational.prior(made.observed, made.target, measured=True)
        result = -variational.elbo(posterior, prior, made.observed).mean()
        result.backward()  # type: ignore[no-untyped-call]
        return result

    def filter_(measured: bool) -> Callable[[], object]:
        made = make()
        compiled = torch.compile(variational.prior) if cuda else variational.prior
        return lambda: compiled(made.observed, made.target, measured=measured)

    of_step = seconds(torch.compile(step) if cuda else step, cuda)
    print(f"{device.type}, {batch} patches of {patch}x{patch}: a step of wild-s takes {1e3 * of_step:.2f} ms")
    for name, measured in (("everywhere, as in the paper", False), ("at measured photosites", True)):
        took = seconds(filter_(measured), cuda)
        print(f"prior {name}: {1e3 * took:.2f} ms, {took / of_step:.0%} of the step")


if __name__ == "__main__":
    main()
