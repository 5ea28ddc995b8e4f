"""The paper's tables as experiments: each takes a `Context` and returns a `Page`."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from debayes.evaluation import baselines, msr, protocol, published
from debayes.evaluation.protocol import Score
from debayes.network import weights
from debayes.network.network import Network
from debayes.reproduction.context import QUICK_PICTURES, Context, missing_note
from debayes.reproduction.figures import Curve, Plot
from debayes.reproduction.pages import Page, Table

# The sets of the paper's table 1 and its noise levels in units of 1/255.
SETS = ("kodak24", "mcm18", "wed-cdm", "mit-moire", "urban100")
SIGMAS = (5.0, 10.0, 15.0)

# The sets of its table 3.
LOSS_SETS = SETS[:3]

# A method, and whether its results are averaged over the eight symmetries.
Method = tuple[Network | baselines.Baseline, bool]
# A set and a noise level.
Column = tuple[str, float]
Scores = dict[tuple[str, Column], list[Score]]


def table1(context: Context) -> Page:
    """PSNR and SSIM on five sets at three noise levels, with and without the ensemble."""
    methods = _methods(context)
    present = {name: paths for name in SETS if (paths := context.picture_paths(name))}
    columns = [(data, sigma) for data in present for sigma in SIGMAS]
    scores = _score(context, methods, present, columns)
    compared = _compared(context, present, columns)
    findings = []
    for name in context.models if present else ():
        gains = [_mean(scores[f"{name}, ensemble", at]) - _mean(scores[name, at]) for at in columns]
        findings.append(
            f"{name}: the ensemble gains {min(gains):.2f} to {max(gains):.2f} dB in the {len(gains)} columns."
        )
        if compared:
            findings.append(_against_paper(name, scores, compared))
    table = Table(
        "PSNR in dB / SSIM, mean over the pictures of a set",
        ["", *(f"{data} σ={sigma:g}" for data, sigma in columns)],
        _rows(scores, methods, columns)
        + _quoted([published.rows(*at) if at in compared else [] for at in columns]),
        "Rows in italics are quoted from the paper's table 1." if compared else "",
    )
    curves = {
        data: [
            Curve(name, SIGMAS, [_mean(scores[name, (data, sigma)]) for sigma in SIGMAS])
            for name in methods
            if name != "bilinear"
        ]
        for data in present
    }
    return Page(
        "Table 1: synthetic mosaics with Gaussian noise",
        "Wild-JDD is better than all other methods on five sets at sigma 5, 10 and 15 without being given the "
        "noise level, and better still with the eight-fold ensemble (Wild-JDD*).",
        [
            "Mosaics (RGGB) of 8-bit pictures with Gaussian noise, added in float and never clipped. The methods "
            "are not given the noise level. PSNR and SSIM are computed over all pixels and channels."
        ],
        findings,
        [table] if present else [],
        {"psnr": (Plot(curves, "sigma", "PSNR, dB"), "The same numbers as curves.")} if present else {},
        data=_data(scores),
        missing=missing_note([name for name in SETS if name not in present]) + _incomplete(context, present),
    )


def table2(context: Context) -> Page:
    """PSNR and SSIM on the MSR set, in linear values and in sRGB."""
    folder = next((root for place in context.folders("msr") if (root := msr.locate(place))), None)
    every = msr.pairs(folder) if folder else []
    pairs, total = every[: QUICK_PICTURES if context.quick else None], len(every)
    methods = _methods(context) if pairs else {}
    jobs = [(name, pair) for name in methods for pair in pairs]
    scores: dict[str, list[msr.PairScore]] = {}
    for i, (name, pair) in enumerate(jobs):

        def score(name: str = name, pair: msr.Pair = pair) -> Any:
            method, ensemble = methods[name]
            return [asdict(s) for s in msr.evaluate_pairs(method, [pair], ensemble=ensemble)]

        pair_scores = context.cached(f"{name} {pair.mosaic.name}", score)
        scores.setdefault(name, []).extend(msr.PairScore(**s) for s in pair_scores)
        if pair is pairs[-1]:
            context.report(f"{name}: {', '.join(_msr_cells(scores[name]))}")
        context.progress((i + 1) / len(jobs))
    rows = [[name, *_msr_cells(pair_scores)] for name, pair_scores in scores.items()]
    if not (context.quick and pairs):  # a part of the set is not comparable with published rows
        rows += _quoted([published.rows(f"msr-{space.lower()}", None) for space in msr.SPACES], ssim_digits=3)
    return Page(
        "Table 2: the MSR set",
        "Trained on 200 linear pictures of the set, Wild-JDD has 40.16 dB in linear values and 34.34 dB in sRGB, "
        "more than all other methods; with the ensemble 40.36 and 34.59 dB.",
        [
            f"The set's own noisy mosaics, 16-bit linear RGGB; {_scored(len(pairs), total)}. The wild models were "
            "trained on sRGB values, and are given these linear mosaics without any conversion.",
            "sRGB here means the standard curve only. The published rows used a colour transform and tone curve "
            "fitted to the set, so the sRGB columns are not exactly comparable.",
        ],
        [f"{row[0]}: linear {row[1]}, sRGB {row[2]}." for row in rows if row[0] in context.models],
        [Table("PSNR in dB / SSIM", ["", *msr.SPACES], rows)],
        data={"scores": {name: [asdict(s) for s in pair_scores] for name, pair_scores in scores.items()}},
        missing=[] if pairs else missing_note(["msr"], "only the published rows are shown"),
    )


def table3(context: Context) -> Page:
    """The same network trained with the ELBO and with the mean squared error."""
    methods: dict[str, Method] = {"ELBO": (weights.load("paper"), False), "MSE": (weights.load("paper-mse"), False)}
    present = {name: paths for name in LOSS_SETS if (paths := context.picture_paths(name))}
    columns = [(data, 10.0) for data in present]
    scores = _score(context, methods, present, columns)
    rows = _rows(scores, methods, columns)
    compared = _compared(context, present, columns)
    rows += _quoted([published.rows(f"{at[0]}-loss", at[1]) if at in compared else [] for at in columns])
    leads = {}
    for at in columns:
        lead = sorted(a.psnr - b.psnr for a, b in zip(scores["ELBO", at], scores["MSE", at], strict=True))
        leads[at[0]] = [Curve("ELBO minus MSE", range(1, len(lead) + 1), lead)]
    return Page(
        "Table 3: ELBO against MSE",
        "At sigma 10 the network trained with the ELBO is 0.04 to 0.08 dB above the same network trained with the "
        "mean squared error.",
        [
            "The paper's network (two groups of three residual dense blocks) was trained with each loss on the "
            "same tiles for the same time, side by side on one device (recipes/paper-elbo-first.toml, "
            "paper-elbo-second.toml and paper-elbo.toml, and the same for MSE). The weights are shipped as paper "
            "and paper-mse.",
        ],
        [
            f"{data}: ELBO minus MSE is {_mean(scores['ELBO', at]) - _mean(scores['MSE', at]):+.2f} dB."
            for at in columns
            for data in at[:1]
        ],
        [Table("PSNR in dB / SSIM at sigma 10", ["", *present], rows)] if present else [],
        {
            "lead": (
                Plot(leads, "pictures, sorted by the difference", "ELBO - MSE, dB"),
                "The difference for each picture.",
            )
        }
        if present
        else {},
        data=_data(scores),
        missing=missing_note([name for name in LOSS_SETS if name not in present]) + _incomplete(context, present),
    )


def _scored(count: int, total: int) -> str:
    """How many pictures of a set were scored."""
    if total == 0:
        return "none was available"
    return f"all {total} pictures were scored" if count == total else f"{count} of {total} pictures were scored"


def _methods(context: Context) -> dict[str, Method]:
    """Bilinear interpolation, and each model without and with the ensemble."""
    methods: dict[str, Method] = {"bilinear": (baselines.find_baseline("bilinear"), False)}
    for name, network in context.models.items():
        methods |= {name: (network, False), f"{name}, ensemble": (network, True)}
    return methods


def _score(
    context: Context, methods: Mapping[str, Method], sets: Mapping[str, Sequence[Path]], columns: Sequence[Column]
) -> Scores:
    """The scores of every method in every column; the score of each picture is cached."""
    jobs = [(name, at, path) for name in methods for at in columns for path in sets[at[0]]]
    scores: Scores = {}
    for i, (name, at, path) in enumerate(jobs):

        def score(name: str = name, sigma: float = at[1], path: Path = path) -> Any:
            method, ensemble = methods[name]
            return asdict(
                protocol.score(method, context.read_picture(path), sigma, name=path.name, ensemble=ensemble)
            )

        result = Score(**context.cached(f"{name} {at[0]} {path.name} {at[1]:g}", score))
        scores.setdefault((name, at), []).append(result)
        if path is sets[at[0]][-1]:
            context.report(f"{name}, {at[0]} σ={at[1]:g}: {_cell(scores[name, at])}")
        context.progress((i + 1) / len(jobs))
    return scores


def _rows(scores: Scores, methods: Mapping[str, Method], columns: Sequence[Column]) -> list[list[str]]:
    return [[name, *(_cell(scores[name, at]) for at in columns)] for name in methods if columns]


def _compared(context: Context, sets: Mapping[str, Sequence[Path]], columns: Sequence[Column]) -> list[Column]:
    """The columns that published rows stand in: those of whole sets, unless the pictures are cropped."""
    return [at for at in columns if not context.quick and published.is_whole(at[0], len(sets[at[0]]))]


def _incomplete(context: Context, sets: Mapping[str, Sequence[Path]]) -> list[str]:
    """Which sets have no published rows because pictures are missing."""
    notes = [published.left_out(name, len(paths)) for name, paths in sets.items() if not context.quick]
    return [f"{note}." for note in notes if note]


def _msr_cells(scores: Sequence[msr.PairScore]) -> list[str]:
    """PSNR / SSIM in linear values and in sRGB."""
    averages = [msr.average_pairs(scores, space) for space in msr.SPACES]
    return [f"{psnr:.2f} / {ssim:.3f}" for psnr, ssim in averages]


def _quoted(columns: Sequence[Sequence[published.Row]], *, ssim_digits: int = 4) -> list[list[str]]:
    """Rows from the published scores of each column, with a dash for missing ones."""
    rows: dict[str, list[str]] = {}
    for i, column in enumerate(columns):
        for row in column:
            cells = rows.setdefault(f"*{row.method}, published", ["-"] * len(columns))
            cells[i] = f"{row.psnr:.2f} / {row.ssim:.{ssim_digits}f}"
    return [[name, *cells] for name, cells in rows.items()]


def _against_paper(name: str, scores: Scores, columns: Sequence[Column]) -> str:
    """How a model compares with the paper's own rows."""
    texts = []
    for method, ours in (("Wild-JDD", name), ("Wild-JDD*", f"{name}, ensemble")):
        leads = [
            _mean(scores[ours, at]) - row.psnr
            for at in columns
            for row in published.rows(*at)
            if row.method == method
        ]
        above = sum(lead >= 0 for lead in leads)
        mean = sum(leads) / len(leads)
        texts.append(
            f"{ours} is above the paper's {method} in {above} of {len(leads)} columns, {mean:+.2f} dB on average"
        )
    return "; ".join(texts) + "."


def _data(scores: Scores) -> dict[str, Any]:
    return {
        "scores": [
            {"method": name, "data": data, "sigma": sigma, "pictures": [asdict(s) for s in picture_scores]}
            for (name, (data, sigma)), picture_scores in scores.items()
        ]
    }


def _cell(scores: Sequence[Score]) -> str:
    psnr, ssim, _ = protocol.average(scores, scores[0].sigma)
    return f"{psnr:.2f} / {ssim:.4f}"


def _mean(scores: Sequence[Score]) -> float:
    return protocol.average(scores, scores[0].sigma)[0]
