"""Answer the questions of a search as normal rows are expected to, so that a release is forecast without data.

The rows are N(mu, diag(sigma**2)). Each answer is its expectation, but the answer for a mean is off by the root of its
mean squared error. So the search runs as it would with data, and the forecast that it ends with is that of a release.
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
    """Model n rows of N(mu, diag(sigma**2)).

    `failure` bounds the probability that an answer about real rows would be wrong enough to matter.
    """

    def __init__(self, n: int, rho: float, sigma: Array, mu: Array) -> None:
        self.n, self.d, self.account, self.sigma, self.mu = n, sigma.size, Account(rho), sigma, mu
        self.failure = 0.0

    def radius(self, step: str, q: float, intervals: Intervals, rho: float, center: Array, b: Floats) -> float:
        """Return the q-quantile of the distances. A real answer is wrong if it is beyond all rows."""
        self.account.spend(step, rho)
        self._risk(rho, q, intervals[1].size)
        return self._radial(center, b).quantile(1 - q)

    def spreads(self, step: str, intervals: Intervals, rho: float, center: Array) -> Array:
        """Return the medians of |x_j - center_j|, approximately."""
        self.account.spend(step, rho)
        self._risk(rho / self.d, 0.5, self.d * intervals[1].size)
        return 0.6745 * np.hypot(self.sigma, self.mu - center)

    def mean(self, step: str, center: Array, b: Array, clip_norm: float, rho: float) -> tuple[Array, float]:
        """Return a mean that is off by the root of its mean squared error, and the noise's standard deviation."""
        self.account.spend(step, rho)
        self.failure += APART if step == "locate" else 0.0
        std = math.sqrt(2 / rho) * clip_norm / self.n
        _, second, share = (float(v[0]) for v in self._radial(center, b).excess(np.array([clip_norm])))
        offset = self.mu - center
        lost = second / np.sum((b * self.sigma) ** 2 + (b * offset) ** 2)
        off = np.sqrt((std / b) ** 2 + (offset * share) ** 2 + (self.sigma**2 + offset**2) * lost / self.n)
        return b * (offset - off), std

    def squares(self, step: str, center: Array, spread: Array, rho: float) -> tuple[Array, float]:
        """Return the expected mean of the squares, and the noise's standard deviation."""
        self.account.spend(step, rho)
        std = 1.3 * math.sqrt(3 * self.d / rho) / self.n
        return (self.sigma**2 + (self.mu - center) ** 2) / spread**2, std

    def shells(self, step: str, center: Array, b: Array, edges: Array, rho: float) -> tuple[Array, float]:
        """Return the expected numbers of rows in shells, and the noise's standard deviation."""
        self.account.spend(step, rho)
        beyond = self.n * np.append(self._radial(center, b).tail(edges), 0.0)
        return -np.diff(beyond), 1 / math.sqrt(rho)

    def longer(self, step: str, center: Array, b: Array, length: float, rho: float) -> tuple[float, float]:
        """Return the expected number of longer rows, and the noise's standard deviation."""
        self.account.spend(step, rho)
        return self.n * float(self._radial(center, b).tail(length)), 1 / math.sqrt(2 * rho)

    def _radial(self, center: Array, b: Floats) -> Radial:
        """Return the model of the distances from the center."""
        return Radial(self.sigma, self.mu - center, np.broadcast_to(b, self.d))

    def _risk(self, rho: float, q: float, intervals: int) -> None:
        """Add to `failure` the probability that a quantile is below or above all rows."""
        self.failure += intervals * math.exp(-math.sqrt(8 * rho) * self.n * min(q, 1 - q) / 2)
