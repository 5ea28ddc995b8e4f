"""Compute the filters that the noise profile is estimated with: python recipes/directions.py DATA/train/free-0.zip

Takes windows of noise-free simulated raws of tiles under free licences, subtracts the mean of each colour, and
weights them so that windows with much detail do not dominate. Writes the eigenvectors of their covariance, from the
least energy in pictures to the most, without the last ones: slopes and edges.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from debayes.imaging import cfa, noise_profile, virtual_camera
from debayes.system import files
from debayes.training import tiles

# Number of batches, tiles per batch, and the distance between windows.
BATCHES, BATCH, STEP = 120, 8, 6

# Number of directions kept, and the variance, relative to squared brightness, below which windows gain no weight.
KEPT, PLAIN = 46, 1e-3


def main() -> None:
    """Write the filters."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tiles", type=Path, nargs="+", help="stores of training tiles")
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("src/debayes/imaging/directions.npy"), help="NPY file"
    )
    options = parser.parse_args()
    store = tiles.Store(options.tiles, size=256)
    found = directions(covariance(store.block(0)))
    with files.replace(options.output) as temporary, temporary.open("wb") as file:
        np.save(file, found[:KEPT].float().view(KEPT, noise_profile.WINDOW, noise_profile.WINDOW).numpy())


def covariance(tiles: Tensor) -> Tensor:
    """The covariance of the photosites of a window after subtracting the mean of each colour."""
    side = noise_profile.WINDOW
    masks = cfa.masks("RGGB", side, side).flatten(1).double()
    generator = torch.Generator().manual_seed(0)
    total = torch.zeros(side**2, side**2, dtype=torch.float64)
    for batch in range(BATCHES):
        picture = tiles[torch.randint(len(tiles), (BATCH,), generator=generator)].permute(0, 3, 1, 2).float() / 255
        draws = torch.rand(BATCH, virtual_camera.SHOT.width, generator=generator)
        none = torch.zeros(BATCH, 2, *picture.shape[2:])
        shot = virtual_camera.shoot(picture.mT if batch % 2 else picture, draws, none, high=0.01)
        mosaic = cfa.mosaic(shot.clean).double()
        windows = mosaic.unfold(2, side, STEP).unfold(3, side, STEP).reshape(-1, side**2)
        windows = windows[(windows.amax(1) < 0.9) & (windows.mean(1) > 0.004)]
        windows = windows / windows.mean(1, keepdim=True)
        windows = windows - (windows @ masks.T / masks.sum(1)) @ masks
        total += (windows / (windows.var(1, keepdim=True) + PLAIN)).T @ windows / len(windows)
    return total


def directions(covariance: Tensor) -> Tensor:
    """The eigenvectors of a covariance of windows as rows, smallest eigenvalue first, without uniform colours."""
    masks = cfa.masks("RGGB", noise_profile.WINDOW, noise_profile.WINDOW).flatten(1).double()
    plain = masks / masks.sum(1, keepdim=True).sqrt()
    values, vectors = torch.linalg.eigh(torch.eye(len(covariance)).double() - plain.T @ plain)
    basis = vectors[:, values > 0.5]
    found: Tensor = basis @ torch.linalg.eigh(basis.T @ covariance @ basis).eigenvectors
    return found.T


if __name__ == "__main__":
    main()
