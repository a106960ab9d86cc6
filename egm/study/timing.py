"""Measure the times of several functions that run in turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any, SupportsFloat

import numpy as np

from egm._types import StructuredArray
from egm._validate import count, positive, scalar

__all__ = ["race"]


def race(
    functions: Mapping[str, Callable[[], SupportsFloat]], repetitions: int = 5, patience: float = 1.0
) -> StructuredArray:
    """Measure how long several functions take, by calling each of them once, then each of them again, and so on.

    Because the functions take turns, other work of the machine slows all of them alike. So the
    ratios of the times are reliable even if the times are not.

    Parameters
    ----------
    functions : mapping of str to callable
        Functions by their names. Each takes no arguments and returns a number.
    repetitions : int, default 5
        How often each function is run at most, >= 1.
    patience : float, default 1.0
        Time in seconds. A function is not run again when all its runs together have taken this time.

    Returns
    -------
    ndarray
        Record array with the columns `name`; `value`, the result of the last run; and `best` and `median`,
        the least and the median time of a run, in seconds.

    Raises
    ------
    ValueError
        If there is no function, `repetitions` is not a whole number >= 1, or `patience` is not finite and > 0.

    Examples
    --------
    >>> from egm.study.timing import race
    >>> table = race({"sum": lambda: sum(range(1000)), "formula": lambda: 999 * 500})
    >>> table["value"].tolist()
    [499500, 499500]
    >>> bool((table["best"] <= table["median"]).all())
    True
    """
    if not functions:
        raise ValueError(f"functions must have at least one function, got {functions!r}")
    values: dict[str, Any] = {}
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    patience = scalar(positive, patience=patience)
    for _ in range(count(repetitions=repetitions)):
        for name, function in functions.items():
            if sum(seconds[name]) < patience:
                start = perf_counter()
                values[name] = function()
                seconds[name].append(perf_counter() - start)
    rows: list[Any] = [(name, values[name], min(times), float(np.median(times))) for name, times in seconds.items()]
    names = "name,value,best,median"
    table: StructuredArray = np.rec.fromrecords(rows, names=names)  # type: ignore[call-overload]  # as documented
    return table
