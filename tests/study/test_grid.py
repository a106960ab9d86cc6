"""The grid of rivals on a tiny grid: whatever happens on the way, the table is the same, byte for byte."""

import json
import subprocess
import sys
import time

import numpy as np
import pytest

from benchmarks import grid
from benchmarks.grid import Cell

CELLS = [Cell("T", d, 1.0, rho) for d in (2, 3) for rho in (1.0, 4.0)]
METHODS = ["plan", "coordinate_median", "gaussian", "coinpress"]
SEEDS = 3
ALL = dict(grid.METHODS)
FORK = """
import sys
from benchmarks import grid
from tests.study.test_grid import CELLS, METHODS, SEEDS
say = lambda line: print(line, flush=True)
grid.run(CELLS * 40, seeds=SEEDS, processes=2, store=sys.argv[1], methods=METHODS, say=say)
"""


@pytest.fixture(autouse=True)
def few_methods(monkeypatch):
    """The table has as many columns as are run."""
    monkeypatch.setattr(grid, "METHODS", {name: grid.METHODS[name] for name in METHODS})


def run_here(cells, store, methods=METHODS):
    """As grid.run does, in this process."""
    tasks = grid.missing(cells, SEEDS, store, methods)
    for cell, names in tasks:
        grid.run_cell(cell, names, SEEDS, store)
    return tasks


@pytest.fixture
def store(tmp_path):
    """A store with everything in it."""
    run_here(CELLS, tmp_path / "whole")
    return tmp_path / "whole"


def table(store):
    """The whole table; there must be nothing missing."""
    text, absent = grid.table(CELLS, SEEDS, store)
    assert not absent
    return text


def test_any_order_and_any_split_give_the_same_bytes(store, tmp_path):
    other = tmp_path / "other"
    for name in reversed(METHODS):
        for cell in reversed(CELLS):
            run_here([cell], other, [name])
    assert table(other) == table(store)
    assert {file.name: file.read_bytes() for file in other.iterdir()} == {
        file.name: file.read_bytes() for file in store.iterdir()
    }


def test_killed_and_resumed_is_the_same_as_uninterrupted(store, tmp_path):
    """Killed with two cells under way: the processes end, nothing else is lost, and the rest is done later."""
    killed = tmp_path / "killed"
    command = [sys.executable, "-c", FORK, str(killed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout.readline() == f"{40 * len(CELLS)} tasks to do\n"
        assert process.stdout.readline().startswith("[1/160] T-2-1-1: 4 methods")
        process.kill()
        process.stdout.read()  # ends when the last of its processes has ended
    before = {file: file.stat().st_mtime_ns for file in killed.glob("*.json")}
    assert len(before) >= len(METHODS)
    assert all(json.loads(file.read_text())["runs"] for file in before)
    grid.run(CELLS, seeds=SEEDS, processes=1, store=killed, methods=METHODS, say=lambda line: None)
    assert all(file.stat().st_mtime_ns == when for file, when in before.items())
    assert not list(killed.glob("*.tmp"))
    assert table(killed) == table(store)


MANY = [Cell("T", 2, 1.0, rho) for rho in range(1, 61)]
SWEEP = """
import sys
from benchmarks import grid
from tests.study.test_grid import MANY, METHODS, SEEDS
say = lambda line: print(line, flush=True)
grid.run(MANY, seeds=SEEDS, processes=1, store=sys.argv[1], methods=METHODS, say=say)
"""


def test_twenty_kills_lose_at_most_one_cell_each(tmp_path):
    """Whatever was said to be done stays, and is whole; the table is that of a run without an accident."""
    killed, random, done = tmp_path / "killed", np.random.default_rng(1), 0
    for _ in range(20):
        command = [sys.executable, "-c", SWEEP, str(killed)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            assert process.stdout.readline() == f"{len(MANY) - done} tasks to do\n"
            process.stdout.readline()
            time.sleep(random.uniform(0, 0.02))  # anywhere in the cells that follow
            process.kill()
            said = 1 + process.stdout.read().count("[")
        files = list(killed.glob("*.json"))
        assert all(json.loads(file.read_text())["runs"] for file in files)
        left = len(grid.missing(MANY, SEEDS, killed, METHODS))
        assert len(MANY) - left >= done + said
        assert len(files) < (len(MANY) - left + 1) * len(METHODS)  # of one cell at most there is a part
        done = len(MANY) - left
    run_here(MANY, killed)
    run_here(MANY, tmp_path / "whole")
    texts = [grid.table(MANY, SEEDS, tmp_path / name) for name in ("killed", "whole")]
    assert texts[0] == texts[1]
    assert not texts[0][1]


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "gone", "another cell", "fewer seeds", "other version"])
def test_damaged_file_is_computed_again_and_no_other(damage, store):
    before, file = table(store), grid.path(store, CELLS[1], "plan")
    text = file.read_text()
    digit = text.index("0.", text.index("runs")) + 4
    body = {key: value for key, value in json.loads(text).items() if key != "sum"}
    sealed = {
        "another cell": body | {"cell": list(CELLS[0])},
        "fewer seeds": body | {"runs": body["runs"][:-1]},
        "other version": body | {"version": 0},
    }
    if damage == "gone":
        file.unlink()
    elif damage in sealed:
        file.write_text(json.dumps({"sum": grid.checksum(sealed[damage]), **sealed[damage]}))
    else:
        flipped = text[:digit] + str(9 - int(text[digit])) + text[digit + 1 :]
        file.write_text({"cut": text[:-30], "flipped": flipped, "empty": ""}[damage])
    assert grid.table(CELLS, SEEDS, store)[1] == [(CELLS[1], "plan")]
    assert run_here(CELLS, store) == [(CELLS[1], ["plan"])]
    assert table(store) == before


def test_writing_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    file = tmp_path / "x.json"
    grid.write(file, "old")
    monkeypatch.setattr(grid.os, "fsync", lambda handle: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        grid.write(file, "new")
    assert [(found.name, found.read_text()) for found in tmp_path.iterdir()] == [("x.json", "old")]


def test_two_runs_at_once_are_refused(tmp_path):
    with grid.alone(tmp_path), pytest.raises(SystemExit, match="another run"), grid.alone(tmp_path):
        pass


def test_failures_are_counted_and_told(tmp_path, monkeypatch):
    def sometimes(X, cell, rng):
        if rng.uniform() < 0.5:
            raise ValueError("no luck")
        return X.mean(axis=0) + 0.5

    def never(X, cell, rng):
        return np.full(cell.d, np.nan)

    methods = {"sometimes": grid.Method(sometimes), "never": grid.Method(never)}
    monkeypatch.setattr(grid, "METHODS", methods)
    for cell in CELLS:
        grid.run_cell(cell, ["sometimes", "never"], 30, tmp_path)
    row, empty = grid.table(CELLS, 30, tmp_path)[0].splitlines()[1:3]
    *_, mean, se, _, _, failed, seeds = row.split(",")
    assert float(mean) == pytest.approx(0.5)
    assert float(se) < 1e-15
    assert 5 < int(failed) < 25
    assert seeds == "30"
    assert empty.endswith(",nan,nan,nan,nan,30,30")
    first, second = list(grid.failures(CELLS, 30, tmp_path))[:2]
    assert first == f"T-2-1-1: sometimes failed {failed} times of 30, ValueError: no luck"
    assert second == "T-2-1-1: never failed 30 times of 30, no finite estimate: [nan, nan]"


def test_figures_of_the_table(store):
    """Mean and standard error of the files' runs."""
    runs = json.loads(grid.path(store, CELLS[0], "coordinate_median").read_text())["runs"]
    row = next(line for line in table(store).splitlines() if line.startswith('T,2,1,300,1,"coordinate_median",,'))
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
    every = [cell for cells in grid.CELLS.values() for cell in cells]
    order = [cell for cell, _ in grid.missing(every, SEEDS, tmp_path)]
    assert {cell.rho for cell in order[:63]} == {1 / 16, 1 / 4, 1.0}
    assert {cell.grid for cell in order[:63]} == {"A", "B", "C"}


def test_every_method_runs_on_a_cell():
    """Near the sample mean where the budget is ample."""
    cell = Cell("T", 2, 1.0, 1000.0)
    X = grid.draw(cell, 0)
    for name, method in ALL.items():
        errors = grid.squared_errors(method, X, X.mean(axis=0), cell, grid.generator(name))
        assert not isinstance(errors, str), (name, errors)
        assert errors[0] < 1, name
