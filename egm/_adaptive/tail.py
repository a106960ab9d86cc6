"""Model how many rows have a norm above any length, from noisy numbers of rows, and find the clip norm of least error.

Nothing is known about the directions of rows that are longer than normal ones. So the parts that clipping removes are
assumed to point in one direction for all rows. The error of the sum is then the sum of the lengths of these parts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from egm._types import Array

__all__ = ["Tail"]

_UNSEEN = 3.0  # standard deviations of the noise: this many rows may be unseen beyond the last shell with rows
_STEEPEST = 8.0  # largest power of a tail
_FLATTEST = 1.2, 1.6  # smallest power of a tail, if the numbers show one and if they do not
_ENDING = 2.2  # largest power that the numbers before and after the last shell with rows give by themselves
_STEEP = 2.0  # power above which the variance is finite
_MEMORY = 3  # number of edges before the last over which the power is measured
_CLEAR = 2.5  # standard deviations of the noise by which a count is clearly above 0
_CAUTION = 0.85  # factor that makes the measured power smaller
_LEAST_ROW = 1e-3  # number of rows at which the computed curve ends
_POINTS = 2000  # points of this curve


@dataclass(frozen=True)
class Tail:
    """Model how many rows have a norm above t, for every length t.

    rows[i] is the number of rows with a norm above edges[i], and the `edges` ascend. Between two edges the number of
    rows with a norm above t is proportional to a power of t, chosen to fit the numbers at both edges. Beyond the last
    edge it is proportional to t**(-power).
    """

    edges: Array
    rows: Array
    power: float

    @property
    def steep(self) -> bool:
        """Return whether the number of rows with a norm above t falls faster than t**(-2) for large t.

        If it does, the variance of the norms is finite.
        """
        return self.power > _STEEP

    @classmethod
    def through(cls, edges: Array, counts: Array, last: int, std: float, ends: bool = False) -> Tail:
        """Fit a `Tail`, a model of the number of rows with a norm above t for each t, to noisy numbers of rows.

        counts[i] is the noisy number of rows with a norm from edges[i] to the next edge, or beyond the last edge if i
        is the last index. `std` is the standard deviation of the noise in each number. `last` is the largest i for
        which counts[i] is clearly above the noise.

        Beyond the last edge of the model, the number of rows with a norm above t is proportional to t**(-power). If the
        numbers fall clearly up to edges[last], `power` is that of this fall, made smaller by 15 % as a precaution.
        Otherwise `power` is that with which, from edges[last] to the next edge, the number of rows would fall to the
        largest number that noise can hide. If `ends` is true, a further query has shown that few rows are beyond
        edges[last + 1]; then the second power is taken if it is larger. Each power is limited to a fixed range.
        """
        beyond = np.cumsum(counts[::-1])[::-1]
        end, rest = min(last + 1, edges.size - 1), _UNSEEN * std
        start = max(last - _MEMORY, 0)
        drop = math.log(max(beyond[last] / rest, 1.0)) / math.log(edges[-1] / edges[-2])
        body = 0.0
        if start < last and beyond[last] > 0:
            body = math.log(beyond[start] / beyond[last]) / math.log(edges[last] / edges[start])
        power = min(max(_CAUTION * body, _FLATTEST[0]), _STEEPEST) if body > 1.1 else max(drop, _FLATTEST[1])
        power = max(power, min(drop, _ENDING)) if ends else power
        rows = np.maximum(beyond[: end + 1], rest)
        return cls(edges[: end + 1], rows, power)

    def counted(self, lengths: Array, counts: Array, std: float) -> Tail:
        """Return this model, fitted to new noisy counts: counts[i] is the noisy number of rows longer than lengths[i].

        `std` is the standard deviation of the noise in each count, and the lengths ascend. In the new model, the edges
        below the first length are kept, and the lengths become edges, up to the first length with a count that is not
        clearly above the noise. The edges beyond the last of these lengths are dropped if this count is clearly smaller
        than the number of rows in this model. Otherwise they are kept, because their numbers may be known better.

        The `power` with which the number of rows falls beyond the last edge is fitted to the new numbers of rows. It
        does not change if there are edges beyond these lengths, or if the first count is not clearly above the noise.
        """
        few = np.flatnonzero(counts <= _CLEAR * std)
        clear = int(few[0]) if few.size else counts.size
        end = [min(_UNSEEN * std, self.longer(lengths[clear]))] if few.size else []
        fits = not few.size or self.longer(lengths[clear]) <= counts[clear] + _CLEAR * std
        lengths, counts = lengths[: clear + 1], np.append(counts[:clear], end)
        before, after = self.edges < lengths[0], (self.edges > lengths[-1]) & fits
        edges = np.concatenate([self.edges[before], lengths, self.edges[after]])
        rows = np.concatenate([self.rows[before], counts, np.minimum(self.rows[after], counts[-1])])
        rows = np.maximum.accumulate(rows[::-1])[::-1]
        if not clear or after.any():
            return Tail(edges, rows, self.power)
        last = int(np.sum(before)) + clear - 1
        start = max(last - _MEMORY, 0)
        body = math.log(rows[start] / rows[last]) / math.log(edges[last] / edges[start]) if last else 0.0
        return Tail(edges, rows, min(max(_CAUTION * body, _FLATTEST[0]), _STEEPEST))

    def _fine(self) -> tuple[Array, Array]:
        """Return many ascending lengths t, and for each t the number of rows with a norm above t.

        The unit of t is the smallest of the `edges`. Beyond the last t, the model has about a thousandth of a row.
        """
        unit = self.edges[0]
        end = self.edges[-1] / unit * max(self.rows[-1] / _LEAST_ROW, 1.5) ** (1 / self.power)
        t = np.geomspace(1.0, end, _POINTS)
        log = np.interp(np.log(t), np.log(self.edges / unit), np.log(self.rows))
        past = t > self.edges[-1] / unit
        log[past] -= self.power * np.log(t[past] * unit / self.edges[-1])
        return t, np.exp(log)

    def _excesses(self) -> tuple[Array, Array, Array]:
        """Return ascending lengths t, and for each t the sums of max(r - t, 0) and of max(r - t, 0)**2 over all rows.

        Here r is the norm of a row. The unit of r and t is the smallest of the `edges`.
        """
        t, rows = self._fine()
        pieces = np.diff(t) * (rows[1:] + rows[:-1]) / 2
        first = np.concatenate([np.cumsum(pieces[::-1])[::-1], [0.0]])
        pieces = np.diff(t) * (first[1:] + first[:-1])
        return t, first, np.concatenate([np.cumsum(pieces[::-1])[::-1], [0.0]])

    def excess(self, clip_norm: float) -> tuple[float, float]:
        """Return the sum of max(r - clip_norm, 0) over all rows, and the sum of the squares of these numbers.

        Here r is the norm of a row in this model.
        """
        t, first, second = self._excesses()
        unit = self.edges[0]
        at = clip_norm / unit
        return float(unit * np.interp(at, t, first)), float(unit**2 * np.interp(at, t, second))

    def square(self, n: int) -> float:
        """Return an upper estimate of the mean squared norm of `n` rows, each norm cut to the range of the `edges`.

        Little is known of rows beyond the last edge, so their norms are taken to be equal to this edge. Between two
        edges, the number of rows with a larger norm is here taken to be linear in the norm. This gives more rows than
        the power of the norm that the model has elsewhere.
        """
        t = np.geomspace(1.0, self.edges[-1] / self.edges[0], _POINTS)
        share = np.minimum(np.interp(t, self.edges / self.edges[0], self.rows) / n, 1.0)
        return float(self.edges[0] ** 2 * (1 + np.trapezoid(2 * t * share, t)))

    def longer(self, length: float) -> float:
        """Return the number of rows with a norm above `length` in this model of the norms."""
        t, rows = self._fine()
        return float(np.interp(length / self.edges[0], t, rows))

    def mean_excess(self, clip_norm: float) -> float:
        """Return the mean of r / clip_norm - 1 over those rows whose norm r is larger than `clip_norm`."""
        return self.excess(clip_norm)[0] / (self.longer(clip_norm) * clip_norm)

    def parted(self, clip_norm: float, farthest: float) -> float:
        """Return the length t >= clip_norm for which a bound on what clipping removes from long rows is least.

        Clipping removes at most t - clip_norm from a row of length at most t, and at most `farthest` from any row. So
        the bound is t - clip_norm times the number of rows longer than `clip_norm`, plus `farthest` times the number of
        rows longer than t.
        """
        t, rows = self._fine()
        t = t * self.edges[0]
        there = float(np.interp(clip_norm, t, rows))
        bound = np.where(t > clip_norm, there * (t - clip_norm) + rows * farthest, np.inf)
        return max(float(t[np.argmin(bound)]), clip_norm)

    def length(self, rows: float) -> float:
        """Return the length t for which this model has a given number `rows` of rows with a norm above t.

        The result is never below the first of the `edges` or above the last one.
        """
        within = np.flatnonzero(self.rows <= rows)
        if within.size == 0:
            return float(self.edges[-1])
        logs = np.log(self.rows[::-1]), np.log(self.edges[::-1])
        return float(np.exp(np.interp(math.log(max(rows, 1e-300)), *logs)))

    def clip_norm(self, noise: float) -> float:
        """Return the clip norm C for which the expected squared error of the sum of the rows is least.

        The error is estimated as noise * C**2 + first**2 + second. Here `noise` is the squared error due to noise for C
        = 1. With the norm r of a row in this model, first is the sum of max(r - C, 0) over all rows, and second is the
        sum of the squares of these numbers.
        """
        t, first, second = self._excesses()
        return float(self.edges[0] * t[np.argmin(noise * t**2 + first**2 + second)])
