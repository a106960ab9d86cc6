r"""Divide long rows into pairs of vectors, so that what clipping removes is measured without a budget of its own.

Rows are clipped to a norm C. What clipping removes shows how the sum of the clipped rows is to be corrected, and its
own noisy sum would need a part of the budget. But the noise is chosen for rows of length C, and a short row has no part
that is removed. So a row of length r in the direction u, a unit vector, is divided into the pair of vectors

.. math::

    (C \cos t \; u, \; C \sin t \; u), \qquad
    t = \arccos \frac{C}{E} - \arccos \frac{\min(r, E)}{E} \text{ for } r > C,

with a larger norm E. A shorter row is the first vector of its pair, and the second vector is zero. As a vector of 2 d
numbers, a pair has the norm min(r, C). So noise for rows of norm C makes the sum of all pairs private.

For :math:`r \le E`, the row is the first vector plus :math:`\sqrt{(E / C)^2 - 1}` times the second one. This is the
difference formula of the cosine. If the sums are added in this way, rows are clipped to the norm E, and the noise, too,
is that for rows of norm E. If only the sum of the first vectors is used, the noise is that for rows of norm C.
"""

from __future__ import annotations

import math

import numpy as np

from egm._types import Array

__all__ = ["divided", "factor", "removed"]


def factor(clip_norm: float, outer: float) -> float:
    """Return the number by which the second vector of a pair is multiplied to get what is missing in the first one.

    Rows are divided at the norm `clip_norm`, and clipped to the larger norm `outer`.
    """
    return math.sqrt((outer / clip_norm) ** 2 - 1)


def divided(rows: Array, lengths: Array, clip_norm: float, outer: float) -> tuple[Array, Array]:
    """Return the two vectors into which each row is divided, as two arrays of the shape of `rows`.

    `lengths` has the norms of the rows, all above `clip_norm`. Rows longer than `outer` are clipped to this norm.
    """
    cosine, sine = _turn(lengths, clip_norm, outer)
    unit = clip_norm / lengths
    return rows * (cosine * unit)[:, None], rows * (sine * unit)[:, None]


def removed(lengths: Array, clip_norm: float, outer: float) -> Array:
    """Return the length of what is missing in the first vector of the pair, for rows with the norms `lengths`.

    The result is 0 for rows that are not longer than `clip_norm`. Rows longer than `outer` are clipped to this norm
    first.
    """
    _, sine = _turn(np.maximum(lengths, clip_norm), clip_norm, outer)
    return np.where(lengths > clip_norm, clip_norm * factor(clip_norm, outer) * sine, 0.0)


def _turn(lengths: Array, clip_norm: float, outer: float) -> tuple[Array, Array]:
    """Return the cosine and the sine of t, the angle of the pair, for rows whose norms `lengths` are >= `clip_norm`.

    Both follow from the addition formulas by square roots, whose last bits, unlike those of an arccosine, are the same
    on all processors.
    """
    x, c = np.minimum(lengths / outer, 1.0), clip_norm / outer
    y, s = np.sqrt((1 - x) * (1 + x)), math.sqrt((1 - c) * (1 + c))
    return c * x + s * y, s * x - c * y
