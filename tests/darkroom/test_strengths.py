"""One crop at several strengths."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from shots import BODY, photograph, shoot

from debayes.darkroom import loop, rendering, strengths
from debayes.formats import pictures
from debayes.formats.raw import Raw
from debayes.network.network import Network
from debayes.system.errors import DebayesError


def crops(path: Path) -> list[np.ndarray]:
    """The pictures of a strip, without the line above them."""
    strip = (255 * pictures.read(path).permute(1, 2, 0)).round().numpy()[strengths.LINE :]
    width = (strip.shape[1] + strengths.GAP) // len(strengths.STRENGTHS)
    return [strip[:, i * width : (i + 1) * width - strengths.GAP] for i in range(len(strengths.STRENGTHS))]


@pytest.mark.parametrize("orientation", [1, 6, 3])
def test_crops_are_those_of_the_developed_picture(
    network: Network, tmp_path: Path, orientation: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the upright picture has them, at each strength."""
    source = replace(shoot(photograph(420)[:, :240], 6400), orientation=orientation, crop=(8, 6, 228, 404))
    monkeypatch.setattr(strengths, "read_shot", lambda _: source)
    box = (150, 30, 61, 47) if orientation != 6 else (30, 150, 61, 47)
    target = tmp_path / "strip.png"
    assert strengths.compare(network, tmp_path / "a.dng", target, crop=box, exposure=0.5) == box
    x, y, wide, high = box
    for strength, found in zip(strengths.STRENGTHS, crops(target), strict=True):
        shown = loop.develop(network, source, strength=strength).render(exposure=0.5)
        whole = rendering.upright((255 * shown.permute(1, 2, 0)).numpy(), source)
        assert found.shape == (high, wide, 3)
        assert float(np.abs(found - whole[y : y + high, x : x + wide]).mean()) < 1.5


def test_the_centre(network: Network, shot: Path) -> None:
    """Without a crop; all of a picture that is smaller than that. Noise falls from crop to crop."""
    target = shot.with_name("strip.png")
    assert strengths.compare(network, shot, target) == (0, 0, 151, 127)
    noise = [float(np.square(np.diff(crop, axis=1)).mean()) for crop in crops(target)]
    assert noise == sorted(noise, reverse=True) and noise[0] > 1.5 * noise[-1]
    large = Raw(shoot(photograph(8), 400).mosaic.repeat(1, 50, 60), "RGGB", BODY.gains, BODY.matrix)
    assert strengths._check_crop(large, None) == (80, 40, 320, 320)


@pytest.mark.parametrize("crop", [(-1, 0, 10, 10), (0, 0, 152, 10), (0, 120, 10, 8), (0, 0, 0, 5)])
def test_crops_outside(network: Network, shot: Path, crop: strengths.Box) -> None:
    """The size of the picture is in the message, and nothing is written."""
    with pytest.raises(DebayesError, match="not inside the picture, which is 151x127"):
        strengths.compare(network, shot, shot.with_name("strip.png"), crop=crop)
    assert not shot.with_name("strip.png").exists()


def test_refusals(network: Network, shot: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other formats than PNG, crops too large to look at, and no strip over the raw."""
    with pytest.raises(DebayesError, match=r"as \.png, not as \.dng"):
        strengths.compare(network, shot, shot)
    monkeypatch.setattr(strengths, "LARGEST", 100)
    with pytest.raises(DebayesError, match="at most 100 pixels"):
        strengths.compare(network, shot, shot.with_name("strip.png"), crop=(0, 0, 101, 10))
