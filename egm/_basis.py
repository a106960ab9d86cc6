"""Hold an orthonormal basis for the rows of a table, as a matrix or as a fast transform, and multiply rows by it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from egm._types import Array, ArrayLike
from egm._validate import between, count, finite, real, scalar, vector

__all__ = [
    "Basis",
    "BasisLike",
    "Operator",
    "as_basis",
    "checked",
    "covariance_matrix",
    "dct",
    "eigenvectors",
    "given",
    "haar",
    "of_columns",
    "rotated",
]

_SLACK = 1e-5  # largest entry of U U^T - I for which a matrix counts as orthogonal, up to the rounding of its entries
_ROUNDING = 1e-13  # largest such entry for a matrix that is orthogonal up to the rounding of doubles
_PROBES = 4  # random vectors with which an operator is tested
_AT_ONCE = 1 << 20  # numbers in a block of unit vectors
_RECORDED = 1e-6  # relative error up to which the entries of a covariance matrix may be rounded
_LEAST = 1e-12  # least eigenvalue of a correlation matrix that is not a rounding error
_UNEQUAL = 1e6  # ratio of the largest variance to the least from which the order of columns matters to eigh


@dataclass(frozen=True, eq=False)
class Basis:
    r"""Orthonormal basis for the rows of a table, given by an orthogonal matrix for each axis of a row.

    The functions of `egm.bases` make such objects.

    Parameters
    ----------
    shape : tuple of int
        Shape of a row as an array, for example (8, 8) for an image of 64 pixels. The product of its
        entries is d, the number of columns.
    factors : tuple of ndarray or None
        For each axis of `shape` an orthogonal matrix whose rows are the vectors of the basis, or
        None for an axis that stays as it is. A matrix may be rounded to six digits or more; it is
        replaced by the nearest orthogonal matrix.
    name : str
        Name of the basis, which messages show.
    sigma : ndarray, shape (d,), optional
        Standard deviations of a row along the vectors of the basis, if they are known or estimated,
        for use as the `sigma` of a mechanism: finite numbers > 0.

    Raises
    ------
    ValueError
        If `shape` has no axis or an axis without entries, if `factors` does not have one entry for
        each axis, if a factor is not an orthogonal matrix of the right shape, up to rounding to six
        digits, or if `sigma` does not have d numbers that are finite and > 0.
    TypeError
        If `shape`, a factor or `sigma` is not made of real numbers.

    Notes
    -----
    The matrix of the basis is the Kronecker product :math:`U = F_1 \otimes F_2 \otimes \cdots` of the
    factors. A product with U takes :math:`d \sum_k m_k` multiplications for axes of :math:`m_k`
    entries, and does not need an array of d times d numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from egm import bases
    >>> basis = bases.dct((2, 2))
    >>> basis
    Basis('dct', shape=(2, 2))
    >>> basis.forward([1, 1, 1, 1]).round(9)  # an image of one color
    array([2., 0., 0., 0.])
    >>> basis.inverse([2, 0, 0, 0]).round(9)
    array([1., 1., 1., 1.])
    """

    shape: tuple[int, ...]
    factors: tuple[Array | None, ...]
    name: str
    sigma: Array | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        shape = _lengths(self.shape)
        if len(self.factors) != len(shape):
            raise ValueError(f"factors must have one entry for each axis of the shape {shape}, got {len(self.factors)}")
        sigma = None if self.sigma is None else vector(sigma=self.sigma)
        if sigma is not None and sigma.size != math.prod(shape):
            raise ValueError(f"sigma must have an entry for each of the {math.prod(shape)} vectors, got {sigma.size}")
        pairs = zip(shape, self.factors, strict=True)
        factors = tuple(None if factor is None else _factor(m, factor) for m, factor in pairs)
        self.__setstate__({"shape": shape, "factors": factors, "sigma": sigma})

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Set the fields in `state`, {name: value}, to read-only copies of the arrays: a basis never changes."""
        for name, value in state.items():
            if name == "factors":
                value = tuple(None if factor is None else _fixed(factor) for factor in value)
            elif name == "sigma" and value is not None:
                value = _fixed(value)
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return f"Basis({self.name!r}, shape={self.shape})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Basis) and self._content == other._content

    def __hash__(self) -> int:
        return hash(self._content)

    @property
    def _content(self) -> tuple[Any, ...]:
        """Return the tuple by which two bases are compared: the shape and the factors, but not `name` or `sigma`."""
        return self.shape, tuple(None if factor is None else factor.tobytes() for factor in self.factors)

    @property
    def size(self) -> int:
        """Return d, the number of vectors of the basis."""
        return math.prod(self.shape)

    @property
    def matrix(self) -> Array:
        """Return the orthogonal matrix U of the basis, shape (d, d), whose rows are its vectors."""
        return np.ascontiguousarray(self.inverse(np.eye(self.size)))

    def forward(self, rows: ArrayLike) -> Array:
        """Return the coordinates of rows along the vectors of the basis.

        Parameters
        ----------
        rows : array_like, shape (..., d)
            One row, or several rows.

        Returns
        -------
        ndarray, shape (..., d)
            The product U x for each row x.

        Examples
        --------
        >>> from egm import bases
        >>> bases.haar(2).forward([[3, 1], [2, 2]]).round(3)
        array([[2.828, 1.414],
               [2.828, 0.   ]])
        """
        return self._product(rows, [None if factor is None else factor.T for factor in self.factors])

    def inverse(self, rows: ArrayLike) -> Array:
        """Return the rows whose coordinates along the vectors of the basis are given.

        Parameters
        ----------
        rows : array_like, shape (..., d)
            Coordinates z of one row, or of several rows.

        Returns
        -------
        ndarray, shape (..., d)
            The product of the transposed matrix and z, for each z.

        Examples
        --------
        >>> from egm import bases
        >>> basis = bases.haar(4)
        >>> basis.inverse(basis.forward([1, 2, 3, 4])).round(9)
        array([1., 2., 3., 4.])
        """
        return self._product(rows, self.factors)

    def variances(self, variances: ArrayLike) -> Array:
        """Return the variances of the entries of a row whose coordinates along the basis are uncorrelated.

        Parameters
        ----------
        variances : array_like, shape (..., d)
            Variances of the coordinates along the vectors of the basis.

        Returns
        -------
        ndarray, shape (..., d)
            The variance of each entry of the row.

        Examples
        --------
        >>> from egm import bases
        >>> bases.haar(2).variances([3, 1]).round(9)
        array([2., 2.])
        """
        return self._product(variances, [None if factor is None else factor**2 for factor in self.factors])

    def std(self, covariance: ArrayLike) -> Array:
        """Return the standard deviations along the vectors of the basis, for rows with a known covariance matrix.

        Parameters
        ----------
        covariance : array_like, shape (d, d)
            Covariance matrix of a row.

        Returns
        -------
        ndarray, shape (d,)
            Standard deviations of the coordinates of a row along the basis.

        Raises
        ------
        ValueError
            If `covariance` has another shape, an entry that is not finite, or a negative eigenvalue,
            or if it is not symmetric, up to rounding to six digits; or if a variance is neither 0
            nor from 1e-200 to 1e200.

        Examples
        --------
        >>> from egm import bases
        >>> bases.haar(2).std([[1, 0.8], [0.8, 1]]).round(3)
        array([1.342, 0.447])
        """
        return std_along(self, covariance)

    def _product(self, rows: ArrayLike, factors: Sequence[Array | None]) -> Array:
        """Return `rows`, each reshaped to `self.shape`, multiplied by a matrix along every axis, and flattened again.

        For each axis, `factors` has a matrix F, or None if the axis stays as it is. Each vector v along the axis is
        replaced by the product v F.
        """
        rows = finite(rows=rows)
        if rows.shape[-1:] != (self.size,):
            raise ValueError(f"rows must have the {self.size} columns of the basis, got shape {rows.shape}")
        found = rows.reshape(rows.shape[:-1] + self.shape)
        for axis, factor in enumerate(factors, start=-len(factors)):
            if factor is not None:
                found = np.moveaxis(np.moveaxis(found, axis, -1) @ factor, -1, axis)
        return found.reshape(rows.shape)

    @property
    def plan(self) -> tuple[Array, NDArray[np.int64]]:
        """Return the matrices of the basis as `egm._rows.kernel` needs them: all entries in one vector, and a table.

        The table has one row (before, m, after) for each axis that has a matrix: m is the length of the axis, and
        `before` and `after` are the products of the lengths of the axes before and after it.
        """
        steps, entries, before = [], [], 1
        for m, factor in zip(self.shape, self.factors, strict=True):
            if factor is not None:
                steps.append((before, m, self.size // (before * m)))
                entries.append(factor.ravel())
            before *= m
        empty = np.empty((0, 3), dtype=np.int64)
        return np.concatenate([np.empty(0), *entries]), np.array(steps, dtype=np.int64) if steps else empty


@dataclass(frozen=True)
class Operator:
    """Orthonormal basis that an operator defines, such as a `scipy.sparse.linalg.LinearOperator`.

    The method ``matvec`` of `operator` multiplies a vector by the matrix of the basis, and ``rmatvec`` by the
    transposed matrix. Rows are multiplied one by one, so that the result for a row cannot depend on other rows.
    """

    operator: Any
    sigma = None

    @property
    def size(self) -> int:
        """Return d, the number of vectors of the basis."""
        return int(self.operator.shape[0])

    def forward(self, rows: ArrayLike) -> Array:
        """Return the coordinates of `rows`, shape (..., d), along the vectors of the basis."""
        return _each(self.operator.matvec, rows)

    def inverse(self, rows: ArrayLike) -> Array:
        """Return the rows whose coordinates along the vectors of the basis are `rows`, shape (..., d)."""
        return _each(self.operator.rmatvec, rows)

    def variances(self, variances: ArrayLike) -> Array:
        """Return the variances of the entries of a row whose coordinates along the basis are uncorrelated.

        `variances` has the variances of these coordinates.
        """
        found, d = np.zeros(self.size), self.size
        step = max(1, _AT_ONCE // d)
        for start in range(0, d, step):
            unit = np.eye(min(step, d - start), d, start)
            found += np.asarray(variances)[start : start + step] @ self.inverse(unit) ** 2
        return found

    def std(self, covariance: ArrayLike) -> Array:
        """Return the standard deviations along the basis, for rows with the covariance matrix `covariance`."""
        return std_along(self, covariance)


BasisLike: TypeAlias = Basis | Operator


def _each(function: Any, rows: ArrayLike) -> Array:
    """Return an array with function(row) for each row of the array `rows`, shape (..., d)."""
    rows = np.asarray(rows, dtype=float)
    flat = rows.reshape(-1, rows.shape[-1])
    return np.array([np.asarray(function(row), dtype=float).ravel() for row in flat]).reshape(rows.shape)


def covariance_matrix(covariance: ArrayLike, *, singular: bool = True) -> Array:
    """Check that `covariance` is a covariance matrix, up to rounding, and return it as a symmetric array.

    Raise a ValueError for a matrix that is not square or not symmetric, for an entry that is not finite, for a variance
    that is not from 1e-200 to 1e200, for a negative eigenvalue and, if `singular` is false, for an eigenvalue of zero.
    """
    given = finite(covariance=covariance)
    if given.ndim != 2 or given.shape[0] != given.shape[1] or not given.size:
        raise ValueError(f"covariance must be a square matrix, got shape {given.shape}")
    variances = between(1e-200, 1e200, **{"the diagonal of covariance": np.diag(given)})
    with np.errstate(over="ignore"):  # such a matrix is refused below
        correlation = given / np.sqrt(variances) / np.sqrt(variances)[:, None]
    i, j = divmod(int(np.argmax(np.abs(correlation))), len(correlation))
    if not abs(correlation[i, j]) <= 1 + _RECORDED:
        raise ValueError(
            "covariance must have no entry above the product of the two columns' standard deviations, but the "
            f"correlation of columns {i} and {j} is {correlation[i, j]:.3g}"
        )
    if np.max(np.abs(correlation - correlation.T)) > _RECORDED:
        raise ValueError("covariance must be symmetric")
    least = float(np.linalg.eigvalsh(correlation)[0])
    if least < -_RECORDED:
        raise ValueError(f"covariance must have no negative eigenvalue, but its correlation matrix has {least:.3g}")
    if not singular and least <= _LEAST:
        raise ValueError(
            f"covariance must be positive definite, but its correlation matrix has the eigenvalue {least:.3g}"
        )
    return np.asarray((given + given.T) / 2)


def eigenvectors(covariance: Array) -> tuple[Array, Array]:
    """Return the eigenvalues of the symmetric matrix `covariance`, in ascending order, and the eigenvectors as columns.

    If the columns have very different variances, `numpy.linalg.eigh` computes the small eigenvalues accurately only if
    the variances decrease from column to column. So such columns are sorted first, and the entries of the eigenvectors
    are then put back into the given order. The eigenvectors are more accurate than the eigenvalues, for which the
    variances along the eigenvectors are returned.
    """
    variances = np.diag(covariance)
    if np.max(variances) <= _UNEQUAL * np.min(variances):
        found = np.linalg.eigh(covariance)
        return found.eigenvalues, found.eigenvectors
    order = np.argsort(-variances)
    vectors = np.linalg.eigh(covariance[np.ix_(order, order)]).eigenvectors[np.argsort(order)]
    along = np.sum(vectors * (covariance @ vectors), axis=0)
    order = np.argsort(along)
    return along[order], vectors[:, order]


def rotated(basis: BasisLike, covariance: ArrayLike) -> Array:
    """Return the covariance matrix of the coordinates along `basis`, where `covariance` is that of the columns.

    A variance that is less than the rounding errors, or negative because of them, is raised to their size.
    """
    found = _rotated(basis, covariance)
    variances = np.diagonal(found)
    np.fill_diagonal(found, np.maximum(variances, basis.size * 2.0**-52 * np.max(variances)))
    return found


def _rotated(basis: BasisLike, covariance: ArrayLike) -> Array:
    """Return the covariance matrix of the coordinates along `basis`, where `covariance` is that of the columns.

    Because of rounding errors, a variance may be negative, and the matrix may be slightly asymmetric.
    """
    return basis.forward(basis.forward(_of_size(basis, covariance)).T)


def _of_size(basis: BasisLike, covariance: ArrayLike) -> Array:
    """Return `covariance` as an array of finite numbers, or raise a ValueError if it is not as large as `basis`."""
    found = finite(covariance=covariance)
    if found.shape != (basis.size, basis.size):
        raise ValueError(f"covariance must have shape ({basis.size}, {basis.size}), got {found.shape}")
    return found


def std_along(basis: BasisLike, covariance: ArrayLike) -> Array:
    """Return the standard deviations along the vectors of `basis`, for rows with the covariance matrix `covariance`.

    Raise a ValueError for a matrix that is no covariance matrix; columns of zeros are allowed.
    """
    given = _of_size(basis, covariance)
    constant = ~(given.any(axis=0) | given.any(axis=1))
    covariance_matrix(given + np.diag(constant))  # a column of zeros is refused there, and may have any variance
    return np.sqrt(np.maximum(np.diagonal(_rotated(basis, given)), 0.0))


def of_columns(basis: BasisLike | None, std: Array) -> Array:
    """Return the standard deviations of the columns of rows whose coordinates along `basis` are uncorrelated.

    `std` has the standard deviations of the coordinates. If `basis` is None, the coordinates are the columns.
    """
    return std if basis is None else np.sqrt(basis.variances(std**2))


def as_basis(basis: object, d: int) -> BasisLike:
    """Return the basis that the argument `basis` of a mechanism for `d` columns stands for.

    `basis` is a matrix, the name of a transform, or already a `Basis` or an `Operator`, which is returned as it is.

    Raise a ValueError if `basis` is not orthogonal, is for another number of columns, or is an unknown name.
    """
    if isinstance(basis, str):
        make, shape = _parsed(basis, d)
        _require_size(math.prod(shape), d)  # before it is made, which may take much memory
        return make(shape)
    found = _of_any_size(basis)
    _require_size(found.size, d)
    return found


def _require_size(size: int, d: int) -> None:
    """Raise a ValueError if `size`, the number of entries of a vector of a basis, is not `d`, the number of columns."""
    if size != d:
        raise ValueError(f"basis must have the {d} entries of sigma in each of its vectors, got {size}")


def checked(basis: object) -> BasisLike | str:
    """Check the argument `basis` of a mechanism whose number of columns is not known yet.

    The name of a transform is returned unchanged, and anything else as a `Basis` or an `Operator`. Raise a ValueError
    for a basis that is not orthogonal, or an unknown name.
    """
    if isinstance(basis, str):
        _parsed(basis, 1)
        return basis
    return _of_any_size(basis)


def _of_any_size(basis: object) -> BasisLike:
    """Return `basis`, a matrix, an operator or a `Basis`, as a `Basis` or an `Operator`; do not check its size.

    Raise a ValueError if it is not orthogonal.
    """
    if isinstance(basis, Basis | Operator):
        found: BasisLike = basis
    elif hasattr(basis, "matvec") and hasattr(basis, "rmatvec"):
        found = _tested(basis)
    else:
        found = given(basis)  # type: ignore[arg-type]  # it refuses what is no matrix
    return found


def _parsed(text: str, d: int) -> tuple[Callable[[tuple[int, ...]], Basis], tuple[int, ...]]:
    """Return the function that makes the basis called `text`, which is `dct` or `haar`, and the shape of a row.

    The shape is the argument of the function. For the names "dct" and "haar" it is (d,), where `d` is the number of
    columns, and for "dct:8x8" it is (8, 8). Raise a ValueError for an unknown name.
    """
    name, _, axes = text.partition(":")
    makers: dict[str, Callable[[tuple[int, ...]], Basis]] = {"dct": dct, "haar": haar}
    shape = axes.split("x") if axes else [str(d)]
    if name not in makers or not all(axis.isdecimal() and int(axis) for axis in shape):
        raise ValueError(f'basis must be a matrix or a name such as "dct", "haar" or "dct:8x8", got {text!r}')
    return makers[name], tuple(map(int, shape))


def _tested(operator: Any) -> Operator:
    """Return an `Operator` that holds `operator`; raise a ValueError unless random vectors show it to be orthogonal."""
    shape = tuple(operator.shape)
    if len(shape) != 2 or shape[0] != shape[1]:
        raise ValueError(f"basis must be a square operator, got shape {shape}")
    found = Operator(operator)
    probes = np.random.default_rng(0).standard_normal((_PROBES, shape[0]))
    for there, back in ((found.forward, found.inverse), (found.inverse, found.forward)):
        images = there(probes)
        off = np.max(np.abs(back(images) - probes)) if images.shape == probes.shape else math.inf
        off = max(off, np.max(np.abs(images @ images.T - probes @ probes.T)) / shape[0])
        if not off <= _SLACK:
            raise ValueError(f"basis must be orthogonal, but matvec and rmatvec are off by {off:.3g} on random vectors")
    return found


def given(matrix: ArrayLike, *, name: str = "given", sigma: Array | None = None) -> Basis:
    """Return the basis whose vectors are the rows of an orthogonal `matrix`, shape (d, d), with its `name` and `sigma`.

    The matrix may be rounded to six digits or more; it is replaced by the nearest orthogonal matrix. Raise a ValueError
    for a matrix that is not square, or not orthogonal up to such rounding.
    """
    U = finite(basis=matrix)
    if U.ndim != 2 or U.shape[0] != U.shape[1] or not U.size:
        raise ValueError(f"basis must be a square matrix whose rows are the basis vectors, got shape {U.shape}")
    i, j = np.unravel_index(np.argmax(np.abs(U)), U.shape)
    if abs(U[i, j]) > 2:
        raise ValueError(f"basis must be orthogonal, but basis[{i}, {j}] = {U[i, j]:g}")
    identity, products = np.eye(len(U)), U @ U.T
    i, j = np.unravel_index(np.argmax(np.abs(products - identity)), U.shape)
    if abs(products[i, j] - identity[i, j]) > _SLACK:
        shown = f"{products[i, j]:.9g} and not {identity[i, j]:g}"
        raise ValueError(f"basis must be orthogonal: rows {i} and {j} have the inner product {shown}")
    U = _nearest(U)
    factor = None if np.array_equal(U, identity) else U  # nothing is multiplied by the identity
    return Basis((len(U),), (factor,), name, sigma=sigma)


def dct(shape: int | Sequence[int], *, axes: int | Iterable[int] | None = None) -> Basis:
    r"""Make the basis of the discrete cosine transform, for rows that are signals, images or tables with a time axis.

    Parameters
    ----------
    shape : int or sequence of int
        Shape of a row as an array, in C order: the length of a signal, or for example (8, 8) for an
        image of 64 pixels.
    axes : int or iterable of int, optional
        Axes of `shape` along which the transform is taken; by default all. A table of 24 hours and
        5 sensors has the shape (24, 5), and ``axes=[0]`` transforms along the hours.

    Returns
    -------
    Basis
        The orthonormal basis. For one axis its first vector is constant, and later ones oscillate
        faster; for several axes the vectors are products of such vectors.

    Raises
    ------
    ValueError
        If an entry of `shape` is not >= 1, or if an axis does not exist.
    TypeError
        If an entry of `shape` or an axis is not a number.

    Notes
    -----
    Along an axis of m entries, vector k has the entries :math:`\sqrt{2/m} \cos(\pi k (2 j + 1) /
    (2 m))` for :math:`j = 0, \dots, m - 1`, and :math:`\sqrt{1/m}` for :math:`k = 0` (the transform
    "DCT-II", normalized). Where neighboring entries are alike, most of the variance is along the
    vectors that oscillate slowly.

    Examples
    --------
    >>> from egm import bases
    >>> bases.dct(3).matrix.round(3)
    array([[ 0.577,  0.577,  0.577],
           [ 0.707,  0.   , -0.707],
           [ 0.408, -0.816,  0.408]])
    """
    return _transform("dct", lambda m: fft.dct(np.eye(m), norm="ortho", axis=0), shape, axes)


def haar(shape: int | Sequence[int], *, axes: int | Iterable[int] | None = None) -> Basis:
    r"""Make the basis of the Haar wavelets, for signals, images or tables with a time axis that have sudden changes.

    Parameters
    ----------
    shape : int or sequence of int
        Shape of a row as an array, in C order, as for `dct`. Axes of any length are allowed.
    axes : int or iterable of int, optional
        Axes of `shape` along which the transform is taken; by default all.

    Returns
    -------
    Basis
        The orthonormal basis. For one axis its first vector is constant, and each other vector is
        positive on the first half of an interval, negative on the second half, and zero elsewhere;
        for several axes the vectors are products of such vectors.

    Raises
    ------
    ValueError
        If an entry of `shape` is not >= 1, or if an axis does not exist.
    TypeError
        If an entry of `shape` or an axis is not a number.

    Notes
    -----
    An interval of an odd number of entries has a first half that is longer by one entry. The vectors
    come in the order from long to short intervals.

    Examples
    --------
    >>> from egm import bases
    >>> bases.haar(4).matrix.round(3)
    array([[ 0.5  ,  0.5  ,  0.5  ,  0.5  ],
           [ 0.5  ,  0.5  , -0.5  , -0.5  ],
           [ 0.707, -0.707,  0.   ,  0.   ],
           [ 0.   ,  0.   ,  0.707, -0.707]])
    """
    return _transform("haar", _haar, shape, axes)


def _transform(name: str, factor: Any, shape: int | Sequence[int], axes: int | Iterable[int] | None) -> Basis:
    """Return the `Basis` called `name` for rows of the given `shape`, transformed along the given `axes` (None: all).

    ``factor(m)`` is the matrix of the transform for an axis of m entries, shape (m, m).
    """
    lengths = _lengths([shape] if np.ndim(shape) == 0 else shape)  # type: ignore[arg-type]  # it has entries
    found = set(range(len(lengths))) if axes is None else _found(axes, lengths)
    factors = tuple(factor(m) if axis in found and m > 1 else None for axis, m in enumerate(lengths))
    return Basis(lengths, factors, name if axes is None else f"{name} along {sorted(found)}")


def _lengths(shape: Iterable[object]) -> tuple[int, ...]:
    """Return the lengths of the axes in `shape` as integers; raise an error if there is none, or one is not >= 1."""
    lengths = tuple(count(shape=m) for m in shape)
    if not lengths:
        raise ValueError("shape must have at least one axis")
    return lengths


def _factor(m: int, matrix: ArrayLike) -> Array:
    """Return the orthogonal matrix that is nearest to `matrix`, for an axis of `m` entries.

    Raise a ValueError if `matrix` does not have the shape (m, m), or is not orthogonal up to rounding to six digits.
    """
    factor = finite(factors=matrix)
    if factor.shape != (m, m) or np.max(np.abs(factor)) > 2 or (off := _off(factor)) > _SLACK:
        raise ValueError(f"factors must have an orthogonal matrix of shape ({m}, {m}) for an axis of {m} entries")
    return _nearest(factor) if off > _ROUNDING else factor


def _found(axes: object, lengths: tuple[int, ...]) -> set[int]:
    """Return a set with the numbers, counted from 0, of the `axes` of an array of the shape `lengths`.

    `axes` is one number or several; a negative number counts from the last axis. Raise a TypeError for an axis that is
    not a number, and a ValueError for an axis that the array does not have.
    """
    each, found = [axes], set[int]()
    if isinstance(axes, Iterable) and not isinstance(axes, str) and getattr(axes, "ndim", 1) > 0:
        each = list(axes)
    for axis in each:
        number = scalar(real, axes=axis)
        if not (-len(lengths) <= number < len(lengths) and number == int(number)):
            raise ValueError(f"axes must be axes of the shape {lengths}, got {axis!r}")
        found.add(int(number) % len(lengths))
    return found


def _haar(m: int) -> Array:
    """Return the matrix of the Haar wavelets of `m` entries, shape (m, m)."""
    rows, intervals = [np.full(m, 1 / math.sqrt(m))], [(0, m)]
    while intervals:
        halves = []
        for start, stop in intervals:
            if (length := stop - start) < 2:
                continue
            left, right = (length + 1) // 2, length // 2
            row = np.zeros(m)
            row[start : start + left], row[start + left : stop] = math.sqrt(right / left), -math.sqrt(left / right)
            rows.append(row / math.sqrt(length))
            halves += [(start, start + left), (start + left, stop)]
        intervals = halves
    return np.array(rows)


def _nearest(matrix: Array) -> Array:
    """Return the orthogonal matrix that is nearest to `matrix`, which is orthogonal up to rounding to six digits."""
    identity, U = np.eye(len(matrix)), matrix
    for step in range(3):  # the iteration of Newton and Schulz squares the distance to the orthogonal matrices
        if step < 2 or _off(U) > _ROUNDING:
            U = U @ (3 * identity - U.T @ U) / 2
    return U


def _off(matrix: Array) -> float:
    """Return how far the square array U, `matrix`, is from orthogonal: the largest absolute value in U U^T - I."""
    return float(np.max(np.abs(matrix @ matrix.T - np.eye(len(matrix)))))


def _fixed(matrix: Array) -> Array:
    """Return a read-only copy of `matrix`, in C order."""
    copy = np.array(matrix, dtype=float, order="C")
    copy.flags.writeable = False
    return copy
