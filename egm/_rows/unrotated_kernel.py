"""Clip rows along a basis, and add them up, mostly without a rotation: compiled code for `egm._rows.unrotated`.

The notation is that of `egm._rows.unrotated`: y is a centered row, A is the matrix of the scaled basis, and a row is
long, and so clipped, if ||A y|| > 1. Most rows are recognized as short without a rotation. All others are held until
there are many of them, which are then rotated together.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from egm._compiled import compiled
from egm._rows.kernel import FAR, _first_not_finite, _flush, _rotated
from egm._types import Array

__all__ = ["add_unrotated"]

_HELD = 64  # rows that are rotated together
_FAR = 2.0**30  # squared norm of y above which a row is not compared in single precision
_SURELY = 1 - 2.0**-16  # a row is short if a bound on ||A y||**2 is below this number
_FAR_ENTRY = 2.0**40  # entry of y for which the row is surely long, and divided by its largest entry

Singles = NDArray[np.float32]


@compiled(fastmath={"reassoc"})
def _centered(row: Array, center: Array, alpha: float, y: Array, narrow: Singles) -> float:
    """Write (row - center) * alpha into `y` and, in single precision, into `narrow`; return the squared norm of `y`.

    The compiler chooses the order in which the squares are added; every call has the same order.
    """
    square = 0.0
    for j in range(y.size):
        entry = (row[j] - center[j]) * alpha
        y[j] = entry
        narrow[j] = np.float32(entry)
        square += entry * entry
    return square


@compiled(fastmath={"reassoc", "contract"})
def _subtract(y: Singles, directions: Singles, less: Array, bound: Array) -> None:
    """Lower the upper bounds of the squared norms that four rows have after rotation and scaling.

    `y` has the four rows, and `directions` four vectors v_j of the basis; both have the shape (4, d). `bound` has an
    upper bound for each row y, from which the sum of less_j <v_j, y>^2 over the four vectors is subtracted in place.
    `less` has less_j for each vector: 1 minus the square of the factor, at most 1, by which the coordinate along the
    vector is multiplied.
    """
    y0, y1, y2, y3 = y[0], y[1], y[2], y[3]
    u0, u1, u2, u3 = directions[0], directions[1], directions[2], directions[3]
    a00 = a01 = a02 = a03 = a10 = a11 = a12 = a13 = np.float32(0)
    a20 = a21 = a22 = a23 = a30 = a31 = a32 = a33 = np.float32(0)
    for j in range(y.shape[1]):
        x0, x1, x2, x3 = y0[j], y1[j], y2[j], y3[j]
        v0, v1, v2, v3 = u0[j], u1[j], u2[j], u3[j]
        a00 += x0 * v0
        a01 += x0 * v1
        a02 += x0 * v2
        a03 += x0 * v3
        a10 += x1 * v0
        a11 += x1 * v1
        a12 += x1 * v2
        a13 += x1 * v3
        a20 += x2 * v0
        a21 += x2 * v1
        a22 += x2 * v2
        a23 += x2 * v3
        a30 += x3 * v0
        a31 += x3 * v1
        a32 += x3 * v2
        a33 += x3 * v3
    c0, c1, c2, c3 = less[0], less[1], less[2], less[3]
    bound[0] -= c0 * a00 * a00 + c1 * a01 * a01 + c2 * a02 * a02 + c3 * a03 * a03
    bound[1] -= c0 * a10 * a10 + c1 * a11 * a11 + c2 * a12 * a12 + c3 * a13 * a13
    bound[2] -= c0 * a20 * a20 + c1 * a21 * a21 + c2 * a22 * a22 + c3 * a23 * a23
    bound[3] -= c0 * a30 * a30 + c1 * a31 * a31 + c2 * a32 * a32 + c3 * a33 * a33


@compiled()
def add_unrotated(
    X: Array,
    center: Array,
    alpha: float,
    step: float,
    directions: Singles,
    less: Array,
    slack: Array,
    entries: Array,
    plan: NDArray[np.int64],
    relative: Array,
    often: int,
    total: NDArray[np.int64],
    clipped: NDArray[np.int64],
) -> int:
    """Clip and round all rows of `X`; add the rows to `total`, and add to `clipped` how many of them were shortened.

    X has shape (n, d) and C order. Both results are written in place: `total`, int64 (d,), and `clipped`, int64 (1,).
    Let A = diag(relative) U, where `entries` and `plan`, made by `Basis.plan`, define the matrix U of the basis. Let
    y = (x - center) * alpha for a row x of X; `alpha` makes the clip norm 1. The integers nearest to step * y /
    max(1, ||A y||) are added to `total`, and 1 is added to `clipped` if ||A y|| > 1.

    `directions`, `less` and `slack`, from `egm._rows.unrotated.Unrotated.rule`, serve to recognize most rows with
    ||A y|| <= 1 without computing this norm. The integers of `often` rows, a multiple of four, are added up in doubles,
    which is exact, before they are added to `total`.

    The result is -1 or the index, in the flattened X, of an entry that is not finite; then `total` and `clipped` are
    not valid.
    """
    n, d = X.shape
    integers, y, narrow = np.zeros(d), np.zeros((4, d)), np.zeros((4, d), np.float32)
    y0, y1, y2, y3 = y[0], y[1], y[2], y[3]
    square, bound = np.zeros(4), np.zeros(4)
    held, waiting = np.zeros(_HELD, np.int64), 0
    for first in range(0, n + 4, 4):
        if waiting + 4 > _HELD or first >= n:
            place = _add_held(X, held[:waiting], center, alpha, step, entries, plan, relative, total, clipped)
            waiting = 0
            if place >= 0 or first >= n:
                _flush(integers, total)
                return place
        for r in range(4):
            square[r] = 0.0
            if first + r < n:
                square[r] = _centered(X[first + r], center, alpha, y[r], narrow[r])
            if first + r >= n or not square[r] <= _FAR:
                if first + r < n:
                    held[waiting] = first + r
                    waiting += 1
                square[r] = 0.0
                for j in range(d):
                    y[r, j], narrow[r, j] = 0.0, np.float32(0.0)
            bound[r] = square[r]
        seen = 0
        while True:
            scale = slack[seen // 4]
            short = bound[0] + scale * square[0] <= _SURELY and bound[1] + scale * square[1] <= _SURELY
            short = short and bound[2] + scale * square[2] <= _SURELY and bound[3] + scale * square[3] <= _SURELY
            if short or seen == less.size:
                break
            _subtract(narrow, directions[seen : seen + 4], less[seen : seen + 4], bound)
            seen += 4
        for r in range(4):
            if not short and not bound[r] + scale * square[r] <= _SURELY:
                held[waiting] = first + r
                waiting += 1
                for j in range(d):
                    y[r, j] = 0.0
        for j in range(d):
            pair = np.rint(y0[j] * step) + np.rint(y1[j] * step)
            integers[j] += pair + (np.rint(y2[j] * step) + np.rint(y3[j] * step))
        if (first + 4) % often == 0:
            _flush(integers, total)
    return -1


@compiled()
def _add_held(
    X: Array,
    held: NDArray[np.int64],
    center: Array,
    alpha: float,
    step: float,
    entries: Array,
    plan: NDArray[np.int64],
    relative: Array,
    total: NDArray[np.int64],
    clipped: NDArray[np.int64],
) -> int:
    """Rotate the rows of `X` with the indices `held`, at most 64, clip and round them, and add them to `total`.

    The norm of a row does not depend on the rows that are rotated with it. The number of shortened rows is added to
    `clipped`. The other arguments, and the result, are those of `add_unrotated`, which calls this function.
    """
    d, width = X.shape[1], (held.size + 3) // 4 * 4
    y, z, far = np.zeros((held.size, d)), np.zeros(d * width), np.zeros(held.size, np.bool_)
    for r in range(held.size):
        first: int = held[r] * d
        for j in range(d):
            y[r, j] = X[held[r], j]
        place = _first_not_finite(y[r])
        if place >= 0:
            return first + place
        far[r] = _scale(y[r], center, alpha)
        for j in range(d):
            z[j * width + r] = y[r, j]
    z, _ = _rotated(z, np.zeros(d * width), entries, plan, width)
    for r in range(held.size):
        square = 0.0
        for j in range(d):
            entry = z[j * width + r] * relative[j]
            square += entry * entry
        norm = math.sqrt(square)
        long = far[r] or norm > 1.0
        factor = step / norm if long else step
        clipped[0] += long
        for j in range(d):
            total[j] += np.int64(np.rint(y[r, j] * factor))
    return -1


@compiled()
def _scale(row: Array, center: Array, alpha: float) -> bool:
    """Replace `row` by y = alpha * (row - center) in place, and return whether an entry of y is above 2**40 in size.

    If the result is True, the row is surely clipped, and only its direction matters. Then `row` becomes row - center
    divided by the size of its largest entry, and not y. Entries of row - center beyond 1e290 in size are cut to this
    size first.
    """
    largest = 0.0
    for j in range(row.size):
        row[j] = min(max(row[j] - center[j], -FAR), FAR)
        largest = max(largest, abs(row[j]))
    far = largest * alpha > _FAR_ENTRY
    for j in range(row.size):
        row[j] = row[j] / largest if far else row[j] * alpha
    return far
