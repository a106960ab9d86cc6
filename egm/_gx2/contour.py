"""Find the saddle point of the integrand exp(K(s) - s x) / s, and integrate along a contour through it.

K is the cumulant function of Q divided by twice its largest weight; a `Form` holds the parameters of
this variable. The docstring of `egm.gx2` explains the method.
"""

from __future__ import annotations

from collections.abc import Callable
from math import comb
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from egm._gx2.form import ORDER, Form, Long, Real
from egm._types import Array

_STEP = 0.2  # step of the first trapezoid rule, in units in which the integrand falls like exp(-u^2/2)
_BATCH = 72  # nodes added at a time until the integrand has died away
_MOST_NODES = 8192
NEGLIGIBLE = 1e-17  # relative size at which the integrand counts as having died away
_HALVINGS = 5
_RTOL = 1e-13  # relative error at which the quadrature aims; the rounding of the exponent comes on top
Complex: TypeAlias = NDArray[np.complex128]
Quadrature: TypeAlias = tuple[Complex, Complex, float]  # nodes, masses, relative error
T = TypeVar("T")
# Steepest descent bends the contour by 1. Where one weight alone shapes the saddle point, but many others shape its
# surroundings, a bend of 1 is too much, and the integrand grows again: then a smaller bend is tried.
_BENDS = (1.0, 0.25, 0.0)


class AccuracyError(ArithmeticError):
    """Error that is raised if a search or a quadrature does not reach the accuracy at which it aims.

    Parameters
    ----------
    message : str
        Description of the step that failed.
    estimate : float
        Best value that this step had found.

    Attributes
    ----------
    estimate : float
        Best value that the failed step had found, for diagnosis. The estimate is not the tail. If a search failed, the
        estimate is the argument at which the search ended. If the quadrature stayed too inaccurate, the estimate is the
        integral divided by the height of the integrand. It is NaN if the integrand did not become negligible along the
        contour.

    Examples
    --------
    A caller who needs an upper bound of a tail can fall back on 1, which is always such a bound.

    >>> from egm import gx2
    >>> try:
    ...     tail = gx2.sf(3.0, [1.0, 0.5])
    ... except gx2.AccuracyError:
    ...     tail = 1.0
    >>> round(float(tail), 4)
    0.1358
    """

    def __init__(self, message: str, estimate: float) -> None:
        super().__init__(message)
        self.estimate = estimate


class Crossing:
    """Describe a point c where a contour crosses the real axis, as the saddle point of exp(K(s) - s x) / s.

    K is the cumulant function of the distribution in `form`. The point is given by the number `theta`. If `lower` is
    false, the contour is for the upper tail, and theta is log(c / (1 - c)) with c in (0, 1). If `lower` is true, the
    contour is for the lower tail, and theta is log(-c) with c < 0. So theta may be any real number.

    The attribute `x` is the value of x for which c is the saddle point. Two attributes have an entry for each group of
    weights, whose center divided by the largest weight is r: `slack` is 1 - r c, computed without cancellation, and `v`
    is r c / (1 - r c). The attribute `pace` is the derivative of log|c| by theta. Three attributes are derivatives at
    c, each multiplied by a power of c so that it has no units: `drift` is c times the first derivative of K, `spread`
    is c^2 times the second derivative of K(s) - s x - log s, and `skew` is c^3 times the third derivative of K. These
    three ignore that the weights of a group may differ a little. They only choose the contour, and the integral is the
    same along every contour.
    """

    def __init__(self, form: Form, theta: float, lower: bool) -> None:
        self.form, self.theta, self.lower = form, theta, lower
        c = self.c = -np.exp(theta) if lower else 1 / (1 + np.exp(-theta))
        self.pace = 1.0 if lower else 1 / (1 + np.exp(theta))
        self.slack = 1 - c * form.r if lower else self.pace + c * form.gap  # the pace is 1 - c here
        v = self.v = c * form.r / self.slack
        square = v * v
        self.drift, self.spread, self.skew = v @ form.k / 2, square @ form.k / 2 + 1, (square * v) @ form.k
        if not form.central:
            inflated = form.nc / self.slack
            self.drift += v @ inflated / 2
            self.spread += square @ inflated
            self.skew += 3 * ((square * v) @ inflated)

    @property
    def x(self) -> float:
        """Return the x for which c is the saddle point of exp(K(s) - s x) / s: K'(c) - 1/c.

        K is the cumulant function of `form`, and c is the point of this crossing.
        """
        return (self.drift - 1) / self.c

    def log_height(self, x: Real) -> tuple[float, float]:
        """Return K(c) - c x, and the sum of the absolute values of the terms of which this difference is computed.

        K is the cumulant function of `form`, c is the point of this crossing, and `x` is a point of the distribution,
        divided by the unit of `form`. The second result gives a bound of the rounding error of the first. At c the
        integrand of the tail has the absolute value exp(K(c) - c x) / |c|.

        For a central distribution K(c) is a sum of terms -k log(1 - y) / 2, with y = r c for a group of weights with k
        degrees of freedom. For many weights these terms and c x are far larger than the difference K(c) - c x. So the
        part that is linear in c is subtracted from each term with y > -1, and from c x. The sums are in extended
        precision where the machine has it.
        """
        form, c = self.form, np.longdouble(self.c)
        y = c * form.exact_r
        if self.lower:
            slack, near = 1 - y, y > -1
            terms = form.k * np.where(near, _minus_log1p_less_mean(y, slack), -np.log(slack)) / 2
            y, less = np.where(near, y, 1.0), np.where(near, form.means, 0.0).sum()
        else:
            slack, less = (1 - c) + c * form.gap, form.mean
            terms = form.k * _minus_log1p_less_mean(y, slack) / 2
        if not form.central:
            terms = terms + form.nc * y * self.v / 2
        linear = c * (x - less)
        size = np.abs(terms).sum() + np.abs(form.k * y).sum() + abs(c * x)
        return float(terms.sum() - linear) + _beyond_centers(form, self.v), float(size)

    def formula(self) -> tuple[float, float]:
        """Return the logarithm of the tail at `self.x` by the saddlepoint formula, and its derivative by theta.

        The tail is the lower one if `lower` is true, and otherwise the upper one. The parameter theta of this crossing
        gives the saddle point c: theta is log(-c) for the lower tail, and log(c / (1 - c)) for the upper tail. Let K be
        the cumulant function of `form`, let f be the value of K(s) - s x - log|s| at the saddle point c, and let f2, f3
        and f4 be the second, third and fourth derivatives by s at c. To second order the tail is exp(f) / sqrt(2 pi f2)
        times the correction 1 + f4 / (8 f2^2) - 5 f3^2 / (24 f2^3). The derivative by theta is computed without the
        correction.
        """
        form, spread, third = self.form, self.spread, self.skew - 2
        fourth = 3 * (self.v**4 @ form.k) + 6
        if not form.central:
            fourth += 12 * (self.v**4 @ (form.nc / self.slack))
        height = 1 - self.drift + (self.v @ form.nc - np.log(self.slack) @ form.k) / 2
        correction = fourth / (8 * spread**2) - 5 * third**2 / (24 * spread**3)
        value = height - 0.5 * np.log(2 * np.pi * spread) + np.log1p(max(correction, -0.5))
        return value, -(spread + third / spread / 2) * self.pace


def _minus_log1p_less_mean(y: Long, slack: Long) -> Long:
    """Compute -log(1 - y) - y without cancellation, where `slack` is 1 - y.

    Near y = 0 the two terms would cancel. There -log(1 - y) is replaced by the series of 2 artanh(z) with
    z = y / (2 - y), which is the same function.
    """
    value = -np.log(slack) - y
    small = np.abs(y) < 0.02
    if small.any():
        z = y[small] / (2 - y[small])
        q = z * z
        value[small] = 2 * q * (1 / (1 + z) + z * (1 / 3 + q * (1 / 5 + q * (1 / 7 + q / 9))))
    return value


def _beyond_centers(form: Form, v: Any) -> Any:
    """Compute the part of the cumulant function K(s) that comes from the spread of the weights within clusters.

    The rest of K(s) is computed as if all weights of a cluster were equal to the center of the cluster. The last axis
    of `v` has an entry r s / (1 - r s) for each cluster, where r is the center divided by the largest weight. Let e be
    the relative distance of a weight from the center. The result sums the power series in e of log(1 - v e) and of 1 /
    (1 - v e) over all weights, by the moments in `form`. It is 0 if `form` has no moments.
    """
    if form.moments is None:
        return 0.0
    total, power = 0.0, 1.0
    for p, (k, nc) in enumerate(zip(*form.moments, strict=True), start=1):
        power = power * v
        total = total + np.vecdot(k / (2 * p), power)
        if not form.central:
            total = total + np.vecdot(nc / 2, (1 + v) * power)
    return total


def saddle(form: Form, x: Real, lower: bool | None = None) -> Crossing:
    """Find the saddle point of exp(K(s) - s x) / s for the given `x`, where K is the cumulant function of `form`.

    The saddle point is returned as a `Crossing`. The caller has divided `x` by ``form.unit``, which is twice the
    largest weight, because K is the cumulant function of Q divided by this unit. The upper tail has a saddle point
    c > 0, and the lower tail has one with c < 0. If `lower` is true, the saddle point of the lower tail is returned,
    and if it is false, that of the upper tail. If `lower` is None, the tail is the lower one for an x below the mean of
    the distribution, and otherwise the upper one.
    """
    x = float(x)
    lower = x < form.mean if lower is None else lower
    z = abs(x - float(form.mean)) / form.deviation
    start = np.log((z + np.hypot(z, 2)) / (2 * form.deviation))

    def excess(theta: float) -> tuple[float, float, Crossing]:
        """Return a number that increases in `theta` and is zero at the saddle point, its slope, and the `Crossing`.

        Let c be the point of the contour that theta describes, and K the cumulant function. The number is log(K'(c) /
        (x + 1/c)) for the upper tail, and log(x / (K'(c) - 1/c)) for the lower tail. It is zero if c is the saddle
        point for x. On both sides of this zero it is nearly a straight line in theta.
        """
        crossing = Crossing(form, theta, lower)
        drift, spread, pace, cx = crossing.drift, crossing.spread, crossing.pace, crossing.c * x
        if lower:
            return np.log(cx / (drift - 1)), pace * spread / (1 - drift), crossing
        return np.log(drift / (1 + cx)), pace * ((drift + spread - 1) / drift - cx / (1 + cx)), crossing

    return find_root(excess, start, tolerance=1e-4)


def find_root(increasing: Callable[[float], tuple[float, float, T]], start: float, tolerance: float) -> T:
    """Find the zero of an increasing function by Newton's method, and return an object that belongs to the zero.

    For a number u, ``increasing(u)`` returns three things: the value of the function at u, the slope there, and any
    other object. The search begins at u = `start`, and keeps a bracket of the zero by the signs of the values. It ends
    at the first u for which the absolute value of the function is at most `tolerance`, and returns the third thing for
    this u. It raises an AccuracyError after 200 steps.
    """
    low, high, u = -np.inf, np.inf, start
    for _ in range(200):
        value, slope, kept = increasing(u)
        if abs(value) <= tolerance:
            return kept
        low, high = (u, high) if value < 0 else (low, u)
        target = u + (min(max(-value / slope, -30.0), 30.0) if slope > 0 else -np.sign(value))
        u = target if low < target < high else (low + high) / 2
    raise AccuracyError(f"no root within 200 steps, at {u!r} the value is {value:.1e}", estimate=u)


def integrate(crossing: Crossing, x: Real, density: bool = True) -> Quadrature:
    """Choose the nodes s and the masses m of a quadrature along the contour through the point c of `crossing`.

    The three results are the array s - c, the array m, and an estimate of the relative error. `x` is a point of the
    distribution, divided by the unit of its `Form`. Let K be the cumulant function and Im the imaginary part. For a
    function F, the integral of exp(K(s) - s x) F(s) ds / (2 pi i) along the contour is exp(K(c) - c x) / pi times Im
    sum_i m_i F(s_i). The tail is the integral with F = 1/s, and the density is the integral with F = 1.

    The estimated error is that of the tail; if `density` is true, it is the larger one of the errors of tail and
    density. For an x far below the mean and a contour with c > 0, the density is too small beside the upper tail, and
    `density` has to be false.
    """
    x = float(x)
    for bend in _BENDS:
        try:
            return _trapezoid(crossing, x, bend, density)
        except AccuracyError as error:
            failure = error
    raise failure


def _trapezoid(crossing: Crossing, x: float, bend: float, density: bool) -> Quadrature:
    """Compute the results of `integrate` along one contour, whose curvature is given by `bend`.

    The arguments `crossing`, `x` and `density` are those of `integrate`. With `bend` 1 the contour follows the path of
    steepest descent, and with 0 it is a straight line. The step of the trapezoid rule is halved until the last two sums
    agree. An AccuracyError is raised if they never agree.
    """
    c, spread = abs(crossing.c), crossing.spread
    # The third derivative of K(s) - s x - log s. The pole's part of it would bend the upper contour left, where nothing
    # makes the integrand die away, and the lower one further than many weights can bear.
    third = abs(crossing.skew) + (2 / spread**2 if crossing.lower else 0)
    h, gamma = c / np.sqrt(spread), bend * c * third / (6 * spread**2)

    def evaluate(u: NDArray[Any]) -> tuple[Complex, Complex]:
        shift = 1j * h * u + gamma * u * u
        return shift, np.exp(growth(crossing, shift) - shift * x) * (1j * h + 2 * gamma * u)

    shift, mass = _outwards(evaluate)
    u, step = _STEP * np.arange(shift.size), _STEP
    mass[0] /= 2
    terms = terms_at(crossing, shift, mass)
    coarse, fine = 2 * step * terms[:, ::2].sum(axis=1), step * terms.sum(axis=1)
    for _ in range(_HALVINGS):
        # Halving squares the error of a geometrically convergent rule.
        error = 10 * np.abs(fine / coarse - 1)[: 1 + density].max() ** 2
        if error < _RTOL:
            return shift, mass * step, error
        between = evaluate(u + step / 2)
        shift, mass = np.concatenate([shift, between[0]]), np.concatenate([mass, between[1]])
        u, step = np.concatenate([u, u + step / 2]), step / 2
        coarse, fine = fine, step * terms_at(crossing, shift, mass).sum(axis=1)
    raise AccuracyError(f"reached a relative error of {error:.1e}, aimed at {_RTOL:.1e}", estimate=fine[0] / np.pi)


def _outwards(evaluate: Callable[[NDArray[Any]], tuple[Complex, Complex]]) -> tuple[Complex, Complex]:
    """Evaluate the integrand at 0, 1, 2, ... steps along the contour, until its values are negligible.

    For an array u of numbers, ``evaluate(u)`` returns two arrays: the nodes s - c at the parameters u, and the values
    of the integrand with respect to u. This function returns the two arrays for all steps up to the first negligible
    value. It raises an AccuracyError if the integrand grows again or does not become negligible.
    """
    parts, smallest = [], 1.0
    for start in range(0, _MOST_NODES, _BATCH):
        with np.errstate(over="ignore", invalid="ignore"):  # the integrand may overflow
            shift, mass = evaluate(_STEP * np.arange(start, start + _BATCH))
            parts.append((shift, mass))
            size = np.abs(mass) / abs(parts[0][1][0])
        ended = size < NEGLIGIBLE
        length = int(ended.argmax()) if ended.any() else size.size
        so_far = np.minimum.accumulate(np.append(smallest, size[:length]))
        if not np.all(size[:length] <= 10 * so_far[:-1]):
            break  # the integrand grows again, near a point of the cut where many weights meet
        smallest = so_far[-1]
        if ended.any():
            shift, mass = (np.concatenate(part)[: start + length] for part in zip(*parts, strict=True))
            return shift, mass
    raise AccuracyError("the integrand does not die away along the contour", estimate=np.nan)


def terms_at(crossing: Crossing, shift: Complex, mass: Complex) -> Array:
    """Compute the terms whose sums are the tail (row 0) and the density (row 1) by quadrature: shape (2, nodes).

    The arrays `shift`, which holds the nodes minus c, and `mass` are the first two results of `integrate` for
    `crossing`. Let c be the point of `crossing` and K the cumulant function. The sum of row 0, divided by pi, is the
    tail divided by exp(K(c) - c x) / |c|. The sum of row 1, divided by pi, is the density divided by exp(K(c) - c x).
    """
    terms = np.empty((2, mass.size))
    terms[0], terms[1] = (mass / (1 + shift / crossing.c)).imag, mass.imag
    return terms


def growth(crossing: Crossing, shift: Complex) -> Complex:
    """Compute K(c + shift) - K(c), the change of the cumulant function K, for the nodes c + shift of a quadrature.

    Here c is the point of `crossing`, and `shift` is an array of complex numbers. The logarithms of 1 - q shift, with q
    = r / (1 - r c) for each group of weights, are computed by real arithmetic; r is the center of the group divided by
    the largest weight.
    """
    form = crossing.form
    q = form.r / crossing.slack
    a, b = np.outer(shift.real, q), np.outer(shift.imag, q)
    size = a * (a - 2) + b * b  # |1 - q shift|^2 - 1
    # Row by row: a matrix product of this size starts the threads of BLAS, and costs a hundred times as much.
    total = 0.5j * np.vecdot(form.k, np.arctan2(b, 1 - a)) - 0.25 * np.vecdot(form.k, np.log1p(size))
    if not form.central:
        total += np.vecdot(form.nc / (2 * crossing.slack), (a * (1 - a) - b * b + 1j * b) / (1 + size))
    if form.moments is not None:
        v = (1 - a + 1j * b) / (1 + size) / crossing.slack - 1
        total += _beyond_centers(form, v) - _beyond_centers(form, crossing.v)
    return total


def sums_of_inverses(crossing: Crossing, shift: Complex, mass: Complex, weights: Array, most: int = 2) -> list[Array]:
    """Compute Im sum_i mass_i / (1 - r_j s_i)^k for every weight w_j, once for each power k = 1 ... `most`.

    Im is the imaginary part, and r_j is w_j divided by the largest weight. The nodes of the quadrature are s_i = c +
    shift_i, where c is the point of `crossing`. The arrays `shift` and `mass` have an entry for each node, as
    `integrate` returns them, and `weights` holds the w_j. The result is a list of `most` arrays, each with an entry for
    each weight.

    For a weight m (1 + e) in a cluster with the center m, let I be 1 / (1 - r s) with the r of the center, and V = I -
    1. Then the k-th power for this weight is I^k times the sum of binomial(p + k - 1, p) (V e)^p over p. So the sums
    over the nodes are computed once for each cluster and power p.
    """
    inverse = _inverses(crossing, shift)
    term = mass[:, None] * inverse
    rows: list[list[Array]] = [[] for _ in range(most)]
    for p in range(_terms(crossing.form)):
        power = term
        for k in range(1, most + 1):
            rows[k - 1].append(comb(p + k - 1, p) * np.sum(power, axis=0).imag)
            power = power * inverse if k < most else power
        term *= inverse - 1
    group, e = _places(crossing.form, weights)
    return [_series(row, group, e) for row in rows]


def inverses_summed(crossing: Crossing, shift: Complex, weights: Array, factors: list[Array]) -> Complex:
    """Compute sum_k sum_j factors[k - 1]_j / (1 - r_j s_i)^k at every node s_i of a quadrature.

    Here r_j is the weight w_j of `weights` divided by the largest weight. The nodes are s_i = c + shift_i, where c is
    the point of `crossing` and `shift` has an entry for each node. Each array in the list `factors` has an entry for
    each weight. The result has an entry for each node.

    Close weights may be gathered in clusters. For a weight m (1 + e) in a cluster with the center m, let I be
    1 / (1 - r s) with the r of the center, and V = I - 1. Then 1 / (1 - r_j s)^k is I^k times the power series in e
    with the terms binomial(p + k - 1, p) (V e)^p, for p = 0, 1, 2, ... So I and V are computed once for each node and
    cluster, not for each weight.
    """
    inverse = _inverses(crossing, shift)
    group, e = _places(crossing.form, weights)
    total, series = np.zeros(shift.size, dtype=complex), np.ones_like(inverse)
    amounts = [np.array(factor) for factor in factors]
    for p in range(_terms(crossing.form)):
        for k, amount in enumerate(amounts, start=1):
            in_cluster = np.bincount(group, weights=amount, minlength=inverse.shape[1])
            total += comb(p + k - 1, p) * np.vecdot(in_cluster, series * inverse**k)
            amount *= e
        series *= inverse - 1
    return total


def inverses(crossing: Crossing, shift: Complex, weights: Array) -> Complex:
    """Compute 1 / (1 - r s) for every node s = c + shift and every entry of `weights`: shape (nodes, weights).

    Here c is the point of `crossing`, `shift` has an entry for each node, and r is the weight divided by the largest
    one.
    """
    largest = crossing.form.unit / 2
    slack = (
        1 - crossing.c * (weights / largest) if crossing.lower else crossing.pace + crossing.c * (1 - weights / largest)
    )
    return 1 / (slack - np.outer(shift, weights / largest))


def _inverses(crossing: Crossing, shift: Complex) -> Complex:
    """Compute 1 / (1 - r s) for every node s = c + shift and every cluster of weights: shape (nodes, clusters).

    Here c is the point of `crossing`, `shift` has an entry for each node, and r is the center of the cluster divided by
    the largest weight.
    """
    return 1 / (crossing.slack - np.outer(shift, crossing.form.r))


def _terms(form: Form) -> int:
    """Return the number of terms of the power series for the weights of a cluster, which is 1 without clusters.

    `form` holds the parameters of the distribution. It has no clusters if its `moments` are None.
    """
    return 1 if form.moments is None else ORDER + 1


def _places(form: Form, weights: Array) -> tuple[NDArray[np.intp], Array]:
    """Return the index of the cluster of each weight, and the relative distance of the weight from its center.

    `form` describes the clusters, and `weights` holds the weights. Both results have an entry for each weight.
    """
    group = np.searchsorted(form.lowest, weights, side="right") - 1
    return group, weights / form.centers[group] - 1


def _series(rows: list[Array], group: NDArray[np.intp], e: Array) -> Array:
    """Compute the power series sum_p rows[p][group[j]] e[j]^p for every weight j, by Horner's rule.

    Each array in the list `rows` has an entry for each cluster. For weight j, `group` has the index of its cluster, and
    `e` the relative distance from the center of this cluster.
    """
    total = rows[-1][group]
    for row in rows[-2::-1]:
        total *= e
        total += row[group]
    return total
