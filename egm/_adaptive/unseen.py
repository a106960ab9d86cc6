"""Define `Unseen`, which has bounds on what clipping takes from the sum, even if a few rows are far from the others."""

from __future__ import annotations

from typing import NamedTuple

from egm._types import Array, Floats

__all__ = ["Unseen"]


class Unseen(NamedTuple):
    """Bound how far clipping may change each of the d entries of the sum, if all rows are in the declared ranges.

    Each attribute is an array of the shape (2, d). Its first row is about what clipping takes from values below the
    center, for the lower ends of confidence intervals of the sum. Its second row is about values above the center, for
    the upper ends. `most` is an upper bound of the change, computed from noisy numbers of long rows, and `std` is the
    standard deviation of its noise. `square` is an upper estimate of the sum, over all rows, of the squares of what
    clipping takes from each row; to allow for noise, it is computed from numbers of long rows that are two standard
    deviations larger than the noisy ones.
    """

    most: Array
    std: Array
    square: Array

    def times(self, half: Floats) -> Unseen:
        """Return these bounds on what clipping takes from a sum, for the case that each column is multiplied by `half`.

        `half` is a number or an array of the shape (d,).
        """
        return Unseen(half * self.most, half * self.std, half**2 * self.square)
