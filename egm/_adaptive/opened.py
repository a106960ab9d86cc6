"""Open the rows that are given to an adaptive mechanism, so that they can be read several times, and check them.

If persons are given, the rows of each person are first replaced by their sum or mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from egm import _tables
from egm._adaptive.declared import Declared
from egm._rows import people
from egm._rows.dask import is_dask
from egm._rows.passes import Passes, Reopened, peeked
from egm._types import Array, Columns
from egm._validate import shown_shape, unread_matrix


def opened(X: Any, person: object, declared: Declared) -> tuple[Passes, Columns]:
    """Return the rows of `X`, to be read several times, and the names of their columns, or None if they have no names.

    `X` has the rows in any of the forms that `egm.AdaptiveDataMechanism.release` accepts, and `person` says to whom
    each row belongs, or is None. With `person` the result has one row for each person. Raise a ValueError if the
    numbers of rows and columns are not the declared ones, if the budget is too small for them, or if an entry is not
    finite.
    """
    labels = people.label_names(X, declared.columns, person=person)
    first, held = _held(X, person is not None, declared)
    columns = declared.columns or _tables.column_names(first)
    columns = columns and tuple(name for name in columns if name not in labels)
    passes = _passes(held, declared) if person is None else _persons(held, person, first, declared)
    n, d = passes.shape
    if n != declared.n and not declared._counted:  # the shape of other rows is known only now
        unit = "rows" if person is None else "persons"
        raise ValueError(f"X must have the declared n = {declared.n} {unit}, got {n}")
    declared._require_columns(d, "X")
    declared._require_enough(d)
    passes.require_finite()
    return passes, columns


def check(X: Any, person: object, declared: Declared) -> None:
    """Raise the errors that a release would raise for the budget, `person`, and the type, shape and names of `X`.

    No row is read. `declared` has what the user declared about the rows.
    """
    people.require_person(person, declared.per_person)
    _tables.require_gaps(X, declared.missing)
    table, shape = people.layout(X, declared.columns, person=person)
    if isinstance(X, Iterator) and person is None:  # with persons it is read once
        raise TypeError(
            "X must be such that it can be read several times, got an iterator: give a function that returns a "
            "new iterator each time, an array of all rows, the table of egm.files.rows, or a dask array"
        )
    if declared.columns is None and declared._named:
        _tables.check(table, None)
    public = person is None and not declared._counted
    if _is_empty(X) and _declared_width(declared):
        shape = (0, _declared_width(declared))
    if len(shape) != 2 or shape[1] == 0:
        given = shape if public else shown_shape("X", shape)
        column = "; np.reshape(X, (-1, 1)) is a column" if len(shape) == 1 else ""
        raise ValueError(f"X must have shape ({declared.n if public else 'rows'}, columns), got {given}{column}")
    if public and shape[0] != declared.n and not np.isnan(shape[0]):
        raise ValueError(f"X must have the declared n = {declared.n} rows, got {shape[0]}")
    d = _declared_width(declared) if np.isnan(shape[1]) else int(shape[1])
    if d:
        declared._require_columns(d, "X")
        declared._basis(d)
    declared._require_enough(d or 1)


def _declared_width(declared: Declared) -> int:
    """Return the declared number of columns, or 0 if it is not declared."""
    return len(declared.ranges or declared.columns or ())


def _is_empty(X: Any) -> bool:
    """Return whether `X` is a list or a tuple without rows, which does not show the number of columns."""
    return isinstance(X, list | tuple) and not X


def _held(X: Any, once: bool, declared: Declared) -> tuple[Any, Any]:
    """Return an object that shows the names of the columns of `X`, and an object from which the rows can be read.

    Both objects are `X` itself if it is an array or a table. Otherwise `X` is an iterator over blocks of rows, or a
    function that returns one. If the rows are read only `once`, the objects are the first block, and an iterator over
    all blocks. If they are read several times, `X` must be a function, and both objects are one table that calls this
    function for each reading; but the first object is None if the columns have no names. `declared` has what the user
    declared about the rows.
    """
    if not _tables.is_read_later(X):
        return X, X
    if once:
        return peeked(_tables.opened(X))
    table = Reopened(X, declared._gaps, declared.columns, _declared_width(declared))
    return table if table.named else None, table


def _passes(X: Any, declared: Declared) -> Passes:
    """Return the rows `X`, in the order of the declared columns, as an object that can be read several times."""
    X = _tables.chosen(X, declared.columns)
    columns = declared.columns if declared._named else _tables.column_names(X)
    gaps = declared._gaps
    held = _tables.arranged(X, columns, gaps)
    if is_dask(held):
        return Passes(held, gaps=gaps)
    if isinstance(held, Iterator):
        shape = None if declared._counted else declared.n, len(_tables.column_names(X) or ())
        return Passes(partial(_tables.arranged, X, columns, gaps), shape, gaps)
    return Passes(unread_matrix(_declared_width(declared) or None, X=held), gaps=gaps)


def _persons(X: Any, person: object, first: Any, declared: Declared) -> Passes:
    """Return one row for each person: the sum or the mean of the rows of this person in `X`.

    `declared.per_person` is "sum" or "mean". `person` says to whom each row belongs: an array, or the name of a column.
    `first` is `X` or, if `X` is an iterator over blocks, the first block or None; it shows the names of the columns.
    Raise a ValueError if their number is neither shown nor declared.
    """
    if declared.columns is None:
        labels = people.label_names(X, person=person)
        names = tuple(name for name in _tables.column_names(first) or () if name not in labels) or None
        shown = first is not None and not _is_empty(first)
        d = len(names) if names is not None else np.shape(first)[1] if shown else _declared_width(declared)
        if not d:
            raise ValueError("X must have at least one block of rows, because the number of columns is not declared")
        source = people.Source(names, d, person, gaps=declared._gaps)
    else:
        source = people.Source(declared.columns, len(declared.columns), person, gaps=declared._gaps)
    found = source.results(X, partial(_kept, how=declared.per_person, d=source.d))
    return Passes(np.concatenate([kept for kept, _ in found]), gaps=declared._gaps)


def _kept(source: Iterator[people.Block], how: people.PerPerson, d: int) -> tuple[Array, int]:
    """Return the sum or the mean of the rows of each person, shape (persons, d), and the number of persons.

    `source` yields blocks of rows with `d` columns, sorted by person. `how` is "sum" or "mean".
    """
    kept = [block.values for block in people.gathered(source, how)]
    rows = np.concatenate([np.empty((0, d)), *kept])
    return rows, len(rows)
