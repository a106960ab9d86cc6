"""Estimate a mean by the shifted clipped mean of Huang, Liang and Yi."""

from __future__ import annotations

import numpy as np

from egm._types import Array, ArrayLike
from egm._validate import count, positive, probability, scalar
from egm.study._rivals import parts


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
    about the same variance. So the error depends only on the sum of the variances of all coordinates, and the method
    does not benefit from coordinates with a small variance.

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
        Generator of the rotation and of the noise, which is simulated and not secure.
    norm_bound : float, optional
        Public bound R on the l2 norm of the mean, > 0, in the units of `X`. By default it is the norm of
        `radius`. It limits the ranges in which medians and clip norm are searched. A row longer than R
        is clipped to the clip norm, like any other row.
    search_share : float, default 0.25
        Share of `rho` that is spent on the medians, in (0, 1).
    clip_share : float, default 0.25
        Share of the budget after the medians that is spent to find the clip norm, in (0, 1). The noise
        of the mean gets the rest.
    slack : float, default 1.0
        Factor, > 0, of the number of rows that are clipped; see Notes.
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

    where :math:`\rho_{\mathrm{clip}}` is the budget of the search for the clip norm and
    :math:`\rho_3` that of the noise of the mean. With this rank, noise and clipping cause about the
    same error. But n is above the rank by only two or three standard deviations of a noisy count.
    So the noisy count at a point above all norms is sometimes below the rank. Then the search goes
    up, and the clip norm is many times too large. The published results show this as well.

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
    X, rho, radius = parts.checked(X, rho, radius, rng)
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
    norms = parts.norms(Y)[:, None]
    clip_norm = _binary_search(norms, rank, np.zeros(1), np.full(1, 2 * bound), for_clip, steps, rng)[0]
    rotated = center + parts.clipped_mean(Y, clip_norm, rho - search - for_clip, rng)
    return (_hadamard(rotated[None])[0] * signs)[:d]


def _binary_search(
    columns: Array, rank: float, low: Array, high: Array, rho: float, steps: int, rng: np.random.Generator
) -> Array:
    """Find, for each of the k columns of a matrix, a point near the `rank`-th smallest value of the column.

    The matrix `columns` has the shape (n, k), and the result has the shape (k,). The result is private and costs `rho`
    in zCDP; `rng` is the random generator of the noise. `low` and `high`, shape (k,), are the ends of the range that is
    searched in each column. Each of the `steps` steps of the binary search counts the values up to the middle of this
    range, with noise, and costs `rho` / `steps`. If one row is replaced, each of the k counts of a step changes by at
    most 1, so the vector of the k counts has the sensitivity sqrt(k). The method is PrivQuant of Huang, Liang and Yi
    (2021).
    """
    for _ in range(steps):
        middle = (low + high) / 2
        counts = np.count_nonzero(columns <= middle, axis=0)
        above = parts.noisy(counts, np.sqrt(counts.size), rho / steps, rng) > rank
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return (low + high) / 2


def _hadamard(Z: Array) -> Array:
    """Multiply each row of the matrix `Z` by the orthogonal Hadamard matrix, and return the products.

    `Z` has the shape (n, 2**k), the Hadamard matrix the shape (2**k, 2**k), and the result the shape of `Z`. The fast
    algorithm goes k times over `Z`.
    """
    n, d = Z.shape
    half = 1
    while half < d:
        blocks = Z.reshape(n, -1, 2, half)
        Z = np.stack([blocks[:, :, 0] + blocks[:, :, 1], blocks[:, :, 0] - blocks[:, :, 1]], axis=2)
        half *= 2
    return Z.reshape(n, d) / np.sqrt(d)
