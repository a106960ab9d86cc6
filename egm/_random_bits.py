"""Draw gamma variables with all digits of doubles, and coins, from random bits of the operating system."""

from __future__ import annotations

import math
import os

import numpy as np
from numpy.typing import NDArray

from egm._substitutes import replaceable
from egm._types import Array

__all__ = ["coins", "half_gamma", "words"]


def coins(size: int, probability: float) -> NDArray[np.bool]:
    """Draw `size` independent coins, securely, each of which is True with the given `probability`, > 0 and at most 1.

    The probability is rounded down to a multiple of 2**-64, and compared with 64 random bits of the operating system.
    """
    if probability == 1:
        return np.ones(size, dtype=bool)
    threshold = np.uint64(math.floor(math.ldexp(probability, 64)))
    drawn: NDArray[np.bool] = words(size) < threshold
    return drawn


@replaceable
def half_gamma(twice: int, size: int) -> Array:
    """Draw `size` numbers from the gamma distribution with the shape `twice` / 2 and the scale 1.

    The draws are made from random bits of the operating system. The relative error of each draw is below 37 * 2**-53.
    """
    drawn = _exponentials(size * (twice // 2)).reshape(size, twice // 2)
    if twice % 2:  # an exponential variable times the squared sine of a random angle has the shape 1/2
        half = _exponentials(size) * np.sin(np.pi * _uniforms(size)[0]) ** 2
        drawn = np.column_stack([drawn, half])
    return np.array([math.fsum(row) for row in drawn.tolist()])


def _exponentials(size: int) -> Array:
    """Draw `size` standard exponential variables, each with a relative error of at most 11 * 2**-53.

    The draws are made from random bits of the operating system. The bound does not hold for a variable below 2**-74,
    which is drawn with a probability of about 2**-74.
    """
    uniform, below = _uniforms(size)
    return np.where(below, -np.log(uniform), -np.log1p(-uniform))


def _uniforms(size: int) -> tuple[Array, NDArray[np.bool]]:
    """Draw `size` numbers u in (0, 1/2], and for each of them a fair coin; return the numbers and the coins.

    If the coin decides whether u or 1 - u is taken, the number taken is uniform in (0, 1). Each u has 127 random bits,
    so that it has all digits of a double unless it is below 2**-74.
    """
    high, low = words(2 * size).reshape(2, size)
    coin = (high >> np.uint64(63)) == 0
    high = high & np.uint64((1 << 63) - 1)
    return (high + (low + 0.5) * 2.0**-64) * 2.0**-64, coin


@replaceable
def words(size: int) -> NDArray[np.uint64]:
    """Return `size` unsigned integers of 64 random bits each, from the operating system."""
    return np.frombuffer(os.urandom(8 * size), dtype=np.uint64)
