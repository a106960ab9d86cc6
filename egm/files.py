"""Tables of numbers in files, read in blocks of rows, and results that are written whole or not at all.

A table is CSV (commas, UTF-8, with a header or without), NumPy (.npy, two axes) or Parquet (needs pyarrow). What is in
memory at a time is one block, and of a Parquet file a page of each column, whatever the size of the file. What is wrong
with a file is a FileError that names the file and, where it is one cell, its row and column; never its value, which may
be private.

A CSV file does not say whether its first line has names or the first person's values. So names are taken from it only
where the caller says that they are names, or knows them already. A first line of numbers that are whole, or in order,
can be either, and so it is taken for neither unless the caller says so.
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
    """A file that cannot be used. The message begins with its name."""


@dataclass(frozen=True)
class _Header:
    """What is known of the first line of a CSV file; see `rows`."""

    header: str
    columns: Sequence[str] | None
    known: Collection[str] | None
    width: int | None


@dataclass(frozen=True)
class Table:
    """The table in a file: the names of its columns, its number of rows if the file says it, and its blocks.

    Iterating reads the file from the start: float64 blocks, (rows, columns), all finite, or a FileError. Columns
    without names are called "1", "2" and so on. `counts()` gives the number of rows in parts, if need be by reading.
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
    """The Table of a .csv, .npy, .parquet or .pq file.

    columns: the names of those to read, in this order; by default all. header: "yes" or "no" for whether the first line
    of a CSV file has names. "auto" takes it for values if all are numbers, of which two are alike, or which are neither
    whole nor in order; and for names if none of its cells is a number and if they are `known`: names that are public
    already, among which all cells must be, unless `columns` chooses some. known: None for a caller who will not publish
    the names; then any text is taken for names. width: the number of columns of a CSV file without header that may be
    empty, and then has no rows. Raises FileError for a file that is not there, not of its kind, without such columns,
    or with a first line that "auto" cannot tell. Such an error shows no cell of the first line unless header is "yes".
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
    """(names, values) of a file with one number a line, or a name and a number: a list or None, and an array (d,).

    CSV with a header or without, NumPy of one axis, or Parquet with one column of numbers, or one of text before it.
    Raises FileError as `rows`, and for a value that is not finite or a name that occurs twice.
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
    """A binary file to write to, that appears under its name when all is written and safe, or never.

    A file that is replaced leaves its permissions to the new one. last: called when all is on the disk and the file is
    about to get its name; if it raises, there will be none. Raises FileError, before anything is written, if the name
    is taken (unless overwrite, and then only by a regular file) or if there can be no such file.
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
    """Give the finished file its name; FileExistsError if it was taken meanwhile."""
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
    """What the operating system and the decoder say against a file, as a FileError."""
    try:
        yield
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise FileError(f"{path}: is not UTF-8 text") from None


def _reader(path: Path, readers: dict[str, T]) -> T:
    """The reader for the suffix of a regular file."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        raise FileError(f"{path}: is {'a directory' if stat.S_ISDIR(mode) else 'not a regular file'}")
    try:
        return readers[path.suffix.lower()]
    except KeyError:
        raise FileError(f"{path}: the name must end in {', '.join(readers)}, not in {path.suffix!r}") from None


def _chosen(path: Path, names: list[str], columns: Sequence[str] | None, shown: bool) -> list[int]:
    """Where the columns are among the names. shown: whether an error may show names that nobody has asked for."""
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
    """An error for a name that occurs twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise FileError(f"{path}: the column {name!r} is named twice")
        seen.add(name)


def _few(names: Sequence[str]) -> str:
    """The first names of a list, as text."""
    return ", ".join(map(repr, names[:8])) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _finite(path: Path, names: list[str], blocks: Iterable[Array]) -> Iterator[Array]:
    """The blocks, or a FileError for the first number that is not finite."""
    start = 0
    for block in blocks:
        finite = np.isfinite(block)
        if not finite.all():
            i, j = np.argwhere(~finite)[0]
            raise FileError(f"{path}: row {start + i + 1}, column {names[j]!r}: {_wrong(block[i, j])}")
        yield block
        start += len(block)


def _wrong(value: float) -> str:
    """What a number is that is not finite."""
    return "NaN or missing" if np.isnan(value) else "infinite"


def _step(columns: int) -> int:
    """Rows in a block."""
    return max(1, _BLOCK // columns)


# CSV --------------------------------------------------------------------------------------------------------------


def _csv(path: Path, given: _Header) -> Reader:
    """Names, no count, a reader of blocks and one of counts for a CSV file."""
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
    """Whether line 1 has names, or an error if it cannot be told."""
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
    """Whether columns may be called by these numbers: no two are alike, and they are whole, or go up or down."""
    steps = np.diff(numbers)
    named = all(map(float.is_integer, numbers)) or bool(np.all(steps > 0) or np.all(steps < 0))
    return named and len(set(numbers)) == len(numbers)


def _csv_vector(path: Path) -> Vector:
    """Names or None, and values."""
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
    """The lines of a text file without blank ones at its end."""
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
    """The cells of the first line."""
    cells = next((_cells(path, 1, line) for line in _lines(path)), None)
    if not cells:
        raise FileError(f"{path}: {'is empty' if cells is None else 'line 1 is blank'}")
    if len(cells) == 1 and (other := next((mark for mark in ";\t|" if mark in cells[0]), None)):
        raise FileError(f"{path}: line 1 has no comma, but {other!r}; columns must have commas between them")
    return cells


def _cells(path: Path, line: int, text: str) -> list[str]:
    """The cells of a line, without spaces around them."""
    try:
        (cells,) = csv.reader([text], strict=True)
    except csv.Error as error:
        reasons = {"field": f"a cell has more than {csv.field_size_limit()} characters", "unexpected": _OPEN}
        raise FileError(f"{path}: line {line}: {reasons.get(str(error).split()[0], error)}") from None
    return [cell.strip() for cell in cells]


def _is_number(cell: str) -> bool:
    """Whether a cell has a number, be it NaN or infinite."""
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell


def _parsed(path: Path, lines: list[str], start: int, skip: int, names: list[str], chosen: list[int]) -> Array:
    """A block of numbers from lines, of which the first is row `start` (from 0)."""
    width = len(names)
    if all(line.count(",") == width - 1 and '"' not in line and not line.isspace() for line in lines):
        with contextlib.suppress(ValueError):
            everything = chosen == list(range(width))
            block = np.loadtxt(lines, delimiter=",", comments=None, usecols=None if everything else chosen, ndmin=2)
            if np.isfinite(block).all():
                return block
    return np.array([_row(path, line, start + i, skip, names, chosen) for i, line in enumerate(lines)])


def _row(path: Path, text: str, row: int, skip: int, names: list[str], chosen: list[int]) -> list[float]:
    """The numbers of one line, slowly, or what is wrong with it."""
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
    """Names for columns that have none."""
    return [str(i + 1) for i in range(width)]


# NumPy ------------------------------------------------------------------------------------------------------------


def _npy(path: Path, _: _Header) -> Reader:
    """Names, count, a reader of blocks and one of counts for a NumPy file, which is mapped into memory."""
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
    """No names, and values."""
    return None, np.array(_mapped(path, 1), dtype=float)


def _mapped(path: Path, axes: int) -> np.memmap[Any, Any]:
    """The array of a file, in memory only where it is looked at."""
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
    """Names, count, a reader of blocks and one of counts for a Parquet file."""
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
    """Names or None, and values."""
    with _open_parquet(path) as file:
        table = file.read()
    if table.num_columns not in (1, 2):
        raise FileError(f"{path}: must have one column of numbers, or names and numbers; it has {table.num_columns}")
    _require_numbers(path, table.schema.field(table.num_columns - 1))
    names = [str(name) for name in table.column(0).to_pylist()] if table.num_columns == 2 else None
    return names, _numbers(table.column(table.num_columns - 1))


@contextlib.contextmanager
def _open_parquet(path: Path) -> Iterator[Any]:
    """The file, or a FileError for what is wrong with it."""
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
    """An error for a column of anything but numbers."""
    if not re.match(r"u?int|float|half|double|decimal", str(field.type)):
        raise FileError(f"{path}: column {field.name!r} must hold real numbers, holds {field.type}")


def _numbers(column: Any) -> Array:
    """A column as float64; what is missing becomes NaN."""
    return np.asarray(column.cast("float64", safe=False).to_numpy(zero_copy_only=False))


_TABLES = {".csv": _csv, ".npy": _npy, ".parquet": _parquet, ".pq": _parquet}
_VECTORS = {".csv": _csv_vector, ".npy": _npy_vector, ".parquet": _parquet_vector, ".pq": _parquet_vector}
