"""How many cores this process may use, and threads that yield theirs while they wait.

A container may have one core of 64, and `os.cpu_count()` says 64. Nothing here imports PyTorch: its OpenMP reads
the environment once, when PyTorch is imported.
"""

import os
from math import ceil
from pathlib import Path

# By default threads of OpenMP spin for milliseconds while they wait for each other. On a busy machine the thread
# they wait for may be the one without a core. The second variable is for LLVM's and Intel's OpenMP.
YIELDING = {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0"}

# The variables that set the threads of OpenMP, MKL, NumPy's OpenBLAS and tifffile.
NUMBERS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TIFFFILE_NUM_THREADS")

# The argument of `limit`.
_limit: int | None = None


def usable(root: Path = Path("/")) -> int:
    """The cores this process may use: its CPU affinity, or fewer if a cgroup's CPU quota allows less."""
    share = quota(root)
    return _bound() if share is None else max(1, min(_bound(), ceil(share)))


def count() -> int:
    """The threads to start for work on all cores: the argument of `limit`, or the usable cores."""
    return _limit or usable()


def limit(threads: int | None = None) -> None:
    """Set the threads of PyTorch and of the libraries below it, and let waiting threads yield their cores.

    Call it before PyTorch and NumPy are imported. Without a number the user's environment variables stay, a CPU
    quota below the number of cores is respected, and otherwise the libraries choose for themselves.
    """
    global _limit
    _limit = threads
    for name, value in YIELDING.items():
        os.environ.setdefault(name, value)
    if threads is not None:
        os.environ.update(dict.fromkeys(NUMBERS, str(threads)))
    elif usable() < _bound():
        for name in NUMBERS:
            os.environ.setdefault(name, str(usable()))


def quota(root: Path = Path("/")) -> float | None:
    """The CPU seconds per second that this process's cgroups allow, the least of them; none without a limit.

    `root` is the folder of proc and sys.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    shares = []
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if not controllers:
            shares += [_share(path / "cpu.max") for path in _up(root / "sys/fs/cgroup", group)]
        elif "cpu" in controllers.split(","):
            mounts = (root / "sys/fs/cgroup" / name for name in dict.fromkeys((controllers, "cpu")))
            names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
            shares += [_share(*(path / name for name in names)) for mount in mounts for path in _up(mount, group)]
    return min((share for share in shares if share is not None), default=None)


def _bound() -> int:
    """The cores of this process's CPU affinity; all cores on systems without affinity."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _up(mount: Path, group: str) -> list[Path]:
    """A cgroup's folder and its parents, up to the mount point: in a container that is its own cgroup."""
    folder = mount / group.strip("/")
    return [folder, *(path for path in folder.parents if path.is_relative_to(mount))]


def _share(*files: Path) -> float | None:
    """Quota divided by period, from one file or two; none if there is no limit."""
    try:
        quota, period = (int(word) for file in files for word in file.read_text().split())
    except (OSError, ValueError):  # there is no such file, or it holds "max"
        return None
    return quota / period if quota > 0 and period > 0 else None
