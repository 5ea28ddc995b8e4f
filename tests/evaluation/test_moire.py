"""False colour on fine detail: methods whose scores are known, bands of frequency, and the command."""

import json
import math
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from debayes.cli import scoring
from debayes.cli.app import app
from debayes.evaluation import baselines, fine_detail, moire, reports
from debayes.evaluation.fine_detail import ZONE_PLATE, Scene
from debayes.evaluation.moire import BANDS
from debayes.formats import pictures
from debayes.imaging import cfa
from debayes.system.errors import DebayesError


def test_a_perfect_method_makes_no_error() -> None:
    """Infinite PSNR and no chroma error on every scene and band, with and without noise."""
    for scene in (ZONE_PLATE, Scene("text", 0.3, color="blue")):

        def perfect(mosaic: Tensor, pattern: str, sigma: float | None, scene: Scene = scene) -> Tensor:
            return fine_detail.draw(scene).picture

        scores = moire.evaluate_moire(perfect, [scene])
        assert {score.sigma for score in scores} == {0.0, 5.0}
        assert all(score.psnr == math.inf and score.chroma == 0 for score in scores)


def test_only_colour_errors_are_chroma_errors() -> None:
    """An error of brightness has none; an error of green counts twice as much as one of red."""
    truth = fine_detail.draw(Scene("bars", 0.2, color="orange"), 32).picture
    red, green = torch.tensor([0.1, 0, 0]).view(3, 1, 1), torch.tensor([0, 0.1, 0]).view(3, 1, 1)
    assert moire.chroma_error(truth + 0.1, truth) == pytest.approx(0, abs=1e-6)
    assert moire.chroma_error(truth + red, truth) == pytest.approx(0.05, abs=1e-6)
    assert moire.chroma_error(truth - green, truth) == pytest.approx(0.1, abs=1e-6)


def test_bilinear_interpolation_is_worse_at_high_frequencies() -> None:
    """On the zone plate, from band to band, in PSNR and in chroma error."""
    scores = moire.evaluate_moire(baselines.find_baseline("bilinear"), [ZONE_PLATE], [0])
    whole, *bands = scores
    assert whole.band is None and [score.band for score in bands] == list(BANDS)
    psnrs, chromas = [score.psnr for score in bands[:4]], [score.chroma for score in bands[:4]]
    assert psnrs == sorted(psnrs, reverse=True) and psnrs[0] > psnrs[3] + 6
    assert chromas == sorted(chromas)


def test_bands_divide_the_scene() -> None:
    """The mean squared errors of the bands, weighted by their pixels, give that of the scene."""
    whole, *bands = moire.evaluate_moire(baselines.find_baseline("bilinear"), [ZONE_PLATE], [0])
    frequency = fine_detail.draw(ZONE_PLATE).frequency
    error = 0.0
    for score in bands:
        assert score.band is not None
        share = float(((frequency >= score.band[0]) & (frequency < score.band[1])).double().mean())
        error += share * 10 ** (-score.psnr / 10)
    assert whole.psnr == pytest.approx(-10 * math.log10(error), abs=0.01)
    # a grating has one frequency, and so one band
    _, band = moire.evaluate_moire(baselines.find_baseline("bilinear"), [Scene("bars", 0.33, 10)], [0])
    assert band.band == (0.3, 0.4)


def test_noise_is_that_of_sigma_and_baselines_are_told() -> None:
    """The mosaic of a scene has Gaussian noise of sigma / 255, the same for every method."""
    seen: list[tuple[Tensor, float | None]] = []

    def method(mosaic: Tensor, pattern: str, sigma: float | None) -> Tensor:
        seen.append((mosaic, sigma))
        return cfa.interpolate(mosaic[None], pattern)[0]

    for _ in range(2):
        moire.restore_scene(method, ZONE_PLATE, 5, pattern="GBRG")
    (first, told), (second, _) = seen
    assert torch.equal(first, second) and told == 5 / 255
    error = first - cfa.mosaic(fine_detail.draw(ZONE_PLATE).picture, "GBRG")
    assert float(error.std()) == pytest.approx(5 / 255, rel=0.02)


def test_tables_average_over_scenes() -> None:
    """A row for each kind and hue and for each band; faint zone plates have rows of their own."""
    scenes = [
        ZONE_PLATE,
        Scene("zone plate", 0.5, contrast=0.1),
        Scene("bars", 0.15),
        Scene("bars", 0.35),
        Scene("bars", 0.35, color="blue"),
    ]
    found = moire.evaluate_moire(baselines.find_baseline("bilinear"), scenes, [0])
    table = list(reports.moire_lines([("bilinear", found)]))
    assert table[0] == "| scene, σ=0 | bilinear |"
    names = [line.split(" | ")[0].removeprefix("| ") for line in table if line.startswith("| ")]
    rows = {"zone plate, neutral", "zone plate, neutral, low contrast", "bars, 0.3 to 0.4", "bars, one hue"}
    assert rows <= set(names) and "zone plate, neutral, above 0.5" in names
    bars = [score for score in found if score.band is None and score.scene in scenes[2:4]]
    mean = -10 * math.log10(sum(10 ** (-score.psnr / 10) for score in bars) / 2)
    assert next(line for line in table if "bars, neutral" in line).startswith(f"| bars, neutral | {mean:.2f} / ")


def test_an_infinite_psnr_does_not_hide_the_others() -> None:
    """The mean over scenes is that of the squared error: half the error is 3 dB more."""
    one = moire.DetailScore(ZONE_PLATE, 0.0, None, 30.0, 0.02)
    other = moire.DetailScore(ZONE_PLATE, 0.0, None, math.inf, 0.0)
    assert moire.average_moire([one, other]) == (pytest.approx(33.01, abs=0.01), pytest.approx(0.01))
    assert moire.average_moire([other]) == (math.inf, 0.0)


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--moire` prints tables and writes all scores; `--moire-picture` shows every method's zone plate."""
    few = partial(moire.evaluate_moire, scenes=[ZONE_PLATE, Scene("text", 0.3)])
    monkeypatch.setattr(scoring, "evaluate_moire", few)
    target, table, sheet = tmp_path / "scores.json", tmp_path / "scores.csv", tmp_path / "zone.png"
    files = ["--json", str(target), "--csv", str(table), "--moire-picture", str(sheet)]
    answer = CliRunner().invoke(app, ["evaluate", "--moire", "-m", "wild-s", "raw-s", *files])
    assert answer.exit_code == 0, answer.output
    assert answer.output.splitlines()[0] == "| scene, σ=0 | bilinear | wild-s | raw-s |"
    assert "| cycles per pixel, σ=5 | bilinear | wild-s | raw-s |" in answer.output
    records = json.loads(target.read_text(encoding="utf-8"))["moire"]
    assert len(records["pictures"]) == 3 * 2 * 2
    assert {record["to"] for record in records["bands"] if record["kind"] == "text"} == {0.4}
    assert len(table.read_text(encoding="utf-8").splitlines()) == 1 + 3 * 2 * 2
    picture = pictures.read(sheet)
    assert picture.shape == (3, 2 * (384 + 36) + 8, 4 * (384 + 8) + 8)
    truth = fine_detail.draw(ZONE_PLATE).picture
    assert torch.allclose(picture[:, 36 : 36 + 384, 8 : 8 + 384], truth, atol=1 / 255)
    shown = picture[:, 36 : 36 + 384, 8 + 392 : 8 + 392 + 384]
    assert torch.allclose(
        shown, moire.restore_scene(baselines.find_baseline("bilinear"), ZONE_PLATE, 0), atol=1 / 255
    )


def test_what_cannot_be_judged_is_rejected(tmp_path: Path) -> None:
    """Two patterns at once, and a picture of an unknown format."""
    for arguments, message in (
        (["--moire", "--pattern", "RGGB", "GBRG"], "one --pattern"),
        (["--moire-picture", str(tmp_path / "zone.gif")], "zone.gif"),
    ):
        answer = CliRunner().invoke(app, ["evaluate", *arguments])
        assert isinstance(answer.exception, DebayesError) and message in str(answer.exception)
