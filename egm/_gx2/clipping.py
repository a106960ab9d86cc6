"""Compute moments of the part that a normal vector loses when it is shortened to a given norm (clipped)."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import exp1, wofz

from egm._gx2.contour import NEGLIGIBLE, AccuracyError, Complex, integrate, saddle, sums_of_inverses
from egm._gx2.form import Form, Real, form_of, parameters
from egm._gx2.quantiles import quantile
from egm._types import Array, ArrayLike
from egm._validate import positive, scalar

_FAR = 2.0
_LAGUERRE = np.polynomial.laguerre.laggauss(80)
_LEGENDRE = np.polynomial.legendre.leggauss(12)


def clip_moments(x: float, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0) -> tuple[Array, Array, Array]:
    r"""Compute moments of the part that a normal row loses when it is clipped to the squared norm x.

    The squared norm of the row is :math:`Q = \sum_j w_j Y_j`. Here
    :math:`Y_j \sim \chi^2(\nu_j, \lambda_j)` is the squared length of a normal vector :math:`V_j`
    of :math:`\nu_j` coordinates with variance 1, whose mean :math:`m_j` has the squared length
    :math:`\lambda_j`. Clipping removes the share :math:`L = \max(0, 1 - \sqrt{x / Q})` of the row.

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

    Returns
    -------
    mean_factor : ndarray, shape (d,)
        The numbers :math:`l_j` with :math:`E[L V_j] = l_j m_j`.
    lost : ndarray, shape (d,)
        The means :math:`E[L Y_j]`.
    lost_square : ndarray, shape (d,)
        The means :math:`E[L^2 Y_j]`. The relative error of all three is about 1e-12.

    Raises
    ------
    ValueError
        If `x` is not a single number that is finite and > 0, or if `weights`, `dof` or `nc` are
        outside their ranges.
    AccuracyError
        If a quadrature fails.

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

    Examples
    --------
    The mean square of the part that each of two coordinates loses by clipping to the squared norm 3,
    in units of the variance of this coordinate:

    >>> from egm import gx2
    >>> _, _, lost_square = gx2.clip_moments(3.0, [1.0, 0.5])
    >>> lost_square.round(4)
    array([0.0319, 0.0135])
    """
    x = scalar(positive, x=x)
    weights, dof, nc = parameters(weights, dof, nc)
    form = form_of(weights, dof, nc)
    x = np.longdouble(x) / form.unit  # type: ignore[assignment]  # keeps its last digits
    try:
        once, twice, once_squared, twice_squared = lost_in_tail(form, x, weights)
    except AccuracyError:
        once, twice, once_squared, twice_squared = lost_by_density(form, x, weights)
    return once, dof * once + nc * twice, dof * once_squared + nc * twice_squared


def lost_in_tail(form: Form, x: Real, weights: Array) -> Array:
    """Compute E[L] and E[L^2] for the share L of a normal row that clipping to the squared norm x removes.

    L is max(0, 1 - sqrt(x / Q)), where Q is the squared norm of the row; `form` has the parameters of its
    distribution. The result is an array with four rows and one entry for each weight: E[L] if this weight had two
    more degrees of freedom (row 0) or four more (row 1), and E[L^2] for the same two cases (rows 2 and 3). All
    entries are computed with the nodes of one contour.
    """
    crossing = saddle(form, x, lower=False)
    shift, mass, _ = integrate(crossing, x, density=False)
    height = float(x) * np.exp(crossing.log_height(x)[0]) / np.pi
    shares = _lost_share((crossing.c + shift) * float(x))
    return height * np.concatenate([sums_of_inverses(crossing, shift, mass * share, weights) for share in shares])


def lost_by_density(form: Form, x: Real, weights: Array) -> Array:
    """Compute the result of `lost_in_tail` for an x so far below the mean of Q that nearly everything is lost.

    For such an x the contour of `lost_in_tail` fails. Here E[L] and E[L^2] are computed as integrals of L and of L^2
    times the density of Q, by Gauss-Legendre quadrature on intervals of log Q.
    """
    ends = [quantile(form, np.log(NEGLIGIBLE), lower) / form.unit for lower in (True, False)]
    edges = np.linspace(np.log(max(float(x), ends[0])), np.log(ends[1]), 25)
    total = np.zeros((4, weights.size))
    for low, high in itertools.pairwise(edges):
        for node, share in zip(*_LEGENDRE, strict=True):
            r = np.exp((low + high + (high - low) * node) / 2)
            crossing = saddle(form, r)
            shift, mass, _ = integrate(crossing, r)
            height = r * (high - low) / 2 * share * np.exp(crossing.log_height(r)[0]) / np.pi
            lost = 1 - np.sqrt(float(x) / r)
            inverses = np.array(sums_of_inverses(crossing, shift, mass, weights))
            total += height * np.concatenate([lost * inverses, lost**2 * inverses])
    return total


def _lost_share(z: Complex) -> tuple[Complex, Complex]:
    """Compute int_1^inf (1 - t^-1/2)^k exp(-z (t - 1)) dt for k = 1 and k = 2, and for complex z with Re z > 0.

    With t = Q / x these two integrals are the Laplace transforms of L and of L^2, where L = 1 - sqrt(x / Q)
    is the share of a row that clipping removes. Let J_m be the integral of t^(-m/2) exp(-z (t - 1)) over
    the same range. Then the integral for k = 1 is 1/z - J_1, and that for k = 2 is 1/z - 2 J_1 + J_2. If z
    is so large that these terms cancel, Gauss-Laguerre quadrature in (t - 1) z is used instead.
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
    """Compute int_0^inf f(t) exp(-t) dt for k functions f, from their values at the Gauss-Laguerre nodes.

    `values` has the shape (k, nodes). The sum is not computed as a product of matrices, because for such
    small matrices the product may take a thousand times as long when the threads of the BLAS library wait
    for each other.
    """
    return np.einsum("ij,j->i", values, _LAGUERRE[1])
