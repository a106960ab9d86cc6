r"""Enclose the tails and the density of a generalized chi-square variable in balls, by a contour integral.

A ball is a number with a proved bound of its error: an interval or, for complex numbers, a rectangle.

The variable is :math:`Q = \sum_j w_j \chi^2(k_j, \lambda_j) + \tau Z` with weights of either sign, divided by a power
of two. Its cumulant function is

.. math::

    K(s) = \sum_j \Bigl[ -\frac{k_j}{2} \log(1 - 2 w_j s) + \frac{\lambda_j w_j s}{1 - 2 w_j s} \Bigr]
           + \frac{\tau^2 s^2}{2},

which is analytic except on cuts along the real axis. Let :math:`p_j = 1 / (2 w_j)`. One cut lies right of
:math:`\beta`, the least positive :math:`p_j`, and one lies left of :math:`\alpha`, the negative :math:`p_j` nearest
to 0. For :math:`y \ge 0` the tails are integrals of :math:`F(s) = e^{K(s) - s y} / s`, and the density is the integral
of :math:`s F(s)`:

.. math::

    P[Q > y] = \frac{1}{2 \pi i} \int_{\mathrm{Re}\, s = c} F(s) \, ds, \quad 0 < c < \beta; \qquad
    P[Q \le y] = -\frac{1}{2 \pi i} \int_{\mathrm{Re}\, s = c} F(s) \, ds, \quad \alpha < c < 0.

*The contour.* It is one branch of a hyperbola, :math:`s(u) = m + \rho \sin(\varphi + i u)` for real u, with
:math:`\rho > 0` and :math:`0 \le \varphi < \pi / 2`. A shift of u by :math:`i v` replaces :math:`\varphi` by
:math:`\varphi - v`, so all shifts are hyperbolas of this family. For :math:`u \ne 0` they do not meet the real axis,
and at u = 0 they cross it at :math:`m + \rho \sin \varphi`. Hence the integrand :math:`f(u) = F(s(u)) \, s'(u)` is
analytic in the strip :math:`\varphi - v \in [\varphi_0, \varphi_1]` if the interval from :math:`m + \rho \sin
\varphi_0` to :math:`m + \rho \sin \varphi_1` lies in :math:`(0, \beta)` for the upper tail, or in :math:`(\alpha, 0)`
for the lower one. This is checked. At both ends of the strip |F| falls to 0, because :math:`\mathrm{Re}(s y)` grows
or, for y = 0, because |F| falls like a power of |s| (above 1, if r > 1 below, as it must be). If :math:`\tau > 0`, the
angles are below :math:`\pi / 4`, so that :math:`\mathrm{Re}\, s^2` falls. So the vertical line may be replaced by the
hyperbola.

*The error of the sum.* The trapezoid rule of step h is used on the hyperbola of the middle angle,
:math:`(\varphi_0 + \varphi_1) / 2`. With :math:`a = (\varphi_1 - \varphi_0) / 2` its error is at most
:math:`(B_0 + B_1) / (e^{2 \pi a / h} - 1)`, where :math:`B_i` is the integral of |f| along the hyperbola of the angle
:math:`\varphi_i` (the proof of Theorem 5.1 in [1]_, with one integral for each edge).

*The integral of |f|.* Let :math:`C = \cosh u`, and for a real point p let :math:`q = (p - m) / \rho` and
:math:`b = q \sin \varphi`. Then

.. math::

    \mathrm{Re}\, s = m + \rho C \sin \varphi, \qquad
    |s - p|^2 = \rho^2 \bigl[ (C - b)^2 + (q^2 - 1) \cos^2 \varphi \bigr], \qquad
    |s'| = \rho \sqrt{C^2 - \sin^2 \varphi}.

So for C in an interval each factor of |F| has a simple bound, and the integral over :math:`|u| \le U` is bounded by a
sum over short intervals of u.

*The rest.* This is a bound for u > U, where :math:`C > C_U = \cosh U`. Without the noncentral terms, |F| falls there
at least like :math:`C^{-r}` with

.. math::

    r = C_U \Bigl( y \rho \sin \varphi - \sum_{b_j > C_U} \frac{e_j}{2 \cos \varphi \sqrt{q_j^2 - 1}} \Bigr)
        + \sum_{b_j \le C_U} e_j \frac{C_U (C_U - \max(b_j, 0))}{(C_U + |q_j|)^2}
        + \tau^2 \rho C_U (\rho C_U \cos 2 \varphi - m \sin \varphi),

if the brackets with y and with :math:`\cos 2 \varphi` are not negative. The sums run over the points :math:`p_j` with
:math:`e_j = k_j / 2` and, for a tail, over p = 0 with e = 1. The derivative of :math:`-\log |s - p|`
by C is :math:`(b - C) / ((C - b)^2 + (q^2 - 1) \cos^2 \varphi)`. The first sum contains its largest value; for the
second one, :math:`|s - p| \le \rho (C + |q|)`, and the terms grow with C. A noncentral term of log |F| is
:math:`\lambda (\mathrm{Re} (1 - s / p)^{-1} - 1) / 2`. Where this real part is positive, it falls with C if p > 0 and
:math:`b \le C_U`; otherwise it is at most the absolute value. Since :math:`|s'| \le \rho C`, the integral of |f| over
u > U and, for U = J h, the sum of h |f(j h)| over j > J are at most
:math:`|F(C_U)| \, \rho C_U / ((r - 1) \sqrt{1 - C_U^{-2}})` for r > 1, where :math:`|F(C_U)|` includes the bound of the
noncentral terms.

*Many weights* are gathered in clusters. With :math:`w_j = w (1 + e_j)` and :math:`V = 2 w s / (1 - 2 w s)`,

.. math::

    \log(1 - 2 w_j s) = \log(1 - 2 w s) - \sum_{p \ge 1} \frac{(V e_j)^p}{p}, \qquad
    \frac{1}{1 - 2 w_j s} = \frac{1}{1 - 2 w s} \sum_{p \ge 0} (V e_j)^p.

The sums of :math:`e_j^p` are balls, and the rest of each series is bounded by a geometric one. As :math:`|V e_j| < 1`
is checked, the logarithm of :math:`1 - V e_j` has an angle below :math:`\pi / 2`, and all three are principal values.

All of this is computed in balls, except the parameters of the contour, which are found in doubles. The enclosure
contains the exact value for all parameters that pass the checks, and good ones make it narrow.

References
----------
.. [1] Trefethen and Weideman (2014), "The Exponentially Convergent Trapezoidal Rule".
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from egm._enclosure import ball_arithmetic, precision
from egm._gx2.balls import Ball, Group, Law
from egm._lazy import cached_property

BOUND_BITS = 64  # precision of the bounds of |f|
MOST_STEPS = 80  # by which the end of a sum is moved outwards until a bound on the rest is small
STEEPEST = 0.78  # largest angle if there is a normal term: below pi / 4
_BOXES = 24  # first number of intervals for the integral of |f|
_MOST_BOXES = 50_000  # so many are needed only for noncentralities above 1e6


@dataclass(frozen=True)
class Contour:
    """Hold a contour (path of integration) for a variable Q: a hyperbola, the strip around it, and the nodes.

    `law` holds the parameters of Q, a generalized chi-square variable. A hyperbola is s(u) = m + rho sin(phi + i u)
    with the real parameter u. The strip has the hyperbolas whose angle phi is between `low` and `high`, and the
    trapezoid rule is used on the middle one. Along the middle one, the integral of f(u) = F(s(u)) s'(u) gives the upper
    tail if `upper` is true, and otherwise the lower one; F is the integrand in the docstring of the module. The nodes
    of the rule are u = j `step` for |j| <= `count`, and `bits` is the precision in which they are computed.

    The error of the trapezoid rule is bounded by the integrals of |f| along both edges of the strip, the hyperbolas
    with the angles `low` and `high`. `ends` has a number for each edge: the part of the integral with |u| above this
    number is bounded by `Edge.rest`, and the number is increased if that bound is not small. The bound of a whole
    integral is improved until it is at most exp(`level`), or hardly falls any more.
    """

    law: Law
    upper: bool
    m: float
    rho: float
    low: float
    high: float
    step: float
    count: int
    ends: tuple[float, float]
    level: float
    bits: int

    @cached_property
    def nodes(self) -> list[tuple[Ball, Ball, Ball]]:
        """Return (s, K(s), rho cos(phi + i u)) for the nodes s = m + rho sin(phi + i u), u = j step, j >= 0.

        K is the cumulant function. The third number is the derivative of s by u, divided by i.
        """
        flint = ball_arithmetic()
        nodes = []
        with precision(self.bits):
            self._check()
            phi = (flint.arb(self.low) + self.high) / 2
            for j in range(self.count + 1):
                sine, cosine = flint.acb(phi, flint.arb(self.step) * j).sin_cos()
                s = self.m + self.rho * sine
                nodes.append((s, self.law.cumulant(s), self.rho * cosine))
        return nodes

    def _check(self) -> None:
        """Raise an ArithmeticError unless it is proved that the bounds on the error hold for this contour.

        The bounds hold if the integrand is analytic in the strip around the contour, and falls to 0 at both ends of the
        strip.
        """
        arb = ball_arithmetic().arb
        left, right = (self.m + self.rho * arb(angle).sin() for angle in (self.low, self.high))
        steep = self.law.variance > 0 and not self.high < STEEPEST
        inside = left > 0 if self.upper else right < 0
        valid = self.rho > 0 and self.low < self.high and self.step > 0
        if steep or not (valid and inside and right * self.law.largest < 1 and left * self.law.least < 1):
            raise ArithmeticError("no contour was found on which the integral can be enclosed")

    def sums(self, y: Ball) -> tuple[Ball, Ball]:
        """Return the trapezoid sums for the tail and for the density at `y`, without bounds on their errors.

        `y` and both results are real balls, which are intervals that contain the exact numbers.
        """
        flint = ball_arithmetic()
        with precision(self.bits):
            tail = density = flint.arb(0)
            for j, (s, cumulant, slope) in enumerate(self.nodes):
                value = (cumulant - s * y).exp() * slope / (2 if j == 0 else 1)
                tail, density = tail + (value / s).real, density + value.real
            scale = self.step / flint.arb.pi()
            return (scale if self.upper else -scale) * tail, scale * density

    def enclose(self, y: Ball, density: bool = False) -> Ball:
        """Return a real ball (an interval) that contains a tail or, if `density` is true, the density of Q at `y`.

        Q is the variable for which this object holds a contour (path of integration). The tail is P[Q > y] if `upper`
        is true, otherwise P[Q <= y]. `y` is a real ball of numbers >= 0.
        """
        flint = ball_arithmetic()
        value = self.sums(y)[density]
        with precision(self.bits):
            return value + flint.arb(0, self._error(y, density).upper())

    def _error(self, y: Ball, density: bool) -> Ball:
        """Return a bound on the error of a trapezoid sum at `y`, one of the two results of `sums`.

        The sum is for the density if `density` is true, and otherwise for the tail.
        """
        flint = ball_arithmetic()
        with precision(BOUND_BITS):
            arb = flint.arb
            whole = arb(0)
            for angle, end in zip((self.low, self.high), self.ends, strict=True):
                edge = Edge(self, arb(angle), y, density)
                whole += 2 * edge.integral(end, arb(self.level).exp())
            strip = whole / ((arb.pi() * (arb(self.high) - self.low) / self.step).exp() - 1)
            middle = Edge(self, (arb(self.low) + self.high) / 2, y, density)
            cut = 2 * middle.rest(arb(self.step) * self.count)
            return (strip + cut) / (2 * arb.pi())


class Edge:
    """Bound the integrand of a contour integral, and the integral of its absolute value, along a hyperbola.

    The docstring of the module has the formulas.
    """

    def __init__(self, contour: Contour, angle: Ball, y: Ball, density: bool) -> None:
        """Prepare bounds of an integrand along the hyperbola of `contour` with another `angle`.

        This hyperbola is one of the two edges of a strip around the contour. The integral gives the density at `y`, a
        real ball, if `density` is true, and otherwise the tail at `y`.
        """
        self.law, self.y = contour.law, y
        self.m, self.rho = y * 0 + contour.m, y * 0 + contour.rho
        self.sine, self.cosine = angle.sin(), angle.cos()
        if not (self.sine >= 0 and self.cosine > 0 and y >= 0):
            raise ArithmeticError("the angle of a contour must lie between 0 and pi / 2")
        self.places = [self._place(1 / group.twice) for group in self.law.groups]
        self.pole = None if density else self._place(y * 0)
        self.alike: dict[Any, list[tuple[Ball, Ball, Ball]]] = {}  # central single weights by degrees of freedom
        self.others = []
        for group, place in zip(self.law.groups, self.places, strict=True):
            _, b, rest, p = place
            if group.shift.is_zero() and not group.moments and group.half.is_exact():
                self.alike.setdefault(group.half.man_exp(), []).append((b, rest, 1 / p))
            else:
                self.others.append((group, *place))

    def _place(self, p: Ball) -> tuple[Ball, Ball, Ball, Ball]:
        """Return q = (p - m) / rho, b = q sin phi, (q^2 - 1) cos^2 phi and (p / rho)^2 for the real `p`, as balls.

        These numbers serve to bound the distance |s - p| for all points s = m + rho sin(phi + i u) of the hyperbola of
        this edge, where u is real.
        """
        q = (p - self.m) / self.rho
        return q, q * self.sine, (q * q - 1) * self.cosine**2, (p / self.rho) ** 2

    def log_size(self, c: Ball, central: bool = False) -> Ball:
        """Return an upper bound of log |F| on the hyperbola s(u) for all u with cosh u in `c`, an interval (real ball).

        s(u) is m + rho sin(phi + i u), and F is the integrand of the tail or, if the edge was made for the density, of
        the density. The terms of the noncentralities are left out if `central` is true. If no bound is proved, the
        result is infinite or NaN.
        """
        low, high = c.lower(), c.upper()
        length = ((abs(self.m) + self.rho * self.sine * high) ** 2 + (self.rho * self.cosine * high) ** 2).sqrt()
        total = -self.y * (self.m + self.rho * self.sine * low)
        if not self.law.variance.is_zero():
            square = self.m**2 + self.rho**2 * (self.cosine**2 - (self.cosine**2 - self.sine**2) * low**2)
            cross = 2 * self.m * self.rho * self.sine * (high if self.m > 0 else low)
            total += self.law.variance / 2 * (square + cross)
        if self.pole is not None:
            _, b, rest, _ = self.pole
            total -= (((c - b).abs_lower() ** 2 + rest).lower() * self.rho**2).log() / 2
        for (mantissa, exponent), places in self.alike.items():
            product = self.m * 0 + 1
            for b, rest, inverse in places:
                square = ((c - b).abs_lower() ** 2 + rest).lower()
                if not square > 0:  # two negative bounds would have a positive product
                    return self.y + self.y.pos_inf()
                product *= square * inverse
            total -= mantissa * (self.m * 0 + 2) ** (exponent - 1) * product.lower().log()
        for group, q, b, rest, p in self.others:
            square = ((c - b).abs_lower() ** 2 + rest).lower()
            total -= group.half / 2 * (square / p).log()
            noncentral = not (central or group.shift.is_zero())
            if not (noncentral or group.moments):
                continue
            if noncentral:
                around = (square.union((c - b).abs_upper() ** 2 + rest)) / p.sqrt()
                ratio = (q - self.sine * c if group.twice > 0 else self.sine * c - q) / around
                total += group.shift * (ratio.upper() - 1)
            if group.moments:
                far = length / (square.sqrt() * self.rho)  # a bound on |V|
                near = far * group.spread
                if not near < 0.9:
                    return self.y + self.y.pos_inf()
                (of_half, of_shift), (square_of_half, square_of_shift) = group.moments[:2]
                rest_of_series = near**3 / (1 - near)
                if central:
                    of_shift, square_of_shift = 0 * of_shift, 0 * square_of_shift
                total += far * abs(of_half + of_shift) + far**2 * (abs(of_shift) + square_of_half / 2)
                total += group.half * rest_of_series / 3
                if noncentral:
                    total += (p / square).sqrt() * (far**2 * square_of_shift + group.shift * rest_of_series)
        return total.upper()

    def integral(self, end: float, enough: Ball) -> Ball:
        """Return a bound on the integral of |f| over u >= 0, where f(u) is the integrand along this edge.

        The edge is a hyperbola with the real parameter u. First `end` is increased until the bound that the method
        `rest` gives for u > `end` is small; it is a part of the result. Then the intervals of u up to `end` are halved
        until the whole bound is at most `enough`, or hardly falls any more.
        """
        arb = ball_arithmetic().arb
        center = self.log_size(arb(1)).exp() * self.rho * self.cosine
        for _ in range(MOST_STEPS):
            rest = self.rest(arb(end))
            if 100 * rest < center:
                break
            end *= 1.1
        count, before = _BOXES, None
        while True:
            total = rest
            edges = [(arb(end) * j / count).cosh() for j in range(count + 1)]
            for one, other in itertools.pairwise(edges):
                slope = self.rho * (other**2 - self.sine**2).sqrt()
                total += self.log_size(one.union(other)).exp() * slope * end / count
            total = total.upper()
            if (
                count > _MOST_BOXES
                or total <= enough
                or (before is not None and total.is_finite() and 4 * total > before)
            ):
                return total
            count, before = 2 * count, total

    def rest(self, end: Ball) -> Ball:
        """Return an upper bound of the integral of |f| over all u > `end`, or infinity if no bound is proved.

        f is the integrand along the hyperbola, a function of its real parameter u. `end` and the result are real balls
        (intervals that contain the exact numbers).
        """
        infinite, c = end.pos_inf(), end.cosh()
        fall, helped, noncentral = self.y * self.rho * self.sine, 0 * end, 0 * end
        terms = [(group, *place) for group, place in zip(self.law.groups, self.places, strict=True)]
        if self.pole is not None:
            terms.append((Group(end, 1 + 0 * end, 0 * end, 0 * end, ()), *self.pole))
        for group, q, b, rest, p in terms:
            if group.moments:
                spread = group.spread.neg().union(group.spread)
                q, b, rest, p = self._place(1 / (group.twice * (1 + spread)))
            beyond = c > b
            if beyond:
                least = (c - b) ** 2 + rest
                helped += group.half * (c * (c - b.max(0)) / (c + abs(q)) ** 2).lower()
            elif abs(q) > 1:
                least, v = rest, b - c
                fall -= (group.half * v / (v * v + rest) if v * v < rest else group.half / (2 * rest.sqrt())).upper()
            else:
                return infinite
            if not group.shift.is_zero():
                falls = beyond and group.twice > 0
                ratio = ((q - self.sine * c) * p.sqrt() / least).max(0) if falls else (p / least).sqrt()
                noncentral += group.shift * (ratio.upper() - 1)
        drop = c * fall + helped
        if not self.law.variance.is_zero():
            bracket = self.rho * c * (self.cosine**2 - self.sine**2) - self.m * self.sine
            drop += self.law.variance * self.rho * c * bracket
            if not bracket >= 0:
                return infinite
        if not (fall >= 0 and drop > 1):
            return infinite
        size = (self.log_size(c, central=True) + noncentral).exp()
        return (size * self.rho * c / ((drop - 1) * (1 - c**-2).sqrt())).upper()
