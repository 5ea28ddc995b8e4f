"""Training batches, made on the training device from tiles that are stored there as uint8.

A batch depends on the seed and the step alone: its tiles, where they are cut, their orientation and their noise. So
a run can stop at any step and be resumed.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from debayes.imaging import cfa, noise, virtual_camera, vst
from debayes.imaging.draws import Columns
from debayes.training import augmentation
from debayes.training.recipe import Data, Noise, Recipe

# The uniform random numbers of a patch: PATCH, then those of a raw's shot (`virtual_camera.SHOT`), then EXTRA.
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
    grating=augmentation.GRATING.width,
)
EXTRA = Columns(
    factors=noise.FACTOR_DRAWS,
    has_photons=1,
    photon_share=1,
    unusual=1,
    sharpen=1,
    is_detail=1,
    detail=augmentation.DETAIL.width,
)

# Raws have no level maps. The first of the numbers for these decides the error of the noise profile instead.
RAW_LEVELS = Columns(profile_error=1, unused=noise.MAP_DRAWS - 1)


@dataclass(frozen=True)
class Batch:
    """What one training step sees; 0 = black and 1 = white."""

    target: Float[Tensor, "b 3 h w"]
    """The ground truth y."""
    mosaic: Float[Tensor, "b 1 h w"]
    """The noisy mosaic x, RGGB."""
    observed: Float[Tensor, "b 3 h w"]
    """Its bilinear interpolation x-tilde."""


class Draws(NamedTuple):
    """All random numbers of a batch, one row per patch."""

    patch: Float[Tensor, "b n"]
    """Uniform, with the columns of `PATCH`."""
    shot: Float[Tensor, "b m"]
    """Uniform, with the columns of `virtual_camera.SHOT`; no columns for sRGB mosaics."""
    extra: Float[Tensor, "b k"]
    """Uniform, with the columns of `EXTRA`."""
    normal: Float[Tensor, "b c patch patch"]
    """Standard normal numbers for the noise: one channel for sRGB mosaics, two for raws."""


def sample_draws(
    batch: int, patch: int, *, seed: int, step: int, generator: torch.Generator, raw: bool = False
) -> Draws:
    """The random numbers of a step's batch, drawn on the generator's device.

    The generator is seeded here with a mixture of seed and step, because a CPU generator uses 32 bits of its seed.
    """
    generator.manual_seed(int(np.random.SeedSequence((seed, step)).generate_state(1)[0]))
    device = generator.device
    shot = virtual_camera.SHOT.width if raw else 0
    uniform = torch.rand(batch, PATCH.width + shot, device=device, generator=generator)
    normal = torch.randn(batch, 1 + raw, patch, patch, device=device, generator=generator)
    extra = torch.rand(batch, EXTRA.width, device=device, generator=generator)
    return Draws(uniform[:, : PATCH.width], uniform[:, PATCH.width :], extra, normal)


def make(recipe: Recipe, tiles: UInt8[Tensor, "n size size 3"], draws: Draws) -> Batch:
    """A batch as the recipe asks for it."""
    batch = make_raw_batch if recipe.noise.domain == "raw" else make_batch
    return batch(tiles, draws, pictures=recipe.data, levels=recipe.noise)


def make_batch(tiles: UInt8[Tensor, "n size size 3"], draws: Draws, *, pictures: Data, levels: Noise) -> Batch:
    """Patches of the tiles with noisy mosaics, whose noise levels are those of `noise.level_maps`.

    A pure function of the draws, so that a training step can be compiled around it.
    """
    patch = draws.normal.shape[-1]
    target = cut(tiles, draws, pictures=pictures)
    clean = cfa.mosaic(target)
    sigma = noise.level_maps(
        PATCH("levels", draws.patch),
        patch,
        patch,
        low=levels.low / 255,
        high=levels.high / 255,
        varying=levels.varying,
    )
    if levels.by_color:
        factors = EXTRA("factors", draws.extra)
        sigma = sigma * noise.color_factors(factors, patch, patch, share=levels.by_color)
        # photon noise in half of these patches: its variance grows with the signal
        share = EXTRA.as_images("photon_share", draws.extra)
        photons = (1 - share + share * clean).clamp_min(0).sqrt()
        differs = noise.FACTORS.as_images("differs", factors) < levels.by_color
        has_photons = differs & (EXTRA.as_images("has_photons", draws.extra) < 0.5)
        sigma = torch.where(has_photons, sigma * photons, sigma)
    mosaic = clean + sigma * draws.normal
    return Batch(target, mosaic, cfa.interpolate(mosaic))


def make_raw_batch(tiles: UInt8[Tensor, "n size size 3"], draws: Draws, *, pictures: Data, levels: Noise) -> Batch:
    """Patches as simulated camera raws in the domain of `vst`: `virtual_camera.shoot` with photon noise up to
    `high`.

    The offset of the transform is that of the true noise times a factor from 1 / 1.33 to 1.33, because noise
    profiles are estimates.
    """
    patch = draws.normal.shape[-1]
    picture = cut(tiles, draws, pictures=pictures)
    normal = draws.normal
    if levels.by_color:
        factors = EXTRA("factors", draws.extra)
        normal = normal * noise.color_factors(factors, patch, patch, share=levels.by_color)
    shot = virtual_camera.shoot(
        picture,
        draws.shot,
        normal,
        high=levels.high / 255,
        low=levels.low / 255,
        unusual=EXTRA("unusual", draws.extra)[:, 0] < levels.unusual if levels.unusual else None,
    )
    error = 2 * RAW_LEVELS.as_images("profile_error", PATCH("levels", draws.patch)) - 1
    offset = vst.offset(shot.gain, shot.floor) * 1.33**error
    target = vst.encode(shot.clean * shot.gains, offset)
    mosaic = vst.encode(shot.mosaic * cfa.mosaic(shot.gains.expand_as(shot.clean)), offset)
    return Batch(target, mosaic, cfa.interpolate(mosaic))


def cut(tiles: UInt8[Tensor, "n size size 3"], draws: Draws, *, pictures: Data) -> Float[Tensor, "b 3 patch patch"]:
    """Noise-free patches of the tiles, each in one of the eight orientations; 0 = black and 1 = white.

    The recipe's shares of them are enlarged (up to `augmentation.LARGEST` times), have softened colours, are
    sharpened, have detail drawn on them, or are replaced by gratings.
    """
    n, size = tiles.shape[:2]
    patch = draws.normal.shape[-1]
    steps = torch.arange(patch, device=tiles.device)

    def integer(name: str, end: int) -> Tensor:
        return (PATCH(name, draws.patch) * end).long().clamp_max(end - 1)

    def indices(start: str, flip: str) -> Tensor:
        forward = torch.where(PATCH(flip, draws.patch) < 0.5, steps, patch - 1 - steps)
        return integer(start, size - patch + 1) + forward

    rows, columns = indices("row", "flip_rows"), indices("column", "flip_columns")
    cut = tiles[integer("tile", n)[:, :, None], rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
    turned = torch.where(PATCH.as_images("transpose", draws.patch) < 0.5, cut, cut.mT)
    target = turned.float() / 255
    if pictures.enlarged:
        more = (1 - PATCH("enlarge", draws.patch) / pictures.enlarged).clamp_min(0)
        enlarged = augmentation.enlarge(target, 1 + (augmentation.LARGEST - 1) * more[:, 0])
        target = torch.where(more[:, :, None, None] > 0, enlarged, target)
    if pictures.softened:
        strength = (1 - PATCH.as_images("soften", draws.patch) / pictures.softened).clamp_min(0)
        target = augmentation.soften(target, strength)
    if pictures.sharpened:
        strength = (1 - EXTRA.as_images("sharpen", draws.extra) / pictures.sharpened).clamp_min(0)
        target = augmentation.sharpen(target, 1.5 * strength)
    if pictures.detail:
        drawn = augmentation.draw_detail(target, EXTRA("detail", draws.extra))
        target = torch.where(EXTRA.as_images("is_detail", draws.extra) < pictures.detail, drawn, target)
    if pictures.gratings:
        drawn = augmentation.draw_gratings(PATCH("grating", draws.patch), patch)
        target = torch.where(PATCH.as_images("is_grating", draws.patch) < pictures.gratings, drawn, target)
    return target
