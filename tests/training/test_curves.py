"""Curves: runs are found by their logs, an unfinished line is skipped, other files are errors."""

import json
from pathlib import Path

import pytest
from PIL import Image

from debayes.training import curves


def log(folder: Path, steps: int, tail: str = "") -> None:
    folder.mkdir(parents=True)
    lines = [
        {"step": i, "seconds": i / 10, "loss": 1 / (i + 1), "val_psnr": 30.0 + i if i % 2 else None}
        for i in range(steps)
    ]
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + tail)


def test_runs_are_found_and_plotted(tmp_path: Path) -> None:
    """Every folder with a log is a run by its path; a run's own folder is one run; the plot is a picture."""
    log(tmp_path / "runs" / "a", 4)
    log(tmp_path / "runs" / "deep" / "b", 3, tail='{"step": 3, "se')
    found = curves.read_logs(tmp_path / "runs")
    assert {name: len(lines) for name, lines in found.items()} == {"a": 4, "deep/b": 3}
    assert list(curves.read_logs(tmp_path / "runs" / "a")) == ["a"]
    assert curves.best(found["a"]) == "33.00 dB (best 33.00)" and curves.best(found["a"][:1]) == "not validated"
    curves.plot(found, tmp_path / "plot.png")
    with Image.open(tmp_path / "plot.png") as picture:
        assert picture.width > 1000 and len(picture.convert("RGB").getcolors(1 << 20) or []) > 10
    curves.plot(found, tmp_path / "plot.svg")
    assert "validation PSNR" in (tmp_path / "plot.svg").read_text()


def test_what_is_no_run(tmp_path: Path) -> None:
    """An empty folder, a log of something else and an unknown kind of plot are errors."""
    with pytest.raises(ValueError, match="holds no run"):
        curves.read_logs(tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        curves.read_logs(tmp_path / "gone")
    (tmp_path / "log.jsonl").write_text('{"epoch": 1}')
    with pytest.raises(ValueError, match="not the log of a run"):
        curves.read_logs(tmp_path)
    with pytest.raises(ValueError, match=r"as \.png or \.svg"):
        curves.plot({}, tmp_path / "plot.pdf")
