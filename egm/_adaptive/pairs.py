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
    """Return the factor f for which a row is the first vector of its pair plus f times the second vector.

    A row longer than `clip_norm` is divided into a pair of parallel vectors; the docstring of this module has the
    formula. If the row is longer than `outer`, a larger norm, it is first clipped to this norm.
    """
    return math.sqrt((outer / clip_norm) ** 2 - 1)


def divided(rows: Array, lengths: Array, clip_norm: float, outer: float) -> tuple[Array, Array]:
    """Return the two vectors into which each row is divided, as two arrays of the shape of `rows`.

    `lengths` has the norms of the rows, all above `clip_norm`. The two vectors are parallel to the row, and the sum of
    their squared norms is the square of `clip_norm`. The first one plus ``factor(clip_norm, outer)`` times the second
    one is the row, which is first clipped to the norm `outer` if it is longer.
    """
    cosine, sine = _turn(lengths, clip_norm, outer)
    unit = clip_norm / lengths
    return rows * (cosine * unit)[:, None], rows * (sine * unit)[:, None]


def removed(lengths: Array, clip_norm: float, outer: float) -> Array:
    """Return by how much the first vector of the pair is shorter than its row, for rows with the norms `lengths`.

    A row longer than `clip_norm` is divided into a pair of parallel vectors; for shorter rows the result is 0. Rows
    longer than `outer` are clipped to this norm before they are divided.
    """
    _, sine = _turn(np.maximum(lengths, clip_norm), clip_norm, outer)
    return np.where(lengths > clip_norm, clip_norm * factor(clip_norm, outer) * sine, 0.0)


def _turn(lengths: Array, clip_norm: float, outer: float) -> tuple[Array, Array]:
    """Return the cosine and the sine of the angle t with which rows of the norms `lengths` >= `clip_norm` are divided.

    A row is divided into two parallel vectors of the norms clip_norm cos t and clip_norm sin t, after it has been
    clipped to the norm `outer`. Cosine and sine are computed by square roots, from the addition formulas: the last bits
    of a square root, unlike those of an arccosine, are the same on all processors.
    """
    x, c = np.minimum(lengths / outer, 1.0), clip_norm / outer
    y, s = np.sqrt((1 - x) * (1 + x)), math.sqrt((1 - c) * (1 + c))
    return c * x + s * y, s * x - c * y
