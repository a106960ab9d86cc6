"""Define what the readers of all kinds of files have in common: their arguments, their results and their error."""

from __future__ import annotations

import contextlib
import gzip
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from egm._types import Array

__all__ = [
    "CHANGED",
    "FileError",
    "Given",
    "Labels",
    "Source",
    "TextError",
    "Vector",
    "numbered",
    "reading",
    "rows_in_a_block",
    "wrong",
]

CHANGED = "has other columns than a moment ago"  # said of a file that was replaced while it was read
_BLOCK = 1 << 18  # numbers in a block

Labels: TypeAlias = NDArray[Any]  # the labels of the rows of a block: numbers, dates, or objects that are texts
Vector: TypeAlias = tuple[list[str] | None, Array]  # names, if the file has any, and values


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


class TextError(FileError):
    """Error for text in a file that cannot be divided into cells; it says something about a cell, which is private."""


@dataclass(frozen=True)
class Given:
    """Hold the arguments of `egm.files.rows` that say how a CSV file was written, and which columns are wanted.

    `spooled` has the bytes of standard input, if that is read instead of a file.
    """

    header: str = "auto"
    columns: Sequence[str] | None = None
    known: Collection[str] | None = None
    width: int | None = None
    delimiter: str = ","
    decimal: str = "."
    encoding: str = "utf-8"
    missing: str = "error"
    thousands: str | None = None
    skip_lines: int = 0
    labels: Sequence[str] = ()
    spooled: Any = None


@dataclass(frozen=True)
class Source:
    """Describe a table in a file before columns are chosen.

    `names` is the list of the names of all columns. `count` is the number of rows, or None if it is not known. The
    function `read` takes the indices of the columns that hold values and of those that hold labels, such as ids of
    persons, and yields pairs: a block of rows of the values, and a list of arrays of labels. The function `counts`
    yields whole numbers whose sum is the number of rows; if text of a cell makes this number doubtful, it raises a
    TextError at the end. `require` takes the arguments of `read`, and raises a FileError for a column of the wrong
    type, without reading a row. `label_type` takes the index of a column of labels, and returns NumPy's type for them.
    """

    names: list[str]
    count: int | None
    read: Callable[[list[int], list[int]], Iterator[tuple[Array, list[Labels]]]]
    counts: Callable[[], Iterator[int]]
    require: Callable[[list[int], list[int]], None] = lambda values, labels: None
    label_type: Callable[[int], np.dtype[Any]] = lambda label: np.dtype(np.str_)


@contextlib.contextmanager
def reading(path: Path, encoding: str | None = None) -> Iterator[None]:
    """Turn errors of a `with` block that reads the file at `path` into a FileError that names the file.

    The errors are those of the operating system, of a damaged gzip file, and of text that is not in the `encoding`.
    None means UTF-8, which the user cannot change; for another value the message mentions the option --encoding.
    """
    try:
        yield
    except (gzip.BadGzipFile, zlib.error):  # their own messages show bytes of the file
        raise FileError(f"{path}: is not a gzip file, or a damaged one") from None
    except EOFError:
        raise FileError(f"{path}: the gzip file ends too early") from None
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from None
    except UnicodeError:
        hint = " (save it as UTF-8)" if encoding is None else " (--encoding can name another)"
        raise TextError(f"{path}: is not {(encoding or 'utf-8').upper()} text{hint}") from None


def wrong(value: float) -> str:
    """Return text that describes a `value` that is not finite: "NaN or missing", or "infinite"."""
    return "NaN or missing" if np.isnan(value) else "infinite"


def rows_in_a_block(columns: int) -> int:
    """Return the number of rows that are read at a time (a block) from a table whose number of columns is `columns`."""
    return max(1, _BLOCK // columns)


def numbered(width: int) -> list[str]:
    """Return the names "1", "2" and so on, for `width` columns that have no names."""
    return [str(i + 1) for i in range(width)]
