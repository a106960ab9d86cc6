"""Provide what methods of `egm.study.rivals` share: checks of arguments, private values and means, norms of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from egm import samplers
from egm._types import Array, ArrayLike, Number
from egm._validate import generator, matrix, positive, scalar
from egm.calibration import zcdp_noise_multiplier


def checked(X: ArrayLike, rho: float, radius: ArrayLike, rng: np.random.Generator) -> tuple[Array, float, Array]:
    """Check the arguments that all methods of `egm.study.rivals` have, and return three of them in a fixed form.

    The result is (`X` as a matrix of shape (n, d), `rho` as a float, `radius` as a vector of shape (d,)). `X` has the
    rows, `rho` is the privacy budget, and `radius` bounds the coordinates of the mean. Raise a TypeError if `rng` is
    not a numpy Generator, and a ValueError or TypeError if another argument is not allowed.
    """
    generator(rng)
    shape = np.shape(X)
    if len(shape) != 2 or shape[0] < 2 or shape[1] < 1:
        raise ValueError(f"X must have shape (n, d) with n >= 2 and d >= 1, got {shape}")
    X, rho, radius = matrix(shape[1], X=X), scalar(positive, rho=rho), positive(radius=radius)
    if radius.shape not in ((), (X.shape[1],)):
        raise ValueError(f"radius must be a number or have the {X.shape[1]} entries of a row, got {radius.shape}")
    return X, rho, np.broadcast_to(radius, X.shape[1])


def sigma_of(sigma: ArrayLike, d: int) -> Array:
    """Return the standard deviations `sigma`, one number or `d` numbers, as a vector of `d` entries.

    Raise a ValueError if a number is not finite and positive, or if there are neither one nor `d` numbers.
    """
    sigma = positive(sigma=sigma)
    if sigma.shape not in ((), (d,)):
        raise ValueError(f"sigma must be a number or have the {d} entries of a row, got shape {sigma.shape}")
    return np.broadcast_to(sigma, d)


def noisy(value: NDArray[Any], sensitivity: Number, rho: float, rng: np.random.Generator) -> Array:
    """Return the array `value` plus simulated Gaussian noise, so that the result is private at the cost `rho` in zCDP.

    `sensitivity` is the largest l2 distance between the values that two neighboring data sets can have. `rng` is the
    random generator of the noise.
    """
    return value + samplers.simulated_gaussian(np.full(value.shape, sensitivity * zcdp_noise_multiplier(rho)), rng)


def clipped_mean(Y: Array, clip_norm: Number, rho: float, rng: np.random.Generator) -> Array:
    """Return the mean of the rows of `Y`, each shortened to at most `clip_norm`, plus Gaussian noise.

    The noise, which `rng` draws, makes the mean private at the cost `rho` in zCDP. If one of the n rows is replaced,
    the mean before the noise moves by at most 2 * `clip_norm` / n.
    """
    shortened = clip_norm / np.maximum(norms(Y), clip_norm)
    return noisy(shortened @ Y / len(Y), 2 * clip_norm / len(Y), rho, rng)


def norms(Y: Array) -> Array:
    """Return the Euclidean norm of each row of the matrix `Y`, accurate even if squares of entries would overflow."""
    longest = np.max(np.abs(Y), axis=1)
    unit = np.where(longest > 0, longest, 1.0)
    return unit * np.linalg.norm(Y / unit[:, None], axis=1)
