"""Compute moments of the part that a normal vector loses when it is shortened to a given norm (clipped)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple, overload

import numpy as np
from scipy.special import exp1, gamma, wofz

from egm._gx2.contour import (
    EPS,
    AccuracyError,
    Crossing,
    every_second,
    growth,
    integrate,
    inverses,
    inverses_summed,
    log_by_formula,
    relative_error,
    saddle,
    sums_of_inverses,
)
from egm._gx2.form import Form, Real, form_of, parameters
from egm._gx2.loops import loops
from egm._gx2.quantiles import search
from egm._gx2.tails import TINY
from egm._types import Array, ArrayLike, Complex
from egm._validate import positive, scalar

_NEGLIGIBLE = 1e-17  # probability that a mean of bounded numbers need not count
_LEAST_SIZE = 1.0  # for |z| of at least this size `kernel.lost_shares` is used
_LEGENDRE = np.polynomial.legendre.leggauss(12)
# Step of a trapezoid rule in v, the logarithm of t times a mean; its least range; the largest log t, for t^2 must
# not overflow; log(-c) for a point c so near 0 that 1 - r c is 1; relative rounding error of the sum.
_STEP, _REACH, _LARGEST_LOG, _AT_ZERO, _ROUNDING = 0.25, 80.0, 345.0, -690.0, 2e-14
_TOO_FEW = "too few degrees of freedom for an integral over all values of Q"
# First number of intervals; relative error below which an interval is not halved; least length of an interval.
_FIRST, _EQUAL, _NARROWEST = 10, 1e-11, 1e-14


class Piece(NamedTuple):
    """Hold a quadrature, mostly along a contour (path of integration), for means over normal rows.

    `crossing` is the point c where the contour crosses the real axis, and `shift` has s - c for each node s. `masses`
    has the factors of the nodes in the quadrature sum: a row for each of four functions g of the squared norm Q of a
    row, which are L, L^2, and the derivatives of L^2 and of L by Q / x. Let a factor in a mean, such as a chi-square
    variable, appear as F(s) under the contour integral. Then the mean of g(Q) times this factor is the sum of Im mass
    F(s) over all nodes of all pieces. `error` is the estimated relative error, a number or a column with an entry for
    each row of the result of `_lost`. ``coarse()`` returns the masses for twice the step; it is None if `error` covers
    the error of the step, too, or if there is no step.
    """

    crossing: Crossing
    shift: Complex
    masses: Complex
    error: float | Array
    coarse: Callable[[], Complex] | None = None


@overload
def clip_moments(x: float, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> tuple[Array, Array, Array]: ...
@overload
def clip_moments(x: float, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0, *, full_output: bool) -> Any: ...
def clip_moments(
    x: float, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0, *, full_output: bool = False
) -> Any:
    r"""Compute moments of the part that a normal row loses when it is clipped to the squared norm x.

    The squared norm of the row is :math:`Q = \sum_j w_j Y_j` with the weights :math:`w`, `weights`.
    Here :math:`Y_j \sim \chi^2(\nu_j, \lambda_j)`, with the degrees of freedom :math:`\nu`, `dof`,
    and the noncentralities :math:`\lambda`, `nc`. The variable :math:`Y_j` is the squared length of a normal vector
    :math:`V_j` of :math:`\nu_j` coordinates with variance 1. The mean :math:`m_j` of :math:`V_j` has
    the squared length :math:`\lambda_j`. Clipping multiplies the row by :math:`1 - L`, where :math:`L = \max(0,
    1 - \sqrt{x / Q})` is the share that the row loses.

    Parameters
    ----------
    x : float
        Squared norm to which the row is clipped, finite and > 0, in the units of `weights`.
    weights : array_like, shape (d,)
        Weights of the independent chi-square variables in the weighted sum Q, finite and > 0.
    dof : float or array_like, shape (d,), default 1
        Degrees of freedom of these variables, finite and > 0; they need not be whole numbers.
    nc : float or array_like, shape (d,), default 0
        Noncentralities of these variables, finite and >= 0.
    full_output : bool, default False
        Whether to return the estimated errors as well.

    Returns
    -------
    mean_factor : ndarray, shape (d,)
        The numbers :math:`l_j` with :math:`E[L V_j] = l_j m_j`.
    lost : ndarray, shape (d,)
        The means :math:`E[L Y_j]`.
    lost_square : ndarray, shape (d,)
        The means :math:`E[L^2 Y_j]`. The relative error of all three results is about 1e-12, except
        where the contour described below fails.
    errors : tuple of three ndarray, shape (d,)
        Estimated absolute errors of these results; only with ``full_output=True``.

    Raises
    ------
    ValueError
        If `x` is not a single number that is finite and > 0, or if `weights`, `dof` or `nc` are
        outside their ranges.
    AccuracyError
        If a quadrature fails, as it mostly does if the largest weight has less than 1e-6 degrees of freedom.

    See Also
    --------
    egm.forecast : The expected error of a clipped and noisy sum, which these moments give.

    Notes
    -----
    For a function g of Q, Stein's identity gives :math:`E[g(Q) V_j] = m_j E[g(Q')]`, where
    :math:`Q'` has two more degrees of freedom at weight j. So all three results are integrals over
    the contour by which `sf` computes the upper tail. The integrand is a product of three factors:
    :math:`e^{K(s) - s x}`, where K is the cumulant function of Q; then :math:`1 / (1 - 2 w_j s)` or
    its square; then the Laplace transform of :math:`L` or of :math:`L^2` as a function of Q.

    This contour fails if nearly all rows are longer than the clip norm, or if the mean of a row is
    far from zero in a coordinate of small variance. Then the means of the same functions over all
    Q are computed, by :math:`E[Q^{-a}] = \int_0^\infty t^{a-1} e^{K(-t)} dt / \Gamma(a)`, and the
    part with :math:`Q < x` is subtracted.

    The error is estimated from the change when the step is halved, as that of `gradients` is. Where the contour fails,
    the errors of all parts are added. The parts with :math:`Q < x` are integrals over densities, and an integral over
    an interval has the difference from the sum of its halves as its error.

    Examples
    --------
    The mean square of the part that each of two coordinates loses by clipping to the squared norm
    3, divided by the variance of the coordinate:

    >>> from egm import gx2
    >>> _, _, lost_square = gx2.clip_moments(3.0, [1.0, 0.5])
    >>> lost_square.round(4)
    array([0.0319, 0.0135])
    """
    x = scalar(positive, x=x)
    weights, dof, nc = parameters(weights, dof, nc)
    form = form_of(weights, dof, nc)
    unit = np.longdouble(x) / form.unit  # keeps the last digits of x
    pieces = _pieces(form, unit)
    found = _lost(pieces, weights)
    if not full_output:
        return _moments(found, dof, nc)
    return *_moments(found, dof, nc), _moments(_errors(pieces, weights), dof, nc)


def _moments(lost: Array, dof: Array, nc: Array) -> tuple[Array, Array, Array]:
    """Return the three results of `clip_moments` for the result `lost` of `_lost`, or their errors for those of it."""
    once, twice, once_squared, twice_squared = lost
    return once, dof * once + nc * twice, dof * once_squared + nc * twice_squared


def _errors(pieces: list[Piece], weights: Array) -> Array:
    """Estimate the absolute errors of the result of `_lost` for these `pieces` and `weights`."""
    errors = np.zeros((4, weights.size))
    for piece in pieces:
        part, change = _lost([piece], weights), np.zeros(1)
        size = np.abs(part) + math.ulp(0.0)  # some parts may underflow
        if piece.coarse is not None:
            change = (part - _lost([piece._replace(masses=piece.coarse())], weights)) / size
        errors += size * relative_error(change, piece.error)
    return errors


def loss_and_slopes(x: float, weights: Array, nc: Array, by_square: Array, by_mean: Array) -> tuple[float, Array]:
    """Compute a sum of squared losses by clipping to the squared norm `x`, and its derivatives by the log weights.

    Each row is normal, and the notation is that of `clip_moments`: Q = sum_k w_k Y_k is the squared norm of the row,
    Y_k is the squared length of a normal vector V_k with the mean m_k, and L is the share of the row that clipping
    removes. Here every Y_k has one degree of freedom; its weight w_k is an entry of `weights`, and its noncentrality
    nc_k an entry of `nc`. The first result is the number sum_k (by_square_k E[L^2 Y_k] + by_mean_k l_k^2), where l_k is
    defined by E[L V_k] = l_k m_k. For suitable `by_square` and `by_mean` this number is the expected squared error of a
    sum of clipped rows. The second result is the vector of the derivatives of this number by log w_j, with `nc`,
    `by_square` and `by_mean` kept fixed.

    For the derivatives, let a_k = 1 / (1 - 2 w_k s) and A_k = a_k + nc_k a_k^2. A product Y_j Y_k in a mean brings the
    factor A_j A_k under the contour integral or, for k = j, A_j^2 + 2 a_j^2 + 4 nc_j a_j^3. For l_k and Y_j the factor
    is A_j a_k or, for k = j, A_j a_j + 2 a_j^2. The sum over k is computed once for each node.
    """
    form = form_of(weights, np.broadcast_to(1.0, weights.shape), nc)
    unit = np.longdouble(x) / form.unit
    pieces = _pieces(form, unit)
    once, _, square, square_twice = _lost(pieces, weights)
    value = np.sum(by_square * (square + nc * square_twice) + by_mean * once**2)
    pulls = 2 * by_mean * once
    slopes = np.zeros(weights.size)
    for crossing, shift, (*_, by_squares, by_means), *_ in pieces:
        mass = by_squares * inverses_summed(crossing, shift, weights, [by_square, by_square * nc])
        mass += by_means * inverses_summed(crossing, shift, weights, [pulls])
        masses = np.array([mass, by_squares, by_means])
        (first, second, _), (_, own, own_third), (_, own_mean, _) = sums_of_inverses(
            crossing, shift, masses, weights, most=3
        )
        slopes += first + nc * second + by_square * (2 * own + 4 * nc * own_third) + 2 * pulls * own_mean
    return float(value), weights / x * slopes


def lost_quadratic(x: float, weights: Array, means: Array, form_matrix: Array) -> tuple[Array, float, float]:
    """Compute moments of what clipping to the squared norm `x` removes, for a quadratic form of the row.

    L is the share of the row that clipping removes. The squared norm of the row is the sum of w_k V_k^2 with the
    `weights` w_k and normal variables V_k of variance 1, which have the `means` m_k. V is the vector of the V_k, and G
    the symmetric matrix `form_matrix`. The three results are the vector of the numbers l_k with E[L V_k] = l_k m_k, the
    mean of L V' G V, and the mean of L^2 V' G V.
    """
    form = form_of(weights, np.broadcast_to(1.0, weights.shape), means**2)
    unit = np.longdouble(x) / form.unit
    pieces = _pieces(form, unit)
    once = _lost(pieces, weights)[0]
    moments = np.zeros(2)
    # V' G V appears under the integral (see `Piece`) as F(s) = sum_k G_kk / (1 - 2 w_k s) + v' G v, where v_k is
    # m_k / (1 - 2 w_k s).
    for crossing, shift, masses, *_ in pieces:
        factor = inverses_summed(crossing, shift, weights, [np.diag(form_matrix)])
        if means.any():
            v = means * inverses(crossing, shift, weights)
            factor = factor + np.einsum("ik,ik->i", v, v @ form_matrix)
        moments += [np.sum(mass * factor).imag for mass in masses[:2]]
    return once, float(moments[0]), float(moments[1])


def _lost(pieces: Iterable[Piece], weights: Array) -> Array:
    """Compute means of the share L of a normal row that clipping removes, and of L^2, as sums of the `pieces`.

    `weights` are the weights of the chi-square variables in the squared norm of the row. The result is an array with
    one column for each weight: E[L] if this weight had two more degrees of freedom (row 0) or four more (row 1), and
    E[L^2] for two more (row 2) and four more (row 3).
    """
    return sum(  # type: ignore[return-value]  # of at least one array
        sums_of_inverses(crossing, shift, masses[:2], weights).reshape(4, -1) for crossing, shift, masses, *_ in pieces
    )


def _pieces(form: Form, x: Real) -> list[Piece]:
    """Return quadratures for means of the share that clipping removes from a row with the squared norm Q.

    Mostly there is one quadrature, along one contour (path of integration), which `_in_tail` returns. If `_in_tail`
    fails, there are several, which `_by_complement` yields. `form` holds the parameters of Q. `x` is the squared norm
    to which a row is clipped, divided by the unit of `form`, twice the largest weight. Where the quadratures do not
    fail, 1 - L is negligible for `x` = `TINY`, and so it is for every smaller `x`, which `TINY` may replace.
    """
    x = max(x, TINY)
    try:
        return [_in_tail(form, x)]
    except AccuracyError:
        return list(_by_complement(form, x))


def _in_tail(form: Form, x: Real) -> Piece:
    """Return a quadrature along one contour (path of integration) for means of the share L that clipping removes.

    L is a function of the squared norm Q of a row, and 0 for Q < `x`, the squared norm to which the row is clipped.
    `form` holds the parameters of Q, and `x` is divided by the unit of `form`, twice the largest weight. The quadrature
    is for the means of four functions of t = Q / x: L, L^2, and the derivatives by t of L^2 and of L.

    The Laplace transforms of L and L^2, as functions of t - 1, are the results of `_lost_shares` at z = s x for a node
    s. The transforms of their derivatives are z times these, because L and L^2 are 0 at t = 1.
    """
    crossing = saddle(form, x, lower=False)
    log_height, rounding = crossing.log_height(x)
    height = math.exp(log_height)
    if height == 0:  # so are all means
        return Piece(crossing, np.empty(0, complex), np.empty((4, 0), complex), 0.0)
    shift, mass, error, _ = integrate(crossing, x, density=0.0)
    z, masses = (crossing.c + shift) * float(x), np.empty((4, mass.size), complex)
    np.multiply(_lost_shares(z), mass * (float(x) * height / math.pi), out=masses[:2])
    np.multiply(masses[1::-1], z, out=masses[2:])
    return Piece(crossing, shift, masses, error + rounding, partial(every_second, shift, masses))


def _by_complement(form: Form, x: Real) -> Iterator[Piece]:
    """Yield quadratures for means of the share L that clipping removes from a row, also if nearly all rows are clipped.

    The sum of these quadratures gives the four means of `_in_tail`, which fails if the squared norm Q of a row is
    rarely below `x`, the squared norm to which rows are clipped. `form` holds the parameters of Q, and `x` is divided
    by the unit of `form`, twice the largest weight. L is 1 - u with u = sqrt(x / Q), or 0 for Q < x.

    1. First 1 - u takes the place of L for all Q. The means of its powers are sums of means E[Q^-a]. Such a mean is the
       integral of t^(a-1) exp(K(-t)) / Gamma(a) over t > 0, where K is the cumulant function of Q; so the nodes are s =
       -t. The constant 1 has the node s = 0. If k is the sum of the degrees of freedom, r the ratio of the least weight
       to the largest one, and t far above 1/r, the integrand falls like t^(-k/2) in log t. The sum ends where it is
       negligible, or before t overflows, and the error counts what lies beyond.
    2. Then the part of these means with Q < x is subtracted, by the quadratures of `_below`, unless it is negligible.
    """
    mean, least, k = float(form.mean), max(float(form.r.min()), TINY), max(float(form.k.sum()), TINY)
    origin, reach = Crossing(form, _AT_ZERO, lower=True), math.log(mean / least) - 2 * math.log(_NEGLIGIBLE) / k
    yield Piece(origin, np.array([-origin.c + 0j]), np.array([[1j], [1j], [0j], [0j]]), 4 * EPS)
    if math.log(mean) <= -_LARGEST_LOG:
        raise AccuracyError(_TOO_FEW, estimate=np.nan)
    t = np.exp(np.arange(-_REACH, min(max(_REACH, reach), _LARGEST_LOG + math.log(mean)), _STEP) - math.log(mean))
    shift = -t - origin.c + 0j
    log_height, rounding = origin.log_height(0.0)
    mgf = np.exp(growth(origin, shift).real + log_height)
    root, whole = (1j * _STEP * t**a * mgf * float(x) ** a / gamma(a) for a in (0.5, 1.0))
    share, square = -root, whole - 2 * root
    masses: Complex = np.empty((4, t.size), dtype=complex)
    with np.errstate(over="ignore", invalid="ignore"):  # in rows that are not used for so few degrees of freedom
        masses[:2], masses[2:] = (share, square), -t * float(x) * np.array([square, share])
    terms = np.abs(square) / (1 + least * t)
    error = rounding + _ROUNDING - float(terms[-1] / terms.sum()) / math.expm1(-k * _STEP / 2)
    yield Piece(origin, shift, masses, error, lambda: 2 * masses * (np.arange(t.size) % 2))
    if log_by_formula(saddle(form, x, lower=True)) > np.log(_NEGLIGIBLE) - 1:  # of P[Q < x], to a tenth
        lowest = search(form, 2.5 * np.log(_NEGLIGIBLE), lower=True)  # E[x / Q; Q < lowest] is negligible, too
        if lowest == 0:
            raise AccuracyError(_TOO_FEW, estimate=np.nan)
        yield from _below(form, lowest, float(x))


def _below(form: Form, low: float, x: float) -> Iterator[Piece]:
    """Yield the part of a quadrature for means over normal rows that is due to squared norms Q between `low` and `x`.

    It is subtracted from means over all rows; `_by_complement` explains the arguments. The means are integrals over log
    Q, whose range is divided into intervals. An interval is halved until its part of all means agrees with the sum of
    the parts of its halves; the largest relative difference of each mean, over the weights, is added to the errors.
    """
    edges = np.linspace(np.log(low), np.log(x), _FIRST + 1)
    stack = [(*ends, _on_interval(form, *ends, x)) for ends in itertools.pairwise(edges)]
    while stack:
        start, stop, (_, found) = stack.pop()
        middle = (start + stop) / 2
        (left, first), (right, second) = (_on_interval(form, *ends, x) for ends in ((start, middle), (middle, stop)))
        finer = first + second
        change, size = np.abs(found - finer), np.abs(finer) + math.ulp(0.0)  # it may underflow
        if np.all(change < _EQUAL * np.maximum(1.0, size)) or stop - start < _NARROWEST:
            relative = np.max(change / size, axis=1, keepdims=True)
            yield from (piece._replace(error=piece.error + relative) for piece in left + right)
        else:
            stack += [(start, middle, (left, first)), (middle, stop, (right, second))]


def _on_interval(form: Form, start: float, stop: float, x: float) -> tuple[list[Piece], Array]:
    """Return a quadrature for log Q from `start` to `stop`, and its part of the means that `_lost` returns.

    Q is the squared norm of a normal row, with the parameters in `form`, and `x` is the squared norm to which it is
    clipped; both are divided by the unit of `form`, twice the largest weight. The quadrature is that of Gauss and
    Legendre, with a `Piece` for each of its values q of Q: an integral along a contour for the density of Q at q, times
    the functions of q whose means are computed.
    """
    pieces = []
    for node, part in zip(*_LEGENDRE, strict=True):
        q = np.exp((start + stop + (stop - start) * node) / 2)
        near, u = saddle(form, q), np.sqrt(x / q)
        shift, mass, error, _ = integrate(near, q)
        log_height, rounding = near.log_height(q)
        mass *= q * (stop - start) / 2 * part * np.exp(log_height) / np.pi
        with np.errstate(over="ignore", invalid="ignore"):  # in rows that are not used for so few degrees of freedom
            masses = np.outer([u - 1, -((1 - u) ** 2), (u - 1) * u**3, -(u**3) / 2], mass)
        pieces.append(Piece(near, shift, masses, error + rounding))
    return pieces, _lost(pieces, form.centers)


def _lost_shares(z: Complex) -> Complex:
    """Compute the integrals of (1 - t^(-1/2))^k exp(-z (t - 1)) over t from 1 to infinity, for k = 1 and k = 2.

    The entries of `z` are complex, with Re z > 0. The result has a row for each k. If the squared norm of a row of data
    is t times the squared norm to which it is clipped, clipping removes the share 1 - t^(-1/2).
    """
    far = np.abs(z) >= _LEAST_SIZE
    if far.all():
        images: Complex = loops().lost_shares(z)
        return images
    images = np.empty((2, z.size), dtype=complex)
    images[:, far] = loops().lost_shares(z[far])
    # With J_m, the integral of t^(-m/2) exp(-z (t - 1)) over t > 1, the results are 1/z - J_1 and 1/z - 2 J_1 + J_2.
    near = z[~far]
    one = np.sqrt(np.pi) / np.sqrt(near) * wofz(1j * np.sqrt(near))
    images[:, ~far] = 1 / near - one, 1 / near - 2 * one + np.exp(near) * exp1(near)
    return images
