"""Worker processes, each of which works on one item at a time. If one dies, its item and the reason are known.

Nothing here imports PyTorch: a worker limits its threads before the libraries that have some are imported.
"""

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from threading import Thread
from time import sleep
from typing import Any, Generic, TypeVar

from debayes.system import cores, malloc

Item = TypeVar("Item")
Result = TypeVar("Result")

# Seconds between two looks at whether the parent process is still there.
WATCH = 1.0


@dataclass(frozen=True)
class Died:
    """How the worker of an item ended, if not with a result."""

    exit_code: int
    """As in `multiprocessing.Process.exitcode`: a signal's negative number, or the exit code."""

    def __str__(self) -> str:
        if self.exit_code >= 0:
            return f"its worker process ended with exit code {self.exit_code}"
        number = -self.exit_code
        name = signal.Signals(number).name
        advice = {
            "SIGKILL": "; the system does this when memory runs out: use fewer --jobs",
            "SIGSEGV": "; a decoder may have crashed on a damaged file",
        }
        return f"its worker process was killed by signal {number} ({name}){advice.get(name, '')}"


def run(
    make: Callable[[], Callable[[Item], Result]], items: Sequence[Item], *, processes: int, threads: int
) -> Iterator[tuple[Item, Result | Died]]:
    """Every item with the function's result for it, in the order in which they are finished.

    `make` is called once in every worker and returns the function; neither may raise. Each worker uses `threads`
    threads. An item whose worker died is tried once more when all others are done, with the machine to itself.
    """
    again = []
    for item, result in _run(make, items, min(processes, len(items)), threads):
        if isinstance(result, Died) and processes > 1:
            again.append(item)
        else:
            yield item, result
    if again:
        yield from _run(make, again, 1, threads)


def _run(
    make: Callable[[], Callable[[Item], Result]], items: Sequence[Item], processes: int, threads: int
) -> Iterator[tuple[Item, Result | Died]]:
    queue = deque(items)
    workers = [_Worker[Item](make, threads) for _ in range(processes)]
    try:
        while queue or any(worker.items for worker in workers):
            for i, worker in enumerate(workers):
                if queue and not worker.items:
                    if not worker.process.is_alive():
                        workers[i] = worker = _Worker[Item](make, threads)
                    worker.give(queue.popleft())
            busy = {worker.connection: worker for worker in workers if worker.items}
            for connection in wait(list(busy)):
                worker = busy[connection]  # type: ignore[index]
                yield worker.items.pop(), worker.take()
    finally:
        for worker in workers:
            worker.end()


@dataclass
class _Worker(Generic[Item]):
    """A process, the pipe to it, and the item it has, if any."""

    make: Callable[[], Callable[[Item], Any]]
    threads: int
    items: list[Item] = field(default_factory=list)

    def __post_init__(self) -> None:
        # spawned, not forked: LibRaw's own threads do not survive a fork
        context = multiprocessing.get_context("spawn")
        self.connection, there = context.Pipe()
        self.process = context.Process(target=_serve, args=(there, self.threads), daemon=True)
        self.process.start()
        there.close()  # else its end would not be noticed
        with suppress(OSError):  # it has died already, which `take` reports
            self.connection.send(self.make)

    def give(self, item: Item) -> None:
        self.items.append(item)
        with suppress(OSError):
            self.connection.send(item)

    def take(self) -> Any:
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            return Died(self.process.exitcode or 0)

    def end(self) -> None:
        self.connection.close()
        self.process.terminate()
        self.process.join()


def _serve(connection: Connection, threads: int) -> None:
    """What a worker does: receive the function, then one item after another, until no more come."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes: the parent ends this one
    leave_with_parent()
    cores.limit(threads)
    with malloc.use_single_arena(), suppress(EOFError):
        function = connection.recv()()
        while True:
            connection.send(function(connection.recv()))


def leave_with_parent() -> None:
    """End this process soon after its parent process has ended, even by a signal that cannot be handled."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            sleep(WATCH)
        os._exit(1)

    Thread(target=watch, daemon=True).start()
