"""Read tables and vectors from CSV files: a block of lines at a time or, if something in it is wrong, line by line.

An error message never shows the value of a cell, which may be private.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import gzip
import io
import itertools
import math
import re
import statistics
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from egm._files.source import (
    CHANGED,
    FileError,
    Given,
    Labels,
    Source,
    TextError,
    Vector,
    numbered,
    reading,
    rows_in_a_block,
    wrong,
)
from egm._lazy import cached_property
from egm._types import Array
from egm._validate import MISSING

__all__ = ["table", "vector"]

_COUNTED = 1 << 18  # records that are counted at a time
_CHARACTERS = 1 << 23  # characters after which a block ends: cells may be long, also in columns that are not read
_PART = 64  # records whose characters are counted at a time
_FIRST = 9  # records that say how many cells a row has, if there is no header
_FLAGS = {"true": 1.0, "false": 0.0}  # cells, in small letters, that count as these numbers
_VARIANTS = {" ": "[\u00a0\u202f]", "'": "\u2019"}  # other characters that separate thousands where this one does
_ABOVE = "--skip-lines leaves out lines above the table"
_CHOOSE = " (--missing says what becomes of it)"
_POINT = "write 15.5 for the number, and 15,5.0 for the value of a column 15"
_NEEDED = "are needed for the columns that are read (--columns chooses them)"
_OPEN = "a quote is not closed"
_BARE = "a quote inside a cell that is not in quotes (put the cell in quotes, and write each quote inside twice)"
_ROWS = "a cell in quotes has lines that look like rows (perhaps a quote inside a cell is not written twice)"
_NO_TEXT = "\udcff"  # stands for bytes that are no text in the encoding of the file; no text has this character
_NUMBER = re.compile(r"[1-9]\d{0,5}", re.ASCII)  # name of a column without a name; no table has more columns
_SAY = "say whether it is a header (--header yes or no)"

codecs.register_error("egm.no_text", lambda error: (_NO_TEXT, error.end))  # type: ignore[attr-defined]  # in decoding


class _Irregular(str):
    """Record whose quotes are or may be wrong: each must stand around a cell or, inside such a cell, be written twice.

    Perhaps one cell begins with a single quote, and another cell, many rows later, ends with one. The two look like one
    cell with line breaks, so a record of several lines also belongs here if a line in its quotes looks like a row.
    """

    __slots__ = ()


@dataclass(frozen=True)
class _Text:
    """Read the records, cells and numbers of the CSV file at `path`.

    A record is a line or, if a quoted cell has line breaks in it, several lines. `given` holds the delimiter, the
    decimal sign and the encoding of the file, and says how many lines come before the table, and whether missing values
    are allowed. If `given.spooled` has the bytes of standard input, these are read. `summed` has the indices of the
    columns that hold numbers, as far as they are known.
    """

    path: Path
    given: Given
    summed: Collection[int] = ()

    def records(self, blanks: bool = False, strict: bool = True) -> Generator[str, None, None]:
        """Yield the records of the table in the file, which is unpacked if its name ends in .gz.

        The blank lines at the end of the file are left out unless `blanks` is true. Bytes that are no text in the
        encoding of the file raise a UnicodeError; if `strict` is false, one character stands for them.
        """
        with self._opened("strict" if strict else "egm.no_text") as file:
            blank, first = 0, next(file, "").removeprefix("\ufeff")  # the byte order mark
            lines = itertools.islice(itertools.chain([first] if first else [], file), self.given.skip_lines, None)
            for line in lines:
                record = self._whole(line, lines) if '"' in line else line
                if record.isspace() and self.is_blank(record):  # the method alone takes longer
                    blank += 1
                    continue
                if blank:
                    yield from itertools.repeat("\n", blank)
                    blank = 0
                yield record
            if blanks:
                yield from itertools.repeat("\n", blank)

    @property
    def first(self) -> int:
        """Return the number of the line in which the table begins, 1 if no line comes before it."""
        return 1 + self.given.skip_lines

    def is_blank(self, record: str) -> bool:
        """Return whether `record` has nothing but spaces in it, and no delimiter: a row of empty cells is not blank."""
        return record.isspace() and self.given.delimiter not in record

    def require_text(self, number: int, record: str) -> None:
        """Raise an error if a cell in `record`, which begins in line `number` of the file, makes its end doubtful.

        The error is a UnicodeError for bytes that are no text, and a TextError for a quote that is not closed.
        """
        if _NO_TEXT in record:
            raise UnicodeError
        self.cells(number, record)

    def _opened(self, errors: str) -> Any:
        """Return the file, or the bytes of standard input, opened for reading text.

        `errors` says what becomes of bytes that are no text, as in the function `open` of Python.
        """
        if self.given.spooled is not None:
            return io.TextIOWrapper(io.BufferedReader(_Bytes(self.given.spooled)), self.given.encoding, errors)
        opened = gzip.open if self.path.suffix.lower() == ".gz" else open
        return opened(self.path, "rt", encoding=self.given.encoding, errors=errors)

    def _whole(self, line: str, lines: Iterator[str]) -> str:
        """Return the record that begins with `line`; as long as a quote is open in it, append the next of the `lines`.

        No line is appended to a record that is longer than a cell may be. Otherwise a quote that is never closed would
        bring the whole file into memory. If the quotes in the record may be wrong, it is an `_Irregular`.
        """
        if self._is_regular(line):
            return line
        record, is_open = line, self._is_open(line)
        while is_open and len(record) <= csv.field_size_limit() and (line := next(lines, "")):
            record += line
            is_open = '"' not in line or self._is_open(record)
        return record if self._is_regular(record) and not self._has_rows(record) else _Irregular(record)

    def _has_rows(self, record: str) -> bool:
        """Return whether a line in the quotes of `record`, whose quotes seem to be right, looks like a row.

        The line must have as many cells as the record, if quotes count as any other character, and at least one
        delimiter between these cells must be in quotes. It must also have numbers, or missing values and a number, in
        the columns in `summed` and wherever the record has a number.
        """
        try:
            cells = self.cells(self.first, record)
        except TextError:
            return True
        numbers = {i for i, cell in enumerate(cells) if i in self.summed or self.is_number(cell)}
        mark, parts = self.given.delimiter, record.split('"')
        parts[1::2] = [part.replace(mark, "") for part in parts[1::2]]  # what is in quotes
        for line, outside in zip(record.split("\n"), '"'.join(parts).split("\n"), strict=True):
            row = line.split(mark)
            if line != outside and len(row) == len(cells):
                found = [self.is_number(row[i]) for i in numbers]
                if any(found) and all(found[k] or _is_missing(row[i]) for k, i in enumerate(numbers)):
                    return True
        return False

    @cached_property
    def _is_regular(self) -> Callable[[str], re.Match[str] | None]:
        """Return a function that takes a record, and returns a match if its quotes are right and None otherwise."""
        mark = re.escape(self.given.delimiter)
        cell = rf'(?:"[^"]*+(?:""[^"]*+)*+"|[^"\n{mark}]*+)'
        return re.compile(rf"{cell}(?:{mark}{cell})*+\n?").fullmatch

    def _is_open(self, record: str) -> bool:
        """Return whether a quote is open at the end of `record`, which is one line of the file or several."""
        try:
            list(csv.reader([record], strict=True, delimiter=self.given.delimiter))
        except csv.Error as error:
            return str(error).startswith("unexpected end")
        return False

    def cells(self, number: int, record: str) -> list[str]:
        """Return the cells of `record`, which begins in line `number` of the file, without the spaces around each cell.

        Raise a TextError if the quotes in the record are wrong or a cell is too long.
        """
        try:
            (cells,) = csv.reader([record], strict=True, delimiter=self.given.delimiter)
        except csv.Error as error:
            reasons = {"field": f"a cell has more than {csv.field_size_limit()} characters", "unexpected": _OPEN}
            raise TextError(f"{self.path}: line {number}: {reasons.get(str(error).split()[0], error)}") from None
        if isinstance(record, _Irregular):
            raise TextError(f"{self.path}: line {number}: {_ROWS if self._is_regular(record) else _BARE}")
        return [cell.strip() for cell in cells]

    def header(self, hint: str) -> list[str]:
        """Return the cells of the first record of the file or, if its header is "no", the texts "1", "2" and so on.

        Raise a FileError if the first record is missing or blank, or seems to have another delimiter. In the last case
        the message includes the text `hint`, which says what to do. Raise a UnicodeError if the record has bytes that
        are no text and may have names. Whatever is wrong with a record that can have no names is left to the reader of
        the rows. If the arguments say which columns there are, a record without names may be missing.
        """
        line = next(self.records(blanks=True, strict=False), None)
        if self.given.header == "no" and (line is not None or self.given.width or self.given.columns):
            return numbered(self._width())
        if line is None or self.is_blank(line):
            raise FileError(f"{self.path}: {'is empty' if line is None else f'line {self.first} is blank ({_ABOVE})'}")
        if _NO_TEXT in line:
            raise UnicodeError
        own = (self.given.delimiter, self.given.decimal)
        others = [mark for mark in ";\t|," if mark in line and mark not in own]
        if self.given.delimiter not in line and others and not re.fullmatch(r'\s*"[^"]*"\s*', line):
            mark = "comma" if self.given.delimiter == "," else repr(self.given.delimiter)
            raise FileError(f"{self.path}: line {self.first} has no {mark}, but {others[0]!r}; {hint}")
        return self.cells(self.first, line)

    def _width(self) -> int:
        """Return the number of cells that each row must have, if the header of the file is "no".

        What may be refused because of this number must not depend on one person's row. Therefore the arguments decide
        whether the table has a column: the number is that of `given.width` or, if columns are chosen, large enough for
        all of them. The reader of the rows finds out whether the rows have these columns.
        """
        if self.given.columns is None and self.given.width:
            return self.given.width
        wanted = (str(name) for name in (*(self.given.columns or ()), *self.given.labels))
        return max([self.usual_width(), *(int(name) for name in wanted if _NUMBER.fullmatch(name))])

    def usual_width(self) -> int:
        """Return the number of cells that most of the first records have, so that one wrong record does not decide.

        Blank records do not count, and neither does what comes after a record that cannot be divided into cells: it may
        be a part of the same cell. If the first record is of this kind, each line of it counts, and what comes after.
        """
        filled, widths = (record for record in self.records(strict=False) if not self.is_blank(record)), list[int]()
        for record in itertools.islice(filled, _FIRST):
            try:
                widths.append(len(self.cells(self.first, record)))
            except TextError:
                if widths:
                    break
                widths += [line.count(self.given.delimiter) + 1 for line in record.removesuffix("\n").split("\n")]
        return statistics.mode(widths or [1])

    def is_number(self, cell: str) -> bool:
        """Return whether `cell`, the text of a cell, is a number; NaN, infinity, true and false count as numbers."""
        try:
            self.number(cell)
        except ValueError:
            return False
        return True

    def number(self, cell: str) -> float:
        """Return the number in `cell`, the text of a cell, or raise a ValueError if it is not a number.

        In small or capital letters, "false" counts as 0 and "true" as 1, as in data frames and Parquet files.
        """
        mark = self.given.thousands
        if mark is not None and mark in _VARIANTS:
            cell = re.sub(_VARIANTS[mark], mark, cell)
        if mark is not None and mark in cell:
            whole, sign, rest = cell.strip().partition(self.given.decimal)
            if not re.fullmatch(rf"[+-]?\d{{1,3}}({re.escape(mark)}\d{{3}})+", whole, re.ASCII):
                raise ValueError
            cell = whole.replace(mark, "") + sign + rest
        if "_" in cell or (self.given.decimal != "." and "." in cell):
            raise ValueError
        try:
            return float(cell.replace(self.given.decimal, "."))
        except ValueError:  # mostly a cell is a number, so this comes second
            if (flag := _FLAGS.get(cell.strip().lower())) is None:
                raise
            return flag

    def value(self, cell: str) -> float:
        """Return the number in `cell`, the text of a cell, or NaN for a missing value if missing values are allowed.

        Raise a ValueError if the cell is neither a number nor an allowed missing value.
        """
        return math.nan if self.given.missing == "nan" and _is_missing(cell) else self.number(cell)

    def values(self, cells: list[str]) -> list[float]:
        """Return the numbers in `cells`, the texts of cells; an allowed missing value becomes NaN.

        Raise a ValueError if a cell is neither a number nor an allowed missing value.
        """
        if self.given.decimal == "." and "_" not in "".join(cells):
            with contextlib.suppress(ValueError):
                return list(map(float, cells))  # several times faster than what follows
        return list(map(self.value, cells))


class _Bytes(io.RawIOBase):
    """Offer the bytes in `data` as a file that is open for reading; `data` is a bytes object or a memory map."""

    def __init__(self, data: Any) -> None:
        self.data, self.place = data, 0

    def readable(self) -> bool:
        """Return True, because this file can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Copy the next bytes into `buffer`, as many as fit or are left, and return their number."""
        part = self.data[self.place : self.place + len(buffer)]
        buffer[: len(part)] = part
        self.place += len(part)
        return len(part)


def _is_missing(cell: str) -> bool:
    """Return whether `cell`, the text of a cell, stands for a missing value."""
    return cell.strip().lower() in MISSING


def table(path: Path, given: Given) -> Source:
    """Return the table in the CSV file at `path` as a `Source`, whose rows can be read in blocks.

    `given` holds the arguments of `egm.files.rows`, which say how the file was written. The number of rows in the
    result is None, because a CSV file does not say how many rows it has.
    """
    text = _Text(path, given)
    names = text.header("--delimiter says which character stands between columns")
    skip = int(_has_names(text, names))
    width = len(names)
    blanks = width == 1  # then a blank line may be somebody's empty cell
    if not skip:
        names = numbered(width)
    wanted = {*names}.difference(given.labels) if given.columns is None else given.columns
    text = replace(text, summed={i for i, name in enumerate(names) if name in wanted})

    def read(values: list[int], labels: list[int]) -> Iterator[tuple[Array, list[Labels]]]:
        with contextlib.closing(text.records(blanks)) as records:  # closes the file even if a cell is wrong
            header = "".join(itertools.islice(records, skip))
            if skip and (not header or text.cells(text.first, header) != names):
                raise FileError(f"{path}: {CHANGED}")
            first, start = text.first + header.count("\n"), 0
            for taken, lines in _blocks(records, rows_in_a_block(width)):
                yield _parsed(text, taken, start, first, names, values, labels)
                start, first = start + len(taken), first + lines

    def counts() -> Iterator[int]:
        rows, line, first_wrong = -skip, text.first, None
        with reading(path, given.encoding):
            for record in text.records(blanks, strict=False):
                rows, lines = rows + 1, record.count("\n")
                if isinstance(record, _Irregular) or _NO_TEXT in record:
                    try:
                        text.require_text(line, record)
                    except (UnicodeError, TextError) as error:
                        first_wrong = first_wrong or error
                        rows += max(1, lines) - 1  # without the wrong quote, each of them would be a row
                line += lines
                if rows >= _COUNTED:
                    yield rows
                    rows = 0
            if rows > 0:
                yield rows
            if first_wrong is not None:
                raise first_wrong

    return Source(names, None, read, counts)


def _blocks(records: Iterator[str], rows: int) -> Iterator[tuple[list[str], int]]:
    """Divide `records` into blocks, and yield for each a list of its records and the number of its line ends.

    A block ends where it has `rows` records, or at least `_CHARACTERS` characters, which are counted for `_PART`
    records at a time.
    """
    block, characters, lines = list[str](), 0, 0
    while part := list(itertools.islice(records, min(_PART, rows - len(block)))):
        text = "".join(part)
        block += part
        characters, lines = characters + len(text), lines + text.count("\n")
        if len(block) == rows or characters >= _CHARACTERS:
            yield block, lines
            block, characters, lines = [], 0, 0
    if block:
        yield block, lines


def _has_names(text: _Text, cells: list[str]) -> bool:
    """Return whether `cells`, the first cells of the table in `text`, are names of columns and not values.

    The argument `header` of `egm.files.rows` decides. If it is "auto", the cells decide; raise a FileError if they
    could be either.
    """
    given, line = text.given, f"{text.path}: line {text.first}"
    if given.header != "auto":
        return given.header == "yes"
    numbers = sum(map(text.is_number, cells))
    if 0 < numbers < len(cells):
        raise FileError(f"{line} has numbers and text; {_SAY}")
    if numbers:
        if _may_be_names(list(map(text.number, cells))):
            raise FileError(f"{line} has numbers that may be names, such as years, or values; {_SAY}")
        return False
    if given.known is not None and given.columns is None and not set(cells) <= set(given.known):
        raise FileError(f"{line} may have names or somebody's values, and not all are known as names; {_SAY}; {_ABOVE}")
    return True


def _may_be_names(numbers: list[float]) -> bool:
    """Return whether `numbers`, the first cells of a table, could be the names of columns, for example years.

    They could be names if all are whole numbers and no two of them are equal, or if they increase or decrease from cell
    to cell.
    """
    steps = np.diff(numbers)
    named = all(map(float.is_integer, numbers)) or bool(np.all(steps > 0) or np.all(steps < 0))
    return named and len(set(numbers)) == len(numbers)


def vector(path: Path, given: Given) -> Vector:
    """Return the names and the values in the CSV file at `path`, which has one value on each line.

    A line may have a name before the value. Without names, None is returned in place of the list of names. If the last
    cell of the first line is neither a number nor a missing value, this line is a header and is left out. `given` has
    the delimiter of the file.
    """
    text = _Text(path, given)
    first = text.header("columns must have commas between them")
    if len(first) > 2:
        raise FileError(f"{path}: must have one number a line, or a name and a number; line 1 has {len(first)} cells")
    width, skip = len(first), int(not (text.is_number(first[-1]) or _is_missing(first[-1])))
    names, values, following = [], [], 1
    doubtful = width == 2 and not skip  # 15,5 may be one number
    for row, record in enumerate(text.records()):
        number, following = following, following + record.count("\n")
        if row < skip:
            continue
        cells = text.cells(number, record)
        if len(cells) != width:
            raise FileError(f"{path}: line {number} has {len(cells)} cells, line 1 has {width}")
        if not text.is_number(cells[-1]):
            raise FileError(f"{path}: line {number}: {'not a number' if cells[-1] else 'no number'} (such as 15.5)")
        if width == 2 and ";" in record and '"' not in record:
            raise FileError(f"{path}: line {number} has ';': columns must have commas between them, and 15.5 a point")
        names.append(cells[0])
        values.append(text.number(cells[-1]))
        doubtful = doubtful and all(re.fullmatch(r"[-+]?\d+", cell, re.ASCII) for cell in cells)
    if doubtful:
        raise FileError(f"{path}: line 1 has a name and a number, or one number with a decimal comma; {_POINT}")
    return (names if width == 2 else None), np.array(values)


def _parsed(
    text: _Text, records: list[str], start: int, first: int, names: list[str], values: list[int], labels: list[int]
) -> tuple[Array, list[Labels]]:
    """Return the numbers in some columns of the `records`, one row for each record, and the labels in other columns.

    `values` has the indices of the columns with numbers, and `labels` those of the columns with labels. Raise a
    FileError for an infinite number, for NaN unless missing values are allowed, and for a missing label. For the
    message, `text` is the file, `names` has the names of all columns, `start` is the index of the first record in the
    table, and `first` the number of its line in the file.
    """
    width, mark, cells, texts = len(names), text.given.delimiter, list[str](), [list[str]() for _ in labels]
    everything = values == list(range(width))
    plain = not labels and text.given.decimal == "."
    if plain and all(line.count(mark) == width - 1 and '"' not in line and not line.isspace() for line in records):
        with contextlib.suppress(ValueError):  # twice as fast as what follows
            block = np.loadtxt(records, delimiter=mark, comments=None, usecols=None if everything else values, ndmin=2)
            if _finite(block, text.given).all():
                return block, []
    with contextlib.suppress(ValueError, csv.Error):
        if any(isinstance(record, _Irregular) for record in records):
            raise ValueError
        for row in csv.reader(records, strict=True, delimiter=mark):
            if len(row) != width:  # perhaps a blank line
                raise ValueError
            cells += row if everything else [row[i] for i in values]
            for column, i in zip(texts, labels, strict=True):
                column.append(row[i])
        whole = all(len(column) == len(records) for column in texts)  # otherwise a quote is open at the end of a line
        if whole and len(cells) == len(records) * len(values):
            block, found = np.array(text.values(cells)).reshape(len(records), -1), list(map(_labels, texts))
            if _finite(block, text.given).all() and all(column.all() for column in found):
                return block, found
    ends = itertools.accumulate((record.count("\n") for record in records), initial=first)
    places = zip(records, itertools.count(start), ends, strict=False)
    wanted = [_row(text, record, row, line, names, values, labels) for record, row, line in places]
    found = [_labels(column) for column in zip(*(texts for _, texts in wanted), strict=True)]
    return np.array([numbers for numbers, _ in wanted]), found


def _labels(cells: Sequence[str]) -> Labels:
    """Return the texts in `cells` as an array of objects, without the spaces around each text."""
    return np.array([cell.strip() for cell in cells], dtype=object)


def _finite(numbers: Array, given: Given) -> Array:
    """Return an array that says which of the `numbers` are allowed: finite numbers and, in some cases, NaN.

    NaN stands for a missing value. It is allowed if `given`, the arguments of `egm.files.rows`, allow missing values.
    """
    return ~np.isinf(numbers) if given.missing == "nan" else np.isfinite(numbers)


def _row(
    text: _Text, record: str, row: int, line: int, names: list[str], values: list[int], labels: list[int]
) -> tuple[list[float], list[str]]:
    """Return the numbers and the labels in one `record`, or raise a FileError that says what is wrong.

    The record has the index `row` in the table, and begins in line number `line` of the file. `text` is the file,
    `names` has the names of all columns, `values` has the indices of the columns with numbers, and `labels` those of
    the columns with labels.
    """
    cells = text.cells(line, record)
    place, hint = f"{text.path}: row {row + 1} (line {line})", "" if row else f" ({_ABOVE})"
    if text.is_blank(record):
        raise FileError(f"{place} is blank{hint}")
    if len(cells) != len(names):
        others = f"line {text.first} has {len(names)}{hint}"
        if text.given.header == "no":
            is_usual = text.usual_width() == len(names)
            others = f"most of the first rows have {len(names)}{hint}" if is_usual else f"{len(names)} {_NEEDED}"
        raise FileError(f"{place} has {len(cells)} cells, {others}")
    numbers = []
    for i in values:
        try:
            numbers.append(text.value(cells[i]))
        except ValueError:
            raise FileError(f"{place}, column {names[i]!r}: {_reason(cells[i], text.given)}") from None
        if not _finite(np.array(numbers[-1]), text.given):
            why = f"{wrong(numbers[-1])}{_CHOOSE if math.isnan(numbers[-1]) else ''}"
            raise FileError(f"{place}, column {names[i]!r}: {why}")
    for i in labels:
        if not cells[i]:
            raise FileError(f"{place}, column {names[i]!r}: missing")
    return numbers, [cells[i] for i in labels]


def _reason(cell: str, given: Given) -> str:
    """Return text that says why `cell`, the text of a cell, is not read as a number, and which option may help.

    `given` has the arguments with which the file is read.
    """
    if _is_missing(cell):
        return f"missing{_CHOOSE}"
    is_plain = given.decimal != "." or given.thousands or not re.fullmatch(r"[-+]?[\d.,' ]*\d[\d.,' ]*", cell)
    return f"not a number{'' if is_plain else ' (--decimal and --thousands say how numbers are written)'}"
