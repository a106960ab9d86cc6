"""Vectors on the integers, where sums are exact and a sensitivity is what it says.

In floating point a sum depends on its order and on its rounding, and two neighbouring data sets can differ in it by
more than the sensitivity (Casacuberta, Shoemate, Vadhan and Wagaman 2022). Here each vector is rounded first, in units
so small that nobody misses what is lost, and everything after that is integer arithmetic:

- a row that is clipped to norm C becomes an integer vector of norm at most K, by rounding towards zero: no entry grows;
- any other value is rounded to the nearest integer, which can move neighbours apart by one in each entry, and that is
  charged;
- the noise is a discrete Gaussian, and what it differs from a continuous Gaussian that is rounded is charged to delta.

Let r be the distribution of a normal variable N(0, s^2) rounded to the nearest integer, and p that of the discrete
Gaussian. With phi(k) = exp(-k^2 / (2 s^2)) and t uniform on [-1/2, 1/2],

    r(k) / phi(k) ~ E[exp(-t^2 / (2 s^2)) cosh(k t / s^2)],     between exp(-1 / (8 s^2)) and exp(k^2 / (8 s^4)),

so their total variation distance is at most 1 / (4 s^2) for s >= 2, and d / (4 s^2) for d entries. Integers plus r are
a Gaussian mechanism, rounded: private for the continuous Gaussian's epsilon and delta. Integers plus p are therefore
private for that epsilon and delta + (1 + exp(epsilon)) d / (4 s^2).
"""

import math
from fractions import Fraction

import numpy as np

from egm import _rows
from egm.calibration import analytic_noise_multiplier

__all__ = ["Lattice", "gaussian_std", "rounded"]

_FINEST = 40  # bits of a clipped row's norm
_HIGHEST = 57  # bits of the noise's standard deviation, well within 64


class Lattice:
    """The integer vectors for rows clipped to `clip_norm`: `radius` is K, a power of two, and `unit` what 1 stands for.

    noise: the standard deviation of the noise over the clip norm; K is as large as the noise leaves room for. Raises
    ValueError if that room is under 20 bits.
    """

    def __init__(self, clip_norm, d, noise):
        bits = min(_FINEST, _HIGHEST - math.ceil(math.log2(max(noise, 1.0))))
        if bits < 20:
            raise ValueError(f"noise {noise:.3g} times the clip norm is too much for 64-bit integers")
        self.radius = 1 << bits
        # The norms and three products are rounded; d + 16 units of 2**-52 are more than all of that.
        self.shrink = 1 - (d + 16) * 2.0**-52
        self.clip_norm = clip_norm
        self.unit = clip_norm / (self.radius * self.shrink)

    def rows(self, scaled):
        """The rows (m, d), clipped to the clip norm, as integer vectors of norm at most the radius: int64, (m, d)."""
        scaled = np.clip(scaled, -1e300, 1e300)
        factor = self.radius * self.shrink / np.maximum(_rows.norms(scaled), self.clip_norm)
        return np.trunc(scaled * factor[:, None]).astype(np.int64)

    def sum(self, scaled):
        """The sum of the integer vectors of the rows (m, d), exactly: Python integers, (d,)."""
        step = 1 << (62 - self.radius.bit_length())  # rows whose sum fits into 64 bits
        parts = (self.rows(scaled[start : start + step]).sum(axis=0) for start in range(0, len(scaled), step))
        return sum((part.astype(object) for part in parts), np.zeros(scaled.shape[1], dtype=object))


def rounded(value, unit):
    """value / unit to the nearest integers, exactly: a list of Python integers. Both arrays of the same shape."""
    pairs = zip(np.ravel(value).tolist(), np.ravel(unit).tolist(), strict=True)
    return [math.floor(Fraction(v) / Fraction(u) + Fraction(1, 2)) for v, u in pairs]


def gaussian_std(sensitivity, d, epsilon, delta):
    """The standard deviation of a discrete Gaussian for integer vectors (d,) of this l2-sensitivity.

    Of delta, what the noise differs from a rounded Gaussian is taken off first. Raises ValueError if that is all of it.
    """
    std = sensitivity * analytic_noise_multiplier(epsilon, delta)
    charge = (1 + math.exp(min(epsilon, 700.0))) * d / (4 * std**2)
    if not charge < delta / 2:
        raise ValueError(f"epsilon = {epsilon!r} and delta = {delta!r}: rounding would cost {charge:.1e} of delta")
    return math.nextafter(sensitivity * float(analytic_noise_multiplier(epsilon, delta - charge)), math.inf)
