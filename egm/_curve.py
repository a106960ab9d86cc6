"""Compute the privacy curve of Gaussian noise, its inverse, and a conversion of privacy parameters.

The noise multiplier z is the standard deviation of Gaussian noise for a query of l2-sensitivity 1.
The privacy curve of z gives, for each epsilon, the smallest delta for which this noise is (epsilon,
delta)-private. The conversion is from rho of zero-concentrated differential privacy (zCDP) to
epsilon. Results are rounded such that they never promise more privacy than there is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import elementwise
from scipy.special import erfcx, ndtr, ndtri, roots_legendre

from egm._types import Array, Floats

# Beyond |r - a| = REACH the integrand is below exp(-40) of its largest value, under the last digit of a double.
_REACH = np.sqrt(80.0)
_NODES, _WEIGHTS = roots_legendre(96)
_FAR = 40.0  # beyond it phi(a) is not a double any more, and neither is delta
_THIN = 0.05  # noise multiplier below which `_two_terms` is used: below 0.02 the rule does not resolve exp(-r/z)

# One step towards privacy. The curve is computed to a few units of 1e-15, so one step is enough for nearly every input.
STEP = 1 + 8e-15
SURE = 1 - 1e-14  # the computed delta is kept below this share of the allowed one, as it has relative errors of 9e-15
ROUNDINGS = 2e-15  # largest relative rounding error of a sum of terms > 0, each of a few operations
LARGEST_DELTA = 1 - 1e-12  # above it the curve, which is a double, cannot tell one delta from the next
_TOLERANCES = {"xatol": 0.0, "xrtol": 4e-16, "fatol": 0.0, "frtol": 0.0}


def conversion(u: Array, log_delta: Array) -> tuple[Array, Array]:
    """Compute the two terms (gain, loss) of the epsilon that rho-zCDP implies at the Rényi order alpha = 1 + exp(u).

    A rho-zCDP mechanism is (epsilon, delta)-private with ``epsilon = rho alpha + loss - gain``, for each alpha > 1 (see
    `egm.calibration.zcdp_epsilon`). `log_delta` is the logarithm of delta. The gain is (1 + exp(-u)) log(1 + exp(u)) -
    u, computed as a sum of terms >= 0, and the loss is -log(delta) exp(-u).
    """
    small = np.exp(-u)
    gain = np.where(u > 0, np.maximum(u, 0.0) * small, -u) + (1 + small) * np.log1p(np.exp(-np.abs(u)))
    return gain, -log_delta * small


def least_of(function: Callable[..., Array], start: Array, args: tuple[Array, ...]) -> Array:
    """Find the minimizer of a function that has a single minimum, for each element of the arrays in `args`.

    ``function(u, *args)`` is minimized over u, element by element. The search begins at the array `start`. Where the
    search fails because the function overflows, the result is `start`.
    """
    with np.errstate(invalid="ignore", under="ignore"):  # the caller may have switched these errors on
        found = elementwise.bracket_minimum(function, start, args=args)
        least = elementwise.find_minimum(function, found.bracket, args=args).x
    return np.where(np.isfinite(least), least, start)


def log_delta_at(epsilon: Floats, z: Floats) -> Array:
    """Compute the logarithm of the smallest delta for which Gaussian noise is (epsilon, delta)-private, as an array.

    The noise multiplier `z` is the standard deviation of the noise for a query of sensitivity 1.
    """
    integral, square, rest = curve_at(epsilon, z)
    with np.errstate(divide="ignore"):  # the integral underflows for more noise than 1e150
        return np.log(integral) - square / 2 - rest / 2


def curve_at(epsilon: Floats, z: Floats) -> tuple[Array, Array, Array]:
    """Compute the smallest delta at which Gaussian noise is (epsilon, delta)-private, in parts that do not underflow.

    The result is a triple of arrays (integral, square, rest), and delta is ``integral * exp(-(square + rest) / 2)``.

    The noise multiplier `z` is the standard deviation of the noise for a query of sensitivity 1. With a = 1/(2z) -
    epsilon z and the standard normal density phi, delta is the integral of ``phi(r - a) (1 - exp(-r/z))`` over r > 0.
    For a >= 0 the first result is this integral, and the others are 0. For a < 0 the factor exp(-a^2/2) is taken out of
    the integral: `square` is a double near a^2, and `rest` the small difference (0 for a < -40).
    """
    epsilon, z = (np.asarray(v, dtype=float)[..., None] for v in (epsilon, z))
    z = np.maximum(z, 1e-300)  # with so little noise delta is 1
    a, lacking = _exponent(epsilon, z)
    beyond, within = np.minimum(a, 0.0), np.maximum(a, 0.0)
    # In t = r - max(a, 0), so that nothing is lost where a is huge. The far end for a < 0 solves r (r - 2a) = 80,
    # written without the subtraction in which a far tail would lose it.
    near, far = -np.minimum(within, _REACH), 80 / (np.hypot(_REACH, beyond) - beyond)
    t = near + (far - near) * (1 + _NODES) / 2
    integrand = np.exp(-t * (t / 2 - beyond)) * -np.expm1(-np.minimum(within + t, 100 * np.minimum(z, 1e306)) / z)
    integral = np.sum(_WEIGHTS * integrand, axis=-1) * (far - near)[..., 0] / 2
    terms = _two_terms(a, 0.5 / z + np.minimum(epsilon, 1e300) * np.minimum(z, 1.0))
    integral = np.where((z < _THIN) & (a > -_FAR), terms, integral[..., None])[..., 0]
    square, rest = product(beyond, beyond)
    rest = np.where(beyond > -_FAR, rest + 2 * np.maximum(beyond, -_FAR) * lacking, 0.0)
    return integral / np.sqrt(2 * np.pi), square[..., 0], rest[..., 0]


def slope_at(epsilon: Array, z: Array) -> Array:
    """Compute the absolute value of the derivative of the smallest delta of Gaussian noise with respect to `epsilon`.

    With the noise multiplier `z`, a = 1/(2z) - epsilon z and b = 1/(2z) + epsilon z, this is ``exp(epsilon) Phi(-b)``,
    which is ``phi(a) Phi(-b) / phi(b)``, for the standard normal distribution function Phi and density phi.
    """
    a, b = 0.5 / z - epsilon * z, 0.5 / z + epsilon * z
    return np.exp(-(np.minimum(np.abs(a), 100.0) ** 2) / 2) * erfcx(b / np.sqrt(2)) / 2


def _two_terms(a: Array, b: Array) -> Array:
    """Compute the smallest delta of Gaussian noise, times a factor, as a difference of two normal probabilities.

    For the noise multiplier z, `a` is 1/(2z) - epsilon z, and `b` is 1/(2z) + epsilon z. Then delta
    is ``Phi(a) - exp(epsilon) Phi(-b)``, where Phi is the standard normal distribution function.
    The result is sqrt(2 pi) delta for a >= 0, and sqrt(2 pi) delta / exp(-a^2/2) for a < 0.
    """
    one, other = (np.sqrt(np.pi / 2) * erfcx(np.maximum(x, 0.0) / np.sqrt(2)) for x in (-a, b))  # Phi(-x) / phi(x)
    height = np.exp(-(np.minimum(np.abs(a), 100.0) ** 2) / 2)
    return np.where(a < 0, one - other, np.sqrt(2 * np.pi) * ndtr(a) - height * other)


def _exponent(epsilon: Array, z: Array) -> tuple[Array, Array]:
    """Compute a = 1/(2z) - epsilon z as the sum of two doubles, and return both, the larger one first.

    `z` is a noise multiplier. The second double is needed because in a far tail even the first digits of exp(-a^2/2)
    depend on the last digits of a.
    """
    one, (back, lost) = 0.5 / z, product(0.5 / z, z)
    other, rounding = product(epsilon, z)
    with np.errstate(invalid="ignore", over="ignore"):
        near = one - other
        change = near - one
        lacking = (one - (near - change)) - (other + change) + ((0.5 - back) - lost) / z - rounding
        lacking = np.where(np.isfinite(lacking), lacking, 0.0)
        a = np.maximum(near + lacking, -1e150)
        return a, np.where(np.isfinite(a) & (a > -1e150), (near - a) + lacking, 0.0)


def product(x: Array, y: Array) -> tuple[Array, Array]:
    """Return the rounded product of `x` and `y`, and its rounding error (Dekker 1971), which is 0 after an overflow."""
    with np.errstate(over="ignore", invalid="ignore"):
        product = x * y
        (x, x_rest), (y, y_rest) = ((high := 134217729.0 * v - (134217729.0 * v - v), v - high) for v in (x, y))
        rest = x * y - product + x * y_rest + x_rest * y + x_rest * y_rest
    return product, np.where(np.isfinite(rest), rest, 0.0)


def largest_noise_multiplier(epsilon: Array, delta: Array) -> Array:
    """Return a noise multiplier that suffices for (epsilon, delta)-privacy, from which to search for a smaller one.

    Each of two conditions alone suffices: Phi(1/(2z) - epsilon z) <= delta, with the normal distribution function Phi;
    or 1 / (z sqrt(2 pi)) <= delta. For each condition there is a z with equality; the result is the smaller of the two,
    times `margin_below(delta)`, a factor slightly above 1 that allows for rounding errors.
    """
    quantile = -ndtri(delta)
    root = np.hypot(quantile, np.sqrt(2 * epsilon))
    by_tail = np.where(quantile > 0, (quantile + root) / (2 * epsilon), 1 / (root - np.minimum(quantile, 0.0)))
    return np.minimum(by_tail, 1 / (np.sqrt(2 * np.pi) * delta)) * margin_below(delta)


def margin_below(delta: Array) -> Array:
    """Return a factor > 1 that makes a noise multiplier or an epsilon for `delta` large enough despite rounding errors.

    The factor grows as `delta` approaches 1, because a computed delta near 1 has few correct digits of 1 - delta.
    """
    return 1 + 1e-12 + 1e-15 / (1 - delta)


def root_of(function: Callable[..., Array], left: Array, right: Array, args: tuple[Any, ...]) -> Array:
    """Find the root u of a decreasing function, for each element of the arrays `left`, `right` and those in `args`.

    ``function(u, *args)`` works element by element, and must not be positive at `right`. The search moves `left` down
    until the root lies between `left` and `right`.
    """
    with np.errstate(over="ignore"):
        bracket = elementwise.bracket_root(function, left, right, xmax=right, args=args).bracket
        return elementwise.find_root(function, bracket, args=args, tolerances=_TOLERANCES).x
