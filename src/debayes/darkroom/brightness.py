"""Keeping brightness: over any wide area, what was developed must have the mean of what was measured.

A network is a little too bright in deep shadows, where noise hides the signal from it, and a mean of encoded values
is a little too dark where they vary. The mosaic knows better: its noise has no mean. So the mean difference between
mosaic and picture, over areas so wide that noise is averaged out, is put back, for each colour by itself.

They are compared where a colour was measured. Pixels between, where it was not, a network makes a little brighter
or darker (some 1e-5 of white, in shadows half a percent): that is taken off as well.
"""

from itertools import groupby

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from debayes.imaging import cfa

# Differences are summed over cells of so many photosites, and cells are averaged with a Gaussian of so many cells:
# the noise that is left in the mean is a hundredth of a photosite's.
CELL = 32
REACH = 2.0

# Networks give photosites of a colour and those of the others slightly different means. Over wide areas scenes have
# no such difference, but for stripes as fine as the grid: so no more than this is taken for a network's.
MOST = 2e-4


class Balance:
    """Differences between the mosaic and the picture, gathered piece by piece."""

    def __init__(self, height: int, width: int, limit: float) -> None:
        """For a picture of this size; towards the limit, above which clipping has a mean, pixels count less."""
        self.rows, self.columns = -(-height // CELL), -(-width // CELL)
        self.limit = limit
        # Of every cell: how much brighter the mosaic is than the picture, and how much brighter all pixels are than
        # those that measured the colour; sums, and the weights that went into both.
        self._sum, self._ahead, self._count = np.zeros((3, 3, self.rows, self.columns))
        self._across: Tensor | None = None  # the means at every column, when they have been asked for
        self.width = width

    def add(
        self, picture: Float[Tensor, "3 h w"], mosaic: Float[Tensor, "1 h w"], pattern: str, top: int, left: int
    ) -> None:
        """Gather a piece: linear colours, the mosaic they were made of, its pattern and its place.

        Whole cells of the pattern count: a row or column that is cut from the other half of its cell does not.
        """
        self._across = None
        down, right = top % 2, left % 2
        height, width = ((size - cut) // 2 * 2 for size, cut in zip(picture.shape[1:], (down, right), strict=True))
        if height <= 0 or width <= 0:
            return
        colors = picture.permute(1, 2, 0)[down : down + height, right : right + width]  # as they lie in memory
        seen = mosaic[0, down : down + height, right : right + width]
        pattern = cfa.shift(pattern, down, right)
        first = min(-(top + down) % CELL, height)
        last = height - (height - first) % CELL
        # the end of a cell, whole cells, the beginning of one
        for start, stop in ((0, first), (first, last), (last, height)):
            if start < stop:
                rows = slice(start, stop)
                self._gather(colors[rows], seen[rows], pattern, top + down + start, left + right)

    def _gather(
        self, colors: Float[Tensor, "n w 3"], mosaic: Float[Tensor, "n w"], pattern: str, top: int, left: int
    ) -> None:
        """Gather rows of whole cells, or some rows of one, summed before anything else is done with them."""
        rows, width = mosaic.shape
        cells = -(-rows // CELL)
        found = colors.reshape(cells, -1, 2, width * 3).mean(1).view(cells, 2, width // 2, 2, 3)
        measured = mosaic.reshape(cells, -1, 2 * width).mean(1).view(cells, 2, width // 2, 2)
        most = colors.reshape(cells, -1, width * 3).amax(1).view(cells, width // 2, 2, 3)
        most = torch.maximum(most[:, :, 0], most[:, :, 1])
        whole = found[:, 0] + found[:, 1]
        whole = (whole[:, :, 0] + whole[:, :, 1]) / 4
        own, true = (torch.empty_like(most) for _ in range(2))
        for i, color in enumerate(cfa.COLORS):
            places = _places(pattern, color)
            own[..., i] = sum(found[:, y, :, x, i] for y, x in places) / len(places)
            true[..., i] = sum(measured[:, y, :, x] for y, x in places) / len(places)
        weight = self.weight(most).mul_(rows // cells)
        columns = np.arange(left, left + width, 2) // CELL
        starts = np.flatnonzero(np.diff(columns, prepend=-1))
        place = (slice(None), slice(top // CELL, top // CELL + cells), slice(columns[0], columns[-1] + 1))
        for sums, values in (
            (self._sum, weight * (true - own)),
            (self._ahead, weight * (whole - own)),
            (self._count, weight),
        ):
            sums[place] += np.add.reduceat(values.numpy(), starts, axis=1, dtype=np.float64).transpose(2, 0, 1)

    def weight(self, picture: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """How much pixels count, and how much of the correction they get: all up to half the limit, none above."""
        return torch.rsub(picture, 2, alpha=2 / self.limit).clamp_(0, 1)

    def means(self) -> Float[Tensor, "3 k l"]:
        """The mean difference around each cell."""
        reach = int(4 * REACH)
        taps = torch.exp(-0.5 * (torch.arange(-reach, reach + 1) / REACH).square())
        sums = np.stack((self._sum, self._ahead, self._count))
        grid = torch.from_numpy(sums.reshape(9, 1, self.rows, self.columns)).float()
        grid = F.conv2d(grid, taps.view(1, 1, -1, 1), padding=(reach, 0))
        total, ahead, count = F.conv2d(grid, taps.view(1, 1, 1, -1), padding=(0, reach)).view(
            3, 3, self.rows, self.columns
        )
        count = count.clamp_min(1)
        means: Tensor = total / count - (ahead / count).clamp(-MOST, MOST)
        return means

    def correct(self, picture: Float[Tensor, "3 h w"], top: int) -> Float[Tensor, "3 h w"]:
        """Whole rows of the picture from `top` on, with the means, interpolated between the cells, added."""
        if self._across is None:
            left, right, share = _between(torch.arange(self.width), self.columns)
            means = self.means().permute(1, 2, 0)  # colours last, as pictures lie in memory that go to a file
            self._across = torch.lerp(means[:, left], means[:, right], share[:, None]).flatten(1)
        above, below, share = _between(torch.arange(top, top + picture.shape[1]), self.rows)
        added = picture.new_empty(picture.shape[1], self.width * 3)
        pairs = list(zip(above.tolist(), below.tolist(), strict=True))
        for (upper, lower), some in groupby(range(len(pairs)), pairs.__getitem__):
            rows = list(some)  # that lie between the same two cells
            part = slice(rows[0], rows[-1] + 1)
            torch.lerp(self._across[upper], self._across[lower], share[part, None], out=added[part])
        shaped = added.view(picture.shape[1], self.width, 3).permute(2, 0, 1)
        return torch.addcmul(picture, self.weight(picture), shaped)


def _places(pattern: str, color: str) -> list[tuple[int, int]]:
    """The rows and columns of a colour in a cell of the pattern."""
    return [divmod(place, 2) for place in range(4) if pattern[place] == color]


def _between(places: Tensor, cells: int) -> tuple[Tensor, Tensor, Tensor]:
    """The two cells whose middles each place lies between, and how far; beyond the outermost there is that one."""
    position = (places + 0.5) / CELL - 0.5
    first = position.floor()
    low, high = (i.long().clamp(0, cells - 1) for i in (first, first + 1))
    return low, high, position - first
