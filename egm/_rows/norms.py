"""Compute the norms of the rows of a matrix, and shorten rows to a norm.

Sums of clipped rows do not use this module: `egm._rows.kernel` computes norms and clips while it adds up rows, without
a copy of them. The published errors in `egm.study.rivals` depend in their last digits on the order in which squares are
added, so that module has a function of its own.
"""

from __future__ import annotations

import numpy as np

from egm._types import Array

__all__ = ["clip", "norms"]


def norms(rows: Array) -> Array:
    """Return the Euclidean norms of the rows (n, d), also of rows so long that their squares overflow: shape (n,)."""
    longest = np.max(np.abs(rows), axis=1)
    unit = np.where(longest > 0, longest, 1.0)
    return unit * np.sqrt(np.einsum("ij,ij->i", rows / unit[:, None], rows / unit[:, None]))


def clip(rows: Array, clip_norm: float) -> Array:
    """Return the rows (n, d) in a new array, where rows longer than clip_norm are shortened to it."""
    return rows * (clip_norm / np.maximum(norms(rows), clip_norm))[:, None]
