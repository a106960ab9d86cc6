"""Test `egm.study.tables`, the tables for the experiments in Poulsen's report, also against values with 18 digits."""

import mpmath
import numpy as np
import pytest

from egm import GaussianDataMechanism, gx2
from egm.study import tables
from tests.egm.stored import IMPROVEMENT


@pytest.mark.parametrize("case", IMPROVEMENT, ids=lambda case: f"{case['d']}-{case['alpha']}-{case['n']}")
def test_improvement_is_exact(case):
    ratio = tables.improvement(case["d"], case["n"], float(case["alpha"]))
    assert ratio == pytest.approx(float(case["ratio"]), rel=1e-11)


@pytest.mark.parametrize(
    ("d", "n", "alpha", "published"), [(100, 10**6, 1, 16.6144), (100, 100, 1, 12.4376), (1000, 10**6, 2, 593.2257)]
)
def test_improvement_has_the_known_values(d, n, alpha, published):
    assert tables.improvement(d, n, alpha) == pytest.approx(published, abs=5e-5)


@pytest.mark.parametrize("d", [2, 10, 300])
@pytest.mark.parametrize("n", [10, 10**6, 10**12])
def test_improvement_lies_between_1_and_d(d, n):
    ratios = [tables.improvement(d, n, alpha) for alpha in (0.01, 0.3, 1, 3, 30)]
    assert min(ratios) > 1
    assert max(ratios) < d * (1 + 1e-12)
    assert np.all(np.diff(ratios) > 0)


def test_equal_spread_leaves_nothing_to_improve():
    for scaling in ("expected_norm", "optimal"):
        assert tables.improvement(50, 1000, 0, scaling=scaling) == pytest.approx(1, rel=1e-12)


def test_optimal_scaling_improves_more():
    ratio = tables.improvement(100, 10**6, 1, "optimal") / tables.improvement(100, 10**6, 1)
    assert ratio == pytest.approx(1.487, abs=5e-4)


def test_zipf_sigma():
    sigma = tables.zipf_sigma(4, 2, total=5.0)
    np.testing.assert_allclose(sigma / sigma[0], [1, 1 / 4, 1 / 9, 1 / 16], rtol=1e-15)
    assert np.sum(sigma) == pytest.approx(5, rel=1e-15)
    np.testing.assert_array_equal(tables.zipf_sigma(3, 0), np.full(3, 1 / 3))


def test_sweep_is_tidy():
    table = tables.sweep(lambda d, alpha: d * alpha, d=[1, 2], alpha=[0.5, 1.5, 2.5])
    assert table.dtype.names == ("d", "alpha", "value")
    np.testing.assert_array_equal(table["d"], [1, 1, 1, 2, 2, 2])
    np.testing.assert_array_equal(table["value"], table["d"] * table["alpha"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 10, 1.0), "d must be a whole number >= 1, got 0.0"),
        ((2.5, 10, 1.0), "d must be a whole number >= 1, got 2.5"),
        ((2, 0, 1.0), "n must be a whole number >= 1, got 0.0"),
        ((2, 1, 1.0), "clip_probability = 1/n must lie strictly between 0 and 1, got 1.0"),
        ((2, 10, -1.0), "alpha must be finite and >= 0, got -1.0"),
        ((2, 10, np.nan), "alpha must not be NaN"),
        ((10, 10, 400), "must be > 0 in double precision, got alpha = 400.0 and total = 1.0 for d = 10"),
        ((2, 10, 1.0, "best"), 'scaling must be "expected_norm" or "optimal", got \'best\''),
    ],
)
def test_bad_values_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        tables.improvement(*arguments)


def test_sweep_takes_iterators_and_no_argument_value():
    table = tables.sweep(lambda d, n: d * n, d=iter([1, 2]), n=iter([3, 4]))
    assert table.tolist() == [(1, 3, 3.0), (1, 4, 4.0), (2, 3, 6.0), (2, 4, 8.0)]
    with pytest.raises(ValueError, match=r"must not have the name of the column value, got value = \[1\]"):
        tables.sweep(lambda value: value, value=[1])


def test_zipf_sigma_that_underflows_is_refused():
    with pytest.raises(ValueError, match=r"got alpha = 1\.0 and total = 5e-324 for d = 2"):
        tables.zipf_sigma(2, 1, 5e-324)


@pytest.mark.parametrize("d", [1, 10, 100])
@pytest.mark.parametrize("p", [0.3, 1e-2, 1e-12, 1e-100])
@pytest.mark.parametrize("unit", [1, 1e-150, 1e150])
def test_saddlepoint_formula_is_near(d, p, unit):
    """`lugannani_rice`, a formula for upper tails of weighted chi-square sums, has a relative error below 17 %.

    The `d` weights are `unit`, `unit` / 2, ..., `unit` / d, for a `unit` of any size, and the exact upper tail is `p`.
    """
    weights = unit / np.arange(1, d + 1)
    assert tables.lugannani_rice(gx2.isf(p, weights), weights) == pytest.approx(p, rel=0.17)


def test_saddlepoint_formula_is_nearly_exact_for_many_equal_weights():
    """For 10 000 equal weights, `lugannani_rice` has a relative error of at most 1e-4 if the exact upper tail is 1e-6.

    The function approximates the upper tail of a weighted sum of squared standard normal variables.
    """
    weights = np.ones(10_000)
    assert tables.lugannani_rice(gx2.isf(1e-6, weights), weights) == pytest.approx(1e-6, rel=1e-4)


@pytest.mark.parametrize("above", [2.3e-16, 1e-9, 1e-6, 1e-3, 0.03, 0.04, 0.5])
def test_saddlepoint_formula_is_accurate_near_the_mean(above):
    """`lugannani_rice` agrees with its formula, computed with 80 digits, to a relative 1e-11 near the mean.

    The formula approximates the upper tail of a weighted chi-square sum; two of its terms cancel near the mean of the
    sum. `above` is the distance of the point from the mean, divided by the mean.
    """
    weights = [1.0, 0.5, 0.25]
    x = sum(weights) * (1 + above)
    with mpmath.workdps(80):
        w = [mpmath.mpf(each) for each in weights]
        s = mpmath.findroot(lambda s: sum(a / (1 - 2 * a * s) for a in w) - x, above / 4)
        r = mpmath.sqrt(2 * s * x + sum(mpmath.log(1 - 2 * a * s) for a in w))
        u = s * mpmath.sqrt(sum(2 * a**2 / (1 - 2 * a * s) ** 2 for a in w))
        expected = mpmath.ncdf(-r) + mpmath.npdf(r) * (1 / u - 1 / r)
    assert tables.lugannani_rice(x, weights) == pytest.approx(float(expected), rel=1e-11)


@pytest.mark.parametrize("d", [1, 100])
@pytest.mark.filterwarnings("error")
def test_saddlepoint_formula_far_out_is_zero_without_a_warning(d):
    """`lugannani_rice` returns 0, without a warning, where the tail is below all positive doubles."""
    assert [tables.lugannani_rice(10.0**k, np.ones(d)) for k in range(4, 301)] == [0.0] * 297


def test_saddlepoint_formula_needs_the_upper_tail():
    with pytest.raises(ValueError, match=r"x must be above the mean 3.0, got 2.0"):
        tables.lugannani_rice(2, [1, 2])


def test_rivals_has_a_row_for_each_cell_and_method():
    table = tables.rivals()
    assert table.dtype.names[:7] == ("grid", "d", "alpha", "n", "rho", "method", "knows")
    assert set(table["grid"]) <= {"A", "B", "C"}
    keys = table[["grid", "d", "alpha", "rho", "method"]]
    assert len(set(keys.tolist())) == len(table) > 0
    ours = table[table["method"] == "ours"]
    assert np.all(ours["failures"] == 0)
    assert np.all(ours["seeds"] >= 20)
    for error in ("sample", "population"):
        assert np.all(ours[error] > 0)
        assert np.all(ours[f"{error}_se"] < ours[error])


def made_up(rows):
    """Return a table with the columns of `tables.rivals()`, whose rows are made from the list of tuples `rows`.

    A tuple has the number of columns d, the name of the method, what the method is told besides the range of the mean,
    its squared error, the standard error of this error, and the number of runs without an estimate.
    """
    rows = [("A", d, 0, 9, 1, name, knows, e, s, 2 * e, s, fails, 20) for d, name, knows, e, s, fails in rows]
    return np.array(rows, tables.rivals().dtype)


def test_duels_are_with_the_best_that_knows_no_more_and_never_fails():
    """`tables.duels` divides the error of the method "ours" by that of the best rival, at each point of a grid.

    The points here are numbers of columns d. A rival is left out if one of its runs failed, or if it is told all
    standard deviations sigma. Options choose what a rival may be told, which of two errors is compared, and a method in
    place of "ours".
    """
    rows = [(2, "ours", "", 3.0, 0.3, 0), (2, "a", "", 5.0, 0.1, 0), (2, "b", "largest sigma", 4.0, 0.4, 0)]
    rows += [(2, "c", "sigma", 1.0, 0.1, 0), (2, "d", "", 1.0, 0.1, 1), (3, "ours", "", 1.0, 0.1, 0)]
    rows += [(4, "ours", "", 2.0, 0.0, 0), (4, "a", "", 1.0, 0.0, 0), (5, "a", "", 1.0, 0.1, 0)]
    duels = tables.duels(made_up(rows))
    assert duels["d"].tolist() == [2, 4]
    assert duels["rival"].tolist() == ["b", "a"]
    assert duels["ratio"] == pytest.approx([0.75, 2.0])
    assert duels["ratio_se"] == pytest.approx([0.75 * np.hypot(0.1, 0.1), 0.0])
    assert duels[["ours", "ours_se", "theirs", "theirs_se"]][0].tolist() == (3.0, 0.3, 4.0, 0.4)
    assert tables.duels(made_up(rows), told=("",))["rival"].tolist() == ["a", "a"]
    assert tables.duels(made_up(rows), error="population")["theirs"].tolist() == [8.0, 2.0]
    assert tables.duels(made_up(rows), method="b")["rival"].tolist() == ["ours"]


def test_ratio_has_its_standard_error():
    """The standard error that `tables.duels` states for a ratio of two errors agrees within 10 % with a simulation.

    The simulation gives the standard deviation of 2000 ratios of independent normal errors.
    """
    rng, means = np.random.default_rng(1), (("ours", 2), ("a", 4))
    rows = [(i, name, "", *rng.normal([mean, 0], [0.1, 0]), 0) for i in range(2, 2002) for name, mean in means]
    table = made_up(rows)
    table["sample_se"] = 0.1
    duels = tables.duels(table)
    assert np.std(duels["ratio"]) == pytest.approx(np.mean(duels["ratio_se"]), rel=0.1)


def test_profiles_hold_the_error_of_each_scaling():
    """For each scaling, the noise variances in the table `tables.profiles` add up to the forecast of the mechanism.

    A scaling multiplies each coordinate by a factor before rows are clipped. The forecast is the expected squared norm
    of the noise. The sum without a scaling, divided by the sum with one, is the result of `tables.improvement`.
    """
    table, sums = tables.profiles(30, 1000, 1.5, 0.5, 1e-7), {}
    for scaling in ("none", "expected_norm", "optimal"):
        rows = table[table["scaling"] == scaling]
        mechanism = GaussianDataMechanism(tables.zipf_sigma(30, 1.5), 1000, 0.5, 1e-7, scaling=scaling)
        sums[scaling] = np.sum(rows["noise_std"] ** 2)
        assert rows["j"].tolist() == list(range(1, 31))
        assert sums[scaling] == pytest.approx(mechanism.error().noise, rel=1e-12)
        np.testing.assert_array_equal(rows["b"], mechanism.b)
    for scaling in ("expected_norm", "optimal"):
        gain = tables.improvement(30, 1000, 1.5, scaling)
        assert sums["none"] / sums[scaling] == pytest.approx(gain, rel=1e-11)
