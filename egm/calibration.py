"""How much Gaussian noise (epsilon, delta)-differential privacy needs, exactly.

The noise multiplier z is the standard deviation of the noise for a query of l2-sensitivity 1. The privacy loss of the
Gaussian mechanism is itself normal, L ~ N(1/(2 z^2), 1/z^2), and the mechanism is (epsilon, delta)-private if and
only if

    delta >= E[max(0, 1 - exp(epsilon - L))]
           = Phi(1/(2z) - epsilon z) - exp(epsilon) Phi(-1/(2z) - epsilon z)          (Balle and Wang 2018, Theorem 8).

The second line is how the curve is usually computed, and where digits go: for small epsilon it subtracts nearly equal
numbers. The first line, written with L = epsilon + r/z, is an integral of positive terms in which nothing cancels,

    delta = int_0^inf phi(r - a) (1 - exp(-r/z)) dr,      a = 1/(2z) - epsilon z,

and one Gauss-Legendre rule takes it to fourteen digits for every epsilon, however far the tail.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import overload

import numpy as np
from scipy.optimize import elementwise
from scipy.special import ndtri, roots_legendre

from egm._types import Array, ArrayLike, Floats
from egm._validate import between, nonnegative, positive, probability

__all__ = [
    "analytic_noise_multiplier",
    "classic_noise_multiplier",
    "gaussian_delta",
    "gaussian_epsilon",
    "zcdp_epsilon",
    "zcdp_noise_multiplier",
    "zcdp_rho",
]

# Beyond |r - a| = REACH the integrand is below exp(-40) of its largest value, under the last digit of a double.
_REACH = np.sqrt(80.0)
_NODES, _WEIGHTS = roots_legendre(96)

# One step towards privacy. The curve is computed to a few units of 1e-15, so one step is enough for nearly every input.
_STEP = 1 + 8e-15
_TOLERANCES = {"xatol": 0.0, "xrtol": 4e-16, "fatol": 0.0, "frtol": 0.0}


@overload
def classic_noise_multiplier(epsilon: float, delta: float) -> float: ...
@overload
def classic_noise_multiplier(epsilon: ArrayLike, delta: ArrayLike) -> Array: ...
def classic_noise_multiplier(epsilon: ArrayLike, delta: ArrayLike) -> Floats:
    """The noise multiplier sqrt(2 ln(1.25/delta)) / epsilon, proved to suffice for epsilon < 1.

    epsilon: in (0, 1), any shape. delta: in (0, 1), broadcast with epsilon. Raises ValueError for epsilon >= 1, where
    the theorem promises nothing; above epsilon = 3.78 this noise can be too small. Call analytic_noise_multiplier
    there. Dwork and Roth (2014), Theorem 3.22.
    """
    epsilon, delta = positive(epsilon=epsilon), probability(delta=delta)
    if np.any(epsilon >= 1):
        raise ValueError(
            f"epsilon must be < 1 for the classic calibration, got {float(np.max(epsilon))!r}; "
            "use analytic_noise_multiplier, which is exact for every epsilon"
        )
    return (np.sqrt(2 * np.log(1.25 / delta)) / epsilon)[()]


@overload
def analytic_noise_multiplier(epsilon: float, delta: float) -> float: ...
@overload
def analytic_noise_multiplier(epsilon: ArrayLike, delta: ArrayLike) -> Array: ...
def analytic_noise_multiplier(epsilon: ArrayLike, delta: ArrayLike) -> Floats:
    """The smallest noise multiplier z that makes the Gaussian mechanism (epsilon, delta)-private: sigma_opt.

    epsilon: from 1e-100 to 1e100, any shape. delta: from 1e-300 and below 1, broadcast with epsilon. Within 1e-13 of
    the exact root, relative, and never below it: gaussian_delta(epsilon, z) <= delta. Raises ValueError outside these
    ranges. Balle and Wang (2018), Theorem 8.
    """
    epsilon, delta = between(1e-100, 1e100, epsilon=epsilon), probability(delta=delta)
    epsilon, delta = np.broadcast_arrays(epsilon, between(1e-300, 1.0, delta=delta))
    largest = np.log(_largest_noise_multiplier(epsilon, delta))
    args = (epsilon, np.log(delta))
    log_z = _decreasing_root(lambda u, e, target: _log_delta(e, np.exp(u)) - target, largest - 1, largest, args)
    z = np.exp(log_z) * _STEP
    while np.any(short := gaussian_delta(epsilon, z) > delta):
        z = np.where(short, z * _STEP, z)
    return z[()]


@overload
def gaussian_delta(epsilon: float, noise_multiplier: float) -> float: ...
@overload
def gaussian_delta(epsilon: ArrayLike, noise_multiplier: ArrayLike) -> Array: ...
def gaussian_delta(epsilon: ArrayLike, noise_multiplier: ArrayLike) -> Floats:
    """The smallest delta for which Gaussian noise is (epsilon, delta)-private: its privacy curve.

    epsilon: >= 0, any shape. noise_multiplier: > 0, broadcast with epsilon. Relative error below 1e-13 where the
    result is a normal double. Raises ValueError outside these ranges. Balle and Wang (2018), Theorem 8.
    """
    epsilon, z = np.broadcast_arrays(nonnegative(epsilon=epsilon), positive(noise_multiplier=noise_multiplier))
    return np.exp(np.minimum(_log_delta(epsilon, z), 0.0))[()]


@overload
def gaussian_epsilon(delta: float, noise_multiplier: float) -> float: ...
@overload
def gaussian_epsilon(delta: ArrayLike, noise_multiplier: ArrayLike) -> Array: ...
def gaussian_epsilon(delta: ArrayLike, noise_multiplier: ArrayLike) -> Floats:
    """The smallest epsilon >= 0 for which Gaussian noise is (epsilon, delta)-private: the inverse of gaussian_delta.

    delta: in (0, 1), any shape. noise_multiplier: > 0, broadcast with delta. Never below the exact value. Raises
    ValueError outside these ranges.
    """
    delta, z = np.broadcast_arrays(probability(delta=delta), positive(noise_multiplier=noise_multiplier))
    log_delta = np.log(delta)
    free = _log_delta(np.zeros_like(z), z) <= log_delta
    largest = np.where(free, 1.0, (np.maximum(-ndtri(delta), 0.0) + 0.5 / z) / z)
    root = _decreasing_root(
        lambda e, s, t, pinned: np.where(pinned, -e, _log_delta(np.maximum(e, 0.0), s) - t),
        np.zeros_like(largest),
        largest,
        (z, log_delta, free),
    )
    epsilon = np.where(free, 0.0, root * _STEP)
    while np.any(short := (gaussian_delta(epsilon, z) > delta) & ~free):
        epsilon = np.where(short, epsilon * _STEP, epsilon)
    return epsilon[()]


@overload
def zcdp_noise_multiplier(rho: float) -> float: ...
@overload
def zcdp_noise_multiplier(rho: ArrayLike) -> Array: ...
def zcdp_noise_multiplier(rho: ArrayLike) -> Floats:
    """The noise multiplier 1 / sqrt(2 rho) of rho-zero-concentrated differential privacy.

    rho: > 0, any shape. Raises ValueError otherwise. Bun and Steinke (2016), Proposition 1.6.
    """
    return (1 / np.sqrt(2 * positive(rho=rho)))[()]


@overload
def zcdp_epsilon(rho: float, delta: float) -> float: ...
@overload
def zcdp_epsilon(rho: ArrayLike, delta: ArrayLike) -> Array: ...
def zcdp_epsilon(rho: ArrayLike, delta: ArrayLike) -> Floats:
    """The epsilon for which every rho-zCDP mechanism is (epsilon, delta)-private, by the best known conversion.

    The minimum over alpha > 1 of rho alpha + (log(1/delta) - log(alpha - 1) + alpha log(1 - 1/alpha)) / (alpha - 1), or
    0 where that is negative. rho: > 0, any shape. delta: in (0, 1), broadcast with rho. Every alpha gives a valid
    epsilon, so rounding costs accuracy and never privacy. Raises ValueError outside these ranges. Canonne, Kamath and
    Steinke (2020), Corollary 13.
    """
    rho, delta = np.broadcast_arrays(positive(rho=rho), probability(delta=delta))
    start = 0.5 * np.log(np.maximum(-np.log(delta), 1e-3) / rho)
    least = _minimum(lambda u, r, t: r * (1 + np.exp(u)) + _conversion(u, t), start, (rho, np.log(delta)))
    return np.maximum(least * _STEP, 0.0)[()]


@overload
def zcdp_rho(epsilon: float, delta: float) -> float: ...
@overload
def zcdp_rho(epsilon: ArrayLike, delta: ArrayLike) -> Array: ...
def zcdp_rho(epsilon: ArrayLike, delta: ArrayLike) -> Floats:
    """The largest rho for which rho-zCDP is known to imply (epsilon, delta)-privacy: the inverse of zcdp_epsilon.

    epsilon: > 0, any shape. delta: in (0, 1), broadcast with epsilon. Never above the exact value. Raises ValueError
    outside these ranges.
    """
    epsilon, delta = np.broadcast_arrays(positive(epsilon=epsilon), probability(delta=delta))
    start = np.log(2 * np.maximum(-np.log(delta), 1e-3) / epsilon)
    least = _minimum(lambda u, e, t: (_conversion(u, t) - e) / (1 + np.exp(u)), start, (epsilon, np.log(delta)))
    return (-least / _STEP)[()]


def _conversion(u: Array, log_delta: Array) -> Array:
    """What delta adds to rho alpha in the conversion from zCDP, for alpha = 1 + exp(u)."""
    return (-log_delta - u - (1 + np.exp(u)) * np.log1p(np.exp(-u))) * np.exp(-u)


def _minimum(function: Callable[..., Array], start: Array, args: tuple[Array, ...]) -> Array:
    """The least value of a function with one minimum, elementwise."""
    found = elementwise.bracket_minimum(function, start, args=args)
    return elementwise.find_minimum(function, found.bracket, args=args).f_x


def _log_delta(epsilon: Floats, z: Floats) -> Array:
    """log of int_0^inf phi(r - a) (1 - exp(-r/z)) dr; for a < 0 the factor exp(-a^2/2) is kept out of the integral."""
    epsilon, z = (np.asarray(v, dtype=float)[..., None] for v in (epsilon, z))
    z = np.maximum(z, 1e-300)  # with so little noise delta is 1
    a = 0.5 / z - epsilon * z
    beyond, within = np.minimum(a, 0.0), np.maximum(a, 0.0)
    # In t = r - max(a, 0), so that nothing is lost where a is huge. The far end for a < 0 solves r (r - 2a) = 80,
    # written without the subtraction in which a far tail would lose it.
    near, far = -np.minimum(within, _REACH), 80 / (np.hypot(_REACH, beyond) - beyond)
    t = near + (far - near) * (1 + _NODES) / 2
    integrand = np.exp(-t * (t / 2 - beyond)) * -np.expm1(-np.minimum(within + t, 100 * z) / z)
    integral = np.sum(_WEIGHTS * integrand, axis=-1) * (far - near)[..., 0] / 2
    return np.log(integral) - 0.5 * np.log(2 * np.pi) - beyond[..., 0] ** 2 / 2


def _largest_noise_multiplier(epsilon: Array, delta: Array) -> Array:
    """A noise multiplier that is certainly enough: Phi(a) <= delta or 1 / (z sqrt(2 pi)) <= delta, whichever is
    smaller."""
    quantile = -ndtri(delta)
    root = np.hypot(quantile, np.sqrt(2 * epsilon))
    by_tail = np.where(quantile > 0, (quantile + root) / (2 * epsilon), 1 / (root - np.minimum(quantile, 0.0)))
    return np.minimum(by_tail, 1 / (np.sqrt(2 * np.pi) * delta)) * (1 + 1e-12)


def _decreasing_root(function: Callable[..., Array], left: Array, right: Array, args: tuple[Array, ...]) -> Array:
    """The root of a decreasing function with function(right) <= 0, elementwise; `left` is moved down until it
    brackets."""
    bracket = elementwise.bracket_root(function, left, right, xmax=right, args=args).bracket
    return elementwise.find_root(function, bracket, args=args, tolerances=_TOLERANCES).x
