"""Estimate a matrix of second moments by the method of Dong, Liang and Yi."""

from __future__ import annotations

import numpy as np

from egm._types import Array, ArrayLike
from egm._validate import positive, probability, scalar
from egm.study._rivals import parts

_TRACE, _SEARCH = 1 / 8, 1 / 8  # shares of the budget for the mean squared norm and for the clip norm
_DEEPEST = 80  # number of clip norms that are tried, each half as large as the one before


def second_moments(X: ArrayLike, rho: float, *, clip_norm: float, rng: np.random.Generator, beta: float = 0.1) -> Array:
    r"""Estimate the matrix of second moments of the rows by AdaptiveCov: clip the rows, then add noise to the matrix.

    Unlike the other functions of `egm.study.rivals`, this one does not estimate a mean. It is for rows whose mean
    is known to be zero, such as differences of rows.

    Parameters
    ----------
    X : array_like, shape (n, d)
        Private data, one row for each person, finite, with n >= 2 and d >= 2. It is not changed.
    rho : float
        Privacy budget in zCDP, > 0.
    clip_norm : float
        Public bound on the norm of a row, > 0, in the units of `X`. Longer rows are clipped to it.
    rng : numpy.random.Generator
        Generator of the noise, which is simulated and not secure.
    beta : float, default 0.1
        Probability, in (0, 1), with which the bounds of the method may fail.

    Returns
    -------
    ndarray, shape (d, d)
        Private estimate of the mean of :math:`x x^{\mathsf T}` over the rows x, in squared units of `X`. It
        is symmetric and has no negative eigenvalue.

    Raises
    ------
    ValueError
        If `X` is not finite or has fewer than two rows or columns, or if a parameter is outside its range.
    TypeError
        If `rng` is not a numpy Generator.

    Notes
    -----
    The method is AdaptiveCov of [1]_. Rows are divided by `clip_norm`. A noisy mean of their
    squared norms costs an eighth of `rho`. Another eighth is spent on a search with the sparse vector
    technique. The search tries the clip norms 1, 1/2, 1/4, ..., until clipping would cause a larger
    error than the noise. The rows are then clipped to twice the norm at which the search ends. The
    rest of `rho` is spent on the matrix of second moments, in one of two ways: that with the
    smaller bound of the error. The first way adds noise to all entries. The second way spends half
    of the rest on a noisy matrix, only for its eigenvectors, and half on noisy eigenvalues.

    The constants are those of the authors' public code, which does not exceed its budget. That code differs from
    this function in three points. Its search takes the noise in all entries to be proportional to the clip norm, not
    to the square of the clip norm. And if the noise makes an eigenvalue negative, that code uses a singular vector
    of the wrong sign, so that its estimate has a negative eigenvalue there. Last, it chooses between its two ways
    by their bounds at the norm where the search ends, which is half of the clip norm.

    The estimate is `rho`-zCDP for neighbors that replace one row [1]_.

    References
    ----------
    .. [1] Dong, Liang and Yi (2022), "Differentially Private Covariance Revisited".

    Examples
    --------
    >>> import numpy as np
    >>> from egm.study.rivals import second_moments
    >>> rng = np.random.default_rng(1)
    >>> X = rng.normal(size=(10_000, 2)) @ [[3.0, 1.0], [0.0, 1.0]]
    >>> print(second_moments(X, rho=0.5, clip_norm=20.0, rng=rng).round())  # true: 9, 3, 2
    [[9. 3.]
     [3. 2.]]
    """
    Y, rho, _ = parts.checked(X, rho, 1.0, rng)
    n, d = Y.shape
    if d < 2:
        raise ValueError(f"X must have at least two columns, got {d}")
    unit, beta = scalar(positive, clip_norm=clip_norm), scalar(probability, beta=beta)
    Y = Y * (1 / np.maximum(parts.norms(Y), unit))[:, None]  # norms are at most 1 from here on
    squares = np.minimum(parts.norms(Y) ** 2, 1.0)
    trace = float(parts.noisy(np.array([np.mean(squares)]), 1 / n, _TRACE * rho, rng)[0])
    trace = float(np.clip(trace + np.sqrt(8 / rho * np.log(8 / beta)) / n, 1e-16, 1.0))
    left = (1 - _TRACE - _SEARCH) * rho
    whole, linear, square = _errors(n, d, left, trace, 0.75 * beta)
    norms: Array = 2.0 ** -np.arange(float(_DEEPEST))
    noise = np.minimum(whole * norms**2, linear * norms + square * norms**2)
    norm = min(2 * norms[_first(_lost(squares, norms) - n * noise, np.sqrt(_SEARCH * 2 * rho), rng)], 1.0)
    Y = Y * (norm / np.maximum(parts.norms(Y), norm))[:, None]
    moments, sensitivity = Y.T @ Y / n, np.sqrt(2) * norm**2 / n
    if whole * norm**2 <= linear * norm + square * norm**2:
        values, vectors = np.linalg.eigh(_noisy(moments, sensitivity, left, rng))
    else:
        _, vectors = np.linalg.eigh(_noisy(moments, sensitivity, left / 2, rng))
        values = parts.noisy(np.linalg.eigvalsh(moments), sensitivity, left / 2, rng)
    return (vectors * np.clip(values, 0.0, norm**2)) @ vectors.T * unit**2


def _errors(n: int, d: int, rho: float, trace: float, beta: float) -> tuple[float, float, float]:
    """Return three factors a, b, c for bounds of the error of second moments, in the Frobenius norm.

    Rows have the norm t or less. If all entries get noise, the bound is a t**2. If eigenvectors and eigenvalues are
    released separately, it is b t + c t**2. There are `n` rows of `d` entries, the budget is `rho`, `trace` is the mean
    squared norm of the rows, and `beta` is the probability with which a bound may fail.
    """
    log, part = np.log(2 / beta), min((np.log(d) / d) ** 0.3, 0.5)
    whole = np.sqrt(d**2 + 2 * np.sqrt(d * log) * (1 + np.sqrt(2 * (d - 1))) + 6 * log) / np.sqrt(rho) / n
    spectral = (1 + part) * (2 * np.sqrt(d) + 6 * np.sqrt(np.log(d)) / np.sqrt(np.log(1 + part)))
    spectral += np.sqrt(2 * np.log(4 / beta))
    linear = 2**1.25 * np.sqrt(trace / n * spectral) / rho**0.25 / 6
    square = np.sqrt(2 * (d + 2 * np.sqrt(d * log) + 2 * log)) / np.sqrt(rho) / n
    return float(whole), float(linear), float(square)


def _lost(squares: Array, norms: Array) -> Array:
    """Return, for each norm t in `norms`, a bound on the error of the sum of x x.T over rows x that are clipped to t.

    The bound is the sum of max(s - t**2, 0) over the squared norms s of the rows, given as `squares`, which are at
    most 1. The norms t are 1, 1/2, 1/4, ..., and each s is first rounded up to the square of one of them. So a replaced
    row changes each of the bounds by at most 1.
    """
    bins = np.clip(np.floor(-np.log2(np.maximum(squares, 1e-300)) / 2), 0, len(norms) - 1).astype(int)
    counts = np.bincount(bins, minlength=len(norms))
    above = np.cumsum(counts) - counts  # number of squares above the square of each norm
    return np.cumsum(counts * norms**2) - counts * norms**2 - above * norms**2


def _first(scores: Array, epsilon: float, rng: np.random.Generator) -> int:
    """Return privately the index of the first of the `scores` above 0, or the last index if none is above 0.

    This is the sparse vector technique. It is epsilon-differentially private if a replaced row changes each score by at
    most 1 (Dwork and Roth 2014, Theorem 3.23), and so costs epsilon**2 / 2 in zCDP. `rng` draws the noise.
    """
    threshold = rng.laplace(scale=2 / epsilon)
    above = np.flatnonzero(scores + rng.laplace(scale=4 / epsilon, size=scores.size) >= threshold)
    return int(above[0]) if above.size else scores.size - 1


def _noisy(moments: Array, sensitivity: float, rho: float, rng: np.random.Generator) -> Array:
    """Return the symmetric matrix `moments` plus symmetric noise, which makes it private at the cost `rho` in zCDP.

    `sensitivity` is the largest change of the matrix in the Frobenius norm, if one row is replaced. `rng` draws the
    noise.
    """
    upper = np.triu_indices(len(moments))
    found = np.zeros_like(moments)
    found[upper] = parts.noisy(moments[upper], sensitivity, rho, rng)
    return found + np.triu(found, 1).T
