r"""Round vectors to integers, so that sums are exact and rounding cannot increase their sensitivity.

A sum in floating point depends on the order of its terms and on rounding errors, and the sums of two neighboring data
sets can differ by more than the sensitivity (Casacuberta, Shoemate, Vadhan and Wagaman 2022). Here each vector is first
rounded to multiples of a unit, which is so small that the loss does not matter. All later steps compute with integers:

1. A row that is clipped to norm C becomes an integer vector of norm at most K, the `radius` of a `Lattice`. It is
   rounded towards zero, so that no entry grows. (Along a basis, `egm._rows.unrotated` rounds rows before they are
   rotated.)
2. A value that is not a sum of clipped rows is rounded to the nearest integer. This can increase the difference between
   two neighboring data sets by one in each entry, and so this increase is added to the sensitivity.
3. The noise is a discrete Gaussian. It is calibrated for less than the promised delta, because its distribution is
   not that of a rounded continuous Gaussian.

Let :math:`r` be the distribution of a normal variable :math:`N(0, s^2)` that is rounded to the
nearest integer, and :math:`p` the discrete Gaussian distribution. By Jensen's inequality and
Poisson's summation formula,

.. math::

    r(k) \ge p(k) \exp\Bigl( -\frac{1}{24 s^2} \Bigr) \qquad \text{for every } k \text{ and every } s > 0.

So the total variation distance of the two is at most :math:`1 / (24 s^2)` for one entry, and
:math:`d / (24 s^2)` for :math:`d` entries. (Chapter 13 of the book has the proof.)

Integers plus noise with the distribution :math:`r` are a rounded release of the Gaussian mechanism,
and so they are private for the epsilon and the delta of continuous noise. Therefore integers plus
noise with the distribution :math:`p` are private for this epsilon and for

.. math::

    \delta + (1 + e^\varepsilon) \frac{d}{24 s^2}.

The noise is calibrated for delta minus :math:`(1 + e^\varepsilon) d / (4 s^2)`, which is six times the additional term.
The surplus also covers the tails of the noise, which 64-bit integers cut off.

l2 noise of scale s is Gaussian noise with a random variance V, which all coordinates share. The mean of 1/V is
:math:`1 / (s^2 (d - 1))`. The discrete form of l2 noise is a discrete Gaussian with this random variance. Its total
variation distance from rounded l2 noise is at most :math:`d / (24 s^2 (d - 1))` if d is at least 2, and at most
:math:`(1 + \log(1 + 48 s^2)) / (48 s^2)` if d is 1 (chapter 14 of the book).
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from egm._basis import Basis, BasisLike
from egm._rows.doubles import doubles
from egm._rows.unrotated import Unrotated
from egm._threads import CORES, in_parallel
from egm._types import Array, ArrayLike, Whole
from egm._validate import between
from egm.calibration import analytic_noise_multiplier, l2_noise_scale

__all__ = ["EXCESS", "Lattice", "delta_of", "gaussian_std", "l2_distance", "l2_std", "nearest_double", "rounded"]

EXCESS = 2.0**-30  # share by which noise is larger than necessary; it covers the rounding of numbers computed from it

_FINEST = 40  # largest k: a clipped row becomes an integer vector of norm at most 2**k
_HIGHEST = 56  # bits of the largest standard deviation of the noise, well within 64
_MOST = 1 << 20  # rows whose sum has less than 62 bits
_COPIED = 1 << 16  # numbers copied at a time where X is not an array of doubles in C order
_GROUPED = 1 << 19  # numbers that are put into the order of their groups at a time
_WORTH_A_THREAD = 1 << 19  # numbers of a matrix for each range of rows that a thread sums
_RANGES, _FEWEST = 8, 64  # ranges for each core, and least rows in one: if a core is slow, others take more ranges


class Lattice:
    """Represent rows by vectors of integers, after the rows have been shortened to a given norm (clipped).

    The integer 1 stands for the length `unit`, and the integer vector of a row has at most the norm `radius`: 2**40, or
    less if the noise would not fit into 64-bit integers. A row is also shortened by the factor `shrink`, slightly below
    1, so that rounding errors cannot make its vector too long. `unrotated` is None, or an object that adds up rows
    without rotating them along the basis of a mechanism. Then the method `rotated` rotates and scales the sum, and
    `radius` bounds the norm that the vector of a single row would have after these steps.
    """

    def __init__(self, clip_norm: float, d: int, noise: float, unrotated: Unrotated | None = None) -> None:
        """Choose the unit of the integers for rows with `d` entries that are shortened to the norm `clip_norm`.

        The standard deviation of the noise is `noise` times the clip norm. If an `Unrotated` is given as `unrotated`,
        rows are summed without a rotation, and `rotated` then rotates their sum along the basis. Raise ValueError for a
        clip norm outside 1e-250 to 1e250, and for noise so large that `radius` would be less than 2**20.
        """
        between(1e-250, 1e250, clip_norm=clip_norm)
        self.radius = 1 << fineness(noise)
        self.unrotated = unrotated
        # The norms and three products are rounded; d + 16 units of 2**-52 are more than all of that.
        self.shrink = 1 - (d + 16) * 2.0**-52 - (unrotated.slack if unrotated else 0.0)
        self.clip_norm = clip_norm
        self.unit = clip_norm / (self.radius * self.shrink)

    @property
    def rounded(self) -> int:
        """Return how many entries of a sum are rounded after all rows have been added: d or 0.

        All d entries are rounded if rows are summed before they are rotated along a basis. Otherwise none is rounded.
        The rounding of a sum increases its sensitivity.
        """
        return self.unrotated.scaling.size if self.unrotated else 0

    def rotated(self, total: Whole) -> Whole:
        """Finish a sum of rows: rotate and scale it along the basis if the rows were summed without a rotation.

        `total` is a result of the method `sum`; the result is a vector of integers, too. Entries of `total` after the
        first d, such as a number of rows, stay as they are. If `unrotated` is None, nothing is left to do, and `total`
        is returned.
        """
        if self.unrotated is None:
            return total
        d = self.unrotated.scaling.size
        along = self.unrotated.rotated(total[..., :d], self.radius, self.shrink)
        return np.concatenate([along, total[..., d:]], axis=-1)

    def rows(self, X: ArrayLike, center: ArrayLike = 0.0, scaling: ArrayLike = 1.0) -> NDArray[np.int64]:
        """Return the vector of integers to which each row x of `X` is clipped and rounded, an int64 array (m, d).

        The row is first replaced by (x - center) * scaling. The integer 1 stands for the length `unit`, an attribute.
        """
        return np.array([self.sum(row[None], center, scaling) for row in np.asarray(X)], dtype=np.int64)

    def sum(
        self, X: NDArray[Any], center: ArrayLike = 0.0, scaling: ArrayLike = 1.0, basis: BasisLike | None = None
    ) -> Whole:
        """Clip every row of `X`, round it to a vector of integers, and return the exact sum of these vectors.

        X has the shape (m, d), numbers of any real type and size, and any memory order. A row x is first replaced by (x
        - center) * scaling, where `center` and `scaling` are numbers or vectors of d entries. With a `basis`, the
        coordinates of x - center along its vectors are scaled; if the attribute `unrotated` is not None, the result
        must then be passed to the method `rotated`. The result, shape (d,), holds Python integers. On processors of one
        kind a row always gives the same integers, whatever rows it is added with. Raise ValueError for an entry of X
        that is not finite.
        """
        return self.sum_and_clipped(X, center, scaling, basis)[0]

    def sum_and_clipped(
        self, X: NDArray[Any], center: ArrayLike = 0.0, scaling: ArrayLike = 1.0, basis: BasisLike | None = None
    ) -> tuple[Whole, int]:
        """Return the exact sum of the clipped and rounded rows of `X`, and how many rows were shortened.

        As for the method `sum`, each row is rounded to a vector of integers, and `center`, `scaling` and `basis` say
        how the row is centered and scaled before it is clipped. Whether a row counts as shortened does not depend on
        the other rows.
        """
        center, scaling = (np.ascontiguousarray(np.broadcast_to(v, X.shape[1]), dtype=float) for v in (center, scaling))
        add = self._adder(center, scaling, basis)
        as_it_is = X.flags.c_contiguous and (X.dtype == float or (X.dtype == np.float32 and basis is None))
        parts = _parts(len(X), X.shape[1], _RANGES, self._most)
        totals = in_parallel(lambda part: self._part(X, part, add, as_it_is), parts)
        joint = _exact_sum(totals, (X.shape[1] + 1,))
        return joint[:-1], joint[-1]

    def sum_by_group(
        self,
        X: NDArray[Any],
        codes: NDArray[Any],
        groups: int,
        center: ArrayLike = 0.0,
        scaling: ArrayLike = 1.0,
        basis: BasisLike | None = None,
    ) -> tuple[Whole, NDArray[np.int64]]:
        """Return for each group the exact sum of its clipped and rounded rows, and the number of its rows.

        `codes` has the group of each row of `X`, from 0 to `groups` - 1, or -1 for a row that is left out. The sums
        have the shape (groups, d). As for the method `sum`, each row is rounded to a vector of integers, and `center`,
        `scaling` and `basis` say how the row is centered and scaled before it is clipped. Raise ValueError for an entry
        of X that is not finite, also in a row that is left out.
        """
        center, scaling = (np.ascontiguousarray(np.broadcast_to(v, X.shape[1]), dtype=float) for v in (center, scaling))
        if basis is None:
            from egm._rows import kernel  # compiles

            scale = scaling, self.clip_norm, self.radius * self.shrink

            def add(rows: Array, of_rows: NDArray[Any], total: NDArray[np.int64]) -> int:
                place: int = kernel.add_grouped(rows, of_rows, center, *scale, total)
                return place

        else:
            add = partial(_add_sorted, add=self._adder(center, scaling, basis))
        parts = _parts(len(X), X.shape[1], 1, self._most)
        totals = in_parallel(lambda part: _group_part(X, codes, groups, part, add), parts)
        joint = _exact_sum(totals, (groups, X.shape[1] + 1))
        return joint[:, :-1], joint[:, -1].astype(np.int64)

    @property
    def _most(self) -> int:
        """Return a number of rows for which a sum of clipped and rounded rows surely fits into 64-bit integers."""
        return self.unrotated.most if self.unrotated else _MOST

    def _adder(self, center: Array, scaling: Array, basis: BasisLike | None) -> Callable[..., int]:
        """Return a function ``add(X, total, clipped)`` that clips, rounds and adds up rows, with or without a `basis`.

        ``add`` changes `total` and `clipped` as `egm._rows.kernel.add_rows` does. Its result is -1, or the index of an
        entry of the flattened `X` that is not finite. `center`, `scaling` and `basis` say, as for the method `sum`, how
        a row is centered and scaled. `X` holds doubles or, without a basis, float32.
        """
        from egm._rows import kernel  # compiles

        scale = scaling, self.clip_norm, self.radius * self.shrink
        if basis is None:
            return lambda X, total, clipped: kernel.add_rows(X, center, *scale, total, clipped)
        if self.unrotated is not None:
            from egm._rows.unrotated_kernel import add_unrotated  # compiles

            rule = center, *self.unrotated.rule
            return lambda X, *totals: add_unrotated(X, *rule, *totals)
        if isinstance(basis, Basis):
            entries, plan = basis.plan
            return lambda X, total, clipped: kernel.add_rotated(X, center, entries, plan, *scale, total, clipped)

        def add(X: Array, total: NDArray[np.int64], clipped: NDArray[np.int64]) -> int:
            place = int(np.argmin(np.isfinite(X))) if X.size else 0
            if X.size and not np.isfinite(X.flat[place]):
                return place
            with np.errstate(all="ignore"):  # a warning could reveal a row
                far = kernel.FAR
                rows = np.nan_to_num(basis.forward(np.clip(X - center, -far, far)), posinf=far, neginf=-far)
            rows.flags.writeable = False
            kernel.add_rows(rows, np.zeros_like(center), *scale, total, clipped)
            return -1

        return add

    def _part(self, X: NDArray[Any], part: range, add: Callable[..., int], as_it_is: bool) -> NDArray[np.int64]:
        """Clip and round those rows of `X` whose indices are in `part`; return their sum and how many were shortened.

        `add` is a result of `_adder`. If `as_it_is` is true, `add` gets the rows as they are; otherwise the rows are
        first converted to doubles in C order. The result, shape (d + 1,), holds 64-bit integers: the sum and then the
        number of shortened rows.
        """
        joint = np.zeros(X.shape[1] + 1, dtype=np.int64)
        total, clipped = joint[:-1], joint[-1:]
        step = len(part) if as_it_is else max(1, _COPIED // X.shape[1])
        for start in range(part.start, part.stop, step):
            block = X[start : min(start + step, part.stop)]
            block = block.view() if as_it_is else doubles(block).view()
            block.flags.writeable = False  # one type of array, one compiled function
            place = add(block, total, clipped)
            if place >= 0:
                i, j = divmod(place, X.shape[1])
                raise ValueError(f"X[{start + i}, {j}] must be finite")
        return joint


def _group_part(
    X: NDArray[Any], codes: NDArray[Any], groups: int, part: range, add: Callable[..., int]
) -> NDArray[np.int64]:
    """Clip and round those rows of `X` whose indices are in `part`; return sum and number of the rows of each group.

    `codes` has the group of each row, from 0 to `groups` - 1, or -1 for a row that is left out. ``add(rows, codes,
    total)`` adds rows as `egm._rows.kernel.add_grouped` does. The result has the shape (groups, d + 1), with the
    numbers of rows in the last column.
    """
    total = np.zeros((groups, X.shape[1] + 1), dtype=np.int64)
    step = max(1, _GROUPED // X.shape[1])
    for start in range(part.start, part.stop, step):
        rows = slice(start, min(start + step, part.stop))
        block = doubles(X[rows]).view()
        block.flags.writeable = False
        place = add(block, codes[rows], total)
        if place >= 0:
            i, j = divmod(place, X.shape[1])
            raise ValueError(f"X[{start + i}, {j}] must be finite")
    return total


def _add_sorted(block: Array, codes: NDArray[Any], total: NDArray[np.int64], add: Callable[..., int]) -> int:
    """Add each row of `block` to the row of `total` for its group, by a function `add` that knows no groups.

    The rows are sorted by group, and `add`, a result of `Lattice._adder`, is called for each group. `codes` has the
    group of each row, or -1 for a row that is left out. The last column of `total` counts rows. The result is -1, or
    the index, in the flattened `block`, of an entry that is not finite.
    """
    finite = np.isfinite(block)
    if not finite.all():
        return int(np.argmin(finite))
    order, clipped = np.argsort(codes, kind="stable"), np.zeros(1, dtype=np.int64)  # rows of no group stand first
    rows, ends = block[order], np.searchsorted(codes[order], np.arange(len(total) + 1))
    rows.flags.writeable = False
    for group in np.flatnonzero(np.diff(ends)):
        sums = np.zeros(block.shape[1], dtype=np.int64)
        place = add(rows[ends[group] : ends[group + 1]], sums, clipped)
        if place >= 0:
            i, j = divmod(place, block.shape[1])
            return int(order[ends[group] + i] * block.shape[1] + j)
        total[group, :-1] += sums
    total[:, -1] += np.diff(ends)
    return -1


def _parts(rows: int, d: int, each: int, most: int) -> list[range]:
    """Divide the indices 0 ... rows - 1 into ranges, each of which is summed by one thread.

    There are `each` ranges for each core: fewer for a small matrix (`rows` rows of `d` columns), and more if a range
    would have more than `most` rows, so that no sum overflows 64 bits.
    """
    number = min(max(CORES, min(each * CORES, rows // _FEWEST)), 1 + rows * d // _WORTH_A_THREAD)
    step = max(1, min(-(-rows // number), most))
    return [range(start, min(start + step, rows)) for start in range(0, rows, step)]


def _exact_sum(totals: list[NDArray[np.int64]], shape: tuple[int, ...]) -> Whole:
    """Return the sum of the arrays `totals`, which hold 64-bit integers, as an array of Python integers.

    All arrays have the given `shape`; if there are none, the sum is zero. The high and the low 32 bits are added
    separately, so that no sum overflows.
    """
    if len(totals) < 2:
        return totals[0].astype(object) if totals else np.zeros(shape, dtype=object)
    high, low = sum(total >> 32 for total in totals), sum(total & 0xFFFFFFFF for total in totals)
    return np.asarray(high).astype(object) * 2**32 + low


def fineness(noise: float) -> int:
    """Return the k for which values and noise are rounded to multiples of about 2**-k times the sensitivity.

    64-bit integers must have room for normal noise whose standard deviation is `noise` times the sensitivity. So k is
    40, or less if the noise is large. Raise ValueError if k would be below 20.
    """
    bits = min(_FINEST, _HIGHEST - math.ceil(math.log2(max(noise, 1.0))))
    if bits < 20:
        times = 2.0**-36 * noise
        raise ValueError(f"noise must be small enough for 64-bit integers, got {times:.3g} times the largest")
    return bits


def rounded(value: NDArray[Any], unit: Array) -> list[int]:
    """Return the integers nearest to value / unit, entry by entry, as a list of Python integers in C order.

    `value` holds real numbers of any type, which are not converted to doubles: a conversion rounds integers beyond
    2**53, and so can increase the difference between two neighboring data sets.
    """
    pairs = zip(np.ravel(value).tolist(), np.ravel(unit).tolist(), strict=True)
    return [math.floor(_fraction(v) / Fraction(u) + Fraction(1, 2)) for v, u in pairs]


def _fraction(number: Any) -> Fraction:
    """Return the exact value of a finite real number of Python or NumPy as a fraction."""
    return Fraction(int(number)) if isinstance(number, np.integer) else Fraction(*number.as_integer_ratio())


def nearest_double(steps: int, unit: float) -> float:
    """Return the double nearest to steps * unit; if this is too large, the largest double with the sign of `steps`."""
    numerator, denominator = unit.as_integer_ratio()
    try:
        return steps * numerator / denominator
    except OverflowError:
        return math.copysign(sys.float_info.max, steps)


@functools.lru_cache(maxsize=64)
def gaussian_std(sensitivity: float, d: int, epsilon: float, delta: float) -> float:
    """Return the standard deviation of discrete Gaussian noise that makes vectors of `d` integers private.

    Such vectors with the l2-sensitivity `sensitivity`, plus this noise, are (epsilon, delta)-differentially private.
    Discrete noise is not exactly a rounded Gaussian, and the difference adds to delta (see the docstring of this
    module). So the noise is made for `delta` minus a bound on this addition. Raise ValueError if the bound is half of
    delta or more.

    The result is at least sensitivity * analytic_noise_multiplier(epsilon, delta) * (1 + EXCESS), slightly more than
    necessary. So the privacy cost of the noise is not above the cost that is computed from this noise multiplier, such
    as 1 / (2 * noise_multiplier**2) in zCDP, in spite of rounding errors.
    """
    std = sensitivity * float(analytic_noise_multiplier(epsilon, delta))
    left = _left(epsilon, delta, d / (4 * std**2))
    return max(std, sensitivity * float(analytic_noise_multiplier(epsilon, left))) * (1 + EXCESS)


@functools.lru_cache(maxsize=64)
def l2_std(sensitivity: float, d: int, epsilon: float, delta: float) -> float:
    """Return the standard deviation of each coordinate of discrete l2 noise that makes vectors of `d` integers private.

    Such vectors with the l2-sensitivity `sensitivity`, plus this noise, are (epsilon, delta)-differentially private. l2
    noise is drawn as normal noise times a random scale. The rounding of the noise and of this scale adds to delta. So
    the noise is made for `delta` minus a bound on this addition. Raise ValueError if the bound is half of delta or
    more.
    """
    scale = sensitivity * float(l2_noise_scale(epsilon, delta, d))
    rounding = (1 + (math.log1p(48 * scale**2) if d == 1 else 0.0)) / (2 * scale**2)
    left = _left(epsilon, delta, rounding + l2_distance(d))
    return max(scale, sensitivity * float(l2_noise_scale(epsilon, left, d))) * (1 + EXCESS) * math.sqrt(d + 1)


def l2_distance(d: int) -> float:
    """Return a bound on the change of the distribution of l2 noise that is due to the rounding of its random scale.

    l2 noise with `d` entries is normal with a random standard deviation (its scale), which `egm.samplers.secure_l2`
    rounds to a double. The change is measured by the total variation distance.
    """
    return math.sqrt(d) * 2.0**-49


def delta_of(distance: float, epsilon: float) -> float:
    """Return a bound on the addition to delta if the drawn noise is not the exact noise: (1 + exp(epsilon)) * distance.

    `distance` is the total variation distance between the distributions of the drawn noise and of the exact noise.
    """
    return (1 + math.exp(min(epsilon, 700.0))) * distance


def _left(epsilon: float, delta: float, distance: float) -> float:
    """Return `delta` minus a bound on the addition to delta that is caused by drawing noise which is not exact.

    `distance` is the total variation distance between the distributions of the drawn noise and of the exact noise. The
    bound is ``delta_of(distance, epsilon)``. Raise ValueError if it is half of delta or more.
    """
    charge = delta_of(distance, epsilon)
    if not charge < delta / 2:
        raise ValueError(
            f"epsilon = {epsilon!r} and delta = {delta!r}: integer noise would add {charge:.1e} to delta, which must "
            f"be less than half of it"
        )
    return math.nextafter(delta - charge, 0.0)
