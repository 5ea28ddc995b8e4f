"""Lossless JPEG: every sample comes back by decoders that others wrote, and files are as small as theirs."""

import imagecodecs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from debayes.formats import lossless_jpeg
from debayes.formats.lossless_jpeg import Coder


def decoded(tile: NDArray[np.uint16], coder: Coder | None = None) -> NDArray[np.uint16]:
    found: NDArray[np.uint16] = imagecodecs.jpeg_decode((coder or Coder.of(tile)).encode(tile))
    return found.reshape(tile.shape)


@settings(deadline=None, max_examples=60, derandomize=True)
@given(
    st.integers(1, 40), st.integers(1, 40), st.sampled_from([1, 3]), st.integers(0, 16), st.integers(0, 2**32 - 1)
)
def test_every_sample_comes_back(height: int, width: int, colors: int, bits: int, seed: int) -> None:
    """libjpeg-turbo decodes what was encoded, whatever the size and the number of bits that samples differ in."""
    samples = np.random.default_rng(seed).integers(0, 2**bits, (height, width, colors)).astype(np.uint16)
    np.testing.assert_array_equal(decoded(samples), samples)


def test_the_largest_difference() -> None:
    """A difference of half the range has 16 bits and none beside its code."""
    tile = (np.indices((16, 16)).sum(0) % 2 * 32768).astype(np.uint16)[..., None].repeat(3, 2)
    np.testing.assert_array_equal(decoded(tile), tile)


@pytest.mark.parametrize("shape", [(31, 7, 3), (64, 40, 3), (97, 33, 1)])
@pytest.mark.parametrize("bits", [1, 9, 16])
def test_bands(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int, int], bits: int) -> None:
    """How many rows are worked on at once does not change a byte, wherever in a word a band ends."""
    tile = np.random.default_rng(bits).integers(0, 2**bits, shape).astype(np.uint16)
    coder = Coder.of(tile)
    whole = coder.encode(tile)
    for band in (1, 200, 1000):
        monkeypatch.setattr(lossless_jpeg, "BAND", band)
        assert coder.encode(tile) == whole


def test_what_is_written_for_a_sample() -> None:
    """A curve is looked up on the way."""
    curve = np.random.default_rng(3).permutation(65536).astype(np.uint16)
    tile = np.random.default_rng(4).integers(0, 65536, (20, 30, 3)).astype(np.uint16)
    np.testing.assert_array_equal(decoded(tile, Coder.of(tile, curve)), curve[tile])


def test_a_coder_is_good_for_other_pictures() -> None:
    """Sizes of differences that a picture did not have still have codes."""
    plain = Coder.of(np.full((64, 64, 3), 100, np.uint16))
    rough = np.random.default_rng(0).integers(0, 65536, (64, 64, 3)).astype(np.uint16)
    np.testing.assert_array_equal(decoded(rough, plain), rough)


def test_another_decoder() -> None:
    """One that knows lossless JPEG alone (imagecodecs' jpegsof3) agrees, with bytes of 255 within."""
    tile = np.random.default_rng(1).normal(30000, 300, (128, 200, 3)).astype(np.uint16)
    data = Coder.of(tile).encode(tile)
    assert b"\xff\x00" in data
    np.testing.assert_array_equal(imagecodecs.jpegsof3_decode(data), tile)


def test_as_small_as_by_a_library() -> None:
    """Within a hundredth of libjpeg-turbo's optimal codes for the tile."""
    tile = np.random.default_rng(2).normal(30000, 90, (256, 256, 3)).astype(np.uint16)
    best = imagecodecs.jpeg_encode(tile, lossless=True, predictor=1, bitspersample=16)
    assert len(Coder.of(tile).encode(tile)) < 1.01 * len(best)


@pytest.mark.parametrize("kind", ["even", "one", "fibonacci", "none"])
def test_codes_fit(kind: str) -> None:
    """No code has more than JPEG's 16 bits, and Kraft's sum leaves room for the one that is not used."""
    counts = {
        "even": np.ones(17, np.int64),
        "one": np.eye(17, dtype=np.int64)[3] * 10**6,
        "fibonacci": np.array([round(1.618**i) for i in range(17)]),
        "none": np.zeros(17, np.int64),
    }[kind]
    lengths = lossless_jpeg.code_lengths(counts)
    assert max(lengths) <= 16
    assert sum(2.0**-bits for bits in lengths) < 1
