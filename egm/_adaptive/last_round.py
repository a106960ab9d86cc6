"""Check whether the rows are as the search of `egm.adaptive` found them, choose the clip norm, and release the mean.

A length is the norm of a scaled row, b times its difference from the center. A shell is a range of lengths.

1. Tail. The noisy numbers of rows in shells are compared with those that are expected of normal rows. If there are
   more long rows, `egm._adaptive.tail` gives the clip norm of least error for the case that all clipped parts point in
   one direction.
2. Count. Otherwise the clip norm is that of least forecast error. It is increased until the noisy number of longer rows
   is small. If n sqrt(rho) is small, little is known about the long rows, and fewer of them are allowed.
3. Sum. The rows are scaled, clipped and averaged as in Algorithm 3. The mean is the last center plus the noisy mean of
   the clipped differences from it.
4. Move. If this mean is further from the center than noise and the error of the center explain, clipping has biased it.
   Then the forecast contains the difference. In few dimensions this is done only if n sqrt(rho) is small.
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
    """Hold the released mean, shape (d,), and describe the error of n times this mean."""

    mean: Array
    noise_std: Array
    bias: Array
    forecast: ErrorForecast
    model_holds: bool


@dataclass(frozen=True)
class _Clip:
    """Describe a clip norm, and by how much clipping to it may move the sum, in units of scaled rows.

    `one_sided` is how far the sum moves if the clipped parts of all rows point in one direction. If `model` is true,
    the norms agree with the normal model, `one_sided` counts its rows only, and the rows that it does not explain add
    at least `surely` and at most `at_most`. If `model` is false, the sum moves by at most `at_most` in all. `second` is
    the sum of the squared lengths of the clipped parts.
    """

    norm: float
    one_sided: float
    surely: float = 0.0
    at_most: float = 0.0
    second: float = 0.0
    model: bool = False


@dataclass(frozen=True)
class _Shells:
    """Hold noisy numbers of rows in shells (ranges of lengths): counts[i] rows from edges[i] to the next edge.

    `std` is the standard deviation of the noise in each count. The first `near` edges are quantiles of the normal
    model.
    """

    edges: Array
    counts: Array
    std: float
    near: int

    def tail(self, windows: list[tuple[int, int]]) -> Tail:
        """Return a `Tail` that is fitted to the numbers of rows in the near shells and in some far shells.

        Only the far shells in `windows`, a list of ranges, are taken to have rows.
        """
        seen = np.where(np.arange(self.edges.size) < self.near, np.maximum(self.counts, 0.0), 0.0)
        for start, stop in windows:
            seen[start:stop] = max(np.mean(self.counts[start:stop]), 0.0)
        near = int(np.max(np.flatnonzero(seen > _SEEN[0] * self.std), initial=0))
        last = windows[-1][1] - 1 if windows else near
        return Tail.through(self.edges, seen, last, self.std)


def last_round(search: Search) -> LastRound:
    """Check the tail of the rows' norms, choose the clip norm, release the mean, and forecast its error."""
    return _LastRound(search).run()


class _LastRound:
    """Hold the state of the search, its scaling b, and numbers that follow from the state and the scaling."""

    def __init__(self, search: Search) -> None:
        self.search, self.rows, self.n = search, search.rows, search.n
        self.b = search.calibrated()
        self.spread = search.spread()
        self.sigma = np.maximum(search.sigma, search.center_std / 30)  # a smaller one changes the spread by 1/2000
        self.weights = (self.b * self.spread) ** 2
        self.unit = math.sqrt(np.sum(self.spread**2) / np.sum(self.weights))  # length in the data of scaled length 1
        self.effective = float(np.sum(self.weights) ** 2 / np.sum(self.weights**2))

    def run(self) -> LastRound:
        """Check the tail of the rows' norms, choose the clip norm, release the mean, and forecast its error."""
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
        """Return the probability that a normal row, made 5 % longer for wrong standard deviations, exceeds `length`."""
        return float(gx2.sf(min((length / _SLACK) ** 2, 1e4 * np.sum(self.weights)), self.weights))

    # Tail -------------------------------------------------------------------------------------------------------------

    def look(self) -> Tail | None:
        """Ask for numbers of rows in ranges of norms; return the tail of the norms, or None if they are as expected.

        They are as expected if there are no more long rows than normal rows would have.
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
        """Ask for the noisy numbers of rows in ranges of norms.

        The edges between the ranges are `near`, followed by edges of constant ratio.
        """
        farthest = np.clip(self.search.largest * float(np.max(self.b)), 2 * near[-1], _FARTHEST * near[-1])
        ratio = max(_RATIOS[int(self.search.few)], (farthest / near[-1]) ** (1 / _SHELLS))
        steps = np.arange(1, math.log(farthest / near[-1]) / math.log(ratio) + 1)
        edges = np.concatenate([near, near[-1] * ratio**steps])
        return _Shells(
            edges, *self.rows.shells("tail", self.search.center, self.b, edges, self.search.doubt), near.size
        )

    def likeliest(self) -> Tail:
        """Return the tail of the norms for the case that no range of very long norms certainly has rows.

        The range that most likely has rows is taken to have them.
        """
        shells = self.shells
        return shells.tail(_windows(shells.counts, shells.near, shells.edges.size, shells.std, most=True))

    def confirmed(self, windows: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Check by further questions which of these ranges of very long norms have rows, and return those ranges.

        The number of rows beyond the beginning of the farthest range is asked for. If noise explains it, this range is
        dropped and the next one is checked. The first range that certainly has rows ends the check.
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
        """Return the clip norm of least error for this tail, or a smaller one if hardly any rows are longer than it."""
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
        """Return the root mean square of the norm of the noise in the sum, for the budget rho and clip norm 1."""
        return math.sqrt(2 / rho * float(np.sum(1 / self.b**2)))

    def by_model(self) -> _Clip | None:
        """Return the clip norm of least error for normal rows, increased until few rows are longer, or None.

        The result is None if still too many rows are longer after the last increase.
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
        """Ask how many rows are longer than the clip norm, and increase it until there are few.

        The results are the new clip norm, whether few rows are longer, and by how much these rows move the sum: at
        least, and at most. In many dimensions and without a tail, only the rows that the normal model does not explain
        are counted. With a tail, the search begins at the clip norm that few rows of the tail exceed.
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
        """Compare the squared distance by which the sum has moved with the one that noise and center_std explain.

        The results are the difference of the two, and the largest difference that chance explains.
        """
        expected = noise_std**2 + (self.n * self.search.center_std) ** 2
        total = float(np.sum(expected))
        unexplained = float(np.sum(np.clip(self.n * step, -1e150, 1e150) ** 2)) - total
        return unexplained, total * (_MOVED[0] * math.sqrt(2 * np.sum((expected / total) ** 2)) + _MOVED[1])


def _windows(counts: Array, start: int, stop: int, std: float, most: bool = False) -> list[tuple[int, int]]:
    """Return the ranges (start, stop) of shells that have more rows than noise explains, disjoint and in order.

    Only shells from `start` to `stop` are considered. If `most` is true, return only the range with the most rows
    relative to the noise in their number, even if noise explains them.
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
    """Return the square of a number, where a number above 1e150 counts as 1e150, so that nothing overflows."""
    return min(number, 1e150) ** 2
