"""Tables: means of the scores, published rows below them, every picture in the CSV."""

import csv
from collections.abc import Iterator

import pytest

from debayes.evaluation import msr, published, reports
from debayes.evaluation.iso import IsoScore
from debayes.evaluation.plain_colors import PlainColor, Residual
from debayes.evaluation.protocol import Score
from debayes.evaluation.uncertainty import UncertaintyScores

SCORES = {
    ("ours", "kodak24", "RGGB"): [
        *(Score(f"a{i}.png", 10.0, 33.0, 0.9, 0.05) for i in range(12)),
        *(Score(f"b{i}.png", 10.0, 35.0, 0.94, 0.03) for i in range(12)),
    ],
    ("ours", "mine", "RGGB"): [Score("c.png", 10.0, 30.0, 0.8, None)],
}


KODAK, MINE = ("kodak24", "RGGB"), ("mine", "RGGB")


def test_score_lines() -> None:
    """A row of means for each method; published rows in italics, with a dash for missing values."""
    results = [("ours", {at: SCORES["ours", *at] for at in (KODAK, MINE)})]
    lines = list(reports.score_lines(results, [KODAK, MINE], [10.0]))
    assert lines[0] == "| PSNR dB / SSIM | kodak24 σ=10 | mine σ=10 |"
    assert lines[2] == "| ours | 34.00 / 0.9200 | 30.00 / 0.8000 |"
    assert "| *Wild-JDD, published* | *33.81 / 0.9127* | - |" in lines


def test_a_part_of_a_set_has_no_published_rows() -> None:
    """Neither in the table nor in the records; a sentence says why."""
    part = {("ours", *KODAK): SCORES["ours", *KODAK][:3]}
    assert len(list(reports.score_lines([("ours", {KODAK: part["ours", *KODAK]})], [KODAK], [10.0]))) == 3
    assert reports.records(part, [10.0])["published"] == []
    note = published.left_out("kodak24", 3)
    assert note == "kodak24: 3 of 24 pictures were scored: published rows, which are of all, are not shown"
    assert published.left_out("kodak24", 24) is published.left_out("mine", 3) is None


def test_rows_come_with_their_results() -> None:
    """A row is there before the next method is scored."""
    seen = []

    def results() -> Iterator[tuple[str, dict[tuple[str, str], list[Score]]]]:
        for method in ("first", "second"):
            seen.append(method)
            yield method, {MINE: SCORES["ours", *MINE]}

    lines = reports.score_lines(results(), [MINE], [10.0])
    assert [next(lines).split(" ")[1] for _ in range(3)] == ["PSNR", "---", "first"] and seen == ["first"]
    assert next(lines).startswith("| second") and list(lines) == []


def test_rows_of_iso_speeds_come_with_their_results() -> None:
    """A row is there before the next method is scored; with two sets each column names its own."""
    seen = []

    def results(*sets: tuple[str, str]) -> Iterator[tuple[str, dict[tuple[str, str], list[IsoScore]]]]:
        for method in ("first", "second"):
            seen.append(method)
            yield method, {at: [IsoScore("a.png", 100, 40.0), IsoScore("a.png", 800, 30.0)] for at in sets}

    lines = reports.iso_lines(results(MINE), [MINE], [100, 800])
    assert next(lines) == "| PSNR dB, linear; mine | ISO 100 | ISO 800 |"
    assert [next(lines) for _ in range(2)][1] == "| first | 40.00 | 30.00 |" and seen == ["first"]
    assert list(lines) == ["| second | 40.00 | 30.00 |"]
    head = next(reports.iso_lines(results(KODAK, MINE), [KODAK, MINE], [100]))
    assert head == "| PSNR dB, linear | kodak24 ISO 100 | mine ISO 100 |"


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
    assert len(records["pictures"]) == 25 and len(records["published"]) == 7
    rows = list(csv.DictReader(reports.comma_separated(records["pictures"]).splitlines()))
    assert [row["name"] for row in rows[::12]] == ["a0.png", "b0.png", "c.png"] and float(rows[12]["psnr"]) == 35


MSR_SCORES = {
    ("bilinear", "msr"): [msr.PairScore("1.png", "linear", 30.0, 0.9), msr.PairScore("1.png", "sRGB", 25.0, 0.8)],
    ("ours", "msr"): [
        msr.PairScore("1.png", "linear", 38.0, 0.96),
        msr.PairScore("1.png", "sRGB", 32.0, 0.9),
        msr.PairScore("2.png", "linear", 40.0, 0.98),
        msr.PairScore("2.png", "sRGB", 33.0, 0.94),
    ],
}


def test_doubt() -> None:
    """A row of means for each set and level of the methods with uncertainty; flat columns in the CSV."""
    doubts = [
        UncertaintyScores((0.5, 0.8, 0.9, 0.95), 0.01, -2.0, 0.2),
        UncertaintyScores((0.4, 0.7, 0.8, 0.95), 0.03, -3.0, 0.4),
    ]
    scores = {
        ("bilinear", "mine", "RGGB"): [Score("a.png", 10.0, 30.0, 0.8, None)],
        ("ours", "mine", "RGGB"): [Score(f"{i}.png", 10.0, 30.0, 0.8, 0.1, h) for i, h in enumerate(doubts)],
    }
    lines = list(reports.doubt_lines(scores, [10.0]))
    assert lines[0] == "| coverage of intervals | 50 % | 80 % | 90 % | 95 % | calibration error | NLL | AUSE |"
    assert lines[2:] == ["| ours, mine RGGB σ=10 | 45.0 % | 75.0 % | 85.0 % | 95.0 % | 0.020 | -2.50 | 0.300 |"]
    means = reports.records(scores, [10.0])["means"]
    assert "nll" not in means[0] and (means[1]["coverage_90"], means[1]["nll"]) == (pytest.approx(0.85), -2.5)
    plain, first, _ = reports.records(scores, [10.0])["pictures"]
    assert "uncertainty" not in plain and "coverage_90" not in plain
    assert (first["coverage_90"], first["calibration_error"], first["nll"], first["ause"]) == (0.9, 0.01, -2.0, 0.2)


def test_markdown_of_the_msr_set() -> None:
    """A row of means for each method in both spaces, published rows in italics, and a note on how they differ."""
    results = [(method, {"msr": found}) for (method, _), found in MSR_SCORES.items()]
    lines = list(reports.msr_lines(results, ["msr"], compare=True))
    text = "\n".join(lines)
    assert lines[0] == "| MSR | linear PSNR / SSIM | sRGB PSNR / SSIM |"
    assert lines[2:4] == [
        "| bilinear | 30.00 / 0.9000 | 25.00 / 0.8000 |",
        "| ours | 39.00 / 0.9700 | 32.50 / 0.9200 |",
    ]
    assert lines[4] == "| *JMCDM, published* | *37.44 / 0.971* | *31.35 / 0.942* |"
    assert len([line for line in lines if "published*" in line]) == 11
    assert "colour transform and\ntone curve fitted to the data set" in text and "not exactly comparable" in text
    assert list(reports.msr_lines(results, ["msr"], compare=False)) == lines[:4]


def test_markdown_of_two_msr_folders() -> None:
    """Each folder has its own columns with its name."""
    twice = [(method, dict.fromkeys("ab", found)) for (method, _), found in MSR_SCORES.items()]
    lines = list(reports.msr_lines(twice, ["a", "b"], compare=True))
    heads = [f"{data} {space} PSNR / SSIM" for data in "ab" for space in ("linear", "sRGB")]
    assert lines[0] == f"| MSR | {' | '.join(heads)} |"
    both = "*37.44 / 0.971* | *31.35 / 0.942*"
    assert lines[4] == f"| *JMCDM, published* | {both} | {both} |"


def test_records_and_csv_of_the_msr_set() -> None:
    """Every record has its space; in one CSV with other sets, missing values are empty."""
    records = reports.msr_records(MSR_SCORES, compare=True)
    assert records["means"][3] == {
        "method": "ours",
        "data": "msr",
        "space": "sRGB",
        "psnr": 32.5,
        "ssim": pytest.approx(0.92),
    }
    assert len(records["means"]) == 4 and len(records["pictures"]) == 6 and len(records["published"]) == 22
    assert records["published"][0]["space"] == "linear" and records["published"][0]["psnr"] == 37.44
    assert reports.msr_records(MSR_SCORES, compare=False)["published"] == []
    pictures = reports.records(SCORES, [10.0])["pictures"][-3:] + records["pictures"]
    rows = list(csv.DictReader(reports.comma_separated(pictures).splitlines()))
    assert [row["space"] for row in rows] == ["", "", "", *["linear", "sRGB"] * 3]
    assert (rows[0]["sigma"], rows[3]["sigma"]) == ("10.0", "") and float(rows[5]["psnr"]) == 38


def test_plain_colors() -> None:
    """A column for each case, a row for each method; records with the case and the value."""
    cases = [PlainColor((0.3, 0.3, 0.3), (1.0, 1.0, 1.0)), PlainColor((0.2, 0.4, 0.25), (0.7, 1.0, 0.8))]
    residuals = {
        "ours": [Residual(case, left) for case, left in zip(cases, (0.404, 1.25), strict=True)],
        "bilinear": [Residual(case, 4.5) for case in cases],
    }
    lines = list(reports.plain_colors_lines(residuals.items()))
    assert lines[0] == "| left of noise 6/255 on a colour; factors | 0.3 0.3 0.3; 1 1 1 | 0.2 0.4 0.25; 0.7 1 0.8 |"
    assert lines[2:] == ["| ours | 0.40 | 1.25 |", "| bilinear | 4.50 | 4.50 |"]
    records = reports.plain_colors_records(residuals)
    assert len(records) == 4
    assert records[1] == {"method": "ours", "color": (0.2, 0.4, 0.25), "factors": (0.7, 1.0, 0.8), "left": 1.25}
