r"""Estimate how columns are correlated from noisy second moments, for `egm.adaptive`.

Let the rows have standardized columns, so that their second moments are the correlation matrix R. Independent noise of
standard deviation t in the entries of a symmetric matrix has eigenvalues up to :math:`2 t \sqrt d`. Only eigenvalues of
R - I above half of this bound can be seen in the noise: in the noisy matrix they are above the whole bound, with other
eigenvectors. If an eigenvalue of a matrix of low rank becomes y in the noisy matrix, the estimate
:math:`\sqrt{y^2 - 4 t^2 d}` with the eigenvector of the noisy matrix has, for large d, the least squared error of all
estimates with this vector. (Gavish and Donoho 2017 prove this rule for the singular values of a square matrix; chapter
17 of the project's book has it for a symmetric one.) So only eigenvectors of the noisy matrix are kept whose
eigenvalues, positive or negative, are larger in size than the whole bound.

What the estimate of R says of small eigenvalues is mostly noise. So the variances along its eigenvectors are measured
next. The unit of each measurement is a guess of the standard deviation along the eigenvector, computed from the
estimate. A unit that is too large costs little. One that is too small makes rows seem very long, and then the measured
variances are wrong. So no unit is below the standard deviation for an eigenvalue of a tenth of the bound.
"""

from __future__ import annotations

import math

import numpy as np

from egm._types import Array

__all__ = ["correlation", "units"]

_EDGE = 1.05  # factor by which the largest eigenvalue of the noise may exceed its limit for large d
_LEAST = 1e-3  # least eigenvalue of an estimated correlation matrix
_UNKNOWN = 0.1  # least eigenvalue for the units of a measurement, over the largest eigenvalue of the noise


def correlation(moments: Array, std: float, n: int) -> Array:
    """Estimate a correlation matrix, shape (d, d), from noisy second moments of `n` rows with standardized columns.

    `moments` is the symmetric matrix of the noisy moments. `std` is the standard deviation of the noise in each entry
    above the diagonal. A common factor of all moments and of `std` does not change the result, and clipping of the rows
    acts nearly as such a factor. The estimate allows for the noise and for the sampling error of `n` rows.
    """
    d, unit = len(moments), _unit(moments, std)
    values, vectors = np.linalg.eigh((moments - np.diag(np.diag(moments))) / unit)
    edge = _edge(d, std / unit, n)
    kept = np.sign(values) * np.sqrt(np.maximum(values**2 - edge**2, 0.0))
    found = (vectors * kept) @ vectors.T
    found[np.diag_indices(d)] = 1.0
    values, vectors = np.linalg.eigh(found)
    found = (vectors * np.maximum(values, _LEAST)) @ vectors.T
    spread = np.sqrt(np.diag(found))
    return np.asarray(found / spread / spread[:, None])


def units(moments: Array, std: float, n: int, spread: Array, vectors: Array) -> Array:
    """Return the least allowed unit for the measurement of the variance along each eigenvector, shape (d,).

    The columns of `vectors` are the eigenvectors of an estimated covariance matrix. Before the variances along them are
    measured, the coordinates of the rows are divided by units, which are guesses of their standard deviations. A guess
    that is far too small because of noise would make rows seem very long, and so no guess may be below the result.
    `moments` is a noisy matrix of second moments of `n` rows with standardized columns, `std` is the standard deviation
    of the noise in an entry above the diagonal, and `spread` has the standard deviations of the columns.
    """
    edge = _edge(len(moments), std / _unit(moments, std), n)
    bounds: Array = np.sqrt(_UNKNOWN * edge * np.sum((spread[:, None] * vectors) ** 2, axis=0))
    return bounds


def _unit(moments: Array, std: float) -> float:
    """Return the unit of the noisy second moments `moments`: the mean of the diagonal, but at least a positive number.

    For exact second moments of standardized columns the mean is 1. Noise could make it nearly zero or negative, and the
    moments are divided by the result. So the result is at least `std` / sqrt(d), about the standard deviation of the
    noise in the mean, where `std` is that of the noise in one entry and d the number of columns.
    """
    d = len(moments)
    return max(float(np.trace(moments)), math.sqrt(d) * std) / d


def _edge(d: int, std: float, n: int) -> float:
    """Return the largest eigenvalue of R - I that is likely if the `d` columns of the data are uncorrelated.

    R is a measured correlation matrix, shape (d, d), and I is the identity matrix. Each entry of R has the sum of two
    errors: noise with the standard deviation `std`, and the sampling error of `n` rows, with the standard deviation 1 /
    sqrt(n).
    """
    return _EDGE * 2 * math.sqrt(d * (std**2 + 1 / n))
