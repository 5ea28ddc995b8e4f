"""The colour filter array against its definition, loops, NumPy's padding and the symmetries of the square."""

import doctest
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from debayes.imaging import cfa

laws = settings(deadline=None, max_examples=50, derandomize=True)
patterns = st.sampled_from(cfa.PATTERNS)
symmetries = st.sampled_from(cfa.SYMMETRIES)
sizes = st.integers(2, 9)
seeds = st.integers(0, 2**32 - 1)


def random(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def fold(index: int, size: int) -> int:
    """An index walked back into [0, size) by turning round at the border photosites."""
    while not 0 <= index < size:
        index = -index if index < 0 else 2 * (size - 1) - index
    return index


def test_doctests() -> None:
    """The examples of the docstrings are true."""
    assert doctest.testmod(cfa) == doctest.TestResults(failed=0, attempted=3)


@given(patterns, sizes, sizes)
@laws
def test_masks_are_the_pattern(pattern: str, height: int, width: int) -> None:
    """Photosite (y, x) measures pattern[2 (y % 2) + x % 2] and nothing else."""
    masks = cfa.masks(pattern, height, width)
    for y in range(height):
        for x in range(width):
            measured = [color for color, seen in zip("RGB", masks[:, y, x].tolist(), strict=True) if seen]
            assert measured == [pattern[2 * (y % 2) + x % 2]]


@given(patterns, sizes, sizes, seeds)
@laws
def test_mosaic_keeps_one_colour(pattern: str, height: int, width: int, seed: int) -> None:
    """A mosaic holds the image's value of the one colour that its photosite measures."""
    image = random(2, 3, height, width, seed=seed)
    mosaic = cfa.mosaic(image, pattern)
    for y in range(height):
        for x in range(width):
            color = "RGB".index(pattern[2 * (y % 2) + x % 2])
            assert torch.equal(mosaic[:, 0, y, x], image[:, color, y, x])


@given(st.integers(1, 5), st.integers(1, 5), seeds)
@laws
def test_pack_takes_the_cell_in_reading_order(rows: int, columns: int, seed: int) -> None:
    """Plane k holds photosite (k // 2, k % 2) of every cell, and unpack undoes it."""
    mosaic = random(2, 1, 2 * rows, 2 * columns, seed=seed)
    planes = cfa.pack(mosaic)
    for k in range(4):
        assert torch.equal(planes[:, k], mosaic[:, 0, k // 2 :: 2, k % 2 :: 2])
    assert torch.equal(cfa.unpack(planes), mosaic)
    assert torch.equal(cfa.pack(cfa.unpack(planes)), planes)


@given(patterns, sizes, sizes, seeds)
@laws
def test_interpolate_averages_the_nearest(pattern: str, height: int, width: int, seed: int) -> None:
    """A missing colour is the mean of the nearest photosites of that colour, borders continued by reflection."""
    mosaic = random(1, 1, height, width, seed=seed)
    expected = torch.empty(1, 3, height, width, dtype=mosaic.dtype)
    for c, color in enumerate("RGB"):
        for y in range(height):
            for x in range(width):
                found: dict[int, list[float]] = {}
                for dy in (-1, 0, 1):
                    for dx in (-1, 0, 1):
                        v, u = fold(y + dy, height), fold(x + dx, width)
                        if pattern[2 * (v % 2) + u % 2] == color:
                            found.setdefault(dy**2 + dx**2, []).append(float(mosaic[0, 0, v, u]))
                nearest = found[min(found)]
                assert len(nearest) in ((1, 4) if color == "G" else (1, 2, 4))
                expected[0, c, y, x] = np.mean(nearest)
    torch.testing.assert_close(cfa.interpolate(mosaic, pattern), expected, rtol=0, atol=1e-14)


@given(patterns, sizes, sizes, seeds)
@laws
def test_interpolate_keeps_what_was_measured(pattern: str, height: int, width: int, seed: int) -> None:
    """The mosaic of an interpolation is the mosaic, to the last bit of float32."""
    mosaic = random(2, 1, height, width, seed=seed, dtype=torch.float32)
    assert torch.equal(cfa.mosaic(cfa.interpolate(mosaic, pattern), pattern), mosaic)


@given(patterns, sizes, sizes, st.lists(st.floats(-1, 2), min_size=3, max_size=3))
@laws
def test_interpolate_keeps_a_constant_colour(pattern: str, height: int, width: int, color: list[float]) -> None:
    """A picture of one colour comes back, borders and corners included: no photosite mixes two colours."""
    image = torch.tensor(color, dtype=torch.float64).view(1, 3, 1, 1).expand(1, 3, height, width)
    torch.testing.assert_close(cfa.interpolate(cfa.mosaic(image, pattern), pattern), image, rtol=0, atol=1e-14)


@pytest.mark.parametrize("pattern", cfa.PATTERNS)
def test_interpolate_is_exact_on_ramps(pattern: str) -> None:
    """Bilinear interpolation returns a colour ramp inside the border: no colour is moved by half a photosite."""
    y, x = torch.meshgrid(torch.arange(9.0), torch.arange(10.0), indexing="ij")
    image = torch.stack((y + 2 * x, 3 * y - x, 5 - 0.5 * y + 0.25 * x))[None]
    inside = cfa.interpolate(cfa.mosaic(image, pattern), pattern)[..., 1:-1, 1:-1]
    torch.testing.assert_close(inside, image[..., 1:-1, 1:-1], rtol=0, atol=1e-5)


@pytest.mark.parametrize("pattern", cfa.PATTERNS)
def test_interpolation_kernel_is_the_interpolation(pattern: str) -> None:
    """What other runtimes convolve the planes with gives what `interpolate` gives, away from the border."""
    mosaic = torch.rand(1, 1, 12, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    kernel = cfa.interpolation_kernel(pattern).double()
    planes = torch.nn.functional.conv2d(cfa.pack(mosaic), kernel)
    found = torch.nn.functional.pixel_shuffle(planes, 2)
    torch.testing.assert_close(cfa.interpolate(mosaic, pattern)[..., 2:-2, 2:-2], found)


@pytest.mark.parametrize("pattern", cfa.PATTERNS)
def test_interpolate_ignores_autocast(pattern: str) -> None:
    """Inside a bfloat16 region the interpolation is still float32, bit for bit."""
    mosaic = random(1, 1, 10, 12, seed=0, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = cfa.interpolate(mosaic, pattern)
    assert inside.dtype == torch.float32
    assert torch.equal(inside, cfa.interpolate(mosaic, pattern))
    assert not torch.equal(inside, inside.bfloat16().float())


@given(st.integers(2, 12), st.integers(-200, 200))
@laws
def test_reflect_keeps_lattice_and_range(size: int, index: int) -> None:
    """Reflection, at any distance, moves an index by an even number into the picture, as walking back does."""
    folded = int(cfa.reflect(torch.tensor([index]), size))
    assert 0 <= folded < size
    assert (folded - index) % 2 == 0
    assert folded == fold(index, size)


@given(sizes, sizes, seeds, st.data())
@laws
def test_pad_is_numpys_reflect(height: int, width: int, seed: int, data: st.DataObject) -> None:
    """Padding is NumPy's mode "reflect", which is defined up to size - 1."""
    top, bottom = (data.draw(st.integers(0, height - 1)) for _ in range(2))
    left, right = (data.draw(st.integers(0, width - 1)) for _ in range(2))
    image = random(2, 3, height, width, seed=seed)
    expected = np.pad(image.numpy(), ((0, 0), (0, 0), (top, bottom), (left, right)), mode="reflect")
    assert torch.equal(cfa.pad(image, top, bottom, left, right), torch.from_numpy(expected))


@given(patterns, sizes, sizes, st.integers(0, 7), st.integers(0, 7), seeds)
@laws
def test_pad_commutes_with_mosaic(pattern: str, height: int, width: int, top: int, left: int, seed: int) -> None:
    """A continued mosaic is the mosaic of the continued image: every photosite meets its own colour beyond the
    border, also where the continuation is larger than the picture."""
    image = random(1, 3, height, width, seed=seed)
    beyond = cfa.shift(pattern, -top, -left)
    padded = cfa.pad(cfa.mosaic(image, pattern), top, left, left, top)
    assert torch.equal(padded, cfa.mosaic(cfa.pad(image, top, left, left, top), beyond))


def test_one_photosite_cannot_be_continued() -> None:
    """A single row has no neighbour to reflect: a sentence says what is needed."""
    with pytest.raises(ValueError, match="at least 2x2 photosites"):
        cfa.interpolate(torch.zeros(1, 1, 1, 6))


@given(patterns, st.integers(4, 9), st.integers(4, 9), st.integers(0, 3), st.integers(0, 3), seeds)
@laws
def test_shift_is_the_pattern_of_a_crop(
    pattern: str, height: int, width: int, rows: int, columns: int, seed: int
) -> None:
    """Cropping commutes with mosaicking when the pattern is shifted."""
    image = random(3, height, width, seed=seed)
    cropped = cfa.mosaic(image, pattern)[..., rows:, columns:]
    assert torch.equal(cropped, cfa.mosaic(image[..., rows:, columns:], cfa.shift(pattern, rows, columns)))


@given(patterns, sizes, sizes, seeds)
@laws
def test_align_gives_rggb(pattern: str, height: int, width: int, seed: int) -> None:
    """An aligned mosaic is the RGGB mosaic of the continued image, and holds the given one at the red offset."""
    image = random(1, 3, height, width, seed=seed)
    mosaic = cfa.mosaic(image, pattern)
    top, left = cfa.red_offset(pattern)
    aligned = cfa.align(mosaic, pattern)
    assert torch.equal(aligned, cfa.mosaic(cfa.pad(image, top, 0, left, 0), "RGGB"))
    assert torch.equal(aligned[..., top:, left:], mosaic)
    assert top in (0, 1) and left in (0, 1)


@given(symmetries, patterns, sizes, sizes, seeds)
@settings(laws, max_examples=200)
def test_symmetry_carries_the_pattern(
    symmetry: cfa.Symmetry, pattern: str, height: int, width: int, seed: int
) -> None:
    """The mosaic seen through a symmetry is the mosaic of the image seen through it, in the symmetry's pattern."""
    image = random(1, 3, height, width, seed=seed)
    moved = symmetry.apply(image)
    assert moved.shape[-2:] == symmetry.size(height, width)
    expected = cfa.mosaic(moved, symmetry.pattern(pattern, height, width))
    assert torch.equal(symmetry.apply(cfa.mosaic(image, pattern)), expected)


@given(symmetries, sizes, sizes, seeds)
@laws
def test_symmetry_is_undone(symmetry: cfa.Symmetry, height: int, width: int, seed: int) -> None:
    """undo inverts apply, and apply inverts undo."""
    image = random(2, 3, height, width, seed=seed)
    assert torch.equal(symmetry.undo(symmetry.apply(image)), image)
    assert torch.equal(symmetry.apply(symmetry.undo(image)), image)


def test_symmetries_are_the_eight_of_the_square() -> None:
    """The eight views differ, and are the four turns of a picture and of its mirror image."""
    image = random(1, 4, 4, seed=0)
    views = sorted(tuple(symmetry.apply(image).flatten().tolist()) for symmetry in cfa.SYMMETRIES)
    turns = [torch.rot90(i, k, (-2, -1)) for i in (image, image.flip(-1)) for k in range(4)]
    assert all(a != b for a, b in pairwise(views))
    assert views == sorted(tuple(turn.flatten().tolist()) for turn in turns)


@pytest.mark.parametrize("pattern", ["rggb", "RGBG", "RGGBRGGB", "", "XTRANS"])
def test_a_wrong_pattern_is_named(pattern: str) -> None:
    """Whatever takes a pattern refuses another word with a sentence that names the four."""
    image, mosaic = torch.zeros(1, 3, 4, 4), torch.zeros(1, 1, 4, 4)
    for call in (
        lambda: cfa.check_pattern(pattern),
        lambda: cfa.masks(pattern, 4, 4),
        lambda: cfa.mosaic(image, pattern),
        lambda: cfa.interpolate(mosaic, pattern),
        lambda: cfa.shift(pattern, 0, 0),
        lambda: cfa.red_offset(pattern),
        lambda: cfa.align(mosaic, pattern),
        lambda: cfa.Symmetry().pattern(pattern, 4, 4),
    ):
        with pytest.raises(ValueError, match="RGGB, BGGR, GRBG, GBRG") as error:
            call()
        assert repr(pattern) in str(error.value)
