"""Define `Unseen`: bounds on what clipping removes from the sum, even if a few rows are far from the others."""

from __future__ import annotations

from typing import NamedTuple

from egm._types import Array, Floats

__all__ = ["Unseen"]


class Unseen(NamedTuple):
    """Bound how far clipping may change each of the d entries of the sum, if all rows are in the declared ranges.

    Each attribute is an array of the shape (2, d). Its first row is for the lower ends of confidence intervals of the
    sum: it is about what clipping removes from values below the center. Its second row, about values above the center,
    is for the upper ends.

    - `most`: upper bound of the change, computed from noisy numbers of long rows.
    - `std`: standard deviation of the noise in `most`.
    - `square`: upper estimate of the sum, over all rows, of the squares of what clipping removes from each row. To
      allow for noise, two standard deviations are added to each noisy number of long rows.
    """

    most: Array
    std: Array
    square: Array

    def times(self, half: Floats) -> Unseen:
        """Return these bounds on what clipping removes from a sum, if each column is multiplied by `half`.

        `half` is a number or an array of the shape (d,).
        """
        return Unseen(half * self.most, half * self.std, half**2 * self.square)
