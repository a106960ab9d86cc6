"""Find the saddle point of the integrand of a tail, and integrate along a contour through this point.

The integrand is exp(K(s) - s x) / s. Q is a generalized chi-square variable, and K is the cumulant function of the
variable Q / u, where u is twice the largest weight of Q. A `Form` holds the parameters of Q / u. x is a value of this
variable, and s is complex. The docstring of `egm.gx2` explains the method.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TypeAlias, TypeVar

import numpy as np

from egm._gx2.form import REACH, Form, Law, Long, Real
from egm._gx2.loops import FEW, loops
from egm._lazy import cached_property
from egm._types import Array, Complex, Indices

EPS = 2.2e-16
_SMALL = 128.0  # a sum of terms whose absolute values add up to less is computed in doubles
_MEDIUM = 1024.0  # up to this sum, the rounding errors of c r, for the ratios r of weights, are below 1e-13
WORST = 1e-8  # a larger estimated error of a quadrature, with fewer than eight digits, is an AccuracyError
_NONSENSE, _LOG_LEAST = 0.01, 745.0  # largest relative error of a tail; minus the log of the least double
VAST = 1e20  # beside a height (a logarithm) below -VAST, the log of the rest of the integral is negligible
_TILT = 0.9  # tangent of the angle between the ends of a contour and the vertical; below 1 for a normal term
_NO_SERIES = np.empty((0, 0))  # for a distribution without clusters
_ENOUGH = 512  # nodes that nearly every quadrature needs; with few degrees of freedom there may be more
Quadrature: TypeAlias = tuple[Complex, Complex, float, list[float]]  # nodes, masses, relative error, three integrals
Estimate: TypeAlias = tuple[float, float]  # a logarithm, and its error
T = TypeVar("T")


class AccuracyError(ArithmeticError):
    """Error that is raised if a search or a quadrature does not reach the accuracy at which it aims.

    Parameters
    ----------
    message : str
        Description of the step that failed.
    estimate : float
        Last number that this step had found.

    Attributes
    ----------
    estimate : float
        Last number that the failed step had found, for diagnosis. It does not approximate the result. After a search,
        it is the argument at which the search ended. After a quadrature that stayed too inaccurate, it is the integral
        divided by the height of the integrand. If rounding errors are too large, it is the logarithm of this height. It
        is NaN if the step had found no number.

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

    def __reduce__(self) -> tuple[type[AccuracyError], tuple[str, float]]:
        return type(self), (str(self), self.estimate)  # without it, unpickling calls __init__ without `estimate`


class Crossing:
    """Describe a point c where a contour (path of integration) crosses the real axis.

    c is the saddle point of exp(K(s) - s x) / s for some x, where K is the cumulant function of the distribution in
    `form`. The number `theta` gives the point. If `lower` is false, the contour is for the upper tail, and theta is
    log(c / (1 - c)) with c in (0, 1). If `lower` is true, the contour is for the lower tail, and theta is log(-c) with
    c < 0; then no weight may be negative. So theta may be any real number. The attributes are:

    - `x`: the x for which c is the saddle point.
    - `pace`: derivative of log|c| by theta.
    - `slack` and `v`: an entry for each group of weights, 1 - r c, computed without cancellation, and r c / (1 - r c),
      where r is the center of the group divided by the largest weight.
    - `drift`, `spread` and `skew`: c K'(c), c^2 times the second derivative of K(s) - s x - log s at c, and c^3
      K'''(c). The powers of c remove the units.

    The last three, and so `x`, are computed as if all weights of a group were equal to its center. This changes only
    the choice of the contour, and the integral is the same along every contour.
    """

    def __init__(self, form: Form, theta: float, lower: bool) -> None:
        form = form.serving(theta, lower)
        self.form, self.theta, self.lower = form, theta, lower
        self.at = np.empty((3, form.table.shape[1]))
        self.c, self.pace, gain, loss, convex, concave, self.skew = loops(form).cross(
            form.table, form.normal, theta, lower, self.at
        )
        if not 0 < abs(self.c) < math.inf or self.pace == 0:
            raise AccuracyError(f"no contour so near 0, infinity or the largest weight{_size(form)}", estimate=theta)
        self.drift, self.spread = gain - loss, convex + concave + 1
        self._turns = (gain + loss) / math.sqrt(self.spread)

    def refine(self) -> None:
        """Take the form with narrow clusters, because nodes of the contour are too far away for wide ones."""
        form, theta, lower = self.form.finer, self.theta, self.lower
        vars(self).clear()  # also what `beyond` has kept
        Crossing.__init__(self, form, theta, lower)

    @property
    def slack(self) -> Array:
        return self.at[0]

    @property
    def v(self) -> Array:
        return self.at[1]

    @cached_property
    def beyond(self) -> float:
        """Return the part of K(c) that is due to the differences between the weights within clusters of close weights.

        K is the cumulant function, and the contour crosses the real axis at c. The rest of K(c) is computed as if all
        weights of a cluster were its center.
        """
        if not self.form.series.size:
            return 0.0
        total = np.zeros_like(self.v)
        for coefficients in self.form.series[::-1]:
            total = (total + coefficients) * self.v
        return float(total.sum())

    @property
    def x(self) -> float:
        """Return the x for which the point c of this crossing is the saddle point of exp(K(s) - s x) / s.

        It is K'(c) - 1/c, where K is the cumulant function.
        """
        return (self.drift - 1) / self.c

    def log_height(self, x: Real) -> tuple[float, float]:
        """Return K(c) - c x, and a bound of its rounding error.

        K is the cumulant function of `form`, c is the point of this crossing, and `x` is a point of the distribution,
        divided by the unit of `form`. At c the integrand of the tail has the absolute value exp(K(c) - c x) / |c|. The
        bound follows from the sum of the absolute values of all terms that are added or subtracted.

        For a central distribution K(c) is a sum of terms -k log(1 - y) / 2, with y = r c for a group of weights with k
        degrees of freedom. For many weights these terms and c x are far larger than the difference K(c) - c x. So k y /
        2 is subtracted from each term, and the sum of these parts from c x. If the terms are still large, the sums are
        in extended precision where the machine has it, and terms with y <= -1, which are far from linear, are left as
        they are.
        """
        form = self.form
        height, size, roughness, bend, bent, mean, lost = loops(form).height_at(
            form.table, form.normal, self.c, self.at
        )
        size += abs(self.c * float(x))
        linear = self.c * (x - mean - lost) if size < _MEDIUM else math.inf
        quick = _in_doubles(height - self.c * float(x), size, float(bend - linear), bent + abs(linear))
        if not math.isnan(quick):
            return self._with_error(quick, size, roughness)
        c, rest = np.longdouble(self.c), np.longdouble(self.pace)
        linear = c * (x - form.mean)
        if bent + abs(linear) < _SMALL:
            return self._with_error(float(bend - linear), size, roughness)
        if self.lower or self.theta < loops(form).CLOSE:
            rest = 1 - c
        else:
            c = 1 - rest
        y = c * form.exact_r
        slack, near = 1 - y if self.lower else rest + c * form.exact_rest, y > -1
        terms = form.k * np.where(near, _minus_log1p_less_mean(y, slack), -np.log(slack)) / 2
        y, less = np.where(near, y, 1.0), np.where(near, form.means, 0.0).sum()
        if not form.central:
            terms = terms + form.nc * y * self.v / 2
        if form.normal:
            terms = np.append(terms, (form.normal * c) ** 2 / 2)
        linear = c * (x - less)
        size = np.abs(terms).sum() + np.abs(form.k * y).sum() + abs(c * x)
        return self._with_error(float(terms.sum() - linear), float(size), roughness)

    def _with_error(self, height: float, size: float, roughness: float) -> tuple[float, float]:
        """Return K(c) - c x, the sum of `height` and the attribute `beyond`, and a bound of its rounding error.

        K is the cumulant function, c is the point of this crossing, and x is the point of the tail. `beyond` is the
        part of K(c) that is due to the differences of weights within clusters; `height` is the rest, a sum of terms
        whose absolute values add up to `size`. The bound also covers the rounding errors of `kernel.quadrature`, the
        integration; `roughness`, from `kernel.height_at`, is the part of these errors that grows with the degrees of
        freedom. Raise an AccuracyError if the bound is above `_NONSENSE` * max(1, |sum| - 745); -745 is the log of the
        least double.
        """
        height, error = height + self.beyond, _rounding(size, roughness, self._turns)
        if not error <= _NONSENSE and not error <= _NONSENSE * (abs(height) - _LOG_LEAST):
            raise AccuracyError(
                f"rounding may change the logarithm {height:.3g} by {error:.1e}{_size(self.form)}", estimate=height
            )
        return height, error


def _in_doubles(height: float, size: float, bend: float, size_of_bend: float) -> float:
    """Return K(c) - c x as one of two sums in doubles, or NaN if both have large rounding errors.

    `height` is K(c) - c x, and `bend` is the same number as the difference of K(c) - K'(0) c and c (x - K'(0)). The
    other two arguments are the sums of the absolute values of their terms. `bend` is not used if `size` is `_MEDIUM` or
    more, because then rounding of the weights changes it too much.
    """
    if size < _SMALL:
        return height
    return bend if size < _MEDIUM and size_of_bend < _SMALL else math.nan


def _rounding(size: float, roughness: float, turns: float) -> float:
    """Return a bound of the rounding error of the logarithm of a tail.

    `size` is the sum of the absolute values of all terms of K(c) - c x. The other numbers are for the errors of the
    quadrature: `roughness` from `kernel.height_at` grows with the degrees of freedom, and `turns` with the phase.
    """
    return EPS * (64 + 6 * turns + roughness) + 5 * EPS * size


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


def _size(form: Form) -> str:
    """Return words for an error message: the sum of the degrees of freedom and the noncentralities in `form`."""
    with np.errstate(over="ignore"):
        total = float(np.sum(form.k) + np.sum(form.nc))
    return f", where dof and nc add up to {total:.3g}"


def _at(x: Real) -> str:
    """Return a phrase for an error message that names the point `x`, already divided by twice the largest weight."""
    return f" at a distance from shift of {x!s} times twice the largest weight"


def saddle(form: Form, x: Real, lower: bool | None = None) -> Crossing:
    """Find the saddle point of exp(K(s) - s x) / s, where K is the cumulant function of `form`; return a `Crossing`.

    The saddle point is the real number c at which the derivative of this function is 0. `x` is divided by ``form.unit``
    (twice the largest weight, if there is one). If `lower` is true, c < 0 belongs to the lower tail, and if it is
    false, c > 0 belongs to the upper tail. If `lower` is None, the tail is the lower one for an x below the mean, and
    otherwise the upper one.
    """
    lower = bool(x < form.mean) if lower is None else lower
    theta = loops(form).saddle(form.table, form.normal, float(x), lower, np.empty((3, form.k.size)))
    return saddle(form.finer, x, lower) if form.serving(theta, lower) is not form else _crossing(form, theta, x, lower)


def _crossing(form: Form, theta: float, x: Real, lower: bool) -> Crossing:
    """Return the `Crossing` for the `theta` of the saddle point at `x`; raise an AccuracyError if it is NaN."""
    if math.isnan(theta):
        raise AccuracyError(f"no saddle point within 200 steps{_at(x)}{_size(form)}", estimate=theta)
    return Crossing(form, theta, lower)


def log_by_formula(crossing: Crossing) -> float:
    """Return the log of the tail at ``crossing.x`` by the saddlepoint formula, an approximation in closed form.

    `crossing` is the saddle point. The tail is the lower one if ``crossing.lower`` is true, otherwise the upper one.
    """
    form = crossing.form
    value, _ = loops(form).formula(form.table, form.normal, crossing.theta, crossing.lower, crossing.at)
    return float(value)


def find_root(increasing: Callable[[float], tuple[float, float, T]], start: float, tolerance: float) -> T:
    """Find the zero of an increasing function by Newton's method, and return an object that belongs to the zero.

    ``increasing(u)`` returns the value of the function at u, its slope, and any other object. The search begins at u =
    `start`, and ends when the value is at most `tolerance` in size; then the object for this u is returned. After 200
    steps an AccuracyError is raised.
    """
    low, high, u = -np.inf, np.inf, start
    for _ in range(200):
        value, slope, kept = increasing(u)
        if abs(value) <= tolerance:
            return kept
        u, low, high = loops().newton(u, value, slope, low, high)
    raise AccuracyError(f"no root within 200 steps, at {u:.6g} the value is {value:.1e}", estimate=u)


def integrate(crossing: Crossing, x: Real, density: float = 1.0, halvings: int = 0) -> Quadrature:
    """Return a quadrature along a contour (path of integration): nodes, masses, error, integrals.

    The contour crosses the real axis at the point c of `crossing`. Let K be the cumulant function, s_i the nodes, m_i
    the masses, and Im the imaginary part. For a function F, the integral of exp(K(s) - s x) F(s) ds / (2 pi i) along
    the contour is exp(K(c) - c x) / pi times Im sum_i m_i F(s_i). The tail is the integral with F = 1/s, and the
    density is the integral with F = 1. The results are the array of the s_i - c, the array of the m_i, an estimate of
    the relative error, and the list of Im sum_i m_i F(s_i) / |c| for F(s) = c / s, 1 and (s - c) / c. `x` is a point of
    the distribution, divided by the unit of its `Form` (twice the largest weight, if there is one).

    The estimated error is the error of the tail, or the error of the density times the factor `density`, whichever is
    larger. For an x far below the mean and a contour with c > 0, the density is too small beside the upper tail, and
    this factor has to be 0. When the estimated error is small, the step is halved `halvings` times more, in case the
    caller integrates a function F that needs more nodes. If the form of `crossing` has wide clusters and a node is
    farther from c than `REACH`, `crossing` gets the form with narrow ones.
    """
    x, form = float(x), crossing.form
    loop = loops(form)
    best: Quadrature | None = None
    if not crossing.lower and crossing.theta == loop.FAR:
        raise AccuracyError(f"no quadrature so far beyond the largest weight,{_at(x)}", estimate=np.nan)
    arguments = form.table, form.normal, form.series, crossing.beyond, x, crossing.c, crossing.at
    ends, kept = np.empty(form.table.shape[1], np.intp), np.empty((3, loop.MOST_NODES), complex)
    for shape in _shapes(crossing, x):
        ended, count, error, *sums = loop.quadrature(
            *arguments, shape, density, halvings, ends, np.empty(loop.WHOLE), kept
        )
        shift, mass = kept[:2, :count].copy()
        if form.narrow and not np.abs(shift).max(initial=0.0) < REACH:
            crossing.refine()
            return integrate(crossing, x, density, halvings)
        if not sums[0] > 0:  # rounding errors have exceeded a tail
            continue
        if ended == loop.DIED:
            return shift, mass, error, sums
        if ended == loop.ROUGH and (best is None or error < best[2]):
            best = shift, mass, error, sums
    if best is None:
        raise AccuracyError(f"the integrand does not die away along any contour{_at(x)}{_size(form)}", estimate=np.nan)
    if not best[2] < WORST:
        raise AccuracyError(
            f"reached a relative error of {best[2]:.1e}, aimed at 1e-13{_size(form)}", estimate=best[3][0] / np.pi
        )
    return best


def every_second(shift: Complex, masses: Complex) -> Complex:
    """Return the factors of the nodes in a quadrature with twice the step: 0 for every second node.

    `shift` and `masses` describe the quadrature, as the results of `integrate`; `masses` may have several rows.
    """
    coarse, kept = np.zeros_like(masses), np.argsort(shift.imag)[::2]
    coarse[..., kept] = 2 * masses[..., kept]
    return coarse


def relative_error(change: Array, error: float | Array) -> Array:
    """Estimate the relative error of integrals that have changed by the relative `change` when the step was halved.

    Halving the step about squares the error, up to a factor, for which `kernel.quadrature` takes 1e5, too. `error` is
    the error of the integrand and of the sums by rounding.
    """
    return error + 1e5 * change * change


def estimate_tail(form: Form, x: Real, lower: bool) -> Estimate:
    """Compute the logarithm of the lower or the upper tail at `x`, and its estimated error.

    `form` holds the parameters of the distribution, and `x` is divided by its unit (twice the largest weight, if there
    is one).
    """
    if form.moments.shape[1] or form.k.size > FEW:
        return log_tail_at(saddle(form, x, lower), x)
    theta, found = _in_one_go(form.table, form.normal, float(x), lower)
    return found or log_tail_at(_crossing(form, theta, x, lower), x)


def smaller_tail(law: Law, x: Real) -> tuple[Estimate, bool] | None:
    """Compute the logarithm of a tail at `x` with its error, and say whether it is P[Q <= x], quickly.

    It is P[Q <= x] if `x` is below the mean of Q, else P[Q > x]; this is the smaller tail, unless `x` is between the
    mean and the median. `law` holds the parameters of Q, a generalized chi-square variable. The result is None if there
    is no weight, if there are many, if they are not in strictly ascending or descending order, as eigenvalues are, if Q
    has a constant term, if `x` has more digits than a double, if numbers are very large or small, or if the integration
    needs more care. Then the tail is computed in another way.
    """
    size = law.weights.size
    if not 0 < size <= FEW or law.shift or not isinstance(x, float):
        return None
    table = np.empty((4, size))
    table[0], table[2], table[3] = law.weights, law.dof, law.nc
    y, normal, below, lower = loops().arrange(table, law.normal, x)
    if math.isnan(y):
        return None
    _, found = _in_one_go(table, normal, y, lower)
    return (found, below) if found else None


def _in_one_go(table: Array, normal: float, x: float, lower: bool) -> tuple[float, Estimate | None]:
    """Compute the theta of a saddle point, and the logarithm of the tail at `x` with its estimated error.

    `table` and `normal` describe a distribution, as for the functions in `kernel`. Two calls of them do the work of
    `saddle`, `Crossing` and `integrate`, which saves time for few weights. If the terms of the logarithm are large, or
    if the first contour fails, the second result is None.
    """
    loop, size = loops(), table.shape[1]
    at = np.empty((3, size))
    theta, c, height, *sizes, bend, size_of_bend, shape = loop.approach(table, normal, x, lower, _TILT, at)
    height, bound = _in_doubles(height, sizes[0], bend, size_of_bend), _rounding(*sizes)
    if c and not math.isnan(height) and bound < WORST and (lower or theta < loop.FAR):
        ends, nodes, kept = np.empty(size, np.intp), np.empty(loop.WHOLE), np.empty((3, _ENOUGH), complex)
        ended, _, error, integral, *_ = loop.quadrature(
            table, normal, _NO_SERIES, 0.0, x, c, at, shape, 0.0, 0, ends, nodes, kept
        )
        if ended == loop.DIED and integral > 0:
            return theta, (height + math.log(integral / math.pi), error + bound)
    return theta, None


def log_tail_at(crossing: Crossing, x: Real) -> Estimate:
    """Compute the logarithm of a tail at `x`, and its estimated error, along a contour through the point of `crossing`.

    Unlike `tail_and_density`, this function can be used where the density is infinite.
    """
    height, rounding = crossing.log_height(x)
    if height < -VAST:
        return height, rounding
    _, _, error, (tail, *_) = integrate(crossing, x, density=0.0)
    return height + math.log(tail / math.pi), error + rounding


def _shapes(crossing: Crossing, x: float) -> Iterator[tuple[float, float, float, float]]:
    """Yield the shapes (h, reach, tilt, most) of the contours through `crossing` that `integrate` tries in turn.

    h, reach and tilt are constants of a hyperbola (see `kernel.quadrature`), and `most` is the largest factor by which
    the integrand may grow along it. The first hyperbola follows the path of steepest descent to third order, if this
    path bends to the side on which exp(-s x) falls. The second one bends more sharply, and the third contour is
    straight. If the path of an upper tail bends to the other side, two more hyperbolas go there: with many small
    weights of one sign, the integrand may die away although exp(-s x) grows. `x` is divided by twice the largest
    weight, if there is one.
    """
    of_crossing = crossing.c, crossing.pace, crossing.spread, crossing.skew
    (h, wide, tilt, most), reach, bend = loops(crossing.form).hyperbola(*of_crossing, x, crossing.lower, _TILT)
    yield h, wide, tilt, most
    yield h, 1.0, tilt, most
    yield h, 1.0, 0.0, most
    if not crossing.lower and bend * x <= 0:
        for wide in (reach, 1.0):
            yield h, wide, math.copysign(_TILT, bend), most


def growth(crossing: Crossing, shift: Complex) -> Complex:
    """Compute K(c + shift) - K(c), the change of the cumulant function K, for the nodes c + shift of a quadrature.

    c is the point of `crossing`, and `shift` is an array of complex numbers.
    """
    form = crossing.form
    return loops(form).growth_at(form.table, form.normal, form.series, crossing.beyond, crossing.c, crossing.at, shift)


def sums_of_inverses(crossing: Crossing, shift: Complex, masses: Complex, weights: Array, most: int = 2) -> Array:
    """Compute Im sum_i mass_i / (1 - r_j s_i)^k for every weight w_j, power k = 1 ... `most` and row of `masses`.

    From these integrals along a contour, means and derivatives with respect to each weight are computed. Im is the
    imaginary part, and r_j is w_j divided by the largest weight. The nodes of the quadrature are s_i = c + shift_i,
    where c is the point of `crossing`. The array `shift` has an entry for each node, `masses` has a row of such entries
    for each integral, and `weights` holds the w_j. The result has the shape (integrals, `most`, weights).

    Nearly equal weights form a cluster. Let m be its center and m (1 + e) one of its weights. Let I be 1 / (1 - r s),
    where r is m divided by the largest weight, and let V be I - 1. Then the k-th power of 1 / (1 - r s) for the weight
    m (1 + e) is I^k sum_p binomial(p + k - 1, p) (V e)^p. So the sums over the nodes are computed once for each cluster
    and p.
    """
    form = crossing.form
    rows = loops(form).sums_of_inverses(form.table, crossing.at, shift, masses, most, _terms(form))
    if form.order is not None:  # each weight is a group
        found = np.empty_like(rows[0])
        found[..., form.order] = rows[0]
        return found
    group, e = _places(form, weights)
    return loops(form).at_weights(rows, group, e) if e.any() else rows[0].take(group, axis=-1)


def inverses_summed(crossing: Crossing, shift: Complex, weights: Array, factors: list[Array]) -> Complex:
    """Compute sum_k sum_j factors[k - 1]_j / (1 - r_j s_i)^k at every node s_i of a quadrature.

    Here r_j is the weight w_j of `weights` divided by the largest weight. The nodes are s_i = c + shift_i, where c is
    the point of `crossing` and `shift` has an entry for each node. Each array in the list `factors` has an entry for
    each weight. The result has an entry for each node.

    For the weights m (1 + e) of a cluster with the center m, a power series in e is used, as in `sums_of_inverses`: the
    factors are summed within each cluster, once for each power of e, before the nodes are visited.
    """
    form = crossing.form
    if form.order is not None:  # each weight is a group
        amounts = np.array([[factor[form.order] for factor in factors]])
    else:
        group, e = _places(form, weights)
        amounts = np.empty((_terms(form), len(factors), form.table.shape[1]))
        powers = np.ones_like(e)
        for row in amounts:
            for k, factor in enumerate(factors):
                row[k] = np.bincount(group, weights=factor * powers, minlength=row.shape[1])
            powers *= e
    return loops(form).inverses_summed(form.table, crossing.at, shift, amounts)


def inverses(crossing: Crossing, shift: Complex, weights: Array) -> Complex:
    """Compute 1 / (1 - r s) for every node s = c + shift and every entry of `weights`; the shape is (nodes, weights).

    c is the point of `crossing`, `shift` has an entry for each node, and r is the weight divided by the largest one.
    """
    largest = crossing.form.unit / 2
    slack = (
        1 - crossing.c * (weights / largest) if crossing.lower else crossing.pace + crossing.c * (1 - weights / largest)
    )
    return 1 / (slack - np.outer(shift, weights / largest))


def _terms(form: Form) -> int:
    """Return how many terms the power series of a cluster in `sums_of_inverses` has; 1 if `form` has no clusters.

    `form` holds the parameters of the distribution, and a cluster is a group of weights that are close but differ.
    """
    return 1 + form.moments.shape[1]


def _places(form: Form, weights: Array) -> tuple[Indices, Array]:
    """Return the index of the group of each weight, and the relative distance of the weight from the group's center.

    `form` describes the groups, and `weights` holds the weights from which `form` was made. If each weight is a group
    of its own, a caller can save time and use ``form.order`` in place of this function.
    """
    group = np.searchsorted(form.lowest, weights, side="right") - 1
    return group, weights / form.centers[group] - 1
