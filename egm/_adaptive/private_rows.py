"""Answer the six questions that a search may ask about private rows, and record what each answer costs.

No other module of the search sees the rows. The cost of an answer is recorded before the rows are read, in
zero-concentrated differential privacy (Bun and Steinke 2016) for data sets of which one row is replaced:

    radius, spreads   A quantile among intervals with public bounds costs epsilon**2 / 8 for each exponential mechanism
                      (Cesar and Rogers 2021, Lemma 3.4).
    mean, squares     A sum of integer vectors of norm at most K, of which two differ by at most D K, plus discrete
                      Gaussian noise costs D**2 K**2 / (2 std**2) (Canonne, Kamath and Steinke 2020, Theorem 14).
    shells            Numbers of rows in shells, of which a replaced row changes two by one, cost 1 / std**2.
    longer            The number of rows beyond a distance, which a replaced row changes by one, costs 1 / (2 std**2).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np

from egm import quantiles, samplers
from egm._rows import lattice, norms
from egm._types import Array, Floats, Whole

__all__ = ["Account", "Intervals", "PrivateRows", "log_intervals"]

Intervals: TypeAlias = tuple[Array, Array]  # the bounds between intervals, and the middle of each interval

F = TypeVar("F", bound=Callable[..., Any])

_LARGEST = 1e150  # largest entry: longer ones are cut, so that no square overflows
_BLOCK = 1 << 20  # numbers handled at a time
_ROUNDED_DOWN = 1 - 2.0**-50  # factor that takes an epsilon below its exact value, in spite of four roundings
_ROUNDED_UP = 1 + 2.0**-50  # factor that takes a standard deviation above its exact value
_SQUARE = 12.0  # largest square, in units of its expectation


class Account:
    """Record the cost of each step of a budget rho. The exact sum of the costs is at most rho."""

    def __init__(self, rho: float) -> None:
        self.rho, self.spent = rho, dict[str, float]()

    @property
    def left(self) -> float:
        """Return the rest of the budget, rounded down."""
        return max(math.nextafter(float(Fraction(self.rho) - sum(map(Fraction, self.spent.values()))), 0.0), 0.0)

    def spend(self, step: str, rho: float) -> None:
        """Record the cost of a step, or raise a ValueError if the budget is too small for it."""
        before = self.spent.get(step, 0.0)
        after = math.nextafter(before + rho, math.inf) if before else rho  # never less than the sum
        if not rho > 0 or sum(map(Fraction, {**self.spent, step: after}.values())) > Fraction(self.rho):
            raise ValueError(f"rho = {self.rho} is too small: {step} needs {rho:.3g}, and {self.left:.3g} is left")
        self.spent[step] = float(after)


def log_intervals(low: float, high: float, step: float) -> Intervals:
    """Return the bounds between intervals, and the middle of each, for numbers from 0 to beyond `high`.

    From `low` on, the bounds have a constant ratio of about exp(step).
    """
    pieces = max(1, math.ceil(math.log(high / low) / step))
    bounds = np.geomspace(low, max(high, low * math.exp(step)), pieces + 1)
    return bounds, np.concatenate([bounds[:1], np.sqrt(bounds[1:]) * np.sqrt(bounds[:-1]), bounds[-1:]])


def _unseen(question: F) -> F:
    """Make a question run without floating-point warnings, because a warning could reveal a single row."""

    @functools.wraps(question)
    def asked(*given: Any) -> Any:
        with np.errstate(all="ignore"):
            return question(*given)

    return cast(F, asked)


class PrivateRows:
    """Answer questions about the rows X (n, d) within a budget rho; a NumPy Generator makes this a simulation."""

    def __init__(self, X: Array, rho: float, rng: np.random.Generator | None) -> None:
        self.X, self.rng, self.account = X, rng, Account(rho)
        self.n, self.d = X.shape

    @_unseen
    def radius(self, step: str, q: float, intervals: Intervals, rho: float, center: Array, b: Floats) -> float:
        """Return a private q-quantile of the distances ||b (x - center)||."""
        self.account.spend(step, rho)
        return self._quantile(self._distances(center, b), q, intervals, rho)

    @_unseen
    def spreads(self, step: str, intervals: Intervals, rho: float, center: Array) -> Array:
        """Return a private median of |x_j - center_j| for each column."""
        self.account.spend(step, rho)
        columns = (np.abs(np.clip(self.X[:, j], -_LARGEST, _LARGEST) - center[j]) for j in range(self.d))
        return np.array([self._quantile(column, 0.5, intervals, rho / self.d) for column in columns])

    @_unseen
    def mean(self, step: str, center: Array, b: Array, clip_norm: float, rho: float) -> tuple[Array, float]:
        """Return the noisy mean of the rows b (x - center), each clipped, and its noise's standard deviation."""
        self.account.spend(step, rho)
        return self._mean(lambda grid: grid.sum(self.X, center, b), clip_norm, 2.0, rho)

    @_unseen
    def squares(self, step: str, center: Array, spread: Array, rho: float) -> tuple[Array, float]:
        """Return the noisy mean of ((x - center) / spread)**2, cut and clipped, and its noise's standard deviation.

        Vectors of squares have no negative entry, so two vectors of norm at most V differ by at most sqrt(2) V.
        """
        self.account.spend(step, rho)
        cut = math.sqrt(_SQUARE)  # applied before squaring, because an overflow would reveal a long row
        squares = (np.minimum(np.abs((block - center) / spread), cut) ** 2 for block in self._blocks())
        zero = np.zeros(self.d, dtype=object)
        return self._mean(
            lambda grid: sum(map(grid.sum, squares), zero), 1.3 * math.sqrt(3 * self.d), math.sqrt(2), rho
        )

    @_unseen
    def shells(self, step: str, center: Array, b: Array, edges: Array, rho: float) -> tuple[Array, float]:
        """Return noisy numbers of rows between edges and beyond the last, and the noise's standard deviation."""
        self.account.spend(step, rho)
        std = 1 / math.sqrt(rho) * _ROUNDED_UP
        found = np.searchsorted(edges, self._distances(center, b), side="right")
        counts = np.bincount(found, minlength=edges.size + 1)[1:]
        return (counts + self._gaussian(std, edges.size)).astype(float), std

    @_unseen
    def longer(self, step: str, center: Array, b: Array, length: float, rho: float) -> tuple[float, float]:
        """Return the noisy number of rows at a distance beyond `length`, and its noise's standard deviation."""
        self.account.spend(step, rho)
        std = 1 / math.sqrt(2 * rho) * _ROUNDED_UP
        found = int(np.count_nonzero(self._distances(center, b) > length))
        return float(found + self._gaussian(std, 1)[0]), std

    def _quantile(self, values: Array, q: float, intervals: Intervals, rho: float) -> float:
        """Draw an interval that holds a private q-quantile, and return its middle."""
        bounds, middles = intervals
        counts = np.bincount(np.searchsorted(bounds, values), minlength=middles.size)
        epsilon = math.sqrt(8 * rho) * _ROUNDED_DOWN
        return float(middles[quantiles.interval(counts, q, epsilon, self.rng)])

    def _mean(
        self, total: Callable[[lattice.Lattice], Whole], clip_norm: float, diameter: float, rho: float
    ) -> tuple[Array, float]:
        """Return the noisy mean of clipped vectors at most `diameter` clip norms apart, and its noise's deviation."""
        std = diameter / math.sqrt(2 * rho)
        grid = lattice.Lattice(clip_norm, self.d, std)
        std *= grid.radius * _ROUNDED_UP
        noisy = total(grid) + self._gaussian(std, self.d)
        return noisy.astype(float) * (grid.unit / self.n), std * grid.unit / self.n

    def _gaussian(self, std: float, size: int) -> Whole:
        """Draw integers of Gaussian noise with this standard deviation."""
        if self.rng is None:
            return np.array(samplers.secure_gaussian(std, size), dtype=object)
        return np.rint(samplers.simulated_gaussian(np.full(size, std), self.rng))

    def _blocks(self) -> Iterator[Array]:
        """Yield the rows in blocks, with their entries limited to `_LARGEST`."""
        step = max(1, _BLOCK // self.d)
        return (np.clip(self.X[i : i + step], -_LARGEST, _LARGEST) for i in range(0, self.n, step))

    def _distances(self, center: Array, b: Floats) -> Array:
        """Return ||b (x - center)|| for every row x."""
        return np.concatenate([norms.norms((block - center) * b) for block in self._blocks()])
