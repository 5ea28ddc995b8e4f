"""Scores as tables: markdown for people, CSV and JSON for programs."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from io import StringIO
from pathlib import Path
from typing import Any

from debayes import evaluation, published
from debayes.evaluation import Score

# Scores by method, set of pictures and pattern.
Scores = Mapping[tuple[str, str, str], Sequence[Score]]


def markdown(scores: Scores, sigmas: Sequence[float], *, compare: bool = True) -> str:
    """PSNR / SSIM of each method, and below, in italics, what others published for the same sets."""
    methods = list(dict.fromkeys(method for method, _, _ in scores))
    columns = [
        (data, pattern, sigma)
        for data, pattern in dict.fromkeys((data, pattern) for _, data, pattern in scores)
        for sigma in sigmas
    ]
    patterns = len({pattern for _, pattern, _ in columns}) > 1
    heads = [f"{data}{f' {pattern}' * patterns} σ={sigma:g}" for data, pattern, sigma in columns]
    rows = {}
    for method in methods:
        averages = [evaluation.average(scores[method, data, pattern], sigma) for data, pattern, sigma in columns]
        rows[method] = [f"{psnr:.2f} / {ssim:.4f}" for psnr, ssim, _ in averages]
    for i, (data, _, sigma) in enumerate(columns):
        for row in published.rows(Path(data).name, sigma) if compare else ():
            cells = rows.setdefault(f"*{row.method}, published*", ["-"] * len(columns))
            cells[i] = f"*{row.psnr:.2f} / {row.ssim:.4f}*"
    lines = [["PSNR dB / SSIM", *heads], ["---"] * (len(heads) + 1)]
    lines += [[name, *cells] for name, cells in rows.items()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def records(scores: Scores, sigmas: Sequence[float]) -> dict[str, list[dict[str, Any]]]:
    """All of it as plain values: each picture's scores, their means, and the published rows."""
    means = []
    for (method, data, pattern), found in scores.items():
        for sigma in sigmas:
            psnr, ssim, noise_error = evaluation.average(found, sigma)
            key = {"method": method, "data": data, "pattern": pattern, "sigma": sigma}
            means.append({**key, "psnr": psnr, "ssim": ssim, "noise_error": noise_error})
    sets = dict.fromkeys(data for _, data, _ in scores)
    return {
        "means": means,
        "pictures": [
            {"method": method, "data": data, "pattern": pattern, **asdict(score)}
            for (method, data, pattern), found in scores.items()
            for score in found
        ],
        "published": [
            asdict(row) for data in sets for sigma in sigmas for row in published.rows(Path(data).name, sigma)
        ],
    }


def comma_separated(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows with the same keys as CSV, with a head."""
    text = StringIO()
    table = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return text.getvalue()
