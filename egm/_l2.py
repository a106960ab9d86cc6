r"""Compute how much l2 noise (epsilon, delta)-differential privacy needs, from a closed form of its privacy loss.

l2 noise of scale s in d dimensions has a density proportional to :math:`e^{-\|x\| / s}`. Joseph, Kulesza and Yu (2025)
calibrate it in another way. Here the law of the privacy loss is used, which has a closed form (chapter 14 of the book).

Let two neighbors differ by a vector :math:`e_1` of length 1. In prolate spheroidal coordinates of the noise x, with the
foci 0 and :math:`e_1`,

.. math::

    \sigma = \|x - e_1\| - \|x\|, \qquad \tau = \|x - e_1\| + \|x\|,

the privacy loss is :math:`\sigma / s`, and the joint density of :math:`\sigma` and :math:`\tau` is proportional to

.. math::

    e^{-z (\tau - \sigma)} \, (\tau^2 - \sigma^2) \, [(\tau^2 - 1)(1 - \sigma^2)]^{(d - 3) / 2},
    \qquad z = \frac{1}{2 s}.

Integrating over :math:`\tau` leaves, with :math:`\sigma = \cos \varphi` and the modified Bessel function K,

.. math::

    f(\varphi) \propto e^{z \cos \varphi} \sin^{d - 2} \varphi \, (R + \sin^2 \varphi),
    \qquad R = \frac{d - 1}{z} \, \frac{K_{d/2}(z)}{K_{d/2 - 1}(z)}.

So the smallest delta for an epsilon is an integral of positive terms, in which nothing cancels:

.. math::

    \delta = \int_0^{\varphi_c} f(\varphi) \, \bigl( 1 - e^{-2 z (\cos \varphi - c)} \bigr) \, d\varphi,
    \qquad c = \cos \varphi_c = \varepsilon s.

The delta is 0 for :math:`\varepsilon s \ge 1`. The largest privacy loss is above epsilon by the excess
:math:`1 / s - \varepsilon`. If the excess is far smaller than epsilon, a double s does not determine it well. So the
functions `log_delta_at` and `log_excess` use the excess instead of s.
"""

from __future__ import annotations

import functools
import math
from typing import overload

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammainccinv, gammaincinv, gammaln, kve, ndtr, roots_legendre

from egm import _curve
from egm._types import Array, ArrayLike, Floats
from egm._validate import between, finite

__all__ = ["coordinate_quantile", "l2_delta", "l2_noise_scale", "log_delta_at", "log_excess"]

_NODES, _WEIGHTS = ((v + shift) / 2 for v, shift in zip(roots_legendre(96), (1.0, 0.0), strict=True))
_REACH = 45.0  # the integrals end where their terms are below exp(-45) of the largest one
_WIDER = 1.3  # factor by which an interval is wider than that of a normal density with the same curvature
_LARGEST_LOSS = 2e9  # with a larger loss 1 / s, delta is 1 for every epsilon that is allowed
_SURE = 1 - 1e-11  # the computed delta is kept below this share of the allowed one, as it has relative errors of 1e-12
_STEP = 1 + 1e-12  # one step towards privacy
_MOST_STEPS = 200  # of the secant method


@overload
def l2_delta(epsilon: float, noise_scale: float, d: int) -> float: ...
@overload
def l2_delta(epsilon: ArrayLike, noise_scale: ArrayLike, d: ArrayLike) -> Array: ...
def l2_delta(epsilon: ArrayLike, noise_scale: ArrayLike, d: ArrayLike) -> Floats:
    r"""Compute the privacy curve of l2 noise: the smallest delta for each epsilon.

    Parameters
    ----------
    epsilon : float or array_like
        Privacy parameter epsilon, from 0 to 1e4.
    noise_scale : float or array_like
        Scale s of the noise for a query of l2-sensitivity 1, from 1e-100 to 1e100. It is broadcast
        with `epsilon`. The noise has a density proportional to ``exp(-norm(x) / s)``.
    d : int or array_like
        Number of coordinates, from 1 to 1e6. It is broadcast with `epsilon`.

    Returns
    -------
    float or ndarray
        The smallest delta for which the noise is (epsilon, delta)-private, in the shape to which
        the arguments broadcast. It is 0 if ``noise_scale >= 1 / epsilon``. The relative error of
        the result is below 1e-11, unless the result is a subnormal double.

    Raises
    ------
    ValueError
        If an argument is outside its range.

    See Also
    --------
    l2_noise_scale : The inverse in the noise scale.
    gaussian_delta : The privacy curve of Gaussian noise.

    Notes
    -----
    Noise of this law is due to [1]_. For ``d = 1`` it is Laplace noise, and delta is
    :math:`1 - e^{(\varepsilon - 1/s) / 2}`. The privacy loss is never above 1/s, so the
    noise is epsilon-private, with a delta of 0, for the epsilon 1/s.

    References
    ----------
    .. [1] Joseph, Kulesza and Yu (2025), "Approximate Differential Privacy of the l2 Mechanism".

    Examples
    --------
    >>> from egm import calibration
    >>> f"{calibration.l2_delta(epsilon=1, noise_scale=0.5, d=10):.4e}"
    '1.9213e-02'
    >>> float(calibration.l2_delta(epsilon=1, noise_scale=1.0, d=10))
    0.0
    """
    epsilon, s = between(0.0, 1e4, epsilon=epsilon), between(1e-100, 1e100, noise_scale=noise_scale)
    epsilon, s, d = np.broadcast_arrays(epsilon, s, _dimension(d))
    product, rest = _curve.product(epsilon, s)
    with np.errstate(over="ignore"):
        excess = ((1 - product) - rest) / s  # the first difference has no rounding error where it matters
    private = excess <= 0
    return np.where(private, 0.0, np.exp(log_delta_at(epsilon, np.where(private, 1.0, excess), d)))[()]


@overload
def l2_noise_scale(epsilon: float, delta: float, d: int) -> float: ...
@overload
def l2_noise_scale(epsilon: ArrayLike, delta: ArrayLike, d: ArrayLike) -> Array: ...
def l2_noise_scale(epsilon: ArrayLike, delta: ArrayLike, d: ArrayLike) -> Floats:
    r"""Compute the smallest scale that makes l2 noise (epsilon, delta)-private.

    Parameters
    ----------
    epsilon : float or array_like
        Privacy parameter epsilon, from 1e-6 to 1e4.
    delta : float or array_like
        Privacy parameter delta: 0, or at least 1e-300 and below 1. It is broadcast with `epsilon`.
    d : int or array_like
        Number of coordinates, from 1 to 1e6. It is broadcast with `epsilon`.

    Returns
    -------
    float or ndarray
        The scale s for a query of l2-sensitivity 1, in the shape to which the arguments broadcast.
        The result is never below the exact smallest scale, and for ``delta <= 0.5`` it is above this
        scale by a factor of at most 1 + 1e-10. For ``delta = 0`` it is ``1 / epsilon``.

    Raises
    ------
    ValueError
        If an argument is outside its range.

    See Also
    --------
    l2_delta : The privacy curve, which this function inverts.
    analytic_noise_multiplier : The calibration of Gaussian noise.

    Notes
    -----
    The noise has a density proportional to :math:`e^{-\|x\| / s}` [1]_, and each coordinate has the
    standard deviation :math:`s \sqrt{d + 1}`. This is less than the standard deviation of Gaussian
    noise for the same epsilon and delta, unless delta is above about a hundredth of epsilon.

    References
    ----------
    .. [1] Joseph, Kulesza and Yu (2025), "Approximate Differential Privacy of the l2 Mechanism".

    Examples
    --------
    In ten dimensions the noise has about half of the mean squared error of Gaussian noise:

    >>> from egm import calibration
    >>> s = calibration.l2_noise_scale(epsilon=1, delta=1e-6, d=10)
    >>> z = calibration.analytic_noise_multiplier(epsilon=1, delta=1e-6)
    >>> round(float(s), 6), round(float((10 + 1) * s**2 / z**2), 6)
    (0.91643, 0.517611)
    """
    epsilon, delta = between(1e-6, 1e4, epsilon=epsilon), between(0.0, math.nextafter(1.0, 0.0), delta=delta)
    if np.any(tiny := (delta > 0) & (delta < 1e-300)):
        raise ValueError(f"delta must be 0 or at least 1e-300, got {float(delta[tiny].flat[0])!r}")
    epsilon, delta, d = np.broadcast_arrays(epsilon, delta, _dimension(d))
    wanted = np.maximum(np.minimum(delta, _curve.LARGEST_DELTA) * _SURE, 1e-300)
    with np.errstate(over="ignore"):
        excess = np.exp(log_excess(epsilon, np.log(wanted), d)) / _STEP
    s = np.where(delta > 0, 1 / (epsilon + excess), 1 / epsilon)
    step = _STEP
    while np.any(short := (s * epsilon < 1) & (l2_delta(epsilon, s, d) > delta * _SURE)):
        s, step = np.where(short, s * step, s), step**2
    product, rest = _curve.product(epsilon, s)
    pure = (product >= 1) | (delta == 0)
    return np.where(pure & ((1 - product) - rest > 0), np.nextafter(s, np.inf), s)[()]


def log_delta_at(epsilon: Floats, excess: Floats, d: Floats) -> Array:
    """Compute the log of the smallest delta at `epsilon`, for l2 noise whose largest privacy loss is epsilon + excess.

    `epsilon`, `excess` > 0 and `d`, the number of coordinates, are arrays of one shape.
    """
    epsilon, excess, d = (np.asarray(v, dtype=float)[..., None] for v in (epsilon, excess, d))
    line, excess = d[..., 0] == 1, np.minimum(excess, _LARGEST_LOSS)
    on_line, d = np.log(-np.expm1(-excess / 2))[..., 0], np.maximum(d, 2.0)
    z, power, low = (epsilon + excess) / 2, d - 2, excess / (2 * (epsilon + excess))
    # The mode of the density of the angle: sin^2 = power * cos / z.
    top = 2 * z / (power + np.hypot(power, 2 * z))
    mode = np.arctan2(np.sqrt(power * top / z), top)
    fall = _REACH + np.log1p(z)
    # Minus the second derivative of the log density at the mode or, for small powers, a lower bound that holds for all
    # angles up to pi, since 1 - cos(x) >= 0.4 x^2 / 2.
    bend = np.where(power < 4, power + 0.4 * z * top, z * (1 / top + top))
    half = _WIDER * np.sqrt(2 * fall / bend)
    ratio = _ratio(d, z)

    def terms(angle: Array) -> tuple[Array, Array]:
        """Return two arrays such that exp(first) * second is the density of an angle phi at `angle`, up to a factor.

        The privacy loss of l2 noise is cos phi divided by the scale of the noise. The first result is the logarithm of
        exp(z cos phi) sin^(d - 2) phi, minus its largest value, and the second is R + sin^2 phi. d is the dimension, z
        is 1 / (2 scale), and R is a ratio of Bessel functions, as in the docstring of this module.
        """
        sine, cosine = np.sin(angle), np.cos(angle)
        rise = -2 * z * np.sin((angle - mode) / 2) * np.sin((angle + mode) / 2)  # z (cos(angle) - cos(mode))
        return rise + power * (_log_sine(sine, cosine) - _log_sine(np.sin(mode), top)), ratio + sine**2

    left, right = np.maximum(mode - half, 0.0), np.minimum(mode + half, np.pi)
    exponent, factor = terms(left + (right - left) * _NODES)
    whole = np.log(np.sum(_WEIGHTS * np.exp(exponent) * factor, axis=-1) * (right - left)[..., 0])
    # The integral for delta, in the distance from its end at the angle `cut`.
    cut = 2 * np.arcsin(np.sqrt(low))
    sine, cosine = np.sin(cut), np.maximum(np.cos(cut), 0.0)
    slope = np.maximum(power * cosine / sine - z * sine, 0.0)
    curvature = power / sine**2 + z * cosine
    beyond = 2 * fall / np.maximum(slope + np.sqrt(slope**2 + 2 * curvature * fall), 1e-300)
    near = np.where(mode < cut, np.maximum(cut - mode - half, 0.0), 0.0)
    far = np.minimum(np.where(mode < cut, cut - mode + half, beyond), cut)
    distance = near + (far - near) * _NODES
    exponent, factor = terms(cut - distance)
    above = 2 * np.sin(distance / 2) * np.sin(cut - distance / 2)  # cos(angle) - cos(cut)
    largest = np.max(exponent, axis=-1, keepdims=True)
    part = np.sum(_WEIGHTS * np.exp(exponent - largest) * factor * -np.expm1(-2 * z * above), axis=-1)
    with np.errstate(divide="ignore"):  # delta may underflow
        log_delta = np.log(part * (far - near)[..., 0]) + largest[..., 0] - whole
    return np.minimum(np.where(line, on_line, log_delta), 0.0)


def _ratio(d: Array, z: Array) -> Array:
    """Compute R = (d - 1) / z * K_{d/2}(z) / K_{d/2 - 1}(z), a constant in the law of the privacy loss of l2 noise.

    K is the modified Bessel function; where it overflows, R is computed by quadrature. `d` is the number of
    coordinates, and `z` is 1 / (2 s) for noise of scale s. R is the mean of sinh(w)^2 for the density proportional to
    exp(-z cosh(w)) sinh(w)^(d - 2), w > 0.
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        ratio: Array = (d - 1) / z * (kve(d / 2, z) / kve(d / 2 - 1, z))
    if np.all(usable := np.isfinite(ratio) & (ratio > 0)):
        return ratio
    d, z = np.where(usable, 200.0, d), np.where(usable, 1.0, z)
    cosh = (d - 1 + np.hypot(d - 1, 2 * z)) / (2 * z)
    mode = np.arccosh(cosh)
    half = _WIDER * np.sqrt(2 * _REACH / (z * (cosh + 1 / cosh)))
    left, right = np.maximum(mode - half, 0.0), mode + half
    w = left + (right - left) * _NODES
    rise = 2 * z * np.sinh((w - mode) / 2) * np.sinh((w + mode) / 2)  # z (cosh(w) - cosh(mode))
    density = _WEIGHTS * np.exp((d - 2) * np.log(np.sinh(w) / np.sinh(mode)) - rise)
    mean = np.sum(density * np.sinh(w) ** 2, axis=-1, keepdims=True) / np.sum(density, axis=-1, keepdims=True)
    return np.where(usable, ratio, mean)


def _log_sine(sine: Array, cosine: Array) -> Array:
    """Compute the logarithm of a `sine` > 0, from the `cosine` of the same angle where this keeps more digits."""
    flat = np.abs(cosine) < 0.7
    return np.where(flat, 0.5 * np.log1p(-(np.where(flat, cosine, 0.0) ** 2)), np.log(np.maximum(sine, 1e-300)))


def log_excess(epsilon: Array, log_delta: Array, d: Array) -> Array:
    """Find the logarithm u of the excess 1 / s - epsilon at which l2 noise of scale s has a given smallest delta.

    `epsilon`, the logarithm `log_delta` of the given delta, and the number `d` of coordinates are arrays of one shape.
    The equation log_delta_at(epsilon, exp(u), d) = log_delta is solved by the secant method, with steps of bisection.
    The search begins at a scale s for which l2 noise has about the standard deviation of Gaussian noise for epsilon and
    delta. Where 1 / s for this scale is at most 1.1 epsilon, the search begins instead at the excess for which (excess
    / epsilon)**((d + 1) / 2), an approximation of delta, is the given delta.
    """
    loss = np.sqrt(d + 1) / _curve.largest_noise_multiplier(epsilon, np.exp(log_delta))
    u: Array = np.log(np.maximum(np.maximum(loss - epsilon, loss * 1e-3), 1e-300))
    u = np.where(loss > 1.1 * epsilon, u, np.maximum(np.log(epsilon) + 2 * log_delta / (d + 1), -690.0))
    low, high = np.where(d == 1, -700.0, -500.0), np.full(u.shape, np.log(_LARGEST_LOSS))  # delta is below 1e-300 and 1
    before, missing = u, log_delta_at(epsilon, np.exp(u), d) - log_delta
    u = u + 0.1
    for k in range(_MOST_STEPS):
        now = log_delta_at(epsilon, np.exp(u), d) - log_delta
        low, high = np.where(now < 0, u, low), np.where(now > 0, u, high)
        moves = (now != missing) & (u != before) & np.isfinite(now) & np.isfinite(missing)
        with np.errstate(invalid="ignore"):  # delta may underflow
            secant = u - now * (u - before) / np.where(moves, now - missing, 1.0)
        slow = (k % 3 == 2) & (np.abs(now) > 0.1 * np.minimum(np.abs(log_delta), 1.0))  # where delta is nearly 1
        inside = moves & (low < secant) & (secant < high) & ~slow
        after = np.where(now == 0, u, np.where(inside, secant, (low + high) / 2))
        after = np.where((np.abs(after - u) < 1e-12) | (high - low < 1e-12), u, after)
        if np.all(after == u):
            break
        before, missing, u = u, now, after
    return u


def _dimension(d: ArrayLike) -> Array:
    """Check that all numbers of coordinates in `d` are whole and from 1 to 1e6, and return them as float64."""
    d = between(1.0, 1e6, d=finite(d=d))
    if np.any(wrong := d != np.floor(d)):
        raise ValueError(f"d must be a whole number, got {float(d[wrong].flat[0])!r}")
    return d


@functools.lru_cache(maxsize=64)
def coordinate_quantile(tail: float, d: int) -> float:
    """Return the upper quantile of one coordinate of l2 noise, divided by the standard deviation of the coordinate.

    The coordinate exceeds this quantile with the probability `tail` < 1/2. The noise has `d` coordinates. For scale 1,
    one coordinate is a normal variable whose variance is random: it is twice a gamma variable of shape (d + 1) / 2.
    """
    shape = (d + 1) / 2
    logs = np.linspace(np.log(gammaincinv(shape, 1e-30)), np.log(gammainccinv(shape, tail * 1e-9)), 500)
    weights = np.exp(shape * logs - np.exp(logs) - gammaln(shape)) * (logs[1] - logs[0])
    std = np.sqrt(2 * np.exp(logs))

    def excess(x: float) -> float:
        return float(weights @ ndtr(-x / std)) - tail

    with np.errstate(under="ignore"):  # the caller may have switched this error on
        root: float = brentq(excess, 0.0, 40 * float(std[-1]), rtol=1e-12) if excess(0.0) > 0 else 0.0
    return root / math.sqrt(d + 1)
