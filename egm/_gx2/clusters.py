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
# Where the parts of the vector `room` begin, after the relative distances e_j: their products with powers of e_j, and
# what `_add_exactly` divides numbers into.
_POWER, _MULTIPLE, _REST = _HELD, 2 * _HELD, 3 * _HELD
_LANES = 8  # pairs of numbers that the processor may compare at a time
_UNITS = 2.0**500  # numbers whose sum is below it are added without rounding


@compiled()
def gather(
    weights: Array, dof: Array, nc: Array, largest: float, order: int, most: int, wide: int, places: Indices
) -> Array:
    """Gather weights, of which none is above `largest`, in clusters; return an array with a row for each cluster.

    The vector `dof` has an entry for each of the `weights` or, if all degrees of freedom are 1, the single entry 1;
    `nc` has a single entry, or an entry for each weight, or none if all noncentralities are 0. Let r be a weight
    divided by `largest`. Two weights are in one cluster if their numbers r have the same sign, exponent and first four
    bits of the mantissa; for r > 1/2, the exponents and the bits of 1 - r are compared instead. If exponent and bits,
    read as one whole number, are below `wide`, a multiple of 128, only their first digits are compared, so that the
    cluster is eight octaves wide. A row of the array holds a key that orders the clusters by weight; the center of the
    cluster, which depends on the key and on `largest` alone (if |r| is below the least double, it is the first weight);
    its smallest weight; its sums of `dof` and of `nc`; its sums of dof_j e_j^p and then of nc_j e_j^p for p = 1, 2, ...
    up to `order`, where e_j is the relative distance of the weight j from the center, and `order` is even; and two
    small numbers, to be added to the sums of `dof` and of `nc`, whose rounding errors they are. If there would be more
    than `most` clusters, the array has no rows. `places` has `KEYS` numbers -1, and is overwritten.

    The weights of a cluster are held back until there are `_HELD` of them, because the processor computes the powers of
    several e_j at a time.
    """
    central = nc.size == 0
    found = np.zeros((most, 7 + 2 * order))
    held, room = np.empty((3, most * _HELD)), np.empty(4 * _HELD)
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


@compiled(fastmath={"reassoc"})
def _sum(room: Array, first: int) -> float:
    """Return the sum of `_HELD` numbers in `room`, from the index `first` on, which are added in any order."""
    total = 0.0
    for i in range(_HELD):
        total += room[first + i]
    return total


@compiled()
def _add_exactly(room: Array, sums: Array, high: int, low: int) -> None:
    """Add the `_HELD` numbers in `room` from the index `_POWER` on to the unrounded number sums[high] + sums[low].

    No number is negative. Each is divided into a multiple of a unit and a rest, which are written into the last two
    parts of `room`. The unit is the distance between neighboring doubles at `large`, which is far above the sum of the
    multiples. So this sum is exact in any order. Numbers so large that `large` might overflow are added as they are.
    """
    total = _sum(room, _POWER)
    large = _HELD * total if total < _UNITS else 0.0
    for i in range(_HELD):
        multiple = (large + room[_POWER + i]) - large
        room[_MULTIPLE + i], room[_REST + i] = multiple, room[_POWER + i] - multiple
    total, rest = _sum(room, _MULTIPLE), _sum(room, _REST)
    before = sums[high]
    sums[high] = before + total
    added = sums[high] - before
    sums[low] += (before - (sums[high] - added)) + (total - added) + rest


@compiled(fastmath={"reassoc"})
def _add_powers(held: Array, dof: Array, central: bool, order: int, cluster: Array, room: Array) -> None:
    """Add weights to `cluster`, a row of the result of `gather`, which has the sums of dof_j e_j^p and nc_j e_j^p.

    The rows of `held` are the w_j, dof_j and nc_j of these weights; if `dof` has a single entry, all dof_j are 1. If
    `central` is true, all nc_j are 0, and their sums are not changed. `order` is the largest power in the sums, and
    `room` has space for four numbers for each of `_HELD` weights. If there are fewer weights, zeros take the place of
    the others. So most loops have constant length, and the processor computes several numbers at a time.
    """
    key, center, size = cluster[0], cluster[1], held.shape[1]
    tiny = key == _BELOW or key == _BELOW - 1  # |r| is below the least double
    for i in range(size):
        room[i] = held[0, i]
    for i in range(size, _HELD):
        room[i] = cluster[2]
    for start in range(_LANES, _HELD, _LANES):
        for i in range(_LANES):
            least, w = room[_MULTIPLE + i] if start > _LANES else room[i], room[start + i]
            room[_MULTIPLE + i] = w if w < least else least
    for i in range(_LANES):
        cluster[2] = min(cluster[2], room[_MULTIPLE + i])
    for i in range(_HELD):
        room[i] = 0.0 if tiny else (room[i] - center) / center
    for which in range(1 if central else 2):
        ones = which == 0 and dof.size == 1
        for i in range(size):
            room[_POWER + i] = 1.0 if ones else held[1 + which, i]
        for i in range(size, _HELD):
            room[_POWER + i] = 0.0
        if ones:
            cluster[3] += size
        else:
            _add_exactly(room, cluster, 3 + which, 5 + 2 * order + which)
        for p in range(5 + which * order, 5 + which * order + order, 2):
            total, following = 0.0, 0.0
            for i in range(_HELD):
                once = room[_POWER + i] * room[i]
                room[_POWER + i] = once * room[i]
                total += once
                following += room[_POWER + i]
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
