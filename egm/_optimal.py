"""Compute the scaling of least noise, `egm.scaling.optimal`, by a fixed-point iteration with Anderson mixing.

The noise factor F is proportional to the total variance of the noise, and depends on the weights w_j = (b_j sigma_j)^2
of the scaling b and the standard deviations sigma of the columns. Q is the sum of w_j Z_j^2 for independent standard
normal Z_j, q is its upper p-quantile for the clip probability p, and g_j is E[Z_j^2 | Q = q]. F is least where w_j is
proportional to sigma_j / sqrt(g_j), and an iteration computes new weights from the g_j of the old ones.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.optimize import brentq

from egm import gx2
from egm._gx2.contour import integrate, inverses, saddle
from egm._gx2.form import WIDE, form_of, gather
from egm._types import Array, ArrayLike
from egm._validate import probability, scalar, vector

_WINDOW = 6  # iterates that the extrapolation uses
_LONGEST = 1.0  # largest correction of log w by the extrapolation
_SETTLED = 1e-20  # accepted bound on log F minus its minimum; the shares in `excess_of_shares` then differ by < 1e-10
_EVEN = 1e-4  # accepted relative difference of these shares in each column, of which F does not see tiny ones
_MOST_ROUNDS = 100
_MOST = 4096  # more standard deviations than this are first replaced by fewer ones
_RULE = 4  # nodes of the Gauss rule for a cluster of standard deviations
_FINE, _COARSE = 12_000, 600  # points of the spline for weights above and below _CURVED times the largest weight
_CURVED = 2.0**-30
_DISTINCT = 1e-4  # least pivot of a Gauss rule: the squares of smaller ones are lost in rounding


def optimal(sigma: ArrayLike, clip_probability: float) -> Array:
    r"""Compute the scaling that needs the least noise if a scaled normal row is clipped with a given probability.

    Parameters
    ----------
    sigma : array_like, shape (d,)
        Standard deviations of the columns, finite and > 0, in the units of the data.
    clip_probability : float
        Probability p with which a scaled row may be longer than the clipping radius, strictly
        between 0 and 1.

    Returns
    -------
    ndarray, shape (d,)
        The multipliers, in inverse units of the data, with :math:`\sum_j (b_j \sigma_j)^2 = 1`.
        Up to rounding, their ``noise_factor`` is never larger than that of ``expected_norm``.

    Raises
    ------
    ValueError
        If `sigma` or `clip_probability` are outside their ranges; if the largest entry of `sigma` is
        so much larger than the smallest, by a factor above 1e300, that their ratio underflows; or if
        an entry is so small that its multiplier would overflow.

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
    1e-20 of its minimum, and when the share of each column in the noise agrees to 1e-4 with its
    share in the squared norm at the clipping radius; or after 100 rounds. A double can show such a
    small bound, because the bound is computed as the sum of squares of small numbers.

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
    share, count = require_alike(shares(sigma), sigma), np.ones(sigma.size)
    start = share if sigma.size <= _MOST else _start(share, p)
    with np.errstate(over="ignore"):
        return require_multipliers(np.sqrt(_stationary_weights(share, count, p, start)) / sigma, sigma)


def shares(values: Array) -> Array:
    """Return `values`, which are > 0, divided by their sum; the sum itself may be too large for a double."""
    with np.errstate(over="ignore"):
        total = np.sum(values)
    return values / total if total < np.inf else shares(values / 2.0**64)


def require_alike(scaled: Array, sigma: Array) -> Array:
    """Return `scaled`, which is `sigma` times a number, or raise ValueError if an entry of it is 0 by underflow."""
    if not np.all(scaled):
        raise ValueError(f"sigma must be within a factor of 1e300, got {np.min(sigma):g} and {np.max(sigma):g}")
    return scaled


def require_multipliers(b: Array, sigma: Array) -> Array:
    """Return `b`, the multipliers for the standard deviations `sigma`, or raise ValueError if one is not finite."""
    if not np.all(np.isfinite(b)):
        least = int(np.argmin(sigma))
        raise ValueError(
            f"sigma[{least}] must be larger, or its multiplier would overflow, got {float(sigma[least])!r}"
        )
    return b


def _stationary_weights(share: Array, count: Array, p: float, start: Array, settled: float = _SETTLED) -> Array:
    """Return the weights w of the scaling with the least noise, one for each group of equal standard deviations.

    w is (b sigma)**2 for a column of the group with the standard deviation sigma and the multiplier b, and the sum of
    `count` * w is 1. All arrays have one entry for each group. `count` has the number of columns in each group, which
    may be a fraction if a few groups stand for very many columns. `share` is proportional to the standard deviations,
    and ``sum(count * share)`` is 1. The iteration begins at `start`, and a row is clipped with the probability `p`.
    """
    log_weights, best = np.log(start), (np.inf, start)
    iterates: deque[Array] = deque(maxlen=_WINDOW)
    residuals: deque[Array] = deque(maxlen=_WINDOW)
    for _ in range(_MOST_ROUNDS):
        weights = np.exp(log_weights)
        weights /= count @ weights
        quantile = gx2.isf(p, weights, count)
        pull = gx2.conditional_means(quantile, weights, count) / count
        noise = count * share * (share / weights)
        total = np.sum(noise)
        best = min(best, (quantile * total, weights), key=lambda pair: pair[0])
        ratio = (weights / share) ** 2 * pull * total / quantile
        if excess_of_shares(ratio, noise / total) < settled and np.all(np.abs(ratio - 1) < _EVEN):
            return weights
        iterates.append(np.log(weights))
        residuals.append(np.log(_stationary(share, count, weights, pull) / weights))
        log_weights = _extrapolated(iterates, residuals)
    return best[1]


def _start(sigma: Array, p: float) -> Array:
    """Return nearly optimal weights for very many standard deviations `sigma`, from which an iteration starts.

    `p` is the clip probability. First the best weights are computed for the few standard deviations that
    `_few_for_many` finds in place of `sigma`. These weights are nearly right, because only sums over the columns of
    smooth functions of sigma enter the problem. For the best weights w, sigma is proportional to w sqrt(g), where g,
    defined in `optimal`, is a function of w. A spline inverts this relation for every entry of `sigma`; for small w,
    where g is nearly constant, it has fewer points. If w sqrt(g) does not increase with w, the result is sigma /
    sum(sigma).
    """
    nodes, count = _few_for_many(sigma)
    share = nodes / (count @ nodes)
    weights = _stationary_weights(share, count, p, share, _SETTLED / 100)
    form = form_of(weights, count, np.zeros_like(weights))
    x = gx2.isf(p, weights, count) / form.unit
    crossing = saddle(form, x)
    shift, mass, *_ = integrate(crossing, x)

    def pull(w: Array) -> Array:
        return (mass @ inverses(crossing, shift, w)).imag / np.sum(mass).imag

    scale = np.exp(count @ (weights * np.log(nodes / (weights * np.sqrt(pull(weights))))))
    beyond = min(1.1, (1 + 1 / crossing.c) / 2) if crossing.c > 0 else 1.1  # the cut of a larger weight begins at c
    low, high = weights.min() * min(sigma.min() / nodes.min(), 1.0) / 1.1, weights.max() * beyond
    curved = max(low, _CURVED * high)
    grid = np.geomspace(curved, high, _FINE)
    if low < curved:
        grid = np.append(np.geomspace(low, curved, _COARSE, endpoint=False), grid)
    known = np.log(scale * grid * np.sqrt(pull(grid)))
    if not np.all(np.diff(known) > 0):
        return sigma / np.sum(sigma)
    return np.exp(CubicSpline(known, np.log(grid))(np.log(sigma)))


def _few_for_many(sigma: Array) -> tuple[Array, Array]:
    """Return (nodes, count): few standard deviations to replace `sigma`, and how many columns each of them stands for.

    For a smooth function f, the sum of f over `sigma` is nearly the sum of count * f(nodes). `sigma` is divided into
    clusters, which are wide for small standard deviations (see `gather`). The nodes and counts of a cluster are those
    of its Gauss rule (quadrature). The recurrence coefficients a_k and b_k of the orthogonal polynomials follow from
    the moments of the cluster by Chebyshev's algorithm, for all clusters at a time.
    """
    _, clusters, _ = gather(sigma, np.ones(1), np.zeros(1), 2 * _RULE, _MOST, WIDE)
    center, total = clusters[:, 1], clusters[:, 3]
    powers = np.arange(2 * _RULE + 1)[:, None]
    moments = np.concatenate([total[None], clusters[:, 5 : 5 + 2 * _RULE].T]) / total
    scale = 1 / np.maximum(np.sqrt(np.maximum(moments[2], 0.0)), 1 / 16)
    before, now = np.zeros_like(moments), moments * scale**powers
    a, b = np.zeros((2, _RULE, center.size))
    a[0], b[0], size = now[1], 1.0, np.ones(center.size, int)
    for k in range(1, _RULE):
        following = np.zeros_like(now)
        following[:-1] = now[1:] - a[k - 1] * now[:-1] - b[k - 1] * before[:-1]
        exists = (size == k) & (following[k] > _DISTINCT**2)
        size[exists] = k + 1
        b[k, exists] = following[k, exists] / now[k - 1, exists]
        a[k, exists] = following[k + 1, exists] / following[k, exists] - now[k, exists] / now[k - 1, exists]
        before, now = now, following
    nodes, count = [], []
    for many in range(1, _RULE + 1):
        those = size == many
        matrix = np.zeros((int(those.sum()), many, many))
        for k in range(many):
            matrix[:, k, k] = a[k, those]
        for k in range(1, many):
            matrix[:, k, k - 1] = np.sqrt(b[k, those])
        values, vectors = np.linalg.eigh(matrix)
        nodes.append((center[those, None] * (1 + values / scale[those, None])).ravel())
        count.append((total[those, None] * vectors[:, 0] ** 2).ravel())
    return np.concatenate(nodes), np.concatenate(count)


def excess_of_shares(ratio: Array, noise_share: Array) -> float:
    """Bound how far the logarithm of a scaling's noise factor is above its minimum.

    The noise factor is proportional to the total variance of the noise. `noise_share` has, for each coordinate, its
    share tau in this variance. Let pi be the share of the coordinate in the squared norm of a row at the clipping
    radius; `ratio` has pi / tau for each coordinate. The bound is log(1 + sum((pi - tau)**2 / tau)), and so 0 if pi is
    tau everywhere. It is accurate even if pi and tau nearly agree.
    """
    return float(np.log1p(np.sum((np.sqrt(noise_share) * (ratio - 1)) ** 2)))


def _stationary(share: Array, count: Array, weights: Array, pull: Array) -> Array:
    """Return weights w that approximately make the noise factor F of `optimal` stationary, by one step from `weights`.

    All arrays have one entry for each group of equal standard deviations: `share` is proportional to these, and `count`
    has the numbers of columns in the groups. F is stationary if w_j is proportional to share_j / sqrt(g_j). Here g_j =
    E[Z_j^2 | Q = q] depends on w, and `pull` has the g_j for the given `weights`. The equation ``g_j = 1 / (1 - 2 w_j
    s_j)`` for these `weights` defines s_j. With s_j kept fixed, the condition is ``w_j**2 = a share_j**2 (1 - 2 w_j
    s_j)``, where a is chosen so that the sum of `count` * w is 1. Its solution w is the result. The simpler iteration w
    = share / sqrt(g) would overshoot, because in a far tail g_j changes many times as much as w_j.
    """
    s = (1 - 1 / pull) / (2 * weights)

    def solve(log_scale: float) -> Array:
        root = np.exp(log_scale) * share
        pulled = root * s
        height = np.sqrt(pulled * pulled + 1)  # np.hypot takes five times as long
        return root * np.where(s > 0, 1 / (height + np.abs(pulled)), height - pulled)

    weights = solve(brentq(lambda u: count @ solve(u) - 1, -50, 50, xtol=1e-15))
    return weights / (count @ weights)


def _extrapolated(iterates: deque[Array], residuals: deque[Array]) -> Array:
    """Return the next iterate of log w by Anderson mixing, or by a plain step if the mixing moves too far.

    `iterates` has the last values of log w, and `residuals` the changes that one step of `_stationary` makes to each of
    them. A plain step adds the last residual to the last iterate. Anderson mixing takes the combination of the last
    iterates whose residuals nearly cancel. Far from the solution this combination can lie anywhere; it is not used if
    it differs from the plain step by `_LONGEST` or more.
    """
    plain = iterates[-1] + residuals[-1]
    moves, changes = np.diff(iterates, axis=0), np.diff(residuals, axis=0)
    combination = np.linalg.lstsq(changes.T, residuals[-1], rcond=1e-8)[0]
    correction = (moves + changes).T @ combination
    return plain - correction if np.max(np.abs(correction)) < _LONGEST else plain
