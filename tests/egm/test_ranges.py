"""Test AdaptiveDataMechanism with a declared range for each column, and how it reads tables, files and dask arrays.

With a large budget, a release may first search, that is, find center and spread of the rows by private queries. Without
a search, a release is a clipped sum: the noisy sum of rows that are clipped to the ranges. Three properties are tested.
The error is in nearly all cases at most 1.1 times that of a clipped sum. A release is bit for bit the same whether an
array, a file or a dask array holds the rows. Another unit of a column changes only the unit of its results.
"""

import dataclasses
import functools
import itertools
import math
import tracemalloc
from fractions import Fraction
from unittest import mock

import dask.array as da
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from egm import AdaptiveDataMechanism, files, samplers
from egm._adaptive import choice, expected_rows
from egm._adaptive.private_rows import PrivateRows
from egm._adaptive.search import Search
from egm._rows import passes
from egm._rows.passes import Passes
from egm.calibration import zcdp_rho
from tests.conftest import slow
from tests.egm.doubles import written

RANGES = {"age": (0, 120), "income": (0, 1e6), "visits": (0, 365)}
NAMES, ORDER = tuple(RANGES), [2, 0, 1]
MEAN, SIGMA = np.array([41.0, 2.4e4, 4.0]), np.array([17.0, 1.2e4, 3.0])
WIDTH = np.array([120, 1e6, 365])


def people(n=4000, seed=1):
    return np.abs(np.random.default_rng(seed).normal(MEAN, SIGMA, (n, 3)))


def mechanism(n=4000, rho=0.05, **options):
    return AdaptiveDataMechanism(n, rho, **{"ranges": RANGES, **options})


def same(one, other):
    """Return whether the releases, or the forecasts, `one` and `other` have equal values in every field."""
    return all(np.array_equal(getattr(one, f.name), getattr(other, f.name)) for f in dataclasses.fields(one))


# --- The error --------------------------------------------------------------------------------------------------------

LAWS = {  # rows of n entries in d columns, within the range that is named
    "normal": (lambda rng, n, d: rng.normal(0.3, 0.05, (n, d)).clip(0, 1), (0, 1)),
    "lognormal": (lambda rng, n, d: rng.lognormal(0, 1, (n, d)).clip(0, 50), (0, 50)),
    "zeros": (lambda rng, n, d: rng.random((n, d)) * (rng.random((n, d)) < 0.2), (0, 1)),
    "rows of zeros": (lambda rng, n, d: rng.random((n, d)) * (rng.random((n, 1)) < 0.1), (0, 1)),
    "constant": (lambda rng, n, d: np.full((n, d), 0.7), (0, 1)),
    "one-hot": (lambda rng, n, d: np.eye(d + 1)[rng.integers(0, d + 1, n)][:, :d], (0, 1)),
    "integers": (lambda rng, n, d: rng.poisson(2, (n, d)).clip(0, 20), (0, 20)),
    "two points": (lambda rng, n, d: np.where(rng.random((n, 1)) < 0.5, -3.0, 5.0) * np.ones(d), (-3, 5)),
}
FEW = [(50, 1, 8.0), (50, 3, 8.0), (50, 80, 8.0), (2000, 3, 310.0)]  # n, d, n rho**0.5
MANY = [(2000, 1, 1500.0), (20_000, 3, 3000.0), (4000, 10, 700.0), (20_000, 10, 3000.0), (4000, 30, 1000.0)]


def clipped(d, rho, width):
    """Return the expected squared error of a noisy sum of rows that are clipped to `d` ranges of the same `width`.

    The noise is for the zCDP budget `rho`.
    """
    return d * (d * width**2) / (2 * rho)


def errors(law, n, d, reach, runs):
    """Release `runs` random tables, and return the arrays (errors, forecasts, searched), one entry for each release.

    `errors` and `forecasts` are the squared errors and their forecasts, divided by the result of `clipped`: the
    expected squared error of the noisy sum of rows that are clipped to the ranges. `searched` says whether the release
    found the center and the standard deviations by private queries. `law` names a distribution of the `n` rows with `d`
    columns, and the budget is rho = (`reach` / `n`)**2.
    """
    make, (low, high) = LAWS[law]
    found, rho = [], (reach / n) ** 2
    for seed in range(runs):
        X = make(np.random.default_rng([seed, n, d]), n, d)
        it = AdaptiveDataMechanism(n, rho, ranges=[(low, high)] * d)
        release = it.release(X, rng=np.random.default_rng([seed, n, d, 1]))
        assert sum(map(Fraction, release.spent.values())) <= Fraction(rho)
        assert np.all((release.estimate >= n * low) & (release.estimate <= n * high))
        error = np.sum((release.estimate - X.sum(axis=0)) ** 2)
        found.append((error, release.forecast.total, release.method == "search"))
    error, forecast, search = np.transpose(found)
    unit = clipped(d, rho, high - low)
    return error / unit, forecast / unit, search.astype(bool)


@pytest.mark.parametrize("law", LAWS)
def test_few_rows_have_the_error_of_a_clipped_sum(law):
    """With too few rows to find center and spread privately, a release is the noisy sum of rows clipped to the ranges.

    So the forecast is exactly what `clipped` returns, the expected squared error of such a sum. The mean squared error
    is at most 10 % above the forecast, plus four standard errors. `law` names the distribution of the rows.
    """
    for n, d, reach in FEW:
        error, forecast, search = errors(law, n, d, reach, 40)
        assert not search.any()
        assert forecast == pytest.approx(1, rel=1e-9)
        assert np.mean(error) <= 1.1 + 4 * np.std(error) / math.sqrt(40)


@pytest.mark.slow
def test_very_many_columns_are_released_quickly():
    n, d = 2000, 20_000
    X = np.zeros((n, d), dtype=np.int8)
    X[np.arange(n), np.arange(n)] = 1
    release = AdaptiveDataMechanism(n, 0.024, ranges=[(0, 1)] * d).release(X, rng=np.random.default_rng(1))
    assert release.method == "ranges"
    assert release.spent == {"sum": 0.024}
    assert np.sum((release.estimate - X.sum(axis=0)) ** 2) <= 1.1 * clipped(d, 0.024, 1)


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
def test_many_rows_have_no_larger_error_than_a_clipped_sum(law):
    """With many rows, the mean squared error is at most 1.1 times that of a clipped sum, plus four standard errors.

    A clipped sum is the noisy sum of rows that are clipped to the ranges, with noise for the whole budget. Let U be its
    expected squared error. At most a fifth of the releases forecast more than 1.1 U for their own error (14 % of 200
    releases for the law "integers"). A release may first search, that is, find center and spread of the rows by private
    queries. If it gives up the search, it forecasts at most 1.4 U, because the search has spent less than 29 % of the
    budget. For normal or constant rows, the median forecast is below 0.3 U. `law` names the distribution of the rows.
    """
    ratios, forecasts = [], []
    for place in MANY:
        error, forecast, search = errors(law, *place, 6)
        assert np.mean(error) <= 1.1 + 4 * np.std(error) / math.sqrt(6)
        assert np.max(forecast, where=~search, initial=0.0) <= 1.4
        assert np.median(forecast) <= 1.1
        ratios.extend(error / forecast)
        forecasts.extend(forecast)
        if law in ("normal", "constant"):
            assert search.all()
    assert np.mean(np.array(forecasts) > 1.1) <= 0.2
    assert np.mean(ratios) <= 1.3
    if law in ("normal", "constant"):
        assert np.median(forecasts) < 0.3


def test_a_clipped_sum_is_what_it_says(silent):
    """With few rows, a release is the noisy sum of the rows, with each entry clipped to its column's range.

    The release states the noise, center, sigma, bias and forecast error of this sum. The test replaces only the
    noise by zeros.
    """
    X = people(50)
    X[3] = [-1e300, 1e300, 400]
    release = mechanism(50, 0.01).release(X)
    np.testing.assert_allclose(release.estimate, np.clip(X, 0, WIDTH).sum(axis=0), rtol=1e-9)
    assert (release.method, release.spent, release.model_holds) == ("ranges", {"sum": 0.01}, True)
    np.testing.assert_allclose(release.noise_std, WIDTH * math.sqrt(3 / 0.02), rtol=1e-9)
    np.testing.assert_allclose(release.center, WIDTH / 2)
    np.testing.assert_allclose(release.sigma, WIDTH / 2)
    assert release.forecast.total == release.forecast.noise == pytest.approx(np.sum(release.noise_std**2))
    assert release.bias.tolist() == [0, 0, 0]


def test_what_a_first_mean_has_cost_is_not_lost():
    """If rows fill their ranges evenly, all of the budget except the cost of one private median is spent on the sum.

    The mechanism first computes a noisy mean of the clipped rows, and a private median of the rows' distances from it.
    The median shows that private queries for center and spread would not make the error smaller. Then the mechanism
    averages a second noisy mean with the first, so that the cost of the first is not lost.
    """
    X = np.random.default_rng(1).uniform(0, WIDTH, (4000, 3))
    release = mechanism().release(X, rng=np.random.default_rng(2))
    assert release.method == "ranges"
    assert set(release.spent) == {"ranges", "radii", "sum"}
    left = 0.05 - release.spent["radii"]
    np.testing.assert_allclose(release.noise_std, WIDTH * math.sqrt(3 / (2 * left)), rtol=1e-6)


def test_a_search_that_disagrees_with_the_first_mean_is_not_believed(monkeypatch):
    """If private queries find a center far from the first noisy mean of the clipped rows, this mean is released.

    The test makes the found center wrong in each column. The first mean costs a quarter of the budget, so the standard
    deviation of its noise is twice that for the whole budget.
    """
    right = choice.last_round_below

    def wrong(search, limit, unseen):
        return dataclasses.replace(right(search, limit, unseen), mean=np.full(3, 0.6))

    monkeypatch.setattr(choice, "last_round_below", wrong)
    X = people()
    release = mechanism().release(X, rng=np.random.default_rng(2))
    assert release.method == "ranges"
    np.testing.assert_allclose(release.noise_std, 2 * WIDTH * math.sqrt(3 / 0.1), rtol=1e-6)
    assert np.all(np.abs(release.estimate - X.sum(axis=0)) < 5 * release.noise_std)


@pytest.mark.parametrize("seed", [0, 1, *slow(*range(2, 8))])
def test_whatever_is_answered_the_run_ends(seed, monkeypatch):
    """A release succeeds within its budget, even if all its noisy results are random numbers.

    The columns have declared ranges. `seed` chooses the random numbers: indices of quantiles are drawn without regard
    to the data, and sums get noise that is up to a thousand times too large. Each estimated sum is within n times the
    range of its column, and `noise_std`, `bias` and ``forecast.total`` are finite.
    """
    rng = np.random.default_rng(seed)
    monkeypatch.setattr(samplers, "secure_index", lambda scores, eps: int(rng.random() * len(scores)))

    def far_off(std, size):
        return [int(z) for z in rng.choice([0, 1, 4, 1000]) * std * rng.normal(size=size)]

    monkeypatch.setattr(samplers, "secure_gaussian", far_off)
    for (n, d), more in itertools.product([(60, 1), (60, 5), (100, 40)], (1, 3, 1000)):
        least = AdaptiveDataMechanism(n, 1.0, ranges=[(-1, 3)] * d).least_rho(d)
        it = AdaptiveDataMechanism(n, more * least, ranges=[(-1, 3)] * d)
        release = it.release(rng.normal(size=(n, d)))
        assert np.all((release.estimate >= -n) & (release.estimate <= 3 * n))
        assert np.all(np.isfinite([*release.noise_std, *release.bias, release.forecast.total]))
        assert sum(map(Fraction, release.spent.values())) <= Fraction(it.rho)


# --- Units and names --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [40, 4000])
def test_the_unit_of_a_column_is_the_unit_of_its_results(n):
    """If columns and their ranges are converted to other units, a release has the converted results.

    Each conversion is a factor and a shift, as from degrees Celsius to Fahrenheit. For `n` = 4000 rows, but not for 40,
    the release first finds center and spread of the rows by private queries.
    """
    X, factor, shift = people(n), np.array([12.0, 1.0, 1 / 7]), np.array([-600.0, 0.0, 3.0])
    changed = dict(zip(NAMES, np.array([*RANGES.values()]) * factor[:, None] + shift[:, None], strict=True))
    one = mechanism(n).release(X, rng=np.random.default_rng(2))
    other = mechanism(n, ranges=changed).release(factor * X + shift, rng=np.random.default_rng(2))
    assert other.method == one.method == ("ranges" if n == 40 else "search")
    np.testing.assert_allclose(other.estimate, factor * one.estimate + n * shift, rtol=1e-6)
    np.testing.assert_allclose(other.center, factor * one.center + shift, rtol=1e-6)
    for name in ("noise_std", "bias", "sigma"):
        np.testing.assert_allclose(getattr(other, name), factor * getattr(one, name), rtol=1e-6, atol=1e-9)
    lengths, changed = (np.subtract(*release.interval()) for release in (one, other))
    np.testing.assert_allclose(changed, factor * lengths, rtol=1e-6)
    assert other.forecast.noise == pytest.approx(np.sum(other.noise_std**2), rel=1e-9)
    assert other.spent == pytest.approx(one.spent)


def test_a_search_finds_people():
    X = people()
    release = mechanism().release(X, rng=np.random.default_rng(2))
    assert release.method == "search"
    assert np.all(np.abs(release.center - X.mean(axis=0)) < 0.02 * WIDTH)
    low, high = release.interval(0.999)
    assert np.all((low < X.sum(axis=0)) & (X.sum(axis=0) < high))
    expected = mechanism().forecast(SIGMA, MEAN)
    assert expected.method == "search"
    assert expected.error.noise == pytest.approx(release.forecast.noise, rel=0.5)


def test_names_are_matched():
    X, rng = people(), np.random.default_rng
    expected = mechanism().release(X, rng=rng(2))
    turned = pa.table({name: X[:, j] for j, name in [(2, "visits"), (0, "age"), (1, "income")]})
    assert same(mechanism().release(turned, rng=rng(2)), expected)
    by_pairs = mechanism(ranges=list(RANGES.values()), columns=NAMES)
    assert by_pairs == mechanism()
    assert by_pairs.columns == mechanism().columns == NAMES
    assert mechanism(ranges=np.array(list(RANGES.values())), columns=NAMES) == mechanism()
    with pytest.raises(ValueError, match="X must have the names of the mechanism's columns"):
        mechanism().release(turned.rename_columns(["a", "b", "c"]))
    with pytest.raises(ValueError, match=r"X has names, .* and the mechanism has none"):
        mechanism(ranges=list(RANGES.values())).check(turned)


def test_forecasts_take_names():
    sigma, center = {"visits": 3.0, "age": 17.0, "income": 1.2e4}, {"income": 2.4e4, "age": 41, "visits": 4}
    plain = mechanism().forecast(SIGMA, MEAN)
    assert same(mechanism().forecast(sigma, center), plain)
    other = mechanism().forecast(covariance=np.diag(SIGMA**2), center=MEAN)
    assert other.error.total == pytest.approx(plain.error.total, rel=0.05)
    assert same(mechanism().forecast(SIGMA), mechanism().forecast(SIGMA, center=WIDTH / 2))


def test_a_forecast_says_that_there_is_no_search():
    """With few rows, or standard deviations of half the ranges' widths, `forecast` says that a release will not search.

    A search finds center and spread of the rows by private queries. If there is no search, the attribute `method` of
    the forecast is "ranges". With few rows, a release states the same forecast error as `forecast`.
    """
    few, release = mechanism(50).forecast(SIGMA), mechanism(50).release(people(50), rng=np.random.default_rng(1))
    assert (few.method, few.success, few.spent) == ("ranges", 1.0, {"sum": 0.05})
    assert few.error.total == pytest.approx(release.forecast.total, rel=1e-12)
    wide = mechanism().forecast(WIDTH / 2)
    assert wide.method == "ranges"


@pytest.mark.parametrize("sigma", [1e-150, 1e-170, 1e-300])
@pytest.mark.parametrize("center", [[1.0, 0.0], [0.0, 0.5]])
def test_a_forecast_for_columns_that_hardly_vary_is_nearly_that_for_a_small_spread(sigma, center):
    """`forecast` states nearly the same for standard deviations of 1e-150 or less as for 1e-20.

    The errors differ by less than a factor of 2, and the success probabilities by at most 0.02. `sigma` is the standard
    deviation. `center`, the mean of a row, is at ends or in the middle of the ranges, from -1 to 1 and from 0 to 1.
    """
    few = mechanism(ranges=[(-1, 1), (0, 1)])
    expected = few.forecast([1e-20, 1e-20], center)
    forecast = few.forecast([sigma, sigma], center)
    assert 1 / 2 < forecast.error.total / expected.error.total < 2
    assert forecast.success == pytest.approx(expected.success, abs=0.02)


def test_a_forecast_says_what_the_ranges_would_cut_off():
    """`forecast().cut` is the root mean square change of each column's sum if entries are cut to the ranges.

    Normal rows are cut on one side, or on both sides alike. Simulated mean squares agree within 5 standard errors. With
    a `radius` in place of ranges, `cut` is 0.
    """
    n, (low, high) = 100, np.array(list(RANGES.values())).T
    for mean, sigma in ((MEAN, SIGMA), ((low + high) / 2, (high - low) / 4)):
        rows = np.random.default_rng(1).normal(mean, sigma, (10_000, n, 3))
        squares = np.sum(rows.clip(low, high) - rows, axis=1) ** 2
        cut = mechanism(n).forecast(sigma, mean).cut
        assert np.all(np.abs(cut**2 - squares.mean(axis=0)) <= 5 * squares.std(axis=0) / 100)
    assert not mechanism(ranges=None, radius=1e6, sigma_range=(1.0, 1e6), rho=1.0).forecast(SIGMA, 1e6).cut.any()


@pytest.mark.parametrize("mix", [np.full((1, 1), 4.0), np.random.default_rng(9).normal(size=(5, 5))])
def test_a_large_budget_does_not_end_the_search_for_normal_rows(mix):
    """However small the noise is: the mean near a first mean agrees with it, and the quantiles of distances are right.

    The normal rows have one column or five correlated ones.
    """
    d = len(mix)
    mechanism = AdaptiveDataMechanism(5000, 200.0**2, ranges=[(-50, 60)] * d)
    for rng in map(np.random.default_rng, range(24, 32)):
        assert mechanism.release(rng.normal(size=(5000, d)) @ mix + 3, rng=rng).method == "search"


@pytest.mark.parametrize("wrong", range(2))
def test_one_median_that_is_too_small_does_not_end_the_search_for_normal_rows(wrong, monkeypatch):
    """Rows look long to a search whose noisy median distance is 20 % too small, but only until it asks for another one.

    `wrong` is the number of the median among those that correct the standard deviations: before the center is made
    better, or before the sum is released.
    """
    right, asked = Search.correct, itertools.count()

    def correct(search, b):
        right(search, b)
        if isinstance(search.rows, PrivateRows) and next(asked) == wrong:
            search.sigma = 0.8 * search.sigma

    monkeypatch.setattr(Search, "correct", correct)
    rng = np.random.default_rng(3)
    made = AdaptiveDataMechanism(4000, 1.7, ranges=[(-8, 8)])
    release = made.release(rng.normal(size=(4000, 1)), rng=rng)
    assert release.method == "search"
    assert next(asked) > wrong + 1


def test_a_forecast_with_a_search_is_for_releases_with_one():
    """If `forecast` says that center and spread will be searched, a release searches them, even at the least such rho.

    The number of rows is private. The least budget rho for which `forecast` says so is found by bisection, to 1e-6.
    """
    n, rng = 4000, np.random.default_rng(1)
    least, enough = 0.0, 1.0
    rows = rng.normal(0.2, 0.01, (n, 2))
    options = {"ranges": [(0, 1)] * 2, "neighbors": "add_remove"}
    while enough - least > 1e-6 * enough:
        rho = (least + enough) / 2
        found = mechanism(n, rho, **options).forecast([0.01, 0.01], 0.2).method == "search"
        least, enough = (least, rho) if found else (rho, enough)
    assert {mechanism(n, enough, **options).release(rows, rng=rng).method for _ in range(20)} == {"search"}


@pytest.mark.slow
def test_a_search_that_noise_ends_counts_as_a_failure(monkeypatch):
    """`forecast` allows for the two comparisons of noisy means by which a search in ranges may be given up.

    Each comparison ends a search of normal rows with the probability `DIFFERENT`, which the test increases to 0.2, so
    that 60 releases show it. The fraction of releases with a search is at least the stated probability of success, less
    four standard errors, and below 0.95.
    """
    for module in (choice, expected_rows):
        monkeypatch.setattr(module, "DIFFERENT", 0.2)
    made = AdaptiveDataMechanism(3000, 1.0, ranges=[(-100.0, 100.0)])
    success = made.forecast([1.0]).success
    searched = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        searched.append(made.release(rng.normal(size=(3000, 1)), rng=rng).method == "search")
    assert success - 4 * math.sqrt(0.25 / 60) < np.mean(searched) < 0.95
    assert success <= 0.6


def test_a_search_is_considered_from_the_least_budget_on():
    least = mechanism().least_rho(3)
    for rho, method in ((math.nextafter(least, 0), "ranges"), (least, "search")):
        assert mechanism(rho=rho).forecast(SIGMA / 10, MEAN).method == method


@pytest.mark.parametrize("basis", ["dct", "learn"])
def test_a_basis_is_one_of_standardized_columns(basis):
    """A release along a `basis` is possible for columns of different units: their ranges are first scaled to [-1, 1].

    A basis has the directions along which rows are clipped. It is public ("dct") or learned from the data, and the
    columns are correlated. The error in each column is less than 9 times the sum of two stated numbers, the bias and
    the standard deviation of the noise. The attribute `sigma` is that of the scaled columns along the basis.
    """
    rng = np.random.default_rng(3)
    common = rng.normal(size=(20_000, 1))
    X = MEAN + SIGMA * (0.95 * common + 0.3 * rng.normal(size=(20_000, 3)))
    ranges = {"age": (-60, 140), "income": (-5e4, 1e5), "visits": (-12, 20)}
    release = mechanism(20_000, basis=basis, ranges=ranges).release(X, rng=rng)
    assert release.method == "search"
    assert np.all(np.abs(release.estimate - X.sum(axis=0)) < 5 * np.sqrt(3) * (release.noise_std + release.bias))
    scaled = (X - X.mean(axis=0)) / np.diff(list(ranges.values())).T * 2
    assert release.sigma == pytest.approx(release.basis.forward(scaled).std(axis=0), rel=0.25)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"radius": 3.0}, "radius must be given, or ranges, and not both"),
        ({"ranges": None}, "radius must be given, or ranges, and not both"),
        ({"ranges": None, "radius": 3.0}, "sigma_range must be given with radius: the least and the greatest"),
        ({"ranges": [(0, 1), (2, 2)]}, r"ranges\[1\] must be \(low, high\) with low < high, got \(2, 2\)"),
        ({"ranges": {"a": (1, 0)}}, r"ranges\['a'\] must be \(low, high\) with low < high, got \(1, 0\)"),
        ({"ranges": [0, 1]}, r"ranges must be pairs \(low, high\), one for each column"),
        ({"ranges": [(0, np.inf)]}, r"ranges\[0, 1\] must be finite"),
        ({"ranges": [(0, 1)], "columns": ["a", "b"]}, "columns must be the names of the 1 ranges, got 2"),
        ({"columns": ["age", "pay", "visits"]}, "ranges must have the names of the mechanism's columns"),
        ({"sigma_range": (0.5, 0.1)}, "sigma_range must be"),
        ({"ranges": [(0, 1e-120)]}, r"low < high, at least 2e-100 apart, got \(0, 1e-120\)"),
        ({"ranges": [(1e14, 1e14 + 1)]}, r"low < high, at least 100 apart, got \(100000000000000, 100000000000001\)"),
        ({"ranges": [(0, 1), (0, 2e-99)], "sigma_range": (0.01, 1)}, "sigma_range .* got 0.01 for .* half is 1e-99"),
    ],
)
def test_bad_ranges_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        mechanism(**options)


def test_a_radius_in_place_of_ranges_needs_standard_deviations_of_its_own():
    """The default range of the standard deviations is in units of the ranges, so it is not kept with a radius."""
    with pytest.raises(ValueError, match="sigma_range must be given with radius"):
        dataclasses.replace(mechanism(), ranges=None, radius=1e4)


def test_other_numbers_of_columns_are_refused():
    for refuse in (mechanism().check, mechanism().release):
        with pytest.raises(ValueError, match="X must have the 3 columns of the mechanism, got 2"):
            refuse(np.zeros((4000, 2)))
    with pytest.raises(ValueError, match="sigma must have the 3 columns of the mechanism, got 2"):
        mechanism().forecast([1.0, 2.0])


# --- Passes -----------------------------------------------------------------------------------------------------------


def chunked(X, chunks):
    return da.from_array(X, chunks=chunks)


def unknown(X):
    """Return a dask array with the rows of `X`, whose number of rows dask does not know."""
    X = chunked(np.insert(X, [0, 3, len(X)], -1e6, axis=0), (900, 2))
    return X[X[:, 0] > -1e5]


HELD = {
    "csv": lambda X, folder: files.rows(written(folder / "X.csv", X, NAMES), header="yes"),
    "npy": lambda X, folder: files.rows(written(folder / "X.npy", X, NAMES)),
    "parquet": lambda X, folder: files.rows(written(folder / "X.parquet", X, NAMES)),
    "parquet as dask": lambda X, folder: files.from_parquet(written(folder / "X.parquet", X, NAMES)),
    "memory map": lambda X, folder: np.load(written(folder / "X.npy", X, NAMES), mmap_mode="r"),
    "Fortran order": lambda X, folder: np.asfortranarray(X),
    "a list": lambda X, folder: X.tolist(),
    "dask, one chunk": lambda X, folder: chunked(X, X.shape),
    "dask, small chunks": lambda X, folder: chunked(X, (333, 1)),
    "dask, unequal chunks": lambda X, folder: chunked(X, ((1, 1999, 500, 1500), (3,))),
    "dask, unknown chunks": lambda X, folder: unknown(X),
}
MODES = {
    "ranges": {},
    "a learned basis": {"basis": "learn", "rho": 1.0},
    "a public basis": {"basis": "haar", "rho": 1.0},
    "few rows": {"rho": 1e-4},
    "a radius": {"ranges": None, "radius": 1e6, "sigma_range": (0.1, 1e6), "columns": NAMES},
}


@pytest.fixture
def small_blocks(monkeypatch):
    """Make releases in a test read the rows in blocks of 341 rows, so that small tables have several blocks, too."""
    monkeypatch.setattr(passes, "_BLOCK", 1 << 10)


@functools.cache
def released(mode):
    """Return a release, with simulated noise, of 4000 random rows by a mechanism with the options MODES[`mode`]."""
    return mechanism(**MODES[mode]).release(people(), rng=np.random.default_rng(2))


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        pytest.param(kind, mode, marks=[pytest.mark.slow] * ((i - j) % len(MODES) > 0))
        for (i, kind), (j, mode) in itertools.product(enumerate(HELD), enumerate(MODES))
    ],
)
def test_what_holds_the_rows_changes_no_bit(kind, mode, tmp_path, small_blocks):
    """A release is bit for bit the same whether an array, a file or a dask array holds the rows.

    `kind` says what holds them, and `mode` is a key of MODES, the options of the mechanism.
    """
    X, it = people(), mechanism(**MODES[mode])
    held = HELD[kind](X, tmp_path)
    it.check(held)
    assert same(it.release(held, rng=np.random.default_rng(2)), released(mode))
    assert np.array_equal(X, people())


def test_without_names_a_table_has_its_own_order(tmp_path):
    """If the mechanism has no names of columns, a release has the columns of a table in the order of the table."""
    X, it = people(), AdaptiveDataMechanism(4000, 1.0, radius=1e6, sigma_range=(0.1, 1e6))
    expected = it.release(X, rng=np.random.default_rng(2))
    found = it.release(HELD["csv"](X, tmp_path), rng=np.random.default_rng(2))
    assert same(dataclasses.replace(found, columns=None), expected)


@pytest.mark.parametrize("kind", ["csv", *slow("an array", "dask, small chunks")])
@pytest.mark.parametrize("mode", MODES)
def test_there_is_one_pass_for_each_question(kind, mode, tmp_path, monkeypatch, small_blocks):
    """A release reads all rows once to check them, and once for each private query, fewer than 60 times in all.

    `kind` says what holds the rows, and `mode` is a key of MODES, the options of the mechanism. For "few rows" there is
    one query, otherwise there are more.
    """
    asked, number = [], []
    total, of_passes = PrivateRows._total, Passes.total
    monkeypatch.setattr(PrivateRows, "_total", lambda it, *given: asked.append(given) or total(it, *given))
    monkeypatch.setattr(Passes, "total", lambda it, *given, **how: number.append(it) or of_passes(it, *given, **how))
    X = people()
    mechanism(**MODES[mode]).release(X if kind == "an array" else HELD[kind](X, tmp_path), rng=np.random.default_rng(2))
    assert len(number) == number[-1].number == 1 + len(asked)
    assert len(number) == 2 if mode == "few rows" else 2 < len(number) < 60


def test_one_block_is_in_memory_at_a_time(tmp_path):
    X = np.random.default_rng(1).normal(40, 5, (1 << 20, 3))
    np.save(tmp_path / "X.npy", X)
    del X
    it = AdaptiveDataMechanism(1 << 20, 1e-7, ranges=[(0, 100)] * 3)
    table = files.rows(tmp_path / "X.npy")
    it.release(table, rng=np.random.default_rng(1))  # compile first
    tracemalloc.start()
    it.release(table, rng=np.random.default_rng(1))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 6 * 8 * passes._BLOCK


def test_values_that_are_not_finite_are_named_before_a_question(monkeypatch, small_blocks):
    monkeypatch.setattr(PrivateRows, "_total", lambda *_: pytest.fail("a query was asked"))
    X = people()
    X[3000, 1] = np.nan
    for held in (X, chunked(X, (999, 3)), chunked(X, (77, 2)), np.asfortranarray(X)):
        with pytest.raises(ValueError, match=r"^X\[3000, 1\] must be finite$"):
            mechanism().release(held)


def test_a_file_with_another_number_of_rows_is_refused(tmp_path):
    table = HELD["csv"](people(3999), tmp_path)
    mechanism().check(table)  # a CSV file does not say how many rows it has
    with pytest.raises(ValueError, match="X must have the declared n = 4000 rows, got 3999"):
        mechanism().release(table)
    for held in (HELD["npy"](people(3999), tmp_path), chunked(people(3999), (500, 3))):
        with pytest.raises(ValueError, match="X must have the declared n = 4000 rows, got 3999"):
            mechanism().check(held)
    with pytest.raises(ValueError, match="X must have the declared n = 4000 rows, got 3999"):
        mechanism().release(unknown(people(3999)))


@pytest.mark.parametrize("missing", ["error", "drop_row"])
def test_a_private_number_of_rows_that_changes_is_not_told(missing):
    """If a later call of a function yields another number of rows, the ValueError states it only if `n` is declared."""

    def changing():
        returned = iter([people(3999)] * 2 + [people(3998)])  # for the columns, a check of all numbers, and a query
        return lambda: iter([next(returned)])

    with pytest.raises(ValueError, match=r"^X must have the same number of rows each time it is read$"):
        mechanism(neighbors="add_remove", missing=missing).release(changing())
    with pytest.raises(ValueError, match=r"^X must have the declared n = 3999 rows, got 3998$"):
        mechanism(n=3999).release(changing())


def test_an_iterator_is_told_the_way_out():
    ways = r"a function that returns a new iterator each time, .*, the table of egm\.files\.rows, or a dask array"
    with pytest.raises(TypeError, match=f"got an iterator: give {ways}"):
        mechanism().check(iter([people()]))


FRAMES = {"array": np.asarray, "pandas": pd.DataFrame, "Arrow": pa.RecordBatch.from_pandas}


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("ranges", [True, False])
def test_a_function_that_returns_a_new_iterator_gives_the_release_of_its_rows(kind, ranges, small_blocks):
    X, calls = pd.DataFrame(people(), columns=NAMES), []
    options = {"ranges": RANGES} if ranges else {"ranges": None, "radius": 1e6, "sigma_range": (0.1, 1e5)}
    X = X if kind == "array" and ranges else X.iloc[:, ORDER]

    def blocks():
        calls.append(None)
        return (FRAMES[kind](part) for part in (X[:7], X[7:7], X[7:2500], X[2500:]))

    it = mechanism(**options)
    found, whole = (it.release(held, rng=np.random.default_rng(1)) for held in (blocks, FRAMES[kind](X)))
    assert same(found, whole)
    assert len(calls) > 10


def test_a_function_is_called_only_if_all_else_is_right_and_must_return_a_new_iterator():
    """If a function provides the rows, it must return a new iterator of valid blocks at each call, or `release` fails.

    `release` fails before the first private query. If another argument is wrong, the function is not called.
    """
    one = iter([people()])
    wrong = {
        r"^X must be a function that returns a new iterator each time": lambda: one,
        r"^X must be a function that returns an iterator .* returned an object of type list": lambda: [people()],
        r"^X must have the declared n = 4000 rows, got 0": lambda: iter([]),
        r"^X must have shape \(rows, 3\), got \(rows, 2\)": lambda: iter([people(), people()[:, :2]]),
        r"^X must have the declared n = 4000 rows, got 3999": lambda: iter([people(3999)]),
        r"^X must have shape \(rows, 3\), got \(rows, 1\)": lambda: iter([people()[:, :1]]),
    }
    for said, function in wrong.items():
        mechanism().check(function)
        with pytest.raises((TypeError, ValueError), match=said), mock.patch.object(PrivateRows, "_total", pytest.fail):
            mechanism().release(function)
    with pytest.raises(ValueError, match=r"^person goes with a mechanism"):
        mechanism().release(pytest.fail, person="id")


def test_the_chunks_of_a_dask_array_stay_unknown():
    X = unknown(people())
    mechanism().release(X, rng=np.random.default_rng(1))
    assert np.isnan(X.shape[0])


def test_noise_in_the_number_of_rows_does_not_end_a_search():
    """With a private number of rows, a mean at an end of its range is found by the search as well as one in the middle.

    Means are divided by the noisy number of rows, so that two means of the same rows differ by its error.
    """
    n, rho = 20_000, float(zcdp_rho(1, 1e-6))
    it = AdaptiveDataMechanism(n, rho, ranges=[(0, 100)], neighbors="add_remove")
    for seed in range(60):
        X = np.random.default_rng(seed).normal(99, 0.3, size=(n, 1))
        assert it.release(X, rng=np.random.default_rng([seed, 1])).method == "search"
