"""Names for random numbers: a matrix of uniform draws has a row per item, and its columns have names."""

from itertools import accumulate

from jaxtyping import Float
from torch import Tensor


class Columns:
    """The layout of a matrix of draws: `Columns(angle=1, color=3)` names the first column and the next three.

    Called with a name and the matrix, it returns these columns: a view, so that tests can set them.
    """

    def __init__(self, **widths: int) -> None:
        ends = list(accumulate(widths.values()))
        self._slices = dict(zip(widths, map(slice, [0, *ends], ends), strict=False))
        self.width = ends[-1]
        """How many columns there are."""

    def __call__(self, name: str, draws: Float[Tensor, "b n"]) -> Float[Tensor, "b m"]:
        """The columns of this name."""
        return draws[:, self._slices[name]]

    def as_images(self, name: str, draws: Float[Tensor, "b n"]) -> Float[Tensor, "b m 1 1"]:
        """The columns of this name, shaped to broadcast with images (b, m, h, w)."""
        return self(name, draws)[:, :, None, None]
