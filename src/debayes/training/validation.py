"""The validation of a network in training: its mean PSNR on pictures."""

from pathlib import Path

import torch
from torch import Tensor

from debayes.evaluation import metrics, protocol
from debayes.formats import pictures as picture_files
from debayes.imaging import virtual_camera
from debayes.network.network import Network
from debayes.training import data
from debayes.training.recipe import Data, Noise

# Noise levels of sRGB mosaics, in units of 1/255.
SIGMAS = (5.0, 10.0, 15.0)

# Raws are validated with photon noise of up to 60 / 255 whatever the recipe says: at these shares of it, squared.
RAW_NOISE = Noise(domain="raw", high=60.0)
RAW_SHARES = (0.3, 0.5, 0.8)

# No augmentation.
PLAIN = Data(train=())


def validate(network: Network, pictures: list[Path], *, domain: str) -> float:
    """The mean PSNR in dB over the pictures and noise levels; for "raw" in the domain of `vst`."""
    mode = network.training
    network.eval()
    scores = _raw_scores(network, pictures) if domain == "raw" else _scores(network, pictures)
    network.train(mode)
    return sum(scores) / len(scores)


def _scores(network: Network, pictures: list[Path]) -> list[float]:
    return [score.psnr for score in protocol.evaluate(network, pictures, SIGMAS)]


def _raw_scores(network: Network, pictures: list[Path]) -> list[float]:
    """The PSNR of the central 256 x 256 pixels of each picture as simulated raws."""
    scores = []
    for i, path in enumerate(pictures):
        tiles = _center(picture_files.read(path), 256, network.config.stride)
        for j, share in enumerate(RAW_SHARES):
            draws = data.sample_draws(1, tiles.shape[1], seed=i, step=j, generator=torch.Generator(), raw=True)
            virtual_camera.SHOT("noise", draws.shot).fill_(share)
            batch = data.make_raw_batch(tiles, draws, pictures=PLAIN, levels=RAW_NOISE)
            with torch.no_grad():
                restored = network(batch.mosaic.to(network.device)).mean.cpu()
            scores.append(float(metrics.psnr(restored, batch.target)[0]))
    return scores


def _center(picture: Tensor, limit: int, stride: int) -> Tensor:
    """The central square of a picture as one 8-bit tile, its side a multiple of the stride."""
    size = min(limit, *picture.shape[1:]) // stride * stride
    top, left = ((side - size) // 2 for side in picture.shape[1:])
    center = picture[:, top : top + size, left : left + size].permute(1, 2, 0)
    return (255 * center[None]).round().to(torch.uint8)
