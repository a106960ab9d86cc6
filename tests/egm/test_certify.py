"""Test that the intervals, or balls, of `gx2.certify` and `calibration.certify` contain the exact value.

Both functions prove between which two doubles a number lies, by ball arithmetic: each operation returns an interval
that contains the exact result. The exact values are stored numbers of 20 to 30 digits, and closed forms.
"""

import functools
import json
import math
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from itertools import product

import flint
import numpy as np
import pytest
from mpmath import mp, mpf

from egm import _certified, calibration, gx2
from egm._enclosure import Enclosure, rounded
from egm._gx2 import balls, choice, enclosed
from egm._gx2 import certify as certificates
from tests.conftest import slow
from tests.egm.stored import BY_FORM, CALIBRATION, GX2, IMPROVEMENT, L2, name_of
from tests.reference.forms import terms

DIGITS = {"log": 29, "linear": 25}  # of the stored logarithms, and of what follows from them
SMALLEST = sys.float_info.min
WEIGHTS = 1 / np.arange(1.0, 101.0)
SIGNED = {"weights": [2.0, 0.5, -1.0], "dof": [1.0, 2.5, 3.0], "nc": [0.0, 1.0, 2.0], "normal": 0.7, "shift": -0.3}


def exact(number):
    """Return `number`, an mpf or the text of a decimal number, as a fraction."""
    if isinstance(number, str):
        return Fraction(number)
    sign, mantissa, exponent, _ = number._mpf_
    return (-1) ** sign * int(mantissa) * Fraction(2) ** int(exponent)


def is_enclosed(number, enclosure, digits=30):
    """Return whether `number`, an mpf or text, lies between the ends `low` and `high` of the interval `enclosure`.

    The interval is first widened at both ends by 10 ** -`digits` times the number, to allow for its rounding error.
    """
    number = exact(number)
    slack = abs(number) * Fraction(10) ** -digits
    return enclosure.low - slack <= number <= enclosure.high + slack


def digits_hold(text, ball, digits):
    """Return whether `text`, a number of `digits` digits, has an error of at most one unit of the last digit.

    `ball` is an interval of ball arithmetic that contains the exact number. All of it must be so near to `text`.
    """
    return (flint.arb(text) * flint.arb(1, f"1e-{digits - 1}")).contains(ball)


def law_of(weights, dof=1.0, nc=0.0, normal=0.0, exponent=0):
    """Return the distribution of a generalized chi-square variable Q / 2 ** `exponent`, as an instance of `Law`.

    Q is sum_j weights_j chi2(dof_j, nc_j) + `normal` Z, where Z is a standard normal variable. `dof` and `nc` are
    numbers or lists. The numbers in the instance are balls, that is, intervals of ball arithmetic, with a precision of
    300 bits.
    """
    weights = np.array(weights, dtype=float)
    dof, nc = (np.broadcast_to(np.array(v, dtype=float), weights.shape) for v in (dof, nc))
    with flint.ctx.workprec(300):
        return balls.law_of(weights, dof, nc, normal, exponent)


# --- stored values ----------------------------------------------------------------------------------------------------

# `make check` has the first two sums of each family of forms.
FAMILIES = {}
for form, cases in BY_FORM.items():
    FAMILIES.setdefault(cases[0].get("family"), []).append(form)
SLOW = {form: [pytest.mark.slow] * (i > 1) for forms in FAMILIES.values() for i, form in enumerate(forms)}
stored = pytest.mark.parametrize(
    "cases",
    [pytest.param(cases, id=name_of(cases[0]), marks=SLOW[form]) for form, cases in BY_FORM.items()],
    scope="module",  # the tests of one sum in a row
)


@functools.lru_cache(maxsize=1)
def shared(form):
    """Return a dictionary in which the fixture `once` keeps what the tests of one sum of chi-square variables compute.

    It is empty at first. `form` has the parameters of the sum, as a JSON text. pytest runs the tests of one sum one
    after the other, so only the dictionary of the last sum is kept.
    """
    return {}


@pytest.fixture
def once(cases, monkeypatch):
    """Let all tests of one chi-square sum share what `gx2.certify` computes for it, to save time.

    The shared results are the sum's distribution, an object of the class `Law`, and the contours along which the tails
    are integrated. They are kept in the dictionary that `shared` returns. `cases` holds the stored values of the sum,
    with its parameters.
    """
    made = shared(json.dumps(cases[0]["form"]))

    def keep(make):
        def kept(*given):
            # Each Law comes from `law_of`, so `made` holds it, and no other object gets its id.
            parts = (id(it) if isinstance(it, balls.Law) else it for it in given)
            key = make, flint.ctx.prec, *(it.tobytes() if isinstance(it, np.ndarray) else float(it) for it in parts)
            return made.get(key) or made.setdefault(key, make(*given))

        return kept

    monkeypatch.setattr("egm._gx2.certify.law_of", keep(balls.law_of))
    monkeypatch.setattr("egm._gx2.certify.contour_of", keep(choice.contour_of))


@stored
def test_stored_tails_are_enclosed(cases, once):
    """The interval of `gx2.certify` contains each stored tail probability of a weighted sum of chi-square variables.

    `cases` are the stored tails of one sum at several points. At each point, the interval for the logarithm of the
    smaller tail is tested, and the interval for the probability of the larger tail. The logarithm of the smaller tail
    that `gx2` computes in double precision lies in the interval, too, up to its estimated error. The fixture `once`
    makes the tests faster.
    """
    parts = terms(cases[0]["form"])
    for case in cases:
        small, large = sorted(("sf", "cdf"), key=lambda tail: float(case[f"log_{tail}"]))
        tail = gx2.certify(case["x"], *parts, of=f"log{small}")
        assert is_enclosed(case[f"log_{small}"], tail, DIGITS["log"]), case["x"]
        assert tail.relative_width < 1e-15 or float(case[f"log_{small}"]) > -1
        value, error = getattr(gx2, f"log{small}")(case["x"], *parts, full_output=True)
        assert Fraction(tail.low) - Fraction(float(error)) <= Fraction(float(value))
        assert Fraction(float(value)) <= Fraction(tail.high) + Fraction(float(error))
        with mp.workdps(40):
            other = mp.exp(mpf(case[f"log_{large}"]))
        assert is_enclosed(other, gx2.certify(case["x"], *parts, of=large), DIGITS["linear"]), case["x"]


@pytest.mark.slow
@stored
def test_stored_densities_are_enclosed(cases, once):
    for case in cases:
        parts = terms(case["form"])
        with mp.workdps(40):
            density = mp.exp(mpf(case["log_pdf"]))
        if SMALLEST < density < sys.float_info.max:
            assert is_enclosed(density, gx2.certify(case["x"], *parts, of="pdf"), DIGITS["linear"]), case["x"]


@pytest.mark.parametrize("case", GX2["quantiles"], ids=name_of)
def test_stored_quantiles_are_enclosed(case):
    parts, p = terms(case["form"]), float(case["p"])
    quantile = gx2.certify(p, *parts, of="isf")
    assert is_enclosed(case["isf"], quantile, 19)
    assert quantile.relative_width < 3e-16
    assert abs(gx2.isf(p, *parts) / quantile.value - 1) < 1e-14  # `isf` states its error as one of the tail


@pytest.mark.parametrize("case", GX2["conditional"], ids=name_of)
def test_stored_conditional_means_are_enclosed(case):
    """The 25 digits of each stored conditional mean E[X_j | sum_j w_j X_j = x] are proved by ball arithmetic.

    X_j is chi2(k_j, nc_j). If f_i is the density at x of the sum plus w_j chi2(i), and f_0 that of the sum, the mean is
    (k_j f_2 + nc_j f_4) / f_0.
    """
    weights, dof, nc = terms(case["form"])

    def density(w, *extra):
        return wide(law_of(weights + [w] * len(extra), dof + list(extra), nc + [0] * len(extra)), case["x"], True, True)

    with flint.ctx.workprec(200):
        for w, k, a, text in zip(weights, dof, nc, case["means"], strict=True):
            mean = (k * density(w, 2) + (a * density(w, 4) if a else 0)) / density(w)
            assert digits_hold(text, mean, 25)


@pytest.mark.parametrize(
    "case",
    [case if case["d"] == 10 else slow(case)[0] for case in IMPROVEMENT],
    ids=lambda case: f"{case['d']}-{case['alpha']}-{case['n']}",
)
def test_stored_improvements_are_enclosed(case):
    """Each stored improvement d q(sigma^2) / (sum(sigma) q(sigma)) lies between fractions that follow from `certify`.

    q(w) is the upper quantile of sum_j w_j Z_j^2 for the probability 1/n, and sigma_j is the exact real power j^-alpha.
    q grows with each weight. So a lower bound of q has weights that are rounded down, and a probability that is rounded
    up.
    """
    d = case["d"]

    def powers(factor):
        with flint.ctx.workprec(200):
            both = [rounded(flint.arb(j) ** (-factor * flint.arb(case["alpha"]))) for j in range(1, d + 1)]
        return [one.low for one in both if one.low], [max(one.high, SMALLEST) for one in both]

    def quantile(low, high):
        return Fraction(gx2.certify(p.high, low, of="isf").low), Fraction(gx2.certify(p.low, high, of="isf").high)

    p = rounded(1 / flint.arb(case["n"]))
    sigma = powers(1)
    sums = [sum(map(Fraction, ends)) for ends in sigma]
    scaled, plain = quantile(*sigma), quantile(*powers(2))
    low, high = (d * plain[i] / (sums[1 - i] * scaled[1 - i]) for i in range(2))
    assert low <= Fraction(case["ratio"]) <= high < low * (1 + Fraction(1, 10**15))


@pytest.mark.parametrize("case", [case for case in GX2["values"] if "published" in case], ids=name_of)
def test_published_tails_are_near(case):
    """A published tail probability differs from the certified value by at most the accuracy that its authors claim.

    The certified value is the middle of the interval that `gx2.certify` returns. `case` is a tail that was published by
    Davies (1980) or others, with its accuracy.
    """
    (tail,) = case["published"].keys() - {"accuracy"}
    enclosure = gx2.certify(case["x"], *terms(case["form"]), of=tail)
    assert enclosure.value == pytest.approx(float(case["published"][tail]), abs=case["published"]["accuracy"])


# --- far tails --------------------------------------------------------------------------------------------------------

# parameters of the far tails in the test scripts of Das's toolbox gx2, which have no values
INFINITE = {"weights": [-2.0, -3.0, 4.0, 1.0], "dof": [4, 2, 6, 1], "nc": [10.0, 20.0, 5.0, 0.0], "normal": 20.0}
FINITE = {"weights": [2.0, 3.0, 4.0, 1.0], "dof": [4, 2, 6, 1]}


@pytest.mark.parametrize(
    ("form", "of", "x"),
    [
        *((INFINITE, "logsf", x) for x in (300.0, 2e3, 1.2e4)),
        *((INFINITE, "logcdf", x) for x in (-1e3, -8e3)),
        *((FINITE, "logcdf", x) for x in (1e-40, 1e-55, 1e-70)),
    ],
)
def test_far_tails_of_the_toolbox(form, of, x):
    """The logarithms of far tails, down to 1e-600, from `egm.gx2` agree with the certified values of `gx2.certify`.

    A certified value is the middle of a proven interval. The numbers agree up to 1e-12 or a relative 1e-15, whichever
    is larger. The points `x` are from the toolbox gx2 by Das. `form` has the parameters of a distribution, and `of` is
    "logsf" (upper tail) or "logcdf" (lower tail).
    """
    enclosure = gx2.certify(x, **form, of=of)
    value = getattr(gx2, of)(x, **form)
    assert enclosure.relative_width < 1e-15
    assert value == pytest.approx(enclosure.value, abs=1e-12, rel=1e-15)


# --- closed forms -----------------------------------------------------------------------------------------------------


def normal_cdf(x):
    """Return the standard normal distribution function at `x`, a number of mpmath, accurately even in the far tails."""
    return mp.erfc(-x / mp.sqrt(2)) / 2


@pytest.mark.parametrize("dof", [0.3, 1, 2, 7, 1000, 1e6])
@pytest.mark.parametrize("level", [-8.0, -2.0, 0.0, 3.0, 30.0])
def test_one_weight_is_chi2(dof, level):
    x = 2.5 * dof * max(1 + level / math.sqrt(dof) + level**2 / (4 * dof), 1e-3)
    with mp.workdps(60):
        half, point = mpf(dof) / 2, mpf(x) / mpf(2.5) / 2
        upper = mp.gammainc(half, point, mp.inf, regularized=True)
        density = mp.exp((half - 1) * mp.log(point) - point - mp.loggamma(half)) / mpf(5)
        for of, value in (("sf", upper), ("cdf", 1 - upper), ("logsf", mp.log(upper)), ("pdf", density)):
            assert is_enclosed(value, gx2.certify(x, [2.5], dof, of=of)), of


@pytest.mark.parametrize("x", [0.0, 1e-12, 0.25, 2.0, 900.0])
def test_difference_of_exponentials_is_laplace(x):
    with mp.workdps(60):
        upper = mp.exp(-mpf(x) / 2) / 2
        for of, value in (("sf", upper), ("cdf", 1 - upper), ("pdf", upper / 2), ("logcdf", mp.log1p(-upper))):
            assert is_enclosed(value, gx2.certify(x, [1.0, -1.0], 2, of=of)), of
        assert is_enclosed(upper, gx2.certify(-x, [1.0, -1.0], 2, of="cdf"))
        if x > 1e-6:
            p = gx2.certify(x, [1.0, -1.0], 2).value
            assert is_enclosed(-2 * mp.log(2 * mpf(p)), gx2.certify(p, [1.0, -1.0], 2, of="isf"))


@pytest.mark.parametrize(
    ("normal", "level"), [*product([0.5, 3.0, 1e4], [-9.0, -1.0, 0.1, 2.0, 25.0]), (1e-6, 0.1), (1e-6, 25.0)]
)
def test_exponential_plus_normal(normal, level):
    # With r = 1 / (2 w), the tail is P[normal Z > x] + exp(r^2 normal^2 / 2 - r x) P[normal Z < x - r normal^2].
    w = 0.75
    x = 2 * w + level * math.hypot(normal, 2 * w)
    with mp.workdps(200):
        y, tau, rate = mpf(x) - mpf(0.125), mpf(normal), 1 / mpf(2 * w)
        upper = normal_cdf(-y / tau)
        upper += mp.exp(rate**2 * tau**2 / 2 - rate * y) * normal_cdf((y - rate * tau**2) / tau)
        assert is_enclosed(mp.log(upper), gx2.certify(x, [w], 2, normal=normal, shift=0.125, of="logsf"))
        assert is_enclosed(mp.log1p(-upper), gx2.certify(x, [w], 2, normal=normal, shift=0.125, of="logcdf"))
        assert is_enclosed(mp.log(upper), gx2.certify(-x, [-w], 2, normal=normal, shift=-0.125, of="logcdf"))


@pytest.mark.parametrize("nc", [0.5, 40.0, *slow(500.0)])
@pytest.mark.parametrize("factor", [0.6, 1.0, 1.7])
def test_noncentral_weight_is_a_poisson_mixture(nc, factor):
    x = factor * (3 + nc)
    with mp.workdps(60):
        mean, upper = mpf(nc) / 2, mpf(0)
        for j in range(int(nc / 2 + 20 * math.sqrt(nc) + 80)):
            mass = mp.exp(j * mp.log(mean) - mean - mp.loggamma(j + 1))
            upper += mass * mp.gammainc(mpf(3) / 2 + j, mpf(x) / 2, mp.inf, regularized=True)
        assert is_enclosed(upper, gx2.certify(x, [1.0], 3, nc), 20)
        assert is_enclosed(1 - upper, gx2.certify(x, [1.0], 3, nc, of="cdf"), 20)


# --- the proof --------------------------------------------------------------------------------------------------------

LAWS = {
    "one": ({"weights": [0.5]}, 9.0),
    "harmonic": ({"weights": WEIGHTS[:30]}, 12.0),
    "signed": ({"weights": [0.5, 0.25, -0.3], "dof": [1.0, 2.0, 4.0], "nc": [0.0, 3.0, 1.0]}, 2.0),
    "normal": ({"weights": [0.5, -0.25], "dof": 3.0, "normal": 0.4}, 1.5),
    "many": ({"weights": [0.5], "dof": 400.0, "nc": 50.0}, 240.0),
    "small": ({"weights": [0.5, 0.002], "dof": [1.0, 500.0]}, 1.6),
}
laws = pytest.mark.parametrize(("parameters", "y"), LAWS.values(), ids=LAWS)


def wide(law, y, upper, density=False):
    """Return an interval (ball) that contains a tail or the density of the distribution `law` at the point `y`.

    The interval is for the density if `density` is true, and otherwise for the upper tail if `upper` is true, or else
    for the lower tail. It is accurate to about 180 bits.
    """
    with flint.ctx.workprec(300):
        y = flint.arb(y)
        return choice.contour_of(law, y, upper, 180).enclose(y, density)


@laws
@pytest.mark.parametrize("upper", [True, False], ids=["upper", "lower"])
def test_more_bits_give_a_ball_inside(parameters, y, upper):
    """If a tail or density is computed with fewer bits, its interval (ball) is larger, and contains that of more bits.

    `parameters` are those of the distribution, and `y` is the point. The tail is the upper one if `upper` is true, and
    otherwise the lower one.
    """
    law = law_of(**parameters)
    for density in (False, True):
        narrow = wide(law, y, upper, density)
        assert narrow.rel_accuracy_bits() > 150
        for bits in (120, 60, 30, 10):
            wider = choice.contour_of(law, flint.arb(y), upper, bits).enclose(flint.arb(y), density)
            assert wider.contains(narrow)
            assert wider.rel_accuracy_bits() < 150
            narrow = wider


@laws
@pytest.mark.parametrize("upper", [True, *slow(False)], ids=["upper", "lower"])
def test_any_contour_is_right(parameters, y, upper):
    """The ball (interval) of a tail or density contains the true value even if the contour of integration is a bad one.

    The ball is a sum along the contour, plus and minus a bound on its error. The distribution has the `parameters`, and
    its tail at `y` is the upper one if `upper` is true. Some of the random contours give a sum that is wrong by more
    than a relative 1e-6, so that too small a bound would be noticed.
    """
    law, rng, far = law_of(**parameters), np.random.default_rng(3), 0
    for density in (False, True):
        truth = wide(law, y, upper, density)
        good = choice.contour_of(law, flint.arb(y), upper, 30)
        for _ in range(25):
            step, count = good.step * rng.uniform(0.5, 4), int(good.count * rng.uniform(0.2, 1.2))
            scale, high = rng.uniform(0.5, 1.0), good.high * rng.uniform(0.4, 1.0)
            contour = replace(good, step=step, count=max(count, 2), rho=good.rho * scale, high=high)
            try:
                ball = contour.enclose(flint.arb(y), density)
            except ArithmeticError:  # the strip meets 0
                continue
            far += bool(abs(contour.sums(flint.arb(y))[density] / truth - 1) > 1e-6)
            assert ball.contains(truth)
    assert far > 3


@laws
def test_bounds_hold_on_boxes(parameters, y):
    """`Edge.log_size` returns an upper bound of log |F| on a part of a contour, where F is the integrand of a tail.

    A tail probability is proportional to the integral of F along the contour in the complex plane. The tail is the
    upper one at `y` of the distribution with the `parameters`. The bound exceeds the largest log |F| on this part by
    less than 60, or by less than 1e-6 if the part is a single point.
    """
    law, y = law_of(**parameters), flint.arb(y)
    contour = choice.contour_of(law, y, True, 60)
    angle = flint.arb(contour.high)
    edge = enclosed.Edge(contour, angle, y, False)
    for low, high in ((0.0, 0.2), (0.5, 0.6), (1.0, 1.5), (2.0, 2.0)):
        box = flint.arb(low).cosh().union(flint.arb(high).cosh())
        sizes = []
        for u in np.linspace(low, high, 9):
            s = contour.m + contour.rho * flint.acb(angle, float(u)).sin()
            sizes.append((law.cumulant(s) - s * y).real - abs(s).log())
        assert all(edge.log_size(box) + 1e-9 >= size for size in sizes)
        assert edge.log_size(box) < max(float(size) for size in sizes) + (60 if high > low else 1e-6)


@pytest.mark.parametrize("gap", [2.0**-54, 2.0**-20])
@pytest.mark.parametrize("count", [2, 3, 4])
def test_bounds_hold_on_long_boxes_for_nearly_equal_weights(gap, count):
    """`Edge.log_size` returns an upper bound of log |F| also on parts of a contour that are too long for a good bound.

    F is the integrand of a tail. It has one factor for each of the `count` weights, and each weight is by `gap` smaller
    than the one before. On a long part of the contour, the lower bounds of several factors are negative numbers; then
    the bound of |F| is infinite. On a short part it is finite. Each part begins at the point on the real axis.
    """
    law, y = law_of(0.5 - gap * np.arange(count), 0.03), flint.arb(1e-10)
    contour = choice.contour_of(law, y, True, 60)
    angle = flint.arb(contour.high)
    edge = enclosed.Edge(contour, angle, y, False)
    with flint.ctx.workprec(300):
        s = contour.m + contour.rho * angle.sin()
        size = (law.cumulant(flint.acb(s)) - s * y).real - abs(s).log()
    bounds = [edge.log_size(flint.arb(1).union(flint.arb(u).cosh())) for u in range(1, 25)]
    assert all(bound + 1e-9 >= size for bound in bounds)
    assert bounds[0].is_finite()
    assert not bounds[-1].is_finite()


@pytest.mark.parametrize(
    ("parameters", "y", "upper"),
    [
        pytest.param(*law, upper, id=f"{side}-{name}", marks=[pytest.mark.slow] * (name != "signed"))
        for name, law in LAWS.items()
        for side, upper in (("upper", True), ("lower", False))
    ],
)
def test_bound_of_the_rest(parameters, y, upper):
    """`Edge.rest` returns an upper bound of the integral of |f| from a point of a contour to the end of the contour.

    The integral of f along the contour, in the complex plane, is a tail or the density at `y` of the distribution with
    the `parameters`, up to a factor. The contour is the one for the upper tail if `upper` is true, and otherwise for
    the lower tail. Some bounds are infinite. Every finite bound is compared with the integral of |f|, which the
    trapezoid rule computes.
    """
    law, y, finite = law_of(**parameters), flint.arb(y), 0
    contour = choice.contour_of(law, y, upper, 60)
    steep = 0.7 if law.tau else 1.4
    for angle, density in product((contour.low, contour.high, steep), (False, True)):
        edge = enclosed.Edge(contour, flint.arb(angle), y, density)
        for start in (0.02, 0.1, 0.3, 0.6, 1.0, 2.0, 4.0):
            bound, u = edge.rest(flint.arb(start)), start + np.append(0.0, np.geomspace(1e-5, 3, 300))
            if not bound.is_finite():
                continue
            nodes = [contour.m + contour.rho * flint.acb(angle, v).sin() for v in u.tolist()]
            sizes = [(law.cumulant(s) - s * y).exp() / (1 if density else s) for s in nodes]
            values = np.array([float(abs(size / bound)) for size in sizes]) * contour.rho * abs(np.cos(angle + 1j * u))
            assert np.trapezoid(values, u) < 1.001  # the error of the rule is below 4e-4
            finite += 1
    assert finite > 2


@pytest.mark.slow
@pytest.mark.parametrize("upper", [True, False], ids=["upper", "lower"])
def test_clusters_change_nothing(upper, monkeypatch):
    """If similar weights of a sum are put into clusters, to save time, a tail's interval agrees with the exact one.

    Weights are put into clusters if a sum has more than 500 different ones. The exact interval (ball) is computed
    without clusters. Both intervals contain the tail, so they must overlap. The one with clusters has an accuracy of at
    least 50 bits. The tail is the upper one if `upper` is true.
    """
    rng = np.random.default_rng(4)
    weights = np.concatenate([np.geomspace(1e-6, 0.5, 300), rng.uniform(-0.4, -0.2, 200), rng.uniform(0.3, 0.31, 200)])
    parameters = {"weights": weights, "dof": rng.uniform(0.5, 2, 700), "nc": rng.uniform(0, 1, 700), "normal": 0.5}
    clustered = law_of(**parameters)
    monkeypatch.setattr(balls, "_APART", 10**6)
    apart = law_of(**parameters)
    assert len(clustered.groups) < 450 < len(apart.groups)
    for y in (0.5, apart.mean, apart.mean + 8 * apart.deviation):
        y = flint.arb(y)
        one, other = (choice.contour_of(law, y, upper, 60).enclose(y) for law in (clustered, apart))
        assert one.overlaps(other)
        assert one.rel_accuracy_bits() > 50


@pytest.mark.parametrize(("dof", "nc"), [(1.5, 0.0), (1e-9, 0.5), (1.0, 400.0)])
def test_cumulant_of_a_cluster_has_the_rest_of_its_series(dof, nc, monkeypatch):
    """For a cluster of similar weights, a ball (interval) contains the exact cumulant function, even with few terms.

    The cumulant function of the cluster is computed from the first terms of a series, and the ball includes a bound on
    the remaining terms. An `Edge` has upper bounds for the integrand of a tail along a curve: `log_size` for its
    logarithm, and `rest` for its integral. With clusters the bounds are not smaller than without. Each weight has `dof`
    degrees of freedom and the noncentrality `nc`.
    """
    weights = np.append(np.linspace(0.3, 0.304, 40), 0.4)
    law = law_of(weights, dof, nc)
    monkeypatch.setattr(balls, "_APART", 10)
    radii = []
    for order in (2, 4, 8):
        monkeypatch.setattr(balls, "_ORDER", order)
        clustered = law_of(weights, dof, nc)
        assert len(clustered.groups) < 5
        with flint.ctx.workprec(300):
            for s in (flint.acb(1.2, 0.5), flint.acb(-3.0, 1.0), flint.acb(1.1, -0.1)):
                ball, truth = clustered.cumulant(s), law.cumulant(s)
                assert ball.contains(truth)
                assert abs(ball.mid() - truth) > 1e-30
            radii.append(float(ball.real.rad()))
    assert radii[0] > 100 * radii[1] > 1e6 * radii[2]
    y = flint.arb(30.0)
    contour = choice.contour_of(clustered, y, True, 60)
    for angle in (contour.low, contour.high):
        edges = [enclosed.Edge(replace(contour, law=each), flint.arb(angle), y, False) for each in (clustered, law)]
        for u in (0.1, 0.5, 1.0, 3.0):
            bound, size = (edge.log_size(flint.arb(u).cosh()) for edge in edges)
            assert size <= bound + 1e-12 < size + 1.0
            beyond = [edge.rest(flint.arb(u)) for edge in edges]
            assert not beyond[0] < beyond[1] * (1 - 1e-9)  # both may be infinite
        assert beyond[0].is_finite()


# --- laws -------------------------------------------------------------------------------------------------------------


def test_clusters_of_the_largest_weights_follow_the_unit():
    """Weights in a cluster may be so large that their sum is too large for a double."""
    weights, unit = np.linspace(1.0, 1.5, 600), 2.0**1022
    found = [gx2.certify(1.9 * each, each * weights, of="logcdf") for each in (1.0, unit)]
    assert found[0] == found[1]


@pytest.mark.parametrize("of", ["sf", "cdf", "logsf", "pdf"])
@pytest.mark.parametrize("x", [-30.0, -0.3, 0.0, 4.0, 200.0])
def test_scale_mirror_and_order(of, x):
    """If the weights change their unit, sign or order, the interval of `gx2.certify` changes accordingly.

    The unit of the weights and of `x` is changed by the factor 8, a power of two, so that nothing is rounded. The
    interval of a tail does not change then, and the interval of the density is divided by 8. If the weights and `x`
    change their signs, the upper tail becomes the lower one. If the order of the weights changes, the interval does not
    change. `of` names the tail or density.
    """
    value = gx2.certify(x, **SIGNED, of=of)
    scaled = {name: 8 * np.array(SIGNED[name]) for name in ("weights", "normal", "shift")}
    larger = gx2.certify(8 * x, **{**SIGNED, **scaled}, of=of)
    factor = 8 if of == "pdf" else 1
    assert Enclosure(factor * larger.low, factor * larger.high) == value
    reverse = {name: np.flip(SIGNED[name]) for name in ("weights", "dof", "nc")}
    assert gx2.certify(x, **{**SIGNED, **reverse}, of=of) == value
    mirrored = {name: -np.array(SIGNED[name]) for name in ("weights", "shift")}
    opposite = {"sf": "cdf", "cdf": "sf", "logsf": "logcdf", "pdf": "pdf"}[of]
    assert gx2.certify(-x, **{**SIGNED, **mirrored}, of=opposite) == value


def proved_again(form, of, p):
    """Return the interval of a quantile from `gx2.certify`, after a test that it contains the quantile.

    The certified tails at the two ends of the interval must enclose the probability `p`. `form` has the parameters of
    the distribution, and `of` is "isf" for the upper quantile or "ppf" for the lower one.
    """
    quantile = gx2.certify(p, **form, of=of)
    tails = [gx2.certify(end, **form, of="sf" if of == "isf" else "cdf") for end in (quantile.low, quantile.high)]
    first, last = tails if of == "isf" else tails[::-1]
    assert first.high >= p >= last.low
    return quantile


@pytest.mark.parametrize("p", [1e-300, *slow(1e-9, 0.3, 0.9), 0.5, 1 - 1e-9])
@pytest.mark.parametrize("of", ["isf", "ppf"])
@pytest.mark.parametrize("form", [SIGNED, {"weights": WEIGHTS}, {"weights": [-1.0, -0.25], "dof": 2}], ids=str)
def test_tails_at_the_ends_of_a_quantile(form, of, p):
    """The probability `p` of a quantile lies between the certified tails at the two ends of the quantile's interval.

    So the interval that `gx2.certify` returns contains the quantile. `of` is "isf" for the upper quantile or "ppf" for
    the lower one, and `form` has the parameters of the distribution.
    """
    assert proved_again(form, of, p).relative_width < 1e-13


@pytest.mark.parametrize("weights", [[1.0], *slow([1.0, -0.5]), [1.0, -0.1], [-1.0]], ids=str)
@pytest.mark.parametrize("dof", [0.5, *slow(0.05, 0.1, 1, 2)])
def test_ordinary_quantiles_are_found(weights, dof):
    """`gx2.certify` returns narrow intervals for quantiles near the middle of a distribution, such as the median.

    The width of an interval is below a relative 1e-13 or, for a quantile near 0, below 2**-67 standard deviations. The
    weighted chi-square sum has the `weights`, and `dof` degrees of freedom for each: for a small `dof` its density has
    a high peak.
    """
    for normal, p, of in product((0.0, 0.1), (0.3, 0.5, 0.7), ("isf", "ppf")):
        form = {"weights": weights, "dof": dof, "normal": normal}
        quantile = proved_again(form, of, p)
        width = 2**-67 * math.sqrt(gx2.var(**form))
        assert quantile.relative_width < 1e-13 or quantile.high - quantile.low < width


@pytest.mark.parametrize("shift", [-1.0, 1.0, 1e5])
@pytest.mark.parametrize(
    ("p", "weights", "dof"), [(1e-20, [0.2, 0.1], 1), (1e-275, [0.2, 0.1], 1), (1e-40, [0.2], 0.1)]
)
def test_quantiles_beside_the_constant_term(p, weights, dof, shift):
    """If a lower quantile is above `shift`, but no double lies between the two, its interval begins at `shift`.

    The interval of `gx2.certify` reaches from the constant term `shift` to the next larger double. If all weights and
    `shift` are negated, the interval of the upper quantile is the negated interval. `p` is the probability, and
    `weights` and `dof` are those of the chi-square variables.
    """
    quantile = gx2.certify(p, weights, dof, shift=shift, of="ppf")
    assert quantile == Enclosure(shift, math.nextafter(shift, math.inf))
    mirrored = gx2.certify(p, -np.array(weights), dof, shift=-shift, of="isf")
    assert mirrored == Enclosure(-quantile.high, -quantile.low)


def test_logarithm_of_nearly_1_is_a_lower_quantile():
    """`gx2.certify` finds the point whose upper tail has the logarithm -1e-300: it is the lower quantile for 1e-300.

    As a double, this upper tail would be 1. The lower tail at the point is 1e-300, up to a relative 1e-300.
    """
    for form in (SIGNED, {"weights": [-1.0], "dof": 3, "normal": 1.0}):
        assert gx2.certify(-1e-300, **form, of="ilogsf") == gx2.certify(1e-300, **form, of="ppf")


def test_quantile_of_a_logarithm():
    """For of="ilogsf", the interval of `gx2.certify` contains the point at which the upper tail has a given logarithm.

    So the quantile is found even if the tail itself is too small for a double.
    """
    assert gx2.certify(math.log(1e-30), WEIGHTS, of="ilogsf").contains(gx2.certify(1e-30, WEIGHTS, of="isf").value)
    far = gx2.certify(-1e6, WEIGHTS, of="ilogsf")
    assert gx2.certify(far.low, WEIGHTS, of="logsf").high >= -1e6 >= gx2.certify(far.high, WEIGHTS, of="logsf").low


def test_median_of_a_symmetric_law_is_0():
    median = gx2.certify(0.5, [1.0, -1.0], 3, normal=1.0, of="isf")
    assert median.contains(0)
    assert median.high - median.low < 1e-19


@pytest.mark.parametrize("p", [*slow(0.5), 1e-12])
def test_results_of_gx2_with_many_weights(p):
    """For 10,000 weights, `gx2.isf` and `gx2.sf` agree with the quantile and the tail that `gx2.certify` proves.

    The quantile x is the point whose upper tail has the probability `p`. The result of `gx2.isf` agrees to a relative
    1e-14. The tail at x from `gx2.sf` lies in the certified interval, up to the error that `gx2.sf` estimates.
    """
    weights = np.arange(1, 10_001.0) ** -0.3
    x = gx2.isf(p, weights)
    assert gx2.certify(p, weights, of="isf").value == pytest.approx(x, rel=1e-14)
    value, error = gx2.sf(x, weights, full_output=True)
    tail = gx2.certify(x, weights)
    assert tail.low * (1 - error) <= value <= tail.high * (1 + error)


MANY = 100_000
NC = np.random.default_rng(0).exponential(50, MANY)


@pytest.mark.parametrize(
    ("weights", "dof", "nc", "z"),
    [
        (np.ones(MANY), 99.9, 0.0, 6),
        (np.ones(MANY), np.full(MANY, 99.9), 0.0, 6),
        (np.ones(MANY), 1.0, NC, 6),
        (np.repeat([1.0, 0.4], MANY), 0.3, 0.7, 6),
        (np.exp(0.1 * np.random.default_rng(1).normal(size=1000)), 1.0, 20 * NC[:1000], 6),
        ([1.0, 0.5], 1.0, 1e8, 4),
        ([1.2], 34880323.175186336, 36776277.606070735, -31),
        (np.full(3, 1.3), [19598941.91454016, 12093555.88822869, 6928772.001256223], 0.0, -35),
    ],
    ids=["one dof", "many dof", "many nc", "two clusters", "close weights", "huge nc", "one weight", "equal weights"],
)
def test_sums_of_degrees_of_freedom_are_not_rounded(weights, dof, nc, z):
    """Tails in z standard deviations from the mean are right, although dof and nc of many terms add up to millions."""
    law, of = gx2.rv(weights, dof, nc), "logsf" if z > 0 else "logcdf"
    x = law.mean() + z * law.std()
    certified = gx2.certify(x, weights, dof, nc, of=of)
    assert getattr(law, of)(x) == pytest.approx(certified.value, abs=1e-12)


@pytest.mark.parametrize(("d", "dof"), [(16, 0.05), (8, 0.2)])
@pytest.mark.parametrize("of", ["sf", "pdf"])
def test_products_of_many_factors_do_not_overflow(of, d, dof):
    """Near the constant term the nodes of a contour are far away, and the product of a few factors is beyond 1e308."""
    weights, x = [*np.linspace(1, 2, d), -1.0], 1e-40 if of == "pdf" else 0.0
    certified = gx2.certify(x, weights, dof, of=of)
    assert getattr(gx2, of)(x, weights, dof) == pytest.approx(certified.value, rel=1e-10)


# --- edges and errors -------------------------------------------------------------------------------------------------


def test_ends_of_the_support():
    positive, negative = {"weights": [1.0, 2.0], "shift": 3.0}, {"weights": [-1.0, -2.0], "shift": 3.0}
    for form, at, sf in ((positive, 3.0, 1.0), (positive, -9.0, 1.0), (negative, 3.0, 0.0), (SIGNED, -np.inf, 1.0)):
        assert gx2.certify(at, **form) == Enclosure(sf, sf)
        assert gx2.certify(at, **form, of="logcdf") == Enclosure(*[-math.inf if sf else 0.0] * 2)
    for of, p, ends in (("isf", 1.0, (3.0, -math.inf, -math.inf)), ("ppf", 1.0, (math.inf, 3.0, math.inf))):
        for q, kind in ((p, of), (0.0, {"isf": "ppf", "ppf": "isf"}[of])):
            for form, end in zip((positive, negative, SIGNED), ends, strict=True):
                assert gx2.certify(q, **form, of=kind) == Enclosure(end, end)
    assert gx2.certify(0.0, **positive, of="ilogsf") == Enclosure(3.0, 3.0)
    assert gx2.certify(-math.inf, **positive, of="ilogsf") == Enclosure(math.inf, math.inf)


def test_numbers_that_are_no_normal_doubles_are_refused():
    with pytest.raises(ArithmeticError, match="sf at x = 2000"):
        gx2.certify(2000.0, [1.0])
    with pytest.raises(ArithmeticError, match="density at the end"):
        gx2.certify(0.0, [1.0], of="pdf")
    for p, form in ((1e-200, {"weights": [1.0]}), (1e-40, {"weights": [0.2], "dof": 0.1})):
        with pytest.raises(ArithmeticError, match="nearer to 0 than the smallest normal double"):
            gx2.certify(p, **form, of="ppf")


@pytest.mark.parametrize("of", ["logcdf", "pdf"])
@pytest.mark.parametrize("normal", [1e-6, 1e-8])
def test_contours_with_too_many_nodes_are_refused(normal, of):
    with pytest.raises(ArithmeticError, match=r"no (contour|narrow enclosure)"):
        gx2.certify(-1.5, [1.0], normal=normal, of=of)


@pytest.mark.parametrize("x", [1e30, 1e300])
def test_sizes_of_which_doubles_know_no_digit_are_refused(x):
    with pytest.raises(ArithmeticError, match="no contour"):
        gx2.certify(x, [1.0], dof=x)


@pytest.mark.parametrize("normal", [1e-10, 1e-100, 5e-324])
def test_a_normal_term_may_be_extremely_small(normal):
    """Beside a weight of 1e300, a normal term changes nothing that a double can show, however small it is."""
    assert gx2.certify(3e300, [1e300], 2, normal=normal) == gx2.certify(3e300, [1e300], 2)


def test_a_tail_without_a_contour_is_bounded():
    """If a tail is proved to be below 2**-53, the interval of the other tail reaches from the double before 1 to 1.

    `gx2.certify` returns this interval even if it finds no contour of integration. The small tail itself is here too
    small for a double, so that `gx2.certify` raises an ArithmeticError for it.
    """
    for normal in (1e-6, 1e-8, 1e-100):
        assert gx2.certify(-1.5, [1.0], normal=normal) == Enclosure(math.nextafter(1.0, 0.0), 1.0)
        assert gx2.certify(1.5, [-1.0], normal=normal, of="cdf") == Enclosure(math.nextafter(1.0, 0.0), 1.0)
        with pytest.raises(ArithmeticError, match="nearer to 0 than the smallest normal double"):
            gx2.certify(-1.5, [1.0], normal=normal, of="cdf")


@laws
def test_bound_is_above_the_tail(parameters, y):
    variable = certificates._Variable(**{"dof": 1.0, "nc": 0.0, "normal": 0.0, "shift": 0.0, **parameters})
    with flint.ctx.workprec(128):
        for level, upper in product((-3, -1, 0.5, 1, 4), (True, False)):
            x = level * y
            if variable.outside(variable.scaled(x)) is None:
                tail = gx2.certify(x, **parameters, of="logsf" if upper else "logcdf")
                bound = variable.bound(variable.scaled(x), upper).log()
                assert tail.low <= bound
                assert bound < tail.high + 8 or tail.low > -2  # for a small tail the bound is not far away


@pytest.mark.parametrize("of", ["sf", "cdf"])
@pytest.mark.parametrize("x", [-300.0, -1.0, 20.0, 300.0])
def test_probabilities_lie_between_0_and_1(x, of):
    """The interval of `gx2.certify` for a tail at `x` lies in [0, 1], and that for the tail's logarithm is at most 0.

    `of` is "sf" for the upper tail, or "cdf" for the lower one.
    """
    form = {"weights": [1.0, -0.8]}
    tail = gx2.certify(x, **form, of=of)
    assert 0 <= tail.low < tail.high <= 1
    assert gx2.certify(x, **form, of=f"log{of}").high <= 0


@pytest.mark.parametrize("x", [-30.0, -1.0, 0.0, 0.7, 8.0])
def test_a_form_without_weights_is_normal(x):
    with mp.workdps(120):
        upper = normal_cdf(-(mpf(x) - 1) / 2)
        for of, value in (("sf", upper), ("logsf", mp.log(upper)), ("cdf", 1 - upper)):
            assert is_enclosed(value, gx2.certify(x, [], normal=2.0, shift=1.0, of=of)), of
    p = gx2.certify(x, [], normal=2.0, shift=1.0, of="logsf").value
    assert gx2.certify(p, [], normal=2.0, shift=1.0, of="ilogsf").value == pytest.approx(x, abs=1e-13)


@pytest.mark.parametrize(
    ("arguments", "options", "name"),
    [
        ((np.nan, [1.0]), {}, "x"),
        (([1.0, 2.0], [1.0]), {}, "x"),
        ((1.0, [1.0, 0.0]), {}, r"weights\[1\]"),
        ((1.0, [np.inf]), {}, r"weights\[0\]"),
        ((1.0, []), {}, "weights"),
        ((1.0, [1.0], 0.0), {}, "dof"),
        ((1.0, [1.0, 2.0], [1.0, 2.0, 3.0]), {}, "dof"),
        ((1.0, [1.0], 1.0, -1.0), {}, "nc"),
        ((1.0, [1.0]), {"normal": -1.0}, "normal"),
        ((1.0, [1.0]), {"shift": np.inf}, "shift"),
        ((1.0, [1.0]), {"of": "mean"}, "of"),
        ((1.5, [1.0]), {"of": "isf"}, "p"),
        ((0.5, [1.0]), {"of": "ilogsf"}, "logp"),
    ],
)
def test_bad_values_are_named(arguments, options, name):
    with pytest.raises(ValueError, match=f"^{name} must"):
        gx2.certify(*arguments, **options)


@pytest.fixture
def restless():
    """Let the interpreter switch between threads as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_threads_do_not_disturb_each_other(restless):
    """In several threads, `certify` returns the same intervals as in one, and leaves the precision of flint as it was.

    flint has one precision for the whole process, and every computation needs its own. The threads compute tails, a
    quantile and noise scales, each in another order.
    """
    calls = [
        *(functools.partial(gx2.certify, 3.0, [1.0, 0.5], of=of) for of in ("sf", "logcdf", "pdf")),
        functools.partial(gx2.certify, 0.2, [1.0, -0.5], of="isf"),
        functools.partial(calibration.certify, 1.0, 1e-6),
        functools.partial(calibration.certify, 1.0, 1e-6, noise="l2", d=3),
    ]
    before, expected = flint.ctx.prec, [call() for call in calls]

    def compute(seed):
        order = np.random.default_rng(seed).permutation(np.tile(np.arange(len(calls)), 3))
        return all(calls[i]() == expected[i] for i in order)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(compute, range(4)))
    assert flint.ctx.prec == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.parametrize(
    ("compute", "call"),
    [
        ("with precision(100): wait()", "gx2.certify(1.0, [1.0]).high"),
        ("Law(Slow(), np.ones(1), np.zeros(1)).signs", "gx2.sf(1.0, [1.0])"),
    ],
    ids=["precision of flint", "attribute of a law"],
)
def test_a_fork_while_a_thread_computes_does_not_hang(compute, call):
    """A process that is forked while another thread computes can compute the same.

    That thread may have set flint's precision, or be in the middle of an attribute that is computed when it is used.
    """
    code = f"""
import os, signal, threading
import numpy as np
from egm import gx2
from egm._enclosure import precision
from egm._gx2.form import Law
inside, forked = threading.Event(), threading.Event()
def wait():
    inside.set()
    forked.wait()
class Slow:
    size = 1
    def __lt__(self, other):
        wait()
        return [False]
def compute():
    {compute}
thread = threading.Thread(target=compute)
thread.start()
inside.wait()
child = os.fork()
if not child:
    signal.alarm(20)  # ends a process that hangs
    os._exit(not {call} < 1)
forked.set()
thread.join()
print(os.waitpid(child, 0)[1])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "0\n"


def test_without_flint_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "flint", None)
    for call in (lambda: gx2.certify(1.0, [1.0]), lambda: calibration.certify(1.0, 1e-6)):
        with pytest.raises(ImportError, match="extra `certify`"):
            call()


@pytest.mark.parametrize("number", [1.0, 0.1, -0.1, 1e300, -1e-300, 3e-320, 0.0])
def test_rounding_is_outwards(number):
    """`rounded` returns the largest double that is not above a ball (interval), and the smallest that is not below it.

    If the ball is only the point `number`, which is a double, both are `number`. If the ball is a point at a distance
    of 2**-1200 from `number`, one of them is `number`, and the other is the next double on the side of the point.
    """
    ball = flint.arb(number)
    assert rounded(ball) == Enclosure(number, number)
    with flint.ctx.workprec(4000):
        above, below = (rounded(ball + sign * flint.arb(2) ** -1200) for sign in (1, -1))
    assert above == Enclosure(number, math.nextafter(number, math.inf))
    assert below == Enclosure(math.nextafter(number, -math.inf), number)


def test_numbers_beyond_doubles_are_rounded_outwards():
    largest = sys.float_info.max
    assert rounded(flint.arb(10) ** 400) == Enclosure(largest, math.inf)
    assert rounded(-(flint.arb(10) ** 400)) == Enclosure(-math.inf, -largest)
    assert rounded((flint.arb(-(10**9))).exp()) == Enclosure(0.0, 5e-324)


def test_enclosure():
    interval = Enclosure(1.0, 1.5)
    assert (interval.value, interval.relative_width) == (1.25, 0.5)
    assert interval.contains(1.5)
    assert not interval.contains(Fraction(3, 2) + Fraction(1, 10**30))
    assert Enclosure(-1.0, 1.0).relative_width == math.inf
    assert Enclosure(0.0, 0.0).relative_width == 0


# --- calibration ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CALIBRATION["multipliers"], ids=lambda case: f"{case['epsilon']}-{case['delta']}")
def test_stored_noise_multipliers_are_enclosed(case):
    exact_one = calibration.certify(case["epsilon"], case["delta"])
    assert is_enclosed(case["multiplier"], exact_one, 29)
    assert exact_one.high == math.nextafter(exact_one.low, math.inf)
    assert calibration.analytic_noise_multiplier(case["epsilon"], case["delta"]) >= exact_one.low


@pytest.mark.parametrize("case", CALIBRATION["curve"], ids=lambda case: f"{case['epsilon']}-{case['multiplier']}")
def test_stored_privacy_curves_are_enclosed(case):
    """The 25 digits of each stored log delta of Gaussian noise are proved by ball arithmetic."""
    with flint.ctx.workprec(1000):  # the least |log delta| is 6e-138
        delta = _certified._gaussian_delta(flint.arb(case["epsilon"]), flint.arb(case["multiplier"]))
        assert digits_hold(case["log_delta"], delta.log(), 25)


@pytest.mark.parametrize("case", L2["curve"], ids=lambda case: f"{case['epsilon']}-{case['d']}")
def test_stored_l2_curves_are_enclosed(case):
    """The 25 digits of each stored log delta of l2 noise are proved by ball arithmetic."""
    with flint.ctx.workprec(200):
        delta = _certified._l2_delta(flint.arb(case["epsilon"]), flint.arb(case["noise_scale"]), case["d"])
        assert digits_hold(case["log_delta"], delta.log(), 25)


@pytest.mark.parametrize(
    "case",
    [slow(case)[0] if i % 3 else case for i, case in enumerate(L2["scales"])],
    ids=lambda case: f"{case['epsilon']}-{case['delta']}-{case['d']}",
)
def test_stored_l2_scales_are_enclosed(case):
    exact_one = calibration.certify(case["epsilon"], case["delta"], noise="l2", d=case["d"])
    assert is_enclosed(case["noise_scale"], exact_one, 24)
    assert exact_one.high == math.nextafter(exact_one.low, math.inf)
    assert calibration.l2_noise_scale(case["epsilon"], case["delta"], case["d"]) >= exact_one.low


@pytest.mark.parametrize(("epsilon", "delta"), [(1e-100, 1e-300), (1e100, 0.9), (1.0, 1 - 2.0**-53), (1e-100, 0.5)])
def test_extreme_privacy_parameters(epsilon, delta):
    multiplier = calibration.certify(epsilon, delta)
    assert multiplier.relative_width < 3e-16
    assert calibration.analytic_noise_multiplier(epsilon, delta) >= multiplier.low


def test_l2_noise_of_one_dimension_is_laplace_noise():
    with mp.workdps(40):
        scale = 1 / (mpf(0.5) - 2 * mp.log1p(-mpf(1e-5)))
    assert is_enclosed(scale, calibration.certify(0.5, 1e-5, noise="l2", d=1))


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"epsilon": 0.0, "delta": 0.1}, "epsilon"),
        ({"epsilon": [1.0, 2.0], "delta": 0.1}, "epsilon"),
        ({"epsilon": 1.0, "delta": 1.0}, "delta"),
        ({"epsilon": 1.0, "delta": 1e-301}, "delta"),
        ({"epsilon": 1.0, "delta": 0.1, "noise": "laplace"}, "noise"),
        ({"epsilon": 1.0, "delta": 0.1, "noise": "l2"}, "d"),
        ({"epsilon": 1.0, "delta": 0.1, "d": 3}, "d"),
        ({"epsilon": 1e-7, "delta": 0.1, "noise": "l2", "d": 3}, "epsilon"),
        ({"epsilon": 1.0, "delta": 0.1, "noise": "l2", "d": 0}, "d"),
    ],
)
def test_bad_privacy_parameters_are_named(arguments, name):
    with pytest.raises(ValueError, match=f"^{name} must"):
        calibration.certify(**arguments)
