"""Compute mean and variance of a generalized chi-square variable Q, and draw from its distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import index
from typing import overload

import numpy as np

from egm._gx2.form import Law, law_of
from egm._types import Array, ArrayLike, Floats
from egm._validate import generator

_MANY = 1e18  # a Poisson number with the mean _MANY / 2 fits into 64 bits, and 1 is below the rounding error of _MANY


def mean(weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0, normal: float = 0, shift: float = 0) -> float:
    r"""Compute the mean of a generalized chi-square variable Q.

    Parameters
    ----------
    weights : array_like, shape (d,)
        Weights of the independent chi-square variables in the weighted sum Q, finite and not 0.
    dof : float or array_like, shape (d,), default 1
        Degrees of freedom of these variables, finite and > 0; they need not be whole numbers.
    nc : float or array_like, shape (d,), default 0
        Noncentralities of these variables, finite and >= 0.
    normal : float, default 0
        Standard deviation of a normal term of Q, finite and >= 0.
    shift : float, default 0
        Constant term of Q, finite.

    Returns
    -------
    float
        The mean :math:`E[Q] = \sum_j w_j (\nu_j + \lambda_j)` plus `shift`, in the units of
        `weights`, where w is `weights`, :math:`\nu` is `dof` and :math:`\lambda` is `nc`.
        It is infinite if it is too large for a double.

    Raises
    ------
    ValueError
        If an argument is outside its range.

    Examples
    --------
    >>> from egm import gx2
    >>> gx2.mean([1.0, 0.5], nc=[0.0, 4.0])
    3.5
    """
    return law_of(weights, dof, nc, normal, shift).mean


def var(weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0, normal: float = 0, shift: float = 0) -> float:
    r"""Compute the variance of a generalized chi-square variable Q.

    Parameters
    ----------
    weights : array_like, shape (d,)
        Weights of the independent chi-square variables in the weighted sum Q, finite and not 0.
    dof : float or array_like, shape (d,), default 1
        Degrees of freedom of these variables, finite and > 0; they need not be whole numbers.
    nc : float or array_like, shape (d,), default 0
        Noncentralities of these variables, finite and >= 0.
    normal : float, default 0
        Standard deviation of a normal term of Q, finite and >= 0.
    shift : float, default 0
        Constant term of Q, finite.

    Returns
    -------
    float
        The variance :math:`\mathrm{Var}[Q] = 2 \sum_j w_j^2 (\nu_j + 2 \lambda_j)` plus the square of `normal`, in the
        squared units of `weights`, where w is `weights`, :math:`\nu` is `dof` and :math:`\lambda` is `nc`.
        It is infinite if it is too large for a double.

    Raises
    ------
    ValueError
        If an argument is outside its range.

    Examples
    --------
    >>> from egm import gx2
    >>> gx2.var([1.0, 0.5])
    2.5
    """
    return law_of(weights, dof, nc, normal, shift).variance


@overload
def rvs(
    weights: ArrayLike,
    dof: ArrayLike = 1,
    nc: ArrayLike = 0,
    normal: float = 0,
    shift: float = 0,
    *,
    size: None = None,
    rng: np.random.Generator,
) -> float: ...
@overload
def rvs(
    weights: ArrayLike,
    dof: ArrayLike = 1,
    nc: ArrayLike = 0,
    normal: float = 0,
    shift: float = 0,
    *,
    size: int | Sequence[int],
    rng: np.random.Generator,
) -> Array: ...
def rvs(
    weights: ArrayLike,
    dof: ArrayLike = 1,
    nc: ArrayLike = 0,
    normal: float = 0,
    shift: float = 0,
    *,
    size: int | Sequence[int] | None = None,
    rng: np.random.Generator,
) -> Floats:
    """Draw from a generalized chi-square distribution by simulation.

    Parameters
    ----------
    weights : array_like, shape (d,)
        Weights of the independent chi-square variables in the weighted sum Q, finite and not 0.
    dof : float or array_like, shape (d,), default 1
        Degrees of freedom of these variables, finite and > 0; they need not be whole numbers.
    nc : float or array_like, shape (d,), default 0
        Noncentralities of these variables, finite and >= 0.
    normal : float, default 0
        Standard deviation of a normal term of Q, finite and >= 0.
    shift : float, default 0
        Constant term of Q, finite.
    size : int or sequence of int, optional
        Shape of the result. Without it the result is a single number.
    rng : numpy.random.Generator
        Source of the random numbers.

    Returns
    -------
    float or ndarray
        The draws, in the shape `size` and in the units of `weights`.

    Raises
    ------
    ValueError
        If an argument is outside its range.
    TypeError
        If `rng` is not a NumPy Generator, or `size` does not consist of whole numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from egm import gx2
    >>> draws = gx2.rvs([1.0, 0.5], size=100_000, rng=np.random.default_rng(1))
    >>> round(float(draws.mean()), 1)
    1.5
    """
    return draw(law_of(weights, dof, nc, normal, shift), size, generator(rng))


def draw(law: Law, size: int | Sequence[int] | None, rng: np.random.Generator) -> Floats:
    """Draw an array of shape `size` (None: one number) by `rng` from the distribution with the parameters `law`."""
    shape = () if size is None else _shape(size)
    total = np.full(shape, law.shift)
    if law.normal:
        total += law.normal * rng.standard_normal(shape)
    for weight, k, nc in zip(law.weights, law.dof, law.nc, strict=True):
        total += weight * (_noncentral(k, nc, shape, rng) if nc else rng.chisquare(k, shape))
    return total[()]


def _noncentral(k: float, nc: float, shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
    """Draw an array of the given `shape` by `rng` from chi2(`k`, `nc`).

    For k <= 1 NumPy draws a Poisson number with the mean nc / 2, which may overflow. So for a large nc, (Z +
    sqrt(nc))^2 with a standard normal Z is drawn. For k = 1 its distribution is exactly chi2(k, nc). For k < 1 the
    difference is a chi-square variable with the mean 1 - k, which is below the rounding error of nc.
    """
    if k > 1 or nc < _MANY:
        return rng.noncentral_chisquare(k, nc, shape)
    return (rng.standard_normal(shape) + math.sqrt(nc)) ** 2


def _shape(size: int | Sequence[int]) -> tuple[int, ...]:
    """Return `size` as a tuple of whole numbers, or raise an error if it is not a shape of an array."""
    try:
        shape = tuple(index(length) for length in np.atleast_1d(size))
    except (TypeError, ValueError):
        raise TypeError(f"size must be a whole number or a sequence of them, got {size!r}") from None
    if any(length < 0 for length in shape):
        raise ValueError(f"size must be >= 0 in every dimension, got {size!r}")
    return shape
