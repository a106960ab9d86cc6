"""Match the names of columns in vectors and tables, and return the numbers of a table in the wanted order.

Tables of pandas, polars, pyarrow and dask are recognized by their attributes; none of these packages is imported. The
entries of a vector have names if the vector is a mapping or has an `index`, like a Series of pandas. Labels that only
number the columns, from 0 as in pandas or from "1" as in `egm.files`, do not count as names.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence, Set
from typing import Any

import numpy as np
from numpy.typing import NDArray

from egm._types import Columns

__all__ = [
    "ColumnError",
    "arranged",
    "array",
    "check",
    "check_vector",
    "column_names",
    "declared",
    "is_blocks",
    "ordered",
    "ordered_square",
    "places",
    "refuse_rows_of_tables",
    "require_one_type",
]

_SHOWN = 5  # names shown in a message
_COPIED = 1 << 20  # numbers copied at a time


class ColumnError(TypeError):
    """Error for a column that does not hold numbers; the message shows its name and type, which are public."""


# Vectors ------------------------------------------------------------------------------------------------------------


def declared(columns: object, **named: object) -> Columns:
    """Return the names of a mechanism's columns: `columns` if it is not None, or else the names of a vector's entries.

    The vector is given as the one keyword argument in `named`, of any name. It may have names, like a Series or a
    mapping; names that only number the entries, such as 0, 1, 2, count as no names. The result is None if `columns` is
    None and the vector has no names. Raise TypeError if `columns` is not a sequence of names, and ValueError if a name
    occurs twice.
    """
    ((_, vector),) = named.items()
    if columns is None:
        labels = _labels(vector)
        return None if labels is None or _is_counted(labels) else labels
    if isinstance(columns, str | Set) or not hasattr(columns, "__iter__"):  # a set has no order
        raise TypeError(f"columns must be a sequence of names, got {columns!r}")
    names = list(columns.tolist() if hasattr(columns, "tolist") else columns)
    if not all(isinstance(name, Hashable) for name in names):
        raise TypeError(f"columns must be a sequence of names, got {columns!r}")
    return _distinct("columns", names)


def ordered(columns: Columns, **named: object) -> Any:
    """Return the entries of a vector; if they have names, return them in the order of the names in `columns`.

    The vector is given as the one keyword argument in `named`, of any name. Its entries have names if it is a mapping
    or a Series; names that only number the entries, such as 0, 1, 2, count as no names. Raise ValueError if the names
    are not the names in `columns`, or if there are two or more names and `columns` is None.
    """
    ((name, vector),) = named.items()
    labels = _labels(vector)
    if labels is None:
        return vector
    values: Any = list(vector.values()) if isinstance(vector, Mapping) else _values(vector)
    place = _places(name, labels, columns)
    return values if place is None else [values[i] for i in place]


def ordered_square(columns: Columns, **named: object) -> Any:
    """Return a square table with a row and a column for each name; if it has names, put both in the order of `columns`.

    The table is given as the one keyword argument in `named`, of any name, and `columns` is a tuple of names or None.
    Raise ValueError if the table's names are not the names in `columns`, or if its rows are in another order than its
    columns.
    """
    ((name, table),) = named.items()
    labels = column_names(table)
    if labels is None:
        return table
    index = getattr(table, "index", None)
    if index is not None and not callable(index) and tuple(index) != labels:
        raise ValueError(f"{name} must have the same names for rows and columns, in one order")
    values, place = array(**{name: table}), _places(name, labels, columns)
    return values if place is None else values[np.ix_(place, place)]


def check_vector(columns: Columns, **named: object) -> None:
    """Raise the errors that `ordered` would raise for a vector, without reading the numbers in the vector.

    The vector is given as the one keyword argument in `named`, of any name. `columns` has the names of the columns or
    is None. Only the names of the vector's entries are compared with `columns`.
    """
    ((name, vector),) = named.items()
    labels = _labels(vector)
    if labels is not None:
        _places(name, labels, columns)


def _labels(vector: object) -> tuple[Hashable, ...] | None:
    """Return the names of the entries of `vector`: the keys of a mapping, or the index of a Series; otherwise None."""
    if isinstance(vector, Mapping):
        return tuple(vector)
    index = getattr(vector, "index", None)
    if index is None or callable(index) or getattr(vector, "ndim", 1) != 1:  # lists and strings have a method index
        return None
    return _distinct(f"the index of a vector, {type(vector).__name__},", index)


def _values(series: Any) -> NDArray[Any]:
    """Return the entries of `series`, a Series of pandas, as an array; among numbers, a missing value becomes NaN."""
    found = np.asarray(series)
    if found.dtype.kind == "O" and getattr(series.dtype, "kind", "O") in "iuf":
        return np.asarray(series.to_numpy(dtype=float, na_value=np.nan))
    return found


# Tables -------------------------------------------------------------------------------------------------------------


def is_blocks(X: object) -> bool:
    """Return whether `X` is an object like `egm.files.Table`, which reads a table in blocks of rows.

    `X` must have the names of the columns, a tuple, in ``X.names``, and a function ``X.blocks``.
    """
    return isinstance(getattr(X, "names", None), tuple) and callable(getattr(X, "blocks", None))


def column_names(X: object) -> tuple[Hashable, ...] | None:
    """Return the names of the columns of the table `X`, or None if `X` has no such names, for example for an array."""
    if is_blocks(X):
        return tuple(X.names)  # type: ignore[attr-defined]  # it has names
    if isinstance(X, np.ndarray) or not (hasattr(X, "__array__") or _is_dask_frame(X)):
        return None
    # A column of a frame is an attribute of it, too, and may have this very name: so the type must have it.
    given = _is_dask_array(X) or hasattr(type(X), "column_names")
    names = getattr(X, "column_names" if given else "columns", None)
    return None if names is None or callable(names) else tuple(names)


def check(X: object, columns: Columns, labels: Collection[Hashable] = ()) -> None:
    """Raise ValueError if the table `X` has names of columns and these are not the names in `columns`, in any order.

    X may have the columns in `labels`, too, and must have them if it has names.

    Names that only number the columns are accepted. If `columns` is None, two or more other names are refused. Raise
    TypeError if `X` is a data frame of dask with a column that does not hold numbers.
    """
    names = column_names(X)
    if names is None:
        return
    for label in labels:
        if label not in names:
            raise ValueError(f"X must have a column {label!r}, and has {_few(names)}")
    names = tuple(name for name in names if name not in labels)
    _places("X", _distinct("X", names), columns)
    if _is_dask_frame(X):
        _refuse_others("X", _select(X, list(names)) if labels else X, names)


def arranged(X: Any, columns: Columns) -> Any:
    """Return the numbers of the table `X` with its columns in the order of the names in `columns`.

    The result is an array, a dask array, or an iterator of arrays that hold a block of rows each. If `X` is an iterator
    of blocks, the columns of each block are put into this order. An object without names is returned unchanged. The
    errors are those of `check`.
    """
    if isinstance(X, Iterator):
        return _flat(arranged(block, columns) for block in X)
    refuse_rows_of_tables(X)
    names = column_names(X)
    if names is None:
        return X
    check(X, columns)
    place = _places("X", names, columns)
    if is_blocks(X):
        return X.blocks() if place is None else (block[:, place] for block in X.blocks())
    if _is_dask_array(X):
        return X if place is None else X[:, place]
    wanted = [names[i] for i in place or []]
    if not _is_dask_frame(X):
        return array(X=X) if place is None else _blocks(X, wanted)
    by_name = columns is not None and set(columns) == set(names)
    chosen = X.map_partitions(_select, list(columns or ())) if by_name else X  # a partition may have its own order
    plain = all(isinstance(kind, np.dtype) and kind.kind in "iuf" for kind in X.dtypes)
    return (chosen if plain else chosen.astype(float)).to_dask_array()


def places(X: object, columns: Columns) -> list[int] | None:
    """Return, for each name in `columns`, the index of this column of the table `X`; None if nothing must be moved."""
    names = column_names(X)
    return None if names is None else _places("X", names, columns)


def _is_dask_frame(X: object) -> bool:
    """Return whether `X` is a data frame of dask."""
    return hasattr(type(X), "to_dask_array")


def refuse_rows_of_tables(X: object) -> None:
    """Raise TypeError if `X` is a list of tables, or a list of rows with names, such as Series of pandas.

    The names of the rows in a list would be ignored. A table here is any object with a shape of two numbers.
    """
    if isinstance(X, list | tuple):
        for row in X:
            if len(getattr(row, "shape", ())) == 2:
                way_out = "put them together, or give iter(X) where blocks of rows are taken"
                raise TypeError(f"X must be one table or array, got a list of them: {way_out}")
            index = getattr(row, "index", None)
            if index is not None and not callable(index):  # a list's index is a method
                raise TypeError(
                    "X must be one table or array, got a list of rows with names: a data frame of them is one"
                )


def _blocks(X: Any, names: list[Hashable]) -> Iterator[NDArray[Any]]:
    """Yield arrays of rows of the table `X`, block by block, with the columns that `names` lists, in that order.

    In this way only one block of the table is copied at a time.
    """
    step = max(1, _COPIED // len(names))
    for start in range(0, len(X), step):
        yield array(X=_select(X[start : start + step], names))


def _flat(blocks: Iterator[Any]) -> Iterator[Any]:
    """Yield the `blocks` in their order; for a block that is itself an iterator, yield the blocks that it yields."""
    for block in blocks:
        if isinstance(block, Iterator):
            yield from block
        else:
            yield block


def _is_dask_array(X: object) -> bool:
    """Return whether `X` is a dask array, with or without names of its columns.

    A dask array from `egm.files.from_parquet` has names in an additional attribute.
    """
    return type(X).__module__.split(".")[0] == "dask" and hasattr(X, "map_blocks") and not _is_dask_frame(X)


def array(**named: Any) -> NDArray[Any]:
    """Convert an argument to an array as numpy.asarray does, with two exceptions for tables.

    The argument is given as the one keyword argument in `named`, of any name. In a table, False and True become 0 and
    1, and a missing value becomes NaN. Raise TypeError for a table with a column that holds neither numbers nor
    booleans.
    """
    ((name, value),) = named.items()
    unnamed = is_blocks(value) or _is_dask_frame(value) or _is_dask_array(value)
    names = None if unnamed else column_names(value)
    if names is None:
        return np.asarray(value)
    if np.asarray(value[:0]).dtype.kind in "iuf" and (found := np.asarray(value)).dtype.kind in "iuf":
        return found
    _refuse_others(name, value, names)
    if hasattr(value, "iloc"):
        return np.asarray(value.to_numpy(dtype=float, na_value=np.nan))
    return np.asarray(value).astype(float)


def require_one_type(name: str, X: Any) -> None:
    """Raise TypeError if the columns of the table `X` have different types; the message calls the table by `name`.

    In a single array the integers of such a table would become doubles, and large integers would be rounded.
    """
    names = column_names(X)
    if names is not None and not _is_dask_array(X):
        kinds = set(map(str, _kinds(X)))
        if len(kinds) > 1:
            raise ColumnError(f"{name} must hold numbers of one type, but its columns are {', '.join(sorted(kinds))}")


def _kinds(X: Any) -> Any:
    """Return the types of the columns of the table `X`, one for each column."""
    return X.schema.types if hasattr(type(X), "column_names") else X.dtypes


def _select(X: Any, names: list[Hashable]) -> Any:
    """Return the columns of the table `X` that `names` lists, in the order of `names`, as a table."""
    return X.select(names) if hasattr(X, "select") else X[names]


def _refuse_others(name: str, X: Any, names: Sequence[Hashable]) -> None:
    """Raise TypeError if a column of the table `X` holds neither numbers nor booleans.

    `names` has the names of all columns. The message shows the first wrong column, and calls the table by `name`.
    """
    if not _is_dask_frame(X) and np.asarray(X[:0]).dtype.kind in "biuf":
        return
    for column, kind in zip(names, _kinds(X), strict=True):
        letter = kind.kind if hasattr(kind, "kind") else np.asarray(_select(X, [column])[:0]).dtype.kind
        if letter not in "biuf":
            raise ColumnError(
                f"{name} must hold real numbers in every column, but its column {column!r} has the type {kind}: "
                f"make numbers of it, or choose others"
            )


def split(X: Any, *names: Hashable) -> tuple[Any, list[NDArray[Any]]]:
    """Return the table `X` without the columns called `names`, and these columns as vectors."""
    import narwhals.stable.v2 as nw

    frame = nw.from_native(X, eager_only=True)
    for name in names:
        if name not in frame.columns:
            raise ValueError(f"X must have a column {name!r}, and has {_few(frame.columns)}")
    return frame.drop(*names).to_native(), [frame[name].to_numpy() for name in names]


# Names --------------------------------------------------------------------------------------------------------------


def _places(name: str, labels: tuple[Hashable, ...], columns: Columns) -> list[int] | None:
    """Return, for each name in `columns`, its index among `labels`, the names that a vector or a table has.

    Return None if nothing must be moved: the order of the names is already right, or the labels only number the
    columns. Raise ValueError if the labels are other names than those in `columns`, or if `columns` is None and there
    are two or more labels that do not only number the columns. `name` is the name of the vector or table in the
    message.
    """
    if columns is None:
        if len(labels) < 2 or _is_counted(labels):
            return None
        raise ValueError(
            f"{name} has names, {_few(labels)}, and the mechanism has none to match them with: give it columns=, "
            f"the names in the order of its parameters"
        )
    place = {label: i for i, label in enumerate(labels)}
    if place.keys() == set(columns):
        found = [place[column] for column in columns]
        return None if found == list(range(len(found))) else found
    if _is_counted(labels) and not place.keys() & set(columns):
        return None
    missing = [column for column in columns if column not in place]
    wanted = set(columns)
    unknown = [label for label in labels if label not in wanted]
    parts = [f"without {_few(missing)}"] * bool(missing) + [f"with {_few(unknown)} besides"] * bool(unknown)
    given = " and ".join(parts)
    raise ValueError(f"{name} must have the names of the mechanism's columns, {_few(columns)}, and comes {given}")


def _is_counted(labels: Sequence[Hashable]) -> bool:
    """Return whether `labels` only number the columns: they are 0, 1, 2, ... or the texts "1", "2", "3" and so on."""
    return all(label == i for i, label in enumerate(labels)) or all(
        label == str(i) for i, label in enumerate(labels, start=1)
    )


def _distinct(name: str, labels: Any) -> tuple[Hashable, ...]:
    """Return `labels` as a tuple, or raise ValueError if a label occurs twice.

    The message calls the labeled vector or table by `name`.
    """
    seen: dict[Hashable, None] = {}
    for label in labels:
        if label in seen:
            raise ValueError(f"{name} must name each column once, got {label!r} twice")
        seen[label] = None
    return tuple(seen)


def _few(labels: Collection[Hashable]) -> str:
    """Return text for a message: the first five of `labels` and, if there are more, the number of the rest."""
    shown = ", ".join(repr(label) for label in list(labels)[:_SHOWN])
    return shown + (f" and {len(labels) - _SHOWN} more" if len(labels) > _SHOWN else "")
