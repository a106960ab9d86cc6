r"""Estimate the mean of the rows of a matrix privately, by published methods that are rivals of egm's own.

All methods are called in the same way and return an estimate of shape (d,)::

    estimate = method(X, rho, *, radius, rng)  # X has shape (n, d)

The promise is zero-concentrated differential privacy (zCDP). Two data sets are neighbors if one row of the first is
replaced by any other row; the number `n` of rows is public. The whole budget is `rho`. A method that works in several
steps divides it into parts whose sum is exactly `rho`, which is sufficient by Lemma 2.3 of Bun and Steinke (2016). A
step that adds Gaussian noise of standard deviation :math:`D / \sqrt{2 \rho_i}` to a value of l2-sensitivity :math:`D`
costs :math:`\rho_i`. A step that is an exponential mechanism of parameter :math:`\varepsilon` costs
:math:`\varepsilon^2 / 8` (Cesar and Rogers 2021, Lemma 3.4).

Every method gets a public bound `radius` on the mean, :math:`|\mu_j| \le \mathrm{radius}_j`. A row may lie
beyond this bound; the docstring of each method says what then happens to it. A method that also gets something that a
user would not know, such as the true mean, is called an oracle.

All noise is simulated (`egm.samplers`), so these functions are for experiments and protect nobody.
None of them changes `X`. All raise ValueError for a matrix that is not finite or has fewer than two
rows and for a parameter outside its range, and TypeError if `rng` is not a numpy Generator.

Where a paper leaves a constant open, the constant is that of the paper's public code. If that code spends more budget
than it says, as PLAN's does, the function follows the paper, and its docstring states the difference.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri, ndtri

from egm import samplers
from egm._types import Array, ArrayLike, Number
from egm._validate import count, finite, generator, matrix, positive, probability, scalar
from egm.calibration import zcdp_noise_multiplier
from egm.quantiles import epsilon_of_rho, quantile

__all__ = ["anisotropic", "coinpress", "coordinate_median", "gaussian", "huang_liang_yi", "plan"]

_BLOCK = 1 << 22  # distances between rows handled at a time


def gaussian(
    X: ArrayLike,
    rho: float,
    *,
    radius: ArrayLike,
    rng: np.random.Generator,
    center: ArrayLike = 0.0,
    clip_norm: Number | None = None,
) -> Array:
    r"""Release the mean of rows that are clipped to a ball, with Gaussian noise.

    With the true center and the best `clip_norm` this method is an oracle. It is then hard to beat by a
    method that has to find both of them.

    Parameters
    ----------
    X : array_like, shape (n, d)
        Private data, one row for each person, finite, with n >= 2. It is not changed.
    rho : float
        Privacy budget in zCDP, > 0.
    radius : float or array_like, shape (d,)
        Public bound on the absolute value of each coordinate of the mean, > 0, in the units of `X`.
    rng : numpy.random.Generator
        Generator of the noise, which makes this a simulation.
    center : float or array_like, shape (d,), default 0.0
        Public center of the ball, in the units of `X`.
    clip_norm : float, optional
        Public radius of the ball, > 0, in the units of `X`. By default it is the l2 norm of `radius`, for
        which the ball contains the box of all possible means. A row outside the ball is moved to its
        surface, towards the center.

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
    The noise has the standard deviation :math:`2 C / (n \sqrt{2 \rho})` in each coordinate, where
    :math:`C` is `clip_norm`. The estimate is `rho`-zCDP for neighbors that replace one row [1]_.

    References
    ----------
    .. [1] Bun and Steinke (2016), "Concentrated Differential Privacy: Simplifications, Extensions, and
       Lower Bounds".

    Examples
    --------
    Age, income and visits to a doctor of 10 000 people:

    >>> import numpy as np
    >>> from egm.study.rivals import gaussian
    >>> rng = np.random.default_rng(1)
    >>> X = rng.normal([47, 2200, 5], [18, 1200, 3], size=(10_000, 3))
    >>> estimate = gaussian(X, rho=0.5, radius=[100, 10_000, 50], rng=rng)
    >>> print(estimate.round(1))
    [  46.6 2188.5   -3.1]
    """
    X, rho, radius = _checked(X, rho, radius, rng)
    center = np.broadcast_to(finite(center=center), radius.shape)
    clip_norm = np.linalg.norm(radius) if clip_norm is None else scalar(positive, clip_norm=clip_norm)
    return center + _clipped_mean(X - center, clip_norm, rho, rng)


def coordinate_median(X: ArrayLike, rho: float, *, radius: ArrayLike, rng: np.random.Generator) -> Array:
    r"""Estimate the mean by a private median of each coordinate.

    The error of this method does not depend on a clip norm. So it is below that of other methods if d is large and
    `rho` is small. For normal data the median has :math:`\pi / 2` times the variance of the mean, even without noise.

    Parameters
    ----------
    X : array_like, shape (n, d)
        Private data, one row for each person, finite, with n >= 2. It is not changed.
    rho : float
        Privacy budget in zCDP, > 0. Each coordinate gets `rho` / d of it.
    radius : float or array_like, shape (d,)
        Public bound on the absolute value of each coordinate of the mean, > 0, in the units of `X`. An
        entry of `X` beyond this bound is clipped to it.
    rng : numpy.random.Generator
        Generator of the random choices, which makes this a simulation.

    Returns
    -------
    ndarray, shape (d,)
        Private estimate of the mean of the rows, in the units of `X`, between -`radius` and `radius`.

    Raises
    ------
    ValueError
        If `X` is not finite or has fewer than two rows, or if a parameter is outside its range.
    TypeError
        If `rng` is not a numpy Generator.

    See Also
    --------
    egm.quantiles.quantile : The private quantile that is used here.

    Notes
    -----
    Each median is drawn by the exponential mechanism. The estimate is `rho`-zCDP for neighbors that
    replace one row [1]_.

    References
    ----------
    .. [1] Cesar and Rogers (2021), "Bounding, Concentrating, and Truncating: Unifying Privacy Loss
       Composition for Data Analytics".

    Examples
    --------
    Age, income and visits to a doctor of 10 000 people:

    >>> import numpy as np
    >>> from egm.study.rivals import coordinate_median
    >>> rng = np.random.default_rng(1)
    >>> X = rng.normal([47, 2200, 5], [18, 1200, 3], size=(10_000, 3))
    >>> estimate = coordinate_median(X, rho=0.5, radius=[100, 10_000, 50], rng=rng)
    >>> print(estimate.round(1))
    [  47.1 2192.2    4.9]
    """
    X, rho, radius = _checked(X, rho, radius, rng)
    return quantile(X, 0.5, -radius, radius, epsilon_of_rho(rho / radius.size), rng)


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
        Generator of the noise, which makes this a simulation.
    sigma : float or array_like, shape (d,), optional
        Standard deviations of the coordinates, > 0, in the units of `X`, if they are known. The whole
        budget of the search is then spent on the center. By default the standard deviations are
        estimated privately.
    search_share : float, default 0.25
        Share of `rho` that is spent to find the center and the spread, in (0, 1).
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

    In these formulas :math:`T` and :math:`\ln d` are taken to be at least 1. The estimate is `rho`-zCDP
    for neighbors that replace one row [1]_.

    The shares and constants are those of the authors' experiments, but their code differs in two points. First, it uses
    each row three times, 0.1 apart, to spread equal values, and counts 3 times the cost for this instead of 9 times.
    Second, it counts the cost of the medians for a row that is added or removed, which halves the sensitivity, but the
    cost of the noise for a row that is replaced. So its search costs 12 times the stated amount. With a nominal budget
    of rho, that code spends 3.75 rho, and its errors on normal data are those of
    ``plan(X, 3.75 * rho, search_share=0.8, ...)``.

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
    X, rho, radius = _checked(X, rho, radius, rng)
    n, d = X.shape
    beta, search = scalar(probability, beta=beta), rho * scalar(probability, search_share=search_share)
    for_center = search * scalar(probability, center_share=center_share) if sigma is None else search
    for_clip = (rho - search) * scalar(probability, clip_share=clip_share)
    center = quantile(X, 0.5, -radius, radius, epsilon_of_rho(for_center / d), rng)
    sigma = _spread(X, radius, (search - for_center) / d, rng) if sigma is None else _sigma(sigma, d)
    scale = 1 / np.sqrt(sigma + np.mean(sigma))
    Y = (X - center) * scale
    width = max(np.log(2 * np.max(radius)), 1.0)
    k = np.sqrt(n) + np.sqrt(width * max(np.log(width / beta), 0.0) / (2 * for_clip))
    largest = np.sqrt(2 * max(np.log(d), 1.0) * np.log(1 / beta) * np.sum(sigma))
    clip_norm = quantile(_norms(Y), max(1 - k / n, 1 / n), 0.0, largest, epsilon_of_rho(for_clip), rng)
    return center + _clipped_mean(Y, clip_norm, rho - search - for_clip, rng) / scale


def huang_liang_yi(
    X: ArrayLike,
    rho: float,
    *,
    radius: ArrayLike,
    rng: np.random.Generator,
    norm_bound: float | None = None,
    search_share: float = 0.25,
    clip_share: float = 0.25,
    slack: float = 1.0,
    steps: int = 20,
    beta: float = 0.1,
) -> Array:
    r"""Estimate the mean by the shifted clipped mean of Huang, Liang and Yi.

    The rows are rotated at random, centered at private medians of the rotated coordinates, and clipped to a private
    quantile of their norms. Their mean, with Gaussian noise, is rotated back. After the rotation all coordinates have
    about the same spread. So the error depends only on the sum of the variances of all coordinates, and the method
    does not benefit from coordinates with a small spread.

    Parameters
    ----------
    X : array_like, shape (n, d)
        Private data, one row for each person, finite, with n >= 2. It is not changed.
    rho : float
        Privacy budget in zCDP, > 0.
    radius : float or array_like, shape (d,)
        Public bound on the absolute value of each coordinate of the mean, > 0, in the units of `X`. It
        is used only for the default of `norm_bound`.
    rng : numpy.random.Generator
        Generator of the rotation and of the noise, which makes this a simulation.
    norm_bound : float, optional
        Public bound R on the l2 norm of the mean, > 0, in the units of `X`. By default it is the norm of
        `radius`. It limits the ranges in which medians and clip norm are searched. A row beyond it is
        shortened to the clip norm like any other.
    search_share : float, default 0.25
        Share of `rho` that is spent on the medians, in (0, 1).
    clip_share : float, default 0.25
        Share of the budget after the medians that is spent to find the clip norm, in (0, 1). The noise
        of the mean gets the rest.
    slack : float, default 1.0
        Number, > 0, to which the number of rows that are clipped is proportional; see Notes.
    steps : int, default 20
        Number of steps of each binary search, >= 1.
    beta : float, default 0.1
        Probability, in (0, 1), with which some coordinate of the rotated mean may lie outside the range in which the
        medians are searched.

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
    The method is that of Section 3 of [1]_. The rows are padded with zeros to a length :math:`d'` that is
    a power of two, get random signs and are multiplied by a Hadamard matrix. Medians and clip norm are
    found by binary searches of `steps` steps with noisy counts. Each median is searched in the range

    .. math:: |x| \le R \sqrt{2 \ln(2 d' / \beta) / d'},

    where R is `norm_bound`, and the clip norm in the interval from 0 to :math:`2 R`. The rank of the clip norm among
    the norms is

    .. math:: n - \mathrm{slack} \left(\sqrt{2 d' / \rho_3}
       + \sqrt{\mathrm{steps} / (2 \rho_{\mathrm{clip}})}\right),

    where :math:`\rho_{\mathrm{clip}}` is the budget of the search for the clip norm and :math:`\rho_3` that of the
    noise of the mean. With this rank noise and clipping cause about the same error. But the rank is only two or three
    standard deviations of a noisy count below n. So sometimes the search takes a wrong step at a point above all
    norms, and the clip norm is many times too large. The published results show this as well.

    The estimate is `rho`-zCDP for neighbors that replace one row [1]_.

    The shares of the budget and the rank are those of the authors' public code. The copy of that code in the
    experiments of PLAN (see `plan`) has ``clip_share=0.01`` and ``slack=2``, which is better for normal data, and
    searches each median at a distance of at most :math:`R / \sqrt{d}` from 0.

    References
    ----------
    .. [1] Huang, Liang and Yi (2021), "Instance-optimal Mean Estimation Under Differential Privacy".

    Examples
    --------
    Age, income and visits to a doctor of 10 000 people:

    >>> import numpy as np
    >>> from egm.study.rivals import huang_liang_yi
    >>> rng = np.random.default_rng(1)
    >>> X = rng.normal([47, 2200, 5], [18, 1200, 3], size=(10_000, 3))
    >>> estimate = huang_liang_yi(X, rho=0.5, radius=[100, 10_000, 50], rng=rng)
    >>> print(estimate.round(1))
    [  46.9 2190.8    5.3]
    """
    X, rho, radius = _checked(X, rho, radius, rng)
    n, d = X.shape
    steps, beta = count(steps=steps), scalar(probability, beta=beta)
    search = rho * scalar(probability, search_share=search_share)
    for_clip = (rho - search) * scalar(probability, clip_share=clip_share)
    padded = 1 << (d - 1).bit_length()
    signs = rng.choice([-1.0, 1.0], padded)
    Z = np.zeros((n, padded))
    Z[:, :d] = X * signs[:d]
    Z = _hadamard(Z)
    bound = np.linalg.norm(radius) if norm_bound is None else scalar(positive, norm_bound=norm_bound)
    reach = np.full(padded, bound * np.sqrt(2 * np.log(2 * padded / beta) / padded))
    center = _binary_search(Z, n / 2, -reach, reach, search, steps, rng)
    Y = Z - center
    above = np.sqrt(2 * padded / (rho - search - for_clip)) + np.sqrt(steps / (2 * for_clip))
    rank = n - scalar(positive, slack=slack) * above
    norms = _norms(Y)[:, None]
    clip_norm = _binary_search(norms, rank, np.zeros(1), np.full(1, 2 * bound), for_clip, steps, rng)[0]
    rotated = center + _clipped_mean(Y, clip_norm, rho - search - for_clip, rng)
    return (_hadamard(rotated[None])[0] * signs)[:d]


def coinpress(
    X: ArrayLike,
    rho: float,
    *,
    radius: ArrayLike,
    rng: np.random.Generator,
    sigma: ArrayLike,
    covariance_steps: int = 0,
    steps: int | None = None,
    beta: float = 0.01,
    clip_probability: float | None = None,
) -> Array:
    r"""Estimate the mean by CoinPress, which shrinks a ball that contains the mean step by step.

    Each step clips the rows to a ball around the last estimate and releases their noisy mean. This mean is
    the center of the next ball, which is smaller.

    Parameters
    ----------
    X : array_like, shape (n, d)
        Private data, one row for each person, finite, with n >= 2. It is not changed.
    rho : float
        Privacy budget in zCDP, > 0.
    radius : float or array_like, shape (d,)
        Public bound on the absolute value of each coordinate of the mean, > 0, in the units of `X`. A row
        beyond this bound is clipped like any other.
    rng : numpy.random.Generator
        Generator of the noise, which makes this a simulation.
    sigma : float or array_like, shape (d,)
        Public bounds on the standard deviations, > 0, in the units of `X`. Rows are divided by them,
        and the covariance matrix of the divided rows must be at most the identity. A user may know the largest standard
        deviation; with the true standard deviations, shape (d,), the method is an oracle.
    covariance_steps : int, default 0
        Number of steps, >= 0, of the paper's private estimate of the covariance. If there
        are any, they spend half of `rho` to find a better bound than `sigma`.
    steps : int, optional
        Number of steps by which the mean is estimated, >= 1. By default it is the number, up to 40, for
        which the last step has the least noise.
    beta : float, default 0.01
        Probability of failure of all steps together, in (0, 1).
    clip_probability : float, optional
        Probability p, in (0, 1), with which a row may be clipped in a step. By default it is
        :math:`\beta_i / n`; see Notes.

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
    The methods are MVMRec and, for the covariance, MVCRec of [1]_. The squared norm of a standard normal
    vector exceeds

    .. math:: g(p)^2 = d + 2 \sqrt{d \ln(1/p)} + 2 \ln(1/p)

    with probability at most p. If the center of the ball is at most r from the mean, rows are clipped to
    the norm

    .. math:: \sqrt{r^2 + 2 r \sqrt{2 \ln(1/p)} + g(p)^2}

    or to :math:`r + g(p)` if that is less. Then r becomes :math:`g(\beta_i) \sqrt{1/n + v}`, where v is
    the variance of the noise. The last step gets 3/4 of the budget, and the steps before it share the rest
    equally; a quarter of `beta` goes to the last step, and another quarter is shared equally by the steps
    before it. No r depends on the rows, other than through the released estimate of the covariance. So the
    best number of steps can be chosen without any cost of privacy. The authors' public code has 0.01 for p
    and for each :math:`\beta_i`.

    The estimate of the covariance is made from n/2 differences of rows, and each of its steps takes time
    :math:`O(n d^2 + d^3)`. It adds noise to :math:`d^2` numbers, and makes the bound worse unless
    :math:`n \sqrt{\rho}` is many times :math:`d^{1.5}`.

    The estimate is `rho`-zCDP for neighbors that replace one row [1]_.

    References
    ----------
    .. [1] Biswas, Dong, Kamath and Ullman (2020), "CoinPress: Practical Private Mean and Covariance
       Estimation".

    Examples
    --------
    Age, income and visits to a doctor of 10 000 people:

    >>> import numpy as np
    >>> from egm.study.rivals import coinpress
    >>> rng = np.random.default_rng(1)
    >>> sigma = [18, 1200, 3]
    >>> X = rng.normal([47, 2200, 5], sigma, size=(10_000, 3))
    >>> estimate = coinpress(X, rho=0.5, radius=[100, 10_000, 50], rng=rng, sigma=sigma)
    >>> print(estimate.round(1))
    [  46.9 2192.8    4.9]
    """
    X, rho, radius = _checked(X, rho, radius, rng)
    n, d = X.shape
    sigma, beta = _sigma(sigma, d), scalar(probability, beta=beta)
    p = None if clip_probability is None else scalar(probability, clip_probability=clip_probability)
    Y, r = X / sigma, np.linalg.norm(radius / sigma)
    if covariance_steps:
        rho = rho / 2
        whitening = _whitening(Y, rho, count(covariance_steps=covariance_steps), beta, rng)
        Y, r = Y @ whitening.T, np.linalg.norm(whitening, 2) * r
    tries = range(1, 41) if steps is None else [count(steps=steps)]
    balls = min((_balls(n, d, r, rho, t, beta, p) for t in tries), key=lambda balls: balls[-1][0] / balls[-1][1] ** 0.5)
    center = np.zeros(d)
    for clip_norm, budget in balls:
        center = center + _clipped_mean(Y - center, clip_norm, budget, rng)
    return sigma * (np.linalg.solve(whitening, center) if covariance_steps else center)


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
    left out, and the mean of the remaining rows gets noise of a variance proportional to :math:`\sigma_j`.

    Parameters
    ----------
    X : array_like, shape (n, d)
        Private data, one row for each person, finite, with n >= 2. It is not changed.
    rho : float
        Privacy budget in zCDP, > 0.
    radius : float or array_like, shape (d,)
        Public bound on the absolute value of each coordinate of the mean, > 0, in the units of `X`. It
        is used only to clip the estimate, unless `center` is given.
    rng : numpy.random.Generator
        Generator of the noise, which makes this a simulation.
    sigma : float or array_like, shape (d,)
        Standard deviations of the coordinates, > 0, in the units of `X`.
    center : float or array_like, shape (d,), optional
        The mean, in the units of `X`, if it is known, which makes the method an oracle. Then rows further
        than :math:`\lambda / \sqrt{2}` from the center are left out (see Notes), all of `rho` is spent on
        the noise of the mean, and `delta` is not spent.
    delta : float, default 1e-6
        Probability, in (0, 1), with which the noise may be larger than the filter of the rows assumes.
    beta : float, default 0.1
        Probability of failure for which the distance :math:`\lambda` is chosen, in (0, 1); see Notes.
    size_share : float, default 0.05
        Share of the budget after the filter that is spent to count the remaining rows, in (0, 1).

    Returns
    -------
    ndarray, shape (d,)
        Private estimate of the mean of the rows, in the units of `X`. It is 0, the middle of the box of
        possible means, if by the noisy count fewer than half of the rows remain.

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
    number of friends, plus noise, exceeds half of n by more than the noise can be. Then any two rows that
    are kept have a friend in common, and the sensitivity of their mean is at most :math:`2 \lambda`
    divided by their number, for which a noisy lower bound is taken.

    Of the budget, the filter gets the part that is necessary to keep normal rows,

    .. math:: 2 (z + z')^2 \frac{n - 1}{(0.9 n - 2)^2},

    but at most 0.9 `rho`. Here z and z' are the normal quantiles that are exceeded with probability
    :math:`\delta / (2 n)` and :math:`1 / (10 n)`. The time is :math:`O(n^2 d)`.

    The estimate is `delta`-approximate `rho`-zCDP for neighbors that replace one row [2]_. This promise is
    weaker than that of the other methods. If `center` is given, it is `rho`-zCDP.

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
    X, rho, radius = _checked(X, rho, radius, rng)
    n, d = X.shape
    sigma, delta, beta = _sigma(sigma, d), scalar(probability, delta=delta), scalar(probability, beta=beta)
    size_share = scalar(probability, size_share=size_share)
    t = np.log(n / beta)
    ball = np.sqrt(np.sum(sigma) + 2 * np.linalg.norm(sigma) * np.sqrt(t) + 2 * np.max(sigma) * t)
    if center is not None:
        center = np.broadcast_to(finite(center=center), d)
        Y = (X - center) / np.sqrt(sigma)
        total = Y[_norms(Y) <= ball].sum(axis=0)
        return center + np.sqrt(sigma) * _gaussian(total / n, 2 * ball / n, rho, rng)
    Y = X / np.sqrt(sigma)
    z = -ndtri(delta / (2 * n))
    for_filter = min(2 * (n - 1) * (z - ndtri(0.1 / n)) ** 2 / max(0.9 * n - 2, 1) ** 2, 0.9 * rho)
    friends = _gaussian(_friends(Y, np.sqrt(2) * ball), np.sqrt(n - 1), for_filter, rng)
    kept = friends > n / 2 + 1 + z * np.sqrt(n - 1) * zcdp_noise_multiplier(for_filter)
    for_size = size_share * (rho - for_filter)
    size = _gaussian(np.array([kept.sum()]), 1.0, for_size, rng)[0]
    size += ndtri(delta / 2) * zcdp_noise_multiplier(for_size)
    if size < n / 2:
        return np.zeros(d)
    mean = Y[kept].mean(axis=0) if kept.any() else np.zeros(d)
    mean = _gaussian(mean, 2 * np.sqrt(2) * ball / size, rho - for_filter - for_size, rng)
    return np.clip(mean * np.sqrt(sigma), -radius, radius)


# --- The parts that they share ----------------------------------------------------------------------------------------


def _gaussian(value: NDArray[Any], sensitivity: Number, rho: float, rng: np.random.Generator) -> Array:
    """Return `value` plus Gaussian noise that makes it private, at the cost `rho` in zCDP.

    `sensitivity` is the largest l2 distance between the values of two neighboring data sets.
    """
    return value + samplers.simulated_gaussian(np.full(value.shape, sensitivity * zcdp_noise_multiplier(rho)), rng)


def _clipped_mean(Y: Array, clip_norm: Number, rho: float, rng: np.random.Generator) -> Array:
    """Return the noisy mean of the rows of Y, each shortened to at most `clip_norm`, at the cost `rho`.

    If one row is replaced, the mean moves by at most 2 * clip_norm / n.
    """
    shortened = clip_norm / np.maximum(_norms(Y), clip_norm)
    return _gaussian(shortened @ Y / len(Y), 2 * clip_norm / len(Y), rho, rng)


def _binary_search(
    columns: Array, rank: float, low: Array, high: Array, rho: float, steps: int, rng: np.random.Generator
) -> Array:
    """Find, for each of the k columns of a matrix (n, k), a point that about `rank` values of the column do not exceed.

    The result is private and costs `rho`. Each of the `steps` steps of the binary search, from `low` to `high`,
    counts values with noise and costs rho / steps. If one row is replaced, every count changes by at most 1, so that
    the counts of a step together have sensitivity sqrt(k). This is PrivQuant of Huang, Liang and Yi (2021).
    """
    for _ in range(steps):
        middle = (low + high) / 2
        counts = np.count_nonzero(columns <= middle, axis=0)
        above = _gaussian(counts, np.sqrt(counts.size), rho / steps, rng) > rank
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return (low + high) / 2


def _spread(X: Array, radius: Array, rho: float, rng: np.random.Generator) -> Array:
    """Estimate the standard deviation of each column privately; each estimate costs `rho`.

    The rows are paired at random. The estimate comes from the private median of half the squared differences in the
    pairs.
    """
    pairs = X[rng.permutation(len(X))[: len(X) // 2 * 2]]
    halves = np.clip(pairs[::2] - pairs[1::2], -2 * radius, 2 * radius) ** 2 / 2
    return np.sqrt(quantile(halves, 0.5, 0.0, 2 * radius**2, epsilon_of_rho(rho), rng) / chdtri(1, 0.5))


def _hadamard(Z: Array) -> Array:
    """Multiply each row of Z, shape (n, 2**k), by the orthogonal Hadamard matrix of this size; return the products.

    The fast algorithm with k passes over Z is used.
    """
    n, d = Z.shape
    half = 1
    while half < d:
        blocks = Z.reshape(n, -1, 2, half)
        Z = np.stack([blocks[:, :, 0] + blocks[:, :, 1], blocks[:, :, 0] - blocks[:, :, 1]], axis=2)
        half *= 2
    return Z.reshape(n, d) / np.sqrt(d)


def _tail(d: int, p: float) -> float:
    """Return a bound that the norm of a standard normal vector of d entries exceeds with probability at most p.

    The bound is called g(p) in the notes of `coinpress`. It is from Lemma 1 of Laurent and Massart (2000).
    """
    t = np.log(1 / p)
    return np.sqrt(d + 2 * np.sqrt(d * t) + 2 * t)


def _budgets(rho: float, steps: int) -> list[float]:
    """Divide `rho` among steps, and return the list of the parts.

    The last step gets 3/4 of `rho`, and the others get equal parts of the rest. A single step gets all.
    """
    return [rho] if steps == 1 else [rho / 4 / (steps - 1)] * (steps - 1) + [0.75 * rho]


def _balls(
    n: int, d: int, r: Number, rho: float, steps: int, beta: float, clip_probability: float | None
) -> list[tuple[float, float]]:
    """Return a list with the clip norm and the budget of each step of CoinPress.

    Before the first step, the mean is known to be in a ball of radius `r`. The notes of `coinpress` have the formulas.
    """
    balls = []
    for i, budget in enumerate(_budgets(rho, steps)):
        beta_i = beta / 4 if i == steps - 1 else beta / (4 * (steps - 1))
        p = clip_probability or beta_i / n
        g = _tail(d, p)
        clip_norm = min(r + g, np.sqrt(r**2 + 2 * r * np.sqrt(2 * np.log(1 / p)) + g**2))
        balls.append((clip_norm, budget))
        r = _tail(d, beta_i) * np.hypot(1 / np.sqrt(n), 2 * clip_norm / n * zcdp_noise_multiplier(budget))
    return balls


def _whitening(X: Array, rho: float, steps: int, beta: float, rng: np.random.Generator) -> Array:
    """Find privately a matrix A, shape (d, d), that makes the covariance matrix of the rows nearly the identity I.

    Let S be the covariance matrix of the rows of X. It must be at most I: the matrix I - S has no negative
    eigenvalue. With probability near 1, A S A.T is then at most I, too; for large n it is also near I. The search has
    several steps and costs `rho`. It is MVCRec of the CoinPress paper.

    The rows are paired at random, and each pair gives a vector w: the difference of its rows, divided by sqrt(2). In
    each step the vectors A w are clipped to a norm g, and the mean of the matrices A w w.T A.T gets symmetric noise.
    If one row is replaced, one of these matrices changes, by at most sqrt(2) g**2 in the Frobenius norm. Noise of
    standard deviation s has the spectral norm 2 s (sqrt(d) + sqrt(ln(1/beta))) at most, with probability 1 - beta;
    this bound replaces a larger one of the paper.
    """
    pairs = X[rng.permutation(len(X))[: len(X) // 2 * 2]]
    differences = (pairs[::2] - pairs[1::2]) / np.sqrt(2)
    n, d = differences.shape
    A, upper = np.eye(d), np.triu_indices(d)
    beta = beta / (4 * steps)
    for budget in _budgets(rho, steps):
        W, g = differences @ A.T, _tail(d, beta / n)
        W *= (g / np.maximum(_norms(W), g))[:, None]
        noisy, sensitivity = np.zeros((d, d)), np.sqrt(2) * g**2 / n
        noisy[upper] = _gaussian((W.T @ W)[upper] / n, sensitivity, budget, rng)
        noise_norm = 2 * sensitivity * zcdp_noise_multiplier(budget) * (np.sqrt(d) + np.sqrt(np.log(1 / beta)))
        sampling = np.sqrt(d / n) + np.sqrt(2 * np.log(2 / beta) / n)
        values, vectors = np.linalg.eigh(noisy, UPLO="U")
        values = np.maximum(values, 0.0) + 2 * sampling + sampling**2 + noise_norm
        A = (vectors / np.sqrt(values)) @ vectors.T @ A
    return A


def _friends(Y: Array, reach: float) -> Array:
    """Return, for each row of Y, the number of rows that are at most `reach` away from it; the row itself counts."""
    Y = Y - np.median(Y, axis=0)
    step = max(1, _BLOCK // len(Y))
    counts = np.empty(len(Y))
    with np.errstate(over="ignore", invalid="ignore"):  # a row whose square overflows has no friends, not even itself
        squares = _norms(Y) ** 2
        for start in range(0, len(Y), step):
            part = slice(start, start + step)
            counts[part] = np.count_nonzero(squares[part, None] + squares - 2 * Y[part] @ Y.T <= reach**2, axis=1)
    return counts


def _norms(Y: Array) -> Array:
    """Return the Euclidean norm of each row of Y, also if the squares of its entries overflow."""
    longest = np.max(np.abs(Y), axis=1)
    unit = np.where(longest > 0, longest, 1.0)
    return unit * np.linalg.norm(Y / unit[:, None], axis=1)


def _checked(X: ArrayLike, rho: float, radius: ArrayLike, rng: np.random.Generator) -> tuple[Array, float, Array]:
    """Check the arguments of a method; return X as a matrix (n, d), rho as a number, and radius as a vector (d,).

    Raise ValueError or TypeError for an argument that is not allowed.
    """
    generator(rng)
    shape = np.shape(X)
    if len(shape) != 2 or shape[0] < 2 or shape[1] < 1:
        raise ValueError(f"X must have shape (n, d) with n >= 2 and d >= 1, got {shape}")
    X, rho, radius = matrix(shape[1], X=X), scalar(positive, rho=rho), positive(radius=radius)
    if radius.shape not in ((), (X.shape[1],)):
        raise ValueError(f"radius must be a number or have the {X.shape[1]} entries of a row, got {radius.shape}")
    return X, rho, np.broadcast_to(radius, X.shape[1])


def _sigma(sigma: ArrayLike, d: int) -> Array:
    """Return standard deviations, which are given as one number or as d numbers, as a vector of d entries."""
    sigma = positive(sigma=sigma)
    if sigma.shape not in ((), (d,)):
        raise ValueError(f"sigma must be a number or have the {d} entries of a row, got shape {sigma.shape}")
    return np.broadcast_to(sigma, d)
