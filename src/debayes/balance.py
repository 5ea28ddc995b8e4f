"""Keeping brightness: over any wide area, what was developed must have the mean of what was measured.

A network is a little too bright in deep shadows, where noise hides the signal from it, and a mean of encoded values
is a little too dark where they vary. The mosaic knows better: its noise has no mean. So the mean difference between
mosaic and picture, over areas so wide that noise is averaged out, is put back, for each colour by itself.
"""

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from debayes import cfa

# Differences are summed over cells of so many photosites, and cells are averaged with a Gaussian of so many cells:
# the noise that is left in the mean is a hundredth of a photosite's.
CELL = 32
REACH = 2.0


class Balance:
    """Differences between the mosaic and the picture, gathered piece by piece."""

    def __init__(self, height: int, width: int, limit: float) -> None:
        """For a picture of this size; towards the limit, above which clipping has a mean, pixels count less."""
        self.rows, self.columns = -(-height // CELL), -(-width // CELL)
        self.limit = limit
        self._sum = np.zeros((3, self.rows * self.columns))
        self._count = np.zeros((3, self.rows * self.columns))

    def add(
        self, picture: Float[Tensor, "3 h w"], mosaic: Float[Tensor, "1 h w"], pattern: str, top: int, left: int
    ) -> None:
        """Gather a piece: linear colours, the mosaic they were made of, its pattern and its place."""
        _, height, width = mosaic.shape
        rows = (torch.arange(top, top + height) // CELL).view(-1, 1)
        cells = rows * self.columns + torch.arange(left, left + width) // CELL
        for i, mask in enumerate(cfa.masks(pattern, height, width)):
            weight = self.weight(picture[i][mask]).double().numpy()
            difference = (mosaic[0][mask] - picture[i][mask]).double().numpy()
            place = cells[mask].numpy()
            self._sum[i] += np.bincount(place, weight * difference, self._sum.shape[1])
            self._count[i] += np.bincount(place, weight, self._sum.shape[1])

    def weight(self, picture: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """How much pixels count, and how much of the correction they get: all up to half the limit, none above."""
        return (2 - 2 * picture / self.limit).clamp(0, 1)

    def means(self) -> Float[Tensor, "3 k l"]:
        """The mean difference around each cell."""
        reach = int(4 * REACH)
        taps = torch.exp(-0.5 * (torch.arange(-reach, reach + 1) / REACH).square())
        grid = torch.from_numpy(np.stack((self._sum, self._count)).reshape(6, 1, self.rows, self.columns)).float()
        grid = F.conv2d(grid, taps.view(1, 1, -1, 1), padding=(reach, 0))
        total, count = F.conv2d(grid, taps.view(1, 1, 1, -1), padding=(0, reach)).view(
            2, 3, self.rows, self.columns
        )
        means: Tensor = total / count.clamp_min(1)
        return means

    def correct(self, picture: Float[Tensor, "3 h w"], top: int) -> Float[Tensor, "3 h w"]:
        """Whole rows of the picture from `top` on, with the means, interpolated between the cells, added."""
        _, height, width = picture.shape
        y, x = (torch.arange(0.5, size) for size in (height, width))
        places = torch.meshgrid(
            2 * (top + y) / (CELL * self.rows) - 1, 2 * x / (CELL * self.columns) - 1, indexing="ij"
        )
        grid = torch.stack(places[::-1], -1)[None]
        added = F.grid_sample(self.means()[None], grid, padding_mode="border", align_corners=False)[0]
        return picture + self.weight(picture) * added
