"""Release the sum of normal rows whose center (mean) and spread (standard deviations) are not known beforehand.

A part of the privacy budget is spent on a private search for the center and the spread, by a few
queries about the rows, such as how many of them are longer than a given norm. Each answer is
private in the sense of zero-concentrated differential privacy (Bun and Steinke 2016), and the costs
of the answers add up. Later queries depend on earlier answers. This is allowed, because the total
is fixed beforehand (Feldman and Zrnic 2021). The answer to the last query is the sum itself.
"""

from __future__ import annotations

import numpy as np

from egm._adaptive.declared import Declared
from egm._adaptive.opened import check, opened
from egm._adaptive.outcome import expected_rows, outcome
from egm._adaptive.private_rows import PrivateRows
from egm._adaptive.releases import AdaptiveForecast, AdaptiveRelease
from egm._types import ArrayLike, Named, RowSource
from egm._validate import count, generator, warn_of_delta
from egm.calibration import zcdp_epsilon

__all__ = ["AdaptiveDataMechanism", "AdaptiveForecast", "AdaptiveRelease"]


class AdaptiveDataMechanism(Declared):
    r"""Mechanism that needs only ranges of the columns' means and standard deviations to sum n nearly normal rows.

    Parameters
    ----------
    n : int
        Number of rows, public, from 2 to 2**53. If `neighbors` is "add_remove", it is only a guess,
        which `least_rho` and `forecast` use.
    rho : float
        Whole budget in zero-concentrated differential privacy: at most 1e6 and, with `ranges`, at
        least 1e-15. `egm.calibration.zcdp_rho` computes it from an epsilon and a delta.
    radius : float, optional
        Bound R, > 0 and at most 1e100, in the units of the data: the mean of the rows is from -R to R
        in every column. Exactly one of `radius` and `ranges` is given.
    sigma_range : tuple of float, optional
        Lower and upper bound of the standard deviations of the columns, from 1e-100 to 1e100. With
        `radius` it must be given, in the units of the data. With `ranges` the unit is half the range
        of a column, and the default is (1e-4, 1): no data in a range spread more, and a smaller
        standard deviation counts as 1e-4. With a `basis`, the lower bound also holds along it.
    basis : array_like or str or `egm.bases.Basis` or linear operator, shape (d, d), optional
        Orthonormal basis for correlated columns: a public one, as for `GaussianDataMechanism`, or
        "learn", for one that is found privately with a twentieth of the budget. By default, and
        where the budget is small (see Notes), the coordinates are the columns. With `ranges`, the
        basis is one for the standardized columns.
    ranges : mapping or array_like, shape (d, 2), optional
        Public range (low, high) of each column, in its units: a mapping from its name, or one pair
        for each column. The mean of the column lies in the range, and half of the range is the unit
        in which its errors count.
    columns : sequence of hashable, shape (d,), optional
        Names of the columns, in the order of the results and of the pairs in `ranges`. By default
        these are the names in `ranges`, if that is a mapping.
    per_person : {"sum", "mean"}, optional
        What becomes of the rows of one person, if a person may have several rows: they are added
        up, or they are averaged. Then `n` is the number of persons, and `radius` or `ranges` are
        those of the sums or of the means. By default each row is a person.
    neighbors : {"replace_one", "add_remove"}, default "replace_one"
        Pairs of data sets that a release must not tell apart: one row is replaced, and `n` is
        public; or one row is added or removed, and the number of rows is private. Then a tenth of
        the budget buys a noisy number of rows, which is released.
    missing : {"error", "drop_row"}, default "error"
        What becomes of a missing value (NaN or null). Either it is an error, or its row is left out;
        this needs "add_remove", because the number of rows that are kept is private. With
        `per_person`, the value alone is left out of the sum or mean of the person, and a person
        without any value in some column is left out.
    unseen : float, default 0.0
        Share, from 0 to 0.9, of the budget that is left just before the sum. This share is spent on
        two noisy counts, of the rows that are longer than the clip norm and of those that are
        longer than a larger norm; the rest is spent on the sum. The counts are needed for
        ``interval(unseen=True)``, which also holds if a few rows are far away from all others (see
        `AdaptiveRelease.interval`).

    Raises
    ------
    ValueError
        If a parameter is outside its range, if `basis` is "learn" for "add_remove", if `missing` is
        "drop_row" for "replace_one", or if not exactly one of `radius` and `ranges` is given.
    TypeError
        If a parameter is not made of real numbers.

    See Also
    --------
    egm.mechanisms.GaussianDataMechanism : Takes guesses of center and spread.
    egm.bases : Public bases.

    Notes
    -----
    A release is rho-zero-concentrated differentially private ([1]_, [2]_) for data sets that are
    `neighbors`, whatever the data are. Data outside the declared ranges, or far from normal, cost
    accuracy and never privacy. If more rows are far from the center than would be for normal rows, the
    clip norm is chosen for the worst case, in which the parts that clipping removes all point in one
    direction. In any case, the summed rows are clipped once more, to a smaller norm, so that there is
    less noise. A noisy sum of what this second step removes is released at no further cost (chapter 10
    of the book). It is added where it is clearly larger than its noise, and elsewhere in part.

    With `radius` the mechanism runs if `rho` is at least ``least_rho(d)`` for d columns. Then the
    search fails in at most a few runs of a hundred; `forecast` bounds this probability. The search
    may not notice a few rows that are far away from all others; they are then clipped. Their share
    of all rows is less than a tenth at the least budget, less than a twentieth if
    :math:`n \sqrt{\rho}` is between 400 and 2200, and less than :math:`110 / (n \sqrt{\rho})` if it
    is larger. If their distances range over several powers of ten, it may be up to four times as large.

    **Ranges.** With `ranges` the rows are standardized by a public map: the middle of its range is
    subtracted from each column, which is then divided by half of the range. All results are in the
    units of the data again. The sum of a column is clipped to n times its range; if n is noisy, to
    what is possible for any n within five standard deviations of the noise. Without a search, entries
    outside the ranges are clipped to them: choose ranges that hold nearly all the data.

    **Without a search.** With `ranges` no `rho` from 1e-15 on is too small: if it is below
    ``least_rho(d)``, there is no search, and the sum is that of rows clipped to the ranges, entry by
    entry. For "replace_one", its noise has the standard deviation :math:`\sqrt{d / (2 \rho)}` times
    the width of the range in each column. For a larger `rho`, a part of it buys a noisy mean of the
    clipped rows and other private numbers. Unless these promise that a search is far better, the
    rest goes into the clipped sum. `AdaptiveRelease.method` says which way was taken.

    If no search was made, the error is at most two percent larger than if all of `rho` went into
    the clipped sum. If a search was given up, the variance of the noise is mostly about a tenth
    larger, and never more than about four times as large. `benchmarks.ranges` compares mean squared
    errors of 20 releases with those of a clipped sum, for fifty distributions, ranges of three
    widths, and four numbers of rows and columns. The ratio was at most 1.1 for 597 of these 600
    cases; the largest, with one row in a hundred far away, was 3.8 (4.3 at the end of the range).

    **A private number of rows.** Under "add_remove" the first answer is a noisy number N of rows,
    which costs rho / 10 and has the standard deviation :math:`\sqrt{5 / \rho}`. It is released as
    `count`, and all further queries use it in place of `n` [2]_. Adding or removing a row changes
    an exact answer no more than replacing one, so no query needs more noise. The sum is N times the
    noisy mean, so its error includes the noise in N, multiplied by the center. If N is so small that a
    search might fail, the rows are clipped to the ranges, or to the radius. A basis cannot be
    learned, because its exact sums of products need the exact number of rows.

    **Passes.** The rows are read some 10 to 40 times, once for each query, and never more than 600
    times; if no search is begun, two to six times. The queries depend on released numbers alone.

    **Basis.** A basis is used if :math:`n \sqrt{\rho}` is above about :math:`280 \sqrt d`
    (:math:`210 \sqrt d` for "add_remove"). With "learn" the mechanism asks for noisy second moments
    of the columns, divided by their standard deviations and clipped, and keeps the directions whose
    variance is clearly above the noise [3]_. It takes the eigenvectors of the resulting covariance
    matrix if the squared error by noise, from Lemma 4.1 of Poulsen's report (2023), is then less by a
    fifth or more. Before the sum, the mechanism counts long rows, once by their norms along this basis and
    once by their norms in the columns. The basis is given up if the counts promise little gain by
    it, as for columns of zeros and ones, or more noise, as for some columns with long tails. A basis
    is learned for at most 1024 columns, and only if :math:`n \sqrt{\rho}` is above 2000, which is
    13 000 rows for epsilon = 1 and delta = 1e-6.

    References
    ----------
    .. [1] Bun and Steinke (2016), "Concentrated Differential Privacy: Simplifications, Extensions, and Lower Bounds".
    .. [2] Feldman and Zrnic (2021), "Individual Privacy Accounting via a Rényi Filter".
    .. [3] Gavish and Donoho (2017), "Optimal Shrinkage of Singular Values".

    Examples
    --------
    Release the sums of age, income and visits of 10 000 people without a guess of their size:

    >>> import numpy as np
    >>> from egm import AdaptiveDataMechanism, calibration
    >>> rho = calibration.zcdp_rho(1, 1e-6)
    >>> mechanism = AdaptiveDataMechanism(10_000, rho, radius=1e4, sigma_range=(1, 1e4))
    >>> rng = np.random.default_rng(1)
    >>> X = rng.normal([40, 2500, 4], [18, 1200, 3], size=(10_000, 3))
    >>> release = mechanism.release(X, rng=rng)
    >>> bool(np.all(np.abs(release.estimate / 10_000 - [40, 2500, 4]) < [2, 20, 2]))
    True

    With a range for each column, also few rows give sums:

    >>> ranges = {"age": (0, 120), "income": (0, 10_000), "visits": (0, 50)}
    >>> release = AdaptiveDataMechanism(50, rho, ranges=ranges).release(X[:50], rng=rng)
    >>> release.method, bool(np.all((release.estimate >= 0) & (release.estimate <= [6000, 500_000, 2500])))
    ('ranges', True)
    """

    def __sklearn_clone__(self) -> AdaptiveDataMechanism:
        return self  # it never changes; scikit-learn's `clone` asks for this method

    def epsilon(self, delta: float) -> float:
        """Compute the epsilon of the (epsilon, delta)-differential privacy of a release.

        Parameters
        ----------
        delta : float
            Privacy parameter, in (0, 1). It should be far below 1/n.

        Returns
        -------
        float
            The epsilon, never below the exact value of the conversion (see
            `egm.calibration.zcdp_epsilon`).

        Raises
        ------
        ValueError
            If `delta` is not in (0, 1).
        TypeError
            If `delta` is not a real number.

        Warns
        -----
        DeltaWarning
            If `delta` is 1/n or more.

        Examples
        --------
        >>> from egm import AdaptiveDataMechanism
        >>> mechanism = AdaptiveDataMechanism(10_000, rho=0.024, radius=1e4, sigma_range=(1, 1e4))
        >>> round(float(mechanism.epsilon(1e-6)), 3)
        0.992
        """
        epsilon = zcdp_epsilon(self.rho, delta)
        warn_of_delta(delta, self.n, stacklevel=3)
        return epsilon

    def least_rho(self, d: int) -> float:
        """Compute the least budget rho for which a search is made for the center and the spread of d columns.

        With `radius`, `release` refuses a smaller budget. With `ranges`, `release` considers a search
        only if the budget is at least this. Under "add_remove" the result includes the cost of the
        noisy number of rows, and is enough for a search if this number, rounded down, is at least 0.9 `n`.

        Parameters
        ----------
        d : int
            Number of columns, >= 1.

        Returns
        -------
        float
            Budget in zero-concentrated differential privacy. It is proportional to 1/n**2.

        Raises
        ------
        ValueError
            If `d` is not a whole number >= 1.
        TypeError
            If `d` is not a real number.

        Examples
        --------
        >>> from egm import AdaptiveDataMechanism
        >>> mechanism = AdaptiveDataMechanism(10_000, rho=0.024, radius=1e4, sigma_range=(1, 1e4))
        >>> round(mechanism.least_rho(3), 6)
        0.000225
        """
        return self._least_declared(count(d=d))

    def forecast(
        self, sigma: Named | None = None, center: Named | None = None, *, covariance: ArrayLike | None = None
    ) -> AdaptiveForecast:
        """Forecast the expected error of a release for normal rows, and the probability that the search succeeds.

        Parameters
        ----------
        sigma : array_like or mapping, shape (d,), optional
            True standard deviations of the columns, > 0: in the units of the data, along the vectors
            of a public `basis`, or, with a `basis` and `ranges`, of the standardized columns along it.
        center : float or array_like or mapping, shape (d,), optional
            True mean of a row, in the units of the data and within the declared ranges; by default
            the middle of the ranges, which is 0 with `radius`.
        covariance : array_like, shape (d, d), optional
            True covariance matrix of the columns, instead of `sigma`, in squared units of the data.

        Returns
        -------
        AdaptiveForecast
            Expected squared error, probability that the search succeeds, and cost of each step.

        Raises
        ------
        ValueError
            If a parameter is outside its range or has another shape, if not exactly one of `sigma`
            and `covariance` is given, or if `rho` is below ``least_rho(d)`` without `ranges`.
        TypeError
            If a parameter is not made of real numbers.

        Notes
        -----
        The steps of the search are computed without data, with the answers to its queries that are
        expected for normal rows. These have the mean `center`, and either the standard deviations
        `sigma` and independent coordinates, or the covariance matrix `covariance`. With `ranges`
        there is no search unless it promises a far smaller error; without one, the forecast is the
        variance of the noise, a nearly exact upper bound for rows in the ranges. What ranges cut off
        from normal rows is not in the error (see `cut` of the result), nor by how much the mean of
        some rows is outside of `radius` if `center` is at its end.

        Examples
        --------
        >>> from egm import AdaptiveDataMechanism
        >>> mechanism = AdaptiveDataMechanism(10_000, rho=0.024, radius=1e4, sigma_range=(1, 1e4))
        >>> forecast = mechanism.forecast([18, 1200, 3], center=[40, 2500, 4])
        >>> print(f"{forecast.error.total ** 0.5:.1e}")  # expected error of the sum
        2.9e+04
        """
        rows = expected_rows(self, sigma, center, covariance)
        result = outcome(self, rows)
        return AdaptiveForecast(
            error=result.error,
            success=max(0.0, 1 - rows.failure),
            spent=dict(rows.account.spent),
            noise_std=result.noise_std,
            centered_std=result.centered_std,
            uncorrected_std=result.half * result.found.uncorrected_std,
            bias=result.half * result.found.bias,
            bias_std=result.half * result.found.bias_std,
            clipping_share=result.clipping_share,
            cut=np.zeros(rows.d) if self.ranges is None else result.half * rows.cut(),
            method=result.found.method,
        )

    def check(self, X: RowSource, *, person: object = None) -> None:
        """Raise the errors that `release` would raise for the budget and for the type and shape of the rows `X`.

        Parameters
        ----------
        X : array_like, table or function, shape (n, d)
            Rows that would be released. No row is read, and no function is called.
        person : hashable or array_like, optional
            Column of `X`, or array, that says to whom a row belongs, as for `release`.

        Raises
        ------
        ValueError
            If `X` does not have the declared columns and rows; if missing values are allowed, but the
            file `X` was opened to refuse them; if `rho` is below ``least_rho(d)`` without `ranges`; if
            `person` is one of `columns`, or only one of `person` and `per_person` is given.
        TypeError
            If `X` is an iterator and `person` is not the name of a column, or if the type of `X` shows
            that it does not hold real numbers.

        Notes
        -----
        `egm.budget` calls this method before it records the cost of a release, so that a mistake in
        the arguments uses no budget.

        Examples
        --------
        >>> import numpy as np
        >>> from egm import AdaptiveDataMechanism
        >>> mechanism = AdaptiveDataMechanism(10_000, rho=0.024, radius=1e4, sigma_range=(1, 1e4))
        >>> mechanism.check(np.zeros((10_000, 3)))
        >>> mechanism.check(np.zeros((9_999, 3)))
        Traceback (most recent call last):
            ...
        ValueError: X must have the declared n = 10000 rows, got 9999
        """
        check(X, person, self)

    def release(
        self, X: RowSource, *, person: object = None, rng: np.random.Generator | None = None
    ) -> AdaptiveRelease:
        """Release a private estimate of the sum of the rows, after a private search for their center and spread.

        Parameters
        ----------
        X : array_like, table or function, shape (n, d)
            Real numbers: an array; a table of pandas, polars, pyarrow or `egm.files.rows`; a dask
            array or data frame; or a function without arguments that returns a new iterator over
            blocks of the rows, arrays or data frames, each time it is called. The rows are read
            several times and never changed. With `person`, they are read once, and `X` may also be
            an iterator over blocks.
        person : hashable or array_like, shape (n,), optional
            Person to whom each row belongs: the name of a column of `X`, which is not summed, or an
            array with one entry for each row. It is given if and only if the mechanism has
            `per_person`. Then the sum or the mean of the rows of each person is held in memory, and
            rows that are read block by block must be sorted by person.
        rng : numpy.random.Generator, optional
            Generator that makes the release a simulation. By default all randomness is secure.

        Returns
        -------
        AdaptiveRelease
            The estimate has shape (d,), in the units of the data.

        Raises
        ------
        ValueError
            If `X` is not a matrix with the declared columns and number of rows, if a
            value is not finite, or if `rho` is below ``least_rho(d)`` and there are no `ranges`.
        TypeError
            If `X` is an iterator, which can be read only once, and `person` is not given, if `X` is a
            function that does not return a new iterator each time, or if it does not hold real
            numbers.

        Warns
        -----
        SimulationWarning
            If `rng` is given for the first time in a process.

        Notes
        -----
        Columns with names are taken in the order of `columns`; without `ranges` and `columns`, in
        their own order. The search asks private queries about the rows. A file or a dask array is
        read anew for each query, in blocks, and is never in memory as a whole. The exact answers
        are sums over the rows that are computed without rounding. So the same rows and the same
        noise give the same release, bit for bit, whatever holds the rows.

        Means are computed from integers (see `egm._rows.lattice`) with discrete Gaussian noise. It costs
        as much as continuous noise in zero-concentrated differential privacy ([1]_, Theorem 14).

        References
        ----------
        .. [1] Canonne, Kamath and Steinke (2020), "The Discrete Gaussian for Differential Privacy".

        Examples
        --------
        >>> import numpy as np
        >>> from egm import AdaptiveDataMechanism
        >>> mechanism = AdaptiveDataMechanism(2_000, rho=0.024, radius=100, sigma_range=(1, 100))
        >>> ages = np.random.default_rng(1).normal(40, 18, size=(2_000, 1))
        >>> release = mechanism.release(ages)  # secure
        >>> release.simulated, release.estimate.shape
        (False, (1,))
        """
        self.check(X, person=person)
        if rng is not None:
            generator(rng)
        passes, columns = opened(X, person, self)
        middle, half = self._standard
        standard = {} if self.ranges is None else {"middle": middle, "half": half}
        rows = PrivateRows(passes, self.rho, rng, **standard, counted=self._counted)
        with np.errstate(under="ignore"):  # the caller may have switched this warning on
            result = outcome(self, rows)
        found, of_count, n = result.found, result.of_count, rows.n
        return AdaptiveRelease(
            estimate=result.estimate(n, self._bounds),
            noise_std=result.noise_std,
            centered_std=result.centered_std,
            uncorrected=result.half * found.uncorrected,
            uncorrected_std=result.half * found.uncorrected_std,
            bias=result.half * found.bias,
            bias_std=result.half * found.bias_std,
            clipping_share=result.clipping_share,
            center=result.center,
            sigma=found.sigma if found.basis is not None else result.half * found.sigma,
            spread=result.half * found.spread,
            basis=found.basis,
            forecast=result.error,
            model_holds=found.model_holds,
            spent=dict(rows.account.spent),
            simulated=rng is not None,
            method=found.method,
            columns=columns,
            n=n,
            unseen=found.unseen and found.unseen.times(result.half),
            count=of_count and of_count[0],
            count_std=of_count[1] if of_count else 0.0,
        )
