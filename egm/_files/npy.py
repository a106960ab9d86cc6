"""Read tables and vectors from NumPy files, which are mapped into memory and not loaded as a whole."""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np

from egm._files.source import FileError, Given, Labels, Source, Vector, numbered, rows_in_a_block
from egm._types import Array
from egm._validate import doubles

__all__ = ["table", "vector"]


def table(path: Path, given: Given) -> Source:
    """Return the table in the NumPy file at `path` as a `Source`, from which its rows can be read in blocks.

    The columns are called "1", "2" and so on. `given` is not used.
    """
    array = _mapped(path, 2)
    held: Any = array.base  # the mmap
    end = array.offset + array.nbytes

    def read(values: list[int], _: list[int]) -> Iterator[tuple[Array, list[Labels]]]:
        everything = values == list(range(array.shape[1]))
        for start in range(0, len(array), step := rows_in_a_block(array.shape[1])):
            if held.size() < end:  # to read beyond the end of a file would end this process
                raise FileError(f"{path}: is shorter than a moment ago")
            block = np.asarray(array[start : start + step])
            yield doubles(block if everything else block[:, values], copy=True), []
            if hasattr(mmap, "MADV_DONTNEED"):  # otherwise this process would keep all that it has read
                held.madvise(mmap.MADV_DONTNEED)

    def require(_: list[int], labels: list[int]) -> None:
        if labels:
            raise FileError(f"{path}: a NumPy file has numbers only, and no columns of labels")

    return Source(numbered(array.shape[1]), len(array), read, lambda: iter([len(array)]), require)


def vector(path: Path, given: Given) -> Vector:
    """Return a pair: None in place of names, and the values in the NumPy file at `path`.

    The values are an array with one axis. `given` is not used.
    """
    return None, doubles(np.asarray(_mapped(path, 1)), copy=True)


def _mapped(path: Path, axes: int) -> np.memmap[Any, Any]:
    """Return the array in the NumPy file at `path`, mapped into memory and not read.

    Raise a FileError unless the array holds real numbers and the number of its axes is `axes`.
    """
    if not path.stat().st_size:
        raise FileError(f"{path}: is empty")
    try:
        with path.open("rb") as file:
            is_first = np.lib.format.read_magic(file) == (1, 0)
            header = np.lib.format.read_array_header_1_0 if is_first else np.lib.format.read_array_header_2_0
            shape, _, dtype = header(file)
            if math.prod(shape) * dtype.itemsize > path.stat().st_size:  # NumPy would warn of a size that overflows
                raise ValueError
        array = np.lib.format.open_memmap(path, mode="r")
    except (ValueError, TypeError, OverflowError, TokenError):  # NumPy's own message may show bytes of the file
        raise FileError(f"{path}: is not a whole NumPy array of numbers") from None
    if array.dtype.kind not in "iuf":
        raise FileError(f"{path}: must hold real numbers, holds {array.dtype}")
    if array.ndim != axes or 0 in array.shape[1:]:
        wanted = "(rows, columns)" if axes == 2 else "(numbers,)"
        raise FileError(f"{path}: must have the shape {wanted}, has {array.shape}")
    return array
