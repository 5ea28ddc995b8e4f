"""Throughput: the arithmetic, with the clock and the measurement replaced; the table."""

from itertools import count

import pytest
import torch

from debayes.engine import prepare
from debayes.evaluation import throughput
from debayes.evaluation.throughput import Speed
from debayes.network.weights import load


def test_matrix_rate_is_the_best_of_its_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two products of 1536x1536 matrices take 4 * 1536³ operations; the shortest time counts."""
    durations = iter([3.0, 2.0, 0.5, 1.0, 4.0, 2.0])
    now, ticks = 0.0, count()

    def clock() -> float:
        nonlocal now
        if next(ticks) % 2:
            now += next(durations)
        return now

    monkeypatch.setattr(throughput, "monotonic", clock)
    assert throughput.matrix_rate(torch.device("cpu")) == pytest.approx(4 * 1536**3 / 0.5)


def test_speeds_are_megapixels_per_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """The size of the mosaic over the time measured; its share is the network's operations over the matrix rate."""
    monkeypatch.setattr(throughput, "measure", lambda engine, mosaic: 0.25)
    monkeypatch.setattr(throughput, "matrix_rate", lambda device: 1e11)
    shares: list[float] = []
    reported: list[Speed] = []
    (speed,) = throughput.measure_engines(["wild-s"], 0.06, "cpu", ["eager"], shares.append, reported.append)
    assert (speed.model, speed.engine, speed.device, speed.on_device) == ("wild-s", "eager", "cpu", None)
    assert speed.megapixels_per_second == pytest.approx(0.06 / 0.25)
    kmac = prepare(load("wild-s"), "eager", image=True).network.kmac_per_pixel
    assert speed.share == pytest.approx(2e3 * kmac * 0.06e6 / 0.25 / 1e11)
    assert shares == [1.0] and reported == [speed]


def test_rows() -> None:
    """A row for each speed; `auto` is marked, and on a GPU the throughput from its memory is added."""
    speeds = [
        Speed("wild-s", "eager", "cpu", 0.04, 1.234, None, 0.5, auto=False),
        Speed("wild-s", "half", "cuda", 1.0, 250.0, 1234.0, 0.25, auto=True),
    ]
    assert list(map(throughput.row, speeds)) == [
        "| wild-s | eager | 0.0 | 1.23 | 50% |",
        "| wild-s | half (auto) | 1.0 | 250 (on the GPU 1.23e+03) | 25% |",
    ]
