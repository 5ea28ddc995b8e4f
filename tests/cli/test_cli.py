"""The command as a user meets it: answers, files, and a one-line error with exit code 2."""

import csv
import json
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import run
from PIL import Image

from debayes.evaluation import metrics
from debayes.formats import pictures
from debayes.imaging import cfa


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    """A small smooth picture of odd size."""
    y, x = torch.meshgrid(torch.linspace(0, 3, 67), torch.linspace(0, 3, 91), indexing="ij")
    picture = torch.stack((x.sin() ** 2, (x * y).cos() ** 2, 0.5 + 0.4 * (x - y).sin()))
    pictures.write(tmp_path / "photo.png", picture, bits=8)
    return tmp_path / "photo.png"


@pytest.fixture
def mosaic(photo: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """Its noisy GBRG mosaic, made by `simulate`."""
    assert run(monkeypatch, "simulate", photo, "-o", photo.parent, "--pattern", "GBRG", "--sigma", 10) == 0
    return Path(capsys.readouterr().out.strip())


def test_simulate_then_restore(
    mosaic: Path, photo: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The pattern is recorded in the file; the picture is far better than interpolated, its noise estimated."""
    output = mosaic.parent / "out.png"
    assert run(monkeypatch, "restore", mosaic, "-o", output, "--maps", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["pattern"] == "GBRG" and (answer["width"], answer["height"]) == (91, 67)
    names = ["out.png", "out.noise.tiff", "out.noise.png", "out.doubt.tiff", "out.doubt.png"]
    assert [Path(p).name for p in answer["written"]] == names
    truth = pictures.read(photo)
    noisy = cfa.interpolate(pictures.read_mosaic(mosaic).values[None], "GBRG")[0]
    assert float(metrics.psnr(pictures.read(output), truth)) > float(metrics.psnr(noisy, truth)) + 4
    maps = [mosaic.parent / f"out.{kind}.tiff" for kind in ("noise", "doubt")]
    noise, doubt = (pictures.read(path) * pictures.describe(path)["65535 is"] for path in maps)
    assert 255 * float(noise.median()) == pytest.approx(10, rel=0.2)
    assert float(doubt.min()) > 0 and bool((doubt < noise).all())


def test_restore_is_the_library_call(mosaic: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`restore` to NPY holds the posterior mean of `debayes.restore`, tiles and all."""
    import debayes

    output = mosaic.parent / "out.npy"
    assert run(monkeypatch, "restore", mosaic, "-o", output, "--tile", 32, "--engine", "eager") == 0
    values = pictures.read_mosaic(mosaic).values
    expected = debayes.restore(debayes.load("wild-s"), values, "GBRG").mean.permute(1, 2, 0)
    np.testing.assert_allclose(np.load(output), expected.numpy(), atol=1e-5)


def test_an_explicit_pattern_wins(
    mosaic: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """--pattern overrides what the file records."""
    run(monkeypatch, "restore", mosaic, "-o", mosaic.parent / "o.png", "--pattern", "RGGB", "--json")
    answer = json.loads(capsys.readouterr().out)
    assert answer["pattern"] == "RGGB" and not answer["assumed"]


def test_an_assumed_pattern_is_said_to_be_assumed(
    mosaic: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An NPY file records none: it is restored as RGGB, and the answer says that this was not recorded."""
    plain = mosaic.parent / "plain.npy"
    np.save(plain, pictures.read_mosaic(mosaic).values[0].numpy())
    for source, said in ((mosaic, False), (plain, True)):
        run(monkeypatch, "restore", source, "-o", mosaic.parent / "o.png")
        assert ("not recorded" in capsys.readouterr().out) == said


def test_levels(mosaic: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A 14-bit mosaic with its levels restores to the same picture as the float one, to its rounding."""
    values = pictures.read_mosaic(mosaic).values[0].numpy()
    counts = mosaic.parent / "counts.npy"
    np.save(counts, (values * 14000 + 1500).round().astype(np.uint16))
    common = ("--engine", "eager", "--pattern", "GBRG", "-o")
    assert run(monkeypatch, "restore", mosaic, *common, mosaic.parent / "a.npy") == 0
    assert (
        run(monkeypatch, "restore", counts, "--black", 1500, "--white", 15500, *common, mosaic.parent / "b.npy")
        == 0
    )
    a, b = (np.load(mosaic.parent / name) for name in ("a.npy", "b.npy"))
    np.testing.assert_allclose(a, b, atol=1e-3)


def test_same_seed_same_mosaic(photo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`simulate` is reproducible."""
    for folder, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert run(monkeypatch, "simulate", photo, "-o", photo.parent / folder, "--seed", seed) == 0
    a, b, c = (pictures.read_mosaic(photo.parent / f / "photo.mosaic.tiff").values for f in "abc")
    assert torch.equal(a, b) and not torch.equal(a, c)


RECIPE = """
[data]
train = ["store"]
val = "photos"
tile = 16
[network]
widths = [8]
blocks = 1
bottom_blocks = 1
tail = 4
tail_blocks = 0
[optimizer]
batch = 2
patch = 16
steps = 3
"""


def test_pictures_to_tiles_to_weights(
    photo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`tiles` cuts pictures up, `train` learns from them and leaves a log that `runs` and TensorBoard show; the
    weights name the licence that `tiles` was told."""
    (tmp_path / "photos").mkdir()
    photo.rename(tmp_path / "photos" / "photo.png")
    monkeypatch.chdir(tmp_path)
    given = ("photos", "-o", "store", "--size", 16, "--count", 3, "--licence", "CC0")
    assert run(monkeypatch, "tiles", *given, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"pictures": 1, "small": 0, "tiles": 3, "zips": 1}
    Path("tiny.toml").write_text(RECIPE)
    assert run(monkeypatch, "train", "tiny.toml", "--every", 0, "--tensorboard", "--device", "cpu") == 0
    out, err = capsys.readouterr()
    assert Path(out.strip()).as_posix() == "runs/tiny/weights.safetensors"
    assert "100%  step 3" in err and "it/s" in err and "GiB" in err
    assert list(Path("runs/tiny").glob("events.out.tfevents.*"))
    assert run(monkeypatch, "runs") == 0
    out, _ = capsys.readouterr()
    assert out.startswith("tiny  step        3") and "dB (best" in out
    with Image.open("runs/curves.png") as plot:
        assert plot.width > 1000
    assert run(monkeypatch, "info", "runs/tiny/weights.safetensors", "--json") == 0
    (card,) = json.loads(capsys.readouterr().out).values()
    assert card["licences"] == {"CC0": 1} and card["recipe"]["data"]["train"] == ["store"]


@pytest.mark.parametrize("noise", ["gaussian", "varying", "uniform", "poisson", "brown"])
def test_every_noise(noise: str, photo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each noise is written and recorded."""
    assert run(monkeypatch, "simulate", photo, "-o", photo.parent / "new" / "deep", "--noise", noise) == 0
    read = pictures.read_mosaic(photo.parent / "new" / "deep" / "photo.mosaic.tiff")
    assert read.record["noise"] == noise
    error = read.values - cfa.mosaic(pictures.read(photo))
    assert 255 * float(error.std()) > (2 if noise == "varying" else 9)


def test_info(mosaic: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`info` describes mosaics, one model and all models."""
    assert run(monkeypatch, "info", mosaic, "--json") == 0
    assert json.loads(capsys.readouterr().out)["pattern"] == "GBRG"
    assert run(monkeypatch, "info", "wild-s") == 0
    text = capsys.readouterr().out
    assert "kmac_per_pixel" in text and "widths" in text
    assert run(monkeypatch, "info", "--json") == 0
    assert "wild-s" in json.loads(capsys.readouterr().out)


def test_evaluate(photo: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The table has a row for bilinear interpolation and one for each model."""
    folder = photo.parent / "set"
    folder.mkdir()
    photo.rename(folder / "photo.png")
    assert run(monkeypatch, "evaluate", "--data", folder, "--sigma", 5, "--sigma", 15) == 0
    lines = capsys.readouterr().out.strip().splitlines()
    assert len(lines) == 4 and lines[2].startswith("| bilinear") and lines[3].startswith("| wild-s")
    bilinear, ours = (float(line.split("|")[2].split("/")[0]) for line in lines[2:])
    assert ours > bilinear + 1
    assert (
        run(monkeypatch, "evaluate", "--data", folder, "--sigma", 15, "--doubt", "--csv", photo.parent / "d.csv")
        == 0
    )
    assert capsys.readouterr().out.splitlines()[-1].startswith(f"| wild-s, {folder} RGGB σ=15 |")
    assert "coverage_90" in (photo.parent / "d.csv").read_text()
    monkeypatch.setenv("DEBAYES_DATA", str(photo.parent))
    where = photo.parent / "out.json"
    several = ("--sigma", 5, 15, "--pattern", "rggb", "GBRG", "--baseline", "bilinear", "--ensemble")
    assert (
        run(monkeypatch, "evaluate", "--data", "set", *several, "--json", where, "--csv", photo.parent / "o.csv")
        == 0
    )
    assert capsys.readouterr().out.splitlines()[0].count("σ=") == 4
    found = json.loads(where.read_text())
    assert {row["method"] for row in found["means"]} == {"bilinear", "wild-s", "wild-s, ensemble"}
    scores = {(row["method"], row["pattern"], row["sigma"]): row["psnr"] for row in found["pictures"]}
    assert len(scores) == 12 and scores["wild-s", "RGGB", 5.0] == pytest.approx(ours, abs=0.006)
    assert scores["wild-s, ensemble", "GBRG", 5.0] > scores["wild-s", "GBRG", 5.0]
    assert len((photo.parent / "o.csv").read_text().splitlines()) == 13


def test_a_part_of_a_published_set(
    photo: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Published rows are of the whole set: none stand below the scores of one picture, and stderr says why."""
    (photo.parent / "kodak24").mkdir()
    photo.rename(photo.parent / "kodak24" / "photo.png")
    assert run(monkeypatch, "evaluate", "--data", photo.parent / "kodak24", "--sigma", 10) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 4
    assert "kodak24: 1 of 24 pictures were scored: published rows, which are of all, are not shown" in err


def test_a_perfect_score_is_null_in_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain noise-free picture is interpolated without error: an infinite PSNR, which JSON cannot say."""
    (tmp_path / "set").mkdir()
    Image.fromarray(np.full((16, 16, 3), 255, dtype=np.uint8)).save(tmp_path / "set" / "white.png")
    assert (
        run(monkeypatch, "evaluate", "--data", tmp_path / "set", "--sigma", 0, "--json", tmp_path / "o.json") == 0
    )
    assert json.loads((tmp_path / "o.json").read_text())["means"][0]["psnr"] is None


@pytest.fixture
def msr_set(photo: Path) -> Path:
    """A folder `msr` with the layout of the MSR set, of two pairs of which test.txt lists one."""
    folder = photo.parent / "msr" / "Dataset_LINEAR_with_noise" / "bayer_panasonic"
    truth = pictures.read(photo)[:, :32, :40]
    for half in ("input", "groundtruth"):
        (folder / half).mkdir(parents=True)
    for number in (1, 2):
        pictures.write(folder / "input" / f"{number}.png", cfa.mosaic(truth / number))
        pictures.write(folder / "groundtruth" / f"{number}.png", torch.cat((truth / number, truth[:1])))
    (folder / "test.txt").write_text("2\n")
    return photo.parent / "msr"


def test_evaluate_on_the_msr_set(
    msr_set: Path, photo: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Alone it is a table in two spaces; beside another set a second table, and both are in the files."""
    (msr_set.parent / "set").mkdir()
    photo.rename(msr_set.parent / "set" / "photo.png")
    monkeypatch.setenv("DEBAYES_DATA", str(msr_set.parent))
    assert run(monkeypatch, "evaluate", "--data", "msr") == 0
    alone = capsys.readouterr().out
    lines = alone.splitlines()
    assert lines[0] == "| MSR | linear PSNR / SSIM | sRGB PSNR / SSIM |"
    assert lines[2].startswith("| bilinear |") and lines[3].startswith("| wild-s |")
    assert "| *Wild-JDD, published* | *40.16 / 0.980* | *34.34 / 0.945* |" in lines
    assert "not exactly comparable" in alone
    targets = (msr_set.parent / "o.json", msr_set.parent / "o.csv")
    files = ("--json", targets[0], "--csv", targets[1])
    assert run(monkeypatch, "evaluate", "--data", "set", "msr", "--sigma", 5, *files) == 0
    first, second = capsys.readouterr().out.split("\n\n", 1)
    assert first.startswith("| PSNR dB / SSIM | set σ=5 |") and second == alone
    found = json.loads(targets[0].read_text())
    assert [row["data"] for row in found["means"]] == ["set", "set"]
    assert [(row["method"], row["name"], row["space"]) for row in found["msr"]["pictures"]] == [
        (method, "2.png", space) for method in ("bilinear", "wild-s") for space in ("linear", "sRGB")
    ]
    means = found["msr"]["means"]
    assert lines[2] == "| bilinear | " + " | ".join(f"{m['psnr']:.2f} / {m['ssim']:.4f}" for m in means[:2]) + " |"
    assert len(found["msr"]["published"]) == 22
    rows = list(csv.DictReader(targets[1].read_text().splitlines()))
    assert [row["data"] for row in rows] == ["set"] * 2 + ["msr"] * 4
    assert float(rows[2]["psnr"]) == pytest.approx(means[0]["psnr"])


def test_a_limit_on_the_msr_set(
    msr_set: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a part of the pictures nothing was published; the lists of the other sets are there, and empty."""
    (msr_set / "Dataset_LINEAR_with_noise" / "bayer_panasonic" / "test.txt").unlink()
    target = msr_set.parent / "o.json"
    assert run(monkeypatch, "evaluate", "--data", msr_set, "--limit", 1, "--json", target) == 0
    assert "published" not in capsys.readouterr().out
    found = json.loads(target.read_text())
    assert found["means"] == found["pictures"] == found["published"] == []
    assert {row["name"] for row in found["msr"]["pictures"]} == {"1.png"}


MSR_BAD_INPUT = {
    "a pattern it has not": (["--pattern", "RGGB", "GBRG"], {}, "are RGGB and cannot be scored as GBRG"),
    "a told denoiser": (["--baseline", "bilinear", "menon+bm3d"], {}, "'menon+bm3d' needs the noise level"),
    "a missing pair": ([], {"test.txt": "2\n7\n"}, "input/7.png, which is listed in test.txt"),
    "an empty list": ([], {"test.txt": ""}, "test.txt lists no pictures"),
    "no number": ([], {"test.txt": "two\n"}, "expected the number of a picture in line 1, not 'two'"),
    "a damaged truth": ([], {"groundtruth/2.png": "PNG"}, "cannot be read as PNG"),
}


@pytest.mark.parametrize("case", MSR_BAD_INPUT)
def test_bad_input_on_the_msr_set(
    case: str, msr_set: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line on stderr and exit code 2."""
    arguments, texts, message = MSR_BAD_INPUT[case]
    for name, text in texts.items():
        (msr_set / "Dataset_LINEAR_with_noise" / "bayer_panasonic" / name).write_text(text)
    assert run(monkeypatch, "evaluate", "--data", msr_set, *arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("debayes: ") and message in err and err.count("\n") == 1


def test_restore_adapts_where_noise_asks_for_it(
    photo: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A network that knows the noise is not adapted, and the answer says so; the picture is the network's."""
    run(monkeypatch, "simulate", photo, "-o", photo.parent, "--sigma", 10)
    mosaic = Path(capsys.readouterr().out.strip())
    for name, extra in (("plain", ()), ("adapted", ("--adapt", 5))):
        assert run(monkeypatch, "restore", mosaic, "-o", photo.parent / f"{name}.png", "--json", *extra) == 0
        answer = json.loads(capsys.readouterr().out)
        assert ("adapted" in answer) == (name == "adapted")
    assert answer["adapted"]["steps"] == 0 and "knows this noise" in answer["adapted"]["reason"]
    assert (photo.parent / "plain.png").read_bytes() == (photo.parent / "adapted.png").read_bytes()
    run(monkeypatch, "simulate", photo, "-o", photo.parent, "--noise", "brown", "--sigma", 15)
    mosaic = Path(capsys.readouterr().out.strip())
    run(monkeypatch, "restore", mosaic, "-o", photo.parent / "brown.png", "--json", "--adapt", 5)
    assert json.loads(capsys.readouterr().out)["adapted"]["steps"] > 0


def test_simulated_photons_have_their_gain(photo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--gain makes the variance that of the law, gain * signal."""
    run(monkeypatch, "simulate", photo, "-o", photo.parent, "--noise", "poisson", "--sigma", 0, "--gain", 0.02)
    made = pictures.read_mosaic(photo.parent / "photo.mosaic.tiff")
    clean = cfa.mosaic(pictures.read(photo))
    ratio = (made.values - clean).square().mean() / (0.02 * clean).mean()
    assert float(ratio) == pytest.approx(1, rel=0.1) and made.record["gain"] == 0.02


def test_reproduce(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """One experiment from the command line: its page and the index are there, its finding is printed."""
    monkeypatch.delenv("DEBAYES_DATA", raising=False)
    assert run(monkeypatch, "reproduce", "noise-map", "-o", tmp_path / "new", "--quick") == 0
    out = capsys.readouterr().out
    assert "correlation between the PSNR and the logarithm of the level is -0.9" in out or "is -1.0" in out
    assert (tmp_path / "new" / "noise-map.html").is_file() and (tmp_path / "new" / "index.html").is_file()


def test_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The demonstration gains at least 5 dB over interpolation and draws a picture."""
    assert run(monkeypatch, "demo", "-o", tmp_path / "new", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["psnr"]["debayes"] > answer["psnr"]["bilinear"] + 5
    assert answer["noise"]["found"] == pytest.approx(answer["noise"]["added"], rel=0.15)
    with Image.open(answer["picture"]) as picture:
        assert picture.size[0] > 1000


BAD_INPUT = {
    "a wrong pattern": (["restore", "M", "-o", "out.png", "--pattern", "RGBG"], "one of RGGB, BGGR, GRBG, GBRG"),
    "a picture as mosaic": (["restore", "color.png", "-o", "out.png"], "a mosaic (height x width) was expected"),
    "a JPEG as mosaic": (["restore", "photo.jpg", "-o", "out.png"], "lossy compression has destroyed the mosaic"),
    "not a number": (["restore", "nan.npy", "-o", "out.png"], "not numbers"),
    "an empty file": (["restore", "empty.png", "-o", "out.png"], "is empty"),
    "one photosite": (["restore", "one.npy", "-o", "out.png"], "at least 2x2 photosites"),
    "a missing file": (["restore", "gone.png", "-o", "out.png"], "there is no file"),
    "an unknown model": (["restore", "M", "-o", "out.png", "--model", "wild-x"], "wild-s"),
    "a missing folder": (["restore", "M", "-o", "no/out.png"], "does not exist"),
    "a folder as output": (["restore", "M", "-o", "folder.png"], "is a folder"),
    "an unknown ending": (["restore", "M", "-o", "out.gif"], ".gif is not one of .tiff, .tif"),
    "bits a format lacks": (["restore", "M", "-o", "out.jpg", "--bits", "16"], "8 bits per sample, not 16"),
    "a wrong tile": (["restore", "M", "-o", "out.png", "--tile", "0"], "1 or more photosites"),
    "an unknown engine": (["restore", "M", "-o", "out.png", "--engine", "turbo"], "there is no engine 'turbo'"),
    "noise of a raw": (["simulate", "color.png", "-o", "s", "--to", "dng", "--sigma", "20"], "that of its --iso"),
    "an unknown runtime": (["export", "wild-s", "-o", "a.onnx", "--to", "tflite"], "exported to onnx or ncnn"),
    "an absent device": (["restore", "M", "-o", "out.png", "--device", "tpu"], "not on this machine"),
    "levels in the wrong order": (["restore", "M", "-o", "out.png", "--white", "-1"], "must be above"),
    "negative noise": (["simulate", "color.png", "-o", "s", "--sigma", "-1"], "0 or more, not"),
    "unknown noise": (
        ["simulate", "color.png", "-o", "s", "--noise", "pink"],
        "gaussian, varying, uniform, poisson, brown",
    ),
    "an unknown format": (["simulate", "color.png", "-o", "s", "--to", "gif"], "tiff, npy, png or dng"),
    "a file as folder": (["simulate", "color.png", "-o", "photo.jpg"], "photo.jpg"),
    "an unknown set": (["evaluate", "--data", "kodak99"], "there is no folder of pictures"),
    "an unknown baseline": (["evaluate", "--data", ".", "--baseline", "ahd"], "bilinear, malvar"),
    "negative noise to judge": (["evaluate", "--data", "grey", "--sigma", "-1"], "0 or more, not -1"),
    "a grey picture to judge": (["evaluate", "--data", "grey"], "a colour picture"),
    "scores into no folder": (["evaluate", "--data", "grey", "--json", "no/o.json"], "does not exist"),
    "a set without pictures": (["evaluate", "--data", "folder.png"], "holds no pictures"),
    "the mosaic as output": (["restore", "M", "-o", "M"], "is the mosaic itself"),
    "a JPEG in disguise": (["restore", "disguise.png", "-o", "out.png"], "lossy compression"),
    "numbers of unknown range": (["restore", "wide.npy", "-o", "out.png"], "say with --white"),
    "an endless white": (["restore", "M", "-o", "out.png", "--white", "inf"], "both finite"),
    "two pictures of one name": (["simulate", "color.png", "color.png", "-o", "s"], "the same name"),
    "endless noise": (["simulate", "color.png", "-o", "s", "--sigma", "inf"], "0 or more, not inf"),
    "a demo of negative noise": (["demo", "-o", "folder.png", "--iso", "-1"], "above 0, not -1"),
    "a misspelt command": (["trian"], "No such command 'trian'"),
    "a missing argument": (["restore"], "Missing argument"),
    "a word for a number": (["evaluate", "--data", "grey", "--sigma", "much"], "Invalid value for '--sigma'"),
    "a negative time": (["train", "no.toml", "--every", "-1"], "Invalid value for '--every'"),
    "a missing recipe": (["train", "no.toml"], "there is no such recipe"),
    "a folder as recipe": (["train", "grey"], "grey is a folder"),
    "no runs": (["runs", "."], "holds no run"),
    "a store of nothing": (["tiles", "gone.png", "-o", "store"], "there is no file gone.png"),
    "a gain without photons": (
        ["simulate", "color.png", "-o", "s", "--gain", "0.1"],
        "only poisson noise has a gain",
    ),
    "a gain of nothing": (
        ["simulate", "color.png", "-o", "s", "--noise", "poisson", "--gain", "0"],
        "gain of Poisson noise must be above 0",
    ),
    "one file for both": (["evaluate", "--data", "grey", "--json", "o", "--csv", "o"], "cannot hold both"),
    "an unknown experiment": (["reproduce", "table9", "-o", "r"], "there is no experiment 'table9'"),
    "experiments into a file": (["reproduce", "mask", "-o", "color.png"], "color.png is a file"),
    "experiments without data": (["reproduce", "mask", "-o", "r", "--data", "no"], "there is no folder no"),
    "an unknown model to reproduce with": (
        ["reproduce", "mask", "-o", "grey", "-m", "wild-x"],
        "there is no model 'wild-x'",
    ),
    "fewer steps than none": (["restore", "M", "-o", "out.png", "--adapt", "-1"], "Invalid value for '--adapt'"),
    "a store that exists": (["tiles", "gone.png", "-o", "."], "exists already"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input(
    case: str, mosaic: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line on stderr, exit code 2, nothing on stdout and nothing written."""
    folder = mosaic.parent
    monkeypatch.chdir(folder)
    (folder / "folder.png").mkdir()
    (folder / "grey").mkdir()
    Image.fromarray(np.zeros((32, 32), dtype=np.uint8)).save("grey/grey.png")
    Image.fromarray(np.zeros((8, 8, 3), dtype=np.uint8)).save("color.png")
    Image.fromarray(np.zeros((8, 8), dtype=np.uint8)).save("photo.jpg")
    np.save("nan.npy", np.full((8, 8), np.nan))
    np.save("one.npy", np.zeros((1, 1)))
    np.save("wide.npy", np.zeros((8, 8), dtype=np.int64))
    Path("disguise.png").write_bytes(Path("photo.jpg").read_bytes())
    Path("empty.png").touch()
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
    arguments, message = BAD_INPUT[case]
    assert run(monkeypatch, *(mosaic if a == "M" else a for a in arguments)) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("debayes: ") and message in err and err.count("\n") == 1
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()} == before


def test_a_full_disk(mosaic: Path) -> None:
    """Where the output does not fit: one line, exit code 2, the old file unchanged, no half-written one.

    A limit on file size stops the write in the middle, as a full disk does.
    """
    output = mosaic.parent / "out.npy"
    output.write_bytes(b"an older picture")
    done = subprocess.run(
        [sys.executable, "-m", "debayes", "restore", str(mosaic), "-o", str(output), "--engine", "eager"],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)),
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"debayes: {output} could not be written: ") and done.stderr.count("\n") == 1
    assert output.read_bytes() == b"an older picture"
    assert not list(mosaic.parent.glob(".*")) and not list(mosaic.parent.glob("*.part"))


@pytest.mark.parametrize("arguments", [["--help"], *([c, "--help"] for c in ("restore", "train", "tiles", "demo"))])
def test_help_needs_no_torch(arguments: list[str]) -> None:
    """Help and import load neither torch nor NumPy: `--help` answers at once."""
    code = (
        "import sys\nimport debayes\nfrom debayes import cli\n"
        f"sys.argv = ['debayes', *{arguments!r}]\n"
        "try:\n    cli.main()\nexcept SystemExit as end:\n    assert not end.code\n"
        "heavy = {'torch', 'numpy', 'scipy', 'PIL'} & set(sys.modules)\nassert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Usage" in done.stdout


def test_version(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`debayes --version` prints the package's."""
    from debayes import __version__

    assert run(monkeypatch, "--version") == 0
    assert capsys.readouterr().out.strip() == __version__


def test_patterns_in_small_letters_and_formats_without_one(
    photo: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """gbrg is GBRG; a format that keeps no pattern says so on stderr."""
    assert run(monkeypatch, "simulate", photo, "-o", photo.parent, "--pattern", "gbrg", "--to", "npy") == 0
    assert "--pattern GBRG" in capsys.readouterr().err


def test_no_arguments_show_help(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`debayes` alone lists the commands."""
    assert run(monkeypatch) == 0
    out, err = capsys.readouterr()
    names = ("restore", "simulate", "info", "evaluate", "reproduce", "train", "tiles", "runs", "demo")
    assert all(name in out + err for name in names)
