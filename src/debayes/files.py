"""Writing a file whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def check_target(path: Path) -> None:
    """Raise now what `replace` would raise after the work is done: a missing folder, a folder in the way."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the folder {path.parent} does not exist: create it, or write somewhere else")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: give the name of a file to write")


@contextmanager
def replace(path: Path) -> Iterator[Path]:
    """A temporary name beside `path` to write to, renamed to `path` at the end of the block.

    If the block fails, the temporary file is removed and an older file of that name is left as it was.
    """
    check_target(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield temporary
        temporary.replace(path)
    except OSError as error:
        raise OSError(f"{path} could not be written: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file, with a line end after its last line."""
    with replace(path) as temporary:
        temporary.write_text(text.rstrip("\n") + "\n")
