"""Draw uniform and exponential variables with all digits of doubles, and coins, from bits of the operating system."""

from __future__ import annotations

import math
import os

import numpy as np
from numpy.typing import NDArray

from egm._types import Array

__all__ = ["coins", "exponentials", "uniforms"]


def coins(size: int, probability: float) -> NDArray[np.bool]:
    """Draw `size` independent coins, securely, each of which is True with the given `probability`, > 0 and at most 1.

    The probability is rounded down to a multiple of 2**-64, and compared with 64 random bits of the operating system.
    """
    if probability == 1:
        return np.ones(size, dtype=bool)
    threshold = np.uint64(math.floor(math.ldexp(probability, 64)))
    drawn: NDArray[np.bool] = _words(size) < threshold
    return drawn


def exponentials(size: int) -> Array:
    """Draw `size` standard exponential variables, securely, each with a relative error of at most 11 * 2**-53.

    The bound does not hold for a variable below 2**-74, which is drawn with a probability of about 2**-74.
    """
    uniform, below = uniforms(size)
    return np.where(below, -np.log(uniform), -np.log1p(-uniform))


def uniforms(size: int) -> tuple[Array, NDArray[np.bool]]:
    """Draw `size` numbers u in (0, 1/2], and for each of them a fair coin; return the numbers and the coins.

    If the coin chooses between u and 1 - u, the result is uniform in (0, 1). Each u has 127 random bits, so that it has
    all digits of a double unless it is below 2**-74.
    """
    high, low = _words(2 * size).reshape(2, size)
    coin = (high >> np.uint64(63)) == 0
    high = high & np.uint64((1 << 63) - 1)
    return (high + (low + 0.5) * 2.0**-64) * 2.0**-64, coin


def _words(size: int) -> NDArray[np.uint64]:
    """Return `size` unsigned integers of 64 random bits each, from the operating system."""
    return np.frombuffer(os.urandom(8 * size), dtype=np.uint64)
