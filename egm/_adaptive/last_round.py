"""Check whether the rows are as the search of `egm.adaptive` found them, choose the clip norm, and release the mean.

The length of a row x is ||b (x - center)||, with the scaling b and the center that the search has found. What clipping
removes from a row is called its clipped part. A shell is a range of lengths, n is the number of rows, and rho is the
budget, which is called small if n sqrt(rho) is below 424. The effective dimension is (sum s^2)^2 / sum s^4 for the
standard deviations s of the entries of a scaled row.

1. Tail. The noisy numbers of rows in shells are compared with those expected of normal rows. If a basis was learned,
   this is done along the basis and in the columns. If the columns look normal, the expected errors in both cases
   decide whether the basis is given up. Otherwise a clip norm is chosen in both cases (step 2), and the noise for these
   clip norms decides.
2. Count. If more rows are long than in normal data, `egm._adaptive.tail` gives the clip norm of least error for the
   case that the clipped parts of all rows point in one direction. Otherwise the clip norm is 1.4 times that of least
   forecast error, increased until the noisy number of longer rows is small.
3. Unseen. If the mechanism has ``unseen > 0``, the rows beyond the clip norm and the rows beyond a larger norm are
   counted. The answers bound what clipping removes, for all data in the declared ranges.
4. Sum. The rows are scaled and clipped as in Algorithm 3 of Poulsen's report. Then each row is divided into a shorter
   row and a rest (see `egm._adaptive.pairs`). The norm of the shorter row is at most 1 / 1.4 of the clip norm or, if
   the norms look like those of normal rows, at most the norm of least forecast error. The noise in the sum of the
   shorter rows is less than it would be in the sum of the clipped rows, and if the distribution of the rows is
   symmetric, the rests nearly cancel in their sum. `egm._adaptive.correction` decides which share of the noisy sum of
   the rests is added in each column. The released mean is the last center plus the corrected mean of the differences of
   the rows from this center. With a small budget and norms like those of normal rows, the forecast of the error also
   contains the amount by which this mean difference is larger than noise and the error of the last center explain.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from egm import forecast, gx2
from egm._adaptive import pairs
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
# Share of the budget to count rows: the first over the effective dimension, at least the second or, with a basis, the
# third. The third one was found by simulations of learned bases: long rows may move the sum far along one coordinate.
_COUNT = 0.06, 0.005, 0.015
_STEPS, _RAISED = 5, 1.35  # largest number of clip norms that are tried, and the factor from one to the next
_START = 0.5  # rows expected beyond the first clip norm, over those allowed
_SURE = 0.5, 1.0  # standard deviations added to a number of rows; the second for a tail without variance
_ONE_SIDED = 2.5  # standard deviations of the noise by which clipped parts may move the sum if all point one way
_SPREAD_OUT = 5.0  # effective dimension above which _UNMEASURED is multiplied by effective dimension / _SPREAD_OUT
_HARDLY, _TRIED = 1e-9, 300  # share of normal rows beyond the largest smaller norm that is tried, and number of these
_RATIO, _NORMS = 1.4, 4  # usual ratio of the clip norm to the norm of the shorter rows; number of clip norms tried
_TRIED_RATIOS = np.geomspace(1.05, 2.0, 40)  # ratios that are compared for normal rows
_BEYOND = 0.1, 0.0025  # share of the budget to count rows beyond a clip norm: first / effective dimension + second
_CLEARLY = 2.0  # standard deviations by which this number is surely too large
_DOUBTED = 0.2  # share of the standard deviation of the distance found by counting long rows that counts as a distance
_LATE = 1.5  # factor by which the error, if all long rows point in one direction, may exceed the limit late in a search
_RARE = 0.1  # normal rows that are expected beyond the larger of two norms beyond which rows are counted
_NEARER = 0.2  # standard deviations of noise that the rows between the two norms add to the bound if all is normal
_MOVED = 4.0  # standard deviations by which a squared move is too large
_LEAST_PART = 0.02  # least share of each of these two numbers in their cost
# Tuples have three numbers: for budgets that are not small, for small ones, and for small ones and few columns.
_COLUMNS = 2.5  # effective dimension below which there are few columns
_UNMEASURED = 0.5, 0.1, 0.1  # as _ONE_SIDED, for what clipping normal rows to the larger of two norms removes
_LONGER = 0.35, 1.0, 1.5  # excess of a longer row over the clip norm, divided by it, for one column
_CHANCE = 2.0, 2.0, 1.0  # standard deviations by which a number of rows beyond a clip norm may be too large
_SURELY = 1.0, 0.0, 0.0  # standard deviations that are subtracted from this number for a lower estimate
_FURTHER = 1.4, 1.4, 2.0  # ratio of a clip norm that is tried to the one before
_HEAVY = 4.0  # factor to _LONGER for few columns if many rows are longer than the last norm
# Squared error expected in the columns, over that along a learned basis, below which the basis is given up if the norms
# in the columns look normal.
_IN_COLUMNS = 1.5


@dataclass(frozen=True)
class LastRound:
    """Hold the released mean of n rows, and describe the error of the sum, which is estimated by n times the mean.

    All values are in the units of the rows, which may be standardized.

    - `noise_std`: standard deviation of the noise in each entry of the sum.
    - `uncorrected`: noisy estimate of what is still missing in each entry because of clipping, and `uncorrected_std`,
      the standard deviation of the noise in it.
    - `bias`: estimate of the largest further amount by which clipping may have moved each entry, up or down, and
      `bias_std`, the standard deviation of the noise in it.
    - `forecast`: expected squared error of the sum, divided into parts by their causes.
    - `model_holds`: whether the norms of the rows looked like those of normal rows.
    - `share`: variance of each column over the sum of these variances. With declared ranges, the error due to clipping
      is divided among the columns in these proportions.
    - `center`: center that was found before the last sum, in the coordinates of the columns.
    - `sigma`: standard deviations that were found before the last sum, along `basis` if there is one.
    - `spread`: standard deviations of the columns, which follow from `sigma`. If more rows are long than in normal
      data, these are upper bounds, because any one column may make the rows long.
    - `unseen`: bounds on what clipping removed from the sum, or None if a search was made and no part of the budget
      was declared for this.
    - `method`: "search", or "ranges" for rows that are clipped to declared ranges without a search.
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

    `surely` is a lower estimate of this distance, and >= 0. `at_most` estimates the distance if what clipping removes
    points in one direction for all long rows; it may be negative because of noise, and `doubt` is the standard
    deviation of this noise.
    """

    surely: float = 0.0
    at_most: float = 0.0
    doubt: float = 0.0


@dataclass(frozen=True)
class _Clip:
    """Describe a clip norm, and how far clipping the scaled rows to this norm may move their sum.

    Let D be the distance by which the sum moves if what clipping removes points in one direction for all rows.

    - `norm`: clip norm.
    - `inner`: smaller norm. A row longer than `inner` is divided into two parallel vectors (see `egm._adaptive.pairs`).
    - `tail`: None if the norms of the rows look like those of normal rows, and otherwise a `Tail` that was fitted to
      noisy numbers of long rows.
    - `one_sided`: without a `Tail`, D for normal rows. With a `Tail`, one of the two estimates of D in `shift`.
    - `shift`: without a `Tail`, estimates of how much larger D is because some rows are longer than normal ones. With a
      `Tail`, estimates of D.
    - `second`: two sums over all rows, that of the squared lengths of what clipping to `inner` removes, and that for
      clipping to `norm`. They are zero unless `norm` is the clip norm of least error for a `Tail`.
    """

    norm: float
    inner: float
    one_sided: float
    shift: _Shift
    second: tuple[float, float] = (0.0, 0.0)
    tail: Tail | None = None

    @property
    def model(self) -> bool:
        """Return whether `tail` is None: the norms look like those of normal rows, and no `Tail` is used."""
        return self.tail is None


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

        A shell is a range of norms. Near shells begin at the first `near` edges; the others are far shells. `windows`
        is a list of pairs (start, stop): only the far shells with indices from start to stop - 1 have rows in the
        model, and each of them gets the mean number of rows of its window. All other far shells are treated as empty. A
        near shell keeps its own number. Negative numbers become 0. `ends` is true if a further query has shown that few
        rows are beyond the last window; then the number of rows in the model may fall faster beyond this window.
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
    budget that is left. All of this part is spent here. Shortly before the sum is released, the share `unseen` of the
    remaining budget is spent on noisy numbers of long rows. From these numbers, bounds on what clipping removed from
    the sum are computed: the attribute `unseen` of the result, a `LastRound`.
    """
    it, seen, clip = _looked(search)
    return it.run(clip or it.clip(seen), unseen)


def last_round_below(search: Search, limit: float, unseen: float) -> LastRound | None:
    """Return the result of `last_round`, or None if the squared error that is expected of the sum is too large.

    The error is too large above `limit` or, if many rows are long in two looks at the norms, above 1.5 times `limit`.
    Then the sum is not released, and a part of the budget is left. `search` is the finished search. Shortly before the
    sum is released, the share `unseen` of the remaining budget is spent on noisy numbers of long rows.
    """
    it, seen, clip = _looked(search, limit)
    if seen is not None and it.least_error(seen) > _LATE * limit:
        seen = it.look_again()
    if seen is not None:
        return None if it.least_error(seen) > _LATE * limit else it.run(clip or it.by_tail(seen), unseen)
    clip = clip or it.clip(seen)
    off = 0.0 if clip.model else clip.one_sided
    return None if it.error(clip.norm, off) > limit else it.run(clip, unseen)


def too_long(search: Search, cost: float, limit: float) -> bool:
    """Return whether so many rows are long that the sum's least expected squared error is above `limit`.

    The least error is that with the best clip norm. A query for the numbers of rows in ranges of norms costs `cost`. If
    it shows long rows, further queries check this, each at half of the cost, and then `look_again` does. If the result
    is False, the `search` may go on.
    """
    it = _LastRound(search, cost)
    for look in (it.look, it.look_again):
        seen = look()
        if seen is None or it.least_error(seen) <= limit:
            return False
    return True


def _looked(search: Search, limit: float = math.inf) -> tuple[_LastRound, Tail | None, _Clip | None]:
    """Check whether many rows are longer than normal ones, and decide whether a learned basis is given up.

    Three results are returned: an object to release the mean; a `Tail` that models the norms of the rows, or None if
    they look like those of normal rows; and the clip norm, as a `_Clip`, or None if it has not been chosen yet.
    `search` is the finished search. A clip norm is not tried if noise alone would make the squared error of the sum
    larger than `limit`.

    If a basis was learned, the norms without the basis are checked, too, because a rotation spreads a long tail of one
    column over many coordinates. If these norms look normal, the basis is kept only if the expected error with it is
    less than two thirds of that without it. Otherwise the expected errors are too rough, because they allow for all
    long rows that noise may hide. Then clip norms are chosen with and without the basis, by further queries, and the
    basis is kept if the noise in the sum is less with it.
    """
    it = _LastRound(search, limit=limit)
    seen = it.look()
    other = search.in_columns()
    if other is None:
        return it, seen, None
    columns = _LastRound(other, limit=limit)
    there = columns.look()
    if there is None:
        if columns.expected(there) < it.expected(seen) * _IN_COLUMNS:
            return columns, there, None
        search.rows.turn(search.basis)
        return it, seen, None
    without = columns.clip(there)
    search.rows.turn(search.basis)
    clip = it.clip(seen)
    if it.noise(1.0) * clip.inner < columns.noise(1.0) * without.inner:
        return it, seen, clip
    search.rows.turn(None)
    return columns, there, without


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
        self.search, self.rows, self.n = search, search.rows, search.n
        self.ended = False
        self.b = search.calibrated()
        self.fit()

    def fit(self) -> None:
        """Compute the attributes that follow from `b` and from the center and the spread of the search."""
        search = self.search
        self.spread = search.spread()
        self.sigma = np.maximum(search.sigma, search.center_std / 30)  # a smaller one changes the spread by 1/2000
        self.weights = (self.b * self.spread) ** 2
        self.unit = math.sqrt(np.sum(self.spread**2) / np.sum(self.weights))  # length in the data of scaled length 1
        self.radial = Radial(self.sigma, search.center_std, self.b, exact=search.plenty)
        self.effective = float(np.sum(self.weights) ** 2 / np.sum(self.weights**2))
        # The index of the tuples with three constants: 0, 1 for a small budget, or 2 if there are few columns, too
        self.little = int(search.few) * (2 if self.effective < _COLUMNS else 1)

    def clip(self, seen: Tail | None) -> _Clip:
        """Choose the clip norm, and return it as a `_Clip`; `seen` is the result of `look`, the check for long rows.

        There are three cases. All methods that are named here spend a part of the budget on private queries.

        - `seen` is a `Tail`, because there are many long rows: `by_tail` chooses the clip norm.
        - `seen` is None, because the norms look like those of normal rows: `by_model` chooses the clip norm for normal
          rows.
        - `seen` is None, but `by_model` finds too many rows longer than the norms that it tries: `likeliest` makes a
          `Tail`, and `by_tail` chooses the clip norm.
        """
        clip = self.by_model() if seen is None else None
        return clip or self.by_tail(seen or self.likeliest())

    def error(self, clip_norm: float, one_sided: float) -> float:
        """Return the expected squared error of the sum for rows clipped to `clip_norm`, in the units of the data.

        The result is the squared error due to noise, plus the square of a bias. `one_sided` is this bias, the distance
        by which clipping is assumed to move the sum of the scaled rows, in their units.
        """
        noise = self.noise(self.search.account.left) * min(clip_norm, 1e150)
        return _square(noise) + _square(self.unit * one_sided)

    def expected(self, seen: Tail | None) -> float:
        """Return the expected squared error of the sum of the rows, for the clip norm that makes it least.

        `seen` is the result of `look`: a `Tail` that models the norms of the rows, or None for rows whose norms look
        normal.
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
        """Return the expected squared error of the sum for the best clip norm, for rows with the norms of `tail`."""
        clip_norm = tail.clip_norm((self.noise(self.search.account.left) / self.unit) ** 2)
        return self.error(clip_norm, tail.excess(clip_norm)[0])

    def run(self, clip: _Clip, share: float) -> LastRound:
        """Release the mean of the rows, clipped to the norms in `clip`, and return it with a forecast of its error.

        If `share` is above 0, this share of the remaining budget is first spent on noisy numbers of long rows (the
        method `unseen`). They bound what clipping removes from the sum, even if a few rows are very far away from all
        others. All that is left of the budget then is spent on the mean.
        """
        search, b, n = self.search, self.b, self.n
        center, variances = search.center_of_columns, search.of_columns(self.spread) ** 2
        unseen = self.unseen(clip, share * search.account.left) if share else None
        mean, std, found = self.sum(clip)
        noise_std = np.hypot(std, found.std)
        clipping, off_center = self.clipping(clip, found)
        more, doubtful = self.moved(mean / b, noise_std)
        if clip.model and search.few and more > doubtful:
            off_center += more
        bias, bias_std = clip.shift.at_most / b, clip.shift.doubt / b
        if clip.model:
            bias = (clip.one_sided / b + bias) / math.sqrt(self.effective) + found.hidden
            bias_std = bias_std / math.sqrt(self.effective)
        bias, bias_std, noise_std = (search.of_columns(part) for part in (bias, bias_std, noise_std))
        beyond = n * search.move(mean / b)
        bias = bias + np.abs(beyond)
        off_center += float(np.sum(np.maximum(beyond**2 - noise_std**2, 0.0)))
        if unseen is not None:
            unseen = unseen._replace(most=unseen.most + np.abs(beyond))
        square = 0.0 if clip.tail is None else clip.tail.square(n)
        farthest = 2 * n * search.bound  # from one end of the declared range to the other
        most = self.search.d * _square(farthest)
        expected = ErrorForecast(float(np.sum(noise_std**2)), min(clipping, most), min(off_center, most))
        return LastRound(
            mean=search.center_of_columns,
            noise_std=noise_std,
            uncorrected=search.vector_of_columns(found.rest),
            uncorrected_std=search.of_columns(found.unknown),
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

    def sum(self, clip: _Clip) -> tuple[Array, Array, Correction]:
        """Spend the rest of the budget on the noisy mean of the scaled and clipped rows, and correct it.

        Three results are returned: the corrected mean; the standard deviation of the noise in each entry of the sum
        before it was corrected, in the units of the data; and the correction, in these units.
        """
        search, back = self.search, self.n / self.b
        (mean, rest), std = self.rows.pairs("sum", search.center, self.b, clip.inner, clip.norm, search.account.left)
        factor = pairs.factor(clip.inner, clip.norm)
        lost, usual, further = self.radial.excess(np.array([clip.inner, clip.norm / _RATIO, clip.norm]))[0]
        beyond = (usual - further) / (lost - further) if lost > further else 1.0
        found = correct(factor * rest * back, factor * std * back, self.chance(clip.inner, clip.norm), beyond)
        return mean + found.added / back, std * back, found

    def clipping(self, clip: _Clip, found: Correction) -> tuple[float, float]:
        """Return the expected squared error of the sum due to clipping, in two parts: one of variation, one of bias.

        `found` says which share of the measured sum of what clipping to ``clip.inner`` removes was added in each
        column. If all of it is added, the error is that of clipping to the larger norm ``clip.norm``. If nothing is
        added, the error is that of clipping to ``clip.inner``. The two errors are averaged, with weights that follow
        from the shares and from the variances of the columns. The bias also includes an estimate of what clipping to
        ``clip.norm`` removes, which is not measured.
        """
        search, missing = self.search, (1 - found.kept) ** 2 @ self.spread**2 / np.sum(self.spread**2)
        if clip.model:
            given = self.sigma, self.n, self.b
            inner, outer = (forecast.clipping(*given, norm, search.center_std) for norm in (clip.inner, clip.norm))
            _, second, share = (float(v[0]) for v in self.radial.excess(np.array([clip.inner])))
            removed = self.radial.removed(clip.inner, clip.norm)  # a little more than clipping to clip.inner does
            varied = inner[0] * (removed[1] / second if second else 1.0)
            moved = inner[1] * (removed[0] / share if share else 1.0) ** 2
            further = _square(self.unit * clip.shift.surely) + _square(float(np.linalg.norm(found.beyond)))
        else:
            varied, outer = _square(self.unit) * clip.second[0], (_square(self.unit) * clip.second[1], 0.0)
            moved, further = 0.0, _square(self.unit * math.hypot(clip.shift.at_most, _DOUBTED * clip.shift.doubt))
        both = missing * np.array([varied, moved]) + (1 - missing) * np.array(outer)
        return float(both[0]), float(both[1]) + further + found.missed

    def affords(self, cost: float) -> bool:
        """Return whether a query of the privacy cost `cost` leaves more budget than is reserved for the final sum."""
        return self.search.account.left - cost > KEPT * self.search.rho

    def share(self, length: float) -> float:
        """Return the probability that a scaled row is longer than `length` / 1.05, for normal rows.

        The rows have the center and the standard deviations that the search has found. The factor 1.05 allows for
        errors of the estimated standard deviations.
        """
        return float(gx2.sf(min((length / _SLACK) ** 2, 1e4 * np.sum(self.weights)), self.weights))

    # Tail -------------------------------------------------------------------------------------------------------------

    def look(self) -> Tail | None:
        """Return a `Tail` fitted to the numbers of rows if more rows are long than is usual for normal rows, else None.

        A `Tail` is a model of the number of rows with a norm above t, for each t. The search asks how many rows have
        norms in each of many ranges, and gets noisy answers. The model is returned if more rows are long than chance
        and noise explain.
        """
        near = np.sqrt([gx2.isf(p, self.weights) for p in _NEAR])
        self.shells = shells = self.ask(near)
        self.windows = self.bounded(self.confirmed(_windows(shells.counts, near.size, shells.edges.size, shells.std)))
        return self.seen()

    def look_again(self) -> Tail | None:
        """Return what `look` would return with a new median distance of the rows, for which the search asks first.

        The standard deviations are corrected by this median, and the numbers of rows are those that `look` has got. If
        the old median was too small by chance, normal rows look long only before.
        """
        self.search.correct(self.b)
        self.fit()
        return self.seen()

    def seen(self) -> Tail | None:
        """Return a `Tail` if more rows are long than chance and noise explain, by the answers that `look` has got."""
        shells, windows, near = self.shells, self.windows, self.shells.near
        beyond = np.cumsum(shells.counts[:near][::-1])[::-1]
        beyond += sum(np.sum(shells.counts[start:stop]) for start, stop in windows)
        expected = self.n * np.array([self.share(t) for t in shells.edges[:near]])
        more = _MORE[0] * shells.std * np.sqrt(np.arange(near, 0, -1)) + _MORE[1] * np.sqrt(expected)
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

        A `Tail` is a model of the number of rows with a norm above t, for each t. Of the ranges of very large norms,
        only the most likely one has rows in the model: the range with the largest number of rows in proportion to the
        noise. If a further query finds too few rows beyond the lower end of this range, the most likely range below
        this end is taken, and checked in the same way. The methods `ask` and `by_model` must have been called before.
        """
        shells, high, cost = self.shells, self.shells.edges.size, self.doubt / 2
        windows = _windows(shells.counts, shells.near, high, shells.std, most=True)
        while windows and self.affords(cost):
            high = windows[0][0]
            found, std = self.rows.longer("tail", self.search.center, self.b, float(shells.edges[high]), cost)
            if found > min(_CONFIRMED * std, self.known / 2):
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

        A shell is a narrow interval of norms. A range is a pair (start, stop): it has the shells with indices from
        start to stop - 1. Because of noise, the last range may be too long: if its last shells have no rows, the clip
        norm becomes far too large. It may also be too short, if further shells have few rows. The method asks how many
        rows have a norm beyond an edge between two shells, first for the edge at the end of the range. If noise
        explains the answer for some edge, the range ends at this edge, or at a smaller one that is found by bisection,
        and the attribute `ended` is set to true. Otherwise the range is kept or becomes longer.
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
        clipping may move the sum of the rows.

        1. The method starts with a norm t that few rows of the model exceed. It asks how many rows exceed t, and
           increases t, at most four times, as long as there are many.
        2. If few rows exceed the last t, and if t is below the best clip norm of the model, t is the clip norm.
        3. Otherwise the clip norm is the best one of the model. The model is first fitted to the answers if they show
           more rows than the model has, or if many rows still exceed the last t.
        """
        noise = self.noise(self.search.account.left) / self.unit
        clip_norm = tail.clip_norm(noise**2)
        found, few, shift = self.raised(noise, tail)
        if few and found[-1][0] < clip_norm:
            return _Clip(found[-1][0], found[-1][0] / _RATIO, shift.surely, shift, tail=tail)
        if found:
            lengths, counts, (std, *_) = np.array(found).T
            if not few or np.any(counts > [tail.longer(length) + _SEEN[0] * std for length in lengths]):
                tail = tail.counted(lengths, counts, std)
        clip_norm = tail.clip_norm((self.noise(self.search.account.left) / self.unit) ** 2)
        one_sided, second = tail.excess(clip_norm)
        more = tail.excess(clip_norm / _RATIO)[1]
        return _Clip(clip_norm, clip_norm / _RATIO, one_sided, _Shift(at_most=one_sided), (more, second), tail)

    # Count ------------------------------------------------------------------------------------------------------------

    def noise(self, rho: float) -> float:
        """Return the root mean square of the norm of the noise in the sum, for the cost `rho` and the clip norm 1.

        The result is in the units of the data. For another clip norm, the root mean square is proportional to the clip
        norm.
        """
        return self.n * self.search.noise(rho) * math.sqrt(float(np.sum(1 / self.b**2)))

    def by_model(self) -> _Clip | None:
        """Return a `_Clip` with a clip norm for normal rows, or None if many real rows are longer than all norms tried.

        A `_Clip` has the clip norm C, and says how far clipping may move the sum of the rows. The budget rho is small
        if n sqrt(rho) is below 424. Here the noise is the root mean square of the norm of the noise in the sum.

        - Start: the first C is 1.4 times the norm of least forecast error for normal rows. It is larger if clipping
          normal rows to C could otherwise move their sum by more than half of the noise (a tenth with a small budget,
          and more in many dimensions). With a small budget and few columns, it is also so large that the expected
          number of normal rows longer than C, times C, is at most the noise.
        - Increase: C grows until a noisy number shows that few rows are longer. If the first such number is too large,
          the rows are counted again, and the mean of both numbers decides, because noise alone would otherwise too
          often make C too large.
        - Pairs: rows longer than a smaller norm are divided into two parallel vectors (see `egm._adaptive.pairs`). This
          norm is that of least expected error for normal rows if C was not increased, and otherwise C / 1.4.
        - Shift: let the excess be the number of rows longer than C minus the number expected of normal rows. Only the
          excess is assumed to move the sum. A lower estimate of how far it moves the sum is computed from the excess
          minus one standard deviation of its noise or, with a small budget, from the whole excess.
        - Few columns: with a small budget and few columns, None is never returned. The last C is taken even if many
          rows are longer, and these rows are assumed to be very long.
        """
        search, n, little = self.search, self.n, self.little
        cost = (_BEYOND[0] / self.effective + _BEYOND[1]) * search.rho
        rho = search.account.left - cost
        noise = self.noise(rho)
        inner, allowed = self.best(noise)[0], _UNMEASURED[little] * max(1.0, self.effective / _SPREAD_OUT)
        norms = np.geomspace(inner, max(inner, self.radial.quantile(_HARDLY)), _TRIED)
        lost = n * self.unit * self.radial.excess(_RATIO * norms)[0]
        inner = float(norms[np.argmax(lost <= allowed * noise * norms)])
        if little == 2 and noise / self.unit < n:
            inner = max(inner, math.sqrt(gx2.isf(noise / self.unit / n, self.weights)) / _RATIO)
        longer = _LONGER[little] / self.effective ** (0.25 if little else 0.5)
        for i, norm in enumerate((_RATIO * inner * _FURTHER[little] ** np.arange(_NORMS)).tolist()):
            enough, expected = noise / self.unit / (longer * _RATIO), n * self.share(norm)
            found, std = self.rows.longer("count", search.center, self.b, norm, cost)
            if i == 0 and found - expected > max(enough - _SURE[0] * std, _CHANCE[little] * std) and self.affords(cost):
                again, _ = self.rows.longer("count", search.center, self.b, norm, cost)
                found, std = (found + again) / 2, std / math.sqrt(2)
            more = found - expected
            if more <= max(enough - _SURE[0] * std, _CHANCE[little] * std) or not self.affords(cost):
                break
        if more - _CLEARLY * std > _RATIO * enough:
            if little < 2:
                self.known = found
                return None
            longer *= _HEAVY
        surely = max(more - _SURELY[little] * std, 0.0)
        shift = _Shift(*(longer * norm * np.array([surely, more, std])).tolist())
        return _Clip(norm, norm / _RATIO if i else self.inner(norm), n * self.radial.lost(norm), shift)

    def inner(self, norm: float) -> float:
        """Return the norm C of least expected error for normal rows that are clipped to `norm` and divided at C.

        A row longer than C is divided into two parallel vectors, the first of which has a norm of at most C; a shorter
        row is the first vector itself (see `egm._adaptive.pairs`). The error is that of the sum of the first vectors,
        to which the best share of the noisy sum of the second vectors is added in each coordinate. C is at least half
        of `norm`.
        """
        back = 1 / self.b / math.sqrt(float(np.sum(1 / self.b**2)))
        noise, errors = self.noise(self.search.account.left) * back, []
        for inner in norm / _TRIED_RATIOS:
            first, second = noise * inner, noise * inner * pairs.factor(inner, norm)
            chance = self.chance(inner, norm)
            errors.append(np.linalg.norm(np.hypot(first, chance * (second / np.hypot(chance, second))) / norm))
        return float(norm / _TRIED_RATIOS[np.argmin(errors)])

    def chance(self, inner: float, outer: float) -> Array:
        """Return how much replacing long normal rows by shorter vectors typically changes each entry of their sum.

        The rows are clipped to the norm `outer`. Then a row longer than `inner` is divided into two parallel vectors
        (see `egm._adaptive.pairs`), and the first of them takes its place. The result is the root mean square of the
        change, in the units of the data. The changes of single rows do not cancel in the sum for two reasons: the rows
        are random, and the center, from which they are measured, is not exactly their mean.
        """
        share, square = self.radial.removed(inner, outer)
        varied = np.sqrt(self.n * square) * self.unit * self.spread / math.sqrt(float(np.sum(self.spread**2)))
        chance: Array = np.hypot(varied, self.n * share * self.search.center_std)
        return chance

    def raised(self, noise: float, tail: Tail) -> tuple[list[tuple[float, float, float]], bool, _Shift]:
        """Ask how many rows are longer than a norm, and increase this norm until only few rows are longer.

        `tail` models the norms of the rows; few rows of this model exceed the first norm. `noise` is the root
        mean square of the norm of the noise in the sum for the clip norm 1. The first result is a list with, for each
        norm that was tried, the norm, the noisy number of longer rows, and the standard deviation of the noise. The
        second one is whether only few rows are longer than the last norm. It can be false, because the budget and the
        number of tries are limited. The third result estimates how far clipping to the last norm moves the sum.
        """
        found: list[tuple[float, float, float]] = []
        rho, sure = max(_COUNT[0] / self.effective, _COUNT[1 if self.search.basis is None else 2]), _SURE[0]
        if not tail.steep:
            rho, sure = _COUNT[0], _SURE[1]
        longer, cost, enough = _LONGER[self.little], rho * self.search.rho, False
        clip_norm = tail.length(_START * _ONE_SIDED * noise / longer)
        while not enough and len(found) < _STEPS and (not found or self.affords(cost)):
            if self.error(clip_norm, 0.0) > self.limit:
                return found, False, _Shift()
            count, std = self.rows.longer("count", self.search.center, self.b, clip_norm, cost)
            found.append((clip_norm, count, std))
            longer = max(longer, tail.mean_excess(clip_norm))
            enough = count + sure * std <= _ONE_SIDED * noise / longer
            clip_norm *= _RAISED
        clip_norm, count, std = found[-1]
        surely = max(count - self.n * self.share(clip_norm) - std, 0.5 * count * self.search.few, 0.0)
        return found, enough, _Shift(*(longer * clip_norm * np.array([surely, max(count, 0.0), std])))

    # Unseen -----------------------------------------------------------------------------------------------------------

    def unseen(self, clip: _Clip, cost: float) -> Unseen:
        """Ask how many rows are longer than the clip norm C, and than a larger norm E; bound what clipping removes.

        Let a be (E - C) / b_j, the difference of the norms in the units of column j, and D the distance from the center
        to the end of the declared range of column j. Clipping to C removes at most a from entry j of a row whose length
        is at most E, and at most D from that of a longer row. So it removes at most a N + (D - a) M from the sum, if N
        rows are longer than C, and M rows longer than E. (A row shorter than C may lose something, too, because it is
        clipped to a smaller norm, but this is measured, and confidence intervals take it into account.)

        The result, an `Unseen`, has this bound for the noisy numbers N and M, the standard deviation of its noise, and
        an upper estimate of the sum of the squares of what is removed from single rows. E is chosen so that the bound
        is small, and the privacy cost `cost` is divided between the two queries so that the noise in the bound is
        least.
        """
        search, b, C = self.search, self.b, clip.norm
        ends = search.bound + np.multiply.outer([1.0, -1.0], search.center_of_columns)
        farthest = float(np.linalg.norm(ends) / np.linalg.norm(1 / b))
        if clip.tail is None:
            part = _NEARER / (2 + self.n * self.share(C) * math.sqrt(2 * cost))
            E = max(C + part * farthest, _SLACK * math.sqrt(gx2.isf(_RARE / self.n, self.weights)))
        else:
            E = clip.tail.parted(C, farthest)
        near = search.of_columns((E - C) / b)
        far = np.maximum(ends - near, 0.0)
        a, rest = float(np.linalg.norm(near)), float(np.linalg.norm(far))
        first = min(max(a / (a + rest), _LEAST_PART), 1 - _LEAST_PART)
        (some, some_std), (few, few_std) = (
            self.rows.longer("unseen", search.center, b, length, part * cost)
            for length, part in ((C, first), (E, 1 - first))
        )
        square = max(some + 2 * some_std, 0.0) * near**2 + max(few + 2 * few_std, 0.0) * far**2
        std = np.sqrt((some_std * near) ** 2 + (few_std * far) ** 2)
        return Unseen(some * near + few * far, std, square)

    # Move -------------------------------------------------------------------------------------------------------------

    def moved(self, step: Array, noise_std: Array) -> tuple[float, float]:
        """Compare the last change of the center with what noise and the error of the old center explain.

        `step` is the vector by which the released mean differs from the old center. `noise_std` is the standard
        deviation of the noise in each entry of the sum of the n rows. The first result is the squared norm of n times
        `step`, minus its expectation if clipping has no bias. The second result is the largest such difference that
        chance explains: four standard deviations. If the first result is larger than the second one, clipping has
        biased the sum.
        """
        return unexplained(self.n * step, noise_std**2 + (self.n * self.search.center_std) ** 2, _MOVED)


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
