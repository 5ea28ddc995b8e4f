"""The published scores: spot checks against the papers, and properties that every row must have."""

import tomllib
from importlib import resources

from debayes.evaluation import published


def test_published_rows_are_the_papers() -> None:
    """Spot checks against table 1 of the paper; other sets and levels have no rows."""
    rows = {row.method: row for row in published.rows("kodak24", 10)}
    assert (rows["Wild-JDD"].psnr, rows["Wild-JDD"].ssim) == (33.81, 0.9127)
    assert (rows["Wild-JDD*"].psnr, rows["DeepJoint"].psnr) == (33.88, 33.10)
    assert "SGNet" not in rows and "SGNet" in {row.method for row in published.rows("urban100", 5)}
    assert all("AAAI 2021" in row.source for row in rows.values())
    assert [len(published.rows("urban100", sigma)) for sigma in (5, 10, 15)] == [8, 8, 8]
    assert published.rows("mine", 10) == published.rows("kodak24", 7) == []


def test_published_rows_of_the_msr_set() -> None:
    """Spot checks against table 2 of the paper; these rows have no noise level."""
    linear, srgb = ({row.method: row for row in published.rows(f"msr-{s}", None)} for s in ("linear", "srgb"))
    assert len(linear) == len(srgb) == 11 and published.rows("msr-linear", 5) == []
    assert (linear["Wild-JDD"].psnr, linear["Wild-JDD"].ssim) == (40.16, 0.980)
    assert (srgb["Wild-JDD*"].psnr, srgb["Wild-JDD*"].ssim) == (34.59, 0.947)
    assert (linear["JMCDM"].psnr, srgb["DMCNN-VD-Tr"].ssim) == (37.44, 0.957)


def test_every_row_is_a_score() -> None:
    """PSNR and SSIM are within their ranges, no method appears twice, and the ensemble is above the single pass."""
    text = (resources.files("debayes.evaluation") / "published.toml").read_text(encoding="utf-8")
    found = {
        (data, row.get("sigma"))
        for source in tomllib.loads(text)["source"]
        for row in source["row"]
        for data in row.keys() - {"method", "sigma"}
    }
    assert ("urban100", 15) in found and ("msr-linear", None) in found
    for data, sigma in found:
        rows = {row.method: row for row in published.rows(data, sigma)}
        assert len(rows) == len(published.rows(data, sigma))
        assert all(20 < row.psnr < 50 and 0.5 < row.ssim < 1 for row in rows.values())
        assert all((row.data, row.sigma) == (data, sigma) and row.source for row in rows.values())
        if "Wild-JDD*" in rows:
            assert rows["Wild-JDD*"].psnr > rows["Wild-JDD"].psnr
