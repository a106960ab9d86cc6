"""The forecast of the error: against closed forms, and against simulation within its standard error."""

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from egm import GaussianDataMechanism, error, gx2
from egm.experiments import zipf_sigma
from egm.scaling import expected_norm

FRACTIONS = [1e-8, 1e-4, 0.1, 0.5, 1.0, 2.0, 10.0]  # squared clip norm over its mean


def chi_square_losses(d, radius):
    """E[L Q] and E[L^2 Q] for Q ~ chi2(d), by the incomplete gamma function at 40 digits."""
    with mp.workdps(40):
        q, k = mp.mpf(radius), mp.mpf(d) / 2
        half, whole, none = (mp.mpf(2) ** a * mp.gammainc(k + a, q / 2) / mp.gamma(k) for a in (mp.mpf(1) / 2, 1, 0))
        return float(whole - mp.sqrt(q) * half), float(whole - 2 * mp.sqrt(q) * half + q * none)


# --- gx2.clip_moments -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fraction", FRACTIONS)
@pytest.mark.parametrize("d", [1, 2, 3, 10, 300])
def test_moments_of_equal_weights(d, fraction):
    """The sum over the coordinates is one of incomplete gamma functions."""
    _, lost, lost_square = gx2.clip_moments(d * fraction, np.ones(d))
    expected = chi_square_losses(d, d * fraction)
    assert [lost.sum(), lost_square.sum()] == pytest.approx(expected, rel=2e-12)


@pytest.mark.parametrize("fraction", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("nc", [0.0, 2.0])
def test_moments_agree_with_the_density(fraction, nc):
    """Each is an integral of conditional means over the density: another route, panel by panel."""
    weights, nc = 1 / np.arange(1.0, 5), nc * np.arange(4.0)
    x = fraction * gx2.mean(weights, nc=nc)
    form = gx2._form(*gx2._parameters(weights, 1, nc))
    once, twice, once_squared, twice_squared = gx2._lost_by_density(form, x / form.unit, weights)
    found = gx2.clip_moments(x, weights, nc=nc)
    for moment, other in zip(found, (once, once + nc * twice, once_squared + nc * twice_squared), strict=True):
        assert moment == pytest.approx(other, rel=1e-11)


def test_moments_of_clustered_weights():
    """The weights of a large form are clustered; a few of them are looked at."""
    weights = zipf_sigma(400, 1.0) ** 2
    x = gx2.isf(1e-3, weights)
    crowded = gx2.clip_moments(x, weights)
    nudged = gx2._Form(2 * weights[0], weights[::-1], weights[::-1], np.ones(400), np.zeros(400))
    once, _, once_squared, _ = gx2._lost_in_tail(nudged, np.longdouble(x) / nudged.unit, weights)
    assert crowded[1] == pytest.approx(once, rel=1e-11)
    assert crowded[2] == pytest.approx(once_squared, rel=1e-11)


@given(st.floats(1e-3, 1e3), st.permutations(range(5)), st.floats(0.01, 20))
def test_moments_scale_and_permute(factor, order, x):
    """Units and the order of the coordinates do not matter."""
    weights, nc, order = 1 / np.arange(1.0, 6), np.array([0, 1, 0, 0.5, 3]), list(order)
    once = np.array(gx2.clip_moments(x, weights, nc=nc))
    again = np.array(gx2.clip_moments(factor * x, factor * weights[order], nc=nc[order]))
    assert again == pytest.approx(once[:, order], rel=1e-10)


# --- forecasts --------------------------------------------------------------------------------------------------------

rng = np.random.default_rng(20)
SETTINGS = [
    (int(d), float(alpha), int(n), float(p), float(shift), str(target))
    for d, alpha, n, p, shift, target in zip(
        rng.choice([1, 2, 5, 20, 60], 200),
        rng.choice([0.0, 0.5, 1.0, 2.0], 200),
        rng.choice([1, 5, 40], 200),
        rng.uniform(0.01, 0.9999, 200),
        rng.choice([0.0, 0.0, 0.3, 2.0], 200),
        rng.choice(["sample", "population"], 200),
        strict=True,
    )
]


def simulated(sigma, n, b, clip_norm, offset, target, draws, rng):
    """Squared errors of simulated sums of clipped rows, without noise: shape (draws,)."""
    x = offset + sigma * rng.normal(size=(draws, n, sigma.size))
    norms = np.linalg.norm(b * x, axis=2, keepdims=True)
    clipped = (x * np.minimum(1, clip_norm / norms)).sum(axis=1)
    goal = x.sum(axis=1) if target == "sample" else n * offset
    return np.sum((clipped - goal) ** 2, axis=1)


@pytest.mark.parametrize("setting", range(200))
def test_forecast_agrees_with_simulation(setting):
    """Within 4.5 standard errors, in 200 settings drawn once: central and not, few or nearly all rows clipped."""
    d, alpha, n, p, shift, target = SETTINGS[setting]
    rng = np.random.default_rng([setting, 7])
    sigma = zipf_sigma(d, alpha)
    offset, b = shift * sigma * rng.normal(size=d), expected_norm(sigma)
    clip_norm = np.sqrt(gx2.isf(p, (b * sigma) ** 2))
    forecast = sum(error.clipping(sigma, n, b, clip_norm, offset, target))
    errors = simulated(sigma, n, b, clip_norm, offset, target, 120_000 // (n * d) + 1000, rng)
    assert abs(errors.mean() - forecast) <= 4.5 * errors.std() / np.sqrt(errors.size)


def test_forecast_has_no_center_error_at_the_center():
    """The clipped parts are symmetric about it."""
    sigma = zipf_sigma(6, 1.0)
    variance, bias = error.clipping(sigma, 50, expected_norm(sigma), 0.8)
    assert variance > 0
    assert bias == 0


def test_optimal_clip_norm_is_stationary():
    """No clip norm near it does better, and far ones do worse."""
    sigma = zipf_sigma(30, 1.0)
    best = GaussianDataMechanism(sigma, 1000, 1.0, 1e-6, clip_probability="optimal")
    p, total = best.p, best.error().total
    for other in (p * 0.5, p * 0.99, p + 0.01 * (1 - p), p + 0.5 * (1 - p)):
        again = GaussianDataMechanism(sigma, 1000, 1.0, 1e-6, clip_probability=other, scaling=best.b)
        assert again.error().total > total


def test_optimal_clip_probability_beats_the_report_by_far():
    """By a factor of more than four where the noise is large, and never the other way round."""
    for n, least in ((1000, 4.0), (10**6, 1.5)):
        sigma = zipf_sigma(20, 1.0)
        report = GaussianDataMechanism(sigma, n, 1.0, 1e-6, scaling="expected_norm").error().total
        assert report / GaussianDataMechanism(sigma, n, 1.0, 1e-6, clip_probability="optimal").error().total > least
