"""Batches: patches that are pieces of tiles, gratings, noise as asked for."""

import torch

from debayes.imaging import cfa
from debayes.training import data
from debayes.training.recipe import Data, Noise


def batch_of(tiles: torch.Tensor, seed: int, *, high: float = 0.0, n: int = 200, patch: int = 8) -> data.Batch:
    draws = data.sample_draws(n, patch, seed=seed, step=0, generator=torch.Generator())
    return data.make_batch(tiles, draws, pictures=Data(()), levels=Noise(high=255 * high))


def test_patches_are_pieces_of_tiles_through_all_symmetries() -> None:
    """Each noise-free patch is a crop of its tile turned by one of the eight symmetries; all eight and every
    place occur, and the mosaic is that of the target."""
    size, patch = 10, 8
    # red tells the tile, green the row, blue the column, so a patch shows where it was cut
    grid = torch.arange(size, dtype=torch.uint8).expand(size, size)
    names = [torch.full_like(grid, name) for name in (50, 60, 70)]
    tiles = torch.stack([torch.stack((name, grid.mT, grid), -1) for name in names])
    batch = batch_of(tiles, 0, n=600, patch=patch)
    values = (batch.target * 255).round().long()
    seen = set()
    for red, rows, columns in values:
        assert red.min() == red.max()
        transposed = bool(rows[0, 0] == rows[1, 0])
        if transposed:
            rows, columns = rows.mT, columns.mT
        down, right = int(rows[1, 0] - rows[0, 0]), int(columns[0, 1] - columns[0, 0])
        assert abs(down) == abs(right) == 1
        assert torch.equal(rows, (rows[0, 0] + down * torch.arange(patch))[:, None].expand(patch, patch))
        assert torch.equal(columns, (columns[0, 0] + right * torch.arange(patch)).expand(patch, patch))
        seen.add((int(red[0, 0]), transposed, down, right, int(rows.min()), int(columns.min())))
    assert len({s[1:4] for s in seen}) == 8
    assert {s[4] for s in seen} == {s[5] for s in seen} == {0, 1, 2}
    assert {s[0] for s in seen} == {50, 60, 70}
    assert torch.equal(batch.mosaic, cfa.mosaic(batch.target))
    assert torch.equal(batch.observed, cfa.interpolate(batch.mosaic))


def test_seed_and_step_both_count() -> None:
    """The same seed and step give the same numbers, another of either gives others."""
    first, again, seed, step = (
        data.sample_draws(2, 4, seed=seed, step=step, generator=torch.Generator())[0]
        for seed, step in ((0, 5), (0, 5), (7, 5), (0, 6))
    )
    assert torch.equal(first, again) and not torch.equal(first, seed) and not torch.equal(first, step)


def test_a_batch_depends_on_its_seed_only() -> None:
    """The same seed gives the same batch; another gives another."""
    tiles = torch.randint(0, 255, (5, 16, 16, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    first, second, third = (batch_of(tiles, seed, high=0.1) for seed in (1, 1, 2))
    assert torch.equal(first.mosaic, second.mosaic) and not torch.equal(first.mosaic, third.mosaic)


def test_a_share_of_the_patches_is_drawn() -> None:
    """gratings = 0.3 replaces that share of the patches, and leaves the others as they were."""
    tiles = torch.full((1, 16, 16, 3), 128, dtype=torch.uint8)
    draws = data.sample_draws(2000, 8, seed=0, step=0, generator=torch.Generator())
    batch = data.make_batch(tiles, draws, pictures=Data((), gratings=0.3), levels=Noise(high=0.0))
    kept = (batch.target == 128 / 255).flatten(1).all(1)
    assert 0.67 < float(kept.float().mean()) < 0.73


def test_a_share_of_the_patches_is_enlarged() -> None:
    """enlarged = 0.4 changes that share of the patches, and not the others."""
    tiles = torch.randint(0, 255, (2, 16, 16, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    draws = data.sample_draws(2000, 8, seed=0, step=0, generator=torch.Generator())
    plain, enlarged = (data.cut(tiles, draws, pictures=Data((), enlarged=share)) for share in (0.0, 0.4))
    assert 0.37 < float((enlarged != plain).flatten(1).any(1).float().mean()) < 0.43


def test_a_share_of_the_patches_is_softened() -> None:
    """softened = 0.4 changes that share of the patches, by uniform strengths from 0 to 1, and not the others."""
    tiles = torch.randint(0, 255, (2, 16, 16, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    draws = data.sample_draws(2000, 8, seed=0, step=0, generator=torch.Generator())
    plain, softened = (data.cut(tiles, draws, pictures=Data((), softened=share)) for share in (0.0, 0.4))
    change = (softened - plain).abs().mean((1, 2, 3))
    assert 0.37 < float((change > 0).float().mean()) < 0.43
    changed = change[change > 0]
    assert 0.4 < float(changed.mean() / changed.max()) < 0.6


def test_noise_of_a_batch_is_within_its_range() -> None:
    """The noise level averages to the middle of the range: E[sigma²] lies near that of uniform levels."""
    tiles = torch.full((1, 32, 32, 3), 128, dtype=torch.uint8)
    batch = batch_of(tiles, 3, high=0.1, n=3000, patch=16)
    error = batch.mosaic - cfa.mosaic(batch.target)
    flat = 0.1**2 / 3  # E[sigma²] of a uniform level; maps that vary lie between two such levels, so a bit below
    assert 0.7 * flat < float(error.square().mean()) < 1.05 * flat


def test_raw_batches_are_the_same_scene_twice() -> None:
    """Without noise the mosaic is that of the target, up to the steps of the converter; with noise it is not."""
    tiles = torch.randint(0, 255, (3, 32, 32, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    draws = data.sample_draws(50, 16, seed=0, step=0, generator=torch.Generator(), raw=True)
    noiseless = draws._replace(normal=torch.zeros_like(draws.normal))
    noisy = data.make_raw_batch(tiles, draws, pictures=Data(()), levels=Noise("raw", high=51.0))
    clean = data.make_raw_batch(tiles, noiseless, pictures=Data(()), levels=Noise("raw", high=0.02))
    assert torch.equal(noisy.observed, cfa.interpolate(noisy.mosaic))
    assert float((clean.mosaic - cfa.mosaic(clean.target)).abs().max()) < 0.05  # two steps of ten bits near black
    assert float((clean.mosaic - cfa.mosaic(clean.target)).abs().mean()) < 0.003
    assert float((noisy.mosaic - cfa.mosaic(noisy.target)).abs().mean()) > 0.02
    assert bool(noisy.mosaic.isfinite().all()) and bool(noisy.target.isfinite().all())


def test_shares_of_the_patches_have_detail_and_are_sharpened() -> None:
    """detail = 0.3 draws on that share of the patches and sharpened = 0.4 sharpens that share; the others stay."""
    tiles = torch.randint(100, 155, (2, 32, 32, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    draws = data.sample_draws(2000, 16, seed=0, step=0, generator=torch.Generator())
    plain = data.cut(tiles, draws, pictures=Data(()))
    for pictures, share in ((Data((), detail=0.3), 0.3), (Data((), sharpened=0.4), 0.4)):
        changed = (data.cut(tiles, draws, pictures=pictures) != plain).flatten(1).any(1)
        assert abs(float(changed.float().mean()) - share) < 0.04


def test_noise_differs_by_color_in_a_share_of_the_patches() -> None:
    """by_color = 0.4: in that share the four photosites of a cell have noise levels of their own, whose largest is
    that of the patch; half of these have photon noise; the other patches have one level."""
    tiles = torch.zeros(1, 64, 64, 3, dtype=torch.uint8)
    tiles[:, :32] = 255
    draws = data.sample_draws(400, 64, seed=0, step=0, generator=torch.Generator())
    levels = Noise(low=10.0, high=10.0, varying=0.0, by_color=0.4)
    batch = data.make_batch(tiles, draws, pictures=Data(()), levels=levels)
    cells = cfa.pack(batch.mosaic - cfa.mosaic(batch.target)) * 25.5
    light = cfa.pack(cfa.mosaic(batch.target)) > 0.5
    bright, dark = (((cells.square() * where).sum((2, 3)) / where.sum((2, 3))).sqrt() for where in (light, ~light))
    ratio = bright.amax(1) / bright.amin(1)
    assert abs(float((ratio > 1.2).float().mean()) - 0.4) < 0.08 and float(ratio.max()) > 3
    assert float(bright.max()) < 1.15
    photons = (bright / dark).amin(1) > 1.25
    assert bool((ratio[photons] > 1.05).all()) and 0.05 < float(photons.float().mean()) < 0.25
