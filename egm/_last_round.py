"""The last round of `egm.adaptive`: doubt what the search found, choose the clip norm, and release.

1. Tail. The numbers of rows in shells around the centre are compared with those of normal rows. If there are more, then
   `egm._tail` gives the clip norm of least error in case all that is clipped points one way.
2. Count. Otherwise the clip norm is that of least forecast error. It is raised until not too many rows are longer, by a
   noisy number of them. Where n sqrt(rho) is small their tail is hardly known, and every clipped row is doubtful.
3. Sum. Rows are scaled, clipped and averaged as in Algorithm 3. The mean is the last centre plus the noisy mean of the
   clipped differences, so clipping pulls it towards that centre, and what was learnt before counts as much as its
   accuracy deserves.
4. Move. In many dimensions, or with few rows, a move of the centre by more than noise and its own error explain shows
   that clipping has biased it, and the forecast contains the difference.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from egm import error, gx2
from egm._radial import Radial
from egm._search import Search
from egm._tail import Tail
from egm._types import Array

__all__ = ["LastRound", "last_round"]

_NEAR = (0.5, 0.2, 0.05, 0.01, 0.001)  # shares of normal rows beyond the first edges of the shells
_RATIOS = 1.5, 2.5  # from one edge to the next after these; the second if there are few rows
_SEEN = 2.5, 4.0  # standard deviations of its noise that a number is from 0: in a near shell, in one of many far ones
_CONFIRMED = 3.0  # the same when it is asked for again
_MORE = 3.5, 2.0  # standard deviations, of the noise and of the rows, by which there are too many
_SLACK = 1.05  # what wrong standard deviations may do to a normal row's norm
_COUNT = 0.05, 0.005  # share of the budget for a number of rows: in one dimension, divided by that; and at least
_STEPS, _RAISED = 4, 1.5  # how often the clip norm is raised at most, and to how many times itself
_START, _SURE = 0.5, 0.5  # rows expected at first, over those allowed; and standard deviations added to a number
_KEPT = 0.3  # of the budget, for the sum
_LONGER = 0.75  # by how many clip norms a clipped row is longer than it in one dimension, if nobody knows
_ONE_SIDED = 2.5  # by how many standard deviations of the noise clipped rows may move the sum if they point one way
_SPREAD_OUT = 5.0  # effective dimension over which this is allowed to grow
_MANY = 48.0  # effective dimension from which a move of the centre shows whether they do
_MOVED = 4.0, 0.1  # standard deviations, and share of its expectation, by which a squared move is too large


@dataclass(frozen=True)
class LastRound:
    """A mean (d,), and the parts of the error of n times this mean."""

    mean: Array
    noise_std: Array
    bias: Array
    forecast: error.ErrorForecast
    model_holds: bool


@dataclass(frozen=True)
class _Clip:
    """A clip norm, and what is known of the rows beyond it. All lengths are those of scaled rows.

    one_sided: how far the sum may be off if clipped parts point one way, by the model. surely, at_most: the same for
    the rows that are more than the model says. second: the sum of the squares of the clipped parts.
    """

    norm: float
    one_sided: float
    surely: float = 0.0
    at_most: float = 0.0
    second: float = 0.0


def last_round(search: Search) -> LastRound:
    """Doubt, clip, sum."""
    return _LastRound(search).run()


class _LastRound:
    """The state of the search, its scaling b, and what follows from the two."""

    def __init__(self, search: Search) -> None:
        self.search, self.rows, self.n = search, search.rows, search.n
        self.b = search.calibrated()
        self.spread = search.spread()
        self.sigma = np.maximum(search.sigma, search.center_std / 30)  # next to that, smaller ones change a thousandth
        self.weights = (self.b * self.spread) ** 2
        self.unit = math.sqrt(np.sum(self.spread**2) / np.sum(self.weights))  # of a scaled length, on average
        self.effective = float(np.sum(self.weights) ** 2 / np.sum(self.weights**2))

    def run(self) -> LastRound:
        """Tail, count, sum, move."""
        search, b, n = self.search, self.b, self.n
        tail = self.tail()
        clip = self.by_model() if tail is None else self.by_tail(tail)
        mean, std = self.rows.mean("sum", search.center, b, clip.norm, search.account.left)
        noise_std = n * std / b
        if tail is None:
            clipping, off_center = error.clipping(self.sigma, n, b, clip.norm, search.center_std)
            off_center += (self.unit * clip.surely) ** 2
            bias = (clip.one_sided + clip.at_most) / b
            unexplained, doubtful = self.moved(mean / b, noise_std)
            if unexplained > doubtful and (search.few or self.effective >= _MANY):
                off_center += unexplained
            if self.effective >= _MANY:
                bias = np.minimum(bias, math.sqrt(max(unexplained, 0.0) + doubtful))
            bias = bias / math.sqrt(self.effective)
        else:
            clipping, off_center = self.unit**2 * clip.second, (self.unit * clip.one_sided) ** 2
            bias = clip.at_most / b
        search.move(mean / b)
        forecast = error.ErrorForecast(float(np.sum(noise_std**2)), clipping, off_center)
        return LastRound(search.center, noise_std, bias, forecast, tail is None)

    # Tail -------------------------------------------------------------------------------------------------------------

    def tail(self) -> Tail | None:
        """The tail of the norms, or None where they are no longer than those of normal rows."""
        near = np.sqrt([gx2.isf(p, self.weights) for p in _NEAR])
        edges = self.edges(near)
        counts, std = self.rows.shells("tail", self.search.center, self.b, edges, self.search.doubt)
        far = np.arange(edges.size) >= near.size
        seen = np.where(counts > np.where(far, *_SEEN[::-1]) * std, counts, 0.0)
        self.confirm(seen, far, edges)
        beyond = np.cumsum(counts[~far][::-1])[::-1] + np.sum(seen[far])
        expected = self.n * np.array([gx2.sf((t / _SLACK) ** 2, self.weights) for t in near])
        more = _MORE[0] * std * np.sqrt(np.arange(near.size, 0, -1)) + _MORE[1] * np.sqrt(expected)
        if np.all(beyond <= expected + more) and not np.any(seen[far]):
            return None
        return Tail.through(edges, np.where(far, seen, np.maximum(counts, 0.0)), std)

    def edges(self, near: Array) -> Array:
        """Edges of shells: near ones by the model, and then in constant ratio as far as rows can be."""
        ratio = _RATIOS[int(self.search.few)]
        farthest = max(self.search.largest * float(np.max(self.b)), 2 * near[-1])
        steps = np.arange(1, math.log(farthest / near[-1]) / math.log(ratio) + 1)
        return np.concatenate([near, near[-1] * ratio**steps])

    def confirm(self, seen: Array, far: NDArray[np.bool], edges: Array) -> None:
        """What is seen in one of many far shells may be noise: ask again, and set it to 0 if it was."""
        while np.any(seen[far]):
            last = int(np.flatnonzero(seen)[-1])
            found, std = self.rows.longer("tail", self.search.center, self.b, edges[last], self.search.doubt / 2)
            if found > _CONFIRMED * std:
                return
            seen[last] = 0.0

    def by_tail(self, tail: Tail) -> _Clip:
        """The clip norm of least error for this tail; or a smaller one, if hardly any rows turn out to be longer."""
        noise = self.noise(self.search.account.left) / self.unit
        clip_norm = tail.clip_norm(noise**2)
        if tail.steep and tail.edges[-1] < clip_norm:
            smaller, few, surely, at_most = self.raised(tail.edges[-1], noise, strict=True)
            if few and smaller < clip_norm:
                return _Clip(smaller, surely, at_most=at_most)
            clip_norm = tail.clip_norm((self.noise(self.search.account.left) / self.unit) ** 2)
        one_sided, second = tail.excess(clip_norm)
        return _Clip(clip_norm, one_sided, at_most=one_sided, second=second)

    # Count ------------------------------------------------------------------------------------------------------------

    def noise(self, rho: float) -> float:
        """The standard deviation of the norm of the noise in the sum, for clip norm 1."""
        return math.sqrt(2 / rho * float(np.sum(1 / self.b**2)))

    def by_model(self) -> _Clip:
        """The clip norm of least forecast error, raised until not too many rows are longer."""
        search, n = self.search, self.n
        rho = search.account.left
        noise = self.noise(rho)
        clip_norm, _ = error.best_clip_norm(
            lambda c: (noise * c) ** 2, self.sigma, n, self.b, search.center_std, tolerance=1e-4
        )
        radial = Radial(self.sigma, search.center_std, self.b)
        allowed = _ONE_SIDED * max(1.0, self.effective / _SPREAD_OUT)
        if n * self.unit * radial.lost(clip_norm) > allowed * noise * clip_norm:
            clip_norm = max(clip_norm, radial.best(n, math.sqrt(2 / rho) / n, allowed)[0])
        strict = search.few and self.effective < _MANY
        clip_norm, _, surely, at_most = self.raised(clip_norm, noise / self.unit, strict)
        return _Clip(clip_norm, n * radial.lost(clip_norm), surely, at_most)

    def raised(self, clip_norm: float, noise: float, strict: bool) -> tuple[float, bool, float, float]:
        """A clip norm beyond which there are few rows; whether there are, and how far they may move the sum, surely and
        at most. strict: all rows count, not only those beyond what the model says."""
        longer = _LONGER / self.effective**0.25
        rho = max(_COUNT[0] / self.effective, _COUNT[1]) * self.search.rho
        allowed = _ONE_SIDED * noise / longer
        if strict and _START * allowed < self.n:
            clip_norm = max(clip_norm, math.sqrt(gx2.isf(_START * allowed / self.n, self.weights)))
        for step in range(1, _STEPS + 1):
            found, std = self.rows.longer("count", self.search.center, self.b, clip_norm, rho)
            excess = found - self.n * float(gx2.sf((clip_norm / _SLACK) ** 2, self.weights))
            doubtful = found if strict else excess
            if (
                doubtful + _SURE * std <= allowed
                or step == _STEPS
                or self.search.account.left < _KEPT * self.search.rho
            ):
                break
            clip_norm *= _RAISED
        surely = max(excess - std, 0.5 * found if strict else 0.0, 0.0)
        off = longer * clip_norm
        return clip_norm, doubtful + _SURE * std <= allowed, off * surely, off * max(doubtful + 2 * std, 0.0)

    # Move -------------------------------------------------------------------------------------------------------------

    def moved(self, step: Array, noise_std: Array) -> tuple[float, float]:
        """By how much the squared move of the sum exceeds what is expected, and by how much it may."""
        expected = noise_std**2 + (self.n * self.search.center_std) ** 2
        total = float(np.sum(expected))
        unexplained = float(np.sum((self.n * step) ** 2)) - total
        return unexplained, _MOVED[0] * math.sqrt(2 * np.sum(expected**2)) + _MOVED[1] * total
