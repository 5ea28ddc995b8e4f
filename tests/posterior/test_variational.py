"""The prior against loops and simulated noise; the ELBO against the evidence, which it bounds from below."""

from math import exp, inf, sqrt

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage, stats
from torch import Tensor

from debayes.evaluation import metrics
from debayes.imaging import cfa, noise
from debayes.posterior import variational
from debayes.posterior.nig import NormalInverseGamma
from debayes.system.errors import DebayesError

laws = settings(deadline=None, max_examples=50, derandomize=True)
NAMES = ("loc", "count", "concentration", "rate")


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def fold(index: int, size: int) -> int:
    """An index reflected into [0, size) about the border pixels."""
    while not 0 <= index < size:
        index = -index if index < 0 else 2 * (size - 1) - index
    return index


def bilateral_loop(image: Tensor, window: int, range_sigma: float) -> Tensor:
    """The bilateral filter by its definition: loops over pixels and neighbours."""
    result = torch.zeros_like(image)
    reach = window // 2
    batch, channels, height, width = image.shape
    for b, c, y, x in np.ndindex(batch, channels, height, width):
        total = weights = 0.0
        for dy in range(-reach, reach + 1):
            for dx in range(-reach, reach + 1):
                v, u = fold(y + dy, height), fold(x + dx, width)
                difference = float(image[b, c, v, u] - image[b, c, y, x])
                weight = exp(-(dy**2 + dx**2) / (2 * (window / 4) ** 2))
                weight *= exp(-(difference**2) / (2 * range_sigma**2))
                total += weight * float(image[b, c, v, u])
                weights += weight
        result[b, c, y, x] = total / weights
    return result


@pytest.mark.parametrize(
    ("height", "width", "window"), [(6, 7, 3), (5, 6, 5), (8, 5, 7), (4, 3, 9), (2, 2, 5), (2, 9, 11)]
)
def test_bilateral_is_its_definition(height: int, width: int, window: int) -> None:
    """The implementation equals the loops, also where the window is larger than the picture."""
    image = random(2, 3, height, width)
    got = variational.bilateral(image, window, range_sigma=0.2)
    torch.testing.assert_close(got, bilateral_loop(image, window, 0.2), rtol=1e-12, atol=1e-12)


def test_bilateral_of_one_pixel_is_the_image() -> None:
    """A window of 1 averages nothing."""
    image = random(1, 3, 4, 5)
    assert torch.equal(variational.bilateral(image, 1), image)


@pytest.mark.parametrize("window", [3, 7, 19])
def test_bilateral_of_unlimited_range_is_a_gaussian_filter(window: int) -> None:
    """With range_sigma -> infinity only distance counts: SciPy's Gaussian filter, mirrored at the border pixel."""
    image = random(1, 3, 21, 24)
    expected = ndimage.gaussian_filter(image.numpy(), window / 4, axes=(2, 3), mode="mirror", radius=window // 2)
    got = variational.bilateral(image, window, range_sigma=float("inf"))
    torch.testing.assert_close(got, torch.from_numpy(expected), rtol=0, atol=1e-12)
    assert float((variational.bilateral(image, window, range_sigma=0.1) - got).abs().max()) > 0.01


@pytest.mark.parametrize("window", [0, -3, 2, 18])
def test_an_even_window_is_rejected(window: int) -> None:
    """Windows without a middle pixel are rejected."""
    with pytest.raises(DebayesError, match=f"must be odd and positive, not {window}"):
        variational.bilateral(torch.zeros(1, 3, 8, 8), window)


@given(st.sampled_from((3, 5, 9)), st.floats(1e-3, 10), st.integers(0, 1000), st.floats(0, 4))
@laws
def test_bilateral_is_an_average(window: int, range_sigma: float, seed: int, value: float) -> None:
    """A result lies between the smallest and largest averaged values, in float32; a constant stays constant."""
    image = random(1, 3, 6, 7, seed=seed).float()
    filtered = variational.bilateral(image, window, range_sigma=range_sigma)
    assert float(filtered.min()) >= float(image.min()) - 1e-5
    assert float(filtered.max()) <= float(image.max()) + 1e-5
    constant = torch.full_like(image, value)
    torch.testing.assert_close(
        variational.bilateral(constant, window, range_sigma=range_sigma), constant, rtol=1e-5, atol=0
    )


@given(st.sampled_from((3, 11, 19)), st.integers(0, 1000))
@laws
def test_measured_variance_uses_measured_photosites_only(window: int, seed: int) -> None:
    """Errors where a colour was not measured have no effect."""
    mask = cfa.masks("RGGB", 12, 16)
    error = random(1, 3, 12, 16, seed=seed)
    other = torch.where(mask, error, random(1, 3, 12, 16, seed=seed + 1))
    assert torch.equal(variational.measured_variance(error, window), variational.measured_variance(other, window))


def test_measured_variance_is_that_of_its_planes() -> None:
    """Each 2x2 cell has the loop-filtered value of its own photosite; green has the mean of its two."""
    error = random(1, 3, 8, 10)
    red, green, green2, blue = bilateral_loop(cfa.pack(cfa.mosaic(error)), 5, variational.RANGE_SIGMA)[0]
    got = variational.measured_variance(error, 11)[0]
    for y, x in np.ndindex(8, 10):
        cell = (y // 2, x // 2)
        expected = torch.stack((red[cell], (green[cell] + green2[cell]) / 2, blue[cell]))
        torch.testing.assert_close(got[:, y, x], expected, rtol=1e-12, atol=1e-12)


def smooth(size: int) -> Tensor:
    """A picture without edges: ramps and slow waves of three colours."""
    y, x = torch.meshgrid(torch.linspace(0, 1, size), torch.linspace(0, 1, size), indexing="ij")
    return torch.stack((0.3 + 0.4 * x, 0.5 + 0.2 * torch.sin(3 * y), 0.7 - 0.3 * y * x))[None]


@pytest.mark.parametrize("window", [3, 7, 19])
def test_prior_is_the_papers(window: int) -> None:
    """loc is the ground truth, count is lambda, concentration is w²/2, rate that times the filtered error."""
    observed, target = (random(2, 3, 12, 14, seed=seed).float() for seed in (0, 1))
    prior = variational.prior(observed, target, count=37.0, window=window)
    expected = window**2 / 2 * variational.bilateral((observed - target).square(), window)
    assert torch.equal(prior.loc, target)
    assert (prior.count == 37).all()
    assert (prior.concentration == window**2 / 2).all()
    torch.testing.assert_close(prior.rate, expected)


@pytest.mark.parametrize("level", [5, 10, 20])
def test_measured_prior_finds_the_noise_of_the_sensor(level: int) -> None:
    """rate / concentration is sigma² on a smooth picture: within 4 % of the true value, and within 2 % of the mean
    square of the noise that was drawn."""
    sigma, size = level / 255, 300
    target, mask = smooth(size), cfa.masks("RGGB", size, size)
    mosaic = noise.gaussian(cfa.mosaic(target), sigma, generator=torch.Generator().manual_seed(level))
    observed = cfa.interpolate(mosaic)
    prior = variational.prior(observed, target, measured=True)
    found = (prior.rate / prior.concentration).mean((0, 2, 3))
    drawn = torch.stack([error[m].mean() for error, m in zip((observed - target)[0].square(), mask, strict=True)])
    torch.testing.assert_close(found, drawn, rtol=0.02, atol=0)
    torch.testing.assert_close(found, torch.full((3,), sigma**2), rtol=0.04, atol=0)


def test_unmeasured_prior_finds_the_noise_of_the_interpolation() -> None:
    """Averaging 1, 2 or 4 photosites leaves 9/16 of the variance in red and blue, and 5/8 in green."""
    sigma, size = 8 / 255, 300
    target = smooth(size)
    mosaic = noise.gaussian(cfa.mosaic(target), sigma, generator=torch.Generator().manual_seed(0))
    prior = variational.prior(cfa.interpolate(mosaic), target)
    found = (prior.rate / prior.concentration).mean((0, 2, 3)) / sigma**2
    torch.testing.assert_close(found, torch.tensor([9 / 16, 5 / 8, 9 / 16]), rtol=0.03, atol=0)


def test_prior_follows_a_noise_that_changes() -> None:
    """If one half of the picture is noisier, the prior has each half's own noise level."""
    size = 300
    target = smooth(size)
    levels = torch.where(torch.arange(size) < size // 2, 4 / 255, 16 / 255)
    mosaic = noise.gaussian(cfa.mosaic(target), levels, generator=torch.Generator().manual_seed(0))
    prior = variational.prior(cfa.interpolate(mosaic), target, measured=True)
    found = (prior.rate / prior.concentration).sqrt() * 255
    assert float(found[..., : size // 2 - 10].mean()) == pytest.approx(4, rel=0.03)
    assert float(found[..., size // 2 + 10 :].mean()) == pytest.approx(16, rel=0.03)


@pytest.mark.parametrize("measured", [False, True])
@pytest.mark.parametrize("sigma", [0.0, 1e-6, 1 / 255, 20 / 255])
def test_elbo_and_gradients_are_finite(sigma: float, measured: bool) -> None:
    """From no noise at all to sigma 20, the ELBO and its gradient of every head are finite in float32."""
    target = random(1, 3, 16, 16).float()
    observed = noise.gaussian(target, sigma, generator=torch.Generator().manual_seed(1))
    prior = variational.prior(observed, target, measured=measured)
    assert float((prior.rate / prior.concentration).min()) >= 0.999 * variational.VARIANCE_FLOOR
    values = (
        target + 0.1,
        torch.full_like(target, 2e3),
        torch.full_like(target, 180.0),
        torch.full_like(target, 0.2),
    )
    posterior = NormalInverseGamma(*(value.requires_grad_() for value in values))
    bound = variational.elbo(posterior, prior, observed)
    assert bound.isfinite().all()
    for gradient in torch.autograd.grad(bound.sum(), values):
        assert gradient.isfinite().all() and (gradient != 0).any()


def test_noise_free_prior_has_the_floor_variance() -> None:
    """Without noise the variance is that of rounding to 8 bits: of a uniform error of width 1/255."""
    target = random(1, 3, 9, 9).float()
    prior = variational.prior(target, target)
    rounding = stats.uniform(0, 1 / 255).var()
    torch.testing.assert_close(prior.rate / prior.concentration, torch.full_like(target, float(rounding)))


def pixels(values: list[float] | tuple[float, ...] | Tensor) -> Tensor:
    """Numbers as the pixels of a picture of one row, in float32, the same in each channel."""
    row = torch.as_tensor(values, dtype=torch.float32)
    return row.view(1, 1, 1, -1).expand(1, 3, 1, -1)


def conjugate(prior: NormalInverseGamma, observed: Tensor) -> NormalInverseGamma:
    """The exact posterior given one observation of noise sigma²."""
    after = prior.count + 1
    return NormalInverseGamma(
        (prior.count * prior.loc + observed) / after,
        after,
        prior.concentration + 0.5,
        prior.rate + prior.count * (observed - prior.loc).square() / (2 * after),
    )


priors = st.builds(
    lambda *values: NormalInverseGamma(*(pixels([value]) for value in values)),
    st.floats(-1, 1),
    st.floats(0.1, 100),
    st.floats(2.1, 30),
    st.floats(0.1, 10),
)
observations = st.floats(-2, 2).map(lambda value: pixels([value]))


@given(priors, observations)
@settings(laws, max_examples=100)
def test_elbo_of_the_exact_posterior_is_the_evidence(prior: NormalInverseGamma, observed: Tensor) -> None:
    """At the conjugate posterior the bound is tight: it is the log density of x-tilde, a Student t."""
    y, count, a, b = (float(getattr(prior, name)[0, 0, 0, 0]) for name in NAMES)
    evidence = stats.t.logpdf(float(observed[0, 0, 0, 0]), 2 * a, y, sqrt(b * (count + 1) / (a * count)))
    bound = variational.elbo(conjugate(prior, observed), prior, observed)
    assert bound.flatten().tolist() == pytest.approx([float(evidence)] * 3, abs=1e-3)


@given(priors, observations, st.lists(st.floats(-1.5, 1.5), min_size=4, max_size=4))
@settings(laws, max_examples=100)
def test_elbo_is_below_the_evidence_by_the_divergence(
    prior: NormalInverseGamma, observed: Tensor, change: list[float]
) -> None:
    """The ELBO of any posterior q is lower by KL(q || exact posterior), so the exact one is the maximum."""
    exact = conjugate(prior, observed)
    other = NormalInverseGamma(
        exact.loc + change[0],
        exact.count * exp(change[1]),
        exact.concentration * exp(change[2]),
        exact.rate * exp(change[3]),
    )
    gap = variational.elbo(exact, prior, observed) - variational.elbo(other, prior, observed)
    divergence = other.map(torch.Tensor.double).kl_divergence(exact.map(torch.Tensor.double))
    assert float(gap.min()) >= -1e-3
    torch.testing.assert_close(gap.double(), divergence, rtol=1e-3, atol=2e-3)


def test_the_printed_form_is_not_a_bound() -> None:
    """With eq. (13) as printed the ELBO of the exact posterior exceeds the evidence where count is small."""
    prior = NormalInverseGamma(*(pixels([value]) for value in (0.5, 0.2, 10.0, 0.1)))
    observed = pixels([0.6])
    evidence = stats.t.logpdf(0.6, 20, 0.5, sqrt(0.1 * 1.2 / (10 * 0.2)))
    exact = conjugate(prior, observed)
    printed = variational.elbo(exact, prior, observed, form="printed")
    assert float(printed[0, 0, 0, 0]) > evidence + 0.3
    assert float(variational.elbo(exact, prior, observed)[0, 0, 0, 0]) == pytest.approx(evidence, abs=1e-4)
    with pytest.raises(DebayesError, match='"exact" or "printed"'):
        variational.elbo(exact, prior, observed, form="")


def test_elbo_tends_to_a_weighted_squared_error() -> None:
    """As the prior's count grows, ELBO / count of two images differs by concentration / (2 rate) (y - loc)²."""
    y, near, far, concentration, rate = 0.5, 0.53, 0.7, 180.5, 0.3
    limit = concentration / (2 * rate) * ((y - far) ** 2 - (y - near) ** 2)
    errors = []
    for count in (1e2, 1e4, 1e6):
        prior = NormalInverseGamma(*(pixels([value]) for value in (y, count, 150.0, 0.4)))
        left, right = (
            variational.elbo(
                NormalInverseGamma(*(pixels([value]) for value in (loc, count, concentration, rate))),
                prior,
                pixels([0.9]),
            )
            for loc in (near, far)
        )
        errors.append(abs(float((left - right)[0, 0, 0, 0]) / count / limit - 1))
    assert errors[0] > 10 * errors[1]
    assert errors[2] < 1e-4


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_loss_is_float32_whatever_the_network_is(dtype: torch.dtype) -> None:
    """A half-precision or double posterior and picture are converted to float32 before the arithmetic."""
    target, observed = (random(1, 3, 8, 8, seed=seed).to(dtype) for seed in (0, 1))
    values = (observed, torch.full_like(target, 2e3), torch.full_like(target, 180.0), torch.full_like(target, 0.2))
    prior = variational.prior(observed, target)
    bound = variational.elbo(NormalInverseGamma(*values), prior, observed)
    single = variational.elbo(NormalInverseGamma(*(v.float() for v in values)), prior, observed.float())
    assert bound.dtype == torch.float32
    assert torch.equal(bound, single)
    again = variational.prior(observed.float(), target.float())
    assert all(torch.equal(getattr(prior, name), getattr(again, name)) for name in NAMES)


def gradients(
    posterior: NormalInverseGamma, prior: NormalInverseGamma, observed: Tensor, **scaling: float
) -> list[Tensor]:
    """The ELBO's gradient with respect to the four maps, through `precondition` if its arguments are given."""
    leaves = NormalInverseGamma(*(getattr(posterior, name).detach().clone().requires_grad_() for name in NAMES))
    through = variational.precondition(leaves, prior, **scaling) if scaling else leaves
    bound = variational.elbo(through, prior, observed).sum()
    return list(torch.autograd.grad(bound, [getattr(leaves, name) for name in NAMES]))


@given(priors, priors, observations, st.floats(1e-3, 1), st.floats(1, 1e4), st.floats(0.01, 10) | st.just(inf))
@laws
def test_precondition_scales_one_gradient(
    posterior: NormalInverseGamma,
    prior: NormalInverseGamma,
    observed: Tensor,
    level: float,
    gain: float,
    bend: float,
) -> None:
    """The posterior and three of the four gradients do not change at all. The gradient of loc no longer depends on
    the posterior's noise: it is gain / s² (count (target - loc) + observed - loc) with s² = v + level², v the
    prior's variance, times the ratio of the slopes of a pseudo-Huber loss with delta bend * s and of a square."""
    scaling = {"level": level, "gain": gain, "bend": bend}
    same = variational.precondition(posterior, prior, **scaling)
    assert all(torch.equal(getattr(same, name), getattr(posterior, name)) for name in NAMES)
    plain = gradients(posterior, prior, observed)
    scaled = gradients(posterior, prior, observed, **scaling)
    assert all(torch.equal(*pair) for pair in zip(plain[1:], scaled[1:], strict=True))
    pull = prior.count * (prior.loc - posterior.loc) + (observed - posterior.loc)
    square = prior.rate / prior.concentration + level**2
    error = (posterior.loc - prior.loc).double()
    delta = bend * square.double().sqrt()
    slope = error / (1 + (error / delta).square()).sqrt()  # of SciPy's pseudo_huber(delta, error)
    weight = gain / square * torch.where(error == 0, 1, slope / error).float()
    rounding = 1e-5 * float((weight * (prior.count + 1)).max())
    torch.testing.assert_close(scaled[0], weight * pull, rtol=1e-4, atol=rounding)


def test_precondition_by_patch_is_the_gradient_of_psnr() -> None:
    """With infinite bend and a count so large that the observation does not matter, the gradient of loc is
    proportional to that of `metrics.psnr` averaged over the patches."""
    target = random(3, 3, 12, 12).float()
    spread = torch.tensor([0.02, 0.1, 0.5]).view(3, 1, 1, 1)
    loc = target + spread * (random(3, 3, 12, 12, seed=1).float() - 0.5)
    ones = torch.ones_like(loc)
    posterior = NormalInverseGamma(loc, 1e6 * ones, 50 * ones, 0.3 * random(3, 3, 12, 12, seed=2).float() + 0.1)
    prior = NormalInverseGamma(target, 1e6 * ones, 50 * ones, 0.1 * ones)
    found = gradients(posterior, prior, target, level=0.0, gain=1.0, by_patch=True)[0]
    image = loc.clone().requires_grad_()
    (expected,) = torch.autograd.grad(metrics.psnr(image, target).sum(), image)
    factor = found.flatten() @ expected.flatten() / expected.square().sum()
    assert factor > 0
    torch.testing.assert_close(found / factor, expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max()))


def test_negative_psnr_is_minus_the_metric() -> None:
    """It is minus the mean of `metrics.psnr` over the patches; for equal pictures `level` limits it."""
    target, image = random(3, 3, 12, 12).float(), random(3, 3, 12, 12, seed=1).float()
    found = variational.negative_psnr(image, target, level=0.0)
    torch.testing.assert_close(found, -metrics.psnr(image, target).mean())
    assert float(variational.negative_psnr(target, target, level=0.1)) == pytest.approx(-20)
