"""Raws of a virtual camera at ISO speeds: their noise, and developers whose score is known."""

import json
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

import debayes
from debayes.cli.app import app
from debayes.evaluation import baselines, iso
from debayes.evaluation.iso import IsoScore
from debayes.formats import pictures
from debayes.formats.raw import Raw
from debayes.imaging import cfa
from debayes.imaging.virtual_camera import Body
from debayes.system.errors import DebayesError

BODY = Body()


def picture(height: int = 65, width: int = 96) -> Tensor:
    """Smooth colours: a different gradient in each channel."""
    x = torch.linspace(0.1, 0.9, width).expand(height, width)
    y = torch.linspace(0.2, 0.8, height)[:, None].expand(height, width)
    return torch.stack((x, y, (x + y) / 2))


def test_a_perfect_developer_has_an_infinite_score() -> None:
    """The truth is the camera's colours, clipped at white; white balance keeps it equal, and odd rows are cut."""
    bright = picture()
    bright[:, :8] = 1.0

    def perfect(raw: Raw) -> Tensor:
        assert raw.size == (64, 96) and raw.gains == BODY.gains
        return BODY.expose(bright[:, :64]) + 10 * (
            BODY.expose(bright[:, :64]) >= 1
        )  # clipped before it is compared

    scores = iso.evaluate_iso(perfect, [bright], [100, 6400])
    assert [(score.name, score.iso, score.psnr) for score in scores] == [
        ("picture 1", 100, math.inf),
        ("picture 1", 6400, math.inf),
    ]


def test_errors_are_measured_after_white_balance() -> None:
    """An error of 0.01 in camera values counts twice in red and 1.6 times in blue, as white balance enlarges it."""
    clean = BODY.expose(picture(64))
    (score,) = iso.evaluate_iso(lambda raw: clean + 0.01, [picture(64)], [100])
    error = 1e-4 * (2.0**2 + 1 + 1.6**2) / 3
    assert score.psnr == pytest.approx(-10 * math.log10(error), abs=0.01)


@pytest.mark.parametrize("pattern", ["RGGB", "GBRG"])
def test_noise_is_that_of_the_profile_and_depends_on_name_and_speed(pattern: str) -> None:
    """The mosaic differs from the truth by noise of the stated variance; the same name and speed give the same."""
    plain = torch.full((3, 128, 128), 0.5)
    raw, clean = iso.photograph(plain, 1600, name="a", pattern=pattern, body=BODY)
    assert raw.profile == BODY.profile(1600)
    error = raw.mosaic - cfa.mosaic(clean, pattern)
    expected = raw.profile.variance(cfa.mosaic(clean, pattern)).mean()
    assert float(error.square().mean()) == pytest.approx(float(expected), rel=0.05)
    again, _ = iso.photograph(plain, 1600, name="a", pattern=pattern, body=BODY)
    other, _ = iso.photograph(plain, 1600, name="b", pattern=pattern, body=BODY)
    assert torch.equal(again.mosaic, raw.mosaic) and not torch.equal(other.mosaic, raw.mosaic)
    # another speed is not the same noise, scaled
    faster, _ = iso.photograph(plain, 6400, name="a", pattern=pattern, body=BODY)
    noise = torch.stack((error.flatten(), (faster.mosaic - cfa.mosaic(clean, pattern)).flatten()))
    assert abs(float(noise.corrcoef()[0, 1])) < 0.05


def test_baselines_see_balanced_values_and_their_noise_level() -> None:
    """Grey is grey in the mosaic that a baseline gets, the level is that of its noise, and the result is linear."""
    plain = torch.full((3, 128, 128), 0.5)
    raw, clean = iso.photograph(plain, 3200, name="a", pattern="RGGB", body=BODY)
    seen: list[tuple[Tensor, float]] = []

    def baseline(mosaic: Tensor, pattern: str, level: float | None) -> Tensor:
        assert level is not None and pattern == "RGGB"
        seen.append((mosaic, level))
        return baselines.bilinear(mosaic, pattern)

    developed = iso.baseline_developer(baseline)(raw)
    ((mosaic, level),) = seen
    red, green, blue = (mosaic[0][mask] for mask in cfa.masks("RGGB", 128, 128))
    assert float(red.mean()) == pytest.approx(float(green.mean()), rel=0.01)
    assert float(blue.mean()) == pytest.approx(float(green.mean()), rel=0.01)
    variance = (red.var() + 2 * green.var() + blue.var()) / 4
    assert level == pytest.approx(float(variance.sqrt()), rel=0.05)
    assert torch.allclose(developed.mean((1, 2)), clean.mean((1, 2)), rtol=0.01)
    with pytest.raises(DebayesError, match="noise profile"):
        iso.baseline_developer(baseline)(Raw(raw.mosaic, "RGGB", raw.gains, raw.matrix))


def test_averages_are_of_one_speed() -> None:
    """The mean over the pictures, not over the speeds."""
    scores = [IsoScore("a", 100, 40), IsoScore("a", 800, 30), IsoScore("b", 100, 44)]
    assert iso.average_iso(scores, 100) == 42


def test_speeds_are_above_zero() -> None:
    """An ISO speed of 0 is rejected before any picture is read."""
    with pytest.raises(DebayesError, match="above 0"):
        iso.evaluate_iso(lambda raw: raw.mosaic, [Path("none.png")], [0])


def test_command(tmp_path: Path) -> None:
    """A row for every method, a column for every speed; the networks' scores are those of `debayes.develop`."""
    (tmp_path / "set").mkdir()
    pictures.write(tmp_path / "set" / "one.png", picture(64))
    target, table = tmp_path / "scores.json", tmp_path / "scores.csv"
    arguments = ["evaluate", "--data", str(tmp_path / "set"), "--iso", "100", "6400", "--json", str(target)]
    answer = CliRunner().invoke(app, [*arguments, "-m", "raw-s", "wild-s", "--csv", str(table)])
    assert answer.exit_code == 0, answer.output
    lines = answer.output.splitlines()
    assert lines[0].endswith("| ISO 100 | ISO 6400 |") and len(lines) == 5
    records = json.loads(target.read_text(encoding="utf-8"))["iso"]
    assert [record["method"] for record in records["means"]] == ["bilinear"] * 2 + ["raw-s"] * 2 + ["wild-s"] * 2
    assert len(table.read_text(encoding="utf-8").splitlines()) == 7
    raw, clean = iso.photograph(
        pictures.read(tmp_path / "set" / "one.png"), 6400, name="one.png", pattern="RGGB", body=BODY
    )
    gains = torch.tensor(BODY.gains).view(3, 1, 1)
    error = (debayes.develop(debayes.load("raw-s"), raw).picture.clamp(0, 1) - clean) * gains
    score = records["pictures"][3]
    assert (score["name"], score["iso"], score["pattern"]) == ("one.png", 6400, "RGGB")
    assert score["psnr"] == pytest.approx(float(-10 * error.square().mean().log10()), abs=1e-3)


def test_what_cannot_be_scored_is_rejected(tmp_path: Path) -> None:
    """The message names what to change."""
    (tmp_path / "set").mkdir()
    pictures.write(tmp_path / "set" / "one.png", picture(64))
    for half in ("input", "groundtruth"):
        (tmp_path / "msr" / half).mkdir(parents=True)
        pictures.write(tmp_path / "msr" / half / "1.png", picture(64) if half == "groundtruth" else picture(64)[:1])
    data = ["--data", str(tmp_path / "set")]
    for arguments, message in (
        (["--plain-colors", "--iso", "100"], "give --data"),
        ([*data, "--iso", "100", "--doubt"], "--doubt"),
        ([*data, "--iso", "-3"], "above 0"),
        (["--data", str(tmp_path / "msr"), "--iso", "100"], "leave out --iso"),
    ):
        answer = CliRunner().invoke(app, ["evaluate", *arguments])
        assert isinstance(answer.exception, DebayesError) and message in str(answer.exception)
