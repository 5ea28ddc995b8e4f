"""Devices by name."""

import pytest
import torch

import debayes
from debayes.network.device import find_device
from debayes.system.errors import DebayesError


@pytest.mark.parametrize(("cuda", "mps", "expected"), [(0, 0, "cpu"), (1, 0, "cuda"), (0, 1, "mps"), (1, 1, "mps")])
def test_auto_is_a_gpu_if_there_is_one(
    monkeypatch: pytest.MonkeyPatch, cuda: bool, mps: bool, expected: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(cuda))
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: bool(mps))
    assert find_device("auto").type == expected


def test_a_device_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names those that are."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(DebayesError, match="'cuda:1' is not on this machine: choose auto, cpu"):
        debayes.load("wild-s", device="cuda:1")
    assert debayes.load("wild-s", device="auto").device.type == "cpu"
    assert find_device(torch.device("meta")).type == "meta"
