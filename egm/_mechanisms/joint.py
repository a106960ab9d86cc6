r"""Compute what one person can change in a sum of clipped rows and in the numbers of rows that are released with it.

A clipped row is a vector y of norm at most C. If the number of rows is released, too, each row is the joint vector
(y, w), with a weight w > 0, and the sum of these vectors is released. A person has at most k rows, or one row in each
of at most m groups. Each group has its own coordinates, so joint vectors of different groups are orthogonal. Let the
reach r be k in the first case and :math:`\sqrt m` in the second. Let U be the sum of a person's joint vectors, and V
that of another person. Then

.. math::

    \|U\| \le r \sqrt{C^2 + w^2}, \qquad \langle U, V \rangle \ge -r^2 \max(C^2 - w^2, 0),

because two joint vectors of one group have an inner product of at least :math:`w^2 - C^2`, and those of two groups have
the inner product 0. Therefore the sensitivity is at most

- :math:`r \sqrt{C^2 + w^2}` if a person is added or removed;
- :math:`\|U - V\| \le r \max(2 C, \sqrt{2 (C^2 + w^2)})` if a person is replaced;
- :math:`k \max(2 C, \sqrt{C^2 + w^2})` if a person is replaced and there is one group: if the two persons have a and b
  rows, the square of the change is at most :math:`(a + b)^2 C^2 + (a - b)^2 w^2`, which is largest for b = a or b = 0.

If a person is replaced and the weight w is at most C (or :math:`\sqrt 3 C` if there is one group), this bound is 2 r C.
The sum without the number of rows has this sensitivity, too. So under replacement the number of rows is released
without more noise, even if it is private.

Chapter 18 of the book proves this.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from egm._types import Neighbors

__all__ = ["CLIPPED_SHARE", "Joint"]

CLIPPED_SHARE = 1 / 8  # weight of the number of clipped rows, over the sensitivity of all else; it adds 0.8 percent
_LEAST_WEIGHT = 1 / 10  # of the number of rows over the clip norm, if a person is added or removed


@dataclass(frozen=True)
class Joint:
    """Compute the sensitivity of a release: a sum of clipped rows, perhaps together with one or two numbers of rows.

    `neighbors` is the neighbor relation. `counted` says whether the number of all rows is part of the release, and
    `clipped` whether the number of shortened rows is. `reach_squared` is k**2 if a person may have k rows, or m if a
    person may have one row in each of m groups. `groups` says whether there are several groups of rows, each with its
    own sum.
    """

    neighbors: Neighbors
    counted: bool
    clipped: bool = False
    reach_squared: int = 1
    groups: bool = False

    def sensitivity(self, clip_norm: Any, weight: Any) -> Any:
        """Return the sensitivity of the vector that has the sum of the rows and, as one more entry, `weight` times n.

        The n rows are clipped to the norm `clip_norm`, and each person has one row. If a person may have several rows,
        or if the number of clipped rows is released, too, the result must be multiplied by `stretch`.
        """
        joint = np.hypot(clip_norm, weight)
        if self.neighbors == "add_remove":
            return joint
        return np.maximum(2.0 * clip_norm, math.sqrt(2) * joint if self.groups else joint)

    def weight(self, clip_norm: float, ratio: float) -> float:
        """Return the weight w by which to multiply the number of rows in a release, for the least error.

        If the number of rows is not released, w is 0. Otherwise the released sum is the noisy sum of centered rows plus
        the center times the noisy number of rows. (In the error of the mean, the distance of the true mean from the
        center takes the place of the center.) For the sensitivity s, the variance of the noise in the first term is
        A s**2, and in the second term B s**2 / w**2. A and B do not depend on w, and `ratio` is sqrt(B / A). Since s**2
        is proportional to C**2 + w**2 for the clip norm C, which is `clip_norm`, w = sqrt(C * ratio) is best. But if a
        person is added or removed, w is at least C / 10, which increases s**2 by one percent. If a person is replaced,
        w is at least the largest weight that does not increase s.
        """
        if not self.counted:
            return 0.0
        free = 1.0 if self.groups else math.sqrt(3)
        least = free if self.neighbors == "replace_one" else _LEAST_WEIGHT
        return float(max(np.sqrt(clip_norm * ratio), least * clip_norm))

    @property
    def stretch(self) -> float:
        """Return the factor by which to multiply the result of `sensitivity`, to get the sensitivity of the release.

        `sensitivity` assumes that each person has one row, and that the number of clipped rows is not released. The
        factor is k if a person may have k rows, or sqrt(m) if a person may have one row in each of m groups. If the
        number of clipped rows is released, the factor is larger by about 0.8 percent.
        """
        return math.sqrt(self.reach_squared) * (math.hypot(1, CLIPPED_SHARE) if self.clipped else 1.0)

    def on_lattice(self, radius: int, weight: int, rounded: int = 0) -> tuple[int, float]:
        """Return the integer by which the number of shortened rows is multiplied, and the sensitivity of the release.

        Rows are integer vectors of norm at most `radius`, and the number of all rows is multiplied by the integer
        `weight`. The first result is an eighth of the sensitivity of the sum of rows and this product together, rounded
        up, or 0 if the number of shortened rows is not released. `rounded` is the number of entries of the sum that are
        rounded once more after a rotation along a basis, which can increase the change of each of these entries by one.
        """
        joint = radius**2 + weight**2
        square = joint
        if self.neighbors == "replace_one":
            square = max(4 * radius**2, 2 * joint if self.groups else joint)
        clipped_weight = math.ceil(CLIPPED_SHARE * _root(square)) if self.clipped else 0
        exact = _root(self.reach_squared * (square + clipped_weight**2))
        return clipped_weight, exact + math.ceil(math.sqrt(2 * self.reach_squared * rounded))


def _root(square: int) -> float:
    """Return the root of the integer `square`, exact or slightly larger: a sensitivity must not be too small."""
    root = math.isqrt(square)
    if root**2 == square and root <= 1 << 53:
        return float(root)
    return math.nextafter(math.nextafter(math.sqrt(square), math.inf), math.inf)
