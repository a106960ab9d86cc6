"""The sum of normal rows whose centre and spread nobody knows: both are found out privately, a little at a time.

A part of the budget goes to a search (`egm._search`), which asks private rows few and cheap questions
(`egm._private_rows`), each a release in zero-concentrated differential privacy (Bun and Steinke 2016) for data sets of
which one row is replaced. What the questions cost adds up. Later ones are chosen by the answers to earlier ones; the
total is fixed beforehand, which is all that is needed (Feldman and Zrnic 2021). The last one is the release.

Below a budget that depends on n, d and the declared ranges the search could lose its way, and is refused. What it finds
out is used to clip well, and never believed more than it was measured: data unlike any normal rows cost accuracy, and
the forecast says so. It cannot speak of what no answer shows: rows that are few, and far away from all others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from scipy.special import ndtri

from egm import _tables
from egm._expected_rows import ExpectedRows
from egm._last_round import last_round
from egm._private_rows import PrivateRows
from egm._search import Search, least_rho
from egm._types import Array, ArrayLike
from egm._validate import between, count, finite, matrix, positive, probability, scalar, unread, vector, warn_of_delta
from egm.calibration import zcdp_epsilon
from egm.forecast import ErrorForecast

__all__ = ["AdaptiveDataMechanism", "AdaptiveForecast", "AdaptiveRelease"]

_RANGE = 1e-100, 1e100  # of standard deviations whose squares, and those of entries in their units, are doubles
_MOST = 1e6  # rho: a budget that protects nobody, and noise that is still many units of the lattice


@dataclass(frozen=True, eq=False)
class AdaptiveRelease:
    """What may be published: the sum, and everything that was found out privately on the way to it.

    estimate: of the sum of the rows, (d,), within n times the declared radius. noise_std: of the last noise in it,
    (d,). bias: what clipping may have taken from each entry, (d,). center, sigma: the last centre before it and the
    standard deviations, (d,). forecast: the ErrorForecast of the estimate, from released numbers only. model_holds:
    whether the norms of the rows looked like those of normal rows; if not, the clip norm comes from the norms
    themselves, and forecast.center from all clipped parts pointing one way. spent: the zCDP budget of each step.
    simulated: whether the noise came from a numpy Generator.
    """

    estimate: np.ndarray
    noise_std: np.ndarray
    bias: np.ndarray
    center: np.ndarray
    sigma: np.ndarray
    forecast: ErrorForecast
    model_holds: bool
    spent: dict[str, float]
    simulated: bool

    def interval(self, confidence: float) -> tuple[Array, Array]:
        """(low, high), (d,) each: every entry of the sum is between them with at least this probability.

        confidence: in (0, 1). The noise and the variation by clipping count as normal; what clipping may have taken,
        bias, is added on both sides, which makes the interval wider than normal rows need. It says nothing of rows that
        are too few to be seen. Raises ValueError for another confidence.
        """
        z = float(-ndtri((1 - scalar(probability, confidence=confidence)) / 2))
        spread = self.noise_std * math.sqrt(1 + self.forecast.clipping / self.forecast.noise)
        half = z * spread + self.bias
        return self.estimate - half, self.estimate + half


@dataclass(frozen=True)
class AdaptiveForecast:
    """What a release is like for normal rows, before any data.

    error: the ErrorForecast. success: at least this is the probability that the search finds centre and spread. spent:
    the zCDP budget of each step.
    """

    error: ErrorForecast
    success: float
    spent: dict[str, float]


@dataclass(frozen=True)
class AdaptiveDataMechanism:
    """The sum of n rows close to N(mu, diag(sigma**2)) with mu and sigma unknown but for their ranges: rho-zCDP.

    n: the number of rows, public, a whole number >= 2. rho: the whole budget, > 0 and at most 1e6;
    `calibration.zcdp_rho` gives it for an (epsilon, delta). radius: R > 0 with |mu_j| <= R, at most 1e100. sigma_range:
    (least, greatest) standard deviation, from 1e-100 to 1e100. Data outside these ranges, or not normal at all, cost
    accuracy and never privacy. Rows longer than normal ones are noticed, and the clip norm is then chosen for the worst
    that they can do. Raises ValueError otherwise.

    It runs where rho is at least `least_rho(d)`, for d columns. Then the search finds its way but for a few runs in a
    hundred at most; `forecast` has the bound. What it finds is measured again before it is used. Rows that are few and
    far away are not seen, and clipped: fewer than a tenth of all at the least budget, and than 3 in 100 if n sqrt(rho)
    is between 500 and 2500.
    """

    n: int
    rho: float
    radius: float = field(kw_only=True)
    sigma_range: tuple[float, float] = field(kw_only=True)

    def __post_init__(self) -> None:
        n, rho = count(n=self.n), scalar(positive, rho=self.rho)
        if n < 2:
            raise ValueError(f"n must be at least 2, got {n}")
        bounds = between(*_RANGE, sigma_range=positive(sigma_range=self.sigma_range))
        if bounds.shape != (2,) or bounds[0] > bounds[1]:
            raise ValueError(f"sigma_range must be (least, greatest), got {self.sigma_range!r}")
        values = {"n": n, "rho": rho, "radius": scalar(positive, radius=self.radius)}
        between(0.0, _RANGE[1], radius=values["radius"])
        between(0.0, _MOST, rho=rho)
        for name, value in {**values, "sigma_range": tuple(bounds.tolist())}.items():
            object.__setattr__(self, name, value)

    def epsilon(self, delta: float) -> float:
        """The epsilon of its (epsilon, delta)-privacy. delta: in (0, 1); a DeltaWarning if it is 1/n or more."""
        epsilon = zcdp_epsilon(self.rho, delta)
        warn_of_delta(delta, self.n, stacklevel=3)
        return epsilon

    def least_rho(self, d: int) -> float:
        """The least budget with which the search finds its way among d columns: proportional to 1/n**2."""
        return least_rho(self.n, count(d=d), self.radius, self.sigma_range[0])

    def forecast(self, sigma: ArrayLike, center: ArrayLike = 0.0) -> AdaptiveForecast:
        """The AdaptiveForecast for rows N(center, diag(sigma**2)), before any data.

        sigma: (d,), > 0; center: a number or (d,). The search is gone through with the answers that are expected.
        Raises ValueError where release would: if rho is below least_rho(d).
        """
        sigma = vector(sigma=sigma)
        center = finite(center=center)
        if center.shape not in ((), sigma.shape):
            raise ValueError(f"center must be a number or have the {sigma.size} entries of sigma, got {center.shape}")
        center = np.broadcast_to(center, sigma.shape)
        self._require_enough(sigma.size)
        rows = ExpectedRows(self.n, self.rho, sigma, center)
        search = Search(rows, self.radius, self.sigma_range)
        search.run()
        found = last_round(search)
        return AdaptiveForecast(found.forecast, max(0.0, 1 - rows.failure), dict(rows.account.spent))

    def check(self, X: ArrayLike) -> None:
        """Raises what release would, as far as rho and n, and type and shape of X, tell it; no row of X is read.

        So a mistake that anybody may see is found before a budget is charged.
        """
        if isinstance(X, Iterator):
            raise TypeError("X must be an array that can be read several times, got an iterator")
        shape = unread(X=X)
        if shape is None:  # a data frame of dask's
            return
        rows, *columns = shape or (self.n,)
        if len(columns) != 1 and not isinstance(X, list | tuple):
            raise ValueError(f"X must have shape ({self.n}, columns), got {np.shape(X)}")
        if rows != self.n:
            raise ValueError(f"X must have the declared n = {self.n} rows, got {rows}")
        self._require_enough(columns[0] if columns else 1)

    def release(self, X: ArrayLike, *, rng: np.random.Generator | None = None) -> AdaptiveRelease:
        """An AdaptiveRelease of the sum of the rows of X, (n, d), which is read several times and never changed.

        Means are those of integers (`egm._rows`) with discrete Gaussian noise, whose cost in zCDP is that of the
        continuous one (Canonne, Kamath and Steinke 2020, Theorem 14). Without rng all randomness is secure. rng: a
        numpy Generator, which makes this a simulation. Raises ValueError for another number of rows, for a value
        that is not finite, or where rho is less than least_rho(d).
        """
        _tables.refuse_rows_of_tables(X)
        self.check(X)
        rows = PrivateRows(matrix(None, X=X), self.rho, rng)
        if rows.n != self.n:  # where X did not say it
            raise ValueError(f"X must have the declared n = {self.n} rows, got {rows.n}")
        self._require_enough(rows.d)
        search = Search(rows, self.radius, self.sigma_range)
        with np.errstate(under="ignore"):  # of answers, if the caller has switched it on
            search.run()
            center = search.center
            found = last_round(search)
        return AdaptiveRelease(
            estimate=self.n * found.mean,
            noise_std=found.noise_std,
            bias=found.bias,
            center=center,
            sigma=search.sigma,
            forecast=found.forecast,
            model_holds=found.model_holds,
            spent=dict(rows.account.spent),
            simulated=rng is not None,
        )

    def _require_enough(self, d: int) -> None:
        """A ValueError that says what would do, if the budget is too small for d columns."""
        least = self.least_rho(d)
        if self.rho < least:
            n = math.ceil(self.n * math.sqrt(least / self.rho) * (1 + 1e-12))
            least = _rounded_up(least)
            columns = "1 column" if d == 1 else f"{d} columns"
            raise ValueError(
                f"rho = {self.rho} is too small for n = {self.n} and {columns}: to find their centre and spread in "
                f"the declared ranges takes rho = {least:.4g}, or n = {n}"
            )


def _rounded_up(number: float) -> float:
    """To three digits, never less."""
    unit = 10.0 ** (math.floor(math.log10(number)) - 2)
    rounded = float(f"{math.ceil(number / unit) * unit:.3g}")
    return rounded if rounded >= number else rounded + unit
