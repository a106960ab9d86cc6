"""Check whether the rows are as the search of `egm.adaptive` found them, choose the clip norm, and release the mean.

The length of a row x is ||b (x - center)||, with the scaling b and the center that the search has found. A shell is a
range of lengths, n is the number of rows, and rho is the budget.

1. Tail. The noisy numbers of rows in shells are compared with those that are expected of normal rows. If there are
   more long rows, `egm._adaptive.tail` gives the clip norm of least error for the case that the clipped parts of all
   rows point in one direction.
2. Count. Otherwise the clip norm is that of least forecast error. It is increased until the noisy number of longer rows
   is small. If n sqrt(rho) is small, little is known about the long rows, and fewer of them are allowed.
3. Sum. The rows are scaled, clipped and averaged as in Algorithm 3 of the report. The released mean is the last center
   plus the noisy mean of the clipped differences of the rows from this center.
4. Move. If the released mean is further from the last center than noise and the error of this center explain, clipping
   has biased it. Then the difference is added to the forecast of the error. In few dimensions this is done only if
   n sqrt(rho) is small.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from egm import forecast, gx2
from egm._adaptive.radial import Radial
from egm._adaptive.search import KEPT, Search
from egm._adaptive.tail import Tail
from egm._types import Array
from egm.forecast import ErrorForecast

__all__ = ["LastRound", "last_round"]

_NEAR = (0.5, 0.2, 0.05, 0.01, 0.001)  # shares of normal rows beyond the first edges of the shells
_RATIOS = 1.5, 2.5  # ratio of each further edge to the one before; the second if `search.few`
_SEEN = 2.5, 4.0  # standard deviations of noise by which rows are seen: in a near shell, in one of many far windows
_CONFIRMED = 3.0  # standard deviations of noise by which rows are seen when the question is repeated
_MORE = 3.5, 2.0  # standard deviations, of the noise and of the number of rows, by which there are too many
_SHELLS = 150  # largest number of far shells; their ratio is larger for ranges of more than 26 decades
_FARTHEST = 1e100  # largest ratio of the last edge to the last near one
_SLACK = 1.05  # factor by which wrong standard deviations may lengthen a normal row
_COUNT = 0.06, 0.005  # share of the budget to count rows: the first over the effective dimension, at least the second
_STEPS, _RAISED = 5, 1.35  # largest number of clip norms that are tried, and the factor from one to the next
_START = 0.5, 0.4  # rows expected beyond the first clip norm, over those allowed; the second if `search.few`
_SURE = 0.5, 1.0  # standard deviations added to a number of rows; the second for a tail without variance
_LONGER = 0.35, 1.0  # excess of a longer row over the clip norm, divided by it, for d = 1; the second if `search.few`
_ONE_SIDED = 2.5  # standard deviations of the noise by which clipped parts may move the sum if all point one way
_SPREAD_OUT = 5.0  # effective dimension above which this number is larger, in proportion
_MANY = 48.0  # effective dimension from which a move of the center shows whether they point one way
_OUTSIDE = 3.0  # standard deviations by which noise may move a mean out of the declared range
_MOVED = 4.0, 0.1  # standard deviations, plus share of its expectation, by which a squared move is too large


@dataclass(frozen=True)
class LastRound:
    """Hold the released mean, and describe the error of the sum, which is n times this mean.

    The error is described by its standard deviation due to noise, its largest bias, and its forecast. `model_holds` is
    true if the norms of the rows looked like those of normal rows.
    """

    mean: Array
    noise_std: Array
    bias: Array
    forecast: ErrorForecast
    model_holds: bool


@dataclass(frozen=True)
class _Clip:
    """Describe a clip norm, and how far clipping to it may move the sum of the scaled rows.

    The clipped part of a row is what clipping removes. `one_sided` is how far the sum moves if the clipped parts of all
    rows point in one direction. `second` is the sum of the squared lengths of the clipped parts.

    If `model` is true, the norms agree with those of normal rows, and `one_sided` counts only as many long rows as
    normal rows have. Further long rows move the sum by at least `surely` and at most `at_most` more. If `model` is
    false, the sum moves by at most `at_most` in all.
    """

    norm: float
    one_sided: float
    surely: float = 0.0
    at_most: float = 0.0
    second: float = 0.0
    model: bool = False


@dataclass(frozen=True)
class _Shells:
    """Hold noisy numbers of rows in ranges of norms, which are called shells.

    counts[i] is the number of rows with a norm from edges[i] to the next edge. `std` is the standard deviation of the
    noise in each number. The first `near` edges are quantiles of the norm of a normal row.
    """

    edges: Array
    counts: Array
    std: float
    near: int

    def tail(self, windows: list[tuple[int, int]]) -> Tail:
        """Fit a `Tail` to the numbers of rows in the first `near` shells and in the farther shells of `windows`.

        `windows` is a list of ranges of indices. The farther shells outside these ranges are treated as empty.
        """
        seen = np.where(np.arange(self.edges.size) < self.near, np.maximum(self.counts, 0.0), 0.0)
        for start, stop in windows:
            seen[start:stop] = max(np.mean(self.counts[start:stop]), 0.0)
        near = int(np.max(np.flatnonzero(seen > _SEEN[0] * self.std), initial=0))
        last = windows[-1][1] - 1 if windows else near
        return Tail.through(self.edges, seen, last, self.std)


def last_round(search: Search) -> LastRound:
    """Check the norms of the rows, choose the clip norm, release the mean of the rows, and forecast its error."""
    return _LastRound(search).run()


class _LastRound:
    """Hold the state of the finished search, the scaling b of the rows, and numbers that follow from these."""

    def __init__(self, search: Search) -> None:
        self.search, self.rows, self.n = search, search.rows, search.n
        self.b = search.calibrated()
        self.spread = search.spread()
        self.sigma = np.maximum(search.sigma, search.center_std / 30)  # a smaller one changes the spread by 1/2000
        self.weights = (self.b * self.spread) ** 2
        self.unit = math.sqrt(np.sum(self.spread**2) / np.sum(self.weights))  # length in the data of scaled length 1
        self.effective = float(np.sum(self.weights) ** 2 / np.sum(self.weights**2))

    def run(self) -> LastRound:
        """Check the norms of the rows, choose the clip norm, release the mean of the rows, and forecast its error."""
        search, b, n = self.search, self.b, self.n
        seen = self.look()
        clip = self.by_model() if seen is None else None
        if clip is None:
            clip = self.by_tail(seen or self.likeliest())
        mean, std = self.rows.mean("sum", search.center, b, clip.norm, search.account.left)
        noise_std = n * std / b
        if clip.model:
            clipping, off_center = forecast.clipping(self.sigma, n, b, clip.norm, search.center_std)
            off_center += _square(self.unit * clip.surely)
            bias = (clip.one_sided + clip.at_most) / b
            unexplained, doubtful = self.moved(mean / b, noise_std)
            if unexplained > doubtful and (search.few or self.effective >= _MANY):
                off_center += unexplained
            if self.effective >= _MANY:
                bias = np.minimum(bias, math.sqrt(max(unexplained, 0.0) + doubtful))
            bias = bias / math.sqrt(self.effective)
        else:
            clipping, off_center = _square(self.unit) * clip.second, _square(self.unit * clip.one_sided)
            bias = clip.at_most / b
        beyond = n * search.move(mean / b)
        outside = np.maximum(np.abs(beyond) - _OUTSIDE * noise_std, 0.0)
        bias, off_center = bias + outside, off_center + _square(float(np.linalg.norm(outside)))
        farthest = 2 * n * search.bound  # from one end of the declared range to the other
        most = self.search.d * _square(farthest)
        expected = ErrorForecast(float(np.sum(noise_std**2)), min(clipping, most), min(off_center, most))
        return LastRound(search.center, noise_std, np.minimum(bias, farthest), expected, clip.model)

    def share(self, length: float) -> float:
        """Return the probability that the norm of a normal row exceeds `length`, if all rows are made 5 % longer.

        The 5 % allow for errors of the standard deviations.
        """
        return float(gx2.sf(min((length / _SLACK) ** 2, 1e4 * np.sum(self.weights)), self.weights))

    # Tail -------------------------------------------------------------------------------------------------------------

    def look(self) -> Tail | None:
        """Ask how many rows have norms in each of many ranges; return a `Tail` if too many are long, else None.

        Too many rows are long if chance and noise do not explain their number for normal rows.
        """
        near = np.sqrt([gx2.isf(p, self.weights) for p in _NEAR])
        self.shells = shells = self.ask(near)
        windows = self.confirmed(_windows(shells.counts, near.size, shells.edges.size, shells.std))
        beyond = np.cumsum(shells.counts[: near.size][::-1])[::-1]
        beyond += sum(np.sum(shells.counts[start:stop]) for start, stop in windows)
        expected = self.n * np.array([self.share(t) for t in near])
        more = _MORE[0] * shells.std * np.sqrt(np.arange(near.size, 0, -1)) + _MORE[1] * np.sqrt(expected)
        return shells.tail(windows) if windows or np.any(beyond > expected + more) else None

    def ask(self, near: Array) -> _Shells:
        """Ask for the noisy numbers of rows in ranges of norms, and return them as `_Shells`.

        The edges between the ranges are `near`, followed by edges each of which is a constant multiple of the one
        before.
        """
        farthest = np.clip(self.search.largest * float(np.max(self.b)), 2 * near[-1], _FARTHEST * near[-1])
        ratio = max(_RATIOS[int(self.search.few)], (farthest / near[-1]) ** (1 / _SHELLS))
        steps = np.arange(1, math.log(farthest / near[-1]) / math.log(ratio) + 1)
        edges = np.concatenate([near, near[-1] * ratio**steps])
        return _Shells(
            edges, *self.rows.shells("tail", self.search.center, self.b, edges, self.search.doubt), near.size
        )

    def likeliest(self) -> Tail:
        """Return the `Tail` for the case that noise could explain the rows in all ranges of very large norms.

        The range of very large norms with the most rows relative to the noise is treated as the only one that has rows.
        """
        shells = self.shells
        return shells.tail(_windows(shells.counts, shells.near, shells.edges.size, shells.std, most=True))

    def confirmed(self, windows: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Check by further questions which ranges of very large norms have rows, and return these ranges.

        `windows` has the ranges to be checked. The first question is how many rows lie beyond the lower end of the
        farthest range. If noise explains the answer, this range is removed, and the next one is checked. The check
        ends at the first range that certainly has rows; this range and all nearer ones remain.
        """
        cost = self.search.doubt / 2
        while windows and self.search.account.left - cost > KEPT * self.search.rho:
            edge = float(self.shells.edges[windows[-1][0]])
            found, std = self.rows.longer("tail", self.search.center, self.b, edge, cost)
            if found > _CONFIRMED * std:
                break
            windows = windows[:-1]
        return windows

    def by_tail(self, tail: Tail) -> _Clip:
        """Return the clip norm of least error if the norms of the rows are as in `tail`, as a `_Clip`.

        If a smaller clip norm is sufficient, because the answers to further questions show that only few rows are
        longer than it, the smaller one is returned.
        """
        noise = self.noise(self.search.account.left) / self.unit
        clip_norm = tail.clip_norm(noise**2)
        smaller, few, surely, at_most = self.raised(clip_norm, noise, tail)
        if few and smaller < clip_norm:
            return _Clip(smaller, surely, at_most=at_most)
        clip_norm = tail.clip_norm((self.noise(self.search.account.left) / self.unit) ** 2)
        one_sided, second = tail.excess(clip_norm)
        return _Clip(clip_norm, one_sided, at_most=one_sided, second=second)

    # Count ------------------------------------------------------------------------------------------------------------

    def noise(self, rho: float) -> float:
        """Return the root mean square of the norm of the noise in the sum, for the cost `rho` and the clip norm 1."""
        return math.sqrt(2 / rho * float(np.sum(1 / self.b**2)))

    def by_model(self) -> _Clip | None:
        """Return a clip norm for normal rows as a `_Clip`, or None if too many of the rows are longer than it.

        The clip norm of least forecast error is increased until few rows are longer. The result is None if too many
        rows are longer after the last increase.
        """
        search, n = self.search, self.n
        rho = search.account.left
        noise = self.noise(rho)
        clip_norm, _ = forecast.best_clip_norm(
            lambda c: (noise * c) ** 2, self.sigma, n, self.b, search.center_std, tolerance=1e-4
        )
        radial = Radial(self.sigma, search.center_std, self.b)
        allowed = _ONE_SIDED * max(1.0, self.effective / _SPREAD_OUT)
        if n * self.unit * radial.lost(clip_norm) > allowed * noise * clip_norm:
            clip_norm = max(clip_norm, radial.best(n, math.sqrt(2 / rho) / n, allowed)[0])
        clip_norm, few, surely, at_most = self.raised(clip_norm, noise / self.unit)
        return _Clip(clip_norm, n * radial.lost(clip_norm), surely, at_most, model=True) if few else None

    def raised(self, clip_norm: float, noise: float, tail: Tail | None = None) -> tuple[float, bool, float, float]:
        """Ask how many rows are longer than the clip norm, and increase the clip norm until few rows are.

        The results are the new clip norm, whether few rows are longer than it, and by how much these rows move the
        sum: at least, and at most. `noise` is the root mean square of the norm of the noise for the clip norm 1. In
        many dimensions and without a `tail`, only rows are counted that exceed the expected number for normal rows.
        With a `tail`, the first clip norm is one that few rows of this tail exceed.
        """
        few, strict = int(self.search.few), tail is not None or self.effective < _MANY
        longer = _LONGER[few] / self.effective ** (0.5 if strict and not few else 0.25)
        rho, sure = max(_COUNT[0] / self.effective, _COUNT[1]), _SURE[0]
        if tail is not None:  # a common factor may lengthen the rows, in any dimension
            longer = max(longer, _LONGER[0])
            if not tail.steep:
                rho, sure = _COUNT[0], _SURE[1]
        cost, expected = rho * self.search.rho, _START[few] * _ONE_SIDED * noise / longer
        if tail is not None:
            clip_norm = tail.length(expected)
        elif strict and expected < self.n:
            clip_norm = max(clip_norm, math.sqrt(gx2.isf(expected / self.n, self.weights)))
        for step in range(1, _STEPS + 1):
            found, std = self.rows.longer("count", self.search.center, self.b, clip_norm, cost)
            if tail is not None:
                longer = max(longer, tail.mean_excess(clip_norm))
            allowed = _ONE_SIDED * noise / longer
            excess = found - self.n * self.share(clip_norm)
            doubtful = found if strict else excess
            enough = doubtful + sure * std <= allowed
            if enough or step == _STEPS or self.search.account.left - cost < KEPT * self.search.rho:
                break
            clip_norm *= _RAISED
        surely = max(excess - std, 0.5 * found if strict and few else 0.0, 0.0)
        off = longer * clip_norm
        return clip_norm, enough, off * surely, off * max(doubtful + 2 * std, 0.0)

    # Move -------------------------------------------------------------------------------------------------------------

    def moved(self, step: Array, noise_std: Array) -> tuple[float, float]:
        """Compare how far the last round has moved the sum with what noise and the error of the center explain.

        The first result is the squared distance of the move, less its expected value. The second one is the largest
        value of the first that chance explains.
        """
        expected = noise_std**2 + (self.n * self.search.center_std) ** 2
        total = float(np.sum(expected))
        unexplained = float(np.sum(np.clip(self.n * step, -1e150, 1e150) ** 2)) - total
        return unexplained, total * (_MOVED[0] * math.sqrt(2 * np.sum((expected / total) ** 2)) + _MOVED[1])


def _windows(counts: Array, start: int, stop: int, std: float, most: bool = False) -> list[tuple[int, int]]:
    """Find ranges (start, stop) of neighboring shells that have more rows than noise explains; return them in order.

    A shell is a range of norms, counts[i] is the noisy number of rows in shell i, and `std` is the standard deviation
    of this noise. Only the shells from `start` to `stop` are searched, and the ranges that are found do not overlap.
    If `most` is true, the only result is the range with the most rows relative to the noise, even if noise explains
    them.
    """
    if start >= stop:
        return []
    sums = np.concatenate([[0.0], np.cumsum(counts[start:stop])])
    width = np.subtract.outer(np.arange(sums.size), np.arange(sums.size))
    beyond = np.where(width > 0, np.subtract.outer(sums, sums) / np.sqrt(np.maximum(width, 1)), -np.inf)
    end, begin = np.unravel_index(int(np.argmax(beyond)), beyond.shape)
    low, high = start + int(begin), start + int(end)
    if most:
        return [(low, high)]
    if beyond[end, begin] <= _SEEN[1] * std:
        return []
    return [*_windows(counts, start, low, std), (low, high), *_windows(counts, high, stop, std)]


def _square(number: float) -> float:
    """Return the square of a number >= 0, where numbers above 1e150 count as 1e150, so that nothing overflows."""
    return min(number, 1e150) ** 2
