"""Sum the rows of dask arrays, which may be larger than memory or computed on many machines.

Each block of rows is one task of dask, whose result depends on the block alone. The sums of consecutive blocks are
added on the machines that have computed them. If a machine fails, dask's scheduler computes its results again, and
the sum stays the same: the result of a task counts once, even if the task has run twice. No task draws noise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["Sum", "in_blocks", "is_dask", "results", "shuffled"]

_PIECES = 64  # largest number of pieces into which the rows of a block are divided
_WIDTH = 16  # number of sums that one task adds, and largest number of sums that `results` returns

Sum: TypeAlias = tuple[Any, Any]  # a total, and the number of rows in it, or in each group of it
T = TypeVar("T")


def is_dask(X: object) -> bool:
    """Return whether the type of `X` is defined by dask; dask itself is not imported."""
    return type(X).__module__.split(".")[0] == "dask"


def results(X: Any, partial: Callable[[Any], Sum]) -> list[Sum]:
    """Sum each block of rows of a dask array `X` by `partial`, and add up consecutive sums until at most 16 are left.

    `partial` maps a block, an array (m, d), to a pair (total, number of rows). It must be an object that can be
    pickled, and depend on the block alone, because it may be called more than once for a block. The number of rows and
    the sizes of the chunks of rows need not be known.

    The result is a list of such pairs in the order of the rows, computed by dask's current scheduler. Raise TypeError
    if X is an object of dask but no array, and ValueError if it does not have two axes, or has its columns in several
    chunks of unknown size. Errors of `partial` are passed on.
    """
    import dask

    X = _whole_rows(X)
    # As a task of its own, `partial` is sent to each worker once, and not with every block.
    shared = dask.delayed(partial, pure=True, traverse=False)
    cells = _cells(X, _result, partial=shared)
    while cells.size > _WIDTH:
        cells = _cells(cells.rechunk({0: _WIDTH}), _added)
    found: list[Sum] = cells.compute().ravel().tolist()
    return found


def shuffled(
    X: Any, of_part: Callable[[Any], T], divided: Callable[[T, int], list[T]] | None, together: Callable[[list[T]], Sum]
) -> list[Sum]:
    """Divide each block of rows of `X` into pieces, and sum the k-th pieces of all blocks together, for each k.

    `X` is a dask array (n, d) or a dask frame. ``of_part(block)`` converts a block to an object, and
    ``divided(object, count)`` divides this object into a list of `count` pieces, at most 64. `together` takes the list
    of the k-th pieces of all blocks, and returns their sum as a pair (total, number of rows). The result is a list of
    one pair for each k. If `divided` puts all rows of a person into the k-th pieces for one k, these rows are summed
    together. If `divided` is None, blocks are not divided, and the list has one pair for each block. All functions must
    be picklable, and depend on their arguments alone.
    """
    import dask

    X = _whole_rows(X) if hasattr(type(X), "rechunk") else X  # a frame may have a column of this name
    parts = [dask.delayed(of_part)(part) for part in np.ravel(X.to_delayed()).tolist()]
    if divided is None:
        sums = [dask.delayed(together)([part]) for part in parts]
    else:
        count = min(len(parts), _PIECES)
        pieces = [dask.delayed(divided, nout=count)(part, count) for part in parts]
        sums = [dask.delayed(together)([piece[k] for piece in pieces]) for k in range(count)]
    return list(dask.compute(*sums))


def in_blocks(X: Any, numbers: int) -> Any:
    """Return the dask array `X`, shape (n, d), in blocks of whole rows, each with at most `numbers` entries.

    A block has at least one row. Its number of rows depends on d and `numbers` alone; only the last block may have
    fewer. To find unknown sizes of chunks, all rows are read once. Raise TypeError if `X` is no dask array, and
    ValueError if it does not have two axes, or has its columns in several chunks of unknown size.
    """
    X = _whole_rows(X)
    if any(map(np.isnan, X.chunks[0])):
        X = X.copy().compute_chunk_sizes()
    return X.rechunk({0: max(1, numbers // X.shape[1])})


def _whole_rows(X: Any) -> Any:
    """Return the dask array `X`, shape (n, d), with all columns in one chunk.

    Raise TypeError if `X` is no dask array, and ValueError if it does not have two axes, or has its columns in several
    chunks of unknown size.
    """
    from dask.array import Array

    if not isinstance(X, Array):
        raise TypeError(f"X must be a dask array, such as to_dask_array() makes of a data frame, got {type(X)}")
    if X.ndim != 2:
        raise ValueError(f"X must have two axes, rows and columns, got shape {X.shape}")
    if X.numblocks[1] == 1:
        return X
    if np.isnan(X.shape[1]):
        raise ValueError(f"X must have columns whose number is known, or in one chunk, got chunks {X.chunks[1]}")
    return X.rechunk({1: -1})


def _cells(X: Any, function: Callable[..., NDArray[Any]], **options: Any) -> Any:
    """Apply `function` to each block of rows of the dask array `X`; return the results, one for each block.

    The result is a dask array of shape (blocks, 1). Further keyword arguments, `options`, are passed on to `function`,
    which returns an array of shape (1, 1). Because the result is an array with two axes, dask loads a block and calls
    the function in a single task.
    """
    chunks = (1,) * X.numblocks[0], (1,)
    return X.map_blocks(function, dtype=object, meta=np.empty((0, 0), object), chunks=chunks, **options)


def _result(block: Any, partial: Callable[[Any], Sum]) -> NDArray[Any]:
    """Return the result of the function `partial` for a `block` of rows, as the only entry of an array (1, 1)."""
    return _cell(partial(block))


def _added(cells: NDArray[Any]) -> NDArray[Any]:
    """Return the sum of `cells`, an array of pairs (total, number of rows), inside an array of shape (1, 1)."""
    totals, rows = zip(*cells.ravel(), strict=True)
    return _cell((sum(totals[1:], start=totals[0]), sum(rows)))


def _cell(result: Sum) -> NDArray[Any]:
    """Return an array of shape (1, 1) whose only entry is the object `result`.

    dask can join the results of several tasks only if they are arrays.
    """
    cell = np.empty((1, 1), object)
    cell[0, 0] = result
    return cell
