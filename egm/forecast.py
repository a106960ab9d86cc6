r"""Forecast the expected squared error of a clipped and noisy sum, before any data is touched.

The n rows :math:`x_i = \mu + \sigma Z_i` are normal with independent coordinates. A mechanism
centers and scales them: with the multipliers b, one for each coordinate, they become
:math:`y_i = b \, (x_i - \mathrm{center})`. A :math:`y_i` that is longer than the clip norm C is
shortened to C, and so loses the share :math:`L_i = \max(0, 1 - C / \|y_i\|)` of its length.
Therefore the error of the release is :math:`-\sum_i L_i (x_i - \mathrm{center})` plus the noise.

The moments of ``egm.gx2.clip_moments`` for :math:`Q = \|y\|^2` give the exact mean and variance of
:math:`L \, (x_j - \mathrm{center}_j)`, for one row x with its share L and each coordinate j. So the
forecast is exact, too:

.. math::

    E\Bigl\|\text{release} - \sum_i x_i\Bigr\|^2 = \sum_j \text{noise\_std}_j^2
        + n \sum_j \mathrm{Var}[L \, (x_j - \mathrm{center}_j)]
        + n^2 \sum_j E[L \, (x_j - \mathrm{center}_j)]^2.

If :math:`\mu = \mathrm{center}`, the last sum is zero. If the error is measured against
:math:`n \mu` instead of the sum of the rows, the variance is that of
:math:`(1 - L)(x_j - \mathrm{center}_j)`.

A variance is computed as a mean square minus a squared mean. So it loses digits if :math:`\mu` is
far from the center, and all of them if the distance is about 1e8 standard deviations and most rows
are clipped. The total error keeps its digits, because the last sum is then nearly all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.optimize import minimize_scalar

from egm import gx2
from egm._basis import covariance_matrix
from egm._gx2.clipping import lost_quadratic
from egm._lost import CERTAIN, lost_of_a_row
from egm._types import Array, ArrayLike, Floats, Target
from egm._validate import between, positive, scalar, vector

__all__ = ["ErrorForecast", "best_clip_norm", "clipping", "correlated_clipping", "loss_of_a_row"]

MOST_ROWS = 2**53  # every whole number up to this one is a double
_LEAST_WEIGHT = 1e-20  # coordinates of a smaller weight, over the largest weight, do not affect the norm of a row


@dataclass(frozen=True)
class ErrorForecast:
    """Expected squared l2 error of a released sum, divided into parts by their causes.

    Parameters
    ----------
    noise : float
        The error due to the noise, which is the total variance of the noise, in squared units of
        the data. For a mean with a noisy number of rows, it is computed to first order in the noise
        of this number (see the notes of `egm.mechanisms.GaussianDataMechanism.error`).
    clipping : float
        The error due to the variation, from row to row, of the parts that clipping removes. For a
        fixed clip norm this error is proportional to n.
    center : float
        The error due to a center that is not the mean. Then the parts that clipping removes have a
        mean other than zero, and add up. For a fixed clip norm this error is proportional to the
        square of n.

    Examples
    --------
    >>> from egm import GaussianDataMechanism
    >>> mechanism = GaussianDataMechanism([18, 1200, 3], n=10_000, epsilon=1, delta=1e-6)
    >>> expected = mechanism.error()
    >>> f"{expected.noise:.3e}"
    '1.585e+09'
    >>> round(expected.noise / expected.total, 3)
    0.934
    """

    noise: float
    clipping: float
    center: float

    @property
    def total(self) -> float:
        """Return the expected squared l2 error in total, which is the sum of the three parts."""
        return self.noise + self.clipping + self.center


def clipping(
    sigma: Array,
    n: float,
    scaling: Array,
    clip_norm: float,
    offset: Floats = 0.0,
    target: Target = "sample",
    copies: Floats = 1,
    factors: Sequence[float] = (1.0,),
) -> tuple[float, float]:
    """Compute the two parts of the expected squared error that clipping causes in a sum.

    Parameters
    ----------
    sigma : ndarray, shape (d,)
        Standard deviations of the coordinates, > 0 and at most 1e130, in the units of the data.
    n : float
        Number of rows, from 1 to 2**53. An expected number need not be whole.
    scaling : ndarray, shape (d,)
        Multipliers b of the coordinates, > 0.
    clip_norm : float
        Clipping radius C, > 0, in the units of `scaling` times the data.
    offset : float or ndarray, shape (d,), default 0.0
        Difference ``mu - center`` of mean and center, at most 1e130, in the units of the data.
    target : {"sample", "population"}, default "sample"
        Quantity that the release estimates: "sample" for the sum of the rows, "population" for
        ``n * mu``.
    copies : float or ndarray, shape (d,), default 1
        Number of equal coordinates for which each entry of `sigma` stands.
    factors : sequence of float, default (1.0,)
        Factors by which the true standard deviations may differ from `sigma`. Each result is the
        mean, over these factors, of the results for ``factor * sigma``.

    Returns
    -------
    clipping : float
        The part from the variation of the removed parts: n times the sum over j of the variance of
        a row's error in coordinate j (see `loss_of_a_row`), in squared units of the data.
    center : float
        The part from the mean of the removed parts: :math:`n^2` times the sum over j of the squared
        mean of a row's error in coordinate j, in squared units of the data.

    Raises
    ------
    ValueError
        If an argument is outside its range, or if lengths differ.

    See Also
    --------
    loss_of_a_row : The contribution of one row to each coordinate.

    Examples
    --------
    A center that is off by a tenth of each standard deviation adds a second part to the error.

    >>> import numpy as np
    >>> from egm import forecast, scaling
    >>> sigma, n = np.array([18.0, 1200.0, 3.0]), 10_000  # age, income, visits; rows
    >>> b = scaling.optimal(sigma, clip_probability=1 / n)
    >>> clip_norm = scaling.clip_norm(b, sigma, clip_probability=1 / n)
    >>> variation, bias = forecast.clipping(sigma, n, b, clip_norm, offset=sigma / 10)
    >>> f"{variation:.3e}", f"{bias:.3e}"
    ('1.603e+05', '1.508e+04')
    """
    rows = _rows(n)
    variance, squared_bias = loss_of_a_row(sigma, scaling, clip_norm, offset, target, copies, factors)
    return float(rows * np.sum(variance)), float(rows**2 * np.sum(squared_bias))


def correlated_clipping(
    covariance: Array,
    n: float,
    scaling: Array,
    clip_norm: float,
    offset: Floats = 0.0,
    target: Target = "sample",
) -> tuple[float, float]:
    r"""Compute the two parts of the expected squared error that clipping causes, if the coordinates are correlated.

    Parameters
    ----------
    covariance : ndarray, shape (d, d)
        Covariance matrix of a normal row, symmetric, without negative eigenvalues and with variances
        from 1e-200 to 1e200, in squared units of the data.
    n : float
        Number of rows, from 1 to 2**53. An expected number need not be whole.
    scaling : ndarray, shape (d,)
        Multipliers b of the coordinates, > 0.
    clip_norm : float
        Clipping radius C, > 0, in the units of `scaling` times the data.
    offset : float or ndarray, shape (d,), default 0.0
        Difference ``mu - center`` of mean and center, at most 1e130, in the units of the data.
    target : {"sample", "population"}, default "sample"
        Quantity that the release estimates: "sample" for the sum of the rows, "population" for
        ``n * mu``.

    Returns
    -------
    clipping : float
        The part from the variation of the removed parts, as in `clipping`.
    center : float
        The part from the mean of the removed parts, as in `clipping`.

    Raises
    ------
    ValueError
        If an argument is outside its range, or if lengths differ.

    See Also
    --------
    clipping : The two parts for independent coordinates.

    Notes
    -----
    With a root R of the covariance matrix, :math:`\Sigma = R R^T`, and the diagonal matrix B of the
    multipliers, let the columns of W be the eigenvectors of :math:`R^T B^2 R`. A row minus the center is
    then :math:`R W V`, where V has independent normal entries of variance 1. So the squared norm of
    the scaled row is a generalized chi-square variable whose weights are the eigenvalues. The squared
    length of the part that clipping removes is a quadratic form in V, times :math:`L^2`, where L is the
    removed share of the row's length. Its mean is a contour integral like those in `egm.gx2.clip_moments`.

    Examples
    --------
    Correlated rows are clipped more often than independent rows with the same variances.

    >>> import numpy as np
    >>> from egm import forecast, scaling
    >>> sigma, n = np.array([18.0, 1200.0, 3.0]), 10_000  # age, income, visits; rows
    >>> b = scaling.optimal(sigma, clip_probability=1 / n)
    >>> clip_norm = scaling.clip_norm(b, sigma, clip_probability=1 / n)
    >>> for r in (0.0, 0.5):
    ...     covariance = np.outer(sigma, sigma) * (r + (1 - r) * np.eye(3))
    ...     variation, _ = forecast.correlated_clipping(covariance, n, b, clip_norm)
    ...     print(f"{variation:.3e}")
    1.458e+05
    1.678e+05
    """
    return rotated_clipping(covariance_matrix(covariance), n, scaling, clip_norm, offset, target)


def rotated_clipping(
    covariance: Array, n: float, scaling: Array, clip_norm: float, offset: Floats, target: Target
) -> tuple[float, float]:
    """Compute `correlated_clipping` for a matrix that was checked before it was rotated, and so has rounding errors."""
    rows, spread = _rows(n), np.sqrt(np.diag(covariance))
    _, scaling, clip_norm, offset, _, _ = _checked(spread, scaling, clip_norm, offset, target)
    more = np.maximum(np.abs(offset) / CERTAIN / spread, 1.0)  # as in `lost_of_a_row`
    correlation, spread = covariance / np.outer(spread, spread), spread * more
    _, scaling, clip_norm, *_ = _checked(spread, scaling, clip_norm, offset)
    shares, directions = np.linalg.eigh(correlation / more / more[:, None] + np.diag(1 - (1 / more) ** 2))
    root = spread[:, None] * directions * np.sqrt(np.maximum(shares, 0.0))  # root @ root.T is the covariance matrix
    scaled = scaling[:, None] * root
    weights, basis = np.linalg.eigh(scaled.T @ scaled)
    floor = _LEAST_WEIGHT * weights[-1]
    seen = weights > floor
    weights, axes = np.maximum(weights, floor), root @ basis  # row minus center = rest + axes @ V
    means = np.where(seen, axes.T @ (scaling**2 * offset) / weights, 0.0)
    rest = offset - axes @ means
    if offset.any():  # what is left of the offset lengthens every row, like a coordinate with nearly no variance
        beyond = float(np.sum((scaling * offset) ** 2) - np.sum(weights * means**2))
        weights, means = np.append(weights, max(beyond, floor) / CERTAIN**2), np.append(means, CERTAIN)
        axes = np.column_stack([axes, rest / CERTAIN])
    largest = np.max(weights)
    radius = np.clip(clip_norm, 1e-150, 1e150) ** 2 / largest
    first, lost, lost_square = lost_quadratic(radius, weights / largest, means, axes.T @ axes)
    mean = axes @ (first * means)
    variation = lost_square - mean @ mean
    if target == "population":
        variation += np.trace(covariance) - 2 * (lost - offset @ mean)
    return float(rows * max(variation, 0.0)), float(rows**2 * (mean @ mean))


def loss_of_a_row(
    sigma: Array,
    scaling: Array,
    clip_norm: float,
    offset: Floats = 0.0,
    target: Target = "sample",
    copies: Floats = 1,
    factors: Sequence[float] = (1.0,),
) -> tuple[Array, Array]:
    r"""Compute the variance and the squared mean of the error that clipping causes in each coordinate of one row.

    A row's error is its clipped version minus the row itself or, for the target "population", minus
    the mean :math:`\mu`.

    Parameters
    ----------
    sigma : ndarray, shape (d,)
        Standard deviations of the coordinates, > 0 and at most 1e130, in the units of the data.
    scaling : ndarray, shape (d,)
        Multipliers b of the coordinates, > 0.
    clip_norm : float
        Clipping radius C, > 0, in the units of `scaling` times the data.
    offset : float or ndarray, shape (d,), default 0.0
        Difference ``mu - center`` of mean and center, at most 1e130, in the units of the data.
    target : {"sample", "population"}, default "sample"
        Quantity that the release estimates: "sample" for the sum of the rows, "population" for
        ``n * mu``.
    copies : float or ndarray, shape (d,), default 1
        Number of equal coordinates for which each entry of `sigma` stands.
    factors : sequence of float, default (1.0,)
        Factors by which the true standard deviations may differ from `sigma`. Each result is the
        mean, over these factors, of the results for ``factor * sigma``.

    Returns
    -------
    variance : ndarray, shape (d,)
        Variance of the row's error in each coordinate, summed over the `copies` of the coordinate, in
        squared units of the data.
    squared_bias : ndarray, shape (d,)
        Squared mean of the row's error in each coordinate, summed over the `copies` of the
        coordinate, in squared units of the data.

    Raises
    ------
    ValueError
        If an argument is outside its range, or if lengths differ.

    See Also
    --------
    clipping : The error of the sum of n rows, over all coordinates.

    Examples
    --------
    >>> import numpy as np
    >>> from egm import forecast, scaling
    >>> sigma = np.array([18.0, 1200.0, 3.0])  # age, income, visits
    >>> b = scaling.expected_norm(sigma)
    >>> variance, squared_bias = forecast.loss_of_a_row(sigma, b, clip_norm=2.0)
    >>> (variance / sigma**2).round(3)
    array([0.001, 0.011, 0.001])
    >>> squared_bias
    array([0., 0., 0.])
    """
    return lost_of_a_row(target, *_checked(sigma, scaling, clip_norm, offset, target, copies, factors))


def _rows(n: float) -> float:
    """Check that `n`, a number of rows that need not be whole, is from 1 to 2**53, and return it as a float."""
    return scalar(partial(between, 1.0, MOST_ROWS), n=n)


def _checked(
    sigma: ArrayLike,
    scaling: ArrayLike,
    clip_norm: float,
    offset: ArrayLike,
    target: str = "sample",
    copies: ArrayLike = 1,
    factors: ArrayLike = (1.0,),
) -> tuple[Array, Array, float, Array, Array, Array]:
    """Check the arguments of `clipping`, and return all but `target`.

    `offset` and `copies` are returned as vectors of the length of `sigma`. `scaling` and `clip_norm` are divided by a
    power of two near the largest entry of `sigma` times `scaling`, so that no squares of these products overflow.
    """
    sigma, scaling = between(0.0, 1e130, sigma=vector(sigma=sigma)), vector(scaling=scaling)
    if scaling.shape != sigma.shape:
        raise ValueError(f"scaling must have the {sigma.size} entries of sigma, got {scaling.size}")
    if target not in ("sample", "population"):
        raise ValueError(f'target must be "sample" or "population", got {target!r}')
    offset, copies = between(-1e130, 1e130, offset=offset), positive(copies=copies)  # n**2 times a square is a double
    for name, each in (("offset", offset), ("copies", copies)):
        if each.shape not in ((), sigma.shape):
            raise ValueError(f"{name} must be a number or have the {sigma.size} entries of sigma, got {each.shape}")
    power = np.max(np.frexp(sigma)[1] + np.frexp(scaling)[1])
    clip_norm = float(np.ldexp(scalar(positive, clip_norm=clip_norm), -power))
    return sigma, np.ldexp(scaling, -power), clip_norm, offset + 0 * sigma, copies + 0 * sigma, vector(factors=factors)


def best_clip_norm(
    noise: Callable[[float], float],
    sigma: Array,
    n: float,
    scaling: Array,
    offset: Floats = 0.0,
    copies: Floats = 1,
    tolerance: float = 1e-7,
    factors: Sequence[float] = (1.0,),
) -> tuple[float, float]:
    r"""Find the clip norm for which the expected squared error of a noisy sum of clipped rows is smallest.

    Parameters
    ----------
    noise : callable
        Function of the clip norm C that returns the total variance of the noise. The variance must
        be convex in C and grow at least in proportion to C.
    sigma : ndarray, shape (d,)
        Standard deviations of the coordinates, > 0 and at most 1e130, in the units of the data.
    n : float
        Number of rows, from 1 to 2**53. An expected number need not be whole.
    scaling : ndarray, shape (d,)
        Multipliers b of the coordinates, > 0.
    offset : float or ndarray, shape (d,), default 0.0
        Difference ``mu - center`` of mean and center, at most 1e130, in the units of the data.
    copies : float or ndarray, shape (d,), default 1
        Number of equal coordinates for which each entry of `sigma` stands.
    tolerance : float, default 1e-7
        Relative tolerance of the clip norm.
    factors : sequence of float, default (1.0,)
        Factors by which the true standard deviations may differ from `sigma`. The error is the
        mean, over these factors, of the errors for ``factor * sigma``.

    Returns
    -------
    clip_norm : float
        The clip norm C, in the units of `scaling` times the data.
    total : float
        The expected squared error with this clip norm, in squared units of the data.

    Raises
    ------
    ValueError
        If an argument is outside its range, or if lengths differ.

    Notes
    -----
    The smallest clip norm that is tried is 0.001 times the root mean square norm of a scaled row with
    mean 0, which clips nearly all rows. The largest clip norm that is tried is the norm that a row
    exceeds with probability 0.001/n if the center is the mean, plus the norm of the scaled offset.

    A local search is enough, because the error is a convex function of C for every offset. For a
    row x let :math:`U = x - \mathrm{center}`, and let y be U times `scaling`. Then the expected
    squared error is

    .. math:: \text{noise} + n E\|L U\|^2 + (n^2 - n) \|E[L U]\|^2,

    where :math:`L = \max(0, 1 - C / \|y\|)`, the share of its length that y loses, is convex in C
    and not negative. Hence :math:`L^2` is convex in C. :math:`|E[L U_j]|` is convex, too, because it is
    :math:`|\mathrm{offset}_j|` times the mean of L under another law of x, which does not depend on C
    (see `egm.gx2.clip_moments`).

    Examples
    --------
    >>> import numpy as np
    >>> from egm import calibration, forecast, scaling
    >>> sigma, n = np.array([18.0, 1200.0, 3.0]), 10_000  # age, income, visits; rows
    >>> b = scaling.optimal(sigma, clip_probability=1 / n)
    >>> z = calibration.analytic_noise_multiplier(epsilon=1, delta=1e-6)
    >>> def noise(clip_norm):
    ...     return float(np.sum((2 * clip_norm * z / b) ** 2))
    >>> clip_norm, total = forecast.best_clip_norm(noise, sigma, n, b)
    >>> round(clip_norm, 2), f"{total:.2e}"
    (2.0, '5.82e+08')
    """
    rows, tolerance = _rows(n), scalar(positive, tolerance=tolerance)
    sigma, scaling, unit, *others = _checked(sigma, scaling, 1.0, offset, copies=copies, factors=factors)
    (offset, copies, scales), weights = others, (scaling * sigma) ** 2
    typical = np.sqrt(np.sum(copies * weights)) * np.min(scales)
    seen = weights > 0  # of the others the squares underflow, beside one of at least 1/16
    largest = np.sqrt(gx2.isf(1e-3 / rows, weights[seen], copies[seen])) * np.max(scales)
    largest += np.hypot.reduce(np.sqrt(copies) * scaling * offset, initial=0.0)

    def total(log_norm: float) -> float:
        norm = np.exp(log_norm)
        variance, squared_bias = lost_of_a_row("sample", sigma, scaling, norm * unit, *others)
        return float(noise(norm) + rows * np.sum(variance) + rows**2 * np.sum(squared_bias))

    ends = np.log(1e-3 * typical / unit), np.log(largest / unit)
    found = minimize_scalar(total, bounds=ends, method="bounded", options={"xatol": tolerance})
    return float(np.exp(found.x)), float(found.fun)
