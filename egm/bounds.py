r"""Bound the quantiles of a weighted sum of squared normal variables from above, in closed form.

Each bound is at least the upper quantile ``egm.gx2.isf(p, weights)`` of

.. math:: Q = \sum_j w_j Z_j^2, \qquad Z_j \sim N(0, 1) \text{ independent}, \quad w_j > 0.

So the square root of a bound is a radius that a row with squared norm Q exceeds with probability at
most p. Where an inequality says nothing for some p, its bound is infinite.
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
    r"""Bound the upper quantile of a generalized chi-square variable by Lemma 4.2 of Poulsen's report (2023).

    The variable is :math:`Q = \sum_j w_j Z_j^2` with independent standard normal :math:`Z_j`.

    Parameters
    ----------
    p : float or array_like
        Probability or probabilities with which Q may exceed the bound, strictly between 0 and 1.
    weights : array_like, shape (d,)
        Weights w of the terms of Q, finite and > 0.

    Returns
    -------
    float or ndarray
        The bound, in the shape of `p` and in the units of `weights`. It is infinite for
        ``p < bernstein_limit(weights)``, where the lemma claims nothing, and if it would overflow.

    Raises
    ------
    ValueError
        If `p` or an entry of `weights` is outside its range.

    See Also
    --------
    bernstein_limit : The smallest p for which the lemma holds.
    laurent_massart : A bound that holds for every p.

    Notes
    -----
    The bound is

    .. math:: \sum_j w_j + \sqrt{8 \ln(1/p) \sum_j w_j^2}.

    It is Lemma 4.2 of [1]_, and follows from Bernstein's inequality ([2]_, Proposition 2.10) with the
    parameter :math:`3 \max_j w_j` of Bernstein's condition.

    References
    ----------
    .. [1] Poulsen (2023), "Differentially private vector sums in the case of normally distributed
       data".
    .. [2] Wainwright (2019), "High-Dimensional Statistics: A Non-Asymptotic Viewpoint".

    Examples
    --------
    For 200 equal columns the bound holds at p = 1e-4; it lies above the quantile.

    >>> import numpy as np
    >>> from egm import bounds, gx2
    >>> weights = np.full(200, 1 / 200)
    >>> round(float(gx2.isf(1e-4, weights)), 4)
    1.4153
    >>> round(float(bounds.bernstein(1e-4, weights)), 4)
    1.607

    For three columns Lemma 4.2 claims nothing at this p.

    >>> float(bounds.bernstein(1e-4, [0.5, 0.3, 0.2]))
    inf
    """
    p, (unit, scaled) = probability(p=p), _scaled(weights)
    bound = _times(unit, np.sum(scaled) + np.sqrt(-8 * np.log(p) * np.sum(scaled**2)))
    return np.where(p >= bernstein_limit(weights), bound, np.inf)[()]


def bernstein_limit(weights: ArrayLike) -> float:
    r"""Return the smallest probability p for which the bound `bernstein` (Lemma 4.2 of Poulsen's report) is finite.

    Parameters
    ----------
    weights : array_like, shape (d,)
        Weights w in :math:`Q = \sum_j w_j Z_j^2`, finite and > 0.

    Returns
    -------
    float
        The probability :math:`\exp(-\sum_j w_j^2 / (18 \max_j w_j^2))`. It is at least
        :math:`\exp(-d/18)`, and equal to this value if all weights are equal.

    Raises
    ------
    ValueError
        If an entry of `weights` is not finite and > 0.

    See Also
    --------
    bernstein : The bound of Lemma 4.2.

    Examples
    --------
    >>> from egm import bounds
    >>> f"{bounds.bernstein_limit([1 / 200] * 200):.3e}"
    '1.495e-05'
    """
    _, weights = _scaled(weights)
    return float(np.exp(-np.sum(weights**2) / 18))


@overload
def laurent_massart(p: float, weights: ArrayLike) -> float: ...
@overload
def laurent_massart(p: ArrayLike, weights: ArrayLike) -> Array: ...
def laurent_massart(p: ArrayLike, weights: ArrayLike) -> Floats:
    r"""Bound the upper quantile of a generalized chi-square variable by Laurent and Massart's inequality.

    The variable is :math:`Q = \sum_j w_j Z_j^2` with independent standard normal :math:`Z_j`.

    Parameters
    ----------
    p : float or array_like
        Probability or probabilities with which Q may exceed the bound, strictly between 0 and 1.
    weights : array_like, shape (d,)
        Weights w of the terms of Q, finite and > 0.

    Returns
    -------
    float or ndarray
        The bound, in the shape of `p` and in the units of `weights`. It is infinite if it would overflow.

    Raises
    ------
    ValueError
        If `p` or an entry of `weights` is outside its range.

    See Also
    --------
    egm.gx2.isf : The quantile itself.

    Notes
    -----
    With :math:`t = \ln(1/p)` the bound is

    .. math:: \sum_j w_j + 2 \sqrt{t \sum_j w_j^2} + 2 t \max_j w_j

    ([1]_, Lemma 1). It holds for every p and all weights.

    References
    ----------
    .. [1] Laurent and Massart (2000), "Adaptive estimation of a quadratic functional by model
       selection".

    Examples
    --------
    >>> import numpy as np
    >>> from egm import bounds, gx2
    >>> weights = np.full(200, 1 / 200)
    >>> round(float(gx2.isf(1e-4, weights)), 4)
    1.4153
    >>> round(float(bounds.laurent_massart(1e-4, weights)), 4)
    1.5213
    """
    p, (unit, weights) = probability(p=p), _scaled(weights)
    t: Array = -np.log(p)
    return _times(unit, np.sum(weights) + 2 * np.sqrt(t * np.sum(weights**2)) + 2 * t)


@overload
def chebyshev(p: float, weights: ArrayLike) -> float: ...
@overload
def chebyshev(p: ArrayLike, weights: ArrayLike) -> Array: ...
def chebyshev(p: ArrayLike, weights: ArrayLike) -> Floats:
    r"""Bound the upper quantile of a generalized chi-square variable by Chebyshev's inequality.

    The variable is :math:`Q = \sum_j w_j Z_j^2` with independent standard normal :math:`Z_j`.

    Parameters
    ----------
    p : float or array_like
        Probability or probabilities with which Q may exceed the bound, strictly between 0 and 1.
    weights : array_like, shape (d,)
        Weights w of the terms of Q, finite and > 0.

    Returns
    -------
    float or ndarray
        The bound, in the shape of `p` and in the units of `weights`. It is infinite if it would overflow.

    Raises
    ------
    ValueError
        If `p` or an entry of `weights` is outside its range.

    See Also
    --------
    laurent_massart : A bound that is smaller for small p.

    Notes
    -----
    The bound is

    .. math:: \sum_j w_j + \sqrt{\frac{2}{p} \sum_j w_j^2}.

    It uses the mean and the variance of Q alone, and holds for every p and all weights.

    Examples
    --------
    >>> import numpy as np
    >>> from egm import bounds, gx2
    >>> weights = np.full(200, 1 / 200)
    >>> round(float(gx2.isf(1e-4, weights)), 4)
    1.4153
    >>> round(float(bounds.chebyshev(1e-4, weights)), 4)
    11.0
    """
    p, (unit, weights) = probability(p=p), _scaled(weights)
    small = 2.0**-64  # so that the quotient does not overflow
    return _times(unit, np.sum(weights) + np.sqrt(2 * small**2 * np.sum(weights**2) / p) / small)


def theorem4(sigma: ArrayLike, n: int) -> float:
    r"""Bound the mean squared noise of `egm.mechanisms.GaussianDataMechanism` by Theorem 4 of Poulsen's report (2023).

    The bound is for a noise multiplier of 1, that is, divided by the squared noise multiplier.

    Parameters
    ----------
    sigma : array_like, shape (d,)
        Standard deviations of the columns, finite and > 0.
    n : int
        Number of rows, >= 1.

    Returns
    -------
    float
        An upper bound on :math:`E\|\eta\|^2 / \sigma_\mathrm{opt}^2`, in the squared units of
        `sigma`. Here :math:`\eta` is the noise with the scaling of Lemma 4.1
        (`egm.scaling.expected_norm`) and the clip probability 1/n, and :math:`\sigma_\mathrm{opt}`
        is the noise multiplier. The bound is infinite for ``n > theorem4_limit(sigma)``, where the
        theorem claims nothing, and if it would overflow. If it would underflow to 0, it is the least
        double > 0.

    Raises
    ------
    ValueError
        If `sigma` is outside its range or `n` is not a whole number >= 1.

    See Also
    --------
    theorem4_limit : The largest n for which the theorem holds.
    egm.scaling.noise_factor : A quarter of the number that `theorem4` bounds, exact and for any scaling.

    Notes
    -----
    With :math:`S = \sum_j \sigma_j` the bound is

    .. math:: 4 S \Bigl( \sqrt{8 \ln(n) \sum_j \sigma_j^2} + S \Bigr)

    ([1]_, Theorem 4).

    References
    ----------
    .. [1] Poulsen (2023), "Differentially private vector sums in the case of normally distributed
       data".

    Examples
    --------
    For 200 equal columns and 10,000 rows the theorem holds. The first number is the bound of the
    theorem. The second number is the exact value, which is four times `egm.scaling.noise_factor`.

    >>> import numpy as np
    >>> from egm import bounds, scaling
    >>> sigma = np.full(200, 1 / 200)
    >>> round(bounds.theorem4(sigma, n=10_000), 4)
    6.4279
    >>> b = scaling.expected_norm(sigma)
    >>> round(4 * scaling.noise_factor(b, sigma, clip_probability=1e-4), 4)
    5.6612
    """
    sigma, n = vector(sigma=sigma), count(n=n)
    if n > theorem4_limit(sigma):
        return np.inf
    unit = 2.0 ** (math.frexp(np.max(sigma))[1] - 1)
    sigma = sigma / unit
    total = float(np.sum(sigma))
    bound = 4 * total * (math.sqrt(8 * math.log(n) * float(np.sum(sigma**2))) + total)
    return max(bound * unit * unit, 5e-324)


def theorem4_limit(sigma: ArrayLike) -> float:
    r"""Return the largest number n of rows for which `theorem4` (Theorem 4 of Poulsen's report, 2023) is finite.

    Parameters
    ----------
    sigma : array_like, shape (d,)
        Standard deviations of the columns, finite and > 0.

    Returns
    -------
    float
        The number of rows :math:`\exp(\sum_j \sigma_j^2 / (18 \max_j \sigma_j^2))`, in general not
        a whole number. It is at most :math:`\exp(d/18)` for d columns, and infinite where it would
        overflow.

    Raises
    ------
    ValueError
        If an entry of `sigma` is not finite and > 0.

    See Also
    --------
    theorem4 : The bound of Theorem 4.

    Examples
    --------
    For three columns (age, income, visits) the theorem says nothing about two rows or more.

    >>> from egm import bounds
    >>> round(bounds.theorem4_limit([18, 1200, 3]), 4)
    1.0571
    """
    limit = bernstein_limit(vector(sigma=sigma))
    return 1 / limit if limit else math.inf


def _scaled(weights: ArrayLike) -> tuple[float, Array]:
    """Check `weights`, and return the largest weight and a vector of all weights divided by it.

    The sum of the squares of the quotients neither overflows nor is 0.
    """
    weights = vector(weights=weights)
    unit = float(np.max(weights))
    return unit, weights / unit


def _times(unit: float, bound: Array) -> Array:
    """Return `unit` times `bound`, a number or an array; the product is infinite where it overflows."""
    with np.errstate(over="ignore"):
        return (unit * bound)[()]
