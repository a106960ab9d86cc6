"""The sum of the clipped rows of whatever holds them: arrays, memory maps, iterators of blocks, dask arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from egm._rows import dask
from egm._types import Array, ArrayLike, Whole
from egm._validate import unread_matrix

if TYPE_CHECKING:
    from egm._rows.lattice import Lattice

__all__ = ["clipped_sum"]


def clipped_sum(
    X: ArrayLike | Iterator[ArrayLike], grid: Lattice, center: Array, scaling: Array, count_clipped: bool = False
) -> tuple[Whole, int]:
    """(total, rows): the sum of the rows (x - center) * scaling on the lattice, clipped to its norm, and their number.

    X: real numbers, (n, d), an iterator of blocks of rows, (m, d) each, or a dask array (n, d); it is read once and
    never changed or copied as a whole. grid: the Lattice. center, scaling: (d,). The total, Python integers
    (d,), is exact, and so it is the same for any order, any blocks, and any machines of one kind. With count_clipped
    the number of rows that were clipped comes after it: (d + 1,). Raises ValueError or TypeError for what is not such a
    matrix and for entries that are not finite.
    """
    of_block = partial(_of_block, grid=grid, center=center, scaling=scaling, count_clipped=count_clipped)
    if isinstance(X, Iterator):
        results: Iterable[tuple[Whole, int]] = map(of_block, X)
    elif dask.is_dask(X):
        results = dask.results(X, of_block)
    else:
        results = [of_block(X)]
    total, rows = np.zeros(center.size + count_clipped, dtype=object), 0
    for part, count in results:
        total, rows = total + part, rows + count
    return total, rows


def _of_block(X: ArrayLike, grid: Lattice, center: Array, scaling: Array, count_clipped: bool) -> tuple[Whole, int]:
    """The same for an array or a list of rows."""
    if isinstance(X, list | tuple) and not len(X):  # no rows, of whatever length
        X = np.empty((0, center.size))
    X = unread_matrix(center.size, X=X)
    if not count_clipped:
        return grid.sum(X, center, scaling), len(X)
    return np.append(*grid.sum_and_clipped(X, center, scaling)), len(X)
