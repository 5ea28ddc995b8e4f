"""The demonstration with a tiny network: its files and numbers. tests/cli runs it with a shipped one."""

from pathlib import Path

import pytest
import torch
from networks import untrained

from debayes.evaluation import metrics, scenes
from debayes.formats import pictures
from debayes.imaging import virtual_camera
from debayes.network.config import Config
from debayes.reproduction import demo

TINY = Config(widths=(8,), blocks=1, bottom_blocks=1, tail=4, tail_blocks=0)


def test_files_and_numbers(tmp_path: Path) -> None:
    """Every file is there; the added noise is that of the virtual camera, the coverage a fraction."""
    shares: list[float] = []
    answer = demo.demonstrate(untrained(TINY), tmp_path, iso=6400.0, progress=shares.append)
    for name in ("cat.png", "cat.dng", "cat.truth.tiff", "cat-debayes.dng", "cat-debayes.png", "demo.png"):
        assert (tmp_path / name).stat().st_size > 0
    assert torch.equal(pictures.read(tmp_path / "cat.png"), scenes.photograph("chelsea"))
    assert answer["picture"] == str(tmp_path / "demo.png")
    clean = pictures.read(tmp_path / "cat.truth.tiff")
    level = virtual_camera.Body().profile(6400.0).variance(clean).sqrt()
    assert answer["noise"]["added"] == pytest.approx(float(level.mean()))
    assert answer["interval"]["level"] == demo.LEVEL and 0 <= answer["interval"]["holds"] <= 1
    assert set(answer["psnr"]) == {"bilinear", "debayes"} and shares[-1] == pytest.approx(1)
    assert answer["psnr"]["debayes"] < float(metrics.psnr(clean, clean))
