"""Whose an error is, and the line about it."""

import pytest
import torch

from debayes.system import errors
from debayes.system.errors import DebayesError

NO_MEMORY = (
    MemoryError(),
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:119] err == 0. DefaultCPUAllocator: can't allocate memory"),
    RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 400 bytes."),
    RuntimeError("MPS backend out of memory (MPS allocated: 1.00 GB)"),
    RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    RuntimeError("std::bad_alloc"),
)


@pytest.mark.parametrize("error", NO_MEMORY, ids=str)
def test_lack_of_memory(error: Exception) -> None:
    """Python's error, PyTorch's, and the plain RuntimeErrors of PyTorch's allocators."""
    assert errors.lacks_memory(error) and not errors.is_bug(error)
    assert errors.one_line(error, "a smaller --tile") == (
        "there is not enough memory: close other programs, or use a smaller --tile"
    )


def test_pytorch_says_it_this_way() -> None:
    """What PyTorch really raises on this machine is recognised."""
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**55, dtype=torch.uint8)
    assert errors.lacks_memory(caught.value)


@pytest.mark.parametrize("error", [DebayesError("a file"), FileNotFoundError(2, "No such file", "a.png")])
def test_what_a_user_can_put_right_is_no_bug(error: Exception) -> None:
    assert not errors.is_bug(error)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x"),
        RuntimeError("The size of tensor a (3) must match"),
        IndexError(3),
        RuntimeError("memory format"),
    ],
)
def test_everything_else_is(error: Exception) -> None:
    """ValueError and RuntimeError included: only `DebayesError` is the user's."""
    assert errors.is_bug(error)
    line = errors.describe_bug(error)
    assert "bug of debayes" in line and type(error).__name__ in line and "--debug" in line and "\n" not in line


def test_one_line() -> None:
    """Lines are joined, numbers of the system left out, an empty message replaced by the type."""
    assert errors.one_line(DebayesError("two\n  lines")) == "two lines"
    assert errors.one_line(FileNotFoundError(2, "No such file", "a.png")) == "a.png: No such file"
    assert errors.one_line(DebayesError()) == "DebayesError"
