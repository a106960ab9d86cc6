r"""Compute tails, quantiles and moments of the generalized chi-square distribution.

It is the distribution of a weighted sum of independent noncentral chi-square variables,

.. math:: Q = \sum_j w_j \, \chi^2(\nu_j, \lambda_j), \qquad w_j > 0.

In the signatures :math:`w` is called `weights`, :math:`\nu` is `dof` and :math:`\lambda` is `nc`.

The functions parallel those of `scipy.stats.ncx2`: `sf`, `logsf`, `cdf`, `logcdf`, `pdf`, `logpdf`,
`isf`, `ppf`, `mean`, `var` and `rvs`. Besides, `ilogsf` inverts `logsf` where p itself would
underflow, `conditional_means` says which coordinates a large Q is made of, and `clip_moments` says
what a row loses when it is clipped.

Notes
-----
This is how a tail is computed [1]_. The cumulant function of Q,

.. math::

    K(s) = \sum_j \Bigl[ -\frac{\nu_j}{2} \log(1 - 2 w_j s)
                         + \frac{\lambda_j w_j s}{1 - 2 w_j s} \Bigr],

is analytic except on a cut, which runs along the real axis from :math:`1 / (2 \max w)` to infinity.
The tails and the density are contour integrals of it:

.. math::

    \mathrm{sf}(x) &= \frac{1}{2 \pi i} \int e^{K(s) - s x} \, \frac{ds}{s}
        \quad \text{if the contour crosses the real axis at } c \in (0, 1 / (2 \max w)), \\
    \mathrm{cdf}(x) &= -\frac{1}{2 \pi i} \int e^{K(s) - s x} \, \frac{ds}{s}
        \quad \text{if it crosses at } c < 0, \\
    \mathrm{pdf}(x) &= \frac{1}{2 \pi i} \int e^{K(s) - s x} \, ds
        \quad \text{on either contour.}

1. The contour crosses at the saddle point c, where the integrand has its smallest value on the
   real axis and falls off fastest across it. That value, :math:`e^{K(c) - c x} / |c|`, is a factor
   of the whole integral: it carries the size of the tail, 1e-300 or exp(-1e6), and is only ever
   handled by its logarithm. What is left is a number of order one.
2. The contour is the parabola :math:`s = c + i h u + \gamma u^2`, which follows the path of
   steepest descent to third order. On it the integrand falls like :math:`e^{-u^2/2}`, and the
   trapezoid rule in u converges geometrically: the step is halved until two rules agree, and the
   difference of the last two gives the estimate of the error.
3. A quantile is searched over c instead of x, because :math:`x(c) = K'(c) - 1/c` is explicit. The
   saddlepoint formula to second order [2]_ gives the start: its relative error is about a tenth,
   and a few percent in a tail. Newton's rule with the tail itself ends the search after one or two
   contours.
4. Many weights are put into clusters. Each cluster is replaced by its center and the moments about
   it, because :math:`\log(1 - 2 w s)` is analytic in w: with :math:`w = m (1 + e)` and
   :math:`V = 2 m s / (1 - 2 m s)`,

   .. math::

       \log(1 - 2 w s) = \log(1 - 2 m s) + \log(1 - V e),
       \qquad \log(1 - V e) = -\sum_{p \geq 1} \frac{(V e)^p}{p}.

   Clusters are a tenth wide in :math:`\log(r / (1 - r))`, where :math:`r = w / \max w`, so that
   :math:`|V e|` is at most 0.05 where it matters. This takes one pass over the weights, however
   many there are; after it a tail costs as much as with a few hundred of them.

The scales are these: weights are divided by the largest, so the cut starts at 1; and
:math:`1 - r c` is formed as :math:`(1 - c) + c (1 - r)`, with each part exact, because in a far
tail :math:`1 - c` is small and every digit of the result depends on it.

References
----------
.. [1] Rice (1980), "Distribution of Quadratic Forms in Normal Random Variables: Evaluation by
   Numerical Integration".
.. [2] Daniels (1987), "Tail Probability Approximations".
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeAlias, TypeVar, overload

import numpy as np
from numpy.typing import NDArray
from scipy.special import exp1, wofz

from egm._types import Array, ArrayLike, Floats
from egm._validate import nonnegative, positive, real, scalar, vector

__all__ = [
    "AccuracyError",
    "cdf",
    "clip_moments",
    "conditional_means",
    "ilogsf",
    "isf",
    "logcdf",
    "logpdf",
    "logsf",
    "mean",
    "pdf",
    "ppf",
    "rvs",
    "sf",
    "var",
]

_STEP = 0.2  # step of the first trapezoid rule, in units in which the integrand falls like exp(-u^2/2)
_BATCH = 72  # nodes added at a time until the integrand has died away
_MOST_NODES = 8192
_NEGLIGIBLE = 1e-17  # relative size at which the integrand counts as having died away
_HALVINGS = 5
_RTOL = 1e-13  # relative error at which the quadrature aims; the rounding of the exponent comes on top
_EPS = 2.2e-16

_EXACT = 256  # more weights than this are clustered
_WIDTH = 0.1  # width of a cluster, in log(r / (1 - r))
_ORDER = 10  # moments kept of each cluster

Complex: TypeAlias = NDArray[np.complex128]
Long: TypeAlias = NDArray[Any]  # of np.longdouble
Real: TypeAlias = Any  # a float or a np.longdouble
Quadrature: TypeAlias = tuple[Complex, Complex, float]  # nodes, masses, relative error
Estimate: TypeAlias = tuple[float, float]  # a logarithm, and its error
T = TypeVar("T")


class AccuracyError(ArithmeticError):
    """Error of a computation that did not reach its accuracy.

    Parameters
    ----------
    message : str
        Description of the step that failed.
    estimate : float
        Best value that this step had found.

    Attributes
    ----------
    estimate : float
        Best value that the failed step had found, for diagnosis. It is not the tail: it is the
        coordinate of the saddle point if a search failed, the integral relative to the height of
        its integrand if the quadrature stayed too inaccurate, and NaN if the integrand did not die
        away.

    Examples
    --------
    A caller who needs an upper bound of a tail can fall back on the bound that always holds.

    >>> from egm import gx2
    >>> try:
    ...     tail = gx2.sf(3.0, [1.0, 0.5])
    ... except gx2.AccuracyError:
    ...     tail = 1.0
    >>> round(float(tail), 4)
    0.1358
    """

    def __init__(self, message: str, estimate: float) -> None:
        super().__init__(message)
        self.estimate = estimate


# ----------------------------------------------------------------------------------------------------------------------
# Public functions
# ----------------------------------------------------------------------------------------------------------------------


@overload
def sf(x: float, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> float: ...
@overload
def sf(x: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> Array: ...
@overload
def sf(x: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0, *, full_output: bool) -> Any: ...
def sf(
    x: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0, *, full_output: bool = False
) -> Floats | tuple[Floats, Floats]:
    """Compute the upper tail P[Q > x] of a generalized chi-square variable Q.

    Parameters
    ----------
    x : float or array_like
        Point or points, in the units of `weights`. They may be infinite, but not NaN.
    weights : array_like, shape (d,)
        Weights of the terms of Q, finite and > 0.
    dof : float or array_like, shape (d,), default 1
        Degrees of freedom of the terms, finite and > 0; they need not be whole numbers.
    nc : float or array_like, shape (d,), default 0
        Noncentralities of the terms, finite and >= 0.
    full_output : bool, default False
        Whether to return the estimated error as well.

    Returns
    -------
    tail : float or ndarray
        The probability :math:`P[Q > x]`, in the shape of `x`. Its relative error is at most 1e-12
        down to 1e-300.
    error : float or ndarray
        Estimated relative error of `tail`, in the shape of `x`; only with ``full_output=True``.

    Raises
    ------
    ValueError
        If an entry of `x` is NaN, or if `weights`, `dof` or `nc` are outside their ranges.
    AccuracyError
        If the quadrature fails.

    See Also
    --------
    logsf : The logarithm of the tail, also where the tail would underflow.
    isf : The inverse function.

    Notes
    -----
    The tail is an integral along a contour through the saddle point of its integrand [1]_, as the
    page of the module explains. The estimated error is the difference of the last two quadratures,
    squared, plus a bound on the rounding in the exponent. The estimate is not rigorous; it covers
    every reference case of the tests.

    References
    ----------
    .. [1] Rice (1980), "Distribution of Quadratic Forms in Normal Random Variables: Evaluation by
       Numerical Integration".

    Examples
    --------
    The probability that the squared norm of a row of three scaled columns (age, income, visits)
    exceeds 16:

    >>> import numpy as np
    >>> from egm import gx2, scaling
    >>> sigma = np.array([18, 1200, 3])
    >>> weights = (scaling.expected_norm(sigma) * sigma) ** 2
    >>> f"{gx2.sf(16, weights):.4e}"
    '5.5148e-05'
    """
    return _output(_upper(x, weights, dof, nc), np.exp, full_output)


@overload
def logsf(x: float, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> float: ...
@overload
def logsf(x: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> Array: ...
@overload
def logsf(x: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0, *, full_output: bool) -> Any: ...
def logsf(
    x: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0, *, full_output: bool = False
) -> Floats | tuple[Floats, Floats]:
    r"""Compute the logarithm of the upper tail P[Q > x] of a generalized chi-square variable Q.

    The tail itself may be too small for a double.

    Parameters
    ----------
    x : float or array_like
        Point or points, in the units of `weights`. They may be infinite, but not NaN.
    weights : array_like, shape (d,)
        Weights of the terms of Q, finite and > 0.
    dof : float or array_like, shape (d,), default 1
        Degrees of freedom of the terms, finite and > 0; they need not be whole numbers.
    nc : float or array_like, shape (d,), default 0
        Noncentralities of the terms, finite and >= 0.
    full_output : bool, default False
        Whether to return the estimated error as well.

    Returns
    -------
    log_tail : float or ndarray
        The logarithm :math:`\log P[Q > x]`, in the shape of `x`. Its absolute error is the relative
        error of `sf`.
    error : float or ndarray
        Estimated absolute error of `log_tail`, in the shape of `x`; only with ``full_output=True``.
        The notes of `sf` explain the estimate.

    Raises
    ------
    ValueError
        If an entry of `x` is NaN, or if `weights`, `dof` or `nc` are outside their ranges.
    AccuracyError
        If the quadrature fails.

    See Also
    --------
    sf : The tail itself.
    ilogsf : The inverse function.

    Examples
    --------
    >>> from egm import gx2
    >>> round(float(gx2.logsf(1e6, [1.0, 0.5])), 3)
    -500006.787
    """
    return _output(_upper(x, weights, dof, nc), np.positive, full_output)


@overload
def cdf(x: float, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> float: ...
@overload
def cdf(x: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> Array: ...
@overload
def cdf(x: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0, *, full_output: bool) -> Any: ...
def cdf(
    x: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0, *, full_output: bool = False
) -> Floats | tuple[Floats, Floats]:
    r"""Compute the lower tail P[Q <= x] of a generalized chi-square variable Q.

    Parameters
    ----------
    x : float or array_like
        Point or points, in the units of `weights`. They may be infinite, but not NaN.
    weights : array_like, shape (d,)
        Weights of the terms of Q, finite and > 0.
    dof : float or array_like, shape (d,), default 1
        Degrees of freedom of the terms, finite and > 0; they need not be whole numbers.
    nc : float or array_like, shape (d,), default 0
        Noncentralities of the terms, finite and >= 0.
    full_output : bool, default False
        Whether to return the estimated error as well.

    Returns
    -------
    tail : float or ndarray
        The probability :math:`P[Q \leq x]`, in the shape of `x`. It has the relative accuracy of
        `sf`, also near zero.
    error : float or ndarray
        Estimated relative error of `tail`, in the shape of `x`; only with ``full_output=True``. The
        notes of `sf` explain the estimate.

    Raises
    ------
    ValueError
        If an entry of `x` is NaN, or if `weights`, `dof` or `nc` are outside their ranges.
    AccuracyError
        If the quadrature fails.

    See Also
    --------
    logcdf : The logarithm of the lower tail, also where the tail would underflow.
    ppf : The inverse function.

    Examples
    --------
    >>> from egm import gx2
    >>> round(float(gx2.cdf(3.0, [1.0, 0.5])), 4)
    0.8642
    >>> f"{gx2.cdf(1e-30, [1.0, 0.5]):.4e}"
    '7.0711e-31'
    """
    return _output(_lower(x, weights, dof, nc), np.exp, full_output)


@overload
def logcdf(x: float, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> float: ...
@overload
def logcdf(x: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> Array: ...
@overload
def logcdf(x: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0, *, full_output: bool) -> Any: ...
def logcdf(
    x: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0, *, full_output: bool = False
) -> Floats | tuple[Floats, Floats]:
    r"""Compute the logarithm of the lower tail P[Q <= x] of a generalized chi-square variable Q.

    The tail itself may be too small for a double.

    Parameters
    ----------
    x : float or array_like
        Point or points, in the units of `weights`. They may be infinite, but not NaN.
    weights : array_like, shape (d,)
        Weights of the terms of Q, finite and > 0.
    dof : float or array_like, shape (d,), default 1
        Degrees of freedom of the terms, finite and > 0; they need not be whole numbers.
    nc : float or array_like, shape (d,), default 0
        Noncentralities of the terms, finite and >= 0.
    full_output : bool, default False
        Whether to return the estimated error as well.

    Returns
    -------
    log_tail : float or ndarray
        The logarithm :math:`\log P[Q \leq x]`, in the shape of `x`. Its absolute error is the
        relative error of `cdf`.
    error : float or ndarray
        Estimated absolute error of `log_tail`, in the shape of `x`; only with ``full_output=True``.
        The notes of `sf` explain the estimate.

    Raises
    ------
    ValueError
        If an entry of `x` is NaN, or if `weights`, `dof` or `nc` are outside their ranges.
    AccuracyError
        If the quadrature fails.

    See Also
    --------
    cdf : The lower tail itself.

    Examples
    --------
    >>> from egm import gx2
    >>> round(float(gx2.logcdf(1e-300, [1.0, 0.5, 0.2, 0.1])), 4)
    -1381.3279
    """
    return _output(_lower(x, weights, dof, nc), np.positive, full_output)


@overload
def pdf(x: float, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> float: ...
@overload
def pdf(x: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> Array: ...
def pdf(x: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> Floats:
    """Compute the density of a generalized chi-square variable Q, the derivative of `cdf`.

    Parameters
    ----------
    x : float or array_like
        Point or points, in the units of `weights`. They may be infinite, but not NaN.
    weights : array_like, shape (d,)
        Weights of the terms of Q, finite and > 0.
    dof : float or array_like, shape (d,), default 1
        Degrees of freedom of the terms, finite and > 0; they need not be whole numbers.
    nc : float or array_like, shape (d,), default 0
        Noncentralities of the terms, finite and >= 0.

    Returns
    -------
    float or ndarray
        The density at `x`, in the shape of `x`: 0 for ``x < 0``, and the limit from above at
        ``x = 0``, which may be infinite.

    Raises
    ------
    ValueError
        If an entry of `x` is NaN, or if `weights`, `dof` or `nc` are outside their ranges.
    AccuracyError
        If the quadrature fails.

    See Also
    --------
    logpdf : The logarithm of the density, also where the density would underflow.

    Examples
    --------
    >>> from egm import gx2
    >>> gx2.pdf([0.0, 3.0], [1.0, 1.0]).round(4)
    array([0.5   , 0.1116])
    """
    return np.exp(logpdf(x, weights, dof, nc))


@overload
def logpdf(x: float, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> float: ...
@overload
def logpdf(x: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> Array: ...
def logpdf(x: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> Floats:
    """Compute the logarithm of the density of a generalized chi-square variable Q.

    Parameters
    ----------
    x : float or array_like
        Point or points, in the units of `weights`. They may be infinite, but not NaN.
    weights : array_like, shape (d,)
        Weights of the terms of Q, finite and > 0.
    dof : float or array_like, shape (d,), default 1
        Degrees of freedom of the terms, finite and > 0; they need not be whole numbers.
    nc : float or array_like, shape (d,), default 0
        Noncentralities of the terms, finite and >= 0.

    Returns
    -------
    float or ndarray
        The logarithm of the density at `x`, in the shape of `x`: minus infinity for ``x < 0``, and
        the limit from above at ``x = 0``.

    Raises
    ------
    ValueError
        If an entry of `x` is NaN, or if `weights`, `dof` or `nc` are outside their ranges.
    AccuracyError
        If the quadrature fails.

    See Also
    --------
    pdf : The density itself.

    Examples
    --------
    >>> from egm import gx2
    >>> gx2.logpdf([3.0, 3000.0], [1.0, 0.5]).round(4)
    array([   -2.4606, -1504.5754])
    """
    return _map(_log_density, real(x=x), weights, dof, nc)


@overload
def isf(p: float, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> float: ...
@overload
def isf(p: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> Array: ...
def isf(p: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> Floats:
    """Compute the upper quantile of a generalized chi-square variable Q.

    It is the x with P[Q > x] = p.

    Parameters
    ----------
    p : float or array_like
        Probability or probabilities, in [0, 1].
    weights : array_like, shape (d,)
        Weights of the terms of Q, finite and > 0.
    dof : float or array_like, shape (d,), default 1
        Degrees of freedom of the terms, finite and > 0; they need not be whole numbers.
    nc : float or array_like, shape (d,), default 0
        Noncentralities of the terms, finite and >= 0.

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
    ilogsf : The upper quantile for probabilities that no double can hold.
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

    It is the x with P[Q <= x] = p.

    Parameters
    ----------
    p : float or array_like
        Probability or probabilities, in [0, 1].
    weights : array_like, shape (d,)
        Weights of the terms of Q, finite and > 0.
    dof : float or array_like, shape (d,), default 1
        Degrees of freedom of the terms, finite and > 0; they need not be whole numbers.
    nc : float or array_like, shape (d,), default 0
        Noncentralities of the terms, finite and >= 0.

    Returns
    -------
    float or ndarray
        The quantile, in the shape of `p` and in the units of `weights`: 0 where it would underflow,
        and infinity for ``p = 1``.

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
    return _map(lambda form, log_p: _quantile(form, log_p, lower=True), _log_probability(p), weights, dof, nc)


@overload
def ilogsf(logp: float, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> float: ...
@overload
def ilogsf(logp: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> Array: ...
def ilogsf(logp: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> Floats:
    """Compute the upper quantile of a generalized chi-square variable Q from a log probability.

    It is the x with log P[Q > x] = logp. This function serves tails that no double can hold: `logp`
    may be -1e6.

    Parameters
    ----------
    logp : float or array_like
        Logarithm or logarithms of the probability, <= 0.
    weights : array_like, shape (d,)
        Weights of the terms of Q, finite and > 0.
    dof : float or array_like, shape (d,), default 1
        Degrees of freedom of the terms, finite and > 0; they need not be whole numbers.
    nc : float or array_like, shape (d,), default 0
        Noncentralities of the terms, finite and >= 0.

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
    return _map(lambda form, log_p: _quantile(form, log_p, lower=False), logp, weights, dof, nc)


def mean(weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> float:
    r"""Compute the mean of a generalized chi-square variable Q.

    Parameters
    ----------
    weights : array_like, shape (d,)
        Weights of the terms of Q, finite and > 0.
    dof : float or array_like, shape (d,), default 1
        Degrees of freedom of the terms, finite and > 0; they need not be whole numbers.
    nc : float or array_like, shape (d,), default 0
        Noncentralities of the terms, finite and >= 0.

    Returns
    -------
    float
        The mean :math:`E[Q] = \sum_j w_j (\nu_j + \lambda_j)`, in the units of `weights`.

    Raises
    ------
    ValueError
        If `weights`, `dof` or `nc` are outside their ranges.

    Examples
    --------
    >>> from egm import gx2
    >>> gx2.mean([1.0, 0.5], nc=[0.0, 4.0])
    3.5
    """
    weights, dof, nc = _parameters(weights, dof, nc)
    return float(np.sum(weights * (dof + nc)))


def var(weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> float:
    r"""Compute the variance of a generalized chi-square variable Q.

    Parameters
    ----------
    weights : array_like, shape (d,)
        Weights of the terms of Q, finite and > 0.
    dof : float or array_like, shape (d,), default 1
        Degrees of freedom of the terms, finite and > 0; they need not be whole numbers.
    nc : float or array_like, shape (d,), default 0
        Noncentralities of the terms, finite and >= 0.

    Returns
    -------
    float
        The variance :math:`\mathrm{Var}[Q] = 2 \sum_j w_j^2 (\nu_j + 2 \lambda_j)`, in the squared
        units of `weights`.

    Raises
    ------
    ValueError
        If `weights`, `dof` or `nc` are outside their ranges.

    Examples
    --------
    >>> from egm import gx2
    >>> gx2.var([1.0, 0.5])
    2.5
    """
    weights, dof, nc = _parameters(weights, dof, nc)
    return float(2 * np.sum(weights**2 * (dof + 2 * nc)))


@overload
def rvs(
    weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0, *, size: None = None, rng: np.random.Generator
) -> float: ...
@overload
def rvs(
    weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0, *, size: int | Sequence[int], rng: np.random.Generator
) -> Array: ...
def rvs(
    weights: ArrayLike,
    dof: ArrayLike = 1,
    nc: ArrayLike = 0,
    *,
    size: int | Sequence[int] | None = None,
    rng: np.random.Generator,
) -> Floats:
    """Draw from a generalized chi-square distribution by simulation.

    Parameters
    ----------
    weights : array_like, shape (d,)
        Weights of the terms of Q, finite and > 0.
    dof : float or array_like, shape (d,), default 1
        Degrees of freedom of the terms, finite and > 0; they need not be whole numbers.
    nc : float or array_like, shape (d,), default 0
        Noncentralities of the terms, finite and >= 0.
    size : int or sequence of int, optional
        Shape of the result. Without it the result is a single number.
    rng : numpy.random.Generator
        Source of the random numbers.

    Returns
    -------
    float or ndarray
        The draws, in the shape `size` and in the units of `weights`.

    Raises
    ------
    ValueError
        If `weights`, `dof` or `nc` are outside their ranges.

    Examples
    --------
    >>> import numpy as np
    >>> from egm import gx2
    >>> draws = gx2.rvs([1.0, 0.5], size=100_000, rng=np.random.default_rng(1))
    >>> round(float(draws.mean()), 1)
    1.5
    """
    weights, dof, nc = _parameters(weights, dof, nc)
    shape = () if size is None else tuple(np.atleast_1d(size))
    total = np.zeros(shape)
    for weight, k, shift in zip(weights, dof, nc, strict=True):
        total += weight * (rng.noncentral_chisquare(k, shift, shape) if shift else rng.chisquare(k, shape))
    return total[()]


def conditional_means(x: float, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> Array:
    r"""Compute the mean of each chi-square variable in the sum Q, given that Q = x.

    The result tells which terms make Q as large as `x`.

    Parameters
    ----------
    x : float
        Value of Q, finite and > 0, in the units of `weights`.
    weights : array_like, shape (d,)
        Weights of the terms of Q, finite and > 0.
    dof : float or array_like, shape (d,), default 1
        Degrees of freedom of the terms, finite and > 0; they need not be whole numbers.
    nc : float or array_like, shape (d,), default 0
        Noncentralities of the terms, finite and >= 0.

    Returns
    -------
    ndarray, shape (d,)
        The means :math:`E[Y_j \mid Q = x]` for :math:`Q = \sum_j w_j Y_j` with independent
        :math:`Y_j \sim \chi^2(\nu_j, \lambda_j)`.

    Raises
    ------
    ValueError
        If `x` is not a single number that is finite and > 0, or if `weights`, `dof` or `nc` are
        outside their ranges.
    AccuracyError
        If a quadrature fails.

    Notes
    -----
    The means satisfy :math:`\sum_j w_j E[Y_j \mid Q = x] = x`. They are also the derivatives of a
    quantile by the weights,

    .. math:: \frac{\partial \, \mathrm{isf}(p, w)}{\partial w_j} = E[Y_j \mid Q = x]
        \quad \text{where } \mathrm{isf}(p, w) = x.

    Each is a ratio of two contour integrals: the moment generating function of term j has the
    logarithmic derivative :math:`\nu_j / (1 - 2 w_j s) + \lambda_j / (1 - 2 w_j s)^2`, and this
    factor goes into the numerator.

    Examples
    --------
    >>> from egm import gx2
    >>> weights = [1.0, 0.5]
    >>> means = gx2.conditional_means(10.0, weights)
    >>> means.round(4)
    array([8.825, 2.35 ])
    >>> round(float(means @ weights), 4)
    10.0
    """
    x = scalar(positive, x=x)
    weights, dof, nc = _parameters(weights, dof, nc)
    form = _form(weights, dof, nc)
    crossing = _saddle(form, x / form.unit)
    shift, mass, _ = _contour(crossing, x / form.unit)
    once, twice = _inverses(crossing, shift, mass, weights)
    return (dof * once + nc * twice) / np.sum(mass).imag


def clip_moments(x: float, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> tuple[Array, Array, Array]:
    r"""Compute what a row loses when it is clipped to the squared norm x.

    The squared norm of the row is :math:`Q = \sum_j w_j Y_j`. Here
    :math:`Y_j \sim \chi^2(\nu_j, \lambda_j)` is the squared length of a normal vector :math:`V_j`
    of :math:`\nu_j` coordinates with variance 1, whose mean :math:`m_j` has the squared length
    :math:`\lambda_j`. Clipping takes the share :math:`L = \max(0, 1 - \sqrt{x / Q})` of the row
    away.

    Parameters
    ----------
    x : float
        Squared norm to which the row is clipped, finite and > 0, in the units of `weights`.
    weights : array_like, shape (d,)
        Weights of the terms of Q, finite and > 0.
    dof : float or array_like, shape (d,), default 1
        Degrees of freedom of the terms, finite and > 0; they need not be whole numbers.
    nc : float or array_like, shape (d,), default 0
        Noncentralities of the terms, finite and >= 0.

    Returns
    -------
    mean_factor : ndarray, shape (d,)
        The factors :math:`l_j` with :math:`E[L V_j] = l_j m_j`.
    lost : ndarray, shape (d,)
        The means :math:`E[L Y_j]`.
    lost_square : ndarray, shape (d,)
        The means :math:`E[L^2 Y_j]`. The relative error of all three is about 1e-12.

    Raises
    ------
    ValueError
        If `x` is not a single number that is finite and > 0, or if `weights`, `dof` or `nc` are
        outside their ranges.
    AccuracyError
        If a quadrature fails.

    See Also
    --------
    egm.forecast : The expected error of a clipped and noisy sum, which these moments give.

    Notes
    -----
    For a function g of Q, Stein's identity gives :math:`E[g(Q) V_j] = m_j E[g(Q')]`, where
    :math:`Q'` has two more degrees of freedom at weight j. So all three are integrals over the
    contour of the upper tail: the integrand is :math:`e^{K(s) - s x}` times
    :math:`1 / (1 - 2 w_j s)` or its square, times the transform of :math:`L` or :math:`L^2`.

    Examples
    --------
    The mean square of what clipping to squared norm 3 takes from each coordinate, in units of its
    variance:

    >>> from egm import gx2
    >>> _, _, lost_square = gx2.clip_moments(3.0, [1.0, 0.5])
    >>> lost_square.round(4)
    array([0.0319, 0.0135])
    """
    x = scalar(positive, x=x)
    weights, dof, nc = _parameters(weights, dof, nc)
    form = _form(weights, dof, nc)
    x = np.longdouble(x) / form.unit  # type: ignore[assignment]  # keeps its last digits
    try:
        once, twice, once_squared, twice_squared = _lost_in_tail(form, x, weights)
    except AccuracyError:
        once, twice, once_squared, twice_squared = _lost_by_density(form, x, weights)
    return once, dof * once + nc * twice, dof * once_squared + nc * twice_squared


def _lost_in_tail(form: _Form, x: Real, weights: Array) -> Array:
    """Compute E[L] and E[L^2] by one contour, for Q with more degrees of freedom at each weight.

    It returns four rows of d numbers: E[L] with two and with four more degrees of freedom, then
    E[L^2] with two and with four.
    """
    crossing = _saddle(form, x, lower=False)
    shift, mass, _ = _contour(crossing, x, density=False)
    height = float(x) * np.exp(crossing.log_height(x)[0]) / np.pi
    shares = _lost_share((crossing.c + shift) * float(x))
    return height * np.concatenate([_inverses(crossing, shift, mass * share, weights) for share in shares])


def _lost_by_density(form: _Form, x: Real, weights: Array) -> Array:
    """Compute the four rows of `_lost_in_tail` for an x so far below the mean that nearly everything is lost.

    It integrates over the density of Q, panel by panel in log Q.
    """
    ends = [_quantile(form, np.log(_NEGLIGIBLE), lower) / form.unit for lower in (True, False)]
    edges = np.linspace(np.log(max(float(x), ends[0])), np.log(ends[1]), 25)
    total = np.zeros((4, weights.size))
    for low, high in itertools.pairwise(edges):
        for node, share in zip(*_LEGENDRE, strict=True):
            r = np.exp((low + high + (high - low) * node) / 2)
            crossing = _saddle(form, r)
            shift, mass, _ = _contour(crossing, r)
            height = r * (high - low) / 2 * share * np.exp(crossing.log_height(r)[0]) / np.pi
            lost = 1 - np.sqrt(float(x) / r)
            inverses = np.array(_inverses(crossing, shift, mass, weights))
            total += height * np.concatenate([lost * inverses, lost**2 * inverses])
    return total


def _lost_share(z: Complex) -> tuple[Complex, Complex]:
    """Compute int_1^inf (1 - t^-1/2)^k exp(-z (t - 1)) dt for k = 1, 2 and complex z with Re z > 0.

    In closed form, with J_m the integral of t^(-m/2) exp(-z (t - 1)), they are 1/z - J_1 and 1/z -
    2 J_1 + J_2. These terms cancel when z is large; there Gauss-Laguerre quadrature in (t - 1) z is
    used.
    """
    root = np.sqrt(z)
    far = np.abs(z) > _FAR
    near = np.where(far, 1.0, z)
    one = np.sqrt(np.pi) / np.where(far, 1.0, root) * wofz(1j * np.where(far, 1.0, root))
    first, second = 1 / near - one, 1 / near - 2 * one + np.exp(near) * exp1(near)
    beyond = _LAGUERRE[0] / np.where(far, z, _FAR)[:, None]  # t - 1
    share = beyond / (1 + beyond + np.sqrt(1 + beyond))
    return np.where(far, _integral(share) / z, first), np.where(far, _integral(share**2) / z, second)


def _integral(values: NDArray[Any]) -> Complex:
    """Compute int_0^inf f(t) exp(-t) dt from the values of f at the nodes, shape (k, nodes).

    The sum is not a product of matrices, because so small a product may take a thousand times as
    long when the threads of a BLAS wait for each other.
    """
    return np.einsum("ij,j->i", values, _LAGUERRE[1])


_FAR = 2.0
_LAGUERRE = np.polynomial.laguerre.laggauss(80)
_LEGENDRE = np.polynomial.legendre.leggauss(12)


def _inverses(crossing: _Crossing, shift: Complex, mass: Complex, weights: Array) -> tuple[Array, Array]:
    """Compute Im sum_i mass_i / (1 - 2 w_j s_i) for every weight, and the sum with the squared denominator.

    About the center m of its cluster, 1 / (1 - 2 w s) is the inverse 1 / (1 - 2 m s) times sum_p (V
    e)^p, where V is the inverse less 1. The square of this has p + 1 times each term and one more
    inverse.
    """
    form = crossing.form
    inverse = 1 / (crossing.slack - np.outer(shift, form.r))
    term, once, twice = mass[:, None] * inverse, [], []
    for p in range(1 if form.moments is None else _ORDER + 1):
        once.append(np.sum(term, axis=0).imag)
        twice.append((p + 1) * np.sum(term * inverse, axis=0).imag)
        term *= inverse - 1
    group = np.searchsorted(form.lowest, weights, side="right") - 1
    e = weights / form.centers[group] - 1
    return _series(once, group, e), _series(twice, group, e)


def _series(rows: list[Array], group: NDArray[np.intp], e: Array) -> Array:
    """Compute sum_p rows[p][group] e^p by Horner's rule."""
    total = rows[-1][group]
    for row in rows[-2::-1]:
        total *= e
        total += row[group]
    return total


# ----------------------------------------------------------------------------------------------------------------------
# From arguments to a form whose largest weight is 1/2
# ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Form:
    """Q / unit, where unit is twice the largest weight.

    So 1 - 2 w s is 1 - r s, with r = w / max w in (0, 1]. A group of weights, the smallest of which
    is `lowest`, has a center, the sum k of its degrees of freedom and the sum nc of its
    noncentralities. Where the weights center * (1 + e) of a group differ, `moments` has the sums of
    k_j e_j^p and of nc_j e_j^p for p = 1 ... ORDER.
    """

    unit: float
    centers: Array
    lowest: Array
    k: Array
    nc: Array
    moments: tuple[Array, ...] | None = None

    @cached_property
    def r(self) -> Array:
        return self.centers / (self.unit / 2)

    @cached_property
    def gap(self) -> Array:
        """1 - r, by an exact subtraction of weights."""
        return (self.unit / 2 - self.centers) / (self.unit / 2)

    @cached_property
    def exact_r(self) -> Long:
        """r in extended precision.

        The rounding error of r is multiplied by the degrees of freedom, which may be large.
        """
        return self.centers / np.longdouble(self.unit / 2)

    @cached_property
    def central(self) -> bool:
        return not np.any(self.nc)

    @cached_property
    def means(self) -> Long:
        return self.exact_r * (self.k + self.nc) / 2

    @cached_property
    def mean(self) -> Real:
        return self.means.sum()

    @cached_property
    def deviation(self) -> float:
        return np.sqrt(self.r**2 @ (self.k / 2 + self.nc))  # type: ignore[return-value]  # of a scalar product


def _parameters(weights: ArrayLike, dof: ArrayLike, nc: ArrayLike) -> tuple[Array, Array, Array]:
    """Check the three parameters of Q and return them as vectors of the same length."""
    weights = vector(weights=weights)
    dof, nc = positive(dof=dof), nonnegative(nc=nc)
    for name, value in (("dof", dof), ("nc", nc)):
        if value.ndim > 1 or value.size not in (1, weights.size):
            raise ValueError(
                f"{name} must be a number or have the {weights.size} entries of weights, got shape {value.shape}"
            )
    return weights, np.broadcast_to(dof, weights.shape), np.broadcast_to(nc, weights.shape)


def _form(weights: Array, dof: Array, nc: Array) -> _Form:
    """Make the form of checked parameters.

    Equal weights are merged, and close ones are clustered if that leaves far fewer.
    """
    if weights.size <= _EXACT:
        return _merged(weights, dof, nc)
    if dof.strides == nc.strides == (0,):
        weights = np.sort(weights)
    else:
        order = np.argsort(weights)
        weights, dof, nc = weights[order], dof[order], nc[order]
    starts = np.unique(np.searchsorted(weights, _edges(weights[0], weights[-1])))
    make = _merged if 4 * starts.size > weights.size else partial(_clustered, starts=starts)
    return make(weights, dof, nc)


def _merged(weights: Array, dof: Array, nc: Array) -> _Form:
    """Make the form with one group for each distinct weight."""
    values, group = np.unique(weights, return_inverse=True)
    k, shift = (np.bincount(group, weights=v) for v in (dof, nc))
    return _Form(2 * values[-1], values, values, k, shift)  # type: ignore[arg-type]  # counts with weights are float64


def _clustered(weights: Array, dof: Array, nc: Array, *, starts: NDArray[np.intp]) -> _Form:
    """Make the form with one group for each cluster of sorted weights, in one pass for each moment."""
    sizes = np.diff(starts, append=weights.size)
    k, shift = np.add.reduceat(dof, starts), np.add.reduceat(nc, starts)
    centers = np.add.reduceat(weights * dof, starts) / k
    e = weights / np.repeat(centers, sizes) - 1
    moments = tuple(_moments(values, e, starts) for values in (dof, nc))
    return _Form(2 * weights[-1], centers, weights[starts], k, shift, moments)


def _edges(smallest: float, largest: float) -> Array:
    """Return the lower edges of the clusters, at equal steps of log(r / (1 - r)) up to the largest weight."""
    theta = np.arange(np.log(smallest) - np.log(largest) - _WIDTH, 37.0, _WIDTH)
    decay = np.exp(-np.abs(theta))
    edge = largest * (decay / (1 + decay))
    return np.where(theta < 0, edge, largest - edge)


def _moments(values: Array, e: Array, starts: NDArray[np.intp]) -> Array:
    """Compute sum_j values_j e_j^p over each cluster, for p = 1 ... ORDER: shape (ORDER, clusters)."""
    if not values.any():
        return np.zeros((_ORDER, starts.size))
    power = np.array(values)
    rows = []
    for _ in range(_ORDER):
        power *= e
        rows.append(np.add.reduceat(power, starts))
    return np.array(rows)


def _log_probability(p: ArrayLike) -> Array:
    """Compute log p for p in [0, 1], with log 0 = -inf."""
    p = real(p=p)
    if np.any((p < 0) | (p > 1)):
        raise ValueError(f"p must lie in [0, 1], got {float(p[(p < 0) | (p > 1)].flat[0])!r}")
    return np.log(p, where=p > 0, out=np.full_like(p, -np.inf))


# ----------------------------------------------------------------------------------------------------------------------
# The point where a contour crosses the real axis
# ----------------------------------------------------------------------------------------------------------------------


class _Crossing:
    """The saddle point c of exp(K(s) - s x) / s and its x, as functions of the unbounded coordinate theta.

    In the upper tail theta = log(c / (1 - c)) with c in (0, 1), in the lower tail theta = log(-c)
    with c < 0. For each group, `slack` is 1 - r c without cancellation, and `v` is r c / (1 - r c);
    `pace` is dlog|c|/dtheta. The derivatives at c are pure numbers: `drift` is K' times c, `spread`
    is the second derivative of K(s) - s x - log s times c^2, and `skew` is K''' times c^3. They
    leave out the moments of clusters, because they only choose a contour, and any contour gives the
    same integral.
    """

    def __init__(self, form: _Form, theta: float, lower: bool) -> None:
        self.form, self.theta, self.lower = form, theta, lower
        c = self.c = -np.exp(theta) if lower else 1 / (1 + np.exp(-theta))
        self.pace = 1.0 if lower else 1 / (1 + np.exp(theta))
        self.slack = 1 - c * form.r if lower else self.pace + c * form.gap  # the pace is 1 - c here
        v = self.v = c * form.r / self.slack
        square = v * v
        self.drift, self.spread, self.skew = v @ form.k / 2, square @ form.k / 2 + 1, (square * v) @ form.k
        if not form.central:
            inflated = form.nc / self.slack
            self.drift += v @ inflated / 2
            self.spread += square @ inflated
            self.skew += 3 * ((square * v) @ inflated)

    @property
    def x(self) -> float:
        """The x whose saddle point is c: K'(c) - 1/c."""
        return (self.drift - 1) / self.c

    def log_height(self, x: Real) -> tuple[float, float]:
        """Compute the logarithm of exp(K(c) - c x), and the size of the numbers whose sum it is.

        Together with 1/|c| this is the size of the integrand where the contour crosses. Terms with
        y = r c > -1 are taken less their mean, as -log(1 - y) - y, and x less these means, because
        for many weights both are far larger than their difference. The sums are in extended
        precision where the machine has it: they are the only sums of large numbers.
        """
        form, c = self.form, np.longdouble(self.c)
        y = c * form.exact_r
        if self.lower:
            slack, near = 1 - y, y > -1
            terms = form.k * np.where(near, _minus_log1p_less_mean(y, slack), -np.log(slack)) / 2
            y, less = np.where(near, y, 1.0), np.where(near, form.means, 0.0).sum()
        else:
            slack, less = (1 - c) + c * form.gap, form.mean
            terms = form.k * _minus_log1p_less_mean(y, slack) / 2
        if not form.central:
            terms = terms + form.nc * y * self.v / 2
        linear = c * (x - less)
        size = np.abs(terms).sum() + np.abs(form.k * y).sum() + abs(c * x)
        return float(terms.sum() - linear) + _beyond_centers(form, self.v), float(size)

    def formula(self) -> tuple[float, float]:
        """Compute the logarithm of the tail at `self.x`, and its slope, by the saddlepoint formula.

        With f the exponent K(s) - s x - log s and f2, f3, f4 its derivatives, the formula to second
        order is exp(f) / sqrt(2 pi f2) (1 + f4 / (8 f2^2) - 5 f3^2 / (24 f2^3)). The slope in theta
        is that of the formula to first order.
        """
        form, spread, third = self.form, self.spread, self.skew - 2
        fourth = 3 * (self.v**4 @ form.k) + 6
        if not form.central:
            fourth += 12 * (self.v**4 @ (form.nc / self.slack))
        height = 1 - self.drift + (self.v @ form.nc - np.log(self.slack) @ form.k) / 2
        correction = fourth / (8 * spread**2) - 5 * third**2 / (24 * spread**3)
        value = height - 0.5 * np.log(2 * np.pi * spread) + np.log1p(max(correction, -0.5))
        return value, -(spread + third / spread / 2) * self.pace


def _minus_log1p_less_mean(y: Long, slack: Long) -> Long:
    """Compute -log(1 - y) - y, where slack is 1 - y.

    Near zero it is the series of 2 artanh(z) with z = y / (2 - y).
    """
    value = -np.log(slack) - y
    small = np.abs(y) < 0.02
    if small.any():
        z = y[small] / (2 - y[small])
        q = z * z
        value[small] = 2 * q * (1 / (1 + z) + z * (1 / 3 + q * (1 / 5 + q * (1 / 7 + q / 9))))
    return value


def _beyond_centers(form: _Form, v: Any) -> Any:
    """Compute what the moments of clusters add to K, where v is r s / (1 - r s).

    It sums the series of log(1 - v e) and of 1 / (1 - v e).
    """
    if form.moments is None:
        return 0.0
    total, power = 0.0, 1.0
    for p, (k, nc) in enumerate(zip(*form.moments, strict=True), start=1):
        power = power * v
        total = total + np.vecdot(k / (2 * p), power)
        if not form.central:
            total = total + np.vecdot(nc / 2, (1 + v) * power)
    return total


def _saddle(form: _Form, x: Real, lower: bool | None = None) -> _Crossing:
    """Find the crossing whose saddle point belongs to x.

    By default it is in the lower tail for an x below the mean, and otherwise in the upper tail.
    """
    x = float(x)
    lower = x < form.mean if lower is None else lower
    z = abs(x - float(form.mean)) / form.deviation
    start = np.log((z + np.hypot(z, 2)) / (2 * form.deviation))

    def excess(theta: float) -> tuple[float, float, _Crossing]:
        """Compare x with the x of theta, by the logarithm of a ratio that increases in theta.

        The ratio is K'(c) / (x + 1/c) in the upper tail and x / (K'(c) - 1/c) in the lower tail.
        Its logarithm is nearly a straight line in theta on both sides.
        """
        crossing = _Crossing(form, theta, lower)
        drift, spread, pace, cx = crossing.drift, crossing.spread, crossing.pace, crossing.c * x
        if lower:
            return np.log(cx / (drift - 1)), pace * spread / (1 - drift), crossing
        return np.log(drift / (1 + cx)), pace * ((drift + spread - 1) / drift - cx / (1 + cx)), crossing

    return _root(excess, start, tolerance=1e-4)


def _root(increasing: Callable[[float], tuple[float, float, T]], start: float, tolerance: float) -> T:
    """Find the zero of an increasing function by Newton's rule, kept inside the bracket that the signs give.

    increasing(u) returns the value, the slope and whatever the caller wants to keep for this u. The
    search ends when the value is within the tolerance, and returns what was kept.
    """
    low, high, u = -np.inf, np.inf, start
    for _ in range(200):
        value, slope, kept = increasing(u)
        if abs(value) <= tolerance:
            return kept
        low, high = (u, high) if value < 0 else (low, u)
        target = u + (min(max(-value / slope, -30.0), 30.0) if slope > 0 else -np.sign(value))
        u = target if low < target < high else (low + high) / 2
    raise AccuracyError(f"no root within 200 steps, at {u!r} the value is {value:.1e}", estimate=u)


# ----------------------------------------------------------------------------------------------------------------------
# The contour
# ----------------------------------------------------------------------------------------------------------------------

# Steepest descent bends the contour by 1. Where one weight alone shapes the saddle point, but many others shape its
# surroundings, a bend of 1 is too much, and the integrand grows again: then a smaller bend is tried.
_BENDS = (1.0, 0.25, 0.0)


def _contour(crossing: _Crossing, x: Real, density: bool = True) -> Quadrature:
    """Choose nodes s - c and masses m of a quadrature along the contour.

    The masses are relative to the height of the integrand at c: for a factor F, 1/(2 pi i) int
    exp(K(s) - s x) F(s) ds = exp(K(c) - c x) / pi * Im sum_i m_i F(s_i). The third result is the
    estimated relative error for F = 1/s and, if `density` is true, also for F = 1: far below the
    mean, the density is too small beside the upper tail for a contour that crosses at c > 0.
    """
    x = float(x)
    for bend in _BENDS:
        try:
            return _trapezoid(crossing, x, bend, density)
        except AccuracyError as error:
            failure = error
    raise failure


def _trapezoid(crossing: _Crossing, x: float, bend: float, density: bool) -> Quadrature:
    """Compute the nodes, the masses and the error on a contour of the given bend.

    The step of the trapezoid rule is halved until two rules agree.
    """
    c, spread = abs(crossing.c), crossing.spread
    # The third derivative of K(s) - s x - log s. The pole's part of it would bend the upper contour left, where nothing
    # makes the integrand die away, and the lower one further than many weights can bear.
    third = abs(crossing.skew) + (2 / spread**2 if crossing.lower else 0)
    h, gamma = c / np.sqrt(spread), bend * c * third / (6 * spread**2)

    def evaluate(u: NDArray[Any]) -> tuple[Complex, Complex]:
        shift = 1j * h * u + gamma * u * u
        return shift, np.exp(_growth(crossing, shift) - shift * x) * (1j * h + 2 * gamma * u)

    shift, mass = _outwards(evaluate)
    u, step = _STEP * np.arange(shift.size), _STEP
    mass[0] /= 2
    terms = _terms(crossing, shift, mass)
    coarse, fine = 2 * step * terms[:, ::2].sum(axis=1), step * terms.sum(axis=1)
    for _ in range(_HALVINGS):
        # Halving squares the error of a geometrically convergent rule.
        error = 10 * np.abs(fine / coarse - 1)[: 1 + density].max() ** 2
        if error < _RTOL:
            return shift, mass * step, error
        between = evaluate(u + step / 2)
        shift, mass = np.concatenate([shift, between[0]]), np.concatenate([mass, between[1]])
        u, step = np.concatenate([u, u + step / 2]), step / 2
        coarse, fine = fine, step * _terms(crossing, shift, mass).sum(axis=1)
    raise AccuracyError(f"reached a relative error of {error:.1e}, aimed at {_RTOL:.1e}", estimate=fine[0] / np.pi)


def _outwards(evaluate: Callable[[NDArray[Any]], tuple[Complex, Complex]]) -> tuple[Complex, Complex]:
    """Evaluate the integrand at 0, 1, 2, ... steps along the contour, until it is negligible."""
    parts, smallest = [], 1.0
    for start in range(0, _MOST_NODES, _BATCH):
        with np.errstate(over="ignore", invalid="ignore"):  # the integrand may overflow
            shift, mass = evaluate(_STEP * np.arange(start, start + _BATCH))
            parts.append((shift, mass))
            size = np.abs(mass) / abs(parts[0][1][0])
        ended = size < _NEGLIGIBLE
        length = int(ended.argmax()) if ended.any() else size.size
        so_far = np.minimum.accumulate(np.append(smallest, size[:length]))
        if not np.all(size[:length] <= 10 * so_far[:-1]):
            break  # it grows again, near a point of the cut where many weights meet
        smallest = so_far[-1]
        if ended.any():
            shift, mass = (np.concatenate(part)[: start + length] for part in zip(*parts, strict=True))
            return shift, mass
    raise AccuracyError("the integrand does not die away along the contour", estimate=np.nan)


def _terms(crossing: _Crossing, shift: Complex, mass: Complex) -> Array:
    """Compute the terms whose sums over pi are the integrals for the tail and the density: shape (2, nodes)."""
    terms = np.empty((2, mass.size))
    terms[0], terms[1] = (mass / (1 + shift / crossing.c)).imag, mass.imag
    return terms


def _growth(crossing: _Crossing, shift: Complex) -> Complex:
    """Compute K(c + shift) - K(c) by real arithmetic on 1 - q shift, where q = r / (1 - r c)."""
    form = crossing.form
    q = form.r / crossing.slack
    a, b = np.outer(shift.real, q), np.outer(shift.imag, q)
    size = a * (a - 2) + b * b  # |1 - q shift|^2 - 1
    # Row by row: a matrix product of this size starts the threads of BLAS, and costs a hundred times as much.
    total = 0.5j * np.vecdot(form.k, np.arctan2(b, 1 - a)) - 0.25 * np.vecdot(form.k, np.log1p(size))
    if not form.central:
        total += np.vecdot(form.nc / (2 * crossing.slack), (a * (1 - a) - b * b + 1j * b) / (1 + size))
    if form.moments is not None:
        v = (1 - a + 1j * b) / (1 + size) / crossing.slack - 1
        total += _beyond_centers(form, v) - _beyond_centers(form, crossing.v)
    return total


# ----------------------------------------------------------------------------------------------------------------------
# Tails, density and quantiles of a form, one value at a time
# ----------------------------------------------------------------------------------------------------------------------


def _at(crossing: _Crossing, x: Real) -> tuple[float, float, float, float]:
    """Compute the tail of the crossing and the density at x.

    It returns the logarithm of the tail, its estimated error, the logarithm of the density and the
    slope of that.
    """
    shift, mass, error = _contour(crossing, x)
    tail, density = _terms(crossing, shift, mass).sum(axis=1) / abs(crossing.c)
    height, size = crossing.log_height(x)
    log_tail, log_density = height + np.log([tail / np.pi, density / np.pi])
    log_density += np.log(abs(crossing.c))
    moment = (mass @ (shift / crossing.c)).imag / abs(crossing.c)
    return log_tail, error + _EPS * (20 + 2 * size), log_density, -crossing.c * (1 + moment / density)


def _tails(form: _Form, x: Real) -> tuple[Estimate, Estimate]:
    """Compute (log P[Q > x], its error) and (log P[Q <= x], its error).

    One is computed by its contour, the other is its complement.
    """
    x = x / np.longdouble(form.unit)
    if x <= 0 or np.isinf(x):
        sure, impossible = (0.0, 0.0), (-np.inf, 0.0)
        return (sure, impossible) if x <= 0 else (impossible, sure)
    crossing = _saddle(form, x)
    log_tail, error, *_ = _at(crossing, x)
    if crossing.lower and log_tail > np.log(0.5):  # below the mean but above the median
        crossing = _saddle(form, x, lower=False)
        log_tail, error, *_ = _at(crossing, x)
    other = _log_complement(log_tail)
    pair = (log_tail, error), (other, error * np.exp(log_tail - other))
    return pair[::-1] if crossing.lower else pair


def _upper(x: ArrayLike, weights: ArrayLike, dof: ArrayLike, nc: ArrayLike) -> Array:
    """Compute log sf and its error at every x."""
    return _map(lambda form, x: _tails(form, x)[0], real(x=x), weights, dof, nc)


def _lower(x: ArrayLike, weights: ArrayLike, dof: ArrayLike, nc: ArrayLike) -> Array:
    """Compute log cdf and its error at every x."""
    return _map(lambda form, x: _tails(form, x)[1], real(x=x), weights, dof, nc)


def _output(log_and_error: Array, function: Callable[..., Any], full_output: bool) -> Any:
    """Return function(log), and with `full_output` the pair of this value and the error."""
    log, error = log_and_error[..., 0][()], log_and_error[..., 1][()]
    return (function(log), error) if full_output else function(log)


def _log_complement(log_p: float) -> float:
    """Compute log(1 - p) from log p."""
    return np.log(-np.expm1(log_p)) if log_p > -1 else np.log1p(-np.exp(log_p))


def _log_density(form: _Form, x: Real) -> float:
    """Compute the logarithm of the density of Q at x."""
    x = x / np.longdouble(form.unit)
    if x < 0 or np.isinf(x):
        return -np.inf
    log_density = _at(_saddle(form, x), x)[2] if x > 0 else _log_density_at_zero(form)
    return log_density - np.log(form.unit)


def _log_density_at_zero(form: _Form) -> float:
    """Compute the logarithm of the limit of the density from above at zero.

    The limit is finite and positive only for two degrees of freedom in all.
    """
    total = np.sum(form.k)
    if total != 2:
        return np.inf if total < 2 else -np.inf
    return -np.sum(form.k * np.log(form.r) + form.nc) / 2


def _quantile(form: _Form, log_p: float, lower: bool) -> float:
    """Find the x at which the logarithm of the lower (or upper) tail is log_p.

    It uses whichever tail is the smaller one at x.
    """
    if log_p == 0 or np.isinf(log_p):
        return np.inf if (log_p == 0) == lower else 0.0
    log_other = _log_complement(log_p)
    log_upper, log_lower = (log_other, log_p) if lower else (log_p, log_other)
    x = _search(form, log_upper, lower=False) if _above_mean(form, log_upper) else 0.0
    return form.unit * (x or _search(form, log_lower, lower=True))


def _above_mean(form: _Form, log_upper: float) -> bool:
    """Tell whether the upper quantile lies above the mean.

    If so, it is searched in the upper tail, else in the lower.Either search ends at the same x;
    this only picks the tail that is not close to 1. P[Q > mean] is 0.317 for chi2(1) and rises
    towards 1/2 with the degrees of freedom, so most p need no closer look.
    """
    if log_upper >= np.log(0.5):
        return False
    if log_upper < np.log(0.3) and form.central and form.k.min() >= 1:
        return True
    return log_upper < _saddle(form, form.mean, lower=False).formula()[0]


# The saddlepoint formula's limit at the near end of either tail, log(e / sqrt(2 pi)): no tail is larger.
_LAPLACE_TOP = 1 - 0.5 * np.log(2 * np.pi)
_LOWEST = 690.0  # theta of the lower tail at x near 1e-300 of the largest weight; quantiles below it are 0


def _search(form: _Form, log_p: float, lower: bool) -> float:
    """Find the x, in units of the form, at which a tail has the logarithm log_p.

    The logarithm of a tail is nearly proportional to a power of exp(theta), so log(log tail /
    log_p), with a constant taken from both logarithms, is nearly a straight line in theta. The
    search is for its root: first with the saddlepoint formula in place of the tail, then, from
    there, with the tail itself.
    """
    depth = _LAPLACE_TOP - log_p

    def excess(theta: float, tail: Callable[[_Crossing], tuple[float, float, float]]) -> tuple[float, float, float]:
        crossing = _Crossing(form, theta, lower)
        log_tail, slope, kept = tail(crossing)
        return np.log((_LAPLACE_TOP - log_tail) / depth), -slope / (_LAPLACE_TOP - log_tail), kept

    def formula(crossing: _Crossing) -> tuple[float, float, float]:
        return *crossing.formula(), crossing.theta

    def exact(crossing: _Crossing) -> tuple[float, float, float]:
        log_tail, _, log_density, density_slope = _at(crossing, crossing.x)
        tail_slope = (1 if lower else -1) * np.exp(log_density - log_tail)  # d log tail / dx
        step = (log_p - log_tail) / tail_slope
        x = crossing.x + step - step**2 * (density_slope - tail_slope) / 2
        return log_tail, tail_slope * crossing.spread * crossing.pace / crossing.c, x

    if lower and excess(_LOWEST, formula)[0] < 0:
        return 0.0
    # For equal weights log(1 - c) has this solution, to a few percent, from the saddlepoint formula.
    ratio = depth / form.deviation**2
    start = _root(lambda theta: excess(theta, formula), np.log(ratio + np.sqrt(2 * ratio)), tolerance=3e-4)
    # The last round ends with a second-order step in x, whose error is the third power of 3e-5.
    return _root(lambda theta: excess(theta, exact), start, tolerance=3e-5 / depth)


def _map(
    function: Callable[[_Form, Any], Any], values: Array, weights: ArrayLike, dof: ArrayLike, nc: ArrayLike
) -> Any:
    """Compute function(form, value) for every entry of `values`.

    The result is an array of the shape of `values`, or a number for a number.Where the function
    returns a pair, the last axis of the result has length two.
    """
    form = _form(*_parameters(weights, dof, nc))
    if np.size(values) == 0:
        return np.empty(np.shape(values) + np.shape(function(form, -1.0)))
    results = np.array([function(form, value) for value in np.ravel(values)])
    return results.reshape(np.shape(values) + results.shape[1:])[()]
