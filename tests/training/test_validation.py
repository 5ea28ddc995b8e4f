"""Validation: the mean PSNR of known restorations, and networks keep their mode."""

from pathlib import Path

import numpy as np
import pytest
import torch
from networks import untrained
from PIL import Image

from debayes.evaluation import protocol
from debayes.network.config import Config
from debayes.training import validation

CONFIG = Config(widths=(8, 12), blocks=1, bottom_blocks=1, tail=8, tail_blocks=0)


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    pixels = np.random.default_rng(0).integers(0, 255, (70, 90, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    return tmp_path / "a.png"


def test_pictures_are_scored_by_the_protocol(picture: Path) -> None:
    """The mean of its PSNR at sigma 5, 10 and 15."""
    network = untrained(CONFIG)
    scores = protocol.evaluate(network, [picture], (5.0, 10.0, 15.0))
    assert validation.validate(network, [picture], domain="srgb") == sum(score.psnr for score in scores) / 3


def test_raws_are_simulated_the_same_way_each_time(picture: Path) -> None:
    """Two validations of a network are equal; with more noise the PSNR of the interpolation falls."""
    network = untrained(CONFIG)
    torch.nn.init.zeros_(network.body.maps.weight)
    torch.nn.init.zeros_(network.body.maps.bias)
    first, again = (validation.validate(network, [picture], domain="raw") for _ in range(2))
    assert first == again
    scores = validation._raw_scores(network, [picture])
    assert sum(scores) / 3 == first and scores[0] > scores[1] > scores[2]


@pytest.mark.parametrize("domain", ["srgb", "raw"])
@pytest.mark.parametrize("training", [False, True])
def test_networks_keep_their_mode(domain: str, training: bool, picture: Path) -> None:
    """Neither the mode nor the weights change."""
    network = untrained(CONFIG).train(training)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    validation.validate(network, [picture], domain=domain)
    assert network.training == training
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
