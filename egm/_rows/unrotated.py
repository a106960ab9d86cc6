r"""For a mechanism with a basis, sum clipped rows in the coordinates of the columns, and rotate only the sum.

Let U be the matrix of the basis, b the scaling, m its largest entry, C the clip norm, and :math:`A = \mathrm{diag}(b /
m) U`. A centered row x is first multiplied by m / C; let y be the result. The row is clipped if :math:`\|A y\| > 1`. A
rotation is linear, so rotating the sum of the rows is the same as summing rotated rows, and much faster:

1. A row becomes the integer vector w nearest to :math:`2^G y / \max(1, \|A y\|)`. (G is `Unrotated.bits`.)
2. The integer vectors of all rows are added exactly. The sum is W.
3. The matrix :math:`M = 2^{-G} K \theta A` maps W to the `Lattice` of the mechanism, where the radius is K. The
   product M W is computed exactly, and rounded to the nearest integers.

The factor :math:`\theta`, slightly below 1, allows for all rounding errors in step 1 and for those of U, so that
:math:`\|M w\| \le K`. So one row changes M W as much as it changes a sum of rotated rows. Rounding the product can add
one to the change of each of the d entries. For this, :math:`\sqrt{2 d}` is added to the sensitivity, which is little
beside K, nearly always :math:`2^{40}`. (Chapter 13 of the book has the proof.)

A row is clipped if its norm in doubles is too large; to compute this norm, the row is rotated. But most rows are seen
to be short without that. The rows :math:`v_j` of U are orthonormal, and :math:`b_j \le m`. So for every set J of
directions

.. math::

    \|A y\|^2 \le \|y\|^2 - \sum_{j \in J} \Bigl( 1 - \frac{b_j^2}{m^2} \Bigr) \langle v_j, y \rangle^2 .

If J has the directions of the largest standard deviations, where b is small, a few of them are enough for nearly all
rows. The products are computed in single precision, and the bound allows for its rounding errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from egm._basis import Basis
from egm._lazy import cached_property
from egm._types import Array, Whole

if TYPE_CHECKING:
    from egm._basis import BasisLike

__all__ = ["Unrotated", "unrotated"]

_DIGITS = 34  # a rounded row differs from the row by at most 2**-_DIGITS clip norms
_FRACTION = 62  # bits behind the binary point of the entries of A
_MOST_COLUMNS = 512  # for more, a product with the matrix in Python integers takes too long
_MOST_UNEQUAL = 2.0**12  # largest sqrt(d) max(b) / min(b): beyond it, the sum of few rows would not fit into 64 bits
_SCALES = 1e-200, 1e200  # range of m / C
_ORTHOGONAL = 2.0**-48  # largest norm of U U^T - I, divided by d


@dataclass(frozen=True, eq=False)
class Unrotated:
    """Sum the clipped rows of a mechanism in the coordinates of the columns, and rotate only the sum along its basis.

    `basis`, `scaling` (the multipliers of the coordinates along the basis) and `clip_norm` are those of the mechanism.
    The docstring of this module describes the method, and the function `unrotated` makes the objects of this class.
    """

    basis: Basis
    scaling: Array
    clip_norm: float

    @property
    def alpha(self) -> float:
        """Return the factor by which a centered row is multiplied: the largest multiplier divided by the clip norm.

        The attribute `scaling` has the multipliers, one for each vector of the basis.
        """
        return float(np.max(self.scaling) / self.clip_norm)

    @property
    def bits(self) -> int:
        """Return the number G of binary digits: a centered row, times `alpha`, is rounded to multiples of 2**-G."""
        return _DIGITS + math.ceil(math.log2(self.scaling.size) / 2)

    @property
    def relative(self) -> Array:
        """Return the multipliers of the coordinates along the basis, divided by the largest of them."""
        return np.asarray(self.scaling / np.max(self.scaling))

    @property
    def _spare(self) -> int:
        """Return an s such that a sum of 2**s clipped and rounded rows surely fits into 64-bit integers."""
        return 62 - self.bits - math.ceil(-math.log2(np.min(self.relative)))

    @property
    def most(self) -> int:
        """Return a number of rows for which a sum of clipped and rounded rows surely fits into 64-bit integers."""
        return 1 << min(self._spare, 20)

    @property
    def slack(self) -> float:
        """Return a bound on the relative error that all rounding causes in the norm of a row's rotated vector.

        Rounding could make a rotated row longer than the clip norm. So the sum of rotated rows, and with it each of its
        terms, is multiplied by a factor of at most 1 minus this bound.
        """
        d = self.scaling.size
        return float(2.0**-_DIGITS + d * _ORTHOGONAL + 2.0**-50 * (d + 16) * math.sqrt(d) / np.min(self.relative))

    @cached_property
    def rule(self) -> tuple[Any, ...]:
        """Return the arguments of the function `add_unrotated` that depend on the mechanism alone, as a tuple.

        `egm._rows.unrotated_kernel.add_unrotated` adds up rows; the arguments are those from `alpha` to `often` in its
        signature, in this order.
        """
        d, relative, U, (entries, plan) = self.scaling.size, self.relative, self.basis.matrix, self.basis.plan
        # More directions than these would cost more than the rotation of a row, or add nothing to the bound.
        most = min(np.count_nonzero(relative < 1), np.sum(plan[:, 1]))
        order = np.argsort(relative, kind="stable")[:most]
        directions, less = np.zeros((-(-order.size // 4) * 4, d), np.float32), np.zeros(-(-order.size // 4) * 4)
        directions[: order.size], less[: order.size] = U[order], 1 - relative[order] ** 2
        # A product in single precision errs by at most one_off ||y||; these are bounds for the sums of 0, 4, ... terms.
        one_off, k = (d + 8) * 2.0**-24, np.arange(0, less.size + 1, 4)
        slack = 2 * np.sqrt(k) * one_off + 3 * k * one_off**2
        often = min(1 << (self._spare - 10), 4096)
        return self.alpha, 2.0**self.bits, directions, less, slack, entries, plan, relative, often

    def rotated(self, total: Whole, radius: int, shrink: float) -> Whole:
        """Rotate the sum of all rows along the basis and multiply it by the scaling, in Python integers.

        `total` is the sum of the integer vectors of the rows, shape (..., d), before they are rotated and scaled. In
        the result, the integer 1 stands for the `unit` of the mechanism's `Lattice`. `radius` and `shrink` are
        attributes of this `Lattice`: the clip norm in units, and a factor just below 1 that makes up for rounding.
        """
        A = np.rint(np.ldexp((self.relative * shrink)[:, None] * self.basis.matrix, _FRACTION))
        whole = np.array([int(entry) for entry in A.ravel().tolist()], dtype=object).reshape(A.shape)
        shift = _FRACTION + self.bits
        product = (total @ whole.T) * radius
        return np.asarray((product + (1 << (shift - 1))) >> shift)


def unrotated(basis: BasisLike | None, scaling: Array, clip_norm: float) -> Unrotated | None:
    """Return an object that sums the rows of a mechanism before they are rotated, or None if this is not possible.

    The mechanism multiplies the coordinates along `basis` by `scaling`, and clips rows to `clip_norm`. If the result is
    None although there is a basis, rows must be rotated one by one. This is so if the basis is not given by a matrix or
    has many vectors, if its matrix is not orthogonal up to rounding, if the entries of `scaling` differ so much that
    integer vectors would need too many digits, or if the largest of these entries, divided by the clip norm, is very
    large or very small.
    """
    if not isinstance(basis, Basis) or basis.size > _MOST_COLUMNS:
        return None
    found, d, U = Unrotated(basis, scaling, clip_norm), scaling.size, basis.matrix
    unequal, off = math.sqrt(d) / np.min(found.relative), np.linalg.norm(U @ U.T - np.eye(d))
    possible = unequal <= _MOST_UNEQUAL and _SCALES[0] <= found.alpha <= _SCALES[1] and off <= d * _ORTHOGONAL
    return found if possible else None
