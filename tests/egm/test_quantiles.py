"""Test that private quantiles have the documented distribution, and that this distribution is private.

A private quantile is an interval or a point that is chosen with a probability proportional to exp(epsilon / 2 * score).
The score is minus the number of values between this interval or point and the exact quantile.
"""

import math
from itertools import combinations_with_replacement, product
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import logsumexp

from egm import samplers
from egm.quantiles import epsilon_of_rho, interval, quantile, secure_quantile
from tests.egm.test_samplers import LEVEL, fit

VALUES = np.array([-3.0, 0.5, 0.5, 1.0, 1.25, 4.0, 99.0])  # ties, and values outside the range [-2, 5] of the tests


def density(values, q, low, high, epsilon, edges):
    """Return the documented density of a private `q`-quantile of `values` on each interval between successive `edges`.

    The quantile lies between `low` and `high`, and `epsilon` is its privacy parameter. The `edges` must contain each of
    the `values`, clipped to this range, so that the density is constant on each interval.
    """
    middle = (edges[1:] + edges[:-1]) / 2
    ranks = np.sum(np.clip(values, low, high) <= middle[:, None], axis=1)
    weights = np.exp(-epsilon / 2 * np.abs(ranks - q * len(values)))
    return weights / np.sum(weights * np.diff(edges))


@pytest.mark.parametrize("q", [0.5, 0.9])
@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_what_is_drawn_has_the_promised_density(q, epsilon):
    edges = np.unique(np.clip(np.append(VALUES, [-2.0, 5.0]), -2.0, 5.0))
    mass = np.append(0.0, np.cumsum(density(VALUES, q, -2, 5, epsilon, edges) * np.diff(edges)))
    columns = np.tile(VALUES[:, None], 40_000)
    drawn = quantile(columns, q, -2.0, 5.0, epsilon, np.random.default_rng(5))
    assert stats.kstest(drawn, lambda x: np.interp(x, edges, mass)).pvalue > 1e-3
    counts, _ = np.histogram(drawn, edges)
    assert stats.chisquare(counts, 40_000 * np.diff(mass)).pvalue > 1e-3


def neighbors(n, grid):
    """Yield once each pair of samples of `n` points of `grid` that agree in all points but one."""
    for rest in combinations_with_replacement(grid, n - 1):
        for old, new in product(grid, grid):
            if old < new:
                yield np.array([*rest, old]), np.array([*rest, new])


@pytest.mark.parametrize("q", [0.5, 0.75])
def test_the_density_is_private(q):
    """The documented density of a private `q`-quantile satisfies epsilon-differential privacy and epsilon**2 / 8 zCDP.

    The logarithm of the ratio of the densities for two neighboring samples is at most epsilon = 0.7. The samples
    have four points. zCDP is checked at five orders of the Rényi divergence.
    """
    epsilon, grid = 0.7, np.linspace(0.0, 1.0, 6)
    orders = np.array([1.001, 1.5, 2.0, 5.0, 30.0])
    largest, longest, renyi = 0.0, 0.0, np.zeros_like(orders)
    for one, other in neighbors(4, grid):
        densities = [density(values, q, 0.0, 1.0, epsilon, grid) for values in (one, other)]
        for p, r in (densities, densities[::-1]):
            loss = np.log(p / r)
            largest, longest = max(largest, loss.max()), max(longest, np.ptp(loss))
            moments = np.sum(p * np.exp(np.multiply.outer(orders - 1, loss)) * np.diff(grid), axis=1)
            renyi = np.maximum(renyi, np.log(moments) / (orders - 1))
    assert largest <= epsilon * (1 + 1e-12)
    assert longest == pytest.approx(epsilon, rel=1e-12)  # equality: the range of the loss is not smaller
    assert np.all(renyi <= orders * epsilon**2 / 8)
    assert renyi[0] > 0.5 * epsilon**2 / 8


# --- Intervals --------------------------------------------------------------------------------------------------------

PATHS = pytest.mark.parametrize("path", ["secure", "simulated"])
COUNTS = (0, 3, 1, 0, 0, 2, 7, 0, 1)


def law(counts, q, epsilon):
    """Return the documented probability with which a private `q`-quantile falls into each interval, as an array.

    `counts` holds the number of values in each interval. The probability is proportional to exp(-`epsilon` / 2 *
    misses), where misses is the number of values between the interval and the exact quantile.
    """
    ends, rank = np.cumsum(counts), round(q * np.sum(counts))
    misses = [min(abs(r - rank) for r in range(end - held, end + 1)) for end, held in zip(ends, counts, strict=True)]
    weights = np.exp(-epsilon / 2 * np.array(misses))
    return weights / np.sum(weights)


@pytest.mark.slow
@PATHS
@pytest.mark.parametrize("q", [0.25, 0.5, 0.9])
def test_intervals_have_the_promised_law(path, q):
    rng = np.random.default_rng(5) if path == "simulated" else None
    drawn = [interval(COUNTS, q, 1.3, rng) for _ in range(12_000)]
    assert fit(np.bincount(drawn, minlength=len(COUNTS)), law(COUNTS, q, 1.3)) > LEVEL


@pytest.mark.slow
def test_secure_quantiles_have_the_promised_law():
    """`secure_quantile` draws each of its equally spaced points with the documented probability.

    A point stands for all values from the previous point to itself. The test of fit is the one of the samplers.
    """
    points, draws = np.arange(-2.0, 5.0, 0.25), 8000
    places = [np.argmax(np.append(value <= points[:-1], True)) for value in VALUES]
    p = law(np.bincount(places, minlength=points.size), 0.5, 1.5)
    drawn = secure_quantile(np.tile(VALUES[:, None], draws), 0.5, -2.0, 5.0, 1.5, 0.25)
    counts = np.array([np.sum(drawn == point) for point in points])
    assert np.sum(counts) == draws
    assert fit(counts, p) > LEVEL


@pytest.fixture
def scores(monkeypatch):
    """Return a function found(counts, q), which returns the scores by which `quantiles.interval` draws an interval.

    `counts` holds the number of values in each interval. To see the scores, the function replaces the random choice.
    """

    def found(counts, q):
        asked = []
        monkeypatch.setattr(samplers, "secure_index", lambda scores, epsilon: asked.append(np.array(scores)) or 0)
        interval(counts, q, 1.0)
        return asked[0]

    return found


def moved(n, k):
    """Yield all pairs of counts in `k` intervals, before and after one of `n` values moves to a higher interval.

    Each pair has two arrays with one count for each interval.
    """
    for places in combinations_with_replacement(range(k), n - 1):
        for old, new in product(range(k), repeat=2):
            if old < new:
                yield [np.bincount([*places, place], minlength=k) for place in (old, new)]


@pytest.mark.parametrize("q", [0.2, 0.5, 0.8])
def test_an_interval_is_private(scores, q):
    """If one value moves to another interval, each score that `quantiles.interval` uses changes by at most one.

    So the logarithm of each interval's probability changes by at most epsilon. `scores` returns the scores for the
    `q`-quantile of five values.
    """
    epsilon, steps, lengths, losses = 0.7, [], [], []
    for one, other in moved(5, 5):
        logs = [epsilon / 2 * scores(counts, q) for counts in (one, other)]
        loss = np.subtract(*(log - logsumexp(log) for log in logs))
        steps.append(np.max(np.abs(logs[0] - logs[1])) * 2 / epsilon)
        lengths.append(np.ptp(loss))
        losses.append(np.max(np.abs(loss)))
    assert np.max(steps) == pytest.approx(1, rel=1e-12)
    assert np.max(lengths) == pytest.approx(epsilon, rel=1e-12)
    assert np.max(losses) <= epsilon


@pytest.mark.parametrize("change", ["moved", "added"])
@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=40), st.floats(0.001, 0.999), st.data())
def test_a_score_moves_by_at_most_one(change, counts, q, data):
    """If one value is moved, added or removed, each score that `quantiles.interval` uses changes by at most one.

    The `counts` of values in up to 40 intervals and the level `q` are random. `change` is "moved" or "added"; the
    removal of a value is an addition in the opposite direction. `data` draws the intervals from which and to which the
    value is moved, or to which it is added. The largest score is always 0.
    """
    place = st.integers(0, len(counts) - 1)
    if change == "moved":
        counts[data.draw(place)] += 1
    other = list(counts)
    if change == "moved":
        other[data.draw(st.sampled_from([i for i, held in enumerate(counts) if held]))] -= 1
    other[data.draw(place)] += 1
    found = []
    with mock.patch.object(samplers, "secure_index", lambda scores, epsilon: found.append(np.array(scores)) or 0):
        for each in (counts, other):
            interval(each, q, 1.0)
    assert np.max(np.abs(found[0] - found[1])) <= 1
    assert np.max(found[0]) == np.max(found[1]) == 0


@pytest.mark.parametrize(("n", "q"), [(2**27 + 1, 1 - 2.0**-28), (2**52 - 3, math.nextafter(1, 0)), (3, 0.5)])
def test_a_score_moves_by_at_most_one_with_any_number_of_values(n, q, scores):
    """If one of `n` values is added or removed, no score of `quantiles.interval` changes by more than one.

    In the first two cases, q n rounds to a multiple of 1/2 in doubles, and the next whole numbers are both even.
    """
    found = [scores([0, held, 0], q) for held in (n - 1, n, n + 1)]
    assert np.max(np.abs(np.diff(found, axis=0))) <= 1


@pytest.mark.slow
@PATHS
def test_values_that_are_all_the_same_are_found(path):
    """If 300 values are equal, `interval` and `secure_quantile` return the right interval or point in every draw.

    The probability of another interval or point is tiny. `path` says whether `interval` uses the secure sampler
    ("secure") or a generator with a seed ("simulated").
    """
    rng, counts = np.random.default_rng(6) if path == "simulated" else None, np.zeros(1000, dtype=int)
    for place in (0, 437, 999):
        counts[:] = 0
        counts[place] = 300
        assert {interval(counts, 0.5, 1.0, rng) for _ in range(50)} == {place}
    assert np.all(secure_quantile(np.full((300, 50), 43.7), 0.5, 0.0, 100.0, 1.0, 0.125) == 43.75)


def test_scores_of_secure_quantiles_change_by_at_most_one(monkeypatch):
    """If one of four values is replaced, each score by which `secure_quantile` draws a point changes by at most one.

    Therefore the exponential mechanism with these scores is private. All samples from a grid of six values are tested.
    """
    scores = []
    monkeypatch.setattr(samplers, "secure_index", lambda found, epsilon: scores.append(np.array(found)) or 0)
    for pair in neighbors(4, np.linspace(0.0, 1.0, 6)):
        scores.clear()
        for values in pair:
            secure_quantile(values, 0.75, 0.0, 1.2, 1.0, 0.1)
        assert np.max(np.abs(scores[0] - scores[1])) <= 1


@pytest.mark.parametrize("epsilon", [0.01, 0.7, 3.0, 10.0])
def test_choices_cost_an_eighth_of_epsilon_squared(epsilon):
    """If scores change by at most one, the exponential mechanism satisfies `epsilon`**2 / 8 zCDP.

    The Rényi divergence is computed for random scores and changes, at six orders. It reaches more than 90 % of the
    bound if `epsilon` is below 1.
    """
    rng, orders = np.random.default_rng(4), np.array([1.0001, 1.5, 2.0, 4.0, 20.0, 100.0])
    largest = np.zeros_like(orders)
    for k in (2, 2, 2, 2, 3, 10, 100):
        for _ in range(30):
            scores = -rng.integers(0, 1 + int(min(20, 8 / epsilon)), k)
            logs = [epsilon / 2 * (scores + change) for change in (0, rng.integers(-1, 2, k))]
            p, q = (log - logsumexp(log) for log in logs)
            loss = orders[:, None] * p - (orders[:, None] - 1) * q
            largest = np.maximum(largest, logsumexp(loss, axis=1) / (orders - 1) / orders)
    assert np.all(largest <= epsilon**2 / 8 * (1 + 1e-9) + 1e-13)
    assert np.max(largest) > 0.9 * epsilon**2 / 8 if epsilon < 1 else np.max(largest) > 0.3 * epsilon**2 / 8


def test_wrong_arguments_of_secure_quantiles():
    for values, low, high in ((np.empty(0), 0.0, 1.0), (np.ones(3), 1.0, 1.0), (np.ones((2, 2, 2)), 0.0, 1.0)):
        with pytest.raises(ValueError, match="n >= 1, and low < high"):
            secure_quantile(values, 0.5, low, high, 1.0, 0.1)
    with pytest.raises(ValueError, match=r"high - low must not be above the largest double, got 1e\+308 and -1e\+308"):
        secure_quantile(np.ones(3), 0.5, -1e308, 1e308, 1.0, 1e308)


@pytest.mark.parametrize(
    "counts", [[], 5, [[1, 2]], [-5, 10], [1.9, 2.9], [1, np.nan], [1, np.inf], [2**62, 2**62, 2**62], [2**53 - 1, 1]]
)
@PATHS
def test_wrong_counts_are_named(path, counts):
    with pytest.raises(ValueError, match=r"^counts(\[\d\])? must"):
        interval(counts, 0.5, 1.0, np.random.default_rng(5) if path == "simulated" else None)


@PATHS
def test_counts_below_the_largest_sum_are_exact(path):
    rng = np.random.default_rng(5) if path == "simulated" else None
    # half of 2**53 - 1, rounded to an even number, is 2**52: the end of the second interval and the start of the third
    assert interval([2**52 - 1, 1, 2**52 - 1], 0.5, 50.0, rng) in (1, 2)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, np.nan, np.inf, 1e-320, 1e-308, 9e-301])
def test_wrong_epsilons_of_intervals_are_named(epsilon):
    with pytest.raises(ValueError, match=r"^epsilon must"):
        interval(COUNTS, 0.5, epsilon)
    assert interval(COUNTS, 0.5, 1e-300) in range(len(COUNTS))


def test_points_of_secure_quantiles_end_below_high():
    """The largest point that `secure_quantile` can return is below `high`, but by at most one step.

    `secure_quantile` returns one of equally spaced points, each of which is a whole number of steps above `low`. The
    test gets the largest one as the median of values above `high`, with hardly any noise. The ends of the range and the
    step are decimal numbers such as 1.3 and 0.1, which doubles cannot represent exactly.
    """
    rng = np.random.default_rng(2)
    for low, width, step in zip(*rng.integers(-50, 50, (1, 300)), *rng.integers(1, 100, (2, 300)), strict=True):
        low, high, step = low / 10, (low + width) / 10, step / 10
        last = secure_quantile(np.full(9, high + 1), 0.5, low, high, 1e6, step)
        assert 0 < high - last <= step * (1 + 1e-12)
        assert last == low + round((last - low) / step) * step
    assert secure_quantile(np.full(2000, 9.0), 0.5, 1.0, 1.3, 100.0, 0.1) == 1.2


@pytest.mark.parametrize(("low", "high", "step"), [(0.0, 1.0, 5e-324), (0.0, 1.0, 0.9e-8), (-1e307, 1e308, 1.0)])
def test_too_small_steps_of_secure_quantiles_are_named(low, high, step):
    with pytest.raises(ValueError, match=rf"^step must divide the range into at most 1e\+08 parts, got {step}"):
        secure_quantile(VALUES, 0.5, low, high, 1.0, step)


def test_epsilon_of_rho_is_the_inverse_of_the_cost():
    rho = np.array([0.0, 1 / 16, 2.0])
    assert epsilon_of_rho(rho) ** 2 / 8 == pytest.approx(rho, rel=1e-15)
    rho = np.geomspace(5e-324, 2e307, 500)
    np.testing.assert_array_equal(epsilon_of_rho(rho), np.sqrt(8 * rho))
    assert epsilon_of_rho(1e308) == pytest.approx(np.sqrt(8) * 1e154, rel=1e-15)
    with pytest.raises(ValueError, match="rho must be"):
        epsilon_of_rho(-1.0)


def test_follows_shift_and_scale_and_ignores_the_order():
    X = np.random.default_rng(1).normal(size=(101, 7))
    drawn = quantile(X, 0.3, -9, 9, 0.2, np.random.default_rng(2))
    moved = quantile(5 * X[::-1] - 8, 0.3, -53, 37, 0.2, np.random.default_rng(2))
    assert moved == pytest.approx(5 * drawn - 8, rel=1e-12)


def test_a_column_is_a_vector_and_the_values_stay():
    x = np.random.default_rng(1).normal(size=51)
    x.flags.writeable = False
    alone = quantile(x, 0.5, -9, 9, 1.0, np.random.default_rng(2))
    assert isinstance(alone, float)
    assert quantile(x[:, None], 0.5, [-9], [9], 1.0, np.random.default_rng(2)) == [alone]


def test_a_wide_range_costs_only_its_logarithm():
    X = np.random.default_rng(1).normal(size=(5_000, 300))
    drawn = quantile(X, 0.9, -1e12, 1e12, 0.2, np.random.default_rng(2))
    ranks = np.sum(drawn >= X, axis=0)
    # The largest of 300 errors, with probability 0.99, by the bound in the docstring with s = 5 and g >= 1e-3.
    assert np.max(np.abs(ranks - 4_500)) <= 5 + 2 / 0.2 * np.log(2e12 / 1e-3 * 300 / 0.01)


@pytest.mark.parametrize("block", [1 << 20, 100])
def test_many_columns_in_blocks(block, monkeypatch):
    """Columns are handled in blocks of at most `block` numbers, or one by one if each of them has more numbers."""
    monkeypatch.setattr("egm.quantiles._BLOCK", block)
    X = np.tile(np.arange(1001.0), (3000, 1)).T + np.arange(3000.0)
    drawn = quantile(X, 0.5, 0.0, 5000.0, 50.0, np.random.default_rng(3))
    assert drawn == pytest.approx(500 + np.arange(3000.0), abs=3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"values": np.ones((2, 2, 2))}, "values must have shape"),
        ({"values": []}, "values must have shape"),
        ({"values": [1.0, np.nan]}, "must not be NaN"),
        ({"q": 1.0}, "q must lie strictly between 0 and 1"),
        ({"epsilon": 0.0}, "epsilon must be finite and > 0"),
        ({"low": 5.0}, "low must be below high, got 5.0 and 5.0"),
        ({"low": -1e308, "high": 1e308}, "high - low must not be above the largest double, got 1e[+]308 and -1e[+]308"),
        ({"high": [5.0, 6.0]}, "high must be a number or have an entry for each of 1 columns"),
    ],
)
def test_wrong_arguments(change, message):
    arguments = {"values": VALUES, "q": 0.5, "low": -2.0, "high": 5.0, "epsilon": 1.0, "rng": np.random.default_rng(0)}
    with pytest.raises(ValueError, match=message):
        quantile(**{**arguments, **change})


def test_wrong_rng():
    with pytest.raises(TypeError, match="rng must be"):
        quantile(VALUES, 0.5, -2.0, 5.0, 1.0, 3)


@pytest.mark.filterwarnings("error")
def test_the_largest_arguments_give_no_warning():
    values, rng = np.arange(101.0), np.random.default_rng(0)
    assert secure_quantile(values, 0.5, 0, 1e308, 1.0, 9e307) in (0, 9e307)
    assert secure_quantile(values, 0.5, 1e308, 1.7e308, 1.0, 1e308) == 1e308
    assert 49 <= quantile(values, 0.5, 0, 100, 1e308, rng) <= 51
    assert interval([1000] * 50, 0.3, 1e306, rng) in (14, 15)


def test_the_widest_range_is_divided_evenly():
    """In a range nearly as wide as doubles allow, a private median of a single value 0 is negative half of the time.

    The range is symmetric about 0. The test draws 10 000 medians, and the tolerance is four standard errors.
    """
    low, high = -8e307, 8e307
    drawn = quantile(np.zeros((1, 10_000)), 0.5, low, high, 1.0, np.random.default_rng(1))
    assert abs(np.mean(drawn < 0) - 0.5) <= 4 * 0.5 / 100
