"""Recipes for tests."""

from debayes.network.config import Config
from debayes.training.recipe import Data, Loss, Noise, Optimizer, Recipe


def recipe(**optimizer: object) -> Recipe:
    """A small network on tiles of 64 pixels, and an optimizer with some values changed."""
    values: dict[str, object] = {"rate": 4e-3, "warmup": 20, "batch": 8, "patch": 32, "average": 0.95, "steps": 30}
    return Recipe(
        Data(train=("train",), val="train", val_pictures=3, tile=64),
        network=Config(widths=(16, 24), blocks=1, bottom_blocks=1, tail=8, tail_blocks=0),
        noise=Noise(high=20),
        loss=Loss(count=100.0, window=9, gain=5000.0, level=6.0, error_limit=0.3),
        optimizer=Optimizer(**(values | optimizer)),
    )
