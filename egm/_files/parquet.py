"""Read tables and vectors from Parquet files: in blocks with pyarrow, or as a dask array."""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from egm import _distribution
from egm._files.columns import require_lists
from egm._files.source import CHANGED, FileError, Given, Labels, Source, Vector, rows_in_a_block
from egm._types import Array, PathLike

if TYPE_CHECKING:
    from dask.array import Array as DaskArray

__all__ = ["as_dask", "require", "table", "vector", "written"]

_PAGE = 1 << 16  # bytes of a column that are buffered
_COLUMNS = 4  # columns that a task of dask reads at a time: more of them need more memory, fewer more time
_NUMBERS = r"bool|u?int|float|half|double|decimal"  # pyarrow's names of the types of numbers
_INSTALL = f"Parquet needs pyarrow: pip install '{_distribution.NAME}[files]'"


def table(path: Path, given: Given) -> Source:
    """Return the table in the Parquet file at `path` as a `Source`, from which its rows can be read in blocks.

    `given`, the description of a CSV file, is not used.
    """
    with _opened(path) as file:
        schema, count = file.schema_arrow, file.metadata.num_rows
    everything = list(schema.names)  # pyarrow makes this list anew whenever it is asked for
    if not everything:
        raise FileError(f"{path}: has no columns")

    def require(values: list[int], labels: list[int]) -> None:
        for i in values:
            _require_numbers(path, schema.field(i))
        for i in labels:
            _require_labels(path, schema.field(i))

    def read(values: list[int], labels: list[int]) -> Iterator[tuple[Array, list[Labels]]]:
        names = [everything[i] for i in dict.fromkeys([*values, *labels])]
        start = 0
        with _opened(path) as file:
            if file.schema_arrow != schema:
                raise FileError(f"{path}: {CHANGED}")
            for batch in file.iter_batches(batch_size=rows_in_a_block(len(names)), columns=names):
                found = dict(zip(batch.schema.names, batch.columns, strict=True))  # pyarrow would search for each name
                block = np.column_stack([np.empty((len(batch), 0)), *(_numbers(found[everything[i]]) for i in values)])
                yield block, [_labels(path, start, everything[i], found[everything[i]]) for i in labels]
                start += len(batch)

    def label_type(i: int) -> np.dtype[Any]:
        kind = _plain(schema.field(i).type)
        return np.dtype(np.str_ if "string" in str(kind) else kind.to_pandas_dtype())

    return Source(everything, count, read, lambda: iter([count]), require, label_type)


def vector(path: Path, given: Given) -> Vector:
    """Return the names and the values in the Parquet file at `path`, which has one value in each row.

    The file may have a column of names before the values; otherwise None stands for the names. `given` is not used.
    """
    with _opened(path) as file:
        table = file.read()
    if table.num_columns not in (1, 2):
        raise FileError(f"{path}: must have one column of numbers, or names and numbers; it has {table.num_columns}")
    _require_numbers(path, table.schema.field(table.num_columns - 1))
    names = [str(name) for name in table.column(0).to_pylist()] if table.num_columns == 2 else None
    return names, _numbers(table.column(table.num_columns - 1))


def require() -> None:
    """Raise a FileError if pyarrow, which the function `written` needs, is not installed."""
    try:
        import pyarrow.parquet  # noqa: F401 - only tried
    except ImportError:
        raise FileError(_INSTALL) from None


def written(columns: dict[str, list[Any]], about: dict[str, str]) -> bytes:
    """Return the bytes of a Parquet file with these `columns`, and with the texts in `about` as its metadata.

    A column with None in the place of each number is one of numbers, too, so that its type is that of other files.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    table, file = pa.table(columns), io.BytesIO()
    typed = [field.with_type(pa.float64()) if pa.types.is_null(field.type) else field for field in table.schema]
    pq.write_table(table.cast(pa.schema(typed, about)), file)
    return file.getvalue()


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Open the Parquet file at `path` for a `with` block, which gets pyarrow's `ParquetFile`.

    An error of pyarrow, also one in the block, becomes a FileError. Its message has no text of pyarrow, which may show
    the value of a cell.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise FileError(f"{path}: {_INSTALL}") from None
    try:
        with (
            pa.OSFile(os.fsencode(path)) as source,  # as text, pyarrow takes no name that is not UTF-8
            pq.ParquetFile(source, buffer_size=_PAGE, pre_buffer=False) as file,  # or it would hold whole row groups
        ):
            yield file
    except (pa.ArrowException, OSError) as error:
        number = getattr(error, "errno", None)
        reason = os.strerror(number) if number else "another kind of file, a damaged one, or text that is not UTF-8"
        raise FileError(f"{path}: cannot be read as Parquet ({reason})") from None


def _require_numbers(path: Path, field: Any) -> None:
    """Raise a FileError unless a column of the Parquet file at `path` holds real numbers or booleans.

    `field` is pyarrow's description of the column: its name and type. A column with the type "null" is allowed, too:
    all its values are missing.
    """
    if not re.match(rf"{_NUMBERS}|null", str(field.type)):
        raise FileError(f"{path}: column {field.name!r} must hold real numbers, holds {field.type}")


def _require_labels(path: Path, field: Any) -> None:
    """Raise a FileError unless a column of the Parquet file at `path` holds labels: numbers, booleans, text or dates.

    `field` is pyarrow's description of the column.
    """
    kind = str(_plain(field.type))
    if kind.startswith("decimal") or not re.match(rf"{_NUMBERS}|(large_)?string|date|timestamp\[\w+\]", kind):
        wanted = "numbers, text, or dates without time zone"
        raise FileError(f"{path}: column {field.name!r} must hold {wanted}, holds {field.type}")


def _plain(kind: Any) -> Any:
    """Return `kind`, the type of a column in pyarrow, or the type of its values if a dictionary encodes the column."""
    return kind.value_type if str(kind).startswith("dictionary") else kind


def _numbers(column: Any) -> Array:
    """Return `column`, a column of pyarrow, as an array of float64, in which a missing value is NaN."""
    if str(column.type).startswith("decimal"):
        column = column.cast("string")  # pyarrow rounds a decimal number to the nearest double only if it is text
    return np.asarray(column.cast("float64", safe=False).to_numpy(zero_copy_only=False))


def _labels(path: Path, start: int, name: str, column: Any) -> Labels:
    """Return the labels in `column`, a column of pyarrow, as an array of numbers, of texts or of dates.

    Raise a FileError if a label is missing. Its message has the file `path`, the column `name` and the row, counted
    from `start` on.
    """
    missing = column.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
    if missing.any():
        raise FileError(f"{path}: row {start + int(missing.argmax()) + 1}, column {name!r}: missing")
    plain = column.dictionary_decode() if hasattr(column, "dictionary_decode") else column
    return np.asarray(plain.to_numpy(zero_copy_only=False))


def as_dask(path: PathLike, columns: Sequence[str] | None, missing: Literal["error", "nan"]) -> DaskArray:
    """Return a dask array with the `columns` of the Parquet file or the folder of Parquet files at `path`.

    The function `egm.files.from_parquet` describes the arguments and the errors. No row is read before dask computes a
    result.
    """
    try:
        import dask
        from dask.array import map_blocks
        from pyarrow import dataset
    except ImportError as error:
        needed = f"a dask array needs dask and pyarrow: pip install '{_distribution.NAME}[dask]'"
        raise ImportError(needed) from error

    require_lists(columns=columns)
    if missing not in ("error", "nan"):
        raise ValueError(f'missing must be "error" or "nan", got {missing!r}')
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
    types = (types or [np.float64]) + ([np.float16] if missing == "nan" else [])  # only floats have NaN
    dtype = np.result_type(*types)
    # With pure=False every call gets new keys: the file may have changed since the last.
    source = dask.delayed((files.filesystem, groups, columns, dtype, missing), pure=False, traverse=False)
    chunks = tuple(rows for _, _, rows in groups) or (0,), (len(columns),)
    X: DaskArray = map_blocks(_row_group, source=source, chunks=chunks, dtype=dtype, meta=np.empty((0, 0), dtype))
    X.column_names = tuple(columns)  # type: ignore[attr-defined]  # as of an Arrow table: a mechanism matches them
    X.missing = missing  # type: ignore[attr-defined]  # as of `egm.files.Table`: a mechanism compares it
    return X


def _types(fragment: Any, columns: list[str], everything: bool) -> list[Any]:
    """Return NumPy's types of the `columns` in one Parquet file; `fragment` is pyarrow's object for the file.

    A column in which all values are missing may have the type "null"; for such a column there is no type in the result.
    Raise an error if a column is missing, occurs twice or does not hold numbers. If `everything` is true, also raise an
    error if the file has other columns.
    """
    from pyarrow import types

    schema = fragment.physical_schema
    if everything and set(schema.names) != set(columns):
        raise ValueError(f"{fragment.path} must have the columns of the first file, {columns}, got {schema.names}")
    found = []
    for name in columns:
        if len(schema.get_all_field_indices(name)) != 1:
            raise ValueError(f"{fragment.path} must have one column {name!r}, got {schema.names}")
        kind = schema.field(name).type
        if types.is_integer(kind) or types.is_floating(kind):
            found.append(kind.to_pandas_dtype())
        elif types.is_boolean(kind) or types.is_decimal(kind):
            found.append(np.uint8 if types.is_boolean(kind) else np.float64)
        elif not types.is_null(kind):
            raise TypeError(f"column {name!r} of {fragment.path} must hold numbers, got {kind}; name others")
    return found


def _row_group(source: tuple[Any, ...], block_id: tuple[int, ...]) -> NDArray[Any]:
    """Return one block of the dask array: a row group of a Parquet file as an array (rows, d).

    `source` has the file system, a list of the row groups with their files and numbers of rows, the names of the
    columns, the type of the result, and "error" or "nan", which says what becomes of a missing value. `block_id` begins
    with the index of the row group in this list. A few columns are read at a time, so that the row group is in memory
    only once.
    """
    from pyarrow.parquet import ParquetFile

    filesystem, groups, columns, dtype, missing = source
    if not groups:
        return np.empty((0, len(columns)), dtype)
    path, group, rows = groups[block_id[0]]
    block = np.empty((rows, len(columns)), dtype)
    with ParquetFile(path, filesystem=filesystem) as file:
        for start in range(0, len(columns), _COLUMNS):
            names = columns[start : start + _COLUMNS]
            table = file.read_row_group(group, columns=names, use_threads=False)
            for j, name in enumerate(names, start):
                column = table.column(name)
                if column.null_count and missing == "error":  # the number of missing values may be private
                    raise ValueError(f"column {name!r} of {path} must have no missing values")
                block[:, j] = _numbers(column) if column.null_count else column.to_numpy()
    return block
