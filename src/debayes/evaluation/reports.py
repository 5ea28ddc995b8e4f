"""Scores as markdown tables, and as records for CSV and JSON."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from io import StringIO
from math import isfinite
from pathlib import Path
from typing import Any

from debayes.evaluation import iso, moire, msr, protocol, published, uncertainty
from debayes.evaluation.fine_detail import ZONE_PLATE, Scene
from debayes.evaluation.iso import IsoScore
from debayes.evaluation.moire import DetailScore
from debayes.evaluation.plain_colors import SIGMA, Residual
from debayes.evaluation.protocol import Score
from debayes.evaluation.uncertainty import UncertaintyScores

# Scores by method, set of pictures and pattern.
Scores = Mapping[tuple[str, str, str], Sequence[Score]]
# Scores on raws of a virtual camera by method, set of pictures and pattern.
IsoScores = Mapping[tuple[str, str, str], Sequence[IsoScore]]
# Scores on the MSR set by method and the name of its folder.
MsrScores = Mapping[tuple[str, str], Sequence[msr.PairScore]]
# Scores on drawn fine detail by method.
DetailScores = Mapping[str, Sequence[DetailScore]]
# What is left of the noise on plain colours, by method.
Residuals = Mapping[str, Sequence[Residual]]

_MSR_NOTE = (
    "Published rows are of the pictures in test.txt. Their sRGB values were computed with a colour transform and\n"
    "tone curve fitted to the data set, ours with the sRGB curve alone: sRGB columns are not exactly comparable."
)


def markdown(scores: Scores, sigmas: Sequence[float], *, compare: bool = True) -> str:
    """PSNR / SSIM of each method, with published scores for the same sets below in italics."""
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


def iso_markdown(scores: IsoScores) -> str:
    """PSNR of each method on raws of a virtual camera, in white-balanced linear values."""
    columns, speeds = _iso_columns(scores)
    patterns, sets = len({pattern for _, pattern in columns}) > 1, len({data for data, _ in columns}) > 1
    heads = [
        f"{f'{data} ' * sets}{f'{pattern} ' * patterns}ISO {speed:g}"
        for data, pattern in columns
        for speed in speeds
    ]
    rows = {
        method: [
            f"{iso.average_iso(scores[method, data, pattern], speed):.2f}"
            for data, pattern in columns
            for speed in speeds
        ]
        for method in dict.fromkeys(method for method, _, _ in scores)
    }
    name = "PSNR dB, linear" if sets else f"PSNR dB, linear; {columns[0][0]}"
    return _table([name, *heads], rows)


def iso_records(scores: IsoScores) -> dict[str, list[dict[str, Any]]]:
    """The same as plain values: means, and the score of each picture."""
    speeds = _iso_columns(scores)[1]
    return {
        "means": [
            {
                "method": method,
                "data": data,
                "pattern": pattern,
                "iso": speed,
                "psnr": iso.average_iso(found, speed),
            }
            for (method, data, pattern), found in scores.items()
            for speed in speeds
        ],
        "pictures": [
            {"method": method, "data": data, "pattern": pattern, **asdict(score)}
            for (method, data, pattern), found in scores.items()
            for score in found
        ],
    }


def msr_markdown(scores: MsrScores, *, compare: bool = True) -> str:
    """PSNR / SSIM of each method on the MSR set, linear and sRGB, with published scores below in italics."""
    folders = list(dict.fromkeys(data for _, data in scores))
    columns = [(data, space) for data in folders for space in msr.SPACES]
    heads = [f"{f'{data} ' * (len(folders) > 1)}{space} PSNR / SSIM" for data, space in columns]
    rows = {}
    for method in dict.fromkeys(method for method, _ in scores):
        averages = [msr.average_pairs(scores[method, data], space) for data, space in columns]
        rows[method] = [f"{psnr:.2f} / {ssim:.4f}" for psnr, ssim in averages]
    for row in _published_msr() if compare else ():
        cells = rows.setdefault(_italic(row["method"]), ["-"] * len(columns))
        for i, (_, space) in enumerate(columns):
            if space == row["space"]:
                cells[i] = f"*{row['psnr']:.2f} / {row['ssim']:.3f}*"
    return _table(["MSR", *heads], rows) + (f"\n\n{_MSR_NOTE}" if compare else "")


def doubt_markdown(scores: Scores, sigmas: Sequence[float]) -> str:
    """The uncertainty scores of each method that has an uncertainty: a row for each set and noise level."""
    levels = [f"{100 * level:g} %" for level in uncertainty.LEVELS]
    rows = {}
    for (method, data, pattern), picture_scores in scores.items():
        for sigma in sigmas:
            mean = _mean_uncertainty(picture_scores, sigma)
            if mean is None:
                continue
            cells = [f"{100 * share:.1f} %" for share in mean.coverage]
            cells += [f"{mean.calibration_error:.3f}", f"{mean.nll:.2f}", f"{mean.ause:.3f}"]
            rows[f"{method}, {data} {pattern} σ={sigma:g}"] = cells
    return _table(["coverage of intervals", *levels, "calibration error", "NLL", "AUSE"], rows)


def plain_colors_markdown(residuals: Residuals) -> str:
    """What each method leaves of the noise on plain colours, in units of 1/255: a column for each case."""
    cases = [residual.case for residual in next(iter(residuals.values()))]
    header = [f"{_numbers(case.color)}; {_numbers(case.factors)}" for case in cases]
    rows = {method: [f"{residual.left:.2f}" for residual in values] for method, values in residuals.items()}
    return _table([f"left of noise {SIGMA:g}/255 on a colour; factors", *header], rows)


def plain_colors_records(residuals: Residuals) -> list[dict[str, Any]]:
    """The same as plain values."""
    return [
        {"method": method, "color": residual.case.color, "factors": residual.case.factors, "left": residual.left}
        for method, values in residuals.items()
        for residual in values
    ]


def moire_markdown(scores: DetailScores) -> str:
    """PSNR / chroma error on drawn fine detail: tables by scene and by frequency, a column for each method."""
    every = next(iter(scores.values()))
    tables = []
    for sigma in dict.fromkeys(score.sigma for score in every):
        for title, label in (("scene", _scene_label), ("cycles per pixel", _band_label)):
            rows: dict[str, list[str]] = {}
            for found in scores.values():
                groups: dict[str, list[DetailScore]] = {}
                for score in found:
                    if score.sigma == sigma and (name := label(score)) is not None:
                        groups.setdefault(name, []).append(score)
                for name, chosen in groups.items():
                    psnr, chroma = moire.average_moire(chosen)
                    rows.setdefault(name, []).append(f"{psnr:.2f} / {chroma:.4f}")
            tables.append(_table([f"{title}, σ={sigma:g}", *scores], rows))
    return "\n\n".join(tables)


def moire_records(scores: DetailScores) -> dict[str, list[dict[str, Any]]]:
    """The same as plain values: whole scenes, and the parts of scenes in each band of frequencies."""
    rows = [(method, score) for method, found in scores.items() for score in found]
    return {
        "pictures": [_flat_detail(method, score) for method, score in rows if score.band is None],
        "bands": [
            {**_flat_detail(method, score), "from": score.band[0], "to": score.band[1]}
            for method, score in rows
            if score.band is not None
        ],
    }


def records(scores: Scores, sigmas: Sequence[float], *, compare: bool = True) -> dict[str, list[dict[str, Any]]]:
    """Everything as plain values: the scores of each picture, their means, and the published rows."""
    means = []
    for (method, data, pattern), picture_scores in scores.items():
        for sigma in sigmas:
            psnr, ssim, noise_error = protocol.average(picture_scores, sigma)
            key = {"method": method, "data": data, "pattern": pattern, "sigma": sigma}
            doubt = _flat_uncertainty(_mean_uncertainty(picture_scores, sigma))
            means.append({**key, "psnr": psnr, "ssim": ssim, "noise_error": noise_error, **doubt})
    sets = dict.fromkeys(data for _, data, _ in scores)
    return {
        "means": means,
        "pictures": [
            {"method": method, "data": data, "pattern": pattern, **_flat(score)}
            for (method, data, pattern), picture_scores in scores.items()
            for score in picture_scores
        ],
        "published": [
            asdict(row) for data in sets for sigma in sigmas for row in published.rows(Path(data).name, sigma)
        ]
        if compare
        else [],
    }


def msr_records(scores: MsrScores) -> dict[str, list[dict[str, Any]]]:
    """The same for the MSR set; each record names its space, linear or sRGB."""
    means = []
    for (method, data), picture_scores in scores.items():
        for space in msr.SPACES:
            psnr, ssim = msr.average_pairs(picture_scores, space)
            means.append({"method": method, "data": data, "space": space, "psnr": psnr, "ssim": ssim})
    return {
        "means": means,
        "pictures": [
            {"method": method, "data": data, "pattern": msr.PATTERN, **asdict(score)}
            for (method, data), picture_scores in scores.items()
            for score in picture_scores
        ],
        "published": _published_msr(),
    }


def comma_separated(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as CSV with a header of all keys; missing values are empty."""
    text = StringIO()
    table = csv.DictWriter(text, list(dict.fromkeys(key for row in rows for key in row)), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return text.getvalue()


def _scene_label(score: DetailScore) -> str | None:
    """The row of a whole scene: its kind and colour."""
    return None if score.band is not None else _kind_and_hue(score.scene)


def _band_label(score: DetailScore) -> str | None:
    """The row of a band: the kind of scene (of zone plates the colour too) and the frequencies."""
    if score.band is None:
        return None
    low, high = score.band
    kind = _kind_and_hue(score.scene) if score.scene.kind == ZONE_PLATE.kind else score.scene.kind
    return f"{kind}, {f'{low:g} to {high:g}' if isfinite(high) else f'above {low:g}'}"


def _kind_and_hue(scene: Scene) -> str:
    hue = "neutral" if scene.color == "neutral" else "one hue"
    faint = scene.kind == ZONE_PLATE.kind and scene.contrast < ZONE_PLATE.contrast
    return f"{scene.kind}, {hue}{', low contrast' * faint}"


def _flat_detail(method: str, score: DetailScore) -> dict[str, Any]:
    scene = asdict(score.scene)
    return {"method": method, "sigma": score.sigma, **scene, "psnr": score.psnr, "chroma_error": score.chroma}


def _iso_columns(scores: IsoScores) -> tuple[list[tuple[str, str]], list[float]]:
    """The sets with their patterns, and the ISO speeds."""
    sets = list(dict.fromkeys((data, pattern) for _, data, pattern in scores))
    return sets, list(dict.fromkeys(score.iso for found in scores.values() for score in found))


def _flat(score: Score) -> dict[str, Any]:
    """A score as plain values; uncertainty scores are left out if they were not measured."""
    plain = {name: value for name, value in asdict(score).items() if name != "uncertainty"}
    return plain | _flat_uncertainty(score.uncertainty)


def _mean_uncertainty(scores: Sequence[Score], sigma: float) -> UncertaintyScores | None:
    """The mean uncertainty scores at one noise level, None if they were not measured."""
    known = [score.uncertainty for score in scores if score.uncertainty is not None and score.sigma == sigma]
    return uncertainty.average_uncertainty(known) if known else None


def _flat_uncertainty(scores: UncertaintyScores | None) -> dict[str, float]:
    """Uncertainty scores by name; none if they were not measured."""
    if scores is None:
        return {}
    coverage = zip(uncertainty.LEVELS, scores.coverage, strict=True)
    others = {"calibration_error": scores.calibration_error, "nll": scores.nll, "ause": scores.ause}
    return {f"coverage_{100 * level:g}": share for level, share in coverage} | others


def _table(header: Sequence[str], rows: Mapping[str, Sequence[str]]) -> str:
    """A markdown table from its header and its rows by name."""
    lines = [header, ["---"] * len(header), *([name, *cells] for name, cells in rows.items())]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _numbers(values: Sequence[float]) -> str:
    return " ".join(f"{value:g}" for value in values)


def _italic(method: str) -> str:
    """The name of a published row in italics, with its asterisks escaped."""
    return f"*{method.replace('*', chr(92) + '*')}, published*"


def _published_msr() -> list[dict[str, Any]]:
    """The published rows of the MSR set in each space."""
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
