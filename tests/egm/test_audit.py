"""Test `egm.audit`, whose functions measure from releases how private a mechanism is.

`lower_bound` computes a lower bound of epsilon from releases of two neighboring data sets, and `replay` simulates many
releases from a few calls of a mechanism.
"""

import functools
import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import stats

from egm import GaussianDataMechanism, GaussianMechanism, audit, samplers
from egm.calibration import analytic_noise_multiplier

PATHS = pytest.mark.parametrize("path", ["secure", "simulated"])


# --- The bound --------------------------------------------------------------------------------------------------------


def answers(p, m, rng):
    """Return an array of `m` independent answers, each 1 with probability `p` and otherwise 0, drawn by `rng`."""
    return (rng.random(m) < p).astype(float)


@pytest.mark.slow
def test_bound_is_too_large_as_seldom_as_stated():
    """`lower_bound` with confidence 0.8 exceeds the true epsilon in at most a fifth of 1000 runs.

    `lower_bound` computes a lower bound of epsilon from releases of two neighboring data sets; the confidence is the
    probability that the bound holds. The releases are answers by randomized response with epsilon = 1, and the
    tolerance is four binomial standard errors. The bound must also exceed the true epsilon in more than 1 % of the
    runs, since a bound that is always too small would be useless.
    """
    rng, p = np.random.default_rng(5), math.e / (1 + math.e)
    pairs = ((answers(p, 500, rng), answers(1 - p, 500, rng)) for _ in range(1000))
    runs = [audit.lower_bound(*pair, 0.0, confidence=0.8) > 1 for pair in pairs]
    assert np.mean(runs) < 0.2 + 4 * math.sqrt(0.2 * 0.8 / 1000)
    assert np.mean(runs) > 0.01  # a bound that is hardly ever too large would be useless


def test_bound_comes_near_to_epsilon():
    rng, p = np.random.default_rng(6), math.e / (1 + math.e)
    found = audit.lower_bound(answers(p, 10**6, rng), answers(1 - p, 10**6, rng), 0.0)
    assert found == pytest.approx(1, abs=0.02)
    assert found < 1


def test_limits_are_those_of_clopper_and_pearson():
    """`audit._bound` computes from two counts the bound of epsilon that follows from SciPy's exact binomial limits.

    The counts are how often an event occurs in 1000 releases of one data set and of another; delta is 0.01. The
    expected bound is log((low - delta) / high), or 0 if this is negative. Here low is the lower confidence limit of the
    probability of the event for the first data set, and high the upper limit for the second data set.
    """
    for k, other in ((300, 40), (1000, 0), (17, 16), (0, 5), (1000, 1000)):
        low = stats.binomtest(k, 1000).proportion_ci(0.98, method="exact").low
        high = stats.binomtest(other, 1000).proportion_ci(0.98, method="exact").high
        expected = max(0.0, math.log((low - 0.01) / high)) if low > 0.01 else 0.0
        assert audit._bound(k, other, 1000, 0.01, 0.02) == pytest.approx(expected, rel=1e-10)


def test_what_delta_permits_is_no_failure():
    """`lower_bound`, a bound of epsilon, allows for the probability delta with which a guarantee of privacy may fail.

    The procedure reveals its data with probability 0.1, and otherwise nothing. So the lower bound of epsilon is 0 for
    delta = 0.1, and above 4 for delta = 0.05.
    """
    rng = np.random.default_rng(7)
    one, other = answers(0.1, 50_000, rng), np.zeros(50_000)
    assert audit.lower_bound(one, other, 0.1) == 0
    assert audit.lower_bound(one, other, 0.05) > 4


def test_bound_has_no_unit_and_no_order():
    """`lower_bound`, a bound of epsilon from releases of two data sets, does not depend on their units or their order.

    The bound does not change if the releases of the two data sets are exchanged. It also does not change if a release
    consists of several numbers, and each of them is multiplied by its own constant in all releases.
    """
    rng = np.random.default_rng(8)
    one, other = rng.normal([1, 0], 1, (5000, 2)), rng.normal(0, 1, (5000, 2))
    found = audit.lower_bound(one, other, 0.05)
    assert found > 0.2
    assert audit.lower_bound(other, one, 0.05) == found
    for units in ([1e20, 1e-20], [1e160, 1e300], [1e-300, 1e-160]):
        assert audit.lower_bound(one * units, other * units, 0.05) == pytest.approx(found, rel=1e-9)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 19, 99])
def test_releases_that_are_not_finite_are_named(bad, place):
    """`lower_bound`, a bound of epsilon, raises an error with the index of a release that is not finite.

    The index of this release is `place`, and its value is `bad`. The index 0 or 19 is in the first fifth of the
    releases, which serves to choose an event, and the index 99 is in the rest, in which the event is counted.
    """
    right = np.random.default_rng(9).normal(size=(2, 100))
    for name in ("one", "other"):
        wrong = dict(zip(("one", "other"), right.copy(), strict=True))
        wrong[name][place] = bad
        with pytest.raises(ValueError, match=rf"^{name}\[{place}\] must"):
            audit.lower_bound(**wrong, delta=0.0)


@pytest.mark.parametrize("m", [0, 1, 4, 9])
def test_too_few_releases_are_refused(m):
    with pytest.raises(ValueError, match=rf"^one and other must have one shape, with at least 10 .*, got \({m},\)"):
        audit.lower_bound(np.arange(m), np.arange(m) + 5, 0.0)
    assert audit.lower_bound(np.arange(10), np.arange(10) + 5, 0.0) == 0


@pytest.mark.parametrize(
    ("options", "error"),
    [
        *(({"delta": bad}, ValueError) for bad in ([0.0], np.nan, 1.0, -0.1)),
        *(({"delta": None}, TypeError), ({"delta": 0.0, "confidence": 1.0}, ValueError)),
    ],
)
def test_bad_parameters_are_named(options, error):
    with pytest.raises(error, match=rf"^{list(options)[-1]} must"):
        audit.lower_bound(np.zeros(10), np.ones(10), **options)


@pytest.mark.parametrize("size", [1, 3])
def test_a_release_without_noise_is_the_worst(size):
    """For releases without noise, `lower_bound` returns the largest bound that 1000 releases of each data set can give.

    A release is a vector of `size` numbers. Of the 1000 releases, 200 serve to choose an event and 800 to count it. The
    largest bound is that of an event that occurs 800 times for one data set and never for the other.
    """
    most = audit._bound(800, 0, 800, 0.0, 1e-6)
    zeros, ones = np.zeros((1000, size)), np.ones((1000, size))
    assert most > 4
    for one, other in ((zeros, ones), (ones, zeros), (ones + 1e9, ones)):
        assert audit.lower_bound(one, other, 0.0) == pytest.approx(most)


def test_one_direction_without_noise_is_found():
    """`lower_bound`, a bound of epsilon, is above 4 if some linear combination of the released numbers has no noise.

    The combination is 0 for one data set and 0.01 for the other, so it tells the two apart, although each released
    number by itself is noisy. In a second example, one released number has no noise, but is 1 for both data sets. Then
    only the other number, which is noisy, tells them apart, and the bound is below 4.
    """
    rng = np.random.default_rng(7)
    first = rng.normal(size=(2, 2000))
    shifted = zip(first, (0, 0.01), strict=True)
    one, other = (np.transpose([z, 3 * z + shift, rng.normal(size=2000)]) for z, shift in shifted)
    assert audit.lower_bound(one, other, 0.0) > 4
    assert audit.lower_bound(one[:, [0, 2]], other[:, [0, 2]], 0.0) == 0
    constant = np.transpose([np.ones(2000), first[0]]), np.transpose([np.ones(2000), first[1] + 2])
    assert 0.5 < audit.lower_bound(*constant, 0.0) < 4


def test_the_same_releases_show_nothing():
    same = np.random.default_rng(9).normal(size=(2000, 3))
    assert audit.lower_bound(same, same, 0.0) == 0


def test_direction_is_that_of_the_likelihood_ratio():
    """For normal releases of two data sets, `audit.project` returns the direction in which the likelihood ratio grows.

    The direction is the inverse of the sum of the two covariance matrices, times the difference of the two means. The
    entries agree within 0.02, for 200 000 releases of each data set with equal covariance matrices.
    """
    rng, covariance = np.random.default_rng(10), np.array([[2.0, 1.0, 0], [1.0, 1.0, 0], [0, 0, 5.0]])
    shift = np.array([1.0, 1.0, 0])
    one, other = (rng.multivariate_normal(mean, covariance, 200_000) for mean in (shift, np.zeros(3)))
    direction = audit.project(one, other)
    expected = np.linalg.solve(2 * covariance, shift)
    assert direction == pytest.approx(expected, abs=0.02)
    assert expected == pytest.approx([0, 0.5, 0])


@pytest.mark.parametrize("outlier", [1e10, 1e20, -1e100, 1e308])
@pytest.mark.parametrize("place", [0, 19_999])
@pytest.mark.parametrize("both", [False, True])
def test_one_outlier_changes_the_bound_little(outlier, place, both):
    """`lower_bound`, a bound of epsilon, changes by at most 0.002 if one of 20 000 releases becomes a huge number.

    A release is a pair of numbers, one with Laplace noise around 1 or 0, depending on the data set, and one with normal
    noise around 0. The bound is near 1. The Laplace number of the release with the index `place` is replaced by
    `outlier`, for both data sets if `both` is true, and otherwise for the first one. The release with the index 0
    serves to choose an event, and the last release to count how often this event occurs.
    """
    rng = np.random.default_rng(14)
    one, other = (np.transpose([rng.laplace(value, 1.0, 20_000), rng.normal(size=20_000)]) for value in (1.0, 0.0))
    expected = audit.lower_bound(one, other, 0.0)
    assert expected > 0.8
    for releases in (one, other)[: 1 + both]:
        releases[place, 0] = outlier
    assert audit.lower_bound(one, other, 0.0) == pytest.approx(expected, abs=2e-3)


@pytest.mark.parametrize("power", [-1060, -1000, 0, 900, 1010])
def test_bound_does_not_depend_on_the_unit(power):
    rng = np.random.default_rng(15)
    one, other = (np.rint(1024 * rng.laplace(value, 1.0, 2000)) / 1024 for value in (3.0, 0.0))
    assert audit.lower_bound(np.ldexp(one, power), np.ldexp(other, power), 0.0) == audit.lower_bound(one, other, 0.0)


@pytest.mark.parametrize("kind", [np.array, list, lambda values: list(np.array(values)), pd.Series, pl.Series])
def test_truth_values_are_releases(kind):
    yes, no = kind([True] * 200), kind([False] * 200)
    assert audit.lower_bound(yes, no, 0.0) > 1
    assert audit.project(yes, no).shape == (1,)


def test_large_integers_are_releases():
    assert audit.lower_bound([2**70 + 2**30] * 200, [2**70] * 200, 0.0) > 1


WRONG = [
    ("a", TypeError),
    (1j * np.arange(20.0), TypeError),
    (np.ma.masked_array(np.arange(20.0), mask=np.arange(20) == 3), TypeError),
    ([[1.0], [2.0, 3.0]], TypeError),
    ([1.0, math.inf] * 10, ValueError),
    ([1.0, 10**400] * 10, ValueError),
    ([1, -(10**400)] * 10, ValueError),
]


@pytest.mark.parametrize("bound", [lambda one, other: audit.lower_bound(one, other, 0.0), audit.project])
@pytest.mark.parametrize(("wrong", "error"), WRONG)
def test_wrong_releases_are_refused_by_name(bound, wrong, error):
    with pytest.raises(error, match=r"one(\[1\])? must be"):
        bound(wrong, np.arange(20.0))
    with pytest.raises(error, match=r"other(\[1\])? must be"):
        bound(np.arange(20.0), wrong)


SHAPES = [((1, 2), (1, 2)), ((5, 2), (1, 2)), ((5, 2), (5, 3)), ((), ()), ((5,), ()), ((), (5,)), ((5, 2, 2),) * 2]


@pytest.mark.parametrize(("one", "other"), SHAPES)
def test_a_direction_needs_two_releases_of_one_length(one, other):
    with pytest.raises(ValueError, match="one and other must have at least 2 releases of one length, one in each row"):
        audit.project(np.zeros(one), np.zeros(other))


# --- Replay -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("neighbors", ["replace_one", "add_remove"])
@PATHS
def test_a_replayed_release_is_distributed_like_a_release(neighbors, path):
    """`replay` makes many releases from few calls of a mechanism, and they have the distribution of true releases.

    Kolmogorov-Smirnov tests compare the two entries of the releases, and a combination of both entries. `path` is
    "secure" for noise from the operating system, or "simulated" for noise from a NumPy generator, and `neighbors` is
    the neighbor relation of the mechanism.
    """
    options = {"center": [5.0, -1.0], "clip_probability": 0.1, "neighbors": neighbors}
    it, X = GaussianDataMechanism([1.0, 0.2], 2, 1.0, 0.3, **options), np.array([[4.0, -1.0], [9.0, 9.0]])
    rng = None if path == "secure" else np.random.default_rng(11)
    replayed = audit.replay(lambda rng: it.release(X, rng=rng).estimate, 20_000, rng)
    released = np.array([it.release(X, rng=rng).estimate for _ in range(300)])
    for j in range(2):
        assert stats.ks_2samp(released[:, j], replayed[:, j]).pvalue > 1e-6
    assert stats.ks_2samp(released @ [1, 3], replayed @ [1, 3]).pvalue > 1e-6


@PATHS
def test_only_linear_releases_are_replayed(path):
    rng = None if path == "secure" else np.random.default_rng(11)
    with pytest.raises(ValueError, match="release must be a value plus a linear function of its noise"):
        audit.replay(lambda rng: GaussianMechanism(1.0, 1.0, 0.1).release(0.0, rng=rng).estimate ** 2, 100, rng)


LAWS = {
    "means": lambda rng: rng.normal([7.0, -2.0], [1.0, 0.5]),
    "a size": lambda rng: rng.laplace(3.0, size=2),
    "a shape": lambda rng: rng.normal(1.0, [2.0, 0.0], (3, 2)).sum(axis=0),
    "names": lambda rng: [rng.normal(scale=2.0, loc=-1.0), rng.laplace(scale=1.0)],
    "standard normal": lambda rng: 5 + rng.standard_normal(2) @ [[1.0, 1.0], [0.0, 1.0]],
    "l2, then normal": lambda rng: samplers.simulated_l2([1.0, 2.0], rng) + rng.normal([0.0, 4.0], [0.0, 3.0]),
}


@pytest.mark.parametrize("release", LAWS.values(), ids=LAWS)
def test_calls_of_a_generator_are_replayed_with_all_their_arguments(release):
    """`audit.replay` makes many releases from a few calls of a mechanism, with the distribution of true releases.

    This holds for each method of a Generator that `replay` knows, such as `normal` or `laplace`, and for all arguments
    of a call, such as the mean of the noise or the shape of the array of noise. `release` is a function that draws one
    release, two numbers, from a Generator. Kolmogorov-Smirnov tests compare each number, and the sum of both, with
    those of direct calls of `release`.
    """
    rng = np.random.default_rng(12)
    replayed, direct = audit.replay(release, 20_000, rng), np.array([release(rng) for _ in range(20_000)])
    for along in ([1, 0], [0, 1], [1, 1]):
        assert stats.ks_2samp(replayed @ along, direct @ along).pvalue > 1e-6


def test_a_mechanism_that_centers_its_noise_at_the_private_value_is_caught():
    """`lower_bound`, a bound of epsilon, is equal whether noise is drawn around a private value or is added to it.

    A mechanism that draws noise around the private value uses this value as the mean of the normal distribution. The
    bound, here above 5, is computed from many releases, which `audit.replay` makes from a few calls of the mechanism.
    """
    bounds = []
    for release in (lambda value, rng: rng.normal(value, 1.0), lambda value, rng: value + rng.normal(0.0, 1.0)):
        rng = np.random.default_rng(13)
        one, other = (audit.replay(functools.partial(release, value), 20_000, rng) for value in (9.0, 0.0))
        bounds.append(audit.lower_bound(one, other, 0.0))
    assert bounds[0] == pytest.approx(bounds[1], abs=1e-9)
    assert bounds[0] > 5


UNKNOWN = {
    "uniform": lambda rng: rng.normal(0.0, 1.0) + rng.uniform(),
    "integers": lambda rng: rng.normal(0.0, 1.0) + rng.integers(2),
    "bit_generator": lambda rng: np.random.Generator(rng.bit_generator).normal(),
    "gamma": lambda rng: rng.gamma(2.0, size=3),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_draw_that_cannot_be_replayed_is_named(name):
    with pytest.raises(ValueError, match=f"release must draw all its noise by normal, .*; it used rng.{name}"):
        audit.replay(UNKNOWN[name], 100, np.random.default_rng(11))


NONLINEAR = {
    "a gamma variable that is no variance": lambda rng: rng.gamma(2.0),
    "a variance for two vectors": lambda rng: np.sqrt(rng.gamma(1.0)) * (rng.normal() + rng.normal()),
    "a scale that depends on noise": lambda rng: rng.normal(0.0, 1.0 + abs(rng.normal())),
    "a number of draws that depends on noise": lambda rng: rng.normal() + (rng.normal() if rng.normal() > 0 else 0),
    "a large value": lambda rng: 1e9 + rng.normal() ** 2,
    "a small part": lambda rng: [rng.normal(0.0, 1e12), rng.normal() ** 2],
}


@pytest.mark.parametrize("release", NONLINEAR.values(), ids=NONLINEAR)
def test_a_release_that_is_not_linear_in_its_noise_is_refused(release):
    with pytest.raises(ValueError, match="release must be a value plus a linear function of its noise"):
        audit.replay(release, 100, np.random.default_rng(11))


SECURE = {
    "secure_index": lambda rng: samplers.secure_index([1000, 0], 1.0),
    "random bits": lambda rng: samplers.secure_sample(3, 0.999),
}


@pytest.mark.parametrize("name", SECURE)
def test_a_secure_draw_that_cannot_be_replayed_is_named(name):
    with pytest.raises(ValueError, match=f"release must draw all its noise by .*; it used .*{name}"):
        audit.replay(SECURE[name], 100)


def test_secure_noise_of_a_simulated_release_is_refused():
    with pytest.raises(ValueError, match="release must take its noise from the rng that it gets"):
        audit.replay(lambda rng: samplers.secure_gaussian(3.0, 2), 100, np.random.default_rng(1))


@PATHS
def test_a_release_without_noise_is_repeated(path):
    rng = None if path == "secure" else np.random.default_rng(1)
    np.testing.assert_array_equal(audit.replay(lambda rng: [5.0, 2.0], 100, rng), np.tile([5.0, 2.0], (100, 1)))


@pytest.mark.slow
@pytest.mark.parametrize("scale", [0.4, 0.2, 2.0])
def test_secure_noise_of_a_small_scale_is_replayed(scale):
    """Secure noise, Gaussian or Laplace, that `audit.replay` returns is 0 as often as its exact distribution says.

    Secure noise has its random bits from the operating system. `audit.replay` makes many releases from a few calls of a
    function; here a release is only noise. The noise is an integer k with a probability proportional to exp(-k**2 / (2
    `scale`**2)) or exp(-|k| / `scale`).
    """
    k, draws = np.arange(-100, 101), 20_000
    masses = {"gaussian": np.exp(-(k**2) / (2 * scale**2)), "laplace": np.exp(-np.abs(k) / scale)}
    for law, mass in masses.items():
        draw = getattr(samplers, f"secure_{law}")
        replayed = audit.replay(lambda rng, draw=draw: draw(scale, 2), draws)
        assert stats.binomtest(int(np.sum(replayed == 0)), 2 * draws, 1 / mass.sum()).pvalue > 1e-6


@pytest.mark.slow
def test_secure_l2_noise_is_replayed_unless_its_steps_show():
    """Two-dimensional l2 noise of scale s = 1e7 from `audit.replay` has a norm that is s times a gamma variable.

    l2 noise is a random vector whose density at x is proportional to exp(-norm(x) / s), so the gamma variable has the
    shape 2. `replay` makes many releases from a few calls of a function; here a release is only noise, and the noise is
    an integer vector. For a small scale, `replay` raises a ValueError, because it multiplies integers by random factors
    and rounds the products, which would change the distribution of small integers.
    """
    replayed = audit.replay(lambda rng: samplers.secure_l2(1e7, 2), 20_000)
    assert stats.kstest(np.linalg.norm(replayed, axis=1) / 1e7, stats.gamma(2).cdf).pvalue > 1e-6
    with pytest.raises(ValueError, match=r"release must draw secure l2 noise with a standard deviation of at least"):
        audit.replay(lambda rng: samplers.secure_l2(2.0, 2), 100)


@pytest.mark.parametrize(
    ("size", "rng", "error", "message"),
    [
        (2.5, None, ValueError, "size must be a whole number >= 1, got 2.5"),
        (-1, None, ValueError, "size must be a whole number >= 1, got -1"),
        ("a", None, TypeError, "size must be a real number"),
        (10, 5, TypeError, "rng must be a numpy.random.Generator"),
    ],
)
def test_arguments_of_a_replay_are_named(size, rng, error, message):
    with pytest.raises(error, match=message):
        audit.replay(lambda rng: [1.0], size, rng)


def test_secure_noise_of_a_replay_is_what_the_mechanism_asked_for():
    it = GaussianMechanism(1.0, 1.0, 0.1)
    replayed = audit.replay(lambda rng: it.release(0.0, rng=rng).estimate, 20_000)
    assert np.std(replayed) == pytest.approx(analytic_noise_multiplier(1.0, 0.1), rel=0.04)


def test_other_threads_draw_their_noise_during_a_replay():
    """While `audit.replay` makes a release without noise, `samplers.secure_gaussian` in another thread draws noise."""
    with ThreadPoolExecutor(1) as other:
        other.submit(int).result()  # the thread begins before the replay
        drawn = []

        def release(rng):
            drawn.append(other.submit(samplers.secure_gaussian, 1e12, 1).result()[0])
            return samplers.secure_gaussian(1.0, 1)

        audit.replay(release, 10)
    assert len(drawn) > 1
    assert all(drawn)


@pytest.mark.parametrize("unit", [1e160, 1e-200])
def test_a_direction_has_the_inverse_unit_of_the_releases(unit):
    one, other = np.random.default_rng(1).normal(size=(2, 100, 2))
    one += np.array([1, 0])
    np.testing.assert_allclose(audit.project(unit * one, unit * other) * unit, audit.project(one, other), rtol=1e-10)


@pytest.mark.parametrize("power", [-1060, 1020])
def test_a_direction_of_releases_near_the_ends_of_the_doubles_is_finite(power):
    """The direction from `audit.project` does not change if releases are multiplied by 2**-1060 or 2**1020."""
    one, other = np.rint(1024 * np.random.default_rng(1).normal([[[1]], [[0]]], size=(2, 100, 2))) / 1024
    found = audit.project(np.ldexp(one, power), np.ldexp(other, power))
    expected = audit.project(one, other)
    np.testing.assert_allclose(found / found[0], expected / expected[0], rtol=1e-10)
