"""The normal-inverse-gamma distribution against SciPy's densities and against draws from it."""

from math import sqrt

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import draw
from scipy import stats
from torch import Tensor
from torch.utils import _pytree as pytree

from debayes.posterior.nig import MeanOnly, NormalInverseGamma, check_level, merge, whole
from debayes.system.errors import DebayesError

laws = settings(deadline=None, max_examples=100, derandomize=True)
DRAWS = 50_000

# loc, count, concentration, rate
CASES = [(0.5, 1.0, 3.0, 1.0), (-1.0, 0.3, 6.0, 0.02), (0.2, 200.0, 180.5, 0.25), (2.0, 5.0, 12.0, 40.0)]


def build(loc: float, count: float, concentration: float, rate: float, *shape: int) -> NormalInverseGamma:
    """The distribution of these four numbers, repeated to a shape, in float64."""
    return NormalInverseGamma(
        *(torch.full(shape, value, dtype=torch.float64) for value in (loc, count, concentration, rate))
    )


def assert_mean(values: Tensor, expected: float | Tensor, *, errors: float = 4.5) -> None:
    """Check that the mean of the values is the expected one within a number of standard errors."""
    error = float(values.std()) / sqrt(values.numel())
    assert abs(float(values.mean()) - float(expected)) < errors * error


distributions = st.builds(
    build,
    st.floats(-2, 2),
    st.floats(0.01, 1e4),
    st.floats(2.01, 400),
    st.floats(1e-4, 1e3),
)


@given(distributions, st.floats(-3, 3), st.floats(1e-3, 10))
@laws
def test_log_prob_is_scipys(q: NormalInverseGamma, z: float, variance: float) -> None:
    """The joint log density is SciPy's."""
    got = q.log_prob(torch.tensor(z, dtype=torch.float64), torch.tensor(variance, dtype=torch.float64))
    expected = stats.normal_inverse_gamma.logpdf(
        z, variance, float(q.loc), float(q.count), float(q.concentration), float(q.rate)
    )
    assert float(got) == pytest.approx(float(expected), rel=1e-10, abs=1e-8)


@pytest.mark.parametrize(
    ("q", "p"), [(CASES[0], CASES[3]), (CASES[3], CASES[0]), (CASES[2], (0.19, 100.0, 200.0, 0.3))]
)
def test_kl_divergence_is_the_mean_log_ratio(q: tuple[float, ...], p: tuple[float, ...]) -> None:
    """KL(q || p) = E_q[log q - log p], by drawing from q."""
    left, right = build(*q, DRAWS), build(*p, DRAWS)
    drawn = draw(left, seed=1)
    assert_mean(left.log_prob(*drawn) - right.log_prob(*drawn), left.kl_divergence(right)[0])


@given(distributions, distributions)
@laws
def test_kl_divergence_is_positive_and_zero_at_equality(q: NormalInverseGamma, p: NormalInverseGamma) -> None:
    """KL is never negative, and is 0 from a distribution to itself."""
    assert float(q.kl_divergence(p)) >= -1e-9
    assert float(q.kl_divergence(q)) == 0
    single = q.map(lambda t: t.float())
    assert float(single.kl_divergence(single)) == 0


@given(distributions, st.sampled_from(("loc", "count", "concentration", "rate")), st.sampled_from((0.9, 1.1)))
@laws
def test_kl_divergence_sees_every_parameter(q: NormalInverseGamma, name: str, factor: float) -> None:
    """Changing any single parameter, up or down, makes KL positive in both directions."""
    values = {n: getattr(q, n) for n in ("loc", "count", "concentration", "rate")}
    spread = q.predictive().scale
    changed = values[name] * factor if name != "loc" else values[name] + (factor - 1) * spread
    p = NormalInverseGamma(**{**values, name: changed})
    assert float(q.kl_divergence(p)) > 1e-5
    assert float(p.kl_divergence(q)) > 1e-5


@pytest.mark.parametrize("case", CASES)
def test_expected_log_likelihood_is_the_mean(case: tuple[float, ...]) -> None:
    """E[log Normal(observed; z, sigma²)] by drawing z and sigma²."""
    q = build(*case, DRAWS)
    z, variance = draw(q, seed=2)
    for observed in (0.3, -0.7):
        x = torch.full_like(z, observed)
        drawn = torch.distributions.Normal(z, variance.sqrt()).log_prob(x)
        assert_mean(drawn, q.expected_log_likelihood(x)[0])


@pytest.mark.parametrize("case", [(0.5, 0.5, 6.0, 0.05), (0.5, 2.0, 6.0, 40.0)])
def test_the_printed_expectation_is_biased(case: tuple[float, ...]) -> None:
    """Eq. (13) as printed is many standard errors away from the mean of draws; the exact form is not."""
    q = build(*case, DRAWS)
    z, variance = draw(q, seed=3)
    x = torch.full_like(z, 0.4)
    drawn = torch.distributions.Normal(z, variance.sqrt()).log_prob(x)
    error = float(drawn.std()) / sqrt(DRAWS)
    assert abs(float(drawn.mean() - q.expected_log_likelihood(x, form="printed")[0])) > 50 * error
    assert_mean(drawn, q.expected_log_likelihood(x, form="exact")[0])


def test_an_unknown_form_is_rejected() -> None:
    """The error message lists the two forms."""
    q = build(*CASES[0])
    with pytest.raises(DebayesError, match='"exact" or "printed", not \'paper\''):
        q.expected_log_likelihood(q.loc, form="paper")


@given(distributions, st.floats(-3, 3))
@laws
def test_predictive_is_a_student_t(q: NormalInverseGamma, z: float) -> None:
    """The marginal density of z is the Student t of 2 * concentration degrees of freedom."""
    scale = sqrt(float(q.rate / (q.concentration * q.count)))
    expected = stats.t.logpdf(z, 2 * float(q.concentration), float(q.loc), scale)
    got = q.predictive().log_prob(torch.tensor(z, dtype=torch.float64))
    assert float(got) == pytest.approx(float(expected), rel=1e-9, abs=1e-8)
    assert float(q.predictive().variance) == pytest.approx(float(q.mean_variance), rel=1e-12)


@pytest.mark.parametrize("case", [case for case in CASES if case[2] > 4])
def test_moments_of_samples(case: tuple[float, ...]) -> None:
    """`mean`, `mean_variance` and `noise_variance` are E[z], Var[z] and E[sigma²] of draws."""
    q = build(*case, DRAWS)
    z, variance = draw(q, seed=6)
    assert_mean(z, q.mean[0])
    assert_mean((z - q.loc).square(), q.mean_variance[0])
    assert_mean(variance, q.noise_variance[0])


@given(distributions, st.floats(0.01, 0.999))
@laws
def test_interval_is_scipys(q: NormalInverseGamma, level: float) -> None:
    """The central interval is that of SciPy's Student t."""
    scale = sqrt(float(q.rate / (q.concentration * q.count)))
    expected = stats.t.interval(level, 2 * float(q.concentration), float(q.loc), scale)
    assert [float(end) for end in q.interval(level)] == pytest.approx(
        [float(e) for e in expected], abs=1e-9 * scale
    )


@given(distributions, st.floats(0.01, 0.99))
@laws
def test_interval_level_inverts_interval(q: NormalInverseGamma, level: float) -> None:
    """`interval_level` of either end of an interval is the level of that interval; at `loc` it is 0."""
    for end in q.interval(level):
        assert float(q.interval_level(end)) == pytest.approx(level, abs=1e-6)
    assert float(q.interval_level(q.loc)) == 0


@given(distributions, st.floats(-3, 3))
@laws
def test_log_marginal_is_scipys(q: NormalInverseGamma, z: float) -> None:
    """The density of z alone is that of SciPy's t distribution."""
    scale = float(q.rate / (q.concentration * q.count)) ** 0.5
    expected = stats.t.logpdf(z, 2 * float(q.concentration), float(q.loc), scale)
    assert float(q.log_marginal(torch.tensor(z, dtype=torch.float64))) == pytest.approx(
        expected, rel=1e-6, abs=1e-6
    )


@pytest.mark.parametrize("case", CASES)
def test_interval_covers_its_level(case: tuple[float, ...]) -> None:
    """A fraction `level` of the draws lies inside, and equal fractions lie above and below."""
    q = build(*case, DRAWS)
    z, _ = draw(q, seed=11)
    for level in (0.5, 0.9, 0.99):
        low, high = q.interval(level)
        error = sqrt(level * (1 - level) / DRAWS)
        assert float(((low <= z) & (z <= high)).double().mean()) == pytest.approx(level, abs=4.5 * error)
        assert float((z < low).double().mean()) == pytest.approx((1 - level) / 2, abs=4.5 * error)


@pytest.mark.parametrize("level", [0.0, 1.0, -0.5, 90.0, float("nan")])
def test_a_level_is_a_probability(level: float) -> None:
    """A level outside (0, 1), such as a percentage, is rejected."""
    for call in (build(*CASES[0]).interval, check_level):
        with pytest.raises(DebayesError, match=f"between 0 and 1, not {level}"):
            call(level)


def test_map_applies_to_all_four() -> None:
    """`map` applies the function to each of the four tensors and keeps their order."""
    q = NormalInverseGamma(*(torch.arange(4.0) + 10 * i for i in range(4)))
    doubled = q.map(lambda t: 2 * t.flip(0))
    for i, name in enumerate(("loc", "count", "concentration", "rate")):
        assert getattr(doubled, name).tolist() == [2 * (10 * i + k) for k in (3, 2, 1, 0)]


def moments(q: NormalInverseGamma) -> tuple[float, float, float, float]:
    """E[z], E[z²], E[sigma²], E[sigma⁴] by SciPy."""
    scale = sqrt(float(q.rate / (q.concentration * q.count)))
    student = stats.t(2 * float(q.concentration), float(q.loc), scale)
    noise = stats.invgamma(float(q.concentration), scale=float(q.rate))
    return (
        float(student.mean()),
        float(student.var() + student.mean() ** 2),
        float(noise.mean()),
        float(noise.var() + noise.mean() ** 2),
    )


@given(st.lists(distributions, min_size=1, max_size=8))
@laws
def test_merge_has_the_moments_of_the_mixture(posteriors: list[NormalInverseGamma]) -> None:
    """The first and second moments of z and sigma² are the averages of those of the merged posteriors."""
    merged = merge(posteriors)
    expected = np.mean([moments(q) for q in posteriors], 0)
    assert moments(merged) == pytest.approx(expected, rel=1e-6, abs=1e-9)
    assert float(merged.concentration) > 2


def test_merge_has_the_moments_of_mixed_draws() -> None:
    """Draws from a randomly chosen posterior have the mean and variance of z and sigma² of the merged one."""
    cases = [(0.2, 3.0, 20.0, 1.0), (0.5, 30.0, 12.0, 2.0), (-0.1, 1.0, 40.0, 0.5)]
    draws = [draw(build(*case, DRAWS), seed=12 + i) for i, case in enumerate(cases)]
    merged = merge([build(*case) for case in cases])
    z, variance = (torch.cat([drawn[i] for drawn in draws]) for i in (0, 1))
    assert_mean(z, merged.mean)
    assert_mean((z - merged.mean).square(), merged.mean_variance)
    assert_mean(variance, merged.noise_variance)
    spread = merged.noise_variance.square() / (merged.concentration - 2)
    assert_mean((variance - merged.noise_variance).square(), spread)


@given(distributions, st.integers(1, 8))
@laws
def test_merging_equal_posteriors_changes_nothing(q: NormalInverseGamma, times: int) -> None:
    """Identical posteriors merge to themselves."""
    merged = merge([q] * times)
    for name in ("loc", "count", "concentration", "rate"):
        assert float(getattr(merged, name)) == pytest.approx(float(getattr(q, name)), rel=1e-9, abs=1e-12)


def test_merging_different_posteriors_widens() -> None:
    """If posteriors disagree about z, Var[z] of the merged one grows; the concentration stays."""
    left, right = build(0.0, 100.0, 20.0, 1.0), build(1.0, 100.0, 20.0, 1.0)
    merged = merge([left, right])
    assert float(merged.mean_variance) == pytest.approx(float(left.mean_variance) + 0.25)
    assert float(merged.concentration) == pytest.approx(20)


def test_methods_of_tensors() -> None:
    """A posterior is indexed, moved, converted and detached as a tensor is, all four maps alike."""
    q = NormalInverseGamma(*(torch.rand(2, 3, 4, 5, requires_grad=True) + i for i in range(4)))
    part = q[1, ..., 1:3]
    assert part.loc.shape == (3, 4, 2) and torch.equal(part.rate, q.rate[1, ..., 1:3])
    assert torch.equal(q[q.loc > 0.5].count, q.count[q.loc > 0.5])
    assert q.to(torch.float64).concentration.dtype == torch.float64
    assert q.detach().cpu().rate.requires_grad is False
    arrays = q.numpy()
    assert list(arrays) == ["loc", "count", "concentration", "rate"]
    np.testing.assert_array_equal(arrays["rate"], q.rate.detach())
    image = MeanOnly(q.loc)
    assert isinstance(image[0], MeanOnly) and list(image.numpy()) == ["loc"]


def test_posteriors_are_pytrees() -> None:
    """PyTorch takes them apart into their tensors, and puts together what it made of these."""
    q = build(*CASES[0], 2)
    for posterior, count in ((q, 4), (MeanOnly(q.loc), 1)):
        leaves, spec = pytree.tree_flatten(posterior)
        assert len(leaves) == count
        back = pytree.tree_unflatten(leaves, spec)
        assert type(back) is type(posterior) and back.loc is posterior.loc
        doubled = pytree.tree_map(lambda t: 2 * t, [posterior])[0]
        assert torch.equal(doubled.loc, 2 * posterior.loc)
    names = [pytree.keystr(path) for path, _ in pytree.tree_flatten_with_path(q)[0]]
    assert names == [".loc", ".count", ".concentration", ".rate"]
    assert pytree.tree_map(type, q).loc is torch.Tensor  # other things than tensors are put into the fields


def test_whole_rejects_an_image_alone() -> None:
    """It returns a posterior as it is."""
    q = build(*CASES[0], 2)
    assert whole(q) is q
    with pytest.raises(DebayesError, match="the image alone"):
        whole(MeanOnly(q.loc))
