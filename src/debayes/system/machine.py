"""The machine that the program runs on: processor, memory, browser, installed packages."""

import os
import platform
import re
import subprocess
import webbrowser
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path


def processor(root: Path = Path("/")) -> str:
    """The name of the processor, or its architecture; `root` is the folder of proc."""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", (root / "proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    if found:
        return found[1].strip()
    if platform.system() == "Darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout.strip()
    return platform.processor() or platform.machine()


def memory(root: Path = Path("/")) -> dict[str, int | None]:
    """Bytes of memory, and how many of them are available; none where the system does not say it so.

    A limit of the container counts as its memory. `root` is the folder of proc and sys.
    """
    try:
        lines = (root / "proc/meminfo").read_text()
        sizes = {name: 1024 * int(size) for name, size in re.findall(r"^(\w+):\s+(\d+) kB$", lines, re.MULTILINE)}
    except OSError:
        return {"total": _physical(), "available": None}
    total, available = sizes.get("MemTotal"), sizes.get("MemAvailable")
    limit = _number(root / "sys/fs/cgroup/memory.max")
    if limit is not None and (total is None or limit < total):
        used = _number(root / "sys/fs/cgroup/memory.current") or 0
        free = max(0, limit - used)
        total, available = limit, free if available is None else min(available, free)
    return {"total": total, "available": available}


def browser() -> str | None:
    """The browser that opens pages, by name; none without one."""
    try:
        found = webbrowser.get()
    except webbrowser.Error:
        return None
    return str(getattr(found, "name", "")) or "the system's"


def packages() -> dict[str, dict[str, str | None]]:
    """The installed version of each package that debayes needs ("") and that each of its extras needs.

    None stands for a package that is missing. Empty if debayes itself is not installed, but found on a path.
    """
    try:
        lines = requires("debayes") or []
    except PackageNotFoundError:
        return {}
    found: dict[str, dict[str, str | None]] = {}
    for line in lines:
        name = re.match(r"[\w.-]+", line)
        extra = re.search(r"extra == ['\"](\w+)['\"]", line)
        if name and name[0] != "debayes":
            found.setdefault(extra[1] if extra else "", {})[name[0]] = _version(name[0])
    return found


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _physical() -> int | None:
    """The physical memory, on systems that have POSIX's `sysconf`."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return None


def _number(file: Path) -> int | None:
    """The number in a file; none if there is no such file, or it holds "max"."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None
