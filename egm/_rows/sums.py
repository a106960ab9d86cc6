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
    """Add up the centered, scaled and clipped rows on a lattice, and count the rows.

    Parameters
    ----------
    X : array_like, iterator of array_like or dask array, shape (n, d)
        Real numbers; blocks of an iterator have shape (m, d). `X` is read once, and never changed
        or copied as a whole.
    grid : egm._rows.lattice.Lattice
        Lattice on which the rows are clipped and rounded.
    center : ndarray, shape (d,)
        Center that is subtracted from each row.
    scaling : ndarray, shape (d,)
        Factors by which the coordinates are multiplied before a row is clipped.
    count_clipped : bool, default False
        Whether to count the rows that are clipped, too.

    Returns
    -------
    total : ndarray of int, shape (d,) or (d + 1,)
        Python integers: the exact sum. Under `count_clipped` the number of clipped rows comes after
        it.
    rows : int
        Number of rows.

    Raises
    ------
    ValueError
        If `X` has another shape, or if an entry is not finite.
    TypeError
        If `X` does not hold real numbers.

    Notes
    -----
    Because the sum is exact, it is the same for any order, any blocks, and any machines of one
    kind.

    Examples
    --------
    >>> import numpy as np
    >>> from egm._rows import lattice, sums
    >>> grid = lattice.Lattice(clip_norm=5.0, d=2, noise=8.5)
    >>> blocks = iter([np.array([[3.0, 4.0]]), np.array([[30.0, 40.0], [0.0, 0.0]])])
    >>> total, rows = sums.clipped_sum(blocks, grid, center=np.zeros(2), scaling=np.ones(2))
    >>> print((total.astype(float) * grid.unit).round(6), rows)
    [6. 8.] 3
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
    """Add up the rows of one array or list, as `clipped_sum` does, and count them."""
    if isinstance(X, list | tuple) and not len(X):  # no rows, of whatever length
        X = np.empty((0, center.size))
    X = unread_matrix(center.size, X=X)
    if not count_clipped:
        return grid.sum(X, center, scaling), len(X)
    return np.append(*grid.sum_and_clipped(X, center, scaling)), len(X)
