"""Find the clip region and the scaling for which the expected error of a noisy sum of normal rows is least.

A mechanism with the scaling b and the clip norm C shortens rows to an ellipsoid whose semi-axes are C / b. The expected
error depends on b and C only through the semi-axes, and is a strictly convex function of them (chapter 15 of the book).
So it has one minimum, and its gradient at a point bounds how far the error at this point is above the minimum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy.optimize import minimize

from egm._gx2.clipping import loss_and_slopes
from egm._lost import CERTAIN
from egm._types import Array

_FLAT = 1e-5  # largest entry of the scaled gradient at which the search ends
_REACH = 3.0  # largest change of the logarithm of a semi-axis in one search
_SEARCHES, _LITTLE = 6, 1e-8  # largest number of searches, and gain below which no further one is made
_LEAST_NORM = 1e-3  # least clip norm, divided by a row's typical norm, as in egm.forecast.best_clip_norm


def error_and_slopes(
    axes: Array, sigma: Array, n: int, offset: Array, factors: Sequence[float] = (1.0,)
) -> tuple[float, Array]:
    """Compute the expected squared error due to clipping, and its derivatives with respect to the logs of semi-axes.

    The `n` rows are clipped to the ellipsoid with the semi-axes `axes`, shape (d,). The error is the sum of the two
    results of `egm.forecast.clipping`, averaged over the numbers f in `factors`, for normal rows with the standard
    deviations f * `sigma`. `offset`, >= 0, is the mean of the rows minus the center of the ellipsoid.
    """
    error, slopes = 0.0, np.zeros(axes.size)
    for factor in factors:
        spread = np.maximum(factor * sigma, offset / CERTAIN)  # as in `lost_of_a_row`
        weights = (spread / axes) ** 2
        largest = np.max(weights)
        seen = weights > 1e-300 * largest
        part = (np.broadcast_to(v, axes.shape)[seen] for v in (weights / largest, spread, offset))
        weights, spread, shift = part
        by_square, by_mean = n * spread**2, (n * (n - 1.0)) * shift**2
        lost, by_weight = loss_and_slopes(1 / largest, weights, (shift / spread) ** 2, by_square, by_mean)
        error += lost / len(factors)
        slopes[seen] -= 2 * by_weight / len(factors)
    return error, slopes


def best_axes(
    noise: Callable[[Array], tuple[float, float]],
    start: Array,
    sigma: Array,
    n: int,
    offset: Array,
    factors: Sequence[float] = (1.0,),
) -> Array:
    """Find the semi-axes of the ellipsoid to which rows are clipped for the least expected squared error.

    ``noise(axes)`` returns the total variance of the noise, and its derivative with respect to the sum of the squared
    semi-axes. The search begins at the semi-axes `start`; the result never has a larger error than these. The other
    arguments are those of `egm.forecast.clipping`: the number `n` of rows, their standard deviations `sigma`, the
    `offset` of the mean from the center, and numbers `factors`. The error is averaged over rows with the standard
    deviations factor * `sigma`.

    The search is a quasi-Newton method for the coordinates p_j log a_j, where a_j are the semi-axes and p_j is a_j /
    ||a|| at the start. In these coordinates the variance of the noise is equally curved in every direction. There are
    at most six searches, each from the result of the one before; a search that gains nearly nothing is the last one.
    """
    axes, gain = start, 1.0
    for _ in range(_SEARCHES):
        if gain < _LITTLE:
            break
        changes, gain = _descended(noise, axes, sigma, n, offset, factors)
        axes = axes * np.exp(changes)
    return axes


def _descended(
    noise: Callable[[Array], tuple[float, float]],
    start: Array,
    sigma: Array,
    n: int,
    offset: Array,
    factors: Sequence[float],
) -> tuple[Array, float]:
    """Search once, from `start`, for the ellipsoid of least expected squared error; rows are clipped to this ellipsoid.

    Return the changes of the logarithms of its semi-axes, shape (d,), and the relative decrease of the error.
    ``noise(axes)`` returns the total variance of the noise, and its derivative with respect to the sum of the squared
    semi-axes. Rows are normal: `n` is their number, factor * `sigma` are their standard deviations, each factor in
    `factors` with equal probability, and `offset` is the mean minus the center.
    """
    pace = start / np.linalg.norm(start)
    down = np.log(_LEAST_NORM * min(factors) * np.linalg.norm(sigma / start))

    def error(moves: Array) -> tuple[float, Array]:
        axes = start * np.exp(moves / pace)
        variance, price = noise(axes)
        lost, slopes = error_and_slopes(axes, sigma, n, offset, factors)
        return (variance + lost) / unit, (2 * price * axes**2 + slopes) / pace / unit

    unit = noise(start)[0] + error_and_slopes(start, sigma, n, offset, factors)[0]
    found = minimize(
        error,
        np.zeros(start.size),
        jac=True,
        method="L-BFGS-B",
        bounds=np.stack([np.clip(down, -_REACH, 0) * pace, _REACH * pace], axis=1),
        options={"gtol": _FLAT, "ftol": 0.0, "maxiter": 200},
    )
    return found.x / pace, 1 - found.fun
