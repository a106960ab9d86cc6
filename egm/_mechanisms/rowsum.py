r"""Turn a noisy sum of rows into what is published: means, intervals, and a table with one row for each column.

If the number of rows is private, a mean is a ratio of two noisy numbers. With the center c, the noisy sum S of the
centered rows and the noisy number N of rows, the estimate of the mean is c + S / N. For the exact mean m of the rows,
the difference S - N (m - c) consists of noise and of what clipping took, whatever m is. So the interval for m has all
numbers m for which this difference is not too large (Fieller 1954):

.. math::

    |S - N (m - c)| \le q \sqrt{v_S + (m - c)^2 v_N} + \beta,

where :math:`v_S` and :math:`v_N` are the variances of S and N, :math:`\beta` is the mean of what clipping took, and q
is the quantile of the noise. The interval is right for small numbers of rows, too. It is unbounded if the exact number
of rows may be zero, in view of N and its noise.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from scipy.special import ndtri

from egm._l2 import coordinate_quantile
from egm._types import Array, Columns, NoiseLaw
from egm._validate import probability, scalar

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["Parts", "RowSum", "table"]

Of: TypeAlias = Literal["sum", "mean", "population"]


class Parts:
    """Describe how far the noisy sum of centered rows may be from the exact sum, for each column.

    `center` is subtracted from each row. `std` is the standard deviation of the noise and of what clipping took,
    together; `bias` is a bound of the mean of what clipping took; and `spread` is a standard deviation of the rows.
    These three have the shape (d,), or (2, d) if they differ for the lower and the upper ends of intervals. `count_std`
    is the standard deviation of the noise in the number of rows, or 0 if this number is public.
    """

    def __init__(self, center: Array, std: Array, bias: Array, spread: Array, count_std: float) -> None:
        self.center, self.std, self.bias, self.spread, self.count_std = center, std, bias, spread, count_std


class RowSum(ABC):
    """Base class of releases of a sum of rows, with means, intervals, and a table that has a row for each column."""

    estimate: Array
    noise_std: Array
    columns: Columns
    n: float  # the number of rows: the public one, or the noisy one that was released, but at least 1

    @abstractmethod
    def _parts(self) -> Parts:
        """Return the standard deviation and the bias of the noisy sum, and what else an interval needs, as `Parts`."""

    def _law(self) -> tuple[NoiseLaw, int]:
        """Return the law of the noise, and the number of dimensions in which l2 noise is drawn."""
        return "gaussian", 1

    @property
    def sum(self) -> Array:
        """Return the noisy sum of the rows, shape (d,): another name of `estimate`."""
        return self.estimate

    @property
    def mean(self) -> Array:
        """Return the noisy mean of the rows, shape (d,): NaN if the noisy number of rows is below 1."""
        return self.estimate / self.n if self._noisy_count() >= 1 else np.full(self.estimate.shape, np.nan)

    @property
    def mean_std(self) -> Array:
        """Return the standard deviation of the noise in `mean`, shape (d,), to first order if `n` is noisy."""
        parts = self._parts()
        if not parts.count_std:
            return self.noise_std / self.n
        centered = self.noise_std**2 - (parts.count_std * parts.center) ** 2
        return np.sqrt(np.maximum(centered, 0.0) + (parts.count_std * (self.mean - parts.center)) ** 2) / self.n

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
        An interval allows for the noise, and for the mean and the variation of what clipping takes
        from the rows. It assumes that the guesses of center and standard deviations are no worse
        than was declared to the mechanism; for an adaptive mechanism, no worse than its search has
        found. The interval for the population also allows for the variation of the rows. If a
        person may have k rows, these are taken to be equal, which is the worst case. If the number
        of rows is private, the interval of a mean is that of Fieller (1954), which is right for
        small numbers of rows, too: if the number of rows may be zero, the interval is unbounded.

        A `GaussianDataMechanism` assumes rows that are nearly normal. If they are not, clipping takes
        more from the rows than the interval allows for. If the law is skewed, the sum of what clipping
        takes always has the same sign, and the interval of the mean is too short where this sum
        exceeds the noise.
        ``benchmarks.intervals`` simulates 400 releases from each of fifty laws, with guesses as wrong
        as declared and two columns. Of the intervals with 95 percent confidence, 96.5 percent contain
        the mean of normal rows, 97 to 98 percent that of bounded rows, 89 percent that of rows with a
        Poisson law or a t law with 10 degrees of freedom, 67 percent that of exponential rows and 41
        percent that of lognormal rows. Set `count_clipped` and look at
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
        [  39.9 2427.2] [  40.8 2438.5] [  41.8 2445.6]
        """
        return self._ends(self._parts(), confidence, of, simultaneous)

    def _ends(self, parts: Parts, confidence: float, of: Of, simultaneous: bool) -> tuple[Array, Array]:
        """Return the lower and the upper ends of the intervals that `interval` describes, as two vectors.

        `parts` says how far the noisy sum may be from the exact sum. The other arguments are those of `interval`.
        """
        if of not in ("sum", "mean", "population"):
            raise ValueError(f'of must be "sum", "mean" or "population", got {of!r}')
        fail, n = 1 - scalar(probability, confidence=confidence), self.n
        law, size = self._law()
        tail = fail / (len(self.estimate) if simultaneous else 1) / 2
        q = float(-ndtri(tail)) if law == "gaussian" else max(float(-ndtri(tail)), coordinate_quantile(tail, size))
        if of == "sum":
            variance = parts.std**2 + (parts.count_std * parts.center) ** 2
            half = np.broadcast_to(q * np.sqrt(variance) + parts.bias, (2, len(self.estimate)))
            return self.estimate - half[0], self.estimate + half[1]
        variance = parts.std**2 + (n * parts.spread**2 if of == "population" else 0.0)
        centered = self.estimate - self._noisy_count() * parts.center
        low, high = _ratio(centered, self._noisy_count(), variance, parts.count_std**2, parts.bias, q)
        return parts.center + low, parts.center + high

    def _noisy_count(self) -> float:
        """Return the number of rows by which the center was multiplied, which may be less than 1 if it is noisy."""
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
            If `confidence` is not in (0, 1).

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


def _ratio(S: Array, N: float, variance: Array, count_variance: float, bias: Array, q: float) -> tuple[Array, Array]:
    """Return the ends of Fieller's intervals for the ratios S / N of noisy numbers, as two vectors.

    For each entry they are the least and the greatest t with |S - N t| <= q sqrt(variance + t**2 count_variance) +
    bias. Here S and N have noise of the variances `variance` and `count_variance`, and S a bias of at most `bias`. If
    these two differ for the lower and the upper ends, they are matrices of two rows. If the exact count may be zero,
    because `count_variance` is large, the ends are infinite.
    """
    variance, bias = (np.broadcast_to(part, (2, S.size)) for part in (variance, bias))
    if not count_variance:
        half = q * np.sqrt(variance) + bias
        return (S - half[0]) / N, (S + half[1]) / N
    low, high = np.full((2, S.size), math.inf)
    if q * math.sqrt(count_variance) >= N:
        return -low, high
    # N t - S - bias = q sqrt(variance + t^2 count_variance) has one solution t, and so has the other side by symmetry.
    for i, sign, ends in ((1, 1.0, high), (0, -1.0, low)):
        shifted = sign * S + bias[i]
        a, c = N**2 - q**2 * count_variance, shifted**2 - q**2 * variance[i]
        root = np.sqrt(np.maximum((N * shifted) ** 2 - a * c, 0.0))
        ends[:] = sign * (N * shifted + root) / a
    return low, high


def table(rows: dict[str, Any], backend: str | ModuleType | None = None) -> Any:
    """Return a data frame of the library `backend` whose columns are the lists in the dictionary `rows`.

    The default is the first of pandas, polars and pyarrow that is installed. Raise ValueError for another name, and
    ModuleNotFoundError if the library is not installed.
    """
    import importlib.util

    import narwhals as nw

    known = ("pandas", "polars", "pyarrow")
    if backend is None:
        backend = next((name for name in known if importlib.util.find_spec(name)), "pandas")
    if isinstance(backend, str) and backend not in known:
        raise ValueError(f'backend must be "pandas", "polars", "pyarrow" or a module, got {backend!r}')
    return nw.from_dict(rows, backend=backend).to_native()  # type: ignore[arg-type]  # a text, or a module
