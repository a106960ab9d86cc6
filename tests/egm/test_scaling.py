"""Test that vectors of scaling factors follow their formulas, and that no vector near the optimal one is better.

A scaling has one factor for each column, by which rows are multiplied before they are clipped. Its noise factor is the
sum of the noise variances of all columns, up to a constant.
"""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from egm import _optimal, gx2, scaling
from egm.study import tables

sigmas = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=12).map(np.array)


def test_elliptical_is_theorem_3():
    np.testing.assert_allclose(scaling.elliptical([1.0, 4.0, 4.0]), [1 / 3, 2 / 3, 2 / 3], rtol=1e-15)


@given(sigmas)
def test_norms(sigma):
    assert np.sum(scaling.elliptical(sigma) ** 2) == pytest.approx(1, rel=1e-14)
    assert np.sum((scaling.expected_norm(sigma) * sigma) ** 2) == pytest.approx(1, rel=1e-14)


@given(sigmas)
def test_expected_norm_is_lemma_41(sigma):
    # At its minimum the relaxed objective sum b^-2 is (sum sigma)^2, and Cauchy-Schwarz forbids less.
    assert np.sum(scaling.expected_norm(sigma) ** -2.0) == pytest.approx(np.sum(sigma) ** 2, rel=1e-13)


@pytest.mark.parametrize("power", [-1000, -600, 500, 900, 1010])
@pytest.mark.parametrize("sigma", [[18.0, 1200.0, 3.0], [1e-4, 1.0], [3.0]])
def test_expected_norm_in_any_unit(sigma, power):
    """If sigma is multiplied by 2**`power`, the factors of `scaling.expected_norm` are divided by 2**`power` exactly.

    The factors scale the columns, whose standard deviations are `sigma`. The law holds even if squares overflow.
    """
    np.testing.assert_array_equal(
        scaling.expected_norm(np.ldexp(sigma, power)), np.ldexp(scaling.expected_norm(sigma), -power)
    )


def test_expected_norm_at_the_ends_of_the_doubles():
    np.testing.assert_allclose(scaling.expected_norm([1e-300, 1e300]), [1.0, 1e-300], rtol=1e-14)
    np.testing.assert_allclose(scaling.expected_norm([5e-324, 1.0]) * np.sqrt([5e-324, 1.0]), 1, rtol=1e-14)
    largest = 1.5 * 2.0**1023  # three of them have no sum
    np.testing.assert_allclose(scaling.expected_norm([largest] * 3) * largest, 3**-0.5, rtol=1e-14)


@pytest.mark.parametrize(
    "scale", [scaling.expected_norm, lambda s: scaling.optimal(s, 0.1), lambda s: scaling.mean_deviation(s, 2)]
)
def test_multipliers_that_are_no_doubles_are_refused(scale):
    with pytest.raises(ValueError, match=r"sigma\[1\] must be larger, or its multiplier would overflow, got 1e-320"):
        scale([2e-320, 1e-320])


def test_products_that_are_no_doubles_are_refused():
    assert scaling.elliptical([1e308, 1e308]) == pytest.approx(np.sqrt([0.5, 0.5]))
    assert scaling.elliptical([1e-130, 1e200]) == pytest.approx([1e-165, 1.0], rel=1e-14, abs=0)
    assert scaling.optimal([1e308, 1e308], 0.1) * 1e308 == pytest.approx(np.sqrt([0.5, 0.5]))
    for compute in (scaling.clip_norm, scaling.noise_factor, scaling.excess_bound):
        for unit, largest in ((1e300, "inf"), (1e-300, "0")):
            with pytest.raises(ValueError, match=f"b times sigma must have a largest entry .* got {largest}"):
                compute([unit, unit], [unit, unit], 0.1)
    for scale in (lambda s: scaling.optimal(s, 0.1), lambda s: scaling.mean_deviation(s, 2)):
        with pytest.raises(ValueError, match=r"sigma must be within a factor of 1e300, got 1e-300 and 1e\+300"):
            scale([1e-300, 1e300])


@given(sigmas, st.floats(1e-6, 1e6))
@example(np.array([1.0, 1e-200]), 30.0)
def test_mean_deviation_is_the_minimum_of_a_convex_problem(sigma, k):
    b = scaling.mean_deviation(sigma, k)
    weights = (b * sigma) ** 2
    assert np.sum(weights) == pytest.approx(1, rel=1e-12)
    # The stationary point has w^2 (1 + k sqrt(2) w / |w|) proportional to sigma^2; the problem is convex.
    slope = np.log1p(k * np.sqrt(2) * weights / np.linalg.norm(weights))
    assert np.ptp(2 * np.log(weights) + slope - 2 * np.log(sigma)) < 1e-10


@given(sigmas)
def test_mean_deviation_between_its_limits(sigma):
    first, last = sigma / np.sum(sigma), sigma ** (2 / 3) / np.sum(sigma ** (2 / 3))
    for k, weights in ((0, first), (1e-20, first), (1e30, last), (1e300, last)):
        np.testing.assert_allclose((scaling.mean_deviation(sigma, k) * sigma) ** 2, weights, rtol=1e-11)


@pytest.mark.parametrize("k", [0, 1e-5, 30, 1e150])
@pytest.mark.parametrize("sigma", [[1e-306, 1.0], [1e-200, 3e-200], [1e-150, 1e150, 1e150]])
def test_mean_deviation_of_very_different_columns(sigma, k):
    # the stationary point in logarithms, as weights may be too small for a double; for k = 0 it is Lemma 4.1
    log_weights = 2 * (np.log(scaling.mean_deviation(sigma, k)) + np.log(sigma))
    assert np.logaddexp.reduce(log_weights) == pytest.approx(0, abs=1e-12)
    log_v = log_weights - np.logaddexp.reduce(2 * log_weights) / 2
    log_v += np.log(np.sqrt(2) * k) if k else -np.inf
    assert np.ptp(2 * log_weights + np.logaddexp(0, log_v) - 2 * np.log(sigma)) < 1e-10


@pytest.mark.parametrize("k", [0.3, 20**0.5, 1000.0])
def test_mean_deviation_of_two_coordinates_by_search(k):
    # Among w = (u, 1 - u), the scaling minimizes (1 + k sqrt(2) |w|) (sigma_1^2 / w_1 + sigma_2^2 / w_2).
    sigma, u = np.array([3.0, 1.0]), np.linspace(0.5, 0.8, 300_001)
    norm = np.hypot(u, 1 - u)
    best = u[np.argmin((1 + k * np.sqrt(2) * norm) * (sigma[0] ** 2 / u + sigma[1] ** 2 / (1 - u)))]
    assert (scaling.mean_deviation(sigma, k)[0] * sigma[0]) ** 2 == pytest.approx(best, abs=2e-6)


def test_clip_norm_is_the_root_of_a_quantile():
    sigma, b = np.array([3.0, 1.0, 0.5]), np.array([0.2, 0.5, 2.0])
    assert scaling.clip_norm(b, sigma, 1e-4) ** 2 == pytest.approx(gx2.isf(1e-4, (b * sigma) ** 2), rel=1e-14)


def test_clip_norm_of_spreads_whose_squares_underflow():
    small = scaling.clip_norm(np.ones(2), np.array([1e-200, 1e-200]), 0.1)
    assert small / 1e-200 == pytest.approx(np.sqrt(-2 * np.log(0.1)), rel=1e-13)
    assert scaling.clip_norm(np.ones(2), np.array([1.0, 1e-300]), 0.1) == scaling.clip_norm(np.ones(1), np.ones(1), 0.1)


@given(sigmas, st.floats(1e-3, 1e3))
@settings(deadline=None, max_examples=25)
def test_noise_factor_ignores_the_norm_of_b(sigma, factor):
    b = scaling.expected_norm(sigma)
    one, other = (scaling.noise_factor(scale * b, sigma, 1e-3) for scale in (1.0, factor))
    assert other == pytest.approx(one, rel=1e-12)


@pytest.mark.parametrize("unit", [1e-300, 1e-200, 1e150, 1e200, 1e300])
def test_noise_factor_at_the_ends_of_the_doubles(unit):
    b, sigma = np.array([1.0, 3.0]), np.array([2.0, 1.0])
    assert scaling.noise_factor(unit * b, sigma, 0.1) == pytest.approx(scaling.noise_factor(b, sigma, 0.1), rel=1e-12)
    if unit > 1e160:
        assert scaling.noise_factor(b, unit * sigma, 0.1) == np.inf
    else:
        expected = unit * scaling.noise_factor(b, sigma, 0.1) * unit
        assert scaling.noise_factor(b, unit * sigma, 0.1) == pytest.approx(expected, rel=1e-12, abs=0)


@pytest.mark.parametrize(
    ("d", "alpha", "n", "published"),
    # A prototype that is independent of this package measured these ratios, to the digits shown.
    [(100, 1, 100, 1.121), (100, 1, 10**6, 1.487), (10, 1, 10**6, 1.322), (100, 10, 10**6, 1.0006)],
)
def test_optimal_beats_lemma_41_by_as_much_as_it_should(d, alpha, n, published):
    sigma = tables.zipf_sigma(d, alpha)
    factors = [
        scaling.noise_factor(b, sigma, 1 / n) for b in (scaling.expected_norm(sigma), scaling.optimal(sigma, 1 / n))
    ]
    assert factors[0] / factors[1] == pytest.approx(published, abs=6e-4 if published > 1.001 else 6e-5)


@pytest.mark.slow
@given(sigmas, st.floats(1e-30, 0.5))
@example(np.array([118.0, 351.0, 932.0]), 1e-30)  # here an extrapolation without a limit overshoots
@settings(deadline=None, max_examples=30)
def test_optimal_is_stationary_and_never_worse(sigma, p):
    b = scaling.optimal(sigma, p)
    weights = (b * sigma) ** 2
    assert np.sum(weights) == pytest.approx(1, rel=1e-12)
    pull = gx2.conditional_means(gx2.isf(p, weights), weights)
    balance = np.log(weights * np.sqrt(pull) / sigma)
    assert np.ptp(balance) < 1e-5
    best = scaling.noise_factor(b, sigma, p)
    assert best <= scaling.noise_factor(scaling.expected_norm(sigma), sigma, p) * (1 + 1e-12)
    nearby = b * np.exp(0.01 * np.random.default_rng(1).standard_normal((20, sigma.size)))
    assert all(scaling.noise_factor(other, sigma, p) >= best * (1 - 1e-12) for other in nearby)


@pytest.mark.parametrize("p", [1e-12, 1e-6, 0.5])
@pytest.mark.parametrize("least", [1e-19, 1e-20, 1e-100, 1e-299])
def test_optimal_is_stationary_in_columns_too_small_for_the_total(least, p):
    """The scaling "optimal" is right for a column with the spread `least` beside 1, whose noise hardly counts in all.

    Where it is best, w sqrt(g) / sigma is the same number in each column. Here w is (b sigma)**2, and g is the
    expectation of the square of the standardized entry for rows at the clipping radius, outside which a share `p` of
    the rows lies.
    """
    sigma = np.array([1.0, least])
    weights = (scaling.optimal(sigma, p) * sigma) ** 2
    pull = gx2.conditional_means(gx2.isf(p, weights), weights)
    assert np.ptp(np.log(weights * np.sqrt(pull) / sigma)) < 1e-4


@pytest.mark.parametrize("d", [2, 5, 100])
@pytest.mark.parametrize("p", [1e-300, 1e-30, 1e-6, 1e-2, 0.5, 0.9, 1 - 1e-9])
def test_log_quantile_is_convex_in_log_weights(d, p):
    """The log of the upper quantile of a weighted sum of chi-square variables is convex in the logs of the weights.

    This follows from a theorem of Prekopa (1973). So the noise variance, added up over the columns, has only one
    minimum as a function of the scaling factors; `scaling.optimal` searches for it. `d` is the number of weights, and
    `p` the probability of the upper tail.
    """
    rng = np.random.default_rng([d, int(-np.log10(p))])
    for share, dof in ((0.5, 1), (0.1, 1), (0.3, rng.integers(1, 6, d))):
        ends = rng.normal(0, rng.choice([0.1, 1.0, 4.0]), (2, d))
        low, high = (np.log(gx2.isf(p, np.exp(u), dof)) for u in ends)
        between = np.log(gx2.isf(p, np.exp(share * ends[0] + (1 - share) * ends[1]), dof))
        assert between <= share * low + (1 - share) * high + 1e-12


@pytest.mark.parametrize("seed", range(6))
def test_optimal_is_where_another_minimiser_ends_from_anywhere(seed):
    """`scaling.optimal` agrees with the minimum of the total noise variance that the algorithm BFGS finds.

    BFGS starts from three random points, which `seed` determines. The logarithms of the minima agree within 1e-9.
    """
    rng = np.random.default_rng(seed)
    sigma, p = np.exp(rng.normal(0, 1, rng.integers(2, 5))), [1e-12, 1e-3, 0.2, 0.6, 0.95, 0.999][seed]
    weights = (scaling.optimal(sigma, p) * sigma) ** 2

    def log_factor(u):
        return np.log(scaling.noise_factor(np.exp(u / 2) / sigma, sigma, p))

    for start in rng.normal(0, 2, (3, sigma.size)):
        found = minimize(log_factor, start, method="BFGS", options={"gtol": 1e-7})
        assert found.fun == pytest.approx(log_factor(np.log(weights)), abs=1e-9)
        assert np.exp(found.x) / np.sum(np.exp(found.x)) == pytest.approx(weights, abs=1e-4)


@given(sigmas, st.floats(1e-30, 0.99), st.floats(1e-4, 3), st.integers(0, 99))
@settings(deadline=None, max_examples=40)
def test_excess_bound_is_never_below_the_excess(sigma, p, size, seed):
    b, best = scaling.expected_norm(sigma), scaling.optimal(sigma, p)
    assert scaling.excess_bound(best, sigma, p) < 1e-20
    least = scaling.noise_factor(best, sigma, p)
    away = np.exp(size * np.random.default_rng(seed).standard_normal((4, sigma.size)))
    for other in (b, *(best * away)):
        excess = np.log(scaling.noise_factor(other, sigma, p) / least)
        assert excess <= scaling.excess_bound(other, sigma, p) + 1e-12


@pytest.mark.parametrize(("d", "p"), [(2, 1e-20), (3, 1e-4), (4, 0.5)])
def test_excess_bound_knows_of_minima_that_it_has_not_seen(d, p):
    """For random scalings, `scaling.excess_bound` is at least their excess over the best scaling that BFGS finds.

    The excess is the difference of the logarithms of the total noise variances. BFGS is a general minimizer. `d` is
    the number of columns, and `p` is the probability that a row is clipped.
    """
    rng = np.random.default_rng(d)
    sigma = np.exp(rng.normal(0, 1, d))

    def log_factor(u):
        return np.log(scaling.noise_factor(np.exp(u), sigma, p))

    starts = rng.normal(0, 1, (5, d))
    least = min(minimize(log_factor, start, method="BFGS", options={"gtol": 1e-7}).fun for start in starts)
    assert all(log_factor(u) - scaling.excess_bound(np.exp(u), sigma, p) <= least + 1e-12 for u in starts)


@pytest.mark.parametrize("p", [1e-12, 1e-3, 0.7])
def test_excess_bound_grows_away_from_the_best_scaling(p):
    sigma, direction = tables.zipf_sigma(30, 1.0), np.random.default_rng(3).standard_normal(30)
    best = scaling.optimal(sigma, p)
    bounds = [scaling.excess_bound(best * np.exp(t * direction), sigma, p) for t in (0, 1e-8, 1e-6, 1e-4, 1e-2, 1)]
    assert np.all(np.diff(bounds) > 0)
    assert bounds[3] == pytest.approx(1e4 * bounds[2], rel=0.01)  # near the minimum it is quadratic


@given(sigmas, st.floats(1e-6, 1e6), st.randoms())
@settings(deadline=None, max_examples=20)
def test_excess_bound_ignores_units_and_order(sigma, factor, random):
    order = random.sample(range(sigma.size), sigma.size)
    b = scaling.expected_norm(sigma) * np.arange(1, sigma.size + 1)
    bound = pytest.approx(scaling.excess_bound(b, sigma, 1e-3), rel=1e-9, abs=1e-20)
    for same in ((factor * b, sigma), (b, factor * sigma), (b[order], sigma[order])):
        assert scaling.excess_bound(*same, 1e-3) == bound


def test_excess_bound_notices_a_wrong_gradient(monkeypatch):
    """If the gradient is wrong in one coordinate, the bound `scaling.excess_bound` is above 1e-3 for the best scaling.

    The excess of a scaling says how far the logarithm of its total noise variance is above the minimum. For the best
    scaling it is 0, so the bound reveals the wrong gradient. With this gradient, `scaling.optimal` returns a scaling
    with an excess above 1e-3. The right gradient gives a bound above this excess.
    """
    sigma, p, right = tables.zipf_sigma(6, 1.0), 1e-4, gx2.conditional_means
    best = scaling.optimal(sigma, p)
    least = scaling.noise_factor(best, sigma, p)
    for j in range(6):
        with monkeypatch.context() as fault:
            fault.setattr(gx2, "conditional_means", lambda x, w, j=j: np.where(np.arange(6) == j, 1.0, right(x, w)))
            wrong = scaling.optimal(sigma, p)
            assert scaling.excess_bound(best, sigma, p) > 1e-3
        excess = np.log(scaling.noise_factor(wrong, sigma, p) / least)
        assert 1e-3 < excess < scaling.excess_bound(wrong, sigma, p)


def test_excess_bound_at_the_ends_of_the_doubles():
    assert scaling.excess_bound([1.0, 1e160], [1.0, 1.0], 0.1) == np.inf
    assert scaling.excess_bound([1.0, 1e-100], [1.0, 1e-100], 0.1) == pytest.approx(200 * np.log(10), rel=1e-12)


def test_optimal_for_equal_sigma_is_equal():
    np.testing.assert_allclose(scaling.optimal(np.full(5, 2.0), 0.01), np.full(5, 1 / (2 * np.sqrt(5))), rtol=1e-9)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda bad: scaling.elliptical([1.0, bad]), r"sensitivities\[1\]"),
        (lambda bad: scaling.expected_norm([1.0, bad]), r"sigma\[1\]"),
        (lambda bad: scaling.mean_deviation([1.0, bad], 2), r"sigma\[1\]"),
        (lambda bad: scaling.optimal([1.0, bad], 0.1), r"sigma\[1\]"),
        (lambda bad: scaling.optimal([1.0], bad), "clip_probability"),
        (lambda bad: scaling.clip_norm([bad], [1.0], 0.1), r"b\[0\]"),
        (lambda bad: scaling.excess_bound([bad], [1.0], 0.1), r"b\[0\]"),
    ],
)
@pytest.mark.parametrize("bad", [np.nan, -1.0, 0.0, np.inf])
def test_bad_values_are_named(call, name, bad):
    with pytest.raises(ValueError, match=f"^{name} must"):
        call(bad)


@pytest.mark.parametrize("bad", [np.nan, -1.0, np.inf, [1.0, 2.0]])
def test_bad_deviations_are_named(bad):
    with pytest.raises(ValueError, match=r"^deviations must"):
        scaling.mean_deviation([1.0], bad)


def test_lengths_must_agree():
    with pytest.raises(ValueError, match="b must have the 2 entries of sigma, got 3"):
        scaling.clip_norm(np.ones(3), np.ones(2), 0.1)


@pytest.mark.parametrize("law", ["zipf", "lognormal", "repeated"])
def test_optimal_for_many_columns_is_as_good_as_for_few(law):
    """For 9000 or 10 000 columns, the total noise variance of `scaling.optimal` is nearly the least possible one.

    `scaling.excess_bound` bounds the logarithm of the ratio of these two variances. To save time, `scaling.optimal`
    begins with fewer columns, each of which has a count and stands for that many columns. Sums of some powers of their
    standard deviations, weighted by the counts, agree with the sums over all columns. `law` says how the standard
    deviations are distributed.
    """
    sigma = {
        "zipf": 1 / np.arange(1, 10_001),
        "lognormal": np.random.default_rng(1).lognormal(size=10_000),
        "repeated": np.repeat([1.0, 2.0, 5.0], 3000),
    }[law]
    best = scaling.optimal(sigma, 1e-4)
    assert scaling.excess_bound(best, sigma, 1e-4) < 1e-20
    assert np.sum((best * sigma) ** 2) == pytest.approx(1, rel=1e-12)
    nodes, count = _optimal._few_for_many(sigma)
    assert nodes.size < sigma.size / 10
    for power in (-2, 0, 1, 3):
        assert count @ nodes**power == pytest.approx(np.sum(sigma**power), rel=1e-9)


def test_optimal_for_columns_of_very_many_scales():
    # Small standard deviations need no narrow clusters, so that few columns stand for all, and the search starts well.
    sigma = np.geomspace(1e-70, 1e70, 50_000)
    assert _optimal._few_for_many(sigma)[0].size < 2000
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_optimal, "_MOST_ROUNDS", 20)
        assert scaling.excess_bound(scaling.optimal(sigma, 1e-2), sigma, 1e-2) < 1e-20
    sigma = np.geomspace(1e-150, 1e150, 5000)
    assert np.sum((scaling.optimal(sigma, 1e-2) * sigma) ** 2) == pytest.approx(1, rel=1e-9)


def test_optimal_for_many_huge_columns():
    # The sum of these standard deviations is too large for a double.
    sigma = np.geomspace(1e305, 1e308, 5000)
    np.testing.assert_allclose(scaling.optimal(sigma, 1e-3) * 1e300, scaling.optimal(sigma / 1e300, 1e-3), rtol=1e-10)
