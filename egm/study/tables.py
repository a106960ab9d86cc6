"""Compute the tables of the experiments in Poulsen's report from their parameters, and read tables of measurements.

A table is a structured NumPy array with one row for each combination of parameters, so that
``table["value"][table["d"] == 100]`` selects the values for d = 100.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources
from itertools import product
from typing import Any, Literal, SupportsFloat

import numpy as np
from scipy.optimize import brentq
from scipy.special import hyp2f1, ndtr

from egm import scaling as scalings
from egm._types import Array, ArrayLike, StructuredArray, Target
from egm._validate import count, nonnegative, positive, probability, scalar, vector
from egm.mechanisms import GaussianDataMechanism

__all__ = ["bases", "duels", "improvement", "lugannani_rice", "profiles", "rivals", "searches", "sweep", "zipf_sigma"]


def zipf_sigma(d: int, alpha: float, total: float = 1.0) -> Array:
    r"""Compute standard deviations that follow Zipf's law.

    Parameters
    ----------
    d : int
        Number of coordinates, >= 1.
    alpha : float
        Skewness, >= 0. With 0, all standard deviations are equal.
    total : float, default 1.0
        Sum of the standard deviations, > 0, in any unit.

    Returns
    -------
    ndarray, shape (d,)
        Standard deviations, largest first, in the unit of `total`.

    Raises
    ------
    ValueError
        If a parameter is outside its range, or if the smallest standard deviation would underflow.

    Notes
    -----
    The standard deviations are proportional to :math:`i^{-\alpha}`, i = 1, ..., d, as in Section 5 of [1]_.

    References
    ----------
    .. [1] Poulsen (2023), "Differentially private vector sums in the case of normally distributed data".

    Examples
    --------
    >>> from egm.study.tables import zipf_sigma
    >>> print(zipf_sigma(4, alpha=1.0, total=25.0))
    [12.  6.  4.  3.]
    """
    d, alpha, total = count(d=d), scalar(nonnegative, alpha=alpha), scalar(positive, total=total)
    power = np.arange(1, d + 1.0) ** -alpha
    sigma = total * power / np.sum(power)
    if sigma[-1] == 0:
        at = f"alpha = {alpha!r} and total = {total!r} for d = {d}"
        raise ValueError(f"the least standard deviation must be > 0 in double precision, got {at}")
    return sigma


def improvement(d: int, n: int, alpha: float, scaling: Literal["expected_norm", "optimal"] = "expected_norm") -> float:
    r"""Compute the factor by which a scaling reduces the expected squared error of the noise.

    The data have standard deviations by Zipf's law, and the clip probability is 1/n. The factor does not
    depend on the privacy parameters.

    Parameters
    ----------
    d : int
        Number of coordinates, >= 1.
    n : int
        Number of rows, >= 2.
    alpha : float
        Skewness of Zipf's law, >= 0.
    scaling : {"expected_norm", "optimal"}, default "expected_norm"
        The scaling of Lemma 4.1 in the report, or the scaling with the least noise.

    Returns
    -------
    float
        Factor :math:`E_n / E_t`: the error without scaling over the error with scaling. Its
        relative accuracy is about 1e-12.

    Raises
    ------
    ValueError
        If a parameter is outside its range.

    See Also
    --------
    egm.scaling.noise_factor : The factor of the expected squared error that depends on the scaling.

    Notes
    -----
    This is the quantity of Figure 2 of [1]_. It equals

    .. math:: \frac{E_n}{E_t} = \frac{d \, q_p(\sigma^2)}{q_p((b \sigma)^2) \sum_j b_j^{-2}},
       \qquad p = 1/n,

    where the scaling multiplies coordinate j by :math:`b_j`, and :math:`q_p(w)` is the upper
    p-quantile of :math:`\sum_j w_j Z_j^2` for independent standard normal :math:`Z_j`. Epsilon and
    delta cancel. The report found the quantiles by bisection; here they are exact up to rounding.

    References
    ----------
    .. [1] Poulsen (2023), "Differentially private vector sums in the case of normally distributed data".

    Examples
    --------
    >>> from egm.study.tables import improvement
    >>> round(improvement(d=100, n=10**6, alpha=1.0), 4)
    16.6144
    >>> round(improvement(d=100, n=10**6, alpha=1.0, scaling="optimal"), 2)
    24.7
    """
    sigma = zipf_sigma(d, alpha)
    p = scalar(probability, **{"clip_probability = 1/n": 1 / count(n=n)})
    choices: dict[str, Callable[[Array], Array]] = {
        "expected_norm": scalings.expected_norm,
        "optimal": lambda sigma: scalings.optimal(sigma, p),
    }
    if scaling not in choices:
        raise ValueError(f'scaling must be "expected_norm" or "optimal", got {scaling!r}')
    without = scalings.noise_factor(np.ones_like(sigma), sigma, p)
    return without / scalings.noise_factor(choices[scaling](sigma), sigma, p)


def profiles(d: int, n: int, alpha: float, epsilon: float, delta: float) -> StructuredArray:
    """Tabulate, for three scalings, the factor by which each coordinate is multiplied, and its noise.

    A scaling multiplies coordinate j of every row by a number b_j before rows are clipped. The standard deviations of
    the coordinates follow Zipf's law, and the noise is that of `GaussianDataMechanism`.

    Parameters
    ----------
    d : int
        Number of coordinates, >= 1.
    n : int
        Number of rows, >= 2. A row is clipped with probability 1/n.
    alpha : float
        Skewness of Zipf's law, >= 0.
    epsilon : float
        Privacy parameter, > 0.
    delta : float
        Privacy parameter, in (0, 1).

    Returns
    -------
    ndarray, shape (3 * d,)
        Structured array with the columns `scaling`, which is "none", "expected_norm" (Lemma 4.1 of
        Poulsen's report) or "optimal"; `j`, the number of the coordinate from 1 to d; `sigma`, the
        standard deviation of the data in this coordinate, where the standard deviations of all
        coordinates sum to 1; `b`, the number by which the scaling multiplies the coordinate; and
        `noise_std`, the standard deviation of the noise in this coordinate of the released sum, in the
        unit of `sigma`.

    Raises
    ------
    ValueError
        If a parameter is outside its range.

    Warns
    -----
    DeltaWarning
        If delta is 1/n or more.

    See Also
    --------
    egm.mechanisms.GaussianDataMechanism : The mechanism whose noise is tabulated.

    Examples
    --------
    >>> from egm.study.tables import profiles
    >>> table = profiles(d=3, n=10_000, alpha=1.0, epsilon=1, delta=1e-6)
    >>> for name in ("none", "expected_norm"):
    ...     print(name, table["noise_std"][table["scaling"] == name].round(1))
    none [18.2 18.2 18.2]
    expected_norm [18.6 13.1 10.7]
    """
    sigma, rows = zipf_sigma(d, alpha), []
    for scaling in ("none", "expected_norm", "optimal"):
        mechanism = GaussianDataMechanism(sigma, n, epsilon, delta, scaling=scaling)
        columns = zip(sigma, mechanism.b, mechanism.noise_std, strict=True)
        rows += [(scaling, j, *column) for j, column in enumerate(columns, start=1)]
    return np.array(rows, dtype=[("scaling", "U13"), ("j", int), ("sigma", float), ("b", float), ("noise_std", float)])


def sweep(function: Callable[..., SupportsFloat], **axes: Iterable[Any]) -> StructuredArray:
    """Evaluate a function at every combination of the values of its arguments.

    Parameters
    ----------
    function : callable
        Function that is called as ``function(**point)`` and returns a number.
    **axes : iterable
        One keyword argument for each argument of `function`, with the values of this argument. The
        values of the last argument vary fastest. None may have the name `value`.

    Returns
    -------
    ndarray
        Structured array with one row for each combination. It has one column for each argument, in the
        given order, and the column `value`.

    Raises
    ------
    ValueError
        If an argument has the name `value`.

    Examples
    --------
    >>> from egm.study.tables import improvement, sweep
    >>> table = sweep(improvement, d=[10, 100], n=[10_000], alpha=[0.0, 1.0])
    >>> table["value"].round(2).tolist()
    [1.0, 3.07, 1.0, 15.42]
    """
    if "value" in axes:
        raise ValueError(f"an argument must not have the name of the column value, got value = {axes['value']!r}")
    grid = {name: list(axis) for name, axis in axes.items()}
    points = list(product(*grid.values()))
    values = [float(function(**dict(zip(grid, point, strict=True)))) for point in points]
    kinds = [(name, np.asarray(axis).dtype) for name, axis in grid.items()] + [("value", float)]
    return np.array([(*point, value) for point, value in zip(points, values, strict=True)], dtype=kinds)


def lugannani_rice(x: float, weights: ArrayLike) -> float:
    r"""Approximate the upper tail of a weighted sum of squared normal variables by the saddlepoint formula.

    The formula is here for comparison only: `egm.gx2.sf` computes this tail up to rounding.

    Parameters
    ----------
    x : float
        Point, above the mean of the sum, which is the sum of the weights.
    weights : array_like, shape (d,)
        Weights :math:`w_j`, > 0, in the unit of `x`.

    Returns
    -------
    float
        Approximation of :math:`P[\sum_j w_j Z_j^2 > x]`. Its relative error is a few percent, and up to 17
        percent where one weight dominates.

    Raises
    ------
    ValueError
        If `x` is not above the mean, or if a weight is not finite and positive.

    See Also
    --------
    egm.gx2.sf : The exact tail.

    Notes
    -----
    Let K be the cumulant function of the sum, s the point where :math:`K'(s) = x`, and
    :math:`v_j = 2 w_j s / (1 - 2 w_j s)`. With

    .. math:: r^2 = 2 (s x - K(s)), \qquad u^2 = s^2 K''(s) = \tfrac12 \sum_j v_j^2,

    the tail is nearly :math:`\Phi(-r) + \varphi(r) (1/u - 1/r)`, also at the mean, as a limit. The formula
    is due to Lugannani and Rice (1980); [1]_ explains it.

    References
    ----------
    .. [1] Daniels (1987), "Tail Probability Approximations".

    Examples
    --------
    >>> from egm import gx2
    >>> from egm.study.tables import lugannani_rice
    >>> weights = [1.0, 0.5, 0.25]
    >>> print(f"{lugannani_rice(10.0, weights):.6f} instead of {gx2.sf(10.0, weights):.6f}")
    0.002802 instead of 0.002752
    """
    x, weights = scalar(positive, x=x), vector(weights=weights)
    if x <= np.sum(weights):
        raise ValueError(f"x must be above the mean {float(np.sum(weights))!r}, got {x!r}")
    w, x = weights / np.max(weights), x / np.max(weights)
    if x > 2 * np.sum(w) + 3000:  # r**2 / 2 is at least s x - K(s) for s = 1/4, and so above 750
        return 0.0
    # K' is at least 2 x at the upper end; the lower one is negative, because rounding may hide that x is above the mean
    s = brentq(lambda s: np.sum(w / (1 - 2 * w * s)) - x, -0.01, 0.5 - 0.25 / x, xtol=1e-15)
    v = 2 * w / (1 - 2 * w * s)  # this, u and r are divided by s, which is 0 at the mean
    u = np.sqrt(np.sum(v**2) / 2)
    if s > 0.01:
        r = np.sqrt(2 * s * x + np.sum(np.log1p(-2 * w * s))) / s
        difference = (1 / u - 1 / r) / s
    else:  # r**2 = sum(s v - log1p(s v)) and r**2 - u**2 without cancellation
        r = np.sqrt(np.sum(v**2 * hyp2f1(1, 2, 3, -s * v)) / 2)
        difference = -np.sum(v**3 * hyp2f1(1, 3, 4, -s * v)) / (3 * u * r * (u + r))
    return float(ndtr(-s * r) + np.exp(-((s * r) ** 2) / 2) / np.sqrt(2 * np.pi) * difference)


def rivals() -> StructuredArray:
    r"""Read the measured errors of egm's mechanism and of published methods, for the experiments of the PLAN paper.

    Returns
    -------
    ndarray
        Structured array with one row for each grid point and method; see Notes.

    See Also
    --------
    duels : Comparison of one method with the best of the others.
    egm.study.rivals : The published methods.

    Notes
    -----
    The columns are:

    - `grid`, `d`, `alpha`, `n` and `rho`, which together name the grid point: n normal rows of d independent
      entries, and the budget `rho` in zCDP. In grid "A" all means are 0 and all variances 1. In "B" and "C"
      all means are 10, and entry i has the variance :math:`(d/i)^\alpha`; only "B" has several `alpha`.
    - `method`, the name of the method, and `knows`, what it knows besides the range of the mean; "" means that it knows
      nothing else.
    - `sample` and `population`: mean squared l2 distance of the estimated mean to the mean of the rows and
      to the true mean, over the runs that gave an estimate. `sample_se` and `population_se` are their
      standard errors.
    - `failures` and `seeds`: how many runs gave no estimate, and how many runs there were.

    The errors were measured by ``python -m benchmarks.grid``, which describes each method and its
    arguments. The grids are those of [1]_.

    References
    ----------
    .. [1] Aumüller, Lebeda, Nelson and Pagh (2024), "PLAN: Variance-Aware Private Mean Estimation".

    Examples
    --------
    >>> import numpy as np
    >>> from egm.study.tables import rivals
    >>> table = rivals()
    >>> np.unique(table["grid"]).tolist()
    ['A', 'B', 'C']
    """
    kinds = {"grid": str, "method": str, "knows": str, "d": int, "n": int, "failures": int, "seeds": int}
    return _measured("rivals.csv", kinds)


def searches() -> StructuredArray:
    r"""Read the measured errors of `egm.AdaptiveDataMechanism` for data of many kinds.

    The data are rows from ten and from fifty laws (probability distributions), rows with a few
    skewed columns among normal ones, "strange tables", designed to make the mechanism fail, and
    again rows from the ten laws, with larger budgets.

    Returns
    -------
    ndarray
        Structured array with one row for each law and setting; see Notes.

    See Also
    --------
    egm.AdaptiveDataMechanism : The mechanism.

    Notes
    -----
    The error of a run is the l2 norm of the released sum minus the exact sum. The forecast, by the
    mechanism, is the root of the expected squared error. The sampling error is :math:`\sqrt{n V}`,
    where V is the sum of the variances of the columns of the data. The columns of the table are:

    - `part` ("ten laws", "fifty laws", "mixed columns", "strange tables" or "large budgets"), `law`, the name
      of the law or of the strange table, `n` and `d`, the numbers of rows and of columns of the data, and
      `reach`, which is :math:`n \sqrt{\rho}` for the budget :math:`\rho`. Together they name the row.
    - `runs`: the number of runs; `refused`: how many of them were refused because the budget was
      too small; `failures`: how many ended with an exception or a warning.
    - `median` and `most`: median and maximum, over the runs, of the error divided by the forecast.
      `beyond`: in how many runs this ratio was above 5.
    - `above`: in how many runs the forecast was far too large. Error and forecast of each run are
      first divided by the sampling error of the run. A forecast is far too large if it is more than 5
      times the root mean square of the errors of all runs.
    - `outside`: how many runs estimated a mean or a standard deviation outside the ranges that the mechanism
      was given, or had a result that is not finite.
    - `coverage`: the share of the entries of the sum that were within their confidence intervals for 95 % (of
      mixed columns, only those that are not normal), and `coverage_se`: the standard error of this share, from
      its variance between runs.
    - `believed`: the share of the runs in which the mechanism reported that the rows look normal.
    - `sampling`: the median, over the runs, of the error divided by the sampling error.

    Where all runs were refused, `failures`, `beyond`, `above` and `outside` are 0, and all other results are nan. The
    table was measured by ``python -m benchmarks.searches``.

    Examples
    --------
    >>> import numpy as np
    >>> from egm.study.tables import searches
    >>> table = searches()
    >>> np.unique(table["part"]).tolist()
    ['fifty laws', 'large budgets', 'mixed columns', 'strange tables', 'ten laws']
    """
    counts = "n", "d", "runs", "refused", "failures", "beyond", "above", "outside"
    kinds: dict[str, type] = dict.fromkeys(counts, int)
    return _measured("searches.csv", {"part": str, "law": str, **kinds})


def bases() -> StructuredArray:
    r"""Read the measured errors of private means of rows with correlated columns, with and without a basis.

    With a basis, a method works along directions other than the columns.

    Returns
    -------
    ndarray
        Structured array with one row for each set of rows and method; see Notes.

    See Also
    --------
    rivals : Errors for normal rows with independent columns.

    Notes
    -----
    The columns are:

    - `rows`, the name of the set, `d`, the number of columns, and `method`. ``python -m benchmarks.bases``, by which
      the errors were measured, describes each set and each method.
    - `runs`: how many runs there were, each with n = 10 000 rows. The error of a run is the l2
      distance of the estimated mean from the mean of the rows, divided by :math:`\sqrt{V / n}`,
      where V is the sum of the variances of the columns. `rms`, `median` and `most`: the root mean
      square, the median and the largest of the errors. `se`: the standard error of `rms`.
    - `used`: the share of runs in which the method used a basis.
    - `least`: how many rows like these the method of [1]_ needs to give a result at all for epsilon
      = 4 and delta = 1e-6, the privacy of the runs.

    References
    ----------
    .. [1] Brown, Hopkins and Smith (2023), "Fast, Sample-Efficient, Affine-Invariant Private Mean and Covariance
       Estimation for Subgaussian Distributions".

    Examples
    --------
    >>> from egm.study.tables import bases
    >>> table = bases()
    >>> sorted(set(table["rows"].tolist()))
    ['digits', 'neighbors', 'nuclei', 'patches', 'spectrum', 'voltage']
    """
    return _measured("bases.csv", {"rows": str, "method": str, "d": int, "runs": int})


def _measured(file: str, kinds: Mapping[str, type]) -> StructuredArray:
    """Read a table of measurements from the CSV file `file` in the folder `egm/study/data`, as a structured array.

    `kinds` is a mapping from names of columns to types, such as `str` or `int`. All other columns are floats.
    """
    lines = resources.files("egm.study").joinpath("data", file).read_text(encoding="utf-8").splitlines()
    names, *rows = csv.reader(lines)
    types = [kinds.get(name, float) for name in names]
    values = [tuple(kind(value) for kind, value in zip(types, row, strict=True)) for row in rows]
    return np.array(values, dtype=[(n, "U40" if k is str else k) for n, k in zip(names, types, strict=True)])


def duels(
    table: StructuredArray,
    error: Target = "sample",
    method: str = "ours",
    told: Sequence[str] = ("", "largest sigma", "norm of mu"),
) -> StructuredArray:
    """Compare a method with the best of the other methods, at each grid point of a table of errors.

    Parameters
    ----------
    table : ndarray
        Structured array with the columns of `rivals`.
    error : {"sample", "population"}, default "sample"
        Which error is compared: the distance to the mean of the rows, or to the true mean.
    method : str, default "ours"
        Name of the method in the column `method`.
    told : sequence of str, default ("", "largest sigma", "norm of mu")
        Values of the column `knows`. Another method is compared with `method` only if what it knows besides the range
        of the mean is among these values, and if it has given an estimate in every run.

    Returns
    -------
    ndarray
        Structured array with one row for each grid point that has both `method` and another method. Its columns are
        those that name the grid point (`grid`, `d`, `alpha`, `n` and `rho`); `ours` and `ours_se`, the error of
        `method`, which is a mean of squared distances, and its standard error; `rival`, the
        name of the other method with the least error; `theirs` and `theirs_se`, the error of this rival and its
        standard error; and `ratio` and `ratio_se`, the ratio of `ours` to `theirs` and its standard error.

    See Also
    --------
    rivals : The table of all errors.

    Notes
    -----
    The standard error of the ratio is computed to first order, and treats the two errors as independent. The least of
    several measured means is on average below the true mean of the best rival, so the comparison favors the rivals.

    Examples
    --------
    In the median over the grid points, the mechanism of egm ("ours") has less error than the best rival:

    >>> import numpy as np
    >>> from egm.study.tables import duels, rivals
    >>> bool(np.median(duels(rivals())["ratio"]) < 1)
    True
    """
    cell = ["grid", "d", "alpha", "n", "rho"]
    fair = table[np.isin(table["knows"], told) & (table["failures"] == 0)]
    rows = []
    for own in table[table["method"] == method]:
        others = fair[(fair[cell] == own[cell]) & (fair["method"] != method)]
        if len(others):
            best = others[np.argmin(others[error])]
            pair = [row[column] for row in (own, best) for column in (error, f"{error}_se")]
            ratio = pair[0] / pair[2]
            se = ratio * np.hypot(pair[1] / pair[0], pair[3] / pair[2])
            rows.append((*own[cell], *pair[:2], best["method"], *pair[2:], ratio, se))
    columns = ["ours", "ours_se", "rival", "theirs", "theirs_se", "ratio", "ratio_se"]
    kinds = [(name, table.dtype[name]) for name in cell] + [(n, "U30" if n == "rival" else float) for n in columns]
    return np.array(rows, dtype=kinds)
