"""Baselines: classical demosaicking with or without a denoiser, and a small published network.

All except bilinear need libraries of the extra `peers`: pip install "debayes[peers]". The name of a baseline is a
demosaicking method, optionally followed by "+bm3d". BM3D is given the true noise level; the models of debayes are
not.
"""

import warnings
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec

import torch
from jaxtyping import Float
from torch import Tensor

from debayes.imaging import cfa
from debayes.system.errors import DebayesError

# From a mosaic (1, h, w), its pattern and the noise level (None if unknown) to an image (3, h, w).
Baseline = Callable[[Tensor, str, float | None], Tensor]

# Mosaics are extended by this many photosites on each side, so that border handling does not affect the scores.
_BORDER = 16


def find_baseline(name: str) -> Baseline:
    """The baseline with this name; its libraries must be installed."""
    first, _, denoiser = name.partition("+")
    if first not in DEMOSAICKERS or denoiser not in ("", "bm3d"):
        known = ", ".join(DEMOSAICKERS)
        raise DebayesError(f"there is no baseline {name!r}: use one of {known}, alone or followed by +bm3d")
    for library in (_LIBRARIES.get(first), denoiser):
        if library and find_spec(library) is None:
            raise DebayesError(f'the baseline {name!r} needs {library}: pip install "debayes[peers]"')
    demosaick = DEMOSAICKERS[first]

    def run(mosaic: Tensor, pattern: str, sigma: float | None) -> Tensor:
        if sigma is None:
            check_blind(name)
        mosaic = mosaic.cpu()
        padded = cfa.pad(mosaic, _BORDER, _BORDER + mosaic.shape[1] % 2, _BORDER, _BORDER + mosaic.shape[2] % 2)
        image = demosaick(padded, pattern)
        image = image[:, _BORDER : _BORDER + mosaic.shape[1], _BORDER : _BORDER + mosaic.shape[2]]
        return denoise(image, sigma) if denoiser and sigma is not None and sigma > 0 else image

    return run


def check_blind(name: str) -> None:
    """Raise if the baseline with this name needs the noise level."""
    if "+" in name:
        raise DebayesError(
            f"the baseline {name!r} needs the noise level, which is unknown for real mosaics: leave out +bm3d"
        )


def bilinear(mosaic: Float[Tensor, "1 h w"], pattern: str) -> Float[Tensor, "3 h w"]:
    """Bilinear interpolation."""
    return cfa.interpolate(mosaic[None], pattern)[0]


def malvar(mosaic: Float[Tensor, "1 h w"], pattern: str) -> Float[Tensor, "3 h w"]:
    """Malvar, He and Cutler 2004: linear filters."""
    from colour_demosaicing import demosaicing_CFA_Bayer_Malvar2004

    return _from_numpy(demosaicing_CFA_Bayer_Malvar2004(mosaic[0].double().numpy(), pattern))


def menon(mosaic: Float[Tensor, "1 h w"], pattern: str) -> Float[Tensor, "3 h w"]:
    """Menon, Andriani and Calvagno 2007: directional filtering with a posteriori decision."""
    from colour_demosaicing import demosaicing_CFA_Bayer_Menon2007

    return _from_numpy(demosaicing_CFA_Bayer_Menon2007(mosaic[0].double().numpy(), pattern))


def demosaicnet(mosaic: Float[Tensor, "1 h w"], pattern: str) -> Float[Tensor, "3 h w"]:
    """Gharbi et al. 2016: the network of the package `demosaicnet`, trained without noise."""
    network = _demosaicnet()
    top, column = cfa.red_offset(pattern)
    left = 1 - column  # the network expects GRBG
    reach = 32  # more than its convolutions crop from each side
    padded = cfa.pad(mosaic, reach + top, reach + top, reach + left, reach + left)
    spread = cfa.masks("GRBG", *padded.shape[1:]) * padded
    with torch.inference_mode():
        image: Tensor = network(spread[None].float())[0]
    cut = [(p - i) // 2 for p, i in zip(padded.shape[1:], image.shape[1:], strict=True)]
    y, x = reach + top - cut[0], reach + left - cut[1]
    return image[:, y : y + mosaic.shape[1], x : x + mosaic.shape[2]].clone()


def denoise(image: Float[Tensor, "3 h w"], sigma: float) -> Float[Tensor, "3 h w"]:
    """BM3D for colour images (Dabov et al. 2007), given the noise level of the mosaic."""
    from bm3d import bm3d_rgb

    return _from_numpy(bm3d_rgb(image.permute(1, 2, 0).double().numpy(), sigma))


DEMOSAICKERS = {"bilinear": bilinear, "malvar": malvar, "menon": menon, "demosaicnet": demosaicnet}
_LIBRARIES = {"malvar": "colour_demosaicing", "menon": "colour_demosaicing", "demosaicnet": "demosaicnet"}


@cache
def _demosaicnet() -> torch.nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package loads its weights in a deprecated way
        from demosaicnet import BayerDemosaick

        network: torch.nn.Module = BayerDemosaick()
    return network.eval().requires_grad_(False)


def _from_numpy(array: object) -> Tensor:
    return torch.as_tensor(array).float().permute(2, 0, 1)
