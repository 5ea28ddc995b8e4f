"""Kinds of errors: those that the user can put right, those of the system, and bugs of debayes; and what the
command line prints for each.

`DebayesError`, `OSError` and lack of memory are expected: one line and exit code 2. Everything else is a bug.
"""

import sys

from debayes.system import files

# Exit codes of the command line; 0 is success.
SOME_FAILED = 1
"""Some files of several failed."""
FAILED = 2
"""Nothing could be done, or the user made a mistake."""
BUG = 70
"""A bug of debayes; EX_SOFTWARE of sysexits.h."""
INTERRUPTED = 130
"""Ctrl-C."""
TERMINATED = 143
"""SIGTERM."""

# How PyTorch says in a plain RuntimeError that memory is lacking: its allocators on the CPU (Linux, Windows), on
# CUDA and on MPS, and the libraries below them.
_NO_MEMORY = (
    "can't allocate memory",
    "not enough memory",
    "out of memory",
    "std::bad_alloc",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUBLAS_STATUS_ALLOC_FAILED",
)


class DebayesError(ValueError):
    """A file, an option or an array that debayes cannot work with.

    The message says what was expected, what came, and what to do. The command line prints it as one line and exits
    with code 2; any other error, but for those of the system and lack of memory, is a bug of debayes.

    Examples:
        >>> import debayes
        >>> try:
        ...     debayes.load("wild-xl")
        ... except debayes.DebayesError as error:  # or ValueError, which it is
        ...     print(str(error)[:30])
        there is no model 'wild-xl': g
    """


def lacks_memory(error: BaseException) -> bool:
    """Whether an error says that there is not enough memory: Python's own, and what PyTorch raises for it."""
    if isinstance(error, MemoryError):
        return True
    torch_type = getattr(sys.modules.get("torch"), "OutOfMemoryError", None)
    if torch_type is not None and isinstance(error, torch_type):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _NO_MEMORY)


def is_bug(error: BaseException) -> bool:
    """Whether an error is neither the user's nor the system's."""
    return not isinstance(error, DebayesError | OSError) and not lacks_memory(error)


def one_line(error: BaseException, smaller: str = "a smaller --tile or fewer --jobs") -> str:
    """What an expected error says, in one line; `smaller` is the advice if memory is lacking."""
    if lacks_memory(error):
        return f"there is not enough memory: close other programs, or use {smaller}"
    words = files.explain(error) if isinstance(error, OSError) else str(error)
    return " ".join(words.split()) or type(error).__name__


def describe_bug(error: BaseException) -> str:
    """The line about a bug: what it is, and what to do."""
    words = " ".join(str(error).split())
    found = f"{type(error).__name__}: {words}" if words else type(error).__name__
    return (
        f"this is a bug of debayes, not your mistake ({found}): run the command again with --debug, and report the "
        "traceback and the command in the project's issue tracker"
    )
