"""`python -m benchmarks.searches`: measure the errors of `AdaptiveDataMechanism`, and compare its forecasts with them.

    ten laws        ten settings with a sufficient budget and four with less, 100 runs each
    fifty laws      four settings, thirty runs each
    mixed columns   normal columns beside skewed ones, five settings, forty runs each
    strange tables  a hundred tables designed to make the mechanism fail, twenty runs each
    large budgets   the ten laws in two settings with far larger n sqrt(rho), forty runs each

Laws and tables are those of `benchmarks.laws`. In each run, the mechanism releases a sum of rows. The error of the sum
is divided by its forecast, and the 95 % intervals that contain the exact entries of the sum are counted.

A setting is a number of rows n, a number of columns d, and n sqrt(rho), where rho is the budget. Rows and noise of a
run depend only on part, law, setting and number of the run, and not on the order of the runs. The results are written
to `egm/study/data/searches.csv`, with one line for each law and setting. A warning or an exception of a release counts
as a failure. Where the mechanism says beforehand that the budget is too small, the run counts as refused. The option
--part measures one part of the table again, such as "strange tables", and keeps the lines of the others.
"""

import argparse
import math
import multiprocessing
import os
import time
import warnings
from collections import namedtuple
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

import numpy as np

from benchmarks import grid, laws
from egm import AdaptiveDataMechanism
from egm.samplers import SimulationWarning

TABLE = grid.ROOT / "egm" / "study" / "data" / "searches.csv"
RADIUS, SIGMA_RANGE = 1e4, (1e-3, 1e4)  # declared for the laws
CONFIDENCE = 0.95
FAR = 5.0  # an error of more forecasts means that the search failed or that the forecast is wrong
ROUNDING = 1 + 1e-9
TEN_PLACES = (
    *((1000, 1, 150), (500, 3, 150), (4000, 10, 150), (1000, 30, 200), (4000, 3, 300)),
    *((4000, 100, 300), (4000, 300, 500), (10_000, 2, 1000), (4000, 30, 1000), (4000, 300, 3000)),
)
REFUSED_PLACES = (4000, 10, 20), (1000, 1, 60), (4000, 30, 100), (4000, 300, 300)
FIFTY_PLACES = (4000, 1, 200), (4000, 5, 500), (4000, 50, 1000), (10_000, 3, 3000)
LARGE_PLACES = (20_000, 3, 20_000), (20_000, 10, 20_000)
MIXED_PLACES = (4000, 3, 1000), (4000, 6, 1000), (4000, 16, 1000), (20_000, 16, 3000), (4000, 50, 1000)
RUNS = {"ten laws": 100, "fifty laws": 30, "mixed columns": 40, "strange tables": 20, "large budgets": 40}


class Setting(NamedTuple):
    """Describe what one line of the table of results measures: data of one kind, their size, and the budget rho."""

    part: str  # of the table, such as "ten laws"
    law: str  # name of a law or of a table of data in `laws`
    n: int  # rows
    d: int  # columns
    reach: float  # n sqrt(rho) for the privacy budget rho in zCDP

    @property
    def mechanism(self):
        """Return the AdaptiveDataMechanism whose errors are measured in this setting."""
        table = laws.TABLES[self.law] if self.part == "strange tables" else None
        radius, sigma_range = (table.radius, table.sigma_range) if table else (RADIUS, SIGMA_RANGE)
        return AdaptiveDataMechanism(self.n, (self.reach / self.n) ** 2, radius=radius, sigma_range=sigma_range)

    def rows(self, run):
        """Return an array of shape (n, d): the rows of data of the run with the number `run`."""
        rng = grid.generator("rows", *self, run)
        if self.part == "strange tables":
            return laws.TABLES[self.law].make(rng, self.n, self.d).astype(float)
        return laws.draw(self.law, self.n, self.d, laws.ALPHAS[run % len(laws.ALPHAS)], rng)


def settings():
    """Return a list of all settings, in the order in which their lines stand in the table of results."""
    ten = [Setting("ten laws", law, *place) for law in laws.TEN for place in (*TEN_PLACES, *REFUSED_PLACES)]
    fifty = [Setting("fifty laws", law, *place) for law in laws.LAWS for place in FIFTY_PLACES]
    mixed = [Setting("mixed columns", law, *place) for law in laws.MIXED for place in MIXED_PLACES]
    tables = [Setting("strange tables", name, t.n, t.d, t.reach) for name, t in laws.TABLES.items()]
    large = [Setting("large budgets", law, *place) for law in laws.TEN for place in LARGE_PLACES]
    return ten + fifty + mixed + tables + large


class Run(NamedTuple):
    """Hold what is measured in one release of a sum.

    The error of the release is the l2 distance of the estimate from the exact sum. Three ratios compare the error with
    its forecast, and each of these two with the typical distance of the sum of random rows from its expectation. The
    other fields say whether all results are within the declared ranges, what share of the entries of the exact sum lies
    in their intervals, and whether the mechanism reported that the rows look normal.
    """

    ratio: float  # error over its forecast, the root of the expected square
    sampling: float  # error over the typical distance of the sum of n random rows from its expectation
    forecast: float  # forecast over the same distance
    inside: bool  # all results are finite, and estimate and sigma within the declared ranges
    covered: float  # share of the entries inside their interval; of mixed columns, those that are not normal
    believed: bool  # whether the mechanism reported that the rows look normal


def release(setting, run):
    """Make one private release of the sum of the rows, and return what is measured as a `Run`.

    The number `run` chooses the rows and the noise. An exception of the release is not caught.
    """
    mechanism, X = setting.mechanism, setting.rows(run)
    found = mechanism.release(X, rng=grid.generator("noise", *setting, run))
    (low, high), (least, greatest) = found.interval(CONFIDENCE), mechanism.sigma_range
    inside = np.all(np.abs(found.estimate) <= mechanism.n * mechanism.radius * ROUNDING)
    inside &= np.all((found.sigma >= least / ROUNDING) & (found.sigma <= greatest * ROUNDING))
    inside &= all(np.all(np.isfinite(v)) for v in (found.noise_std, found.bias, found.center, found.forecast.total))
    total = X.sum(axis=0)
    error, sampling = (math.hypot(*v) for v in (found.estimate - total, _deviations(X) * math.sqrt(len(X))))
    forecast = math.sqrt(found.forecast.total)
    within = (low <= total) & (total <= high)
    covered = np.mean(within[: laws.MIXED[setting.law].columns(setting.d)] if setting.law in laws.MIXED else within)
    return Run(
        error / forecast,
        *((error / sampling, forecast / sampling) if sampling else (math.nan, math.nan)),
        bool(inside),
        float(covered),
        found.model_holds,
    )


def _deviations(X):
    """Return the standard deviations of the columns of `X`, also if squares of entries would overflow or underflow."""
    most = np.maximum(np.max(np.abs(X), axis=0), 1e-300)
    return np.std(X / most, axis=0) * most


# One line of the table of results, which summarizes the runs of a setting; `egm.study.tables.searches` explains it.
FIRST = *Setting._fields, "runs", "refused", "failures", "median", "most", "beyond", "above", "outside"
Line = namedtuple("Line", (*FIRST, "coverage", "coverage_se", "believed", "sampling"))


def line(setting, runs):
    """Make `runs` private releases of a sum; return a `Line` of the table of results, and the errors of failed runs.

    The errors are a list of texts. `setting` has the kind of data and the budget. If the mechanism says that the budget
    is too small, no release is made, and all runs count as refused.
    """
    mechanism, found, told = setting.mechanism, [], []
    if mechanism.rho < mechanism.least_rho(setting.d):
        return Line(*setting, runs, runs, 0, *[math.nan] * 2, 0, 0, 0, *[math.nan] * 4), told
    for run in range(runs):
        try:
            found.append(release(setting, run))
        except Exception as problem:
            told.append(f"run {run}: {type(problem).__name__}: {problem}")
    if not found:
        return Line(*setting, runs, 0, runs, *[math.nan] * 2, 0, 0, 0, *[math.nan] * 4), told
    ratio, sampling, forecast, inside, covered, believed = np.array(found, dtype=float).T
    se = np.std(covered, ddof=1) / math.sqrt(len(found)) if len(found) > 1 else math.nan
    above = forecast > FAR * math.sqrt(np.mean(sampling**2))
    counts = int(np.sum(~(ratio <= FAR))), int(np.sum(above)), int(np.sum(inside == 0))
    errors, rest = (np.median(ratio), np.max(ratio)), (np.mean(covered), se, np.mean(believed), np.median(sampling))
    return Line(*setting, runs, 0, len(told), *errors, *counts, *rest), told


def text(lines):
    """Return CSV text with the names of the columns and one line for each `Line` in the list `lines`."""
    return grid.csv_text(Line._fields, lines)


def measure(todo, runs, *, processes=2, say=print):
    """Make the releases of the settings in the list `todo` in several processes; return a `Line` for each setting.

    `runs` is a dictionary from the name of each part of the table, such as "ten laws", to the number of runs in each
    setting. `processes` is the number of processes. The function `say` gets a line of text about each setting.
    """
    os.environ.update(grid.THREADS)  # processes load NumPy after this line: with one thread, sums have one order
    context, lines, start = multiprocessing.get_context("spawn"), [], time.perf_counter()
    with ProcessPoolExecutor(processes, context, initializer=_start) as pool:
        for found, told in pool.map(line, todo, [runs[setting.part] for setting in todo]):
            lines.append(found)
            seconds = time.perf_counter() - start
            say(
                f"{seconds:5.0f} s  {found.part:15}{found.law:34}{found.n:6}{found.d:5}{found.reach:6g}"
                f"  error/forecast {found.median:.2g}, most {found.most:.2g}, beyond {found.beyond}, "
                f"outside {found.outside}; covers {found.coverage:.3f}" + " refused" * bool(found.refused)
            )
            for message in told:
                say(f"         {message}")
    return lines


def _start():
    """Prepare a new process for releases: every warning becomes an error, except `SimulationWarning`."""
    warnings.simplefilter("error")
    warnings.simplefilter("ignore", SimulationWarning)


def merged(old, lines):
    """Return CSV text: the table of results `old`, also CSV text, in which the parts that `lines` has are replaced.

    `lines` is a list of `Line` with all lines of these parts. The lines of the other parts stay as they are.
    """
    header, *rows = text(lines).splitlines(keepends=True)
    measured = {found.part for found in lines}
    rows += [row for row in old.splitlines(keepends=True)[1:] if row.split(",")[0] not in measured]
    return header + "".join(sorted(rows, key=lambda row: [*RUNS].index(row.split(",")[0])))


def summary(lines):
    """Yield one line of text for each part of the table of results, such as "ten laws", that `lines` has.

    `lines` is a list of `Line`. A line of text has the numbers of runs that were made, refused and failed, and of runs
    with an error far above the forecast, a forecast far above typical errors, or results outside the declared ranges.
    """
    for part in dict.fromkeys(found.part for found in lines):
        own = [found for found in lines if found.part == part]
        runs = sum(found.runs - found.refused for found in own)
        yield (
            f"{part}: {runs} runs, {sum(f.refused for f in own)} refused, {sum(f.failures for f in own)} failed, "
            f"{sum(f.beyond for f in own)} beyond {FAR:g} forecasts, {sum(f.above for f in own)} with a forecast above "
            f"{FAR:g} typical errors, {sum(f.outside for f in own)} outside the ranges"
        )


def main(arguments=None):
    """Measure all settings, and write the table of results to the CSV file `TABLE`.

    `arguments` are by default those of the command line. With the option --part, only the settings of one part of the
    table are measured, and the lines of the other parts stay in the file. With --quick, there are four runs in each
    setting, and no file is written.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.searches", description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=[*RUNS], help="only this one; the lines of the others stay in the file")
    parser.add_argument("--quick", action="store_true", help="four runs each, in two minutes; writes nothing")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args(arguments)
    todo = [setting for setting in settings() if options.part in (None, setting.part)]
    kept = "" if options.part is None else TABLE.read_text()
    lines = measure(todo, dict.fromkeys(RUNS, 4) if options.quick else RUNS, processes=options.processes)
    print(*summary(lines), sep="\n")
    if not options.quick:
        TABLE.write_text(merged(kept, lines))


if __name__ == "__main__":
    main()
