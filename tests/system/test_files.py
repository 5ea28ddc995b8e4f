"""A file is written whole or not at all."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from debayes.system.files import replace, write_text


def test_content_appears_only_at_the_end(tmp_path: Path) -> None:
    """Until the block ends the old content stands; then the new stands alone."""
    path = tmp_path / "picture.png"
    path.write_bytes(b"old")
    with replace(path) as temporary:
        temporary.write_bytes(b"new and longer")
        assert path.read_bytes() == b"old"
        assert temporary.parent == path.parent  # a rename is atomic only within one file system
    assert path.read_bytes() == b"new and longer"
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_file_does_not_exist_before_the_end(tmp_path: Path) -> None:
    """A name that was free stays free until the block ends."""
    path = tmp_path / "picture.png"
    with replace(path) as temporary:
        temporary.write_bytes(b"new")
        assert not path.exists()
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("old", [b"old", None])
def test_a_failure_leaves_what_was_there(tmp_path: Path, error: type[BaseException], old: bytes | None) -> None:
    """Errors in the block are raised unchanged; the old file stays, and no temporary file is left."""
    path = tmp_path / "picture.png"
    if old is not None:
        path.write_bytes(old)
    with pytest.raises(error, match="half way"), replace(path) as temporary:
        temporary.write_bytes(b"half")
        raise error("half way")
    assert [file.read_bytes() for file in tmp_path.iterdir()] == ([] if old is None else [old])


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    """The system's error comes with the name of the file that was to be written; the cause is kept."""
    path = tmp_path / "picture.png"
    path.write_bytes(b"old")
    with pytest.raises(OSError, match=r"picture\.png could not be written: No space left on device$") as error:  # noqa: SIM117
        with replace(path) as temporary:
            temporary.write_bytes(b"half")
            raise OSError(28, "No space left on device")
    assert isinstance(error.value.__cause__, OSError)
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [b"old"]


def test_an_error_without_a_systems_reason_is_kept(tmp_path: Path) -> None:
    """NumPy's "n requested and m written" has no reason of the system's; its own words are told."""
    with (
        pytest.raises(OSError, match=r"picture\.png could not be written: 7 requested"),
        replace(tmp_path / "picture.png"),
    ):
        raise OSError("7 requested and 3 written")


def test_nothing_written_is_an_error(tmp_path: Path) -> None:
    """A block that writes nothing is an error, and the old file stays."""
    path = tmp_path / "picture.png"
    path.write_bytes(b"old")
    with pytest.raises(OSError, match=r"picture\.png could not be written"), replace(path):
        pass
    assert path.read_bytes() == b"old"


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    """A folder that does not exist is named, not made, and the block does not run."""
    with pytest.raises(FileNotFoundError, match=r"^the folder .*nowhere does not exist: [^\n]*$"):  # noqa: SIM117
        with replace(tmp_path / "nowhere" / "picture.png"):
            pytest.fail("the block ran")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    """The name of a folder is rejected, the block does not run, and the folder is unchanged."""
    (tmp_path / "kept").write_bytes(b"old")
    with pytest.raises(IsADirectoryError, match=r"is a folder: [^\n]*$"), replace(tmp_path):
        pytest.fail("the block ran")
    assert (tmp_path / "kept").read_bytes() == b"old"


def test_what_a_killed_process_left_is_swept_up(tmp_path: Path) -> None:
    """Half files of dead processes go, those of living ones stay."""
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left, busy = (tmp_path / f".a.txt.{number}.part" for number in (dead.pid, os.getppid()))
    left.touch()
    busy.touch()
    write_text(tmp_path / "a.txt", "whole")
    assert not left.exists() and busy.exists()
