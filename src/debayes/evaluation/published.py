"""What others published: rows for our tables, kept as data in published.toml."""

import tomllib
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True)
class Row:
    """The score of a method on a set of pictures, at one noise level."""

    method: str
    data: str
    """The set, by the name it has under DEBAYES_DATA."""
    sigma: float | None
    """In units of 1/255; none for a set whose mosaics have their own noise."""
    psnr: float
    ssim: float
    source: str
    """Where it was published."""


def rows(data: str, sigma: float | None) -> list[Row]:
    """The published rows of a set at a noise level (or none), in the order of their source."""
    text = (resources.files("debayes.evaluation") / "published.toml").read_text()
    return [
        Row(row["method"], data, sigma, psnr=row[data][0], ssim=row[data][1], source=source["cite"])
        for source in tomllib.loads(text)["source"]
        for row in source["row"]
        if data in row and row.get("sigma") == sigma
    ]
