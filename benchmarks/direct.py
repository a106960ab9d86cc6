"""Compute the upper tail of a weighted sum of squared normal variables directly: an independent check of egm.gx2.

The integrand is computed in extended precision by a sum over every weight, while egm.gx2 may merge close weights.
"""

import numpy as np
from scipy.optimize import brentq

CHUNK = 50_000  # weights at a time, so that memory suffices for a million of them
STEP = 0.1  # step of t with u = sinh(t), because the integrand may fall more slowly than exp(-u^2/2)
BEND = 0.25  # share of the bend of steepest descent; all of it is too much where many weights are near the largest
NEGLIGIBLE = 1e-19


def direct_tail(x, weights):
    """Return the probability P[sum_j w_j Z_j**2 > x] for the `weights` w_j and independent standard normal Z_j.

    `x` must be above the mean of the sum. The probability is a contour integral. The contour is a parabola through the
    saddle point of the integrand, and the integral is computed by the trapezoid rule. Where the machine has extended
    precision, rounding errors are negligible.
    """
    unit = 2 * np.max(weights)  # the branch cut begins at s = 1
    r, x = (np.asarray(weights) / (unit / 2)).astype(np.longdouble), np.longdouble(x) / np.longdouble(unit)
    c = _saddle(r.astype(float), float(x))
    v = r / (1 - r * c)
    h = 1 / np.sqrt(np.sum(v**2) / 2 + 1 / c**2)
    bend = BEND * np.sum(v**3) * h**4 / 6
    total, size, t = 0.0, 1.0, 0.0
    while size > NEGLIGIBLE:
        u = np.sinh(np.longdouble(t))
        a, b = bend * u**2, h * u
        mass = (
            np.exp(_growth(v, a, b) - (a + 1j * b) * x) / (c + a + 1j * b) * (1j * h + 2 * bend * u) * np.sqrt(1 + u**2)
        )
        total += mass.imag * (0.5 if t == 0 else 1.0)
        size, t = abs(mass) / abs(total), t + STEP
    return float(np.exp(-np.sum(np.log1p(-r * c)) / 2 - c * x) * total * STEP / np.pi)


def _saddle(r, x):
    """Return the point at which the contour of the integral crosses the real axis: the saddle point of the integrand.

    The integrand is exp(K(s) - s x) / s, so the point is the number c in (0, 1) with K'(c) = `x` + 1/c. K is the
    cumulant function of S / (2 w), where S is the sum and w is the largest weight. `x` is divided by 2 w, too, and `r`
    has the weights, divided by w.
    """

    def excess(theta):
        c, rest = 1 / (1 + np.exp(-theta)), 1 / (1 + np.exp(theta))
        return np.log(np.sum(r / (rest + c * (1 - r))) / 2 / (x + 1 / c))

    return np.longdouble(1 / (1 + np.exp(-brentq(excess, -30, 30))))


def _growth(v, a, b):
    """Return the complex number -1/2 sum_j log(1 - v_j (a + ib)) for real `a` and `b` and the array `v`.

    This is K(c + a + ib) - K(c) if v_j = r_j / (1 - r_j c), where K, c and r_j are those of `_saddle`: the cumulant
    function, the saddle point, and the weights, divided by the largest one.
    """
    total = np.clongdouble(0)
    for start in range(0, v.size, CHUNK):
        p, q = a * v[start : start + CHUNK], b * v[start : start + CHUNK]
        total += np.sum(np.arctan2(q, 1 - p)) * 0.5j - np.sum(np.log1p(p * (p - 2) + q * q)) / 4
    return total
