"""Adapting to one mosaic: Stein's risk against the error it estimates, the paper's targets, what comes of it."""

from dataclasses import replace
from math import sqrt

import pytest
import torch
from torch import Tensor

from debayes.evaluation import metrics, scenes
from debayes.imaging import cfa, noise
from debayes.network import weights
from debayes.network.config import Config
from debayes.network.network import Network
from debayes.posterior.nig import NormalInverseGamma
from debayes.restoration import adaptation, restore

TINY = Config(widths=(8,), blocks=1, bottom_blocks=1, tail=4, tail_blocks=0)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def tiny(seed: int = 0) -> Network:
    torch.manual_seed(seed)
    network = Network(TINY)
    for parameter in network.parameters():  # far from the identity that a fresh network is
        parameter.data += 0.05 * torch.randn(parameter.shape)
    return network.eval().requires_grad_(False)


@pytest.fixture(scope="module")
def shipped() -> Network:
    return weights.load("wild-s")


@pytest.fixture(scope="module")
def truth() -> Tensor:
    return scenes.photograph("chelsea")[:, 40:232, 120:312]


def test_stein_risk_is_the_error_in_the_mean() -> None:
    """Stein 1981: E[(x - f)² - v + 2 v df/dx] = E[(z - f)²], for a network that knows nothing of z."""
    network = tiny()
    clean = cfa.mosaic(scenes.cartoon(32))[None]
    variance = (0.02 + 0.05 * clean).square()
    risks, errors = [], []
    for i in range(300):
        generator = seeded(i)
        observed = clean + variance.sqrt() * torch.randn(clean.shape, generator=generator)
        risk, posterior = adaptation.stein_risk(
            network, observed, variance, torch.randn(clean.shape, generator=generator)
        )
        risks.append(float(risk.mean()))
        errors.append(float((cfa.mosaic(posterior.loc) - clean).square().mean()))
    difference = torch.tensor(risks) - torch.tensor(errors)
    assert abs(float(difference.mean())) < 4 * float(difference.std()) / sqrt(len(risks))
    naive = torch.tensor(errors).mean() - variance.mean()  # what leaving df/dx out would estimate
    assert abs(float(naive) - sum(errors) / len(errors)) > 10 * float(difference.std()) / sqrt(len(risks))


def test_learning_ends_when_little_comes() -> None:
    """A look that brings less than a twentieth of the whole gain ends it, and so does one that brings a loss; a
    shorter interval may bring less."""
    assert not adaptation.has_learnt([(0, 100.0)])
    assert not adaptation.has_learnt([(0, 100.0), (5, 80.0)])
    assert not adaptation.has_learnt([(0, 100.0), (5, 80.0), (10, 78.8)])
    assert adaptation.has_learnt([(0, 100.0), (5, 80.0), (10, 79.1)])
    assert not adaptation.has_learnt([(0, 100.0), (5, 80.0), (6, 79.1)])
    assert adaptation.has_learnt([(0, 100.0), (5, 101.0)])
    assert not adaptation.has_learnt([(0, 10.0), (5, 0.0), (10, -10.0)])  # an estimate may be below 0


def test_neighbours_are_neighbours() -> None:
    """Each target is one of the 3x3 values around its pixel, all nine come up, and a patch of 1 is the pixel."""
    image = torch.arange(36.0).view(1, 1, 6, 6)
    found = adaptation.neighbours(image.expand(400, 1, 6, 6), 3, seeded(0))
    assert set(found[:, 0, 2, 3].tolist()) == {8.0, 9.0, 10.0, 14.0, 15.0, 16.0, 20.0, 21.0, 22.0}
    assert set(found[:, 0, 0, 0].tolist()) == {0.0, 1.0, 6.0, 7.0}  # reflected about the border
    assert torch.equal(adaptation.neighbours(image, 1, seeded(0)), image)


def test_mask_keeps_what_noise_explains() -> None:
    """A target within two standard deviations of the pixel is kept, one beyond is not."""
    sigma = torch.full((1, 3, 1, 2), 0.1)
    posterior = NormalInverseGamma(
        torch.zeros_like(sigma), torch.ones_like(sigma), 3 * torch.ones_like(sigma), 2 * sigma**2
    )
    observed = torch.full_like(sigma, 0.5)
    target = torch.tensor([0.69, 0.71]).expand_as(sigma)
    assert torch.equal(adaptation.mask(target, observed, posterior), torch.tensor([1.0, 0.0]).expand_as(sigma))


def test_adapts_to_noise_beyond_the_training(shipped: Network, truth: Tensor) -> None:
    """Uniform noise of sigma 30, where the training ended at 20: the blind answer gains, the noise map follows."""
    mosaic = noise.uniform(cfa.mosaic(truth), 30 / 255, generator=seeded(0))
    before = {name: tensor.clone() for name, tensor in shipped.state_dict().items()}
    shares: list[float] = []
    adapted = adaptation.adapt(shipped, mosaic, steps=10, side=128, progress=shares.append)
    assert adapted.needed and adapted.steps > 0
    gain = _psnr(adapted.network, mosaic, truth) - _psnr(shipped, mosaic, truth)
    assert gain > 0.3
    old, new = (255 * float(restore(n, mosaic).noise_variance.sqrt().mean()) for n in (shipped, adapted.network))
    assert abs(new - 30) < abs(old - 30)
    assert adapted.curve[-1][1] < adapted.curve[0][1]
    assert shares == sorted(shares) and shares[-1] == 1
    assert all(torch.equal(tensor, before[name]) for name, tensor in shipped.state_dict().items())


@pytest.mark.parametrize("sigma", [5.0, 10.0, 20.0])
def test_leaves_known_noise_alone(shipped: Network, truth: Tensor, sigma: float) -> None:
    """Gaussian noise as in the training needs nothing: the same weights come back, with the reason."""
    mosaic = noise.gaussian(cfa.mosaic(truth), sigma / 255, generator=seeded(1))
    adapted = adaptation.adapt(shipped, mosaic, steps=5)
    assert not adapted.needed and adapted.steps == 0 and "knows this noise" in adapted.reason
    assert adapted.network is not shipped
    assert all(torch.equal(a, b) for a, b in zip(adapted.network.parameters(), shipped.parameters(), strict=True))


def test_leaves_noise_that_varies_in_space_alone(shipped: Network, truth: Tensor) -> None:
    """A profile cannot describe it, and adapting to a wrong one would harm."""
    mosaic = noise.varying_gaussian(cfa.mosaic(truth), 20 / 255, generator=seeded(2))
    assert not adaptation.adapt(shipped, mosaic, steps=5).needed


def test_scale_error_tells_noises_apart(shipped: Network, truth: Tensor) -> None:
    """Half a mosaic has half the noise: the map of known noise knows it, that of brown noise does not."""
    errors = {}
    for kind in ("gaussian", "uniform", "brown"):
        mosaic = noise.KINDS[kind](cfa.mosaic(truth), 10 / 255, generator=seeded(3))
        errors[kind] = adaptation.scale_error(shipped, mosaic, restore(shipped, mosaic))
    assert max(errors["gaussian"], errors["uniform"]) < 0.06 < 0.1 < errors["brown"]


def test_noise_that_stays_in_one_color_is_noticed(shipped: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    """A picture that keeps its noise at the red photosites has 0 removed, one without any noise 1."""
    grey = torch.full((3, 64, 64), 0.3)
    noisy = cfa.mosaic(grey) + 6 / 255 * torch.randn(1, 64, 64, generator=seeded(0))
    known = restore(shipped, noisy)
    monkeypatch.setattr(adaptation, "restore", lambda network, mosaic: replace(known, loc=grey))
    left = torch.where(torch.tensor([True, False, False]).view(3, 1, 1), noisy, grey)
    assert adaptation.removed_noise(shipped, noisy, replace(known, loc=grey), 6 / 255) == pytest.approx(1, abs=0.02)
    assert adaptation.removed_noise(shipped, noisy, replace(known, loc=left), 6 / 255) == pytest.approx(0, abs=0.02)


@pytest.mark.parametrize("factors", [(1.0, 1.0, 1.0), (0.5, 1.0, 0.5), (1.5, 1.0, 1.3)])
def test_says_it_knows_a_grey_card_only_where_it_cleans_it(shipped: Network, factors: tuple[float, ...]) -> None:
    """Noise by colour on a plain card: "knows this noise" comes with less than half of it left."""
    grey = torch.full((3, 128, 128), 0.3)
    levels = cfa.mosaic(torch.tensor(factors).view(3, 1, 1).expand(3, 128, 128))
    noisy = cfa.mosaic(grey) + 6 / 255 * levels * torch.randn(1, 128, 128, generator=seeded(1))
    left = float((restore(shipped, noisy).mean - grey).std()) / (6 / 255)
    adapted = adaptation.adapt(shipped, noisy, steps=0)
    assert adapted.needed or "knows" not in adapted.reason or left < 0.5


def test_whole_run_shows_every_step_and_answers_the_same(shipped: Network, truth: Tensor) -> None:
    """With `whole` known noise is gone through for the watcher, and the answer is still to leave it alone."""
    mosaic = noise.gaussian(cfa.mosaic(truth[:, :96, :96]), 10 / 255, generator=seeded(4))
    seen: list[int] = []
    adapted = adaptation.adapt(
        shipped, mosaic, steps=7, side=64, whole=True, watch=lambda step, network: seen.append(step)
    )
    assert seen == [0, 5, 7]
    assert not adapted.needed and adapted.steps == 0
    assert all(torch.equal(a, b) for a, b in zip(adapted.network.parameters(), shipped.parameters(), strict=True))


@pytest.mark.parametrize("masked", [True, False])
def test_the_papers_recipe_runs(masked: bool) -> None:
    """Its target changes the weights, the same way for the same seed."""
    mosaic = noise.uniform(cfa.mosaic(scenes.cartoon(64)), 30 / 255, generator=seeded(5))
    last: list[dict[str, Tensor]] = []
    for _ in range(2):
        states: list[dict[str, Tensor]] = []
        adaptation.adapt(
            tiny(),
            mosaic,
            steps=3,
            rate=1e-3,
            target="neighbour",
            masked=masked,
            side=32,
            whole=True,
            watch=lambda step, network, states=states: states.append(
                {name: tensor.clone() for name, tensor in network.state_dict().items()}
            ),
        )
        last.append(states[-1])
        assert any(not torch.equal(states[0][name], states[-1][name]) for name in states[0])
    assert all(torch.equal(last[0][name], last[1][name]) for name in last[0])


@pytest.mark.parametrize("pattern", cfa.PATTERNS)
def test_takes_any_pattern_and_odd_sizes(pattern: str) -> None:
    """A mosaic of any phase is adapted to; a very small one is left alone."""
    picture = scenes.cartoon(64)[:, :51, :63]
    mosaic = noise.uniform(cfa.mosaic(picture, pattern), 40 / 255, generator=seeded(6))
    assert adaptation.adapt(tiny(), mosaic, pattern, steps=1, side=32, whole=True).curve
    assert "too small" in adaptation.adapt(tiny(), mosaic[:, :20], pattern).reason


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"steps": -1}, "0 or more steps"), ({"batch": 0}, "1 or more windows"), ({"patch": 2}, "odd patch, not 2x2")],
)
def test_bad_numbers_are_rejected(wrong: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        adaptation.adapt(tiny(), torch.zeros(1, 64, 64), **wrong)  # type: ignore[arg-type]


def _psnr(network: Network, mosaic: Tensor, truth: Tensor) -> float:
    return float(metrics.psnr(restore(network, mosaic).mean.clamp(0, 1), truth))
