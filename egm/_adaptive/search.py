"""Search for the center and the spread of private rows, for `egm.adaptive`.

The search makes queries and sees only the noisy answers: those of private rows (`private_rows.py`) or, for a forecast,
those that are expected of normal rows (`expected_rows.py`). The release itself is in `last_round.py`.

1. Locate. The median distance of the rows from the present center is the radius of a ball. The rows are clipped to this
   ball, and their noisy mean is the next center. Each step reduces the distance by a known factor. The steps end when a
   radius is about as large as the one before: then it comes from the spread of the rows alone. If it is much larger,
   one of the two is wrong by chance, and the steps go on. The last step still clips some rows, and so the center does
   not quite reach the mean of the rows. The distance that remains is computed when the spread is known, and is a part
   of the standard error of the center.
2. Spread. Three quantiles of the squared distances give the effective dimension (sum s^2)^2 / sum s^4, where s are the
   standard deviations. A scaling gains at most the factor d divided by this dimension (Hoelder's inequality). If this
   factor is near 1, or if the budget is too small for d medians, all coordinates get the same standard deviation.
   Otherwise, or if medians cost very little, that of coordinate j is found by a median of |x_j - center_j|. (If rows
   are in two clusters, their distances do not show the factor.)
3. Turn, if there is a basis and the budget is large enough. The coordinates along the basis take the place of the
   columns; for a public basis, step 2 is left out. To learn a basis, the noisy second moments of the columns, divided
   by their standard deviations, give a covariance matrix, and its eigenvectors are the basis (`learned.py`). The mean
   squares along the basis are measured, and again after step 4.
4. Refine. The rows are scaled, clipped and averaged as in Algorithm 3 of Poulsen's report, at most twice. The shares of
   the budget for these means are those for which the final mean has the least predicted error. Only little is clipped,
   so that the center stays good even if the clipped parts of all rows point in one direction. Without a basis, the mean
   squares of the columns then correct the medians of step 2, from which the spread of a column that is mostly zero
   cannot be seen.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from scipy.special import chdtri

from egm import forecast, gx2, scaling
from egm._adaptive.learned import correlation, units
from egm._adaptive.private_rows import Account, Intervals, log_intervals, squares_std
from egm._adaptive.radial import Radial
from egm._basis import BasisLike, given, of_columns
from egm._types import Array, Floats

__all__ = ["APART", "DIFFERENT", "KEPT", "SURE", "Answers", "Search", "least_rho"]

KEPT = 0.2  # share of the budget that is kept for the last sum

_COARSE, _FINE, _MEDIUM = 0.25, 0.02, 0.1  # widths of intervals for quantiles, in the logarithm
SURE = 50.0  # epsilon * n of a radius while locating: one in thousands is wrong, and the next corrects it
_SURER = 60.0, 160.0  # least and greatest epsilon * n of a decisive radius: the result depends on it
_SUREST = 100.0, 400.0  # least and greatest epsilon * n of a quartile of the distances
_DEEP, _FAILED = 4.0, 0.01  # epsilon * n of the median of a column is DEEP * log(columns * intervals / FAILED)
_RELIED = 0.005  # share of the budget for these radii and quartiles, within the limits above
_PLENTIFUL = 1280.0, 5e-4  # with a large budget, greatest epsilon * n of them all, if it costs at most this share
_QUARTILE = 0.03  # largest share of the budget for a quartile
_CHEAP = 0.005  # share of the budget for a locating step, if this is enough for the best pace
_LOCATE = 0.6  # largest share for all locating steps; a budget for which they may need more is refused
_SETTLE = 0.01, 0.05  # least and greatest share for the last locating step
_REMEASURED = 0.01  # share of the budget for the second moments, and least share for the medians of the columns
_MEDIAN = 1.15  # factor by which a median of a column may be too small
_LONG_TAILED = 1.5  # largest root mean square of a column, over its standard deviation; 2 is worse for scanned digits
_MEDIANS = 0.3  # largest share of the budget for the medians of the columns
_SHARES = (0.01, 0.03, 0.1, 0.2)  # shares of the budget that are tried for the rounds of refining
_PRICE = 1.0  # increase of the predicted error of a plan, over its share of the budget: later queries need it, too
_TAIL_SURE, _TAIL_SHARE = 141.0, (0.004, 0.15)  # rho of a tail query: (TAIL_SURE / n)**2, within these shares
_LEAST = 150.0  # least n * sqrt(rho): below it a tenth of the rows can be far away and unseen
FEW = 424.0  # n * sqrt(rho) below which the budget is called small: 3 in 100 rows can be far away and unseen
_LOOSE = 1.15  # radius of the ball to which rows are clipped, divided by the radius of the rows
APART = 1e-4  # probability that the noise of a step is so long that locating ends too early
DIFFERENT = 1e-3  # with ranges, probability that noise alone makes two means differ, so that the search is given up
_CLIPPED_MEAN = 0.3  # distance from the mean of clipped rows to that of all rows, in standard errors of a mean
_SHRUNK = 0.85  # locating ends if the new radius is more than this part of the old one
_GROWN = 1.5  # but not if the new radius is more than this multiple: then the old one was wrong
_ROUNDS = 60
_ALIKE = 1.15  # d divided by the effective dimension, up to which all coordinates get one standard deviation
_ANYWAY = 0.002  # share of the budget up to which the medians are asked for, even if they do not seem to pay
_LEARN = 0.02  # share of the budget for the second moments from which a basis is learned
_WIDEST = 1024  # columns up to which a basis is learned
_PAYS = 1.25  # least gain by a learned basis for which it is taken: it costs a part of the budget
_SHARP = 0.08  # standard deviation of measured mean squares, over their expectation, up to which a basis is used
# A large budget needs less than the least shares above: they are multiplied by the square of the larger of _PLENTY over
# n * sqrt(rho) and the noise of mean squares over _EXACT times their expectation. The last number is the least factor.
_PLENTY, _EXACT, _LEAST_PART = 5000.0, 0.008, 0.1
_ENOUGH = 2000.0  # n * sqrt(rho) from which a basis is learned: below it, long tails are measured too roughly
_FAR, _FAR_SHARE = (0.9, 0.99), 0.003  # least and greatest quantile of lengths that shows long tails; its share of rho
_FAR_SURE = 26.0  # epsilon * n of this quantile, times the share of rows beyond it: one in 10 000 is wrong
_HEAVIEST = 50.0  # largest such quantile, over the root of the number of columns
_LITTLE = 0.5  # largest error of a refined center by clipped parts that all point one way, in expected errors
_FARTHEST = 1e150  # largest step of a coordinate of the center
_NORMAL_MEDIAN = 0.6744897501960817  # median of |Z|, which is the upper quartile of Z


class Answers(Protocol):
    """Declare the queries that a private search for center and spread may make about `n` rows with `d` columns.

    `PrivateRows` answers them from private rows and describes what each of them returns; `ExpectedRows` answers them as
    expected for normal rows. `account` records what the queries cost. `diameter` is 2 if a row is replaced, and 1 if
    a row is added or removed. The number of rows by which a release decides whether to search is `n` or, in a forecast
    for a private number of rows, `fewest`, which a release hardly ever falls below. `count_error` is the standard
    deviation of n divided by the exact number of rows, 0 if this is public; the means have this relative error, too.
    """

    n: int
    fewest: int
    d: int
    account: Account
    diameter: float
    count_error: float

    def count(self, step: str, rho: float) -> tuple[float, float]: ...
    def standardize(self, half: float) -> None: ...
    def radius(self, step: str, q: float, intervals: Intervals, rho: float, center: Array, b: Floats) -> float: ...
    def spreads(self, step: str, intervals: Intervals, rho: float, center: Array) -> Array: ...
    def mean(self, step: str, center: Array, b: Array, clip_norm: float, rho: float) -> tuple[Array, float]: ...
    def within(self, step: str, rho: float) -> tuple[Array, float]: ...
    def squares(
        self, step: str, center: Array, spread: Array, rho: float, heavy: float = 1.0
    ) -> tuple[Array, float]: ...
    def products(self, step: str, center: Array, spread: Array, norm: float, rho: float) -> tuple[Array, float]: ...
    def turn(self, basis: BasisLike | None) -> None: ...
    def longer(self, step: str, center: Array, b: Array, length: float, rho: float) -> tuple[float, float]: ...
    def pairs(
        self, step: str, center: Array, b: Array, clip_norm: float, outer: float, rho: float
    ) -> tuple[Array, float]: ...
    def shells(self, step: str, center: Array, b: Array, edges: Array, rho: float) -> tuple[Array, float]: ...


def _pace(n: int, d: int, rho: float, diameter: float) -> float:
    """Return the factor, below 1, by which a step of the search should reduce the center's distance from the rows.

    The search moves a center to the rows by steps; each step takes a noisy mean of the rows as the new center. One
    candidate is the factor with which many steps together reduce the distance at the least cost. The other one is the
    smallest factor, of 0.01 or more, for which the noisy mean of one step costs at most 0.5 % of the budget `rho`. The
    smaller candidate is returned. The number of rows is `n`, and the number of columns is `d`. `diameter` is 2 if a row
    is replaced, and 1 if a row is added or removed.
    """
    parts = np.geomspace(0.02, 0.7, 60)
    best = parts[np.argmin((_noise_cost(d, parts, diameter) + SURE**2 / 8) / -np.log(parts))]
    return float(np.clip(math.sqrt(_noise_cost(d, 1.0, diameter) / (_CHEAP * rho)) / n, 0.01, best))


def _noise_cost(d: int, part: Any, diameter: float = 2.0) -> Any:
    """Return n**2 times the cost rho of a noisy mean of n rows with `d` columns; this product does not depend on n.

    The rows lie around the center within some radius. The root mean square of the norm of the noise is `part` times
    this radius. Before the mean is taken, the rows are clipped to a ball with 1.15 times this radius. `diameter` is 2
    if a row is replaced, and 1 if a row is added or removed.
    """
    return diameter**2 / 2 * d * (_LOOSE / part) ** 2


def least_rho(n: int, d: int, radius: float, least: float) -> float:
    """Return the least budget rho for which the search reliably finds the center of `n` rows with `d` columns.

    Each coordinate of the center is known at the start to lie between -radius and radius. The search has to find it to
    within `least`, the smallest standard deviation that a column may have.
    """
    parts = np.geomspace(0.02, 0.7, 60)
    rounds = 1 + max(math.log(radius / least), 0.0) / -np.log(parts)
    cost = np.min((_noise_cost(d, parts) + SURE**2 / 8) * rounds)
    return float(max((cost + _SURER[0] ** 2 / 4) / _LOCATE, _LEAST**2) / n**2)


class Search:
    """Search for the center and the standard deviations of the columns, by queries to `rows` that have noisy answers.

    The state of the search is in three attributes of shape (d,): `center` is the estimated center, `center_std` is its
    standard error, and `sigma` has the standard deviations. All three are about the columns or, once a basis is used,
    about the coordinates along it. They are computed from noisy answers only, and so may be published. Every column has
    a mean from -radius to radius, and a standard deviation within `sigma_range`. `public` is a public basis whose
    coordinates are used if the budget is large enough; `learn` says whether a basis is found privately. The search
    begins at the center `start`, by default zero, and the attribute `rho` is the budget that is left when it begins.
    """

    def __init__(
        self,
        rows: Answers,
        radius: float,
        sigma_range: tuple[float, float],
        public: BasisLike | None = None,
        learn: bool = False,
        start: Array | None = None,
    ) -> None:
        self.rows, self.n, self.d, self.account = rows, rows.n, rows.d, rows.account
        self.rho = self.account.left if self.account.spent else self.account.rho
        root = math.sqrt(rows.d)
        self.public, self.learn = public, learn
        self.basis: BasisLike | None = None  # of the coordinates; None for the columns
        self.columns: tuple[Array, tuple[float, float]] | None = None  # sigma and its range before a basis was learned
        self.sigma_range = sigma_range
        self.smallest, self.largest = 0.1 * root * sigma_range[0], 2 * root * (radius + 3 * sigma_range[1])
        self.bound = radius
        self.last_step = np.zeros(self.d), radius  # the last step of locating, and the norm to which rows were clipped
        self.center, self.center_std = np.zeros(self.d) if start is None else start, np.full(self.d, radius)
        noise = squares_std(self.n, self.d, _REMEASURED * self.rho, rows.diameter)
        reach = self.n * math.sqrt(self.rho)
        self.few, self.plenty = reach < FEW, reach > _PLENTY
        part = max(min(max(_PLENTY / reach, noise / _EXACT), 1.0) ** 2, _LEAST_PART)
        self.settle, self.remeasured, self.far_share = (part * share for share in (_SETTLE[0], _REMEASURED, _FAR_SHARE))
        self.once = self.relied(*_SURER)  # cost of a decisive radius

    def run(self, stops: Callable[[], bool] = lambda: False) -> bool:
        """Find a rough center, then the standard deviations of the columns, and then a better center.

        The results are in the attributes `center`, `center_std` (the standard error of the center) and `sigma`. The
        function `stops` is called before the center is made better. If `stops` returns True, the search ends there, and
        `run` returns False; otherwise `run` returns True.
        """
        radius = self.locate()
        if self.public is not None and self.measurable:
            self.turn(self.public, np.full(self.d, radius / math.sqrt(self.d)))
            self.reweigh()
            alike = False
        else:
            alike = self.spread_out(radius)
            if self.learn and self.measurable and self.n * math.sqrt(self.rho) > _ENOUGH:
                alike = not self.learned(alike) and alike
        self.center_std = np.hypot(self.center_std, self.lag())
        if stops():
            return False
        for step, rho in enumerate(self.plan(alike), start=1):
            self.refine(f"center {step}", rho)
        if self.basis is not None:
            self.reweigh()
        elif not alike:
            self.remeasure_columns()
        return True

    def cost(self, sure: float) -> float:
        """Return the cost rho of a private quantile that is drawn with epsilon = sure / n, for n rows.

        The larger the number `sure` is, the less likely is a quantile that is far from the true one.
        """
        return sure**2 / (8 * self.n**2)

    def noise(self, rho: float) -> float:
        """Return the standard deviation of the noise in each entry of a noisy mean of rows clipped to the norm 1.

        `rho` is the privacy cost of the mean. For another clip norm, the standard deviation is proportional to this
        norm.
        """
        return self.rows.diameter / math.sqrt(2 * rho) / self.n

    def reach(self, share: float) -> float:
        """Return n times the epsilon with which a private quantile costs `share` times the budget `rho` of the search.

        The number of rows is n. Other methods call this result `sure`; the method `cost` is the inverse function.
        """
        return self.n * math.sqrt(8 * share * self.rho)

    def relied(self, least: float, most: float) -> float:
        """Return the cost rho of a private quantile on which the result depends: 0.5 % of the budget, within limits.

        n times its epsilon is at least `least`, and at most `most`. With a large budget, it may also be 1280 or, if
        this is less, what 0.05 % of the budget allows.
        """
        if self.plenty:
            most = max(most, min(_PLENTIFUL[0], self.reach(_PLENTIFUL[1])))
        return self.cost(max(least, min(self.reach(_RELIED), most)))

    def distance(self, step: str, q: float, cost: float, b: Floats = 1.0, fineness: float = _FINE) -> float:
        """Ask for the q-quantile of the distances ||b (x - center)|| of the rows x, and return the noisy answer.

        The privacy cost is `cost`, recorded under the name `step`. The center is the present one. `b` has one factor
        for each column or is a single factor. The answer is a point in one of many intervals, whose upper end is about
        exp(fineness) times the lower end. The intervals cover all distances that are likely for the declared ranges of
        the center and of the standard deviations.
        """
        intervals = log_intervals(self.smallest * np.min(b), self.largest * np.max(b), fineness)
        return self.rows.radius(step, q, intervals, cost, self.center, b)

    def around(self, radius: float) -> Intervals:
        """Return intervals that cover the numbers from radius / 5 to 5 * radius: their bounds, and a point in each.

        A private quantile of distances that is expected to be near `radius` is drawn from these intervals. They are
        narrower in many dimensions, because distances vary less there.
        """
        return log_intervals(radius / 5, 5 * radius, min(_FINE, 0.1 / math.sqrt(self.d)))

    # Locate -----------------------------------------------------------------------------------------------------------

    def locate(self) -> float:
        """Move the center to the rows in several steps; return the median distance of the rows from the last center.

        Each step asks for the median distance of the rows from the present center, clips the rows to a ball whose
        radius follows from this median, and moves the center to their noisy mean. All medians are noisy answers, also
        the returned one.
        """
        pace, cost = _pace(self.n, self.d, self.rho, self.rows.diameter), self.cost(SURE)
        share = _noise_cost(self.d, pace, self.rows.diameter) / self.n**2
        apart = math.sqrt(chdtri(self.d, APART) / self.d)  # longest likely noise, over its root mean square
        radius = self.distance("radii", 0.5, cost, fineness=_COARSE)
        for _ in range(_ROUNDS):
            if self.account.left - share - cost < (1 - _LOCATE) * self.rho:
                break
            self.step_to(radius, share)
            before, radius = radius, self.distance("radii", 0.5, cost, fineness=_COARSE)
            if min(apart * pace, _SHRUNK) * before < radius < _GROWN * before:
                break
        dof = math.sqrt(self.d)  # between 1, for one wide coordinate, and d, for equal spreads
        far = math.sqrt(chdtri(dof, 0.1) / chdtri(dof, 0.5))
        self.step_to(far / _LOOSE * radius, max(self.settle * self.rho, min(share, _SETTLE[1] * self.rho)))
        return self.distance("radii", 0.5, self.once)

    def step_to(self, radius: float, rho: float) -> None:
        """Move the center to the noisy mean of the rows, at the cost `rho`, and set `center_std`, its standard error.

        Before the mean is taken, the rows are clipped to a ball around the old center. The radius of the ball is 1.15
        times `radius`, a typical distance of the rows from the old center.
        """
        clip_norm = _LOOSE * radius
        mean, std = self.rows.mean("locate", self.center, np.ones(self.d), clip_norm, rho)
        self.move(mean)
        self.last_step = mean, clip_norm
        self.center_std = np.full(self.d, math.hypot(std, _CLIPPED_MEAN * radius / math.sqrt(self.n * self.d)))

    def lag(self) -> Array:
        """Return how far the center may be from the mean of the rows because some rows were clipped to find it.

        Locating moves the center to the rows by several noisy means of clipped rows. Such a mean lies between the old
        center and the mean of the rows, and so the new center does not quite reach the mean of the rows. The result has
        one entry for each coordinate. It is what clipping removes from the mean of normal rows with the standard
        deviations `sigma`, if their mean differs from the old center by as much as the new center does.
        """
        step, clip_norm = self.last_step
        step = step if self.basis is None else self.basis.forward(step)
        sigma = np.maximum(self.sigma, np.abs(step) / 30)  # a smaller one changes the spread by 1/2000
        _, square = forecast.loss_of_a_row(sigma, np.ones(self.d), clip_norm, step)
        lag: Array = np.sqrt(square)
        return lag

    def move(self, step: Array) -> Array:
        """Add `step` to the center, and clip the entries of the new center to the declared range of the columns' means.

        `step` is along the basis, if there is one. The result is what the clipping removed, in the columns: the center
        before the clipping minus the center after it, shape (d,).
        """
        there = self.center + step
        if self.basis is not None:
            there = self.basis.inverse(np.clip(there, -_FARTHEST, _FARTHEST))
        within = np.clip(there, -self.bound, self.bound)
        self.center = within if self.basis is None else self.basis.forward(within)
        beyond: Array = there - within
        return beyond

    @property
    def center_of_columns(self) -> Array:
        """Return the center in the coordinates of the columns, even if `center` has coordinates along a basis."""
        return self.vector_of_columns(self.center)

    def vector_of_columns(self, vector: Array) -> Array:
        """Return `vector`, which has coordinates along the basis if there is one, in the coordinates of the columns."""
        return vector if self.basis is None else self.basis.inverse(vector)

    def of_columns(self, std: Array) -> Array:
        """Return the standard deviations of the columns, for noise with the standard deviations `std` along the basis.

        The noise has independent coordinates along the basis. Without a basis, the result is `std`. The formula has a
        second use: if `std` has the semi-axes of an ellipsoid along the basis, entry j of the result is the largest
        value of column j in the ellipsoid.
        """
        return of_columns(self.basis, std)

    # Spread -----------------------------------------------------------------------------------------------------------

    def spread_out(self, radius: float) -> bool:
        """Estimate the standard deviation of each column, and return True if all columns get one common value.

        `radius` is the median distance of the rows from the center. The columns get a common value if the budget is too
        small for a separate value for each column, or if separate values would gain little.
        """
        typical = radius / math.sqrt(self.d)
        self.set_sigma(np.full(self.d, typical))
        intervals, cost = self.around(radius), self.relied(*_SUREST)
        if self.d == 1 or self.reach(_QUARTILE) < _SUREST[0] or self.spare < 3 * cost:
            return True
        ask, one = self.rows.radius, np.ones(self.d)
        low, middle, high = (ask("radii", q, intervals, cost, self.center, one) ** 2 for q in (0.25, 0.5, 0.75))
        effective = 2 * (middle * 2 * _NORMAL_MEDIAN / max(high - low, 1e-9 * middle)) ** 2
        intervals = log_intervals(max(self.sigma_range[0] / 2, typical / 100), max(1.5 * radius, typical), _MEDIUM)
        sure = _DEEP * math.log(self.d * intervals[1].size / _FAILED)
        share = max(self.d * self.cost(sure) / self.rho, self.remeasured)
        gain = max(1 - _ALIKE * effective / self.d, _ANYWAY)
        if share > min(_MEDIANS, gain, self.spare / self.rho):
            return True
        median: Array = self.rows.spreads("spread", intervals, share * self.rho, self.center)
        self.set_sigma(median / _NORMAL_MEDIAN)
        return False

    def learned(self, alike: bool) -> bool:
        """Find a basis with nearly uncorrelated coordinates, use these coordinates from now on, and return True.

        First the standard deviations of the columns are measured again; then the basis is computed from a noisy matrix
        of second moments. If the basis would hardly reduce the noise of the sum, keep the columns as coordinates, with
        the new standard deviations, and return False. If there are too many columns, return False without a query.
        `alike` says whether all columns had one common standard deviation so far. If the method `in_columns` gives the
        basis up later, it returns to this common value or, if `alike` is false, to the new standard deviations.
        """
        cost, d = _LEARN * self.rho, self.d
        if d > _WIDEST:
            return False
        before = self.sigma
        self.reweigh()
        spread = self.spread()
        norm = self.rows.radius("basis", 0.5, self.around(math.sqrt(d)), self.once, self.center, 1 / spread)
        moments, std = self.rows.products("basis", self.center, spread, norm, cost)
        noisy = moments, std / math.sqrt(2), self.n
        variances, vectors = np.linalg.eigh(correlation(*noisy) * np.outer(spread, spread))
        along = np.sqrt(np.maximum(variances, 0.0))
        if (np.sum(spread) / np.sum(along)) ** 2 < _PAYS:
            return False
        self.columns = before if alike else self.sigma, self.sigma_range
        along = np.maximum(along, units(*noisy, spread, vectors))
        self.turn(given(vectors.T[::-1], name="learned"), along[::-1])
        return True

    def in_columns(self) -> Search | None:
        """Return a copy of this search with the columns as coordinates if a basis was learned, and otherwise None.

        The copy is for a release without the basis. Its standard deviations are those of the columns, which the method
        `learned` has kept. Both searches send their queries to the object `self.rows`, which uses one kind of
        coordinates at a time. If a copy is returned, these are now the columns: before this search is used again, call
        ``self.rows.turn(self.basis)``.
        """
        if self.columns is None:
            return None
        other = copy.copy(self)
        other.sigma, other.sigma_range = self.columns
        other.center, other.center_std = self.center_of_columns, self.of_columns(self.center_std)
        other.basis = other.columns = None
        self.rows.turn(None)
        return other

    def turn(self, basis: BasisLike, along: Array) -> None:
        """Use coordinates along `basis` from now on, and measure the standard deviations `sigma` along it by a query.

        `along` has a first guess of the standard deviation for each vector of the basis. The attribute `center_std`,
        the standard errors of the center, does not change: its entries are all equal until now, and equal independent
        errors in the columns have the same standard deviation along an orthonormal basis.
        """
        self.basis = basis
        self.rows.turn(basis)
        self.center = basis.forward(self.center)
        self.sigma_range = self.sigma_range[0], math.sqrt(self.d) * self.sigma_range[1]
        self.set_sigma(along)
        self.reweigh()

    def remeasure(self, heavy: float = 1.0) -> None:
        """Ask for the mean square of every coordinate, and correct the standard deviations `sigma` by the answers.

        The squares are those of the differences of the rows from the estimated center. To keep the noise small, what
        one row can add is limited by bounds that suit normal rows, multiplied by the factor `heavy`.
        """
        spread = self.spread()
        mean, std = self.rows.squares("spread", self.center, spread, self.remeasured * self.rho, heavy)
        self.set_sigma(spread * np.sqrt(np.maximum(mean, max(0.1, std))))

    def remeasure_columns(self) -> None:
        """Correct the standard deviations of the columns by mean squares, also if the tails of some columns are long.

        The old standard deviation is from a median, which is too small for a column that is zero in most rows. The root
        mean square, which `reweigh` measures, is too large to scale a column with a long tail. So the new standard
        deviation is 1.15 times the old one, which allows for the error of the median, but at least two thirds of the
        root mean square, and at most the root mean square. If the budget is too small for `reweigh`, `remeasure` is
        called instead.
        """
        if not self.measurable:
            self.remeasure()
            return
        by_median = self.spread()
        self.reweigh()
        root = self.spread()
        self.set_sigma(np.minimum(root, np.maximum(_MEDIAN * by_median, root / _LONG_TAILED)))

    @property
    def measurable(self) -> bool:
        """Return whether d > 1 and the budget is enough to learn a basis and to measure the mean squares along it."""
        cost = self.remeasured * self.rho
        noise = squares_std(self.n, self.d, cost, self.rows.diameter)
        needed = _LEARN * self.rho + 2 * self.once + 3 * (cost + self.cost(self.far))
        return self.d > 1 and noise < _SHARP and self.spare > needed

    @property
    def far(self) -> float:
        """Return n times the epsilon with which `reweigh` draws a private quantile of the norms of n rows.

        By this quantile, `reweigh` sees whether the distribution of the rows has long tails. A larger epsilon makes the
        quantile more accurate.
        """
        return max(self.reach(self.far_share), _FAR_SURE / (1 - _FAR[0]))

    def reweigh(self) -> None:
        """Ask for the mean square of each coordinate, and correct `sigma` by the answers, even if tails are long.

        The coordinates are those along the basis or, before there is one, the columns. The answers come from
        `remeasure`. It limits what one row can add by bounds that suit normal rows, multiplied by a factor. To find
        this factor, each coordinate is divided by its root mean square as known so far, and an upper quantile of the
        norms of the rows is asked for. The factor is the squared ratio of this quantile to the quantile for normal
        rows, but at least 1.
        """
        spread, root = self.spread(), math.sqrt(self.d)
        intervals = log_intervals(0.5 * root, _HEAVIEST * root, _MEDIUM)
        q = min(1 - _FAR_SURE / self.far, _FAR[1])
        far = self.rows.radius("spread", q, intervals, self.cost(self.far), self.center, 1 / spread)
        self.remeasure(max(1.0, far**2 / chdtri(self.d, 1 - q)))

    def spread(self) -> Array:
        """Return the root mean square of each coordinate about the estimated center, shape (d,).

        The square of the result is the variance of the coordinate plus the squared standard error of the center.
        """
        spread: Array = np.hypot(self.sigma, self.center_std)
        return spread

    def set_sigma(self, spread: Array) -> None:
        """Set `sigma` from `spread`, the root mean square of each coordinate about the estimated center.

        The attribute `sigma` has the standard deviations of the coordinates: those of the columns or along the basis. A
        variance is the square of `spread` minus the squared standard error of the center, but at least 0.09 times the
        square of `spread`. The standard deviations are clipped to the range `sigma_range`.
        """
        sigma = np.sqrt(np.maximum(spread**2 - self.center_std**2, (0.3 * spread) ** 2))
        self.sigma = np.clip(sigma, *self.sigma_range)

    # Refine -----------------------------------------------------------------------------------------------------------

    @property
    def doubt(self) -> float:
        """Return the privacy cost rho of the query that asks how many rows have very large norms."""
        return float(np.clip((_TAIL_SURE / self.n) ** 2, _TAIL_SHARE[0] * self.rho, _TAIL_SHARE[1] * self.rho))

    @property
    def spare(self) -> float:
        """Return the part of the budget that is neither spent nor needed by the later steps of the release."""
        return self.account.left - (KEPT + 0.1 + self.remeasured) * self.rho - self.doubt - 3 * self.once

    def plan(self, alike: bool) -> tuple[float, ...]:
        """Choose how many noisy means, at most two, refine the center, and return the cost rho of each as a tuple.

        For each mean, some shares of the remaining budget are tried. For each choice the mean squared error of the
        final mean is predicted for normal rows, and the choice with the least prediction is returned. Before the
        predictions are compared, each of them is multiplied by 1 + s, where s is the share of the budget for the means;
        this allows for the queries for long rows, which need a part of the rest. `alike` is true if all columns have
        one common standard deviation. If it is false, a part of the budget is reserved to measure the standard
        deviations again.
        """
        left = self.account.left - self.once - self.doubt - (0.0 if alike else self.remeasured * self.rho)
        left -= 0.0 if self.basis is None else self.cost(self.far)
        sigma, center_std, copies = self.groups()
        costly = self.once / left  # share of the budget for the calibration before each round

        def around(center_std: Array) -> Radial:
            return Radial(sigma, center_std, scaling.expected_norm(np.hypot(sigma, center_std)), copies)

        def after(state: Radial, share: float, one_sided: float = np.inf) -> Array:
            return state.best(self.n, self.noise(share * left), one_sided)[1]

        states: dict[tuple[float, ...], Radial] = {(): around(center_std)}
        for share in _SHARES:
            states[share,] = around(after(states[()], share, _LITTLE))
        for first, second in itertools.combinations(_SHARES, 2):
            states[first, second] = around(after(states[first,], second, _LITTLE))
        if self.basis is not None:
            del states[()]  # the center was found without regard to the spreads along the basis, and may be far off
        rest = {shares: 1 - sum(shares) - costly * len(shares) for shares in states}
        errors = {
            shares: float(np.sum(copies * after(state, rest[shares]) ** 2)) * (1 + _PRICE * sum(shares))
            for shares, state in states.items()
            if rest[shares] > 0.1
        }
        return tuple(share * left for share in min(errors, key=lambda shares: errors[shares]))

    def groups(self) -> tuple[Array, Array, Array]:
        """Divide the coordinates into at most 64 groups of similar spread, to save time in forecasts.

        The results are three arrays with one entry for each group. The first two have the root mean squares of the
        standard deviations (`sigma`) and of the standard errors of the center (`center_std`) over the coordinates in
        the group. The third has the number of coordinates in the group.
        """
        groups = np.array_split(np.argsort(self.spread()), min(self.d, 64))
        squares = [[np.mean(v[group] ** 2) for group in groups] for v in (self.sigma, self.center_std)]
        return *np.sqrt(squares), np.array([group.size for group in groups])

    def calibrated(self) -> Array:
        """Multiply `sigma` and `center_std` by one measured factor; return the scaling b of the rows, shape (d,).

        Coordinate j of a row is multiplied by b_j before the row is clipped. The scaling is computed first, from
        `sigma` and `center_std` without this factor. Then the method `correct` asks for the median of
        ||b (x - center)|| over the rows x. The factor is the noisy answer divided by the median that follows from
        `sigma` and `center_std`. The query costs very little, and the factor matters because the clip norm depends on
        it.
        """
        b = scaling.optimal(self.spread(), 0.05)
        self.correct(b)
        return b

    def correct(self, b: Array) -> None:
        """Ask for the median of ||b (x - center)|| over the rows x; correct `sigma` and `center_std` by one factor."""
        expected = math.sqrt(gx2.isf(0.5, (b * self.spread()) ** 2))
        factor = self.rows.radius("radii", 0.5, self.around(expected), self.once, self.center, b) / expected
        self.sigma = np.clip(self.sigma * factor, *self.sigma_range)
        self.center_std = self.center_std * factor

    def refine(self, step: str, rho: float) -> None:
        """Move the center to the noisy mean of the rows, at the cost `rho`, and set `center_std`, its standard error.

        Before the mean is taken, the coordinates of the centered rows are multiplied by factors, and the rows are
        clipped (Algorithm 3 of Poulsen's report). The clip norm is so large that clipping does little harm, even if the
        parts that it removes from all rows point in one direction. The cost is recorded under `step`, the name of this
        step of the search.
        """
        b = self.calibrated()
        clip_norm, center_std = Radial(self.sigma, self.center_std, b).best(self.n, self.noise(rho), _LITTLE)
        mean, _ = self.rows.mean(step, self.center, b, clip_norm, rho)
        self.move(mean / b)
        self.center_std = center_std
