"""Test the labels of rows, which say to which person or group a row belongs, in Python and on the command line.

Labels of a wrong type must be refused before a budget records a cost. Labels of each allowed type, such as dates, must
give the right groups and persons.
"""

import csv
import datetime
import json
import sys

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from egm import GaussianDataMechanism, _tables, cli, files
from egm._rows.labels import codes, in_order, numbered, vector
from egm.budget import Budget
from egm.mechanisms import GroupedDataMechanism

DAYS = [datetime.date(2024, 3, day) for day in (1, 2, 1, 3)]
TIMES = [datetime.datetime(2024, 3, day, 12, 30) for day in (1, 2, 1, 3)]
LABELS = {"numbers": [1, 2, 1, 3], "texts": ["1", "2", "1", "3"], "dates": DAYS}
MAKERS = {
    "pyarrow": pa.table,
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "dask": lambda columns: dd.from_pandas(pd.DataFrame(columns), npartitions=2, sort=False),
    "categories": lambda columns: pd.DataFrame(columns).astype({"group": "category"}),
    "dictionary": lambda columns: pa.table(columns | {"group": pa.array(columns["group"]).dictionary_encode()}),
}
MAKERS["dictionary in pandas"] = lambda columns: MAKERS["dictionary"](columns).to_pandas(types_mapper=pd.ArrowDtype)
MAKERS["categories in dask"] = lambda columns: MAKERS["dask"](columns).astype({"group": "category"}).categorize()
MAKERS["dictionary in dask"] = lambda columns: dd.from_pandas(MAKERS["dictionary in pandas"](columns), npartitions=2)


def grouped(keys):
    """Return a mechanism for one column x and the groups `keys`."""
    return GroupedDataMechanism(GaussianDataMechanism({"x": 1.0}, 4, 1.0, 1e-6), keys)


def as_dates(library, kind, labels):
    """Convert the list `labels` so that a table of `library` has a column of dates, not of objects.

    The result is an array of NumPy's dates if `kind`, the kind of the labels, is "dates" and `library` is based on
    pandas. Otherwise the list is returned as it is.
    """
    objects = kind == "dates" and library in ("pandas", "dask", "categories", "categories in dask")
    return np.array(labels, dtype="M8[us]") if objects else labels


def charges(mechanism, X, **labels):
    """Try to release `X` by `mechanism` within a budget, and return whether the budget recorded the cost.

    `X` is a table, or an array that becomes the column x of a table. `labels` has the arguments of the release that
    give the rows' labels, such as `by`. If the release is refused, the error must be the one for labels of a wrong
    type.
    """
    budget = Budget(epsilon=1, delta=1e-6)
    if isinstance(X, np.ndarray):
        X = pa.table({"x": X})
    try:
        budget.release(mechanism, X, **labels)
    except TypeError as error:
        said = str(error)
    else:
        return bool(budget.history)
    assert said.startswith("by must have labels of the type of the keys: the keys are")
    assert not budget.history
    return False


@pytest.mark.parametrize("library", MAKERS)
@pytest.mark.parametrize("kind", LABELS)
def test_a_column_of_another_type_than_the_keys_costs_nothing(library, kind):
    X = MAKERS[library]({"x": [0.0] * 4, "group": as_dates(library, kind, LABELS[kind])})
    for other, keys in LABELS.items():
        assert charges(grouped(keys[:2]), X, by="group") == (kind == other)


@pytest.mark.parametrize(
    "make", [np.array, pd.Series, pl.Series, lambda labels: np.array(labels, dtype=np.dtypes.StringDType())]
)
def test_an_array_of_another_type_than_the_keys_costs_nothing(make):
    assert charges(grouped(["1", "2"]), np.zeros(4), by=make(["1", "2", "3", "4"]))
    assert not charges(grouped([1, 2]), np.zeros(4), by=make(["1", "2", "3", "4"]))


@pytest.mark.parametrize("kind", LABELS)
def test_a_column_of_objects_may_have_labels_of_any_type(kind):
    """For labels in a column of objects, `Budget.release` takes numbers, texts and dates, and records the cost.

    The same holds for a column of dask whose categories are not known before its rows are read.
    """
    labels = pd.Series(LABELS[kind], dtype=object)
    X = pd.DataFrame({"x": [0.0] * 4, "group": labels})
    with dask.config.set({"dataframe.convert-string": False}):  # or dask would make texts of all objects
        unknown = dd.from_pandas(X, npartitions=2).astype({"group": "category"})  # what the categories are
        tables = X, X.astype({"group": "category"}), dd.from_pandas(X, npartitions=2), unknown
        for table, by in (*((table, "group") for table in tables), (X[["x"]], labels)):
            assert charges(grouped(LABELS[kind][:2]), table, by=by)


@pytest.mark.parametrize("library", MAKERS)
@pytest.mark.parametrize("kind", LABELS)
def test_each_library_gives_the_labels_of_the_rows(library, kind):
    """The person and the group of a row are the same in each library, also in one that stores labels as categories."""
    labels = as_dates(library, kind, LABELS[kind])
    X = MAKERS[library]({"x": [0.5, 1.0, 2.0, 4.0], "group": labels})
    persons = GaussianDataMechanism({"x": 8.0}, 3, 1.0, 1e-6, per_person="sum")
    plain = {"x": np.array([0.5, 1.0, 2.0, 4.0])[:, None], "group": LABELS[kind]}
    for made, label in ((persons, "person"), (grouped(list(dict.fromkeys(LABELS[kind]))), "by")):
        found = made.release(X, **{label: "group"}, rng=np.random.default_rng(1))
        expected = made.release(plain["x"], **{label: plain["group"]}, rng=np.random.default_rng(1))
        for one, other in zip(*([it] if label == "person" else it.values() for it in (found, expected)), strict=True):
            assert np.array_equal(one.estimate, other.estimate)


SERIES = [
    *(pl.Series([1, 2, 1, 3], dtype=kind) for kind in (pl.Int8, pl.UInt64, pl.Int128, pl.Float32)),
    *(pl.Series(["b", "a", "b", "c"], dtype=kind) for kind in (pl.String, pl.Categorical, pl.Enum(["a", "b", "c"]))),
    *(pl.Series(values) for values in (DAYS, TIMES, [True, False, True, True])),
    *(pd.Series([1, 2, 1, 3], dtype=kind) for kind in ("int8", "UInt64", "category", object, "double[pyarrow]")),
    *(pd.Series(["b", "a", "b", "c"], dtype=kind) for kind in ("str", "category", object, "string[pyarrow]")),
    pd.Series(["b\0x", "b\0y", "b\0x", "b"], dtype="string[python]"),
    pd.Series(pd.Categorical(["b", "a", "b", "c"], categories=["NA", "c", "b", "a", "a\0"])),  # two without rows
    pd.Series(["\ud800", "'\\ud800'", "\ud800", "c"], dtype=object),  # half of a surrogate pair is no text for Arrow
    *(pd.Series(TIMES, dtype=kind) for kind in ("M8[ns]", "category", object)),
    pd.Series([True, False, True, True], dtype="boolean"),
    pa.chunked_array([[1, 2], [1, 3]]).dictionary_encode(),
    pa.chunked_array([["b", "a"], ["b", "c"]]),
]


@pytest.mark.parametrize("series", SERIES, ids=lambda it: f"{type(it).__module__} {getattr(it, 'dtype', '')}")
def test_a_series_has_the_labels_of_the_same_column(series):
    """The persons and groups in a Series, of any library and type, are those that a table has in such a column."""
    X = {pl.Series: pl.DataFrame, pd.Series: pd.DataFrame}.get(type(series), pa.table)(
        {"x": [0.5, 1, 2, 4], "id": series}
    )
    rest, _ = _tables.split(X, "id")
    different = list(dict.fromkeys(series.to_pylist() if isinstance(series, pa.ChunkedArray) else series.to_list()))
    persons = GaussianDataMechanism({"x": 8.0}, len(different), 1.0, 1e-6, per_person="sum")
    for made, label in ((persons, "person"), (grouped(different), "by")):
        column = made.release(X, **{label: "id"}, rng=np.random.default_rng(1))
        beside = made.release(rest, **{label: series}, rng=np.random.default_rng(1))
        for one, other in zip(*([it] if label == "person" else it.values() for it in (column, beside)), strict=True):
            assert np.array_equal(one.estimate, other.estimate)


@pytest.mark.parametrize("kind", ["bool", "i1", "u1", "i4", "i8", "u8", "f8", "M8[us]"])
def test_labels_are_brought_in_order_and_equal_ones_keep_theirs(kind):
    """`in_order` sorts labels of each type as a stable sort does, also if they take up the whole range of the type."""
    rng = np.random.default_rng(3)
    for size in (0, 1, 2, 1000):
        samples = [rng.integers(0, 40, size).astype(kind)]
        if kind[0] in "iu":
            ends = np.iinfo(kind)
            samples.append(rng.integers(ends.min, ends.max, size // 2 + 1, dtype=kind, endpoint=True).repeat(2)[:size])
        for labels in samples:
            assert in_order(labels).tolist() == sorted(range(size), key=labels.tolist().__getitem__)


@pytest.mark.parametrize(
    "make", [list, np.array, pd.Series, pl.Series, lambda texts: pd.Series(texts, dtype="category")]
)
def test_labels_are_numbered_as_they_are_sorted(make):
    texts = ["b", "\xe9", "a", "b", "", "a b", "B", "\U0001f600", "a"]
    texts = [f"{text}!" for text in texts]
    assert numbered("person", make(texts)).tolist() == [sorted(set(texts)).index(text) for text in texts]
    assert numbered("person", make([3, 1, 3])).argsort(kind="stable").tolist() == [1, 0, 2]


def test_texts_are_read_without_pyarrow_too(monkeypatch):
    column = pl.Series(["b", "a", "b"])
    assert isinstance(_tables.labels_of(column), _tables.Encoded)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert _tables.labels_of(column).tolist() == ["b", "a", "b"]
    assert codes(column, ("a", "b")).tolist() == [1, 0, 1]


@pytest.mark.parametrize("kind", LABELS)
def test_a_dictionary_of_labels_may_have_no_rows(kind):
    """A table of Arrow without rows is released, and its labels have a type, also if no chunk has their dictionary."""
    made = GaussianDataMechanism({"x": 1.0}, 4, 1.0, 1e-6, neighbors="add_remove", clip_probability=0.1)
    table = MAKERS["dictionary"]({"x": [0.0] * 4, "group": LABELS[kind]})
    for X in (table.slice(0, 0), table.filter(pa.array([False] * 4))):
        for other, keys in LABELS.items():
            groups = GroupedDataMechanism(made, keys[:2])
            if kind == other:
                assert list(groups.release(X, by="group")) == keys[:2]
            else:
                with pytest.raises(TypeError, match="by must have labels of the type of the keys"):
                    groups.check(X, by="group")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_file_of_another_type_than_the_keys_costs_nothing(tmp_path, kind):
    if kind == "csv":
        (tmp_path / "t.csv").write_text("x,group\n0,1\n1,2\n")
    else:
        pq.write_table(pa.table({"x": [0.0, 1.0], "group": DAYS[:2]}), tmp_path / "t.parquet")
    X = files.rows(tmp_path / f"t.{kind}", ["x"], header="yes", labels=["group"])
    wider = files.rows(tmp_path / f"t.{kind}", ["x"] if kind == "parquet" else ["x", "group"], header="yes")
    for other, keys in LABELS.items():
        assert charges(grouped(keys[:2]), X, by="group") == (other == {"csv": "texts", "parquet": "dates"}[kind])
    with pytest.raises(TypeError, match="by must have labels of the type of the keys"):
        grouped([1, 2]).check(wider, by="group")


@pytest.mark.parametrize(
    "kind", [pa.duration("s"), pa.timestamp("s", "UTC"), pa.list_(pa.int64()), pa.decimal128(5)], ids=str
)
def test_labels_of_no_allowed_type_cost_nothing(kind):
    column = pa.array([[1], [2]] if pa.types.is_list(kind) else [0, 1], kind)
    made = GaussianDataMechanism({"x": 1.0}, 2, 1.0, 1e-6, per_person="sum")
    budget = Budget(epsilon=1, delta=1e-6)
    said = "^person must be a vector of numbers, of texts, or of dates without time zone"
    with pytest.raises(TypeError, match=said):
        budget.release(made, pa.table({"x": [0.0, 1.0], "id": column}), person="id")
    assert not budget.history


@pytest.mark.parametrize("make", [pa.table, pd.DataFrame, pl.DataFrame])
def test_dates_with_a_time_zone_are_refused_in_blocks_too(make):
    zoned = [time.replace(tzinfo=datetime.UTC) for time in TIMES]
    made = GaussianDataMechanism({"x": 1.0}, 4, 1.0, 1e-6, per_person="sum")
    with pytest.raises(
        TypeError, match=r"^person must be a vector of numbers, of texts, or of dates without time zone"
    ):
        made.release(iter([make({"x": [0.0] * 4, "id": zoned})]), person="id")


def test_a_date_beyond_the_labels_unit_is_the_label_of_no_row():
    """If the unit of the rows' labels cannot express a date, `codes` puts no row into the group of this date.

    `codes` returns the group of each row. In nanoseconds, the date 2300-01-01 needs more than 64 bits, and must not be
    confused with the date in 1715 that has the same last 64 bits.
    """
    modulo = "1715-06-13T00:25:26.290448384"  # 2300-01-01 modulo 2**64
    labels = np.array(["2262-01-01", modulo], "M8[ns]")
    assert codes(labels, (datetime.datetime(2300, 1, 1), datetime.datetime(2262, 1, 1))).tolist() == [1, -1]
    assert codes(labels, (datetime.datetime(2300, 1, 1),)).tolist() == [-1, -1]
    assert codes(labels.astype("M8[D]"), (datetime.datetime(2262, 1, 1, 12),)).tolist() == [-1, -1]


def test_dates_that_differ_by_nanoseconds_are_different_labels():
    """Dates of pandas, in a list or a column of objects, keep their nanoseconds as persons and as keys of groups.

    No date of Python can have nanoseconds. So a key of NumPy with nanoseconds is refused instead of being rounded.
    """
    times = pd.to_datetime(np.array([1, 2, 2, 1000], "M8[ns]"))
    keys = GroupedDataMechanism(GaussianDataMechanism([1.0], 4, 1.0, 1e-6), times[1::-1]).keys
    for labels in (times.to_numpy(), np.array(list(times), object), pd.Series(list(times), dtype=object), list(times)):
        assert codes(labels, keys).tolist() == [1, 0, 0, -1]
        assert np.unique(vector("person", labels)).size == 3
    with pytest.raises(ValueError, match=r"keys must be dates in whole microseconds or of pandas, got .*000000001"):
        GroupedDataMechanism(GaussianDataMechanism([1.0], 4, 1.0, 1e-6), list(times.to_numpy()))
    said = "must not have dates that 64 bits cannot count in ns, the finest unit of all dates"
    for late in (datetime.datetime(2300, 1, 1), np.datetime64("1500-01-01", "us")):
        with pytest.raises(ValueError, match=f"person {said}"):
            vector("person", [times[0] if isinstance(late, datetime.date) else times.to_numpy()[0], late])
    made = GaussianDataMechanism([1.0], 3, 1.0, 1e-6, per_person="sum")
    blocks = [
        pd.DataFrame({"x": 0.0, "day": pd.Series(days, dtype=object)})
        for days in ([datetime.datetime(1500, 1, 1)] * 2, [times[0]])
    ]
    with pytest.raises(ValueError, match=f"person and by {said}"):
        made.release(iter(blocks), person="day", rng=np.random.default_rng(1))


# --- On the command line ----------------------------------------------------------------------------------------------

LONG = "long" * 500
COLUMNS = {
    "day": DAYS,
    "time": TIMES,
    "flag": [True, False, True, True],
    "number": [1, 2, 1, -3],
    "share": [0.1, 0.2, 0.3, 0.4],
    "text": ["1", "b", "1", "x"],
    "padded": ["NY  ", "TEX ", " NY", "  "],
    "long": [f"{LONG}1", LONG, f"{LONG}1", "x"],
}
GROUPS = {  # (values of --keys, the keys as they are written, the sums of the groups)
    "day": ("2024-03-01,2024-03-05,2024-03-03", ["2024-03-01", "2024-03-05", "2024-03-03"], [5, 0, 8]),
    "time": ("2024-03-01 12:30,2024-03-02T12:30:00", ["2024-03-01T12:30:00", "2024-03-02T12:30:00"], [5, 2]),
    "flag": ("False,True", ["False", "True"], [2, 13]),
    "number": ("-3,1,0", ["-3", "1", "0"], [8, 5, 0]),
    "text": ("b,1", ["b", "1"], [2, 5]),
    "padded": ("NY,TEX  ", ["NY", "TEX"], [5, 2]),
    "long": (f"{LONG},{LONG}1", [LONG, f"{LONG}1"], [2, 5]),
}


@pytest.fixture
def egm(tmp_path, silent, monkeypatch, capsys):
    """Return a function that runs the program egm without noise, and returns (exit code, output, standard error).

    The arguments of this function are further options of the program, the `command` "sum" or "mean", and the name
    `data` of a Parquet file. The default file has the column x, which is summed, and the columns of labels in COLUMNS.
    """
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"x": [1.0, 2.0, 4.0, 8.0], **COLUMNS}), "t.parquet")
    (tmp_path / "sigma.csv").write_text("x,100\n")

    def run(*argv, data="t.parquet", command="sum"):
        options = ("--sigma", "sigma.csv", "--rows", "4", "--epsilon", "1", "--delta", "1e-6", "--format", "json")
        code = cli.main([command, data, *options, *argv])
        return code, *capsys.readouterr()

    return run


@pytest.mark.parametrize("by", GROUPS)
def test_groups_of_each_type_on_the_command_line(egm, by):
    keys, written, sums = GROUPS[by]
    code, out, err = egm("--by", by, "--keys", keys)
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["group"] == written
    assert np.allclose(found["estimate"], sums)


@pytest.mark.parametrize("command", ["sum", "mean"])
def test_keys_give_no_orders_to_a_terminal_or_a_spreadsheet(egm, tmp_path, command):
    """In CSV output, a group's label that a terminal or a spreadsheet could take for a command is made harmless.

    Unprintable characters are escaped, and a label that looks like a formula gets an apostrophe at its beginning. JSON
    output has the unchanged labels. `command`, "sum" or "mean", says what the program egm releases.
    """
    keys = ["=1+1", "\x1b[31mz", "-3", "-3+4", "a,b"]
    (tmp_path / "k.txt").write_text("\n".join([*keys[:-1], f'"{keys[-1]}"']))
    code, out, err = egm("--by", "text", "--keys", "k.txt", "--format", "csv", command=command)
    assert (code, err) == (0, "")
    found = [row["group"] for row in csv.DictReader(out.splitlines()[1:])]
    assert found == ["'=1+1", "\\x1b[31mz", "-3", "'-3+4", "a,b"]
    assert json.loads(egm("--by", "text", "--keys", "k.txt", command=command)[1])["group"] == keys


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("text\nb\n1\n", "line 1 is the name of --by, 'text': it is taken as a key, not as a header"),
        ('"text"\nb\n', "line 1 is the name of --by"),
        ("b\n\n1,one\n2,two\n", "line 3 has a comma, a semicolon or a tab outside of quotes: the whole line is taken"),
        ("b;Bath\n", "line 1 has a comma"),
        ("b\tBath\n", "line 1 has a comma"),
        ('"b",Bath\n', "line 1 has a comma"),
        ('"b, c"\n"d;\te"\n \tb\t\ntexts\n', None),
    ],
)
def test_a_line_of_keys_that_seems_to_be_a_header_or_several_columns_is_a_warning(egm, tmp_path, lines, said):
    """A file of keys with a header or several columns leads to a warning of one line, and its lines remain the keys.

    `lines` is the content of the file, and `said` a part of the warning, or None if there is none. Keys that are given
    on the command line lead to no warning.
    """
    (tmp_path / "k.txt").write_text(lines)
    code, out, err = egm("--by", "text", "--keys", "k.txt")
    assert (code, err.count("\n"), f"egm: warning: --keys k.txt: {said}" in err) == (
        0,
        said is not None,
        said is not None,
    )
    assert len(json.loads(out)["group"]) == len(list(filter(str.strip, lines.splitlines())))
    assert egm("--by", "text", "--keys", "text,b;c")[2] == ""


@pytest.mark.parametrize("label", ["a\0", "a\0 "])
def test_labels_that_end_in_a_null_character_are_refused_on_the_command_line(egm, label):
    pq.write_table(pa.table({"x": [1.0] * 4, "text": ["a", label, "a", "b"]}), "null.parquet")
    code, out, err = egm("--by", "text", "--keys", "a", data="null.parquet")
    assert (code, out, err) == (2, "", "egm: --by must not have texts that end in a null character\n")


def test_dates_tell_persons_apart_on_the_command_line(egm):
    columns = {"x": [1.0, 4.0, 2.0, 8.0], "day": sorted(DAYS), "number": [1, 1, 2, -3]}
    pq.write_table(pa.table(columns), "sorted.parquet")
    persons = ("--person", "day", "--per-person", "mean", "--neighbors", "add_remove")
    code, out, err = egm(*persons, "--by", "number", "--keys", "1,2", data="sorted.parquet")
    assert (code, err) == (0, "")
    assert np.allclose(json.loads(out)["estimate"], [2.5, 2])


@pytest.mark.parametrize(
    ("by", "keys", "said"),
    [
        ("day", "north", "--keys: 'north' must be a date such as 2024-03-01"),
        ("day", "2024-03", "--keys: '2024-03' must be a date"),
        ("day", "2024-02-31", "--keys: there is no date such as one of"),
        ("day", "2024-03-01,2024-03-01T00:00", "--keys must be at least one key, and name each group once"),
        ("time", "2024-03-01T12:30+01:00", "must be a date such as"),
        ("number", "1,01", "--keys: '01' must be a whole number, as the labels of --by number are"),
        ("flag", "1", "--keys: '1' must be True or False"),
        ("share", "1", "--by share: has floating-point numbers"),
    ],
)
def test_keys_of_another_type_cost_nothing_on_the_command_line(egm, capsys, by, keys, said):
    assert cli.main(["budget", "new", "a.budget", "--epsilon", "9", "--delta", "1e-6"]) == 0
    code, out, err = egm("--by", by, "--keys", keys, "--budget", "a.budget")
    assert (code, out) == (2, "")
    assert said in err
    assert not Budget("a.budget").history
