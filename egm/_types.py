"""Names for the types in the signatures: what goes in is an ArrayLike, what comes out is a float or one of these."""

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
    "FloatOrArray",
    "Floats",
    "Named",
    "Neighbors",
    "Number",
    "PathLike",
    "RowSource",
    "StructuredArray",
    "Target",
    "Whole",
]

Array: TypeAlias = NDArray[np.float64]
Floats: TypeAlias = float | Array
FloatOrArray: TypeAlias = Any  # one of the two; which, depends on the shape of an argument
Number: TypeAlias = float | np.floating[Any]  # not every floating-point number of NumPy is a float
Whole: TypeAlias = NDArray[Any]  # of Python integers, or of 64 bits
StructuredArray: TypeAlias = NDArray[Any]  # structured: table["column"]
Columns: TypeAlias = tuple[Hashable, ...] | None  # names
Named: TypeAlias = ArrayLike | Mapping[Any, float]  # a vector, which may have names: of a Series, or of a mapping
PathLike: TypeAlias = str | os.PathLike[str]
Check: TypeAlias = Callable[..., Array]  # of egm._validate
Neighbors: TypeAlias = Literal["replace_one", "add_remove"]
Target: TypeAlias = Literal["sample", "population"]


class Blocks(Protocol):
    """A table in a file, as `egm.files.rows` finds it."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its columns."""
        ...

    @property
    def count(self) -> int | None:
        """The number of its rows, if the file says it."""
        ...

    @property
    def blocks(self) -> Callable[[], Iterator[Array]]:
        """Reads it from the start."""
        ...


RowSource: TypeAlias = ArrayLike | Iterator[ArrayLike] | Blocks  # (n, d), also of dask or egm.files.rows, or its blocks
