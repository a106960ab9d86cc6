"""Define the results of an adaptive mechanism: a release, and a forecast of a release."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from egm._adaptive.unseen import Unseen
from egm._basis import BasisLike
from egm._mechanisms.rowsum import Of, Parts, RowSum, with_clipping
from egm._types import Array, Columns
from egm.forecast import ErrorForecast


@dataclass(frozen=True, eq=False)
class AdaptiveRelease(RowSum):
    r"""Noisy sum of private rows, which may be published, with the results of the search for center and spread.

    Parameters
    ----------
    estimate : ndarray, shape (d,)
        Noisy sum of the rows, in the units of the data. Its entries are clipped to the possible
        values: to n times the interval from minus to plus the declared radius, or to n times the
        declared ranges. If the number of rows is private, every n within five times `count_std` of
        `count` is possible here.
    noise_std : ndarray, shape (d,)
        Standard deviation of the noise in each entry of `estimate`, in the units of the data. It is
        larger in columns that were corrected by adding a noisy sum of what clipping removed.
    centered_std : ndarray, shape (d,)
        Standard deviation of the noise in each entry of the sum of the rows minus `center`, in the
        units of the data. It differs from `noise_std` if the number of rows is private.
    uncorrected : ndarray, shape (d,)
        Noisy estimate, in the units of the data, of what clipping removed from each entry and was not
        added to `estimate`, because its noise would increase the error more than the correction
        would reduce it. Intervals lie around `estimate` + `uncorrected`, so that `estimate` itself
        is in rare cases outside of them. It is zero without a search.
    uncorrected_std : ndarray, shape (d,)
        Standard deviation of the noise in `uncorrected`, in the units of the data.
    bias : ndarray, shape (d,)
        Noisy estimate of the largest amount, beyond `uncorrected`, by which clipping may have moved
        each entry up or down, in the units of the data. Because of the noise it may be negative.
    bias_std : ndarray, shape (d,)
        Standard deviation of the noise in `bias`, in the units of the data.
    clipping_share : ndarray, shape (d,)
        Part of each entry in ``forecast.clipping``, the squared error due to clipping. The sum is 1. With
        ranges, the parts are proportional to the variances of the columns, otherwise to `centered_std**2`.
    center : ndarray, shape (d,)
        Center of the rows, as the search found it before the sum was released. Without a search,
        the middle of each range.
    sigma : ndarray, shape (d,)
        Standard deviations of the columns, as the search found them, in the units of the data. With
        a `basis` they are those along its vectors; with a `basis` and declared ranges, those of the
        standardized columns along its vectors. Without a search, half of each range: no data in the
        range have a larger standard deviation.
    spread : ndarray, shape (d,)
        Standard deviations of the columns that follow from `sigma`, in the units of the data. If
        `model_holds` is False, they are larger, by what the long rows may add to each column.
    forecast : egm.forecast.ErrorForecast
        Expected squared l2 error of `estimate`, computed from released numbers only. Without a
        search this is the variance of the noise. If the data lie in the ranges, it is an upper bound
        of the error, and nearly exact if the noise is small beside n times the range.
    model_holds : bool
        Whether the norms of the rows looked like those of normal rows. With a small budget, where
        the spread is not measured column by column, this is also False for most normal rows whose
        columns differ in spread. If False, the clip norm is
        chosen by the noisy numbers of long rows, and the part `forecast.center` of the expected
        error assumes that the parts of all rows that clipping removes point in one direction.
        Without a search there is no model, and the value is True.
    spent : dict of str to float
        Cost of each step of the search in zero-concentrated differential privacy, by the name of
        the step.
    simulated : bool
        Whether the randomness came from a NumPy Generator. If True, the release is fit for
        experiments and not for publication.
    basis : egm.bases.Basis or None
        Basis of the coordinates in which rows were clipped, given or learned; None for the columns.
    method : {"search", "ranges"}
        Whether there was a search, or the rows were clipped to the declared ranges without one.
    columns : tuple of hashable or None
        Names of the columns, if there are any.
    n : int
        Number of rows: the public one or, if it is private, the noisy one, rounded, and at least 2.
    count : float, optional
        Noisy number of rows, if it is not public. Otherwise None.
    count_std : float
        Standard deviation of the noise in `count`, or 0 if the number of rows is public.
    unseen : tuple of ndarray or None
        Bounds on what clipping removed from `estimate`, for ``interval(unseen=True)``. The first array
        has an upper bound for each entry, computed from noisy numbers of long rows, and the second
        array the standard deviation of the noise in this bound. The third one, for the mean of the
        population, has an upper estimate of the sum of the squares of what was removed from single
        rows. Each array has the shape (2, d): for lower and for upper ends of intervals. Without a
        search all are zeros. None after a search if ``unseen=0`` was declared.

    Notes
    -----
    Half of the length of an interval for the sum is :math:`\text{bias} + q s`. Here :math:`s^2` is the
    sum of ``noise_std**2``, ``uncorrected_std**2``, ``bias_std**2`` and
    ``clipping_share * forecast.clipping``: all four errors are treated as normal. The factor q is such that the
    interval holds as often as asked for. For 95 percent, it is mostly between 1.64 and 1.96, the
    normal quantiles for one tail and for two. A larger `bias` makes q smaller, because then an
    interval can fail on one side only.

    After a search, rows are clipped to a norm. A noisy sum of what this removes is measured, for
    rows that are first clipped to a larger norm. `uncorrected` is the part of this sum that was not
    added. `bias` estimates how far the sum of the rows moves if what clipping to the larger norm
    removes points in one direction for all rows. An interval may contain the sum with a smaller
    probability than asked for if there are a few very long rows that the search has not noticed;
    ``interval(unseen=True)`` allows for these.

    ``benchmarks.intervals`` simulates 400 releases for each of fifty distributions, with two
    columns and :math:`n \sqrt\rho` from 200 to 5000. For 46 of them, the 95 percent interval
    contains 95 to 100 percent of the means of the rows, and is 1.4 to 5.2 times as long as
    necessary (1.5 times for normal rows, 1.8 in the median). For the other four, which have few
    rows far from all others, it contains 50 to 88 percent. The interval for the mean of the
    population contains this mean in 94.9 to 100 percent of the releases for 48 distributions, and
    in 50 and 75 percent for two of those four. Intervals with ``unseen=True`` contain both means in
    98.6 percent or more for each of the fifty distributions.

    Intervals are longer than necessary because of `bias`, since what is removed seldom points in one
    direction, and because of the noise in the number of long rows and in what was measured.
    With five columns (``--columns 5``), those for normal rows are 1.4 times as long as necessary.

    The interval for the mean of the population takes `spread` for the standard deviations of the
    columns. If the budget was too small to measure them one by one and the rows look normal, all
    entries of `spread` are equal, and the interval is too short for a column that spreads more than
    the others. So it may be for two clusters, whose distances are like those of equal columns, up to
    :math:`n \sqrt\rho` of about 11 000.

    Examples
    --------
    >>> import numpy as np
    >>> from egm import AdaptiveDataMechanism
    >>> mechanism = AdaptiveDataMechanism(10_000, rho=0.024, radius=1e4, sigma_range=(1, 1e4))
    >>> rng = np.random.default_rng(1)
    >>> X = rng.normal([40, 2500, 4], [18, 1200, 3], size=(10_000, 3))
    >>> release = mechanism.release(X, rng=rng)
    >>> release.model_holds, release.simulated, round(sum(release.spent.values()), 6)
    (True, True, 0.024)
    """

    estimate: np.ndarray
    noise_std: np.ndarray
    centered_std: np.ndarray
    uncorrected: np.ndarray
    uncorrected_std: np.ndarray
    bias: np.ndarray
    bias_std: np.ndarray
    clipping_share: np.ndarray
    center: np.ndarray
    sigma: np.ndarray
    spread: np.ndarray
    forecast: ErrorForecast
    model_holds: bool
    spent: dict[str, float]
    simulated: bool
    basis: BasisLike | None = None
    method: Literal["search", "ranges"] = "search"
    columns: Columns = None
    n: int = 1
    count: float | None = None
    count_std: float = 0.0
    unseen: Unseen | None = None

    def interval(
        self, confidence: float = 0.95, *, of: Of = "sum", simultaneous: bool = False, unseen: bool = False
    ) -> tuple[Array, Array]:
        r"""Compute for each column an interval that contains the exact sum, or mean, with a given probability.

        Parameters
        ----------
        confidence : float, default 0.95
            Probability in (0, 1).
        of : {"sum", "mean", "population"}, default "sum"
            What the interval contains: the exact sum of the rows; their exact mean; or the mean of
            the population from which the rows are a random sample.
        simultaneous : bool, default False
            Whether all intervals hold at once with the probability `confidence`, by Bonferroni's
            inequality. By default each one holds with this probability.
        unseen : bool, default False
            Whether the interval also holds if a few rows are far away from all others, but too few to
            be noticed. Then it holds for all data whose entries are in the declared `ranges`, or between
            plus and minus `radius`, and is much longer.

        Returns
        -------
        low : ndarray, shape (d,)
            Lower ends of the intervals, in the units of the data.
        high : ndarray, shape (d,)
            Upper ends of the intervals.

        Raises
        ------
        ValueError
            If `confidence` is not in (0, 1), if `of` is none of the three texts, or if `unseen` is
            True and there was a search by a mechanism with ``unseen=0``.
        TypeError
            If `confidence` is not a real number.

        Notes
        -----
        Take the default if you know that no small group of rows can have much of the total, and
        ``unseen=True`` if you do not know it. With ``unseen=True``, the interval contains the
        default one. With a `radius` R, it holds for the sum and the mean of all data in [-R, R].

        *Proof.* Let C be the clip norm, E >= C, c the center, and :math:`b_j` the factor by which
        column j is scaled, all from earlier answers. In column j, clipping removes at most
        :math:`a = (E - C) / b_j` from a row of length at most E and, in the upward direction, at
        most :math:`D = R - c_j` from any row. So it removes at most :math:`a N_C + (D - a)_+ N_E`
        from the sum, for the numbers :math:`N_C` and :math:`N_E` of rows longer than C and E. The
        noise in these numbers and that in the sum are independent and normal. The upper end is the
        estimate, plus this bound with the noisy numbers, plus z standard deviations of all noises
        together. So the sum is above it with at most the probability that a normal variable exceeds
        z. For the lower end, D is :math:`R + c_j`.

        If no row is longer than C, the length of this interval is about :math:`2 z` times
        :math:`R / \sqrt{2 \rho_u}` or less in the mean, apart from the noise of the sum;
        :math:`\rho_u` is the entry "unseen" of `spent`. No interval that holds for all data can be
        much shorter than :math:`R / \sqrt{2 \rho}`; chapter 12 of the book proves it. With `ranges`,
        such an interval for 95 percent may in theory fail in up to 10 percent of the releases,
        because one of two noisy sums is released: the one that follows the search or, if both differ
        too much, that of the clipped rows.

        Examples
        --------
        >>> import numpy as np
        >>> from egm import AdaptiveDataMechanism
        >>> mechanism = AdaptiveDataMechanism(20_000, rho=0.024, radius=1e3, sigma_range=(1, 100), unseen=0.1)
        >>> rng = np.random.default_rng(1)
        >>> X = rng.normal(40, 18, size=(20_000, 1))
        >>> X[:40] = 1000.0  # two in a thousand, whom nobody can see
        >>> release = mechanism.release(X, rng=rng)
        >>> for unseen in (False, True):
        ...     low, high = release.interval(0.95, of="mean", unseen=unseen)
        ...     print(low.round(1), X.mean(axis=0).round(1), high.round(1))
        [39.8] [41.7] [40.2]
        [35.7] [41.7] [44.]
        """
        low, high = super().interval(confidence, of=of, simultaneous=simultaneous)
        if not unseen:
            return low, high
        if self.unseen is None:
            raise ValueError("unseen must be False: declare the share of the budget that it takes to the mechanism")
        parts = self._parts()
        parts.bias, parts.bias_std = self.unseen.most, self.unseen.std
        parts.spread = np.sqrt(parts.spread**2 + self.unseen.square / self.n)
        down, up = self._ends(parts, confidence, of, simultaneous, proved=True)
        return np.minimum(low, down), np.maximum(high, up)

    def _noisy_count(self) -> float:
        return self.n if self.count is None else self.count

    def _parts(self) -> Parts:
        noise = self.centered_std
        std = with_clipping(noise, self.forecast.clipping, self.clipping_share, self.uncorrected_std)
        center = self.center if self.count_std else np.zeros(std.shape)
        parts = Parts(center, noise, std, self.bias, self.spread, self.count_std, self.bias_std)
        parts.shift = self.uncorrected
        return parts


@dataclass(frozen=True, eq=False)
class AdaptiveForecast:
    r"""Forecast of an adaptive release for normal rows, before there are data.

    Parameters
    ----------
    error : egm.forecast.ErrorForecast
        Expected squared l2 error of the released sum, if the search succeeds: in all, and by its
        causes.
    success : float
        Lower bound of the probability that the search, once begun, finds the center and the spread
        of the rows. If there is no search, it is 1, or slightly less if a private query, which can
        be wrong, decided this.
    spent : dict of str to float
        Cost of each step of the search in zero-concentrated differential privacy, by the name of
        the step.
    noise_std : ndarray, shape (d,)
        Standard deviation of the noise in each entry of the sum, in the units of the data.
    centered_std : ndarray, shape (d,)
        Standard deviation of the noise in each entry of the sum of the rows minus the center that is
        found, in the units of the data. It differs from `noise_std` if the number of rows is private.
    uncorrected_std : ndarray, shape (d,)
        Standard deviation of the noise in `uncorrected` of a release, in the units of the data.
    bias : ndarray, shape (d,)
        Expected `bias` of a release, in the units of the data: the largest amount by which clipping
        may move each entry of the sum up or down, beyond the part that the release measures.
    bias_std : ndarray, shape (d,)
        Standard deviation of the noise in the `bias` of a release, in the units of the data.
    clipping_share : ndarray, shape (d,)
        Part of each entry in ``error.clipping`` and in ``error.center``. The sum is 1.
    cut : ndarray, shape (d,)
        Root mean square of the change of each entry of the sum if the entries of all rows were cut
        to the declared ranges, in the units of the data. It is not in `error`. With `radius` it is 0.
    method : {"search", "ranges"}
        Whether there is a search, or the rows are clipped to the declared ranges without one.

    Notes
    -----
    With ranges, `error` and `success` are for rows that lie in the ranges. Normal rows may reach
    beyond. Without a search they are cut, and the square of `cut` adds to the error. A search is
    given up if noise does not hide that it has another mean than the cut rows, or if its rows look
    long. `success` does not count that normal rows can look long by chance: in 2 percent of simulated
    searches for one normal column with 1000 rows and :math:`n \sqrt\rho = 8000`, and in less than half
    a percent with 4000 rows and 5200.

    A search in ranges that is given up has the error of a sum that is clipped to the ranges. If these
    are wide, the mean over all releases can thus be far above `error`, although such releases are
    rare. Where a search gains little, a release may decide otherwise than this forecast whether to
    search at all. For few rows with a small budget, :math:`n \sqrt\rho` below 424, clip norms depend
    much on noise: in simulations with one or three columns the mean squared error was 1.5 to 5 times
    `error`.
    The field `forecast` of a release is computed for the clip norm that the release has chosen.

    Examples
    --------
    >>> from egm import AdaptiveDataMechanism
    >>> mechanism = AdaptiveDataMechanism(10_000, rho=0.024, radius=1e4, sigma_range=(1, 1e4))
    >>> forecast = mechanism.forecast([18, 1200, 3], center=[40, 2500, 4])
    >>> forecast.success > 0.99
    True
    """

    error: ErrorForecast
    success: float
    spent: dict[str, float]
    noise_std: Array
    centered_std: Array
    uncorrected_std: Array
    bias: Array
    bias_std: Array
    clipping_share: Array
    cut: Array
    method: Literal["search", "ranges"] = "search"
