r"""Turn a noisy sum of rows into what is published: means, intervals, and a table with one row for each column.

If the number of rows is private, a mean is a ratio of two noisy numbers. With the center c, the noisy sum S of the
centered rows and the noisy number N of rows, the estimate of the mean is c + S / N. For the exact mean m of the rows,
the difference S - N (m - c) consists of noise and of what clipping removed, whatever m is. So the interval for m has
all numbers m for which this difference is not too large (Fieller 1954):

.. math::

    |S - N (m - c)| \le q \sqrt{v_S + (m - c)^2 v_N} + \beta,

where :math:`v_S` and :math:`v_N` are the variances of S and N, and :math:`\beta` bounds the mean of what clipping
removed. If an interval may fail with probability :math:`\alpha`, let z be the upper quantile of the standardized noise
for :math:`\alpha / 2`. If :math:`\beta = 0`, or for l2 noise, q is z. For normal noise, q falls to the quantile for
:math:`\alpha` as :math:`\beta` grows. The function `half_lengths` computes the right side, and allows for noise in
:math:`\beta`. The interval keeps its confidence for small numbers of rows, too. It is unbounded if
:math:`N \le z \sqrt{v_N}`, because the exact number of rows may then be zero.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from scipy.special import ndtr, ndtri

from egm._l2 import coordinate_quantile
from egm._types import Array, Columns, NoiseLaw
from egm._validate import probability, scalar

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["Parts", "RowSum", "half_lengths", "table", "with_clipping"]

Of: TypeAlias = Literal["sum", "mean", "population"]

_STEPS = 60  # largest number of iterations; mostly six are enough in `half_lengths`, and four in `_ratio`


class Parts:
    """Describe how far the noisy sum of centered rows may be from the exact sum, for each column.

    All attributes but the number `count_std` have the shape (d,), or are 0. `std`, `bias`, `bias_std` and `spread` may
    also have the shape (2, d), with one row for the lower and one for the upper ends of intervals.

    - `center`: what is subtracted from each row.
    - `noise_std`: standard deviation of the noise.
    - `std`: standard deviation of the noise and of what clipping removed, together.
    - `bias`: bound on the mean of what clipping removed from the sum; `bias_std` is the standard deviation of the noise
      in this bound. If `bias` is the number of rows times a bound for one row, `bias_of_row` is the bound for one row.
    - `spread`: standard deviation of the rows, guessed or estimated.
    - `count_std`: standard deviation of the noise in the number of rows, or 0 if this number is public.
    - `shift`: 0, or a noisy estimate of that part of what clipping removed which was not added to the noisy sum.
      Intervals lie around the noisy sum plus `shift`. The noise in `shift` is a part of `std`.
    """

    def __init__(
        self,
        center: Array,
        noise_std: Array,
        std: Array,
        bias: Array,
        spread: Array,
        count_std: float,
        bias_std: Array | float = 0.0,
        bias_of_row: Array | float = 0.0,
    ) -> None:
        self.center, self.noise_std, self.std, self.bias, self.spread = center, noise_std, std, bias, spread
        self.count_std, self.bias_std, self.bias_of_row = count_std, bias_std, bias_of_row
        self.shift: Array | float = 0.0


class RowSum(ABC):
    """Base class of releases of a sum of rows, with means, intervals, and a table that has a row for each column."""

    estimate: Array
    noise_std: Array
    columns: Columns
    n: float  # the number of rows: the public one, or the noisy one that was released, but at least 1

    @abstractmethod
    def _parts(self) -> Parts:
        """Return the standard deviation and the bias of the noisy sum in each column, as an object `Parts`."""

    def _law(self) -> tuple[NoiseLaw, int]:
        """Return the law of the noise, "gaussian" or "l2", and the number of coordinates of a draw of l2 noise.

        The density of l2 noise falls exponentially with the norm.
        """
        return "gaussian", 1

    @property
    def sum(self) -> Array:
        """Return the noisy sum of the rows, shape (d,): another name of `estimate`."""
        return self.estimate

    @property
    def mean(self) -> Array:
        """Return the noisy mean of the rows, shape (d,): NaN if the noisy number of rows is below 1."""
        count = self._noisy_count()
        return self.estimate / count if count >= 1 else np.full(self.estimate.shape, np.nan)

    @property
    def mean_std(self) -> Array:
        """Return the standard deviation of the noise in `mean`, shape (d,), to first order if `n` is noisy."""
        parts = self._parts()
        of_count = parts.count_std * (self.mean - parts.center) if parts.count_std else 0.0
        return np.hypot(parts.noise_std, of_count) / max(self._noisy_count(), 1.0)

    def interval(self, confidence: float = 0.95, *, of: Of = "sum", simultaneous: bool = False) -> tuple[Array, Array]:
        """Compute for each column an interval that contains the exact sum, or mean, with a given probability.

        Parameters
        ----------
        confidence : float, default 0.95
            Probability in (0, 1).
        of : {"sum", "mean", "population"}, default "sum"
            What the interval contains: the exact sum of the rows; their exact mean; or the mean of
            the population from which the rows are a random sample.
        simultaneous : bool, default False
            Whether all intervals hold at once with the probability `confidence`, by Bonferroni's
            inequality. By default each one holds with this probability.

        Returns
        -------
        low : ndarray, shape (d,)
            Lower ends of the intervals, in the units of the data.
        high : ndarray, shape (d,)
            Upper ends of the intervals.

        Raises
        ------
        ValueError
            If `confidence` is not in (0, 1), or if `of` is none of the three texts.
        TypeError
            If `confidence` is not a real number.

        Notes
        -----
        An interval allows for the noise, and for the mean and the variation of what clipping removes
        from the rows. It assumes that the guesses of center and standard deviations are no worse
        than was declared to the mechanism (by `center_std` and `sigma_factor`). The interval for the
        population also allows for the variation of the rows. If a person may have k rows, these are
        taken to be equal, which is the worst case. If the number of rows is private, the interval of
        a mean is that of Fieller (1954), which keeps its confidence for small numbers of rows, too:
        if the number of rows may be zero, the interval is unbounded.

        A `GaussianDataMechanism` assumes rows that are nearly normal. If they are not, clipping
        removes more from the rows than the interval allows for. If the law of the rows is skewed, the
        sum of what clipping removes always has the same sign, and the interval of the mean is too
        short where this sum exceeds the noise. ``benchmarks.intervals`` simulates 400 releases from
        each of fifty laws, with guesses as wrong as declared and two columns. The intervals with 95
        percent confidence contain the mean in 94.4 percent of the cases (with a standard error of
        0.8) for normal rows, in 95 to 97 percent for uniform and triangular rows and for binary
        rows with probability 1/2, in 87 percent for rows with a Poisson law or a t law with 10
        degrees of freedom, in 65 percent for exponential rows, and in 39 percent for lognormal
        rows. For a column in which one row in a hundred is 1 and all others are 0, no interval
        contains the mean, unless `sigma` is declared as 0.5. Set `count_clipped` and look at
        `GaussianDataMechanism.excess_clipped` to find out about this, or take an
        `egm.adaptive.AdaptiveDataMechanism`, which estimates how many rows are long.

        Examples
        --------
        >>> import numpy as np
        >>> from egm import GaussianDataMechanism
        >>> mechanism = GaussianDataMechanism({"age": 18, "income": 1200}, 10_000, 1, 1e-6, center=[40, 2500])
        >>> X = np.random.default_rng(1).normal([41, 2450], [17, 1150], size=(10_000, 2))
        >>> release = mechanism.release(X, rng=np.random.default_rng(2))
        >>> low, high = release.interval(0.95, of="mean")
        >>> print(low.round(1), X.mean(axis=0).round(1), high.round(1))
        [  39.9 2428.2] [  40.8 2438.5] [  41.8 2444.7]
        """
        return self._ends(self._parts(), confidence, of, simultaneous)

    def _ends(
        self, parts: Parts, confidence: float, of: Of, simultaneous: bool, proved: bool = False
    ) -> tuple[Array, Array]:
        """Return the lower and the upper ends of confidence intervals, one for each column, as two vectors.

        `parts` says how far the noisy sum may be from the exact sum. `of`, such as "sum", says what the intervals
        contain. Each interval may fail with the probability 1 - `confidence`. If `simultaneous` is true, this is the
        probability that any of the intervals fails. If `proved` is true, each of the two ends of an interval is wrong
        with at most half of the probability with which the interval may fail. Otherwise intervals may be shorter, and
        one end alone may be wrong with the whole of this probability.
        """
        if of not in ("sum", "mean", "population"):
            raise ValueError(f'of must be "sum", "mean" or "population", got {of!r}')
        fail = 1 - scalar(probability, confidence=confidence)
        law, size = self._law()
        tail = fail / (len(self.estimate) if simultaneous else 1) / 2
        z = _quantile(tail, law, size)

        def half(variance: Array) -> Array:
            if proved:
                return z * np.sqrt(variance + parts.bias_std**2) + parts.bias
            return half_lengths(np.sqrt(variance), parts.bias, parts.bias_std, tail, law, size)

        if of == "sum":
            of_count = parts.count_std * (np.abs(parts.center) + parts.bias_of_row)
            down, up = np.broadcast_to(half(parts.std**2 + of_count**2), (2, parts.center.size))
            return self.estimate + parts.shift - down, self.estimate + parts.shift + up
        variance = parts.std**2 + (self.n * parts.spread**2 if of == "population" else 0.0)
        count = self._noisy_count()
        low, high = _ratio(self.estimate + parts.shift - count * parts.center, count, variance, parts, z, half)
        return parts.center + low, parts.center + high

    def _noisy_count(self) -> float:
        """Return the number N of rows for which the estimate is the noisy sum of the centered rows plus N * center.

        N is the public number of rows or, if it is private, the noisy number. Unlike `n`, a noisy N may be below 1.
        """
        return self.n

    def to_frame(self, confidence: float = 0.95, backend: str | ModuleType | None = None) -> Any:
        """Make a data frame of the release, with one row for each column of the data.

        Parameters
        ----------
        confidence : float, default 0.95
            Probability of each interval, in (0, 1).
        backend : {"pandas", "polars", "pyarrow"} or module, optional
            Library of the data frame; by default the first one of these that is installed.

        Returns
        -------
        DataFrame or Table
            Data frame with the columns ``column`` (name or number), ``sum``, ``noise_std``, ``mean``,
            ``mean_std``, ``low`` and ``high`` (the interval for the mean of the rows),
            ``population_low`` and ``population_high`` (that for the mean of the population), all in
            the units of the data.

        Raises
        ------
        ModuleNotFoundError
            If the library is not installed.
        ValueError
            If `confidence` is not in (0, 1), or if `backend` is another text.

        Examples
        --------
        >>> import numpy as np
        >>> from egm import GaussianDataMechanism
        >>> mechanism = GaussianDataMechanism({"age": 18, "income": 1200}, 10_000, 1, 1e-6, center=[40, 2500])
        >>> X = np.random.default_rng(1).normal([41, 2450], [17, 1150], size=(10_000, 2))
        >>> frame = mechanism.release(X, rng=np.random.default_rng(2)).to_frame(backend="pyarrow")
        >>> frame["column"].to_pylist(), [round(mean, 1) for mean in frame["mean"].to_pylist()]
        (['age', 'income'], [40.9, 2436.4])
        """
        return table(self.rows(confidence), backend)

    def rows(self, confidence: float = 0.95) -> dict[str, Any]:
        """Return the table of `to_frame` as a dictionary of lists, for which no library of data frames is needed.

        Parameters
        ----------
        confidence : float, default 0.95
            Probability of each interval, in (0, 1).

        Returns
        -------
        dict of str to list
            Columns of the table by their names.

        Examples
        --------
        >>> import numpy as np
        >>> from egm import GaussianDataMechanism
        >>> mechanism = GaussianDataMechanism({"age": 18, "income": 1200}, 10_000, 1, 1e-6, center=[40, 2500])
        >>> release = mechanism.release(np.full((10_000, 2), 40.0), rng=np.random.default_rng(2))
        >>> list(release.rows())
        ['column', 'sum', 'noise_std', 'mean', 'mean_std', 'low', 'high', 'population_low', 'population_high']
        """
        named: list[Hashable] = list(range(len(self.estimate)) if self.columns is None else self.columns)
        vectors = {"sum": self.sum, "noise_std": self.noise_std, "mean": self.mean, "mean_std": self.mean_std}
        for prefix, of in (("", "mean"), ("population_", "population")):
            low, high = self.interval(confidence, of=of)  # type: ignore[arg-type]  # is one of its values
            vectors |= {f"{prefix}low": low, f"{prefix}high": high}
        return {"column": named, **{name: vector.tolist() for name, vector in vectors.items()}}


def _quantile(tail: float, law: NoiseLaw, size: int) -> float:
    """Return how many standard deviations a normal variable of mean zero exceeds with the probability `tail`.

    If `law` is "l2", the corresponding number for one coordinate of l2 noise in `size` dimensions (with a density that
    falls exponentially with the norm) is computed, too, and the larger number is returned.
    """
    z = float(-ndtri(tail))
    return z if law == "gaussian" else max(z, coordinate_quantile(tail, size))


def with_clipping(noise_std: Array, clipping: float, share: Array, further: Array | float = 0.0) -> Array:
    """Return the standard deviation of the error of each entry of a noisy sum: noise and random clipping together.

    `noise_std`, shape (d,), has the standard deviations of the noise. `clipping` is the expected squared error of the
    whole sum that is due to the variation of what clipping removes, and `share`, shape (d,), the part of each entry in
    this error. `further` is the standard deviation of further noise in each entry.
    """
    return np.hypot(np.hypot(noise_std, np.sqrt(share * clipping)), further)


def half_lengths(
    std: Array, bias: Array, bias_std: Array | float, tail: float, law: NoiseLaw = "gaussian", size: int = 1
) -> Array:
    r"""Return half of the length of intervals around estimates whose error has a bias of unknown sign.

    The error of an estimate has the standard deviation `std` and a mean between -B and B. B is not known: `bias`
    estimates it, with independent normal noise of the standard deviation `bias_std`. An interval may fail with the
    probability 2 `tail`. If `law` is "gaussian", the error is normal, and the result is the least T for which

    .. math::

        \Phi(-(T - \text{bias}) / s) + \Phi(-(T + \max(\text{bias}, 0)) / \text{std}) \le 2 \, \text{tail},
        \qquad s^2 = \text{std}^2 + \text{bias\_std}^2,

    but at least `bias` and at least z `std`, where z is the upper quantile of the normal law :math:`\Phi` for `tail`.
    The first term stands for errors above T in the direction of the bias, and the second term for errors above T in the
    other direction. If `bias_std` is 0, both probabilities are exact. Otherwise T depends on the noise in `bias`, but
    quadrature shows that no interval fails more often than it may, for any B, `bias_std` and `tail`.

    If `law` is "l2", the error of an estimate is one coordinate of l2 noise in `size` dimensions. Then the result is
    `bias` plus z times s, where z is the larger one of the upper quantiles of this noise and of the normal law.
    """
    both, z = np.hypot(std, bias_std), _quantile(tail, law, size)
    if law != "gaussian":
        return z * both + bias
    up, down, ratio = bias / both, np.maximum(bias, 0.0) / both, both / std
    half = np.maximum(z * std / both, up + max(float(-ndtri(2 * tail)), 0.0))
    for _ in range(_STEPS):  # Newton's method; the left side is convex, so no step goes beyond the solution
        near, far = half - up, (half + down) * ratio
        with np.errstate(under="ignore"):  # the caller may have switched this error on
            slope = (np.exp(-(near**2) / 2) + ratio * np.exp(-(far**2) / 2)) / math.sqrt(2 * math.pi)
        step = np.maximum(ndtr(-near) + ndtr(-far) - 2 * tail, 0.0) / slope
        half = half + step
        if np.all(step <= 1e-15 * half):
            break
    return both * half


def _ratio(
    S: Array, N: float, variance: Array, parts: Parts, z: float, half: Callable[[Array], Array]
) -> tuple[Array, Array]:
    """Return the lower and the upper ends of intervals for the means of centered rows, as two vectors.

    `S`, shape (d,), is the noisy sum of the centered rows, and `N` the noisy number of rows. The ends are the least and
    the greatest t for which |S - N t| is at most half(variance + t**2 parts.count_std**2). The function `half` returns,
    for the variance of a normal error, half of the length of an interval. `variance` is that of `S`: a vector, or a
    matrix with one row for the lower and one for the upper ends. `z` is the quantile of the standardized noise for one
    tail. If `N` is at most z * parts.count_std, the exact number of rows may be zero, and the results are infinite.
    """
    variance, bias, bias_std = (np.broadcast_to(part, (2, S.size)) for part in (variance, parts.bias, parts.bias_std))
    count_variance = parts.count_std**2
    if not count_variance:
        halves = half(variance)
        return (S - halves[0]) / N, (S + halves[1]) / N
    if z * parts.count_std >= N:
        return np.full(S.size, -math.inf), np.full(S.size, math.inf)
    # With a fixed q, N t - S = q sqrt(variance + bias_std^2 + t^2 count_variance) + bias is a quadratic equation. It is
    # solved again with the q of the solution. The first q is too large, and so are all others but in rare cases.
    sign, q = np.array([[-1.0], [1.0]]), np.full((2, S.size), z)
    for _ in range(_STEPS):
        shifted = sign * S + bias
        a = N**2 - q**2 * count_variance
        ends = sign * (N * shifted + q * np.sqrt(a * (variance + bias_std**2) + count_variance * shifted**2)) / a
        at = variance + ends**2 * count_variance
        q, before = (half(at) - bias) / np.sqrt(at + bias_std**2), q
        if np.allclose(q, before, rtol=1e-12, atol=0.0):
            break
    return ends[0], ends[1]


def table(rows: dict[str, Any], backend: str | ModuleType | None = None) -> Any:
    """Return a data frame of the library `backend` whose columns are the lists in the dictionary `rows`.

    The default is the first of pandas, polars and pyarrow that is installed. If the library is not pandas, the lists
    ``rows["column"]`` and ``rows["group"]``, if there are such lists, are first changed so that all their entries have
    one type (see `_of_one_type`). Raise ValueError for another name of a library, and ModuleNotFoundError if the
    library is not installed.
    """
    import importlib.util

    import narwhals as nw

    known = ("pandas", "polars", "pyarrow")
    if backend is None:
        backend = next((name for name in known if importlib.util.find_spec(name)), "pandas")
    if isinstance(backend, str) and backend not in known:
        raise ValueError(f'backend must be "pandas", "polars", "pyarrow" or a module, got {backend!r}')
    if getattr(backend, "__name__", backend) != "pandas":
        rows = rows | {name: _of_one_type(rows[name]) for name in ("group", "column") if name in rows}
    return nw.from_dict(rows, backend=backend).to_native()  # type: ignore[arg-type]  # a text, or a module


def _of_one_type(labels: list[Any]) -> Any:
    """Return `labels`, names of columns or keys of groups, such that any library can make a column of them.

    They become texts if they are tuples, of several types, or integers that no type of 64 bits can hold. Other integers
    become an array, because Arrow does not find the unsigned type for a list of them.
    """
    kinds = set(map(type, labels))
    if kinds == {int}:
        for dtype in (np.int64, np.uint64):
            if np.iinfo(dtype).min <= min(labels) and max(labels) <= np.iinfo(dtype).max:
                return np.array(labels, dtype)
    elif len(kinds) == 1 and tuple not in kinds:
        return labels
    return list(map(str, labels))
