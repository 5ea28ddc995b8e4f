"""How well a network in training does on validation pictures: one number."""

from pathlib import Path

import torch

from debayes.evaluation import metrics, protocol
from debayes.formats import pictures as picture_files
from debayes.imaging import virtual_camera
from debayes.network.network import Network
from debayes.training import data
from debayes.training.recipe import Data, Noise

# Raws are judged by photon noise of up to this, whatever the recipe's, at these shares of the way there (squared).
RAW = Noise(domain="raw", high=60.0)
PLAIN = Data(train=())
RAW_LEVELS = (0.3, 0.5, 0.8)


def judge(network: Network, pictures: list[Path]) -> float:
    """Mean PSNR over the validation pictures at sigma 5, 10 and 15."""
    network.eval()
    scores = protocol.evaluate(network, pictures, (5.0, 10.0, 15.0))
    network.train()
    return sum(s.psnr for s in scores) / len(scores)


def judge_raw(network: Network, pictures: list[Path]) -> float:
    """Mean PSNR, in the domain of `vst`, over simulated raws of the validation pictures' middles."""
    scores = []
    network.eval()
    for i, path in enumerate(pictures):
        picture = picture_files.read(path)
        size = min(256, *picture.shape[1:]) // network.config.stride * network.config.stride
        top, left = ((side - size) // 2 for side in picture.shape[1:])
        middle = picture[:, top : top + size, left : left + size].permute(1, 2, 0)
        for j, level in enumerate(RAW_LEVELS):
            drawn = data.draw(1, size, seed=i, step=j, generator=torch.Generator(), raw=True)
            drawn[0][:, data.PATCH.width + virtual_camera.NOISE_DRAW] = level
            batch = data.make_raw_batch(
                (255 * middle[None]).round().to(torch.uint8), *drawn, pictures=PLAIN, levels=RAW
            )
            with torch.no_grad():
                restored = network(batch.mosaic.to(network.device)).mean.cpu()
            scores.append(float(metrics.psnr(restored, batch.target)[0]))
    network.train()
    return sum(scores) / len(scores)
