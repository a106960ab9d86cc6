"""Compute moments of a generalized chi-square variable Q, and draw from its distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import numpy as np

from egm._gx2.contour import integrate, saddle, sums_of_inverses
from egm._gx2.form import form_of, parameters
from egm._types import Array, ArrayLike, Floats
from egm._validate import positive, scalar


def mean(weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> float:
    r"""Compute the mean of a generalized chi-square variable Q.

    Parameters
    ----------
    weights : array_like, shape (d,)
        Weights of the independent chi-square variables in the weighted sum Q, finite and > 0.
    dof : float or array_like, shape (d,), default 1
        Degrees of freedom of these variables, finite and > 0; they need not be whole numbers.
    nc : float or array_like, shape (d,), default 0
        Noncentralities of these variables, finite and >= 0.

    Returns
    -------
    float
        The mean :math:`E[Q] = \sum_j w_j (\nu_j + \lambda_j)`, in the units of `weights`, where w
        is `weights`, :math:`\nu` is `dof` and :math:`\lambda` is `nc`.

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
    weights, dof, nc = parameters(weights, dof, nc)
    return float(np.sum(weights * (dof + nc)))


def var(weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> float:
    r"""Compute the variance of a generalized chi-square variable Q.

    Parameters
    ----------
    weights : array_like, shape (d,)
        Weights of the independent chi-square variables in the weighted sum Q, finite and > 0.
    dof : float or array_like, shape (d,), default 1
        Degrees of freedom of these variables, finite and > 0; they need not be whole numbers.
    nc : float or array_like, shape (d,), default 0
        Noncentralities of these variables, finite and >= 0.

    Returns
    -------
    float
        The variance :math:`\mathrm{Var}[Q] = 2 \sum_j w_j^2 (\nu_j + 2 \lambda_j)`, in the squared
        units of `weights`, where w is `weights`, :math:`\nu` is `dof` and :math:`\lambda` is `nc`.

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
    weights, dof, nc = parameters(weights, dof, nc)
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
        Weights of the independent chi-square variables in the weighted sum Q, finite and > 0.
    dof : float or array_like, shape (d,), default 1
        Degrees of freedom of these variables, finite and > 0; they need not be whole numbers.
    nc : float or array_like, shape (d,), default 0
        Noncentralities of these variables, finite and >= 0.
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
    weights, dof, nc = parameters(weights, dof, nc)
    shape = () if size is None else tuple(np.atleast_1d(size))
    total = np.zeros(shape)
    for weight, k, shift in zip(weights, dof, nc, strict=True):
        total += weight * (rng.noncentral_chisquare(k, shift, shape) if shift else rng.chisquare(k, shape))
    return total[()]


def conditional_means(x: float, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> Array:
    r"""Compute the mean of each chi-square variable in a weighted sum Q of them, given that Q = x.

    The result shows which terms make Q as large as `x`.

    Parameters
    ----------
    x : float
        Value of Q, finite and > 0, in the units of `weights`.
    weights : array_like, shape (d,)
        Weights of the independent chi-square variables in the weighted sum Q, finite and > 0.
    dof : float or array_like, shape (d,), default 1
        Degrees of freedom of these variables, finite and > 0; they need not be whole numbers.
    nc : float or array_like, shape (d,), default 0
        Noncentralities of these variables, finite and >= 0.

    Returns
    -------
    ndarray, shape (d,)
        The means :math:`E[Y_j \mid Q = x]` for :math:`Q = \sum_j w_j Y_j` with independent
        :math:`Y_j \sim \chi^2(\nu_j, \lambda_j)`, where w is `weights`, :math:`\nu` is `dof` and
        :math:`\lambda` is `nc`.

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

    Each mean is a ratio of two contour integrals. The denominator is the density of Q. The
    integrand of the numerator has the additional factor
    :math:`\nu_j / (1 - 2 w_j s) + \lambda_j / (1 - 2 w_j s)^2`, which is the logarithmic derivative
    of the moment generating function of :math:`Y_j` at :math:`w_j s`.

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
    weights, dof, nc = parameters(weights, dof, nc)
    form = form_of(weights, dof, nc)
    crossing = saddle(form, x / form.unit)
    shift, mass, *_ = integrate(crossing, x / form.unit)
    ((once, twice),) = sums_of_inverses(crossing, shift, mass[None], weights)
    return (dof * once + nc * twice) / np.sum(mass).imag
