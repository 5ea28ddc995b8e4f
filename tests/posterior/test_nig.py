"""The normal-inverse-gamma distribution against SciPy and against its own samples."""

from math import sqrt

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from debayes.posterior.nig import NormalInverseGamma, merge

laws = settings(deadline=None, max_examples=100, derandomize=True)
DRAWS = 50_000

# loc, count, concentration, rate
CASES = [(0.5, 1.0, 3.0, 1.0), (-1.0, 0.3, 6.0, 0.02), (0.2, 200.0, 180.5, 0.25), (2.0, 5.0, 12.0, 40.0)]


def build(loc: float, count: float, concentration: float, rate: float, *shape: int) -> NormalInverseGamma:
    """The distribution of these four numbers, repeated to a shape, in float64."""
    return NormalInverseGamma(
        *(torch.full(shape, value, dtype=torch.float64) for value in (loc, count, concentration, rate))
    )


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def assert_mean(values: Tensor, expected: float | Tensor, *, errors: float = 4.5) -> None:
    """The mean of the values is the expected one within so many standard errors."""
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
    draw = left.sample(generator=seeded(1))
    assert_mean(left.log_prob(*draw) - right.log_prob(*draw), left.kl_divergence(right)[0])


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
    """A change of any one parameter, up or down, makes KL positive in both directions."""
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
    z, variance = q.sample(generator=seeded(2))
    for observed in (0.3, -0.7):
        x = torch.full_like(z, observed)
        drawn = torch.distributions.Normal(z, variance.sqrt()).log_prob(x)
        assert_mean(drawn, q.expected_log_likelihood(x)[0])


@pytest.mark.parametrize("case", [(0.5, 0.5, 6.0, 0.05), (0.5, 2.0, 6.0, 40.0)])
def test_the_printed_expectation_is_another_number(case: tuple[float, ...]) -> None:
    """Eq. (13) as printed is many standard errors from the mean of draws, above it or below it."""
    q = build(*case, DRAWS)
    z, variance = q.sample(generator=seeded(3))
    x = torch.full_like(z, 0.4)
    drawn = torch.distributions.Normal(z, variance.sqrt()).log_prob(x)
    error = float(drawn.std()) / sqrt(DRAWS)
    assert abs(float(drawn.mean() - q.expected_log_likelihood(x, form="printed")[0])) > 50 * error
    assert_mean(drawn, q.expected_log_likelihood(x, form="exact")[0])


def test_an_unknown_form_is_refused() -> None:
    """The form of the expectation is one of two words, and the sentence says which."""
    q = build(*CASES[0])
    with pytest.raises(ValueError, match='"exact" or "printed", not \'paper\''):
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


@pytest.mark.parametrize("case", CASES)
def test_samples_follow_their_marginals(case: tuple[float, ...]) -> None:
    """Drawn sigma² is inverse gamma and drawn z Student t (Kolmogorov-Smirnov), for SciPy and for predictive()."""
    q = build(*case, DRAWS)
    z, variance = q.sample(generator=seeded(4))
    marginal = build(*case).predictive()
    inverse_gamma = stats.invgamma(case[2], scale=case[3])
    student = stats.t(float(marginal.df), float(marginal.loc), float(marginal.scale))
    assert stats.kstest(variance.numpy(), inverse_gamma.cdf).pvalue > 1e-3
    assert stats.kstest(z.numpy(), student.cdf).pvalue > 1e-3


@pytest.mark.parametrize("case", CASES)
def test_given_the_variance_the_mean_is_normal(case: tuple[float, ...]) -> None:
    """(z - loc) sqrt(count) / sigma is standard normal, whatever sigma was drawn with it."""
    q = build(*case, DRAWS)
    z, variance = q.sample(generator=seeded(5))
    score = ((z - q.loc) * (q.count / variance).sqrt()).numpy()
    assert stats.kstest(score, stats.norm.cdf).pvalue > 1e-3
    assert abs(stats.spearmanr(np.abs(score), variance.numpy()).statistic) < 4.5 / sqrt(DRAWS)


@pytest.mark.parametrize("case", [case for case in CASES if case[2] > 4])
def test_moments_of_samples(case: tuple[float, ...]) -> None:
    """E[z], Var[z] and E[sigma²] are what the maps say, and a degraded pixel has E[sigma²] (1 + 1 / count)."""
    q = build(*case, DRAWS)
    z, variance = q.sample(generator=seeded(6))
    assert_mean(z, q.mean[0])
    assert_mean((z - q.loc).square(), q.mean_variance[0])
    assert_mean(variance, q.noise_variance[0])
    degraded = q.degrade(generator=seeded(7))
    assert_mean(degraded, q.mean[0])
    assert_mean((degraded - q.loc).square(), q.noise_variance[0] * (1 + 1 / case[1]))


@pytest.mark.parametrize("concentration", [1.0, 1.5, 2.001, 30.0])
def test_float32_samples_of_low_concentration(concentration: float) -> None:
    """The rejection sampler is exact in float32 from concentration 1 on."""
    q = build(0.0, 1.0, concentration, 1.0, DRAWS).map(lambda t: t.float())
    _, variance = q.sample(generator=seeded(8))
    assert variance.dtype == torch.float32
    assert stats.kstest(variance.double().numpy(), stats.invgamma(concentration).cdf).pvalue > 1e-3


def test_a_seed_fixes_the_draw() -> None:
    """The same seed gives the same draw, the next draw of a generator and another seed give others."""
    q = build(*CASES[0], 50)
    generator = seeded(9)
    first, second = q.sample(generator=generator), q.sample(generator=generator)
    again, other = q.sample(generator=seeded(9)), q.sample(generator=seeded(10))
    assert torch.equal(first[0], again[0]) and torch.equal(first[1], again[1])
    for draw in (second, other):
        assert not (first[0] == draw[0]).any() and not (first[1] == draw[1]).any()
    assert torch.equal(q.degrade(generator=seeded(9)), q.degrade(generator=seeded(9)))


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
def test_level_undoes_interval(q: NormalInverseGamma, level: float) -> None:
    """The smallest interval that holds an end of an interval is that interval, on both sides; the middle has 0."""
    for end in q.interval(level):
        assert float(q.level(end)) == pytest.approx(level, abs=1e-6)
    assert float(q.level(q.loc)) == 0


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
    """A share `level` of drawn z lies inside, and as much above as below."""
    q = build(*case, DRAWS)
    z, _ = q.sample(generator=seeded(11))
    for level in (0.5, 0.9, 0.99):
        low, high = q.interval(level)
        error = sqrt(level * (1 - level) / DRAWS)
        assert float(((low <= z) & (z <= high)).double().mean()) == pytest.approx(level, abs=4.5 * error)
        assert float((z < low).double().mean()) == pytest.approx((1 - level) / 2, abs=4.5 * error)


@pytest.mark.parametrize("level", [0.0, 1.0, -0.5, 90.0, float("nan")])
def test_a_level_is_a_probability(level: float) -> None:
    """A level that is no probability, such as a percentage, is refused with a sentence."""
    with pytest.raises(ValueError, match=f"between 0 and 1, not {level}"):
        build(*CASES[0]).interval(level)


def test_map_reaches_all_four() -> None:
    """map applies its function to each of the four tensors, in their places."""
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
    """First and second moments of z and sigma² are the means of those of the merged posteriors."""
    merged = merge(posteriors)
    expected = np.mean([moments(q) for q in posteriors], 0)
    assert moments(merged) == pytest.approx(expected, rel=1e-6, abs=1e-9)
    assert float(merged.concentration) > 2


def test_merge_has_the_moments_of_mixed_draws() -> None:
    """Drawing from a posterior chosen at random gives the mean and variance of z and sigma² of the merged one."""
    cases = [(0.2, 3.0, 20.0, 1.0), (0.5, 30.0, 12.0, 2.0), (-0.1, 1.0, 40.0, 0.5)]
    draws = [build(*case, DRAWS).sample(generator=seeded(12 + i)) for i, case in enumerate(cases)]
    merged = merge([build(*case) for case in cases])
    z, variance = (torch.cat([draw[i] for draw in draws]) for i in (0, 1))
    assert_mean(z, merged.mean)
    assert_mean((z - merged.mean).square(), merged.mean_variance)
    assert_mean(variance, merged.noise_variance)
    spread = merged.noise_variance.square() / (merged.concentration - 2)
    assert_mean((variance - merged.noise_variance).square(), spread)


@given(distributions, st.integers(1, 8))
@laws
def test_merging_equals_changes_nothing(q: NormalInverseGamma, times: int) -> None:
    """Posteriors that agree merge to themselves."""
    merged = merge([q] * times)
    for name in ("loc", "count", "concentration", "rate"):
        assert float(getattr(merged, name)) == pytest.approx(float(getattr(q, name)), rel=1e-9, abs=1e-12)


def test_merging_unequals_widens() -> None:
    """Posteriors that disagree about z merge to one that is less sure of z, and no less of sigma²."""
    left, right = build(0.0, 100.0, 20.0, 1.0), build(1.0, 100.0, 20.0, 1.0)
    merged = merge([left, right])
    assert float(merged.mean_variance) == pytest.approx(float(left.mean_variance) + 0.25)
    assert float(merged.concentration) == pytest.approx(20)
