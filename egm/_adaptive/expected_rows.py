"""Answer the questions of the search as expected for normal rows, so that a release can be forecast without data.

The rows are assumed to be normal with mean mu and standard deviations sigma. The answer to each question is the one
that is expected for such rows. Only the answer for a mean is wrong on purpose: by the root of its mean squared error.
So the search runs as it would with data, and the forecast at its end is the one that a release would have.
"""

from __future__ import annotations

import math

import numpy as np

from egm._adaptive.private_rows import Account, Intervals
from egm._adaptive.radial import Radial
from egm._adaptive.search import APART
from egm._types import Array, Floats

__all__ = ["ExpectedRows"]


class ExpectedRows:
    """Model n normal rows with mean mu and standard deviations sigma; it takes the place of `PrivateRows`.

    The attribute `failure` bounds the probability that an answer about real rows would be so wrong that the search
    fails.
    """

    def __init__(self, n: int, rho: float, sigma: Array, mu: Array) -> None:
        self.n, self.d, self.account, self.sigma, self.mu = n, sigma.size, Account(rho), sigma, mu
        self.failure = 0.0

    def radius(self, step: str, q: float, intervals: Intervals, rho: float, center: Array, b: Floats) -> float:
        """Return the expected q-quantile of the distances ||b (x - center)|| of the rows.

        The probability that a real answer lies below or above all rows is added to `failure`.
        """
        self.account.spend(step, rho)
        self._risk(rho, q, intervals[1].size)
        return self._radial(center, b).quantile(1 - q)

    def spreads(self, step: str, intervals: Intervals, rho: float, center: Array) -> Array:
        """Return approximately the median of |x_j - center_j| for each column j."""
        self.account.spend(step, rho)
        self._risk(rho / self.d, 0.5, self.d * intervals[1].size)
        return 0.6745 * np.hypot(self.sigma, self.mu - center)

    def mean(self, step: str, center: Array, b: Array, clip_norm: float, rho: float) -> tuple[Array, float]:
        """Return a typical noisy mean of the clipped rows b (x - center), and the standard deviation of its noise.

        It is the true mean of these rows, off by the root of the mean squared error in each entry.
        """
        self.account.spend(step, rho)
        self.failure += APART if step == "locate" else 0.0
        std = math.sqrt(2 / rho) * clip_norm / self.n
        _, second, share = (float(v[0]) for v in self._radial(center, b).excess(np.array([clip_norm])))
        offset = self.mu - center
        lost = second / np.sum((b * self.sigma) ** 2 + (b * offset) ** 2)
        off = np.sqrt((std / b) ** 2 + (offset * share) ** 2 + (self.sigma**2 + offset**2) * lost / self.n)
        return b * (offset - off), std

    def squares(self, step: str, center: Array, spread: Array, rho: float) -> tuple[Array, float]:
        """Return the expected mean of ((x - center) / spread)**2, and the standard deviation of its noise."""
        self.account.spend(step, rho)
        std = 1.3 * math.sqrt(3 * self.d / rho) / self.n
        return (self.sigma**2 + (self.mu - center) ** 2) / spread**2, std

    def shells(self, step: str, center: Array, b: Array, edges: Array, rho: float) -> tuple[Array, float]:
        """Return the expected number of rows from each edge to the next, and the standard deviation of its noise.

        A row is between two edges if its distance ||b (x - center)|| is.
        """
        self.account.spend(step, rho)
        beyond = self.n * np.append(self._radial(center, b).tail(edges), 0.0)
        return -np.diff(beyond), 1 / math.sqrt(rho)

    def longer(self, step: str, center: Array, b: Array, length: float, rho: float) -> tuple[float, float]:
        """Return the expected number of rows at a distance above `length`, and the standard deviation of its noise."""
        self.account.spend(step, rho)
        return self.n * float(self._radial(center, b).tail(length)), 1 / math.sqrt(2 * rho)

    def _radial(self, center: Array, b: Floats) -> Radial:
        """Return the model of the distances ||b (x - center)|| of the rows."""
        return Radial(self.sigma, self.mu - center, np.broadcast_to(b, self.d))

    def _risk(self, rho: float, q: float, intervals: int) -> None:
        """Add to `failure` a bound of the probability that a private q-quantile lies below or above all rows."""
        self.failure += intervals * math.exp(-math.sqrt(8 * rho) * self.n * min(q, 1 - q) / 2)
