"""Define what the readers of all kinds of files have in common: their arguments, their results and their error."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from egm._types import Array

__all__ = ["FileError", "Given", "Source", "Vector", "numbered", "reading", "rows_in_a_block", "wrong"]

_BLOCK = 1 << 18  # numbers in a block

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


@dataclass(frozen=True)
class Given:
    """Hold those arguments of `egm.files.rows` that decide whether the first line of a CSV file has names."""

    header: str
    columns: Sequence[str] | None
    known: Collection[str] | None
    width: int | None


@dataclass(frozen=True)
class Source:
    """Describe a table in a file before columns are chosen.

    `names` is the list of the names of all columns. `count` is the number of rows, or None if the file does not say how
    many rows it has. The function `read` takes the indices of the columns to read, and yields blocks of rows. The
    function `counts` yields whole numbers whose sum is the number of rows.
    """

    names: list[str]
    count: int | None
    read: Callable[[list[int]], Iterator[Array]]
    counts: Callable[[], Iterator[int]]


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn errors of a `with` block that reads the file at `path` into a FileError that names the file.

    The errors are those of the operating system, and the error for text that is not UTF-8.
    """
    try:
        yield
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise FileError(f"{path}: is not UTF-8 text") from None


def wrong(value: float) -> str:
    """Return text that describes a `value` that is not finite: "NaN or missing", or "infinite"."""
    return "NaN or missing" if np.isnan(value) else "infinite"


def rows_in_a_block(columns: int) -> int:
    """Return the number of rows that are read at a time (a block) from a table whose number of columns is `columns`."""
    return max(1, _BLOCK // columns)


def numbered(width: int) -> list[str]:
    """Return the names "1", "2" and so on, for `width` columns that have no names."""
    return [str(i + 1) for i in range(width)]
