"""Approximate the distribution of the norm of a normal row, to compute hundreds of rough forecasts quickly.

One correct digit of a forecast is sufficient, and the bulk of the norms matters most. So the squared norm ||b x||**2 of
a row x, scaled by b, is replaced by a gamma variable with the same mean and variance. The gamma variable is replaced by
the cube of a normal variable (Wilson and Hilferty 1931). The norm of a row is treated as independent of the direction
of the row, so that clipping removes the same share of every coordinate, on average.

With a large budget the tail matters, because few rows are clipped. There the gamma variable can be far too small, and
so the last round of a search with such a budget takes the exact distribution of the norm.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr, ndtri

from egm import gx2
from egm._adaptive import pairs
from egm._lazy import cached_property
from egm._types import Array, Floats

__all__ = ["Radial"]

_NODES, _MASS = np.polynomial.hermite_e.hermegauss(48)
_MASS = _MASS / np.sum(_MASS)
_CLIP_NORMS = np.geomspace(0.05, 1.0, 80)  # those that are compared, in units of a norm that rows hardly exceed
_STEPS, _ENDS = 256, (1e-6, 1e-20)  # steps of an exact distribution, and the probabilities below and above all of them


class Radial:
    """Approximate the distribution of r = ||b (x - center)|| for normal rows x with mean center + offset.

    `sigma` has the standard deviations of x, `offset` the differences of its mean from the center, and `b` the factors
    of the scaling, one entry for each coordinate. To save time, equal coordinates can share an entry: entry j then
    stands for copies[j] of them, or for `copies` of them if this is a number. If `exact` is true, the distribution of
    the norm is that of normal rows, in small steps; this takes some milliseconds.
    """

    def __init__(self, sigma: Array, offset: Array, b: Array, copies: Floats = 1, exact: bool = False) -> None:
        self.sigma, self.offset, self.b, self.copies, self.exact = sigma, offset, b, copies, exact
        w, o = (b * sigma) ** 2, (b * offset) ** 2
        self.mean = float(np.sum(copies * (w + o)))
        w, o = w / self.mean, o / self.mean
        self.third = float(np.sum(copies * (2 * w**2 + 4 * w * o))) / 9  # 2 / (9 dof), the normal variable's variance

    def quantile(self, p: float) -> float:
        """Return the upper p-quantile of the norm of a scaled normal row: the norm exceeds it with probability `p`."""
        return math.sqrt(float(self._law.isf(p))) if self.exact else float(self._norm(-ndtri(p)))

    @cached_property
    def _law(self) -> gx2.rv:
        return gx2.rv((self.b * self.sigma) ** 2, self.copies, self.copies * (self.offset / self.sigma) ** 2)

    def tail(self, t: Floats) -> Floats:
        """Return the probability that the norm of a scaled normal row is larger than `t`.

        The scaled row is b (x - center), for a normal row x and the factors b, one for each coordinate. `t` is a number
        or an array of norms, and the result has the same shape.
        """
        root = np.cbrt(np.asarray(t) ** 2 / self.mean)
        tail: Floats = ndtr((1 - self.third - root) / np.sqrt(self.third))
        return tail

    def _norm(self, z: Floats) -> Array:
        """Return the Phi(z)-quantile of the norm of a scaled normal row.

        Phi is the standard normal distribution function. The scaled row is b (x - center), for a normal row x and the
        factors b, one for each coordinate. `z` is a number or an array, and the result has the same shape.
        """
        return np.asarray(np.sqrt(self.mean * np.maximum(1 - self.third + z * np.sqrt(self.third), 0.0) ** 3))

    @cached_property
    def norms(self) -> tuple[Array, Array]:
        """Return values of the norm of a scaled normal row, and the probability that stands for each of them.

        The mean of any function of the norm is approximately the sum of its values, multiplied by the probabilities.
        The values are the middles of small steps if the distribution is exact. Otherwise they are the quantiles at the
        nodes z of a Gauss-Hermite quadrature: the Phi(z)-quantiles, with Phi the standard normal distribution function.
        """
        if not self.exact:
            return self._norm(_NODES), _MASS
        low, high = float(self._law.ppf(_ENDS[0])), float(self._law.isf(_ENDS[1]))
        ends = np.linspace(math.sqrt(low), math.sqrt(high), _STEPS + 1)
        return (ends[1:] + ends[:-1]) / 2, -np.diff(self._law.sf(ends**2))

    def excess(self, clip_norm: Array) -> tuple[Array, Array, Array]:
        """Return the means of h, of h**2 and of h r / E[r**2], with h = max(r - C, 0), for each entry C of `clip_norm`.

        Here r is the norm of the scaled row b (x - center), E[r**2] is the mean of its square, and the means are over
        the distribution of normal rows x. So h is the length that clipping to the norm C removes. By Stein's lemma, the
        third mean says by which share clipping reduces the distance between the mean of the rows and the center.
        `clip_norm` is a vector, and each of the three results has its shape.
        """
        r, mass = self.norms
        beyond = np.maximum(r - clip_norm[:, None], 0.0)
        lost = beyond * r / self.mean
        first, second, share = (np.einsum("ij,j->i", v, mass) for v in (beyond, beyond**2, lost))
        return first, second, share

    def removed(self, clip_norm: float, outer: float) -> tuple[float, float]:
        """Return the means of h r / E[r**2] and of h**2 over normal rows, if a scaled row of norm r loses the length h.

        A row longer than `clip_norm` is first clipped to the larger norm `outer`, and then divided into two parallel
        vectors (see `egm._adaptive.pairs`). The first vector takes the place of the row, and h is the norm of the
        clipped row minus the norm of the first vector. E[r**2] is the mean of r**2. By Stein's lemma, the first result
        is the share by which the distance between the mean of the rows and the center is reduced.
        """
        r, mass = self.norms
        h = pairs.removed(r, clip_norm, outer)
        return float(mass @ (h * r)) / self.mean, float(mass @ h**2)

    @cached_property
    def _tried(self) -> tuple[Array, Array, Array, Array]:
        """Return the clip norms that the method `best` compares, and three moments of what clipping to each removes.

        These are four vectors with an entry for each norm. The moments are those that `excess` returns: the mean length
        of what is removed, the mean of its square, and the lost share of the distance between the center and the mean
        of the rows.
        """
        C = _CLIP_NORMS * self._norm(5.0)
        return C, *self.excess(C)

    def lost(self, clip_norm: float) -> float:
        """Return the mean of max(r - clip_norm, 0), where r is the norm of a scaled normal row.

        The result is the mean length of what clipping to the norm `clip_norm` removes from a scaled row.
        """
        return float(self.excess(np.array([clip_norm]))[0][0])

    def best(self, n: int, noise: float, one_sided: float = np.inf) -> tuple[float, Array]:
        """Return the clip norm C of least error for a noisy mean of `n` normal rows, and each entry's error for this C.

        The errors are root mean squared errors in the units of the data, an array with one entry for each coordinate.
        The standard deviation of the noise in entry j of the mean is noise * C / b[j], where b[j] is the factor by
        which entry j of a row is scaled. The parts that clipping removes from the rows could all point in one
        direction. A clip norm is not considered if they would then move the mean, in the units of the data, by more
        than `one_sided` times the root of the sum of the squared errors.
        """
        C, first, second, share = self._tried
        back = np.sum(self.copies * (self.sigma**2 + self.offset**2)) / self.mean
        total = noise**2 * C**2 * np.sum(self.copies / self.b**2) + back * second / n
        total += share**2 * np.sum(self.copies * self.offset**2)
        total[first * np.sqrt(back) > one_sided * np.sqrt(total)] = np.inf
        i = int(np.argmin(total))
        lost = second[i] / self.mean  # share of the mean square that every coordinate loses
        variance = (noise * C[i] / self.b) ** 2 + (self.sigma**2 + self.offset**2) * lost / n
        return float(C[i]), np.sqrt(variance + (self.offset * share[i]) ** 2)
