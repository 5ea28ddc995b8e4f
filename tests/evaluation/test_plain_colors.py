"""Noise left on plain colours: the noise that is drawn, and methods whose residual noise is known."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

import debayes
from debayes.cli.app import app
from debayes.evaluation import baselines, plain_colors
from debayes.evaluation.plain_colors import BORDER, CASES, SIZE, PlainColor
from debayes.imaging import cfa
from debayes.system.errors import DebayesError


@pytest.mark.parametrize("pattern", ["RGGB", "GBRG"])
def test_noise_levels_are_those_of_each_colour(pattern: str) -> None:
    """The photosites of each colour have its mean, and noise of sigma times its factor."""
    case = PlainColor((0.2, 0.4, 0.25), (0.7, 1.0, 1.5))
    mosaic, levels = plain_colors.noisy_plain_color(case, 0.02, pattern=pattern, seed=0)
    for mask, color, factor in zip(cfa.masks(pattern, SIZE, SIZE), case.color, case.factors, strict=True):
        values = mosaic[0][mask]
        assert float(values.std()) == pytest.approx(0.02 * factor, rel=0.03)
        assert float(values.mean()) == pytest.approx(color, abs=0.001)
        assert torch.allclose(levels[0][mask], torch.tensor(0.02 * factor))


def test_bilinear_interpolation_leaves_what_is_known() -> None:
    """Averaging 1, 2 or 4 photosites leaves 9/16 of the variance in red and blue, and 5/8 in green."""
    residuals = plain_colors.evaluate_plain_colors(baselines.find_baseline("bilinear"))
    assert [residual.case for residual in residuals] == list(CASES)
    for residual in residuals:
        red, green, blue = residual.case.factors
        variance = (9 / 16 * red**2 + 5 / 8 * green**2 + 9 / 16 * blue**2) / 3
        assert residual.left == pytest.approx(6 * variance**0.5, rel=0.03)


def test_borders_are_not_measured() -> None:
    """Errors within 16 pixels of the border do not count; all others do, in units of 1/255."""
    case = CASES[3]

    def exact(border: int, sigma: float = 0.0) -> float:
        def method(mosaic: Tensor, pattern: str, level: float | None) -> Tensor:
            image = torch.tensor(case.color)[:, None, None].repeat(1, SIZE, SIZE)
            image[:, :border] += 0.5
            image[1, SIZE // 2 :] += sigma / 255
            return image

        return plain_colors.evaluate_plain_colors(method, [case])[0].left

    assert exact(BORDER) == pytest.approx(0, abs=1e-5)
    assert exact(BORDER + 1) > 5
    # in a third of the channels, half of the pixels have an error of 10, so the mean error is 10/6
    assert exact(0, 10.0) == pytest.approx((100 / 6 - (10 / 6) ** 2) ** 0.5, rel=1e-3)


def test_baselines_are_given_the_root_mean_square_level() -> None:
    """Over all photosites, half of which are green."""
    told: list[float | None] = []

    def method(mosaic: Tensor, pattern: str, level: float | None) -> Tensor:
        told.append(level)
        return cfa.interpolate(mosaic[None], pattern)[0]

    plain_colors.evaluate_plain_colors(method, [CASES[2]], sigma=10.0)
    assert told == [pytest.approx(10 / 255 * ((0.25 + 2 + 0.25) / 4) ** 0.5)]


def test_networks_leave_little_of_equal_noise() -> None:
    """A shipped network leaves less than a tenth of noise that is the same everywhere, with the ensemble too."""
    network = debayes.load("wild-s")
    for ensemble in (False, True):
        (residual,) = plain_colors.evaluate_plain_colors(network, CASES[:1], ensemble=ensemble)
        assert 0 < residual.left < 0.6


def test_command(tmp_path: Path) -> None:
    """`debayes evaluate --plain-colors` needs no pictures; it prints the table and writes the values."""
    target = tmp_path / "scores.json"
    answer = CliRunner().invoke(app, ["evaluate", "--plain-colors", "-m", "wild-s", "--json", str(target)])
    assert answer.exit_code == 0
    rows = [line.split(" | ")[0] for line in answer.output.splitlines() if line.startswith("| ")]
    assert rows[1:] == ["| ---", "| bilinear", "| wild-s"]
    records = json.loads(target.read_text(encoding="utf-8"))["plain_colors"]
    assert [record["factors"] for record in records[: len(CASES)]] == [list(case.factors) for case in CASES]
    nothing = CliRunner().invoke(app, ["evaluate"])
    assert isinstance(nothing.exception, DebayesError) and "--data, --plain-colors or --moire" in str(
        nothing.exception
    )
