"""The generalized chi-square distribution: Q = sum_j weights_j * chi2(dof_j, nc_j), with every weight > 0.

The functions parallel those of `scipy.stats.ncx2`: `sf, logsf, cdf, logcdf, pdf, logpdf, isf, ppf, mean, var, rvs`;
`ilogsf` inverts `logsf` where p itself would underflow, and `conditional_means` says which coordinate a large Q is
made of.

How a tail is computed. The cumulant function of Q,

    K(s) = sum_j [ -dof_j/2 log(1 - 2 w_j s) + nc_j w_j s / (1 - 2 w_j s) ],

is analytic but for a cut on the real axis from 1 / (2 max w) to infinity, and the tails are contour integrals of it:

    sf(x) = 1/(2 pi i) int exp(K(s) - s x) ds/s   crossing the real axis at c in (0, 1 / (2 max w)),
   cdf(x) = the same with the opposite sign,      crossing it at c < 0,
    pdf(x) = 1/(2 pi i) int exp(K(s) - s x) ds    on either.

1. The contour crosses at the saddle point c, where the integrand has its smallest value on the real axis and falls off
   fastest across it. That value, exp(K(c) - c x) / |c|, is a factor of the whole integral: it carries the size of the
   tail, 1e-300 or exp(-1e6), and is only ever handled by its logarithm. What is left is a number of order one.
2. The contour is the parabola s = c + i h u + gamma u^2 that follows the path of steepest descent to third order. On
   it the integrand falls like exp(-u^2/2), and the trapezoid rule in u converges geometrically: the step is halved
   until two rules agree, and the difference of the last two is the estimate of the error.
3. A quantile is searched over c instead of x, because x(c) = K'(c) - 1/c is explicit. The saddlepoint formula to
   second order is right to a tenth, in a tail to a few percent, and gives the start; Newton's rule with the tail
   itself ends the search after one or two contours.
4. Many weights are put into clusters, each replaced by its centre and the moments about it, because log(1 - 2 w s) is
   analytic in w: with w = m (1 + e) and V = 2 m s / (1 - 2 m s),

       log(1 - 2 w s) = log(1 - 2 m s) + log(1 - V e),      log(1 - V e) = -sum_p (V e)^p / p.

   Clusters are a tenth wide in log(r / (1 - r)), r = w / max w, so that |V e| is at most 0.05 where it matters. One
   pass over the weights, however many there are; after it a tail costs as much as with a few hundred of them.

Scales: weights are divided by the largest, so the cut starts at 1; 1 - r c is formed as (1 - c) + c (1 - r), with each
part exact, because in a far tail 1 - c is small and everything hinges on it.

Rice (1980), "Distribution of quadratic forms in normal random variables: evaluation by numerical integration"; Daniels
(1987), "Tail probability approximations".
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeAlias, TypeVar, overload

import numpy as np
from numpy.typing import NDArray
from scipy.special import exp1, wofz

from egm._types import Array, ArrayLike, Floats
from egm._validate import nonnegative, positive, real, scalar, vector

__all__ = [
    "AccuracyError",
    "cdf",
    "clip_moments",
    "conditional_means",
    "ilogsf",
    "isf",
    "logcdf",
    "logpdf",
    "logsf",
    "mean",
    "pdf",
    "ppf",
    "rvs",
    "sf",
    "var",
]

_STEP = 0.2  # of the first trapezoid rule, in units in which the integrand falls like exp(-u^2/2)
_BATCH = 72  # nodes added at a time until the integrand has died away
_MOST_NODES = 8192
_NEGLIGIBLE = 1e-17  # relative size at which it has
_HALVINGS = 5
_RTOL = 1e-13  # aim of the quadrature; rounding of the exponent comes on top
_EPS = 2.2e-16

_EXACT = 256  # more weights than this are clustered
_WIDTH = 0.1  # of a cluster, in log(r / (1 - r))
_ORDER = 10  # moments kept of each

Complex: TypeAlias = NDArray[np.complex128]
Long: TypeAlias = NDArray[Any]  # of np.longdouble
Real: TypeAlias = Any  # a float or a np.longdouble
Quadrature: TypeAlias = tuple[Complex, Complex, float]  # nodes, masses, relative error
Estimate: TypeAlias = tuple[float, float]  # a logarithm, and its error
T = TypeVar("T")


class AccuracyError(ArithmeticError):
    """The quadrature did not reach its accuracy. `estimate` is the best value found."""

    def __init__(self, message: str, estimate: float) -> None:
        super().__init__(message)
        self.estimate = estimate


# ----------------------------------------------------------------------------------------------------------------------
# Public functions
# ----------------------------------------------------------------------------------------------------------------------


@overload
def sf(x: float, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> float: ...
@overload
def sf(x: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> Array: ...
@overload
def sf(x: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0, *, full_output: bool) -> Any: ...
def sf(
    x: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0, *, full_output: bool = False
) -> Floats | tuple[Floats, Floats]:
    """Upper tail P[Q > x].

    x: any shape. weights: (d,), finite and > 0. dof: > 0 and nc: >= 0, scalars or (d,). Returns the shape of x.
    Relative error at most 1e-12 down to 1e-300. With full_output=True returns the pair (tail, estimated relative
    error): the difference of the last two quadratures, squared, plus a bound of the rounding in the exponent. The
    estimate is not rigorous; it covers every reference case. Raises ValueError for anything outside these ranges,
    AccuracyError if the quadrature fails. Rice (1980).
    """
    return _output(_upper(x, weights, dof, nc), np.exp, full_output)


@overload
def logsf(x: float, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> float: ...
@overload
def logsf(x: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> Array: ...
@overload
def logsf(x: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0, *, full_output: bool) -> Any: ...
def logsf(
    x: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0, *, full_output: bool = False
) -> Floats | tuple[Floats, Floats]:
    """log P[Q > x], also where P[Q > x] would underflow. Its absolute error is sf's relative one; otherwise as sf."""
    return _output(_upper(x, weights, dof, nc), np.positive, full_output)


@overload
def cdf(x: float, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> float: ...
@overload
def cdf(x: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> Array: ...
@overload
def cdf(x: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0, *, full_output: bool) -> Any: ...
def cdf(
    x: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0, *, full_output: bool = False
) -> Floats | tuple[Floats, Floats]:
    """Lower tail P[Q <= x], with relative accuracy also near zero. Arguments as for sf."""
    return _output(_lower(x, weights, dof, nc), np.exp, full_output)


@overload
def logcdf(x: float, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> float: ...
@overload
def logcdf(x: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> Array: ...
@overload
def logcdf(x: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0, *, full_output: bool) -> Any: ...
def logcdf(
    x: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0, *, full_output: bool = False
) -> Floats | tuple[Floats, Floats]:
    """log P[Q <= x], also where P[Q <= x] would underflow. Arguments as for sf."""
    return _output(_lower(x, weights, dof, nc), np.positive, full_output)


@overload
def pdf(x: float, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> float: ...
@overload
def pdf(x: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> Array: ...
def pdf(x: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> Floats:
    """Density of Q at x, the derivative of cdf. Arguments as for sf; at x = 0 the limit from above."""
    return np.exp(logpdf(x, weights, dof, nc))


@overload
def logpdf(x: float, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> float: ...
@overload
def logpdf(x: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> Array: ...
def logpdf(x: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> Floats:
    """log of the density of Q at x. Arguments as for sf."""
    return _map(_log_density, real(x=x), weights, dof, nc)


@overload
def isf(p: float, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> float: ...
@overload
def isf(p: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> Array: ...
def isf(p: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> Floats:
    """The x with P[Q > x] = p: the upper quantile.

    p: in [0, 1], any shape. weights, dof, nc as for sf. Returns the shape of p. The round trip sf(isf(p)) = p holds to
    about 1e-12. Raises ValueError for p outside [0, 1].
    """
    return ilogsf(_log_probability(p), weights, dof, nc)


@overload
def ppf(p: float, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> float: ...
@overload
def ppf(p: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> Array: ...
def ppf(p: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> Floats:
    """The x with P[Q <= x] = p: the lower quantile, 0 where it would underflow. Arguments as for isf."""
    return _map(lambda form, log_p: _quantile(form, log_p, lower=True), _log_probability(p), weights, dof, nc)


@overload
def ilogsf(logp: float, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> float: ...
@overload
def ilogsf(logp: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> Array: ...
def ilogsf(logp: ArrayLike, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> Floats:
    """The x with log P[Q > x] = logp, for tails that no double can hold: logp may be -1e6.

    logp: <= 0, any shape; 0 gives 0 and -inf gives inf. weights, dof, nc as for sf. Raises ValueError for logp > 0.
    """
    logp = real(logp=logp)
    if np.any(logp > 0):
        raise ValueError(f"logp must be <= 0, got {float(np.max(logp))!r}")
    return _map(lambda form, log_p: _quantile(form, log_p, lower=False), logp, weights, dof, nc)


def mean(weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> float:
    """E[Q] = sum_j weights_j (dof_j + nc_j)."""
    weights, dof, nc = _parameters(weights, dof, nc)
    return float(np.sum(weights * (dof + nc)))


def var(weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> float:
    """Var[Q] = 2 sum_j weights_j^2 (dof_j + 2 nc_j)."""
    weights, dof, nc = _parameters(weights, dof, nc)
    return float(2 * np.sum(weights**2 * (dof + 2 * nc)))


@overload
def rvs(
    weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0, *, size: None = None, rng: np.random.Generator
) -> float: ...
@overload
def rvs(
    weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0, *, size: int | Sequence[int], rng: np.random.Generator
) -> Array: ...
def rvs(
    weights: ArrayLike,
    dof: ArrayLike = 1,
    nc: ArrayLike = 0,
    *,
    size: int | Sequence[int] | None = None,
    rng: np.random.Generator,
) -> Floats:
    """Draws of Q by simulation, from the numpy Generator `rng`: shape `size`, or one number for size=None."""
    weights, dof, nc = _parameters(weights, dof, nc)
    shape = () if size is None else tuple(np.atleast_1d(size))
    total = np.zeros(shape)
    for weight, k, shift in zip(weights, dof, nc, strict=True):
        total += weight * (rng.noncentral_chisquare(k, shift, shape) if shift else rng.chisquare(k, shape))
    return total[()]


def conditional_means(x: float, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> Array:
    """E[Y_j | Q = x] for Q = sum_j weights_j Y_j, Y_j ~ chi2(dof_j, nc_j): which terms make Q this large.

    x: one number > 0. weights, dof, nc as for sf. Returns shape (d,); sum_j weights_j E[Y_j | Q = x] = x. These are
    also the derivatives of a quantile by the weights, d isf(p, w) / d w_j where isf(p, w) = x. Each is a ratio of two
    contour integrals: term j's moment generating function has the logarithmic derivative dof_j / (1 - 2 w_j s) + nc_j
    / (1 - 2 w_j s)^2, and this goes into the numerator.
    """
    x = scalar(positive, x=x)
    weights, dof, nc = _parameters(weights, dof, nc)
    form = _form(weights, dof, nc)
    crossing = _saddle(form, x / form.unit)
    shift, mass, _ = _contour(crossing, x / form.unit)
    once, twice = _inverses(crossing, shift, mass, weights)
    return (dof * once + nc * twice) / np.sum(mass).imag


def clip_moments(x: float, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> tuple[Array, Array, Array]:
    """What a row loses when it is clipped to squared norm x, its squared norm being Q = sum_j weights_j Y_j.

    Y_j ~ chi2(dof_j, nc_j) is the squared length of a normal vector V_j of dof_j coordinates with variance 1, whose
    mean m_j has the squared length nc_j. With the lost share L = max(0, 1 - sqrt(x / Q)) returns three vectors (d,),

        l_j with E[L V_j] = l_j m_j,    E[L Y_j],    E[L^2 Y_j].

    x: one number > 0. weights, dof, nc as for sf. Relative error about 1e-12. For a function g of Q, Stein's identity
    gives E[g(Q) V_j] = m_j E[g(Q')], where Q' has two more degrees of freedom at weight j. So all three are integrals
    over the contour of the upper tail, of exp(K(s) - s x) times 1 / (1 - 2 w_j s) or its square times the transform of
    L or L^2. Raises ValueError outside these ranges.
    """
    x = scalar(positive, x=x)
    weights, dof, nc = _parameters(weights, dof, nc)
    form = _form(weights, dof, nc)
    x = np.longdouble(x) / form.unit  # type: ignore[assignment]  # keeps its last digits
    try:
        once, twice, once_squared, twice_squared = _lost_in_tail(form, x, weights)
    except AccuracyError:
        once, twice, once_squared, twice_squared = _lost_by_density(form, x, weights)
    return once, dof * once + nc * twice, dof * once_squared + nc * twice_squared


def _lost_in_tail(form: _Form, x: Real, weights: Array) -> Array:
    """E[L g(Q)] and E[L^2 g(Q)], with two and with four more degrees of freedom at each weight, by one contour."""
    crossing = _saddle(form, x, lower=False)
    shift, mass, _ = _contour(crossing, x, density=False)
    height = float(x) * np.exp(crossing.log_height(x)[0]) / np.pi
    shares = _lost_share((crossing.c + shift) * float(x))
    return height * np.concatenate([_inverses(crossing, shift, mass * share, weights) for share in shares])


def _lost_by_density(form: _Form, x: Real, weights: Array) -> Array:
    """The same for an x so far below the mean that nearly all is lost: over the density, panel by panel in log Q."""
    ends = [_quantile(form, np.log(_NEGLIGIBLE), lower) / form.unit for lower in (True, False)]
    edges = np.linspace(np.log(max(float(x), ends[0])), np.log(ends[1]), 25)
    total = np.zeros((4, weights.size))
    for low, high in itertools.pairwise(edges):
        for node, share in zip(*_LEGENDRE, strict=True):
            r = np.exp((low + high + (high - low) * node) / 2)
            crossing = _saddle(form, r)
            shift, mass, _ = _contour(crossing, r)
            height = r * (high - low) / 2 * share * np.exp(crossing.log_height(r)[0]) / np.pi
            lost = 1 - np.sqrt(float(x) / r)
            inverses = np.array(_inverses(crossing, shift, mass, weights))
            total += height * np.concatenate([lost * inverses, lost**2 * inverses])
    return total


def _lost_share(z: Complex) -> tuple[Complex, Complex]:
    """int_1^inf (1 - t^-1/2)^k exp(-z (t - 1)) dt for k = 1, 2 and complex z with Re z > 0.

    In closed form with J_m, the integrals of t^(-m/2): they are 1/z - J_1 and 1/z - 2 J_1 + J_2. They cancel when z is
    large; then by Gauss-Laguerre quadrature in (t - 1) z.
    """
    root = np.sqrt(z)
    far = np.abs(z) > _FAR
    near = np.where(far, 1.0, z)
    one = np.sqrt(np.pi) / np.where(far, 1.0, root) * wofz(1j * np.where(far, 1.0, root))
    first, second = 1 / near - one, 1 / near - 2 * one + np.exp(near) * exp1(near)
    beyond = _LAGUERRE[0] / np.where(far, z, _FAR)[:, None]  # t - 1
    share = beyond / (1 + beyond + np.sqrt(1 + beyond))
    return np.where(far, _integral(share) / z, first), np.where(far, _integral(share**2) / z, second)


def _integral(values: NDArray[Any]) -> Complex:
    """int_0^inf f(t) exp(-t) dt from f at the nodes, (k, nodes). Not as a product of matrices: so small a one may
    take a thousand times as long where the threads of a BLAS wait for each other."""
    return np.einsum("ij,j->i", values, _LAGUERRE[1])


_FAR = 2.0
_LAGUERRE = np.polynomial.laguerre.laggauss(80)
_LEGENDRE = np.polynomial.legendre.leggauss(12)


def _inverses(crossing: _Crossing, shift: Complex, mass: Complex, weights: Array) -> tuple[Array, Array]:
    """Im sum_i mass_i / (1 - 2 w_j s_i) and the same with the square, for every weight: two vectors (d,).

    About the centre m of its cluster, 1 / (1 - 2 w s) is the inverse 1 / (1 - 2 m s) times sum_p (V e)^p, with V the
    inverse less 1; the square of that has p + 1 times each term and one more inverse.
    """
    form = crossing.form
    inverse = 1 / (crossing.slack - np.outer(shift, form.r))
    term, once, twice = mass[:, None] * inverse, [], []
    for p in range(1 if form.moments is None else _ORDER + 1):
        once.append(np.sum(term, axis=0).imag)
        twice.append((p + 1) * np.sum(term * inverse, axis=0).imag)
        term *= inverse - 1
    group = np.searchsorted(form.lowest, weights, side="right") - 1
    e = weights / form.centers[group] - 1
    return _series(once, group, e), _series(twice, group, e)


def _series(rows: list[Array], group: NDArray[np.intp], e: Array) -> Array:
    """sum_p rows[p][group] e^p, by Horner's rule."""
    total = rows[-1][group]
    for row in rows[-2::-1]:
        total *= e
        total += row[group]
    return total


# ----------------------------------------------------------------------------------------------------------------------
# From arguments to a form whose largest weight is 1/2
# ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Form:
    """Q / unit, where unit is twice the largest weight: then 1 - 2 w s is 1 - r s with r = w / max w in (0, 1].

    A group of weights, the smallest of them `lowest`, has a center and the sums k of its degrees of freedom and nc of
    its noncentralities. Where its weights center * (1 + e) differ, `moments` has the sums of k_j e_j^p and of nc_j
    e_j^p for p = 1 ... ORDER.
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
        """1 - r, by an exact subtraction of weights."""
        return (self.unit / 2 - self.centers) / (self.unit / 2)

    @cached_property
    def exact_r(self) -> Long:
        """r with the digits that a large number of degrees of freedom would magnify."""
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


def _parameters(weights: ArrayLike, dof: ArrayLike, nc: ArrayLike) -> tuple[Array, Array, Array]:
    """The three vectors, checked and of the same length."""
    weights = vector(weights=weights)
    dof, nc = positive(dof=dof), nonnegative(nc=nc)
    for name, value in (("dof", dof), ("nc", nc)):
        if value.ndim > 1 or value.size not in (1, weights.size):
            raise ValueError(
                f"{name} must be a number or have the {weights.size} entries of weights, got shape {value.shape}"
            )
    return weights, np.broadcast_to(dof, weights.shape), np.broadcast_to(nc, weights.shape)


def _form(weights: Array, dof: Array, nc: Array) -> _Form:
    """The form of checked parameters: equal weights merged, and close ones clustered where that leaves far fewer."""
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


def _merged(weights: Array, dof: Array, nc: Array) -> _Form:
    """The form with one group for each distinct weight."""
    values, group = np.unique(weights, return_inverse=True)
    k, shift = (np.bincount(group, weights=v) for v in (dof, nc))
    return _Form(2 * values[-1], values, values, k, shift)  # type: ignore[arg-type]  # counts with weights are float64


def _clustered(weights: Array, dof: Array, nc: Array, *, starts: NDArray[np.intp]) -> _Form:
    """The form with one group for each cluster of sorted weights, in one pass a moment."""
    sizes = np.diff(starts, append=weights.size)
    k, shift = np.add.reduceat(dof, starts), np.add.reduceat(nc, starts)
    centers = np.add.reduceat(weights * dof, starts) / k
    e = weights / np.repeat(centers, sizes) - 1
    moments = tuple(_moments(values, e, starts) for values in (dof, nc))
    return _Form(2 * weights[-1], centers, weights[starts], k, shift, moments)


def _edges(smallest: float, largest: float) -> Array:
    """Lower edges of the clusters, at equal steps of log(r / (1 - r)) up to the largest weight."""
    theta = np.arange(np.log(smallest) - np.log(largest) - _WIDTH, 37.0, _WIDTH)
    decay = np.exp(-np.abs(theta))
    edge = largest * (decay / (1 + decay))
    return np.where(theta < 0, edge, largest - edge)


def _moments(values: Array, e: Array, starts: NDArray[np.intp]) -> Array:
    """sum_j values_j e_j^p over each cluster, for p = 1 ... ORDER: shape (ORDER, clusters)."""
    if not values.any():
        return np.zeros((_ORDER, starts.size))
    power = np.array(values)
    rows = []
    for _ in range(_ORDER):
        power *= e
        rows.append(np.add.reduceat(power, starts))
    return np.array(rows)


def _log_probability(p: ArrayLike) -> Array:
    """log p for p in [0, 1], with log 0 = -inf."""
    p = real(p=p)
    if np.any((p < 0) | (p > 1)):
        raise ValueError(f"p must lie in [0, 1], got {float(p[(p < 0) | (p > 1)].flat[0])!r}")
    return np.log(p, where=p > 0, out=np.full_like(p, -np.inf))


# ----------------------------------------------------------------------------------------------------------------------
# The point where a contour crosses the real axis
# ----------------------------------------------------------------------------------------------------------------------


class _Crossing:
    """The saddle point c of exp(K(s) - s x) / s and the x it belongs to, as functions of one unbounded coordinate.

    Upper tail: theta = log(c / (1 - c)), c in (0, 1). Lower tail: theta = log(-c), c < 0. For each group `slack` is
    1 - r c, without cancellation, and `v` is r c / (1 - r c); `pace` is dlog|c|/dtheta. The derivatives at c are pure
    numbers: `drift` is K' times c, `spread` the second derivative of K(s) - s x - log s times c^2, `skew` is K''' times
    c^3. They leave out the moments of clusters: they choose a contour, and any contour gives the same integral.
    """

    def __init__(self, form: _Form, theta: float, lower: bool) -> None:
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
        """The x whose saddle point is c: K'(c) - 1/c."""
        return (self.drift - 1) / self.c

    def log_height(self, x: Real) -> tuple[float, float]:
        """log of exp(K(c) - c x), and the size of the numbers that it is the sum of.

        With 1/|c| this is the size of the integrand where the contour crosses. Terms with y = r c > -1 are taken less
        their mean, -log(1 - y) - y, and x less those means: for many weights both are far larger than their difference.
        All in extended precision where the machine has it: these few sums are the only large numbers there are.
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
        """The saddlepoint formula for the log of the tail at `self.x`, to second order; its slope in theta, to first.

        With f the exponent K(s) - s x - log s: exp(f) / sqrt(2 pi f2) (1 + f4 / (8 f2^2) - 5 f3^2 / (24 f2^3)).
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
    """-log(1 - y) - y, where slack is 1 - y; near zero by the series of 2 artanh(z) with z = y / (2 - y)."""
    value = -np.log(slack) - y
    small = np.abs(y) < 0.02
    if small.any():
        z = y[small] / (2 - y[small])
        q = z * z
        value[small] = 2 * q * (1 / (1 + z) + z * (1 / 3 + q * (1 / 5 + q * (1 / 7 + q / 9))))
    return value


def _beyond_centers(form: _Form, v: Any) -> Any:
    """What the moments of clusters add to K where r s / (1 - r s) is v: the series of log(1 - v e) and 1/(1 - v e)."""
    if form.moments is None:
        return 0.0
    total, power = 0.0, 1.0
    for p, (k, nc) in enumerate(zip(*form.moments, strict=True), start=1):
        power = power * v
        total = total + np.vecdot(k / (2 * p), power)
        if not form.central:
            total = total + np.vecdot(nc / 2, (1 + v) * power)
    return total


def _saddle(form: _Form, x: Real, lower: bool | None = None) -> _Crossing:
    """The crossing whose saddle point belongs to x: by default in the lower tail below the mean, else in the upper."""
    x = float(x)
    lower = x < form.mean if lower is None else lower
    z = abs(x - float(form.mean)) / form.deviation
    start = np.log((z + np.hypot(z, 2)) / (2 * form.deviation))

    def excess(theta: float) -> tuple[float, float, _Crossing]:
        """log of K'(c) over log of x + 1/c, nearly a straight line in theta on both sides; increasing."""
        crossing = _Crossing(form, theta, lower)
        drift, spread, pace, cx = crossing.drift, crossing.spread, crossing.pace, crossing.c * x
        if lower:
            return np.log(cx / (drift - 1)), pace * spread / (1 - drift), crossing
        return np.log(drift / (1 + cx)), pace * ((drift + spread - 1) / drift - cx / (1 + cx)), crossing

    return _root(excess, start, tolerance=1e-4)


def _root(increasing: Callable[[float], tuple[float, float, T]], start: float, tolerance: float) -> T:
    """Where an increasing function is zero, by Newton's rule kept inside the bracket that its signs give.

    increasing(u) returns the value, the slope and whatever the caller wants to keep of u. The search ends when the
    value is within the tolerance; the result is what was kept.
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


# ----------------------------------------------------------------------------------------------------------------------
# The contour
# ----------------------------------------------------------------------------------------------------------------------

# Steepest descent bends the contour by 1. Where one weight alone shapes the saddle point but many others what lies
# around it, that bends it too far, and the integrand grows again: less is better then.
_BENDS = (1.0, 0.25, 0.0)


def _contour(crossing: _Crossing, x: Real, density: bool = True) -> Quadrature:
    """Nodes s - c and masses m of a quadrature along the contour, relative to the height of the integrand at c:

    1/(2 pi i) int exp(K(s) - s x) F(s) ds = exp(K(c) - c x) / pi * Im sum_i m_i F(s_i).

    Third comes the estimated relative error for F = 1/s and, unless told otherwise, for F = 1: far below the mean
    the density is too small beside the upper tail for a contour that crosses at c > 0.
    """
    x = float(x)
    for bend in _BENDS:
        try:
            return _trapezoid(crossing, x, bend, density)
        except AccuracyError as error:
            failure = error
    raise failure


def _trapezoid(crossing: _Crossing, x: float, bend: float, density: bool) -> Quadrature:
    """The nodes, masses and error on a contour of the given bend: trapezoid rules, the step halved until two agree."""
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
    terms = _terms(crossing, shift, mass)
    coarse, fine = 2 * step * terms[:, ::2].sum(axis=1), step * terms.sum(axis=1)
    for _ in range(_HALVINGS):
        # Halving squares the error of a geometrically convergent rule.
        error = 10 * np.abs(fine / coarse - 1)[: 1 + density].max() ** 2
        if error < _RTOL:
            return shift, mass * step, error
        between = evaluate(u + step / 2)
        shift, mass = np.concatenate([shift, between[0]]), np.concatenate([mass, between[1]])
        u, step = np.concatenate([u, u + step / 2]), step / 2
        coarse, fine = fine, step * _terms(crossing, shift, mass).sum(axis=1)
    raise AccuracyError(f"reached a relative error of {error:.1e}, aimed at {_RTOL:.1e}", estimate=fine[0] / np.pi)


def _outwards(evaluate: Callable[[NDArray[Any]], tuple[Complex, Complex]]) -> tuple[Complex, Complex]:
    """The integrand at 0, 1, 2, ... steps along the contour, until it is negligible."""
    parts, smallest = [], 1.0
    for start in range(0, _MOST_NODES, _BATCH):
        with np.errstate(over="ignore", invalid="ignore"):  # it may grow beyond any number
            shift, mass = evaluate(_STEP * np.arange(start, start + _BATCH))
            parts.append((shift, mass))
            size = np.abs(mass) / abs(parts[0][1][0])
        ended = size < _NEGLIGIBLE
        length = int(ended.argmax()) if ended.any() else size.size
        so_far = np.minimum.accumulate(np.append(smallest, size[:length]))
        if not np.all(size[:length] <= 10 * so_far[:-1]):
            break  # it grows again, near a point of the cut where many weights meet
        smallest = so_far[-1]
        if ended.any():
            shift, mass = (np.concatenate(part)[: start + length] for part in zip(*parts, strict=True))
            return shift, mass
    raise AccuracyError("the integrand does not die away along the contour", estimate=np.nan)


def _terms(crossing: _Crossing, shift: Complex, mass: Complex) -> Array:
    """What the integrals for the tail and for the density are the sums of, over pi: shape (2, nodes)."""
    terms = np.empty((2, mass.size))
    terms[0], terms[1] = (mass / (1 + shift / crossing.c)).imag, mass.imag
    return terms


def _growth(crossing: _Crossing, shift: Complex) -> Complex:
    """K(c + shift) - K(c), by real arithmetic on 1 - q shift, where q = r / (1 - r c)."""
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


# ----------------------------------------------------------------------------------------------------------------------
# Tails, density and quantiles of a form, one value at a time
# ----------------------------------------------------------------------------------------------------------------------


def _at(crossing: _Crossing, x: Real) -> tuple[float, float, float, float]:
    """At x: log of the tail that the crossing belongs to, its estimated error, log of the density and its slope."""
    shift, mass, error = _contour(crossing, x)
    tail, density = _terms(crossing, shift, mass).sum(axis=1) / abs(crossing.c)
    height, size = crossing.log_height(x)
    log_tail, log_density = height + np.log([tail / np.pi, density / np.pi])
    log_density += np.log(abs(crossing.c))
    moment = (mass @ (shift / crossing.c)).imag / abs(crossing.c)
    return log_tail, error + _EPS * (20 + 2 * size), log_density, -crossing.c * (1 + moment / density)


def _tails(form: _Form, x: Real) -> tuple[Estimate, Estimate]:
    """(log P[Q > x], its error), (log P[Q <= x], its error): one by its contour, the other as the complement."""
    x = x / np.longdouble(form.unit)
    if x <= 0 or np.isinf(x):
        sure, impossible = (0.0, 0.0), (-np.inf, 0.0)
        return (sure, impossible) if x <= 0 else (impossible, sure)
    crossing = _saddle(form, x)
    log_tail, error, *_ = _at(crossing, x)
    if crossing.lower and log_tail > np.log(0.5):  # below the mean but above the median
        crossing = _saddle(form, x, lower=False)
        log_tail, error, *_ = _at(crossing, x)
    other = _log_complement(log_tail)
    pair = (log_tail, error), (other, error * np.exp(log_tail - other))
    return pair[::-1] if crossing.lower else pair


def _upper(x: ArrayLike, weights: ArrayLike, dof: ArrayLike, nc: ArrayLike) -> Array:
    """log sf and its error at every x."""
    return _map(lambda form, x: _tails(form, x)[0], real(x=x), weights, dof, nc)


def _lower(x: ArrayLike, weights: ArrayLike, dof: ArrayLike, nc: ArrayLike) -> Array:
    """log cdf and its error at every x."""
    return _map(lambda form, x: _tails(form, x)[1], real(x=x), weights, dof, nc)


def _output(log_and_error: Array, function: Callable[..., Any], full_output: bool) -> Any:
    """function(log) alone, or with the error."""
    log, error = log_and_error[..., 0][()], log_and_error[..., 1][()]
    return (function(log), error) if full_output else function(log)


def _log_complement(log_p: float) -> float:
    """log(1 - p)."""
    return np.log(-np.expm1(log_p)) if log_p > -1 else np.log1p(-np.exp(log_p))


def _log_density(form: _Form, x: Real) -> float:
    """log of the density of Q at x."""
    x = x / np.longdouble(form.unit)
    if x < 0 or np.isinf(x):
        return -np.inf
    log_density = _at(_saddle(form, x), x)[2] if x > 0 else _log_density_at_zero(form)
    return log_density - np.log(form.unit)


def _log_density_at_zero(form: _Form) -> float:
    """The limit of the density from above: it is finite and positive only for two degrees of freedom in all."""
    total = np.sum(form.k)
    if total != 2:
        return np.inf if total < 2 else -np.inf
    return -np.sum(form.k * np.log(form.r) + form.nc) / 2


def _quantile(form: _Form, log_p: float, lower: bool) -> float:
    """The x with log of the lower (or upper) tail equal to log_p, by whichever tail is the smaller one at x."""
    if log_p == 0 or np.isinf(log_p):
        return np.inf if (log_p == 0) == lower else 0.0
    log_other = _log_complement(log_p)
    log_upper, log_lower = (log_other, log_p) if lower else (log_p, log_other)
    x = _search(form, log_upper, lower=False) if _above_mean(form, log_upper) else 0.0
    return form.unit * (x or _search(form, log_lower, lower=True))


def _above_mean(form: _Form, log_upper: float) -> bool:
    """Whether the upper quantile lies above the mean: there it is searched in the upper tail, else in the lower.

    Either search ends at the same x; this only picks the tail that is not close to 1. P[Q > mean] is 0.317 for chi2(1)
    and rises towards 1/2 with the degrees of freedom, so most p need no closer look.
    """
    if log_upper >= np.log(0.5):
        return False
    if log_upper < np.log(0.3) and form.central and form.k.min() >= 1:
        return True
    return log_upper < _saddle(form, form.mean, lower=False).formula()[0]


# The saddlepoint formula's limit at the near end of either tail, log(e / sqrt(2 pi)): no tail is larger.
_LAPLACE_TOP = 1 - 0.5 * np.log(2 * np.pi)
_LOWEST = 690.0  # theta of the lower tail at x near 1e-300 of the largest weight; quantiles below it are 0


def _search(form: _Form, log_p: float, lower: bool) -> float:
    """The x, in units of the form, at which a tail has the logarithm log_p.

    The logarithm of a tail is nearly proportional to a power of exp(theta), so the search is for a root of its
    logarithm: first with the saddlepoint formula in place of the tail, then, from there, with the tail itself.
    """
    depth = _LAPLACE_TOP - log_p

    def excess(theta: float, tail: Callable[[_Crossing], tuple[float, float, float]]) -> tuple[float, float, float]:
        crossing = _Crossing(form, theta, lower)
        log_tail, slope, kept = tail(crossing)
        return np.log((_LAPLACE_TOP - log_tail) / depth), -slope / (_LAPLACE_TOP - log_tail), kept

    def formula(crossing: _Crossing) -> tuple[float, float, float]:
        return *crossing.formula(), crossing.theta

    def exact(crossing: _Crossing) -> tuple[float, float, float]:
        log_tail, _, log_density, density_slope = _at(crossing, crossing.x)
        tail_slope = (1 if lower else -1) * np.exp(log_density - log_tail)  # d log tail / dx
        step = (log_p - log_tail) / tail_slope
        x = crossing.x + step - step**2 * (density_slope - tail_slope) / 2
        return log_tail, tail_slope * crossing.spread * crossing.pace / crossing.c, x

    if lower and excess(_LOWEST, formula)[0] < 0:
        return 0.0
    # For equal weights log(1 - c) has this solution, to a few percent, from the saddlepoint formula.
    ratio = depth / form.deviation**2
    start = _root(lambda theta: excess(theta, formula), np.log(ratio + np.sqrt(2 * ratio)), tolerance=3e-4)
    # The last round ends with a second-order step in x, whose error is the third power of 3e-5.
    return _root(lambda theta: excess(theta, exact), start, tolerance=3e-5 / depth)


def _map(
    function: Callable[[_Form, Any], Any], values: Array, weights: ArrayLike, dof: ArrayLike, nc: ArrayLike
) -> Any:
    """function(form, value) for every entry of `values`: an array of the same shape, or a number for a number.

    Where the function returns a pair, so does the last axis of the result.
    """
    form = _form(*_parameters(weights, dof, nc))
    if np.size(values) == 0:
        return np.empty(np.shape(values) + np.shape(function(form, -1.0)))
    results = np.array([function(form, value) for value in np.ravel(values)])
    return results.reshape(np.shape(values) + results.shape[1:])[()]
