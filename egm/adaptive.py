"""Release the sum of normal rows whose center and spread are not known beforehand.

A part of the privacy budget pays for a private search for the center and the spread, which asks a
few questions about the rows. Each answer is private in the sense of zero-concentrated differential
privacy (Bun and Steinke 2016) for data sets of which one row is replaced, and the costs of the
answers add up. Later questions depend on earlier answers. This is allowed, because the total is
fixed beforehand (Feldman and Zrnic 2021). The answer to the last question is the sum itself.

A release is refused if the budget is so small, for n rows, d columns and the declared ranges, that
the search could fail. Data that are far from normal make the sum less accurate, and then the
forecast of the error is larger. The forecast does not cover a few rows that are far away from all
others, because they affect no answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from egm import _tables
from egm._adaptive.expected_rows import ExpectedRows
from egm._adaptive.last_round import last_round
from egm._adaptive.private_rows import PrivateRows
from egm._adaptive.releases import AdaptiveForecast, AdaptiveRelease
from egm._adaptive.search import Search, least_rho
from egm._basis import BasisLike, as_basis, checked, covariance_matrix, of_columns
from egm._types import ArrayLike
from egm._validate import between, count, finite, matrix, positive, scalar, unread, vector, warn_of_delta
from egm.calibration import zcdp_epsilon

__all__ = ["AdaptiveDataMechanism", "AdaptiveForecast", "AdaptiveRelease"]

_RANGE = 1e-100, 1e100  # standard deviations for which all squares in the computation are doubles
_MOST = 1e6  # largest rho: it protects nobody, but its noise is still many units of the lattice


@dataclass(frozen=True)
class AdaptiveDataMechanism:
    r"""Mechanism for the sum of n nearly normal rows if only ranges of their means and standard deviations are known.

    Parameters
    ----------
    n : int
        Number of rows, public, >= 2.
    rho : float
        Whole budget in zero-concentrated differential privacy, > 0 and at most 1e6.
        `egm.calibration.zcdp_rho` computes it from an epsilon and a delta.
    radius : float
        Bound R of the means: every column has a mean from -R to R, in the units of the data. It is
        > 0 and at most 1e100.
    sigma_range : tuple of float
        Lower and upper bound of the standard deviations of the columns, in the units of the data,
        from 1e-100 to 1e100. With a `basis`, the lower bound is also that of the standard
        deviations along its vectors.
    basis : array_like or str or `egm.bases.Basis` or linear operator, shape (d, d), optional
        Orthonormal basis for correlated columns: a public one, as for `GaussianDataMechanism`, or
        "learn", for one that is found privately with a twentieth of the budget. By default, and
        where the budget is small (see Notes), the coordinates are the columns.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    TypeError
        If a parameter is not made of real numbers.

    See Also
    --------
    egm.mechanisms.GaussianDataMechanism : Takes guesses of center and spread.
    egm.bases : Public bases.

    Notes
    -----
    A release is rho-zero-concentrated differentially private ([1]_, [2]_) for data sets of which
    one row is replaced, whatever the data are. Data outside the declared ranges, or far from
    normal, cost accuracy and never privacy. If there are more rows far from the center than normal
    rows would have, the clip norm is chosen for the worst case, in which the parts that clipping
    removes all point in one direction.

    The mechanism runs if `rho` is at least ``least_rho(d)``, where d is the number of columns. Then
    the search fails in at most a few runs of a hundred, and `forecast` bounds this probability.

    The search may not notice a few rows that are far away from all others; they are then clipped.
    The rows that it may not notice are less than a tenth of all rows at the least budget, less than
    a twentieth if :math:`n \sqrt{\rho}` is between 400 and 1200, and less than a share of :math:`60
    / (n \sqrt{\rho})` above 1200.

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
    """

    n: int
    rho: float
    radius: float = field(kw_only=True)
    sigma_range: tuple[float, float] = field(kw_only=True)
    basis: Any = field(default=None, kw_only=True)

    if TYPE_CHECKING:

        def __init__(
            self,
            n: int,
            rho: float,
            *,
            radius: float,
            sigma_range: tuple[float, float],
            basis: ArrayLike | str | BasisLike | None = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        n, rho = count(n=self.n), scalar(positive, rho=self.rho)
        if n < 2:
            raise ValueError(f"n must be at least 2, got {n}")
        bounds = between(*_RANGE, sigma_range=positive(sigma_range=self.sigma_range))
        if bounds.shape != (2,) or bounds[0] > bounds[1]:
            raise ValueError(f"sigma_range must be (least, greatest), got {self.sigma_range!r}")
        values = {"n": n, "rho": rho, "radius": scalar(positive, radius=self.radius)}
        between(0.0, _RANGE[1], radius=values["radius"])
        between(0.0, _MOST, rho=rho)
        basis = self.basis if self.basis is None or self._learns else checked(self.basis)
        for name, value in {**values, "sigma_range": tuple(bounds.tolist()), "basis": basis}.items():
            object.__setattr__(self, name, value)

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
        """Compute the least budget rho for which a release of d columns is not refused.

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
        return least_rho(self.n, count(d=d), self.radius, self.sigma_range[0])

    def forecast(
        self, sigma: ArrayLike | None = None, center: ArrayLike = 0.0, *, covariance: ArrayLike | None = None
    ) -> AdaptiveForecast:
        """Forecast the expected error of a release for normal rows, and the probability that the search succeeds.

        Parameters
        ----------
        sigma : array_like, shape (d,), optional
            True standard deviations of the columns, in the units of the data, > 0; with a public
            `basis`, those along its vectors.
        center : float or array_like, shape (d,), default 0.0
            True mean of a row, in the units of the data.
        covariance : array_like, shape (d, d), optional
            True covariance matrix of the columns, instead of `sigma`, in squared units of the data.

        Returns
        -------
        AdaptiveForecast
            Expected error, probability that the search succeeds, and the budget that each step
            takes.

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
        matrix `covariance`.

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
        true = None if covariance is None else covariance_matrix(covariance)
        sigma = vector(sigma=sigma) if true is None else np.sqrt(np.diag(true))
        center = finite(center=center)
        if center.shape not in ((), sigma.shape):
            raise ValueError(f"center must be a number or have the {sigma.size} entries of sigma, got {center.shape}")
        center, basis = np.broadcast_to(center, sigma.shape), self._basis(sigma.size)
        self._require_enough(sigma.size)
        along = None
        if basis is not None and true is None:
            along, sigma = sigma, of_columns(basis, sigma)
        rows = ExpectedRows(self.n, self.rho, sigma, center, true, along)
        search = Search(rows, self.radius, self.sigma_range, basis, self._learns)
        search.run()
        found = last_round(search)
        return AdaptiveForecast(
            error=found.forecast,
            success=max(0.0, 1 - rows.failure),
            spent=dict(rows.account.spent),
            noise_std=found.noise_std,
            bias=found.bias,
        )

    def check(self, X: ArrayLike) -> None:
        """Raise the errors that `release` would raise for the budget and for the type and shape of the rows `X`.

        Parameters
        ----------
        X : array_like, shape (n, d)
            Rows that would be released. No row is read.

        Raises
        ------
        ValueError
            If `X` has another shape or number of rows, or if `rho` is below ``least_rho(d)``.
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
        if isinstance(X, Iterator):
            raise TypeError("X must be an array that can be read several times, got an iterator")
        shape = unread(X=X)
        if shape is None:  # a dask data frame
            return
        rows, *columns = shape or (self.n,)
        if len(columns) != 1 and not isinstance(X, list | tuple):
            raise ValueError(f"X must have shape ({self.n}, columns), got {np.shape(X)}")
        if rows != self.n:
            raise ValueError(f"X must have the declared n = {self.n} rows, got {rows}")
        self._basis(columns[0] if columns else 1)
        self._require_enough(columns[0] if columns else 1)

    def release(self, X: ArrayLike, *, rng: np.random.Generator | None = None) -> AdaptiveRelease:
        """Release a private estimate of the sum of the rows, after a private search for their center and spread.

        Parameters
        ----------
        X : array_like, shape (n, d)
            Real numbers. They are read several times and never changed.
        rng : numpy.random.Generator, optional
            Generator that makes the release a simulation. By default all randomness is secure.

        Returns
        -------
        AdaptiveRelease
            The estimate has shape (d,), in the units of the data.

        Raises
        ------
        ValueError
            If `X` has another shape or number of rows, if a value is not finite, or if `rho` is
            below ``least_rho(d)``.
        TypeError
            If `X` is an iterator, or if it does not hold real numbers.

        Warns
        -----
        SimulationWarning
            If `rng` is given for the first time in a process.

        Notes
        -----
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
        self.check(X)
        rows = PrivateRows(matrix(None, X=X), self.rho, rng)
        if rows.n != self.n:  # the shape of a dask data frame is known only now
            raise ValueError(f"X must have the declared n = {self.n} rows, got {rows.n}")
        self._require_enough(rows.d)
        search = Search(rows, self.radius, self.sigma_range, self._basis(rows.d), self._learns)
        with np.errstate(under="ignore"):  # the caller may have switched this warning on
            search.run()
            center = search.center_of_columns
            found = last_round(search)
        return AdaptiveRelease(
            estimate=self.n * found.mean,
            noise_std=found.noise_std,
            bias=found.bias,
            center=center,
            sigma=search.sigma,
            basis=search.basis,
            forecast=found.forecast,
            model_holds=found.model_holds,
            spent=dict(rows.account.spent),
            simulated=rng is not None,
        )

    def _basis(self, d: int) -> BasisLike | None:
        """Return the public basis for `d` columns; None if there is none, or if it is to be learned."""
        return None if self.basis is None or self._learns else as_basis(self.basis, d)

    def _require_enough(self, d: int) -> None:
        """Raise a ValueError if `rho` is too small for the search to find center and spread of `d` columns reliably.

        Too small means less than ``least_rho(d)``. The message names two ways out, each enough by itself: a larger rho
        for the same n, and a larger n for the same rho.
        """
        least = self.least_rho(d)
        if self.rho < least:
            n = math.ceil(self.n * math.sqrt(least / self.rho) * (1 + 1e-12))
            least = _rounded_up(least)
            columns = "1 column" if d == 1 else f"{d} columns"
            raise ValueError(
                f"rho = {self.rho} is too small for n = {self.n} and {columns}: to find their center and spread in "
                f"the declared ranges takes rho = {least:.4g}, or n = {n}"
            )


def _rounded_up(number: float) -> float:
    """Return `number`, which is > 0, rounded up to three significant digits."""
    unit = 10.0 ** (math.floor(math.log10(number)) - 2)
    rounded = float(f"{math.ceil(number / unit) * unit:.3g}")
    return rounded if rounded >= number else rounded + unit
