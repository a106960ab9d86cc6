"""Compile the loops for the tail probabilities of a generalized chi-square variable, computed by contour integrals.

In this module a distribution is given by three arguments, and K is its cumulant function. The array `table` has the
shape (4, groups), and its rows are r, 1 - r, the degrees of freedom k and the noncentrality of each group of equal or
close weights, where r is the weight of the group divided by the largest weight. `normal` is the standard deviation of
the normal term, divided by `unit` of `Form` (twice the largest weight). A group of weights that are close but differ is
a cluster. What these differences add to K(s) is a power series in r s / (1 - r s): `series` has a column with its
coefficients for each group, and no rows if there are no clusters. A point `x` of the distribution is divided by `unit`,
too.

A point c where a contour crosses the real axis is given by the number `theta` and by `lower`. If `lower` is true, c is
-exp(theta), for the lower tail. Otherwise c is 1 / (1 + exp(-theta)), for the upper tail. The array `at`, of the shape
(3, groups), holds numbers for the point c: `cross` writes its first two rows, and `_prepare` the last one.

Functions whose decorator has a signature are compiled when this module is imported, because nearly every call of
`egm.gx2` needs them.
They are written so that this is quick: they do not use powers, max and min, and make no arrays, because numba would
compile further functions for each of these operations.
"""

from __future__ import annotations

import math

import numpy as np

from egm._compiled import compiled
from egm._types import Array, Complex, Indices

NEGLIGIBLE = 1e-17  # relative size at which the integrand counts as having died away
_STEP = 0.2  # step of the first trapezoid rule, in units in which the integrand falls like exp(-u^2/2)
MOST_NODES = 8192  # most nodes of a quadrature
_OFF = 0.01  # most distance of a contour from the saddle point, in units in which the integrand falls like exp(-u^2/2)
_TOLERANCE = 1e-12  # least tolerance of the search for a saddle point
CLOSE = 10.0  # theta from which c is so near 1 that 1 - c is not computed from the rounded c
FAR = 100.0  # largest theta of an upper tail; beyond it, powers of 1 / (1 - c) would overflow
_HALVINGS = 5  # largest number of times that the step is halved
_RTOL = 1e-13  # relative error at which the quadrature aims; the rounding of the exponent comes on top
TOP = 1 - 0.5 * math.log(2 * math.pi)  # largest logarithm of a tail that the saddlepoint formula can give
_ROUNDING = 2e-14  # relative error of a sum over the nodes, for an integrand that is largest at the saddle point
_TURN = 2.8  # most turn of the integrand in one step, in radians
_MULTIPLIED = 64.0  # n factors, each of k degrees of freedom, are multiplied only if k sqrt(n) is at most this
_FRACTION = 200.0  # number of terms of the continued fraction, times |z| + Re z
_BESIDE = 64  # groups whose sums over the nodes are computed at a time
# Where the parts of `block` in `sums_of_inverses` begin, after the numbers q: each part has `_BESIDE` entries.
_SLACK, _INVERSE, _INVERSE_IMAG, _SERIES, _SERIES_IMAG, _POWER, _POWER_IMAG = (_BESIDE * part for part in range(1, 8))
_TOGETHER = 16  # nodes for which factors are multiplied at a time
# Where the parts of the vector of nodes begin, after the real parts of the nodes: for the imaginary parts, the
# derivatives by u, the real and the imaginary part of the growth, what rounding has taken away from these two, and a
# product of factors with its turns and scalings.
_B, _SLOPE, _RISE, _GROWTH, _TURN_OF_GROWTH, _LOST, _LOST_TURN = (_TOGETHER * part for part in range(1, 8))
_REAL, _IMAG, _TURNS, _SCALES = (_TOGETHER * part for part in range(8, 12))
# Where the parts for a block of clusters begin: the real and the imaginary part of V, and of a power series in V. And
# where the parts for four sums over the nodes begin, and where the vector ends.
_V, _V_IMAG, _SUM, _SUM_IMAG = (_TOGETHER * 12 + _BESIDE * part for part in range(4))
_SUMS, _OTHERS, _COARSE, _FINE, WHOLE = (_TOGETHER * 12 + _BESIDE * 4 + 4 * part for part in range(5))
_WIDEST = 2.0  # largest h of a hyperbola, divided by the distance from c to the cut; 3 to 7 were worse for few dof
_MOST_REACH = 8.0  # largest reach of a contour: for |u| above the reach its nodes spread exponentially
_GROWS = 1e3  # largest factor by which an integrand may grow along a contour; `hyperbola` allows more for a reduced h
_SCALED = 8  # factors that are multiplied before their product is scaled, if it is large
_OVERFLOWS, _FIRST = 1e300, -690.0  # a variance that may overflow, and the theta at which a search then starts
_LARGE, _LOG_LARGE = 2.0**500, 500 * math.log(2.0)
_FACTOR = 2.0**60  # size of factors from which they are not multiplied: `_SCALED` of them and _LARGE would overflow
# In `arrange`, largest k, nc, and ratio of other numbers, and range of the weights: so nothing overflows in `approach`.
_PLAIN, _SMALLEST, _LARGEST = 1e30, 1e-200, 1e200
# How a quadrature ended: it is accurate; the integrand grows or does not die away; the last two sums do not agree.
DIED, GROWS, ROUGH = 0, 1, 2


@compiled(inline="always")
def place(theta: float, lower: bool) -> tuple[float, float, float]:
    """Return the point c where a contour (path of integration) crosses the real axis, 1 - c, and a derivative.

    The derivative is that of log|c| by `theta`. c is -exp(theta) if `lower` is true, and otherwise 1 / (1 +
    exp(-theta)). If `lower` is true, the second result is 0, because 1 - c is not needed then. Otherwise 1 - c is
    computed without cancellation.
    """
    if lower:
        return -math.exp(theta), 0.0, 1.0
    c, rest = 1 / (1 + math.exp(-theta)), 1 / (1 + math.exp(theta))
    return c, 1 - c if theta < CLOSE else rest, rest


@compiled("(f8[:, ::1], f8, f8, b1, f8[:, ::1])")
def cross(table: Array, normal: float, theta: float, lower: bool, at: Array) -> tuple[float, ...]:
    """Compute derivatives of the cumulant function K at the point c that `theta` and `lower` give.

    c is the point where a contour (path of integration) crosses the real axis; the docstring of the module explains the
    arguments. For each group of weights, with the number r in `table`, 1 - r c and v = r c / (1 - r c) are written into
    the first two rows of `at`. In a cluster, all weights count as equal to its center.

    The results are (c, pace, gain, loss, convex, concave, third).

    - pace is the derivative of log|c| by theta.
    - gain - loss is c K'(c), and convex + concave is c^2 K''(c). Both are sums with a term for the normal variable and
      one for each group. gain and convex have the terms for the normal variable and for the groups with v > 0; -loss
      and concave have all other terms.
    - third is c^3 K'''(c).
    """
    c, rest, pace = place(theta, lower)
    nn = normal * c * (normal * c) if normal else 0.0
    gain, loss, convex, concave, third = nn, 0.0, nn, 0.0, 0.0
    for j in range(table.shape[1]):
        r, k, nc = table[0, j], table[2, j], table[3, j]
        slack = 1 - c * r if lower else rest + c * table[1, j]
        v = c * r / slack
        at[0, j], at[1, j] = slack, v
        square, inflated = v * v, nc / slack
        first, second = v * (k + inflated) / 2, square * (k / 2 + inflated)
        if v > 0:
            gain += first
            convex += second
        else:
            loss -= first
            concave += second
        third += square * v * (k + 3 * inflated)
    return c, pace, gain, loss, convex, concave, third


@compiled(inline="always")
def _add(term: float, total: float, lost: float) -> tuple[float, float]:
    """Return `total` + `term`, rounded, and `lost` plus what the rounding has taken away."""
    after = total + term
    part = after - total
    return after, lost + ((total - (after - part)) + (term - part))


@compiled("(f8[:, ::1], f8, f8, f8[:, ::1])")
def height_at(
    table: Array, normal: float, c: float, at: Array
) -> tuple[float, float, float, float, float, float, float]:
    """Compute K(c) as if all weights of a cluster were equal to its center, K(c) - K'(0) c, and bounds of roundings.

    K is the cumulant function of the generalized chi-square distribution whose parameters are in `table` and `normal`,
    and K'(0) is the mean. `at` has 1 - r c and r c / (1 - r c) for each group, from `cross`. The results are

    - K(c), a sum over groups of weights.
    - A sum of the absolute values of all its terms, the normal term counted twice, and of k min(|r c|, 1) for each
      group. Here k is the degrees of freedom of the group, and r is its weight divided by the largest one.
    - The root of the sum of all k^2, but at most 64, above which no factors are multiplied (`_MULTIPLIED`): the
      rounding errors of a quadrature grow with it.
    - K(c) - K'(0) c. A group has the term (-log(1 - y) - y) k / 2 with y = r c, plus a term for its noncentrality. Near
      y = 0 the logarithm and y would cancel. There -log(1 - y) is replaced by the series of 2 artanh(z) with
      z = y / (2 - y), which is the same function.
    - The sum of the absolute values of these terms.
    - K'(0), rounded, and what must be added to it because of the rounding.

    What is lost when a term is added to the first or the fourth sum, by rounding, is added at the end.
    """
    size = normal * c * (normal * c) if normal else 0.0
    height, lost, bend, lost_of_bend, bent = size / 2, 0.0, size / 2, 0.0, size / 2
    mean, lost_of_mean, squares = 0.0, 0.0, 0.0
    for j in range(table.shape[1]):
        y, k, nc = c * table[0, j], table[2, j], table[3, j]
        log = math.log1p(-y) if y < 0.5 else math.log(at[0, j])  # 1 - y has lost digits of a small y
        height, lost = _add((at[1, j] * nc - k * log) / 2, height, lost)
        size += k * (abs(log) / 2 + (1.0 if abs(y) > 1 else abs(y))) + abs(at[1, j]) * nc / 2
        squares += k * k
        mean, lost_of_mean = _add(table[0, j] * (k + nc) / 2, mean, lost_of_mean)
        log_less_y = -log - y
        if abs(y) < 0.1:
            z = y / (2 - y)
            q = z * z
            series = 1 / 3 + q * (1 / 5 + q * (1 / 7 + q * (1 / 9 + q * (1 / 11 + q / 13))))
            log_less_y = 2 * q * (1 / (1 + z) + z * series)
        term = (k * log_less_y + nc * y * at[1, j]) / 2
        bend, lost_of_bend = _add(term, bend, lost_of_bend)
        bent += abs(term)
    roughness = math.sqrt(squares) if squares < 4096 else 64.0
    return height + lost, size, roughness, bend + lost_of_bend, bent, mean, lost_of_mean


@compiled("(f8, f8, f8, f8, f8)")
def newton(u: float, value: float, slope: float, low: float, high: float) -> tuple[float, float, float]:
    """Take one step from `u` towards the zero of an increasing function; the zero lies between `low` and `high`.

    `value` and `slope` are those of the function at `u`. The results are the next u, and the two ends of a new interval
    that contains the zero; one end is `u`, and the other one may be infinite. The next u is found by Newton's method
    or, if that leaves the interval or comes close to its other end, by bisection. If `slope` is too small, Newton's
    method alone could oscillate for ever.
    """
    low, high = (u, high) if value < 0 else (low, u)
    step = -value / slope if slope > 0 else -math.copysign(1.0, value)
    target = u + (math.copysign(30.0, step) if abs(step) > 30 else step)
    inside = low < target < high and abs(target - u) < 0.9 * (high - low)
    return target if inside else (low + high) / 2, low, high


@compiled("(f8[:, ::1], f8, f8, b1, f8[:, ::1])")
def saddle(table: Array, normal: float, x: float, lower: bool, at: Array) -> float:
    """Find the theta of the saddle point of exp(K(s) - s x) / s, or return NaN after 200 steps.

    theta gives the point c = -exp(theta) if `lower` is true, and otherwise c = 1 / (1 + exp(-theta)). K is the cumulant
    function of the generalized chi-square distribution whose parameters are in `table` and `normal`. If the theta of an
    upper tail is larger than the constant `FAR`, the result is `FAR`. `at` is working space, and is overwritten.

    At the saddle point the number c K'(c) - c x - 1 is zero. This number is the difference of two sums of positive
    terms, and the logarithm of the ratio of these sums increases in theta, nearly along a straight line. Newton's
    method finds the zero of the logarithm, and keeps a bracket of the zero by the signs that it has seen.
    """
    mean, variance = 0.0, normal * normal
    for j in range(table.shape[1]):
        mean += table[0, j] * (table[2, j] + table[3, j]) / 2
        variance += table[0, j] * table[0, j] * (table[2, j] / 2 + table[3, j])
    z = abs(x - mean) / math.sqrt(variance)
    root = z if z > 1e8 else math.sqrt(z * z + 4)  # the square of a larger z may overflow
    theta = math.log((z + root) / (2 * math.sqrt(variance))) if variance < _OVERFLOWS else _FIRST
    low, high, most = -np.inf, np.inf, np.inf if lower else FAR
    for _ in range(200):
        theta = most if theta > most else theta
        c, pace, gain, loss, convex, concave, _ = cross(table, normal, theta, lower, at)
        plus, minus = -c * x if c * x < 0 else 0.0, c * x if c * x > 0 else 0.0
        more, less = gain + plus, 1 + loss + minus
        value = math.log(more / less) if more > 0 else -np.inf
        slope = pace * ((gain + convex + plus) / more - (loss - concave + minus) / less)
        off = value * pace * math.sqrt(convex + concave + 1)  # times 1 / slope: in units of the width of the integrand
        near = abs(value) <= _TOLERANCE or abs(off) <= _OFF * slope
        if (abs(value) <= 1e-4 and near) or (theta == most and value < 0):
            return theta
        theta, low, high = newton(theta, value, slope, low, high)
    return np.nan


@compiled("(f8, f8, f8, f8, f8, b1, f8)")
def hyperbola(
    c: float, pace: float, spread: float, skew: float, x: float, lower: bool, tilt: float
) -> tuple[tuple[float, float, float, float], float, float]:
    """Return the shape of the first contour to try, as `quadrature` explains it, and the reach and the bend of a path.

    The path is that of steepest descent through the saddle point c of exp(K(s) - s x) / s. The contour follows it to
    third order if it bends to the side on which exp(-s x) falls. `pace` is the derivative of log|c| from `cross`,
    `spread` is c^2 times the second derivative of K(s) - s x - log s at c, and `skew` is c^3 K'''(c). The tangent of
    the angle between the ends of the contour and the vertical is `tilt`. The bend is in units of h, and positive if the
    path bends to the right.
    """
    # This is c^3 times the third derivative of K(s) - s x - log s, except that the part of log s, -2, is left out or
    # made smaller. For an upper tail it would bend the contour to the left, where nothing makes the integrand die away;
    # for a lower tail of many weights it would bend the contour so much that the integrand grows.
    third = abs(skew) + 2 / spread / spread if lower else skew
    h, most = abs(c) / math.sqrt(spread), _GROWS
    if not lower and h > _WIDEST * pace:
        most *= h / (_WIDEST * pace)
        h = _WIDEST * pace
    bend = third / spread / (3 * math.sqrt(spread))
    reach = tilt / abs(bend) if bend else _MOST_REACH
    reach = 1.0 if reach < 1 else _MOST_REACH if reach > _MOST_REACH else reach
    shape = h, reach if bend * x > 0 else _MOST_REACH, math.copysign(tilt, x) if x else 0.0, most
    return shape, reach, bend


@compiled("(f8[:, ::1], f8, f8)")
def arrange(table: Array, normal: float, x: float) -> tuple[float, float, bool, bool]:
    """Make the table of a distribution, for its smaller tail at `x`, from the weights w, the dof k and the nc.

    The variable is sum_j w_j chi2(k_j, nc_j) + `normal` * Z. `table` holds the w_j in its first row, the k_j and the
    nc_j in the last two, and is overwritten by the table that the docstring of the module explains. The smaller tail is
    taken to be P[Q <= x] if x is below the mean, else P[Q > x]. If it is a tail of the negative variable, all weights
    change their signs. The results are `x` and `normal` divided by twice the largest weight; whether x is below the
    mean; and whether the tail is the lower one of the variable in the table. If the weights are not in strictly
    ascending or descending order, or if numbers are very large or small, the first result is NaN. Then a slower way is
    needed.
    """
    last, slow = table.shape[1] - 1, (np.nan, 0.0, False, False)
    ascending = table[0, last] > table[0, 0]
    least, largest = (table[0, 0], table[0, last]) if ascending else (table[0, last], table[0, 0])
    if not (least > -_LARGEST and largest < _LARGEST):
        return slow
    mean = 0.0
    for j in range(last + 1):
        w, k, nc = table[0, j], table[2, j], table[3, j]
        ordered = j == 0 or (w > table[0, j - 1] if ascending else w < table[0, j - 1])
        if not (ordered and k < _PLAIN and nc < _PLAIN):
            return slow
        mean += w * (k + nc)
    below = x < mean
    other = least < 0 if below else largest > 0  # there is a weight whose sign belongs to the tail
    sign, lower = 1.0 if below != other else -1.0, not other
    least, largest = (least, largest) if sign > 0 else (-largest, -least)
    most = _PLAIN * largest
    if not (largest > _SMALLEST and -least < most and normal < most and abs(x) < most):
        return slow
    y, share = sign * x / (2 * largest), normal / (2 * largest)
    if normal == 0 and least > 0 and y * _PLAIN < 1:  # next to the end of the support, or beyond it
        return slow
    if ascending != (sign > 0):
        for j in range((last + 1) // 2):
            for row in (0, 2, 3):
                table[row, j], table[row, last - j] = table[row, last - j], table[row, j]
    for j in range(last + 1):
        r = sign * table[0, j]
        table[0, j], table[1, j] = r / largest, (largest - r) / largest
    return y, share, below, lower


@compiled("(f8[:, ::1], f8, f8, b1, f8, f8[:, ::1])")
def approach(
    table: Array, normal: float, x: float, lower: bool, tilt: float, at: Array
) -> tuple[float, float, float, float, float, float, float, float, tuple[float, float, float, float]]:
    """Find the saddle point c of a tail, and the first contour (path of integration) through it.

    The results are theta; c; K(c) - c x; three numbers for a bound of the rounding errors; K(c) - c x as the difference
    of K(c) - K'(0) c and c (x - K'(0)); the sum of the absolute values of the terms of this difference; and the shape
    of the contour, which `quadrature` explains. The three numbers are two of `height_at`, with |c x| added to the
    first, and the sum of the absolute values of the terms of c K'(c), divided by the root of the spread of `hyperbola`.
    `tilt` is a part of the shape. The docstring of the module explains the other arguments, and `at` is overwritten. If
    no saddle point is found, the results are NaN.
    """
    theta = saddle(table, normal, x, lower, at)
    c, pace, gain, loss, convex, concave, skew = cross(table, normal, theta, lower, at)
    height, size, roughness, bend, bent, mean, lost = height_at(table, normal, c, at)
    spread, linear = convex + concave + 1, c * (x - mean - lost)
    shape, _, _ = hyperbola(c, pace, spread, skew, x, lower, tilt)
    size, turns = size + abs(c * x), (gain + loss) / math.sqrt(spread)
    return theta, c, height - c * x, size, roughness, turns, bend - linear, bent + abs(linear), shape


@compiled()
def formula(table: Array, normal: float, theta: float, lower: bool, at: Array) -> tuple[float, float]:
    """Return the logarithm of a tail, by the saddlepoint approximation in closed form, and its derivative by `theta`.

    The tail is that at a point x, the lower one if `lower` is true, and otherwise the upper one. `theta` gives a point
    c of the real axis, and x is the number for which c is the saddle point of exp(K(s) - s x) / s. Here K is the
    cumulant function of the generalized chi-square distribution whose parameters are in `table` and `normal`. `at` is
    working space, and is overwritten.

    Let f be the value of K(s) - s x - log|s| at the saddle point c, and let f2, f3 and f4 be its second, third and
    fourth derivatives by s at c. To second order the tail is exp(f) / sqrt(2 pi f2) times the correction 1 + f4 / (8
    f2^2) - 5 f3^2 / (24 f2^3), for which at least 1/2 is taken. The returned derivative is that of log[exp(f) / sqrt(2
    pi f2)].
    """
    c, pace, gain, loss, convex, concave, third = cross(table, normal, theta, lower, at)
    height, _, _, _, _, _, _ = height_at(table, normal, c, at)
    spread, third, fourth = convex + concave + 1, third - 2, 6.0
    for j in range(table.shape[1]):
        square = at[1, j] * at[1, j]
        fourth += square * square * (3 * table[2, j] + 12 * table[3, j] / at[0, j])
    skew = third / spread / math.sqrt(spread)
    correction = fourth / spread / spread / 8 - 5 * skew * skew / 24
    value = 1 - gain + loss + height - 0.5 * math.log(2 * math.pi * spread) + math.log1p(max(correction, -0.5))
    return value, -(spread + third / spread / 2) * pace


@compiled()
def by_formula(table: Array, normal: float, log_p: float, lower: bool, at: Array) -> float:
    """Find the theta at which the saddlepoint formula gives a tail with the logarithm `log_p`; NaN after 200 steps.

    theta gives the point c where the contour (path of integration) of the tail crosses the real axis: c = -exp(theta)
    for the lower tail, if `lower` is true, and otherwise c = 1 / (1 + exp(-theta)) for the upper tail. If the theta of
    an upper tail is larger than the constant `FAR`, the result is `FAR`. `at` is working space, and is overwritten.

    The function `formula` computes the saddlepoint formula, an approximation in closed form, for the generalized
    chi-square distribution whose parameters are in `table` and `normal`. The constant `TOP` is the largest logarithm of
    a tail that the formula gives, unless there are few degrees of freedom. The difference `TOP` - log tail is nearly
    proportional to a power of exp(theta). So log((`TOP` - log tail) / (`TOP` - `log_p`)) is nearly a straight line in
    theta. Newton's method finds its zero.
    """
    variance = normal * normal
    for j in range(table.shape[1]):
        variance += table[0, j] * table[0, j] * (table[2, j] / 2 + table[3, j])
    # For equal weights log(1 - c) has this solution, to a few percent.
    ratio = (TOP - log_p) / variance
    theta = math.log(ratio + math.sqrt(2 * ratio)) if variance < _OVERFLOWS else _FIRST
    low, high, most = -np.inf, np.inf, np.inf if lower else FAR
    for _ in range(200):
        theta = most if theta > most else theta
        log_tail, slope = formula(table, normal, theta, lower, at)
        below = TOP - log_tail if TOP - log_tail > 1e-3 else 1e-3  # for few degrees of freedom, log_tail may exceed TOP
        value = math.log(below / (TOP - log_p))
        if abs(value) <= 3e-4 or (theta == most and value < 0):
            return theta
        slope = -slope / below
        theta, low, high = newton(theta, value, slope, low, high)
    return np.nan


@compiled(inline="always")
def _add_product(at: Array, first: int, last: int, k: float, nodes: Array) -> None:
    """Subtract k sum_j log(1 - q_j (a + i b)), j = `first` ... `last` - 1, from the sums that `nodes` holds.

    This is a part of `_growth`, which adds up the change of the cumulant function along a contour (path of
    integration). For each node c + a + i b of the contour, which crosses the real axis at c, `nodes` has the numbers a
    and b, and the sum so far. The groups j of weights have equal degrees of freedom, and k is half of them. The q_j are
    in the last row of `at` and have the same sign. The factors 1 - q_j (a + i b) are multiplied, so that only one
    logarithm is taken. Each factor turns the product around zero by less than 180 degrees, always in the same
    direction. So the full turns can be counted: each full turn crosses the negative axis once. The innermost loops are
    over the nodes, at constant distances in one vector, and the compiler runs them for several nodes at a time.
    """
    for i in range(_TOGETHER):
        nodes[_REAL + i], nodes[_IMAG + i], nodes[_TURNS + i], nodes[_SCALES + i] = 1.0, 0.0, 0.0, 0.0
    for start in range(first, last, _SCALED):
        for j in range(start, start + _SCALED if start + _SCALED < last else last):
            factor = at[2, j]
            for i in range(_TOGETHER):
                x, y = 1 - factor * nodes[i], -abs(factor * nodes[_B + i])
                real, imag = nodes[_REAL + i], nodes[_IMAG + i]
                new = real * y + imag * x
                nodes[_REAL + i], nodes[_IMAG + i] = real * x - imag * y, new
                nodes[_TURNS + i] += 1.0 if imag < 0 and new >= 0 else 0.0
        for i in range(_TOGETHER):
            real, imag = abs(nodes[_REAL + i]), abs(nodes[_IMAG + i])
            large = (imag if imag > real else real) > _LARGE
            scale = 1 / _LARGE if large else 1.0
            nodes[_REAL + i] *= scale
            nodes[_IMAG + i] *= scale
            nodes[_SCALES + i] += 1.0 if large else 0.0
    for i in range(_TOGETHER):
        real, imag = nodes[_REAL + i], nodes[_IMAG + i]
        angle = math.atan2(imag, real) - nodes[_TURNS + i] * 2 * math.pi
        nodes[_GROWTH + i] -= k * (0.5 * math.log(real * real + imag * imag) + nodes[_SCALES + i] * _LOG_LARGE)
        nodes[_TURN_OF_GROWTH + i] += k * math.copysign(angle, at[2, first] * nodes[_B + i])


@compiled(inline="always")
def _prepare(table: Array, at: Array, clustered: bool, ends: Indices) -> int:
    """Find runs of groups of weights for which one logarithm of a product can take the place of many logarithms.

    The function `_growth` computes these logarithms at the nodes of a contour (path of integration) that crosses the
    real axis at c. The result is the number of nodes that it shall compute at a time: `_TOGETHER`, or 1 if there are no
    runs. `at` has 1 - r c in its first row, for the r of each group in `table`, and its last row gets q = r / (1 - r
    c). The entry of `ends` for the first group of a run becomes the index after its last group; all other entries
    become 0. A run has at least four groups, whose weights have one sign and whose degrees of freedom k are equal. To
    keep the rounding error small, k times the square root of the number of these groups is at most `_MULTIPLIED`. If
    `clustered` is true, some groups are clusters, and there are no runs.
    """
    size, first, runs = table.shape[1], 0, 0
    for j in range(size):
        at[2, j], ends[j] = table[0, j] / at[0, j], 0
    for j in range(1, 0 if clustered else size + 1):
        if j == size or table[2, j] != table[2, first] or (table[0, j] > 0) != (table[0, first] > 0):
            if j - first >= 4 and table[2, first] * math.sqrt(j - first) <= _MULTIPLIED:
                runs += 1
                ends[first] = j
            first = j
    return _TOGETHER if runs else 1


@compiled(inline="always")
def _add_series(series: Array, beyond: float, at: Array, nodes: Array, node: int) -> None:
    """Add to a sum, at one node, what the differences of the weights within clusters contribute to K(s) - K(c).

    K is the cumulant function, and the sum is that of `_growth` at the node s of a contour (path of integration) that
    crosses the real axis at c. The contribution to K(s) is a power series with the coefficients `series`, and that to
    K(c) is `beyond`. `node` is the index of the node. `at` has numbers for each group of weights, from `cross` and
    `_prepare`. `nodes` has the nodes and, for each, the sum so far. The loops are over real numbers, so that the
    compiler runs them for several clusters at a time.
    """
    size, total, total_imag = at.shape[1], 0.0, 0.0
    a, b = nodes[node], nodes[_B + node]
    for start in range(0, size, _BESIDE):
        many = _BESIDE if start + _BESIDE < size else size - start
        for j in range(many):
            slack, turn = 1 - at[2, start + j] * a, at[2, start + j] * b
            factor = (1 + at[1, start + j]) / (slack * slack + turn * turn)
            nodes[_V + j], nodes[_V_IMAG + j] = factor * slack - 1, factor * turn
            nodes[_SUM + j], nodes[_SUM_IMAG + j] = 0.0, 0.0
        for p in range(series.shape[0] - 1, -1, -1):
            for j in range(many):
                x, y = nodes[_V + j], nodes[_V_IMAG + j]
                real, imag = nodes[_SUM + j] + series[p, start + j], nodes[_SUM_IMAG + j]
                nodes[_SUM + j], nodes[_SUM_IMAG + j] = real * x - imag * y, real * y + imag * x
        for j in range(many):
            total += nodes[_SUM + j]
            total_imag += nodes[_SUM_IMAG + j]
    nodes[_GROWTH + node] += total - beyond
    nodes[_TURN_OF_GROWTH + node] += total_imag


@compiled(inline="always")
def _add_growth(real: float, imag: float, nodes: Array, node: int) -> None:
    """Add a real and an imaginary part to the sums of `_growth` at one node, and keep what is lost by rounding."""
    nodes[_GROWTH + node], nodes[_LOST + node] = _add(real, nodes[_GROWTH + node], nodes[_LOST + node])
    turn, lost = _add(imag, nodes[_TURN_OF_GROWTH + node], nodes[_LOST_TURN + node])
    nodes[_TURN_OF_GROWTH + node], nodes[_LOST_TURN + node] = turn, lost


@compiled("(f8[:, ::1], intp[::1], f8, f8[:, ::1], f8, f8, f8[:, ::1], f8[::1], intp)", no_cpython_wrapper=True)
def _growth(
    table: Array,
    ends: Indices,
    normal: float,
    series: Array,
    beyond: float,
    c: float,
    at: Array,
    nodes: Array,
    many: int,
) -> None:
    """Compute the real and the imaginary part of K(c + a + i b) - K(c) at `many` nodes, without cancellation.

    K is the cumulant function of the distribution whose parameters are in `table`, `normal` and `series`. The nodes are
    points c + a + i b of a contour (path of integration) that crosses the real axis at c. The vector `nodes` has blocks
    of `_TOGETHER` entries. The numbers a begin at the index 0, the numbers b at `_B`, the real parts of the results at
    `_GROWTH`, and the imaginary parts at `_TURN_OF_GROWTH`. In each block only the first `many` entries count. `at` has
    numbers for each group of weights, from `cross` and `_prepare`, and `ends` the result of `_prepare`. `beyond` is
    what the differences of the weights within clusters add to K(c).
    """
    for i in range(many):
        a, b = nodes[i], nodes[_B + i]
        na, nb = normal * a, normal * b  # their squares do not overflow
        nodes[_GROWTH + i] = normal * c * na + (na * na - nb * nb) / 2 if normal else 0.0
        nodes[_TURN_OF_GROWTH + i] = nb * (normal * c + na) if normal else 0.0
        nodes[_LOST + i], nodes[_LOST_TURN + i] = 0.0, 0.0
    reach = 0.0
    for i in range(many):
        a, b = abs(nodes[i]), abs(nodes[_B + i])
        reach = a if a > reach else reach
        reach = b if b > reach else reach
    j = 0
    while j < table.shape[1]:
        k, q, last = table[2, j] / 2, at[2, j], ends[j]
        if last and reach * abs(q) < _FACTOR and reach * abs(at[2, last - 1]) < _FACTOR:
            _add_product(at, j, last, k, nodes)
            j = last
        else:
            for i in range(many):
                qa, qb = q * nodes[i], q * nodes[_B + i]
                _add_growth(-k / 2 * math.log1p(qa * (qa - 2) + qb * qb), k * math.atan2(qb, 1 - qa), nodes, i)
            j += 1
    for j in range(table.shape[1]):
        nc, q = table[3, j], at[2, j]
        if nc:
            for i in range(many):
                qa, qb = q * nodes[i], q * nodes[_B + i]
                factor = nc / (2 * at[0, j] * ((1 - qa) * (1 - qa) + qb * qb))
                _add_growth(factor * (qa * (1 - qa) - qb * qb), factor * qb, nodes, i)
    for i in range(many):
        nodes[_GROWTH + i] += nodes[_LOST + i]
        nodes[_TURN_OF_GROWTH + i] += nodes[_LOST_TURN + i]
    if series.shape[0]:
        for i in range(many):
            _add_series(series, beyond, at, nodes, i)


@compiled()
def growth_at(
    table: Array, normal: float, series: Array, beyond: float, c: float, at: Array, shift: Complex
) -> Complex:
    """Compute K(s) - K(c) without cancellation, for the cumulant function K and every entry s - c of `shift`.

    K belongs to the generalized chi-square distribution whose parameters are in `table`, `normal` and `series`. `at`
    has numbers for each group of weights at the point `c`, from `cross`. `beyond` is what the differences of the
    weights within clusters add to K(c).
    """
    result, nodes, ends = np.empty_like(shift), np.zeros(WHOLE), np.empty(table.shape[1], np.intp)
    _prepare(table, at, series.shape[0] > 0, ends)
    for first in range(0, shift.size, _TOGETHER):
        many = min(_TOGETHER, shift.size - first)
        for i in range(many):
            nodes[i], nodes[_B + i] = shift[first + i].real, shift[first + i].imag
        _growth(table, ends, normal, series, beyond, c, at, nodes, many)
        for i in range(many):
            result[first + i] = complex(nodes[_GROWTH + i], nodes[_TURN_OF_GROWTH + i])
    return result


@compiled(
    "(f8[:, ::1], f8, f8[:, ::1], f8, f8, f8, f8[:, ::1], UniTuple(f8, 4), f8, intp, intp[::1], f8[::1], c16[:, ::1])"
)
def quadrature(
    table: Array,
    normal: float,
    series: Array,
    beyond: float,
    x: float,
    c: float,
    at: Array,
    shape: tuple[float, float, float, float],
    density: float,
    halvings: int,
    ends: Indices,
    nodes: Array,
    kept: Complex,
) -> tuple[int, int, float, float, float, float]:
    """Integrate f(s) times c / s, 1 and (s - c) / c along a contour through c; f(s) is exp(K(s) - K(c) - (s - c) x).

    The contour (path of integration) is a hyperbola that crosses the real axis at c, and K is the cumulant function;
    the docstring of the module explains `table`, `normal`, `series` and `x`. `at` has numbers for each group of weights
    at the point c, from `cross`. `beyond` is what the differences of the weights within clusters add to K(c). `shape`
    holds h, reach and tilt, the constants of the hyperbola, and the factor by which the integrand may grow along it.
    The nodes are s = c + h reach (i sinh(u / reach) + tilt (cosh(u / reach) - 1)). At u = 0 the derivative of s by u is
    i h. Beyond u = reach the nodes spread exponentially, and the hyperbola nears a line that is turned from the
    vertical by the angle whose tangent is tilt. The step of the trapezoid rule in u is halved until the last two sums
    agree, and then `halvings` times more. `density` is a factor, at most 1, by which the error of the second integral
    is multiplied before it is compared with the error of the first one.

    The first result says how the quadrature ended: `DIED` if it is accurate, `GROWS` if the integrand grows or does not
    become negligible, or `ROUGH` if the last two sums disagree. The others are the number of nodes, the estimated
    relative error, and the three integrals, each divided by 2 i |c|. The first two rows of `kept` are filled with s - c
    and with the mass f(s) ds/du times the step, for the nodes with u >= 0; at u = 0 the mass is half of that. The third
    row keeps, for the nodes of the first rule, the turn of f in radians and the size of the integrand. The
    caller makes the arrays: `ends` has an entry for each group, `nodes` has `WHOLE` entries, and `kept` has three rows
    with a column for each node that may be needed, `MOST_NODES` or fewer.
    """
    h, reach, tilt, most = shape
    together = _prepare(table, at, series.shape[0] > 0, ends)
    for n in range(_SUMS, WHOLE):
        nodes[n] = 0.0
    step, count, smallest, peak, spike, size, error, grows = _STEP, 0, 1.0, 1.0, 1.0, 1.0, np.inf, False
    for level in range(_HALVINGS + 1):
        # The first rule goes on until the integrand has died away, and the next ones halve its steps.
        new = kept.shape[1] if level == 0 else count
        if count + new > kept.shape[1]:
            break
        if level:
            step /= 2
        for i in range(new):
            here = i % together
            if here == 0:  # the next nodes of a hyperbola, and the derivatives by u
                for n in range(together):
                    u = step * (2 * (i + n) + 1 if level else i + n) / reach
                    sinh, cosh = math.sinh(u), math.cosh(u)
                    nodes[n], nodes[_B + n] = reach * h * tilt * (cosh - 1), reach * h * sinh
                    nodes[_SLOPE + n], nodes[_RISE + n] = h * tilt * sinh, h * cosh
                _growth(table, ends, normal, series, beyond, c, at, nodes, together)
            a, b = nodes[here], nodes[_B + here]
            slope, rise = nodes[_SLOPE + here], nodes[_RISE + here]
            real, imag = nodes[_GROWTH + here] - a * x, nodes[_TURN_OF_GROWTH + here] - b * x
            factor, ratio, turn = math.exp(700.0 if real > 700 else real), 1 + a / c, b / c  # s / c is ratio + i turn
            square = ratio * ratio + turn * turn
            if level == 0:
                pace = math.sqrt(slope / h * (slope / h) + rise / h * (rise / h))  # h squared may overflow
                size = factor * pace / math.sqrt(square)
                # The integrand of the density is |s / c| times as large. For few degrees of freedom it rightly grows
                # while |s| is below 1 / |x|.
                whole = size * math.sqrt(square) if density == 1 else size
                if whole < NEGLIGIBLE:
                    grows = real == -np.inf  # a square has overflowed
                    break
                grows = not size <= most * smallest
                if grows:
                    break
                smallest = size if size < smallest else smallest
                peak = size if size > peak else peak
                spike = whole if whole > spike else spike
                kept[2, i] = complex(imag, whole)
                factor = factor if i else 0.5
            cos, sin = factor * math.cos(imag), factor * math.sin(imag)
            mass_real, mass_imag = cos * slope - sin * rise, cos * rise + sin * slope
            kept[0, count], kept[1, count] = complex(a, b), complex(mass_real, mass_imag)
            mass_real, mass_imag = mass_real / abs(c), mass_imag / abs(c)
            once = (mass_imag * ratio - mass_real * turn) / square  # of the mass divided by s / c, and by its square
            twice = (once * ratio - (mass_real * ratio + mass_imag * turn) / square * turn) / square
            part = _OTHERS if level == 0 and i % 2 else _SUMS
            nodes[part] += once
            nodes[part + 1] += mass_imag
            nodes[part + 2] += mass_imag * (a / c) + mass_real * turn
            nodes[part + 3] += twice
            count += 1
        if grows or (level == 0 and count == kept.shape[1]):
            grows = True
            break
        for n in range(4):
            nodes[_COARSE + n] = nodes[_FINE + n] if level else 2 * step * nodes[_SUMS + n]
            nodes[_SUMS + n] += nodes[_OTHERS + n]
            nodes[_OTHERS + n] = 0.0
            nodes[_FINE + n] = step * nodes[_SUMS + n]
        # The last two rules may agree by accident although both are wrong. They will hardly do so for two integrals at
        # the same time, and so the larger one of the two differences counts.
        change, other = abs(nodes[_FINE] - nodes[_COARSE]), abs(nodes[_FINE + 3] - nodes[_COARSE + 3])
        change = (other if other > change else change) / nodes[_FINE]
        of_density = nodes[_FINE + 1] / nodes[_COARSE + 1] - 1
        # Halving the step squares the error, up to a factor. But a part of the integrand that turns too far in one step
        # is not seen: the error may be as large as this part.
        change, other = change * change, density * (of_density * of_density) if density else 0.0
        error = 1e5 * (other if other > change else change)
        first = count >> level
        other = h / abs(c) / nodes[_FINE + 1] if density == 1 else 1.0
        share = other if 0 < other < 1 else 1.0
        for i in range(1, first):
            size = kept[2, i].imag * share
            if size > error and abs(kept[2, i].real - kept[2, i - 1].real) > _TURN * (1 << level):
                error = size
        if error < _RTOL:
            if halvings == 0:
                break
            halvings -= 1
    for i in range(count):
        kept[1, i] = complex(kept[1, i].real * step, kept[1, i].imag * step)
    # Where the integrand grows before it falls, or an integral is small beside the integrand, parts cancel.
    size = h / abs(c) / nodes[_FINE]
    other = density * h / abs(c) / nodes[_FINE + 1] * spike if density else 0.0
    peak *= size if size > 1 else 1.0
    peak = other if other > peak else peak
    ended = GROWS if grows else DIED if error < _RTOL else ROUGH
    return ended, count, error + _ROUNDING * (2 * peak - 1), nodes[_FINE], nodes[_FINE + 1], nodes[_FINE + 2]


@compiled()
def _choose(n: int, k: int) -> float:
    """Return the binomial coefficient of `n` over `k`."""
    result = 1.0
    for i in range(k):
        result = result * (n - i) / (i + 1)
    return result


@compiled()
def sums_of_inverses(table: Array, at: Array, shift: Complex, masses: Complex, most: int, terms: int) -> Array:
    """Compute the coefficients of power series in e for each group of weights: sums over the nodes of a quadrature.

    `contour.sums_of_inverses` evaluates these series. e is the relative distance of a weight from the center of its
    cluster. With I_i = 1 / (1 - r s_i) at the node s_i, the coefficient of e^p for p < `terms` and k = 1 ... `most` is
    binomial(p + k - 1, p) Im sum_i mass_i I_i^k (I_i - 1)^p. The r of each group is in `table`. `at` has 1 - r c for
    each group, from `cross`, for the point c where the contour (path of integration) crosses the real axis. `shift` has
    s_i - c for each node, and `masses` has a row of the mass_i, the factors of the nodes, for each integral. The result
    has the shape (`terms`, integrals, `most`, groups).
    """
    size, integrals = table.shape[1], masses.shape[0]
    result = np.zeros((terms, integrals, most, size))
    # Blocks of one vector: the groups' q and 1 - r c, the inverse, the series, its products with powers of the inverse.
    # All loops over a block have constant length and places, and the compiler runs them for several groups at a time.
    block = np.empty(8 * _BESIDE)
    choose = np.array([[_choose(p + k, p) for k in range(most)] for p in range(terms)])
    sums = np.empty((terms, integrals, most, _BESIDE))
    for start in range(0, size, _BESIDE):
        many = min(_BESIDE, size - start)
        for j in range(_BESIDE):
            block[j], block[_SLACK + j] = 0.0, 1.0
        for j in range(many):
            block[j], block[_SLACK + j] = table[0, start + j] / at[0, start + j], at[0, start + j]
        sums[:] = 0.0
        for i in range(shift.size):
            a, b = shift[i].real, shift[i].imag
            for j in range(_BESIDE):
                x, y = 1 - block[j] * a, block[j] * b
                scale = 1 / (block[_SLACK + j] * (x * x + y * y))
                block[_INVERSE + j], block[_INVERSE_IMAG + j] = x * scale, y * scale
                block[_POWER + j], block[_POWER_IMAG + j] = x * scale, y * scale
            for p in range(terms):
                if p + 1 < terms:
                    _multiply(block, _POWER, _SERIES, 1.0)
                for k in range(most):
                    if k:
                        _multiply(block, _POWER, _POWER, 0.0)
                    for m in range(integrals):
                        row, mass = sums[p, m, k], choose[p, k] * masses[m, i]
                        mass_real, mass_imag = mass.real, mass.imag
                        for j in range(_BESIDE):
                            row[j] += mass_real * block[_POWER_IMAG + j] + mass_imag * block[_POWER + j]
                if p + 1 < terms:
                    for j in range(2 * _BESIDE):
                        block[_POWER + j] = block[_SERIES + j]
        for p in range(terms):
            for m in range(integrals):
                for k in range(most):
                    for j in range(many):
                        result[p, m, k, start + j] = sums[p, m, k, j]
    return result


@compiled(inline="always")
def _multiply(block: Array, place: int, to: int, less: float) -> None:
    """Multiply one complex number for each of `_BESIDE` groups by 1 / (1 - r s) - `less`, with the r of the group.

    All numbers are in `block`, a vector that `sums_of_inverses` makes for the groups that it computes together. The
    numbers 1 / (1 - r s) at one node s begin at the index `_INVERSE`, the numbers to be multiplied at `place`, and the
    products at `to`. At each of these three indices, the real parts for all groups come first, and then the imaginary
    parts. `less` is 0 or 1.
    """
    for j in range(_BESIDE):
        x, y = block[_INVERSE + j] - less, block[_INVERSE_IMAG + j]
        real, imag = block[place + j], block[place + _BESIDE + j]
        block[to + j], block[to + _BESIDE + j] = real * x - imag * y, real * y + imag * x


@compiled()
def at_weights(rows: Array, group: Indices, e: Array) -> Array:
    """Return the sums of `sums_of_inverses` for every weight: Im sum_i mass_i / (1 - r s_i)^k, by power series in e.

    `rows`, the result of `sums_of_inverses`, has the coefficients. `group` has the index of the cluster of each weight,
    and `e` the relative distance of the weight from the center of its cluster. The result has the shape (integrals, k,
    weights).
    """
    terms, integrals, most, _ = rows.shape
    total = np.empty((integrals, most, e.size))
    for m in range(integrals):
        for k in range(most):
            row = rows[:, m, k]
            for j in range(e.size):
                value = row[terms - 1, group[j]]
                for p in range(terms - 2, -1, -1):
                    value = value * e[j] + row[p, group[j]]
                total[m, k, j] = value
    return total


@compiled()
def lost_shares(z: Complex) -> Complex:
    """Compute 1/z - J_1 (row 0 of the result) and 1/z - 2 J_1 + J_2 (row 1) for every entry of the complex vector `z`.

    J_m is the integral of t^(-m/2) exp(-z (t - 1)) over t from 1 to infinity, with |z| >= 1 and Re z > 0. By parts,
    J_m is (1 - m/2 J_(m+2)) / z. So the two numbers are J_3 / (2 z) and (J_3 - J_4) / z = (2 J_6 - 3/2 J_5) / z^2,
    where little cancels. `clipping._lost_shares` needs them.
    """
    result = np.empty((2, z.size), np.complex128)
    for i in range(z.size):
        five, six = _scaled_integrals(z[i])
        a, b = z[i].real, z[i].imag
        inverse = complex(a / (a * a + b * b), -b / (a * a + b * b))
        result[0, i] = 0.5 * (1 - 1.5 * five) * inverse * inverse
        result[1, i] = (2 * six - 1.5 * five) * inverse * inverse
    return result


@compiled()
def _scaled_integrals(z: complex) -> tuple[complex, complex]:
    """Compute exp(z) E_p(z), with the exponential integral E_p, for p = 2.5 and p = 3 by their continued fractions.

    The number of terms was chosen by a comparison with values of 40 digits: for Re z >= 0 and |z| >= 1 the relative
    error is below 2e-15. The processor computes both fractions at a time, because they do not need each other.
    """
    a, b = z.real, z.imag
    k = int(_FRACTION / (math.hypot(a, b) + a)) + 6
    real, imag = a + 2.5 + 2 * k, b
    other, other_imag = a + 3.0 + 2 * k, b
    while k > 0:
        scale = k * (1.5 + k) / (real * real + imag * imag)
        other_scale = k * (2.0 + k) / (other * other + other_imag * other_imag)
        k -= 1
        real, imag = a + 2.5 + 2 * k - scale * real, b + scale * imag
        other, other_imag = a + 3.0 + 2 * k - other_scale * other, b + other_scale * other_imag
    size, other_size = real * real + imag * imag, other * other + other_imag * other_imag
    return complex(real / size, -imag / size), complex(other / other_size, -other_imag / other_size)


@compiled()
def inverses_summed(table: Array, at: Array, shift: Complex, amounts: Array) -> Complex:
    """Compute sum_k sum_j factor_kj / (1 - r_j s_i)^k at every node s_i, for weights that are gathered in groups.

    The nodes s_i are those of a quadrature along a contour (path of integration) that crosses the real axis at c.
    `shift` has s_i - c for each node, and the result has an entry for each node. r_j is the weight j divided by the
    largest one; `table` has the r of each group. `amounts[p, k - 1, g]` is the sum of factor_kj e_j^p over the weights
    j of the group g, where e_j is the relative distance of a weight from the center of its group. `at` has 1 - r c and
    r c / (1 - r c) for each group, from `cross`.
    """
    terms, most, _ = amounts.shape
    result = np.zeros_like(shift)
    factors = np.array([[_choose(p + k, p) for k in range(most)] for p in range(terms)])
    for j in range(table.shape[1]):
        for i in range(shift.size):
            factor = 1 - table[0, j] / at[0, j] * shift[i]
            inverse = factor.conjugate() / (at[0, j] * (factor.real**2 + factor.imag**2))
            series = complex(1.0, 0.0)
            for p in range(terms):
                power = series
                for k in range(most):
                    power *= inverse
                    result[i] += factors[p, k] * amounts[p, k, j] * power
                series *= inverse - 1
    return result
