"""Augmentation: gratings, detail, enlarging, softening and sharpening, each against an independent computation."""

import numpy as np
import torch
from scipy import ndimage

from debayes.training import augmentation


def test_gratings_are_stripes_of_two_colours() -> None:
    """Every pixel lies on the line between two colours inside the cube; the finest stripes have their asked pitch
    (the peak of the spectrum), the coarsest are plain."""
    size = 64
    draws = torch.rand(50, augmentation.GRATING.width, generator=torch.Generator().manual_seed(0))
    drawn = augmentation.draw_gratings(draws, size)
    assert float(drawn.min()) >= 0 and float(drawn.max()) <= 1
    for picture in drawn:
        centred = picture.flatten(1) - picture.flatten(1).mean(1, keepdim=True)
        assert float(torch.linalg.svdvals(centred)[1]) < 1e-3  # one direction of colour only
    contrast = drawn.amax((2, 3)) - drawn.amin((2, 3))
    assert float(contrast.amax(0).min()) > 0.7  # each colour can go from nothing to all
    for name, value in {"angle": 0, "weave": 1, "steepness": 0}.items():  # along x, no weave, sines
        augmentation.GRATING(name, draws).fill_(value)
    augmentation.GRATING("pitch", draws[:25]).fill_(0)
    augmentation.GRATING("pitch", draws[25:]).fill_(1)
    fine, plain = augmentation.draw_gratings(draws, 100).split(25)
    spectrum = torch.fft.rfft(fine - fine.mean(-1, keepdim=True)).abs().sum((0, 1, 2))
    assert int(spectrum.argmax()) == 40  # 0.4 cycles a pixel
    assert float((plain[..., 1:] - plain[..., :-1]).abs().max()) < 0.01


def test_enlarged_pictures_show_their_middle() -> None:
    """A smooth wave enlarged t times is the wave at c + (x - c) / t, c the middle; once as large it is itself."""
    y, x = torch.meshgrid(torch.arange(20.0), torch.arange(24.0), indexing="ij")

    def wave(times: float) -> torch.Tensor:
        row, column = 9.5 + (y - 9.5) / times, 11.5 + (x - 11.5) / times
        return (0.5 + 0.4 * torch.sin(0.4 * row + 0.2 * column)).expand(1, 3, 20, 24)

    found = augmentation.enlarge(wave(1.0).expand(2, 3, 20, 24), torch.tensor((1.0, 1.6)))
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
    torch.testing.assert_close(augmentation.enlarge(picture, times), expected.clamp(0, 1), rtol=0, atol=1e-5)


def test_softened_pictures_keep_their_brightness() -> None:
    """Colours are blurred as SciPy's binomial filters blur, times the strength; the Rec. 601 brightness stays."""
    generator = torch.Generator().manual_seed(0)
    picture = 0.4 + 0.2 * torch.rand(3, 3, 20, 24, generator=generator)  # away from black and white
    strength = torch.tensor((0.0, 0.4, 1.0)).view(3, 1, 1, 1)
    softened = augmentation.soften(picture, strength)
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
    assert float(augmentation.soften(sharp, torch.ones(1, 1, 1, 1)).min()) >= 0


def test_detail_is_fine_and_of_one_hue() -> None:
    """On a grey card every chirp, wave and weave is neutral; its spectrum lies at 0.1 cycles a pixel or above; on a
    coloured card the three colours change together, along one line or in proportion."""
    draws = torch.rand(200, augmentation.DETAIL.width, generator=torch.Generator().manual_seed(0))
    grey = augmentation.draw_detail(torch.full((200, 3, 64, 64), 0.4), draws)
    assert float((grey - grey.mean(1, keepdim=True)).abs().max()) < 1e-6
    assert float(grey.flatten(1).std(1).min()) > 0.005
    waves = grey[:, 0] - grey[:, 0].mean((1, 2), keepdim=True)
    power = torch.fft.fft2(waves * torch.hann_window(64)[:, None] * torch.hann_window(64)).abs().square()
    frequency = torch.fft.fftfreq(64)
    radius = (frequency[:, None].square() + frequency.square()).sqrt()
    assert float((power * (radius > 0.1)).sum((1, 2)).div(power.sum((1, 2))).median()) > 0.95
    card = torch.tensor((0.5, 0.3, 0.2)).view(3, 1, 1).expand(200, 3, 64, 64)
    colored = augmentation.draw_detail(card, draws)
    unclipped = ((colored > 0) & (colored < 1)).flatten(1).all(1)
    centred = (colored - colored.mean((2, 3), keepdim=True))[unclipped].flatten(2)
    assert int(unclipped.sum()) > 30
    assert float(torch.linalg.svdvals(centred)[:, 1].max()) < 1e-3  # one direction of colour only


def test_sharpening_is_an_unsharp_mask() -> None:
    """The picture plus `strength` times what SciPy's binomial filter takes away; strength 0 changes nothing."""
    picture = 0.4 + 0.1 * torch.rand(2, 3, 12, 14, generator=torch.Generator().manual_seed(0))
    strength = torch.tensor((0.0, 1.5)).view(2, 1, 1, 1)
    binomial = np.array((1, 2, 1)) / 4
    blurred = ndimage.convolve1d(
        ndimage.convolve1d(picture.numpy(), binomial, 2, mode="mirror"), binomial, 3, mode="mirror"
    )
    torch.testing.assert_close(
        augmentation.sharpen(picture, strength), picture + strength * (picture - torch.from_numpy(blurred))
    )
