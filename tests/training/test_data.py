"""Batches: patches that are pieces of tiles, gratings, noise as asked for."""

import numpy as np
import torch
from scipy import ndimage

from debayes.imaging import cfa
from debayes.training import data
from debayes.training.recipe import Data, Noise


def batch_of(tiles: torch.Tensor, seed: int, *, high: float = 0.0, n: int = 200, patch: int = 8) -> data.Batch:
    uniform, normal = data.draw(n, patch, seed=seed, step=0, generator=torch.Generator())
    return data.make_batch(tiles, uniform, normal, pictures=Data(()), levels=Noise(high=255 * high))


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
        data.draw(2, 4, seed=seed, step=step, generator=torch.Generator())[0]
        for seed, step in ((0, 5), (0, 5), (7, 5), (0, 6))
    )
    assert torch.equal(first, again) and not torch.equal(first, seed) and not torch.equal(first, step)


def test_a_batch_depends_on_its_seed_only() -> None:
    """The same seed gives the same batch; another gives another."""
    tiles = torch.randint(0, 255, (5, 16, 16, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    first, second, third = (batch_of(tiles, seed, high=0.1) for seed in (1, 1, 2))
    assert torch.equal(first.mosaic, second.mosaic) and not torch.equal(first.mosaic, third.mosaic)


def test_gratings_are_stripes_of_two_colours() -> None:
    """Every pixel lies on the line between two colours inside the cube; the finest stripes have their asked pitch
    (the peak of the spectrum), the coarsest are plain."""
    size = 64
    draws = torch.rand(50, data.GRATING_DRAWS, generator=torch.Generator().manual_seed(0))
    drawn = data.draw_gratings(draws, size)
    assert float(drawn.min()) >= 0 and float(drawn.max()) <= 1
    for picture in drawn:
        centred = picture.flatten(1) - picture.flatten(1).mean(1, keepdim=True)
        assert float(torch.linalg.svdvals(centred)[1]) < 1e-3  # one direction of colour only
    contrast = drawn.amax((2, 3)) - drawn.amin((2, 3))
    assert float(contrast.amax(0).min()) > 0.7  # each colour can go from nothing to all
    draws[:, 0], draws[:, 6], draws[:, 5] = 0, 1, 0  # along x, no weave, sines
    draws[:25, 3], draws[25:, 3] = 0, 1
    fine, plain = data.draw_gratings(draws, 100).split(25)
    spectrum = torch.fft.rfft(fine - fine.mean(-1, keepdim=True)).abs().sum((0, 1, 2))
    assert int(spectrum.argmax()) == 40  # 0.4 cycles a pixel
    assert float((plain[..., 1:] - plain[..., :-1]).abs().max()) < 0.01


def test_a_share_of_the_patches_is_drawn() -> None:
    """gratings = 0.3 replaces that share of the patches, and leaves the others as they were."""
    tiles = torch.full((1, 16, 16, 3), 128, dtype=torch.uint8)
    uniform, normal = data.draw(2000, 8, seed=0, step=0, generator=torch.Generator())
    batch = data.make_batch(tiles, uniform, normal, pictures=Data((), gratings=0.3), levels=Noise(high=0.0))
    kept = (batch.target == 128 / 255).flatten(1).all(1)
    assert 0.67 < float(kept.float().mean()) < 0.73


def test_enlarged_pictures_show_their_middle() -> None:
    """A smooth wave enlarged t times is the wave at c + (x - c) / t, c the middle; once as large it is itself."""
    y, x = torch.meshgrid(torch.arange(20.0), torch.arange(24.0), indexing="ij")

    def wave(times: float) -> torch.Tensor:
        row, column = 9.5 + (y - 9.5) / times, 11.5 + (x - 11.5) / times
        return (0.5 + 0.4 * torch.sin(0.4 * row + 0.2 * column)).expand(1, 3, 20, 24)

    found = data.enlarge(wave(1.0).expand(2, 3, 20, 24), torch.tensor((1.0, 1.6)))
    torch.testing.assert_close(found[:1], wave(1.0))
    torch.testing.assert_close(found[1:], wave(1.6), rtol=0, atol=0.015)  # no cubic is the wave


def test_enlarging_is_bicubic() -> None:
    """The matrices' products are what PyTorch's bicubic sampling gives, at the borders too."""
    picture, times = torch.rand(3, 3, 10, 14), torch.tensor((1.0, 1.03, 1.7))
    y, x = (torch.linspace(-1, 1, size) / times[:, None] for size in (10, 14))
    places = torch.stack((x[:, None, :].expand(-1, 10, -1), y[:, :, None].expand(-1, -1, 14)), -1)
    expected = torch.nn.functional.grid_sample(
        picture, places, mode="bicubic", padding_mode="border", align_corners=True
    )
    torch.testing.assert_close(data.enlarge(picture, times), expected.clamp(0, 1), rtol=0, atol=1e-5)


def test_a_share_of_the_patches_is_enlarged() -> None:
    """enlarged = 0.4 changes that share of the patches, and not the others."""
    tiles = torch.randint(0, 255, (2, 16, 16, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    uniform, _ = data.draw(2000, 8, seed=0, step=0, generator=torch.Generator())
    plain, enlarged = (data.cut(tiles, uniform, 8, pictures=Data((), enlarged=share)) for share in (0.0, 0.4))
    assert 0.37 < float((enlarged != plain).flatten(1).any(1).float().mean()) < 0.43


def test_softened_pictures_keep_their_brightness() -> None:
    """Colours are blurred as SciPy's binomial filters blur, times the strength; the Rec. 601 brightness stays."""
    generator = torch.Generator().manual_seed(0)
    picture = 0.4 + 0.2 * torch.rand(3, 3, 20, 24, generator=generator)  # away from black and white
    strength = torch.tensor((0.0, 0.4, 1.0)).view(3, 1, 1, 1)
    softened = data.soften(picture, strength)
    weights = torch.tensor((0.299, 0.587, 0.114)).view(3, 1, 1)
    luma, after = (p.mul(weights).sum(1, keepdim=True) for p in (picture, softened))
    torch.testing.assert_close(after, luma)
    torch.testing.assert_close(softened[0], picture[0])
    colours = (picture - luma).numpy()
    binomial = np.array((1, 4, 6, 4, 1)) / 16
    blurred = ndimage.convolve1d(
        ndimage.convolve1d(colours, binomial, 2, mode="mirror"), binomial, 3, mode="mirror"
    )
    expected = luma + picture.new_tensor(colours + strength.numpy() * (blurred - colours))
    torch.testing.assert_close(softened, expected)
    sharp = torch.zeros(1, 3, 8, 8)
    sharp[:, 0, :, 4:] = 1  # would leave the range
    assert float(data.soften(sharp, torch.ones(1, 1, 1, 1)).min()) >= 0


def test_a_share_of_the_patches_is_softened() -> None:
    """softened = 0.4 changes that share of the patches, by strengths from 0 to 1 alike, and not the others."""
    tiles = torch.randint(0, 255, (2, 16, 16, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    uniform, _ = data.draw(2000, 8, seed=0, step=0, generator=torch.Generator())
    plain, softened = (data.cut(tiles, uniform, 8, pictures=Data((), softened=share)) for share in (0.0, 0.4))
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
    uniform, normal = data.draw(50, 16, seed=0, step=0, generator=torch.Generator(), raw=True)
    noisy = data.make_raw_batch(tiles, uniform, normal, pictures=Data(()), levels=Noise("raw", high=51.0))
    clean = data.make_raw_batch(
        tiles, uniform, torch.zeros_like(normal), pictures=Data(()), levels=Noise("raw", high=0.02)
    )
    assert torch.equal(noisy.observed, cfa.interpolate(noisy.mosaic))
    assert float((clean.mosaic - cfa.mosaic(clean.target)).abs().max()) < 0.05  # two steps of ten bits near black
    assert float((clean.mosaic - cfa.mosaic(clean.target)).abs().mean()) < 0.003
    assert float((noisy.mosaic - cfa.mosaic(noisy.target)).abs().mean()) > 0.02
    assert bool(noisy.mosaic.isfinite().all()) and bool(noisy.target.isfinite().all())


def test_detail_is_fine_and_of_one_hue() -> None:
    """On a grey card every chirp, wave and weave is neutral; its spectrum lies at 0.1 cycles a pixel or above; on a
    coloured card the three colours change together, along one line or in proportion."""
    draws = torch.rand(200, data.DETAIL_DRAWS, generator=torch.Generator().manual_seed(0))
    grey = data.draw_detail(torch.full((200, 3, 64, 64), 0.4), draws)
    assert float((grey - grey.mean(1, keepdim=True)).abs().max()) < 1e-6
    assert float(grey.flatten(1).std(1).min()) > 0.005
    waves = grey[:, 0] - grey[:, 0].mean((1, 2), keepdim=True)
    power = torch.fft.fft2(waves * torch.hann_window(64)[:, None] * torch.hann_window(64)).abs().square()
    frequency = torch.fft.fftfreq(64)
    radius = (frequency[:, None].square() + frequency.square()).sqrt()
    assert float((power * (radius > 0.1)).sum((1, 2)).div(power.sum((1, 2))).median()) > 0.95
    card = torch.tensor((0.5, 0.3, 0.2)).view(3, 1, 1).expand(200, 3, 64, 64)
    colored = data.draw_detail(card, draws)
    unclipped = ((colored > 0) & (colored < 1)).flatten(1).all(1)
    centred = (colored - colored.mean((2, 3), keepdim=True))[unclipped].flatten(2)
    assert int(unclipped.sum()) > 30
    assert float(torch.linalg.svdvals(centred)[:, 1].max()) < 1e-3  # one direction of colour only


def test_shares_of_the_patches_have_detail_and_are_sharpened() -> None:
    """detail = 0.3 draws on that share of the patches and sharpened = 0.4 sharpens that share; the others stay."""
    tiles = torch.randint(100, 155, (2, 32, 32, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    uniform, _ = data.draw(2000, 16, seed=0, step=0, generator=torch.Generator())
    plain = data.cut(tiles, uniform, 16, pictures=Data(()))
    for pictures, share in ((Data((), detail=0.3), 0.3), (Data((), sharpened=0.4), 0.4)):
        changed = (data.cut(tiles, uniform, 16, pictures=pictures) != plain).flatten(1).any(1)
        assert abs(float(changed.float().mean()) - share) < 0.04


def test_sharpening_is_an_unsharp_mask() -> None:
    """The picture plus `strength` times what SciPy's binomial filter takes away; strength 0 changes nothing."""
    picture = 0.4 + 0.1 * torch.rand(2, 3, 12, 14, generator=torch.Generator().manual_seed(0))
    strength = torch.tensor((0.0, 1.5)).view(2, 1, 1, 1)
    binomial = np.array((1, 2, 1)) / 4
    blurred = ndimage.convolve1d(
        ndimage.convolve1d(picture.numpy(), binomial, 2, mode="mirror"), binomial, 3, mode="mirror"
    )
    torch.testing.assert_close(
        data.sharpen(picture, strength), picture + strength * (picture - torch.from_numpy(blurred))
    )


def test_noise_differs_by_color_in_a_share_of_the_patches() -> None:
    """by_color = 0.4: in that share the four photosites of a cell have noise levels of their own, whose largest is
    that of the patch; half of these have photon noise; the other patches have one level."""
    tiles = torch.zeros(1, 64, 64, 3, dtype=torch.uint8)
    tiles[:, :32] = 255
    uniform, normal = data.draw(400, 64, seed=0, step=0, generator=torch.Generator())
    levels = Noise(low=10.0, high=10.0, varying=0.0, by_color=0.4)
    batch = data.make_batch(tiles, uniform, normal, pictures=Data(()), levels=levels)
    cells = cfa.pack(batch.mosaic - cfa.mosaic(batch.target)) * 25.5
    light = cfa.pack(cfa.mosaic(batch.target)) > 0.5
    bright, dark = (((cells.square() * where).sum((2, 3)) / where.sum((2, 3))).sqrt() for where in (light, ~light))
    ratio = bright.amax(1) / bright.amin(1)
    assert abs(float((ratio > 1.2).float().mean()) - 0.4) < 0.08 and float(ratio.max()) > 3
    assert float(bright.max()) < 1.15
    photons = (bright / dark).amin(1) > 1.25
    assert bool((ratio[photons] > 1.05).all()) and 0.05 < float(photons.float().mean()) < 0.25
