"""Correct a sum of clipped rows by a noisy sum of what clipping removes from them.

What clipping removes from a row is called its clipped part. If the rows lie symmetrically around the center, the
clipped parts cancel in their sum. If one column is skewed, they do not, and the sum of the clipped rows is wrong in
this column. So a noisy sum of the clipped parts is measured. For this sum, rows are first clipped to a second, larger
norm, so that no clipped part is longer than the difference of the two norms.

The noise in the sum of the clipped parts is several times as large as that in the sum of the rows, because little of
the budget is spent on it. So a column is corrected by its whole noisy sum only if this sum is clearly more than noise.
If the noisy sums of the other columns are together larger than chance explains, each of these columns is corrected by
the same share of its noisy sum. If correcting would cost more error than clipping to the larger norm, rows are clipped
to the larger norm instead, and nothing is corrected.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from egm._types import Array

__all__ = ["Correction", "correct", "unexplained"]

# A column is corrected by itself if it is larger than a number of standard deviations: the first number or, if it is
# larger, sqrt(2 log d), the typical size of the largest of d normal variables, plus the second number.
_CLEAR = 3.0, 0.5
_PUSHED = 2.0  # the other columns are corrected if their squared norm is too large by so many standard deviations
# Expected clipped parts beyond the larger clip norm, over those found below it: first in a column that is corrected by
# itself, then in the other columns.
_FURTHER = 0.6, 0.2
_AT_MOST = 1.5, 1.0  # upper estimate of this ratio, in the same order: that of lognormal columns is large


@dataclass(frozen=True)
class Correction:
    """Describe how a sum of clipped rows is corrected.

    If a correction would be too noisy, `larger` is true: rows are to be clipped to a larger norm, and nothing is
    corrected. All other attributes are vectors in the units of the sum, with an entry for each column or, along a
    basis, for each coordinate. `added` is to be added to the sum of the clipped rows, and `std` is the standard
    deviation of the noise in it. The corrected sum is still wrong by an unknown vector. For a forecast, `left` has the
    expected root mean square of each entry of this vector. For intervals, `rest` is a noisy estimate of the vector:
    what was measured and is not added. `unknown` is the standard deviation of the noise in `rest`. `hidden` is an upper
    estimate of what was not measured, because clipping to the larger norm removes it.
    """

    larger: bool
    added: Array
    std: Array
    left: Array
    rest: Array
    hidden: Array
    unknown: Array


def correct(parts: Array, variance: Array, chance: Array, noise: Array, ratio: float) -> Correction:
    """Choose which columns of a sum of clipped rows to correct, or a larger clip norm; return it as a `Correction`.

    The larger clip norm is chosen if it costs less error. The vector `parts` is the noisy sum of what clipping removes,
    and `variance` has the variances of its noise. `chance` has the variances that the entries of `parts` would have if
    the rows lay symmetrically around a center that is not exactly known. `noise` has the standard deviations of the
    noise in the sum of the clipped rows. The larger clip norm is `ratio` times the one to which the rows are clipped.
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
    beyond, at_most = (np.where(clear, *ratio) * further for ratio in (_FURTHER, _AT_MOST))
    if np.sum(kept**2 * variance) + rest > (ratio**2 - 1) * np.sum(noise**2):
        nothing = np.zeros(parts.size)
        return Correction(True, nothing, nothing, beyond, nothing, at_most, nothing)
    left = np.hypot(np.where(small, math.sqrt(rest / max(int(small.sum()), 1)), 0.0), beyond)
    unknown = np.sqrt((1 - kept**2) * variance)
    return Correction(False, kept * parts, kept * np.sqrt(variance), left, (1 - kept) * parts, at_most, unknown)


def unexplained(vector: Array, variances: Array, deviations: float, share: float = 0.0) -> tuple[float, float]:
    """Return the squared norm of `vector` minus its expected value, and the largest difference that chance explains.

    The expected value is that for independent normal entries with the mean 0 and the given `variances`. Chance explains
    a difference of `deviations` standard deviations of the squared norm, plus `share` times its expected value.
    """
    total = float(np.sum(variances))
    more = float(np.sum(np.clip(vector, -1e150, 1e150) ** 2)) - total
    return more, total * (deviations * math.sqrt(2 * np.sum((variances / total) ** 2)) + share)
