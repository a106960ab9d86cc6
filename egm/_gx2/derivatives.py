"""Compute derivatives of the upper tail of a generalized chi-square variable Q, and conditional means given Q = x."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from egm._gx2.contour import VAST, AccuracyError, integrate, saddle, sums_of_inverses
from egm._gx2.form import Law, distinct, law_of
from egm._gx2.tails import log_density
from egm._types import Array, ArrayLike
from egm._validate import finite, scalar

# A chi-square variable with fewer than `_FEW` degrees of freedom hardly changes the integrand of the density, but its
# mean has a pole as large as that of any other variable. So the steps of the quadrature are halved `_MORE` times more.
_FEW, _MORE = 0.1, 2


class Gradients(NamedTuple):
    """Derivatives of the upper tail P[Q > x] by the point and by the parameters of Q.

    Parameters
    ----------
    x : float
        Derivative by `x`, which is minus the density.
    weights : ndarray, shape (d,)
        Derivatives by the weights.
    nc : ndarray, shape (d,)
        Derivatives by the noncentralities.
    normal : float
        Derivative by the standard deviation of the normal term.
    shift : float
        Derivative by the constant term, which is the density.

    Examples
    --------
    >>> from egm import gx2
    >>> gradients = gx2.gradients(3.0, [1.0, 0.5])
    >>> bool(gradients.shift == -gradients.x)
    True
    """

    x: float
    weights: Array
    nc: Array
    normal: float
    shift: float


def gradients(
    x: float, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0, normal: float = 0, shift: float = 0
) -> Gradients:
    r"""Compute the derivatives of the upper tail P[Q > x] of a generalized chi-square variable Q.

    Parameters
    ----------
    x : float
        Point inside the support of Q, in the units of `weights`.
    weights : array_like, shape (d,)
        Weights of the independent chi-square variables in the weighted sum Q, finite and not 0.
    dof : float or array_like, shape (d,), default 1
        Degrees of freedom of these variables, finite and > 0; they need not be whole numbers.
    nc : float or array_like, shape (d,), default 0
        Noncentralities of these variables, finite and >= 0.
    normal : float, default 0
        Standard deviation of a normal term of Q, finite and >= 0.
    shift : float, default 0
        Constant term of Q, finite.

    Returns
    -------
    Gradients
        The derivatives by `x`, `weights`, `nc`, `normal` and `shift`. They are 0 if the
        quadrature fails where the logarithm of the density is below -1e20.

    Raises
    ------
    ValueError
        If `x` is not a single number inside the support of Q, or if another argument is outside
        its range.
    AccuracyError
        If a quadrature fails. This happens if an end of the support is at `shift`, and `x` is nearer to it than 1e-305
        times the largest weight. If there are weights of both signs, no normal term, and less than 2.3 degrees of
        freedom in total, derivatives may be infinite at `shift`, and the quadrature fails for an `x` that is nearer to
        it than about 1e-145 times the largest weight.

    See Also
    --------
    conditional_means : The derivatives of a quantile by the weights.

    Notes
    -----
    The derivative of :math:`e^{K(s) - s x} / s` by a parameter brings the derivative of the cumulant
    function K, which has a factor s. So all results are integrals like that of the density f of Q:

    .. math::

        \frac{\partial \, \mathrm{sf}}{\partial w_j} = f(x) \, E[Y_j \mid Q = x], \qquad
        \frac{\partial \, \mathrm{sf}}{\partial \lambda_j}
            = \frac{1}{2 \pi i} \int e^{K(s) - s x} \frac{w_j}{1 - 2 w_j s} \, ds, \qquad
        \frac{\partial \, \mathrm{sf}}{\partial \tau} = -\tau f'(x),

    where :math:`Y_j` is the chi-square variable with the weight :math:`w_j` and the noncentrality
    :math:`\lambda_j`, and :math:`\tau` is `normal`.

    Examples
    --------
    >>> from egm import gx2
    >>> gradients = gx2.gradients(3.0, [1.0, 0.5])
    >>> gradients.weights.round(4)
    array([0.173 , 0.1663])
    >>> step = 1e-6
    >>> round(float(gx2.sf(3.0, [1.0 + step, 0.5]) - gx2.sf(3.0, [1.0, 0.5])) / step, 4)
    0.173
    """
    law = law_of(weights, dof, nc, normal, shift)
    try:
        point = _point(x, law)
    except AccuracyError:
        if log_density(law, x)[0] >= -VAST:
            raise
        zeros = np.zeros(law.weights.size)
        return Gradients(-0.0, zeros, zeros.copy(), 0.0, 0.0)
    return Gradients(-point.density, point.density * point.means, point.by_nc, point.by_normal, point.density)


@dataclass(frozen=True)
class _Point:
    """Hold the results of one quadrature at a point x of Q, a sum of chi-square variables Y_j with weights.

    `density` is the density of Q at x, and `means` are the conditional means E[Y_j | Q = x]. `by_nc` are the
    derivatives of P[Q > x] by the noncentralities, and `by_normal` is that by the standard deviation of the normal
    term.
    """

    density: float
    means: Array
    by_nc: Array
    by_normal: float


def _point(x: float, law: Law) -> _Point:
    """Compute the density at `x` and the derivatives of the upper tail, by one quadrature; return them as a `_Point`.

    `law` holds the parameters of Q, a generalized chi-square variable. The contour (path of integration) is that of the
    upper tail if x is at or above the mean of Q, and otherwise that of the lower tail. Raise a ValueError if x is not
    inside the support of Q.
    """
    x = scalar(finite, x=x)
    low, high = law.support
    if not low < x < high:
        raise ValueError(f"x must lie inside the support of Q, between {low:g} and {high:g}, got {x!r}")
    side = law.upper if x >= law.mean else law.lower
    y, unit = side.scaled(x), side.form.unit
    crossing = saddle(side.form, y, side.lower)
    halvings = _MORE if distinct(law.dof).min(initial=_FEW) < _FEW else 0
    shift, mass, _, (_, total, moment) = integrate(crossing, y, halvings=halvings)
    ((once, twice),) = sums_of_inverses(crossing, shift, mass[None], side.sign * law.weights)
    size = abs(crossing.c)
    height = math.exp(crossing.log_height(y)[0]) / math.pi / unit
    tilt = side.sign * crossing.c * (law.normal / unit)
    return _Point(
        height * total * size,
        (law.dof * once + law.nc * twice) / np.sum(mass).imag,
        law.weights * height * once,
        tilt * (height * size * (total + moment)) if law.normal else 0.0,
    )


def conditional_means(
    x: float, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0, normal: float = 0, shift: float = 0
) -> Array:
    r"""Compute the mean of each chi-square variable in a weighted sum Q of them, given that Q = x.

    The result shows which terms make Q as large as `x`.

    Parameters
    ----------
    x : float
        Value of Q inside its support, in the units of `weights`.
    weights : array_like, shape (d,)
        Weights of the independent chi-square variables in the weighted sum Q, finite and not 0.
    dof : float or array_like, shape (d,), default 1
        Degrees of freedom of these variables, finite and > 0; they need not be whole numbers.
    nc : float or array_like, shape (d,), default 0
        Noncentralities of these variables, finite and >= 0.
    normal : float, default 0
        Standard deviation of a normal term of Q, finite and >= 0.
    shift : float, default 0
        Constant term of Q, finite.

    Returns
    -------
    ndarray, shape (d,)
        The means :math:`E[Y_j \mid Q = x]` for :math:`Q = \sum_j w_j Y_j` plus the normal term and
        `shift`, with independent :math:`Y_j \sim \chi^2(\nu_j, \lambda_j)`, where w is `weights`,
        :math:`\nu` is `dof` and :math:`\lambda` is `nc`.

    Raises
    ------
    ValueError
        If `x` is not a single number inside the support of Q, or if another argument is outside
        its range.
    AccuracyError
        If a quadrature fails. This happens if `x` is farther from `shift` than about 1e43 times the largest weight, and
        it may happen if the logarithm of the density is below -1e20. It also happens if an end of the support is at
        `shift`, and `x` is nearer to it than 1e-305 times the largest weight. If there are weights of both signs, no
        normal term, and less than 2.3 degrees of freedom in total, derivatives may be infinite at `shift`, and the
        quadrature fails for an `x` that is nearer to it than about 1e-145 times the largest weight.

    Notes
    -----
    Without a normal term and a shift the means satisfy :math:`\sum_j w_j E[Y_j \mid Q = x] = x`. They are
    also the derivatives of a quantile by the weights,

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
    return _point(x, law_of(weights, dof, nc, normal, shift)).means
