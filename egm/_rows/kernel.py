"""Center, scale, clip and round rows, and add them up: the compiled functions for the sums of `egm._rows.lattice`.

This module is imported only when rows are summed, because numba takes seconds to compile it the first time
on a machine, and half a second in later processes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from egm._compiled import compiled
from egm._rows.prefetch import prefetch
from egm._types import Array

__all__ = ["FAR", "add_grouped", "add_rotated", "add_rows", "rotate"]

_ROUGH = 1e-280, 1e300  # a squared norm outside this range may have lost digits
_LARGEST = 1e300
_FLUSH = 4096  # rows that are added up in doubles: sums of so many integers up to 2**40 have no rounding error
_AHEAD, _LINE, _MOST = 384, 8, 512  # entries are prefetched so far ahead, a line of the cache at once, for d <= MOST
_TOGETHER = 64, 1 << 16  # largest number of rows that are rotated at a time, and of their entries
FAR = 1e290  # size to which larger entries of a row are cut, so that its rotation does not overflow


@compiled(inline="always")
def _load_ahead(X: NDArray[Any], i: int) -> None:
    """Make the processor load entries of `X` before they are needed, while the row with the index `i` is computed.

    `X` is a matrix in C order. The loaded entries follow those of row `i` at a distance of `_AHEAD` entries. If rows
    have more than `_MOST` entries, nothing is loaded early.
    """
    if X.shape[1] <= _MOST:
        for j in range(i * X.shape[1] + _AHEAD, (i + 1) * X.shape[1] + _AHEAD, _LINE):
            prefetch(X, j)


@compiled()
def _centered(row: Array, center: Array, scaling: Array, y: Array) -> None:
    """Write (row - center) * scaling into `y`; the four arguments are vectors of one length."""
    for j in range(y.size):
        y[j] = (row[j] - center[j]) * scaling[j]


@compiled(fastmath={"reassoc"})
def _squares(y: Array, square: Array) -> None:
    """Write the squared norms of the four rows of `y` into `square`.

    It takes less time to compute four norms together than one by one. The compiler chooses the order in which the
    squares of a row are added; this order is the same for all four rows and in every call.
    """
    y0, y1, y2, y3 = y[0], y[1], y[2], y[3]
    s0 = s1 = s2 = s3 = 0.0
    for j in range(y0.size):
        s0 += y0[j] * y0[j]
        s1 += y1[j] * y1[j]
        s2 += y2[j] * y2[j]
        s3 += y3[j] * y3[j]
    square[0], square[1], square[2], square[3] = s0, s1, s2, s3


@compiled()
def _careful_norm(y: Array) -> float:
    """Return the norm of a vector `y` whose squares overflow or underflow.

    Entries of `y` beyond 1e300 in size are first replaced, in `y` itself, by 1e300 with the sign of the entry.
    """
    largest = 0.0
    for j in range(y.size):
        y[j] = min(max(y[j], -_LARGEST), _LARGEST)
        largest = max(largest, abs(y[j]))
    if largest == 0.0:
        return 0.0
    total = 0.0
    for j in range(y.size):
        total += (y[j] / largest) * (y[j] / largest)
    return largest * math.sqrt(total)


@compiled()
def _surely_short(clip_norm: float) -> float:
    """Return a bound: a row whose squared norm is at most this bound is surely not longer than `clip_norm`.

    The bound is slightly below the square of `clip_norm`, because computed squared norms have rounding errors. It holds
    for squared norms of at least 1e-280; smaller ones may have lost digits by underflow.
    """
    return min(clip_norm * clip_norm * (1 - 2.0**-50), _ROUGH[1])


@compiled()
def _first_not_finite(row: Array) -> int:
    """Return the index of the first entry of `row` that is not finite, or -1 if all entries are finite."""
    for j in range(row.size):
        if not np.isfinite(row[j]):
            return j
    return -1


@compiled()
def _first_nan(y: Array) -> int:
    """Return the index of the first entry of `y` that is NaN, or -1 if there is none."""
    for j in range(y.size):
        if np.isnan(y[j]):
            return j
    return -1


@compiled()
def _rough(row: Array, y: Array) -> tuple[int, float]:
    """Return two numbers: the index of the first entry of `row` that is not finite, or -1, and the norm of `y`.

    `y` is the row after centering and scaling. The function is for a `y` whose squares overflow or underflow, so that
    its norm is computed with more care. Another thread may change the row meanwhile. If `y` has NaN for this reason,
    although all entries of `row` are finite, the first number is the index of this NaN. If the first number is not -1,
    the second one is 0.
    """
    place = _first_not_finite(row)
    if place < 0:
        place = _first_nan(y)
    return place, _careful_norm(y) if place < 0 else 0.0


@compiled()
def add_rows(
    X: NDArray[Any],
    center: Array,
    scaling: Array,
    clip_norm: float,
    target: float,
    total: NDArray[np.int64],
    clipped: NDArray[np.int64],
) -> int:
    """Clip and round all rows of `X`; add the rows to `total`, and add to `clipped` how many of them were shortened.

    X has shape (n, d) and C order, and holds doubles or float32. Both results are written in place: `total`, int64
    (d,), and `clipped`, int64 (1,). Let y = (x - center) * scaling for a row x of X. If ||y|| > clip_norm, y is
    shortened to this norm, and 1 is added to `clipped`. Then y is multiplied by target / clip_norm, and rounded towards
    zero. For the sums to be exact, n * target must be below 2**62.

    The function returns -1 if all entries of X are finite. Otherwise it returns the index, in the flattened X, of the
    first entry that is not finite; then `total` and `clipped` are not valid.
    """
    n, d = X.shape
    integers, y, square, factor = np.zeros(d), np.zeros((4, d)), np.zeros(4), np.zeros(4)
    short, whole = _surely_short(clip_norm), target / clip_norm
    y0, y1, y2, y3 = y[0], y[1], y[2], y[3]
    for first in range(0, n, 4):
        rows = min(4, n - first)
        y[rows:] = 0.0
        for r in range(rows):
            _load_ahead(X, first + r)
            _centered(X[first + r], center, scaling, y[r])
        _squares(y, square)
        for r in range(rows):
            if _ROUGH[0] <= square[r] <= short:
                factor[r] = whole
                continue
            norm = math.sqrt(square[r])
            if not _ROUGH[0] <= square[r] <= _ROUGH[1]:
                place, norm = _rough(X[first + r], y[r])
                if place >= 0:
                    return (first + r) * d + place
            factor[r] = target / max(norm, clip_norm)
            clipped[0] += norm > clip_norm
        f0, f1, f2, f3 = factor[0], factor[1], factor[2], factor[3]
        for j in range(d):
            pair, other = np.trunc(y0[j] * f0) + np.trunc(y1[j] * f1), np.trunc(y2[j] * f2) + np.trunc(y3[j] * f3)
            integers[j] += pair + other
        if (first + 4) % _FLUSH == 0:
            _flush(integers, total)
    _flush(integers, total)
    return -1


@compiled()
def _at_a_time(d: int) -> int:
    """Return how many rows of `d` numbers are rotated along a basis at a time: a multiple of 4, and at least 4."""
    return max(4, min(_TOGETHER[0], _TOGETHER[1] // d // 4 * 4))


@compiled()
def add_grouped(
    X: Array,
    codes: NDArray[Any],
    center: Array,
    scaling: Array,
    clip_norm: float,
    target: float,
    total: NDArray[np.int64],
) -> int:
    """Clip and round the rows of `X`, and add each row to the row of `total` for its group.

    As in `add_rows`, a row x is replaced by (x - center) * scaling, and shortened to the norm `clip_norm` if it is
    longer. Then it is multiplied by target / clip_norm, and rounded towards zero. `codes` has the index of the group of
    each row; a row with a negative index is left out. `total` is int64 (groups, d + 1) and written in place; its last
    column counts the rows. The result is -1 or, as for `add_rows`, the index of the first entry of X that is not
    finite, which may be in a row that is left out.
    """
    n, d = X.shape
    y, square = np.zeros((4, d)), np.zeros(4)
    short, whole = _surely_short(clip_norm), target / clip_norm
    for first in range(0, n, 4):
        rows = min(4, n - first)
        for r in range(rows):
            _load_ahead(X, first + r)
            if codes[first + r] >= 0:
                _centered(X[first + r], center, scaling, y[r])
        _squares(y, square)
        for r in range(rows):
            group = codes[first + r]
            if group < 0:
                place = _first_not_finite(X[first + r])
                if place >= 0:
                    return (first + r) * d + place
                continue
            factor = whole
            if not _ROUGH[0] <= square[r] <= short:
                norm = math.sqrt(square[r])
                if not _ROUGH[0] <= square[r] <= _ROUGH[1]:
                    place, norm = _rough(X[first + r], y[r])
                    if place >= 0:
                        return (first + r) * d + place
                factor = target / max(norm, clip_norm)
            for j in range(d):
                total[group, j] += np.int64(y[r, j] * factor)  # rounds towards zero
            total[group, d] += 1
    return -1


@compiled()
def _flush(integers: Array, total: NDArray[np.int64]) -> None:
    """Add `integers`, an array of doubles with whole values, to `total`, and set `integers` to zero; both in place."""
    for j in range(total.size):
        total[j] += np.int64(integers[j])
        integers[j] = 0.0


@compiled()
def add_rotated(
    X: Array,
    center: Array,
    entries: Array,
    plan: NDArray[np.int64],
    scaling: Array,
    clip_norm: float,
    target: float,
    total: NDArray[np.int64],
    clipped: NDArray[np.int64],
) -> int:
    """Rotate, clip and round all rows of `X`; add the rows to `total`, and add to `clipped` how many were shortened.

    The function does what `add_rows` does, with the same `clip_norm` and `target`, but with y = (U (x - center)) *
    scaling for the matrix U of a basis, which `entries` and `plan`, the results of `egm._basis.Basis.plan`, define. y
    is the same for a row x wherever it is in `X`.

    While rows are rotated, they are stored column by column, so that the processor multiplies several rows at a time.
    """
    n, d = X.shape
    width = _at_a_time(d)
    while _FLUSH % width:
        width -= 4
    integers, z, y = np.zeros(d), np.zeros(d * width), np.zeros(d * width)
    square, factor = np.zeros(width), np.zeros(width)
    for first in range(0, n, width):
        rows = min(width, n - first)
        if rows < width:
            z[:] = 0.0
            factor[:] = 0.0
        for r in range(rows):
            row = X[first + r]
            for j in range(d):
                z[j * width + r] = row[j] - center[j]
        z, y = _rotated(z, y, entries, plan, width)
        square[:] = 0.0
        for j in range(d):
            part = z[j * width : (j + 1) * width]
            for r in range(width):
                part[r] *= scaling[j]
                square[r] += part[r] * part[r]
        for r in range(rows):
            norm = math.sqrt(square[r])
            if not _ROUGH[0] <= square[r] <= _ROUGH[1]:
                place = _first_not_finite(X[first + r])
                if place >= 0:
                    return (first + r) * d + place
                alone = _cut(X[first + r], center)
                alone, _ = _rotated(alone, np.zeros(d), entries, plan, 1)
                for j in range(d):
                    alone[j] *= scaling[j]
                place = _first_nan(alone)
                if place >= 0:
                    return (first + r) * d + place
                norm = _careful_norm(alone)
                for j in range(d):
                    z[j * width + r] = alone[j]
            factor[r] = target / max(norm, clip_norm)
            clipped[0] += norm > clip_norm
        for j in range(d):
            part, whole = z[j * width : (j + 1) * width], 0.0
            for r in range(width):
                whole += np.trunc(part[r] * factor[r])
            integers[j] += whole
        if (first + width) % _FLUSH == 0:
            _flush(integers, total)
    _flush(integers, total)
    return -1


@compiled()
def rotate(X: Array, entries: Array, plan: NDArray[np.int64]) -> Array:
    """Return the product U x for each row x of `X`, shape (n, d), where U is the matrix of a basis.

    `entries` and `plan`, the results of `egm._basis.Basis.plan`, define U. The product for a row is the same, bit for
    bit, wherever the row is in `X`; BLAS would not ensure this.
    """
    n, d = X.shape
    width = _at_a_time(d)
    found, z, y = np.empty((n, d)), np.zeros(d * width), np.zeros(d * width)
    for first in range(0, n, width):
        rows = min(width, n - first)
        for r in range(rows):
            for j in range(d):
                z[j * width + r] = X[first + r, j]
        z, y = _rotated(z, y, entries, plan, width)
        for r in range(rows):
            for j in range(d):
                found[first + r, j] = z[j * width + r]
    return found


@compiled()
def _rotated(z: Array, y: Array, entries: Array, plan: NDArray[np.int64], width: int) -> tuple[Array, Array]:
    """Multiply `width` rows by the matrix of a basis; return `z` and `y`, first the one that holds the products.

    The vector `z` holds a matrix (d, width) in C order, whose columns are the rows. The vector `y` has the same size,
    and is for intermediate results. Both vectors are overwritten. At the end one of them holds the products, in the
    order in which `z` held the rows. `entries` and `plan` are the results of `egm._basis.Basis.plan`.
    """
    done = 0
    for step in range(plan.shape[0]):
        before, m, after = plan[step]
        run = after * width
        for o in range(before):
            base = o * m * run
            for i in range(0, m - 1, 2):
                _two_sums(z, y, entries[done + i * m : done + (i + 2) * m], base, i * run, m, run)
            if m % 2:
                _one_sum(z, y, entries[done + (m - 1) * m : done + m * m], base, (m - 1) * run, m, run)
        z, y = y, z
        done += m * m
    return z, y


@compiled()
def _two_sums(z: Array, y: Array, weights: Array, base: int, place: int, m: int, run: int) -> None:
    """Compute two weighted sums of the same `m` vectors, and write both results into `y`, one after the other.

    The vectors, of `run` entries each, follow each other in `z` from the index `base`. `weights` has the m weights of
    the first sum, and then those of the second. The results begin at the index `base` + `place` of `y`.
    """
    first, second = y[base + place : base + place + run], y[base + place + run : base + place + 2 * run]
    first[:] = 0.0
    second[:] = 0.0
    k = 0
    while k + 4 <= m:
        a0, a1, a2, a3 = weights[k], weights[k + 1], weights[k + 2], weights[k + 3]
        b0, b1, b2, b3 = weights[m + k], weights[m + k + 1], weights[m + k + 2], weights[m + k + 3]
        start = base + k * run
        z0, z1 = z[start : start + run], z[start + run : start + 2 * run]
        z2, z3 = z[start + 2 * run : start + 3 * run], z[start + 3 * run : start + 4 * run]
        for r in range(run):
            first[r] = (((first[r] + a0 * z0[r]) + a1 * z1[r]) + a2 * z2[r]) + a3 * z3[r]
            second[r] = (((second[r] + b0 * z0[r]) + b1 * z1[r]) + b2 * z2[r]) + b3 * z3[r]
        k += 4
    while k < m:
        z0 = z[base + k * run : base + (k + 1) * run]
        for r in range(run):
            first[r] += weights[k] * z0[r]
            second[r] += weights[m + k] * z0[r]
        k += 1


@compiled()
def _one_sum(z: Array, y: Array, weights: Array, base: int, place: int, m: int, run: int) -> None:
    """Compute the sum of `m` vectors with the m weights `weights`, and write the result into `y`.

    The vectors, of `run` entries each, follow each other in `z` from the index `base`. The result begins at the index
    `base` + `place` of `y`. If `_rotated` needs an odd number of sums, this function computes the last one.
    """
    out = y[base + place : base + place + run]
    out[:] = 0.0
    for k in range(m):
        z0 = z[base + k * run : base + (k + 1) * run]
        for r in range(run):
            out[r] += weights[k] * z0[r]


@compiled()
def _cut(row: Array, center: Array) -> Array:
    """Return `row` minus `center`, with entries beyond 1e290 in size replaced by 1e290 with the sign of the entry."""
    found = np.empty(row.size)
    for j in range(row.size):
        found[j] = min(max(row[j] - center[j], -FAR), FAR)
    return found
