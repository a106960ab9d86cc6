"""The time that functions take, measured by turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any, SupportsFloat

import numpy as np

from egm._types import StructuredArray
from egm._validate import count

__all__ = ["race"]


def race(
    functions: Mapping[str, Callable[[], SupportsFloat]], repetitions: int = 5, patience: float = 1.0
) -> StructuredArray:
    """Run functions in turns: a table with columns `name`, `value` (of the last run), `best` and `median` (seconds).

    functions: {name: function of no arguments that returns a number}. By turns, whatever else the machine does slows
    them alike, so that ratios of times mean something where times do not. A function that has taken `patience` seconds
    in all is not run again.
    """
    values: dict[str, Any] = {}
    seconds: dict[str, list[float]] = {name: [] for name in functions}
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
