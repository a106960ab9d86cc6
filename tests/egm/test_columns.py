"""Test that every kind of table is summed by the names of its columns, or refused if the names do not fit."""

import dataclasses
import pickle
import tracemalloc
from collections import deque

import numpy as np
import pyarrow as pa
import pytest

from egm import AdaptiveDataMechanism, EllipticalGaussianMechanism, GaussianDataMechanism, files
from egm.mechanisms import GaussianMechanism

N = 400
NAMES = "age", "income", "visits"
SIGMA, CENTER = [18.0, 1200.0, 3.0], [45.0, 2500.0, 5.0]
X = np.random.default_rng(1).normal([47, 2200, 4], [16, 1300, 2], (N, 3)).round()
ORDER = [2, 0, 1]
OTHER = tuple(NAMES[i] for i in ORDER)


class Silent(np.random.Generator):
    """Random generator whose normal numbers are all zero, so that a simulated release has no noise."""

    def __init__(self):
        super().__init__(np.random.PCG64(0))

    def normal(self, loc, scale):
        return np.zeros_like(scale)


class Kind:
    """Stand-in for the type of a pandas column that is not a NumPy type, such as Int64, which allows missing values."""

    def __init__(self, name, kind):
        self.name, self.kind = name, kind

    def __str__(self):
        return self.name


class Series:
    """Stand-in for a pandas Series: an array with an index of names."""

    def __init__(self, values, index):
        self.values, self.index, self.ndim = np.asarray(values, dtype=float), list(index), 1
        self.shape, self.dtype = self.values.shape, self.values.dtype

    def __array__(self, dtype=None, copy=None):
        return self.values

    def __getitem__(self, part):
        return Series(self.values[part], self.index[part])


class Frame:
    """Stand-in for a pandas DataFrame.

    As in pandas, the conversion of a frame to an array gives entries of type object, unless all columns of the frame
    are NumPy integers or floats.
    """

    iloc = None

    def __init__(self, columns, dtypes=None):
        self.table = dict(columns)
        self.columns = list(self.table)
        self.dtypes = dtypes or [values.dtype for values in self.table.values()]
        self.shape = len(next(iter(self.table.values()))), len(self.columns)

    def __len__(self):
        return self.shape[0]

    def __getitem__(self, what):
        if isinstance(what, slice):
            return Frame({name: values[what] for name, values in self.table.items()}, self.dtypes)
        return Frame({name: self.table[name] for name in what}, [self.dtypes[self.columns.index(n)] for n in what])

    def __array__(self, dtype=None, copy=None):
        plain = all(isinstance(kind, np.dtype) and kind.kind in "iuf" for kind in self.dtypes)
        return np.stack(list(self.table.values()), axis=1).astype(float if plain else object)

    def to_numpy(self, dtype, na_value):
        gaps = [[na_value if entry is None else entry for entry in values] for values in self.table.values()]
        return np.array(gaps, dtype=dtype).T


class DaskFrame:
    """Stand-in for a dask data frame, made of one or several `Frame` objects."""

    def __init__(self, *parts):
        self.parts, self.columns, self.dtypes = parts, parts[0].columns, parts[0].dtypes

    def __getitem__(self, names):
        return self.map_partitions(Frame.__getitem__, names)

    def map_partitions(self, function, *given):
        return DaskFrame(*(function(part, *given) for part in self.parts))

    def astype(self, dtype):
        tables = [{name: values.astype(dtype) for name, values in part.table.items()} for part in self.parts]
        return DaskFrame(*map(Frame, tables))

    def to_dask_array(self):
        import dask.array as da

        return da.concatenate([da.from_array(np.asarray(part), chunks=(150, 2)) for part in self.parts])


DaskFrame.__module__ = "dask.dataframe"


def mechanism(**options):
    return GaussianDataMechanism(
        dict(zip(NAMES, SIGMA, strict=True)), N, 1.0, 1e-6, center=options.pop("center", CENTER), **options
    )


def frame(names=NAMES, **options):
    return Frame({name: X[:, NAMES.index(name)] for name in names}, **options)


def table(names=NAMES):
    return pa.table({name: X[:, NAMES.index(name)] for name in names})


def file(folder, suffix, names=NAMES):
    path = folder / f"people{suffix}"
    if suffix == ".csv":
        chosen = X[:, [NAMES.index(name) for name in names]]
        np.savetxt(path, chosen, delimiter=",", header=",".join(names), comments="")
    else:
        import pyarrow.parquet as pq

        pq.write_table(table(names), path, row_group_size=90)
    return files.rows(path)


def from_parquet(folder):
    file(folder, ".parquet", OTHER)
    return files.from_parquet(folder)


def blocks():
    """Yield the rows of the test data X in blocks with different orders of columns; the last block has no names."""
    yield frame(OTHER)[:100]
    yield table()[100:150]
    yield from table(OTHER)[150:250].to_batches(max_chunksize=30)
    yield X[250:]


HOLDERS = {
    "an array": lambda _: X,
    "a frame": lambda _: frame(),
    "a frame in another order": lambda _: frame(OTHER),
    "an arrow table": lambda _: table(OTHER),
    "an arrow batch": lambda _: table(OTHER).combine_chunks().to_batches()[0],
    "blocks": lambda _: blocks(),
    "a frame of dask's": lambda _: DaskFrame(frame(OTHER)),
    "a CSV file": lambda folder: file(folder, ".csv", OTHER),
    "a Parquet file": lambda folder: file(folder, ".parquet", OTHER),
    "a Parquet file as an array of dask's": lambda folder: from_parquet(folder),
    "names that nobody gave": lambda _: Frame({i: X[:, i] for i in range(3)}),
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_sums_are_those_of_the_names(holder, tmp_path):
    held = HOLDERS[holder](tmp_path)
    if holder != "blocks":
        mechanism().check(held)
        held = HOLDERS[holder](tmp_path)
    found = mechanism().release(held, rng=Silent()).estimate
    np.testing.assert_array_equal(found, mechanism().release(X, rng=Silent()).estimate)


@pytest.mark.parametrize("holder", [lambda columns: Frame(columns), pa.table])
def test_a_table_in_another_order_is_not_copied_as_a_whole(holder):
    """If the columns of a table are not in the mechanism's order, a release takes less memory than a copy of the table.

    The release takes less than 20 MB, and the table has 24 MB. `holder` makes the table: a data frame or an Arrow
    table. The columns are put in the mechanism's order for a few rows at a time.
    """
    n = 1_000_000
    held = holder({name: np.ones(n) for name in OTHER})
    it = dataclasses.replace(mechanism(), n=n, delta=1e-9)
    it.release(holder({name: np.ones(n) for name in OTHER}), rng=Silent())  # compiles
    tracemalloc.start()
    it.release(held, rng=Silent())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20e6


def test_vectors_are_matched_by_their_names():
    named = mechanism(center=dict(zip(OTHER, [5.0, 45.0, 2500.0], strict=True)))
    assert named == mechanism() == GaussianDataMechanism(SIGMA, N, 1.0, 1e-6, center=CENTER, columns=NAMES)
    assert named.columns == NAMES
    permuted = [[vector[i] for i in ORDER] for vector in (SIGMA, CENTER, [1.0, 2.0, 3.0])]
    sigma, center, b = (Series(vector, OTHER) for vector in permuted)
    for other in (
        GaussianDataMechanism(sigma, N, 1.0, 1e-6, center=center, scaling=b, columns=NAMES),
        GaussianDataMechanism(Series(SIGMA, NAMES), N, 1.0, 1e-6, center=center, scaling=b),
    ):
        assert other == mechanism(scaling=[1.0, 2.0, 3.0])
        assert other.error(mean=sigma) == other.error(mean=SIGMA) != other.error(mean=permuted[0])


def test_a_covariance_with_names_is_put_in_order():
    """`error` puts a covariance matrix with names, as pandas computes it, into the order of the mechanism's columns.

    It raises a ValueError if the rows and columns of the matrix have different orders, or if the names are not those of
    the mechanism.
    """
    factor = np.random.default_rng(2).normal(size=(3, 3))
    covariance, names = factor @ factor.T, ["age", "income", "visits"]
    mechanism = GaussianDataMechanism(dict(zip(names, np.sqrt(np.diag(covariance)), strict=True)), 1000, 1.0, 1e-6)

    def frame(order, index=None):
        found = Frame({names[j]: covariance[order, j] for j in order})
        found.index = index or found.columns
        return found

    expected = mechanism.error(covariance=covariance)
    assert mechanism.error(covariance=frame([2, 0, 1])) == mechanism.error(covariance=frame([0, 1, 2])) == expected
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
    changed = dataclasses.replace(named, sigma=Series([1.0, 2.0, 3.0], OTHER))
    assert changed.columns == NAMES
    np.testing.assert_array_equal(changed.sigma, [2.0, 3.0, 1.0])
    assert pickle.loads(pickle.dumps(named)) == named
    assert hash(named) == hash(mechanism())


def test_coordinates_of_the_elliptical_mechanism_have_names_too():
    elliptical = EllipticalGaussianMechanism(Series(SIGMA, NAMES), 1.0, 1e-6)
    same = elliptical.release(Series([3.0, 1.0, 2.0], OTHER), rng=Silent()).estimate
    np.testing.assert_array_equal(same, [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match=r"^value must have the names .* without 'age'$"):
        elliptical.check({"income": 1.0, "visits": 2.0})
    with pytest.raises(ValueError, match=r"without 'age', 'income', 'visits' and with 'x', 'y', 'z' besides$"):
        elliptical.check(Series([1.0, 2.0, 3.0], "xyz"))
    with pytest.raises(ValueError, match=r"^value has names, 'age', 'income', 'visits', and the mechanism has none"):
        EllipticalGaussianMechanism(SIGMA, 1.0, 1e-6).release(Series(SIGMA, NAMES))


@pytest.mark.parametrize(
    ("held", "message"),
    [
        (frame(NAMES[:2]), "X must have the names of the mechanism's columns, .* and comes without 'visits'$"),
        (Frame({**frame().table, "sex": X[:, 0]}), "and comes with 'sex' besides$"),
        (table().rename_columns(["Age", "income", "visits"]), "and comes without 'age' and with 'Age' besides$"),
        (pa.table([X[:, 0]] * 3, ["age", "age", "income"]), "X must name each column once, got 'age' twice"),
        (DaskFrame(frame(NAMES[:2])), "and comes without 'visits'$"),
    ],
)
def test_other_names_are_refused_by_name(held, message):
    with pytest.raises(ValueError, match=message):
        mechanism().check(held)
    with pytest.raises(ValueError, match=message):
        mechanism().release(iter([held]))


def test_names_without_others_to_match_them_with_are_refused(tmp_path):
    unnamed = GaussianDataMechanism(SIGMA, N, 1.0, 1e-6, center=CENTER)
    for held in (frame(), table(), DaskFrame(frame()), from_parquet(tmp_path)):
        with pytest.raises(ValueError, match=r"X has names, '\w+', '\w+', '\w+', .* give it columns="):
            unnamed.check(held)
    with pytest.raises(ValueError, match="center has names, 'age', 'income', 'visits'"):
        GaussianDataMechanism(SIGMA, N, 1.0, 1e-6, center=Series(CENTER, NAMES))
    with pytest.raises(ValueError, match=r"center must have the names .* without 'age'$"):
        mechanism(center={"income": 1.0, "visits": 1.0})
    unnamed.check(Frame({i: X[:, i] for i in range(3)}))
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
    """`check` matches the names of a table's 20 000 columns with those of the mechanism, although the order differs.

    If each name were compared with all others, the test would take minutes. A name that is missing raises a ValueError.
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

FLAGS = np.arange(N) % 3 == 0
GAPS = Kind("Int64", "i")


def test_flags_and_columns_that_could_have_gaps_are_numbers():
    expected = mechanism().release(np.column_stack([X[:, :2], FLAGS]), rng=Silent()).estimate
    flags = {**frame().table, "visits": FLAGS}
    for held in (Frame(flags), Frame(flags, [GAPS, GAPS, FLAGS.dtype]), pa.table(flags), DaskFrame(Frame(flags))):
        mechanism().check(held)
        np.testing.assert_array_equal(mechanism().release(held, rng=Silent()).estimate, expected)
    only = GaussianDataMechanism([1.0], N, 1.0, 1e-6)
    for held in (Frame({"a": FLAGS}), pa.table({"a": FLAGS})):
        assert only.release(held, rng=Silent()).estimate == pytest.approx(FLAGS.sum())


def test_gaps_are_not_numbers():
    with_gap = X[:, 0].astype(object)
    with_gap[7] = None
    for held in (Frame({**frame().table, "age": with_gap}, [GAPS] * 3), pa.table({**frame().table, "age": with_gap})):
        with pytest.raises(ValueError, match=r"X\[7, 0\] must be finite$"):
            mechanism().release(held, rng=Silent())


TEXT = np.full(N, "secret")


@pytest.mark.parametrize(
    ("held", "kind"),
    [
        (Frame({**frame().table, "visits": TEXT.astype(object)}), "object"),
        (Frame({**frame().table, "visits": FLAGS}, [GAPS, GAPS, Kind("string", "O")]), "string"),
        (DaskFrame(Frame({**frame().table, "visits": TEXT.astype(object)})), "object"),
        (pa.table({**frame().table, "visits": pa.array(TEXT)}), "string"),
        (pa.table({**frame().table, "visits": pa.array([1] * N, pa.decimal128(3, 1))}), r"decimal128\(3, 1\)"),
    ],
)
def test_a_column_of_another_type_is_named(held, kind):
    message = f"X must hold real numbers in every column, but its column 'visits' has the type {kind}"
    for refuse in (mechanism().check, mechanism().release, lambda held: mechanism().release(iter([held]))):
        with pytest.raises(TypeError, match=message) as refusal:
            refuse(held)
        assert "secret" not in str(refusal.value)


class Lazy:
    """Stand-in for a polars LazyFrame, which makes a test fail if its data or its column names are computed."""

    def collect(self):
        raise AssertionError("was read")

    @property
    def columns(self):
        raise AssertionError("was read")


class Sparse:
    """Stand-in for a scipy.sparse array, which makes a test fail if it is converted to a dense array."""

    shape, dtype, ndim = (N, 3), np.dtype(float), 2

    def toarray(self):
        raise AssertionError("was read")


WAYS_OUT = {
    "lazy": (Lazy(), r"got an object of type Lazy: X\.collect\(\) is one"),
    "sparse": (Sparse(), r"got an object of type Sparse: X\.toarray\(\) is one"),
    "masked": (np.ma.array(X), r"got a masked array: X\.filled\(\.\.\.\) is one"),
    "flags": (X > 0, r"got an array of flags: X\.astype\(float\) is one"),
    "a list of blocks": ([X[:100], X[100:]], r"X must be one table or array, got a list of them: .* iter\(X\)"),
    "a list of frames": ([frame()], r"X must be one table or array, got a list of them: .* iter\(X\)"),
    "another collection": (deque([X]), r"got an object of type deque: make an array of it, or give iter\(X\)"),
    "a mapping": (frame().table, "got an object of type dict: a data frame of it is one"),
    "a path": ("people.csv", "got an object of type str$"),
}


@pytest.mark.parametrize("what", WAYS_OUT)
def test_what_is_no_array_is_told_how_to_become_one(what):
    held, message = WAYS_OUT[what]
    adaptive = AdaptiveDataMechanism(N, 1.0, radius=1e4, sigma_range=(0.1, 1e4))
    unread = () if what.startswith("a list") else (mechanism().check, adaptive.check)  # only rows in a list have names
    for refuse in (mechanism().release, adaptive.release, *unread):
        with pytest.raises(TypeError, match=message):
            refuse(held)


def test_one_column_as_a_vector_is_told_how_to_become_one():
    with pytest.raises(ValueError, match=r"X must have shape \(rows, 1\), got \(400,\); np\.reshape\(X, \(-1, 1\)\)"):
        GaussianDataMechanism({"age": 18.0}, N, 1.0, 1e-6).check(Series(X[:, 0], range(N)))


def test_an_iterator_is_refused_by_name_where_rows_are_read_several_times():
    adaptive = AdaptiveDataMechanism(N, 1.0, radius=1e4, sigma_range=(0.1, 1e4))
    for refuse in (adaptive.check, adaptive.release):
        with pytest.raises(TypeError, match="X must be an array that can be read several times, got an iterator"):
            refuse(iter([X]))
    with pytest.raises(TypeError, match="value must be a real number or an array of real numbers, got an object of"):
        GaussianMechanism(1.0, 1.0, 1e-6).check(iter(X))


def test_adaptive_sums_are_in_the_order_of_the_table():
    """The sums that AdaptiveDataMechanism releases are in the order of the table's columns.

    The mechanism has no parameter with one entry for each column, and so it knows no other order.
    """
    adaptive = AdaptiveDataMechanism(N, 1.0, radius=1e4, sigma_range=(0.1, 1e4))
    kinds = [GAPS, GAPS, GAPS]
    expected = adaptive.release(X[:, ORDER], rng=np.random.default_rng(5)).estimate
    for held in (frame(OTHER), table(OTHER), frame(OTHER, dtypes=kinds)):
        found = adaptive.release(held, rng=np.random.default_rng(5)).estimate
        np.testing.assert_allclose(found, expected, rtol=1e-9)  # the order in memory changes rounding


# --- No rows ----------------------------------------------------------------------------------------------------------


EMPTY = {
    "a list": lambda: [],
    "a tuple": lambda: (),
    "an array": lambda: np.empty((0, 3)),
    "a frame": lambda: frame()[:0],
    "an arrow table": lambda: table(OTHER)[:0],
    "an empty block": lambda: iter([[]]),
    "no block": lambda: iter([]),
}


@pytest.mark.parametrize("rng", [None, Silent()], ids=["secure", "simulated"])
@pytest.mark.parametrize("empty", EMPTY)
def test_no_rows_are_rows_where_their_number_is_private(empty, rng):
    """If the number of rows is private, `release` accepts data without rows; an error would reveal that there are none.

    `empty` is a case in EMPTY. `rng` is None for secure noise, or a generator whose noise is zero. Without noise, the
    released sum and the released number of rows are 0. With secure noise, each sum is within eight standard deviations
    of 0.
    """
    release = mechanism(neighbors="add_remove", center=0.0).release(EMPTY[empty](), rng=rng)
    assert np.all(np.abs(release.estimate) < 8 * release.noise_std)
    if rng is not None:
        assert release.count == 0
        np.testing.assert_array_equal(release.estimate, 0)


def test_parts_of_a_dask_frame_may_each_have_their_own_order():
    parts = [frame()[:150], frame()[150:][list(OTHER)]]
    expected = mechanism().release(frame(), rng=Silent()).estimate
    for held in (DaskFrame(*parts), DaskFrame(*parts[::-1])):
        np.testing.assert_allclose(mechanism().release(held, rng=Silent()).estimate, expected, rtol=1e-12)


def test_rows_with_names_in_a_list_are_refused():
    """`release` raises a TypeError for a list of rows that have names.

    The entries of such rows would be added by their positions, and not by their names.
    """
    turned = [Series(X[i, ORDER], OTHER) for i in range(N)]
    for held in (turned, iter([turned[:9], turned[9:]])):
        with pytest.raises(TypeError, match="X must be one table or array, got a list of rows with names"):
            mechanism().release(held, rng=Silent())
    mechanism().check(turned)  # looks at no row


@pytest.mark.parametrize("kinds", [(np.int64, float), (np.int64, np.uint64)])
def test_a_value_with_columns_of_different_types_is_refused(kinds):
    """`GaussianMechanism` raises a TypeError for a table whose columns differ in type.

    The entries of such a table would become doubles. As doubles, large integers that differ by 1 could differ by 1024,
    which is more than the sensitivity. `kinds` are the types of the two columns. A table whose columns have one type is
    accepted.
    """
    columns = {"visits": np.array([2**62 + 513]).astype(kinds[0]), "other": np.array([1]).astype(kinds[1])}
    for held in (Frame(columns), pa.table(columns)):
        for act in (GaussianMechanism(1.0, 1.0, 1e-6).release, GaussianMechanism(1.0, 1.0, 1e-6).check):
            with pytest.raises(TypeError, match="value must hold numbers of one type, but its columns are"):
                act(held)
    alike = Frame({"visits": columns["visits"], "other": np.array([7])})
    assert GaussianMechanism(1.0, 1.0, 1e-6).release(alike).estimate.shape == (1, 2)


def test_labels_that_count_are_names_if_the_columns_have_one_of_them():
    """The labels 0, 1, 2 of a table's columns are taken as names only if the mechanism has a column with one of them.

    So a mechanism with the columns 5, 0 and 1 refuses the table, because 5 is missing. A mechanism with the columns
    "age", "income" and "visits" accepts the table, and takes the labels as mere positions.
    """
    counted = GaussianDataMechanism(Series(SIGMA, [5, 0, 1]), N, 1.0, 1e-6)
    with pytest.raises(
        ValueError, match="X must have the names of the mechanism's columns, 5, 0, 1, and comes without 5"
    ):
        counted.check(Frame({i: X[:, i] for i in range(3)}))
    with pytest.raises(ValueError, match=r"center must have the names .* without 5"):
        dataclasses.replace(counted, center=Series(CENTER, range(3)))
    mechanism().check(Frame({i: X[:, i] for i in range(3)}))  # the mechanism has no such names, so they only count


def test_a_column_may_have_the_name_of_an_attribute():
    class Attributes(Frame):
        """Frame whose columns can also be read as attributes of the frame, as in pandas."""

        def __getattr__(self, name):
            if name in self.__dict__.get("columns", ()):
                return self.table[name]
            raise AttributeError(name)

    names = ("column_names", "dtype", "to_dask_array")
    held = Attributes(dict(zip(names, X.T, strict=True)))
    named = GaussianDataMechanism(dict(zip(names, SIGMA, strict=True)), N, 1.0, 1e-6, center=CENTER)
    named.check(held)
    expected = mechanism().release(frame(), rng=Silent()).estimate
    np.testing.assert_array_equal(named.release(held, rng=Silent()).estimate, expected)
