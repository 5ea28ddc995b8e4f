"""Calibration: known doubt is recovered, nothing else changes, and the shipped networks are calibrated."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from networks import untrained
from sampling import draw
from typer.testing import CliRunner

from debayes.cli.app import app
from debayes.evaluation import metrics, protocol, scenes, uncertainty
from debayes.formats import pictures as picture_files
from debayes.network import weights
from debayes.network.config import Config
from debayes.network.network import Network
from debayes.posterior.nig import NormalInverseGamma
from debayes.restoration import restore
from debayes.training import calibration, loop
from debayes.training.recipe import Data, Noise, Optimizer, Recipe

CONFIG = Config(widths=(16, 24), blocks=1, bottom_blocks=1, tail=8, tail_blocks=0)


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """A folder of three free photographs."""
    (tmp_path / "pictures").mkdir()
    for name in ("astronaut", "chelsea", "coffee"):
        picture_files.write(tmp_path / "pictures" / f"{name}.png", scenes.photograph(name), bits=8)
    return tmp_path / "pictures"


def samples(network: Network, tails: float, *, seed: int) -> tuple[calibration.Samples, torch.Tensor]:
    """Errors whose size depends on the features in a known way, and the true count of each."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.rand(40_000, 9 * CONFIG.tail, generator=generator).square()
    weight = 0.5 * torch.randn(3, features.shape[1], generator=torch.Generator().manual_seed(1))
    count = 3 * (features @ weight.T).exp()
    noise = 0.01 * torch.rand(len(features), 3, generator=generator) + 0.001
    concentration = torch.full_like(count, tails)
    q = NormalInverseGamma(torch.zeros_like(count), count, concentration, noise * (concentration - 1))
    truth, _ = draw(q, seed=seed)
    claimed = torch.full_like(count, 180.5)
    trained = NormalInverseGamma(q.loc, torch.full_like(count, 100.0), claimed, noise * (claimed - 1))
    return calibration.Samples(features, trained, truth), count


@pytest.mark.parametrize("tails", [3.0, 20.0])
def test_known_doubt_is_found(tails: float) -> None:
    """From errors drawn with a known count and concentration both are recovered, and intervals contain their shares
    of new draws."""
    network = untrained(CONFIG)
    seen, _ = samples(network, tails, seed=2)
    fitted = calibration.fit(network, seen)
    fresh, count = samples(network, tails, seed=3)
    q = calibration.recalibrated(fitted, fresh)
    assert float((q.count / count).log().std()) < 0.1
    assert float((q.count / count).log().mean()) == pytest.approx(0, abs=0.05)
    assert 1 / float(q.concentration.mean()) == pytest.approx(1 / tails, rel=0.25)
    assert uncertainty.assess(q, fresh.target).coverage == pytest.approx(uncertainty.LEVELS, abs=0.01)


def test_gathered_features_are_the_networks(pictures: Path) -> None:
    """The last convolution makes of the gathered neighbourhoods what the network gave there."""
    network = untrained(CONFIG)
    recipe = Recipe(Data(("pictures",)), CONFIG, optimizer=Optimizer(patch=64, steps=1))
    tiles = torch.randint(0, 255, (4, 64, 64, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    found = calibration.gather(network, recipe, tiles, patches=3)
    assert found.target.shape == (3 * calibration.PIXELS, 3)
    again = calibration.recalibrated(network, found)
    for name in ("count", "concentration", "rate"):
        torch.testing.assert_close(getattr(again, name), getattr(found.posterior, name), rtol=1e-4, atol=1e-7)


def test_the_image_stays_the_same(pictures: Path, tmp_path: Path) -> None:
    """The command changes doubt alone: the image is bit-identical, the noise map equal up to rounding. The file
    says so, and training that starts from it begins with the doubt of an untrained network."""
    network = weights.load("paper")
    first, second = tmp_path / "first.safetensors", tmp_path / "second.safetensors"
    weights.save(network, first, weights.Card(network.config, recipe={"noise": {"high": 20.0}}))
    arguments = ["calibrate", str(first), str(pictures), "-o", str(second), "--patches", "16", "--device", "cpu"]
    result = CliRunner().invoke(app, [*arguments, "--json"], catch_exceptions=False)
    answer = json.loads(result.stdout)
    assert answer["after"]["calibration_error"] < answer["before"]["calibration_error"] / 2
    assert answer["after"]["nll"] < answer["before"]["nll"]
    mosaic = torch.rand(1, 1, 64, 64, generator=torch.Generator().manual_seed(0))
    before, after = weights.load(first)(mosaic), weights.load(second)(mosaic)
    assert torch.equal(before.loc, after.loc)
    torch.testing.assert_close(after.noise_variance, before.noise_variance, rtol=1e-5, atol=0)
    assert float((after.count / before.count).log().abs().min()) > 0
    assert "16 patches of pictures" in weights.read_card(second).notes["calibrated"]
    plan = Recipe(
        Data(("pictures",), tile=64),
        network.config,
        optimizer=Optimizer(patch=32, batch=1, steps=1, rate=0.0, warmup=0),
    )
    third = loop.train(replace(plan, start=str(second)), tmp_path / "run", root=tmp_path)
    learning = weights.load(third)(mosaic)
    assert torch.equal(learning.loc, before.loc)
    torch.testing.assert_close(
        learning.count, torch.full_like(learning.count, network.config.count), rtol=0.01, atol=0
    )


def test_noise_of_another_recipe(pictures: Path, tmp_path: Path) -> None:
    """With `--recipe` errors are measured with its noise: the stronger it is, the larger they are. Noise of another
    domain is an error, and nothing is written."""
    recipe = tmp_path / "recipe.toml"
    errors = []
    for level in (1, 19):
        recipe.write_text(f"[data]\ntrain = ['x']\n[noise]\nlow = {level}\nhigh = {level}\n[optimizer]\nsteps = 1")
        arguments = ["calibrate", "wild-s", str(pictures), "-o", str(tmp_path / "out.safetensors"), "--json"]
        arguments += ["--patches", "8", "--recipe", str(recipe), "--device", "cpu"]
        result = CliRunner().invoke(app, arguments, catch_exceptions=False)
        errors.append(json.loads(result.stdout)["after"]["nll"])
    assert errors[1] > errors[0] + 0.5
    with pytest.raises(ValueError, match="trained in the domain 'srgb'"):
        calibration.calibrate_file("wild-s", [pictures], tmp_path / "raw.safetensors", noise=Noise(domain="raw"))
    assert not (tmp_path / "raw.safetensors").exists()


def test_pictures_must_hold_a_patch(tmp_path: Path) -> None:
    """Else it is an error, and nothing is written."""
    picture_files.write(tmp_path / "small.png", torch.zeros(3, 64, 64), bits=8)
    with pytest.raises(ValueError, match="holds a tile of 256x256"):
        calibration.calibrate_file("wild-s", [tmp_path], tmp_path / "out.safetensors")
    assert not (tmp_path / "out.safetensors").exists()


@pytest.mark.parametrize("sigma", [5.0, 15.0])
def test_the_shipped_network_is_calibrated(sigma: float) -> None:
    """On a photograph that it was not trained on, the 90 % intervals of `wild-s` contain about 90 % of the true
    values, and its doubt ranks pixels by their errors better than its noise map does."""
    truth = scenes.photograph("astronaut")[:, 40:232, 100:356]
    score = protocol.score(weights.load("wild-s"), truth, sigma, name="astronaut", with_doubt=True)
    assert score.uncertainty is not None
    assert 0.84 < score.uncertainty.coverage[2] < 0.95
    mosaic = protocol.noisy_mosaic(truth, sigma / 255, pattern="RGGB", seed="astronaut")
    posterior = restore(weights.load("wild-s"), mosaic)
    by_noise = metrics.sparsification_error(posterior.mean - truth, posterior.noise_variance)
    assert score.uncertainty.ause < by_noise - 0.05
