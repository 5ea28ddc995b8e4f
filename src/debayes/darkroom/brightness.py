"""Brightness correction: over any wide area, each colour of the picture gets the mean that it has in the mosaic.

A network is slightly too bright in deep shadows, where noise hides the signal, and a mean of encoded values is
slightly too dark where they vary. The mosaic's noise has zero mean. So the mean difference between mosaic and
picture, over areas wide enough to average out the noise, is added to the picture.

The two are compared at the photosites of a colour. At the other pixels a network is slightly brighter or darker
(about 1e-5 of white, half a percent in shadows): that difference is subtracted as well.
"""

from itertools import groupby

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from debayes.imaging import cfa

# Differences are summed over blocks with this many rows and columns, and blocks are averaged with a Gaussian of
# this standard deviation, in blocks: the noise that remains in the mean is a hundredth of a photosite's.
BLOCK = 32
SMOOTHING = 2.0

# Networks give the photosites of a colour and the other pixels slightly different means. Over wide areas scenes
# have no such difference, except stripes as fine as the pattern: a larger difference than this is the scene's.
MAX_PIXEL_DIFFERENCE = 2e-4


class Balance:
    """The differences between a mosaic and its picture, added up piece by piece."""

    def __init__(self, height: int, width: int, limit: float) -> None:
        """For a picture of this size. Pixels near the limit, above which the sensor clips noise, count less."""
        self.rows, self.columns = -(-height // BLOCK), -(-width // BLOCK)
        self.limit = limit
        # For every block: how much brighter the mosaic is than the picture, and how much brighter all pixels are
        # than the photosites of their colour; weighted sums, and the sums of the weights.
        self._mosaic_difference, self._pixel_difference, self._weight = np.zeros((3, 3, self.rows, self.columns))
        self._across: Tensor | None = None  # the means at every column, computed by the first `correct`
        self.width = width

    def add(
        self, picture: Float[Tensor, "3 h w"], mosaic: Float[Tensor, "1 h w"], pattern: str, top: int, left: int
    ) -> None:
        """Add a piece: linear colours, the mosaic they were restored from, its pattern, and its top left.

        Only whole cells of the pattern count.
        """
        self._across = None
        down, right = top % 2, left % 2
        height, width = ((size - cut) // 2 * 2 for size, cut in zip(picture.shape[1:], (down, right), strict=True))
        if height <= 0 or width <= 0:
            return
        colors = picture.permute(1, 2, 0)[down : down + height, right : right + width]  # in the order of memory
        measured = mosaic[0, down : down + height, right : right + width]
        pattern = cfa.shift(pattern, down, right)
        first = min(-(top + down) % BLOCK, height)
        last = height - (height - first) % BLOCK
        # the last rows of a block, whole blocks, the first rows of a block
        for start, stop in ((0, first), (first, last), (last, height)):
            if start < stop:
                rows = slice(start, stop)
                self._add_rows(colors[rows], measured[rows], pattern, top + down + start, left + right)

    def _add_rows(
        self, colors: Float[Tensor, "n w 3"], mosaic: Float[Tensor, "n w"], pattern: str, top: int, left: int
    ) -> None:
        """Add rows of whole blocks, or some rows of one block: rows are averaged first, to have less to do."""
        rows, width = mosaic.shape
        blocks = -(-rows // BLOCK)
        picture = colors.reshape(blocks, -1, 2, width * 3).mean(1).view(blocks, 2, width // 2, 2, 3)
        measured = mosaic.reshape(blocks, -1, 2 * width).mean(1).view(blocks, 2, width // 2, 2)
        brightest = colors.reshape(blocks, -1, width * 3).amax(1).view(blocks, width // 2, 2, 3)
        brightest = torch.maximum(brightest[:, :, 0], brightest[:, :, 1])
        all_pixels = picture[:, 0] + picture[:, 1]
        all_pixels = (all_pixels[:, :, 0] + all_pixels[:, :, 1]) / 4
        at_photosites, photosites = (torch.empty_like(brightest) for _ in range(2))
        for i, color in enumerate(cfa.COLORS):
            places = _places(pattern, color)
            at_photosites[..., i] = sum(picture[:, y, :, x, i] for y, x in places) / len(places)
            photosites[..., i] = sum(measured[:, y, :, x] for y, x in places) / len(places)
        weight = self.weight(brightest).mul_(rows // blocks)
        columns = np.arange(left, left + width, 2) // BLOCK
        starts = np.flatnonzero(np.diff(columns, prepend=-1))
        place = (slice(None), slice(top // BLOCK, top // BLOCK + blocks), slice(columns[0], columns[-1] + 1))
        for sums, values in (
            (self._mosaic_difference, weight * (photosites - at_photosites)),
            (self._pixel_difference, weight * (all_pixels - at_photosites)),
            (self._weight, weight),
        ):
            sums[place] += np.add.reduceat(values.numpy(), starts, axis=1, dtype=np.float64).transpose(2, 0, 1)

    def weight(self, picture: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """The weight of pixels in the means, and the share of the correction that they get: 1 up to half the limit,
        then falling to 0 at the limit.
        """
        return torch.rsub(picture, 2, alpha=2 / self.limit).clamp_(0, 1)

    def means(self) -> Float[Tensor, "3 k l"]:
        """The mean difference around each block."""
        reach = int(4 * SMOOTHING)
        taps = torch.exp(-0.5 * (torch.arange(-reach, reach + 1) / SMOOTHING).square())
        sums = np.stack((self._mosaic_difference, self._pixel_difference, self._weight))
        grid = torch.from_numpy(sums.reshape(9, 1, self.rows, self.columns)).float()
        grid = F.conv2d(grid, taps.view(1, 1, -1, 1), padding=(reach, 0))
        mosaic, pixels, weight = F.conv2d(grid, taps.view(1, 1, 1, -1), padding=(0, reach)).view(
            3, 3, self.rows, self.columns
        )
        weight = weight.clamp_min(1)
        means: Tensor = mosaic / weight - (pixels / weight).clamp(-MAX_PIXEL_DIFFERENCE, MAX_PIXEL_DIFFERENCE)
        return means

    def correct(self, picture: Float[Tensor, "3 h w"], top: int) -> Float[Tensor, "3 h w"]:
        """Corrected rows: whole rows of the picture from `top` on, plus the mean differences, interpolated between
        blocks.
        """
        if self._across is None:
            left, right, share = _between(torch.arange(self.width), self.columns)
            means = self.means().permute(1, 2, 0)  # colours last in memory, as in files
            self._across = torch.lerp(means[:, left], means[:, right], share[:, None]).flatten(1)
        above, below, share = _between(torch.arange(top, top + picture.shape[1]), self.rows)
        added = picture.new_empty(picture.shape[1], self.width * 3)
        pairs = list(zip(above.tolist(), below.tolist(), strict=True))
        for (upper, lower), group in groupby(range(len(pairs)), pairs.__getitem__):
            rows = list(group)  # all between the same two blocks
            part = slice(rows[0], rows[-1] + 1)
            torch.lerp(self._across[upper], self._across[lower], share[part, None], out=added[part])
        shaped = added.view(picture.shape[1], self.width, 3).permute(2, 0, 1)
        return torch.addcmul(picture, self.weight(picture), shaped)


def _places(pattern: str, color: str) -> list[tuple[int, int]]:
    """The rows and columns of a colour in a cell of the pattern."""
    return [divmod(place, 2) for place in range(4) if pattern[place] == color]


def _between(places: Tensor, blocks: int) -> tuple[Tensor, Tensor, Tensor]:
    """For each place, the blocks whose centres lie before and after it, and the weight of the second in an
    interpolation.
    """
    position = (places + 0.5) / BLOCK - 0.5
    first = position.floor()
    low, high = (i.long().clamp(0, blocks - 1) for i in (first, first + 1))
    return low, high, position - first
