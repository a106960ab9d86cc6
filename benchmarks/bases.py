"""`python -m benchmarks.bases`: compare a learned basis with published methods for rows with correlated columns.

There are six data sets of 10 000 rows. Two have 30 normal columns: in "neighbors" the correlation of two columns falls
with their distance, and in "spectrum" the covariance matrix has random eigenvectors. Four are drawn at random from the
rows of the four real data sets of chapter 17. Each method gets the same budget rho in zCDP, for neighboring data sets
in which one row is replaced. The methods without a basis treat each column by itself.

    egm                         AdaptiveDataMechanism without a basis
    egm, learned                with basis="learn"
    egm, second moments         along the eigenvectors of `rivals.second_moments`, which cost a twentieth of the budget
    egm, more second moments    along such eigenvectors that cost a quarter of the budget
    PLAN                        PLAN without a basis
    PLAN, second moments        PLAN along eigenvectors that cost a quarter of the budget
    CoinPress, covariance       CoinPress as in the authors' code: half of the budget for a private covariance matrix

The second moments are those of differences of rows, whose mean is 0; their clip norm is three times the true root mean
square norm. CoinPress is told the largest true standard deviation along any direction. A user knows neither this norm
nor this standard deviation.

The method of Brown, Hopkins and Smith (2023) is not run. The column `least` of the results has the number of rows that
this method needs for (epsilon, delta)-differential privacy: 20 k t, where k is ceil(6 log(6 / delta) / epsilon) + 4 and
t is a threshold that the user chooses. Of the N / 2 differences of N rows, the method leaves out those whose leverage
is above 2 t / N. If it leaves out more than `LEFT_OUT` differences, it most likely gives no result. So t is the
smallest threshold with which this does not happen here. It is at least d, because the mean of the leverages is 2 d / N.

The result is written to `egm/study/data/bases.csv`. The random numbers depend only on set, method and run. The function
of each method takes the rows `X`, the budget `rho`, the name of the set and a random generator `rng`. It returns an
estimate of the mean, and True or False: whether a basis was used.
"""

import argparse
import math
import warnings
from functools import partial

import numpy as np
from matplotlib import cbook
from scipy.stats import ortho_group
from sklearn import datasets

from benchmarks import grid
from egm import AdaptiveDataMechanism, calibration
from egm.samplers import SimulationWarning
from egm.study import rivals

TABLE = grid.ROOT / "egm" / "study" / "data" / "bases.csv"
N, RUNS, OWN_RUNS = 10_000, 100, 400  # rows; runs of each rival; runs of egm without a basis and with a learned one
EPSILON, DELTA = 4.0, 1e-6
RHO = float(calibration.zcdp_rho(EPSILON, DELTA))
K = math.ceil(6 * math.log(6 / DELTA) / EPSILON) + 4
LEFT_OUT = math.floor(2 + 6 / EPSILON * math.log(3 / DELTA))  # so many may be left out with probability 1/2
COLUMNS = "rows,d,method,runs,rms,se,median,most,used,least"
# middle and half width of the range of the means, and the least standard deviation, as in chapter 17
RANGES = {
    "neighbors": (0.0, 3.0, 0.01),
    "spectrum": (0.0, 3.0, 0.01),
    "patches": (127.5, 127.5, 1.0),
    "digits": (8.0, 8.0, 0.05),
    "nuclei": (5.0, 5.0, 0.01),
    "voltage": (-25.0, 75.0, 0.1),
}


def sets():
    """Return a dictionary from the name of each of the six data sets to its source.

    The source is the covariance matrix of normal rows that are drawn anew in each run, or a matrix of real rows.
    """
    apart = np.abs(np.subtract.outer(np.arange(30), np.arange(30)))
    vectors = ortho_group.rvs(30, random_state=np.random.default_rng(17))
    found = {"neighbors": 0.9**apart, "spectrum": (vectors * np.arange(1.0, 31) ** -2) @ vectors.T}
    gray = [image.mean(axis=2) for image in datasets.load_sample_images().images]
    tiles = [image[: len(image) // 8 * 8, : image.shape[1] // 8 * 8] for image in gray]
    cut = [tile.reshape(len(tile) // 8, 8, -1, 8).swapaxes(1, 2).reshape(-1, 64) for tile in tiles]
    size = np.array([10, 10, 100, 1000, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1])
    found |= {"patches": np.concatenate(cut), "digits": datasets.load_digits().data}
    found["nuclei"] = datasets.load_breast_cancer().data / np.concatenate([size, size / 10, size])
    voltage = np.fromfile(cbook.get_sample_data("membrane.dat", asfileobj=False), dtype=np.float32)
    return found | {"voltage": 100.0 * voltage.reshape(-1, 16)}


def draw(name, source, run):
    """Return an array of shape (N, d): rows of the data set `name`, drawn for the run with the number `run`.

    `source` is the entry of `sets()` for this name. The middle of the range in which the means are declared to lie, see
    `RANGES`, is subtracted, so that the declared range is centered at 0.
    """
    rng = grid.generator("bases", name, run)
    if name in ("neighbors", "spectrum"):
        return rng.normal(size=(N, len(source))) @ np.linalg.cholesky(source).T
    return rng.choice(source, N) - RANGES[name][0]


def ours(X, rho, name, rng, basis=None):
    """Return the mean of `X` as AdaptiveDataMechanism estimates it, and whether it used a basis.

    `basis` is None, "learn" or a matrix. If the budget `rho` is small, the basis is not used. `name` is the name of the
    data set, for which `RANGES` has the declared ranges.
    """
    _, radius, low = RANGES[name]
    mechanism = AdaptiveDataMechanism(len(X), rho, radius=radius, sigma_range=(low, 10 * radius), basis=basis)
    release = mechanism.release(X, rng=rng)
    return release.estimate / len(X), release.basis is not None


def basis_of(X, rho, rng):
    """Return a private basis, which costs the budget `rho` in zCDP, as a matrix with one vector in each row.

    The vectors are the eigenvectors of a noisy matrix of second moments. The second moments are those of differences of
    rows of `X`; `rng` draws the pairs of rows and the noise.
    """
    pairs = X[rng.permutation(len(X))].reshape(-1, 2, X.shape[1])
    differences = (pairs[:, 0] - pairs[:, 1]) / math.sqrt(2)
    clip_norm = 3 * math.sqrt(np.mean(np.sum(differences**2, axis=1)))
    _, vectors = np.linalg.eigh(rivals.second_moments(differences, rho, clip_norm=clip_norm, rng=rng))
    return np.ascontiguousarray(vectors.T[::-1])


def ours_along(X, rho, name, rng, share=0.05):
    """Return the mean of `X` as `ours` estimates it with a private basis, and whether this basis was used.

    The basis is that of `basis_of`, and costs the fraction `share` of the budget `rho`. `name` is the name of the data
    set.
    """
    return ours(X, (1 - share) * rho, name, rng, basis_of(X, share * rho, rng))


def plan_along(X, rho, name, rng):
    """Return the mean of `X` as the published method PLAN estimates it, and True, because PLAN uses a basis here.

    The private basis, that of `basis_of`, costs a quarter of the budget `rho`. `name` is the name of the data set.
    """
    basis = basis_of(X, rho / 4, rng)
    radius = RANGES[name][1] * np.sum(np.abs(basis), axis=1)
    return rivals.plan(X @ basis.T, 0.75 * rho, radius=radius, rng=rng) @ basis, True


def coinpress(X, rho, name, rng):
    """Return the mean of `X` as the published method CoinPress estimates it, and True, because a basis is used.

    The basis consists of the eigenvectors of a private covariance matrix, which costs half of the budget `rho`. The
    data set has the name `name`. The constants are those of the authors' public code. With the constants of their
    theorems, errors are far larger here.
    """
    differences = (X[::2] - X[1::2]) / math.sqrt(2)
    n, d = differences.shape
    top = float(np.linalg.eigvalsh(np.cov(X.T))[-1])
    A, upper, moments = np.eye(d) / math.sqrt(top), np.triu_indices(d), np.eye(d)
    norm = math.sqrt(d + 2 * math.sqrt(d * math.log(10)) + 2 * math.log(10))
    for step, part in enumerate((1 / 16, 1 / 16, 3 / 8)):
        W = differences @ A.T
        W *= np.minimum(1, norm / np.linalg.norm(W, axis=1))[:, None]
        noise = np.zeros((d, d))
        noise[upper] = rng.normal(0, norm**2 / (n * math.sqrt(part * rho)), len(upper[0]))
        values, vectors = np.linalg.eigh(W.T @ W / n + noise + np.triu(noise, 1).T)
        moments = (vectors * np.maximum(values, 0)) @ vectors.T
        if step < 2:
            larger = np.maximum(values, 0) + math.sqrt(d / n) + d / n / 2
            A = (vectors / np.sqrt(larger)) @ vectors.T @ A
    inverse = np.linalg.inv(A)
    values, vectors = np.linalg.eigh(inverse @ moments @ inverse.T)
    spread = np.sqrt(np.maximum(values, 1e-3 * top))
    radius = RANGES[name][1] * math.sqrt(d) / np.min(spread)
    Z = X @ vectors / spread
    mean = rivals.coinpress(Z, rho / 2, radius=radius, rng=rng, sigma=1.0, clip_probability=0.01)
    return (mean * spread) @ vectors.T, True


def plan(X, rho, name, rng):
    """Return the mean of `X` as the published method PLAN estimates it, and False, because PLAN uses no basis here.

    `rho` is the budget in zCDP, and `name` is the name of the data set.
    """
    return rivals.plan(X, rho, radius=RANGES[name][1], rng=rng), False


METHODS = {
    "egm": ours,
    "egm, learned": partial(ours, basis="learn"),
    "egm, second moments": ours_along,
    "egm, more second moments": partial(ours_along, share=0.25),
    "PLAN": plan,
    "PLAN, second moments": plan_along,
    "CoinPress, covariance": coinpress,
}


def rows_needed(X):
    """Return how many rows like those of `X` the method of Brown, Hopkins and Smith needs to give a result.

    The number is infinity if the covariance matrix of `X` is singular.
    """
    half = len(X) // 2
    differences, largest = (X[:half] - X[half : 2 * half]) / math.sqrt(2), math.inf
    for _ in range(LEFT_OUT + 1):
        if np.linalg.matrix_rank(differences) < X.shape[1]:
            break
        leverages = np.sum(np.linalg.qr(differences)[0] ** 2, axis=1)
        largest = min(largest, float(np.max(leverages)))
        differences = np.delete(differences, np.argmax(leverages), axis=0)
    return 20 * K * half * largest


def runs_of(method):
    """Return the number of runs of the method with the name `method`."""
    return OWN_RUNS if method in ("egm", "egm, learned") else RUNS


def lines(quick):
    """Yield one row of the table of results for each data set and method, a tuple with the entries that COLUMNS names.

    Errors of the mean are divided by the root mean square error of the mean of N independent rows, the sampling error.
    If `quick` is true, there are only two runs of each method.
    """
    for name, source in sets().items():
        d, least = source.shape[1], float(np.median([rows_needed(draw(name, source, run)) for run in range(3)]))
        for method, estimate in METHODS.items():
            squares, used, runs = [], [], 2 if quick else runs_of(method)
            for run in range(runs):
                X = draw(name, source, run)
                mean, along = estimate(X, RHO, name, grid.generator("bases", name, method, run))
                squares.append(N * np.sum((mean - X.mean(axis=0)) ** 2) / np.sum(X.var(axis=0)))
                used.append(along)
            rms = math.sqrt(np.mean(squares))
            se = float(np.std(squares, ddof=1)) / math.sqrt(runs) / (2 * rms)
            errors = rms, se, math.sqrt(np.median(squares)), math.sqrt(max(squares))
            yield name, d, method, runs, *errors, float(np.mean(used)), least


def main():
    """Measure the errors of all methods on all data sets, and write the table of results to the CSV file `TABLE`.

    With the option --quick of the command line, there are two runs of each method, and no file is written.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bases", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two runs of each method; writes nothing")
    quick = parser.parse_args().quick
    warnings.simplefilter("ignore", SimulationWarning)
    found = []
    for line in lines(quick):
        found.append(line)
        print(*grid.entries(line), sep="  ", flush=True)
    if not quick:
        TABLE.write_text(grid.csv_text(COLUMNS.split(","), found))


if __name__ == "__main__":
    main()
