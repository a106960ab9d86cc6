"""Test the calibration of Gaussian noise by stored values with 30 digits, and by properties of the privacy curve.

The privacy curve is the least delta as a function of epsilon. The noise multiplier is the standard deviation of the
noise divided by the sensitivity.
"""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mpmath import mp, mpf
from scipy import stats

from egm.calibration import (
    analytic_noise_multiplier,
    classic_noise_multiplier,
    gaussian_delta,
    gaussian_epsilon,
    zcdp_epsilon,
    zcdp_noise_multiplier,
    zcdp_rho,
)
from tests.conftest import slow
from tests.egm.stored import CALIBRATION, excess

epsilons = st.floats(1e-8, 200)
deltas = st.floats(1e-300, 0.5)


@pytest.mark.parametrize("case", CALIBRATION["multipliers"], ids=lambda case: f"{case['epsilon']}-{case['delta']}")
def test_multiplier_is_exact_and_never_too_small(case):
    z = analytic_noise_multiplier(case["epsilon"], case["delta"])
    assert 0 <= excess(z, case["multiplier"]) <= 1e-13


def test_multipliers_broadcast():
    epsilon, delta = (np.unique([case[name] for case in CALIBRATION["multipliers"]]) for name in ("epsilon", "delta"))
    grid = analytic_noise_multiplier(epsilon[:, None], delta)
    assert grid.shape == (epsilon.size, delta.size)
    assert grid[3, 4] == analytic_noise_multiplier(epsilon[3], delta[4])


@pytest.mark.parametrize("case", CALIBRATION["curve"], ids=lambda case: f"{case['epsilon']}-{case['multiplier']}")
def test_curve_is_exact(case):
    with mp.workdps(40):
        exact = mp.exp(mpf(case["log_delta"]))
    if exact < 2.3e-308:  # the smallest normal double
        assert gaussian_delta(case["epsilon"], case["multiplier"]) <= 2.3e-308
    else:
        assert abs(excess(gaussian_delta(case["epsilon"], case["multiplier"]), exact)) <= 1e-13


@given(epsilons, deltas)
def test_noise_suffices(epsilon, delta):
    assert gaussian_delta(epsilon, analytic_noise_multiplier(epsilon, delta)) <= delta


@given(epsilons, deltas)
def test_noise_suffices_with_eighty_digits(epsilon, delta):
    """Gaussian noise with the multiplier `analytic_noise_multiplier(epsilon, delta)` has at most this delta, exactly.

    The delta of the noise at `epsilon` is computed with 80 digits and compared with `delta`. Proofs in the project's
    documentation need this inequality to hold without any rounding error.
    """
    z = mpf(float(analytic_noise_multiplier(epsilon, delta)))
    with mp.workdps(80):  # the subtraction of nearly equal terms loses about thirty of them
        above, below = mp.ncdf(1 / (2 * z) - epsilon * z), mp.ncdf(-1 / (2 * z) - epsilon * z)
        assert above - mp.exp(epsilon) * below <= mpf(delta)


@given(epsilons, deltas)
def test_less_noise_does_not_suffice(epsilon, delta):
    z = analytic_noise_multiplier(epsilon, delta)
    assert gaussian_delta(epsilon, z * (1 - 1e-12)) > delta


@given(st.floats(1e-3, 50), st.floats(1e-200, 0.3))
def test_epsilon_inverts_delta(epsilon, delta):
    z = analytic_noise_multiplier(epsilon, delta)
    again = gaussian_epsilon(delta, z)
    assert gaussian_delta(again, z) <= delta
    assert again == pytest.approx(epsilon, rel=1e-12)


@pytest.mark.parametrize("delta", [1e-300, 1e-72, 1e-57, 1e-6, 0.5, 0.9])
def test_noise_keeps_delta_by_more_than_its_relative_error(delta):
    epsilon = np.geomspace(1e-100, 1e100, 2001)
    assert np.all(gaussian_delta(epsilon, analytic_noise_multiplier(epsilon, delta)) <= delta * (1 - 1e-14))


@pytest.mark.parametrize("delta", [1e-200, 1e-6, 0.1, 0.3])
def test_epsilon_keeps_delta_by_more_than_its_relative_error(delta):
    z = np.geomspace(0.05, 30, 50)
    assert np.all(gaussian_delta(gaussian_epsilon(delta, z), z) <= delta * (1 - 1e-14))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999, 1 - 2e-14])
def test_epsilon_keeps_a_delta_that_is_a_share_of_the_largest(share):
    """`gaussian_epsilon` keeps delta by more than its relative error also for much noise, whose largest delta is small.

    The largest delta of noise with the multiplier z is its delta for epsilon = 0; delta is `share` times this number.
    """
    z = np.concatenate([np.geomspace(0.5, 1e12, 500), np.geomspace(1e20, 1e300, 50)])
    delta = share * gaussian_delta(0.0, z)
    assert np.all(gaussian_delta(gaussian_epsilon(delta, z), z) <= delta * (1 - 1e-14))


@pytest.mark.parametrize("z", [2.0, 3.0, 4.15, 26.16, 42.45, 52.95, 1e6, 1e20])
@pytest.mark.parametrize("share", [1 - 1e-15, 1.0, 1 - 1e-10])
def test_epsilon_next_to_zero_is_found(z, share):
    """If the exact epsilon is nearly 0, `gaussian_epsilon` is at most 1e-13 * delta / slope above it, and not below.

    `gaussian_epsilon` returns the epsilon of Gaussian noise for a noise multiplier, here `z`, and a delta. D is the
    delta of the noise at epsilon = 0, and the test uses delta = `share` * D. The slope is the absolute slope of the
    privacy curve at epsilon = 0: Phi(-1/(2z)), where Phi is the normal distribution function. Because the curve is
    convex, the exact epsilon is nearly (D - delta) / slope for a delta near D.
    """
    delta = float(gaussian_delta(0.0, z)) * share
    found = float(gaussian_epsilon(delta, z))
    with mp.workdps(60):
        at_zero, slope = 1 - 2 * mp.ncdf(-1 / (2 * mpf(z))), mp.ncdf(-1 / (2 * mpf(z)))
        above, below = (mp.ncdf(sign / (2 * mpf(z)) - mpf(found) * mpf(z)) for sign in (1, -1))
        assert above - mp.exp(mpf(found)) * below <= mpf(delta)
        assert found <= (at_zero - mpf(delta) * (1 - mpf("1e-13"))) / slope * (1 + mpf("1e-9"))


def test_epsilon_next_to_zero_is_found_in_an_array():
    epsilon = np.geomspace(1e-16, 1e-5, 60)
    z = analytic_noise_multiplier(epsilon, 1e-3)
    found = gaussian_epsilon(1e-3, z)
    assert np.all(gaussian_delta(found, z) <= 1e-3)
    np.testing.assert_allclose(found, epsilon, rtol=1e-12, atol=1e-15)


def test_epsilon_is_zero_where_the_noise_hides_everything():
    # At epsilon = 0 the curve is the total variation distance of N(0, z^2) and N(1, z^2), 2 Phi(1/(2z)) - 1.
    total_variation = 2 * stats.norm.cdf(0.5 / 3.0) - 1
    assert gaussian_delta(0, 3.0) == pytest.approx(total_variation, rel=1e-14)
    assert gaussian_epsilon(total_variation * 1.01, 3.0) == 0
    assert gaussian_epsilon(total_variation * 0.99, 3.0) > 0


@pytest.mark.parametrize("delta", [1e-300, 1e-6, 0.5])
def test_epsilon_of_hardly_any_noise(delta):
    """For z <= 1e-100, `gaussian_epsilon` is 1 / (2 z^2), rounded up by at most a relative 1e-13.

    The result is the epsilon of Gaussian noise for the noise multiplier z, and for so little noise it hardly depends on
    `delta`. Results above 1e308 are infinite. For z = 1e-10, the results for an array and for a number are equal.
    """
    z = np.array([1e-10, 1e-100, 1e-153, 7.2e-155, 7e-155, 1e-160, 1e-308, 5e-324])
    found = gaussian_epsilon(delta, z)
    np.testing.assert_allclose(found[1:4], 0.5 / z[1:4] / z[1:4], rtol=1e-13)
    assert np.all(found[1:4] >= 0.5 / z[1:4] / z[1:4])
    assert np.all(found[4:] == np.inf)
    assert found[0] == gaussian_epsilon(delta, z[0])


def test_classic_is_theorem_1():
    assert classic_noise_multiplier(0.5, 1e-5) == pytest.approx(2 * np.sqrt(2 * np.log(1.25e5)), rel=1e-15)
    assert classic_noise_multiplier(0.5, 2.0**-1074) == pytest.approx(
        2 * np.sqrt(2 * (np.log(1.25) + 1074 * np.log(2))), rel=1e-15
    )
    with pytest.raises(ValueError, match=r"epsilon must be < 1 .* got 1\.0; use analytic_noise_multiplier"):
        classic_noise_multiplier([0.5, 1.0], 1e-5)


@given(st.floats(1e-6, 0.999), st.floats(1e-12, 0.1))
def test_classic_is_never_better_than_the_exact_calibration(epsilon, delta):
    assert classic_noise_multiplier(epsilon, delta) > analytic_noise_multiplier(epsilon, delta)


def test_noise_for_rho_is_enough_to_the_last_digit():
    """The noise multiplier z for rho is at least 1 / sqrt(2 rho), and above it by at most a relative 7e-16.

    This is Proposition 1.6 of Bun and Steinke (2016). The comparison is in exact arithmetic.
    """
    rho = np.append(10.0 ** np.random.default_rng(5).uniform(-300, 300, 1000), [0.5, 0.125, 2.0, 5e-324])
    spent = [
        2 * Fraction(r) * Fraction(z) ** 2
        for r, z in zip(rho.tolist(), zcdp_noise_multiplier(rho).tolist(), strict=True)
    ]
    assert all(1 <= share <= 1 + Fraction(14, 10**16) for share in spent)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0, 0.0])
@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda v: analytic_noise_multiplier(v, 1e-6), "epsilon"),
        (lambda v: analytic_noise_multiplier(1.0, v), "delta"),
        (lambda v: classic_noise_multiplier(v, 1e-6), "epsilon"),
        (lambda v: classic_noise_multiplier(0.5, v), "delta"),
        (lambda v: gaussian_delta(1.0, v), "noise_multiplier"),
        (lambda v: gaussian_epsilon(v, 1.0), "delta"),
        (lambda v: zcdp_noise_multiplier(v), "rho"),
    ],
)
def test_bad_values_are_named(call, name, bad):
    with pytest.raises(ValueError, match=f"{name} must .* got" if bad == bad else f"{name} must not be NaN"):
        call(bad)


@pytest.mark.parametrize(
    ("epsilon", "delta", "message"),
    [
        *((bad, 1e-6, r"^epsilon must lie between 1e-100 and 1e\+100, got ") for bad in (0.99e-100, 1.01e100)),
        (1.0, 0.99e-300, r"^delta must lie between 1e-300 and 1\.0, got "),
    ],
)
def test_values_outside_the_range_of_the_calibration_are_named(epsilon, delta, message):
    with pytest.raises(ValueError, match=message):
        analytic_noise_multiplier(epsilon, delta)


@pytest.mark.parametrize("bad", ["1", None, True, 1j, [[1], "a"]])
def test_bad_types_are_named(bad):
    with pytest.raises(TypeError, match="epsilon must be a real number"):
        analytic_noise_multiplier(bad, 1e-6)


@pytest.mark.parametrize("z", [5e-324, 1e-150, 1e-18, 1e-10, 1e-5, 0.02])
def test_hardly_any_noise_is_hardly_private(z):
    """For noise with a standard deviation `z` near 0, `gaussian_delta(1.0, z)` is near 1 and exact to a relative 1e-14.

    `gaussian_delta(1.0, z)` is the least delta of the noise for epsilon = 1 and the sensitivity 1.
    """
    with mp.workdps(60):
        exact = float(mp.ncdf(0.5 / mpf(z) - mpf(z)) - mp.e * mp.ncdf(-0.5 / mpf(z) - mpf(z))) if z > 1e-3 else 1.0
    assert gaussian_delta(1.0, z) == pytest.approx(exact, rel=1e-14)


# --- zCDP -------------------------------------------------------------------------------------------------------------


@given(st.floats(1e-6, 100), st.floats(1e-15, 0.5))
def test_conversion_from_zcdp_is_a_bound_and_the_best_of_its_kind(rho, delta):
    """`zcdp_epsilon(rho, delta)` is at least the epsilon of a Gaussian mechanism with this `rho` and `delta`.

    The conversion formula gives an epsilon for each order of the Rényi divergence. The result agrees with the least of
    these epsilons, within a relative 1e-5.
    """
    epsilon = zcdp_epsilon(rho, delta)
    assert epsilon >= gaussian_epsilon(delta, zcdp_noise_multiplier(rho))
    u = np.linspace(-15, 25, 40_001)
    alpha = 1 + np.exp(u)
    by_alpha = rho * alpha + (-np.log(delta) - u + alpha * np.log1p(-1 / alpha)) / (alpha - 1)
    assert epsilon == pytest.approx(max(by_alpha.min(), 0), rel=1e-5, abs=1e-12)


@given(st.floats(1e-6, 100), st.floats(1e-15, 0.5))
def test_conversions_are_inverse(epsilon, delta):
    assert zcdp_epsilon(zcdp_rho(epsilon, delta), delta) == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize("conversion", [zcdp_rho, zcdp_epsilon])
def test_conversions_do_not_depend_on_how_the_caller_handles_floating_point_errors(conversion):
    level, delta = np.array([0.01, 0.1, 1.0, 3.0])[:, None], np.array([1e-3, 1e-6, 1e-9])
    found = conversion(level, delta)
    with np.errstate(all="raise"):
        np.testing.assert_array_equal(conversion(level, delta), found)


def parts(u, delta):
    """Return the number c for which a zCDP cost rho is converted to epsilon = rho alpha + c, for this `delta`.

    alpha = 1 + exp(`u`) is an order of the Rényi divergence, and each order gives another valid epsilon. mpmath
    computes with its current number of digits.
    """
    alpha = 1 + mp.exp(u)
    return (-mp.log(delta) - u + alpha * mp.log(1 - 1 / alpha)) / (alpha - 1)


def least(function, start):
    """Return the least value of `function`, which has one local minimum, by a grid near `start` and ternary search."""
    best = min((start + mpf(i) / 2 for i in range(-80, 81)), key=function)
    low, high = best - mpf(1) / 2, best + mpf(1) / 2
    for _ in range(80):
        third = (high - low) / 3
        low, high = (low, high - third) if function(low + third) < function(high - third) else (low + third, high)
    return function(low)


CLOSE = [1e-9, 0.05, 0.9, 0.97, 0.995, 1 - 1e-4, 0.9999985730244902, 1 - 1e-9, 1 - 1e-13]


@pytest.mark.parametrize("delta", CLOSE)
@pytest.mark.parametrize("level", [1.5900369033821384e-06, *slow(0.01, 0.7), 20.0])
def test_conversions_are_on_the_safe_side_also_for_delta_near_one(level, delta):
    """`zcdp_rho` never returns more than the exact value, and `zcdp_epsilon` never less, even for `delta` near 1.

    The exact value is the largest rho, or the least epsilon, over all orders of the Rényi divergence, computed with 60
    digits. `level` is the epsilon that is given to `zcdp_rho`, and the rho that is given to `zcdp_epsilon`. The error
    of `zcdp_rho` is below a relative 1e-11, and that of `zcdp_epsilon` is below 1e-11 (1 + epsilon).
    """
    with mp.workdps(60):
        t, start = mpf(delta), mp.log(mp.sqrt(-mp.log(mpf(delta)) / level))
        rho = -least(lambda u: (parts(u, t) - mpf(level)) / (1 + mp.exp(u)), start)
        epsilon = max(least(lambda u: mpf(level) * (1 + mp.exp(u)) + parts(u, t), start), mpf(0))
        assert -1e-11 < float(mpf(float(zcdp_rho(level, delta))) / rho - 1) <= 0
        assert 0 <= float(mpf(float(zcdp_epsilon(level, delta))) - epsilon) < 1e-11 * (1 + epsilon)


TINY = [(2.7842002308211585e-109, 1.7575500420923474e-73), (4.694530796298356e-09, 3.441324368364586e-08)]


@pytest.mark.parametrize(("epsilon", "delta"), TINY)
def test_the_rho_of_a_tiny_epsilon_is_on_the_safe_side(epsilon, delta):
    """`zcdp_rho` is below the exact value, computed with 400 digits, by at most a relative 1e-11 for a tiny `epsilon`.

    Two terms of the formula are far larger there than their difference, and so are their rounding errors.
    """
    with mp.workdps(400):
        start = min(mp.log(-2 * mp.log(mpf(delta)) / mpf(epsilon)), 1 - mp.log(mpf(delta)))
        exact = -least(lambda u: (parts(u, mpf(delta)) - mpf(epsilon)) / (1 + mp.exp(u)), start)
        assert exact * (1 - mpf(10) ** -11) <= mpf(float(zcdp_rho(epsilon, delta))) <= exact


# --- Far tails, and delta near 1 --------------------------------------------------------------------------------------


@given(st.floats(-8, 12), st.floats(-300, -0.001))
@example(3.0, -6.0)
def test_curve_is_exact_in_far_tails(log_epsilon, log_delta):
    """`gaussian_delta` has a relative error below 1e-13 for results down to 1e-300 and epsilon from 1e-8 to 1e12.

    `log_epsilon` and `log_delta` are the decimal logarithms of epsilon and of the result.
    """
    epsilon = 10.0**log_epsilon
    z = float(analytic_noise_multiplier(epsilon, 10.0**log_delta))
    with mp.workdps(60):
        a, b = 1 / (2 * mpf(z)) - mpf(epsilon) * mpf(z), 1 / (2 * mpf(z)) + mpf(epsilon) * mpf(z)
        upper = mp.exp(mpf(epsilon) - b**2 / 2) * mills(b) if b > 30 else mp.exp(mpf(epsilon)) * mp.ncdf(-b)
        exact = mp.ncdf(a) - upper
    assert abs(excess(gaussian_delta(epsilon, z), exact)) <= 1e-13


def mills(x):
    """Return Phi(-`x`) exp(`x`^2 / 2) for large `x`, where Phi is the normal distribution function, by mpmath."""
    tail = mpf(0)
    for k in range(400, 0, -1):
        tail = k / (x + tail)
    return 1 / (mp.sqrt(2 * mp.pi) * (x + tail))


@pytest.mark.parametrize("epsilon", [1e-4, 0.0118, 1.0, 60.0])
@pytest.mark.parametrize("gap", [1.1102230246251565e-16, 1.6e-15, 1e-14, 1e-12, 1e-6])
def test_noise_for_delta_near_one(epsilon, gap):
    z = analytic_noise_multiplier(epsilon, 1 - gap)
    assert 0 < z < analytic_noise_multiplier(epsilon, 0.999)
    with mp.workdps(60):
        above, below = (mp.ncdf(sign / (2 * mpf(z)) - epsilon * mpf(z)) for sign in (1, -1))
        assert above - mp.exp(epsilon) * below <= mpf(1 - gap)


def test_every_allowed_parameter_has_an_answer():
    """The functions of `egm.calibration` return valid numbers, without a warning, for extreme parameters.

    `analytic_noise_multiplier` gives enough noise for epsilon from 1e-100 to 1e100 and delta from 1e-300 to near 1. For
    parameters from 5e-324 to 1e300, `gaussian_delta` is between 0 and 1, and `gaussian_epsilon` and `zcdp_epsilon` are
    not negative. `zcdp_rho` does not fall if epsilon grows, and is above 0 for delta > 1e-150. `gaussian_delta` and
    `zcdp_rho` return valid results for an epsilon up to 1.79e308. For epsilon = 0 and a large noise multiplier z, z
    times delta is the density of the standard normal distribution at 0.
    """
    epsilon = np.geomspace(1e-100, 1e100, 21)[:, None]
    delta = np.concatenate([np.geomspace(1e-300, 0.9, 12), 1 - np.geomspace(0.1, 1.2e-16, 12)])
    z = analytic_noise_multiplier(epsilon, delta)
    assert np.all(gaussian_delta(epsilon, z) <= delta)
    assert np.all(z > 0)
    extreme = np.append(np.geomspace(1e-300, 1e300, 21), [5e-324, 1e-310])
    curve = gaussian_delta(extreme[:, None], extreme)
    assert np.all((curve >= 0) & (curve <= 1))
    assert np.all(gaussian_epsilon(delta, extreme[:, None]) >= 0)
    assert np.all(zcdp_epsilon(extreme[:, None], delta) >= 0)
    rho = zcdp_rho(np.sort(extreme)[:, None], delta)
    assert np.all(rho[1:] >= rho[:-1] * (1 - 1e-11))
    assert np.all(rho[:, delta > 1e-150] > 0)
    largest = zcdp_rho(np.array([1e307, 5e307, 1e308, 1.2e308, 1.79e308])[:, None], delta)
    assert np.all((largest[1:] >= largest[:-1]) & (largest[1:] >= 0.99 * 5e307) & (largest[1:] <= 5e307))
    ends = np.append(np.geomspace(1e300, 1.79e308, 9), 0.0)
    curve = gaussian_delta(ends[:, None], ends[:-1])
    assert np.all((curve >= 0) & (curve <= 1))
    np.testing.assert_allclose(curve[-1], 1 / np.sqrt(2 * np.pi) / ends[:-1], rtol=1e-13, atol=5e-324)
    assert zcdp_noise_multiplier(1e308) >= (1 / mp.sqrt(2 * mpf("1e308")))
