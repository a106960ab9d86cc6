"""Estimate a mean by a clipped mean or by a median of each coordinate."""

from __future__ import annotations

import numpy as np

from egm import quantiles
from egm._types import Array, ArrayLike, Number
from egm._validate import finite, positive, scalar
from egm.quantiles import epsilon_of_rho
from egm.study._rivals import parts


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

    With the true center and the best `clip_norm`, which no analyst knows, this method is an oracle. It is
    then hard to beat by a method that has to find both of them.

    Parameters
    ----------
    X : array_like, shape (n, d)
        Private data, one row for each person, finite, with n >= 2. It is not changed.
    rho : float
        Privacy budget in zCDP, > 0.
    radius : float or array_like, shape (d,)
        Public bound on the absolute value of each coordinate of the mean, > 0, in the units of `X`.
    rng : numpy.random.Generator
        Generator of the noise, which is simulated and not secure.
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
    X, rho, radius = parts.checked(X, rho, radius, rng)
    center = np.broadcast_to(finite(center=center), radius.shape)
    clip_norm = np.linalg.norm(radius) if clip_norm is None else scalar(positive, clip_norm=clip_norm)
    return center + parts.clipped_mean(X - center, clip_norm, rho, rng)


def coordinate_median(X: ArrayLike, rho: float, *, radius: ArrayLike, rng: np.random.Generator) -> Array:
    r"""Estimate the mean by a private median of each coordinate.

    The method needs no clip norm, and its error is below that of other methods if d is large and `rho` is small. For
    normal data the median has :math:`\pi / 2` times the variance of the mean, even without noise.

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
        Generator of the random choices, which are simulated and not secure.

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
    X, rho, radius = parts.checked(X, rho, radius, rng)
    return quantiles.quantile(X, 0.5, -radius, radius, epsilon_of_rho(rho / radius.size), rng)
