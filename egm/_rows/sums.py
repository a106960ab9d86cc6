"""Sum the clipped rows of an array, a memory map, an iterator of blocks, or a dask array."""

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
    """Center, scale and clip rows, and round them to integers; return the sum of the rows and the number of rows.

    X is an array (n, d), an iterator of arrays (m, d), or a dask array, of real numbers. It is read once, and never
    changed or copied as a whole. The sum is exact, in Python integers: it is the same for any order of the rows, any
    division into blocks, and any machines with one kind of processor. It has shape (d,). If `count_clipped` is true, it
    has shape (d + 1,), and its last entry is the number of rows that were clipped. Raise ValueError for an array of
    another shape or with an entry that is not finite, and TypeError for anything but real numbers.
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
    """Return the result of `clipped_sum` for one array or list of rows: their sum and their number."""
    if isinstance(X, list | tuple) and not len(X):  # no rows, which have any length
        X = np.empty((0, center.size))
    X = unread_matrix(center.size, X=X)
    if not count_clipped:
        return grid.sum(X, center, scaling), len(X)
    return np.append(*grid.sum_and_clipped(X, center, scaling)), len(X)
