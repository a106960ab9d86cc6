"""Prove between which two doubles the exact noise scale of Gaussian or l2 noise lies.

The proof computes with balls: intervals or, for complex numbers, rectangles that contain the exact results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from egm import _curve
from egm._enclosure import Enclosure, ball_arithmetic, precision
from egm._l2 import l2_noise_scale
from egm._types import NoiseLaw
from egm._validate import between, count, probability, real, scalar

__all__ = ["certify"]

Ball: TypeAlias = Any  # an arb of flint

_FIRST_BITS, _MOST_BITS = 128, 1 << 15


def certify(epsilon: float, delta: float, *, noise: NoiseLaw = "gaussian", d: int | None = None) -> Enclosure:
    r"""Prove between which two doubles the smallest sufficient noise scale for (epsilon, delta)-privacy lies.

    The doubles `epsilon` and `delta` are taken as exact numbers. This function needs python-flint, which the extra
    `certify` installs.

    Parameters
    ----------
    epsilon : float
        Privacy parameter epsilon, from 1e-100 to 1e100, or from 1e-6 to 1e4 for l2 noise.
    delta : float
        Privacy parameter delta, at least 1e-300 and below 1.
    noise : {"gaussian", "l2"}, default "gaussian"
        Law of the noise. The density of l2 noise of the scale s is proportional to ``exp(-norm(x) / s)``.
    d : int, optional
        Number of coordinates, from 1 to 1e6. It is needed for l2 noise, and only there.

    Returns
    -------
    Enclosure
        Two doubles `low` and `high` next to each other, with ``low <= exact value <= high``. The exact value is
        what `analytic_noise_multiplier` approximates for Gaussian noise, and `l2_noise_scale` for l2 noise, for a
        query of l2-sensitivity 1. So noise with the scale `high` is (epsilon, delta)-private, and noise with a scale
        below `low` is not.

    Raises
    ------
    ImportError
        If python-flint is not installed.
    ValueError
        If an argument is outside its range, or if `d` is missing for l2 noise or given for Gaussian noise.
    ArithmeticError
        If a precision of 32768 bits is not enough to prove the ends of the enclosure.

    See Also
    --------
    analytic_noise_multiplier : The noise multiplier in double precision.
    l2_noise_scale : The scale of l2 noise in double precision.
    egm.gx2.certify : Enclosures for the distribution of the norm.

    Notes
    -----
    For a given noise scale, the smallest delta is computed in ball arithmetic [1]_, in which each operation returns an
    interval that contains the exact result. The precision is raised until it is certain whether this delta is above
    or below the given one. For Gaussian noise the smallest delta is the difference of two normal
    probabilities (see `egm.calibration`). For l2 noise it is the integral in `egm/_l2.py`, divided by the integral of
    the density over all angles. flint bounds the error of the quadrature of the first integral. The second one is a sum
    of two integrals with the closed form below, where :math:`z = 1 / (2 s)` for the scale s, and I is a modified Bessel
    function of the first kind:

    .. math::

        \int_0^\pi e^{z \cos \varphi} \sin^n \varphi \, d\varphi
        = \sqrt{\pi} \; \Gamma\Bigl(\frac{n + 1}{2}\Bigr) \Bigl(\frac{2}{z}\Bigr)^{n / 2} I_{n / 2}(z).

    It remains to prove that delta falls as the scale grows. This holds because noise of a larger scale is the sum of
    noise of the smaller scale and of further independent noise, which is post-processing. For Gaussian noise this is
    clear. l2 noise is a normal vector whose variance is a gamma variable; the gamma law is self-decomposable, so a
    larger multiple of this variance is a sum of the smaller multiple and an independent nonnegative variable.

    The precision of python-flint is one for all threads. So calls in several threads wait for each other.

    References
    ----------
    .. [1] Johansson (2017), "Arb: Efficient Arbitrary-Precision Midpoint-Radius Interval Arithmetic".

    Examples
    --------
    >>> from egm import calibration
    >>> exact = calibration.certify(epsilon=1, delta=1e-6)
    >>> round(exact.value, 12), exact.relative_width < 1e-15
    (4.224678889327, True)
    >>> float(calibration.analytic_noise_multiplier(1, 1e-6)) >= exact.low
    True
    """
    if noise not in ("gaussian", "l2"):
        raise ValueError(f"noise must be 'gaussian' or 'l2', got {noise!r}")
    if (d is None) == (noise == "l2"):
        raise ValueError(f"d must be {'given for l2 noise' if d is None else 'left out for Gaussian noise'}, got {d!r}")
    epsilon, delta = scalar(real, epsilon=epsilon), scalar(probability, delta=delta)
    if delta < 1e-300:
        raise ValueError(f"delta must be at least 1e-300, got {delta!r}")
    if d is None:
        epsilon = float(between(1e-100, 1e100, epsilon=epsilon))
        start = float(_curve.largest_noise_multiplier(np.array(epsilon), np.array(min(delta, _curve.LARGEST_DELTA))))
        return _bracket(_gaussian_delta, epsilon, delta, start)
    epsilon, d = float(between(1e-6, 1e4, epsilon=epsilon)), count(d=d)
    scale = float(l2_noise_scale(epsilon, delta, d))
    return _bracket(lambda eps, s: _l2_delta(eps, s, d), epsilon, delta, scale)


def _bracket(curve: Callable[[Ball, Ball], Ball], epsilon: float, delta: float, start: float) -> Enclosure:
    """Enclose the smallest noise scale that suffices for (epsilon, delta)-privacy, by bisection from `start`.

    ``curve(epsilon, scale)`` returns the smallest delta for noise of this scale. Its arguments and its result are
    balls, which are intervals that contain the exact numbers.
    """
    flint, bits = ball_arithmetic(), _FIRST_BITS

    def suffices(scale: float) -> bool:
        """Return True if the smallest delta at this noise scale is proved to be <= the given delta, and False if >=.

        Raise an ArithmeticError if neither is proved.
        """
        nonlocal bits
        while bits <= _MOST_BITS:
            with precision(bits):
                least = curve(flint.arb(epsilon), flint.arb(scale))
                if least <= delta:
                    return True
                if least >= delta:
                    return False
            bits *= 2
        raise ArithmeticError(f"the privacy curve at the noise scale {scale!r} is not enclosed with {_MOST_BITS} bits")

    low = high = start
    step = 1e-12
    while not suffices(high):
        low, high, step = high, high * (1 + step), min(4 * step, 1.0)
    step = 1e-12
    while low == high or suffices(low):
        high, low, step = low, low / (1 + step), min(4 * step, 1.0)
    while low < (middle := low + (high - low) / 2) < high:
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return Enclosure(low, high)


def _gaussian_delta(epsilon: Ball, z: Ball) -> Ball:
    """Return a ball (an interval) with the smallest delta for which Gaussian noise is (epsilon, delta)-private.

    `epsilon` and `z` are balls, too. `z` is the standard deviation of the noise for a query of l2-sensitivity 1.
    """
    root, half = (epsilon * 0 + 2).sqrt(), epsilon * 0 + 0.5
    a, b = (1 / (2 * z) - epsilon * z) / root, (1 / (2 * z) + epsilon * z) / root

    def scaled(t: Ball) -> Ball:
        """Return a ball (an interval) that contains exp(t^2) erfc(|t|) for all t in the ball `t`."""
        return (t * t).hypgeom_u(half, half) / t.pi().sqrt()

    factor = (-a * a).exp()  # exp(epsilon - b^2)
    # The balls of flint's erfc are too wide for very large arguments, and `scaled` is for numbers of one sign.
    return ((factor * scaled(a) if a < 0 else (-a).erfc()) - factor * scaled(b)) / 2


def _l2_delta(epsilon: Ball, s: Ball, d: int) -> Ball:
    """Return a ball (an interval) with the smallest delta for which l2 noise is (epsilon, delta)-private.

    `epsilon` and the scale `s` are balls, too, and `d` is the number of coordinates. The query has l2-sensitivity 1,
    and the density of the noise at x is proportional to exp(-|x| / s).
    """
    flint = ball_arithmetic()
    cosine = epsilon * s
    if cosine >= 1:
        return flint.arb(0)
    if d == 1:
        return -((epsilon - 1 / s) / 2).expm1()
    z, order = 1 / (2 * s), flint.arb(d) / 2
    ratio = (d - 1) / z * z.bessel_k(order) / z.bessel_k(order - 1)

    def whole(n: int) -> Ball:
        """Return a ball (an interval) that contains the integral of exp(z cos phi) sin^n phi over phi from 0 to pi.

        Here z is 1 / (2 s), for the scale s of the noise.
        """
        half = flint.arb(n) / 2
        return flint.arb.pi().sqrt() * (half + flint.arb(0.5)).gamma() * (2 / z) ** half * z.bessel_i(half)

    def density(phi: Ball, _: bool) -> Ball:
        """Return a ball that contains the integrand of the numerator of delta for all complex angles in the ball `phi`.

        A complex ball is a rectangle, and delta is a quotient of two integrals over the angle. The second argument, a
        flag of flint, is not needed, because the integrand is analytic.
        """
        cos, sin = phi.cos(), phi.sin()
        return (z * cos).exp() * sin ** (d - 2) * (ratio + sin * sin) * -(2 * z * (cosine - cos)).expm1()

    tolerance = flint.arb(2) ** (30 - flint.ctx.prec)
    part = flint.acb.integral(density, 0, cosine.acos(), rel_tol=tolerance).real
    return part / (ratio * whole(d - 2) + whole(d))
