"""Memory that is kept while it is needed again and again: tile after tile, file after file takes the same blocks.

glibc gives large blocks back to the system at once and asks for them again, and the system clears every page of
them each time: a third of the time of a network on a CPU. Other allocators do not have this habit.
"""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

# Names of glibc's mallopt, and what they are set to in here and outside.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8
_KEPT = ((_TRIM_THRESHOLD, 2**31 - 1), (_TOP_PAD, 64 * 2**20), (_MMAP_MAX, 0))
_USUAL = ((_TRIM_THRESHOLD, 128 * 2**10), (_TOP_PAD, 0), (_MMAP_MAX, 65536))


# How many blocks of `keep` are open, in whichever threads.
_open = 0
_lock = Lock()


@contextmanager
def keep() -> Iterator[None]:
    """Let the process keep what it frees until the block ends; then all of it goes back to the system.

    Of blocks inside others the outermost counts.
    """
    library = _library()
    if library is None:
        yield
        return
    _count(library, 1)
    try:
        yield
    finally:
        _count(library, -1)


def unite() -> None:
    """Let threads that are started from now on share one heap, for good: what one frees another can take.

    glibc gives each its own, which then keeps what it has. For a few threads that take large blocks.
    """
    library = _library()
    if library is not None:
        library.mallopt(_ARENA_MAX, 1)


def _count(library: Any, step: int) -> None:
    """Count a block that opens or closes; the first and the last change the library's habits."""
    global _open
    with _lock:
        _open += step
        if _open == 0 or (_open == 1 and step == 1):
            for name, value in _KEPT if _open else _USUAL:
                library.mallopt(name, value)
        if _open == 0:
            library.malloc_trim(0)


@cache
def _library() -> Any:
    """The C library if it is glibc, else nothing."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        library = ctypes.CDLL("libc.so.6")
        _ = library.mallopt, library.malloc_trim  # musl has neither
    except (OSError, AttributeError):
        return None
    return library
