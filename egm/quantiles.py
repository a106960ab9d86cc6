r"""Draw private quantiles by the exponential mechanism, for values in a known range.

The rank of a point :math:`x` is the number of values :math:`v_1, \dots, v_n` that do not exceed it.
For the q-quantile the wanted rank is :math:`q n`. A point of the range from `low` to `high` is
drawn with a density that falls with the distance of its rank from the wanted one,

.. math::

    p(x) \propto \exp\Bigl( -\frac{\varepsilon}{2} \bigl| \#\{i : v_i \le x\} - q n \bigr| \Bigr),
    \qquad low \le x \le high.

If one value is replaced by another, :math:`n` stays and a rank moves by at most one, so the density
changes by at most a factor :math:`\exp(\varepsilon)`. The density is constant in each of the
:math:`n + 1` gaps between the ends of the range and the sorted values. So a gap is drawn first,
then a point of it, and the sampling is exact.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import overload

import numpy as np

from egm import samplers
from egm._types import Array, ArrayLike, FloatOrArray, Floats
from egm._validate import drawn_epsilon, finite, generator, nonnegative, positive, probability, scalar

__all__ = ["epsilon_of_rho", "interval", "quantile", "secure_quantile"]

POINTS = 10**8  # largest number of points of `secure_quantile`; they take 0.8 GB of memory
_BLOCK = 1 << 20  # numbers of `values` handled at a time
_TINY = np.finfo(float).tiny


def quantile(
    values: ArrayLike, q: float, low: ArrayLike, high: ArrayLike, epsilon: float, rng: np.random.Generator
) -> FloatOrArray:
    r"""Draw a private q-quantile of each column with a NumPy Generator, which is fit for simulations only.

    Parameters
    ----------
    values : array_like, shape (n,) or (n, k)
        Values of one column or of k columns, n >= 1. Copies of the values are clipped to the range
        from `low` to `high`; `values` itself is not changed.
    q : float
        Share of the values that do not exceed the quantile, in (0, 1).
    low, high : float or array_like, shape (k,)
        Ends of the public range, in the units of the values. Each `low` is below its `high`.
    epsilon : float
        Privacy parameter of the draw in each column, > 0.
    rng : numpy.random.Generator
        Source of the randomness. Because a NumPy Generator is not secure, the result is a
        simulation.

    Returns
    -------
    float or ndarray, shape (k,)
        Quantile of each column, between `low` and `high`.

    Raises
    ------
    ValueError
        If a parameter is outside its range or does not have the stated shape.
    TypeError
        If a parameter is not made of real numbers, or if `rng` is not a NumPy Generator.

    See Also
    --------
    secure_quantile : Draws one of many equidistant points by secure randomness.

    Notes
    -----
    The law of a draw is epsilon-differentially private if neighbors differ by the replacement of
    one value, so that n is public [1]_. In zero-concentrated differential privacy a draw costs
    :math:`\varepsilon^2 / 8` for each column (see `epsilon_of_rho`). Algorithm 2 of [2]_ draws such
    quantiles.

    The rank of the drawn point, the number of values that do not exceed it, differs from
    :math:`q n` by more than :math:`t` with a probability of at most

    .. math::

        \frac{high - low}{g} \exp\Bigl( -\frac{\varepsilon (t - s)}{2} \Bigr),

    for any :math:`s < t`. Here :math:`g` is the total length of the gaps between values in which the
    rank differs from :math:`q n` by at most :math:`s`. So the error in rank grows only with the
    logarithm of the length of the range. Between equal values there is a gap of length zero, from
    which no point is drawn; so the caller should first move equal values apart a little. A column
    takes a time of O(n log n).

    References
    ----------
    .. [1] McSherry and Talwar (2007), "Mechanism Design via Differential Privacy".
    .. [2] Smith (2011), "Privacy-preserving Statistical Estimation with Optimal Convergence Rates".

    Examples
    --------
    >>> import numpy as np
    >>> from egm import quantiles
    >>> rng = np.random.default_rng(1)
    >>> ages = rng.normal(40, 18, size=10_000)
    >>> round(quantiles.quantile(ages, 0.5, low=0, high=120, epsilon=0.1, rng=rng)), round(np.median(ages))
    (40, 40)
    """
    values, q, epsilon = finite(values=values), scalar(probability, q=q), scalar(positive, epsilon=epsilon)
    if values.ndim not in (1, 2) or len(values) == 0:
        raise ValueError(f"values must have shape (n,) or (n, k) with n >= 1, got {values.shape}")
    generator(rng)
    columns = values.reshape(len(values), -1).T
    low, high = _bounds(low, high, len(columns))
    with np.errstate(over="ignore"):  # an interval with an infinite penalty is not drawn
        penalty = epsilon / 2 * np.abs(np.arange(len(values) + 1) - q * len(values))
    drawn = np.empty(len(columns))
    step = max(1, _BLOCK // len(values))
    for start in range(0, len(columns), step):
        part = slice(start, start + step)
        drawn[part] = _draw(columns[part], low[part, None], high[part, None], penalty, rng)
    return drawn if values.ndim == 2 else float(drawn[0])


def secure_quantile(values: ArrayLike, q: float, low: float, high: float, epsilon: float, step: float) -> Floats:
    r"""Draw a private q-quantile of each column by secure randomness, from equidistant points.

    Parameters
    ----------
    values : array_like, shape (n,) or (n, k)
        Values of one column or of k columns, n >= 1. They are never changed.
    q : float
        Share of the values that do not exceed the quantile, in (0, 1).
    low, high : float
        Ends of the public range, in the units of the values, with `low` below `high`.
    epsilon : float
        Privacy parameter of the draw in each column, at least 1e-300.
    step : float
        Distance between neighboring points, in the units of the values, > 0. There may be at most 1e8
        points. Even the best of them may differ from the quantile by up to `step`.

    Returns
    -------
    float or ndarray, shape (k,)
        Quantile of each column, one of the points `low`, ``low + step``, ``low + 2 * step``, ... below
        `high`.

    Raises
    ------
    ValueError
        If a parameter is outside its range or does not have the stated shape.
    TypeError
        If a parameter is not made of real numbers.

    Notes
    -----
    The draw of a column is epsilon-differentially private if neighbors differ by the replacement of
    one value, so that n is public [1]_. In zero-concentrated differential privacy a draw costs
    :math:`\varepsilon^2 / 8` for each column (see `epsilon_of_rho`).

    A point stands for the interval from the point before it, not included, to the point itself. The
    first point also stands for all smaller values, and the last one for all larger values. The
    values in each interval are counted, and the function `interval` draws one of the points. The
    draw takes about a microsecond for each point and column.

    References
    ----------
    .. [1] McSherry and Talwar (2007), "Mechanism Design via Differential Privacy".

    Examples
    --------
    >>> import numpy as np
    >>> from egm import quantiles
    >>> ages = np.random.default_rng(1).normal(40, 18, size=10_000)
    >>> median = quantiles.secure_quantile(ages, 0.5, low=0, high=120, epsilon=1, step=0.5)
    >>> 38 < median < 42
    True
    """
    values, q = finite(values=values), scalar(probability, q=q)
    low, high = (scalar(finite, **bound) for bound in ({"low": low}, {"high": high}))
    if values.ndim not in (1, 2) or len(values) == 0 or not low < high:
        raise ValueError(f"values must be (n,) or (n, k), n >= 1, and low < high, got {values.shape}, {low}, {high}")
    _bounds(low, high, 1)  # the width of the range is finite
    steps = (high - low) / scalar(positive, step=step)
    if steps > POINTS:
        raise ValueError(f"step must divide the range into at most {POINTS:g} parts, got {step!r} for {low} to {high}")
    with np.errstate(over="ignore"):  # a point beyond the largest double is above `high`
        points = low + np.arange(math.ceil(steps) + 1, dtype=np.float64) * step
    points = points[points < high]
    columns = values.reshape(len(values), -1).T
    counts = (np.bincount(np.searchsorted(points[:-1], column), minlength=points.size) for column in columns)
    drawn = points[[interval(found, q, epsilon) for found in counts]]
    return drawn if values.ndim == 2 else float(drawn[0])


def interval(counts: ArrayLike, q: float, epsilon: float, rng: np.random.Generator | None = None) -> int:
    r"""Draw privately the index of the interval that holds the q-quantile, given the number of values in each interval.

    Parameters
    ----------
    counts : array_like of int, shape (m,)
        Number of values in each of m >= 1 intervals, below 2**53 in all. The intervals are in
        ascending order.
    q : float
        Share of the values that do not exceed the quantile, in (0, 1).
    epsilon : float
        Privacy parameter, at least 1e-300.
    rng : numpy.random.Generator, optional
        Generator that makes the draw a simulation. By default the draw is secure and exact.

    Returns
    -------
    int
        Index of the drawn interval, from 0 to m - 1. The draw is random; an interval that holds the
        quantile has the largest probability.

    Raises
    ------
    ValueError
        If `counts` are not whole numbers >= 0 with the stated shape and sum, if `q` is not above 0
        and below 1, or if `epsilon` is not finite or below 1e-300.
    TypeError
        If `counts` are not real numbers, or if `rng` is not a NumPy Generator.

    Notes
    -----
    Let n be the number of all values, and let r be q n, rounded to a whole number. An interval has the
    score 0 if it holds the r-th smallest value. Otherwise its score is minus the number of values
    between the interval and the r-th smallest one:

    .. math::

        -\max\{0,\; r - \#\{\text{values up to its end}\},\; \#\{\text{values below its start}\} - r\}.

    An interval is drawn with probability proportional to
    :math:`\exp(\varepsilon / 2 \cdot \text{score})`. If one value moves to another interval, each
    of the two numbers in the formula changes by at most one, and so does each score. The same holds
    if one value is added or removed: then r and each of the numbers of values move by 0 or 1 in one
    direction, so that each difference in the formula changes by at most one. (If q n, which is
    computed without a rounding error, grows by q < 1, the rounded q n grows by at most 1.) So the
    draw, an exponential mechanism, is epsilon-differentially private [1]_ for both kinds of
    neighbors. It is also
    :math:`\rho`-zero-concentrated differentially private with :math:`\rho = \varepsilon^2 / 8`
    ([2]_, Lemma 3.4).

    Whatever the values are, at least one interval has the score 0. An interval with the score
    :math:`-t` has at most :math:`\exp(-\varepsilon t / 2)` times the probability of an interval
    with the score 0.

    References
    ----------
    .. [1] McSherry and Talwar (2007), "Mechanism Design via Differential Privacy".
    .. [2] Cesar and Rogers (2021), "Bounding, Concentrating, and Truncating: Unifying Privacy Loss Composition for Data
       Analytics".

    Examples
    --------
    Of 1000 people, 480 are at most 39 years old and 200 are from 40 to 49. The median is in the
    second interval.

    >>> from egm import quantiles
    >>> quantiles.interval([480, 200, 320], q=0.5, epsilon=10)
    1
    """
    held, q, epsilon = nonnegative(counts=counts), scalar(probability, q=q), drawn_epsilon(epsilon)
    if held.ndim != 1 or held.size == 0 or np.any(held != np.floor(held)) or np.sum(held) >= 2.0**53:
        raise ValueError(f"counts must be a vector of whole numbers, below 2**53 in all, got shape {held.shape}")
    if rng is not None:
        generator(rng)
    ends = np.cumsum(held.astype(np.int64))
    rank = round(Fraction(q) * int(ends[-1]))
    starts = np.concatenate([[0], ends[:-1]])
    scores = -np.maximum(0, np.maximum(rank - ends, starts - rank))
    if rng is None:
        return samplers.secure_index(scores, epsilon)
    with np.errstate(over="ignore"):  # as in `quantile`
        return int(np.argmax(epsilon / 2 * scores + rng.gumbel(size=scores.size)))


@overload
def epsilon_of_rho(rho: float) -> float: ...
@overload
def epsilon_of_rho(rho: ArrayLike) -> Array: ...
def epsilon_of_rho(rho: ArrayLike) -> Floats:
    r"""Compute the parameter epsilon with which a private quantile is rho-zero-concentrated differentially private.

    Parameters
    ----------
    rho : float or array_like
        Budget of one column in zero-concentrated differential privacy, >= 0.

    Returns
    -------
    float or ndarray
        The epsilon sqrt(8 rho) for `quantile`, `secure_quantile` and `interval`, in the shape of
        `rho`.

    Raises
    ------
    ValueError
        If `rho` is not finite and >= 0.
    TypeError
        If `rho` is not made of real numbers.

    Notes
    -----
    The privacy loss of an exponential mechanism with the parameter epsilon lies in an interval of
    length epsilon. Therefore this mechanism is :math:`\rho`-zero-concentrated differentially
    private with :math:`\rho = \varepsilon^2 / 8` ([1]_, Lemma 3.4). This is a quarter of the
    :math:`\rho` that holds for every epsilon-differentially private mechanism.

    References
    ----------
    .. [1] Cesar and Rogers (2021), "Bounding, Concentrating, and Truncating: Unifying Privacy Loss Composition for Data
       Analytics".

    Examples
    --------
    >>> from egm import quantiles
    >>> round(float(quantiles.epsilon_of_rho(0.02)), 4)
    0.4
    """
    rho = nonnegative(rho=rho)
    large = rho > 1  # there sqrt(8 rho) is 4 sqrt(rho / 2), to the last digit and without overflow
    return (np.sqrt(rho * np.where(large, 0.5, 8.0)) * np.where(large, 4.0, 1.0))[()]


def _draw(rows: Array, low: Array, high: Array, penalty: Array, rng: np.random.Generator) -> Array:
    """Draw a private quantile of each row of the matrix `rows`, shape (k, n), by the exponential mechanism.

    The result has k points. In each row, the n values leave n + 1 gaps between `low` and `high`, both
    of shape (k, 1). The array `penalty`, shape (n + 1,), has a number for each gap, which is larger the
    further the gap is from the wanted quantile. A gap is drawn with probability proportional to
    length * exp(-penalty); then a uniform point of this gap is drawn. To draw a gap, the function takes
    the one for which log(length) - penalty + Gumbel noise is largest, where the Gumbel noise is minus
    the logarithm of a standard exponential variable. All randomness comes from the Generator `rng`.
    """
    edges = np.concatenate([low, np.sort(np.clip(rows, low, high), axis=1), high], axis=1)
    gaps = np.diff(edges, axis=1)
    with np.errstate(divide="ignore"):
        race = np.log(gaps) - np.log(rng.standard_exponential(gaps.shape) + _TINY) - penalty
    gap = np.argmax(race, axis=1)[:, None]
    return rng.uniform(np.take_along_axis(edges, gap, axis=1), np.take_along_axis(edges, gap + 1, axis=1))[:, 0]


def _bounds(low: ArrayLike, high: ArrayLike, k: int) -> tuple[Array, Array]:
    """Return `low` and `high` as vectors of `k` numbers, or raise a ValueError unless each low is below its high."""
    low, high = finite(low=low), finite(high=high)
    for name, bound in (("low", low), ("high", high)):
        if bound.shape not in ((), (k,)):
            raise ValueError(f"{name} must be a number or have an entry for each of {k} columns, got {bound.shape}")
    low, high = np.broadcast_to(low, k), np.broadcast_to(high, k)
    if np.any(low >= high):
        first = int(np.argmax(low >= high))
        raise ValueError(f"low must be below high, got {float(low[first])!r} and {float(high[first])!r}")
    if np.any(too_far := high / 2 - low / 2 > np.finfo(float).max / 2):
        first = int(np.argmax(too_far))
        raise ValueError(
            f"high - low must not be above the largest double, got {float(high[first])!r} and {float(low[first])!r}"
        )
    return low, high
