"""Estimate the error of a quantile of a generalized chi-square variable Q from tails and the density."""

from __future__ import annotations

import math

from egm._gx2.contour import EPS, AccuracyError, Estimate
from egm._gx2.form import Law
from egm._gx2.tails import either_tail, is_power, log_complement, log_density, tail_on

# Largest error, divided by the distance from the constant term, for which the slope at x is enough: over 1 % of this
# distance, the logarithm of a tail is nearly straight even where it is a power of the distance.
_STRAIGHT = 0.01
NEAREST = -320.0  # log of the least distance from the constant term at which a quantile is searched between bounds
_WIDER = 10.0  # factor by which an error that may be too small is increased: few steps, and not far too large


def quantile_error(law: Law, log_p: float, x: float, lower: bool) -> float:
    """Estimate the absolute error of the quantile `x` at which a tail should have the logarithm `log_p`.

    The tail is P[Q <= x] if `lower` is true, else P[Q > x], and `law` holds the parameters of Q, a generalized
    chi-square variable. The Notes of `egm.gx2.isf` describe the method.
    """
    if log_p == 0 or math.isinf(log_p):
        return 0.0
    if math.isinf(x):
        return math.inf
    log_other = log_complement(log_p)
    below, target = lower == (log_p < log_other), min(log_p, log_other)  # the smaller tail

    def excess(x: float) -> tuple[float, float]:
        log_tail, error = _tail(law, x, below)
        return log_tail - target, error + EPS * (2 - target)

    def encloses(error: float) -> bool:
        try:
            (left, left_error), (right, right_error) = excess(x - error), excess(x + error)
        except AccuracyError:
            return False
        return left < -left_error and right > right_error if below else left > left_error and right < -right_error

    distance, error = abs(x - law.shift), math.ulp(x)
    try:
        if x not in law.support:
            (off, off_error), (density, density_error) = excess(x), log_density(law, x)
            blur = off_error + density_error
            if blur < 1:  # otherwise the two logarithms have lost the digits that make the slope
                error += math.exp(math.log(abs(off) + off_error) + off + target - density + blur)
                if error <= _STRAIGHT * distance:
                    return error
    except (AccuracyError, OverflowError):
        pass
    if distance == 0 and all(law.signs):
        error = max(error, math.exp(NEAREST) * law.upper.form.unit)
    elif x in law.support and is_power(law.upper.form):  # the distance of the quantile from x is a rounding error
        return error
    while math.isfinite(error) and not encloses(error):
        error *= _WIDER
    return error


def _tail(law: Law, x: float, lower: bool) -> Estimate:
    """Compute the logarithm of the tail P[Q <= x] if `lower` is true, else of P[Q > x], and its estimated error.

    `law` holds the parameters of Q. For few degrees of freedom and an x next to the end of the support, the tail above
    1/2 may be the only one for which there is a contour; then the other tail is 1 minus it.
    """
    try:
        return either_tail(law, x, lower)
    except AccuracyError:
        below = x < law.mean
        log_tail, error = tail_on(law.lower if below else law.upper, x)
        if below == lower:
            return log_tail, error
        other = log_complement(min(log_tail, -EPS))
        return other, error * math.exp(log_tail - other)
