"""Answer the ten queries that a search for the center and spread of private rows may make, and record their costs.

No other module of the search sees the rows. The cost of an answer is recorded before the rows are read, in
zero-concentrated differential privacy (Bun and Steinke 2016). Neighbors are data sets of which one row is replaced or,
if the number of rows is private, of which one row is added or removed. These are the methods of `PrivateRows` and their
costs, where std is the standard deviation of the noise:

    radius, spreads   A quantile of distances (radius), or one for each column (spreads), is drawn from intervals with
                      public bounds by an exponential mechanism. Each costs epsilon**2 / 8 (Cesar and Rogers 2021,
                      Lemma 3.4) for both kinds of neighbors: `egm.quantiles.interval` proves that a score changes by
                      at most one.
    mean, pairs,      A sum of integer vectors gets discrete Gaussian noise. If their norms are at most K, and any two
    squares, within   of them differ by at most D K, this costs D**2 K**2 / (2 std**2) if a row is replaced, and
                      K**2 / (2 std**2) if one is added or removed (Canonne, Kamath and Steinke 2020, Theorem 14).
    products          A sum of matrices w w^T, for integer vectors w of norm at most K, gets discrete Gaussian noise on
                      and above the diagonal, with a variance half as large above it. Two such matrices differ by at
                      most sqrt(2) K**2 in the Frobenius norm, which counts the entries above the diagonal twice. So
                      this costs K**4 / std**2 (the same theorem). From the number of rows, which must be public, K
                      is chosen so small that the sum is exact. So this query is made only if a row is replaced.
    shells            The numbers of rows in ranges of distances cost 1 / std**2 together if a row is replaced, because
                      this changes two of them by one, and 1 / (2 std**2) if a row is added or removed.
    longer            The number of rows beyond a distance costs 1 / (2 std**2): any change of a row changes it by one.
    count             The number of rows costs 1 / (2 std**2) if a row is added or removed. The noisy number then takes
                      the place of n in all that follows, as any released number may (Feldman and Zrnic 2021).

Each query is a sum over the rows of a function of a single row, and so is answered in one pass over blocks of rows
(`egm._rows.passes`). With declared ranges, a row is first standardized: its numbers are mapped to numbers between -1
and 1 if they are in the ranges. The ranges are public, so this is one more function of a single row and costs nothing.
All distances and sums in a query are then those of standardized rows. If the mechanism leaves out rows with missing
entries, this, too, is decided for each row by itself: adding or removing such a row changes no answer.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from egm import quantiles, samplers
from egm._adaptive import pairs
from egm._basis import Basis, BasisLike
from egm._rows import lattice, norms
from egm._rows.passes import Passes
from egm._types import Array, Floats, Whole

__all__ = ["Account", "Intervals", "PrivateRows", "log_intervals", "squares_std"]

Intervals: TypeAlias = tuple[Array, Array]  # the bounds between intervals, and the middle of each interval
Counts: TypeAlias = NDArray[np.int64]

F = TypeVar("F", bound=Callable[..., Any])

_LARGEST = 1e150  # largest entry: longer ones are cut, so that no square overflows
_ROUNDED_DOWN = 1 - 2.0**-50  # factor that takes an epsilon below its exact value, in spite of four roundings
_ROUNDED_UP = 1 + 2.0**-50  # factor that takes a standard deviation above its exact value
_SQUARE = 12.0  # largest square, in units of its expectation
_ROUNDED = 2.0  # least standard deviation for which rounded normal noise is nearly discrete Gaussian noise
_FINE = 1 << 20  # least standard deviation of the noise in a number of rows, in steps of the noise
_EXACT = 53  # bits up to which integers, and sums of them, are doubles without rounding


class Account:
    """Record what each step of a search for center and spread costs; the sum never exceeds the budget `rho`.

    Costs and budget are numbers rho of zero-concentrated differential privacy. The dictionary `spent` has the cost of
    each step by the name of the step. `base` is the budget of which the steps take shares: all of `rho` or, if the
    number of rows was asked for, what is left of `rho` after this query.
    """

    def __init__(self, rho: float) -> None:
        self.rho, self.base, self.spent = rho, rho, dict[str, float]()

    @property
    def left(self) -> float:
        """Return the part of the budget that is not spent yet, rounded down."""
        return max(math.nextafter(-self._above(self.spent), 0.0), 0.0)

    def spend(self, step: str, rho: float) -> None:
        """Add the cost `rho` to what the step named `step` has cost so far.

        Raise a ValueError if `rho` is not > 0, or if the rest of the budget is less than `rho`.
        """
        before = self.spent.get(step, 0.0)
        after = math.nextafter(before + rho, math.inf) if before else rho  # never less than the sum
        if not rho > 0 or self._above({**self.spent, step: after}) > 0:
            raise ValueError(f"rho = {self.rho} is too small: {step} needs {rho:.3g}, and {self.left:.3g} is left")
        self.spent[step] = float(after)

    def _above(self, spent: dict[str, float]) -> float:
        """Return by how much the exact sum of the costs in `spent` exceeds the budget, rounded to the nearest double.

        The sign is exact, because an exact sum of doubles is zero, or not smaller than the least double above zero.
        """
        return math.fsum([-self.rho, *spent.values()])


def log_intervals(low: float, high: float, step: float) -> Intervals:
    """Divide the numbers >= 0 into intervals; return the bounds between the intervals, and one point in each interval.

    The result is a pair of ascending arrays. The first bound is `low`, and the last bound is at least `high`. The ratio
    of each bound to the bound before it is constant, and at most exp(`step`). The point of an interval is its geometric
    middle, with two exceptions: the first interval, which starts at 0, has its upper bound as its point, and the last
    interval, which has no upper bound, has its lower bound.
    """
    pieces = max(1, math.ceil(math.log(high / low) / step))
    bounds = np.geomspace(low, max(high, low * math.exp(step)), pieces + 1)
    return bounds, np.concatenate([bounds[:1], np.sqrt(bounds[1:]) * np.sqrt(bounds[:-1]), bounds[-1:]])


def _squares_norm(d: int) -> float:
    """Return the norm to which the vector of the squares of the `d` entries of a standardized row is clipped.

    For a row of standard normal numbers, the root mean square of the norm of this vector is sqrt(3 d). The result is
    1.3 times as large.
    """
    return 1.3 * math.sqrt(3 * d)


def squares_std(n: int, d: int, rho: float, diameter: float) -> float:
    """Return the standard deviation of the noise in each entry of a mean of squares from `PrivateRows.squares`.

    The mean is over `n` rows of `d` columns and costs `rho`. `diameter` is 2 if a row is replaced, and 1 if a row is
    added or removed (see `PrivateRows`).
    """
    return min(diameter, math.sqrt(2)) * _squares_norm(d) / (n * math.sqrt(2 * rho))


def _unseen(query: F) -> F:
    """Return the method `query`, which reads private rows, as a method that shows no floating-point warnings.

    A warning, such as that of an overflow, could reveal something about a row.
    """

    @functools.wraps(query)
    def asked(*given: Any) -> Any:
        with np.errstate(all="ignore"):
            return query(*given)

    return cast(F, asked)


@dataclass(frozen=True)
class _Coordinates:
    """Map each row to the coordinates in which queries are answered, by a function that depends on public numbers only.

    If `middle` and `half` are given, one number for each column, `middle` is subtracted from a row, and the row is
    divided by `half`. Entries beyond 1e150 in size are cut to this size. With a `basis`, the coordinates along its
    vectors are taken.

    The coordinates of a row are equal to the last bit, whatever the other rows are. If they were not, then rounding
    errors could move other rows from one counted range of distances to the next when one row is removed, and an answer
    would change by more than its recorded cost allows.
    """

    middle: Array | None = None
    half: Array | None = None
    basis: BasisLike | None = None

    @property
    def given(self) -> bool:
        """Return whether queries are answered for the rows as they are, without standardizing them and without a basis.

        Only entries beyond 1e150 in size are cut to this size.
        """
        return self.middle is None and self.basis is None

    def __call__(self, block: Array) -> Array:
        """Return the coordinates of a `block` of rows, in which queries are answered, as a new array of equal shape."""
        if self.middle is not None and self.half is not None:
            block = (block - self.middle) / self.half
        block = np.clip(block, -_LARGEST, _LARGEST)
        if not isinstance(self.basis, Basis):
            return block if self.basis is None else self.basis.forward(block)
        from egm._rows import kernel

        rotated: Array = kernel.rotate(np.ascontiguousarray(block), *self.basis.plan)
        return rotated


def _quietly(
    block: Array, function: Callable[..., Any], coordinates: _Coordinates | None, given: tuple[Any, ...]
) -> Any:
    """Return function(rows, *given) for the coordinates of a `block` of rows, without floating-point warnings.

    If `coordinates` is None, the rows are the block itself. A warning could reveal a single row, and with dask it would
    appear in the log of another process.
    """
    with np.errstate(all="ignore"):
        return function(block if coordinates is None else coordinates(block), *given)


def _distances(rows: Array, center: Array, b: Floats) -> Array:
    """Return the distance ||b (x - center)|| of every row x as an array, shape (n,).

    `b` has a factor for each column, or is a single factor. A distance that overflows is infinite or NaN.
    """
    return norms.norms((rows - center) * b)


def _number_longer(rows: Array, center: Array, b: Floats, length: float) -> int:
    """Return the number of rows x with ||b (x - center)|| > length.

    `b` has a factor for each column, or is a single factor.
    """
    return int(np.count_nonzero(~(_distances(rows, center, b) <= length)))  # NaN is longer


def _histogram(rows: Array, bounds: Array, center: Array, b: Floats, side: Literal["left", "right"]) -> Counts:
    """Return how many rows x have a distance ||b (x - center)|| in each interval between two of the `bounds`.

    The first number counts the rows before the first bound, and the last number counts the rows beyond the last bound.
    A distance equal to a bound is before it if `side` is "left", and beyond it if `side` is "right". `b` has a factor
    for each column, or is a single factor.
    """
    return np.bincount(np.searchsorted(bounds, _distances(rows, center, b), side), minlength=bounds.size + 1)


def _histograms(rows: Array, bounds: Array, center: Array) -> Counts:
    """Return how many of the `rows` x have |x_j - center_j| in each interval between two `bounds`, for each column j.

    Row j of the result begins with the number below the first bound, and ends with the number beyond the last bound.
    `center` has one entry for each column.
    """
    found = np.searchsorted(bounds, np.abs(rows - center).T)
    return np.array([np.bincount(places, minlength=bounds.size + 1) for places in found])


def _clipped_sum(rows: Array, grid: lattice.Lattice, center: Array, b: Array) -> Whole:
    """Return the sum of the vectors b (x - center) over the rows x, each vector clipped and rounded to integers.

    `grid` defines the clip norm and a small step; an entry is rounded to a number of steps, and the sum counts steps.
    `b` has a factor for each column.
    """
    return grid.sum(rows, center, b)


def _bounded(scaled: Array) -> Array:
    """Cut the entries of `scaled` to +-1e150, in place, and return it: an error by overflow would reveal a long row."""
    return np.clip(scaled, -_LARGEST, _LARGEST, out=scaled)


def _sum_of_pairs(rows: Array, grid: lattice.Lattice, center: Array, b: Array, outer: float) -> Whole:
    """Divide the vector b (x - center) of each row x into a pair of vectors; return the sum of all pairs in integers.

    A vector longer than the clip norm of `grid` is first clipped to the norm `outer`, and then divided into two
    parallel vectors (see `egm._adaptive.pairs`). A shorter one is the first vector of its pair, and the second one is
    zero. `grid` rounds each pair to a vector of 2 d integers, which count multiples of its step. If rounding errors
    have made this vector longer than the clip norm, `grid` shortens it. `b` has a factor for each column.
    """
    scaled = _bounded((rows - center) * b)
    lengths = norms.norms(scaled)
    longer = lengths > grid.clip_norm
    first, second = pairs.divided(scaled[longer], lengths[longer], grid.clip_norm, outer)
    total = grid.sum(np.hstack([first, second]))
    total[: rows.shape[1]] += grid.sum(scaled[~longer])
    return total


def _sum_within(rows: Array, grid: lattice.Lattice) -> Whole:
    """Return the sum of the rows in integers, after their entries have been cut to the range from -1 to 1.

    The integers count multiples of a small step, to which `grid`, a `Lattice`, rounds each row.
    """
    return grid.sum(np.clip(rows, -1.0, 1.0))


def _sum_of_squares(rows: Array, grid: lattice.Lattice, center: Array, spread: Array, cut: float) -> Whole:
    """Return the sum over the rows x of the vectors min(|x - center| / spread, cut)**2, as a vector of integers.

    `center` and `spread` have an entry for each column, and `cut` is the largest allowed ratio. Each vector is clipped
    to the norm of `grid`, and rounded to integer multiples of its step; the result counts these steps.
    """
    return grid.sum(np.minimum(np.abs((rows - center) / spread), cut) ** 2)  # cut first: an overflow reveals a long row


def _sum_of_products(rows: Array, center: Array, spread: Array, clip_norm: float, target: float) -> Array:
    """Return the sum of the matrices w w^T over the rows x, where w is a vector of integers computed from x.

    `center` and `spread` have an entry for each column. The vector (x - center) / spread is clipped to the norm
    `clip_norm` and multiplied by target / clip_norm, so that its norm is at most `target`. Then its entries are rounded
    towards zero, which gives w.
    """
    y = _bounded((rows - center) / spread)
    y *= (target / np.maximum(norms.norms(y), clip_norm))[:, None]
    np.trunc(y, out=y)
    return np.asarray(y.T @ y)


class PrivateRows:
    """Answer queries about the private rows `X`, of shape (n, d), within the budget `rho`.

    `X` is an array or, for rows that are read block by block, a `Passes`. Each public method except `turn` and
    `standardize` is a query. Before it reads the rows, it records its cost, a number rho of zero-concentrated
    differential privacy, under the name of a step of the search for center and spread. If `rng` is not None, all
    randomness comes from this Generator; then the answers are simulations, fit for experiments only. If `middle` and
    `half` are given, the rows x are standardized to (x - middle) / half.

    `diameter` is the largest change of a sum of vectors of norm at most 1: 2 if a row is replaced; 1 if `counted` is
    true, because then the number of rows is private, and a row is added or removed.
    """

    def __init__(
        self,
        X: Array | Passes,
        rho: float,
        rng: np.random.Generator | None,
        middle: Array | None = None,
        half: Array | None = None,
        counted: bool = False,
    ) -> None:
        self.diameter = 1.0 if counted else 2.0
        self.rows = X if isinstance(X, Passes) else Passes(X)
        self.rng, self.account, self.coordinates = rng, Account(rho), _Coordinates(middle, half)
        self.n, self.d = self.rows.shape
        self.fewest, self.count_error = self.n, 0.0

    def turn(self, basis: BasisLike | None) -> None:
        """Answer later queries in coordinates along `basis` (public or released), or in the columns if it is None."""
        self.coordinates = replace(self.coordinates, basis=basis)

    def standardize(self, half: float) -> None:
        """Answer all later queries for the rows divided by `half`; this method must be called at most once."""
        self.coordinates = _Coordinates(np.zeros(self.d), np.full(self.d, half))

    @_unseen
    def count(self, step: str, rho: float) -> tuple[float, float]:
        """Return the noisy number of rows, and the standard deviation of its noise.

        Small noise is not an integer, which would be too coarse for confidence intervals. The noisy number, rounded
        down, or 2 if it is smaller, becomes the number `n` of all later queries. The privacy cost `rho` (of
        zero-concentrated differential privacy) is recorded under `step`, the name of a step of the search for center
        and spread. What is left of the budget becomes `account.base`, of which later steps take shares.
        """
        self.account.spend(step, rho)
        self.account.base = self.account.left
        std = 1 / math.sqrt(2 * rho) * _ROUNDED_UP
        steps = max(1, round(_FINE / std))  # of the noise for each row
        found = float(self._total(len) * steps + self._gaussian(std * steps, 1)[0]) / steps
        self.n = self.fewest = max(2, int(found))
        self.count_error = math.hypot(std, 1.0) / self.n  # `found` is rounded down
        return found, std

    @_unseen
    def radius(self, step: str, q: float, intervals: Intervals, rho: float, center: Array, b: Floats) -> float:
        """Return a private q-quantile of the distances ||b (x - center)|| of the rows x.

        `center` is a vector with one entry for each column. `b` is a vector of factors, one for each column, or a
        single factor. The quantile is the point of one of the `intervals`, the pair of arrays that `log_intervals`
        returns (bounds of intervals, and a point in each interval). The privacy cost `rho` (of zero-concentrated
        differential privacy) is recorded under `step`, the name of a step of the search for center and spread.
        """
        self.account.spend(step, rho)
        counts = self._total(_histogram, intervals[0], center, b, "left")
        return self._drawn(counts, q, intervals, rho)

    @_unseen
    def spreads(self, step: str, intervals: Intervals, rho: float, center: Array) -> Array:
        """Return a private median of |x_j - center_j| over the rows x, for each column j.

        `center` has one entry for each column, and so has the result. Each median is the point of one of the
        `intervals`, the pair of arrays that `log_intervals` returns (bounds of intervals, and a point in each
        interval). The privacy cost `rho` (of zero-concentrated differential privacy) of all medians together is
        recorded under `step`, the name of a step of the search for center and spread.
        """
        self.account.spend(step, rho)
        counts = self._total(_histograms, intervals[0], center)
        return np.array([self._drawn(count, 0.5, intervals, rho / self.d) for count in counts])

    @_unseen
    def mean(self, step: str, center: Array, b: Array, clip_norm: float, rho: float) -> tuple[Array, float]:
        """Return the noisy mean of the vectors b (x - center) over the rows x, and the standard deviation of its noise.

        Before the mean is taken, each vector that is longer than `clip_norm` is shortened to this norm. `center` and
        the factors `b` have one entry for each column, and so has the mean; the noise in each entry has the returned
        standard deviation. The privacy cost `rho` (of zero-concentrated differential privacy) is recorded under `step`,
        the name of a step of the search for center and spread.
        """
        self.account.spend(step, rho)
        return self._mean(lambda grid: self._total(_clipped_sum, grid, center, b), clip_norm, self.diameter, rho)

    @_unseen
    def pairs(
        self, step: str, center: Array, b: Array, clip_norm: float, outer: float, rho: float
    ) -> tuple[Array, float]:
        """Return the noisy mean of the two vectors into which each row is divided, and its noise in each entry.

        For a row x, the vector b (x - center), with one factor in `b` for each column, is clipped to the norm `outer`.
        If it is longer than `clip_norm`, it is divided into two parallel vectors, whose squared norms add up to the
        square of `clip_norm` (see `egm._adaptive.pairs`). Otherwise it is itself the first vector, and the second
        vector is zero. The first result has two rows: the mean of the first vectors, and that of the second ones. The
        last result is the standard deviation of the noise in each entry. The privacy cost `rho` (of zero-concentrated
        differential privacy) is recorded under `step`, the name of a step of the search for center and spread.
        """
        self.account.spend(step, rho)
        total = functools.partial(self._total, _sum_of_pairs)
        mean, std = self._mean(lambda grid: total(grid, center, b, outer), clip_norm, self.diameter, rho, 2 * self.d)
        return mean.reshape(2, self.d), std

    @_unseen
    def within(self, step: str, rho: float) -> tuple[Array, float]:
        """Return the noisy mean of the rows with entries cut to [-1, 1], and the standard deviation of its noise.

        From this query on, the coordinates of the rows are the columns, even if there was a basis. The noise in each
        entry of the mean has the returned standard deviation. This is large enough to hide one row, which changes the
        sum of the rows by at most sqrt(d) times `diameter` in norm. The privacy cost `rho` (of zero-concentrated
        differential privacy) is recorded under `step`, the name of a step of the search for center and spread.
        """
        self.account.spend(step, rho)
        self.coordinates = replace(self.coordinates, basis=None)
        return self._mean(lambda grid: self._total(_sum_within, grid), math.sqrt(self.d), self.diameter, rho)

    @_unseen
    def squares(self, step: str, center: Array, spread: Array, rho: float, heavy: float = 1.0) -> tuple[Array, float]:
        """Return a noisy mean of ((x - center) / spread)**2 over the rows x, and the standard deviation of its noise.

        `center` and `spread` have one entry for each column, and so has the mean; the noise in each entry has the
        returned standard deviation. The privacy cost `rho` (of zero-concentrated differential privacy) is recorded
        under `step`, the name of a step of the search for center and spread.

        To limit what one row can change, each entry of a vector of squares is limited to 12 times `heavy`, and the
        vector is clipped to a norm V that depends only on the number of columns and on `heavy`. Two vectors of norm at
        most V without negative entries differ by at most sqrt(2) V. The noise is chosen for this difference or, if a
        row is added or removed, for V.
        """
        self.account.spend(step, rho)
        cut, norm = math.sqrt(_SQUARE * heavy), _squares_norm(self.d) * heavy
        squares = functools.partial(self._total, _sum_of_squares)
        return self._mean(lambda grid: squares(grid, center, spread, cut), norm, min(self.diameter, math.sqrt(2)), rho)

    @_unseen
    def products(self, step: str, center: Array, spread: Array, clip_norm: float, rho: float) -> tuple[Array, float]:
        """Return a noisy mean of the matrices y y^T over all rows, and the standard deviation of its noise.

        For each row x, the vector y is (x - center) / spread, shortened to the norm `clip_norm` if it is longer.
        `center` and `spread` have one entry for each column. The mean is symmetric, shape (d, d). The noise in each
        entry of the diagonal has the returned standard deviation; above the diagonal its variance is half as large. The
        privacy cost `rho` (of zero-concentrated differential privacy) is recorded under `step`, the name of a step of
        the search for center and spread.

        All y are multiplied by one common factor and rounded to integers. For the given number of rows, the factor is
        so small that the sum of the products is exact in doubles, whatever the order of the terms.
        """
        if self.diameter < 2:
            raise ValueError("products need a public number of rows, for which their sum is exact")
        self.account.spend(step, rho)
        K = 2.0 ** ((_EXACT - (self.n - 1).bit_length()) // 2)
        target = K * (1 - (self.d + 16) * 2.0**-52)  # the rounding of norms and products makes no vector longer than K
        total = self._total(_sum_of_products, center, spread, clip_norm, target)
        std, above, diagonal = K**2 / math.sqrt(rho) * _ROUNDED_UP, np.triu_indices(self.d, 1), np.diag_indices(self.d)
        noisy = np.zeros((self.d, self.d))
        for entries, deviation in ((diagonal, std), (above, std / math.sqrt(2) * _ROUNDED_UP)):
            whole = np.array([int(entry) for entry in total[entries]], dtype=object)
            noisy[entries] = (whole + self._gaussian(deviation, whole.size)).astype(float)
        noisy[above[::-1]] = noisy[above]
        unit = (clip_norm / target) ** 2 / self.n
        return noisy * unit, std * unit

    @_unseen
    def shells(self, step: str, center: Array, b: Array, edges: Array, rho: float) -> tuple[Array, float]:
        """Return noisy numbers of rows in ranges of distances from `center`, and the standard deviation of their noise.

        The distance of a row x is ||b (x - center)||. Entry i of the first result is the noisy number of rows with a
        distance from edges[i] to the next entry of the ascending vector `edges` or, for the last i, above the last
        edge. Rows below the first edge are not counted. `center` and the factors `b` have one entry for each column.
        The privacy cost `rho` (of zero-concentrated differential privacy) is recorded under `step`, the name of a step
        of the search for center and spread.
        """
        self.account.spend(step, rho)
        std = min(self.diameter, math.sqrt(2)) / math.sqrt(2 * rho) * _ROUNDED_UP
        counts = self._total(_histogram, edges, center, b, "right")[1:]
        return (counts + self._gaussian(std, edges.size)).astype(float), std

    @_unseen
    def longer(self, step: str, center: Array, b: Array, length: float, rho: float) -> tuple[float, float]:
        """Return the noisy number of rows x with ||b (x - center)|| > length, and the standard deviation of its noise.

        `center` and the factors `b` have one entry for each column, and `length` is a number. The privacy cost `rho`
        (of zero-concentrated differential privacy) is recorded under `step`, the name of a step of the search for
        center and spread.
        """
        self.account.spend(step, rho)
        std = 1 / math.sqrt(2 * rho) * _ROUNDED_UP
        found = self._total(_number_longer, center, b, length)
        return float(found + self._gaussian(std, 1)[0]), std

    def _drawn(self, counts: Counts, q: float, intervals: Intervals, rho: float) -> float:
        """Draw an interval for a private q-quantile, at the cost `rho`, and return the point of this interval.

        `intervals` is a pair of arrays as `log_intervals` returns it: the bounds, and a point in each interval.
        `counts` has the number of values in each interval.
        """
        epsilon = math.sqrt(8 * rho) * _ROUNDED_DOWN
        return float(intervals[1][quantiles.interval(counts, q, epsilon, self.rng)])

    def _mean(
        self, total: Callable[[lattice.Lattice], Whole], clip_norm: float, diameter: float, rho: float, size: int = 0
    ) -> tuple[Array, float]:
        """Return the noisy mean of vectors, one for each row, and the standard deviation of its noise.

        The cost is `rho`, and each vector has `size` entries (0: one for each column). ``total(grid)`` clips the
        vectors to the norm `clip_norm`, rounds them to vectors of integers, and returns the sum of these; `grid` is the
        `Lattice` that defines the rounding. Before the rounding, the sums of two neighboring data sets differ by at
        most `diameter` times `clip_norm` in the Euclidean norm. The noise in each entry of the mean has the returned
        standard deviation.
        """
        std, size = diameter / math.sqrt(2 * rho), size or self.d
        grid = lattice.Lattice(clip_norm, size, std)
        std *= grid.radius * _ROUNDED_UP
        noisy = total(grid) + self._gaussian(std, size)
        return noisy.astype(float) * (grid.unit / self.n), std * grid.unit / self.n

    def _gaussian(self, std: float, size: int) -> Whole:
        """Draw an array of `size` independent integers of discrete Gaussian noise with the standard deviation `std`.

        In a simulation, the integers are computed from normal noise: it is rounded or, if `std` is small, replaced by
        the same quantile of the discrete Gaussian distribution.
        """
        if self.rng is None:
            return np.array(samplers.secure_gaussian(std, size), dtype=object)
        noise = samplers.simulated_gaussian(np.full(size, std), self.rng)
        if std > _ROUNDED:
            return np.rint(noise)
        integers = np.arange(-20.0, 21.0)
        weights = np.exp(-((integers / max(std, 0.01)) ** 2) / 2)
        drawn: Whole = integers[np.searchsorted(np.cumsum(weights)[:-1] / np.sum(weights), ndtr(noise / std))]
        return drawn

    def _total(self, function: Callable[..., Any], *given: Any) -> Any:
        """Return the sum of function(rows, *given) over all blocks of rows, computed in one pass over the data.

        The `function` gets the rows of a block in the coordinates in which queries are answered at present (the
        columns, or coordinates along a basis), and the further arguments `given`.
        """
        plain = function is _clipped_sum and self.coordinates.given  # this sum is safe for entries of any size
        coordinates = None if plain else self.coordinates
        return self.rows.total(functools.partial(_quietly, function=function, coordinates=coordinates, given=given))
