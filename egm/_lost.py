"""Compute the error that clipping causes in each coordinate of one normal row."""

from __future__ import annotations

import numpy as np

from egm import gx2
from egm._types import Array, Target

__all__ = ["CERTAIN", "lost_of_a_row"]

CERTAIN = 1e10  # mean, in standard deviations, of a coordinate that is nearly constant


def lost_of_a_row(
    target: Target, sigma: Array, scaling: Array, clip_norm: float, offset: Array, copies: Array, factors: Array
) -> tuple[Array, Array]:
    """Compute the variance and the squared mean of the error that clipping causes in each coordinate of one row.

    This is `egm.forecast.loss_of_a_row` for checked arguments; all arrays but `factors` have equal lengths.
    """
    parts = [_lost(factor * sigma, scaling, clip_norm, offset, target, copies) for factor in factors]
    variance, squared_bias = np.mean(parts, axis=0)
    return variance, squared_bias


def _lost(
    sigma: Array, scaling: Array, clip_norm: float, offset: Array, target: Target, copies: Array
) -> tuple[Array, Array]:
    """Compute the results of `lost_of_a_row` for a row whose true standard deviations are equal to `sigma`.

    They are the variance and the squared mean of the error that clipping causes in each coordinate of the row.
    """
    wide = np.maximum(sigma, np.abs(offset) / CERTAIN)  # which changes norms by a relative 1e-20, on average
    spread = scaling * wide
    weights = (spread / np.max(spread)) ** 2
    nc = copies * (offset / wide) ** 2
    first, square, lost_square = np.zeros((3, sigma.size))
    seen = weights > 0  # a coordinate 1e150 times narrower than the widest cannot be seen in the norm
    radius = np.clip(clip_norm / np.max(spread), 1e-150, 1e150) ** 2
    first[seen], square[seen], lost_square[seen] = gx2.clip_moments(radius, weights[seen], copies[seen], nc[seen])
    squared_bias = copies * (offset * first) ** 2
    variance = wide**2 * lost_square - squared_bias
    if target == "population":
        variance += sigma**2 * (copies - 2 * (square - nc * first))
    return np.maximum(variance, 0.0), squared_bias  # a small difference of large numbers may end below zero
