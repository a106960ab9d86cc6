"""How many rows are longer than t, from noisy numbers of rows in shells, and the best clip norm for them.

Where rows are longer than normal ones nothing is known of where they point. So it is assumed that all they have beyond
the clip norm points one way: their sum is then off by the sum of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from egm._types import Array

__all__ = ["Tail"]

_UNSEEN = 3.0  # standard deviations of the noise: as many rows may be beyond the last shell in which some are seen
_STEEPEST = 8.0  # power
_FLATTEST = 1.2, 1.6  # where numbers show it, and where they do not
_STEEP = 2.0  # power from which a variance is finite
_MEMORY = 3  # edges before the last from which its power is taken
_CAUTION = 0.85  # and made smaller
_LEAST_ROW = 1e-3  # at the end of the curve
_POINTS = 2000  # of it


@dataclass(frozen=True)
class Tail:
    """How many rows are longer than t: rows[i] beyond edges[i], a power law from one to the next and after the
    last."""

    edges: Array
    rows: Array
    power: float

    @property
    def steep(self) -> bool:
        """Whether the variance of so long rows is finite."""
        return self.power > _STEEP

    @classmethod
    def through(cls, edges: Array, counts: Array, last: int, std: float) -> Tail:
        """From noisy numbers in shells, of which the last one that is seen, and their standard deviation."""
        beyond = np.cumsum(counts[::-1])[::-1]
        end, rest = min(last + 1, edges.size - 1), _UNSEEN * std
        start = max(last - _MEMORY, 0)
        drop = math.log(max(beyond[last] / rest, 1.0)) / math.log(edges[-1] / edges[-2])
        body = 0.0
        if start < last and beyond[last] > 0:
            body = math.log(beyond[start] / beyond[last]) / math.log(edges[last] / edges[start])
        power = min(max(_CAUTION * body, _FLATTEST[0]), _STEEPEST) if body > 1.1 else max(drop, _FLATTEST[1])
        rows = np.maximum(beyond[: end + 1], rest)
        return cls(edges[: end + 1], rows, power)

    def _fine(self) -> tuple[Array, Array]:
        """Lengths, over the first edge, and the numbers of rows that are longer, down to a thousandth of a row."""
        unit = self.edges[0]
        end = self.edges[-1] / unit * max(self.rows[-1] / _LEAST_ROW, 1.5) ** (1 / self.power)
        t = np.geomspace(1.0, end, _POINTS)
        log = np.interp(np.log(t), np.log(self.edges / unit), np.log(self.rows))
        past = t > self.edges[-1] / unit
        log[past] -= self.power * np.log(t[past] * unit / self.edges[-1])
        return t, np.exp(log)

    def _excesses(self) -> tuple[Array, Array, Array]:
        """The same lengths, and the sums over the rows of what they have beyond them, and of its square."""
        t, rows = self._fine()
        pieces = np.diff(t) * (rows[1:] + rows[:-1]) / 2
        first = np.concatenate([np.cumsum(pieces[::-1])[::-1], [0.0]])
        pieces = np.diff(t) * (first[1:] + first[:-1])
        return t, first, np.concatenate([np.cumsum(pieces[::-1])[::-1], [0.0]])

    def excess(self, clip_norm: float) -> tuple[float, float]:
        """The sums over the rows of what they have beyond the clip norm, and of its square."""
        t, first, second = self._excesses()
        unit = self.edges[0]
        at = clip_norm / unit
        return float(unit * np.interp(at, t, first)), float(unit**2 * np.interp(at, t, second))

    def mean_excess(self, clip_norm: float) -> float:
        """What a row that is longer than the clip norm has beyond it, on average, over the clip norm."""
        t, rows = self._fine()
        there = float(np.interp(clip_norm / self.edges[0], t, rows))
        return self.excess(clip_norm)[0] / (there * clip_norm)

    def length(self, rows: float) -> float:
        """The length beyond which so many rows are, or the end of what is seen."""
        within = np.flatnonzero(self.rows <= rows)
        if within.size == 0:
            return float(self.edges[-1])
        logs = np.log(self.rows[::-1]), np.log(self.edges[::-1])
        return float(np.exp(np.interp(math.log(max(rows, 1e-300)), *logs)))

    def clip_norm(self, noise: float) -> float:
        """The C that makes noise C**2 + excess(C)**2 + excess_2(C) least."""
        t, first, second = self._excesses()
        return float(self.edges[0] * t[np.argmin(noise * t**2 + first**2 + second)])
