"""Test secure releases: rows become integer vectors of bounded norm, and get integer noise that is large enough."""

import itertools
import math
import re
from fractions import Fraction
from functools import partial

import mpmath as mp
import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from egm import (
    EllipticalGaussianMechanism,
    GaussianDataMechanism,
    GaussianMechanism,
    GroupedDataMechanism,
    LaplaceMechanism,
    audit,
    samplers,
)
from egm._rows import lattice
from egm._rows.lattice import Lattice, gaussian_std, rounded
from egm._validate import exact
from egm.calibration import analytic_noise_multiplier, gaussian_delta
from tests.egm.doubles import Unread

SIGMA, MU = np.array([2.0, 1.0, 0.25]), np.array([10.0, -4.0, 0.5])
finite_floats = st.floats(allow_nan=False, allow_infinity=False)


def mechanism(n=500, **options):
    return GaussianDataMechanism(SIGMA, n, 1.0, 1e-6, **{"center": MU, **options})


def rows(n=500, seed=3):
    return np.random.default_rng(seed).normal(MU, SIGMA, (n, 3))


# --- Rows as integers -------------------------------------------------------------------------------------------------


def length(row):
    """Return the squared norm of the integer vector `row`, computed exactly with Python integers."""
    return sum(int(entry) ** 2 for entry in row)


@given(st.lists(finite_floats, min_size=3, max_size=3), st.floats(1e-50, 1e50))
def test_no_row_is_longer_than_the_radius(row, clip_norm):
    grid = Lattice(clip_norm, 3, 8.0)
    (t,) = grid.rows(np.array([row]))
    assert length(t) <= grid.radius**2


@pytest.mark.parametrize("d", [1, 2, 100, 10_000])
def test_clipped_rows_fill_the_radius_and_never_exceed_it(d):
    """`Lattice.rows` turns rows whose norm is at least the clip norm into integer vectors of norm at most `radius`.

    `radius` is an attribute of the lattice. The norms are also at least (1 - 1e-9) `radius` - sqrt(`d`), because
    rounding towards zero changes each of the `d` entries by less than 1.
    """
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
    """Without noise, a release is bit for bit the same for any order of the rows and any division into blocks.

    The reason is that the rows are rounded to integers before they are added.
    """
    X = rows()
    cuts = np.split(X, [1, 7, 400])
    sums = [mechanism().release(Y).estimate for Y in (X, X[::-1], np.asfortranarray(X), iter(cuts), iter(cuts[::-1]))]
    assert all(np.array_equal(total, sums[0]) for total in sums)


def test_a_sum_is_exact_also_where_not_every_integer_is_a_double():
    """`Lattice.sum` is exact for 2**14 rows, although the sum is above 2**53, where doubles are 2 apart.

    Each row becomes an integer slightly below 2**40. The sum is compared with that of 16 smaller sums.
    """
    X = 1 - np.random.default_rng(1).integers(0, 2**20, (2**14, 1)) * 2.0**-40
    grid = Lattice(1.0, 1, 2.0)
    assert int(grid.sum(X)[0]) == sum(int(grid.sum(part)[0]) for part in np.split(X, 16)) > 2**53


@pytest.mark.parametrize("number", [10, 2**20 + 1, 2**31])
def test_rows_are_added_in_parts_whose_sums_fit_into_64_bits(number):
    parts = lattice._parts(number, 3, 8, lattice._MOST)
    assert sum(map(len, parts)) == number
    assert max(map(len, parts)) * Lattice(1.0, 3, 8.0).radius < 2**62


def test_the_sum_is_that_of_the_clipped_rows(silent):
    X, it = rows(), mechanism()
    expected = it.clip((X - MU) * it.b).sum(axis=0) / it.b + 500 * MU
    assert it.release(X).estimate == pytest.approx(expected, rel=1e-9)


def test_worst_neighbours_are_as_far_apart_as_the_noise_assumes(silent):
    """Two clipped rows in opposite directions become integer vectors whose distance is nearly 2 `radius`, but not more.

    `radius` is the largest norm of the integer vector of a row. For this distance, the noise of a secure release
    gives exactly the promised privacy.
    """
    it = mechanism(n=1, clip_probability=0.002)
    grid = Lattice(it.clip_norm, 3, 2 * it.noise_multiplier)
    near, far = (grid.rows(np.array([[s * 1e30, 0.0, 0.0]])) for s in (1, -1))
    distance = math.sqrt(length(near[0] - far[0]))
    it.release(MU[None])
    assert distance <= 2 * grid.radius
    assert distance == pytest.approx(2 * grid.radius, rel=1e-9)
    ((std, _),) = silent
    assert gaussian_delta(1.0, std / distance) <= 1e-6
    assert std / distance == pytest.approx(analytic_noise_multiplier(1.0, 1e-6), rel=1e-9)


def awkward(kind, d, clip_norm, rng):
    """Return 120 rows of `d` entries that provoke rounding errors, shape (120, `d`); `kind` says in which way.

    For some kinds the norms of the rows are very near to `clip_norm`. `rng` draws the rows.
    """
    n, directions = 120, rng.normal(size=(120, d))
    directions /= np.linalg.norm(directions, axis=1)[:, None]
    if kind == "any bits":
        bits = rng.integers(0, 2**64, (n, d), dtype=np.uint64).view(float)
        return np.where(np.isfinite(bits), bits, 0.0)
    if kind == "special":
        return rng.choice([0.0, -0.0, 5e-324, 1e-308, 1e-160, 1e-140, 1e154, 1.7e308, -1.7e308, clip_norm], (n, d))
    if kind == "any size":
        return directions * 10.0 ** rng.uniform(-320, 300, (n, d))
    if kind == "at the clip norm":
        return directions * (clip_norm * (1 + rng.integers(-4, 5, (n, 1)) * 2.0**-52))
    if kind == "one entry":
        return np.eye(d)[rng.integers(0, d, n)] * np.nextafter(clip_norm, rng.choice([0.0, np.inf], (n, 1)))
    if kind == "equal entries":
        return np.tile(clip_norm / math.sqrt(d) * (1 + rng.integers(-4, 5, (n, 1)) * 2.0**-52), d)
    return directions * rng.choice([1e-141, 1e-139, 9e149, 1.1e150], (n, 1))  # where norms need more care


KINDS_OF_ROWS = "any bits", "special", "any size", "at the clip norm", "one entry", "equal entries", "thresholds"


@pytest.mark.parametrize("d", [1, 2, 3, 17, 200])
@pytest.mark.parametrize("kind", KINDS_OF_ROWS)
def test_awkward_rows_are_never_longer_and_add_up_in_any_order(kind, d):
    """Rows that provoke rounding errors become integer vectors of norm at most `Lattice.radius`.

    The sum of the integer vectors is exact, and does not depend on the rows' order or layout in memory. `kind` says
    how the rows provoke rounding errors, and `d` is the number of their entries.
    """
    rng = np.random.default_rng([d, KINDS_OF_ROWS.index(kind)])
    for clip_norm in (1.0, 1e-249, 1e249, 0.1):
        grid, rows = Lattice(clip_norm, d, 8.0), awkward(kind, d, clip_norm, rng)
        single = grid.rows(rows)
        assert max(length(t) for t in single.tolist()) <= grid.radius**2
        total = single.astype(object).sum(axis=0)
        shifted = np.zeros((rows.size + 1,))[1:].reshape(rows.shape)
        shifted[:] = rows
        for same in (rows, rng.permutation(rows), rows[::-1], np.asfortranarray(rows), shifted):
            assert np.array_equal(grid.sum(same), total)
        assert np.array_equal(sum(grid.sum(part) for part in np.split(rows, [1, 6, 50])), total)


@pytest.mark.parametrize("scale", [1.0, 1e-90, 1e90])
@pytest.mark.parametrize("kind", KINDS_OF_ROWS)
def test_awkward_rows_of_groups_are_never_longer_and_add_up_in_their_groups(kind, scale):
    """The sums of groups have the integer vectors of a sum of all rows, also for rows that provoke rounding errors.

    The vectors have a norm of at most `Lattice.radius`, and nearly this norm if a row is longer than the clip norm. The
    rows are multiplied by `scale`, so that some become infinite and some become zero in doubles. `kind` says how the
    rows provoke rounding errors. A row of the group -1 is left out.
    """
    rng = np.random.default_rng([7, KINDS_OF_ROWS.index(kind)])
    for clip_norm in (1.0, 1e-200, 1e200):
        grid, rows = Lattice(clip_norm, 3, 8.0), awkward(kind, 3, clip_norm / scale, rng)
        single, codes = grid.rows(rows, 0.0, scale).astype(object), rng.integers(-1, 2, len(rows))
        lengths = [length(t) for t in single.tolist()]
        assert max(lengths) <= grid.radius**2
        exact = [sum((Fraction(entry) * Fraction(scale)) ** 2 for entry in row) for row in rows.tolist()]
        long = [square > (Fraction(clip_norm) * (1 + Fraction(1, 10**9))) ** 2 for square in exact]
        assert all(math.isqrt(found) > grid.radius * (1 - 1e-6) for found in itertools.compress(lengths, long))
        assert np.array_equal(grid.sum(rows, 0.0, scale), single.sum(axis=0))
        totals, numbers = grid.sum_by_group(rows, codes, 2, 0.0, scale)
        for group in range(2):
            assert np.array_equal(totals[group], single[codes == group].sum(axis=0))
            assert numbers[group] == np.sum(codes == group)


@pytest.mark.parametrize("clip_norm", [0.0, 9e-251, 1.1e250, math.inf, math.nan])
def test_a_clip_norm_whose_unit_would_lose_digits_is_refused(clip_norm):
    with pytest.raises(ValueError, match=r"^clip_norm must"):
        Lattice(clip_norm, 3, 8.0)


@pytest.mark.parametrize("center", [0.0, 1e3])
def test_noise_for_an_unknown_number_of_rows_depends_on_no_data(center, silent, monkeypatch):
    """If the number of rows is private, a release has the same noise for any number of rows, even for no rows.

    The noise is enough for the joint release of the number of rows and the sums of three columns. `center` is that
    of the mechanism, in each column.
    """
    it = mechanism(neighbors="add_remove", center=center)
    grids, right = [], Lattice.__init__
    monkeypatch.setattr(Lattice, "__init__", lambda grid, *given: right(grid, *given) or grids.append(grid))
    releases = [it.release(1e3 * rows(n, seed=n)) for n in (0, 1, 2, 17, 2000)]
    assert [release.count for release in releases] == [0, 1, 2, 17, 2000]
    assert len({release.noise_std.tobytes() for release in releases}) == 1
    ((std, size),) = set(silent)
    assert size == 4
    grid = grids[0]
    weight = round(it.count_weight / grid.unit)
    needed = (grid.radius**2 + weight**2) * Fraction(it.noise_multiplier) ** 2
    assert Fraction(std) ** 2 >= needed


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


# --- Integers and long doubles ----------------------------------------------------------------------------------------

LONG = [2**53, 2**62] if np.finfo(np.longdouble).nmant > 60 else []
FAR = [2**53, 2**62, 2**63 - 2, 2**64 - 2, 2**70, 1_700_000_000_000_000_128]  # the last one: nanoseconds since 1970


@pytest.fixture
def handed(silent, monkeypatch):
    """Replace secure noise by zeros, and return a list that records the integers to which noise is added.

    Each release appends a list of its integers.
    """
    lists = []
    monkeypatch.setattr(lattice, "rounded", lambda *given: lists.append(rounded(*given)) or lists[-1])
    monkeypatch.setattr(samplers, "secure_laplace", lambda scale, size: [0] * size)
    return lists


@given(
    st.one_of(st.sampled_from(FAR), st.integers(-(2**80), 2**80)),
    st.integers(-3, 3),
    st.integers(20, 40).map(lambda bits: 2.0**-bits),
)
def test_integers_of_any_size_move_by_what_they_differ(value, step, unit):
    (t,), (u,) = (rounded(exact(value=v).ravel(), np.array([unit])) for v in (value, value + step))
    assert abs(t - u) <= abs(step) / unit + 1


KINDS = {
    "Python's": (lambda value: value, FAR),
    "a list beside a float": (lambda value: [value, 0.5], FAR),
    "objects": (lambda value: np.array([value], dtype=object), FAR),
    "int64": (np.int64, [2**53, 2**62, 2**63 - 2, FAR[-1]]),
    "uint64": (lambda value: np.array([value], dtype=np.uint64), [2**53, 2**63 - 1, 2**64 - 2]),
    "long double": (lambda value: np.longdouble(value), LONG),
    "a list of long doubles": (lambda value: [np.longdouble(value), 0.5], LONG),
}
AT_ONE = {
    "Laplace": lambda value: LaplaceMechanism(1.0, 1.0).release(value),
    "Gaussian": lambda value: GaussianMechanism(1.0, 1.0, 1e-6).release(value),
    "elliptical": lambda value: EllipticalGaussianMechanism(np.ones(np.size(value)), 1.0, 1e-6).release(
        np.reshape(np.array(value, dtype=object), -1)
    ),
}


@pytest.mark.parametrize("it", AT_ONE)
@pytest.mark.parametrize("kind", KINDS)
def test_neighbours_reach_the_noise_as_far_apart_as_they_are(kind, it, handed):
    """A secure release turns x and x + 1 into integers whose difference is, within 1, the same number for all x.

    This holds even for large x. It would be false if x were converted to a double, because large doubles are more
    than 1 apart. The fixture `handed` records the integers. `kind` is a type of number in KINDS, and `it` is the name
    of a mechanism in AT_ONE.
    """
    make, values = KINDS[kind]
    for value in values:
        handed.clear()
        for each in (0, 1, value, value + 1):
            AT_ONE[it](make(each))
        zero, one, low, high = (integers[0] for integers in handed)
        assert 2**36 < one - zero < 2**42
        assert abs((high - low) - (one - zero)) <= 1


@pytest.mark.parametrize("k", [1, 3, 7, 8, 15, 100])
@pytest.mark.parametrize("it", AT_ONE)
def test_noise_hides_the_rounding_of_each_entry(it, k, handed, monkeypatch):
    """Two vectors as far apart as the sensitivity become integers for whose distance the noise is large enough.

    Each of the `k` entries is rounded down in one vector and up in the other one. `it` is the name of a mechanism.
    """
    hidden, order = [], 1 if it == "Laplace" else 2
    monkeypatch.setattr(lattice, "gaussian_std", lambda sensitivity, *_: hidden.append(sensitivity) or 2.0**41)
    monkeypatch.setattr(samplers, "secure_laplace", lambda scale, size: hidden.append(scale) or [0] * size)
    one, other = (np.full(k, unit * 2.0**-40) for unit in (0.49, 2**40 // k ** (1 / order) + 1.51))
    far = float(np.linalg.norm(other - one, order))
    made = {
        "Laplace": LaplaceMechanism(far, 1.0),
        "Gaussian": GaussianMechanism(far, 1.0, 1e-6),
        "elliptical": EllipticalGaussianMechanism(other - one, 1.0, 1e-6),
    }[it]
    for value in (one, other):
        made.release(value)
    assert np.linalg.norm(np.subtract(*handed), order) <= min(hidden)


@pytest.mark.parametrize("kind", KINDS)
def test_a_budget_pays_for_them_too(kind):
    """`GaussianMechanism.check`, which budgets call before a release, accepts a large value of every type of number.

    `kind` is a type of number in KINDS. A bool raises a TypeError.
    """
    make, values = KINDS[kind]
    for value in values:
        GaussianMechanism(1.0, 1.0, 1e-6).check(make(value))
    with pytest.raises(TypeError, match="value must be a real number"):
        GaussianMechanism(1.0, 1.0, 1e-6).check(True)


@pytest.mark.slow
def test_releases_of_large_integers_do_not_tell_them_apart():
    """Releases of 2**62 + 512 and of 2**62 + 513 show no larger epsilon than the 1 that the mechanism promises.

    Doubles of this size are 1024 apart, so the noise alone decides to which of two doubles an estimate is rounded.
    `audit.lower_bound` estimates the epsilon from 3000 secure releases of each.
    """
    it = GaussianMechanism(1.0, 1.0, 0.3)
    one, other = (np.array([it.release(v).estimate for _ in range(3000)]) for v in (2**62 + 512, 2**62 + 513))
    for releases in (one, other):
        assert set(releases - 2.0**62) == {0.0, 1024.0}
    assert audit.lower_bound(one - 2.0**62, other - 2.0**62, 0.3) <= 1


def test_an_estimate_is_the_double_nearest_to_the_value_plus_noise(silent):
    for value in (2**62 + 511, 2**62 + 513, 2**53 + 1, 10**300 + 1, -(2**70) - 2**18):
        assert GaussianMechanism(1.0, 1.0, 1e-6).release(value).estimate == float(value)
    largest = np.finfo(float).max
    assert GaussianMechanism(1e-10, 1.0, 1e-6).release([largest, -largest]).estimate.tolist() == [largest, -largest]


def test_noise_beyond_the_largest_double_is_cut(monkeypatch):
    monkeypatch.setattr(samplers, "secure_gaussian", lambda std, size: [2**62] * size)
    it = GaussianMechanism(1e299, 1.0, 1e-6)
    assert it.release(np.finfo(float).max).estimate == np.finfo(float).max


@pytest.mark.parametrize("value", [2**1024, -(2**1100), [0, 2**1024], np.inf, [0.0, np.nan]])
def test_values_beyond_doubles_are_refused(value):
    for rng in (None, np.random.default_rng(1)):
        with pytest.raises(ValueError, match=r"^value(\[1\])? must be finite and no larger than the largest double$"):
            GaussianMechanism(1.0, 1.0, 1e-6).release(value, rng=rng)


def test_a_simulation_takes_the_nearest_double():
    """A simulated release of a large integer rounds the integer to the nearest double before it adds noise.

    A secure release must not round to doubles, because rounding can increase the difference of two neighboring values.
    """
    it, rngs = GaussianMechanism(1.0, 1.0, 1e-6), [np.random.default_rng(1), np.random.default_rng(1)]
    assert it.release(2**62 + 513, rng=rngs[0]).estimate == it.release(2.0**62 + 1024, rng=rngs[1]).estimate


# --- Noise ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("s", [0.25, 0.5, 1, 2, 3, 5, 10, 30])
def test_discrete_gaussian_is_six_times_as_close_to_a_rounded_one_as_is_charged(s):
    """The total variation distance of a discrete Gaussian and a rounded normal variable is at most 1 / (24 `s`**2).

    `s` is the standard deviation of both. This distance adds to delta, and for safety the mechanisms assume that it is
    six times as large.
    """
    with mp.workdps(30):
        k = range(-int(40 * s), int(40 * s) + 1)
        weights = [mp.e ** (-(mp.mpf(j) ** 2) / (2 * s**2)) for j in k]
        total = mp.fsum(weights)
        rounded_normal = [mp.ncdf((j + 0.5) / s) - mp.ncdf((j - 0.5) / s) for j in k]
        distance = mp.fsum(abs(w / total - r) for w, r in zip(weights, rounded_normal, strict=True)) / 2
    assert distance <= 1 / (24 * s**2)


def test_integer_noise_is_charged():
    """`gaussian_std` returns a larger standard deviation for integer noise than continuous noise needs.

    Integer noise is not exactly rounded normal noise. The difference adds to delta, so the noise is made larger. The
    addition to delta is large for small sensitivities, such as 2**9. If it is half of delta or more, `gaussian_std`
    raises a ValueError that states the addition as a number, not as a fraction of delta. `Lattice` raises a ValueError
    if the noise is too large for integers of 64 bits.
    """
    plain = float(analytic_noise_multiplier(1.0, 1e-6)) * 2**9
    assert gaussian_std(2**9, 1, 1.0, 1e-6) > plain * (1 + 1e-3)
    charge = (1 + math.e) / (4 * plain**2)
    assert gaussian_delta(1.0, gaussian_std(2**9, 1, 1.0, 1e-6) / 2**9) <= 1e-6 - charge * 0.99
    added = re.escape(f"integer noise would add {100 * charge:.1e} to delta, which must be less than half of it")
    with pytest.raises(ValueError, match=added):
        gaussian_std(2**9, 100, 1.0, 1e-6)
    with pytest.raises(ValueError, match="for 64-bit integers"):
        Lattice(1.0, 3, 2.0**40)


@pytest.mark.slow
def test_secure_noise_has_the_declared_spread():
    X, it = rows(), mechanism()
    errors = np.array([it.release(X).estimate - X.sum(axis=0) for _ in range(1500)])
    assert errors.std(axis=0) == pytest.approx(it.noise_std, rel=0.1)
    assert not it.release(X).simulated


@pytest.mark.slow
def test_secure_laplace_release_has_the_declared_spread():
    it = LaplaceMechanism(1.0, 0.5)
    releases = [it.release(3.0) for _ in range(5000)]
    assert np.std([r.estimate for r in releases]) == pytest.approx(releases[0].noise_std, rel=0.1)
    assert releases[0].noise_std == pytest.approx(math.sqrt(2) * 2, rel=1e-9)


@pytest.mark.parametrize("size", [1, 7])
def test_laplace_noise_is_enough_to_the_last_digit_and_stated(size, monkeypatch):
    """The scale of secure Laplace noise is at least (sensitivity / unit + `size`) / epsilon, and the release states it.

    The scale is in multiples of a unit. Each of the `size` entries of a value is rounded to a multiple of this unit,
    which adds at most one unit per entry to the sensitivity. The comparison is in exact arithmetic.
    """
    asked = []
    monkeypatch.setattr(samplers, "secure_laplace", lambda scale, size: asked.append(scale) or [0] * size)
    pairs = 10 ** np.random.default_rng(4).uniform(-3, 3, (300, 2))
    pairs[:100, 0] = 1.0  # a whole number of units
    for sensitivity, epsilon in pairs.tolist():
        made = LaplaceMechanism(sensitivity, epsilon)
        release, unit = made.release(np.zeros(size)), made._unit(size)
        least = Fraction(sensitivity) / Fraction(unit) + size
        assert least <= Fraction(asked[-1]) * Fraction(epsilon) <= least * (1 + Fraction(1, 10**9))
        np.testing.assert_allclose(release.noise_std, math.sqrt(2) * asked[-1] * unit, rtol=1e-15)


def test_secure_count_is_released_with_the_sum():
    it, X = mechanism(neighbors="add_remove"), rows(321)
    releases = [it.release(X) for _ in range(1000)]
    assert np.std([r.estimate for r in releases], axis=0) == pytest.approx(it.noise_std, rel=0.12)
    counts = [r.count for r in releases]
    assert abs(np.mean(counts) - 321) < 5 * np.std(counts) / math.sqrt(1000)


@pytest.mark.parametrize("groups", [False, True])
@pytest.mark.parametrize("neighbors", ["replace_one", "add_remove"])
def test_a_secure_release_states_the_noise_that_is_drawn(neighbors, groups, monkeypatch):
    """If every draw of noise is one standard deviation, the estimate moves by the standard deviations that are stated.

    For this epsilon and delta, the discrete noise is larger than continuous noise by 0.1 to 0.4 percent.
    """
    made, labels = GaussianDataMechanism(SIGMA, 500, 25.0, 1e-12, center=MU, neighbors=neighbors), {}
    if groups:
        made, labels = GroupedDataMechanism(made, [0]), {"by": [0] * 500}
    releases = []
    for draw in (lambda std, size: [0] * size, lambda std, size: [round(std)] * size):
        monkeypatch.setattr("egm.samplers.secure_gaussian", draw)
        release = made.release(rows(), **labels)
        releases.append(release[0] if groups else release)
    quiet, moved = releases
    by_count = moved.count_std * MU
    assert moved.estimate - quiet.estimate == pytest.approx(moved.centered_std + by_count, rel=1e-8)
    assert moved.noise_std == pytest.approx(np.hypot(moved.centered_std, by_count), rel=1e-12)


def test_simulation_warns_once(monkeypatch):
    samplers._warn.cache_clear()
    with pytest.warns(samplers.SimulationWarning, match="it protects nobody"):
        mechanism().release(rows(), rng=np.random.default_rng(1))
    mechanism().release(rows(), rng=np.random.default_rng(1))


# --- Much noise -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("noise", "epsilon"), [*(("gaussian", 10.0**-k) for k in (3, 6, 8, 9)), *(("l2", 10.0**-k) for k in (3, 4, 6))]
)
def test_noise_is_never_cut_off_by_64_bits(noise, epsilon, monkeypatch):
    """Even for a tiny `epsilon`, the integer noise of a secure release has a standard deviation from 2**48 to 2**58.

    Noise beyond 2**63 would be cut off, which would reveal the value. Six mechanisms are tested, one of them with
    scalings of any size. For Laplace noise the scale, and for l2 noise the standard deviation, is at most 2**54,
    because such noise more often has extreme values.
    """
    asked = []
    monkeypatch.setattr(samplers, "secure_gaussian", lambda std, size: asked.append(std) or [0] * size)
    monkeypatch.setattr(samplers, "secure_laplace", lambda scale, size: asked.append(16 * scale) or [0] * size)
    monkeypatch.setattr(samplers, "secure_l2", lambda scale, d: asked.append(16 * scale * math.sqrt(d + 1)) or [0] * d)
    LaplaceMechanism(1.0, epsilon).release(0.3)
    GaussianMechanism(3.0, epsilon, 1e-9, noise=noise, d=4).release(np.ones(4))
    EllipticalGaussianMechanism([1.0, 5.0], epsilon, 1e-9, noise=noise).release([0.0, 1.0])
    for options in ({}, {"center": 1e3, "neighbors": "add_remove"}):
        GaussianDataMechanism(SIGMA, 5, epsilon, 1e-9, noise=noise, **options).release(np.ones((5, 3)))
    several = GaussianDataMechanism(SIGMA, 5, epsilon, 1e-9, noise=noise, per_person=10)
    several.release(np.ones((5, 3)), person=range(5))
    for scale in (2.0**-30, 1.0, 2.0**30):
        options = {"noise": noise, "neighbors": "add_remove", "scaling": np.full(3, scale)}
        inner = GaussianDataMechanism(SIGMA, 5, epsilon, 1e-9, **options)
        GroupedDataMechanism(inner, [0, 1]).release(np.ones((5, 3)), by=[0] * 5)
    assert min(asked) >= 2.0**48
    assert max(asked) <= 2.0**58


@pytest.mark.parametrize(
    ("it", "value"),
    [
        (LaplaceMechanism(1.0, 1e-13), 0.0),
        (GaussianMechanism(1.0, 1e-13, 1e-15), 0.0),
        (EllipticalGaussianMechanism([1.0, 5.0], 1e-13, 1e-15), [0.0, 1.0]),
        (GaussianDataMechanism(SIGMA, 5, 1e-13, 1e-15), np.zeros((5, 3))),
        (GroupedDataMechanism(GaussianDataMechanism(SIGMA, 5, 1e-13, 1e-15), [0]), np.zeros((5, 3))),
    ],
    ids=lambda given: type(given).__name__,
)
def test_noise_that_64_bits_would_cut_off_is_refused(it, value):
    labels = {"by": [0] * 5} if isinstance(it, GroupedDataMechanism) else {}
    for act in (it.check_noise, partial(it.release, **labels)):
        with pytest.raises(ValueError, match="noise must be small enough for 64-bit integers"):
            act(value)


def test_more_entries_need_room_for_more_laplace_noise():
    """The scale of Laplace noise for k entries is at most 2**32 / (1 + k / 2**20) times the sensitivity."""
    it = LaplaceMechanism(1.0, 1.9 * 2.0**-32)
    it.check_noise(0.0)
    it.check_noise(Unread(2**10, 2**9))
    with pytest.raises(ValueError, match="noise must be small enough for 64-bit integers"):
        it.check_noise(Unread(2**10, 2**10))
    LaplaceMechanism(1.0, 2.1 * 2.0**-32).check_noise(Unread(2**10, 2**10))


def test_scales_that_64_bits_would_cut_off_are_refused():
    with pytest.raises(ValueError, match="std must be at most"):
        samplers.secure_gaussian(2.0**59, 1)
    with pytest.raises(ValueError, match="scale must be at most"):
        samplers.secure_laplace(2.0**55, 1)


@given(st.sampled_from([2.0**20, 3.0 * 2**30, 2.0**41]), st.integers(1, 50), st.floats(1e-4, 8), st.floats(1e-9, 0.9))
@example(2.0**41, 1, 0.01768979608079123, 0.0029488078295867347)
def test_noise_is_never_less_than_is_declared_nor_costs_more_in_zcdp(sensitivity, d, epsilon, delta):
    """`gaussian_std` returns at least the declared standard deviation; the noise costs at most the recorded zCDP cost.

    The declared standard deviation is `sensitivity` times the noise multiplier z for `epsilon` and `delta`, and the
    recorded cost is 1 / (2 z**2). `d` is the number of integers that get noise.
    """
    assume(delta > 1e-6 or sensitivity > 2**30)  # else the lattice is too coarse for so small a delta
    multiplier, std = float(analytic_noise_multiplier(epsilon, delta)), gaussian_std(sensitivity, d, epsilon, delta)
    assert Fraction(std) >= Fraction(sensitivity) * Fraction(multiplier)
    charged = 1 / (2 * multiplier**2)
    assert Fraction(sensitivity) ** 2 / (2 * Fraction(std) ** 2) <= Fraction(charged)


def test_the_charge_is_not_lost_in_rounding():
    """`gaussian_std` allows for what integer noise adds to delta, even if a subtraction of doubles would lose it.

    Integer noise is not exactly a rounded normal variable, and the difference adds to delta. Here the addition is tiny
    beside delta = 1e-6. Still, the delta of normal noise with the returned standard deviation must be below 1e-6.
    """
    std = gaussian_std(2.0**41, 1, 1.0, 1e-6)
    assert gaussian_delta(1.0, std / 2.0**41) < 1e-6


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [(2.798261610000699e-07, 0.999999999997573), (2.25, 1 - 1.26e-12), (8e-7, 1 - 1.5e-11), (1.0, 1e-6), (0.1, 0.5)],
)
@pytest.mark.parametrize("d", [1, 40])
def test_noise_is_never_less_than_the_multiplier_says_also_for_a_delta_near_one(epsilon, delta, d):
    """`gaussian_std` returns more than the sensitivity times the noise multiplier, even for `delta` near 1.

    `gaussian_std` also computes the multiplier for a slightly smaller delta, because integer noise adds to delta. This
    multiplier should be larger, but rounding errors can make it smaller if `delta` is near 1. `d` is the number of
    integers that get noise.
    """
    multiplier = float(analytic_noise_multiplier(epsilon, delta))
    assert lattice.gaussian_std(2**41, d, epsilon, delta) >= 2**41 * multiplier * (1 + lattice.EXCESS / 2)
