"""Find the wanted columns of a table, and check its values, with errors that name the file, the row and the column."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from egm._files.source import FileError, Labels, wrong
from egm._types import Array

__all__ = ["checked", "few_names", "places_of", "refuse_twins", "require_lists"]


def require_lists(**named: object) -> None:
    """Raise a TypeError if an argument that is a list of names is a single text, whose letters would be the names.

    The arguments are passed by keyword, and the error shows the keyword.
    """
    for name, value in named.items():
        if isinstance(value, str):
            raise TypeError(f"{name} must be a list of names, got {value!r}")


def places_of(path: Path, names: list[str], columns: Sequence[str] | None, shown: bool) -> list[int]:
    """Return the indices of the wanted columns among `names`, the columns of the file at `path`.

    `columns` has the names of the wanted columns, or None for all. Raise a FileError if a wanted name does not occur
    exactly once in `names`. The message shows other names from the file only if `shown` is true.
    """
    if columns is None:
        if not shown and _twins(names):
            raise FileError(f"{path}: the header names two columns alike")
        refuse_twins(path, names)
        return list(range(len(names)))
    refuse_twins(path, columns)
    places = {name: i for i, name in enumerate(names)}
    twins = _twins(names)
    for name in columns:
        if name not in places or name in twins:
            number = "more than one" if name in places else "no"
            raise FileError(f"{path}: has {number} column {name!r}{f'; it has {few_names(names)}' if shown else ''}")
    return [places[name] for name in columns]


def refuse_twins(path: Path, names: Sequence[str]) -> None:
    """Raise a FileError that begins with `path`, the name of the file, if one of the `names` occurs twice."""
    for twin in _twins(names):
        raise FileError(f"{path}: the column {twin!r} is named twice")


def _twins(names: Sequence[str]) -> list[str]:
    """Return the names that occur more than once in `names`."""
    if len(set(names)) == len(names):  # nearly always, and far faster to see
        return []
    return [name for name, number in Counter(names).items() if number > 1]


def few_names(names: Sequence[str]) -> str:
    """Return text for a message: the first eight of `names` and, if there are more, how many more."""
    return ", ".join(map(repr, names[:8])) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def checked(
    path: Path, names: Sequence[str], pairs: Iterator[tuple[Array, list[Labels]]], missing: str
) -> Iterator[tuple[Array, list[Labels]]]:
    """Yield `pairs` unchanged, each a block of rows and a list of its labels; raise a FileError at a wrong value.

    A value in a block is wrong if it is infinite, or if it is NaN and `missing` is not "nan". The message has the
    `path` of the file, the row of the value, and the name of its column, which is one of `names`.
    """
    start = 0
    for block, labels in pairs:
        allowed = ~np.isinf(block) if missing == "nan" else np.isfinite(block)
        if not allowed.all():
            i, j = np.argwhere(~allowed)[0]
            raise FileError(f"{path}: row {start + i + 1}, column {names[j]!r}: {wrong(block[i, j])}")
        yield block, labels
        start += len(block)
