"""`python -m benchmarks.grid`: run every mean estimator on the grids of the authors of the method PLAN.

    A   N(0, I),                                n = 4000,    d = 16 ... 2048,   range of the means    +-25 sqrt(d)
    B   means 10, variances (d/i)**alpha,       n = 10_000,  d = 512,           +-50 d (largest variance)**(1/4)
    C   as in B with alpha = 2,                 n = 10_000,  d = 16 ... 2048,   as in B

The rows are normal, with independent columns i = 1 ... d. In B, alpha is 0, 0.5, 1, 1.5 or 2. The grids are those of
Aumüller, Lebeda, Nelson and Pagh (2023). The budget rho is 1/16 ... 1 in zCDP (zero-concentrated differential privacy),
for neighboring data sets in which one row is replaced. A cell is one grid point (grid, d, alpha, rho). The results of a
method in a cell, for all seeds, are one row of a table in the SQLite file `_build/grid.db`. A run of this program that
is killed loses only its unfinished cells, and a second run waits for the first. A row has the version of its method:
whoever changes the estimates of a method increases its version in METHODS, and its rows are computed again. Every
random number depends only on grid, d, alpha, rho, seed and the method's name. So the result is the same, byte for byte,
in any order and after any number of runs. When no row is missing, the result is written to `egm/study/data/rivals.csv`.

The function of a method takes the rows `X`, the grid point `cell` and a random generator `rng`, and returns an estimate
of the mean, shape (d,).
"""

import argparse
import csv
import hashlib
import io
import json
import math
import multiprocessing
import os
import signal
import sqlite3
import sys
import threading
import time
import warnings
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import closing
from functools import lru_cache, partial
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from egm import adaptive, forecast, mechanisms
from egm.calibration import gaussian_epsilon, zcdp_noise_multiplier
from egm.samplers import SimulationWarning
from egm.study import rivals

ROOT = Path(__file__).resolve().parent.parent
STORE = ROOT / "_build" / "grid.db"
TABLE = ROOT / "egm" / "study" / "data" / "rivals.csv"
THREADS = dict.fromkeys(["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"], "1")
COLUMNS = "grid,d,alpha,n,rho,method,knows,sample,sample_se,population,population_se,failures,seeds"
RHO = (1 / 16, 1 / 4, 1.0, 1 / 8, 1 / 2)  # the order in which they are run
DIMENSIONS = (16, 32, 64, 128, 256, 512, 1024, 2048)


class Cell(NamedTuple):
    """Describe a grid point of the benchmark: one choice of the distribution of rows and of the privacy budget `rho`.

    The rows are independent and normal, with the mean `mu` and the standard deviations `sigma` of the `d` columns.
    `grid` is the name of the grid, and the variance of column i is proportional to (d/i)**`alpha`.
    """

    grid: str
    d: int
    alpha: float
    rho: float

    @property
    def n(self):
        """Return the number of rows of the data at this grid point."""
        return {"A": 4000, "B": 10_000, "C": 10_000}.get(self.grid, 300)  # every other grid is for tests

    @property
    def mu(self):
        """Return the mean of the distribution from which the rows are drawn, an array of shape (d,)."""
        return np.full(self.d, 0.0 if self.grid == "A" else 10.0)

    @property
    def sigma(self):
        """Return the standard deviations of the distribution from which the rows are drawn, an array of shape (d,)."""
        return (self.d / np.arange(1, self.d + 1)) ** (self.alpha / 2)

    @property
    def radius(self):
        """Return the bound on the absolute value of each coordinate of the mean; every method is given this bound."""
        return 25 * self.d**0.5 if self.grid == "A" else 50 * self.d * np.max(self.sigma) ** 0.5

    @property
    def name(self):
        """Return the name of this grid point in the database: grid, d, alpha and rho, such as "A-16-0-0.25"."""
        return f"{self.grid}-{self.d}-{self.alpha:g}-{self.rho:g}"


CELLS = {
    "A": [Cell("A", d, 0.0, rho) for rho in RHO for d in DIMENSIONS],
    "B": [Cell("B", 512, alpha, rho) for rho in RHO for alpha in (0.0, 0.5, 1.0, 1.5, 2.0)],
    "C": [Cell("C", d, 2.0, rho) for rho in RHO for d in DIMENSIONS],
}

# --- Methods: each a function of (X, cell, rng) that returns an estimate of the mean ----------------------------------


def ours(X, cell, rng):
    """Estimate the mean of `X` by egm's AdaptiveDataMechanism, with a wide declared range of standard deviations.

    The mechanism gets the budget and the bound on the mean of the grid point `cell`. The range of standard deviations
    covers eight powers of ten.
    """
    sigma_range = (1e-8 * cell.radius, cell.radius)
    mechanism = adaptive.AdaptiveDataMechanism(len(X), cell.rho, radius=cell.radius, sigma_range=sigma_range)
    return mechanism.release(X, rng=rng).estimate / len(X)


@lru_cache(maxsize=1)
def _known(cell):
    """Return egm's GaussianDataMechanism for the true mean and the true standard deviations at the grid point `cell`.

    The scaling and the clip norm are those with the least forecast squared error.
    """
    delta = 1e-9  # any delta: only the noise multiplier matters
    epsilon = gaussian_epsilon(delta, zcdp_noise_multiplier(cell.rho))
    options = {"center": cell.mu, "center_std": 0.0, "sigma_factor": 1.0}  # no doubt about center and sigma
    options |= {"clip_probability": "optimal", "scaling": "optimal"}
    return mechanisms.GaussianDataMechanism(cell.sigma, cell.n, epsilon, delta, **options)


def ours_oracle(X, cell, rng):
    """Estimate the mean of `X` by egm's GaussianDataMechanism, which knows the true mean and standard deviations.

    These and the budget are those of the grid point `cell`.
    """
    return _known(cell).release(X, rng=rng).estimate / len(X)


def rival(function, budget=1.0, **options):
    """Return a method (X, cell, rng) that calls `function` of `egm.study.rivals` with `budget` times the rho of `cell`.

    `function` gets the `options`, too. An option that is a function is replaced by its value for `cell`.
    """

    def estimate(X, cell, rng):
        values = {name: value(cell) if callable(value) else value for name, value in options.items()}
        return function(X, budget * cell.rho, radius=cell.radius, rng=rng, **values)

    return estimate


mu, sigma = attrgetter("mu"), attrgetter("sigma")  # the true values at a grid point, which an oracle knows


def largest_sigma(cell):
    """Return the largest true standard deviation of a column at the grid point `cell`."""
    return np.max(cell.sigma)


def narrow(cell):
    """Return the bound on the norm of the mean with which the PLAN paper runs the method of Huang, Liang and Yi.

    With this bound, the method searches medians of rotated coordinates in the range +-`cell.radius` / sqrt(d). With its
    default bound, the range is wider.
    """
    padded = 1 << (cell.d - 1).bit_length()
    return cell.radius / np.sqrt(cell.d) * np.sqrt(padded / (2 * np.log(2 * padded / BETA)))


@lru_cache(maxsize=1)
def ball(cell):
    """Return the clip norm of the method "gaussian, oracle" at the grid point `cell`: a radius around the true mean.

    With this radius, the forecast squared error of the sum of the clipped rows plus Gaussian noise is least.
    """
    factor = cell.d * (2 * zcdp_noise_multiplier(cell.rho)) ** 2
    return forecast.best_clip_norm(lambda norm: factor * norm**2, cell.sigma, cell.n, np.ones(cell.d))[0]


class Method(NamedTuple):
    """Describe a method that estimates means: its function, what it is told, and for which data it runs."""

    estimate: object  # function of (rows, grid point, random generator) that returns the estimate of the mean
    knows: str = ""  # what it is told about the data, besides the range of the mean
    slow: bool = False  # runs after all others
    largest_d: float = math.inf  # columns, for more of which it does not run
    version: int = 1  # raise it when the estimates change: the results are then computed again


BETA = 0.1
NARROW = rival(rivals.huang_liang_yi, norm_bound=narrow, clip_share=0.01, slack=2.0, beta=BETA)
PUBLIC = partial(rival, rivals.coinpress, clip_probability=0.01)  # the constant of CoinPress's public code
COVARIANCE = PUBLIC(sigma=largest_sigma, covariance_steps=3)  # spends half of the budget on the covariance matrix first
METHODS = {
    "ours": Method(ours, version=5),
    "ours, oracle": Method(ours_oracle, "mu and sigma", version=2),
    "plan": Method(rival(rivals.plan)),  # divides the budget as its authors do
    "plan, 3.75 rho": Method(rival(rivals.plan, 3.75, search_share=0.8), "more budget"),  # what their code spends
    "plan, oracle": Method(rival(rivals.plan, sigma=sigma), "sigma"),
    "huang_liang_yi": Method(rival(rivals.huang_liang_yi)),  # with the authors' constants
    "huang_liang_yi, narrow": Method(NARROW, "norm of mu"),  # as the PLAN paper runs it
    "coordinate_median": Method(rival(rivals.coordinate_median)),
    "coinpress": Method(rival(rivals.coinpress, sigma=largest_sigma), "largest sigma"),
    "coinpress, public": Method(PUBLIC(sigma=largest_sigma), "largest sigma"),
    "coinpress, covariance": Method(COVARIANCE, "largest sigma", slow=True, largest_d=512),
    "coinpress, oracle": Method(PUBLIC(sigma=sigma), "sigma"),
    # Dagan and others; a private filter first leaves out outlying rows, which is not needed if the mean is known
    "anisotropic": Method(rival(rivals.anisotropic, sigma=sigma), "sigma", slow=True),
    "anisotropic, oracle": Method(rival(rivals.anisotropic, sigma=sigma, center=mu), "mu and sigma"),
    "gaussian": Method(rival(rivals.gaussian)),  # clips to the smallest ball around 0 that contains all possible means
    "gaussian, oracle": Method(rival(rivals.gaussian, center=mu, clip_norm=ball), "mu and sigma"),
}

# --- One cell ---------------------------------------------------------------------------------------------------------


def generator(*key):
    """Return a random generator whose numbers depend only on `key`, any number of names and numbers as arguments."""
    return np.random.default_rng(np.random.SeedSequence(int(hashlib.sha256(repr(key).encode()).hexdigest(), 16)))


def draw(cell, seed):
    """Draw the rows of data at the grid point `cell`, shape (n, d); they depend only on `cell` and `seed`."""
    X = generator("rows", *cell, seed).standard_normal((cell.n, cell.d))
    X *= cell.sigma
    X += cell.mu
    return X


def run_cell(cell, names, seeds):
    """Run the methods with the names `names` on the same data at the grid point `cell`, for the seeds 0 to `seeds` - 1.

    Return a pair: a dictionary from each name to the list of the results of `squared_errors`, one for each seed; and
    the time in seconds that all runs and the drawing of the data took.
    """
    start, runs = time.perf_counter(), defaultdict(list)
    for seed in range(seeds):
        X = draw(cell, seed)
        X.flags.writeable = False
        mean = X.mean(axis=0)
        for name in names:
            runs[name].append(squared_errors(METHODS[name], X, mean, cell, generator(name, *cell, seed)))
    return runs, time.perf_counter() - start


def squared_errors(method, X, mean, cell, rng):
    """Run a method on the rows `X`; return the squared l2 distances of the estimate from two means, as a list.

    The first mean is `mean`, that of `X`, and the second is `cell.mu`, that of the distribution at the grid point
    `cell`. `method` is a `Method`. If it fails or its estimate is not finite, the result is a text that says so.
    """
    try:
        estimate = method.estimate(X, cell, rng)
        errors = [float(np.sum((estimate - truth) ** 2)) for truth in (mean, cell.mu)]
        return errors if np.all(np.isfinite(errors)) else f"no finite estimate: {errors}"
    except Exception as problem:
        return f"{type(problem).__name__}: {problem}"


# --- The store --------------------------------------------------------------------------------------------------------


def connect(store):
    """Open the SQLite file `store`, the database of results, and return its connection for use in a `with` block.

    The end of the block closes the connection. Until then, other processes that open the file have to wait, and say so
    on standard error. A missing file is made.
    """
    Path(store).parent.mkdir(parents=True, exist_ok=True)
    db, is_told = sqlite3.connect(store, timeout=0.1), False
    db.execute("PRAGMA locking_mode = EXCLUSIVE")  # the process keeps the lock after a transaction
    with db:
        while not db.in_transaction:  # SQLite could wait longer, but Ctrl-C would have no effect until then
            try:
                db.execute("BEGIN EXCLUSIVE")
            except sqlite3.OperationalError as problem:
                if problem.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                    raise
                if not is_told:
                    print(f"waiting for another run, which uses {store}", file=sys.stderr, flush=True)
                is_told = True
        db.execute("CREATE TABLE IF NOT EXISTS results (cell, method, version, runs, PRIMARY KEY (cell, method))")
    return closing(db)


def save(db, cell, runs):
    """Store `runs`, the dictionary that `run_cell` returns for the grid point `cell`, in the database `db`.

    Either all results are stored or, after an error, none.
    """
    rows = [(cell.name, name, METHODS[name].version, json.dumps(told)) for name, told in runs.items()]
    with db:
        db.executemany("INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?)", rows)


def load(db, cell, name, seeds):
    """Return the results of the method `name` at the grid point `cell` for the first `seeds` seeds, as a list.

    Each entry is a result of `squared_errors`. None is returned instead of the list if the database `db` has fewer
    seeds, or only another version of the method.
    """
    query = "SELECT runs FROM results WHERE (cell, method, version) = (?, ?, ?)"
    row = db.execute(query, (cell.name, name, METHODS[name].version)).fetchone()
    runs = json.loads(row[0])[:seeds] if row else []
    return runs if len(runs) == seeds else None


def entries(row):
    """Return a list of the entries of `row`, a row of a table; floats become texts with four significant digits."""
    return [f"{value:.4g}" if isinstance(value, float) else value for value in row]


def csv_text(names, rows):
    """Return CSV text with the `names` of the columns and the `rows`; floats have four significant digits."""
    sink = io.StringIO()
    csv.writer(sink, lineterminator="\n").writerows([names, *map(entries, rows)])
    return sink.getvalue()


# --- The whole --------------------------------------------------------------------------------------------------------


def missing(cells, seeds, db, methods=None):
    """Return a list of the tasks that are left to do, in the order in which they should be done.

    A task is a pair: one of the grid points `cells`, and the names of those `methods` that lack results for `seeds`
    seeds there in the database `db`. By default, `methods` are the names of all methods. Slow methods have tasks of
    their own, which come last. Among the other tasks, those with one of the first three budgets in `RHO` come first,
    and small data come before large data.
    """
    tasks = []
    for cell in cells:
        names = [name for name in methods or METHODS if cell.d <= METHODS[name].largest_d]
        names = [name for name in names if load(db, cell, name, seeds) is None]
        for slow in (False, True):
            part = [name for name in names if METHODS[name].slow == slow]
            tasks += [(cell, part)] if part else []
    return sorted(tasks, key=_turn)


def _turn(task):
    cell, names = task
    return METHODS[names[0]].slow, cell.rho not in RHO[:3], cell.n * cell.d, cell


def effort(task):
    """Estimate how long a task, a pair (grid point, names of methods), takes, in an arbitrary unit of time.

    A task takes longer for larger data, for slow methods, and for egm's own mechanism.
    """
    cell, names = task
    return sum(cell.n * cell.d * (1 + cell.n / 1500 * METHODS[name].slow) + 2e7 * (name == "ours") for name in names)


def run(cells, db, *, seeds=20, processes=2, methods=None, say=print):
    """Compute the results that are not yet in the database `db` in several processes, and store them there.

    The results are those of the methods with the names `methods` (by default all) at the grid points `cells`, for
    `seeds` seeds. The function `say` gets a line of text after each task.
    """
    tasks = missing(cells, seeds, db, methods)
    progress = Progress(tasks, say)
    os.environ.update(THREADS)  # processes load NumPy after this line: with one thread, sums have one order
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, initializer=_start) as pool:
        running = {pool.submit(run_cell, *task, seeds): task for task in tasks}
        try:
            for future in as_completed(running):
                runs, seconds = future.result()
                save(db, running[future][0], runs)
                progress.done(running[future], seconds)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
            raise


def _start():
    """Prepare a new process of the benchmark: it ignores Ctrl-C, and ends when its parent process ends."""
    warnings.simplefilter("ignore", SimulationWarning)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()


class Progress:
    """Print a line of text whenever a task is finished; a task is a pair (grid point, names of methods).

    The line has the grid point, the time of the task, and about how long the remaining tasks will take.
    """

    def __init__(self, tasks, say):
        self.say, self.total, self.count = say, len(tasks), 0
        self.start, self.left, self.spent = time.perf_counter(), sum(map(effort, tasks)), 0.0
        say(f"{len(tasks)} tasks to do")

    def done(self, task, seconds):
        """Print the line for the task `task`, which has just finished after `seconds` seconds."""
        cell, names = task
        self.count, self.spent, self.left = self.count + 1, self.spent + effort(task), self.left - effort(task)
        minutes = (time.perf_counter() - self.start) * self.left / self.spent / 60
        what = names[0] if len(names) == 1 else f"{len(names)} methods"
        self.say(f"[{self.count}/{self.total}] {cell.name}: {what}, {seconds:.1f} s; about {minutes:.0f} min left")


def table(cells, seeds, db):
    """Return a pair: the table of results at the grid points `cells` as CSV text, and a list of the missing results.

    The table has one row for each grid point and each method that runs there, with mean squared errors over the first
    `seeds` seeds in the database `db`. The list has a pair (grid point, name of the method) for each missing row.
    """
    lines, absent = [COLUMNS], []
    for cell in sorted(cells):
        for name, method in METHODS.items():
            if cell.d > method.largest_d:
                continue
            runs = load(db, cell, name, seeds)
            if runs is None:
                absent.append((cell, name))
            else:
                lines.append(_line(cell, name, method, runs))
    return "\n".join(lines) + "\n", absent


def _line(cell, name, method, runs):
    errors = np.array([run for run in runs if not isinstance(run, str)]).reshape(-1, 2)
    mean = errors.mean(axis=0) if len(errors) else np.full(2, np.nan)
    se = errors.std(axis=0, ddof=1) / np.sqrt(len(errors)) if len(errors) > 1 else np.full(2, np.nan)
    figures = [f"{value:.6g}" for pair in zip(mean, se, strict=True) for value in pair]
    place = [cell.grid, f"{cell.d}", f"{cell.alpha:g}", f"{cell.n}", f"{cell.rho:g}", f'"{name}"', method.knows]
    return ",".join([*place, *figures, str(len(runs) - len(errors)), str(len(runs))])


def failures(cells, seeds, db):
    """Yield a line of text for each of the points `cells` and each method that failed there, in the database `db`.

    The line says how often the method failed in its runs with the first `seeds` seeds, and gives the first error.
    """
    for cell in sorted(cells):
        for name in METHODS:
            told = [run for run in load(db, cell, name, seeds) or [] if isinstance(run, str)]
            if told:
                yield f"{cell.name}: {name} failed {len(told)} times of {seeds}, {told[0]}"


def main(arguments=None):
    """Compute the results that are missing in the database, and write the table of all results to a CSV file.

    `arguments` are by default those of the command line. The result is the exit code: 0, or 130 after Ctrl-C.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.grid", description=__doc__.splitlines()[0])
    parser.add_argument("--grid", choices=[*CELLS], help="only this one")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--store", type=Path, default=STORE, help="file of the results")
    parser.add_argument("--table", type=Path, help=f"by default {TABLE.relative_to(ROOT)}, if nothing is missing")
    parser.add_argument("--only-table", action="store_true", help="run nothing, and write what is there")
    options = parser.parse_args(arguments)
    if options.seeds < 1:
        parser.error(f"argument --seeds: must be at least 1, got {options.seeds}")
    if options.store.resolve() == (options.table or options.store.with_suffix(".csv")).resolve():
        parser.error(f"argument --store: must not be the file of the table, got {options.store}")
    every = [cell for cells in CELLS.values() for cell in cells]
    try:
        with connect(options.store) as db:
            if not options.only_table:
                say = partial(print, flush=True)
                run(CELLS.get(options.grid, every), db, seeds=options.seeds, processes=options.processes, say=say)
            print(*failures(every, options.seeds, db), sep="\n")
            text, absent = table(every, options.seeds, db)
    except KeyboardInterrupt:
        print("stopped; the same command goes on from here", file=sys.stderr)
        return 130
    for cell, name in absent[:20]:
        print(f"missing: {cell.name}: {name}")
    if len(absent) > 20:
        print(f"... and {len(absent) - 20} more")
    target = options.table or (options.store.with_suffix(".csv") if absent else TABLE)
    target.write_text(text)
    print(f"{text.count(chr(10)) - 1} rows in {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
