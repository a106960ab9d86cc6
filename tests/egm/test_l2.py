"""Test l2 noise: its calibration against values of 25 digits, its samplers, and the mechanisms that draw it.

l2 noise is a random vector whose density falls exponentially with its Euclidean norm.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mpmath import mp, mpf
from scipy import stats

from egm import (
    EllipticalGaussianMechanism,
    GaussianDataMechanism,
    GaussianMechanism,
    LaplaceMechanism,
    _random_bits,
    samplers,
)
from egm._budget.rules import RULES, Terms, charge_of, l2_mu_squared
from egm._rows import lattice
from egm.budget import Budget, BudgetExceeded
from egm.calibration import analytic_noise_multiplier, gaussian_delta, gaussian_epsilon, l2_delta, l2_noise_scale
from egm.study import planted
from tests.conftest import slow
from tests.egm.stored import L2, excess

# Squared error of l2 noise over that of Gaussian noise at delta = 1e-6, by quadratures over radius and angle that do
# not use the closed form: six digits for epsilon = 1, three for the others.
RATIOS = {(1.0, 2): 0.168026, (1.0, 5): 0.327107, (1.0, 10): 0.517611, (1.0, 30): 0.786738, (1.0, 100): 0.928979}
RATIOS |= {(0.1, 2): 0.227, (0.1, 10): 0.621, (0.1, 100): 0.951, (3.0, 5): 0.276, (3.0, 100): 0.912}
LEVEL = 1e-6  # probability that a test of a law fails by chance

epsilons, deltas, dimensions = st.floats(1e-6, 100), st.floats(1e-100, 0.5), st.integers(1, 10**6)


# --- Calibration ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", L2["scales"], ids=lambda case: f"{case['epsilon']}-{case['delta']}-{case['d']}")
def test_noise_scale_is_exact_and_never_too_small(case):
    s = l2_noise_scale(case["epsilon"], case["delta"], case["d"])
    assert 0 <= excess(s, case["noise_scale"]) <= 1e-10


@pytest.mark.parametrize("case", L2["curve"], ids=lambda case: f"{case['epsilon']}-{case['d']}")
def test_curve_is_exact(case):
    delta = l2_delta(case["epsilon"], case["noise_scale"], case["d"])
    with mp.workdps(40):
        exact = mp.nstr(mp.exp(mpf(case["log_delta"])), 24)
    assert abs(excess(delta, exact)) <= 1e-12


@given(st.floats(1e-6, 1e4), deltas, dimensions)
@example(284.8, 0.013, 30)
@example(929.0, 1.56e-15, 100)
@example(341.27, 0.1107, 10)
def test_noise_suffices_and_less_does_not(epsilon, delta, d):
    s = l2_noise_scale(epsilon, delta, d)
    assert l2_delta(epsilon, s, d) <= delta
    assert l2_delta(epsilon, s * (1 - 1e-9), d) > delta * (1 - 1e-9)


@pytest.mark.parametrize("delta", [1e-200, 1e-12, 1e-6, 0.1])
def test_delta_is_kept_by_more_than_its_relative_error(delta):
    epsilon, d = np.geomspace(1e-5, 50, 20)[:, None], np.array([1, 2, 30, 1000])
    assert np.all(l2_delta(epsilon, l2_noise_scale(epsilon, delta, d), d) <= delta * (1 - 5e-12))


@given(epsilons, st.floats(1e-6, 1e6))
def test_one_coordinate_has_the_curve_of_laplace_noise(epsilon, s):
    exponent = float((Fraction(epsilon) - 1 / Fraction(s)) / 2)  # exact: both terms may be nearly equal
    expected = -math.expm1(min(0.0, exponent))
    assert l2_delta(epsilon, s, 1) == pytest.approx(expected, rel=1e-8, abs=1e-15)


@pytest.mark.parametrize("epsilon", [0.3, 1.7, 45.0, 9e3])
def test_a_delta_next_to_zero_keeps_its_digits(epsilon):
    """For a scale just below 1 / `epsilon`, from which on delta is 0, delta has a relative error below 1e-11."""
    for below in (2, 5, 100, 10**6):
        s = (1 / epsilon) * (1 - below * 2.0**-53)
        exact = -math.expm1(float((Fraction(epsilon) - 1 / Fraction(s)) / 2))
        assert l2_delta(epsilon, s, 1) == pytest.approx(exact, rel=1e-11, abs=0)


@pytest.mark.parametrize("epsilon", [1e-6, 0.3, 7.0, 1e4])
@pytest.mark.parametrize("d", [1, 2, 1000])
def test_noise_is_pure_from_the_scale_one_over_epsilon_on(epsilon, d):
    s = l2_noise_scale(epsilon, 0, d)
    assert s == pytest.approx(1 / epsilon, rel=1e-15)
    assert l2_delta(epsilon, s, d) == 0
    assert l2_delta(epsilon, s / 2, d) > 0


@pytest.mark.parametrize(("epsilon", "d"), RATIOS)
def test_error_relative_to_gaussian_noise_is_that_of_another_program(epsilon, d):
    ratio = (d + 1) * (l2_noise_scale(epsilon, 1e-6, d) / analytic_noise_multiplier(epsilon, 1e-6)) ** 2
    assert ratio == pytest.approx(RATIOS[epsilon, d], abs=6e-4 if epsilon != 1 else 6e-7)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 0.5, 1.0])
def test_gaussian_noise_has_less_error_where_the_guide_says(epsilon):
    """Gaussian noise has less error than l2 noise for delta from epsilon / 15 to 0.8, but not beyond this range.

    The range is the one that the page "Which mechanism do I need?" gives for epsilon <= 1. For more columns d it begins
    earlier, at epsilon / 59 for 1000. With delta = epsilon / 200 or 0.93, l2 noise has less error for every d.
    """
    for d, part in ((1, 15), (2, 24), (10, 47), (1000, 59)):
        delta = np.array([epsilon / 200, *np.geomspace(epsilon / part, 0.8, 40), 0.93])
        ratio = (d + 1) * (l2_noise_scale(epsilon, delta, d) / analytic_noise_multiplier(epsilon, delta)) ** 2
        assert np.array_equal(ratio > 1, [False, *[True] * 40, False])


def test_curve_tends_to_that_of_gaussian_noise():
    """For many coordinates d, the delta of l2 noise tends to that of Gaussian noise of equal standard deviation.

    The relative difference of the two deltas, for epsilon = 1, is inversely proportional to d: times d, it is the same
    number for d from 1e4 to 1e6, within 5 %.
    """
    d = np.array([1e4, 1e5, 1e6])
    far = l2_delta(1.0, 4.0 / np.sqrt(d + 1), d) / gaussian_delta(1.0, 4.0) - 1
    assert far * d == pytest.approx(far[-1] * d[-1], rel=0.05)


@pytest.mark.parametrize(("epsilon", "s", "d"), [(1.0, 0.3, 5), *slow((0.2, 1.0, 2), (3.0, 0.1, 20))])
def test_curve_is_the_expectation_over_simulated_noise(epsilon, s, d):
    noise = s * simulated(d, 40_000)
    loss = (np.linalg.norm(noise - np.eye(d)[0], axis=1) - np.linalg.norm(noise, axis=1)) / s
    terms = np.maximum(0.0, -np.expm1(epsilon - loss))
    assert abs(np.mean(terms) - l2_delta(epsilon, s, d)) < 5 * np.std(terms) / math.sqrt(terms.size)


def test_arguments_broadcast():
    epsilon, delta = np.array([0.1, 1.0])[:, None, None], np.array([0.0, 1e-6, 0.1])[:, None]
    d = np.array([1, 2, 50, 900])
    s = l2_noise_scale(epsilon, delta, d)
    assert s.shape == (2, 3, 4)
    assert s[1, 1, 2] == pytest.approx(l2_noise_scale(1.0, 1e-6, 50), rel=1e-11)
    assert np.all(np.diff(s, axis=1) < 0)
    assert l2_delta(epsilon, s, d).shape == s.shape
    assert isinstance(l2_delta(1.0, 0.5, 3), float)


@pytest.mark.parametrize(
    ("function", "given", "said"),
    [
        (l2_delta, (-1.0, 0.5, 3), r"epsilon must lie between 0\.0 and"),
        (l2_delta, (2e4, 0.5, 3), r"epsilon must lie between 0\.0 and"),
        (l2_delta, (1.0, 0.0, 3), "noise_scale must lie between 1e-100 and"),
        (l2_delta, (1.0, 0.5, 2.5), r"d must be a whole number, got 2\.5"),
        (l2_delta, (1.0, 0.5, 0), r"d must lie between 1\.0 and"),
        (l2_delta, (1.0, 0.5, math.nan), "d must"),
        (l2_noise_scale, (1e-9, 1e-6, 3), "epsilon must lie between 1e-06 and"),
        (l2_noise_scale, (1.0, 1.0, 3), r"delta must lie between 0\.0 and"),
        (l2_noise_scale, (1.0, 1e-310, 3), "delta must be 0 or at least 1e-300, got 1e-310"),
        (l2_noise_scale, (1.0, 1e-6, 10**7), r"d must lie between 1\.0 and"),
    ],
)
def test_bad_arguments_are_named(function, given, said):
    with pytest.raises(ValueError, match=said):
        function(*given)


# --- Samplers ---------------------------------------------------------------------------------------------------------


def secure(d, size=4000):
    """Draw `size` vectors of l2 noise of scale 1 by the sampler for secure releases, shape (`size`, `d`).

    The density of a vector is proportional to exp(-norm). All entries are multiples of 2**-30.
    """
    return np.array([samplers.secure_l2(2.0**30, d) for _ in range(size)], dtype=float) * 2.0**-30


def simulated(d, size=4000):
    """Draw `size` vectors of l2 noise of scale 1 by the sampler for simulations, shape (`size`, `d`).

    The density of a vector of `d` numbers is proportional to exp(-norm).
    """
    rng = np.random.default_rng(d)
    return np.array([samplers.simulated_l2(np.ones(d), rng) for _ in range(size)])


def fit(drawn):
    """Return a p-value for the hypothesis that the rows of `drawn`, shape (size, d), are l2 noise of scale 1.

    The density of this noise is proportional to exp(-norm). The p-value is the least one of several tests, times their
    number. The norm must have a gamma distribution and the mean d. If d > 1, the squared first coordinate of the
    direction must have a beta distribution, and norm and direction must be independent.
    """
    d = drawn.shape[1]
    norm = np.linalg.norm(drawn, axis=1)
    axis = np.abs(drawn[:, 0]) / norm
    tests = [stats.kstest(norm, stats.gamma(d).cdf).pvalue, stats.ttest_1samp(norm, d).pvalue]
    if d > 1:
        tests.append(stats.kstest(axis**2, stats.beta(0.5, (d - 1) / 2).cdf).pvalue)
        tests.append(stats.spearmanr(norm, np.max(np.abs(drawn), axis=1) / norm).pvalue)
    return len(tests) * min(tests)


@pytest.mark.slow
@pytest.mark.parametrize("draw", [secure, simulated])
@pytest.mark.parametrize("d", [1, 2, 3, 8])
def test_noise_has_its_law(draw, d):
    assert fit(draw(d)) > LEVEL


@pytest.mark.slow
@pytest.mark.parametrize("draw", [secure, simulated])
@pytest.mark.parametrize("bug", ["shape", "variance of each coordinate", "scale"])
def test_a_wrong_law_is_noticed(draw, bug, monkeypatch):
    """`fit`, a test of the distribution of l2 noise, returns a p-value below 1e-6 for three wrong samplers.

    The samplers draw a normal vector with a random variance, which has a gamma distribution. `bug` says what is wrong:
    the "shape" of this gamma distribution is too small, the "variance of each coordinate" is drawn for each coordinate
    alone, or the "scale" of the noise is 5 percent too small. `draw` is the function that draws secure or simulated
    noise.
    """
    d, right = 8, {"secure_l2": samplers.secure_l2, "simulated_l2": samplers.simulated_l2}
    one_by_one = {
        "secure_l2": lambda scale, size: [right["secure_l2"](scale * math.sqrt(2), 1)[0] for _ in range(size)],
        "simulated_l2": lambda scale, rng: [float(right["simulated_l2"](s * math.sqrt(2), rng)) for s in scale],
    }
    smaller = {name: lambda scale, *rest, name=name: right[name](0.95 * np.asarray(scale)[()], *rest) for name in right}
    if bug == "shape":
        with planted.plant("random variance of too small a shape"):
            assert fit(draw(d)) < LEVEL
        return
    for name, wrong in (one_by_one if bug.startswith("variance") else smaller).items():
        monkeypatch.setattr(samplers, name, wrong)
    assert fit(draw(d, 1500 if bug.startswith("variance") else 6000)) < LEVEL


@pytest.mark.parametrize("twice", [1, 2, 8, 101])
def test_random_variance_has_a_gamma_distribution(twice):
    assert stats.kstest(_random_bits.half_gamma(twice, 20_000), stats.gamma(twice / 2).cdf).pvalue > LEVEL


@pytest.mark.parametrize("d", [1, 2, 8])
def test_secure_noise_is_normal_with_this_random_variance(d, silent):
    for _ in range(2000):
        samplers.secure_l2(2.0**30, d)
    stds, sizes = np.transpose(silent)
    assert set(sizes) == {d}
    assert stats.kstest((stds * 2.0**-30) ** 2 / 2, stats.gamma((d + 1) / 2).cdf).pvalue > LEVEL


def test_uniforms_have_all_digits_of_a_double(monkeypatch):
    """The numbers u that `_uniforms` draws are between 2**-129 and 1/2, and use 127 random bits instead of only 63.

    So a small u, whose first 63 bits are zero, still has random digits. `_uniforms` also draws one random bit for each
    u, by which its caller chooses between u and 1 - u, to get a uniform number in (0, 1).
    """
    bits = {"least": bytes(16), "largest": b"\xff" * 7 + b"\x7f" + b"\xff" * 8, "small": bytes(8) + b"\x01" * 8}
    found = {}
    for name, some in bits.items():
        monkeypatch.setattr(_random_bits.os, "urandom", lambda size, some=some: some)
        found[name] = float(_random_bits._uniforms(1)[0][0])
    assert found["least"] == 2.0**-129
    assert found["largest"] == 0.5
    assert found["small"] == pytest.approx(0x0101010101010101 * 2.0**-128, rel=1e-15)


def test_random_variance_has_all_digits_of_a_double(monkeypatch):
    """The relative error of a drawn gamma variable is at most 37 * 2**-53, and below a third of that for the shape 1.

    Draws of the shapes 1/2 and 1 are compared with 40 digits, also for tiny uniform numbers u. A draw of the shape
    10**4 is the exact sum of as many draws of the shape 1, rounded once.
    """
    words = np.random.default_rng(1).integers(0, 2**64, (2, 200), dtype=np.uint64)
    words[0, :124] >>= np.repeat(np.arange(1, 63, dtype=np.uint64), 2)  # tiny u
    words[0, 1:124:2] += np.uint64(2**63)  # which stand for 1 - u
    monkeypatch.setattr(_random_bits.os, "urandom", lambda size: words.tobytes()[:size])
    one, half = (_random_bits.half_gamma(twice, 200) for twice in (2, 1))
    with mp.workdps(40):
        for i, (first, second) in enumerate(words.T.tolist()):
            u = (first % 2**63 + (second + mpf("0.5")) / 2**64) / 2**64
            exact = -mp.log(u if first < 2**63 else 1 - u)
            assert abs(one[i] / exact - 1) <= 11 * 2.0**-53
            assert abs(half[i] / (exact * mp.sin(mp.pi * u) ** 2) - 1) <= 37 * 2.0**-53
    monkeypatch.setattr(_random_bits.os, "urandom", np.random.default_rng(1).bytes)
    (many,) = _random_bits.half_gamma(2 * 10**4, 1)
    monkeypatch.setattr(_random_bits.os, "urandom", np.random.default_rng(1).bytes)
    assert many == float(sum(map(Fraction, _random_bits.half_gamma(2, 10**4).tolist())))


# --- Rounding ---------------------------------------------------------------------------------------------------------


def distance_of_discrete(s, d):
    """Return the total variation distance of discrete and rounded l2 noise, both of scale `s`, for `d` = 1 or 2.

    l2 noise is normal noise with a random variance, in `d` coordinates. Discrete l2 noise has a discrete Gaussian in
    place of the normal distribution, and rounded l2 noise is l2 noise that is rounded to integers.
    """
    reach, (nodes, weights) = int(40 * s) + 40, np.polynomial.legendre.leggauss(400)
    u = 14 * nodes - 11  # log of the gamma variable, from exp(-25) to exp(3)
    mass = 14 * weights * np.exp(stats.gamma((d + 1) / 2).logpdf(np.exp(u)) + u)
    k = np.arange(-reach, reach + 1)
    std = s * np.sqrt(2 * np.exp(u))[:, None]
    discrete = np.exp(-(k**2) / (2 * std**2))
    discrete /= discrete.sum(axis=1, keepdims=True)
    rounded = stats.norm.cdf((k + 0.5) / std) - stats.norm.cdf((k - 0.5) / std)
    if d == 1:
        return np.abs(mass @ (discrete - rounded)).sum() / 2
    joint = [np.einsum("m,mi,mj->ij", mass, law, law) for law in (discrete, rounded)]
    return np.abs(joint[0] - joint[1]).sum() / 2


@pytest.mark.parametrize(("s", "d"), [(1.0, 1), (3.0, 1), (10.0, 1), (1.0, 2), (3.0, 2)])
def test_discrete_noise_is_as_near_as_proved(s, d):
    proved = (1 + math.log1p(48 * s**2)) / (48 * s**2) if d == 1 else d / (24 * s**2 * (d - 1))
    assert 0 < distance_of_discrete(s, d) <= proved


def test_standard_deviation_on_the_lattice_pays_for_integer_noise():
    """`l2_std` returns a slightly larger standard deviation for integer noise than continuous l2 noise needs.

    A secure release adds integer noise, which is not exactly rounded l2 noise. The difference adds to delta, so the
    standard deviation is larger by up to a relative 1e-6. If the addition to delta would be half of delta or more,
    `l2_std` raises a ValueError.
    """
    exact = 2.0**40 * l2_noise_scale(1.0, 1e-9, 3) * 2
    found = lattice.l2_std(2.0**40, 3, 1.0, 1e-9)
    assert exact < found < exact * (1 + 1e-6)
    left = 1e-9 - (1 + math.e) * math.sqrt(3) * 2.0**-49
    assert found >= 2.0**40 * l2_noise_scale(1.0, left, 3) * 2
    with pytest.raises(ValueError, match="integer noise would add"):
        lattice.l2_std(2.0**40, 3, 1.0, 1e-15)


@pytest.mark.parametrize("d", [1, 2, 10])
def test_a_coarse_lattice_costs_what_is_proved(d):
    """For integers with a sensitivity of only 1000, `l2_std` allows for what the rounding of l2 noise adds to delta.

    A formula for this addition is proved; for `d` = 1 coordinate the addition is larger, because the density of the
    noise then has a peak. The standard deviation from `l2_std` agrees with the formula, to a relative 1e-8. It is above
    that of the formula, as an allowance for rounding errors.
    """
    s = 1000 * l2_noise_scale(1.0, 1e-3, d)
    left = 1e-3 - (1 + math.e) * (1 + (math.log1p(48 * s**2) if d == 1 else 0.0)) / (2 * s**2)
    enough = 1000 * l2_noise_scale(1.0, left, d) * math.sqrt(d + 1)
    assert enough * (1 + lattice.EXCESS / 2) <= lattice.l2_std(1000.0, d, 1.0, 1e-3) <= enough * (1 + 1e-8)


# --- Mechanisms -------------------------------------------------------------------------------------------------------


def settings():
    """Yield twenty random settings (sigma, n, epsilon, options) of a GaussianDataMechanism with l2 noise.

    sigma has the guessed standard deviations of the columns, and n is the number of rows. The seed is fixed.
    """
    rng = np.random.default_rng(7)
    for _ in range(20):
        d, n = int(rng.integers(1, 12)), int(rng.integers(20, 400))
        options = {"neighbors": str(rng.choice(["replace_one", "add_remove"])), "count_clipped": bool(rng.integers(2))}
        sigma = rng.uniform(0.1, 3, d)
        yield sigma, n, float(rng.uniform(0.3, 5)), options | {"center": rng.normal(size=d)}


@pytest.mark.parametrize(
    "given", [pytest.param(given, marks=[pytest.mark.slow] * (i >= 6)) for i, given in enumerate(settings())]
)
def test_simulated_error_is_that_of_the_forecast(given):
    sigma, n, epsilon, options = given
    it = GaussianDataMechanism(sigma, n, epsilon, 1e-6, noise="l2", **options)
    rng, squares = np.random.default_rng(n), []
    for _ in range(400):
        X = rng.normal(it.center, sigma, (n, sigma.size))
        squares.append(np.sum((it.release(X, rng=rng).estimate - X.sum(axis=0)) ** 2))
    off = np.mean(squares) - it.error(mean=it.center).total
    assert abs(off) < 5 * np.std(squares) / math.sqrt(len(squares))


@pytest.mark.parametrize("count_clipped", [False, True])
def test_confidence_radius_covers(count_clipped):
    options = {"count_clipped": count_clipped, "center_std": 0.0, "sigma_factor": 1.0, "clip_probability": 1e-5}
    it = GaussianDataMechanism([1.0, 5.0], 50, 1.0, 1e-6, noise="l2", **options)
    rng, radius, inside = np.random.default_rng(3), it.confidence_radius(0.9), []
    for _ in range(2000):
        X = rng.normal(0.0, it.sigma, (50, 2))
        inside.append(np.linalg.norm(it.b * (it.release(X, rng=rng).estimate - X.sum(axis=0))) <= radius)
    assert 0.88 < np.mean(inside) < (0.96 if count_clipped else 0.92)  # the count is part of the noise, not of the sum


@pytest.mark.parametrize(
    "make",
    [
        lambda noise: GaussianMechanism(3.0, 1.0, 1e-6, noise=noise, d=4),
        lambda noise: EllipticalGaussianMechanism([1.0, 2.0, 3.0, 4.0], 1.0, 1e-6, noise=noise),
        lambda noise: GaussianDataMechanism([1.0, 2.0, 3.0, 4.0], 100, 1.0, 1e-6, noise=noise),
    ],
)
def test_noise_is_scaled_like_gaussian_noise(make):
    """The standard deviations of l2 noise are those of Gaussian noise, times one factor for all coordinates.

    The function `make` takes a value of the option `noise` and returns a mechanism. With "best", the mechanism adds the
    smaller of the two noises, here l2 noise.
    """
    normal, l2, best = map(make, ("gaussian", "l2", "best"))
    ratio = math.sqrt(5) * l2_noise_scale(1.0, 1e-6, 4) / analytic_noise_multiplier(1.0, 1e-6)
    assert l2.noise_std == pytest.approx(ratio * np.asarray(normal.noise_std), rel=1e-12)
    assert (best.noise_law, best.noise) == ("l2", "best")
    assert best.noise_std == pytest.approx(l2.noise_std)
    assert (normal.noise_law, l2.noise_size) == ("gaussian", 4)


def test_best_noise_is_gaussian_where_delta_is_large():
    assert GaussianMechanism(1.0, 0.1, 0.1, noise="best", d=1).noise_law == "gaussian"


@pytest.mark.parametrize("path", [*slow("secure"), "simulated"])
def test_a_release_says_its_law_and_has_its_spread(path):
    it, rng = EllipticalGaussianMechanism([1.0, 10.0], 1.0, 1e-6, noise="l2"), np.random.default_rng(5)
    releases = [it.release([0.0, 0.0], rng=rng if path == "simulated" else None) for _ in range(3000)]
    assert {release.noise_law for release in releases} == {"l2"}
    found = np.std([release.estimate for release in releases], axis=0) / it.noise_std
    assert found == pytest.approx([1.0, 1.0], abs=0.1)


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 100.0])
@pytest.mark.parametrize("d", [1, 2, *slow(50)])
def test_secure_releases_fit_the_lattice(epsilon, d):
    """Secure releases with l2 noise are possible for epsilon = 1e-6 and 1e-3, and have about the stated variance.

    The mean of their squared errors is between half and twice the stated variance. A secure release adds integer noise,
    which is not exactly rounded l2 noise. The difference adds to delta, and the addition grows like exp(`epsilon`).
    Therefore a secure release raises a ValueError for `epsilon` = 100. `d` is the number of columns.
    """
    options = {"noise": "l2", "count_clipped": True, "neighbors": "add_remove"}
    it, X = GaussianDataMechanism(np.ones(d), 20, epsilon, 1e-4, **options), np.zeros((20, d))
    if epsilon == 100.0:
        with pytest.raises(ValueError, match="integer noise would add"):
            it.release(X)
        return
    squares = [np.mean((it.release(X).estimate / it.noise_std) ** 2) for _ in range(500)]
    assert 0.5 < np.mean(squares) < 2
    assert GaussianMechanism(1.0, epsilon, 1e-4, noise="l2", d=d).release(np.zeros(d)).noise_law == "l2"


def test_best_noise_is_gaussian_where_l2_noise_is_not_to_be_had():
    assert GaussianMechanism(1.0, 2e4, 1e-6, noise="best", d=2).noise_law == "gaussian"
    assert GaussianMechanism(1.0, 1.0, 1e-6, noise="best", d=10**6 + 1).noise_law == "gaussian"
    for epsilon, delta in ((1e-7, 1e-6), (1.0, 1e-15), (20.0, 1e-6)):
        it = GaussianMechanism(1.0, epsilon, delta, noise="best", d=2)
        assert it.noise_law == "gaussian"
        it.check_noise([0.0, 0.0])


@pytest.mark.parametrize(("delta", "d"), [(1e-6, 2), (1e-12, 10)])
def test_best_noise_is_gaussian_where_rounding_costs_a_quarter_of_delta(delta, d):
    """For such a small delta, the noise "best" is l2 noise until the rounding of its random scale costs a quarter."""
    limit = math.log(delta / (4 * lattice.l2_distance(d)) - 1)
    for epsilon in (1.0, limit - 0.01, limit + 0.01, 20.0):
        costs_less = lattice.delta_of(lattice.l2_distance(d), epsilon) < delta / 4
        assert (GaussianMechanism(1.0, epsilon, delta, noise="best", d=d).noise_law == "l2") == costs_less


def test_bad_noise_and_sizes_are_named():
    with pytest.raises(ValueError, match='noise must be "gaussian", "l2" or "best", got \'normal\''):
        GaussianMechanism(1.0, 1.0, 1e-6, noise="normal", d=1)
    with pytest.raises(ValueError, match="d, the number of entries of a value, must be given for noise = 'l2'"):
        GaussianMechanism(1.0, 1.0, 1e-6, noise="l2")
    it = GaussianMechanism(1.0, 1.0, 1e-6, noise="l2", d=3)
    for call in (it.check, it.release):
        with pytest.raises(ValueError, match="value must have the declared d = 3 entries, got 2"):
            call([1.0, 2.0])
    with pytest.raises(ValueError, match="integer noise would add"):
        GaussianMechanism(1.0, 1.0, 1e-15, noise="l2", d=3).release([0.0, 0.0, 0.0])


# --- Budget -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2, *slow(10), 300])
@pytest.mark.parametrize("epsilon", [1e-4, *slow(0.1, 1.0), 8.0])
def test_cost_is_above_the_whole_privacy_curve(epsilon, d):
    s = float(l2_noise_scale(epsilon, 1e-6, d))
    mu = math.sqrt(l2_mu_squared(s * math.sqrt(d + 1), d))
    grid = np.random.default_rng(d).uniform(0, 1 / s, 5000)
    assert np.all(l2_delta(grid, s, d) <= gaussian_delta(grid, 1 / mu))
    assert mu < 1.01 * 2 * stats.norm.ppf((1 + l2_delta(0.0, s, d)) / 2)  # a smaller mu fails at epsilon = 0


@pytest.mark.parametrize("d", [1, 2, 300])
@pytest.mark.parametrize("epsilon", [1e-4, 8.0])
def test_cost_is_above_the_privacy_curve_between_the_points_of_the_grid(epsilon, d):
    """Between two points of the grid, l2 noise has at most its delta at the left point, and this is below the cost's.

    The cost is that of Gaussian noise, which has between the two points at least its delta at the right point.
    """
    s = float(l2_noise_scale(epsilon, 1e-6, d))
    mu = math.sqrt(l2_mu_squared(s * math.sqrt(d + 1), d))
    points = (np.arange(2049) / 2048) ** 2 / s
    assert np.all(l2_delta(points[:-1], s, d) <= gaussian_delta(points[1:], 1 / mu))


@pytest.mark.parametrize(("epsilon", "d"), [(52.0, 1), (60.0, 3), (1000.0, 10)])
def test_cost_of_noise_that_hides_nothing_is_infinite(epsilon, d):
    s = float(l2_noise_scale(epsilon, 1e-6, d))
    assert l2_mu_squared(s * math.sqrt(d + 1), d) == math.inf


def losses(mechanism, grid):
    """Return the probabilities of the privacy losses of `mechanism` at the points of `grid`, as an array.

    The privacy loss is the log-likelihood ratio for two neighboring values, rounded up to a point of `grid`. For l2
    noise the probabilities are frequencies of 400 000 random losses.
    """
    if mechanism.noise_law == "gaussian":
        mu = 1 / mechanism.noise_multiplier
        below = stats.norm.cdf((grid - mu**2 / 2) / mu)
    else:
        rng, d, size = np.random.default_rng(1), mechanism.d, 400_000
        s = mechanism.noise_multiplier / math.sqrt(d + 1)
        noise = rng.normal(size=(size, d)) * np.sqrt(2 * rng.gamma((d + 1) / 2, size=size))[:, None] * s
        loss = (np.linalg.norm(noise - np.eye(d)[0], axis=1) - np.linalg.norm(noise, axis=1)) / s
        below = np.searchsorted(np.sort(loss), grid) / size
    return np.diff(below, prepend=0.0)


def test_releases_together_are_as_private_as_the_budget_says():
    """At the epsilon that a budget reports for three releases, their joint delta is below the delta of the budget.

    One release has Gaussian noise, and two have l2 noise, one of them the first. The joint delta is computed by
    convolution of the distributions of the privacy losses. It is at least a tenth of the delta of the budget.
    """
    one, other = GaussianMechanism(1.0, 0.5, 1e-3), GaussianMechanism(1.0, 0.8, 1e-3, noise="l2", d=3)
    spent = []
    for order in ((other, one, other), (other, other, one)):
        budget = Budget(epsilon=9.0, delta=1e-2, rule="gaussian")
        for mechanism in order:
            budget.charge(mechanism)
        spent.append(budget.spent.epsilon)
    assert max(spent) == min(spent)
    step, half = 2e-3, 4096
    grid = step * np.arange(-half, half)
    together = losses(one, grid)
    for _ in range(2):
        together = np.convolve(together, losses(other, grid))[half : 3 * half]
    found = np.sum(together * np.maximum(0.0, -np.expm1(spent[0] - grid)))
    assert 1e-3 < found < 1e-2


def test_costs_by_the_rule_gaussian_depend_on_the_first_release_and_one_sum():
    """After a release with l2 noise, a second release costs the same with l2 noise as with Gaussian noise of equal mu.

    The composition rule "gaussian" counts each release as a normal variable that is shifted by mu standard deviations.
    So an analyst who chooses the second release after seeing the first one gains nothing by the choice. The total
    epsilon is that of one release with the sum of the mu**2, for (1 - 2**-10) times the delta of the budget. The rest
    of delta is kept for what the integer noise of releases with l2 noise adds to delta. If the first release has
    Gaussian noise, l2 noise is refused, because this part of delta was not kept.
    """
    l2 = GaussianMechanism(1.0, 0.8, 1e-3, noise="l2", d=3)
    terms = {"epsilon": 9.0, "delta": 1e-2, "rule": "gaussian"}
    after = {}
    for name in ("l2", "gaussian"):
        budget = Budget(**terms)
        charge = budget.charge(l2)
        epsilon = gaussian_epsilon(1e-3, charge.mu_squared**-0.5)
        second = l2 if name == "l2" else GaussianMechanism(1.0, epsilon, 1e-3)
        assert budget.charge(second).mu_squared == pytest.approx(charge.mu_squared, rel=1e-8)
        after[name] = budget.spent.epsilon
    together = gaussian_epsilon(1e-2 * (1 - 2**-10), (2 * charge.mu_squared) ** -0.5)
    assert after == pytest.approx({"l2": together, "gaussian": together}, rel=1e-8)
    budget = Budget(**terms)
    budget.charge(GaussianMechanism(1.0, 0.5, 1e-3))
    with pytest.raises(BudgetExceeded, match='the rule "gaussian" takes l2 noise only if the first release has it'):
        budget.charge(l2)


@pytest.mark.parametrize("delta", [1e-8, 4e-8])
def test_what_is_kept_of_delta_is_enough_for_so_many_releases(delta):
    """By the rule "gaussian", releases with l2 noise are granted until they use up 2**-10 of the budget's `delta`.

    This part of delta is kept for what the integer noise, which is not exactly l2 noise, adds to delta. Each release
    adds at most 2**-39 (1 + e**epsilon). The releases are so small that nothing else limits their number.
    """
    terms = Terms(None, 1.0, delta, "replace_one", "gaussian")
    charge = charge_of(GaussianMechanism(1.0, 1e-4, 1e-10, noise="l2", d=2), "replace_one")
    granted = [number for number in range(10) if terms.grants([charge] * number, charge)]
    assert granted == list(range(int(delta * 2**-10 / (2**-39 * (1 + math.e)))))


@pytest.mark.parametrize("total", [{"rho": 10.0}, {"epsilon": 2.0, "delta": 1e-5, "rule": "zcdp"}])
def test_a_budget_of_zcdp_refuses_l2_noise(total):
    """A budget that counts in zCDP refuses l2 noise from the first release on, free of charge, and says why.

    No cost in zCDP is known for l2 noise. The budget has a `total` rho, or the composition rule "zcdp".
    """
    it, budget = GaussianMechanism(1.0, 1.0, 1e-6, noise="l2", d=3), Budget(**total)
    before = budget.left
    with pytest.raises(BudgetExceeded, match=r'asks for .*; no rho is known for l2 noise; Gaussian noise \(noise="gau'):
        budget.charge(it)
    assert (budget.history, budget.left) == ((), before)
    budget.charge(GaussianMechanism(1.0, 1.0, 1e-6))
    with pytest.raises(BudgetExceeded, match="no rho is known for l2 noise"):
        budget.charge(it)
    budget.charge(GaussianMechanism(1.0, 0.1, 1e-6))
    charge = Budget(epsilon=1.0, delta=1e-6).charge(it)
    assert (charge.epsilon, charge.delta, charge.rho) == (1.0, 1e-6, math.inf)


@pytest.mark.parametrize("rule", [None, "gaussian", "zcdp"])
def test_a_budget_refuses_noise_for_which_its_rule_has_no_cost(rule):
    """A single release is refused, and costs nothing, if its cost is infinite by the composition rule of the budget.

    After such a release everything else would be refused. The rule "basic" has a cost for it.
    """
    it, total = GaussianMechanism(1.0, 52.0, 1e-6, noise="l2", d=1), {"epsilon": 60.0, "delta": 1e-5}
    budget = Budget(**total, rule=rule)
    with pytest.raises(BudgetExceeded, match="all releases would come to epsilon = inf"):
        budget.charge(it)
    assert budget.history == ()
    assert Budget(**total, rule="basic").charge(it).epsilon == 52.0


def test_a_journal_with_an_infinite_cost_opens_and_is_spent(tmp_path):
    """A journal with the rule "zcdp" that holds l2 noise, of which no rho is known, can be read and grants nothing."""
    terms, laplace = {"epsilon": 2.0, "delta": 1e-5, "rule": "zcdp"}, LaplaceMechanism(1.0, 1e-3)
    charge = charge_of(GaussianMechanism(1.0, 0.3, 1e-6, noise="l2", d=3), "replace_one")
    with Budget(tmp_path / "survey.budget", **terms)._store.changing() as (_, record):
        record(charge)
    budget = Budget(tmp_path / "survey.budget")
    assert (budget.history, budget.spent, budget.left.epsilon) == ((charge,), (2.0, 1e-5), 0.0)
    for mechanism in (laplace, GaussianMechanism(1.0, 1e-3, 1e-9)):
        with pytest.raises(BudgetExceeded, match="no rho is known for l2 noise"):
            budget.charge(mechanism)
    pure = Budget(**terms)
    pure.charge(laplace)
    assert pure.spent == (1e-3, 0.0)


@pytest.mark.parametrize("rule", [None, *RULES])
def test_a_refusal_says_if_l2_noise_makes_the_sum_large(rule):
    """Where releases are added up, l2 noise costs more than its epsilon, and an error for a refused release says so.

    The parts of `Budget.split` fit with Gaussian noise. With l2 noise of two coordinates fewer of them fit, except by
    the composition rule "basic", which adds up epsilon and delta whatever the noise is. The budget has the `rule`.
    """
    hint = "; one of the releases has l2 noise, which can cost far more than its epsilon"
    terms = {"epsilon": 1.0, "delta": 1e-5, "rule": rule}
    part, refused = Budget(**terms).split(12), []
    for noise in ("gaussian", "l2"):
        budget, it = Budget(**terms), GaussianMechanism(1.0, *part, noise=noise, d=2)
        with pytest.raises(BudgetExceeded) as refusal:
            tuple(budget.charge(it) for _ in range(13))
        refused.append((len(budget.history) < 12, hint in str(refusal.value)))
    assert refused == [(False, False), (rule != "basic", rule not in ("basic", "zcdp"))]
    if rule is None:
        budget = Budget(**terms)
        budget.charge(GaussianMechanism(1.0, 0.5, 1e-5, noise="l2", d=2))
        assert (budget.spent.epsilon, budget.left.epsilon) == (0.5, 0.0)
        with pytest.raises(BudgetExceeded, match=f"{hint}.*; Gaussian noise does not"):
            budget.charge(GaussianMechanism(1.0, 0.01, 1e-6))
