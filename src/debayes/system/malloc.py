"""One memory arena that keeps what is freed: tile after tile, file after file uses the same blocks.

glibc returns large blocks to the system at once and asks for them again, and the system clears every page of them
each time: a third of the time of a network on a CPU. It also gives each thread an arena of its own, whose free
memory other threads cannot use. Other allocators do neither.

The setting holds for the whole process, so the command line makes it, and the library never does. A program that
only restores pictures may want it too.
"""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

# Names of glibc's mallopt, and what they are set to: inside the block, and by default.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8
_KEEP = ((_TRIM_THRESHOLD, 2**31 - 1), (_TOP_PAD, 64 * 2**20), (_MMAP_MAX, 0))
_DEFAULT = ((_TRIM_THRESHOLD, 128 * 2**10), (_TOP_PAD, 0), (_MMAP_MAX, 65536))


@contextmanager
def use_single_arena() -> Iterator[None]:
    """Let all threads share one arena that keeps freed memory until the block ends; not to be nested.

    Enter it before NumPy and PyTorch are imported: threads that have an arena already keep it.
    """
    library = _library()
    if library is None:
        yield
        return
    library.mallopt(_ARENA_MAX, 1)
    _set(library, _KEEP)
    try:
        yield
    finally:
        _set(library, _DEFAULT)
        library.malloc_trim(0)


def _set(library: Any, settings: tuple[tuple[int, int], ...]) -> None:
    for name, value in settings:
        library.mallopt(name, value)


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
