"""Convert zero-concentrated differential privacy (zCDP) to a noise multiplier and to (epsilon, delta), and back."""

from __future__ import annotations

from typing import overload

import numpy as np

from egm import _curve
from egm._types import Array, ArrayLike, Floats
from egm._validate import positive, probability

_MOST = 5e307  # largest epsilon that is converted: sums of a few terms of its size are doubles


@overload
def zcdp_noise_multiplier(rho: float) -> float: ...
@overload
def zcdp_noise_multiplier(rho: ArrayLike) -> Array: ...
def zcdp_noise_multiplier(rho: ArrayLike) -> Floats:
    r"""Compute the noise multiplier that makes Gaussian noise rho-zero-concentrated differentially private.

    Parameters
    ----------
    rho : float or array_like
        Privacy parameter rho, finite and > 0.

    Returns
    -------
    float or ndarray
        The noise multiplier :math:`1 / \sqrt{2 \rho}`, the standard deviation of the noise for a
        query of l2-sensitivity 1, in the shape of `rho`. It is never below the exact value.

    Raises
    ------
    ValueError
        If `rho` is outside its range.

    Notes
    -----
    The Gaussian mechanism with this noise multiplier is rho-zero-concentrated differentially
    private ([1]_, Proposition 1.6).

    References
    ----------
    .. [1] Bun and Steinke (2016), "Concentrated Differential Privacy: Simplifications, Extensions, and
       Lower Bounds".

    Examples
    --------
    >>> from egm import calibration
    >>> round(float(calibration.zcdp_noise_multiplier(0.02)), 4)
    5.0
    """
    least = 1 / np.sqrt(2 * np.minimum(positive(rho=rho), 8e307))  # more noise than needed beyond
    return (least * (1 + 2.0**-51))[()]


@overload
def zcdp_epsilon(rho: float, delta: float) -> float: ...
@overload
def zcdp_epsilon(rho: ArrayLike, delta: ArrayLike) -> Array: ...
def zcdp_epsilon(rho: ArrayLike, delta: ArrayLike) -> Floats:
    r"""Compute the epsilon for which every rho-zCDP mechanism is (epsilon, delta)-private.

    Parameters
    ----------
    rho : float or array_like
        Privacy parameter rho of zero-concentrated differential privacy (zCDP), finite and > 0.
    delta : float or array_like
        Privacy parameter delta, strictly between 0 and 1. It is broadcast with `rho`.

    Returns
    -------
    float or ndarray
        The epsilon, in the shape to which the arguments broadcast. It is never below the exact
        value of the formula in the Notes.

    Raises
    ------
    ValueError
        If `rho` or `delta` are outside their ranges.

    See Also
    --------
    zcdp_rho : The inverse function.

    Notes
    -----
    Every rho-zCDP mechanism is (epsilon, delta)-differentially private for this epsilon ([1]_,
    Corollary 13). The best conversion from a single order :math:`\alpha` [2]_ gives an epsilon that is
    smaller by one or two percent for rho = 0.02 and delta = 0.01, and by less than 1e-6 of itself
    for delta = 1e-6. The conversion is

    .. math::

        \varepsilon = \min_{\alpha > 1} \Bigl[ \rho \alpha + \frac{\log(1/\delta) - \log(\alpha - 1)
            + \alpha \log(1 - 1/\alpha)}{\alpha - 1} \Bigr],

    or 0 where this minimum is negative. Every :math:`\alpha` gives a valid epsilon, so the search
    for the minimum need not be exact. A bound on the rounding errors is added to the result.

    References
    ----------
    .. [1] Canonne, Kamath and Steinke (2020), "The Discrete Gaussian for Differential Privacy".
    .. [2] Asoodeh, Liao, Calmon, Kosut and Sankar (2021), "Three Variants of Differential Privacy:
       Lossless Conversion and Applications".

    Examples
    --------
    >>> from egm import calibration
    >>> round(float(calibration.zcdp_epsilon(rho=0.02, delta=1e-6)), 4)
    0.8999
    """
    rho, delta = np.broadcast_arrays(positive(rho=rho), probability(delta=delta))
    log_delta = np.log(delta)
    start = 0.5 * np.log(np.maximum(-log_delta, 1e-3) / np.maximum(rho, 1e-300))
    with np.errstate(over="ignore"):
        u = _curve.least_of(
            lambda u, r, t: r * (1 + np.exp(u)) - np.subtract(*_curve.conversion(u, t)), start, (rho, log_delta)
        )
        cost, (gain, loss) = rho * (1 + np.exp(u)), _curve.conversion(u, log_delta)
        return np.maximum(cost + loss - gain + _curve.ROUNDINGS * (cost + loss + gain), 0.0)[()]


@overload
def zcdp_rho(epsilon: float, delta: float) -> float: ...
@overload
def zcdp_rho(epsilon: ArrayLike, delta: ArrayLike) -> Array: ...
def zcdp_rho(epsilon: ArrayLike, delta: ArrayLike) -> Floats:
    """Compute the largest rho for which the conversion of `zcdp_epsilon` gives (epsilon, delta)-privacy.

    Parameters
    ----------
    epsilon : float or array_like
        Privacy parameter epsilon, finite and > 0.
    delta : float or array_like
        Privacy parameter delta, strictly between 0 and 1. It is broadcast with `epsilon`.

    Returns
    -------
    float or ndarray
        The rho of zero-concentrated differential privacy (zCDP), in the shape to which the
        arguments broadcast. It is never above the exact inverse of the formula of `zcdp_epsilon`. An
        epsilon above 5e307 has the same rho as 5e307. If both `epsilon` and `delta` are tiny, rho may
        underflow to 0, and a rho that is a subnormal double may be rounded up.

    Raises
    ------
    ValueError
        If `epsilon` or `delta` are outside their ranges.

    See Also
    --------
    zcdp_epsilon : The conversion, which this function inverts.

    Notes
    -----
    Every mechanism that is zCDP with this rho is (epsilon, delta)-differentially private ([1]_,
    Corollary 13).

    References
    ----------
    .. [1] Canonne, Kamath and Steinke (2020), "The Discrete Gaussian for Differential Privacy".

    Examples
    --------
    >>> from egm import calibration
    >>> round(float(calibration.zcdp_rho(epsilon=1, delta=1e-6)), 5)
    0.02436
    """
    epsilon, delta = np.broadcast_arrays(np.minimum(positive(epsilon=epsilon), _MOST), probability(delta=delta))
    log_delta = np.log(delta)
    start = np.log(2 * np.maximum(-log_delta, 1e-3) / np.maximum(epsilon, 1e-300))
    start = np.clip(start, -700, 1 - log_delta)  # exp(-start) is a double, and epsilon may be next to 0
    with np.errstate(over="ignore"):
        u = _curve.least_of(
            lambda u, e, t: -(e + np.subtract(*_curve.conversion(u, t))) / (1 + np.exp(u)),
            start,
            (epsilon, log_delta),
        )
        gain, loss = _curve.conversion(u, log_delta)
        return ((epsilon + gain - loss - _curve.ROUNDINGS * (epsilon + gain + loss)) / (1 + np.exp(u)) / _curve.STEP)[
            ()
        ]
