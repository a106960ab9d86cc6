"""Offer a generalized chi-square distribution with fixed parameters as an object, as SciPy's frozen distributions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.integrate import quad

from egm._gx2.contour import WORST, AccuracyError
from egm._gx2.form import Law, distinct, law_of
from egm._gx2.moments import draw
from egm._gx2.quantiles import lower_quantiles, upper_quantiles
from egm._gx2.tails import log_densities, log_tails, output
from egm._types import Array, ArrayLike, Floats
from egm._validate import finite, matrix, probability, scalar

_STRAIGHT = 2.0**-56  # eigenvalues below this part of a linear coefficient are taken as 0 (see `from_quadratic_form`)
_OVERFLOWS = "A must not be so large that the form overflows, with the given mean, cov, linear and constant"
_CANCELED = 2.0**18  # largest S / M in the Notes of `from_quadratic_form`: 1e-16 S is then at most 3e-11 M
_POLE = -320.0  # log of the distance from a pole of the density below which the density counts as a power
_REACH = 45.0  # largest absolute value of the logit of the probability, in the integral for the entropy


class rv:
    r"""Generalized chi-square distribution with fixed parameters, with the methods of a frozen distribution of SciPy.

    It is the distribution of :math:`Q = \sum_j w_j \, \chi^2(\nu_j, \lambda_j) + \tau Z + c`, where all
    variables are independent and Z is standard normal. Of SciPy's methods, `moment` and `expect` are
    missing.

    Parameters
    ----------
    weights : array_like, shape (d,)
        Weights :math:`w_j` of the chi-square variables, finite and not 0. There may be none if
        `normal` is positive.
    dof : float or array_like, shape (d,), default 1
        Degrees of freedom :math:`\nu_j`, finite and > 0; they need not be whole numbers.
    nc : float or array_like, shape (d,), default 0
        Noncentralities :math:`\lambda_j`, finite and >= 0.
    normal : float, default 0
        Standard deviation :math:`\tau` of the normal term, finite and >= 0.
    shift : float, default 0
        Constant term c, finite.

    Attributes
    ----------
    weights, dof, nc : ndarray, shape (d,)
        The parameters of the chi-square variables, copied and read-only.
    normal, shift : float
        The other two parameters.

    Raises
    ------
    ValueError
        If a parameter is outside its range.

    See Also
    --------
    from_quadratic_form : The distribution of a quadratic form of a normal vector.

    Notes
    -----
    The parameters are checked, and the weights are gathered, only once. So for many calls with the
    same parameters this is quicker than the functions of `egm.gx2`.

    Examples
    --------
    >>> from egm import gx2
    >>> law = gx2.rv([1.0, 0.5, -0.2], normal=0.3)
    >>> round(float(law.sf(10.0)), 6)
    0.00215
    >>> round(float(law.isf(1e-12)), 4)
    51.3845
    >>> law.support()
    (-inf, inf)
    """

    def __init__(
        self, weights: ArrayLike, dof: ArrayLike = 1, nc: ArrayLike = 0, normal: float = 0, shift: float = 0
    ) -> None:
        law = law_of(weights, dof, nc, normal, shift)
        law = self._law = Law(_copy(law.weights), _copy(law.dof), _copy(law.nc), law.normal, law.shift)
        self.weights, self.dof, self.nc = _read_only(law.weights), _read_only(law.dof), _read_only(law.nc)
        self.normal, self.shift = law.normal, law.shift

    def __reduce__(self) -> tuple[type[rv], tuple[Array, Array, Array, float, float]]:
        """Let a copy or an unpickled object be built anew, so that its parameters are read-only, too."""
        return rv, (self.weights, self.dof, self.nc, self.normal, self.shift)

    def __repr__(self) -> str:
        return f"rv({self.weights!r}, dof={self.dof!r}, nc={self.nc!r}, normal={self.normal!r}, shift={self.shift!r})"

    def sf(self, x: ArrayLike, *, full_output: bool = False) -> Any:
        """Compute the upper tail P[Q > x] of this distribution, as `egm.gx2.sf` does.

        Parameters
        ----------
        x : float or array_like
            Point or points, in the units of `weights`.
        full_output : bool, default False
            Whether to return the estimated error as well.

        Returns
        -------
        tail : float or ndarray
            The upper tail, in the shape of `x`.
        error : float or ndarray
            Estimated relative error of `tail`, as `egm.gx2.sf` returns it; only with ``full_output=True``.
        """
        return output(log_tails(x, self._law, lower=False), np.exp, full_output)

    def logsf(self, x: ArrayLike, *, full_output: bool = False) -> Any:
        """Compute the logarithm of the upper tail P[Q > x] of this distribution, as `egm.gx2.logsf` does.

        Parameters
        ----------
        x : float or array_like
            Point or points, in the units of `weights`.
        full_output : bool, default False
            Whether to return the estimated error as well.

        Returns
        -------
        log_tail : float or ndarray
            The logarithm of the upper tail, in the shape of `x`.
        error : float or ndarray
            Estimated absolute error of `log_tail`, as `egm.gx2.logsf` returns it; only with ``full_output=True``.
        """
        return output(log_tails(x, self._law, lower=False), np.positive, full_output)

    def cdf(self, x: ArrayLike, *, full_output: bool = False) -> Any:
        """Compute the lower tail P[Q <= x] of this distribution, as `egm.gx2.cdf` does.

        Parameters
        ----------
        x : float or array_like
            Point or points, in the units of `weights`.
        full_output : bool, default False
            Whether to return the estimated error as well.

        Returns
        -------
        tail : float or ndarray
            The lower tail, in the shape of `x`.
        error : float or ndarray
            Estimated relative error of `tail`, as `egm.gx2.cdf` returns it; only with ``full_output=True``.
        """
        return output(log_tails(x, self._law, lower=True), np.exp, full_output)

    def logcdf(self, x: ArrayLike, *, full_output: bool = False) -> Any:
        """Compute the logarithm of the lower tail P[Q <= x] of this distribution, as `egm.gx2.logcdf` does.

        Parameters
        ----------
        x : float or array_like
            Point or points, in the units of `weights`.
        full_output : bool, default False
            Whether to return the estimated error as well.

        Returns
        -------
        log_tail : float or ndarray
            The logarithm of the lower tail, in the shape of `x`.
        error : float or ndarray
            Estimated absolute error of `log_tail`, as `egm.gx2.logcdf` returns it; only with ``full_output=True``.
        """
        return output(log_tails(x, self._law, lower=True), np.positive, full_output)

    def pdf(self, x: ArrayLike, *, full_output: bool = False) -> Any:
        """Compute the density of this distribution at x, as `egm.gx2.pdf` does.

        Parameters
        ----------
        x : float or array_like
            Point or points, in the units of `weights`.
        full_output : bool, default False
            Whether to return the estimated error as well.

        Returns
        -------
        density : float or ndarray
            The density, in the shape of `x`.
        error : float or ndarray
            Estimated relative error of `density`, as `egm.gx2.pdf` returns it; only with ``full_output=True``.
        """
        with np.errstate(over="ignore"):
            return output(log_densities(x, self._law), np.exp, full_output)

    def logpdf(self, x: ArrayLike, *, full_output: bool = False) -> Any:
        """Compute the logarithm of the density of this distribution at x, as `egm.gx2.logpdf` does.

        Parameters
        ----------
        x : float or array_like
            Point or points, in the units of `weights`.
        full_output : bool, default False
            Whether to return the estimated error as well.

        Returns
        -------
        log_density : float or ndarray
            The logarithm of the density, in the shape of `x`.
        error : float or ndarray
            Estimated absolute error of `log_density`, as `egm.gx2.logpdf` returns it; only with ``full_output=True``.
        """
        return output(log_densities(x, self._law), np.positive, full_output)

    def isf(self, p: ArrayLike, *, full_output: bool = False) -> Any:
        """Compute the upper quantile of this distribution, the x with P[Q > x] = p, as `egm.gx2.isf` does.

        Parameters
        ----------
        p : float or array_like
            Probability or probabilities, in [0, 1].
        full_output : bool, default False
            Whether to return the estimated error as well.

        Returns
        -------
        quantile : float or ndarray
            The quantile, in the shape of `p`.
        error : float or ndarray
            Estimated absolute error of `quantile`, as `egm.gx2.isf` returns it; only with ``full_output=True``.
        """
        return upper_quantiles(p, self._law, full_output)

    def ppf(self, p: ArrayLike, *, full_output: bool = False) -> Any:
        """Compute the lower quantile of this distribution, the x with P[Q <= x] = p, as `egm.gx2.ppf` does.

        Parameters
        ----------
        p : float or array_like
            Probability or probabilities, in [0, 1].
        full_output : bool, default False
            Whether to return the estimated error as well.

        Returns
        -------
        quantile : float or ndarray
            The quantile, in the shape of `p`.
        error : float or ndarray
            Estimated absolute error of `quantile`, as `egm.gx2.ppf` returns it; only with ``full_output=True``.
        """
        return lower_quantiles(p, self._law, full_output)

    def mean(self) -> float:
        """Compute the mean of this distribution.

        Returns
        -------
        float
            The mean, in the units of `weights`.
        """
        return self._law.mean

    def var(self) -> float:
        """Compute the variance of this distribution.

        Returns
        -------
        float
            The variance, in the squared units of `weights`.
        """
        return self._law.variance

    def std(self) -> float:
        """Compute the standard deviation of this distribution.

        Returns
        -------
        float
            The standard deviation, in the units of `weights`.
        """
        return self._law.deviation

    def stats(self, moments: str = "mv") -> tuple[float, ...]:
        """Compute the mean, the variance, the skewness and the excess kurtosis of this distribution, or some of them.

        Parameters
        ----------
        moments : str, default "mv"
            Letters that name the results: "m" for the mean, "v" for the variance, "s" for the
            skewness and "k" for the excess kurtosis.

        Returns
        -------
        tuple of float
            The results in the order of `moments`.
        """

        def standardized(order: int, factor: float) -> float:
            _, root, law = self._law._scaled
            std = law.deviation
            squares, rest = (law.weights / std) ** 2 * (law.dof + order * law.nc), (law.weights / std) ** (order - 2)
            return factor * float(np.sum(squares * rest)) / root ** (order - 2)

        known: dict[str, Callable[[], float]] = {
            **{"m": self.mean, "v": self.var},
            **{"s": lambda: standardized(3, 8.0), "k": lambda: standardized(4, 48.0)},
        }
        if not isinstance(moments, str):
            raise TypeError(f"moments must be a string of letters of 'mvsk', got {moments!r}")
        if not moments or set(moments) - set(known):
            raise ValueError(f"moments must consist of letters of 'mvsk', got {moments!r}")
        return tuple(known[letter]() for letter in moments)

    def median(self) -> float:
        """Compute the median of this distribution.

        Returns
        -------
        float
            The median, in the units of `weights`.
        """
        return float(self.ppf(0.5))

    def interval(self, confidence: float) -> tuple[float, float]:
        """Compute the interval with equal tails that has a given probability under this distribution.

        Parameters
        ----------
        confidence : float
            Probability of the interval, strictly between 0 and 1.

        Returns
        -------
        tuple of float
            The lower and the upper end of the interval.
        """
        rest = (1 - scalar(probability, confidence=confidence)) / 2
        return float(self.ppf(rest)), float(self.isf(rest))

    def support(self) -> tuple[float, float]:
        """Return the least and the largest value that a variable of this distribution can have.

        Returns
        -------
        tuple of float
            The lower and the upper end, which may be infinite.
        """
        return self._law.support

    def entropy(self) -> float:
        """Compute the differential entropy of this distribution, the mean of minus the log density, in nats.

        Returns
        -------
        float
            The entropy, for a variable in the units of `weights`.

        Raises
        ------
        AccuracyError
            If a search or a quadrature fails, as it mostly does if the largest positive or negative
            weight has less than 2e-6 degrees of freedom, or if `dof` and `nc` add up to more than about 1e19.

        Notes
        -----
        The mean is an integral of minus the log density at the quantile x(u), over the probability u. The variable of
        integration is the logit of u. The integral is divided at the constant term of Q, where the density may have a
        kink. If the density has a pole there, the variable of integration is the logarithm of the distance from it for
        distances below the largest weight, and nearest to the pole, where the density is a power of the distance, the
        integral has a closed form.
        """
        largest = float(np.max(np.abs(self.weights), initial=self.normal))
        unit = math.ldexp(0.5, math.frexp(largest)[1])
        weights = self.weights / unit
        kept = weights != 0  # the others are less than the rounding error of x, and may underflow
        centered = rv(weights[kept], self.dof[kept], self.nc[kept], self.normal / unit)

        def integrand(t: float) -> float:
            tail = 1 / (1 + math.exp(abs(t)))
            x = centered.ppf(tail) if t < 0 else centered.isf(tail)
            return -float(centered.logpdf(x)) * tail * (1 - tail)

        def logit(x: float) -> float:
            low, high = centered.support()
            t = float(centered.logcdf(x) - centered.logsf(x)) if low < x < high else math.inf * (-1 if x <= low else 1)
            return min(max(t, -_REACH), _REACH)

        pole = centered.normal == 0 and float(np.sum(centered.dof)) < 2
        distance = 1.0 if pole else 0.0
        parts = [_integral(integrand, -_REACH, logit(-distance)), _integral(integrand, logit(distance), _REACH)]
        if pole:
            parts += [_near_pole(centered, sign) for sign in (-1, 1) if any(sign * centered.weights > 0)]
        return math.fsum(parts) + math.log(unit)

    def rvs(
        self,
        size: int | Sequence[int] | None = None,
        random_state: np.random.Generator | int | None = None,
    ) -> Floats:
        """Draw random values from this distribution.

        Parameters
        ----------
        size : int or sequence of int, optional
            Shape of the result. Without it the result is a single number.
        random_state : numpy.random.Generator or int, optional
            Source of the random numbers, or its seed. Without it the draws differ from call to call.

        Returns
        -------
        float or ndarray
            The draws, in the shape `size`.
        """
        try:
            rng = np.random.default_rng(random_state)
        except (TypeError, ValueError) as error:
            message = f"random_state must be a Generator, a whole number >= 0 or None, got {random_state!r}"
            raise type(error)(message) from None
        return draw(self._law, size, rng)


def from_quadratic_form(
    A: ArrayLike,
    mean: ArrayLike = 0.0,
    cov: ArrayLike | None = None,
    linear: ArrayLike = 0.0,
    constant: float = 0.0,
) -> rv:
    r"""Return the distribution of the quadratic form x' A x + linear' x + constant of a normal vector x.

    Parameters
    ----------
    A : array_like, shape (d, d)
        Matrix of the form, finite. Only its symmetric part matters.
    mean : float or array_like, shape (d,), default 0
        Mean of x, finite.
    cov : array_like, shape (d, d), optional
        Covariance matrix of x, symmetric and positive semidefinite; without it, the identity.
    linear : float or array_like, shape (d,), default 0
        Coefficients of the linear term, finite.
    constant : float, default 0
        Constant term, finite.

    Returns
    -------
    rv
        The distribution, whose parameters are found from eigenvalues.

    Raises
    ------
    ValueError
        If an argument is outside its range, if the shapes do not fit, if `cov` is not symmetric or
        has a negative eigenvalue, if the form overflows or does not depend on x, or if a quadratic
        term is so small beside the linear one (see Notes) that digits would be lost.

    Notes
    -----
    Let :math:`x = m + L z`, where m is `mean`, z is standard normal and :math:`L L^T` is `cov`. Let
    :math:`\omega_i` be the eigenvalues of :math:`L^T A L`, and :math:`\beta_i` the coefficients of
    :math:`L^T (2 A m + b)` along the eigenvectors, where b is `linear`. With c for `constant`, the form is

    .. math:: m^T A m + b^T m + c + \sum_i (\omega_i z_i^2 + \beta_i z_i).

    For :math:`\omega_i \ne 0` the i-th term is :math:`\omega_i (z_i + \beta_i / 2 \omega_i)^2 - \beta_i^2 /
    4 \omega_i`, a noncentral chi-square variable and a constant. The terms with
    :math:`\omega_i = 0` add up to a normal variable.

    An eigenvalue counts as 0 if it is below :math:`d \cdot 2.2 \cdot 10^{-16}` times the largest entry
    of :math:`|L|^T |A| \, |L|`, where :math:`|L|` has the absolute values of the entries of L. Rounding
    errors may change every eigenvalue by as much. If :math:`\delta` is the change of the i-th eigenvalue
    and f the density, a tail p at x changes, to first order, by a relative
    :math:`\delta \, E[z_i^2 \mid Q = x] \, f(x) / p`. Coefficients :math:`\beta_i` of the normal
    variable that may be rounding errors count as 0 as well. If an eigenvalue is not 0, but below
    :math:`2^{-56} \max_j |\beta_j|`, then :math:`\omega_i z_i^2` is replaced by its mean. This changes
    tails down to 1e-300 by a relative 1e-12 at most, unless x is so near to an end of the support that
    this mean is not small beside the distance.

    If :math:`\omega_i` is small beside :math:`\beta_i`, the noncentral variable and the constant nearly
    cancel. Let S be the sum of :math:`\beta_i^2 / 4 |\omega_i|` over all :math:`\omega_i \ne 0`, and
    M the largest of all :math:`|\beta_i|` and :math:`|\omega_i|`. Tails get a relative error of
    about 1e-16 S / M; k standard deviations away from the mean, the error may be k times as large. The
    constant, and so the end of the support, has an error of about 1e-16 S: this matters for a tail
    whose x is near to this end.
    A ValueError is raised if S is above :math:`2^{18} M` and above twice the absolute value of the
    form at m. If this absolute value is larger, its own rounding costs as many digits.

    References
    ----------
    .. [1] Sheppard (1899), "On the application of the theory of error to cases of normal
       distribution and normal correlation".

    Examples
    --------
    The product of two normal variables with the correlation 1/2 is below 0 with the probability
    1/3 [1]_:

    >>> from egm import gx2
    >>> law = gx2.from_quadratic_form([[0, 1], [0, 0]], cov=[[1, 0.5], [0.5, 1]])
    >>> round(float(law.cdf(0.0)), 12)
    0.333333333333
    """
    A = matrix(None, A=A)
    d = A.shape[0]
    if A.shape != (d, d):
        raise ValueError(f"A must be a square matrix, got shape {A.shape}")
    mean, linear = (_vector_of(d, **named) for named in ({"mean": mean}, {"linear": linear}))
    constant = scalar(finite, constant=constant)
    A = A / 2 + A.T / 2
    root = np.eye(d) if cov is None else _root(matrix(d, cov=cov))
    with np.errstate(over="ignore", invalid="ignore"):
        form, slopes = root.T @ A @ root, root.T @ (2 * (A @ mean) + linear)
        level = mean @ A @ mean + linear @ mean + constant
    if not np.all(np.isfinite([*form.flat, *slopes, level])):
        raise ValueError(_OVERFLOWS)
    omega, vectors = np.linalg.eigh(form)
    with np.errstate(over="ignore", invalid="ignore"):
        beta = vectors.T @ slopes
    if not np.all(np.isfinite([omega, beta])):
        raise ValueError(_OVERFLOWS)
    largest, slope = float(np.max(np.abs(omega))), float(np.max(np.abs(beta)))
    # With the absolute values of all factors, nothing cancels; rounding errors are smaller than these products.
    rounding, size = d * np.finfo(float).eps, np.abs(root).T
    errors = size @ (rounding * np.abs(A))
    omega[np.abs(omega) <= np.max(errors @ size.T)] = 0.0
    curved = np.abs(omega) > _STRAIGHT * slope
    flat, omega, straight, beta = np.sum(omega[~curved]), omega[curved], beta[~curved], beta[curved]
    of_slopes = (2 * errors @ np.abs(mean) + size @ (rounding * np.abs(linear))) @ np.abs(vectors)
    straight[np.abs(straight) <= of_slopes[~curved]] = 0.0
    if omega.size == 0 and not straight.any():
        raise ValueError("A and linear must not both be 0 on the support of x, got a form that does not depend on x")
    taken = beta * (beta / 4 / omega)
    with np.errstate(over="ignore"):
        digits_are_lost = np.sum(np.abs(taken)) > max(_CANCELED * max(largest, slope), 2 * abs(level))
    if digits_are_lost:
        worst = int(np.argmax(np.abs(taken)))
        raise ValueError(
            "A must not be tiny, unless it is 0, beside linear and 2 A mean: the digits of omega z^2 + beta z are lost "
            f"for the eigenvalue omega = {omega[worst]:.3g} and the coefficient beta = {beta[worst]:.3g}"
        )
    try:
        shift = math.fsum([level, flat, *-taken])
    except OverflowError:
        raise ValueError(_OVERFLOWS) from None
    return rv(omega, 1, (beta / 2 / omega) ** 2, math.hypot(*straight), shift)


def _integral(function: Callable[[float], float], start: float, stop: float) -> float:
    """Return the integral of `function`, a function of one number, from `start` to `stop`.

    Raise an AccuracyError if its estimated error is above `WORST`. Rounding may keep this error above 1e-13.
    """
    value, error, *_ = quad(function, start, stop, epsabs=1e-13, epsrel=1e-13, limit=200, full_output=1)
    if not error <= max(WORST, 1e-13 * abs(value)):
        raise AccuracyError(f"an integral for the entropy has an estimated error of {error:.1e}", estimate=float(value))
    return float(value)


def _near_pole(law: rv, sign: int) -> float:
    """Integrate minus the density times its logarithm over sign * x from 0 to 1, for a density with a pole at 0.

    The result is a part of the entropy that `rv.entropy` computes. `law` has k < 2 degrees of freedom in total, and
    neither a normal term nor a constant. `sign` is 1 or -1. For |x| below exp(`_POLE`), the density is proportional to
    |x|^(k/2 - 1), and its part of the integral has a closed form.
    """

    def integrand(log_x: float) -> float:
        log_density = float(law.logpdf(sign * math.exp(log_x)))
        return -log_density * math.exp(log_density + log_x)

    k = float(np.sum(law.dof))
    log_density = float(law.logpdf(sign * math.exp(_POLE)))
    closed = (1 - 2 / k - log_density) * math.exp(log_density + _POLE) * 2 / k
    return closed + _integral(integrand, _POLE, 0.0)


def _copy(values: Array) -> Array:
    """Return a copy of the vector `values`.

    If `values` was broadcast from one number, the copy takes the memory of this number alone.
    """
    own = distinct(values).copy()
    return own if own.size == values.size else np.ndarray(values.size, float, own, strides=(0,))


def _read_only(values: Array) -> Array:
    """Return a read-only view of the array `values`."""
    view = values.view()
    view.flags.writeable = False
    return view


def _vector_of(d: int, **named: ArrayLike) -> Array:
    """Check that an argument is a finite number or a vector of `d` such numbers; return it as a vector of length `d`.

    The argument is passed by keyword, so that the message of an error can show its name.
    """
    ((name, _),) = named.items()
    array = finite(**named)
    if array.shape not in ((), (d,)):
        raise ValueError(f"{name} must be a number or have the {d} entries of a column of A, got shape {array.shape}")
    return np.broadcast_to(array, d)


def _root(cov: Array) -> Array:
    """Return a matrix L with L L' = `cov`, or raise a ValueError if `cov` is not a covariance matrix.

    L follows from the eigenvectors of the correlation matrix. The eigenvalues of `cov` itself would all have rounding
    errors as large as that of the largest variance, and so L would depend on the units of the variables. An eigenvalue
    counts as 0 if it may be a rounding error of the product of its eigenvector and the matrix; the root of such an
    error would be far larger.
    """
    if cov.shape[0] != cov.shape[1] or not np.allclose(cov, cov.T, rtol=1e-12, atol=0):
        raise ValueError(f"cov must be a symmetric matrix with {cov.shape[1]} rows, got shape {cov.shape}")
    deviations = np.sqrt(np.diag(cov), where=np.diag(cov) > 0, out=np.ones(cov.shape[0]))
    # The second try is for a matrix that rounding has made indefinite: it has tiny variances with larger covariances.
    for unit in (deviations, np.ones_like(deviations)):
        correlation = cov / unit / unit[:, None]
        values, vectors = np.linalg.eigh(correlation)
        if values[0] >= -1e-12 * values[-1] and values[-1] > 0:
            rounding, size = values.size * np.finfo(float).eps, np.abs(vectors)
            values[values <= rounding * np.sum(size * (np.abs(correlation) @ size), axis=0)] = 0.0
            return unit[:, None] * vectors * np.sqrt(values)
    raise ValueError(f"cov must be positive semidefinite and not 0, got an eigenvalue of {float(values[0])!r}")
