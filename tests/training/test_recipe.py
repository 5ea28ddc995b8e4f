"""Recipes: those of the project are valid, changes reach them, mistakes are named."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from debayes.network import weights
from debayes.training.recipe import Loss, Noise, read_recipe, stored_noise, stored_recipe

RECIPES = sorted((Path(__file__).parent.parent.parent / "recipes").glob("*.toml"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda p: p.stem)
def test_recipes_are_read(path: Path) -> None:
    """Every recipe of the project is valid, and its first comment is the command that runs it."""
    plan = read_recipe(path)
    assert plan.data.train
    assert path.read_text().startswith(f"# debayes train recipes/{path.name} ")


def test_changes() -> None:
    """--set reaches every table, with TOML's types."""
    changes = ["optimizer.minutes=5", 'loss.kind="l1"', "network.widths=[16,32]"]
    plan = read_recipe(RECIPES[-1], changes)
    assert (plan.optimizer.minutes, plan.loss.kind, plan.network.widths) == (5, "l1", (16, 32))
    plan = read_recipe(RECIPES[-1], ["loss.kind=l1", "start="])  # a shell took the quotes
    assert (plan.loss.kind, plan.start) == ("l1", "")


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("kodak24", ("kodak24",)),
        ("a/b.zip", ("a/b.zip",)),
        ('"one name"', ("one name",)),
        ("[a, b/c.zip]", ("a", "b/c.zip")),
        ('["a", "b, c"]', ("a", "b, c")),
    ],
)
def test_changes_of_a_list(value: str, names: tuple[str, ...]) -> None:
    """A single value is a list of one; a list may have lost its quotes to a shell."""
    assert read_recipe(RECIPES[-1], [f"data.train={value}"]).data.train == names
    assert read_recipe(RECIPES[-1], ["network.widths=16"]).network.widths == (16,)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("optimizer.steps", "'optimizer.steps' does not change a recipe"),
        ("=5", "'=5' does not change a recipe"),
        ("data.val.y=5", "'data.val.y=5' does not change a recipe"),
        ("optimizer.steps=abc", "steps must be of type int, not 'abc'"),
        ("optimizer.steps=10", "set the other to 0: they are 10 and"),
    ],
)
def test_mistakes_in_changes(change: str, message: str) -> None:
    """What is wrong with --set is said of it, not of the recipe."""
    with pytest.raises(ValueError, match=message):
        read_recipe(RECIPES[-1], [change])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[data]\ntrain = ['x']\n[optimizer]\nsteps = 1\nlr = 1",
            "unknown key 'lr'; the keys are rate, muon, centralise_every",
        ),
        ("[data]\ntrain = ['x']\n[model]\nx = 1", "unknown key 'model'"),
        ("[optimizer]\nsteps = 1", r"a recipe needs a table \[data\]"),
        ("[data]\ntrain = []\n[optimizer]\nsteps = 1", "at least one folder or zip"),
        ("[data]\ntrain = [1]\n[optimizer]\nsteps = 1", "must be a list of str"),
        ("[data]\ntrain = ['x']\n[optimizer]\nsteps = 1\nminutes = -1", "minutes must be from 0"),
        ("[data]\ntrain = ['x']\n[optimizer]\nminutes = nan", "minutes must be from 0 to 1e.09, not nan"),
        ("[data]\ntrain = ['x']\n[optimizer]\nsteps = 1\nwarmup = -5", "warmup must be 0 or more, not -5"),
        ("[data]\ntrain = ['x']\n[optimizer]\nsteps = 1\nseed = -1", "seed must be from 0"),
        ("[data]\ntrain = ['x']\n[optimizer]\nsteps = 1\n[loss]\nwindow = 8", "window must be odd, not 8"),
        ("[data]\ntrain = ['x']\n[optimizer]\nsteps = 1\n[loss]\ncount = 0", "count must be from 1e-06"),
        ("[data]\ntrain = ['x']\n[optimizer]\nsteps = 1\n[network]\nwidths = [8, 0]", "widths must be 1 or more"),
        ("[data]\ntrain = ['x']\n[optimizer]\nsteps = 1\n[network]\nwidths = ['a']", "must be a list of int"),
        ("[data]\ntrain = ['x']\n[optimizer]\nsteps = 1\n[network]\ntail = 0", "tail must be 1 or more, not 0"),
        ("[data]\ntrain = ['x']\n[optimizer]\nsteps = 1\n[network]\ncount = 0", "count must be above 0"),
        (
            "[data]\ntrain = ['x']\nval = 'v'\n[optimizer]\nsteps = 1\nrate = 0\nplateau = 1",
            "needs an optimizer.rate above 0",
        ),
        ("[data]\ntrain = ['x']", "optimizer.steps or as optimizer.minutes"),
        ("[data]\ntrain = ['x']\n[optimizer]\nsteps = 1\npatch = 13", "multiple of the network's stride, 8"),
        (
            "[data]\ntrain = ['x']\n[optimizer]\nsteps = 1\n[loss]\nform = 'l3'",
            'loss.form must be "exact" or "printed", not',
        ),
        ("[data]\ntrain = ['x']\n[optimizer]\nsteps = 1\n[loss]\nby_patch = true", "by_patch needs a loss.gain"),
        ("[data\n", "recipe.toml is not valid TOML"),
        ("[data]\nval = 'x'\n[optimizer]\nsteps = 1", "recipe.toml, data: the key 'train' is missing"),
        ("[data]\ntrain = ['x']\nhold = 5\n[optimizer]\nsteps = 1", "unknown key 'hold'; the keys are train"),
        ("data = 5", "data must be a table, not 5"),
        ("[data]\ntrain = 5\n[optimizer]\nsteps = 1", "train must be of type list of str, not 5"),
        ("[data]\ntrain = ['x']\n[optimizer]\nsteps = 2.5", "steps must be of type int, not 2.5"),
        ("[data]\ntrain = ['x']\n[optimizer]\nsteps = 1\nbatch = 0", "batch must be 1 or more, not 0"),
        ("[data]\ntrain = ['x']\n[optimizer]\nsteps = 1\npatch = 512", "must fit into a tile"),
        ("[data]\ntrain = ['x']\n[optimizer]\nsteps = 1\n[noise]\nlow = -5", "noise.low must be 0 or more"),
    ],
)
def test_mistakes_in_recipes(tmp_path: Path, text: str, message: str) -> None:
    """Each mistake is named with what would be right."""
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_recipe(path)


@pytest.mark.parametrize("model", weights.shipped())
def test_recipes_in_shipped_weights_load(model: str) -> None:
    """With the names and keys of the version that trained them; their network is that of the file."""
    card = weights.read_card(model)
    recipe = stored_recipe(card.recipe, model)
    assert recipe.noise == stored_noise(card.recipe, model)
    assert recipe.noise.domain == card.domain and recipe.network.widths == card.config.widths
    assert recipe.loss.error_limit == card.recipe["loss"]["bend"]


def test_stored_recipes_have_old_names_and_defaults() -> None:
    """Renamed keys are read by both names, missing ones have their defaults; unknown ones are errors."""
    table = {
        "data": {"train": ["x"], "hold": 7, "stay": 8},
        "loss": {"bend": 0.3},
        "optimizer": {"steps": 1, "centre": 9},
    }
    recipe = stored_recipe(table, "file")
    assert (recipe.data.tiles_on_device, recipe.data.steps_per_block) == (7, 8)
    assert recipe.loss == Loss(error_limit=0.3) and recipe.optimizer.centralise_every == 9
    assert stored_recipe(json.loads(json.dumps(asdict(recipe))), "file") == recipe
    assert stored_noise({}, "file") == Noise()
    with pytest.raises(ValueError, match="file, loss: unknown key 'new'"):
        stored_recipe(table | {"loss": {"new": 1}}, "file")
