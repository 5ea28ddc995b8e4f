"""The parts of the picture experiments: edges, details, local PSNR, missing libraries.

Whole experiments are made in test_experiments.
"""

import sys

import pytest
import torch

from debayes.evaluation import metrics
from debayes.reproduction import visual


def test_edges_are_found() -> None:
    """The steepest pixels of a step and a ramp are those beside the step."""
    picture = torch.linspace(0, 0.1, 40).expand(3, 40, 40).clone()
    picture[:, :, 20:] += 0.5
    edges = visual._edges(picture)
    assert edges[1:-1, 19:21].all()
    assert float(edges.float().mean()) < 0.11


def test_the_busiest_detail_has_the_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a plain picture with one textured square, the detail is that square; its corner is even."""
    monkeypatch.setattr(visual, "DETAIL", 24)
    picture = torch.full((3, 160, 120), 0.5)
    picture[:, 64:88, 40:64] = torch.rand(1, 24, 24, generator=torch.Generator().manual_seed(0))
    assert visual._busiest(picture) == (64, 40)


def test_local_psnr_of_a_constant_error_is_the_psnr() -> None:
    """Also at the border, where the window is smaller; no error is at most 80 dB."""
    truth = torch.full((3, 20, 30), 0.5)
    local = visual._local_psnr(truth + 0.1, truth)
    assert local.shape == (20, 30)
    torch.testing.assert_close(local, metrics.psnr(truth + 0.1, truth).expand(20, 30), rtol=0, atol=1e-3)
    assert float(visual._local_psnr(truth, truth).max()) == pytest.approx(80, abs=1e-3)


def test_methods_without_their_library_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A note says what to install."""
    monkeypatch.setitem(sys.modules, "bm3d", None)
    methods, notes = visual._classical_methods()
    assert list(methods) == ["bilinear", "menon"]
    assert len(notes) == 1 and "pip install" in notes[0]
