"""Test AdaptiveDataMechanism with a basis: directions along which rows are scaled and clipped, in place of the columns.

A basis is public, or is learned from noisy second moments of the rows.
"""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest

from egm import AdaptiveDataMechanism, bases
from egm._adaptive.learned import correlation, units
from egm._adaptive.search import Search
from egm._basis import as_basis

N, D, RHO = 10_000, 12, 0.05
EQUAL = 0.7 + 0.3 * np.eye(D)
NEIGHBORS = 0.9 ** np.abs(np.subtract.outer(np.arange(D), np.arange(D)))
MEAN = 3.0


def mechanism(basis=None, n=N, rho=RHO):
    return AdaptiveDataMechanism(n, rho, radius=50.0, sigma_range=(0.01, 10.0), basis=basis)


def run(covariance, basis, seed, n=N):
    """Release the sum of `n` random normal rows by AdaptiveDataMechanism; return (release, squared error).

    `covariance` is the covariance matrix of the rows. `basis` is the mechanism's option for the directions along which
    rows are clipped. `seed` chooses the rows and the noise.
    """
    X = MEAN + np.random.default_rng(seed).normal(size=(n, len(covariance))) @ np.linalg.cholesky(covariance).T
    release = mechanism(basis, n).release(X, rng=np.random.default_rng([seed, 1]))
    return release, float(np.sum((release.estimate - X.sum(axis=0)) ** 2))


def noise_of(d, std, seed):
    """Return a random symmetric matrix of normal noise, shape (`d`, `d`).

    The standard deviation of an entry is sqrt(2) `std` on the diagonal, and `std` elsewhere. `seed` chooses the noise.
    """
    Z = np.random.default_rng(seed).normal(0, std / np.sqrt(2), (d, d))
    return Z + Z.T


@pytest.mark.parametrize("covariance", [EQUAL, NEIGHBORS, np.eye(D)], ids=["equal", "neighbors", "none"])
@pytest.mark.parametrize("factor", [1.0, 7.0])
def test_without_noise_the_correlation_is_exact(covariance, factor):
    """From second moments without noise, `correlation` computes the exact correlation matrix of the rows.

    The second moments are `factor` times the matrix `covariance`, whose diagonal is 1.
    """
    np.testing.assert_allclose(correlation(factor * covariance, 0.0, 10**14), covariance, atol=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_shrinking_makes_the_error_smaller(seed):
    """`correlation` estimates a correlation matrix from noisy second moments with a small error in the Frobenius norm.

    The error of the estimate is less than half of the error of the noisy moments themselves, and less than half of the
    error of the identity matrix. The estimate is symmetric and positive definite, with ones on the diagonal. `seed` is
    the seed of the noise.
    """
    d, std = 60, 1.0
    R = 0.7 + 0.3 * np.eye(d)
    seen = R + noise_of(d, std, seed)
    found = correlation(seen, std, 10**9)
    errors = [np.linalg.norm(it - R) for it in (found, seen, np.eye(d))]
    assert errors[0] < 0.5 * min(errors[1:])
    np.testing.assert_allclose(np.diag(found), 1.0)
    np.testing.assert_allclose(found, found.T, atol=1e-12)
    assert np.linalg.eigvalsh(found)[0] > 0


@pytest.mark.parametrize("size", [1e151, 1e300, 1.7e308])
def test_a_center_along_a_basis_is_finite_whatever_step_is_made(size):
    """Even if noise makes a step of the center so long that a rotation overflows, the center stays in its range."""
    for signs in itertools.product((1.0, -1.0), repeat=3):
        search = SimpleNamespace(center=np.zeros(3), bound=10.0, basis=as_basis("dct", 3))
        with np.errstate(all="raise"):
            beyond = Search.move(search, size * np.array(signs))
        assert np.all(np.isfinite(beyond))
        assert np.all(np.abs(search.basis.inverse(search.center)) <= 10.0 * (1 + 1e-12))


def along_a_basis(**attributes):
    """Return a `Search` with little more than the given `attributes`, and a list of bases to which it turns rows."""
    search, turned = object.__new__(Search), []
    search.__dict__.update(d=4, rows=SimpleNamespace(turn=turned.append), center_std=np.ones(4), **attributes)
    return search, turned


def test_a_search_that_gives_a_basis_up_asks_about_the_columns():
    """`in_columns` returns a search with the columns as coordinates, and from then on rows are asked for in columns."""
    basis, center, sigma = as_basis("dct", 4), np.array([1.0, -2.0, 3.0, 5.0]), np.array([1.0, 2.0, 3.0, 4.0])
    search, turned = along_a_basis(basis=basis, center=basis.forward(center), columns=(sigma, (0.5, 9.0)))
    other = search.in_columns()
    assert turned == [None]
    assert (other.basis, other.sigma_range, search.basis) == (None, (0.5, 9.0), basis)
    np.testing.assert_allclose(other.center, center)
    np.testing.assert_allclose(other.center_std, 1.0)
    assert np.array_equal(other.sigma, sigma)
    assert other.in_columns() is None


def test_equal_columns_have_their_whole_spread_in_one_coordinate():
    """Four equal columns with the largest allowed standard deviation have twice this along a basis, which is allowed.

    A smaller limit would make the rows look longer than normal ones.
    """
    basis = as_basis("dct", 4)
    search, turned = along_a_basis(center=np.zeros(4), sigma_range=(0.5, 9.0), reweigh=lambda: None)
    search.turn(basis, np.array([18.0, 1.5, 1.5, 30.0]))
    assert turned == [basis]
    assert search.sigma[0] == pytest.approx(math.sqrt(18.0**2 - 1), rel=1e-12)  # without the error of the center
    assert search.sigma[3] == 18.0


@pytest.mark.parametrize("mean", [0.0, -1e-3, 1e-12])
def test_a_correlation_has_its_sign_if_noise_hides_the_variances(mean):
    """If noise makes the `mean` of the second moments on the diagonal zero or negative, the unit remains positive.

    A correlation that is clearly above the noise is estimated with its sign, and the least units of a measurement are
    positive and finite.
    """
    for sign in (1, -1):
        moments = np.array([[mean, sign * 10.0], [sign * 10.0, mean]])
        found = correlation(moments, 1.0, 10**6)
        assert 0.9 < sign * found[0, 1] <= 1
        least = units(moments, 1.0, 10**6, np.ones(2), np.eye(2))
        assert np.all((least > 0) & (least < 1))


def test_noise_alone_shows_no_correlation():
    """If the second moments are the identity matrix plus noise, `correlation` returns the identity matrix or nearly so.

    `correlation` estimates the correlation matrix of the rows. In 20 draws of the noise, the median distance to the
    identity is 0, and the largest one is less than half of the Frobenius norm of the noise.
    """
    found = [correlation(np.eye(40) + noise_of(40, 0.5, seed), 0.5, 10**9) for seed in range(20)]
    off = [np.linalg.norm(it - np.eye(40)) for it in found]
    assert np.median(off) == 0
    assert max(off) < 0.5 * np.linalg.norm(noise_of(40, 0.5, 0))


@pytest.mark.slow
@pytest.mark.parametrize("covariance", [EQUAL, NEIGHBORS], ids=["equal", "neighbors"])
def test_a_learned_basis_saves_at_least_half_of_the_error(covariance):
    """With a basis that is learned from the rows, the mean squared error is less than half of that without a basis.

    A basis is a set of directions along which rows are clipped, in place of the columns. The mean squared error of ten
    releases with a basis is that of a forecast without data, up to five standard errors plus 10 %. To learn the basis
    costs less than 3 % of the budget. `covariance` is that of the rows.
    """
    plain, learned = ([run(covariance, basis, seed) for seed in range(10)] for basis in (None, "learn"))
    errors = np.array([error for _, error in learned])
    assert np.mean(errors) < 0.5 * np.mean([error for _, error in plain])
    before = mechanism("learn").forecast(covariance=covariance, center=MEAN).error.total
    assert abs(np.mean(errors) - before) < 5 * np.std(errors) / np.sqrt(10) + 0.1 * before
    for release, _ in learned:
        assert release.basis is not None
        assert release.model_holds
        np.testing.assert_allclose(release.sigma, release.basis.std(covariance), rtol=0.25)
        assert release.spent["basis"] < 0.03 * RHO


def one_hot(seed):
    """Return 10 000 random rows of five dependent categorical variables in one-hot coding, shape (10 000, 26).

    `seed` is the seed of the random numbers.
    """
    rng = np.random.default_rng(seed)
    common, columns = rng.integers(0, 4, N), []
    for k in (3, 4, 5, 6, 8):
        columns.append(np.eye(k)[np.where(rng.random(N) < 0.7, common % k, rng.integers(0, k, N))])
    return np.concatenate(columns, axis=1)


@pytest.mark.slow
def test_rows_that_are_longer_along_a_basis_are_summed_in_the_columns():
    """For rows of zeros and ones, a release with basis="learn" looks for a basis, but then clips and sums without it.

    A basis is a set of directions along which rows are scaled and clipped, in place of the columns. Here it is not
    used, because the norms of scaled rows vary more along the directions of a basis than along the columns. The search
    for a basis makes the variances of the noise, added up over the columns, at most 15 % larger.
    """
    errors = {}
    for seed, basis in itertools.product(range(10), (None, "learn")):
        X = one_hot(seed)
        release = mechanism(basis).release(X, rng=np.random.default_rng([seed, 1]))
        errors.setdefault(basis, []).append(np.sum(release.noise_std**2))
        assert release.basis is None
        assert (release.spent.get("basis", 0.0) > 0) == (basis == "learn")
    assert np.mean(errors["learn"]) < 1.15 * np.mean(errors[None])


@pytest.mark.slow
def test_a_basis_that_needs_more_noise_is_given_up():
    """If two columns of thirty have long tails, basis="learn" does not make the error much larger.

    With basis="learn", a release finds directions along which rows are clipped, in place of the columns, but does not
    use them if they need more noise. Here they often would, because of the two columns; the other columns are normal
    and correlated. In ten runs, the root mean square error is at most 1.2 times that without a basis.
    """
    d, near = 30, np.abs(np.subtract.outer(np.arange(30), np.arange(30)))
    root, squares = np.linalg.cholesky(0.99**near), []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(N, d)) @ root.T
        X[:, [3, 20]] = np.minimum(0.3 * rng.pareto(1.5, size=(N, 2)), 60.0)
        for basis in (None, "learn"):
            it = AdaptiveDataMechanism(N, 0.2, radius=3.0, sigma_range=(0.01, 30.0), basis=basis)
            release = it.release(X, rng=np.random.default_rng([seed, 1]))
            squares.append(np.sum((release.estimate - X.sum(axis=0)) ** 2))
    in_columns, learned = np.mean(np.reshape(squares, (10, 2)), axis=0)
    assert learned < 1.2**2 * in_columns


def test_independent_columns_stay_the_coordinates():
    """If the columns are independent, a release with basis="learn" looks for a basis, and then uses none.

    A basis is a set of directions along which rows are clipped. The search for it costs less than 3 % of the
    budget.
    """
    release, _ = run(np.eye(D), "learn", 1)
    assert release.basis is None
    assert release.spent["basis"] < 0.03 * RHO
    plain, _ = run(np.eye(D), None, 1)
    assert np.median(release.noise_std) < 1.03 * np.median(plain.noise_std)  # a column may be corrected by chance


def test_where_nothing_could_be_seen_nothing_is_asked():
    """With only 3000 rows, a release with basis="learn" does not look for a basis, and spends no budget on it.

    A basis is a set of directions along which rows are clipped. The estimate is that of a release without
    basis="learn".
    """
    learned, _ = run(EQUAL, "learn", 1, n=3000)
    plain, _ = run(EQUAL, None, 1, n=3000)
    assert learned.basis is None
    assert learned.spent == plain.spent
    assert learned.estimate.tolist() == plain.estimate.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("basis", [bases.from_covariance(NEIGHBORS), "haar", "dct", np.eye(D)[::-1]], ids=repr)
def test_errors_along_a_public_basis_are_the_forecast_ones(basis):
    """With a public `basis`, at most one of sixteen releases has a squared error above five times its own forecast.

    A basis has the directions along which rows are clipped. If they are the eigenvectors of the covariance, the mean of
    the squared errors is also that of a forecast without data, up to five standard errors plus 10 %. A release finds a
    center within 1 of the true mean, and standard deviations along the basis within 25 % of the true ones.
    """
    found = [run(NEIGHBORS, basis, seed) for seed in range(16)]
    errors = np.array([error for _, error in found])
    before = mechanism(basis).forecast(covariance=NEIGHBORS, center=MEAN).error.total
    if isinstance(basis, bases.Basis):  # elsewhere norms are not those of independent coordinates
        assert abs(np.mean(errors) - before) < 5 * np.std(errors) / np.sqrt(len(found)) + 0.1 * before
    assert sum(error > 5 * release.forecast.total for release, error in found) <= 1
    for release, _ in found:
        assert np.all(np.abs(release.center - MEAN) < 1)
        np.testing.assert_allclose(release.sigma, release.basis.std(NEIGHBORS), rtol=0.25)
        assert np.sum(release.noise_std**2) == pytest.approx(release.forecast.noise)


def test_a_forecast_along_a_basis_takes_its_standard_deviations():
    """For a mechanism with a public basis, `forecast` takes either a covariance or standard deviations along the basis.

    A basis has the directions along which rows are clipped. If they are the eigenvectors of the covariance, both
    arguments give the same total error, to a relative 1e-4.
    """
    basis = bases.from_covariance(NEIGHBORS)
    by_sigma = mechanism(basis).forecast(basis.sigma, center=MEAN)
    by_covariance = mechanism(basis).forecast(covariance=NEIGHBORS, center=MEAN)
    # the search before the basis is used knows the norms of the rows in two different approximations
    assert by_sigma.error.total == pytest.approx(by_covariance.error.total, rel=1e-4)


def test_the_center_stays_in_the_declared_range_of_the_columns():
    """If the true mean is beyond the declared radius, the center of a release is within the radius, even with a basis.

    The radius is the declared bound of each column's mean, and the center is the estimate of these means that clipping
    uses. The true means are 79 and the radius is 50. The released sum is at most the number of rows times the radius.
    """
    X = 49 + np.random.default_rng(1).normal(size=(N, D)) @ np.linalg.cholesky(EQUAL).T + 30  # beyond the declared 50
    release = mechanism("dct").release(X, rng=np.random.default_rng(2))
    assert np.all(np.abs(release.center) <= 50 * (1 + 1e-12))
    assert np.all(np.abs(release.estimate) <= 50 * N * (1 + 1e-12))


@pytest.mark.parametrize(
    ("basis", "message"),
    [
        (2 * np.eye(D), "basis must be orthogonal"),
        (np.eye(D)[:5], "basis must be a square matrix"),
        ("sine", 'basis must be a matrix or a name such as "dct"'),
        (np.full((D, D), np.nan), r"basis\[0, 0\] must not be NaN"),
    ],
)
def test_bad_bases_are_refused_at_once(basis, message):
    with pytest.raises(ValueError, match=message):
        mechanism(basis)


def test_a_public_basis_is_not_used_where_it_cannot_be_measured():
    """With only 3000 rows, a release does not use the given basis, and has the same estimate as without a basis.

    A basis has the directions along which rows are clipped. There are too few rows to measure the standard deviations
    along these directions.
    """
    (with_basis, _), (plain, _) = (run(NEIGHBORS, basis, 1, n=3000) for basis in ("dct", None))
    assert with_basis.basis is None
    assert with_basis.estimate.tolist() == plain.estimate.tolist()


@pytest.mark.parametrize("basis", [np.eye(3), "dct:8x8"], ids=["matrix", "name"])
def test_a_basis_for_other_columns_is_refused_before_rows_are_read(basis):
    with pytest.raises(ValueError, match=f"basis must have the {D} entries"):
        mechanism(basis).check(np.zeros((N, D)))


@pytest.mark.parametrize("options", [{}, {"sigma": np.ones(D), "covariance": EQUAL}], ids=["none", "both"])
def test_a_forecast_needs_one_of_sigma_and_covariance(options):
    with pytest.raises(ValueError, match="exactly one of sigma and covariance"):
        mechanism().forecast(**options)
