"""Read private rows several times, each time in the same blocks, and add up what a function finds in each block.

The blocks depend on the rows alone, and not on what holds them: an array, a file, or a dask array in chunks of any
size. So if the results of the function are added without rounding, as integers are, their total is the same, bit for
bit, for an array, a file and a dask array. One block is in memory at a time, besides what holds the rows; with dask,
one block for each worker.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np

from egm import _tables
from egm._rows import dask
from egm._rows.doubles import doubles
from egm._types import Array, Columns
from egm._validate import unread_matrix

__all__ = ["Passes", "Reopened", "peeked"]

_BLOCK = 1 << 20  # numbers in a block

T = TypeVar("T")


class Passes:
    """Hold rows that can be read several times, a matrix of real numbers with the shape (n, d).

    `X` is an array, a dask array, or a function without arguments that returns an iterator over blocks of the rows. For
    a function the `shape` (n, d) must be given, where n may be None if the number of rows is private. If `gaps` is
    true, rows with missing entries (NaN) are left out, and n is the number of the other rows. `number` counts how often
    all rows have been read.
    """

    def __init__(self, X: Any, shape: tuple[int | None, int] | None = None, gaps: bool = False) -> None:
        if dask.is_dask(X):
            X = dask.in_blocks(X, _BLOCK)
        self.X, self.number, self.gaps = X, 0, gaps
        n, d = shape or X.shape
        self.shape: tuple[Any, int] = None if gaps else n, d
        self._declared = shape is not None and self.shape[0] is not None

    def total(self, function: Callable[[Array], T], whole: bool = False) -> T:
        """Return the sum of function(block) over all blocks of rows, which are arrays of doubles in C order.

        The function must not change the block and, for a dask array, must be picklable. If `whole` is true, the
        function also gets the rows with missing entries, which are otherwise left out. Raise a ValueError if the number
        of rows is not n, for example because a file has changed; the message has the two numbers only if n was declared
        in `shape`, because otherwise they may be private. If n is None, the first call sets n.
        """
        self.number += 1
        counted = functools.partial(_counted, function, d=self.shape[1], gaps=self.gaps, whole=whole)
        lazy = dask.is_dask(self.X)
        parts: Iterable[tuple[Any, int]] = dask.results(self.X, counted) if lazy else map(counted, self._blocks())
        total, rows = functools.reduce(_added, parts)
        if self.shape[0] is None:
            self.shape = rows, self.shape[1]
        if rows != self.shape[0]:
            if not self._declared:
                raise ValueError("X must have the same number of rows each time it is read")
            raise ValueError(f"X must have the declared n = {self.shape[0]} rows, got {rows}")
        return total  # type: ignore[no-any-return]  # it is a T

    def require_finite(self) -> None:
        """Raise a ValueError with the row and the column of the first number that is not finite, if there is one.

        Missing entries are allowed if `gaps` is true. All rows are read for this check alone, before anything is
        computed from them.
        """
        start = 0
        for rows, place in self.total(functools.partial(_first_wrong, gaps=self.gaps), whole=True):
            if place is not None:
                i, j = divmod(place, self.shape[1])
                raise ValueError(f"X[{start + i}, {j}] must be finite")
            start += rows

    def _blocks(self) -> Iterator[Array]:
        """Yield the rows in blocks, arrays of doubles in C order; all blocks but the last have the same size."""
        d = self.shape[1]
        step = max(1, _BLOCK // d)
        if callable(self.X):
            yield from _regrouped(self.X(), step, d)
        else:
            yield from (doubles(self.X[start : start + step]) for start in range(0, max(len(self.X), 1), step))


class Reopened:
    """Represent a function `X`, which returns a new iterator over blocks of rows at each call, as a table.

    A block is an array or a data frame. `columns` has the declared names of the columns, or is None. The attribute
    `names` has these names or, if there are none, those of the first block, or "1", "2" and so on if that block has no
    names. `named` says whether the columns have names. `count` is None, because the number of rows is not known.
    Entries may be missing if `gaps` is true. `d` is the declared number of columns, or 0. Raise TypeError if the
    function returns one iterator twice, and ValueError if there is no block and `d` is 0.
    """

    count = None

    def __init__(self, X: Callable[[], Iterator[Any]], gaps: bool, columns: Columns, d: int) -> None:
        self.X, self.gaps, self.last = X, gaps, None
        first = next(self._opened(), None)
        if first is None and not d:
            raise ValueError("X must be a function that returns an iterator with at least one block of rows")
        names = columns or _tables.column_names(first)
        self.named = names is not None
        self.names = names or tuple(map(str, range(1, 1 + (d or unread_matrix(None, X=first).shape[1]))))

    def blocks(self) -> Iterator[Array]:
        """Get a new iterator from the function; yield its blocks as arrays with columns in the order of `names`."""
        for block in _tables.arranged(self._opened(), self.names if self.named else None, self.gaps):
            yield unread_matrix(len(self.names), X=block)

    def _opened(self) -> Iterator[Any]:
        """Return a new iterator over blocks of rows, from a call of the function."""
        opened = _tables.opened(self.X)
        if opened is self.last:
            raise TypeError("X must be a function that returns a new iterator each time, and it has returned one twice")
        self.last = opened
        return opened  # type: ignore[no-any-return]  # it is an iterator


def peeked(blocks: Iterator[Any]) -> tuple[Any, Iterator[Any]]:
    """Return the first block of the iterator `blocks`, or None if there is none, and an iterator over all blocks."""
    first = next(blocks, None)
    return first, iter(()) if first is None else itertools.chain([first], blocks)


def _regrouped(blocks: Iterator[Any], step: int, d: int) -> Iterator[Array]:
    """Yield the rows of the `blocks`, which have `d` columns, in blocks of `step` rows; the last one may have fewer.

    If there are no rows, one empty block is yielded. A block must be used before the next one is taken, because all
    blocks share their memory.
    """
    held, filled, none = np.empty((step, d)), 0, True
    for block in map(doubles, blocks):
        start = 0
        while start < len(block):
            taken = block[start : start + step - filled]
            held[filled : filled + len(taken)] = taken
            start, filled = start + len(taken), filled + len(taken)
            if filled == step:
                yield held
                filled, none = 0, False
    if filled or none:
        yield held[:filled]


def _counted(function: Callable[[Array], T], block: Any, d: int, gaps: bool, whole: bool) -> tuple[T, int]:
    """Apply `function` to the rows of `block` that are kept; return its result and the number of these rows.

    If `gaps` is true, rows with a missing entry (NaN) are not kept. If `whole` is true, `function` is applied to all
    rows of the block, but the number is still that of the rows that are kept. Raise the errors of `unread_matrix` if
    `block`, which dask may have computed, is not a matrix of real numbers with `d` columns.
    """
    block = doubles(unread_matrix(d, X=block))
    kept = block[~np.isnan(block).any(axis=1)] if gaps else block
    return function(block if whole else kept), len(kept)


def _added(one: tuple[Any, int], other: tuple[Any, int]) -> tuple[Any, int]:
    """Return the sum of `one` and `other`, two pairs (result of a function, number of rows), entry by entry."""
    return operator.add(one[0], other[0]), one[1] + other[1]


def _first_wrong(block: Array, gaps: bool) -> list[tuple[int, int | None]]:
    """Return a list with one pair: the number of rows, and the index of the first number that is not finite, or None.

    Missing numbers (NaN) are passed over if `gaps` is true. The index counts the entries of the flattened block. The
    result is a list, so that the sum over several blocks has one pair for each block.
    """
    wrong = np.isinf(block) if gaps else ~np.isfinite(block)
    return [(len(block), int(np.argmax(wrong)) if wrong.any() else None)]
