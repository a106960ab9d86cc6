"""Hold intervals of doubles in which a number is proved to lie, and import the library of ball arithmetic."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from threading import RLock
from typing import Any

__all__ = ["Enclosure", "ball_arithmetic", "precision", "rounded"]

_ALONE = RLock()  # held by the thread that has set the precision of flint


def _renew() -> None:
    """Make a new lock in a forked process, where nobody can release a lock that another thread held."""
    global _ALONE
    _ALONE = RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


@dataclass(frozen=True)
class Enclosure:
    """Hold two doubles between which a number is proved to lie.

    Parameters
    ----------
    low : float
        A number that is not above the true value.
    high : float
        A number that is not below the true value.

    See Also
    --------
    egm.gx2.certify : Enclosures of tails, densities and quantiles.
    egm.calibration.certify : Enclosures of noise scales.

    Examples
    --------
    >>> from egm import gx2
    >>> tail = gx2.certify(3.0, [1.0, 0.5])
    >>> bool(abs(gx2.sf(3.0, [1.0, 0.5]) / tail.value - 1) < 1e-14), tail.relative_width < 1e-13
    (True, True)
    """

    low: float
    high: float

    @property
    def value(self) -> float:
        """Return a double in the middle of the interval, or one of its ends if no double lies between them."""
        return self.low if self.low == self.high else self.low + (self.high - self.low) / 2

    @property
    def relative_width(self) -> float:
        """Return the length of the interval, divided by the least absolute value in it.

        It is 0 for an interval of one number, and infinity for any other that contains 0.
        """
        if self.low == self.high:
            return 0.0
        least = 0.0 if self.low <= 0 <= self.high else min(abs(self.low), abs(self.high))
        return (self.high - self.low) / least if least else math.inf

    def contains(self, number: Any) -> bool:
        """Return whether a number lies in the interval.

        Parameters
        ----------
        number : float, int or fractions.Fraction
            The number, of a type that Python compares exactly with a float.

        Returns
        -------
        bool
            True if the number is in the interval or is one of its ends.
        """
        return bool(self.low <= number <= self.high)


def ball_arithmetic() -> Any:
    """Return the module `flint` of python-flint, or raise an ImportError that says how to install this package.

    A process that is forked while a thread imports flint may wait forever where it imports flint itself; so it is with
    every module of Python.
    """
    try:
        import flint
    except ImportError as error:
        raise ImportError(
            "certified values need python-flint; install it with the extra `certify`: "
            "pip install 'elliptical-gaussian-mechanism[certify]'"
        ) from error
    return flint


@contextmanager
def precision(bits: int) -> Iterator[None]:
    """Compute with balls of `bits` bits inside a `with` statement; such statements may be nested.

    flint has one precision for all threads. So other threads wait where they set theirs until this statement ends.
    """
    with _ALONE, ball_arithmetic().ctx.workprec(bits):
        yield


def rounded(ball: Any) -> Enclosure:
    """Return the least `Enclosure` that contains `ball`, an interval of flint; an end may be infinite or subnormal."""
    return Enclosure(_down(ball.lower()), -_down(-ball.upper()))


def _down(number: Any) -> float:
    """Return the largest double that is not above `number`, an interval of flint that contains a single number.

    If `number` is below all finite doubles, infinite with either sign, or NaN, the result is minus infinity.
    """
    largest, tiny = sys.float_info.max, math.ulp(0.0)
    if not -largest <= number < math.inf:
        return -math.inf
    if number >= largest:
        return largest
    if 0 <= number < tiny:
        return 0.0
    if -tiny <= number < 0:
        return -tiny
    mantissa, exponent = number.man_exp()
    exact = Fraction(int(mantissa)) * Fraction(2) ** int(exponent)
    nearest = float(exact)
    return nearest if Fraction(nearest) <= exact else math.nextafter(nearest, -math.inf)
