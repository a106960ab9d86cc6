"""Test `egm.bases`: products with an orthonormal basis, and mechanisms that clip rows along the basis vectors.

A row is rotated if it is replaced by its coordinates along the vectors of a basis.
"""

import math
import pickle

import dask.array
import numpy as np
import pandas as pd
import pytest
from scipy.sparse.linalg import LinearOperator, aslinearoperator

from egm import GaussianDataMechanism, _basis, bases
from egm._adaptive import private_rows
from egm._basis import as_basis
from egm._mechanisms.base import std_on_lattice
from egm._rows import kernel, lattice, norms, unrotated_kernel
from egm._rows.lattice import Lattice
from egm._rows.sums import clipped_sum
from egm._rows.unrotated import unrotated
from egm.mechanisms import GroupedDataMechanism
from tests.conftest import slow

D = 24
CENTER, SCALING = np.linspace(-1, 1, D), np.geomspace(0.5, 3, D)
CLIP_NORM = 4.5


def rotation(d=D, seed=1):
    """Return a random orthogonal matrix, shape (`d`, `d`)."""
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(d, d)))[0]


def covariance_of(d=D, seed=1):
    """Return a random covariance matrix, shape (`d`, `d`), whose eigenvalues differ by large factors."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(d, d)) * np.geomspace(10, 1, d) * rng.uniform(0.5, 2, (d, 1))
    return root @ root.T + 1e-9 * np.eye(d)


def rows(n=1003, seed=1):
    """Return `n` random rows near CENTER, the center of clipping.

    One row is equal to CENTER, and the entries of every 250th row are multiplied by a million.
    """
    X = np.random.default_rng(seed).normal(CENTER, 0.6, (n, D))
    X[::250] *= 1e6
    X[n // 2] = CENTER
    return X


BASES = {
    "a matrix": rotation(),
    "a signal": "dct",
    "an image": "dct:4x6",
    "wavelets": bases.haar((2, 3, 4)),
    "a table of time": bases.dct((6, 4), axes=[0]),
    "columns": np.eye(D),
    "an operator": aslinearoperator(rotation(seed=2)),
}


@pytest.mark.parametrize("name", BASES)
def test_products_are_those_with_an_orthogonal_matrix(name, monkeypatch):
    monkeypatch.setattr(_basis, "_AT_ONCE", 5 * D)  # an operator is applied to five unit vectors at a time
    basis = as_basis(BASES[name], D)
    U, x = basis.forward(np.eye(D)).T, np.random.default_rng(2).normal(size=(3, D))
    np.testing.assert_allclose(U @ U.T, np.eye(D), atol=1e-14)
    np.testing.assert_allclose(basis.forward(x), x @ U.T, atol=1e-14)
    np.testing.assert_allclose(basis.inverse(x), x @ U, atol=1e-14)
    np.testing.assert_allclose(basis.variances(x[0] ** 2), x[0] ** 2 @ U**2, rtol=1e-13)
    S = covariance_of()
    np.testing.assert_allclose(basis.std(S) ** 2, np.diag(U @ S @ U.T), rtol=1e-12)


def test_transforms_are_the_textbook_ones():
    k, j = np.mgrid[:5, :5]
    cosines = np.cos(np.pi * k * (2 * j + 1) / 10) * np.sqrt(np.where(k == 0, 1, 2) / 5)
    np.testing.assert_allclose(bases.dct(5).matrix, cosines, atol=1e-15)
    np.testing.assert_allclose(bases.dct((5, 2)).matrix, np.kron(cosines, bases.dct(2).matrix), atol=1e-15)
    np.testing.assert_allclose(bases.dct((5, 2), axes=[-1]).matrix, np.kron(np.eye(5), bases.dct(2).matrix), atol=1e-15)
    r = np.sqrt(0.5)
    haar = [[0.5, 0.5, 0.5, 0.5], [0.5, 0.5, -0.5, -0.5], [r, -r, 0, 0], [0, 0, r, -r]]
    np.testing.assert_allclose(bases.haar(4).matrix, haar, atol=1e-15)


def lattices(basis, scaling=SCALING, clip_norm=CLIP_NORM):
    """Return a list of one or two objects `Lattice`, which sum rows that are clipped and rounded to integers.

    The first one rotates every row, that is, takes its coordinates along the vectors of `basis`. The second one rotates
    only the sum; it is left out if the basis is an operator and not a matrix. The rows are multiplied by `scaling`, and
    clipped to the norm `clip_norm`.
    """
    there = unrotated(basis, scaling, clip_norm)
    return [Lattice(clip_norm, basis.size, 8.0, way) for way in ([None, there] if there else [None])]


@pytest.mark.parametrize("name", BASES)
def test_sum_of_rotated_rows_is_that_of_each_row_by_itself(name):
    """`Lattice.sum_and_clipped` clips each row along the basis vectors, and adds the clipped rows.

    The sum agrees with the one that NumPy computes, up to rounding. It is exactly the same for every order of the rows,
    for every division of the rows into blocks, and for every layout of the rows in memory. `name` is a basis in BASES.
    """
    X, basis = rows(), as_basis(BASES[name], D)
    y = basis.forward(X - CENTER) * SCALING
    lengths = np.linalg.norm(y, axis=1)
    exact = np.sum(y * (CLIP_NORM / np.maximum(lengths, CLIP_NORM))[:, None], axis=0)
    for grid in lattices(basis):
        total, clipped = grid.sum_and_clipped(X, CENTER, SCALING, basis)
        coarse = 2.0**-34 * CLIP_NORM if grid.unrotated else grid.unit  # what rounding changes in a row
        np.testing.assert_allclose(np.float64(grid.rotated(total)) * grid.unit, exact, atol=len(X) * coarse)
        assert clipped == np.sum(lengths > CLIP_NORM) > 100
        for blocks in (X[:, None], np.split(X[::-1], [1, 2, 67, 400])):
            assert np.array_equal(clipped_sum(iter(blocks), grid, CENTER, SCALING, basis=basis)[0], total)
        assert np.array_equal(grid.sum(np.asfortranarray(X), CENTER, SCALING, basis), total)
        chunks, same = dask.array.from_array(X, chunks=(333, D)), pickle.loads(pickle.dumps(grid))
        assert np.array_equal(clipped_sum(chunks, same, CENTER, SCALING, basis=basis)[0], total)


def test_threads_do_not_matter(monkeypatch):
    X, basis = rows(), as_basis("dct:4x6", D)
    alone = [grid.sum_and_clipped(X, CENTER, SCALING, basis) for grid in lattices(basis)]
    monkeypatch.setattr(lattice, "_WORTH_A_THREAD", 1)
    monkeypatch.setattr(lattice, "CORES", 5)
    for grid, (total, clipped) in zip(lattices(basis), alone, strict=True):
        again = grid.sum_and_clipped(X, CENTER, SCALING, basis)
        assert np.array_equal(again[0], total)
        assert again[1] == clipped


def drawn_near(d, spread, rng):
    """Return a basis, a scaling vector and 200 random rows, many of them about as long as the clip norm.

    The length of a row is the norm of its coordinates along the basis, each multiplied by its factor in the scaling. It
    is near the clip norm for the first 100 rows, and between 1e-12 and 1e12 times the clip norm for the others. The
    largest entry of the scaling is `spread` times the smallest one. There are `d` columns, and `rng` draws the numbers.
    """
    U = np.linalg.qr(rng.normal(size=(d, d)))[0] if d % 2 else np.eye(d)[rng.permutation(d)]
    scaling = spread ** -rng.permutation(np.linspace(0, 1, d))
    y = rng.normal(size=(200, d)) * spread ** rng.uniform(-1, 1, (200, d))
    y /= np.linalg.norm(y, axis=1, keepdims=True)
    y[:100] *= 1 + rng.choice([-1, 1], (100, 1)) * 2.0 ** -rng.uniform(1, 40, (100, 1))
    y[100:] *= 10 ** rng.uniform(-12, 12, (100, 1))
    return as_basis(U, d), scaling, y * CLIP_NORM / scaling @ U


@pytest.mark.parametrize("d", [1, 2, 3, 8, 33, *slow(100)])
@pytest.mark.parametrize("spread", [1.0, 1.5, 40.0, 400.0])
def test_no_integer_vector_is_longer_than_the_radius(d, spread):
    """The norm of a clipped row that is rounded to integers is at most `radius`, the clip norm in these integers' unit.

    So rounding a row cannot increase the sensitivity of a sum. The rows have `d` columns and come from `drawn_near`;
    the largest entry of their scaling vector is `spread` times the smallest one.
    """
    basis, scaling, X = drawn_near(d, spread, np.random.default_rng(d))
    way = unrotated(basis, scaling, CLIP_NORM)
    grid = Lattice(CLIP_NORM, d, 8.0, way)
    shift = 40  # bits behind the binary point of the products
    for x in X:
        product = way.rotated(grid.sum(x[None], 0.0, scaling, basis), grid.radius << shift, grid.shrink)
        square = sum(int(entry) ** 2 for entry in product)
        assert square <= (grid.radius << shift) ** 2
        length = np.linalg.norm(basis.forward(x) * scaling)
        assert math.isqrt(square) >= (grid.radius << shift) * min(1, length / CLIP_NORM) * (1 - 1e-6) - (2**8 << shift)


@pytest.mark.parametrize("d", [1, 3, 8, 33])
def test_a_row_adds_the_same_however_it_is_recognized(d, monkeypatch):
    """A row adds the same integers to a sum with and without the fast test for rows that are too short to be clipped.

    The fast test compares an upper bound of the row's scaled norm with the clip norm: if the bound is smaller, the row
    is not clipped, and its norm need not be computed. The rows have `d` columns.
    """
    basis, scaling, X = drawn_near(d, 40.0, np.random.default_rng(d))
    found = []
    for surely in (unrotated_kernel._SURELY, 0.0):
        monkeypatch.setattr(unrotated_kernel, "_SURELY", surely)
        plain = {name: getattr(unrotated_kernel, name) for name in ("add_unrotated", "_add_held")}
        with monkeypatch.context() as context:
            for name, function in plain.items():
                context.setattr(unrotated_kernel, name, function.py_func)
            grid = Lattice(CLIP_NORM, d, 8.0, unrotated(basis, scaling, CLIP_NORM))
            found.append([(*grid.sum(x[None], 0.0, scaling, basis),) for x in X])
    assert found[0] == found[1]


@pytest.mark.parametrize("neighbors", ["replace_one", "add_remove"])
@pytest.mark.parametrize("grouped", [False, True])
def test_rounding_the_sum_is_charged(neighbors, grouped):
    """If the sum is rounded after a change of basis, a release has more noise, since rounding adds to the sensitivity.

    If the sensitivity of the sum is s, that of the rounded sum is s + r, and the noise is (s + r) / s times as large as
    for s. Here r is sqrt(2 d g), rounded up, for d columns and g groups in which a person may have rows; g is 1 if
    `grouped` is false. `neighbors` is the neighbor relation.
    """
    options = {"basis": "dct", "neighbors": neighbors, "per_person": "sum"}
    inner = it = GaussianDataMechanism(np.ones(D), 100, 1.0, 1e-6, **options)
    groups = 7 if grouped else 1
    if grouped:
        it = GroupedDataMechanism(inner, range(9), groups_per_person=groups)
    weight, *_, std = it._on_lattice(it._grid())
    sensitivity = it._joint.on_lattice(it._grid().radius, weight)[1]
    charge = math.ceil(math.sqrt(2 * D * groups)) / sensitivity
    assert charge > 1e-13
    np.testing.assert_allclose(std / std_on_lattice(inner, sensitivity, it.noise_size) - 1, charge, rtol=0.01)


def test_a_basis_that_is_not_orthogonal_is_refused_or_not_trusted():
    """`bases.Basis` raises a ValueError if it gets a matrix that is not orthogonal in the first six digits.

    If the matrix is orthogonal in six digits, the nearest orthogonal matrix takes its place. If a basis has other
    digits all the same, because an earlier version pickled it, the rows are rotated one by one. To rotate only their
    sum would be faster, but needs a matrix that is orthogonal in more digits.
    """
    for factor in ([[3.0, 3], [0, 3]], [[1.0, 1e-3], [0, 1]], [[1.0]]):
        with pytest.raises(ValueError, match=r"factors must have an orthogonal matrix of shape \(2, 2\)"):
            bases.Basis((2,), (np.array(factor),), "mine")
    rounded = rotation().round(6)
    basis = bases.Basis((D,), (rounded,), "mine")
    assert basis == as_basis(rounded, D)
    assert unrotated(basis, np.ones(D), 1.0) is not None
    basis.__setstate__({"factors": (rounded,)})
    assert unrotated(basis, np.ones(D), 1.0) is None


def test_rotated_there_and_back_a_row_is_the_same_also_by_rounded_factors():
    basis = bases.Basis((D, 2), (rotation().round(6), np.round([[0.6**0.5, 0.4**0.5], [-(0.4**0.5), 0.6**0.5]], 6)), "")
    row = np.arange(1.0, 2 * D + 1)
    np.testing.assert_allclose(basis.inverse(basis.forward(row)), row, rtol=1e-14)
    np.testing.assert_allclose(basis.matrix @ basis.matrix.T, np.eye(2 * D), atol=1e-14)


@pytest.mark.parametrize(
    ("shape", "factors", "sigma", "message"),
    [
        ((2, 2), (np.eye(2),), None, r"factors must have one entry for each axis of the shape \(2, 2\), got 1"),
        ((2,), (None, None), None, r"factors must have one entry for each axis of the shape \(2,\), got 2"),
        ((2,), ([[np.nan, 0], [0, 1]],), None, r"factors\[0, 0\] must not be NaN"),
        ((), (), None, "shape must have at least one axis"),
        ((0,), (np.empty((0, 0)),), None, "shape must be a whole number >= 1, got 0"),
        ((2,), (None,), [1.0], "sigma must have an entry for each of the 2 vectors, got 1"),
        ((2,), (None,), [1.0, -1.0], r"sigma\[1\] must be finite and > 0, got -1"),
        ((2,), (None,), 1.0, "sigma must be a vector"),
    ],
)
def test_wrong_parts_of_a_basis_are_refused_by_name(shape, factors, sigma, message):
    with pytest.raises(ValueError, match=message):
        bases.Basis(shape, factors, "mine", sigma=sigma)


def test_rows_are_rotated_if_integers_would_have_too_many_digits():
    assert unrotated(as_basis(np.eye(2), 2), np.array([1.0, 1e-4]), 1.0) is None
    assert unrotated(bases.dct((32, 32)), np.ones(1024), 1.0) is None
    assert unrotated(None, np.ones(3), 1.0) is None


@pytest.mark.parametrize(("unequal", "size", "copies"), [(1800, 0.999, 2**10), (400, 0.5, 8)])
def test_sums_of_large_integers_are_exact(unequal, size, copies, monkeypatch):
    """The sum of many rows, which are rounded to integers, is exact even if it is too large for a machine's numbers.

    For the first parameters, an entry of the sum is above 2**63, too large for a 64-bit integer. For the second ones,
    it is above 2**53, where not every integer is a double. Each of 512 rows occurs `copies` times. After scaling, the
    norm of a row is at most `size` < 1 times the clip norm, so no row is clipped. All rows are multiples of one basis
    vector, whose scaling factor is 1 / `unequal`, so their norms are large before scaling. All other factors are 1.
    """
    monkeypatch.setattr(lattice, "_WORTH_A_THREAD", 2**40)
    basis, scaling = bases.dct(5), np.array([1.0, 1, 1, 1, 1 / unequal])
    grid = Lattice(1.0, 5, 8.0, unrotated(basis, scaling, 1.0))
    lengths = unequal * size * np.random.default_rng(1).uniform(0.9, 1, (512, 1))
    X = basis.inverse(lengths * [0, 0, 0, 0, 1.0])
    alone = sum(grid.sum(x[None], 0.0, scaling, basis) for x in X)
    assert copies * max(abs(alone)) > (2**63 if size > 0.9 else 2**53)
    assert np.array_equal(grid.sum(np.tile(X, (copies, 1)), 0.0, scaling, basis), copies * alone)
    codes = np.zeros(copies * len(X), dtype=int)
    (of_group,), (number,) = grid.sum_by_group(np.tile(X, (copies, 1)), codes, 1, 0.0, scaling, basis)
    assert number == codes.size
    assert np.array_equal(of_group, copies * alone)


@pytest.mark.slow
def test_a_sum_of_many_wide_rotated_rows_is_exact():
    """`kernel.add_rotated` adds rows exactly, also if fewer of them are rotated at a time because they are wide.

    A row becomes integers near 2**41. The sum of 9000 of them is above 2**54, where not every integer is a double, and
    must be the sum of eighteen smaller sums. All but two of the 1200 columns are zero.
    """
    basis, scaling, target = bases.dct((600, 2), axes=[1]), np.ones(1200), 2.0**41 - 1
    X = np.zeros((9000, 1200))
    X[:, :2] = np.random.default_rng(1).uniform(0.9, 1, (9000, 2))
    X.flags.writeable = False

    def added(block):
        total, clipped = np.zeros(1200, dtype=np.int64), np.zeros(1, dtype=np.int64)
        assert kernel.add_rotated(block, 0 * scaling, *basis.plan, scaling, 1.0, target, total, clipped) == -1
        return total

    whole = added(X)
    assert np.array_equal(whole, sum(map(added, np.split(X, 18))))
    assert np.max(whole) > 2**54


@pytest.mark.parametrize("name", ["a matrix", "an image", "an operator"])
@pytest.mark.parametrize("size", [1e-310, 1e-160, 1e6, 1e20, 1e39, 1e44, 1e100, 1e160, 1e300, 1.7e308])
def test_rotated_rows_of_any_size_stay_in_the_ball(name, size):
    """A rotated, scaled and clipped row is no longer than the clip norm, however large its entries are.

    A row is rotated if it is replaced by its coordinates in a basis. The result is a vector of integers, in whose unit
    `radius` is the clip norm. If only the sum of rows is rotated, and not each row, rounding may add half a unit to
    each entry. All entries of a row are plus or minus `size`, or one entry is `size` and the others are 0. A row with a
    `size` of 1e6 or more is clipped, and its norm is within a relative 1e-6 of `radius`. `name` is the kind of basis.
    """
    basis = as_basis(BASES[name], D)
    X = np.vstack([np.random.default_rng(3).choice([-size, size], (40, D)), size * np.eye(D)])
    for grid in lattices(basis):
        with np.errstate(all="raise"):
            found = [grid.sum_and_clipped(x[None], CENTER, SCALING, basis) for x in X]
        lengths = np.linalg.norm([np.float64(grid.rotated(total)) for total, _ in found], axis=1)
        assert np.all(lengths <= grid.radius + grid.rounded**0.5 / 2)
        assert size < 1 or (np.all(lengths > grid.radius * (1 - 1e-6)) and all(clipped == 1 for _, clipped in found))


def test_a_row_that_an_operator_makes_infinite_is_one_clipped_row():
    """A row for which the products of an operator overflow is clipped, and all other rows still count.

    The operator multiplies by 1e20 and divides by it again, so it is orthogonal for all but enormous rows. Otherwise a
    single row could end the sum early, and change it by more than the noise allows for.
    """
    basis = as_basis(LinearOperator((3, 3), matvec=lambda x: x * 1e20 / 1e20, rmatvec=lambda x: x * 1e20 / 1e20), 3)
    X = np.random.default_rng(1).normal(size=(40, 3))
    grid, kept = Lattice(1.0, 3, 8.0), np.arange(40) != 7
    others, clipped = grid.sum_and_clipped(X[kept], 0.0, 1.0, basis)
    for long in (1.7e308, -1.7e308):
        X[7] = long
        with np.errstate(all="raise"):
            total, number = grid.sum_and_clipped(X, 0.0, 1.0, basis)
        added = [int(entry) for entry in total - others]
        assert (0.999 * grid.radius) ** 2 < sum(entry**2 for entry in added) <= grid.radius**2
        assert number == clipped + 1


@pytest.mark.parametrize("name", ["a matrix", "an image", "an operator"])
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_an_entry_that_is_not_finite_is_found(name, wrong):
    X = rows()
    X[701, 5] = wrong
    for grid in lattices(as_basis(BASES[name], D)):
        for add, groups in ((grid.sum, ()), (grid.sum_by_group, (np.arange(len(X)) % 3 - 1, 2))):
            with pytest.raises(ValueError, match=r"X\[701, 5\] must be finite"):
                add(X, *groups, CENTER, SCALING, as_basis(BASES[name], D))


# Mechanisms


def mechanism(basis, S, n=400, **options):
    """Return a mechanism for `n` rows with the covariance matrix `S` that clips along the vectors of `basis`."""
    return GaussianDataMechanism(as_basis(basis, len(S)).std(S), n, 1.0, 1e-6, basis=basis, **options)


OPTIONS = {
    "plain": {},
    "add_remove": {"neighbors": "add_remove"},
    "counted": {"count_clipped": True, "noise": "l2"},
    "joint": {"scaling": "optimal", "clip_probability": "optimal"},
}


@pytest.mark.slow
@pytest.mark.parametrize("options", ["counted", "plain", "add_remove", "joint"])
@pytest.mark.parametrize("secure", [False, True])
def test_noise_has_the_forecast_variance_in_every_column(options, secure):
    d, n = 6, 40
    S = covariance_of(d)
    it = mechanism(rotation(d), S, n, center=np.linspace(1, 2, d), **OPTIONS[options])
    X = np.tile(it.center, (n, 1))
    draws = [it.release(X, rng=None if secure else np.random.default_rng(i)).estimate for i in range(600)]
    off = (np.array(draws) - n * it.center) / it.noise_std
    tails = 1.0 if it.noise_law == "gaussian" else 3.0  # l2 noise has longer tails
    assert np.all(np.abs(off.mean(axis=0)) < 4.5 / np.sqrt(600))
    assert np.all(np.abs((off**2).mean(axis=0) - 1) < 4.5 * tails * np.sqrt(2 / 600))


@pytest.mark.parametrize("seed", range(20))
def test_simulated_error_is_the_forecast(seed):
    """`GaussianDataMechanism.error` forecasts the mean squared error of 150 releases, within 4.5 standard errors.

    The releases are simulated. `seed` determines the basis, the covariance matrix and other parameters. For every
    second seed, the standard deviations that the mechanism gets belong to another covariance matrix than that of the
    rows.
    """
    rng = np.random.default_rng(seed)
    d, n = int(rng.integers(2, 9)), int(rng.integers(20, 400))
    S, guess = covariance_of(d, seed), covariance_of(d, seed + 100 * (seed % 2))  # every second basis is a wrong one
    basis = [bases.from_covariance(guess), rotation(d, seed), "dct", bases.haar(d)][seed % 4]
    p = float(rng.choice([0.001, 0.05, 0.3]))
    sigma = as_basis(basis, d).std(guess)
    mean = rng.normal(size=d) * np.sqrt(np.diag(S)) * (seed % 3) / 3
    it = GaussianDataMechanism(sigma, n, 50.0, 1e-6, basis=basis, clip_probability=p)  # clipping matters
    root, errors = np.linalg.cholesky(S), []
    for _ in range(150):
        X = mean + rng.normal(size=(n, d)) @ root.T
        errors.append(np.sum((it.release(X, rng=rng).estimate - X.sum(axis=0)) ** 2))
    error = it.error(mean=mean, covariance=S)
    assert abs(np.mean(errors) - error.total) < 4.5 * np.std(errors) / np.sqrt(len(errors))
    if not mean.any():
        np.testing.assert_allclose(np.sum(it.noise_std**2), error.noise)


def test_a_basis_changes_nothing_but_the_coordinates():
    """A mechanism with a basis U, for rows x, is equivalent to a mechanism without a basis for the rotated rows U x.

    The parameters and the forecasts of the two mechanisms agree. The sum that the first one releases, multiplied by U,
    is the sum that the second one releases.
    """
    U, S = rotation(), covariance_of()
    sigma, X = np.sqrt(np.diag(U @ S @ U.T)), rows()
    options = {"center": CENTER, "count_clipped": True}
    it = GaussianDataMechanism(sigma, len(X), 1.0, 1e-6, basis=U, **options)
    plain = GaussianDataMechanism(sigma, len(X), 1.0, 1e-6, **options | {"center": U @ CENTER})
    assert it.clip_norm == plain.clip_norm
    assert np.array_equal(it.b, plain.b)
    np.testing.assert_allclose(it.error().total, plain.error().total, rtol=1e-13)
    np.testing.assert_allclose(it.error(mean=0).total, plain.error(mean=0).total, rtol=1e-10)
    np.testing.assert_allclose(np.sum(it.error_by_column()), it.error().total, rtol=1e-12)
    rotated = plain.release(X @ U.T, rng=np.random.default_rng(1))
    here = it.release(X, rng=np.random.default_rng(1))
    np.testing.assert_allclose(U @ here.estimate, rotated.estimate, rtol=1e-9, atol=1e-6)
    assert here.clipped == rotated.clipped
    assert it.excess_clipped(here) == plain.excess_clipped(rotated)
    assert it.confidence_radius(0.9) == plain.confidence_radius(0.9)


def test_columns_are_matched_by_name_before_they_are_rotated():
    S = covariance_of(3)
    basis = bases.from_covariance(S)
    options = {"columns": ["a", "b", "c"], "center": {"c": 3, "a": 1, "b": 2}}
    it = GaussianDataMechanism(basis.sigma, 5, 1.0, 1e-6, basis=basis, **options)
    assert it.center.tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match="sigma must have no names with a basis"):
        GaussianDataMechanism({"a": 1, "b": 2, "c": 3}, 5, 1.0, 1e-6, basis=basis)


def test_equal_bases_make_equal_mechanisms():
    one, other = (GaussianDataMechanism(np.ones(4), 9, 1.0, 1e-6, basis=b) for b in ("dct", bases.dct(4)))
    assert one == other == pickle.loads(pickle.dumps(one))
    assert hash(one) == hash(other)
    assert one != GaussianDataMechanism(np.ones(4), 9, 1.0, 1e-6, basis="haar")
    assert "Basis('dct', shape=(4,))" in repr(one)


def test_a_basis_never_changes():
    """The arrays in a `bases.Basis` are copies that cannot be written to, also after pickling."""
    U, sigma = np.array([[0.6, 0.8], [-0.8, 0.6]]), np.array([2.0, 1.0])
    basis = bases.Basis((2,), (U,), "mine", sigma=sigma)
    assert basis == bases.Basis((2,), (U.tolist(),), "a list")
    U *= 1e6
    sigma *= 1e6
    for one in (basis, pickle.loads(pickle.dumps(basis))):
        np.testing.assert_array_equal(one.matrix, [[0.6, 0.8], [-0.8, 0.6]])
        np.testing.assert_array_equal(one.sigma, [2.0, 1.0])
        assert not one.factors[0].flags.writeable
        assert not one.sigma.flags.writeable


@pytest.mark.parametrize(
    ("basis", "message"),
    [
        (np.ones((4, 4)), "basis must be orthogonal: rows 0 and 1 have the inner product 4 and not 0"),
        (np.eye(4) + 1e-5, "basis must be orthogonal: rows 0 and 0"),
        (np.eye(4)[:3], r"basis must be a square matrix whose rows are the basis vectors, got shape \(3, 4\)"),
        (np.eye(3), "basis must have the 4 entries of sigma in each of its vectors, got 3"),
        (np.full((4, 4), np.nan), "basis"),
        (1e200 * np.eye(4), r"basis must be orthogonal, but basis\[0, 0\] = 1e\+200"),
        ("fourier", 'basis must be a matrix or a name such as "dct", "haar" or "dct:8x8", got \'fourier\''),
        ("dct:2x", "basis must be a matrix or a name"),
        ("dct:2x3", "basis must have the 4 entries of sigma in each of its vectors, got 6"),
        ("haar:1000000000x2", "basis must have the 4 entries of sigma in each of its vectors, got 2000000000"),
        (aslinearoperator(np.diag([1.0, 1, 1, 2])), "basis must be orthogonal, but matvec and rmatvec are off by"),
        (
            LinearOperator((4, 4), matvec=lambda x: 2 * x, rmatvec=lambda x: x / 2),  # these two undo each other
            "basis must be orthogonal, but matvec and rmatvec are off by",
        ),
        (aslinearoperator(np.eye(4)[:2]), r"basis must be a square operator, got shape \(2, 4\)"),
    ],
)
def test_bad_bases_are_refused(basis, message):
    with pytest.raises(ValueError, match=message):
        GaussianDataMechanism(np.ones(4), 9, 1.0, 1e-6, basis=basis)


@pytest.mark.parametrize("make", [bases.dct, bases.haar])
@pytest.mark.parametrize("axes", [0, -2, np.int64(0), np.array(0), [0], (0, 0), [0, -2], np.array([0]), range(1)])
def test_axes_in_any_form_are_those_that_are_named(make, axes):
    basis = make((4, 3), axes=axes)
    np.testing.assert_allclose(basis.matrix, np.kron(make(4).matrix, np.eye(3)), atol=1e-15)
    assert make((4, 3), axes=map(int, "01")) == make((4, 3))


@pytest.mark.parametrize("make", [bases.dct, bases.haar])
@pytest.mark.parametrize("axes", [2, [0.5], "0", ["0"], [None], [np.nan], [True], [[0]], b"0"])
def test_what_is_no_axis_is_refused(make, axes):
    with pytest.raises((ValueError, TypeError), match=r"^axes"):
        make((4, 3), axes=axes)


@pytest.mark.parametrize(
    ("covariance", "message"),
    [
        ([[1, 0.5]], r"covariance must be a square matrix, got shape \(1, 2\)"),
        ([[1, 1], [1, 1]], "covariance must be positive definite, but its correlation matrix has the eigenvalue"),
        ([[1, 2], [2, 1]], "covariance must have no entry above the product"),
        ([[1, 0.5], [0.4, 1]], "covariance must be symmetric"),
        ([[1, 0], [0, 0]], r"the diagonal of covariance\[1\] must lie between 1e-200 and 1e.200, got 0"),
        ([[1, np.nan], [np.nan, 1]], "covariance"),
    ],
)
def test_bad_covariances_are_refused(covariance, message):
    with pytest.raises(ValueError, match=message):
        bases.from_covariance(covariance)


@pytest.mark.parametrize(
    ("covariance", "message"),
    [
        ([[1, 0.5], [0.4, 1]], "covariance must be symmetric"),
        ([[1, 2], [2, 1]], "covariance must have no entry above the product"),
        ([[1, 0], [0, -1]], r"the diagonal of covariance\[1\] must lie between 1e-200 and 1e.200, got -1"),
        ([[1, 1], [1, 0]], r"the diagonal of covariance\[1\] must lie between 1e-200 and 1e.200, got 0"),
        (np.eye(3), r"covariance must have shape \(2, 2\), got \(3, 3\)"),
    ],
)
@pytest.mark.parametrize("basis", [bases.haar(2), as_basis(aslinearoperator(np.eye(2)), 2)], ids=["haar", "operator"])
def test_standard_deviations_along_a_basis_are_those_of_a_covariance_matrix(basis, covariance, message):
    with pytest.raises(ValueError, match=message):
        basis.std(covariance)


def test_a_constant_column_has_no_variance_along_a_basis():
    np.testing.assert_allclose(bases.haar(2).std([[0, 0], [0, 2]]), [1, 1], rtol=1e-15)
    assert not bases.haar(2).std(np.zeros((2, 2))).any()


def test_a_rounded_matrix_is_replaced_by_the_nearest_orthogonal_one():
    U = rotation()
    for rounded in (U.astype(np.float32), U.round(7)):
        polished = as_basis(rounded, D).matrix
        np.testing.assert_allclose(polished @ polished.T, np.eye(D), atol=1e-14)
        u, _, v = np.linalg.svd(rounded.astype(float))
        np.testing.assert_allclose(polished, u @ v, atol=1e-12)


# Bases from covariance matrices and from public rows


def noise(basis, S, sigma):
    """Return the variance of the noise in a sum of rows, up to a constant factor, to compare bases.

    Rows have the covariance matrix `S`. Their coordinates along `basis` are scaled by b = `sigma`**-0.5, where `sigma`
    has guesses of the coordinates' standard deviations. The clip norm is taken to be proportional to the root mean
    square norm of a scaled row. So the number is the expected squared norm of a scaled row, times sum(1 / b**2).
    """
    return np.sum(basis.std(S) ** 2 / sigma) * np.sum(sigma)


@pytest.mark.parametrize("seed", range(5))
def test_no_rotation_beats_the_eigenvectors(seed):
    """The sum of the standard deviations along the vectors of a basis is least for the eigenvectors of the covariance.

    This follows from the theorem of Schur and Horn. The eigenvectors are compared with random bases and with the unit
    vectors. `seed` determines the covariance and the bases.
    """
    S = covariance_of(7, seed)
    best, rng = bases.from_covariance(S), np.random.default_rng(seed)
    least = np.sum(best.sigma) ** 2
    np.testing.assert_allclose(best.sigma, best.std(S), rtol=1e-9)
    assert least <= np.sum(np.sqrt(np.diag(S))) ** 2
    for angle in (1e-3, 0.1, 10.0):
        K = rng.normal(size=(7, 7)) * angle
        U = np.linalg.qr(np.eye(7) + K - K.T)[0] @ best.matrix
        assert np.sum(as_basis(U, 7).std(S)) ** 2 >= least * (1 - 1e-12)


def tables():
    """Return a dictionary {kind of columns: covariance matrix} of examples.

    The columns are the pixels of a smooth image ("image"), the values of a smooth series ("series"), those of a factor
    model ("factors"), and independent columns with unequal or equal variances.
    """
    lag = np.abs(np.subtract.outer(np.arange(8), np.arange(8)))
    rng = np.random.default_rng(5)
    load = rng.normal(size=(30, 3))
    return {
        "image": np.kron(0.95**lag, 0.95**lag),
        "series": 0.9 ** np.abs(np.subtract.outer(np.arange(30), np.arange(30))),
        "factors": load @ load.T + np.diag(rng.uniform(0.2, 2, 30)),
        "independent": np.diag(np.geomspace(1, 100, 30)),
        "equal": np.eye(30),
    }


@pytest.mark.parametrize("name", tables())
def test_thirty_public_rows_help_and_never_hurt(name):
    """With a basis from 30 public rows, the variance of the noise is at most 5 % larger than without a basis.

    This holds for every covariance in `tables`, and `name` is its key. For the correlated columns of "image", the
    variance with the basis is on average less than 0.4 times that without it; for those of "series" and "factors" it is
    less than 0.8 times. If the columns are independent, they are the basis, although chance promises a little gain.
    """
    S, ratios = tables()[name], []
    for seed in range(6):
        X = np.random.default_rng(seed).multivariate_normal(np.zeros(len(S)), S, 30, method="cholesky")
        basis = bases.from_public(X)
        assert np.array_equal(basis.matrix, np.eye(len(S))) == (name in ("independent", "equal"))
        columns = noise(as_basis(np.eye(len(S)), len(S)), S, X.std(axis=0, ddof=1))
        ratios.append(noise(basis, S, basis.sigma) / columns)
    assert max(ratios) < 1.05
    if name in ("image", "series", "factors"):
        assert np.mean(ratios) < {"image": 0.4, "series": 0.8, "factors": 0.8}[name]


@pytest.mark.parametrize("unit", [1e-90, 1e-6, 1.0, 1e6])
def test_sigma_of_public_rows_is_that_along_the_vectors(unit):
    """The attribute `sigma` of a basis from public rows is near the standard deviations of the rows along its vectors.

    It need not be equal to them, because `bases.from_public` shrinks the correlations. So each entry is compared with
    two numbers: the standard deviation of the rows along the basis vector, and what this would be if the columns were
    uncorrelated. The entry is at least 0.999 times the smaller number, and at most 1.5 times the larger one. The first
    three columns are a million times as large as the last two, and all are multiplied by `unit`.
    """
    rng = np.random.default_rng(1)
    z = rng.normal(size=(60, 1))
    large, small = z + 0.3 * rng.normal(size=(60, 3)), rng.normal(size=(60, 2))
    X = unit * np.hstack([1e6 * large, small])
    basis = bases.from_public(X)
    along = np.std(basis.forward(X), axis=0, ddof=1)
    apart = np.sqrt(basis.matrix**2 @ np.var(X, axis=0, ddof=1))
    assert np.all(basis.sigma >= 0.999 * np.minimum(along, apart))
    assert np.all(basis.sigma <= 1.5 * np.maximum(along, apart))


@pytest.mark.parametrize(("m", "d"), [(4, 10), (4, 20), (5, 8)])
def test_new_rows_are_about_as_long_as_sigma_of_few_public_rows_says(m, d):
    """Along a basis from few public rows, the mean squared norm of new, scaled rows is about what `sigma` says.

    A mechanism scales a row so that its squared norm is sum(x**2 / sigma), for the coordinates x along the basis. The
    mean of this would be sum(sigma) if `sigma`, computed from the public rows, were the true standard deviations. The
    mean divided by sum(sigma) is from 0.9 to 1.1 on average over 20 bases, each from `m` rows with `d` columns.
    """
    rng, ratios = np.random.default_rng(1), []
    for _ in range(20):
        basis = bases.from_public(rng.normal(size=(m, d)))
        new = basis.forward(rng.normal(size=(500, d)))
        ratios.append(np.mean(np.sum(new**2 / basis.sigma, axis=1)) / np.sum(basis.sigma))
    assert 0.9 < np.mean(ratios) < 1.1


@pytest.mark.parametrize("m", [12, 30])
def test_sigma_of_public_rows_is_never_below_their_own_spread(m):
    """`bases.from_public` never reduces `sigma`, not even for rows of 1 and -1, whose squares do not scatter."""
    rows = np.resize([1.0, -1.0], (m, 1))
    assert bases.from_public(rows).sigma[0] >= rows.std(ddof=1) * (1 - 1e-12)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (1e155, r"rows\[1, 1\] must lie between -1e.100 and 1e.100"),
        (1e-155, "rows must vary in every column, but column 1 varies by 5.*e-156 only"),
        (0.0, "rows must vary in every column, but column 1 is constant"),
    ],
)
def test_public_rows_whose_squares_are_no_doubles_are_refused(entry, message):
    with pytest.raises(ValueError, match=message):
        bases.from_public([[1.0, 0.0], [0.0, entry], [2.0, 0.0], [1.0, entry], [1.0, entry]])


@pytest.mark.parametrize("value", [0.1, 1.7e9 + 0.1])
def test_a_constant_column_whose_mean_is_rounded_is_refused(value):
    rows = np.random.default_rng(1).normal(size=(30, 3))
    rows[:, 1] = value
    with pytest.raises(ValueError, match="column 1 is constant"):
        bases.from_public(rows)


def test_compare_puts_the_best_basis_first():
    S = tables()["image"]
    choice = {"columns": None, "dct": "dct:8x8", "haar": "haar", "best": bases.from_covariance(S)}
    found = bases.compare(choice, S, 10_000, 1.0, 1e-6)
    totals = [forecast.total for forecast in found.values()]
    assert totals == sorted(totals)
    assert list(found)[0::3] == ["best", "columns"]
    one = GaussianDataMechanism(bases.dct((8, 8)).std(S), 10_000, 1.0, 1e-6, basis="dct:8x8")
    assert found["dct"] == one.error(covariance=S)


@pytest.mark.parametrize("d", [2, 3, 4, 8])
def test_compare_accepts_columns_that_sum_to_a_constant(d):
    shares = np.eye(d) / d - 1 / d**2
    found = bases.compare({"columns": None, "dct": "dct", "haar": "haar"}, shares, 10_000, 1.0, 1e-6)
    assert found["dct"].total == pytest.approx(found["haar"].total, rel=1e-6)
    assert found["dct"].total < found["columns"].total


def test_compare_matches_names():
    """`bases.compare` takes a covariance matrix with column names, and puts it into the order of the option `columns`.

    `GaussianDataMechanism.error` does this, too. If the option `columns` is None, `compare` uses the order of the
    columns in the covariance matrix, a pandas frame, and puts other options that have names into this order.
    """
    cov = pd.DataFrame([[100.0, 6], [6, 4]], index=["income", "age"], columns=["income", "age"])
    options = {"columns": ["age", "income"], "scaling": {"age": 1, "income": 0.1}, "center": {"income": 5, "age": 2}}
    choice = {"columns": None, "haar": "haar"}
    found = bases.compare(choice, cov, 1000, 1, 1e-6, **options)
    mechanism = GaussianDataMechanism({"age": 2, "income": 10}, 1000, 1, 1e-6, **options)
    assert found["columns"] == mechanism.error(covariance=cov)
    ordered = cov.loc[options["columns"], options["columns"]]
    assert found == bases.compare(choice, ordered.to_numpy(), 1000, 1, 1e-6, **options)
    plain = bases.compare({"columns": None}, cov, 1000, 1, 1e-6, **options | {"columns": None})
    assert plain["columns"].total == pytest.approx(found["columns"].total)
    with pytest.raises(ValueError, match="covariance must have the names of the mechanism's columns, 'age', 'pay'"):
        bases.compare(choice, cov, 1000, 1, 1e-6, columns=["age", "pay"])


@pytest.mark.parametrize(("name", "d"), [("dct", 300), ("haar", 64), ("dct:8x8", 64), ("matrix", 300), ("matrix", 7)])
def test_private_questions_rotate_a_row_the_same_wherever_it_is(name, d):
    """The coordinates of a row along a basis are equal to the last bit, wherever in a table the row stands.

    Otherwise the removal of one row could change the coordinates of another row, and the answer to a private query
    would change by more than its sensitivity. `name` is the basis, and `d` the number of columns.
    """
    rng = np.random.default_rng(3)
    basis = as_basis(np.linalg.qr(rng.normal(size=(d, d)))[0] if name == "matrix" else name, d)
    X = np.asfortranarray(rng.normal(size=(1000, d)))
    X[500:] = X[0]
    coordinates = private_rows._Coordinates(basis=basis)
    whole = coordinates(X)
    np.testing.assert_allclose(whole, basis.forward(X), rtol=0, atol=1e-12)
    for start, stop in ((1, 1000), (0, 999), (3, 4), (37, 120)):
        assert np.array_equal(coordinates(X[start:stop]), whole[start:stop])
    assert np.array_equal(whole[500:], np.broadcast_to(whole[0], (500, d)))


@pytest.mark.parametrize("d", [3, 8192, 8193, 20_000])
def test_a_norm_is_the_same_wherever_its_row_is(d):
    """The function `norms` returns the same norm of a row, to the last bit, wherever in a table the row stands.

    `d` is the number of columns. Above 8192 columns, the squares of the entries are added in several parts.
    """
    X = np.random.default_rng(4).normal(size=(40, d))
    whole = norms.norms(X)
    np.testing.assert_allclose(whole, np.linalg.norm(X, axis=1), rtol=1e-14)
    for start, stop in ((1, 40), (0, 39), (7, 8), (11, 14)):
        assert np.array_equal(norms.norms(X[start:stop]), whole[start:stop])
    assert norms.norms(X[:0]).shape == (0,)


def test_a_rounded_covariance_is_as_good_as_its_transpose():
    rounded = covariance_of(5) * (1 + 1e-7 * np.random.default_rng(2).normal(size=(5, 5)))
    found, other = bases.from_covariance(rounded), bases.from_covariance(rounded.T)
    np.testing.assert_allclose(found.sigma, other.sigma, rtol=1e-13)
    np.testing.assert_allclose(found.matrix, other.matrix, atol=1e-13)


@pytest.mark.parametrize("ratio", [10.0, 1e8, 1e10])
def test_the_order_of_columns_does_not_matter(ratio):
    """The standard deviations along the eigenvectors do not depend on the order of the columns, whatever their units.

    `ratio` is the ratio of the largest and the least standard deviation of the columns.
    """
    std = np.geomspace(1, ratio, 8)
    covariance = 0.6 ** np.abs(np.subtract.outer(np.arange(8), np.arange(8))) * np.outer(std, std)
    found = bases.from_covariance(covariance[::-1, ::-1])
    for order in (np.arange(8), np.array([3, 7, 0, 5, 1, 6, 2, 4])):
        basis = bases.from_covariance(covariance[np.ix_(order, order)])
        np.testing.assert_allclose(basis.sigma, found.sigma, rtol=1e-8)
        entries, expected = basis.forward(np.eye(8))[np.argsort(order)], found.forward(np.eye(8))[::-1]
        np.testing.assert_allclose(np.abs(entries), np.abs(expected), atol=1e-8)


def test_standard_deviations_decrease_in_any_units():
    std = np.array([1e-10, 1e7, 0.1, 1e-10])
    correlation = [[1, -0.11, 0.19, 0.16], [-0.11, 1, 0.67, -0.6], [0.19, 0.67, 1, -0.59], [0.16, -0.6, -0.59, 1]]
    assert np.all(np.diff(bases.from_covariance(correlation * np.outer(std, std)).sigma) <= 0)


def test_the_least_standard_deviation_is_that_along_its_vector():
    """For almost dependent columns in unlike units, `sigma` of a basis agrees with its method `std` within 1e-6."""
    rng = np.random.default_rng(13230)
    root = rng.normal(size=(5, 5)) * 10 ** rng.uniform(-4, 4, (5, 1))
    basis = bases.from_covariance(root @ root.T)
    np.testing.assert_allclose(basis.sigma, basis.std(root @ root.T), rtol=1e-6)


@pytest.mark.parametrize("m", [30, 100])
def test_rare_values_in_public_rows_do_not_enlarge_all_standard_deviations(m):
    """`sigma` from `bases.from_public` is within 25 % of the columns' spreads, also for columns with a single 1."""
    rows = np.hstack([np.random.default_rng(1).normal(size=(m, 4)), np.eye(m, 3)])
    std = np.sort(rows.std(axis=0, ddof=1))[::-1]
    np.testing.assert_allclose(np.sort(bases.from_public(rows).sigma)[::-1], std, rtol=0.25)


def test_the_order_of_columns_does_not_matter_to_public_rows():
    d, std = 8, np.geomspace(1, 1e8, 8)
    root = np.linalg.cholesky(0.9 ** np.abs(np.subtract.outer(np.arange(d), np.arange(d))))
    rows = np.random.default_rng(0).normal(size=(40, d)) @ root.T * std
    found = bases.from_public(rows[:, ::-1])
    assert not np.allclose(found.sigma, np.sort(rows.std(axis=0, ddof=1))[::-1], rtol=0.1)
    for order in (np.arange(d), np.array([3, 7, 0, 5, 1, 6, 2, 4])):
        np.testing.assert_allclose(bases.from_public(rows[:, order]).sigma, found.sigma, rtol=1e-6)
