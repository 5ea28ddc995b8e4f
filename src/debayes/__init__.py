"""debayes: noisy camera mosaics to clean colour images, with a Bayesian posterior for every pixel.

>>> import debayes
>>> developed = debayes.develop(debayes.load("raw-s"), debayes.read("photo.NEF"))   # doctest: +SKIP
>>> developed.picture, developed.noise, developed.doubt, developed.render()         # doctest: +SKIP

>>> network = debayes.load("wild-s")                            # doctest: +SKIP
>>> posterior = debayes.restore(network, mosaic, "RGGB")        # doctest: +SKIP
>>> posterior.mean, posterior.noise_variance.sqrt(), posterior.interval(0.9)   # doctest: +SKIP

The public names are imported when they are first used: importing the package loads neither torch nor NumPy.
"""

from importlib import import_module
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


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'debayes' has no attribute {name!r}")
    return getattr(import_module(f"debayes.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
