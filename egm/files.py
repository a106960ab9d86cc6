"""Read tables of numbers from files in blocks of rows, and write results whole or not at all.

A table is CSV (commas, UTF-8, with a header or without), NumPy (.npy, two axes) or Parquet (needs
pyarrow). However large the file is, only one block is in memory at a time, and of a Parquet file
also a page of each column. If something is wrong with a file, a `FileError` names the file and, if
it is one cell, its row and column. It never shows the value of the cell, which may be private.

A CSV file does not say whether its first line has names or the first person's values. Therefore
names are taken from it only if the caller says that they are names, or knows them already. A first
line of numbers that are whole, or in order, can be either; it is taken for neither unless the
caller says which it is.
"""

from __future__ import annotations

import contextlib
import csv
import itertools
import mmap
import os
import re
import secrets
import stat
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias, TypeVar

import numpy as np

from egm import _distribution
from egm._rows.dask import from_parquet
from egm._types import Array, PathLike

__all__ = ["FileError", "Table", "from_parquet", "rows", "vector", "whole"]

_BLOCK = 1 << 18  # numbers in a block
_PAGE = 1 << 16  # bytes of a column of a Parquet file that are buffered
_INSTALL = f"Parquet needs pyarrow: pip install '{_distribution.NAME}[files]'"

T = TypeVar("T")
# Names, the number of rows if the file says it, and how to read some columns in blocks and the counts of rows.
Reader: TypeAlias = tuple[list[str], int | None, Callable[[list[int]], Iterator[Array]], Callable[[], Iterator[int]]]
Vector: TypeAlias = tuple[list[str] | None, Array]

_OPEN = "a quote is not closed on its line"
_SAY = "say whether it is a header (--header yes or no)"


class FileError(ValueError):
    """Error for a file that cannot be used; the message begins with the name of the file.

    Examples
    --------
    >>> from egm import files
    >>> try:
    ...     files.rows("people.txt")
    ... except files.FileError as error:
    ...     print("refused")
    refused
    """


@dataclass(frozen=True)
class _Header:
    """What the caller knows of the first line of a CSV file; the fields are arguments of `rows`."""

    header: str
    columns: Sequence[str] | None
    known: Collection[str] | None
    width: int | None


@dataclass(frozen=True)
class Table:
    r"""Table in a file: names of its columns, number of its rows if the file says it, and its blocks.

    Iterating reads the file from the start, and yields the blocks. `rows` makes such a table.

    Parameters
    ----------
    names : tuple of str
        Names of the columns. Columns without names are called "1", "2" and so on.
    count : int or None
        Number of rows, or None if only reading the file can tell it, as with CSV.
    blocks : callable
        Function without arguments that reads the file from the start. It yields arrays of float64,
        shape (rows, columns), with finite values only, or raises a `FileError`.
    counts : callable
        Function without arguments that yields the number of rows in parts, by reading the file if
        necessary.

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
        Place of the file.
    columns : sequence of str, optional
        Names of the columns to read, in this order; by default all.
    header : {"auto", "yes", "no"}, default "auto"
        Whether the first line of a CSV file has names. "auto" takes it for values if all its cells
        are numbers of which two are equal, or which are neither all whole nor in order. It takes it
        for names if no cell is a number and, unless `columns` is given, all cells are in `known`.
        It refuses any other first line.
    known : collection of str, optional
        Names that are public already. None is for a caller who will not publish the names: "auto"
        then takes any text for names.
    width : int, optional
        Number of columns of a CSV file that may be empty and has no header (`header` "no"). An
        empty file is then a table without rows.

    Returns
    -------
    Table
        Table in the file.

    Raises
    ------
    FileError
        If the file is not there, is not of its kind, does not have the columns, or has a first line
        that "auto" cannot tell. The message shows no cell of the first line of a CSV file unless
        `header` is "yes".

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
    with _reading(path):
        names, count, read, counts = _reader(path, _TABLES)(path, _Header(header, columns, known, width))
    shown = header == "yes" or path.suffix.lower() != ".csv"
    chosen = _chosen(path, names, columns, shown)

    def blocks() -> Iterator[Array]:
        with _reading(path):
            yield from _finite(path, [names[i] for i in chosen], read(chosen))

    return Table(tuple(names[i] for i in chosen), count, blocks, counts)


def vector(path: PathLike) -> tuple[list[str] | None, Array]:
    r"""Read the values, and the names if there are any, of a file with one number on each line.

    Parameters
    ----------
    path : str or path-like
        Place of the file: CSV with a header or without, with a number or a name and a number on
        each line; NumPy with one axis; or Parquet with one column of numbers, or one column of text
        before it.

    Returns
    -------
    names : list of str or None
        Names, or None if the file has none.
    values : ndarray, shape (d,)
        Values, all finite.

    Raises
    ------
    FileError
        If the file is not there, is not of its kind, is empty, has a value that is not finite, or a
        name that occurs twice.

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
    with _reading(path):
        names, values = _reader(path, _VECTORS)(path)
    if not len(values):
        raise FileError(f"{path}: is empty")
    for i in np.flatnonzero(~np.isfinite(values)):
        raise FileError(f"{path}: value {i + 1}{f' ({names[i]!r})' if names else ''} is {_wrong(values[i])}")
    _refuse_twins(path, names or [])
    return names, values


@contextlib.contextmanager
def whole(path: PathLike, *, overwrite: bool = False, last: Callable[[], object] | None = None) -> Iterator[BinaryIO]:
    """Open a binary file for writing that gets its name only when all is written and on the disk.

    If something fails before, there will be no file of this name, or the old one stays.

    Parameters
    ----------
    path : str or path-like
        Name of the file.
    overwrite : bool, default False
        Whether a regular file of this name may be replaced. It leaves its permissions to the new
        one.
    last : callable, optional
        Function that is called when all is on the disk and the file is about to get its name. If it
        raises, there will be no file.

    Yields
    ------
    BinaryIO
        File to write to.

    Raises
    ------
    FileError
        If the name is taken, unless `overwrite` is true and it is that of a regular file, or if
        there can be no such file. Both are found before anything is written. Also if writing fails,
        or if the name was taken meanwhile.

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
    """Give the finished file its name; raise FileExistsError if the name was taken meanwhile."""
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


# What all kinds share ---------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn an error of the operating system or of the decoder into a FileError."""
    try:
        yield
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise FileError(f"{path}: is not UTF-8 text") from None


def _reader(path: Path, readers: dict[str, T]) -> T:
    """Return the reader for the suffix of a regular file."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        raise FileError(f"{path}: is {'a directory' if stat.S_ISDIR(mode) else 'not a regular file'}")
    try:
        return readers[path.suffix.lower()]
    except KeyError:
        raise FileError(f"{path}: the name must end in {', '.join(readers)}, not in {path.suffix!r}") from None


def _chosen(path: Path, names: list[str], columns: Sequence[str] | None, shown: bool) -> list[int]:
    """Return the places of the columns among the names.

    `shown` says whether an error may show names that nobody has asked for.
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
    """Raise a FileError for a name that occurs twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise FileError(f"{path}: the column {name!r} is named twice")
        seen.add(name)


def _few(names: Sequence[str]) -> str:
    """Return the first names of a list, as text."""
    return ", ".join(map(repr, names[:8])) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _finite(path: Path, names: list[str], blocks: Iterable[Array]) -> Iterator[Array]:
    """Yield the blocks, or raise a FileError for the first number that is not finite."""
    start = 0
    for block in blocks:
        finite = np.isfinite(block)
        if not finite.all():
            i, j = np.argwhere(~finite)[0]
            raise FileError(f"{path}: row {start + i + 1}, column {names[j]!r}: {_wrong(block[i, j])}")
        yield block
        start += len(block)


def _wrong(value: float) -> str:
    """Say in words why a number is not finite."""
    return "NaN or missing" if np.isnan(value) else "infinite"


def _step(columns: int) -> int:
    """Return the number of rows in a block."""
    return max(1, _BLOCK // columns)


# CSV --------------------------------------------------------------------------------------------------------------


def _csv(path: Path, given: _Header) -> Reader:
    """Open a CSV file as a Reader.

    The Reader has the column names, None for the number of rows (unknown without reading), and two
    functions: one yields blocks of rows, the other yields numbers of rows.
    """
    if given.header == "no" and given.width and next(_lines(path), None) is None:
        return _numbered(given.width), None, lambda chosen: iter(()), lambda: iter(())
    names = _header(path)
    skip = int(_has_names(path, names, given))
    width = len(names)
    if not skip:
        names = _numbered(width)

    def read(chosen: list[int]) -> Iterator[Array]:
        with contextlib.closing(_lines(path)) as whole:  # also where a cell is no number
            lines, start = itertools.islice(whole, skip, None), 0
            while taken := list(itertools.islice(lines, _step(width))):
                yield _parsed(path, taken, start, skip, names, chosen)
                start += len(taken)

    def counts() -> Iterator[int]:
        with _reading(path):
            lines = itertools.islice(_lines(path), skip, None)
            while part := sum(1 for _ in itertools.islice(lines, _BLOCK)):
                yield part

    return names, None, read, counts


def _has_names(path: Path, cells: list[str], given: _Header) -> bool:
    """Tell whether line 1 has names, or raise a FileError if this is uncertain."""
    if given.header != "auto":
        return given.header == "yes"
    numbers = sum(map(_is_number, cells))
    if 0 < numbers < len(cells):
        raise FileError(f"{path}: line 1 has numbers and text; {_SAY}")
    if numbers:
        if _may_be_names(list(map(float, cells))):
            raise FileError(f"{path}: line 1 has numbers that may be names, such as years, or values; {_SAY}")
        return False
    if given.known is not None and given.columns is None and not set(cells) <= set(given.known):
        raise FileError(f"{path}: line 1 may have names or somebody's values, and not all are known as names; {_SAY}")
    return True


def _may_be_names(numbers: list[float]) -> bool:
    """Tell whether these numbers may be names of columns: no two are equal, and they are whole, or go up or down."""
    steps = np.diff(numbers)
    named = all(map(float.is_integer, numbers)) or bool(np.all(steps > 0) or np.all(steps < 0))
    return named and len(set(numbers)) == len(numbers)


def _csv_vector(path: Path) -> Vector:
    """Return the names of a CSV file, or None, and its values."""
    first = _header(path)
    if len(first) > 2:
        raise FileError(f"{path}: must have one number a line, or a name and a number; line 1 has {len(first)} cells")
    width, skip = len(first), int(not _is_number(first[-1]))
    names, values = [], []
    for line, text in itertools.islice(enumerate(_lines(path), start=1), skip, None):
        cells = _cells(path, line, text)
        if len(cells) != width:
            raise FileError(f"{path}: line {line} has {len(cells)} cells, line 1 has {width}")
        if not _is_number(cells[-1]):
            raise FileError(f"{path}: line {line}: {'not a number' if cells[-1] else 'no number'}")
        names.append(cells[0])
        values.append(float(cells[-1]))
    return (names if width == 2 else None), np.array(values)


def _lines(path: Path) -> Generator[str, None, None]:
    """Yield the lines of a text file, without blank lines at its end."""
    with open(path, encoding="utf-8-sig") as file:
        blank = 0
        for line in file:
            if line.isspace():
                blank += 1
                continue
            yield from itertools.repeat("\n", blank)
            blank = 0
            yield line


def _header(path: Path) -> list[str]:
    """Return the cells of the first line."""
    cells = next((_cells(path, 1, line) for line in _lines(path)), None)
    if not cells:
        raise FileError(f"{path}: {'is empty' if cells is None else 'line 1 is blank'}")
    if len(cells) == 1 and (other := next((mark for mark in ";\t|" if mark in cells[0]), None)):
        raise FileError(f"{path}: line 1 has no comma, but {other!r}; columns must have commas between them")
    return cells


def _cells(path: Path, line: int, text: str) -> list[str]:
    """Return the cells of a line, without the spaces around them."""
    try:
        (cells,) = csv.reader([text], strict=True)
    except csv.Error as error:
        reasons = {"field": f"a cell has more than {csv.field_size_limit()} characters", "unexpected": _OPEN}
        raise FileError(f"{path}: line {line}: {reasons.get(str(error).split()[0], error)}") from None
    return [cell.strip() for cell in cells]


def _is_number(cell: str) -> bool:
    """Tell whether a cell has a number; NaN and infinity are numbers here."""
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell


def _parsed(path: Path, lines: list[str], start: int, skip: int, names: list[str], chosen: list[int]) -> Array:
    """Return a block of numbers from lines, the first of which is row `start`, counted from 0."""
    width = len(names)
    if all(line.count(",") == width - 1 and '"' not in line and not line.isspace() for line in lines):
        with contextlib.suppress(ValueError):
            everything = chosen == list(range(width))
            block = np.loadtxt(lines, delimiter=",", comments=None, usecols=None if everything else chosen, ndmin=2)
            if np.isfinite(block).all():
                return block
    return np.array([_row(path, line, start + i, skip, names, chosen) for i, line in enumerate(lines)])


def _row(path: Path, text: str, row: int, skip: int, names: list[str], chosen: list[int]) -> list[float]:
    """Return the numbers of one line, or raise a FileError that says what is wrong with it; this is slow."""
    cells = _cells(path, row + skip + 1, text)
    place = f"{path}: row {row + 1} (line {row + skip + 1})"
    if not text.strip():
        raise FileError(f"{place} is blank")
    if len(cells) != len(names):
        raise FileError(f"{place} has {len(cells)} cells, line 1 has {len(names)}")
    for i in chosen:
        if not _is_number(cells[i]):
            raise FileError(f"{place}, column {names[i]!r}: {'not a number' if cells[i] else 'missing'}")
        if not np.isfinite(float(cells[i])):
            raise FileError(f"{place}, column {names[i]!r}: {_wrong(float(cells[i]))}")
    return [float(cells[i]) for i in chosen]


def _numbered(width: int) -> list[str]:
    """Return names for columns that have none."""
    return [str(i + 1) for i in range(width)]


# NumPy ------------------------------------------------------------------------------------------------------------


def _npy(path: Path, _: _Header) -> Reader:
    """Open a NumPy file as a Reader, by mapping it into memory.

    The Reader has names for the columns, the number of rows, and two functions: one yields blocks
    of rows, the other yields the number of rows.
    """
    array = _mapped(path, 2)

    def read(chosen: list[int]) -> Iterator[Array]:
        everything = chosen == list(range(array.shape[1]))
        for start in range(0, len(array), step := _step(array.shape[1])):
            block = array[start : start + step]
            yield np.array(block if everything else block[:, chosen], dtype=float)
            if hasattr(mmap, "MADV_DONTNEED"):  # or the pages that were read would stay in this process
                array.base.madvise(mmap.MADV_DONTNEED)  # type: ignore[union-attr]  # the base is an mmap

    return _numbered(array.shape[1]), len(array), read, lambda: iter([len(array)])


def _npy_vector(path: Path) -> Vector:
    """Return None for the names, and the values."""
    return None, np.array(_mapped(path, 1), dtype=float)


def _mapped(path: Path, axes: int) -> np.memmap[Any, Any]:
    """Return the array in a file, of which only the parts that are used are in memory."""
    if not path.stat().st_size:
        raise FileError(f"{path}: is empty")
    try:
        array = np.lib.format.open_memmap(path, mode="r")
    except ValueError as error:
        raise FileError(f"{path}: is not a whole NumPy array of numbers ({error})") from None
    if array.dtype.kind not in "iuf":
        raise FileError(f"{path}: must hold real numbers, holds {array.dtype}")
    if array.ndim != axes or 0 in array.shape[1:]:
        wanted = "(rows, columns)" if axes == 2 else "(numbers,)"
        raise FileError(f"{path}: must have the shape {wanted}, has {array.shape}")
    return array


# Parquet ----------------------------------------------------------------------------------------------------------


def _parquet(path: Path, _: _Header) -> Reader:
    """Open a Parquet file as a Reader.

    The Reader has the column names, the number of rows, and two functions: one yields blocks of
    rows, the other yields the number of rows.
    """
    with _open_parquet(path) as file:
        schema, count = file.schema_arrow, file.metadata.num_rows
    everything = list(schema.names)  # which pyarrow makes anew each time
    if not everything:
        raise FileError(f"{path}: has no columns")

    def read(chosen: list[int]) -> Iterator[Array]:
        names = [everything[i] for i in chosen]
        for i in chosen:
            _require_numbers(path, schema.field(i))
        with _open_parquet(path) as file:
            for batch in file.iter_batches(batch_size=_step(len(names)), columns=names):
                found = dict(zip(batch.schema.names, batch.columns, strict=True))  # asked by name, pyarrow searches
                yield np.column_stack([_numbers(found[name]) for name in names])

    return everything, count, read, lambda: iter([count])


def _parquet_vector(path: Path) -> Vector:
    """Return the names of a Parquet file, or None, and its values."""
    with _open_parquet(path) as file:
        table = file.read()
    if table.num_columns not in (1, 2):
        raise FileError(f"{path}: must have one column of numbers, or names and numbers; it has {table.num_columns}")
    _require_numbers(path, table.schema.field(table.num_columns - 1))
    names = [str(name) for name in table.column(0).to_pylist()] if table.num_columns == 2 else None
    return names, _numbers(table.column(table.num_columns - 1))


@contextlib.contextmanager
def _open_parquet(path: Path) -> Iterator[Any]:
    """Open a Parquet file, or raise a FileError that says what is wrong with it."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise FileError(f"{path}: {_INSTALL}") from None
    try:
        with pq.ParquetFile(path, buffer_size=_PAGE, pre_buffer=False) as file:  # or whole row groups are in memory
            yield file
    except (pa.ArrowException, OSError) as error:
        raise FileError(f"{path}: cannot be read as Parquet ({error})") from None


def _require_numbers(path: Path, field: Any) -> None:
    """Raise a FileError for a column of anything but numbers."""
    if not re.match(r"u?int|float|half|double|decimal", str(field.type)):
        raise FileError(f"{path}: column {field.name!r} must hold real numbers, holds {field.type}")


def _numbers(column: Any) -> Array:
    """Return a column as float64; a missing value becomes NaN."""
    return np.asarray(column.cast("float64", safe=False).to_numpy(zero_copy_only=False))


_TABLES = {".csv": _csv, ".npy": _npy, ".parquet": _parquet, ".pq": _parquet}
_VECTORS = {".csv": _csv_vector, ".npy": _npy_vector, ".parquet": _parquet_vector, ".pq": _parquet_vector}
