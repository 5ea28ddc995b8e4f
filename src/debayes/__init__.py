"""debayes: noisy camera mosaics to clean colour images, with a Bayesian posterior for every pixel.

    load, Network, Config                           networks: shipped ones, your own
    prepare                                         a network made fast
    read, Raw                                       camera raws, from files and arrays
    develop, Developed, develop_file                raws developed in memory, and from file to file
    restore, restore_image, restore_tiles, adapt    mosaics to posteriors
    NormalInverseGamma                              a posterior: image, noise, doubt, intervals
    mosaic, Pattern                                 colour filter arrays
    evaluate                                        scores on pictures
    train, Recipe, read_recipe                      training
    DebayesError                                    what a user can put right

help(debayes.restore) explains one of them, with an example.

The public names are imported when they are first used: importing the package loads neither torch nor NumPy.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from debayes.darkroom.file import develop_file as develop_file
    from debayes.darkroom.loop import Developed as Developed
    from debayes.darkroom.loop import develop as develop
    from debayes.engine import prepare as prepare
    from debayes.evaluation.protocol import evaluate as evaluate
    from debayes.formats.raw import Raw as Raw
    from debayes.formats.raw import read as read
    from debayes.imaging.cfa import Pattern as Pattern
    from debayes.imaging.cfa import mosaic as mosaic
    from debayes.network.config import Config as Config
    from debayes.network.network import Network as Network
    from debayes.network.weights import load as load
    from debayes.posterior.nig import NormalInverseGamma as NormalInverseGamma
    from debayes.restoration import restore as restore
    from debayes.restoration import restore_image as restore_image
    from debayes.restoration import restore_tiles as restore_tiles
    from debayes.restoration.adaptation import adapt as adapt
    from debayes.system.errors import DebayesError as DebayesError
    from debayes.training.loop import train as train
    from debayes.training.recipe import Recipe as Recipe
    from debayes.training.recipe import read_recipe as read_recipe

__version__ = "0.1.0"

# The module of each public name.
_HOME = {
    "Config": "network.config",
    "DebayesError": "system.errors",
    "Developed": "darkroom.loop",
    "Network": "network.network",
    "NormalInverseGamma": "posterior.nig",
    "Pattern": "imaging.cfa",
    "Raw": "formats.raw",
    "Recipe": "training.recipe",
    "adapt": "restoration.adaptation",
    "develop": "darkroom.loop",
    "develop_file": "darkroom.file",
    "evaluate": "evaluation.protocol",
    "load": "network.weights",
    "mosaic": "imaging.cfa",
    "prepare": "engine",
    "read": "formats.raw",
    "read_recipe": "training.recipe",
    "restore": "restoration",
    "restore_image": "restoration",
    "restore_tiles": "restoration",
    "train": "training.loop",
}

__all__ = sorted(_HOME)


class _Lazy:
    """A public name: its module is imported when the name is used."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, package: object, kind: type) -> Any:
        return self if package is None else getattr(import_module(f"debayes.{_HOME[self.name]}"), self.name)


class _Package(ModuleType):
    """The package, with the public names as attributes of its class.

    There shells find them to complete them. `help(debayes)` explains whole whatever `dir(debayes)` lists, which
    would be two thousand lines.
    """

    def __dir__(self) -> list[str]:
        return ["__all__", "__version__"]


for _name in _HOME:
    setattr(_Package, _name, _Lazy(_name))
sys.modules[__name__].__class__ = _Package
