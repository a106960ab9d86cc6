"""Test `egm.gx2` with weights of either sign, a normal term and an offset, against closed forms and known values.

The variable is Q = sum_j weights_j chi2(dof_j, nc_j) + normal Z + shift, where Z is a standard normal variable. Where a
docstring names no tolerance, the relative error of a tail may be about 1e-12, as `gx2.sf` promises.
"""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf
from scipy import integrate, special, stats

from egm import gx2
from egm._gx2 import contour, quantiles
from tests.conftest import slow

PAIR = {"weights": [1.0, -1.0]}
FORMS = {
    "pair": {"weights": [1.0, -0.4], "dof": [2.0, 3.0]},
    "mixed": {"weights": [2.0, -1.0, 0.25], "dof": [1.0, 2.5, 7.0], "nc": [0.0, 3.0, 10.0]},
    "negative": {"weights": [-1.0, -0.5, -0.1], "nc": [0.0, 2.0, 0.0]},
    "smooth": {"weights": [1.0, 0.3], "dof": [1.0, 2.0], "nc": [0.5, 0.0], "normal": 0.7, "shift": -2.0},
    "all": {"weights": [3.0, 1.0, -2.0], "dof": [1.0, 4.0, 2.0], "nc": [1.0, 0.0, 6.0], "normal": 1.5, "shift": 10.0},
    "harmonic": {"weights": (-1.0) ** np.arange(100) / np.arange(1, 101)},
    "many": {"weights": (-1.0) ** np.arange(2000) * np.arange(1, 2001.0) ** -0.3, "normal": 0.1},
}
forms = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
TAILS = np.array([0.4, 0.1, 1e-3, 1e-12, 1e-100, 1e-300])
CLOSE = {"rtol": 1e-12, "atol": 1e-12}  # of logarithms of tails


def points(form):
    """Return ten quantiles of the distribution with the parameters `form`: six upper ones, then four lower ones.

    Both sequences start near the median and end far out in the tail.
    """
    return np.concatenate([gx2.isf(TAILS, **form), gx2.ppf(TAILS[:4], **form)])


def changed(form, **changes):
    """Return the parameters `form` of a distribution as a complete dictionary in which `changes` replace some values.

    Parameters that are missing in `form` get their default values, and the weights become an array.
    """
    full = {"dof": 1.0, "nc": 0.0, "normal": 0.0, "shift": 0.0, **form}
    return {**full, "weights": np.asarray(full["weights"], float), **changes}


# --- closed forms -----------------------------------------------------------------------------------------------------


def test_difference_of_equal_exponentials_is_laplace():
    x = np.array([-1400.0, -30.0, -1e-9, 0.0, 0.1, 3.0, 1400.0])
    law = stats.laplace(scale=2)
    np.testing.assert_allclose(gx2.logsf(x, [1, -1], 2), law.logsf(x), **CLOSE)
    np.testing.assert_allclose(gx2.logcdf(x, [1, -1], 2), law.logcdf(x), **CLOSE)
    np.testing.assert_allclose(gx2.logpdf(x, [1, -1], 2), law.logpdf(x), **CLOSE)
    np.testing.assert_allclose(gx2.isf(TAILS, [1, -1], 2), -2 * np.log(2 * TAILS), rtol=1e-13)


@pytest.mark.parametrize(("a", "b"), [(1.0, 0.5), (1e-3, 50.0), (1e100, 1e99)])
def test_difference_of_exponentials(a, b):
    """The tails and the density of a X - b Y agree with closed forms, where X and Y are exponential variables.

    X and Y are independent chi-square variables with two degrees of freedom. The difference is positive with the
    probability a / (a + b), and its distribution is then that of a X.
    """
    x = np.array([1e-6, 0.3, 1.0, 40.0, 1400.0])
    density = -np.log(2 * (a + b))
    np.testing.assert_allclose(gx2.logsf(a * x, [a, -b], 2), np.log(a / (a + b)) - x / 2, **CLOSE)
    np.testing.assert_allclose(gx2.logcdf(-b * x, [a, -b], 2), np.log(b / (a + b)) - x / 2, **CLOSE)
    np.testing.assert_allclose(gx2.logpdf(a * x, [a, -b], 2), density - x / 2, **CLOSE)
    np.testing.assert_allclose(gx2.logpdf(-b * x, [a, -b], 2), density - x / 2, **CLOSE)


@pytest.mark.parametrize("x", [0.0, 3.0, 300.0])
@pytest.mark.parametrize(
    "weights", [[3.0, 2.0, -1.0, -4.0], np.cos(2 * np.pi * np.arange(1, 8) / 15) - 0.2], ids=["four", "circular"]
)
def test_exponentials_of_either_sign(weights, x):
    """The tail at `x` of a sum of exponential variables with distinct `weights` agrees with a closed form.

    The closed form comes from partial fractions. For the second set of weights and x = 0, it is Anderson's (1942)
    probability that the circular serial correlation of 15 normal numbers exceeds 0.2.
    """
    with mp.workdps(60):
        w = [mpf(float(each)) for each in weights]
        rest = [mp.fprod(a / (a - b) for b in w if b != a) for a in w]
        exact = sum(c * mp.exp(-x / (2 * a)) for a, c in zip(w, rest, strict=True) if a > 0)
    assert gx2.logsf(x, weights, 2) == pytest.approx(float(mp.log(exact)), rel=1e-13, abs=1e-12)


@pytest.mark.parametrize(("weight", "normal", "shift"), [(1.5, 2.0, 0.0), (0.2, 3.0, -1.0), (4.0, 0.5, 7.0)])
def test_exponential_and_normal_is_exponnorm(weight, normal, shift):
    law = stats.exponnorm(2 * weight / normal, shift, normal)
    x = shift + 2 * weight + np.array([-3.0, -0.5, 0.0, 1.0, 5.0]) * np.hypot(normal, 2 * weight)
    options = {"dof": 2, "normal": normal, "shift": shift}
    np.testing.assert_allclose(gx2.sf(x, [weight], **options), law.sf(x), rtol=1e-12)
    np.testing.assert_allclose(gx2.cdf(x, [weight], **options), law.cdf(x), rtol=1e-11, atol=1e-15)
    np.testing.assert_allclose(gx2.pdf(x, [weight], **options), law.pdf(x), rtol=1e-12)


@pytest.mark.parametrize("dof", [1e-3, 0.05, 0.25, 0.6, 0.8, 1.0, 2.0, 3.0, 7.5, 100.0])
def test_difference_of_equal_chi_squares_is_variance_gamma(dof):
    """`gx2.logpdf` agrees with a closed form for the difference of two independent chi-square variables.

    Each variable has `dof` degrees of freedom, and the closed form contains a Bessel function. For one degree of
    freedom the density is K_0(|x| / 2) / (2 pi).
    """
    x = np.array([-1000.0, -7.0, -0.1, 1e-3, 0.5, 20.0])
    order, z = (dof - 1) / 2, np.abs(x) / 2
    exact = order * np.log(z / 2) + np.log(special.kve(order, z)) - z - np.log(2 * np.sqrt(np.pi))
    exact -= special.gammaln(dof / 2)
    np.testing.assert_allclose(gx2.logpdf(x, [1, -1], dof), exact, **CLOSE)


@pytest.mark.parametrize("x", [1e-5, -1e-10, 8e-8, -1e-50, 1e-140])
@pytest.mark.parametrize("dof", [1e-3, 0.1, 0.25, 0.6, 0.95])
def test_density_near_a_pole(dof, x):
    """The density at `x` near 0 of the difference of two chi-square variables is that of the variance gamma law.

    Each variable has `dof` < 1 degrees of freedom, so that the density is infinite at 0.
    """
    with mp.workdps(40):
        order, z = (mpf(dof) - 1) / 2, mpf(abs(x)) / 2
        exact = mp.log((z / 2) ** order * mp.besselk(order, z) / (2 * mp.sqrt(mp.pi) * mp.gamma(mpf(dof) / 2)))
    assert gx2.logpdf(x, [1.0, -1.0], dof) == pytest.approx(float(exact), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("dof", [1e-3, 0.005, 0.1, 0.5])
def test_density_of_few_degrees_of_freedom(dof):
    """The density of one chi-square variable with `dof` <= 0.5 degrees of freedom agrees with SciPy.

    The points are from 1e-300 to 3, below and above the mean.
    """
    x = np.array([1e-300, 1e-100, 1e-8, 1e-4, 0.0054, 0.1, 3.0])
    np.testing.assert_allclose(gx2.logpdf(x, [1.0], dof), stats.chi2(dof).logpdf(x), rtol=1e-12, atol=1e-12)


def test_no_weights_leave_a_normal_variable():
    x = np.array([-70.0, -5.0, 1.0, 2.0, 80.0])
    law, options = stats.norm(1, 2), {"weights": [], "normal": 2.0, "shift": 1.0}
    np.testing.assert_allclose(gx2.logsf(x, **options), law.logsf(x), **CLOSE)
    np.testing.assert_allclose(gx2.logcdf(x, **options), law.logcdf(x), **CLOSE)
    np.testing.assert_allclose(gx2.logpdf(x, **options), law.logpdf(x), **CLOSE)
    np.testing.assert_allclose(gx2.isf(TAILS, **options), law.isf(TAILS), rtol=1e-13)


@pytest.mark.parametrize(("dof", "nc"), [(1, 0.5), (3, 4.0), (2.5, 40.0)])
def test_one_negative_weight_is_reflected_ncx2(dof, nc):
    # scipy's ncx2 has a relative error of about 1e-12 in the upper tail down to 1e-10.
    law, options = stats.ncx2(dof, nc), {"weights": [-3.0], "dof": dof, "nc": nc, "shift": 1.0}
    x = law.isf([0.9, 0.5, 1e-2, 1e-6])
    np.testing.assert_allclose(gx2.cdf(1 - 3 * x, **options), law.sf(x), rtol=1e-10)
    np.testing.assert_allclose(gx2.sf(1 - 3 * x, **options), law.cdf(x), rtol=1e-10)
    np.testing.assert_allclose(gx2.pdf(1 - 3 * x, **options), law.pdf(x) / 3, rtol=1e-10)


@pytest.mark.parametrize("ratio", [1e-3, 0.3, 1.0, 4.0, 300.0])
@pytest.mark.parametrize(("a", "b"), [(1, 1), (3, 5), (2, 9), (10, 40), (0.5, 2.5)])
def test_ratio_of_chi_squares_is_f(a, b, ratio):
    """The tails at 0 of A / a - ratio B / b are the tails at `ratio` of the F distribution.

    A and B are independent chi-square variables with `a` and `b` degrees of freedom. If A is noncentral, the F
    distribution is noncentral, too.
    """
    weights, dof = [1 / a, -ratio / b], [a, b]
    law = stats.f(a, b)
    np.testing.assert_allclose(gx2.sf(0.0, weights, dof), law.sf(ratio), rtol=1e-11)
    np.testing.assert_allclose(gx2.cdf(0.0, weights, dof), law.cdf(ratio), rtol=1e-11)
    for nc in (0.3, 6.0):
        shown = gx2.cdf(0.0, weights, dof, [nc, 0.0])
        np.testing.assert_allclose(shown, stats.ncf(a, b, nc).cdf(ratio), rtol=1e-10)


# --- published values -------------------------------------------------------------------------------------------------

DAVIES = {"weights": [7.0, 3.0, -7.0, -3.0], "dof": [6, 2, 1, 1], "nc": [6.0, 2.0, 6.0, 2.0]}
README = {"weights": [6.0, 3.0, 1.0], "dof": [1, 1, 2], "nc": [0.5, 0.0, 0.0], "normal": 2.0}


@pytest.mark.parametrize(
    ("form", "x", "published"),
    [
        # Davies (1980), test driver of AS 155, with the accuracy 1e-4 (digits as in the tests of Hail)
        *((DAVIES, -40.0, 0.078208), (DAVIES, 40.0, 0.522108), (DAVIES, 140.0, 0.960370)),
        (README, 1.0, 0.050870657088644244),  # example of chi2comb's documentation, with the same accuracy
    ],
)
def test_published_values(form, x, published):
    assert gx2.cdf(x, **form) == pytest.approx(published, abs=1e-4)


# parameters on the getting-started pages of Das's toolbox gx2, of the MATLAB version and of the Python version
TOOLBOX = {"weights": [1.0, -10.0, 2.0], "dof": [1, 2, 3], "nc": [2.0, 3.0, 7.0], "normal": 5.0, "shift": 10.0}
SIGNED = {"weights": [-2.0, -5.0, 2.0], "dof": [2, 1, 3], "nc": [0.0, 4.0, 4.0], "normal": 3.0, "shift": -20.0}
POSITIVE = {"weights": [3.0, 4.0, 5.0], "dof": [1, 2, 3], "nc": [2.0, 3.0, 7.0], "shift": -100.0}


def test_published_values_of_the_toolbox():
    """Results of `egm.gx2` agree with those on the getting-started pages of the toolbox gx2 by Das.

    They agree in all digits that are compared, except for one probability, whose relative difference is at most
    1e-6.
    """
    law = gx2.rv(**TOOLBOX)
    assert law.stats() == (-17.0, 1771.0)
    assert law.pdf([10.0, 25.0]).round(8).tolist() == [0.01205709, 0.00879803]
    assert law.cdf([10.0, 25.0]).round(8).tolist() == [0.71497983, 0.87899866]
    assert round(float(law.ppf(0.9)), 4) == 27.5320
    mode = 9.297513876130134
    assert abs(gx2.gradients(mode, **TOOLBOX).normal) < 1e-12  # -normal times the slope of the density
    law = gx2.from_quadratic_form([[1, 1], [1, 1]], [5, 6], [[2, 1], [1, 3]], linear=[-1, 0], constant=-1)
    found = np.concatenate([law.weights, law.dof, law.nc, [law.shift, law.normal]])
    assert found.round(8).tolist() == [7.0, 1.0, 16.61880466, -1.33163265, 0.84515425]
    assert np.round(law.stats(), 9).tolist() == [122.0, 3356.0]
    assert law.cdf(50.0) == pytest.approx(0.08559335530030304, rel=1e-6)


@pytest.mark.parametrize(
    ("form", "p", "published"),
    [
        (TOOLBOX, [1e-3, 1e-2, 0.5], [-218.36937302, -149.26056464, -8.765662415017411]),
        (TOOLBOX, [1 - 1e-2, 1 - 1e-3], [51.03378046, 69.48993111]),
        (SIGNED, [1e-3, 1 - 1e-3], [-142.77030235, 24.80785786]),
        (POSITIVE, [1e-3, 1 - 1e-3], [-90.52584739, 122.31996647]),
    ],
)
def test_published_quantiles_of_the_toolbox(form, p, published):
    # The toolbox finds a quantile by a search, which ends before the last printed digit is right.
    np.testing.assert_allclose(gx2.ppf(p, **form), published, rtol=2e-8)


def test_published_derivatives_of_the_toolbox():
    """The derivatives of the lower tail agree with published values of the toolbox gx2 by Das.

    The values are on the getting-started page of the toolbox's Python version. The derivatives are the results of
    `gx2.gradients` of this package, which are derivatives of the upper tail, with the opposite sign.
    """
    found = gx2.gradients(10.0, [1.0, -5.0, 2.0], [1, 2, 3], [2.0, 3.0, 7.0], normal=2.0, shift=5.0)
    np.testing.assert_allclose(-found.weights, [-5.93248766e-02, -6.46817998e-02, -1.83416585e-01], rtol=1e-8)
    np.testing.assert_allclose(-found.nc, [-2.01733664e-02, 8.03252777e-02, -3.89155815e-02], rtol=1e-8)
    np.testing.assert_allclose([-found.normal, -found.shift], [4.26856717e-05, -2.05327351e-02], rtol=1e-8)
    law = gx2.from_quadratic_form([[1, 1], [1, 1]], [1, 2], [[2, 1], [1, 3]], linear=[-1, 0], constant=-1)
    assert round(float(law.pdf(0.0)), 4) == 0.0962  # minus the derivative of the cdf by the constant


def test_published_far_tails_of_the_toolbox():
    """Tails of 1e-1000 and 1e-2000 agree with approximations on the getting-started pages of the toolbox gx2 by Das.

    If all weights are positive, the variable has a least value. A point with such a small lower tail is closer to it
    than any double can express. So the test computes the tail at the distance 1e-250 from the least value, and
    extrapolates: with 6 degrees of freedom, the tail is proportional to the third power of the distance.
    """
    lower, upper = [-24365.14269438, -47950.03867407], [9723.84451406, 19159.3719629]
    np.testing.assert_allclose(gx2.logcdf(lower, **SIGNED) / np.log(10), [-1000, -2000], rtol=2e-5)
    np.testing.assert_allclose(gx2.logsf(upper, **SIGNED) / np.log(10), [-1000, -2000], rtol=1e-4)
    at = gx2.logcdf(1e-250, **{**POSITIVE, "shift": 0.0}) / np.log(10)
    found = [at + 3 * (log_distance + 250) for log_distance in (-331.27463875, -664.60797208)]
    np.testing.assert_allclose(found, [-1000, -2000], atol=1e-7)


def test_published_error_of_a_classification():
    """The least error rate of a classification agrees with a published value of the toolbox gx2 by Das.

    The value is on the getting-started page of the toolbox's Python version. Each point comes from one of two normal
    distributions, and is classified by the log ratio of their densities, which is a quadratic form of the point.
    """
    means, covariances = ([-0.3, -0.3], [0.3, 0.3]), (np.eye(2), np.diag([0.4, 0.6]))
    first, second = (np.linalg.inv(covariance) for covariance in covariances)
    linear = first @ means[0] - second @ means[1]
    constant = (means[1] @ second @ means[1] - means[0] @ first @ means[0] + np.log(0.4 * 0.6)) / 2
    laws = [
        gx2.from_quadratic_form((second - first) / 2, mean, covariance, linear=linear, constant=constant)
        for mean, covariance in zip(means, covariances, strict=True)
    ]
    assert round(float(laws[0].cdf(0.0) + laws[1].sf(0.0)) / 2, 4) == 0.2776


# the form of a figure of Das (2025), "New methods to compute the generalized chi-square distribution", Journal of
# Statistical Computation and Simulation 95
COMPARED = {"weights": [1.0, -5.0, 2.0], "dof": [1, 2, 3], "nc": [2.0, 3.0, 7.0], "normal": 10.0, "shift": 5.0}
LOWER = [
    *(0.01392500440113, 0.01929168137715, 0.02657931965587, 0.03640079972138, 0.04952618632383, 0.06690244895889),
    *(0.08966282367825, 0.119115335281, 0.1566936736055, 0.2038425235699, 0.2617913771425, 0.3311574251489),
    0.4113602726121,
]
UPPER = [
    *(0.4365559502317, 0.3731300291183, 0.3117897995246, 0.2544930744588, 0.202835207933, 0.1578711910463),
    *(0.1200501333073, 0.08926104368856, 0.06495784729285, 0.04631882479789, 0.03240043242516, 0.02226000918375),
    0.01503772865268,
]


def test_published_tails_of_a_figure():
    """Tails agree with those that are plotted in a figure of Das (2025), whose numbers are in the toolbox gx2.

    From the quantile 0.01 to the median, and from there to the quantile 0.99, the points are equidistant, and the tails
    differ by at most 1e-13. Further out, the distances of the points from zero are a geometric sequence. There the
    logarithms of the tails are compared, as in the figure; the last of the published values has only 10 correct digits.
    """
    low, median, high = gx2.ppf([0.01, 0.5, 0.99], **COMPARED)
    below, above = np.linspace(low, median, 15)[1:-1], np.linspace(median, high, 15)[1:-1]
    np.testing.assert_allclose(gx2.cdf(below, **COMPARED), LOWER, rtol=0, atol=1e-13)
    np.testing.assert_allclose(gx2.sf(above, **COMPARED), UPPER, rtol=0, atol=1e-13)
    below, above = -np.geomspace(-low, 10**4.7, 20)[1:7], np.geomspace(high, 10**4.5, 20)[1:6]
    lower = [-2.808620902414096, -4.02330086609734, -5.837728350595254, -8.530822566792189, -12.50246713152919]
    upper = [-3.207539557279097, -5.154037686446483, -8.19043509120567, -12.80596175147792, -19.687229306727538]
    found = gx2.logcdf(below, **COMPARED) / np.log(10)
    np.testing.assert_allclose(found, [*lower, -18.324338854498716], rtol=2e-9)
    np.testing.assert_allclose(gx2.logsf(above, **COMPARED) / np.log(10), upper, rtol=2e-9)


@pytest.mark.parametrize(
    ("x", "tail", "published"),
    [
        *((0.008084572766502885, "cdf", 6.71088252942787e-07), (0.03752526267752975, "cdf", 1.4493051794789733e-05)),
        *((0.17417684022240848, "cdf", 0.00031553388136625944), (0.8084572766502887, "cdf", 0.0070406887623499365)),
        *((3.7525262677529754, "cdf", 0.1474404208075346), (9.084572766502886, "sf", 0.4246459997212198)),
        *((20.774182798182107, "sf", 0.03169667018513159), (53.288109330105314, "sf", 1.229822555017187e-06)),
        *((93.40135800823099, "sf", 4.952313655096343e-13), (125.29480251985095, "sf", 1.85972145551611e-18)),
    ],
)
def test_published_tails_of_noncentral_chi2(x, tail, published):
    """Tails of a noncentral chi-square variable agree with numbers in a figure of Das (2025), to a relative 1e-14.

    The variable has 4 degrees of freedom and the noncentrality 5. `tail` is "cdf" or "sf", the lower or upper tail
    at `x`, and `published` is its value.
    """
    assert getattr(gx2, tail)(x, [1.0], 4, 5.0) == pytest.approx(published, rel=1e-14)


@pytest.mark.parametrize(
    ("step", "published"),
    [(0, 1.071734393201875), (4, 12.09814392867973), (8, 136.5684328574875), (18, 58469.48562350951)],
)
def test_published_discriminability(step, published):
    """The discriminability of two normal distributions agrees with Das (2025), also if it is as large as 58 469.

    Discriminability d' is defined by the least error rate of a classification, which is the upper tail of a
    standard normal variable at d' / 2. For the largest d', the error rate is 10**-185589277. `published` is the
    published d'. The means of the distributions differ by 10**(5 `step` / 19) in each coordinate.
    """
    covariance = np.array([[1.0, 0.5, 0.7], [0.5, 2.0, 1.0], [0.7, 1.0, 3.0]])
    difference = 10 ** (5 * step / 19) * np.ones(3)
    normal_vector = np.linalg.solve(covariance, difference)
    law = gx2.from_quadratic_form(np.zeros((3, 3)), np.zeros(3), covariance, linear=normal_vector)
    error = law.logsf(normal_vector @ difference / 2)
    assert error == pytest.approx(special.log_ndtr(-published / 2), rel=1e-13)


@pytest.mark.parametrize("form", [DAVIES, README], ids=["Davies", "chi2comb"])
def test_agrees_with_chi2comb(chi2comb, form):
    terms = [chi2comb.ChiSquared(*term) for term in zip(form["weights"], form.get("nc"), form["dof"], strict=True)]
    for x in gx2.ppf([0.01, 0.3, 0.8], **form):
        cdf, fault, _ = chi2comb.chi2comb_cdf(x, terms, form.get("normal", 0.0), lim=10**7, atol=1e-8)
        assert fault == 0
        assert gx2.cdf(x, **form) == pytest.approx(cdf, abs=1e-8)


# --- symmetries -------------------------------------------------------------------------------------------------------


@forms
def test_reflection(form):
    full, x = changed(form), points(form)
    mirror = {**full, "weights": -full["weights"], "shift": -full["shift"]}
    np.testing.assert_allclose(gx2.logsf(-x, **mirror), gx2.logcdf(x, **full), **CLOSE)
    np.testing.assert_allclose(gx2.logcdf(-x, **mirror), gx2.logsf(x, **full), **CLOSE)
    np.testing.assert_allclose(gx2.logpdf(-x, **mirror), gx2.logpdf(x, **full), **CLOSE)
    np.testing.assert_allclose(gx2.ppf(TAILS, **mirror), -gx2.isf(TAILS, **full), rtol=1e-12)


@forms
def test_offset(form):
    # 64 more in x and in the shift loses at most six bits of x.
    full, x = changed(form), np.round(points(form) * 2.0**20) / 2.0**20
    moved = {**full, "shift": full["shift"] + 64.0}
    np.testing.assert_array_equal(gx2.logsf(x + 64.0, **moved), gx2.logsf(x, **full))
    np.testing.assert_array_equal(gx2.logpdf(x + 64.0, **moved), gx2.logpdf(x, **full))


@forms
@pytest.mark.parametrize("factor", [2.0**-300, 0.37, 2.0**400])
def test_scale(form, factor):
    full, x = changed(form), points(form)
    scaled = {**full, **{name: factor * full[name] for name in ("weights", "normal", "shift")}}
    np.testing.assert_allclose(gx2.logsf(factor * x, **scaled), gx2.logsf(x, **full), rtol=1e-12, atol=1e-11)
    np.testing.assert_allclose(gx2.logcdf(factor * x, **scaled), gx2.logcdf(x, **full), rtol=1e-12, atol=1e-11)


@forms
def test_permutation(form):
    full, x = changed(form), points(form)
    order = np.random.default_rng(5).permutation(full["weights"].size)
    shuffled = {k: v if np.ndim(v) == 0 else np.asarray(v)[order] for k, v in full.items()}
    np.testing.assert_allclose(gx2.logsf(x, **shuffled), gx2.logsf(x, **full), **CLOSE)


def test_equal_weights_merge():
    x = [-40.0, -0.1, 3.0, 40.0]
    apart = gx2.logsf(x, [2.0, -1.0, 2.0, -1.0], [1, 2, 3, 0.5], [0.5, 0, 4, 1], 0.3)
    np.testing.assert_allclose(apart, gx2.logsf(x, [-1.0, 2.0], [2.5, 4], [1, 4.5], 0.3), rtol=1e-14)


@forms
def test_tails_sum_to_one(form):
    x = points(form)
    np.testing.assert_allclose(gx2.sf(x, **form) + gx2.cdf(x, **form), 1, rtol=1e-12)


@forms
def test_round_trip(form):
    np.testing.assert_allclose(gx2.sf(gx2.isf(TAILS[:5], **form), **form), TAILS[:5], rtol=1e-12)
    np.testing.assert_allclose(gx2.cdf(gx2.ppf(TAILS[:5], **form), **form), TAILS[:5], rtol=1e-12)


@pytest.mark.parametrize("name", [name for name in FORMS if name != "many"])
def test_quantiles_of_many_probabilities_are_those_of_each(name):
    """For 80 probabilities in one call, `isf` and `ppf` return different quantiles, where the tail is the probability.

    More than 48 quantiles are mostly interpolated, and fewer are searched one by one. The tolerance is a relative
    1e-12, and the effect of rounding the quantile. `name` is the key of a distribution in FORMS.
    """
    p = np.concatenate([np.linspace(0.01, 0.99, 40), np.geomspace(1e-100, 1e-3, 40)])
    for find, tail in ((gx2.isf, gx2.sf), (gx2.ppf, gx2.cdf)):
        x = find(p, **FORMS[name])
        rounding = gx2.pdf(x, **FORMS[name]) * np.spacing(np.abs(x) + abs(FORMS[name].get("shift", 0.0)))
        assert np.all(np.abs(tail(x, **FORMS[name]) - p) <= 1e-12 * p + rounding)
        assert np.all(np.diff(np.sort(x)) > 0)


@pytest.mark.parametrize(
    "form",
    [
        {"weights": [1.0, -1.0], "dof": 0.5},
        {"weights": [1.0, 0.5, -0.7]},
        {"weights": [1.0, -0.4], "nc": 2.0, "shift": -3.0},
        {"weights": (-1.0) ** np.arange(10) / np.arange(1, 11)},
        {"weights": [*1 / np.arange(1, 51), *-1 / np.arange(1, 51)]},
        {"weights": (-1.0) ** np.arange(10) / np.arange(1, 11), "normal": 0.5},
        {"weights": [1.0, 0.3], "normal": 0.01},
        {"weights": [1.0, 0.5], "dof": 0.3},
    ],
)
def test_quantiles_across_the_center_need_few_searches(form, monkeypatch):
    """Of 1000 quantiles in one call, at most 100 are searched, and they are as accurate as those of single calls.

    The probabilities lie evenly between 0.001 and 0.999. The smaller tail at a quantile has a relative error of at most
    1e-12 besides the effect of rounding the quantile. Every 37th quantile is compared with that of a single call, to
    twice this accuracy. `form` has the parameters of the distribution.
    """
    p, searched, search = np.linspace(0.001, 0.999, 1000), [], quantiles.search
    least, shift = np.minimum(p, 1 - p), abs(form.get("shift", 0.0))
    monkeypatch.setattr(quantiles, "search", lambda *arguments: searched.append(1) or search(*arguments))
    for find, tail, other in ((gx2.isf, gx2.sf, gx2.cdf), (gx2.ppf, gx2.cdf, gx2.sf)):
        searched.clear()
        x = find(p, **form)
        assert len(searched) <= 100
        density = gx2.pdf(x, **form)
        allowed = 1e-12 * least + 3e-16 * (np.abs(x) + shift) * density
        off = np.where(p < 0.5, tail(x, **form) - p, other(x, **form) - (1 - p))
        assert np.all(np.abs(off) <= allowed)
        apart = x[::37] - [find(q, **form) for q in p[::37]]
        assert np.all(np.abs(apart) * density[::37] <= 2 * allowed[::37])


@pytest.mark.parametrize(
    "form", [{"dof": 3}, {"dof": 100}, {"dof": 1e4}, {"dof": 1e6}, {"nc": 1e4}, {"weights": [1.0, -0.5], "dof": 1e4}]
)
def test_round_trip_of_many_far_quantiles(form):
    """For 400 probabilities down to 1e-280 in one call, the tail at each result of `isf` and `ppf` is the probability.

    The error is at most a relative 1e-12 and the effect of rounding the quantile, which is large for many degrees of
    freedom. `form` has the parameters of the distribution.
    """
    p, form = np.geomspace(1e-280, 0.4, 400), {"weights": [1.0], **form}
    for find, log_tail in ((gx2.isf, gx2.logsf), (gx2.ppf, gx2.logcdf)):
        x = find(p, **form)
        rounding = 3e-16 * np.abs(x) * np.exp(gx2.logpdf(x, **form) - np.log(p))
        assert np.all(np.abs(log_tail(x, **form) - np.log(p)) <= 1e-12 + rounding)


@pytest.mark.parametrize("name", ["pair", "mixed", "all", "many"])
@pytest.mark.parametrize("logp", [-1e3, -1e6])
def test_round_trip_beyond_doubles(name, logp):
    assert gx2.logsf(gx2.ilogsf(logp, **FORMS[name]), **FORMS[name]) == pytest.approx(logp, rel=1e-12)


@pytest.mark.parametrize("weights", [[], [-1.0], [1e-12]])
def test_round_trip_over_hundreds_of_decades(weights):
    """If a normal term gives the upper tail, the quantile of a log probability has it, however far down it is."""
    logp = -(10.0 ** np.arange(1, 306, 7))
    x = [gx2.ilogsf(each, weights, normal=1) for each in logp]
    np.testing.assert_allclose(gx2.logsf(x, weights, normal=1), logp, rtol=1e-12)


@forms
def test_density_is_the_slope(form):
    # Over a step of 1e-3 in log sf a central difference is off by about 1e-6 / 6, and by 1e-12 / 1e-3 from rounding.
    x = gx2.isf([0.4, 1e-3, 1e-30], **form)
    step = 1e-3 * gx2.sf(x, **form) / gx2.pdf(x, **form)
    slope = (gx2.sf(x - step, **form) - gx2.sf(x + step, **form)) / (2 * step)
    np.testing.assert_allclose(gx2.pdf(x, **form), slope, rtol=1e-6)


@pytest.mark.parametrize("name", ["pair", "mixed", "all"])
def test_noncentral_is_a_poisson_mixture(name):
    """If the first chi-square variable of a sum is noncentral, the upper tail of the sum is a Poisson mixture of tails.

    In the mixture, the first variable is central and has dof + 2 N degrees of freedom, where N is a Poisson variable
    whose mean is half the noncentrality. The tolerance is a relative 1e-10. `name` is the key of a distribution in
    FORMS.
    """
    full = changed(FORMS[name])
    dof, x, nc = np.broadcast_to(full["dof"], full["weights"].shape), points(FORMS[name])[:6], 1.5
    central = {**full, "nc": np.where(np.arange(dof.size) == 0, 0.0, full["nc"])}
    more = 2 * np.eye(dof.size)[0]
    mixed = sum(stats.poisson.pmf(n, nc / 2) * gx2.sf(x, **{**central, "dof": dof + n * more}) for n in range(25))
    shown = gx2.sf(x[:4], **{**central, "nc": np.where(np.arange(dof.size) == 0, nc, full["nc"])})
    np.testing.assert_allclose(shown, mixed[:4], rtol=1e-10)


@pytest.mark.parametrize("normal", [1e-6, 1e-9, 1e-100])
def test_small_normal_term(normal):
    # The normal term changes the tail by normal^2 / 2 times the slope of the density; relative to the tail the slope is
    # at most 25 at these points.
    x, form = np.array([-3.0, -0.4, 0.3, 3.0, 80.0]), {"weights": [1.0, -0.5]}
    near, limit = gx2.sf(x, **form, normal=normal), gx2.sf(x, **form)
    np.testing.assert_allclose(near, limit, rtol=12.5 * normal**2 + 1e-12)


def test_normal_term_is_a_convolution():
    # With 20 degrees of freedom the tail is smooth enough for Gauss and Hermite's rule.
    form, x = {"weights": [1.0, -0.5], "dof": [20.0, 30.0]}, np.array([-10.0, 5.0, 60.0])
    z, mass = np.polynomial.hermite_e.hermegauss(60)
    smooth = [mass @ gx2.sf(each - 2.0 * z, **form) / np.sqrt(2 * np.pi) for each in x]
    np.testing.assert_allclose(gx2.sf(x, **form, normal=2.0), smooth, rtol=1e-10)


def test_clusters_change_nothing(monkeypatch):
    from egm._gx2 import form as module

    form, x = FORMS["many"], points(FORMS["many"])
    clustered = gx2.logsf(x, **form), gx2.logcdf(x, **form), gx2.logpdf(x, **form)
    monkeypatch.setattr(module, "_UNCLUSTERED", 10_000)
    direct = gx2.logsf(x, **form), gx2.logcdf(x, **form), gx2.logpdf(x, **form)
    np.testing.assert_allclose(clustered, direct, **CLOSE)


@pytest.mark.slow
@forms
def test_moments_agree_with_simulation(form):
    draws = gx2.rvs(**form, size=20_000, rng=np.random.default_rng(8))
    assert abs(draws.mean() - gx2.mean(**form)) < 4 * np.sqrt(gx2.var(**form) / draws.size)
    for p in (0.01, 0.5):
        assert abs(np.sum(draws > gx2.isf(p, **form)) - p * draws.size) < 4 * np.sqrt(p * (1 - p) * draws.size)


# --- the estimated error ----------------------------------------------------------------------------------------------

TERM = st.tuples(
    st.floats(1e-3, 1e3), st.sampled_from([-1.0, 1.0]), st.floats(0.5, 20.0), st.sampled_from([0.0, 0.5, 30.0])
)


@settings(max_examples=60)
@given(
    st.lists(TERM, min_size=1, max_size=6),
    st.sampled_from([0.0, 0.01, 1.0, 50.0]),
    st.sampled_from([-20.0, -3.0, -0.5, 0.1, 1.0, 4.0, 30.0]),
)
def test_estimated_error_covers_the_difference_of_contours(terms, normal, distance):
    """Tails that are integrated along two different contours differ by at most the sum of their estimated errors.

    `terms` are random parameters of the chi-square variables in a sum, and `normal` is the factor of a normal
    variable that is added. The tail is taken at the mean plus `distance` standard deviations.
    """
    sizes, signs, dof, nc = np.array(terms).T
    form = {"weights": sizes * signs, "dof": dof, "nc": nc, "normal": normal}
    x = gx2.mean(**form) + distance * np.sqrt(gx2.var(**form))
    for function in (gx2.logsf, gx2.logcdf):
        value, error = function(x, **form, full_output=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(contour, "_TILT", 0.6)
            other, more = function(x, **form, full_output=True)
        assert value == other or abs(value - other) <= error + more


ONCE_WRONG = [  # points, and weights, degrees of freedom, noncentralities and normal term
    (1.0939343692492832e-07, [-0.9986261374204112, 0.9993318858180056], [0.05, 4.9518329315675145e-06], 0.0, 0.0),
    (0.000687178540450950, [0.10909652, -0.02485807], [0.28308186, 0.00149101], 0.0, 0.0),
    (14.88746588345019, [1.173, 0.206, 2.563], [0.3, 0.3, 1.0], [0.5, 50.0, 0.0], 1.0),
    (0.4954, [0.006, 0.233, 0.002], [1.0, 0.3, 1.0], [50.0, 0.5, 0.5], 0.01),
]


CERTIFIED = [
    *((x, dict(zip(("weights", "dof", "nc", "normal"), rest, strict=True))) for x, *rest in ONCE_WRONG),
    *((2.5, FORMS[name]) for name in FORMS if name not in ("negative", "many")),
]


@pytest.mark.parametrize(("x", "form"), CERTIFIED)
def test_estimated_error_covers_a_certified_one(x, form):
    """The tail, the density and a quantile lie in the intervals of `gx2.certify`, widened by the estimated errors.

    `gx2.certify` returns an interval that is proven to contain the exact result. The estimated error is that which
    `gx2.sf`, `gx2.pdf` and `gx2.isf` state for their results. `form` has the parameters of the distribution. In the
    first cases, earlier versions were wrong by up to 2.6e-8, with estimates that were smaller.
    """
    for function in (gx2.sf, gx2.pdf):
        value, error = function(x, **form, full_output=True)
        proved = gx2.certify(x, **form, of=function.__name__)
        assert proved.low * (1 - error) <= value <= proved.high * (1 + error)
    p = 0.3 * float(gx2.sf(x, **form))
    for quantile, error in (gx2.isf(p, **form, full_output=True), gx2.ilogsf(np.log(p), **form, full_output=True)):
        proved = gx2.certify(p, **form, of="isf")
        assert proved.low - error <= quantile <= proved.high + error


@pytest.mark.parametrize(("x", "form"), CERTIFIED)
def test_estimated_errors_of_gradients_cover_certified_ones(x, form):
    """The derivatives of a tail differ from certified ones by at most their estimated errors.

    With f_k for the density with k more degrees of freedom of the j-th variable, the derivative by its noncentrality is
    weights_j f_2, and that by its weight is dof_j f_2 + nc_j f_4.
    """
    full = changed(form)
    dof, nc = (np.broadcast_to(full[name], full["weights"].shape) for name in ("dof", "nc"))
    found, errors = gx2.gradients(x, **full, full_output=True)
    for j, row in list(enumerate(np.eye(dof.size)))[:3]:
        once, twice = (gx2.certify(x, **{**full, "dof": dof + more * row}, of="pdf") for more in (2, 4))
        rounding = 4e-16 * found.weights[j]  # of dof + 2, and of the sum
        low, high = (dof[j] * one + nc[j] * two for one, two in ((once.low, twice.low), (once.high, twice.high)))
        assert low - errors.weights[j] - rounding <= found.weights[j] <= high + errors.weights[j] + rounding
        low, high = sorted([full["weights"][j] * once.low, full["weights"][j] * once.high])
        assert low - errors.nc[j] <= found.nc[j] <= high + errors.nc[j]


@pytest.mark.parametrize("distance", [-10.0, -1.0, -1e-3, 1e-9, 0.5, 3.0, 30.0])
def test_estimated_errors_of_the_derivative_by_the_normal_term(distance):
    """The derivative by the standard deviation t of the normal term in 1.5 Y + t Z agrees with a closed form.

    Y is an exponential variable with the mean 2, Z is standard normal, and the derivative is -t f'(x). The density f
    has f'(x) = (g(x) - f(x)) / 3, where g is the density of t Z. The derivative is 0 at the mode.
    """
    form = {"weights": [1.5], "dof": 2, "normal": 2.0}
    found, errors = gx2.gradients(distance, **form, full_output=True)
    with mp.workdps(60):
        x, rate, t = mpf(distance), mpf(1) / 3, mpf(2)
        density = rate * mp.exp(rate * (rate * t * t / 2 - x)) * mp.ncdf(x / t - rate * t)
        exact = -t * rate * (mp.npdf(x, 0, t) - density)
        assert abs(mpf(found.normal) - exact) <= errors.normal <= 1e-12 * density
        assert abs(mpf(found.shift) - density) <= errors.shift


@forms
def test_estimated_errors_of_many_quantiles_cover_their_differences(form):
    """Quantiles that are interpolated differ from those that are searched by at most the sum of the estimated errors.

    Arrays of many quantiles are interpolated. `form` has the parameters of the distribution.
    """
    p = np.geomspace(1e-9, 0.9, 200)
    for function in (gx2.isf, gx2.ppf):
        x, error = function(p, **form, full_output=True)
        assert x.shape == error.shape == p.shape
        for j in range(0, p.size, 40):
            searched, more = function(p[j], **form, full_output=True)
            assert abs(x[j] - searched) <= error[j] + more
            assert error[j] <= 1e-10 * (abs(x[j]) + np.sqrt(gx2.var(**form)))


@pytest.mark.parametrize("shift", [0.0, -7.0])
@pytest.mark.parametrize(("dof", "largest"), [(0.25, 1e-40), (1.0, 1e-12), (4.0, 1e-12)])
def test_estimated_error_of_a_median_at_0(dof, largest, shift):
    # The median of the difference of two equal variables is 0, where the density is infinite for dof <= 1.
    x, error = gx2.isf(0.5, [1.0, -1.0], dof, shift=shift, full_output=True)
    assert abs(x - shift) <= error <= largest - 1e-14 * shift


def test_estimated_errors_at_the_ends():
    """Results that follow from the support alone have no error, and those beyond the doubles say so."""
    assert gx2.isf([0.0, 1.0], [1.0, 0.5], shift=3.0, full_output=True)[1].tolist() == [0.0, 0.0]
    assert gx2.ppf(1e-300, [1.0], 0.1, full_output=True) == (0.0, np.nextafter(0.0, 1.0))
    assert gx2.isf(1e-300, [1e307], 4, full_output=True) == (np.inf, np.inf)
    density, error = gx2.pdf([-np.inf, 0.0, 0.5, 1.0], [1.0], shift=0.5, full_output=True)
    assert density[:3].tolist() == [0.0, 0.0, np.inf]
    assert error[:3].tolist() == [0.0, 0.0, 0.0]
    assert 0 < error[3] < 1e-12
    assert gx2.logpdf(0.0, [1.0, -1.0], full_output=True) == (np.inf, 0.0)
    log_density, error = gx2.logpdf(0.0, [1.0, 2.0], full_output=True)  # the density is exp(-x / 2) / 2 / sqrt(2) at 0
    assert abs(log_density + 1.5 * np.log(2)) <= error < 1e-14
    _, errors = gx2.gradients(1e44, [1.0, 0.5], full_output=True)
    assert not np.any(np.hstack(errors))


@pytest.mark.parametrize("log_p", [-1e6, -1e12, -1e16, -1e20, -1e200])
def test_estimated_errors_of_far_quantiles(log_p):
    # For two degrees of freedom, log P[Q > x] is -x / 2; from -1e16 on, this logarithm alone has large errors.
    x, error = gx2.ilogsf(log_p, [1.0], 2, full_output=True)
    assert abs(x + 2 * log_p) <= error <= 1e-13 * x
    x, error = gx2.ilogsf(log_p, [], normal=2.0, full_output=True)
    with mp.workdps(300):  # log P[Z > z] is -z^2 / 2 - log(z) - log(2 pi) / 2 - 1 / z^2, up to terms of the order z^-4
        z = mp.sqrt(-2 * mpf(log_p))
        for _ in range(30):
            z = mp.sqrt(-2 * (log_p + mp.log(z) + mp.log(2 * mp.pi) / 2 + 1 / z**2))
        assert abs(mpf(float(x)) - 2 * z) <= error <= 1e-11 * x


@pytest.mark.parametrize(("x", "dof"), [(1e-150, 5), (1e-200, 4), (1e-280, 3)])
def test_gradients_near_the_end_of_the_support(x, dof):
    # Beside the height of the integrand, which underflows here, the density is large.
    found, errors = gx2.gradients(x, [1.0], dof, full_output=True)
    assert abs(found.shift - gx2.pdf(x, [1.0], dof)) <= errors.shift <= 1e-11 * found.shift


@pytest.mark.slow
@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("x", [-9.0, -5.0, -2.0, 0.0, 2.0])
def test_many_small_weights_against_a_large_one(x, sign):
    """Near the mean of Q = 10 Y - R, tails of Q lie in the intervals that `gx2.certify` proves.

    Y is the square of a standard normal variable, and R is a sum of 100 000 squares with the weight 1e-4, so that
    its mean is 10. The squares of R are given as one chi-square variable, or one by one. `x` is the point; if
    `sign` is -1, the tails are those of -Q at -x.
    """
    weights, dof = sign * np.array([10.0, -1e-4]), [1, 100_000]
    proved = gx2.certify(sign * x, weights, dof)
    for tail in (gx2.sf(sign * x, weights, dof), gx2.sf(sign * x, np.repeat(weights, dof))):
        assert proved.low * (1 - 1e-12) <= tail <= proved.high * (1 + 1e-12)
    assert gx2.isf(tail, weights, dof) == pytest.approx(sign * x, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("far", [20.0, 34.0, 36.0])
@pytest.mark.parametrize(
    ("weights", "dof"), [([0.3, -0.7], 1e6), ([0.3, -0.7], 3.5e6), ([1.0, -0.9], 1e6), ([0.5, -0.999, -1.0], 1e6)]
)
def test_far_tails_of_millions_of_degrees_of_freedom(weights, dof, far):
    """Far tails lie in the intervals of `gx2.certify`, up to 1e-12, although large terms cancel in the computation.

    Each chi-square variable has `dof` degrees of freedom. The tail is the upper one at the mean plus `far` standard
    deviations, and for the negative `weights` the lower one on the other side.
    """
    weights = np.array(weights)
    x = gx2.mean(weights, dof) + far * np.sqrt(gx2.var(weights, dof))
    proved = gx2.certify(x, weights, dof)
    for tail in (gx2.sf(x, weights, dof), gx2.cdf(-x, -weights, dof)):
        assert proved.low * (1 - 1e-12) <= tail <= proved.high * (1 + 1e-12)


# --- derivatives ------------------------------------------------------------------------------------------------------

SMALL = [name for name in FORMS if name not in ("harmonic", "many")]


def slope(function, at, step):
    """Return the derivative of `function` at the number `at`, extrapolated from two central differences.

    The error is proportional to `step`**4, apart from the rounding error of `function` divided by `step`.
    """
    near, far = ((function(at + h) - function(at - h)) / (2 * h) for h in (step, 2 * step))
    return (4 * near - far) / 3


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("p", [0.8, 0.3, 1e-3, 1e-30])
def test_gradients_are_slopes(name, p):
    """The derivatives of the upper tail from `gx2.gradients` agree with finite differences, to a relative 1e-8.

    They are the derivatives with respect to the point x, the weights, the noncentralities and the normal term of the
    distribution FORMS[name], at the x where the upper tail is `p`.
    """
    full = changed(FORMS[name])
    d = full["weights"].size
    full |= {key: np.broadcast_to(np.asarray(full[key], float), d) for key in ("dof", "nc")}
    x = float(gx2.isf(p, **full))
    found = gx2.gradients(x, **full)

    def along(key, j):
        def tail(value):
            moved = np.array(full[key], float)
            moved[j] = value
            return gx2.sf(x, **{**full, key: moved if moved.ndim else float(moved)})

        return tail

    scale = 1e-3 * min(p, 1 - p) / -found.x  # over which the logarithm of the smaller tail changes by about 1e-3
    assert found.x == pytest.approx(slope(lambda y: gx2.sf(y, **full), x, scale), rel=1e-8, abs=0)
    for j in range(d):
        step = 1e-3 * min(abs(full["weights"][j]), min(p, 1 - p) / abs(found.weights[j]))
        there = slope(along("weights", j), full["weights"][j], step)
        assert found.weights[j] == pytest.approx(there, rel=1e-8, abs=0)
        if full["nc"][j]:
            there = slope(along("nc", j), full["nc"][j], 1e-3 * min(full["nc"][j], min(p, 1 - p) / abs(found.nc[j])))
            assert found.nc[j] == pytest.approx(there, rel=1e-8, abs=0)
    if full["normal"]:
        step = 1e-3 * min(full["normal"], min(p, 1 - p) / abs(found.normal))
        there = slope(along("normal", ()), full["normal"], step)
        assert found.normal == pytest.approx(there, rel=1e-8, abs=0)


@forms
def test_gradients_know_the_scale(form):
    """The derivatives of `gx2.gradients`, each multiplied by its variable, add up to 0, as Euler's theorem says.

    The variables are x and all parameters in `form` with a unit: weights, normal term and shift. The reason is that the
    tail does not change if all of these get another unit.
    """
    full = changed(form)
    for x in points(form)[[0, 2, 3, 7]]:
        found = gx2.gradients(x, **full)
        units = [full[name] * getattr(found, name) for name in ("weights", "normal", "shift")]
        parts = np.hstack([x * found.x, *units])
        assert abs(parts.sum()) <= 1e-11 * np.abs(parts).sum()


@forms
@pytest.mark.parametrize("factor", [2.0**-900, 2.0**-560, 2.0**-520, 2.0**520, 2.0**560, 2.0**900])
def test_gradients_follow_the_unit(form, factor):
    """If x and all parameters with a unit are multiplied by `factor`, the derivatives by them are divided by it.

    The derivatives by the noncentralities do not change. `form` has the parameters. The factor is a power of two, so
    that nothing is rounded. Without a normal term, the derivative by its standard deviation is 0 in any unit.
    """
    full = changed(form)
    scaled = {**full, **{name: factor * full[name] for name in ("weights", "normal", "shift")}}
    for x in points(form)[[0, 2, 7]]:
        found, other = gx2.gradients(x, **full), gx2.gradients(factor * x, **scaled)
        np.testing.assert_array_equal(other.nc, found.nc)
        for name in ("x", "weights", "normal", "shift"):
            np.testing.assert_array_equal(factor * getattr(other, name), getattr(found, name))
        assert other.normal == 0 or full["normal"]


def test_gradient_of_no_normal_term_beside_a_pole():
    assert gx2.gradients(1e-300, [1.0], 0.5).normal == 0


@pytest.mark.parametrize("name", SMALL)
def test_gradient_of_a_noncentrality_is_half_a_difference(name):
    """The derivative of an upper tail with respect to a noncentrality is half of a difference of two tails.

    The noncentrality is that of one chi-square variable in a sum. One of the two tails is that with 2 more degrees of
    freedom of this variable, and the other is the tail itself. `name` is the key of a distribution in FORMS.
    """
    full = changed(FORMS[name])
    dof = np.broadcast_to(full["dof"], full["weights"].shape)
    for p in (0.5, 1e-6, 1e-100):
        x = float(gx2.isf(p, **full))
        found = gx2.gradients(x, **full).nc
        for j, row in enumerate(2 * np.eye(dof.size)):
            gain = gx2.sf(x, **{**full, "dof": dof + row}) - gx2.sf(x, **full)
            assert found[j] == pytest.approx(gain / 2, rel=1e-9, abs=1e-12 * p)


# --- frozen distributions ---------------------------------------------------------------------------------------------


@forms
def test_methods_are_the_functions(form):
    law, x, p = gx2.rv(**form), points(form), TAILS[:4]
    for name in ("sf", "logsf", "cdf", "logcdf", "pdf", "logpdf", "isf", "ppf"):
        at = p if name in ("isf", "ppf") else x
        np.testing.assert_array_equal(getattr(law, name)(at), getattr(gx2, name)(at, **form))
        both = getattr(law, name)(at, full_output=True)
        np.testing.assert_array_equal(both, getattr(gx2, name)(at, **form, full_output=True))
    assert (law.mean(), law.var()) == (gx2.mean(**form), gx2.var(**form)) == law.stats()
    assert law.std() == np.sqrt(law.var())
    assert law.median() == law.ppf(0.5)
    assert law.interval(0.9) == pytest.approx((law.ppf(0.05), law.isf(0.05)), rel=1e-13)
    draws = gx2.rvs(**form, size=(2, 3), rng=np.random.default_rng(4))
    np.testing.assert_array_equal(law.rvs((2, 3), random_state=4), draws)
    again = eval(repr(gx2.rv(**FORMS["all"])), {"rv": gx2.rv, "array": np.array})
    assert again.sf(3.0) == gx2.sf(3.0, **FORMS["all"])


def test_a_frozen_distribution_has_the_methods_of_scipy_but_those_that_it_names():
    scipy = {name for name in dir(type(stats.chi2(3))) if not name.startswith("_")}
    missing = {name for name in scipy if callable(getattr(stats.chi2(3), name)) and not hasattr(gx2.rv, name)}
    assert missing == {"moment", "expect"}
    assert "Of SciPy's methods, `moment` and `expect` are missing." in " ".join(gx2.rv.__doc__.split())


@pytest.mark.parametrize("size", [2, 3000])
def test_parameters_of_a_frozen_distribution_are_copies(size):
    """If an array that was given to `gx2.rv` is changed later, the distribution that `gx2.rv` returned is unchanged.

    The attributes of the distribution are read-only. The noncentralities are given as a read-only view of one
    number, and this number is changed. `size` is the number of weights; `gx2` gathers 3000 weights in clusters.
    """
    one = np.array(0.3)
    given = np.linspace(1.0, 2.0, size), np.full(size, 2.0), np.broadcast_to(one, size)
    law, same = gx2.rv(*given, normal=0.2), gx2.rv(*(each.copy() for each in given), normal=0.2)
    given[0][:], given[1][:], one[...] = 9.0, np.nan, 9.0
    for shown in (law.weights, law.dof, law.nc):
        with pytest.raises(ValueError, match="read-only"):
            shown[0] = 9.0
    x = same.mean() + same.std()
    assert (repr(law), law.stats(), law.sf(x)) == (repr(same), same.stats(), same.sf(x))
    np.testing.assert_array_equal(law.rvs(3, random_state=1), same.rvs(3, random_state=1))


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda law: pickle.loads(pickle.dumps(law))])
def test_parameters_of_a_copied_distribution_are_read_only(duplicate):
    law = gx2.rv(**FORMS["all"])
    other = duplicate(law)
    for shown in (other.weights, other.dof, other.nc):
        with pytest.raises(ValueError, match="read-only"):
            shown[0] = 9.0
    assert (repr(other), other.sf(3.0)) == (repr(law), law.sf(3.0))


@pytest.mark.parametrize(("dof", "nc"), [(1, 0.0), (2.5, 0.0), (3, 4.0)])
@pytest.mark.parametrize("weight", [2.0, -0.3])
def test_stats_are_those_of_scipy(weight, dof, nc):
    m, v, s, k = (stats.ncx2(dof, nc) if nc else stats.chi2(dof)).stats("mvsk")
    sign = np.sign(weight)
    shown = gx2.rv([weight], dof, nc, shift=5.0).stats("mvsk")
    np.testing.assert_allclose(shown, [weight * m + 5, weight**2 * v, sign * s, k], rtol=1e-12)
    assert gx2.rv([weight], dof, nc).stats("kv") == gx2.rv([weight], dof, nc).stats("mvsk")[:0:-2]


@pytest.mark.parametrize("unit", [1e-200, 1e-90, 1e120, 1e200])
def test_stats_follow_the_unit(unit):
    """If the weights and the normal term are multiplied by `unit`, so are the mean and the standard deviation.

    Skewness and kurtosis do not change. This holds even if powers of the weights overflow or underflow.
    """
    form = {"weights": np.array([1.0, -0.3]), "dof": [2.0, 3.0], "nc": [0.0, 4.0]}
    one, law = (gx2.rv(each * form["weights"], form["dof"], form["nc"], 0.7 * each) for each in (1.0, unit))
    assert law.std() == pytest.approx(unit * one.std(), rel=1e-14, abs=0)
    np.testing.assert_allclose(law.stats("msk"), np.array(one.stats("msk")) * [unit, 1, 1], rtol=1e-14)


@pytest.mark.parametrize("unit", [1e-90, 1e120])
def test_stats_need_no_higher_powers_than_asked(unit):
    np.testing.assert_allclose(gx2.rv([unit]).stats(), [unit, 2 * unit**2], rtol=1e-14)


@pytest.mark.parametrize("unit", [5e-324, 1.0, 8e307])
def test_skewness_and_kurtosis_have_no_unit(unit):
    assert gx2.rv([unit] * 5).stats("sk") == pytest.approx(stats.chi2(5).stats("sk"), rel=1e-14)


def test_entropy_without_a_weight_far_below_the_largest():
    assert gx2.rv([1e200, 1e-150]).entropy() == gx2.rv([1e200]).entropy()


def test_density_beyond_doubles_is_infinite():
    assert gx2.pdf(1.5e-323, [5e-324, 5e-324]) == gx2.rv([5e-324, 5e-324]).pdf(1.5e-323) == np.inf


def test_an_accuracy_error_can_be_sent_to_another_process():
    error = gx2.AccuracyError("too few digits", estimate=0.25)
    for same in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert (type(same), str(same), same.estimate) == (gx2.AccuracyError, "too few digits", 0.25)


@pytest.mark.parametrize("dof", [1e-100, 1e200])
def test_skewness_and_kurtosis_of_extreme_degrees_of_freedom(dof):
    np.testing.assert_allclose(gx2.rv([2.0], dof).stats("sk"), stats.chi2(dof).stats("sk"), rtol=1e-14)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dof", [0.5, 1.5])
def test_cumulants_are_proportional_to_dof_and_nc(dof):
    """They are so even if the sum of `dof` and twice `nc` is too large for a double, and the cumulants are not."""
    m, weights, nc = 2.0**1023, [1e-3, -2e-4, 1e-100], np.array([1.0, 0.5, 1.5])
    one, many = gx2.rv(weights, dof, nc), gx2.rv(weights, m * dof, m * nc)
    np.testing.assert_allclose(many.stats("mvsk"), np.array(one.stats("mvsk")) * [m, m, m**-0.5, 1 / m], rtol=1e-14)
    assert many.std() == pytest.approx(one.std() * m**0.5, rel=1e-14)
    assert many.var() == gx2.var(weights, m * dof, m * nc)


def test_cumulants_add_up():
    law = gx2.rv([1.0, -0.5], [2, 3], normal=2.0)
    _, v, s, k = law.stats("mvsk")
    parts = [(stats.chi2(2), 1.0), (stats.chi2(3), -0.5)]
    for order, value in ((3, s), (4, k)):
        name = {3: "s", 4: "k"}[order]
        cumulant = sum(w**order * float(part.stats(name)) * part.var() ** (order / 2) for part, w in parts)
        assert value * v ** (order / 2) == pytest.approx(cumulant, rel=1e-12)


@pytest.mark.parametrize("dof", [1e-3, 0.02, 0.1, 0.13, 0.14, 0.5, 1, 1.999, 2, 5, 100])
def test_entropy_of_chi_square(dof):
    assert gx2.rv([2.0], dof).entropy() == pytest.approx(stats.chi2(dof, scale=2).entropy(), rel=1e-12, abs=1e-12)


def test_entropy_of_normal_and_of_reflections():
    assert gx2.rv([], normal=3.0).entropy() == pytest.approx(stats.norm(scale=3).entropy(), rel=1e-12)
    assert gx2.rv([-1.0, -0.5]).entropy() == pytest.approx(gx2.rv([1.0, 0.5]).entropy(), rel=1e-12)
    assert gx2.rv([3.0, 1.5]).entropy() == pytest.approx(gx2.rv([1.0, 0.5]).entropy() + np.log(3), rel=1e-12)


@pytest.mark.parametrize(
    ("law", "support"),
    [
        (gx2.rv([1.0], shift=3.0), (3.0, np.inf)),
        (gx2.rv([-1.0, -2.0], shift=3.0), (-np.inf, 3.0)),
        *((law, (-np.inf, np.inf)) for law in (gx2.rv([1.0, -1.0]), gx2.rv([1.0], normal=1e-9), gx2.rv([], normal=1))),
    ],
)
def test_support(law, support):
    assert law.support() == support
    assert (law.isf(1), law.isf(0)) == (law.ppf(0), law.ppf(1)) == support
    low, high = support
    assert (law.sf(low), law.cdf(low), law.sf(high), law.cdf(high)) == (1, 0, 0, 1)
    assert law.pdf(np.array([-np.inf, np.inf])).tolist() == [0, 0]


# --- quadratic forms of normal vectors --------------------------------------------------------------------------------


def example(seed, d=4):
    """Return arguments of `gx2.from_quadratic_form`, as a dictionary, for a random quadratic form of `d` variables.

    `seed` is that of the random numbers.
    """
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((d, d))
    return {
        "A": rng.standard_normal((d, d)),
        "mean": rng.standard_normal(d),
        "cov": root @ root.T,
        "linear": rng.standard_normal(d),
        "constant": rng.standard_normal(),
    }


@pytest.mark.parametrize("rho", [-0.9, -0.3, 0.0, 0.5, 0.99])
def test_product_of_two_normal_variables(rho):
    """The tail at 0 and the density of a product of two standard normal variables agree with closed forms.

    The product is negative with the probability arccos(rho) / pi (Sheppard 1899), where `rho` is the correlation.
    The density contains the Bessel function K_0.
    """
    law = gx2.from_quadratic_form([[0, 1], [0, 0]], cov=[[1, rho], [rho, 1]])
    assert law.cdf(0.0) == pytest.approx(np.arccos(rho) / np.pi, rel=1e-12)
    x, rest = np.array([-2.0, -0.1, 0.3, 5.0]), 1 - rho**2
    exact = np.exp(rho * x / rest - np.abs(x) / rest) * special.k0e(np.abs(x) / rest) / (np.pi * np.sqrt(rest))
    np.testing.assert_allclose(law.pdf(x), exact, rtol=1e-10)


@pytest.mark.parametrize("seed", range(3))
def test_other_basis_changes_nothing(seed):
    """In another orthonormal basis, a quadratic form of a normal vector has equal tails, to a relative 1e-11.

    `seed` chooses the random quadratic form and the basis.
    """
    form = example(seed)
    basis = stats.ortho_group.rvs(4, random_state=seed)
    other = {name: basis @ form[name] @ basis.T for name in ("A", "cov")}
    other |= {name: basis @ form[name] for name in ("mean", "linear")}
    law, turned = gx2.from_quadratic_form(**form), gx2.from_quadratic_form(**form | other)
    x = np.concatenate([law.isf(TAILS[:5]), law.ppf(TAILS[:5])])
    np.testing.assert_allclose(turned.logsf(x), law.logsf(x), rtol=1e-11, atol=1e-11)


def test_whitened_vector_has_the_same_form():
    """A quadratic form of a normal vector x = L z has the same distribution if it is written as a form of z.

    L is a Cholesky factor of the covariance of x, so that the covariance of z is the identity matrix.
    """
    form = example(7)
    root = np.linalg.cholesky(form["cov"])
    A, mean = root.T @ form["A"] @ root, np.linalg.solve(root, form["mean"])
    law = gx2.from_quadratic_form(**form)
    white = gx2.from_quadratic_form(A, mean, linear=form["linear"] @ root, constant=form["constant"])
    x = law.ppf([1e-6, 0.3, 0.9])
    np.testing.assert_allclose(white.cdf(x), law.cdf(x), rtol=1e-11)


@pytest.mark.parametrize("u", [1e4, 1e6, 1e-40, 1e100])
def test_quadratic_form_does_not_depend_on_the_units(u):
    """With other units of the variables of a quadratic form, the tails and the mean stay the same to a relative 1e-11.

    The units of two of the four variables are changed, one by the factor `u`, and one by 1 / `u`.
    """
    form, D = example(2), np.array([1.0, u, 1 / u, 1.0])
    other = {"A": form["A"] / D / D[:, None], "cov": form["cov"] * D * D[:, None]}
    other |= {"mean": form["mean"] * D, "linear": form["linear"] / D}
    law, changed_law = gx2.from_quadratic_form(**form), gx2.from_quadratic_form(**form | other)
    x = np.concatenate([law.isf(TAILS[:5]), law.ppf(TAILS[:5])])
    np.testing.assert_allclose(changed_law.logsf(x), law.logsf(x), rtol=1e-11, atol=1e-11)
    assert changed_law.mean() == pytest.approx(law.mean(), rel=1e-13)


@pytest.mark.parametrize("variance", [0.0, 1e-34, -1e-17])
def test_covariance_that_rounding_has_made_indefinite(variance):
    """In a covariance matrix, a variance below the rounding errors of the largest variance counts as 0.

    A covariance of 1e-16 with another variable, or a tiny negative `variance`, makes the matrix indefinite. This is no
    error: the quadratic form has the distribution of the form without the variable of this `variance`.
    """
    cov = np.array([[1.0, 0.5, 1e-16], [0.5, 1.0, 0.0], [1e-16, 0.0, variance]])
    law = gx2.from_quadratic_form(np.eye(3), cov=cov)
    np.testing.assert_allclose(law.sf([0.1, 30.0]), gx2.sf([0.1, 30.0], [1.5, 0.5]), rtol=1e-13)


def test_largest_quadratic_form():
    law = gx2.from_quadratic_form(np.eye(2) * 1e308)
    np.testing.assert_array_equal(law.weights, 1e308)


@pytest.mark.parametrize(
    "form",
    [
        {"A": np.eye(2) * 1e160, "cov": np.eye(2) * 1e160},
        {"A": np.eye(2), "mean": 1e200},
        {"A": np.full((2, 2), 1.7e308)},
        {"A": np.array([[2.0, 1.0], [1.0, 2.0]]), "linear": 1.7e308},
        {"A": [[1e300]], "linear": 2e304, "constant": -1.5e308},
    ],
)
def test_quadratic_forms_that_overflow_are_named(form):
    with pytest.raises(ValueError, match=r"^A must not be so large"):
        gx2.from_quadratic_form(**form)


@pytest.mark.parametrize("seed", range(3))
def test_quadratic_form_agrees_with_simulation(seed):
    form = example(seed)
    x = np.random.default_rng(seed + 10).multivariate_normal(form["mean"], form["cov"], 100_000)
    draws = np.einsum("ij,jk,ik->i", x, form["A"], x) + x @ form["linear"] + form["constant"]
    law = gx2.from_quadratic_form(**form)
    assert abs(draws.mean() - law.mean()) < 4 * law.std() / np.sqrt(draws.size)
    for p in (0.001, 0.1, 0.5, 0.9):
        # four standard errors of a count of 100,000 draws
        assert abs(np.sum(draws > law.isf(p)) - p * draws.size) < 4 * np.sqrt(p * (1 - p) * draws.size)


def test_special_quadratic_forms():
    line = gx2.from_quadratic_form(np.zeros((2, 2)), [1.0, 2.0], [[2.0, 1.0], [1.0, 3.0]], [1.0, -1.0], 5.0)
    assert (line.weights.size, line.mean(), line.var()) == (0, pytest.approx(4.0), pytest.approx(3.0))
    flat = gx2.from_quadratic_form(np.eye(2), cov=[[1.0, 1.0], [1.0, 1.0]])  # both variables are equal
    np.testing.assert_allclose(flat.sf([0.1, 3.0, 50.0]), stats.chi2.sf(np.array([0.05, 1.5, 25.0]), 1), rtol=1e-12)
    norm = gx2.from_quadratic_form(np.eye(3), mean=2.0)
    np.testing.assert_allclose(norm.sf([5.0, 40.0]), stats.ncx2.sf([5.0, 40.0], 3, 12.0), rtol=1e-10)
    parabola = gx2.from_quadratic_form([[1.0, 0.0], [0.0, 0.0]], linear=[0.0, 3.0])
    assert parabola.normal == pytest.approx(3.0)


def test_rounding_errors_of_a_form_that_cancels_are_no_eigenvalues():
    """For contrasts of nearly equal variables, `from_quadratic_form` returns only the weights of the exact form.

    The form is 3 times the sum of the squared distances of three variables from their mean. So its least value is 0. If
    the variables are equal, the form does not depend on them, and a ValueError is raised.
    """
    A, equal = 3 * np.eye(3) - 1, 1 - 2.0**-26
    law = gx2.from_quadratic_form(A, cov=equal + (1 - equal) * np.eye(3))
    np.testing.assert_allclose(law.weights, 3 * (1 - equal), rtol=2e-7)
    assert law.support() == (0, np.inf)
    for form in ({"A": A}, {"A": A, "linear": [0.1, -0.2, 0.1], "mean": 0.7}):
        with pytest.raises(ValueError, match="a form that does not depend on x"):
            gx2.from_quadratic_form(**form, cov=np.full((3, 3), 2.0))


def test_a_small_eigenvalue_is_kept_beside_a_large_one_of_other_variables():
    """`from_quadratic_form` keeps terms of 1e-11 even if the covariance matrix has an eigenvalue of 268.

    Two of 300 variables nearly agree, and the others are correlated. In a second case, a normal term of 2e-10 is kept
    beside two terms of 2e7 that cancel.
    """
    d, apart = 300, 1e-11
    cov = 0.9 + 0.1 * np.eye(d)
    cov[-2:, :-2] = cov[:-2, -2:] = 0.0
    cov[-1, -2] = cov[-2, -1] = 1 - apart
    A, linear = np.zeros((d, d)), np.zeros(d)
    A[0, 0], A[-2:, -2:], linear[-2:] = 1e-11, [[1, -1], [-1, 1]], (1, -1)
    assert gx2.from_quadratic_form(A, cov=cov).mean() == pytest.approx(1e-11 + 2 * apart, rel=1e-4)
    assert gx2.from_quadratic_form(0 * A, cov=cov, linear=linear).var() == pytest.approx(2 * apart, rel=1e-4)
    far = {"A": np.eye(2), "mean": [1e7, 1], "cov": np.diag([1, 1e-20]), "linear": [-2e7, 0], "constant": 1e14}
    assert gx2.from_quadratic_form(**far).normal == pytest.approx(2e-10, rel=1e-9)


@pytest.mark.parametrize("curvature", [0.3, 1e-3, -1e-4, 1e-6, 1e-17, -1e-20, 1e-300])
@pytest.mark.parametrize("slope", [1.0, 1e5])
def test_small_curvature(curvature, slope):
    """For a standard normal z, a tail of slope * (curvature * z^2 - z) agrees with the sum of two normal tails.

    The normal tails begin at the two values of z at which slope * (curvature * z^2 - z) equals the point of the tail.
    Completing the square subtracts the constant 1 / (4 curvature), which loses digits if it is large. So the allowed
    relative error grows with this constant, and with the distance of the point from the mean. A |curvature| of 1e-17 or
    less counts as 0; then the error is below 1e-12.
    """
    law, x = gx2.from_quadratic_form([[slope * curvature]], linear=-slope), np.array([-0.2, 1.0, 5.0, 37.0])
    found = law.sf(slope * x) if curvature > 0 else law.cdf(-slope * x)
    with mp.workdps(400):
        a = abs(mpf(slope * curvature) / slope)
        roots = [(2 * y / (1 + mp.sqrt(1 + 4 * a * y)), (1 + mp.sqrt(1 + 4 * a * y)) / (2 * a)) for y in map(mpf, x)]
        exact = np.array([float(mp.ncdf(-near) + mp.ncdf(-min(far, 1000))) for near, far in roots])
    canceled = abs(1 / (4 * curvature)) if abs(curvature) > 1e-16 else 0.0
    assert np.all(np.abs(found / exact - 1) < 1e-12 + 2.0**-53 * canceled * (1 + np.abs(x)))


def test_small_curvature_beside_others():
    """A quadratic form's term c z^2 of a normal z is replaced by its mean only if another coefficient is far larger.

    If all coefficients are equally small, no term is replaced.
    """
    x = np.array([-3.0, 0.5, 20.0])
    tiny, none = (gx2.from_quadratic_form(np.diag([1.0, each]), linear=[0.0, 1.0]) for each in (1e-18, 0.0))
    np.testing.assert_array_equal(tiny.sf(x), none.sf(x))
    assert gx2.from_quadratic_form(np.diag([1e-18, 2e-18])).sf(3e-18) == pytest.approx(
        gx2.sf(3.0, [1.0, 2.0]), rel=1e-13
    )
    assert gx2.from_quadratic_form([[1.0]], 1e17).stats() == (1e34, pytest.approx(4e34, rel=1e-15))
    assert gx2.from_quadratic_form([[0.0]], linear=1e-200).normal == 1e-200


@pytest.mark.parametrize(("largest", "slope", "x"), [(-1.0, 2.0, 70.0), *slow((1.0, 74.0, 2000.0), (-1.0, 0.3, 3.0))])
def test_small_curvature_beside_the_largest(largest, slope, x):
    """A tail p of a quadratic form without its tiny eigenvalue c differs from the exact tail by less than a bound.

    The relative difference is above 1e-12, and below c (2 + 4 log(1/p)) f(x) / p, where f is the density. The form is
    largest y^2 + c z^2 + slope z, for normal y and z, with c = 2e-13. The exact tail at `x` is an integral over y.
    """
    curvature, d = 2e-13, 1000
    A, linear = np.zeros((d, d)), np.zeros(d)
    A[0, 0], A[1, 1], linear[1] = largest, curvature, slope
    law = gx2.from_quadratic_form(A, linear=linear)
    log_tail = law.logsf(x)

    def integrand(y):
        rest = x - largest * y * y
        root = 2 * rest / (slope + mp.sqrt(slope**2 + 4 * mpf(curvature) * rest))
        return mp.npdf(y) * mp.ncdf(-root)

    exact = mp.log(2 * mp.quad(integrand, np.linspace(0, 40, 321).tolist()))
    assert 1e-12 < abs(log_tail - exact) < curvature * (2 - 4 * log_tail) * law.pdf(x) / law.sf(x)


@pytest.mark.parametrize(
    ("curvatures", "linear"),
    [([1e-7], 1.0), ([-1e-10], 1.0), ([1e-16], 1.0), ([1.0], 1e11), ([1e-11, 1.0], [1.0, 0.0])],
)
def test_curvature_whose_digits_are_lost_is_refused(curvatures, linear):
    with pytest.raises(ValueError, match=r"^A must not be tiny, .* for the eigenvalue omega = -?1"):
        gx2.from_quadratic_form(np.diag(curvatures), linear=linear)


def test_square_of_a_large_number():
    # Its points have as few digits as the constant of a parabola, so it is not refused.
    law = gx2.from_quadratic_form([[1.0]], 1e8)
    np.testing.assert_allclose(law.sf([1e16, 1e16 + 2e8]), stats.norm.sf([0.0, 1.0]), rtol=1e-7)


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [gx2.sf, gx2.logcdf, gx2.pdf, gx2.isf, gx2.gradients, gx2.conditional_means])
@pytest.mark.parametrize(
    ("name", "bad"),
    [
        *(("normal", bad) for bad in (-1.0, -1e-300, np.nan, np.inf, [1.0], np.ones(2))),
        *(("shift", bad) for bad in (np.nan, np.inf, -np.inf, [1.0], np.zeros((1, 1)))),
        *(("weights", bad) for bad in ([0.0], [1.0, -0.0], [np.nan, -1.0], [-np.inf], -1.0, [[1.0, -1.0]], [])),
        *(("dof", bad) for bad in (0.0, -2.0, [1.0, 2.0, 3.0])),
        *(("nc", bad) for bad in (-1.0, np.nan, [1.0, 2.0, 3.0])),
    ],
)
def test_bad_values_are_named(function, name, bad):
    with pytest.raises(ValueError, match=rf"^{name}(\[.*\])? must"):
        function(0.5, **{"weights": [1.0, -1.0], name: bad})


@pytest.mark.parametrize("bad", ["1", None, True, 1j, [1.0, None]], ids=repr)
@pytest.mark.parametrize("name", ["normal", "shift"])
def test_bad_types_are_named(name, bad):
    with pytest.raises(TypeError, match=rf"^{name} must"):
        gx2.rv([1.0, -1.0], **{name: bad})


@pytest.mark.parametrize("rng", [1, None, np.random], ids=["seed", "None", "module"])
def test_bad_rng_is_named(rng):
    with pytest.raises(TypeError, match=r"^rng must be a numpy\.random\.Generator"):
        gx2.rvs([1.0], size=2, rng=rng)


BAD_FORMS = {
    "A": [np.ones((2, 3)), [1.0, 2.0], [[np.nan]], [[np.inf]], np.zeros((2, 2))],
    "mean": [[1.0, 2.0, 3.0], np.inf, np.zeros((2, 2)), [0.0, np.nan]],
    "cov": [
        *(np.eye(3), [[1.0, 0.5], [0.4, 1.0]], [[1.0, 2.0], [2.0, 1.0]], -np.eye(2), np.zeros((2, 2))),
        *([[np.nan, 0.0], [0.0, 1.0]], [1.0, 1.0], np.ones((3, 2))),
    ],
    "linear": [[1.0], np.nan],
    "constant": [np.inf, [1.0, 2.0]],
}


@pytest.mark.parametrize(("name", "bad"), [(name, bad) for name, many in BAD_FORMS.items() for bad in many])
def test_bad_quadratic_forms_are_named(name, bad):
    singular = {"cov": np.diag([0.0, 1.0])} if name == "mean" and np.any(np.isnan(bad)) else {}
    with pytest.raises(ValueError, match=rf"^{name}\b.* must"):
        gx2.from_quadratic_form(**{"A": np.eye(2), **singular, name: bad})


@pytest.mark.parametrize(
    ("x", "form"), [(3.0, {"weights": [1.0], "shift": 3.0}), (4.0, {"weights": [-1.0], "shift": 3.0}), (np.inf, PAIR)]
)
def test_points_without_a_gradient_are_named(x, form):
    with pytest.raises(ValueError, match=r"^x must"):
        gx2.gradients(x, **form)


@pytest.mark.parametrize("moments", ["", "x", "mvx", "M"])
def test_bad_moments_are_named(moments):
    with pytest.raises(ValueError, match=r"^moments must"):
        gx2.rv([1.0]).stats(moments)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("function", [gx2.sf, gx2.logcdf, gx2.pdf, gx2.isf, gx2.ppf, gx2.gradients])
def test_weights_whose_double_overflows_are_named(function, sign):
    with pytest.raises(ValueError, match=r"^weights must be at most 8.98e307"):
        function(0.5 if function in (gx2.isf, gx2.ppf) else sign, [sign * 9e307])


@pytest.mark.parametrize("weights", [(1e308, -1.0), (-1e308, 1.0), (-1.0, 1e308)])
def test_any_weight_whose_double_overflows_is_named(weights):
    for x in (-1.0, 0.0, 1.0):
        with pytest.raises(ValueError, match=r"^weights must be at most 8.98e307"):
            gx2.sf(x, weights)


def test_moments_of_a_wrong_type_are_named():
    with pytest.raises(TypeError, match=r"^moments must"):
        gx2.rv([1.0]).stats(3)


@pytest.mark.parametrize(
    ("size", "error"),
    [(-1, ValueError), ([2, -3], ValueError), (2.5, TypeError), ([2, 3.5], TypeError), ("a", TypeError)],
)
def test_bad_sizes_are_named(size, error):
    with pytest.raises(error, match=r"^size must"):
        gx2.rv([1.0]).rvs(size)
    with pytest.raises(error, match=r"^size must"):
        gx2.rvs([1.0], size=size, rng=np.random.default_rng(1))


@pytest.mark.parametrize("seed", ["a", -1, 2.5])
def test_bad_seeds_are_named(seed):
    with pytest.raises((TypeError, ValueError), match=r"^random_state must .*, got "):
        gx2.rv([1.0]).rvs(random_state=seed)


@pytest.mark.parametrize("dof", [0.5, 1.0])
@pytest.mark.parametrize("function", [gx2.gradients, gx2.conditional_means])
def test_gradients_at_a_pole_are_refused(function, dof):
    """At the point `shift`, where derivatives may be infinite, `function` of `egm.gx2` raises an AccuracyError.

    The message names the distance of the point from `shift`. Each variable has `dof` degrees of freedom.
    """
    with pytest.raises(gx2.AccuracyError, match=r"at a distance from shift of -?0.0 times"):
        function(3.0, [1.0, -1.0], dof, shift=3.0)


@pytest.mark.parametrize(("x", "weights"), [(1e-320, [1.0, 0.5]), (1e44, [1.0, 0.5])])
def test_distances_that_are_too_small_or_large_for_gradients_are_told(x, weights):
    with pytest.raises(
        gx2.AccuracyError, match=r"at a distance from shift of [0-9.e+-]+ times twice the largest weight"
    ):
        gx2.conditional_means(x, weights)


@pytest.mark.parametrize(
    ("x", "weights", "dof", "normal"), [(-28204071.86, [2607992.05, 5.27], [0.5, 2.5], 1e-6), (1e44, [1.0, 0.5], 1, 0)]
)
def test_gradients_that_underflow_are_zero(x, weights, dof, normal):
    """`gx2.gradients` returns 0 for all derivatives of the tail where the logarithm of the density is below -1e20."""
    gradients = gx2.gradients(x, weights, dof, normal=normal, shift=1.0)
    assert gx2.logpdf(x, weights, dof, normal=normal, shift=1.0) < -1e20
    assert not np.any(np.concatenate([np.atleast_1d(derivative) for derivative in gradients]))


@pytest.mark.parametrize("confidence", [0.0, 1.0, -0.1, np.nan])
def test_bad_confidence_is_named(confidence):
    with pytest.raises(ValueError, match=r"^confidence must"):
        gx2.rv([1.0, -1.0]).interval(confidence)


# --- poles, kinks and the ends of doubles -----------------------------------------------------------------------------


@pytest.mark.parametrize("dof", [0.3, 0.8, 1.0])
def test_density_where_it_is_infinite(dof):
    """`gx2.pdf` is infinite at 0 for the difference of two chi-square variables with `dof` <= 1 degrees of freedom."""
    assert gx2.pdf(0.0, [1.0, -1.0], dof) == np.inf


@pytest.mark.parametrize("weights", [(1e-170, 1e160), (1e-300, 1e300), (3e-162, 1e160), (-1e-20, -2.0), (4.0, 9.0)])
def test_density_at_the_end_is_a_geometric_mean(weights):
    """For w1 X^2 + w2 Y^2 with standard normal X and Y, the density at 0 is 1 / (2 sqrt(w1 w2)).

    The `weights` w1 and w2 have the same sign, so 0 is an end of the support.
    """
    small, large = np.abs(weights)
    assert gx2.pdf(0.0, weights) == pytest.approx(0.5 / (np.sqrt(small) * np.sqrt(large)), rel=1e-12)


def test_density_at_the_end_for_clustered_weights():
    """For 4096 weights and two degrees of freedom in all, the density at 0 is 1/2 over the weights' geometric mean.

    All weights are positive, so 0 is the end of the support. `egm.gx2` gathers so many weights in clusters.
    """
    weights = np.geomspace(0.5, 1.0, 4096)
    assert gx2.pdf(0.0, weights, 2 / 4096) == pytest.approx(0.5 / stats.gmean(weights), rel=1e-12)


@pytest.mark.parametrize("ratio", [1e100, 1e160, 1e250, 1e299])
def test_ratios_of_weights_whose_squares_overflow(ratio):
    """If one weight is `ratio` times another, `sf`, `isf` and `pdf` agree with formulas, even if `ratio`**2 overflows.

    P[X^2 > ratio Y^2], for standard normal X and Y, is an example. The tolerance is a relative 1e-12. Terms that are
    tiny beside others have no effect.
    """
    weights = [1.0, -ratio]
    assert gx2.sf(0.0, weights) == pytest.approx(2 / np.pi * np.arctan(ratio**-0.5), rel=1e-12)
    assert gx2.isf(0.3, weights, 2) == pytest.approx(2 * ratio * np.log(0.7), rel=1e-12)
    assert gx2.pdf(1.0, [1.0, -1 / ratio]) == pytest.approx(stats.chi2.pdf(1.0, 1), rel=1e-12)
    assert gx2.sf(ratio, [1.0], normal=ratio) == pytest.approx(stats.norm.sf(1.0), rel=1e-12)
    assert gx2.isf(1e-9, [1.0], normal=ratio) == pytest.approx(stats.norm.isf(1e-9) * ratio, rel=1e-12)


@pytest.mark.parametrize("form", [{"weights": [1.0, -1e301]}, {"weights": [1e-200], "normal": 1e200}])
@pytest.mark.parametrize("function", [gx2.sf, gx2.pdf])
def test_ratios_that_are_too_large_are_named(function, form):
    with pytest.raises(ValueError, match=r"^weights and normal must"):
        function(1e199, **form)


def test_tail_beyond_a_normal_term_that_underflows():
    """For weight -1e200 and `normal` = 1e-200, which is negligible beside the point 1, `gx2.sf` is 0 at this point."""
    assert gx2.sf(1.0, [-1e200], normal=1e-200) == 0.0


@pytest.mark.parametrize("name", ["dof", "nc"])
@pytest.mark.parametrize("size", [1e30, 1e40, 1e100, 1e150, 1e180, 9e307])
def test_parameters_whose_rounding_is_all_of_a_tail_are_refused(name, size):
    """If rounding of a huge `dof` or `nc` changes a tail by more than a hundredth, an AccuracyError is raised.

    The message says what dof and nc add up to. `name` is the name of the huge parameter, and `size` is its value.
    """
    form, x = {"weights": [1.0], name: size}, size * (1 + 1e-14)
    for function, value in ((gx2.sf, x), (gx2.pdf, x), (gx2.cdf, x), (gx2.isf, 0.3), (gx2.ppf, 1e-9)):
        with pytest.raises(gx2.AccuracyError, match=r"dof and nc add up to"):
            function(value, **form)


@pytest.mark.filterwarnings("error")
def test_what_is_too_large_for_a_double_is_infinite():
    """Moments and quantiles that are too large for a double are infinite, without a warning.

    `gx2.sf`, and other quantiles of the same distribution, still agree with SciPy.
    """
    assert gx2.mean([1e308] * 2) == gx2.var([1e200]) == gx2.var([1.0], normal=1e200) == np.inf
    assert gx2.mean([1e308, 1e308, -1e308]) == 1e308
    assert gx2.mean([1e308], dof=2, shift=-1e308) == gx2.rv([0.5] * 4, dof=1e308, shift=-1e308).mean() == 1e308
    assert gx2.mean([1e308], nc=2, shift=-1.5e308) == pytest.approx(1.5e308, rel=1e-15)
    assert gx2.rv([1e300]).stats() == (1e300, np.inf)
    assert gx2.sf(1e308, [8e307] * 3) == pytest.approx(stats.chi2.sf(1.25, 3), rel=1e-12)
    p = np.linspace(0.001, 0.999, 60)
    found = gx2.isf(p, [8e307])
    assert np.isinf(found[p < 0.1]).all()
    np.testing.assert_allclose(found[p > 0.2], 8e307 * stats.chi2.isf(p[p > 0.2], 1), rtol=1e-11)


@pytest.mark.parametrize("x", [1e25, 1e100, 1e308])
def test_logarithms_of_the_farthest_tails(x):
    """For a squared standard normal variable, `gx2.logsf` at a huge `x` is -`x` / 2, to a relative 1e-12.

    The tail itself is far too small for a double.
    """
    assert gx2.logsf(x, [1.0]) == pytest.approx(-x / 2, rel=1e-12)


@pytest.mark.parametrize("x", [1e-160, -1e-300])
def test_density_next_to_a_pole_is_refused(x):
    """`gx2.pdf` raises an AccuracyError at a point `x` next to 0 if the density is infinite at 0.

    The quadrature would need nodes that are so large that their squares overflow.
    """
    with pytest.raises(gx2.AccuracyError):
        gx2.pdf(x, [1.0, -1.0], 0.25)


@pytest.mark.parametrize("z", [1e3, 1e9, 1e12, 1e100, 1e154, 1e200])
def test_far_tails_of_a_normal_term(z):
    """Far tails of a normal variable are those of SciPy; if a chi-square variable is added, a formula gives the tail.

    The point is `z` standard deviations from the mean. From `z` = 1e9 on, adding a chi-square variable with one
    degree of freedom multiplies the lower tail by (1 + 2 z)^(-1/2). The density of the normal variable is that of
    SciPy, too.
    """
    with np.errstate(over="ignore"):
        tail, density = stats.norm.logcdf(-z), stats.norm.logpdf(z)
    assert gx2.logsf(3 * z, [], normal=3.0) == pytest.approx(tail, rel=1e-14)
    assert gx2.logpdf(-z, [], normal=1.0) == pytest.approx(density, rel=1e-14)
    if z >= 1e9:
        assert gx2.logcdf(-z, [1.0], normal=1.0) == pytest.approx(tail - np.log1p(2 * z) / 2, rel=1e-14)
        assert gx2.cdf(-z, [1.0], normal=1.0) == gx2.pdf(-z, [1.0], normal=1.0) == 0


@pytest.mark.parametrize(
    ("p", "weights", "dof"),
    [
        (0.5, [1.0, -1.0], 1.0),
        (0.4999, [1.0, -1.0], 1.0),
        (0.5, [1.0, -1.0], 0.3),
        (0.4, [1.0, -1.0], 0.3),
        (0.40085269668434276, [1.0, -6.764523810252324], 0.25),
        (0.063, [1.144, 0.0032, 0.00226, 0.0021], [0.028, 0.18, 1.52, 2.5]),
    ],
)
def test_round_trip_near_a_pole(p, weights, dof):
    assert gx2.cdf(gx2.ppf(p, weights, dof), weights, dof) == pytest.approx(p, rel=1e-12)
    assert gx2.sf(gx2.isf(p, weights, dof), weights, dof) == pytest.approx(p, rel=1e-12)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_smallest_quantiles(sign):
    """For a weight of 1 and two degrees of freedom, the lower quantile for the probability 1e-200 is 2e-200.

    For a weight of -1, the upper quantile is -2e-200. `sign` is the weight.
    """
    find = gx2.ppf if sign > 0 else gx2.isf
    assert find(1e-200, [sign], 2) == pytest.approx(sign * 2e-200, rel=1e-12, abs=0)


@pytest.mark.parametrize("weight", [1e-5, 1.0, -1e10, 1e300])
def test_quantiles_far_below_the_weight(weight):
    """For `weight` times a chi-square variable with two degrees of freedom, the quantile of a tiny p is 2 p `weight`.

    It is the lower quantile, or the upper one if `weight` is negative. The probabilities p go down to 1e-302. The
    quantiles are computed one by one, and seventy in one call.
    """
    find = gx2.ppf if weight > 0 else gx2.isf
    p = np.array([1e-280, 1e-289, 1e-295, 1e-299, 1e-300, 3e-301, 1e-302])
    np.testing.assert_allclose([find(q, [weight], 2) for q in p], 2 * weight * p, rtol=1e-12)
    np.testing.assert_allclose(find(np.repeat(p, 10), [weight], 2), 2 * weight * np.repeat(p, 10), rtol=1e-12)


@pytest.mark.parametrize("dof", [0.005, 0.02, 0.1, 0.3])
def test_quantiles_of_few_degrees_of_freedom_far_below_the_weight(dof):
    """`gx2.ppf` agrees with SciPy for 1e100 times a chi-square variable, even if the quantile is far below 1e100.

    The quantiles that are compared are at least 1e-300 of the weight 1e100, and the tolerance is a relative 1e-10. A
    smaller one is tested with the weight 1e300 and `dof` + 0.01 degrees of freedom: the lower tail at the quantile of
    1e-3 is 1e-3.
    """
    p = np.array([0.3, 0.1, 1e-3, 1e-10, 1e-16])
    exact = stats.chi2.ppf(p, dof, scale=1e100)
    p, exact = p[exact > 1e-200], exact[exact > 1e-200]
    np.testing.assert_allclose(gx2.ppf(p, [1e100], dof), exact, rtol=1e-10)
    below = gx2.ppf(1e-3, [1e300], 0.01 + dof)
    assert gx2.cdf(below, [1e300], 0.01 + dof) == pytest.approx(1e-3, rel=1e-12)


def test_quantile_between_mean_and_median_of_a_negative_weight():
    """The upper quantile of -X is minus the lower quantile of X, even if it lies between mean and median.

    X is a chi-square variable with 0.3 degrees of freedom. Its lower quantile for the probability 0.7 is above its
    median and below its mean.
    """
    assert gx2.isf(0.7, [-1.0], 0.3) == pytest.approx(-stats.chi2.ppf(0.7, 0.3), rel=1e-11)


def test_entropy_of_laplace():
    assert gx2.rv([1.0, -1.0], 2).entropy() == pytest.approx(stats.laplace(scale=2).entropy(), rel=1e-12)


@pytest.mark.filterwarnings("error")
@pytest.mark.slow
def test_entropy_of_a_huge_noncentrality():
    """For nc = 1e16, `entropy` is that of a normal variable of variance 4 nc; for 1e20, it raises an AccuracyError."""
    assert gx2.rv([1.0], nc=1e16).entropy() == pytest.approx(np.log(8 * np.pi * np.e * 1e16) / 2, abs=1e-8)
    with pytest.raises(gx2.AccuracyError, match="integral for the entropy"):
        gx2.rv([1.0], nc=1e20).entropy()


@pytest.mark.parametrize("dof", [0.1, 0.3, 0.6, 0.95])
def test_entropy_of_variance_gamma(dof):
    """The entropy of the difference of two chi-square variables is the integral of the closed form of its density.

    Each variable has `dof` < 1 degrees of freedom. The variable of the integral is the logarithm of |x|.
    """

    def integrand(log_x):
        order, z = (dof - 1) / 2, np.exp(log_x) / 2
        log_density = order * np.log(z / 2) + np.log(special.kve(order, z)) - z - special.gammaln(dof / 2)
        log_density -= np.log(2 * np.sqrt(np.pi))
        return -2 * log_density * np.exp(log_density + log_x)

    exact = sum(integrate.quad(integrand, *ends, epsabs=1e-13)[0] for ends in ((-40 / dof, -2), (-2, 5)))
    assert gx2.rv([1.0, -1.0], dof).entropy() == pytest.approx(exact, rel=1e-11, abs=1e-11)


@pytest.mark.parametrize("unit", [1e-300, *slow(1e300)])
@pytest.mark.parametrize("dof", [0.2, *slow(3.0)])
def test_entropy_knows_the_unit(unit, dof):
    """If all weights of a sum of chi-square variables are multiplied by `unit`, its entropy rises by log(`unit`).

    `dof` is the number of degrees of freedom of each variable.
    """
    weights = np.array([1.0, 0.25, -0.5])
    expected = gx2.rv(weights, dof).entropy() + np.log(unit)
    assert gx2.rv(unit * weights, dof).entropy() == pytest.approx(expected, rel=1e-12)


FEW = [
    ([1.0, -1.0], 0.05, 0.0),
    ([1.0, -0.5], 0.02, 0.0),
    ([1.0], 0.01, 0.0),
    ([0.66, 2.0, 0.24], [0.15, 0.0025, 0.16], 0.23),
    ([7.0, -0.6, -10.0, -0.7, 0.9], [0.017, 0.11, 2.2, 0.066, 0.003], 1.1),
    ([1.0, -176.0], [5e-3, 1e-2], 0.0),
]


@pytest.mark.parametrize(
    ("x", "weights", "dof"),
    [
        (0.427, [0.688, -0.352], [1.44, 0.00175]),
        (0.00594, [-1.954, 0.337], [0.00303, 0.0007]),
        (-0.0329, [1.51, -0.919, -0.994], [0.00125, 0.00697, 0.00252]),
        (0.00371, [1.58, -1.21], [0.0445, 0.00109]),
    ],
)
def test_conditional_means_of_few_degrees_of_freedom(x, weights, dof):
    """The conditional mean of a variable Y_j, given Q = `x`, agrees with dof_j times a ratio of two densities of Q.

    Q is the sum of weights_j Y_j, where Y_j is a chi-square variable with dof_j degrees of freedom. The denominator of
    the ratio is the density of Q, and the numerator is this density with dof_j + 2 in place of dof_j. The derivative of
    the upper tail with respect to weights_j is this conditional mean times the density of Q.
    """
    more = np.array(dof) + 2 * np.eye(len(dof))
    exact = dof * np.array([gx2.pdf(x, weights, changed_dof) for changed_dof in more]) / gx2.pdf(x, weights, dof)
    np.testing.assert_allclose(gx2.conditional_means(x, weights, dof), exact, rtol=1e-11)
    by_weight = gx2.gradients(x, weights, dof).weights
    np.testing.assert_allclose(by_weight, exact * gx2.pdf(x, weights, dof), rtol=1e-11)


@pytest.mark.parametrize(("weights", "dof", "normal"), FEW)
def test_round_trip_for_few_degrees_of_freedom(weights, dof, normal):
    """For few degrees of freedom, the tail at each result of `isf` and `ppf` is the probability, to a relative 1e-11.

    Quantiles nearer to 0 than 1e-120 are not tested. If there is a `normal` term, the quantiles are equal whether 6 or
    54 are computed in one call. `weights` and `dof` are those of the chi-square variables.
    """
    p, form = np.array([1e-6, 1e-3, 0.02, 0.2, 0.4, 0.45]), (weights, dof, 0.0, normal)
    for find, tail in ((gx2.isf, gx2.sf), (gx2.ppf, gx2.cdf)):
        x = find(p, *form)
        assert np.all(np.diff(x) * (x[-1] - x[0]) >= 0)
        far = np.abs(x) > 1e-120
        np.testing.assert_allclose(tail(x[far], *form), p[far], rtol=1e-11)
        if normal:  # the other forms take seconds
            np.testing.assert_allclose(find(np.repeat(p, 9), *form), np.repeat(x, 9), rtol=1e-9)


def test_quantiles_are_moved_by_the_offset_where_there_are_few_degrees_of_freedom():
    form = ([1.0, -0.5], 0.02)
    assert gx2.isf(1e-3, *form, shift=5.0) == pytest.approx(gx2.isf(1e-3, *form) + 5, rel=1e-13)
    assert gx2.ppf(0.4, *form, shift=5.0) == 5.0


@pytest.mark.parametrize("dof", [1, 2.1])
def test_entropy_does_not_depend_on_the_offset(dof):
    assert gx2.rv([1.0], dof, shift=5.0).entropy() == pytest.approx(stats.chi2(dof).entropy(), rel=1e-12)
