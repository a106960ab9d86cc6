"""Calibration of Gaussian noise against 30-digit values and the laws of the privacy curve."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
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

REFERENCE = json.loads((Path(__file__).parent / "reference" / "calibration.json").read_text())

epsilons = st.floats(1e-8, 200)
deltas = st.floats(1e-300, 0.5)


def excess(value, exact):
    """value / exact - 1, with the digits that a double subtraction would lose."""
    with mp.workdps(40):
        return float(mpf(float(value)) / mpf(exact) - 1)


@pytest.mark.parametrize("case", REFERENCE["multipliers"], ids=lambda case: f"{case['epsilon']}-{case['delta']}")
def test_multiplier_is_exact_and_never_too_small(case):
    z = analytic_noise_multiplier(case["epsilon"], case["delta"])
    assert 0 <= excess(z, case["multiplier"]) <= 1e-13


def test_multipliers_broadcast():
    epsilon, delta = (np.unique([case[name] for case in REFERENCE["multipliers"]]) for name in ("epsilon", "delta"))
    grid = analytic_noise_multiplier(epsilon[:, None], delta)
    assert grid.shape == (epsilon.size, delta.size)
    assert grid[3, 4] == analytic_noise_multiplier(epsilon[3], delta[4])


@pytest.mark.parametrize("case", REFERENCE["curve"], ids=lambda case: f"{case['epsilon']}-{case['multiplier']}")
def test_curve_is_exact(case):
    with mp.workdps(40):
        exact = mp.exp(mpf(case["log_delta"]))
    if exact < 2.3e-308:  # the smallest normal double
        assert gaussian_delta(case["epsilon"], case["multiplier"]) <= 2.3e-308
    else:
        assert abs(excess(gaussian_delta(case["epsilon"], case["multiplier"]), exact)) <= 2e-13


@given(epsilons, deltas)
def test_noise_suffices(epsilon, delta):
    assert gaussian_delta(epsilon, analytic_noise_multiplier(epsilon, delta)) <= delta


@given(epsilons, deltas)
def test_noise_suffices_with_eighty_digits(epsilon, delta):
    """What the proofs of chapter 12 assume. The curve of Balle and Wang at the double that is returned, not our own."""
    z = mpf(float(analytic_noise_multiplier(epsilon, delta)))
    with mp.workdps(80):  # some thirty are lost where the two terms are nearly equal
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


def test_epsilon_is_zero_where_the_noise_hides_everything():
    # At epsilon = 0 the curve is the total variation distance of N(0, z^2) and N(1, z^2), 2 Phi(1/(2z)) - 1.
    total_variation = 2 * stats.norm.cdf(0.5 / 3.0) - 1
    assert gaussian_delta(0, 3.0) == pytest.approx(total_variation, rel=1e-14)
    assert gaussian_epsilon(total_variation * 1.01, 3.0) == 0
    assert gaussian_epsilon(total_variation * 0.99, 3.0) > 0


def test_classic_is_theorem_1():
    assert classic_noise_multiplier(0.5, 1e-5) == pytest.approx(2 * np.sqrt(2 * np.log(1.25e5)), rel=1e-15)
    with pytest.raises(ValueError, match=r"epsilon must be < 1 .* got 1\.0; use analytic_noise_multiplier"):
        classic_noise_multiplier([0.5, 1.0], 1e-5)


@given(st.floats(1e-6, 0.999), st.floats(1e-12, 0.1))
def test_classic_is_never_better_than_the_exact_calibration(epsilon, delta):
    assert classic_noise_multiplier(epsilon, delta) > analytic_noise_multiplier(epsilon, delta)


def test_zcdp():
    # rho = 1/(2 z^2) for sensitivity 1 (Bun and Steinke 2016, Proposition 1.6).
    assert zcdp_noise_multiplier(0.5) == 1
    np.testing.assert_allclose(zcdp_noise_multiplier([0.125, 2.0]), [2.0, 0.5])


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


@pytest.mark.parametrize("bad", ["1", None, True, 1j, [[1], "a"]])
def test_bad_types_are_named(bad):
    with pytest.raises(TypeError, match="epsilon must be a real number"):
        analytic_noise_multiplier(bad, 1e-6)


@pytest.mark.parametrize("z", [5e-324, 1e-150, 1e-18, 1e-10, 1e-5, 0.02])
def test_hardly_any_noise_is_hardly_private(z):
    """Where the privacy loss is certain to exceed epsilon."""
    with mp.workdps(60):
        exact = float(mp.ncdf(0.5 / mpf(z) - mpf(z)) - mp.e * mp.ncdf(-0.5 / mpf(z) - mpf(z))) if z > 1e-3 else 1.0
    assert gaussian_delta(1.0, z) == pytest.approx(exact, rel=1e-14)


# --- zCDP -------------------------------------------------------------------------------------------------------------


@given(st.floats(1e-6, 100), st.floats(1e-15, 0.5))
def test_conversion_from_zcdp_is_a_bound_and_the_best_of_its_kind(rho, delta):
    """Above the exact epsilon of a Gaussian mechanism with this rho, and the least over a fine grid of alpha."""
    epsilon = zcdp_epsilon(rho, delta)
    assert epsilon >= gaussian_epsilon(delta, zcdp_noise_multiplier(rho))
    u = np.linspace(-15, 25, 40_001)
    alpha = 1 + np.exp(u)
    by_alpha = rho * alpha + (-np.log(delta) - u + alpha * np.log1p(-1 / alpha)) / (alpha - 1)
    assert epsilon == pytest.approx(max(by_alpha.min(), 0), rel=1e-5, abs=1e-12)


@given(st.floats(1e-6, 100), st.floats(1e-15, 0.5))
def test_conversions_are_inverse(epsilon, delta):
    assert zcdp_epsilon(zcdp_rho(epsilon, delta), delta) == pytest.approx(epsilon, rel=1e-9)
