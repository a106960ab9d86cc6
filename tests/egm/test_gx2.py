"""Test `egm.gx2`, the distribution of weighted sums of chi-square variables, against known values and identities.

The known values have 30 digits, or come from SciPy, from Davies' algorithm and from publications.
"""

import gc
from itertools import product

import numpy as np
import pytest
from fastlmmclib.quadform import qf
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf
from scipy import stats

from egm import gx2
from egm._gx2 import clipping, contour, form, loops
from tests.egm.stored import BY_FORM, GX2, excess, name_of
from tests.reference.forms import terms

WEIGHTS = 1 / np.arange(1.0, 101.0)
FORMS = {
    "harmonic": {"weights": WEIGHTS},
    "two": {"weights": np.array([1.0, 0.3])},
    "mixed": {
        "weights": np.array([2.0, 1.0, 0.25]),
        "dof": np.array([1.0, 2.5, 7.0]),
        "nc": np.array([0.0, 3.0, 10.0]),
    },
    "wide": {"weights": 10.0 ** -np.arange(30)},
    "many": {"weights": np.arange(1, 2001.0) ** -0.1},
}

forms = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
TAILS = [0.5, 0.1, 1e-3, 1e-12, 1e-100, 1e-300]


def levels(form, p=TAILS):
    """Return quantiles of the weighted sum of chi-square variables with the parameters `form`, as one array.

    The upper quantiles of all probabilities in `p` come first, and the lower quantiles of p[1:5] follow.
    """
    return np.concatenate([gx2.isf(p, **form), gx2.ppf(p[1:5], **form)])


# --- 30-digit values --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cases", BY_FORM.values(), ids=lambda cases: name_of(cases[0]))
def test_stored_tails_and_densities(cases):
    # The bound is a relative error of 1e-12 of the tail; for tails below the least double, of its logarithm.
    weights, dof, nc = terms(cases[0]["form"])
    for case, function in product(cases, (gx2.logsf, gx2.logcdf, gx2.logpdf)):
        exact = case[f"log_{function.__name__[3:]}"]
        with mp.workdps(40):
            error = abs(float(mpf(float(function(case["x"], weights, dof, nc))) - mpf(exact)))
        assert error <= 1e-12 * max(1, abs(float(exact)) / 690), (function.__name__, case["x"])


@pytest.mark.parametrize("cases", BY_FORM.values(), ids=lambda cases: name_of(cases[0]))
def test_error_estimates_cover_the_error(cases):
    parts = terms(cases[0]["form"])
    for function in (gx2.logsf, gx2.logcdf, gx2.logpdf):
        values, errors = function([case["x"] for case in cases], *parts, full_output=True)
        for case, value, error in zip(cases, values, errors, strict=True):
            with mp.workdps(40):
                assert abs(float(mpf(float(value)) - mpf(case[f"log_{function.__name__[3:]}"]))) <= error, case["x"]


def test_estimated_errors_are_small():
    tail, error = gx2.sf(gx2.isf([0.5, 1e-12, 1e-300], WEIGHTS), WEIGHTS, full_output=True)
    np.testing.assert_allclose(tail, [0.5, 1e-12, 1e-300], rtol=1e-12)
    assert error.shape == (3,)
    assert np.all((error > 0) & (error < 1e-12))


def test_estimated_errors_of_quantiles_densities_and_gradients_are_small():
    x, error = gx2.isf([0.5, 1e-12, 1e-300], WEIGHTS, full_output=True)
    assert np.all((error > 0) & (error < 1e-13 * x))
    for point in x[:2]:
        density, error = gx2.pdf(point, WEIGHTS, full_output=True)
        assert 0 < error < 1e-12
        gradients, errors = gx2.gradients(point, WEIGHTS, full_output=True)
        assert abs(gradients.shift - density) < errors.shift < 1e-12 * density
        assert np.all((errors.weights > 0) & (errors.weights < 1e-12 * gradients.weights))


@pytest.mark.parametrize("case", GX2["quantiles"], ids=name_of)
def test_stored_quantiles(case):
    x, error = gx2.isf(float(case["p"]), *terms(case["form"]), full_output=True)
    assert abs(excess(x, case["isf"])) <= min(1e-14, error / x)


@pytest.mark.parametrize("case", GX2["conditional"], ids=name_of)
def test_stored_conditional_means(case):
    means, errors = gx2.conditional_means(case["x"], *terms(case["form"]), full_output=True)
    for mean, error, exact in zip(means, errors, case["means"], strict=True):
        assert abs(excess(mean, exact)) <= min(1e-12, error / mean)
    assert np.all(errors < 1e-11 * means)


@pytest.mark.parametrize("case", [case for case in GX2["values"] if "published" in case], ids=name_of)
def test_published_values(case):
    (tail,) = case["published"].keys() - {"accuracy"}
    value = getattr(gx2, tail)(case["x"], *terms(case["form"]))
    assert value == pytest.approx(float(case["published"][tail]), abs=case["published"]["accuracy"])


# --- many weights -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [0.5, 1e-6, 1e-300])
def test_a_million_weights_are_as_good_as_a_hundred(p):
    # A hundred groups of ten thousand equal weights have the law of a hundred weights with ten thousand degrees each.
    merged = {"weights": WEIGHTS, "dof": 10_000.0}
    x, low = gx2.isf(p, **merged), gx2.ppf(p, **merged)
    million = np.repeat(WEIGHTS, 10_000)
    np.testing.assert_allclose(gx2.logsf(x, million), gx2.logsf(x, **merged), rtol=1e-13, atol=1e-12)
    np.testing.assert_allclose(gx2.logcdf(low, million), gx2.logcdf(low, **merged), rtol=1e-13, atol=1e-12)
    np.testing.assert_allclose(gx2.isf(p, million), x, rtol=1e-14)


@pytest.mark.parametrize("width", [0, 1e-15, 1e-13, 1e-10, 1e-8, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1])
@pytest.mark.parametrize("p", [1e-12, 0.05, 0.3, 0.43, 0.9])
@pytest.mark.parametrize(
    "form",
    [
        {"weights": [1.0, 0.5]},
        {"weights": [1.0, 0.5], "dof": 50},
        {"weights": [1.0, -0.7], "dof": 3},
        {"weights": [1.0, -0.7, 0.4], "normal": 0.5},
    ],
    ids=["plain", "dof", "signs", "normal"],
)
def test_many_close_quantiles_are_those_of_single_calls(form, p, width):
    many = p * (1 + width * np.linspace(-1, 1, 60))
    x = gx2.isf(many, **form)
    some = [0, 17, 31, 59]
    np.testing.assert_allclose(gx2.sf(x, **form), many, rtol=1e-12)
    np.testing.assert_allclose(x[some], [gx2.isf(q, **form) for q in many[some]], rtol=1e-12)


UNEQUAL = np.append(np.geomspace(1e-150, 1e-7, 2990), np.linspace(0.2, 1, 10))  # has wide clusters, of eight octaves


@pytest.mark.parametrize(
    "weights",
    [np.linspace(0.2, 1, 3000), np.geomspace(1e-9, 1, 3000), UNEQUAL],
    ids=["linear", "geometric", "unequal"],
)
@pytest.mark.parametrize(
    "options",
    [{}, {"dof": 2.5}, {"nc": np.linspace(0, 3, 3000)}, {"dof": 0.02}],
    ids=["plain", "dof", "nc", "few"],
)
def test_clusters_change_nothing(weights, options, monkeypatch):
    """Tails, densities and conditional means do not change if similar weights are gathered in clusters to save time.

    `options` are the degrees of freedom or the noncentralities of the sum of chi-square variables with the 3000
    `weights`. A conditional mean is that of one variable, given the sum.
    """
    p = np.array([0.5, 1e-3, 1e-30, 1e-300])
    x, low = gx2.isf(p, weights, **options), gx2.ppf(p, weights, **options)
    clustered = gx2.logsf(x, weights, **options), gx2.logcdf(low, weights, **options), gx2.logpdf(x, weights, **options)
    means = gx2.conditional_means(x[2], weights, **options)
    monkeypatch.setattr(form, "_UNCLUSTERED", 10_000)
    direct = gx2.logsf(x, weights, **options), gx2.logcdf(low, weights, **options), gx2.logpdf(x, weights, **options)
    np.testing.assert_allclose(clustered, direct, rtol=1e-13, atol=1e-12)
    np.testing.assert_allclose(means, gx2.conditional_means(x[2], weights, **options), rtol=1e-11)


@pytest.mark.parametrize("dof", [1, 0.1])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("x", [1e-160, 1e-100, 1e-12, 1e-3, 1.0, 20.0])
def test_wide_clusters_change_nothing(x, sign, dof, monkeypatch):
    """A tail and its estimated error also hold if small weights are gathered in wide clusters, at any point.

    If `dof` is small, or if each tenth weight is negative (`sign` is -1), and `x` is near 0, the contour is so long
    that wide clusters do not serve.
    """
    weights = UNEQUAL * np.where(np.arange(3000) % 10, 1, sign)
    assert form.Law(weights, np.ones(3000), np.zeros(3000)).upper.form.k.size < 200
    log, error = np.transpose([f(x, weights, dof, full_output=True) for f in (gx2.logsf, gx2.logcdf)])
    monkeypatch.setattr(form, "_UNCLUSTERED", 10_000)
    other, other_error = np.transpose([f(x, weights, dof, full_output=True) for f in (gx2.logsf, gx2.logcdf)])
    assert np.all(np.abs(log - other) <= error + other_error)


def test_nothing_of_wide_clusters_is_left_in_a_refined_crossing():
    law = form.law_of(UNEQUAL, 1, 0)
    crossing = contour.saddle(law.upper.form, 1.0)
    wide = crossing.beyond
    crossing.refine()
    assert crossing.beyond == contour.Crossing(crossing.form, crossing.theta, crossing.lower).beyond != wide


@pytest.mark.parametrize("scale", [1, 8, 60])
def test_few_clusters_suffice_for_weights_of_any_scale(scale):
    # Most of these lognormal weights are too small for a cluster in each sixteenth of an octave.
    weights = np.exp(scale * np.random.default_rng(1).standard_normal(50_000))
    law = form.Law(weights, np.ones(weights.size), np.zeros(weights.size))
    assert law.upper.form.k.size < 500
    assert gx2.sf(gx2.isf(1e-6, weights), weights) == pytest.approx(1e-6, rel=1e-12)


def test_many_weights_of_any_scale():
    # The small weights add only their mean, 500 * 1e-200, which is invisible beside the large one.
    weights = np.concatenate([[1e150], np.full(500, 1e-200)])
    assert gx2.isf(1e-6, weights) == pytest.approx(1e150 * stats.chi2.isf(1e-6, 1), rel=1e-13)
    with np.errstate(under="ignore"):
        assert gx2.ppf(1e-6, weights) > 0


def test_work_grows_slowly_with_the_number_of_weights():
    # The number of groups decides how long each node of a contour takes; there are 16 in an octave of weights.
    sizes = [form.form_of(1 / np.arange(1.0, d + 1), np.ones(d), np.zeros(d)).r.size for d in (10**4, 10**5, 10**6)]
    assert np.all(np.diff(sizes) <= 16 * np.log2(10) + 1)


# --- compiled functions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("collects", [True, False])
def test_import_leaves_the_garbage_collector_as_it_was(collects):
    """Loading the compiled functions of `egm.gx2` leaves the garbage collector on if it was on, and off if it was off.

    The collector is off while the functions are compiled. `collects` says whether it is on before.
    """
    assert gc.isenabled()
    try:
        if not collects:
            gc.disable()
        loops.kernel.__wrapped__()
        assert gc.isenabled() == collects
    finally:
        gc.enable()


# --- Davies' algorithm, with its absolute accuracy -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["harmonic", "two", "whole", "many"])
@pytest.mark.parametrize("p", [0.9, 0.5, 0.05, 1e-3])
def test_agrees_with_davies(name, p):
    form = {"whole": {"weights": [2.0, 1.0], "dof": [1.0, 4.0], "nc": np.array([0.0, 3.0])}, **FORMS}[name]
    x = gx2.isf(p, **form)
    integer_dof = np.broadcast_to(form.get("dof", 1), len(form["weights"])).astype("int32")
    tail, fault, _ = qf(x, form["weights"], dof=integer_dof, noncentrality=form.get("nc"), lim=10**8, acc=1e-8)
    assert fault == 0
    assert gx2.sf(x, **form) == pytest.approx(tail, abs=1e-8)


@pytest.mark.parametrize("p", [0.9, 0.5, 0.05, 1e-3])
def test_agrees_with_chi2comb(chi2comb, p):
    x = gx2.isf(p, WEIGHTS)
    cdf, fault, _ = chi2comb.chi2comb_cdf(x, [chi2comb.ChiSquared(w, 0, 1) for w in WEIGHTS], 0.0, atol=1e-9)
    assert fault == 0
    assert gx2.cdf(x, WEIGHTS) == pytest.approx(cdf, abs=1e-8)


# --- special cases ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dof", [0.3, 1, 2, 3, 10, 100, 1000])
@pytest.mark.parametrize("p", TAILS)
def test_equal_weights_are_chi2(dof, p):
    x = stats.chi2.isf(p, dof)
    weights = np.full(3, 2.5)
    assert gx2.logsf(2.5 * x, weights, dof / 3) == pytest.approx(stats.chi2.logsf(x, dof), rel=1e-14, abs=1e-13)
    assert gx2.isf(p, weights, dof / 3) == pytest.approx(2.5 * x, rel=1e-13)
    low = stats.chi2.ppf(p, dof)
    if low > 1e-290:
        exact = stats.chi2.logcdf(low, dof)
        assert gx2.logcdf(2.5 * low, weights, dof / 3) == pytest.approx(exact, rel=1e-14, abs=1e-13)
        assert gx2.ppf(p, weights, dof / 3) == pytest.approx(2.5 * low, rel=1e-12)


@pytest.mark.parametrize("dof", [1e-12, 1e-8, 1e-6, 1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.1])
@pytest.mark.parametrize("x", [1e-300, 1e-100, 6e-18, 1e-5, 0.1, 2.0, 100.0])
def test_few_degrees_of_freedom(dof, x):
    """The tails of a chi-square variable with very few degrees of freedom are exact within their estimated error.

    The tails at `x` are compared with the incomplete gamma function. For `dof` of 0.001 or more, the relative error is
    at most 1e-12. For `dof` below 2e-6, or for small `dof` and tiny `x`, `egm.gx2` may raise an AccuracyError instead.
    """
    k, y = mpf(dof) / 2, mpf(x) / 2
    for function, ends in ((gx2.sf, (y, mp.inf)), (gx2.cdf, (0, y))):
        with mp.workdps(40):
            exact = mp.gammainc(k, *ends, regularized=True)
        try:
            tail, error = function(x, [1.0], dof, full_output=True)
        except gx2.AccuracyError:
            assert dof < 2e-6 or (dof < 0.01 and x < 1e-150)
            continue
        off = abs(float(tail / exact - 1))
        assert off <= error + 3e-16
        assert off <= 1e-12 or dof < 1e-3


@pytest.mark.parametrize("dof", [1e-3, 0.003, 0.01, 0.1])
def test_errors_of_quantiles_near_the_end_of_the_support_cover_the_error(dof):
    """Where the lower tail is (x / 2)^k / Gamma(k + 1), with k = `dof` / 2, its inverse is within the estimated error.

    The quantile of 0.7 for `dof` = 0.001 is 1.8e-310, where only the lower tail can be integrated, which is above 1/2.
    """
    for p in (0.7, 0.5, 1e-3):
        quantile, error = gx2.ppf(p, [1.0], dof, full_output=True)
        with mp.workdps(60):
            k = mpf(dof) / 2
            exact = 2 * (mpf(p) * mp.gamma(k + 1)) ** (1 / k)
            if exact < 1e-40:
                assert abs(mpf(float(quantile)) - exact) <= error <= 1e-8 * exact + 5e-324


def flat(gradients):
    """Return the derivatives by `shift`, by the weights and by the noncentralities of `gradients` as one list."""
    return [gradients.shift, *gradients.weights, *gradients.nc]


@pytest.mark.parametrize("dof", [1e-5, 3e-4, 0.01, 0.1, 0.7, 5, 1e4, 1e8, 1e12])
@pytest.mark.parametrize("z", [-0.999, -0.5, 0.0, 0.1, 10.0])
def test_errors_of_densities_and_gradients_cover_the_error(dof, z):
    """The density and the derivatives for one chi-square variable differ from closed forms by at most their errors.

    The density f is taken at x = `dof` + z sqrt(2 `dof`), or at (1 + z) `dof` if that is nearer to the mean, because x
    must be positive. The derivative by the weight is x f(x), and that by the noncentrality is x f(x) / `dof`. For few
    degrees of freedom the estimated errors are above 1e-12, as the errors are.
    """
    x = dof * (1 + z * min(1.0, np.sqrt(2 / dof)))
    with mp.workdps(60):
        k = mpf(dof) / 2
        log = (k - 1) * mp.log(mpf(x) / 2) - mpf(x) / 2 - mp.log(2) - mp.loggamma(k)
        exact = [mp.exp(log), mp.exp(log) * x, mp.exp(log) * x / mpf(dof)]
        density, error = gx2.logpdf(x, [1.0], dof, full_output=True)
        assert abs(mpf(float(density)) - log) <= error
        found, errors = gx2.gradients(x, [1.0], dof, full_output=True)
        for one, other, bound in zip(flat(found), exact, flat(errors), strict=True):
            assert abs(mpf(float(one)) - other) <= bound <= 1e-4 * other


@pytest.mark.parametrize("dof", [1e-5, 3e-4, 0.01, 0.1, 0.3])
@pytest.mark.parametrize("x", [1e-20, 1e-7, 0.1, 3.0])
def test_what_clipping_removes_for_few_degrees_of_freedom(dof, x):
    # For one weight of 1, Q = Y, and E[L Y] = E[Y; Y > x] - sqrt(x) E[sqrt(Y); Y > x] by the incomplete gamma function.
    with mp.workdps(60):
        k, y = mpf(dof) / 2, mpf(x) / 2
        exact = 2 * (mp.gammainc(k + 1, y) - mp.sqrt(y) * mp.gammainc(k + 0.5, y)) / mp.gamma(k)
    _, lost, _, errors = gx2.clip_moments(x, [1.0], dof, full_output=True)
    assert abs(lost[0] - float(exact)) <= min(errors[1][0], 1e-12 * lost[0])
    assert errors[1][0] < (1e-11 if dof >= 0.01 else 1e-8) * lost[0]


@pytest.mark.parametrize("dof", [0.3, 0.4, 0.5, 0.7, 1.0, 1.5, 3.0, 30.0])
@pytest.mark.parametrize("fraction", [1e-14, 1e-6, 1e-3, 0.1, 1.0])
def test_errors_where_nearly_all_rows_are_clipped(dof, fraction):
    """The four means that a sum over all rows gives for one weight of 1 differ from closed forms by at most the errors.

    L is the share of a row that clipping to the squared norm x removes, for `dof` degrees of freedom. The means are
    E[L] for two and four more, and E[L^2] for two and four more, all by the incomplete gamma function. x is `fraction`
    times `dof`, the mean of the squared norm.
    """
    x, law = fraction * dof, form.form_of(*form.parameters([1.0], dof, 0))
    pieces = list(clipping._by_complement(law, np.longdouble(x) / law.unit))
    found, errors = clipping._lost(pieces, np.ones(1)).ravel(), clipping._errors(pieces, np.ones(1)).ravel()
    with mp.workdps(60):
        for one, bound, (square, more) in zip(found, errors, product((False, True), (2, 4)), strict=True):
            k, y = (mpf(dof) + more) / 2, mpf(x) / 2
            whole, root, ratio = (y**a * mp.gammainc(k - a, y) / mp.gamma(k) for a in (0, mpf(1) / 2, 1))
            exact = whole - 2 * root + ratio if square else whole - root
            assert abs(mpf(float(one)) - exact) <= bound <= 1e-9 * exact


def test_an_almost_absent_largest_weight_leaves_a_long_sum():
    """For total degrees of freedom below 1 the sum over all rows has many terms; a sum of twice as many changes little.

    The largest weight has so few degrees of freedom that the smaller one makes most of the row.
    """
    parameters = 4e-5, [1.0, 6e-4], [2e-6, 0.4]
    *found, errors = gx2.clip_moments(*parameters, full_output=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clipping, "_STEP", clipping._STEP / 2)
        patch.setattr(clipping, "_REACH", 2 * clipping._REACH)
        for one, other, bound in zip(found, gx2.clip_moments(*parameters), errors, strict=True):
            assert np.all(np.abs(one - other) <= bound)
            assert np.all(bound <= 1e-12)


@pytest.mark.parametrize(("x", "unit"), [(5e-324, 1.0), (1e-310, 1.0), (1e-300, 1e300)])
@pytest.mark.parametrize(("dof", "nc"), [(0.2, 0.0), (1, 3.0), (7, 1e5)])
def test_clipping_to_almost_nothing_removes_all(x, unit, dof, nc):
    mean_factor, lost, lost_square, errors = gx2.clip_moments(x, [unit, unit / 2], dof, [nc, 0], full_output=True)
    np.testing.assert_allclose(mean_factor, 1, rtol=1e-12)
    assert np.all(np.abs(mean_factor - 1) <= errors[0])
    np.testing.assert_allclose([lost, lost_square], [[dof + nc, dof]] * 2, rtol=1e-12)


@pytest.mark.parametrize(("dof", "nc"), [(1, 0.5), (3, 4.0), (2.5, 40.0), (10, 200.0)])
def test_one_noncentral_weight_is_ncx2(dof, nc):
    # scipy's ncx2 has a relative error of about 1e-12 in the upper tail down to 1e-10.
    x = stats.ncx2.isf([0.5, 1e-2, 1e-6], dof, nc)
    np.testing.assert_allclose(gx2.sf(3 * x, [3.0], dof, nc), stats.ncx2.sf(x, dof, nc), rtol=1e-10)
    np.testing.assert_allclose(gx2.cdf(3 * x, [3.0], dof, nc), stats.ncx2.cdf(x, dof, nc), rtol=1e-10)
    np.testing.assert_allclose(gx2.pdf(3 * x, [3.0], dof, nc), stats.ncx2.pdf(x, dof, nc) / 3, rtol=1e-10)


def test_two_squares_with_equal_weights_are_exponential():
    x = np.array([0.0, 1e-10, 1.0, 1e3])
    np.testing.assert_allclose(gx2.logsf(x, [1.0, 1.0]), -x / 2, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(gx2.logpdf(x, [1.0, 1.0]), -x / 2 - np.log(2), rtol=1e-13)


@pytest.mark.parametrize("x", [1e12, 1e16, 1e20, 1e50, 1e100, 1e154, 1e200, 1.7e308])
@pytest.mark.parametrize(("others", "factor"), [([], 1), ([0.5], 0.5**-0.5), ([-1.0, 0.25], 1.5**-0.5)])
def test_far_beyond_the_largest_weight(x, others, factor):
    # The largest weight, here 1, makes the tail. The other weights w multiply it by the product of (1 - w)^(-1/2).
    weights = [1.0, *others]
    with mp.workdps(30):
        exact = mp.log(factor * mp.erfc(mp.sqrt(mpf(x) / 2)))
        assert abs(float(mpf(float(gx2.logsf(x, weights))) / exact - 1)) <= 1e-15
    assert gx2.sf(x, weights) == gx2.pdf(x, weights) == gx2.sf(1.0, np.divide(weights, x)) == 0
    assert gx2.cdf(x, weights) == 1
    if min(weights) > 0:
        assert not np.any(gx2.clip_moments(x, weights))
    if x <= 1e20:
        np.testing.assert_allclose(gx2.conditional_means(x, weights) @ weights, x, rtol=1e-13)
        assert not np.any(gx2.gradients(x, weights).weights)
    else:
        with pytest.raises(gx2.AccuracyError, match="beyond the largest weight"):
            gx2.conditional_means(x, weights)


@pytest.mark.parametrize("x", [1e20, 1e100, 1e300])
@pytest.mark.parametrize("nc", [1e-3, 1.0, 1e3])
def test_far_beyond_a_noncentral_weight(x, nc):
    # For one degree of freedom, it is the tail of a normal variable at sqrt(x) - sqrt(nc).
    z = np.sqrt(x) - np.sqrt(nc)
    assert gx2.logsf(x, [1.0], 1, nc) == pytest.approx(-z * z / 2, rel=1e-14)


@pytest.mark.parametrize("dof", [1e12, 1e100, 1e300])
def test_many_degrees_of_freedom(dof):
    # The lower tail at 1 is exp(-1/2) (1/2)^(dof/2) / Gamma(dof/2 + 1), up to a factor that is close to 1.
    with mp.workdps(400):
        exact = mpf(dof) / 2 * mp.log(mpf(0.5)) - mpf(0.5) - mp.loggamma(mpf(dof) / 2 + 1)
    assert gx2.logcdf(1.0, [1.0], dof) == pytest.approx(float(exact), rel=1e-14)
    assert gx2.sf(1.0, [1.0], dof) == 1
    assert gx2.logsf(4 * dof, [1.0], dof) == pytest.approx(dof / 2 * (np.log(4) - 3), rel=1e-10)


@pytest.mark.parametrize("x", [1e-280, 1e-295, 1e-307, 1e-310, 3e-323])
@pytest.mark.parametrize("dof", [0.5, 1, 3])
def test_subnormal_numbers(x, dof):
    # Here the lower tail of Q = Y_1 + Y_2 / 2 is x^dof / (2^(dof / 2) Gamma(dof + 1)), and the density its derivative.
    exact = dof * np.log(x / 2) + dof / 2 * np.log(2) - float(mp.loggamma(dof + 1))
    assert gx2.logcdf(x, [1.0, 0.5], dof) == pytest.approx(exact, rel=1e-14)
    assert gx2.logpdf(x, [1.0, 0.5], dof) == pytest.approx(exact + np.log(dof) - np.log(x), rel=1e-14)
    assert gx2.sf(-x, [-1.0, -0.5], dof) == pytest.approx(gx2.cdf(x, [1.0, 0.5], dof), rel=1e-13)


# --- laws -------------------------------------------------------------------------------------------------------------


@forms
def test_round_trip(form):
    np.testing.assert_allclose(gx2.sf(gx2.isf(TAILS, **form), **form), TAILS, rtol=1e-12)
    np.testing.assert_allclose(gx2.cdf(gx2.ppf(TAILS[:5], **form), **form), TAILS[:5], rtol=1e-12)


@pytest.mark.parametrize("form", [{"dof": 1e10}, {"nc": 1e10}, {"dof": 1e14}, {"shift": 1e6}, {"shift": -1e9}])
def test_round_trip_of_quantiles_that_lose_digits(form):
    """The upper tail at the upper quantile of p is p, up to a relative 1e-12 and the effect of rounding the quantile.

    This effect is the spacing of doubles at the quantile, times the density. It is large for the parameters `form`.
    """
    p = np.array([0.3, 1e-3, 1e-9, 1e-100])
    x = gx2.isf(p, [1.0, 0.5], **form)
    rounding = np.spacing(np.abs(x)) * gx2.pdf(x, [1.0, 0.5], **form) / p
    assert np.all(np.abs(gx2.sf(x, [1.0, 0.5], **form) / p - 1) <= 1e-12 + rounding)


@pytest.mark.parametrize("dof", [0.05, 0.111, 0.156, 0.2, [0.12, 3.0]])
def test_round_trip_for_few_degrees_of_freedom(dof):
    """The tail at a quantile of a chi-square sum Q is the given probability, and quantiles of -Q are minus those of Q.

    `dof` has the degrees of freedom of one or two chi-square variables. The search for a quantile starts from the
    saddlepoint formula, an approximation of the tail. For so few degrees of freedom, the formula is not a decreasing
    function of the point, as a tail is.
    """
    p, weights = np.linspace(0.01, 0.99, 40), np.array([2.0, 1.0])[: np.size(dof)]
    upper, lower = gx2.isf(p, weights, dof), gx2.ppf(p, weights, dof)
    np.testing.assert_allclose(gx2.sf(upper, weights, dof), p, rtol=1e-12)
    np.testing.assert_allclose(gx2.cdf(lower, weights, dof), p, rtol=1e-12)
    np.testing.assert_array_equal(gx2.ppf(p, -weights, dof), -upper)
    np.testing.assert_array_equal(gx2.isf(p, -weights, dof), -lower)


@forms
@pytest.mark.parametrize("logp", [-1e3, -1e5, -1e6, -1e12, -1e16, -1e100, -1e306])
def test_round_trip_beyond_doubles(form, logp):
    assert gx2.logsf(gx2.ilogsf(logp, **form), **form) == pytest.approx(logp, rel=1e-12)


@forms
@pytest.mark.parametrize("factor", [1e-150, 0.37, 1e150])
def test_scale(form, factor):
    x, scaled = levels(form), {**form, "weights": form["weights"] * factor}
    np.testing.assert_allclose(gx2.logsf(factor * x, **scaled), gx2.logsf(x, **form), rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(gx2.logcdf(factor * x, **scaled), gx2.logcdf(x, **form), rtol=1e-13, atol=1e-13)
    shifted = gx2.logpdf(factor * x, **scaled) + np.log(factor)
    np.testing.assert_allclose(shifted, gx2.logpdf(x, **form), rtol=1e-12, atol=1e-12)


@forms
def test_permutation(form):
    order = np.random.default_rng(5).permutation(form["weights"].size)
    shuffled = {name: values[order] for name, values in form.items()}
    x = levels(form)
    np.testing.assert_allclose(gx2.logsf(x, **shuffled), gx2.logsf(x, **form), rtol=1e-13, atol=1e-14)


def test_equal_weights_merge():
    x = [0.1, 3.0, 40.0]
    apart = gx2.logsf(x, [2.0, 1.0, 2.0], [1, 2, 3], [0.5, 0, 4])
    np.testing.assert_array_equal(apart, gx2.logsf(x, [1.0, 2.0], [2, 4], [0, 4.5]))


@forms
def test_tails_sum_to_one(form):
    x = levels(form)
    np.testing.assert_allclose(gx2.sf(x, **form) + gx2.cdf(x, **form), 1, rtol=1e-13)


@forms
def test_density_is_the_slope(form):
    # Over a step of 1e-3 in log sf a central difference is off by about 1e-6 / 6, and by 1e-13 / 1e-3 from rounding.
    x = gx2.isf([0.4, 1e-3, 1e-30], **form)
    step = 1e-3 * gx2.sf(x, **form) / gx2.pdf(x, **form)
    slope = (gx2.sf(x - step, **form) - gx2.sf(x + step, **form)) / (2 * step)
    np.testing.assert_allclose(gx2.pdf(x, **form), slope, rtol=1e-6)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=8), st.floats(1e-200, 0.999))
def test_quantiles_fall_with_p_and_rise_with_every_weight(weights, p):
    weights = np.array(weights)
    x = gx2.isf(p, weights)
    assert gx2.isf(p * 0.99, weights) > x
    for j in range(weights.size):
        heavier = weights.copy()
        heavier[j] *= 1.01
        assert gx2.isf(p, heavier) > x * (1 - 1e-12)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=8), st.floats(1e-250, 0.9))
def test_conditional_means_add_up_to_x(weights, p):
    weights = np.array(weights)
    x = gx2.isf(p, weights)
    means = gx2.conditional_means(x, weights)
    assert np.all(means >= 0)
    assert np.sum(weights * means) == pytest.approx(x, rel=1e-11)


def test_conditional_means_are_the_gradient_of_the_quantile():
    weights, p, step = np.array([1.0, 0.5, 0.2]), 1e-4, 1e-5
    up, down = (np.array([gx2.isf(p, weights + sign * step * np.eye(3)[j]) for j in range(3)]) for sign in (1, -1))
    np.testing.assert_allclose(gx2.conditional_means(gx2.isf(p, weights), weights), (up - down) / (2 * step), rtol=1e-8)


@pytest.mark.slow
@forms
def test_moments_agree_with_simulation(form):
    size = min(100_000, 20_000_000 // form["weights"].size)
    draws = gx2.rvs(**form, size=size, rng=np.random.default_rng(8))
    mean, var = gx2.mean(**form), gx2.var(**form)
    assert abs(draws.mean() - mean) < 4 * np.sqrt(var / draws.size)
    x = gx2.isf(0.01, **form)
    assert abs(np.sum(draws > x) - 0.01 * draws.size) < 4 * np.sqrt(0.01 * draws.size)


@pytest.mark.parametrize("dof", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("nc", [1e17, 1e19, 1e29])
def test_draws_of_a_huge_noncentrality_are_normal(dof, nc):
    """For `nc` >= 1e17 and draws x by `gx2.rvs`, (x - nc) / (2 sqrt(nc)) passes a test for standard normality."""
    draws = gx2.rvs([1.0], dof, nc, size=1000, rng=np.random.default_rng(2))
    assert stats.kstest((draws - nc) / (2 * np.sqrt(nc)), "norm").pvalue > 0.01


def test_convolution():
    # P[A + B > x] for independent A and B is E[P[A > x - B]]; the tolerance is the sampling error.
    a, b, x = WEIGHTS[:5], np.array([0.7, 0.1]), 12.0
    tails = gx2.sf(x - gx2.rvs(b, size=4000, rng=np.random.default_rng(9)), a)
    exact = gx2.sf(x, np.concatenate([a, b]))
    assert abs(tails.mean() - exact) < 4 * tails.std() / np.sqrt(tails.size)


# --- shapes, edges and errors -----------------------------------------------------------------------------------------


def test_shapes():
    assert np.ndim(gx2.sf(1.0, WEIGHTS)) == 0
    assert gx2.sf(np.ones((2, 3)), WEIGHTS).shape == (2, 3)
    assert gx2.isf(np.full((2, 1), 0.1), WEIGHTS).shape == (2, 1)
    assert gx2.conditional_means(1.0, WEIGHTS).shape == (100,)
    assert gx2.rvs(WEIGHTS, size=(2, 2), rng=np.random.default_rng(0)).shape == (2, 2)


def test_no_values_give_no_values():
    for function in (gx2.sf, gx2.logcdf, gx2.pdf, gx2.isf, gx2.ppf, gx2.ilogsf):
        assert function(np.empty((0, 3)), WEIGHTS).shape == (0, 3)


@pytest.mark.parametrize("function", [gx2.sf, gx2.cdf, gx2.pdf, gx2.isf, gx2.ppf, gx2.ilogsf])
@pytest.mark.parametrize("form", [{"shift": 1.5}, {"shift": 5.0}, {"dof": 1e-7}, {"normal": 1.0}])
def test_no_values_need_no_computation(function, form):
    """For an empty array of points or probabilities, `function` of `egm.gx2` returns an empty array of doubles.

    This holds for all parameters `form`, also for those with which other values need a long computation.
    """
    result = function(np.empty((2, 0)), [1.0, 2.0], **form)
    assert result.shape == (2, 0)
    assert result.dtype == float


def test_edges():
    assert gx2.sf(0.0, WEIGHTS) == gx2.sf(-1.0, WEIGHTS) == gx2.cdf(np.inf, WEIGHTS) == 1
    assert gx2.sf(np.inf, WEIGHTS) == gx2.cdf(0.0, WEIGHTS) == gx2.pdf(np.inf, WEIGHTS) == gx2.pdf(-1.0, WEIGHTS) == 0
    assert gx2.isf(1, WEIGHTS) == gx2.ppf(0, WEIGHTS) == gx2.ilogsf(0, WEIGHTS) == 0
    assert gx2.isf(0, WEIGHTS) == gx2.ppf(1, WEIGHTS) == np.inf
    assert gx2.pdf(0.0, [2.0]) == np.inf
    assert gx2.pdf(0.0, [2.0, 2.0, 2.0]) == 0
    assert gx2.pdf(0.0, [2.0, 0.5]) == pytest.approx(0.5, rel=1e-15)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((np.nan, [1.0]), "x"),
        ((1.0, [1.0, 0.0]), r"weights\[1\]"),
        ((1.0, [0.0]), r"weights\[0\]"),
        ((1.0, [np.inf]), r"weights\[0\]"),
        ((1.0, []), "weights"),
        ((1.0, 1.0), "weights"),
        ((1.0, [1.0], 0.0), "dof"),
        ((1.0, [1.0, 2.0], [1.0, 2.0, 3.0]), "dof"),
        ((1.0, [1.0], 1.0, -1.0), "nc"),
        ((1.0, [1.0], 1.0, [0.0, 1.0]), "nc"),
    ],
)
def test_bad_values_are_named(arguments, name):
    with pytest.raises(ValueError, match=f"^{name} must"):
        gx2.sf(*arguments)


@pytest.mark.parametrize("p", [-1e-9, 1.1, np.nan])
def test_bad_probabilities_are_named(p):
    with pytest.raises(ValueError, match=r"^p must"):
        gx2.isf(p, WEIGHTS)
    with pytest.raises(ValueError, match=r"^logp must"):
        gx2.ilogsf(abs(p), WEIGHTS)


@pytest.mark.parametrize("bad", ["x", None, True, 1j])
def test_bad_types_are_named(bad):
    with pytest.raises(TypeError, match=r"^x must be a real number"):
        gx2.sf(bad, WEIGHTS)


@pytest.mark.parametrize(("heavy", "factor"), [(36, 1.3), (38, 1.3), (44, 1.2), (46, 1.2), (54, 1.1)])
def test_contour_is_not_led_past_a_point_where_many_weights_meet(heavy, factor, monkeypatch):
    """A tail does not depend on the contour of the integral that computes it, even if a hundred weights are equal.

    Besides the usual contour, the test uses three contours whose ends have another angle. All logarithms of the
    tail agree within 1e-12. The hundred equal weights are 1. Near their pole, the point 1/2 of the complex plane, the
    integrand oscillates too quickly for a quadrature, so a contour must keep away from it. `heavy` is the largest
    weight, and the tail is taken at `factor` times the mean of the sum.
    """
    weights = np.concatenate([[heavy, heavy / 2, heavy / 2.4], np.ones(100)])
    x = factor * weights.sum()
    tail = gx2.logsf(x, weights)
    for tilt in (0.0, 0.25, 4.0):
        monkeypatch.setattr(contour, "_TILT", tilt)
        assert gx2.logsf(x, weights) == pytest.approx(tail, rel=0, abs=1e-12)
