r"""Make orthonormal bases in which `egm.mechanisms.GaussianDataMechanism` adds noise, and compare their errors.

Where columns are correlated, noise in another basis has a smaller total variance. Lemma 4.1 of
Poulsen's report (2023) compares scalings by the product of two numbers: the mean squared length of
a scaled row, and the total variance that noise of variance 1 in each scaled coordinate has after
the scaling is undone. For normal rows with the covariance matrix :math:`\Sigma`, an orthogonal
matrix U and this lemma's scaling along the rows of U, the product is

.. math::

    \Bigl( \sum_j \sqrt{(U \Sigma U^T)_{jj}} \Bigr)^2.

It is least for the eigenvectors of :math:`\Sigma` (by the theorem of Schur and Horn). But the
variance of the noise is not proportional to the product, because the clip norm is larger than the
root of the mean squared length by a factor that depends on the basis. By default the clip norm is
computed as if the coordinates were independent. Without a basis, the coordinates are the columns.
If these are correlated, the clip norm is too small, and more rows are clipped than intended. Along
the eigenvectors the coordinates are independent, and the clip norm is right. So the eigenvectors
reduce the variance of the noise by less than they reduce the product, but fewer rows are clipped.
If as many rows are clipped with the basis as without it, the variance often falls more than the
product. `compare` gives the whole error.

A basis must be public, unless it is found privately (`egm.adaptive`). It comes from public rows,
from a known covariance matrix, or from the structure of the rows, as the transforms of images and
signals do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from egm import _tables
from egm._basis import Basis, BasisLike, as_basis, covariance_matrix, dct, eigenvectors, given, haar, rotated
from egm._types import Array, ArrayLike
from egm._validate import between, matrix
from egm.forecast import ErrorForecast
from egm.mechanisms import GaussianDataMechanism

__all__ = ["Basis", "compare", "dct", "from_covariance", "from_public", "haar"]

_SHARES = 0.02, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9, 1.0  # weights s of diag(S) that `from_public` tries
_FOLDS = 6  # parts of the public rows, each of which tests a basis from the others
_RANGE = 1e-100, 1e100  # standard deviations, and entries, whose squares and products are doubles
_RARE = 0.5  # least standard deviation without a fold, over that of all rows: a rare value may be in this fold alone
_GAIN = 0.95  # largest expected noise, over that of the columns, for which another basis than the columns is taken


def from_covariance(covariance: ArrayLike) -> Basis:
    """Make the basis of the eigenvectors of a known covariance matrix, in the order of decreasing variances.

    Parameters
    ----------
    covariance : array_like, shape (d, d)
        Public covariance matrix of a row, symmetric and positive definite, with variances from
        1e-200 to 1e200.

    Returns
    -------
    Basis
        The best basis for normal rows. Its field `sigma` has the standard deviations along its
        vectors.

    Raises
    ------
    ValueError
        If `covariance` has another shape, an entry that is not finite or a variance outside its range,
        is not symmetric, or has an eigenvalue that is not positive.

    Examples
    --------
    >>> import numpy as np
    >>> from egm import GaussianDataMechanism, bases
    >>> covariance = 0.9 * np.ones((4, 4)) + 0.1 * np.eye(4)  # each two columns have the correlation 0.9
    >>> basis = bases.from_covariance(covariance)
    >>> basis.sigma.round(3)
    array([1.924, 0.316, 0.316, 0.316])
    >>> options = {"n": 10_000, "epsilon": 1, "delta": 1e-6, "scaling": "optimal"}
    >>> rotated = GaussianDataMechanism(basis.sigma, basis=basis, **options).error(covariance=covariance)
    >>> columns = GaussianDataMechanism(np.ones(4), **options).error(covariance=covariance)
    >>> round(rotated.total / columns.total, 2)
    0.78
    """
    variances, vectors = eigenvectors(covariance_matrix(covariance, singular=False))
    if not variances[0] > 0:
        raise ValueError(f"covariance must be positive definite, but its least eigenvalue is {variances[0]:.3g}")
    return given(vectors.T[::-1], name="eigenvectors", sigma=np.sqrt(variances[::-1]))


def from_public(rows: ArrayLike) -> Basis:
    r"""Make a basis from public rows, even from a few tens, that have nearly the distribution of the private rows.

    Parameters
    ----------
    rows : array_like, shape (m, d)
        Public rows, at least 3. They must not be private.

    Returns
    -------
    Basis
        The eigenvectors of a shrunk covariance matrix, or the columns themselves if no basis is
        expected to reduce the variance of the noise by 5 percent. Its field `sigma` has the standard
        deviations along the vectors.

    Raises
    ------
    ValueError
        If `rows` has fewer than 3 rows, if an entry is not finite or is outside [-1e100, 1e100], or if
        a column is constant or has a standard deviation below 1e-100.
    TypeError
        If `rows` does not hold real numbers.

    Notes
    -----
    The covariance matrix is :math:`(1 - s) S + s \operatorname{diag}(S)`, where S is the sample
    covariance. The share s is chosen by cross-validation, for least expected noise: if the
    eigenvectors U and the standard deviations :math:`\hat\sigma` come from a part of the rows, and
    the remaining rows have the second moments :math:`v_j` along U, the variance of the noise is
    taken to be proportional to :math:`\sum_j v_j / \hat\sigma_j \cdot \sum_j \hat\sigma_j`. The
    standard deviations from few rows tend to be too small. If the remaining rows show this, all
    entries of `sigma` are enlarged by one factor.

    Examples
    --------
    >>> import numpy as np
    >>> from egm import bases
    >>> rng = np.random.default_rng(1)
    >>> rows = rng.normal(size=(30, 1)) + 0.3 * rng.normal(size=(30, 8))  # eight columns that move together
    >>> basis = bases.from_public(rows)
    >>> basis.sigma.round(1)
    array([2.3, 0.5, 0.4, 0.4, 0.4, 0.4, 0.4, 0.3])
    """
    rows = between(-_RANGE[1], _RANGE[1], rows=matrix(None, rows=rows))
    m, d = rows.shape
    if m < 3:
        raise ValueError(f"rows must be at least 3, got {m}")
    spread = np.where(np.ptp(rows, axis=0) > 0, rows.std(axis=0, ddof=1), 0.0)  # std may round 0 up
    if not np.all(spread >= _RANGE[0]):
        j = int(np.argmin(spread))
        found = f"varies by {spread[j]:.3g} only" if spread[j] > 0 else "is constant"
        raise ValueError(f"rows must vary in every column, but column {j} {found}")
    scores = np.zeros((len(_SHARES), 2))  # the noise, and the mean squared length of a scaled row
    for fold in np.array_split(np.random.default_rng(0).permutation(m), min(_FOLDS, m)):
        kept = np.delete(rows, fold, axis=0)
        S, test = np.cov(kept.T).reshape(d, d), rows[fold] - kept.mean(axis=0)
        S[np.diag_indices(d)] = np.maximum(np.diag(S), (_RARE * spread) ** 2)
        for i, share in enumerate(_SHARES):
            U, sigma = _shrunk(S, share)
            scaled = float(np.sum((test @ U.T) ** 2 / sigma)) / (1 + 1 / len(kept))
            scores[i] += scaled * np.sum(sigma) / m, scaled / np.sum(sigma) / m
    best = int(np.argmin(scores[:, 0]))
    if scores[best, 0] > _GAIN * scores[-1, 0]:
        best = len(_SHARES) - 1
    U, sigma = _shrunk(np.cov(rows.T).reshape(d, d), _SHARES[best])
    return given(U, name="public rows", sigma=sigma * max(1.0, float(np.sqrt(scores[best, 1]))))


def _shrunk(S: Array, share: float) -> tuple[Array, Array]:
    """Return the eigenvectors, as rows, and the standard deviations of the covariance matrix `S` after shrinking.

    The shrunk matrix is (1 - share) S + share diag(S). If `share` is 1, the vectors are the unit vectors, in the order
    of the columns.
    """
    if share == 1:
        return np.eye(len(S)), np.sqrt(np.diag(S))
    U = eigenvectors((1 - share) * S + share * np.diag(np.diag(S)))[1].T[::-1]
    along, apart = np.sum((U @ S) * U, axis=1), U**2 @ np.diag(S)
    return U, np.sqrt(
        (1 - share) * np.maximum(along, 0) + share * apart
    )  # an eigenvalue has the largest one's rounding


def compare(
    bases: Mapping[str, Any], covariance: ArrayLike, n: int, epsilon: float, delta: float, **options: Any
) -> dict[str, ErrorForecast]:
    """Forecast the error of a released sum in each of several bases, for rows with a known covariance matrix.

    Parameters
    ----------
    bases : mapping of str to basis
        The bases by name, each as `GaussianDataMechanism` takes it; None stands for the columns.
    covariance : array_like, shape (d, d)
        Public covariance matrix of a row, with variances from 1e-200 to 1e200. A table with names is
        put into the order of the option `columns`, which by default has these names.
    n : int
        Number of rows.
    epsilon : float
        Privacy parameter, > 0.
    delta : float
        Privacy parameter, in (0, 1).
    **options : dict
        Further arguments of `GaussianDataMechanism`, such as `scaling`.

    Returns
    -------
    dict of str to ErrorForecast
        The exact forecast for normal rows in each basis, in the order of increasing error. So the
        first name is that of the basis to take.

    Raises
    ------
    ValueError
        If a basis or another argument is refused by the mechanism, or if the names of `covariance`
        are not those of the option `columns`.

    Notes
    -----
    In each basis the mechanism gets the standard deviations that follow from `covariance`. If
    `covariance` and a basis come from the same few public rows, this basis looks better than it is;
    `from_public` avoids this.

    Examples
    --------
    A row is a series of 8 values, each correlated with its neighbors.

    >>> import numpy as np
    >>> from egm import bases
    >>> covariance = 0.9 ** np.abs(np.subtract.outer(np.arange(8), np.arange(8)))
    >>> choice = {"columns": None, "dct": "dct", "haar": "haar"}
    >>> found = bases.compare(choice, covariance, 10_000, epsilon=1, delta=1e-6)
    >>> {name: round(forecast.total / found["columns"].total, 2) for name, forecast in found.items()}
    {'dct': 0.88, 'haar': 0.91, 'columns': 1.0}
    """
    names = _tables.column_names(covariance) or ()
    options["columns"] = _tables.declared(options.get("columns"), covariance=dict.fromkeys(names))
    covariance = covariance_matrix(_tables.ordered_square(options["columns"], covariance=covariance))
    found = {}
    for name, basis in bases.items():
        one: BasisLike | None = None if basis is None else as_basis(basis, len(covariance))
        variances = np.diag(covariance if one is None else rotated(one, covariance))
        mechanism = GaussianDataMechanism(np.sqrt(variances), n, epsilon, delta, basis=one, **options)
        found[name] = mechanism.error(covariance=covariance, mean=mechanism.center)
    return dict(sorted(found.items(), key=lambda item: item[1].total))
