"""Make the queries of an adaptive mechanism about private rows, and give the result in the units of the data."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from egm import _tables
from egm._adaptive import choice
from egm._adaptive.declared import COUNT, Declared
from egm._adaptive.expected_rows import ExpectedRows
from egm._adaptive.last_round import LastRound, last_round
from egm._adaptive.search import Answers, Search
from egm._basis import covariance_matrix, of_columns
from egm._types import Array, ArrayLike, Named
from egm._validate import vector
from egm.forecast import ErrorForecast

_LEAST = 1e-100  # standard deviation of a column in a forecast, in the units in which rows are searched
_LARGE = (
    512  # columns up to which a forecast computes with their covariances, if the coordinates along a basis are given
)
_FARTHEST = 5.0  # standard deviations by which noise may move a number of rows


class Outcome(NamedTuple):
    """Hold the result of all queries about the rows, for a release or a forecast of `egm.AdaptiveDataMechanism`.

    `found` has the noisy mean in the units in which the rows were summed. In the units of the data, the mean of the
    rows is `middle` + `half` times this mean. `of_count` is None or, if the number of rows is private, the pair of the
    noisy number and the standard deviation of its noise. `centered_std`, shape (d,), has the standard deviations of the
    noise in the sum of the rows minus `center`. `noise_std` has those of the noise in the sum of the rows, which
    includes the noise in the number of rows. `error` is the expected squared error of the sum. These three are in the
    units of the data. `clipping_share`, shape (d,), says what part of the error due to clipping each column has.
    """

    found: LastRound
    of_count: tuple[float, float] | None
    middle: Any
    half: Any
    centered_std: Array
    noise_std: Array
    error: ErrorForecast
    clipping_share: Array

    @property
    def center(self) -> Array:
        """Return the center that a private search found or, without a search, the middle of the declared ranges."""
        return np.asarray(self.middle + self.half * self.found.center)

    def estimate(self, n: int, bounds: tuple[Any, Any]) -> Array:
        """Return the estimate of the sum in the units of the data, clipped to the values that are possible for the sum.

        `bounds` is the pair of the smallest and the largest mean that are declared for each column; n times the bounds
        are the ends of the possible values. `n` is the number of rows or, if it is private, the noisy number, but at
        least 2. Because the noisy number may be wrong, the sum is then clipped to what is possible for any number of
        rows within five standard deviations of the noisy one.
        """
        if self.of_count is None:
            estimate: Array = n * (self.middle + self.half * self.found.mean)
            return estimate.clip(*(n * bound for bound in bounds))
        number, std = self.of_count
        estimate = number * self.center + n * self.half * (self.found.mean - self.found.center)
        numbers = np.maximum([number - _FARTHEST * std, number + _FARTHEST * std], 0.0)
        ends = np.multiply.outer(numbers, np.array(bounds))
        return estimate.clip(ends.min(axis=(0, 1)), ends.max(axis=(0, 1)))


def outcome(declared: Declared, rows: Answers) -> Outcome:
    """Search for center and spread of the rows, sum them, and return the noisy mean with its errors as an `Outcome`.

    The object `rows` answers the queries, for a release or for a forecast, and `declared` has what the user declared
    about the rows.
    """
    found, of_count = _asked(declared, rows)
    middle, half = declared._standard
    if declared.radius is not None and found.method == "ranges":  # the rows were clipped to the radius
        half = declared.radius
    centered_std = noise_std = half * found.noise_std
    error = found.forecast
    if of_count is not None:  # it is multiplied by the center, and so is its noise
        noise_std = np.hypot(centered_std, of_count[1] * (middle + half * found.center))
    if declared.ranges is not None or of_count is not None:
        factor = float(np.sum(half**2 * found.share))
        error = ErrorForecast(float(np.sum(noise_std**2)), factor * error.clipping, factor * error.center)
    by_column = centered_std**2 if declared.ranges is None else half**2 * found.share
    return Outcome(found, of_count, middle, half, centered_std, noise_std, error, by_column / np.sum(by_column))


def _asked(declared: Declared, rows: Answers) -> tuple[LastRound, tuple[float, float] | None]:
    """Make all queries about the rows; return the noisy mean with its errors, and the noisy number of rows or None.

    If a range is declared for each column, the unit of the first result is half of this range. If a radius is declared
    instead, the unit is that of the data after a search, and the radius without a search. The second result is a pair:
    the noisy number and the standard deviation of its noise.
    """
    basis, of_count = declared._basis(rows.d), None
    if declared._counted:
        of_count = rows.count("rows", COUNT * declared.rho)
    if declared.radius is None:
        return choice.released(rows, declared._sigma_range, basis, declared._learns, declared.unseen), of_count
    if declared._counted and rows.account.left < declared._least(rows.n, rows.d):
        rows.standardize(declared.radius)
        return choice.clipped(rows), of_count
    search = Search(rows, declared.radius, declared._sigma_range, basis, declared._learns)
    search.run()
    return last_round(search, declared.unseen), of_count


def expected_rows(
    declared: Declared, sigma: Named | None, center: Named | None, covariance: ArrayLike | None
) -> ExpectedRows:
    """Return an object with which the search for center and spread runs as with real rows, to forecast a release.

    The object answers each query with the value that is expected if the rows have a normal distribution. `sigma`,
    `center` and `covariance` are the arguments of `egm.AdaptiveDataMechanism.forecast`, which says what errors are
    raised. `declared` has what the user declared about the rows.
    """
    if (sigma is None) == (covariance is None):
        raise ValueError("exactly one of sigma and covariance must be given")
    if declared.columns is not None:
        sigma, center = _tables.ordered(declared.columns, sigma=sigma), _tables.ordered(declared.columns, center=center)
        covariance = _tables.ordered_square(declared.columns, covariance=covariance)
    true = None if covariance is None else covariance_matrix(covariance)
    spread = vector(sigma=sigma) if true is None else np.sqrt(np.diag(true))
    d = spread.size
    declared._require_columns(d, "sigma" if true is None else "covariance")
    middle, half = declared._standard
    mean, basis = (declared._mean(center, d) - middle) / half, declared._basis(d)
    declared._require_enough(d)
    true = None if true is None else true / np.multiply.outer(half, half)
    along = None
    if basis is not None and true is None:
        along, spread = np.maximum(spread, _LEAST), of_columns(basis, spread)
        if d <= _LARGE:
            vectors = basis.inverse(np.diag(along))
            true = vectors.T @ vectors
    else:
        spread = spread / half
    spread = np.maximum(spread, _LEAST)  # whoever searches has declared a larger one, and its square is a double
    return ExpectedRows(declared.n, declared.rho, spread, mean, true, along, 1.0 if declared._counted else 2.0)
