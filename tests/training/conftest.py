"""Pictures that the tests of training train on."""

from pathlib import Path

import pytest
from PIL import Image
from skimage import data


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """A handful of tiles of a free photograph."""
    folder = tmp_path / "data" / "train"
    folder.mkdir(parents=True)
    for i, tile in enumerate(
        data.coffee()[:256, 128:384].reshape(4, 64, 4, 64, 3).swapaxes(1, 2)[1:3].reshape(-1, 64, 64, 3)
    ):
        Image.fromarray(tile).save(folder / f"{i}.png")
    return folder.parent
