"""Approximate the norm of a normal row quickly, for plans that need hundreds of forecasts with one correct digit.

The squared norm ||b x||**2 is replaced by a gamma variable with the same mean and variance, and the gamma variable by
the cube of a normal variable (Wilson and Hilferty 1931). The share of a row that clipping removes is treated as a
function of its norm that does not depend on its direction.
"""

from __future__ import annotations

import functools

import numpy as np
from scipy.special import ndtr, ndtri

from egm._types import Array, Floats

__all__ = ["Radial"]

_NODES, _MASS = np.polynomial.hermite_e.hermegauss(48)
_MASS = _MASS / np.sum(_MASS)


class Radial:
    """Approximate the norm of b (x - center), for normal x with standard deviations sigma and mean center + offset.

    Each entry of the vectors stands for `copies` equal coordinates.
    """

    def __init__(self, sigma: Array, offset: Array, b: Array, copies: Floats = 1) -> None:
        self.sigma, self.offset, self.b, self.copies = sigma, offset, b, copies
        w, o = (b * sigma) ** 2, (b * offset) ** 2
        self.mean = float(np.sum(copies * (w + o)))
        w, o = w / self.mean, o / self.mean
        self.third = float(np.sum(copies * (2 * w**2 + 4 * w * o))) / 9  # 2 / (9 dof), the normal variable's variance

    def quantile(self, p: float) -> float:
        """Return the norm that a share p of the rows exceeds."""
        return float(self._norm(-ndtri(p)))

    def tail(self, t: Floats) -> Floats:
        """Return the share of rows that are longer than t."""
        root = np.cbrt(np.asarray(t) ** 2 / self.mean)
        tail: Floats = ndtr((1 - self.third - root) / np.sqrt(self.third))
        return tail

    def _norm(self, z: Floats) -> Array:
        """Return the norm that has the same rank as z has in the standard normal distribution."""
        return np.asarray(np.sqrt(self.mean * np.maximum(1 - self.third + z * np.sqrt(self.third), 0.0) ** 3))

    @functools.cached_property
    def norms(self) -> Array:
        """Return the norms at the nodes of the Gauss-Hermite quadrature, by which means over rows are computed."""
        return self._norm(_NODES)

    def excess(self, clip_norm: Array) -> tuple[Array, Array, Array]:
        """Return the means of max(r - C, 0), of its square, and of max(1 - C / r, 0), for each clip norm C.

        The mean is over the norms r of the rows.
        """
        r = self.norms
        beyond = np.maximum(r - clip_norm[:, None], 0.0)
        lost = beyond / np.maximum(r, 1e-300)
        first, second, share = (np.einsum("ij,j->i", v, _MASS) for v in (beyond, beyond**2, lost))
        return first, second, share

    def lost(self, clip_norm: float) -> float:
        """Return the mean of max(r - clip_norm, 0) for the norm r of a row."""
        return float(self.excess(np.array([clip_norm]))[0][0])

    def best(self, n: int, noise: float, one_sided: float = np.inf) -> tuple[float, Array]:
        """Return the clip norm C of least error for the mean of n rows, and the root mean squared error of each entry.

        The standard deviation of the noise in the mean is noise * C / b. Clip norms are excluded if the mean would
        move, with all clipped parts in one direction, by more than `one_sided` times its total error.
        """
        C = np.geomspace(0.05, 1.0, 80) * self._norm(5.0)
        first, second, share = self.excess(C)
        back = np.sum(self.copies * (self.sigma**2 + self.offset**2)) / self.mean
        total = noise**2 * C**2 * np.sum(self.copies / self.b**2) + back * second / n
        total += share**2 * np.sum(self.copies * self.offset**2)
        total[first * np.sqrt(back) > one_sided * np.sqrt(total)] = np.inf
        i = int(np.argmin(total))
        lost = second[i] / self.mean  # share of the mean square that every coordinate loses
        variance = (noise * C[i] / self.b) ** 2 + (self.sigma**2 + self.offset**2) * lost / n
        return float(C[i]), np.sqrt(variance + (self.offset * share[i]) ** 2)
