"""What is accepted as a mosaic, a network and a raw; what is rejected, in which words; what is warned about."""

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from networks import untrained
from torch import Tensor

import debayes
from debayes.evaluation import scenes
from debayes.formats.raw import Raw
from debayes.imaging import cfa, noise
from debayes.network import weights
from debayes.network.config import Config
from debayes.network.network import Network
from debayes.restoration import adaptation, arrays, restore, restore_image, restore_tiles
from debayes.system.errors import DebayesError

TINY = Config(widths=(8,), blocks=1, bottom_blocks=1, tail=4, tail_blocks=0)
VALUES = np.random.default_rng(0).random((20, 26))


@pytest.fixture(scope="module")
def network() -> Network:
    return untrained(TINY)


@pytest.mark.parametrize(
    "mosaic",
    [
        VALUES,
        VALUES[None],
        VALUES.astype(np.float32),
        VALUES.astype(">f4"),
        np.asfortranarray(VALUES),
        np.pad(VALUES, 1)[1:-1, 1:-1],
        torch.from_numpy(VALUES),
        torch.from_numpy(VALUES)[None].float(),
    ],
    ids=["float64", "channel", "float32", "big-endian", "Fortran order", "a view", "tensor", "tensor with channel"],
)
def test_every_array_gives_the_same_posterior(mosaic: Any, network: Network) -> None:
    """NumPy or PyTorch, any float type and memory layout, with or without the axis of the channel."""
    expected = restore(network, torch.from_numpy(VALUES)[None].float(), "GRBG")
    posterior = restore(network, mosaic, "GRBG")
    assert posterior.mean.shape == (3, 20, 26)
    torch.testing.assert_close(posterior.mean.float(), expected.mean, rtol=0, atol=1e-6)
    torch.testing.assert_close(posterior.noise_variance.float(), expected.noise_variance, rtol=1e-5, atol=0)


def test_all_functions_take_arrays(network: Network) -> None:
    """`restore_image`, `restore_tiles` and `adapt` as well, and batches."""
    values = VALUES.astype(np.float32)
    expected = restore(network, values).mean
    assert torch.equal(restore_image(network, values), expected)
    ((_, _, posterior),) = restore_tiles(network, values)
    assert torch.equal(posterior.mean, expected)
    batch = restore_image(network, np.stack([values[None]] * 2))
    torch.testing.assert_close(batch[1], expected, rtol=0, atol=1e-5)
    large = np.random.default_rng(1).random((48, 48)).astype(np.float32)
    adapted = adaptation.adapt(network, large, steps=1, side=32, whole=True)
    again = adaptation.adapt(network, torch.from_numpy(large)[None], steps=1, side=32, whole=True)
    assert adapted.curve == again.curve


def test_a_read_only_array(network: Network) -> None:
    """Such as NumPy's memory maps: no warning of PyTorch's comes through."""
    values = VALUES.astype(np.float32)
    values.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        restore(network, values)


@pytest.mark.parametrize(
    ("mosaic", "words"),
    [
        ([[0.1, 0.2], [0.3, 0.4]], "not a list: numpy.asarray"),
        ("photo.NEF", "not 'photo.NEF': read a camera raw with debayes.read"),
        (Path("photo.NEF"), "not 'photo.NEF'"),
        (None, "not a NoneType"),
        (Raw(torch.zeros(1, 4, 4), "RGGB", (1, 1, 1), torch.eye(3)), "debayes.develop(network, raw)"),
        (np.zeros((4, 4), complex), "real numbers, not complex128"),
        (torch.zeros(4, 4, dtype=torch.complex64), "real numbers, not torch.complex64"),
        (np.zeros((4, 4), object), "real numbers, not object"),
        (np.zeros((4, 4), bool), "real numbers, not bool"),
        (torch.zeros(4, 4, dtype=torch.bool), "real numbers, not torch.bool"),
        (np.zeros((4, 4), "U3"), "real numbers, not <U3"),
        (np.zeros(4), r"the shape (h, w) or (1, h, w), not (4,)"),
        (np.zeros((4, 5, 3)), "not (4, 5, 3): this is a colour picture; debayes.mosaic"),
        (np.zeros((3, 4, 5)), "this is a colour picture"),
        (np.zeros((4, 5, 1)), "the channel comes first"),
        (np.zeros((1, 9)), "at least 2x2 photosites, not 1x9"),
        (np.zeros((0, 0)), "at least 2x2 photosites, not 0x0"),
        ((1023 * VALUES).astype(np.uint16), "white=1023"),
        ((255 * VALUES).astype(np.uint8), "white=255"),
        (torch.from_numpy(64 + 900 * VALUES).int(), "black=64"),
    ],
)
def test_what_is_no_mosaic_is_rejected(mosaic: object, words: str) -> None:
    """The message says what came, and what to do."""
    with pytest.raises(DebayesError) as caught:
        arrays.to_mosaic(mosaic)
    assert words in str(caught.value)


@pytest.mark.parametrize("bits", [8, 10, 12, 14, 16])
def test_counts_as_floats_are_rejected(bits: int, network: Network) -> None:
    """With the levels to give, the name of the door for them, and a mosaic that they make acceptable."""
    white = 2**bits - 1
    counts = (white * VALUES).round()
    counts[0, :2] = 0, white
    for mosaic in (counts, torch.from_numpy(counts)[None]):
        with pytest.raises(DebayesError, match=f"Raw.from_array.*black=0, white={white}"):
            restore(network, mosaic)
    with pytest.raises(DebayesError, match="counts from 0"):
        adaptation.adapt(network, counts)
    restore(network, counts / white)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_no_numbers_are_rejected(bad: float, network: Network) -> None:
    mosaic = VALUES.copy()
    mosaic[7, 9] = bad
    with pytest.raises(DebayesError, match="NaN or infinity"):
        restore(network, mosaic)
    with pytest.raises(DebayesError, match="NaN or infinity"):
        adaptation.adapt(network, mosaic)


def test_hot_photosites_are_no_counts(network: Network) -> None:
    """A few values far above white, as sensors have, do not make a mosaic one of counts."""
    mosaic = VALUES.copy()
    mosaic[3, 3] = 60
    restore(network, mosaic)


OUTSIDE = """
import warnings
import numpy as np, torch
import debayes
network = debayes.load("wild-s")
mosaic = np.zeros((8, 8))
raw = debayes.Raw(torch.zeros(1, 16, 16), "RGGB", (1.0, 1.0, 1.0), torch.eye(3))
calls = (
    lambda: debayes.restore("wild-s", mosaic),
    lambda: debayes.restore(torch.nn.Linear(1, 1), mosaic),
    lambda: debayes.restore(network, [[0.0, 0.0], [0.0, 0.0]]),
    lambda: debayes.restore(network, mosaic, "RGBG"),
    lambda: debayes.adapt("wild-s", mosaic),
    lambda: debayes.develop("raw-s", raw),
    lambda: debayes.develop(network, "photo.NEF"),
    lambda: debayes.develop(network, mosaic),
)
for call in calls:
    try:
        call()
    except debayes.DebayesError as error:
        print(error)
    else:
        print("accepted")
with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    debayes.restore(debayes.load("raw-s"), mosaic)
print(warned[0].filename)
"""


def test_messages_as_a_caller_sees_them() -> None:
    """In a program of its own, where nothing checks annotations at run time."""
    done = subprocess.run([sys.executable, "-c", OUTSIDE], check=True, capture_output=True, text=True)
    expected = (
        "pass debayes.load('wild-s')",
        "not a Linear",
        "not a list",
        "RGGB, BGGR, GRBG, GBRG",
        "pass debayes.load('wild-s')",
        "pass debayes.load('raw-s')",
        "pass debayes.read('photo.NEF')",
        "debayes.Raw.from_array(mosaic, pattern",
        "<string>",  # a warning names the line of the caller
    )
    lines = done.stdout.splitlines()
    assert len(lines) == len(expected)
    for line, words in zip(lines, expected, strict=True):
        assert words in line


def camera_mosaic(size: int = 240, *, iso_gain: float = 1e-4, pattern: str = "RGGB") -> Tensor:
    """A dark linear shot of a photograph before white balance, with photon and read noise."""
    picture = scenes.photograph("chelsea")[:, :size, :size] ** 2.2 / 3
    signal = cfa.mosaic(picture / torch.tensor([2.4, 1.0, 1.8]).view(3, 1, 1), pattern)
    deviation = (iso_gain * signal + 1e-7).sqrt()
    return signal + deviation * torch.randn(signal.shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("pattern", cfa.PATTERNS)
def test_a_cameras_mosaic_is_warned_about(pattern: str, network: Network) -> None:
    """Where sRGB values are expected: a network for them leaves its noise. The way to go is named."""
    network.domain = "srgb"
    try:
        with pytest.warns(UserWarning, match=r"looks like a camera's.*debayes\.develop.*Raw\.from_array"):
            restore(network, camera_mosaic(pattern=pattern), pattern)
        with pytest.warns(UserWarning, match="looks like a camera's"):
            restore_image(network, camera_mosaic(pattern=pattern).numpy(), pattern)
    finally:
        network.domain = None
    restore(network, camera_mosaic(pattern=pattern), pattern)  # what it was trained on is not known


@pytest.mark.parametrize("sigma", [0.0, 5.0, 20.0])
@pytest.mark.parametrize("name", ["chelsea", "astronaut", "coffee"])
def test_mosaics_of_pictures_are_not(name: str, sigma: float) -> None:
    """With no noise and with much, photon noise included: colours or brightness tell them apart."""
    picture = scenes.photograph(name)
    generator = torch.Generator().manual_seed(0)
    clean = cfa.mosaic(picture)
    assert not arrays.looks_raw(noise.gaussian(clean, sigma / 255, generator=generator), "RGGB")
    assert not arrays.looks_raw(noise.poisson_gaussian(clean, sigma / 255, generator=generator), "RGGB")


def test_a_dark_green_picture_with_constant_noise_is_not() -> None:
    """Its colours and brightness are a camera's, its noise is not: it does not grow with the signal."""
    mosaic = noise.gaussian(
        cfa.mosaic(scenes.photograph("chelsea") * torch.tensor([0.15, 0.4, 0.15]).view(3, 1, 1)),
        10 / 255,
        generator=torch.Generator().manual_seed(0),
    )
    assert not arrays.looks_raw(mosaic, "RGGB")


def test_weights_for_another_kind_of_mosaic_are_warned_about() -> None:
    """Raw weights on sRGB values and the other way round; each on its own kind is quiet."""
    mosaic = cfa.mosaic(scenes.photograph("chelsea")[:, :64, :64])
    raw = Raw(camera_mosaic(64), "RGGB", (2.4, 1.0, 1.8), torch.eye(3))
    with pytest.warns(UserWarning, match="trained for camera raws"):
        restore(weights.load("raw-s"), mosaic)
    with pytest.warns(UserWarning, match="not trained for camera raws: use raw-s"):
        debayes.develop(weights.load("wild-s"), raw)
    restore(weights.load("wild-s"), mosaic)
    debayes.develop(weights.load("raw-s"), raw)
