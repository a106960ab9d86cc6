"""Check whether the rows are as the search of `egm.adaptive` found them, choose the clip norm, and release the mean.

The length of a row x is ||b (x - center)||, with the scaling b and the center that the search has found. What clipping
removes from a row is called its clipped part. A shell is a range of lengths, n is the number of rows, and rho is the
budget, which is called small if n sqrt(rho) is below 424. The effective dimension is (sum s^2)^2 / sum s^4 for the
standard deviations s of the entries of a scaled row.

1. Tail. The noisy numbers of rows in shells are compared with those expected of normal rows. If a basis was learned,
   this is done along the basis and in the columns, and the expected errors in both cases decide whether the basis is
   given up.
2. Count. If more rows are long than in normal data, `egm._adaptive.tail` gives the clip norm of least error for the
   case that the clipped parts of all rows point in one direction, and steps 3 and 6 are left out. Otherwise the clip
   norm is that of least forecast error, increased until the noisy number of longer rows is small. With a small budget,
   fewer longer rows are allowed, because little is known about them.
3. Clipped parts. They cancel in their sum only if the rows lie symmetrically around the center. If the effective
   dimension is at least 2.5, and if the budget is not small or a basis is used, the noisy sum of the clipped parts is
   measured. Then `egm._adaptive.correction` corrects the sum of the rows or, if the correction is too noisy, the clip
   norm is increased.
4. Unseen. If the mechanism has ``unseen > 0``, the rows beyond the clip norm and the rows beyond a larger norm are
   counted. The answers bound what clipping takes, for all data in the declared ranges.
5. Sum. The rows are scaled, clipped and averaged as in Algorithm 3 of Poulsen's report. The released mean is the last
   center plus the noisy mean of the clipped differences of the rows from this center.
6. Move. If the clipped parts were not measured, and if the budget is small or the effective dimension is at least 48,
   the released mean is compared with the last center. A difference that noise and the error of this center do not
   explain is a bias by clipping, and is added to the forecast of the error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from egm import forecast, gx2
from egm._adaptive.correction import Correction, correct, unexplained
from egm._adaptive.radial import Radial
from egm._adaptive.search import KEPT, Search
from egm._adaptive.tail import Tail
from egm._adaptive.unseen import Unseen
from egm._basis import BasisLike
from egm._types import Array
from egm.forecast import ErrorForecast

__all__ = ["LastRound", "last_round", "last_round_below", "too_long"]

_NEAR = (0.5, 0.2, 0.05, 0.01, 0.001)  # shares of normal rows beyond the first edges of the shells
_RATIOS = 1.5, 2.5  # ratio of each further edge to the one before; the second if `search.few`
_SEEN = 2.5, 4.0  # standard deviations of noise by which rows are seen: in a near shell, in one of many far windows
_CONFIRMED = 3.0  # standard deviations of noise by which rows are seen when the query is repeated
_MORE = 3.5, 2.0  # standard deviations, of the noise and of the number of rows, by which there are too many
_SHELLS = 150  # largest number of far shells; their ratio is larger for ranges of more than 26 decades
_FARTHEST = 1e100  # largest ratio of the last edge to the last near one
_SLACK = 1.05  # factor by which wrong standard deviations may lengthen a normal row
_COUNT = 0.06, 0.005  # share of the budget to count rows: the first over the effective dimension, at least the second
_STEPS, _RAISED = 5, 1.35  # largest number of clip norms that are tried, and the factor from one to the next
_START = 0.5, 0.4  # rows expected beyond the first clip norm, over those allowed; the second if `search.few`
_SURE = 0.5, 1.0  # standard deviations added to a number of rows; the second for a tail without variance
_FALLING = 4.0, 1.5  # standard deviations by which long rows are seen before a power is fitted, and the least power
_LONGER = 0.35, 1.0  # excess of a longer row over the clip norm, divided by it, for d = 1; the second if `search.few`
_ONE_SIDED = 2.5  # standard deviations of the noise by which clipped parts may move the sum if all point one way
_SPREAD_OUT = 5.0  # effective dimension above which _ONE_SIDED is multiplied by effective dimension / _SPREAD_OUT
_MANY = 48.0  # effective dimension from which a move of the center shows whether the clipped parts point one way
_CORRECTED = 2.5  # effective dimension from which the sum of the clipped parts is measured
_RATIO, _PAIRS = 1.4, 4  # ratio of the two clip norms of a pair, and number of pairs that are tried
_BEYOND = 0.2, 0.005  # share of the budget to count rows beyond these norms: first / effective dimension + second
_CHANCE = 2.0  # standard deviations by which these numbers of rows may be wrong
_ASIDE = 0.45, 0.05  # share of the budget for the sum of the clipped parts: first / effective dimension + second
_OUTSIDE = 3.0  # standard deviations by which noise may move a mean out of the declared range
_LATE = 1.5  # factor by which the error, if all long rows point in one direction, may exceed the limit late in a search
_RARE = 0.1  # normal rows that are expected beyond the larger of two norms beyond which rows are counted
_NEARER = 0.2  # standard deviations of noise that the rows between the two norms add to the bound if all is normal
_LEAST_PART = 0.02  # least part of the cost of these two numbers of rows that is spent on each of them
# Squared error expected in the columns, over that along a learned basis, below which the basis is given up. The first
# number is for the case that the norms in the columns look normal.
_COLUMNS = 1.5, 0.7
_MOVED = 4.0, 0.1  # standard deviations, plus share of its expectation, by which a squared move is too large


@dataclass(frozen=True)
class LastRound:
    """Hold the released mean of n rows, and describe the error of the sum, which is estimated by n times the mean.

    All values are in the units of the rows, which may be standardized. `noise_std` is the standard deviation of the
    noise in each entry of the sum. `uncorrected` is a noisy estimate of what is still missing in each entry because of
    clipping. `bias` estimates the largest further amount by which clipping may have moved each entry, up or down.
    `uncorrected_std` and `bias_std` are the standard deviations of the noise in these two estimates. `forecast` is the
    expected squared error of the sum, divided into parts by their causes. `model_holds` is true if the norms of the
    rows looked like those of normal rows. `share` has the variance of each column, divided by the sum of the variances
    of all columns; the error due to clipping is divided among the columns in these proportions. `center` is the center
    that was found before the last sum, in the coordinates of the columns. `sigma` has the standard deviations that were
    found before the last sum, along `basis` if there is one. `spread` has the standard deviations of the columns, which
    follow from `sigma`. If more rows are long than in normal data, `spread` has upper bounds instead, because any one
    column may make the rows long. `unseen` bounds what clipping took from the sum, or is None if a search was made and
    no part of the budget was declared for this. `method` is "search", or "ranges" for rows that are clipped to declared
    ranges without a search.
    """

    mean: Array
    noise_std: Array
    uncorrected: Array
    uncorrected_std: Array
    bias: Array
    bias_std: Array
    forecast: ErrorForecast
    model_holds: bool
    share: Array
    center: Array
    sigma: Array
    spread: Array
    basis: BasisLike | None
    unseen: Unseen | None
    method: Literal["search", "ranges"] = "search"


class _Shift(NamedTuple):
    """Estimate, from a noisy number of long rows, how far clipping these rows moves the sum of the scaled rows.

    `surely` is a lower estimate of this distance, and >= 0. `at_most` estimates the distance if all long rows point in
    one direction; because of its noise, with the standard deviation `doubt`, it may be negative.
    """

    surely: float = 0.0
    at_most: float = 0.0
    doubt: float = 0.0


@dataclass(frozen=True)
class _Clip:
    """Describe a clip norm, and how far clipping the scaled rows to this norm may move their sum.

    `norm` is the clip norm. What clipping removes from a row is called its clipped part. `one_sided` and `shift`
    estimate the distance by which the sum moves if the clipped parts of all rows point in one direction. If `model` is
    true, the norms of the rows agree with those of normal rows. Then `one_sided` is this distance for normal rows, and
    `shift` is the further distance for long rows beyond the number that normal rows would have. If `model` is false,
    `tail` is a model of the norms, and `shift` estimates the whole distance. `one_sided`, by which it is decided
    whether to give up the search, is then equal to `shift.surely` or to `shift.at_most`. `second` is the sum of the
    squared lengths of the clipped parts if `norm` is the best clip norm for `tail`, and 0 otherwise.

    `found` is the correction of the sum by a noisy sum of the clipped parts up to a larger norm, or None if this sum
    was not measured. If it was measured, `one_sided` and `shift` are about clipping to the larger norm. `aside` has the
    standard deviations of the noise in the measured sum, or is None if nothing is corrected.
    """

    norm: float
    one_sided: float
    shift: _Shift
    second: float = 0.0
    model: bool = False
    tail: Tail | None = None
    found: Correction | None = None
    aside: Array | None = None


@dataclass(frozen=True)
class _Shells:
    """Hold noisy numbers of rows in ranges of norms, which are called shells.

    `edges` are norms in ascending order. counts[i] is the noisy number of rows with a norm from edges[i] to the next
    edge, or above the last edge if i is the last index. `std` is the standard deviation of the noise in each number.
    The first `near` edges are quantiles of the norm of a normal row; the shells that begin at these edges are the near
    ones, and the other shells are the far ones.
    """

    edges: Array
    counts: Array
    std: float
    near: int

    def tail(self, windows: list[tuple[int, int]], ends: bool) -> Tail:
        """Fit a `Tail`, a model of the number of rows with a norm above t for each t, to the noisy numbers of rows.

        `windows` is a list of pairs (start, stop): the far shells with indices from start to stop - 1 are taken to have
        rows. Within such a window, each shell gets the mean number of rows of the window. All other far shells are
        treated as empty. A near shell keeps its own number. Negative numbers become 0. `ends` is true if a further
        query has shown that few rows are beyond the last window; then the number of rows may fall faster beyond this
        window than if `ends` is false.
        """
        seen = np.where(np.arange(self.edges.size) < self.near, np.maximum(self.counts, 0.0), 0.0)
        for start, stop in windows:
            seen[start:stop] = max(np.mean(self.counts[start:stop]), 0.0)
        near = int(np.max(np.flatnonzero(seen > _SEEN[0] * self.std), initial=0))
        last = windows[-1][1] - 1 if windows else near
        return Tail.through(self.edges, seen, last, self.std, ends)


def last_round(search: Search, unseen: float = 0.0) -> LastRound:
    """Check the norms of the rows, choose the clip norm, release the mean, and return it with a forecast of its error.

    `search` is the finished search. It has the center and the standard deviations of the rows, and the part of the
    budget that is left. All of this part is spent here. Before the sum, the share `unseen` of what is still left is
    spent on noisy numbers of long rows, from which the attribute `unseen` of the result, a `LastRound`, is computed.
    """
    it, seen = _looked(search)
    return it.run(it.clip(seen), unseen)


def last_round_below(search: Search, limit: float, unseen: float) -> LastRound | None:
    """Return the result of `last_round`, or None if the squared error that is expected of the sum is too large.

    The error is too large above `limit` or, if the first check of the norms finds many long rows, above 1.5 times
    `limit`. Then the sum is not released, and a part of the budget is left. `search` is the finished search. Before the
    sum, the share `unseen` of the remaining budget is spent on noisy numbers of long rows.
    """
    it, seen = _looked(search, limit)
    if seen is not None:
        return None if it.least_error(seen) > _LATE * limit else it.run(it.by_tail(seen), unseen)
    clip = it.by_model()
    if clip is None and it.limited:
        return None
    clip = clip or it.by_tail(it.likeliest())
    off = 0.0 if clip.model else clip.one_sided
    if clip.found is not None:
        off = float(np.linalg.norm([clip.found.left, clip.found.std])) / it.unit
    return None if it.error(clip.norm, off) > limit else it.run(clip, unseen)


def too_long(search: Search, cost: float, limit: float) -> bool:
    """Return whether so many rows have large norms that the expected squared error of the sum would be above `limit`.

    A query for the numbers of rows in ranges of norms has the privacy cost `cost`. If it shows long rows, further
    queries check this, each at half of the cost. The `search` may go on afterwards and improve its center.
    """
    it = _LastRound(search, cost)
    seen = it.look()
    return seen is not None and it.least_error(seen) > limit


def _looked(search: Search, limit: float = math.inf) -> tuple[_LastRound, Tail | None]:
    """Check whether many rows are longer than normal ones; return an object to release the mean, and a `Tail` or None.

    The second result is None if the norms look like those of normal rows; otherwise it is a model of the norms.
    `search` is the finished search. No clip norm will be tried for which noise alone makes the squared error of the sum
    larger than `limit`.

    If a basis was learned, the norms without the basis are checked, too, because a rotation spreads a long tail of one
    column over many coordinates. If these norms look normal, the basis is kept only if the expected error with it is
    less than two thirds of that without it. Otherwise the error without the basis is a rough estimate for the worst
    case, and the basis is given up only if this error is less than 0.7 of that with it.
    """
    it = _LastRound(search, limit=limit)
    seen = it.look()
    other = search.in_columns()
    if other is None:
        return it, seen
    columns = _LastRound(other, limit=limit)
    there = columns.look()
    if columns.expected(there) < it.expected(seen) * _COLUMNS[there is not None]:
        return columns, there
    search.rows.turn(search.basis)
    return it, seen


class _LastRound:
    """Release the mean of the rows after a finished search; only the functions of this module make such objects.

    When the object is made, a private query corrects the standard deviations of the search by one common factor. `b`
    has the factors by which the coordinates of a row are multiplied before it is clipped, `weights` has the variance of
    each entry of such a scaled row, and `effective` is the effective dimension, (sum w)^2 / sum w^2 for these variances
    w. `unit` is the factor that turns a typical length of scaled rows into the units of the data.
    """

    def __init__(self, search: Search, doubt: float | None = None, limit: float = math.inf) -> None:
        self.limit = limit  # largest squared error of the sum; a larger clip norm is not tried
        self.doubt = doubt or search.doubt  # cost of asking how many rows have very large norms
        self.search, self.rows, self.n, self.rotated = search, search.rows, search.n, search.basis is not None
        self.ended = self.limited = False
        self.asked: list[tuple[float, float, float]] = []  # see `raised`
        self.b = search.calibrated()
        self.spread = search.spread()
        self.sigma = np.maximum(search.sigma, search.center_std / 30)  # a smaller one changes the spread by 1/2000
        self.weights = (self.b * self.spread) ** 2
        self.unit = math.sqrt(np.sum(self.spread**2) / np.sum(self.weights))  # length in the data of scaled length 1
        self.effective = float(np.sum(self.weights) ** 2 / np.sum(self.weights**2))

    def clip(self, seen: Tail | None) -> _Clip:
        """Choose the clip norm, and return it as a `_Clip`; `seen` is the result of `look`, the check for long rows.

        If `seen` is None, `by_model` chooses the clip norm as for normal rows. If `seen` is a model of the norms of the
        rows, or if `by_model` finds no clip norm that only few rows exceed, `by_tail` chooses it for a model of the
        norms. Both methods make private queries about the rows, which are paid from the budget.
        """
        clip = self.by_model() if seen is None else None
        return clip or self.by_tail(seen or self.likeliest())

    def error(self, clip_norm: float, one_sided: float) -> float:
        """Return the expected squared error of the sum for rows clipped to `clip_norm`, in the units of the data.

        It is the squared error due to noise, plus the square of a bias. `one_sided` is the bias in the units of the
        scaled rows: the distance by which clipping is assumed to move their sum.
        """
        noise = self.noise(self.search.account.left) * min(clip_norm, 1e150)
        return _square(noise) + _square(self.unit * one_sided)

    def expected(self, seen: Tail | None) -> float:
        """Return the expected squared error of the sum of the rows, for the clip norm that makes it least.

        `seen` is the result of `look`: a model of the norms of the rows, or None for rows whose norms look normal.
        """
        noise = self.noise(self.search.account.left)
        return self.best(noise)[1] if seen is None else self.least_error(seen)

    def best(self, noise: float) -> tuple[float, float]:
        """Return the clip norm of least forecast error for normal rows, and the squared error of the sum for it.

        `noise` is the root mean square of the norm of the noise in the sum for the clip norm 1, in the units of the
        data.
        """
        return forecast.best_clip_norm(
            lambda c: (noise * c) ** 2, self.sigma, self.n, self.b, self.search.center_std, tolerance=1e-4
        )

    def least_error(self, tail: Tail) -> float:
        """Return the expected squared error of the sum for the best clip norm; `tail` models the norms of the rows."""
        clip_norm = tail.clip_norm((self.noise(self.search.account.left) / self.unit) ** 2)
        return self.error(clip_norm, tail.excess(clip_norm)[0])

    def run(self, clip: _Clip, share: float) -> LastRound:
        """Release the mean of the rows, clipped as `clip` says, and return it with a forecast of its error.

        First, the share `share` of the remaining budget is spent to bound what clipping takes if a few rows are far
        away (the method `unseen`). The mean costs all that is left then.
        """
        search, b, n = self.search, self.b, self.n
        center, variances = search.center_of_columns, search.of_columns(self.spread) ** 2
        unseen = self.unseen(clip, share * search.account.left) if share else None
        mean, std = self.rows.mean("sum", search.center, b, clip.norm, search.account.left)
        noise_std = n * std / b
        rest, rest_std = np.zeros((2, b.size))
        if clip.found is not None:
            mean, noise_std = mean + clip.found.added * b / n, np.hypot(noise_std, clip.found.std)
            rest, rest_std = clip.found.rest, clip.found.unknown
        if clip.model:
            clipping, off_center = forecast.clipping(self.sigma, n, b, clip.norm, search.center_std)
            off_center += _square(self.unit * clip.shift.surely)
            bias, bias_std = (clip.one_sided + clip.shift.at_most) / b, clip.shift.doubt / b
            if clip.found is None:
                (more, doubtful), many = self.moved(mean / b, noise_std), self.effective >= _MANY
                if more > doubtful and (search.few or many):
                    off_center += more
                if many:
                    bias = np.minimum(bias, math.sqrt(max(more, 0.0)))
                    bias_std = np.minimum(bias_std, math.sqrt(doubtful) / 2)
            bias, bias_std = (part / math.sqrt(self.effective) for part in (bias, bias_std))
            if clip.found is not None:
                bias = bias + clip.found.hidden
                off_center += _square(float(np.linalg.norm(clip.found.left)))
        else:
            clipping, off_center = _square(self.unit) * clip.second, _square(self.unit * clip.shift.at_most)
            bias, bias_std = clip.shift.at_most / b, clip.shift.doubt / b
        bias, bias_std, noise_std = (search.of_columns(part) for part in (bias, bias_std, noise_std))
        beyond = n * search.move(mean / b)
        outside = np.maximum(np.abs(beyond) - _OUTSIDE * noise_std, 0.0)
        bias, off_center = bias + outside, off_center + _square(float(np.linalg.norm(outside)))
        if unseen is not None:
            unseen = unseen._replace(most=unseen.most + np.abs(beyond))
        square = 0.0 if clip.tail is None else clip.tail.square(n)
        farthest = 2 * n * search.bound  # from one end of the declared range to the other
        most = self.search.d * _square(farthest)
        expected = ErrorForecast(float(np.sum(noise_std**2)), min(clipping, most), min(off_center, most))
        return LastRound(
            mean=search.center_of_columns,
            noise_std=noise_std,
            uncorrected=search.vector_of_columns(rest),
            uncorrected_std=search.of_columns(rest_std),
            bias=np.minimum(bias, farthest),
            bias_std=np.minimum(bias_std, farthest),
            forecast=expected,
            model_holds=clip.model,
            share=variances / np.sum(variances),
            center=center,
            sigma=search.sigma,
            spread=search.of_columns(np.sqrt(search.sigma**2 + max(square - np.sum(self.weights), 0.0) / b**2)),
            basis=search.basis,
            unseen=unseen,
        )

    def affords(self, cost: float) -> bool:
        """Return whether a query of the given `cost` leaves more of the budget than is kept for the sum."""
        return self.search.account.left - cost > KEPT * self.search.rho

    def share(self, length: float) -> float:
        """Return the probability that 1.05 times the norm of a scaled row is larger than `length`, for normal rows.

        The rows have the center and the standard deviations of the search. The factor 1.05 allows for errors of the
        estimated standard deviations.
        """
        return float(gx2.sf(min((length / _SLACK) ** 2, 1e4 * np.sum(self.weights)), self.weights))

    # Tail -------------------------------------------------------------------------------------------------------------

    def look(self) -> Tail | None:
        """Return a `Tail` fitted to the numbers of rows if there are too many long rows; otherwise return None.

        There are too many if chance and noise do not explain their number for normal rows. To find this out, the search
        asks how many rows have norms in each of many ranges, and gets noisy answers. A `Tail` is a model of the number
        of rows with a norm above t, for each t.
        """
        near = np.sqrt([gx2.isf(p, self.weights) for p in _NEAR])
        self.shells = shells = self.ask(near)
        windows = self.bounded(self.confirmed(_windows(shells.counts, near.size, shells.edges.size, shells.std)))
        beyond = np.cumsum(shells.counts[: near.size][::-1])[::-1]
        beyond += sum(np.sum(shells.counts[start:stop]) for start, stop in windows)
        expected = self.n * np.array([self.share(t) for t in near])
        more = _MORE[0] * shells.std * np.sqrt(np.arange(near.size, 0, -1)) + _MORE[1] * np.sqrt(expected)
        return shells.tail(windows, self.ended) if windows or np.any(beyond > expected + more) else None

    def ask(self, near: Array) -> _Shells:
        """Ask for the noisy numbers of rows in ranges of norms, and return them as `_Shells`.

        The edges between the ranges are the ascending norms in `near`, followed by larger edges. Each of the larger
        edges is a constant multiple of the edge before it.
        """
        farthest = np.clip(self.search.largest * float(np.max(self.b)), 2 * near[-1], _FARTHEST * near[-1])
        ratio = max(_RATIOS[int(self.search.few)], (farthest / near[-1]) ** (1 / _SHELLS))
        steps = np.arange(1, math.log(farthest / near[-1]) / math.log(ratio) + 1)
        edges = np.concatenate([near, near[-1] * ratio**steps])
        return _Shells(edges, *self.rows.shells("tail", self.search.center, self.b, edges, self.doubt), near.size)

    def likeliest(self) -> Tail:
        """Return a `Tail` for the case that too many rows are long, but noise explains their number in each range.

        A `Tail` is a model of the number of rows with a norm above t, for each t. If the numbers that `raised` has
        asked for fall until noise explains the last one, the model is fitted to them. Otherwise only one range of very
        large norms has rows in the model, the most likely one: the range with the largest number of rows in proportion
        to the noise. If a further query finds too few rows beyond its lower end, the most likely range below this end
        is taken, and checked in the same way. The methods `ask` and `raised` must have been called before.
        """
        shells, high, cost = self.shells, self.shells.edges.size, self.doubt / 2
        lengths, counts, (noise, *_) = np.array(self.asked).T
        if self.falling() and counts[-1] <= _SEEN[0] * noise:
            return shells.tail([], self.ended).counted(lengths, counts, noise)
        known = float(np.mean(counts))
        windows = _windows(shells.counts, shells.near, high, shells.std, most=True)
        while windows and self.affords(cost):
            high = windows[0][0]
            found, std = self.rows.longer("tail", self.search.center, self.b, float(shells.edges[high]), cost)
            if found > min(_CONFIRMED * std, known / 2):
                break
            windows = _windows(shells.counts, shells.near, high, shells.std, most=True)
        return shells.tail(self.bounded(windows), self.ended)

    def confirmed(self, windows: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Check by further queries which ranges of very large norms have rows, and return these ranges.

        A shell is a narrow range of norms. A range is a pair (start, stop): it has the shells with indices from start
        to stop - 1. `windows` is the list of the ranges to be checked, in ascending order. The first query asks how
        many rows have a norm above the lower end of the last range. If noise explains the answer, this range is
        removed, and the range before it is checked in the same way. The check ends at the first range that certainly
        has rows, or when no more of the budget may be spent. The result is the list without the removed ranges.
        """
        cost = self.doubt / 2
        while windows and self.affords(cost):
            edge = float(self.shells.edges[windows[-1][0]])
            found, std = self.rows.longer("tail", self.search.center, self.b, edge, cost)
            if found > _CONFIRMED * std:
                break
            windows = windows[:-1]
        return windows

    def bounded(self, windows: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Find out by further queries where the last of the ranges in `windows` ends, and return the corrected list.

        A shell is a narrow range of norms. A range is a pair (start, stop): it has the shells with indices from start
        to stop - 1. Because of noise, the last range may end with shells without rows, which makes the clip norm far
        too large, or lack further shells with few rows. So the method looks for an edge between shells beyond which
        there are no more rows than noise explains, beginning at the end of the range. If it finds one, the range ends
        there, and the attribute `ended` is set to true. Otherwise the range can only become longer.
        """
        if not windows:
            return windows
        *before, (start, stop) = windows
        cost, low, high = self.doubt / 2, start, self.shells.edges.size
        asked = min(stop, high - 1)
        while low < asked < high and self.affords(cost):
            edge = float(self.shells.edges[asked])
            found, std = self.rows.longer("tail", self.search.center, self.b, edge, cost)
            if found > _CONFIRMED * std:
                low = asked
            else:
                high, self.ended = asked, True
            asked = (low + high) // 2 if self.ended else low + 1
        return [*before, (start, high if self.ended else max(low, stop))]

    def by_tail(self, tail: Tail) -> _Clip:
        """Choose the clip norm of least squared error for rows with the norms of the model `tail`; return a `_Clip`.

        `tail` models the number of rows with a norm above t, for each t. A `_Clip` has the clip norm, and says how far
        clipping may move the sum of the rows. The method first asks how many rows are longer than a norm that few rows
        of the model exceed, and increases this norm a few times while many rows are longer. If few rows exceed the last
        norm, and if this norm is below the best clip norm of the model, it becomes the clip norm. Otherwise the best
        clip norm of the model is taken. If the answers show more rows than the model has, or if many rows exceed the
        last norm, the model is first fitted to the answers.
        """
        noise = self.noise(self.search.account.left) / self.unit
        clip_norm = tail.clip_norm(noise**2)
        smaller, few, shift = self.raised(clip_norm, noise, tail)
        if few and smaller < clip_norm:
            return _Clip(smaller, shift.surely, shift, tail=tail)
        if self.asked:
            lengths, counts, (std, *_) = np.array(self.asked).T
            if not few or np.any(counts > [tail.longer(length) + _SEEN[0] * std for length in lengths]):
                tail = tail.counted(lengths, counts, std)
        clip_norm = tail.clip_norm((self.noise(self.search.account.left) / self.unit) ** 2)
        one_sided, second = tail.excess(clip_norm)
        return _Clip(clip_norm, one_sided, _Shift(at_most=one_sided), second, tail=tail)

    # Count ------------------------------------------------------------------------------------------------------------

    def noise(self, rho: float) -> float:
        """Return the root mean square of the norm of the noise in the sum, for the cost `rho` and the clip norm 1.

        The result is in the units of the data. For another clip norm, the root mean square is proportional to the clip
        norm.
        """
        return self.n * self.search.noise(rho) * math.sqrt(float(np.sum(1 / self.b**2)))

    def by_model(self) -> _Clip | None:
        """Return a `_Clip` with a clip norm for normal rows, or None if many real rows are longer than all norms tried.

        A `_Clip` has the clip norm, says how far clipping may move the sum of the rows, and may have a correction of
        the sum. The first try is the clip norm of least forecast error for normal rows or, if clipping to this norm
        could move the sum much further than noise does, a larger norm. If the effective dimension is at least 2.5, and
        if n sqrt(rho) is at least 424 for the budget rho or a basis is used, the method `corrected` may find a clip
        norm and a correction. If it finds none, the method `raised` increases the clip norm until only few rows are
        longer. The result is also None if noise alone would make the squared error for the next norm larger than
        `limit`.
        """
        search, n = self.search, self.n
        rho = search.account.left
        noise = self.noise(rho)
        clip_norm, _ = self.best(noise)
        radial = Radial(self.sigma, search.center_std, self.b)
        allowed = _ONE_SIDED * max(1.0, self.effective / _SPREAD_OUT)
        if n * self.unit * radial.lost(clip_norm) > allowed * noise * clip_norm:
            clip_norm = max(clip_norm, radial.best(n, search.noise(rho), allowed)[0])
        if self.effective >= _CORRECTED and (self.rotated or not search.few):
            if clip := self.corrected(clip_norm, radial):
                return clip
            noise = self.noise(search.account.left)
        clip_norm, few, shift = self.raised(clip_norm, noise / self.unit)
        if not few and not self.limited:  # perhaps noise has made all the numbers of long rows too large
            more = [found - n * self.share(length) for length, found, _ in self.asked]
            few = float(np.mean(more)) <= _CONFIRMED * self.asked[0][2] / math.sqrt(len(more))
        return _Clip(clip_norm, n * radial.lost(clip_norm), shift, model=True) if few else None

    def corrected(self, clip_norm: float, radial: Radial) -> _Clip | None:
        """Measure the parts that clipping removes from the rows; return a clip norm and a correction as a `_Clip`.

        Pairs of a clip norm and a larger norm are tried, beginning with `clip_norm`, until few rows are beyond the
        larger norm. Rows are clipped to this norm; the noisy sum of the parts that clipping to the clip norm then
        removes shows how the sum of the rows is to be corrected. If a correction would be too noisy, the next pair is
        tried; after the last pair, the larger norm becomes the clip norm, and nothing is corrected. The result is None
        if too many rows are longer than all norms, or if the budget is too small. `radial` is the distribution of the
        norms of normal rows.
        """
        search, n, back = self.search, self.n, self.n / self.b
        counting, cost = ((a / self.effective + b) * search.rho for a, b in (_BEYOND, _ASIDE))
        noise = self.noise(search.account.left - counting) / self.unit
        norms: Array = clip_norm * _RATIO ** np.arange(_PAIRS + 1.0)
        first, distances = self.beyond(norms, noise, counting)
        if first is None or not self.affords(cost):
            return None
        for i in range(first, _PAIRS):
            mean, std = self.rows.parts("aside", search.center, self.b, float(norms[i]), float(norms[i + 1]), cost)
            variance, own = (std * back) ** 2, back * search.noise(search.account.left) * norms[i]
            off_center = n * radial.excess(norms[i : i + 1])[2][0] * search.center_std
            found = correct(mean * back, variance, variance + off_center**2, own, _RATIO)
            if not found.larger or not self.affords(cost):
                break
        one_sided, clip_norm = n * radial.lost(float(norms[i + 1])), float(norms[i + found.larger])
        shift, aside = _Shift(*distances[:, i].tolist()), None if found.larger else np.sqrt(variance)
        return _Clip(clip_norm, one_sided, shift, model=True, found=found, aside=aside)

    def beyond(self, norms: Array, noise: float, cost: float) -> tuple[int | None, Array]:
        """Ask, at the given cost, how many rows are longer than each of the ascending `norms` except the first.

        In the method `corrected`, norms[i] and norms[i + 1] are a pair. The first result is the index i of the first
        pair for which only few rows are longer than norms[i + 1]. If there is no such pair, it is the index of the last
        pair, or None if clearly too many rows are longer than the last norm. If too many rows seem to be longer than
        norms[1], the query is repeated at the same cost, and the means of both answers decide, because noise alone
        would otherwise too often make the clip norm too large. `noise` is the root mean square of the norm of the noise
        in the sum for the clip norm 1, in the units of the scaled rows.

        The second result has a column for each norm except the first, with the three numbers of a `_Shift`: how far
        clipping to this norm moves the sum. Only the excess counts, the number of longer rows minus the number that is
        expected of normal rows. For the lower estimate, one standard deviation of the noise is subtracted from it.
        """
        off = _LONGER[0] / math.sqrt(self.effective) * norms[1:]
        expected = self.n * np.array([self.share(norm) for norm in norms[1:]])
        total = np.zeros(expected.size)
        for asked in (1, 2):
            counts, std = self.rows.shells("count", self.search.center, self.b, norms[1:], cost)
            total += np.cumsum(counts[::-1])[::-1]
            more = total / asked - expected
            chance = std * np.sqrt(np.arange(counts.size, 0, -1) / asked)
            few = off * more <= np.maximum(noise * norms[:-1] - _SURE[0] * off * chance, _CHANCE * off * chance)
            if few[0] or not self.affords(cost):
                break
        distances = off * np.array([np.maximum(more - chance, 0.0), more, chance])
        too_many = off[-1] * (more[-1] - _CHANCE * chance[-1]) > noise * norms[-1]
        first = int(np.argmax(few)) if few.any() else None if too_many else few.size - 1
        return first, distances

    def raised(self, clip_norm: float, noise: float, tail: Tail | None = None) -> tuple[float, bool, _Shift]:
        """Ask how many rows are longer than `clip_norm`, and increase the clip norm until only few rows are longer.

        The results are the last clip norm, whether only few rows are longer than it, and how far clipping these rows
        moves the sum. The second result can be false, because the budget, the number of tries and the squared error are
        limited. `noise` is the root mean square of the norm of the noise in the sum for the clip norm 1, in the units
        of the scaled rows. The first norm that is tried is `clip_norm` or a larger one that few normal rows exceed; if
        a `tail` (a model of the norms) is given, it is one that few rows of this model exceed. Without a `tail`, if the
        effective dimension is at least 48, only rows in excess of those expected of normal rows count.

        For each norm that is tried, the attribute `asked` gets this norm, the noisy number of longer rows, and the
        standard deviation of the noise.
        """
        few, strict = int(self.search.few), tail is not None or self.effective < _MANY
        longer = _LONGER[few] / self.effective ** (0.5 if strict and not few else 0.25)
        rho, sure = max(_COUNT[0] / self.effective, _COUNT[1]), _SURE[0]
        if tail is not None:  # a common factor may lengthen the rows, in any dimension
            longer = max(longer, _LONGER[0])
            if not tail.steep:
                rho, sure = _COUNT[0], _SURE[1]
        self.asked = []
        cost, expected = rho * self.search.rho, _START[few] * _ONE_SIDED * noise / longer
        if tail is not None:
            clip_norm = tail.length(expected)
        elif strict and expected < self.n:
            clip_norm = max(clip_norm, math.sqrt(gx2.isf(expected / self.n, self.weights)))
        for step in range(1, _STEPS + 1):
            if self.error(clip_norm, 0.0) > self.limit:
                self.limited = True
                return clip_norm, False, _Shift()
            found, std = self.rows.longer("count", self.search.center, self.b, clip_norm, cost)
            self.asked.append((clip_norm, found, std))
            longer = max(longer, self.falling() if tail is None else tail.mean_excess(clip_norm))
            allowed = _ONE_SIDED * noise / longer
            excess = found - self.n * self.share(clip_norm)
            doubtful = found if strict else excess
            enough = doubtful + sure * std <= allowed
            if enough or step == _STEPS or not self.affords(cost):
                break
            clip_norm *= _RAISED
        surely = max(excess - std, 0.5 * found if strict and few else 0.0, 0.0)
        at_most, off = excess if tail is None else max(found, 0.0), longer * clip_norm
        return clip_norm, enough, _Shift(off * surely, off * at_most, off * std)

    def falling(self) -> float:
        """Return the mean of r / C - 1 over the rows whose norm r is above C, the last norm that `raised` has tried.

        It is estimated from the noisy numbers of longer rows, as if the number in excess of that of normal rows fell
        like a power of the norm. The result is 0 if there is one number only, if the first excess is not clearly more
        than noise, or if n sqrt(rho) is small, where this mean is assumed to be large in any case.
        """
        (first, found, std), (last, few, _) = self.asked[0], self.asked[-1]
        more, still = found - self.n * self.share(first), few - self.n * self.share(last)
        if self.search.few or first == last or more <= _FALLING[0] * std:
            return 0.0
        power = math.log(more / max(still, std)) / math.log(last / first)
        return 1 / (max(power, _FALLING[1]) - 1)

    # Unseen -----------------------------------------------------------------------------------------------------------

    def unseen(self, clip: _Clip, cost: float) -> Unseen:
        """Ask how many rows are longer than the clip norm C, and than a larger norm E; return what clipping may take.

        Let a be E - C in the units of a column. Clipping takes at most a from a row whose length is at most E. From a
        longer row it takes at most D, the distance from the center to the end of the declared range. So it takes at
        most a N + (D - a) M from the sum, if N rows are longer than C, and M rows longer than E. Along a basis, M is
        multiplied by D instead, because there a correction of the sum can take a further amount, at most a, from a row
        longer than E. The result has this bound for the noisy numbers, the standard deviation of its noise, and an
        upper estimate of the sum of the squares of what is taken from single rows. E is chosen so that the bound is
        small. `cost` is divided between the two queries so that the noise in the bound is least.
        """
        search, b, C = self.search, self.b, clip.norm
        ends = search.bound + np.multiply.outer([1.0, -1.0], search.center_of_columns)
        farthest = float(np.linalg.norm(ends) / np.linalg.norm(1 / b))
        if clip.tail is None:
            part = _NEARER / (2 + self.n * self.share(C) * math.sqrt(2 * cost))
            E = max(C + part * farthest, _SLACK * math.sqrt(gx2.isf(_RARE / self.n, self.weights)))
        else:
            E = clip.tail.parted(C, farthest)
        E = max(E, _RATIO * C) if clip.found is not None else E
        near = search.of_columns((E - C) / b)
        far = ends if self.rotated else np.maximum(ends - near, 0.0)
        a, rest = float(np.linalg.norm(near)), float(np.linalg.norm(far))
        first = min(max(a / (a + rest), _LEAST_PART), 1 - _LEAST_PART)
        (some, some_std), (few, few_std) = (
            self.rows.longer("unseen", search.center, b, length, part * cost)
            for length, part in ((C, first), (E, 1 - first))
        )
        aside = 0.0 if clip.aside is None else search.of_columns(clip.aside)
        square = max(some + 2 * some_std, 0.0) * near**2 + max(few + 2 * few_std, 0.0) * far**2
        std = np.sqrt((some_std * near) ** 2 + (few_std * far) ** 2 + aside**2)
        return Unseen(some * near + few * far, std, square)

    # Move -------------------------------------------------------------------------------------------------------------

    def moved(self, step: Array, noise_std: Array) -> tuple[float, float]:
        """Compare how far the last round has moved the sum with what noise and the error of the center explain.

        `step` is the vector by which the released mean differs from the last center. `noise_std` is the standard
        deviation of the noise in each entry of the sum. The first result is the squared norm of n times `step`, minus
        its expectation if clipping has no bias. The second result is the largest such difference that chance explains:
        four standard deviations of the squared norm, plus a tenth of this expectation. A larger first result shows that
        clipping has biased the sum.
        """
        return unexplained(self.n * step, noise_std**2 + (self.n * self.search.center_std) ** 2, *_MOVED)


def _windows(counts: Array, start: int, stop: int, std: float, most: bool = False) -> list[tuple[int, int]]:
    """Find ranges of neighboring shells that have more rows than noise explains; return them as pairs (start, stop).

    A shell is a range of norms, counts[i] is the noisy number of rows in shell i, and `std` is the standard deviation
    of the noise in each number. Only the shells with indices from `start` to `stop` - 1 are searched. The ranges that
    are found are in ascending order and do not overlap. If `most` is true, the only result is the range with the most
    rows relative to the noise, even if noise explains them.
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
    """Return the square of `number`, which is >= 0; more than 1e150 counts as 1e150, so that nothing overflows."""
    return min(number, 1e150) ** 2
