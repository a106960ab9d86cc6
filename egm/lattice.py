"""Vectors on the integers, where sums are exact and a sensitivity is what it says.

In floating point a sum depends on its order and on its rounding, and two neighbouring data sets can differ in it by
more than the sensitivity (Casacuberta, Shoemate, Vadhan and Wagaman 2022). Here each vector is rounded first, in units
so small that nobody misses what is lost, and everything after that is integer arithmetic:

- a row that is clipped to norm C becomes an integer vector of norm at most K, by rounding towards zero: no entry grows;
- any other value is rounded to the nearest integer, which can move neighbours apart by one in each entry, and that is
  charged;
- the noise is a discrete Gaussian, and what it differs from a continuous Gaussian that is rounded is charged to delta.

Let r be the distribution of a normal variable N(0, s^2) rounded to the nearest integer, and p that of the discrete
Gaussian. Jensen's inequality and Poisson's summation formula give r(k) >= p(k) exp(-1 / (24 s^2)) for every k, so their
total variation distance is at most 1 / (24 s^2), for every s > 0, and d / (24 s^2) for d entries. (Chapter 12 of the
book has the proof.) Integers plus r are a Gaussian mechanism, rounded: private for the continuous Gaussian's epsilon
and delta. Integers plus p are therefore private for that epsilon and delta + (1 + exp(epsilon)) d / (24 s^2). What is
charged is six times that, d / (4 s^2), which also covers the tails beyond 64 bits.
"""

from __future__ import annotations

import functools
import math
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from egm._types import Array, ArrayLike, Whole
from egm._validate import between
from egm.calibration import analytic_noise_multiplier

__all__ = ["EXCESS", "Lattice", "gaussian_std", "nearest_double", "rounded"]

#: The share by which noise is larger than it must be. It pays for the rounding of what is computed from the noise.
EXCESS = 2.0**-30

_FINEST = 40  # bits of a clipped row's norm
_HIGHEST = 56  # bits of the noise's standard deviation, well within 64
_MOST = 1 << 20  # rows whose sum has less than 62 bits
_COPIED = 1 << 16  # numbers copied at a time where X is not an array of doubles in C order
_WORTH_A_THREAD = 1 << 19  # numbers

S = TypeVar("S")
T = TypeVar("T")


class Lattice:
    """The integer vectors for rows clipped to `clip_norm`: `radius` is K, a power of two, and `unit` what 1 stands for.

    noise: the standard deviation of the noise over the clip norm; K is as large as the noise leaves room for. Raises
    ValueError if that room is under 20 bits, or for a clip norm that is not between 1e-250 and 1e250.
    """

    def __init__(self, clip_norm: float, d: int, noise: float) -> None:
        between(1e-250, 1e250, clip_norm=clip_norm)
        self.radius = 1 << fineness(noise)
        # The norms and three products are rounded; d + 16 units of 2**-52 are more than all of that.
        self.shrink = 1 - (d + 16) * 2.0**-52
        self.clip_norm = clip_norm
        self.unit = clip_norm / (self.radius * self.shrink)

    def rows(self, X: ArrayLike, center: ArrayLike = 0.0, scaling: ArrayLike = 1.0) -> NDArray[np.int64]:
        """The rows (m, d) as integer vectors of norm at most the radius, one at a time: int64, (m, d). As in sum."""
        return np.array([self.sum(row[None], center, scaling) for row in np.asarray(X)], dtype=np.int64)

    def sum(self, X: NDArray[Any], center: ArrayLike = 0.0, scaling: ArrayLike = 1.0) -> Whole:
        """The sum of the integer vectors of the rows (x - center) * scaling, exactly: Python integers, (d,).

        X: numbers (m, d) of any real type, order and size; beyond X it takes no memory to speak of. center, scaling:
        numbers or (d,). Whatever the rows are added with, one row always gives the same integers on processors of one
        kind; others may add up its norm in another order. Raises ValueError for an entry that is not finite.
        """
        return self.sum_and_clipped(X, center, scaling)[0]

    def sum_and_clipped(self, X: NDArray[Any], center: ArrayLike = 0.0, scaling: ArrayLike = 1.0) -> tuple[Whole, int]:
        """The sum, and how many of the rows are longer than the clip norm: one row always is, or never. As in sum."""
        center, scaling = (np.ascontiguousarray(np.broadcast_to(v, X.shape[1]), dtype=float) for v in (center, scaling))
        totals = _in_parallel(lambda part: self._part(X, part, center, scaling), _parts(*X.shape))
        *total, clipped = sum((part.astype(object) for part in totals), np.zeros(X.shape[1] + 1, dtype=object))
        return np.array(total, dtype=object), clipped

    def _part(self, X: NDArray[Any], part: range, center: Array, scaling: Array) -> NDArray[np.int64]:
        """The sum of the rows of a range, and the number of those that are clipped: int64, (d + 1,)."""
        from egm import _kernel  # compiles

        joint, plain = np.zeros(X.shape[1] + 1, dtype=np.int64), X.dtype == float and X.flags.c_contiguous
        total, clipped = joint[:-1], joint[-1:]
        step = len(part) if plain else max(1, _COPIED // X.shape[1])
        for start in range(part.start, part.stop, step):
            with np.errstate(over="ignore"):  # a long double can be too large: it is refused below
                block = np.ascontiguousarray(X[start : min(start + step, part.stop)], dtype=float).view()
            block.flags.writeable = False  # one type of array, one compiled function
            target = self.radius * self.shrink
            place = _kernel.add_rows(block, center, scaling, self.clip_norm, target, total, clipped)
            if place >= 0:
                i, j = divmod(place, X.shape[1])
                raise ValueError(f"X[{start + i}, {j}] must be finite")
        return joint


def _parts(rows: int, d: int) -> list[range]:
    """Ranges of rows: one a core if there is much to do, and few enough for 64-bit sums."""
    cores = min(os.cpu_count() or 1, 1 + rows * d // _WORTH_A_THREAD)
    step = max(1, min(-(-rows // cores), _MOST))
    return [range(start, min(start + step, rows)) for start in range(0, rows, step)]


def _in_parallel(function: Callable[[S], T], items: list[S]) -> list[T]:
    """[function(item) for item in items], in threads if there are several."""
    if len(items) < 2:
        return [function(item) for item in items]
    return list(_pool().map(function, items))


@functools.cache
def _pool() -> ThreadPoolExecutor:
    """The threads, which stay for the next block."""
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="egm")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a forked process has no threads but its first


def fineness(noise: float) -> int:
    """How many bits below a clip norm, or a sensitivity, the unit can be for noise so many times as large.

    40, or what the noise leaves of 56. Raises ValueError if that is under 20.
    """
    bits = min(_FINEST, _HIGHEST - math.ceil(math.log2(max(noise, 1.0))))
    if bits < 20:
        raise ValueError(f"noise must be at most 2**36 times the sensitivity for 64-bit integers, got {noise:.3g}")
    return bits


def rounded(value: NDArray[Any], unit: Array) -> list[int]:
    """value / unit to the nearest integers, exactly: a list of Python integers. Both arrays of the same shape.

    value: of any real type, also long doubles, or of objects as `_validate.exact` returns them. No entry becomes a
    double on the way: beyond 2**53 that would move two neighbouring integers apart by more than they are.
    """
    pairs = zip(np.ravel(value).tolist(), np.ravel(unit).tolist(), strict=True)
    return [math.floor(_fraction(v) / Fraction(u) + Fraction(1, 2)) for v, u in pairs]


def _fraction(number: Any) -> Fraction:
    """A finite real number of Python or NumPy, as it is."""
    return Fraction(int(number)) if isinstance(number, np.integer) else Fraction(*number.as_integer_ratio())


def nearest_double(steps: int, unit: float) -> float:
    """steps * unit, rounded once; the largest double where that is larger."""
    numerator, denominator = unit.as_integer_ratio()
    try:
        return steps * numerator / denominator
    except OverflowError:
        return math.copysign(sys.float_info.max, steps)


@functools.lru_cache(maxsize=64)
def gaussian_std(sensitivity: float, d: int, epsilon: float, delta: float) -> float:
    """The standard deviation of a discrete Gaussian for integer vectors (d,) of this l2-sensitivity.

    Of delta, what the noise differs from a rounded Gaussian is taken off first. Never less than sensitivity *
    analytic_noise_multiplier(epsilon, delta), whose last digits are not monotone in delta, and larger by EXCESS, so
    that what is computed from this product, such as 1 / (2 noise_multiplier**2) in zCDP, is no less than what the noise
    costs. Raises ValueError if the difference is all of delta.
    """
    std = sensitivity * float(analytic_noise_multiplier(epsilon, delta))
    charge = (1 + math.exp(min(epsilon, 700.0))) * d / (4 * std**2)
    if not charge < delta / 2:
        raise ValueError(f"epsilon = {epsilon!r} and delta = {delta!r}: rounding would cost {charge:.1e} of delta")
    left = math.nextafter(delta - charge, 0.0)
    return max(std, sensitivity * float(analytic_noise_multiplier(epsilon, left))) * (1 + EXCESS)
