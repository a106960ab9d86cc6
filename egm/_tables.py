"""Match the names of columns in vectors and tables, and return the numbers of a table in the wanted order.

Data frames and series of pandas, polars and Arrow are read through the library narwhals, which is imported only for an
object that could be one of them. Dask is recognized by its attributes. The entries of a vector have names if the vector
is a mapping or a Series with an index, as in pandas. Labels that only number the columns, from 0 as in pandas or from
"1" as in `egm.files`, do not count as names.
"""

from __future__ import annotations

import contextlib
import operator
import re
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from egm._threads import in_parallel
from egm._types import Columns

if TYPE_CHECKING:
    from narwhals.stable.v2.dtypes import DType

__all__ = [
    "ColumnError",
    "Encoded",
    "arranged",
    "array",
    "check",
    "check_vector",
    "chosen",
    "column_names",
    "counted_from",
    "declared",
    "has_another_index",
    "indices",
    "is_blocks",
    "is_read_later",
    "kept",
    "label_type",
    "labels_of",
    "opened",
    "ordered",
    "ordered_square",
    "refuse_rows_of_tables",
    "require_finite",
    "require_gaps",
    "require_one_type",
    "shape",
    "split",
    "without",
]

_SHOWN = 5  # names shown in a message
_COPIED, _VIEWED = 1 << 20, 1 << 22  # numbers in a block: of a copy, or of a view of the data frame
_ENCODED = 1 << 19  # labels that are encoded at a time
_NO_FRAMES = frozenset({"builtins", "numpy", "egm", "dask"})  # packages without data frames for narwhals


class Encoded(NamedTuple):
    """Hold the labels in a column: the label of row i is ``distinct[places[i]]``.

    All labels in `distinct`, an array of texts or of integers, are different, and each is the label of some row.
    """

    distinct: NDArray[Any]
    places: NDArray[np.integer[Any]]


class ColumnError(TypeError):
    """Error for a column that does not hold numbers; the message shows its name and type, which are public."""


# Vectors ------------------------------------------------------------------------------------------------------------


def declared(columns: object, **named: object) -> Columns:
    """Return the names of a mechanism's columns: `columns` if it is not None, or else the names of a vector's entries.

    The vector, such as a Series or a mapping, is passed by keyword. Names that only number the entries, such as 0, 1,
    2, count as no names. If there are no names, the result is None. Raise TypeError if `columns` is not a sequence of
    names, and ValueError if a name occurs twice.
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

    The vector is passed by keyword, and errors show its name. Its entries have names if it is a mapping or a Series;
    names that only number the entries, such as 0, 1, 2, count as no names. Raise ValueError if the names are not the
    names in `columns`. If `columns` is None, a single name is ignored, and more names are an error.
    """
    ((name, vector),) = named.items()
    labels = _labels(vector)
    if labels is None:
        return vector
    values: Any = list(vector.values()) if isinstance(vector, Mapping) else _as("Series", vector).to_numpy()
    place = _places(name, labels, columns)
    return values if place is None else [values[i] for i in place]


def ordered_square(columns: Columns, **named: object) -> Any:
    """Return a square table, such as a covariance matrix, with rows and columns in the order of the names in `columns`.

    The table is passed by keyword, and errors show its name. A table without names is returned unchanged. Raise
    ValueError if the names are not those in `columns`, or if the rows are in another order than the columns.
    """
    ((name, table),) = named.items()
    labels = column_names(table)
    if labels is None:
        return table
    if (index := _index(_as("DataFrame", table))) is not None and tuple(index) != labels:
        raise ValueError(f"{name} must have the same names for rows and columns, in one order")
    values, place = array(**{name: table}), _places(name, labels, columns)
    return values if place is None else values[np.ix_(place, place)]


def check_vector(columns: Columns, **named: object) -> None:
    """Raise the errors that `ordered` would raise for a vector, without reading the numbers in it.

    The vector is passed by keyword, and errors show its name. `columns` has the names of the columns or is None.
    """
    ((name, vector),) = named.items()
    labels = _labels(vector)
    if labels is not None:
        _places(name, labels, columns)


def _labels(vector: object) -> tuple[Hashable, ...] | None:
    """Return the names of the entries of `vector`: the keys of a mapping, or the index of a Series; otherwise None."""
    if isinstance(vector, Mapping):
        return tuple(vector)
    if (index := _index(_as("Series", vector))) is None:
        return None
    return _distinct(f"the index of a vector, {type(vector).__name__},", index)


# Data frames --------------------------------------------------------------------------------------------------------


def _as(kind: Literal["DataFrame", "Series"], X: Any) -> Any:
    """Return `X` as a data frame or a series of the library narwhals, or None if `X` is not one.

    `kind` is "DataFrame" or "Series", and says which of the two is wanted. Raise ValueError if two columns of a data
    frame have the same name.
    """
    if isinstance(X, np.ndarray) or type(X).__module__.partition(".")[0] in _NO_FRAMES:
        return None
    import narwhals.stable.v2 as nw

    try:
        if hasattr(type(X), "__arrow_c_array__") and hasattr(type(X), "__arrow_c_stream__"):  # a batch of pyarrow
            X = nw.from_arrow(X, backend="pyarrow")
        found = nw.from_native(X, eager_only=True, allow_series=True, pass_through=True)
    except nw.exceptions.DuplicateError:
        _distinct("X", X.column_names if hasattr(type(X), "column_names") else X.columns)
        raise
    return found if isinstance(found, getattr(nw, kind)) else None


def _index(found: Any) -> Any:
    """Return the index of a data frame or series of the library narwhals; None if it has none, or if `found` is None.

    Only objects that were made from pandas have an index.
    """
    if found is None:
        return None
    import narwhals.stable.v2 as nw

    return nw.maybe_get_index(found)


def _is_of_numpy(dtype: DType) -> bool:
    """Return whether `dtype`, the type of a column of the library narwhals, is a numeric type that NumPy also has."""
    return dtype.is_numeric() and type(dtype).__name__ not in ("Decimal", "Int128", "UInt128")


def _others(name: str, frame: Any) -> list[int]:
    """Return the indices of the columns of `frame` whose entries must be cast to doubles, such as booleans or decimals.

    No row of `frame`, a data frame of the library narwhals, is read. Raise TypeError for a column that holds neither
    numbers nor booleans; the message calls the frame by `name`.
    """
    empty, found = frame[:0], []
    for j, (column, dtype) in enumerate(empty.schema.items()):
        if _is_of_numpy(dtype):
            continue
        native = empty[:, j].to_native()
        known = dtype.is_numeric() or _is_decimal(empty[:, j]) or str(getattr(native, "type", None)) == "null"
        if not known and not _is_like_numbers(empty, j):
            raise _no_numbers(name, column, native.dtype if hasattr(native, "dtype") else native.type)
        found.append(j)
    return found


def _is_like_numbers(empty: Any, j: int) -> bool:
    """Return whether column j of `empty`, a data frame of the library narwhals without rows, can be cast to doubles."""
    with contextlib.suppress(NotImplementedError):  # Arrow makes no doubles of its dates
        none = empty[:, j].to_numpy()
        if none.dtype.kind in "biuf" and none.ndim == 1:
            _cast(empty, [j])
            return True
    return False


def _is_decimal(column: Any) -> bool:
    """Return whether `column` of the library narwhals holds decimal numbers, of any number of bits."""
    return str(_kind(column)).lower().startswith("decimal")


def _kind(column: Any) -> Any:
    """Return the type that Arrow or, if a column is not held by Arrow, another library has for `column` of narwhals."""
    native = column.to_native()
    held = getattr(native, "dtype", None)
    return getattr(held, "pyarrow_dtype", getattr(native, "type", held))


def _decoded(column: Any) -> Any:
    """Return `column` of the library narwhals or, if it is a dictionary of Arrow, the value of each row instead.

    A dictionary holds each different value once. Arrow makes doubles of these only if it need not round.
    """
    native, kind = column.to_native(), _kind(column)
    if not str(kind).startswith("dictionary"):
        return column
    in_pandas = hasattr(native, "dtype")
    values = native.astype(type(native.dtype)(kind.value_type)) if in_pandas else native.cast(kind.value_type)
    return _as("Series", values).alias(column.name)


def _numbers(name: str, frame: Any, others: list[int], at_once: bool) -> NDArray[Any]:
    """Return the numbers of `frame`, a data frame of the library narwhals, as an array (rows, d).

    A missing value becomes NaN. `others` has the indices of the columns that are first cast to doubles, such as
    booleans. `at_once` is true if pandas, polars or Arrow, whichever holds the frame, can convert all columns together.
    If this library fails, raise a TypeError that calls the frame by `name`: the library's own error may show values.
    """
    try:
        with np.errstate(all="ignore"):  # a long double may be too large, and a warning could reveal a row
            frame = _cast(frame, others)
            if at_once:
                return _plain(frame)
            return np.column_stack([_plain(frame[:, j]) for j in range(frame.shape[1])])
    except MemoryError:
        raise
    except Exception:
        raise TypeError(f"{name} must hold real numbers that its library can convert to an array") from None


def _plain(numbers: Any) -> NDArray[Any]:
    """Return `numbers`, a data frame or a series of the library narwhals, as an array; a missing value becomes NaN.

    With its option "future.distinguish_nan_and_na", pandas makes objects of doubles that Arrow holds if one is missing.
    """
    found = np.asarray(numbers.to_numpy())
    if found.dtype.kind == "O":
        found = numbers.to_native().to_numpy(dtype=float, na_value=np.nan)
    return found


def _cast(frame: Any, others: list[int]) -> Any:
    """Return `frame`, a data frame of the library narwhals, with the columns of indices `others` cast to doubles.

    Decimal numbers are cast through text, which alone gives the nearest doubles in each library. A dictionary of Arrow
    becomes a column of its values, which are cast only if NumPy does not have their type.
    """
    import narwhals.stable.v2 as nw

    def cast(column: Any) -> Any:
        if _is_of_numpy(column.dtype):
            return column
        return (column.cast(nw.String) if _is_decimal(column) else column).cast(nw.Float64)

    columns = [cast(_decoded(frame[:, j])) for j in others]
    return frame.with_columns(*columns) if columns else frame


def _at_once(frame: Any, others: list[int]) -> bool:
    """Return whether the library of the data frame `frame` can convert all columns together to an array of numbers.

    `others` has the indices of the columns that are cast to doubles first. The result is false for some types of
    columns, of which pandas would make an array of objects. No row is read.
    """
    return _cast(frame[:0], others).to_numpy().dtype.kind in "iuf"


def shape(**named: Any) -> tuple[Any, ...] | None:
    """Return the shape of a data frame, or None for anything else, without reading a row.

    The argument is passed by keyword, and errors show its name. The number of rows of a data frame of dask is NaN.
    Raise TypeError for a column that holds neither numbers nor booleans, and for a column of dask with categories of
    which it is not known what they are.
    """
    ((name, X),) = named.items()
    lazy = _is_dask_frame(X)
    frame = _as("DataFrame", X._meta if lazy else X)
    if frame is None:
        return None
    for column in _unknown(X) if lazy else ():
        raise ColumnError(f"{name} must have known categories in column {column!r}: {name}.categorize() finds them")
    _others(name, frame)
    return (np.nan, frame.shape[1]) if lazy else tuple(frame.shape)


def split(X: object, *names: Hashable, columns: Columns = None) -> tuple[Any, list[NDArray[Any] | Encoded]]:
    """Return the data frame `X` without the columns that `names` lists, and the entries of each of these columns.

    If the names in `X` only number its columns, and `columns` does not choose some of them, the rest is numbered anew.

    The entries of a column are an array of numbers, booleans or dates, or of objects such as strings, or they are
    `Encoded`. Raise TypeError
    if `X` is no data frame of pandas, polars or Arrow, and ValueError if it has no such column, or if an entry is
    missing.
    """
    frame = _as("DataFrame", X)
    if frame is None:
        raise TypeError(f"X must be a data frame with {_few(names)}, got an object of type {type(X).__name__}")
    place = {column: j for j, column in enumerate(frame.columns)}
    for name in names:
        if name not in place:
            raise ValueError(f"X must have a column {name!r}, and has {_few(place)}")
    rest = frame.drop(list(names))
    if columns is None or not set(columns) <= place.keys():
        rest = _renamed(rest, _numbered_anew(rest.columns, frame.columns))
    found = [frame[:, place[name]] for name in names]
    labels = list(map(_labels_in, found))
    for name, column, some in zip(names, found, labels, strict=True):
        if isinstance(some, Encoded):
            continue
        missing = np.isnan(_plain(column)) if column.dtype.is_float() else column.is_null().to_numpy()
        if missing.any():
            raise ValueError(f"X[{np.argmax(missing)}, {name!r}] must not be missing")
    return rest.to_native(), labels


def kept(X: Any, rows: NDArray[np.bool]) -> Any:
    """Return those rows of the array, list or data frame `X` for which `rows`, one flag for each row, is True."""
    frame = _as("DataFrame", X)
    if frame is not None:
        return frame[np.flatnonzero(rows).tolist(), :].to_native()
    if not rows.size:  # a list without rows does not say how many columns it has
        return X
    return (X if isinstance(X, np.ndarray) else array(X=X))[rows]


def labels_of(series: Any) -> Any:
    """Return the labels in `series`, a series of a library such as pandas or polars, as `split` returns a column.

    Anything else is returned unchanged. An entry may be missing.
    """
    found = _as("Series", series)
    return series if found is None else _labels_in(found)


def _labels_in(column: Any) -> NDArray[Any] | Encoded:
    """Return the labels in a column of the library narwhals: an array of numbers, booleans, dates or objects, or texts.

    Texts, and integers that are held as categories, are returned as `Encoded` if pyarrow is installed. An array of
    objects may have missing entries.
    """
    zoned = getattr(column.dtype, "time_zone", None) is not None
    temporal = column.dtype.is_temporal() and not zoned
    if _is_of_numpy(column.dtype) or temporal or type(column.dtype).__name__ == "Boolean":
        return np.asarray(column.to_numpy())
    return _encoded(column) or np.fromiter(column.to_list(), dtype=object)


def _encoded(column: Any) -> Encoded | None:
    """Return the labels in a column of the library narwhals, or None if Arrow does not hold them as texts or integers.

    The result is None also if a label is missing.
    """
    # pyarrow may not be installed, and does not take objects of several types, or texts with half a surrogate pair.
    with contextlib.suppress(ImportError, NotImplementedError, TypeError, ValueError):
        import pyarrow as pa

        held = column.to_arrow()
        if pa.types.is_dictionary(held.type):
            held = held.cast(held.type.value_type)
        texts = pa.string(), pa.large_string(), pa.string_view()
        if held.null_count or not (held.type in texts or pa.types.is_integer(held.type)):
            return None
        chunks = held.chunks if isinstance(held, pa.ChunkedArray) else [held]
        pieces = [chunk[start : start + _ENCODED] for chunk in chunks for start in range(0, len(chunk), _ENCODED)]
        encoded = in_parallel(lambda piece: piece.dictionary_encode(), pieces)
        found = pa.chunked_array(encoded, pa.dictionary(pa.int32(), held.type)).unify_dictionaries().combine_chunks()
        return Encoded(np.fromiter(found.dictionary.to_pylist(), dtype=object), found.indices.to_numpy())
    return None


def label_type(X: Any, label: Any) -> np.dtype[Any] | None:
    """Return NumPy's type of the labels `label`, an array or the name of a column of `X`, without reading a value.

    Only the letter `kind` of the type has a meaning. It tells numbers, texts and dates apart, and is "V" for a column
    of anything else. The result is None if the type is not known without the values, or if `X` has no such column.
    """
    dtype: np.dtype[Any] | None
    if isinstance(label, Hashable) and not hasattr(label, "dtype"):  # a name
        if is_blocks(X):
            types: Any = getattr(X, "label_types", None)
            dtype = None if types is None else types([label])[0]
            return dtype
        if label not in (column_names(X) or ()):
            return None
        if _is_dask_array(X):
            dtype = X.dtype
            return dtype
        if _is_dask_frame(X) and label in _unknown(X):
            return None
        frame = _as("DataFrame", X._meta if _is_dask_frame(X) else X)
        return _dtype(frame[:0].get_column(label))
    series = _as("Series", label)
    if series is not None:
        return _dtype(series[:0])
    dtype = getattr(label, "dtype", None)
    if not isinstance(dtype, np.dtype) or dtype.kind == "O":
        return None
    return np.dtype(np.str_) if dtype.kind == "T" else dtype


def _dtype(column: Any) -> np.dtype[Any] | None:
    """Return the NumPy type of the labels in a column of the library narwhals, or None if it is not known.

    No entry is read, so the column may be empty. The types are those that `label_type` returns.
    """
    dtype = column.dtype
    name, held = type(dtype).__name__, getattr(column.to_native(), "dtype", None)
    if held == np.dtype(object):  # its entries may have any type
        return None
    if name == "Categorical" and hasattr(held, "pyarrow_dtype"):  # in pandas, a dictionary of Arrow has no categories
        return _dtype(_decoded(column[:0]))
    if name == "Categorical":
        return _dtype(column.unique().cat.get_categories()[:0])  # without rows, a column of Arrow may have no chunk
    if name in ("Object", "Unknown"):
        return None
    kinds = {"String": "U", "Enum": "U", "Boolean": "?", "Date": "M8[D]", "Datetime": "M8[us]"}
    if name in kinds and getattr(dtype, "time_zone", None) is None:
        return np.dtype(kinds[name])
    return np.dtype("i8" if dtype.is_integer() else "f8" if dtype.is_float() else "V")


# Tables -------------------------------------------------------------------------------------------------------------


def is_blocks(X: object) -> bool:
    """Return whether `X` is an object like `egm.files.Table`, which reads a table in blocks of rows.

    `X` must have the names of the columns, a tuple, in ``X.names``, and a function ``X.blocks``.
    """
    return isinstance(getattr(X, "names", None), tuple) and callable(getattr(X, "blocks", None))


def is_read_later(X: object) -> bool:
    """Return whether `X` is an iterator over blocks of rows, or a function that returns one; such an X has no shape."""
    return isinstance(X, Iterator) or _is_function(X)


def _is_function(X: object) -> bool:
    """Return whether `X` can be called and has no shape; a callable object with a shape is a table, not a function."""
    return callable(X) and not hasattr(X, "shape")


def opened(X: Any) -> Any:
    """Return the iterator over blocks of rows that the function `X` returns; if `X` is no function, return `X` itself.

    Raise TypeError if the function returns anything but an iterator.
    """
    if not _is_function(X):
        return X
    blocks = X()
    if not isinstance(blocks, Iterator):
        raise TypeError(
            f"X must be a function that returns an iterator over blocks of rows, and it has returned an object of type "
            f"{type(blocks).__name__}"
        )
    return blocks


def column_names(X: object) -> tuple[Hashable, ...] | None:
    """Return the names of the columns of the table `X`, or None if `X` has no such names, for example for an array."""
    if is_blocks(X):
        return tuple(X.names)  # type: ignore[attr-defined]  # it has names
    if _is_dask_frame(X):
        return tuple(X.columns)  # type: ignore[attr-defined]  # it has them
    if _is_dask_array(X):
        names = getattr(X, "column_names", None)
        return names if isinstance(names, tuple) else None  # a delayed object has every attribute
    frame = _as("DataFrame", X)
    return None if frame is None else tuple(frame.columns)


def check(X: object, columns: Columns) -> None:
    """Raise ValueError if the table `X` has names of columns and these are not the names in `columns`, in any order.

    Names that only number the columns, such as 0, 1, 2, are accepted. If `columns` is None, a table with two or more
    columns and with other names than such numbers is refused.
    """
    names = column_names(X)
    if names is not None:
        _places("X", _distinct("X", names), columns)


def require_gaps(X: object, missing: str) -> None:
    """Raise ValueError if a mechanism allows missing values, but the file of its rows `X` was opened to refuse them.

    The argument `missing` says what the mechanism does with a missing value: any text but "error" allows it.
    """
    opened_with = getattr(X, "missing", None) if is_blocks(X) or _is_dask_array(X) else None
    if missing != "error" and opened_with == "error":
        raise ValueError(f'X must be opened by egm.files with missing="nan" for a mechanism with missing={missing!r}')


def arranged(X: Any, columns: Columns, gaps: bool = False) -> Any:
    """Return the numbers of the table `X` with its columns in the order of the names in `columns`.

    The result is an array, a dask array, or an iterator of arrays, one for each block of rows. An `X` whose columns
    have no names, such as an array, is returned unchanged. Columns of `X` that are not in `columns` are left out. If
    `gaps` is true, a missing entry of a data frame becomes NaN.

    Names that only number the columns, such as 0, 1, 2, are accepted for any `columns`. For other names, raise
    ValueError if `X` lacks one of the `columns`, or if `columns` is None and `X` has two or more columns. Also raise
    ValueError for a data frame with an infinite entry or, unless `gaps` is true, a missing one, and TypeError if a
    column of a data frame holds neither numbers nor booleans.
    """
    if isinstance(X, Iterator):
        return _flat(arranged(block, columns, gaps) for block in X)
    refuse_rows_of_tables(X)
    X = chosen(X, columns)
    names = column_names(X)
    if names is None:
        return X
    check(X, columns)
    place = _places("X", names, columns)
    if is_blocks(X):
        return X.blocks() if place is None else (block[:, place] for block in X.blocks())
    if _is_dask_array(X):
        return X if place is None else X[:, place]
    if not _is_dask_frame(X):
        return _blocks(_as("DataFrame", X), place, gaps)
    shape(X=X)  # raises an error for a column that holds no numbers
    by_name = columns is not None and set(columns) == set(names)
    # A partition may have its own order.
    moved = X.map_partitions(operator.getitem, list(columns or ())) if by_name else X
    return moved.map_partitions(_of_partition, gaps=gaps, meta=array(X=moved._meta))


def _of_partition(part: Any, gaps: bool) -> NDArray[Any]:
    """Return the numbers of `part`, a partition of a data frame of dask, as an array.

    Raise the errors of `array`, and of `require_finite` for the names in `part`, with missing entries allowed if `gaps`
    is true.
    """
    found = array(X=part)
    require_finite(found, gaps, list(map(repr, part.columns)))
    return found


class Part:
    """Represent a table that is read in blocks of rows, and has only some of the columns of another such table."""

    def __init__(self, table: Any, names: tuple[Hashable, ...], shown: tuple[Hashable, ...]) -> None:
        """Select the columns `names`, in this order, from `table`, an object like `egm.files.Table`.

        The tuple `shown` has the names that they have in this table.
        """
        self.names, self.count, self._table = shown, table.count, table
        self._place = indices(table.names, names)

    def blocks(self) -> Iterator[NDArray[Any]]:
        """Return an iterator over the blocks of rows, with the chosen columns only."""
        return (block[:, self._place] for block in self._table.blocks())

    @property
    def label_types(self) -> Any:
        """Return the function `label_types` of the table with all columns, or None if it has no such function.

        The function takes names of columns, and returns NumPy's types for the labels in them, without reading a row.
        """
        return getattr(self._table, "label_types", None)

    def labelled(self, names: Sequence[Hashable]) -> Iterator[tuple[NDArray[Any], list[NDArray[Any]]]]:
        """Return an iterator over pairs: a block of rows with the chosen columns, and a list with the rows' labels.

        The list has one array of labels for each column in `names`, which may be any columns of the table from which
        this one is made.
        """
        return ((block[:, self._place], labels) for block, labels in self._table.labelled(names))


def chosen(X: Any, columns: Columns, labels: Collection[Hashable] = ()) -> Any:
    """Return the table `X` with only the columns in `columns`, or `X` itself if it has no other columns or no names.

    If `columns` is None, or if `X` lacks one of the `columns`, all columns but those in `labels` are kept. (In the
    second case the names in `X` may only number its columns, such as 0, 1, 2. Those that are kept are then numbered
    anew, so that any column may hold the labels.) No row is read. Raise ValueError if one of the `labels` is not a
    column of `X`. This is not checked for a table that is read in blocks, because its file may have more columns than
    the table.
    """
    names = column_names(X)
    if names is None:
        return X
    if not is_blocks(X):
        for label in labels:
            if label not in names:
                raise ValueError(f"X must have a column {label!r}, and has {_few(names)}")
    wanted = without(labels, _distinct("X", names), columns)
    shown = wanted if wanted is columns else _numbered_anew(wanted, names)
    if is_blocks(X):
        return X if wanted == names else Part(X, wanted, shown)
    if len(wanted) == len(names):
        return X
    if _is_dask_frame(X):
        part = X[list(wanted)]
        return part if shown == wanted else part.rename(columns=dict(zip(wanted, shown, strict=True)))
    place = indices(names, wanted)
    if _is_dask_array(X):
        part = X[:, place]
        part.column_names = shown
        return part
    return _renamed(_as("DataFrame", X)[:, place], shown).to_native()


def without(labels: Collection[Hashable], names: Collection[Hashable], columns: Columns) -> tuple[Hashable, ...]:
    """Return `columns` or, if it is None or not all of it is among the `names` of a table, the names but `labels`."""
    if columns is not None and set(columns) <= set(names):
        return columns
    return tuple(name for name in names if name not in labels)


def _numbered_anew(some: Sequence[Hashable], names: Sequence[Hashable]) -> tuple[Hashable, ...]:
    """Return the names `some` of columns or, if all `names` of a table only number its columns, the first numbers."""
    return tuple(names[: len(some)] if _is_counted(names) else some)


def _renamed(frame: Any, names: tuple[Hashable, ...]) -> Any:
    """Return `frame`, a data frame of the library narwhals, with the `names` for its columns."""
    old = tuple(frame.columns)
    return frame if names == old else frame.rename(dict(zip(old, names, strict=True)))


def _is_dask_frame(X: object) -> bool:
    """Return whether `X` is a data frame of dask."""
    return hasattr(type(X), "to_dask_array")


def _unknown(X: Any) -> list[Hashable]:
    """Return those columns of the dask frame `X` that hold categories which are known only when the rows are read."""
    return [name for name, kind in X.dtypes.items() if str(kind) == "category" and not X[name].cat.known]


def has_another_index(X: object, label: object) -> bool:
    """Return whether the data frame `X` and the series `label` both have an index, as in pandas, and the two differ."""
    indexes = [_index(_as(kind, it)) for kind, it in (("DataFrame", X), ("Series", label))]  # type: ignore[arg-type]  # are texts
    return all(index is not None for index in indexes) and not indexes[0].equals(indexes[1])


def refuse_rows_of_tables(X: object) -> None:
    """Raise TypeError if `X` is a list of tables, or a list of rows whose entries have names, such as Series of pandas.

    The names of the entries would be ignored. A table here is any object with a shape of two numbers.
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


def _blocks(frame: Any, place: list[int] | None, gaps: bool) -> Iterator[NDArray[Any]]:
    """Yield blocks of rows of `frame`, a data frame of the library narwhals, as arrays with chosen columns.

    `place` has the indices of these columns in the wanted order, or is None for all columns as they are. Only one block
    is copied at a time; blocks are larger if they are views, which copy nothing. Raise ValueError for an entry that is
    infinite or, unless `gaps` is true, missing, and TypeError for a column that holds neither numbers nor booleans.
    """

    def chosen(rows: Any) -> Any:
        return rows if place is None else rows[:, place]

    empty = chosen(frame[:0])
    others = _others("X", empty)
    at_once = _at_once(empty, others)
    first, again = (_numbers("X", chosen(frame[:1]), others, at_once) for _ in range(2))
    step = max(1, (_VIEWED if np.shares_memory(first, again) else _COPIED) // max(1, frame.shape[1]))
    for start in range(0, max(1, len(frame)), step):
        block = _numbers("X", chosen(frame[start : start + step]), others, at_once)
        require_finite(block, gaps, list(map(repr, empty.columns)), start)
        yield block


def require_finite(X: NDArray[Any], gaps: bool, names: Sequence[object] | None = None, start: int = 0) -> None:
    """Raise ValueError for an entry of the matrix `X` that is infinite as a double or, unless `gaps` is true, missing.

    The message shows which of the `names` the column has, by default its number, and the number of the row, counted
    from `start`.
    """
    if X.dtype.kind != "f":
        return
    step = max(1, _COPIED // max(1, X.shape[1]))
    blocks = [X[first : first + step] for first in range(0, len(X), step)]
    for k, place in enumerate(in_parallel(partial(_first_wrong, gaps=gaps), blocks)):
        if place is not None:
            i, j = place
            raise ValueError(f"X[{start + k * step + i}, {j if names is None else names[j]}] must be finite")


def _first_wrong(block: NDArray[Any], gaps: bool) -> tuple[int, int] | None:
    """Return row and column of the first entry of `block` that `require_finite` refuses, or None if there is none."""
    with np.errstate(all="ignore"):  # a warning could reveal a row
        if np.isfinite(np.sum(block, dtype=float)):
            return None
        block = block.astype(float, copy=False)  # an entry is not finite, or their sum is too large
    wrong = np.isinf(block) if gaps else ~np.isfinite(block)
    return divmod(int(np.argmax(wrong)), block.shape[1]) if wrong.any() else None


def _flat(blocks: Iterator[Any]) -> Iterator[Any]:
    """Yield the `blocks` in their order; if a block is itself an iterator over blocks, yield its blocks instead.

    The blocks of such an iterator are arrays. Its errors count the rows from the start of all `blocks`.
    """
    rows = 0
    for block in blocks:
        if isinstance(block, Iterator):
            with counted_from(rows):
                for part in block:
                    yield part
                    rows += len(part)
                    del part  # its memory is free before the next one is made
        else:
            yield block
            rows += len(block)
        del block


@contextlib.contextmanager
def counted_from(start: int) -> Iterator[None]:
    """Within a `with` block that reads one block of rows, let errors count the rows from `start`, its first row.

    The message of such an error begins with the place of an entry, such as "X[3, 0]".
    """
    try:
        yield
    except ValueError as wrong:
        found = re.match(r"X\[(\d+)", str(wrong))
        if found is None or type(wrong) is not ValueError:
            raise
        raise ValueError(f"X[{start + int(found[1])}{str(wrong)[found.end() :]}") from None


def _is_dask_array(X: object) -> bool:
    """Return whether `X` is a dask array; an array from `egm.files.from_parquet` also has names of its columns."""
    return type(X).__module__.split(".")[0] == "dask" and hasattr(type(X), "map_blocks")


def array(**named: Any) -> NDArray[Any]:
    """Convert an argument to an array as numpy.asarray does, with two exceptions for data frames and series.

    False and True become 0 and 1 in a data frame, and a missing value among numbers becomes NaN. The argument is passed
    by keyword, and errors show its name. Raise TypeError for a data frame with a column that holds neither numbers nor
    booleans.
    """
    ((name, value),) = named.items()
    if (frame := _as("DataFrame", value)) is not None:
        others = _others(name, frame)
        return _numbers(name, frame, others, _at_once(frame, others))
    series = _as("Series", value)
    return np.asarray(value if series is None else series.to_numpy())


def require_one_type(name: str, X: Any) -> None:
    """Raise TypeError if the columns of the data frame `X` have different types, or a type that NumPy does not have.

    In a single array the integers of such a table would become doubles, and large integers would be rounded. The
    message calls the table by `name`.
    """
    others: list[int] = []
    if _is_dask_frame(X):
        kinds = set(map(str, X.dtypes))
    elif (frame := _as("DataFrame", X)) is not None:
        others, kinds = _others(name, frame), set(map(str, frame[:0].schema.values()))
    else:
        return
    if others or len(kinds) > 1:
        raise ColumnError(
            f"{name} must hold numbers of one type, but its columns are {', '.join(sorted(kinds))}: make integers or "
            f"floats of them all"
        )


def _no_numbers(name: str, column: Hashable, kind: object) -> ColumnError:
    """Return the error for the column `column` of the table `name`, whose type `kind` is not a type of numbers.

    The message leaves out what the type has in parentheses, because that may list the categories of the column.
    """
    return ColumnError(
        f"{name} must hold real numbers in every column, but its column {column!r} has the type "
        f"{str(kind).partition('(')[0]}: make numbers of it, or choose others"
    )


# Names --------------------------------------------------------------------------------------------------------------


def _places(name: str, labels: tuple[Hashable, ...], columns: Columns) -> list[int] | None:
    """Return, for each name in `columns`, its index among `labels`, the names that a vector or a table has.

    Return None if the order is right already, or if the labels only number the columns, such as 0, 1, 2. Raise
    ValueError if the labels are other names than those in `columns`, or if `columns` is None and there are two or more
    labels that do not only number the columns. `name` is the name of the vector or table in the message.
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


def indices(names: Iterable[Hashable], wanted: Iterable[Hashable]) -> list[int]:
    """Return, for each of the names `wanted`, its index in `names`, which has no name twice; both may be thousands."""
    place = {name: i for i, name in enumerate(names)}
    return [place[name] for name in wanted]


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
