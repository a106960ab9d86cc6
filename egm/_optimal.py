"""Compute the scaling of least noise, `egm.scaling.optimal`, by a fixed-point iteration with Anderson mixing."""

from __future__ import annotations

from collections import deque

import numpy as np
from scipy.optimize import brentq

from egm import gx2
from egm._types import Array, ArrayLike
from egm._validate import probability, scalar, vector

_WINDOW = 6  # iterates that the extrapolation uses
_LONGEST = 1.0  # largest correction of log w by the extrapolation
_SETTLED = 1e-20  # bound on log F above its minimum; then the shares agree within 1e-10, near the rounding of egm.gx2
_MOST_ROUNDS = 100


def optimal(sigma: ArrayLike, clip_probability: float) -> Array:
    r"""Compute the scaling that needs the least noise if a scaled row is clipped with a given probability.

    Parameters
    ----------
    sigma : array_like, shape (d,)
        Standard deviations of the columns, finite and > 0, in the units of the data.
    clip_probability : float
        Probability p with which a row may be longer than the clipping radius, strictly between 0
        and 1.

    Returns
    -------
    ndarray, shape (d,)
        The multipliers, in inverse units of the data, with :math:`\sum_j (b_j \sigma_j)^2 = 1`.
        Their ``noise_factor`` is never larger than that of ``expected_norm``.

    Raises
    ------
    ValueError
        If `sigma` or `clip_probability` are outside their ranges.

    See Also
    --------
    excess_bound : How far the noise factor of a scaling can be above its minimum.
    expected_norm : The scaling of Lemma 4.1, in closed form.
    noise_factor : The factor F that is minimized.

    Notes
    -----
    The scaling minimizes :math:`F = q \sum_j b_j^{-2}`. Here q, the squared clipping radius, is the
    upper quantile of :math:`Q = \sum_j w_j Z_j^2` for the clip probability, with
    :math:`w = (b \sigma)^2` and independent standard normal :math:`Z_j`. As a function of w it has
    the derivatives :math:`\partial q / \partial w_j = E[Z_j^2 \mid Q = q] =: g_j`, so F is
    stationary where :math:`w_j` is proportional to :math:`\sigma_j / \sqrt{g_j}`. Lemma 4.1 of
    Poulsen's report (2023) is this condition with :math:`g = 1`.

    Such a point is the only minimum. By Prékopa's theorem [1]_ the logarithm of q is a convex
    function of :math:`\log w`. And :math:`\log \sum_j \sigma_j^2 / w_j` is strictly convex in
    :math:`\log w`, except in the direction in which all w are multiplied by a common factor, which
    does not change F. The iteration stops when `excess_bound` proves that :math:`\log F` is within
    1e-20 of its minimum, or after 100 rounds. A double can show such a small bound, because the
    bound is computed as the sum of squares of small numbers.

    References
    ----------
    .. [1] Prékopa (1973), "On logarithmic concave measures and functions".

    Examples
    --------
    >>> from egm import scaling
    >>> sigma, n = [18, 1200, 3], 10_000  # age, income, visits; rows
    >>> scaling.optimal(sigma, clip_probability=1 / n).round(4)
    array([0.0128, 0.0008, 0.0318])
    """
    sigma, p = vector(sigma=sigma), scalar(probability, clip_probability=clip_probability)
    share = sigma / np.sum(sigma)
    log_weights, best = np.log(share), (np.inf, share)
    iterates: deque[Array] = deque(maxlen=_WINDOW)
    residuals: deque[Array] = deque(maxlen=_WINDOW)
    for _ in range(_MOST_ROUNDS):
        weights = np.exp(log_weights)
        weights /= np.sum(weights)
        quantile = gx2.isf(p, weights)
        pull = gx2.conditional_means(quantile, weights)
        noise = share * (share / weights)
        factor = quantile * np.sum(noise)
        best = min(best, (factor, weights), key=lambda pair: pair[0])
        if excess_of_shares((weights / share) ** 2 * pull * np.sum(noise) / quantile, noise / np.sum(noise)) < _SETTLED:
            return np.sqrt(weights) / sigma
        iterates.append(np.log(weights))
        residuals.append(np.log(_stationary(share, weights, pull) / weights))
        log_weights = _extrapolated(iterates, residuals)
    return np.sqrt(best[1]) / sigma


def excess_of_shares(ratio: Array, noise_share: Array) -> float:
    """Compute the bound of `excess_bound` from each coordinate's shares in the noise and in the squared norm.

    `noise_share` has the share of each coordinate in the variance of the noise. `ratio` has the
    share of each coordinate in the squared norm, divided by the share in the noise. The bound is
    log(1 + chi-square divergence), which is not less than the Kullback-Leibler divergence, and does
    not suffer from cancellation when the shares agree to many digits.
    """
    return float(np.log1p(np.sum((np.sqrt(noise_share) * (ratio - 1)) ** 2)))


def _stationary(share: Array, weights: Array, pull: Array) -> Array:
    """Return weights w of sum 1 that approximately make the noise factor F stationary, by one step from `weights`.

    F is stationary if w_j is proportional to share_j / sqrt(g_j). Here `share` is ``sigma /
    sum(sigma)``, and g_j = E[Z_j^2 | Q = q] depends on w, with Q and q as in `optimal`; the array
    `pull` is g at the present `weights`. Given Q = q, coordinate Z_j is close to normal with
    variance ``1 / (1 - 2 w_j s_j)``, where s_j is chosen such that this variance is the present
    g_j. With s_j kept fixed, the condition becomes w_j**2 = a_j (1 - 2 w_j s_j) with a_j
    proportional to share_j**2. This equation is solved. The simpler iteration w = share / sqrt(g)
    would overshoot, because in a far tail g_j changes many times as much as w_j.
    """
    s = (1 - 1 / pull) / (2 * weights)

    def solve(log_scale: float) -> Array:
        root = np.exp(log_scale) * share
        pulled = root * s
        height = np.hypot(pulled, 1)
        return root * np.where(s > 0, 1 / (height + np.abs(pulled)), height - pulled)

    weights = solve(brentq(lambda u: np.sum(solve(u)) - 1, -50, 50, xtol=1e-15))
    return weights / np.sum(weights)


def _extrapolated(iterates: deque[Array], residuals: deque[Array]) -> Array:
    """Return the next iterate of log w by Anderson mixing, or by a plain step if the mixing moves too far.

    `iterates` has the last values of log w. Each entry of `residuals` is the change from an iterate
    to the logarithm of the weights that `_stationary` computes from this iterate. A plain step adds
    the last residual to the last iterate. The mixing is the combination of the last iterates whose
    residuals nearly cancel, plus the residual that remains. Far from the solution such a
    combination can lie anywhere. So the plain step is returned if the mixing differs from it by
    `_LONGEST` or more in some coordinate.
    """
    plain = iterates[-1] + residuals[-1]
    moves, changes = np.diff(iterates, axis=0), np.diff(residuals, axis=0)
    combination = np.linalg.lstsq(changes.T, residuals[-1], rcond=1e-8)[0]
    correction = (moves + changes).T @ combination
    return plain - correction if np.max(np.abs(correction)) < _LONGEST else plain
