"""Check and rescale the parameters of a generalized chi-square variable, a weighted sum of chi-square variables.

Terms with close weights are gathered in clusters, so that a tail of a million terms takes little time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import comb

from egm._gx2.loops import clusters
from egm._lazy import cached_property
from egm._threads import in_parallel
from egm._types import Array, ArrayLike, Indices
from egm._validate import finite, nonnegative, nonzero, positive, scalar, vector

_UNCLUSTERED = 2048  # most weights of which no clusters are made, because these would save no time
_RATIO = 1e300  # largest ratio of a negative weight, or of the normal term, to the largest weight
_OFTEN, _MOST = 1 << 12, 1 << 15  # numbers of clusters for which there is space at first, and at most
WIDE = 125 << 7  # in `clusters.gather`, the key of r = 2^-23, where r is a weight divided by the largest one
REACH = 2.0**16  # a form with wide clusters serves for contours whose nodes are at most this far from the point c
_DEEPEST = 7.0  # largest theta of a lower tail for such a form: then |c| is below 1097
_HUGE, _ROOT = 1e300, 2.0**20  # dof or nc above _HUGE are divided by the square of _ROOT, so that no sum overflows
_HALF = 1 << 16  # twice as many weights are divided in two halves, for two threads
ORDER = 10  # number of moments kept of each cluster
Long: TypeAlias = NDArray[Any]  # of np.longdouble
Real: TypeAlias = Any  # a float or a np.longdouble


@dataclass(frozen=True)
class Form:
    """Hold the parameters of Q / unit, where Q is a weighted sum of chi-square variables and a normal one.

    `unit` is twice the largest weight of Q or, without any weight, the standard deviation of the normal variable.
    Weights are gathered in groups in ascending order. For each group, `lowest` is its smallest weight, `centers` its
    center (neither is divided by `unit`), `k` the sum of its degrees of freedom, and `nc` that of its noncentralities.
    If the weights of a group, center * (1 + e_j), may differ, `moments` has the sums of k_j e_j^p and of nc_j e_j^p
    over the group, for p = 1 ... ORDER, in the shape (2, ORDER, groups); otherwise it is empty. `normal` is the
    standard deviation of the normal variable, divided by `unit`. `order` has the indices that sort the weights if each
    weight is a group of its own, and otherwise is None. If there are wide clusters, for |r| < 2^-23, the form only
    serves for arguments s of the cumulant function with |s - c| <= `REACH` and |c| <= exp(`_DEEPEST`), where c is the
    point at which a contour crosses the real axis: then |r s| < 2^-6. `narrow` then makes a `Form` of the same
    distribution that serves for all s; otherwise it is None.
    """

    unit: float
    centers: Array
    lowest: Array
    k: Long  # of doubles or, if a sum of doubles needs them, of more digits: the error of a sum of many would matter
    nc: Long
    moments: Array
    normal: float = 0.0
    order: Indices | None = None
    narrow: Callable[[], Form] | None = None

    @cached_property
    def finer(self) -> Form:
        """Return a `Form` of the same distribution that serves for all arguments of the cumulant function."""
        return self.narrow() if self.narrow else self

    def serving(self, theta: float, lower: bool) -> Form:
        """Return this form or, if the point c of a `Crossing` with `theta` and `lower` is far from 0, `finer`."""
        return self.finer if lower and not theta <= _DEEPEST else self

    @cached_property
    def table(self) -> Array:
        """Return an array of the shape (4, groups) for `egm._gx2.kernel`: r, 1 - r, `k` and `nc` of each group.

        r is the center of a group of weights divided by the largest weight, and no digits of 1 - r are lost if r is
        near 1. `k` is the sum of the group's degrees of freedom, and `nc` that of its noncentralities.
        """
        largest, table = self.unit / 2, np.empty((4, self.k.size))
        np.divide(self.centers, largest, out=table[0])
        np.divide(largest - self.centers, largest, out=table[1])
        table[2], table[3] = self.k, self.nc
        return table

    @cached_property
    def series(self) -> Array:
        """Return what the spread of weights within clusters adds to the cumulant function, as power series.

        The result has one column for each group, with the coefficients of V, V^2, ..., where V = r s / (1 - r s), s is
        the argument of the cumulant function, and r is the center of the group divided by the largest weight. The
        result has no rows if there are no clusters. For the weights center * (1 + e_j) of a group, let k_p be the sum
        of dof_j e_j^p, and n_p that of nc_j e_j^p. The series is sum_p [k_p V^p / (2 p) + n_p (1 + V) V^p / 2].
        """
        order = self.moments.shape[1]
        found = np.zeros((order + 1 if order else 0, self.k.size))
        if order:
            k, nc = self.moments / 2
            found[:-1] = k / np.arange(1.0, order + 1)[:, None] + nc
            found[1:] += nc
        return found

    @property
    def r(self) -> Array:
        return self.table[0]

    @cached_property
    def exact_r(self) -> Long:
        """Return r, the center of each group of weights divided by the largest weight, in extended precision.

        Extended precision is needed because the rounding error of r is multiplied by the degrees of freedom of the
        group, which may be many.
        """
        return self.centers / np.longdouble(self.unit / 2)

    @cached_property
    def exact_rest(self) -> Long:
        """Return 1 - center / largest weight of each group of weights in extended precision, accurately even near 0."""
        largest = np.longdouble(self.unit / 2)
        return (largest - self.centers) / largest

    @cached_property
    def central(self) -> bool:
        return not np.any(self.nc)

    @cached_property
    def means(self) -> Long:
        return self.exact_r * (self.k + np.longdouble(1) * self.nc) / 2

    @cached_property
    def mean(self) -> Real:
        mean = self.exact_r.dot(self.k)
        return (mean if self.central else mean + self.exact_r.dot(self.nc)) / 2


@dataclass(frozen=True)
class Side:
    """Say which tail of R = sign * (Q - shift) / unit is computed to get a tail of a generalized chi-square variable Q.

    The attribute `form` holds the parameters of R and the number `unit`, which is twice the largest weight of sign * Q
    if one is positive. The computed tail of R is the lower one if `lower` is true, otherwise the upper one.
    `sign` is 1 or -1, and `shift` is the constant term of Q.
    """

    form: Form
    lower: bool
    sign: int
    shift: float

    def scaled(self, x: Real) -> Real:
        """Return sign * (x - shift) / unit, the value of the variable of `form` if Q has the value `x`.

        Q is a generalized chi-square variable with the constant term `shift`. sign is 1 or -1, and unit is that of
        `form`.
        """
        return self.sign * (np.longdouble(x) - self.shift) / self.form.unit

    def unscaled(self, y: Any) -> Any:
        """Return sign * unit * y + shift, the value of Q if the variable of `form` has the value (or values) `y`.

        Q is a generalized chi-square variable with the constant term `shift`. sign is 1 or -1, and unit is that of
        `form`.
        """
        return self.sign * self.form.unit * y + self.shift


@dataclass(frozen=True)
class Law:
    """Hold the checked parameters of Q = sum_j w_j chi2(dof_j, nc_j) + normal * Z + shift, where Z is standard normal.

    `weights`, `dof` and `nc` hold the w_j, dof_j and nc_j. For weights of both signs, the upper tail is computed with
    the `Form` of Q, and the lower tail with that of -Q; otherwise one form serves both tails.
    """

    weights: Array
    dof: Array
    nc: Array
    normal: float = 0.0
    shift: float = 0.0

    @cached_property
    def signs(self) -> tuple[bool, bool]:
        """Return whether there are negative weights, and whether there are positive ones."""
        negative = int(np.count_nonzero(self.weights < 0))
        return negative > 0, negative < self.weights.size

    @cached_property
    def upper(self) -> Side:
        return self._side(1)

    @cached_property
    def lower(self) -> Side:
        return self._side(-1)

    def _side(self, sign: int) -> Side:
        """Return the `Side` that says how a tail of Q is computed: the upper tail if `sign` is 1, the lower one if -1.

        Q is the variable whose parameters this object holds.
        """
        negative, positive = self.signs[::sign]
        if positive:
            form = form_of(sign * self.weights if sign < 0 else self.weights, self.dof, self.nc, self.normal, True)
            return Side(form, False, sign, self.shift)
        if negative:
            other = self.lower if sign == 1 else self.upper
            return Side(other.form, True, -sign, self.shift)
        return Side(form_of(self.weights, self.dof, self.nc, self.normal), True, -sign, self.shift)

    @cached_property
    def mean(self) -> float:
        with np.errstate(over="ignore", invalid="ignore"):
            mean = float(np.add.reduce(self.weights * (self.dof + self.nc)))
        if math.isfinite(mean):
            return self.shift + mean
        unit, root, law = self._scaled  # a partial sum has overflowed, and maybe the whole sum does not
        scaled = law.weights @ law.dof + law.weights @ law.nc + self.shift / root**2 / unit
        return unit * float(scaled) * root**2

    @property
    def variance(self) -> float:
        unit, root, law = self._scaled
        return root * unit * (root * unit * law._scaled_variance)

    @property
    def deviation(self) -> float:
        unit, root, law = self._scaled
        return root * unit * math.sqrt(law._scaled_variance)

    @property
    def _scaled(self) -> tuple[float, float, Law]:
        """Return powers of two u and r, and a law that has the cumulants of (Q - shift) / u, divided by r**2.

        Q is the variable with the parameters of this object. No sum of terms of a cumulant overflows for the returned
        law. r is 1 unless `dof` or `nc` is huge.
        """
        unit = math.ldexp(0.5, math.frexp(np.max(np.abs(self.weights), initial=self.normal))[1])
        if max(np.max(distinct(v), initial=0.0) for v in (self.dof, self.nc)) <= _HUGE:
            return unit, 1.0, Law(self.weights / unit, self.dof, self.nc, self.normal / unit)
        thin = Law(self.weights / unit, self.dof / _ROOT**2, self.nc / _ROOT**2, self.normal / unit / _ROOT)
        return unit, _ROOT, thin

    @property
    def _scaled_variance(self) -> float:
        return float(2 * np.sum(self.weights**2 * (self.dof + 2 * self.nc)) + self.normal**2)

    @cached_property
    def support(self) -> tuple[float, float]:
        """Return the least and the largest value that the variable with these parameters can have."""
        negative, positive = self.signs
        normal = self.normal > 0
        return (-np.inf if normal or negative else self.shift), (np.inf if normal or positive else self.shift)


def parameters(weights: ArrayLike, dof: ArrayLike, nc: ArrayLike, signed: bool = False) -> tuple[Array, Array, Array]:
    """Check `weights`, degrees of freedom `dof` and noncentralities `nc`; return them as vectors of equal length.

    Raise a ValueError for a number outside its range, or a wrong length. If `signed` is true, weights may be negative,
    and `weights` may be empty.
    """
    if signed:
        weights = nonzero(weights=weights)
        if weights.ndim != 1:
            raise ValueError(f"weights must be a vector, got shape {weights.shape}")
    else:
        weights = vector(weights=weights)
    dof, nc = positive(dof=dof), nonnegative(nc=nc)
    for name, value in (("dof", dof), ("nc", nc)):
        if value.ndim > 1 or value.size not in (1, weights.size):
            raise ValueError(
                f"{name} must be a number or have the {weights.size} entries of weights, got shape {value.shape}"
            )
    return weights, _repeated(dof, weights.size), _repeated(nc, weights.size)


def _repeated(values: Array, size: int) -> Array:
    """Return `values`, a number or a vector of the length 1 or `size`, as a vector of the length `size`."""
    if values.size == size and values.ndim:
        return values
    return values.repeat(size) if size <= _UNCLUSTERED else np.ndarray(size, float, values.copy(), strides=(0,))


def distinct(values: Array) -> Array:
    """Return the vector `values` or, if all its entries were broadcast from one number, a vector of this number alone.

    So a caller need not read, for example, a million equal degrees of freedom.
    """
    return values[:1].copy() if values.strides == (0,) else values


def law_of(weights: ArrayLike, dof: ArrayLike, nc: ArrayLike, normal: ArrayLike = 0.0, shift: ArrayLike = 0.0) -> Law:
    """Check the parameters of sum_j weights_j chi2(dof_j, nc_j) + `normal` * Z + `shift`, and return them as a `Law`.

    Z is a standard normal variable. Raise a ValueError if an argument is outside its range, or if there is neither a
    weight nor a normal variable.
    """
    law = Law(
        *parameters(weights, dof, nc, signed=True),
        scalar(nonnegative, normal=normal),
        scalar(finite, shift=shift),
    )
    if law.weights.size == 0 and law.normal == 0:
        raise ValueError("weights must have at least one entry if normal is 0, got shape (0,)")
    return law


def form_of(weights: Array, dof: Array, nc: Array, normal: float = 0.0, wide: bool = False) -> Form:
    """Return the `Form` of a weighted sum of chi-square variables and a normal variable.

    The vectors `weights`, `dof` and `nc` are results of `parameters`, and `normal` is the standard deviation of the
    normal variable. Equal weights become one group. If there are more than 2048 weights, close ones are gathered in
    clusters, unless there would be more clusters than a sixteenth of the number of weights. If `wide` is true, clusters
    of small weights are wide, so that there are few of them, and the result may have a function `Form.narrow`.
    """
    if weights.size > _UNCLUSTERED:
        clustered = _clustered(weights, dof, nc, normal, wide)
        if clustered is not None:
            return clustered
    return _merged(weights, dof, nc, normal)


def _merged(weights: Array, dof: Array, nc: Array, normal: float) -> Form:
    """Return a weighted sum of chi-square variables and a normal one as a `Form`, in which equal weights are one group.

    `weights`, `dof` and `nc` are vectors of equal length, and `normal` is the standard deviation of the normal
    variable.
    """
    if weights.size == 0:
        return Form(normal, weights, weights, weights, weights, np.zeros((2, 0, 0)), 1.0)
    descending = np.count_nonzero(weights[1:] < weights[:-1]) == weights.size - 1
    if descending:  # as eigenvalues often are; otherwise it takes longer to sort them
        single, order = True, np.arange(weights.size)[::-1]
        values, dof, nc = weights[::-1], dof[::-1], nc[::-1]
    else:
        order = weights.argsort()
        values, dof, nc = weights[order], dof[order], nc[order]
        new = values[1:] > values[:-1]
        single = bool(new.all())
        if not single:
            starts = np.append(0, np.flatnonzero(new) + 1)
            dof, nc = (np.add.reduceat(each.astype(np.longdouble), starts) for each in (dof, nc))
            values = values[starts]
    unit = _unit(values[-1], values[0], normal)
    moments = np.zeros((2, 0, values.size))
    return Form(unit, values, values, dof, nc, moments, normal / unit, order if single else None)


def gather(weights: Array, dof: Array, nc: Array, order: int, most: int, wide: int = 0) -> tuple[float, Array, Long]:
    """Return the largest weight, and an array with one row for each cluster of weights, in ascending order of weight.

    A row holds a key that orders the rows; the center of the cluster; its smallest weight; its sums of `dof` and of
    `nc`; and its sums of dof_j e_j^p, then of nc_j e_j^p for p = 1 ... `order`, where e_j is the relative distance of a
    weight from the center. If there would be more than `most` clusters, the array has no rows. The third result has
    the sums of `dof` and of `nc` with more digits, in the shape (2, clusters).
    """
    weights, dof, nc = np.ascontiguousarray(weights), distinct(dof), distinct(nc)
    largest = float(weights.max())
    each = float(dof[0]) if dof.size == 1 else 1.0  # counting is exact, and the sum of many equal numbers is not

    def gathered(part: slice) -> Array:
        own_dof, own_nc = dof / each if dof.size == 1 else dof[part], nc if nc.size == 1 else nc[part]
        own_nc, places = own_nc if own_nc.any() else own_nc[:0], np.full(loop.KEYS, -1, np.int32)
        found: Array = loop.gather(weights[part], own_dof, own_nc, largest, order, most, wide, places)
        return found

    loop, half = clusters(weights.size), weights.size // 2
    parts = [slice(half), slice(half, None)] if half > _HALF else [slice(None)]
    found = in_parallel(gathered, parts)
    together = np.concatenate(found)
    together = together[np.argsort(together[:, 0], kind="stable")]
    first = np.flatnonzero(np.diff(together[:, 0], prepend=-1.0))
    if first.size > most or not all(map(len, found)):
        return largest, together[:0], np.zeros((2, 0))
    sums = np.add.reduceat(together[:, 3:5] + together[:, -2:].astype(np.longdouble), first).T
    sums[0] *= each
    merged = np.add.reduceat(together[:, :-2], first)
    merged[:, 5 : 5 + order] *= each
    merged[:, 3:5] = sums.T
    merged[:, :2], merged[:, 2] = together[first, :2], np.minimum.reduceat(together[:, 2], first)
    return largest, clusters(merged.size).recenter(merged, _binomials(order)), sums


@cache
def _binomials(order: int) -> Array:
    """Return the binomial coefficients of p over i, in the row p and the column i, for p and i up to `order`."""
    found: Array = comb(*np.ogrid[: order + 1, : order + 1])
    return found


def _clustered(weights: Array, dof: Array, nc: Array, normal: float, wide: bool) -> Form | None:
    """Return the `Form` with one group for each cluster of close weights, or None if there are too many clusters.

    Let r be a weight divided by the largest one. For r <= 1/2, each interval of |r| between two powers of two is
    divided into 16 clusters of equal length; for r > 1/2, that is done with 1 - r. So the power series in the docstring
    of `egm.gx2`, which replaces the weights of a cluster, converges fast. If `wide` is true, the clusters of
    |r| < 2^-23 are eight octaves wide. Their series converges fast where |r s| is small, for the argument s of the
    cumulant function; `Form` says for which s it serves. `weights`, `dof` and `nc` are vectors of equal length,
    and `normal` is the standard deviation of the normal variable.
    """
    few = weights.size // 16
    for most in sorted({min(few, _OFTEN), min(few, _MOST)}):
        largest, found, (k, shift) = gather(weights, dof, nc, ORDER, most, WIDE if wide else 0)
        if found.shape[0]:
            break
    else:
        return None
    moments = np.ascontiguousarray(found[:, 5:].T).reshape(2, ORDER, -1)
    _, centers, lowest = found[:, :3].T.copy()
    unit = _unit(largest, lowest[0], normal)
    narrow = None
    if wide and np.any(np.abs(centers) < largest / 2**23):
        narrow = partial(form_of, weights, dof, nc, normal)
    return Form(unit, centers, lowest, k, shift, moments, normal / unit, narrow=narrow)


def _unit(largest: float, least: float, normal: float) -> float:
    """Return twice the `largest` weight, or raise a ValueError if that or a ratio to it would overflow.

    `least` is the least weight, which may be negative, and `normal` the standard deviation of the normal variable.
    """
    largest, most = float(largest), max(float(largest), -float(least))
    if 2 * most == math.inf:
        raise ValueError(f"weights must be at most 8.98e307 in absolute value, got {most!r}")
    if max(most, normal) > _RATIO * largest:
        raise ValueError(
            "weights and normal must be at most 1e300 times the largest positive weight (for a lower tail, the largest "
            f"negative one) in absolute value, got {largest!r} and {max(most, normal)!r}"
        )
    return 2 * largest
