"""`python -m benchmarks.intervals`: measure how often intervals of means contain the exact mean, and how long they are.

Two mechanisms release the sum of rows with two columns, or with as many as `--columns` says: an `AdaptiveDataMechanism`
and a `GaussianDataMechanism`. A third one, "unseen", is an `AdaptiveDataMechanism` that spends budget on intervals
which also hold if a few rows are far away from all others and its search does not notice them. The rows are drawn from
each of the fifty laws (distributions) of `benchmarks.laws`, in four settings, each with a number of rows and a budget.
The guesses that the `GaussianDataMechanism` gets are as wrong as it assumes by default: by half a standard deviation in
each mean, and by a factor of 1.25 in each standard deviation. If a law has infinite variance, the standard deviation of
normal rows with the same quartiles takes its place.

Each release gives four intervals for each column: for the mean of the rows and for the mean of the distribution, at two
confidence levels. Two figures are printed for each kind of interval. The first is the share of the intervals that
contain the mean, with its standard error. The second is the mean length of the intervals, divided by the shortest
length with which intervals around the same estimates would contain the mean as often as the level promises. This
shortest length is twice a quantile of the absolute errors. The goals are that the share is not more than two standard
errors below the level, and that the relative length is at most 1.2. For "unseen", the mean length of the 95 % intervals
for the mean of the rows is also given in units of R / (n sqrt(2 rho)), where R is the declared bound on the means; no
interval that holds for all data can be much shorter.

The rows and the noise of a run depend only on the mechanism, the law and the number of the run.
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

SETTINGS = (1000, 200), (2000, 600), (2000, 1500), (4000, 5000)  # pairs (n, n sqrt(rho)), which the runs take in turn
DELTA = 1e-6
LEVELS, OF = (0.8, 0.95), ("mean", "population")
RADIUS, SIGMA_RANGE = 1e3, (1e-3, 1e3)
OFF, FACTOR = 0.5, 1.25  # how wrong the guesses are: in standard deviations, and as a factor; the mechanism's defaults
LONGEST, ERRORS = 1.2, 2.0  # the goals: length over the shortest, and standard errors below the nominal share
MEANS = {"Pareto 1.5": 2.0, "t, 2": 0.0, "lognormal 2": math.exp(2)}  # exact, where a sample does not show them well
UNSEEN = 0.1  # share of the budget of the sum for the numbers of rows that may be far away
MECHANISMS = "adaptive", "unseen", "gaussian"
RUNS = 400


@cache
def population(law, d):
    """Return the means and the standard deviations of `d` columns with the law (distribution) `law`, as two arrays.

    Both are computed from a million rows, except the means in `MEANS`, which are known exactly. If the variance is
    infinite, the standard deviations are those of normal rows with the same quartiles.
    """
    X = laws.LAWS[law](np.random.default_rng(0), 1_000_000, d)
    quarters = np.quantile(X, [0.25, 0.75], axis=0)
    spread = np.ptp(quarters, axis=0) / 1.349 if law in laws.INFINITE else np.std(X, axis=0)
    return np.full(d, MEANS[law]) if law in MEANS else X.mean(axis=0), spread


@cache
def mechanism(kind, law, setting, wrong, d):
    """Return the mechanism whose intervals are measured, for `d` columns with the law (distribution) named `law`.

    `kind` is one of MECHANISMS, and `setting` is an index in SETTINGS. `wrong` says which guesses of a
    GaussianDataMechanism are too large: none (0), the standard deviations (1), the means (2), or both (3). The other
    guesses are too small.
    """
    n, reach = SETTINGS[setting]
    rho, (mean, spread), scale = (reach / n) ** 2, population(law, d), scales(setting, d)
    if kind != "gaussian":
        unseen = UNSEEN if kind == "unseen" else 0.0
        return AdaptiveDataMechanism(n, rho, radius=RADIUS, sigma_range=SIGMA_RANGE, unseen=unseen)
    up, right = 2 * (wrong % 2) - 1, 2 * (wrong // 2) - 1
    sigma, center = spread * FACTOR**up * scale, (mean + OFF * right * spread) * scale
    epsilon = calibration.gaussian_epsilon(DELTA, calibration.zcdp_noise_multiplier(rho))
    return GaussianDataMechanism(sigma, n, epsilon, DELTA, center=center)


def scales(setting, d):
    """Return `d` factors, with the mean 1, by which the columns of the rows are multiplied in SETTINGS[`setting`]."""
    return zipf_sigma(d, laws.ALPHAS[setting], total=d)


def release(kind, law, run, d):
    """Make one release; return whether each mean is in its interval, the lengths of the intervals, and the errors.

    `kind` is one of MECHANISMS, `law` is the name of the law of the rows, and `run` chooses the setting and all that is
    random. The first two results have the shape (2, 2, `d`): one entry for each mean of `OF`, each level of `LEVELS`,
    and each column. The errors of the estimate have one entry for each mean and column.
    """
    rng, setting = grid.generator("intervals", law, run), run % len(SETTINGS)
    scale, mean = scales(setting, d), population(law, d)[0]
    shift = rng.uniform(-laws.FAR, laws.FAR, d) * (kind != "gaussian")
    X = (laws.LAWS[law](rng, SETTINGS[setting][0], d) + shift) * scale
    made = mechanism(kind, law, setting, run // len(SETTINGS) % 4, d)
    found = made.release(X, rng=grid.generator(kind, law, run))
    truths = np.array([X.mean(axis=0), (mean + shift) * scale])
    how = {"unseen": True} if kind == "unseen" else {}
    low, high = np.moveaxis([[found.interval(level, of=of, **how) for level in LEVELS] for of in OF], 2, 0)
    return (low <= truths[:, None]) & (truths[:, None] <= high), high - low, found.mean - truths


def measured(found):
    """Return the shares of intervals that contain the mean, their standard errors, and the relative lengths.

    `found` is a list with what `release` returns for the runs 0, 1, and so on. Each of the three arrays has the shape
    (2, 2): the first row is for the mean of the rows, and the second for the mean of their distribution. The columns
    are for the levels in `LEVELS`. A relative length is the mean length, divided by the shortest length that is enough:
    twice the quantile of the absolute errors at the level.
    """
    inside, lengths, errors = (np.array(part, dtype=float) for part in zip(*found, strict=True))
    of_runs, ratios = inside.mean(axis=-1), []
    for first in range(len(SETTINGS)):
        unit = lengths[first :: len(SETTINGS)].mean(axis=0)
        off = np.abs(errors[first :: len(SETTINGS), :, None]) / unit  # columns differ by their scales
        ratios.append([[1 / (2 * np.quantile(off[:, i, j], LEVELS[j])) for j in range(2)] for i in range(2)])
    return of_runs.mean(axis=0), of_runs.std(axis=0, ddof=1) / math.sqrt(len(found)), np.mean(ratios, axis=0)


def over_least(found):
    """Return the mean length of the 95 % intervals for the mean of the rows, divided by R / (n sqrt(2 rho)).

    R is `RADIUS`, the declared bound on the means, and the sum of n rows is released with the zCDP budget rho. No
    interval that holds for all data can be much shorter than R / (n sqrt(2 rho)). `found` is a list with the results of
    `release` for the runs 0, 1, and so on.
    """
    lengths = np.array([length[0, -1].mean() for _, length, _ in found])
    return np.mean(lengths * math.sqrt(2) / RADIUS * np.resize([reach for _, reach in SETTINGS], len(found)))


def table(kind, runs, d, names=tuple(laws.LAWS)):
    """Yield lines of text about the intervals of a mechanism: one for each law (distribution), and the failures.

    The failures are lists of laws for which too few intervals contain the mean, or for which intervals are too long.
    `kind` is one of MECHANISMS, `runs` is the number of releases for each law, `d` is the number of columns, and
    `names` are the names of the laws.
    """
    columns = [f"{of} {level:.0%}" for of in OF for level in LEVELS]
    yield f"{kind}: share inside (standard error), length over the shortest; - for too few, + for too long"
    yield " " * 22 + "".join(f"   {column:21}" for column in columns) + "   over the least" * (kind == "unseen")
    missed = {column: ([], []) for column in columns}
    for law in names:
        found = [release(kind, law, run, d) for run in range(runs)]
        share, se, ratio = (part.ravel() for part in measured(found))
        few, long = (share + ERRORS * se < np.tile(LEVELS, 2)).tolist(), (ratio > LONGEST).tolist()
        cells = (
            f"{p:.3f} ({e:.3f}) {r:5.2f}{'-' * f}{'+' * g}"
            for p, e, r, f, g in zip(share, se, ratio, few, long, strict=True)
        )
        least = f"   {over_least(found):5.1f}" if kind == "unseen" else ""
        yield f"{law:22}" + "".join(f"   {cell:21}" for cell in cells) + least
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
    parser.add_argument("--columns", type=int, default=2, help="columns of the rows, by default 2")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    start = time.perf_counter()
    for kind in MECHANISMS:
        for text in table(kind, RUNS // 10 if options.quick else RUNS, options.columns):
            print(text, flush=True)
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
