"""Worker processes: every item has a result, a worker that dies takes no other item along."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from debayes.darkroom import workers
from debayes.system import cores


def make_square() -> Callable[[int], tuple[int, int, str | None]]:
    """A function that squares, says in which process it ran and how many threads OpenMP may have; 3 kills it."""

    def square(number: int) -> tuple[int, int, str | None]:
        if number == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        if number == 5:
            os._exit(7)
        return number**2, os.getpid(), os.environ.get("OMP_NUM_THREADS")

    return square


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers import this module by its name."""
    monkeypatch.syspath_prepend(Path(__file__).parent)
    module = sys.modules.get("test_workers") or sys.modules[__name__]
    monkeypatch.setitem(sys.modules, "test_workers", module)
    monkeypatch.setattr(make_square, "__module__", "test_workers")


def test_results() -> None:
    """Each item once, in other processes, with as many threads as they were given."""
    results = dict(workers.run(make_square, range(3), processes=2, threads=4))
    assert {item: result[0] for item, result in results.items()} == {0: 0, 1: 1, 2: 4}
    assert os.getpid() not in {result[1] for result in results.values()}
    assert {result[2] for result in results.values()} == {"4"} and cores._limit is None


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no kill -9")
@pytest.mark.parametrize("processes", [1, 2])
def test_dead_workers(processes: int) -> None:
    """The items of workers that died are told with the signal or exit code; all others have their results."""
    results = dict(workers.run(make_square, [2, 3, 4, 5, 6], processes=processes, threads=1))
    assert [results[item][0] for item in (2, 4, 6)] == [4, 16, 36]
    assert results[3] == workers.Died(-9) and results[5] == workers.Died(7)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (-9, "killed by signal 9 (SIGKILL); the system does this when memory runs out"),
        (-11, "killed by signal 11 (SIGSEGV); a decoder may have crashed"),
        (-15, "killed by signal 15 (SIGTERM)"),
        (1, "ended with exit code 1"),
    ],
)
def test_words(code: int, words: str) -> None:
    """How a worker ended, in words."""
    assert words in str(workers.Died(code))


PARENT = """
import os, time
from multiprocessing import get_context
from debayes.darkroom.workers import leave_with_parent

def live(connection):
    leave_with_parent()
    connection.send(os.getpid())
    time.sleep(600)

if __name__ == "__main__":
    context = get_context("spawn")
    here, there = context.Pipe()
    context.Process(target=live, args=(there,)).start()
    print(here.recv(), flush=True)
    time.sleep(600)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no kill -9")
def test_processes_end_with_their_parent(tmp_path: Path) -> None:
    """kill -9 leaves no process behind that goes on developing."""
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    for _ in range(600):
        time.sleep(0.1)
        try:
            os.kill(child, 0)
            state = Path(f"/proc/{child}/status").read_text() if Path("/proc").is_dir() else ""
        except (ProcessLookupError, FileNotFoundError):
            return
        if "State:\tZ" in state:
            return  # ended, but nobody has collected its exit code
    raise AssertionError("the process is still there")
