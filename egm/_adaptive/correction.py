"""Correct a sum of clipped rows by a noisy sum of what clipping removes from them.

What clipping removes from a row is called its clipped part. If the law of the rows is symmetric around the center, the
clipped parts cancel in their sum. If one column is skewed, they do not, and the sum of the clipped rows is wrong in
this column. So the sum of the clipped parts is measured, as far as they are below a second, larger clip norm.

The noise in this sum is several times as large as that in the sum of the rows, because little of the budget is spent
on it. So the sum is corrected only in those columns where the clipped parts are clearly more than noise. If that would
add more noise than clipping to the larger norm, rows are clipped to the larger norm, and nothing is corrected.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from egm._types import Array

__all__ = ["Correction", "correct", "unexplained"]

_CLEAR = 3.0, 0.5  # standard deviations by which a single column is clearly more than noise: at least; more than the
# largest of d normal variables has
_PUSHED = 2.0  # standard deviations by which their squared length in all other columns is too large
_LEVEL = 2.0  # standard deviations of noise in an interval
_FURTHER = 0.6, 0.2  # expected clipped parts beyond the larger clip norm, over those found below: clearly, together


@dataclass(frozen=True)
class Correction:
    """Describe how a sum of clipped rows is corrected.

    `larger` is true if the rows are to be clipped to the larger norm. All other attributes are vectors in the units of
    the sum, with an entry for each column. `added` is to be added to the sum of the clipped rows, and `std` is the
    standard deviation of its noise. The corrected sum is still wrong by an unknown vector: `left` has the root mean
    square that is expected of each entry, and `hidden` is an upper estimate of its absolute value.
    """

    larger: bool
    added: Array
    std: Array
    left: Array
    hidden: Array


def correct(parts: Array, variance: Array, chance: Array, noise: Array, ratio: float) -> Correction:
    """Choose the `Correction` of least expected squared error.

    The vector `parts` is the noisy sum of the clipped parts, and `variance` has the variances of its noise. `chance`
    has the variances that the entries of `parts` would have for rows with a symmetric law, whose center is not exactly
    known. `noise` has the standard deviations of the noise in the sum of the clipped rows. The larger clip norm is
    `ratio` times the other.
    """
    deviations = max(_CLEAR[0], math.sqrt(2 * math.log(parts.size)) + _CLEAR[1])
    clear = np.abs(parts) > deviations * np.sqrt(chance)
    kept, small, rest = clear.astype(float), ~clear, 0.0
    if small.any():
        more, doubtful = unexplained(parts[small], chance[small], _PUSHED)
        if more > doubtful:  # the share to keep is that of James and Stein
            kept[small] = share = more / (more + float(np.sum(chance[small])))
            rest = (1 - share) ** 2 * more
    further = kept * np.abs(parts)
    beyond = np.where(clear, *_FURTHER) * further
    if np.sum(kept**2 * variance) + rest > (ratio**2 - 1) * np.sum(noise**2):
        nothing = np.zeros(parts.size)
        return Correction(True, nothing, nothing, beyond, further)
    left = np.hypot(math.sqrt(rest / parts.size), beyond)
    unknown = _LEVEL * (np.sqrt(noise**2 + variance) - np.sqrt(noise**2 + kept**2 * variance))
    hidden = (1 - kept) * np.abs(parts) + unknown + further
    return Correction(False, kept * parts, kept * np.sqrt(variance), left, hidden)


def unexplained(vector: Array, variances: Array, deviations: float, share: float = 0.0) -> tuple[float, float]:
    """Return the squared norm of `vector` less its expected value, and the largest such difference due to chance.

    `variances` has the variances of the entries, whose means are 0 if there is only chance. Chance explains
    `deviations` standard deviations of the squared norm, and `share` of its expected value.
    """
    total = float(np.sum(variances))
    more = float(np.sum(np.clip(vector, -1e150, 1e150) ** 2)) - total
    return more, total * (deviations * math.sqrt(2 * np.sum((variances / total) ** 2)) + share)
