"""Choose between a search for center and spread and a sum of rows clipped to declared ranges, for `egm.adaptive`.

A search is a sequence of private queries for the center and the standard deviations of the rows; after it, the rows are
clipped around this center and summed. The rows are standardized: an entry within its declared range is between -1 and
1. If each entry is cut to [-1, 1], the sum of these clipped rows has noise that depends on the budget and on the number
of columns alone. The sum after a search has far less noise if the rows are near each other, more if they are not, and a
bias if many rows are far from the others.

1. If the budget is too small for a search (the function `least`), all of it goes into the sum of the clipped rows.
2. Otherwise a quarter of the budget is spent on a first mean of the clipped rows, and a little more on the median of
   the distances of the rows from this mean. The error of a search is forecast for normal rows with this median. If this
   error is not much smaller than that of the sum of the clipped rows, no search is made: the rest of the budget is
   spent on another mean of the clipped rows, and both means are averaged. Then only the cost of the median is lost.
3. Now the rows are clipped around the first mean, to the norm that is best for normal rows with this median, or to a
   larger one if that is best should a single column have all the variance. If their noisy mean differs from the first
   one by more than noise explains, many rows are far from the others. Then no search is made, and the rest of the
   budget is used as in step 2.
4. The search begins at the mean of step 3. It asks twice how many rows are longer than normal rows would be: before the
   center is refined, and before the sum. If there are many such rows, the expected error of the search is computed as
   if all of them pointed in one direction. The search is given up, and the clipped rows are summed as in step 2, if the
   expected error is more than 0.6 times the error of the clipped sum (first query) or 1.5 times (second query). The
   second limit is above 1, because for nearly all of the fifty distributions that were tried the rows do not all point
   in one direction, and the expected error was too large. If many rows are longer than the clip norm, the search tries
   larger ones; it is also given up if the noise for the next one would by itself make the error larger than that of the
   clipped sum.
5. If the mean that the search releases differs from the first mean by more than noise explains, the first mean is the
   result.

If the clipped rows are summed in the end, the steps 2 and 3 and the first query of step 4 lose 1 to 10 percent of the
budget. The second query of step 4 and the further queries for numbers of long rows take up to 50 percent more, most for
a single column. They rarely end a search that the first query did not end, unless a few rows in a hundred are spread
over the whole ranges.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import chdtri, ndtri

from egm._adaptive.expected_rows import ExpectedRows
from egm._adaptive.last_round import LastRound, last_round, last_round_below, too_long
from egm._adaptive.radial import Radial
from egm._adaptive.search import DIFFERENT, SURE, Answers, Search, least_rho
from egm._adaptive.unseen import Unseen
from egm._basis import BasisLike
from egm._types import Array
from egm.forecast import ErrorForecast

__all__ = ["clipped", "least", "released"]

_FIRST = 0.25  # share of the budget for the first mean of the clipped rows; it is lost only if a search is made
_NEAR = 0.01  # share of the budget for the mean of the rows near the first one
_LONG = 0.015  # share of the budget for the number of long rows, before the center is made better
_ENOUGH = 600.0  # n * sqrt(rho) from which a search is considered: below it, ending a search costs too much
# Largest error of a search, over that of the sum of the clipped rows: of a search that is begun, and of one that goes
# on although there are many long rows, whose parts are assumed to point in one direction. Above the first number, the
# searches for fifty distributions, in ranges of several widths, had on average no smaller error than the clipped sum.
_PAYS = 0.4, 0.6
# Least standard deviation of a column that is assumed for the forecast, times sqrt(d), over the median distance. It is
# used if most of this distance comes from the noise of the center.
_LEAST_PART = 0.3

Mean = tuple[Array, float]  # a noisy mean, and the standard deviation of the noise in each entry


def least(n: int, d: int, sigma_range: tuple[float, float]) -> float:
    """Return the least budget rho for which a search for center and spread is considered, for `n` rows of `d` columns.

    With a smaller budget, center and spread of the rows are not searched for: the entries are only cut to the declared
    ranges, and the rows are summed. The least budget is enough for the search and for three private queries before it:
    a mean of the rows with cut entries, the median distance of the rows from this mean, and a mean of the rows clipped
    to a ball around it. `sigma_range` is the range of the standard deviations of the columns in units in which the
    declared range of a column is from -1 to 1.
    """
    return max((least_rho(n, d, 1.0, sigma_range[0]) + _cost(n)) / (1 - _FIRST - _NEAR), (_ENOUGH / n) ** 2)


def _cost(n: int) -> float:
    """Return the cost rho, in zCDP, of the private median of the distances of `n` rows from a center.

    The median is drawn with an epsilon so large that it is reliable.
    """
    return (SURE / n) ** 2 / 8


def released(
    rows: Answers,
    sigma_range: tuple[float, float],
    public: BasisLike | None = None,
    learn: bool = False,
    unseen: float = 0.0,
) -> LastRound:
    """Release the mean of standardized `rows`: after a search if it gains enough, else with entries cut to [-1, 1].

    The object `rows` answers private queries. By such queries a search finds center and spread of the rows, so that the
    mean needs less noise. The result is a `LastRound`, which has the mean and describes its error. `sigma_range` is the
    range of the standard deviations of the columns. `public` is a public basis for correlated columns or None, and
    `learn` says whether such a basis is found by private queries. After a search, the share `unseen` of the remaining
    budget is spent on noisy numbers of long rows, which bound what clipping removes from the sum. The rest of the
    budget is spent on the mean.
    """
    rho, account = rows.account.base, rows.account
    if rho < least(rows.fewest, rows.d, sigma_range):
        return clipped(rows)
    first = rows.within("ranges", _FIRST * rho)
    search = Search(rows, 1.0, sigma_range, public, learn, np.clip(first[0], -1.0, 1.0))
    radius = search.distance("radii", 0.5, search.relied(SURE, SURE))
    if _pays(search, first, radius):
        search = Search(rows, 1.0, sigma_range, public, learn, search.center)
        begun = search.run(lambda: too_long(search, _LONG * rho, _PAYS[1] * _error(rows)))
        found = last_round_below(search, _error(rows), unseen) if begun else None
        if found is not None:
            std = np.hypot(found.noise_std / rows.n, _std(rows, first))
            return _in_ranges(rows, first) if _differ(found.mean, first[0], std) else found
    return _in_ranges(rows, _average(first, rows.within("sum", account.left)))


def clipped(rows: Answers) -> LastRound:
    """Release the mean of standardized rows whose entries are cut to [-1, 1], and return it as a `LastRound`.

    The object `rows` answers private queries about the rows. A `LastRound` has the mean and describes its error. The
    mean costs the whole budget or, if a noisy number of rows was asked for, all that is left of the budget.
    """
    return _in_ranges(rows, rows.within("sum", rows.account.base))


def _error(rows: Answers) -> float:
    """Return the expected squared error of the sum of the rows if their entries are only cut to the declared ranges.

    The unit of each column is half of its range, and the object `rows` answers private queries. The sum is computed
    from the weighted average of two noisy means of the rows with cut entries. The first mean has been asked for
    already, at a quarter of the budget, and the second one is assumed to cost all that is left of the budget.
    """
    return rows.diameter**2 / 2 * rows.d**2 / (rows.account.left + _FIRST * rows.account.base)


def _pays(search: Search, first: Mean, radius: float) -> bool:
    """Return whether a private search for center and spread is worth its cost, and a second mean agrees with `first`.

    `first` is the noisy mean of the rows with entries cut to their ranges, at which the search begins. The search is
    worth its cost if its forecast error is at most 0.4 times the error of a release without a search, which is a mean
    of rows with cut entries. The forecast is for normal rows whose distances from `first` have the noisy median
    `radius`. If the search is worth its cost, a second mean is asked for: that of the rows clipped to a ball around
    `first`, whose radius is the best clip norm for normal rows of equal spread or, if it is larger, for rows with a
    single column that varies: what is clipped must move the mean less than noise does. The center of `search` moves to
    this second mean, which agrees with `first` if noise, and what clipping removes from normal rows by chance, explain
    the distance between the two means.
    """
    rows, n, d, rho = search.rows, search.n, search.d, search.account.base
    variance = max(radius**2 / d - first[1] ** 2, (_LEAST_PART * radius) ** 2 / d)
    sigma = np.full(d, np.clip(math.sqrt(variance), *search.sigma_range))
    left, center = rows.account.left - _NEAR * rho, search.center + first[1]
    model = ExpectedRows(n, left, sigma, center, diameter=rows.diameter)
    other = Search(model, 1.0, search.sigma_range, start=search.center)
    other.run()
    if last_round(other).forecast.total > _PAYS[0] * _error(rows):
        return False
    noise = search.noise(model.account.spent["sum"])
    clip_norm, _ = Radial(sigma, np.full(d, first[1]), np.ones(d)).best(n, noise)
    one_column = Radial(np.full(1, radius / ndtri(0.75)), np.zeros(1), np.ones(1), exact=search.plenty)
    clip_norm = max(clip_norm, one_column.best(n, search.noise(_NEAR * rho))[0])
    mean, std = rows.mean("ranges", search.center, np.ones(d), clip_norm, _NEAR * rho)
    search.move(mean)
    varied = math.sqrt(one_column.excess(np.array([clip_norm]))[1][0] / n)
    return not _differ(search.center, first[0], np.hypot(_std(rows, first), math.hypot(std, varied)))


def _std(rows: Answers, mean: Mean) -> Array:
    """Return the standard deviations of the entries of the noisy `mean`, which was divided by a noisy number of rows.

    A mean of the rows around another center does not have the error due to this number, unless the center has it.
    """
    return np.hypot(mean[1], rows.count_error * mean[0])


def _differ(mean: Array, other: Array, std: Array) -> bool:
    """Return whether the vectors `mean` and `other` differ by more than noise explains.

    `std` has the standard deviations of the noise in the entries of their difference. If the vectors differ by noise
    alone, the result is True with the probability `DIFFERENT`, the level of this chi-square test.
    """
    return bool(np.sum(((mean - other) / std) ** 2) > chdtri(mean.size, DIFFERENT))


def _average(one: Mean, other: Mean) -> Mean:
    """Return the weighted average with the least noise of `one` and `other`, two noisy means of the same rows.

    A mean is a pair: a vector, and the standard deviation of the noise in each of its entries.
    """
    weight = other[1] ** 2 / (one[1] ** 2 + other[1] ** 2)
    return weight * one[0] + (1 - weight) * other[0], math.sqrt(weight) * one[1]


def _in_ranges(rows: Answers, found: Mean) -> LastRound:
    """Return the result of a release without a search for center and spread: rows are only clipped to their ranges.

    `found` is a pair: the noisy mean of the standardized and clipped `rows`, which is released, and the standard
    deviation of the noise in each of its entries. The result is a `LastRound`, which has the mean and describes its
    error.
    """
    mean, std = found
    zero, one = np.zeros(rows.d), np.ones(rows.d)
    noise_std = rows.n * std * one
    return LastRound(
        mean=mean,
        noise_std=noise_std,
        uncorrected=zero,
        uncorrected_std=zero,
        bias=zero,
        bias_std=zero,
        forecast=ErrorForecast(float(np.sum(noise_std**2)), 0.0, 0.0),
        model_holds=True,
        share=one / rows.d,
        center=zero,
        sigma=one,
        spread=one,
        basis=None,
        unseen=Unseen(*np.zeros((3, 2, rows.d))),
        method="ranges",
    )
