"""The expected squared error of a clipped and noisy sum, known before any data is touched.

Rows x_i = mu + sigma Z_i, normal with independent coordinates, become y_i = b (x_i - center); a y_i longer than C is
shortened to C, and loses the share L_i = max(0, 1 - C / ||y_i||) of itself. So the sum of the clipped rows misses
sum_i L_i (x_i - center), and the release misses that and gains the noise. With Q = ||y||^2 and what
`gx2.clip_moments` says of it, mean and variance of L (x_j - center_j) are exact, and so is the forecast:

    E||release - sum x||^2 = sum noise_std^2 + n sum_j Var[L (x_j - center_j)] + n^2 sum_j E[L (x_j - center_j)]^2.

If mu = center the last sum is zero. Against n mu instead of sum x, the variance is that of (1 - L)(x_j - center_j).
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar

from egm import gx2

__all__ = ["ErrorForecast", "best_clip_norm", "clipping"]


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
    def total(self):
        """The sum of the three."""
        return self.noise + self.clipping + self.center


def clipping(sigma, n, scaling, clip_norm, offset=0.0, target="sample"):
    """(n sum_j Var, n^2 sum_j bias^2) of what the sum of n clipped rows misses.

    sigma, scaling: (d,), > 0. offset: mu - center, a number or (d,). target: "sample" for the sum of the rows,
    "population" for n mu.
    """
    spread = scaling * sigma
    weights = (spread / np.max(spread)) ** 2
    offset = np.broadcast_to(offset, sigma.shape)
    nc = (offset / sigma) ** 2
    first, square, lost_square = np.zeros((3, sigma.size))
    seen = weights > 0  # a coordinate 1e150 times narrower than the widest cannot be seen in the norm
    radius = (clip_norm / np.max(spread)) ** 2
    first[seen], square[seen], lost_square[seen] = gx2.clip_moments(radius, weights[seen], nc[seen])
    bias = offset * first
    variance = sigma**2 * lost_square - bias**2
    if target == "population":
        variance += sigma**2 * (1 - 2 * (square - nc * first))
    return float(n * np.sum(variance)), float(n**2 * np.sum(bias**2))


def best_clip_norm(noise, sigma, n, scaling):
    """(C, total): the clip norm of least forecast error, mu = center, and that error.

    noise: a function of C, the total variance of the noise; it must grow at least like C. sigma, scaling: (d,), > 0.
    Between 1e-6 of a row's typical norm, where all is clipped, and the radius that a row exceeds with probability
    1e-3 / n.
    """
    weights = (scaling * sigma) ** 2
    typical, largest = np.sqrt(gx2.mean(weights)), np.sqrt(gx2.isf(1e-3 / n, weights))

    def total(log_norm):
        return noise(np.exp(log_norm)) + clipping(sigma, n, scaling, np.exp(log_norm))[0]

    ends = np.log(1e-6 * typical), np.log(largest)
    found = minimize_scalar(total, bounds=ends, method="bounded", options={"xatol": 1e-7})
    return float(np.exp(found.x)), float(found.fun)
