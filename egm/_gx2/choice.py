"""Choose, in doubles, the contour along which a tail of a generalized chi-square variable is enclosed.

The contour is a hyperbola in the complex plane; the docstring of `enclosed` has its formula and explains the names.
An enclosure contains the exact tail for every choice of the contour; a good choice makes it narrow, with few nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from egm._enclosure import ball_arithmetic, precision
from egm._gx2.balls import Ball, Law
from egm._gx2.enclosed import BOUND_BITS, MOST_STEPS, STEEPEST, Contour, Edge
from egm._types import Array

_ANGLES = (1.25, 0.9, 0.6, 0.3)  # largest angles of a strip that are tried
_LEAST_ANGLE = 0.03  # least angle of a strip for y > 0: every contour bends
_RISES = (1.0, 4.0, 12.0, 40.0)  # rises of log |F| from the saddle point to both ends of a strip that are tried
_MARGIN = 4.0  # the strip keeps exp(-_MARGIN) of the saddle point's distance from 0 and from the cut
_POINTS = 49  # points of a contour at which |f| is computed to choose the parameters
_DEPTH = 12.0  # the grid of an edge ends where log |f| is so far below its largest value
_END = 690.0  # cosh of it is a double
_SLACK = 6.0  # by how much, in logarithms, bounds may be above the estimates in doubles
_MOST_NODES = 30_000  # mostly there are less than 250; some tails of 100 000 degrees of freedom need more than 3000
_MOST_BITS = 3_000


def contour_of(law: Law, y: Ball, upper: bool, bits: float) -> Contour:
    """Choose a contour (path of integration) by which about `bits` bits of a tail of a variable Q are certain.

    `law` holds the parameters of Q, a generalized chi-square variable. The tail is that at `y`, a real ball (an
    interval) of numbers >= 0. It is the upper tail if `upper` is true, otherwise the lower one. An ArithmeticError is
    raised if no contour is found.
    """
    flint = ball_arithmetic()
    with np.errstate(all="ignore"):
        found = _Search(law, max(float(y), 0.0), upper, bits * math.log(2)).best()
    failure = ArithmeticError(
        f"no contour was found for the {'upper' if upper else 'lower'} tail: choose a less extreme point or"
        " probability, or parameters that differ by fewer orders of magnitude"
    )
    if found is None:
        raise failure
    contour, log_cut = found
    with precision(BOUND_BITS):
        middle = Edge(contour, (flint.arb(contour.low) + contour.high) / 2, y, False)
        count = contour.count
        for _ in range(MOST_STEPS):
            if middle.rest(flint.arb(contour.step) * count) < flint.arb(log_cut).exp():
                break
            count = math.ceil(1.05 * count) + 1
    if count > _MOST_NODES:
        raise failure
    return replace(contour, count=count)


def start(law: Law, log_p: float, upper: bool) -> tuple[float, float]:
    """Return an estimate of the y at which a tail has the logarithm `log_p`, and Chernoff's bound on this y.

    The estimate is by the saddlepoint formula, an approximation of the tail in closed form. `law` holds the parameters
    of the distribution. If `upper` is true, the tail is the upper one, and y is at most the bound. Otherwise the tail
    is the lower one, and y is at least the bound.
    """
    axis = _Axis(law, upper)

    def missing(t: float) -> float:
        s = axis.point(t)
        return axis.log_tail(s, axis.y_of(s)) - log_p

    with np.errstate(all="ignore"):
        s = axis.point(_bisect(missing, axis.near, axis.far))
        y = axis.y_of(s)
        return y, y + (axis.log_size(s, y) + math.log(abs(s)) - log_p) / s


def tilt(law: Law, y: float, upper: bool) -> float:
    """Return a real s at which Chernoff's bound exp(K(s) - s y) of a tail at `y` is small.

    K is the cumulant function of the distribution, whose parameters `law` holds. If `upper` is true, the tail is the
    upper one, and s > 0. Otherwise the tail is the lower one, and s < 0.
    """
    axis = _Axis(law, upper)
    with np.errstate(all="ignore"):
        return axis.point(axis.saddle(y))


def _bisect(falling: Callable[[float], float], low: float, high: float, steps: int = 60) -> float:
    """Return the root of the decreasing function `falling` between `low` and `high`, found by bisection.

    If the root is outside, the nearer one of `low` and `high` is returned. The interval is halved `steps` times.
    """
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(middle) > 0 else (low, middle)
    return (low + high) / 2


class _Axis:
    """Compute the integrand F(s) = exp(K(s) - s y) / s and the saddlepoint formula on the real axis, on one side of 0.

    K is the cumulant function. A point is given by a real number t: from `near`, where s(t) is next to 0, to `far`,
    where s(t) is next to the point at which F ceases to be analytic or, without such a point, far away.
    """

    def __init__(self, law: Law, upper: bool) -> None:
        """Choose the side of the real axis for a tail: s > 0 for the upper tail, if `upper` is true, otherwise s < 0.

        `law` holds the parameters of the distribution.
        """
        self.law, self.sign = law, 1.0 if upper else -1.0
        extreme = float(law.largest if upper else -law.least)
        self.bound = 1 / extreme if extreme > 0 else math.inf
        self.near, self.far = -690.0, 34.0 if self.bound < math.inf else 690.0

    def point(self, t: float) -> float:
        """Return s(t), a point on the real axis that moves away from 0 as the real number `t` grows.

        For t = self.near it is next to 0. For t = self.far it is next to the singularity of the integrand or, if there
        is none, far away.
        """
        size = math.exp(t) if self.bound == math.inf else self.bound / (1 + math.exp(-t))
        return self.sign * size

    def y_of(self, s: float) -> float:
        """Return the y for which the real number `s` is the saddle point of the integrand of the tail at y.

        The integrand is exp(K(s) - s y) / s, where K is the cumulant function. At the saddle point its derivative is 0.
        """
        v = self.law.twice * s / (1 - self.law.twice * s)
        total = self.law.half @ v + self.law.shift @ (v * (1 + v)) + (self.law.tau * s) ** 2
        return float((total - 1) / s)

    def saddle(self, y: float) -> float:
        """Return the t at which ``point(t)`` is the saddle point of the integrand of the tail at `y`."""
        return _bisect(lambda t: self.sign * (y - self.y_of(self.point(t))), self.near, self.far)

    def log_size(self, s: float, y: float) -> float:
        """Return the logarithm of the size of exp(K(s) - s y) / s, the integrand of the tail at `y`, for a real `s`.

        K is the cumulant function.
        """
        ratio = self.law.twice * s
        total = -self.law.half @ np.log1p(-ratio) + self.law.shift @ (ratio / (1 - ratio))
        return float(total + (self.law.tau * s) ** 2 / 2 - s * y - math.log(abs(s)))

    def log_tail(self, s: float, y: float) -> float:
        """Return the logarithm of the tail at `y` by the saddlepoint formula, an approximation in closed form.

        K is the cumulant function of the variable. Its tail is an integral of exp(K(s) - s y) / s over a contour in the
        complex plane. `s` is the saddle point, the real number at which the derivative of this integrand is 0.
        """
        v = self.law.twice * s / (1 - self.law.twice * s)
        bend = 1 + (self.law.tau * s) ** 2 + self.law.half @ v**2 + self.law.shift @ (2 * v**2 * (1 + v))
        return self.log_size(s, y) + math.log(abs(s)) - math.log(2 * math.pi * bend) / 2


class _Search:
    """Search, in doubles, for the contour with the fewest nodes for a tail of a generalized chi-square variable.

    The tail is an integral along the contour, which shall have a given relative error.
    """

    def __init__(self, law: Law, y: float, upper: bool, goal: float) -> None:
        """Keep the arguments: a tail at the point `y` shall have a relative error of at most exp(-`goal`).

        `law` holds the parameters of the distribution. The tail is the upper one if `upper` is true, otherwise the
        lower one.
        """
        self.law, self.y, self.upper, self.goal = law, y, upper, goal
        self.axis = _Axis(law, upper)

    def best(self) -> tuple[Contour, float] | None:
        """Return the contour (path of integration) with the fewest nodes, and the log of the error that is allowed.

        Several contours are tried. The nodes are those of the trapezoid rule, and the error is the absolute one of the
        tail. The result is None if none of the contours is possible.
        """
        axis, y, law = self.axis, self.y, self.law
        saddle = axis.saddle(y)
        c = axis.point(saddle)
        top, tail = axis.log_size(c, y), axis.log_tail(c, y)
        size = float(law.half @ abs(np.log1p(-law.twice * c)) + law.half.sum() + law.shift.sum() + abs(c * y))

        def excess(falling: int, level: float, t: float) -> float:
            """Return `falling` times (log |F| - `level`) at the point ``axis.point(t)`` of the real axis.

            F is the integrand of the tail, and `falling` is 1 or -1, so that the result falls as t grows.
            """
            return falling * (axis.log_size(axis.point(t), y) - level)

        best: tuple[float, Contour] | None = None
        for rise in _RISES:
            ends = sorted(
                axis.point(_bisect(partial(excess, falling, top + rise), *side, steps=10))
                for falling, side in ((1, (saddle - _MARGIN, saddle)), (-1, (saddle, saddle + _MARGIN)))
            )
            for high in _ANGLES:
                if law.variance > 0 and high > STEEPEST:
                    continue
                found = self._with(ends, _LEAST_ANGLE if y else 0.0, high, tail, size)
                if found and (best is None or found[0] < best[0]):
                    best = found
        return best and (best[1], tail - self.goal)

    def _with(
        self, ends: list[float], low: float, high: float, tail: float, size: float
    ) -> tuple[float, Contour] | None:
        """Return the number of nodes of the contour (path of integration) in the middle of a strip, and this contour.

        The strip has the hyperbolas m + rho sin(phi + i u) for phi from `low` to `high`, and crosses the real axis
        between the two `ends`, which give m and rho. The result is None if no such contour is possible. `tail` is an
        estimate of the logarithm of the tail. The precision depends on `size`, an estimate of the sizes of the terms in
        the exponent of the integrand.
        """
        rho = (ends[1] - ends[0]) / (math.sin(high) - math.sin(low))
        m = ends[0] - rho * math.sin(low)
        if not 0 < rho < math.inf:
            return None
        wanted = tail - self.goal
        edges = [self._sizes(m, rho, angle, None) for angle in (low, high)]
        middle = self._sizes(m, rho, (low + high) / 2, wanted - 3)
        if middle is None or edges[0] is None or edges[1] is None:
            return None
        whole = max(float(values.max()) + math.log(u[-1]) for u, values in (edges[0], edges[1]))
        step = math.pi * (high - low) / (whole - wanted + _SLACK)
        u, values = middle
        nodes = float(u[np.flatnonzero(values > wanted - 3)[-1] + 1]) / step
        bits = (self.goal + float(values.max()) - tail) / math.log(2) + math.log2(1 + size) + 40
        if not (0 < nodes < _MOST_NODES and 0 < bits < _MOST_BITS):
            return None
        count, reaches = math.ceil(nodes) + 1, (float(edges[0][0][-1]), float(edges[1][0][-1]))
        level = whole + _SLACK - 3
        return count, Contour(self.law, self.upper, m, rho, low, high, step, count, reaches, level, math.ceil(bits))

    def _sizes(self, m: float, rho: float, angle: float, floor: float | None) -> tuple[Array, Array] | None:
        """Compute log |f| at numbers u >= 0 along a hyperbola s(u); return the numbers and the values, or None.

        f(u) is the integrand exp(K(s) - s y) / s of the tail times s'(u), with the cumulant function K, and s(u) = m +
        rho sin(angle + i u). The numbers u have equal steps, and end where log |f| is below `floor` or, if this is
        None, below its largest value minus `_DEPTH`. The result is None if log |f| is not finite or no such numbers are
        found.
        """
        law, end = self.law, 4.0
        for _ in range(30):
            u = np.linspace(0, end, _POINTS)
            s = m + rho * np.sin(angle + 1j * u)
            inverse = 1 / (1 - law.twice * s[:, None])
            values = np.log(abs(inverse)) @ law.half + inverse.real @ law.shift - law.shift.sum() - self.y * s.real
            values += ((law.tau * s) ** 2).real / 2 - np.log(abs(s)) + np.log(rho * abs(np.cos(angle + 1j * u)))
            if np.any(np.isnan(values)) or values.max() == np.inf:
                return None
            alive = np.flatnonzero(values > (values.max() - _DEPTH if floor is None else floor))
            if not alive.size or (alive[-1] == _POINTS - 1 and end == _END):
                return None
            if 12 <= alive[-1] < _POINTS - 1:
                return u, values
            end = min(1.6 * end, _END) if alive[-1] == _POINTS - 1 else end * max(alive[-1] + 2, 4) / 40
        return None
