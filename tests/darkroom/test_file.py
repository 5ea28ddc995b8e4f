"""Raw files into files: what is written, its metadata, maps, and what is rejected."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import rawpy
import tifffile
import torch
from PIL import Image
from shots import BODY, shoot

from debayes.darkroom import file, loop, rendering
from debayes.evaluation import metrics
from debayes.formats import dng, ifd, pictures, raw
from debayes.imaging import vst
from debayes.network.network import Network
from debayes.system.errors import DebayesError


def linear_of(path: Path) -> torch.Tensor:
    """The linear picture that LibRaw reads in a DNG, white = 1."""
    with rawpy.imread(str(path)) as back:
        counts = back.raw_image_visible[..., :3].astype(np.float32)
    return torch.from_numpy(counts / dng.WHITE).permute(2, 0, 1)


def steps_apart(found: torch.Tensor, expected: torch.Tensor) -> float:
    """How many steps of a DNG's curve two linear pictures differ by, at most."""
    curve = [vst.encode(picture.clamp(0, 1), torch.tensor(dng.OFFSET)) for picture in (found, expected)]
    return float((curve[0] - curve[1]).abs().max()) * (dng.STEPS - 1)


@pytest.mark.parametrize("iso", [800, 6400])
def test_the_grain_that_is_left_is_told(network: Network, iso: float) -> None:
    """The profile of the developed picture says a hundredth of the raw's variance; a grey card has about so much
    grain left, or less."""
    clean = 0.18 / torch.tensor(BODY.gains).view(3, 1, 1).expand(3, 128, 128)
    shot = shoot(clean.contiguous(), iso)
    assert shot.profile is not None
    loaded = file.LoadedRaw(Path(), Path(), shot)
    made = file.restore(network, loaded, shot.profile, file.Settings())
    picture = torch.from_numpy(made.counts.astype(np.float32) / 65535).permute(2, 0, 1)
    grain = (picture - clean)[:, 8:-8, 8:-8].square().mean((1, 2))
    told = made.remaining.variance(clean[:, 0, 0])
    assert bool((grain < 1.5 * told).all())
    assert torch.allclose(told, 0.01 * shot.profile.variance(clean[:, 0, 0]))


def test_linear_dng(network: Network, shot: Path) -> None:
    """The file holds the developed picture, its noise is told, and the truth is near."""
    target = shot.parent / "out.dng"
    answer = file.develop_file(network, shot, target)
    truth = torch.from_numpy(tifffile.imread(shot.parent / "cat.truth.tiff")).permute(2, 0, 1)
    picture = linear_of(target)
    expected = loop.develop(network, raw.read(shot)).picture
    assert steps_apart(picture, expected) < 2  # the command does what the library does; near black 16 bits count
    assert float(metrics.psnr(picture, truth)) > 33
    block = ifd.read(target.read_bytes())
    assert block is not None and 0 < block.find(51041)[0] < 0.1 * BODY.profile(3200).gain
    assert answer["profile"]["stored"] and answer["written"] == [str(target)] and answer["assumed"] == []


@pytest.mark.parametrize("strength", [0.0, 0.6])
def test_strength_in_a_file(network: Network, shot: Path, strength: float) -> None:
    """What the library keeps of the noise, the file keeps."""
    file.develop_file(network, shot, shot.parent / "out.dng", file.Settings(strength=strength))
    expected = loop.develop(network, raw.read(shot), strength=strength).picture
    assert steps_apart(linear_of(shot.parent / "out.dng"), expected) < 3


@pytest.mark.parametrize("ending", [".tiff", ".png", ".jpg"])
@pytest.mark.parametrize("space", ["srgb", "p3"])
def test_rendered(network: Network, shot: Path, ending: str, space: str) -> None:
    """The library's rendering with the exposure and the space asked for, their colour profile, and EXIF."""
    target = shot.parent / f"out{ending}"
    file.develop_file(network, shot, target, file.Settings(space=space, exposure=0.6))
    expected = loop.develop(network, raw.read(shot)).render(exposure=0.6, space=space).clamp(0, 1)
    difference = (pictures.read(target) - expected).abs()
    assert float(difference.mean()) < (0.01 if ending == ".jpg" else 1e-4)
    other = loop.develop(network, raw.read(shot)).render(exposure=0.6, space="p3" if space == "srgb" else "srgb")
    assert float((expected - other).abs().mean()) > 0.01  # so that the wrong space would be noticed
    with Image.open(target) as opened:
        assert opened.info["icc_profile"][36:40] == b"acsp"
        assert ("Display P3".encode("utf-16-be") in opened.info["icc_profile"]) == (space == "p3")
        assert opened.getexif().get_ifd(ifd.EXIF)[34855] == 3200


@pytest.mark.parametrize("quality", [40, 95])
def test_quality(network: Network, shot: Path, quality: int) -> None:
    """A JPEG has the quantisation tables of the quality asked for."""
    target, reference = shot.parent / "out.jpg", shot.parent / "reference.jpg"
    file.develop_file(network, shot, target, file.Settings(quality=quality))
    with Image.open(target) as opened:
        assert opened.format == "JPEG"
        opened.save(reference, quality=quality)
        with Image.open(reference) as other:
            assert opened.quantization == other.quantization


@pytest.mark.parametrize("ending", rendering.ENDINGS)
def test_every_ending(network: Network, shot: Path, ending: str) -> None:
    """Each of them is written as what its name says, and both cases are taken."""
    target = shot.parent / f"out{ending.upper()}"
    file.develop_file(network, str(shot), str(target))
    start = {".dng": b"II*\0", ".png": b"\x89PNG", ".jpg": b"\xff\xd8\xff", ".jpeg": b"\xff\xd8\xff"}
    assert target.read_bytes().startswith(start.get(ending, b"II*\0"))


def test_formats_have_different_endings() -> None:
    """An ending names one format; a linear DNG is the only one that is not rendered."""
    assert len(set(rendering.ENDINGS)) == len(rendering.ENDINGS)
    assert set(rendering.FORMATS) - set(rendering.RENDERED) == {"dng"}


def test_maps(network: Network, shot: Path) -> None:
    """Four more files: two maps beside the picture, each as numbers and as a plot."""
    answer = file.develop_file(network, shot, shot.parent / "out.png", file.Settings(with_maps=True))
    names = [Path(path).name for path in answer["written"]]
    assert names == ["out.png", "out.noise.tiff", "out.noise.png", "out.doubt.tiff", "out.doubt.png"]
    with tifffile.TiffFile(shot.parent / "out.noise.tiff") as stored:
        most = json.loads(stored.pages[0].description)["debayes"]["65535 is"]
        level = stored.asarray().mean() / 65535 * most
    truth = torch.from_numpy(tifffile.imread(shot.parent / "cat.truth.tiff"))
    assert level == pytest.approx(float(BODY.profile(3200).variance(truth).sqrt().mean()), rel=0.2)


def test_several_formats(network: Network, shot: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One restoration gives the files that each format alone gives; what exists is kept; the raw is safe."""
    settings = file.Settings(also=(".jpg", ".tiff", ".dng"), exposure=0.5)
    calls: list[int] = []
    restore = file.restore
    monkeypatch.setattr(file, "restore", lambda *a, **k: calls.append(1) or restore(*a, **k))
    answer = file.develop_file(network, shot, shot.parent / "out.dng", settings)
    assert calls == [1]
    assert [Path(path).name for path in answer["written"]] == ["out.dng", "out.jpg", "out.tiff"]
    for ending in (".dng", ".jpg", ".tiff"):
        file.develop_file(network, shot, shot.parent / f"alone{ending}", file.Settings(exposure=0.5))
        assert (shot.parent / f"alone{ending}").read_bytes() == (shot.parent / f"out{ending}").read_bytes()
    (shot.parent / "out.jpg").unlink()
    assert not file.is_done(shot.parent / "out.dng", settings)
    answer = file.develop_file(network, shot, shot.parent / "out.dng", replace(settings, keep=True))
    assert [Path(path).name for path in answer["written"]] == ["out.jpg"]
    assert file.is_done(shot.parent / "out.dng", settings)
    with pytest.raises(DebayesError, match="is the raw itself"):
        file.develop_file(network, shot, shot.with_suffix(".jpg"), file.Settings(also=(".dng",)))
    with pytest.raises(DebayesError, match=r"not as \.gif"):
        file.develop_file(network, shot, shot.parent / "out.dng", file.Settings(also=(".gif",)))


def test_before(network: Network, shot: Path) -> None:
    """The picture without denoising: as bright as the developed one, noisier, in each rendered format."""
    settings = file.Settings(before=True, also=(".png", ".jpg"), exposure=0.5)
    answer = file.develop_file(network, shot, shot.parent / "out.dng", settings)
    names = [Path(path).name for path in answer["written"]]
    assert names == ["out.dng", "out.png", "out.jpg", "out.before.png", "out.before.jpg"]
    before, after = (pictures.read(shot.parent / f"out{kind}.png") for kind in (".before", ""))
    assert before.shape == after.shape
    # noise on a concave curve is a little darker on average, in blue most
    assert float((before.mean((1, 2)) - after.mean((1, 2))).abs().max()) < 0.03
    steps = [float(picture.diff(dim=2).square().mean()) for picture in (before, after)]
    assert steps[0] > 1.5 * steps[1]
    with Image.open(shot.parent / "out.before.jpg") as opened:
        assert opened.getexif().get_ifd(ifd.EXIF)[34855] == 3200
    (shot.parent / "out.before.png").unlink()
    assert not file.is_done(shot.parent / "out.dng", settings)
    answer = file.develop_file(network, shot, shot.parent / "out.dng", replace(settings, keep=True))
    assert [Path(path).name for path in answer["written"]] == ["out.before.png"]
    alone = file.develop_file(network, shot, shot.parent / "alone.dng", file.Settings(before=True))
    assert [Path(path).name for path in alone["written"]] == ["alone.dng", "alone.before.jpg"]


def test_adapt_leaves_known_noise_alone(network: Network, shot: Path) -> None:
    """A raw like those of the training needs no adapting."""
    answer = file.develop_file(network, shot, shot.parent / "out.dng", file.Settings(adapt=5))
    assert answer["adapted"]["steps"] == 0


@pytest.mark.skipif(shutil.which("exiftool") is None, reason="exiftool is not on this machine")
def test_exiftool_copies(network: Network, shot: Path) -> None:
    """With exiftool, captions travel as well."""
    import subprocess

    subprocess.run(["exiftool", "-q", "-overwrite_original", "-XMP:Title=A cat", str(shot)], check=True)
    target = shot.parent / "out.dng"
    file.develop_file(network, shot, target)
    title = subprocess.run(
        ["exiftool", "-s3", "-XMP:Title", str(target)], check=True, capture_output=True, text=True
    )
    assert title.stdout.strip() == "A cat"
    with rawpy.imread(str(target)) as back:
        assert back.raw_image_visible.shape[:2] == (127, 151)


def test_black_is_what_the_library_says(network: Network, tmp_path: Path) -> None:
    """A frame without light: values below black are kept until the brightness is right, then cut off."""
    counts = BODY.shoot(torch.zeros(3, 64, 96), "RGGB", 6400, generator=torch.Generator().manual_seed(0))
    source = replace(shoot(torch.zeros(3, 64, 96), 6400), camera="Maker One")
    blank = np.zeros((8, 8, 3), np.uint8)
    dark = tmp_path / "dark.dng"
    dng.write_mosaic(
        dark, counts.numpy().astype(np.uint16), source, black=BODY.black, white=BODY.white, preview=blank
    )
    file.develop_file(network, dark, tmp_path / "out.dng")
    expected = loop.develop(network, raw.read(dark)).picture
    assert steps_apart(linear_of(tmp_path / "out.dng"), expected) < 2


@pytest.mark.parametrize("strength", [0.0, 0.5, 1.0])
def test_shadows_keep_their_brightness_with_their_grain(network: Network, tmp_path: Path, strength: float) -> None:
    """Half of the noise of a nearly black card is below black, where no DNG has room that all programs know of: it
    fades, so that the mean is that of the mosaic, in every colour, to a hundredth of the noise."""
    light = torch.tensor([0.002, 0.004, 0.003]).view(3, 1, 1).expand(3, 128, 192)
    card = shoot(light, 25600)
    dark = tmp_path / "dark.dng"
    counts = (BODY.black + card.mosaic[0] * (BODY.white - BODY.black)).round().numpy().astype(np.uint16)
    blank = np.zeros((8, 8, 3), np.uint8)
    dng.write_mosaic(dark, counts, card, black=BODY.black, white=BODY.white, preview=blank)
    file.develop_file(network, dark, tmp_path / "out.dng", file.Settings(strength=strength))
    found = linear_of(tmp_path / "out.dng").double()
    planes = [card.mosaic[0, i // 2 :: 2, i % 2 :: 2] for i in range(4)]
    measured = [float(planes[0].mean()), float(planes[1].mean() + planes[2].mean()) / 2, float(planes[3].mean())]
    noise = BODY.profile(25600).floor ** 0.5
    assert found.mean((1, 2)).tolist() == pytest.approx(measured, abs=0.01 * noise)


def test_refusals(network: Network, shot: Path) -> None:
    """The raw itself is never overwritten; what cannot be done is known before the raw is read."""
    with pytest.raises(ValueError, match="is the raw itself"):
        file.develop_file(network, shot, shot)
    with pytest.raises(ValueError, match="strength is from 0"):
        file.develop_file(network, shot, shot.parent / "out.dng", file.Settings(strength=1.5))
    for stops in (float("nan"), 100.0):
        with pytest.raises(ValueError, match="at most 10 stops"):
            file.develop_file(network, shot, shot.parent / "out.png", file.Settings(exposure=stops))
    with pytest.raises(FileNotFoundError, match="does not exist"):
        file.develop_file(network, shot, shot.parent / "no" / "out.dng")
    for wrong, words in (
        ({"space": "adobe"}, "one of srgb, p3, not 'adobe'"),
        ({"quality": 100}, "from 1 to 99, not 100"),
        ({"adapt": -1}, "0 or more steps"),
        ({"tile": 0}, "1 or more photosites"),
        ({"pattern": "RGBW"}, "RGGB"),
    ):
        with pytest.raises(ValueError, match=words):
            file.Settings(**wrong)
    for ending in (".gif", ".npy", ""):
        with pytest.raises(DebayesError, match=r"written as .dng, .tiff, .tif, .png, .jpg, .jpeg, not as"):
            file.develop_file(network, shot, shot.parent / f"out{ending}")
    assert [path.name for path in shot.parent.iterdir() if path.name.startswith("out")] == []


def test_steps(network: Network, shot: Path) -> None:
    """Nothing is written before the last step; the noise is estimated in a step of its own."""
    target = shot.parent / "out.png"
    loaded = file.read(shot, target, file.Settings())
    assert file.estimate(loaded) == BODY.profile(3200)
    blind = replace(loaded, raw=replace(loaded.raw, profile=None))
    assert file.estimate(blind) != BODY.profile(3200)
    settings = file.Settings(with_maps=True)
    developed = file.restore(network, loaded, file.estimate(loaded), settings)
    encoded = file.encode(developed, settings)
    names = [path.name for path, _ in encoded.files]
    assert names == ["out.noise.tiff", "out.noise.png", "out.doubt.tiff", "out.doubt.png", "out.png"]
    assert not any(path.exists() for path, _ in encoded.files)
    assert file.save(encoded)["written"][0] == str(target)
    assert all(path.exists() for path, _ in encoded.files) and file.is_done(target, settings)


def test_decisions_are_logged(network: Network, shot: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The log says what shapes a picture: noise profile, exposure, levels."""
    with caplog.at_level("INFO", logger="debayes"):
        file.develop_file(network, shot, shot.parent / "out.png", file.Settings(exposure=0.5))
    words = caplog.text
    assert "noise profile stored in the file" in words and "rendered in srgb with +0.5 stops" in words
    assert "GBRG" in words and "white balance" in words
