"""Test that every kind of table is summed by the names of its columns, or refused if the names do not fit."""

import dataclasses
import pickle
import tracemalloc
from collections import deque
from datetime import date
from decimal import Decimal

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse

from egm import AdaptiveDataMechanism, EllipticalGaussianMechanism, GaussianDataMechanism, _tables, files
from egm.mechanisms import GaussianMechanism, GroupedDataMechanism
from tests.egm.doubles import Silent

N = 400
NAMES = "age", "income", "visits"
SIGMA, CENTER = [18.0, 1200.0, 3.0], [45.0, 2500.0, 5.0]
X = np.random.default_rng(1).normal([47, 2200, 4], [16, 1300, 2], (N, 3)).round()
ORDER = [2, 0, 1]
OTHER = tuple(NAMES[i] for i in ORDER)
FRAMES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}  # functions that make a data frame
of_all_frames = pytest.mark.parametrize("make", FRAMES.values(), ids=FRAMES)


def mechanism(**options):
    return GaussianDataMechanism(dict(zip(NAMES, SIGMA, strict=True)), N, 1.0, 1e-6, **{"center": CENTER, **options})


def columns_of(names=NAMES):
    """Return the columns `names` of the test data, as a dictionary {name: vector}."""
    return {name: X[:, NAMES.index(name)] for name in names}


def frame(names=NAMES, make=pd.DataFrame):
    """Return the columns `names` of the test data as a data frame, made by the function `make`."""
    return make(columns_of(names))


def dask(*parts):
    """Return a dask frame whose partitions are the pandas data frames `parts`."""
    return dd.from_map(lambda i: parts[i], range(len(parts)), meta=parts[0][:0])


def file(folder, suffix, names=NAMES):
    """Write the columns `names` of the test data to a file in `folder`; return the table that `files.rows` reads there.

    `suffix` is ".csv" or ".parquet", the kind of the file.
    """
    path = folder / f"people{suffix}"
    if suffix == ".csv":
        chosen = X[:, [NAMES.index(name) for name in names]]
        np.savetxt(path, chosen, delimiter=",", header=",".join(names), comments="")
    else:
        import pyarrow.parquet as pq

        pq.write_table(frame(names, pa.table), path, row_group_size=90)
    return files.rows(path)


def from_parquet(folder):
    file(folder, ".parquet", OTHER)
    return files.from_parquet(folder)


def blocks():
    """Yield the rows of the test data in blocks with different orders of columns; the last block has no names."""
    yield frame(OTHER)[:100]
    yield frame(make=pl.DataFrame)[100:150]
    yield from frame(OTHER, pa.table)[150:250].to_batches(max_chunksize=30)
    yield X[250:]


HOLDERS = {
    "an array": lambda _: X,
    **{f"of {name}": lambda _, make=make: frame(make=make) for name, make in FRAMES.items()},
    **{f"of {name} in another order": lambda _, make=make: frame(OTHER, make) for name, make in FRAMES.items()},
    "of pandas with more columns": lambda _: frame(OTHER).assign(sex="x"),
    "of polars with more columns": lambda _: frame(OTHER, pl.DataFrame).with_columns(sex=pl.lit("x")),
    "of arrow with more columns": lambda _: frame(OTHER, pa.table).append_column("sex", [["x"] * N]),
    "a frame of dask's with more columns": lambda _: dask(frame(OTHER).assign(sex="x")),
    "an arrow batch": lambda _: frame(OTHER, pa.table).to_batches()[0],
    "blocks": lambda _: blocks(),
    "a frame of dask's": lambda _: dask(frame(OTHER)[:150], frame(OTHER)[150:]),
    "a CSV file": lambda folder: file(folder, ".csv", OTHER),
    "a Parquet file": lambda folder: file(folder, ".parquet", OTHER),
    "a Parquet file as an array of dask's": lambda folder: from_parquet(folder),
    "names that nobody gave": lambda _: pd.DataFrame(X),
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_sums_are_those_of_the_names(holder, tmp_path):
    held = HOLDERS[holder](tmp_path)
    if holder != "blocks":
        mechanism().check(held)
        held = HOLDERS[holder](tmp_path)
    found = mechanism().release(held, rng=Silent()).estimate
    np.testing.assert_array_equal(found, mechanism().release(X, rng=Silent()).estimate)


@of_all_frames
def test_a_table_in_another_order_is_not_copied_as_a_whole(make):
    """To put the columns of a table in the mechanism's order, a release needs less memory than a copy of the table.

    For a table of 24 MB it needs less than 20 MB, because it puts only a few rows at a time in order. The function
    `make` makes the table, a data frame.
    """
    n = 1_000_000
    held = make({name: np.ones(n) for name in OTHER})
    it = dataclasses.replace(mechanism(), n=n, delta=1e-9)
    it.release(held, rng=Silent())  # compiles
    tracemalloc.start()
    it.release(held, rng=Silent())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20e6


def test_vectors_are_matched_by_their_names():
    """If the entries of a vector such as `sigma` have names, they are put into the order of the mechanism's columns."""
    named = mechanism(center=dict(zip(OTHER, [5.0, 45.0, 2500.0], strict=True)))
    assert named == mechanism() == GaussianDataMechanism(SIGMA, N, 1.0, 1e-6, center=CENTER, columns=NAMES)
    assert named.columns == NAMES
    permuted = [[vector[i] for i in ORDER] for vector in (SIGMA, CENTER, [1.0, 2.0, 3.0])]
    sigma, center, b = (pd.Series(vector, OTHER) for vector in permuted)
    for other in (
        GaussianDataMechanism(sigma, N, 1.0, 1e-6, center=center, scaling=b, columns=NAMES),
        GaussianDataMechanism(pd.Series(SIGMA, NAMES), N, 1.0, 1e-6, center=center, scaling=b),
    ):
        assert other == mechanism(scaling=[1.0, 2.0, 3.0])
        assert other.error(mean=sigma) == other.error(mean=SIGMA) != other.error(mean=permuted[0])


def test_a_covariance_with_names_is_put_in_order():
    """`GaussianDataMechanism.error` puts a covariance matrix with names into the order of the mechanism's columns.

    The matrix is a data frame, as pandas computes it. The matrix is refused if its rows have another order than its
    columns, or if its names are not those of the mechanism.
    """
    factor = np.random.default_rng(2).normal(size=(3, 3))
    covariance, names = factor @ factor.T, ["age", "income", "visits"]
    mechanism = GaussianDataMechanism(dict(zip(names, np.sqrt(np.diag(covariance)), strict=True)), 1000, 1.0, 1e-6)

    def frame(order, index=None):
        columns = [names[j] for j in order]
        return pd.DataFrame(covariance[np.ix_(order, order)], columns=columns, index=index or columns)

    expected = mechanism.error(covariance=covariance)
    assert mechanism.error(covariance=frame([2, 0, 1])) == mechanism.error(covariance=frame([0, 1, 2])) == expected
    assert mechanism.error(covariance=pl.from_pandas(frame([0, 1, 2]))) == expected  # its rows have no names
    with pytest.raises(ValueError, match="covariance must have the same names for rows and columns, in one order"):
        mechanism.error(covariance=frame([2, 0, 1], index=names))
    names[0] = "Age"
    with pytest.raises(ValueError, match="covariance must have the names of the mechanism's columns"):
        mechanism.error(covariance=frame([0, 1, 2]))


def test_a_mechanism_with_names_is_another_and_keeps_them():
    named, unnamed = mechanism(), GaussianDataMechanism(SIGMA, N, 1.0, 1e-6, center=CENTER)
    assert unnamed.columns is None
    assert named != unnamed
    assert f"columns={NAMES}" in repr(named)
    changed = dataclasses.replace(named, sigma=pd.Series([1.0, 2.0, 3.0], OTHER))
    assert changed.columns == NAMES
    np.testing.assert_array_equal(changed.sigma, [2.0, 3.0, 1.0])
    assert pickle.loads(pickle.dumps(named)) == named
    assert hash(named) == hash(mechanism())


def test_coordinates_of_the_elliptical_mechanism_have_names_too():
    elliptical = EllipticalGaussianMechanism(pd.Series(SIGMA, NAMES), 1.0, 1e-6)
    same = elliptical.release(pd.Series([3.0, 1.0, 2.0], OTHER), rng=Silent()).estimate
    np.testing.assert_array_equal(same, [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match=r"^value must have the names .* without 'age'$"):
        elliptical.check({"income": 1.0, "visits": 2.0})
    with pytest.raises(ValueError, match=r"without 'age', 'income', 'visits' and with 'x', 'y', 'z' besides$"):
        elliptical.check(pd.Series([1.0, 2.0, 3.0], list("xyz")))
    with pytest.raises(ValueError, match=r"^value has names, 'age', 'income', 'visits', and the mechanism has none"):
        EllipticalGaussianMechanism(SIGMA, 1.0, 1e-6).release(pd.Series(SIGMA, NAMES))


@pytest.mark.parametrize(
    ("held", "message"),
    [
        (frame(NAMES[:2]), "X must have the names of the mechanism's columns, .* and comes without 'visits'$"),
        (frame(make=pl.DataFrame).rename({"age": "Age"}), "and comes without 'age' and with 'Age' besides$"),
        (frame().rename(columns={"age": "Age"}).assign(town="x"), "without 'age' and with 'Age', 'town' besides$"),
        (pa.table([X[:, 0]] * 3, ["age", "age", "income"]), "X must name each column once, got 'age' twice"),
        (pd.DataFrame(X, columns=["age", "age", "income"]), "X must name each column once, got 'age' twice"),
        (dask(frame(NAMES[:2])), "and comes without 'visits'$"),
    ],
)
def test_other_names_are_refused_by_name(held, message):
    with pytest.raises(ValueError, match=message):
        mechanism().check(held)
    with pytest.raises(ValueError, match=message):
        mechanism().release(iter([held]))


def test_names_without_others_to_match_them_with_are_refused(tmp_path):
    """A mechanism without column names refuses a table or a vector with names, because it cannot check their order.

    It accepts a table without names. It also accepts a table with names if there is only one column.
    """
    unnamed = GaussianDataMechanism(SIGMA, N, 1.0, 1e-6, center=CENTER)
    for held in (*(frame(make=make) for make in FRAMES.values()), dask(frame()), from_parquet(tmp_path)):
        with pytest.raises(ValueError, match=r"X has names, '\w+', '\w+', '\w+', .* give it columns="):
            unnamed.check(held)
    with pytest.raises(ValueError, match="center has names, 'age', 'income', 'visits'"):
        GaussianDataMechanism(SIGMA, N, 1.0, 1e-6, center=pd.Series(CENTER, NAMES))
    with pytest.raises(ValueError, match="X has names, 'income', 'age', and the mechanism has none"):
        GaussianDataMechanism(SIGMA[:2], N, 1.0, 1e-6).check(frame(["income", "age"]))
    with pytest.raises(ValueError, match=r"center must have the names .* without 'age'$"):
        mechanism(center={"income": 1.0, "visits": 1.0})
    unnamed.check(pd.DataFrame(X))
    GaussianDataMechanism([18.0], N, 1.0, 1e-6).check(frame(["age"]))  # one column has one order


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        (NAMES[:2], ValueError, "columns must be the names of the 3 entries of sigma, got 2"),
        (("a", "b", "a"), ValueError, "columns must name each column once, got 'a' twice"),
        ("abc", TypeError, "columns must be a sequence of names, got 'abc'"),
        (3, TypeError, "columns must be a sequence of names, got 3"),
        ({*NAMES}, TypeError, "columns must be a sequence of names, got {"),  # a set has no order
    ],
)
def test_bad_columns_are_named(columns, error, message):
    with pytest.raises(error, match=message):
        GaussianDataMechanism(SIGMA, N, 1.0, 1e-6, columns=columns)
    with pytest.raises(ValueError, match="sigma must have the names of the mechanism's columns, 'a', 'b', 'c', and"):
        mechanism(columns=["a", "b", "c"])


def test_many_names_are_matched_in_no_time():
    """A table with 20 000 column names in another order is checked against the mechanism's names in a short time.

    If each name were compared with all others, the test would take minutes. A missing name raises a ValueError.
    """
    d = 20_000
    names = [f"column {j}" for j in range(d)]
    many = GaussianDataMechanism(dict.fromkeys(names, 1.0), 2, 1.0, 1e-6, clip_probability=0.1, scaling="none")
    values = np.arange(2.0 * d).reshape(2, d)
    held = pa.table(dict(zip(reversed(names), values.T[::-1], strict=True)))
    many.check(held)
    with pytest.raises(ValueError, match=r"comes without 'column 0' and with 'x' besides$"):
        many.check(held.rename_columns(["x" if name == "column 0" else name for name in reversed(names)]))


# --- Types of columns -------------------------------------------------------------------------------------------------

FLAGS = (np.arange(N) % 3 == 0).astype(float)
TYPES = {
    "pandas": [
        *("bool", "uint8", "float16", "longdouble", "Int64", "Float32", "boolean", "category", "Sparse[float]"),
        *("int64[pyarrow]", "double[pyarrow]", "bool[pyarrow]", pd.ArrowDtype(pa.decimal128(3, 1))),
        pd.ArrowDtype(pa.decimal256(50, 1)),
    ],
    "polars": [pl.Boolean, pl.UInt8, pl.Float32, pl.Int128, pl.Decimal(3, 1)],
    "pyarrow": [pa.bool_(), pa.uint8(), pa.float16(), pa.decimal128(3, 1), pa.decimal256(50, 1), "dictionary"],
}
CASES = [(library, dtype) for library, types in TYPES.items() for dtype in types]
WITHOUT_GAPS = "bool", "uint8"  # types of pandas


def typed(library, values, dtype=None, names=OTHER):
    """Return the test data as a data frame of `library`, in which the column "visits" has the `values` of type `dtype`.

    The columns are called `names`. A value None is missing.
    """
    if dtype is None:
        column = values
    elif library == "pandas":
        column = pd.Series(values).astype(dtype)
    elif library == "polars":
        column = pl.Series(values).cast(dtype)
    else:
        column = pa.array(values)
        column = column.dictionary_encode() if dtype == "dictionary" else column.cast(dtype)
    return FRAMES[library]({name: columns_of()[name] if name != "visits" else column for name in names})


def arrow_in_pandas(values, kind):
    """Return the test data as a data frame of pandas, with Arrow's column "visits" of the `values` of type `kind`."""
    return typed("pandas", pd.Series(pd.arrays.ArrowExtensionArray(pa.array(values, kind))))


@pytest.mark.parametrize(("library", "dtype"), CASES)
def test_columns_of_all_types_of_numbers_are_summed(library, dtype):
    held, only = typed(library, FLAGS, dtype), typed(library, FLAGS, dtype, ["visits"])
    expected = mechanism().release(np.column_stack([X[:, :2], FLAGS]), rng=Silent()).estimate
    mechanism().check(held)
    for holder in (held, iter([held])):
        np.testing.assert_array_equal(mechanism().release(holder, rng=Silent()).estimate, expected)
    one = GaussianDataMechanism([1.0], N, 1.0, 1e-6)
    assert one.release(only, rng=Silent()).estimate == pytest.approx(FLAGS.sum())


def test_decimal_numbers_become_the_nearest_doubles_in_every_library():
    numbers = [Decimal(i).scaleb(-20) for i in np.random.default_rng(1).integers(-(10**18), 10**18, 1000).tolist()]
    nearest = np.array(list(map(float, numbers)))[:, None]
    for kind in (pa.decimal128(38, 20), pa.decimal256(50, 20)):
        table = pa.table({"visits": pa.array(numbers, kind)})
        for held in (table, table.to_pandas(types_mapper=pd.ArrowDtype)):
            np.testing.assert_array_equal(_tables.array(X=held), nearest)
    held = pl.DataFrame({"visits": pl.Series(numbers, dtype=pl.Decimal(38, 20))})
    np.testing.assert_array_equal(_tables.array(X=held), nearest)


@pytest.mark.parametrize("numbers", [[17, 2**53 + 1, 4], [2**62 + 1, None], [0.1, None, 1e300]])
def test_categories_are_the_numbers_that_a_plain_column_has(numbers):
    """The numbers of a column of categories, in pandas or Arrow, are those of a column of the same numbers themselves.

    This also holds for integers that no double can represent, with or without a missing value among them.
    """
    plain = pa.table({"a": numbers})
    encoded = plain.set_column(0, "a", plain["a"].dictionary_encode())
    category = pd.DataFrame({"a": pd.Categorical(numbers)})
    expected = [np.nan if number is None else number for number in numbers]
    for held in (plain, encoded, encoded.to_pandas(types_mapper=pd.ArrowDtype), category):
        (block,) = _tables.arranged(held, ("a",), gaps=True)
        for found in (block, _tables.array(X=held)):
            np.testing.assert_array_equal(found.ravel(), np.array(expected, dtype=float if None in numbers else None))


def test_unknown_categories_of_dask_are_refused_with_a_way_out():
    held = dask(frame()).astype({"visits": "category"})
    message = r"^X must have known categories in column 'visits': X\.categorize\(\) finds them$"
    for refuse in (mechanism().check, mechanism().release):
        with pytest.raises(TypeError, match=message):
            refuse(held)
    expected = mechanism().release(frame(), rng=Silent()).estimate
    np.testing.assert_array_equal(mechanism().release(held.categorize(), rng=Silent()).estimate, expected)


class Failing(pd.DataFrame):
    """Data frame that fails to become an array, with an error that shows a value."""

    _constructor = property(lambda self: Failing)

    def to_numpy(self, *_, **__):
        if len(self):
            raise ValueError(f"cannot convert {self.iloc[0, 0]}")
        return super().to_numpy()


def test_an_error_of_the_library_of_a_data_frame_is_not_shown():
    held = Failing({"visits": [12345.0] * N})
    one = GaussianDataMechanism([1.0], N, 1.0, 1e-6)
    one.check(held)
    message = "^X must hold real numbers that its library can convert to an array$"
    for holder in (held, iter([held]), dask(held)):
        with pytest.raises(TypeError, match=message) as refusal:
            one.release(holder)
        assert refusal.value.__suppress_context__


def test_flags_and_columns_that_could_have_gaps_are_numbers_in_dask_frames():
    held = typed("pandas", FLAGS, bool).astype({"age": "Int64"})
    expected = mechanism().release(held, rng=Silent()).estimate
    np.testing.assert_array_equal(mechanism().release(dask(held), rng=Silent()).estimate, expected)


@pytest.mark.parametrize(
    ("library", "dtype", "value"),
    [
        *((*case, None) for case in CASES if case[1] not in WITHOUT_GAPS),
        *((library, None, value) for library in TYPES for value in (np.nan, np.inf, -np.inf)),
    ],
)
def test_missing_and_infinite_values_are_named_by_row_and_column(library, dtype, value):
    """A missing or an infinite value raises a ValueError with the index of its row and the name of its column.

    The row is counted over all rows of the data frame, and not within a block of rows. `value` is in a column of the
    type `dtype` in a data frame of `library`.
    """
    row = 395
    values = [value if i == row else flag for i, flag in enumerate(FLAGS.tolist())]
    held = typed(library, values, dtype)
    adaptive = AdaptiveDataMechanism(N, 1.0, radius=1e4, sigma_range=(0.1, 1e4))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_tables, "_COPIED", 300)
        patch.setattr(_tables, "_VIEWED", 300)
        for refuse in (mechanism().release, adaptive.release, lambda held: mechanism().release(iter([held]))):
            with pytest.raises(ValueError, match=rf"^X\[{row}, 'visits'\] must be finite$"):
                refuse(held)


@of_all_frames
def test_gaps_are_passed_on_as_nan_where_they_are_allowed(make):
    held = make({"a": [1.0, None], "b": [1, 2]})
    (block,) = _tables.arranged(held, ("b", "a"), gaps=True)
    np.testing.assert_array_equal(block, [[1, 1], [2, np.nan]])
    with pytest.raises(ValueError, match=r"^X\[1, 'a'\] must be finite$"):
        list(_tables.arranged(make({"a": [1.0, np.inf], "b": [1, 2]}), ("b", "a"), gaps=True))


@pytest.mark.parametrize("kind", ["float32", "double", "bool"])
def test_gaps_of_arrow_are_nan_also_where_pandas_tells_them_from_nan(kind):
    """With the option "future.distinguish_nan_and_na" of pandas, a missing value in a column held by Arrow is NaN, too.

    If missing values are not allowed, the errors are the usual ones, also for a column with the persons of the rows.
    """
    held = pd.DataFrame({"a": pd.array([1, None], dtype=f"{kind}[pyarrow]"), "b": [1.0, 2.0]})
    with pd.option_context("future.distinguish_nan_and_na", True):
        (block,) = _tables.arranged(held, ("b", "a"), gaps=True)
        np.testing.assert_array_equal(block, [[1, 1], [2, np.nan]])
        with pytest.raises(ValueError, match=r"^X\[1, 'a'\] must be finite$"):
            list(_tables.arranged(held, ("a", "b")))
        with pytest.raises(ValueError, match=r"^X\[1, 'a'\] must not be missing$"):
            _tables.split(held, "a")


@pytest.mark.parametrize("kind", ["float64", "Float64", pd.ArrowDtype(pa.decimal128(3, 1))])
def test_an_error_of_a_dask_frame_names_the_column(kind):
    values = pd.Series(np.where(np.arange(N) == 1, np.nan, FLAGS)).astype(kind)
    with pytest.raises(ValueError, match=r"^X\[1, 'visits'\] must be finite$"):
        mechanism().release(dask(typed("pandas", values)), rng=Silent())


@of_all_frames
def test_finite_values_with_an_infinite_sum_are_allowed(make):
    held = {"a": [1e308, 1e308], "b": [-1e308, 1.0]}
    (block,) = _tables.arranged(make(held), ("a", "b"))
    np.testing.assert_array_equal(block, np.transpose(list(held.values())))


TEXT = ["secret"] * N
DAYS = [date(2020, 1, 2)] * N


@pytest.mark.parametrize(
    ("held", "kind"),
    [
        (typed("pandas", pd.Series(TEXT, dtype=object)), "object"),
        (typed("pandas", pd.Series([Decimal(1)] * N)), "object"),
        (typed("pandas", TEXT, "string"), "string"),
        (typed("pandas", TEXT, "category"), "category"),
        (typed("pandas", DAYS, "datetime64[s]"), r"datetime64\[s\]"),
        (typed("pandas", X[:, 0] + 1j), "complex128"),
        (typed("pandas", np.ones(N, int), "timedelta64[s]"), r"timedelta64\[s\]"),
        (arrow_in_pandas(DAYS, pa.date32()), r"date32\[day\]"),
        (arrow_in_pandas(DAYS, pa.date64()), r"date64\[ms\]"),
        (arrow_in_pandas([1] * N, pa.time32("s")), r"time32\[s\]"),
        (arrow_in_pandas([1] * N, pa.time64("us")), r"time64\[us\]"),
        (arrow_in_pandas([(1, 2, 3)] * N, pa.month_day_nano_interval()), "month_day_nano_interval"),
        (dask(arrow_in_pandas(DAYS, pa.date32())), r"date32\[day\]"),
        (dask(typed("pandas", pd.Series(TEXT, dtype="category"))), "category"),
        (typed("polars", TEXT), "String"),
        (typed("polars", TEXT, pl.Enum(["secret"])), "Enum"),
        (typed("polars", DAYS), "Date"),
        (typed("pyarrow", TEXT), "string"),
        (typed("pyarrow", TEXT, "dictionary"), "dictionary<values=string"),
        (typed("pyarrow", DAYS), r"date32\[day\]"),
    ],
)
def test_a_column_of_another_type_is_named(held, kind):
    message = f"X must hold real numbers in every column, but its column 'visits' has the type {kind}"
    for refuse in (mechanism().check, mechanism().release, lambda held: mechanism().release(iter([held]))):
        with pytest.raises(TypeError, match=message) as refusal:
            refuse(held)
        assert "secret" not in str(refusal.value)


def read(*_):
    raise AssertionError("was read")


class Sparse(scipy.sparse.csr_array):
    """Sparse array that makes a test fail if it is converted to a dense array."""

    toarray = read


class Thing:
    """Object of which NumPy can make an array, and which cannot do anything else."""

    __array__ = read


WAYS_OUT = {
    "lazy": (frame(make=pl.LazyFrame).map_batches(read), r"got an object of type LazyFrame: X\.collect\(\) is one"),
    "sparse": (Sparse(X), r"got an object of type Sparse: X\.toarray\(\) is one"),
    "masked": (np.ma.array(X), r"got a masked array: X\.filled\(\.\.\.\) is one"),
    "flags": (X > 0, r"got an array of flags: X\.astype\(float\) is one"),
    "a list of blocks": ([X[:100], X[100:]], r"X must be one table or array, got a list of them: .* iter\(X\)"),
    "a list of frames": ([frame()], r"X must be one table or array, got a list of them: .* iter\(X\)"),
    "another collection": (deque([X]), r"got an object of type deque: make an array of it, or give iter\(X\)"),
    "a mapping": (columns_of(), "got an object of type dict: a data frame of it is one"),
    "a path": ("people.csv", "got an object of type str$"),
    "a thing": (Thing(), "got an object of type Thing$"),
}


@pytest.mark.parametrize("what", WAYS_OUT)
def test_what_is_no_array_is_told_how_to_become_one(what):
    """If an object cannot be summed as it is, the TypeError says how to make an array or a table of it.

    `what` is a key of WAYS_OUT, which has such objects and the texts of their errors. If the object is the path of a
    file, the error shows only the type of the object. A lazy data frame is not computed for the error, and a sparse
    array is not made dense. The error is the same if the persons or groups of the rows are named.
    """
    held, message = WAYS_OUT[what]
    adaptive = AdaptiveDataMechanism(N, 1.0, radius=1e4, sigma_range=(0.1, 1e4))
    unread = () if what.startswith("a list") else (mechanism().check, adaptive.check)  # only rows in a list have names
    for refuse in (mechanism().release, adaptive.release, *unread):
        with pytest.raises(TypeError, match=message):
            refuse(held)
    if not isinstance(held, np.ndarray | list):  # of these it is known that they have no names
        for it, label in ((mechanism(per_person="sum"), "person"), (GroupedDataMechanism(mechanism(), ["a"]), "by")):
            with pytest.raises(TypeError, match=message):
                it.release(held, **{label: "id"})


def test_one_column_as_a_vector_is_told_how_to_become_one():
    """For a vector in place of a table of one column, `check` raises a ValueError that tells how to get the table."""
    said = r"X must have shape \(rows, 1\), got \(400,\); np\.reshape\(X, \(-1, 1\)\)"
    for held in (X[:, 0], pd.Series(X[:, 0]), pd.Series(X[:, 0]).astype("Int64"), pl.Series(X[:, 0])):
        with pytest.raises(ValueError, match=said):
            GaussianDataMechanism({"age": 18.0}, N, 1.0, 1e-6).check(held)


def test_an_iterator_is_refused_by_name_where_rows_are_read_several_times():
    adaptive = AdaptiveDataMechanism(N, 1.0, radius=1e4, sigma_range=(0.1, 1e4))
    for refuse in (adaptive.check, adaptive.release):
        with pytest.raises(TypeError, match="X must be such that it can be read several times, got an iterator: give"):
            refuse(iter([X]))
    with pytest.raises(TypeError, match="value must be a real number or an array of real numbers, got an object of"):
        GaussianMechanism(1.0, 1.0, 1e-6).check(iter(X))


def test_adaptive_sums_are_in_the_order_of_the_table():
    """AdaptiveDataMechanism releases sums in the order of the table's columns if its parameters name no columns."""
    adaptive = AdaptiveDataMechanism(N, 1.0, radius=1e4, sigma_range=(0.1, 1e4))
    expected = adaptive.release(X[:, ORDER], rng=np.random.default_rng(5)).estimate
    for held in (*(frame(OTHER, make) for make in FRAMES.values()), frame(OTHER).astype("Int64")):
        found = adaptive.release(held, rng=np.random.default_rng(5)).estimate
        np.testing.assert_allclose(found, expected, rtol=1e-9)  # the order in memory changes rounding


@pytest.mark.parametrize("first", [0, 1], ids=["a frame", "an array"])
def test_blocks_without_names_have_the_declared_columns(first):
    """AdaptiveDataMechanism takes a block without names for the declared columns, whatever the `first` block is."""
    parts = [frame(OTHER)[:200], X[200:]]
    held = parts[first:] + parts[:first]
    adaptive = AdaptiveDataMechanism(N, 1.0, ranges=dict.fromkeys(NAMES, (-1e4, 1e4)))
    expected = adaptive.release(np.roll(X, -200 * first, axis=0), rng=np.random.default_rng(5)).estimate
    found = adaptive.release(lambda: iter(held), rng=np.random.default_rng(5)).estimate
    np.testing.assert_array_equal(found, expected)


# --- No rows ----------------------------------------------------------------------------------------------------------


EMPTY = {
    "a list": lambda: [],
    "a tuple": lambda: (),
    "an array": lambda: np.empty((0, 3)),
    **{f"of {name}": lambda make=make: frame(OTHER, make)[:0] for name, make in FRAMES.items()},
    "an empty block": lambda: iter([[]]),
    "no block": lambda: iter([]),
}


@pytest.mark.parametrize("rng", [None, Silent()], ids=["secure", "simulated"])
@pytest.mark.parametrize("empty", EMPTY)
def test_no_rows_are_rows_where_their_number_is_private(empty, rng):
    """If the number of rows is private, `release` accepts data without rows: an error would reveal that there are none.

    `empty` is a kind of such data, a key of EMPTY. `rng` is None for secure noise, or a generator whose noise is zero.
    """
    release = mechanism(neighbors="add_remove", center=0.0).release(EMPTY[empty](), rng=rng)
    assert np.all(np.abs(release.estimate) < 8 * release.noise_std)
    if rng is not None:
        assert release.count == 0
        np.testing.assert_array_equal(release.estimate, 0)


def test_parts_of_a_dask_frame_may_each_have_their_own_order():
    parts = [frame()[:150], frame()[150:][list(OTHER)]]
    expected = mechanism().release(frame(), rng=Silent()).estimate
    for held in (dask(*parts), dask(*parts[::-1])):
        np.testing.assert_allclose(mechanism().release(held, rng=Silent()).estimate, expected, rtol=1e-12)


def test_rows_with_names_in_a_list_are_refused():
    """`check` and `release` raise a TypeError for a list of pandas Series instead of ignoring the entries' names."""
    turned = [pd.Series(X[i, ORDER], OTHER) for i in range(N)]
    refused = pytest.raises(TypeError, match="X must be one table or array, got a list of rows with names")
    for held in (turned, iter([turned[:9], turned[9:]])):
        with refused:
            mechanism().release(held, rng=Silent())
    with refused:
        mechanism().check(turned)


@pytest.mark.parametrize("kinds", [(np.int64, float), (np.int64, np.uint64)])
def test_a_value_with_columns_of_different_types_is_refused(kinds):
    """`GaussianMechanism` raises a TypeError for a table whose columns have different types, or are Boolean.

    Columns of different types would have to be converted to doubles. Large integers that differ by 1 could then differ
    by 1024, which is more than the sensitivity. `kinds` are the types of the two columns.
    """
    columns = {"visits": np.array([2**62 + 513]).astype(kinds[0]), "other": np.array([1]).astype(kinds[1])}
    for held in (make(columns) for make in FRAMES.values()):
        for act in (GaussianMechanism(1.0, 1.0, 1e-6).release, GaussianMechanism(1.0, 1.0, 1e-6).check):
            with pytest.raises(TypeError, match="value must hold numbers of one type, but its columns are"):
                act(held)
    for make in FRAMES.values():
        alike = make({"visits": columns["visits"], "other": columns["visits"]})
        assert GaussianMechanism(1.0, 1.0, 1e-6).release(alike).estimate.shape == (1, 2)
        with pytest.raises(TypeError, match="value must hold numbers of one type, but its columns are Boolean"):
            GaussianMechanism(1.0, 1.0, 1e-6).check(make({"visits": [True]}))


def test_labels_that_count_are_names_if_the_columns_have_one_of_them():
    """The labels 0, 1, 2 of a table's columns count as names only if one of the mechanism's columns has such a name.

    So a mechanism with the columns 5, 0 and 1 refuses the table, because 5 is missing. For a mechanism with the columns
    "age", "income" and "visits", the labels are mere positions, and the table is accepted.
    """
    counted = GaussianDataMechanism(pd.Series(SIGMA, [5, 0, 1]), N, 1.0, 1e-6)
    said = "X must have the names of the mechanism's columns, 5, 0, 1, and comes without 5"
    with pytest.raises(ValueError, match=said):
        counted.check(pd.DataFrame(X))
    with pytest.raises(ValueError, match=r"center must have the names .* without 5"):
        dataclasses.replace(counted, center=pd.Series(CENTER, range(3)))
    mechanism().check(pd.DataFrame(X))  # the mechanism has no such names, so they only count


def test_a_column_may_have_the_name_of_an_attribute():
    names = ("column_names", "dtype", "to_dask_array")
    held = pd.DataFrame(X, columns=names)
    assert held.dtype is not None  # a column
    named = GaussianDataMechanism(dict(zip(names, SIGMA, strict=True)), N, 1.0, 1e-6, center=CENTER)
    named.check(held)
    expected = mechanism().release(frame(), rng=Silent()).estimate
    np.testing.assert_array_equal(named.release(held, rng=Silent()).estimate, expected)


# --- Columns that are no numbers to be summed -------------------------------------------------------------------------

WHEN = [date(2024, 2, 29), date(1999, 12, 31), date(2024, 2, 29)]


@of_all_frames
def test_split_takes_columns_away_and_returns_their_entries(make):
    """`_tables.split` takes named columns out of a data frame, and returns the remaining frame and the columns taken.

    The remaining frame belongs to the same library. The columns that are taken out are returned as arrays with
    unchanged entries, for integers, flags and dates, and texts as `Encoded`. The function `make` makes the data frame.
    """
    labels = {"person": [7, 2**62 + 1, 7], "city": ["Ulm", "Å", ""], "flag": [True, False, True], "when": WHEN}
    held = make({"age": [1.0, 2.0, 3.0], **labels, "visits": [4, 5, 6]})
    rest, found = _tables.split(held, *labels)
    assert type(rest) is type(held)
    np.testing.assert_array_equal(_tables.array(X=rest), [[1, 4], [2, 5], [3, 6]])
    found = [entries[0][entries[1]] if isinstance(entries, _tables.Encoded) else entries for entries in found]
    for entries, given in zip(found, labels.values(), strict=True):
        assert entries.shape == (3,)
        assert entries.tolist() == given
    assert [entries.dtype.kind for entries in found[:3]] == ["i", "O", "b"]


@pytest.mark.parametrize(
    "column",
    [
        pd.Series(["b", "a", "b"], dtype="category"),
        pl.Series(["b", "a", "b"], dtype=pl.Categorical),
        pl.Series(["b", "a", "b"], dtype=pl.Enum(["a", "b"])),
        pa.array(["b", "a", "b"]).dictionary_encode(),
    ],
)
def test_split_returns_the_values_of_categories(column):
    make = {pd.Series: pd.DataFrame, pl.Series: pl.DataFrame}.get(type(column), pa.table)
    _, (found,) = _tables.split(make({"city": column, "age": [1, 2, 3]}), "city")
    assert found.distinct.tolist() == ["b", "a"]
    assert found.places.tolist() == [0, 1, 0]


@of_all_frames
@pytest.mark.parametrize("entries", [["a", None, "b"], [1.5, np.nan, 2.5], [1, None, 2], [WHEN[0], None, WHEN[1]]])
def test_split_names_the_row_and_the_column_of_a_missing_entry(make, entries):
    with pytest.raises(ValueError, match=r"^X\[1, 'person'\] must not be missing$"):
        _tables.split(make({"age": [1, 2, 3], "person": entries}), "person")


@of_all_frames
def test_split_refuses_columns_that_are_not_there(make):
    with pytest.raises(ValueError, match=r"^X must have a column 'person', and has 'age', 'income', 'visits'$"):
        _tables.split(frame(make=make), "age", "person")
    with pytest.raises(TypeError, match=r"^X must be a data frame with 'person', got an object of type ndarray$"):
        _tables.split(X, "person")


def test_split_knows_columns_by_names_that_are_not_text():
    rest, (found,) = _tables.split(pd.DataFrame([[1, 2], [3, 4]], columns=[("a", 1), 5]), ("a", 1))
    assert found.tolist() == [1, 3]
    assert list(rest.columns) == [5]
