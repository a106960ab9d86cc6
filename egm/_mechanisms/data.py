"""Release the sum of normal rows, each clipped to an ellipsoid (Algorithm 3 of Poulsen's report, 2023)."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy.special import chdtri, gammainccinv

from egm import _tables, forecast, gx2, scaling
from egm._basis import BasisLike, as_basis, covariance_matrix, rotated
from egm._clip_region import best_axes
from egm._lazy import cached_property
from egm._lost import CERTAIN
from egm._mechanisms.base import (
    Mechanism,
    Release,
    calibrate,
    fix,
    match,
    ordinary,
    room,
    secure_noise,
    simulated_noise,
    std_on_lattice,
)
from egm._mechanisms.joint import CLIPPED_SHARE, Joint
from egm._mechanisms.rowsum import Parts, RowSum
from egm._rows import lattice, norms, people, sums
from egm._rows.people import PerPerson
from egm._rows.sums import Missing
from egm._rows.unrotated import Unrotated, unrotated
from egm._types import Array, ArrayLike, Columns, Floats, Named, Neighbors, Noise, NoiseLaw, RowSource, Target, Whole
from egm._validate import (
    between,
    count,
    generator,
    matrix,
    nonnegative,
    probability,
    scalar,
    shown_shape,
    vector,
    warn_of_delta,
)
from egm.forecast import MOST_ROWS, ErrorForecast

_CENTER_STD = 0.5  # default of `center_std`, over sigma
_SIGMA_FACTOR = 1.25  # default of `sigma_factor`
_TOLERANCE = 1e-4  # relative tolerance of the best clip norm: the error is flat there
_RANGE = 1e-100, 1e100  # range of data whose squares, and sums of squares, are doubles


@dataclass(frozen=True, eq=False)
class DataRelease(RowSum, Release):
    """Release of a sum of rows: a `Release` that also has means, confidence intervals, and a table of all results.

    Parameters
    ----------
    estimate : ndarray, shape (d,)
        Noisy sum, in the units of the data.
    noise_std : ndarray, shape (d,)
        Standard deviation of the noise in each entry of `estimate`. If the noise is secure, it is
        discrete and slightly larger than ``mechanism.noise_std``.
    simulated : bool
        Whether the noise came from a NumPy Generator.
    count : float, optional
        Noisy number of rows, if the number of rows is not public. Otherwise None.
    clipped : float, optional
        Noisy number of rows that were clipped, if the mechanism counts them. Otherwise None.
    noise_law : {"gaussian", "l2"}, default "gaussian"
        Law of the noise; the density of l2 noise falls exponentially with the norm.
    mechanism : GaussianDataMechanism
        Mechanism that has made the release. All its parameters are public.
    centered_std : ndarray, shape (d,)
        Standard deviation of the noise in each entry of the sum of the rows minus the center, in the
        units of the data. It differs from `noise_std` if the number of rows is private.
    count_std : float
        Standard deviation of the noise in `count`, or 0 if the number of rows is public.

    Examples
    --------
    >>> import numpy as np
    >>> from egm import GaussianDataMechanism
    >>> mechanism = GaussianDataMechanism({"age": 18, "income": 1200}, 10_000, 1, 1e-6, center=[40, 2500])
    >>> X = np.random.default_rng(1).normal([41, 2450], [17, 1150], size=(10_000, 2))
    >>> release = mechanism.release(X, rng=np.random.default_rng(2))
    >>> release.columns, release.mean.round(1).tolist(), release.mean_std.round(1).tolist()
    (('age', 'income'), [40.9, 2436.4], [0.5, 3.9])
    """

    mechanism: GaussianDataMechanism = field(kw_only=True, repr=False)
    centered_std: Array = field(kw_only=True)
    count_std: float = field(default=0.0, kw_only=True)

    @property
    def columns(self) -> Columns:  # type: ignore[override]  # read-only
        """Return the names of the columns, or None if the mechanism has none."""
        return self.mechanism.columns

    @property
    def n(self) -> float:  # type: ignore[override]  # read-only
        """Return the public number of rows or, if it is private, the released noisy number, but at least 1."""
        return float(self.mechanism.n) if self.count is None else max(self.count, 1.0)

    def _noisy_count(self) -> float:
        return float(self.mechanism.n) if self.count is None else self.count

    def _law(self) -> tuple[NoiseLaw, int]:
        return self.mechanism.noise_law, self.mechanism.noise_size

    def _parts(self) -> Parts:
        return self.mechanism._parts(self.centered_std, self.n, self.count_std)


@dataclass(frozen=True, eq=False)
class GaussianDataMechanism(Mechanism):
    r"""Gaussian mechanism for the sum of normal rows, each clipped to an ellipsoid (Algorithm 3 of Poulsen's report).

    The mechanism subtracts a public center from each row, multiplies coordinate :math:`j` by
    :math:`b_j`, and shortens the row to the clip norm :math:`C` if it is longer. The mechanism adds
    up the rows, adds noise, divides by :math:`b`, and adds the center back. Chapter 4 of the book,
    "The mechanism for Gaussian data", derives this mechanism and proves that it is private.

    Parameters
    ----------
    sigma : array_like or mapping, shape (d,)
        Public guess of the standard deviations of the columns, in the units of the data, from
        1e-100 to 1e100. For a column of rare ones among zeros, 0.5 is better than a smaller guess,
        with which all ones are clipped. With a `basis` these are the standard deviations along its
        vectors, without names.
    n : int
        Number of rows, from 1 to 2**53. For "add_remove" it is only a guess, which sets the clip
        norm.
    epsilon : float
        Privacy parameter, > 0.
    delta : float
        Privacy parameter, in (0, 1). It should be far below 1/n.
    center : float or array_like or mapping, shape (d,), default 0.0
        Public guess of the mean of a row, in the units of the data, from -1e100 to 1e100.
    clip_probability : float or "optimal", optional
        Probability in (0, 1) that a row is clipped if `center` and `sigma` are right. The default
        is 1/n; for n = 1 the argument must be given. "optimal" takes the clip norm for which the
        forecast ``error().total`` is least, but no clip norm below a thousandth of a row's typical
        norm. If `scaling` is also "optimal", scaling and clip norm are chosen together.
    scaling : {"expected_norm", "optimal", "none"} or array_like or mapping, shape (d,)
        Multipliers `b` of the coordinates: "expected_norm" takes those of Lemma 4.1 of the report
        (`egm.scaling.expected_norm`), "optimal" those with the least noise
        (`egm.scaling.optimal`), and "none" takes 1 for all coordinates. They can also be given as
        numbers from 1e-100 to 1e100.
    neighbors : {"replace_one", "add_remove"}, default "replace_one"
        Pairs of data sets that a release must not tell apart. With "replace_one" one row is
        replaced by another, and `n` is public. With "add_remove" one row is added or removed, and
        the number of rows is private.
    center_std : float or array_like or mapping, shape (d,), optional
        Distance by which `center` may differ from the mean in each coordinate, in the units of the
        data, >= 0. By default half of `sigma`.
    sigma_factor : float, default 1.25
        Factor by which `sigma` may be too large or too small, all its entries alike, from 1 to 10.
    columns : sequence of hashable, shape (d,), optional
        Names of the columns, in the order of `sigma`. By default these are the names in `sigma`, if
        that is a mapping or a Series with an index of names.
    count_clipped : bool, default False
        Whether a noisy number of clipped rows is released with the sum. Gaussian noise of the sum
        then grows by 0.8 percent, and l2 noise by up to 24 percent for one column, by up to 6 percent
        for ten columns, and by about 1 percent for a hundred.
    noise : {"gaussian", "l2", "best"}, default "gaussian"
        Law of the noise. The density of l2 noise falls exponentially with the norm. l2 noise has a
        smaller error than Gaussian noise unless delta is above about a hundredth of epsilon; the gain
        is largest for few coordinates. "best" takes the one of these two laws that has the smaller
        error. But secure l2 noise has a random scale, which is rounded, and this costs a part of
        delta. If it costs a quarter of delta or more, "best" takes Gaussian noise. With few
        coordinates this happens if epsilon is above about 18 for delta = 1e-6, or above about 4 for
        delta = 1e-12.
    basis : array_like or str or `egm.bases.Basis` or linear operator, shape (d, d), optional
        Public orthonormal basis for correlated columns: an orthogonal matrix whose rows are the
        vectors of the basis; the name of a transform, such as "dct", "haar" or, for images of 8
        times 8 pixels, "dct:8x8"; an object of `egm.bases`; or an object with the methods
        ``matvec`` and ``rmatvec``, such as a `scipy.sparse.linalg.LinearOperator`. Rows are clipped
        in the coordinates along these vectors, and the noise has independent coordinates there. By
        default the coordinates are the columns.
    missing : {"error", "center", "drop_row"}, default "error"
        What becomes of a missing value (NaN or null). With "error" it raises an error, with
        "center" it counts as the entry of `center`, and with "drop_row" its row is left out. Then
        the number of rows is private, and a noisy number of rows is released with the sum. The
        intervals of a release do not cover the error that missing values cause. An infinite value
        always raises an error, also in a row that is left out.
    per_person : {"sum", "mean"} or int, optional
        What becomes of the rows of one person, if a person may have several rows: "sum" adds them
        up, "mean" averages them, and a number k keeps the first k of them. Then `sigma` and
        `center` are those of the sums, of the means, or of the rows that are kept, and `n` is the
        number of persons or, for a number k, a guess of the number of rows that are kept. A missing
        value is left out of a sum or a mean, unless `missing` is "error". By default each row is the
        only row of a person. The order of a person's rows affects the result, and must not depend on
        other persons: if a table is sorted, then by a stable method.
    of : {"sum", "mean"}, default "sum"
        What shall be accurate if a noisy number of rows is released: `estimate`, or `mean` of the
        release. The noise of this number is multiplied by `center` in the sum, and only by the
        distance of the true mean from `center` in the mean. So with "mean" the number of rows may
        have more noise, and the sum of the rows gets less.

    Attributes
    ----------
    noise_law : {"gaussian", "l2"}
        Law of the noise that is drawn.
    noise_size : int
        Number of coordinates for which l2 noise is calibrated: d, plus one for each number of rows
        that is released with the sum.
    noise_multiplier : float
        Least sufficient standard deviation of each coordinate of the noise for a sum of
        sensitivity 1, by `egm.calibration.analytic_noise_multiplier` or
        `egm.calibration.l2_noise_scale`.
    b : ndarray, shape (d,)
        Scaling vector by which the centered rows are multiplied before they are clipped.
    p : float
        Probability that a row is clipped if `center` and `sigma` are right.
    clip_norm : float
        Norm :math:`C` to which a centered and scaled row is shortened if it is longer.
    count_weight : float
        Weight by which the number of rows is multiplied before it is released together with the
        sum; at least a tenth of `clip_norm`, but 0.0 if the number of rows is not released. Under
        "replace_one" the number of rows is released only if `missing` is "drop_row" or `per_person`
        is a number.
    clipped_std : float or None
        Standard deviation of the noise in `Release.clipped`, the released number of clipped rows.
        None unless `count_clipped` is True.
    noise_std : ndarray, shape (d,)
        Standard deviation of the noise in each coordinate of the sum, in the units of the data.

    Raises
    ------
    ValueError
        If a parameter is outside its range or does not have the stated shape, if the names in a
        parameter are not those of `columns`, or if an entry of `noise_std` is not between 1e-300
        and 1e300.
    TypeError
        If a parameter does not have the stated type.

    Warns
    -----
    DeltaWarning
        If `delta` is 1/n or more. Such a delta promises too little: even a mechanism that publishes
        one random row of the n unchanged would be (epsilon, delta)-private.

    See Also
    --------
    egm.adaptive.AdaptiveDataMechanism : Finds center and spread privately, with a part of its budget.
    EllipticalGaussianMechanism : Takes bounds of the coordinates, not guesses of their spread.

    Notes
    -----
    **Algorithm.** With the center :math:`\hat\mu`, rows :math:`y_i = b (x_i - \hat\mu)` and
    products taken coordinate by coordinate, the release under "replace_one" is

    .. math::

        n \hat\mu + \frac{1}{b} \Bigl( \sum_{i=1}^n \min\Bigl\{ 1, \frac{C}{\|y_i\|} \Bigr\} \, y_i + \eta \Bigr),
        \qquad \eta_j \sim N(0, (2 C \sigma_{opt})^2),

    where :math:`\sigma_{opt}` is the noise multiplier [1]_. Algorithm 3, as printed in [1]_, adds
    the center before it divides by :math:`b`, which is wrong unless the center is zero.

    **Privacy.** A release is (epsilon, delta)-differentially private for all finite data (Algorithm
    3 of [1]_, with the noise of [2]_, Theorem 8). An error about an entry that is not finite, or
    about a label, depends on the data and must not be published. The normal model only says how
    often a row is clipped. Secure releases add up integers instead of doubles, so that rounding cannot
    increase the sensitivity (see `egm._rows.lattice`).

    **Neighbors.** Under "add_remove" two things are released together: the sum of the clipped rows,
    and the number of rows times :math:`w`, which is `count_weight`. Sum and number together have the
    sensitivity :math:`\sqrt{C^2 + w^2}`, instead of :math:`2 C`. The center is multiplied by the
    noisy number of rows instead of :math:`n`.

    **Basis.** With an orthogonal matrix :math:`U`, the rows are :math:`y_i = b (U (x_i -
    \hat\mu))`, and the noisy sum is multiplied by :math:`U^T` after it is divided by :math:`b`. The
    proof of privacy is the same, because any function of a single row may be applied before the row
    is clipped; rounding errors of the product with :math:`U` therefore cost no privacy. Then
    `sigma`, `b`, `center_std` and the argument `sigma` of `error` are along the vectors of the
    basis, while `center`, `noise_std`, `columns` and the estimate are those of the columns. For
    normal rows the eigenvectors of the covariance matrix are the best basis (see `egm.bases`). A
    matrix whose entries are rounded to six digits or more is replaced by the nearest orthogonal
    one.

    **Scaling.** "optimal" has the least noise for normal rows: up to a half less than
    "expected_norm" in the cases that chapter 10 of the book shows. But this scaling relies on a far
    quantile of the norm of a row. If columns are correlated, or if the center is wrong by about
    `sigma` (or by less, with a `sigma` that is too small), the error of "optimal" can grow by many
    times what its smaller noise saves (chapter 12 of the book).

    **Wrong guesses.** `center_std` and `sigma_factor` do not affect privacy. `error`,
    `confidence_radius` and ``clip_probability="optimal"`` assume that `center` is wrong by
    `center_std`, and `sigma` by the factor `sigma_factor`. With ``center_std=0`` and
    ``sigma_factor=1``, ``clip_probability="optimal"`` clips many more rows. This reduces the error
    if the guesses are right. But if the center is wrong by a part of `sigma`, clipping so many rows
    increases the error by far more.

    **Names.** If `columns` has names, then the entries of an argument with names, and the columns
    of a table with names, are put into the order of `columns`; an error is raised if a name is
    missing. A table may have more columns, which are not read. If `columns` is None, an error is
    raised for any names. An array without names is taken to be in the order of the columns.

    **Clipped rows.** Under `count_clipped` the number of clipped rows is multiplied by an eighth of
    the sensitivity and released together with the sum. The method `excess_clipped` uses this number
    to test what `error` and `confidence_radius` assume: that the guesses are at most as wrong as
    declared, and that the coordinates of a row are nearly normal and independent. Rows in which a
    single entry is not zero, as in a sum by groups, are clipped far more often.

    References
    ----------
    .. [1] Poulsen (2023), "Differentially private vector sums in the case of normally distributed data".
    .. [2] Balle and Wang (2018), "Improving the Gaussian Mechanism for Differential Privacy: Analytical Calibration and
       Optimal Denoising".

    Examples
    --------
    Release the sums of age, income and visits of 10 000 people, with guesses of the standard
    deviations and of the means.

    >>> import numpy as np
    >>> from egm import GaussianDataMechanism
    >>> mechanism = GaussianDataMechanism([18, 1200, 3], 10_000, epsilon=1, delta=1e-6, center=[40, 2500, 4])
    >>> print(mechanism.noise_std.round())
    [ 4834. 39471.  1974.]
    >>> round(mechanism.error().total ** 0.5)  # the error that is to be expected, before there are data
    41192

    The data of this example are simulated, and so is the release. Without `rng` its noise is
    secure.

    >>> X = np.random.default_rng(1).normal([41, 2450, 4.2], [17, 1150, 3.1], size=(10_000, 3))
    >>> release = mechanism.release(X, rng=np.random.default_rng(2))
    >>> print((release.estimate / 10_000).round(1), X.mean(axis=0).round(1))
    [  41.  2439.3    4.1] [  41.  2441.3    4.2]
    """

    sigma: Array
    n: int
    epsilon: float
    delta: float
    center: Floats = field(default=0.0, kw_only=True)
    clip_probability: float | Literal["optimal"] | None = field(default=None, kw_only=True)
    scaling: str | Array = field(default="expected_norm", kw_only=True)
    neighbors: Neighbors = field(default="replace_one", kw_only=True)
    center_std: Floats | None = field(default=None, kw_only=True)
    sigma_factor: float = field(default=_SIGMA_FACTOR, kw_only=True)
    columns: Columns = field(default=None, kw_only=True)
    count_clipped: bool = field(default=False, kw_only=True)
    noise: Noise = field(default="gaussian", kw_only=True)
    basis: Any = field(default=None, kw_only=True)
    missing: Missing = field(default="error", kw_only=True)
    per_person: PerPerson = field(default=None, kw_only=True)
    of: Literal["sum", "mean"] = field(default="sum", kw_only=True)
    noise_law: NoiseLaw = field(init=False, repr=False)
    noise_size: int = field(init=False, repr=False)
    noise_multiplier: float = field(init=False, repr=False)
    b: Array = field(init=False, repr=False)
    p: float = field(init=False, repr=False)
    clip_norm: float = field(init=False, repr=False)
    count_weight: float = field(init=False, repr=False)
    clipped_std: float | None = field(init=False, repr=False)  # of the noise in Release.clipped, in rows
    noise_std: Array = field(init=False, repr=False)

    if TYPE_CHECKING:

        def __init__(
            self,
            sigma: Named,
            n: int,
            epsilon: float,
            delta: float,
            *,
            center: Named = ...,
            clip_probability: float | Literal["optimal"] | None = ...,
            scaling: str | Named = ...,
            neighbors: Neighbors = ...,
            center_std: Named | None = ...,
            sigma_factor: float = ...,
            columns: Iterable[Hashable] | None = ...,
            count_clipped: bool = ...,
            noise: Noise = ...,
            basis: ArrayLike | str | BasisLike | None = ...,
            missing: Missing = ...,
            per_person: PerPerson = ...,
            of: Literal["sum", "mean"] = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        if not isinstance(self.count_clipped, bool):
            raise TypeError(f"count_clipped must be True or False, got {self.count_clipped!r}")
        if self.basis is not None and _tables.declared(None, sigma=self.sigma) is not None:
            raise ValueError("sigma must have no names with a basis: its entries belong to the vectors of the basis")
        fix(self, columns=_tables.declared(self.columns, sigma=self.sigma))
        sigma, n = vector(sigma=_tables.ordered(self.columns, sigma=self.sigma)), count(1, MOST_ROWS, n=self.n)
        match(self.columns, sigma=sigma)
        between(*_RANGE, sigma=sigma)
        if self.basis is not None:
            fix(self, basis=as_basis(self.basis, sigma.size))
        if not isinstance(self.neighbors, str) or self.neighbors not in ("replace_one", "add_remove"):
            raise ValueError(f'neighbors must be "replace_one" or "add_remove", got {self.neighbors!r}')
        center = _location(_tables.ordered(self.columns, center=self.center), sigma, "center")
        fix(self, sigma=sigma, n=n, center=center if center.ndim else float(center))
        self._check_people()
        size = sigma.size + self._joint.counted + self.count_clipped  # sums, and the numbers of rows
        fix(self, noise_multiplier=calibrate(self, size))
        warn_of_delta(self.delta, n, stacklevel=4)
        self._check_doubts()
        if not isinstance(self.scaling, str):
            fix(self, scaling=_given_scaling(_tables.ordered(self.columns, scaling=self.scaling), sigma))
        if isinstance(self.clip_probability, str):
            b, clip_norm, p = self._best_clip()
        else:
            if self.clip_probability is not None:
                fix(self, clip_probability=scalar(probability, clip_probability=self.clip_probability))
            elif n == 1:
                raise ValueError("clip_probability must be given for n = 1: its default, 1 / n, would be 1")
            p = self.clip_probability or 1 / n
            b = _scaling(self.scaling, sigma, p)
            clip_norm = scaling.clip_norm(b, sigma, p)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):  # `ordinary` refuses such noise
            weight = self._count_weight(b, clip_norm)
            noise_std = np.sqrt(self._noise_variances(b, clip_norm))
        ordinary(noise_std, sigma=sigma, scaling=b, epsilon=self.epsilon)
        clipped_std = self.noise_multiplier * self._joint.stretch / CLIPPED_SHARE if self.count_clipped else None
        fix(self, b=b, p=p, clip_norm=clip_norm, count_weight=weight, noise_std=noise_std, clipped_std=clipped_std)

    def _check_people(self) -> None:
        """Check `missing`, `per_person` and `of`; if `per_person` is a number of rows, convert it to an int."""
        if not isinstance(self.missing, str) or self.missing not in ("error", "center", "drop_row"):
            raise ValueError(f'missing must be "error", "center" or "drop_row", got {self.missing!r}')
        if isinstance(self.per_person, str | bool) and self.per_person not in ("sum", "mean"):
            raise ValueError(f'per_person must be "sum", "mean" or a number of rows, got {self.per_person!r}')
        if self.per_person is not None and not isinstance(self.per_person, str):
            fix(self, per_person=count(per_person=self.per_person))
        if not isinstance(self.of, str) or self.of not in ("sum", "mean"):
            raise ValueError(f'of must be "sum" or "mean", got {self.of!r}')

    def _check_doubts(self) -> None:
        """Check the arguments `center_std` and `sigma_factor`, and store them as floats or arrays."""
        if self.center_std is not None:
            given = _tables.ordered(self.columns, center_std=self.center_std)
            std = nonnegative(center_std=_location(given, self.sigma, "center_std"))
            fix(self, center_std=std if std.ndim else float(std))
        factor = scalar(partial(between, 1.0, 10.0), sigma_factor=self.sigma_factor)
        fix(self, sigma_factor=factor)

    def _along(self, rows: Array) -> Array:
        """Return the coordinates of `rows`, one vector or several rows, along the vectors of the basis.

        Without a basis, `rows` is returned.
        """
        return rows if self.basis is None else self.basis.forward(rows)

    def _of_columns(self, variances: Array) -> Array:
        """Return the variance of each column, given the `variances` of uncorrelated coordinates along the basis.

        Without a basis, these coordinates are the columns, and `variances` is returned.
        """
        return variances if self.basis is None else self.basis.variances(variances)

    @property
    def _doubts(self) -> tuple[Array, tuple[float, ...]]:
        """Return how wrong the guesses `center` and `sigma` may be, as a pair (distances, factors).

        The distances, shape (d,), say how far the true mean may be from `center` in each coordinate. The true standard
        deviations may be `sigma` times any of the factors, which are `sigma_factor` and 1 / `sigma_factor`, or only 1
        if `sigma_factor` is 1.
        """
        offset = (
            _CENTER_STD * self.sigma if self.center_std is None else np.broadcast_to(self.center_std, self.sigma.shape)
        )
        return offset, (self.sigma_factor, 1 / self.sigma_factor) if self.sigma_factor > 1 else (1.0,)

    def _best_clip(self) -> tuple[Array, float, float]:
        """Return the scaling b, the clip norm C of least forecast error, and the probability that a row is clipped.

        A row is multiplied by the vector b before it is clipped. The forecast assumes that the guesses `center` and
        `sigma` are as wrong as declared. The probability assumes that the guesses are right. If `scaling` is "optimal",
        b and C are chosen together. The search for this pair begins with the scaling of `egm.scaling.optimal` for the
        clip probability 1/n or 0.1, whichever has the smaller error.
        """
        if self.clip_probability != "optimal":
            raise ValueError(f'clip_probability must be "optimal" or a number, got {self.clip_probability!r}')
        pair = isinstance(self.scaling, str) and self.scaling == "optimal"
        best: tuple[Any, ...] = (np.inf,)
        offset, factors = self._doubts
        between(0.0, 1e140, **{"center_std / sigma": offset / self.sigma})
        for p in sorted({min(1 / self.n, 0.1), 0.1}) if pair else (0.1,):
            b = _scaling(self.scaling, self.sigma, p)
            between(1e-140, 1e140, **{"sigma * scaling": b * self.sigma})
            clip_norm, total = forecast.best_clip_norm(
                lambda norm, b=b: self._noise_total(b, norm),  # type: ignore[misc]  # has a default
                self.sigma,
                self.n,
                b,
                offset,
                tolerance=_TOLERANCE,
                factors=factors,
            )
            best = min(best, (total, b, clip_norm), key=lambda found: found[0])
        _, b, clip_norm = best
        if pair:
            axes = best_axes(self._noise, clip_norm / b, self.sigma, self.n, offset, factors)
            clip_norm = float(1 / np.linalg.norm(self.sigma / axes))  # such that E||b x||^2 = 1
            b = clip_norm / axes
        return b, clip_norm, float(gx2.sf(clip_norm**2, (b * self.sigma) ** 2))

    def _noise(self, axes: Array) -> tuple[float, float]:
        """Return the total variance of the noise, and its derivative with respect to the sum of squared semi-axes.

        `axes`, shape (d,), has the semi-axes of the ellipsoid to which rows are clipped: C / b for the clip norm C,
        where rows are multiplied by the vector b before they are clipped. `egm._clip_region.best_axes` calls this
        method to find the ellipsoid of least error.
        """
        sensitivity = self._joint.sensitivity(1.0, self._count_weight(1 / axes, 1.0))
        price = (sensitivity * self.noise_multiplier * self._joint.stretch) ** 2
        return self._noise_total(1 / axes, 1.0), price

    def _count_weight(self, b: Array, clip_norm: float) -> float:
        """Return the weight by which the number of rows is multiplied in a release, or 0 if that is not released.

        The sum of the rows and their number are released together. The weight of the number depends on `clip_norm` and
        on the vector `b`, by which each row is multiplied before it is clipped.
        """
        ratio = np.linalg.norm(np.broadcast_to(self._pivot, b.shape)) / np.linalg.norm(1 / b)
        return self._joint.weight(clip_norm, float(ratio))

    @property
    def _pivot(self) -> Floats:
        """Return the factor of the count's noise: `center` for a sum, the center's possible error for a mean."""
        return self.center if self.of == "sum" else self._doubts[0]

    def _noise_variances(self, b: Array, clip_norm: float) -> Array:
        """Return the variance of the noise in each column of the sum of clipped rows.

        Rows are multiplied by the vector `b` (the scaling), and then clipped to the norm `clip_norm`.
        """
        along, of_count = self._noise_parts(b, clip_norm, self.center)
        return self._of_columns(along) + of_count

    def _noise_total(self, b: Array, clip_norm: float) -> float:
        """Return the sum, over all columns, of the variances of the noise in the sum of clipped rows.

        Rows are multiplied by the vector `b` (the scaling), and then clipped to the norm `clip_norm`. If `of` is
        "mean", the result is the sum of the variances of the noise in the mean, times the square of the number of rows.
        """
        along, of_count = self._noise_parts(b, clip_norm, self._pivot)  # a rotation does not change this sum
        return float(np.sum(along + of_count))

    def _noise_parts(self, b: Array, clip_norm: float, pivot: Floats) -> tuple[Array, Array]:
        """Return the variances of the noise in two parts: in the sum of clipped rows, and in the number of rows.

        Rows are multiplied by the vector `b` (the scaling), and then clipped to the norm `clip_norm`. The first part
        has an entry for each vector of the basis or, without a basis, for each column: the variance of the noise in the
        sum along this vector. The second part has an entry for each column: the variance of the noise in `pivot` times
        the number of rows, or 0 if this number is not released.
        """
        weight = self._count_weight(b, clip_norm)
        joint = self._joint.sensitivity(clip_norm, weight) * self.noise_multiplier * self._joint.stretch
        return (joint / b) ** 2, ((joint * (pivot / weight)) ** 2 if weight else 0.0) + np.zeros(b.shape)

    @property
    def _joint(self) -> Joint:
        """Return the `Joint` of this mechanism, which computes how much one person can change all that is released."""
        several = isinstance(self.per_person, int)
        counted = self.neighbors == "add_remove" or several or self.missing == "drop_row"
        return Joint(self.neighbors, counted, self.count_clipped, self._equal**2)

    def error(
        self,
        *,
        mean: Named | None = None,
        sigma: Named | None = None,
        covariance: ArrayLike | None = None,
        target: Target = "sample",
    ) -> ErrorForecast:
        """Compute the expected squared error of a release for normal data, before there are data.

        The error is that of the sum or, if `of` is "mean", that of `n` times the released mean.

        Parameters
        ----------
        mean : float or array_like or mapping, shape (d,), optional
            True mean of a row, in the units of the data.
        sigma : array_like or mapping, shape (d,), optional
            True standard deviations of the columns, in the units of the data, from 1e-100 to 1e100;
            with a `basis`, those along its vectors.
        covariance : array_like, shape (d, d), optional
            True covariance matrix of the columns, instead of `sigma`, in squared units of the data,
            with and without a `basis`. It is symmetric, with variances from 1e-200 to 1e200, and has
            no negative eigenvalue, up to rounding. A table with names is put into the order of
            `columns`. If the matrix is computed from private rows, the forecast is private, too.
        target : {"sample", "population"}, default "sample"
            Quantity that the release estimates: the sum of the rows, or n times the true mean.

        Returns
        -------
        egm.forecast.ErrorForecast
            Expected squared l2 error, divided into parts by their causes, in squared units of the
            data. The expectations are exact for normal rows, with independent coordinates unless
            `covariance` is given, but for the mean with a noisy number of rows (see Notes).

        Raises
        ------
        ValueError
            If a parameter is outside its range or does not have the stated shape, if its names are
            not those of `columns`, or if `sigma` and `covariance` are both given.
        TypeError
            If `mean`, `sigma` or `covariance` is not made of real numbers.

        Notes
        -----
        If none of `mean`, `sigma` and `covariance` is given, the guesses in the fields `center` and
        `sigma` are assumed to be as wrong as declared: the mean differs from `center` by
        `center_std` in each coordinate, and the true standard deviations are the field `sigma`,
        either multiplied or divided by `sigma_factor`, each with probability 1/2. If only `mean` is
        given, the field `sigma` is assumed to be right; if only `sigma` or `covariance` is given,
        `center` is assumed to be the mean. So ``error(mean=center)`` is the forecast for right
        guesses.

        The rows are assumed to be independent. If `per_person` is a number k and the rows of a person
        are alike, the part `clipping` is up to k times as large. The intervals of a release allow for
        this.

        If the center is known to be the mean, the target "population" makes little sense: n times
        the center is then the best estimate, and no data are needed for this estimate. Under
        "add_remove" the field `n` is taken for the true number of rows.

        If `of` is "mean" and the number of rows is released with noise, the mean is a ratio of two
        noisy numbers, and the forecast is computed to first order in the noise of the number of rows.
        If this noise has the standard deviation r times n, the squared error is larger by about
        3 r**2 to 9 r**2 times the forecast for r up to 0.1, and by more for a larger r. In
        simulations with two columns, epsilon = 1 and delta = 1e-6, it was larger by 1 percent for 200
        rows, 5 percent for 100, 27 percent for 50 and 80 percent for 40. If the center is so far off
        that `center` is a large part of the forecast, the squared error is smaller instead, by up to
        about 2 r times the forecast. For on average this noise moves the mean away from the center,
        and clipping moves it towards the center.

        Examples
        --------
        >>> from egm import GaussianDataMechanism
        >>> mechanism = GaussianDataMechanism([18, 1200, 3], 10_000, epsilon=1, delta=1e-6, center=[40, 2500, 4])
        >>> forecast = mechanism.error()
        >>> round(forecast.noise ** 0.5), round(forecast.clipping ** 0.5), round(forecast.center ** 0.5)
        (39814, 2611, 10235)

        The forecast for right guesses:

        >>> round(mechanism.error(mean=[40, 2500, 4]).total ** 0.5)
        39816
        """
        if target not in ("sample", "population"):
            raise ValueError(f'target must be "sample" or "population", got {target!r}')
        if sigma is not None and covariance is not None:
            raise ValueError("sigma and covariance must not both be given")
        if mean is None and sigma is None and covariance is None:
            offset, factors = self._doubts
        else:
            there = self.center if mean is None else _tables.ordered(self.columns, mean=mean)
            off = _location(there, self.sigma, "mean") - self.center + np.zeros(self.b.shape)
            offset, factors = self._along(off), (1.0,)
        if covariance is not None:
            true = _covariance(_tables.ordered_square(self.columns, covariance=covariance), self.sigma)
            true = true if self.basis is None else rotated(self.basis, true)
            parts = forecast.rotated_clipping(true, self.n, self.b, self.clip_norm, offset, target)
            return ErrorForecast(float(np.sum(self._noise_of(self.of, offset))), *parts)
        given = _tables.ordered(self.columns, sigma=sigma)
        true = self.sigma if sigma is None else between(*_RANGE, sigma=vector(sigma=given))
        if true.shape != self.sigma.shape:
            raise ValueError(f"sigma must have the {self.sigma.size} entries of the mechanism's, got {true.size}")
        parts = forecast.clipping(true, self.n, self.b, self.clip_norm, offset, target, factors=factors)
        return ErrorForecast(float(np.sum(self._noise_of(self.of, offset))), *parts)

    def _noise_of(self, of: Literal["sum", "mean"], offset: Array) -> Array:
        """Return the variance of the noise, by column, in the sum or in n times the mean, as the argument `of` says.

        `offset` is the distance of the true mean from the center along each vector of the basis, or in each column.
        """
        if of == "sum" or not self.count_weight:
            return self.noise_std**2
        along, of_count = self._noise_parts(self.b, self.clip_norm, offset)
        return self._of_columns(along + of_count)

    def error_by_column(self) -> Array:
        """Compute the expected squared error of each coordinate, as `error` does, if guesses are as wrong as declared.

        Returns
        -------
        ndarray, shape (d,)
            Expected squared errors by noise and clipping together, in squared units of the data, if
            the mean differs from `center` by `center_std` and the standard deviations are `sigma`,
            either multiplied or divided by `sigma_factor`, each with probability 1/2. The sum of
            these errors is ``error().total``. With a `basis`, the signs of the distances
            `center_std` are taken to be random.

        Examples
        --------
        >>> from egm import GaussianDataMechanism
        >>> mechanism = GaussianDataMechanism([18, 1200, 3], 10_000, epsilon=1, delta=1e-6, center=[40, 2500, 4])
        >>> print((mechanism.error_by_column() ** 0.5).round())
        [ 4834. 40860.  1974.]
        """
        return self._errors_by_column(self.of)

    def _errors_by_column(self, of: Literal["sum", "mean"]) -> Array:
        """Return the expected squared errors, by column, of the sum or of n times the mean, as the argument `of` says.

        As in `error_by_column`, the guesses of center and standard deviations are assumed to be as wrong as declared.
        """
        offset, factors = self._doubts
        lost = forecast.loss_of_a_row(self.sigma, self.b, self.clip_norm, offset, factors=factors)
        return self._noise_of(of, offset) + self._of_columns(self.n * lost[0] + self.n**2 * lost[1])

    def confidence_radius(self, level: float) -> float:
        r"""Compute a bound of the distance from the estimate to the exact sum, which holds with a given probability.

        Parameters
        ----------
        level : float
            Probability in (0, 1) with which the bound holds, for example 0.95.

        Returns
        -------
        float
            Bound of the distance in the scaled space (after coordinate j, along the basis if there
            is one, is multiplied by ``b[j]``), in the units of `clip_norm`. It is nearly exact if
            few rows are clipped, and larger than necessary if many rows are clipped.

        Raises
        ------
        ValueError
            If `level` is not in (0, 1), if `neighbors` is not "replace_one", or if the number of
            rows is released with noise.
        TypeError
            If `level` is not a real number.

        Notes
        -----
        For normal rows the bound, or radius, :math:`r` satisfies

        .. math::

            \| b \, (\hat f - f) \| \le r,

        with at least the probability `level`, where :math:`\hat f` is the estimate and :math:`f`
        the sum of the rows. This holds if the mean differs from `center` by `center_std` and
        `sigma` is too small, or too large, by the factor `sigma_factor`.

        In the scaled space, the norm of Gaussian noise has a chi distribution with d degrees of
        freedom. The norm of l2 noise has a gamma distribution with the shape `noise_size`. The mean
        of the part of the sum that clipping removes is added to the radius, and Markov's inequality
        bounds the distance of this part from its mean. The probability of failure is divided
        between noise and clipping so that the radius is least.

        Examples
        --------
        The radius bounds the error of the whole sum in the scaled space. So the error of one column
        is at most the radius divided by the entry of `b` for this column. The first number is the
        radius, and the second one is the bound for the column of incomes.

        >>> from egm import GaussianDataMechanism
        >>> mechanism = GaussianDataMechanism([18, 1200, 3], 10_000, epsilon=1, delta=1e-6, center=[40, 2500, 4])
        >>> radius = mechanism.confidence_radius(0.95)
        >>> round(radius, 1), round(float(radius / mechanism.b[1]))
        (130.9, 158420)
        """
        if self.neighbors != "replace_one":
            raise ValueError(f'neighbors must be "replace_one" for a confidence radius, got {self.neighbors!r}')
        if self._joint.counted:
            raise ValueError("a confidence radius needs a public number of rows: see the method interval of a release")
        fail = 1 - scalar(probability, level=level)
        std, (offset, factors) = 2 * self.clip_norm * self.noise_multiplier * self._joint.stretch, self._doubts
        shares = np.geomspace(1e-9, 1 - 1e-9, 400)
        if self.noise_law == "gaussian":
            of_noise = std * np.sqrt(chdtri(self.sigma.size, fail * (1 - shares)))
        else:
            of_noise = std / np.sqrt(self.noise_size + 1) * gammainccinv(self.noise_size, fail * (1 - shares))
        radii = []
        for factor in factors:
            lost = forecast.loss_of_a_row(factor * self.sigma, self.b, self.clip_norm, offset)
            spread, bias = norms.norms(self.b * np.sqrt(lost))  # whose squares need not be doubles
            of_clipping = spread * np.sqrt(self.n / (fail * shares))
            radii.append(np.min(of_noise + of_clipping) + self.n * bias)
        return float(max(radii))

    def _parts(self, centered_std: Array, n: float, count_std: float) -> Parts:
        """Return how much noise and clipping may change the sum of `n` rows, for each column, as an object `Parts`.

        The guesses `center` and `sigma` are assumed to be as wrong as declared. `centered_std`, shape (d,), and
        `count_std` are the standard deviations of the noise in the sum of the centered rows and in the number of rows.
        To be safe, the variance of what clipping removes is computed for `n` + `count_std` rows.
        """
        (variance, squared_bias), (_, factors) = self._lost, self._doubts
        bias = np.sqrt(squared_bias)
        spread, taken = factors[0] * self.sigma * math.sqrt(self._equal), (n + count_std) * self._equal * variance
        if self.basis is not None:  # the signs along the basis are unknown
            spread, bias = np.sqrt(self._of_columns(spread**2)), np.full(spread.shape, np.linalg.norm(bias))
        std, center = np.sqrt(centered_std**2 + self._of_columns(taken)), np.broadcast_to(self.center, self.b.shape)
        return Parts(center, centered_std, std, n * bias, spread, count_std, bias_of_row=bias)

    @property
    def _equal(self) -> int:
        """Return how many rows may be equal because they are of one person: `per_person` if it is a number, else 1."""
        return self.per_person if isinstance(self.per_person, int) else 1

    @property
    def _centered_std(self) -> Array:
        """Return the standard deviation of the noise in each column of the sum of the rows minus the center."""
        if not self.count_weight:
            return self.noise_std
        return np.sqrt(self._of_columns(self._noise_parts(self.b, self.clip_norm, 0.0)[0]))

    @cached_property
    def _lost(self) -> tuple[Array, Array]:
        """Return the variance, and the square of the mean, of what clipping removes from each coordinate of a row.

        The mean is assumed to differ from `center` by `center_std`, and the true standard deviations are taken to be
        `sigma` times or divided by `sigma_factor`, whichever gives the larger value. Clipping removes less from a
        coordinate with a larger spread if the center of another coordinate is off by more than the radius of clipping.
        Both results have the shape (d,).
        """
        offset, factors = self._doubts
        lost = [forecast.loss_of_a_row(factor * self.sigma, self.b, self.clip_norm, offset) for factor in factors]
        variance, squared_bias = np.max(lost, axis=0)
        return variance, squared_bias

    @cached_property
    def _share_clipped(self) -> float:
        """Return the probability that a row is clipped, for guesses that are as wrong as declared.

        Of the standard deviations `sigma` times and divided by `sigma_factor`, those are taken that clip more rows.
        """
        (offset, factors), shares = self._doubts, []
        for factor in factors:
            wide = np.maximum(factor * self.sigma, offset / CERTAIN)  # as in `egm._lost`
            widest = np.max(spread := self.b * wide)
            seen = (weights := (spread / widest) ** 2) > 0
            shares.append(gx2.sf((self.clip_norm / widest) ** 2, weights[seen], nc=(offset / wide)[seen] ** 2))
        return float(max(shares))

    @property
    def _count_std(self) -> float:
        """Return the standard deviation of the noise in the number of rows; 0 if this number is not released."""
        return self._joint_std / self.count_weight if self.count_weight else 0.0

    @property
    def _joint_std(self) -> float:
        """Return the standard deviation of each coordinate of the noise, before it is divided by `b` or by a weight."""
        sensitivity = float(self._joint.sensitivity(self.clip_norm, self.count_weight))
        return sensitivity * self._joint.stretch * self.noise_multiplier

    def check(self, X: RowSource, *, person: object = None) -> None:
        """Raise the errors that `release` would raise for the type, the shape and the names of `X`.

        Parameters
        ----------
        X : array_like, table, iterator of array_like or function, shape (n, d)
            Rows whose sum would be released, as for `release`. No row is read, nothing is taken
            from an iterator, and no function is called.
        person : hashable or array_like, optional
            Column of `X`, or array, that says to whom a row belongs, as for `release`.

        Raises
        ------
        ValueError
            If `X` does not have d columns; if `X` does not have `n` rows, although this number is
            public and each row is a person; if the names of `X` are not those of `columns`; if
            `person` is one of `columns`; if `person` is given and the mechanism has no
            `per_person`, or the other way round; or if the mechanism allows missing values and
            `X` is a file that was opened without them.
        TypeError
            If the type of `X` shows that it does not hold real numbers.

        Notes
        -----
        `egm.budget` calls this method before it records the cost of a release, so that an error in
        the argument uses no budget.

        Examples
        --------
        >>> import numpy as np
        >>> from egm import GaussianDataMechanism
        >>> mechanism = GaussianDataMechanism([18, 1200, 3], 10_000, epsilon=1, delta=1e-6)
        >>> mechanism.check(np.zeros((9_999, 3)))
        Traceback (most recent call last):
            ...
        ValueError: X must have the declared n = 10000 rows, got 9999
        """
        people.require_person(person, self.per_person)
        self._check_rows(X, self._joint.counted or self.per_person is not None, person=person)

    def _check_rows(self, X: Any, counted: bool, **labels: Any) -> None:
        """Raise the errors of `check` that concern the type, the shape and the names of the rows `X`.

        If `counted` is false, there must be `n` rows. Otherwise any number of rows is allowed, because the release
        itself counts the rows or the persons. `labels` has the keyword argument `person` of `release` and, if there are
        groups, also `by`, the group of each row.
        """
        _tables.require_gaps(X, self.missing)
        table, shape = people.layout(X, self.columns, **labels)
        if len(shape) != 2 or not (shape[1] == self.sigma.size or np.isnan(shape[1])):
            given = shown_shape("X", shape) if counted or np.isnan(sum(shape)) else shape
            column = "; np.reshape(X, (-1, 1)) is a column" if len(shape) == self.sigma.size == 1 else ""
            raise ValueError(f"X must have shape (rows, {self.sigma.size}), got {given}{column}")
        if self.columns is None:  # otherwise the names were compared before
            _tables.check(table, None)
        if not counted and shape[0] != self.n and not np.isnan(shape[0]):
            raise ValueError(f"X must have the declared n = {self.n} rows, got {shape[0]}")

    def release(self, X: RowSource, *, person: object = None, rng: np.random.Generator | None = None) -> DataRelease:
        """Release a private estimate of the sum of the rows.

        Parameters
        ----------
        X : array_like, table, iterator of array_like or function, shape (n, d)
            Real numbers: an array; a table of pandas, polars, pyarrow, dask or `egm.files.rows`; an
            iterator over blocks of rows, each of shape (rows, d); or a function without arguments
            that returns such an iterator. `X` is read once and never changed.
        person : hashable or array_like, shape (n,), optional
            Person to whom each row belongs: the name of a column of `X`, which is not summed, or an
            array with one entry for each row: a number, a date, or a text. It is given if and only
            if the mechanism has `per_person`. Blocks of rows that are read one after the other must
            be sorted by person.
        rng : numpy.random.Generator, optional
            Generator that makes the release a simulation. By default the noise is secure: it is
            discrete, and drawn from random bits of the operating system.

        Returns
        -------
        DataRelease
            The estimate has shape (d,), in the units of the data. The release has a noisy number of
            rows, `count`, if this number is private (under "add_remove", if `missing` is "drop_row"
            or if `per_person` is a number), and a noisy number of clipped rows, `clipped`, under
            `count_clipped`.

        Raises
        ------
        ValueError
            If `X` does not have d columns; if the number of rows (of persons, if a person may have
            several rows) is public and is not `n`; if the names of `X` are not those of `columns`;
            if a value is not finite; or if `check` or `check_noise` raises a ValueError.
        TypeError
            If `X` does not hold real numbers, or if `rng` is not a NumPy Generator.

        Warns
        -----
        SimulationWarning
            If `rng` is given for the first time in a process.

        Notes
        -----
        Columns with names are taken in the order of `columns`, whatever their order in each block.
        In a table, False counts as 0 and True as 1.

        The rows are summed as integers (see `egm._rows.lattice`). So the same rows give the same
        sum in any order, in any blocks, and on any number of machines with one kind of processor.

        Examples
        --------
        >>> import numpy as np
        >>> from egm import GaussianDataMechanism
        >>> mechanism = GaussianDataMechanism([18, 1200, 3], 10_000, epsilon=1, delta=1e-6, center=[40, 2500, 4])
        >>> X = np.random.default_rng(1).normal([41, 2450, 4.2], [17, 1150, 3.1], size=(10_000, 3))
        >>> release = mechanism.release(X)  # secure
        >>> release.simulated
        False

        Here the number of rows is private, and a noisy one is released with the sum:

        >>> mechanism = GaussianDataMechanism(
        ...     [18, 1200, 3], 10_000, epsilon=1, delta=1e-6, center=[40, 2500, 4], neighbors="add_remove"
        ... )
        >>> release = mechanism.release(X, rng=np.random.default_rng(2))
        >>> round(release.count)
        9982
        """
        self.check(X, person=person)
        if rng is None:
            self.check_noise(X)
        else:
            generator(rng)
        X = _tables.opened(X)
        grid = self._grid() if rng is None else self._lattice(1.0)
        center = np.broadcast_to(self.center, self.b.shape)
        rule = grid, center, self.b, self.count_clipped, self.basis, self.missing
        if person is None:
            rows_of_X = _tables.arranged(X, self.columns, gaps=self.missing != "error")
            total, rows = sums.clipped_sum(rows_of_X, *rule)
        else:
            of_people = partial(_of_people, how=self.per_person, rule=rule)
            source = people.Source(self.columns, self.sigma.size, person, gaps=self.missing != "error")
            found = source.results(X, of_people)
            total, rows = sum(part for part, _ in found), sum(persons for _, persons in found)
        if not self._joint.counted and rows != self.n:
            unit = "rows" if self.per_person is None else "persons"
            raise ValueError(f"X must have the declared n = {self.n} {unit}, got {rows}")
        total = grid.rotated(total)
        if rng is None:
            return self._secure_release(grid, total, rows)
        if self._joint.counted or self.count_clipped or self.basis is not None:
            return self._simulated_release(grid, total, rows, rng)
        estimate = total.astype(float) * grid.unit / self.b + self.n * self.center
        noise = simulated_noise(self.noise_law, self.noise_std, rng)
        return self._released(estimate + noise, simulated=True)

    def _secure_release(self, grid: lattice.Lattice, total: Whole, rows: int) -> DataRelease:
        """Return the secure release: add noise to the sum of the rows, and to the numbers of rows that are released.

        `total` is the sum of the clipped rows, rounded to integers by the `Lattice` `grid`; under `count_clipped` its
        last entry is the number of clipped rows. `rows` is the number of rows. If this number is private, it is
        released with noise; if it is public, it gets no noise.
        """
        weight, clipped_weight, std = self._on_lattice(grid)
        drawn = secure_noise(self.noise_law, std, self.noise_size)
        estimate, counts = self._with_noise(total, rows, weight, clipped_weight, drawn, grid.unit)
        return self._released(estimate, simulated=False, larger=std * grid.unit / self._joint_std, **counts)

    def check_noise(self, X: object) -> None:
        """Raise an error if a secure release would be refused because its noise has to be an integer.

        Parameters
        ----------
        X : object
            Rows whose sum would be released. They are not read: the error depends on the mechanism alone.

        Raises
        ------
        ValueError
            If integer noise would cost half of `delta` or more, which is possible for a tiny
            `delta` or a large `epsilon` such as 50; or if the standard deviation of the noise is more
            than 2**36 times the clip norm, or 2**32 times for l2 noise.

        Examples
        --------
        >>> import numpy as np
        >>> from egm import GaussianDataMechanism
        >>> mechanism = GaussianDataMechanism([18, 1200, 3], 10_000, epsilon=1, delta=1e-6)
        >>> mechanism.check_noise(np.zeros((10_000, 3)))
        """
        self._on_lattice(self._grid())

    def _grid(self) -> lattice.Lattice:
        """Return the `Lattice` that says how a secure release rounds clipped rows to integers.

        The unit of the `Lattice`, the length that the integer 1 stands for, is about 2**-40 clip norms. The unit is
        larger if the noise, divided by such a small unit, would not fit into 64-bit integers.
        """
        sensitivity = float(self._joint.sensitivity(1.0, self.count_weight / self.clip_norm))
        noise = sensitivity * self._joint.stretch * self.noise_multiplier  # in clip norms
        return self._lattice(room(self.noise_law, noise))

    def _lattice(self, noise: float) -> lattice.Lattice:
        """Return a `Lattice`, which says how clipped rows are rounded to integers.

        The unit of the `Lattice`, the length that the integer 1 stands for, is so large that normal noise with the
        standard deviation `noise` times the clip norm fits into 64-bit integers.
        """
        return lattice.Lattice(self.clip_norm, self.sigma.size, noise, self._unrotated)

    @cached_property
    def _unrotated(self) -> Unrotated | None:
        """Return an object that adds up clipped rows first and then rotates only the sum along the basis, to save time.

        The result is None if there is no basis, or if each row must be rotated before it is added, for one of the
        reasons that `egm._rows.unrotated.unrotated` lists.
        """
        return unrotated(self.basis, self.b, self.clip_norm)

    def _on_lattice(self, grid: lattice.Lattice) -> tuple[int, int, float]:
        """Return two weights and the standard deviation of the noise for a secure release, in multiples of a unit.

        The unit is ``grid.unit``, the length for which the integer 1 stands. A secure release multiplies the number of
        rows by the first weight, and the number of clipped rows by the second. A weight is 0 if its number of rows is
        not released.
        """
        weight = round(self.count_weight / grid.unit)
        clipped_weight, sensitivity = self._joint.on_lattice(grid.radius, weight, grid.rounded)
        return weight, clipped_weight, std_on_lattice(self, sensitivity, self.noise_size)

    def _simulated_release(
        self, grid: lattice.Lattice, total: Whole, rows: int, rng: np.random.Generator
    ) -> DataRelease:
        """Return the simulated release: add noise from the Generator `rng` to the sum and to the numbers of rows.

        `total` is the sum of the clipped rows, rounded to integers by the `Lattice` `grid`; under `count_clipped` its
        last entry is the number of clipped rows. `rows` is the number of rows. If this number is private, it is
        released with noise; if it is public, it gets no noise.
        """
        sensitivity = float(self._joint.sensitivity(self.clip_norm, self.count_weight))
        clipped_weight = CLIPPED_SHARE * sensitivity if self.count_clipped else 0.0
        drawn = simulated_noise(self.noise_law, np.full(self.noise_size, self._joint_std), rng)
        total = np.append(total[: self.sigma.size] * grid.unit, total[self.sigma.size :])
        estimate, counts = self._with_noise(total, rows, self.count_weight, clipped_weight, drawn, 1.0)
        return self._released(estimate, simulated=True, **counts)

    def _released(self, estimate: Array, *, simulated: bool, larger: float = 1.0, **counts: float) -> DataRelease:
        """Make the `DataRelease` with the noisy sum `estimate`; `simulated` says whether its noise is a simulation.

        The standard deviation of the noise that was drawn is `larger` times that of continuous noise. Two more keyword
        arguments are possible: `count`, the noisy number of rows, and `clipped`, that of clipped rows.
        """
        return DataRelease(
            estimate,
            larger * self.noise_std,
            simulated,
            noise_law=self.noise_law,
            mechanism=self,
            centered_std=larger * self._centered_std,
            count_std=larger * self._count_std,
            **counts,
        )

    def _with_noise(
        self, total: Whole, rows: int, weight: float, clipped_weight: float, drawn: Any, unit: float
    ) -> tuple[Array, dict[str, float]]:
        """Add the noise `drawn` to the sum and the numbers of rows; return an estimate of the sum and the noisy counts.

        `total` has the sum of the centered, scaled and clipped rows and, under `count_clipped`, the number of clipped
        rows. The number of rows, `rows`, is multiplied by `weight`, and the number of clipped rows by `clipped_weight`.
        `drawn` has the noise for the sum, and then for each product whose weight is not 0. The sum, the products and
        the noise are in multiples of `unit`.

        The estimate is in the units of the data: the noisy sum divided by the multipliers `b`, plus the center times
        the noisy number of rows, or times `n` if that number is public. The noisy counts are in a dictionary with the
        keys "count" and "clipped", each only if its weight is not 0.
        """
        d = self.sigma.size
        joint = [*total[:d], *([weight * rows] if weight else []), *(clipped_weight * count for count in total[d:])]
        noisy = [t + z for t, z in zip(joint, drawn, strict=True)]
        counts = {}
        if clipped_weight:
            counts["clipped"] = float(noisy.pop() / clipped_weight)
        if weight:
            counts["count"] = float(noisy.pop() / weight)
        estimate = np.array(noisy, dtype=float) * unit / self.b
        estimate = estimate if self.basis is None else self.basis.inverse(estimate)
        return estimate + counts.get("count", self.n) * self.center, counts

    def excess_clipped(self, release: Release) -> float:
        """Compute how many more rows were clipped than the declared guesses explain, in standard deviations.

        Parameters
        ----------
        release : Release
            Release of this mechanism, made with ``count_clipped=True``.

        Returns
        -------
        float
            Noisy number of clipped rows minus the expectation of this number, divided by the
            standard deviation of the noisy number. This standard deviation comes from the noise
            (`clipped_std`) and from chance in the true number.

        Raises
        ------
        ValueError
            If the release has no noisy number of clipped rows.

        Notes
        -----
        The expectation is n times the probability that a row is clipped if the mean differs from
        `center` by `center_std` and `sigma` is too small or too large by the factor `sigma_factor`,
        whichever clips more. Under "add_remove" the noisy number of rows is taken for n. If a person
        may have k rows, these are taken to be equal. With ``center_std=0`` and ``sigma_factor=1`` the
        expectation is n times `p`.

        By chance the excess is above 3 in at most one release of 700 for an epsilon up to 1, in one of
        450 up to 10, and more often for l2 noise (in one of 170 if the noise has two coordinates).
        If the excess is above 3, neither `error` nor `confidence_radius` holds, and `noise_std`
        says little about how far the sum is off: the guesses are worse than declared, or the rows
        are not nearly normal.

        The excess does not put privacy in doubt. It costs no privacy either, because it is computed
        from published numbers.

        Examples
        --------
        The incomes of this table are three times as large as the guesses:

        >>> import numpy as np
        >>> from egm import GaussianDataMechanism
        >>> mechanism = GaussianDataMechanism(
        ...     [18, 1200, 3], 10_000, epsilon=1, delta=1e-6, center=[40, 2500, 4], count_clipped=True
        ... )
        >>> rng = np.random.default_rng(1)
        >>> X = rng.normal([40, 7500, 4], [18, 3600, 3], size=(10_000, 3))
        >>> mechanism.excess_clipped(mechanism.release(X, rng=rng)) > 3
        True
        """
        if release.clipped is None or self.clipped_std is None:
            raise ValueError("release must have a noisy number of clipped rows: ask for it by count_clipped=True")
        rows, share = self.n if release.count is None else max(release.count, 0.0), self._share_clipped
        variance = self.clipped_std**2 + rows * self._equal * share * (1 - share)
        if self.count_weight:  # the number of rows is noisy, too
            variance += (share * self._count_std) ** 2
        return (release.clipped - rows * share) / math.sqrt(variance)

    def clip(self, rows: ArrayLike) -> Array:
        """Return `rows`, already centered and scaled, each shortened to the clip norm if it is longer.

        Parameters
        ----------
        rows : array_like, shape (rows, d)
            Rows minus the center, along the basis if there is one, multiplied by `b`. They are not
            changed.

        Returns
        -------
        ndarray, shape (rows, d)
            New array of the clipped rows.

        Raises
        ------
        ValueError
            If `rows` does not have d columns, or if an entry is not finite.
        TypeError
            If `rows` does not hold real numbers.

        Examples
        --------
        >>> from egm import GaussianDataMechanism
        >>> mechanism = GaussianDataMechanism([18, 1200, 3], 10_000, epsilon=1, delta=1e-6)
        >>> round(mechanism.clip_norm, 2)
        3.86
        >>> print(mechanism.clip([[1, 2, 2], [10, 20, 20]]).round(2))
        [[1.   2.   2.  ]
         [1.29 2.57 2.57]]
        """
        rows = matrix(self.sigma.size, rows=rows)
        return norms.clip(rows, self.clip_norm)


def _of_people(source: Iterator[people.Block], how: PerPerson, rule: tuple[Any, ...]) -> tuple[Whole, int]:
    """Replace the rows of each person by their sum or mean, or keep the first k of them; then clip and sum the results.

    The blocks of `source` are sorted by person, and `how` is the argument `per_person` of the mechanism: "sum", "mean"
    or k. Return the sum of the clipped rows, and how many rows were summed. The function `egm._rows.sums.clipped_sum`
    computes both, and the tuple `rule` has its arguments after the first one.
    """
    kept = people.gathered(source, how)
    return sums.clipped_sum((block.values for block in kept), *rule)


def _scaling(choice: str | Array, sigma: Array, clip_probability: float) -> Array:
    """Return the vector b by which rows are multiplied before they are clipped, for `choice`.

    `choice` is the argument `scaling` of a mechanism. If it is a name, such as "optimal", b is computed for the
    standard deviations `sigma` and the clip probability. If it is a vector, it is returned.
    """
    if not isinstance(choice, str):
        return choice
    if choice == "optimal":
        return scaling.optimal(sigma, clip_probability)
    if choice == "expected_norm":
        return scaling.expected_norm(sigma)
    if choice == "none":
        return np.ones_like(sigma)
    raise ValueError(f'scaling must be "optimal", "expected_norm", "none" or an array, got {choice!r}')


def _given_scaling(b: ArrayLike, sigma: Array) -> Array:
    """Check the vector `b`, by which rows are multiplied before they are clipped, and return it as an array.

    The vector must have one number for each entry of `sigma`.
    """
    b = between(*_RANGE, scaling=vector(scaling=b))
    if b.shape != sigma.shape:
        raise ValueError(f"scaling must have the {sigma.size} entries of sigma, got {b.size}")
    return b


def _location(location: ArrayLike, sigma: Array, name: str) -> Array:
    """Check `location`, a center or a mean, and return it as an array.

    The argument has one number, or one for each entry of `sigma`. The error message calls it by `name`.
    """
    location = between(-_RANGE[1], _RANGE[1], **{name: location})
    if location.shape not in ((), sigma.shape):
        given = f"got shape {location.shape}"
        raise ValueError(f"{name} must be a number or have the {sigma.size} entries of sigma, {given}")
    return location


def _covariance(covariance: ArrayLike, sigma: Array) -> Array:
    """Check that `covariance` is a covariance matrix with a row for each entry of `sigma`; return a symmetric array."""
    if np.shape(covariance) != 2 * sigma.shape:
        raise ValueError(f"covariance must have shape ({sigma.size}, {sigma.size}), got {np.shape(covariance)}")
    return covariance_matrix(covariance)
