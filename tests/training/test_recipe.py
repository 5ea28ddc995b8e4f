"""Recipes: those of the project are valid, changes reach them, mistakes are named."""

from pathlib import Path

import pytest

from debayes.training.recipe import read_recipe

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
    ("change", "sentence"),
    [
        ("optimizer.steps", "'optimizer.steps' does not change a recipe"),
        ("=5", "'=5' does not change a recipe"),
        ("data.val.y=5", "'data.val.y=5' does not change a recipe"),
        ("optimizer.steps=abc", "steps must be of type int, not 'abc'"),
        ("optimizer.steps=10", "set the other to 0: they are 10 and"),
    ],
)
def test_mistakes_in_changes(change: str, sentence: str) -> None:
    """What is wrong with --set is said of it, not of the recipe."""
    with pytest.raises(ValueError, match=sentence):
        read_recipe(RECIPES[-1], [change])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "[data]\ntrain = ['x']\n[optimizer]\nsteps = 1\nlr = 1",
            "unknown key 'lr'; there are rate, muon, centre",
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
        ("[data]\ntrain = ['x']\n[optimizer]\nsteps = 1\npatch = 13", "multiple of the stride"),
        ("[data]\ntrain = ['x']\n[optimizer]\nsteps = 1\n[loss]\nkind = 'l3'", '"elbo", "mse" or "l1"'),
        ("[data]\ntrain = ['x']\n[optimizer]\nsteps = 1\n[loss]\nby_patch = true", "by_patch needs a loss.gain"),
        ("[data\n", "recipe.toml"),
        ("data = 5", "data is a table, not 5"),
        ("[data]\ntrain = 'x'\n[optimizer]\nsteps = 1", "train must be of type list, not 'x'"),
        ("[data]\ntrain = ['x']\n[optimizer]\nsteps = 2.5", "steps must be of type int, not 2.5"),
        ("[data]\ntrain = ['x']\n[optimizer]\nsteps = 1\nbatch = 0", "batch must be 1 or more, not 0"),
        ("[data]\ntrain = ['x']\n[optimizer]\nsteps = 1\npatch = 512", "must fit into a tile"),
        ("[data]\ntrain = ['x']\n[optimizer]\nsteps = 1\n[noise]\nlow = -5", "noise.low must be 0 or more"),
    ],
)
def test_mistakes_in_recipes(tmp_path: Path, text: str, sentence: str) -> None:
    """Each mistake is named with what would be right."""
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=sentence):
        read_recipe(path)
