"""A file in memory is the file on the disk, whichever way it goes there."""

import os
from pathlib import Path

import numpy as np
import pytest

from debayes.system.memory_file import PAGE, MemoryFile


@pytest.mark.parametrize("directly", [False, True])
@pytest.mark.parametrize("size", [0, 1, PAGE - 1, PAGE, 3 * PAGE + 5])
def test_every_byte_is_stored(tmp_path: Path, size: int, directly: bool) -> None:
    """Of any size, over a longer file too, and no more than that."""
    path = tmp_path / "a.bin"
    path.write_bytes(b"older" * 10_000)
    content = np.random.default_rng(size).bytes(size)
    file = MemoryFile(size)
    file.write(content)
    file.store(path, directly=directly)
    assert path.read_bytes() == content


def test_it_is_a_file() -> None:
    """It can be written, seeked, overwritten and read, and grows when it is full."""
    file = MemoryFile(10)
    assert file.write(b"0123456789" * 1000) == 10_000 and file.tell() == 10_000
    file.seek(5)
    file.write(b"five")
    assert file.seek(-3, os.SEEK_END) == 9997 and file.read() == b"789"
    assert file.seek(4) == 4 and file.seek(-1, os.SEEK_CUR) == 3
    assert file.read(7) == b"34five9"
    file.seek(0, os.SEEK_END)
    assert file.write(np.arange(3, dtype=np.uint16)) == 6
    file.seek(10_000)
    assert file.read() == np.arange(3, dtype=np.uint16).tobytes()


def test_disks_that_know_no_direct_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is then written through the page cache; other errors are raised."""
    if not hasattr(os, "O_DIRECT"):
        pytest.skip("no system call to fail")
    file = MemoryFile(4)
    file.write(b"four")
    ordinary, number = os.open, 22

    def refuse(path: Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_DIRECT:
            raise OSError(number, "what the system says", str(path))
        return ordinary(path, flags, mode)

    monkeypatch.setattr(os, "open", refuse)
    file.store(tmp_path / "a.bin", directly=True)
    assert (tmp_path / "a.bin").read_bytes() == b"four"
    number = 28  # no space left on the device
    with pytest.raises(OSError, match="what the system says"):
        file.store(tmp_path / "b.bin", directly=True)


def test_a_full_disk_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error while writing is raised, and not taken for a disk without direct writing."""
    file = MemoryFile(4)
    file.write(b"four")

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    if hasattr(os, "O_DIRECT"):
        try:
            os.close(os.open(tmp_path / "probe", os.O_WRONLY | os.O_CREAT | os.O_DIRECT))
        except OSError:
            pytest.skip("this disk cannot be written to directly")
        with pytest.raises(OSError, match="No space left"):
            file.store(tmp_path / "a.bin", directly=True)
