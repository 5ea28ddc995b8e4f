"""Published scores of other methods, read from published.toml, to print beside ours."""

import tomllib
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True)
class Row:
    """The published score of a method on a set of pictures at one noise level."""

    method: str
    data: str
    """The set, by its folder name under DEBAYES_DATA."""
    sigma: float | None
    """In units of 1/255; None for a set of real noisy mosaics."""
    psnr: float
    ssim: float
    source: str
    """Where it was published."""


def rows(data: str, sigma: float | None) -> list[Row]:
    """The published rows of a set at a noise level (None: its own noise), in the order of published.toml."""
    text = (resources.files("debayes.evaluation") / "published.toml").read_text(encoding="utf-8")
    return [
        Row(row["method"], data, sigma, psnr=row[data][0], ssim=row[data][1], source=source["cite"])
        for source in tomllib.loads(text)["source"]
        for row in source["row"]
        if data in row and row.get("sigma") == sigma
    ]
