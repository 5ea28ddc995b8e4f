"""Keeping brightness: over any wide area, what was developed must have the mean of what was measured.

A network is a little too bright in deep shadows, where noise hides the signal from it, and a mean of encoded values
is a little too dark where they vary. The mosaic knows better: its noise has no mean. So the mean difference between
mosaic and picture, over areas so wide that noise is averaged out, is put back, for each colour by itself.

They are compared where a colour was measured. Pixels between, where it was not, a network makes a little brighter
or darker (some 1e-5 of white, in shadows half a percent): that is taken off as well.
"""

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from debayes import cfa

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
        # those that measured the colour; sums, and the weights that went into them.
        self._sum, self._count, self._ahead, self._looks = np.zeros((4, 3, self.rows, self.columns))
        self._across: Tensor | None = None  # the means at every column, when they have been asked for
        self.width = width

    def add(
        self, picture: Float[Tensor, "3 h w"], mosaic: Float[Tensor, "1 h w"], pattern: str, top: int, left: int
    ) -> None:
        """Gather a piece: linear colours, the mosaic they were made of, its pattern and its place."""
        self._across = None
        for color, (y, x) in zip(pattern, ((0, 0), (0, 1), (1, 0), (1, 1)), strict=True):
            i = cfa.COLORS.index(color)
            seen = picture[i, y::2, x::2]
            if seen.numel() == 0:
                continue
            weight = self.weight(seen)
            difference = weight * (mosaic[0, y::2, x::2] - seen)
            rows = np.arange(top + y, top + y + 2 * seen.shape[0], 2) // CELL
            columns = np.arange(left + x, left + x + 2 * seen.shape[1], 2) // CELL
            place = (i, slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1))
            self._sum[place] += _sums(difference, rows, columns)
            self._count[place] += _sums(weight, rows, columns)
        self._compare(picture, pattern, top, left)

    def _compare(self, picture: Float[Tensor, "3 h w"], pattern: str, top: int, left: int) -> None:
        """Gather how much brighter all pixels are than those that measured a colour, in two rows of each cell."""
        down, right = top % 2, left % 2  # pairs start where the picture's do, wherever the piece does
        pattern = cfa.shift(pattern, down, right)
        picture = picture[:, down:, right : right + (picture.shape[2] - right) // 2 * 2]
        columns = np.arange(left + right, left + right + picture.shape[2], 2) // CELL
        if len(columns) == 0:
            return
        starts = np.searchsorted(columns, np.arange(columns[0], columns[-1] + 1))
        row = -(top + down) % CELL
        pairs = [picture[:, row + y :: CELL] for y in (0, 1)]
        count = pairs[1].shape[1]
        if count == 0:
            return
        cells = torch.stack([pair[:, :count] for pair in pairs], 2).view(3, count, 2, -1, 2)
        own = torch.stack(
            [
                torch.stack([cells[i, :, y, :, x] for y, x in _places(pattern, color)]).mean(0)
                for i, color in enumerate(cfa.COLORS)
            ]
        )
        weight = self.weight(own)
        ahead = weight * (cells.mean((2, 4)) - own)
        first = (top + down + row) // CELL
        place = (slice(None), slice(first, first + count), slice(columns[0], columns[-1] + 1))
        self._ahead[place] += np.add.reduceat(ahead.numpy(), starts, axis=2)
        self._looks[place] += np.add.reduceat(weight.numpy(), starts, axis=2)

    def weight(self, picture: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """How much pixels count, and how much of the correction they get: all up to half the limit, none above."""
        return (2 - picture * (2 / self.limit)).clamp_(0, 1)

    def means(self) -> Float[Tensor, "3 k l"]:
        """The mean difference around each cell."""
        reach = int(4 * REACH)
        taps = torch.exp(-0.5 * (torch.arange(-reach, reach + 1) / REACH).square())
        sums = np.stack((self._sum, self._count, self._ahead, self._looks))
        grid = torch.from_numpy(sums.reshape(12, 1, self.rows, self.columns)).float()
        grid = F.conv2d(grid, taps.view(1, 1, -1, 1), padding=(reach, 0))
        total, count, ahead, looks = F.conv2d(grid, taps.view(1, 1, 1, -1), padding=(0, reach)).view(
            4, 3, self.rows, self.columns
        )
        means: Tensor = total / count.clamp_min(1) - (ahead / looks.clamp_min(1)).clamp(-MOST, MOST)
        return means

    def correct(self, picture: Float[Tensor, "3 h w"], top: int) -> Float[Tensor, "3 h w"]:
        """Whole rows of the picture from `top` on, with the means, interpolated between the cells, added."""
        if self._across is None:
            left, right, share = _between(torch.arange(self.width), self.columns)
            means = self.means().permute(1, 2, 0)  # colours last, as pictures lie in memory that go to a file
            self._across = torch.lerp(means[:, left], means[:, right], share[:, None]).flatten(1)
        above, below, share = _between(torch.arange(top, top + picture.shape[1]), self.rows)
        first, last = int(above[0]), int(below[-1]) + 1
        # how much of each row of cells is in each row of the picture
        shares = torch.zeros(len(share), last - first)
        shares.scatter_add_(1, (above - first)[:, None], 1 - share[:, None])
        shares.scatter_add_(1, (below - first)[:, None], share[:, None])
        added = (shares @ self._across[first:last]).view(picture.shape[1], self.width, 3)
        return torch.addcmul(picture, self.weight(picture), added.permute(2, 0, 1))


def _places(pattern: str, color: str) -> list[tuple[int, int]]:
    """The rows and columns of a colour in a cell of the pattern."""
    return [divmod(place, 2) for place in range(4) if pattern[place] == color]


def _between(places: Tensor, cells: int) -> tuple[Tensor, Tensor, Tensor]:
    """The two cells whose middles each place lies between, and how far; beyond the outermost there is that one."""
    position = (places + 0.5) / CELL - 0.5
    first = position.floor()
    low, high = (i.long().clamp(0, cells - 1) for i in (first, first + 1))
    return low, high, position - first


def _sums(values: Float[Tensor, "h w"], rows: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.float64]:
    """Sums over the cells whose numbers are given for each row and column, in order."""
    down = values.new_zeros(rows[-1] - rows[0] + 1, len(columns))
    down.index_add_(0, torch.from_numpy(rows - rows[0]), values)
    first = np.searchsorted(columns, np.arange(columns[0], columns[-1] + 1))
    sums: NDArray[np.float64] = np.add.reduceat(down.numpy(), first, axis=1, dtype=np.float64)
    return sums
