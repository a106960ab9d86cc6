"""Test the confidence intervals of releases: how often they contain the true sum or mean, and how long they are.

In each simulated release, each column is one observation. The fraction of the intervals that contain the true sum or
mean may be below the confidence by at most three standard errors.
"""

import dataclasses
from collections import defaultdict
from datetime import date
from itertools import product

import numpy as np
import pytest
from scipy import stats

from egm import GaussianDataMechanism
from egm._l2 import coordinate_quantile
from egm._mechanisms.rowsum import half_lengths
from egm.mechanisms import GroupedDataMechanism
from tests.conftest import slow

SIGMA, CENTER = np.array([2.0, 1.0, 0.25]), np.array([10.0, -4.0, 0.5])
BASIS = [[0.6, 0.8, 0.0], [-0.8, 0.6, 0.0], [0.0, 0.0, 1.0]]
OF = ["sum", "mean", "population"]
INTEGERS = [[3, 4], [-(2**63), 2**63 - 1], [2**64 - 1, 2**63], [-1, 2**63], [2**64, 1]]  # the first three have a type
KNOWN = {"center_std": 0.0, "sigma_factor": 1.0}  # the guesses are right


def mechanism(n=200, d=3, **options):
    return GaussianDataMechanism(SIGMA[:d], n, 1.0, 1e-6, **{"center": CENTER[:d], **options})


def covered(made, times, *confidences, off=0.0, factor=1.0, simultaneous=False, rows=None):
    """Simulate `times` releases by the mechanism `made`; yield how often confidence intervals contain the true value.

    `made` is a GaussianDataMechanism, or a GroupedDataMechanism with all rows in one group. The rows are normal, and
    `rows` is their number (by default the declared one). Their mean is off the center by `off` declared standard
    deviations, and their standard deviations are `factor` times the declared ones.

    For each of the `confidences`, and for each of the true values "sum", "mean" (of the rows) and "population" (mean of
    their distribution), a tuple (confidence, share, length, number) is yielded. `share` is the fraction of the
    intervals that contain the true value; if `simultaneous` is true, it is the fraction of the releases in which all
    intervals do. `length` is the mean length of the finite intervals, divided by the standard deviation of the noise in
    the sum. `number` is the number of observations in `share`.
    """
    rng, seen, lengths = np.random.default_rng(8), defaultdict(list), defaultdict(list)
    grouped = isinstance(made, GroupedDataMechanism)
    inner = made.mechanism if grouped else made
    number = rows or inner.n
    along = np.eye(inner.sigma.size) if inner.basis is None else np.array(BASIS)
    for _ in range(times):
        mean = inner.center + (off * inner.sigma) @ along
        X = mean + rng.normal(size=(number, inner.sigma.size)) * inner.sigma * factor @ along
        release = made.release(X, by=np.ones(number), rng=rng)[1] if grouped else made.release(X, rng=rng)
        truths = zip(OF, (X.sum(axis=0), X.mean(axis=0), mean), strict=True)
        for (of, truth), confidence in product(truths, confidences):
            low, high = release.interval(confidence, of=of, simultaneous=simultaneous)
            inside = (low <= truth) & (truth <= high)
            seen[confidence, of].append(inside.all() if simultaneous else inside)
            lengths[confidence, of].append((high - low) / release.noise_std)
    for at, inside in seen.items():
        yield at[0], np.mean(inside), np.mean(np.ma.masked_invalid(lengths[at])), np.size(inside)


CASES = {  # (options of the mechanism, further arguments of `covered`)
    "right guesses": ({}, {}),
    "add or remove": ({"neighbors": "add_remove"}, {"off": 0.5}),
    "few rows": ({"neighbors": "add_remove", "n": 12}, {}),
    "fewer rows than declared": ({"neighbors": "add_remove", "n": 40}, {"rows": 25, "off": 0.5}),
    "center and sigma as wrong as declared": ({"clip_probability": 0.02}, {"off": 0.5, "factor": 1.25}),
    "many clipped rows": ({"clip_probability": 0.3, "n": 1000}, {"off": -0.5, "factor": 1.25}),
    "a basis": ({"basis": BASIS, "clip_probability": 0.1}, {"off": 0.5, "factor": 1.25}),
    "a basis, many clipped rows": ({"basis": BASIS, "clip_probability": 0.3, "n": 1000}, {"off": 0.5, "factor": 1.25}),
    "a basis, add or remove": ({"basis": BASIS, "neighbors": "add_remove"}, {"off": 0.5}),
    "l2, one column": ({"noise": "l2", "d": 1}, {}),
    "l2, two columns": ({"noise": "l2", "d": 2, "clip_probability": 0.1}, {"off": 0.5}),
    "l2, add or remove": ({"noise": "l2", "neighbors": "add_remove"}, {}),
    "rows that may be dropped": ({"missing": "drop_row"}, {"off": 0.5}),
    "a noisy number of many clipped rows": (
        {"neighbors": "add_remove", "n": 100, "clip_probability": 0.5, "center": 0.0},
        {"off": 0.5, "factor": 1.25},
    ),
    "the same, off zero": (
        {"neighbors": "add_remove", "n": 100, "clip_probability": 0.5},
        {"off": 0.5, "factor": 1.25},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_intervals_contain_the_exact_number_as_often_as_promised(case):
    options, arguments = CASES[case]
    for confidence, share, length, number in covered(mechanism(**options), 400, 0.5, 0.95, **arguments):
        assert share >= confidence - 3 * np.sqrt(confidence * (1 - confidence) / number)
        assert 0 < length < np.inf


@pytest.mark.parametrize("d", [1, 5])
@pytest.mark.parametrize("rate", [0.2, 0.01])
def test_rates_are_right_with_the_largest_standard_deviation_that_they_can_have(rate, d):
    """If 0.5 is declared for each of `d` columns of 0 and 1, 95 % intervals contain the `rate`, also if it is small.

    All columns are equal, which is the worst case. With the true standard deviation of a rare flag none does.
    """
    X = np.tile(np.arange(5000) < 5000 * rate, (d, 1)).T.astype(float)
    inside = {}
    for sigma in (0.5, np.std(X[:, 0])):
        made, rng = GaussianDataMechanism([sigma] * d, 5000, 1.0, 1e-6, center=[rate] * d), np.random.default_rng(1)
        ends = [made.release(X, rng=rng).interval(of="mean") for _ in range(50)]
        inside[sigma] = np.mean([(low <= rate) & (rate <= high) for low, high in ends])
    assert inside[0.5] > 0.95 - 3 * np.sqrt(0.95 * 0.05 / 50)
    assert rate > 0.1 or inside[np.std(X[:, 0])] == 0


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"neighbors": "add_remove"}, {"noise": "l2"}], ids=str)
def test_simultaneous_intervals_hold_together(options):
    """In at least 80 % of releases, the simultaneous 80 % intervals of all columns contain the true sums or means.

    The fraction may be lower by three standard errors. `options` are those of the mechanism, such as the kind of noise.
    """
    for _, share, _, number in covered(mechanism(**options), 500, 0.8, off=0.5, simultaneous=True):
        assert share >= 0.8 - 3 * np.sqrt(0.16 / number)


@pytest.mark.slow
@pytest.mark.parametrize("neighbors", ["replace_one", "add_remove"])
def test_intervals_of_groups(neighbors):
    """At least 90 % of the 90 % intervals for a group of rows contain the true sum or mean of the group.

    The fraction may be lower by three standard errors. `neighbors` is the neighbor relation of the mechanism.
    """
    made = GroupedDataMechanism(mechanism(neighbors=neighbors), [1, 2])
    for _, share, _, number in covered(made, 400, 0.9, off=0.3):
        assert share >= 0.9 - 3 * np.sqrt(0.09 / number)


def test_equal_rows_of_a_person_make_the_mean_of_the_population_less_certain():
    made = dataclasses.replace(mechanism(100, per_person=4, **KNOWN), epsilon=20.0)
    rng, inside = np.random.default_rng(8), []
    for _ in range(100):
        X = np.repeat(rng.normal(CENTER, SIGMA, (25, 3)), 4, axis=0)
        low, high = made.release(X, person=np.repeat(np.arange(25), 4), rng=rng).interval(0.9, of="population")
        inside.append((low <= CENTER) & (high >= CENTER))
    assert np.mean(inside) >= 0.9 - 3 * np.sqrt(0.09 / 300)


@pytest.mark.parametrize(("off", "factor", "doubts"), [(0.0, 1.0, KNOWN), (0.5, 1.25, {})], ids=["right", "wrong"])
def test_clipping_takes_as_much_from_all_equal_rows_of_a_person(off, factor, doubts):
    """At least 95 % of the 95 % intervals contain the exact sum or mean if all rows of a person are equal.

    The fraction may be lower by three standard errors. A person has ten rows, of which many are clipped. The mean is
    off the center by `off` declared standard deviations, and the true standard deviation is `factor` times the declared
    one. `doubts` are the arguments of the mechanism that say how wrong its guesses may be.
    """
    made = GaussianDataMechanism([1.0], 5000, 5.0, 1e-6, per_person=10, clip_probability=0.1, **doubts)
    rng, inside, person = np.random.default_rng(8), [], np.repeat(np.arange(500), 10)
    for _ in range(200):
        X = np.repeat(off + factor * rng.normal(size=(500, 1)), 10, axis=0)
        release = made.release(X, person=person, rng=rng)
        for of, truth in (("sum", X.sum()), ("mean", X.mean())):
            low, high = release.interval(0.95, of=of)
            inside.append(low[0] <= truth <= high[0])
    assert np.mean(inside) >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / 200)  # sum and mean of a release go together


def test_equal_rows_of_a_person_are_no_excess_of_clipped_rows():
    """If all ten rows of a person are equal, `excess_clipped`, the standardized number of clipped rows, has variance 1.

    The guesses of center and sigma are right. The tolerance for 300 releases is four standard errors, 4 sqrt(2 / 300).
    """
    options = {"per_person": 10, "clip_probability": 0.1, "count_clipped": True, **KNOWN}
    made = GaussianDataMechanism([1.0], 5000, 5.0, 1e-6, **options)
    rng, person = np.random.default_rng(8), np.repeat(np.arange(500), 10)
    excess = []
    for _ in range(300):
        X = np.repeat(rng.normal(size=(500, 1)), 10, axis=0)
        excess.append(made.excess_clipped(made.release(X, person=person, rng=rng)))
    assert abs(np.var(excess) - 1) <= 4 * np.sqrt(2 / 300)


def test_intervals_of_small_groups_do_not_rely_on_a_low_noisy_number_of_rows():
    """At least 95 % of the 95 % intervals contain the sum of a group of 20 rows, half of which are clipped.

    The fraction may be lower by three standard errors.
    """
    options = {"neighbors": "add_remove", "clip_probability": 0.5, **KNOWN}
    made = GroupedDataMechanism(GaussianDataMechanism([1.0], 1000, 4.0, 1e-6, **options), range(200))
    rng, inside, by = np.random.default_rng(8), [], np.repeat(np.arange(200), 20)
    for _ in range(15):
        X = rng.normal(size=(200, 20, 1))
        release = made.release(X.reshape(-1, 1), by=by, rng=rng)
        for key in range(200):
            low, high = release[key].interval(0.95)
            inside.append(low[0] <= X[key].sum() <= high[0])
    assert np.mean(inside) >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / len(inside))


@pytest.mark.parametrize("groups", [False, True])
@pytest.mark.parametrize("basis", [None, BASIS], ids=["columns", "basis"])
def test_a_mean_is_as_certain_far_from_zero(groups, basis):
    """The noise of a mean, and the length of its confidence interval, do not depend on the center.

    They are equal for the center 0 and for 1.7e9, a time in seconds, with which the noise of the number of rows is
    almost all of the noise of the sum. `groups` says whether the rows are a group, and `basis` is the basis of the
    mechanism.
    """
    found = []
    for center in (0.0, 1.7e9):
        made = mechanism(1000, center=center, neighbors="add_remove", of="mean", basis=basis)
        rng = np.random.default_rng(8)
        X = center + rng.normal(size=(1000, 3)) * SIGMA
        if groups:
            release = GroupedDataMechanism(made, [1, 2]).release(X, by=np.ones(1000), rng=rng)[1]
        else:
            release = made.release(X, rng=rng)
        low, high = release.interval(of="mean")
        found.append([release.centered_std, release.mean_std, (high - low)])
    np.testing.assert_allclose(*found, rtol=1e-5)


def test_the_noise_of_the_number_of_rows_is_also_in_what_clipping_takes_from_all():
    options = {"neighbors": "add_remove", "center": 0.0, "center_std": 2 * SIGMA, "clip_probability": 0.9}
    _, share, _, number = next(covered(mechanism(100, **options), 40, 0.9, off=2.0, factor=1.25))
    assert share >= 0.9 - 3 * np.sqrt(0.09 / number)


@pytest.mark.parametrize("factor", [1.25, 1.0, 0.8])
def test_guesses_as_wrong_as_declared_in_either_direction(factor):
    """Intervals hold, and `excess_clipped` is at most 4, if center and sigma are as wrong as declared.

    The mean is off by 2.57 declared standard deviations, and the ellipsoid to which rows are clipped ends before that.
    So smaller standard deviations (`factor` times the declared ones) make clipping remove more from some columns.
    """
    sigma, n = np.array([26.5, 0.56, 1.78]), 20_000
    options = {"center": np.zeros(3), "center_std": 2.57 * sigma, "clip_probability": 0.236, "count_clipped": True}
    made, rng = GaussianDataMechanism(sigma, n, 1.0, 1e-7, **options), np.random.default_rng(5)
    shares = []
    for _ in range(40):
        X = (2.57 + factor * rng.normal(size=(n, 3))) * sigma
        release = made.release(X, rng=rng)
        low, high = release.interval(0.9)
        shares.append((low <= X.sum(axis=0)) & (X.sum(axis=0) <= high))
        assert made.excess_clipped(release) <= 4
    assert np.all(np.mean(shares, axis=0) >= 0.9 - 3 * np.sqrt(0.09 / 40))


def test_no_interval_is_much_longer_than_necessary():
    """If no row is clipped, a 95 % interval is at most 25 % longer than a normal interval for the noise alone.

    The length of the normal interval is 3.92 standard deviations of the noise, and no interval is shorter than that. If
    the guesses of center and sigma are declared to be exact, an interval is at most 2 % longer than that. For the mean
    of the population, the variance of the mean of the rows is added to the variance of the noise. The standard
    deviation that a release states for a mean is that of the noise alone.
    """
    q = 2 * stats.norm.isf(0.025)
    for options, most in (({}, 1.25), (KNOWN, 1.02)):  # sigma may be too small by the factor 1.25
        made = mechanism(2000, **options)
        release = made.release(np.tile(CENTER, (2000, 1)), rng=np.random.default_rng(1))
        noise = {"sum": made.noise_std, "mean": made.noise_std / 2000}
        np.testing.assert_allclose(release.mean_std, noise["mean"], rtol=1e-15)
        noise["population"] = np.hypot(noise["mean"], SIGMA / np.sqrt(2000))
        for of, std in noise.items():
            low, high = release.interval(0.95, of=of)
            assert np.all((high - low >= q * std * (1 - 1e-12)) & (high - low <= most * q * std))


@pytest.mark.parametrize("factor", [1.0, 1.25, 3.0])
def test_the_interval_of_the_population_allows_for_rows_as_spread_as_declared(factor):
    """With hardly any noise, the interval is that of the mean of normal rows with standard deviations `factor` sigma.

    `factor` is the declared `sigma_factor`.
    """
    options = {"center_std": 0.0, "sigma_factor": factor, "clip_probability": 1e-250}
    made = dataclasses.replace(mechanism(400, **options), epsilon=1e5)
    release = made.release(np.tile(CENTER, (400, 1)), rng=np.random.default_rng(1))
    low, high = release.interval(0.95, of="population")
    std = np.hypot(made.noise_std / 400, factor * SIGMA / 20)
    assert np.all(made.noise_std / 400 < 0.05 * std)
    assert (high - low) / 2 == pytest.approx(stats.norm.isf(0.025) * std, rel=1e-6)


def test_an_interval_allows_for_all_that_clipping_takes_along_a_basis_in_one_column():
    """If clipping takes as much along both vectors of a diagonal basis, one column loses sqrt(2) times as much.

    The loss is far larger than its standard deviation and that of the noise. So the interval contains the sum, and is
    hardly longer than twice the loss.
    """
    s, n = np.sqrt(0.5), 100_000
    basis = np.array([[s, s], [s, -s]])
    options = {"basis": basis, "clip_probability": 0.3, "center_std": 0.5, "sigma_factor": 1.0}
    made, rng = GaussianDataMechanism([1.0, 1.0], n, 3.0, 1e-6, **options), np.random.default_rng(3)
    X = (0.5 + rng.normal(size=(n, 2))) @ basis  # off by 0.5 along each vector
    release = made.release(X, rng=rng)
    low, high = release.interval(0.999)
    loss = np.abs(release.estimate - X.sum(axis=0))
    assert loss[0] > 20 * loss[1]
    assert np.all((low <= X.sum(axis=0)) & (X.sum(axis=0) <= high))
    assert np.all(high - low <= 2.2 * loss[0])


@pytest.mark.parametrize("options", [{}, {"neighbors": "add_remove"}, {"noise": "l2"}, {"basis": BASIS}], ids=str)
@pytest.mark.parametrize("of", OF)
def test_laws(of, options):
    """An interval contains the estimate, and does not become shorter if the confidence grows.

    A simultaneous interval for all columns contains the interval for one column. If the columns get another unit
    and order, the intervals are converted and reordered accordingly. `of` is the number that the interval is for,
    such as "mean", and `options` are those of the mechanism.
    """
    made, X = mechanism(**options), np.random.default_rng(2).normal(CENTER, SIGMA, (200, 3))
    release = made.release(X, rng=np.random.default_rng(1))
    value = release.sum if of == "sum" else release.mean
    inner = value, value
    for confidence in (1e-17, 0.1, 0.5, 0.9, 0.999, 1 - 1e-12):
        low, high = release.interval(confidence, of=of)
        assert np.all((low <= inner[0] + 1e-9) & (inner[1] <= high + 1e-9))
        wide = release.interval(confidence, of=of, simultaneous=True)
        assert np.all((wide[0] <= low) & (high <= wide[1]))
        inner = low, high
    if made.basis is None:
        other = dataclasses.replace(made, sigma=8 * SIGMA[::-1], center=8 * CENTER[::-1])
        changed = dataclasses.replace(release, estimate=8 * release.estimate[::-1], mechanism=other)
        stds = {name: 8 * getattr(release, name)[::-1] for name in ("noise_std", "centered_std")}
        changed = dataclasses.replace(changed, **stds)
        for end, expected in zip(changed.interval(0.9, of=of), release.interval(0.9, of=of), strict=True):
            np.testing.assert_allclose(end, 8 * expected[::-1], rtol=1e-7)


def test_the_interval_of_a_mean_is_unbounded_if_there_may_be_no_rows():
    """A mean's 95 % interval is infinite if the noisy number of rows is at most 1.9 standard deviations of its noise.

    Then there may be no rows, and so no mean. For 2.1 standard deviations, the interval is finite.
    """
    made = mechanism(5, neighbors="add_remove", clip_probability=0.1)
    release = made.release(np.tile(CENTER, (5, 1)), rng=np.random.default_rng(1))
    for count in (-3.0, 0.0, 1.9 * release.count_std):
        low, high = dataclasses.replace(release, count=count).interval(0.95, of="mean")
        assert np.all((low == -np.inf) & (high == np.inf))
    low, high = dataclasses.replace(release, count=2.1 * release.count_std).interval(0.95, of="mean")
    assert np.isfinite([low, high]).all()


@pytest.mark.parametrize("count", [-7.0, 0.0, 0.5, 0.999])
def test_the_mean_of_less_than_one_row_is_no_number(count):
    """If the noisy number of rows, `count`, is below 1, the means and their standard deviations are NaN.

    For one row, the mean is the sum.
    """
    made = mechanism(20, neighbors="add_remove")
    release = made.release(np.tile(CENTER, (20, 1)), rng=np.random.default_rng(1))
    less, one = (dataclasses.replace(release, count=number) for number in (count, 1.0))
    assert np.isnan([less.mean, less.mean_std]).all()
    np.testing.assert_array_equal(one.mean, release.estimate)


@pytest.mark.parametrize("options", [KNOWN, {"clip_probability": 0.1}], ids=["without a bias", "with a bias"])
def test_the_ends_solve_the_equation_of_fieller(options):
    """Each end t of a mean's interval solves Fieller's equation for the ratio of a noisy sum to a noisy count of rows.

    The equation is |sum - t * count| = h, where h is half of the length of an interval around this difference. Without
    a bias, h is the normal quantile times the standard deviation of the noise in the difference. With a bias by
    clipping, `half_lengths` computes h. `options` are those of the mechanism.
    """
    made = mechanism(40, neighbors="add_remove", **options)
    release = made.release(np.random.default_rng(2).normal(CENTER, SIGMA, (40, 3)), rng=np.random.default_rng(1))
    release = dataclasses.replace(release, count=40.0)
    parts = release._parts()
    assert np.all(parts.bias == 0) == (options == KNOWN)
    for end in release.interval(0.9, of="mean"):
        t = end - CENTER
        distance = np.abs(release.estimate - 40 * CENTER - 40 * t)
        spread = np.sqrt(parts.std**2 + (t * release.count_std) ** 2)
        np.testing.assert_allclose(distance, half_lengths(spread, parts.bias, 0.0, 0.05), rtol=1e-9)
        if options == KNOWN:
            np.testing.assert_allclose(distance / spread, stats.norm.isf(0.05), rtol=1e-9)


@pytest.mark.parametrize(("count", "options"), [(10.0, {"clip_probability": 0.3}), (1e6, KNOWN), (1e9, KNOWN)])
def test_the_ends_solve_the_equation_for_few_and_for_many_rows(count, options):
    """Both ends of a mean's interval solve Fieller's equation if the noisy number of rows, `count`, is small or large.

    An end t solves it if |sum - t * `count`| is half of the length of an interval around sum - t * `count`. For `count`
    = 10, the confidence is so high that the interval is nearly unbounded. For 1e6 and 1e9, hardly a row is clipped.
    `options` are those of the mechanism.
    """
    made = mechanism(40, neighbors="add_remove", **{"clip_probability": 1e-12, **options})
    release = made.release(np.tile(CENTER, (40, 1)), rng=np.random.default_rng(1))
    tail = stats.norm.sf(count / 1.02 / release.count_std) if count < 40 else 0.025
    release = dataclasses.replace(release, count=count, estimate=count * (CENTER + 0.3 * SIGMA))
    parts = release._parts()
    for end in release.interval(1 - 2 * tail, of="mean"):
        t = end - CENTER
        spread = np.sqrt(parts.std**2 + (t * release.count_std) ** 2)
        distance = np.abs(count * 0.3 * SIGMA - count * t)
        np.testing.assert_allclose(distance, half_lengths(spread, parts.bias, 0.0, tail), rtol=1e-6)


@pytest.mark.parametrize("confidence", [0.95, *slow(0.5, 0.8, 0.999)])
@pytest.mark.parametrize("bias_std", [0.0, 0.2, 0.5, 1.0, 2.0, 5.0])
def test_a_noisy_bias_of_unknown_sign(bias_std, confidence):
    """Intervals for an estimate whose bias has an unknown sign contain the truth with at least the given `confidence`.

    The error of the estimate is normal with the variance 1 and the mean B or -B. `half_lengths` computes half of an
    interval's length from a guess: B plus normal noise of the standard deviation `bias_std`. In a second run,
    negative guesses are replaced by zero. Quadrature over the guesses gives the probability that an interval
    contains the truth. It equals `confidence` if B is 20 or more, or if `bias_std` is 0 and `confidence` is above
    0.5.
    """
    noise = np.linspace(-9, 9, 3001)
    weights = stats.norm.pdf(noise) / np.sum(stats.norm.pdf(noise))
    for B in (*np.linspace(0, 5, 41) * max(1.0, bias_std), 20 + 20 * bias_std):
        for guess in (B + bias_std * noise, np.maximum(B + bias_std * noise, 0.0)):
            half = half_lengths(np.ones(noise.size), guess, bias_std, (1 - confidence) / 2)
            covered = float(np.sum(weights * (stats.norm.cdf(half - B) - stats.norm.cdf(-half - B))))
            assert covered >= confidence - 1e-9
            if (not bias_std and confidence > 0.5) or B >= 20:
                assert covered == pytest.approx(confidence, abs=1e-9)


# --- l2 noise ---------------------------------------------------------------------------------------------------------

TAILS = [0.49999, 0.4, 0.1, 0.025, 1e-6, 1e-12]


def test_one_coordinate_of_l2_noise():
    """`coordinate_quantile`, a quantile of one coordinate of l2 noise, is that of Laplace noise in one dimension.

    The density of l2 noise falls exponentially with its norm; here the standard deviation of a coordinate is 1. In
    a million dimensions the quantile is nearly that of the normal distribution. The quantile for the tail 1/2 is 0.
    """
    laplace = [np.log(1 / (2 * tail)) / np.sqrt(2) for tail in TAILS]
    assert [coordinate_quantile(tail, 1) for tail in TAILS] == pytest.approx(laplace, rel=1e-8, abs=1e-9)
    assert coordinate_quantile(0.5, 3) == 0
    assert coordinate_quantile(0.01, 10**6) == pytest.approx(stats.norm.isf(0.01), rel=1e-5)
    with np.errstate(all="raise"):  # the caller may have switched these errors on
        assert coordinate_quantile.__wrapped__(0.025, 3) == coordinate_quantile(0.025, 3)


@pytest.mark.parametrize("d", [1, 2, 5])
def test_quantiles_of_l2_noise_by_simulation(d):
    rng, size = np.random.default_rng(3), 400_000
    direction = rng.normal(size=(size, d))
    noise = rng.gamma(d, size=size) * direction[:, 0] / np.linalg.norm(direction, axis=1) / np.sqrt(d + 1)
    for tail in (0.3, 0.1, 0.025, 0.001):
        assert abs(np.mean(noise > coordinate_quantile(tail, d)) - tail) < 4 * np.sqrt(tail / size)


# --- Tables -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", [None, "pyarrow", "pandas", "polars"])
def test_a_frame_has_the_numbers_of_the_release(backend):
    pytest.importorskip(backend or "pyarrow")
    made = mechanism(columns=["x", "y", "z"], neighbors="add_remove")
    X = np.random.default_rng(2).normal(CENTER, SIGMA, (200, 3))
    release = made.release(X, rng=np.random.default_rng(1))
    frame = release.to_frame(0.8, backend)
    low, high = release.interval(0.8, of="mean")
    expected = {"column": made.columns, "sum": release.estimate, "mean_std": release.mean_std, "low": low}
    for name, column in expected.items():
        assert list(np.asarray(frame[name])) == list(column)
    assert np.all((low <= release.mean) & (release.mean <= high))
    by = ["u"] * 150 + ["v"] * 50
    grouped = GroupedDataMechanism(made, ["u", "v"]).release(X, by=by, rng=np.random.default_rng(1))
    frame = grouped.to_frame(0.8, backend)
    assert list(np.asarray(frame["group"])) == ["u"] * 3 + ["v"] * 3
    assert list(np.asarray(frame["mean"])) == [*grouped["u"].mean, *grouped["v"].mean]


@pytest.mark.parametrize("backend", ["pyarrow", "pandas", "polars"])
@pytest.mark.parametrize("columns", [[("a", 1), ("b", 2)], [1, "a"], [date(2020, 1, 1), "b"], *INTEGERS], ids=str)
def test_a_frame_takes_names_of_any_kind(backend, columns):
    """A data frame has the names of the columns as they are, or as texts if its library has no type for them all.

    The keys of groups, which are integers of 64 bits or other labels of one type, always stay as they are.
    """
    pytest.importorskip(backend)
    made = mechanism(d=2, columns=columns, neighbors="add_remove")

    def shown(release, name):
        labels = release.to_frame(backend=backend)[name]
        return labels.to_pylist() if backend == "pyarrow" else list(labels)

    release = made.release(np.zeros((200, 2)), rng=np.random.default_rng(1))
    of_64_bits = columns in INTEGERS[:3]
    assert shown(release, "column") == (columns if backend == "pandas" or of_64_bits else list(map(str, columns)))
    if of_64_bits:
        grouped = GroupedDataMechanism(made, columns).release(
            np.zeros((200, 2)), by=columns * 100, rng=np.random.default_rng(1)
        )
        assert shown(grouped, "group") == [columns[0]] * 2 + [columns[1]] * 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        *(({"confidence": bad}, "^confidence must") for bad in (0, 1, -1, 1.5, np.nan, "0.9", None, [0.5], True)),
        *(({"of": bad}, '^of must be "sum", "mean" or "population"') for bad in ("median", None, "", 1)),
    ],
    ids=str,
)
def test_wrong_arguments_of_intervals(arguments, message):
    release = mechanism().release(np.zeros((200, 3)), rng=np.random.default_rng(1))
    with pytest.raises((ValueError, TypeError), match=message):
        release.interval(**arguments)
    if "confidence" in arguments:
        with pytest.raises((ValueError, TypeError), match=message):
            release.to_frame(**arguments)


def test_an_unknown_library():
    release = mechanism().release(np.zeros((200, 3)), rng=np.random.default_rng(1))
    with pytest.raises(ValueError, match=r"^backend must be .* got 'excel'"):
        release.to_frame(backend="excel")
