"""Define short names for the types in signatures.

An argument that holds numbers is usually an `ArrayLike`. A result is a float or one of the arrays named here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "Array",
    "ArrayLike",
    "Blocks",
    "Check",
    "Columns",
    "Complex",
    "FloatOrArray",
    "Floats",
    "Indices",
    "Named",
    "Neighbors",
    "Noise",
    "NoiseLaw",
    "Number",
    "PathLike",
    "RowSource",
    "StructuredArray",
    "Target",
    "Whole",
]

Array: TypeAlias = NDArray[np.float64]
Complex: TypeAlias = NDArray[np.complex128]
Indices: TypeAlias = NDArray[np.intp]  # places in an array
Floats: TypeAlias = float | Array
FloatOrArray: TypeAlias = Any  # a float or an array, depending on the shape of an argument
Number: TypeAlias = float | np.floating[Any]  # not every floating-point number of NumPy is a float
Whole: TypeAlias = NDArray[Any]  # an array of Python integers or of 64-bit integers
StructuredArray: TypeAlias = NDArray[Any]  # a structured array: table["column"]
Columns: TypeAlias = tuple[Hashable, ...] | None  # the names of columns, if there are any
Named: TypeAlias = ArrayLike | Mapping[Any, float]  # a vector; a Series or a mapping gives its entries names
PathLike: TypeAlias = str | os.PathLike[str]
Check: TypeAlias = Callable[..., Array]  # a check of egm._validate
Neighbors: TypeAlias = Literal["replace_one", "add_remove"]
Noise: TypeAlias = Literal["gaussian", "l2", "best"]
NoiseLaw: TypeAlias = Literal["gaussian", "l2"]
Target: TypeAlias = Literal["sample", "population"]


class Blocks(Protocol):
    """Type of an object that reads a table from a file in blocks of rows, such as `egm.files.rows` returns."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the columns of the table, as a tuple of texts."""
        ...

    @property
    def count(self) -> int | None:
        """Return the number of rows of the table, or None if the file does not say how many rows it has."""
        ...

    @property
    def blocks(self) -> Callable[[], Iterator[Array]]:
        """Return a function without arguments that reads the table from the start and yields blocks of its rows."""
        ...


RowSource: TypeAlias = (  # (n, d): an array, a file's table, or blocks of rows, perhaps from a function
    ArrayLike | Blocks | Iterator[ArrayLike] | Callable[[], Iterator[ArrayLike]]
)
