"""Read tables of numbers from files in blocks of rows, and write results whole or not at all.

A table is a CSV file (commas, UTF-8, with a header or without), a NumPy file (.npy, two axes) or a
Parquet file (which needs pyarrow). However large the file is, only one block of rows is in memory
at a time; for a Parquet file, a page of each column is in memory, too. If something is wrong with a
file, a `FileError` names the file. If something is wrong with one cell, it also names the row and
the column, but it never shows the value of the cell, which may be private.

A CSV file does not say whether its first line has names or the first person's values. Therefore the
first line is taken for names only if the caller says that it has names, or knows these names
already. A first line of different numbers can be names or values if all are whole, or if they
increase or decrease, as years do. Then the caller must say which they are.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, BinaryIO, Literal

import numpy as np

from egm._files import csv, npy, parquet
from egm._files.source import FileError, Given, Source, Vector, reading, wrong
from egm._types import Array, PathLike

if TYPE_CHECKING:
    from dask.array import Array as DaskArray

__all__ = ["FileError", "Table", "from_parquet", "rows", "vector", "whole"]

_KINDS = {".csv": csv, ".npy": npy, ".parquet": parquet, ".pq": parquet}  # the reader for each suffix


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
        shape (rows, columns), with finite values only, or raises a `FileError`.
    counts : callable
        Function without arguments that yields whole numbers whose sum is the number of rows. It
        reads the file if necessary.

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
    ('age', 'income') None 2
    [[[31.0, 2400.0], [58.0, 1900.0]]]
    """

    names: tuple[str, ...]
    count: int | None
    blocks: Callable[[], Iterator[Array]]
    counts: Callable[[], Iterator[int]]

    def __iter__(self) -> Iterator[Array]:
        return self.blocks()


def rows(
    path: PathLike,
    columns: Sequence[str] | None = None,
    *,
    header: Literal["auto", "yes", "no"] = "auto",
    known: Collection[str] | None = None,
    width: int | None = None,
) -> Table:
    r"""Open the table in a .csv, .npy, .parquet or .pq file, to be read in blocks of rows.

    Parameters
    ----------
    path : str or path-like
        Path of the file.
    columns : sequence of str, optional
        Names of the columns to read, in this order; by default all.
    header : {"auto", "yes", "no"}, default "auto"
        Whether the first line of a CSV file has names. "auto" takes the line for values if all its
        cells are numbers that cannot be names. Numbers cannot be names if two of them are equal.
        Neither can they be names if one of them is not whole and they are not sorted, upwards or
        downwards. "auto" takes the line for names if no cell is a number and, unless `columns` is
        given, all cells are in `known`. For any other first line "auto" raises a FileError.
    known : collection of str, optional
        Names of columns that are public already. If `known` is None, "auto" takes any text in the
        first line for names; this is meant for a caller who will not publish the names.
    width : int, optional
        Number of columns, for a CSV file without a header (`header` "no") that may be empty: with
        `width`, an empty file is a table without rows. Without `width`, an empty CSV file is an
        error.

    Returns
    -------
    Table
        Table in the file.

    Raises
    ------
    FileError
        If the file does not exist, is not of the kind that its suffix says, does not have each of
        the wanted columns exactly once, or has a first line for which "auto" raises the error. The
        message shows no cell of the first line of a CSV file unless `header` is "yes".

    See Also
    --------
    vector : Reads a file with one number for each column.
    from_parquet : Reads Parquet files as an array of dask.

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
    with reading(path):
        source: Source = _kind(path).table(path, Given(header, columns, known, width))
    shown = header == "yes" or path.suffix.lower() != ".csv"
    chosen = _chosen(path, source.names, columns, shown)
    names = tuple(source.names[i] for i in chosen)

    def blocks() -> Iterator[Array]:
        with reading(path):
            yield from _finite(path, names, source.read(chosen))

    return Table(names, source.count, blocks, source.counts)


def vector(path: PathLike) -> tuple[list[str] | None, Array]:
    r"""Read the values, and the names if there are any, of a file with one number on each line.

    Parameters
    ----------
    path : str or path-like
        Path of the file. A CSV file, with a header or without, has a number, or a name and a
        number, on each line. A NumPy file has one axis. A Parquet file has one column of numbers,
        and may have one column of text before it.

    Returns
    -------
    names : list of str or None
        Names, or None if the file has none.
    values : ndarray, shape (d,)
        Values, all finite.

    Raises
    ------
    FileError
        If the file does not exist, is not of the kind that its suffix says, or is empty, if a value
        is not finite, or if a name occurs twice.

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
        found: Vector = _kind(path).vector(path)
    names, values = found
    if not len(values):
        raise FileError(f"{path}: is empty")
    for i in np.flatnonzero(~np.isfinite(values)):
        raise FileError(f"{path}: value {i + 1}{f' ({names[i]!r})' if names else ''} is {wrong(values[i])}")
    _refuse_twins(path, names or [])
    return names, values


def from_parquet(path: PathLike, columns: Sequence[str] | None = None) -> DaskArray:
    """Make a dask array from Parquet files, which are read only when the array is computed.

    Parameters
    ----------
    path : str or os.PathLike
        Parquet file, or a folder of Parquet files. The files of a folder are taken in the order of
        their names. A file whose name begins with a dot or an underscore is skipped.
    columns : sequence of str, optional
        Names of the columns that are read, by default all columns of the first file. The columns
        must hold integers or floating-point numbers of any size.

    Returns
    -------
    dask.array.Array, shape (n, d)
        Array with one block for each row group. The type of its numbers is one that can hold the
        numbers of all columns. If this array itself is given to a mechanism, and not an array that
        is computed from it, the names of the columns are matched with those of the mechanism.

    Raises
    ------
    FileNotFoundError
        If there are no Parquet files.
    ValueError
        If a file is not a Parquet file or does not have these columns. The error is also raised
        when a block with missing values is computed.
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
    return parquet.as_dask(path, columns)


@contextlib.contextmanager
def whole(path: PathLike, *, overwrite: bool = False, last: Callable[[], object] | None = None) -> Iterator[BinaryIO]:
    """Open a binary file for writing, which appears under its name only when its content is complete and on the disk.

    If something fails earlier, no new file of this name appears, and an old file of this name stays
    as it was.

    Parameters
    ----------
    path : str or path-like
        Name of the file.
    overwrite : bool, default False
        Whether a regular file of this name may be replaced. The new file takes over the permissions
        of the old one.
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
        If there is a file of this name, unless `overwrite` is true and the file is a regular one,
        or if a file cannot be made in its folder. In these cases the error is raised before
        anything is written. The error is also raised if writing fails, or if a file of this name
        has appeared meanwhile.

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
    target, part = Path(os.path.realpath(path)), None
    try:
        if target.exists() and not (overwrite and target.is_file()):
            raise FileError(f"{path}: exists already" if target.is_file() else f"{path}: is not a regular file")
        part = target.with_name(f".egm-{secrets.token_hex(8)}.part")
        with open(part, "xb") as file:
            if target.exists():
                os.chmod(part, target.stat().st_mode & 0o777)
            yield file
            file.flush()
            os.fsync(file.fileno())
        if last is not None:
            last()
        _place(part, target, overwrite)
    except OSError as error:
        raise FileError(f"{path}: {error.strerror}") from None
    finally:
        if part is not None:
            with contextlib.suppress(OSError):
                part.unlink()


def _place(part: Path, target: Path, overwrite: bool) -> None:
    """Rename the finished file `part` to `target`, or raise FileExistsError if `target` has appeared meanwhile.

    With `overwrite`, a file that has the name `target` is replaced and no error is raised.
    """
    if not overwrite:
        try:
            os.link(part, target)
            return
        except FileExistsError:
            raise
        except OSError:  # a file system without links
            if target.exists():
                raise FileExistsError(17, "exists already") from None
    os.replace(part, target)


def _kind(path: Path) -> ModuleType:
    """Return the module that reads files with the suffix of `path`, for example `egm._files.csv` for ".csv".

    Raise a FileError if no module reads files with this suffix, or if `path` is not that of a
    regular file.
    """
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        raise FileError(f"{path}: is {'a directory' if stat.S_ISDIR(mode) else 'not a regular file'}")
    try:
        return _KINDS[path.suffix.lower()]
    except KeyError:
        raise FileError(f"{path}: the name must end in {', '.join(_KINDS)}, not in {path.suffix!r}") from None


def _chosen(path: Path, names: list[str], columns: Sequence[str] | None, shown: bool) -> list[int]:
    """Return the indices of the wanted columns among `names`, the columns of the file at `path`.

    `columns` has the names of the wanted columns; None stands for all columns. Raise a FileError if
    a wanted column does not occur exactly once in `names`. The error message shows names from the
    file that are not in `columns` only if `shown` is true.
    """
    if columns is None:
        if not shown and len(set(names)) < len(names):
            raise FileError(f"{path}: line 1 names two columns alike")
        _refuse_twins(path, names)
        return list(range(len(names)))
    _refuse_twins(path, columns)
    places: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        places.setdefault(name, []).append(i)
    for name in columns:
        if len(places.get(name, ())) != 1:
            number = "more than one" if name in places else "no"
            raise FileError(f"{path}: has {number} column {name!r}{f'; it has {_few(names)}' if shown else ''}")
    return [places[name][0] for name in columns]


def _refuse_twins(path: Path, names: Sequence[str]) -> None:
    """Raise a FileError that begins with `path`, the name of the file, if one of the `names` occurs twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise FileError(f"{path}: the column {name!r} is named twice")
        seen.add(name)


def _few(names: Sequence[str]) -> str:
    """Return text for a message: the first eight of `names` and, if there are more, how many more."""
    return ", ".join(map(repr, names[:8])) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _finite(path: Path, names: Sequence[str], blocks: Iterable[Array]) -> Iterator[Array]:
    """Yield the `blocks` of rows unchanged, or raise a FileError at the first value that is not finite.

    The error message names the file at `path`, the row and the column of the value; `names` has the
    names of the columns.
    """
    start = 0
    for block in blocks:
        finite = np.isfinite(block)
        if not finite.all():
            i, j = np.argwhere(~finite)[0]
            raise FileError(f"{path}: row {start + i + 1}, column {names[j]!r}: {wrong(block[i, j])}")
        yield block
        start += len(block)
