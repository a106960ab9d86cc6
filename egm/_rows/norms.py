"""Compute the norms of the rows of a matrix, and shorten rows to a given norm.

Sums of clipped rows do not use this module: `egm._rows.kernel` computes norms and clips rows while it adds them up,
without a copy of the matrix. `egm.study.rivals` has its own function for norms: its published errors depend, in their
last digits, on the order in which squares are added.
"""

from __future__ import annotations

import numpy as np

from egm._types import Array

__all__ = ["clip", "norms"]


def norms(rows: Array) -> Array:
    """Return the Euclidean norm of each row, shape (n,), of the matrix `rows`, shape (n, d).

    The squares of the entries may overflow or underflow.
    """
    longest = np.max(np.abs(rows), axis=1)
    unit = np.where(longest > 0, longest, 1.0)
    return unit * np.sqrt(np.einsum("ij,ij->i", rows / unit[:, None], rows / unit[:, None]))


def clip(rows: Array, clip_norm: float) -> Array:
    """Return a copy of the matrix `rows`, shape (n, d), in which every row longer than `clip_norm` has this norm.

    Such a row is shortened, and all other rows are unchanged.
    """
    return rows * (clip_norm / np.maximum(norms(rows), clip_norm))[:, None]
