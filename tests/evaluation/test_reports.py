"""Tables: means of the scores, the published rows beside them, every picture in the CSV."""

import csv

import pytest

from debayes.evaluation import msr, published, reports
from debayes.evaluation.protocol import Score
from debayes.evaluation.uncertainty import Honesty

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


def test_published_rows_of_the_msr_set() -> None:
    """Spot checks against table 2 of the paper; these rows have no noise level."""
    linear, srgb = ({row.method: row for row in published.rows(f"msr-{s}", None)} for s in ("linear", "srgb"))
    assert len(linear) == len(srgb) == 11 and published.rows("msr-linear", 5) == []
    assert (linear["Wild-JDD"].psnr, linear["Wild-JDD"].ssim) == (40.16, 0.980)
    assert (srgb["Wild-JDD*"].psnr, srgb["Wild-JDD*"].ssim) == (34.59, 0.947)
    assert (linear["JMCDM"].psnr, srgb["DMCNN-VD-Tr"].ssim) == (37.44, 0.957)


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


MSR_SCORES = {
    ("bilinear", "msr"): [msr.Score("1.png", "linear", 30.0, 0.9), msr.Score("1.png", "sRGB", 25.0, 0.8)],
    ("ours", "msr"): [
        msr.Score("1.png", "linear", 38.0, 0.96),
        msr.Score("1.png", "sRGB", 32.0, 0.9),
        msr.Score("2.png", "linear", 40.0, 0.98),
        msr.Score("2.png", "sRGB", 33.0, 0.94),
    ],
}


def test_doubt() -> None:
    """A row for each set and level of those that have doubt, the means over pictures; flat columns in the CSV."""
    honest = [Honesty((0.5, 0.8, 0.9, 0.95), 0.01, -2.0, 0.2), Honesty((0.4, 0.7, 0.8, 0.95), 0.03, -3.0, 0.4)]
    scores = {
        ("bilinear", "mine", "RGGB"): [Score("a.png", 10.0, 30.0, 0.8, None)],
        ("ours", "mine", "RGGB"): [Score(f"{i}.png", 10.0, 30.0, 0.8, 0.1, h) for i, h in enumerate(honest)],
    }
    lines = reports.doubt_markdown(scores, [10.0]).splitlines()
    assert lines[0] == "| coverage of intervals | 50 % | 80 % | 90 % | 95 % | calibration error | NLL | AUSE |"
    assert lines[2:] == ["| ours, mine RGGB σ=10 | 45.0 % | 75.0 % | 85.0 % | 95.0 % | 0.020 | -2.50 | 0.300 |"]
    means = reports.records(scores, [10.0])["means"]
    assert "nll" not in means[0] and (means[1]["coverage_90"], means[1]["nll"]) == (pytest.approx(0.85), -2.5)
    plain, first, _ = reports.records(scores, [10.0])["pictures"]
    assert "honesty" not in plain and "coverage_90" not in plain
    assert (first["coverage_90"], first["calibration_error"], first["nll"], first["ause"]) == (0.9, 0.01, -2.0, 0.2)


def test_markdown_of_the_msr_set() -> None:
    """A row of means for each method in both spaces, published ones in italics, and what makes those differ."""
    text = reports.msr_markdown(MSR_SCORES)
    lines = text.splitlines()
    assert lines[0] == "| MSR | linear PSNR / SSIM | sRGB PSNR / SSIM |"
    assert lines[2:4] == [
        "| bilinear | 30.00 / 0.9000 | 25.00 / 0.8000 |",
        "| ours | 39.00 / 0.9700 | 32.50 / 0.9200 |",
    ]
    assert lines[4] == "| *JMCDM, published* | *37.44 / 0.971* | *31.35 / 0.942* |"
    assert len([line for line in lines if "published*" in line]) == 11
    assert "own fitted\ncolour transform and tone curve" in text and "not comparable to the digit" in text
    assert reports.msr_markdown(MSR_SCORES, compare=False).splitlines() == lines[:4]


def test_markdown_of_two_msr_folders() -> None:
    """Each folder has its own columns, which name it."""
    twice = {(method, data): found for (method, _), found in MSR_SCORES.items() for data in ("a", "b")}
    lines = reports.msr_markdown(twice).splitlines()
    heads = [f"{data} {space} PSNR / SSIM" for data in "ab" for space in ("linear", "sRGB")]
    assert lines[0] == f"| MSR | {' | '.join(heads)} |"
    both = "*37.44 / 0.971* | *31.35 / 0.942*"
    assert lines[4] == f"| *JMCDM, published* | {both} | {both} |"


def test_records_and_csv_of_the_msr_set() -> None:
    """Every value says its space; in one CSV with other sets, what a row lacks is empty."""
    records = reports.msr_records(MSR_SCORES)
    assert records["means"][3] == {
        "method": "ours",
        "data": "msr",
        "space": "sRGB",
        "psnr": 32.5,
        "ssim": pytest.approx(0.92),
    }
    assert len(records["means"]) == 4 and len(records["pictures"]) == 6 and len(records["published"]) == 22
    assert records["published"][0]["space"] == "linear" and records["published"][0]["psnr"] == 37.44
    pictures = reports.records(SCORES, [10.0])["pictures"] + records["pictures"]
    rows = list(csv.DictReader(reports.comma_separated(pictures).splitlines()))
    assert [row["space"] for row in rows] == ["", "", "", *["linear", "sRGB"] * 3]
    assert (rows[0]["sigma"], rows[3]["sigma"]) == ("10.0", "") and float(rows[5]["psnr"]) == 38
