"""Test `egm.bounds`: upper bounds for the quantiles of a weighted sum of chi-square variables.

No bound is below the exact quantile. For equal weights, the bounds are equal to numbers that are computed by hand from
their formulas.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mpf, sqrt

from egm import bounds, gx2, scaling
from egm.study import tables

weight_lists = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=40).map(np.array)
levels = st.floats(1e-200, 0.9)


@settings(deadline=None)
@given(weight_lists, levels)
@pytest.mark.parametrize("bound", [bounds.bernstein, bounds.laurent_massart, bounds.chebyshev])
def test_never_below_the_quantile(bound, weights, p):
    assert bound(p, weights) >= gx2.isf(p, weights)


@pytest.mark.parametrize("unit", [1e-306, 1e-170, 1e160, 1e300])
@pytest.mark.parametrize("bound", [bounds.bernstein, bounds.laurent_massart, bounds.chebyshev])
def test_never_below_the_quantile_in_any_unit(bound, unit):
    # for 200 equal weights: the squares of these units are not doubles
    weights = np.full(200, unit)
    assert bound(1e-3, weights) >= gx2.isf(1e-3, weights)
    assert bound(1e-3, weights) == pytest.approx(unit * bound(1e-3, np.ones(200)), rel=1e-14, abs=0)


@pytest.mark.parametrize("bound", [bounds.bernstein, bounds.laurent_massart, bounds.chebyshev])
def test_scale_and_permutation(bound):
    weights, p = np.linspace(1, 2, 100), np.array([0.5, 0.1, 0.02])
    np.testing.assert_allclose(bound(p, 7 * weights[::-1]), 7 * bound(p, weights), rtol=1e-14)


def test_formulas_for_equal_weights():
    # d = 400 weights of 1 and ln(1/p) = 4: 400 + sqrt(8*4*400), 400 + 2 sqrt(4*400) + 2*4, 400 + sqrt(800/p).
    p, weights = np.exp(-4.0), np.ones(400)
    assert bounds.bernstein(p, weights) == pytest.approx(400 + np.sqrt(12800), rel=1e-14)
    assert bounds.laurent_massart(p, weights) == pytest.approx(488, rel=1e-14)
    assert bounds.chebyshev(p, weights) == pytest.approx(400 + np.sqrt(800 * np.exp(4)), rel=1e-14)


def test_bernstein_says_nothing_below_its_limit():
    weights = np.ones(36)
    assert bounds.bernstein_limit(weights) == pytest.approx(np.exp(-2), rel=1e-14)
    assert np.isfinite(bounds.bernstein(np.exp(-1.99), weights))
    assert bounds.bernstein(np.exp(-2.01), weights) == np.inf


@pytest.mark.parametrize("alpha", [0.0, 0.1, 0.2])
@pytest.mark.parametrize("n", [2, 10, 100])
def test_theorem4_bounds_the_noise_where_it_applies(alpha, n):
    sigma = tables.zipf_sigma(1000, alpha)
    assert n <= bounds.theorem4_limit(sigma)
    exact = 4 * scaling.noise_factor(scaling.expected_norm(sigma), sigma, 1 / n)
    assert exact < bounds.theorem4(sigma, n) < 2 * exact


def test_theorem4_is_bernstein_after_lemma_41():
    sigma = tables.zipf_sigma(500, 0.2)
    b = scaling.expected_norm(sigma)
    by_steps = 4 * bounds.bernstein(1 / 50, (b * sigma) ** 2) * np.sum(b**-2.0)
    assert bounds.theorem4(sigma, 50) == pytest.approx(by_steps, rel=1e-13)
    # With w = sigma / sum sigma, sum w^2 / max w^2 equals sum sigma^2 / max sigma^2, so both have one range.
    assert bounds.theorem4_limit(sigma) == pytest.approx(1 / bounds.bernstein_limit((b * sigma) ** 2), rel=1e-12)


def test_theorem4_needs_many_dimensions():
    # The condition ln n <= sum sigma^2 / (18 max sigma^2) is at most d / 18, for equal sigma.
    assert bounds.theorem4_limit(np.full(36, 5.0)) == pytest.approx(np.exp(2), rel=1e-14)
    assert bounds.theorem4_limit(np.ones(20_000)) == np.inf  # exp(20_000 / 18) is no double
    assert bounds.theorem4(np.ones(20_000), 2**53) < np.inf
    assert bounds.theorem4(np.full(36, 5.0), 8) == np.inf
    assert bounds.theorem4(np.ones(3), 1) == pytest.approx(36, rel=1e-14)


def test_theorem4_in_any_unit():
    """If sigma is multiplied by c = 2**k, `bounds.theorem4` is multiplied by c**2, without a rounding error.

    This function returns an upper bound of the mean squared noise of `GaussianDataMechanism`, divided by the squared
    noise multiplier; sigma has the standard deviations of the columns. If the bound is too large for a double, it is
    infinite. If it is too small, it is not rounded to 0, because 0 would be no upper bound.
    """
    for power in (-500, 0, 480):
        assert bounds.theorem4(np.ldexp(np.ones(40), power), 5) == np.ldexp(bounds.theorem4(np.ones(40), 5), 2 * power)
    assert bounds.theorem4(np.full(40, 1e160), 5) == np.inf
    assert bounds.theorem4(np.full(40, 1e-200), 5) > 0


@pytest.mark.parametrize("p", [1e-308, 5e-324])
@pytest.mark.parametrize("unit", [1e-100, 1.0, 1e100])
def test_chebyshev_for_the_smallest_probabilities(p, unit):
    """`bounds.chebyshev` is exact to a relative 1e-14, although 1 / p is near the largest double or beyond it."""
    assert bounds.chebyshev(p, [unit]) == pytest.approx(unit * float(sqrt(2 / mpf(p)) + 1), rel=1e-14)


@pytest.mark.parametrize("bound", [bounds.bernstein, bounds.laurent_massart, bounds.chebyshev])
def test_weights_of_any_ratio(bound):
    """A bound of a quantile ignores a weight 1e400 times smaller than another; a bound above 1.8e308 is infinite."""
    assert bound(0.96, [1e-200, 1e200]) == bound(0.96, [1e200])
    assert bound(0.96, [1e308] * 5) == np.inf


@pytest.mark.parametrize("bad", [np.nan, -1.0, 0.0, np.inf])
@pytest.mark.parametrize("bound", [bounds.bernstein, bounds.laurent_massart, bounds.chebyshev])
def test_bad_values_are_named(bound, bad):
    with pytest.raises(ValueError, match=r"^p must"):
        bound(bad, [1.0])
    with pytest.raises(ValueError, match=r"^weights\[1\] must"):
        bound(0.1, [1.0, bad])
    with pytest.raises(ValueError, match=r"^sigma"):
        bounds.theorem4([bad], 10)
    with pytest.raises(ValueError, match=r"^n must"):
        bounds.theorem4([1.0], bad)
