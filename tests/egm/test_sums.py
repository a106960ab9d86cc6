"""Test that the sum of clipped rows is exact, is equal for every kind of table, and takes hardly any memory."""

import gc
import subprocess
import sys
import threading
import time
import tracemalloc
import weakref
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from egm import _threads
from egm._rows import kernel, lattice
from egm._rows.doubles import doubles
from egm._rows.lattice import Lattice
from egm._rows.sums import clipped_sum
from egm._threads import in_parallel

D = 7
CENTER, SCALING = np.linspace(-1, 1, D), np.geomspace(0.5, 3, D)
GRID = Lattice(2.0, D, 8.0)


def rows(n=1003, seed=1):
    """Return `n` random rows, shape (`n`, 7), of which about half are clipped and one is equal to the center.

    About four of the rows are a million times longer than the others.
    """
    X = np.random.default_rng(seed).normal(CENTER, 0.6, (n, D))
    X[:: n // 4 or 1] *= 1e6
    X[n // 2] = CENTER
    return X


def summed(X):
    return clipped_sum(X, GRID, CENTER, SCALING)


def memory_map(X, folder):
    np.save(folder / "rows.npy", X)
    return np.load(folder / "rows.npy", mmap_mode="r")


HOLDERS = {
    "read-only": lambda X, _: np.broadcast_to(X, X.shape),
    "Fortran order": lambda X, _: np.asfortranarray(X),
    "every second row of a larger one": lambda X, _: np.repeat(X, 2, axis=0)[::2],
    "columns of a larger one": lambda X, _: np.tile(X, 3)[:, :D],
    "big-endian": lambda X, _: X.astype(">f8"),
    "a list": lambda X, _: X.tolist(),
    "a memory map": memory_map,
    "blocks": lambda X, _: iter(np.split(X, [1, 2, 5, 400])),
    "empty blocks": lambda X, _: iter([X[:0], X, X[:0]]),
    "blocks of one row": lambda X, _: iter(X[:, None, :]),
    "reversed": lambda X, _: X[::-1],
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_sum_does_not_depend_on_what_holds_the_rows(holder, tmp_path):
    X = rows()
    total, number = summed(HOLDERS[holder](X, tmp_path))
    expected, _ = summed(X)
    assert np.array_equal(total, expected)
    assert number == 1003
    *total, clipped = clipped_sum(HOLDERS[holder](X, tmp_path), GRID, CENTER, SCALING, count_clipped=True)[0]
    assert np.array_equal(total, expected)
    assert clipped == np.sum(np.linalg.norm((X - CENTER) * SCALING, axis=1) > GRID.clip_norm) > 100


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.uint64, np.int64, np.longdouble])
def test_every_real_type_is_read_as_doubles(dtype):
    """Rows of each real type `dtype` of NumPy have the sum that they have after a conversion to doubles."""
    X = np.rint(rows() % 100).astype(dtype)
    assert np.array_equal(summed(X)[0], summed(X.astype(float))[0])


@pytest.mark.parametrize("d", [1, 32, 33, 70, 3000])
@pytest.mark.parametrize("dtype", [float, np.float32, np.int16, np.longdouble])
def test_rows_in_fortran_order_are_copied_as_they_are(d, dtype):
    """`doubles` copies rows in Fortran order, also a slice of a larger array, to an equal array in C order.

    The rows have any real type `dtype`. There are so many, with `d` columns, that they are copied in several steps.
    """
    X = np.random.default_rng(d).integers(-99, 99, (2 * (70_000 // d), d + 1)).astype(dtype)
    for part in (np.asfortranarray(X), np.asfortranarray(X)[::-2, 1:]):
        copied = doubles(part)
        assert copied.flags.c_contiguous
        assert copied.dtype == float
        assert np.array_equal(copied, part)


def test_too_large_long_doubles_become_infinite_in_any_order():
    X = np.ones((5, 40), dtype=np.longdouble)
    X[3, 35] = np.finfo(np.longdouble).max
    for held in (X, np.asfortranarray(X)):
        assert np.array_equal(np.argwhere(np.isinf(doubles(held))), [[3, 35]])


def test_threads_do_not_matter(monkeypatch):
    X = rows()
    alone = clipped_sum(X, GRID, CENTER, SCALING, count_clipped=True)[0]
    monkeypatch.setattr(lattice, "_WORTH_A_THREAD", 1)
    monkeypatch.setattr(lattice, "CORES", 5)
    assert np.array_equal(clipped_sum(X, GRID, CENTER, SCALING, count_clipped=True)[0], alone)
    monkeypatch.setattr(lattice, "_MOST", 100)
    assert np.array_equal(clipped_sum(X, GRID, CENTER, SCALING, count_clipped=True)[0], alone)


def test_threads_are_not_needed_when_the_main_thread_has_ended():
    """`in_parallel` computes in the thread that calls it when Python, at its end, starts no more threads."""
    code = """
import concurrent.futures.thread, threading, time
from egm._threads import in_parallel

def late():
    while not concurrent.futures.thread._shutdown:
        time.sleep(0.01)
    print(in_parallel(abs, [-1, 2, -3]))

threading.Thread(target=late).start()
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (run.stdout, run.stderr) == ("[1, 2, 3]\n", "")


def test_in_parallel_keeps_the_order_and_raises_the_first_error():
    """`in_parallel` returns the results in the order of the items, and raises the error of the first that has one."""

    def inverse(x):
        time.sleep(0.001 * x)
        return 12 // x

    assert in_parallel(inverse, []) == []
    assert in_parallel(inverse, [4, 3, 2, 1]) == [3, 4, 6, 12]
    with pytest.raises(TypeError):
        in_parallel(inverse, [6, 5, "a", 0])


def test_an_error_in_parallel_keeps_no_result_alive():
    """After an error no cycle of references keeps items, which may be large, until the garbage collector runs."""
    alive = weakref.WeakSet()

    class Item:
        def __init__(self, k):
            self.k = k
            alive.add(self)

    def checked(item):
        if item.k == 3:
            raise ValueError("the item 3 is wrong")
        return Item(item.k)

    gc.disable()
    try:
        with pytest.raises(ValueError, match="the item 3 is wrong") as caught:
            in_parallel(checked, list(map(Item, range(6))))
        del caught
        end = time.monotonic() + 60
        while alive and time.monotonic() < end:  # another thread may still work on an item
            time.sleep(0.001)
        assert not alive
    finally:
        gc.enable()


def test_in_parallel_does_not_wait_for_busy_threads():
    """`in_parallel` computes in its own thread what no other thread has begun, also if it is called by itself.

    Then the other threads, when they are free, keep nothing alive that was computed meanwhile.
    """

    class Large:
        def size(self, x):
            return abs(x)

    done, large = threading.Event(), Large()
    alive = weakref.ref(large)
    busy = [_threads._pool().submit(done.wait, 60) for _ in range(_threads.CORES)]
    try:
        assert in_parallel(lambda x: in_parallel(abs, [x, -x]), [-1, 2, -3]) == [[1, 1], [2, 2], [3, 3]]
        assert in_parallel(large.size, [-1, 2, -3]) == [1, 2, 3]
        del large
        assert alive() is None
        assert not busy[-1].done()
    finally:
        done.set()


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5, 4095, 4096, 4097, 9001])
def test_sum_is_that_of_single_rows(n):
    """`clipped_sum` of `n` rows is the exact sum of the integer vectors to which `Lattice.rows` rounds each row.

    Some of the `n` are just below, at, or above the end of a block of rows.
    """
    X = rows(max(n, 4))[:n]
    single = GRID.rows(X, CENTER, SCALING).reshape(n, D).astype(object)
    assert np.array_equal(summed(X)[0], single.sum(axis=0) if n else np.zeros(D))


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_sum_does_not_depend_on_what_memory_held_before(n, monkeypatch):
    """The sum of `n` rows does not change if memory that has not been written yet is full of NaN.

    This is tested for `n` that are no multiples of four, because `kernel.add_rows`, which adds rows, takes four at a
    time.
    """
    X, total = rows(8)[:n], np.zeros(D, dtype=np.int64)
    monkeypatch.setattr(kernel.np, "empty", lambda shape: np.full(shape, np.nan))
    target = GRID.radius * GRID.shrink
    clipped = np.zeros(1, dtype=np.int64)
    assert kernel.add_rows.py_func(X, CENTER, SCALING, GRID.clip_norm, target, total, clipped) == -1
    assert np.array_equal(total, summed(X)[0])


@given(st.lists(st.floats(-1e300, 1e300, allow_subnormal=True), min_size=3, max_size=3), st.floats(1e-100, 1e100))
def test_a_row_is_the_clipped_row_in_units_rounded_towards_zero(row, clip_norm):
    """`Lattice.rows` returns the clipped `row` as integers: each entry is divided by a unit and rounded towards zero.

    `row` is clipped to the norm `clip_norm`. The test compares with exact fractions. The norm of the integers is never
    above the lattice's attribute `radius`.
    """
    grid = Lattice(clip_norm, 3, 8.0)
    (steps,) = grid.rows(np.array([row]))
    exact = [Fraction(x) for x in row]
    norm_squared, limit = sum(x * x for x in exact), Fraction(clip_norm)
    unit = Fraction(grid.unit)
    assert sum(int(step) ** 2 for step in steps) <= grid.radius**2
    for step, x in zip(steps, exact, strict=True):
        signed = x / unit
        if norm_squared > limit**2:  # compares squares, because x / norm * limit needs a root
            assert (int(step) * unit) ** 2 * norm_squared <= (x * limit) ** 2 * (1 + Fraction(1, 10**12))
            assert ((abs(int(step)) + 1) * unit) ** 2 * norm_squared >= (x * limit) ** 2 * (1 - Fraction(1, 10**12))
        else:
            assert abs(int(step)) <= abs(signed) * (1 + Fraction(1, 10**12))
            assert abs(int(step)) + 1 >= abs(signed) * (1 - Fraction(1, 10**12))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [(0, 0), (4, 6), (1002, 3)])
def test_first_entry_that_is_not_finite_is_named(bad, place):
    X = rows()
    X[place] = bad
    for Y in (X, np.asfortranarray(X), X.astype(np.float32)):
        with pytest.raises(ValueError, match=rf"X\[{place[0]}, {place[1]}\] must be finite$"):
            summed(Y)


def test_an_entry_that_changes_while_it_is_read_is_refused(monkeypatch):
    """If an entry is NaN when it is first read, it is refused, even if another program then replaces it by a number.

    `kernel.add_rows`, which adds rows, refuses an entry by returning its index. To imitate the other program, the test
    replaces the function that searches a row for NaN by one that finds none.
    """
    X, total, clipped = rows(8), np.zeros(D, dtype=np.int64), np.zeros(1, dtype=np.int64)
    X[5, 2] = np.nan
    monkeypatch.setattr(kernel, "_first_not_finite", lambda row: -1)
    monkeypatch.setattr(kernel, "_rough", kernel._rough.py_func)  # a compiled one would not see the line above
    target = GRID.radius * GRID.shrink
    place = kernel.add_rows.py_func(X, CENTER, SCALING, GRID.clip_norm, target, total, clipped)
    assert place == 5 * D + 2


def test_rows_that_become_too_large_for_doubles_are_refused_without_a_warning():
    if np.finfo(np.longdouble).max == np.finfo(float).max:
        pytest.skip("long doubles are doubles here")
    X = rows(8).astype(np.longdouble)
    X[3, 1] = np.longdouble("1e400")
    with pytest.raises(ValueError, match=r"^X\[3, 1\] must be finite$"):  # here a warning is an error
        summed(X)


def test_rows_are_not_changed():
    X = rows()
    before = X.copy()
    summed(X)
    assert np.array_equal(X, before)


KINDS = {
    "doubles": lambda X: X,
    "float32": lambda X: X.astype(np.float32),
    "integers": lambda X: X.astype(np.int16),
    "Fortran order": np.asfortranarray,
    "reversed": lambda X: X[::-1],
}


@pytest.mark.parametrize("kind", KINDS)
def test_memory_beyond_the_rows_is_small(kind):
    """`clipped_sum` of 100 000 rows with 100 columns takes less than 8 MB of memory in addition to the rows.

    `kind` is the type of the numbers, or the order of the rows in memory.
    """
    X = KINDS[kind](np.random.default_rng(2).normal(size=(100_000, 100)))
    grid, ones = Lattice(12.0, 100, 8.0), np.ones(100)
    clipped_sum(X[:8], grid, ones, ones)  # compiles
    tracemalloc.start()
    clipped_sum(X, grid, ones, ones)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8e6
