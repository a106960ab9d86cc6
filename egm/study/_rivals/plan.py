"""Estimate a mean by PLAN, the method of Aumüller, Lebeda, Nelson and Pagh (2024)."""

from __future__ import annotations

import numpy as np
from scipy.special import chdtri

from egm import quantiles
from egm._types import Array, ArrayLike
from egm._validate import probability, scalar
from egm.quantiles import epsilon_of_rho
from egm.study._rivals import parts


def plan(
    X: ArrayLike,
    rho: float,
    *,
    radius: ArrayLike,
    rng: np.random.Generator,
    sigma: ArrayLike | None = None,
    search_share: float = 0.25,
    center_share: float = 0.25,
    clip_share: float = 0.25,
    beta: float = 0.1,
) -> Array:
    r"""Estimate the mean by PLAN: center, scale and clip the rows, then add Gaussian noise.

    PLAN finds a center by private medians and scales coordinate j of the centered rows by
    :math:`(\sigma_j + \bar\sigma)^{-1/2}`, where :math:`\bar\sigma` is the mean of all
    :math:`\sigma_j`. It then clips the rows at a private quantile of their norms.

    Parameters
    ----------
    X : array_like, shape (n, d)
        Private data, one row for each person, finite, with n >= 2. It is not changed.
    rho : float
        Privacy budget in zCDP, > 0.
    radius : float or array_like, shape (d,)
        Public bound on the absolute value of each coordinate of the mean, > 0, in the units of `X`. For
        the medians, an entry of `X` beyond this bound is clipped to it. For the mean, each row is
        clipped to the clip norm, as usual.
    rng : numpy.random.Generator
        Generator of the noise, which is simulated and not secure.
    sigma : float or array_like, shape (d,), optional
        Standard deviations of the coordinates, > 0, in the units of `X`, if they are known. The whole
        budget of the search is then spent on the center. By default the standard deviations are
        estimated privately.
    search_share : float, default 0.25
        Share of `rho` that is spent to find the center and the standard deviations, in (0, 1).
    center_share : float, default 0.25
        Share of the budget of the search that is spent on the center, in (0, 1). It has no effect if
        `sigma` is given.
    clip_share : float, default 0.25
        Share of the budget after the search that is spent to find the clip norm, in (0, 1). The noise of
        the mean gets the rest.
    beta : float, default 0.1
        Probability, in (0, 1), with which the search for the clip norm may fail; see Notes.

    Returns
    -------
    ndarray, shape (d,)
        Private estimate of the mean of the rows, in the units of `X`.

    Raises
    ------
    ValueError
        If `X` is not finite or has fewer than two rows, or if a parameter is outside its range.
    TypeError
        If `rng` is not a numpy Generator.

    Notes
    -----
    The method is Algorithm 1 of [1]_ for p = 2. The estimate of :math:`\sigma_j^2` is the private median
    of :math:`(x_j - y_j)^2 / 2` over n/2 disjoint random pairs (x, y) of rows, divided by the median of
    the chi-square distribution with one degree of freedom. The clip norm is the quantile
    :math:`1 - k/n` of the norms, drawn by the exponential mechanism from the interval from 0 to
    :math:`\sqrt{2 \ln d \, \ln(1/\beta) \sum_j \sigma_j}`, where

    .. math:: k = \sqrt{n} + \sqrt{\frac{T \ln(T / \beta)}{2 \rho_{\mathrm{clip}}}},
       \qquad T = \ln(2 \max_j \mathrm{radius}_j).

    Here :math:`\rho_{\mathrm{clip}}` is the budget of the search for the clip norm, and :math:`T` and :math:`\ln d` are
    taken to be at least 1. The estimate is `rho`-zCDP for neighbors that replace one row [1]_.

    The shares and constants are those of the authors' experiments, but the search of their code
    costs 12 times the stated amount. First, to spread equal values, that code uses three copies of
    each row, 0.1 apart. If a row is replaced, all three copies are, which multiplies the cost by 9;
    the code multiplies it by 3. Second, the code computes the cost of the medians for neighbors that
    add or remove a row. For neighbors that replace a row, for which it computes the noise of the
    mean, the medians cost 4 times as much. With a nominal budget of rho, that code spends 3.75 rho,
    and its errors on normal data are those of ``plan(X, 3.75 * rho, search_share=0.8, ...)``.

    References
    ----------
    .. [1] Aumüller, Lebeda, Nelson and Pagh (2024), "PLAN: Variance-Aware Private Mean Estimation".

    Examples
    --------
    Age, income and visits to a doctor of 10 000 people:

    >>> import numpy as np
    >>> from egm.study.rivals import plan
    >>> rng = np.random.default_rng(1)
    >>> X = rng.normal([47, 2200, 5], [18, 1200, 3], size=(10_000, 3))
    >>> estimate = plan(X, rho=0.5, radius=[100, 10_000, 50], rng=rng)
    >>> print(estimate.round(1))
    [  46.4 2190.5    3.9]
    """
    X, rho, radius = parts.checked(X, rho, radius, rng)
    n, d = X.shape
    beta, search = scalar(probability, beta=beta), rho * scalar(probability, search_share=search_share)
    for_center = search * scalar(probability, center_share=center_share) if sigma is None else search
    for_clip = (rho - search) * scalar(probability, clip_share=clip_share)
    center = quantiles.quantile(X, 0.5, -radius, radius, epsilon_of_rho(for_center / d), rng)
    sigma = _spread(X, radius, (search - for_center) / d, rng) if sigma is None else parts.sigma_of(sigma, d)
    scale = 1 / np.sqrt(sigma + np.mean(sigma))
    Y = (X - center) * scale
    width = max(np.log(2 * np.max(radius)), 1.0)
    k = np.sqrt(n) + np.sqrt(width * max(np.log(width / beta), 0.0) / (2 * for_clip))
    largest = np.sqrt(2 * max(np.log(d), 1.0) * np.log(1 / beta) * np.sum(sigma))
    clip_norm = quantiles.quantile(parts.norms(Y), max(1 - k / n, 1 / n), 0.0, largest, epsilon_of_rho(for_clip), rng)
    return center + parts.clipped_mean(Y, clip_norm, rho - search - for_clip, rng) / scale


def _spread(X: Array, radius: Array, rho: float, rng: np.random.Generator) -> Array:
    """Estimate the standard deviation of each of the d columns of `X` privately; return an array of shape (d,).

    Each of the d estimates costs `rho` in zCDP. `rng` pairs the rows at random. The estimate comes from the private
    median, over all pairs, of half the squared difference of the two rows in a pair. Before squaring, differences are
    clipped to plus or minus twice `radius`, the bound on the coordinates of the mean.
    """
    pairs = X[rng.permutation(len(X))[: len(X) // 2 * 2]]
    halves = np.clip(pairs[::2] - pairs[1::2], -2 * radius, 2 * radius) ** 2 / 2
    return np.sqrt(quantiles.quantile(halves, 0.5, 0.0, 2 * radius**2, epsilon_of_rho(rho), rng) / chdtri(1, 0.5))
