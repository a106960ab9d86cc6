"""Sum the clipped rows of an array, a memory map, an iterator of blocks, or a dask array."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from egm import _tables
from egm._rows import dask
from egm._types import Array, ArrayLike, Whole
from egm._validate import unread_matrix

if TYPE_CHECKING:
    from egm._basis import BasisLike
    from egm._rows.lattice import Lattice

__all__ = ["Missing", "clipped_sum", "filled", "group_sums"]

Missing: TypeAlias = Literal["error", "center", "drop_row"]
T = TypeVar("T")

_FILLED = 1 << 20  # numbers that are copied at a time, if missing values are allowed


def clipped_sum(
    X: ArrayLike | Iterator[ArrayLike],
    grid: Lattice,
    center: Array,
    scaling: Array,
    count_clipped: bool = False,
    basis: BasisLike | None = None,
    missing: Missing = "error",
) -> tuple[Whole, int]:
    """Center, scale and clip rows, and round them to integers; return the sum of the rows and the number of rows.

    `X` is an array (n, d), an iterator of arrays (m, d), or a dask array, of real numbers. It is read once, and never
    changed or copied as a whole. Each row x is replaced by (x - center) * scaling; with a `basis`, the coordinates of x
    - center along its vectors are scaled. The `Lattice` `grid` says at which norm a row is clipped, and how it is
    rounded.

    The sum has shape (d,), in Python integers. It is exact: it does not depend on the order of the rows, on the
    division into blocks, or on the machine, for processors of one kind. If `count_clipped` is true, a last entry is the
    number of clipped rows. If `missing` is "center", NaN counts as the entry of `center`; if it is "drop_row", rows
    with NaN are left out. Raise ValueError for an array of another shape or with an entry that is not finite, and
    TypeError for anything but real numbers.
    """
    of_block = partial(_of_block, grid=grid, center=center, scaling=scaling, count_clipped=count_clipped, basis=basis)
    if missing != "error":
        of_block = partial(_of_incomplete, of_complete=of_block, center=center, missing=missing)
    if isinstance(X, Iterator):
        results: Iterable[tuple[Whole, int]] = _in_turn(X, of_block)
    elif dask.is_dask(X):
        results = dask.results(X, of_block)
    else:
        results = [of_block(X)]
    total, rows = np.zeros(center.size + count_clipped, dtype=object), 0
    for part, count in results:
        total, rows = total + part, rows + count
    return total, rows


def _in_turn(blocks: Iterator[Any], of_block: Callable[[Any], T]) -> Iterator[T]:
    """Yield of_block(block) for each of the `blocks`, arrays or lists; errors count the rows of all blocks."""
    rows = 0
    for block in blocks:
        with _tables.counted_from(rows):
            result = of_block(block)
        rows += len(block)
        del block  # its memory is free before the next one is made
        yield result


def _of_block(
    X: ArrayLike, grid: Lattice, center: Array, scaling: Array, count_clipped: bool, basis: BasisLike | None
) -> tuple[Whole, int]:
    """Return the sum of the clipped rows of one array or list `X`, as `clipped_sum` does, and the number of rows.

    The other arguments say, as for `clipped_sum`, how a row is centered, scaled, clipped and rounded to integers.
    """
    X = unread_matrix(center.size, X=X)
    if not count_clipped:
        return grid.sum(X, center, scaling, basis), len(X)
    return np.append(*grid.sum_and_clipped(X, center, scaling, basis)), len(X)


def _of_incomplete(
    X: ArrayLike, of_complete: Callable[[Array], tuple[Whole, int]], center: Array, missing: Missing
) -> tuple[Whole, int]:
    """Return the sum of the clipped rows of one array or list `X`, which may have NaN, and the number of summed rows.

    The function `of_complete` returns both results for an array without NaN. If `missing` is "center", NaN becomes the
    entry of `center` for its column; if it is "drop_row", rows with NaN are neither summed nor counted.
    """
    X, step = unread_matrix(center.size, X=X), max(1, _FILLED // center.size)
    _tables.require_finite(X, gaps=True)  # also in rows that are left out
    blocks = [X[start : start + step] for start in range(0, max(len(X), 1), step)]
    parts = [of_complete(filled(block, center, missing)[0]) for block in blocks]
    return sum(total for total, _ in parts[1:]) + parts[0][0], sum(rows for _, rows in parts)


def filled(X: Any, center: Array, missing: Missing) -> tuple[Array, NDArray[np.bool]]:
    """Fill in missing entries, or leave out their rows; return the complete rows, and whether each row of `X` was kept.

    If `missing` is "center", NaN becomes the entry of `center` for its column. If it is "drop_row", rows with NaN are
    left out.
    """
    absent = np.isnan(X)
    if missing == "center":
        return np.where(absent, center, X), np.ones(len(X), dtype=bool)
    complete = ~absent.any(axis=1)
    return X[complete], complete


def group_sums(
    blocks: Iterable[tuple[Any, NDArray[Any]]],
    groups: int,
    grid: Lattice,
    center: Array,
    scaling: Array,
    basis: BasisLike | None = None,
    missing: Missing = "error",
) -> tuple[Whole, NDArray[np.int64]]:
    """Sum the clipped rows of each group; return the sums, shape (groups, d), and the numbers of rows, shape (groups,).

    Each of the `blocks` is a pair: an array of rows, and a vector with each row's group, from 0 to `groups` - 1, or -1
    for a row that is left out. The other arguments say, as for `clipped_sum`, how a row is centered, scaled, clipped
    and rounded, and what becomes of missing entries.
    """
    total, rows = np.zeros((groups, center.size), dtype=object), np.zeros(groups, dtype=np.int64)
    for X, codes in blocks:
        X = unread_matrix(center.size, X=X)
        step = max(1, len(X) if missing == "error" else _FILLED // center.size)
        for start in range(0, len(X), step):
            values, of_values = X[start : start + step], codes[start : start + step]
            if missing != "error":
                values, kept = filled(values, center, missing)
                of_values = of_values[kept]
            part, number = grid.sum_by_group(values, of_values, groups, center, scaling, basis)
            total, rows = total + part, rows + number
    return total, rows
