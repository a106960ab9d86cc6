"""The sum of normal rows whose centre and spread nobody knows: both are found out privately, a little at a time.

Everything below is a release in zero-concentrated differential privacy (Bun and Steinke 2016) for data sets of which
one row is replaced, and what the releases cost adds up. Later releases are chosen by the results of earlier ones; the
total is fixed beforehand, which is all that is needed (Feldman and Zrnic 2021).

1. Locate. The rows are clipped to a ball around the last centre, with the private median of their distances for its
   radius, and their noisy mean is the next centre. Each round divides the distance by a constant, until the radius is
   that of the data themselves.
2. Spread. Three private quantiles of the squared distances give their effective dimension, (sum s^2)^2 / sum s^4. A
   scaling can gain at most d over that (Hoelder's inequality), so where it is nearly d all coordinates get the same
   standard deviation; otherwise each its own, a private median of |x_j - center_j|.
3. Refine. Rows are scaled, clipped and averaged as in Algorithm 3, with the clip norm of least forecast error, and the
   noisy mean is the next centre. The last round has most of the budget, and is the release. Clipping pulls it towards
   the last centre, so what the rounds before have learnt is not lost: it counts as much as its accuracy deserves.
4. Doubt. Before the last round a high private quantile of the norms is held against the model. Where it is beyond it,
   clipped parts need not cancel: they may all point one way. Then the clip norm is that of least error in this case,
   for the exponential tail through two or three private quantiles.

How much each round gets is what makes the forecast of the last one least.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from scipy.special import wrightomega

from egm import _rows, _tables, error, gx2, lattice, noise, quantiles, scaling
from egm._types import Array, ArrayLike, FloatOrArray, Floats
from egm._validate import between, count, matrix, positive, scalar, unread, warn_of_delta
from egm.calibration import zcdp_epsilon

__all__ = ["AdaptiveDataMechanism", "AdaptiveRelease"]

_PACE = 0.6  # part of a ball's radius that is left of the centre's error after a round
_ROUNDS = 60
_LEAST = 20.0  # n sqrt(rho), below which every quantile is noise; from there to about 300 it is a matter of luck
_RANGE = 1e-100, 1e100  # of standard deviations whose squares, and those of entries in their units, are doubles
_MOST = 1e6  # rho: a budget that protects nobody, and noise that is still many units of the lattice
_LARGEST = 1e150  # entries beyond it are shortened, lest their squares overflow
_STEP, _COARSE_STEP = 1 / 400, 1 / 50  # of the logarithm of a quantile of secure randomness: of one, of many
_ROUNDED_DOWN = 1 - 2.0**-50  # of an epsilon: more than the roundings of the four operations on its way
_SHRUNK = 0.85  # a radius that shrinks by less has reached the data
_ALIKE = 1.15  # d over the effective dimension, up to which one standard deviation serves all
_DEEP = 45.0  # epsilon n for a median that must not go wrong in one coordinate of thousands
_SURE = 160.0  # epsilon n for a quantile of the distances
_TAIL = 0.1  # share of the rows beyond the quantile that is held against the model
_TAIL_SURE = 400.0  # epsilon n for it
_SLACK = 1.04  # what wrong standard deviations may do to it
_FAR = 32.0  # epsilon n p for a quantile that a share p of the rows exceeds
_SHARES = (0.01, 0.03, 0.1, 0.2)  # of the budget, tried for the rounds before the last
_NORMAL_MEDIAN = 0.6744897501960817  # of |Z|
_NORMAL_80 = 0.8416212335729143  # upper 0.2-quantile of Z


@dataclass(frozen=True, eq=False)
class AdaptiveRelease:
    """What may be published: the sum, and everything that was found out privately on the way to it.

    estimate: of the sum of the rows, (d,). noise_std: of the last noise in it, (d,). center, sigma: the last centre
    before it and the standard deviations, (d,). forecast: the ErrorForecast of the estimate, from released numbers
    only. model_holds: whether the norms of the rows looked like those of normal rows; if not, the clip norm comes from
    their own tail, and forecast.center from all clipped parts pointing one way. spent: the zCDP budget of each step.
    simulated: whether the noise came from a numpy Generator.
    """

    estimate: np.ndarray
    noise_std: np.ndarray
    center: np.ndarray
    sigma: np.ndarray
    forecast: error.ErrorForecast
    model_holds: bool
    spent: dict[str, float]
    simulated: bool


@dataclass(frozen=True)
class AdaptiveDataMechanism:
    """The sum of n rows close to N(mu, diag(sigma**2)) with mu and sigma unknown but for their ranges: rho-zCDP.

    n: the number of rows, public, a whole number >= 2. rho: the whole budget, > 0 and at most 1e6;
    `calibration.zcdp_rho` gives it for an (epsilon, delta). radius: R > 0 with |mu_j| <= R, at most 1e100. sigma_range:
    (least, greatest) standard deviation, from 1e-100 to 1e100. Data outside these ranges, or not normal at all, cost
    accuracy and never privacy. Rows longer than normal ones are noticed, and the clip norm is then chosen for the worst
    that they can do. Raises ValueError otherwise.

    It runs if n sqrt(rho) is 20 or more, and needs some 300 to find centre and spread. Below that a search can lose its
    way: the error can then be thousands of times the sampling error and more, and the forecast does not show it.
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

    def check(self, X: ArrayLike) -> None:
        """Raises what release would, as far as rho and n, and type and shape of X, tell it; no row of X is read.

        So a mistake that anybody may see is found before a budget is charged.
        """
        if self.n * np.sqrt(self.rho) < _LEAST:
            raise ValueError(f"rho = {self.rho} is too small for n = {self.n}: n sqrt(rho) must be at least {_LEAST:g}")
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

    def release(self, X: ArrayLike, *, rng: np.random.Generator | None = None) -> AdaptiveRelease:
        """An AdaptiveRelease of the sum of the rows of X, (n, d), which is read several times and never changed.

        Without rng all randomness is secure: means are those of integers (`egm.lattice`) with discrete Gaussian noise,
        whose cost in zCDP is that of the continuous one (Canonne, Kamath and Steinke 2020, Theorem 14), and quantiles
        come from a lattice, too. rng: a numpy Generator, which makes this a simulation. Raises ValueError for another
        number of rows, for a value that is not finite, or where rho is less than (20 / n)**2.
        """
        _tables.refuse_rows_of_tables(X)
        self.check(X)
        return _Search(self, matrix(None, X=X), rng).run()


class _Search:
    """One run: what is known so far, all of it released, and what is left of the budget.

    center (d,), known up to center_std (d,) in each coordinate; sigma (d,).
    """

    def __init__(self, mechanism: AdaptiveDataMechanism, X: Array, rng: np.random.Generator | None) -> None:
        self.X, self.rng, self.rho = np.clip(X, -_LARGEST, _LARGEST), rng, mechanism.rho
        self.n, self.d = X.shape
        self.spent: dict[str, float] = {}
        least, greatest = mechanism.sigma_range
        root = np.sqrt(self.d)
        self.smallest, self.largest = 0.1 * root * least, 2 * root * (mechanism.radius + 3 * greatest)
        self.sigma_range = mechanism.sigma_range
        self.center, self.center_std = np.zeros(self.d), np.full(self.d, mechanism.radius)
        self.once = min(_SURE**2 / (8 * self.n**2), 0.005 * self.rho)  # what a quantile of the distances costs

    def run(self) -> AdaptiveRelease:
        """Locate, spread, refine."""
        alike = self.locate()
        *before, last = self.plan()
        for step, rho in enumerate(before, start=1):
            self.refine(f"center {step}", rho)
        if not alike:
            self.remeasure_sigma(0.01 * self.rho)
        return self.release(min(last, self.left - self.once - self.doubt))

    @property
    def left(self) -> float:
        """What is left of the budget, rounded down."""
        return math.nextafter(float(Fraction(self.rho) - sum(map(Fraction, self.spent.values()))), 0.0)

    def spend(self, step: str, rho: float) -> None:
        """Charge a step before it looks at the data. What is charged in all is at most the budget, without rounding."""
        before = self.spent.get(step, 0.0)
        after = math.nextafter(before + rho, math.inf) if before else rho  # never less than the sum
        if not rho > 0 or sum(map(Fraction, {**self.spent, step: after}.values())) > Fraction(self.rho):
            raise ValueError(f"rho = {self.rho} is too small: {step} needs {rho:.3g}, and {self.left:.3g} is left")
        self.spent[step] = after

    def norms(self, b: Floats = 1.0) -> Array:
        """Distances of the scaled rows from the centre."""
        return _rows.norms((self.X - self.center) * b)

    def distance(self, q: float, low: float, high: float, b: Floats = 1.0) -> float:
        """A private q-quantile of the distances, searched on a logarithmic scale."""
        self.spend("radii", self.once)
        return self.log_quantile(self.norms(b), q, low, high, self.once)

    def log_quantile(self, values: Array, q: float, low: float, high: float, rho: float) -> FloatOrArray:
        """A private q-quantile of positive values, (n,) or (n, k), on a logarithmic scale; of this cost a column."""
        logs, low, high = np.log(np.maximum(values, low)), np.log(low), np.log(high)
        epsilon = np.sqrt(8 * rho) * _ROUNDED_DOWN
        if self.rng is not None:
            return np.exp(quantiles.quantile(logs, q, low, high, epsilon, self.rng))
        step = _STEP if values.ndim == 1 else _COARSE_STEP
        return np.exp(quantiles.secure_quantile(logs, q, low, high, epsilon, step))

    def noisy_mean(self, b: Floats, clip_norm: float, rho: float) -> tuple[Array, float]:
        """The private mean of the scaled rows around the centre, each clipped, and the standard deviation of its
        noise."""
        return self.mean_of_clipped((self.X - self.center) * b, clip_norm, 2, rho)

    def mean_of_clipped(self, rows: Array, clip_norm: float, diameter: float, rho: float) -> tuple[Array, float]:
        """The private mean of rows clipped to a norm, and the standard deviation of its noise.

        diameter: how far two clipped rows can be apart, in clip norms.
        """
        std = diameter / np.sqrt(2 * rho)
        if self.rng is not None:
            mean, std = np.mean(_rows.clip(rows, clip_norm), axis=0), std * clip_norm / self.n
            return mean + noise.simulated_gaussian(np.full(self.d, std), self.rng), std
        grid = lattice.Lattice(clip_norm, self.d, std)
        std = std * grid.radius * (1 + 2.0**-50)  # the roundings of the three operations
        total = grid.sum(rows) + noise.secure_gaussian(std, self.d)
        return total.astype(float) * (grid.unit / self.n), std * grid.unit / self.n

    # Locate -----------------------------------------------------------------------------------------------------------

    def locate(self) -> bool:
        """Centre and standard deviations to begin with; whether the latter are all the same."""
        cost = min(2 * self.d / (self.n * _PACE) ** 2, 0.02 * self.rho)
        radius = self.distance(0.5, self.smallest, self.largest)
        for _ in range(_ROUNDS):
            self.step_to(1.1 * radius, cost)
            before, radius = radius, self.distance(0.5, self.smallest, self.largest)
            if radius > _SHRUNK * before or self.left < 0.8 * self.rho:
                break
        self.step_to(self.distance(0.8, radius / 3, 10 * radius), 0.01 * self.rho)
        low, middle, high = (self.distance(q, radius / 10, 10 * radius) ** 2 for q in (0.2, 0.5, 0.8))
        effective = 2 * (middle * 2 * _NORMAL_80 / max(high - low, 1e-9 * middle)) ** 2
        alike = effective > self.d / _ALIKE
        self.measure_sigma(np.sqrt(middle), alike)
        return alike

    def step_to(self, radius: float, rho: float) -> None:
        """Move the centre to the noisy mean of the rows clipped to a ball."""
        self.spend("locate", rho)
        mean, std = self.noisy_mean(1.0, radius, rho)
        self.center = self.center + mean
        self.center_std = np.hypot(std, 0.1 * np.minimum(self.center_std, radius))

    # Spread -----------------------------------------------------------------------------------------------------------

    def measure_sigma(self, radius: float, alike: bool) -> None:
        """All standard deviations from the typical distance, or each from its own median."""
        typical = radius / np.sqrt(self.d)
        if alike:
            self.set_sigma(np.full(self.d, typical))
            return
        cost = max(self.d * (_DEEP / self.n) ** 2 / 8, 0.01 * self.rho)
        cost = min(cost, 0.3 * self.rho)
        self.spend("spread", cost)
        low = max(self.sigma_range[0] / 2, typical / 100)
        high = max(1.5 * radius, 2 * low)  # where few rows are told from noise the radius can be below the range
        median = self.log_quantile(np.abs(self.X - self.center), 0.5, low, high, cost / self.d)
        self.set_sigma(median / _NORMAL_MEDIAN)

    def remeasure_sigma(self, rho: float) -> None:
        """Second moments of the rows divided by their standard deviations: nearly 1 each, and all at once.

        Vectors of squares have no negative entry, so two of norm at most V differ by at most sqrt(2) V.
        """
        self.spend("spread", rho)
        spread = self.spread()
        # Cut before they are squared, lest a long row is seen by its overflow.
        squares = np.minimum(np.abs((self.X - self.center) / spread), np.sqrt(12.0)) ** 2
        largest = 1.3 * np.sqrt(3 * self.d)
        mean, std = self.mean_of_clipped(squares, largest, np.sqrt(2), rho)
        self.set_sigma(spread * np.sqrt(np.maximum(mean, max(0.1, std))))

    def spread(self) -> Array:
        """Standard deviations of the rows about the centre, whose own error is in them."""
        return np.hypot(self.sigma, self.center_std)

    def set_sigma(self, spread: Array) -> None:
        """What is left of the spread without the error of the centre."""
        sigma = np.sqrt(np.maximum(spread**2 - self.center_std**2, (0.3 * spread) ** 2))
        self.sigma = np.clip(sigma, *self.sigma_range)

    # Refine -----------------------------------------------------------------------------------------------------------

    def plan(self) -> list[float]:
        """Budgets of the rounds, the last one included: those that make the forecast of the last round least."""
        left = self.left - 3 * self.once - self.doubt - 0.01 * self.rho
        alike = self.groups()
        after: dict[tuple[float, ...], tuple[Array, Array]] = {
            (): alike[:2]
        }  # sigma and the centre's standard deviation, by the shares spent
        for share in _SHARES:
            after[share,] = self.foresee(*after[()], share * left, alike[2])
        for first, second in itertools.combinations(_SHARES, 2):
            after[first, second] = self.foresee(*after[first,], second * left, alike[2])
        last = {shares: self.foresee(*state, (1 - sum(shares)) * left, alike[2]) for shares, state in after.items()}
        best = min(last, key=lambda shares: np.sum(alike[2] * last[shares][1] ** 2))
        return [share * left for share in (*best, 1 - sum(best))]

    def groups(self) -> tuple[Array, Array, Array]:
        """At most 64 groups of coordinates of nearly the same spread: their sigma, center_std and sizes."""
        order = np.argsort(self.spread())
        groups = np.array_split(order, min(self.d, 64))
        squares = [[np.mean(v[group] ** 2) for group in groups] for v in (self.sigma, self.center_std)]
        return *np.sqrt(squares), np.array([group.size for group in groups])

    def foresee(self, sigma: Array, center_std: Array, rho: float, copies: Floats) -> tuple[Array, Array]:
        """The state after a round of this budget."""
        b = scaling.expected_norm(np.hypot(sigma, center_std))
        return sigma, self.outcome(b, rho, sigma, center_std, copies, tolerance=0.05)[1]

    def outcome(
        self, b: Array, rho: float, sigma: Array, center_std: Array, copies: Floats = 1, tolerance: float = 1e-4
    ) -> tuple[float, Array]:
        """The best clip norm for one round, and the centre's standard deviations after it."""
        std, sigma = 2 / (self.n * np.sqrt(2 * rho)), _seen(sigma, center_std)
        clip_norm, _ = error.best_clip_norm(
            lambda c: np.sum(copies * (self.n * std * c / b) ** 2), sigma, self.n, b, center_std, copies, tolerance
        )
        variance, squared_bias = error.loss_of_a_row(sigma, b, clip_norm, center_std, copies=copies)
        lost = (variance / self.n + squared_bias) / copies
        return clip_norm, np.sqrt((std * clip_norm / b) ** 2 + lost)

    def calibrated(self) -> Array:
        """The scaling, with sigma corrected by one factor so that the median distance is what it says.

        One number costs next to nothing, and it is what the clip norm hangs on.
        """
        b = scaling.optimal(self.spread(), 0.05)
        median = self.distance(0.5, 1e-2, 1e2, b)
        factor = median / np.sqrt(gx2.isf(0.5, (b * self.spread()) ** 2))
        self.sigma = np.clip(self.sigma * factor, *self.sigma_range)
        self.center_std = self.center_std * factor
        return b

    def refine(self, step: str, rho: float) -> None:
        """One round of Algorithm 3."""
        b = self.calibrated()
        clip_norm, center_std = self.outcome(b, rho, self.sigma, self.center_std)
        self.average(step, rho, b, clip_norm)
        self.center_std = center_std

    def average(self, step: str, rho: float, b: Array, clip_norm: float) -> Array:
        """Move the centre to the noisy mean of the scaled and clipped rows; returns the noise_std of their sum."""
        self.spend(step, rho)
        mean, std = self.noisy_mean(b, clip_norm, rho)
        self.center = self.center + mean / b
        return self.n * std / b

    # Doubt ------------------------------------------------------------------------------------------------------------

    @property
    def doubt(self) -> float:
        """What one look at the tail of the norms costs."""
        return min(_TAIL_SURE**2 / (8 * self.n**2), 0.03 * self.rho)

    def quantile_beyond(self, p: float, low: float, high: float, b: Array, cost: float) -> float:
        """The norm that a share p of the scaled rows exceeds, by a private quantile of this cost."""
        self.spend("tail", cost)
        return self.log_quantile(self.norms(b), 1 - p, low, high, cost)

    def tail(self, b: Array) -> _Tail | None:
        """The _Tail of the norms, or None where they are not longer than those of normal rows."""
        weights = (b * self.spread()) ** 2
        median = np.sqrt(gx2.isf(0.5, weights))  # the released one, by the calibration
        found = self.quantile_beyond(_TAIL, median / 3, 10 * median, b, self.doubt)
        chance = 6 / (np.sqrt(8 * self.doubt) * self.n) + 2 * np.sqrt(_TAIL / self.n)
        if found <= _SLACK * np.sqrt(gx2.isf(max(_TAIL - chance, _TAIL / 5), weights)):
            return None
        cost = 0.02 * self.rho
        far = max(_FAR / (np.sqrt(8 * cost) * self.n), _TAIL / 10)
        if far > 0.6 * _TAIL:
            return _Tail(found, (found - median) / np.log(0.5 / _TAIL), _TAIL * self.n)
        scale = (self.quantile_beyond(far, found, 5 * found, b, cost) - found) / np.log(_TAIL / far)
        return _Tail(found, max(scale, 0.05 * found), _TAIL * self.n)

    def release(self, rho: float) -> AdaptiveRelease:
        """The last round."""
        b = self.calibrated()
        tail = self.tail(b)
        rho, center = min(rho, self.left), self.center
        clip_norm, _ = self.outcome(b, rho, self.sigma, self.center_std)
        one_sided = 0.0
        if tail is not None:
            back = np.sum(self.spread() ** 2) / np.sum((b * self.spread()) ** 2)  # from scaled squares, on average
            noise_of_one = np.sum((2 / (b * np.sqrt(2 * rho))) ** 2)
            clip_norm = max(clip_norm, tail.clip_norm(noise_of_one / back))
            one_sided = back * tail.excess(clip_norm) ** 2
        sigma = _seen(self.sigma, self.center_std)
        clipping, off_center = error.clipping(sigma, self.n, b, clip_norm, self.center_std)
        noise_std = self.average("sum", rho, b, clip_norm)
        forecast = error.ErrorForecast(float(np.sum(noise_std**2)), clipping, off_center + float(one_sided))
        estimate, spent, simulated = self.n * self.center, dict(self.spent), self.rng is not None
        return AdaptiveRelease(estimate, noise_std, center, self.sigma, forecast, tail is None, spent, simulated)


def _seen(sigma: Array, center_std: Array) -> Array:
    """Standard deviations for a forecast: next to a centre 30 times as uncertain, smaller ones change it by a
    thousandth, and could not be computed with if they are much smaller."""
    return np.maximum(sigma, center_std / 30)


@dataclass(frozen=True)
class _Tail:
    """rows exp(-(t - start) / scale) rows are longer than t."""

    start: float
    scale: float
    rows: float

    def excess(self, clip_norm: float) -> float:
        """The sum of what the rows have beyond the clip norm: the most that clipping can take from their sum."""
        return self.rows * self.scale * np.exp(-(clip_norm - self.start) / self.scale)

    def clip_norm(self, noise: float) -> float:
        """The C that makes noise C**2 + excess(C)**2 least: where (2C / scale) exp(2C / scale) is what follows."""
        log = np.log(2 * self.rows**2 / noise) + 2 * self.start / self.scale
        return float(self.scale / 2 * wrightomega(log))
