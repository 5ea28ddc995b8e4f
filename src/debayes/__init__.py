"""debayes: noisy camera mosaics to clean colour images, with a Bayesian posterior for every pixel.

>>> import debayes
>>> network = debayes.load("wild-s")                            # doctest: +SKIP
>>> posterior = debayes.restore(network, mosaic, "RGGB")        # doctest: +SKIP
>>> posterior.mean, posterior.noise_variance.sqrt(), posterior.interval(0.9)   # doctest: +SKIP

>>> developed = debayes.develop(debayes.load("raw-s"), debayes.read("photo.NEF"))   # doctest: +SKIP
>>> developed.picture, developed.noise, developed.doubt, developed.render()         # doctest: +SKIP

The names below are imported when they are first used: importing the package loads neither torch nor NumPy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from debayes.darkroom.loop import develop as develop
    from debayes.evaluation.protocol import evaluate as evaluate
    from debayes.formats.raw import Raw as Raw
    from debayes.formats.raw import read as read
    from debayes.imaging.cfa import mosaic as mosaic
    from debayes.network.config import Config as Config
    from debayes.network.network import Network as Network
    from debayes.network.weights import load as load
    from debayes.posterior.nig import NormalInverseGamma as NormalInverseGamma
    from debayes.restoration import restore as restore
    from debayes.restoration.adaptation import adapt as adapt
    from debayes.training.loop import train as train

__version__ = "0.1.0"

_HOME = {
    "Config": "network.config",
    "Network": "network.network",
    "NormalInverseGamma": "posterior.nig",
    "Raw": "formats.raw",
    "adapt": "restoration.adaptation",
    "develop": "darkroom.loop",
    "evaluate": "evaluation.protocol",
    "load": "network.weights",
    "mosaic": "imaging.cfa",
    "read": "formats.raw",
    "restore": "restoration",
    "train": "training.loop",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'debayes' has no attribute {name!r}")
    return getattr(import_module(f"debayes.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
