"""Memory that a process keeps: tile after tile needs the same blocks.

glibc gives large blocks back to the system at once and asks for them again, and the system clears every page of
them each time: a third of the time of a network on a CPU. Other allocators do not have this habit.
"""

import ctypes
import sys

# Names of glibc's mallopt.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4


def keep() -> bool:
    """Let this process keep what it frees, up to 2 GiB at the heap's end; whether its C library can be told so."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):  # another C library
        return False
    settings = ((_TRIM_THRESHOLD, 2**31 - 1), (_TOP_PAD, 64 * 2**20), (_MMAP_MAX, 0))
    return all(bool(mallopt(name, value)) for name, value in settings)
