"""Scores as markdown tables, and as records for CSV and JSON."""

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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

# A set of pictures, by its folder, and the pattern of its mosaics.
Set = tuple[str, str]
# Scores by method, set of pictures and pattern.
Scores = Mapping[tuple[str, str, str], Sequence[Score]]
# Scores on raws of a virtual camera by method, set of pictures and pattern.
IsoScores = Mapping[tuple[str, str, str], Sequence[IsoScore]]
# Scores on the MSR set by method and the name of its folder.
MsrScores = Mapping[tuple[str, str], Sequence[msr.PairScore]]
# Scores on drawn fine detail by method.
DetailScores = Mapping[str, Sequence[DetailScore]]
# What methods leave of the noise on plain colours, by method.
Residuals = Mapping[str, Sequence[Residual]]

_MSR_NOTE = (
    "Published rows are of the pictures in test.txt. Their sRGB values were computed with a colour transform and\n"
    "tone curve fitted to the data set, ours with the sRGB curve alone: sRGB columns are not exactly comparable."
)


def score_lines(
    results: Iterable[tuple[str, Mapping[Set, Sequence[Score]]]], sets: Sequence[Set], sigmas: Sequence[float]
) -> Iterator[str]:
    """PSNR / SSIM of each method, line by line as the results come, with published scores below in italics.

    The results are the name of a method and its scores of every set. Published are the scores of whole sets.
    """
    columns = [(data, pattern, sigma) for data, pattern in sets for sigma in sigmas]
    patterns = len({pattern for _, pattern in sets}) > 1
    heads = [f"{data}{f' {pattern}' * patterns} σ={sigma:g}" for data, pattern, sigma in columns]
    counts: dict[str, int] = {}
    for method, scores in results:
        if not counts:  # the head comes with the first row, so that nothing is printed if that fails
            yield from _head(["PSNR dB / SSIM", *heads])
        averages = [protocol.average(scores[data, pattern], sigma) for data, pattern, sigma in columns]
        yield _line([method, *(f"{psnr:.2f} / {ssim:.4f}" for psnr, ssim, _ in averages)])
        counts = {data: count_pictures(scores[data, pattern]) for data, pattern in sets}
    rows: dict[str, list[str]] = {}
    for i, (data, _, sigma) in enumerate(columns):
        for row in _published(data, sigma, counts.get(data, 0)):
            cells = rows.setdefault(_italic(row.method), ["-"] * len(columns))
            cells[i] = f"*{row.psnr:.2f} / {row.ssim:.4f}*"
    yield from (_line([name, *cells]) for name, cells in rows.items())


def iso_lines(
    results: Iterable[tuple[str, Mapping[Set, Sequence[IsoScore]]]], sets: Sequence[Set], speeds: Sequence[float]
) -> Iterator[str]:
    """PSNR of each method on raws of a virtual camera, in white-balanced linear values, line by line as the results
    come: the name of a method and its scores of every set."""
    columns = [(data, pattern, speed) for data, pattern in sets for speed in speeds]
    patterns, folders = len({pattern for _, pattern in sets}) > 1, len({data for data, _ in sets}) > 1
    heads = [f"{f'{data} ' * folders}{f'{pattern} ' * patterns}ISO {speed:g}" for data, pattern, speed in columns]
    name = "PSNR dB, linear" if folders else f"PSNR dB, linear; {sets[0][0]}"
    for i, (method, scores) in enumerate(results):
        if i == 0:
            yield from _head([name, *heads])
        averages = (iso.average_iso(scores[data, pattern], speed) for data, pattern, speed in columns)
        yield _line([method, *(f"{psnr:.2f}" for psnr in averages)])


def iso_records(scores: IsoScores) -> dict[str, list[dict[str, Any]]]:
    """Scores on raws of a virtual camera as plain values: means, and the score of each picture."""
    speeds = list(dict.fromkeys(score.iso for found in scores.values() for score in found))
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


def count_pictures(scores: Iterable[Score]) -> int:
    """How many pictures the scores are of, at whatever noise levels."""
    return len({score.name for score in scores})


def msr_lines(
    results: Iterable[tuple[str, Mapping[str, Sequence[msr.PairScore]]]], folders: Sequence[str], *, compare: bool
) -> Iterator[str]:
    """PSNR / SSIM of each method on MSR sets by folder, linear and sRGB, line by line as the results come; with
    `compare` published scores below in italics."""
    columns = [(data, space) for data in folders for space in msr.SPACES]
    heads = [f"{f'{data} ' * (len(folders) > 1)}{space} PSNR / SSIM" for data, space in columns]
    for i, (method, scores) in enumerate(results):
        if i == 0:
            yield from _head(["MSR", *heads])
        averages = [msr.average_pairs(scores[data], space) for data, space in columns]
        yield _line([method, *(f"{psnr:.2f} / {ssim:.4f}" for psnr, ssim in averages)])
    if not compare:
        return
    rows: dict[str, list[str]] = {}
    for row in _published_msr():
        cells = rows.setdefault(_italic(row["method"]), ["-"] * len(columns))
        for i, (_, space) in enumerate(columns):
            if space == row["space"]:
                cells[i] = f"*{row['psnr']:.2f} / {row['ssim']:.3f}*"
    yield from (_line([name, *cells]) for name, cells in rows.items())
    yield from ("", *_MSR_NOTE.splitlines())


def doubt_lines(scores: Scores, sigmas: Sequence[float]) -> Iterator[str]:
    """The uncertainty scores of each method that has an uncertainty: a row for each set and noise level."""
    levels = [f"{100 * level:g} %" for level in uncertainty.LEVELS]
    yield from _head(["coverage of intervals", *levels, "calibration error", "NLL", "AUSE"])
    for (method, data, pattern), picture_scores in scores.items():
        for sigma in sigmas:
            mean = _mean_uncertainty(picture_scores, sigma)
            if mean is None:
                continue
            cells = [f"{100 * share:.1f} %" for share in mean.coverage]
            cells += [f"{mean.calibration_error:.3f}", f"{mean.nll:.2f}", f"{mean.ause:.3f}"]
            yield _line([f"{method}, {data} {pattern} σ={sigma:g}", *cells])


def plain_colors_lines(results: Iterable[tuple[str, Sequence[Residual]]]) -> Iterator[str]:
    """What each method leaves of the noise on plain colours, in units of 1/255, line by line as the results come: a
    column for each case."""
    for i, (method, residuals) in enumerate(results):
        if i == 0:
            cases = (residual.case for residual in residuals)
            header = [f"{_numbers(case.color)}; {_numbers(case.factors)}" for case in cases]
            yield from _head([f"left of noise {SIGMA:g}/255 on a colour; factors", *header])
        yield _line([method, *(f"{residual.left:.2f}" for residual in residuals)])


def plain_colors_records(residuals: Residuals) -> list[dict[str, Any]]:
    """What each method leaves of the noise on plain colours, as plain values."""
    return [
        {"method": method, "color": residual.case.color, "factors": residual.case.factors, "left": residual.left}
        for method, values in residuals.items()
        for residual in values
    ]


def moire_lines(results: Iterable[tuple[str, Sequence[DetailScore]]]) -> Iterator[str]:
    """PSNR / chroma error on drawn fine detail, when all results are there: tables by scene and by frequency, a
    column for each method."""
    scores = dict(results)
    sigmas = dict.fromkeys(score.sigma for found in scores.values() for score in found)
    tables = [
        (f"{title}, σ={sigma:g}", _moire_rows(scores, sigma, label))
        for sigma in sigmas
        for title, label in (("scene", _scene_label), ("cycles per pixel", _band_label))
    ]
    for i, (title, rows) in enumerate(tables):
        if i:
            yield ""
        yield from _head([title, *scores])
        yield from (_line([name, *cells]) for name, cells in rows.items())


def moire_records(scores: DetailScores) -> dict[str, list[dict[str, Any]]]:
    """Scores on drawn fine detail as plain values: whole scenes, and their parts in each band of frequencies."""
    rows = [(method, score) for method, found in scores.items() for score in found]
    return {
        "pictures": [_flat_detail(method, score) for method, score in rows if score.band is None],
        "bands": [
            {**_flat_detail(method, score), "from": score.band[0], "to": score.band[1]}
            for method, score in rows
            if score.band is not None
        ],
    }


def records(scores: Scores, sigmas: Sequence[float]) -> dict[str, list[dict[str, Any]]]:
    """Everything as plain values: the scores of each picture, their means, and the published rows of whole sets."""
    means = []
    for (method, data, pattern), picture_scores in scores.items():
        for sigma in sigmas:
            psnr, ssim, noise_error = protocol.average(picture_scores, sigma)
            key = {"method": method, "data": data, "pattern": pattern, "sigma": sigma}
            doubt = _flat_uncertainty(_mean_uncertainty(picture_scores, sigma))
            means.append({**key, "psnr": psnr, "ssim": ssim, "noise_error": noise_error, **doubt})
    sets = {data: count_pictures(picture_scores) for (_, data, _), picture_scores in scores.items()}
    return {
        "means": means,
        "pictures": [
            {"method": method, "data": data, "pattern": pattern, **_flat(score)}
            for (method, data, pattern), picture_scores in scores.items()
            for score in picture_scores
        ],
        "published": [
            asdict(row)
            for data, count in sets.items()
            for sigma in sigmas
            for row in _published(data, sigma, count)
        ],
    }


def msr_records(scores: MsrScores, *, compare: bool) -> dict[str, list[dict[str, Any]]]:
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
        "published": _published_msr() if compare else [],
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


def _moire_rows(
    scores: DetailScores, sigma: float, label: Callable[[DetailScore], str | None]
) -> dict[str, list[str]]:
    """The cells of every method at one noise level, by the label of their row; scores without one are left out."""
    rows: dict[str, list[str]] = {}
    for found in scores.values():
        groups: dict[str, list[DetailScore]] = {}
        for score in found:
            if score.sigma == sigma and (name := label(score)) is not None:
                groups.setdefault(name, []).append(score)
        for name, chosen in groups.items():
            psnr, chroma = moire.average_moire(chosen)
            rows.setdefault(name, []).append(f"{psnr:.2f} / {chroma:.4f}")
    return rows


def _flat_detail(method: str, score: DetailScore) -> dict[str, Any]:
    scene = asdict(score.scene)
    return {"method": method, "sigma": score.sigma, **scene, "psnr": score.psnr, "chroma_error": score.chroma}


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


def _head(cells: Sequence[str]) -> tuple[str, str]:
    """The first two lines of a markdown table."""
    return _line(cells), _line(["---"] * len(cells))


def _line(cells: Sequence[str]) -> str:
    """A row of a markdown table."""
    return f"| {' | '.join(cells)} |"


def _numbers(values: Sequence[float]) -> str:
    return " ".join(f"{value:g}" for value in values)


def _italic(method: str) -> str:
    """The name of a published row in italics, with its asterisks escaped."""
    return f"*{method.replace('*', chr(92) + '*')}, published*"


def _published(data: str, sigma: float, pictures: int) -> list[published.Row]:
    """The published rows of a folder with the name of a set; none if so many pictures are not the whole set."""
    name = Path(data).name
    return published.rows(name, sigma) if published.is_whole(name, pictures) else []


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
