"""Release the sum of normal rows whose center and spread are not known beforehand.

A part of the privacy budget pays for a private search for the center and the spread, which asks a
few questions about the rows. Each answer is private in the sense of zero-concentrated differential
privacy (Bun and Steinke 2016) for data sets of which one row is replaced or, on request, one row is
added or removed, and the costs of the answers add up. Later questions depend on earlier answers.
This is allowed, because the total is fixed beforehand (Feldman and Zrnic 2021). The answer to the
last question is the sum itself.

A release is refused if the budget is so small, for n rows, d columns and the declared bounds, that
the search could fail. If a range is declared for each column, nothing is refused: where a search does
not pay, the rows are clipped to the ranges. Data that are far from normal make the sum less accurate, and then the
forecast of the error is larger. The forecast does not cover a few rows that are far away from all
others, because the answers do not show them.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from egm import _tables
from egm._adaptive import choice
from egm._adaptive.expected_rows import ExpectedRows
from egm._adaptive.last_round import LastRound, last_round
from egm._adaptive.private_rows import PrivateRows
from egm._adaptive.releases import AdaptiveForecast, AdaptiveRelease
from egm._adaptive.search import Answers, Search, least_rho
from egm._basis import BasisLike, as_basis, checked, covariance_matrix, of_columns
from egm._rows import people
from egm._rows.dask import is_dask
from egm._rows.passes import Passes, Reopened, peeked
from egm._types import Array, ArrayLike, Columns, Named, Neighbors, RowSource
from egm._validate import (
    between,
    count,
    finite,
    positive,
    scalar,
    shown_shape,
    unread,
    unread_matrix,
    vector,
    warn_of_delta,
)
from egm.calibration import zcdp_epsilon
from egm.forecast import ErrorForecast

__all__ = ["AdaptiveDataMechanism", "AdaptiveForecast", "AdaptiveRelease"]

_RANGE = 1e-100, 1e100  # standard deviations for which all squares in the computation are doubles
_SIGMA_RANGE = 1e-4, 1.0  # default with ranges, over half the range: no entry within it spreads more than this half
_COUNT = 0.1  # share of the budget for the number of rows, if it is private
_SURE = 0.9  # noisy number of rows over the declared one from which a search is sure to run at the least budget
_MOST = 1e6  # largest rho: it protects nobody, but its noise is still many units of the lattice


@dataclass(frozen=True)
class AdaptiveDataMechanism:
    r"""Mechanism for the sum of n nearly normal rows if only ranges of their means and standard deviations are known.

    Parameters
    ----------
    n : int
        Number of rows, public, >= 2. For "add_remove" it is only a guess, by which the budget is
        judged: see `least_rho` and `forecast`.
    rho : float
        Whole budget in zero-concentrated differential privacy, > 0 and at most 1e6.
        `egm.calibration.zcdp_rho` computes it from an epsilon and a delta.
    radius : float, optional
        Bound R of the means: every column has a mean from -R to R, in the units of the data. It is
        > 0 and at most 1e100. Exactly one of `radius` and `ranges` is given.
    sigma_range : tuple of float, optional
        Lower and upper bound of the standard deviations of the columns, from 1e-100 to 1e100. With
        `radius` it must be given, in the units of the data. With `ranges` it is in units of half the
        range of a column, and the default is (1e-4, 1): data within a range have at most this
        standard deviation, and a smaller one than a ten-thousandth of half the range counts as that.
        With a `basis`, the lower bound is also that of the standard deviations along its vectors.
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
        Names of the columns, in the order of `ranges`. By default these are the names in `ranges`,
        if that is a mapping.
    per_person : {"sum", "mean"}, optional
        What becomes of the rows of one person, if a person may have several rows: they are added
        up, or they are averaged. Then `n` is the number of persons, and `radius` or `ranges` are
        those of the sums or of the means. By default each row is a person.
    neighbors : {"replace_one", "add_remove"}, default "replace_one"
        Pairs of data sets that a release must not tell apart: one row is replaced, and `n` is
        public; or one row is added or removed, and the number of rows is private. Then a tenth of
        the budget buys a noisy number of rows, which is released.

    Raises
    ------
    ValueError
        If a parameter is outside its range, if `basis` is "learn" for "add_remove", or if not
        exactly one of `radius` and `ranges` is given.
    TypeError
        If a parameter is not made of real numbers.

    See Also
    --------
    egm.mechanisms.GaussianDataMechanism : Takes guesses of center and spread.
    egm.bases : Public bases.

    Notes
    -----
    A release is rho-zero-concentrated differentially private ([1]_, [2]_) for data sets that are
    `neighbors`, whatever the data are. Data outside the declared ranges, or far from
    normal, cost accuracy and never privacy. If there are more rows far from the center than normal
    rows would have, the clip norm is chosen for the worst case, in which the parts that clipping
    removes all point in one direction. Otherwise a noisy sum of these parts is measured if the
    effective dimension of the scaled rows, :math:`(\sum w)^2 / \sum w^2` for the variances w of their
    coordinates, is at least 2.5, and if :math:`n \sqrt{\rho}` is at least 424 or a basis is used. This sum is
    added to the estimate in columns where it is clearly more than noise, as in a skewed column. If
    there are many such columns, a larger clip norm is used instead.

    With `radius` the mechanism runs if `rho` is at least ``least_rho(d)``, where d is the number of columns. Then
    the search fails in at most a few runs of a hundred, and `forecast` bounds this probability.

    The search may not notice a few rows that are far away from all others; they are then clipped.
    The rows that it may not notice are less than a tenth of all rows at the least budget, less than
    a twentieth if :math:`n \sqrt{\rho}` is between 400 and 1200, and less than a share of :math:`60
    / (n \sqrt{\rho})` above 1200.

    **Ranges.** With `ranges` the rows are standardized: the middle of its range is subtracted from
    each column, which is then divided by half of the range. This map is public and treats each row
    by itself, so it costs no privacy. The mechanism works with standardized columns, so that an
    error of a hundredth of the range counts the same in each column; all results are in the units
    of the data again, and each sum lies within n times its range.

    With `ranges` nothing is refused. The search is compared with a sum of rows that are clipped to
    the ranges, entry by entry, whose noise has the standard deviation :math:`\sqrt{d / (2 \rho)}`
    times the width of the range in each column. If `rho` is below ``least_rho(d)``, a public
    number, all of it goes into this sum. Otherwise a part of `rho` buys a noisy mean of the clipped
    rows, the median of their distances from it, and other numbers, which are private answers within
    the budget. If they do not promise that a search is far better, or if they show that many rows
    are far from the others, the rest of `rho` goes into the sum of the clipped rows, and the first
    mean is averaged with it. In simulations, the squared error was then at most a tenth larger than
    that of the clipped sum with all of `rho`, and a quarter larger in rare cases in which the search
    was given up late. A search whose sum disagrees with the first mean is not believed; the error
    can be larger only where the difference is not seen. `AdaptiveRelease.method` says which way was
    taken. Entries outside the ranges are cut only if the result does not come from a search: so
    choose ranges that hold nearly all the data.

    **A private number of rows.** Under "add_remove" the first answer is a noisy number N of rows,
    which costs rho / 10 and has the standard deviation :math:`\sqrt{5 / \rho}`. It is released, so
    that all further questions may use it in place of `n` [2]_. Each of them changes by no more if a
    row is added or removed than if one is replaced. A mean of clipped rows is a sum of vectors of
    norm C or less, divided by N, so that one row changes the sum by C instead of 2 C, and half the
    noise is enough. A vector of squares changes by its norm instead of :math:`\sqrt 2` times this
    norm; one number of rows in a range of distances changes instead of two; and the score of an
    interval, in which a private quantile is drawn, changes by one at most
    (`egm.quantiles.interval`). All costs add up to `rho` or less, as they are recorded. A release
    has N as `count`. Its sum is N times its mean, so the error of the sum includes the noise of N
    times the center. The number of rows takes one more pass over the rows. If N is so small that a
    search might fail, the rows are clipped to the ranges, or to the radius. A basis cannot be
    learned, because the sum of products of entries is exact for a public number of rows only.

    **Passes.** The rows are read once to check them, and once for each question: some 15 to 30
    times in all, and never more than 600 times. The questions, and so the passes, depend on
    released numbers alone. If no search is considered, there are two passes. A dask array with chunks of
    unknown size is read once more.

    **Basis.** A basis is used if :math:`n \sqrt{\rho}` is above about :math:`280 \sqrt d`, so that the
    standard deviations along it can be measured; otherwise the columns remain the coordinates. With
    "learn" the mechanism asks for the second moments of the columns after they are divided by their
    standard deviations and clipped to a private median of the norm. From the noisy moments it keeps
    the directions that stand out of the noise [3]_. It takes the eigenvectors of the resulting
    covariance matrix as the basis if the noise, by Lemma 4.1, is then expected to be less by a fifth
    or more. A basis is learned for at most 1024 columns, and only if :math:`n \sqrt{\rho}` is above
    2000, which is 13 000 rows for epsilon = 1 and delta = 1e-6; otherwise nothing is asked for it.

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

    n: int
    rho: float
    radius: float | None = field(default=None, kw_only=True)
    sigma_range: tuple[float, float] | None = field(default=None, kw_only=True)
    basis: Any = field(default=None, kw_only=True)
    ranges: tuple[tuple[float, float], ...] | None = field(default=None, kw_only=True)
    columns: Columns = field(default=None, kw_only=True)
    per_person: Literal["sum", "mean"] | None = field(default=None, kw_only=True)
    neighbors: Neighbors = field(default="replace_one", kw_only=True)

    if TYPE_CHECKING:

        def __init__(
            self,
            n: int,
            rho: float,
            *,
            radius: float | None = ...,
            sigma_range: tuple[float, float] | None = ...,
            basis: ArrayLike | str | BasisLike | None = ...,
            ranges: Mapping[Any, tuple[float, float]] | ArrayLike | None = ...,
            columns: Iterable[Hashable] | None = ...,
            per_person: Literal["sum", "mean"] | None = ...,
            neighbors: Neighbors = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        n, rho = count(n=self.n), scalar(positive, rho=self.rho)
        if n < 2:
            raise ValueError(f"n must be at least 2, got {n}")
        columns = _tables.declared(self.columns, ranges=self.ranges)
        ranges = None if self.ranges is None else _checked_ranges(self.ranges, columns)
        if (self.radius is None) == (ranges is None):
            raise ValueError("radius must be given, or ranges, and not both")
        sigma_range = _SIGMA_RANGE if self.sigma_range is None and ranges is not None else self.sigma_range
        bounds = between(*_RANGE, sigma_range=positive(sigma_range=sigma_range))
        if bounds.shape != (2,) or bounds[0] > bounds[1]:
            raise ValueError(f"sigma_range must be (least, greatest), got {self.sigma_range!r}")
        radius = None if self.radius is None else scalar(partial(between, 0.0, _RANGE[1]), radius=self.radius)
        if radius is not None:
            scalar(positive, radius=radius)
        between(0.0, _MOST, rho=rho)
        if not (self.per_person is None or self.per_person in ("sum", "mean")):
            raise ValueError(f'per_person must be "sum" or "mean", got {self.per_person!r}')
        if not isinstance(self.neighbors, str) or self.neighbors not in ("replace_one", "add_remove"):
            raise ValueError(f'neighbors must be "replace_one" or "add_remove", got {self.neighbors!r}')
        if self._learns and self._counted:
            raise ValueError('basis must not be "learn" for neighbors="add_remove": give a public basis')
        basis = self.basis if self.basis is None or self._learns else checked(self.basis)
        values = {"n": n, "rho": rho, "radius": radius, "sigma_range": tuple(bounds.tolist()), "basis": basis}
        for name, value in {**values, "ranges": ranges, "columns": columns}.items():
            object.__setattr__(self, name, value)

    def __sklearn_clone__(self) -> AdaptiveDataMechanism:
        return self  # it never changes; scikit-learn's `clone` asks for this method

    @property
    def _bounds(self) -> tuple[Any, Any]:
        """Return the bounds of the means of the columns: two numbers, or two arrays with an entry for each column."""
        if self.ranges is None:
            return -self.radius, self.radius  # type: ignore[operator]  # one of both is given
        return tuple(np.array(self.ranges).T)

    @property
    def _standard(self) -> tuple[Any, Any]:
        """Return the middle and the half width of the ranges of the columns, or 0 and 1 without declared ranges."""
        if self.ranges is None:
            return 0.0, 1.0
        low, high = self._bounds
        return low / 2 + high / 2, high / 2 - low / 2

    @property
    def _sigma_range(self) -> tuple[float, float]:
        """Return the range of the standard deviations, those of standardized columns if ranges are declared."""
        return self.sigma_range or _SIGMA_RANGE

    @property
    def _counted(self) -> bool:
        """Return whether the number of rows is private, so that a noisy one is released."""
        return self.neighbors == "add_remove"

    @property
    def _learns(self) -> bool:
        """Return whether a basis is to be found privately."""
        return isinstance(self.basis, str) and self.basis == "learn"

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

        With `radius`, a release with less is refused. With `ranges`, a search is considered from
        this budget on. Under "add_remove" it includes the cost of the number of rows, and is enough
        if the noisy number is a tenth less than `n`.

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
        return self._least(self.n, count(d=d)) / ((1 - _COUNT) * _SURE**2 if self._counted else 1.0)

    def forecast(
        self, sigma: Named | None = None, center: Named | None = None, *, covariance: ArrayLike | None = None
    ) -> AdaptiveForecast:
        """Forecast the expected error of a release for normal rows, and the probability that the search succeeds.

        Parameters
        ----------
        sigma : array_like or mapping, shape (d,), optional
            True standard deviations of the columns, in the units of the data, > 0; with a public
            `basis`, those along its vectors, with `ranges` of the standardized columns.
        center : float or array_like or mapping, shape (d,), optional
            True mean of a row, in the units of the data; by default the middle of the ranges, which
            is 0 with `radius`.
        covariance : array_like, shape (d, d), optional
            True covariance matrix of the columns, instead of `sigma`, in squared units of the data.

        Returns
        -------
        AdaptiveForecast
            Expected error, probability that the search succeeds, the budget that each step takes,
            and whether there is a search.

        Raises
        ------
        ValueError
            If a parameter is outside its range or has another shape, if not exactly one of `sigma`
            and `covariance` is given, or if `rho` is below ``least_rho(d)``.
        TypeError
            If a parameter is not made of real numbers.

        Notes
        -----
        The search is run with the answers that are expected of normal rows with the mean `center`,
        and either the standard deviations `sigma` and independent coordinates, or the covariance
        matrix `covariance`. If there is no search, because `ranges` are given and it would not pay,
        the forecast is the error of the noise, which is exact; there is no other error if the data
        lie in the ranges.

        Examples
        --------
        >>> from egm import AdaptiveDataMechanism
        >>> mechanism = AdaptiveDataMechanism(10_000, rho=0.024, radius=1e4, sigma_range=(1, 1e4))
        >>> forecast = mechanism.forecast([18, 1200, 3], center=[40, 2500, 4])
        >>> print(f"{forecast.error.total ** 0.5:.1e}")  # expected error of the sum
        3.5e+04
        """
        if (sigma is None) == (covariance is None):
            raise ValueError("exactly one of sigma and covariance must be given")
        if self.columns is not None:
            sigma, center = _tables.ordered(self.columns, sigma=sigma), _tables.ordered(self.columns, center=center)
            covariance = _tables.ordered_square(self.columns, covariance=covariance)
        true = None if covariance is None else covariance_matrix(covariance)
        spread = vector(sigma=sigma) if true is None else np.sqrt(np.diag(true))
        d = spread.size
        self._require_columns(d, "sigma" if true is None else "covariance")
        middle, half = self._standard
        mean = finite(center=middle if center is None else center)
        if mean.shape not in ((), spread.shape):
            raise ValueError(f"center must be a number or have the {d} entries of sigma, got {mean.shape}")
        mean, basis = np.broadcast_to((mean - middle) / half, spread.shape), self._basis(d)
        self._require_enough(d)
        along = None
        if basis is not None and true is None:
            along, spread = spread, of_columns(basis, spread)
        else:
            spread = spread / half
        true = None if true is None else true / np.multiply.outer(half, half)
        rows = ExpectedRows(self.n, self.rho, spread, mean, true, along, 1.0 if self._counted else 2.0)
        found, of_count = self._run(rows)
        half = self._half(found)
        noise_std, error = self._error(found, middle + half * found.center, of_count)
        return AdaptiveForecast(
            error=error,
            success=max(0.0, 1 - rows.failure),
            spent=dict(rows.account.spent),
            noise_std=noise_std,
            bias=half * found.bias,
            method=found.method,
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
            If `X` has another shape, other names or another number of rows, if `rho` is below
            ``least_rho(d)`` and there are no `ranges`, or if `person` is given and the mechanism has
            no `per_person`, or the other way round.
        TypeError
            If `X` is an iterator, or if its type shows that it does not hold real numbers.

        Notes
        -----
        `egm.budget` calls this method before it records the cost of a release, so that a mistake in
        the argument uses no budget.

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
        people.require_person(person, self.per_person)
        labels = people.label_names(X, person=person)
        if isinstance(X, Iterator) and not labels:  # with labels it is read once
            raise TypeError(
                "X must be such that it can be read several times, got an iterator: give a function that returns a "
                "new iterator each time, an array of all rows, the table of egm.files.rows, or a dask array"
            )
        if _tables.is_read_later(X):
            return
        table: Any = _tables.chosen(X, self.columns, labels)
        if _tables.is_blocks(table):
            shape: Any = np.nan if table.count is None else table.count, len(table.names)
        else:
            shape = unread(X=table)
        if self._named:
            _tables.check(table, self.columns)
        if shape is None:  # a dask data frame
            return
        rows, *columns = shape or (self.n,)
        public = person is None and not self._counted
        if len(columns) != 1 and not isinstance(X, list | tuple):
            given = tuple(shape) if public else shown_shape("X", tuple(shape))
            raise ValueError(f"X must have shape ({self.n if public else 'rows'}, columns), got {given}")
        if public and rows != self.n and not np.isnan(rows):
            raise ValueError(f"X must have the declared n = {self.n} rows, got {rows}")
        if columns and not np.isnan(columns[0]):
            self._require_columns(columns[0], "X")
            self._basis(columns[0])
            self._require_enough(columns[0])
        elif not columns:
            self._require_enough(1)

    def release(
        self, X: RowSource, *, person: object = None, rng: np.random.Generator | None = None
    ) -> AdaptiveRelease:
        """Release a private estimate of the sum of the rows, after a private search for their center and spread.

        Parameters
        ----------
        X : array_like, table or function, shape (n, d)
            Real numbers: an array; a table of pandas, polars, pyarrow or `egm.files.rows`; a dask
            array or data frame; or a function without arguments that returns a new iterator over
            blocks of the rows, arrays or data frames, each time it is called. They are read several
            times and never changed. With `person`, they are read once, and may be an iterator.
        person : hashable or array_like, shape (n,), optional
            Person to whom each row belongs: the name of a column of `X`, which is not summed, or an
            array with one entry for each row. It is given if and only if the mechanism has
            `per_person`. Then what is left of the rows of each person is held in memory, and blocks
            of rows that are read one after the other must be sorted by person.
        rng : numpy.random.Generator, optional
            Generator that makes the release a simulation. By default all randomness is secure.

        Returns
        -------
        AdaptiveRelease
            The estimate has shape (d,), in the units of the data.

        Raises
        ------
        ValueError
            If `X` has another shape or number of rows, if its names are not those of `columns`, if a
            value is not finite, or if `rho` is below ``least_rho(d)`` and there are no `ranges`.
        TypeError
            If `X` is an iterator, which can be read only once, if it is a function that does not
            return a new iterator each time, or if it does not hold real numbers.

        Warns
        -----
        SimulationWarning
            If `rng` is given for the first time in a process.

        Notes
        -----
        Columns with names are taken in the order of `columns`; without `ranges` and `columns`, in
        their own order. A file or a dask array is read anew for each question, in blocks, and is
        never in memory as a whole. All questions are sums over the rows that are computed without
        rounding. So the same rows give the same release, bit for bit, whatever holds them.

        Means are computed from integers (see `egm._rows.lattice`) with discrete Gaussian noise. In
        zero-concentrated differential privacy this noise costs as much as continuous noise ([1]_,
        Theorem 14).

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
        _tables.refuse_rows_of_tables(X)
        self.check(X, person=person)
        labels = people.label_names(X, person=person)
        first, held = _held(X, once=person is not None)
        columns = self.columns or _tables.column_names(first)
        columns = columns and tuple(name for name in columns if name not in labels)
        passes = self._passes(held) if person is None else self._persons(held, person, first)
        n, d = passes.shape
        if n != self.n and not self._counted:  # the shape of a dask data frame is known only now
            unit = "rows" if person is None else "persons"
            raise ValueError(f"X must have the declared n = {self.n} {unit}, got {n}")
        self._require_columns(d, "X")
        self._require_enough(d)
        passes.require_finite()
        middle, half = self._standard
        standard = {} if self.ranges is None else {"middle": middle, "half": half}
        rows = PrivateRows(passes, self.rho, rng, **standard, counted=self._counted)
        with np.errstate(under="ignore"):  # the caller may have switched this warning on
            found, of_count = self._run(rows)
        half, n = self._half(found), rows.n
        center = middle + half * found.center
        noise_std, error = self._error(found, center, of_count)
        return AdaptiveRelease(
            estimate=np.clip(n * (middle + half * found.mean), *(n * bound for bound in self._bounds)),
            noise_std=noise_std,
            bias=half * found.bias,
            center=center,
            sigma=found.sigma if found.basis is not None else half * found.sigma,
            spread=half * found.spread,
            basis=found.basis,
            forecast=error,
            model_holds=found.model_holds,
            spent=dict(rows.account.spent),
            simulated=rng is not None,
            method=found.method,
            columns=columns,
            n=n,
            count=of_count and of_count[0],
            count_std=of_count[1] if of_count else 0.0,
        )

    def _persons(self, X: Any, person: object, first: Any) -> Passes:
        """Return one row for each person: the sum or the mean of the rows of this person in `X`.

        `per_person` of the mechanism says which of the two. `person` says to whom each row belongs, as for `release`.
        `first` is `X` or, if `X` is an iterator over blocks, the first block; it shows the names of the columns.
        """
        if self.columns is None:
            labels = people.label_names(X, person=person)
            names = tuple(name for name in _tables.column_names(first) or () if name not in labels) or None
            d = len(names) if names is not None else 1 if first is None else np.shape(first)[1]
            source = people.Source(names, d, person)
        else:
            source = people.Source(self.columns, len(self.columns), person)
        found = source.results(X, partial(_kept, how=self.per_person, d=source.d))
        return Passes(np.concatenate([kept for kept, _ in found]))

    def _passes(self, X: Any) -> Passes:
        """Return the rows `X`, in the order of the mechanism's columns, as an object that can be read several times."""
        columns = self.columns if self._named else _tables.column_names(X)
        held = _tables.arranged(X, columns)
        if is_dask(held):
            return Passes(held)
        if isinstance(held, Iterator):
            names = _tables.column_names(X) or ()
            return Passes(partial(_tables.arranged, X, columns), (None if self._counted else self.n, len(names)))
        return Passes(unread_matrix(None, X=held))

    def _run(self, rows: Answers) -> tuple[LastRound, tuple[float, float] | None]:
        """Ask all questions of a release, and return the noisy mean with its errors, and the noisy number of rows.

        `rows` answers the questions. The first result is in the units of the rows after they were divided (see
        `_half`). The second result is None or, if the number of rows is private, the pair of the noisy number and the
        standard deviation of its noise.
        """
        basis, of_count = self._basis(rows.d), None
        if self._counted:
            of_count = rows.count("rows", _COUNT * self.rho)
        if self.radius is None:
            return choice.released(rows, self._sigma_range, basis, self._learns), of_count
        if self._counted and rows.account.left < self._least(rows.n, rows.d):
            rows.standardize(self.radius)
            return choice.clipped(rows), of_count
        search = Search(rows, self.radius, self._sigma_range, basis, self._learns)
        search.run()
        return last_round(search), of_count

    def _half(self, found: LastRound) -> Any:
        """Return the number or the vector by which the rows were divided before the questions of the release.

        It is half the ranges if they are declared, the radius if the rows were clipped to it without a search, and 1
        otherwise. `found` is the first result of `_run`.
        """
        return self.radius if self.radius is not None and found.method == "ranges" else self._standard[1]

    def _error(
        self, found: LastRound, center: Array, of_count: tuple[float, float] | None
    ) -> tuple[Array, ErrorForecast]:
        """Return the noise in each entry of the sum, and the expected squared error of the sum, in units of the data.

        `found` and `of_count` are the two results of `_run`. The noise is given by its standard deviations, shape (d,).
        With a noisy number of rows, which is multiplied by the `center` of the rows, it includes the noise of this
        product.
        """
        half = self._half(found)
        noise_std = half * found.noise_std
        if self.ranges is None and of_count is None:
            return noise_std, found.forecast
        if of_count is not None:
            noise_std = np.hypot(noise_std, of_count[1] * center)
        factor = float(np.sum(half**2 * found.share))
        noise = float(np.sum(noise_std**2))
        return noise_std, ErrorForecast(noise, factor * found.forecast.clipping, factor * found.forecast.center)

    def _least(self, n: int, d: int) -> float:
        """Return the least budget with which a search for `d` columns of `n` rows may begin."""
        if self.radius is None:
            return choice.least(n, d, self._sigma_range)
        return least_rho(n, d, self.radius, self._sigma_range[0])

    @property
    def _named(self) -> bool:
        """Return whether the mechanism has numbers or names that belong to columns."""
        return self.ranges is not None or self.columns is not None

    def _require_columns(self, d: int, name: str) -> None:
        """Raise a ValueError if `d`, the number of columns of the argument `name`, is not that of the mechanism."""
        declared = self.ranges or self.columns
        if declared is not None and d != len(declared):
            raise ValueError(f"{name} must have the {len(declared)} columns of the mechanism, got {d}")

    def _basis(self, d: int) -> BasisLike | None:
        """Return the public basis for `d` columns; None if there is none, or if it is to be learned."""
        return None if self.basis is None or self._learns else as_basis(self.basis, d)

    def _require_enough(self, d: int) -> None:
        """Raise a ValueError if `rho` is too small for the search to find center and spread of `d` columns reliably.

        Too small means less than ``least_rho(d)``; with declared ranges no budget is too small. The message names two
        ways out, each enough by itself: a larger rho for the same n, and a larger n for the same rho.
        """
        least = self.least_rho(d)
        if self.ranges is None and self.rho < least:
            n = math.ceil(self.n * math.sqrt(least / self.rho) * (1 + 1e-12))
            least = _rounded_up(least)
            columns = "1 column" if d == 1 else f"{d} columns"
            raise ValueError(
                f"rho = {self.rho} is too small for n = {self.n} and {columns}: to find their center and spread in "
                f"the declared ranges takes rho = {least:.4g}, or n = {n}"
            )


def _held(X: Any, once: bool) -> tuple[Any, Any]:
    """Return an object that shows the names of the columns of `X`, and an object from which the rows can be read.

    Both are `X` itself if it is an array or a table. If `X` is a function or an iterator and `once` is true, they are
    the first block of rows, and an iterator over all blocks. If `X` is a function and `once` is false, the second
    object is a table that can be read several times, and so is the first, or it is None if the columns have no names.
    """
    if not _tables.is_read_later(X):
        return X, X
    if once:
        return peeked(_tables.opened(X))
    table = Reopened(X)
    return table if table.named else None, table


def _kept(source: Iterator[people.Block], how: people.PerPerson, d: int) -> tuple[Array, int]:
    """Return the sum or the mean of the rows of each person, shape (persons, d), and the number of persons.

    `source` yields blocks of rows with `d` columns, sorted by person. `how` is "sum" or "mean".
    """
    kept = [block.values for block in people.gathered(source, how, False)]
    rows = np.concatenate([np.empty((0, d)), *kept])
    return rows, len(rows)


def _checked_ranges(ranges: Any, columns: Columns) -> tuple[tuple[float, float], ...]:
    """Return the argument `ranges` of the mechanism as a tuple of pairs, in the order of the names in `columns`.

    Raise a ValueError for a range that is not (low, high) with low < high, or that is too wide or too narrow.
    """
    found = finite(ranges=_tables.ordered(columns, ranges=ranges))
    if found.ndim != 2 or found.shape[1:] != (2,) or not len(found):
        raise ValueError(f"ranges must be pairs (low, high), one for each column, got shape {found.shape}")
    if columns is not None and len(columns) != len(found):
        raise ValueError(f"columns must be the names of the {len(found)} ranges, got {len(columns)}")
    between(-_RANGE[1], _RANGE[1], ranges=found)
    for j, (low, high) in enumerate(found.tolist()):
        if not high / 2 - low / 2 >= _RANGE[0]:
            place = f"ranges[{j if columns is None else repr(columns[j])}]"
            raise ValueError(f"{place} must be (low, high) with low < high, got ({low:g}, {high:g})")
    return tuple((low, high) for low, high in found.tolist())


def _rounded_up(number: float) -> float:
    """Return `number`, which is > 0, rounded up to three significant digits."""
    unit = 10.0 ** (math.floor(math.log10(number)) - 2)
    rounded = float(f"{math.ceil(number / unit) * unit:.3g}")
    return rounded if rounded >= number else rounded + unit
