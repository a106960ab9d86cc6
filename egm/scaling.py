r"""Compute scalings: multipliers of the coordinates, which are applied before all coordinates get the same noise.

A mechanism multiplies coordinate j of each row by :math:`b_j`, clips the row at radius C, and adds
noise of standard deviation :math:`2 C \sigma_\mathrm{opt}` to every coordinate of the sum, where
:math:`\sigma_\mathrm{opt}` is the noise multiplier. Then it divides coordinate j by :math:`b_j`. So
the total variance of the noise is proportional to

.. math::

    F(b) = C^2 \sum_j b_j^{-2}, \qquad C^2 = q_p\bigl((b \sigma)^2\bigr).

Here p is the probability with which a normal row x of mean zero and standard deviations
:math:`\sigma` is clipped, and :math:`q_p(w)` is the upper p-quantile of :math:`\sum_j w_j Z_j^2`
with independent standard normal :math:`Z_j`, as ``egm.gx2.isf(p, w)`` computes it. F does not
change when b is multiplied by a constant. So every scaling here that depends on standard deviations
is normalized to :math:`E\|b x\|^2 = 1`.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq

from egm import gx2
from egm._optimal import excess_of_shares, optimal, require_alike, require_multipliers
from egm._types import Array, ArrayLike
from egm._validate import nonnegative, probability, scalar, vector

__all__ = ["clip_norm", "elliptical", "excess_bound", "expected_norm", "mean_deviation", "noise_factor", "optimal"]


def elliptical(sensitivities: ArrayLike) -> Array:
    r"""Compute the scaling of least noise for known sensitivities, by Theorem 3 of Poulsen's report (2023).

    Parameters
    ----------
    sensitivities : array_like, shape (d,)
        Sensitivities :math:`\Delta_j`, the largest change of each coordinate between neighboring
        data sets, finite and > 0, in the units of the data.

    Returns
    -------
    ndarray, shape (d,)
        The scaling :math:`b_j = \sqrt{\Delta_j / \sum_i \Delta_i}`, with :math:`\|b\| = 1`.

    Raises
    ------
    ValueError
        If `sensitivities` are outside this range.

    Notes
    -----
    Algorithm 2 of the report [1]_ multiplies coordinate j by :math:`b_j / \Delta_j`, and has the
    least total variance of noise with this scaling ([1]_, Theorem 3; [2]_, Lemma 3.2).

    References
    ----------
    .. [1] Poulsen (2023), "Differentially private vector sums in the case of normally distributed
       data".
    .. [2] Pagh and Lebeda (2022), "Private Vector Aggregation when Coordinates Have Different
       Sensitivity".

    Examples
    --------
    >>> from egm import scaling
    >>> scaling.elliptical([40, 5000, 10]).round(4)
    array([0.089 , 0.995 , 0.0445])
    """
    roots = np.sqrt(vector(sensitivities=sensitivities))
    roots /= np.max(roots)
    roots /= np.sqrt(np.sum(roots**2))
    return roots


def expected_norm(sigma: ArrayLike) -> Array:
    r"""Compute the scaling of least noise for rows that are clipped at the root of their mean squared norm (Lemma 4.1).

    Parameters
    ----------
    sigma : array_like, shape (d,)
        Standard deviations of the columns, finite and > 0, in the units of the data.

    Returns
    -------
    ndarray, shape (d,)
        The multipliers :math:`b_j = 1 / \sqrt{\sigma_j \sum_i \sigma_i}`, in inverse units of the
        data, with :math:`\sum_j (b_j \sigma_j)^2 = 1`.

    Raises
    ------
    ValueError
        If `sigma` is outside its range, or so small that a multiplier would overflow.

    See Also
    --------
    optimal : The scaling of least noise if the clipping radius is a quantile of a scaled row's norm.

    Notes
    -----
    This is Lemma 4.1 of [1]_: for a row x the multipliers minimize
    :math:`E\|b x\|^2 \sum_j b_j^{-2}`, to which the variance of the noise would be proportional if
    :math:`E\|b x\|^2` were the squared clipping radius. The radius that a mechanism uses is instead a
    quantile of the norm, and `optimal` minimizes the noise for that radius.

    References
    ----------
    .. [1] Poulsen (2023), "Differentially private vector sums in the case of normally distributed
       data".

    Examples
    --------
    >>> import numpy as np
    >>> from egm import scaling
    >>> sigma = np.array([18, 1200, 3])  # age, income, visits
    >>> b = scaling.expected_norm(sigma)
    >>> b.round(5)
    array([0.00675, 0.00083, 0.01652])
    >>> round(float(np.sum((b * sigma) ** 2)), 12)
    1.0
    """
    sigma = vector(sigma=sigma)
    with np.errstate(over="ignore", divide="ignore"):  # roots, and a quarter of the sum: product and sum may overflow
        return require_multipliers(1 / np.sqrt(sigma) / (2 * np.sqrt(np.sum(sigma / 4))), sigma)


def mean_deviation(sigma: ArrayLike, deviations: float) -> Array:
    r"""Compute the scaling of least noise for a squared clipping radius that is a mean plus k standard deviations.

    The mean and the standard deviation are those of the squared norm :math:`\|b x\|^2` of a normal
    row x with mean zero, scaled by the multipliers b. With :math:`w = (b \sigma)^2` the squared
    radius is :math:`\sum_j w_j + k \sqrt{2 \sum_j w_j^2}`.

    Parameters
    ----------
    sigma : array_like, shape (d,)
        Standard deviations of the columns, finite and > 0, in the units of the data.
    deviations : float
        Number k of standard deviations, finite and >= 0.

    Returns
    -------
    ndarray, shape (d,)
        The multipliers, in inverse units of the data, with :math:`\sum_j (b_j \sigma_j)^2 = 1`.

    Raises
    ------
    ValueError
        If `sigma` or `deviations` are outside their ranges; if the largest entry of `sigma` is so much
        larger than the smallest, by a factor above 1e300, that their ratio underflows; or if an entry
        is so small that its multiplier would overflow.

    See Also
    --------
    optimal : The best scaling for the exact quantile.

    Notes
    -----
    In terms of :math:`v = k \sqrt{2} \, w / \|w\|`, the noise is least where

    .. math:: v_j^3 + v_j^2 = \mu \sigma_j^2,

    with the one :math:`\mu` for which :math:`\|v\| = k \sqrt{2}`. So w is proportional to
    :math:`\sigma` for k = 0, which is Lemma 4.1 of [1]_, and tends to be proportional to
    :math:`\sigma^{2/3}` when k grows without bound. The squared radius is Chebyshev's bound for the
    probability p if :math:`k = p^{-1/2}`, and the bound of Lemma 4.2 of [1]_ if
    :math:`k = 2 \sqrt{\ln(1/p)}`.

    References
    ----------
    .. [1] Poulsen (2023), "Differentially private vector sums in the case of normally distributed
       data".

    Examples
    --------
    >>> from egm import scaling
    >>> scaling.mean_deviation([18, 1200, 3], deviations=2).round(5)
    array([0.00919, 0.00082, 0.02286])
    """
    sigma, k = vector(sigma=sigma), scalar(nonnegative, deviations=deviations)
    log_norm = np.log(np.sqrt(2) * np.clip(k, 1e-20, 1e150))  # of v; beyond these ends the result stays the same
    log_square = 2 * np.log(require_alike(sigma / np.max(sigma), sigma))

    def log_of(log_mu: float) -> Array:
        target = log_mu + log_square
        log_v: Array = np.minimum(target / 2, target / 3)
        for _ in range(6):  # Newton: the left side is convex in log v, with a slope from 2 to 3
            v = np.exp(log_v)
            log_v = log_v - (2 * log_v + np.log1p(v) - target) / (2 + v / (1 + v))
        return log_v

    low = 2 * log_norm - np.log(np.sum(np.exp(log_square)))  # v <= sqrt(mu) sigma / max sigma
    high = 2 * log_norm + np.logaddexp(0, log_norm)  # mu for which the largest v alone has the norm
    log_v = log_of(
        brentq(lambda u: np.log(np.linalg.norm(np.exp(log_of(u)))) - log_norm, low - 1e-9, high + 1e-9, xtol=1e-14)
    )
    root = np.exp((log_v - np.max(log_v)) / 2)  # not 0 even where v is
    norm: float = np.sqrt(np.sum(root**2))
    with np.errstate(over="ignore"):
        return require_multipliers(root / norm / sigma, sigma)


def clip_norm(b: ArrayLike, sigma: ArrayLike, clip_probability: float) -> float:
    r"""Compute the clipping radius C: the norm that a normal row, scaled by `b`, exceeds with a given probability.

    Parameters
    ----------
    b : array_like, shape (d,)
        Multipliers of the columns, finite and > 0.
    sigma : array_like, shape (d,)
        Standard deviations of the columns, finite and > 0, in the units of the data.
    clip_probability : float
        Probability p with which a normal row, scaled by `b`, is longer than the clipping radius,
        strictly between 0 and 1.

    Returns
    -------
    float
        The radius :math:`C = \sqrt{q_p((b \sigma)^2)}`, in the units of `b` times the data. Here
        :math:`q_p(w)` is the upper p-quantile of :math:`\sum_j w_j Z_j^2` with independent standard
        normal :math:`Z_j`.

    Raises
    ------
    ValueError
        If an argument is outside its range, or if `b` and `sigma` have different lengths.

    Notes
    -----
    The radius is exact for normal rows with independent coordinates and mean zero. A coordinate
    whose scaled standard deviation is 1e162 times smaller than the largest one does not affect C in
    double precision and is left out.

    Examples
    --------
    >>> from egm import scaling
    >>> sigma, n = [18, 1200, 3], 10_000
    >>> b = scaling.optimal(sigma, clip_probability=1 / n)
    >>> round(scaling.clip_norm(b, sigma, clip_probability=1 / n), 4)
    3.7763
    """
    b, sigma, p = vector(b=b), vector(sigma=sigma), scalar(probability, clip_probability=clip_probability)
    if b.shape != sigma.shape:
        raise ValueError(f"b must have the {sigma.size} entries of sigma, got {b.size}")
    with np.errstate(over="ignore"):
        spread = b * sigma
    if not 0 < np.max(spread) < np.inf:
        raise ValueError(f"b times sigma must have a largest entry > 0 and below 1.8e308, got {np.max(spread):g}")
    weights = (spread / np.max(spread)) ** 2
    return float(np.max(spread) * np.sqrt(gx2.isf(p, weights[weights > 0])))


def noise_factor(b: ArrayLike, sigma: ArrayLike, clip_probability: float) -> float:
    r"""Compute the factor F(b) by which the total variance of the noise depends on the scaling b.

    Parameters
    ----------
    b : array_like, shape (d,)
        Multipliers of the columns, finite and > 0.
    sigma : array_like, shape (d,)
        Standard deviations of the columns, finite and > 0, in the units of the data.
    clip_probability : float
        Probability p with which a normal row, scaled by `b`, is longer than the clipping radius,
        strictly between 0 and 1.

    Returns
    -------
    float
        The factor :math:`F(b) = C^2 \sum_j b_j^{-2}` with the clipping radius C, in squared units
        of the data. It is infinite where it would overflow, and 0 where it would underflow. The
        total variance of the noise is :math:`(2 \sigma_\mathrm{opt})^2 F(b)` with the noise
        multiplier :math:`\sigma_\mathrm{opt}`.

    Raises
    ------
    ValueError
        If an argument is outside its range, or if `b` and `sigma` have different lengths.

    See Also
    --------
    clip_norm : The clipping radius C.

    Examples
    --------
    The best scaling of three columns (age, income, visits) needs a third of the noise variance that
    equal multipliers need.

    >>> import numpy as np
    >>> from egm import scaling
    >>> sigma, p = [18, 1200, 3], 1e-4
    >>> none = scaling.noise_factor(np.ones(3), sigma, p)
    >>> best = scaling.noise_factor(scaling.optimal(sigma, p), sigma, p)
    >>> round(best / none, 4)
    0.3364
    """
    b = vector(b=b)
    least = np.min(b)
    with np.errstate(over="ignore"):
        return float((clip_norm(b, sigma, clip_probability) / least) ** 2 * np.sum((least / b) ** 2))


def excess_bound(b: ArrayLike, sigma: ArrayLike, clip_probability: float) -> float:
    r"""Compute an upper bound on how far the logarithm of a scaling's noise factor is above that of the best scaling.

    Parameters
    ----------
    b : array_like, shape (d,)
        Multipliers of the columns, finite and > 0.
    sigma : array_like, shape (d,)
        Standard deviations of the columns, finite and > 0, in the units of the data.
    clip_probability : float
        Probability p with which a normal row, scaled by `b`, is longer than the clipping radius,
        strictly between 0 and 1.

    Returns
    -------
    float
        A number that is at least :math:`\log F(b) - \min \log F`, and 0 where F is least. It is
        infinite if one multiplier is 1e150 times larger than another.

    Raises
    ------
    ValueError
        If an argument is outside its range, or if `b` and `sigma` have different lengths.

    See Also
    --------
    noise_factor : The factor F.
    optimal : The scaling for which F is least.

    Notes
    -----
    Coordinate j of a scaled normal row of mean zero is :math:`\sqrt{w_j} Z_j` with
    :math:`w_j = (b_j \sigma_j)^2` and independent standard normal :math:`Z_j`. The squared norm of
    the row is :math:`Q = \sum_j w_j Z_j^2`. Let q be the squared clipping radius, so that
    :math:`P[Q > q] = p`. For fixed :math:`\sigma`, the factor
    :math:`F(b) = q \sum_j b_j^{-2} = q \sum_j \sigma_j^2 / w_j` is a function of w, and is written
    :math:`F(w)` here. A product such as :math:`w e^h` has the entries :math:`w_j e^{h_j}`.

    Let :math:`\pi_j` be the share :math:`E[w_j Z_j^2 \mid Q = q] / q` of coordinate j in the
    squared norm of a row at the clipping radius, and :math:`\tau_j` the share
    :math:`b_j^{-2} / \sum_i b_i^{-2}` of coordinate j in the noise. The difference
    :math:`\pi_j - \tau_j` is the derivative of :math:`\log F` with respect to :math:`\log w_j`. As
    :math:`\log q` is convex in :math:`\log w` [1]_, for every h

    .. math:: \log F(w e^h) - \log F(w) \ge \sum_j \pi_j h_j + \log \sum_j \tau_j e^{-h_j}.

    The least value of the right side is minus the Kullback-Leibler divergence of :math:`\pi` from
    :math:`\tau`, which is at most :math:`\log(1 + \sum_j (\pi_j - \tau_j)^2 / \tau_j)`. This
    number is returned.

    References
    ----------
    .. [1] Prékopa (1973), "On logarithmic concave measures and functions".

    Examples
    --------
    The scaling of Lemma 4.1 has 0.9 % more noise than the best one. The bound, which does not need
    the best scaling, says that the excess is at most 1.5 %.

    >>> import numpy as np
    >>> from egm import scaling
    >>> sigma, p = [18, 1200, 3], 1e-4
    >>> lemma, best = scaling.expected_norm(sigma), scaling.optimal(sigma, p)
    >>> ratio = scaling.noise_factor(lemma, sigma, p) / scaling.noise_factor(best, sigma, p)
    >>> round(ratio, 3), round(float(np.exp(scaling.excess_bound(lemma, sigma, p))), 3)
    (1.009, 1.015)
    >>> scaling.excess_bound(best, sigma, p) < 1e-18
    True
    """
    b, sigma, p = vector(b=b), vector(sigma=sigma), scalar(probability, clip_probability=clip_probability)
    radius = clip_norm(b, sigma, p)
    weights = (b * sigma / radius) ** 2  # the squared clipping radius is 1
    noise_share = (np.min(b) / b) ** 2
    noise_share /= np.sum(noise_share)
    if np.min(noise_share) < 1e-300:
        return np.inf
    norm_share, seen = np.zeros(b.size), weights > 0
    norm_share[seen] = weights[seen] * gx2.conditional_means(1.0, weights[seen])
    return excess_of_shares(norm_share / noise_share, noise_share)
