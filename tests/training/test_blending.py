"""Blending: weighted means of weights, in files that say so."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from networks import untrained
from PIL import Image
from typer.testing import CliRunner

from debayes.cli.app import app
from debayes.network import weights
from debayes.network.config import Config
from debayes.network.network import Network
from debayes.training import blending

CONFIG = Config(widths=(16, 32), blocks=1, bottom_blocks=1, tail=8)


def pair() -> tuple[Network, Network]:
    """Two networks from one start."""
    first, second = untrained(CONFIG), untrained(CONFIG)
    for parameter in second.parameters():
        parameter.add_(0.01 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)))
    return first, second


def save(network: Network, path: Path, **notes: str) -> str:
    recipe = {"noise": {"domain": "srgb"}}
    weights.save(network, path, weights.Card(network.config, recipe, {"val_psnr": 1.0}, {"data": "x"} | notes))
    return str(path)


def test_weights_are_weighted_means() -> None:
    """A share of 1 gives that network; shares may extrapolate, and halfway back is halfway between."""
    first, second = pair()
    for blend, expected in (
        (blending.blend((first, second), (1.0, 0.0)), first),
        (blending.blend((blending.blend((first, second), (-1.0, 2.0)), first), (0.5, 0.5)), second),
    ):
        for (name, found), value in zip(blend.state_dict().items(), expected.state_dict().values(), strict=True):
            torch.testing.assert_close(found, value, rtol=1e-5, atol=1e-6, msg=name)


def test_the_mean_of_two_is_what_lies_between() -> None:
    """Two networks on either side of a third give its posterior back, but for the curvature."""
    middle, aside = pair()
    other = blending.blend((middle, aside), (2.0, -1.0))
    mosaic = torch.rand(1, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    blend = blending.blend((aside, other), (0.5, 0.5))
    left, given = (float((each(mosaic).loc - middle(mosaic).loc).abs().mean()) for each in (blend, aside))
    assert given > 1e-3
    assert left < 1e-3 * given


def test_the_command_writes_a_blend(tmp_path: Path) -> None:
    """Each model and the blend are scored. The file names the models, and has neither their results nor a doubt
    that was fitted to other errors."""
    first, second = pair()
    pixels = np.random.default_rng(0).integers(0, 255, (32, 32, 3), np.uint8)
    (tmp_path / "val").mkdir()
    Image.fromarray(pixels).save(tmp_path / "val" / "a.png")
    files = [save(first, tmp_path / "a.safetensors", calibrated="yes"), save(second, tmp_path / "b.safetensors")]
    target = tmp_path / "c.safetensors"
    arguments = ["blend", *files, "-o", str(target), "--share", "0.25", "--share", "0.75"]
    result = CliRunner().invoke(
        app, [*arguments, "--judge", str(tmp_path / "val"), "--json"], catch_exceptions=False
    )
    answer = json.loads(result.stdout)
    assert len(answer["val_psnr"]) == 3 and answer["shares"] == [0.25, 0.75]
    card = weights.read_card(target)
    assert card.results == {"val_psnr": answer["val_psnr"][-1]}
    assert card.notes["blended"] == f"0.25 of {files[0]}, 0.75 of {files[1]}" and "calibrated" not in card.notes
    bare = weights.load(files[0], calibrated=False)
    expected = blending.blend((bare, weights.load(files[1])), (0.25, 0.75))
    for name, found in weights.load(target).state_dict().items():
        torch.testing.assert_close(found, expected.state_dict()[name], rtol=1e-3, atol=1e-4, msg=name)
    assert float(bare.body.maps.weight[3:9].abs().max()) == 0
    again = tmp_path / "d.safetensors"
    back = ["blend", files[1], str(target), "-o", str(again), "--share=-0.5", "--share", "1.5"]
    CliRunner().invoke(app, back, catch_exceptions=False)
    assert weights.read_card(again).notes["blended"] == f"-0.5 of {files[1]}, 1.5 of {target}"
    plain = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert plain.stdout.strip() == str(target) and weights.read_card(target).results == {}


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ((0.5, 0.6), "add up to 1, not to 1.1"),
        ((1.0,), "each of the 2 models"),
        ((0.5, float("nan")), "add up to 1"),
    ],
)
def test_wrong_shares(shares: tuple[float, ...], message: str, tmp_path: Path) -> None:
    """Each is an error that says what is wrong, and nothing is written."""
    files = [save(each, tmp_path / f"{i}.safetensors") for i, each in enumerate(pair())]
    with pytest.raises(ValueError, match=message):
        blending.blend_file(files, tmp_path / "out.safetensors", shares=shares)
    assert not (tmp_path / "out.safetensors").exists()


def test_wrong_models(tmp_path: Path) -> None:
    """One model alone, another network, another domain, and a blend in the place of one of its models."""
    with pytest.raises(ValueError, match="two models or more"):
        blending.blend_file(["wild-s"], tmp_path / "out.safetensors")
    own = save(pair()[0], tmp_path / "own.safetensors")
    with pytest.raises(ValueError, match="to another file"):
        blending.blend_file([own, own], Path(own))
    for other in ("wild-l", "raw-s"):
        with pytest.raises(ValueError, match="wild-s does not have the network and domain"):
            blending.blend_file(["wild-s", other], tmp_path / "out.safetensors")
