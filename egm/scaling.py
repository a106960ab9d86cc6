"""By what to multiply each coordinate before all of them get the same noise.

A mechanism that clips at radius C after multiplying coordinate j by b_j, and then adds noise of standard deviation
2 C sigma_opt to every coordinate, adds noise of total variance proportional to

    F(b) = q_p((b sigma)**2) * sum_j b_j**-2,      C**2 = q_p(w), the upper p-quantile of sum_j w_j Z_j**2.

F does not change when b is multiplied by a constant, so every scaling here is given the norm E||b x||**2 = 1.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from scipy.optimize import brentq

from egm import gx2
from egm._types import Array, ArrayLike
from egm._validate import nonnegative, probability, scalar, vector

__all__ = ["clip_norm", "elliptical", "expected_norm", "mean_deviation", "noise_factor", "optimal"]


def elliptical(sensitivities: ArrayLike) -> Array:
    """Theorem 3: b_j = sqrt(Delta_j / sum Delta), the best scaling of Algorithm 2, with ||b|| = 1.

    sensitivities: (d,), > 0, in the units of the data. Raises ValueError otherwise. Pagh and Lebeda (2022), Lemma 3.2.
    """
    sensitivities = vector(sensitivities=sensitivities)
    return np.sqrt(sensitivities / np.sum(sensitivities))


def expected_norm(sigma: ArrayLike) -> Array:
    """Lemma 4.1: b_j = 1 / sqrt(sigma_j sum sigma), the best scaling if the clipping radius did not depend on it.

    sigma: standard deviations (d,), > 0, in the units of the data. Returns b in inverse units, with sum (b sigma)**2
    = 1. Raises ValueError otherwise. Poulsen (2023), Lemma 4.1.
    """
    sigma = vector(sigma=sigma)
    return 1 / np.sqrt(sigma * np.sum(sigma))


def mean_deviation(sigma: ArrayLike, deviations: float) -> Array:
    """The best scaling if C**2 were the mean of ||b x||**2 plus k standard deviations, sum w + k sqrt(2 sum w**2).

    sigma: standard deviations (d,), > 0, in the units of the data. deviations: k >= 0, scalar. Returns b in inverse
    units, with sum w = sum (b sigma)**2 = 1. In v = k sqrt(2) w / ||w|| the minimum is where v_j**3 + v_j**2 = mu
    sigma_j**2, with the one mu for which ||v|| = k sqrt(2). So w is proportional to sigma for k = 0 (Lemma 4.1) and
    to sigma**(2/3) for k without bound. Chebyshev's inequality has k = p**-0.5, Lemma 4.2 has k = 2 sqrt(ln(1/p)).
    Raises ValueError outside these ranges.
    """
    sigma, k = vector(sigma=sigma), scalar(nonnegative, deviations=deviations)
    log_norm = np.log(np.sqrt(2) * np.clip(k, 1e-20, 1e150))  # of v; beyond either end nothing changes any more
    log_square = 2 * np.log(sigma / np.max(sigma))

    def solve(log_mu: float) -> Array:
        target = log_mu + log_square
        log_v = np.minimum(target / 2, target / 3)
        for _ in range(6):  # Newton: the left side is convex in log v, with a slope from 2 to 3
            v = np.exp(log_v)
            log_v = log_v - (2 * log_v + np.log1p(v) - target) / (2 + v / (1 + v))
        return np.exp(log_v)

    low = 2 * log_norm - np.log(np.sum(np.exp(log_square)))  # v <= sqrt(mu) sigma / max sigma
    high = 2 * log_norm + np.logaddexp(0, log_norm)  # mu for which the largest v alone has the norm
    v = solve(brentq(lambda u: np.log(np.linalg.norm(solve(u))) - log_norm, low - 1e-9, high + 1e-9, xtol=1e-14))
    return np.sqrt(v / np.sum(v)) / sigma


def clip_norm(b: ArrayLike, sigma: ArrayLike, clip_probability: float) -> float:
    """C, the radius that a row multiplied by b exceeds with the clip probability p: the square root of q_p((b
    sigma)**2).

    b and sigma: (d,), > 0, of the same length. clip_probability: scalar in (0, 1). In the units of b times the data.
    Raises ValueError otherwise. A coordinate 1e150 times narrower than the widest cannot be seen in C and is left
    out.
    """
    b, sigma, p = vector(b=b), vector(sigma=sigma), scalar(probability, clip_probability=clip_probability)
    if b.shape != sigma.shape:
        raise ValueError(f"b must have the {sigma.size} entries of sigma, got {b.size}")
    spread = b * sigma
    weights = (spread / np.max(spread)) ** 2
    return float(np.max(spread) * np.sqrt(gx2.isf(p, weights[weights > 0])))


def noise_factor(b: ArrayLike, sigma: ArrayLike, clip_probability: float) -> float:
    """F(b): the noise's total variance over (2 sigma_opt)**2, in squared units of the data. Arguments as for
    clip_norm."""
    return float(clip_norm(b, sigma, clip_probability) ** 2 * np.sum(vector(b=b) ** -2.0))


def optimal(sigma: ArrayLike, clip_probability: float) -> Array:
    """The scaling that minimises F, with the clipping radius that it causes taken into account.

    sigma: standard deviations (d,), > 0. clip_probability: p in (0, 1), scalar. Returns b with sum (b sigma)**2 = 1;
    never worse than expected_norm. In w = (b sigma)**2 the derivative of the quantile is dq/dw_j = E[Z_j**2 | Q = q]
    =: g_j, so F is stationary where w_j is proportional to sigma_j / sqrt(g_j). Lemma 4.1 is this condition with g =
    1. No other scaling is a minimum: log q is a convex function of log w by Prekopa's theorem (1973), and log sum_j
    sigma_j**2 / w_j is strictly convex but for a common factor of w. Raises ValueError outside these ranges.
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
        factor = quantile * np.sum(share**2 / weights)
        best = min(best, (factor, weights), key=lambda pair: pair[0])
        iterates.append(np.log(weights))
        residuals.append(np.log(_stationary(share, weights, gx2.conditional_means(quantile, weights)) / weights))
        if np.max(np.abs(residuals[-1])) < _SETTLED and factor <= best[0] * (1 + _ROUNDING):
            return np.sqrt(weights) / sigma
        log_weights = _extrapolated(iterates, residuals)
    return np.sqrt(best[1]) / sigma


def _stationary(share: Array, weights: Array, pull: Array) -> Array:
    """The w, of sum 1, with w_j proportional to share_j / sqrt(g_j(w_j)), for a model of each coordinate's pull g_j.

    Given Q = q a coordinate is close to normal with variance 1 / (1 - 2 w_j s), one s for all, so its own weight sets
    its pull; s_j is the s that reproduces g_j here. The condition becomes w_j**2 = a_j (1 - 2 w_j s_j), with a_j
    proportional to share_j**2. Iterating w = share / sqrt(g) instead would overshoot: in a far tail g_j moves many
    times as much as w_j.
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
    """Anderson's mixing: the combination of the last iterates whose residuals nearly cancel, plus what is left of them.

    Far from the end such a combination can lie anywhere, and the plain next iterate is taken instead.
    """
    plain = iterates[-1] + residuals[-1]
    moves, changes = np.diff(iterates, axis=0), np.diff(residuals, axis=0)
    combination = np.linalg.lstsq(changes.T, residuals[-1], rcond=1e-8)[0]
    correction = (moves + changes).T @ combination
    return plain - correction if np.max(np.abs(correction)) < _LONGEST else plain


_WINDOW = 6  # iterates that the extrapolation sees
_LONGEST = 1.0  # correction of log w that it may make
_SETTLED = 1e-9  # change of log w in one round; F is flat at its minimum and then within rounding of it
_ROUNDING = 1e-13  # relative, of F
_MOST_ROUNDS = 100
