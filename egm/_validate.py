"""Check the arguments of public functions, so that all other code can rely on valid arguments.

Each check takes one keyword argument and uses its keyword as the name in the error message. It returns the checked
value, in most cases as float64. For example, ``positive(epsilon=-1.0)`` raises "epsilon must be finite and > 0, got
-1.0". A check of an array applies to each element; `scalar` is for parameters that must be a single number.

Parameters are public, and a message shows their value. Data are not: a message about an argument whose name is in
`PRIVATE` says the type, the number of columns, and the row and the column of the first wrong value. It never shows a
value, nor the number of rows.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
from numpy.typing import NDArray

from egm import _tables
from egm._types import Array, Check, Columns

__all__ = [
    "MISSING",
    "PRIVATE",
    "DeltaWarning",
    "between",
    "count",
    "doubles",
    "exact",
    "finite",
    "fitting",
    "generator",
    "matrix",
    "nested_shape",
    "nonnegative",
    "nonzero",
    "positive",
    "probability",
    "real",
    "scalar",
    "shown_shape",
    "unread",
    "unread_matrix",
    "vector",
    "warn_of_delta",
    "without_delta_warnings",
]

MISSING = frozenset({"", ".", "na", "n/a", "#n/a", "<na>", "nan", "none", "null"})  # missing values, in small letters
PRIVATE = frozenset({"X", "counts", "rows", "value", "values"})  # names of the arguments that may be data
_TABLES = frozenset({"X", "rows"})  # the private arguments that have one row for each person
_LARGEST = sys.float_info.max
_LEAST_EPSILON = 1e-300
_is_hushed: ContextVar[bool] = ContextVar("is_hushed", default=False)  # whether `warn_of_delta` gives no warning


class DeltaWarning(UserWarning):
    """Warning that delta is 1/n or more: then even publishing a random one of n rows counts as private."""


def _read(name: str, value: object) -> Array:
    """Return the argument `value` as float64, or raise a TypeError that calls it `name` if it is not of real numbers.

    The usual case, an array of float64, is recognized first, because it needs no conversion.
    """
    if type(value) is np.ndarray and value.dtype == np.float64:
        return value
    return doubles(_numeric(name, value))


def _without_nan(name: str, array: Array) -> Array:
    """Return `array` if it has no NaN; otherwise raise a ValueError that calls it `name`."""
    return _require(~np.isnan(array), "must not be NaN", name, array)


def _rule(rule: str, passes: Callable[[Any], Any]) -> Check:
    """Return a check: a function that returns its one keyword argument as float64, or raises an error.

    The check accepts the argument if the function `passes`, which is called with an array or a single float, returns
    true for each of its numbers. The text `rule`, for example "must be finite", becomes a part of the error message.
    """

    def check(**named: object) -> Array:
        ((name, value),) = named.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _LARGEST:
            number = float(value)
            if passes(number):
                return np.array(number)
        array = _read(name, value)
        passed = passes(array)
        if np.count_nonzero(passed) == array.size:  # for a short vector, much quicker than all()
            return array
        return _require(passed, rule, name, _without_nan(name, array))

    return check


def _is_limited(x: Any) -> Any:
    """Return whether the number `x` is finite or, for an array `x`, an array with this answer for each entry."""
    return np.isfinite(x) if isinstance(x, np.ndarray) else abs(x) <= _LARGEST


real = _rule("must not be NaN", lambda x: x == x)
finite = _rule("must be finite", _is_limited)
nonzero = _rule("must be finite and not 0", lambda x: _is_limited(x) & (x != 0))
positive = _rule("must be finite and > 0", lambda x: (x > 0) & (x <= _LARGEST))
nonnegative = _rule("must be finite and >= 0", lambda x: (x >= 0) & (x <= _LARGEST))
probability = _rule("must lie strictly between 0 and 1", lambda array: (array > 0) & (array < 1))


def between(low: float, high: float, **named: object) -> Array:
    """Check that all numbers of an argument are from `low` to `high`, both included, and return them as float64.

    The argument is passed by keyword, and errors show its name.
    """
    return _rule(f"must lie between {low!r} and {high!r}", lambda array: (array >= low) & (array <= high))(**named)


def scalar(check: Check, **named: object) -> float:
    """Check that an argument is a single number that the function `check` accepts, and return it as a float.

    The argument is passed by keyword, and errors show its name; `check` is a function such as `positive`.
    """
    (name,), array = named, check(**named)
    if array.ndim:
        raise ValueError(f"{name} must be a single number, got an array of shape {array.shape}")
    return float(array)


def drawn_epsilon(epsilon: object) -> float:
    """Check the `epsilon` of a draw by the exponential mechanism, and return it as a float.

    Raise ValueError if it is below 1e-300, because its inverse could overflow.
    """
    number = scalar(positive, epsilon=epsilon)
    if number < _LEAST_EPSILON:
        raise ValueError(f"epsilon must be at least {_LEAST_EPSILON!r}, got {number!r}")
    return number


def fitting(most: float, **named: float) -> float:
    """Check that a scale of noise is a number > 0 and at most `most`, and return it as a float.

    The scale is passed by keyword, and errors show its name. Raise ValueError if it is above `most`, because 64-bit
    integers would then cut off the tail of the noise.
    """
    ((name, _),) = named.items()
    number = scalar(positive, **named)
    if number > most:
        raise ValueError(f"{name} must be at most {most:.3g} for 64-bit integers, got {number!r}")
    return number


def count(low: int = 1, high: float = math.inf, /, **named: object) -> int:
    """Check that an argument is a whole number >= 1, such as 1000 or 1e6, and return it as a Python int.

    The argument is passed by keyword, and errors show its name. If `low` and `high` are given, it must lie between
    them, or be one of them. An integer is not rounded to a double.
    """
    ((name, value),), number = named.items(), scalar(real, **named)
    if not (number >= 1 and number == np.floor(number) and np.isfinite(number)):
        raise ValueError(f"{name} must be a whole number >= 1, got {number!r}")
    whole = int(value) if isinstance(value, int | np.integer) else int(number)
    if not low <= whole <= high:
        shown = whole if whole.bit_length() < 64 else number
        raise ValueError(f"{name} must lie between {low} and {high}, got {shown!r}")
    return whole


def generator(rng: object) -> np.random.Generator:
    """Return `rng` if it is a NumPy Generator; otherwise raise a TypeError."""
    if not isinstance(rng, np.random.Generator):
        raise TypeError(f"rng must be a numpy.random.Generator such as numpy.random.default_rng(seed), got {rng!r}")
    return rng


def warn_of_delta(delta: float, n: int, stacklevel: int) -> None:
    """Issue a DeltaWarning if `delta` is 1/n or more, where `n` is the number of rows.

    `stacklevel` is passed to `warnings.warn`. There is no warning within a block of `without_delta_warnings`.
    """
    if delta >= 1 / n and not _is_hushed.get():
        warnings.warn(
            f"delta = {delta:g} is not below 1/n = {1 / n:g} for n = {n}: who publishes one of {n} rows as it is keeps "
            f"that promise, too; choose a delta far below 1/n",
            DeltaWarning,
            stacklevel=stacklevel,
        )


@contextmanager
def without_delta_warnings() -> Iterator[None]:
    """Make a context in which this thread gets no DeltaWarning.

    A filter of the module `warnings` would hold for all threads, and could outlast a block in one of them.
    """
    token = _is_hushed.set(True)
    try:
        yield
    finally:
        _is_hushed.reset(token)


def vector(**named: object) -> Array:
    """Check that an argument is a vector with at least one entry, all finite and > 0, and return it as float64.

    The argument is passed by keyword, and errors show its name.
    """
    (name,), array = named, positive(**named)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name} must be a vector with at least one entry, got shape {array.shape}")
    return array


def matrix(columns: int | None, **named: object) -> Array:
    """Check that an argument is a matrix of finite real numbers with `columns` columns, and return it as float64.

    The argument is passed by keyword, and errors show its name. If `columns` is None, any number of columns from 1 on
    is accepted. A matrix of float64 is not copied.
    """
    ((name, value),) = named.items()
    array = doubles(unread_matrix(columns, **named))
    return _require(np.isfinite(array), "must be finite", name, array, _tables.column_names(value))


def unread_matrix(columns: int | None, **named: object) -> NDArray[Any]:
    """Check that an argument is a matrix of real numbers with `columns` columns, and return it as an array.

    The argument is passed by keyword, and errors show its name. Unlike `matrix`, this function does not read the
    numbers of an array. If `columns` is None, any number of columns from 1 on is accepted.
    """
    ((name, value),) = named.items()
    array = _numeric(name, value)
    if columns is not None and isinstance(value, list | tuple) and not value:  # no rows, which have any length
        array = array.reshape(0, columns)
    if array.ndim != 2 or not (array.shape[1] == columns or (columns is None and array.shape[1])):
        wanted = "columns" if columns is None else columns
        raise ValueError(f"{name} must have shape (rows, {wanted}), got {shown_shape(name, array.shape)}")
    return array


def exact(**named: object) -> NDArray[Any]:
    """Check that an argument consists of real numbers within the range of doubles, and return them without rounding.

    The argument is passed by keyword, and errors show its name. A list, or an array of objects, becomes an array of
    objects, which are numbers of Python or NumPy. (In an array of floats, integers beyond 2**53 would be rounded.)
    """
    ((name, value),) = named.items()
    _tables.require_one_type(name, value)
    array = _array(value, None if hasattr(value, "__array__") else object)
    if array.dtype.kind == "O":
        array = array.copy()
        flat = array.reshape(-1)
        for i, entry in enumerate(flat):  # an entry with numbers of its own is refused below
            if isinstance(entry, np.ndarray) and entry.ndim == 0:
                flat[i] = entry[()]
    real = all(map(_is_real, array.flat)) if array.dtype.kind == "O" else array.dtype.kind in "iuf"
    if not real or isinstance(value, np.ma.MaskedArray) or array.ndim != len(getattr(value, "shape", array.shape)):
        raise _not_numeric(name, value)
    if array.dtype.kind == "O":
        passed = np.array([_is_finite(entry) for entry in array.flat], dtype=bool).reshape(array.shape)
    else:
        passed = np.isfinite(doubles(array))
    return _require(passed, "must be finite and no larger than the largest double", name, array)


def _is_real(entry: object) -> bool:
    """Return whether `entry`, of an array of objects, is an integer or a float, of Python or NumPy, and not a bool."""
    return isinstance(entry, int | float | np.integer | np.floating) and not isinstance(entry, bool)


def _is_finite(entry: Any) -> bool:
    """Return whether `entry`, a real number, is finite and not beyond the largest double."""
    return abs(entry) <= _LARGEST if isinstance(entry, int) else math.isfinite(entry)


def unread(**named: object) -> tuple[int, ...] | None:
    """Check the type of an argument that may be private, and return its shape, without reading a value.

    The argument is passed by keyword, and errors show its name. Raise TypeError if the type shows that it does not hold
    real numbers. The result is None if the shape is not known. For a list it is (length,), even for a list of rows;
    only for the argument `value` it is the shape that `nested_shape` returns.

    No value is read, so this check can come before a budget records the cost of a release. (The type of an array or
    of a column can depend on the values, too, if a library has inferred the type from them.)
    """
    ((name, value),) = named.items()
    if name == "value" and (isinstance(value, list | tuple | range) or _is_real(value)):
        return nested_shape(value)
    if isinstance(value, list | tuple):
        return (len(value),)
    if name == "value":
        _tables.require_one_type(name, value)
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    plain, lazy = isinstance(dtype, np.dtype), type(value).__module__.split(".")[0] == "dask"
    if lazy and not plain and name not in _TABLES:
        return None
    if (of_frame := _tables.shape(**named)) is not None:
        return of_frame
    if lazy and name in _TABLES and not hasattr(type(value), "chunks"):
        raise TypeError(f"{name} must be a dask array or a data frame of dask, got {type(value)}")
    if isinstance(value, np.ma.MaskedArray) or (plain and (dtype == np.bool or not hasattr(value, "__array__"))):
        raise TypeError(f"{name} must be a real number or an array of real numbers, got {_way_out(name, value)}")
    if name == "value" and plain and dtype == np.dtype(object) and not lazy:
        return shape  # integers of any size are allowed here
    if isinstance(value, int | float | np.ndarray):
        _numeric(name, value[:0] if isinstance(value, np.ndarray) and value.ndim else value)
    elif plain:  # dask and similar libraries would load or compute a slice
        _numeric(name, np.empty(0, dtype))
    elif not (hasattr(value, "__array__") and hasattr(value, "__getitem__")):
        raise TypeError(f"{name} must be a real number or an array of real numbers, got {_way_out(name, value)}")
    else:
        none = _numeric(name, value[:0])  # the type of a series, and no entry
        if shape is not None and none.ndim != len(shape):  # a series of arrays
            raise TypeError(f"{name} must be an array of real numbers, and must not hold arrays in its entries")
        if shape is None:  # an array of Arrow
            shape = np.nan if name in _TABLES else len(value), *none.shape[1:]  # type: ignore[arg-type]  # it has a length
    return () if shape is None and isinstance(value, int | float) else shape


def nested_shape(value: Any) -> tuple[Any, ...]:
    """Return the shape of `value`: of an array, or of a list or tuple with entries like its first one; read no number.

    The result is () for a number, and for any other object that has neither a shape nor a length.
    """
    if isinstance(value, list | tuple):
        return (len(value), *nested_shape(value[0])) if value else (0,)
    if hasattr(value, "shape"):
        return tuple(value.shape)
    return (len(value),) if hasattr(value, "__len__") and not isinstance(value, str | bytes) else ()


def _way_out(name: str, value: object) -> str:
    """Describe `value`, which is not an array of numbers, for an error message, and say how to make an array of it.

    `name` is the name of the argument in the message.
    """
    kind = f"an object of type {type(value).__name__}"
    if isinstance(value, np.ma.MaskedArray):
        return f"a masked array: {name}.filled(...) is one"
    if getattr(value, "dtype", None) == np.bool:
        return f"an array of flags: {name}.astype(float) is one"
    if hasattr(value, "toarray"):  # of scipy.sparse
        return f"{kind}: {name}.toarray() is one"
    if hasattr(value, "collect"):  # a LazyFrame of polars
        return f"{kind}: {name}.collect() is one"
    if isinstance(value, Mapping):
        return f"{kind}: a data frame of it is one"
    if isinstance(value, Iterable) and not isinstance(value, str):
        return f"{kind}: make an array of it, or give iter({name}) where blocks of rows are taken"
    return kind


def _numeric(name: str, value: object) -> NDArray[Any]:
    """Return `value` as an array of real numbers, or raise TypeError.

    Booleans, strings, objects, complex numbers and masked arrays are not accepted, but a table may have columns of
    booleans. `name` is the name of the argument in the message.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return np.array(_double(value))  # NumPy would make an object of a large integer
    try:
        array = _tables.array(**{name: value})
    except (MemoryError, _tables.ColumnError):
        raise
    except Exception:  # rows of different lengths, or an error of the value's own methods, which may show values
        array = np.asarray(None)
    if array.dtype.kind not in "iuf" or isinstance(value, np.ma.MaskedArray):
        raise _not_numeric(name, value)
    return array


def _not_numeric(name: str, value: object) -> TypeError:
    """Return the TypeError for `value`, which does not consist of real numbers; `name` is its name in the message."""
    return TypeError(f"{name} must be a real number or an array of real numbers, got {_shown(name, value)}")


def _array(value: object, dtype: type | None = None) -> NDArray[Any]:
    """Return `value` as an array of the type `dtype`; if it cannot be converted, return an array that holds None.

    Such an array is refused by later checks. For `dtype` None, NumPy chooses the type. The exception of a failed
    conversion is dropped, because it may show values.
    """
    try:
        return np.asarray(value, dtype=dtype)
    except MemoryError:
        raise
    except Exception:  # rows of different lengths, or an error of the value's own methods
        return np.asarray(None)


def doubles(array: NDArray[Any], copy: bool = False) -> Array:
    """Return `array` as float64; if it has this type already, it is copied only if `copy` is true.

    Long doubles beyond the largest double become infinite. There is no warning, which could reveal a row.
    """
    with np.errstate(all="ignore"):
        return array.astype(float, copy=copy)


def _require(
    passed: NDArray[np.bool], rule: str, name: str, array: NDArray[Any], columns: Columns = None
) -> NDArray[Any]:
    """Return `array` if all its entries passed a check; else raise ValueError with the index of the first that did not.

    `passed` says which entries passed. The message calls the array by `name`, and states the `rule` of the check, a
    text such as "must be finite". It shows the value, too, unless `name` is in `PRIVATE`, the names of arguments that
    may be data. `columns` has the names of the columns of a matrix.
    """
    if passed.all():
        return array
    first = tuple(int(i) for i in np.argwhere(~passed)[0])
    shown = map(str, first) if columns is None else (str(first[0]), repr(columns[first[1]]))
    place = f"{name}[{', '.join(shown)}]" if first else name
    raise ValueError(f"{place} {rule}" if name in PRIVATE else f"{place} {rule}, got {_double(array[first])!r}")


def _double(number: Any) -> float:
    """Return the double nearest to `number`, a real number, which is infinite if `number` is beyond the largest one."""
    try:
        return float(number)
    except OverflowError:  # a large integer of Python
        return math.inf if number > 0 else -math.inf


def _shown(name: str, value: object) -> str:
    """Describe `value`, an argument called `name`, in one line for an error message.

    If the argument may be data, or if it is an array, only the type and, for an array, the shape are shown.
    """
    if isinstance(value, np.ndarray):
        return f"{type(value).__name__} of shape {shown_shape(name, value.shape)} and type {value.dtype.type.__name__}"
    if name in PRIVATE:
        return f"an object of type {type(value).__name__}"
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:57] + '...'} of type {type(value).__name__}"


def shown_shape(name: str, shape: tuple[int, ...]) -> str:
    """Describe `shape`, the shape of an array, for an error message.

    If the argument `name` has a row for each person, the number of rows is left out, because it may be private.
    """
    if name not in _TABLES or not shape:
        return str(shape)
    return f"({', '.join(['rows', *map(str, shape[1:])])}{',' * (len(shape) == 1)})"
