"""Normalize the parameters of a weighted sum Q of chi-square variables, and gather close weights in clusters."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from egm._types import Array, ArrayLike
from egm._validate import nonnegative, positive, vector

_EXACT = 256  # more weights than this are clustered
_WIDTH = 0.1  # width of a cluster, in log(r / (1 - r))
ORDER = 10  # moments kept of each cluster
Long: TypeAlias = NDArray[Any]  # of np.longdouble
Real: TypeAlias = Any  # a float or a np.longdouble


@dataclass(frozen=True)
class Form:
    """Hold the parameters of Q / unit, where Q is a weighted sum of chi-square variables.

    `unit` is twice the largest weight of Q. For a weight w let r = w / max w, which is in (0, 1]. Then the
    factor 1 - 2 w s of the cumulant function of Q becomes 1 - r s. Weights are gathered in groups, and each
    array has one entry for each group: `lowest` is the smallest weight of the group, `centers` is its
    center, `k` is the sum of its degrees of freedom, and `nc` is the sum of its noncentralities. If the
    weights of a group, center * (1 + e_j), may differ, `moments` has the sums of k_j e_j^p and of
    nc_j e_j^p over the group, for p = 1 ... ORDER. Otherwise `moments` is None.
    """

    unit: float
    centers: Array
    lowest: Array
    k: Array
    nc: Array
    moments: tuple[Array, ...] | None = None

    @cached_property
    def r(self) -> Array:
        return self.centers / (self.unit / 2)

    @cached_property
    def gap(self) -> Array:
        """Return 1 - r for each group of weights, where r is the entry of `centers` divided by the largest weight of Q.

        The largest weight of Q is the largest of all weights in all groups, unit / 2. The center is subtracted from it
        before the division, so that no digits are lost if r is near 1.
        """
        return (self.unit / 2 - self.centers) / (self.unit / 2)

    @cached_property
    def exact_r(self) -> Long:
        """Return r, the center of each group of weights divided by the largest weight, in extended precision.

        A double is not enough, because the rounding error of r is multiplied by the degrees of freedom, and their
        number may be large.
        """
        return self.centers / np.longdouble(self.unit / 2)

    @cached_property
    def central(self) -> bool:
        return not np.any(self.nc)

    @cached_property
    def means(self) -> Long:
        return self.exact_r * (self.k + self.nc) / 2

    @cached_property
    def mean(self) -> Real:
        return self.means.sum()

    @cached_property
    def deviation(self) -> float:
        return np.sqrt(self.r**2 @ (self.k / 2 + self.nc))  # type: ignore[return-value]  # of a scalar product


def parameters(weights: ArrayLike, dof: ArrayLike, nc: ArrayLike) -> tuple[Array, Array, Array]:
    """Check `weights`, degrees of freedom `dof` and noncentralities `nc`; return them as vectors of equal length.

    Raise a ValueError if a number is outside its range, or if `dof` or `nc` is neither one number nor as long as
    `weights`.
    """
    weights = vector(weights=weights)
    dof, nc = positive(dof=dof), nonnegative(nc=nc)
    for name, value in (("dof", dof), ("nc", nc)):
        if value.ndim > 1 or value.size not in (1, weights.size):
            raise ValueError(
                f"{name} must be a number or have the {weights.size} entries of weights, got shape {value.shape}"
            )
    return weights, np.broadcast_to(dof, weights.shape), np.broadcast_to(nc, weights.shape)


def form_of(weights: Array, dof: Array, nc: Array) -> Form:
    """Return the `Form` of a weighted sum of chi-square variables.

    The vectors `weights`, `dof` (degrees of freedom) and `nc` (noncentralities) are results of `parameters`. Equal
    weights become one group. If there are more than 256 weights, close weights are gathered in clusters, and each
    cluster is a group. But if there would be more clusters than a quarter of the number of weights, only equal weights
    are gathered.
    """
    if weights.size <= _EXACT:
        return _merged(weights, dof, nc)
    if dof.strides == nc.strides == (0,):
        weights = np.sort(weights)
    else:
        order = np.argsort(weights)
        weights, dof, nc = weights[order], dof[order], nc[order]
    starts = np.unique(np.searchsorted(weights, _edges(weights[0], weights[-1])))
    make = _merged if 4 * starts.size > weights.size else partial(_clustered, starts=starts)
    return make(weights, dof, nc)


def _merged(weights: Array, dof: Array, nc: Array) -> Form:
    """Return the `Form` with one group for each distinct weight.

    The arguments `weights`, `dof` and `nc` are those of `form_of`.
    """
    values, group = np.unique(weights, return_inverse=True)
    k, shift = (np.bincount(group, weights=v) for v in (dof, nc))
    return Form(2 * values[-1], values, values, k, shift)  # type: ignore[arg-type]  # counts with weights are float64


def _clustered(weights: Array, dof: Array, nc: Array, *, starts: NDArray[np.intp]) -> Form:
    """Return the `Form` with one group for each cluster of weights.

    The arguments `weights`, `dof` and `nc` are those of `form_of`, sorted by weight. The array `starts` has the index
    of the first weight of each cluster.
    """
    sizes = np.diff(starts, append=weights.size)
    k, shift = np.add.reduceat(dof, starts), np.add.reduceat(nc, starts)
    centers = np.add.reduceat(weights * dof, starts) / k
    e = weights / np.repeat(centers, sizes) - 1
    moments = tuple(_moments(values, e, starts) for values in (dof, nc))
    return Form(2 * weights[-1], centers, weights[starts], k, shift, moments)


def _edges(smallest: float, largest: float) -> Array:
    """Return the lower edges of the clusters that cover all weights from `smallest` to `largest`, in ascending order.

    The edges are at equal steps of log(r / (1 - r)), where r is a weight divided by `largest`.
    """
    theta = np.arange(np.log(smallest) - np.log(largest) - _WIDTH, 37.0, _WIDTH)
    decay = np.exp(-np.abs(theta))
    edge = largest * (decay / (1 + decay))
    return np.where(theta < 0, edge, largest - edge)


def _moments(values: Array, e: Array, starts: NDArray[np.intp]) -> Array:
    """Compute the sums of values_j e_j^p over the weights j of each cluster, for p = 1 ... ORDER.

    `values` has the degrees of freedom or the noncentrality of each weight. `e` has the relative distance of each
    weight from the center of its cluster, and `starts` the index of the first weight of each cluster. The result has
    the shape (ORDER, clusters).
    """
    if not values.any():
        return np.zeros((ORDER, starts.size))
    power = np.array(values)
    rows = []
    for _ in range(ORDER):
        power *= e
        rows.append(np.add.reduceat(power, starts))
    return np.array(rows)
