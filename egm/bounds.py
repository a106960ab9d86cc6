"""Closed-form upper bounds on the quantile gx2.isf(p, weights) of Q = sum_j weights_j Z_j**2, for standard normal
Z_j.

Each is a radius squared that a row exceeds with probability at most p. A bound that says nothing at some p is
infinite there.
"""

from __future__ import annotations

import math
from typing import overload

import numpy as np

from egm._types import Array, ArrayLike, Floats
from egm._validate import count, probability, vector

__all__ = ["bernstein", "bernstein_limit", "chebyshev", "laurent_massart", "theorem4", "theorem4_limit"]


@overload
def bernstein(p: float, weights: ArrayLike) -> float: ...
@overload
def bernstein(p: ArrayLike, weights: ArrayLike) -> Array: ...
def bernstein(p: ArrayLike, weights: ArrayLike) -> Floats:
    """Lemma 4.2 of the report: sum w + sqrt(8 ln(1/p) sum w**2), from Bernstein's inequality with L = 3 max w.

    p: in (0, 1), any shape. weights: (d,), > 0. Returns the shape of p, infinite where p < bernstein_limit(weights):
    the lemma claims nothing there. Raises ValueError outside these ranges. Wainwright (2019), Proposition 2.10.
    """
    p, weights = probability(p=p), vector(weights=weights)
    bound = np.sum(weights) + np.sqrt(-8 * np.log(p) * np.sum(weights**2))
    return np.where(p >= bernstein_limit(weights), bound, np.inf)[()]


def bernstein_limit(weights: ArrayLike) -> float:
    """The smallest p for which Lemma 4.2 holds: exp(-sum w**2 / (18 max(w)**2)), at least exp(-d/18)."""
    weights = vector(weights=weights)
    return float(np.exp(-np.sum((weights / np.max(weights)) ** 2) / 18))


@overload
def laurent_massart(p: float, weights: ArrayLike) -> float: ...
@overload
def laurent_massart(p: ArrayLike, weights: ArrayLike) -> Array: ...
def laurent_massart(p: ArrayLike, weights: ArrayLike) -> Floats:
    """sum w + 2 sqrt(t sum w**2) + 2 t max w with t = ln(1/p): it holds for every p and every weights.

    p: in (0, 1), any shape. weights: (d,), > 0. Returns the shape of p. Raises ValueError outside these ranges.
    Laurent and Massart (2000), Lemma 1.
    """
    p, weights = probability(p=p), vector(weights=weights)
    t = -np.log(p)
    return (np.sum(weights) + 2 * np.sqrt(t * np.sum(weights**2)) + 2 * t * np.max(weights))[()]


@overload
def chebyshev(p: float, weights: ArrayLike) -> float: ...
@overload
def chebyshev(p: ArrayLike, weights: ArrayLike) -> Array: ...
def chebyshev(p: ArrayLike, weights: ArrayLike) -> Floats:
    """sum w + sqrt(2 sum w**2 / p), from the mean and the variance alone.

    p: in (0, 1), any shape. weights: (d,), > 0. Returns the shape of p. Raises ValueError outside these ranges.
    """
    p, weights = probability(p=p), vector(weights=weights)
    return (np.sum(weights) + np.sqrt(2 * np.sum(weights**2) / p))[()]


def theorem4(sigma: ArrayLike, n: int) -> float:
    """Theorem 4 of the report: an upper bound on E||eta||**2 / sigma_opt**2 for the scaling of Lemma 4.1 and p = 1/n.

    sigma: standard deviations (d,), > 0. n: rows, a whole number >= 1. The bound is 4 S (sqrt(8 ln(n) sum sigma**2) +
    S) with S = sum sigma; infinite where n > theorem4_limit(sigma). Raises ValueError outside these ranges.
    """
    sigma, n = vector(sigma=sigma), count(n=n)
    if n > theorem4_limit(sigma):
        return np.inf
    total = np.sum(sigma)
    return float(4 * total * (np.sqrt(8 * math.log(n) * np.sum(sigma**2)) + total))


def theorem4_limit(sigma: ArrayLike) -> float:
    """The largest n for which Theorem 4 holds: exp(sum sigma**2 / (18 max(sigma)**2)), at most exp(d/18)."""
    limit = bernstein_limit(vector(sigma=sigma))
    return 1 / limit if limit else math.inf
