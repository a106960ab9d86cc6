"""Find the quantiles of a generalized chi-square variable Q."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any, overload

import numpy as np
from numpy.polynomial import chebyshev
from scipy.optimize import brentq

from egm._gx2.contour import VAST, AccuracyError, Crossing, estimate_tail, find_root, log_by_formula, saddle
from egm._gx2.errors import NEAREST, quantile_error
from egm._gx2.form import Form, Law, Side, distinct, law_of
from egm._gx2.loops import loops
from egm._gx2.tails import TINY, at_each, either_tail, is_power, log_complement, tail_and_density
from egm._types import Array, ArrayLike, Floats
from egm._validate import real

_ONE_BY_ONE = 48  # up to this number of quantiles are computed one by one
_NODES, _PANEL = 26, 1.25  # nodes and width of a panel: the quickest of nine pairs for 1000 quantiles of four forms
_POINTS = chebyshev.chebpts1(_NODES)
_TRANSFORM = np.linalg.inv(chebyshev.chebvander(_POINTS, _NODES - 1)).T  # from values there to Chebyshev coefficients
# Panels that are nearer to the quantile 0 than `_BESIDE_ZERO` are of the width `_LONG` in the logarithm of the
# distance.
_BESIDE_ZERO, _LONG = 2 / 3, 3.0
_NARROW = 1e-6  # width, as a difference of logarithms, of a panel in which rounding errors would spoil the slope
_OUTSIDE = 1.001  # a panel is from -1 to 1, and Newton's method may leave it only by rounding
_LEFT_OUT, _ROUNDED = 2e-13, 2e-16  # negligible error of the log of a tail, and relative error of it or of a quantile
_SLOPE = 1e-4  # factor by which the density's error counts: the density only gives the last, small step
_LEAST = 1e-13  # least tolerance of the search, whose theta may be near 690, where doubles are 1e-13 apart
_ROUND_TRIP = 1e-12  # largest error of the logarithm of a tail at a quantile, relative if that logarithm is above 1
_CLEAR = 1.0  # |x| times density over tail, below which `_polished` follows; from 0.3 on, 300 random forms needed none
_AWAY = 1e-9  # distance from the constant term, in units of twice the largest weight (see `_log_upper_at_mean`)
_FARTHEST = 600.0  # log of the largest distance from the constant term at which a quantile is searched between bounds
_LOWEST = 690.0  # theta of the lower tail at x near 1e-300 of the largest weight


@overload
def isf(
    p: float, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0, normal: float = 0, shift: float = 0
) -> float: ...
@overload
def isf(
    p: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0, normal: float = 0, shift: float = 0
) -> Array: ...
@overload
def isf(
    p: ArrayLike,
    weights: ArrayLike,
    dof: ArrayLike = 1,
    nc: ArrayLike = 0,
    normal: float = 0,
    shift: float = 0,
    *,
    full_output: bool,
) -> Any: ...
def isf(
    p: ArrayLike,
    weights: ArrayLike,
    dof: ArrayLike = 1,
    nc: ArrayLike = 0,
    normal: float = 0,
    shift: float = 0,
    *,
    full_output: bool = False,
) -> Floats | tuple[Floats, Floats]:
    """Compute the upper quantile of a generalized chi-square variable Q.

    The upper quantile is the x with P[Q > x] = p.

    Parameters
    ----------
    p : float or array_like
        Probability or probabilities, in [0, 1].
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
        Whether to return the estimated error as well. Then each quantile takes the time of some more tails.

    Returns
    -------
    quantile : float or ndarray
        The quantile, in the shape of `p` and in the units of `weights`; ``p = 0`` and ``p = 1`` give the largest and
        the least value that Q can have. The round trip ``sf(isf(p)) = p`` holds to a relative error of about 1e-12,
        if no entry of `dof` is below 0.01; in addition, the rounding of the quantile x to a double changes the tail by
        a relative 3e-16 abs(x) f(x) / p, where f is the density. That is more than 1e-12 if `shift`, or the sum of
        `dof` and `nc`, is huge. A quantile nearer to `shift` than 1e-139 times the largest weight may be replaced by
        `shift` if there are weights of both signs.
    error : float or ndarray
        Estimated absolute error of `quantile`, in the shape of `p` and in the units of `weights`; only with
        ``full_output=True``. It is 0 at the ends of the support, and infinite if no estimate is found.

    Raises
    ------
    ValueError
        If `p` is outside [0, 1], or if another argument is outside its range.
    AccuracyError
        If the search or a quadrature fails, as it mostly does if the largest positive or negative
        weight has less than 2e-6 degrees of freedom, or if `dof` and `nc` add up to more than about 1e22.

    See Also
    --------
    ilogsf : The upper quantile for a probability that is given by its logarithm.
    ppf : The lower quantile.
    egm.bounds : Upper bounds on this quantile in closed form.

    Notes
    -----
    The error is estimated as follows. The smaller one of the two tails at the computed quantile is integrated. Its
    logarithm differs from the wanted one. The size of this difference, the estimated error of the logarithm and its
    rounding add up, and the sum is divided by the slope of the logarithm, which is the density divided by the tail.
    Where the slope is not known, or changes too fast, as it may next to `shift`, the error is increased until the tails
    at the quantile plus and minus the error enclose the wanted tail. The error is an absolute one because a quantile
    of weights of both signs, or with a negative `shift`, may be 0.

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
    return upper_quantiles(p, law_of(weights, dof, nc, normal, shift), full_output)


@overload
def ppf(
    p: float, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0, normal: float = 0, shift: float = 0
) -> float: ...
@overload
def ppf(
    p: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0, normal: float = 0, shift: float = 0
) -> Array: ...
@overload
def ppf(
    p: ArrayLike,
    weights: ArrayLike,
    dof: ArrayLike = 1,
    nc: ArrayLike = 0,
    normal: float = 0,
    shift: float = 0,
    *,
    full_output: bool,
) -> Any: ...
def ppf(
    p: ArrayLike,
    weights: ArrayLike,
    dof: ArrayLike = 1,
    nc: ArrayLike = 0,
    normal: float = 0,
    shift: float = 0,
    *,
    full_output: bool = False,
) -> Floats | tuple[Floats, Floats]:
    """Compute the lower quantile of a generalized chi-square variable Q.

    The lower quantile is the x with P[Q <= x] = p.

    Parameters
    ----------
    p : float or array_like
        Probability or probabilities, in [0, 1].
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
        Whether to return the estimated error as well. Then each quantile takes the time of some more tails.

    Returns
    -------
    quantile : float or ndarray
        The quantile, in the shape of `p` and in the units of `weights`. ``p = 0`` and ``p = 1``
        give the least and the largest value that Q can have. For positive weights without a normal term and a shift,
        the result is 0 if the exact quantile would underflow. It is also 0 if the quantile is below about 2e-300 times
        the largest weight and another weight is below 1e-270 times the largest one.
    error : float or ndarray
        Estimated absolute error of `quantile`, as `isf` returns it; only with ``full_output=True``.

    Raises
    ------
    ValueError
        If `p` is outside [0, 1], or if another argument is outside its range.
    AccuracyError
        If the search or a quadrature fails, as it mostly does if the largest positive or negative
        weight has less than 2e-6 degrees of freedom, or if `dof` and `nc` add up to more than about 1e22.

    See Also
    --------
    isf : The upper quantile.

    Examples
    --------
    >>> from egm import gx2
    >>> round(float(gx2.ppf(0.5, [1.0, 0.5])), 4)
    1.0012
    """
    return lower_quantiles(p, law_of(weights, dof, nc, normal, shift), full_output)


@overload
def ilogsf(
    logp: float, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0, normal: float = 0, shift: float = 0
) -> float: ...
@overload
def ilogsf(
    logp: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0, normal: float = 0, shift: float = 0
) -> Array: ...
@overload
def ilogsf(
    logp: ArrayLike,
    weights: ArrayLike,
    dof: ArrayLike = 1,
    nc: ArrayLike = 0,
    normal: float = 0,
    shift: float = 0,
    *,
    full_output: bool,
) -> Any: ...
def ilogsf(
    logp: ArrayLike,
    weights: ArrayLike,
    dof: ArrayLike = 1,
    nc: ArrayLike = 0,
    normal: float = 0,
    shift: float = 0,
    *,
    full_output: bool = False,
) -> Floats | tuple[Floats, Floats]:
    """Compute the upper quantile of a generalized chi-square variable Q from the logarithm of a probability.

    The quantile is the x with log P[Q > x] = logp. This function is for probabilities that are too small for
    a double: `logp` may be -1e6.

    Parameters
    ----------
    logp : float or array_like
        Logarithm or logarithms of the probability, <= 0.
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
        Whether to return the estimated error as well. Then each quantile takes the time of some more tails.

    Returns
    -------
    quantile : float or ndarray
        The quantile, in the shape of `logp` and in the units of `weights`; ``logp = 0`` and
        ``logp = -inf`` give the least and the largest value that Q can have.
    error : float or ndarray
        Estimated absolute error of `quantile`, as `isf` returns it; only with ``full_output=True``.

    Raises
    ------
    ValueError
        If `logp` is positive or NaN, or if another argument is outside its range.
    AccuracyError
        If the search or a quadrature fails, as it mostly does if the largest positive or negative
        weight has less than 2e-6 degrees of freedom, or if `dof` and `nc` add up to more than about 1e22.

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
    return _output(logp, law_of(weights, dof, nc, normal, shift), False, full_output)


def upper_quantiles(p: ArrayLike, law: Law, full_output: bool = False) -> Any:
    """Compute what `isf` returns, for the distribution with the parameters `law`."""
    return _output(_log_probability(p), law, False, full_output)


def lower_quantiles(p: ArrayLike, law: Law, full_output: bool = False) -> Any:
    """Compute what `ppf` returns, for the distribution with the parameters `law`."""
    return _output(_log_probability(p), law, True, full_output)


def _output(logs: Array, law: Law, lower: bool, full_output: bool) -> Any:
    """Return the quantiles that `_at_all` finds, and their estimated errors as well if `full_output` is true."""
    x = _at_all(logs, law, lower)
    if not full_output:
        return x
    pairs = zip(np.ravel(logs).tolist(), np.ravel(x).tolist(), strict=True)
    return x, np.array([quantile_error(law, *pair, lower) for pair in pairs]).reshape(logs.shape)[()]


def _at_all(logs: Array, law: Law, lower: bool) -> Floats:
    """Compute the quantiles for the log probabilities `logs` of the lower tail, if `lower` is true, or the upper tail.

    `law` has the parameters of the generalized chi-square distribution. If there are many quantiles, they are
    interpolated; if that fails, or if there are few, each one is searched.
    """
    if logs.size > _ONE_BY_ONE:
        try:
            return _many(logs, law, lower)
        except AccuracyError:  # for one quantile, or for the tail at the mean; now each search has its own error
            pass
    return at_each(lambda law, log_p: quantile(law, log_p, lower), logs, law)


def _many(logs: Array, law: Law, lower: bool) -> Array:
    """Compute many quantiles by interpolation: those above the mean together, and then those below it.

    `logs` has the log probabilities of the lower tail if `lower` is true, otherwise of the upper tail, and `law` the
    parameters of the generalized chi-square distribution. Quantiles that are not interpolated are searched one by one.
    The result has the shape of `logs`.
    """
    flat = np.ravel(logs)
    x = np.full(flat.size, np.nan)
    inside = np.flatnonzero((flat < 0) & np.isfinite(flat))
    given = flat[inside]
    others = np.where(given > -1, np.log(-np.expm1(given)), np.log1p(-np.exp(given)))
    log_upper, log_lower = (others, given) if lower else (given, others)
    above = log_upper < _log_upper_at_mean(law)
    for side, tail, chosen in ((law.upper, log_upper, above), (law.lower, log_lower, ~above)):
        if chosen.any():
            y = _interpolated(side.form, tail[chosen], side.lower)
            with np.errstate(over="ignore"):  # a quantile beyond the largest double is infinite
                x[inside[chosen]] = side.unscaled(y)
    rest = np.isnan(x)
    x[rest] = [quantile(law, log_p, lower) for log_p in flat[rest].tolist()]
    return x.reshape(logs.shape)


def _interpolated(form: Form, logs: Array, lower: bool) -> Array:
    """Compute quantiles for many log probabilities `logs`, by Chebyshev interpolation where entries are dense.

    The tail is the lower one if `lower` is true, and otherwise the upper one. `form` holds the parameters of the
    distribution, and the results are divided by its unit (twice the largest weight, if there is one). The result is NaN
    for entries that are not interpolated.

    The entries are divided into panels of equal width in log(a - log tail), where the constant a = `kernel.TOP` is
    slightly above 0. With weights of both signs or a normal term, the quantile 0 may be a singularity of the density.
    The distance of an entry from it is measured in the same variable. Where it is below `_BESIDE_ZERO`, the panels have
    equal width in the logarithm of the distance. A panel that cannot be interpolated is halved, unless it has few
    entries; these are left out.
    """
    top = loops(form).TOP
    depth, signed = top - logs, bool(form.normal or np.any(form.r < 0))
    zero, near = depth.min(), 0.0
    if signed:
        with suppress(AccuracyError):  # 0 is too far from all quantiles, or there are few degrees of freedom
            zero, near = top - estimate_tail(form, 0.0, lower)[0], _BESIDE_ZERO
    t = np.log(depth / zero)
    distance = np.abs(t)
    beside = distance < near
    steps = np.where(beside, np.log(np.maximum(distance, TINY) / _BESIDE_ZERO) / _LONG, (distance - near) / _PANEL)
    panel = 2 * np.floor(steps) + (t >= 0)
    order = np.lexsort((np.where(beside, distance, depth), panel))
    panels = np.split(order, np.flatnonzero(np.diff(panel[order])) + 1)
    x = np.full(logs.size, np.nan)
    while panels:
        here = panels.pop()
        if here.size > _NODES // 3 and logs[here[0]] != logs[here[-1]]:
            found = _panel(form, logs[here], lower, signed, zero if beside[here[0]] else 0.0)
            if found is not None:
                x[here] = found
            elif here.size > 2 * _NODES:
                panels += np.array_split(here, 2)
    return x


def _panel(form: Form, logs: Array, lower: bool, signed: bool, zero: float) -> Array | None:
    """Interpolate quantiles for the log probabilities `logs` of one panel, or return None if that is inaccurate.

    `form` and `lower` are those of `_interpolated`. `signed` says whether a quantile may be 0. In a panel beside this
    quantile, `zero` is the value of a - log tail there, for the constant a = `kernel.TOP`; otherwise it is 0.

    The quantiles at both ends of the panel are searched. At `_NODES` points between them, given by theta of `Crossing`
    or, beside 0, by log x, the tail is computed without a search. Quantile and tail are interpolated between these
    points, and Newton's method inverts the function of the tail. Beside 0, and for quantiles of one sign that differ by
    a factor of more than 2, their logarithms are interpolated. All are counted from their values in the middle, so that
    they have no large rounding errors.

    The result is None if the last Chebyshev coefficients would change the logarithm of a tail by more than `_LEFT_OUT`;
    if the panel is very narrow; if a tail cannot be computed; or if quantiles have different signs beside 0, or tails
    at the points do not fall in one direction.
    """
    top = loops(form).TOP
    if abs(logs[-1] - logs[0]) < _NARROW:
        return None
    try:
        first, last = (search(form, log_p, lower) for log_p in logs[[0, -1]].tolist())
        if zero and first * last <= 0:
            return None
        if zero:
            exact = first * (last / first) ** ((1 + _POINTS) / 2)
        else:
            start, end = (saddle(form, x, lower).theta for x in (first, last))
            thetas = np.append((start + end + (end - start) * _POINTS) / 2, (start, end))
            found = np.array([Crossing(form, theta, lower).x for theta in thetas.tolist()])
            left, right = found[-2:]
            if not abs(right - left - (last - first)) < abs(last - first) / 2:
                return None  # the panel is narrower than a saddle point is exact
            exact = first + (found[:-2] - left) * ((last - first) / (right - left))  # between the ends of the panel
        depth = top - np.array([estimate_tail(form, x, lower)[0] for x in exact.tolist()])
    except AccuracyError:  # next to 0, where the density may be infinite, or to an end of the support
        return None
    nodes, wanted = (np.abs(np.log(u / zero)) if zero else u for u in (depth, top - logs))
    if abs(np.sign(exact).sum()) < _NODES or not np.all(np.diff(nodes, prepend=0.0) > 0):
        return None
    wide = zero or (not signed and exact.max() / 2 > exact.min())
    size, pace = (1.0, nodes * (depth if zero else 1.0)) if wide else (np.abs(exact), 1.0)
    middle, center = nodes[_NODES // 2], exact[_NODES // 2]
    pairs = (nodes, middle), (wanted, middle), (exact, center)
    grid, wanted, values = (np.log(u / origin) if wide else u - origin for u, origin in pairs)
    fit, fit_x = np.stack((grid, values)) @ _TRANSFORM
    slope, slope_x = chebyshev.chebder(fit), chebyshev.chebder(fit_x)
    rise, rise_x = chebyshev.chebval(_POINTS, slope), chebyshev.chebval(_POINTS, slope_x)
    left_out = np.abs(fit[-3:, None] * rise_x - fit_x[-3:, None] * rise).max(axis=0) * pace
    if not np.all(left_out < (_LEFT_OUT + _ROUNDED * depth) * np.abs(rise_x) + _ROUNDED * size * pace * rise):
        return None
    z = np.interp(wanted, grid, _POINTS)
    for _ in range(4):
        z -= (chebyshev.chebval(z, fit) - wanted) / chebyshev.chebval(z, slope)
    if not np.all(np.abs(z) <= _OUTSIDE):
        return None
    values = chebyshev.chebval(z, fit_x)
    return center * np.exp(values) if wide else center + values


def _log_probability(p: ArrayLike) -> Array:
    """Return log p, where log 0 is -inf, or raise a ValueError if an entry of `p` is outside [0, 1]."""
    p = real(p=p)
    outside = (p < 0) | (p > 1)
    if np.count_nonzero(outside):
        raise ValueError(f"p must lie in [0, 1], got {float(p[outside].flat[0])!r}")
    with np.errstate(divide="ignore"):
        return np.log(p)


def quantile(law: Law, log_p: float, lower: bool) -> float:
    """Find the quantile x at which a tail has the logarithm `log_p`: P[Q <= x] if `lower` is true, else P[Q > x].

    `law` holds the parameters of Q, a generalized chi-square variable. The search uses the smaller one of the tails P[Q
    <= x] and P[Q > x], because the larger one may be too close to 1.
    """
    if log_p == 0 or np.isinf(log_p):
        return law.support[(log_p == 0) == lower]
    log_other = log_complement(log_p)
    log_upper, log_lower = (log_other, log_p) if lower else (log_p, log_other)
    try:
        return _searched(law, log_upper, log_lower)
    except AccuracyError:
        return _bracketed(law, log_upper, log_lower)


def _searched(law: Law, log_upper: float, log_lower: float) -> float:
    """Find the quantile x for given tails: P[Q > x] has the logarithm `log_upper`, and P[Q <= x] `log_lower`.

    `law` holds the parameters of Q, a generalized chi-square variable. The function `search` finds x from one of the
    two tails.
    """
    above = _above_mean(law, log_upper)
    side = law.upper if above else law.lower
    log_tail = log_upper if above else log_lower
    y = search(side.form, log_tail, side.lower)
    near = y == 0 and side.lower and not side.form.normal
    return _near_end(side, log_tail) if near else side.unscaled(y)


def _bracketed(law: Law, log_upper: float, log_lower: float) -> float:
    """Find the quantile at which the tails have the logarithms `log_upper` and `log_lower`, between two bounds.

    `law` holds the parameters of Q, a generalized chi-square variable, and the tails are P[Q > x] and P[Q <= x] at the
    quantile x. This search computes some hundred tails. It is for few degrees of freedom, where the faster search,
    `_searched`, may fail. The variable of the search is the logarithm of the distance from the constant term of Q,
    because the density may have a pole at this term.
    """
    centered, lower = Law(law.weights, law.dof, law.nc, law.normal), log_upper >= log_lower
    unit, target = centered.upper.form.unit, log_lower if lower else log_upper

    def excess(log_size: float, sign: int) -> float:  # increasing in x
        log_tail = either_tail(centered, sign * math.exp(log_size) * unit, lower)[0]
        return log_tail - target if lower else target - log_tail

    sign = 1 if excess(NEAREST, 1) < 0 else -1
    if sign < 0 and excess(NEAREST, -1) < 0:
        return law.shift
    end = 0.0
    while sign * excess(end, sign) < 0:
        end += 2.0
        if end > _FARTHEST:
            raise AccuracyError(
                f"no quantile below 1e260 times the largest weight, for a tail with the logarithm {target:.6g}",
                estimate=end,
            )
    log_size = brentq(excess, NEAREST, end, args=(sign,), xtol=1e-15, rtol=1e-15, maxiter=500)
    return sign * math.exp(log_size) * unit + law.shift


def _near_end(side: Side, log_p: float) -> float:
    """Return the quantile for the log probability `log_p` if it is next to the end of the support.

    There the function `search` returns 0. `side` holds the parameters of the variable, and says which tail is computed.
    The tail is proportional to y^(k/2), where y is the distance of the quantile from the end of the support divided by
    the unit of the `Form` of `side` (twice the largest weight), and k is the sum of the degrees of freedom. The result
    is the end of the support if the exact quantile would underflow, or if some weights are so small that the tail may
    not be such a power (see `is_power`).
    """
    form = side.form
    if not is_power(form):
        return side.shift
    log_y = math.log(TINY) - _beyond(form, log_p)
    return side.sign * math.exp(log_y + math.log(form.unit)) + side.shift


def _beyond(form: Form, log_p: float) -> float:
    """Return log(`TINY` / y) for the quantile y at which the lower tail has the logarithm `log_p`.

    `TINY` is a small constant, and y is below it if the result is positive. The tail is taken to be proportional to
    y^(k/2), where k is the sum of the degrees of freedom. `form` holds the parameters of the distribution, and y is
    divided by its unit (twice the largest weight).
    """
    return (estimate_tail(form, TINY, True)[0] - log_p) * 2 / float(form.k.sum())


def _above_mean(law: Law, log_upper: float) -> bool:
    """Return whether the x with P[Q > x] = exp(`log_upper`) lies above the mean of the variable Q.

    `law` holds the parameters of Q, a generalized chi-square variable. If all weights are positive, all noncentralities
    0 and all degrees of freedom 1 or more, P[Q > mean] is between 0.317 and 1/2. Then P[Q > mean] need not be computed
    unless exp(log_upper) is near this range.
    """
    central = (
        law.signs == (False, True) and not law.normal and not distinct(law.nc).any() and distinct(law.dof).min() >= 1
    )
    if central and not math.log(0.3) <= log_upper < math.log(0.5):
        return log_upper < math.log(0.3)
    return log_upper < _log_upper_at_mean(law)


def _log_upper_at_mean(law: Law) -> float:
    """Return an estimate of the logarithm of P[Q > mean of Q], at most -0.001 unless all weights are negative.

    `law` holds the parameters of Q, a generalized chi-square variable. The search for a quantile x uses the lower tail
    if log P[Q > x] is larger than this result, because a tail that is close to 1 makes the search inaccurate. The tail
    at the mean is computed by the saddlepoint formula, with some exceptions.

    - If all weights are negative, the result is log(1 - p) with the tail p of -Q, so that the quantiles of Q and of -Q
      are found by the same search.
    - With less than one degree of freedom, the formula may be wrong by a factor of two, so a contour integral is
      computed.
    - If the weights then have both signs, this integral takes too long at points near the constant term of Q. So if the
      mean is nearer to this term than `_AWAY`, the tail is computed at a point at the distance `_AWAY`.
    """
    side = law.lower if law.signs == (True, False) else law.upper
    few, y = side.form.k.sum() < 1, side.form.mean
    if few and all(law.signs) and abs(y) < _AWAY:
        y = _AWAY
    log_tail = estimate_tail(side.form, y, side.lower)[0] if few else log_by_formula(saddle(side.form, y, side.lower))
    log_tail = min(log_tail, -1e-3)
    return log_tail if side is law.upper else log_complement(log_tail)


def search(form: Form, log_p: float, lower: bool) -> float:
    """Find the x at which the logarithm of the lower tail (if `lower` is true) or of the upper tail is `log_p`.

    The result is divided by the unit of `form` (twice the largest weight, if there is one), which holds the parameters
    of the distribution. A tail is an integral along a contour (path of integration), and the number theta gives the
    point where the contour crosses the real axis. The search finds the theta at which log((a - log tail) / (a - log_p))
    is zero, where the constant a = `kernel.TOP` is slightly above 0. This function of theta is nearly a straight line.
    A first search takes the saddlepoint formula in place of the tail. The result is 0 for a lower tail whose x is so
    near to the end of the support that `_near_end` finds it.
    """
    top, definite = loops(form).TOP, np.count_nonzero(form.r > 0) == form.r.size
    positive = definite and not form.normal
    depth, at = top - log_p, np.empty((3, form.table.shape[1]))
    start = loops(form).by_formula(form.table, form.normal, log_p, lower, at)
    if form.serving(start, lower) is not form:
        return search(form.finer, log_p, lower)
    least = math.log(top / depth)  # the result of `excess` for a tail of 1

    def excess(theta: float) -> tuple[float, float, tuple[float, bool]]:
        crossing = Crossing(form, theta, lower)
        x = crossing.x  # another one if the crossing is refined
        if positive and x <= 0:
            return least, -least, (0.0, False)
        log_tail, _, _, density_slope, ratio = tail_and_density(crossing, x, _SLOPE)
        tail_slope = ratio if lower else -ratio  # d log tail / dx
        step, bend = (log_p - log_tail) / tail_slope, density_slope - tail_slope
        if positive:  # the step is in log x, of which the logarithm of the tail is nearly linear if x is small
            step, bend = step / x, bend * x + 1
            x *= math.exp(min(step - step * step * bend / 2, 700.0))
        else:
            x += step - step * (step * bend) / 2  # the square of a step may underflow
        slope = tail_slope * crossing.spread * crossing.pace / crossing.c
        return math.log((top - log_tail) / depth), -slope / (top - log_tail), (x, abs(x) * ratio < _CLEAR)

    near = lower and not form.normal and loops(form).formula(form.table, form.normal, _LOWEST, lower, at)[0] > log_p
    if near and (not is_power(form) or _beyond(form, log_p) > 0):
        return 0.0
    if math.isnan(start):
        raise AccuracyError(f"no start within 200 steps for a tail with the logarithm {log_p:.6g}", estimate=start)
    if not lower and start == loops(form).FAR and depth > VAST:  # at this c, the height is that at the saddle point
        crossing = Crossing(form, start, lower)
        return (crossing.log_height(0.0)[0] - log_p) / crossing.c
    # The last round ends with a second-order step in x, whose error is the third power of 3e-5.
    x, beside = find_root(excess, start, tolerance=max(3e-5 / depth, _LEAST))
    return _polished(form, log_p, lower, x) if (np.count_nonzero(form.k <= 0.1) if definite else beside) else x


def _polished(form: Form, log_p: float, lower: bool, x: float) -> float:
    """Improve `x`, the quantile that `search` has found, by the secant rule, and return the better quantile.

    Near 0, where the density of weights of both signs may be infinite, and for few degrees of freedom, the last step of
    `search` may be inaccurate. The secant rule needs only the tail. `form` holds the parameters of the distribution,
    and `log_p` is the logarithm of the lower tail (if `lower` is true) or of the upper tail at the quantile. If the
    rule does not converge, as it may where the density is infinite, an AccuracyError is raised.
    """

    def excess(x: float) -> float:
        return estimate_tail(form, x, lower)[0] - log_p

    before, off, off_before = x + (1e-9 if form.r[0] < 0 else 1e-7 * x), excess(x), math.nan
    for _ in range(20):
        if abs(off) <= 1e-13 * max(1.0, -log_p):
            break
        off_before = excess(before) if math.isnan(off_before) else off_before
        if off == off_before:
            break
        before, off_before, x = x, off, x - off * (x - before) / (off - off_before)
        off = excess(x)
    if abs(off) > _ROUND_TRIP * max(1.0, -log_p):
        raise AccuracyError(f"no quantile within 20 steps for a tail with the logarithm {log_p:.6g}", estimate=x)
    return x
