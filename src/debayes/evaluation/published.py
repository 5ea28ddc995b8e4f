"""Published scores of other methods, read from published.toml, to print beside ours."""

import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import Any


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
    return [
        Row(row["method"], data, sigma, psnr=row[data][0], ssim=row[data][1], source=source["cite"])
        for source in _tables()["source"]
        for row in source["row"]
        if data in row and row.get("sigma") == sigma
    ]


def is_whole(data: str, pictures: int) -> bool:
    """Whether a set has so many pictures, so that its published rows can stand beside scores of them."""
    return bool(_tables()["pictures"].get(data) == pictures)


def left_out(data: str, pictures: int) -> str | None:
    """Why the published rows of a set are not shown beside the scores of so many pictures; None if they are, or if
    there are none."""
    size = _tables()["pictures"].get(data)
    if size in (None, pictures):
        return None
    return f"{data}: {pictures} of {size} pictures were scored: published rows, which are of all, are not shown"


def _tables() -> dict[str, Any]:
    """What published.toml holds."""
    return tomllib.loads((resources.files("debayes.evaluation") / "published.toml").read_text(encoding="utf-8"))
