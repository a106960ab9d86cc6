"""Names for the types in the signatures: what goes in is an ArrayLike, what comes out is a float or one of these."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "Array",
    "ArrayLike",
    "Check",
    "FloatOrArray",
    "Floats",
    "Neighbors",
    "Number",
    "PathLike",
    "Rows",
    "Table",
    "Target",
    "Whole",
]

Array: TypeAlias = NDArray[np.float64]
Floats: TypeAlias = float | Array
FloatOrArray: TypeAlias = Any  # one of the two; which, depends on the shape of an argument
Number: TypeAlias = float | np.floating[Any]  # not every floating-point number of NumPy is a float
Whole: TypeAlias = NDArray[Any]  # of Python integers, or of 64 bits
Table: TypeAlias = NDArray[Any]  # structured: table["column"]
Rows: TypeAlias = ArrayLike | Iterator[ArrayLike]  # a matrix (n, d), or its rows in blocks; dask's arrays are ArrayLike
PathLike: TypeAlias = str | os.PathLike[str]
Check: TypeAlias = Callable[..., Array]  # of egm._validate
Neighbors: TypeAlias = Literal["replace_one", "add_remove"]
Target: TypeAlias = Literal["sample", "population"]
