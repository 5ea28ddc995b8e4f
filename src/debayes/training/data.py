"""Training batches, made on the training device of tiles that lie there as uint8.

A batch depends on (seed, step) and nothing else: which tiles, where they are cut, how they are turned, what noise
they get. So a run can stop anywhere and go on.
"""

from dataclasses import dataclass
from itertools import accumulate
from math import pi

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor

from debayes.imaging import cfa, noise, virtual_camera, vst
from debayes.training.recipe import Data, Noise, Recipe


@dataclass(frozen=True)
class Batch:
    """What one training step sees; 0 = black and 1 = white."""

    target: Float[Tensor, "b 3 h w"]
    """The ground truth y."""
    mosaic: Float[Tensor, "b 1 h w"]
    """The noisy mosaic x, RGGB."""
    observed: Float[Tensor, "b 3 h w"]
    """Its bilinear interpolation x-tilde."""


class Columns:
    """Names for the columns of a matrix of uniform random numbers, one row a patch."""

    def __init__(self, **widths: int) -> None:
        ends = list(accumulate(widths.values()))
        self._places = dict(zip(widths, map(slice, [0, *ends], ends), strict=False))
        self.width = ends[-1]
        """How many columns there are."""

    def __call__(self, name: str, draws: Float[Tensor, "b n"]) -> Float[Tensor, "b m"]:
        """The columns of this name."""
        return draws[:, self._places[name]]


GRATING_DRAWS = 13
DETAIL_DRAWS = 17

# The random numbers of a patch beside its noise. A raw's come next (`camera.SHOT_DRAWS`), EXTRA last.
PATCH = Columns(
    tile=1,
    row=1,
    column=1,
    flip_rows=1,
    flip_columns=1,
    transpose=1,
    levels=noise.MAP_DRAWS,
    enlarge=1,
    soften=1,
    is_grating=1,
    grating=GRATING_DRAWS,
)
EXTRA = Columns(factors=noise.FACTOR_DRAWS, photons=2, unusual=1, sharpen=1, is_detail=1, detail=DETAIL_DRAWS)

# How much larger patches that are enlarged become at most.
LARGEST = 1.7


def draw_gratings(draws: Float[Tensor, "b 13"], size: int) -> Float[Tensor, "b 3 {size} {size}"]:
    """Stripes, weaves, edges and plain areas of two random colours, one for each row of uniform random numbers.

    The pitch runs from 2.5 pixels, where moire begins, to a thousand, of which a patch sees an edge or nothing; the
    flanks from a sine's to those of a sharp edge, never steeper than the grid carries.
    """
    angle, phase, phase2, pitch, pitch2, steep, weave = (draws[:, i, None, None] for i in range(7))
    first, second = draws[:, 7:10, None, None], draws[:, 10:13, None, None]
    y = torch.arange(size, device=draws.device).view(-1, 1)
    x = torch.arange(size, device=draws.device)
    sine, cosine = (2 * pi * angle).sin(), (2 * pi * angle).cos()

    def wave(along: Tensor, phase: Tensor, pitch: Tensor) -> Tensor:
        frequency = 0.4 * 10 ** (-2.6 * pitch)
        flank = 0.3 + steep * 0.3 / frequency
        return torch.tanh(flank * (2 * pi * (frequency * along + phase)).sin()) / torch.tanh(flank)

    stripes = wave(x * cosine + y * sine, phase, pitch)
    crossed = stripes * wave(y * cosine - x * sine, phase2, pitch2)
    share = 0.5 + 0.5 * torch.where(weave < 0.3, crossed, stripes).unsqueeze(1)
    return first + (second - first) * share


def enlarge(picture: Float[Tensor, "b 3 h w"], times: Float[Tensor, " b"]) -> Float[Tensor, "b 3 h w"]:
    """The middle of the pictures, enlarged (bicubic) to their size.

    Tiles are photographs made small, chosen for their detail: sharper than most pictures are at full size.
    """
    rows, columns = (_enlarging(size, times)[:, None] for size in picture.shape[-2:])
    return (rows @ picture @ columns.mT).clamp(0, 1)


def _enlarging(size: int, times: Float[Tensor, " b"]) -> Float[Tensor, "b {size} {size}"]:
    """What each pixel of a row takes of those of the row whose middle is enlarged: cubic convolution, a = -0.75.

    As products of matrices: torch.compile would compute the sixteen taps of each pixel wherever one is used.
    """
    middle = (size - 1) / 2
    place = torch.arange(size, device=times.device)
    wanted = middle + (place - middle) / times[:, None]
    # one more at either end, which is the border again
    distance = (wanted[:, :, None] - torch.arange(-1, size + 1, device=times.device)).abs()
    near = (1.25 * distance - 2.25) * distance.square() + 1
    far = ((-0.75 * distance + 3.75) * distance - 6) * distance + 3
    taken = torch.where(distance < 1, near, torch.where(distance < 2, far, 0.0))
    first, last = ((place == end).to(taken) for end in (0, size - 1))
    matrix: Tensor = taken[..., 1:-1] + taken[..., :1] * first + taken[..., -1:] * last
    return matrix


def soften(picture: Float[Tensor, "b 3 h w"], strength: Float[Tensor, "b 1 1 1"]) -> Float[Tensor, "b 3 h w"]:
    """The pictures with their colours, not their brightness, blurred: not at all (0) to as in a 4:2:0 JPEG (1).

    Most pictures are stored so, film scans of Photo CDs too. Photographs made small have colours as sharp as their
    brightness.
    """
    red, green, blue = picture.chunk(3, 1)
    colours = picture - (0.299 * red + 0.587 * green + 0.114 * blue)
    blurred = F.pad(colours, (2, 2, 2, 2), mode="reflect")
    for axis in (2, 3):
        a, b, c, d, e = (blurred.narrow(axis, i, picture.shape[axis]) for i in range(5))
        blurred = (a + 4 * b + 6 * c + 4 * d + e) / 16
    return (picture + strength * (blurred - colours)).clamp(0, 1)


def draw_detail(picture: Float[Tensor, "b 3 h w"], draws: Float[Tensor, "b 17"]) -> Float[Tensor, "b 3 h w"]:
    """Fine detail of one hue on the blurred colours of each patch: chirps, plane waves, bars and weaves.

    Frequencies go up to 0.55 cycles a pixel. In photographs, detail near the Nyquist frequency is nearly always
    neutral or of one hue; the mosaic alone cannot tell it from coloured stripes. The waves are added alike to the
    three colours, or multiply them.
    """
    height, width = picture.shape[-2:]
    (
        angle, second_angle, phase, second_phase, frequency, second_frequency, center_y, center_x,
        is_chirp, is_sharp, is_sum, multiplies, contrast, is_grey, blend, level, offset,
    ) = draws[:, :, None, None].unbind(1)  # fmt: skip
    y = torch.arange(height, device=picture.device).view(-1, 1)
    x = torch.arange(width, device=picture.device)

    def wave(angle: Tensor, phase: Tensor, frequency: Tensor) -> Tensor:
        along = x * (2 * pi * angle).cos() + y * (2 * pi * angle).sin()
        return (2 * pi * ((0.15 + 0.4 * frequency) * along + phase)).cos()

    # cos(pi k r²) has the frequency k r: k is such that the farthest corner has the frequency asked for
    down, right = y - (5 * center_y - 2) * height, x - (5 * center_x - 2) * width
    squares = down.square() + right.square()
    farthest = squares.amax((1, 2), keepdim=True).sqrt()
    chirp = (pi * (0.15 + 0.4 * frequency) / farthest * squares + 2 * pi * phase).cos()
    first = torch.where(is_chirp < 0.5, chirp, wave(angle, phase, frequency))
    both = (first + wave(second_angle, second_phase, second_frequency)) / 2
    waves = torch.where(is_sum < 0.35, both, first)
    waves = torch.where(is_sharp < 0.3, (4 * waves).clamp(-1, 1), waves).unsqueeze(1)
    # the patch's own colours, means of 16x16 pixels, blended with grey
    small = F.adaptive_avg_pool2d(picture, (max(1, height // 16), max(1, width // 16)))
    plain = F.interpolate(small, (height, width), mode="bilinear", align_corners=False)
    grey = plain.mean(1, keepdim=True) * (1 - offset.unsqueeze(1)) + level.unsqueeze(1) * offset.unsqueeze(1)
    share = torch.where(is_grey < 0.3, 1.0, blend).unsqueeze(1)
    plain = plain + share * (grey - plain)
    strength = contrast.unsqueeze(1)
    added = plain + (0.03 + 0.47 * strength) * waves
    multiplied = plain * (1 + (0.1 + 0.9 * strength) * waves)
    return torch.where(multiplies.unsqueeze(1) < 0.5, multiplied, added).clamp(0, 1)


def sharpen(picture: Float[Tensor, "b 3 h w"], strength: Float[Tensor, "b 1 1 1"]) -> Float[Tensor, "b 3 h w"]:
    """The pictures plus `strength` times their difference from a 3x3 blur: an unsharp mask, as cameras apply it."""
    blurred = F.pad(picture, (1, 1, 1, 1), mode="reflect")
    for axis in (2, 3):
        a, b, c = (blurred.narrow(axis, i, picture.shape[axis]) for i in range(3))
        blurred = (a + 2 * b + c) / 4
    return (picture + strength * (picture - blurred)).clamp(0, 1)


def draw(
    batch: int, patch: int, *, seed: int, step: int, generator: torch.Generator, raw: bool = False
) -> tuple[Float[Tensor, "{batch} n"], Float[Tensor, "{batch} k {patch} {patch}"]]:
    """All the randomness of a step's batch: uniform numbers for its patches, normal ones for its photosites.

    For `make_raw_batch` there are more of both. The generator lends its device and is seeded here, with both
    numbers mixed: a CPU's takes 32 bits of a seed.
    """
    generator.manual_seed(int(np.random.SeedSequence((seed, step)).generate_state(1)[0]))
    device = generator.device
    uniform = torch.rand(batch, PATCH.width + raw * virtual_camera.SHOT_DRAWS, device=device, generator=generator)
    normal = torch.randn(batch, 1 + raw, patch, patch, device=device, generator=generator)
    extra = torch.rand(batch, EXTRA.width, device=device, generator=generator)
    return torch.cat((uniform, extra), 1), normal


def make(
    recipe: Recipe,
    tiles: UInt8[Tensor, "n size size 3"],
    uniform: Float[Tensor, "b m"],
    normal: Float[Tensor, "b k patch patch"],
) -> Batch:
    """A batch as a recipe wants it, of what `draw` gave."""
    batch = make_raw_batch if recipe.noise.domain == "raw" else make_batch
    return batch(tiles, uniform, normal, pictures=recipe.data, levels=recipe.noise)


def make_batch(
    tiles: UInt8[Tensor, "n size size 3"],
    uniform: Float[Tensor, "b m"],
    normal: Float[Tensor, "b 1 patch patch"],
    *,
    pictures: Data,
    levels: Noise,
) -> Batch:
    """Patches of the tiles through one of the eight symmetries, with a mosaic noisy as `noise.level_maps`.

    A pure function of what `draw` gave, so that a training step can be compiled around it.
    """
    patch = normal.shape[-1]
    extra = uniform[:, -EXTRA.width :]
    target = cut(tiles, uniform, patch, pictures=pictures)
    clean = cfa.mosaic(target)
    sigma = noise.level_maps(
        PATCH("levels", uniform),
        patch,
        patch,
        low=levels.low / 255,
        high=levels.high / 255,
        varying=levels.varying,
    )
    if levels.by_color:
        factors = EXTRA("factors", extra)
        sigma = sigma * noise.color_factors(factors, patch, patch, share=levels.by_color)
        # photon noise in part of them: its variance grows with the signal
        among, share = EXTRA("photons", extra)[:, :, None, None, None].unbind(1)
        photons = (1 - share + share * clean).clamp_min(0).sqrt()
        has_photons = (factors[:, 0, None, None, None] < levels.by_color) & (among < 0.5)
        sigma = torch.where(has_photons, sigma * photons, sigma)
    mosaic = clean + sigma * normal
    return Batch(target, mosaic, cfa.interpolate(mosaic))


def make_raw_batch(
    tiles: UInt8[Tensor, "n size size 3"],
    uniform: Float[Tensor, "b m"],
    normal: Float[Tensor, "b 2 patch patch"],
    *,
    pictures: Data,
    levels: Noise,
) -> Batch:
    """Patches as simulated camera raws in the domain of `vst`: `virtual_camera.shoot` with photon noise up to
    `high`.

    The curve's offset is that of the true noise, up to a third off, as an estimate may be.
    """
    patch = normal.shape[-1]
    extra = uniform[:, -EXTRA.width :]
    picture = cut(tiles, uniform, patch, pictures=pictures)
    if levels.by_color:
        normal = normal * noise.color_factors(EXTRA("factors", extra), patch, patch, share=levels.by_color)
    shot = virtual_camera.shoot(
        picture,
        uniform[:, PATCH.width : -EXTRA.width],
        normal,
        high=levels.high / 255,
        low=levels.low / 255,
        unusual=EXTRA("unusual", extra)[:, 0] < levels.unusual if levels.unusual else None,
    )
    error = 2 * PATCH("levels", uniform)[:, :1, None, None] - 1  # raws have no level maps
    offset = vst.offset(shot.gain, shot.floor) * 1.33**error
    target = vst.encode(shot.clean * shot.gains, offset)
    mosaic = vst.encode(shot.mosaic * cfa.mosaic(shot.gains.expand_as(shot.clean)), offset)
    return Batch(target, mosaic, cfa.interpolate(mosaic))


def cut(
    tiles: UInt8[Tensor, "n size size 3"], uniform: Float[Tensor, "b m"], patch: int, *, pictures: Data
) -> Float[Tensor, "b 3 {patch} {patch}"]:
    """Patches of the tiles through one of the eight symmetries, or drawn ones, 0 = black and 1 = white.

    Shares of them are enlarged, by factors from 1 to `LARGEST`, have softer colours, are sharpened, have fine
    detail drawn on them, or are `draw_gratings`, as the recipe says.
    """
    n, size = tiles.shape[:2]
    steps = torch.arange(patch, device=tiles.device)
    extra = uniform[:, -EXTRA.width :]

    def integer(name: str, end: int) -> Tensor:
        return (PATCH(name, uniform) * end).long().clamp_max(end - 1)

    def along(name: str, flip: str) -> Tensor:
        forward = torch.where(PATCH(flip, uniform) < 0.5, steps, patch - 1 - steps)
        return integer(name, size - patch + 1) + forward

    def as_image(draws: Tensor) -> Tensor:
        return draws[:, :, None, None]

    rows, columns = along("row", "flip_rows"), along("column", "flip_columns")
    cut = tiles[integer("tile", n)[:, :, None], rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
    turned = torch.where(as_image(PATCH("transpose", uniform)) < 0.5, cut, cut.mT)
    target = turned.float() / 255
    if pictures.enlarged:
        more = (1 - PATCH("enlarge", uniform) / pictures.enlarged).clamp_min(0)
        target = torch.where(as_image(more) > 0, enlarge(target, 1 + (LARGEST - 1) * more[:, 0]), target)
    if pictures.softened:
        target = soften(target, (1 - as_image(PATCH("soften", uniform)) / pictures.softened).clamp_min(0))
    if pictures.sharpened:
        strength = (1 - as_image(EXTRA("sharpen", extra)) / pictures.sharpened).clamp_min(0)
        target = sharpen(target, 1.5 * strength)
    if pictures.detail:
        drawn = draw_detail(target, EXTRA("detail", extra))
        target = torch.where(as_image(EXTRA("is_detail", extra)) < pictures.detail, drawn, target)
    if pictures.gratings:
        drawn = draw_gratings(PATCH("grating", uniform), patch)
        target = torch.where(as_image(PATCH("is_grating", uniform)) < pictures.gratings, drawn, target)
    return target
