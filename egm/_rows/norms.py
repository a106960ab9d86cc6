"""Compute the norms of the rows of a matrix, and shorten rows to a given norm.

Sums of clipped rows do not use this module: `egm._rows.kernel` computes norms and clips rows while it adds them up,
without a copy of the matrix. `egm.study.rivals` has its own function for norms: its published errors depend, in their
last digits, on the order in which squares are added.
"""

from __future__ import annotations

import functools

import numpy as np

from egm._types import Array

__all__ = ["clip", "norms"]

_BUFFER = 8192  # largest number of terms that NumPy adds in a fixed order


def norms(rows: Array) -> Array:
    """Return the Euclidean norm of each row, shape (n,), of the matrix `rows`, shape (n, d).

    The norm is accurate even if the squares of entries would overflow or underflow. Equal rows have norms that are
    equal to the last bit, wherever they are in a matrix. Therefore at most 8192 squares are added at a time: NumPy
    would add more in an order that depends on the number of rows.
    """
    unit, _, lengths = _in_units(rows)
    return unit * lengths


def clip(rows: Array, clip_norm: float) -> Array:
    """Return a copy of the matrix `rows`, shape (n, d), in which rows longer than `clip_norm` are shortened to it.

    The norm of a row may be larger than the largest double.
    """
    unit, scaled, lengths = _in_units(rows)
    limits = clip_norm / np.maximum(lengths, 1.0)  # the norm of a scaled row is at least 1, or 0 for a row of zeros
    return np.where((unit > limits)[:, None], scaled * limits[:, None], rows)


def _in_units(rows: Array) -> tuple[Array, Array, Array]:
    """Divide each row of a matrix by its longest entry in absolute value, or by 1 if the row has only zeros.

    Return these divisors, shape (n,), the divided rows, shape (n, d), and the norms of the divided rows, shape (n,).
    """
    longest = np.max(np.abs(rows), axis=1)
    unit = np.where(longest > 0, longest, 1.0)
    scaled = rows / unit[:, None]
    parts = (scaled[:, start : start + _BUFFER] for start in range(0, rows.shape[1], _BUFFER))
    squares = functools.reduce(np.add, (np.einsum("ij,ij->i", part, part) for part in parts))
    return unit, scaled, np.sqrt(squares)
