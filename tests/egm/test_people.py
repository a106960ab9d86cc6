"""Test releases for persons with several rows, for groups of rows, and with missing values.

The expected result is the release of a smaller table. The smaller table has what the mechanism keeps of each person or
group: some of the rows, their sum, or their mean. Entries are multiples of 1/8, so that sums of doubles are exact in
any order.
"""

import dataclasses
import datetime
import itertools
import tracemalloc
from fractions import Fraction

import dask.array as da
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from egm import AdaptiveDataMechanism, GaussianDataMechanism, GaussianMechanism, _tables, files
from egm._mechanisms.joint import Joint
from egm._rows import lattice, people, sums
from egm._rows.labels import codes, vector
from egm.audit import replay
from egm.budget import Budget
from egm.files import from_parquet
from egm.mechanisms import GroupedDataMechanism
from tests.conftest import slow
from tests.egm.doubles import Silent

NAMES, SIGMA, CENTER = ("a", "b"), np.array([8.0, 16.0]), np.array([2.5, -4.0])
N, PERSONS = 120, 40
LIBRARIES = ["pyarrow", "pandas", "polars"]
RNG = np.random.default_rng(5)
X = RNG.integers(-200, 200, (N, 2)) / 8
WHO = np.append(np.arange(PERSONS), RNG.integers(0, PERSONS, N - PERSONS))
GROUP = np.array(["north", "south", "west", "elsewhere"])[RNG.integers(0, 4, N)]
KEYS = ["north", "south", "nobody", "west"]


def mechanism(n=PERSONS, **options):
    return GaussianDataMechanism(SIGMA, n, 1.0, 1e-6, **{"center": CENTER, "clip_probability": 0.2, **options})


def released(made, *given, rng=None, **labels):
    """Simulate a release of the data `given` by the mechanism `made`, and return all its numbers as one list.

    For each group, these are the estimates of the columns, the number of rows and the number of clipped rows. `labels`
    has the arguments `person` and `by` of the release. `rng` draws the noise; without it, two calls have equal noise.
    """
    found = made.release(*given, rng=rng or np.random.default_rng(1), **labels)
    parts = found.values() if isinstance(made, GroupedDataMechanism) else [found]
    return [number for part in parts for number in (*part.estimate, part.count, part.clipped)]


def left(X, who, how):
    """Return the rows of `X` that the mechanism keeps, as an array, in ascending order of the persons.

    `who` has the person of each row. If `how` is a number k, the first k rows of each person are kept. If it is "sum"
    or "mean", each person has one row, the sums or means of the entries that are not missing.
    """
    rows = [X[who == person] for person in np.unique(who)]
    if isinstance(how, int):
        return np.concatenate([each[:how] for each in rows])
    found = []
    for each in rows:  # missing entries are left out
        absent = np.isnan(each)
        total, count = np.where(absent, 0.0, each).sum(axis=0), (~absent).sum(axis=0)
        with np.errstate(invalid="ignore"):
            found.append(np.where(count, total / (1 if how == "sum" else count), np.nan))
    return np.array(found)


def frame(library, X=X, **labels):
    """Return a data frame of `library` with columns "a" and "b", those of the array `X`.

    Between them are the columns in `labels`, a dictionary from names to values.
    """
    columns = {"a": X[:, 0], **labels, "b": X[:, 1]}
    if library == "pyarrow":
        return pa.table(columns)
    return pytest.importorskip(library).DataFrame(columns)


# --- Persons ----------------------------------------------------------------------------------------------------------

IDS = {
    "integers": WHO - 7,
    "integers beyond 2**53": WHO + 2**60,
    "short integers": (WHO - 50).astype(np.int8),
    "floats": WHO / 4 - 3,
    "texts": np.array([f"person {i}" for i in WHO]),
    "objects": np.array([f"Ann{i}\u00e9\U0001f600" for i in WHO], dtype=object),
    "long texts": np.array([f"{'long' * 500}{i}" for i in WHO], dtype=object),  # only the end tells them apart
    "strings of NumPy": np.array([f"{i}" for i in WHO], dtype=np.dtypes.StringDType()),
    "days": np.datetime64("2024-02-01") + WHO,
    "nanoseconds": np.datetime64("2024-02-01", "ns") + WHO,
    "dates of Python": [datetime.date(2024, 2, 1) + datetime.timedelta(int(i)) for i in WHO],
}
COUNTED = {"neighbors": "add_remove", "count_clipped": True}


@pytest.mark.parametrize("options", [{}, COUNTED], ids=["replace one", "add or remove"])
@pytest.mark.parametrize("how", ["sum", "mean", 1, 2, 3])
def test_a_release_is_that_of_the_table_that_was_aggregated_beforehand(how, options):
    made = mechanism(per_person=how, **options)
    rows = left(X, WHO, how)
    if how in ("sum", "mean") or (how == 1 and options):  # the very mechanism for one row of each person
        assert released(dataclasses.replace(made, per_person=None), rows) == released(made, X, person=WHO)
    assert released(made, rows, person=np.arange(len(rows))) == released(made, X, person=WHO)


@pytest.mark.parametrize("how", ["sum", "mean", 2])
@pytest.mark.parametrize("kind", IDS)
def test_only_equality_of_ids_matters(kind, how):
    made, ids = mechanism(per_person=how, neighbors="add_remove"), IDS[kind]
    same = released(made, X, person=WHO)
    assert released(made, X, person=ids) == same
    order = np.argsort(RNG.permutation(PERSONS)[WHO], kind="stable")  # persons in any order, the rows of each in theirs
    assert released(made, X[order], person=np.asarray(ids)[order]) == same


@pytest.mark.parametrize("kind", ["texts", "long texts", *slow("integers beyond 2**53", "floats", "nanoseconds")])
@pytest.mark.parametrize("library", LIBRARIES)
def test_arrays_columns_and_blocks_agree(library, kind):
    made = mechanism(per_person="mean", neighbors="add_remove", columns=NAMES)
    whole = released(made, X, person=IDS[kind])
    assert released(made, frame(library, id=IDS[kind]), person="id") == whole
    assert released(made, frame(library), person=IDS[kind]) == whole
    order = np.argsort(IDS[kind], kind="stable")
    for places in ([1, 2, 3, 4, 200], range(1, N, 2), [0, 0, 50, 50, N], RNG.integers(0, N, 20)):
        blocks = (frame(library, X[part], id=IDS[kind][part]) for part in np.split(order, np.sort(places)))
        assert released(made, blocks, person="id") == whole
    with pytest.raises(ValueError, match="X must be sorted by person"):
        made.release(iter([frame(library, id=IDS[kind])]), person="id")
    with pytest.raises(ValueError, match="X must be sorted by person"):
        made.release((frame(library, X[part], id=IDS[kind][part]) for part in (order[9:], order[:9])), person="id")


class Table:
    """Stand-in for a file's table: it sorts the rows of X by person and yields them in blocks, with column b before a.

    A new block begins at each index in `places`. `labels` has the columns of labels by name; "id" has the persons.
    """

    names, count = ("b", "a"), None

    def __init__(self, places, **labels):
        self.places, self.labels = places, labels

    def blocks(self):
        return (values for values, _ in self.labelled([]))

    def labelled(self, names):
        for part in np.split(np.argsort(self.labels["id"], kind="stable"), self.places):
            yield X[part][:, ::-1], [self.labels[name][part] for name in names]


@pytest.mark.parametrize("how", ["sum", 2])
@pytest.mark.parametrize("size", [1, 7])
def test_an_iterator_may_fill_one_array_again_and_again(how, size):
    """The blocks of an iterator may share one array, with `size` rows, which is filled anew for each block."""
    pd = pytest.importorskip("pandas")
    order, array = np.argsort(WHO, kind="stable"), np.empty((size, 3))

    def blocks():
        for start in range(0, order.size, size):
            rows = order[start : start + size]
            array[: rows.size] = np.column_stack([X[rows], WHO[rows]])
            yield pd.DataFrame(array[: rows.size], columns=[*NAMES, "id"], copy=False)

    made = mechanism(per_person=how, columns=NAMES)
    assert released(made, blocks(), person="id") == released(made, X[order], person=WHO[order])


def test_functions_that_return_blocks_agree():
    table = frame("pyarrow", id=WHO, group=GROUP).sort_by("id")
    order = np.argsort(WHO, kind="stable")
    made = mechanism(per_person="mean", columns=NAMES)

    def blocks():
        return iter(table.slice(start, 50) for start in (0, 50, 100))

    assert released(made, blocks, person="id") == released(made, X, person=WHO)
    grouped = GroupedDataMechanism(mechanism(per_person="mean", columns=NAMES, neighbors="add_remove"), KEYS)
    whole = released(grouped, X[order], person=WHO[order], by=GROUP[order])
    assert released(grouped, blocks, person="id", by="group") == whole
    assert released(mechanism(N), lambda: iter([X[:50], X[50:]])) == released(mechanism(N), X)
    for options in ({"radius": 40.0, "sigma_range": (1.0, 40.0)}, {"ranges": {"a": (-30, 30), "b": (-30, 30)}}):
        it = AdaptiveDataMechanism(PERSONS, 40.0, per_person="mean", **options)
        table = table.select(["a", "id", "b"])
        whole = it.release(table, person="id", rng=np.random.default_rng(1))
        for held in (blocks, blocks()):
            found = it.release(held, person="id", rng=np.random.default_rng(1))
            assert np.array_equal(found.estimate, whole.estimate)
            assert found.columns == whole.columns == NAMES


@pytest.mark.parametrize("kind", ["texts", "long texts"])
def test_tables_of_files_agree(kind, tmp_path):
    made = mechanism(per_person="mean", neighbors="add_remove", columns=NAMES)
    held = frame("pyarrow", id=IDS[kind], group=GROUP).take(np.argsort(IDS[kind], kind="stable"))
    csv.write_csv(held, tmp_path / "t.csv")
    pq.write_table(held, tmp_path / "t.parquet")
    opened = [files.rows(tmp_path / name, NAMES, header="yes") for name in ("t.csv", "t.parquet")]
    grouped = GroupedDataMechanism(made, KEYS)
    for table in (Table([0, 3, 77], id=IDS[kind], group=GROUP), *opened):
        assert released(made, table, person="id") == released(made, X, person=WHO)
        assert released(grouped, table, person="id", by="group") == released(grouped, X, person=WHO, by=GROUP)


@pytest.mark.parametrize("held", ["a table", "blocks", "series"])
@pytest.mark.parametrize("column", ["id", "group"])
def test_the_memory_of_a_release_does_not_depend_on_the_longest_text(column, held):
    """One long text among the labels of persons or groups takes its own memory, and not that memory for each label."""
    rows, peaks = 20_000, []
    made = GroupedDataMechanism(mechanism(rows, per_person="sum", columns=NAMES, neighbors="add_remove"), ["0"])
    for length in (5, 5, 900):  # the first release also fills caches
        texts = {"id": [f"{i:05}" for i in range(rows)], "group": ["0"] * rows}
        texts[column][-1] = "9" * length
        table = frame("polars" if held == "series" else "pyarrow", np.ones((rows, 2)), **texts)
        labels = dict(zip(("person", "by"), map(table.get_column, texts) if held == "series" else texts, strict=True))
        tracemalloc.start()
        released(made, iter([table]) if held == "blocks" else table, **labels)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] < 1.1 * peaks[1]


def test_l2_noise_of_a_group_is_that_of_a_mechanism_for_this_group_alone():
    """If each person is in one group only, each group gets the l2 noise of a release of this group's rows alone.

    If a person may be in several groups, a mechanism with l2 noise is refused with a ValueError.
    """
    made = mechanism(N, neighbors="add_remove", noise="l2")
    grouped, rng = GroupedDataMechanism(made, KEYS), np.random.default_rng(4)
    found, again = grouped.release(X, by=GROUP, rng=rng), np.random.default_rng(4)
    for key in KEYS:
        alone = made.release(X[np.flatnonzero(np.equal(GROUP, key))], rng=again)
        assert np.array_equal(found[key].estimate, alone.estimate)
        np.testing.assert_allclose(found[key].interval(0.9, of="mean"), alone.interval(0.9, of="mean"))
    assert grouped.release(X, by=GROUP)[KEYS[0]].noise_law == "l2"  # secure
    with pytest.raises(ValueError, match=r"^mechanism must have Gaussian noise to release groups, unless"):
        GroupedDataMechanism(dataclasses.replace(made, per_person="sum"), KEYS, groups_per_person=2)


def test_long_numbers_in_order_are_accepted_as_texts():
    ids = np.array([f"{10**25 + int(i)}" for i in WHO], dtype=object)
    made = mechanism(per_person="mean", neighbors="add_remove", columns=NAMES)
    assert released(made, Table([0, 3, 77], id=ids, group=GROUP), person="id") == released(made, X, person=WHO)
    assert people.Order().holds(
        np.array(["999", str(2**53), str(2**53 + 1)], dtype=object)
    )  # the last two are one double


@pytest.mark.parametrize("spelled", ["{}.0", "{}e0", "-{}.5", "1{:04}.25"])
@pytest.mark.parametrize("places", [[0, 3, 77], [1, 2, 50]])
def test_decimal_numbers_in_order_are_accepted_as_texts(spelled, places):
    """Persons' labels may be texts such as "2.0" and "10.0" that are sorted as numbers, and not alphabetically.

    Whole numbers such as "1", or an empty block, may come before the first decimal number. `spelled` is the format of a
    label, and `places` has the indices of rows at which a new block begins.
    """
    ids = np.sort(WHO)
    ids = ids[::-1] if spelled[0] == "-" else ids
    texts = np.array([str(i) if i < 5 and spelled == "{}.0" else spelled.format(i) for i in ids], dtype=object)
    order = people.Order()
    assert all(order.holds(vector("person", part)) for part in np.split(texts, places))
    assert order.count == len(set(texts))


@pytest.mark.parametrize(
    "persons", [["1.0", "2.0", "1.0"], ["2.0", "10.0", "3.0"], ["1.0", "1"], ["2.0", "10.0", "inf"]]
)
def test_other_texts_than_numbers_in_order_are_refused(persons):
    assert not people.Order().holds(vector("person", persons))


def test_labels_of_another_index_are_refused():
    pd = pytest.importorskip("pandas")
    made, held = mechanism(per_person="sum", neighbors="add_remove", columns=NAMES), frame("pandas")
    released(made, held, person=pd.Series(WHO))
    with pytest.raises(ValueError, match=r"^person must have the index of X"):
        released(made, held, person=pd.Series(WHO, index=range(1, N + 1)))


@pytest.mark.parametrize("steps", [1, 7, 64])
def test_a_person_may_have_rows_in_several_blocks(steps, monkeypatch):
    monkeypatch.setattr(people, "_SORTED", 2 * steps)
    who = np.repeat([3, 4, 9], [2, N - 3, 1])
    made = mechanism(per_person="sum", neighbors="add_remove")
    assert released(made, X, person=who) == released(dataclasses.replace(made, per_person=None), left(X, who, "sum"))


@pytest.mark.parametrize(("partitions", "how"), [(1, "sum"), *slow((2, 2), (6, "mean"), (6, 2))])
def test_dask_frames_are_as_their_rows_in_memory(partitions, how):
    dd = pytest.importorskip("dask.dataframe")
    made = mechanism(per_person=how, neighbors="add_remove", columns=NAMES)
    grouped = GroupedDataMechanism(made, KEYS)
    for kind in ("integers beyond 2**53", "texts", "long texts", "nanoseconds"):
        parts = dd.from_pandas(frame("pandas", id=IDS[kind], rechunk=GROUP), npartitions=partitions, sort=False)
        parts = dd.concat([parts[parts.a > 1e6], parts])  # some partitions are empty
        assert released(made, parts[["id", "b", "a"]], person="id") == released(made, X, person=WHO)
        assert released(grouped, parts, person="id", by="rechunk") == released(grouped, X, person=WHO, by=GROUP)


@pytest.mark.parametrize("names", [None, NAMES])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_any_column_of_a_table_without_names_may_hold_the_persons(tmp_path, place, names):
    """If the names of a table only number its columns, the others are the columns of the mechanism, in their order."""
    dd = pytest.importorskip("dask.dataframe")
    made = mechanism(per_person="sum", neighbors="add_remove", columns=names)
    pd = pytest.importorskip("pandas")
    held = pd.DataFrame(np.insert(X, place, WHO, axis=1))
    texts = held.rename(columns=lambda number: str(number + 1)).sort_values(str(place + 1), kind="stable")
    texts.to_csv(tmp_path / "t.csv", index=False, header=False)
    texts.to_parquet(tmp_path / "t.parquet", index=False)
    of_files = files.rows(tmp_path / "t.csv", header="no"), from_parquet(tmp_path / "t.parquet")
    expected = released(made, X, person=WHO)
    for table in (held, dd.from_pandas(held, npartitions=2)):
        assert released(made, table, person=place) == expected
    for table in (texts, pa.table(dict(texts)), iter([texts]), *of_files):
        assert released(made, table, person=str(place + 1)) == expected
    without = files.rows(tmp_path / "t.csv", header="no", labels=[str(place + 1)])
    assert released(dataclasses.replace(made, columns=without.names), without, person=str(place + 1)) == expected


def test_persons_of_two_types_are_refused_whatever_their_hashes():
    """Partitions with numbers and with texts for persons are refused, also if no piece has rows of both."""
    empty = people.Block(np.zeros((0, 2)), np.empty(0, dtype=int))
    for number in range(20):
        parts = [people.Block(np.zeros((1, 2)), np.array([who], dtype=object)) for who in (number, str(number))]
        numbers, texts, nobody = (people._divided(part, 50) for part in (*parts, empty))
        for pieces in zip(numbers, texts, strict=True):
            with pytest.raises(TypeError, match=r"^person and by must have labels of one type"):
                people._together(list(pieces), lambda blocks: (0, 0))
        for pieces in zip(nobody, texts, strict=True):
            people._together(list(pieces), lambda blocks: (0, 0))


SAME_PERSON = {
    "zeros": [np.zeros(1), -np.zeros(1), np.zeros(1, np.int8), np.zeros(1, np.uint64)],
    "numbers": [np.array([7], kind) for kind in (float, "f4", "u1", "i8")],
    "days": [np.array(["2024-01-02"], f"M8[{unit}]") for unit in ("D", "s", "us", "ns")],
    "texts that are no Unicode": [np.array(["a\udcff"], kind) for kind in ("U2", "U9", object)],
}


@pytest.mark.parametrize("kind", SAME_PERSON)
def test_the_rows_of_a_person_come_together_from_labels_of_several_types(kind):
    """`_divided`, which divides blocks of rows into pieces by person, puts equal persons into pieces of equal index.

    This holds even if the labels of a person differ in type, as in the partitions of a dask frame, or are 0 with either
    sign. `kind` is a key of SAME_PERSON, which has such labels.
    """
    for pieces in range(2, 40):
        parts = [people._divided(people.Block(np.zeros((1, 1)), who), pieces) for who in SAME_PERSON[kind]]
        assert len({tuple(len(piece.values) for piece in part) for part in parts}) == 1


@pytest.mark.parametrize("rows", [7, N])
def test_parquet_files_are_as_their_rows_in_memory(rows, tmp_path):
    code = np.unique(GROUP, return_inverse=True)[1] - 2
    pq.write_table(frame("pyarrow", id=WHO, group=code), tmp_path / "rows.parquet", row_group_size=rows)
    made = mechanism(per_person="mean", neighbors="add_remove", columns=NAMES)
    found, grouped = from_parquet(tmp_path / "rows.parquet"), GroupedDataMechanism(made, [-1, 1, 5])
    assert released(grouped, found, person="id", by="group") == released(grouped, X, person=WHO, by=code)
    pq.write_table(frame("pyarrow", id=WHO + 2**60), tmp_path / "large.parquet")
    with pytest.raises(ValueError, match="person must not have such large floats"):  # two persons may have become one
        made.release(from_parquet(tmp_path / "large.parquet"), person="id")


def test_sums_of_a_person_are_finite():
    huge = np.full((4, 2), 1.7e308) * np.array([[1], [1], [-1], [-1]])
    made = mechanism(per_person="sum", neighbors="add_remove")
    assert released(made, huge, person=[1, 1, 1, 1]) == released(made, np.zeros((1, 2)), person=[1])
    assert np.isfinite(released(made, huge[:2], person=[1, 1])[:3]).all()


# --- Groups -----------------------------------------------------------------------------------------------------------


def one_by_one(made, X, groups, keys):
    """Release the rows of each of the groups `keys` separately and without noise, and return all results as one list.

    The results are estimates, numbers of rows and numbers of clipped rows. `groups` has the group of each row of `X`.
    The mechanism is `made`, but each row counts as a person of its own.
    """
    single = dataclasses.replace(made, per_person=None, neighbors="add_remove")
    return [number for key in keys for number in released(single, X[groups == key], rng=Silent())]


@pytest.mark.parametrize("missing", ["error", "center", "drop_row"])
@pytest.mark.parametrize("basis", [None, [[0.8, 0.6], [-0.6, 0.8]]])
@pytest.mark.parametrize("neighbors", ["replace_one", "add_remove"])
def test_each_group_has_the_sum_of_its_rows(neighbors, basis, missing):
    made = mechanism(basis=basis, missing=missing, neighbors=neighbors)
    rows = X if missing == "error" else np.where(RNG.random(X.shape) < 0.1, np.nan, X)
    grouped = GroupedDataMechanism(made, KEYS)
    expected = np.array(one_by_one(made, rows, GROUP, KEYS), dtype=float)
    found = np.array(released(grouped, rows, by=GROUP, rng=Silent()), dtype=float)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-9)
    assert not found[8:10].any()
    shuffled = RNG.permutation(N)
    assert released(grouped, rows[shuffled], by=GROUP[shuffled]) == released(grouped, rows, by=GROUP)
    others = np.isin(GROUP, KEYS)
    assert released(grouped, rows[others], by=GROUP[others]) == released(grouped, rows, by=GROUP)
    rows = np.where(others[:, None], rows, 1e300)
    assert released(grouped, rows, by=GROUP) == released(grouped, rows[others], by=GROUP[others])


@pytest.mark.parametrize("library", LIBRARIES)
def test_groups_of_columns_and_blocks_agree(library):
    grouped = GroupedDataMechanism(mechanism(columns=NAMES), KEYS)
    whole = released(grouped, X, by=GROUP)
    assert released(grouped, frame(library, group=GROUP), by="group") == whole
    for places in ([1, 2, 100], range(1, N, 3), [0, 0, N]):
        blocks = (frame(library, X[part], group=GROUP[part]) for part in np.split(np.arange(N), places))
        assert released(grouped, blocks, by="group") == whole


@pytest.mark.parametrize("missing", ["error", "center", "drop_row"])
@pytest.mark.parametrize("library", [None, *LIBRARIES])
def test_the_rows_of_groups_are_not_copied_as_a_whole(library, missing, monkeypatch):
    """A release of groups takes less than half of the memory of its rows in addition to them."""
    for module, size in ((sums, "_FILLED"), (_tables, "_COPIED"), (lattice, "_GROUPED")):
        monkeypatch.setattr(module, size, 1 << 16)  # numbers that are copied at a time
    names, rows = [f"c{j}" for j in range(20)], np.ones((100_000, 20))
    made = GaussianDataMechanism(
        dict.fromkeys(names, 1.0), len(rows), 1.0, 1e-7, missing=missing, neighbors="add_remove"
    )
    grouped, by = GroupedDataMechanism(made, [0, 1]), np.arange(len(rows)) % 3
    columns = dict(zip(names, rows.T, strict=True))
    held = rows if library is None else pa.table(columns)
    held = held if library in (None, "pyarrow") else pytest.importorskip(library).DataFrame(columns)
    released(grouped, held[:8], by=by[:8])  # compiles
    tracemalloc.start()
    released(grouped, held, by=by)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < rows.nbytes / 2


def first_groups(who, groups, most, keys):
    """Return a dictionary from each person to a list of the person's first groups, at most `most` of them.

    These are the groups of the person's rows, in the order of the rows and without repetition. Groups that are not in
    `keys` are left out. `who` and `groups` have the person and the group of each row.
    """
    first = {}
    for person, group in zip(who.tolist(), groups.tolist(), strict=True):
        if group in keys and group not in (seen := first.setdefault(person, [])) and len(seen) < most:
            seen.append(group)
    return first


@pytest.mark.parametrize("how", ["sum", "mean"])
def test_what_a_person_has_in_a_group_does_not_depend_on_other_persons(how):
    """The rows of a person in a group are added in their own order, so other persons do not change a bit of the sum.

    Otherwise the integers of a person could change if another person is removed, and no sensitivity would allow for
    this. The rows are of so different sizes that another order would round to another sum.
    """
    rng = np.random.default_rng(4)
    persons = np.repeat(np.arange(60), 40)
    groups = rng.integers(0, 3, persons.size)
    values = rng.normal(size=(persons.size, 2)) * 10.0 ** rng.uniform(-12, 12, (persons.size, 2))
    whole = list(people.gathered([people.Block(values, persons, groups)], how))
    alone = []
    for person in range(60):
        own = people.Block(*(part[persons == person] for part in (values, persons, groups)))
        alone.extend(people.gathered([own], how))
    for part in ("groups", "values"):
        assert np.array_equal(*(np.concatenate([getattr(it, part) for it in held]) for held in (whole, alone)))


@pytest.mark.parametrize("how", ["sum", "mean"])
@pytest.mark.parametrize("most", [1, 2, 3])
def test_the_first_groups_of_a_person_are_kept(most, how, monkeypatch):
    made, kept = mechanism(per_person=how), first_groups(WHO, GROUP, most, KEYS)
    rows, groups = [], []
    for person, of_person in kept.items():
        for group in of_person:
            held = X[(person == WHO) & (group == GROUP)]
            rows.append(left(held, np.zeros(len(held)), how)[0])
            groups.append(group)
    grouped = GroupedDataMechanism(made, KEYS, groups_per_person=most)
    expected = np.array(one_by_one(made, np.array(rows), np.array(groups), KEYS), dtype=float)
    found = released(grouped, X, person=WHO, by=GROUP, rng=Silent())
    np.testing.assert_allclose(np.array(found, dtype=float), expected, rtol=1e-12, atol=1e-9)
    monkeypatch.setattr(people, "_SORTED", 6)
    assert released(grouped, X, person=WHO, by=GROUP, rng=Silent()) == found


@pytest.mark.parametrize("most", [1, 2, 5])
def test_the_first_rows_of_a_person_are_kept_whatever_their_groups(most):
    made, place = mechanism(per_person=most), np.zeros(N, dtype=int)
    seen = {}
    for i in np.flatnonzero(np.isin(GROUP, KEYS)):
        seen[WHO[i]] = place[i] = seen.get(WHO[i], 0) + 1
    kept = (place > 0) & (place <= most)
    expected = np.array(one_by_one(made, X[kept], GROUP[kept], KEYS), dtype=float)
    found = released(GroupedDataMechanism(made, KEYS), X, person=WHO, by=GROUP, rng=Silent())
    np.testing.assert_allclose(np.array(found, dtype=float), expected, rtol=1e-12, atol=1e-9)


ZONED = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
DAYS = [datetime.date(2024, 1, 1) + datetime.timedelta(i) for i in range(5)]
LABELS = {
    "integers": ([5, -3, 2], np.array([2, 5, 4, -3, -9, 99])),
    "far apart": ([2**62, -(2**62), 0], np.array([0, 2**62, -(2**62), 1])),
    "signed and unsigned": ([2**62, 2**62 + 1, -5], np.array([2**62, 2**62 + 1, 2**62 + 2, 2**63], dtype=np.uint64)),
    "unsigned": ([0, 3], np.array([0, 3, 2**63], dtype=np.uint64)),
    "unsigned keys": ([2**63 + 2, 2**63 + 1], np.array([2**63, 1, 2**63 + 1, 2**63 + 2], dtype=np.uint64)),
    "too many keys for 16 bits": (range(2**15, -1, -1), np.array([0, 1, 2**15, 2**15 + 1])),
    "beyond int8": ([-300, 3, 300], np.array([3, -128, 127], dtype=np.int8)),
    "flags": ([True, False], np.array([True, False, True])),
    "floats": ([0.5, 1.0], np.array([1, 2, 1])),
    "floats for integers": ([1, 2], np.array([1.0, 2.5, 2.0, -0.0])),
    "texts": (["b", "a", "ab", ""], np.array(["a", "ab", "abc", "", "b"], dtype=object)),
    "strings of NumPy": (["b", "a"], np.array(["a", "ab", "b"])),
    "long texts": (["a" * 2000, "a" * 1999], np.array(["a" * size for size in (1999, 2000, 2001)], dtype=object)),
    "days": (DAYS[1:3], np.array(DAYS)),
    "days in nanoseconds": (DAYS[1:3], np.array(DAYS, dtype="datetime64[ns]")),
    "times": ([datetime.datetime(2024, 1, 2, 3)], np.array(["2024-01-02T03", "2024-01-02"], dtype="datetime64[s]")),
    "days of NumPy": (np.array(DAYS[:2], dtype="datetime64[ns]"), np.array(DAYS, dtype="datetime64[D]")),
    "least integer": ([-(2**63), 0], np.array([0, -(2**63), 5])),
    "next to the least integer": ([-(2**63), 5 - 2**63], np.array([5 - 2**63, -(2**63), 6 - 2**63, 0])),
    "unsigned and negative": ([-1, 3], np.array([3, 2**64 - 1, 2**64 - 2, 0], dtype=np.uint64)),
    "none": ([1], np.empty(0)),
}


@pytest.mark.parametrize("kind", LABELS)
def test_codes_are_those_of_a_dictionary(kind):
    keys, labels = LABELS[kind]
    keys = GroupedDataMechanism(mechanism(), keys).keys
    midnight = [datetime.datetime.combine(key, datetime.time()) if type(key) is datetime.date else key for key in keys]
    dates = labels.dtype.kind == "M" or (labels.size and isinstance(labels[0], datetime.date))
    plain = labels.astype("datetime64[us]").tolist() if dates else labels.tolist()
    assert codes(labels, keys).tolist() == [midnight.index(p) if p in midnight else -1 for p in plain]


@pytest.mark.parametrize("letters", ["ab", "ab0 \t\xe9\0", "a\x01\U0010ffff"], ids=["two", "several", "far apart"])
@pytest.mark.parametrize("held", ["native", "swapped", "strided", "shorter than keys"])
def test_codes_of_random_numpy_strings_are_those_of_a_dictionary(letters, held):
    rng = np.random.default_rng(7)
    for _ in range(20):
        words = {
            "".join(rng.choice(list(letters), rng.integers(0, 5))).rstrip("\0") for _ in range(rng.integers(1, 30))
        }
        words = sorted(words)
        keys = tuple(rng.permutation(np.array(words, dtype=object))[: len(words) * 2 // 3 + 1].tolist())
        labels = np.array([words[k] for k in rng.integers(0, len(words), 200)])
        if held == "swapped":
            labels = labels.astype(labels.dtype.newbyteorder(">"))
        elif held == "strided":
            labels = np.repeat(labels, 2)[::2]
        elif held == "shorter than keys":
            labels = labels.astype("U2")
        expected = [keys.index(text) if text in keys else -1 for text in labels.tolist()]
        assert codes(labels, keys).tolist() == expected


@pytest.mark.parametrize("text", ["", ".", "NA", "na", "n/a", "#N/A", "<NA>", "NaN", "NAN", "none", "None", "Null"])
def test_what_is_missing_in_a_csv_file_is_no_person(text):
    with pytest.raises(ValueError, match=r"^person must not have missing labels, nor texts that"):
        vector("person", ["a", text])
    assert vector("by", ["a", text]).tolist() == ["a", text]


def test_a_list_of_dates_of_numpy_is_a_vector_of_dates():
    days = np.array(DAYS, dtype="datetime64[D]")
    keys = GroupedDataMechanism(mechanism(), DAYS[:2]).keys
    assert codes(list(days), keys).tolist() == codes(days, keys).tolist()


@pytest.mark.parametrize("label", [np.float64(2**53), np.float64(-(2**53)), np.float32(2**24)], ids=str)
def test_floats_that_may_stand_for_two_integers_are_refused(label):
    vector("person", np.array([np.nextafter(label, 0 * label)]))
    with pytest.raises(ValueError, match=r"^person must not have such large floats"):
        vector("person", np.array([label]))


def test_a_tuple_is_a_name_if_a_column_has_it():
    """If a release gets a tuple as `by`, the tuple names the column of groups, or else holds the labels of the rows.

    The tuple is a name if a column of the data frame (with a MultiIndex) has this name. If the data frames are read
    later, it is a name if the columns of the mechanism have tuples of the same length as names.
    """
    pd = pytest.importorskip("pandas")
    names = [("a", "x"), ("a", "y"), ("group", "")]
    by = np.arange(60) % 2
    frame = pd.DataFrame(np.column_stack([np.ones((60, 2)), by]), columns=pd.MultiIndex.from_tuples(names))
    made = GroupedDataMechanism(GaussianDataMechanism([1, 1], 60, 1, 1e-6, columns=names[:2]), [0, 1])
    expected = made.release(frame[names[:2]], by=tuple(by.tolist()), rng=np.random.default_rng(1))
    found = made.release(frame, by=("group", ""), rng=np.random.default_rng(1))
    assert [found[key].count for key in (0, 1)] == [expected[key].count for key in (0, 1)]
    for blocks in (iter([frame[:7], frame[7:]]), lambda: iter([frame[:7], frame[7:]])):
        later = made.release(blocks, by=("group", ""), rng=np.random.default_rng(1))
        assert [np.array_equal(later[key].estimate, found[key].estimate) for key in (0, 1)] == [True, True]
        with pytest.raises(TypeError, match=r"^by must be the name of a column if X is read in blocks$"):
            made.check(blocks, by=tuple(by.tolist()))
    whose = AdaptiveDataMechanism(2, 1.0, ranges=dict.fromkeys(names[:2], (0, 99)), columns=names[:2], per_person="sum")
    for held in (frame.sort_values(names[2]), iter([frame.sort_values(names[2])])):
        assert whose.release(held, person=("group", "")).columns == tuple(names[:2])


def test_large_groups_do_not_overflow(silent, monkeypatch):
    rows = 2**24
    monkeypatch.setattr(sums, "group_sums", lambda *given: (np.zeros((2, 2), dtype=object), np.array([rows, 3])))
    found = GroupedDataMechanism(mechanism(), [1, 2]).release(X, by=np.ones(N))
    assert [release.count for release in found.values()] == [rows, 3]
    assert found[1].estimate == pytest.approx(rows * CENTER)


# --- What one person can change ---------------------------------------------------------------------------------------


def joint_vectors(rng, radius, weights, rows, groups, first, extreme):
    """Return what one artificial person adds to the release of each group, as integers, shape (2 `groups`, 4).

    The person has `rows` rows of two entries, which belong in turn to `groups` groups, the first of which is `first`.
    The first two numbers of a group are the sum of its rows, the third is `weights`[0] times the number of its rows,
    and the fourth is `weights`[1] times the number of its clipped rows. If `extreme` is 0, `rng` draws the rows from
    the ball with this `radius`, and chooses with probability 1/2 whether a row counts as clipped. If `extreme` is 1,
    all rows are (`radius`, 0) and clipped. If it is -1, all rows are (-`radius`, 0), and none is clipped.
    """
    total = np.zeros((2 * groups, 4), dtype=object)
    for i in range(rows):
        y = rng.normal(size=2)
        y *= radius * min(1.0, 2 * rng.random()) * (1 - 1e-15) / np.linalg.norm(y)
        flag = extreme > 0 if extreme else rng.random() < 0.5
        y = [extreme * radius, 0] if extreme else map(int, y)
        total[first + i % groups] += np.array([*y, weights[0], int(flag) * weights[1]], dtype=object)
    return total


@pytest.mark.parametrize("share", [0, 1, 10, 30])
@pytest.mark.parametrize(
    ("how", "grouped", "clipped"),
    [*itertools.product((None, 3), (False,), (False, True)), *((how, True, False) for how in (None, 3, "sum"))],
)
@pytest.mark.parametrize("neighbors", ["replace_one", "add_remove"])
def test_no_person_changes_more_than_the_sensitivity(neighbors, how, grouped, clipped, share):
    """The rows of one person change a release by at most the sensitivity that the mechanism computes for `neighbors`.

    The change is the Euclidean norm of the change of all released numbers: for each group the sums, the weighted number
    of rows and, if `clipped` is true, the weighted number of clipped rows. The weight of the number of rows is `share`
    tenths of the largest norm of a row; if `share` is 0, this number is not released. If there are groups (`grouped`),
    the person may be replaced by one in other groups. If there are groups, if neighbors add or remove a row, or if the
    weight is at most the largest norm, some person's change equals the sensitivity. `how` is the argument `per_person`
    of the mechanism; for "sum", a person has a row in each of four groups. `neighbors` is the neighbor relation.
    """
    rng, radius = np.random.default_rng(3), 1 << 40
    weight, added = radius * share // 10, neighbors == "add_remove"
    made, groups = mechanism(neighbors=neighbors, per_person=how, count_clipped=clipped), 4 if how == "sum" else 1
    joint = (GroupedDataMechanism(made, KEYS, groups_per_person=groups) if grouped else made)._joint
    clipped_weight, sensitivity = joint.on_lattice(radius, weight)
    rows = how if isinstance(how, int) else groups
    pairs = [(rows, 0 if added else rows, *signs) for signs in ((1, -1), (1, 1))]  # numbers of rows, and extremes
    pairs += [(rows, 0 if added else int(rng.integers(rows + 1)) if share else rows, 0, 0) for _ in range(60)]
    changes = []
    for (many, few, one, other), to in itertools.product(pairs, (0, groups) if grouped else (0,)):
        found = (
            joint_vectors(rng, radius, (weight, clipped_weight), number, groups, first, sign)
            for number, first, sign in ((many, 0, one), (few, to, other))
        )
        changes.append(int(np.sum((next(found) - next(found)) ** 2)))
    assert max(changes) <= Fraction(sensitivity) ** 2
    if grouped or added or weight <= radius:
        assert max(changes) >= Fraction(sensitivity) ** 2 * (1 - Fraction(1, 10**12))


@pytest.mark.parametrize(("neighbors", "radius"), [("replace_one", 1067415), ("add_remove", 1061296)])
def test_rounding_sums_is_charged(neighbors, radius):
    """The sensitivity that `Joint` computes is large enough even if the sum of each group is rounded to integers.

    The test changes the sums of four groups by as much as one person can change them if they are not rounded. Then it
    rounds the sums before and after the change, which increases the change of each entry by nearly 1. `radius` is the
    largest norm of a clipped row, and `neighbors` the neighbor relation.
    """
    groups, d, times = 4, 5, 1 if neighbors == "add_remove" else 2  # a row is added, or replaced by the opposite one
    joint = Joint(neighbors, True, reach_squared=groups, groups=True)
    exact, charged = (joint.on_lattice(radius, 1, rounded)[1] for rounded in (0, d))
    change = np.full((groups, d), times * radius / np.sqrt(d))
    assert np.all(change % 1 < 0.01)
    start = 0.5 - change % 1 / 2  # rounded down, and after the change rounded up
    moved = np.linalg.norm(np.round(start + change) - np.round(start))
    assert moved > exact + 0.9 * np.sqrt(groups * d)
    assert moved <= charged


@pytest.mark.parametrize("grouped", [False, True])
def test_the_number_of_rows_costs_nothing_if_a_person_is_replaced(grouped):
    """With the center 0, the noise of a sum does not grow if a number of rows is released, too.

    The number gets the largest weight for which this holds: a weight that is 1 % larger needs more noise. If `grouped`
    is true, the sum and the number are those of a group.
    """
    plain = mechanism(center=0.0)
    made = GroupedDataMechanism(plain, KEYS) if grouped else dataclasses.replace(plain, missing="drop_row")
    assert made.noise_std == pytest.approx(plain.noise_std, rel=1e-14)
    weight = made._weight if grouped else made.count_weight
    assert made._joint.sensitivity(plain.clip_norm, 1.01 * weight) > 2.001 * plain.clip_norm


COMBINATIONS = [
    combination
    for combination in itertools.product(
        ("replace_one", "add_remove"), (None, "sum", 3), ("error", "drop_row"), (0, 1, 2), (False, True)
    )
    if not (combination[4] and combination[3]) and not (combination[3] == 2 and combination[1] != "sum")
]


@pytest.mark.parametrize(("neighbors", "how", "missing", "groups", "clipped"), COMBINATIONS)
def test_noise_is_as_strong_as_promised(neighbors, how, missing, groups, clipped, silent):
    """In 20 000 simulated releases, sums and numbers of rows have the standard deviations that the mechanism states.

    A secure release demands noise of the same standard deviation from its sampler. `neighbors`, `missing`, `how`
    (per_person) and `clipped` (count_clipped) are options of the mechanism. `groups` is the largest number of groups
    that a person may have, or 0 for a mechanism without groups.
    """
    options = {"neighbors": neighbors, "per_person": how, "missing": missing, "count_clipped": clipped}
    made = mechanism(n=2, center=[40.0, -400.0], **options)
    labels = {} if how is None else {"person": [7, 8]}
    if groups:
        made, labels = GroupedDataMechanism(made, ["x", "y"], groups_per_person=groups), {**labels, "by": ["x", "x"]}

    def numbers(rng):
        return [number for number in released(made, X[:2], rng=rng, **labels) if number is not None]

    counted = made.count_std if groups else made._count_std
    stds = np.concatenate([made.noise_std, [counted] * (counted > 0), [made.clipped_std] if clipped else []])
    draws = 20_000
    seen = replay(numbers, draws, np.random.default_rng(2)).std(axis=0) ** 2
    excess = (seen / np.tile(stds, 1 + (groups > 0)) ** 2 - 1) * np.sqrt(draws / 2)
    assert np.abs(excess).max() < 5
    inner = made.mechanism if groups else made
    made.release(X[:2], **labels)
    along = np.sqrt(made.noise_std**2 - (counted * inner.center) ** 2)
    assert silent[0][0] * made._grid().unit / inner.b == pytest.approx(along, rel=1e-6)


# --- Missing values ---------------------------------------------------------------------------------------------------

HOLES = np.where(RNG.random(X.shape) < 0.15, np.nan, X)
FILLED, COMPLETE = np.where(np.isnan(HOLES), CENTER, HOLES), ~np.isnan(HOLES).any(axis=1)


@pytest.mark.parametrize("neighbors", ["replace_one", "add_remove"])
def test_missing_values_are_the_center_or_drop_the_row(neighbors, monkeypatch):
    counted = mechanism(N, neighbors="add_remove")
    made = mechanism(N, neighbors=neighbors, missing="center")
    assert released(made, HOLES) == released(made, FILLED) == released(mechanism(N, neighbors=neighbors), FILLED)
    dropping = dataclasses.replace(counted, missing="drop_row")
    expected = released(counted, HOLES[COMPLETE])
    assert released(dropping, HOLES) == expected
    assert released(dropping, np.asfortranarray(HOLES).astype(np.longdouble)) == expected
    assert released(dropping, iter(np.split(HOLES, [0, 1, 100]))) == expected
    assert released(dropping, da.from_array(HOLES, chunks=(70, 1))) == expected
    assert released(dropping, HOLES.tolist()) == expected
    monkeypatch.setattr(sums, "_FILLED", 10)
    assert released(dropping, HOLES) == expected
    assert released(dropping, np.full((5, 2), np.nan)) == released(dropping, X[:0])


@pytest.mark.parametrize("how", ["sum", "mean", 2])
@pytest.mark.parametrize("missing", ["center", "drop_row"])
def test_missing_values_of_persons(missing, how):
    made = mechanism(per_person=how, neighbors="add_remove", missing=missing)
    rows = left(HOLES, WHO, how)
    absent = np.isnan(rows)
    rows = np.where(absent, CENTER, rows) if missing == "center" else rows[~absent.any(axis=1)]
    plain = dataclasses.replace(made, missing="error")
    assert released(made, HOLES, person=WHO) == released(plain, rows, person=np.arange(len(rows)))


@pytest.mark.parametrize("missing", ["error", "center", "drop_row"])
@pytest.mark.parametrize("labels", [{}, {"person": WHO}, {"by": GROUP}, {"person": WHO, "by": GROUP}], ids=str)
def test_infinities_are_refused_and_missing_values_unless_they_are_allowed(labels, missing):
    made = mechanism(N, per_person="mean" if "person" in labels else None, neighbors="add_remove", missing=missing)
    made = GroupedDataMechanism(made, KEYS) if "by" in labels else made
    for bad in (np.inf, -np.inf, np.nan):
        rows = X.copy()
        rows[np.flatnonzero(GROUP == "west")[-1], 1] = bad
        if np.isnan(bad) and missing != "error":
            released(made, rows, **labels)
            continue
        with pytest.raises(ValueError, match=r"^X(\[\d+, 1\])? must be finite"):
            made.release(rows, **labels)


@pytest.mark.parametrize("basis", [None, np.eye(2)[::-1]], ids=["plain", "basis"])
@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_the_first_infinite_number_is_named_also_in_rows_of_no_group(bad, basis):
    made = GroupedDataMechanism(mechanism(N, basis=basis), KEYS)
    outside, inside = np.flatnonzero(GROUP == "elsewhere")[3], np.flatnonzero(GROUP == "south")
    for others in ([], inside[inside > outside][:1]):
        rows = X.copy()
        rows[[outside, *others], 1] = bad
        with pytest.raises(ValueError, match=rf"^X\[{outside}, 1\] must be finite$"):
            made.release(rows, by=GROUP)


@pytest.mark.parametrize("library", LIBRARIES)
def test_nulls_of_data_frames_are_missing_values(library):
    made = mechanism(3, columns=NAMES, missing="center")
    columns = {"a": [1.5, None, 2.0], "b": [None, 4, 5]}
    held = pa.table(columns) if library == "pyarrow" else pytest.importorskip(library).DataFrame(columns)
    expected = released(made, np.array([[1.5, CENTER[1]], [CENTER[0], 4], [2, 5]]))
    assert released(made, held) == expected
    with pytest.raises(ValueError, match="must be finite"):
        dataclasses.replace(made, missing="error").release(held)


SECRET = np.array([77123.0, 77456.0])
ROWS = np.tile(SECRET, (4, 1))


@pytest.mark.parametrize("label", ["person", "by"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_texts_of_a_series_are_told_apart_or_refused(library, label):
    """NumPy strings cannot tell "a" and "a\0" apart: one person would count for two, and a row for another group."""
    series = frame(library, ROWS, id=["a", "a\0", "b", "b"])["id"]
    made = mechanism(4, neighbors="add_remove", per_person=1 if label == "person" else None)
    made = made if label == "person" else GroupedDataMechanism(made, ["a", "b"])
    with pytest.raises(ValueError, match=f"^{label} must not have texts that end in a null character"):
        made.release(ROWS, **{label: series})


# --- Wrong arguments --------------------------------------------------------------------------------------------------
PEOPLE = ["secret1", "secret2", "secret2", "secret3"]
TABLE = frame("pyarrow", ROWS, id=PEOPLE)
LABELED = {"n": 4, "per_person": "sum"}
WRONG_IDS = {  # (the argument person for the data ROWS, message)
    "ids of a list, one missing": (["a", np.nan, "b", "b"], "must not have missing"),
    "ids of which one is NA": (["a", "NA", "b", "b"], "must not have missing"),
    "ids of two types": ([1, "1", 2, 2], "^person must be a vector of numbers"),
    "ids of which one ends in null": (["a", "a\0", "b", "b"], "end in a null character"),
    "too few ids": (PEOPLE[1:], "^person must have one entry for each row"),
    "a name for an array": ("id", "^person must be an array"),
    "NaN ids": ([1, 2, np.nan, 3], "^person must not have missing labels"),
    "NaN ids in an array": (np.array([1, 2, np.nan, 3]), "^person must not have missing labels"),
    "NaT ids": (np.array(["NaT"] * 4, "M8[D]"), "^person must not have missing"),
    "None ids": (["secret", None, "a", "b"], "^person must not have missing labels"),
    "ids of several types": (np.array(["secret", 1, 2, 3], object), "^person must be a"),
    "tuples as ids": ([(77123, 1)] * 4, "^person must be a vector"),
    "ids of which each is an array": (
        pa.array(ROWS.tolist()).to_numpy(zero_copy_only=False),
        "^person must be a vector",
    ),
    "ragged ids": ([[77123], [1, 2], 3, 4], "^person must be a vector"),
    "bytes as ids": ([b"secret"] * 4, "^person must be a vector"),
    "complex ids": (np.ones(4, complex), "^person must be a vector"),
    "huge floats": ([7.7123e300] * 4, "^person must not have such large floats"),
    "a zone": ([ZONED] * 4, "^person must be .* without time"),
    "huge integers": ([2**64, 1, 2, 3], "^person must have integers of 64 bits"),
    "persons that are too few": (PEOPLE, "^X must have the declared n = 4 persons, got 3"),
}
WRONG_PERSONS = {  # (data, the argument person, message)
    **{name: (ROWS, *wrong) for name, wrong in WRONG_IDS.items()},
    "too many ids": (TABLE, PEOPLE * 2, "^person must have one entry for each row"),
    "a name for a list": (ROWS.tolist(), 0, "^person must be an array"),
    "an unknown name": (TABLE, "who", "^X must have a column 'who'"),
    "arrays with a name": (lambda: iter([ROWS]), "id", "^X must be made of data frames"),
    "an array for blocks": (lambda: iter([TABLE]), PEOPLE, "^person must be the name of"),
    "a dask array": (da.from_array(ROWS), PEOPLE, "^person must be the name of a column"),
    "names of dask": (da.from_array(ROWS), "id", "^X must have names of columns"),
    "columns of texts": (TABLE.append_column("c", [PEOPLE]), "id", "^X must hold real numbers"),
    "a column too many": (np.ones((4, 3)), PEOPLE, r"^X must have shape \(rows, 2\)"),
}
WRONG_DATA = {  # (options of the mechanism, groups, data, labels, message)
    **{name: (LABELED, None, held, {"person": who}, said) for name, (held, who, said) in WRONG_PERSONS.items()},
    "no person": (LABELED, None, ROWS, {}, "^person must be given, because .* per_person = 'sum'"),
    "no per_person": ({"n": 4}, None, ROWS, {"person": PEOPLE}, "^person goes with a mechanism"),
    "blocks of two types": (
        *({**LABELED, "columns": NAMES}, None),
        lambda: iter([frame("pyarrow", ROWS, id=[1, 2, 3, 4]), TABLE]),
        *({"person": "id"}, "^person and by must have labels of one type"),
    ),
    "other columns": ({**LABELED, "columns": ("c", "d")}, None, TABLE, {"person": "id"}, "^X must have the names of"),
    "no groups": ({"n": 4}, ["a"], ROWS, {"by": None}, "^by must be the name of a column of X, or an array"),
    "too few groups": ({"n": 4}, ["a"], ROWS, {"by": PEOPLE[1:]}, "^by must have one entry for each row"),
    "NaN groups": ({"n": 4}, [1], ROWS, {"by": [1, np.nan, 2, 3]}, "^by must not have missing labels"),
    "texts for numbers": ({"n": 4}, [1], ROWS, {"by": PEOPLE}, "^by must have labels of the type of the keys"),
    "numbers for texts": ({"n": 4}, ["1"], ROWS, {"by": [1, 2, 3, 77123]}, "^by must have labels of the type"),
    "numbers for dates": ({"n": 4}, DAYS, ROWS, {"by": [1, 2, 3, 77123]}, "^by must have labels of the type"),
    "a person of groups": ({"n": 4}, ["a"], ROWS, {"by": PEOPLE, "person": PEOPLE}, "^person goes with a mech"),
    "no person of groups": (LABELED, ["a"], ROWS, {"by": PEOPLE}, "^person must be given"),
    "rows of another length": ({"n": 4}, ["a"], np.ones((4, 3)), {"by": PEOPLE}, r"^X must have shape \(rows, 2\)"),
}


@pytest.mark.parametrize("simulated", [False, True])
@pytest.mark.parametrize("case", WRONG_DATA)
def test_wrong_data_and_labels_are_named_and_not_shown(case, simulated):
    options, keys, held, labels, message = WRONG_DATA[case]
    made = mechanism(**{"columns": NAMES if held is TABLE else None, **options})
    made = made if keys is None else GroupedDataMechanism(made, keys)
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        made.release(held() if callable(held) else held, **labels, rng=np.random.default_rng(1) if simulated else None)
    assert not any(secret in str(caught.value) for secret in ("secret", "77123", "77456"))


WRONG_PARAMETERS = {
    "per_person": (True, False, 0, -1, 1.5, "max", np.nan, np.inf, [1, 2], b"sum", 1j),
    "missing": ("drop", None, True, 0, np.nan, ["center"], np.array(["center", "error"])),
    "groups_per_person": (0, -1, 1.5, True, "2", None, np.nan, [1]),
    "keys": (
        *([], (), "ab", b"", 5, None, [1, 1], ["a", "a"], [1, "a"], [1, 2.5], [1, True], [[1]], [None], [np.nan]),
        *([(1, 2)], [b"a"], [1e20], [10**30], [1j], [ZONED], [DAYS[0], datetime.datetime(2024, 1, 1)]),
    ),
}


@pytest.mark.parametrize(
    ("name", "bad"), [(name, bad) for name, many in WRONG_PARAMETERS.items() for bad in many], ids=str
)
def test_wrong_parameters_are_named(name, bad):
    def make(keys=(1, 2), groups_per_person=1, **options):
        made = mechanism(**{"per_person": "sum", **options})
        return GroupedDataMechanism(made, keys, groups_per_person=groups_per_person)

    with pytest.raises((ValueError, TypeError), match=f"^{name} must"):
        make(**{name: bad})


@pytest.mark.parametrize(
    ("inner", "options", "message"),
    [
        (mechanism(noise="l2"), {}, "^mechanism must have Gaussian noise to release groups, unless"),
        (mechanism(count_clipped=True), {}, "^mechanism must have count_clipped=False"),
        (GaussianMechanism(1.0, 1.0, 1e-6), {}, "^mechanism must be a GaussianDataMechanism"),
        (AdaptiveDataMechanism(9, 1.0, ranges=[(0, 1)]), {}, "^mechanism must be a GaussianDataMechanism"),
        (mechanism(), {"groups_per_person": 2}, "^groups_per_person = 2 needs a mechanism with per_person"),
        (mechanism(per_person=2), {"groups_per_person": 2}, "^groups_per_person = 2 needs a mechanism with per_person"),
        (mechanism(), {"keys": range(2**19)}, "^keys must be so few that"),
    ],
)
def test_mechanisms_that_do_not_fit_are_named(inner, options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        GroupedDataMechanism(inner, **{"keys": [1, 2], **options})


@pytest.mark.parametrize("neighbors", ["replace_one", "add_remove"])
def test_noise_is_calibrated_for_the_coordinates_of_all_groups(neighbors):
    """Gaussian noise is for d + 1 numbers in each group; what discrete noise adds to delta is paid for all of them."""
    inner = GaussianDataMechanism([18.0, 1200.0], 100, 1.0, 1e-6, neighbors=neighbors)
    it = GroupedDataMechanism(inner, range(5))
    assert it.noise_size == 5 * 3
    _, std = it._on_lattice(it._grid())
    weight = round(it._weight / it._grid().unit)
    _, sensitivity = it._joint.on_lattice(it._grid().radius, weight)
    assert std == lattice.gaussian_std(sensitivity, 15, 1.0, 1e-6)


# --- Budgets ----------------------------------------------------------------------------------------------------------


def test_a_budget_grants_releases_with_labels():
    made = mechanism(per_person="mean", columns=NAMES)
    grouped = GroupedDataMechanism(made, KEYS, groups_per_person=2)
    budget = Budget(epsilon=3, delta=1e-6, simulation=True)
    for one, labels in ((made, {"person": WHO}), (grouped, {"person": WHO, "by": GROUP})):
        found = budget.release(one, X, rng=np.random.default_rng(1), **labels)
        alone = one.release(X, rng=np.random.default_rng(1), **labels)
        for part, expected in zip(*([it] if one is made else it.values() for it in (found, alone)), strict=True):
            assert np.array_equal(part.estimate, expected.estimate)
    first, second = budget.history
    assert dataclasses.replace(second, mechanism=first.mechanism) == first
    assert second.mechanism == "GroupedDataMechanism"


@pytest.mark.parametrize("case", WRONG_DATA)
def test_labels_that_are_wrong_by_their_form_cost_nothing(case):
    options, keys, held, labels, _ = WRONG_DATA[case]
    made = mechanism(**{"columns": NAMES if held is TABLE else None, **options})
    made = made if keys is None else GroupedDataMechanism(made, keys)
    budget = Budget(epsilon=3, delta=1e-6)
    with pytest.raises((ValueError, TypeError)):
        budget.release(made, held() if callable(held) else held, **labels)
    of_values = ("NaN", "NaT", "None", "ids of", "tuples", "ragged", "bytes", "huge", "a zone", "persons that")
    read = case.startswith((*of_values, "texts for", "numbers for", "arrays with", "blocks of two"))
    assert len(budget.history) == read
