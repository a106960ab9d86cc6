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
    from egm._basis import BasisLike
    from egm._rows.lattice import Lattice

__all__ = ["clipped_sum"]


def clipped_sum(
    X: ArrayLike | Iterator[ArrayLike],
    grid: Lattice,
    center: Array,
    scaling: Array,
    count_clipped: bool = False,
    basis: BasisLike | None = None,
) -> tuple[Whole, int]:
    """Center, scale and clip rows, and round them to integers; return the sum of the rows and the number of rows.

    `X` is an array (n, d), an iterator of arrays (m, d), or a dask array, of real numbers. X is read once, and never
    changed or copied as a whole. Each row x is replaced by (x - center) * scaling, with vectors `center` and `scaling`;
    with a `basis`, the coordinates of x - center along its vectors are scaled.
    The `Lattice` `grid` says at which norm a row is clipped, and how it is rounded.

    The sum has shape (d,), in Python integers. It is exact: it is the same for any order of the rows, any division into
    blocks, and any machines with one kind of processor. If `count_clipped` is true, the sum has shape (d + 1,), and its
    last entry is the number of rows that were clipped. Raise ValueError for an array of another shape or with an entry
    that is not finite, and TypeError for anything but real numbers.
    """
    of_block = partial(_of_block, grid=grid, center=center, scaling=scaling, count_clipped=count_clipped, basis=basis)
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


def _of_block(
    X: ArrayLike, grid: Lattice, center: Array, scaling: Array, count_clipped: bool, basis: BasisLike | None
) -> tuple[Whole, int]:
    """Return the result of `clipped_sum` for one array or list `X` of rows: the sum of the rows and their number.

    The arguments `grid`, `center`, `scaling`, `count_clipped` and `basis` are those of `clipped_sum`.
    """
    if isinstance(X, list | tuple) and not len(X):  # no rows, which have any length
        X = np.empty((0, center.size))
    X = unread_matrix(center.size, X=X)
    if not count_clipped:
        return grid.sum(X, center, scaling, basis), len(X)
    return np.append(*grid.sum_and_clipped(X, center, scaling, basis)), len(X)
