"""Hold the cumulant function of a generalized chi-square variable in ball arithmetic.

A ball is an interval or, for complex numbers, a rectangle; each operation returns a ball that contains the exact
result. The docstring of `enclosed` has the formulas.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from egm._enclosure import ball_arithmetic
from egm._lazy import cached_property
from egm._types import Array, Indices

Ball: TypeAlias = Any  # an arb or acb of flint

_APART = 500  # more different weights than this are clustered
_WIDTH = 0.04  # width of a cluster, in log(r / (1 - r))
_ORDER = 16  # terms kept of the series of a cluster


class Group(NamedTuple):
    """Hold a cluster of close weights, or one weight, as balls (intervals that contain the exact numbers).

    `twice` is two times the center of the cluster. `half` is half of the sum of the degrees of freedom k_j, and `shift`
    half of the sum of the noncentralities nc_j. e_j is the relative distance of a weight from the center: `spread` is a
    bound on all |e_j|, and `moments` has, for each p = 1 ... `_ORDER`, the sum of k_j e_j^p / 2 and that of nc_j e_j^p
    / 2. For one weight `moments` is empty.
    """

    twice: Ball
    half: Ball
    shift: Ball
    spread: Ball
    moments: tuple[tuple[Ball, Ball], ...]


@dataclass(frozen=True)
class Law:
    """Hold the parameters of Q, a weighted sum of chi-square variables and a normal one, divided by a power of two.

    `groups` has the weights. `variance` is the variance of the normal term, and `tau` its standard deviation. `largest`
    is twice the largest weight, or 0 if no weight is positive; `least` is twice the least weight, or 0 if no weight is
    negative. Three vectors have, for each group, two times its center (`twice`), half its degrees of freedom (`half`)
    and half its noncentrality (`shift`). These vectors and `tau` hold doubles, and `groups`, `variance`, `largest`
    and `least` hold balls, which are intervals that contain the exact numbers.
    """

    groups: tuple[Group, ...]
    variance: Ball
    largest: Ball
    least: Ball
    twice: Array
    half: Array
    shift: Array
    tau: float

    def cumulant(self, s: Ball) -> Ball:
        """Return a complex ball (a rectangle) that contains the cumulant function at all points of the ball `s`.

        The cumulant function is that of Q, the variable whose parameters this object holds. It must be analytic at all
        points of `s`.
        """
        total = self.variance * s * s / 2
        for group in self.groups:
            inverse = 1 / (1 - group.twice * s)
            total += group.half * inverse.log()
            if not group.moments:
                if not group.shift.is_zero():
                    total += group.shift * (inverse - 1)
                continue
            v = inverse - 1
            far = v.abs_upper() * group.spread
            logs = inverses = 0 * s
            for p in range(_ORDER, 0, -1):
                of_half, of_shift = group.moments[p - 1]
                logs, inverses = (logs + of_half / p) * v, (inverses + of_shift) * v
            rest = far ** (_ORDER + 1) / (1 - far) if far < 1 else far / 0
            total += logs + _disc(group.half * rest / (_ORDER + 1))
            total += inverse * (inverses + _disc(group.shift * rest)) + group.shift * v
        return total

    @cached_property
    def mean(self) -> float:
        return float(self.twice @ (self.half + self.shift))

    @cached_property
    def deviation(self) -> float:
        return float(np.sqrt(self.twice**2 @ (self.half + 2 * self.shift) + self.tau**2))


def law_of(weights: Array, dof: Array, nc: Array, normal: float, exponent: int) -> Law:
    """Return the `Law` of (sum_j weights_j chi2(dof_j, nc_j) + `normal` Z) / 2 ** `exponent`, with Z standard normal.

    The vectors `weights`, `dof` and `nc` have equal length. The `Law` holds the parameters in balls (intervals that
    contain the exact numbers) with the current precision of flint. Equal weights are merged, and many close ones are
    clustered.
    """
    arb = ball_arithmetic().arb
    unit = arb(2) ** (1 - exponent)
    order = np.argsort(weights, kind="stable")
    values, starts = np.unique(weights[order], return_index=True)
    halves, shifts = (_sums(v if v.strides == (0,) else v[order], starts) for v in (dof, nc))
    with np.errstate(over="ignore"):
        counts = np.add.reduceat((dof + nc)[order], starts)
    cuts = _cuts(values) if values.size > _APART else np.arange(values.size)
    groups = []
    for i, j in itertools.pairwise([*cuts, values.size]):
        half, shift = sum(halves[i:j], arb(0)), sum(shifts[i:j], arb(0))
        center = float(values[i]) if j == i + 1 else _center(values[i:j], counts[i:j])
        spread, moments = arb(0), tuple[tuple[Ball, Ball], ...]()
        if j > i + 1:
            e = [(arb(w) - center) / center for w in values[i:j].tolist()]
            spread = max(abs(e[0]).upper(), abs(e[-1]).upper())
            moments = tuple(zip(_moments(halves[i:j], e), _moments(shifts[i:j], e), strict=True))
        groups.append(Group(arb(center) * unit, half, shift, spread, moments))
    return Law(
        groups=tuple(groups),
        variance=(arb(normal) * unit / 2) ** 2,
        largest=arb(float(values.max(initial=0.0))) * unit,
        least=arb(float(values.min(initial=0.0))) * unit,
        twice=np.array([float(group.twice) for group in groups]),
        half=np.array([float(group.half) for group in groups]),
        shift=np.array([float(group.shift) for group in groups]),
        tau=math.ldexp(normal, -exponent),
    )


def _sums(numbers: Array, starts: Indices) -> list[Ball]:
    """Divide the vector `numbers` into slices, and return half of the sum of each slice as a ball (an interval).

    The slices begin at the indices `starts`.
    """
    arb = ball_arithmetic().arb
    lengths = np.diff(starts, append=numbers.size).tolist()
    if numbers.strides == (0,):
        return [arb(float(numbers[0])) * length / 2 for length in lengths]
    entries = map(arb, numbers.tolist())
    return [sum((next(entries) for _ in range(length)), arb(0)) / 2 for length in lengths]


def _center(values: Array, counts: Array) -> float:
    """Return the mean of the weights `values` of a cluster, which count `counts` times, rounded to a double.

    The first moments of the cluster then nearly cancel, which makes bounds narrow. If a sum overflows, the result is
    the middle of the cluster.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        center = float(values @ (counts / counts.sum()))
    return center if values[0] <= center <= values[-1] else float(values[0] / 2 + values[-1] / 2)


def _moments(values: list[Ball], e: list[Ball]) -> list[Ball]:
    """Return a list with the sum over j of values_j e_j^p for each p = 1 ... `_ORDER`.

    `values` and `e` are lists of real balls (intervals), and so is the result.
    """
    zero = ball_arithmetic().arb(0)
    if all(value.is_zero() for value in values):
        return [zero] * _ORDER
    sums = []
    for _ in range(_ORDER):
        values = [value * distance for value, distance in zip(values, e, strict=True)]
        sums.append(sum(values, zero))
    return sums


def _cuts(values: Array) -> Indices:
    """Return the indices at which clusters of close weights begin in `values`, a sorted vector of different weights.

    Let r be a weight divided by the largest weight or, if it is negative, by the least weight. Weights are in one
    cluster if their numbers log(r / (1 - r)) lie in one interval of the length `_WIDTH`. A weight with r = 1 is a
    cluster by itself.
    """
    extreme = np.where(values > 0, values[-1], values[0])
    with np.errstate(divide="ignore"):
        place = np.log(values / extreme) - np.log((extreme - values) / extreme)
    keys = np.where(np.isinf(place), 1e9, np.floor(place / _WIDTH)) + 1j * np.sign(values)
    return np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))


def _disc(radius: Ball) -> Ball:
    """Return a complex ball that contains all numbers of absolute value at most `radius`, a real ball.

    This ball is added to the sum of the first terms of a power series, so that the result contains the sum of all
    terms.
    """
    flint = ball_arithmetic()
    around = flint.arb(0, radius.abs_upper())
    return flint.acb(around, around)
