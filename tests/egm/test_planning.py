"""Test that `egm.planning.solve` finds the least epsilon, rho or number of rows whose forecast error meets a target.

The function `curve` computes the forecast error. It has several measures of the error; the measure "interval" is half
of the width of a confidence interval for a mean.
"""

import contextlib
import math
import re
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from egm import (
    AdaptiveDataMechanism,
    EllipticalGaussianMechanism,
    GaussianDataMechanism,
    GaussianMechanism,
    LaplaceMechanism,
)
from egm.mechanisms import DeltaWarning
from egm.planning import curve, solve
from tests.conftest import slow

SIGMA, CENTER = {"age": 18.0, "income": 1200.0, "visits": 3.0}, {"age": 45.0, "income": 2500.0, "visits": 5.0}
DATA = GaussianDataMechanism(SIGMA, 20_000, 1.0, 1e-6, center=CENTER)
ADAPTIVE = AdaptiveDataMechanism(20_000, 0.024, radius=1e4, sigma_range=(0.1, 1e4))
ROWS = {"sigma": list(SIGMA.values()), "center": list(CENTER.values())}
ELLIPTICAL = EllipticalGaussianMechanism({"age": 100, "income": 10_000}, 1, 1e-6)
BEST, PRIVATE = replace(DATA, noise="best"), replace(DATA, neighbors="add_remove")
RANGED = AdaptiveDataMechanism(20_000, 0.024, ranges={"age": (0, 120), "income": (1000, 3000)})
OPTIMAL = replace(DATA, clip_probability="optimal")
ROTATED = GaussianDataMechanism([3.0, 2.0, 1.0], 5000, 1.0, 1e-6, center=7.0, basis="dct")
CASES = [  # mechanism, field, value at which the target is the error, other arguments
    (DATA, "epsilon", 0.3, {}),
    (DATA, "epsilon", 7.0, {"measure": "interval", "column": "income", "confidence": 0.8}),
    (DATA, "n", 12_345, {"column": "age"}),
    (replace(DATA, clip_probability=0.01), "n", 300, {"measure": "relative", "column": "income"}),
    (replace(DATA, noise="l2"), "epsilon", 1.0, {}),
    (PRIVATE, "epsilon", 0.7, {"column": "income"}),
    (ROTATED, "epsilon", 0.7, {"measure": "interval", "column": 2}),
    (LaplaceMechanism(2, 1), "epsilon", 0.1, {"measure": "sum"}),
    (GaussianMechanism(2, 1, 1e-6), "epsilon", 0.1, {"measure": "sum"}),
    (GaussianMechanism(2, 1, 1e-6, noise="best", d=5), "epsilon", 3.0, {"measure": "sum"}),
    (ELLIPTICAL, "epsilon", 3.0, {"measure": "sum", "column": "income"}),
    (ADAPTIVE, "rho", 0.05, {"column": 0, **ROWS}),
]
SLOW = slow(
    (DATA, "epsilon", 0.3, {"measure": "sum", "column": "visits"}),
    (DATA, "epsilon", 2.0, {"measure": "relative", "column": "age"}),
    (DATA, "n", 77, {"measure": "interval", "column": "visits"}),
    (BEST, "epsilon", 0.02, {"column": "age"}),
    (ROTATED, "n", 400, {"column": 0}),
    (ELLIPTICAL, "epsilon", 3.0, {"measure": "sum"}),
    (OPTIMAL, "epsilon", 2.0, {"measure": "interval", "column": "income"}),
    (replace(OPTIMAL, scaling="optimal"), "epsilon", 1.0, {}),
    (ADAPTIVE, "rho", 0.002, {"measure": "interval", "column": 1, **ROWS}),
    (ADAPTIVE, "n", 9000, {"measure": "relative", "column": 2, **ROWS}),
)


@pytest.mark.parametrize(("mechanism", "field", "value", "question"), [*CASES, *SLOW])
def test_what_is_found_is_enough_and_a_little_less_is_not(mechanism, field, value, question):
    """`solve` returns the least value of `field` ("epsilon", "rho" or "n") for which the forecast error meets a target.

    A value that is smaller by a relative 1e-6, or by one row, does not meet it. The target is nearly the error of
    `mechanism` at `value`. `question` has further arguments of `solve`, such as the column.
    """
    target = 0.9995 * curve(mechanism, value, field, **question)
    found = solve(mechanism, target, field, **question)
    at = getattr(found, field)
    less = at - 1 if field == "n" else at * (1 - 1e-6)
    assert curve(mechanism, at, field, **question) <= target < curve(mechanism, less, field, **question)
    assert at <= 1.02 * value
    assert at >= 0.98 * value or mechanism is ADAPTIVE  # whose forecast can be better for fewer rows
    assert found == replace(mechanism, **{field: at})
    other = replace(mechanism, **{field: 3 * getattr(mechanism, field)})
    assert mechanism is ADAPTIVE or solve(other, target, field, **question) == found


@pytest.mark.slow
@settings(max_examples=10)
@given(st.floats(-3, 3).map(np.exp), st.sampled_from(["sum", "mean", "relative", "interval"]))
def test_solution_is_the_inverse_of_the_curve(epsilon, measure):
    target = float(curve(DATA, epsilon, measure=measure, column="age"))
    assert solve(DATA, target, measure=measure, column="age").epsilon == pytest.approx(epsilon, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 4e-14, 1e-15])
@pytest.mark.parametrize("measure", ["mean", "interval"])
def test_best_noise_needs_the_least_epsilon_of_both_laws(delta, measure):
    """With noise="best" `solve` finds the least epsilon that meets a target, although the error can rise with epsilon.

    With "best", the mechanism takes l2 noise for small epsilon, and Gaussian noise from some epsilon on, at which the
    error rises: about 18 for `delta` = 1e-6, and 0.8 for 4e-14. For 1e-15 the error never rises. For comparison, the
    test solves for each kind of noise alone. The least epsilon is the smaller of these two, but a solution counts only
    if "best" takes its kind of noise there. `measure` is the kind of error.
    """
    best = GaussianDataMechanism([1.0, 2.0, 3.0], 10_000, 1.0, delta, noise="best")
    gaussian, l2 = replace(best, noise="gaussian"), replace(best, noise="l2")
    question = {"measure": measure, "column": 0}
    grid = np.geomspace(1e-2, 100, 60)
    errors = curve(best, grid, **question)
    assert np.sum(np.diff(errors) > 0) == (delta > 1e-15)
    for target in (*(1.001 * errors[::6]), errors.min() * 0.999):
        found = solve(best, target, **question)
        others = [solve(gaussian, target, **question)]
        with contextlib.suppress(ValueError):  # l2 noise alone may not be enough
            others.append(solve(l2, target, **question))
        taken = [it.epsilon for it in others if replace(best, epsilon=it.epsilon * (1 - 1e-8)).noise_law == it.noise]
        assert found.epsilon == pytest.approx(min(taken), rel=1e-6)
        assert curve(best, found.epsilon, **question) <= target
        assert np.all(errors[grid < found.epsilon * (1 - 1e-6)] > target)


@pytest.mark.slow
def test_least_error_with_best_noise_may_be_that_of_l2_noise():
    """With noise="best", `solve` refuses a target below the least error of all epsilon; the message states this error.

    "best" is Gaussian or l2 noise, whichever is smaller, and here l2 noise has the least error. As a target, the stated
    error can be reached.
    """
    few = GaussianDataMechanism([1.0, 2.0, 3.0], 10_000, 1.0, 1e-6, noise="best", clip_probability=0.1)
    with pytest.raises(ValueError, match="least error of all epsilon from 1e-06 to 10000") as refusal:
        solve(few, 1e-9)
    least = float(re.search(r"least ([^,]+),", str(refusal.value))[1])
    assert curve(few, solve(few, least).epsilon) <= least <= 1.002 * np.min(curve(few, np.geomspace(1e-3, 1e4, 100)))


def test_units_do_not_matter():
    """If data and target error are given in another unit, `solve` finds an equal epsilon, up to a relative 1e-8."""
    sigma, center = ({name: 1000 * value for name, value in guess.items()} for guess in (SIGMA, CENTER))
    scaled = GaussianDataMechanism(sigma, 20_000, 1.0, 1e-6, center=center)
    one, other = solve(DATA, 2.0), solve(scaled, 2000.0)
    assert other.epsilon == pytest.approx(one.epsilon, rel=1e-8)


@pytest.mark.parametrize("neighbors", ["replace_one", "add_remove"])
@pytest.mark.parametrize("measure", ["sum", "mean", "interval"])
def test_the_unit_of_a_column_does_not_matter_to_another_one(measure, neighbors):
    """The error of an adaptive mechanism in one column does not depend on the unit of another column.

    Each column has a declared range. The ranges of both columns, and the standard deviations, differ much.
    """

    def error(unit):
        mechanism = AdaptiveDataMechanism(100_000, 1.0, ranges=[(-unit, unit), (9.0, 11.0)], neighbors=neighbors)
        rows = {"sigma": [0.3 * unit, 0.001], "center": [0.1 * unit, 10.0]}
        return float(curve(mechanism, 1.0, of="rho", measure=measure, column=1, **rows))

    assert error(1024.0) == pytest.approx(error(1.0), rel=1e-9)


@pytest.mark.parametrize("unit", [1e-200, 1e200])
def test_squared_errors_need_not_be_doubles(unit):
    """For sensitivities 1e-200 and 1e200, `curve` is proportional to them, and `solve` finds an equal epsilon."""
    for kind, arguments in (
        (lambda unit: LaplaceMechanism(unit, 1), {}),
        (lambda unit: GaussianMechanism(unit, 1, 1e-6, d=3), {}),
        (lambda unit: EllipticalGaussianMechanism([unit, 2 * unit], 1, 1e-6), {"column": 1}),
        (lambda unit: EllipticalGaussianMechanism([unit, 2 * unit], 1, 1e-6), {}),
    ):
        error = float(curve(kind(1.0), 0.5, measure="sum", **arguments))
        assert float(curve(kind(unit), 0.5, measure="sum", **arguments)) / unit == pytest.approx(error, rel=1e-12)
        found = solve(kind(unit), unit * error, measure="sum", **arguments)
        assert found.epsilon == pytest.approx(0.5, rel=1e-5)


# --- The measures -----------------------------------------------------------------------------------------------------


def test_measures_are_those_of_the_forecast():
    errors = np.sqrt(DATA.error_by_column())
    assert curve(DATA, 1.0, measure="sum") == pytest.approx(np.sqrt(DATA.error().total))
    assert curve(DATA, 1.0) == pytest.approx(np.sqrt(DATA.error().total) / DATA.n)
    for j, name in enumerate(SIGMA):
        assert curve(DATA, 1.0, measure="sum", column=name) == pytest.approx(errors[j])
        assert curve(DATA, 1.0, column=name) == pytest.approx(errors[j] / DATA.n)
        share = curve(DATA, 1.0, measure="relative", column=name)
        assert share == pytest.approx(errors[j] / (DATA.n * CENTER[name]))
        negative = replace(DATA, center={**CENTER, name: -CENTER[name]})
        assert curve(negative, 1.0, measure="relative", column=name) == pytest.approx(share)
    wide = replace(DATA, epsilon=0.3, n=500)
    assert curve(wide, [[1.0], [2.0]]).tolist() == [[curve(wide, 1.0)], [curve(wide, 2.0)]]
    assert curve(LaplaceMechanism(2, 1), 0.5, measure="sum") == pytest.approx(np.sqrt(2) * 4)
    several = GaussianMechanism(2, 0.5, 1e-6, d=9)
    assert curve(several, 0.5, measure="sum") == pytest.approx(3 * several.noise_std)
    assert curve(ELLIPTICAL, 1.0, measure="sum") == pytest.approx(np.linalg.norm(ELLIPTICAL.noise_std))


def test_the_mean_is_by_default_that_of_the_forecast():
    """Without `center`, `solve` and `curve` assume the mean that `forecast` assumes: the middle of the ranges.

    `curve` computes the error for given budgets, and `solve` the least budget for a target error. For a mechanism with
    a radius in place of ranges, the assumed mean is 0, so that an error relative to the mean is refused.
    """
    sigma = [18.0, 300.0]
    of_means = curve(RANGED, 0.024, "rho", sigma=sigma)
    assert of_means == pytest.approx(math.sqrt(RANGED.forecast(sigma).error.total) / RANGED.n)
    question = {"measure": "relative", "column": "income", "sigma": sigma}
    assert solve(RANGED, 0.01, "rho", **question) == solve(RANGED, 0.01, "rho", center=[60, 2000], **question)
    with pytest.raises(ValueError, match='center must not be 0 for the measure "relative"'):
        solve(ADAPTIVE, 0.01, "rho", measure="relative", column=0, sigma=sigma)


@pytest.mark.parametrize("basis", [None, "dct"])
def test_interval_without_a_bias_is_normal(basis):
    """If center and sigma are declared to be exact, the half width of a 95 % interval is 1.96 times the mean's error.

    The half width is the measure "interval" of `curve`, here of an interval for the mean of a column. The error of
    the mean is then forecast to be normal, without a bias. `basis` is an option of the mechanism.
    """
    options = {"center_std": 0, "sigma_factor": 1, "clip_probability": 0.2, "basis": basis}
    it = GaussianDataMechanism([3.0, 2.0, 1.0], 900, 1.0, 1e-6, **options)
    for j in range(3):
        half = curve(it, 1.0, measure="interval", column=j, confidence=0.95)
        assert half == pytest.approx(1.959964 * curve(it, 1.0, column=j), rel=1e-6)


@pytest.mark.parametrize("options", [{}, {"noise": "l2"}, {"noise": "best", "clip_probability": 0.2}], ids=str)
@pytest.mark.parametrize("confidence", [0.6, 0.95, 1 - 1e-9])
def test_an_interval_has_the_width_that_was_planned(options, confidence):
    """If the number of rows is public, the intervals of a release have exactly the half width that `curve` forecasts.

    They are intervals for means, with the level `confidence`; `options` choose the noise.
    """
    it = replace(DATA, **options)
    low, high = it.release(np.zeros((DATA.n, 3)), rng=np.random.default_rng(1)).interval(confidence, of="mean")
    for j, column in enumerate(SIGMA):
        planned = curve(it, 1.0, measure="interval", column=column, confidence=confidence)
        assert planned == pytest.approx((high[j] - low[j]) / 2, rel=1e-9)


def test_interval_contains_the_mean_as_often_as_it_says():
    """The error of a mean is at most the forecast half width of the 90 % interval, in at least 90 % of all releases.

    The half width is the measure "interval" of `curve`. It is not far too large: the error is at most half of it in
    less than 90 % of the releases. The mechanism clips many rows, and its center is as wrong as declared.
    """
    sigma, n, rng = np.array([4.0, 1.0]), 400, np.random.default_rng(1)
    options = {"center_std": sigma / 2, "sigma_factor": 1, "clip_probability": 0.05, "scaling": "none"}
    it = GaussianDataMechanism(sigma, n, 3.0, 1e-6, **options)
    half = np.array([float(curve(it, 3.0, measure="interval", column=j, confidence=0.9)) for j in range(2)])
    off = []
    for _ in range(600):
        X = rng.normal(sigma / 2, sigma, size=(n, 2))
        off.append(np.abs(it.release(X, rng=rng).estimate - X.sum(axis=0)) / n)
    assert np.all(np.mean(off <= half, axis=0) > 0.9 - 3 * np.sqrt(0.09 / 600))
    assert np.all(np.mean(off <= half / 2, axis=0) < 0.9)


@pytest.mark.slow
@pytest.mark.parametrize("neighbors", ["replace_one", "add_remove"])
def test_interval_of_an_adaptive_mechanism_is_that_of_its_release(neighbors):
    """The measure "interval" forecasts half of the width of AdaptiveDataMechanism's 95 % intervals within 25 %.

    The forecast is compared with the median of 25 intervals for the means of normal rows, in each of the three columns.
    With "add_remove" as `neighbors` the number of rows is private; its noise hardly changes a mean.
    """
    rng, it = np.random.default_rng(2), replace(ADAPTIVE, neighbors=neighbors)
    halves = []
    for _ in range(25):
        release = it.release(rng.normal(ROWS["center"], ROWS["sigma"], size=(it.n, 3)), rng=rng)
        low, high = release.interval(0.95, of="mean")
        halves.append((high - low) / 2)
    said = [float(curve(it, 0.024, "rho", measure="interval", column=j, **ROWS)) for j in range(3)]
    np.testing.assert_allclose(np.median(halves, axis=0), said, rtol=0.25)


@pytest.mark.slow
@pytest.mark.parametrize(
    "it", [replace(PRIVATE, center_std=5.0, sigma_factor=1), replace(ADAPTIVE, neighbors="add_remove")]
)
def test_error_of_a_mean_is_that_of_releases_with_a_private_number_of_rows(it):
    """If the number of rows is private, the measure "mean" is the root mean square of the errors of released means.

    The tolerance is four standard errors for 80 releases by the mechanism `it`. The true means of the rows differ by 5
    from the center in every column.
    """
    rng, errors = np.random.default_rng(4), []
    field, rows = ("rho", ROWS) if isinstance(it, AdaptiveDataMechanism) else ("epsilon", {})
    for _ in range(80):
        X = rng.normal(ROWS["center"] + rng.choice([-5, 5], 3), ROWS["sigma"], size=(it.n, 3))
        errors.append((it.release(X, rng=rng).mean - X.mean(axis=0)) ** 2)
    said = [
        float(curve(it, getattr(it, field), field, column=it.columns[j] if it.columns else j, **rows)) for j in range(3)
    ]
    far = np.mean(errors, axis=0) - np.square(said)
    assert np.all(np.abs(far) < 4 * np.std(errors, axis=0) / np.sqrt(80))


@pytest.mark.parametrize("measure", ["mean", "interval"])
def test_error_of_a_mean_does_not_depend_on_how_far_from_zero_it_is(measure):
    adaptive = [AdaptiveDataMechanism(2000, 0.02, ranges=[(c, c + 10)], neighbors="add_remove") for c in (0.0, 1.7e9)]
    errors = [
        curve(it, [0.02], "rho", measure=measure, sigma=[0.5], center=float(it.ranges[0][0]) + 4) for it in adaptive
    ]
    np.testing.assert_allclose(*errors, rtol=1e-6)
    options = {"neighbors": "add_remove", "of": "mean"}
    given = [GaussianDataMechanism([1.0], 1000, 1.0, 1e-6, center=c, **options) for c in (0.0, 1.7e9)]
    np.testing.assert_allclose(*[curve(it, [1.0], measure=measure) for it in given], rtol=1e-9)


@pytest.mark.parametrize("of", ["sum", "mean"])
@pytest.mark.parametrize("basis", [None, "dct"])
def test_interval_is_that_of_releases_with_a_private_number_of_rows(of, basis):
    """If the number of rows is private, the measure "interval" is half of the median width of 95 % intervals for means.

    They agree within a percent. The true means of the rows are as far from the center as declared, along the vectors of
    the `basis`. `of` is an option of the mechanism.
    """
    it = GaussianDataMechanism(ROWS["sigma"], 20_000, 1.0, 1e-6, basis=basis, neighbors="add_remove", of=of)
    rng, halves = np.random.default_rng(1), []
    for _ in range(9):
        rows = (rng.normal(size=(it.n, 3)) + rng.choice([-0.5, 0.5], 3)) * it.sigma
        low, high = it.release(rows if basis is None else it.basis.inverse(rows), rng=rng).interval(0.95, of="mean")
        halves.append((high - low) / 2)
    said = [float(curve(it, 1.0, measure="interval", column=j)) for j in range(3)]
    np.testing.assert_allclose(np.median(halves, axis=0), said, rtol=0.01)


# --- The ends of the search -------------------------------------------------------------------------------------------


def test_a_target_that_clipping_alone_exceeds_is_refused():
    """`solve` refuses a target error that, because of clipping, no epsilon or no number n of rows can reach.

    The message names the least possible error, which `solve` accepts as a target for epsilon.
    """
    with pytest.raises(ValueError, match=r"^target must be at least 0\.\d+, the least error of all epsilon") as refusal:
        solve(DATA, 1e-6, column="age")
    least = float(re.search(r"least (0\.\d+),", str(refusal.value))[1])
    assert solve(DATA, least, column="age").epsilon <= 1e4
    with pytest.raises(ValueError, match="target must be at least"):
        solve(DATA, 0.99 * least, column="age")
    rough = replace(DATA, clip_probability=0.1)  # with a bias that does not vanish as n grows
    with pytest.raises(ValueError, match="least error of all n from 2 to"):
        solve(rough, 0.1 * rough.error().center ** 0.5 / rough.n, "n")


def test_the_smallest_value_is_returned_if_it_is_enough():
    assert solve(DATA, 1e12).epsilon == 1e-6
    with pytest.warns(DeltaWarning):
        assert solve(replace(DATA, delta=0.6), 1e12, "n").n == 2
    assert solve(RANGED, 1e12, "rho", sigma=[18.0, 300.0]).rho == 1e-9
    assert solve(ADAPTIVE, 1e12, "rho", **ROWS).rho == ADAPTIVE.least_rho(3)
    few = solve(ADAPTIVE, 1e12, "n", **ROWS)
    few.forecast(**ROWS)
    with pytest.raises(ValueError, match="too small"):
        replace(few, n=few.n - 1).forecast(**ROWS)


@pytest.mark.parametrize("rho", [1e-30, 1e-40, 1e-320])
def test_a_budget_that_no_number_of_rows_makes_enough_is_refused_by_the_mechanism(rho):
    """If even 2**53 rows, or a rho of 1e6, are too little for a mechanism, `solve` raises the mechanism's own error."""
    with pytest.raises(ValueError, match=f"rho = {rho} is too small for n = {2**53} and 3 columns: .* takes rho = "):
        solve(replace(ADAPTIVE, rho=rho), 1.0, "n", **ROWS)
    wide = AdaptiveDataMechanism(2, rho, radius=1e100, sigma_range=(1e-100, 1e100))
    with pytest.raises(ValueError, match=r"rho = 1000000\.0 is too small for n = 2 and 20000 columns: .* takes n = 15"):
        solve(wide, 1.0, "rho", sigma=np.ones(20_000))


def test_only_the_result_is_warned_about():
    """`solve` warns of a delta of 1/n or more, for n rows, only if the mechanism that it returns has such a delta.

    To find the least n for a target error, it may try other n without a warning. `curve`, which computes errors, never
    gives this warning.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        solve(DATA, 10.0, "n", column="age")
        curve(DATA, [10, 10**8], "n", column="age")
        assert not caught
        found = solve(replace(DATA, delta=1e-3, n=900), 1.0, "n", column="age")
    assert found.n > 1000
    assert [each.category for each in caught] == [DeltaWarning]


def test_warnings_of_other_threads_stay_as_they_are(monkeypatch):
    """`solve` does not touch the filters of the module `warnings`, which all threads share."""
    found = solve(DATA, 10.0, "n", column="age")
    with monkeypatch.context() as patch:
        patch.delattr(warnings, "catch_warnings")
        assert solve(DATA, 10.0, "n", column="age") == found


# --- Mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mechanism", "arguments", "said"),
    [
        (DATA, {"target": 0.0}, "target must be finite and > 0, got 0.0"),
        (DATA, {"for_": "rho"}, 'for_ must be "epsilon" or "n" for GaussianDataMechanism, got \'rho\''),
        (ADAPTIVE, ROWS, 'for_ must be "rho" or "n" for AdaptiveDataMechanism, got \'epsilon\''),
        (LaplaceMechanism(1, 1), {"for_": "n"}, 'for_ must be "epsilon" for LaplaceMechanism'),
        (LaplaceMechanism(1, 1), {}, "measure must be \"sum\" for LaplaceMechanism, got 'mean'"),
        (LaplaceMechanism(1, 1), {"measure": "sum", "column": 1}, "column must be a whole number from 0 to 0, got 1"),
        (DATA, {"measure": "median"}, 'measure must be "sum" or "mean" or "relative" or "interval"'),
        (DATA, {"measure": "sum", "for_": "n"}, 'measure must not be "sum" for n'),
        (DATA, {"column": 0}, r"column must be one of \['age', 'income', 'visits'\], got 0"),
        (ROTATED, {"column": "age"}, "column must be a whole number from 0 to 2, got 'age'"),
        (ROTATED, {"column": True}, "column must be a whole number from 0 to 2, got True"),
        (ROTATED, {"column": 3}, "column must be a whole number from 0 to 2, got 3"),
        (DATA, {"measure": "interval"}, 'column must be given for the measure "interval", because there are 3'),
        (DATA, {"measure": "interval", "column": "age", "confidence": 1}, "confidence must lie strictly between"),
        (replace(DATA, center=0), {"measure": "relative", "column": "age"}, "center must not be 0"),
        (DATA, {"sigma": [1.0, 2.0, 3.0]}, "sigma must be given for AdaptiveDataMechanism only"),
        (DATA, {"center": 3.0}, "center must be given for AdaptiveDataMechanism only"),
        (ADAPTIVE, {"for_": "rho"}, "sigma must be given for AdaptiveDataMechanism"),
        (ADAPTIVE, {"for_": "rho", "sigma": [1.0, 0.0]}, r"sigma\[1\] must be finite and > 0"),
        (ADAPTIVE, {"for_": "rho", "sigma": [1.0], "center": 2e4}, r"center\[0\] must lie between -1\S+ and 1"),
        (RANGED, {"for_": "rho", "sigma": [1.0]}, "sigma must have the 2 columns of the mechanism, got 1"),
        (RANGED, {"for_": "rho", "sigma": [1.0, 9.0], "center": 0}, r"center\[1\] must lie between 1000.0 and 3000.0"),
    ],
)
def test_mistakes_are_named(mechanism, arguments, said):
    with pytest.raises(ValueError, match=said):
        solve(mechanism, **{"target": 1.0, **arguments})


def test_only_mechanisms_are_solved_for():
    with pytest.raises(TypeError, match="mechanism must be a mechanism of egm, got an object of type int"):
        solve(3, 1.0)
    with pytest.raises(ValueError, match='of must be "epsilon" or "n"'):
        curve(DATA, [1.0], of="rho")
    with pytest.raises(ValueError, match="n must be a whole number"):
        curve(DATA, [10.5], "n")


# --- Earlier answers --------------------------------------------------------------------------------------------------


def test_earlier_answers_need_more():
    """For one target error, noise="best" needs a smaller epsilon than Gaussian noise, and older formulas a larger one.

    "best" is Gaussian or l2 noise, whichever is smaller. In ascending order of the least epsilon, the methods are:
    noise="best", exact calibration of Gaussian noise, zCDP, and the classic formula. A table in the tutorial shows this
    order.
    """
    from egm import calibration

    needed = solve(DATA, 5.0, column="income")
    z, delta = needed.noise_multiplier, needed.delta
    zcdp = calibration.zcdp_epsilon(1 / (2 * z**2), delta)
    classic = np.sqrt(2 * np.log(1.25 / delta)) / z
    assert calibration.classic_noise_multiplier(classic, delta) == pytest.approx(z)
    assert solve(BEST, 5.0, column="income").epsilon < needed.epsilon < zcdp < classic
    assert replace(needed, noise="best").error().total <= needed.error().total
