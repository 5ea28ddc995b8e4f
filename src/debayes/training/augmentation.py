"""What training does to pictures beside noise: drawn gratings and detail, enlarging, softening, sharpening.

All functions take and return batches with 0 = black and 1 = white, and are pure functions of their draws, so that
a training step can be compiled around them.
"""

from collections.abc import Callable
from math import pi

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from debayes.imaging.draws import Columns

# The uniform random numbers of `draw_gratings` and `draw_detail`.
GRATING = Columns(
    angle=1, phase=1, second_phase=1, pitch=1, second_pitch=1, steepness=1, weave=1, first_color=3, second_color=3
)
DETAIL = Columns(
    angle=1,
    second_angle=1,
    phase=1,
    second_phase=1,
    frequency=1,
    second_frequency=1,
    center_y=1,
    center_x=1,
    is_chirp=1,
    is_sharp=1,
    is_sum=1,
    multiplies=1,
    contrast=1,
    is_grey=1,
    blend=1,
    level=1,
    offset=1,
)

# The factor by which patches are enlarged at most.
LARGEST = 1.7


def draw_gratings(draws: Float[Tensor, "b 13"], size: int) -> Float[Tensor, "b 3 {size} {size}"]:
    """Stripes, weaves, edges and plain areas of two random colours, one for each row of draws (`GRATING`).

    The pitch runs from 2.5 pixels, where moire begins, to a thousand, of which a patch sees an edge or nothing. The
    flanks run from those of a sine to those of a sharp edge, never steeper than the grid can carry.
    """

    def column(name: str) -> Tensor:
        return GRATING(name, draws)[:, :, None]

    angle = column("angle")
    y = torch.arange(size, device=draws.device).view(-1, 1)
    x = torch.arange(size, device=draws.device)
    sine, cosine = (2 * pi * angle).sin(), (2 * pi * angle).cos()

    def wave(along: Tensor, phase: Tensor, pitch: Tensor) -> Tensor:
        frequency = 0.4 * 10 ** (-2.6 * pitch)
        flank = 0.3 + column("steepness") * 0.3 / frequency
        return torch.tanh(flank * (2 * pi * (frequency * along + phase)).sin()) / torch.tanh(flank)

    stripes = wave(x * cosine + y * sine, column("phase"), column("pitch"))
    crossed = stripes * wave(y * cosine - x * sine, column("second_phase"), column("second_pitch"))
    share = 0.5 + 0.5 * torch.where(column("weave") < 0.3, crossed, stripes).unsqueeze(1)
    first, second = GRATING.as_images("first_color", draws), GRATING.as_images("second_color", draws)
    return first + (second - first) * share


def enlarge(picture: Float[Tensor, "b 3 h w"], times: Float[Tensor, " b"]) -> Float[Tensor, "b 3 h w"]:
    """The centre of the pictures, enlarged (bicubic) to their size.

    Tiles are downscaled photographs, chosen for their detail: sharper than most pictures are at full size.
    """
    rows, columns = (_enlarging(size, times)[:, None] for size in picture.shape[-2:])
    return (rows @ picture @ columns.mT).clamp(0, 1)


def _enlarging(size: int, times: Float[Tensor, " b"]) -> Float[Tensor, "b {size} {size}"]:
    """Matrices that enlarge the centre of a row by cubic convolution with a = -0.75.

    As matrix products, because torch.compile would compute the sixteen taps of a pixel again for every use.
    """
    center = (size - 1) / 2
    position = torch.arange(size, device=times.device)
    source = center + (position - center) / times[:, None]
    # one more column at either end, which repeats the border
    distance = (source[:, :, None] - torch.arange(-1, size + 1, device=times.device)).abs()
    near = (1.25 * distance - 2.25) * distance.square() + 1
    far = ((-0.75 * distance + 3.75) * distance - 6) * distance + 3
    taps = torch.where(distance < 1, near, torch.where(distance < 2, far, 0.0))
    first, last = ((position == end).to(taps) for end in (0, size - 1))
    matrix: Tensor = taps[..., 1:-1] + taps[..., :1] * first + taps[..., -1:] * last
    return matrix


def soften(picture: Float[Tensor, "b 3 h w"], strength: Float[Tensor, "b 1 1 1"]) -> Float[Tensor, "b 3 h w"]:
    """The pictures with blurred colours and sharp brightness; `strength` 1 is the blur of a 4:2:0 JPEG.

    Most pictures are stored like this, scans on Photo CDs too; downscaled photographs have colours as sharp as
    their brightness.
    """
    red, green, blue = picture.chunk(3, 1)
    colors = picture - (0.299 * red + 0.587 * green + 0.114 * blue)
    blurred = F.pad(colors, (2, 2, 2, 2), mode="reflect")
    for axis in (2, 3):
        a, b, c, d, e = (blurred.narrow(axis, i, picture.shape[axis]) for i in range(5))
        blurred = (a + 4 * b + 6 * c + 4 * d + e) / 16
    return (picture + strength * (blurred - colors)).clamp(0, 1)


def draw_detail(picture: Float[Tensor, "b 3 h w"], draws: Float[Tensor, "b 17"]) -> Float[Tensor, "b 3 h w"]:
    """Fine detail of one hue on the blurred colours of each patch: chirps, plane waves, bars and weaves (`DETAIL`).

    Frequencies go from 0.15 to 0.5 cycles per pixel along the axis where they are higher, up to 0.7 on diagonals.
    In photographs, detail near the Nyquist frequency is nearly always neutral or of one hue; the mosaic alone
    cannot tell it from coloured stripes. The same waves are added to all three colours, or multiply them.
    """

    def column(name: str) -> Tensor:
        return DETAIL(name, draws)[:, :, None]

    height, width = picture.shape[-2:]
    waves = _detail_waves(column, height, width, picture.device).unsqueeze(1)
    plain = _blurred_colors(column, picture)
    contrast = column("contrast").unsqueeze(1)
    added = plain + (0.03 + 0.47 * contrast) * waves
    multiplied = plain * (1 + (0.1 + 0.9 * contrast) * waves)
    return torch.where(column("multiplies").unsqueeze(1) < 0.5, multiplied, added).clamp(0, 1)


def _detail_waves(
    column: Callable[[str], Tensor], height: int, width: int, device: torch.device
) -> Float[Tensor, "b {height} {width}"]:
    """The waves of `draw_detail`, from -1 to 1."""
    y = torch.arange(height, device=device).view(-1, 1)
    x = torch.arange(width, device=device)
    phase, frequency = column("phase"), column("frequency")

    def wave(angle: Tensor, phase: Tensor, frequency: Tensor) -> Tensor:
        cosine, sine = (2 * pi * angle).cos(), (2 * pi * angle).sin()
        along = (x * cosine + y * sine) / torch.maximum(cosine.abs(), sine.abs())
        return (2 * pi * ((0.15 + 0.35 * frequency) * along + phase)).cos()

    # cos(pi k r²) has the frequency k (x, y): with this k the farthest edge has the drawn frequency
    down, right = y - (5 * column("center_y") - 2) * height, x - (5 * column("center_x") - 2) * width
    farthest = torch.maximum(down.abs().amax((1, 2), keepdim=True), right.abs().amax((1, 2), keepdim=True))
    squares = down.square() + right.square()
    chirp = (pi * (0.15 + 0.35 * frequency) / farthest * squares + 2 * pi * phase).cos()
    first = torch.where(column("is_chirp") < 0.5, chirp, wave(column("angle"), phase, frequency))
    second = wave(column("second_angle"), column("second_phase"), column("second_frequency"))
    waves = torch.where(column("is_sum") < 0.35, (first + second) / 2, first)
    return torch.where(column("is_sharp") < 0.3, (4 * waves).clamp(-1, 1), waves)


def _blurred_colors(column: Callable[[str], Tensor], picture: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b 3 h w"]:
    """The colours of `draw_detail`: means of 16x16 pixels, blended with grey."""
    height, width = picture.shape[-2:]
    small = F.adaptive_avg_pool2d(picture, (max(1, height // 16), max(1, width // 16)))
    plain = F.interpolate(small, (height, width), mode="bilinear", align_corners=False)
    level, offset = column("level").unsqueeze(1), column("offset").unsqueeze(1)
    grey = plain.mean(1, keepdim=True) * (1 - offset) + level * offset
    share = torch.where(column("is_grey") < 0.3, 1.0, column("blend")).unsqueeze(1)
    return plain + share * (grey - plain)


def sharpen(picture: Float[Tensor, "b 3 h w"], strength: Float[Tensor, "b 1 1 1"]) -> Float[Tensor, "b 3 h w"]:
    """The pictures plus `strength` times their difference from a 3x3 blur: an unsharp mask, as cameras apply."""
    blurred = F.pad(picture, (1, 1, 1, 1), mode="reflect")
    for axis in (2, 3):
        a, b, c = (blurred.narrow(axis, i, picture.shape[axis]) for i in range(3))
        blurred = (a + 2 * b + c) / 4
    return (picture + strength * (picture - blurred)).clamp(0, 1)
