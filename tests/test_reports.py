"""Tables: means of the scores, the published rows beside them, every picture in the CSV."""

import csv

import pytest

from debayes import published, reports
from debayes.evaluation import Score

SCORES = {
    ("ours", "kodak24", "RGGB"): [
        Score("a.png", 10.0, 33.0, 0.9, 0.05),
        Score("b.png", 10.0, 35.0, 0.94, 0.03),
    ],
    ("ours", "mine", "RGGB"): [Score("c.png", 10.0, 30.0, 0.8, None)],
}


def test_published_rows_are_the_papers() -> None:
    """Spot checks against table 1 of the paper; sets and levels that it lacks have no rows."""
    rows = {row.method: row for row in published.rows("kodak24", 10)}
    assert (rows["Wild-JDD"].psnr, rows["Wild-JDD"].ssim) == (33.81, 0.9127)
    assert (rows["Wild-JDD*"].psnr, rows["DeepJoint"].psnr) == (33.88, 33.10)
    assert "SGNet" not in rows and "SGNet" in {row.method for row in published.rows("urban100", 5)}
    assert all("AAAI 2021" in row.source for row in rows.values())
    assert [len(published.rows("urban100", sigma)) for sigma in (5, 10, 15)] == [8, 8, 8]
    assert published.rows("mine", 10) == published.rows("kodak24", 7) == []


def test_markdown() -> None:
    """A row of means for each method, published ones in italics and with a dash where they say nothing."""
    lines = reports.markdown(SCORES, [10.0]).splitlines()
    assert lines[0] == "| PSNR dB / SSIM | kodak24 σ=10 | mine σ=10 |"
    assert lines[2] == "| ours | 34.00 / 0.9200 | 30.00 / 0.8000 |"
    assert "| *Wild-JDD, published* | *33.81 / 0.9127* | - |" in lines
    assert len(reports.markdown(SCORES, [10.0], compare=False).splitlines()) == 3


def test_records_and_csv() -> None:
    """Means, pictures and published rows as plain values; the CSV reads back."""
    records = reports.records(SCORES, [10.0])
    assert records["means"][0] == {
        "method": "ours",
        "data": "kodak24",
        "pattern": "RGGB",
        "sigma": 10.0,
        "psnr": 34.0,
        "ssim": pytest.approx(0.92),
        "noise_error": pytest.approx(0.04),
    }
    assert len(records["pictures"]) == 3 and len(records["published"]) == 7
    rows = list(csv.DictReader(reports.comma_separated(records["pictures"]).splitlines()))
    assert [row["name"] for row in rows] == ["a.png", "b.png", "c.png"] and float(rows[1]["psnr"]) == 35
