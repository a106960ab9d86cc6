"""Test the mechanisms: their releases, the size of their noise, and the arguments that they refuse."""

import copy
import dataclasses
import inspect
import pickle
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from egm import (
    AdaptiveDataMechanism,
    EllipticalGaussianMechanism,
    GaussianDataMechanism,
    GaussianMechanism,
    LaplaceMechanism,
    forecast,
    gx2,
    mechanisms,
    samplers,
    scaling,
)
from egm._mechanisms.joint import _root
from egm.calibration import analytic_noise_multiplier, gaussian_delta
from egm.mechanisms import DeltaWarning
from tests.conftest import slow
from tests.egm.doubles import Silent, Unread

SIGMA = np.array([2.0, 1.0, 0.25])
MU = np.array([10.0, -4.0, 0.5])


def rows(n=500, seed=3):
    return np.random.default_rng(seed).normal(MU, SIGMA, (n, 3))


def data_mechanism(n=500, **options):
    return GaussianDataMechanism(SIGMA, n, 1.0, 1e-6, **{"center": MU, **options})


# --- Laplace ----------------------------------------------------------------------------------------------------------


def test_laplace_scale_and_usefulness():
    mechanism = LaplaceMechanism(2.0, 0.5)
    assert mechanism.noise_scale == 4
    assert mechanism.usefulness(0.1, d=5) == pytest.approx(4 * np.log(50), rel=1e-15)
    assert mechanism.usefulness(2.0**-1074, d=2**50) == pytest.approx(4 * 1124 * np.log(2), rel=1e-15)


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_the_range_of_noise_has_its_ends(scale):
    assert LaplaceMechanism(scale, 1.0).noise_scale == scale
    outside = np.nextafter(scale, 0.0 if scale < 1 else np.inf)
    with pytest.raises(ValueError, match="noise must lie between 1e-300 and 1e300, got"):
        LaplaceMechanism(outside, 1.0)


def test_laplace_noise_is_laplace():
    release = LaplaceMechanism(2.0, 0.5).release(np.zeros(20_000), rng=np.random.default_rng(4))
    assert stats.kstest(release.estimate, stats.laplace(scale=4).cdf).pvalue > 1e-3
    assert np.all(release.noise_std == np.sqrt(2) * 4)


# --- Gaussian and elliptical ------------------------------------------------------------------------------------------


def test_gaussian_noise_is_calibrated():
    mechanism = GaussianMechanism(3.0, 1.0, 1e-6)
    assert mechanism.noise_std == 3 * analytic_noise_multiplier(1.0, 1e-6)
    noise = mechanism.release(np.zeros(20_000), rng=np.random.default_rng(4)).estimate
    assert stats.kstest(noise, stats.norm(scale=mechanism.noise_std).cdf).pvalue > 1e-3


def test_elliptical_error_is_equation_6():
    mechanism = EllipticalGaussianMechanism([1.0, 2.0, 5.0], 1.0, 1e-6)
    assert np.sum(mechanism.noise_std**2) == pytest.approx(mechanism.noise_multiplier**2 * 64, rel=1e-14)


@pytest.mark.parametrize("delta_x", [[1.0, 2.0, 5.0], [-1.0, 2.0, -5.0]])
def test_elliptical_noise_is_exactly_enough_for_the_worst_neighbour(delta_x):
    # Two Gaussians with means delta_x apart are as far apart as N(0, 1) and N(r, 1), r = |delta_x / noise_std|.
    mechanism = EllipticalGaussianMechanism([1.0, 2.0, 5.0], 0.7, 1e-5)
    distance = np.linalg.norm(np.array(delta_x) / mechanism.noise_std)
    assert gaussian_delta(0.7, 1 / distance) == pytest.approx(1e-5, rel=1e-12)


def test_equal_sensitivities_make_the_elliptical_mechanism_spherical():
    elliptical = EllipticalGaussianMechanism(np.full(4, 3.0), 1.0, 1e-6)
    np.testing.assert_allclose(elliptical.noise_std, GaussianMechanism(6.0, 1.0, 1e-6).noise_std, rtol=1e-14)


# --- Gaussian data ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", ["optimal", "expected_norm", "none", [1.0, 2.0, 3.0]])
def test_estimate_is_right_for_a_nonzero_center(scale):
    # With a clip probability so low that nothing is clipped, the estimate without noise is the sum itself.
    X = rows()
    release = data_mechanism(clip_probability=1e-12, scaling=scale).release(X, rng=Silent())
    np.testing.assert_allclose(release.estimate, X.sum(axis=0), rtol=1e-12)


def test_a_clipped_row_keeps_its_direction_and_loses_its_length():
    mechanism = data_mechanism(n=1, clip_probability=0.1)
    far = MU + 1e3 * SIGMA
    estimate = mechanism.release(far[None], rng=Silent()).estimate
    shortened = (estimate - MU) * mechanism.b
    assert np.linalg.norm(shortened) == pytest.approx(mechanism.clip_norm, rel=1e-12)
    long = (far - MU) * mechanism.b
    np.testing.assert_allclose(shortened / mechanism.clip_norm, long / np.linalg.norm(long))


def test_rows_whose_norm_is_beyond_the_largest_double_are_clipped():
    """`clip` shortens rows with entries 1.7e308 to the clip norm in their direction, also to a norm near 1e-100."""
    for scale in (1.0, 1e-100):
        mechanism = GaussianDataMechanism(np.full(4, scale), 100, 1.0, 1e-6, scaling="none")
        clipped = mechanism.clip([[1.7e308] * 4, [-1.7e308, 0.0, 0.0, 0.0], [0.1 * scale] * 4])
        expected = [[0.5] * 4, [-1.0, 0.0, 0.0, 0.0], [0.1 * scale / mechanism.clip_norm] * 4]
        np.testing.assert_allclose(clipped / mechanism.clip_norm, expected, rtol=1e-14)


def test_replacing_a_row_moves_the_scaled_sum_by_at_most_the_sensitivity():
    mechanism, X = data_mechanism(), rows()
    for far in (1e3, 1e160, 1e300):
        neighbors = [X.copy(), X.copy()]
        neighbors[0][7], neighbors[1][7] = MU + far, MU - far
        first, second = (mechanism.release(Y, rng=Silent()).estimate * mechanism.b for Y in neighbors)
        assert np.linalg.norm(first - second) == pytest.approx(2 * mechanism.clip_norm, rel=1e-9)


def test_noise_is_equation_9_and_private():
    mechanism = data_mechanism()
    expected = 2 * mechanism.clip_norm * mechanism.noise_multiplier / mechanism.b
    np.testing.assert_allclose(mechanism.noise_std, expected, rtol=1e-15)
    assert mechanism.error().noise == pytest.approx(np.sum(expected**2), rel=1e-14)
    assert gaussian_delta(1.0, mechanism.noise_multiplier) <= 1e-6


def test_noise_has_the_declared_spread():
    mechanism, X, rng = data_mechanism(n=2), rows(2), np.random.default_rng(11)
    quiet = mechanism.release(X, rng=Silent()).estimate
    draws = np.array([mechanism.release(X, rng=rng).estimate for _ in range(3000)])
    scores = (draws - quiet) / mechanism.noise_std
    assert stats.kstest(scores.ravel(), stats.norm.cdf).pvalue > 1e-3


def test_clipping_happens_as_often_as_declared():
    mechanism, n = data_mechanism(n=20_000, clip_probability=0.05), 20_000
    scaled = (rows(n) - MU) * mechanism.b
    clipped = np.sum(np.linalg.norm(scaled, axis=1) > mechanism.clip_norm)
    assert abs(clipped - 0.05 * n) < 4 * np.sqrt(0.05 * 0.95 * n)


def test_clip_norm_is_the_quantile():
    mechanism = data_mechanism(n=1000, scaling="optimal")
    assert mechanism.p == 1e-3
    assert mechanism.clip_norm**2 == pytest.approx(gx2.isf(1e-3, (mechanism.b * SIGMA) ** 2), rel=1e-13)
    np.testing.assert_array_equal(mechanism.b, scaling.optimal(SIGMA, 1e-3))
    np.testing.assert_array_equal(data_mechanism(n=1000).b, scaling.expected_norm(SIGMA))


@pytest.mark.parametrize("center", [0.0, MU, 1e6])
def test_adding_a_row_moves_sum_and_count_by_at_most_the_sensitivity(center):
    mechanism = data_mechanism(center=center, neighbors="add_remove")
    sensitivity = np.hypot(mechanism.clip_norm, mechanism.count_weight)
    far = mechanism.clip([[1e9, -3.0, 2.0], [0.1, 0.0, 0.0]])
    assert np.all(np.linalg.norm(far, axis=1) <= mechanism.clip_norm * (1 + 1e-15))
    std = sensitivity * mechanism.noise_multiplier
    assert gaussian_delta(mechanism.epsilon, std / sensitivity) <= mechanism.delta
    expected = std**2 * (mechanism.b**-2 + (mechanism.center / mechanism.count_weight) ** 2)
    assert mechanism.noise_std**2 == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize(("of", "pivot"), [("sum", MU), ("mean", SIGMA / 2)])
def test_count_has_its_best_share(of, pivot):
    """If the number of rows is private, `count_weight` is the weight with which the sum or mean gets the least noise.

    The number of rows, multiplied by this weight, is released together with the sum. With a weight that is 1 % larger
    or smaller, the noise variances, added up over the columns, are larger. `of` is "sum" or "mean". The noise of the
    number is multiplied by `pivot`: the center for "sum", and the declared distance of the mean from the center for
    "mean".
    """
    mechanism = data_mechanism(neighbors="add_remove", of=of)
    a, b, c = np.sum(mechanism.b**-2), np.sum(pivot**2), mechanism.clip_norm
    assert mechanism.error(mean=MU + pivot * (of == "mean")).noise == pytest.approx(
        mechanism.noise_multiplier**2 * (c**2 + mechanism.count_weight**2) * (a + b / mechanism.count_weight**2)
    )
    variances = [(c**2 + w**2) * (a + b / w**2) for w in mechanism.count_weight * np.array([1, 0.99, 1.01])]
    assert min(variances) == variances[0]
    assert mechanism.error().noise == pytest.approx(variances[0] * mechanism.noise_multiplier**2, rel=1e-13)


def test_count_costs_a_percent_where_the_sum_does_not_need_it():
    """With center 0, the noise variance of the sum for neighbors "add_remove" is 1.01 / 4 times that for "replace_one".

    The factor 1 / 4 is due to the fact that a replaced row can change the sum twice as much as an added one. The factor
    1.01 is due to the number of rows: for "add_remove" it is private, and it is released together with the sum,
    although the sum does not need it if the center is 0.
    """
    with_count = data_mechanism(center=0.0, neighbors="add_remove").error().noise
    assert with_count / data_mechanism(center=0.0).error().noise == pytest.approx(1.01 / 4, rel=1e-12)


def test_release_with_count_is_right_for_any_number_of_rows():
    mechanism = data_mechanism(n=500, neighbors="add_remove", clip_probability=1e-9)
    X = rows(n=321)
    release = mechanism.release(X, rng=Silent())
    assert release.count == 321
    assert release.estimate == pytest.approx(X.sum(axis=0), rel=1e-12)


@pytest.mark.slow
def test_noise_with_count_has_the_declared_spread():
    mechanism, X = data_mechanism(neighbors="add_remove", clip_probability=1e-9), rows()
    rng = np.random.default_rng(11)
    errors = np.array([mechanism.release(X, rng=rng).estimate - X.sum(axis=0) for _ in range(4000)])
    assert errors.std(axis=0) == pytest.approx(mechanism.noise_std, rel=0.05)


@pytest.mark.parametrize("clip_probability", [None, 0.02, "optimal"])
def test_confidence_region_covers(clip_probability):
    mechanism = data_mechanism(n=200, clip_probability=clip_probability)
    radius, rng, inside = mechanism.confidence_radius(0.9), np.random.default_rng(12), 0
    for _ in range(2000):
        X = rng.normal(MU, SIGMA, (200, 3))
        off = mechanism.release(X, rng=rng).estimate - X.sum(axis=0)
        inside += np.linalg.norm(mechanism.b * off) <= radius
    assert inside / 2000 >= 0.9 - 3 * np.sqrt(0.09 / 2000)


def test_confidence_radius_is_that_of_the_noise_where_nothing_is_clipped():
    mechanism = data_mechanism(clip_probability=1e-30)
    std = 2 * mechanism.clip_norm * mechanism.noise_multiplier
    assert mechanism.confidence_radius(0.95) == pytest.approx(std * stats.chi(3).isf(0.05), rel=1e-6)


@pytest.mark.parametrize("noise", ["gaussian", "l2"])
@pytest.mark.parametrize("count_clipped", [False, True])
def test_noise_and_clipping_together_exceed_the_radius_as_rarely_as_can_be_proved(noise, count_clipped):
    """The least bound of the probability of failure, over all ways to divide a confidence radius, is 1 - level.

    The error is at most the radius if the noise is at most t, and the deviation of what clipping removes from its mean
    is at most the rest of the radius. The law of the noise gives the probability of the first, and Markov's inequality
    bounds that of the second.
    """
    options = {"noise": noise, "count_clipped": count_clipped, "clip_probability": 0.2, "sigma_factor": 1.0}
    it = dataclasses.replace(data_mechanism(2000, center_std=0.5 * SIGMA, **options), epsilon=5.0)
    offset = 0.5 * it.b * SIGMA
    variance, squared_bias = forecast.clipping(it.b * SIGMA, 2000, np.ones(3), it.clip_norm, offset)
    left = it.confidence_radius(0.9) - np.sqrt(squared_bias)
    t, std = left * np.linspace(1e-4, 1 - 1e-4, 20_001), it.noise_std[0] * it.b[0]
    l2 = stats.gamma(it.noise_size, scale=std / np.sqrt(it.noise_size + 1))
    law = stats.chi(3, scale=std) if noise == "gaussian" else l2
    assert 0.099 <= np.min(law.sf(t) + variance / (left - t) ** 2) <= 0.1 * (1 + 1e-9)


def test_a_confidence_radius_grows_with_the_doubt_about_sigma():
    radii = [data_mechanism(sigma_factor=factor).confidence_radius(0.95) for factor in (1.0, 1.25, 2.0, 3.0)]
    assert np.all(np.diff(radii) > 0)


@pytest.mark.parametrize("exponent", [-300, 300])
def test_a_confidence_radius_has_the_unit_of_the_clip_norm(exponent):
    """If the units of `sigma` and `scaling` are both 2**`exponent` times as large, so are radius and clip norm.

    The squares of scaled rows are then no doubles.
    """
    ratios = []
    for unit in (1.0, 2.0**exponent):
        it = GaussianDataMechanism(SIGMA * unit, 100, 1.0, 1e-6, scaling=unit / SIGMA, clip_probability=0.3)
        ratios.append(it.confidence_radius(0.95) / it.clip_norm)
    assert ratios[1] == pytest.approx(ratios[0], rel=1e-12)


def test_no_confidence_radius_with_a_noisy_count():
    with pytest.raises(ValueError, match='neighbors must be "replace_one" for a confidence radius'):
        data_mechanism(neighbors="add_remove").confidence_radius(0.9)
    for options in ({"missing": "drop_row"}, {"per_person": 1}):
        with pytest.raises(ValueError, match="a confidence radius needs a public number of rows"):
            data_mechanism(**options).confidence_radius(0.9)


def test_forecast_names_a_bad_target_and_a_bad_mean():
    with pytest.raises(ValueError, match='target must be "sample" or "population", got \'mean\''):
        data_mechanism().error(target="mean")
    with pytest.raises(ValueError, match="mean must be a number or have the 3 entries of sigma"):
        data_mechanism().error(mean=[1.0, 2.0])


def test_blocks_views_and_lists_give_the_same_sum():
    mechanism, X = data_mechanism(), rows()
    whole = mechanism.release(X, rng=Silent()).estimate
    for same in (iter(np.array_split(X, 7)), np.asfortranarray(X), X.tolist(), np.repeat(X, 2, axis=0)[::2]):
        np.testing.assert_allclose(mechanism.release(same, rng=Silent()).estimate, whole, rtol=1e-13)


def test_large_data_are_read_in_blocks():
    X = np.ones((300_000, 3), dtype=np.float32)
    estimate = data_mechanism(n=300_000, center=1.0).release(X, rng=Silent()).estimate
    np.testing.assert_allclose(estimate, 300_000, rtol=1e-12)


def test_data_are_not_changed():
    X = rows()
    before = X.copy()
    data_mechanism(clip_probability=0.5).release(X, rng=np.random.default_rng(0))
    np.testing.assert_array_equal(X, before)


@pytest.mark.parametrize("rng", [None, np.random.default_rng(1)], ids=["secure", "simulated"])
@pytest.mark.parametrize(
    "mechanism",
    [GaussianMechanism(1, 1, 1e-6), GaussianMechanism(1, 1, 1e-6, noise="l2", d=1), LaplaceMechanism(1, 1)],
    ids=["gaussian", "l2", "laplace"],
)
@pytest.mark.parametrize("value", [5.0, 5, np.array(5.0)])
def test_estimate_and_noise_std_of_one_number_are_numbers(mechanism, rng, value):
    release = mechanism.release(value, rng=rng)
    assert type(release.estimate) is type(release.noise_std) is np.float64
    assert round(release.noise_std, 2) == pytest.approx(release.noise_std, abs=0.005)


def test_a_release_is_reproducible_and_says_that_it_is_simulated():
    mechanism, X = data_mechanism(), rows()
    first, second = (mechanism.release(X, rng=np.random.default_rng(5)) for _ in range(2))
    np.testing.assert_array_equal(first.estimate, second.estimate)
    assert first.simulated


def test_a_mechanism_cannot_be_changed():
    mechanism = data_mechanism()
    with pytest.raises(dataclasses.FrozenInstanceError):
        mechanism.epsilon = 2.0
    with pytest.raises(ValueError, match="read-only"):
        mechanism.noise_std[0] = 0.0


# --- A large delta ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("neighbors", ["replace_one", "add_remove"])
def test_a_delta_of_one_over_n_or_more_is_warned_of_where_it_was_given(neighbors):
    options = {"neighbors": neighbors, "clip_probability": 0.1}
    GaussianDataMechanism(SIGMA, 1000, 1.0, 0.999e-3, **options)
    for delta in (1e-3, 0.5):
        with pytest.warns(DeltaWarning, match=rf"^delta = {delta} is not below 1/n = 0\.001 for n = 1000: ") as warned:
            GaussianDataMechanism(SIGMA, 1000, 1.0, delta, **options)
        assert warned[0].filename == __file__


def test_a_delta_of_one_over_n_or_more_is_warned_of_by_the_adaptive_mechanism():
    adaptive = AdaptiveDataMechanism(1000, 0.1, radius=1.0, sigma_range=(0.1, 1.0))
    adaptive.epsilon(0.999e-3)
    with pytest.warns(DeltaWarning, match=r"^delta = 0\.001 is not below 1/n = 0\.001 for n = 1000: ") as warned:
        adaptive.epsilon(1e-3)
    assert warned[0].filename == __file__


# --- The number of clipped rows ---------------------------------------------------------------------------------------


class Seen:
    """Stand-in for noise: adding it to a number returns this number, and appends the number to the list `notes`."""

    def __init__(self, notes):
        self.notes = notes

    def __radd__(self, number):
        self.notes.append(number)
        return number


def joint(mechanism, X, monkeypatch):
    """Release `X` with noise 0, and return a tuple of three results.

    The results are the list of the integers to which noise is added, the standard deviation that the mechanism demands
    from the sampler of the noise, and the release.
    """
    notes, stds = [], []
    monkeypatch.setattr(samplers, "secure_gaussian", lambda std, size: stds.append(std) or [Seen(notes)] * size)
    release = mechanism.release(X)
    return notes, stds[0], release


def row(mechanism, length):
    """Return a row that lies in one fixed direction from the mechanism's center, or in the opposite direction.

    After scaling, its distance from the center is |`length`| times the clip norm of the `mechanism`. The sign of
    `length` chooses the direction.
    """
    return mechanism.center + length * mechanism.clip_norm * np.array([0.6, 0.0, 0.8]) / mechanism.b


def test_an_integer_sensitivity_is_never_rounded_down():
    """The root of a sum of squares of integers, which is a sensitivity, is at least exact, and hardly more.

    The integers have up to 109 bits, and many are next to the square of an integer.
    """
    draw = np.random.default_rng(1)
    roots = [int(bits) for bits in draw.integers(2**20, 2**53, 200)]
    squares = [root**2 + off for root in [*roots, 2**53 + 1, 2**54 + 3] for off in (-1, 0, 1, 2**9)]
    squares += [3 * root**2 for root in roots]
    for square in squares:
        found = Fraction(_root(square)) ** 2
        assert square <= found <= square * (1 + Fraction(1, 2**49))
    assert all(_root(root**2) == root for root in roots)


@pytest.mark.parametrize("center", [0.0, MU])
@pytest.mark.parametrize(
    ("neighbors", "one", "other"),
    [
        ("replace_one", [-1 + 1e-7], [1 + 1e-7]),
        ("replace_one", [-1e9], [1 - 1e-7]),
        ("add_remove", [0.1, 1 + 1e-7], [0.1]),
        ("add_remove", [], [-1e9]),
    ],
)
def test_noise_is_exactly_enough_for_sum_and_counts_of_the_worst_neighbours(neighbors, one, other, center, monkeypatch):
    """For the worst neighboring data sets, the noise is exactly as large as the change of sum and counts demands.

    `one` and `other` are the two data sets: each row is given by its scaled distance from `center`, divided by the clip
    norm. The counts are the number of clipped rows and, if `neighbors` is "add_remove", the number of rows. The scaled
    sum and the weighted counts are one vector, to which the noise is added. The demanded standard deviation is the norm
    of the change of this vector, times the noise multiplier. The noise has at least this standard deviation, and at
    most a relative 1e-6 more.
    """
    mechanism = data_mechanism(
        n=1, center=center, clip_probability=0.1, scaling=[1.0, 2.0, 3.0], neighbors=neighbors, count_clipped=True
    )
    vectors = []
    for lengths in (one, other):
        X = np.array([row(mechanism, length) for length in lengths]).reshape(-1, 3)
        vector, std, release = joint(mechanism, X, monkeypatch)
        vectors.append(vector)
        assert release.clipped == sum(abs(length) > 1 for length in lengths)
        assert release.count == (len(lengths) if neighbors == "add_remove" else None)
    square = sum((a - b) ** 2 for a, b in zip(*vectors, strict=True))
    assert square**0.5 * mechanism.noise_multiplier == pytest.approx(std, rel=1e-6)
    assert square * Fraction(mechanism.noise_multiplier) ** 2 <= Fraction(std) ** 2


@pytest.mark.slow
@pytest.mark.parametrize("neighbors", ["replace_one", "add_remove"])
def test_noise_of_the_number_of_clipped_rows_has_the_declared_spread(neighbors):
    mechanism = data_mechanism(clip_probability=0.05, neighbors=neighbors, count_clipped=True)
    X, rng = rows(), np.random.default_rng(11)
    quiet = mechanism.release(X, rng=Silent())
    longer = np.sum(np.linalg.norm((X - MU) * mechanism.b, axis=1) > mechanism.clip_norm)
    assert quiet.clipped == pytest.approx(longer, rel=1e-12)
    releases = [mechanism.release(X, rng=rng) for _ in range(3000)]
    scores = (np.array([release.estimate for release in releases]) - quiet.estimate) / mechanism.noise_std
    assert stats.kstest(scores.ravel(), stats.norm.cdf).pvalue > 1e-3
    scores = (np.array([release.clipped for release in releases]) - quiet.clipped) / mechanism.clipped_std
    assert stats.kstest(scores, stats.norm.cdf).pvalue > 1e-3
    secure = mechanism.release(X)
    assert abs(secure.clipped - quiet.clipped) < 6 * mechanism.clipped_std
    assert np.all(np.abs(secure.estimate - quiet.estimate) < 6 * mechanism.noise_std)


def test_simulated_noise_is_that_of_the_sum_and_the_number_together(monkeypatch):
    mechanism, stds = data_mechanism(count_clipped=True), []
    monkeypatch.setattr(samplers, "simulated_gaussian", lambda std, rng: stds.append(std) or 0 * std)
    mechanism.release(rows(), rng=Silent())
    np.testing.assert_allclose(stds[0][:3] / mechanism.b, mechanism.noise_std, rtol=1e-14)
    assert stds[0][3] / (2 * mechanism.clip_norm / 8) == pytest.approx(mechanism.clipped_std, rel=1e-14)


@pytest.mark.parametrize("neighbors", ["replace_one", "add_remove"])
def test_the_number_of_clipped_rows_costs_less_than_a_percent(neighbors):
    mechanism = data_mechanism(neighbors=neighbors, count_clipped=True)
    without = dataclasses.replace(mechanism, count_clipped=False)
    np.testing.assert_allclose(mechanism.noise_std / without.noise_std, np.sqrt(1 + 1 / 64), rtol=1e-14)
    assert mechanism.error().noise == pytest.approx(without.error().noise * (1 + 1 / 64), rel=1e-14)
    assert mechanism.clipped_std == pytest.approx(np.sqrt(65) * mechanism.noise_multiplier, rel=1e-14)
    assert without.clipped_std is None is without.release(rows(), rng=Silent()).clipped
    with pytest.raises(ValueError, match="ask for it by count_clipped=True"):
        without.excess_clipped(without.release(rows(), rng=Silent()))


@pytest.mark.parametrize(("d", "most"), [(1, 0.24), (10, 0.06), (100, 0.011)])
@pytest.mark.parametrize("noise", ["l2", "best"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
def test_l2_noise_grows_more_by_the_number_of_clipped_rows_the_fewer_columns_there_are(d, most, noise, epsilon):
    it = GaussianDataMechanism(np.ones(d), 10_000, epsilon, 1e-6, noise=noise, count_clipped=True)
    without = dataclasses.replace(it, count_clipped=False)
    assert it.noise_law == without.noise_law == "l2"
    assert most / 3 < it.noise_std[0] / without.noise_std[0] - 1 < most
    text = " ".join(inspect.getdoc(GaussianDataMechanism).split())
    assert "l2 noise by up to 24 percent for one column, by up to 6 percent for ten columns, and by about 1" in text


def test_confidence_radius_knows_the_price_of_the_number_of_clipped_rows():
    mechanism = data_mechanism(clip_probability=1e-30, count_clipped=True)
    without = dataclasses.replace(mechanism, count_clipped=False)
    price = mechanism.confidence_radius(0.95) / without.confidence_radius(0.95)
    assert price == pytest.approx(np.sqrt(1 + 1 / 64), rel=1e-6)


@pytest.mark.parametrize(
    ("declared", "offset", "factor"),
    [
        ({"center_std": 0, "sigma_factor": 1}, 0.0, 1.0),
        *slow(({}, 0.5, 1.25)),
        ({"center_std": [1.0, 0.0, 0.1]}, None, 1.25),
    ],
)
@pytest.mark.parametrize("neighbors", ["replace_one", "add_remove"])
def test_excess_is_a_standard_score_where_the_guesses_are_as_good_as_declared(neighbors, declared, offset, factor):
    """`excess_clipped`, the standardized number of clipped rows, is standard normal if guesses are as good as declared.

    The options `declared` say how good the guesses of mean and standard deviations are. The true mean is off its
    guess by `offset` standard deviations or, if `offset` is None, by as much as declared. The true standard
    deviations are the guessed ones times `factor`. `neighbors` is the neighbor relation of the mechanism.
    """
    mechanism = data_mechanism(n=3000, clip_probability=0.1, neighbors=neighbors, count_clipped=True, **declared)
    mean, rng = MU + (np.array([1.0, 0.0, 0.1]) if offset is None else offset * SIGMA), np.random.default_rng(4)
    releases = [mechanism.release(rng.normal(mean, factor * SIGMA, (3000, 3)), rng=rng) for _ in range(500)]
    assert stats.kstest([mechanism.excess_clipped(release) for release in releases], stats.norm.cdf).pvalue > 1e-3


def test_a_negative_noisy_number_of_rows_counts_as_none_for_the_excess():
    mechanism = data_mechanism(20, neighbors="add_remove", clip_probability=0.5, count_clipped=True)
    release = mechanism.release(rows(20), rng=np.random.default_rng(1))
    found = [mechanism.excess_clipped(dataclasses.replace(release, count=count)) for count in (-5.0, -0.1, 0.0)]
    assert found[0] == found[1] == found[2]


def excess(X, **arguments):
    """Release `X` by a GaussianDataMechanism with these `arguments`; return the standardized number of clipped rows."""
    mechanism = GaussianDataMechanism(**arguments)
    return mechanism.excess_clipped(mechanism.release(X, rng=np.random.default_rng(7)))


@pytest.mark.parametrize("narrow", [1e-10, 1e-60, 1e-95])
def test_excess_of_a_column_whose_spread_is_nothing_beside_its_offset(narrow):
    """If the declared error of a column makes every row too long, all rows are expected to be clipped."""
    options = {"sigma": [narrow, 1.0], "center_std": [100.0, 0.0], "n": 1000, "epsilon": 1.0, "delta": 1e-6}
    X = np.column_stack([np.full(1000, 100.0), np.random.default_rng(1).normal(size=1000)])
    assert abs(excess(X, scaling="none", count_clipped=True, **options)) < 4


def test_excess_shows_a_wrong_centre_a_wrong_spread_and_rows_of_one_entry():
    """`excess_clipped`, the standardized number of clipped rows, is above 10 for three wrong declarations.

    These are a wrong center, too small standard deviations, and rows that are far from normal. For normal rows that are
    as declared, it is below 3.
    """
    n, d = 40_000, 20
    rng = np.random.default_rng(6)
    options = {"n": n, "epsilon": 1.0, "delta": 1e-6, "count_clipped": True}
    X = rng.normal(size=(n, d))
    assert excess(X, sigma=np.ones(d), **options) < 3
    for wrong in ({"center": 2.0}, {"sigma": np.full(d, 0.5)}):
        arguments = {"sigma": np.ones(d)} | options | wrong
        assert excess(X, **arguments) > 10
    share = 1 / np.arange(1.0, d + 1) / np.sum(1 / np.arange(1.0, d + 1))
    groups = np.zeros((n, d))
    groups[np.arange(n), rng.choice(d, n, p=share)] = np.exp(rng.normal(0, 0.6, n))
    assert excess(groups, sigma=groups.std(axis=0), center=groups.mean(axis=0), **options) > 10


@pytest.mark.parametrize("options", [{"neighbors": "add_remove"}, {"missing": "drop_row"}])
def test_with_the_weight_for_the_mean_means_have_the_error_of_their_forecast_and_less(options):
    """If the center is far from 0, ``of="mean"`` makes means more accurate and sums less accurate than ``of="sum"``.

    With ``of="mean"``, n**2 times the mean squared error of 300 means of n rows is the forecast squared error, up to
    four standard errors.
    """
    n, rng, error = 1000, np.random.default_rng(5), {}
    X = rng.normal(2500 + 9, 18, (n, 1))
    for of in ("sum", "mean"):
        made = GaussianDataMechanism([18.0], n, 1.0, 1e-6, center=2500.0, of=of, **options)
        found = [made.release(X, rng=rng) for _ in range(300)]
        error[of] = [
            np.mean([(it.mean - X.mean()) ** 2 for it in found]),
            np.mean([(it.estimate - X.sum()) ** 2 for it in found]),
        ]
    assert n**2 * error["mean"][0] == pytest.approx(made.error(mean=X.mean()).total, rel=4 * np.sqrt(2 / 300))
    assert error["mean"][0] < error["sum"][0] / 5
    assert error["sum"][1] < error["mean"][1]


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 1}, "clip_probability must be given for n = 1"),
        ({"n": 2.5}, "n must be a whole number >= 1, got 2.5"),
        ({"n": 2**53 + 1}, "n must lie between 1 and 9007199254740992, got 9007199254740993"),
        ({"n": 1e160}, r"n must lie between 1 and 9007199254740992, got 1e\+160"),
        ({"center": [0.0, 1.0, 2.0]}, "center must be a number or have the 2 entries of sigma"),
        *(({"sigma": [1.0, far]}, r"^sigma\[1\] must lie between 1e-100 and 1e\+100") for far in (0.9e-100, 1.1e100)),
        *(({"scaling": [1.0, far]}, r"^scaling\[1\] must lie between 1e-100 and 1e\+1") for far in (0.9e-100, 1.1e100)),
        *(({"center": far}, r"^center must lie between -1e\+100 and 1e\+100, got ") for far in (-1.1e100, 1.1e100)),
        (
            {"sigma": [1.0, 1e80], "scaling": [1.0, 1e80], "clip_probability": "optimal"},
            r"^sigma \* scaling\[1\] must lie between 1e-140 and 1e\+140, got 1e\+160",
        ),
        ({"scaling": "best"}, "scaling must be \"optimal\", .* got 'best'"),
        ({"scaling": [1.0]}, "scaling must have the 2 entries of sigma, got 1"),
        ({"clip_probability": "best"}, "clip_probability must be \"optimal\" or a number, got 'best'"),
        ({"neighbors": "add"}, 'neighbors must be "replace_one" or "add_remove", got \'add\''),
        ({"of": "median"}, 'of must be "sum" or "mean", got .median.'),
    ],
)
def test_bad_options_are_named(options, message):
    arguments = {"sigma": [1.0, 2.0], "n": 10, "epsilon": 1.0, "delta": 1e-6, **options}
    with pytest.raises(ValueError, match=message):
        GaussianDataMechanism(**arguments)


@pytest.mark.parametrize("rng", [7, np.random.RandomState(0)])
def test_noise_needs_a_generator(rng):
    for mechanism, value in [
        (LaplaceMechanism(1.0, 1.0), 1.0),
        (GaussianMechanism(1.0, 1.0, 1e-6), 1.0),
        (EllipticalGaussianMechanism(SIGMA, 1.0, 1e-6), MU),
        (data_mechanism(), rows()),
    ]:
        with pytest.raises(TypeError, match=r"rng must be a numpy\.random\.Generator"):
            mechanism.release(value, rng=rng)


def test_noise_is_secure_unless_a_generator_is_given():
    for mechanism in (LaplaceMechanism(1.0, 1.0), GaussianMechanism(1.0, 1.0, 1e-6)):
        assert not mechanism.release(0.0).simulated
        assert mechanism.release(0.0, rng=np.random.default_rng(0)).simulated


# --- What was asked for ----------------------------------------------------------------------------------------------

ASKED = [
    LaplaceMechanism(1.0, 1.0),
    GaussianMechanism(1.0, 1.0, 1e-6),
    EllipticalGaussianMechanism(SIGMA, 1.0, 1e-6),
    GaussianDataMechanism(SIGMA, 500, 1.0, 1e-6, center=MU),
    GaussianDataMechanism(SIGMA, 500, 1.0, 1e-6, clip_probability="optimal", scaling=[1.0, 2.0, 3.0]),
    GaussianDataMechanism(SIGMA, 500, 1.0, 1e-6, center=4.0, clip_probability=0.2, scaling="none"),
    GaussianDataMechanism(dict(zip("abc", SIGMA, strict=True)), 500, 1.0, 1e-6, count_clipped=True),
]
CHANGES = {"n": 10_000, "epsilon": 2.0, "delta": 1e-9}


@pytest.mark.parametrize("mechanism", ASKED, ids=repr)
@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_mechanism_is_one_that_was_made_so(mechanism, name):
    """A copy of `mechanism` by `dataclasses.replace` with one new parameter equals one that the constructor makes.

    `name` is the parameter: n, epsilon or delta. Everything that follows from the parameters is computed again.
    """
    wishes = {wish.name: getattr(mechanism, wish.name) for wish in dataclasses.fields(mechanism) if wish.init}
    if name not in wishes:
        return
    changed = dataclasses.replace(mechanism, **{name: CHANGES[name]})
    made = type(mechanism)(**wishes | {name: CHANGES[name]})
    assert changed == made != mechanism
    for field in dataclasses.fields(mechanism):
        np.testing.assert_array_equal(getattr(changed, field.name), getattr(made, field.name))


def test_more_rows_are_clipped_more_rarely_and_a_longer_sigma_keeps_a_centre_for_all():
    mechanism = GaussianDataMechanism(SIGMA, 500, 1.0, 1e-6, center=4.0)
    more = dataclasses.replace(mechanism, n=100_000)
    assert (mechanism.p, more.p) == (1 / 500, 1 / 100_000)
    assert mechanism.clip_probability is None is more.clip_probability
    longer = dataclasses.replace(mechanism, sigma=np.ones(7))
    assert longer.b.shape == (7,)
    assert longer.center == 4.0


@pytest.mark.parametrize("mechanism", ASKED, ids=repr)
def test_a_mechanism_is_what_its_repr_says_and_survives_a_pickle(mechanism):
    same = eval(repr(mechanism), {**mechanisms.__dict__, "array": np.array})
    stored = pickle.loads(pickle.dumps(mechanism))
    for other in (same, stored, copy.deepcopy(mechanism)):
        assert other == mechanism
        assert hash(other) == hash(mechanism)
        for field in dataclasses.fields(mechanism):
            np.testing.assert_array_equal(getattr(other, field.name), getattr(mechanism, field.name))
            if isinstance(array := getattr(other, field.name), np.ndarray):
                assert not array.flags.writeable
    assert len({same, stored, mechanism}) == 1


def test_what_is_equal_was_asked_for_the_same():
    mechanism = GaussianDataMechanism(SIGMA, 500, 1.0, 1e-6)
    assert mechanism == GaussianDataMechanism(list(SIGMA), 500.0, 1, 1e-6)
    given = GaussianDataMechanism(SIGMA, 500, 1.0, 1e-6, clip_probability=1 / 500)
    assert mechanism != given  # unchanged until n changes
    assert mechanism != GaussianDataMechanism(SIGMA, 500, 1.0, 1e-6, scaling=mechanism.b)
    assert mechanism != GaussianMechanism(1.0, 1.0, 1e-6) != 3


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        ("people.csv", TypeError, "X must be a real number or an array of real numbers, got an object of type str"),
        (None, TypeError, "X must be a real number or an array of real numbers, got an object of type NoneType"),
        (Unread(500, 3, dtype=object), TypeError, "X must be a real number or an array of real numbers"),
        (np.full((500, 3), "a"), TypeError, "X must be a real number or an array of real numbers"),
        (Unread(500, 2), ValueError, r"X must have shape \(rows, 3\), got \(500, 2\)"),
        (Unread(500), ValueError, r"X must have shape \(rows, 3\), got \(500,\)"),
        (Unread(499, 3), ValueError, "X must have the declared n = 500 rows, got 499"),
        ([[1.0, 2.0, 3.0]], ValueError, "X must have the declared n = 500 rows, got 1"),
    ],
)
def test_what_everybody_sees_is_checked_without_reading(X, error, message):
    """The method `check` refuses the data `X` because of their type, shape or number of rows, and reads no values.

    Type, shape and number of rows are public. `error` and `message` are the expected error and its text.
    """
    with pytest.raises(error, match=message):
        data_mechanism().check(X)


def test_what_may_be_right_passes_unread():
    """The method `check` of a mechanism accepts data whose type and shape are allowed, because it reads no values.

    So it accepts NaN, and lists of texts, which only `release` refuses. The type or shape of some data is known only
    when they are read; these are accepted, too.
    """
    mechanism = data_mechanism()
    for X in (Unread(500, 3), Unread(np.nan, 3), np.full((500, 3), np.nan), [["a"] * 3] * 500, iter([])):
        mechanism.check(X)
    dataclasses.replace(mechanism, neighbors="add_remove").check(Unread(7, 3))
    for mechanism in ASKED[:2]:
        mechanism.check(Unread(3, 4))
        mechanism.check(3)
    with pytest.raises(ValueError, match=r"value must have shape \(3,\), got \(4,\)"):
        ASKED[2].check(Unread(4))


def test_the_numbers_in_a_list_of_lists_are_counted_for_the_cost_of_integer_noise():
    mechanism, value = GaussianMechanism(1.0, 30.0, 1e-9), [[0.0] * 50] * 2
    for act in (mechanism.check_noise, mechanism.release):
        with pytest.raises(ValueError, match=r"^epsilon = 30\.0 and delta = 1e-09: integer noise would add"):
            act(value)


@pytest.mark.parametrize("p", [0.5, 0.9])
def test_excess_of_clipped_rows_counts_the_noise_of_the_number_of_rows(p):
    """`excess_clipped`, the standardized number of clipped rows, has standard deviation 1 for normal rows.

    The number of rows is private here, and its noise is large, because a sum with the center 0 does not need it. `p` is
    the declared probability that a row is clipped. The tolerance is four standard errors of 200 releases.
    """
    options = {"clip_probability": p, "neighbors": "add_remove", "count_clipped": True}
    mechanism = GaussianDataMechanism(SIGMA, 200, 1.0, 1e-6, center_std=0.0, sigma_factor=1.0, **options)
    rng = np.random.default_rng(8)
    excess = [mechanism.excess_clipped(mechanism.release(rows(200, i) - MU, rng=rng)) for i in range(200)]
    assert np.std(excess) == pytest.approx(1, abs=4 / np.sqrt(2 * 200))


@pytest.mark.parametrize(("sigma", "b"), [(1e-80, 5e-84), (1e-80, 1e-84), (1e55, 1e100), (1e-100, 1e100)])
def test_noise_has_the_units_of_the_data_for_any_scaling(sigma, b):
    expected = GaussianDataMechanism([1.0, 2.0], 1000, 1.0, 1e-6, scaling=[1.0, 1.0]).noise_std
    found = GaussianDataMechanism([sigma, 2 * sigma], 1000, 1.0, 1e-6, scaling=[b, b]).noise_std
    np.testing.assert_allclose(found / sigma, expected, rtol=1e-12)


@pytest.mark.parametrize(
    "mechanism", [GaussianMechanism(1, 1, 1e-6), LaplaceMechanism(1, 1)], ids=["Gaussian", "Laplace"]
)
def test_an_array_without_entries_is_released(mechanism):
    for rng in (None, np.random.default_rng(1)):
        assert mechanism.release(np.zeros((0, 3)), rng=rng).estimate.shape == (0, 3)
