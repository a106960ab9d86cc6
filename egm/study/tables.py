"""The report's experiments: parameters in, a tidy table out.

A table is a numpy structured array, one row a combination of parameters: `table["value"][table["d"] == 100]`.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources
from itertools import product
from typing import Any, Literal, SupportsFloat

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr

from egm import scaling as scalings
from egm._types import Array, ArrayLike, StructuredArray, Target
from egm._validate import count, nonnegative, positive, probability, scalar, vector
from egm.mechanisms import GaussianDataMechanism

__all__ = ["duels", "improvement", "lugannani_rice", "profiles", "rivals", "searches", "sweep", "zipf_sigma"]


def zipf_sigma(d: int, alpha: float, total: float = 1.0) -> Array:
    """Standard deviations i**-alpha, i = 1 ... d, scaled to the sum `total`: shape (d,), largest first.

    d: a whole number >= 1. alpha: >= 0, the skewness; 0 makes them equal. total: > 0. Raises ValueError otherwise,
    and when the smallest would underflow. Poulsen (2023), section 5.
    """
    d, alpha, total = count(d=d), scalar(nonnegative, alpha=alpha), scalar(positive, total=total)
    power = np.arange(1, d + 1.0) ** -alpha
    if power[-1] == 0:
        raise ValueError(f"alpha must leave d**-alpha > 0 in double precision, got {alpha!r} for d = {d}")
    return total * power / np.sum(power)


def improvement(d: int, n: int, alpha: float, scaling: Literal["expected_norm", "optimal"] = "expected_norm") -> float:
    """E_n / E_t: the noise's squared error without scaling over that with it, at clip probability 1/n, Zipf sigma.

    d, n: whole numbers >= 1 and >= 2. alpha: >= 0. scaling: "expected_norm" (Lemma 4.1, the report's) or "optimal".
    Equals d q_p(sigma**2) / (q_p((b sigma)**2) sum b**-2); epsilon and delta cancel. Exact to about 1e-12, where the
    report searched by bisection. Raises ValueError otherwise. Poulsen (2023), Figure 2.
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
    """Coordinate by coordinate, what the mechanism for Zipf sigma does under each of the three scalings: a table.

    d, n: whole numbers >= 1 and >= 2. alpha: >= 0. epsilon: > 0. delta: in (0, 1). Columns: `scaling`, that is "none",
    "expected_norm" (Lemma 4.1) and "optimal"; `j` from 1 to d; `sigma`, of sum 1; `b`; `noise_std`, of the noise in
    the released sum. Raises ValueError outside these ranges.
    """
    sigma, rows = zipf_sigma(d, alpha), []
    for scaling in ("none", "expected_norm", "optimal"):
        mechanism = GaussianDataMechanism(sigma, n, epsilon, delta, scaling=scaling)
        columns = zip(sigma, mechanism.b, mechanism.noise_std, strict=True)
        rows += [(scaling, j, *column) for j, column in enumerate(columns, start=1)]
    return np.array(rows, dtype=[("scaling", "U13"), ("j", int), ("sigma", float), ("b", float), ("noise_std", float)])


def sweep(function: Callable[..., SupportsFloat], **axes: Iterable[Any]) -> StructuredArray:
    """function(**point) at every combination of the axes' values, as a table with one column an axis and `value`.

    function: returns a number. axes: a sequence of values each; the last one varies fastest.
    """
    points = list(product(*axes.values()))
    values = [float(function(**dict(zip(axes, point, strict=True)))) for point in points]
    kinds = [(name, np.asarray(list(axis)).dtype) for name, axis in axes.items()] + [("value", float)]
    return np.array([(*point, value) for point, value in zip(points, values, strict=True)], dtype=kinds)


def lugannani_rice(x: float, weights: ArrayLike) -> float:
    """The saddlepoint formula for P[sum_j weights_j Z_j**2 > x], off by a few percent, by 17 where one weight rules.

    x: one number above the mean, sum weights. weights: (d,), > 0. With K the cumulant function, K'(s) = x, v_j = 2
    w_j s / (1 - 2 w_j s), r^2 = 2 (s x - K(s)) and u^2 = s^2 K''(s) = sum v_j^2 / 2, the tail is nearly Phi(-r) +
    phi(r) (1/u - 1/r). Raises ValueError for an x that is not above the mean. Lugannani and Rice (1980). For
    comparison only: gx2.sf is exact.
    """
    x, weights = scalar(positive, x=x), vector(weights=weights)
    if x <= np.sum(weights):
        raise ValueError(f"x must be above the mean {float(np.sum(weights))!r}, got {x!r}")
    w, x = weights / np.max(weights), x / np.max(weights)
    s = brentq(lambda s: np.sum(w / (1 - 2 * w * s)) - x, 0, 0.5 - 0.25 / x)  # K' is at least 2 x at the upper end
    r = np.sqrt(2 * s * x + np.sum(np.log1p(-2 * w * s)))
    u = np.sqrt(np.sum((2 * w * s / (1 - 2 * w * s)) ** 2) / 2)
    return float(ndtr(-r) + np.exp(-(r**2) / 2) / np.sqrt(2 * np.pi) * (1 / u - 1 / r))


def rivals() -> StructuredArray:
    """Errors of our mechanism and of the published ones on the grids of PLAN's experiments: a table.

    A row for each cell and method. `grid`, `d`, `alpha`, `n`, `rho` name the cell: "A" has rows from N(0, I), "B" and
    "C" variances (d/i)**alpha and means 10. `method`; `knows` is what it is told besides the range of the mean, "" for
    nothing. `sample`, `population`: mean squared l2 distance of the estimated mean to those, over the runs that gave
    an estimate; `sample_se`, `population_se`: standard errors. `failures` of `seeds` runs gave none. Measured by
    `python -m benchmarks.grid`, which says what each method is and is given.
    """
    kinds = {"grid": str, "method": str, "knows": str, "d": int, "n": int, "failures": int, "seeds": int}
    return _measured("rivals.csv", kinds)


def searches() -> StructuredArray:
    """How often `AdaptiveDataMechanism` lost its way, on ten laws, on fifty, and on strange tables: a table.

    A row for each law and place. `part` ("ten laws", "fifty laws", "strange tables"), `law`, `n`, `d` and `reach`, that
    is n sqrt(rho), name it. Of `runs`, `refused` had too small a budget and `failures` ended with an exception or a
    warning. `median`, `most`: of the l2 norm of the error over that of the forecast. `beyond`: how many were more than
    5 times the forecast; `outside`: with an estimate or a spread outside the declared ranges. `coverage`: the share of
    the entries of the sum that were within the interval for 95 %, with the standard error `coverage_se` between runs.
    `believed`: the share of the runs that took the rows for normal. `sampling`: the median error over that of the sum
    of a random sample. Where all runs were refused these are nan. Measured by `python -m benchmarks.searches`.
    """
    kinds: dict[str, type] = dict.fromkeys(("n", "d", "runs", "refused", "failures", "beyond", "outside"), int)
    return _measured("searches.csv", {"part": str, "law": str, **kinds})


def _measured(file: str, kinds: Mapping[str, type]) -> StructuredArray:
    """The table in a file of the package; columns without a kind are numbers."""
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
    """In each cell of a table such as `rivals()` the method against the best of those that know no more: a table.

    error: "sample" or "population". told: what a rival may know besides the range to be compared; it must have given
    an estimate in every run. Columns: those of the cell; `ours` and `ours_se`, the method's error and its standard
    error; `rival`, the one of least error; `theirs` and `theirs_se`; `ratio`, ours over theirs, and `ratio_se`, to
    first order and as if the two were independent. The least of several means is below the mean of the best, so that
    the ratio flatters the rivals. Cells without the method or without a rival are left out.
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
