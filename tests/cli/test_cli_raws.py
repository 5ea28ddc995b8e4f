"""The commands for camera raws as a photographer meets them."""

import json
from pathlib import Path
from typing import Any

import pytest
from commands import run

from debayes.darkroom import batch, file, rendering
from debayes.evaluation import scenes
from debayes.formats import pictures
from debayes.network import weights


@pytest.fixture
def shot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A raw made by `simulate`."""
    pictures.write(tmp_path / "cat.png", scenes.photograph("chelsea")[:, 60:130, 90:180], bits=8)
    command = ("simulate", tmp_path / "cat.png", "-o", tmp_path, "--to", "dng", "--iso", 3200, "--pattern", "bggr")
    assert run(monkeypatch, *command, "--json") == 0
    (answer,) = json.loads(capsys.readouterr().out)
    assert answer["written"] == [str(tmp_path / "cat.dng"), str(tmp_path / "cat.truth.tiff")]
    assert answer["iso"] == 3200 and answer["gain"] > 0
    return tmp_path / "cat.dng"


def test_develop(shot: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """One raw to a DNG beside it; again, it is there already; overwritten if asked for."""
    assert run(monkeypatch, "develop", shot) == 0
    target = shot.with_name("cat-debayes.dng")
    out = capsys.readouterr().out
    assert str(target) in out and "90x70 BGGR" in out and "(stored)" in out
    stamp = target.stat().st_mtime_ns
    assert run(monkeypatch, "develop", shot) == 0
    assert "was there already" in capsys.readouterr().out and target.stat().st_mtime_ns == stamp
    assert run(monkeypatch, "develop", shot, "--overwrite", "--json") == 0
    assert json.loads(capsys.readouterr().out)[0]["pattern"] == "BGGR"
    assert target.stat().st_mtime_ns > stamp


def test_own_files_are_skipped(
    shot: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`develop *.dng` run twice: the second run does not try the first one's output."""
    assert run(monkeypatch, "develop", shot) == 0
    assert run(monkeypatch, "develop", shot, shot.with_name("cat-debayes.dng")) == 0
    said = capsys.readouterr()
    assert said.err == "debayes: skipped 1 file that debayes wrote: cat-debayes.dng\n"
    assert "was there already" in said.out


def test_develop_a_folder(shot: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A summary at the end, the bad one named, exit code 1."""
    (shot.parent / "bad.nef").write_text("not a raw")
    out = shot.parent / "out"
    options = ("--to", "jpeg", "--maps", "--space", "p3", "--strength", 0.7, "--quality", 90, "--exposure", 0.5)
    assert run(monkeypatch, "develop", shot.parent, "-o", out, *options) == 1
    said = capsys.readouterr()
    assert "1 developed, 0 were there already, 1 failed" in said.out
    assert "bad.nef" in said.err and "Traceback" not in said.err
    assert sorted(path.name for path in out.iterdir()) == [
        "cat-debayes.doubt.png",
        "cat-debayes.doubt.tiff",
        "cat-debayes.jpg",
        "cat-debayes.noise.png",
        "cat-debayes.noise.tiff",
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("develop", "{shot}", "--to", "gif"), "developed to dng, tiff, png, jpeg, not 'gif'"),
        (("develop", "{shot}", "--to", "dng,gif"), "developed to dng, tiff, png, jpeg, not 'gif'"),
        (("develop", "{shot}", "--space", "adobe"), "srgb or p3, not 'adobe'"),
        (("develop", "{shot}", "-o", "{shot}.jpg"), "--output is a folder, not a file like"),
        (("develop", "{shot}", "--space", "p3"), "for rendered pictures"),
        (("develop", "{shot}", "--pattern", "rgbw"), "one of RGGB"),
        (("develop", "{shot}", "-o", "{photo}"), "is a file: give a folder"),
        (("develop", "{shot}", "--model", "wild-s"), "wild-s was not trained for camera raws"),
        (("develop", "{shot}", "--model", "none"), "there is no model"),
        (("develop", "{shot}", "--device", "abacus"), "'abacus' is not on this machine"),
        (("restore", "{shot}", "-o", "a.png", "--model", "raw-s"), "raw-s was trained for camera raws"),
        (("info", "{shot}.nef"), "there is no file"),
        (("simulate", "{photo}", "-o", "{folder}", "--to", "dng", "--iso", "-1"), "an ISO speed is above 0"),
        (("simulate", "{photo}", "-o", "{folder}", "--to", "dng", "--iso", "0"), "an ISO speed is above 0"),
        (("simulate", "{photo}", "-o", "{folder}", "--iso", "100"), "only a dng has an ISO speed"),
    ],
)
def test_mistakes_are_one_line(
    shot: Path,
    arguments: tuple[str, ...],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A mistake is reported in one line, with exit code 2."""
    names = {"shot": shot, "photo": shot.with_suffix(".png"), "folder": shot.parent}
    assert run(monkeypatch, *(argument.format(**names) for argument in arguments)) == 2
    said = capsys.readouterr().err
    assert words in said and "Traceback" not in said


def test_several_formats_and_before(
    shot: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One run writes them all; run again, all are there already; a DNG alone has its before as JPEG."""
    command = ("develop", shot, "-o", shot.parent / "out", "--to", "dng,jpg,dng", "--before", "--exposure", 0.5)
    assert run(monkeypatch, *command) == 0
    names = ["cat-debayes.before.jpg", "cat-debayes.dng", "cat-debayes.jpg"]
    assert sorted(path.name for path in (shot.parent / "out").iterdir()) == names
    out = capsys.readouterr().out
    assert all(name in out for name in names)
    assert run(monkeypatch, *command) == 0
    assert "was there already" in capsys.readouterr().out
    assert run(monkeypatch, "develop", shot, "--before", "--exposure", 0.5) == 0
    assert (shot.parent / "cat-debayes.before.jpg").exists()


def test_strengths(shot: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A strip beside the raw, or where it is wanted; develop then skips it."""
    assert run(monkeypatch, "strengths", shot, "--crop", 10, 5, 40, 30, "--engine", "eager", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    strip = shot.with_name("cat-debayes.strengths.png")
    assert answer == {"written": [str(strip)], "strengths": [0, 0.2, 0.4, 0.6, 0.8, 1], "crop": [10, 5, 40, 30]}
    assert pictures.read(strip).shape == (3, 30 + 26, 6 * 44 - 4) and batch.is_own(strip)
    assert run(monkeypatch, "strengths", shot, "-o", shot.parent / "a.png", "--exposure", 1) == 0
    assert "strengths 0, 0.2, 0.4, 0.6, 0.8, 1 of the crop 0 0 90 70" in capsys.readouterr().out
    assert run(monkeypatch, "strengths", shot, "--crop", 80, 0, 40, 40) == 2
    assert "not inside the picture, which is 90x70 pixels" in capsys.readouterr().err


def test_a_missing_file_is_a_failed_one(
    shot: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The others are developed all the same."""
    assert run(monkeypatch, "develop", shot, shot.parent / "gone.nef") == 1
    said = capsys.readouterr()
    assert "gone.nef" in said.err and "1 developed" in said.out


def test_info(shot: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """What a raw is, in lines and as JSON."""
    assert run(monkeypatch, "info", shot) == 0
    out = capsys.readouterr().out
    for words in ("debayes virtual", "90x70", "BGGR", "stored in the file", "raw-s", "iso 3200", "a pinhole"):
        assert words in out
    assert run(monkeypatch, "info", shot, "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["levels"]["black"] == [2048] * 4 and facts["white_balance"]["red"] == 2


def test_info_of_several(shot: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Files, models and folders at once, by their names; a bad one does not hide the others."""
    (shot.parent / "bad.nef").write_text("not a raw")
    (shot.parent / "cat-debayes.dng").write_bytes(shot.read_bytes())
    assert run(monkeypatch, "info", shot.parent, "raw-s", shot.with_suffix(".png"), "--json") == 1
    said = capsys.readouterr()
    facts = json.loads(said.out)
    assert list(facts) == [str(shot), "raw-s", str(shot.with_suffix(".png"))]
    assert facts[str(shot)]["noise"]["level"] == "moderate noise" and facts["raw-s"]["parameters"] > 0
    assert "bad.nef" in said.err
    assert run(monkeypatch, "info", shot, "raw-s") == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{shot}\n  camera") and "moderate noise" in out and "\nraw-s\n" in out
    assert run(monkeypatch, "develop", shot, "-o", shot.parent / "out") == 0
    capsys.readouterr()
    assert run(monkeypatch, "info", shot.parent / "out" / "cat-debayes.dng") == 0
    assert "by debayes" in capsys.readouterr().out


def test_info_of_a_folder_without_raws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is called a folder, not a model; a folder with the name of a model does not hide it."""
    (tmp_path / "wild-s").mkdir()
    assert run(monkeypatch, "info", tmp_path / "wild-s") == 2
    assert "wild-s holds no camera raws" in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, "info", "wild-s") == 0
    assert "kmac_per_pixel" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("to", "options", "settings"),
    [
        ("tiff", ("--exposure", 0.7, "--space", "p3"), {"exposure": 0.7, "space": "p3"}),
        ("jpeg", ("--quality", 40), {"quality": 40}),
        ("png", ("--strength", 0.5, "--pattern", "rggb", "--white", 60000), {"strength": 0.5, "white": 60000}),
    ],
)
def test_options_reach_the_file(
    shot: Path, to: str, options: tuple[object, ...], settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command writes what the library writes with these settings, and not what it writes without them."""
    if "--pattern" in options:
        settings = settings | {"pattern": "RGGB"}
    assert run(monkeypatch, "develop", shot, "--to", to, *options, "--engine", "eager") == 0
    found = pictures.read(shot.with_name(f"cat-debayes{rendering.FORMATS[to][0]}"))
    for kind, chosen in (("same", settings), ("other", {})):
        target = shot.with_name(f"{kind}{rendering.FORMATS[to][0]}")
        file.develop_file(weights.load("raw-s"), shot, target, file.Settings(**chosen))
        error = float((pictures.read(target) - found).abs().mean())
        assert (error < 1e-4) == (kind == "same")
