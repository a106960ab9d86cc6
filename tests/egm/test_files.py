"""Test `egm.files`: it reads the same table from each kind of file, and names the place of a mistake in a file.

It also writes files, and each of them appears complete or not at all. `files.rows` returns an object that yields the
rows of a table in blocks.
"""

import contextlib
import csv
import gzip
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from datetime import date, time
from decimal import Decimal
from itertools import product
from pathlib import Path
from unittest import mock
from unittest.mock import Mock, PropertyMock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from egm import _distribution, files
from egm._files import csv as csv_files
from egm._files import parquet, source
from egm._files.source import Given
from egm.files import FileError
from tests.conftest import slow
from tests.egm.doubles import csv_text, written

NAMES = ("age", "body mass", "x,y")


def table(rows=7, columns=3):
    return np.random.default_rng(rows).normal(size=(rows, columns)) * 10.0 ** np.arange(columns)


def write(path, X, names=NAMES):
    return written(path, X, names)


@pytest.fixture
def saved(tmp_path):
    """Return a function that saves a text, an array or a dictionary of columns in a file, and returns its path."""

    def save(content, name="t.csv"):
        path = tmp_path / name
        if isinstance(content, str | bytes):
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        else:
            np.save(path, content) if path.suffix == ".npy" else pq.write_table(pa.table(content), path)
        return path

    return save


def whole_table(rows):
    return np.concatenate(list(rows))


# --- The same table from every kind of file ---------------------------------------------------------------------------


MANY_ROWS = [("npy", 200_001), ("parquet", 200_001), *slow(("csv", 200_001))]


@pytest.mark.parametrize(
    ("kind", "rows"),
    [*product(["csv", "npy", "parquet"], [1, 7]), ("CSV", 7), ("pq", 7), *MANY_ROWS],
)
def test_every_kind_has_the_same_numbers(tmp_path, kind, rows):
    """`files.rows` yields the same numbers, bit for bit, for a CSV, NPY or Parquet file with the same table.

    The rows are yielded in blocks, and a second iteration yields the same numbers. `kind` is the suffix of the file,
    and `rows` is the number of rows.
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
@pytest.mark.parametrize("order", [[2, 0], [2, 0, 1]])
def test_columns_are_chosen_in_the_order_asked(tmp_path, order, kind):
    X = table()
    path = write(tmp_path / f"t.{kind}", X)
    names = tuple((("1", "2", "3") if kind == "npy" else NAMES)[j] for j in order)
    it = files.rows(path, names)
    assert it.names == names
    assert np.array_equal(whole_table(it), X[:, order])


@pytest.mark.parametrize("dtype", ["f4", ">f8", "f2", "i1", "u8", "i8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_numpy_files_of_any_type_and_order(tmp_path, dtype, order):
    X = np.asarray(np.round(table(50)), dtype=dtype, order=order) if dtype[-2] != "u" else np.ones((50, 3), dtype)
    assert np.array_equal(whole_table(files.rows(write(tmp_path / "t.npy", X))), X.astype(float))


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint64(), pa.float32(), pa.decimal128(7, 2), pa.float16()])
def test_parquet_columns_of_any_number_type(saved, kind):
    it = files.rows(saved({"a": pa.array([1, 0, 3], pa.int8()).cast(kind)}, "t.parquet"))
    assert np.array_equal(whole_table(it), [[1.0], [0.0], [3.0]])


def test_flags_and_decimals_of_a_parquet_file_are_numbers(saved):
    digits = np.random.default_rng(1).integers(-(10**17), 10**17, size=1000) // 10 ** np.arange(18).repeat(56)[:1000]
    prices, flags = [Decimal(int(number)).scaleb(-9) for number in digits], [True, False] * 500
    expected = np.array([flags, list(map(float, prices))]).T
    assert np.array_equal(whole_table(files.rows(saved({"flag": flags, "price": prices}, "t.parquet"))), expected)


def test_flags_of_a_csv_file_are_numbers(saved):
    path = saved("name,member,age\nx,True,1.5\ny, false ,2\nz,TRUE,3\n", "t.csv")
    assert np.array_equal(whole_table(files.rows(path, ["member", "age"])), [[1, 1.5], [0, 2], [1, 3]])
    with pytest.raises(FileError, match="line 1 has numbers that may be names"):
        files.rows(saved("true,false\n1,2\n", "names.csv"))


def test_a_folder_is_its_files_one_after_the_other(tmp_path):
    """`files.rows` of a folder yields the rows of all Parquet files in it and in its subfolders, in the order of names.

    Files and folders whose names begin with a dot or an underscore are skipped. The order of the columns may differ
    between the files.
    """
    X = table(12)
    parts = {"month=1/b.pq": X[3:5], "month=1/a.parquet": X[:3], "month=2/a.parquet": X[5:5], "z.parquet": X[5:]}
    for name, part in parts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write(tmp_path / name, part[:, ::-1] if name == "z.parquet" else part, NAMES[:: -1 if name[0] == "z" else 1])
    for name in ("_SUCCESS", ".b.parquet.crc", "_old/z.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("nothing")
    it = files.rows(tmp_path)
    assert (it.names, it.count, sum(it.counts())) == (NAMES, 12, 12)
    assert np.array_equal(whole_table(it), X)
    assert np.array_equal(whole_table(it), X)
    assert np.array_equal(whole_table(files.rows(tmp_path, ["x,y"])), X[:, 2:])
    masses = [label for _, (label,) in it.labelled(["body mass"])]
    assert np.array_equal(np.concatenate(masses), X[:, 1])


def test_a_folder_of_csv_files_is_one_table(tmp_path):
    """`files.rows` of a folder reads its CSV files as one table, in the order of the files' names.

    The order of the columns may differ between the files. Files with different columns, or of different kinds, raise a
    FileError, and so does a file beside its packed copy, which would be read twice. Without header="yes" the error
    shows no cell of line 1, which may hold a person's data.
    """
    (tmp_path / "more").mkdir()
    (tmp_path / "a.csv").write_text("x,y\n1,2\n3,4\n")
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(b"y,x\n6,5\n"))
    (tmp_path / "more" / "c.csv").write_text("x,y\n7,8\n")
    it = files.rows(tmp_path)
    assert (it.names, it.count, sum(it.counts())) == (("x", "y"), None, 4)
    assert np.array_equal(whole_table(it), [[1, 2], [3, 4], [5, 6], [7, 8]])
    (tmp_path / "z.csv").write_text("x,Ann\n7,8\n")
    with pytest.raises(FileError, match=r"z\.csv: must have the columns of \S+a\.csv$"):
        files.rows(tmp_path)
    with pytest.raises(FileError, match=r"z\.csv: must have the columns of \S+a\.csv, but has 'x', 'Ann'$"):
        files.rows(tmp_path, header="yes")
    (tmp_path / "z.csv").rename(tmp_path / "z.tsv")
    with pytest.raises(FileError, match=r"is a directory, and \S+a\.csv and \S+z\.tsv in it are not of one kind"):
        files.rows(tmp_path)
    (tmp_path / "z.tsv").unlink()
    (tmp_path / "more" / "b.csv").write_text("x,y\n5,6\n")  # in another folder than b.csv.gz
    assert sum(files.rows(tmp_path).counts()) == 5
    (tmp_path / "more" / "c.csv.GZ").write_bytes(gzip.compress(b"x,y\n7,8\n"))
    with pytest.raises(FileError, match=r"has more.c\.csv and more.c\.csv\.GZ, which would count the same rows"):
        files.rows(tmp_path)


def test_a_folder_of_files_with_tabs_may_have_decimal_commas(tmp_path):
    for name in ("1.tsv", "2.tsv"):
        (tmp_path / name).write_text(f"x\ty\n{name[0]},5\t2\n")
    assert np.array_equal(whole_table(files.rows(tmp_path, decimal=",")), [[1.5, 2], [2.5, 2]])


def test_a_part_of_a_folder_that_cannot_be_read_is_an_error(tmp_path):
    """`files.rows` of a folder also reads subfolders that are links to other folders.

    If a link leads to a folder that is read already, so that reading would never end or rows would be read twice, a
    FileError is raised.
    """
    (tmp_path / "parts").mkdir()
    (tmp_path / "more").mkdir()
    write(tmp_path / "parts" / "a.parquet", table(3))
    write(tmp_path / "more" / "a.parquet", table(4))
    (tmp_path / "parts" / "linked").symlink_to(tmp_path / "more")
    assert files.rows(tmp_path / "parts").count == 7
    (tmp_path / "parts" / "loop").symlink_to(tmp_path / "parts")
    with pytest.raises(FileError, match="loop: leads to a directory that is read already"):
        files.rows(tmp_path / "parts")


def test_names_of_a_parquet_file_are_listed_once(tmp_path, monkeypatch):
    """Reading a Parquet file with 300 columns asks pyarrow for the list of column names fewer than 10 times.

    When the list was asked for once for each column, a file with 20 000 columns took 20 seconds.
    """
    pq.write_table(pa.table({f"c{i}": [0.5] for i in range(300)}), tmp_path / "t.parquet")
    with parquet._opened(tmp_path / "t.parquet") as real:
        schema = Mock(wraps=real.schema_arrow)
        names = type(schema).names = PropertyMock(return_value=real.schema_arrow.names)
        file = Mock(wraps=real, schema_arrow=schema, metadata=real.metadata)
        monkeypatch.setattr(parquet, "_opened", lambda _: contextlib.nullcontext(file))
        assert np.array_equal(whole_table(files.rows(tmp_path / "t.parquet")), np.full((1, 300), 0.5))
    assert 0 < names.call_count < 10


def test_text_in_columns_that_are_not_used_does_no_harm(saved):
    it = files.rows(saved('who,a,b\n"Ann, née B.",1,2\nBob,3,4\n'), ["b", "a"])
    assert np.array_equal(whole_table(it), [[2, 1], [4, 3]])
    it = files.rows(saved({"who": ["Ann", "Bob"], "a": [1, 3]}, "t.parquet"), ["a"])
    assert np.array_equal(whole_table(it), [[1], [3]])


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
def test_spellings_of_one_table(saved, name):
    """`files.rows` reads the same table from CSV files that differ in quotes, spaces, line ends or forms of numbers.

    `name` is a kind of file, a key of SPELLINGS.
    """
    it = files.rows(saved(SPELLINGS[name]), header="no" if name == "no header" else "auto")
    assert it.names == (("1", "2") if name == "no header" else ("a", "b"))
    assert np.array_equal(whole_table(it), [[1, 2], [3, 4]])
    assert sum(it.counts()) == 2


HABITS = {  # name of the file: its bytes, and the arguments of files.rows
    "tab.tsv": (b"a\tb\n1.5\t2\n3\t4\n", {}),
    "tab.csv": (b"a\tb\n1.5\t2\n3\t4\n", {"delimiter": "\t"}),
    "bar.csv": (b"a|b\n1.5|2\n3|4\n", {"delimiter": "|"}),
    "space.csv": (b"a b\n1.5 2\n3 4\n", {"delimiter": " "}),
    "comma.tsv": (b"a,b\n1.5,2\n3,4\n", {"delimiter": ","}),
    "europe.csv": (b"a;b\n1,5;2\n3;4,0\n", {"delimiter": ";", "decimal": ","}),
    "exponents.csv": (b"a;b\n15E-1;+2,\n,3e1;4\n", {"delimiter": ";", "decimal": ","}),
    "quoted.csv": (b'"a";"b"\n"1,5";2\n"3";"4"\n', {"delimiter": ";", "decimal": ","}),
    "quoted.tsv": (b'\xef\xbb\xbf"a"\t"b"\r\n"1.5"\t2\r\n3\t4', {}),
    "latin.csv": ("a,b,größe\n1.5,2,ä\n3,4,ö\n".encode("latin-1"), {"encoding": "latin-1", "columns": ["a", "b"]}),
    "wide.csv": ("a,b\n1.5,2\n3,4\n".encode("utf-16"), {"encoding": "utf-16"}),
    "little.csv": ("\ufeffa,b\n1.5,2\n3,4\n".encode("utf-16-le"), {"encoding": "utf-16-le"}),
    "packed.csv.gz": (gzip.compress(b"a,b\n1.5,2\n3,4\n"), {}),
    "packed.TSV.GZ": (gzip.compress(b"a\tb\n1.5\t2\n3\t4\n"), {}),
    "two.csv.gz": (gzip.compress(b"a,b\n1.5,") + gzip.compress(b"2\n3,4\n"), {}),
}


@pytest.mark.parametrize("name", HABITS)
def test_habits_of_those_who_write_csv(saved, name):
    """`files.rows` reads the same table from CSV files with other delimiters, decimal signs, encodings or compression.

    `name` is the name of a file in HABITS, which has its bytes and the arguments of `files.rows`.
    """
    content, options = HABITS[name]
    path = saved(content, name)
    it = files.rows(path, **options)
    assert it.names == ("a", "b")
    assert np.array_equal(whole_table(it), [[1.5, 2], [3, 4]])
    assert sum(it.counts()) == 2
    assert np.array_equal(whole_table(files.rows(path, **(options | {"columns": ["b"]}))), [[2], [4]])


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=2))
def test_a_decimal_comma_changes_no_number(tmp_path_factory, row):
    path = tmp_path_factory.getbasetemp() / "decimal.csv"
    path.write_text(";".join(map(repr, row)).replace(".", ",") + "\n")
    assert np.array_equal(whole_table(files.rows(path, header="no", delimiter=";", decimal=",")), [row])


def test_a_vector_may_have_tabs(saved):
    names, values = files.vector(saved("a, b\t1.5\nc\t2\n", "v.tsv"))
    assert (names, values.tolist()) == (["a, b", "c"], [1.5, 2.0])


def test_header_may_be_numbers_if_declared(tmp_path):
    (tmp_path / "t.csv").write_text("2019,2020\n1,2\n")
    with pytest.raises(FileError, match=r"line 1 has numbers that may be names, .*--header yes or no"):
        files.rows(tmp_path / "t.csv")
    assert sum(files.rows(tmp_path / "t.csv", header="no").counts()) == 2
    it = files.rows(tmp_path / "t.csv", header="yes")
    assert (it.names, sum(it.counts()), len(whole_table(it))) == (("2019", "2020"), 1, 1)


@pytest.mark.parametrize(("name", "delimiter"), [("a", ","), ('"income, net; EUR"', ","), ('"income, net; EUR"', ";")])
def test_the_name_of_one_column_may_have_any_character(saved, name, delimiter):
    it = files.rows(saved(f"{name}\n1\n2\n"), delimiter=delimiter)
    assert it.names == (name.strip('"'),)
    assert np.array_equal(whole_table(it), [[1], [2]])


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=2))
def test_quoted_numbers_are_the_same_numbers(tmp_path_factory, row):
    """A number in a CSV file is the same double whether it is in quotes or not, although different code parses it.

    `row` has two arbitrary finite numbers.
    """
    path = tmp_path_factory.getbasetemp() / "quoted.csv"
    for quote in ("", '"'):
        path.write_text(",".join(f"{quote}{number!r}{quote}" for number in row) + "\n")
        assert np.array_equal(whole_table(files.rows(path, header="no")), [row])


# --- Missing values ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cell",
    [
        "",
        " ",
        "NA",
        "na",
        "N/A",
        "#N/A",
        "<NA>",
        "NaN",
        "nan",
        "-nan",
        "+NaN",
        "None",
        "NULL",
        "null",
        ".",
        '""',
        '" NA "',
    ],
)
@pytest.mark.parametrize("options", [{}, {"delimiter": ";", "decimal": ","}])
def test_missing_values_are_nan_or_an_error(tmp_path, cell, options):
    """A missing value of a CSV file becomes NaN with ``missing="nan"``, and otherwise raises an error.

    The error names row and column. `cell` is the text that stands for the missing value, and `options` has the
    delimiter and the decimal sign of the file, if they are not the usual ones.
    """
    mark = options.get("delimiter", ",")
    (tmp_path / "t.csv").write_text(f"a{mark}b\n1{mark}2\n3{mark}{cell}\n")
    X = whole_table(files.rows(tmp_path / "t.csv", missing="nan", **options))
    assert np.array_equal(X, [[1, 2], [3, np.nan]], equal_nan=True)
    with pytest.raises(FileError, match=r"row 2 \(line 3\), column 'b': .*missing"):
        list(files.rows(tmp_path / "t.csv", **options))


@pytest.mark.parametrize("row", [0, 1, 2])
@pytest.mark.parametrize("delimiter", [",", ";", "\t", " ", "\v"])
def test_a_row_without_values_is_a_row(saved, delimiter, row):
    """A row whose cells are all empty counts as a row, even if the delimiter looks like a blank, as a tab does.

    The empty row is the one with the index `row` of three rows, and `delimiter` separates the cells of the file.
    """
    X = np.array([[1.5, 2, 2], [3, 4, 5], [6, 7, 8]])
    X[row] = np.nan
    lines = [delimiter.join("" if np.isnan(x) else str(x) for x in values) for values in X]
    path = saved("\n".join(lines) + "\n\n")
    it = files.rows(path, header="no", delimiter=delimiter, missing="nan")
    assert np.array_equal(whole_table(it), X, equal_nan=True)
    assert sum(it.counts()) == 3
    with pytest.raises(FileError, match=rf"row {row + 1} \(line {row + 1}\), column '1': missing"):
        list(files.rows(path, header="no", delimiter=delimiter))


@pytest.mark.parametrize("kind", ["npy", "parquet"])
def test_missing_numbers_are_nan_if_they_may_be(tmp_path, kind):
    X = table(9)
    X[3, 1] = X[8, 0] = np.nan
    path = write(tmp_path / f"t.{kind}", X)
    assert np.array_equal(whole_table(files.rows(path, missing="nan")), X, equal_nan=True)
    X[5, 2] = np.inf
    with pytest.raises(FileError, match=r"row 6, column '(3|x,y)': infinite"):
        list(files.rows(write(path, X), missing="nan"))


def test_null_is_nan_if_it_may_be(saved):
    columns = {"a": [1, None, 3], "b": [True, False, None], "c": [None, Decimal("0.5"), Decimal("1.5")]}
    columns["d"] = pa.nulls(3)  # such a column has no other type
    path = saved(columns, "t.parquet")
    expected = [[1, 1, np.nan, np.nan], [np.nan, 0, 0.5, np.nan], [3, np.nan, 1.5, np.nan]]
    assert np.array_equal(whole_table(files.rows(path, missing="nan")), expected, equal_nan=True)
    with pytest.raises(FileError, match="row 1, column 'd': NaN or missing"):
        list(files.rows(path, ["d"]))


def test_a_name_is_not_missing(saved):
    """`files.rows` takes Na (a chemical symbol) in line 1 for a column's name, not for a missing value such as NA."""
    assert files.rows(saved("Na,K\n1,2\n"), missing="nan").names == ("Na", "K")


# --- Cells of several lines -------------------------------------------------------------------------------------------

ODD_TEXT = st.text(st.sampled_from('ab ,;"\n\u2028'), min_size=1, max_size=8).filter(lambda text: text.strip() == text)


@given(st.lists(st.tuples(ODD_TEXT, st.integers(-9, 9)), min_size=1, max_size=9), st.sampled_from([1, 2, 99]))
def test_what_csv_writes_is_read_again(tmp_path_factory, rows, step):
    """`files.rows` reads what Python's module csv writes, even if cells contain line breaks, quotes and delimiters.

    The file has the pairs (text, number) in `rows`, and is read in blocks of `step` rows.
    """
    path = tmp_path_factory.mktemp("odd") / "t.csv"
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([("a note\nof two lines", "x"), *rows])
    with mock.patch.object(csv_files, "rows_in_a_block", return_value=step):
        it = files.rows(path, ["x"], header="yes", labels=["a note\nof two lines"])
        X, (notes,) = labels_of(it, ["a note\nof two lines"])
    assert X.ravel().tolist() == [number for _, number in rows]
    assert notes.tolist() == [note for note, _ in rows]
    assert sum(it.counts()) == len(rows)


@pytest.mark.parametrize("step", [1, 2, 99])
def test_lines_are_counted_in_cells_of_several_lines(tmp_path, step, monkeypatch):
    """With blocks of `step` rows, an error of `files.rows` names the right line, even after cells with line breaks."""
    monkeypatch.setattr(csv_files, "rows_in_a_block", lambda columns: step)
    (tmp_path / "t.csv").write_text('"a\nb",x\n"1\n\n2",3\nsecret,4\n"5""",6\n"\'""\'",7\n"8\n",secret\n')
    with pytest.raises(FileError, match=r"row 5 \(line 9\), column 'x': not a number$"):
        list(files.rows(tmp_path / "t.csv", ["x"], header="yes"))
    (tmp_path / "t.csv").write_text('a\n1\n"2\n3"\n')  # one cell, which is no number
    with pytest.raises(FileError, match=r"row 2 \(line 3\), column 'a': not a number$"):
        list(files.rows(tmp_path / "t.csv"))


@pytest.mark.parametrize("cell", ['5" pipe', "5'10\"", 'the "north"', ' "north"', '5" pipe,"two\nlines"'])
@pytest.mark.parametrize("step", [1, 99])
def test_a_quote_inside_a_cell_without_quotes_is_an_error(tmp_path, cell, step, monkeypatch):
    """A `cell` that has a quote in it, but is not in quotes, is an error in any column, also if it has two such quotes.

    With another cell such a quote could look like a quoted cell, which swallows the rows between them. The file is read
    in blocks of `step` rows. In quotes, and with its own quotes doubled, the same text is read.
    """
    monkeypatch.setattr(csv_files, "rows_in_a_block", lambda columns: step)
    for text in (cell, '"' + cell.replace('"', '""') + '"'):
        (tmp_path / "t.csv").write_text(f"a,note\n1,fine\n2,{text}\n3,fine\n")
        it = files.rows(tmp_path / "t.csv", ["a"], header="yes", labels=["note"])
        if text != cell:
            assert labels_of(it, ["note"])[1][0].tolist() == ["fine", cell.strip(), "fine"]
            assert sum(it.counts()) == 3
            continue
        for read in (it.blocks, it.counts):
            with pytest.raises(FileError, match="line 3: a quote inside a cell that is not in quotes"):
                list(read())


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ('1,2,"tall\n3,4,fine\n5,6,5\'10"\n', None),
        ('1,2,"tall\n3,,fine\n5,6,5\'10"\n', None),
        ('1,2,"tall\n3,4,5\'10"\n', None),
        (',,"tall\n3,4,fine\n5,6,5\'10"\n', None),
        ('NA,NA,"tall\n5,,5\'10"\n', None),
        ('1,2,"tall, thin\n3,4,5\'10"\n', None),
        ('"tall,1,2\n5\'10",3,4\n', None),
        ('1,2,"4, rue X\n75001 Paris"\n', 1),
        ('1,2,"a, b\nc, d, e"\n', 1),
        ('1,2,"2 kg,\n4,5"\n', 1),
        ('1,2,"a\nb, c, d\n, ,\n3, d, e\n3, 4"\n', 1),
        ('"a\nb",1,2\n', 1),
        ('"2 kg,\n4,5\na, b",1,2\n', 1),
    ],
)
def test_quotes_of_two_rows_do_not_make_one_row(saved, text, rows):
    """If a quote at the start of a cell meets one in a later row, `files.rows` raises an error, and swallows no row.

    A row with line breaks in a cell is read, unless a line in its quotes has as many cells as the row, and numbers in
    the same places or in the columns that are read. `text` is the file without its header, and `rows` is the number of
    its rows or None for an error. The cell is in the first column if the text begins with a quote, else in the last.
    """
    header = "note,a,b" if text.startswith('"') else "a,b,note"
    it = files.rows(saved(f"{header}\n{text}"), ["a", "b"], header="yes")
    if rows is not None:
        assert (sum(it.counts()), len(whole_table(it))) == (rows, rows)
        return
    for read in (it.blocks, it.counts):
        with pytest.raises(FileError, match="line 2: a cell in quotes has lines that look like rows"):
            list(read())


def test_an_open_quote_does_not_fetch_the_whole_file(tmp_path):
    """If a quote in a CSV file is never closed, `files.rows` raises an error that names the line of the quote.

    It does not take the rest of the file for one large cell: no more text is joined than Python's module csv allows in
    a cell.
    """
    (tmp_path / "t.csv").write_text('a,b\n1,2\n"3,4\n' + "5,6\n" * 100_000)
    with pytest.raises(FileError, match="line 3: a quote is not closed"):
        list(files.rows(tmp_path / "t.csv"))
    records = csv_files._Text(tmp_path / "t.csv", Given()).records()
    assert max(map(len, records)) < csv.field_size_limit() + 10


# --- Thousands --------------------------------------------------------------------------------------------------------

GROUPED = {
    "commas": ('a,b\n"1,234.5","-12,345,678"\n999,"+1,000"\n', {"thousands": ","}),
    "points": ("a;b\n1.234,5;-12.345.678\n999;+1.000\n", {"delimiter": ";", "decimal": ",", "thousands": "."}),
    "spaces": ("a,b\n1 234.5,-12 345 678\n999,+1 000\n", {"thousands": " "}),
    "narrow spaces": ("a,b\n1\u202f234.5,-12\u202f345\u202f678\n999,+1\u202f000\n", {"thousands": "\u202f"}),
    "other spaces": ("a,b\n1\u202f234.5,-12\u00a0345\u00a0678\n999,+1 000\n", {"thousands": " "}),
    "printed apostrophes": ("a,b\n1\u2019234.5,-12\u2019345'678\n999,+1\u2019000\n", {"thousands": "'"}),
    "apostrophes": ("a,b\n1'234.5,-12'345'678\n999,+1'000\n", {"thousands": "'"}),
}


@pytest.mark.parametrize("name", GROUPED)
def test_thousands_may_be_separated(saved, name):
    text, options = GROUPED[name]
    X = whole_table(files.rows(saved(text), **options))
    assert X.tolist() == [[1234.5, -12345678], [999, 1000]]


@pytest.mark.parametrize(
    "cell", ["1,23", "12,34,567", ",123", "1,234,", "1,,234", "1.5,000", "1,234e1,000", "1234,567"]
)
def test_other_groups_than_thousands_are_no_numbers(saved, cell):
    with pytest.raises(FileError, match=r"row 2 \(line 3\), column 'b': not a number$"):
        list(files.rows(saved(f"a;b\n1;2\n3;{cell}\n"), delimiter=";", thousands=","))


# --- Lines above the table --------------------------------------------------------------------------------------------

TITLES = 'Survey of 2024; "regions\n\na,b\n1,2\n'


def test_lines_above_the_table_are_left_out(saved):
    table = files.rows(saved(TITLES), skip_lines=2)
    assert (table.names, whole_table(table).tolist(), sum(table.counts())) == (("a", "b"), [[1, 2]], 1)
    assert whole_table(files.rows(saved("\ufeffSurvey\n1,1\n1,2\n"), skip_lines=1)).tolist() == [[1, 1], [1, 2]]


@pytest.mark.parametrize(
    ("text", "skipped", "message"),
    [
        ("Survey\n\na,b\n1,2\n", 0, r"row 1 \(line 2\) is blank \(--skip-lines leaves out lines above the table\)$"),
        ("Survey\na,b\n1,2\n", 0, r"row 1 \(line 2\) has 2 cells, line 1 has 1 \(--skip-lines leaves out"),
        (TITLES, 1, r"line 2 is blank \(--skip-lines leaves out lines above the table\)$"),
        ("Survey\na,b\n1,2\n1,x\n", 1, r"row 2 \(line 4\), column 'b': not a number$"),
        ("Survey\na,b\n1,2\n1\n", 1, r"row 2 \(line 4\) has 1 cells, line 2 has 2$"),
        ("Survey\na,2\n1,2\n", 1, "line 2 has numbers and text"),
        ("Survey\na;b\n1;2\n", 1, "line 2 has no comma, but ';'"),
        ("Survey\na,b\n", 2, "is empty$"),
    ],
)
def test_errors_count_the_lines_above_the_table(saved, text, skipped, message):
    with pytest.raises(FileError, match=message):
        list(files.rows(saved(text), skip_lines=skipped))


# --- Standard input ---------------------------------------------------------------------------------------------------


@pytest.fixture
def standard_input(monkeypatch):
    """Return a function that takes bytes, and makes them the standard input of this process until the test ends."""
    return lambda content: monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


@pytest.mark.slow
def test_standard_input_is_a_csv_file_that_can_be_read_again(tmp_path, standard_input, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    X = table(200_001)
    standard_input(csv_text(X, NAMES).encode("utf-16"))
    it = files.rows("-", header="yes", encoding="utf-16")
    assert not list(tmp_path.iterdir())  # the temporary file has no name
    assert all(np.array_equal(*pair) for pair in zip(it.blocks(), it.blocks(), strict=True))  # at the same time
    assert np.array_equal(whole_table(it), X)
    assert sum(it.counts()) == len(X)
    standard_input(b"a,b\n1,2\n")
    with pytest.raises(FileError, match=r"^standard input: has no column 'z'"):
        files.rows("-", ["z"])


def test_an_error_names_standard_input(standard_input):
    standard_input(b"a,b\n1,2\n3,secret\n")
    with pytest.raises(FileError, match=r"^standard input: row 2 \(line 3\), column 'b': not a number$"):
        list(files.rows("-"))
    standard_input(b"")
    with pytest.raises(FileError, match=r"^standard input: is empty$"):
        files.rows("-")


# --- Labels -----------------------------------------------------------------------------------------------------------

PEOPLE = 'id,age,region,pay\n"007", 31 ,"North, East ",2400\n x_1,58,NA,1900\n'


def labels_of(it, names):
    """Return the values of the table `it` as one array, and its label columns `names` as a list of arrays.

    `it` comes from `files.rows`. A label column has, for example, the ids of persons, and is no part of the values.
    """
    blocks, labels = zip(*it.labelled(names), strict=True)
    return np.concatenate(blocks), [np.concatenate(column) for column in zip(*labels, strict=True)]


@pytest.mark.parametrize("options", [{"columns": ["age", "pay"]}, {"labels": ["id", "region"]}])
def test_labels_of_a_csv_file_are_texts_as_written(saved, options):
    it = files.rows(saved(PEOPLE), **options)
    assert it.names == ("age", "pay")
    X, labels = labels_of(it, ["region", "id", "age"])
    assert np.array_equal(X, [[31, 2400], [58, 1900]])
    assert [column.tolist() for column in labels] == [["North, East", "NA"], ["007", "x_1"], ["31", "58"]]
    assert np.array_equal(whole_table(it), X)
    assert labels_of(it, [])[1] == []


def test_labels_are_known_as_names_of_line_1(tmp_path):
    """`files.rows` takes line 1 of a CSV file for a header if each text in it is a name in `known` or `labels`.

    `known` and `labels` are arguments of `files.rows`: column names that are public already, and the names of columns
    with labels, such as ids. If line 1 has another text, a FileError is raised, because the line may be a person's
    data.
    """
    (tmp_path / "t.csv").write_text(PEOPLE)
    it = files.rows(tmp_path / "t.csv", known=["age", "pay"], labels=["id", "region"])
    assert it.names == ("age", "pay")
    with pytest.raises(FileError, match="line 1 may have names or somebody's values"):
        files.rows(tmp_path / "t.csv", known=["age", "pay"])


def test_labels_of_a_parquet_file_are_numbers_texts_or_dates(saved):
    columns = {
        "id": [3, 1, 2],
        "region": pa.array(["N", "S", "N"]).dictionary_encode(),
        "street": pa.array(["a", "b", ""], pa.large_string()),
        "flag": [True, False, True],
        "pay": [1.5, 2.5, 3.5],
        "day": [date(2024, 3, 1), date(1900, 1, 1), date(2024, 3, 1)],
        "time": pa.array([0, 1, -1], pa.timestamp("ns")),
    }
    it = files.rows(saved(columns, "t.parquet"), ["pay"])
    X, labels = labels_of(it, list(columns))
    assert np.array_equal(X, [[1.5], [2.5], [3.5]])
    expected = [[3, 1, 2], ["N", "S", "N"], ["a", "b", ""], [True, False, True], [1.5, 2.5, 3.5]]
    assert [column.tolist() for column in labels] == [*expected, columns["day"], [0, 1, -1]]
    assert [column.dtype.kind for column in labels] == ["i", "O", "O", "b", "f", "M", "M"]
    assert [dtype.kind for dtype in it.label_types(list(columns))] == ["i", "U", "U", "b", "f", "M", "M"]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_labels_alone_are_those_with_the_values_and_no_value_is_read(saved, kind):
    columns = {"x": [1.0, np.inf, 3.0], "id": ["a", "b", "c"], "day": ["1", "1", "2"]}
    content = columns if kind == "parquet" else "x,id,day\n1,a,1\ninf,b,1\n3,c,2\n"
    it = files.rows(saved(content, f"t.{kind}"), ["x"], labels=["id", "day"])
    with pytest.raises(FileError, match="row 2"):
        list(it.labelled(["id"]))
    for names in (["id"], ["day", "id"]):
        (found,) = it.labels(names)
        assert [column.tolist() for column in found] == [columns[name] for name in names]


def test_labels_of_all_files_of_a_folder_have_one_type(tmp_path):
    for name, ids in (("a", [1, 2]), ("b", ["1", "2"])):
        pq.write_table(pa.table({"x": [1.0, 2.0], "id": ids}), tmp_path / f"{name}.parquet")
    with pytest.raises(FileError, match=r"b\.parquet: column 'id' holds labels of another type than in .*a\.parquet"):
        files.rows(tmp_path, ["x"], labels=["id"])


@pytest.mark.parametrize("kind", ["parquet", *slow("csv")])
def test_labels_stay_with_their_rows_in_many_blocks(tmp_path, kind):
    X = table(200_001)
    X[:, 0] = np.arange(len(X))
    it = files.rows(write(tmp_path / f"t.{kind}", X), ["x,y"])
    found, (ages,) = labels_of(it, ["age"])
    assert len(list(it.labelled(["age"]))) > 1
    assert np.array_equal(found, X[:, 2:])
    assert np.array_equal(ages.astype(float), X[:, 0])


def bad_labels(path, labels=("id",), at_once=False):
    """Return a function that reads the label columns `labels`, such as ids of persons, from the file `path`, and fails.

    It fails because tests give it a wrong name or file. With `at_once`, the function reads no row, so that only errors
    in the names or types of the columns appear.
    """
    it = files.rows(path, ["1"] if path.suffix == ".npy" else ["a"])
    return lambda: it.labelled(labels) if at_once else list(it.labelled(labels))


ZONED = pa.timestamp("s", "UTC")
BAD_LABELS = {
    "empty cell": (("a,id\n1,x\n2,\n",), r"t\.csv: row 2 \(line 3\), column 'id': missing"),
    "spaces": (('a,id\n1,x\n2,"  "\n',), r"t\.csv: row 2 \(line 3\), column 'id': missing"),
    "no such column": (("a,ids\n1,x\n", "t.csv", ("id",), True), "t.csv: has no column 'id'"),
    "twice": (("a,id\n1,x\n", "t.csv", ("id", "id"), True), "the column 'id' is named twice"),
    "two of that name": (("a,id,id\n1,x,y\n", "t.csv", ("id",), True), "has more than one column 'id'"),
    "null": (({"a": [1, 2], "id": [None, "x"]}, "t.parquet"), "t.parquet: row 1, column 'id': missing"),
    "nothing else": (({"a": [1, 2], "id": pa.nulls(2)}, "t.parquet", ("id",), True), "dates without .*, holds null"),
    "null number": (({"a": [1, 2], "id": [7, None]}, "t.parquet"), "row 2, column 'id': missing"),
    "NaN": (({"a": [1, 2], "id": [7.5, np.nan]}, "t.parquet"), "row 2, column 'id': missing"),
    "times": (({"a": [1], "id": [time(12)]}, "t.parquet", ("id",), True), "'id' must hold numbers, text, or dates"),
    "zones": (({"a": [1], "id": pa.array([0], ZONED)}, "t.parquet", ("id",), True), "without time zone"),
    "lists": (({"a": [1], "id": [["x"]]}, "t.parquet", ("id",), True), "'id' must hold numbers, text, or dates"),
    "no column in Parquet": (({"a": [1]}, "t.parquet", ("id",), True), "t.parquet: has no column 'id'; it has 'a'"),
    "NumPy": ((np.ones((2, 2)), "t.npy", ("2",), True), "t.npy: a NumPy file has numbers only"),
    "no such column in NumPy": ((np.ones((2, 2)), "t.npy", ("id",), True), "t.npy: has no column 'id'"),
}


@pytest.mark.parametrize("name", BAD_LABELS)
def test_bad_labels_are_explained(saved, name):
    (content, *rest), said = BAD_LABELS[name]
    use = bad_labels(saved(content, *rest[:1]), *rest[1:])
    with pytest.raises(FileError, match=said):
        use()


def test_a_missing_label_of_a_later_block_is_named_by_its_row(saved, monkeypatch):
    monkeypatch.setattr(source, "_BLOCK", 4)  # two rows of one value and one label
    path = saved({"a": [1.0] * 7, "id": [*"uvwxy", None, "z"]}, "t.parquet")
    with pytest.raises(FileError, match=r"t\.parquet: row 6, column 'id': missing"):
        bad_labels(path)()


@pytest.mark.parametrize("encoded", [False, True])
def test_a_label_that_is_not_utf8_is_not_shown(saved, encoded):
    data = "SECRET ø".encode("latin-1")
    texts = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(np.int32([0, len(data)])), pa.py_buffer(data)])
    path = saved({"a": [1.0], "id": texts.dictionary_encode() if encoded else texts}, "t.parquet")
    with pytest.raises(FileError, match=r"t\.parquet: cannot be read as Parquet \(.* not UTF-8\)$") as caught:
        bad_labels(path)()
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize("argument", ["columns", "known", "labels"])
def test_one_name_is_no_list_of_names(saved, argument):
    with pytest.raises(TypeError, match=f"{argument} must be a list of names, got 'ab'"):
        files.rows(saved("a,b\n1,2\n"), **{argument: "ab"})


def test_one_name_is_no_list_of_labels(saved):
    for use in (lambda path: files.rows(path, labels="id"), lambda path: files.rows(path, ["a"]).labelled("id")):
        with pytest.raises(TypeError, match="labels must be a list of names, got 'id'"):
            use(saved("a,id\n1,x\n"))


CHANGED = {"other names": ["a", "c"], "another order": ["b", "a"], "fewer": ["a"], "more": ["a", "b", "c"]}


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "parquet"])
@pytest.mark.parametrize("change", CHANGED)
def test_a_file_with_other_columns_than_when_it_was_opened_is_refused(tmp_path, kind, change):
    """No value is read from a file that was replaced by one with other columns after its columns had been found."""
    path = tmp_path / f"t.{kind}"

    def replace(names):
        if kind == "parquet":
            pq.write_table(pa.table({name: [1.0, 2.0] for name in names}), path)
        else:
            with gzip.open(path, "wt") if kind == "csv.gz" else path.open("w") as file:
                csv.writer(file).writerows([names, [1] * len(names), [2] * len(names)])

    replace(["a", "b"])
    it = files.rows(path, ["a", "b"])
    replace(CHANGED[change])
    for read in (it.blocks, lambda: it.labelled(["b"]), lambda: it.labels(["a"])):
        with pytest.raises(FileError, match=rf"t\.{re.escape(kind)}: has other columns than a moment ago$"):
            list(read())
    replace(["a", "b"])
    assert np.array_equal(whole_table(it), [[1, 1], [2, 2]])


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_a_csv_file_that_is_empty_since_it_was_opened_is_refused(saved, name):
    text = b"a,b\n1,2\n"
    it = files.rows(saved(gzip.compress(text) if name.endswith("gz") else text, name), ["a", "b"])
    saved("", name)
    with pytest.raises(FileError, match=rf"{re.escape(name)}: has other columns than a moment ago$"):
        list(it)


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_numpy_file_that_is_shorter_than_when_it_was_opened_is_refused(saved, order):
    """No row is taken from behind the end of a file, where there would be zeros, or an end of the process by SIGBUS."""
    path = saved(np.ones((7, 2), order=order), "t.npy")
    it, content = files.rows(path), path.read_bytes()
    for size in (len(content) - 1, 200, 0):
        path.write_bytes(content[:size])
        with pytest.raises(FileError, match=r"t\.npy: is shorter than a moment ago$"):
            list(it)
    path.write_bytes(content + b"more")
    assert np.array_equal(whole_table(it), np.ones((7, 2)))


def test_a_parquet_file_with_other_types_than_when_it_was_opened_is_refused(saved):
    it = files.rows(saved({"a": [1, 2]}, "t.parquet"))
    saved({"a": ["1", "2"]}, "t.parquet")
    with pytest.raises(FileError, match=r"t\.parquet: has other columns than a moment ago$"):
        list(it)


@pytest.mark.parametrize("kind", ["csv", "npy", "parquet"])
def test_a_name_may_be_no_text_in_any_encoding(tmp_path, kind):
    path = Path(os.fsdecode(os.fsencode(tmp_path / "t") + b"\xff")).with_suffix(f".{kind}")
    shutil.copy(write(tmp_path / f"t.{kind}", table()), path)
    assert np.array_equal(whole_table(files.rows(path, header="auto" if kind == "npy" else "yes")), table())


# --- Faults -----------------------------------------------------------------------------------------------------------

CELLS = {"NaN": "nan", "infinite": "-inf", "not a number": "secret7", "missing": ""}


@pytest.mark.parametrize("wrong", CELLS)
@pytest.mark.parametrize("row", [1, 5, *slow(131_090)])
def test_cell_is_named_and_its_value_is_not(tmp_path, wrong, row):
    """The error for a wrong cell of a CSV file names the cell's row and column, but never shows its content.

    `wrong` is the kind of mistake, such as an empty cell. `row` is the number of the row. Row 131 090 is in the second
    block of rows. This block is short, so it does not take long to search it line by line.
    """
    blocks = 2 if row == 131_090 else 1
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


def test_a_name_that_the_system_does_not_take_is_named(tmp_path):
    (tmp_path / "t.csv").write_text("a\n1\n")
    for name, why in {"long" * 100 + ".csv": "File name too long", "t.csv/t.csv": "Not a directory"}.items():
        for read in (files.rows, files.vector):
            with pytest.raises(FileError, match=f"{name}: {why}$"):
                read(tmp_path / name)


def test_null_is_missing(saved):
    with pytest.raises(FileError, match="row 2, column 'a': NaN or missing"):
        list(files.rows(saved({"a": pa.array([1, None, 3])}, "t.parquet")))


BAD_CSV = {
    "a cell too few": ("a,b\n1,2\n3\n", r"row 2 \(line 3\) has 1 cells, line 1 has 2"),
    "a cell too many": ("a,b\n1,2\n3,4,5\n", r"row 2 \(line 3\) has 3 cells"),
    "a blank line": ("a,b\n1,2\n\n3,4\n", r"row 2 \(line 3\) is blank"),
    "a blank line in one column": ("a\n1\n\n3\n", r"row 2 \(line 3\) is blank"),
    "a blank line at the end of one column": ("a\n1\n3\n\n", r"row 3 \(line 4\) is blank"),
    "a blank first line": ("\na,b\n1,2\n", "line 1 is blank"),
    "a quote that stays open": ('a,b\n1,2\n"3,4\n', "line 3: a quote is not closed"),
    "a twin": ("a,a\n1,2\n", "the header names two columns alike"),
    "half a header": ("a,2\n1,2\n", "line 1 has numbers and text.*--header"),
    "semicolons": ("a;b\n1;2\n", "line 1 has no comma, but ';'; --delimiter says which"),
    "semicolons and quotes": ('"a";"b"\n1;2\n', "line 1 has no comma, but ';'; --delimiter says which"),
    "another quote": ('a,b\n1,"2"3\n', "line 2: ',' expected after"),
    "a long cell": ("a,b\n1,2\n1," + "x" * 200_000, "line 3: a cell has more than 131072 characters"),
    "underscores": ("a,b\n1_0,2\n", r"row 1 \(line 2\), column 'a': not a number"),
    "nothing": ("", "is empty"),
}


@pytest.mark.parametrize("name", BAD_CSV)
def test_bad_csv_is_explained(saved, name):
    text, said = BAD_CSV[name]
    with pytest.raises(FileError, match=rf"t\.csv: {said}"):
        list(files.rows(saved(text)))


@pytest.mark.parametrize(("text", "rows"), [("a\n1\n  \n3\n", 3), ("a\n1\n  \n", 2), ("a\n\n", 1)])
def test_a_blank_line_is_no_missing_value(saved, text, rows):
    """In a file with one column, a blank line counts as a row, but reading it is an error, even with ``missing="nan"``.

    The blank line may be the row of a person whose cell is empty, so it is neither skipped nor taken for a missing
    value. `text` is the content of the file, and `rows` the number of its rows.
    """
    it = files.rows(saved(text), missing="nan")
    assert sum(it.counts()) == rows
    with pytest.raises(FileError, match=r"row \d \(line \d\) is blank"):
        list(it)


def test_a_blank_line_alone_is_not_an_empty_file(saved):
    it = files.rows(saved("\n"), header="no", width=1)
    assert sum(it.counts()) == 1
    with pytest.raises(FileError, match=r"row 1 \(line 1\) is blank"):
        list(it)
    assert sum(files.rows(saved("\n"), header="no", width=2).counts()) == 0


@pytest.mark.parametrize("options", [{"width": 3}, {"columns": ["3", "1"]}, {"columns": ["1"], "labels": ["2"]}])
def test_an_empty_file_without_a_header_is_a_table_of_the_columns_asked_for(saved, options):
    """Such a file may be empty if the number of its columns is an argument, or if the columns are chosen."""
    it = files.rows(saved(""), header="no", **options)
    assert it.names == tuple(options.get("columns", ("1", "2", "3")))
    assert (list(it), sum(it.counts())) == ([], 0)
    assert list(it.labelled(options.get("labels", ()))) == []
    with pytest.raises(FileError, match=r"is empty$"):
        files.rows(saved(""), header="yes", **options)


WRONG = {  # arguments of files.rows that can never be right
    "two characters": ({"delimiter": ";;"}, "delimiter must be one character"),
    "none": ({"delimiter": ""}, "delimiter must be one character"),
    "a letter": ({"delimiter": "e"}, "delimiter must be one character"),
    "a digit": ({"delimiter": "1"}, "delimiter must be one character"),
    "a quote": ({"delimiter": '"'}, "delimiter must be one character"),
    "a sign": ({"delimiter": "-"}, "delimiter must be one character"),
    "a line break": ({"delimiter": "\n"}, "delimiter must be one character"),
    "both": ({"decimal": ","}, "delimiter must not be the decimal sign, got ',' for both"),
    "another sign": ({"decimal": ";"}, "decimal must be"),
    "fewer lines than none": ({"skip_lines": -1}, "skip_lines must be a whole number >= 0, got -1"),
    "half a line": ({"skip_lines": 0.5}, "skip_lines must be a whole number >= 0, got 0.5"),
    "thousands of several characters": ({"thousands": ", "}, "thousands must be one character"),
    "thousands of a digit": ({"thousands": "0"}, "thousands must be one character"),
    "thousands of a sign": ({"thousands": "-"}, "thousands must be one character"),
    "thousands and decimals": ({"thousands": "."}, "thousands must not be the decimal sign, got '.' for both"),
    "no encoding": ({"encoding": "utf-9"}, "encoding must be the name of a text encoding, got 'utf-9'"),
    "no text": ({"encoding": "base64"}, "encoding must be the name of a text encoding"),
    "no policy": ({"missing": "center"}, 'missing must be "error" or "nan", got .center.'),
    "another word": ({"header": "Yes"}, 'header must be "auto", "yes" or "no", got .Yes.'),
    "a truth value": ({"header": True}, 'header must be "auto", "yes" or "no", got True'),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_habits_are_named(saved, name):
    arguments, said = WRONG[name]
    with pytest.raises(ValueError, match=said):
        files.rows(saved("a,b\n1,2\n"), **arguments)


def test_other_text_than_utf8_is_refused(saved):
    with pytest.raises(FileError, match="is not UTF-8 text"):
        files.rows(saved("größe,b\n1,2\n".encode("latin-1")))


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
def test_other_arrays_are_refused(saved, X, said):
    with pytest.raises(FileError, match=said):
        files.rows(saved(X, "t.npy"))


def test_another_file_with_the_name_of_a_numpy_file_is_not_shown(saved):
    with pytest.raises(FileError, match=r"t\.npy: is not a whole NumPy array of numbers$"):
        files.rows(saved("31,2400\n", "t.npy"))


@pytest.mark.parametrize("shape", ["(4, 7, }", f"({10**20}, 7)}}", "(True, 7)}", f"({2**62}, 3)}}"])
def test_a_numpy_file_with_a_damaged_header_is_refused(saved, monkeypatch, shape):
    """A NumPy file whose `shape`, a text in its header, is damaged or too large is refused without a warning.

    The filters of the module `warnings` are not touched, because all threads share them.
    """
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}\n".encode()
    path = saved(b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header + bytes(224), "t.npy")
    with monkeypatch.context() as patch:
        patch.delattr(warnings, "catch_warnings")
        with pytest.raises(FileError, match=r"t\.npy: is not a whole NumPy array of numbers$"):
            files.rows(path)


def test_long_doubles_beyond_the_doubles_are_infinite(saved):
    with pytest.raises(FileError, match=r"t\.npy: row 1, column '2': infinite$"):
        list(files.rows(saved(np.array([[1, np.longdouble("1e4000")]]), "t.npy")))


@pytest.mark.parametrize("kind", ["npy", "parquet"])
@pytest.mark.parametrize("part", [0, 0.1, 0.9])
def test_truncated_files_are_refused(tmp_path, kind, part):
    path = write(tmp_path / f"t.{kind}", table(1000))
    path.write_bytes(path.read_bytes()[: int(part * path.stat().st_size)])
    with pytest.raises(FileError, match=r"t\.(npy|parquet): "):
        list(files.rows(path))


@pytest.mark.parametrize("values", [["a", "b"], [date(2024, 3, 1), None], [[1.0], [2.0]]])
def test_other_parquet_columns_are_refused(saved, values):
    with pytest.raises(FileError, match="column 'a' must hold real numbers, holds"):
        list(files.rows(saved({"a": values}, "t.parquet")))


def test_pyarrow_is_asked_for_only_where_it_is_needed(tmp_path, monkeypatch):
    for kind in ("csv", "npy", "parquet"):
        write(tmp_path / f"t.{kind}", table())
    for module in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, module, None)
    assert len(whole_table(files.rows(tmp_path / "t.csv"))) == len(whole_table(files.rows(tmp_path / "t.npy"))) == 7
    with pytest.raises(FileError, match=re.escape(f"pip install '{_distribution.NAME}[files]'")):
        files.rows(tmp_path / "t.parquet")
    with pytest.raises(ImportError, match=re.escape(f"pip install '{_distribution.NAME}[dask]'")):
        files.from_parquet(tmp_path / "t.parquet")


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


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of memory is read from /proc")
@pytest.mark.parametrize(
    ("kind", "rows", "columns"),
    [
        ("csv", 60_000, 100),
        *slow(("csv.gz", 60_000, 100), ("npy", 125_000, 100), ("F.npy", 125_000, 100), ("pq", 10**6, 13)),
    ],
)
def test_memory_is_bounded(tmp_path, kind, rows, columns):
    """`files.rows` reads a table of 48 to 104 MB with less than 40 MB of additional memory.

    `kind` is the suffix of the file, where "F.npy" means an array in Fortran order. The Parquet file has all its rows
    in one row group, so a program that reads whole row groups would need more memory. `rows` and `columns` are the
    numbers of rows and columns of the table.
    """
    names = [f"c{i}" for i in range(columns)]
    X = np.lib.format.open_memmap(tmp_path / "big.npy", "w+", float, (rows, columns), fortran_order=kind == "F.npy")
    small, big = tmp_path / f"small.{kind}", tmp_path / f"big.{kind}"
    if kind == "csv.gz":
        for path, lines in ((small, 5), (big, rows)):
            path.write_bytes(gzip.compress((('"0.0",' * (columns - 1) + "0.0\n") * lines).encode(), 1))
    elif kind == "csv":
        big.write_text(("0.0," * (columns - 1) + "0.0\n") * rows)
    elif kind == "pq":
        column = np.random.default_rng(1).normal(size=rows)
        pq.write_table(pa.table(dict.fromkeys(names, column)), big, row_group_size=rows, use_dictionary=False)
    else:
        big = tmp_path / "big.npy"
    if kind != "csv.gz":
        write(small, X[:5], names) if kind != "pq" else pq.write_table(pa.table({n: [0.0] for n in names}), small)
    child = [sys.executable, "-c", CHILD, str(small), str(big)]
    read, more = subprocess.run(child, capture_output=True, text=True, check=True).stdout.split()
    assert int(read) == rows
    assert int(more) < 40e6


def test_long_texts_in_a_csv_file_make_blocks_short(tmp_path):
    """A block of rows is of at most about 10 MB of a CSV file, also if most of it is text in a column that is not used.

    Where the blocks end changes no number, label or message.
    """
    path, n = tmp_path / "t.csv", 1200
    lines = [f'{i},"{"x" * 5000}\n{"y" * 5000}",p{i}' for i in range(n)]
    path.write_text("\n".join(["a,text,id", *lines]))
    it = files.rows(path, ["a"])
    X, (ids,) = labels_of(it, ["id"])
    assert (X[:, 0].tolist(), ids.tolist()) == ([*range(n)], [f"p{i}" for i in range(n)])
    assert max(map(len, it)) * 10_000 < 10e6
    path.write_text("\n".join(["a,text,id", *lines, "b,,p"]))
    with pytest.raises(FileError, match=rf"t\.csv: row {n + 1} \(line {2 * n + 2}\), column 'a': not a number"):
        list(it)


# --- Vectors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["1\n2.5\n", "sigma\n1\n2.5\n", '"1"\n"2.5"\n\n', "\ufeff1\r\n2.5"])
def test_vector_without_names(saved, text):
    names, values = files.vector(saved(text))
    assert (names, values.tolist()) == (None, [1.0, 2.5])


@pytest.mark.parametrize("text", ["b,1\na,2.5\n", "column,sigma\nb,1\na,2.5\n", '"b", 1\n"a",2.5'])
def test_vector_with_names(saved, text):
    names, values = files.vector(saved(text))
    assert (names, values.tolist()) == (["b", "a"], [1.0, 2.5])


def test_vectors_in_other_files(saved):
    named = {"who": ["a", "b"], "s": [1, 2]}
    paths = saved(np.array([1, 2], np.int8), "v.npy"), saved({"s": [1.0, 2.0]}, "v.pq"), saved(named, "w.pq")
    found = [files.vector(path) for path in paths]
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
        *((f"a,{cell}\nb,1\n", "line 1: not a number") for cell in ("NA", ".", "n/a", "None")),
        ("null\n1\n", "line 1: not a number"),
        ("a,\nb,1\n", "line 1: no number"),
        ('""\n1\n', "line 1: no number"),
        ("1\n\n2\n", "line 2 has 0 cells"),
        ("\n1\n", "line 1 is blank"),
        ("a,1\nb\n", "line 2 has 1 cells, line 1 has 2"),
        ("1\nnan\n", "value 2 is NaN"),
        ("a,1\nb,inf\n", r"value 2 \('b'\) is infinite"),
        ("a,1\na,2\n", "'a' is named twice"),
    ],
)
def test_bad_vectors_are_explained(saved, text, said):
    with pytest.raises(FileError, match=rf"v\.csv: (the column )?({said})"):
        files.vector(saved(text, "v.csv"))


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


@pytest.mark.parametrize(
    "wrong", [TimeoutError("journal: another process has locked it"), PermissionError(13, "Permission denied", "other")]
)
def test_an_error_about_another_file_stays_as_it_is(tmp_path, wrong):
    """An error of the system in the block of `files.whole` is not blamed on the file that the block writes."""
    with pytest.raises(type(wrong)) as error, files.whole(tmp_path / "out"):
        raise wrong
    assert error.value is wrong
    assert not list(tmp_path.iterdir())


def test_file_is_replaced_only_if_asked(tmp_path):
    (tmp_path / "out").write_text("old")
    with pytest.raises(FileError, match="out: exists already"), files.whole(tmp_path / "out"):
        pass
    with files.whole(tmp_path / "out", overwrite=True) as file:
        file.write(b"new")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["new"]


@pytest.mark.parametrize("links", [True, False])
def test_file_that_appears_meanwhile_is_not_replaced(tmp_path, links, monkeypatch):
    """If another program creates a file while `files.whole` writes one of the same name, a FileError is raised.

    The other program's file is kept. `links` says whether the file system has hard links.
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
    """`files.whole`, which writes a file, never replaces a folder or a device, even with overwrite=True.

    `files.whole` raises a FileError instead. It also raises a FileError if the folder of the file does not exist.
    """
    for path in (tmp_path, Path("/dev/null")):
        with pytest.raises(FileError, match="is not a regular file"), files.whole(path, overwrite=True):
            pass
    with pytest.raises(FileError, match="No such file or directory"), files.whole(tmp_path / "no" / "out"):
        pass


@pytest.mark.parametrize("path", ["", "out.csv/", "./", "no/out.csv/"])
def test_a_path_that_ends_in_no_name_is_refused(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileError, match=f"^{path!r}: must end in the name of a file$"), files.whole(path):
        pass
    assert not list(tmp_path.iterdir())


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
