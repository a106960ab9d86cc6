"""Read tables of numbers from files in blocks of rows, and write results whole or not at all.

A table is a CSV file (with a header or without, also compressed by gzip), a NumPy file (.npy, two
axes), a Parquet file (which needs pyarrow), or a folder of CSV or of Parquet files. However large
the file is, only one block of rows is in memory at a time; for a Parquet file, a page of each column
is in memory, too. If something is wrong with a file, a `FileError` names the file. If something is
wrong with one cell, it also names the row and the column, but it never shows the value of the cell,
which may be private.

In a CSV file a cell in quotes may have line breaks and doubled quotes in it; a quote in any other
cell is an error. The path "-" is CSV from standard input, which is first copied to a temporary file
without a name, to be read twice. No other user can open it, and it vanishes when the process ends.

A CSV file does not say whether its first line has names or the first person's values. If the caller
does not say it either, text is taken for names and numbers for values. But numbers that could be
names, as years could, or numbers beside text are an error. Text could also be values of a person; the
argument `known` of `rows` says which texts are certainly names.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import numpy as np

from egm._files import csv, parquet
from egm._files.columns import checked, few_names, places_of, refuse_twins, require_lists
from egm._files.kinds import (
    KINDS,
    STANDARD_INPUT,
    delimiter_of,
    kind_of,
    parts_of,
    require_allowed,
    source_of,
    spooled_input,
    suffix_of,
)
from egm._files.placed import place
from egm._files.source import FileError, Given, Labels, Vector, reading, wrong
from egm._types import Array, PathLike

if TYPE_CHECKING:
    from dask.array import Array as DaskArray

__all__ = ["FileError", "Table", "from_parquet", "rows", "vector", "whole"]


@dataclass(frozen=True)
class Table:
    r"""Table in a file: the names of its columns, the number of its rows if known, and blocks of its rows.

    Iterating over a table reads the file from the start, and yields the blocks. The function `rows`
    makes such a table.

    Parameters
    ----------
    names : tuple of str
        Names of the columns. Columns without names are called "1", "2" and so on.
    count : int or None
        Number of rows, or None if it is unknown until the file is read, as with CSV.
    blocks : callable
        Function without arguments that reads the file from the start. It yields arrays of float64,
        shape (rows, columns), with finite values only, or raises a `FileError`. If the table was
        opened with `missing` "nan", a missing value is NaN.
    counts : callable
        Function without arguments that yields whole numbers whose sum is the number of rows. It
        reads the file if necessary.
    labelled : callable
        Function that takes a list of names of columns, and reads the file like `blocks`. It yields
        pairs: an array of `blocks`, and a list with one array of shape (rows,) for each of these
        columns. The entries of these arrays are the labels, such as the ids of persons: texts from
        a CSV file, and numbers, texts or dates from a Parquet file. The columns need not be in
        `names`. A column that does not exist or holds something else raises a `FileError` when the
        function is called, and a missing label raises one when its row is read.
    label_types : callable, optional
        Function that takes a list of names of columns, and returns a list with NumPy's type for the
        labels in each of them, without reading a row.
    labels : callable, optional
        Function that takes a list of names of columns, and reads these columns and no other. It
        yields the lists in the pairs of `labelled`, without the arrays of `blocks`.
    missing : {"error", "nan"}, optional
        The argument `missing` of `rows`, with which the table was opened.

    See Also
    --------
    rows : Opens the table in a file.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from egm import files
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "people.csv"
    ...     _ = path.write_text("age,income\n31,2400\n58,1900\n")
    ...     table = files.rows(path)
    ...     print(table.names, table.count, sum(table.counts()))
    ...     print([block.tolist() for block in table])
    ...     [(block, [income])] = table.labelled(["income"])
    ...     print(income)
    ('age', 'income') None 2
    [[[31.0, 2400.0], [58.0, 1900.0]]]
    ['2400' '1900']
    """

    names: tuple[str, ...]
    count: int | None
    blocks: Callable[[], Iterator[Array]]
    counts: Callable[[], Iterator[int]]
    labelled: Callable[[Sequence[str]], Iterator[tuple[Array, list[Labels]]]]
    label_types: Callable[[Sequence[str]], list[np.dtype[Any]]] | None = None
    labels: Callable[[Sequence[str]], Iterator[list[Labels]]] | None = None
    missing: Literal["error", "nan"] | None = None

    def __iter__(self) -> Iterator[Array]:
        return self.blocks()


def rows(
    path: PathLike,
    columns: Sequence[str] | None = None,
    *,
    header: Literal["auto", "yes", "no"] = "auto",
    known: Collection[str] | None = None,
    width: int | None = None,
    delimiter: str | None = None,
    decimal: Literal[".", ","] = ".",
    thousands: str | None = None,
    skip_lines: int = 0,
    encoding: str = "utf-8",
    labels: Sequence[str] = (),
    missing: Literal["error", "nan"] = "error",
) -> Table:
    r"""Open the table in a file or in a folder of CSV or Parquet files, to be read in blocks of rows.

    Parameters
    ----------
    path : str or path-like
        Path of the file. Its name ends in .csv, .tsv, .csv.gz, .tsv.gz, .npy, .parquet or .pq. A
        folder holds files of one kind, CSV or Parquet, which are read one after the other in the
        order of their names. A file or folder inside it whose name begins with a dot or an
        underscore is skipped. "-" is standard input, with CSV.
    columns : sequence of str, optional
        Names of the columns to read, in this order; by default all but those in `labels`. Without
        `columns`, all files of a folder must have the columns of the first.
    header : {"auto", "yes", "no"}, default "auto"
        Whether the first line of a CSV file has names. "auto" takes it for names if no cell is a
        number and, unless `columns` is given, all cells are in `known`. "auto" takes it for values
        if all cells are numbers that cannot be names. Numbers can be names, as years can, if all
        are whole and no two are equal, or if they increase or decrease from cell to cell. For any
        other first line "auto" raises a FileError.
    known : collection of str, optional
        Names of columns that are public already; other text may be somebody's values. If `known` is
        None, "auto" takes any text for names; this is meant for a caller who will not publish them.
    width : int, optional
        Number of columns of a CSV file without a header (`header` "no"), unless `columns` is given.
        With either, such a file may be empty, a table without rows; otherwise this is an error.
    delimiter : str, optional
        Character between the cells of a CSV file; by default a tab if the name of the file says
        .tsv, and a comma otherwise.
    decimal : {".", ","}, default "."
        Decimal sign of the numbers in a CSV file.
    thousands : str, optional
        Character that may stand between groups of three digits, as in 1,234,567.8 (in quotes if it
        is the delimiter). A space also allows no-break spaces, and an apostrophe the curved one.
    skip_lines : int, default 0
        Number of lines at the start of a CSV file, such as titles, that are left out.
    encoding : str, default "utf-8"
        Encoding of a CSV file, such as "latin-1" or "utf-16".
    labels : sequence of str, optional
        Names of columns that `Table.labelled` will read, such as one with the ids of persons. Numbers
        as names stay as they are: if "1" has labels, a mechanism needs ``columns=["2", "3", ...]``.
    missing : {"error", "nan"}, default "error"
        What happens with a missing value: a FileError when the value is read, or NaN in the block.
        In a CSV file a value is missing if the cell is empty, a point, or the text NA, N/A, #N/A,
        <NA>, NaN, also with a sign, None or null, in capital or small letters.

    Returns
    -------
    Table
        Table in the file.

    Raises
    ------
    FileError
        If the file does not exist, is not of the kind that its suffix says, does not have each of
        the wanted columns exactly once, or has a first line for which "auto" raises the error. The
        message shows no cell of the first line of a CSV file unless `header` is "yes". If it is
        "no", each row is somebody's, so a row without a wanted column is an error when it is read.
    ValueError
        If `header`, `delimiter`, `decimal`, `thousands`, `skip_lines`, `encoding` or `missing` has a
        value that is not allowed, or if `delimiter` or `thousands` is the decimal sign.
    TypeError
        If `columns`, `known` or `labels` is a single string.

    See Also
    --------
    vector : Reads a file with one number for each column.
    from_parquet : Reads Parquet files as an array of dask.

    Notes
    -----
    False counts as 0 and true as 1; in a CSV file they may have capital or small letters.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from egm import files
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "people.csv"
    ...     _ = path.write_text("age,income,visits\n31,2400,4\n58,1900,7\n")
    ...     table = files.rows(path, ["visits", "age"], header="yes")
    ...     print(next(iter(table)))
    [[ 4. 31.]
     [ 7. 58.]]
    """
    path = Path(path)
    require_lists(columns=columns, known=known, labels=labels)
    labels = tuple(dict.fromkeys(labels))  # one column may say both the person and the group
    known = None if known is None else {*known, *labels}
    path = STANDARD_INPUT if str(path) == "-" else path
    paths = [path] if path is STANDARD_INPUT else parts_of(path)
    mark = delimiter_of(paths[0]) if delimiter is None else delimiter
    given = Given(header, columns, known, width, mark, decimal, encoding, missing, thousands, skip_lines, labels)
    require_allowed(given)
    if path is STANDARD_INPUT:
        given = replace(given, spooled=spooled_input())
    parts = [(part, source_of(part, given)) for part in paths]
    shown = header == "yes" or (given.spooled is None and KINDS[suffix_of(parts[0][0])] is not csv)
    first = parts[0][1].names
    names = tuple(columns) if columns is not None else tuple(name for name in first if name not in labels)
    if not names:
        raise FileError(f"{path}: no column is left besides those of labels")
    for part, source in parts:
        if columns is None:
            places_of(part, source.names, None, shown)
            if set(source.names) != set(first):
                others = f", but has {few_names(source.names)}" if shown else ""
                raise FileError(f"{part}: must have the columns of {parts[0][0]}{others}")

    def places(wanted: Sequence[str]) -> list[tuple[list[int], list[int]]]:
        require_lists(labels=wanted)
        found = []
        for part, source in parts:
            chosen = (places_of(part, source.names, names, shown), places_of(part, source.names, wanted, shown))
            source.require(*chosen)
            found.append(chosen)
        return found

    def types(wanted: Sequence[str]) -> list[np.dtype[Any]]:
        found = [
            list(map(source.label_type, chosen)) for (_, source), (_, chosen) in zip(parts, places(wanted), strict=True)
        ]
        for (part, _), others in zip(parts, found, strict=True):
            for name, one, other in zip(wanted, found[0], others, strict=True):
                if one.kind != other.kind:
                    raise FileError(f"{part}: column {name!r} holds labels of another type than in {parts[0][0]}")
        return found[0]

    def read(found: list[tuple[list[int], list[int]]]) -> Iterator[tuple[Array, list[Labels]]]:
        for (part, source), chosen in zip(parts, found, strict=True):
            with reading(part, encoding):
                yield from checked(part, names, source.read(*chosen), missing)

    types(labels)
    values, found = places(()), [source.count for _, source in parts]
    return Table(
        names,
        count=sum(found) if None not in found else None,  # type: ignore[arg-type]  # no None among them
        blocks=lambda: (block for block, _ in read(values)),
        counts=lambda: (number for _, source in parts for number in source.counts()),
        labelled=lambda wanted: read(places(wanted)),
        label_types=types,
        labels=lambda wanted: (found for _, found in read([([], chosen) for _, chosen in places(wanted)])),
        missing=missing,
    )


def vector(path: PathLike) -> tuple[list[str] | None, Array]:
    r"""Read the values, and the names if there are any, of a file with one number on each line.

    Parameters
    ----------
    path : str or path-like
        Path of the file. A CSV file, with a header or without, has a number, or a name and a
        number, on each line, with a comma (in a .tsv file a tab) between them. A NumPy file has one
        axis. A Parquet file has one column of numbers, and may have one column of text before it.

    Returns
    -------
    names : list of str or None
        Names, or None if the file has none.
    values : ndarray, shape (d,)
        Values, all finite.

    Raises
    ------
    FileError
        If the file does not exist, is not of the kind that its suffix says, or is empty, if a value is
        missing (also in line 1, which is then no header) or not finite, if a name occurs twice, or if
        lines such as 15,5 may be one number or two.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from egm import files
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "sigma.csv"
    ...     _ = path.write_text("age,18\nincome,1200\nvisits,3\n")
    ...     names, sigma = files.vector(path)
    >>> names, sigma.tolist()
    (['age', 'income', 'visits'], [18.0, 1200.0, 3.0])
    """
    path = Path(path)
    with reading(path):
        found: Vector = kind_of(path).vector(path, Given(delimiter=delimiter_of(path)))
    names, values = found
    if not len(values):
        raise FileError(f"{path}: is empty")
    for i in np.flatnonzero(~np.isfinite(values)):
        raise FileError(f"{path}: value {i + 1}{f' ({names[i]!r})' if names else ''} is {wrong(values[i])}")
    refuse_twins(path, names or [])
    return names, values


def from_parquet(
    path: PathLike, columns: Sequence[str] | None = None, *, missing: Literal["error", "nan"] = "error"
) -> DaskArray:
    """Make a dask array from Parquet files, which are read only when the array is computed.

    Parameters
    ----------
    path : str or os.PathLike
        Parquet file, or a folder of them, which are taken in the order of their names. A file whose
        name begins with a dot or an underscore is skipped.
    columns : sequence of str, optional
        Names of the columns that are read, by default all columns of the first file. The columns
        must hold integers, floating-point numbers, decimal numbers or booleans, which count as 0
        and 1. A column without a type, in which all values are missing, is allowed, too.
    missing : {"error", "nan"}, default "error"
        What becomes of a missing value: a ValueError when its block is computed, or NaN.

    Returns
    -------
    dask.array.Array, shape (n, d)
        Array with one block for each row group. The type of its numbers is one that can hold the
        numbers of all columns. If this array itself is given to a mechanism, and not an array that
        is computed from it, the names of the columns are matched with those of the mechanism.

    Raises
    ------
    ImportError
        If dask or pyarrow is not installed, which the extra ``dask`` installs.
    FileNotFoundError
        If there are no Parquet files.
    ValueError
        If `missing` has another value, or a file is no Parquet file or lacks a column.
    TypeError
        If a column does not hold numbers, or if `columns` is a single string.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import pyarrow
    >>> import pyarrow.parquet
    >>> from egm import files
    >>> table = pyarrow.table({"age": [31, 52], "income": [1800, 2900]})
    >>> with TemporaryDirectory() as folder:
    ...     pyarrow.parquet.write_table(table, f"{folder}/people.parquet")
    ...     X = files.from_parquet(folder)
    ...     X.shape, X.compute().sum(axis=0)
    ((2, 2), array([  83, 4700]))
    """
    return parquet.as_dask(path, columns, missing)


@contextlib.contextmanager
def whole(path: PathLike, *, overwrite: bool = False, last: Callable[[], object] | None = None) -> Iterator[BinaryIO]:
    """Open a binary file for writing, which appears under its name only when its content is complete and on the disk.

    If something fails earlier, no new file of this name appears, and an old one stays as it was.

    Parameters
    ----------
    path : str or path-like
        Name of the file.
    overwrite : bool, default False
        Whether a regular file of this name may be replaced. Then the new one gets its permissions.
    last : callable, optional
        Function without arguments that is called when the content is on the disk, just before the
        file gets its name. If the function raises an exception, no new file of this name appears.

    Yields
    ------
    BinaryIO
        File to write to.

    Raises
    ------
    FileError
        Before anything is written, if `path` does not end in a name, a file of this name may not be
        replaced, or a file cannot be made in its folder; later, if writing fails or a file of this
        name has appeared meanwhile. What a `with` block raises about another file stays as it is.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from egm import files
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "sums.json"
    ...     with files.whole(path) as file:
    ...         _ = file.write(b"{}")
    ...         early = path.exists()
    ...     print(early, path.exists())
    False True
    """
    target = Path(os.path.realpath(path))
    part = target.parent / f".egm-{secrets.token_hex(8)}.part"
    try:
        if not os.path.basename(path):
            raise FileError(f"{path!r}: must end in the name of a file")
        if target.exists() and not (overwrite and target.is_file()):
            raise FileError(f"{path}: exists already" if target.is_file() else f"{path}: is not a regular file")
        with open(part, "xb") as file:
            if target.exists():
                os.chmod(part, target.stat().st_mode & 0o777)
            yield file
            file.flush()
            os.fsync(file.fileno())
        if last is not None:
            last()
        place(part, target, overwrite)
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(part), str(target)):
            raise
        raise FileError(f"{path}: {error.strerror}") from None
    finally:
        with contextlib.suppress(OSError):
            part.unlink()
