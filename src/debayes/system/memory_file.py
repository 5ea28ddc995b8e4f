"""A file that is assembled in memory and written to the disk in one piece, past the system's page cache.

The cache takes new pages for every file, which the system has to clear: 0.2 seconds of CPU time per picture.
Direct writes use almost no CPU, so a network can run on all cores meanwhile.
"""

import errno
import os
from io import RawIOBase
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Memory for direct writes starts at a multiple of this, and its length is a multiple of it.
PAGE = 4096


class MemoryFile(RawIOBase):
    """A file in memory, with room for so many bytes; it is moved to where there is more if they are not enough."""

    def __init__(self, room: int) -> None:
        self._bytes = _aligned(room)
        self._at = self._end = 0

    def __len__(self) -> int:
        return self._end

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._end)[whence]
        return self._at

    def write(self, data: Any) -> int:
        """Write bytes; what was skipped before them is filled with zeros."""
        added = np.frombuffer(data, np.uint8)
        end = self._at + len(added)
        if end > len(self._bytes):
            larger = _aligned(end + end // 4)
            larger[: self._end] = self._bytes[: self._end]
            self._bytes = larger
        if self._at > self._end:
            self._bytes[self._end : self._at] = 0
        self._bytes[self._at : end] = added
        self._at, self._end = end, max(self._end, end)
        return len(added)

    def readinto(self, buffer: Any) -> int:
        part = self._bytes[self._at : min(self._end, self._at + len(buffer))]
        buffer[: len(part)] = part.tobytes()
        self._at += len(part)
        return len(part)

    def store(self, path: Path, *, directly: bool = False) -> None:
        """Write the file; past the system's cache, if asked for, where the system and the disk can do that."""
        if not directly or not self._store_directly(path):
            path.write_bytes(self._bytes[: self._end].data)

    def _store_directly(self, path: Path) -> bool:
        try:
            number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_DIRECT, 0o666)
            try:
                whole = -(-self._end // PAGE) * PAGE
                self._bytes[self._end : whole] = 0
                done = 0
                while done < whole:
                    done += os.write(number, self._bytes[done:whole].data)
                os.ftruncate(number, self._end)
            finally:
                os.close(number)
        except AttributeError:  # other systems have no such flag
            return False
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            return False
        return True


def _aligned(room: int) -> NDArray[np.uint8]:
    """Whole pages of memory for so many bytes."""
    memory = np.empty(room + 2 * PAGE, np.uint8)
    start = -memory.ctypes.data % PAGE
    return memory[start : start + -(-room // PAGE) * PAGE]
