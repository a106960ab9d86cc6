"""Compile the loops that gather close weights of a generalized chi-square variable in clusters."""

from __future__ import annotations

import math

import numpy as np

from egm._compiled import compiled
from egm._types import Array, Indices

_BELOW, _ABOVE = 1 << 15, 1022 << 5  # number of keys of negative weights, and largest key of a positive one beyond it
KEYS = _BELOW + _ABOVE + 1
_OCTAVES = 8 << 4  # number of keys in eight octaves
_BLOCK, _HELD = 512, 64  # weights that `gather` reads, and weights of a cluster that it adds, at a time
_UNITS = 2.0**500  # numbers below it are added without rounding; far larger ones would make a unit that overflows


@compiled()
def gather(
    weights: Array, dof: Array, nc: Array, largest: float, order: int, most: int, wide: int, places: Indices
) -> Array:
    """Gather weights, of which none is above `largest`, in clusters; return an array with a row for each cluster.

    The vectors `dof` and `nc` have a single entry, or an entry for each of the `weights`; `nc` has none if all
    noncentralities are 0. Let r be a weight divided by
    `largest`. Two weights are in one cluster if their numbers r have the same sign, exponent and first four bits of the
    mantissa; for r > 1/2, the exponents and the bits of 1 - r are compared instead. If exponent and bits, read as one
    whole number, are below `wide`, a multiple of 128, only their first digits are compared, so that the cluster is
    eight octaves wide. A row of the array holds a key that orders the clusters by weight; the center of the cluster,
    which depends on the key and on `largest` alone (if |r| is below the least double, it is the first weight); its
    smallest weight; its sums of `dof` and of `nc`; its sums of
    dof_j e_j^p and then of nc_j e_j^p for p = 1, 2, ... up to `order`, where e_j is the relative distance of the weight
    j from the center, and `order` is even; and two small numbers, to be added to the sums of `dof` and of `nc`, whose
    rounding errors they are. If there would be more than `most` clusters, the array has no rows.
    `places` has `KEYS` numbers -1, and is overwritten.

    The weights of a cluster are held back until there are `_HELD` of them, because the processor computes the powers of
    several e_j at a time.
    """
    central = nc.size == 0
    found = np.zeros((most, 7 + 2 * order))
    held, room = np.empty((3, most * _HELD)), np.empty((2, _HELD))
    count, block, keys = 0, np.empty(_BLOCK), np.empty(_BLOCK, np.int64)
    bits = block.view(np.int64)
    for start in range(0, weights.size, _BLOCK):
        part = weights[start : start + _BLOCK]
        for i in range(part.size):
            block[i] = (largest - part[i] if 2 * part[i] > largest else abs(part[i])) / largest
        for i in range(part.size):
            w, top = part[i], bits[i] >> 48
            top = top & -_OCTAVES if top < wide else top
            keys[i] = _BELOW + (_ABOVE - top if 2 * w > largest else top if w > 0 else -top - 1)
        for i in range(part.size):
            place = int(places[keys[i]])
            if place < 0:
                if count == most:
                    return found[:0]
                w, top = part[i], bits[i] >> 48
                if top < wide:
                    top = top & -_OCTAVES
                    bits[i] = top << 48  # the lower end of the cluster: no digits of e_j are lost
                else:
                    bits[i] = top << 48 | 1 << 47  # the middle of the cluster
                middle = block[i] * largest if top else 0.0
                place, found[count, 0], found[count, 2] = count * _HELD, keys[i], w
                if 2 * w > largest:
                    found[count, 1] = largest - middle
                else:
                    found[count, 1] = math.copysign(middle, w) if top else w
                count += 1
            held[0, place] = part[i]
            if dof.size > 1:
                held[1, place] = dof[start + i]
            if not central:
                held[2, place] = nc[0 if nc.size == 1 else start + i]
            place += 1
            if place % _HELD == 0:
                place -= _HELD
                _add_powers(held[:, place : place + _HELD], dof, central, order, found[place // _HELD], room)
            places[keys[i]] = place
    for row in range(count):
        first, last = row * _HELD, places[int(found[row, 0])]
        _add_powers(held[:, first:last], dof, central, order, found[row], room)
    return found[:count]


@compiled()
def _add_exactly(values: Array, sums: Array, high: int, low: int) -> None:
    """Add all `values`, at most 64 numbers >= 0, to the unrounded number sums[high] + sums[low].

    Each value is divided into a multiple of a unit, so large that the sum of the multiples is exact, and a small rest.
    """
    top, total, rest = 0.0, 0.0, 0.0
    for value in values:
        top = max(top, value)
    unit = math.ldexp(1.0, math.frexp(top)[1] + 7) if top < _UNITS else 0.0
    for i in range(values.size):
        multiple = (unit + values[i]) - unit
        total += multiple
        rest += values[i] - multiple
    before = sums[high]
    sums[high] = before + total
    added = sums[high] - before
    sums[low] += (before - (sums[high] - added)) + (total - added) + rest


@compiled(fastmath={"reassoc"})
def _add_powers(held: Array, dof: Array, central: bool, order: int, cluster: Array, room: Array) -> None:
    """Add weights to `cluster`, a row of the result of `gather`, which has the sums of dof_j e_j^p and nc_j e_j^p.

    The rows of `held` are the w_j, dof_j and nc_j of these weights; if `dof` has a single entry, it is used in place of
    every dof_j. If `central` is true, all nc_j are 0, and their sums are not changed. `order` is the largest power in
    the sums, and `room` has space for two numbers for each weight.
    """
    key, center = cluster[0], cluster[1]
    tiny = key == _BELOW or key == _BELOW - 1  # |r| is below the least double
    e, power = room[0], room[1]
    lowest = cluster[2]
    for i in range(held.shape[1]):
        lowest = min(lowest, held[0, i])
    cluster[2] = lowest
    for i in range(held.shape[1]):
        e[i] = 0.0 if tiny else (held[0, i] - center) / center
    for which in range(1 if central else 2):
        for i in range(held.shape[1]):
            power[i] = dof[0] if which == 0 and dof.size == 1 else held[1 + which, i]
        _add_exactly(power[: held.shape[1]], cluster, 3 + which, 5 + 2 * order + which)
        for p in range(5 + which * order, 5 + which * order + order, 2):
            total, following = 0.0, 0.0
            for i in range(held.shape[1]):
                once = power[i] * e[i]
                power[i] = once * e[i]
                total += once
                following += power[i]
            cluster[p] += total
            cluster[p + 1] += following


@compiled()
def recenter(clusters: Array, binomials: Array) -> Array:
    """Move the center of each of the `clusters`, a result of `gather`, to the mean of the weights in the cluster.

    In this mean, the weight j counts dof_j + nc_j times. The search for a saddle point takes all weights of a cluster
    as equal to its center, and the mean represents them best. The row also has sums of powers of e, the relative
    distances of the weights from the center. These sums are computed again: if the relative distance of the new center
    from the old one is t, the distance e of a weight becomes (e - t) / (1 + t). `binomials` has the binomial
    coefficients of p over i, in the row p and the column i, up to the largest power p.
    """
    order = binomials.shape[0] - 1
    for cluster in clusters:
        old = cluster[1]
        cluster[1] = old * (1 + (cluster[5] + cluster[5 + order]) / (cluster[3] + cluster[4]))
        t = (cluster[1] - old) / old
        for start, total in ((5, cluster[3]), (5 + order, cluster[4])):
            for p in range(order, 0, -1):
                moment = total * (-t) ** p
                for i in range(1, p + 1):
                    moment += binomials[p, i] * cluster[start + i - 1] * (-t) ** (p - i)
                cluster[start + p - 1] = moment / (1 + t) ** p
    return clusters
