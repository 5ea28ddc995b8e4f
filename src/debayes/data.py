"""Training batches, made on the training device of tiles that lie there as uint8.

A batch depends on (seed, step) and nothing else: which tiles, where they are cut, how they are turned, what noise
they get. So a run can stop anywhere and go on.
"""

from dataclasses import dataclass
from math import pi

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor

from debayes import bridge, camera, cfa, noise
from debayes.recipe import Recipe


@dataclass(frozen=True)
class Batch:
    """What one training step sees; 0 = black and 1 = white."""

    target: Float[Tensor, "b 3 h w"]
    """The ground truth y."""
    mosaic: Float[Tensor, "b 1 h w"]
    """The noisy mosaic x, RGGB."""
    observed: Float[Tensor, "b 3 h w"]
    """Its bilinear interpolation x-tilde."""


# Random numbers that a grating is made of, and a patch beside its noise: tile, place (2), symmetry (3), noise
# levels, how much it is enlarged, how soft its colours are, whether it is a grating, the grating.
GRATING_DRAWS = 13
PATCH_DRAWS = 6 + noise.MAP_DRAWS + 3 + GRATING_DRAWS

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


def draw(
    batch: int, patch: int, *, seed: int, step: int, generator: torch.Generator, raw: bool = False
) -> tuple[Float[Tensor, "{batch} n"], Float[Tensor, "{batch} k {patch} {patch}"]]:
    """All the randomness of a step's batch: uniform numbers for its patches, normal ones for its photosites.

    For `make_raw_batch` there are more of both. The generator lends its device and is seeded here, with both
    numbers mixed: a CPU's takes 32 bits of a seed.
    """
    generator.manual_seed(int(np.random.SeedSequence((seed, step)).generate_state(1)[0]))
    device = generator.device
    uniform = torch.rand(batch, PATCH_DRAWS + raw * camera.SHOT_DRAWS, device=device, generator=generator)
    return uniform, torch.randn(batch, 1 + raw, patch, patch, device=device, generator=generator)


def make(
    recipe: Recipe,
    tiles: UInt8[Tensor, "n size size 3"],
    uniform: Float[Tensor, "b m"],
    normal: Float[Tensor, "b k patch patch"],
) -> Batch:
    """A batch as a recipe wants it, of what `draw` gave."""
    levels, gratings = recipe.noise, recipe.data.gratings
    if levels.domain == "raw":
        enlarged = recipe.data.enlarged
        return make_raw_batch(tiles, uniform, normal, high=levels.high / 255, enlarged=enlarged, gratings=gratings)
    return make_batch(
        tiles,
        uniform,
        normal,
        low=levels.low / 255,
        high=levels.high / 255,
        varying=levels.varying,
        enlarged=recipe.data.enlarged,
        softened=recipe.data.softened,
        gratings=gratings,
    )


def make_batch(
    tiles: UInt8[Tensor, "n size size 3"],
    uniform: Float[Tensor, "b m"],
    normal: Float[Tensor, "b 1 patch patch"],
    *,
    low: float,
    high: float,
    varying: float,
    enlarged: float = 0.0,
    softened: float = 0.0,
    gratings: float = 0.0,
) -> Batch:
    """Patches of the tiles through one of the eight symmetries, with a mosaic noisy as `noise.level_maps`.

    `enlarged`, `softened` and `gratings` are those of `cut`. A pure function of what `draw` gave, so that a
    training step can be compiled around it.
    """
    patch = normal.shape[-1]
    target = cut(tiles, uniform, patch, enlarged=enlarged, softened=softened, gratings=gratings)
    levels = noise.level_maps(
        uniform[:, 6 : 6 + noise.MAP_DRAWS], patch, patch, low=low, high=high, varying=varying
    )
    mosaic = cfa.mosaic(target) + levels * normal
    return Batch(target, mosaic, cfa.interpolate(mosaic))


def make_raw_batch(
    tiles: UInt8[Tensor, "n size size 3"],
    uniform: Float[Tensor, "b m"],
    normal: Float[Tensor, "b 2 patch patch"],
    *,
    high: float,
    enlarged: float = 0.0,
    gratings: float = 0.0,
) -> Batch:
    """Patches as simulated camera raws in the domain of `bridge`: `camera.shoot` with photon noise up to `high`.

    The curve's offset is that of the true noise, up to a third off, as an estimate may be.
    """
    picture = cut(tiles, uniform[:, :PATCH_DRAWS], normal.shape[-1], enlarged=enlarged, gratings=gratings)
    shot = camera.shoot(picture, uniform[:, PATCH_DRAWS:], normal, high=high)
    error = 2 * uniform[:, 6, None, None, None] - 1  # the numbers of the level maps are free here
    offset = bridge.offset(shot.gain, shot.floor) * 1.33**error
    target = bridge.encode(shot.clean * shot.gains, offset)
    mosaic = bridge.encode(shot.mosaic * cfa.mosaic(shot.gains.expand_as(shot.clean)), offset)
    return Batch(target, mosaic, cfa.interpolate(mosaic))


def cut(
    tiles: UInt8[Tensor, "n size size 3"],
    uniform: Float[Tensor, "b m"],
    patch: int,
    *,
    enlarged: float = 0.0,
    softened: float = 0.0,
    gratings: float = 0.0,
) -> Float[Tensor, "b 3 {patch} {patch}"]:
    """Patches of the tiles through one of the eight symmetries, or gratings, 0 = black and 1 = white.

    A share `enlarged` is enlarged, by factors from 1 to `LARGEST`; a share `softened` has softer colours, by
    strengths from 0 to 1; a share `gratings` is `draw_gratings` instead.
    """
    n, size = tiles.shape[:2]
    steps = torch.arange(patch, device=tiles.device)

    def integer(i: int, end: int) -> Tensor:
        return (uniform[:, i : i + 1] * end).long().clamp_max(end - 1)

    rows = integer(1, size - patch + 1) + torch.where(uniform[:, 3:4] < 0.5, steps, patch - 1 - steps)
    columns = integer(2, size - patch + 1) + torch.where(uniform[:, 4:5] < 0.5, steps, patch - 1 - steps)
    cut = tiles[integer(0, n)[:, :, None], rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
    turned = torch.where(uniform[:, 5, None, None, None] < 0.5, cut, cut.mT)
    target = turned.float() / 255
    if enlarged:
        more = (1 - uniform[:, -GRATING_DRAWS - 3] / enlarged).clamp_min(0)
        target = torch.where(more[:, None, None, None] > 0, enlarge(target, 1 + (LARGEST - 1) * more), target)
    if softened:
        target = soften(target, (1 - uniform[:, -GRATING_DRAWS - 2, None, None, None] / softened).clamp_min(0))
    if gratings:
        drawn = draw_gratings(uniform[:, -GRATING_DRAWS:], patch)
        target = torch.where(uniform[:, -GRATING_DRAWS - 1, None, None, None] < gratings, drawn, target)
    return target
