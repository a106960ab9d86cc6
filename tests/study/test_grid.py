"""Test `benchmarks.grid`, the benchmark of methods for private means, on a small grid of distributions and budgets.

Its table has the same bytes, in whatever order and in however many runs the results are computed.
"""

import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

from benchmarks import grid
from benchmarks.grid import Cell

CELLS = [Cell("T", d, 1.0, rho) for d in (2, 3) for rho in (1.0, 4.0)]
MANY = [Cell("T", 2, 1.0, rho) for rho in range(1, 61)]
METHODS = ["plan", "coordinate_median", "gaussian", "coinpress"]
SEEDS = 3
ALL = dict(grid.METHODS)
RUN = """
import sys
from functools import partial
from benchmarks import grid
from tests.study.test_grid import MANY, METHODS, SEEDS
with grid.connect(sys.argv[1]) as db:
    grid.run(MANY, db, seeds=SEEDS, processes=1, methods=METHODS, say=partial(print, flush=True))
"""


@pytest.fixture(autouse=True)
def few_methods(monkeypatch):
    """Restrict the methods of the benchmark to the few in METHODS in every test, so that tables are small."""
    monkeypatch.setattr(grid, "METHODS", {name: grid.METHODS[name] for name in METHODS})


def run_here(cells, db, methods=METHODS):
    """Compute and store those results of `methods` for the grid points `cells` that the database `db` does not have.

    A grid point is a distribution of rows and a privacy budget. Return the list of what was computed, with pairs (grid
    point, names of methods). `grid.run` does the same in several processes.
    """
    tasks = grid.missing(cells, SEEDS, db, methods)
    for cell, names in tasks:
        grid.save(db, cell, grid.run_cell(cell, names, SEEDS)[0])
    return tasks


@pytest.fixture
def store(tmp_path):
    """Yield a connection to a database with the errors of the methods METHODS at the grid points CELLS.

    A grid point is a distribution of rows and a privacy budget.
    """
    with grid.connect(tmp_path / "whole.db") as db:
        run_here(CELLS, db)
        yield db


def start(store):
    """Start a process that computes the errors of the methods METHODS at the grid points MANY, and return the process.

    It stores the errors in the file `store`, a database. A grid point is a distribution of rows and a budget.
    """
    return subprocess.Popen([sys.executable, "-c", RUN, str(store)], stdout=subprocess.PIPE, text=True)


def test_any_order_and_any_split_give_the_same_bytes(store, tmp_path):
    with grid.connect(tmp_path / "other" / "grid.db") as other:
        for name in reversed(METHODS):
            for cell in reversed(CELLS):
                run_here([cell], other, [name])
        assert grid.table(CELLS, SEEDS, other) == grid.table(CELLS, SEEDS, store)


def test_a_kill_loses_the_running_cell_and_a_second_run_does_the_rest(tmp_path):
    """If a run of the benchmark is killed, a second run that waited for it computes the missing results, and no others.

    Both runs use the same database file. In the end the table is that of a run without interruption.
    """
    killed = tmp_path / "grid.db"
    with start(killed) as first:
        assert first.stdout.readline() == f"{len(MANY)} tasks to do\n"
        with start(killed) as second:
            said = [first.stdout.readline() for _ in range(len(MANY) // 2)]
            first.kill()
            said += first.stdout.readlines()  # ends when the last of the processes has ended
            left = int(second.stdout.readline().split()[0])
            assert len(MANY) - left - len(said) in (0, 1)  # a cell may be stored and not yet reported
            assert len(second.stdout.readlines()) == left
    with grid.connect(killed) as db, grid.connect(tmp_path / "whole.db") as whole:
        assert not grid.missing(MANY, SEEDS, db, METHODS)
        run_here(MANY, whole)
        assert grid.table(MANY, SEEDS, db) == grid.table(MANY, SEEDS, whole)


def test_a_run_that_waits_for_another_one_can_be_stopped(tmp_path):
    """A run of the benchmark says that it waits for another run with the same database, and Ctrl-C stops it."""
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell may have set another
    )
    code += "from benchmarks import grid; sys.exit(grid.main())"
    command = [sys.executable, "-c", code, "--only-table", "--store", str(tmp_path / "grid.db")]
    with grid.connect(tmp_path / "grid.db"), subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as second:
        late = threading.Timer(60, second.kill)
        late.start()
        waits = second.stderr.readline()
        second.send_signal(signal.SIGINT)
        said = second.communicate()[1]
        late.cancel()
    assert waits == f"waiting for another run, which uses {tmp_path / 'grid.db'}\n"
    assert (second.returncode, said) == (130, "stopped; the same command goes on from here\n")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--seeds", "0"], "argument --seeds: must be at least 1, got 0"),
        (["--store", "s.csv"], "argument --store: must not be the file of the table, got s.csv"),
        (["--store", "s.db", "--table", "./s.db"], "argument --store: must not be the file of the table, got s.db"),
    ],
)
def test_no_table_is_written_over_another_file_or_without_a_run(monkeypatch, tmp_path, capsys, options, said):
    """The table of the benchmark needs one seed or more, and its file must be another one than the database.

    `options` are those of the command, and `said` is its message.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(grid, "ROOT", tmp_path)
    monkeypatch.setattr(grid, "TABLE", tmp_path / "table.csv")
    with pytest.raises(SystemExit):
        grid.main([*options, "--only-table"])
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_another_version_and_more_seeds_are_computed_again_and_nothing_else(store, monkeypatch):
    """A stored result is computed again only if it is of another version of the method, or from too few seeds.

    There is one run of a method for each seed. All other results in the database `store` are kept.
    """
    before = grid.table(CELLS, SEEDS, store)
    assert before[1] == []
    monkeypatch.setitem(grid.METHODS, "plan", grid.METHODS["plan"]._replace(version=2))
    assert grid.table(CELLS, SEEDS, store)[1] == [(cell, "plan") for cell in CELLS]
    assert sorted(run_here(CELLS, store)) == [(cell, ["plan"]) for cell in CELLS]
    assert grid.table(CELLS, SEEDS, store) == before
    grid.save(store, CELLS[1], grid.run_cell(CELLS[1], ["plan"], SEEDS - 1)[0])
    assert run_here(CELLS, store) == [(CELLS[1], ["plan"])]


@pytest.mark.parametrize(
    ("cell", "names"),
    [
        (Cell("A", 16, 0.0, 1 / 16), ["coordinate_median", "gaussian"]),
        (Cell("C", 16, 2.0, 1 / 16), ["ours", "ours, oracle"]),  # the columns are skewed, so the scaling matters
    ],
)
def test_table_is_the_committed_one(cell, names, tmp_path, monkeypatch):
    """If two methods are run again for one grid point, their rows in the new table equal those in the stored table.

    The stored table, `grid.TABLE`, is a file of the package. The rows are equal character by character. A grid point,
    `cell`, is a distribution of rows and a privacy budget. `names` are the names of the methods.
    """
    monkeypatch.setattr(grid, "METHODS", ALL)
    target = tmp_path / "table.csv"
    with grid.connect(tmp_path / "grid.db") as db:
        grid.save(db, cell, grid.run_cell(cell, names, 20)[0])
    grid.main(["--only-table", "--store", str(tmp_path / "grid.db"), "--table", str(target)])
    header, *rows = target.read_text().splitlines()
    committed = grid.TABLE.read_text().splitlines()
    place = f"{cell.grid},{cell.d},{cell.alpha:g},{cell.n},{cell.rho:g},"
    assert header == committed[0]
    assert rows == [row for row in committed if row.startswith(place) and row.split('"')[1] in names]
    assert len(rows) == len(names)


def test_failures_are_counted_and_told(tmp_path, monkeypatch):
    """`grid.table` states how often each method failed, and `grid.failures` yields lines that say what went wrong.

    Here one method fails in about half of the runs, and its mean squared error is the mean over the other runs. A
    second method always returns NaN, and its row of the table has no mean.
    """

    def sometimes(X, cell, rng):
        if rng.uniform() < 0.5:
            raise ValueError("no luck")
        return X.mean(axis=0) + 0.5

    def never(X, cell, rng):
        return np.full(cell.d, np.nan)

    methods = {"sometimes": grid.Method(sometimes), "never": grid.Method(never)}
    monkeypatch.setattr(grid, "METHODS", methods)
    with grid.connect(tmp_path / "grid.db") as db:
        for cell in CELLS:
            grid.save(db, cell, grid.run_cell(cell, ["sometimes", "never"], 30)[0])
        row, empty = grid.table(CELLS, 30, db)[0].splitlines()[1:3]
        first, second = list(grid.failures(CELLS, 30, db))[:2]
    *_, mean, se, _, _, failed, seeds = row.split(",")
    assert float(mean) == pytest.approx(0.5)
    assert float(se) < 1e-15
    assert 5 < int(failed) < 25
    assert seeds == "30"
    assert empty.endswith(",nan,nan,nan,nan,30,30")
    assert first == f"T-2-1-1: sometimes failed {failed} times of 30, ValueError: no luck"
    assert second == "T-2-1-1: never failed 30 times of 30, no finite estimate: [nan, nan]"


def test_figures_of_the_table(store):
    """`grid.table` has the mean and the standard error of the squared errors that are stored in the database `store`.

    The tested row of the table is for the method "coordinate_median", and for the first pair of a distribution and a
    budget. It also has the numbers of failures and of seeds; each seed has one run.
    """
    runs = grid.load(store, CELLS[0], "coordinate_median", SEEDS)
    row = next(
        line
        for line in grid.table(CELLS, SEEDS, store)[0].splitlines()
        if line.startswith('T,2,1,300,1,"coordinate_median",,')
    )
    figures = [float(figure) for figure in row.split(",")[7:]]
    mean, se = np.mean(runs, axis=0), np.std(runs, axis=0, ddof=1) / np.sqrt(SEEDS)
    assert figures == pytest.approx([mean[0], se[0], mean[1], se[1], 0, SEEDS], rel=1e-5)


def test_rows_and_noise_belong_to_the_parameters():
    X = grid.draw(CELLS[0], 0)
    assert np.all(grid.draw(CELLS[0], 0) == X)
    assert not np.any(grid.draw(CELLS[0], 1) == X)
    assert not np.any(grid.draw(CELLS[1], 0) == X)


@pytest.mark.parametrize("cell", [Cell("A", 16, 0.0, 1.0), Cell("B", 512, 1.5, 1.0), Cell("C", 64, 2.0, 1.0)], ids=str)
def test_cells_are_those_of_the_paper(cell):
    assert cell in grid.CELLS[cell.grid]
    variances = (cell.d / np.arange(1, cell.d + 1)) ** cell.alpha
    assert cell.sigma**2 == pytest.approx(variances)
    published = 25 * cell.d**0.5 if cell.grid == "A" else 50 * cell.d * max(variances) ** 0.25
    assert cell.radius == pytest.approx(published)
    X = grid.draw(cell, 0)
    assert X.shape == ((4000 if cell.grid == "A" else 10_000), cell.d)
    assert np.max(np.abs(X.mean(axis=0) - cell.mu) / cell.sigma) < 5 / np.sqrt(cell.n)
    assert X.std(axis=0) == pytest.approx(cell.sigma, rel=5 / np.sqrt(2 * cell.n))


def test_grids_are_whole():
    assert {grid_: len(cells) for grid_, cells in grid.CELLS.items()} == {"A": 40, "B": 25, "C": 40}
    assert len({cell for cells in grid.CELLS.values() for cell in cells}) == 105


def test_order_covers_every_grid_first(tmp_path):
    """The first 63 tasks of the benchmark have the budgets rho = 1/16, 1/4 and 1, and are from all three grids.

    A task is the work for one grid point: a distribution of rows and a budget. A grid is a set of grid points. So a run
    that is stopped early has results of each grid.
    """
    every = [cell for cells in grid.CELLS.values() for cell in cells]
    with grid.connect(tmp_path / "grid.db") as db:
        order = [cell for cell, _ in grid.missing(every, SEEDS, db)]
    assert {cell.rho for cell in order[:63]} == {1 / 16, 1 / 4, 1.0}
    assert {cell.grid for cell in order[:63]} == {"A", "B", "C"}


def test_every_method_runs_on_a_cell():
    """With a large budget, each method of the benchmark estimates the mean of 300 rows of 2 columns with a small error.

    The squared distance of the estimate from the mean of the rows is below 1.
    """
    cell = Cell("T", 2, 1.0, 1000.0)
    X = grid.draw(cell, 0)
    for name, method in ALL.items():
        errors = grid.squared_errors(method, X, X.mean(axis=0), cell, grid.generator(name))
        assert not isinstance(errors, str), (name, errors)
        assert errors[0] < 1, name
