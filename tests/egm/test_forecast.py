"""Test that the forecast of a release's squared error agrees with closed forms and with simulation.

A part of the error comes from the noise, and another part from clipping, that is, from shortening rows to the clip
norm. What a row loses by clipping is the row minus the clipped row.
"""

from contextlib import suppress

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from egm import AdaptiveDataMechanism, GaussianDataMechanism, forecast, gx2
from egm._gx2 import clipping, form
from egm.scaling import expected_norm
from egm.study.tables import zipf_sigma
from tests.conftest import slow

FRACTIONS = [1e-8, 1e-4, 0.1, 0.5, 1.0, 2.0, 10.0]  # squared clip norm over the mean of the squared norm


def chi_square_losses(d, radius):
    """Return E[L Q] and E[L^2 Q] for Q ~ chi2(`d`), where L = max(0, 1 - sqrt(`radius` / Q)), as two floats.

    Q is the squared norm of a normal vector. If the vector is clipped to the squared norm `radius`, it loses the
    fraction L of its length. The means are computed with 40 digits.
    """
    with mp.workdps(40):
        q, k = mp.mpf(radius), mp.mpf(d) / 2
        half, whole, none = (mp.mpf(2) ** a * mp.gammainc(k + a, q / 2) / mp.gamma(k) for a in (mp.mpf(1) / 2, 1, 0))
        return float(whole - mp.sqrt(q) * half), float(whole - 2 * mp.sqrt(q) * half + q * none)


# --- gx2.clip_moments -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fraction", FRACTIONS)
@pytest.mark.parametrize("d", [1, 2, 3, 10, 300])
def test_moments_of_equal_weights(d, fraction):
    """For `d` equal weights, the results of `gx2.clip_moments` add up to the closed forms of `chi_square_losses`.

    `gx2.clip_moments` returns, for each coordinate of a normal row, moments of the part that the row loses by clipping.
    They are added up over the coordinates. `fraction` is the squared clip norm, divided by the mean squared norm of a
    row. The tolerance is a relative 2e-12.
    """
    _, lost, lost_square = gx2.clip_moments(d * fraction, np.ones(d))
    expected = chi_square_losses(d, d * fraction)
    assert [lost.sum(), lost_square.sum()] == pytest.approx(expected, rel=2e-12)


@pytest.mark.parametrize("fraction", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("nc", [0.0, 2.0])
def test_moments_agree_with_the_density(fraction, nc):
    """`gx2.clip_moments`, which integrates over a tail, agrees with integrals over the density to a relative 1e-11.

    The results are moments of the part that a normal row loses by clipping. `fraction` is the squared clip norm,
    divided by the mean squared norm of a row. The noncentralities of the four coordinates are 0, `nc`, 2 `nc` and 3
    `nc`.
    """
    weights, nc = 1 / np.arange(1.0, 5), nc * np.arange(4.0)
    x = fraction * gx2.mean(weights, nc=nc)
    whole = form.form_of(*form.parameters(weights, 1, nc))
    once, twice, once_squared, twice_squared = clipping._lost(clipping._by_complement(whole, x / whole.unit), weights)
    found = gx2.clip_moments(x, weights, nc=nc)
    for moment, other in zip(found, (once, once + nc * twice, once_squared + nc * twice_squared), strict=True):
        assert moment == pytest.approx(other, rel=1e-11)


@pytest.mark.parametrize("seed", range(40))
def test_two_ways_to_the_moments_agree(seed):
    """Two ways to compute moments of what a normal row loses by clipping agree, to a relative 1e-11.

    `_in_tail` integrates over the clipped rows. `_by_complement` integrates over all rows, and subtracts the unclipped
    ones. The two ways differ by at most the sum of their estimated errors. `seed` determines the parameters, which are
    drawn again if `_in_tail` raises an AccuracyError.
    """
    rng, found = np.random.default_rng(seed), None
    while found is None:
        d = int(rng.integers(1, 8))
        weights = np.exp(rng.normal(0, rng.choice([0.5, 3, 8]), d))
        nc = rng.choice([0, 1, 30, 1e4]) * rng.chisquare(1, d) * (rng.random(d) < 0.7)
        whole = form.form_of(*form.parameters(weights, 1, nc))
        x = np.longdouble(gx2.mean(weights, nc=nc) * np.exp(rng.uniform(-8, -0.2)) / whole.unit)
        with suppress(gx2.AccuracyError):
            in_tail = [clipping._in_tail(whole, x)]
            found = clipping._lost(in_tail, weights)
    by_complement = list(clipping._by_complement(whole, x))
    other = clipping._lost(by_complement, weights)
    np.testing.assert_allclose(other, found, rtol=1e-11)
    errors = clipping._errors(in_tail, weights) + clipping._errors(by_complement, weights)
    assert np.all(np.abs(found - other) <= errors)
    assert np.all(errors <= 1e-9 * found)


@pytest.mark.parametrize("narrow", [1e-1, 1e-3, 1e-6])
@pytest.mark.parametrize("distance", [1.0, 2.83, 14.1, 1000.0])
def test_a_center_that_is_off_in_a_narrow_column(narrow, distance):
    """If the center is wrong by `distance` in a narrow column, `GaussianDataMechanism.error` still forecasts the error.

    The narrow column has the small standard deviation `narrow`, and the other column has 1.4. The forecast agrees with
    numerical integration to a relative 1e-7, or to 1e-3 for the smallest distance, where many rows are near the clip
    norm and the integration is less exact.
    """
    it = GaussianDataMechanism([1.0, 1.0], 1000, 1.0, 1e-6, clip_probability=0.3, scaling="none")
    z, (nodes, mass) = np.linspace(-12, 12, 40_001), np.polynomial.hermite_e.hermegauss(41)
    u, v = 1.4 * z[:, None], distance + narrow * nodes
    both = np.exp(-(z[:, None] ** 2) / 2) * mass
    both /= both.sum()
    lost = np.maximum(0, 1 - it.clip_norm / np.hypot(u, v))
    mean, square = np.sum(both * lost * v), np.sum(both * lost**2 * (u**2 + v**2))
    found = it.error(sigma=[1.4, narrow], mean=[0, distance])
    rtol = 1e-3 if distance < 2 else 1e-7
    assert found.center == pytest.approx(1e6 * mean**2, rel=rtol)
    assert found.clipping == pytest.approx(1000 * (square - mean**2), rel=rtol, abs=1e-7 * square)


def test_moments_of_clustered_weights():
    """For 400 weights, `gx2.clip_moments`, which puts similar weights into groups, agrees with a method without groups.

    The results are moments of the part that a normal row loses by clipping. They agree to a relative 1e-11.
    """
    weights = zipf_sigma(400, 1.0) ** 2
    x = gx2.isf(1e-3, weights)
    crowded = gx2.clip_moments(x, weights)
    nudged = form.Form(2 * weights[0], weights[::-1], weights[::-1], np.ones(400), np.zeros(400), np.zeros((2, 0, 400)))
    once, _, once_squared, _ = clipping._lost([clipping._in_tail(nudged, np.longdouble(x) / nudged.unit)], weights)
    assert crowded[1] == pytest.approx(once, rel=1e-11)
    assert crowded[2] == pytest.approx(once_squared, rel=1e-11)


@pytest.mark.parametrize("size", [0.3, 0.99, 1.0, 2.0, 4.0, 12.0, 100.0, 1e5])
def test_transforms_of_the_lost_share_agree_with_40_digits(size):
    """`_lost_shares` has a relative error of at most 3e-14, compared with values of 40 digits.

    It returns Laplace transforms of L and L^2, where L is the fraction of a row that clipping removes. `size` is the
    absolute value of the complex number at which the transforms are computed; for a size of 1 or more, another method
    of computation is used than for a smaller one.
    """
    z = size * np.exp(1j * np.linspace(-np.pi / 2, np.pi / 2, 9))
    share, square = clipping._lost_shares(z)
    with mp.workdps(40):
        for i, number in enumerate(map(mp.mpc, z.tolist())):
            one, two = (mp.exp(number) * mp.expint(p, number) for p in (mp.mpf(1) / 2, 1))
            assert abs(share[i] / (1 / number - one) - 1) < 3e-14
            assert abs(square[i] / (1 / number - 2 * one + two) - 1) < 3e-14


@given(st.floats(1e-3, 1e3), st.permutations(range(5)), st.floats(0.01, 20))
def test_moments_scale_and_permute(factor, order, x):
    """The results of `gx2.clip_moments` are permuted like the weights, and do not change with the unit of the weights.

    The results are moments of the part that a normal row loses by clipping. `order` is the permutation. To change the
    unit, the weights and the squared clip norm `x` are multiplied by `factor`.
    """
    weights, nc, order = 1 / np.arange(1.0, 6), np.array([0, 1, 0, 0.5, 3]), list(order)
    once = np.array(gx2.clip_moments(x, weights, nc=nc))
    again = np.array(gx2.clip_moments(factor * x, factor * weights[order], nc=nc[order]))
    assert again == pytest.approx(once[:, order], rel=1e-10)


# --- forecasts --------------------------------------------------------------------------------------------------------

rng = np.random.default_rng(20)
SETTINGS = {  # of 200 simulations
    "d": rng.choice([1, 2, 5, 20, 60], 200).tolist(),
    "alpha": rng.choice([0.0, 0.5, 1.0, 2.0], 200).tolist(),
    "n": rng.choice([1, 5, 40], 200).tolist(),
    "p": rng.uniform(0.01, 0.9999, 200).tolist(),
    "shift": rng.choice([0.0, 0.0, 0.3, 2.0], 200).tolist(),
    "target": rng.choice(["sample", "population"], 200).tolist(),
}


def simulated(sigma, n, b, clip_norm, offset, target, draws, rng):
    """Simulate sums of `n` clipped normal rows without noise, and return their squared errors, shape (`draws`,).

    The rows have the mean `offset`, relative to the center, and the standard deviations `sigma`. Each row is multiplied
    by `b`, clipped to the norm `clip_norm`, and divided by `b`. A squared error is the squared distance of the sum of
    clipped rows from the sum of the unclipped rows if `target` is "sample", and from `n` times the mean if it is
    "population".
    """
    x = offset + sigma * rng.normal(size=(draws, n, sigma.size))
    norms = np.linalg.norm(b * x, axis=2, keepdims=True)
    clipped = (x * np.minimum(1, clip_norm / norms)).sum(axis=1)
    goal = x.sum(axis=1) if target == "sample" else n * offset
    return np.sum((clipped - goal) ** 2, axis=1)


@pytest.mark.parametrize("setting", [*range(50), *slow(*range(50, 200))])
def test_forecast_agrees_with_simulation(setting):
    """`forecast.clipping` agrees with the mean squared error of simulated clipped sums, within 4.5 standard errors.

    `setting` is the index of one of 200 random settings, in which from one in a hundred to nearly all rows are clipped.
    """
    d, alpha, n, p, shift, target = (values[setting] for values in SETTINGS.values())
    rng = np.random.default_rng([setting, 7])
    sigma = zipf_sigma(d, alpha)
    offset, b = shift * sigma * rng.normal(size=d), expected_norm(sigma)
    clip_norm = np.sqrt(gx2.isf(p, (b * sigma) ** 2))
    expected = sum(forecast.clipping(sigma, n, b, clip_norm, offset, target))
    errors = simulated(sigma, n, b, clip_norm, offset, target, 120_000 // (n * d) + 1000, rng)
    assert abs(errors.mean() - expected) <= 4.5 * errors.std() / np.sqrt(errors.size)


def test_forecast_has_no_center_error_at_the_center():
    """`forecast.clipping` returns a squared bias of exactly zero if the center is the true mean of the rows.

    Its other result, the variance of the error by clipping, is not zero.
    """
    sigma = zipf_sigma(6, 1.0)
    variance, bias = forecast.clipping(sigma, 50, expected_norm(sigma), 0.8)
    assert variance > 0
    assert bias == 0


ANYWHERE = np.random.default_rng(31).uniform(size=(12, 5))


@pytest.mark.parametrize("place", ANYWHERE, ids=range(len(ANYWHERE)))
def test_clipping_error_is_convex_in_the_clip_norm(place):
    """The expected squared error by clipping, from `forecast.clipping`, is a convex function of the clip norm.

    Therefore a search for the best clip norm cannot stop at a local minimum that is not the global one. The number of
    rows and other parameters are computed from `place`, which holds five random numbers.
    """
    d, n = int(1 + 30 * place[0]), int(10 ** (4 * place[1]))
    rng = np.random.default_rng(d)
    sigma, b = np.exp(rng.normal(0, 1, (2, d)))
    offset = 3 * place[2] ** 2 * sigma * rng.normal(size=d)
    norms = np.linspace(0.02, 3, 60) * np.sqrt(np.sum((b * sigma) ** 2) + np.sum((b * offset) ** 2))
    total = np.array([sum(forecast.clipping(sigma, n, b, c, offset)) for c in norms])
    assert np.min(np.diff(total, 2)) >= -1e-9 * np.max(total)
    assert np.all(np.diff(total, 2)[:10] > 0)


@pytest.mark.parametrize("place", ANYWHERE, ids=range(len(ANYWHERE)))
def test_best_clip_norm_is_the_least_of_a_grid(place):
    """No clip norm on a grid has a smaller forecast error than the one that `forecast.best_clip_norm` returns.

    The error is that of noise and clipping together. The number of rows and other parameters are computed from `place`,
    which holds five random numbers.
    """
    d, n = int(1 + 30 * place[0]), int(10 ** (4 * place[1]))
    rng = np.random.default_rng(d)
    sigma, b = np.exp(rng.normal(0, 1, (2, d)))
    offset, price = 3 * place[2] ** 2 * sigma * rng.normal(size=d), 10 ** (6 * place[3] - 2)
    clip_norm, least = forecast.best_clip_norm(lambda c: price * c**2, sigma, n, b, offset)
    factors = np.append(np.geomspace(0.05, 20, 25), [0.94, 0.97, 1.03, 1.06])
    grid = np.maximum(clip_norm * factors, 1e-3 * np.linalg.norm(b * sigma))  # within the range of the search
    totals = [price * c**2 + sum(forecast.clipping(sigma, n, b, c, offset)) for c in grid]
    assert least <= min(totals) * (1 + 1e-9)


def test_the_search_for_a_clip_norm_ends_where_it_says():
    """If there is much noise, `forecast.best_clip_norm` takes the least clip norm that it tries; if none, the largest.

    The least one is 0.001 times the root mean square norm of a scaled row without an offset, and the largest one is
    such a row's upper quantile of 0.001 / n, plus the norm of the offset. The entries of `sigma` stand for several
    coordinates. The true standard deviations are smaller or larger by a factor: the smallest one counts for the least
    clip norm, and the largest one for the largest clip norm.
    """
    sigma, b, offset, copies = np.array([[1.0, 0.5, 2.0], [1.0, 3.0, 0.7], [3.0, 0.0, -9.0], [1, 9, 4]])
    weights, factors = (b * sigma) ** 2, (4.0, 0.25)
    least = 1e-3 * 0.25 * np.sqrt(np.sum(copies * weights))
    largest = 4 * np.sqrt(gx2.isf(1e-3 / 50, weights, copies)) + np.linalg.norm(np.sqrt(copies) * b * offset)
    for price, end in ((1e30, least), (0.0, largest)):
        found, _ = forecast.best_clip_norm(lambda c, p=price: p * c**2, sigma, 50, b, offset, copies, factors=factors)
        assert found == pytest.approx(end, rel=1e-5)


SURE = {"center_std": 0.0, "sigma_factor": 1.0}


@pytest.mark.parametrize("doubts", [{}, SURE, {"center_std": 0.01}, {"sigma_factor": 3.0}], ids=str)
def test_optimal_clip_norm_is_stationary(doubts):
    """With clip_probability="optimal", the forecast error is smaller than with four other clip probabilities.

    Two of the four are near the optimal one, and two are far from it. `doubts` are options of the mechanism that say
    how wrong the guesses of center and sigma may be.
    """
    sigma = zipf_sigma(30, 1.0)
    best = GaussianDataMechanism(sigma, 1000, 1.0, 1e-6, clip_probability="optimal", **doubts)
    p, total = best.p, best.error().total
    for other in (p * 0.5, p * 0.99, p + 0.01 * (1 - p), p + 0.5 * (1 - p)):
        again = GaussianDataMechanism(sigma, 1000, 1.0, 1e-6, clip_probability=other, scaling=best.b, **doubts)
        assert again.error().total > total


@pytest.mark.filterwarnings("ignore::egm.mechanisms.DeltaWarning")  # with n = 10**6 the report's delta = 1e-6 is large
def test_optimal_clip_probability_beats_the_report_by_far():
    """If center and sigma are right, the default clip probability and scaling give much more error than the best ones.

    The default clip probability is 1/n. The best ones are those of clip_probability="optimal" and scaling="optimal",
    with guesses of center and sigma that are declared to be exact (by the options in `SURE`). The expected squared
    error with the defaults is more than 4 times as large for n = 1000, and more than 1.5 times for n = 10**6.
    """
    for n, least in ((1000, 4.0), (10**6, 1.5)):
        sigma = zipf_sigma(20, 1.0)
        report, best = (
            GaussianDataMechanism(sigma, n, 1.0, 1e-6, **options).error(mean=0.0).total
            for options in ({}, {"clip_probability": "optimal", "scaling": "optimal", **SURE})
        )
        assert report / best > least


# --- A doubtful center and a doubtful sigma ---------------------------------------------------------------------------


def test_forecast_under_doubt_is_the_mean_of_the_cases():
    """If center and sigma are declared to be uncertain, `GaussianDataMechanism.error()` is the mean of two forecasts.

    In both forecasts, the true mean differs from the center by the option center_std. The true standard deviations are
    sigma times the option sigma_factor in the first forecast, and sigma divided by sigma_factor in the second. By
    default, center_std is half of sigma, and sigma_factor is 1.25.
    """
    sigma, off = zipf_sigma(7, 1.0), np.linspace(0, 0.2, 7)
    for p in (1e-3, 0.3, "optimal"):
        doubtful = {"center_std": off, "sigma_factor": 1.5, "clip_probability": p}
        it = GaussianDataMechanism(sigma, 500, 1.0, 1e-6, center=2.0, **doubtful)
        signs = np.array([1, -1, 1, 1, -1, -1, 1])  # the sign of the offset does not matter
        cases = [it.error(mean=2 + signs * off, sigma=factor * sigma) for factor in (1.5, 1 / 1.5)]
        for part in ("noise", "clipping", "center", "total"):
            expected = np.mean([getattr(case, part) for case in cases])
            assert getattr(it.error(), part) == pytest.approx(expected, rel=1e-9)
        assert np.sum(it.error_by_column()) == pytest.approx(it.error().total, rel=1e-12)
    without = GaussianDataMechanism(sigma, 500, 1.0, 1e-6, center=2.0, **SURE)
    assert without.error() == without.error(mean=2.0) == without.error(sigma=sigma)
    default, said = ({}, {"center_std": 0.5 * sigma, "sigma_factor": 1.25})
    it, other = (GaussianDataMechanism(sigma, 500, 1.0, 1e-6, clip_probability="optimal", **k) for k in (default, said))
    assert (it.error(), it.clip_norm) == (other.error(), other.clip_norm)


@pytest.mark.parametrize("off", [0.0, *slow(0.25), 0.5, *slow(1.0)])
@pytest.mark.parametrize("factor", [0.8, *slow(1.0), 1.25])
def test_forecast_for_a_wrong_centre_and_sigma_is_what_simulation_shows(off, factor):
    """For a given true mean and sigma, `GaussianDataMechanism.error` forecasts the error by clipping of simulated rows.

    The true mean is `off` times sigma from the center in each column, and the true standard deviations are `factor`
    times the mechanism's sigma. The forecast agrees with the mean squared error within 4.5 standard errors.
    """
    sigma, n, draws = zipf_sigma(5, 1.0), 400, 3000
    it = GaussianDataMechanism(sigma, n, 1.0, 1e-6, clip_probability=0.02)
    expected = it.error(mean=off * sigma, sigma=factor * sigma)
    rng = np.random.default_rng([int(100 * off), int(100 * factor)])
    x = off * sigma + factor * sigma * rng.normal(size=(draws, n, 5))
    norms = np.linalg.norm(it.b * x, axis=2, keepdims=True)
    lost = np.sum(np.sum(x * np.maximum(0, 1 - it.clip_norm / norms), axis=1) ** 2, axis=1)
    assert abs(lost.mean() - expected.clipping - expected.center) <= 4.5 * lost.std() / np.sqrt(draws)


SIMPLE = [{}, {"clip_probability": 0.01}, {"clip_probability": 0.5}]
OFFSETS = (0.0, 0.1, 0.25, 0.5, 1.0)


@pytest.mark.parametrize("setting", [(1, 1.0, 4000), (3, 1.0, 100_000), (30, 1.0, 4000), (30, 2.0, 100_000)], ids=str)
def test_the_optimal_clip_is_safe_where_the_centre_is_doubtful(setting):
    """If the center is off by up to one sigma, clip_probability="optimal" has at most 25 % more error than the default.

    The reason is that the mechanism expects guesses of center and sigma to be somewhat wrong. If they are declared to
    be exact (by the options in `SURE`), the error can be more than 100 times that of the default. `setting` holds the
    number of columns, the exponent of their standard deviations (Zipf's law), and the number of rows.
    """
    d, alpha, n = setting
    sigma = zipf_sigma(d, alpha)
    best, sure, *simple = (
        GaussianDataMechanism(sigma, n, 1.0, 1e-6, **options)
        for options in ({"clip_probability": "optimal"}, {"clip_probability": "optimal", **SURE}, *SIMPLE)
    )
    default, worst = simple[0], 0.0
    for off in OFFSETS:
        total = best.error(mean=off * sigma).total
        assert total <= 1.25 * default.error(mean=off * sigma).total
        assert total <= 3.5 * min(it.error(mean=off * sigma).total for it in simple)
        worst = max(worst, sure.error(mean=off * sigma).total / default.error(mean=off * sigma).total)
    assert worst > 100
    assert sure.error(mean=0.0).total < best.error(mean=0.0).total


def test_the_optimal_clip_of_the_tutorial():
    """In the documentation's example, the forecast for clip_probability="optimal" is right within 10 %.

    This holds although the user's guesses of means and standard deviations are wrong, because the mechanism allows for
    wrong guesses. The forecast is compared with the expected squared error for the true means and standard deviations.
    This error is less than 1.15 times that with the default clip probability. If the guesses are declared to be exact
    (by the options in `SURE`), the error is more than 50 times the forecast.
    """
    guess = {"sigma": [18, 1200, 3], "center": [45, 2500, 5], "n": 100_000, "epsilon": 1, "delta": 1e-6}
    truth = {"mean": [47, 2200, 4], "sigma": [16, 1300, 2]}
    default, best, sure = (
        GaussianDataMechanism(**guess, **options)
        for options in ({}, {"clip_probability": "optimal"}, {"clip_probability": "optimal", **SURE})
    )
    assert best.error(**truth).total == pytest.approx(best.error().total, rel=0.1)
    assert best.error(**truth).total < 1.15 * default.error(**truth).total
    assert sure.error(**truth).total > 50 * sure.error().total


def test_confidence_radius_covers_a_doubtful_centre():
    """If center_std is the true error of the center, `confidence_radius(0.9)` holds for at least 90 % of 400 releases.

    The radius holds for a release if the difference between the estimate and the exact sum, after scaling, has a norm
    of at most the radius. If center_std is 0 although the center is wrong, the radius holds for less than 10 % of the
    releases.
    """
    sigma, n, rng, inside = zipf_sigma(4, 1.0), 300, np.random.default_rng(5), {}
    true = 0.5 * sigma
    for name, options in {"told": {"center_std": true}, "untold": {"center_std": 0.0}}.items():
        it = GaussianDataMechanism(sigma, n, 20.0, 1e-6, clip_probability=0.5, sigma_factor=1.0, **options)
        radius, X = it.confidence_radius(0.9), rng.normal(true, sigma, (400, n, 4))
        off = np.array([it.release(x, rng=rng).estimate - x.sum(axis=0) for x in X])
        inside[name] = np.mean(np.linalg.norm(it.b * off, axis=1) <= radius)
    assert inside["told"] >= 0.9
    assert inside["untold"] < 0.1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"center_std": -1.0}, "center_std must be finite and >= 0, got -1.0"),
        ({"center_std": [1.0, 2.0]}, "center_std must be a number or have the 3 entries of sigma"),
        ({"sigma_factor": 0.9}, "sigma_factor must lie between 1.0 and 10.0, got 0.9"),
        ({"sigma_factor": [1.0, 2.0]}, "sigma_factor must be a single number"),
    ],
)
def test_bad_doubts_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        GaussianDataMechanism(np.ones(3), 10, 1.0, 1e-6, **options)


def test_a_bad_true_sigma_is_named():
    with pytest.raises(ValueError, match="sigma must have the 3 entries of the mechanism's, got 2"):
        GaussianDataMechanism(np.ones(3), 10, 1.0, 1e-6).error(sigma=[1.0, 2.0])


# --- correlated rows --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["sample", "population"])
@pytest.mark.parametrize("d", [1, 4, 300])
def test_a_diagonal_covariance_is_that_of_independent_coordinates(d, target):
    """`GaussianDataMechanism.error` makes the same forecast from a diagonal covariance as from standard deviations.

    The standard deviations are the roots of the diagonal. `d` is the number of columns. `target` is what is estimated:
    the sum of the rows ("sample"), or n times the true mean ("population").
    """
    sigma = zipf_sigma(d, 1.0)
    it = GaussianDataMechanism(sigma, 1000, 1.0, 1e-6, clip_probability=0.1)
    one = it.error(mean=0.3 * sigma, sigma=1.1 * sigma, target=target)
    other = it.error(mean=0.3 * sigma, covariance=np.diag((1.1 * sigma) ** 2), target=target)
    expected, found = ([it.noise, it.clipping, it.center] for it in (one, other))
    np.testing.assert_allclose(found, expected, rtol=1e-11)


def test_the_forecast_for_correlated_rows_is_that_of_rotated_ones():
    """Without scaling, the total error that `GaussianDataMechanism.error` forecasts is not changed by a rotation.

    The normal rows, with uncorrelated columns, are rotated by a random orthogonal matrix. Their smallest variance is
    only 1e-10. The tolerance is a relative 1e-9.
    """
    rng = np.random.default_rng(4)
    V = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    spread, mean = np.array([3.0, 1.0, 0.2, 1e-5]), rng.normal(size=4)
    it = GaussianDataMechanism(np.ones(4), 1000, 1.0, 1e-6, clip_probability=0.2, scaling="none")
    turned = it.error(mean=V @ mean, covariance=V @ np.diag(spread**2) @ V.T)
    assert turned.total == pytest.approx(it.error(mean=mean, sigma=spread).total, rel=1e-9)


@pytest.mark.parametrize("d", [2, 3, 8, 30])
@pytest.mark.parametrize("rank", [1, 2])
def test_a_covariance_of_low_rank_along_its_eigenvectors(d, rank):
    """Without scaling, the forecast error by clipping is the same with and without a basis of eigenvectors.

    `GaussianDataMechanism.error` makes the forecast. The basis vectors are eigenvectors of the rows' covariance matrix,
    which has the shape (`d`, `d`) and the rank `rank`. So the variances along some of them are 0, and may be computed
    as negative numbers due to rounding. The forecast of AdaptiveDataMechanism for this basis is finite, too.
    """
    rng = np.random.default_rng(d)
    root = rng.normal(size=(d, rank)) * np.geomspace(1e-3, 1e3, d)[:, None]
    covariance = root @ root.T
    vectors = np.linalg.eigh(covariance)[1].T
    plain, along = (
        GaussianDataMechanism(np.ones(d), 1000, 1.0, 1e-6, scaling="none", basis=basis) for basis in (None, vectors)
    )
    expected = plain.error(covariance=covariance)
    assert along.error(covariance=covariance).clipping == pytest.approx(expected.clipping, rel=1e-9)
    ranges = {"radius": 1e4, "sigma_range": (1e-3, 1e4)}
    found = AdaptiveDataMechanism(4000, 0.5, **ranges, basis=vectors).forecast(covariance=covariance)
    assert 0 < found.error.noise <= found.error.total < np.inf


@pytest.mark.parametrize("distance", [1.0, 3.0, 10.0, 1000.0])
def test_a_center_that_is_off_where_rows_have_no_variance(distance):
    """If the center is wrong where the rows have no variance, `GaussianDataMechanism.error` still forecasts the error.

    Relative to the center, the rows are Z (1, 1) + `distance` (1, -1) with one normal variable Z. So the covariance
    matrix has the rank 1. The forecast agrees with numerical integration over Z to a relative 1e-6.
    """
    it = GaussianDataMechanism([1.0, 1.0], 1000, 1.0, 1e-6, clip_probability=0.3, scaling="none")
    z = np.linspace(-12, 12, 200_001)
    mass = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi) * (z[1] - z[0])
    rows = z[:, None] + distance * np.array([1.0, -1.0])
    lost = np.maximum(0, 1 - it.clip_norm / np.linalg.norm(rows, axis=1))[:, None] * rows
    mean = mass @ lost
    found = it.error(mean=distance * np.array([1.0, -1.0]), covariance=np.ones((2, 2)))
    assert found.center == pytest.approx(1e6 * mean @ mean, rel=1e-7)
    square = mass @ np.sum(lost**2, axis=1)
    assert found.clipping == pytest.approx(1000 * (square - mean @ mean), rel=1e-6, abs=1e-7 * square)


@pytest.mark.parametrize("narrow", [1e-3, 1e-8, 1e-30])
@pytest.mark.parametrize("target", ["sample", "population"])
def test_a_scaling_that_hides_a_column_does_not_change_the_forecast(narrow, target):
    """For independent columns, `error` of GaussianDataMechanism forecasts the same from `covariance` as from `sigma`.

    This holds even if the scaling factor `narrow` of one of the two columns is 1e-30, so that the column hardly adds to
    the norm of a scaled row. `target` is what is estimated: the sum of the rows ("sample"), or n times the true mean
    ("population").
    """
    options = {"clip_probability": 0.3, "scaling": [1.0, narrow]}
    it = GaussianDataMechanism([1.0, 1.0], 1000, 1.0, 1e-6, **options)
    for mean in ([0.0, 0.0], [1.0, 2.0]):
        one = it.error(mean=mean, sigma=[1.0, 1.0], target=target)
        other = it.error(mean=mean, covariance=np.eye(2), target=target)
        assert [other.clipping, other.center] == pytest.approx([one.clipping, one.center], rel=1e-11)


@pytest.mark.parametrize("seed", range(20))
def test_correlated_rows_lose_as_much_as_forecast(seed):
    """`GaussianDataMechanism.error` forecasts the variance and the bias of the error by clipping for correlated rows.

    The error is the sum of the clipped rows minus the sum of the rows or, in a second case, minus n times the true
    mean. In the second case it also contains the random variation of the rows. Variance and bias are estimated from
    20,000 simulated rows; the tolerance is five standard errors. `seed` determines the mean, the scaling and the
    covariance matrix, which has the rank 1 in every third case.
    """
    rng = np.random.default_rng(seed)
    d, n = 2 + seed % 4, 20_000
    factor = rng.normal(size=(d, 1 if seed % 3 == 0 else d)) * np.exp(rng.normal(size=(d, 1)))
    covariance, mean = factor @ factor.T, rng.normal(size=d) * (seed % 2)
    options = {"clip_probability": 0.3, "scaling": ("none", "expected_norm", "optimal")[seed % 3]}
    it = GaussianDataMechanism(np.sqrt(np.diag(covariance)), n, 1.0, 1e-6, **options)
    rows = mean + rng.normal(size=(n, factor.shape[1])) @ factor.T
    lost = it.clip(rows * it.b) / it.b - rows
    for target, off in (("sample", lost), ("population", lost + rows - mean)):
        expected = it.error(mean=mean, covariance=covariance, target=target)
        squares = np.sum((off - off.mean(axis=0)) ** 2, axis=1)
        assert abs(squares.mean() * n - expected.clipping) < 5 * squares.std() * np.sqrt(n)
        bias = n * np.linalg.norm(off.mean(axis=0))
        assert abs(bias - np.sqrt(expected.center)) < 5 * np.sqrt(squares.sum())


@pytest.mark.parametrize(
    ("covariance", "message"),
    [
        (np.eye(2), r"covariance must have shape \(3, 3\), got \(2, 2\)"),
        (1.0, r"covariance must have shape \(3, 3\), got \(\)"),
        (np.diag([1.0, np.nan, 1.0]), r"covariance\[1, 1\] must not be NaN, got nan"),
        (np.diag([1.0, 0.0, 1.0]), r"the diagonal of covariance\[1\] must lie between 1e-200 and 1e\+200, got 0.0"),
        (np.eye(3) + 0.1 * np.triu(np.ones((3, 3)), 1), "covariance must be symmetric"),
        (2 * np.eye(3) - np.ones((3, 3)) * 0.9, "covariance must have no negative eigenvalue, but .* has -0.636"),
    ],
)
def test_bad_covariances_are_named(covariance, message):
    with pytest.raises(ValueError, match=message):
        GaussianDataMechanism(np.ones(3), 10, 1.0, 1e-6).error(covariance=covariance)


def test_sigma_and_covariance_exclude_each_other():
    with pytest.raises(ValueError, match="sigma and covariance must not both be given"):
        GaussianDataMechanism(np.ones(3), 10, 1.0, 1e-6).error(sigma=np.ones(3), covariance=np.eye(3))


ARGUMENTS = {"sigma": [2.0, 1.0], "n": 100, "scaling": [0.5, 1.0], "clip_norm": 2.0}


@pytest.mark.parametrize("n", [1, 2.5, 100, 2.0**53])
def test_an_expected_number_of_rows_need_not_be_whole(n):
    of_one, of_all = (forecast.clipping(**ARGUMENTS | {"n": m, "offset": 0.5}) for m in (1, n))
    assert of_all == pytest.approx((n * of_one[0], n**2 * of_one[1]), rel=1e-14)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"sigma": [2.0, 0.0]}, r"sigma\[1\] must be finite and > 0, got 0"),
        ({"sigma": [2.0, 1e160]}, r"sigma\[1\] must lie between 0.0 and 1e\+130, got 1e\+160"),
        ({"n": 0.5}, "n must lie between 1.0 and 9007199254740992, got 0.5"),
        ({"n": 1e160}, r"n must lie between 1.0 and 9007199254740992, got 1e\+160"),
        ({"scaling": [1.0]}, "scaling must have the 2 entries of sigma, got 1"),
        ({"clip_norm": -1.0}, "clip_norm must be finite and > 0, got -1"),
        ({"clip_norm": np.inf}, "clip_norm must be finite and > 0, got inf"),
        ({"offset": [1.0, 2.0, 3.0]}, r"offset must be a number or have the 2 entries of sigma, got \(3,\)"),
        ({"copies": -1}, "copies must be finite and > 0, got -1"),
        ({"factors": ()}, r"factors must be a vector with at least one entry, got shape \(0,\)"),
        ({"target": "x"}, 'target must be "sample" or "population", got .x.'),
    ],
)
def test_wrong_arguments_are_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        forecast.clipping(**ARGUMENTS | wrong)


@pytest.mark.parametrize(
    ("covariance", "message"),
    [
        ([[1.0, 2.0], [2.0, 1.0]], "covariance must have no entry above .* correlation of columns 0 and 1 is 2$"),
        ([[1.0, 0.5], [0.2, 1.0]], "covariance must be symmetric"),
        ([[1.0, 0.0], [0.0, 0.0]], r"the diagonal of covariance\[1\] must lie between 1e-200 and 1e\+200, got 0"),
        ([[1.0, 0.0]], r"covariance must be a square matrix, got shape \(1, 2\)"),
        (
            [[1.0, 0.9, 0.9], [0.9, 1.0, -0.9], [0.9, -0.9, 1.0]],
            "covariance must have no negative eigenvalue, but its correlation matrix has -0.8",
        ),
    ],
)
@pytest.mark.parametrize("unit", [1.0, 1e-9, 1e9])
def test_matrices_that_are_no_covariances_are_refused(covariance, message, unit):
    """A matrix that is no covariance matrix is refused, also if all its columns but the first have another `unit`."""
    units = np.array([1.0] + [unit] * (len(covariance[0]) - 1))
    with pytest.raises(ValueError, match=message):
        forecast.correlated_clipping(covariance * units * units[: len(covariance), None], 100, 1 / units, 2.0)


def test_lists_and_extreme_clip_norms_are_allowed():
    """`forecast.clipping` and `forecast.correlated_clipping` accept lists, and clip norms of 1e-200 and of 1e200.

    The covariance matrix is diagonal. For the clip norm 1e-200, the variance of the error is that of the sum of the
    rows, since nearly all of each row is clipped away. For 1e200 the error is 0.
    """
    for forecast_of, spread in ((forecast.clipping, [2, 1]), (forecast.correlated_clipping, [[4, 0], [0, 1]])):
        variation, center = forecast_of(spread, 100, [0.5, 1.0], 1e-200)
        assert (variation, center) == (pytest.approx(100 * (4 + 1)), 0.0)
        assert forecast_of(spread, 100, [0.5, 1.0], 1e200) == (0.0, 0.0)


@pytest.mark.parametrize("target", ["sample", "population"])
@pytest.mark.parametrize("exponent", [-1000, -530, -520, 520, 1000])
def test_forecasts_do_not_depend_on_the_unit_of_the_scaling(exponent, target):
    """`forecast.clipping` and `correlated_clipping` are the same, in all digits, for another unit of the scaling.

    The scaling and the clip norm are multiplied by 2**`exponent`, and the squares of such numbers are no doubles.
    `target` is what is estimated. The error for the best clip norm, from `forecast.best_clip_norm`, agrees to a
    relative 1e-9.
    """
    sigma, unit = np.array([18.0, 1200.0, 3.0]), 2.0**exponent
    covariance = np.outer(sigma, sigma) * (0.5 + 0.5 * np.eye(3))
    for function, spread in ((forecast.clipping, sigma), (forecast.correlated_clipping, covariance)):
        for offset in (0.0, sigma / 10):
            expected, found = (function(spread, 1000, s / sigma, 3 * s, offset, target) for s in (1.0, unit))
            assert found == expected
    assert np.isfinite(forecast.best_clip_norm(np.square, [1e-100, 1e100], 100, [1.0, 1.0])).all()
    expected, found = (
        forecast.best_clip_norm(lambda norm, s=s: 1e3 * (norm / s) ** 2, sigma, 1000, s / sigma)[1] for s in (1.0, unit)
    )
    assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("target", ["sample", "population"])
@pytest.mark.parametrize("least", [1e-11, 1e-100, 1e-200])
def test_a_column_without_spread_counts_by_its_offset_alone(least, target):
    """If a column hardly varies, the error does not depend on its standard deviation `least`, but on its offset.

    The parts of the error are compared with those for a column with the standard deviation 1e-10, and so is the best
    clip norm. The offset may also be far larger than all standard deviations.
    """

    def found(spread, far):
        sigma, b, offset = np.array([spread, 2.0]), [1.0, 1.0], [far, 0.1]
        variance = np.diag(np.maximum(sigma**2, 1e-200))
        clipped = forecast.clipping(sigma, 100, b, 2.0, offset, target)
        correlated = forecast.correlated_clipping(variance, 100, b, 2.0, offset, target)
        best = forecast.best_clip_norm(np.square, sigma, 100, b, offset)
        return np.array([clipped, correlated, best])

    assert found(least, 1.0) == pytest.approx(found(1e-10, 1.0), rel=1e-9)
    assert sum(found(least, 1e90)[0]) == pytest.approx(sum(found(1e-10, 1e90)[0]), rel=1e-9)


def test_a_clip_norm_is_not_chosen_for_a_center_that_is_unknown():
    """A clip norm cannot be chosen if `center_std` is 1e140 times `sigma`: an error names the ratio."""
    GaussianDataMechanism([1e-90], 1000, 1.0, 1e-6, center_std=1e40, clip_probability="optimal", scaling="optimal")
    with pytest.raises(ValueError, match=r"center_std / sigma\[0\] must lie between 0.0 and 1e\+140, got 1e\+160"):
        GaussianDataMechanism([1e-90], 1000, 1.0, 1e-6, center_std=1e70, clip_probability="optimal")
