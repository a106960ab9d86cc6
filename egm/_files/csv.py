"""Read tables and vectors from CSV files: fast if all cells of a block are plain numbers, or else line by line.

An error message never shows the value of a cell, which may be private.
"""

from __future__ import annotations

import contextlib
import csv
import itertools
from collections.abc import Generator, Iterator
from pathlib import Path

import numpy as np

from egm._files.source import FileError, Given, Source, Vector, numbered, reading, rows_in_a_block, wrong
from egm._types import Array

__all__ = ["table", "vector"]

_COUNTED = 1 << 18  # lines that are counted at a time
_OPEN = "a quote is not closed on its line"
_SAY = "say whether it is a header (--header yes or no)"


def table(path: Path, given: Given) -> Source:
    """Return the table in the CSV file at `path` as a `Source`, whose rows can be read in blocks.

    The argument `given` holds what the caller has said about the header and the columns. The number
    of rows in the result is None, because a CSV file does not say how many rows it has.
    """
    if given.header == "no" and given.width and next(_lines(path), None) is None:
        return Source(numbered(given.width), None, lambda chosen: iter(()), lambda: iter(()))
    names = _header(path)
    skip = int(_has_names(path, names, given))
    width = len(names)
    if not skip:
        names = numbered(width)

    def read(chosen: list[int]) -> Iterator[Array]:
        with contextlib.closing(_lines(path)) as everything:  # closes the file even if a cell is wrong
            lines, start = itertools.islice(everything, skip, None), 0
            while taken := list(itertools.islice(lines, rows_in_a_block(width))):
                yield _parsed(path, taken, start, skip, names, chosen)
                start += len(taken)

    def counts() -> Iterator[int]:
        with reading(path):
            lines = itertools.islice(_lines(path), skip, None)
            while part := sum(1 for _ in itertools.islice(lines, _COUNTED)):
                yield part

    return Source(names, None, read, counts)


def _has_names(path: Path, cells: list[str], given: Given) -> bool:
    """Return True if `cells`, line 1 of the file at `path`, has names of columns, and False if it has values.

    `cells` is the list of the cells of this line. The argument `given` holds the arguments of
    `egm.files.rows` that decide this. Raise a FileError if the cells can be names or values.
    """
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
    """Return whether `numbers`, the cells of line 1, may be names of columns, as years may be.

    They may be names if they are all different, and if all are whole or they increase or decrease.
    """
    steps = np.diff(numbers)
    named = all(map(float.is_integer, numbers)) or bool(np.all(steps > 0) or np.all(steps < 0))
    return named and len(set(numbers)) == len(numbers)


def vector(path: Path) -> Vector:
    """Return the names and the values in the CSV file at `path`, which has one value on each line.

    A line may have a name before the value. Without names, None is returned in place of the list of
    names.
    """
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
    """Yield the lines of the text file at `path`, but not the blank lines at its end."""
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
    """Return the cells of the first line of the file at `path`.

    Raise a FileError if the first line is missing, blank, or not divided by commas.
    """
    cells = next((_cells(path, 1, line) for line in _lines(path)), None)
    if not cells:
        raise FileError(f"{path}: {'is empty' if cells is None else 'line 1 is blank'}")
    if len(cells) == 1 and (other := next((mark for mark in ";\t|" if mark in cells[0]), None)):
        raise FileError(f"{path}: line 1 has no comma, but {other!r}; columns must have commas between them")
    return cells


def _cells(path: Path, line: int, text: str) -> list[str]:
    """Return the cells of one line of a CSV file, without the spaces around each cell.

    `text` is the line. Raise a FileError if the quotes in the line are wrong or a cell is too long;
    the error message names the file at `path` and the number `line` of the line.
    """
    try:
        (cells,) = csv.reader([text], strict=True)
    except csv.Error as error:
        reasons = {"field": f"a cell has more than {csv.field_size_limit()} characters", "unexpected": _OPEN}
        raise FileError(f"{path}: line {line}: {reasons.get(str(error).split()[0], error)}") from None
    return [cell.strip() for cell in cells]


def _is_number(cell: str) -> bool:
    """Return whether `cell`, the text of a cell, is a number; NaN and infinity count as numbers."""
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell


def _parsed(path: Path, lines: list[str], start: int, skip: int, names: list[str], chosen: list[int]) -> Array:
    """Return the numbers in the chosen columns of some lines, as an array with a row for each line.

    `lines` has the texts of the lines, and `chosen` the indices of the columns. Raise a FileError
    if a cell is not a finite number. The other arguments serve for error messages: `path` is the
    file, `names` has the names of all columns, the first line is row `start` of the table, counted
    from 0, and the file has `skip` lines before row 0.
    """
    width = len(names)
    if all(line.count(",") == width - 1 and '"' not in line and not line.isspace() for line in lines):
        with contextlib.suppress(ValueError):
            everything = chosen == list(range(width))
            block = np.loadtxt(lines, delimiter=",", comments=None, usecols=None if everything else chosen, ndmin=2)
            if np.isfinite(block).all():
                return block
    return np.array([_row(path, line, start + i, skip, names, chosen) for i, line in enumerate(lines)])


def _row(path: Path, text: str, row: int, skip: int, names: list[str], chosen: list[int]) -> list[float]:
    """Return the numbers in the chosen columns of one line, or raise a FileError that says what is wrong.

    This is slow. `text` is the line, and `chosen` has the indices of the columns. The other
    arguments serve for error messages: `path` is the file, `names` has the names of all columns,
    and the line is row `row` of the table, counted from 0, after `skip` other lines.
    """
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
            raise FileError(f"{place}, column {names[i]!r}: {wrong(float(cells[i]))}")
    return [float(cells[i]) for i in chosen]
