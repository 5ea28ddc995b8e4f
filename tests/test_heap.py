"""Memory that is kept: fewer page faults, in a process of its own."""

import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys
from debayes import heap
if sys.argv[1] == "keep":
    assert heap.keep()
import torch
for _ in range(20):
    torch.ones(16_000_000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only glibc needs to be told")
def test_freed_memory_is_used_again() -> None:
    """Twenty tensors of 64 MB cost the pages of one or two, not of twenty."""
    faults = {}
    for mode in ("keep", "leave"):
        done = subprocess.run([sys.executable, "-c", SCRIPT, mode], check=True, capture_output=True, text=True)
        faults[mode] = int(done.stdout)
    assert faults["keep"] < 0.6 * faults["leave"]
