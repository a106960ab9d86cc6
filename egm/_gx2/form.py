"""Bring the parameters of Q into a form whose largest weight is 1/2, with close weights in clusters."""

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
    """Represent Q / unit, where unit is twice the largest weight.

    So 1 - 2 w s is 1 - r s, with r = w / max w in (0, 1]. A group of weights, the smallest of which
    is `lowest`, has a center, the sum k of its degrees of freedom and the sum nc of its
    noncentralities. Where the weights center * (1 + e) of a group differ, `moments` has the sums of
    k_j e_j^p and of nc_j e_j^p for p = 1 ... ORDER.
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
        """Return 1 - r, by an exact subtraction of weights."""
        return (self.unit / 2 - self.centers) / (self.unit / 2)

    @cached_property
    def exact_r(self) -> Long:
        """Return r in extended precision, because large degrees of freedom multiply its rounding error."""
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
    """Check the three parameters of Q and return them as vectors of the same length."""
    weights = vector(weights=weights)
    dof, nc = positive(dof=dof), nonnegative(nc=nc)
    for name, value in (("dof", dof), ("nc", nc)):
        if value.ndim > 1 or value.size not in (1, weights.size):
            raise ValueError(
                f"{name} must be a number or have the {weights.size} entries of weights, got shape {value.shape}"
            )
    return weights, np.broadcast_to(dof, weights.shape), np.broadcast_to(nc, weights.shape)


def form_of(weights: Array, dof: Array, nc: Array) -> Form:
    """Make the form of checked parameters.

    Equal weights are merged, and close ones are clustered if that leaves far fewer.
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
    """Make the form with one group for each distinct weight."""
    values, group = np.unique(weights, return_inverse=True)
    k, shift = (np.bincount(group, weights=v) for v in (dof, nc))
    return Form(2 * values[-1], values, values, k, shift)  # type: ignore[arg-type]  # counts with weights are float64


def _clustered(weights: Array, dof: Array, nc: Array, *, starts: NDArray[np.intp]) -> Form:
    """Make the form with one group for each cluster of sorted weights, in one pass for each moment."""
    sizes = np.diff(starts, append=weights.size)
    k, shift = np.add.reduceat(dof, starts), np.add.reduceat(nc, starts)
    centers = np.add.reduceat(weights * dof, starts) / k
    e = weights / np.repeat(centers, sizes) - 1
    moments = tuple(_moments(values, e, starts) for values in (dof, nc))
    return Form(2 * weights[-1], centers, weights[starts], k, shift, moments)


def _edges(smallest: float, largest: float) -> Array:
    """Return the lower edges of the clusters, at equal steps of log(r / (1 - r)) up to the largest weight."""
    theta = np.arange(np.log(smallest) - np.log(largest) - _WIDTH, 37.0, _WIDTH)
    decay = np.exp(-np.abs(theta))
    edge = largest * (decay / (1 + decay))
    return np.where(theta < 0, edge, largest - edge)


def _moments(values: Array, e: Array, starts: NDArray[np.intp]) -> Array:
    """Compute sum_j values_j e_j^p over each cluster, for p = 1 ... ORDER: shape (ORDER, clusters)."""
    if not values.any():
        return np.zeros((ORDER, starts.size))
    power = np.array(values)
    rows = []
    for _ in range(ORDER):
        power *= e
        rows.append(np.add.reduceat(power, starts))
    return np.array(rows)
