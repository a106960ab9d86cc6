"""Find the quantiles of a generalized chi-square variable Q."""

from __future__ import annotations

from collections.abc import Callable
from typing import overload

import numpy as np

from egm._gx2.contour import Crossing, find_root, saddle
from egm._gx2.form import Form
from egm._gx2.tails import at_each, log_complement, tail_and_density
from egm._types import Array, ArrayLike, Floats
from egm._validate import real

# The saddlepoint formula's limit at the near end of either tail, log(e / sqrt(2 pi)): no tail is larger.
_LAPLACE_TOP = 1 - 0.5 * np.log(2 * np.pi)
_LOWEST = 690.0  # theta of the lower tail at x near 1e-300 of the largest weight; quantiles below it are 0


@overload
def isf(p: float, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> float: ...
@overload
def isf(p: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> Array: ...
def isf(p: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> Floats:
    """Compute the upper quantile of a generalized chi-square variable Q.

    The upper quantile is the x with P[Q > x] = p.

    Parameters
    ----------
    p : float or array_like
        Probability or probabilities, in [0, 1].
    weights : array_like, shape (d,)
        Weights of the independent chi-square variables in the weighted sum Q, finite and > 0.
    dof : float or array_like, shape (d,), default 1
        Degrees of freedom of these variables, finite and > 0; they need not be whole numbers.
    nc : float or array_like, shape (d,), default 0
        Noncentralities of these variables, finite and >= 0.

    Returns
    -------
    float or ndarray
        The quantile, in the shape of `p` and in the units of `weights`; ``p = 0`` gives infinity
        and ``p = 1`` gives 0. The round trip ``sf(isf(p)) = p`` holds to a relative error of about
        1e-12.

    Raises
    ------
    ValueError
        If `p` is outside [0, 1], or if `weights`, `dof` or `nc` are outside their ranges.
    AccuracyError
        If the search or a quadrature fails.

    See Also
    --------
    ilogsf : The upper quantile for a probability that is given by its logarithm.
    ppf : The lower quantile.
    egm.bounds : Upper bounds on this quantile in closed form.

    Examples
    --------
    The squared norm that a row of three scaled columns (age, income, visits) exceeds with
    probability 1e-4:

    >>> import numpy as np
    >>> from egm import gx2, scaling
    >>> sigma = np.array([18, 1200, 3])
    >>> weights = (scaling.expected_norm(sigma) * sigma) ** 2
    >>> round(float(gx2.isf(1e-4, weights)), 4)
    14.8937
    """
    return ilogsf(_log_probability(p), weights, dof, nc)


@overload
def ppf(p: float, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> float: ...
@overload
def ppf(p: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> Array: ...
def ppf(p: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> Floats:
    """Compute the lower quantile of a generalized chi-square variable Q.

    The lower quantile is the x with P[Q <= x] = p.

    Parameters
    ----------
    p : float or array_like
        Probability or probabilities, in [0, 1].
    weights : array_like, shape (d,)
        Weights of the independent chi-square variables in the weighted sum Q, finite and > 0.
    dof : float or array_like, shape (d,), default 1
        Degrees of freedom of these variables, finite and > 0; they need not be whole numbers.
    nc : float or array_like, shape (d,), default 0
        Noncentralities of these variables, finite and >= 0.

    Returns
    -------
    float or ndarray
        The quantile, in the shape of `p` and in the units of `weights`. It is 0 where the exact
        quantile would underflow, and infinity for ``p = 1``.

    Raises
    ------
    ValueError
        If `p` is outside [0, 1], or if `weights`, `dof` or `nc` are outside their ranges.
    AccuracyError
        If the search or a quadrature fails.

    See Also
    --------
    isf : The upper quantile.

    Examples
    --------
    >>> from egm import gx2
    >>> round(float(gx2.ppf(0.5, [1.0, 0.5])), 4)
    1.0012
    """
    return at_each(lambda form, log_p: quantile(form, log_p, lower=True), _log_probability(p), weights, dof, nc)


@overload
def ilogsf(logp: float, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> float: ...
@overload
def ilogsf(logp: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> Array: ...
def ilogsf(logp: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> Floats:
    """Compute the upper quantile of a generalized chi-square variable Q from the logarithm of a probability.

    The quantile is the x with log P[Q > x] = logp. This function is for probabilities that are too small for
    a double: `logp` may be -1e6.

    Parameters
    ----------
    logp : float or array_like
        Logarithm or logarithms of the probability, <= 0.
    weights : array_like, shape (d,)
        Weights of the independent chi-square variables in the weighted sum Q, finite and > 0.
    dof : float or array_like, shape (d,), default 1
        Degrees of freedom of these variables, finite and > 0; they need not be whole numbers.
    nc : float or array_like, shape (d,), default 0
        Noncentralities of these variables, finite and >= 0.

    Returns
    -------
    float or ndarray
        The quantile, in the shape of `logp` and in the units of `weights`; ``logp = 0`` gives 0 and
        ``logp = -inf`` gives infinity.

    Raises
    ------
    ValueError
        If `logp` is positive or NaN, or if `weights`, `dof` or `nc` are outside their ranges.
    AccuracyError
        If the search or a quadrature fails.

    See Also
    --------
    isf : The upper quantile of a probability.

    Examples
    --------
    >>> from egm import gx2
    >>> round(float(gx2.ilogsf(-1e6, [1.0, 0.5])), 1)
    1999985.7
    """
    logp = real(logp=logp)
    if np.any(logp > 0):
        raise ValueError(f"logp must be <= 0, got {float(np.max(logp))!r}")
    return at_each(lambda form, log_p: quantile(form, log_p, lower=False), logp, weights, dof, nc)


def _log_probability(p: ArrayLike) -> Array:
    """Return log p, where log 0 is -inf, or raise a ValueError if an entry of `p` is outside [0, 1]."""
    p = real(p=p)
    if np.any((p < 0) | (p > 1)):
        raise ValueError(f"p must lie in [0, 1], got {float(p[(p < 0) | (p > 1)].flat[0])!r}")
    return np.log(p, where=p > 0, out=np.full_like(p, -np.inf))


def quantile(form: Form, log_p: float, lower: bool) -> float:
    """Find the quantile x at which a tail has the logarithm `log_p`: P[Q <= x] if `lower` is true, else P[Q > x].

    Q is the variable whose parameters `form` holds. The search uses the smaller one of the tails P[Q <= x] and P[Q >
    x], because the larger one may be too close to 1.
    """
    if log_p == 0 or np.isinf(log_p):
        return np.inf if (log_p == 0) == lower else 0.0
    log_other = log_complement(log_p)
    log_upper, log_lower = (log_other, log_p) if lower else (log_p, log_other)
    x = _search(form, log_upper, lower=False) if _above_mean(form, log_upper) else 0.0
    return form.unit * (x or _search(form, log_lower, lower=True))


def _above_mean(form: Form, log_upper: float) -> bool:
    """Return whether the x with P[Q > x] = exp(log_upper) lies above the mean of Q.

    Q is the variable whose parameters `form` holds. If x lies above the mean, `quantile` searches x by the upper tail,
    and otherwise by the lower tail. Both searches end at the same x, but a tail that is close to 1 makes the search
    inaccurate. P[Q > mean] is 0.317 for one degree of freedom, and rises towards 1/2 as the number of degrees of
    freedom grows. So for most values of `log_upper` the answer is known without computing P[Q > mean].
    """
    if log_upper >= np.log(0.5):
        return False
    if log_upper < np.log(0.3) and form.central and form.k.min() >= 1:
        return True
    return log_upper < saddle(form, form.mean, lower=False).formula()[0]


def _search(form: Form, log_p: float, lower: bool) -> float:
    """Find the x at which the logarithm of the lower tail (if `lower` is true) or of the upper tail is `log_p`.

    The result is divided by the unit of `form`, which holds the parameters of Q. The search is over the parameter theta
    of a `Crossing`. Let a be the largest logarithm that the saddlepoint formula can give. Then a minus the log tail is
    nearly proportional to a power of exp(theta). So the search is for the zero of log((a - log tail) / (a - log_p)),
    which is nearly a straight line in theta. A first search uses the saddlepoint formula in place of the tail. A second
    search starts from the result of the first one and uses the tail itself.
    """
    depth = _LAPLACE_TOP - log_p

    def excess(theta: float, tail: Callable[[Crossing], tuple[float, float, float]]) -> tuple[float, float, float]:
        crossing = Crossing(form, theta, lower)
        log_tail, slope, kept = tail(crossing)
        return np.log((_LAPLACE_TOP - log_tail) / depth), -slope / (_LAPLACE_TOP - log_tail), kept

    def formula(crossing: Crossing) -> tuple[float, float, float]:
        return *crossing.formula(), crossing.theta

    def exact(crossing: Crossing) -> tuple[float, float, float]:
        log_tail, _, log_density, density_slope = tail_and_density(crossing, crossing.x)
        tail_slope = (1 if lower else -1) * np.exp(log_density - log_tail)  # d log tail / dx
        step = (log_p - log_tail) / tail_slope
        x = crossing.x + step - step**2 * (density_slope - tail_slope) / 2
        return log_tail, tail_slope * crossing.spread * crossing.pace / crossing.c, x

    if lower and excess(_LOWEST, formula)[0] < 0:
        return 0.0
    # For equal weights log(1 - c) has this solution, to a few percent, from the saddlepoint formula.
    ratio = depth / form.deviation**2
    start = find_root(lambda theta: excess(theta, formula), np.log(ratio + np.sqrt(2 * ratio)), tolerance=3e-4)
    # The last round ends with a second-order step in x, whose error is the third power of 3e-5.
    return find_root(lambda theta: excess(theta, exact), start, tolerance=3e-5 / depth)
