"""Sums over dask arrays, which may be larger than memory or computed on many machines.

Each block of rows is one pure task, and the sums of consecutive blocks are added where they are. If
a worker is lost, only time is lost: the scheduler computes again what the worker held, and a task
counts once however often it ran. No task draws noise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from egm._types import PathLike

if TYPE_CHECKING:
    from dask.array import Array as DaskArray

__all__ = ["from_parquet", "is_dask", "results"]

_WIDTH = 16  # results that are added by one task, and at most how many are returned
_COLUMNS = 4  # of a Parquet file that are read at a time: more need more memory, fewer more time

Sum: TypeAlias = tuple[Any, int]  # a total, and the number of rows in it


def is_dask(X: object) -> bool:
    """Return whether X comes from dask, which is not imported to find out."""
    return type(X).__module__.split(".")[0] == "dask"


def results(X: Any, partial: Callable[[Any], Sum]) -> list[Sum]:
    """Apply `partial` to the blocks of rows of X, and return at most 16 pairs (total, rows).

    The pairs are to be added up in their order.

    X is a dask array (n, d) in any chunks; n and the sizes of the chunks of rows need not be known.
    `partial` is a picklable function that maps a block, an array (m, d), to (total, rows), and its
    totals can be added. It must depend on nothing but the block, because it may be called more than
    once for it. Each pair is the sum over consecutive blocks, and each block is in one pair. The
    pairs are computed by dask's current scheduler: threads, or the cluster of a
    `distributed.Client`.

    TypeError is raised for another dask collection, and ValueError for another number of axes or
    for columns in several chunks of unknown size. What `partial` raises is passed on.
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
    # As a task of its own, it is sent to each worker once and not with every block.
    shared = dask.delayed(partial, pure=True, traverse=False)
    cells = _cells(X, _result, partial=shared)
    while cells.size > _WIDTH:
        cells = _cells(cells.rechunk({0: _WIDTH}), _added)
    found: list[Sum] = cells.compute().ravel().tolist()
    return found


def _cells(X: Any, function: Callable[..., NDArray[Any]], **options: Any) -> Any:
    """Return an array (blocks, 1) with one object for each block of rows.

    Because it has two axes, dask makes one task of loading a block and of the function.
    """
    chunks = (1,) * X.numblocks[0], (1,)
    return X.map_blocks(function, dtype=object, meta=np.empty((0, 0), object), chunks=chunks, **options)


def _result(block: Any, partial: Callable[[Any], Sum]) -> NDArray[Any]:
    """Return what `partial` finds in one block, as a cell."""
    return _cell(partial(block))


def _added(cells: NDArray[Any]) -> NDArray[Any]:
    """Return the sum of several results, as a cell."""
    totals, rows = zip(*cells.ravel(), strict=True)
    return _cell((sum(totals[1:], start=totals[0]), sum(rows)))


def _cell(result: Sum) -> NDArray[Any]:
    """Return an array (1, 1) that holds this one object."""
    cell = np.empty((1, 1), object)
    cell[0, 0] = result
    return cell


def from_parquet(path: PathLike, columns: Sequence[str] | None = None) -> DaskArray:
    """Make a dask array of columns of numbers in Parquet files, of which nothing is read before it is summed.

    Parameters
    ----------
    path : str or os.PathLike
        Parquet file, or a folder of them. The files of a folder are taken in the order of their
        names. A name that begins with a dot or an underscore is skipped.
    columns : sequence of str, optional
        Names of the columns that are read, by default all columns of the first file. They hold
        integers or floating-point numbers of any size.

    Returns
    -------
    dask.array.Array, shape (n, d)
        A block for each row group, of the type that holds the numbers of all columns. A mechanism
        matches the names of the columns with its own, as long as it gets the array as it is
        returned here.

    Raises
    ------
    FileNotFoundError
        If there are no Parquet files.
    ValueError
        If a file is not Parquet, or has not these columns. When a block is read, if it has missing
        values.
    TypeError
        If a column is of another type, or if `columns` is a single name.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import pyarrow
    >>> import pyarrow.parquet
    >>> from egm import files
    >>> table = pyarrow.table({"age": [31, 52], "income": [1800, 2900]})
    >>> with TemporaryDirectory() as folder:
    ...     pyarrow.parquet.write_table(table, f"{folder}/people.parquet")
    ...     X = files.from_parquet(folder)
    ...     X.shape, X.compute().sum(axis=0)
    ((2, 2), array([  83, 4700]))
    """
    import dask
    from dask.array import map_blocks
    from pyarrow import dataset

    if isinstance(columns, str):
        raise TypeError(f"columns must be a list of names, got {columns!r}")
    files = dataset.dataset(path, format="parquet")
    if not files.files:
        raise FileNotFoundError(f"no Parquet files in {str(path)!r}")
    everything = columns is None
    columns = files.schema.names if everything else list(columns)  # type: ignore[arg-type]  # columns are given
    if not columns:
        raise ValueError("columns must name at least one column")
    types, groups = [], []
    for fragment in files.get_fragments():
        types += _types(fragment, columns, everything)
        groups += [(fragment.path, group.id, group.num_rows) for group in fragment.row_groups]
    dtype = np.result_type(*types)
    # With pure=False every call gets new keys: the file may have changed since the last.
    source = dask.delayed((files.filesystem, groups, columns, dtype), pure=False, traverse=False)
    chunks = tuple(rows for _, _, rows in groups) or (0,), (len(columns),)
    X: DaskArray = map_blocks(_row_group, source=source, chunks=chunks, dtype=dtype, meta=np.empty((0, 0), dtype))
    X.column_names = tuple(columns)  # type: ignore[attr-defined]  # as of an Arrow table: a mechanism matches them
    return X


def _types(fragment: Any, columns: list[str], everything: bool) -> list[Any]:
    """Return NumPy's types of the columns of a file, each of which must occur there once and hold numbers."""
    from pyarrow import types

    schema = fragment.physical_schema
    if everything and set(schema.names) != set(columns):
        raise ValueError(f"{fragment.path} must have the columns of the first file, {columns}, got {schema.names}")
    found = []
    for name in columns:
        if len(schema.get_all_field_indices(name)) != 1:
            raise ValueError(f"{fragment.path} must have one column {name!r}, got {schema.names}")
        kind = schema.field(name).type
        if not (types.is_integer(kind) or types.is_floating(kind)):
            raise TypeError(f"column {name!r} of {fragment.path} must hold numbers, got {kind}; name others")
        found.append(kind.to_pandas_dtype())
    return found


def _row_group(source: tuple[Any, ...], block_id: tuple[int, ...]) -> NDArray[Any]:
    """Return one row group as an array (rows, d), read a few columns at a time so that it is in memory only once."""
    from pyarrow.parquet import ParquetFile

    filesystem, groups, columns, dtype = source
    if not groups:
        return np.empty((0, len(columns)), dtype)
    path, group, rows = groups[block_id[0]]
    block = np.empty((rows, len(columns)), dtype)
    with ParquetFile(path, filesystem=filesystem) as file:
        for start in range(0, len(columns), _COLUMNS):
            names = columns[start : start + _COLUMNS]
            table = file.read_row_group(group, columns=names, use_threads=False)
            for j, name in enumerate(names, start):
                if table.column(name).null_count:  # how many there are may be private
                    raise ValueError(f"column {name!r} of {path} must have no missing values")
                block[:, j] = table.column(name).to_numpy()
    return block
