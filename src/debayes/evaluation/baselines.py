"""What others do with a mosaic: classical demosaicking, with or without a denoiser, and a learnt peer.

All but bilinear need libraries of the extra `peers`: pip install "debayes[peers]". A name is a demosaicker, or one
followed by "+bm3d", which is told the true noise level, as none of debayes' own models is.
"""

import warnings
from collections.abc import Callable
from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor

from debayes.imaging import cfa

# Of a mosaic (1, h, w), its pattern and the noise level, or none if that is not known.
Baseline = Callable[[Tensor, str, float | None], Tensor]

# Photosites that a mosaic is continued by, so that no method is judged by how it treats borders.
_BORDER = 16


def find(name: str) -> Baseline:
    """The baseline of a name: takes a mosaic (1, h, w), its pattern and the noise level to an image (3, h, w)."""
    first, _, then = name.partition("+")
    if first not in DEMOSAICKERS or then not in ("", "bm3d"):
        known = ", ".join(DEMOSAICKERS)
        raise ValueError(f"there is no baseline {name!r}: there are {known}, alone or followed by +bm3d")
    demosaick = DEMOSAICKERS[first]

    def run(mosaic: Tensor, pattern: str, sigma: float | None) -> Tensor:
        if sigma is None:
            check_blind(name)
        mosaic = mosaic.cpu()
        padded = cfa.pad(mosaic, _BORDER, _BORDER + mosaic.shape[1] % 2, _BORDER, _BORDER + mosaic.shape[2] % 2)
        try:
            image = demosaick(padded, pattern)
            image = image[:, _BORDER : _BORDER + mosaic.shape[1], _BORDER : _BORDER + mosaic.shape[2]]
            return denoise(image, sigma) if then and sigma is not None and sigma > 0 else image
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                f'the baseline {name!r} needs {error.name}: pip install "debayes[peers]"'
            ) from None

    return run


def check_blind(name: str) -> None:
    """Refuse a baseline, by name, that cannot do without the noise level."""
    if "+" in name:
        raise ValueError(f"the baseline {name!r} must be told the noise level, which is not known of given mosaics")


def bilinear(mosaic: Float[Tensor, "1 h w"], pattern: str) -> Float[Tensor, "3 h w"]:
    """Bilinear interpolation: the row that every method must beat."""
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
    """Gharbi et al. 2016, the network of the package of that name, which was trained without noise."""
    network = _demosaicnet()
    top, column = cfa.red_offset(pattern)
    left = 1 - column  # it was trained on GRBG
    reach = 32  # and its convolutions eat less than this of each border
    padded = cfa.pad(mosaic, reach + top, reach + top, reach + left, reach + left)
    spread = cfa.masks("GRBG", *padded.shape[1:]) * padded
    with torch.inference_mode():
        image: Tensor = network(spread[None].float())[0]
    cut = [(p - i) // 2 for p, i in zip(padded.shape[1:], image.shape[1:], strict=True)]
    y, x = reach + top - cut[0], reach + left - cut[1]
    return image[:, y : y + mosaic.shape[1], x : x + mosaic.shape[2]].clone()


def denoise(image: Float[Tensor, "3 h w"], sigma: float) -> Float[Tensor, "3 h w"]:
    """BM3D for colour images (Dabov et al. 2007), told the noise level of the mosaic."""
    from bm3d import bm3d_rgb

    return _from_numpy(bm3d_rgb(image.permute(1, 2, 0).double().numpy(), sigma))


DEMOSAICKERS = {"bilinear": bilinear, "malvar": malvar, "menon": menon, "demosaicnet": demosaicnet}


@cache
def _demosaicnet() -> torch.nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package reads its weights by a way that is deprecated
        from demosaicnet import BayerDemosaick

        network: torch.nn.Module = BayerDemosaick()
    return network.eval().requires_grad_(False)


def _from_numpy(array: object) -> Tensor:
    return torch.as_tensor(array).float().permute(2, 0, 1)
