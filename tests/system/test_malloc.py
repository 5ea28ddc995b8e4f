"""Memory that is kept: fewer page faults, in a process of its own."""

import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys
from contextlib import nullcontext
from pathlib import Path
from debayes.system import malloc
import torch
with malloc.keep() if sys.argv[1] == "keep" else nullcontext():
    for _ in range(20):
        torch.ones(16_000_000)
pages = int(Path("/proc/self/statm").read_text().split()[1])
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt, pages)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only glibc needs to be told")
def test_freed_memory_is_used_again() -> None:
    """Twenty tensors of 64 MB cost the pages of one or two, not of twenty; in the end they are given back."""
    faults, pages = {}, {}
    for mode in ("keep", "leave"):
        done = subprocess.run([sys.executable, "-c", SCRIPT, mode], check=True, capture_output=True, text=True)
        faults[mode], pages[mode] = map(int, done.stdout.split())
    assert faults["keep"] < 0.6 * faults["leave"]
    assert pages["keep"] < pages["leave"] + 64e6 / 4096


NESTED = """
from pathlib import Path
from debayes.system import malloc
import torch

def megabytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6

before = megabytes()
with malloc.keep():
    with malloc.keep():
        torch.ones(100_000_000)
    inner = megabytes()
print(inner - before, megabytes() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only glibc needs to be told")
def test_the_outermost_block_counts() -> None:
    """400 MB are still there after a block inside another, and given back after that one."""
    done = subprocess.run([sys.executable, "-c", NESTED], check=True, capture_output=True, text=True)
    inner, after = map(float, done.stdout.split())
    assert inner > 350
    assert after < 100


UNITED = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from debayes.system import malloc

if sys.argv[1] == "one":
    malloc.unite()

import numpy as np

def take():
    return np.ones(40_000_000, np.uint8).sum()

with malloc.keep():
    for _ in range(4):
        with ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second, ThreadPoolExecutor(1) as third:
            for thread in (first, second, third):
                thread.submit(take).result()
    take()
    print(int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only glibc needs to be told")
def test_what_a_thread_frees_another_takes() -> None:
    """40 MB in each of four threads, one after the other, are 40 MB, not 160."""
    found = {}
    for mode in ("one", "each"):
        done = subprocess.run([sys.executable, "-c", UNITED, mode], check=True, capture_output=True, text=True)
        found[mode] = float(done.stdout)
    assert found["one"] < found["each"] - 60
