"""Find the saddle point of the integrand, and integrate along a contour through it."""

from __future__ import annotations

from collections.abc import Callable
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
    """Error of a computation that did not reach its accuracy.

    Parameters
    ----------
    message : str
        Description of the step that failed.
    estimate : float
        Best value that this step had found.

    Attributes
    ----------
    estimate : float
        Best value that the failed step had found, for diagnosis. It is not the tail: it is the
        coordinate of the saddle point if a search failed, the integral relative to the height of
        its integrand if the quadrature stayed too inaccurate, and NaN if the integrand did not die
        away.

    Examples
    --------
    A caller who needs an upper bound of a tail can fall back on the bound that always holds.

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
    """Give a saddle point c of exp(K(s) - s x) / s, and the x that it belongs to, by an unbounded theta.

    In the upper tail theta = log(c / (1 - c)) with c in (0, 1), in the lower tail theta = log(-c)
    with c < 0. For each group, `slack` is 1 - r c without cancellation, and `v` is r c / (1 - r c);
    `pace` is dlog|c|/dtheta. The derivatives at c are pure numbers: `drift` is K' times c, `spread`
    is the second derivative of K(s) - s x - log s times c^2, and `skew` is K''' times c^3. They
    leave out the moments of clusters, because they only choose a contour, and any contour gives the
    same integral.
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
        """Return the x whose saddle point is c: K'(c) - 1/c."""
        return (self.drift - 1) / self.c

    def log_height(self, x: Real) -> tuple[float, float]:
        """Compute the logarithm of exp(K(c) - c x), and the size of the numbers whose sum it is.

        Divided by |c|, exp(K(c) - c x) is the size of the integrand where the contour crosses. For many
        weights the terms -log(1 - y), with y = r c, and x are far larger than their difference. So y is
        subtracted from the terms with y > -1, and the means of these terms are subtracted from x. The
        sums are in extended precision where the machine has it.
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
        """Compute the logarithm of the tail at `self.x`, and its slope, by the saddlepoint formula.

        With f the exponent K(s) - s x - log s and f2, f3, f4 its derivatives, the formula to second
        order is exp(f) / sqrt(2 pi f2) (1 + f4 / (8 f2^2) - 5 f3^2 / (24 f2^3)). The slope in theta
        is that of the formula to first order.
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
    """Compute -log(1 - y) - y, where slack is 1 - y. Near zero it is the series of 2 artanh(z) with z = y / (2 - y)."""
    value = -np.log(slack) - y
    small = np.abs(y) < 0.02
    if small.any():
        z = y[small] / (2 - y[small])
        q = z * z
        value[small] = 2 * q * (1 / (1 + z) + z * (1 / 3 + q * (1 / 5 + q * (1 / 7 + q / 9))))
    return value


def _beyond_centers(form: Form, v: Any) -> Any:
    """Compute the part of K that the moments of clusters add, where v is r s / (1 - r s).

    It sums the series of log(1 - v e) and of 1 / (1 - v e).
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
    """Find the crossing whose saddle point belongs to x.

    By default it is in the lower tail for an x below the mean, and otherwise in the upper tail.
    """
    x = float(x)
    lower = x < form.mean if lower is None else lower
    z = abs(x - float(form.mean)) / form.deviation
    start = np.log((z + np.hypot(z, 2)) / (2 * form.deviation))

    def excess(theta: float) -> tuple[float, float, Crossing]:
        """Compare x with the x of theta, by the logarithm of a ratio that increases in theta.

        The ratio is K'(c) / (x + 1/c) in the upper tail and x / (K'(c) - 1/c) in the lower tail.
        Its logarithm is nearly a straight line in theta on both sides.
        """
        crossing = Crossing(form, theta, lower)
        drift, spread, pace, cx = crossing.drift, crossing.spread, crossing.pace, crossing.c * x
        if lower:
            return np.log(cx / (drift - 1)), pace * spread / (1 - drift), crossing
        return np.log(drift / (1 + cx)), pace * ((drift + spread - 1) / drift - cx / (1 + cx)), crossing

    return find_root(excess, start, tolerance=1e-4)


def find_root(increasing: Callable[[float], tuple[float, float, T]], start: float, tolerance: float) -> T:
    """Find the zero of an increasing function by Newton's rule, kept inside the bracket that the signs give.

    increasing(u) returns the value, the slope and any other result for this u. The search ends when
    the value is within the tolerance, and returns the other result.
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
    """Choose nodes s - c and masses m of a quadrature along the contour.

    The masses are relative to the height of the integrand at c: for a factor F, 1/(2 pi i) int
    exp(K(s) - s x) F(s) ds = exp(K(c) - c x) / pi * Im sum_i m_i F(s_i). The third result is the
    estimated relative error for F = 1/s and, if `density` is true, also for F = 1: far below the
    mean, the density is too small beside the upper tail for a contour that crosses at c > 0.
    """
    x = float(x)
    for bend in _BENDS:
        try:
            return _trapezoid(crossing, x, bend, density)
        except AccuracyError as error:
            failure = error
    raise failure


def _trapezoid(crossing: Crossing, x: float, bend: float, density: bool) -> Quadrature:
    """Compute the nodes, the masses and the error on a contour of the given bend.

    The step of the trapezoid rule is halved until two rules agree.
    """
    c, spread = abs(crossing.c), crossing.spread
    # The third derivative of K(s) - s x - log s. The pole's part of it would bend the upper contour left, where nothing
    # makes the integrand die away, and the lower one further than many weights can bear.
    third = abs(crossing.skew) + (2 / spread**2 if crossing.lower else 0)
    h, gamma = c / np.sqrt(spread), bend * c * third / (6 * spread**2)

    def evaluate(u: NDArray[Any]) -> tuple[Complex, Complex]:
        shift = 1j * h * u + gamma * u * u
        return shift, np.exp(_growth(crossing, shift) - shift * x) * (1j * h + 2 * gamma * u)

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
    """Evaluate the integrand at 0, 1, 2, ... steps along the contour, until it is negligible."""
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
    """Compute the terms whose sums over pi are the integrals for the tail and the density: shape (2, nodes)."""
    terms = np.empty((2, mass.size))
    terms[0], terms[1] = (mass / (1 + shift / crossing.c)).imag, mass.imag
    return terms


def _growth(crossing: Crossing, shift: Complex) -> Complex:
    """Compute K(c + shift) - K(c) by real arithmetic on 1 - q shift, where q = r / (1 - r c)."""
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


def sums_of_inverses(crossing: Crossing, shift: Complex, mass: Complex, weights: Array) -> tuple[Array, Array]:
    """Compute Im sum_i mass_i / (1 - 2 w_j s_i) for every weight, and the sum with the squared denominator.

    With the center m of a cluster, I = 1 / (1 - 2 m s) and V = I - 1, the inverse 1 / (1 - 2 w s) is
    I sum_p (V e)^p, and its square is I^2 sum_p (p + 1) (V e)^p.
    """
    form = crossing.form
    inverse = 1 / (crossing.slack - np.outer(shift, form.r))
    term, once, twice = mass[:, None] * inverse, [], []
    for p in range(1 if form.moments is None else ORDER + 1):
        once.append(np.sum(term, axis=0).imag)
        twice.append((p + 1) * np.sum(term * inverse, axis=0).imag)
        term *= inverse - 1
    group = np.searchsorted(form.lowest, weights, side="right") - 1
    e = weights / form.centers[group] - 1
    return _series(once, group, e), _series(twice, group, e)


def _series(rows: list[Array], group: NDArray[np.intp], e: Array) -> Array:
    """Compute sum_p rows[p][group] e^p by Horner's rule."""
    total = rows[-1][group]
    for row in rows[-2::-1]:
        total *= e
        total += row[group]
    return total
