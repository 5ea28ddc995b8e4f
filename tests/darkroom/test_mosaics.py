"""Mosaic files: restored as the library restores them, with maps as `develop` writes them."""

import json
from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
from PIL import Image

from debayes.darkroom import mosaics
from debayes.engine import prepare
from debayes.evaluation import scenes
from debayes.formats import pictures
from debayes.imaging import cfa
from debayes.network import weights
from debayes.network.network import Network
from debayes.restoration import restore
from debayes.system.errors import DebayesError


@pytest.fixture(scope="module")
def wild() -> Network:
    """The small network for mosaics of sRGB values."""
    return weights.load("wild-s")


@pytest.fixture
def mosaic(tmp_path: Path) -> Path:
    """The noisy mosaic of a photograph."""
    pictures.write(tmp_path / "cat.png", scenes.photograph("chelsea")[:, 60:130, 90:190], bits=8)
    mosaics.simulate_file(tmp_path / "cat.png", tmp_path / "cat.tiff", pattern="GRBG", sigma=20)
    return tmp_path / "cat.tiff"


@pytest.mark.parametrize(("name", "bits"), [("a.tiff", 32), ("a.tiff", 16), ("a.tiff", 8), ("a.png", 16)])
def test_restored(wild: Network, mosaic: Path, name: str, bits: int) -> None:
    """The mean of `restore`, quantised as the file holds it, and the mean noise."""
    answer = mosaics.restore_file(wild, str(mosaic), str(mosaic.parent / name), bits=bits, tile=50)
    expected = restore(wild, pictures.read_mosaic(mosaic).values, "GRBG", tile=50)
    found = pictures.read(mosaic.parent / name)
    assert torch.equal(found, expected.mean) or bits < 32
    assert torch.allclose(found, expected.mean.clamp(0, 1), atol=0.51 / (2.0**bits - 1)) or bits == 32
    assert (
        answer["pattern"] == "GRBG" and not answer["assumed"] and answer["written"] == [str(mosaic.parent / name)]
    )
    assert answer["sigma"] == pytest.approx(255 * float(expected.noise_variance.sqrt().mean()), rel=1e-4)


def test_maps_are_those_of_develop(wild: Network, mosaic: Path) -> None:
    """Noise and doubt as 16-bit TIFFs that say what 65535 is, and as plots; doubt is the smaller."""
    target = mosaic.parent / "out.png"
    answer = mosaics.restore_file(wild, mosaic, target, maps=True)
    names = ["out.png", "out.noise.tiff", "out.noise.png", "out.doubt.tiff", "out.doubt.png"]
    assert [Path(path).name for path in answer["written"]] == names
    expected = restore(wild, pictures.read_mosaic(mosaic).values, "GRBG")
    for kind, truth in (("noise", expected.noise_variance), ("doubt", expected.mean_variance)):
        with tifffile.TiffFile(mosaic.parent / f"out.{kind}.tiff") as stored:
            record = json.loads(stored.pages[0].description)["debayes"]
            numbers = stored.asarray()
        assert numbers.dtype == np.uint16 and record["map"] == kind and record["source"] == "cat.tiff"
        found = torch.from_numpy(numbers / 65535 * record["65535 is"]).float().permute(2, 0, 1)
        assert torch.allclose(found, truth.sqrt(), rtol=2e-3, atol=1e-4)
        with Image.open(mosaic.parent / f"out.{kind}.png") as plot:
            assert plot.mode == "RGB"


def test_engines_are_adapted_too(wild: Network, mosaic: Path) -> None:
    """The answer says how many steps were made and why it stopped; the engine stays the same."""
    answer = mosaics.restore_file(prepare(wild, "eager"), mosaic, mosaic.parent / "out.png", adapt=2)
    assert answer["adapted"]["steps"] == 0 and "knows this noise" in answer["adapted"]["reason"]


def camera_counts() -> np.ndarray:
    """A dark linear shot before white balance, with photon noise, in counts of 12 bits above a black of 60."""
    picture = scenes.photograph("chelsea")[:, :240, :240] ** 2.2 / 3
    signal = cfa.mosaic(picture / torch.tensor([2.4, 1.0, 1.8]).view(3, 1, 1))
    deviation = (1e-4 * signal + 1e-7).sqrt()
    noisy = signal + deviation * torch.randn(signal.shape, generator=torch.Generator().manual_seed(0))
    return (60 + 4035 * noisy[0]).round().clamp(0, 4095).numpy().astype(np.uint16)


def test_a_cameras_mosaic_is_warned_about(wild: Network, tmp_path: Path) -> None:
    """A network for sRGB values leaves its noise: the warning names the command for it."""
    np.save(tmp_path / "counts.npy", camera_counts())
    with pytest.warns(UserWarning, match="looks like a camera's.*`debayes develop`"):
        mosaics.restore_file(wild, tmp_path / "counts.npy", tmp_path / "a.png", black=60, white=4095)


def test_counts_without_levels_are_warned_about(wild: Network, tmp_path: Path) -> None:
    """In a 16-bit file they are far below white; with the levels they are not."""
    np.save(tmp_path / "counts.npy", np.arange(60, 60 + 24 * 32, dtype=np.uint16).reshape(24, 32))
    with pytest.warns(UserWarning, match=r"largest value is 1\.3 % of white.*--black, --white"):
        mosaics.restore_file(wild, tmp_path / "counts.npy", tmp_path / "a.png")
    mosaics.restore_file(wild, tmp_path / "counts.npy", tmp_path / "a.png", black=60, white=1023)


def test_rejected(wild: Network, mosaic: Path) -> None:
    """Neither the picture nor a map may replace the mosaic; the noise is one of those there are."""
    with pytest.raises(DebayesError, match="is the mosaic itself"):
        mosaics.restore_file(wild, mosaic, mosaic)
    noise = mosaic.with_name("x.noise.tiff")
    noise.write_bytes(mosaic.read_bytes())
    with pytest.raises(DebayesError, match="is the mosaic itself"):
        mosaics.restore_file(wild, noise, mosaic.parent / "x.png", maps=True)
    with pytest.raises(DebayesError, match="the noise is one of"):
        mosaics.simulate_file(mosaic.parent / "cat.png", mosaic.parent / "out.tiff", kind="pink")
    with pytest.raises(DebayesError, match="only poisson noise has a gain"):
        mosaics.simulate_file(mosaic.parent / "cat.png", mosaic.parent / "out.tiff", gain=0.1)
