"""`python -m benchmarks.intervals`: measure how often intervals of means contain the exact mean, and how long they are.

Rows of two columns are drawn from each of the fifty laws of `benchmarks.laws`, with four numbers of rows and budgets,
and two mechanisms release their sum: an `AdaptiveDataMechanism`, and a `GaussianDataMechanism` whose guesses are as
wrong as it is told, by half a standard deviation in each mean and by a factor of 1.25 in each standard deviation. For
laws of infinite variance the guess is that of normal rows with the same quartiles.

For the mean of the rows and for that of the population, and for two levels, there are: the share of the columns whose
mean is in the interval, with its standard error; and the mean length, over that of the shortest interval around the
same estimates that would have contained the nominal share (twice the quantile of the size of the errors). Rows and
noise of a run depend on law and number of the run alone. The goals are a share of at least the nominal one, within two
standard errors, and a length of at most 1.2.
"""

import argparse
import math
import time
import warnings
from functools import cache

import numpy as np

from benchmarks import grid, laws
from egm import AdaptiveDataMechanism, GaussianDataMechanism, calibration
from egm.study.tables import zipf_sigma

SETTINGS = (1000, 200), (2000, 600), (2000, 1500), (4000, 5000)  # n and n sqrt(rho), for one run after the other
D, DELTA = 2, 1e-6
LEVELS, OF = (0.8, 0.95), ("mean", "population")
RADIUS, SIGMA_RANGE = 1e3, (1e-3, 1e3)
OFF, FACTOR = 0.5, 1.25  # how wrong the guesses are, which are the defaults of the mechanism
LONGEST, ERRORS = 1.2, 2.0  # the goals: length over the shortest, and standard errors below the nominal share
MEANS = {"Pareto 1.5": 2.0, "t, 2": 0.0, "lognormal 2": math.exp(2)}  # where a sample does not tell them
MECHANISMS = "adaptive", "gaussian"
RUNS = 400


@cache
def population(law):
    """Return mean and standard deviation of the columns of the law with this name, found from a large sample.

    The standard deviation is that of normal rows with the same quartiles if the law has none.
    """
    X = laws.LAWS[law](np.random.default_rng(0), 1_000_000, D)
    quarters = np.quantile(X, [0.25, 0.75], axis=0)
    spread = np.ptp(quarters, axis=0) / 1.349 if law in laws.INFINITE else np.std(X, axis=0)
    return np.full(D, MEANS[law]) if law in MEANS else X.mean(axis=0), spread


@cache
def mechanism(kind, law, setting, wrong):
    """Return a mechanism of one `kind` for a law in one of `SETTINGS`; `wrong` numbers the errors of its guesses."""
    n, reach = SETTINGS[setting]
    rho, (mean, spread), scale = (reach / n) ** 2, population(law), scales(setting)
    if kind == "adaptive":
        return AdaptiveDataMechanism(n, rho, radius=RADIUS, sigma_range=SIGMA_RANGE)
    up, right = 2 * (wrong % 2) - 1, 2 * (wrong // 2) - 1
    sigma, center = spread * FACTOR**up * scale, (mean + OFF * right * spread) * scale
    epsilon = calibration.gaussian_epsilon(DELTA, calibration.zcdp_noise_multiplier(rho))
    return GaussianDataMechanism(sigma, n, epsilon, DELTA, center=center)


def scales(setting):
    """Return the scales of the columns in one of `SETTINGS`."""
    return zipf_sigma(D, laws.ALPHAS[setting], total=D)


def release(kind, law, run):
    """Make one release; return which means are in the intervals for `OF` and `LEVELS`, and the intervals' lengths.

    Both have the shape (2, 2, d). The third result has the errors of the estimates, of shape (2, d). For the adaptive
    mechanism the rows of each run are moved by another distance.
    """
    rng, setting = grid.generator("intervals", law, run), run % len(SETTINGS)
    scale, mean = scales(setting), population(law)[0]
    shift = rng.uniform(-laws.FAR, laws.FAR, D) * (kind == "adaptive")
    X = (laws.LAWS[law](rng, SETTINGS[setting][0], D) + shift) * scale
    made = mechanism(kind, law, setting, run // len(SETTINGS) % 4)
    found = made.release(X, rng=grid.generator(kind, law, run))
    truths = np.array([X.mean(axis=0), (mean + shift) * scale])
    low, high = np.moveaxis([[found.interval(level, of=of) for level in LEVELS] for of in OF], 2, 0)
    return (low <= truths[:, None]) & (truths[:, None] <= high), high - low, found.mean - truths


def measured(found):
    """Return the shares of columns inside, their standard errors, and the lengths over the shortest, each (2, 2).

    `found` is a list with the results of `release` for the runs 0, 1, ..., a multiple of the number of settings.
    """
    inside, lengths, errors = (np.array(part, dtype=float) for part in zip(*found, strict=True))
    of_runs, ratios = inside.mean(axis=-1), []
    for first in range(len(SETTINGS)):
        unit = lengths[first :: len(SETTINGS)].mean(axis=0)
        off = np.abs(errors[first :: len(SETTINGS), :, None]) / unit  # columns differ by their scales
        ratios.append([[1 / (2 * np.quantile(off[:, i, j], LEVELS[j])) for j in range(2)] for i in range(2)])
    return of_runs.mean(axis=0), of_runs.std(axis=0, ddof=1) / math.sqrt(len(found)), np.mean(ratios, axis=0)


def table(kind, runs, names=tuple(laws.LAWS)):
    """Yield lines of text about the intervals of one kind of mechanism: one for each law, and what misses the goals."""
    columns = [f"{of} {level:.0%}" for of in OF for level in LEVELS]
    yield f"{kind}: share inside (standard error), length over the shortest; - for too few, + for too long"
    yield " " * 22 + "".join(f"   {column:21}" for column in columns)
    missed = {column: ([], []) for column in columns}
    for law in names:
        share, se, ratio = (part.ravel() for part in measured([release(kind, law, run) for run in range(runs)]))
        few, long = (share + ERRORS * se < np.tile(LEVELS, 2)).tolist(), (ratio > LONGEST).tolist()
        cells = (
            f"{p:.3f} ({e:.3f}) {r:5.2f}{'-' * f}{'+' * g}"
            for p, e, r, f, g in zip(share, se, ratio, few, long, strict=True)
        )
        yield f"{law:22}" + "".join(f"   {cell:21}" for cell in cells)
        for column, f, g in zip(columns, few, long, strict=True):
            missed[column][0].extend([law] * f)
            missed[column][1].extend([law] * g)
    for column, (few, long) in missed.items():
        few, long = (f"{len(names) - len(some)}, not {', '.join(some) or 'one'}" for some in (few, long))
        yield f"{column}, laws (of {len(names)}) inside often enough: {few}\n{column}, laws short enough: {long}"


def main():
    """Print a table for each kind of mechanism; the option --quick asks for a tenth of the runs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.intervals", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the runs")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    start = time.perf_counter()
    for kind in MECHANISMS:
        for text in table(kind, RUNS // 10 if options.quick else RUNS):
            print(text, flush=True)
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
