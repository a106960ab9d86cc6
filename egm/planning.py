r"""Find the epsilon, or the number of rows, that a release needs for a given accuracy: the inverse of the forecast.

A mechanism forecasts the error of a release for its epsilon and its number of rows. `solve` goes
the other way, and returns the mechanism with the least epsilon (or number of rows, or rho, the
budget of an adaptive mechanism) for which the forecast error is at most a target. `curve` computes
the forecast error for several values of epsilon, of rho, or of the number of rows.

The error is one of four measures, for one column or, with "sum" and "mean", for all columns
together. The forecast assumes that the user's guesses of the center and the standard deviations are
as wrong as declared (the arguments `center_std` and `sigma_factor` of `GaussianDataMechanism`).

=========== ====================================================================================
Measure     Error
=========== ====================================================================================
"sum"       Root of the expected squared error of the sum of a column, or of all sums together.
"mean"      Root of the expected squared error of the mean of a column, or of all means together.
"relative"  The error "sum" of a column, divided by the expected sum: n times the center.
"interval"  Half of the width of a confidence interval for the mean of a column.
=========== ====================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import cache
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np

from egm._adaptive.declared import MOST
from egm._falling import first, first_whole
from egm._mechanisms.base import L2_EPSILONS, l2_until
from egm._mechanisms.rowsum import half_lengths, with_clipping
from egm._rows.norms import norms
from egm._types import Array, ArrayLike, Columns
from egm._validate import positive, probability, scalar, vector, without_delta_warnings
from egm.adaptive import AdaptiveDataMechanism
from egm.forecast import MOST_ROWS
from egm.mechanisms import (
    EllipticalGaussianMechanism,
    GaussianDataMechanism,
    GaussianMechanism,
    LaplaceMechanism,
)

__all__ = ["curve", "solve"]

_LEAST_RHO = 1e-9  # smallest rho that is tried if ranges are declared, because then no budget is too small
_RATIO = 4.0  # largest ratio of a value to the one before, in the search for the first value that meets the target

Field: TypeAlias = Literal["epsilon", "rho", "n"]
Measure: TypeAlias = Literal["sum", "mean", "relative", "interval"]
AnyMechanism: TypeAlias = (
    LaplaceMechanism | GaussianMechanism | EllipticalGaussianMechanism | GaussianDataMechanism | AdaptiveDataMechanism
)
M = TypeVar("M", bound=AnyMechanism)


def solve(
    mechanism: M,
    target: float,
    for_: Field = "epsilon",
    *,
    measure: Measure = "mean",
    column: Hashable | None = None,
    confidence: float = 0.95,
    sigma: ArrayLike | None = None,
    center: ArrayLike | None = None,
) -> M:
    r"""Return a mechanism with the least epsilon, rho or number of rows for which its error is at most a target.

    Parameters
    ----------
    mechanism : mechanism
        Mechanism of `egm.mechanisms`, except a GroupedDataMechanism, or an
        `egm.adaptive.AdaptiveDataMechanism`. The value of the field that `for_` names is not used.
    target : float
        Largest error that is accepted, > 0, in the units of the data; without a unit for the
        measure "relative".
    for_ : {"epsilon", "n", "rho"}, default "epsilon"
        Field that is solved for. An AdaptiveDataMechanism has "rho" and "n", a
        GaussianDataMechanism "epsilon" and "n", and any other mechanism "epsilon".
    measure : {"mean", "sum", "relative", "interval"}, default "mean"
        Measure of the error, as defined in `egm.planning`. A mechanism without a number of rows has
        only the measure "sum", the error of what it releases. The error "sum" cannot be solved for
        "n", because it does not fall with the number of rows.
    column : hashable, optional
        Name of a column or, if the mechanism has no names, its index from 0 on. By default the
        error is that of all columns together; "relative" and "interval" need a column, unless there
        is only one.
    confidence : float, default 0.95
        Probability in (0, 1) of the interval, for the measure "interval".
    sigma : array_like, shape (d,), optional
        Standard deviations of the rows for which an AdaptiveDataMechanism makes its forecast, > 0.
        They must be given for this mechanism, and for no other.
    center : float or array_like, shape (d,), optional
        Mean of the rows for which an AdaptiveDataMechanism makes its forecast, within the declared
        `ranges` or `radius`; by default the middle of the ranges, or 0 if there are none.

    Returns
    -------
    mechanism
        Copy of `mechanism` in which the field `for_` has the least value that was found.

    Raises
    ------
    ValueError
        If no value is enough, because clipping alone costs more than the target: the message states
        the least error that was found. The error is also raised if a parameter is outside its range,
        or does not fit the mechanism.
    TypeError
        If `mechanism` is of another type, or a number is not a real number.

    Warns
    -----
    DeltaWarning
        If the delta of the result is 1/n or more.

    See Also
    --------
    curve : The errors for several values.

    Notes
    -----
    The result always meets the target. A value that is smaller by a factor of 1 - 1e-6, or a number
    of rows that is smaller by one, does not meet it. The exception is the smallest value of all,
    which is returned if it is enough: 1e-6 for epsilon, 2 for the number of rows, and 1e-9 for rho.
    For an AdaptiveDataMechanism without `ranges`, the smallest value is the least rho or number of
    rows with which the mechanism runs.

    The search tries the values of a grid, each at most four times the one below it, until only the
    larger one of two successive values meets the target. Then it looks between these two. It goes up
    from the smallest rho or number of rows. For epsilon it begins near 1, and goes down if this value
    meets the target. It ends at an epsilon of 1e4, a rho of 1e6, or :math:`2^{53}` rows.

    The result is the least solution wherever the error falls as epsilon grows: for a given clip
    probability, and for ``clip_probability="optimal"`` and all columns together. With
    ``noise="best"`` the error rises once, at the epsilon above which l2 noise is not considered; the
    search first finds out on which side of this epsilon the least solution is. In two cases the
    search may miss a smaller solution: with ``clip_probability="optimal"`` the error of a single
    column can grow with epsilon for a while, and the forecast of an AdaptiveDataMechanism has jumps:
    small ones for all columns together, but up to a factor of 2.4 was seen for a single column.

    A search takes at most 40 forecasts, or 80 for very many rows: a few tenths of a second, and some
    seconds with ``clip_probability="optimal"`` or for an AdaptiveDataMechanism.

    The measure "interval" is half of the width of the interval that a release has for
    column j (`egm.mechanisms.DataRelease.interval`), for normal noise and a public number of rows. It
    is :math:`T / n`. For a confidence of 0.5 or more, T is the least number with

    .. math::

        P \bigl[ |Z| \le T \bigr] \ge \text{confidence}, \qquad
        Z \sim N \bigl( n \, \text{bias}_j, \; \text{noise\_std}_j^2 + n \, \mathrm{Var}_j \bigr).

    Here :math:`\mathrm{Var}_j` is the variance and :math:`\text{bias}_j` the mean of the part of a row
    that clipping removes (see `egm.forecast.loss_of_a_row`) if `sigma` is too small or too large by
    `sigma_factor`, whichever gives more. For an AdaptiveDataMechanism the interval is the one that a
    release with the forecast noise and bias would have. Its error due to clipping is divided between
    the columns by the `clipping_share` of its forecast.

    If the number of rows is private, the errors "sum" and "relative" include the noise in this number,
    multiplied by the center; "mean" and "interval" include it multiplied by `center_std`. They are
    smallest for a mechanism with ``of="mean"``. The error "mean" is then computed to first order in
    this noise, and is too small for few rows (see the notes of `GaussianDataMechanism.error`).

    Examples
    --------
    What epsilon makes the error of the mean age half a year, and what epsilon makes the 95 percent
    interval of the mean income 100 wide?

    >>> from egm import GaussianDataMechanism
    >>> from egm.planning import solve
    >>> sigma, center = {"age": 18, "income": 1200}, {"age": 40, "income": 2500}
    >>> mechanism = GaussianDataMechanism(sigma, 10_000, epsilon=1, delta=1e-6, center=center)
    >>> round(solve(mechanism, 0.5, column="age").epsilon, 4)
    0.9642
    >>> round(solve(mechanism, 50, measure="interval", column="income").epsilon, 4)
    0.1359

    With epsilon = 0.5 the error of the mean age is half a year for this many rows:

    >>> from dataclasses import replace
    >>> solve(replace(mechanism, epsilon=0.5), 0.5, "n", column="age").n
    19174

    No epsilon makes the error of the mean age a thousandth of a year, because of what clipping removes:

    >>> solve(mechanism, 0.001, column="age")
    Traceback (most recent call last):
        ...
    ValueError: target must be at least 0.002361, the least error of all epsilon from 1e-06 to 10000, got 0.001
    """
    target = scalar(positive, target=target)
    error = _error_of(mechanism, measure, column, confidence, sigma, center, for_=for_)
    if (for_, measure) == ("n", "sum"):
        raise ValueError('measure must not be "sum" for n: the error of a sum does not fall with the number of rows')
    ends = low, high = _range(mechanism, for_, sigma)
    for jump in (jumps := _jumps(mechanism, for_)):  # the error falls up to this epsilon, rises, and falls again
        low, high = (low, jump) if error(jump) <= target else (jump, high)
    grid = np.geomspace(low, high, math.ceil(math.log(high / low, _RATIO)) + 1).tolist()
    grid = [min(max(value, low), high) for value in (map(round, grid) if for_ == "n" else grid)]
    start = int(np.argmin(np.abs(np.log(grid)))) if for_ == "epsilon" else 0
    while start > 0 and error(grid[start]) <= target:
        start -= 1
    met = next((i for i in range(start, len(grid)) if error(grid[i]) <= target), None)
    if met is None:
        least = f"{min(map(error, [*jumps, *grid[start:]])) * 1.001:.4g}"  # 1.001, so that it is not rounded below it
        tried = f"all {for_} from {ends[0]:g} to {ends[1]:g}"
        raise ValueError(f"target must be at least {least}, the least error of {tried}, got {target:g}")
    found = low
    if met > 0:
        between = first_whole if for_ == "n" else first
        found = between(lambda value: error(value) / target, grid[met - 1], grid[met])
    solved: M = replace(mechanism, **{for_: found})  # type: ignore[arg-type]  # a union has no one constructor
    return solved


def curve(
    mechanism: AnyMechanism,
    values: ArrayLike,
    of: Field = "epsilon",
    *,
    measure: Measure = "mean",
    column: Hashable | None = None,
    confidence: float = 0.95,
    sigma: ArrayLike | None = None,
    center: ArrayLike | None = None,
) -> Array:
    """Compute the forecast error of a mechanism for several values of epsilon, of rho, or of the number of rows.

    Parameters
    ----------
    mechanism : mechanism
        Mechanism of `egm.mechanisms`, except a GroupedDataMechanism, or an
        `egm.adaptive.AdaptiveDataMechanism`. The value of the field that `of` names is not used.
    values : array_like
        Values, > 0, of the field that `of` names.
    of : {"epsilon", "n", "rho"}, default "epsilon"
        Name of the field. Each mechanism has the fields that `solve` allows for `for_`.
    measure : {"mean", "sum", "relative", "interval"}, default "mean"
        Measure of the error, as defined in `egm.planning`.
    column : hashable, optional
        Name or index of a column, as for `solve`.
    confidence : float, default 0.95
        Probability in (0, 1) of the interval, for the measure "interval".
    sigma : array_like, shape (d,), optional
        Standard deviations of the rows for an AdaptiveDataMechanism, as for `solve`.
    center : float or array_like, shape (d,), optional
        Mean of the rows for an AdaptiveDataMechanism, as for `solve`.

    Returns
    -------
    ndarray
        The errors, in the shape of `values`.

    Raises
    ------
    ValueError
        If a parameter is outside its range, or does not fit the mechanism.
    TypeError
        If `mechanism` is of another type, or a number is not a real number.

    See Also
    --------
    solve : The least value for which the error is at most a target.

    Examples
    --------
    >>> from egm import GaussianDataMechanism
    >>> from egm.planning import curve
    >>> mechanism = GaussianDataMechanism([18, 1200], 10_000, epsilon=1, delta=1e-6, center=[40, 2500])
    >>> print(curve(mechanism, [0.1, 1, 10], column=0).round(3))
    [4.154 0.483 0.062]
    """
    error = _error_of(mechanism, measure, column, confidence, sigma, center, of=of)
    values = positive(values=values)
    return np.array([error(value) for value in values.ravel().tolist()]).reshape(values.shape)


def _error_of(
    mechanism: AnyMechanism,
    measure: str,
    column: Hashable | None,
    confidence: float,
    sigma: ArrayLike | None,
    center: ArrayLike | None,
    **named: str,
) -> Callable[[float], float]:
    """Check the arguments of `solve` and `curve`; return a function from the value of a field to the forecast error.

    The one keyword argument in `named`, `for_` or `of`, is the name of the field, such as "epsilon". `measure`,
    `column` and `confidence` say which error is meant. `sigma` and `center` are the standard deviations and the mean of
    the rows for the forecast of an AdaptiveDataMechanism.
    """
    ((name, field),) = named.items()
    fields = _fields(mechanism)
    if field not in fields:
        allowed = " or ".join(f'"{each}"' for each in fields)
        raise ValueError(f"{name} must be {allowed} for {type(mechanism).__name__}, got {field!r}")
    of_rows = isinstance(mechanism, GaussianDataMechanism | AdaptiveDataMechanism)
    measures = ("sum", "mean", "relative", "interval") if of_rows else ("sum",)
    if measure not in measures:
        allowed = " or ".join(f'"{each}"' for each in measures)
        raise ValueError(f"measure must be {allowed} for {type(mechanism).__name__}, got {measure!r}")
    imagined = _imagined(mechanism, sigma, center)
    size = imagined["sigma"].size if imagined else _errors(mechanism, {}, measure).size
    place = _place(getattr(mechanism, "columns", None), size, column)
    if measure in ("relative", "interval") and not isinstance(place, int):
        raise ValueError(f'column must be given for the measure "{measure}", because there are {size} columns')
    tail = (1 - scalar(probability, confidence=confidence)) / 2
    mean = 1.0
    if measure == "relative":
        there = imagined["center"] if imagined else mechanism.center  # type: ignore[union-attr]  # it has rows
        mean = abs(float(np.broadcast_to(there, size)[place]))
        if mean == 0:
            raise ValueError('center must not be 0 for the measure "relative", which divides by the expected sum')

    @cache
    def error(value: float) -> float:
        with without_delta_warnings():
            it: Any = replace(mechanism, **{field: value})  # type: ignore[arg-type]  # a union, as above
        if measure == "interval":
            return float(_half_widths(it, tail, imagined)[place] / it.n)
        root = float(norms(np.atleast_2d(_errors(it, imagined, measure)[place]))[0])
        return root if measure == "sum" else root / (it.n * mean)

    return error


def _fields(mechanism: AnyMechanism) -> tuple[str, ...]:
    """Return the names of the fields of `mechanism` that `solve` can solve for; raise a TypeError if there are none."""
    if isinstance(mechanism, AdaptiveDataMechanism):
        return "rho", "n"
    if isinstance(mechanism, GaussianDataMechanism):
        return "epsilon", "n"
    if isinstance(mechanism, LaplaceMechanism | GaussianMechanism | EllipticalGaussianMechanism):
        return ("epsilon",)
    raise TypeError(f"mechanism must be a mechanism of egm, got an object of type {type(mechanism).__name__}")


def _imagined(mechanism: AnyMechanism, sigma: ArrayLike | None, center: ArrayLike | None) -> dict[str, Array]:
    """Return a dictionary with the arguments for the forecast of an AdaptiveDataMechanism, empty for other mechanisms.

    The arguments are the standard deviations `sigma` and the mean `center` of the rows. Raise ValueError if `sigma` is
    missing for an AdaptiveDataMechanism, if `sigma` or `center` does not fit this mechanism, or if one of them is given
    for another mechanism.
    """
    if isinstance(mechanism, AdaptiveDataMechanism):
        if sigma is None:
            raise ValueError("sigma must be given for AdaptiveDataMechanism: standard deviations for its forecast")
        spread = vector(sigma=sigma)
        mechanism._require_columns(spread.size, "sigma")
        return {"sigma": spread, "center": mechanism._mean(center, spread.size)}
    for name, value in (("sigma", sigma), ("center", center)):
        if value is not None:
            raise ValueError(f"{name} must be given for AdaptiveDataMechanism only, got {value!r}")
    return {}


def _place(columns: Columns, size: int, column: Hashable | None) -> int | slice:
    """Return the index of `column`; if `column` is None, return a slice of all columns, or 0 if there is only one.

    `columns` has the names of the columns. If it is None, `column` is itself an index. `size` is the number of columns.
    Raise ValueError if there is no such column.
    """
    if column is None:
        return slice(None) if size > 1 else 0
    if columns is not None:
        if column not in columns:
            raise ValueError(f"column must be one of {list(columns)}, got {column!r}")
        return columns.index(column)
    if not isinstance(column, int | np.integer) or isinstance(column, bool) or not 0 <= column < size:
        raise ValueError(f"column must be a whole number from 0 to {size - 1}, got {column!r}")
    return int(column)


def _jumps(mechanism: AnyMechanism, field: str) -> list[float]:
    """Return a list of the values of `field` just above which the error of `mechanism` may rise: none or one.

    There is one if `field` is "epsilon" and the noise is "best". It is the largest epsilon for which l2 noise is
    considered; above it the noise is Gaussian. The list is empty if this epsilon is not inside the range that `solve`
    tries.
    """
    it: Any = mechanism
    if field != "epsilon" or getattr(it, "noise", None) != "best":
        return []
    until, (low, high) = l2_until(it.delta, it.noise_size), L2_EPSILONS
    return [until] if low < until < high else []


def _range(mechanism: AnyMechanism, field: str, sigma: Any) -> tuple[float, float]:
    """Return the smallest and the largest value of `field`, a field of `mechanism`, that `solve` tries.

    For an AdaptiveDataMechanism, `sigma` has the standard deviations of the columns; only their number matters.
    """
    if isinstance(mechanism, AdaptiveDataMechanism):
        if mechanism.ranges is not None:  # no budget is refused
            return (_LEAST_RHO, MOST) if field == "rho" else (2, MOST_ROWS)
        least = mechanism.least_rho(np.size(sigma))  # proportional to 1 / n**2
        if field == "rho":  # if the least value is too large, the mechanism says so when it is tried
            return min(least, MOST), MOST
        rows = mechanism.n * math.sqrt(least / mechanism.rho) * (1 + 1e-12)
        return math.ceil(min(max(2, rows), MOST_ROWS)), MOST_ROWS
    return (2, MOST_ROWS) if field == "n" else L2_EPSILONS


def _errors(mechanism: AnyMechanism, imagined: dict[str, Array], measure: str) -> Array:
    """Return the root of the expected squared error of each entry of a release of `mechanism`, as a vector.

    If `measure` is "mean", these are the errors of the means multiplied by n, in the units of a sum. `imagined` has the
    standard deviations and the mean of the rows for which an AdaptiveDataMechanism makes its forecast; for other
    mechanisms it is not used. If a mechanism does not know how many entries its value has, the result has one entry.
    """
    if isinstance(mechanism, GaussianDataMechanism):
        return np.sqrt(mechanism._errors_by_column("mean" if measure == "mean" else "sum"))
    if isinstance(mechanism, AdaptiveDataMechanism):
        forecast = mechanism.forecast(**imagined)
        # The noise in a private number of rows moves the sum, and leaves the mean where it is.
        std = forecast.centered_std if measure == "mean" else forecast.noise_std
        return with_clipping(std, forecast.error.clipping + forecast.error.center, forecast.clipping_share)
    if isinstance(mechanism, LaplaceMechanism):
        return np.array([math.sqrt(2) * mechanism.noise_scale])
    size = (mechanism.d or 1) if isinstance(mechanism, GaussianMechanism) else mechanism.b.size
    return np.full(size, mechanism.noise_std)


def _half_widths(
    mechanism: GaussianDataMechanism | AdaptiveDataMechanism, tail: float, imagined: dict[str, Array]
) -> Array:
    """Return, for each column, n times half of the width of the confidence interval for the mean, as a vector.

    The interval is that of a release of `mechanism`, and misses the mean with probability 2 `tail`. `imagined` has the
    standard deviations and the mean of the rows for which an AdaptiveDataMechanism makes its forecast; for a
    GaussianDataMechanism it is not used.
    """
    if isinstance(mechanism, AdaptiveDataMechanism):
        forecast = mechanism.forecast(**imagined)
        clipped = forecast.error.clipping, forecast.clipping_share
        std = with_clipping(forecast.centered_std, *clipped, forecast.uncorrected_std)
        return half_lengths(std, forecast.bias, forecast.bias_std, tail)
    parts = mechanism._parts(mechanism._centered_std, mechanism.n, mechanism._count_std)
    of_count = mechanism._count_std * np.sqrt(mechanism._of_columns(mechanism._doubts[0] ** 2))
    std = np.hypot(parts.std, of_count)
    return half_lengths(std, parts.bias, parts.bias_std, tail, mechanism.noise_law, mechanism.noise_size)
