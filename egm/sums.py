"""The sum of the clipped rows of whatever holds them: arrays, memory maps, iterators of blocks, dask arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from egm import _dask
from egm._types import Array, ArrayLike, Rows, Whole
from egm._validate import unread_matrix

if TYPE_CHECKING:
    from egm.lattice import Lattice

__all__ = ["clipped_sum"]


def clipped_sum(X: Rows, grid: Lattice, center: Array, scaling: Array) -> tuple[Whole, int]:
    """(total, rows): the sum of the rows (x - center) * scaling on the lattice, clipped to its norm, and their number.

    X: real numbers, (n, d), an iterator of blocks of rows, (m, d) each, or a dask array (n, d); it is read once and
    never changed or copied as a whole. grid: an egm.lattice.Lattice. center, scaling: (d,). The total, Python integers
    (d,), is exact, and so it is the same for any order, any blocks, and any machines of one kind. Raises ValueError or
    TypeError for what is not such a matrix and for entries that are not finite.
    """
    of_block = partial(_of_block, grid=grid, center=center, scaling=scaling)
    if isinstance(X, Iterator):
        results: Iterable[tuple[Whole, int]] = map(of_block, X)
    elif _dask.is_dask(X):
        results = _dask.results(X, of_block)
    else:
        results = [of_block(X)]
    total, rows = np.zeros(center.size, dtype=object), 0
    for part, count in results:
        total, rows = total + part, rows + count
    return total, rows


def _of_block(X: ArrayLike, grid: Lattice, center: Array, scaling: Array) -> tuple[Whole, int]:
    """The same for an array or a list of rows, which may be empty."""
    if isinstance(X, list | tuple) and not X:
        X = np.empty((0, center.size))
    X = unread_matrix(center.size, X=X)
    return grid.sum(X, center, scaling), len(X)
