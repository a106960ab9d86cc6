"""Test rival methods for private means: each spends exactly its budget, and uses sensitivities that are large enough.

If a row is replaced, no private step changes by more than its sensitivity. The errors are those that the authors of the
methods published, or that theory predicts.
"""

from functools import partial

import numpy as np
import pytest
from scipy import stats
from scipy.linalg import hadamard

from egm import quantiles, samplers
from egm.study._rivals import parts
from egm.study._rivals.coinpress import _balls, _tail, _whitening
from egm.study._rivals.dong_liang_yi import _lost
from egm.study._rivals.huang_liang_yi import _hadamard
from egm.study._rivals.plan import _spread
from egm.study.rivals import anisotropic, coinpress, coordinate_median, gaussian, huang_liang_yi, plan, second_moments

D, N = 5, 1500
SIGMA = np.array([3.0, 1.0, 1.0, 0.5, 0.1])
METHODS = {
    "gaussian": gaussian,
    "gaussian, known centre": partial(gaussian, center=2.0, clip_norm=4.0),
    "coordinate_median": coordinate_median,
    "plan": plan,
    "plan, known sigma": partial(plan, sigma=SIGMA),
    "huang_liang_yi": huang_liang_yi,
    "coinpress": partial(coinpress, sigma=3.0),
    "coinpress, known sigma": partial(coinpress, sigma=SIGMA),
    "coinpress, covariance": partial(coinpress, sigma=3.0, covariance_steps=3),
    "anisotropic": partial(anisotropic, sigma=SIGMA),
    "anisotropic, known centre": partial(anisotropic, sigma=SIGMA, center=2.0),
}
every = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)


def rows(n=400, seed=1, mean=2.0, sigma=SIGMA):
    return np.random.default_rng(seed).normal(mean, sigma, (n, len(sigma)))


def squared_error(method, X, rho, seed, **options):
    """Return the squared l2 distance of the estimate by `method`, with `options`, from the mean of the rows `X`.

    `rho` is the privacy budget, and `seed` is that of the noise.
    """
    return np.sum((method(X, rho, rng=np.random.default_rng(seed), **options) - X.mean(axis=0)) ** 2)


class Recorder:
    """Replace the two private primitives of all methods, Gaussian noise and quantiles, and record their calls.

    For each call, the cost in zCDP is appended to the list `costs`, and the private result to the list `answers`. The
    list `values` gets the pair (value before noise, sensitivity) or, for a quantile, the pair (data, None). If the
    constructor gets the `answers` of another run, the calls return these answers. So two runs on neighboring data
    differ only in their values before noise. There is one exception: the method `anisotropic` counts, with noise, the
    rows near each row. The two data sets differ only in the first row. The count for this row is not taken from the
    other run, because it only decides whether this row is used.
    """

    def __init__(self, monkeypatch, answers=None):
        self.costs, self.values, self.answers, self.given = [], [], [], answers
        self.gaussian, self.quantile = parts.noisy, quantiles.quantile
        monkeypatch.setattr(parts, "noisy", self.record_gaussian)
        monkeypatch.setattr(quantiles, "quantile", self.record_quantile)

    def record_gaussian(self, value, sensitivity, rho, rng):
        return self.record(rho, (value, sensitivity), lambda: self.gaussian(value, sensitivity, rho, rng))

    def record_quantile(self, values, q, low, high, epsilon, rng):
        cost = epsilon**2 / 8 * (values.shape[1] if values.ndim == 2 else 1)
        return self.record(cost, (values, None), lambda: self.quantile(values, q, low, high, epsilon, rng))

    def record(self, cost, value, draw):
        self.costs.append(cost)
        self.values.append(value)
        # Draw in any case, so that later draws of signs and permutations are the same in both runs.
        self.answers.append(draw())
        if self.given is None:
            return self.answers[-1]
        given = self.given[len(self.answers) - 1]
        if np.size(given) == N:  # numbers of friends: nobody sees that of row 0, so each run keeps its own
            return np.append(self.answers[-1][0], given[1:])
        return given


# --- Privacy ----------------------------------------------------------------------------------------------------------


@every
@pytest.mark.parametrize("rho", [0.2, 1.0])
def test_the_costs_add_up_to_rho(method, rho, monkeypatch):
    recorder = Recorder(monkeypatch)
    method(rows(4000), rho, radius=50.0, rng=np.random.default_rng(2))
    assert min(recorder.costs) > 0
    assert sum(recorder.costs) == pytest.approx(rho, rel=1e-12)


def test_the_gaussian_mechanism_adds_what_it_should():
    noise = parts.noisy(np.full(30_000, 7.0), 3.0, 0.5, np.random.default_rng(1)) - 7
    assert stats.kstest(noise, stats.norm(scale=3.0 / np.sqrt(2 * 0.5)).cdf).pvalue > 1e-3


FAR = np.array([1e9, -1e9, 3.0, 0.0, 1e5])


def moves(method, one, other, monkeypatch):
    """Run `method` on the neighboring data sets `one` and `other`; yield (change, sensitivity) for each private step.

    The change is the l2 distance between the two values before noise. Both runs get the same answers to all earlier
    steps. For a quantile, the change is the largest number of values that differ in a column, and the sensitivity is 1.
    """
    with monkeypatch.context() as context:
        before = Recorder(context)
        method(one, 1.0, radius=50.0, rng=np.random.default_rng(2))
    with monkeypatch.context() as context:
        after = Recorder(context, before.answers)
        method(other, 1.0, radius=50.0, rng=np.random.default_rng(2))
    assert after.costs == pytest.approx(before.costs, rel=1e-12)  # public costs are equal
    for (value, sensitivity), (changed, same) in zip(before.values, after.values, strict=True):
        if sensitivity is None:
            yield np.max(np.count_nonzero(value != changed, axis=0)), 1
        else:
            assert same == sensitivity
            change = np.asarray(value, dtype=float) - changed
            yield np.linalg.norm(change[1:] if len(change) == N else change), sensitivity


@every
@pytest.mark.parametrize("row", [FAR, -FAR, np.full(D, 2.0), np.full(D, 20.0), SIGMA], ids=str)
@pytest.mark.parametrize("first", ["ordinary", "far"])
def test_no_neighbour_moves_a_step_by_more_than_its_sensitivity(method, first, row, monkeypatch):
    """If one row is replaced, the value of each private step of `method` changes by at most its sensitivity.

    Earlier steps have the same answers for both data sets. `row` is the new first row, and `first` says whether the old
    first row is ordinary or far from all other rows.
    """
    X = rows(N)
    one = X if first == "ordinary" else far_row_first(X, FAR)
    for change, sensitivity in moves(method, one, far_row_first(X, row), monkeypatch):
        assert change <= sensitivity * (1 + 1e-9)


@pytest.mark.parametrize("name", ["gaussian", "plan", "huang_liang_yi", "coinpress"])
def test_two_opposite_rows_reach_the_sensitivity(name, monkeypatch):
    """If an outlying row is replaced by minus this row, the last private step changes by as much as its sensitivity.

    The change is that of the value before noise. So the sensitivity that a method uses for this step is not larger than
    necessary. `name` is the name of the method in METHODS.
    """
    X = rows(N)
    *_, (change, sensitivity) = moves(METHODS[name], far_row_first(X, FAR), far_row_first(X, -FAR), monkeypatch)
    assert change == pytest.approx(sensitivity, rel=1e-6)


def far_row_first(X, row):
    X = X.copy()
    X[0] = row
    return X


def test_the_filter_keeps_no_two_rows_without_a_friend_in_common(monkeypatch):
    """If a row becomes an outlier, `anisotropic` drops it; the mean of kept rows changes by at most its sensitivity.

    The method keeps a row if more than half of all rows are near it; the near rows are called its "friends". So any two
    kept rows share a friend, and are not far apart. The outlier has fewer than 10 friends, and the number of friends of
    any other row changes by at most one.
    """
    X = rows(2_000)
    outlier = far_row_first(X, X[0] + np.array([60.0, 0, 0, 0, 0]))
    steps = []
    for one in (X, outlier):
        with monkeypatch.context() as context:
            recorder = Recorder(context)
            context.setattr(samplers, "simulated_gaussian", lambda std, rng: np.zeros_like(std))
            anisotropic(one, 1.0, radius=50.0, sigma=SIGMA, rng=np.random.default_rng(2))
        steps.append(recorder.values)
    (friends, _), (size, _), (mean, sensitivity) = steps[0]
    (other_friends, _), (other_size, _), (other_mean, _) = steps[1]
    assert np.max(np.abs(friends - other_friends)[1:]) <= 1
    assert other_friends[0] < 10  # the outlier has no friends
    assert size - other_size == 1
    assert np.linalg.norm(mean - other_mean) <= sensitivity


def test_the_filter_leaves_out_a_cluster_of_outliers():
    X = rows(2_000)
    X[:100] += 1000
    estimate = anisotropic(X, 1.0, radius=50.0, sigma=SIGMA, rng=np.random.default_rng(2))
    assert np.linalg.norm(estimate - X[100:].mean(axis=0)) < 0.2


def test_the_filter_gives_up_where_rows_are_few():
    assert np.all(anisotropic(rows(20), 0.1, radius=50.0, sigma=SIGMA, rng=np.random.default_rng(2)) == 0)


# --- What they release ------------------------------------------------------------------------------------------------


@every
def test_near_the_mean_without_changing_the_data(method):
    X = rows(5000)
    X.flags.writeable = False
    estimate = method(X, 100.0, radius=50.0, rng=np.random.default_rng(2))
    assert estimate.shape == (D,)
    assert np.max(np.abs(estimate - X.mean(axis=0)) / SIGMA) < 0.2


@every
def test_same_generator_same_estimate(method):
    one, two = (method(rows(), 1.0, radius=np.full(D, 50.0), rng=np.random.default_rng(2)) for _ in range(2))
    assert np.all(one == two)


@every
@pytest.mark.parametrize("X", [np.zeros((6, D)), np.full((2, D), 1e200), rows(7) * 1e200], ids=["0", "far", "wide"])
def test_finite_for_degenerate_rows(method, X):
    assert np.all(np.isfinite(method(X, 0.01, radius=50.0, rng=np.random.default_rng(2))))


@pytest.mark.parametrize("d", [1, 2, 3, 8])
def test_any_number_of_columns(d):
    sigma = np.ones(d)
    X = rows(5000, sigma=sigma)
    named = {"sigma": sigma}
    options = {gaussian: {}, coordinate_median: {}, plan: {}, huang_liang_yi: {}, coinpress: named, anisotropic: named}
    for method, option in options.items():
        assert squared_error(method, X, 100.0, 1, radius=5.0, **option) < 0.01 * d


def test_hadamard_is_scipys():
    Z = np.random.default_rng(1).normal(size=(3, 16))
    assert _hadamard(Z) == pytest.approx(Z @ hadamard(16) / 4, rel=1e-13)
    assert _hadamard(_hadamard(Z)) == pytest.approx(Z, rel=1e-13)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": np.ones(5)}, r"X must have shape \(n, d\)"),
        ({"X": np.ones((1, 5))}, "with n >= 2 and d >= 1"),
        ({"X": [[1.0, np.inf], [1.0, 1.0]]}, r"X\[0, 1\] must be finite"),
        ({"rho": 0.0}, "rho must be finite and > 0"),
        ({"radius": -1.0}, "radius must be finite and > 0"),
        ({"radius": [1.0, 2.0]}, "radius must be a number or have the 5 entries of a row"),
    ],
)
@every
def test_wrong_arguments(method, change, message):
    arguments = {"X": rows(), "rho": 1.0, "radius": 50.0, "rng": np.random.default_rng(0), **change}
    with pytest.raises(ValueError, match=message):
        method(**arguments)


@every
def test_wrong_rng(method):
    with pytest.raises(TypeError, match="rng must be"):
        method(rows(), 1.0, radius=50.0, rng=7)


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        (plan, {"search_share": 1.0}, "search_share must lie strictly"),
        (plan, {"sigma": np.ones(3)}, "sigma must be a number or have the 5 entries"),
        (huang_liang_yi, {"steps": 0}, "steps must be a whole number"),
        (huang_liang_yi, {"slack": -1}, "slack must be finite and > 0"),
        (coinpress, {"sigma": 0.0}, "sigma must be finite and > 0"),
        (coinpress, {"sigma": 1.0, "covariance_steps": -1}, "covariance_steps must be a whole number"),
        (anisotropic, {"sigma": 1.0, "delta": 0.0}, "delta must lie strictly"),
        (gaussian, {"clip_norm": 0.0}, "clip_norm must be finite and > 0"),
    ],
)
def test_wrong_options(method, options, message):
    with pytest.raises(ValueError, match=message):
        method(rows(), 1.0, radius=50.0, rng=np.random.default_rng(0), **options)


# --- Errors: published figures and laws -------------------------------------------------------------------------------


def mean_and_error(errors):
    return np.mean(errors), np.std(errors, ddof=1) / np.sqrt(len(errors))


def normal_rows(n, sigma, seed, mean=0.0):
    return mean + np.random.default_rng([seed, 7]).standard_normal((n, len(sigma))) * sigma


NARROW = {"norm_bound": 25 * np.sqrt(128 / (2 * np.log(2 * 128 / 0.1))), "clip_share": 0.01, "slack": 2.0}


@pytest.mark.parametrize(
    ("method", "budget", "published", "error"),
    [
        (partial(plan, search_share=0.8), 3.75 / 8, 0.06941, 0.0010),
        (partial(plan, search_share=0.8), 3.75, 0.03633, 0.0006),
        (partial(huang_liang_yi, **NARROW), 1 / 8, 0.05906, 0.0010),
        (partial(huang_liang_yi, **NARROW), 1.0, 0.03486, 0.0006),
    ],
)
def test_plan_and_huang_liang_yi_have_their_published_errors(method, budget, published, error):
    """The mean squared error of `plan` or `huang_liang_yi` agrees with a published one, within four standard errors.

    `published` is the mean over 50 runs that the authors of PLAN state, and `error` is its standard error. They call
    the two methods "PLAN-E-ULTIMATE++" and "Instance optimal". Here rho is 1/8 or 1, and the 4000 rows are from N(0, I)
    in dimension 128: github.com/ChristianLebeda/PLAN-experiments, experiments_results/gaussianA/dataframe.csv. The
    options are the constants of their program. `budget` is what their program spends: 3.75 rho for PLAN, and rho for
    the other method.
    """
    runs = [
        method(normal_rows(4000, np.ones(128), seed), budget, radius=25 * np.sqrt(128), rng=rng)
        for seed, rng in enumerate(np.random.default_rng(8).spawn(25))
    ]
    mean, own = mean_and_error([np.sum(estimate**2) for estimate in runs])
    assert abs(mean - published) < 4 * np.hypot(error, own)


@pytest.mark.parametrize(("n", "published"), [(1000, 0.28059), (10_000, 0.07324)])
def test_coinpress_has_its_published_error(n, published):
    """The 10 % trimmed mean of the errors of `coinpress` agrees with the published one within four standard errors.

    The value `published` is from 100 runs on `n` rows from N(0, I), d = 50, radius 10 sqrt(50), rho = 0.5, 2 steps:
    github.com/twistedcubic/coin-press, results/synthetic_mean/t2-1.txt, the first line for n = 1000 and the last one
    for n = 10 000. An error is the l2 distance of the estimate from the true mean.
    """
    options = {"radius": 10.0, "sigma": 1.0, "steps": 2, "clip_probability": 0.01}
    runs = [
        coinpress(normal_rows(n, np.ones(50), seed), 0.5, rng=rng, **options)
        for seed, rng in enumerate(np.random.default_rng(8).spawn(40))
    ]
    lengths = np.linalg.norm(runs, axis=1)
    error = np.std(lengths) * np.sqrt(1 / 40 + 1 / 100)
    assert abs(stats.trim_mean(lengths, 0.1) - published) < 4 * error


def test_coinpress_shrinks_to_balls_that_hold_the_mean(monkeypatch):
    """`coinpress` clips rows to balls that shrink from step to step, and its estimate is near the true mean.

    The distance of the estimate from the true mean is below the bound of the theory in all of 20 runs.
    """
    d, n, recorder = 20, 2000, Recorder(monkeypatch)
    for seed in range(20):
        X = normal_rows(n, np.ones(d), seed, mean=30.0)
        coinpress(X, 0.1, radius=100.0, sigma=1.0, steps=4, beta=0.2, rng=np.random.default_rng(seed))
    balls = _balls(n, d, 100 * np.sqrt(d), 0.1, 4, 0.2, None)
    g = _tail(d, 0.2 / 12)
    for step in range(3):
        clip_norm, budget = balls[step]
        r = g * np.sqrt(1 / n + (2 * clip_norm / n) ** 2 / (2 * budget))
        assert r < (100 * np.sqrt(d) if step == 0 else balls[step - 1][0])
    assert balls[3][0] < 1.5 * np.sqrt(d) + 10
    centers = np.sum(np.reshape(recorder.answers, (20, 4, d)), axis=1)
    assert np.max(np.linalg.norm(centers - 30, axis=1)) < g * np.sqrt(1 / n + (2 * balls[3][0] / n) ** 2 / 0.15)


def test_coinpress_finds_a_covariance():
    """For 400 000 rows x, `_whitening` of CoinPress finds a matrix A such that A x has a covariance near the identity.

    The eigenvalues of the covariance of A x are above 0.8 and, as the method promises, at most 1.
    """
    turn, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))
    root = turn * np.sqrt([1.0, 1e-2, 1e-3]) @ turn.T
    X = np.random.default_rng(2).normal(size=(400_000, 3)) @ root
    A = _whitening(X, 2.0, 5, 0.01, np.random.default_rng(3))
    values = np.linalg.eigvalsh(A @ root @ root @ A.T)
    assert values.max() <= 1
    assert values.min() > 0.8


def test_gaussian_noise_is_exact():
    X, C = normal_rows(100, np.ones(20_000), 1), 1e5
    difference = gaussian(X, 0.3, radius=1.0, clip_norm=C, rng=np.random.default_rng(1)) - X.mean(axis=0)
    assert stats.kstest(difference, stats.norm(scale=2 * C / 100 / np.sqrt(0.6)).cdf).pvalue > 1e-3


def test_gaussian_clips_to_the_ball():
    X = np.array([[3.0, 4.0], [0.3, 0.4], [3.0, 4.0], [-1e4, 0.0]])
    estimate = gaussian(X, 1e20, radius=9.0, clip_norm=1.0, rng=np.random.default_rng(1))
    assert estimate == pytest.approx([(0.6 + 0.3 + 0.6 - 1) / 4, (0.8 + 0.4 + 0.8) / 4], abs=1e-8)
    moved = gaussian(X + 5, 1e20, radius=9.0, center=5.0, clip_norm=1.0, rng=np.random.default_rng(1))
    assert moved == pytest.approx(estimate + 5, abs=1e-8)


def test_known_sigma_gives_anisotropic_noise_of_variance_sigma():
    """For known standard deviations and center, the mean squared error of `anisotropic` agrees with its formula.

    The formula is (2 C / n)**2 / (2 rho) sum(sigma), where sigma are the standard deviations, C is the clip norm of the
    scaled rows, n is the number of rows, and rho is the budget. The tolerance is four standard errors plus 1 %. A
    thousand additional coordinates of very small standard deviation change nothing.
    """
    n, rho, sigma = 2000, 0.1, 1.0 / np.arange(1, 31) ** 2
    flat = np.append(sigma, np.full(1000, 1e-6))
    ball = np.sqrt(sigma.sum() + 2 * np.linalg.norm(sigma) * np.sqrt(np.log(n / 0.1)) + 2 * np.log(n / 0.1))
    expected = (2 * ball / n) ** 2 / (2 * rho) * sigma.sum()
    for s in (sigma, flat):
        X = normal_rows(n, s, 5)
        errors = [squared_error(anisotropic, X, rho, seed, radius=9.0, sigma=s, center=0.0) for seed in range(60)]
        mean, own = mean_and_error(errors)
        assert abs(mean - expected) < 4 * own + 0.01 * expected


def test_the_filter_pays_twice_the_variance_of_a_known_centre():
    """If the center is unknown, the mean squared error of `anisotropic` is 1.3 to 3.5 times that with a known center.

    Without the center, the method finds outlying rows by their distances to other rows, which are sqrt(2) times as
    large as those to the center. Therefore it adds more noise, and it also spends budget on this search.
    """
    X, s = normal_rows(5000, SIGMA, 3), {"sigma": SIGMA, "radius": 9.0}
    found = np.mean([squared_error(anisotropic, X, 2.0, seed, **s) for seed in range(25)])
    known = np.mean([squared_error(anisotropic, X, 2.0, seed, center=0.0, **s) for seed in range(100)])
    assert 1.3 < found / known < 3.5  # expected is 2.2, with an error of 0.4


def test_plan_profits_from_a_spread_that_differs():
    """If the standard deviations sigma differ among coordinates, `plan` has a far smaller error than `huang_liang_yi`.

    In theory (Table 1 of the PLAN paper), the mean squared error is proportional to |sigma|_1^2 for `plan`, and to
    d |sigma|_2^2, for d coordinates, for `huang_liang_yi`. The ratio of the errors must be at least half of the ratio
    of these numbers.
    """
    sigma = 256.0 / np.arange(1, 257)
    X = normal_rows(4000, sigma, 1, mean=10.0)
    seeds, methods = range(4), (huang_liang_yi, plan)
    errors = [np.mean([squared_error(method, X, 1.0, seed, radius=400.0) for seed in seeds]) for method in methods]
    assert errors[0] / errors[1] > 256 * np.sum(sigma**2) / np.sum(sigma) ** 2 / 2


def test_plan_finds_the_spread():
    """`_spread`, the private search of PLAN for standard deviations, finds those of 20 000 rows within 5 %."""
    X = rows(20_000)
    found = _spread(X, np.full(D, 50.0), 0.5, np.random.default_rng(1))
    assert found == pytest.approx(SIGMA, rel=0.05)


def test_median_has_the_variance_of_a_median():
    """For rho = 2e6, `coordinate_median` of n normal numbers has the variance of a median, pi / (2 n), within 15 %."""
    X = normal_rows(2000, np.ones(2000), 4)
    median = coordinate_median(X, 2000 * 1e3, radius=9.0, rng=np.random.default_rng(1))
    assert np.mean(median**2) * 2000 == pytest.approx(np.pi / 2, rel=0.15)


def test_median_wins_at_low_budget_in_high_dimension():
    """At a low budget and in a high dimension, `coordinate_median` has less than half the squared error of two rivals.

    The rivals are `huang_liang_yi` and `plan`, for 4000 normal rows with 2048 columns and the budget rho = 1/8.
    """
    X, radius = normal_rows(4000, np.ones(2048), 6), 25 * np.sqrt(2048)
    median, *others = (squared_error(m, X, 1 / 8, 1, radius=radius) for m in (coordinate_median, huang_liang_yi, plan))
    assert 2 * median < min(others)


# --- Second moments ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sigma", [SIGMA, np.geomspace(1, 0.01, 40)], ids=["in all entries", "separately"])
def test_noise_of_second_moments_costs_seven_eighths(sigma, monkeypatch):
    """The Gaussian noise in `second_moments` costs 7/8 of the budget; the rest is for a private choice of clip norm.

    `sigma` has the standard deviations of the columns.
    """
    recorder = Recorder(monkeypatch)
    second_moments(rows(2000, mean=0.0, sigma=sigma), 0.4, clip_norm=50.0, rng=np.random.default_rng(2))
    assert sum(recorder.costs) == pytest.approx(7 / 8 * 0.4, rel=1e-12)


@pytest.mark.parametrize(("before", "after"), [(1e9, 0.0), (3.0, -1e9), (0.5, 1e-9)])
def test_a_row_changes_second_moments_by_no_more_than_the_noise_is_for(before, after, monkeypatch):
    """If a row is replaced, each value to which `second_moments` adds noise changes by at most its sensitivity.

    All entries of the row are `before`, and then `after`. The function `_lost` has no noise: for each of several clip
    norms, it computes by how much clipping reduces the sum of the squared norms of the rows. If all squared norms are
    at most 1, a replaced row must change each of its results by at most 1.
    """
    found = []
    for first in (before, after):
        with monkeypatch.context() as context:
            recorder, X = Recorder(context, found[0].answers if found else None), rows(300, mean=0.0)
            X[0] = first
            second_moments(X, 1.0, clip_norm=10.0, rng=np.random.default_rng(2))
            found.append(recorder)
    for (value, sensitivity), (other, same) in zip(found[0].values, found[1].values, strict=True):
        assert np.linalg.norm(value - other) <= sensitivity * (1 + 1e-12)
        assert sensitivity == same
    norms, squares = 2.0 ** -np.arange(20), np.random.default_rng(1).uniform(0, 1, 50)
    squares[0] = min(before**2 / 100, 1.0)
    one = _lost(squares, norms)
    squares[0] = min(after**2 / 100, 1.0)
    assert np.all(np.abs(one - _lost(squares, norms)) <= 1)


def test_second_moments_are_exact_without_noise_and_follow_the_unit():
    """With a huge budget, `second_moments` returns the exact second moments of the rows.

    If the rows and the clip norm are multiplied by 4, the result for the same seed is multiplied by 16. The result has
    no negative eigenvalues.
    """
    X = rows(2000, mean=0.0) @ np.linalg.qr(np.random.default_rng(3).normal(size=(D, D)))[0]
    exact = X.T @ X / len(X)
    found = second_moments(X, 1e9, clip_norm=50.0, rng=np.random.default_rng(2))
    np.testing.assert_allclose(found, exact, atol=1e-3)
    one = second_moments(X, 1.0, clip_norm=50.0, rng=np.random.default_rng(2))
    np.testing.assert_allclose(second_moments(4 * X, 1.0, clip_norm=200.0, rng=np.random.default_rng(2)), 16 * one)
    assert np.min(np.linalg.eigvalsh(one)) > -1e-12


def test_second_moments_need_two_columns():
    with pytest.raises(ValueError, match="at least two columns, got 1"):
        second_moments(np.ones((5, 1)), 1.0, clip_norm=1.0, rng=np.random.default_rng(1))
