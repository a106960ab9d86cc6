"""Estimate a mean for known standard deviations by the method of Dagan and others (2024)."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from egm._types import Array, ArrayLike
from egm._validate import finite, probability, scalar
from egm.calibration import zcdp_noise_multiplier
from egm.study._rivals import parts

_BLOCK = 1 << 22  # distances between rows handled at a time


def anisotropic(
    X: ArrayLike,
    rho: float,
    *,
    radius: ArrayLike,
    rng: np.random.Generator,
    sigma: ArrayLike,
    center: ArrayLike | None = None,
    delta: float = 1e-6,
    beta: float = 0.1,
    size_share: float = 0.05,
) -> Array:
    r"""Estimate the mean for known standard deviations, with more noise in coordinates that vary more.

    Coordinate j of the rows is scaled by :math:`\sigma_j^{-1/2}`, rows that are far from the others are
    left out (the filter), and the mean of the remaining rows gets noise of a variance proportional to
    :math:`\sigma_j`.

    Parameters
    ----------
    X : array_like, shape (n, d)
        Private data, one row for each person, finite, with n >= 2. It is not changed.
    rho : float
        Privacy budget in zCDP, > 0.
    radius : float or array_like, shape (d,)
        Public bound on the absolute value of each coordinate of the mean, > 0, in the units of `X`. It
        is used only to clip the estimate, and not at all if `center` is given.
    rng : numpy.random.Generator
        Generator of the noise, which is simulated and not secure.
    sigma : float or array_like, shape (d,)
        Standard deviations of the coordinates, > 0, in the units of `X`.
    center : float or array_like, shape (d,), optional
        The mean, in the units of `X`, if it is known. An analyst does not know the mean, so the
        method is then an oracle, for comparison only. All of `rho` is then spent on the noise of
        the mean, `delta` is not spent, and a row is left out if it is far from the center; see
        Notes.
    delta : float, default 1e-6
        Probability, in (0, 1), with which the noise of the filter, or of the count of the remaining rows, may be larger
        than the method assumes.
    beta : float, default 0.1
        Probability of failure for which the distance :math:`\lambda` is chosen, in (0, 1); see Notes.
    size_share : float, default 0.05
        Share, in (0, 1), of the budget after the filter that is spent to count the remaining rows.

    Returns
    -------
    ndarray, shape (d,)
        Private estimate of the mean of the rows, in the units of `X`. All its entries are 0 if by the
        noisy count fewer than half of the rows remain.

    Raises
    ------
    ValueError
        If `X` is not finite or has fewer than two rows, or if a parameter is outside its range.
    TypeError
        If `rng` is not a numpy Generator.

    Notes
    -----
    The method is that of [1]_ for a known covariance, with the filter of [2]_ for zCDP and with the
    sensitivities of replaced rows. With :math:`y = x / \sqrt{\sigma}` and :math:`t = \ln(n / \beta)`, two
    rows are called friends if

    .. math:: \|y - y'\|^2 \le \lambda^2
       = 2 \left(\|\sigma\|_1 + 2 \|\sigma\|_2 \sqrt{t} + 2 \|\sigma\|_\infty t\right).

    Two normal rows are not friends with probability at most :math:`\beta / n`. A row is kept if its
    noisy number of friends, minus a bound of the noise, is above n / 2 + 1. Then any two kept rows
    have a friend in common, and the sensitivity of their mean is at most :math:`2 \lambda` divided
    by the number of kept rows. This number is private, so a noisy lower bound takes its place. If
    `center` is given, a row is kept if y is at most :math:`\lambda / \sqrt{2}` from the scaled
    center, because differences of two rows are :math:`\sqrt{2}` times as large.

    To keep all rows that have 0.95 n friends, with probability 0.9, the filter gets the budget

    .. math:: 2 (z + z')^2 \frac{n - 1}{(0.9 n - 2)^2},

    but at most 0.9 `rho`. Here z and z' are the normal quantiles that are exceeded with probability
    :math:`\delta / (2 n)` and :math:`1 / (10 n)`. The time is :math:`O(n^2 d)`.

    The estimate is `delta`-approximate `rho`-zCDP for neighbors that replace one row [2]_. This promise is
    weaker than that of the other methods. If `center` is given, the estimate is `rho`-zCDP.

    References
    ----------
    .. [1] Dagan, Jordan, Yang, Zakynthinou and Zhivotovskiy (2024), "Dimension-free Private Mean
       Estimation for Anisotropic Distributions".
    .. [2] Tsfadia, Cohen, Kaplan, Mansour and Stemmer (2022), "FriendlyCore: Practical Differentially
       Private Aggregation".

    Examples
    --------
    Age, income and visits to a doctor of 1000 people:

    >>> import numpy as np
    >>> from egm.study.rivals import anisotropic
    >>> rng = np.random.default_rng(1)
    >>> sigma = [18, 1200, 3]
    >>> X = rng.normal([47, 2200, 5], sigma, size=(1000, 3))
    >>> estimate = anisotropic(X, rho=0.5, radius=[100, 10_000, 50], rng=rng, sigma=sigma)
    >>> print(estimate.round(1))
    [  51.6 2296.8    6.4]
    """
    X, rho, radius = parts.checked(X, rho, radius, rng)
    n, d = X.shape
    sigma, delta, beta = parts.sigma_of(sigma, d), scalar(probability, delta=delta), scalar(probability, beta=beta)
    size_share = scalar(probability, size_share=size_share)
    t = np.log(n / beta)
    ball = np.sqrt(np.sum(sigma) + 2 * np.linalg.norm(sigma) * np.sqrt(t) + 2 * np.max(sigma) * t)
    if center is not None:
        center = np.broadcast_to(finite(center=center), d)
        Y = (X - center) / np.sqrt(sigma)
        total = Y[parts.norms(Y) <= ball].sum(axis=0)
        return center + np.sqrt(sigma) * parts.noisy(total / n, 2 * ball / n, rho, rng)
    Y = X / np.sqrt(sigma)
    z = -ndtri(delta / (2 * n))
    for_filter = min(2 * (n - 1) * (z - ndtri(0.1 / n)) ** 2 / max(0.9 * n - 2, 1) ** 2, 0.9 * rho)
    friends = parts.noisy(_friends(Y, np.sqrt(2) * ball), np.sqrt(n - 1), for_filter, rng)
    kept = friends > n / 2 + 1 + z * np.sqrt(n - 1) * zcdp_noise_multiplier(for_filter)
    for_size = size_share * (rho - for_filter)
    size = parts.noisy(np.array([kept.sum()]), 1.0, for_size, rng)[0]
    size += ndtri(delta / 2) * zcdp_noise_multiplier(for_size)
    if size < n / 2:
        return np.zeros(d)
    mean = Y[kept].mean(axis=0) if kept.any() else np.zeros(d)
    mean = parts.noisy(mean, 2 * np.sqrt(2) * ball / size, rho - for_filter - for_size, rng)
    return np.clip(mean * np.sqrt(sigma), -radius, radius)


def _friends(Y: Array, reach: float) -> Array:
    """Count, for each row of the matrix `Y`, the rows at a Euclidean distance of at most `reach`; return an array.

    A row counts itself, too. A row so long that its squared norm overflows has the count 0.
    """
    Y = Y - np.median(Y, axis=0)
    step = max(1, _BLOCK // len(Y))
    counts = np.empty(len(Y))
    with np.errstate(over="ignore", invalid="ignore"):  # a row whose square overflows has no friends, not even itself
        squares = parts.norms(Y) ** 2
        for start in range(0, len(Y), step):
            part = slice(start, start + step)
            counts[part] = np.count_nonzero(squares[part, None] + squares - 2 * Y[part] @ Y.T <= reach**2, axis=1)
    return counts
