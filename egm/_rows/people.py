"""Bring rows together that belong to one person, and tell to which group a row belongs.

Each row has up to two labels: its person, and its group. They are columns of a table, or arrays beside an array. The
rows of one person are added up or averaged, or at most k of them are kept, before a mechanism clips what is left. What
becomes of the rows of one person depends on nothing but these rows and their order. So the proof of privacy is that of
a mechanism for which each person has one row, or k rows.

An array or a data frame is sorted by person first. Blocks that are read one after the other, from a file or from an
iterator, must be sorted by person already. A person's rows may be in several blocks: the rows of the last person of a
block are kept until the next block is read. The blocks of a dask array or a dask frame are divided by a hash of the
person, and parts with the same hash are put together, so that no block needs all rows.
"""

from __future__ import annotations

import contextlib
import itertools
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from egm import _tables
from egm._rows import dask
from egm._threads import in_parallel
from egm._types import Array, Columns
from egm._validate import MISSING, nested_shape, unread, unread_matrix

__all__ = ["Block", "Labels", "Order", "PerPerson", "Source", "codes", "gathered", "in_order", "is_name", "label_names"]
__all__ += ["layout", "require_keys", "require_person", "vector"]

_SORTED = 1 << 20  # numbers that are copied at a time, in the order of the persons
_FAR = 1e290  # entries are cut here before they are added, so that no sum becomes infinite
_PIECE, _JOINED = 1 << 18, 1 << 12  # labels that are looked up at a time, and texts that are read at a time
_TEXTS = 1 << 15  # NumPy strings that are looked up at a time
_NO_TYPE = np.dtype("V1")  # of the persons of a block without rows
_TABLE = 1 << 20  # span of whole numbers up to which the code of a label is looked up in a table

_NO_LABELS = "must be a vector of numbers, of texts, or of dates without time zone"
_ALLOWED = "iubfUM"  # kinds of types of NumPy that the labels of rows may have, apart from objects
_KIND_NAMES = dict.fromkeys("iubf", "numbers") | dict.fromkeys("UO", "texts") | {"M": "dates"}
_LONGEST = max(map(len, MISSING))  # characters of a text that stands for a missing person
_KINDS = (
    (bool | np.bool, bool),
    (int | np.integer, np.int64),
    (int | np.integer, np.uint64),
    (float | np.floating, float),
)

Labels: TypeAlias = NDArray[Any]
PerPerson: TypeAlias = Literal["sum", "mean"] | int | None


class Block(NamedTuple):
    """Hold rows of a table (`values`) with the person and the group of each row, as vectors or None."""

    values: Array
    persons: Labels | None = None
    groups: Labels | None = None


# Labels ---------------------------------------------------------------------------------------------------------------


def layout(X: Any, columns: Columns, **labels: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return the table `X` with only the columns that are to be summed, and the shape of this table; read no value.

    `columns` has the names of the columns to be summed. It may be None, which means all columns that hold no labels;
    then names are not checked. The keyword arguments `labels` are the labels of the rows: each is the name of a column
    of `X`, an array or None. A number in the shape is NaN if it is known only when rows are read. Raise the errors of
    `label_names`, TypeError for columns of anything but real numbers, and ValueError if a name in `columns` is not one
    in `X`.
    """
    names = label_names(X, columns, **labels)
    if _tables.is_read_later(X):
        return X, (np.nan, np.nan)
    _tables.refuse_rows_of_tables(X)
    if names and _tables.column_names(X) is None:
        unread(X=X)  # raises a better error for what is no array either
        raise TypeError("X must have names of columns if person or by is one of them")
    table: Any = _tables.chosen(X, columns, names)
    if columns is not None:
        _tables.check(table, columns)
    shape: Any
    if _tables.is_blocks(table):
        shape = np.nan if table.count is None else table.count, len(table.names)
    else:
        shape = unread(X=table)
    if isinstance(X, list | tuple):
        shape += nested_shape(X[0]) if X else (np.nan,)
    return table, (np.nan, np.nan) if shape is None else tuple(shape)


def label_names(X: Any, columns: Columns = None, **labels: Any) -> list[Hashable]:
    """Check the keyword arguments `labels`, and return a list of those that are names of columns of the table `X`.

    The labels say, for example, to which person each row belongs. Each argument is the name of a column of `X`, an
    array with one entry for each row, or None. Raise TypeError for a name if `X` has no names, for an array if `X` is
    read in blocks, and for labels of a type that is neither numbers nor texts nor dates. Raise ValueError for the name
    of a column that is summed (one of `columns`), for an array without one entry for each row of `X`, for a Series with
    another index, and for a name that is no column of a file. No row is read.
    """
    names: list[Hashable] = []
    for key, label in labels.items():
        if is_name(label, X, columns):
            if isinstance(X, np.ndarray | list | tuple):
                raise TypeError(f"{key} must be an array with one entry for each row, because X has no names")
            if columns is not None and label in columns:
                raise ValueError(f"{key} must not be one of the columns that are summed, got {label!r}")
            names.append(label)
        elif label is None:
            continue
        elif _tables.is_read_later(X) or _tables.is_blocks(X) or dask.is_dask(X):
            raise TypeError(f"{key} must be the name of a column if X is read in blocks")
        elif isinstance(label, np.ma.MaskedArray):
            raise TypeError(f"{key} {_NO_LABELS}, got a masked array: {key}.filled(...) is one")
        elif isinstance(label, bytes | Mapping | Set) or len(getattr(label, "shape", (0,))) != 1:
            raise TypeError(f"{key} {_NO_LABELS}")
        elif hasattr(X, "__len__") and len(label) != len(X):
            raise ValueError(f"{key} must have one entry for each row of X")
        elif _tables.has_another_index(X, label):
            raise ValueError(f"{key} must have the index of X: labels are matched with rows by their places")
    if names and _tables.is_blocks(X):
        X.labelled(list(dict.fromkeys(names)))  # raises an error for a column that is not there
    for key, label in labels.items():
        dtype = None if label is None else _tables.label_type(X, label)
        if dtype is not None and dtype.kind not in _ALLOWED:
            raise TypeError(f"{key} {_NO_LABELS}")
    return list(dict.fromkeys(names))


def require_keys(X: Any, by: Any, keys: tuple[Hashable, ...]) -> None:
    """Raise TypeError if the labels `by` have another type than `keys`, the keys of groups; read no row of `X`.

    `by` is the name of a column of `X`, or an array. Types are alike if both are numbers, both texts or both dates.
    """
    dtype = _tables.label_type(X, by)
    if dtype is not None:
        _require_alike(dtype.kind, vector("keys", list(keys)).dtype.kind)


def _require_alike(found: str, known: str) -> None:
    """Raise TypeError unless labels of rows and keys of groups are alike: all numbers, all texts, or all dates.

    `found` and `known` are the `dtype.kind` of the labels and of the keys, for example "i" or "U".
    """
    labels, keys = _KIND_NAMES[found], _KIND_NAMES[known]
    if labels != keys:
        raise TypeError(f"by must have labels of the type of the keys: the keys are {keys}, and the labels {labels}")


def require_person(person: object, per_person: PerPerson) -> None:
    """Raise ValueError unless `person` and `per_person` are both None or both given.

    `person` says to whom each row belongs, and `per_person` what becomes of the rows of one person.
    """
    if (person is None) != (per_person is None):
        if person is None:
            raise ValueError(f"person must be given, because the mechanism has per_person = {per_person!r}")
        raise ValueError("person goes with a mechanism that has per_person, and this one has none")


def is_name(label: object, X: Any, columns: Columns = None) -> bool:
    """Return whether `label` is meant as the name of a column of `X`, and is not an array of labels or None.

    A tuple counts as a name only if a column of `X` has it or, if `X` is read later, if one of the `columns` that are
    summed has a tuple of the same length as its name. (Any other tuple may hold labels, which no error may show.)
    """
    if isinstance(label, tuple):
        if _tables.is_read_later(X):
            return any(isinstance(name, tuple) and len(name) == len(label) for name in columns or ())
        return label in (_tables.column_names(X) or ())
    scalar = isinstance(label, Hashable) and not hasattr(label, "__len__")
    return isinstance(label, str) or (scalar and label is not None)


def codes(labels: Labels, keys: tuple[Hashable, ...]) -> Labels:
    """Return, for each entry of `labels`, its index in `keys`, the keys of the groups, or -1 if it is no such key."""
    found, known = vector("by", labels), vector("keys", list(keys))
    small = np.int16 if len(keys) < 1 << 15 else np.int64
    if not found.size:
        return np.empty(0, dtype=small)
    _require_alike(found.dtype.kind, known.dtype.kind)
    if found.dtype.kind == "O":
        places = {key: k for k, key in enumerate(known)}
        return np.fromiter(map(places.get, found, itertools.repeat(-1)), dtype=small, count=found.size)
    if found.dtype.kind == "U":
        known = known.astype(np.str_)
        if (place := _places_of_texts(found, known)) is not None:
            return place.astype(small, copy=False)
    kinds = found.dtype.kind + known.dtype.kind
    if set(kinds) <= set("iub"):
        low, high = int(known.min()), int(known.max())
        if high - low < _TABLE and known.dtype != np.uint64 and low > np.iinfo(np.int64).min:
            before, table = low - 1, np.full(high - low + 3, -1, dtype=small)
            table[known.astype(np.int64) - before] = np.arange(len(keys))
            within = np.clip(found, before, high + 1) if found.dtype == np.uint64 else found
            places_of = np.empty(found.size, dtype=small)

            def look_up(start: int) -> None:
                piece = slice(start, start + _PIECE)
                table.take(within[piece].astype(np.int64, copy=False) - before, mode="clip", out=places_of[piece])

            in_parallel(look_up, range(0, found.size, _PIECE))
            return places_of
    fits = np.ones(len(keys), dtype=bool)
    if kinds == "MM":  # a key that has no value in the unit of the labels is the label of no row
        asked, known = known, known.astype(found.dtype)
        fits = known.astype(asked.dtype) == asked
        found, known = found.astype(int), known.astype(int)
    if kinds in ("iu", "ui"):  # NumPy would make doubles of them
        found, known = found.astype(object), known.astype(object)
    order = np.argsort(known)
    order = order[fits[order]]
    if not order.size:
        return np.full(found.size, -1, dtype=small)
    ranked = known[order]
    nearest = np.searchsorted(ranked, found).clip(max=order.size - 1)
    return np.where(ranked[nearest] == found, order[nearest], -1).astype(small)


def _places_of_texts(found: Labels, known: Labels) -> Labels | None:
    """Return the index in `known` of each NumPy string in `found`, or -1; None if a table would be very large.

    The texts in `known` differ. Each step looks at one character of every text of `found`, which together tell those of
    `known` apart, and takes the text to the next state by a table. The last state is the only candidate, with which
    the whole text is compared. It has ended in the state 0 if a character of it fits to none.
    """
    width = found.dtype.itemsize // 4
    fitting = np.flatnonzero(np.char.str_len(known) <= width)
    if not width or not fitting.size:
        return None
    letters = known[fitting].astype(f"U{width}").view(np.uint32).reshape(-1, width).astype(np.int64)
    states, steps = np.ones(fitting.size, dtype=np.int64), []
    for column in range(width):
        low, high = int(letters[:, column].min()), int(letters[:, column].max())
        together, following = np.unique(states << 32 | letters[:, column], return_inverse=True)
        if together.size > states.max():
            if (states.max() + 1) * (high - low + 3) > _TABLE:
                return None
            table = np.zeros((states.max() + 1, high - low + 3), dtype=np.intp)
            table[states, letters[:, column] - low + 1] = following + 1
            steps.append((column, low, table))
            states = following + 1
    of_state = np.zeros((width, fitting.size + 1), dtype=np.int32)
    of_state[:, states], place = letters.T, np.full(fitting.size + 1, -1)
    place[states] = fitting
    places = np.empty(found.size, dtype=np.int64)

    def look_up(start: int) -> None:
        piece = np.ascontiguousarray(found[start : start + _TEXTS], dtype=f"U{width}")
        columns = piece.view(np.int32).reshape(-1, width).T.copy()
        state = np.ones(piece.size, dtype=np.intp)
        for column, low, table in steps:
            state *= table.shape[1]
            state += np.clip(columns[column] - (low - 1), 0, table.shape[1] - 1)
            state = table.ravel().take(state, mode="clip")
        alike = np.ones(piece.size, dtype=bool)
        for column in range(width):
            alike &= of_state[column].take(state, mode="clip") == columns[column]
        places[start : start + _TEXTS] = place.take(state * alike, mode="clip")

    in_parallel(look_up, range(0, found.size, _TEXTS))
    return places


def in_order(labels: Labels) -> NDArray[np.intp]:
    """Return the indices that sort `labels`, a result of `vector`; equal entries keep their order."""
    if labels.dtype.kind != "O":
        return np.argsort(labels, kind="stable")
    return np.array(sorted(range(labels.size), key=labels.tolist().__getitem__), dtype=np.intp)  # faster than NumPy


def vector(name: str, labels: Any) -> Labels:
    """Return `labels` as a vector of numbers, of dates of NumPy, or of objects that are texts (str).

    No text becomes a NumPy string, because each of these takes as much memory as the longest one: then one person could
    decide how much memory a release needs. Only groups that are NumPy strings already remain so. Raise TypeError for
    labels of several types, or of another type, and ValueError for missing labels and for labels that NumPy would not
    tell apart. The messages call the labels by `name`.
    """
    # The labels of a list are not converted to one type, or 1 and "1" would be one person.
    as_they_are = isinstance(labels, list | tuple)
    try:
        found = np.asarray(_tables.labels_of(labels), dtype=object if as_they_are else None)
    except ValueError:  # rows of different lengths, which the message may show
        found = np.asarray(None)
    if found.ndim == 1 and (found.dtype.kind in "OT" or (found.dtype.kind == "U" and name == "person")):
        found = _typed(name, found.astype(object))
    if found.dtype.kind in "fM" and np.isnan(found).any():
        raise ValueError(f"{name} must not have missing labels")
    if found.ndim != 1 or found.dtype.kind not in _KIND_NAMES:
        raise TypeError(f"{name} {_NO_LABELS}")
    if found.dtype.kind == "f" and (np.abs(found) >= 2 / np.finfo(found.dtype).eps).any():
        raise ValueError(f"{name} must not have such large floats: integers or texts tell all labels apart")
    texts = found if name == "person" and found.dtype.kind == "O" else ()
    if any(len(text) <= _LONGEST and text.lower() in MISSING for text in texts):
        raise ValueError(f"{name} must not have missing labels, nor texts that stand for them, such as NA")
    return found


def _typed(name: str, found: Labels) -> Labels:
    """Return the vector of objects `found` as dates, booleans, integers or floats of NumPy; texts remain objects.

    The message of an error calls the labels by `name`. Raise TypeError if the entries have several types, or none of
    these types. Raise ValueError for a missing entry, for integers or nanoseconds that do not fit together into 64
    bits, and for a text that ends in a null character, which NumPy would ignore when it compares texts.
    """
    types = set(map(type, found))
    if not all(issubclass(kind, Hashable) for kind in types):  # arrays cannot be compared as labels
        raise TypeError(f"{name} {_NO_LABELS}")
    if types != {str} and any(
        label is None or type(label).__name__ in ("NAType", "NaTType") or label != label for label in found
    ):
        raise ValueError(f"{name} must not have missing labels")
    if all(issubclass(kind, str) for kind in types):
        parts = (found[start : start + _JOINED] for start in range(0, found.size, _JOINED))
        rare = (part for part in parts if "\0" in "".join(part))  # much quicker than to look at each text
        if any(map(str.endswith, itertools.chain.from_iterable(rare), itertools.repeat("\0"))):  # NumPy ignores it
            raise ValueError(f"{name} must not have texts that end in a null character")
        plain = types <= {str}  # no objects of a derived type
        return found if plain else np.fromiter(map(str.__str__, found), dtype=object, count=found.size)
    if all(isinstance(label, np.datetime64) for label in found):
        return _in_one_unit(name, np.array(found.tolist()), found)
    if all(map(_is_date, found)):
        dates, rest = found.astype("M8[us]"), [getattr(label, "nanosecond", 0) for label in found]  # of pandas
        return _in_one_unit(name, dates.astype("M8[ns]"), dates) + np.array(rest, "m8[ns]") if any(rest) else dates
    for kinds, dtype in _KINDS:
        if all(isinstance(label, kinds) and (dtype is bool or not isinstance(label, bool)) for label in found):
            try:
                return found.astype(dtype)
            except OverflowError:
                if dtype is np.uint64:
                    raise ValueError(f"{name} must have integers of 64 bits: texts tell larger ones apart") from None
    raise TypeError(f"{name} {_NO_LABELS}")


def _in_one_unit(name: str, dates: Labels, given: Iterable[np.datetime64]) -> Labels:
    """Return `dates`, which were made from the dates `given`, or raise ValueError if one of these is another date.

    The unit of `dates` may be so fine that 64 bits cannot count some of the dates in it. `name` is for the message.
    """
    if any(date.astype(label.dtype) != label for date, label in zip(dates, given, strict=True)):
        unit = np.datetime_data(dates.dtype)[0]
        raise ValueError(
            f"{name} must not have dates that 64 bits cannot count in {unit}, the finest unit of all dates"
        )
    return dates


def _is_date(label: object) -> bool:
    """Return whether `label` is a date or a time of Python without a time zone."""
    return isinstance(label, date) and getattr(label, "tzinfo", None) is None


# Blocks ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """Say which columns of a table are summed, and which columns hold the person and the group of each row.

    `columns` has the names of the columns that are summed, or is None for all columns that hold no labels; `d` is their
    number. `person` and `by` are the labels of the rows, their persons and groups: each is the name of a column, an
    array with one entry for each row, or None. Missing numbers are allowed if `gaps` is true.
    """

    columns: Columns
    d: int
    person: Any = None
    by: Any = None
    gaps: bool = False

    def results(self, X: Any, summed: Callable[[Iterator[Block]], dask.Sum]) -> list[dask.Sum]:
        """Return a list of sums of the rows of `X`: the results of one or several calls of the function `summed`.

        ``summed(blocks)`` takes an iterator of `Block` objects, and returns a pair (total, number of rows). All rows of
        one person are in the blocks of one call, sorted by person; only dask needs several calls. `X` is an array, a
        data frame, a table of `egm.files`, an iterator of data frames, or a dask array or frame. Raise ValueError if
        blocks of rows are not sorted by person, or if a label is missing.
        """
        if not dask.is_dask(X):
            return [summed(self._blocks(X))]
        of_part = partial(self._of_part, names=_tables.column_names(X))
        return dask.shuffled(X, of_part, None if self.person is None else _divided, partial(_together, summed=summed))

    def _names(self, X: object) -> list[Hashable]:
        """Return those of the labels `person` and `by` that are names of columns of `X`."""
        return label_names(X, self.columns, person=self.person, by=self.by)

    def _of_part(self, part: Any, names: tuple[Hashable, ...] | None) -> Block:
        """Return as one `Block` the rows and labels of `part`, a partition of a dask frame or a block of a dask array.

        `names` has the names of the columns of a dask array; for a dask frame it is not used.
        """
        labels = self.person, self.by
        if isinstance(part, np.ndarray):
            assert names is not None
            values = self._values(part[:, _tables.indices(names, _tables.without(labels, names, self.columns))])
            return Block(values, *(None if label is None else part[:, names.index(label)] for label in labels))
        return _joined(*self._blocks(part))

    def _blocks(self, X: Any) -> Iterator[Block]:
        """Yield the rows of `X` in blocks with their labels, sorted by person if persons are given.

        `X` is an array, a data frame, a table of `egm.files` or an iterator of data frames. Raise ValueError if blocks
        of rows are not sorted by person, or if a label is missing.
        """
        names, is_table = self._names(X), _tables.is_blocks(X)
        if not is_table and not isinstance(X, Iterator):
            yield from self._in_memory(X)
            return
        order, rows = Order(), 0
        for part in _tables.chosen(X, self.columns, names).labelled(names) if is_table else X:
            with _tables.counted_from(rows):
                rest, found = part if is_table else _tables.split(_named(part), *names, columns=self.columns)
                labels = dict(zip(names, found, strict=True))
                persons = None if self.person is None else vector("person", labels[self.person])
                if persons is not None:
                    order.check(persons)
                block = Block(self._values(rest), persons, labels.get(self.by))
            rows += len(block.values)
            yield block

    def _in_memory(self, X: Any) -> Iterator[Block]:
        """Yield the rows of an array or a frame `X` in blocks with the person and group of each row.

        If persons are given, the rows are sorted by person; the rows of one person keep their order. A
        frame is read in blocks, or becomes one array if persons are given.
        """
        names = self._names(X)
        rest, found = _tables.split(X, *names, columns=self.columns) if names else (X, [])
        labels = dict(zip(names, found, strict=True))
        given = [(key, getattr(self, key)) for key in ("person", "by")]
        found = [labels[label] if is_name(label, X) else label for _, label in given]
        persons, groups = (None if f is None else vector(key, f) for (key, _), f in zip(given, found, strict=True))
        if persons is None:
            start = 0
            for values in self._arrays(rest, summed=groups is not None and not self.gaps):
                yield Block(values, None, None if groups is None else groups[start : start + len(values)])
                start += len(values)
            return
        whole = Block(self._values(rest), persons, groups)
        order, step = in_order(persons), max(1, _SORTED // self.d)
        for start in range(0, max(order.size, 1), step):
            yield _cut(whole, order[start : start + step])

    def _arrays(self, rest: Any, summed: bool = False) -> Iterator[Any]:
        """Yield the numbers of `rest`, an array or a table without columns of labels, as arrays with d columns.

        An array is yielded as it is, and a table in blocks of rows. Raise ValueError for an infinite number and, unless
        gaps are allowed, for NaN. All rows are checked, also those that are left out later. If `summed` is true,
        `Lattice.sum_by_group` will check all rows of an array, and they are not checked before.
        """
        found = _tables.arranged(rest, self.columns, self.gaps)
        for block in found if isinstance(found, Iterator) else [found]:
            values = unread_matrix(self.d, X=block)
            if not summed or isinstance(found, Iterator):
                _tables.require_finite(values, self.gaps)
            yield values

    def _values(self, rest: Any) -> Any:
        """Return the arrays that the method `_arrays` yields for `rest` as one array."""
        found = list(self._arrays(rest))
        with np.errstate(all="ignore"):  # a warning could reveal a row
            return found[0] if len(found) == 1 else np.concatenate(found)


def _named(block: Any) -> Any:
    """Return the block of rows `block`, or raise TypeError if its columns have no names, by which labels are found."""
    if _tables.column_names(block) is None:
        raise TypeError("X must be made of data frames if person or by is the name of a column")
    return block


class Order:
    """Check that blocks of rows are sorted by person, so that the rows of one person follow each other.

    Texts may be sorted as texts or, if they are finite numbers, as numbers. The attribute `count` has the number of
    persons in the blocks so far, if these are sorted.
    """

    def __init__(self) -> None:
        self.last, self.count, self.ways = np.empty(0), 0, {"as they are", "as numbers"}

    def check(self, persons: Labels) -> None:
        """Take `persons`, one for each row of the next block; raise ValueError if blocks are not sorted by person."""
        if not self.holds(persons):
            raise ValueError(
                "X must be sorted by person if it is read in blocks: sort it by a stable method, or give it whole"
            )

    def holds(self, persons: Labels) -> bool:
        """Take `persons`, the persons of the next block; return whether all blocks so far, and this one, are sorted.

        Sorted means that the persons of the rows are in ascending order. One person may have several rows, also in
        consecutive blocks.
        """
        self.count += int(not self.last.size and persons.size > 0)
        persons = _end_to_end(self.last, persons)
        self.count += int(np.count_nonzero(persons[1:] != persons[:-1]))
        if persons.size and persons.dtype.kind != "O":
            self.ways.discard("as numbers")
        for way in list(self.ways):
            keys = _as_numbers(persons) if way == "as numbers" else persons
            if keys is None or np.any((persons[1:] != persons[:-1]) & (keys[1:] <= keys[:-1])):
                self.ways.remove(way)
        self.last = persons[-1:].copy()  # a view would keep the whole block in memory
        return bool(self.ways)


def _as_numbers(persons: Labels) -> Labels | None:
    """Return the texts `persons` as integers or, if that is impossible, as doubles; None if one is no finite number."""
    for dtype in (np.int64, float):
        with contextlib.suppress(ValueError, OverflowError):
            keys = persons.astype(dtype)
            return keys if np.isfinite(keys).all() else None
    return None


def _divided(block: Block, pieces: int) -> list[Block]:
    """Divide the rows of `block` into `pieces` blocks, so that all rows of one person are in one of them.

    A hash of the person says in which block a row is. So if several blocks are divided, the rows of one person are in
    pieces with the same index. Each piece has the type of the persons in `block`, if there are any.
    """
    assert block.persons is not None
    if not block.persons.size:
        return [block._replace(persons=np.empty(0, dtype=_NO_TYPE))] * pieces
    persons = vector("person", block.persons)
    if persons.dtype.kind == "O":
        texts = (label.encode(errors="surrogatepass") for label in persons)
        bits = np.fromiter(map(zlib.crc32, texts), dtype=np.uint64, count=persons.size)
    else:
        numbers = persons.astype("datetime64[us]").astype(int) if persons.dtype.kind == "M" else persons
        bits = (numbers.astype(float) + 0.0).view(np.uint64)  # one number has the same bits in all of its types
        bits = (bits ^ (bits >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(32)
    piece = bits % np.uint64(pieces)
    return [_cut(block._replace(persons=persons), piece == k) for k in range(pieces)]


def _together(pieces: list[Block], summed: Callable[[Iterator[Block]], dask.Sum]) -> dask.Sum:
    """Join the blocks in `pieces`, sort their rows by person if persons are given, and return what `summed` returns.

    ``summed(blocks)`` sums the rows of an iterator of blocks. Raise TypeError if the persons of the blocks have several
    types, also for pieces without rows: otherwise the hash of a person would decide.
    """
    persons = [piece.persons for piece in pieces if piece.persons is not None]
    _require_one_type(some for some in persons if some.dtype != _NO_TYPE)
    block = _joined(*pieces)
    if block.persons is not None:
        block = _cut(block, in_order(block.persons))
    return summed(iter([block]))


# Persons --------------------------------------------------------------------------------------------------------------


def gathered(source: Iterable[Block], how: PerPerson, most: int | None = None) -> Iterator[Block]:
    """Add up or average the rows of each person, or keep the first k of them; yield the resulting rows in blocks.

    The blocks of `source` are sorted by person. If `how` is "sum" or "mean", the result has one row for each person or,
    if rows have groups, for each group of a person. Missing entries (NaN) are left out of a sum or mean; if all are
    missing, the result is NaN. If `how` is a number k, the first k rows of each person are kept. Rows that belong to no
    group, which have -1 as the number of their group, are left out. For "sum" and "mean", only the first `most` groups
    of each person are kept, or all if `most` is None.
    """
    held: list[Block] = []  # all rows so far of the last person, who may have more in the next block
    person = None
    for block in source:
        if block.groups is not None:
            block = _cut(block, block.groups >= 0)
        persons = block.persons
        if persons is None or not persons.size:
            continue
        person = person if held else persons[0]
        held.append(block)
        if persons[-1] == person:  # a person's blocks are joined only once, however many they are
            held[-1] = _copied(block)  # because the caller may fill the arrays of a block again
            continue
        whole, person = _joined(*held), persons[-1]
        end = int(np.flatnonzero(whole.persons != person)[-1]) + 1
        yield _of_persons(_cut(whole, slice(None, end)), how, most)
        held = [_cut(whole, slice(end, None))]
    if held:
        yield _of_persons(_joined(*held), how, most)


def _cut(block: Block, rows: Any) -> Block:
    """Return the block of some rows of `block` with their labels; `rows` is a slice, a mask or an array of indices."""
    return Block(*(None if part is None else part[rows] for part in block))  # type: ignore[arg-type]  # values are no None


def _copied(block: Block) -> Block:
    """Return a copy of `block` whose values and labels no caller can change."""
    return Block(*(None if part is None else part.copy() for part in block))  # type: ignore[arg-type]  # as in `_cut`


def _joined(*blocks: Block) -> Block:
    """Return the rows and the labels of several `Block` objects, which are the arguments, as one `Block`."""
    values, *labels = zip(*blocks, strict=True)
    return Block(np.concatenate(values), *(None if parts[0] is None else _end_to_end(*parts) for parts in labels))


def _end_to_end(*parts: Labels) -> Labels:
    """Concatenate the arguments, vectors of labels; raise a TypeError if NumPy would have to change their types."""
    filled = [part for part in parts if part.size] or parts[:1]
    _require_one_type(filled)
    joined = np.concatenate(filled)
    if len({part.dtype for part in filled}) > 1 and joined.dtype.kind == "M":
        return _in_one_unit("person and by", joined, itertools.chain(*filled))
    return joined


def _require_one_type(labels: Iterable[Labels]) -> None:
    """Raise TypeError if the vectors in `labels` do not all have labels of one type, such as integers or texts."""
    if len({part.dtype.kind for part in labels}) > 1:
        raise TypeError("person and by must have labels of one type in all blocks of X")


def _of_persons(block: Block, how: PerPerson, most: int | None) -> Block:
    """Add up or average the rows of each person in `block`, or keep the first k of them; return the results as a block.

    `block` has all rows of some persons, sorted by person, and the result has no persons. `how` is "sum", "mean" or a
    number k. A sum or a mean leaves out missing entries (NaN), and is over the rows of a person or, if rows have
    groups, over the rows of a person in one group. Of these groups, only the first `most` are kept for each person, or
    all if `most` is None.
    """
    values, persons, groups = block
    assert persons is not None
    number = np.cumsum(np.append(False, persons[1:] != persons[:-1]))  # the number of each row's person, from 0 on
    if isinstance(how, int):
        kept = _rank(number) < how
        return Block(values[kept], None, None if groups is None else groups[kept])
    if groups is not None:
        number, order, groups = _pairs(number, groups, most)
        values = values[order]
    starts = np.flatnonzero(np.append(True, number[1:] != number[:-1]))
    with np.errstate(all="ignore"):  # a warning could reveal a person
        values = np.asarray(values, dtype=float)
        absent = np.isnan(values)
        present = np.add.reduceat(~absent, starts, axis=0, dtype=np.int64)
        total = np.add.reduceat(np.where(absent, 0.0, np.clip(values, -_FAR, _FAR)), starts, axis=0)
        total = np.where(present > 0, total / present if how == "mean" else total, np.nan)
    return Block(total, None, None if groups is None else groups[starts])


def _pairs(number: Labels, groups: Labels, most: int | None) -> tuple[Labels, Labels, Labels]:
    """Sort rows by person and group, and leave out all but the first `most` groups of each person.

    `number` has, for each row, the number of its person, in ascending order, and `groups` the number of its group. The
    groups of a person are taken in the order in which they first occur; if `most` is None, all are kept. The result has
    three vectors with an entry for each row that is kept: a number that is equal for all rows of one person in one
    group, the index of the row, and the number of its group.
    """
    span = int(groups.max()) + 1
    _, first, pair = np.unique(number * span + groups, return_index=True, return_inverse=True)
    by_person = np.lexsort((first, number[first]))  # the pairs: by person, and then in the order of their first rows
    rank = np.empty_like(first)
    rank[by_person] = _rank(number[first][by_person])
    order = np.argsort(pair, kind="stable")
    if most is not None:
        order = order[rank[pair[order]] < most]
    return pair[order], order, groups[order]


def _rank(number: Labels) -> Labels:
    """Return how many equal entries stand before each entry of the vector `number`, which is in ascending order."""
    starts = np.flatnonzero(np.append(True, number[1:] != number[:-1]))
    return np.arange(number.size) - np.repeat(starts, np.diff(np.append(starts, number.size)))
