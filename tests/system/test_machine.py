"""What is found out about the machine, from files as systems have them."""

from importlib import metadata
from pathlib import Path

import pytest

from debayes.system import machine


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


MEMINFO = "MemTotal:       16000 kB\nMemFree:         1000 kB\nMemAvailable:    9000 kB\n"


def test_processor(tmp_path: Path) -> None:
    """Its name as Linux knows it; the system's answer elsewhere."""
    text = "processor\t: 0\nmodel name\t: A Fine Processor\nprocessor\t: 1\nmodel name\t: A Fine Processor\n"
    assert machine.processor(write(tmp_path, {"proc/cpuinfo": text})) == "A Fine Processor"
    assert machine.processor(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("limit", "used", "expected"),
    [
        (None, None, (16000 * 1024, 9000 * 1024)),
        ("max", "5", (16000 * 1024, 9000 * 1024)),
        ("4096000", "1096000", (4096000, 3000000)),
        ("15000000", "1000000", (15000000, 9000 * 1024)),  # others use the machine's memory too
        ("99999999", "5", (16000 * 1024, 9000 * 1024)),
    ],
)
def test_memory(limit: str | None, used: str | None, expected: tuple[int, int], tmp_path: Path) -> None:
    """The machine's, or the container's if that is less."""
    files = {"proc/meminfo": MEMINFO}
    if limit and used:
        files |= {"sys/fs/cgroup/memory.max": limit, "sys/fs/cgroup/memory.current": used}
    found = machine.memory(write(tmp_path, files))
    assert (found["total"], found["available"]) == expected
    elsewhere = machine.memory(tmp_path / "nothing")
    assert elsewhere["available"] is None


def test_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name, or nothing."""
    monkeypatch.setattr(machine.webbrowser, "get", lambda: machine.webbrowser.GenericBrowser("firefox"))
    assert machine.browser() == "firefox"

    def none() -> None:
        raise machine.webbrowser.Error

    monkeypatch.setattr(machine.webbrowser, "get", none)
    assert machine.browser() is None


def test_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions by extra; none for what is missing; nothing if debayes is not installed."""
    lines = ["numpy>=1.26", "no-such-package; extra == 'demo'", "debayes[demo]; extra == 'all'"]
    monkeypatch.setattr(machine, "requires", lambda name: lines)
    assert machine.packages() == {"": {"numpy": metadata.version("numpy")}, "demo": {"no-such-package": None}}

    def absent(name: str) -> None:
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(machine, "requires", absent)
    assert machine.packages() == {}
