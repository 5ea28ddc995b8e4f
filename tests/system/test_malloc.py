"""One arena that keeps freed memory: fewer page faults, shared between threads. In processes of their own."""

import subprocess
import sys

import pytest
import torch

from debayes.system import malloc

glibc = pytest.mark.skipif(malloc._library() is None, reason="the C library is not glibc")

SCRIPT = """
import resource, sys
from contextlib import nullcontext
from pathlib import Path
from debayes.system import malloc
import torch
with malloc.use_single_arena() if sys.argv[1] == "keep" else nullcontext():
    for _ in range(20):
        torch.ones(16_000_000)
pages = int(Path("/proc/self/statm").read_text().split()[1])
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt, pages)
"""


@glibc
def test_freed_memory_is_used_again() -> None:
    """Twenty tensors of 64 MB cost the pages of one or two, not of twenty; in the end they are given back."""
    faults, pages = {}, {}
    for mode in ("keep", "leave"):
        done = subprocess.run([sys.executable, "-c", SCRIPT, mode], check=True, capture_output=True, text=True)
        faults[mode], pages[mode] = map(int, done.stdout.split())
    assert faults["keep"] < 0.6 * faults["leave"]
    assert pages["keep"] < pages["leave"] + 64e6 / 4096


THREADS = """
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from debayes.system import malloc

with malloc.use_single_arena() if sys.argv[1] == "one" else nullcontext():
    import numpy as np

    def allocate():
        return np.ones(40_000_000, np.uint8).sum()

    if sys.argv[1] == "each":  # the same settings, but for the number of arenas
        malloc._set(malloc._library(), malloc._KEEP)
    for _ in range(4):
        with ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second, ThreadPoolExecutor(1) as third:
            for thread in (first, second, third):
                thread.submit(allocate).result()
    allocate()
    print(int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6)
"""


@glibc
def test_threads_share_freed_memory() -> None:
    """40 MB in each of four threads, one after the other, are 40 MB, not 160."""
    megabytes = {}
    for mode in ("one", "each"):
        done = subprocess.run([sys.executable, "-c", THREADS, mode], check=True, capture_output=True, text=True)
        megabytes[mode] = float(done.stdout)
    assert megabytes["one"] < megabytes["each"] - 60


def test_the_library_never_sets_the_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restoring in a host program leaves its allocator alone: only the command line changes it."""
    from networks import untrained

    import debayes

    def forbidden() -> None:
        raise AssertionError("the C library was asked for")

    monkeypatch.setattr(malloc, "_library", forbidden)
    network = untrained(debayes.Config(widths=(8,), blocks=1, bottom_blocks=1, tail=4, tail_blocks=0))
    assert debayes.restore(network, torch.rand(1, 16, 16)).mean.shape == (3, 16, 16)
