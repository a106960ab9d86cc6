"""Correct a sum of clipped rows by a noisy sum of what clipping removes from them.

What clipping removes from a row is called its clipped part. If the rows lie symmetrically around the center, the
clipped parts cancel in their sum. If one column is skewed, they do not, and the sum of the clipped rows is wrong in
this column. So a second sum is released, too (see `egm._adaptive.pairs`): the sum of what clipping removes from the
rows, each of which is first clipped to a larger norm.

The noise in this second sum is about as large as that in the sum of the clipped rows. So a column is corrected by its
whole noisy sum only if this sum is clearly more than noise. If the noisy sums of the other columns are together larger
than noise explains, each of these columns is corrected by the same share of its noisy sum. By chance, the clipped parts
of normal rows do not cancel exactly, and so each column is corrected at least by the share that is best for normal
rows. To add the whole noisy sum in all columns has the effect of clipping to the larger norm. This is done if it has a
smaller expected error than the shares.
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
_EXPLAINED = 2.0  # standard deviations of clipped parts that cancel, but for chance
_PUSHED = 2.0  # the other columns are corrected if their squared norm is too large by so many standard deviations
# Expected clipped parts beyond the larger clip norm, over those found below it: first in a column that is corrected by
# itself, then in the other columns.
_FURTHER = 0.6, 0.2
_AT_MOST = 1.5, 1.0  # upper estimate of this ratio, in the same order: that of lognormal columns is large


@dataclass(frozen=True)
class Correction:
    """Describe how the sum of clipped rows is corrected by a noisy sum of what clipping removes from the rows.

    All attributes but the number `missed` are vectors, with an entry for each column or, along a basis, for each
    coordinate. All but `kept` are in the units of the sum; `missed` is in their squares.

    - `parts`: noisy sum of what clipping removes from the rows, each of which is first clipped to a second, larger
      norm.
    - `noise`: standard deviations of the noise in `parts`.
    - `kept`: numbers between 0 and 1. The vector `kept` * `parts` is added to the sum of the clipped rows.
    - `missed`: estimate of the squared norm that the vector (1 - `kept`) * `parts`, which is not added, would have
      without noise.
    - `beyond`: expected amount that clipping to the larger norm removes, which is not measured.
    - `hidden`: upper estimate of `beyond`.
    """

    parts: Array
    noise: Array
    kept: Array
    missed: float
    beyond: Array
    hidden: Array

    @property
    def added(self) -> Array:
        """Return the vector that is added to the sum of the clipped rows, to correct what clipping removes."""
        return self.kept * self.parts

    @property
    def std(self) -> Array:
        """Return the standard deviations of the noise in the vector that is added to the sum of the clipped rows."""
        return self.kept * self.noise

    @property
    def rest(self) -> Array:
        """Return (1 - `kept`) * `parts`, the part of `parts` that is not added to the sum of the clipped rows.

        `parts` is the noisy sum of what clipping removes. Its other part is added, to correct the sum of the clipped
        rows.
        """
        return (1 - self.kept) * self.parts

    @property
    def unknown(self) -> Array:
        """Return how much noise each entry of the corrected sum would gain if all of `parts` were added to it.

        `parts` is the noisy sum of what clipping removes, and the corrected sum contains only a share of it. The gain
        is the square root of the increase of the variance.
        """
        return np.sqrt(1 - self.kept**2) * self.noise


def correct(parts: Array, noise: Array, chance: Array, beyond: float = 1.0) -> Correction:
    """Choose which share of a noisy sum of what clipping removes is added to each entry of the sum of the clipped rows.

    The vector `parts` is the noisy sum of what clipping removes from the rows, each of which is first clipped to a
    second, larger norm. `noise` has the standard deviations of the noise in it. If the rows are normal, and if their
    center is known only approximately, `parts` without noise has the mean 0 and the standard deviations `chance`. Then
    the best share is chance**2 / (chance**2 + noise**2), and no smaller share is chosen.

    An entry of `parts` that is larger than two of the standard deviations in `chance` shows that the column is skewed.
    Then some rows are probably longer than the second clip norm and lose still more, which `parts` does not contain.
    What they lose is estimated as a share of the excess over the two standard deviations, if the second clip norm is
    1.4 times the first one. For another ratio of the norms, the excess is first multiplied by `beyond`: the amount that
    normal rows would lose between the two norms for the ratio 1.4, divided by the amount that they lose for the actual
    ratio. The result, a `Correction`, has the shares that are added, from 0 to 1, and estimates of what is still
    missing.
    """
    deviations = max(_CLEAR[0], math.sqrt(2 * math.log(parts.size)) + _CLEAR[1])
    clear = np.abs(parts) > deviations * noise
    shown, missed = clear.astype(float), 0.0
    if not clear.all():
        more, doubtful = unexplained(parts[~clear], noise[~clear] ** 2, _PUSHED)
        if more > doubtful:  # the share to keep is that of James and Stein
            shown[~clear] = more / (more + float(np.sum(noise[~clear] ** 2)))
            missed = more
    kept = np.maximum(shown, (chance / np.hypot(chance, noise)) ** 2)
    if missed:
        missed *= float(np.mean((1 - kept[~clear]) ** 2))
    skewed = shown * np.maximum(np.abs(parts) - _EXPLAINED * chance, 0.0) * beyond
    further, hidden = (np.where(clear, *ratio) * skewed for ratio in (_FURTHER, _AT_MOST))
    if np.sum((kept * noise) ** 2) + missed > np.sum(noise**2):
        kept, missed = np.ones(parts.size), 0.0
    return Correction(parts, noise, kept, missed, further, hidden)


def unexplained(vector: Array, variances: Array, deviations: float) -> tuple[float, float]:
    """Return the squared norm of `vector` minus its expected value, and the largest difference that chance explains.

    The expected value is that for independent normal entries with the mean 0 and the given `variances`. Chance explains
    a difference of `deviations` standard deviations of the squared norm.
    """
    total = float(np.sum(variances))
    more = float(np.sum(np.clip(vector, -1e150, 1e150) ** 2)) - total
    return more, total * deviations * math.sqrt(2 * np.sum((variances / total) ** 2))
