"""Secure releases: integers whose sensitivity is exact, noise that is what it says, and what rounding costs."""

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from egm import EllipticalGaussianMechanism, GaussianDataMechanism, GaussianMechanism, LaplaceMechanism, noise
from egm.calibration import analytic_noise_multiplier, gaussian_delta
from egm.lattice import Lattice, gaussian_std, rounded

SIGMA, MU = np.array([2.0, 1.0, 0.25]), np.array([10.0, -4.0, 0.5])
finite_floats = st.floats(allow_nan=False, allow_infinity=False)


@pytest.fixture
def silent(monkeypatch):
    """Secure noise of zero, so that what it is added to can be seen; the standard deviations that were asked for."""
    stds = []
    monkeypatch.setattr(noise, "secure_gaussian", lambda std, size: stds.append(std) or [0] * size)
    return stds


def mechanism(n=500, **options):
    return GaussianDataMechanism(SIGMA, n, 1.0, 1e-6, **{"center": MU, **options})


def rows(n=500, seed=3):
    return np.random.default_rng(seed).normal(MU, SIGMA, (n, 3))


# --- Rows as integers -------------------------------------------------------------------------------------------------


def length(row):
    """Squared norm of an integer vector, without rounding."""
    return sum(int(entry) ** 2 for entry in row)


@given(st.lists(finite_floats, min_size=3, max_size=3), st.floats(1e-50, 1e50))
def test_no_row_is_longer_than_the_radius(row, clip_norm):
    grid = Lattice(clip_norm, 3, 8.0)
    (t,) = grid.rows(np.array([row]))
    assert length(t) <= grid.radius**2


@pytest.mark.parametrize("d", [1, 2, 100, 10_000])
def test_clipped_rows_fill_the_radius_and_never_exceed_it(d):
    """Rows just at the clip norm are where a rounding error would show."""
    rng, grid = np.random.default_rng(d), Lattice(0.7, d, 8.0)
    Y = rng.normal(size=(200, d))
    Y *= 0.7 / np.linalg.norm(Y, axis=1)[:, None] * np.exp(rng.choice([0.0, 1e-15, 1e-12, 1.0], (200, 1)))
    lengths = [math.isqrt(length(t)) for t in grid.rows(Y)]
    assert max(lengths) <= grid.radius
    assert min(lengths) >= grid.radius * (1 - 1e-9) - math.sqrt(d)


def test_rounding_is_towards_zero():
    grid = Lattice(1.0, 2, 8.0)
    t = grid.rows(np.array([[0.3, -0.3], [-0.9, 0.1]]))
    assert np.all(np.abs(t) * grid.unit <= np.abs([[0.3, -0.3], [-0.9, 0.1]]))
    assert t * grid.unit == pytest.approx(np.array([[0.3, -0.3], [-0.9, 0.1]]), abs=2 * grid.unit)


def test_order_and_blocks_do_not_matter(silent):
    """Bit for bit: the sum is one of integers."""
    X = rows()
    cuts = np.split(X, [1, 7, 400])
    sums = [mechanism().release(Y).estimate for Y in (X, X[::-1], np.asfortranarray(X), iter(cuts), iter(cuts[::-1]))]
    assert all(np.array_equal(total, sums[0]) for total in sums)


def test_the_sum_is_that_of_the_clipped_rows(silent):
    X, it = rows(), mechanism()
    expected = it.clip((X - MU) * it.b).sum(axis=0) / it.b + 500 * MU
    assert it.release(X).estimate == pytest.approx(expected, rel=1e-9)


def test_worst_neighbours_are_as_far_apart_as_the_noise_assumes(silent):
    """Two rows on opposite sides: 2 K, for which the noise has (1, 1e-6)-privacy."""
    it = mechanism(n=1, clip_probability=0.002)
    grid = Lattice(it.clip_norm, 3, 2 * it.noise_multiplier)
    near, far = (grid.rows(np.array([[s * 1e30, 0.0, 0.0]])) for s in (1, -1))
    distance = math.sqrt(length(near[0] - far[0]))
    it.release(MU[None])
    assert distance <= 2 * grid.radius
    assert distance == pytest.approx(2 * grid.radius, rel=1e-9)
    assert gaussian_delta(1.0, silent[0] / distance) <= 1e-6
    assert silent[0] / distance == pytest.approx(analytic_noise_multiplier(1.0, 1e-6), rel=1e-9)


# --- Values as integers -----------------------------------------------------------------------------------------------


@given(st.lists(finite_floats, min_size=2, max_size=2), st.floats(1e-30, 1e30))
def test_values_are_rounded_to_the_nearest_unit(value, unit):
    for v, steps in zip(value, rounded(np.array(value), np.full(2, unit)), strict=True):
        assert abs(Fraction(v) / Fraction(unit) - steps) <= Fraction(1, 2)


@given(st.floats(-1e9, 1e9), st.floats(-1, 1))
def test_rounding_adds_at_most_one_to_a_sensitivity(value, step):
    unit = 2.0**-40
    (t,), (u,) = (rounded(np.array([v]), np.array([unit])) for v in (value, value + step))
    assert abs(t - u) <= abs(Fraction(value + step) - Fraction(value)) / Fraction(unit) + 1


@pytest.mark.parametrize(
    "it",
    [GaussianMechanism(3.0, 1.0, 1e-6), EllipticalGaussianMechanism([1.0, 2.0, 3.0], 1.0, 1e-6)],
    ids=["Gaussian", "elliptical"],
)
def test_vectors_survive_the_lattice(it, silent):
    value = np.array([1e6, -2.5, 1e-3])
    release = it.release(value)
    assert release.estimate == pytest.approx(value, abs=1e-9)
    assert release.noise_std == pytest.approx(np.broadcast_to(it.noise_std, 3), rel=1e-9)
    assert not release.simulated


# --- Noise ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("s", [0.25, 0.5, 1, 2, 3, 5, 10, 30])
def test_discrete_gaussian_is_six_times_as_close_to_a_rounded_one_as_is_charged(s):
    """Total variation, summed at 30 digits."""
    with mp.workdps(30):
        k = range(-int(40 * s), int(40 * s) + 1)
        weights = [mp.e ** (-(mp.mpf(j) ** 2) / (2 * s**2)) for j in k]
        total = mp.fsum(weights)
        rounded_normal = [mp.ncdf((j + 0.5) / s) - mp.ncdf((j - 0.5) / s) for j in k]
        distance = mp.fsum(abs(w / total - r) for w, r in zip(weights, rounded_normal, strict=True)) / 2
    assert distance <= 1 / (24 * s**2)


def test_rounding_is_charged():
    """With units so coarse that it matters, the noise is larger; with no room left, an error says so."""
    plain = float(analytic_noise_multiplier(1.0, 1e-6)) * 2**9
    assert gaussian_std(2**9, 1, 1.0, 1e-6) > plain * (1 + 1e-3)
    charge = (1 + math.e) / (4 * plain**2)
    assert gaussian_delta(1.0, gaussian_std(2**9, 1, 1.0, 1e-6) / 2**9) <= 1e-6 - charge * 0.99
    with pytest.raises(ValueError, match=r"rounding would cost .* of delta"):
        gaussian_std(2**9, 100, 1.0, 1e-6)
    with pytest.raises(ValueError, match="for 64-bit integers"):
        Lattice(1.0, 3, 2.0**40)


def test_secure_noise_has_the_declared_spread():
    X, it = rows(), mechanism()
    errors = np.array([it.release(X).estimate - X.sum(axis=0) for _ in range(1500)])
    assert errors.std(axis=0) == pytest.approx(it.noise_std, rel=0.1)
    assert not it.release(X).simulated


def test_secure_laplace_release_has_the_declared_spread():
    it = LaplaceMechanism(1.0, 0.5)
    releases = [it.release(3.0) for _ in range(3000)]
    assert np.std([r.estimate for r in releases]) == pytest.approx(releases[0].noise_std, rel=0.1)
    assert releases[0].noise_std == pytest.approx(math.sqrt(2) * 2, rel=1e-9)


def test_secure_count_is_released_with_the_sum():
    it, X = mechanism(neighbors="add_remove"), rows(321)
    releases = [it.release(X) for _ in range(1000)]
    assert np.std([r.estimate for r in releases], axis=0) == pytest.approx(it.noise_std, rel=0.12)
    counts = [r.count for r in releases]
    assert abs(np.mean(counts) - 321) < 5 * np.std(counts) / math.sqrt(1000)


def test_simulation_warns_once(monkeypatch):
    noise._warn.cache_clear()
    with pytest.warns(noise.SimulationWarning, match="it protects nobody"):
        mechanism().release(rows(), rng=np.random.default_rng(1))
    mechanism().release(rows(), rng=np.random.default_rng(1))


# --- Much noise -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [1e-3, 1e-6, 1e-8, 1e-9])
def test_noise_is_never_cut_off_by_64_bits(epsilon, monkeypatch):
    """The unit grows with the noise, whose tail beyond 2**63 would otherwise give the value away."""
    asked = []
    monkeypatch.setattr(noise, "secure_gaussian", lambda std, size: asked.append(std) or [0] * size)
    monkeypatch.setattr(noise, "secure_laplace", lambda scale, size: asked.append(16 * scale) or [0] * size)
    LaplaceMechanism(1.0, epsilon).release(0.3)
    GaussianMechanism(3.0, epsilon, 1e-9).release(np.ones(4))
    EllipticalGaussianMechanism([1.0, 5.0], epsilon, 1e-9).release([0.0, 1.0])
    for options in ({}, {"center": 1e3, "neighbors": "add_remove"}):
        GaussianDataMechanism(SIGMA, 5, epsilon, 1e-9, **options).release(np.ones((5, 3)))
    assert max(asked) <= 2.0**58


def test_noise_that_64_bits_would_cut_off_is_refused():
    with pytest.raises(ValueError, match=r"noise must be at most 2\*\*36 times the sensitivity"):
        GaussianMechanism(1.0, 1e-13, 1e-15).release(0.0)
    with pytest.raises(ValueError, match="std must be at most"):
        noise.secure_gaussian(2.0**59, 1)
    with pytest.raises(ValueError, match="scale must be at most"):
        noise.secure_laplace(2.0**55, 1)


def test_the_charge_is_not_lost_in_rounding():
    """Less delta is left for the noise than was given, however small the charge."""
    std = gaussian_std(2.0**41, 1, 1.0, 1e-6)
    assert gaussian_delta(1.0, std / 2.0**41) < 1e-6
