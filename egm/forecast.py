"""The expected squared error of a clipped and noisy sum, known before any data is touched.

Rows x_i = mu + sigma Z_i, normal with independent coordinates, become y_i = b (x_i - center); a y_i longer than C is
shortened to C, and loses the share L_i = max(0, 1 - C / ||y_i||) of itself. So the sum of the clipped rows misses
sum_i L_i (x_i - center), and the release misses that and gains the noise. With Q = ||y||^2 and what
`gx2.clip_moments` says of it, mean and variance of L (x_j - center_j) are exact, and so is the forecast:

    E||release - sum x||^2 = sum noise_std^2 + n sum_j Var[L (x_j - center_j)] + n^2 sum_j E[L (x_j - center_j)]^2.

If mu = center the last sum is zero. Against n mu instead of sum x, the variance is that of (1 - L)(x_j - center_j).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar

from egm import gx2
from egm._types import Array, Floats, Target

__all__ = ["ErrorForecast", "best_clip_norm", "clipping", "loss_of_a_row"]


@dataclass(frozen=True)
class ErrorForecast:
    """Expected squared l2 error of a released sum, by its causes.

    noise: the noise. clipping: how the clipped parts of the rows vary. center: how they add up because the centre is
    not the mean; it grows with n^2.
    """

    noise: float
    clipping: float
    center: float

    @property
    def total(self) -> float:
        """The sum of the three."""
        return self.noise + self.clipping + self.center


def clipping(
    sigma: Array,
    n: int,
    scaling: Array,
    clip_norm: float,
    offset: Floats = 0.0,
    target: Target = "sample",
    copies: Floats = 1,
    factors: Sequence[float] = (1.0,),
) -> tuple[float, float]:
    """(n sum_j Var, n^2 sum_j bias^2) of what the sum of n clipped rows misses.

    sigma, scaling: (d,), > 0. offset: mu - center, a number or (d,). target: "sample" for the sum of the rows,
    "population" for n mu. copies: how many coordinates are like this one, a number or (d,). factors: the mean of both
    is taken over the standard deviations factor * sigma.
    """
    variance, squared_bias = loss_of_a_row(sigma, scaling, clip_norm, offset, target, copies, factors)
    return float(n * np.sum(variance)), float(n**2 * np.sum(squared_bias))


def loss_of_a_row(
    sigma: Array,
    scaling: Array,
    clip_norm: float,
    offset: Floats = 0.0,
    target: Target = "sample",
    copies: Floats = 1,
    factors: Sequence[float] = (1.0,),
) -> tuple[Array, Array]:
    """Variance and squared mean of what one clipped row adds to the error, (d,) each, summed over the copies.

    Arguments as for clipping.
    """
    parts = [_loss_of_a_row(factor * sigma, scaling, clip_norm, offset, target, copies) for factor in factors]
    variance, squared_bias = np.mean(parts, axis=0)
    return variance, squared_bias


def _loss_of_a_row(
    sigma: Array, scaling: Array, clip_norm: float, offset: Floats, target: Target, copies: Floats
) -> tuple[Array, Array]:
    """The same for these standard deviations."""
    spread = scaling * sigma
    weights = (spread / np.max(spread)) ** 2
    offset, copies = (np.broadcast_to(v, sigma.shape) for v in (offset, copies))
    nc = copies * (offset / sigma) ** 2
    first, square, lost_square = np.zeros((3, sigma.size))
    seen = weights > 0  # a coordinate 1e150 times narrower than the widest cannot be seen in the norm
    radius = (clip_norm / np.max(spread)) ** 2
    first[seen], square[seen], lost_square[seen] = gx2.clip_moments(radius, weights[seen], copies[seen], nc[seen])
    squared_bias = copies * (offset * first) ** 2
    variance = sigma**2 * lost_square - squared_bias
    if target == "population":
        variance += sigma**2 * (copies - 2 * (square - nc * first))
    return np.maximum(variance, 0.0), squared_bias  # a small difference of large numbers may end below zero


def best_clip_norm(
    noise: Callable[[float], float],
    sigma: Array,
    n: int,
    scaling: Array,
    offset: Floats = 0.0,
    copies: Floats = 1,
    tolerance: float = 1e-7,
    factors: Sequence[float] = (1.0,),
) -> tuple[float, float]:
    """(C, total): the clip norm of least forecast error, to a relative tolerance, and that error.

    noise: a function of C, the total variance of the noise; it must be convex and grow at least like C. sigma, scaling:
    (d,), > 0. offset: mu - center, copies and factors, as for clipping. Between 1e-3 of a row's typical norm,
    where all is lost, and the radius that a row exceeds with probability 1e-3 / n if mu = center, enlarged by the
    offset.

    A local search is enough, because the error is a convex function of C for every offset. With U = x - center it is
    noise + n E||L U||^2 + (n^2 - n) ||E[L U]||^2, where L = max(0, 1 - C / ||y||) is convex in C and not negative,
    hence L^2 is convex, and |E[L U_j]| is |offset_j| times a mean of L.
    """
    weights = (scaling * sigma) ** 2
    typical = np.sqrt(np.sum(copies * weights)) * min(factors)
    largest = np.sqrt(gx2.isf(1e-3 / n, weights, copies)) * max(factors)
    largest += np.sqrt(np.sum(copies * (scaling * offset) ** 2))

    def total(log_norm: float) -> float:
        norm = np.exp(log_norm)
        parts = clipping(sigma, n, scaling, norm, offset, copies=copies, factors=factors)
        return noise(norm) + sum(parts)

    ends = np.log(1e-3 * typical), np.log(largest)
    found = minimize_scalar(total, bounds=ends, method="bounded", options={"xatol": tolerance})
    return float(np.exp(found.x)), float(found.fun)
