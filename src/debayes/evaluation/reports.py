"""Scores as tables: markdown for people, CSV and JSON for programs."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from io import StringIO
from pathlib import Path
from typing import Any

from debayes.evaluation import msr, protocol, published, uncertainty
from debayes.evaluation.protocol import Score

# Scores by method, set of pictures and pattern.
Scores = Mapping[tuple[str, str, str], Sequence[Score]]
# Scores on the MSR set by method and the name of its folder.
MsrScores = Mapping[tuple[str, str], Sequence[msr.Score]]

_MSR_NOTE = (
    "Published rows are of the pictures of test.txt. Their sRGB values were made by the data set's own fitted\n"
    "colour transform and tone curve, ours by the sRGB curve alone: in sRGB they are not comparable to the digit."
)


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
        averages = [protocol.average(scores[method, data, pattern], sigma) for data, pattern, sigma in columns]
        rows[method] = [f"{psnr:.2f} / {ssim:.4f}" for psnr, ssim, _ in averages]
    for i, (data, _, sigma) in enumerate(columns):
        for row in published.rows(Path(data).name, sigma) if compare else ():
            cells = rows.setdefault(_italic(row.method), ["-"] * len(columns))
            cells[i] = f"*{row.psnr:.2f} / {row.ssim:.4f}*"
    return _table(["PSNR dB / SSIM", *heads], rows)


def msr_markdown(scores: MsrScores, *, compare: bool = True) -> str:
    """PSNR / SSIM of each method on the MSR set in linear values and in sRGB, and below what others published."""
    folders = list(dict.fromkeys(data for _, data in scores))
    columns = [(data, space) for data in folders for space in msr.SPACES]
    heads = [f"{f'{data} ' * (len(folders) > 1)}{space} PSNR / SSIM" for data, space in columns]
    rows = {}
    for method in dict.fromkeys(method for method, _ in scores):
        averages = [msr.average(scores[method, data], space) for data, space in columns]
        rows[method] = [f"{psnr:.2f} / {ssim:.4f}" for psnr, ssim in averages]
    for row in _published_msr() if compare else ():
        cells = rows.setdefault(_italic(row["method"]), ["-"] * len(columns))
        for i, (_, space) in enumerate(columns):
            if space == row["space"]:
                cells[i] = f"*{row['psnr']:.2f} / {row['ssim']:.3f}*"
    return _table(["MSR", *heads], rows) + (f"\n\n{_MSR_NOTE}" if compare else "")


def doubt_markdown(scores: Scores, sigmas: Sequence[float]) -> str:
    """How far the doubt of each method that has any can be trusted: a row for each set and noise level."""
    levels = [f"{100 * level:g} %" for level in uncertainty.LEVELS]
    rows = {}
    for (method, data, pattern), found in scores.items():
        for sigma in sigmas:
            mean = _mean_honesty(found, sigma)
            if mean is None:
                continue
            cells = [f"{100 * share:.1f} %" for share in mean.coverage]
            cells += [f"{mean.calibration_error:.3f}", f"{mean.nll:.2f}", f"{mean.ause:.3f}"]
            rows[f"{method}, {data} {pattern} σ={sigma:g}"] = cells
    return _table(["coverage of intervals", *levels, "calibration error", "NLL", "AUSE"], rows)


def records(scores: Scores, sigmas: Sequence[float], *, compare: bool = True) -> dict[str, list[dict[str, Any]]]:
    """All of it as plain values: each picture's scores, their means, and the published rows."""
    means = []
    for (method, data, pattern), found in scores.items():
        for sigma in sigmas:
            psnr, ssim, noise_error = protocol.average(found, sigma)
            key = {"method": method, "data": data, "pattern": pattern, "sigma": sigma}
            doubt = _flat_honesty(_mean_honesty(found, sigma))
            means.append({**key, "psnr": psnr, "ssim": ssim, "noise_error": noise_error, **doubt})
    sets = dict.fromkeys(data for _, data, _ in scores)
    return {
        "means": means,
        "pictures": [
            {"method": method, "data": data, "pattern": pattern, **_flat(score)}
            for (method, data, pattern), found in scores.items()
            for score in found
        ],
        "published": [
            asdict(row) for data in sets for sigma in sigmas for row in published.rows(Path(data).name, sigma)
        ]
        if compare
        else [],
    }


def msr_records(scores: MsrScores) -> dict[str, list[dict[str, Any]]]:
    """The same for the MSR set; what is of one space (linear or sRGB) says which."""
    means = []
    for (method, data), found in scores.items():
        for space in msr.SPACES:
            psnr, ssim = msr.average(found, space)
            means.append({"method": method, "data": data, "space": space, "psnr": psnr, "ssim": ssim})
    return {
        "means": means,
        "pictures": [
            {"method": method, "data": data, "pattern": msr.PATTERN, **asdict(score)}
            for (method, data), found in scores.items()
            for score in found
        ],
        "published": _published_msr(),
    }


def comma_separated(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as CSV, with a head of all their keys; what a row lacks stays empty."""
    text = StringIO()
    table = csv.DictWriter(text, list(dict.fromkeys(key for row in rows for key in row)), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return text.getvalue()


def _flat(score: Score) -> dict[str, Any]:
    """A score as plain values, without what was not measured of its doubt."""
    plain = {name: value for name, value in asdict(score).items() if name != "honesty"}
    return plain | _flat_honesty(score.honesty)


def _mean_honesty(scores: Sequence[Score], sigma: float) -> uncertainty.Honesty | None:
    """What became of the claims at one level, on average, if that was measured."""
    known = [score.honesty for score in scores if score.honesty is not None and score.sigma == sigma]
    return uncertainty.average(known) if known else None


def _flat_honesty(found: uncertainty.Honesty | None) -> dict[str, float]:
    """What became of claims, each under a name of its own; nothing if that was not measured."""
    if found is None:
        return {}
    covered = zip(uncertainty.LEVELS, found.coverage, strict=True)
    others = {"calibration_error": found.calibration_error, "nll": found.nll, "ause": found.ause}
    return {f"coverage_{100 * level:g}": share for level, share in covered} | others


def _table(heads: Sequence[str], rows: Mapping[str, Sequence[str]]) -> str:
    """A markdown table: heads, and rows of cells by name."""
    lines = [heads, ["---"] * len(heads), *([name, *cells] for name, cells in rows.items())]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _italic(method: str) -> str:
    """The name of a published row; an asterisk in it is no markup."""
    return f"*{method.replace('*', chr(92) + '*')}, published*"


def _published_msr() -> list[dict[str, Any]]:
    """The published rows of the MSR set, one for each space."""
    return [
        {
            "method": row.method,
            "data": "msr",
            "space": space,
            "psnr": row.psnr,
            "ssim": row.ssim,
            "source": row.source,
        }
        for space in msr.SPACES
        for row in published.rows(f"msr-{space.lower()}", None)
    ]
