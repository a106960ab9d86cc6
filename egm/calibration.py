r"""Compute exactly how much Gaussian noise is needed for (epsilon, delta)-differential privacy.

The noise multiplier z is the standard deviation of the noise for a query of l2-sensitivity 1. The
privacy curve gives the smallest delta for each epsilon. It is computed and inverted in
`egm/_curve.py`.

Notes
-----
The privacy loss of the Gaussian mechanism is itself normal, :math:`L \sim N(1/(2 z^2), 1/z^2)`, and
the mechanism is :math:`(\varepsilon, \delta)`-private if and only if

.. math::

    \delta &\geq E[\max(0, 1 - e^{\varepsilon - L})] \\
        &= \Phi\Bigl(\frac{1}{2z} - \varepsilon z\Bigr)
           - e^{\varepsilon} \, \Phi\Bigl(-\frac{1}{2z} - \varepsilon z\Bigr)

([1]_, Theorem 8), where :math:`\Phi` is the distribution function of the standard normal law and
:math:`\varphi` below is its density. For small :math:`\varepsilon` the second line loses digits by
cancellation. The first line, with :math:`L = \varepsilon + r/z`, is an integral of positive terms,
in which nothing cancels,

.. math::

    \delta = \int_0^\infty \varphi(r - a) \, (1 - e^{-r/z}) \, dr,
    \qquad a = \frac{1}{2z} - \varepsilon z.

One Gauss-Legendre rule computes this integral to fourteen digits for every :math:`\varepsilon`,
also far in the tail. The exception is :math:`z < 0.05`, where :math:`e^{-r/z}` falls too fast for
the rule. There the two terms of the second line are so different that their difference loses no
digits.

References
----------
.. [1] Balle and Wang (2018), "Improving the Gaussian Mechanism for Differential Privacy:
   Analytical Calibration and Optimal Denoising".
"""

from __future__ import annotations

from typing import overload

import numpy as np
from scipy.special import ndtri

from egm import _curve
from egm._certified import certify
from egm._l2 import l2_delta, l2_noise_scale
from egm._types import Array, ArrayLike, Floats
from egm._validate import between, nonnegative, positive, probability
from egm._zcdp import zcdp_epsilon, zcdp_noise_multiplier, zcdp_rho

__all__ = [
    "analytic_noise_multiplier",
    "certify",
    "classic_noise_multiplier",
    "gaussian_delta",
    "gaussian_epsilon",
    "l2_delta",
    "l2_noise_scale",
    "zcdp_epsilon",
    "zcdp_noise_multiplier",
    "zcdp_rho",
]

_LARGEST = 1e308  # a larger epsilon could not be rounded up
_SMALLEST = float(np.finfo(float).tiny)  # a slope that is smaller would have lost digits


@overload
def classic_noise_multiplier(epsilon: float, delta: float) -> float: ...
@overload
def classic_noise_multiplier(epsilon: ArrayLike, delta: ArrayLike) -> Array: ...
def classic_noise_multiplier(epsilon: ArrayLike, delta: ArrayLike) -> Floats:
    r"""Compute a noise multiplier by the classic theorem on the Gaussian mechanism, which holds for epsilon < 1.

    Parameters
    ----------
    epsilon : float or array_like
        Privacy parameter epsilon, strictly between 0 and 1.
    delta : float or array_like
        Privacy parameter delta, strictly between 0 and 1. It is broadcast with `epsilon`.

    Returns
    -------
    float or ndarray
        The noise multiplier :math:`\sqrt{2 \ln(1.25 / \delta)} / \varepsilon`, in the shape to
        which the arguments broadcast: the standard deviation of the noise for a query of
        l2-sensitivity 1.

    Raises
    ------
    ValueError
        If `epsilon` or `delta` are outside their ranges. For ``epsilon >= 1`` the theorem promises
        nothing, and the error message recommends `analytic_noise_multiplier` instead.

    See Also
    --------
    analytic_noise_multiplier : The smallest sufficient noise multiplier, for every epsilon.

    Notes
    -----
    The Gaussian mechanism with this noise multiplier is (epsilon, delta)-differentially private for
    epsilon < 1 ([1]_, Theorem 3.22). Above epsilon = 3.78 noise by this formula can be too small.

    References
    ----------
    .. [1] Dwork and Roth (2014), "The Algorithmic Foundations of Differential Privacy".

    Examples
    --------
    >>> from egm import calibration
    >>> round(float(calibration.classic_noise_multiplier(0.5, 1e-6)), 4)
    10.5976
    >>> round(float(calibration.analytic_noise_multiplier(0.5, 1e-6)), 4)
    8.0576
    """
    epsilon, delta = positive(epsilon=epsilon), probability(delta=delta)
    if np.any(epsilon >= 1):
        raise ValueError(
            f"epsilon must be < 1 for the classic calibration, got {float(np.max(epsilon))!r}; "
            "use analytic_noise_multiplier, which is exact for every epsilon"
        )
    return (np.sqrt(2 * (np.log(1.25) - np.log(delta))) / epsilon)[()]  # 1.25 / delta could overflow


@overload
def analytic_noise_multiplier(epsilon: float, delta: float) -> float: ...
@overload
def analytic_noise_multiplier(epsilon: ArrayLike, delta: ArrayLike) -> Array: ...
def analytic_noise_multiplier(epsilon: ArrayLike, delta: ArrayLike) -> Floats:
    r"""Compute the smallest noise multiplier that makes Gaussian noise (epsilon, delta)-private.

    Poulsen's report (2023) calls this noise multiplier :math:`\sigma_\mathrm{opt}`.

    Parameters
    ----------
    epsilon : float or array_like
        Privacy parameter epsilon, from 1e-100 to 1e100.
    delta : float or array_like
        Privacy parameter delta, at least 1e-300 and below 1. It is broadcast with `epsilon`.

    Returns
    -------
    float or ndarray
        The noise multiplier z, the standard deviation of the noise for a query of l2-sensitivity 1,
        in the shape to which the arguments broadcast. It is never below the exact smallest
        noise multiplier, and for ``delta <= 0.9`` it is above this number by a factor of at most
        1 + 1e-13. For a delta above ``1 - 1e-12``, which promises almost nothing, the result is the
        noise multiplier for ``delta = 1 - 1e-12``.

    Raises
    ------
    ValueError
        If `epsilon` or `delta` are outside their ranges.

    See Also
    --------
    gaussian_delta : The privacy curve, which this function inverts.

    Notes
    -----
    The Gaussian mechanism with this noise multiplier is (epsilon, delta)-differentially private,
    and with a smaller one it is not ([1]_, Theorem 8). The result is rounded up, so that
    ``gaussian_delta(epsilon, z) <= delta``.

    References
    ----------
    .. [1] Balle and Wang (2018), "Improving the Gaussian Mechanism for Differential Privacy:
       Analytical Calibration and Optimal Denoising".

    Examples
    --------
    >>> from egm import calibration
    >>> z = calibration.analytic_noise_multiplier(epsilon=1, delta=1e-6)
    >>> round(float(z), 4)
    4.2247
    """
    epsilon, delta = between(1e-100, 1e100, epsilon=epsilon), probability(delta=delta)
    epsilon, delta = np.broadcast_arrays(epsilon, np.minimum(between(1e-300, 1.0, delta=delta), _curve.LARGEST_DELTA))
    wanted = delta * _curve.SURE
    largest, args = np.log(_curve.largest_noise_multiplier(epsilon, wanted)), (epsilon, np.log(wanted))
    log_z = _curve.root_of(lambda u, e, target: _curve.log_delta_at(e, np.exp(u)) - target, largest - 1, largest, args)
    z = np.exp(log_z) * _curve.STEP
    while np.any(short := gaussian_delta(epsilon, z) > wanted):
        z = np.where(short, z * _curve.STEP, z)
    return z[()]


@overload
def gaussian_delta(epsilon: float, noise_multiplier: float) -> float: ...
@overload
def gaussian_delta(epsilon: ArrayLike, noise_multiplier: ArrayLike) -> Array: ...
def gaussian_delta(epsilon: ArrayLike, noise_multiplier: ArrayLike) -> Floats:
    """Compute the privacy curve of Gaussian noise: the smallest delta for each epsilon.

    Parameters
    ----------
    epsilon : float or array_like
        Privacy parameter epsilon, finite and >= 0.
    noise_multiplier : float or array_like
        Standard deviation of the noise for a query of l2-sensitivity 1, finite and > 0. It is
        broadcast with `epsilon`.

    Returns
    -------
    float or ndarray
        The smallest delta for which the noise is (epsilon, delta)-private, in the shape to which
        the arguments broadcast. The relative error of the result is below 1e-13, unless the result
        is a subnormal double.

    Raises
    ------
    ValueError
        If `epsilon` or `noise_multiplier` are outside their ranges.

    See Also
    --------
    gaussian_epsilon : The inverse in epsilon.
    analytic_noise_multiplier : The inverse in the noise multiplier.

    Notes
    -----
    The Gaussian mechanism with this noise multiplier is (epsilon, delta)-differentially private if
    and only if delta is at least the exact value of this curve ([1]_, Theorem 8).

    References
    ----------
    .. [1] Balle and Wang (2018), "Improving the Gaussian Mechanism for Differential Privacy:
       Analytical Calibration and Optimal Denoising".

    Examples
    --------
    >>> from egm import calibration
    >>> f"{calibration.gaussian_delta(epsilon=1, noise_multiplier=4.0):.4e}"
    '2.9243e-06'
    """
    epsilon, z = np.broadcast_arrays(nonnegative(epsilon=epsilon), positive(noise_multiplier=noise_multiplier))
    integral, square, rest = _curve.curve_at(epsilon, z)
    return np.minimum(integral * np.exp(-square / 2) * np.exp(-rest / 2), 1.0)[()]


@overload
def gaussian_epsilon(delta: float, noise_multiplier: float) -> float: ...
@overload
def gaussian_epsilon(delta: ArrayLike, noise_multiplier: ArrayLike) -> Array: ...
def gaussian_epsilon(delta: ArrayLike, noise_multiplier: ArrayLike) -> Floats:
    """Compute the smallest epsilon >= 0 for which Gaussian noise is (epsilon, delta)-private.

    Parameters
    ----------
    delta : float or array_like
        Privacy parameter delta, strictly between 0 and 1.
    noise_multiplier : float or array_like
        Standard deviation of the noise for a query of l2-sensitivity 1, finite and > 0. It is
        broadcast with `delta`.

    Returns
    -------
    float or ndarray
        The epsilon, in the shape to which the arguments broadcast. It is never below the exact
        value, and infinite where that is above 1e308.

    Raises
    ------
    ValueError
        If `delta` or `noise_multiplier` are outside their ranges.

    See Also
    --------
    gaussian_delta : The privacy curve, which this function inverts.

    Notes
    -----
    The Gaussian mechanism with this noise multiplier is (epsilon, delta)-differentially private for
    this epsilon ([1]_, Theorem 8).

    References
    ----------
    .. [1] Balle and Wang (2018), "Improving the Gaussian Mechanism for Differential Privacy:
       Analytical Calibration and Optimal Denoising".

    Examples
    --------
    >>> from egm import calibration
    >>> round(float(calibration.gaussian_epsilon(delta=1e-6, noise_multiplier=4.0)), 4)
    1.0607
    """
    delta, z = np.broadcast_arrays(probability(delta=delta), positive(noise_multiplier=noise_multiplier))
    wanted: Array = delta * _curve.SURE
    log_delta = np.log(wanted)
    free = gaussian_delta(0.0, z) <= wanted
    with np.errstate(over="ignore"):
        largest = (np.maximum(-ndtri(wanted), 0.0) + 0.5 / z) / z * _curve.margin_below(wanted)
    beyond, free = (largest > _LARGEST) & ~free, free | (largest > _LARGEST)
    largest = np.where(free, _curve.margin_below(wanted), largest)
    root = _curve.root_of(
        lambda e, s, t, pinned: np.where(pinned, -e, _curve.log_delta_at(np.maximum(e, 0.0), s) - t),
        np.zeros_like(largest),
        largest,
        (z, log_delta, free),
    )
    epsilon = np.where(free, 0.0, root * _curve.STEP)
    while np.any(short := ((over := gaussian_delta(epsilon, z) - wanted) > 0) & ~free):
        # Newton's step from the left of the root of a convex function does not go beyond the root.
        newton = epsilon + np.maximum(over, 0.0) / np.maximum(_curve.slope_at(epsilon, z), _SMALLEST)
        epsilon = np.where(short, np.maximum(newton, epsilon * _curve.STEP), epsilon)
    return np.where(beyond, np.inf, epsilon)[()]
