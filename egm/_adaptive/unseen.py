"""Hold bounds on what clipping takes from the sum of the rows, found by noisy counts of long rows."""

from __future__ import annotations

from typing import NamedTuple

from egm._types import Array, Floats

__all__ = ["Unseen"]


class Unseen(NamedTuple):
    """Bound what clipping takes from each entry of the sum, for all rows in the declared ranges.

    Each array has shape (2, d). Its first row is for the lower ends of the confidence intervals of the d entries, and
    its second for the upper ends. `most` estimates, without bias, a number that is at least what clipping takes. `std`
    is the standard deviation of the noise in this estimate. `square` is an upper estimate of the sum of the squares of
    what clipping takes from the rows, in which two standard deviations of the noise are added to each noisy number of
    long rows.
    """

    most: Array
    std: Array
    square: Array

    def times(self, half: Floats) -> Unseen:
        """Return the bounds for columns that are multiplied by `half`, which is a number or an array of shape (d,)."""
        return Unseen(half * self.most, half * self.std, half**2 * self.square)
