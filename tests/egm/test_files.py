"""Test `egm.files`: it reads the same table from each kind of file, says where a mistake is, and writes whole files."""

import contextlib
import re
import subprocess
import sys
from itertools import product
from pathlib import Path
from unittest.mock import Mock, PropertyMock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from egm import _distribution, files
from egm._files import parquet
from egm.files import FileError

NAMES = ("age", "body mass", "x,y")


def table(rows=7, columns=3):
    return np.random.default_rng(rows).normal(size=(rows, columns)) * 10.0 ** np.arange(columns)


def csv_text(X, names=NAMES):
    header = [",".join(f'"{name}"' for name in names)] if names else []
    return "\n".join([*header, *(",".join(map(repr, row)) for row in X.tolist())]) + "\n"


def write(path, X, names=NAMES):
    """Write the table `X` to a CSV, NPY or Parquet file, according to the suffix of `path`, and return `path`.

    `X` is an array. `names` are the names of the columns; an NPY file has no names.
    """
    if path.suffix == ".csv":
        path.write_text(csv_text(X, names))
    elif path.suffix == ".npy":
        np.save(path, X)
    else:
        pq.write_table(pa.table(dict(zip(names, X.T, strict=True))), path, row_group_size=1000)
    return path


def whole_table(rows):
    return np.concatenate(list(rows))


# --- The same table from every kind of file ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "rows"), [*product(["csv", "npy", "parquet"], [1, 7, 200_001]), ("CSV", 7), ("pq", 7)]
)
def test_every_kind_has_the_same_numbers(tmp_path, kind, rows):
    """`files.rows` yields the same numbers, bit for bit, for a CSV, NPY or Parquet file with the same table.

    The numbers come in blocks of rows, as arrays of doubles, and a second time if they are asked for again. `kind` is
    the suffix of the file, and `rows` is the number of rows.
    """
    X = table(rows)
    path = tmp_path / f"t.{kind}"
    (write(path.with_suffix(path.suffix.lower()), X)).rename(path)
    it = files.rows(path)
    assert it.names == (NAMES if kind != "npy" else ("1", "2", "3"))
    assert it.count == (None if kind.lower() == "csv" else rows)
    assert sum(it.counts()) == rows
    assert np.array_equal(whole_table(it), X)
    assert np.array_equal(whole_table(it), X)
    assert max(block.size for block in it) <= 1 << 18
    assert all(block.dtype == float for block in it)


@pytest.mark.parametrize("kind", ["csv", "npy", "parquet"])
def test_columns_are_chosen_in_the_order_asked(tmp_path, kind):
    X = table()
    path = write(tmp_path / f"t.{kind}", X)
    names = ("3", "1") if kind == "npy" else ("x,y", "age")
    it = files.rows(path, names)
    assert it.names == names
    assert np.array_equal(whole_table(it), X[:, [2, 0]])


@pytest.mark.parametrize("dtype", ["f4", ">f8", "f2", "i1", "u8", "i8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_numpy_files_of_any_type_and_order(tmp_path, dtype, order):
    X = np.asarray(np.round(table(50)), dtype=dtype, order=order) if dtype[-2] != "u" else np.ones((50, 3), dtype)
    assert np.array_equal(whole_table(files.rows(write(tmp_path / "t.npy", X))), X.astype(float))


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint64(), pa.float32(), pa.decimal128(7, 2), pa.float16()])
def test_parquet_columns_of_any_number_type(tmp_path, kind):
    pq.write_table(pa.table({"a": pa.array([1, 0, 3], pa.int8()).cast(kind)}), tmp_path / "t.parquet")
    assert np.array_equal(whole_table(files.rows(tmp_path / "t.parquet")), [[1.0], [0.0], [3.0]])


def test_names_of_a_parquet_file_are_listed_once(tmp_path, monkeypatch):
    """Reading a Parquet file with 300 columns asks pyarrow for the list of column names fewer than 10 times.

    pyarrow makes a new list for each request. One request for each column took 20 seconds for 20 000 columns.
    """
    pq.write_table(pa.table({f"c{i}": [0.5] for i in range(300)}), tmp_path / "t.parquet")
    with parquet._opened(tmp_path / "t.parquet") as real:
        schema = Mock(wraps=real.schema_arrow)
        names = type(schema).names = PropertyMock(return_value=real.schema_arrow.names)
        file = Mock(wraps=real, schema_arrow=schema, metadata=real.metadata)
        monkeypatch.setattr(parquet, "_opened", lambda _: contextlib.nullcontext(file))
        assert np.array_equal(whole_table(files.rows(tmp_path / "t.parquet")), np.full((1, 300), 0.5))
    assert 0 < names.call_count < 10


def test_text_in_columns_that_are_not_used_does_no_harm(tmp_path):
    (tmp_path / "t.csv").write_text('who,a,b\n"Ann, née B.",1,2\nBob,3,4\n', encoding="utf-8")
    assert np.array_equal(whole_table(files.rows(tmp_path / "t.csv", ["b", "a"])), [[2, 1], [4, 3]])
    pq.write_table(pa.table({"who": ["Ann", "Bob"], "a": [1, 3]}), tmp_path / "t.parquet")
    assert np.array_equal(whole_table(files.rows(tmp_path / "t.parquet", ["a"])), [[1], [3]])


# --- CSV --------------------------------------------------------------------------------------------------------------

SPELLINGS = {
    "header": "a,b\n1,2\n3,4\n",
    "no header": "1,2\n3,4\n",
    "quotes": '"a","b"\n"1","2"\n3,"4"\n',
    "byte order mark": "\ufeffa,b\n1,2\n3,4\n",
    "carriage returns": "a,b\r\n1,2\r\n3,4\r\n",
    "spaces": " a , b\n 1, 2\n3 ,4 \n",
    "no newline at the end": "a,b\n1,2\n3,4",
    "blank lines at the end": "a,b\n1,2\n3,4\n\n  \n\n",
    "exponents": "a,b\n1e0,+2.\n.3e1,400E-2\n",
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_spellings_of_one_table(tmp_path, name):
    (tmp_path / "t.csv").write_bytes(SPELLINGS[name].encode())
    it = files.rows(tmp_path / "t.csv", header="no" if name == "no header" else "auto")
    assert it.names == (("1", "2") if name == "no header" else ("a", "b"))
    assert np.array_equal(whole_table(it), [[1, 2], [3, 4]])
    assert sum(it.counts()) == 2


def test_header_may_be_numbers_if_declared(tmp_path):
    (tmp_path / "t.csv").write_text("2019,2020\n1,2\n")
    with pytest.raises(FileError, match=r"line 1 has numbers that may be names, .*--header yes or no"):
        files.rows(tmp_path / "t.csv")
    assert sum(files.rows(tmp_path / "t.csv", header="no").counts()) == 2
    it = files.rows(tmp_path / "t.csv", header="yes")
    assert (it.names, sum(it.counts()), len(whole_table(it))) == (("2019", "2020"), 1, 1)


def test_one_column_is_a_table(tmp_path):
    (tmp_path / "t.csv").write_text("a\n1\n2\n")
    assert np.array_equal(whole_table(files.rows(tmp_path / "t.csv")), [[1], [2]])


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=2))
def test_quoted_numbers_are_the_same_numbers(tmp_path_factory, row):
    """`files.rows` reads a number in a CSV file as the same double, whether the number is in quotes or not.

    Different code parses the two forms. `row` holds two random numbers, which form the only line of the file.
    """
    path = tmp_path_factory.getbasetemp() / "quoted.csv"
    for quote in ("", '"'):
        path.write_text(",".join(f"{quote}{number!r}{quote}" for number in row) + "\n")
        assert np.array_equal(whole_table(files.rows(path, header="no")), [row])


# --- Faults -----------------------------------------------------------------------------------------------------------

CELLS = {"NaN": "nan", "infinite": "-inf", "not a number": "secret7", "missing": ""}


@pytest.mark.parametrize("wrong", CELLS)
@pytest.mark.parametrize("row", [1, 5, pytest.param(131_000, marks=pytest.mark.slow)])
def test_cell_is_named_and_its_value_is_not(tmp_path, wrong, row):
    """The error for a wrong cell of a CSV file names the cell's row and column, but never shows its content.

    `wrong` says what is wrong: the cell is empty, infinite, NaN or not a number. `row` is the number of the row, which
    may be in a later block of rows than the first. The error is a FileError.
    """
    blocks = 2 if row == 131_000 else 1
    lines = ["1.5,2"] * (131_100 if blocks == 2 else 10)
    lines[row - 1] = f"1.5,{CELLS[wrong]}"
    (tmp_path / "t.csv").write_text("\n".join(["a,b", *lines]))
    with pytest.raises(FileError, match=rf"t\.csv: row {row} \(line {row + 1}\), column 'b': {wrong}") as error:
        list(files.rows(tmp_path / "t.csv"))
    assert "secret" not in str(error.value)
    assert len(list(files.rows(tmp_path / "t.csv", ["a"]))) == blocks


@pytest.mark.parametrize("kind", ["npy", "parquet"])
@pytest.mark.parametrize("row", [1, 90_000])
@pytest.mark.parametrize(("value", "said"), [(np.nan, "NaN or missing"), (np.inf, "infinite")])
def test_number_that_is_not_finite_is_named(tmp_path, kind, row, value, said):
    X = table(90_001)
    X[row - 1, 1] = value
    name = "2" if kind == "npy" else "body mass"
    with pytest.raises(FileError, match=rf"row {row}, column '{name}': {said}"):
        list(files.rows(write(tmp_path / f"t.{kind}", X)))


def test_null_is_missing(tmp_path):
    pq.write_table(pa.table({"a": pa.array([1, None, 3])}), tmp_path / "t.parquet")
    with pytest.raises(FileError, match="row 2, column 'a': NaN or missing"):
        list(files.rows(tmp_path / "t.parquet"))


BAD_CSV = {
    "a cell too few": ("a,b\n1,2\n3\n", r"row 2 \(line 3\) has 1 cells, line 1 has 2"),
    "a cell too many": ("a,b\n1,2\n3,4,5\n", r"row 2 \(line 3\) has 3 cells"),
    "a blank line": ("a,b\n1,2\n\n3,4\n", r"row 2 \(line 3\) is blank"),
    "a blank line in one column": ("a\n1\n\n3\n", r"row 2 \(line 3\) is blank"),
    "a blank first line": ("\na,b\n1,2\n", "line 1 is blank"),
    "a quote that stays open": ('a,b\n1,2\n"3,4\n', "line 3: a quote is not closed on its line"),
    "a twin": ("a,a\n1,2\n", "line 1 names two columns alike"),
    "half a header": ("a,2\n1,2\n", "line 1 has numbers and text.*--header"),
    "semicolons": ("a;b\n1;2\n", "line 1 has no comma, but ';'; columns must have commas between them"),
    "another quote": ('a,b\n1,"2"3\n', "line 2: ',' expected after"),
    "a long cell": ("a,b\n1,2\n1," + "x" * 200_000, "line 3: a cell has more than 131072 characters"),
    "underscores": ("a,b\n1_0,2\n", r"row 1 \(line 2\), column 'a': not a number"),
    "nothing": ("", "is empty"),
}


@pytest.mark.parametrize("name", BAD_CSV)
def test_bad_csv_is_explained(tmp_path, name):
    text, said = BAD_CSV[name]
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(FileError, match=rf"t\.csv: {said}"):
        list(files.rows(tmp_path / "t.csv"))


def test_other_text_than_utf8_is_refused(tmp_path):
    (tmp_path / "t.csv").write_bytes("größe,b\n1,2\n".encode("latin-1"))
    with pytest.raises(FileError, match="is not UTF-8 text"):
        files.rows(tmp_path / "t.csv")


@pytest.mark.parametrize(
    ("X", "said"),
    [
        (np.ones(3), r"must have the shape \(rows, columns\), has \(3,\)"),
        (np.ones((3, 0)), r"must have the shape"),
        (np.ones((3, 2), dtype=bool), "must hold real numbers, holds bool"),
        (np.ones((3, 2), dtype=complex), "must hold real numbers, holds complex128"),
        (np.full((3, 2), "1"), "must hold real numbers"),
        (np.full((3, 2), None), "is not a whole NumPy array of numbers"),
    ],
)
def test_other_arrays_are_refused(tmp_path, X, said):
    np.save(tmp_path / "t.npy", X)
    with pytest.raises(FileError, match=said):
        files.rows(tmp_path / "t.npy")


@pytest.mark.parametrize("kind", ["npy", "parquet"])
@pytest.mark.parametrize("part", [0, 0.1, 0.9])
def test_truncated_files_are_refused(tmp_path, kind, part):
    path = write(tmp_path / f"t.{kind}", table(1000))
    path.write_bytes(path.read_bytes()[: int(part * path.stat().st_size)])
    with pytest.raises(FileError, match=r"t\.(npy|parquet): "):
        list(files.rows(path))


@pytest.mark.parametrize("values", [["a", "b"], [True, False], [[1.0], [2.0]]])
def test_other_parquet_columns_are_refused(tmp_path, values):
    pq.write_table(pa.table({"a": values}), tmp_path / "t.parquet")
    with pytest.raises(FileError, match="column 'a' must hold real numbers, holds"):
        list(files.rows(tmp_path / "t.parquet"))


def test_pyarrow_is_asked_for_only_where_it_is_needed(tmp_path, monkeypatch):
    for kind in ("csv", "npy", "parquet"):
        write(tmp_path / f"t.{kind}", table())
    for module in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, module, None)
    assert len(whole_table(files.rows(tmp_path / "t.csv"))) == len(whole_table(files.rows(tmp_path / "t.npy"))) == 7
    with pytest.raises(FileError, match=re.escape(f"pip install '{_distribution.NAME}[files]'")):
        files.rows(tmp_path / "t.parquet")


# --- Memory -----------------------------------------------------------------------------------------------------------

CHILD = """
import sys, numpy as np
from egm import files
def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) * 1024
for _ in files.rows(sys.argv[1]): pass
before, rows = peak(), 0
for block in files.rows(sys.argv[2]): rows += len(block)
print(rows, peak() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of memory is read from /proc")
@pytest.mark.parametrize(
    ("kind", "rows", "columns"),
    [
        ("csv", 60_000, 100),
        *(pytest.param(kind, 125_000, 100, marks=pytest.mark.slow) for kind in ("npy", "F.npy")),
        pytest.param("pq", 10**6, 13, marks=pytest.mark.slow),
    ],
)
def test_memory_is_bounded(tmp_path, kind, rows, columns):
    """`files.rows` reads a table of 48 to 104 MB with less than 40 MB of additional memory.

    The additional memory is the increase of the process's peak while it reads the table. `kind` is the kind of file:
    CSV, NPY in row order, NPY in column order, or Parquet. `rows` and `columns` give the size of the table. The rows of
    the Parquet file are all in one row group, so that a reader of whole row groups would exceed the limit.
    """
    names = [f"c{i}" for i in range(columns)]
    X = np.lib.format.open_memmap(tmp_path / "big.npy", "w+", float, (rows, columns), fortran_order=kind == "F.npy")
    small, big = tmp_path / f"small.{kind}", tmp_path / f"big.{kind}"
    if kind == "csv":
        big.write_text(("0.0," * (columns - 1) + "0.0\n") * rows)
    elif kind == "pq":
        column = np.random.default_rng(1).normal(size=rows)
        pq.write_table(pa.table(dict.fromkeys(names, column)), big, row_group_size=rows, use_dictionary=False)
    else:
        big = tmp_path / "big.npy"
    write(small, X[:5], names) if kind != "pq" else pq.write_table(pa.table({n: [0.0] for n in names}), small)
    child = [sys.executable, "-c", CHILD, str(small), str(big)]
    read, more = subprocess.run(child, capture_output=True, text=True, check=True).stdout.split()
    assert int(read) == rows
    assert int(more) < 40e6


# --- Vectors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["1\n2.5\n", "sigma\n1\n2.5\n", '"1"\n"2.5"\n\n', "\ufeff1\r\n2.5"])
def test_vector_without_names(tmp_path, text):
    (tmp_path / "v.csv").write_bytes(text.encode())
    names, values = files.vector(tmp_path / "v.csv")
    assert names is None
    assert values.tolist() == [1.0, 2.5]


@pytest.mark.parametrize("text", ["b,1\na,2.5\n", "column,sigma\nb,1\na,2.5\n", '"b", 1\n"a",2.5'])
def test_vector_with_names(tmp_path, text):
    (tmp_path / "v.csv").write_text(text)
    names, values = files.vector(tmp_path / "v.csv")
    assert (names, values.tolist()) == (["b", "a"], [1.0, 2.5])


def test_vectors_in_other_files(tmp_path):
    np.save(tmp_path / "v.npy", np.array([1, 2], dtype=np.int8))
    pq.write_table(pa.table({"s": [1.0, 2.0]}), tmp_path / "v.pq")
    pq.write_table(pa.table({"who": ["a", "b"], "s": [1, 2]}), tmp_path / "w.pq")
    found = [files.vector(tmp_path / name) for name in ("v.npy", "v.pq", "w.pq")]
    assert [names for names, _ in found] == [None, None, ["a", "b"]]
    assert all(values.tolist() == [1.0, 2.0] for _, values in found)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("sigma\n", "is empty"),
        ("1,2,3\n", "must have one number a line, or a name and a number; line 1 has 3"),
        ("1\nx\n", "line 2: not a number"),
        ("a,1\nb,\n", "line 2: no number"),
        ("1\n\n2\n", "line 2 has 0 cells"),
        ("\n1\n", "line 1 is blank"),
        ("a,1\nb\n", "line 2 has 1 cells, line 1 has 2"),
        ("1\nnan\n", "value 2 is NaN"),
        ("a,1\nb,inf\n", r"value 2 \('b'\) is infinite"),
        ("a,1\na,2\n", "'a' is named twice"),
    ],
)
def test_bad_vectors_are_explained(tmp_path, text, said):
    (tmp_path / "v.csv").write_text(text)
    with pytest.raises(FileError, match=rf"v\.csv: (the column )?({said})"):
        files.vector(tmp_path / "v.csv")


# --- Whole or not at all ----------------------------------------------------------------------------------------------


def test_file_appears_when_it_is_whole(tmp_path):
    with files.whole(tmp_path / "out") as file:
        file.write(b"12")
        assert not (tmp_path / "out").exists()
    assert (tmp_path / "out").read_bytes() == b"12"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("wrong", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("overwrite", [False, True])
def test_file_does_not_appear_after_an_error(tmp_path, wrong, overwrite):
    if overwrite:
        (tmp_path / "out").write_text("old")

    def half():
        with files.whole(tmp_path / "out", overwrite=overwrite) as file:
            file.write(b"12")
            raise wrong

    with pytest.raises(wrong):
        half()
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"] * overwrite


def test_file_is_replaced_only_if_asked(tmp_path):
    (tmp_path / "out").write_text("old")
    with pytest.raises(FileError, match="out: exists already"), files.whole(tmp_path / "out"):
        pass
    with files.whole(tmp_path / "out", overwrite=True) as file:
        file.write(b"new")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["new"]


@pytest.mark.parametrize("links", [True, False])
def test_file_that_appears_meanwhile_is_not_replaced(tmp_path, links, monkeypatch):
    """`files.whole` raises a FileError if another program has meanwhile created a file at the same path.

    The other program's file is kept. `files.whole` is a context manager for writing: its file appears only when it is
    complete. `links` says whether the file system has hard links.
    """

    def link(source, target):
        raise PermissionError(1, "Operation not permitted")

    if not links:
        monkeypatch.setattr(files.os, "link", link)

    def meanwhile():
        with files.whole(tmp_path / "out") as file:
            file.write(b"mine")
            (tmp_path / "out").write_text("theirs")

    with pytest.raises(FileError, match=r"out: .*exists"):
        meanwhile()
    assert [path.read_text() for path in tmp_path.iterdir()] == ["theirs"]
    with files.whole(tmp_path / "free") as file:
        file.write(b"mine")
    assert (tmp_path / "free").read_text() == "mine"


def test_only_regular_files_are_replaced(tmp_path):
    """`files.whole` raises a FileError for a folder or a device such as /dev/null, even with overwrite=True.

    `files.whole` is a context manager for writing a file. It raises a FileError, too, if the folder of the file does
    not exist.
    """
    for path in (tmp_path, Path("/dev/null")):
        with pytest.raises(FileError, match="is not a regular file"), files.whole(path, overwrite=True):
            pass
    with pytest.raises(FileError, match="No such file or directory"), files.whole(tmp_path / "no" / "out"):
        pass


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666])
def test_a_file_that_is_replaced_leaves_its_permissions(tmp_path, mode):
    (tmp_path / "out").write_text("old")
    (tmp_path / "out").chmod(mode)
    with files.whole(tmp_path / "out", overwrite=True) as file:
        file.write(b"new")
        assert [path.stat().st_mode & 0o777 for path in tmp_path.iterdir()] == [mode, mode]
    assert (tmp_path / "out").stat().st_mode & 0o777 == mode
    assert (tmp_path / "out").read_text() == "new"


def test_link_stays_a_link(tmp_path):
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with files.whole(tmp_path / "link", overwrite=True) as file:
        file.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "new"
