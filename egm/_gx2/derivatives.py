"""Compute derivatives of the upper tail of a generalized chi-square variable Q, and conditional means given Q = x."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, overload

import numpy as np

from egm._gx2.contour import (
    VAST,
    AccuracyError,
    Crossing,
    every_second,
    integrate,
    relative_error,
    saddle,
    sums_of_inverses,
)
from egm._gx2.form import Law, Side, distinct, law_of
from egm._gx2.tails import log_density
from egm._lazy import cached_property
from egm._types import Array, ArrayLike, Complex
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


@overload
def gradients(
    x: float, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0, normal: float = 0, shift: float = 0
) -> Gradients: ...
@overload
def gradients(
    x: float,
    weights: ArrayLike,
    dof: ArrayLike = 1,
    nc: ArrayLike = 0,
    normal: float = 0,
    shift: float = 0,
    *,
    full_output: bool,
) -> Any: ...
def gradients(
    x: float,
    weights: ArrayLike,
    dof: ArrayLike = 1,
    nc: ArrayLike = 0,
    normal: float = 0,
    shift: float = 0,
    *,
    full_output: bool = False,
) -> Gradients | tuple[Gradients, Gradients]:
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
    full_output : bool, default False
        Whether to return the estimated errors as well.

    Returns
    -------
    derivatives : Gradients
        The derivatives by `x`, `weights`, `nc`, `normal` and `shift`. They are 0 if the
        quadrature fails where the logarithm of the density is below -1e20.
    errors : Gradients
        Estimated absolute error of each derivative; only with ``full_output=True``. It does not count that a
        derivative may underflow.

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

    The estimated error of a derivative is the estimated relative error of the density times the derivative, plus
    an estimate from the square of the relative change when the step of the quadrature was halved.

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
        quadrature = _quadrature(x, law)
    except AccuracyError:
        if log_density(law, x)[0] >= -VAST:
            raise
        zeros = np.zeros(law.weights.size)
        found, errors = (Gradients(zero, zeros.copy(), zeros.copy(), 0.0, 0.0) for zero in (-0.0, 0.0))
        return (found, errors) if full_output else found
    found = quadrature.gradients()
    return (found, quadrature.errors(found)) if full_output else found


@dataclass(frozen=True)
class _Quadrature:
    """Hold a quadrature for the density at a point of Q, and compute derivatives and conditional means from it.

    Q is a sum of chi-square variables Y_j with weights, and `law` holds its parameters. `side` says for which tail the
    contour (path of integration) is the best; it crosses the real axis at the point c of `crossing`. `log_height` is
    the logarithm of the integrand at c, and `error` the estimated relative error of the density. `shift` has s - c for
    each node s, `mass` the factors of the nodes, and `total` and `moment` are the integrals of 1 and (s - c) / c,
    divided by |c| and by the height (see `egm._gx2.contour.integrate`).
    """

    law: Law
    side: Side
    crossing: Crossing
    log_height: float
    error: float
    shift: Complex
    mass: Complex
    total: float
    moment: float

    @cached_property
    def sums(self) -> Array:
        """Return the sums over the nodes of 1 / (1 - 2 w s) and of its square for each weight w, in two rows."""
        weights = self.side.sign * self.law.weights
        return sums_of_inverses(self.crossing, self.shift, self.mass[None], weights)[0]

    def means(self) -> Array:
        """Compute the conditional means E[Y_j | Q = x]."""
        once, twice = self.sums
        return (self.law.dof * once + self.law.nc * twice) / np.sum(self.mass).imag

    def errors_of_means(self, found: Array) -> Array:
        """Estimate the absolute errors of `found`, the conditional means, also by a rule of every second node."""
        coarse = replace(self, mass=every_second(self.shift, self.mass)).means()
        return found * relative_error(1 - coarse / found, 2 * self.error)

    def gradients(self) -> Gradients:
        """Compute the derivatives of the upper tail by the parameters."""
        size, unit = abs(self.crossing.c), self.side.form.unit
        root = math.exp(self.log_height / 2)  # the height itself may underflow where c is large and the density is not
        height = root * size * (root / math.pi / unit)
        density = height * self.total
        tilt = self.side.sign * self.crossing.c * (self.law.normal / unit)
        by_normal = tilt * (height * (self.total + self.moment)) if self.law.normal else 0.0
        by_nc = self.law.weights * height * (self.sums[0] / size)
        return Gradients(-density, density * self.means(), by_nc, by_normal, density)

    def errors(self, found: Gradients) -> Gradients:
        """Estimate the absolute errors of `found`, the result of `gradients`, also by a rule of every second node."""
        c, mass = self.crossing.c, every_second(self.shift, self.mass)
        total, moment = (float(np.sum(mass * factor).imag) / abs(c) for factor in (1.0, self.shift / c))
        coarse = replace(self, mass=mass, total=total, moment=moment).gradients()
        # The derivative by `normal` may be near 0, where parts of the integral cancel.
        parts = float(np.sum(np.abs(self.mass * (1 + self.shift / c)))) / abs(c) / self.total
        size = found.shift * parts * abs(c) * (self.law.normal / self.side.form.unit)
        sizes = {"weights": np.abs(found.weights), "nc": np.abs(found.nc), "normal": size}

        def estimate(name: str) -> Any:
            size = sizes.get(name, found.shift)
            change = (getattr(found, name) - getattr(coarse, name)) / (size + math.ulp(0.0))  # the size may be 0
            return size * relative_error(change, self.error)

        return Gradients(*map(estimate, Gradients._fields))


def _quadrature(x: float, law: Law) -> _Quadrature:
    """Compute the density at `x` and return its `_Quadrature`.

    `law` holds the parameters of Q, a generalized chi-square variable. The contour (path of integration) is that of the
    upper tail if x is at or above the mean of Q, and otherwise that of the lower tail. Raise a ValueError if x is not
    inside the support of Q.
    """
    x = scalar(finite, x=x)
    low, high = law.support
    if not low < x < high:
        raise ValueError(f"x must lie inside the support of Q, between {low:g} and {high:g}, got {x!r}")
    side = law.upper if x >= law.mean else law.lower
    y = side.scaled(x)
    crossing = saddle(side.form, y, side.lower)
    halvings = _MORE if distinct(law.dof).min(initial=_FEW) < _FEW else 0
    shift, mass, error, (_, total, moment) = integrate(crossing, y, halvings=halvings)
    log_height, rounding = crossing.log_height(y)
    return _Quadrature(law, side, crossing, log_height, error + rounding, shift, mass, total, moment)


@overload
def conditional_means(
    x: float, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0, normal: float = 0, shift: float = 0
) -> Array: ...
@overload
def conditional_means(
    x: float,
    weights: ArrayLike,
    dof: ArrayLike = 1,
    nc: ArrayLike = 0,
    normal: float = 0,
    shift: float = 0,
    *,
    full_output: bool,
) -> Any: ...
def conditional_means(
    x: float,
    weights: ArrayLike,
    dof: ArrayLike = 1,
    nc: ArrayLike = 0,
    normal: float = 0,
    shift: float = 0,
    *,
    full_output: bool = False,
) -> Array | tuple[Array, Array]:
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
    full_output : bool, default False
        Whether to return the estimated errors as well.

    Returns
    -------
    means : ndarray, shape (d,)
        The means :math:`E[Y_j \mid Q = x]` for :math:`Q = \sum_j w_j Y_j` plus the normal term and
        `shift`, with independent :math:`Y_j \sim \chi^2(\nu_j, \lambda_j)`, where w is `weights`,
        :math:`\nu` is `dof` and :math:`\lambda` is `nc`.
    errors : ndarray, shape (d,)
        Estimated absolute error of each mean; only with ``full_output=True``.

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
    of the moment generating function of :math:`Y_j` at :math:`w_j s`. The error is estimated as that of `gradients`.

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
    quadrature = _quadrature(x, law_of(weights, dof, nc, normal, shift))
    found = quadrature.means()
    return (found, quadrature.errors_of_means(found)) if full_output else found
