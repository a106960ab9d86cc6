"""Private quantiles by the exponential mechanism, for data in a known range.

A point x of [low, high] scores minus the distance of its rank from the wanted one, and is drawn with density

    p(x)  proportional to  exp(-epsilon/2 |#{i: values_i <= x} - q n|),      low <= x <= high.

Where one value is replaced by another, n stays and a rank moves by at most one, so the density moves by at most a
factor exp(epsilon). It is constant between neighbouring order statistics: with n + 1 gaps the sampling is exact.
"""

from __future__ import annotations

from typing import overload

import numpy as np

from egm import samplers
from egm._types import Array, ArrayLike, FloatOrArray, Floats
from egm._validate import finite, nonnegative, positive, probability, scalar

__all__ = ["epsilon_of_rho", "interval", "quantile", "secure_quantile"]

_BLOCK = 1 << 20  # numbers of `values` handled at a time
_TINY = np.finfo(float).tiny


def quantile(
    values: ArrayLike, q: float, low: ArrayLike, high: ArrayLike, epsilon: float, rng: np.random.Generator
) -> FloatOrArray:
    """A point between low and high that about a share q of the values does not exceed: epsilon-private.

    values: (n,) or (n, k), n >= 1, a quantile for each column; they are clipped to [low, high] and never changed. q:
    in (0, 1). low < high: numbers or (k,). epsilon: > 0, spent in each column. rng: a numpy Generator, which makes
    this a simulation. Returns a number or (k,).

    Neighbours replace one value of a column; n is public. The cost is epsilon, or epsilon**2 / 8 in zCDP (see
    epsilon_of_rho), for each column. The rank is off by more than t with probability at most (high - low) / g *
    exp(-epsilon (t - s) / 2), where g is the length of the gaps whose rank is off by at most s < t; so values that
    are many times the same should be spread out first, and a wide range costs only its logarithm. Takes O(n log n) a
    column. Raises ValueError outside these ranges, TypeError for another rng. McSherry and Talwar (2007); Smith
    (2011), Algorithm 2.
    """
    values, q, epsilon = finite(values=values), scalar(probability, q=q), scalar(positive, epsilon=epsilon)
    if values.ndim not in (1, 2) or len(values) == 0:
        raise ValueError(f"values must have shape (n,) or (n, k) with n >= 1, got {values.shape}")
    if not isinstance(rng, np.random.Generator):
        raise TypeError(f"rng must be a numpy.random.Generator such as numpy.random.default_rng(seed), got {rng!r}")
    columns = values.reshape(len(values), -1).T
    low, high = _bounds(low, high, len(columns))
    penalty = epsilon / 2 * np.abs(np.arange(len(values) + 1) - q * len(values))
    drawn = np.empty(len(columns))
    step = max(1, _BLOCK // len(values))
    for start in range(0, len(columns), step):
        part = slice(start, start + step)
        drawn[part] = _draw(columns[part], low[part, None], high[part, None], penalty, rng)
    return drawn if values.ndim == 2 else float(drawn[0])


def secure_quantile(values: ArrayLike, q: float, low: float, high: float, epsilon: float, step: float) -> Floats:
    """A quantile of secure randomness, on a lattice: low, low + step, ... up to high. epsilon-private in each column.

    A point of the lattice stands for the values above the point before it, up to itself (the first for all below it,
    the last for all above), and is drawn by `interval`: so values that are many times the same are found. step: > 0,
    what the answer may be off by for it. values, q, epsilon, errors and cost are those of quantile; low and high are
    numbers. Takes a microsecond a point and column besides.
    """
    values, q = finite(values=values), scalar(probability, q=q)
    low, high = (scalar(finite, **bound) for bound in ({"low": low}, {"high": high}))
    if values.ndim not in (1, 2) or len(values) == 0 or not low < high:
        raise ValueError(f"values must be (n,) or (n, k), n >= 1, and low < high, got {values.shape}, {low}, {high}")
    points = np.arange(low, high, scalar(positive, step=step))
    columns = values.reshape(len(values), -1).T
    counts = (np.bincount(np.searchsorted(points[:-1], column), minlength=points.size) for column in columns)
    drawn = points[[interval(found, q, epsilon) for found in counts]]
    return drawn if values.ndim == 2 else float(drawn[0])


def interval(counts: ArrayLike, q: float, epsilon: float, rng: np.random.Generator | None = None) -> int:
    """The place of one of the intervals, in order, of which counts says how many of the values are in each.

    An interval scores 0 if the q-quantile is in it, else minus the number of values between the two:

        -max(0, rank - #{values up to its end}, #{values below its start} - rank),   rank = q n rounded.

    One value that moves changes each count of values by at most one, so a score by at most one: the exponential
    mechanism of parameter epsilon is epsilon-private, and epsilon**2 / 8-zCDP. Whatever the values are, one interval
    scores 0; each that is t values off has at most exp(-epsilon t / 2) times its probability. rng: a numpy Generator,
    which makes this a simulation; without it the draw is exact and secure.
    """
    ends = np.cumsum(counts, dtype=np.int64)
    rank = round(q * int(ends[-1]))
    starts = np.concatenate([[0], ends[:-1]])
    scores = -np.maximum(0, np.maximum(rank - ends, starts - rank))
    if rng is None:
        return samplers.secure_index(scores.tolist(), epsilon)
    return int(np.argmax(epsilon / 2 * scores + rng.gumbel(size=scores.size)))


@overload
def epsilon_of_rho(rho: float) -> float: ...
@overload
def epsilon_of_rho(rho: ArrayLike) -> Array: ...
def epsilon_of_rho(rho: ArrayLike) -> Floats:
    """The epsilon sqrt(8 rho) for which `quantile` is rho-zCDP in each column.

    rho: >= 0, any shape. An exponential mechanism of parameter epsilon has a privacy loss in an interval of length
    epsilon, so it is epsilon**2 / 8-zCDP, four times less than any epsilon-private mechanism. Raises ValueError for
    rho < 0. Cesar and Rogers (2021), Lemma 3.4.
    """
    return np.sqrt(8 * nonnegative(rho=rho))[()]


def _draw(rows: Array, low: Array, high: Array, penalty: Array, rng: np.random.Generator) -> Array:
    """A point for each of the rows (k, n). The gap with the largest log(length) - penalty + Gumbel noise is drawn with
    probability proportional to length exp(-penalty); minus the log of a standard exponential is Gumbel noise."""
    edges = np.concatenate([low, np.sort(np.clip(rows, low, high), axis=1), high], axis=1)
    gaps = np.diff(edges, axis=1)
    with np.errstate(divide="ignore"):
        race = np.log(gaps / (rng.standard_exponential(gaps.shape) + _TINY)) - penalty
    gap = np.argmax(race, axis=1)[:, None]
    return rng.uniform(np.take_along_axis(edges, gap, axis=1), np.take_along_axis(edges, gap + 1, axis=1))[:, 0]


def _bounds(low: ArrayLike, high: ArrayLike, k: int) -> tuple[Array, Array]:
    """The bounds as vectors (k,), with low < high."""
    low, high = finite(low=low), finite(high=high)
    for name, bound in (("low", low), ("high", high)):
        if bound.shape not in ((), (k,)):
            raise ValueError(f"{name} must be a number or have an entry for each of {k} columns, got {bound.shape}")
    low, high = np.broadcast_to(low, k), np.broadcast_to(high, k)
    if np.any(low >= high):
        first = int(np.argmax(low >= high))
        raise ValueError(f"low must be below high, got {float(low[first])!r} and {float(high[first])!r}")
    return low, high
