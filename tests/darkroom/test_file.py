"""Developing: pictures against the truth of a virtual camera, brightness, highlights, files and their metadata."""

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

from debayes.darkroom import file as darkroom_file
from debayes.darkroom import loop, mosaics
from debayes.evaluation import metrics, scenes
from debayes.formats import dng, ifd, pictures, raw
from debayes.formats.raw import Raw
from debayes.imaging import cfa, color, noise_profile, virtual_camera, vst
from debayes.network import weights
from debayes.network.network import Network

BODY = virtual_camera.Body()


@pytest.fixture(scope="module")
def network() -> Network:
    """The small network for raws."""
    return weights.load("raw-s")


def shoot(clean: torch.Tensor, iso: float, pattern: str = "RGGB", seed: int = 0, *, told: bool = True) -> Raw:
    """A raw of what the sensor sees, told its noise or not."""
    counts = BODY.shoot(clean, pattern, iso, generator=torch.Generator().manual_seed(seed))
    mosaic = (counts[None] - BODY.black).float() / (BODY.white - BODY.black)
    return Raw(mosaic, pattern, BODY.gains, BODY.matrix, profile=BODY.profile(iso) if told else None)


def photograph(size: int = 192) -> torch.Tensor:
    """What the sensor sees of a free photograph."""
    return BODY.expose(scenes.photograph("chelsea")[:, 60 : 60 + size, 90 : 90 + size])


@pytest.fixture
def shot(tmp_path: Path) -> Path:
    """A simulated raw in a file, with its truth beside it."""
    pictures.write(tmp_path / "cat.png", scenes.photograph("chelsea")[:, 60:187, 90:241], bits=8)
    mosaics.simulate_raw(tmp_path / "cat.png", tmp_path / "cat.dng", iso=3200, pattern="GBRG")
    return tmp_path / "cat.dng"


@pytest.mark.parametrize("pattern", cfa.PATTERNS)
@pytest.mark.parametrize(("iso", "gain"), [(400, 2.0), (6400, 4.0)])
def test_nearer_to_the_truth(network: Network, pattern: str, iso: float, gain: float) -> None:
    """Far nearer than an interpolated raw, whatever the pattern, in linear light, not told the noise."""
    clean = photograph()
    source = shoot(clean, iso, pattern, told=False)
    developed = loop.develop(network, source)
    plain = cfa.interpolate(source.mosaic[None], pattern)[0]
    assert float(metrics.psnr(developed.picture, clean)) > float(metrics.psnr(plain, clean)) + gain


def test_noise_map_is_the_noise(network: Network) -> None:
    """The noise map has the standard deviation that the virtual camera gave the photosites, in each colour."""
    clean = BODY.expose(torch.full((3, 128, 128), 0.5))
    developed = loop.develop(network, shoot(clean, 6400))
    truth = BODY.profile(6400).variance(clean).sqrt()
    assert torch.allclose(developed.noise.mean((1, 2)), truth.mean((1, 2)), rtol=0.15)
    assert bool((developed.doubt < developed.noise).all()) and float(developed.doubt.min()) > 0


@pytest.mark.parametrize("iso", [400, 6400])
def test_error_bars_hold_the_truth(network: Network, iso: float) -> None:
    """In linear light about 80 % of the true values lie in the 80 % intervals, and the picture in nearly all."""
    clean = BODY.expose(scenes.photograph("astronaut")[:, 40:232, 100:356])
    developed = loop.develop(network, shoot(clean, iso), level=0.8)
    assert developed.interval is not None
    low, high = developed.interval
    assert 0.7 < float(((low <= clean) & (clean <= high)).float().mean()) < 0.9
    assert float(((low <= developed.picture) & (developed.picture <= high)).float().mean()) > 0.99
    assert loop.develop(network, shoot(clean[:, :32, :32], iso)).interval is None
    blown = loop.develop(network, shoot(8 * clean, iso), level=0.8)
    assert blown.interval is not None
    white = blown.picture > 0.999
    assert float(white.float().mean()) > 0.1 and bool((blown.interval[1][white] > 0.999).all())
    with pytest.raises(ValueError, match="between 0 and 1, not 90"):
        loop.develop(network, shoot(clean, iso), level=90)


@pytest.mark.parametrize("iso", [800, 6400])
def test_the_grain_that_is_left_is_told(network: Network, iso: float) -> None:
    """The profile of the developed picture says a hundredth of the raw's variance; a grey card has about so much
    grain left, or less."""
    clean = 0.18 / torch.tensor(BODY.gains).view(3, 1, 1).expand(3, 128, 128)
    shot = shoot(clean.contiguous(), iso)
    assert shot.profile is not None
    made = darkroom_file.develop(
        network, darkroom_file.Negative(Path(), Path(), shot, shot.profile), darkroom_file.Settings()
    )
    picture = torch.from_numpy(made.counts.astype(np.float32) / 65535).permute(2, 0, 1)
    grain = (picture - clean)[:, 8:-8, 8:-8].square().mean((1, 2))
    told = made.left.variance(clean[:, 0, 0])
    assert bool((grain < 1.5 * told).all())
    assert torch.allclose(told, 0.01 * shot.profile.variance(clean[:, 0, 0]))


@pytest.mark.parametrize("iso", [400, 1600, 6400])
@pytest.mark.parametrize("grey", [0.12, 0.4, 0.7])
def test_brightness_is_kept(network: Network, grey: float, iso: float) -> None:
    """No free gain: of a grey card every colour has the mean of its photosites to a thousandth."""
    raw = shoot(BODY.expose(torch.full((3, 512, 512), grey)), iso)
    red, green, green2, blue = cfa.pack(raw.mosaic).mean((1, 2))
    measured = torch.stack((red, (green + green2) / 2, blue))
    assert torch.allclose(loop.develop(network, raw).picture.mean((1, 2)), measured, rtol=1e-3)


def test_shadows_have_no_cast(network: Network) -> None:
    """A dark grey in deep noise stays grey: a* and b* within 0.3 of none."""
    clean = BODY.expose(torch.full((3, 512, 512), 0.12))
    developed = loop.develop(network, shoot(clean, 6400))
    balanced = developed.picture.mean((1, 2)) * torch.tensor(BODY.gains)
    xyz = color.XYZ_FROM_SRGB.float() @ color.from_camera(BODY.matrix) @ balanced
    white = color.XYZ_FROM_SRGB.float().sum(1)
    share = xyz / white
    root = torch.where(share > 0.008856, share.clamp_min(1e-9) ** (1 / 3), 7.787 * share + 16 / 116)
    assert abs(float(500 * (root[0] - root[1]))) < 0.3 and abs(float(200 * (root[1] - root[2]))) < 0.3


def highlight() -> tuple[torch.Tensor, torch.Tensor]:
    """A blown light, soft as lenses make it, on grey: the light, and the distance from its middle."""
    y, x = torch.meshgrid(torch.arange(192), torch.arange(192), indexing="ij")
    away = ((y - 96) ** 2 + (x - 96) ** 2).sqrt()
    spot = 3 * torch.sigmoid((40 - away) / 1.5) / torch.tensor(BODY.gains).view(3, 1, 1)
    return BODY.expose(torch.full((3, 192, 192), 0.5)) + spot, away


def test_blown_highlights_are_white(network: Network) -> None:
    """A blown light is white in the camera's colours, so that no reader tints it, and white when rendered."""
    light, away = highlight()
    developed = loop.develop(network, shoot(light, 1600))
    assert bool((developed.picture[:, away < 34] >= 1).all())
    shown = developed.render()
    assert float(shown[:, away < 34].min()) == pytest.approx(1, abs=1e-3)
    assert float((shown.amax(0) - shown.amin(0)).max()) < 0.12  # no violet rim either


def test_no_noise_is_left_around_a_highlight(network: Network) -> None:
    """Next to a blown light the noise goes as it does elsewhere."""
    light, away = highlight()
    developed = loop.develop(network, shoot(light, 1600))
    noise = BODY.profile(1600).variance(light[:, 0, 0]).sqrt()
    left = developed.picture[:, (away > 60) & (away < 90)].std(1)
    assert bool((left < 0.15 * noise).all())


def test_saturation_below_white_is_white_too(network: Network) -> None:
    """Where the sensor ends before the white level, blown is still white."""
    source = shoot(photograph(96), 400)
    blown = replace(source, mosaic=source.mosaic.clone(), saturation=0.9)
    blown.mosaic[:, 20:60, 20:60] = 0.9
    assert float(loop.develop(network, blown).picture[:, 24:56, 24:56].min()) >= 1


def test_strength(network: Network) -> None:
    """At 0 every photosite keeps its value, noise and all; in between the noise is in between. But where a picture
    is darker than twice its noise, grain fades."""
    source = shoot(photograph(), 6400)
    whole, half, none = (loop.develop(network, source, strength=s).picture for s in (1.0, 0.5, 0.0))
    light = whole > 2 * BODY.profile(6400).variance(whole).sqrt()
    assert 0.9 < float(light.float().mean()) < 1
    seen = cfa.mosaic(light.float()) > 0
    assert torch.allclose(cfa.mosaic(none)[seen], source.mosaic[seen], atol=1e-4)
    assert torch.allclose(half[light], ((whole + none) / 2)[light], atol=1e-4)
    assert float((none - whole)[~light].abs().mean()) < float((none - whole)[light].abs().mean())


@pytest.mark.parametrize(("tile", "error"), [(64, 1e-4), (40, 5e-4)])
def test_tiles_are_the_whole(network: Network, tile: int, error: float) -> None:
    """Small tiles give the picture of one large one; highlights weigh a little otherwise where a cell is cut."""
    source = shoot(photograph(150), 1600)
    whole, tiled = (loop.develop(network, source, tile=t).picture for t in (512, tile))
    assert torch.allclose(whole, tiled, atol=error)


def test_variance_through_the_bridge() -> None:
    """The variance that adapting is told is that of noise sent through the curve, in each colour."""
    source = shoot(BODY.expose(torch.full((3, 400, 400), 0.5)), 6400)
    encoded = cfa.pack(loop.enter(source, BODY.profile(6400)))[[0, 1, 3]]
    mean = encoded.mean((1, 2), keepdim=True)
    told = loop.encoded_variance(source, BODY.profile(6400), mean.expand(3, 2, 2))
    assert torch.allclose(told[:, 0, 0], encoded.var((1, 2)), rtol=0.05)


@pytest.mark.parametrize("iso", [100, 400, 1600, 6400, 25600])
def test_profile_is_found(iso: float) -> None:
    """Blind, from one large and mostly dark mosaic: gain and floor within 10 % of the truth."""
    tall = scenes.photograph("chelsea").repeat(1, 4, 4)
    ramp = torch.linspace(0.02, 1, tall.shape[2]) ** 2
    found = noise_profile.estimate(shoot(BODY.expose(tall * ramp), iso).mosaic, white=1.0)
    truth = BODY.profile(iso)
    assert found.gain == pytest.approx(truth.gain, rel=0.1)
    assert found.floor == pytest.approx(truth.floor, rel=0.1)


def linear_of(path: Path) -> torch.Tensor:
    """The linear picture that LibRaw reads in a DNG, white = 1."""
    with rawpy.imread(str(path)) as back:
        counts = back.raw_image_visible[..., :3].astype(np.float32)
    return torch.from_numpy(counts / dng.WHITE).permute(2, 0, 1)


def steps_apart(found: torch.Tensor, expected: torch.Tensor) -> float:
    """How many steps of a DNG's curve two linear pictures differ by, at most."""
    curve = [vst.encode(picture.clamp(0, 1), torch.tensor(dng.OFFSET)) for picture in (found, expected)]
    return float((curve[0] - curve[1]).abs().max()) * (dng.STEPS - 1)


def test_linear_dng(network: Network, shot: Path) -> None:
    """The file holds the developed picture, its noise is told, and the truth is near."""
    target = shot.parent / "out.dng"
    answer = darkroom_file.develop_file(network, shot, target)
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
    darkroom_file.develop_file(network, shot, shot.parent / "out.dng", darkroom_file.Settings(strength=strength))
    expected = loop.develop(network, raw.read(shot), strength=strength).picture
    assert steps_apart(linear_of(shot.parent / "out.dng"), expected) < 3


@pytest.mark.parametrize("ending", [".tiff", ".png", ".jpg"])
@pytest.mark.parametrize("space", ["srgb", "p3"])
def test_rendered(network: Network, shot: Path, ending: str, space: str) -> None:
    """Upright pictures with a colour profile and EXIF."""
    target = shot.parent / f"out{ending}"
    darkroom_file.develop_file(network, shot, target, darkroom_file.Settings(space=space))
    shown = pictures.read(target)
    assert shown.shape == (3, 127, 151) and 0.2 < float(shown.mean()) < 0.6
    with Image.open(target) as opened:
        assert opened.info["icc_profile"][36:40] == b"acsp"
        assert opened.getexif().get_ifd(ifd.EXIF)[34855] == 3200


@pytest.mark.parametrize("number", range(1, 9))
def test_upright(number: int) -> None:
    """EXIF's eight orientations, against Pillow's way to turn them."""
    picture = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
    source = Raw(torch.zeros(1, 4, 6), "RGGB", BODY.gains, BODY.matrix, orientation=number)
    from PIL import ImageOps

    reference = Image.fromarray(picture)
    reference.getexif()[274] = number
    assert np.array_equal(darkroom_file._upright(picture, source), np.asarray(ImageOps.exif_transpose(reference)))


def test_maps_and_crop(network: Network, shot: Path) -> None:
    """Maps beside the picture, four files more; a maker's crop is cut out of what is rendered."""
    answer = darkroom_file.develop_file(
        network, shot, shot.parent / "out.png", darkroom_file.Settings(with_maps=True)
    )
    names = [Path(path).name for path in answer["written"]]
    assert names == ["out.png", "out.noise.tiff", "out.noise.png", "out.doubt.tiff", "out.doubt.png"]
    with tifffile.TiffFile(shot.parent / "out.noise.tiff") as file:
        most = json.loads(file.pages[0].description)["debayes"]["65535 is"]
        level = file.asarray().mean() / 65535 * most
    truth = torch.from_numpy(tifffile.imread(shot.parent / "cat.truth.tiff"))
    assert level == pytest.approx(float(BODY.profile(3200).variance(truth).sqrt().mean()), rel=0.2)
    cut = darkroom_file._upright(np.zeros((10, 12, 3)), replace(raw.read(shot), crop=(1, 2, 5, 6), orientation=6))
    assert cut.shape == (6, 5, 3)


def test_adapt_leaves_known_noise_alone(network: Network, shot: Path) -> None:
    """A raw like those of the training needs no adapting."""
    answer = darkroom_file.develop_file(network, shot, shot.parent / "out.dng", darkroom_file.Settings(adapt=5))
    assert answer["adapted"]["steps"] == 0


@pytest.mark.skipif(shutil.which("exiftool") is None, reason="exiftool is not on this machine")
def test_exiftool_copies(network: Network, shot: Path) -> None:
    """With exiftool, captions travel as well."""
    import subprocess

    subprocess.run(["exiftool", "-q", "-overwrite_original", "-XMP:Title=A cat", str(shot)], check=True)
    target = shot.parent / "out.dng"
    darkroom_file.develop_file(network, shot, target)
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
    darkroom_file.develop_file(network, dark, tmp_path / "out.dng")
    expected = loop.develop(network, raw.read(dark)).picture
    assert steps_apart(linear_of(tmp_path / "out.dng"), expected) < 2


@pytest.mark.parametrize("iso", [400, 6400])
def test_blind_noise_of_a_simulated_raw(tmp_path: Path, iso: float) -> None:
    """Gain and floor are found to 15 % from the mosaic and the masked photosites of one file."""
    pictures.write(tmp_path / "scene.png", scenes.wallpaper(1000, 1400), bits=8)
    mosaics.simulate_raw(tmp_path / "scene.png", tmp_path / "scene.dng", iso=iso)
    found = loop.noise_of(replace(raw.read(tmp_path / "scene.dng"), profile=None))
    truth = BODY.profile(iso)
    assert found.gain == pytest.approx(truth.gain, rel=0.15)
    assert found.floor == pytest.approx(truth.floor, rel=0.15)


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
    darkroom_file.develop_file(network, dark, tmp_path / "out.dng", darkroom_file.Settings(strength=strength))
    found = linear_of(tmp_path / "out.dng").double()
    planes = [card.mosaic[0, i // 2 :: 2, i % 2 :: 2] for i in range(4)]
    measured = [float(planes[0].mean()), float(planes[1].mean() + planes[2].mean()) / 2, float(planes[3].mean())]
    noise = BODY.profile(25600).floor ** 0.5
    assert found.mean((1, 2)).tolist() == pytest.approx(measured, abs=0.01 * noise)


def test_refusals(network: Network, shot: Path) -> None:
    """The raw itself is never overwritten; a strength is a share."""
    with pytest.raises(ValueError, match="is the raw itself"):
        darkroom_file.develop_file(network, shot, shot)
    with pytest.raises(ValueError, match="strength is from 0"):
        darkroom_file.develop_file(network, shot, shot.parent / "out.dng", darkroom_file.Settings(strength=1.5))
    for stops in (float("nan"), 100.0):
        with pytest.raises(ValueError, match="at most 10 stops"):
            darkroom_file.develop_file(
                network, shot, shot.parent / "out.png", darkroom_file.Settings(exposure=stops)
            )
    with pytest.raises(FileNotFoundError, match="does not exist"):
        darkroom_file.develop_file(network, shot, shot.parent / "no" / "out.dng")


def test_describe(shot: Path) -> None:
    """What `info` says of a raw."""
    facts = darkroom_file.describe(shot, "raw-s", "cpu")
    assert facts["size"] == "151x127" and facts["pattern"] == "GBRG" and facts["shot"]["iso"] == 3200
    assert facts["noise"]["source"] == "stored in the file" and facts["model"] == "raw-s"
    assert facts["estimated_seconds"] >= 0


@pytest.mark.parametrize("step", [1, 2, 3, 6])
def test_preview(step: int) -> None:
    """Of a picture of plain squares, each becomes one pixel, whatever is left over at its borders."""
    squares = np.random.default_rng(0).integers(0, 65536, (40, 50, 3)).astype(np.uint16)
    counts = np.pad(squares.repeat(step, 0).repeat(step, 1), ((0, step - 1), (0, step - 1), (0, 0)))
    raw = shoot(torch.zeros(3, 8, 8), 400)
    expected = darkroom_file._render(squares, raw, 0.0, "srgb", 8)
    np.testing.assert_allclose(darkroom_file._preview(counts, raw, 0.0, step).astype(int), expected, atol=1)
