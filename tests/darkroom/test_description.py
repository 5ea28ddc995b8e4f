"""What `debayes info` says of a camera raw."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
from shots import BODY, photograph, shoot

from debayes.darkroom import description, file, mosaics
from debayes.engine import selection
from debayes.formats import raw
from debayes.imaging.noise_profile import Profile


def test_describe(shot: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything in a raw that shapes its picture; no time, which only running the network would tell."""
    bright = replace(raw.read(shot), exposure=0.35, crop=(2, 4, 100, 120))
    monkeypatch.setattr(description.raws, "read", lambda source: bright)
    facts = description.describe(shot, "raw-s", "cpu")
    assert facts["size"] == "151x127" and facts["pattern"] == "GBRG" and facts["shot"]["iso"] == 3200
    assert facts["noise"]["source"] == "stored in the file" and facts["model"] == "raw-s"
    assert facts["baseline_exposure"] == 0.35 and facts["crop"]["width"] == 120 and facts["orientation"] == 1
    assert facts["matrix"][0][0] == pytest.approx(float(bright.matrix[0, 0]), abs=1e-4)
    assert not any("seconds" in key for key in facts)
    assert facts["engine"] in selection.NAMES and facts["engine"] != "auto"
    assert description.describe(shot, "raw-s", "cpu", "eager")["engine"] == "eager"
    assert facts["noise"]["level"] == "moderate noise"
    assert facts["noise"]["share of the signal"] == pytest.approx(0.08, abs=0.02)


@pytest.mark.parametrize(
    ("iso", "words"), [(100, "little"), (400, "little"), (1600, "moderate"), (6400, "much"), (25600, "much")]
)
def test_noise_in_words(iso: float, words: str) -> None:
    """By the noise relative to the signal of the shot."""
    relative = description.relative_noise(shoot(photograph(), iso), BODY.profile(iso))
    assert description.describe_noise(relative) == f"{words} noise"


def test_noise_of_a_dark_shot() -> None:
    """The same noise is more where there is less light; a frame without light has nothing but noise."""
    clean, profile = photograph(), BODY.profile(400)
    bright, dark = (description.relative_noise(shoot(clean * part, 400), profile) for part in (1, 1 / 64))
    assert dark > 4 * bright
    mean = float(shoot(clean, 400).mosaic.mean())
    assert bright == pytest.approx((profile.gain * mean + profile.floor) ** 0.5 / mean, rel=1e-4)
    assert description.relative_noise(shoot(torch.zeros(3, 64, 64), 400), Profile(0, 1e-6)) > 1


@pytest.mark.parametrize("stops", [0.0, -3.0])
def test_a_dark_raw_is_told(shot: Path, stops: float, caplog: pytest.LogCaptureFixture) -> None:
    """`info` and the log say how many stops below white the highlights are."""
    mosaics.simulate_raw(shot.with_suffix(".png"), shot, iso=100, stops=stops)
    found = description.describe(shot, "raw-s", "cpu", "eager")["brightness"]
    truth = torch.from_numpy(tifffile.imread(shot.with_suffix(".truth.tiff"))) * torch.tensor(BODY.gains)
    assert found["highlights"] == pytest.approx(float(truth.flatten().quantile(0.99)), rel=0.15)
    assert found["mean"] == pytest.approx(float(truth.mean()), rel=0.1)
    assert found["stops_below_white"] == pytest.approx(-np.log2(found["highlights"]), abs=0.1)
    with caplog.at_level("INFO", logger="debayes"):
        file.read(shot, shot.with_suffix(".png"), file.Settings())
    assert f"starts {found['stops_below_white']} stops below white" in caplog.text
