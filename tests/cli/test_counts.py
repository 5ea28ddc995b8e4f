"""`debayes develop` of counts: an array of a sensor without a raw file around it."""

import json
from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
from commands import run

import debayes
from debayes.evaluation import scenes
from debayes.imaging import cfa

BLACK, WHITE = 64, 1023


@pytest.fixture
def counts(tmp_path: Path) -> Path:
    """A noisy 10-bit GRBG mosaic as an NPY file."""
    picture = scenes.photograph("chelsea")[:, 40:120, 100:200] ** 2.2
    signal = cfa.mosaic(picture / torch.tensor([2.0, 1.0, 1.5]).view(3, 1, 1), "GRBG")[0]
    noisy = signal + (2e-4 * signal + 1e-6).sqrt() * torch.randn(
        signal.shape, generator=torch.Generator().manual_seed(0)
    )
    values = (BLACK + (WHITE - BLACK) * noisy).round().clamp(0, WHITE)
    np.save(tmp_path / "shot.npy", values.numpy().astype(np.uint16))
    return tmp_path / "shot.npy"


LEVELS = ("--pattern", "GRBG", "--black", BLACK, "--white", WHITE)


@pytest.mark.parametrize("ending", [".npy", ".tif", ".tiff"])
def test_counts_are_developed(
    ending: str, counts: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """To the picture of `Raw.from_array` and `develop` in Python, up to the rounding of the written file."""
    array = np.load(counts)
    source = counts.with_suffix(ending)
    if ending != ".npy":
        tifffile.imwrite(source, array)
    assert run(monkeypatch, "develop", source, *LEVELS, "--engine", "eager", "--to", "tiff", "--json") == 0
    (answer,) = json.loads(capsys.readouterr().out)
    assert answer["written"] == [str(counts.with_name("shot-debayes.tiff"))] and answer["pattern"] == "GRBG"
    raw = debayes.Raw.from_array(array, "GRBG", black=BLACK, white=WHITE)
    shown = debayes.develop(debayes.load("raw-s"), raw).render().permute(1, 2, 0).numpy()
    np.testing.assert_allclose(tifffile.imread(answer["written"][0]) / 65535, shown, atol=2e-3)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "give --pattern and --black and --white"),
        (("--pattern", "GRBG", "--black", BLACK), "give --white"),
        (("--pattern", "GRBX", "--black", BLACK, "--white", WHITE), "RGGB"),
        (("--pattern", "GRBG", "--black", WHITE, "--white", BLACK), "white level"),
        (("--pattern", "GRBG", "--black", WHITE, "--white", 2 * WHITE), "black level"),
    ],
)
def test_what_is_missing_is_named(
    arguments: tuple[object, ...],
    words: str,
    counts: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With exit code 2: nothing could be done."""
    assert run(monkeypatch, "develop", counts, *arguments) == 2
    said = capsys.readouterr().err
    assert words in said and "bug" not in said


def test_a_tiff_without_a_pattern_is_a_raw_or_an_error_that_names_both_ways(
    counts: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """LibRaw does not read this one: it has floats of one channel."""
    source = counts.with_suffix(".tiff")
    tifffile.imwrite(source, np.load(counts).astype(np.float32) / WHITE, photometric="minisblack")
    assert run(monkeypatch, "develop", source) == 2
    said = capsys.readouterr().err
    assert "camera raw" in said and "--pattern, --black and --white" in said
