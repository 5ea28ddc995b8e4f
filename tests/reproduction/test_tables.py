"""The parts of tables: quoted rows, comparisons with the paper, sets of which only a part was scored.

Whole tables are made in test_experiments.
"""

from pathlib import Path

import pytest
import torch
from networks import untrained

from debayes.evaluation import published
from debayes.evaluation.protocol import Score
from debayes.formats import pictures
from debayes.network.config import Config
from debayes.reproduction import tables
from debayes.reproduction.context import Context

TINY = Config(widths=(8,), blocks=1, bottom_blocks=1, tail=4, tail_blocks=0)


def test_quoted_rows_have_the_published_digits() -> None:
    """One row for each method with a dash where it has no score; SSIM has as many digits as the paper prints."""
    columns = [published.rows("kodak24", 5), published.rows("urban100", 5)]
    rows = {row[0]: row[1:] for row in tables._quoted(columns)}
    assert rows["*Wild-JDD, published"][0].startswith("36.88 / 0.9")
    assert rows["*SGNet, published"][0] == "-" and rows["*SGNet, published"][1] != "-"
    msr = [published.rows("msr-linear", None), published.rows("msr-srgb", None)]
    assert ["*Wild-JDD*, published", "40.36 / 0.981", "34.59 / 0.947"] in tables._quoted(msr, ssim_digits=3)


def test_comparison_with_the_paper() -> None:
    """Columns above the published row are counted, and the differences averaged."""
    at = ("kodak24", 5.0)
    row, ensemble = ({r.method: r for r in published.rows(*at)}[name] for name in ("Wild-JDD", "Wild-JDD*"))
    scores = {
        ("ours", at): [Score("a", 5.0, row.psnr + 0.5, 0.9, None), Score("b", 5.0, row.psnr - 0.1, 0.9, None)],
        ("ours, ensemble", at): [Score("a", 5.0, ensemble.psnr - 0.3, 0.9, None)],
    }
    text = tables._against_paper("ours", scores, [at])
    assert "ours is above the paper's Wild-JDD in 1 of 1 columns, +0.20 dB on average" in text
    assert "ours, ensemble is above the paper's Wild-JDD* in 0 of 1 columns, -0.30 dB on average" in text


@pytest.mark.parametrize(("quick", "count"), [(True, 4), (False, 6)])
def test_a_part_of_a_set_is_not_compared(quick: bool, count: int, tmp_path: Path) -> None:
    """The page says how many pictures were scored; published rows are shown beside whole sets only."""
    for half, channels in (("input", 1), ("groundtruth", 3)):
        (tmp_path / "msr" / half).mkdir(parents=True)
        for i in range(6):
            pictures.write(tmp_path / "msr" / half / f"{i}.png", torch.full((channels, 16, 16), 0.5), bits=16)
    network = untrained(TINY)
    context = Context({"ours": network}, tmp_path, quick, lambda key, compute: compute(), lambda share: None)
    page = tables.table2(context)
    scored = "4 of 6 pictures were scored" if quick else "all 6 pictures were scored"
    assert scored in page.method[0]
    assert len(page.data["scores"]["ours"]) == 2 * count
    assert any(row[0].endswith("published") for row in page.tables[0].rows) is not quick


def test_published_rows_stand_beside_whole_sets(tmp_path: Path) -> None:
    """Of two sets one lacks pictures: it has no published rows, and the page says so."""
    for name, count in (("kodak24", 24), ("mcm18", 3)):
        (tmp_path / name).mkdir()
        for i in range(count):
            pictures.write(tmp_path / name / f"{i}.png", torch.full((3, 16, 16), 0.5), bits=8)
    context = Context(
        {"ours": untrained(TINY)}, tmp_path, False, lambda key, compute: compute(), lambda share: None
    )
    page = tables.table1(context)
    row = next(row for row in page.tables[0].rows if row[0] == "*Wild-JDD, published")
    assert row[1].startswith("36.88") and list(row[4:]) == ["-"] * 3
    assert "mcm18: 3 of 18 pictures were scored: published rows, which are of all, are not shown." in page.missing
    assert "columns, " in page.finding[1] and "of 3 columns" in page.finding[1]
