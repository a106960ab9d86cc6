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
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from egm import _tables
from egm._rows import dask
from egm._rows.labels import (
    NO_LABELS,
    Labels,
    codes,
    end_to_end,
    in_order,
    numbered,
    require_alike,
    require_one_type,
    vector,
)
from egm._types import Array, Columns
from egm._validate import nested_shape, unread, unread_matrix

__all__ = ["Block", "Order", "PerPerson", "Source", "gathered", "is_name", "label_names", "layout", "require_keys"]
__all__ += ["require_person"]

_SORTED = 1 << 20  # numbers that are copied at a time, in the order of the persons
_FAR = 1e290  # entries are cut here before they are added, so that no sum becomes infinite
_NO_TYPE = np.dtype("V1")  # of the persons of a block without rows
_ALLOWED = "iubfUM"  # kinds of types of NumPy that the labels of rows may have, apart from objects

PerPerson: TypeAlias = Literal["sum", "mean"] | int | None


class Block(NamedTuple):
    """Hold rows of a table (`values`), the person of each row, and the number of its group; vectors or None.

    A row that belongs to none of the groups has -1 as the number of its group.
    """

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
            raise TypeError(f"{key} {NO_LABELS}, got a masked array: {key}.filled(...) is one")
        elif isinstance(label, bytes | Mapping | Set) or len(getattr(label, "shape", (0,))) != 1:
            raise TypeError(f"{key} {NO_LABELS}")
        elif hasattr(X, "__len__") and len(label) != len(X):
            raise ValueError(f"{key} must have one entry for each row of X")
        elif _tables.has_another_index(X, label):
            raise ValueError(f"{key} must have the index of X: labels are matched with rows by their places")
    if names and _tables.is_blocks(X):
        X.labelled(list(dict.fromkeys(names)))  # raises an error for a column that is not there
    for key, label in labels.items():
        dtype = None if label is None else _tables.label_type(X, label)
        if dtype is not None and dtype.kind not in _ALLOWED:
            raise TypeError(f"{key} {NO_LABELS}")
    return list(dict.fromkeys(names))


def require_keys(X: Any, by: Any, keys: tuple[Hashable, ...]) -> None:
    """Raise TypeError if the labels `by` have another type than `keys`, the keys of groups; read no row of `X`.

    `by` is the name of a column of `X`, or an array. Types are alike if both are numbers, both texts or both dates.
    """
    dtype = _tables.label_type(X, by)
    if dtype is not None:
        require_alike(dtype.kind, vector("keys", list(keys)).dtype.kind)


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


# Blocks ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """Say which columns of a table are summed, and which columns hold the person and the group of each row.

    `columns` has the names of the columns that are summed, or is None for all columns that hold no labels; `d` is their
    number. `person` and `by` are the labels of the rows, their persons and groups: each is the name of a column, an
    array with one entry for each row, or None. `keys` are the labels of the groups. Missing numbers are allowed if
    `gaps` is true.
    """

    columns: Columns
    d: int
    person: Any = None
    by: Any = None
    keys: tuple[Hashable, ...] = ()
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
            rest = part[:, _tables.indices(names, _tables.without(labels, names, self.columns))]
            person, by = (None if label is None else part[:, names.index(label)] for label in labels)
        else:
            rest, person, by = self._split(part)
        return Block(self._values(rest), None if person is None else vector("person", person), self._groups(by))

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
                block = Block(self._values(rest), persons, self._groups(labels.get(self.by)))
            rows += len(block.values)
            yield block

    def _in_memory(self, X: Any) -> Iterator[Block]:
        """Yield the rows of an array or a frame `X` in blocks with the person and group of each row.

        If persons are given, the rows are sorted by person; the rows of one person keep their order. A
        frame is read in blocks, or becomes one array if persons are given.
        """
        rest, person, by = self._split(X)
        persons, groups = None if person is None else numbered("person", person), self._groups(by)
        if persons is None:
            start = 0
            for values in self._arrays(rest, summed=groups is not None and not self.gaps):
                yield Block(values, None, None if groups is None else groups[start : start + len(values)])
                start += len(values)
            return
        whole, step = Block(self._values(rest), persons, groups), max(1, _SORTED // self.d)
        order = None if np.all(persons[1:] >= persons[:-1]) else in_order(persons)
        for start in range(0, max(persons.size, 1), step):
            rows = slice(start, start + step)
            yield _cut(whole, rows if order is None else order[rows])

    def _split(self, X: Any) -> tuple[Any, Any, Any]:
        """Return the columns of the array or frame `X` that are summed, the persons, and the groups, all unchecked."""
        names = self._names(X)
        rest, found = _tables.split(X, *names, columns=self.columns) if names else (X, [])
        labels = dict(zip(names, found, strict=True))
        person, by = (labels[label] if is_name(label, X) else label for label in (self.person, self.by))
        return rest, person, by

    def _groups(self, labels: Any) -> Labels | None:
        """Return the number of the group of each row, or None if `labels`, the labels of the groups, are None."""
        return None if labels is None else codes(labels, self.keys)

    def _arrays(self, rest: Any, summed: bool = False) -> Iterator[Any]:
        """Yield the numbers of `rest`, an array or a table without columns of labels, as arrays with d columns.

        An array is yielded as it is, and a table in blocks of rows. Raise ValueError for an infinite number and, unless
        gaps are allowed, for NaN. All rows are checked once, also those that are left out later: those of a table by
        `_tables.arranged`, and those of an array here or, if `summed` is true, later by `Lattice.sum_by_group`.
        """
        found = _tables.arranged(rest, self.columns, self.gaps)
        for block in found if isinstance(found, Iterator) else [found]:
            values = unread_matrix(self.d, X=block)
            if not (summed or isinstance(found, Iterator)):
                _tables.require_finite(values, self.gaps)
            yield values

    def _values(self, rest: Any) -> Any:
        """Return the arrays that `_arrays` yields for `rest` as one array, which is in C order if there are several."""
        found = list(self._arrays(rest))
        if len(found) == 1:
            return found[0]
        whole = np.empty((sum(map(len, found)), self.d), dtype=np.result_type(*found))
        with np.errstate(all="ignore"):  # a warning could reveal a row
            return np.concatenate(found, out=whole)


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
        persons = end_to_end(self.last, persons)
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
    require_one_type(some for some in persons if some.dtype != _NO_TYPE)
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
    if isinstance(rows, slice):
        return Block(*(None if part is None else part[rows] for part in block))  # type: ignore[arg-type]  # values are no None
    rows = np.flatnonzero(rows) if rows.dtype == np.bool else rows
    taken = (None if part is None else part.take(rows, axis=0) for part in block)  # much quicker than square brackets
    return Block(*taken)  # type: ignore[arg-type]  # as above


def _copied(block: Block) -> Block:
    """Return a copy of `block` whose values and labels no caller can change."""
    return Block(*(None if part is None else part.copy() for part in block))  # type: ignore[arg-type]  # as in `_cut`


def _joined(*blocks: Block) -> Block:
    """Return the rows and the labels of several `Block` objects, which are the arguments, as one `Block`."""
    values, *labels = zip(*blocks, strict=True)
    return Block(np.concatenate(values), *(None if parts[0] is None else end_to_end(*parts) for parts in labels))


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
        values = np.clip(np.asarray(values, dtype=float), -_FAR, _FAR)
        absent = np.isnan(values)
        present = np.diff(starts, append=len(values))[:, None]
        if absent.any():
            present = np.add.reduceat(~absent, starts, axis=0, dtype=np.int64)
            values = np.where(absent, 0.0, values)
        total = np.add.reduceat(values, starts, axis=0)
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
