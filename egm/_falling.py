"""Find where a function falls from above 1 to at most 1: at a real number, or at a whole number."""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy.optimize import brentq

__all__ = ["first", "first_whole"]

_STEP = 1e-9  # relative tolerance of the result of `first`


def first(ratio: Callable[[float], float], low: float, high: float) -> float:
    """Return a value between `low` and `high` at which the function `ratio` falls from above 1 to at most 1.

    The function `ratio`, for example an error divided by the largest allowed error, must be above 1 at `low` and at
    most 1 at `high`. It is at most 1 at the result, and above 1 at a value that is smaller than the result by a factor
    of about 1 - 1e-9.
    """
    ends = math.log(low), math.log(high)

    def value(log: float) -> float:
        return low if log <= ends[0] else high if log >= ends[1] else math.exp(log)

    log, step = brentq(lambda log: math.log(ratio(value(log))), *ends, xtol=_STEP), _STEP
    while ratio(value(log)) > 1:
        log, step = log + step, 2 * step
    return value(log)


def first_whole(ratio: Callable[[float], float], low: int, high: int) -> int:
    """Return a whole number from `low` to `high` at which the function `ratio` falls from above 1 to at most 1.

    The function `ratio`, for example an error divided by the largest allowed error, must be above 1 at `low` and at
    most 1 at `high`. It is at most 1 at the result, and above 1 at the whole number before the result.
    """
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if ratio(middle) <= 1 else (middle, high)
    return high
