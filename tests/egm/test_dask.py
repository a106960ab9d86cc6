"""Test that a release of a dask array, in one process or on a cluster, is bit for bit that of an array in memory.

The array in memory has the same rows, and the noise is zero or comes from the same generator.
"""

import logging
import os
import signal
import subprocess
import sys
import time
import traceback
import warnings
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from decimal import Decimal
from pathlib import Path

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse
import zarr
from distributed import Client, LocalCluster

from egm import AdaptiveDataMechanism, GaussianDataMechanism
from egm._rows.dask import is_dask, results
from egm.budget import Budget
from egm.files import from_parquet, rows

SIGMA, MU = np.array([2.0, 1.0, 0.25]), np.array([10.0, -4.0, 0.5])
N = 500


@pytest.fixture(scope="module")
def cluster():
    """Start a dask cluster of two processes on this computer, and yield its client.

    A process that dies is started again by the cluster.
    """
    options = {"n_workers": 2, "threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(**options, silence_logs=logging.ERROR) as cluster, Client(cluster) as client:
        yield client


def data():
    return np.random.default_rng(3).normal(MU, 3 * SIGMA, (N, 3))


def estimate(X, n=N, **options):
    """Return the sum of the rows of `X` as GaussianDataMechanism releases it, with parameters that clip many rows.

    `n` is the declared number of rows, and `options` are further options of the mechanism.
    """
    options = {"center": MU, "clip_probability": 0.3, "columns": ("a", "b", "c"), **options}
    return GaussianDataMechanism(SIGMA, n, 1.0, 1e-6, **options).release(X).estimate


def seen(block):
    """Return the pair (rows of the array `block` as a list, number of these rows).

    With such pairs, a test can see what becomes of each row when a dask array is summed in blocks.
    """
    return block.tolist(), len(block)


def unknown(X, chunks):
    """Return a dask array of the rows of `X`, for which dask does not know the number of rows.

    The rows are chosen from a larger array when the array is computed, so dask does not know before how many there are.
    The larger array has blocks of the sizes `chunks`.
    """
    X = da.from_array(np.insert(X, [0, 3, len(X)], -1e6, axis=0), chunks=chunks)
    return X[X[:, 0] > -1e5]


CHUNKED = {
    "one block": lambda X: da.from_array(X, chunks=X.shape),
    "blocks": lambda X: da.from_array(X, chunks=(100, 3)),
    "single rows": lambda X: da.from_array(X, chunks=(1, 3)),
    "odd rows and columns": lambda X: da.from_array(X, chunks=((1, 0, 299, 200), (2, 1))),
    "unknown length": lambda X: unknown(X, (37, 3)),
    "unknown length, columns apart": lambda X: unknown(X, (50, 1)),
    "computed": lambda X: (da.from_array(X / 2, chunks=40) * 2).persist(),
    "Fortran order": lambda X: da.from_array(np.asfortranarray(X), chunks=90),
    "twice the same half": lambda X: da.concatenate([da.from_array(X[: N // 2], chunks=60)] * 2),
}


@pytest.mark.parametrize("chunked", CHUNKED)
def test_each_row_is_in_one_result_and_in_order(chunked):
    """`results` sums each block of rows of a dask array, and adds up neighboring sums until at most 16 are left.

    The function that sums a block is an argument of `results`. In the test it is `seen`, which returns the rows as a
    list, and two lists are added by joining them. So each row must be in one of the lists, and in order. `chunked` is a
    kind of dask array, a key of CHUNKED.
    """
    X = CHUNKED[chunked](data())
    parts = results(X, seen)
    assert np.array_equal([row for rows, _ in parts for row in rows], X.compute())
    assert [count for _, count in parts] == [len(rows) for rows, _ in parts]
    assert len(parts) <= 16


@pytest.mark.parametrize("scheduler", ["threads", "synchronous"])
@pytest.mark.parametrize("chunked", CHUNKED)
def test_release_is_that_in_memory(chunked, scheduler, silent):
    X = CHUNKED[chunked](data())
    with dask.config.set(scheduler=scheduler):
        assert np.array_equal(estimate(X), estimate(X.compute()))
    assert [size for _, size in silent] == [3, 3]


@pytest.mark.parametrize("dtype", ["float16", "float32", "int16", "uint64"])
def test_other_types_are_numbers_too(dtype, silent):
    X = np.abs(data()).astype(dtype)
    assert np.array_equal(estimate(da.from_array(X, chunks=70)), estimate(X))


def test_count_is_that_of_the_rows_that_were_read(silent):
    X, options = unknown(data(), (37, 3)), {"n": 1000, "neighbors": "add_remove"}
    assert np.array_equal(estimate(X, **options), estimate(data(), **options))
    mechanism = GaussianDataMechanism(SIGMA, 1000, 1.0, 1e-6, neighbors="add_remove")
    assert mechanism.release(X).count == N


def test_clipped_rows_are_counted_in_every_block(silent):
    mechanism = GaussianDataMechanism(SIGMA, N, 1.0, 1e-6, center=MU, clip_probability=0.3, count_clipped=True)
    found = mechanism.release(da.from_array(data(), chunks=(70, 2))).clipped
    assert found == np.sum(np.linalg.norm((data() - MU) * mechanism.b, axis=1) > mechanism.clip_norm) > 100


def test_simulation_is_that_in_memory():
    mechanism, X = GaussianDataMechanism(SIGMA, N, 1.0, 1e-6), data()
    one, two = (mechanism.release(Y, rng=np.random.default_rng(1)) for Y in (X, da.from_array(X, chunks=70)))
    assert np.array_equal(one.estimate, two.estimate)
    assert two.simulated


# --- Files ------------------------------------------------------------------------------------------------------------


def write_parquet(path, X, names=("a", "b", "c"), **options):
    pq.write_table(pa.table(dict(zip(names, X.T, strict=True))), path, **options)


def test_parquet_is_summed_as_in_memory(tmp_path, silent):
    X = data()
    write_parquet(tmp_path / "one", X, row_group_size=77)
    assert np.array_equal(from_parquet(tmp_path / "one").compute(), X)
    assert from_parquet(tmp_path / "one").chunks == ((77,) * 6 + (38,), (3,))
    assert np.array_equal(estimate(from_parquet(str(tmp_path / "one"))), estimate(X))


def test_parquet_files_of_a_folder_in_the_order_of_their_names(tmp_path, silent):
    X = data()
    (tmp_path / "sub").mkdir()
    for name, part in (("sub/c", X[300:]), ("b", X[100:300]), ("a", X[:100]), ("_log", X), (".part", X)):
        write_parquet(tmp_path / f"{name}.parquet", part, row_group_size=64)
    assert np.array_equal(from_parquet(tmp_path).compute(), X)
    assert np.array_equal(estimate(from_parquet(tmp_path)), estimate(X))


def test_parquet_columns_are_chosen_by_name(tmp_path):
    table = {"id": ["x", "y"], "u": np.array([1, 2], "i2"), "v": np.array([0.5, 1.5], "f4"), "p.q": [7, 8], "p": [3, 4]}
    pq.write_table(pa.table(table), tmp_path / "one")
    X = from_parquet(tmp_path / "one", ["v", "u"])
    assert X.dtype == np.float32
    assert np.array_equal(X.compute(), [[0.5, 1], [1.5, 2]])
    assert np.array_equal(from_parquet(tmp_path / "one", ["p", "v", "p.q"]).compute(), [[3, 0.5, 7], [4, 1.5, 8]])


def test_parquet_of_more_columns_than_are_read_at_once(tmp_path):
    X = np.arange(2.0 * 11).reshape(2, 11)
    names = [f"x{j}" for j in range(11)]
    write_parquet(tmp_path / "one", X, names)
    assert np.array_equal(from_parquet(tmp_path / "one", names[::-1]).compute(), X[:, ::-1])


def test_parquet_without_rows(tmp_path):
    write_parquet(tmp_path / "one", np.empty((0, 3)))
    assert from_parquet(tmp_path / "one").compute().shape == (0, 3)
    with pytest.raises(ValueError, match=f"X must have the declared n = {N} rows, got 0"):
        estimate(from_parquet(tmp_path / "one"))


def folder(path, second, **first):
    """Write two tables, the dictionaries `first` and `second`, to Parquet files in the folder `path`; return `path`."""
    for name, table in (("a.parquet", first), ("b.parquet", second)):
        pq.write_table(pa.table(table), path / name)
    return path


def test_flags_and_decimals_are_numbers(tmp_path):
    flags, prices = [True, False], [Decimal("0.10"), Decimal("-12345678901.23")]
    found = from_parquet(folder(tmp_path, {"a": flags, "b": prices}, a=[2, 3], b=[0.5, 1.5])).compute()
    assert found.tolist() == [[2, 0.5], [3, 1.5], *([int(a), float(b)] for a, b in zip(flags, prices, strict=True))]
    (tmp_path / "flags").mkdir()
    assert from_parquet(folder(tmp_path / "flags", {"a": [False]}, a=[True])).compute().tolist() == [[1], [0]]


DAY = [date(2024, 3, 1)]
NO_TABLE = {
    "missing": (lambda path: from_parquet(path / "none"), FileNotFoundError, "none"),
    "empty folder": (lambda path: from_parquet(path), FileNotFoundError, "no Parquet files in"),
    "not Parquet": (lambda path: (path / "x").write_text("a,b") and from_parquet(path), ValueError, "x'"),
    "text": (lambda path: from_parquet(folder(path, {"a": [1]}, a=["1"])), TypeError, "'a' of .*a.parquet .* string"),
    "dates": (lambda path: from_parquet(folder(path, {"a": DAY}, a=[1])), TypeError, "b.parquet .* date"),
    "another column": (lambda path: from_parquet(folder(path, {"b": [1]}, a=[1])), ValueError, r"b.parquet .*\['a'\]"),
    "no such column": (lambda path: from_parquet(folder(path, {}, a=[1]), ["z"]), ValueError, "one column 'z'"),
    "a name": (lambda path: from_parquet(path, "abc"), TypeError, "columns must be a list of names, got 'abc'"),
    "no columns": (lambda path: from_parquet(folder(path, {}, a=[1]), []), ValueError, "at least one column"),
}


@pytest.mark.parametrize("case", NO_TABLE)
def test_bad_parquet_is_named_before_it_is_read(case, tmp_path):
    read, error, message = NO_TABLE[case]
    with pytest.raises(error, match=message):
        read(tmp_path)


def test_missing_values_are_named(tmp_path):
    pq.write_table(pa.table({"a": [1.0] * N, "b": [1, None] * (N // 2), "c": [2.0] * N}), tmp_path / "one")
    with pytest.raises(ValueError, match=r"'b' of .*one must have no missing values$"):
        estimate(from_parquet(tmp_path / "one"))


def test_missing_values_are_nan_if_they_may_be(tmp_path):
    """With missing="nan", `from_parquet` reads each missing value (null) as NaN, and all other entries as numbers.

    The columns hold integers, truth values, decimals, doubles or only missing values.
    """
    table = {"a": [1, None], "b": [True, None], "c": [None, Decimal("0.10")], "d": [0.5, None], "e": [7, 8]}
    table["f"] = pa.nulls(2)
    found = from_parquet(folder(tmp_path, table, **{name: [3.0] for name in table}), missing="nan").compute()
    expected = [[3] * 6, [1, 1, np.nan, 0.5, 7, np.nan], [np.nan, np.nan, 0.1, np.nan, 8, np.nan]]
    assert np.array_equal(found, expected, equal_nan=True)
    with pytest.raises(ValueError, match=r"'f' of .*b\.parquet must have no missing values$"):
        from_parquet(tmp_path, ["f"]).compute()
    pq.write_table(pa.table({"f": pa.nulls(2)}), tmp_path / "a.parquet")
    assert np.isnan(from_parquet(tmp_path, ["f"], missing="nan").compute()).all()
    with pytest.raises(ValueError, match=r"missing must be .error. or .nan., got .center."):
        from_parquet(tmp_path, missing="center")


def test_large_integers_beside_missing_values_are_rounded(tmp_path):
    integers = pa.array([2**53 + 1, 2**63 - 1, None])
    found = from_parquet(folder(tmp_path, {"a": integers}, a=[1]), missing="nan").compute()
    assert np.array_equal(found, [[1], [2.0**53], [2.0**63], [np.nan]], equal_nan=True)


@pytest.mark.parametrize("missing", ["center", "drop_row"])
@pytest.mark.parametrize("read", [from_parquet, rows])
def test_a_file_opened_without_missing_values_costs_nothing(read, missing, tmp_path, silent):
    """A mechanism that allows missing values refuses a file that was opened without them, before a budget is charged.

    If the file was opened with missing="nan", the sum is that of the same rows in memory.
    """
    path, X = tmp_path / "t.parquet", np.array([[1, 2.5], [np.nan, 4], [5, 6]])
    pq.write_table(pa.table({"x": [1, None, 5], "y": X[:, 1]}), path)
    options = {"columns": ["x", "y"], "neighbors": "add_remove", "missing": missing}
    mechanism = GaussianDataMechanism([1, 1], 3, 1.0, 1e-6, **options)
    spent = Budget(epsilon=3, delta=1e-5, neighbors="add_remove")
    with pytest.raises(ValueError, match=f"X must be opened by egm.files with missing=.nan. .* missing='{missing}'"):
        spent.release(mechanism, read(path))
    assert spent.history == ()
    found = spent.release(mechanism, read(path, missing="nan"))
    assert np.array_equal(found.estimate, mechanism.release(X).estimate)


PEAK = """
import sys

import dask
import dask.array as da
import numpy as np

from egm import GaussianDataMechanism
from egm.files import from_parquet

def peak():
    with open("/proc/self/status") as lines:
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

dask.config.set(num_workers=2)
X = (da.from_zarr if sys.argv[1] == "zarr" else from_parquet)(sys.argv[2])
names = getattr(X, "column_names", None)
release = lambda X: GaussianDataMechanism(np.ones(X.shape[1]), len(X), 1.0, 1e-6, columns=names).release(X)
release(X.blocks[:4])
before = peak()
release(X)
between = peak()
whole = X.compute()
print(between - before, peak() - before, whole.nbytes)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
@pytest.mark.parametrize("kind", ["zarr", "parquet"])
def test_an_array_is_never_in_memory_as_a_whole(kind, tmp_path):
    """A release of an array in 64 blocks needs less additional memory than a quarter of the array's size.

    The additional memory is the peak of the memory in a release of the whole array, minus the peak in a release of its
    first four blocks. `kind` is "zarr" or "parquet", the kind of file that holds the array.
    """
    X = np.random.default_rng(1).normal(size=(16_000, 100)).repeat(10, axis=0)
    if kind == "zarr":
        zarr.create_array(tmp_path / "X", data=X, chunks=(2500, 100), compressors=None)
    else:
        write_parquet(tmp_path / "X", X, [f"x{j}" for j in range(100)], row_group_size=2500, use_dictionary=False)
    run = [sys.executable, "-c", PEAK, kind, tmp_path / "X"]
    strict = {**os.environ, "PYTHONWARNINGS": "error"}
    done = subprocess.run(run, capture_output=True, text=True, check=True, env=strict)
    summed, loaded, size = map(int, done.stdout.split())
    assert summed < size / 4
    assert loaded > size * 0.9  # the peak does show an array that is in memory


# --- What is not such an array ----------------------------------------------------------------------------------------


def nan_columns(X):
    """Return a dask array with the entries of `X`, for which dask knows no number of rows and no number of columns."""
    X = da.from_array(X, chunks=(100, 3))
    return X.map_blocks(np.copy, dtype=float, meta=np.empty((0, 0)), chunks=((np.nan,) * 5, (np.nan,)))


def with_entry(value):
    """Return the test data as a dask array in blocks of 50 rows; the entry in row 234 and column 1 is `value`."""
    X = data()
    X[234, 1] = value
    return da.from_array(X, chunks=50)


NOT_DATA = {
    "too few columns": (lambda: da.ones((N, 2), chunks=100), r"X must have shape \(rows, 3\), got \(500, 2\)"),
    "too many columns": (lambda: da.ones((N, 4), chunks=(100, 1)), r"X must have shape \(rows, 3\), got \(500, 4\)"),
    "unknown columns": (lambda: nan_columns(data()[:, [0, 1]]), r"X must have shape \(rows, 3\), got \(rows, 2\)"),
    "unknown columns apart": (
        lambda: da.concatenate(
            [nan_columns(data()[:, [0]]), nan_columns(data()[:, [1, 2]])], axis=1, allow_unknown_chunksizes=True
        ),
        "X must have columns whose number is known",
    ),
    "one axis": (lambda: da.ones(N, chunks=100), r"X must have shape \(rows, 3\), got \(500,\)"),
    "three axes": (lambda: da.ones((N, 3, 1), chunks=100), "X must have shape"),
    "a row too few": (lambda: da.from_array(data()[1:], chunks=100), "X must have the declared n = 500 rows, got 499"),
    "unknown rows, too few": (lambda: unknown(data()[1:], (100, 3)), "declared n = 500 rows, got 499"),
    "no rows": (lambda: da.ones((0, 3)), "X must have the declared n = 500 rows, got 0"),
    "nan": (lambda: with_entry(np.nan), r"X\[34, 1\] must be finite$"),
    "infinity": (lambda: with_entry(-np.inf), r"X\[34, 1\] must be finite$"),
    "complex": (lambda: da.ones((N, 3), dtype=complex), "X must be"),
    "objects": (lambda: da.from_array(data().astype(object), chunks=100), "X must be"),
    "masked": (lambda: da.ma.masked_array(da.ones((N, 3)), False), "X must be"),
    "not an array": (lambda: dask.delayed(data()), "X must be a dask array"),
}


@pytest.mark.parametrize("name", NOT_DATA)
def test_bad_arrays_are_named(name):
    make, message = NOT_DATA[name]
    with pytest.raises((ValueError, TypeError), match=message):
        estimate(make())


NOT_BLOCKS = {  # what becomes of a block of numbers when it is computed
    "masked": lambda block: np.ma.array(block, mask=block > 9),
    "complex": lambda block: block + 1j,
    "flags": lambda block: block > 9,
    "one column": lambda block: block[:, :1],
    "sparse": scipy.sparse.csr_matrix,
}


@pytest.mark.parametrize("kind", NOT_BLOCKS)
def test_a_block_that_is_not_what_dask_expected_is_refused(kind):
    """Two mechanisms raise equal errors for a dask array whose blocks do not have the declared type and shape."""
    X = da.from_array(data(), chunks=(100, 3)).map_blocks(NOT_BLOCKS[kind], dtype=float, meta=np.empty((0, 0)))
    said = []
    for made in (GaussianDataMechanism(SIGMA, N, 1.0, 1e-6), AdaptiveDataMechanism(N, 1.0, ranges=[(-20, 20)] * 3)):
        with pytest.raises((TypeError, ValueError), match=r"^X must .* got ") as caught:
            made.release(X)
        said.append((caught.type, str(caught.value)))
    assert said[0] == said[1]


@pytest.mark.parametrize("dtype", [float, bool, "Int64"])
def test_texts_that_dask_takes_for_numbers_are_refused_and_not_shown(dtype):
    """If dask expects numbers but a partition has texts, `release` raises a TypeError that shows none of these texts.

    `dtype` is the type of another column, on which depends how the partition becomes an array.
    """
    meta = pd.DataFrame({"a": pd.Series(dtype=float), "b": pd.Series(dtype=dtype)})
    X = dd.from_map(lambda _: pd.DataFrame({"a": ["secret"], "b": [1]}).astype({"b": dtype}), [0, 1], meta=meta)
    ranges = {"a": (0, 1), "b": (0, 1)}
    for made in (
        GaussianDataMechanism(dict.fromkeys("ab", 1.0), 2, 1.0, 1e-6),
        AdaptiveDataMechanism(2, 1.0, ranges=ranges),
    ):
        with pytest.raises(TypeError, match=r"^X must .* numbers") as caught:
            made.release(X)
        assert "secret" not in "".join(traceback.format_exception_only(caught.value))


def test_unknown_columns_may_be_right(silent):
    """A dask array whose number of columns is not known is summed if its blocks have the right number of columns."""
    assert np.array_equal(estimate(nan_columns(data())), estimate(data()))


def test_dask_is_recognized():
    assert is_dask(da.ones(3))
    assert is_dask(dask.delayed(3))
    assert not any(map(is_dask, (np.ones(3), [1.0], None, iter([]), zarr.array([1.0]))))


@pytest.mark.slow
def test_arrays_in_memory_need_no_dask():
    release = "GaussianDataMechanism([1.0], 2, 1.0, 1e-6).release([[0.0], [0.0]])"
    code = f"import egm, sys; egm.{release}; print('dask' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


# --- Cluster ----------------------------------------------------------------------------------------------------------


def gated(block, folder, block_id):
    """Return the array `block` unchanged, and create a file in `folder` that shows which process has begun this block.

    From its third block on, a process waits until the file "go" appears in `folder`, so that a test can kill the
    process while it waits. `block_id` begins with the block's number.
    """
    before = len(list(folder.glob(f"{os.getpid()} *")))
    (folder / f"{os.getpid()} {block_id[0]}").touch()
    while before >= 2 and not (folder / "go").exists():
        time.sleep(0.01)
    return block


def begun(folder):
    """Return a dictionary {process id: set of the numbers of the blocks that this process has begun}.

    The function `gated` has created a file in `folder` for each process and block.
    """
    found = {}
    for process, block in (file.name.split() for file in folder.glob("* *")):
        found.setdefault(int(process), set()).add(int(block))
    return found


def kill_one(folder):
    """Wait until two processes have each begun three blocks; then kill one of them, and return its blocks' numbers.

    `gated` creates files in `folder` that show which blocks are begun. At the end, the file "go" is created there, so
    that the other process does not wait any longer.
    """
    try:
        for _ in range(30_000):  # five minutes: on two busy processors the workers need up to ten seconds
            blocks = begun(folder)
            if sorted(map(len, blocks.values())) == [3, 3]:
                os.kill(min(blocks), signal.SIGKILL)
                return blocks[min(blocks)]
            time.sleep(0.01)
        raise TimeoutError(f"begun: {blocks}")
    finally:
        (folder / "go").touch()


@pytest.mark.slow
def test_a_killed_worker_changes_nothing(tmp_path, cluster, silent):
    """If a worker process is killed in its third block, the sum on a cluster still contains each block exactly once.

    The blocks of the killed process are computed again by another one.
    """
    X = da.from_array(data(), chunks=(13, 3)).map_blocks(gated, folder=tmp_path, dtype=float, meta=np.empty((0, 0)))
    assert X.numblocks == (39, 1)
    with ThreadPoolExecutor(1) as pool:
        killed = pool.submit(kill_one, tmp_path)
        released = estimate(X)
    lost = killed.result()
    finished = list(begun(tmp_path).values())
    assert all(sum(block in blocks for blocks in finished) == 2 for block in lost)
    assert set.union(*finished) == set(range(39))
    assert np.array_equal(released, estimate(data()))
    assert [size for _, size in silent] == [3, 3]


@pytest.mark.slow
def test_a_killed_worker_counts_each_person_once(tmp_path, cluster, silent):
    """If a worker process is killed, a sum over persons with rows in several blocks is still that of data in memory.

    With per_person="sum", the mechanism first adds the rows of each person, and then clips and adds the persons' sums.
    """
    persons = np.random.default_rng(5).integers(0, 150, N)
    X = np.column_stack([persons, data()])
    held = da.from_array(X, chunks=(13, 4)).map_blocks(gated, folder=tmp_path, dtype=float, meta=np.empty((0, 0)))
    held.column_names = ("person", "a", "b", "c")
    options = {"center": MU, "columns": ("a", "b", "c"), "per_person": "sum"}
    mechanism = GaussianDataMechanism(SIGMA, np.unique(persons).size, 1.0, 1e-6, **options)
    with ThreadPoolExecutor(1) as pool:
        killed = pool.submit(kill_one, tmp_path)
        released = mechanism.release(held, person="person").estimate
    assert killed.result()
    assert np.array_equal(released, mechanism.release(data(), person=persons).estimate)
    assert [size for _, size in silent] == [3, 3]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["zarr", "parquet", "unknown"])
def test_a_cluster_changes_nothing(kind, tmp_path, cluster, silent):
    if kind == "zarr":
        zarr.create_array(tmp_path / "X", data=data(), chunks=(20, 3))
        X = da.from_zarr(tmp_path / "X")
    elif kind == "parquet":
        write_parquet(tmp_path / "X", data(), row_group_size=20)
        X = from_parquet(tmp_path / "X")
    else:
        X = unknown(data(), (20, 3))
    assert np.array_equal(estimate(X), estimate(data()))
    assert [size for _, size in silent] == [3, 3]


@pytest.mark.slow
def test_an_error_on_a_cluster_is_that_in_memory(cluster):
    with pytest.raises(ValueError, match=r"X\[34, 1\] must be finite$"):
        estimate(with_entry(np.nan))


@pytest.mark.slow
def test_a_changed_parquet_file_is_read_again(tmp_path, cluster):
    """If a Parquet file changes, `egm.files.from_parquet` reads it again, even if a cluster holds the old numbers."""
    write_parquet(tmp_path / "one", data(), row_group_size=100)
    before = from_parquet(tmp_path / "one").persist()
    assert np.array_equal(before.compute(), data())
    write_parquet(tmp_path / "one", data() + 1, row_group_size=100)
    assert np.array_equal(from_parquet(tmp_path / "one").compute(), data() + 1)


@pytest.mark.slow
def test_an_adaptive_release_on_a_cluster_is_that_in_memory(cluster):
    """A release of AdaptiveDataMechanism for a dask array on a cluster is bit for bit that for the array in memory.

    One row overflows, about which no process of the cluster warns, because a warning would reveal the row.
    """
    cluster.run(warnings.simplefilter, "error", RuntimeWarning)
    X = data() / 100
    X[17] = 1.7e308
    it = AdaptiveDataMechanism(N, 4.0, ranges=[(-0.5, 0.5)] * 3)
    expected, found = (it.release(rows, rng=np.random.default_rng(1)) for rows in (X, da.from_array(X, (70, 2))))
    assert found.method == "search"
    assert found.estimate.tolist() == expected.estimate.tolist()
    assert found.spent == expected.spent
