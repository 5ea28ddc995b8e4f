"""Writing a file completely or not at all, and error messages about files."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from glob import escape
from math import isfinite
from pathlib import Path
from typing import Any


def explain(error: OSError) -> str:
    """The operating system's message about a file, without its error number."""
    return f"{error.filename or 'a file'}: {error.strerror}" if error.strerror else str(error)


def check_target(path: Path) -> None:
    """Raise what `replace` would raise after the work is done: the folder is missing, or the path is a folder."""
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
    _sweep(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield temporary
        temporary.replace(path)
    except OSError as error:
        raise OSError(f"{path} could not be written: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def _sweep(path: Path) -> None:
    """Remove temporary files of killed processes; only POSIX can tell whether a process is alive."""
    if os.name != "posix":
        return
    for left in path.parent.glob(f".{escape(path.name)}.*.part"):
        number = left.name.split(".")[-2]
        if number.isdigit() and not _alive(int(number)):
            left.unlink(missing_ok=True)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        return True
    return True


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file that ends with a newline."""
    with replace(path) as temporary:
        temporary.write_text(text.rstrip("\n") + "\n", encoding="utf-8")


def to_json(value: Any, *, indent: int | None = None) -> str:
    """Plain values as JSON; infinity (the PSNR of equal pictures) and NaN become null, as JSON has neither."""
    return json.dumps(_finite(value), indent=indent, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not isfinite(value) else value
