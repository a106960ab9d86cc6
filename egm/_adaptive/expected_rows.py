"""Answer the queries of the search in `egm.adaptive` as expected for normal rows, to forecast a release without data.

The rows are assumed to be normal with mean mu and standard deviations sigma. The answer to each query is the
expected one for such rows. Only the mean of the rows and their second moments are answered wrongly on purpose: each
entry of the mean is off by the root of its mean squared error, and the moments have noise. So the search runs as it
would with data, and ends with the forecast that a release would have.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr

from egm._adaptive import pairs
from egm._adaptive.private_rows import Account, Intervals, squares_std
from egm._adaptive.radial import Radial
from egm._adaptive.search import APART, DIFFERENT
from egm._basis import BasisLike, rotated
from egm._types import Array, Floats

__all__ = ["ExpectedRows"]


_FEWER = 3.0  # standard deviations by which a noisy number of rows may be too small in a forecast


def _excess(z: Array) -> tuple[Array, Array]:
    """Return the means of max(Z - z, 0) and of its square, for a standard normal Z and each number in `z`."""
    z = np.clip(z, -1e150, 1e150)
    with np.errstate(under="ignore"):
        density, tail = np.exp(-z * z / 2) / math.sqrt(2 * math.pi), ndtr(-z)
    return np.maximum(density - z * tail, 0.0), np.maximum((1 + z * z) * tail - z * density, 0.0)


class ExpectedRows:
    """Answer the queries of `PrivateRows` as expected for `n` normal rows with mean `mu` and deviations `sigma`.

    A forecast uses these answers in place of private ones. `sigma` has the standard deviations of the columns. The
    columns are independent unless `covariance` or `along` is given. `covariance` is the covariance matrix of the
    columns. If `along` is given, the coordinates along the basis that is passed to the method `turn` are independent,
    and `along` has their standard deviations. Their columns count as independent unless `covariance` is given, too.

    Each public method except `turn`, `standardize` and `cut` is a query. Its cost, a number rho of zero-concentrated
    differential privacy, is recorded under the name of a step of the search for the center and the spread of the rows.
    All queries together may cost at most the budget `rho`. The attribute `failure` is an upper bound of the probability
    that some answer about real rows would be so wrong that the search fails. The attribute `diameter` is the largest
    change of the sum of vectors of norm at most 1: 2 if a row is replaced, and 1 if a row is added or removed.
    """

    def __init__(
        self,
        n: int,
        rho: float,
        sigma: Array,
        mu: Array,
        covariance: Array | None = None,
        along: Array | None = None,
        diameter: float = 2.0,
    ) -> None:
        self.diameter = diameter
        self.n, self.d, self.account, self.sigma, self.mu = n, sigma.size, Account(rho), sigma, mu
        self.covariance, self.along, self.failure, self.fewest = covariance, along, 0.0, n
        self.count_error = 0.0
        self.columns, self.law = mu, (sigma, covariance)

    def turn(self, basis: BasisLike | None) -> None:
        """Answer all later queries in the coordinates of the rows along `basis`, or in the columns if it is None."""
        self.mu, (self.sigma, self.covariance) = self.columns, self.law
        if basis is None:
            return
        self.mu = basis.forward(self.mu)
        if self.along is None:
            self.covariance = rotated(basis, self._second_moments())
            self.sigma = np.sqrt(np.diag(self.covariance))
        else:
            self.sigma, self.covariance = self.along, None

    def standardize(self, half: float) -> None:
        """Divide the rows by `half`, so that the query `within` cuts the original entries to [-`half`, `half`].

        After this, only the query `within` may be made.
        """
        self.columns = self.columns / half

    def count(self, step: str, rho: float) -> tuple[float, float]:
        """Return the expected number of rows, and the standard deviation of the noise that a private answer would have.

        The privacy cost `rho` (of zero-concentrated differential privacy) is recorded under `step`, the name of a step
        of the search for center and spread. What is left of the budget becomes `account.base`, of which later steps
        take shares.
        """
        self.account.spend(step, rho)
        self.account.base = self.account.left
        std = 1 / math.sqrt(2 * rho)
        self.fewest = max(2, int(self.n - _FEWER * std))
        self.count_error = math.hypot(std, 1.0) / self.n
        return float(self.n), std

    def radius(self, step: str, q: float, intervals: Intervals, rho: float, center: Array, b: Floats) -> float:
        """Return the expected q-quantile of the distances ||b (x - center)|| over the normal rows x.

        `center` is a vector with one entry for each column. `b` is a vector of factors, one for each column, or a
        single factor. The privacy cost `rho` (of zero-concentrated differential privacy) is recorded under `step`, the
        name of a step of the search for center and spread.

        A private quantile of real rows is drawn from `intervals`, the pair of arrays that `log_intervals` returns
        (bounds of intervals, and a point in each interval). By chance it can be smaller than all distances, or larger
        than all. An upper bound of the probability of this is added to the attribute `failure`.
        """
        self.account.spend(step, rho)
        self._risk(rho, q, intervals[1].size)
        return self._radial(center, b).quantile(1 - q)

    def spreads(self, step: str, intervals: Intervals, rho: float, center: Array) -> Array:
        """Return an approximation of the expected median of |x_j - center_j| over the normal rows x, for each column j.

        The approximation is 0.6745 times the root mean square of x_j - center_j. `center` is a vector with one entry
        for each column, and the result has the same shape. The privacy cost `rho` (of zero-concentrated differential
        privacy) of all medians together is recorded under `step`, the name of a step of the search for center and
        spread.

        A private median of real rows is drawn from `intervals`, the pair of arrays that `log_intervals` returns (bounds
        of intervals, and a point in each interval). By chance it can be smaller than |x_j - center_j| for all rows, or
        larger for all rows. An upper bound of the probability that this happens in some column is added to the
        attribute `failure`.
        """
        self.account.spend(step, rho)
        self._risk(rho / self.d, 0.5, self.d * intervals[1].size)
        return 0.6745 * np.hypot(self.sigma, self.mu - center)

    def mean(self, step: str, center: Array, b: Array, clip_norm: float, rho: float) -> tuple[Array, float]:
        """Return a typical noisy mean of the clipped vectors b (x - center), and the standard deviation of its noise.

        The vectors are those of the normal rows x; `center` and the factors `b` have one entry for each column.
        Clipping shortens a vector that is longer than `clip_norm` to this norm. Entry j of the first result is entry j
        of the expected mean without clipping, minus the root mean squared error of the entry due to noise and clipping.
        So the entry is wrong by a typical amount.

        The privacy cost `rho` (of zero-concentrated differential privacy) is recorded under `step`, the name of a step
        of the search for center and spread. Noise in some steps can end the search wrongly, and the probability of this
        is added to the attribute `failure`.

        - Step "locate": the center moves to the rows by several means, and noise may end these moves too early.
        - Step "ranges", before a search in declared ranges: noise alone may end this search in one of two comparisons
          of means.
        """
        self.account.spend(step, rho)
        self.failure += {"locate": APART, "ranges": 2 * DIFFERENT}.get(step, 0.0)
        std = self.diameter / math.sqrt(2 * rho) * clip_norm / self.n
        _, second, share = (float(v[0]) for v in self._radial(center, b).excess(np.array([clip_norm])))
        offset = self.mu - center
        lost = second / np.sum((b * self.sigma) ** 2 + (b * offset) ** 2)
        off = np.sqrt((std / b) ** 2 + (offset * share) ** 2 + (self.sigma**2 + offset**2) * lost / self.n)
        return b * (offset - off), std

    def pairs(
        self, step: str, center: Array, b: Array, clip_norm: float, outer: float, rho: float
    ) -> tuple[Array, float]:
        """Return a typical noisy mean of the two vectors into which each row is divided, and its noise in each entry.

        For a row x, the vector b (x - center) is first clipped to the norm `outer`. If it is longer than `clip_norm`,
        it is divided into two parallel vectors (see `egm._adaptive.pairs`); otherwise the second vector is zero. The
        mean has the shape (2, d). Its first row is the result of the method `mean`. Its second row is the expected mean
        of the second vectors, without noise. The last result is the standard deviation of the noise that a private
        answer would have in each entry. The privacy cost `rho` (of zero-concentrated differential privacy) is recorded
        under `step`, the name of a step of the search for center and spread.
        """
        first, std = self.mean(step, center, b, clip_norm, rho)
        share = self._radial(center, b).removed(clip_norm, outer)[0] / pairs.factor(clip_norm, outer)
        return np.array([first, share * b * (self.mu - center)]), std

    def within(self, step: str, rho: float) -> tuple[Array, float]:
        """Return a typical noisy mean of rows with entries cut to [-1, 1], and the standard deviation of its noise.

        Cutting the entries of single rows is not modeled. Instead, the mean of the uncut rows is cut to [-1, 1]. Then
        the standard deviation of the noise is subtracted from each entry, so that the entry is wrong by a typical
        amount. The privacy cost `rho` (of zero-concentrated differential privacy) is recorded under `step`, the name of
        a step of the search for center and spread.
        """
        self.account.spend(step, rho)
        std = self.diameter * math.sqrt(self.d / (2 * rho)) / self.n
        return np.clip(self.columns, -1.0, 1.0) - std, std

    def cut(self) -> Array:
        """Return by how much the sums of the columns change if all entries of normal rows are cut to [-1, 1].

        The result has the root of the expected square of this change, for each column.
        """
        (below, square), (above, other) = (_excess((1 + side * self.columns) / self.law[0]) for side in (1, -1))
        mean = below - above
        root: Array = self.law[0] * np.sqrt(self.n * np.maximum(square + other - mean**2, 0.0) + (self.n * mean) ** 2)
        return root

    def squares(self, step: str, center: Array, spread: Array, rho: float, heavy: float = 1.0) -> tuple[Array, float]:
        """Return the expected mean of ((x - center) / spread)**2 over the rows x, and how noisy a private answer is.

        `center` and `spread` have one entry for each column, and so has the mean, which has no noise in it. The second
        result is the standard deviation of the noise that a private answer would have in each entry. In a private
        answer, what one row can add is limited by bounds that suit normal rows, multiplied by `heavy`. So the noise is
        proportional to `heavy`. The privacy cost `rho` (of zero-concentrated differential privacy) is recorded under
        `step`, the name of a step of the search for center and spread.
        """
        self.account.spend(step, rho)
        std = squares_std(self.n, self.d, rho, self.diameter) * heavy
        return (self.sigma**2 + (self.mu - center) ** 2) / spread**2, std

    def products(self, step: str, center: Array, spread: Array, clip_norm: float, rho: float) -> tuple[Array, float]:
        """Return a typical noisy mean of the matrices y y^T over all rows, and the standard deviation of its noise.

        For each row x, the vector y is (x - center) / spread; `center` and `spread` have one entry for each column. No
        rows are read: the result is the expectation for normal rows, plus noise that is drawn with a fixed seed, so
        that equal forecasts have equal results. A private answer shortens y to `clip_norm`, which determines the noise.
        Here y is not shortened. The second result is the standard deviation of the noise on the diagonal. The privacy
        cost `rho` (of zero-concentrated differential privacy) is recorded under `step`, the name of a step of the
        search for center and spread.
        """
        self.account.spend(step, rho)
        covariance = self._second_moments()
        off = (self.mu - center) / spread
        std = clip_norm**2 / math.sqrt(rho) / self.n
        noise = np.random.default_rng(0).normal(0.0, std / 2, (self.d, self.d))
        return covariance / spread / spread[:, None] + np.outer(off, off) + noise + noise.T, std

    def shells(self, step: str, center: Array, b: Array, edges: Array, rho: float) -> tuple[Array, float]:
        """Return the expected numbers of rows in ranges of distances from `center`, and how noisy private answers are.

        The distance of a normal row x is ||b (x - center)||. Entry i of the first result is the expected number of rows
        with a distance from edges[i] to the next entry of the ascending vector `edges` or, for the last i, above the
        last edge. These numbers have no noise in them. `center` and the factors `b` have one entry for each column. The
        second result is the standard deviation of the noise that a private answer would have in each number. The
        privacy cost `rho` (of zero-concentrated differential privacy) is recorded under `step`, the name of a step of
        the search for center and spread.
        """
        self.account.spend(step, rho)
        beyond = self.n * np.append(self._radial(center, b).tail(edges), 0.0)
        return -np.diff(beyond), min(self.diameter, math.sqrt(2)) / math.sqrt(2 * rho)

    def longer(self, step: str, center: Array, b: Array, length: float, rho: float) -> tuple[float, float]:
        """Return the expected number of rows x with ||b (x - center)|| > length, and how noisy a private answer is.

        The expected number has no noise in it. The second result is the standard deviation of the noise that a private
        answer would have. `center` and the factors `b` have one entry for each column, and `length` is a number. The
        privacy cost `rho` (of zero-concentrated differential privacy) is recorded under `step`, the name of a step of
        the search for center and spread.
        """
        self.account.spend(step, rho)
        return self.n * float(self._radial(center, b).tail(length)), 1 / math.sqrt(2 * rho)

    def _second_moments(self) -> Array:
        """Return the covariance matrix of the normal rows, shape (d, d), in the coordinates that were set by `turn`."""
        return np.diag(self.sigma**2) if self.covariance is None else self.covariance

    def _radial(self, center: Array, b: Floats) -> Radial:
        """Return a `Radial`, an approximation of the distribution of ||b (x - center)|| for the normal rows x.

        `center` has one entry for each column, and `b` has one factor for each column or is a single factor.
        """
        if self.covariance is None:
            return Radial(self.sigma, self.mu - center, np.broadcast_to(b, self.d))
        scaling = np.broadcast_to(b, self.d)
        weights, vectors = np.linalg.eigh(scaling[:, None] * self.covariance * scaling)
        spread = np.sqrt(np.maximum(weights, 0.0))
        return Radial(spread, vectors.T @ (scaling * (self.mu - center)), np.ones(self.d))

    def _risk(self, rho: float, q: float, intervals: int) -> None:
        """Add to `failure` a bound of the probability that a private q-quantile of n numbers is outside their range.

        The n numbers, one for each row, are the distances that the method `radius` defines, or the absolute differences
        that `spreads` defines. The private quantile is drawn at random. So it can be smaller than the smallest of the
        numbers, or larger than the largest, and the search may fail. `rho` is the cost of one quantile, and `intervals`
        the number of intervals from which it is drawn. For several quantiles, each of cost `rho`, `intervals` is the
        total number of their intervals.
        """
        self.failure += intervals * math.exp(-math.sqrt(8 * rho) * self.n * min(q, 1 - q) / 2)
