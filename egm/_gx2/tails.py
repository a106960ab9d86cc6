"""Compute the lower and upper tails and the density of a generalized chi-square variable Q."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, overload

import numpy as np

from egm._gx2.contour import EPS, VAST, Crossing, Estimate, estimate_tail, integrate, saddle, smaller_tail
from egm._gx2.form import Form, Law, Real, Side, law_of
from egm._types import Array, ArrayLike, Floats
from egm._validate import real

# Beyond so many standard deviations, the logarithms of the tail and of the density of a normal variable are -inf in
# doubles. With further terms of positive weight, the lower tail is smaller still.
_END = 1.9e154
_BLURRED = 1e12  # the difference of two logarithms below -_BLURRED has lost so many digits that it gives no ratio
TINY = 1e-290  # least x of a lower tail, in units of twice the largest weight, at which a saddle point is searched


@overload
def sf(
    x: float, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0, normal: float = 0, shift: float = 0
) -> float: ...
@overload
def sf(
    x: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0, normal: float = 0, shift: float = 0
) -> Array: ...
@overload
def sf(
    x: ArrayLike,
    weights: ArrayLike,
    dof: ArrayLike = 1,
    nc: ArrayLike = 0,
    normal: float = 0,
    shift: float = 0,
    *,
    full_output: bool,
) -> Any: ...
def sf(
    x: ArrayLike,
    weights: ArrayLike,
    dof: ArrayLike = 1,
    nc: ArrayLike = 0,
    normal: float = 0,
    shift: float = 0,
    *,
    full_output: bool = False,
) -> Floats | tuple[Floats, Floats]:
    """Compute the upper tail P[Q > x] of a generalized chi-square variable Q.

    Parameters
    ----------
    x : float or array_like
        Point or points, in the units of `weights`. They may be infinite, but not NaN.
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
        Whether to return the estimated error as well.

    Returns
    -------
    tail : float or ndarray
        The probability :math:`P[Q > x]`, in the shape of `x`. Its relative error is at most 1e-12 for tails down to
        1e-300, if no entry of `dof` is below 0.001, and if `dof` and `nc` add up to at most 1e8 (for larger sums, see
        `egm.gx2`).
    error : float or ndarray
        Estimated relative error of `tail`, in the shape of `x`; only with ``full_output=True``.

    Raises
    ------
    ValueError
        If an entry of `x` is NaN, or if another argument is outside its range.
    AccuracyError
        If the quadrature fails, as it may for few degrees of freedom. In most such cases the largest positive or
        negative weight has less than 4e-6 degrees of freedom, or `x` is near `shift` and `dof` sums to less than 0.25
        (for weights of one sign, to less than 0.005). It is also raised if rounding may change the result by more than
        one percent, as it may if `dof` and `nc` add up to more than 1e22.

    See Also
    --------
    logsf : The logarithm of the tail, also where the tail would underflow.
    isf : The inverse function.

    Notes
    -----
    The tail is an integral along a contour through the saddle point of its integrand [1]_, as the docstring of
    `egm.gx2` explains. If the step of the quadrature is halved, its relative error is roughly squared. So the error of
    the last result is estimated from the square of its relative difference from the result before. Where the phase of
    the integrand changes too much from one node to the next, the quadrature does not see what lies between them, and
    the size of the integrand there counts as an error, too. A bound on the rounding error is added. The estimate is not
    a proven bound, but it is at least the true error in every reference case of the tests.

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
    return output(log_tails(x, law_of(weights, dof, nc, normal, shift), lower=False), np.exp, full_output)


@overload
def logsf(
    x: float, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0, normal: float = 0, shift: float = 0
) -> float: ...
@overload
def logsf(
    x: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0, normal: float = 0, shift: float = 0
) -> Array: ...
@overload
def logsf(
    x: ArrayLike,
    weights: ArrayLike,
    dof: ArrayLike = 1,
    nc: ArrayLike = 0,
    normal: float = 0,
    shift: float = 0,
    *,
    full_output: bool,
) -> Any: ...
def logsf(
    x: ArrayLike,
    weights: ArrayLike,
    dof: ArrayLike = 1,
    nc: ArrayLike = 0,
    normal: float = 0,
    shift: float = 0,
    *,
    full_output: bool = False,
) -> Floats | tuple[Floats, Floats]:
    r"""Compute the logarithm of the upper tail P[Q > x] of a generalized chi-square variable Q.

    The tail itself may be too small for a double.

    Parameters
    ----------
    x : float or array_like
        Point or points, in the units of `weights`. They may be infinite, but not NaN.
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
        Whether to return the estimated error as well.

    Returns
    -------
    log_tail : float or ndarray
        The logarithm :math:`\log P[Q > x]`, in the shape of `x`. Its absolute error is the relative
        error of `sf`.
    error : float or ndarray
        Estimated absolute error of `log_tail`, in the shape of `x`; only with ``full_output=True``.

    Raises
    ------
    ValueError
        If an entry of `x` is NaN, or if another argument is outside its range.
    AccuracyError
        If the quadrature fails, as it may for few degrees of freedom. In most such cases the largest positive or
        negative weight has less than 4e-6 degrees of freedom, or `x` is near `shift` and `dof` sums to less than 0.25
        (for weights of one sign, to less than 0.005). It is also raised if rounding may change the result by more than
        one percent, as it may if `dof` and `nc` add up to more than 1e22.

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
    return output(log_tails(x, law_of(weights, dof, nc, normal, shift), lower=False), np.positive, full_output)


@overload
def cdf(
    x: float, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0, normal: float = 0, shift: float = 0
) -> float: ...
@overload
def cdf(
    x: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0, normal: float = 0, shift: float = 0
) -> Array: ...
@overload
def cdf(
    x: ArrayLike,
    weights: ArrayLike,
    dof: ArrayLike = 1,
    nc: ArrayLike = 0,
    normal: float = 0,
    shift: float = 0,
    *,
    full_output: bool,
) -> Any: ...
def cdf(
    x: ArrayLike,
    weights: ArrayLike,
    dof: ArrayLike = 1,
    nc: ArrayLike = 0,
    normal: float = 0,
    shift: float = 0,
    *,
    full_output: bool = False,
) -> Floats | tuple[Floats, Floats]:
    r"""Compute the lower tail P[Q <= x] of a generalized chi-square variable Q.

    Parameters
    ----------
    x : float or array_like
        Point or points, in the units of `weights`. They may be infinite, but not NaN.
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
        Whether to return the estimated error as well.

    Returns
    -------
    tail : float or ndarray
        The probability :math:`P[Q \leq x]`, in the shape of `x`. It is as accurate as the result of
        `sf`, also where it is nearly zero.
    error : float or ndarray
        Estimated relative error of `tail`, in the shape of `x`; only with ``full_output=True``.

    Raises
    ------
    ValueError
        If an entry of `x` is NaN, or if another argument is outside its range.
    AccuracyError
        If the quadrature fails, as it may for few degrees of freedom. In most such cases the largest positive or
        negative weight has less than 4e-6 degrees of freedom, or `x` is near `shift` and `dof` sums to less than 0.25
        (for weights of one sign, to less than 0.005). It is also raised if rounding may change the result by more than
        one percent, as it may if `dof` and `nc` add up to more than 1e22.

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
    return output(log_tails(x, law_of(weights, dof, nc, normal, shift), lower=True), np.exp, full_output)


@overload
def logcdf(
    x: float, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0, normal: float = 0, shift: float = 0
) -> float: ...
@overload
def logcdf(
    x: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0, normal: float = 0, shift: float = 0
) -> Array: ...
@overload
def logcdf(
    x: ArrayLike,
    weights: ArrayLike,
    dof: ArrayLike = 1,
    nc: ArrayLike = 0,
    normal: float = 0,
    shift: float = 0,
    *,
    full_output: bool,
) -> Any: ...
def logcdf(
    x: ArrayLike,
    weights: ArrayLike,
    dof: ArrayLike = 1,
    nc: ArrayLike = 0,
    normal: float = 0,
    shift: float = 0,
    *,
    full_output: bool = False,
) -> Floats | tuple[Floats, Floats]:
    r"""Compute the logarithm of the lower tail P[Q <= x] of a generalized chi-square variable Q.

    The tail itself may be too small for a double.

    Parameters
    ----------
    x : float or array_like
        Point or points, in the units of `weights`. They may be infinite, but not NaN.
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
        Whether to return the estimated error as well.

    Returns
    -------
    log_tail : float or ndarray
        The logarithm :math:`\log P[Q \leq x]`, in the shape of `x`. Its absolute error is the
        relative error of `cdf`.
    error : float or ndarray
        Estimated absolute error of `log_tail`, in the shape of `x`; only with ``full_output=True``.

    Raises
    ------
    ValueError
        If an entry of `x` is NaN, or if another argument is outside its range.
    AccuracyError
        If the quadrature fails, as it may for few degrees of freedom. In most such cases the largest positive or
        negative weight has less than 4e-6 degrees of freedom, or `x` is near `shift` and `dof` sums to less than 0.25
        (for weights of one sign, to less than 0.005). It is also raised if rounding may change the result by more than
        one percent, as it may if `dof` and `nc` add up to more than 1e22.

    See Also
    --------
    cdf : The lower tail itself.

    Examples
    --------
    >>> from egm import gx2
    >>> round(float(gx2.logcdf(1e-300, [1.0, 0.5, 0.2, 0.1])), 4)
    -1381.3279
    """
    return output(log_tails(x, law_of(weights, dof, nc, normal, shift), lower=True), np.positive, full_output)


@overload
def pdf(
    x: float, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0, normal: float = 0, shift: float = 0
) -> float: ...
@overload
def pdf(
    x: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0, normal: float = 0, shift: float = 0
) -> Array: ...
@overload
def pdf(
    x: ArrayLike,
    weights: ArrayLike,
    dof: ArrayLike = 1,
    nc: ArrayLike = 0,
    normal: float = 0,
    shift: float = 0,
    *,
    full_output: bool,
) -> Any: ...
def pdf(
    x: ArrayLike,
    weights: ArrayLike,
    dof: ArrayLike = 1,
    nc: ArrayLike = 0,
    normal: float = 0,
    shift: float = 0,
    *,
    full_output: bool = False,
) -> Floats | tuple[Floats, Floats]:
    """Compute the density of a generalized chi-square variable Q, the derivative of `cdf`.

    Parameters
    ----------
    x : float or array_like
        Point or points, in the units of `weights`. They may be infinite, but not NaN.
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
        Whether to return the estimated error as well.

    Returns
    -------
    density : float or ndarray
        The density at `x`, in the shape of `x`: 0 outside the support of Q, and at the ends of
        the support the limit from inside, which may be infinite.
    error : float or ndarray
        Estimated relative error of `density`, in the shape of `x`; only with ``full_output=True``. It is 0 where
        the density is 0 or infinite because of the support. It does not count that the density may underflow.

    Raises
    ------
    ValueError
        If an entry of `x` is NaN, or if another argument is outside its range.
    AccuracyError
        If the quadrature fails, as it may for few degrees of freedom. In most such cases the largest positive or
        negative weight has less than 4e-6 degrees of freedom, or `x` is near `shift` and `dof` sums to less than 0.25
        (for weights of one sign, to less than 0.005). It is also raised if rounding may change the result by more than
        one percent, as it may if `dof` and `nc` add up to more than 1e22. The quadrature may also fail for an `x` that
        is nearer to `shift` than about 1e-145 times the largest weight, if there are weights of both signs, no normal
        term, and less than 2.3 degrees of freedom in total.

    See Also
    --------
    logpdf : The logarithm of the density, also where the density would underflow.

    Examples
    --------
    >>> from egm import gx2
    >>> gx2.pdf([0.0, 3.0], [1.0, 1.0]).round(4)
    array([0.5   , 0.1116])
    """
    with np.errstate(over="ignore"):
        return output(log_densities(x, law_of(weights, dof, nc, normal, shift)), np.exp, full_output)


@overload
def logpdf(
    x: float, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0, normal: float = 0, shift: float = 0
) -> float: ...
@overload
def logpdf(
    x: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0, normal: float = 0, shift: float = 0
) -> Array: ...
@overload
def logpdf(
    x: ArrayLike,
    weights: ArrayLike,
    dof: ArrayLike = 1,
    nc: ArrayLike = 0,
    normal: float = 0,
    shift: float = 0,
    *,
    full_output: bool,
) -> Any: ...
def logpdf(
    x: ArrayLike,
    weights: ArrayLike,
    dof: ArrayLike = 1,
    nc: ArrayLike = 0,
    normal: float = 0,
    shift: float = 0,
    *,
    full_output: bool = False,
) -> Floats | tuple[Floats, Floats]:
    """Compute the logarithm of the density of a generalized chi-square variable Q.

    Parameters
    ----------
    x : float or array_like
        Point or points, in the units of `weights`. They may be infinite, but not NaN.
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
        Whether to return the estimated error as well.

    Returns
    -------
    log_density : float or ndarray
        The logarithm of the density at `x`, in the shape of `x`: minus infinity outside the support of
        Q, and the limit from inside at its ends.
    error : float or ndarray
        Estimated absolute error of `log_density`, in the shape of `x`; only with ``full_output=True``. It is 0
        where `log_density` is infinite.

    Raises
    ------
    ValueError
        If an entry of `x` is NaN, or if another argument is outside its range.
    AccuracyError
        If the quadrature fails, as it may for few degrees of freedom. In most such cases the largest positive or
        negative weight has less than 4e-6 degrees of freedom, or `x` is near `shift` and `dof` sums to less than 0.25
        (for weights of one sign, to less than 0.005). It is also raised if rounding may change the result by more than
        one percent, as it may if `dof` and `nc` add up to more than 1e22. The quadrature may also fail for an `x` that
        is nearer to `shift` than about 1e-145 times the largest weight, if there are weights of both signs, no normal
        term, and less than 2.3 degrees of freedom in total.

    See Also
    --------
    pdf : The density itself.

    Examples
    --------
    >>> from egm import gx2
    >>> gx2.logpdf([3.0, 3000.0], [1.0, 0.5]).round(4)
    array([   -2.4606, -1504.5754])
    """
    return output(log_densities(x, law_of(weights, dof, nc, normal, shift)), np.positive, full_output)


def tail_and_density(
    crossing: Crossing, x: Real, density_counts: float = 1.0
) -> tuple[float, float, float, float, float]:
    """Compute the logarithms of a tail and of the density at `x`, both by integrals along one contour.

    The contour (path of integration) crosses the real axis at the point of `crossing`. `x` is a point of the
    distribution whose parameters the `Form` of `crossing` holds, divided by the unit of this `Form` (twice the largest
    weight, if there is one). The tail is the lower one if `crossing.lower` is true. The results are the logarithm of
    the tail, an estimated error, the logarithm of the density, the derivative of this logarithm by x, and the ratio of
    density and tail. The estimated error is the error of the tail or `density_counts` times the error of the density,
    whichever is larger, plus a bound on the rounding error.
    """
    (height, rounding), size = crossing.log_height(x), abs(crossing.c)
    if height < -VAST:
        return height, rounding, height + math.log(size), -crossing.c, size
    _, _, error, (tail, density, moment) = integrate(crossing, x, density_counts)
    log_tail = height + math.log(tail / math.pi)
    log_density = height + math.log(density / math.pi) + math.log(size)
    ratio = size * density / tail if height < -_BLURRED else math.exp(log_density - log_tail)
    return log_tail, error + rounding, log_density, -crossing.c * (1 + moment / density), ratio


def tail_on(side: Side, x: Real) -> Estimate:
    """Compute the logarithm of a tail at `x`, and its estimated error.

    `side` holds the parameters of the variable, and says whether the tail is the upper or the lower one.
    """
    y, beyond = _from_end(side, x)
    if side.lower and y < -_END * side.form.normal:
        return -np.inf, 0.0
    log_tail, error = estimate_tail(side.form, y, side.lower)
    power = float(np.sum(side.form.k)) / 2 * beyond if beyond else 0.0
    return log_tail + power, error + EPS * abs(power)


def _from_end(side: Side, x: Real) -> tuple[Real, float]:
    """Return the point at which a tail is computed in place of the point `x`, and a number to correct the tail.

    A lower tail that is proportional to y^(k/2) for y < `TINY` need not be computed there. `side` says which tail is
    meant, y is ``side.scaled(x)``, and k is the sum of the degrees of freedom. For such a tail and y < `TINY`, the
    result is the pair (`TINY`, log(y / `TINY`)): the caller computes the tail at `TINY`, and adds k/2 times the second
    number to its logarithm. In all other cases the result is (y, 0).
    """
    y, form = side.scaled(x), side.form
    if not side.lower or not 0 <= y < TINY or x == side.shift or form.normal or not is_power(form):
        return y, 0.0
    return TINY, math.log(side.sign * (x - side.shift)) - math.log(form.unit) - math.log(TINY)


def is_power(form: Form) -> bool:
    """Return whether the lower tail at every y < `TINY`, a small constant, is proportional to y^(k/2).

    `form` holds the parameters of the distribution, with positive weights and without a normal term; y is a value of
    its variable, divided by the unit of `form` (twice the largest weight), and k is the sum of the degrees of freedom.
    The result is True if every weight is at least 1e20 * `TINY` times the largest one.
    """
    return bool(form.r.min() >= 1e20 * TINY)


def either_tail(law: Law, x: float, lower: bool) -> Estimate:
    """Compute the logarithm of the tail P[Q <= x] if `lower` is true, else of P[Q > x], and its estimated error.

    `law` holds the parameters of Q, a generalized chi-square variable. The smaller tail is integrated along a contour,
    and the other one is 1 minus it.
    """
    quick = smaller_tail(law, x)
    if quick and quick[0][0] < math.log(0.5):
        (log_tail, error), below = quick
    else:
        low, high = law.support
        if x <= low or x >= high:
            return (0.0 if lower == (x >= high) else -np.inf), 0.0
        below = x < law.mean
        log_tail, error = tail_on(law.lower if below else law.upper, x)
        if log_tail > math.log(0.5):  # between the mean and the median
            below = not below
            log_tail, error = tail_on(law.lower if below else law.upper, x)
    if below == lower:
        return log_tail, error
    other = log_complement(log_tail)
    return other, error * math.exp(log_tail - other) if log_tail > -math.inf else 0.0


def log_tails(x: ArrayLike, law: Law, lower: bool) -> Array:
    """Compute the logarithm of a tail and its estimated error at every entry of `x`.

    The tail is P[Q <= x] if `lower` is true, else P[Q > x]; `law` holds the parameters of Q, a generalized chi-square
    variable. The result has the shape of `x` and one more axis of length two, for the logarithm and its error.
    """
    return at_each(lambda law, x: either_tail(law, x, lower), real(x=x), law, (2,))


def log_densities(x: ArrayLike, law: Law) -> Array:
    """Compute the logarithm of the density and its estimated error at every entry of `x`.

    `law` holds the parameters of the distribution. The result has the shape of `x` and one more axis of length two, for
    the logarithm and its error.
    """
    return at_each(log_density, real(x=x), law, (2,))


def output(log_and_error: Array, function: Callable[..., Any], full_output: bool) -> Any:
    """Return function(log), or the pair (function(log), error) if `full_output` is true.

    log and error are the two entries along the last axis of `log_and_error`. `function` is `np.exp` for a tail or a
    density, or `np.positive` for its logarithm.
    """
    log, error = log_and_error[..., 0][()], log_and_error[..., 1][()]
    return (function(log), error) if full_output else function(log)


def log_complement(log_p: float) -> float:
    """Compute log(1 - p) from `log_p`, the logarithm of the probability p."""
    return np.log(-np.expm1(log_p)) if log_p > -1 else np.log1p(-np.exp(log_p))


def log_density(law: Law, x: float) -> Estimate:
    """Compute the logarithm of the density at `x`, and its estimated error.

    `law` holds the parameters of the distribution. The error is 0 where the density is 0 or infinite.
    """
    low, high = law.support
    if not low <= x <= high or np.isinf(x):
        return -np.inf, 0.0
    if x == law.shift and not law.normal and all(law.signs) and np.sum(law.dof) <= 2:
        return np.inf, 0.0
    side = law.upper if x >= law.mean else law.lower
    if x in (low, high):
        return _log_density_at_end(law)
    y, beyond = _from_end(side, x)
    if side.lower and y < -_END * side.form.normal:
        return -np.inf, 0.0
    _, error, density, *_ = tail_and_density(saddle(side.form, y, side.lower), y)
    slope, log_unit = float(np.sum(side.form.k)) / 2 - 1, math.log(side.form.unit)
    power = slope * beyond if beyond else 0.0
    return density + power - log_unit, error + EPS * (abs(density) + abs(power) + abs(log_unit))


def _log_density_at_end(law: Law) -> Estimate:
    """Compute the logarithm of a density at the end of its support, as the limit from within, and its estimated error.

    All weights of `law` have one sign, and there is no normal variable. The result is inf if the sum of the degrees of
    freedom is below two, -inf if it is above two, and finite if it is two; only then there is an error, by rounding.
    """
    total = np.sum(law.dof)
    if total != 2:
        return np.inf if total < 2 else -np.inf, 0.0
    terms = law.dof * np.log(np.abs(law.weights))
    size = float(np.sum(np.abs(terms)) + np.sum(law.nc))
    return -float(np.sum(terms + law.nc)) / 2 - math.log(2), EPS * (2 + 8 * size)


def at_each(function: Callable[[Law, Any], Any], values: Array, law: Law, width: tuple[int, ...] = ()) -> Any:
    """Compute function(law, value) for every entry `value` of the array `values`.

    The result is an array of the shape of `values`, or a single number if `values` is a single number. If `function`
    returns a pair, `width` must be (2,), and the result has an additional last axis of length two.
    """
    if values.ndim == 0:
        return np.array(function(law, float(values)))[()]
    results = np.array([function(law, value) for value in np.ravel(values).tolist()])
    return results.reshape(np.shape(values) + width)
