"""The colour filter array against its definition, loops, NumPy's padding and the symmetries of the square."""

import doctest
import json
import math
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from debayes.imaging import cfa
from debayes.imaging.cfa import Pattern
from debayes.system.errors import DebayesError

laws = settings(deadline=None, max_examples=50, derandomize=True)
patterns = st.sampled_from(cfa.PATTERNS)
symmetries = st.sampled_from(cfa.SYMMETRIES)
# The three kinds of sensor, each at all its phases, and a cell that no symmetry but the identity keeps.
LOPSIDED = Pattern("RRGG" + "GBGG" + "RGBB" + "GBGB", 4)
all_patterns = st.sampled_from(
    [cfa.shift(p, y, x) for p in (cfa.RGGB, cfa.QUAD, cfa.XTRANS, LOPSIDED) for y in range(6) for x in range(6)]
)
larger = st.integers(6, 15)
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
    assert doctest.testmod(cfa) == doctest.TestResults(failed=0, attempted=9)


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
    """A single row has no neighbour to reflect: the error says what is needed."""
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
    """An aligned mosaic is the RGGB mosaic of the continued image, and contains the given one at the red offset."""
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


def test_symmetries_of_a_pattern() -> None:
    """Bayer, quad Bayer and X-Trans have all eight, with the right shifts; a lopsided cell has one."""
    for pattern in (*cfa.PATTERNS, cfa.QUAD, cfa.XTRANS):
        found = cfa.symmetries(pattern)
        assert set(found) == set(cfa.SYMMETRIES)
        image = random(3, 2 * pattern.period, 2 * pattern.period, seed=1)
        for symmetry, (rows, columns) in found.items():
            seen = symmetry.apply(cfa.mosaic(image, pattern))
            assert torch.equal(seen, cfa.mosaic(symmetry.apply(image), cfa.shift(pattern, rows, columns)))
    assert cfa.symmetries(LOPSIDED) == {cfa.Symmetry(): (0, 0)}


@given(all_patterns, larger, larger)
@laws
def test_masks_of_any_pattern(pattern: Pattern, height: int, width: int) -> None:
    """Photosite (y, x) measures the letter at (y % period, x % period), also where no whole cell fits."""
    masks, p = cfa.masks(pattern, height, width), pattern.period
    cell = np.array(list(pattern.letters)).reshape(p, p)
    expected = np.tile(cell, (8, 8))[:height, :width]
    for color, mask in zip("RGB", masks.numpy(), strict=True):
        assert np.array_equal(mask, expected == color)
        assert pattern.places(color) == [tuple(place) for place in np.argwhere(cell == color).tolist()]


@given(all_patterns, larger, larger, st.lists(st.floats(-1, 2), min_size=3, max_size=3))
@laws
def test_any_pattern_keeps_a_constant_colour(pattern: Pattern, height: int, width: int, color: list[float]) -> None:
    """A picture of one colour comes back from its mosaic, borders and corners included."""
    image = torch.tensor(color, dtype=torch.float64).view(1, 3, 1, 1).expand(1, 3, height, width)
    torch.testing.assert_close(cfa.interpolate(cfa.mosaic(image, pattern), pattern), image, rtol=0, atol=1e-14)


@given(all_patterns, larger, larger, seeds)
@laws
def test_interpolation_of_any_pattern_keeps_what_was_measured(
    pattern: Pattern, height: int, width: int, seed: int
) -> None:
    """The mosaic of an interpolation is the mosaic, bit for bit."""
    mosaic = random(2, 1, height, width, seed=seed, dtype=torch.float32)
    assert torch.equal(cfa.mosaic(cfa.interpolate(mosaic, pattern), pattern), mosaic)


@pytest.mark.parametrize("pattern", [cfa.QUAD, cfa.XTRANS, Pattern.of("xtrans+4+1")])
def test_interpolation_is_a_normalised_convolution(pattern: Pattern) -> None:
    """Away from the border a missing colour is SciPy's convolution of the mosaic over that of the mask."""
    from scipy.ndimage import convolve

    mosaic = random(1, 1, 16, 17, seed=3)
    taps = np.exp(-0.5 * np.arange(-2, 3) ** 2)
    kernel, masks = np.outer(taps, taps), cfa.masks(pattern, 16, 17).double().numpy()
    found = cfa.interpolate(mosaic, pattern)[0].numpy()
    for plane, mask in zip(found, masks, strict=True):
        expected = convolve(mosaic[0, 0].numpy() * mask, kernel) / convolve(mask, kernel)
        expected = np.where(mask > 0, mosaic[0, 0].numpy(), expected)
        np.testing.assert_allclose(plane[2:-2, 2:-2], expected[2:-2, 2:-2], rtol=1e-12)


@given(all_patterns, larger, st.integers(-40, 40), st.sampled_from([0, 1]))
@laws
def test_continuation_keeps_the_colours_of_a_line(pattern: Pattern, size: int, index: int, axis: int) -> None:
    """A line beyond the border is replaced by a line of the mosaic with the same colours; others stay."""
    folded = int(cfa.reflect(torch.tensor([index]), size, pattern, axis))
    assert 0 <= folded < size and (folded == index or not 0 <= index < size)
    cell = np.array(list(pattern.letters)).reshape(pattern.period, pattern.period)
    lines = cell if axis == 0 else cell.T
    assert np.array_equal(lines[folded % pattern.period], lines[index % pattern.period])


@pytest.mark.parametrize(("pattern", "reach"), [("rggb", 2), ("quad", 4), ("xtrans", 6)])
def test_continuation_is_near(pattern: str, reach: int) -> None:
    """The line just beyond the border comes from one of the `reach` lines next to the border."""
    for phase in range(6):
        shifted = cfa.shift(pattern, phase, phase)
        for axis in (0, 1):
            before, behind = cfa.reflect(torch.tensor([-1, 24]), 24, shifted, axis).tolist()
            assert before < reach and 23 - behind < reach


@given(all_patterns, larger, larger, st.integers(0, 9), st.integers(0, 9), seeds)
@laws
def test_pad_commutes_with_mosaic_of_any_pattern(
    pattern: Pattern, height: int, width: int, top: int, left: int, seed: int
) -> None:
    """A continued mosaic is the mosaic of the continued image: every photosite meets its own colour."""
    image = random(1, 3, height, width, seed=seed)
    padded = cfa.pad(cfa.mosaic(image, pattern), top, left, left, top, pattern)
    beyond = cfa.shift(pattern, -top, -left)
    assert torch.equal(padded, cfa.mosaic(cfa.pad(image, top, left, left, top, pattern), beyond))


@given(all_patterns, larger, larger, st.integers(0, 5), st.integers(0, 5), seeds)
@laws
def test_shift_is_the_pattern_of_a_crop_of_any_pattern(
    pattern: Pattern, height: int, width: int, rows: int, columns: int, seed: int
) -> None:
    """Cropping commutes with mosaicking when the pattern is shifted."""
    image = random(3, height, width, seed=seed)
    cropped = cfa.mosaic(image, pattern)[..., rows:, columns:]
    assert torch.equal(cropped, cfa.mosaic(image[..., rows:, columns:], cfa.shift(pattern, rows, columns)))


@given(symmetries, all_patterns, larger, larger, seeds)
@settings(laws, max_examples=200)
def test_symmetry_carries_any_pattern(
    symmetry: cfa.Symmetry, pattern: Pattern, height: int, width: int, seed: int
) -> None:
    """The mosaic seen through a symmetry is the mosaic of the image seen through it, in the symmetry's pattern."""
    image = random(1, 3, height, width, seed=seed)
    seen = cfa.mosaic(symmetry.apply(image), symmetry.pattern(pattern, height, width))
    assert torch.equal(symmetry.apply(cfa.mosaic(image, pattern)), seen)
    assert torch.equal(symmetry.undo(seen), cfa.mosaic(image, pattern))


@given(
    st.sampled_from([cfa.RGGB, cfa.QUAD, cfa.XTRANS]), st.integers(0, 5), st.integers(0, 5), larger, larger, seeds
)
@laws
def test_align_gives_the_target(
    target: Pattern, rows: int, columns: int, height: int, width: int, seed: int
) -> None:
    """Any phase becomes the target by continuing less than a cell at the top and left."""
    pattern, image = cfa.shift(target, rows, columns), random(1, 3, height, width, seed=seed)
    mosaic = cfa.mosaic(image, pattern)
    top, left = cfa.offset(pattern, target)
    aligned = cfa.align(mosaic, pattern, target)
    assert 0 <= top < target.period and 0 <= left < target.period
    assert torch.equal(aligned, cfa.mosaic(cfa.pad(image, top, 0, left, 0, pattern), target))
    assert torch.equal(aligned[..., top:, left:], mosaic)


def test_no_shift_joins_two_kinds_of_sensor() -> None:
    """X-Trans cannot be aligned to RGGB."""
    with pytest.raises(DebayesError, match="no shift makes RGGB of the pattern xtrans"):
        cfa.align(torch.zeros(1, 1, 8, 8), "xtrans")


@given(st.sampled_from([2, 4, 6]), st.integers(1, 4), st.integers(1, 4), seeds)
@laws
def test_pack_of_any_period(period: int, rows: int, columns: int, seed: int) -> None:
    """Plane k holds the photosites at place k of every cell, and unpack undoes it."""
    mosaic = random(1, period * rows, period * columns, seed=seed)
    planes = cfa.pack(mosaic, period)
    for k in range(period**2):
        assert torch.equal(planes[k], mosaic[0, k // period :: period, k % period :: period])
    assert torch.equal(cfa.unpack(planes, period), mosaic)


def test_small_mosaics_are_named() -> None:
    """Less than a cell cannot be continued."""
    with pytest.raises(DebayesError, match="at least 6x6 photosites"):
        cfa.interpolate(torch.zeros(1, 1, 5, 9), "xtrans")


def test_patterns_compile() -> None:
    """torch.compile takes text and patterns without a graph break, and gives the same pixels."""

    code = """
import torch
from debayes.imaging import cfa
def both(mosaic):
    return cfa.interpolate(mosaic, "gbrg") + cfa.mosaic(cfa.interpolate(mosaic, "xtrans"), cfa.QUAD)
mosaic = torch.rand(1, 1, 12, 12)
assert torch.equal(torch.compile(both, fullgraph=True, backend="eager")(mosaic), both(mosaic))
"""
    subprocess.run([sys.executable, "-W", "error::UserWarning", "-c", code], check=True)


def test_a_pattern_is_data() -> None:
    """Text of any case, names with shifts and letters give one value: equal, hashable, frozen, picklable."""
    for text, letters in (
        ("rggb", "RGGB"),
        ("RGGB+0+1", "GRBG"),
        ("X-Trans", cfa.XTRANS.letters),
        ("quad+1+0", "RRGGGGBBGGBBRRGG"),
        (cfa.XTRANS.letters.lower(), cfa.XTRANS.letters),
    ):
        pattern = Pattern.of(text)
        assert str(pattern) == pattern.letters == letters == json.loads(json.dumps(pattern))
        assert pattern == Pattern.of(letters) and len({pattern, Pattern.of(letters), letters}) == 1
        assert pickle.loads(pickle.dumps(pattern)).period == pattern.period == math.isqrt(len(letters))
        assert Pattern.of(pattern) is pattern and Pattern.of(pattern.name) == pattern
    with pytest.raises(FrozenInstanceError):
        cfa.RGGB.period = 3  # type: ignore[misc]
    assert cfa.shift("xtrans", 1, 2).name == "xtrans+1+2" and LOPSIDED.name == LOPSIDED.letters


WITHOUT_BLUE = "RRGG" * 4
FAR_APART = "RGGGGG" + "GGGGGG" * 4 + "GGBGGG"


@pytest.mark.parametrize(
    "pattern", ["RGBG", "RGGBRGGB", "", "xtrans+1", "xtrans+1+b", "quad+-1+0", WITHOUT_BLUE, FAR_APART]
)
def test_a_wrong_pattern_is_named(pattern: str) -> None:
    """Whatever takes a pattern rejects another word with an error that names the known ones."""
    image, mosaic = torch.zeros(1, 3, 4, 4), torch.zeros(1, 1, 4, 4)
    for call in (
        lambda: Pattern.of(pattern),
        lambda: cfa.check_pattern(pattern),
        lambda: cfa.masks(pattern, 4, 4),
        lambda: cfa.mosaic(image, pattern),
        lambda: cfa.interpolate(mosaic, pattern),
        lambda: cfa.shift(pattern, 0, 0),
        lambda: cfa.red_offset(pattern),
        lambda: cfa.align(mosaic, pattern),
        lambda: cfa.Symmetry().pattern(pattern, 4, 4),
    ):
        with pytest.raises(DebayesError, match="RGGB, BGGR, GRBG, GBRG") as error:
            call()
        assert repr(pattern.upper()) in str(error.value).upper()


def test_networks_are_bayer() -> None:
    """What only Bayer mosaics can have is rejected for others, by name."""
    for call in (cfa.check_pattern, cfa.red_offset, cfa.interpolation_kernel):
        with pytest.raises(DebayesError, match=r"must be Bayer.*not xtrans\+1\+0"):
            call(cfa.shift("xtrans", 1, 0))


def test_a_pattern_is_text() -> None:
    """Numbers and None are no patterns."""
    with pytest.raises(DebayesError, match="not None"):
        Pattern.of(None)  # type: ignore[arg-type]
