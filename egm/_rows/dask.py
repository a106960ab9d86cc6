"""Sum the rows of dask arrays, which may be larger than memory or computed on many machines.

Each block of rows is one pure task, and the sums of consecutive blocks are added on the machines that have them. If a
worker is lost, only time is lost: the scheduler computes its results again, and the result of a task counts once even
if the task has run twice. No task draws noise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["is_dask", "results"]

_WIDTH = 16  # results that are added by one task, and at most how many are returned

Sum: TypeAlias = tuple[Any, int]  # a total, and the number of rows in it


def is_dask(X: object) -> bool:
    """Return whether X is an object of dask, without importing dask."""
    return type(X).__module__.split(".")[0] == "dask"


def results(X: Any, partial: Callable[[Any], Sum]) -> list[Sum]:
    """Apply `partial` to the blocks of rows of X, and return at most 16 pairs (total, rows), in the order of the rows.

    X is a dask array (n, d) in any chunks; n and the sizes of the chunks of rows need not be known. `partial` is a
    picklable function that maps a block, an array (m, d), to (total, rows), where totals can be added. Because it may
    be called more than once for a block, it must depend on nothing else. Each pair is the sum over consecutive blocks,
    computed by dask's current scheduler: threads, or the cluster of a `distributed.Client`. Errors of `partial` are
    passed on.

    Raise TypeError for another dask collection, and ValueError for another number of axes, or for columns in several
    chunks of unknown size.
    """
    import dask
    from dask.array import Array

    if not isinstance(X, Array):
        raise TypeError(f"X must be a dask array, such as to_dask_array() makes of a data frame, got {type(X)}")
    if X.ndim != 2:
        raise ValueError(f"X must have two axes, rows and columns, got shape {X.shape}")
    if X.numblocks[1] > 1:
        if np.isnan(X.shape[1]):
            raise ValueError(f"X must have columns whose number is known, or in one chunk, got chunks {X.chunks[1]}")
        X = X.rechunk({1: -1})
    # As a task of its own, `partial` is sent to each worker once, and not with every block.
    shared = dask.delayed(partial, pure=True, traverse=False)
    cells = _cells(X, _result, partial=shared)
    while cells.size > _WIDTH:
        cells = _cells(cells.rechunk({0: _WIDTH}), _added)
    found: list[Sum] = cells.compute().ravel().tolist()
    return found


def _cells(X: Any, function: Callable[..., NDArray[Any]], **options: Any) -> Any:
    """Apply a function to each block of rows, and return a dask array (blocks, 1) that holds one result for each block.

    Because the result has two axes, dask makes a single task of loading a block and calling the function.
    """
    chunks = (1,) * X.numblocks[0], (1,)
    return X.map_blocks(function, dtype=object, meta=np.empty((0, 0), object), chunks=chunks, **options)


def _result(block: Any, partial: Callable[[Any], Sum]) -> NDArray[Any]:
    """Return the result of `partial` for one block, inside an array (1, 1)."""
    return _cell(partial(block))


def _added(cells: NDArray[Any]) -> NDArray[Any]:
    """Return the sum of several results (totals and numbers of rows), inside an array (1, 1)."""
    totals, rows = zip(*cells.ravel(), strict=True)
    return _cell((sum(totals[1:], start=totals[0]), sum(rows)))


def _cell(result: Sum) -> NDArray[Any]:
    """Return an array (1, 1) whose only entry is this object."""
    cell = np.empty((1, 1), object)
    cell[0, 0] = result
    return cell
